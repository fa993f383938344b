"""Processes that measure: started when the first call comes, ended with the process that started them.

A process of a pool imports the script that started it. A script that runs experiments while it is imported would start
pools without end, so :func:`refuse_import` ends such a process, and its caller gets an error that says why.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from nandarray.errors import InvalidError
from nandarray.lab import registry

__all__ = ["Pool", "refuse_import"]

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
