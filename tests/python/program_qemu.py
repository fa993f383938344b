"""Run a block program under QEMU's user mode, as the interface says that it is run: an oracle for what compilers make.

Maps the ELF's segments, the argument block, the scratchpad and the windows, calls the entry points task by task, and
gives the outputs. Tasks follow one another in one worker, or are spread over several whose states are merged in order.
Stream programs cannot run here: QEMU has no stream instructions.
"""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from nandarray import Program
from nandarray.programs import abi
from nandarray.programs.compile import zig

_LOADERS: dict[str, Path] = {}


def need_qemu(target: str = "rv64") -> str:
    """The emulator, or a skipped test."""
    name = f"qemu-riscv{target[2:]}"
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: qemu-user)")
    return found


def _loader(target: str) -> Path:
    if target not in _LOADERS:
        folder = Path(tempfile.mkdtemp(prefix="nandarray-loader-"))
        machine = zig.TARGETS[target]
        source = Path(__file__).with_name("program_loader.c")
        zig.compile_c(source, folder / "loader.o", machine, flags=["-fno-builtin"])
        address = "0x400000000" if machine.bits == 64 else "0xa0000000"
        words = ["ld.lld", "-m", f"elf{machine.bits}lriscv", f"-Ttext={address}", "-e", "start", "--gc-sections"]
        status, said = zig.run([*words, "-o", folder / "loader", folder / "loader.o"])
        assert status == 0, said
        (folder / "loader").chmod(0o755)
        _LOADERS[target] = folder / "loader"
    return _LOADERS[target]


def _record(dtype: Any) -> np.dtype[Any]:
    return abi.record(dtype, "here")


def _bits(value: float, dtype: Any) -> int:
    raw = np.array(value, dtype=dtype)
    if raw.dtype.kind in "iub":
        return int(raw) & (2**64 - 1)
    return int.from_bytes(raw.tobytes(), "little")


