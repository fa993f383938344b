"""A store on the other side of NVMe/TCP: arrays, views and programs by N-D commands and command sets 3 and 4.

``nandarray.open("nvme+tcp://HOST:PORT/NQN")`` gives a :class:`RemoteStore`, by an initiator of our own;
``connect("/dev/nvmeX")`` gives one of a drive that this machine's kernel is connected to. A selection of an array
becomes N-D reads or writes of boxes of at most 2 MiB, the largest transfer of the drive; each of them is atomic, not
all together.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import _nandarray
from nandarray._nandarray import select
from nandarray.dtypes import decode
from nandarray.errors import BadIndexError, ClosedError, InvalidError, NandarrayError, NotFoundError
from nandarray.index import buffers
from nandarray.index.compare import Uncompared
from nandarray.index.shapes import check_number, check_shape
from nandarray.nvme.commands import CloseSpace, Command, Completion, Direction, OpenSpace, SpaceInformation, memory_of
from nandarray.nvme.kernel import KernelDrive
from nandarray.nvme.names import check_nqn

if TYPE_CHECKING:
    from nandarray._nandarray import Selection

__all__ = ["RemoteArray", "RemoteProgram", "RemoteStore", "connect", "is_url"]

_URL = re.compile(r"nvme\+tcp://(?P<address>[^/]+)/(?P<nqn>nqn\..+)", re.DOTALL)
_WRONG_PARAMETERS = "Connect Invalid Parameters"
_ND, _PROGRAMS, _MEMORY = 1024, 1023, 1022
_TRANSFER = 2 << 20
_RISCV = 0xC0
_PART = 64 << 10
_NOT_FOUND = 0x1C0
_PROGRAM_DATA = 0x18E
_SLOTS = 64
# Tags of accounts: those of executions go up to that of loads, which a host gives to none.
_LOAD_TAG = 0xFFFF


def is_url(path: Any) -> bool:
    """Whether a path, as :func:`nandarray.open` got it, names a drive: begins with ``nvme+tcp://``."""
    return isinstance(path, str) and path.startswith("nvme+tcp://")


def connect(
    url: str | os.PathLike[str],
    *,
    hostnqn: str | None = None,
    secret: str | None = None,
    controller_secret: str | None = None,
    digests: bool = False,
) -> RemoteStore:
    """Connect to a drive.

    Parameters
    ----------
    url : str or path
        ``nvme+tcp://HOST:PORT/NQN``; or ``/dev/nvmeX``, the controller's device of a drive that this machine's kernel
        is connected to, whose host and secrets are the kernel's.
    hostnqn : str, optional
        Qualified name of this host.
    secret : str, optional
        Secret by which this host proves its identity, if the drive asks for that.
    controller_secret : str, optional
        Secret by which the drive has to prove its own identity.
    digests : bool
        Whether headers and data have CRC32C digests.

    Returns
    -------
    RemoteStore
        The store behind it.

    Raises
    ------
    InvalidError
        The URL is no URL of a drive, the drive cannot be reached or refuses, or one of the two sides does not know its
        secret.
    """
    url = os.fspath(url)
    if url.startswith("/dev/"):
        if digests or not (hostnqn is secret is controller_secret is None):
            raise InvalidError(f"{url}: the kernel has chosen host, secrets and digests when it connected")
        return RemoteStore(KernelDrive(url), url)
    found = _URL.fullmatch(url)
    if not found:
        raise InvalidError(f"{url!r} is not nvme+tcp://HOST:PORT/NQN or /dev/nvmeX; an NQN begins with 'nqn.'")
    if secret is None and controller_secret is not None:
        raise InvalidError("a controller's secret needs the host's, too")
    check_nqn(found["nqn"], "the subsystem")
    if hostnqn is not None:
        check_nqn(hostnqn, "this host")
    try:
        native = _nandarray.NvmeHost.connect(
            found["address"],
            found["nqn"],
            hostnqn=hostnqn,
            secrets=None if secret is None else (secret, controller_secret),
            header_digest=digests,
            data_digest=digests,
        )
    except InvalidError as error:
        if _WRONG_PARAMETERS in str(error):  # of those of Connect, the name alone is the caller's
            raise InvalidError(f"no subsystem there has the name {found['nqn']!r}: {error}") from error
        raise
    return RemoteStore(native, url)


