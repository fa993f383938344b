"""Batches of node features for training on a graph: neighbours are sampled, their rows are gathered by number.

Each batch's gather runs while the one before is used. With a server (`nandarray serve STORE --shm NAME`) the same class
takes an array of `nandarray.open("shm://NAME")`.

python examples/feature_loader.py [store]
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import nandarray


class FeatureLoader:
    """Yields batches: their nodes, which are seeds and sampled neighbours, and the rows of all of them."""

    def __init__(self, features: Any, offsets: np.ndarray, edges: np.ndarray, batch: int, fan_out: int) -> None:
        self.features, self.offsets, self.edges = features, offsets, edges
        self.batch, self.fan_out, self.chance = batch, fan_out, np.random.default_rng(0)

    def nodes_of(self, seeds: np.ndarray) -> np.ndarray:
        """Return the seeds and `fan_out` neighbours of each, every node once."""
        first, last = self.offsets[seeds], self.offsets[seeds + 1]
        picks = first + (self.chance.random((self.fan_out, len(seeds))) * (last - first)).astype(np.int64)
        return np.unique(np.concatenate([seeds, self.edges[picks[:, last > first]].ravel()]))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.chance.permutation(len(self.offsets) - 1)
        batches = (self.nodes_of(order[i : i + self.batch]) for i in range(0, len(order), self.batch))
        with ThreadPoolExecutor(1) as pool:
            before = None
            for nodes in batches:
                coming = nodes, pool.submit(self.features.gather, nodes)
                if before is not None:
                    yield before[0], before[1].result()
                before = coming
            if before is not None:
                yield before[0], before[1].result()


chance = np.random.default_rng(1)
offsets = np.concatenate([[0], np.cumsum(chance.integers(0, 9, 3000))])
features = chance.random((3000, 32), np.float32)
with nandarray.open(sys.argv[1] if len(sys.argv) > 1 else "graph.nand", mode="w") as store:
    store["features"] = features
    loader = FeatureLoader(store["features"], offsets, chance.integers(0, 3000, offsets[-1]), batch=256, fan_out=4)
    for epoch in range(2):
        rows = [len(nodes) for nodes, found in loader if np.array_equal(found, features[nodes])]
        print(f"epoch {epoch}: {sum(rows)} rows of 32 features in {len(rows)} batches")
