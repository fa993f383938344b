"""All errors of the package, as a small tree of exceptions.

Every exception of this package is a :class:`NandarrayError` and also the built-in that fits, so that code which knows
nothing of nandarray still catches it (``KeyError`` for an unknown name, ``OSError`` for a full disk). The tree is cut
by what a handler would do about the error, not by where it arose. ``kind`` is a stable, append-only string for
programs; the native engine raises these classes by ``kind`` through :data:`BY_KIND`, and a test holds both lists equal.

This module does not decide *when* something is wrong; the engine and the indexing code do.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, ClassVar

#: Public in ``nandarray`` itself, all of them.
__all__ = [
    "CircleError",
    "DependencyError",
    "BadIndexError",
    "ChecksumError",
    "BusyError",
    "CancelledError",
    "ChangedError",
    "ClosedError",
    "CommitUnknownError",
    "CompileError",
    "ConflictError",
    "CorruptError",
    "DeniedError",
    "DescriptionError",
    "DoorError",
    "ExistsError",
    "InternalError",
    "InvalidError",
    "LockedError",
    "MalformedLineError",
    "MediaError",
    "NandarrayError",
    "NotAStoreError",
    "NotFoundError",
    "PartError",
    "ProgramError",
    "ProgramFailedError",
    "ProtectedError",
    "ReadOnlyError",
    "ReceiptError",
    "StoreExistsError",
    "StoreFullError",
    "StoreMissingError",
    "UnsupportedVersionError",
    "VolumeMismatchError",
    "WrongKeyError",
]


class NandarrayError(Exception):
    """The root of every exception that nandarray raises on purpose."""

    kind: ClassVar[str] = "error"


class NotFoundError(NandarrayError, KeyError):
    """No array or group has this name."""

    kind = "not-found"

    def __str__(self) -> str:
        # KeyError quotes its argument; a sentence should not come out in quotes.
        return Exception.__str__(self)


class ExistsError(NandarrayError, ValueError):
    """The name is taken, or is a group where an array is needed (or the other way round)."""

    kind = "exists"


class StoreExistsError(NandarrayError, FileExistsError):
    """Mode ``"x"``, or an export, found the file there."""

    kind = "file-exists"

    def __init__(self, *args: object) -> None:
        super().__init__(*((errno.EEXIST, *args) if len(args) == 1 else args))


def refuse_special(path: Path) -> None:
    """Refuse a path at which a device, a pipe or a socket is: a new file would take its place.

    Raises
    ------
    StoreExistsError
        There is one.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StoreExistsError(errno.EEXIST, "is a device, a pipe or a socket, which no file replaces", str(path))


def refuse_homeless(path: Path) -> None:
    """Refuse a path of something new whose folder is not there.

    Raises
    ------
    StoreMissingError
        If it is not there.
    """
    if not path.parent.is_dir():
        raise StoreMissingError(errno.ENOENT, f"there is no such folder to make {path.name!r} in", str(path.parent))


class StoreMissingError(NandarrayError, FileNotFoundError):
    """The mode needs a store, or an import a source, and there is no such file."""

    kind = "file-missing"

    def __init__(self, *args: object) -> None:
        super().__init__(*((errno.ENOENT, *args) if len(args) == 1 else args))


class InvalidError(NandarrayError, ValueError):
    """An argument has a wrong value: a shape, a dtype, a name, an option."""

    kind = "invalid"


class DescriptionError(InvalidError):
    """A device description is wrong; ``problems`` has all that is wrong with it."""

    kind = "description"

    #: Problems, each with ``line`` (or None), ``key``, ``value``, ``what`` is wrong, what is ``allowed``, and the whole
    #: ``text``.
    problems: list[dict[str, Any]]

    def __init__(self, message: str, problems: str = "[]") -> None:
        super().__init__(message, problems)
        self.problems = json.loads(problems)

    def __str__(self) -> str:
        return str(self.args[0])


class DoorError(InvalidError):
    """A store behind a door (a drive, shared memory) cannot do what needs the process with the file."""

    kind = "door"


class VolumeMismatchError(InvalidError):
    """A view's shape does not have as many elements as the array."""

    kind = "volume-mismatch"


class BadIndexError(NandarrayError, IndexError):
    """A coordinate or an index lies outside the array."""

    kind = "out-of-range"


class ReadOnlyError(NandarrayError, OSError):
    """The store was opened with mode ``"r"``."""

    kind = "read-only"

    def __init__(self, *args: object) -> None:
        super().__init__(*((errno.EROFS, *args) if len(args) == 1 else args))


class ProtectedError(ReadOnlyError):
    """The rules of a served store let this host not write the array, or make one of this name."""

    kind = "protected"


class LockedError(NandarrayError, OSError):
    """Another process, or another store object of this one, holds the store."""

    kind = "locked"

    def __init__(self, *args: object) -> None:
        super().__init__(*((errno.EWOULDBLOCK, *args) if len(args) == 1 else args))


class StoreFullError(NandarrayError, OSError):
    """The capacity or the disk is used up; the command that met this changed nothing."""

    kind = "full"

    def __init__(self, *args: object) -> None:
        super().__init__(*((errno.ENOSPC, *args) if len(args) == 1 else args))


class MediaError(NandarrayError, OSError):
    """The operating system reported an error while reading or writing the file."""

    kind = "media"


class DeniedError(MediaError, PermissionError):
    """A store of objects refuses a request: credentials are missing, wrong, or do not allow it."""

    kind = "denied"

    def __init__(self, *args: object) -> None:
        told = (
            "the store of objects refuses the request; credentials come from the environment (AWS_ACCESS_KEY_ID and "
            "the like) or with storage=, a store of obstore or a file system of fsspec that has them"
        )
        super().__init__(*((errno.EACCES, told, *args) if len(args) == 1 else args))


