"""Run a near-data program in tests: one function, several ways to do it that must agree.

:func:`execute` cuts inputs into tasks, gives each worker its tasks, merges the workers' states and returns outputs, as
``docs/reference/program-abi.md`` says that it is done. The way used here is QEMU's user mode (``program_loader.c``): a
process a program, kept for the length of the run, so that a call costs a millisecond. It has no stream instructions.

Bounds are not checked to the byte: outputs have guard bytes behind their room, input windows end at a page.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import struct
import subprocess
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandarray import Program
from nandarray.programs import abi
from nandarray.programs.compile import zig

Array = np.ndarray[Any, Any]
GUARD = bytes(range(100, 164))
_PROCESSES_MAX = 12
_LIVE: OrderedDict[str, _Process] = OrderedDict()


class ProgramStatus(Exception):
    """An entry point returned a negative status."""

    def __init__(self, entry: str, status: int) -> None:
        super().__init__(f"{entry} returned {status}")
        self.status = status


@cache
def _loader(target: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="nandarray-loader-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    machine = zig.TARGETS[target]
    zig.compile_c(Path(__file__).with_name("program_loader.c"), folder / "loader.o", machine, flags=["-fno-builtin"])
    address = "0x400000000" if machine.bits == 64 else "0xa0000000"
    words = ["ld.lld", "-m", f"elf{machine.bits}lriscv", f"-Ttext={address}", "-e", "start", "--gc-sections"]
    status, said = zig.run([*words, "-o", folder / "loader", folder / "loader.o"])
    assert status == 0, said
    (folder / "loader").chmod(0o755)
    return folder / "loader"


def _segments(elf: bytes) -> list[tuple[int, bytes]]:
    """Address and content of what is to be loaded."""
    wide = elf[4] == 2
    table = struct.unpack_from("<Q" if wide else "<I", elf, 32 if wide else 28)[0]
    size, count = struct.unpack_from("<HH", elf, 54 if wide else 42)
    found = []
    for at in range(table, table + size * count, size):
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", elf, at)
        else:
            kind, offset, address, _, length = struct.unpack_from("<IIIII", elf, at)
        if kind == 1:
            found.append((address, elf[offset : offset + length]))
    return found


class _Process:
    """A program under QEMU."""

    def __init__(self, program: Program) -> None:
        self.facts = program.metadata
        self.entries = {one.name: one.address for one in program.symbols}
        self.pipe = subprocess.Popen(
            self.command(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 20
        )
        memory = self.facts["memory_bytes"]
        self.stack = (abi.IMAGE_ADDRESS + memory) & ~15
        self.map(abi.IMAGE_ADDRESS, memory)
        self.image = _segments(program.elf)
        state = -(-self.facts["state_bytes"] // 16) * 16
        self.state, self.other = abi.SCRATCHPAD_ADDRESS, abi.SCRATCHPAD_ADDRESS + state
        self.free = self.other + state
        self.free_bytes = max(abi.SCRATCHPAD_BYTES - 2 * state, self.facts["scratchpad_bytes"])
        self.map(abi.ARGS_ADDRESS, abi.ARGS_BYTES)
        self.map(abi.SCRATCHPAD_ADDRESS, 2 * state + self.free_bytes)
        for index in range(len(self.facts["inputs"])):
            self.map(abi.INPUT_ADDRESS + index * abi.WINDOW_BYTES, abi.WINDOW_BYTES)
        for index in range(len(self.facts["outputs"])):
            self.map(abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES, abi.WINDOW_BYTES)
        self.write(abi.SCRATCHPAD_ADDRESS, bytes(2 * state) + b"\xa5" * self.free_bytes)

    def command(self, program: Program) -> list[str]:
        """Return the command of a process that reads the loader's commands."""
        emulator = shutil.which(f"qemu-riscv{program.target[2:]}")
        if emulator is None:
            pytest.skip("qemu-user is not installed")
        return [emulator, str(_loader(program.target))]

    def send(self, what: str, number: int, *more: int) -> None:
        assert self.pipe.stdin is not None
        self.pipe.stdin.write(struct.pack(f"<QQ{len(more)}Q", ord(what), number, *more))

    def map(self, address: int, size: int) -> None:
        self.send("M", -(-max(size, 1) // 4096) * 4096, address)

    def write(self, address: int, data: bytes) -> None:
        assert self.pipe.stdin is not None
        if data:
            self.send("L", len(data), address)
            self.pipe.stdin.write(data)

    def _answer(self, size: int) -> bytes:
        assert self.pipe.stdin is not None
        assert self.pipe.stdout is not None
        self.pipe.stdin.flush()
        raw = self.pipe.stdout.read(size)
        if len(raw) != size:
            raise RuntimeError(f"the program died: exit status {self.pipe.wait()}")
        return raw

    def read(self, address: int, size: int) -> bytes:
        if size == 0:
            return b""
        self.send("D", size, address)
        return self._answer(size)

    def call(self, name: str) -> int:
        self.send("C", self.entries[name], abi.ARGS_ADDRESS, self.stack)
        status = int.from_bytes(self._answer(8), "little", signed=True)
        if status < 0:
            raise ProgramStatus(name, status)
        return status

    def start(self) -> None:
        """A fresh worker: the image as it was loaded, the state zero."""
        for address, raw in self.image:
            self.write(address, raw)
        self.write(self.state, bytes(self.facts["state_bytes"]))

    def arguments(
        self,
        scalars: Sequence[int],
        *,
        task: int = 0,
        first: int = 0,
        inputs: Sequence[Array] = (),
        room: Sequence[int] = (),
        merging: bool = False,
        paces: Sequence[tuple[int, bool]] = (),
    ) -> None:
        """Write the argument block and the windows; a room of -1 is no output.

        `paces` has for each input with a pace of its own the number of its first record, and whether it ends here.
        """
        words = [abi.ABI, len(self.facts["inputs"]), len(self.facts["outputs"]), len(scalars), task, first, self.state]
        words += [self.facts["state_bytes"], self.other if merging else 0, self.free, self.free_bytes]
        for index in range(abi.INPUTS_MAX):
            if index >= len(inputs):
                words += [0] * 8
                continue
            address, raw = abi.INPUT_ADDRESS + index * abi.WINDOW_BYTES, inputs[index].tobytes()
            self.write(address, raw + GUARD)
            words += [address, len(raw), 0, 1, len(raw) // self.facts["inputs"][index]["record_bytes"], 1, 1, 1]
        for index in range(abi.OUTPUTS_MAX):
            if index >= len(room) or room[index] < 0:
                words += [0] * 8
                continue
            address = abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES
            self.write(address + room[index], GUARD)
            words += [address, room[index], 0, 1, 0, 1, 1, 1]
        words += [*scalars, *[0] * (abi.SCALARS_MAX - len(scalars))]
        words += [0] * 9 + [first, 0, 0, 0] + [2**64 - 1, 1, 1, 1]
        words += [word for pace in paces for word in pace]
        self.write(abi.ARGS_ADDRESS, struct.pack(f"<{len(words)}Q", *words))

    def taken(self, index: int) -> int:
        """Return the bytes that the program took of an input with a pace of its own."""
        return int.from_bytes(self.read(abi.ARGS_ADDRESS + 88 + index * 64 + 16, 8), "little")

    def results(self, room: Sequence[int]) -> list[bytes]:
        """Return the bytes of each output, b'' for one that is not there."""
        found = []
        for index, size in enumerate(room):
            if size < 0:
                found.append(b"")
                continue
            used = int.from_bytes(self.read(abi.ARGS_ADDRESS + 88 + (abi.INPUTS_MAX + index) * 64 + 16, 8), "little")
            address = abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES
            assert used <= size, f"output {index}: {used} bytes used, room for {size}"
            assert self.read(address + size, len(GUARD)) == GUARD, f"output {index}: written beyond its room"
            found.append(self.read(address, used))
        return found


def _process(program: Program) -> _Process:
    key = program.hash
    found = _LIVE.pop(key, None)
    if found is None or found.pipe.poll() is not None:
        found = _Process(program)
    _LIVE[key] = found
    while len(_LIVE) > _PROCESSES_MAX:
        _stop(_LIVE.popitem(last=False)[1])
    return found


def _stop(process: _Process) -> None:
    process.pipe.kill()
    process.pipe.wait()
    for stream in (process.pipe.stdin, process.pipe.stdout):
        assert stream is not None
        with contextlib.suppress(BrokenPipeError):
            stream.close()


@atexit.register
def _stop_all() -> None:
    while _LIVE:
        _stop(_LIVE.popitem()[1])


def pattern(value: Any, dtype: Any) -> int:
    """A scalar as the 64 bits that a program finds."""
    raw = np.array(value).astype(dtype)
    return int(raw) & (2**64 - 1) if raw.dtype.kind in "iub" else int.from_bytes(raw.tobytes(), "little")


def room_for(port: dict[str, Any], phase: str, records: int, size: int) -> int:
    """Bytes of an output in a phase; -1 if it is not written then."""
    bound = port["bound"]
    if port["phase"] != phase:
        return -1
    return int(bound["per_record"] * records + np.ceil(bound["per_input_byte"] * size) + bound["fixed"])


def cut(program: Program, inputs: Sequence[Array], cuts: Sequence[int]) -> list[tuple[int, list[Array]]]:
    """Each task's first record, and its part of each input, cut before the records that ``cuts`` names."""
    ports = program.metadata["inputs"]
    raw = [np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in inputs]
    sizes = [port["record_bytes"] for port in ports]
    # Input 0 alone decides how many there are; a last record that is cut short belongs to the last task.
    count = -(-len(raw[0]) // sizes[0])
    edges = [0, *sorted(edge for edge in cuts if 0 < edge < count), count]
    if count == 0:
        edges = [0, 0]
    return [
        (first, [one if port["whole"] else one[first * size : last * size]
                 for one, size, port in zip(raw, sizes, ports, strict=True)])
        for first, last in zip(edges[:-1], edges[1:], strict=True)
    ]  # fmt: skip


def _execute_paced(program: Program, inputs: Sequence[Array], words: list[int], records: int) -> list[Array]:
    """Run a program whose inputs have paces of their own, with windows of some records of each."""
    facts, process = program.metadata, _process(program)
    raw = [np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in inputs]
    sizes = [port["record_bytes"] for port in facts["inputs"]]
    at, done = [0] * len(raw), [b""] * len(facts["outputs"])
    process.start()
    while any(position < len(one) for position, one in zip(at, raw, strict=True)):
        parts = [one[position : position + records * size] for one, position, size in zip(raw, at, sizes, strict=True)]
        ended = [len(part) < records * size for part, size in zip(parts, sizes, strict=True)]
        firsts = [position // size for position, size in zip(at, sizes, strict=True)]
        count = sum(len(part) // size for part, size in zip(parts, sizes, strict=True))
        room = [room_for(port, "task", count, sum(map(len, parts))) for port in facts["outputs"]]
        paces = list(zip(firsts, ended, strict=True))
        process.arguments(words, first=firsts[0], inputs=parts, room=room, paces=paces)
        process.call("nd_block")
        done = [before + more for before, more in zip(done, process.results(room), strict=True)]
        took = [process.taken(index) for index in range(len(raw))]
        assert sum(took) > 0, "the program took nothing"
        at = [position + more for position, more in zip(at, took, strict=True)]
    return [
        np.frombuffer(one, dtype=abi.record(port["dtype"], "here"))
        for one, port in zip(done, facts["outputs"], strict=True)
    ]


def execute(
    program: Program,
    inputs: Sequence[Array],
    outputs: Sequence[int] | None = None,
    scalars: Sequence[Any] = (),
    *,
    cuts: Sequence[int] = (),
    workers: int = 1,
) -> list[Array]:
    """Run a program over whole inputs; give each output as an array.

    ``outputs`` is the room of each output in bytes, instead of what the metadata says. Tasks begin at the records in
    ``cuts``, and go round the workers. A negative status is a :class:`ProgramStatus`.
    """
    facts = program.metadata
    given = [*scalars, *(one["default"] for one in facts["scalars"][len(scalars) :])]
    words = [pattern(value, one["dtype"]) for value, one in zip(given, facts["scalars"], strict=True)]
    if facts["inputs"][0]["ahead"]:
        return _execute_paced(program, inputs, words, max(cuts[:1], default=1 << 20))
    tasks = cut(program, inputs, cuts)
    process = _process(program)
    done: list[list[bytes]] = [[b""] * len(tasks) for _ in facts["outputs"]]
    states: list[bytes] = []
    for worker in range(workers):
        process.start()
        if "nd_begin" in facts["entries"]:
            process.arguments(words)
            process.call("nd_begin")
        for number in range(worker, len(tasks), workers):
            first, parts = tasks[number]
            records = -(-parts[0].nbytes // facts["inputs"][0]["record_bytes"])
            size = sum(part.nbytes for part, port in zip(parts, facts["inputs"], strict=True) if not port["whole"])
            room = [room_for(port, "task", records, size) for port in facts["outputs"]]
            if outputs is not None:
                room = [-1 if one < 0 else given for one, given in zip(room, outputs, strict=True)]
            process.arguments(words, task=number, first=first, inputs=parts, room=room)
            process.call(f"nd_{facts['kind']}")
            for index, raw in enumerate(process.results(room)):
                done[index][number] = raw
        states.append(process.read(process.state, facts["state_bytes"]))
    ends = [b""] * len(facts["outputs"])
    if facts["needs_end"]:
        process.start()
        process.write(process.state, states[0])
        for state in states[1:]:
            process.write(process.other, state)
            process.arguments(words, merging=True)
            process.call("nd_merge")
        room = [room_for(port, "end", 0, 0) for port in facts["outputs"]]
        process.arguments(words, room=room)
        process.call("nd_end")
        ends = process.results(room)
    return [
        np.frombuffer(b"".join([*parts, end]), dtype=abi.record(port["dtype"], "here"))
        for parts, end, port in zip(done, ends, facts["outputs"], strict=True)
    ]
