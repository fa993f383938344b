"""The network of Table 8.2, trained on digits, quantised and pruned: integer weights, and the integers that NumPy gets.

Digits are scikit-learn's ``load_digits``, 1,797 pictures of 8 x 8 pixels, widened to 20 x 20 in a frame of 28 x 28 as
MNIST's are, with pixels of 0 to 255. Training is Adam in float64 with weights of 8 bits in the forward pass (straight
through), from a seed, in one thread. Pruning sets the smallest weights of each layer to zero and trains on. Nothing is
stored.

Not covered: MNIST itself, which no package of the lab's extras ships; float sums depend on NumPy's BLAS, so another
machine may come to slightly other weights. Results of programs are compared with those of the weights at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CLASSES", "FEATURES", "FILTERS", "SIDE", "Digits", "Quantised", "digits", "train"]

SIDE, FILTERS, CLASSES = 28, 32, 10
_TAPS = 9
_POOLED = (SIDE - 2) // 2
FEATURES = _POOLED * _POOLED * FILTERS
_PIXEL_MOST = 255
_WEIGHT_MOST = 127
_BATCH = 32
_RATE = 2e-3

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Digits:
    """Pictures, (n, 28, 28) int32 of 0 to 255, and the digits that they show, (n,) of 0 to 9."""

    images: _Array
    labels: _Array


@dataclass(frozen=True)
class Quantised:
    """The integers of a network: results are exact in int32.

    ``kernels`` is (9, 32), a row a place of the 3 x 3 kernels, as Keras has them; ``bias`` is (32,). Features lose
    ``shift`` bits. ``dense`` is (5408, 10), rows in the order y, x, filter; ``dense_bias`` is (10,).
    """

    kernels: _Array
    bias: _Array
    shift: int
    dense: _Array
    dense_bias: _Array

    @property
    def zeros(self) -> float:
        """The share of weights that are zero."""
        weights = np.concatenate([self.kernels.ravel(), self.dense.ravel()])
        return float(np.mean(weights == 0))

    def features(self, images: _Array) -> _Array:
        """Return (n, 5408) features: convolution, maximum of 2 x 2, bias, cut at 0, shift."""
        sums = _patches(images.astype(np.int64)) @ self.kernels.astype(np.int64)
        most = np.maximum(sums.max(axis=2) + self.bias, 0)
        found: _Array = (most >> self.shift).reshape(len(images), FEATURES)
        return found

    def values(self, images: _Array) -> _Array:
        """Return (n, 10) values of the classes."""
        found = self.features(images) @ self.dense.astype(np.int64) + self.dense_bias
        assert np.abs(found).max(initial=0) < 1 << 31, "sums fit 32 bits"
        return found.astype(np.int32)

    def accuracy(self, of: Digits) -> float:
        """Return the share of pictures that it names rightly."""
        return float(np.mean(self.values(of.images).argmax(axis=1) == of.labels))

    def words(self) -> _Array:
        """Return all weights in the order in which programs read them, int32."""
        parts = [self.kernels, self.bias, self.dense, self.dense_bias]
        return np.concatenate([part.ravel() for part in parts]).astype(np.int32)


def digits() -> tuple[Digits, Digits]:
    """Return pictures to train on, four in five, and to test with: every fifth."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    found = load_digits()
    wide = _widen(found.images.shape[1], 20)
    images = np.zeros((len(found.images), SIDE, SIDE), np.int32)
    images[:, 4:24, 4:24] = np.rint(wide @ found.images @ wide.T * (_PIXEL_MOST / 16))
    tests = np.arange(len(images)) % 5 == 4
    return (
        Digits(images[~tests], found.target[~tests]),
        Digits(images[tests], found.target[tests]),
    )


def _widen(size: int, to: int) -> _Array:
    """Return the matrix of linear interpolation from ``size`` points to ``to``."""
    at = np.clip((np.arange(to) + 0.5) * size / to - 0.5, 0, size - 1)
    weights: _Array = np.maximum(1 - np.abs(at[:, None] - np.arange(size)), 0)
    return weights


