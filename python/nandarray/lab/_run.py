"""Running an experiment: from an id to a whole folder.

The folder is made under a name that ends in ``.part`` and gets its own name when everything is in it, so a folder with
a run's name is whole. The next run removes the remains of a killed one. The name has a hash of all that the result
depends on: experiment, its source, parameters, profile, seed, version. Running the same again
measures again and puts the new folder in the old one's place; ``environment.json`` says in which files they differ.

This module makes no choice about what is measured, and draws nothing.
"""

from __future__ import annotations

import dataclasses
import fcntl
import filecmp
import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

import nandarray
from nandarray import holders
from nandarray.errors import InvalidError, LockedError, NandarrayError
from nandarray.lab import packages, registry
from nandarray.lab._files import digest, environment, plain, write_json, write_table
from nandarray.lab._heads import NAME, RUN, damage
from nandarray.lab._inputs import Inputs, inputs_of
from nandarray.lab._runs import PART, SCHEMA, TIMELINE, Run, folder_of_runs
from nandarray.lab.claims import Claim, base_of, claims, judge, near
from nandarray.lab.experiment import Context, Experiment, Progress, Result

__all__ = [
    "Pool",
    "command_of",
    "differences",
    "known_claims",
    "part_folder",
    "put_in_place",
    "refuse_import",
    "run",
    "run_id",
]

_WORKER = "nandarray-lab"
_GUARD = (
    "lab.run and lab.sweep start processes, and each of them imports the script first: what runs experiments belongs "
    'under if __name__ == "__main__":, or takes jobs=1'
)


class _Process(SpawnProcess):
    """A process of a pool, which knows by its name that it is one while it imports the script."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.name = f"{_WORKER}-{self.name}"


class _Spawn(SpawnContext):
    Process = _Process


def refuse_import() -> None:
    """End a process that got here by importing the script that started it.

    A process of a pool leaves with SystemExit, and the pool tells its caller, once; any other one gets an InvalidError.
    """
    if getattr(current_process(), "_inheriting", False):  # as multiprocessing itself tells it
        if current_process().name.startswith(_WORKER):
            raise SystemExit(1)
        raise InvalidError(_GUARD)


def _nothing() -> None:
    """Be called."""


class Pool:
    """``jobs`` processes that start when the first call comes; calls of experiments in files load the file there first.

    A process that cannot import the script that it was started by would end at once, and so would the one after it. So
    the first one is waited for before anything is handed out. A given ``executor`` is used instead, and left open.
    """

    def __init__(self, jobs: int, executor: Executor | None = None) -> None:
        self.jobs = jobs
        self.given = executor is not None
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call a function of a module somewhere else."""
        if self._executor is None:
            self._start()
        assert self._executor is not None
        file = registry.file_of(function.__module__)
        if file is None:
            return self._executor.submit(function, *args)
        return self._executor.submit(_from_file, file, function.__qualname__, *args)

    def _start(self) -> None:
        main = sys.modules["__main__"]
        script = None if getattr(main, "__spec__", None) is not None else getattr(main, "__file__", None)
        if script is not None and not Path(script).exists():
            raise InvalidError(f"the processes of a run cannot import a script from {script}: save it, or take jobs=1")
        # Not a fork: this process has threads, of progress bars if of nothing else.
        self._executor = ProcessPoolExecutor(self.jobs, mp_context=_Spawn(), initializer=_end_with_parent)
        try:
            self._executor.submit(_nothing).result()
        except BrokenExecutor:
            self.close(broken=True)
            raise InvalidError(_GUARD) from None

    def close(self, *, broken: bool = False) -> None:
        """End the processes, if they are ours."""
        if self._executor is not None and not self.given:
            self._executor.shutdown(wait=not broken, cancel_futures=True)
            self._executor = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_with_parent() -> None:
    """End this process when the one that started it does, even if that was killed."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _from_file(file: str, name: str, *args: Any) -> Any:
    found: Any = registry.load_file(file)
    for part in name.split("."):
        found = getattr(found, part)
    return found(*args)


def run_id(experiment: Experiment, parameters: Mapping[str, Any], profile: str, seed: int, inputs: Inputs) -> str:
    """Return the name of a run's folder, ``ID@HASH``, for all parameters, resolved, and the inputs that they name."""
    of = {
        "experiment": experiment.id,
        "parameters": parameters,
        "profile": profile,
        "seed": seed,
        "version": nandarray.__version__,
        "source": registry.source_hash(experiment),
        "devices": inputs.devices,
        "files": inputs.files,
        "claims": [dataclasses.asdict(claim) for claim in known_claims(experiment).values()],
    }
    return f"{experiment.id}@{digest(of)}"


