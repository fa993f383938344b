"""The first line of ``nandarray serve``, before the modules that it needs are loaded, which takes most of a second.

The line goes to standard error where a reader waits for it: a terminal, or a service manager's log. Scripts that read
the server's output get what they got. This file uses nothing of the package but :mod:`nandarray.interrupts`, and
nothing of NumPy's.
"""

from __future__ import annotations

import os
import sys

from nandarray.interrupts import is_command_line

LINE = "nandarray: serve: starting\n"
#: Environment variables by which a service manager says that it reads the log, or waits for notice.
MANAGERS = ("JOURNAL_STREAM", "NOTIFY_SOCKET")
#: Options with which ``serve`` starts no server.
_NO_SERVER = ("--status", "--kill", "--reload", "--help", "-h")


def announce() -> None:
    """Write the line, if this process is the command line and is to serve."""
    if not is_command_line() or sys.argv[1:2] != ["serve"] or any(one.startswith(_NO_SERVER) for one in sys.argv):
        return
    try:
        if os.isatty(2) or any(name in os.environ for name in MANAGERS):
            os.write(2, LINE.encode())
    except OSError:  # of a closed descriptor: it has no reader
        return


announce()
