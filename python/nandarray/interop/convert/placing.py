"""The place of an export: made in private, whole, and with no more rights than the store.

An unfinished file or directory lies in a folder beside its destination, with a name that cannot be guessed, which only
this user may enter. At the end it takes the destination's name. Users who may not read the store may not read it.

A file is replaced by a file, a directory only if it is one of Zarr, and the store from which the data come never.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nandarray.array.rights import shared_mode
from nandarray.array.store import Store
from nandarray.errors import InvalidError, MediaError, NandarrayError, StoreExistsError, refuse_homeless, refuse_special

__all__ = ["placed"]

#: Files of which a directory of Zarr has one, in formats 2 and 3.
_OF_ZARR = ("zarr.json", ".zgroup", ".zarray")


@contextmanager
def placed(path: Path, store: Store) -> Iterator[Path]:
    """Give the path at which a file or a directory is to be made, which then takes the place of ``path``.

    The caller has refused a path that exists, unless it may be replaced. Afterwards nothing else is left; after an
    error, nothing is left and ``path`` is as it was. An error names ``path``, never the hidden folder.
    """
    refuse_homeless(path)
    _refuse(path, store)
    with _named(path):
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    with _named(path, folder):
        yield from _made(path, folder, store)


def _made(path: Path, folder: Path, store: Store) -> Iterator[Path]:
    """Give the path within the folder, move what was made there to its place, and remove the folder."""
    try:
        made, old = folder / path.name, folder / f"{path.name}.old"
        yield made
        _restrict(made, store)
        _refuse(path, store)
        if path.is_dir() and not path.is_symlink():
            path.rename(old)  # a directory cannot be replaced in one step
        with _back(old, path):
            os.replace(made, path)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _named(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Let errors of the file system name a path instead of what lies in a hidden folder."""
    try:
        yield
    except OSError as error:
        if isinstance(error, NandarrayError) or folder is not None and folder.name not in str(error):
            raise
        said = error.strerror or os.strerror(error.errno or errno.EIO)
        if folder is not None:
            said = said.replace(f"{folder.name}/", "")
        raise MediaError(error.errno or errno.EIO, said, str(path)) from error


@contextmanager
def _back(old: Path, path: Path) -> Iterator[None]:
    """Put a directory back if the new one could not take its place."""
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            old.rename(path)
        raise


def _refuse(path: Path, store: Store) -> None:
    refuse_special(path)
    if not path.exists():
        return
    if path.is_dir() and not any((path / name).exists() for name in _OF_ZARR):
        raise StoreExistsError(17, "is a directory and none of Zarr: it is not replaced", str(path))
    if os.path.exists(store.path) and os.path.samefile(path, store.path):
        raise InvalidError(f"{path} is the store itself")


def _restrict(made: Path, store: Store) -> None:
    """Take from a new file or directory the rights of those who may not read the store."""
    state = store._file_state()
    if state is None:
        return
    shared, mode = shared_mode(made, state), stat.S_IMODE(made.stat().st_mode)
    for those in (stat.S_IRWXG, stat.S_IRWXO):
        if not shared & those & (stat.S_IRGRP | stat.S_IROTH):
            mode &= ~those
    os.chmod(made, mode)
