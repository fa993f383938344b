"""Outputs of a run of programs that arrive over a connection while the run goes on.

They come in pieces, in order, by the numbers of outputs among all that the run writes or gives back; what was not sent
when the run ended is in its reply. Not here: the commands (``tcp/run_fetch.rs`` of ``crates/nandarray-nvme``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nandarray.errors import ClosedError

__all__ = ["ArrivingOutputs"]


class ArrivingOutputs:
    """The bytes of a run's outputs that have arrived."""

    def __init__(self) -> None:
        self._arrived: dict[int, bytearray] = {}

    def take(self, output: int, data: bytes) -> None:
        """Append the next bytes of an output."""
        self._arrived.setdefault(output, bytearray()).extend(data)

    def whole(self, output: int, rest: memoryview) -> np.ndarray[Any, Any]:
        """Return an output, whose last bytes are those of the reply."""
        arrived = self._arrived.pop(output, bytearray())
        arrived.extend(rest)
        return np.frombuffer(arrived, np.uint8)

    def lost(self, error: ClosedError) -> ClosedError:
        """Return the error of a connection that broke, with what is right of the outputs."""
        parts = [f"the first {len(data)} bytes of output {number}" for number, data in sorted(self._arrived.items())]
        told = f"{' and '.join(parts)} had arrived, and are right" if parts else "no byte of the outputs had arrived"
        return ClosedError(f"{error}; {told}")
