"""The contents of a source: :class:`Source`, with a :class:`Member` for every array, and text that gets a width.

Of one dimension, text that no width holds, bytes and lists of variable length are members of rows, which become ragged
arrays (:mod:`.ragged`).

A store keeps all of a source, but for three lists, which have names: ``refused`` are arrays that cannot be stored,
``skipped_attrs`` attributes that cannot, and ``notes`` are sentences about the rest. There is no fourth list: an object
that is in none of them comes back from the store as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from nandarray import dtypes
from nandarray.array.creation import fill_bytes
from nandarray.array.listing import RAGGED
from nandarray.array.ragged_values import KINDS, RaggedKind
from nandarray.errors import InvalidError
from nandarray.index.shapes import Box, boxes
from nandarray.interop.convert.attributes import encode
from nandarray.interop.convert.limits import CHUNK_MIN_BYTES
from nandarray.interop.convert.slabs import slab_shape, stored_slabs

__all__ = ["Member", "Source", "SourceOptions", "fixed_strings", "rows_told"]

#: Elements of text to look at at once, and the most if that is one chunk.
_SCAN = 1 << 16
_SCAN_CHUNK = 1 << 22
#: Most characters of an element of text, whose width is fixed: 65,536 bytes.
_TEXT_MOST = 1 << 14
#: Most rows of variable length: where each begins is written, whether anything is stored for it or not.
_ROWS_MOST = 1 << 28


@dataclass(frozen=True, kw_only=True)
class Member:
    """One array of a source: what it is, and how to read a box of it."""

    name: str  # path below the source's root; "" for a source that is one array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Box], np.ndarray[Any, Any]]
    chunks: tuple[int, ...] | None = None
    order: str = "C"
    stream: bool = False  # boxes must come in order, each one run of the C-ordered (or F-ordered) elements
    attrs: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    #: Gives the boxes that something is stored for, if the others are known to be ``fill``; None for all of them.
    stored: Callable[[], Iterator[Box] | None] = lambda: None
    grain: tuple[int, ...] | None = None  # what is decoded at once, where that is less than a chunk
    compression: str | None = None  # the nearest to the source's that a store has
    #: Kind and dtype of rows of variable length, which ``read`` gives then; None of elements of one size.
    ragged: tuple[RaggedKind, np.dtype[Any]] | None = None
    #: The dataset of h5py whose elements these are as they lie in the file; None where anything converts them.
    item: Any = None


@dataclass
class Source:
    """All that a file holds: arrays, and groups with their attributes ("" is the root)."""

    label: str = ""  # what an array without a name is called: the file's name, or the member's
    members: list[Member] = field(default_factory=list)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)  # name, why
    skipped_attrs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def called(self, name: str) -> str:
        """Return what messages call an array or a group of this name."""
        return name or self.label or "/"

    def refuse(self, name: str, why: str) -> None:
        """Note that an array cannot be stored, in a sentence that its name begins."""
        self.refused.append((name, f"{self.called(name)} {why}"))

    def note(self, name: str, what: str) -> None:
        """Note what is not kept of an array or a group, in a sentence that its name begins."""
        self.notes.append(f"{self.called(name)} {what}")

    def attrs(self, owner: str, attrs: Mapping[Any, Any]) -> dict[str, Any]:
        """Encode attributes, noting those that cannot be kept."""
        skipped: list[str] = []
        plain = encode(attrs, skipped=skipped)
        self.skipped_attrs += [f"{self.called(owner)}:{key}" for key in skipped]
        return plain

    def add(self, name: str, attrs: Mapping[Any, Any], **facts: Any) -> None:
        """Add an array with its attributes, as far as they can be kept, and the other facts of a :class:`Member`.

        One of a dtype that cannot be stored is refused.
        """
        try:
            dtypes.check(facts["dtype"])
            fill_bytes(facts.get("fill"), facts["dtype"])
        except InvalidError as error:
            self.refuse(name, f"cannot be stored: {error}")
            return
        self.members.append(Member(name=name, attrs=self.attrs(name, attrs), **facts))

    def add_rows(
        self, name: str, attrs: Mapping[Any, Any], kind: RaggedKind, item: Any = np.uint8, **facts: Any
    ) -> None:
        """Add an array of rows of variable length, as :meth:`add` does; one with more dimensions is refused."""
        shape, item = tuple(facts["shape"]), np.dtype(item)
        if len(shape) != 1:
            what = "text" if kind == "text" else "elements"
            self.refuse(name, f"holds {what} of variable length in {len(shape)} dimensions: one can be stored")
        elif shape[0] > _ROWS_MOST:
            self.refuse(name, f"holds {shape[0]} rows of variable length, more than {_ROWS_MOST}")
        else:
            try:
                dtypes.check(item)
            except InvalidError as error:
                self.refuse(name, f"cannot be stored: {error}")
                return
            told = self.attrs(name, attrs)
            self.members.append(Member(name=name, attrs=told, dtype=item, ragged=(kind, item), **facts))


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of an import for its source, beside the path."""

    member: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None
    offset: int = 0
    order: str = "C"
    trusted: bool = False
    limit: int = CHUNK_MIN_BYTES  # bytes that one chunk may take
    #: A store of Zarr's, or a file object, through which the source is read in place of its path.
    via: Any = None


