"""Files and folders that appear when they are whole: made under a hidden name, which no error shows."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from nandarray.errors import MediaError, NandarrayError, refuse_homeless

__all__ = ["whole"]


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a hidden name to make something under; at the end it takes the place of ``path``, after an error it goes."""
    refuse_homeless(path)
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        yield part
        _replace(part, path)
    except OSError as error:
        if isinstance(error, NandarrayError) or part.name not in str(error):
            raise
        said = error.strerror or os.strerror(error.errno or errno.EIO)
        raise MediaError(error.errno or errno.EIO, said.replace(part.name, path.name), str(path)) from error
    finally:
        _remove(part)


def _replace(part: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        old = path.with_name(f".{path.name}.{uuid4().hex[:8]}.old")
        path.rename(old)  # a directory cannot be replaced in one step
        part.rename(path)
        _remove(old)
    else:
        os.replace(part, path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
