"""HDF5 files as sources of an import: where a link leads, what reads other files, what is stored of a dataset.

An HDF5 file can name other files: external links, external raw data, virtual datasets. An import of an untrusted file
would copy these files' contents, so :func:`leads_out` and :func:`reads_elsewhere` find them. :func:`stored_boxes`
gives the chunks that exist, so that the others cost nothing however large the shape is, and compares what each unpacks
to with the memory that an import may use (:mod:`nandarray.interop.convert.limits`).

The file itself is read by the HDF5 library; this module does not guard against faults of that library.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from math import inf, prod
from typing import Any

from nandarray.errors import InvalidError
from nandarray.index.shapes import Box
from nandarray.interop.convert.limits import HEAD_BYTES, deflated_fits, head_bound, zstd_size

__all__ = [
    "ChunkGuard",
    "chunk_bytes_most",
    "chunk_guard",
    "has_chunks",
    "leads_out",
    "reads_elsewhere",
    "refuse_links",
    "stored_boxes",
    "too_large",
]

#: Refuses a chunk that unpacks to too much: its offset, stored size, mask of filters, and what gives its bytes.
ChunkGuard = Callable[[tuple[int, ...], int, int, Callable[[], bytes]], None]

#: Most links that a path may go through, as in the HDF5 library.
_LINKS_MOST = 16
#: Places in an index that can be walked within seconds, whether anything is there or not.
_PLACES_MOST = 200_000_000
#: Lowest version of the layout message whose index may have a place for every chunk.
_LAYOUT_OF_PLACES = 4
_TREE = 5
_UNDEFINED = 2**64 - 1
#: Bytes that a stored chunk may have beyond its elements.
_SLACK = 64 << 10
_FLETCHER, _NBIT, _SCALE_OFFSET, _BITSHUFFLE = 3, 5, 6, 32008
#: Filters whose output is not larger than the chunk: shuffle, and those whose parameters are looked at.
_PLAIN = {2, _NBIT, _SCALE_OFFSET}
_REFUSED = "is followed only if the source is trusted (trusted=True, --trusted)"


def leads_out(h5py: Any, group: Any, path: str, links: int = 0) -> str | None:
    """Return why a path may not be opened: a link on the way leads to another file, or in a circle.

    The path, of names or one name, starts at a group; ``links`` were followed on the way here. It may be opened (None)
    where it stays in the file, or leads nowhere.
    """
    if links > _LINKS_MOST:
        return f"{path} is a link that leads through more than {_LINKS_MOST} others"
    at = group.file["/"] if path.startswith("/") else group
    for part in filter(None, path.split("/")):
        if not isinstance(at, h5py.Group):
            return None
        if part == ".":
            continue
        try:
            link = at.get(part, getlink=True)
        except TypeError:
            return f"{part} is a link of a kind that is not known"
        except (KeyError, ValueError, OSError, RuntimeError):
            return None
        if isinstance(link, h5py.ExternalLink):
            return f"{part} is an external link to {link.path!r} in {link.filename!r}, which {_REFUSED}"
        if isinstance(link, h5py.SoftLink) and (why := leads_out(h5py, at, link.path, links + 1)):
            return why
        try:
            at = at[part]
        except (KeyError, ValueError, OSError, RuntimeError):
            return None
    return None


def reads_elsewhere(item: Any) -> str | None:
    """Return why a dataset may not be read: its elements are in other files, or put together from other datasets."""
    properties = item.id.get_create_plist()
    if properties.get_external_count():
        name = properties.get_external(0)[0]
        shown = name.decode(errors="replace") if isinstance(name, bytes) else name
        return f"{item.name} has its elements in another file, {shown!r}, which {_REFUSED}"
    if item.is_virtual:
        sources = sorted({source.file_name for source in item.virtual_sources()})
        return f"{item.name} is a virtual dataset of {', '.join(map(repr, sources[:3]))}, which {_REFUSED}"
    return None


def refuse_links(h5py: Any, file: Any) -> None:
    """Refuse a file in which anything leads to another one, by an InvalidError."""
    seen = set()
    todo = [file["/"]]
    while todo:
        group = todo.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        for key in group:
            if why := leads_out(h5py, group, key):
                raise InvalidError(f"{file.filename}: {why}")
            try:
                child = group[key]
            except (KeyError, OSError, RuntimeError):
                continue  # leads nowhere; who opens it says so
            if isinstance(child, h5py.Group):
                todo.append(child)
            elif isinstance(child, h5py.Dataset) and (why := reads_elsewhere(child)):
                raise InvalidError(f"{file.filename}: {why}")


def too_large(item: Any, limit: int) -> str | None:
    """Return why a dataset's chunks cannot be decoded: one takes more memory than an import may use."""
    if item.chunks is None or (need := _chunk_bytes(item)) <= limit:
        return None
    return f"{item.name} has chunks of {need} bytes, more than {limit}; a larger budget reads them"


