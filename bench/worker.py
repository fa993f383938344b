"""One system in a process of its own, kept alive for a section, doing what the runner asks over a pipe.

A request is ``(method, arguments)``, an answer ``("ok", value)`` or ``("error", text)``: an exception of one system is
printed and leaves a gap in its column, nothing else. Buffers are allocated and touched before the clock starts. The
data that a system reads are compared with the truth when it runs a pattern for the first time, outside the timing.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, systems
from .data import ArraySpec, map_truth
from .patterns import BY_NAME, FLUSHED, Box, Op, Pattern

#: Boxes compared with the truth at the first meeting, and the elements of one that are compared at most.
_CHECKED_OPS = 2
_WRITES_A_ROUND = 16
#: Operations of a round on a store just opened, at least, where the pattern's own least is not smaller.
_LEAST_COLD = 8
#: Bytes of one read of the warm-up.
_WARM_UP_BYTES = 64 << 20


class WrongDataError(Exception):
    """A system read something else than what was written."""


class Bench:
    """The worker's side: one adapter, the truth, and the timed loops."""

    def __init__(self, label: str, folder: Path, spec: ArraySpec, truth: Path) -> None:
        self.label = label
        self.system = systems.make(label, folder, spec)
        self.spec = spec
        self.truth = map_truth(spec, truth)
        self.system.truth = self.truth
        self._ops: dict[str, list[Op]] = {}
        self._turns: dict[str, Iterator[Op]] = {}
        self._buffers: dict[tuple[int, ...], np.ndarray] = {}

    def _of(self, pattern: Pattern) -> list[Op]:
        if pattern.name not in self._ops:
            self._ops[pattern.name] = pattern.ops(self.spec.shape)
        return self._ops[pattern.name]

    def _next(self, name: str) -> Iterator[Op]:
        """Go on where the last warm round of a pattern stopped: the same few operations would sit in a peer's cache."""
        return self._turns.setdefault(name, itertools.cycle(self._of(BY_NAME[name])))

    def _buffer(self, op: Op) -> np.ndarray:
        shape = op.count if isinstance(op, Box) else (len(op.coords),)
        if shape not in self._buffers:
            self._buffers.clear()
            self._buffers[shape] = np.full(shape, -1, np.float32)
        return self._buffers[shape]

    def _read(self, op: Op, out: np.ndarray) -> None:
        if isinstance(op, Box):
            self.system.read(op, out)
        else:
            self.system.read_points(op.coords, out)

    def _check(self, pattern: Pattern) -> None:
        if not self.system.stores:
            return
        for op in self._of(pattern)[:_CHECKED_OPS]:
            out = self._buffer(op)
            out.fill(-1)
            self._read(op, out)
            index = op.slices if isinstance(op, Box) else tuple(op.coords.T)
            if not np.array_equal(out, self.truth[index]):
                raise WrongDataError(f"{self.label} reads wrong data in {pattern.name} at {op}")

    def _timed(self, ops: Iterator[Op], budget: float, least: int, most: int | None) -> tuple[int, float]:
        """Run operations until the budget is used up (but ``least``) or ``most`` are done; return (done, seconds)."""
        first = next(ops)
        buffer = self._buffer(first)  # the operations of a pattern are equal in shape
        gc.collect()
        done, begin = 0, time.perf_counter()
        for op in itertools.chain([first], ops):
            self._read(op, buffer)
            done += 1
            if most is not None:
                if done >= most:
                    break
            elif done >= least and time.perf_counter() - begin >= budget:
                break
        return done, time.perf_counter() - begin

    def full_write(self) -> dict[str, Any]:
        """Write the whole array into a new store: seconds until its flush is done, and until all is on the disk."""
        self.system.close()
        self.system.wipe()
        self.system.create()
        begin = time.perf_counter()
        if self.system.stores:
            self._write_all()
            self.system.flush()
        returned = time.perf_counter() - begin
        machine.make_durable(self.system.folder)
        durable = time.perf_counter() - begin
        facts = {**self.system.facts(), "bytes_on_disk": machine.disk_usage(self.system.folder)}
        self.system.close()
        self.system.open()
        return {"ops": 1, "seconds": returned, "durable": durable, "facts": facts}

    def _write_all(self) -> None:
        shape, slab = self.spec.shape, self.spec.slab
        if slab is None:
            self.system.write_all(self.truth)
            return
        for first in range(0, shape[0], slab):
            count = (min(slab, shape[0] - first), *shape[1:])
            self.system.write(Box((first, *(0 for _ in count[1:])), count), self.truth[first : first + count[0]])

    def warm_up(self) -> None:
        """Read the whole array once, so that warm rounds meet no page for the first time."""
        step = max(1, _WARM_UP_BYTES * self.spec.shape[0] // self.spec.nbytes)
        for first in range(0, self.spec.shape[0], step):
            count = (min(step, self.spec.shape[0] - first), *self.spec.shape[1:])
            box = Box((first, *(0 for _ in count[1:])), count)
            self.system.read(box, self._buffer(box))

    def calibrate(self, name: str, budget: float) -> int:
        """Check the pattern and return how many operations a round takes."""
        pattern = BY_NAME[name]
        self._check(pattern)
        done, seconds = self._timed(self._next(name), budget, pattern.least, None)
        # The first operations may be far slower than later ones: go on until a round is long enough for the clock.
        while seconds < budget / 4 or done < pattern.least:
            done, seconds = self._timed(self._next(name), budget, max(pattern.least, 2 * done), None)
        return done

    def warm(self, name: str, ops: int) -> dict[str, Any]:
        """Time a number of operations, going on where the last round stopped."""
        done, seconds = self._timed(self._next(name), 0, 1, ops)
        return {"ops": done, "seconds": seconds / done}

    def first_look(self, name: str, budget: float, state: str, drop: str) -> dict[str, Any]:
        """Time operations on a store just opened, each once.

        ``drop`` names how the page cache is dropped before, where the state is ``cold`` or ``part``.

        At least as many as of a warm round: where one takes half of the budget, a system that is a little faster would
        else run one more, and that one may find its part in memory already.
        """
        self.system.close()
        gc.collect()
        if state == "fresh":
            machine.warm_files(self.system.folder)
        else:
            (machine.make_part if state == "part" else machine.make_cold)(self.system.folder, drop)
        self.system.open()
        pattern = BY_NAME[name]
        done, seconds = self._timed(iter(self._of(pattern)), budget, min(pattern.least, _LEAST_COLD), None)
        return {"ops": done, "seconds": seconds / done}

    def overwrite(self, name: str, turn: int) -> dict[str, Any]:
        """Time a fixed number of overwrites with one flush behind them, then check what the last ones left."""
        if turn == 0:
            self.system.close()
            self.system.open(writable=True)
        ops = self._of(BY_NAME[name])
        mine = [ops[(turn * _WRITES_A_ROUND + i) % len(ops)] for i in range(_WRITES_A_ROUND)]
        boxes = [op for op in mine if isinstance(op, Box)]
        first = turn % max(1, self.spec.shape[0] - boxes[0].count[0] + 1)
        source = np.ascontiguousarray(
            self.truth[first : first + boxes[0].count[0]][(slice(None), *boxes[0].slices[1:])]
        )
        machine.make_durable(self.system.folder)
        begin = time.perf_counter()
        for box in boxes:
            self.system.write(box, source)
            if name == FLUSHED.name:
                self.system.flush()
        self.system.flush()
        returned = time.perf_counter() - begin
        machine.make_durable(self.system.folder)
        durable = time.perf_counter() - begin
        out = np.empty(boxes[-1].count, np.float32)
        self.system.read(boxes[-1], out)
        if not np.array_equal(out, source):
            raise WrongDataError(f"{self.label} does not read back what it wrote at {boxes[-1]}")
        return {"ops": len(boxes), "seconds": returned / len(boxes), "durable": durable / len(boxes)}

    def release(self) -> None:
        """Close the store and leave it where it is, for another process to open."""
        self.system.close()

    def close(self) -> None:
        """Close the store and remove it."""
        self.system.close()
        self.system.wipe()


def _serve(pipe: Connection, label: str, folder: Path, spec: ArraySpec, truth: Path) -> None:
    bench: Bench | None = None
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            if bench is None:
                bench = Bench(label, folder, spec, truth)
            pipe.send(("ok", getattr(bench, method)(*arguments)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # whatever a library raises is its result; a Rust panic is no Exception
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            pipe.send(("error", f"{type(error).__name__}: {str(error)[:300]} ({where})"))
        if method == "close":
            return


class SystemFailedError(Exception):
    """A system raised, or its process died."""


class Worker:
    """The runner's side of one worker process."""

    def __init__(self, label: str, folder: Path, spec: ArraySpec, truth: Path) -> None:
        self.label = label
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        folder.mkdir(parents=True, exist_ok=True)
        self._process = context.Process(target=_serve, args=(theirs, label, folder, spec, truth), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any, patience: float | None = None) -> Any:
        """Have a method of :class:`Bench` run there, and return what it returns; in ``patience`` seconds if given."""
        try:
            self._pipe.send((method, arguments))
            if patience is not None and not self._pipe.poll(patience):
                self._process.kill()
                raise SystemFailedError(f"no answer within {patience:.0f} s")
            status, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(10)
            raise SystemFailedError(f"the process died with exit code {self._process.exitcode}") from error
        if status == "error":
            raise SystemFailedError(value)
        return value

    def stop(self) -> None:
        """Close the store and end the process, however it fares."""
        with contextlib.suppress(SystemFailedError):
            self.ask("close", patience=120)
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
