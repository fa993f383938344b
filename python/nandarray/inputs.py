"""Files that a user names, opened for reading: a pipe, a device or a folder is refused at once.

Opening a pipe would wait for a process at its other end, and reading a device may never end. Every path from outside
whose file Python reads comes through here; the engine opens stores by the same rule.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from nandarray.errors import InvalidError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_input(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading, in binary.

    Raises
    ------
    InvalidError
        The path is a pipe, a socket, a device or a folder, or none that a file can have.
    OSError
        The file cannot be opened.
    """
    name = os.fspath(path)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a process at its other end.
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a zero byte
        raise InvalidError(f"{name!r} is the path of no file: {error}") from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        raise InvalidError(f"{name}: it must be a file, not {_KINDS.get(kind, 'something else')}")
    return os.fdopen(handle, "rb")


def read_input(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file; raises as :func:`open_input` does."""
    with open_input(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Return a text in UTF-8, with or without a byte-order mark.

    Raises as :func:`open_input` does, and an InvalidError if the file is no such text; ``what`` says what it should be.
    """
    try:
        return read_input(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{os.fspath(path)} must be {what}, in UTF-8; byte {error.start} is not") from None