class _Worker:
    """The commands and the results of one process."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.facts = program.metadata
        self.words: list[bytes] = []
        self.results: list[int] = []  # lengths of what comes back
        file = ELFFile(io.BytesIO(program.elf))
        self.memory_end = abi.IMAGE_ADDRESS + self.facts["memory_bytes"] & ~15
        self.map(abi.IMAGE_ADDRESS, self.facts["memory_bytes"])
        for segment in file.iter_segments():
            if segment["p_type"] == "PT_LOAD":
                self.load(segment["p_vaddr"], segment.data())
        state = -(-self.facts["state_bytes"] // 16) * 16
        self.state, self.other = abi.SCRATCHPAD_ADDRESS, abi.SCRATCHPAD_ADDRESS + state
        self.free = self.other + state
        self.map(abi.ARGS_ADDRESS, abi.ARGS_BYTES)
        self.map(abi.SCRATCHPAD_ADDRESS, max(abi.SCRATCHPAD_BYTES, 2 * state + self.facts["scratchpad_bytes"]))
        self.mapped: set[int] = set()

    def _word(self, what: str, number: int, *more: int) -> None:
        self.words.append(struct.pack(f"<QQ{len(more)}Q", ord(what), number, *more))

    def map(self, address: int, size: int) -> None:
        self._word("M", -(-max(size, 1) // 4096) * 4096, address)

    def load(self, address: int, data: bytes) -> None:
        self._word("L", len(data), address)
        self.words.append(data)

    def dump(self, address: int, size: int) -> None:
        self._word("D", size, address)
        self.results.append(size)

    def call(self, name: str) -> None:
        entry = next(one.address for one in self.program.symbols if one.name == name)
        self._word("C", entry, abi.ARGS_ADDRESS, self.memory_end)
        self.results.append(8)

    def task(
        self,
        number: int,
        first: int,
        inputs: Sequence[np.ndarray[Any, Any]],
        room: Sequence[int],
        scalars: Sequence[int],
        *,
        merging: bool = False,
    ) -> None:
        """Write the argument block and the windows."""
        head = [abi.ABI, len(self.facts["inputs"]), len(self.facts["outputs"]), len(scalars), number, first]
        head += [self.state, self.facts["state_bytes"], self.other if merging else 0, self.free, 4096]
        buffers = []
        for index in range(abi.INPUTS_MAX):
            address = abi.INPUT_ADDRESS + index * abi.WINDOW_BYTES
            if index < len(inputs):
                raw = inputs[index].tobytes()
                if address not in self.mapped:
                    self.map(address, abi.WINDOW_BYTES)
                    self.mapped.add(address)
                self.load(address, raw)
                records = len(raw) // self.facts["inputs"][index]["record_bytes"]
                buffers += [address, len(raw), 0, 1, records, 1, 1, 1]
            else:
                buffers += [0] * 8
        for index in range(abi.OUTPUTS_MAX):
            address = abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES
            if index < len(room) and room[index] >= 0:
                if address not in self.mapped:
                    self.map(address, abi.WINDOW_BYTES)
                    self.mapped.add(address)
                buffers += [address, room[index], 0, 1, 0, 1, 1, 1]
            else:
                buffers += [0] * 8
        words = [*head, *buffers, *scalars, *[0] * (16 - len(scalars))]
        self.load(abi.ARGS_ADDRESS, struct.pack(f"<{len(words)}Q", *words))

    def run(self) -> list[bytes]:
        """Run it; what came back, in order."""
        self._word("E", 0)
        emulator = need_qemu(self.program.target)
        ran = subprocess.run(
            [emulator, str(_loader(self.program.target))], input=b"".join(self.words), capture_output=True, check=False
        )
        assert ran.returncode == 0, (ran.returncode, ran.stderr.decode("utf-8", "replace"))
        found, at = [], 0
        for size in self.results:
            found.append(ran.stdout[at : at + size])
            at += size
        assert at == len(ran.stdout)
        return found


def _room(bound: dict[str, Any], records: int, size: int) -> int:
    return int(bound["per_record"] * records + np.ceil(bound["per_input_byte"] * size) + bound["fixed"])


def run(
    program: Program,
    *inputs: np.ndarray[Any, Any],
    scalars: Sequence[float] = (),
    tasks: int = 1,
    workers: int = 1,
) -> list[np.ndarray[Any, Any]]:
    """Run a block program over whole arrays, cut in equal tasks; every output as an array.

    A status that is negative is an ``AssertionError`` that names it.
    """
    facts = program.metadata
    arrays = [
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, port["record_bytes"])
        for array, port in zip(inputs, facts["inputs"], strict=True)
    ]
    patterns = [_bits(value, one["dtype"]) for value, one in zip(scalars, facts["scalars"], strict=True)]
    cuts = [len(part) for part in np.array_split(np.arange(len(arrays[0])), tasks)]
    first = np.concatenate([[0], np.cumsum(cuts)]).astype(int)
    out: list[dict[int, bytes]] = [{} for _ in facts["outputs"]]
    states: list[bytes] = []
    for worker in range(workers):
        process, tagged = _Worker(program), []
        if "nd_begin" in facts["entries"]:
            process.task(0, 0, [], [], patterns)
            process.call("nd_begin")
            tagged.append(("status", 0))
        for number in range(worker, tasks, workers):
            part = [array[first[number] : first[number + 1]] for array in arrays]
            room = [
                _room(port["bound"], len(part[0]), sum(one.nbytes for one in part)) if port["phase"] == "task" else -1
                for port in facts["outputs"]
            ]
            process.task(number, int(first[number]), part, room, patterns)
            process.call("nd_block")
            tagged.append(("status", 0))
            for index, size in enumerate(room):
                if size >= 0:
                    process.dump(abi.ARGS_ADDRESS + 88 + (8 + index) * 64 + 16, 8)
                    process.dump(abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES, size)
                    tagged += [("used", number), ("out", index)]
        if facts["state_bytes"]:
            process.dump(process.state, facts["state_bytes"])
            tagged.append(("state", 0))
        _collect(process.run(), tagged, out, states)
    if facts["needs_end"]:
        process, tagged = _Worker(program), []
        if facts["state_bytes"]:
            process.load(process.state, states[0])
        for state in states[1:]:
            process.load(process.other, state)
            process.task(0, 0, [], [], patterns, merging=True)
            process.call("nd_merge")
            tagged.append(("status", 0))
        room = [port["bound"]["fixed"] if port["phase"] == "end" else -1 for port in facts["outputs"]]
        process.task(0, 0, [], room, patterns)
        process.call("nd_end")
        tagged.append(("status", 0))
        for index, size in enumerate(room):
            if size >= 0:
                process.dump(abi.ARGS_ADDRESS + 88 + (8 + index) * 64 + 16, 8)
                process.dump(abi.OUTPUT_ADDRESS + index * abi.WINDOW_BYTES, size)
                tagged += [("used", tasks), ("out", index)]
        _collect(process.run(), tagged, out, states)
    return [
        np.frombuffer(b"".join(parts[task] for task in sorted(parts)), dtype=_record(port["dtype"]))
        for parts, port in zip(out, facts["outputs"], strict=True)
    ]


def _collect(
    found: list[bytes], tagged: list[tuple[str, int]], out: list[dict[int, bytes]], states: list[bytes]
) -> None:
    used = task = 0
    for (what, index), raw in zip(tagged, found, strict=True):
        if what == "status":
            status = int.from_bytes(raw, "little", signed=True)
            assert status >= 0, f"status {status}"
        elif what == "used":
            used, task = int.from_bytes(raw, "little"), index
        elif what == "out":
            assert used <= len(raw), f"{used} bytes used of {len(raw)}"
            out[index][task] = raw[:used]
        else:
            states.append(raw)