def stored_boxes(item: Any, limit: int, *, trusted: bool) -> Iterator[Box] | None:
    """Return the boxes of a dataset that something is stored for; None if that may be all of it.

    A chunk that needs more than ``limit`` bytes to be decoded, and an index too large to be walked, are an
    InvalidError. If ``trusted``, filters that nothing bounds are used.
    """
    if item.is_virtual or not item.shape:
        return None
    if item.chunks is None:
        return iter(()) if not item.id.get_storage_size() else None
    if not has_chunks(item, trusted=trusted):
        return iter(())
    return _chunks(item, chunk_bytes_most(item, limit), trusted=trusted)


def _chunk_bytes(item: Any) -> int:
    return int(prod(item.chunks)) * int(item.id.get_type().get_size())


def _chunks(item: Any, most: int, *, trusted: bool) -> Iterator[Box]:
    found = array("Q")
    item.id.chunk_iter(lambda info: found.extend((*info.chunk_offset, info.size, info.filter_mask)))
    row = item.ndim + 2
    check = chunk_guard(item, most) if not trusted else None
    for at in range(0, len(found), row):
        offset, size, mask = tuple(found[at : at + item.ndim]), found[at + row - 2], found[at + row - 1]
        if any(low >= n for low, n in zip(offset, item.shape, strict=True)):
            continue
        if check is not None:
            check(offset, size, mask, partial(_stored_bytes, item, offset))
        yield tuple(slice(low, min(low + n, end)) for low, n, end in zip(offset, item.chunks, item.shape, strict=True))


def _stored_bytes(item: Any, offset: tuple[int, ...]) -> bytes:
    raw: bytes = item.id.read_direct_chunk(offset)[1]
    return raw


def chunk_guard(item: Any, most: int) -> ChunkGuard | None:
    """Return a function that refuses a chunk which unpacks to more than ``most`` bytes; None if none can.

    It takes the chunk's offset, its stored size, its mask of filters, and a function that gives the stored bytes. A
    filter that nothing bounds is an InvalidError here.
    """
    check = _filter_check(item, most)
    if check is None:
        return None
    number, bound, fits = check

    def guard(offset: tuple[int, ...], size: int, mask: int, raw: Callable[[], bytes]) -> None:
        label = f"chunk {offset} of {item.name}"
        if size > most:
            raise InvalidError(f"{label} has {size} bytes stored, more than the {most} that it may have")
        if not mask >> number & 1 and size * bound > most and not fits(raw()):
            raise InvalidError(f"{label} unpacks to more than the {most} bytes it may have ({size} are stored)")

    return guard


def chunk_bytes_most(item: Any, limit: int) -> int:
    """Return the most bytes that a stored chunk of a dataset may have, packed or unpacked."""
    return min(limit, _chunk_bytes(item) + _SLACK)


