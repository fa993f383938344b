"""Running a sweep: points in batches on an executor, a journal of what is done, and the folder at the end.

Each batch's results are appended to ``journal.jsonl`` in the sweep's ``.part`` folder, a line a point, before the next
batch is handed out. A sweep that was killed goes on from there: what is in the journal is not measured again, a torn
last line is. At the end the points are put in order, so a sweep that was killed, one that was not, and one on another
number of processes leave the same bytes.

:mod:`nandarray.lab.sweep_points` measures points, :mod:`nandarray.lab.read_sweep` reads finished sweeps.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from io import BufferedRandom
from pathlib import Path
from typing import Any, TypeGuard

import nandarray
from nandarray.lab._files import differences, digest, environment, write_json, write_table
from nandarray.lab.experiment import Progress
from nandarray.lab.folders import folder_of_runs, part_folder
from nandarray.lab.pareto import front
from nandarray.lab.pool import Pool, refuse_import
from nandarray.lab.read_run import SCHEMA
from nandarray.lab.read_sweep import Sweep
from nandarray.lab.sweep_points import batch, failure
from nandarray.lab.sweep_spec import Spec, read_spec

__all__ = ["Journal", "sweep"]

JOURNAL = "journal.jsonl"
_BATCH_S = 0.5
_BATCH_MAX = 512
_BATCHES_EACH = 2

Found = dict[str, Any]
Point = tuple[int, dict[str, Any]]


class Journal:
    """Results of points, a line each, appended as they come.

    ``file`` is made if it is not there. An incomplete last line is cut off; a line of a point beyond ``count`` counts
    as torn.
    """

    def __init__(self, file: Path, count: int) -> None:
        self.done: dict[int, Found] = {}
        self._file: BufferedRandom = file.open("a+b")
        self._file.seek(0)
        good = 0
        for line in self._file:
            try:
                found = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError):
                break
            if not _is_result(found, count):
                break
            self.done[found["point"]] = found
            good += len(line)
        self._file.truncate(good)

    def append(self, found: Sequence[Found]) -> None:
        """Add results, and hand them to the operating system."""
        lines = (json.dumps(one, allow_nan=False, ensure_ascii=False) + "\n" for one in found)
        self._file.write("".join(lines).encode())
        self._file.flush()
        self.done |= {one["point"]: one for one in found}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_result(found: Any, count: int) -> TypeGuard[Found]:
    """Tell whether a line of a journal is a whole result of one of a number of points."""
    if not isinstance(found, dict) or type(found.get("point")) is not int or not 0 <= found["point"] < count:
        return False
    return isinstance(found.get("measures"), dict) or (
        isinstance(found.get("kind"), str) and isinstance(found.get("error"), str)
    )


def sweep(
    what: str | os.PathLike[str] | Mapping[str, Any],
    *,
    runs: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    resume: bool = True,
    reuse: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Run a sweep.

    Parameters
    ----------
    what : path or mapping
        A sweep file, or what it would say; see ``docs/reference/lab.md``.
    runs : path, optional
        Folder for the sweep's folder; ``$NANDARRAY_RUNS`` or ``lab-runs`` if left out.
    executor : concurrent.futures.Executor, optional
        Executor that measures points, such as ``distributed.Client.get_executor()``; processes of this machine if left
        out. Files that the sweep names have to be there, too: a trace, an experiment's module.
    jobs : int, optional
        Number of processes and of batches under way; the number of cores if left out. 1 measures in
        this process.
    resume : bool
        Go on with what a killed sweep left.
    reuse : bool
        Take the sweep that is there, if there is one.
    progress : callable, optional
        Function of a step's text, the number of points done and the number of all points.

    Returns
    -------
    Sweep
        Its folder, read. Points that failed are in ``Sweep.failures``.

    Raises
    ------
    InvalidError
        If the file is wrong, or the processes cannot import the calling script (see :func:`nandarray.lab.run`).
    LockedError
        If another process is running the same.

    Examples
    --------
    >>> from nandarray import lab
    >>> spec = {
    ...     "name": "depths",
    ...     "device": "tiny",
    ...     "axes": {"workload.depth": [1, 8], "nand.t_read": {"from": "20 us", "to": "40 us", "steps": 2}},
    ...     "workload": {"requests": 200},
    ... }
    >>> done = lab.sweep(spec, jobs=1)
    >>> len(done), len(done.failures), done.columns[:3]
    (4, 0, ['point', 'workload.depth', 'nand.t_read_us'])
    """
    refuse_import()
    spec = read_spec(what)
    of = {"sweep": spec.resolved, "version": nandarray.__version__}
    final = folder_of_runs(runs) / f"{spec.name}@{digest(of)}"
    if reuse and (final / "sweep.json").is_file():
        return Sweep(final)
    tell = progress or (lambda _what, _done, _of: None)
    places = spec.points()
    jobs = jobs or os.cpu_count() or 1
    start = time.perf_counter()
    with part_folder(final, keep=True) as part:
        if not resume:
            (part / JOURNAL).unlink(missing_ok=True)
        journal = Journal(part / JOURNAL, len(places))
        before = len(journal.done)
        try:
            points = [(n, spec.settings(place)) for n, place in enumerate(places) if n not in journal.done]
            _measure_all(spec, points, journal, Pool(jobs, executor), tell)
        finally:
            journal.close()
        _write(part, spec, places, [journal.done[n] for n in range(len(places))])
        about = environment(time.perf_counter() - start) | {"jobs": jobs, "resumed": before}
        (part / JOURNAL).unlink()
        write_json(part / "environment.json", about | {"before": differences(part, final)})
    return Sweep(final)


