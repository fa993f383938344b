"""Constants of a card and its link: copies, reads of the host's memory by kernels, releases, polls."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np

from .card import Pinned
from .session import Results, Session, Step, u32, u64

__all__ = ["STEPS"]

_LANES = (4, 8, 16)
_WARPS = (1, 8, 64, 512, 2048)
_BATCHES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_ROUNDS = 3
#: Bytes between places of the pointer chase: each is in a line of its own, of the host and of the card.
_CHASE_BYTES = 128


class Guard(ctypes.Structure):
    """The end of a kernel's wait for the host: an abort word, or a deadline."""

    _fields_ = (("abort", ctypes.c_uint64), ("deadline_ns", ctypes.c_uint64))


def _best(session: Session, begin: object) -> float:
    assert callable(begin)
    return min(session.card.timed(begin, session.sizes.limit_s) for _ in range(_ROUNDS))


def _gigabytes(nbytes: int, seconds: float) -> str:
    return f"{nbytes / max(seconds, 1e-9) / 1e9:.2f} GB/s"


def _copies(session: Session) -> Results:
    card, size = session.card, session.sizes.copy_bytes
    pinned, device = card.pinned(size), card.allocate(size)
    there = _best(session, lambda: card.put_later(device, pinned.host, size))
    back = _best(session, lambda: card.get_later(device, pinned.host, size))
    card.release(device)
    card.unpin(pinned)
    return [(_gigabytes(size, there), "-"), (_gigabytes(size, back), "-")]