def _entry(opcode: int, nsid: int, words: dict[int, int]) -> bytes:
    """Pack a submission entry of dwords."""
    entry = bytearray(64)
    struct.pack_into("<II", entry, 0, opcode, nsid)
    for number, word in words.items():
        struct.pack_into("<I", entry, 4 * number, word & 0xFFFFFFFF)
    return bytes(entry)


class RemoteStore:
    """A store behind NVMe/TCP. What :func:`nandarray.open` gives for a URL.

    Parameters
    ----------
    native : NvmeHost or KernelDrive
        The connection.
    url : str
        Address of the drive.
    """

    def __init__(self, native: _nandarray.NvmeHost | KernelDrive, url: str) -> None:
        self._native: _nandarray.NvmeHost | KernelDrive | None = native
        self.url = url
        self._unused: list[int] = []
        # Tags of executions. The first one is random: processes may share one controller of the kernel.
        self._tags = itertools.count(int.from_bytes(os.urandom(2), "little"))

    def call(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[Completion, bytes]:
        """Execute a command that is given as bytes.

        Parameters
        ----------
        entry : bytes
            The 64-byte submission entry, without identifier and data pointer.
        data : bytes, optional
            Data for the controller.
        room : int
            Bytes of the controller's data.
        admin : bool
            Whether it goes to the admin queue.

        Returns
        -------
        tuple of Completion and bytes
            Completion of the command, and the controller's data.
        """
        if not isinstance(entry, bytes) or not isinstance(data, bytes | None):
            raise InvalidError(f"entry and data are bytes, not {type(entry).__name__} and {type(data).__name__}")
        if not isinstance(admin, bool):
            raise InvalidError(f"admin must be True or False, not {admin!r}")
        done, found = self._connection.call(entry, data, check_number("room", room, most=2**32 - 1), admin=admin)
        return Completion.decode(done), found

    @property
    def _connection(self) -> _nandarray.NvmeHost | KernelDrive:
        if self._native is None:
            raise ClosedError(f"the connection to {self.url} is closed")
        return self._native

    def _done(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[Completion, bytes]:
        done, found = self.call(entry, data, room, admin=admin)
        if not done.ok:
            raise NandarrayError(f"the drive: {done}")
        if data is None and len(found) != room:
            raise NandarrayError(f"the drive: {len(found)} bytes of data, and not {room}")
        return done, found

    def submit(self, command: Command, data: Any = None) -> Completion:
        """Execute a command of :mod:`nandarray.nvme`, as :meth:`nandarray.nvme.Controller.submit` does.

        Parameters
        ----------
        command : Command
            The command; N-D commands go to the drive's N-D namespace.
        data : buffer, optional
            Contiguous memory to read into or to write from.

        Returns
        -------
        Completion
            Completion of the command.
        """
        entry, payload, page = _nandarray.nvme_encode(command)
        if page is not None:
            raise InvalidError("boxes of more than three dimensions go through RemoteArray")
        if command.opcode >= 0x80:
            entry = bytes([command.opcode & 0x7F, *entry[1:4], *_ND.to_bytes(4, "little"), *entry[8:]])
        to_host = command.direction is Direction.TO_HOST
        memory = None if data is None else memory_of(data, write=to_host)
        if to_host:
            if memory is None:
                raise InvalidError(f"{type(command).__name__} needs memory to read into")
            done, found = self.call(entry, None, memory.nbytes)
            if done.ok:
                if len(found) != memory.nbytes:
                    raise NandarrayError(f"the drive: {len(found)} bytes of data, and not {memory.nbytes}")
                memory[:] = np.frombuffer(found, np.uint8)
            return done
        if payload is not None and memory is not None:
            raise InvalidError(f"{type(command).__name__} brings its own data")
        return self.call(entry, payload if memory is None else memory.tobytes())[0]

    def names(self) -> list[str]:
        """List the arrays.

        Returns
        -------
        list of str
            Their names, in order.
        """
        return list(self)

    def __iter__(self) -> Iterator[str]:
        def log(offset: int, room: int) -> bytes:
            dwords = room // 4 - 1
            words = {10: 0xC0 | (dwords & 0xFFFF) << 16, 11: dwords >> 16, 12: offset}
            return self._done(_entry(0x02, 0, words), None, room, admin=True)[1]

        page, at = log(0, 1 << 16), 4
        for _ in range(int.from_bytes(page[:4], "little")):
            while len(page) < at + 2 or len(page) < at + 2 + int.from_bytes(page[at : at + 2], "little"):
                page += log(len(page), 1 << 16)
            size = int.from_bytes(page[at : at + 2], "little")
            try:
                name = page[at + 2 : at + 2 + size].decode()
            except UnicodeDecodeError as error:
                raise NandarrayError(f"the drive: byte {at + 2} of its list of arrays is no text: {error}") from None
            if not name:
                raise NandarrayError(f"the drive: byte {at} of its list of arrays is a name of no bytes")
            yield name
            at += 2 + size

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.names()

    def __getitem__(self, name: str) -> RemoteArray:
        if not isinstance(name, str):
            raise InvalidError(f"arrays of a drive are opened by name, not by {type(name).__name__}")
        return self._open(name, ())

    def _open(self, name: str, dims: Sequence[int]) -> RemoteArray:
        # Views of arrays that were dropped: a drive keeps at most 65536.
        while self._unused:
            self.submit(CloseSpace(self._unused.pop()))
        done = self.submit(OpenSpace(name, dims=tuple(dims)))
        if done.status == _NOT_FOUND:
            raise NotFoundError(f"no array {name!r}")
        if not done.ok:
            raise NandarrayError(f"the drive: {done}")
        page = bytearray(4096)
        try:
            told = self.submit(SpaceInformation(done.dw0), page)
            if not told.ok:
                raise NandarrayError(f"the drive: {told}")
            return RemoteArray(self, done.dw0, SpaceInformation.decode(page))
        except NandarrayError:
            self._unused.append(done.dw0)
            raise

    def flush(self) -> None:
        """Make everything that was written durable."""
        self._done(_entry(0x00, 0xFFFFFFFF, {}))

    def load(self, elf: bytes, *, index: int = 1, program_id: int = 0) -> RemoteProgram:
        """Load a program in parts and activate it.

        Parameters
        ----------
        elf : bytes
            A RISC-V ELF of the program ABI, as :attr:`nandarray.Program.elf` has it.
        index : int
            The slot, from 1 to 64.
        program_id : int
            An identifier of the caller's.

        Returns
        -------
        RemoteProgram
            The active program.

        Raises
        ------
        NandarrayError
            The drive refuses it; the message has the drive's reason.
        """
        if not isinstance(elf, bytes):
            raise InvalidError(f"elf must be the bytes of a program, not {type(elf).__name__}")
        _check_slot(index)
        program_id = check_number("program_id", program_id)
        program = RemoteProgram(self, index)
        for offset in range(0, len(elf), _PART):
            part = elf[offset : offset + _PART]
            words = {10: index | _RISCV << 16, 11: len(elf), 12: program_id, 13: program_id >> 32, 14: len(part)}
            done, _ = self.call(_entry(0x85, 0, {**words, 15: offset}), part, admin=True)
            if not done.ok:
                why = program._why(_LOAD_TAG) if done.status == _PROGRAM_DATA else ""
                raise NandarrayError(f"the drive: {done}{why}")
        program.activate()
        return program

    def memory_write(self, first: int, data: bytes) -> None:
        """Write to Subsystem Local Memory.

        Parameters
        ----------
        first : int
            First byte, a multiple of 4.
        data : bytes
            The data; zeroes fill it to a multiple of 4.
        """
        first, data = check_number("first", first), memory_of(data, write=False).tobytes()
        data += bytes(-len(data) % 4)
        for at in range(0, len(data), _TRANSFER):
            part = data[at : at + _TRANSFER]
            place = first + at
            self._done(_entry(0x05, _MEMORY, {10: place, 11: place >> 32, 12: len(part)}), part)

    def memory_read(self, first: int, size: int) -> bytes:
        """Read from Subsystem Local Memory.

        Parameters
        ----------
        first : int
            First byte, a multiple of 4.
        size : int
            Bytes.

        Returns
        -------
        bytes
            The memory's content.
        """
        first, size = check_number("first", first), check_number("size", size)
        found = bytearray()
        whole = size + -size % 4
        for at in range(0, whole, _TRANSFER):
            part, place = min(_TRANSFER, whole - at), first + at
            found += self._done(_entry(0x02, _MEMORY, {10: place, 11: place >> 32, 12: part}), None, part)[1]
        return bytes(found[:size])

    @contextlib.contextmanager
    def _freed(self, handles: list[int]) -> Iterator[None]:
        """Give boxes back at the end; an error of what is done with them counts before one of that."""
        try:
            yield
        except BaseException:
            for handle in handles:
                with contextlib.suppress(NandarrayError):
                    self._done(_entry(0x10, _ND, {12: handle}))
            raise
        for handle in handles:
            self._done(_entry(0x10, _ND, {12: handle}))

    def close(self) -> None:
        """End the connection."""
        if isinstance(self._native, KernelDrive):
            self._native.close()
        self._native = None

    def __enter__(self) -> RemoteStore:
        _ = self._connection
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nandarray.nvme.RemoteStore {self.url}>"


class RemoteArray(Uncompared):
    """An array, or a view of it, behind NVMe/TCP.

    Parameters
    ----------
    store : RemoteStore
        Its store.
    dsid : int
        Its dynamic space identifier.
    told : dict
        Properties of the space, from Space Information.
    """

    def __init__(self, store: RemoteStore, dsid: int, told: dict[str, Any]) -> None:
        self._told = told
        self.name: str = told["name"]
        self.shape: tuple[int, ...] = tuple(told["view"])
        self.dtype = decode(told["dtype"])
        if self.dtype.itemsize != told["itemsize"]:
            what = f"elements of {told['itemsize']} bytes, and their dtype {self.dtype}"
            raise NandarrayError(f"the drive: array {self.name!r} has {what}")
        self._store, self._dsid = store, dsid

    def __del__(self) -> None:
        # No command from here: the collector may run in the midst of another one.
        if hasattr(self, "_dsid"):
            self._store._unused.append(self._dsid)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def view(self, *shape: int) -> RemoteArray:
        """Open a view of the array in another shape of equal volume.

        Parameters
        ----------
        *shape : int
            The shape.

        Returns
        -------
        RemoteArray
            The view.
        """
        return self._store._open(self.name, shape)

    def _parts(self, start: Sequence[int], count: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Cut a box into boxes of one transfer."""
        size = self.dtype.itemsize * int(np.prod(count, dtype=object))
        if size <= _TRANSFER - 512 or all(n == 1 for n in count):
            yield list(start), list(count)
            return
        axis = next(i for i, n in enumerate(count) if n > 1)
        half = count[axis] // 2
        for first, n in ((0, half), (half, count[axis] - half)):
            yield from self._parts(
                [s + first * (i == axis) for i, s in enumerate(start)],
                [n if i == axis else c for i, c in enumerate(count)],
            )

    def _page(self, start: Sequence[int], count: Sequence[int]) -> bytes:
        page = bytearray(512)
        struct.pack_into(f"<{len(start)}Q", page, 0, *start)
        struct.pack_into(f"<{len(count)}Q", page, 256, *count)
        return bytes(page)

    def box(self, start: Sequence[int], count: Sequence[int]) -> int:
        """Store a box of the array in the drive, for reads and for programs; hold the array as long as it is used.

        Parameters
        ----------
        start, count : sequence of int
            First coordinate and elements along each dimension.

        Returns
        -------
        int
            Its handle.
        """
        start, count = check_shape(start, what="start"), check_shape(count, what="count")
        if not len(start) == len(count) == self.ndim:
            raise InvalidError(f"start {start} and count {count}: the array {self.name!r} has {self.ndim} dimensions")
        words = {10: self._dsid, 11: self.ndim | 1 << 8}
        return self._store._done(_entry(0x0D, _ND, words), self._page(start, count))[0].dw0

    def _inline(self, start: Sequence[int], count: Sequence[int]) -> dict[int, int] | None:
        if self.ndim > 3 or any(n >= 1 << 32 for n in (*start, *count)):
            return None
        words = {10: self._dsid, 11: self.ndim | 1 << 8}
        return {**words, **dict(zip((2, 3, 12), start, strict=False)), **dict(zip((13, 14, 15), count, strict=False))}

    def _read(self, start: Sequence[int], count: Sequence[int]) -> np.ndarray[Any, Any]:
        room = self.dtype.itemsize * int(np.prod(count, dtype=object))
        words = self._inline(start, count)
        if words is not None:
            _, found = self._store._done(_entry(0x02, _ND, words), None, room)
        else:
            handle = self.box(start, count)
            with self._store._freed([handle]):
                _, found = self._store._done(_entry(0x02, _ND, {11: 1 << 10, 12: handle}), None, room)
        return np.frombuffer(found, self.dtype).reshape(count)

    def _write(self, start: Sequence[int], values: np.ndarray[Any, Any]) -> None:
        words = self._inline(start, values.shape)
        if words is not None:
            self._store._done(_entry(0x01, _ND, words), values.tobytes())
        else:
            page = self._page(start, values.shape)
            words = {10: self._dsid, 11: self.ndim | 1 << 8 | 1 << 9}
            self._store._done(_entry(0x01, _ND, words), page + values.tobytes())

    def _selection(self, key: Any) -> Selection:
        """Return what a key selects, which is a box with steps of 1, or raise."""
        if isinstance(key, str) and self.dtype.names:
            raise BadIndexError(f"field {key!r} of a drive's array: read the records, array[...][{key!r}]")
        selection = select(key, self.shape)
        if not selection.is_box:
            raise InvalidError("arrays of indices and masks: a drive reads and writes boxes, of integers and slices")
        turned = selection.reverse or (False,) * self.ndim
        for step, count, back in zip(selection.step, selection.lengths, turned, strict=True):
            if count > 1 and (back or step != 1):
                raise InvalidError(f"a step of {-step if back else step}; a box of a drive has steps of 1")
        return selection

    def __getitem__(self, key: Any) -> Any:
        """Read a box, by integers, slices with steps of 1, ``...`` and None."""
        selection = self._selection(key)
        out = buffers.empty(selection.shape, self.dtype)
        if out.size:
            whole, start = out.reshape(selection.lengths), selection.start
            for first, part in self._parts(start, selection.lengths):
                where = tuple(slice(f - s, f - s + n) for f, s, n in zip(first, start, part, strict=True))
                whole[where] = self._read(first, part)
        return out[()] if selection.scalar else out

    def __setitem__(self, key: Any, values: Any) -> None:
        selection = self._selection(key)
        source = buffers.broadcast(buffers.as_source(values, self.dtype), selection.shape)
        if source.size:
            whole, start = source.reshape(selection.lengths), selection.start
            for first, part in self._parts(start, selection.lengths):
                where: tuple[Any, ...] = tuple(
                    slice(f - s, f - s + n) for f, s, n in zip(first, start, part, strict=True)
                )
                # An array also where it has no dimensions: a scalar would have another dtype.
                self._write(first, whole[(*where, ...)])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise InvalidError("the array lies in a drive: reading it copies")
        found: np.ndarray[Any, Any] = buffers.converted(np.asarray(self[...]), dtype)
        return found

    def __repr__(self) -> str:
        return f"<nandarray.nvme.RemoteArray {self.name!r} {self.shape} {self.dtype}>"


class RemoteProgram:
    """A program in a slot of a drive.

    Parameters
    ----------
    store : RemoteStore
        Its store.
    index : int
        Its slot.
    """

    def __init__(self, store: RemoteStore, index: int) -> None:
        _check_slot(index)
        self._store, self.index = store, index

    def activate(self) -> None:
        """Make it ready to run."""
        self._store._done(_entry(0x88, 0, {10: self.index | 1 << 16}), admin=True)

    def unload(self) -> None:
        """Deactivate it and free its slot."""
        self._store._done(_entry(0x88, 0, {10: self.index}), admin=True)
        self._store._done(_entry(0x85, 0, {10: self.index | 1 << 24}), admin=True)

    def execute(
        self, *inputs: Any, scalars: Sequence[int] = (), room: int = 1 << 20, outputs: int = 1, memory: int = 0
    ) -> list[bytes]:
        """Run the program beside the data.

        Parameters
        ----------
        *inputs : RemoteArray or bytes
            An array is streamed where it lies; bytes are put into Subsystem Local Memory first.
        scalars : sequence of int
            Bit patterns of the program's scalars. Those at the end that are left out have their defaults; one without a
            default must be given.
        room : int
            Bytes for each output.
        outputs : int
            Outputs of the program.
        memory : int
            First byte of Subsystem Local Memory for inputs that are bytes, and for outputs; a multiple of 4. All hosts
            of a drive share that memory: those that execute at once agree on places.

        Returns
        -------
        list of bytes
            The outputs.
        """
        at, ranges = memory, b""
        handles: list[int] = []
        room += -room % 4
        if not 0 < room < 1 << 32:
            raise InvalidError(f"room must be from 1 to {(1 << 32) - 4} bytes for each output, not {room}")
        with self._store._freed(handles):
            for one in inputs:
                if isinstance(one, RemoteArray):
                    handles.append(one.box([0] * one.ndim, one.shape))
                    ranges += struct.pack("<IIQ16x", _ND, 0, handles[-1])
                else:
                    raw = memory_of(one, write=False).tobytes()
                    self._store.memory_write(at, raw)
                    ranges += struct.pack("<IIQ16x", _MEMORY, len(raw), at)
                    at += len(raw) + -len(raw) % 4
            places = [at + i * room for i in range(outputs)]
            for place in places:
                ranges += struct.pack("<IIQ16x", _MEMORY, room, place)
            data = ranges + b"".join(struct.pack("<Q", scalar & (2**64 - 1)) for scalar in scalars)
            tag = next(self._store._tags) % (_LOAD_TAG - 1) + 1
            entry = _entry(0x01, _PROGRAMS, {2: self.index, 3: len(inputs) + outputs, 4: len(data), 14: tag})
            done, _ = self._store.call(entry, data)
            if not done.ok:
                raise NandarrayError(f"the drive: {done}{self._why(tag)}")
            sizes = self._sizes(done, outputs, tag)
        if any(size > room for size in sizes):
            raise NandarrayError(f"the drive: outputs of {sizes} bytes, where each has room for {room}")
        return [self._store.memory_read(place, size) for place, size in zip(places, sizes, strict=True)]

    def _sizes(self, done: Completion, outputs: int, tag: int) -> list[int]:
        """Return the bytes of each output of the execution with a tag."""
        # The account is an admin command, which a kernel may refuse to this user.
        if outputs == 1:
            return [done.dw0 | done.dw1 << 32]
        told = self._account(tag)
        words = told.split(" instructions ")[0].split()[1:]
        if len(words) != outputs or not all(word.isdecimal() for word in words):
            raise NandarrayError(f"the drive: an account without the bytes of {outputs} outputs: {told[:80]!r}")
        return list(map(int, words))

    def _account(self, tag: int) -> str:
        """Return the drive's account of the execution with a tag, or of the load that failed last."""
        words = {10: 0xC1 | 1023 << 16, 11: tag << 16}
        page = self._store._done(_entry(0x02, 0, words), None, 4096, admin=True)[1]
        return page.rstrip(b"\0").decode(errors="replace")

    def _why(self, tag: int) -> str:
        """Return the drive's reason for a failure, to be put behind its status; nothing if it is not to be had."""
        # An admin command, which a kernel may refuse to this user.
        with contextlib.suppress(NandarrayError):
            if told := self._account(tag):
                return f": {told}"
        return ""


def _check_slot(index: int) -> None:
    if not 1 <= check_number("slot", index) <= _SLOTS:
        raise InvalidError(f"slot {index}; a drive has 1 to {_SLOTS}")