def _measure_all(spec: Spec, points: list[Point], journal: Journal, pool: Pool, tell: Progress) -> None:
    """Measure what is not in the journal."""
    tell(spec.name, len(journal.done), spec.count)
    if pool.jobs == 1 and not pool.given:
        for point in points:
            journal.append(batch(spec.shared, [point]))
            tell(spec.name, len(journal.done), spec.count)
        return
    try:
        alone = _in_batches(spec, deque(points), journal, pool, tell)
        _one_at_a_time(spec, alone, journal, pool, tell)
    except BaseException:
        pool.close(broken=True)
        raise
    pool.close()


def _in_batches(spec: Spec, todo: deque[Point], journal: Journal, pool: Pool, tell: Progress) -> list[Point]:
    """Measure many at a time; give those whose process died, or who were in its company."""
    size, alone = 1, list[Point]()
    pending: dict[Future[list[Found]], list[Point]] = {}
    while todo or pending:
        while todo and len(pending) < _BATCHES_EACH * pool.jobs:
            # Towards the end smaller ones, so that all processes end together.
            fair = max(1, math.ceil(len(todo) / (_BATCHES_EACH * pool.jobs)))
            taken = [todo.popleft() for _ in range(min(size, fair, len(todo)))]
            try:
                pending[pool.submit(batch, spec.shared, taken)] = taken
            except BrokenExecutor:
                alone += taken
                break
        if not pending:
            return alone + list(todo)
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            taken = pending.pop(future)
            try:
                found = future.result()
            except Exception:  # of the way there or back, or a process that died: not of a point's own
                alone += taken
                continue
            journal.append(found)
            mean = sum(one["seconds"] for one in found) / len(found)
            size = min(_BATCH_MAX, max(1, int(_BATCH_S / max(mean, 1e-6))))
            tell(spec.name, len(journal.done), spec.count)
    return alone


def _one_at_a_time(spec: Spec, points: list[Point], journal: Journal, pool: Pool, tell: Progress) -> None:
    """Measure points that may have ended a process, each alone, so that only the guilty one fails."""
    if points:
        pool.close(broken=True)
    for point in points:
        try:
            found = pool.submit(batch, spec.shared, [point]).result()
        except Exception as error:
            if pool.given and isinstance(error, BrokenExecutor):
                raise  # it is not ours to start again
            found = [{"point": point[0], "seconds": 0.0, **failure(error)}]
            pool.close(broken=True)
        journal.append(found)
        tell(spec.name, len(journal.done), spec.count)


def _write(part: Path, spec: Spec, places: Sequence[tuple[int, ...]], found: Sequence[Found]) -> None:
    """Write tables and head."""
    good, bad = [one for one in found if "measures" in one], [one for one in found if "measures" not in one]
    names = list(dict.fromkeys(name for one in good for name in one["measures"]))
    columns = {name: _of_a_kind([one["measures"].get(name) for one in good]) for name in names}
    numbers = {name for name in names if not any(isinstance(value, str) for value in columns[name])}
    objectives = {name: way for name, way in spec.objectives.items() if name in numbers}
    on_front = front(columns, objectives) if objectives and good else [False] * len(good)
    rows = [
        {
            "point": one["point"],
            **spec.cells(places[one["point"]]),
            **{name: columns[name][row] for name in names},
            "pareto": on_front[row],
        }
        for row, one in enumerate(good)
    ]
    failures = [
        {"point": one["point"], **spec.cells(places[one["point"]]), "kind": one["kind"], "error": one["error"]}
        for one in bad
    ]
    (part / "tables").mkdir(exist_ok=True)
    tables = {
        "points": write_table(part / "tables", "points", rows),
        "failures": write_table(part / "tables", "failures", failures),
    }
    head = {
        "schema": SCHEMA,
        "name": spec.name,
        "title": spec.title,
        "version": nandarray.__version__,
        "spec": spec.resolved,
        "axes": spec.resolved["axes"],
        "measures": names,
        "objectives": objectives,
        "points": len(places),
        "failed": len(bad),
        "tables": tables,
    }
    write_json(part / "sweep.json", head)


def _of_a_kind(values: list[Any]) -> list[Any]:
    """Return a column that a table can hold: numbers, or truth values, or texts; texts where they are mixed."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds <= {int, float}:
        return values
    return [None if value is None else str(value) for value in values]