def known_claims(experiment: Experiment) -> dict[str, Claim]:
    """Return the claims of an experiment that are known, those beside its file among them."""
    file = getattr(sys.modules.get(experiment.run.__module__), "__file__", None)
    known = claims(Path(file).parent if file else None)
    return {name: known[name] for name in experiment.claims if name in known}


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
    experiment = registry.find(what)
    if not 0 <= seed <= registry.LARGEST:
        raise InvalidError(f"seed must be a whole number from 0 to {registry.LARGEST:,}, not {seed!r}")
    resolved = plain(registry.resolve(experiment, profile, dict(parameters or {})))
    inputs = inputs_of(experiment, resolved)
    final = folder_of_runs(runs) / run_id(experiment, resolved, profile, seed, inputs)
    if reuse and (final / "run.json").is_file():
        return Run(final)
    jobs = jobs or (1 if profile == "small" else os.cpu_count() or 1)
    with part_folder(final) as part, Pool(jobs, executor) as pool:
        context = Context(
            parameters=resolved,
            seed=seed,
            profile=profile,
            jobs=jobs,
            progress=progress or (lambda _what, _done, _of: None),
            executor=pool if executor is not None or jobs > 1 else None,
            timeline=part / TIMELINE if trace else None,
        )
        start = time.perf_counter()
        result = _measured(experiment, context)
        seconds = time.perf_counter() - start
        if inputs_of(experiment, resolved) != inputs:
            raise InvalidError(f"a device or a file that {experiment.id} was given changed while it ran: run it again")
        _write(part, experiment, context, result, inputs)
        if not trace and experiment.deterministic and (final / TIMELINE).is_file():
            shutil.copyfile(final / TIMELINE, part / TIMELINE)  # of the same run: it would be the same again
        about = environment(seconds) | {"jobs": jobs, "before": differences(part, final)}
        write_json(part / "environment.json", about)
        put_in_place(part, final)
    return Run(final)


def _measured(experiment: Experiment, context: Context) -> Result:
    """Run an experiment; an error of a packaged one's arithmetic is one of the parameters that it was given."""
    try:
        return experiment.run(context)
    except NandarrayError:
        raise
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError) as error:
        usual = plain(registry.resolve(experiment, context.profile))
        given = {name: value for name, value in context.parameters.items() if value != usual[name]}
        if not given or not packages.is_packaged(experiment.run.__module__):
            raise
        said = ", ".join(f"{name} = {value!r}" for name, value in given.items())
        why = " ".join(str(error).split())
        raise InvalidError(
            f"{experiment.id} cannot be run with {said}: {type(error).__name__}{': ' if why else ''}{why}"
        ) from error


