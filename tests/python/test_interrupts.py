"""Ctrl-C in the command line ends with one line and exit code 130, at any moment; a user's program is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