def fixed_strings(
    source: Source,
    name: str,
    shape: tuple[int, ...],
    chunks: Any,
    read: Callable[[Box], Any],
    *,
    stored: Callable[[], Iterator[Box] | None] = lambda: None,
    fill: str = "",
    grain: tuple[int, ...] | None = None,
) -> tuple[Any, Any, str] | RaggedKind | None:
    """Give variable-length text a fixed width: one pass over it finds the longest.

    The kind of rows is given where no width holds it and it has one dimension; None where it is refused.
    """
    longest = max(1, len(fill))
    where = stored()
    limit = max(_SCAN, min(prod(chunks or (1,)), _SCAN_CHUNK))
    if where is None:
        slabs = boxes(shape, slab_shape(shape, limit, chunks=chunks))
    else:
        slabs = stored_slabs(where, shape, limit, chunks=chunks, grain=grain)
    for box in slabs:
        try:
            found = np.asarray(read(box)).ravel()
        except UnicodeDecodeError as error:
            source.refuse(name, f"holds text that is not UTF-8: {error.reason} at byte {error.start} of an element")
            return None
        why, rows = _not_text(found)
        if why and not (rows and len(shape) == 1):
            source.refuse(name, why)
            return None
        if why:
            return rows
        longest = max(longest, max(map(len, found), default=0))
        if longest > _TEXT_MOST and len(shape) == 1:
            return "text"
        if longest > _TEXT_MOST:
            source.refuse(name, f"holds text of {longest} characters; an element has at most {_TEXT_MOST}")
            return None
    dtype = np.dtype(f"U{longest}")

    def fixed(box: Box) -> np.ndarray[Any, Any]:
        text = np.asarray(read(box), dtype=object)
        return np.array(text.ravel().tolist(), dtype=dtype).reshape(text.shape)

    return dtype, fixed, fill


def _not_text(found: np.ndarray[Any, Any]) -> tuple[str | None, RaggedKind | None]:
    """Return why elements cannot be text of a fixed width, and as which rows they can be stored."""
    for text in found:
        if isinstance(text, bytes):
            return "holds bytes of variable length in several dimensions: one can be stored", "bytes"
        if not isinstance(text, str):
            return f"holds {type(text).__name__} objects; only fixed-size dtypes can be stored", None
        if text.endswith("\0"):
            return "holds text that ends with NUL, which text of a fixed width does not keep", "text"
    return None, None


def rows_told(attrs: Mapping[Any, Any]) -> RaggedKind | None:
    """Return the kind of rows that an attribute of an export says; None where there is none."""
    told = attrs.get(RAGGED)
    return next((kind for kind in KINDS if isinstance(told, str) and kind == told), None)
