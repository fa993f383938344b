"""Array requests and their replies as messages: text with pieces of data behind it, refusals, and the room they take.

Not here: the requests themselves, and their order (:mod:`nandarray.nvme.source`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.door import described
from nandarray.errors import BY_KIND, NandarrayError, ProgramFailedError

if TYPE_CHECKING:
    from nandarray.nvme.outputs import ArrivingOutputs

__all__ = ["RequestRoom", "described_array", "piece_of", "put_piece", "refusal", "value_of"]


class RequestRoom:
    """Bytes that requests in progress may have together; further ones wait until some have ended."""

    def __init__(self, most: int) -> None:
        self._most, self._held, self._home = most, 0, os.getpid()
        self._freed = threading.Condition()

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold some of them; any number if nothing is in progress."""
        if os.getpid() != self._home:  # a thread that stayed behind may hold them for ever: the connection says so
            yield
            return
        with self._freed:
            self._freed.wait_for(lambda: not self._held or self._held + size <= self._most)
            self._held += size
        try:
            yield
        finally:
            with self._freed:
                self._held -= size
                self._freed.notify_all()


def put_piece(pieces: list[bytes], data: bytes) -> list[int]:
    """Put data behind the others; return its place."""
    first = sum(map(len, pieces))
    pieces.append(data)
    return [first, len(data)]


def value_of(told: dict[str, Any], data: memoryview, arriving: ArrivingOutputs | None, number: int) -> Any:
    """Return output ``number`` of a run: a number of elements, or bytes."""
    if "elements" in told:
        return told["elements"]
    rest = piece_of(told["bytes"], data)
    return np.frombuffer(rest, np.uint8).copy() if arriving is None else arriving.whole(number, rest)


def piece_of(piece: Sequence[int], data: memoryview) -> memoryview:
    """Return a piece of the data behind a reply's text."""
    first, size = piece
    if not 0 <= first <= first + size <= len(data):
        raise ValueError(f"{size} bytes at {first} of {len(data)} bytes of data")
    return data[first : first + size]


def refusal(told: Any) -> NandarrayError:
    """Return the error that a reply tells."""
    try:
        made = BY_KIND.get(told["kind"], NandarrayError)(str(told["text"]))
        if isinstance(made, ProgramFailedError) and told["failed"] is not None:
            place = told["failed"]
            made.stage, made.pc, made.caller, made.task = (place[key] for key in ("stage", "pc", "caller", "task"))
            made.noted = None if place["noted"] is None else tuple(place["noted"])
    except (KeyError, TypeError) as error:
        return NandarrayError(f"the drive: an error that is none: {error}")
    return made


def described_array(told: dict[str, Any], fill: memoryview) -> dict[str, Any]:
    """Return a description as the native store gives it, with the array's number."""
    known = described(told, bytes(fill), "the drive")
    if not isinstance(known.get("array"), int):
        raise NandarrayError("the drive: a description of an array without its number")
    return known
