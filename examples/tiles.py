"""A tile server's inner loop: many small sub-blocks of a large image, many at a time, each by one command.

The image is stored once as (height, width, 3); a view cuts it into tiles without copying anything, and every request
reads straight into memory that is reused.

Run it as ``python examples/tiles.py [store]``.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray

TILE = 256


async def serve(image: nandarray.Array, requests: list[tuple[int, int]]) -> int:
    """Answer requests side by side; the sum of what was read, as a check."""
    free: asyncio.Queue[np.ndarray] = asyncio.Queue()
    for _ in range(8):
        free.put_nowait(np.empty((TILE, TILE * 3), "u1"))
    # Rows of pixels as rows of bytes: the same elements, two dimensions.
    pixels = image.view((image.shape[0], image.shape[1] * 3))

    async def one(row: int, column: int) -> int:
        memory = await free.get()
        await pixels.read_async((row, column), (TILE, TILE * 3), out=memory)
        free.put_nowait(memory)
        return int(memory.sum(dtype="i8"))

    return sum(await asyncio.gather(*(one(row, column) for row, column in requests)))


def main(path: Path) -> None:
    """Make an image, ask for tiles."""
    picture = np.random.default_rng(0).integers(0, 256, (2048, 3072, 3), "u1")
    with nandarray.open(path, "w") as store:
        image = store.create("picture", data=picture, compression="lz4")
        print(image)
        requests = [(row, column) for row in range(8) for column in range(12)]
        total = asyncio.run(serve(image, requests))
        print(f"{len(requests)} tiles, {'right' if total == picture.sum(dtype='i8') else 'WRONG'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