def _patches(images: _Array) -> _Array:
    """Return (n, 169, 4, 9): for each pooled place its four positions, and the nine pixels of each."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    split = windows.reshape(len(images), _POOLED, 2, _POOLED, 2, _TAPS)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(len(images), _POOLED * _POOLED, 4, _TAPS)


def _scale(weights: _Array) -> float:
    return float(np.abs(weights).max()) / _WEIGHT_MOST


class _Training:
    """Weights as they are trained: kernels, bias, dense, dense bias."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.chance = chance
        self.weights = [
            chance.normal(0, np.sqrt(2 / _TAPS), (_TAPS, FILTERS)),
            np.zeros(FILTERS),
            chance.normal(0, np.sqrt(1 / FEATURES), (FEATURES, CLASSES)),
            np.zeros(CLASSES),
        ]
        self.kept: list[_Array | None] = [None] * 4
        self._restart()

    def _restart(self) -> None:
        self.steps = 0
        self.means = [np.zeros_like(one) for one in self.weights]
        self.squares = [np.zeros_like(one) for one in self.weights]

    def prune(self, share: float) -> None:
        """Set the smallest weights of each layer to zero, from now on."""
        for i in (0, 2):
            size = np.abs(self.weights[i])
            kept: _Array = size > np.quantile(size, share)
            self.kept[i] = kept
            self.weights[i] = self.weights[i] * kept
        self._restart()

    def epochs(self, of: Digits, count: int) -> None:
        """Go over all pictures ``count`` times."""
        for _ in range(count):
            order = self.chance.permutation(len(of.labels))
            for at in range(0, len(order), _BATCH):
                chosen = order[at : at + _BATCH]
                self._step(of.images[chosen] / _PIXEL_MOST, of.labels[chosen])

    def _step(self, images: _Array, labels: _Array) -> None:
        rounded = [np.rint(one / _scale(one)) * _scale(one) if one.ndim > 1 else one for one in self.weights]
        kernels, bias, dense, dense_bias = rounded
        patches = _patches(images)
        sums = patches @ kernels
        best = sums.argmax(axis=2)[:, :, None]
        pooled = np.take_along_axis(sums, best, axis=2)[:, :, 0] + bias
        features = np.maximum(pooled, 0).reshape(len(images), FEATURES)
        values = features @ dense + dense_bias
        wrong = np.exp(values - values.max(axis=1, keepdims=True))
        wrong /= wrong.sum(axis=1, keepdims=True)
        wrong[np.arange(len(labels)), labels] -= 1
        wrong /= len(labels)
        back = (wrong @ dense.T).reshape(pooled.shape) * (pooled > 0)
        spread = np.zeros_like(sums)
        np.put_along_axis(spread, best, back[:, :, None], axis=2)
        of_kernels = patches.reshape(-1, _TAPS).T @ spread.reshape(-1, FILTERS)
        self._adam([of_kernels, back.sum(axis=(0, 1)), features.T @ wrong, wrong.sum(axis=0)])

    def _adam(self, gradients: list[_Array]) -> None:
        self.steps += 1
        for i, gradient in enumerate(gradients):
            self.means[i] = 0.9 * self.means[i] + 0.1 * gradient
            self.squares[i] = 0.999 * self.squares[i] + 0.001 * gradient**2
            mean = self.means[i] / (1 - 0.9**self.steps)
            self.weights[i] = self.weights[i] - _RATE * mean / (
                np.sqrt(self.squares[i] / (1 - 0.999**self.steps)) + 1e-8
            )
            kept = self.kept[i]
            if kept is not None:
                self.weights[i] = self.weights[i] * kept

    def quantised(self, of: Digits) -> Quantised:
        """Return integers: weights of 8 bits, features shifted to at most 8 bits on these pictures."""
        kernels, bias, dense, dense_bias = self.weights
        first, second = _scale(kernels), _scale(dense)
        unshifted = Quantised(
            np.rint(kernels / first).astype(np.int32),
            np.rint(bias * _PIXEL_MOST / first).astype(np.int32),
            0,
            np.rint(dense / second).astype(np.int32),
            np.zeros(CLASSES, np.int32),
        )
        shift = max(0, int(unshifted.features(of.images).max()).bit_length() - 8)
        scaled = dense_bias * _PIXEL_MOST / (first * 2**shift * second)
        return Quantised(unshifted.kernels, unshifted.bias, shift, unshifted.dense, np.rint(scaled).astype(np.int32))


def train(pictures: Digits, seed: int, epochs: int, pruned_share: float) -> tuple[Quantised, Quantised]:
    """Train the network, and prune it; return it quantised, and pruned and quantised.

    Training goes over all pictures ``epochs`` times, before and again after pruning, which sets a share of each layer's
    weights to zero. The seed is of the first weights and of the order of the pictures.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # One thread: sums are then the same on any number of processors.
    with threadpool_limits(1):
        training = _Training(seed)
        training.epochs(pictures, epochs)
        whole = training.quantised(pictures)
        training.prune(pruned_share)
        training.epochs(pictures, epochs)
        return whole, training.quantised(pictures)
