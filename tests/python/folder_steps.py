"""Steps of a program in a folder: each open, rename and removal there, at which a test fails it or takes a picture."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["everything", "failing_at", "pictures"]

#: Events that change a folder, and the argument that names the place.
_EVENTS = {"open": 0, "os.mkdir": 0, "os.rename": 0, "os.remove": 0, "os.rmdir": 0, "shutil.copyfile": 1}
_LISTENERS: list[tuple[str, Callable[[str, str], None]]] = []
_HOOKED: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    """Pass events of a listener's folder on; hooks of the interpreter cannot be taken away again."""
    if not _LISTENERS or event not in _EVENTS:
        return
    folder, listener = _LISTENERS[-1]
    name = args[_EVENTS[event]]
    if event == "open" and not (isinstance(args[1], str) and set(args[1]) & set("wax+")):
        return
    if isinstance(name, str | os.PathLike) and os.path.abspath(os.fspath(name)).startswith(folder + os.sep):
        _LISTENERS.pop()  # what the listener does itself is no step
        try:
            listener(event, os.fspath(name))
        finally:
            _LISTENERS.append((folder, listener))


@contextmanager
def _listening(folder: Path, listener: Callable[[str, str], None]) -> Iterator[None]:
    if not _HOOKED:
        sys.addaudithook(_hook)
        _HOOKED.append(True)
    _LISTENERS.append((os.path.abspath(folder), listener))
    try:
        yield
    finally:
        _LISTENERS.pop()


@contextmanager
def failing_at(folder: Path, number: int, error: OSError) -> Iterator[list[str]]:
    """Raise an error instead of a folder's step of a number; gives the steps that were seen."""
    seen: list[str] = []

    def listener(event: str, name: str) -> None:
        seen.append(f"{event} {Path(name).name}")
        if len(seen) == number + 1:
            raise error

    with _listening(folder, listener):
        yield seen


@contextmanager
def pictures(folder: Path, into: Path) -> Iterator[list[Path]]:
    """Copy a folder before each of its steps, as a process that is killed there leaves it."""
    taken: list[Path] = []

    def listener(_event: str, _name: str) -> None:
        if folder.is_dir():
            taken.append(Path(shutil.copytree(folder, into / f"step{len(taken)}", symlinks=True)))

    with _listening(folder, listener):
        yield taken


def everything(folder: Path) -> dict[str, bytes]:
    """Bytes of a run's files by name, without the one that two equal runs differ in."""
    found = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    found.pop("environment.json", None)
    return found
