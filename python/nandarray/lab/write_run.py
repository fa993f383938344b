"""Running an experiment: from an id to a whole folder.

The folder is made under a name that ends in ``.part`` and gets its own name when everything is in it, so a folder with
a run's name is whole. The next run removes the remains of a killed one. The name has a hash of all that the result
depends on (:mod:`nandarray.lab.prepare`). Running the same again measures again and puts the new folder in the old
one's place; ``environment.json`` says in which files they differ.

This module makes no choice about what is measured, and draws nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from nandarray.lab import registry
from nandarray.lab._files import differences, environment, write_json
from nandarray.lab.experiment import Experiment, Progress
from nandarray.lab.folders import TIMELINE, folder_of_runs, part_folder
from nandarray.lab.measure import measure
from nandarray.lab.pool import Pool, refuse_import
from nandarray.lab.prepare import Prepared, prepare
from nandarray.lab.read_run import Run, load
from nandarray.lab.write_result import write_result

__all__ = ["execute", "run"]


def run(
    what: str | os.PathLike[str] | Experiment,
    *,
    profile: str = "full",
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    runs: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    trace: bool = False,
    reuse: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Run an experiment.

    Parameters
    ----------
    what : str, path or Experiment
        Its id, a Python file, or the experiment itself.
    profile : {"full", "small"}
        The paper's sizes, or sizes for tests.
    seed : int
        Seed of every random generator of the run.
    parameters : mapping, optional
        Values to use instead of the profile's.
    runs : path, optional
        Folder for the run's folder; ``$NANDARRAY_RUNS`` or ``lab-runs`` if left out.
    executor : concurrent.futures.Executor, optional
        Executor of the experiment's cases; processes of this machine if left out.
    jobs : int, optional
        Number of processes; one in the small profile, else as many as there are cores.
    trace : bool
        Ask for a timeline, too. Experiments that model no single device write none.
    reuse : bool
        Take the run that is there, if there is one.
    progress : callable, optional
        Function of a step's text, the number of steps done and the number of all steps.

    Returns
    -------
    Run
        Its folder, read.

    Raises
    ------
    NotFoundError
        If there is no such experiment.
    InvalidError
        If a parameter is not there or of a wrong kind, or the experiment gives what cannot be written; or if the
        processes cannot import the calling script, as it runs experiments outside ``if __name__ == "__main__":``.
    LockedError
        If another process is running the same.

    Examples
    --------
    >>> from nandarray import lab
    >>> done = lab.run("model.queue-depth", profile="small", parameters={"device": "tiny"})
    >>> done.experiment, done.tables["depths"][:2]
    ('model.queue-depth', ['depth', 'bytes_per_s'])
    """
    refuse_import()
    prepared = prepare(registry.find(what), profile=profile, seed=seed, parameters=parameters)
    return execute(prepared, runs=runs, executor=executor, jobs=jobs, trace=trace, reuse=reuse, progress=progress)


def execute(
    prepared: Prepared,
    *,
    runs: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    trace: bool = False,
    reuse: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Measure what was prepared and write its folder; the arguments are those of :func:`run`."""
    final = folder_of_runs(runs) / prepared.id
    if reuse and (final / "run.json").is_file():
        return load(final)
    jobs = jobs or (1 if prepared.profile == "small" else os.cpu_count() or 1)
    with part_folder(final) as part, Pool(jobs, executor) as pool:
        result, seconds = measure(prepared, pool, part / TIMELINE if trace else None, progress)
        write_result(part, prepared, result, traced=trace)
        if not trace and prepared.experiment.deterministic and (final / TIMELINE).is_file():
            shutil.copyfile(final / TIMELINE, part / TIMELINE)  # of the same run: it would be the same again
        about = environment(seconds) | {"jobs": jobs, "before": differences(part, final)}
        write_json(part / "environment.json", about)
    return load(final)
