"""The network of Figure 8.14: every form computes NumPy's integers; training learns, and pruning prunes."""

from __future__ import annotations

import numpy as np
import pytest

from nandarray_papers.experiments.varve_network import model_rows, run_one
from nandarray_papers.varve.network import CLASSES, FEATURES, FILTERS, SIDE, Digits, Quantised, digits, train

pytest.importorskip("sklearn")


def drawn(seed: int, most: int, kept: float = 1.0) -> Quantised:
    """A network of drawn weights."""
    chance = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], size: int) -> np.ndarray:
        return chance.integers(-size, size + 1, shape).astype(np.int32)

    kernels, dense = draw((9, FILTERS), most), draw((FEATURES, CLASSES), most)
    kernels[chance.random(kernels.shape) >= kept] = 0
    dense[chance.random(dense.shape) >= kept] = 0
    return Quantised(kernels, draw((FILTERS,), 50 * most), 8, dense, draw((CLASSES,), 1000 * most))


@pytest.mark.parametrize("form", ["scalar", "v", "pup", "full", "v-fused", "full-masked"])
def test_every_form_gives_the_values_that_numpy_gives(form: str) -> None:
    pytest.importorskip("ziglang")
    chance = np.random.default_rng(7)
    images = chance.integers(0, 256, (2, SIDE, SIDE)).astype(np.int32)
    images[0, chance.random((SIDE, SIDE)) < 0.7] = 0
    # The widest weights leave full fewer lanes than there are classes.
    for i, (most, kept) in enumerate([(127, 1.0), (127, 0.2), (3000, 1.0)]):
        row = run_one("drawn", drawn(i, most, kept), form, images, 8)
        assert row["cycles"] >= row["cycles_without_waits"] > 0
        assert 0 <= row["efficiency"] <= 1


def test_digits_are_learned_and_pruning_leaves_a_fifth_of_the_weights() -> None:
    learned, tests = digits()
    assert len(learned.labels) + len(tests.labels) == 1797
    assert learned.images.shape[1:] == (SIDE, SIDE)
    assert (learned.images.min(), learned.images.max()) == (0, 255)
    few = Digits(learned.images[:320], learned.labels[:320])
    whole, pruned = train(few, 0, 2, 0.8)
    assert whole.accuracy(tests) > 0.6
    assert pruned.accuracy(tests) > 0.6
    assert whole.zeros < 0.2
    assert pruned.zeros == pytest.approx(0.8, abs=0.02)
    for one in (whole, pruned):
        assert np.abs(one.words()[: 9 * FILTERS]).max() == 127
        assert 127 < one.features(few.images).max() < 256
    rows = model_rows("pruned", pruned, tests.images[:2], [1, 8])
    assert [row["align_bits"] for row in rows] == [1, 8, 1, 8]
    assert rows[0]["over_fixed"] > rows[1]["over_fixed"] > 1
    assert rows[0]["elements_per_cycle"] == pytest.approx(rows[0]["over_fixed"] * 256 / rows[0]["fixed_bits"])
