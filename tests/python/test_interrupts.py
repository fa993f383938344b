"""Ctrl-C in the command line ends with one line and exit code 130, at any moment; a user's program is left alone.

A signal that a program handles ends no call over the network, unless its handler raises an exception.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
import nandarray.nvme

#: The command as users start it, but for the copy of Python that runs the tests.
COMMAND = [str(Path(sys.executable).with_name("nandarray"))]
MODULE = [sys.executable, "-m", "nandarray"]
LONG = ["replay", "--synthetic", "--device", "tiny", "--requests", "2000000000"]


def interruptible() -> None:
    """Give a child Python's usual handler, also where these tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def imports(pid: int) -> bool:
    """Whether a process has loaded the engine."""
    return "_nandarray" in Path(f"/proc/{pid}/maps").read_text()


def interrupted(command: list[str], *, after: float, loaded: bool) -> tuple[int, str]:
    """Interrupt a command some seconds after it began, or after it loaded the engine."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *LONG], text=True, preexec_fn=interruptible, **pipes) as process:
        until = time.monotonic() + 60
        while loaded and not imports(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, said


@pytest.mark.parametrize("command", [COMMAND, MODULE], ids=["command", "module"])
def test_an_interrupt_is_one_line_from_the_first_import_on(command: list[str]) -> None:
    if not Path(command[0]).exists():
        pytest.skip("the command is not installed beside Python")
    for after in (0.0, 0.2, 5.0) if command is COMMAND else (0.1,):
        assert interrupted(command, after=after, loaded=True) == (130, "nandarray: interrupted\n"), after


def test_a_program_that_imports_the_package_keeps_its_handler() -> None:
    script = "import signal, nandarray; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, preexec_fn=interruptible
    ).stdout
    assert said == "True\n"


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    with subprocess.Popen(
        [*MODULE, "device", "list"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:  # at any moment of its life
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")


# --- Calls over the network -------------------------------------------------------------------------------------------

HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"


@contextlib.contextmanager
def alarms(handler: Any, first_s: float, then_s: float = 0.0) -> Any:
    """Call a handler by a signal's, again and again."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first_s, then_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def served(folder: Path, door: str) -> Any:
    """A store over a door of the network, from a server whose threads get signals, too."""
    key = nandarray.nvme.new_tls_key()
    at = f"unix:{folder / 'door'}" if door == "unix" else "127.0.0.1:0"
    with nandarray.open(folder / "data.nand", "w") as store:
        store["x"] = np.arange(1 << 20, dtype="f4")
        with nandarray.serve(store, at, tls={HOST: key} if door == "tls" else None) as server:
            options = {"hostnqn": HOST, "tls": key} if door == "tls" else {}
            with nandarray.nvme.connect(server.url, **options) as remote:
                yield server, remote


@pytest.mark.parametrize("door", ["tcp", "unix", "tls"])
def test_signals_do_not_end_calls_over_the_network(tmp_path: Path, door: str) -> None:
    told = []
    with served(tmp_path, door) as (_, remote), alarms(lambda *_: told.append(1), 0.001, 0.001):
        until = time.monotonic() + 2
        while time.monotonic() < until or len(told) < 100:
            assert remote["x"].reduce("max") == (1 << 20) - 1
            assert remote["x"][100:200_000].sum(dtype="f8") == np.arange(100, 200_000).sum()


SERVER = """
import sys, nandarray
with nandarray.open(sys.argv[1]) as store, nandarray.serve(store, tls={sys.argv[2]: sys.argv[3]}) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def test_what_a_handler_raises_ends_a_call_over_the_network(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "data.nand", "w") as store:
        store["x"] = np.arange(1 << 20, dtype="f4")
    key, refused = nandarray.nvme.new_tls_key(), []

    def raises(*_: Any) -> None:
        try:
            remote["x"][1]
        except nandarray.InvalidError as error:
            refused.append(str(error))
        raise KeyboardInterrupt

    command = [sys.executable, "-c", SERVER, str(tmp_path / "data.nand"), HOST, key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        with nandarray.nvme.connect(server.stdout.readline().strip(), hostnqn=HOST, tls=key) as remote:
            array = remote["x"]
            assert array[5] == 5
            server.send_signal(signal.SIGSTOP)
            os.waitpid(server.pid, os.WUNTRACED)  # until all of its threads have stopped
            try:
                with alarms(raises, 0.5), pytest.raises(KeyboardInterrupt):
                    array[7:100_000]
            finally:
                server.send_signal(signal.SIGCONT)
            assert refused == ["a signal's handler must not use a connection while it interrupts a call of one"]
            with pytest.raises(nandarray.ClosedError, match="is lost"):
                array[0]
        server.stdin.close()
        assert server.wait(60) == 0