class ChangedError(NandarrayError, OSError):
    """An object far away was replaced, deleted or enlarged since it was opened; opening it again gives the new one."""

    kind = "changed"


class CorruptError(NandarrayError, OSError):
    """The file holds something that no version of this program wrote: damage, truncation."""

    kind = "corrupt"


class ChecksumError(CorruptError):
    """A page's bytes do not match their checksum; names array, building block and offset."""

    kind = "checksum"


class PartError(CorruptError):
    """A part of a store of parts is missing, damaged, or another one; names the part and what cannot be read of it."""

    kind = "part"


class NotAStoreError(NandarrayError, OSError):
    """The file exists and is not a nandarray store."""

    kind = "not-a-store"


class UnsupportedVersionError(NandarrayError, OSError):
    """The store was written by a newer program in a format that this one does not know."""

    kind = "version"


class WrongKeyError(NandarrayError, ValueError):
    """An encrypted array was opened with a wrong key, or with none."""

    kind = "wrong-key"


class ClosedError(NandarrayError, ValueError):
    """The store, or the array's store, is closed; or the array was deleted."""

    kind = "closed"


class BusyError(NandarrayError, RuntimeError):
    """A command cannot be taken: too many are in flight, or it would wait for ever for others.

    Nothing of it was done.
    """

    kind = "busy"


class ConflictError(NandarrayError, RuntimeError):
    """A transaction on a store of parts met another one, committed since it began; nothing of it was committed.

    Attributes
    ----------
    array : str
        The array that both changed.
    ours, theirs : tuple or None
        The box that this transaction wrote and the one that the other wrote: first coordinates, and those behind the
        last. None where something other than elements was changed.
    version : int
        The version that has the other's changes.
    """

    kind = "conflict"
    array: str = ""
    ours: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    theirs: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    version: int = 0


class CommitUnknownError(NandarrayError, OSError):
    """A commit on a store of parts may have made a version or not: the folder could not be read when it was looked for.

    Committing again, with the same transaction or store, finds the version if it is there, and makes it once.

    Attributes
    ----------
    version : int
        The version that may be there.
    commit : str
        Its ``commit``, by which ``versions()`` shows it.
    """

    kind = "commit-unknown"
    version: int = 0
    commit: str = ""


class ReceiptError(NandarrayError, RuntimeError):
    """Elements that workers wrote cannot be had: their parts are lost, or held by processes that do not answer.

    Attributes
    ----------
    boxes : dict
        By name of the array the boxes that have to be written again: first coordinates, and those behind the last.
    """

    kind = "receipt"
    boxes: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]

    def __init__(self, message: str, boxes: Any = None) -> None:
        super().__init__(message)
        self.boxes = boxes or {}


class CancelledError(NandarrayError, RuntimeError):
    """A command in flight was cancelled before it began."""

    kind = "cancelled"


class CircleError(InvalidError):
    """Kernels of a session would wait for each other; the message names them."""

    kind = "circle"


class DependencyError(NandarrayError, RuntimeError):
    """A kernel did not run, since one that it depends on is not done."""

    kind = "dependency"


class InternalError(NandarrayError, RuntimeError):
    """A fault of nandarray itself: a broken invariant in the engine or the model. Please report it.

    The store object takes no more commands. Closing it raises this once and releases its lock; opening it again gives
    what was flushed.
    """

    kind = "internal"


class MalformedLineError(NandarrayError, ValueError):
    """A line of delimited text cannot be read as its table's columns say.

    Attributes
    ----------
    array : str
        The array that holds the text, or the file.
    line : int
        The line, from 1; 0 if it is not known.
    field : int or None
        The field, from 0, if it is one.
    """

    kind = "malformed-line"
    array: str = ""
    line: int = 0
    field: int | None = None


class ProgramError(InvalidError):
    """A near-data program cannot be used: no RISC-V ELF, another version of the interface, wrong metadata."""

    kind = "program"


class CompileError(InvalidError):
    """A near-data program does not compile; ``diagnostics`` says what is wrong where, ``output`` has it as text."""

    kind = "compile"

    #: Messages, each with ``file``, ``line``, ``column`` (0 if not known), ``severity`` and ``text``.
    diagnostics: list[dict[str, Any]]
    output: str

    def __init__(self, message: str, *, diagnostics: list[dict[str, Any]] | None = None, output: str = "") -> None:
        super().__init__(message)
        self.diagnostics = diagnostics or []
        self.output = output


class ProgramFailedError(NandarrayError, RuntimeError):
    """A program beside the data did what it may not, returned an error or took too long; its outputs do not count.

    Attributes
    ----------
    task : int or None
        The task in which it failed.
    stage : int or None
        Number of the program that failed among several, in the order in which they were run.
    pc : int or None
        The program counter, where it is known.
    caller : int or None
        An address in the call that led there, if the program counter is outside of the program's code.
    location : nandarray.Location or None
        The function there, or in the caller, and the line of its source, as far as the program has notes of that.
    noted : tuple of int or None
        Two numbers that the program noted beside the error that it returned; of an index out of range the index and
        the size.
    """

    kind = "execution"
    task: int | None = None
    stage: int | None = None
    pc: int | None = None
    caller: int | None = None
    location: Any = None
    noted: tuple[int, int] | None = None


def _tree(cls: type[NandarrayError]) -> dict[str, type[NandarrayError]]:
    found = {cls.kind: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


#: Stable ``kind`` string -> exception class; the native engine raises through it.
BY_KIND: dict[str, type[NandarrayError]] = _tree(NandarrayError)
