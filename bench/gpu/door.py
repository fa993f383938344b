"""Queue pairs of a served store, claimed for the kernels of a card, and loops of the host that are native code.

``host.cpp`` is built with the C++ compiler of this machine; it uses the client's header.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from nandarray import gpu

from .card import Card, CardError

__all__ = ["Door", "Host"]

_HERE = Path(__file__).parent
_U64, _U32 = ctypes.c_uint64, ctypes.c_uint32
#: Bytes of an array as a kernel's parameter.
_ARRAY_BYTES = 32
#: Words of the cache's counts: loads, write-backs, refused, lost.
_COUNTS = 4


class Host:
    """The shared library of ``host.cpp``, built into a folder."""

    def __init__(self, folder: Path) -> None:
        path = folder / "host.so"
        flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{gpu.include()}"]
        subprocess.run(["g++", *flags, str(_HERE / "host.cpp"), "-o", str(path)], check=True)
        self.native = ctypes.CDLL(str(path))
        for name in ("door_open", "door_base", "door_bytes", "door_block_bytes", "door_word", "door_counts_offset"):
            getattr(self.native, name).restype = _U64
        for name in ("base", "bytes", "block_bytes", "word", "counts_offset", "tend", "give_up", "close"):
            getattr(self.native, f"door_{name}").argtypes = (_U64,)
        text, address = ctypes.c_char_p, ctypes.c_void_p
        self.native.door_open.argtypes = (text, _U32, _U32, _U32, _U64, text, _U64)
        self.native.door_image.argtypes = (_U64, _U64, _U64, address)
        self.native.door_array.argtypes = (_U64, text, _U32, address)
        self.native.play.argtypes = (address, address, _U32, _U64)
        self.native.play.restype = _U32
        self.native.fill_words.argtypes = (address, _U64, _U64)

    def words(self, first: int, count: int) -> np.ndarray[Any, Any]:
        """Return the words that arrays have from this place on."""
        values = np.empty(count, np.uint64)
        self.native.fill_words(values.ctypes.data, first, count)
        return values


class Door:
    """Claimed queue pairs and a cache, in a block of the card's memory, while this lives.

    Parameters
    ----------
    host : Host
        The library.
    card : Card
        The card.
    region : str
        Name or path of the served region.
    queues, line_bytes, lines : int
        Queue pairs, and the cache: 0 lines take all data of the pairs.
    deadline_s : float
        Until a wait of a kernel ends with a status.
    """

    def __init__(
        self,
        host: Host,
        card: Card,
        region: str,
        *,
        queues: int,
        line_bytes: int,
        lines: int = 0,
        deadline_s: float = 2,
    ) -> None:
        self._native, self._card = host.native, card
        why = ctypes.create_string_buffer(200)
        claim = (queues, line_bytes, lines, int(deadline_s * 1e9))
        self._handle = self._native.door_open(region.encode(), *claim, why, len(why))
        if not self._handle:
            raise CardError(f"{region}: {why.value.decode()}")
        self._base = self._native.door_base(self._handle)
        seen = card.register(self._base, self._native.door_bytes(self._handle))
        image = np.empty(self._native.door_block_bytes(self._handle), np.uint8)
        self._block = card.allocate(image.nbytes)
        self._native.door_image(self._handle, seen, self._block, image.ctypes.data)
        card.put(self._block, image)
        self.word = self._native.door_word(self._handle)

    def array(self, name: str, item_bytes: int = 8) -> Any:
        """Return an array as a kernel's parameter."""
        words = (_U64 * (_ARRAY_BYTES // 8))()
        if not self._native.door_array(self._handle, name.encode(), item_bytes, words):
            raise CardError(f"no array {name}")
        return words

    def tend(self) -> None:
        """Wake the server, or tell kernels that it is gone: called while they run."""
        self._native.door_tend(self._handle)

    def give_up(self) -> None:
        """End the waits of kernels, as the server's end does."""
        self._native.door_give_up(self._handle)

    def loads(self) -> int:
        """Return how many lines kernels have loaded."""
        return int(self._card.get(self._block + self._native.door_counts_offset(self._handle), _COUNTS)[0])

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *error: object) -> None:
        """Give everything back; what a lost card still holds goes with the process."""
        if self._card.lost:
            return
        self._card.unregister(self._base)
        self._card.release(self._block)
        self._native.door_close(self._handle)