def _batches(session: Session) -> Results:
    card, size = session.card, session.sizes.copy_bytes
    pinned, device = card.pinned(size), card.allocate(size)
    found = []
    for batch in _BATCHES:
        count = min(size // batch, 4096)

        def begin(batch: int = batch, count: int = count) -> None:
            for i in range(count):
                card.put_later(device + i * batch, pinned.host + i * batch, batch)

        seconds = _best(session, begin)
        found.append((_gigabytes(batch * count, seconds), f"{seconds / count * 1e6:.2f} us a copy"))
    card.release(device)
    card.unpin(pinned)
    return found


def _zero_copy(session: Session) -> Results:
    card, size = session.card, session.sizes.host_bytes
    pinned = card.pinned(size)
    words = pinned.memory.view(np.uint64)
    words[:] = np.arange(len(words))
    found = []
    for lane_bytes in _LANES:
        # The sum of 4-byte words is that of the 8-byte words here: their upper halves are 0.
        expected = int(words.sum())
        for warps in _WARPS:
            with session.words(1) as total:
                parameters = (u64(pinned.device), u64(size), u32(lane_bytes), total.parameter)
                seconds = session.run("read_lanes", warps * 32, *parameters)
                if int(total.get()[0]) != expected:
                    raise ValueError(f"the sum of {size} bytes is {int(total.get()[0])}, not {expected}")
            found.append((_gigabytes(size, seconds), "-"))
    del words
    card.unpin(pinned)
    return found


def _chase(session: Session) -> Results:
    card, steps = session.card, session.sizes.steps
    stride = _CHASE_BYTES // 8
    pinned = card.pinned(session.sizes.host_bytes)
    next_of = pinned.memory.view(np.uint64)
    order = np.random.default_rng(2).permutation(len(next_of) // stride).astype(np.uint64) * np.uint64(stride)
    next_of[order] = np.roll(order, -1)
    at = 0
    for _ in range(steps):
        at = int(next_of[at])
    with session.words(2) as out:
        session.run("chase", 32, u64(pinned.device), u64(steps), out.parameter)
        ended, ns = (int(word) for word in out.get())
    del next_of
    card.unpin(pinned)
    if ended != at:
        raise ValueError(f"the chase ended at {ended}, not at {at}")
    return [(f"{ns / steps:.0f} ns a step", "-")]


def _releases(session: Session) -> Results:
    card, times = session.card, session.sizes.steps
    pinned = card.pinned(4096)
    with session.words(2) as out, session.words(16) as near:
        parameters = (u64(pinned.device), u64(pinned.device + 128), near.parameter, u64(near.at + 64), u32(times))
        session.run("release_cost", 32, *parameters, out.parameter)
        to_system, to_device = (float(word) / times for word in out.get())
    released = int(pinned.memory.view(np.uint32)[32])
    card.unpin(pinned)
    if released != times:
        raise ValueError(f"the last release is {released}, not {times}")
    return [(f"{to_system:.0f} ns", f"st.release.gpu {to_device:.0f} ns")]


def _polls(session: Session) -> Results:
    pinned = session.card.pinned(4096)
    with session.words(2) as out:
        session.run("poll_rate", 32, u64(pinned.device), u64(session.sizes.steps), out.parameter)
        looks, ns = (float(word) for word in out.get())
    session.card.unpin(pinned)
    return [(f"{looks / max(ns, 1) * 1e3:.2f} M/s", f"{ns / looks:.0f} ns a look")]


def _ping_pong(session: Session) -> Results:
    rounds, limit_ns = session.sizes.steps, int(session.sizes.limit_s / 2 * 1e9)
    pinned = session.card.pinned(4096)
    guard = Guard(session.card.abort, limit_ns)
    played: list[int] = []

    def play() -> None:
        played.append(session.host.native.play(pinned.host, pinned.host + 128, rounds, limit_ns))

    player = threading.Thread(target=play)
    player.start()
    with session.words(2) as out:
        addresses = (u64(pinned.device), u64(pinned.device + 128))
        session.run("ping_pong", 32, *addresses, u32(rounds), guard, out.parameter)
        done, ns = (int(word) for word in out.get())
    player.join()
    lone = _lone_player(session, pinned)
    session.card.unpin(pinned)
    if [done] != played or done != rounds:
        raise ValueError(f"{done} of {rounds} rounds, {played} by the host")
    return [(f"{ns / rounds:.0f} ns a round", f"alone it ended after {lone * 1e3:.0f} ms, by its deadline")]


def _lone_player(session: Session, pinned: Pinned) -> float:
    """Seconds until the kernel ends that gets no answer: its deadline is 50 ms."""
    pinned.memory[:] = 0
    with session.words(2) as out:
        guard = Guard(session.card.abort, 50_000_000)
        seconds = session.run(
            "ping_pong", 32, u64(pinned.device), u64(pinned.device + 128), u32(1), guard, out.parameter
        )
        if int(out.get()[0]) != 0:
            raise ValueError("a round without a partner")
    return seconds


def _registration(session: Session) -> Results:
    card, size = session.card, session.sizes.copy_bytes
    memory = np.ones(size + 4096, np.uint8)
    address = (memory.ctypes.data + 4095) // 4096 * 4096
    began = time.perf_counter()
    card.register(address, size)
    there = time.perf_counter() - began
    began = time.perf_counter()
    card.unregister(address)
    back = time.perf_counter() - began
    mib = size / 2**20
    return [(f"{there * 1e6 / mib:.1f} us a MiB", f"ending it {back * 1e6 / mib:.1f} us")]


_LINK = tuple(f"read by kernels, {lane} bytes a lane, {warps} warps" for lane in _LANES for warps in _WARPS)
STEPS = (
    Step("constant", ("copy to the card", "copy from the card"), _copies),
    Step("constant", _LINK, _zero_copy),
    Step("constant", ("pointer chase through the host's memory",), _chase),
    Step("constant", ("ping-pong with a thread of the host",), _ping_pong),
    Step("constant", ("st.release.sys to the host's memory",), _releases),
    Step("constant", ("polls of a completion by one lane",), _polls),
    Step("constant", tuple(f"copies of {batch >> 10} KiB in a row" for batch in _BATCHES), _batches),
    Step("constant", ("cudaHostRegister",), _registration),
)
