"""Ctrl-C in the command line: one line and exit code 130, from the first import to the last byte of output.

This file is imported before all others of the package. Where the process is the command line, an interrupt ends it at
once as long as modules are loaded, when nothing is open yet. While a command runs, an interrupt is Python's
``KeyboardInterrupt`` (:class:`AsException`), so that stores are closed. A program that imports the package keeps its
own handling.
"""

from __future__ import annotations

import os
import signal
import sys

#: Exit code of a process that was interrupted: 128 and the number of SIGINT.
EXIT_CODE = 130
LINE = "nandarray: interrupted\n"


def is_command_line() -> bool:
    """Whether this process is the ``nandarray`` command, or ``python -m nandarray``."""
    if sys.argv[:1] == ["-m"]:
        module = sys.orig_argv.index("-m") + 1 if "-m" in sys.orig_argv else 0
        return bool(module) and sys.orig_argv[module : module + 1] == ["nandarray"]
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "nandarray"


def _end(_number: int, _frame: object) -> None:
    try:
        os.write(2, LINE.encode())
    finally:
        os._exit(EXIT_CODE)


def watch() -> None:
    """Let an interrupt end the process at once, if it is the command line and interrupts are handled by Python."""
    if is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


class AsException:
    """A context in which an interrupt is a KeyboardInterrupt."""

    def __enter__(self) -> None:
        """Begin it."""
        self._watched = signal.getsignal(signal.SIGINT) is _end
        if self._watched:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_error: object) -> None:
        """End the process at an interrupt again, if it did before."""
        if self._watched:
            signal.signal(signal.SIGINT, _end)


watch()