@contextmanager
def part_folder(final: Path, *, keep: bool = False) -> Generator[Path]:
    """Hold the folder in which something is being made, alone; it will be called ``final``.

    With ``keep``, the contents of an earlier one stay, to go on from. If the folder is still there at the end, it stays
    with ``keep``, and is removed otherwise. If another process holds it, a LockedError is raised.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    part = final.with_name(final.name + PART)
    part.mkdir(exist_ok=True)
    descriptor = os.open(part, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = ", ".join(holders.processes(part)) or "another process"
            raise LockedError(f"{final.name} is being run by {found}") from None
        if not keep:
            _empty(part)
        try:
            yield part
        except BaseException:
            if not keep:
                shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _empty(folder: Path) -> None:
    for inside in folder.iterdir():
        shutil.rmtree(inside) if inside.is_dir() else inside.unlink()


def put_in_place(part: Path, final: Path) -> None:
    """Rename a finished folder to its final name, in place of one of that name."""
    old = final.with_name(final.name + ".old" + PART)
    shutil.rmtree(old, ignore_errors=True)  # of a process that was killed between two names
    if final.exists():
        final.rename(old)
        try:
            part.rename(final)
        except BaseException:
            old.rename(final)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        part.rename(final)


def differences(part: Path, final: Path) -> list[str] | None:
    """Name the files that are not as the same run wrote them before; None if there was none."""
    if not final.is_dir():
        return None
    here, there = ({str(f.relative_to(top)) for f in top.rglob("*") if f.is_file()} for top in (part, final))
    there.discard("environment.json")
    other = {name for name in here & there if not filecmp.cmp(part / name, final / name, shallow=False)}
    return sorted(other | (here ^ there))


def command_of(experiment: Experiment, what: str, context: Context) -> str:
    """Write the command line that runs the same again."""
    words = ["nandarray", "lab", "run", what]
    if context.profile != "full":
        words += ["--profile", context.profile]
    if context.seed:
        words += ["--seed", str(context.seed)]
    usual = plain(registry.resolve(experiment, context.profile))
    for name, value in context.parameters.items():
        if value != usual[name]:
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"]
    if context.timeline is not None:
        words.append("--trace")
    return shlex.join(words)


def _checked(names: Sequence[str] | Mapping[str, Any], what: str) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            raise InvalidError(f"{what} {name!r} cannot be a file's name: letters, digits, and . _ + @ - are taken")


def _write(part: Path, experiment: Experiment, context: Context, result: Result, inputs: Inputs) -> None:
    """Write everything but the environment."""
    _checked(result.tables, "table")
    _checked(result.reports, "report")
    (part / "tables").mkdir()
    tables = {name: write_table(part / "tables", name, rows) for name, rows in result.tables.items()}
    for figure in result.figures:
        _figure_has_columns(experiment.id, figure, tables)
    if result.reports:
        (part / "reports").mkdir()
    for label, report in result.reports.items():
        write_json(part / "reports" / f"{label}.json", report)
    known = known_claims(experiment)
    for found in result.answers:
        base = base_of(found.claim)
        if base not in experiment.claims:
            raise InvalidError(
                f"{experiment.id} answers {base!r}, which is not among its claims{near(base, experiment.claims)}"
            )
    # Claims are of full sizes: in another profile nothing is said of them, unless none of its sizes is smaller.
    sizes = {name: parameter for name, parameter in experiment.parameters.items() if parameter.small is not None}
    same = all(context.parameters[name] == plain(parameter.default) for name, parameter in sizes.items())
    full_size = context.profile != "small" or same
    answers = [judge(answer, experiment, known, full_size=full_size) for answer in result.answers]
    path = registry.file_of(experiment.run.__module__)
    head = {
        "schema": SCHEMA,
        "experiment": experiment.id,
        "title": experiment.title,
        "question": experiment.question,
        "claims": list(experiment.claims),
        "unanswered": sorted(set(experiment.claims) - {base_of(answer["claim"]) for answer in answers}),
        "profile": context.profile,
        "seed": context.seed,
        "parameters": context.parameters,
        "devices": inputs.write(part),
        "files": inputs.files,
        "meanings": {name: parameter.meaning for name, parameter in experiment.parameters.items()},
        "version": nandarray.__version__,
        "source": registry.source_hash(experiment),
        "command": command_of(experiment, Path(path).name if path else experiment.id, context),
        "deterministic": experiment.deterministic,
        "answers": answers,
        "figures": [dataclasses.asdict(figure) for figure in result.figures],
        "tables": tables,
        "reports": sorted(result.reports),
        "assumptions": list(result.assumptions),
        "misfits": list(result.misfits),
    }
    head = plain(head)
    if wrong := damage(head, RUN):
        raise InvalidError(f"{experiment.id}: a result cannot be written: {wrong}")
    write_json(part / "run.json", head)


def _figure_has_columns(owner: str, figure: Any, tables: Mapping[str, Mapping[str, Any]]) -> None:
    if figure.table not in tables:
        raise InvalidError(f"{owner}: figure {figure.id!r} shows the table {figure.table!r}, which is not there")
    columns = tables[figure.table]["columns"]
    for column in (figure.x, figure.y, figure.series, figure.value):
        if column and column not in columns and tables[figure.table]["rows"]:
            raise InvalidError(
                f"{owner}: figure {figure.id!r} shows the column {column!r} of {figure.table!r}: not there"
            )
