"""Folders of runs and sweeps while they are made: named ``.part``, held alone, put in the place of an earlier one.

A folder with a run's own name is whole: it gets that name when everything is in it. The contents are written elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nandarray import holders
from nandarray.errors import LockedError

__all__ = ["PART", "TIMELINE", "VARIABLE", "folder_of_runs", "part_folder"]

VARIABLE = "NANDARRAY_RUNS"
PART = ".part"
TIMELINE = "timeline.pftrace"


def folder_of_runs(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder in which runs lie: the one given, ``$NANDARRAY_RUNS``, or ``lab-runs`` here."""
    return Path(folder or os.environ.get(VARIABLE) or "lab-runs")


@contextmanager
def part_folder(final: Path, *, keep: bool = False) -> Generator[Path]:
    """Hold the folder in which something is being made, alone; at the end it is called ``final``.

    With ``keep``, the contents of an earlier one stay, to go on from. After an error the folder stays with ``keep``,
    and is removed otherwise. If another process holds it, a LockedError is raised.
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
            _put_in_place(part, final)
        except BaseException:
            if not keep:
                shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _empty(folder: Path) -> None:
    for inside in folder.iterdir():
        shutil.rmtree(inside) if inside.is_dir() else inside.unlink()


def _put_in_place(part: Path, final: Path) -> None:
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
