"""Signals to a server's loop."""

import os
import signal
import subprocess
import sys
import threading
import time

from nandarray.cli.signals import Signals, Told


def test_a_signal_at_any_moment_of_a_wait_is_taken() -> None:
    """Thousands of them, between any two steps: a handler that needs a lock of its own thread would stop for good."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    over = threading.Event()

    def storm() -> None:
        while not over.is_set():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.00003)

    with Signals(rereads=True) as signals:
        thread = threading.Thread(target=storm)
        thread.start()
        until, taken = time.monotonic() + 1, 0
        while time.monotonic() < until:
            taken += signals.wait(0.00001) is Told.REREAD
        over.set()
        thread.join()
        while signals.wait(0.01) is not None:
            pass
        assert taken > 100
        assert signals.wait(0) is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait(10) is Told.END
    assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP))


STUCK = """
import os, signal, threading
from nandarray.cli import signals
signals._SERVER_SECONDS = 0.5
with signals.Signals(rereads=False) as one:
    os.kill(os.getpid(), signal.SIGTERM)
    assert one.wait(10) is signals.Told.END
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


def test_a_server_that_cannot_end_is_ended_and_says_where_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'File "<string>", line 10' in done.stderr
