"""A store behind NVMe/TCP, as :class:`~nandarray.array.store.Store` stands on it.

Boxes of up to three dimensions without steps, of one transfer, are one N-D command each. Everything else is an array
request (docs/reference/nvme.md): text with data behind it, sent in parts and answered in parts. Reads are as few
commands as their bytes need, many in flight. A write of at most 64 MiB is whole or absent; larger ones are several, as
are writes of many rows of elements through a view or as boxes.

Programs run over connections of their own (:class:`_Side`): a connection has one command at a time, and a run
holds it to its end. A run that is no longer waited for keeps its connection, which breaks when the drive has
been silent for a minute; with it the drive ends the run. Through the kernel there is the one controller alone.

An array is known in the shape that it had when it was opened, as elsewhere. Where the drive refuses what that shape
allows, another host has changed it since: a :class:`~nandarray.errors.VolumeMismatchError` names both shapes.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from nandarray import _nandarray
from nandarray.door import Source, Space
from nandarray.errors import (
    BY_KIND,
    BadIndexError,
    ClosedError,
    DoorError,
    InvalidError,
    NandarrayError,
    VolumeMismatchError,
)
from nandarray.nvme.commands import (
    CloseSpace,
    Command,
    Completion,
    Direction,
    Flush,
    NdRead,
    NdWrite,
    OpenSpace,
    memory_of,
)
from nandarray.nvme.cutting import as_numbers, as_words, box_steps, cut_axis, cut_box, fits_entry, packed, row_count
from nandarray.nvme.messages import RequestRoom, described_array, piece_of, put_piece, refusal, value_of
from nandarray.nvme.outputs import ArrivingOutputs

if TYPE_CHECKING:
    from nandarray.nvme.kernel import KernelDrive

__all__ = ["ND", "TRANSFER", "DriveSource", "DriveSpace"]

_Array = np.ndarray[Any, Any]
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

#: Bytes of the largest transfer of a drive.
TRANSFER = 2 << 20
#: Namespace of the N-D commands.
ND = 1024
_MANY = 64
#: Bytes of the elements of one request: reads are cut so that neither side holds much, writes are whole up to here.
_READ, _WRITE = 16 << 20, _nandarray.NVME_MOVE_BYTES_MAX
#: Rows of elements of one write through a view, and boxes of one write.
_ROWS = _nandarray.NVME_WRITE_ROWS_MAX
#: Bytes of a request, of the text of its reply, and of the requests and replies in progress: a drive keeps 256 MiB.
_REQUEST, _TEXT, _HELD = 80 << 20, 192 << 20, 240 << 20
#: Forms of programs that a drive may tell.
_FORMS = ("interpreted", "translated")
#: Bytes of a fill value; of the outputs and states of a run of programs.
_FILL, _COLLECTED = 1 << 16, 128 << 20
#: Connections for runs that are kept.
_IDLE = 4
_HEADER = 8
_NOT_FOUND = 0x1C0
_INVALID_NAMESPACE = 0x00B
_NSID = slice(4, 8)

_Call = tuple[bytes, bytes | None, int]


class DriveSource(Source):
    """The store of a drive.

    Parameters
    ----------
    native : NvmeHost or KernelDrive
        The connection.
    path : str
        Address of the drive.
    read_only : bool
        Whether changes are refused on this side.
    again : callable, optional
        Connects once more, for runs of programs.
    """

    door = "a drive"

    def __init__(
        self,
        native: _nandarray.NvmeHost | KernelDrive,
        path: str,
        *,
        read_only: bool,
        again: Callable[[], _nandarray.NvmeHost] | None = None,
    ) -> None:
        super().__init__(path, read_only=read_only)
        self._native: _nandarray.NvmeHost | KernelDrive | None = native
        self._again = again
        self._idle: list[_Side] = []
        self._here = threading.local()
        # Connections of runs in progress, by the identity of what watches them.
        self._runs: dict[int, _Side] = {}
        #: Dynamic space identifiers of views that were dropped: a drive keeps at most 65536.
        self.unused: list[int] = []
        self.generation = 0
        # The first one is random: processes may share one controller of the kernel.
        self._tags = itertools.count(int.from_bytes(os.urandom(4), "little"))
        self._room = RequestRoom(_HELD)
        self._programs: dict[int, tuple[bytes, bytes | None]] = {}
        self._numbers = itertools.count(1)

    # --- Commands ----------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> _nandarray.NvmeHost | KernelDrive:
        """The connection of this thread's commands, or a ClosedError."""
        if self._native is None:
            raise ClosedError(f"the connection to {self.path} is closed")
        side = self._side
        return self._native if side is None else side.native

    @property
    def _side(self) -> _Side | None:
        found: _Side | None = getattr(self._here, "side", None)
        return found

    @contextmanager
    def _apart(self, watch: object) -> Iterator[None]:
        """Send this thread's commands over a connection of its own, which is kept for the next run.

        The run that ``watch`` is given to ends with the connection.
        """
        if self._again is None or self.closed:
            yield
            return
        try:
            side = self._idle.pop()
        except IndexError:
            side = _Side(self._again(), set())
        self._here.side = side
        self._runs[id(watch)] = side
        try:
            yield
        except ClosedError:  # a broken connection is not kept
            raise
        except BaseException:
            self._keep(side)
            raise
        else:
            self._keep(side)
        finally:
            self._here.side = None
            self._runs.pop(id(watch), None)

    def end_run(self, watch: Any) -> bool:
        """End a run, by way of its connection: the drive stops what its host does not wait for."""
        side = self._runs.get(id(watch))
        if side is None:
            return False
        side.native.close()
        return True

    def _keep(self, side: _Side) -> None:
        if not self.closed and len(self._idle) < _IDLE:
            self._idle.append(side)

    @property
    def closed(self) -> bool:
        """Whether the connection was ended here."""
        return self._native is None

    def close(self) -> None:
        """End the connection."""
        close = getattr(self._native, "close", None)
        if close is not None:
            close()
        self._native = None
        self._idle.clear()

    def failed(self, done: Completion, entry: bytes = b"") -> NandarrayError:
        """Make the error of a command's status."""
        if done.status == _INVALID_NAMESPACE and int.from_bytes(entry[_NSID], "little") == ND:
            return DoorError(f"{self.path}: the drive provides no arrays: it is served without N-D commands")
        kind = BY_KIND[_nandarray.nvme_status_kind(done.status)]
        return kind(f"the drive: {done}")

    def done(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[Completion, bytes]:
        """Execute a command that is given as bytes, or raise the error of its status."""
        raw, found = self.connection.call(entry, data, room, admin=admin)
        done = Completion.decode(raw)
        if not done.ok:
            raise self.failed(done, entry)
        if data is None and len(found) != room:
            raise NandarrayError(f"the drive: {len(found)} bytes of data, and not {room}")
        return done, found

    def done_all(self, calls: Sequence[_Call]) -> list[tuple[Completion, bytes]]:
        """Execute commands that do not depend on each other, many in flight; raise the first error there is."""
        if len(calls) == 1:
            return [self.done(*calls[0])]
        given = [(Completion.decode(raw), found) for raw, found in self.connection.call_many(list(calls), _MANY)]
        for done, _ in given:
            if not done.ok:
                raise self.failed(done)
        for (_, data, room), (_, found) in zip(calls, given, strict=True):
            if data is None and len(found) != room:
                raise NandarrayError(f"the drive: {len(found)} bytes of data, and not {room}")
        return given

    def request(
        self,
        text: dict[str, Any],
        data: Sequence[Any] = (),
        *,
        changes: bool,
        room: int = 0,
        programs: bool = False,
        outputs: ArrivingOutputs | None = None,
    ) -> tuple[dict[str, Any], memoryview]:
        """Send an array request and fetch its reply: its text, and the data behind it.

        Pieces of ``data`` follow each other behind the text. The data of the reply has at most ``room`` bytes. An error
        of the request is raised as the same error of a store here. ``outputs`` takes those of a run while it goes on.
        """
        if changes:
            self.check_writable()
        said = json.dumps(text).encode()
        message = b"".join([len(said).to_bytes(_HEADER, "little"), said, *data])
        if len(message) > _REQUEST:
            raise InvalidError(f"{text['do']}: a request must have at most {_REQUEST} bytes, not {len(message)}")
        with self._room.held(len(message) + room) if self._side is None else nullcontext():
            most = _HEADER + _TEXT + room
            reply = self._reply(message, changes=changes, programs=programs, most=most, outputs=outputs)
        try:
            length = int.from_bytes(reply[:4], "little")
            answer = json.loads(bytes(reply[_HEADER : _HEADER + length]))
            wrong = answer.get("error")
        except (ValueError, AttributeError, RecursionError) as error:
            raise NandarrayError(f"the drive: a reply that is none: {error}") from None
        if wrong is not None:
            raise refusal(wrong)
        return answer, reply[_HEADER + length :]

    def _reply(
        self, message: bytes, *, changes: bool, programs: bool, most: int, outputs: ArrivingOutputs | None
    ) -> memoryview:
        """Send a message in parts; return its reply of at most ``most`` bytes."""
        tag, side = next(self._tags) % (1 << 32), self._side
        # Parts arrive in order, each when the one before it has been taken.
        for at in range(0, len(message), TRANSFER):
            entry = _nandarray.nvme_request_entry(tag, len(message), at, changes, programs, outputs is not None)
            part = message[at : at + TRANSFER]
            if outputs is None or side is None or at + len(part) < len(message):
                told, _ = self.done(entry, part)
                continue
            fetch = _nandarray.nvme_output_entry(tag)
            told = Completion.decode(side.native.call_fetching(entry, part, fetch, outputs.take))
            if not told.ok:
                raise self.failed(told, entry)
        handle, size = told.dw0, told.dw1
        if not _HEADER <= size <= most:
            raise NandarrayError(f"the drive: a reply of {size} bytes, which must have from {_HEADER} to {most}")
        parts: list[_Call] = [
            (_nandarray.nvme_reply_entry(handle, at), None, min(TRANSFER, size - at)) for at in range(0, size, TRANSFER)
        ]
        # The last part ends the reply, and goes when the others are here.
        got = [found for _, found in (self.done_all(parts[:-1]) if parts[1:] else ())]
        got.append(self.done(*parts[-1])[1])
        return memoryview(got[0] if len(got) == 1 else b"".join(got))

    def submit(self, command: Command, data: Any = None) -> Completion:
        """Execute a command of :mod:`nandarray.nvme`; its completion may be one of failure."""
        entry, payload, page = _nandarray.nvme_encode(command)
        if page is not None:
            raise InvalidError("boxes of more than three dimensions go through arrays: store[name][...]")
        if command.opcode >= 0x80:
            entry = _on_nd(entry)
        to_host = command.direction is Direction.TO_HOST
        memory = None if data is None else memory_of(data, write=to_host)
        if to_host:
            if memory is None:
                raise InvalidError(f"{type(command).__name__} needs memory to read into")
            raw, found = self.connection.call(entry, None, memory.nbytes)
            done = Completion.decode(raw)
            if done.ok:
                if len(found) != memory.nbytes:
                    raise NandarrayError(f"the drive: {len(found)} bytes of data, and not {memory.nbytes}")
                memory[:] = np.frombuffer(found, np.uint8)
            return done
        if payload is not None and memory is not None:
            raise InvalidError(f"{type(command).__name__} brings its own data")
        return Completion.decode(self.connection.call(entry, payload if memory is None else memory.tobytes(), 0)[0])

    # --- The store ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything written so far durable."""
        self.done(_nandarray.nvme_encode(Flush())[0])

    def refresh(self) -> None:
        """See what others have changed: descriptions of arrays are requested again."""
        _ = self.connection
        self.generation += 1

    def names(self, prefix: str = "") -> list[str]:
        """List the full names of arrays that begin with a prefix, sorted."""
        found = self.request({"do": "names", "prefix": prefix}, changes=False)[0].get("names")
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise NandarrayError("the drive: a list of names that is none")
        return found

    def describe(self, name: str) -> dict[str, Any]:
        """Describe an array, or raise NotFoundError."""
        return described_array(*self.request({"do": "describe", "name": name}, changes=False, room=_FILL))

    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> DriveSpace:
        """Open an array."""
        told = self.describe(name)
        if encryption_key is not None:
            asked = {"do": "unlock", "array": told["array"], "key": [0, len(encryption_key)]}
            told = described_array(*self.request(asked, [encryption_key], changes=False, room=_FILL))
        return self.space(told, encryption_key)

    def space(self, told: dict[str, Any], key: bytes | None) -> DriveSpace:
        """Return the array of a description."""
        return DriveSpace(self, told, key)

    def create(
        self,
        name: str,
        shape: Sequence[int],
        itemsize: int,
        dtype: str,
        *,
        building_block: Sequence[int] | None = None,
        compression: str | None = None,
        encryption_key: bytes | None = None,
        fill: bytes | None = None,
        attrs: str = "{}",
    ) -> DriveSpace:
        """Create an array."""
        pieces: list[bytes] = []
        key, value = encryption_key, fill
        asked = {
            "do": "create",
            "name": name,
            "shape": as_numbers(shape),
            "itemsize": itemsize,
            "dtype": dtype,
            "building_block": None if building_block is None else as_numbers(building_block),
            "compression": compression,
            "key": None if key is None else put_piece(pieces, key),
            "fill": None if value is None else put_piece(pieces, value),
            "attrs": put_piece(pieces, attrs.encode()),
        }
        return self.space(described_array(*self.request(asked, pieces, changes=True, room=_FILL)), key)

    def together(
        self,
        *,
        delete: Sequence[str] = (),
        rename: Sequence[tuple[str, str]] = (),
        attrs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Delete, rename, and set attributes by name, all as one."""
        pieces: list[bytes] = []
        given = [(name, put_piece(pieces, text.encode())) for name, text in attrs]
        self.request(
            {"do": "change", "delete": list(delete), "rename": list(rename), "attrs": given}, pieces, changes=True
        )

    # --- Programs ----------------------------------------------------------------------------------------------------

    def load_program(self, elf: bytes, metadata: bytes | None = None) -> int:
        """Take a program for runs: it goes with each of them."""
        number = next(self._numbers)
        self._programs[number] = (elf, metadata)
        return number

    def unload_program(self, program: int) -> None:
        """Forget a program."""
        self._programs.pop(program, None)

    def execute(self, asked: Any, watch: _nandarray.Watch) -> dict[str, Any]:
        """Run programs beside the data, as the native store does; ``watch`` learns nothing of a drive."""
        pieces: list[bytes] = []
        used = list(dict.fromkeys(stage.program for stage in asked.stages))
        programs = []
        for number in used:
            elf, metadata = self._programs[number]
            text = None if metadata is None else metadata.decode()
            programs.append({"elf": put_piece(pieces, elf), "metadata": text})
        stages = [
            {
                "program": used.index(stage.program),
                "form": stage.form,  # without one, the node chooses
                "inputs": [self._input(given, pieces) for given in stage.inputs],
                "scalars": list(stage.scalars),
                "outputs": [self._output(given) for given in stage.outputs],
                "task_bytes": min(stage.task_bytes, 2**64 - 1),
                "instructions": stage.instructions,
            }
            for stage in asked.stages
        ]
        request = {"do": "offload", "programs": programs, "stages": stages, "hold_bytes": asked.hold_bytes}
        writes = any("box" in one for stage in stages for one in stage["outputs"] if isinstance(one, dict))
        boxes = [one for stage in asked.stages for one in (*stage.inputs, *stage.outputs) if isinstance(one, tuple)]
        spaces = [(one[0] if isinstance(one[0], tuple) else one)[0] for one in boxes]
        own = [space for space in spaces if isinstance(space, DriveSpace)]
        with self._apart(watch), _same_shapes(own):
            side = self._side
            before = (0, 0) if side is None else side.native.wire_bytes()
            arriving = None if side is None else ArrivingOutputs()
            for space in own:
                space.unlock(side)
            try:
                told, data = self.request(
                    request, pieces, changes=writes, room=_COLLECTED, programs=True, outputs=arriving
                )
            except ClosedError as error:
                raise (error if arriving is None else arriving.lost(error)) from None
            after = None if side is None else side.native.wire_bytes()
        told["wire"] = None if after is None else (after[0] - before[0], after[1] - before[1])
        numbers = itertools.count()
        try:
            for stage, outputs in zip(told["stages"], asked.stages, strict=True):
                given = [one for one, _ in zip(stage["outputs"], outputs.outputs, strict=True)]
                stage["outputs"] = [
                    None if one is None else value_of(one, data, arriving, next(numbers)) for one in given
                ]
                stage["state"] = bytes(piece_of(stage["state"], data))
                if stage["form"] not in _FORMS:
                    raise ValueError(stage["form"])
        except (KeyError, TypeError, ValueError) as error:
            raise NandarrayError(f"the drive: results of programs that are none: {error}") from None
        return told

    def _box(self, given: Any, tiles: Any = None) -> dict[str, Any]:
        space, start, step, count, view = given
        if getattr(space, "source", None) is not self:
            raise InvalidError("an array of another store; a program runs beside the arrays of one")
        box = {"array": space.known()["array"], "start": as_numbers(start), "step": as_numbers(step)}
        shape = None if view is None else as_numbers(view)
        box |= {"tiles": None if tiles is None else [as_numbers(one) for one in tiles[:3]]}
        if tiles is not None and tiles[3] is not None:
            halo = tiles[3]
            box |= {"halo": {"depth": as_numbers(halo[0]), "boundary": [[word, list(one)] for word, one in halo[1]]}}
        return {"box": {**box, "count": as_numbers(count), "view": shape}}

    def _input(self, given: Any, pieces: list[bytes]) -> dict[str, Any]:
        if isinstance(given, np.ndarray):
            return {"bytes": put_piece(pieces, given.tobytes())}
        if isinstance(given[0], tuple):
            return self._box(*given)
        if len(given) == 2:
            return {"output": list(given)}
        return self._box(given)

    def _output(self, given: Any) -> Any:
        if isinstance(given, bool):
            return "collect" if given else "between"
        return self._box(*given) if isinstance(given[0], tuple) else self._box(given)


@dataclass(frozen=True)
class _Side:
    """A connection for runs of programs, and the numbers of the encrypted arrays whose keys it has given."""

    native: _nandarray.NvmeHost
    unlocked: set[int]


@contextmanager
def _same_shapes(spaces: Iterable[DriveSpace]) -> Iterator[None]:
    """Say of what a drive refuses that a shape has changed, if one has."""
    try:
        yield
    except (BadIndexError, VolumeMismatchError) as error:
        for space in spaces:
            before, now = space._told["shape"], space._told_now()["shape"]
            if before != now:
                raise VolumeMismatchError(
                    f"{space._told['name']} has shape {now}, and had {before} when it was opened: refresh() of its "
                    "store asks again"
                ) from error
        raise


def _in_its_shape(work: Callable[Concatenate[DriveSpace, _Given], _Found]) -> Callable[..., _Found]:
    """Let a method of a space say that its shape has changed."""

    @wraps(work)
    def checked(self: DriveSpace, *given: _Given.args, **options: _Given.kwargs) -> _Found:
        with _same_shapes([self]):
            return work(self, *given, **options)

    return checked


class DriveSpace(Space):
    """An array of a drive."""

    source: DriveSource

    def __init__(self, source: DriveSource, told: dict[str, Any], key: bytes | None = None) -> None:
        super().__init__(source, told)
        self._key = key
        self._generation = source.generation
        #: Dynamic space identifiers, by the shape of the view.
        self._open: dict[tuple[int, ...] | None, int] = {}

    def __del__(self) -> None:
        # No command from here: the collector may run in the midst of another one.
        if hasattr(self, "_open"):
            self.source.unused.extend(self._open.values())

    def known(self) -> dict[str, Any]:
        """Return the description; after a refresh as it is now."""
        if self._generation != self.source.generation and not self.source.closed:
            self._tell(self._told_now())
        return super().known()

    def _told_now(self) -> dict[str, Any]:
        number = self._told["array"]
        return described_array(*self.source.request({"do": "describe", "array": number}, changes=False, room=_FILL))

    def _tell(self, told: dict[str, Any]) -> None:
        self._told, self._generation = told, self.source.generation

    @property
    def attrs(self) -> str:
        """The attributes as JSON, as they are now."""
        self._tell(self._told_now())
        return str(self._told["attrs"])

    def set_attrs(self, attrs: str) -> None:
        """Replace the attributes."""
        text = attrs.encode()
        asked = {"do": "set-attrs", "array": self._told["array"], "attrs": [0, len(text)]}
        self.source.request(asked, [text], changes=True)

    def unlock(self, side: _Side | None) -> None:
        """Give the array's key on a connection of this thread's."""
        number = int(self._told["array"])
        if side is None or self._key is None or number in side.unlocked:
            return
        asked = {"do": "unlock", "array": number, "key": [0, len(self._key)]}
        self.source.request(asked, [self._key], changes=False, room=_FILL)
        side.unlocked.add(number)

    def stat(self) -> dict[str, Any]:
        """Return the use of space."""
        return self.source.request({"do": "stat", "array": self._told["array"]}, changes=False)[0]

    def resize(self, shape: Sequence[int]) -> None:
        """Give it another shape."""
        asked = {"do": "resize", "array": self._told["array"], "shape": as_numbers(shape)}
        self._tell(described_array(*self.source.request(asked, changes=True, room=_FILL)))

    def append(self, src: _Array, axis: int) -> tuple[int, ...]:
        """Grow one axis and write the new part; return the new shape.

        Values over 64 MiB are appended in parts; a single row over 64 MiB is written in parts once the axis has grown.
        """
        row_bytes = src.nbytes // max(1, src.shape[axis])
        if row_bytes > _WRITE:
            self._tell(self._told_now())
            start = [self.shape[axis] if at == axis else 0 for at in range(src.ndim)]
            self.resize([low + src.shape[at] if at == axis else low for at, low in enumerate(self.shape)])
            self.write(src, start)
            return self.shape
        rows = max(1, _WRITE // max(1, row_bytes))
        for low in range(0, max(1, src.shape[axis]), rows):
            part = src[(*[slice(None)] * axis, slice(low, low + rows))]
            values = packed(part)
            asked = {"do": "append", "array": self._told["array"], "axis": axis, "count": list(part.shape)}
            told = self.source.request({**asked, "values": [0, len(values)]}, [values], changes=True, room=_FILL)
            self._tell(described_array(*told))
        return self.shape

    @_in_its_shape
    def deallocate(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Give a box back: it reads as the fill value, and takes no space."""
        asked = {
            "do": "deallocate",
            "array": self._told["array"],
            "start": as_numbers(start),
            "count": as_numbers(count),
        }
        self.source.request(asked, changes=True)

    # --- Moving elements ---------------------------------------------------------------------------------------------

    def dsid(self, view: Sequence[int] | None) -> int:
        """Return the dynamic space identifier of the array, or of a view of it."""
        shape = None if view is None else tuple(view)
        if shape not in self._open:
            while self.source.unused:
                self.source.submit(CloseSpace(self.source.unused.pop()))
            done = self.source.submit(OpenSpace(self._told["array"], dims=shape or (), encryption_key=self._key))
            if not done.ok:
                gone = done.status == _NOT_FOUND
                raise ClosedError(f"array {self.name!r} was deleted") if gone else self.source.failed(done)
            self._open[shape] = done.dw0
        return self._open[shape]

    @_in_its_shape
    def read(
        self, out: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Read the box ``start + step * [0, out.shape)`` of the array, or of its view."""
        if not out.size:
            return
        start, step = as_numbers(start), box_steps(step, out.shape)
        if not fits_entry(start, step, out.shape, view):
            for first, part in cut_box(start, step, out, _READ):
                elements = {"box": {"start": first, "step": step, "count": list(part.shape)}}
                self._fetch(part, elements, view=view)
            return
        dsid, calls, parts = self.dsid(view), [], []
        for first, part in cut_box(start, step, out, TRANSFER - 512):
            command = NdRead(dsid, first, part.shape, elements=True)
            calls.append((_on_nd(_nandarray.nvme_encode(command)[0]), None, part.nbytes))
            parts.append(part)
        for at in range(0, len(calls), _MANY // 8):
            many = slice(at, at + _MANY // 8)
            for part, (_, found) in zip(parts[many], self.source.done_all(calls[many]), strict=True):
                part[...] = np.frombuffer(found, part.dtype).reshape(part.shape)

    @_in_its_shape
    def write(
        self, src: _Array, start: Sequence[int], step: Sequence[int] | None = None, view: Sequence[int] | None = None
    ) -> None:
        """Write the box ``start + step * [0, src.shape)`` of the array, or of its view."""
        self.source.check_writable()
        if not src.size:
            return
        start, step = as_numbers(start), box_steps(step, src.shape)
        most = None if view is None else _ROWS
        few = most is None or row_count(step, src.shape) <= most
        if src.nbytes <= TRANSFER - 512 and few and fits_entry(start, step, src.shape, view):
            command = NdWrite(self.dsid(view), start, src.shape, elements=True)
            self.source.done(_on_nd(_nandarray.nvme_encode(command)[0]), packed(src))
            return
        for first, part in cut_box(start, step, src, _WRITE, most):
            elements = {"box": {"start": first, "step": step, "count": list(part.shape)}}
            self._send(part, elements, view=view)

    def read_boxes(self, out: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Read boxes of the shape of ``out[0]``, one a row of ``starts``."""
        self._boxes(out, starts, step, view, reads=True)

    def write_boxes(self, src: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None = None) -> None:
        """Write boxes of the shape of ``src[0]``, one a row of ``starts``; of equal ones the last."""
        self._boxes(src, starts, step, view, reads=False)

    @_in_its_shape
    def _boxes(
        self, memory: _Array, starts: _Array, step: Sequence[int], view: Sequence[int] | None, *, reads: bool
    ) -> None:
        limit = _READ if reads else _WRITE
        each = memory[0].nbytes + 8 * starts.shape[1]
        rows = 1 if reads or view is None else max(1, row_count(step, memory.shape[1:]))
        if each > limit or rows > _ROWS:
            for box, start in zip(memory, starts, strict=True):
                (self.read if reads else self.write)(box, [int(at) for at in start], step, view)
            return
        many = limit // each if reads else min(limit // each, _ROWS // rows)
        for low in range(0, len(memory), many):
            part, places = memory[low : low + many], as_words(starts[low : low + many])
            count = list(memory.shape[1:])
            elements = {"boxes": {"starts": [0, len(places)], "step": as_numbers(step), "count": count}}
            (self._fetch if reads else self._send)(part, elements, [places], view)

    def read_outer(self, out: _Array, axes: Sequence[Any]) -> None:
        """Read the product of runs and index arrays."""
        self._outer(out, list(axes), reads=True)

    def write_outer(self, src: _Array, axes: Sequence[Any]) -> None:
        """Write the product of runs and index arrays."""
        self._outer(src, list(axes), reads=False)

    @_in_its_shape
    def _outer(self, memory: _Array, axes: list[Any], *, reads: bool) -> None:
        listed = sum(8 * len(axis) for axis in axes if isinstance(axis, np.ndarray))
        if memory.nbytes + listed > (_READ if reads else _WRITE) and memory.size > 1:
            axis = int(np.argmax(memory.shape))
            half = memory.shape[axis] // 2
            for part in (slice(0, half), slice(half, None)):
                cut = [cut_axis(taken, part) if at == axis else taken for at, taken in enumerate(axes)]
                self._outer(memory[(*[slice(None)] * axis, part)], cut, reads=reads)
            return
        pieces: list[bytes] = []
        said = [
            {"list": put_piece(pieces, as_words(axis))} if isinstance(axis, np.ndarray) else as_numbers(axis)
            for axis in axes
        ]
        (self._fetch if reads else self._send)(memory, {"outer": said}, pieces)

    def read_points(self, out: _Array, coords: _Array) -> None:
        """Read single elements."""
        self._points(out, coords, reads=True)

    def write_points(self, src: _Array, coords: _Array) -> None:
        """Write single elements."""
        self._points(src, coords, reads=False)

    @_in_its_shape
    def _points(self, memory: _Array, coords: _Array, *, reads: bool) -> None:
        many = max(1, (_READ if reads else _WRITE) // (memory.itemsize + 8 * coords.shape[1]))
        for low in range(0, len(memory), many):
            places = as_words(coords[low : low + many])
            elements = {"points": [0, len(places)]}
            (self._fetch if reads else self._send)(memory[low : low + many], elements, [places])

    def _fetch(
        self, out: _Array, elements: dict[str, Any], pieces: Sequence[bytes] = (), view: Sequence[int] | None = None
    ) -> None:
        shape = None if view is None else as_numbers(view)
        asked = {"do": "read", "array": self._told["array"], "elements": elements, "view": shape}
        _, data = self.source.request(asked, pieces, changes=False, room=out.nbytes)
        if len(data) != out.nbytes:
            raise NandarrayError(f"the drive: {len(data)} bytes of elements, and not {out.nbytes}")
        out[...] = np.frombuffer(data, out.dtype).reshape(out.shape)

    def _send(
        self, src: _Array, elements: dict[str, Any], pieces: Sequence[bytes] = (), view: Sequence[int] | None = None
    ) -> None:
        values, before = packed(src), sum(map(len, pieces))
        shape = None if view is None else as_numbers(view)
        asked = {"do": "write", "array": self._told["array"], "elements": elements, "view": shape}
        self.source.request({**asked, "values": [before, len(values)]}, [*pieces, values], changes=True)

    @_in_its_shape
    def box(self, start: Sequence[int], count: Sequence[int], view: Sequence[int] | None = None) -> int:
        """Store a box of the array, or of its view, in the drive, for programs in its slots; return its handle."""
        page = np.zeros(64, "<u8")
        page[: len(start)], page[32 : 32 + len(count)] = start, count
        entry = _nandarray.nvme_store_box_entry(self.dsid(view), len(start))
        return self.source.done(entry, page.tobytes())[0].dw0


def _on_nd(entry: bytes) -> bytes:
    """Address an entry of a vendor command to the namespace of views, where its opcode has no highest bit."""
    return bytes([entry[0] & 0x7F, *entry[1:4], *ND.to_bytes(4, "little"), *entry[8:]])