def has_chunks(item: Any, *, trusted: bool = False) -> bool:
    """Return whether a dataset has an index of chunks; one that takes minutes to walk is an InvalidError."""
    places = prod(-(-n // c) for n, c in zip(item.shape, item.chunks, strict=True))
    kind = "tree" if places <= _PLACES_MOST or trusted else _index_kind(item)
    if kind == "places":
        raise InvalidError(
            f"{item.name} has an index of {places} chunks in a form in which finding those that exist takes minutes "
            f"(more than {_PLACES_MOST}); write it with larger chunks, or without libver='latest'"
        )
    return kind != "nothing"


def _filter_check(item: Any, most: int) -> tuple[int, float, Callable[[bytes], bool]] | None:
    """Return a check of whether a chunk unpacks to too much; None if there is none.

    The library unpacks however much there is, and compares that with the chunk's size afterwards. The check is the
    number of the filter that unpacks, the most that it makes of a byte, and a function that says of stored bytes
    whether they fit.
    """
    properties = item.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    for code, _, values, _ in filters:
        if code in {_NBIT, _SCALE_OFFSET} and (len(values) < 5 or values[2] * values[4] > most):  # noqa: PLR2004
            raise InvalidError(f"{item.name} has a filter that makes more of a chunk than the chunk has")
    # Bitshuffle compresses only if its fifth parameter says so.
    codes = [2 if code == _BITSHUFFLE and not any(values[4:5]) else code for code, _, values, _ in filters]
    checksum = 4 if codes and codes[-1] == _FLETCHER else 0
    inner = codes[:-1] if checksum else codes
    if set(inner) <= _PLAIN:
        return None
    if inner[-1] not in _PACKING or not set(inner[:-1]) <= _PLAIN:
        names = ", ".join(str(code) for code in codes)
        raise InvalidError(
            f"{item.name} has filters ({names}) of which nothing bounds what they unpack to: the source "
            f"must be trusted (trusted=True, --trusted)"
        )
    ratio, size = _PACKING[inner[-1]]
    return len(inner) - 1, ratio, lambda raw: size(raw[: len(raw) - checksum], most) <= most


def _inflated(raw: bytes, most: int) -> int:
    return most if deflated_fits(raw, most, wbits=15) else most + 1


def _lzf_size(raw: bytes, most: int) -> int:
    """Add up the lengths of literal runs and matches."""
    at = size = 0
    while at < len(raw) and size <= most:
        control = raw[at]
        if control < 32:  # noqa: PLR2004
            at, size = at + control + 2, size + control + 1
        else:
            length = control >> 5
            if length == 7:  # noqa: PLR2004
                at += 1
                length += raw[at] if at < len(raw) else 0
            at, size = at + 2, size + length + 2
    return size


#: Filters that unpack: the most that each makes of a byte, and the size that stored bytes have unpacked.
_PACKING: dict[int, tuple[float, Callable[[bytes, int], int]]] = {
    1: (1032, _inflated),
    4: (inf, lambda raw, _: int.from_bytes(raw[:4], "little")),  # szip
    32000: (88, _lzf_size),
    32001: (inf, lambda raw, _: head_bound(["blosc"], raw[:HEAD_BYTES], len(raw)) or 0),
    32004: (inf, lambda raw, _: int.from_bytes(raw[:8], "big")),  # LZ4
    _BITSHUFFLE: (inf, lambda raw, _: int.from_bytes(raw[:8], "big")),  # bitshuffle
    32015: (inf, zstd_size),
}


# --- the layout message -----------------------------------------------------------------------------------------------


def _index_kind(item: Any) -> str:
    """Return the kind of index of a dataset's chunks, which the library does not report.

    It is "tree" where only chunks that exist are walked, "places" where all places are (or it is not known), "nothing"
    where there is no index yet.
    """
    import h5py

    base = item.file.userblock_size
    address = h5py.h5o.get_info(item.id).addr + base
    try:
        with open(item.file.filename, "rb") as file:
            layout = next(data for kind, data in _messages(file, address, base) if kind == 8)  # noqa: PLR2004
        if layout[0] < _LAYOUT_OF_PLACES:
            return "tree"
        at = 5 + layout[3] * layout[4]  # behind version, class, flags, dimensions and the chunk's extents
        kind = layout[at]
        if kind == _TREE:
            return "tree"
        parameters = {3: 1, 4: 5}[kind]  # fixed and extensible arrays; the others are complete
        (index,) = struct.unpack_from("<Q", layout, at + 1 + parameters)
    except (OSError, struct.error, LookupError, StopIteration):
        return "places"
    return "nothing" if index == _UNDEFINED else "places"


def _messages(file: Any, address: int, base: int) -> Iterator[tuple[int, bytes]]:
    """Return the messages of an object header, with those of its continuations."""
    file.seek(address)
    head = file.read(64)
    new = head[:4] == b"OHDR"
    ordered = False
    if new:
        flags = head[5]
        ordered = bool(flags & 4)
        at = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width = 1 << (flags & 3)
        blocks = [(address + at + width, int.from_bytes(head[at : at + width], "little"))]
    else:
        blocks = [(address + 16, struct.unpack_from("<I", head, 8)[0])]
    for start, length in blocks[:1]:
        yield from _block(file, start, length, blocks, base, new=new, ordered=ordered)
    for start, length in blocks[1:64]:
        skip = 4 if new else 0
        yield from _block(file, start + skip, length - 2 * skip, blocks, base, new=new, ordered=ordered)


def _block(
    file: Any, start: int, length: int, blocks: list[tuple[int, int]], base: int, *, new: bool, ordered: bool
) -> Iterator[tuple[int, bytes]]:
    file.seek(start)
    block = file.read(min(length, 1 << 20))
    at, head = 0, (6 if ordered else 4) if new else 8
    while at + head <= len(block):
        kind, size = struct.unpack_from("<BH" if new else "<HH", block, at)
        data = block[at + head : at + head + size]
        if kind == 16 and len(data) >= 16:  # noqa: PLR2004 (continuation)
            offset, more = struct.unpack_from("<QQ", data)
            blocks.append((offset + base, more))
        yield kind, data
        at += head + size
