# mypy: ignore-errors
# ruff: noqa: D103, F821, N803, N806
"""The fourteen PolyBench kernels of FlashAbacus' Table 2, with its numbers of microblocks and serial microblocks.

Single precision, as in PolyBench's versions for accelerators, which are the ones with a two-dimensional convolution.
Loops that the table counts as serial, and Table 2 does not name, are those that the text allows to be: transposed
products (ATAX, BICG), the sweep over columns (ADI), sources and means (FDTD, COVAR, CORR), the last product (2MM, 3MM).
FDTD is one step in time. COVAR and CORR compute both triangles, since a screen writes only its own rows.
"""

from __future__ import annotations

import numpy as np

from nandarray.programs.nest import Read, Temporary, Update, Write, screens


def atax(A: Read["f4", "m", "n"], x: Read["f4", "n"], t: Temporary["f4", "m"], y: Write["f4", "n"]):
    for i in screens(m):
        s = 0.0 * x[0]
        for j in range(n):
            s += A[i, j] * x[j]
        t[i] = s
    for i in range(m):
        for j in range(n):
            y[j] += A[i, j] * t[i]


def bicg(A: Read["f4", "m", "n"], p: Read["f4", "n"], r: Read["f4", "m"], q: Write["f4", "m"], s: Write["f4", "n"]):
    for i in screens(m):
        v = 0.0 * p[0]
        for j in range(n):
            v += A[i, j] * p[j]
        q[i] = v
    for i in range(m):
        for j in range(n):
            s[j] += A[i, j] * r[i]


def conv2d(A: Read["f4", "m", "n"], B: Write["f4", "m", "n"]):
    for i in screens(1, m - 1):
        for j in range(1, n - 1):
            B[i, j] = (
                0.2 * A[i - 1, j - 1]
                + 0.5 * A[i - 1, j]
                - 0.8 * A[i - 1, j + 1]
                - 0.3 * A[i, j - 1]
                + 0.6 * A[i, j]
                - 0.9 * A[i, j + 1]
                + 0.4 * A[i + 1, j - 1]
                + 0.7 * A[i + 1, j]
                + 0.1 * A[i + 1, j + 1]
            )


def mvt(
    A: Read["f4", "n", "n"],
    y1: Read["f4", "n"],
    y2: Read["f4", "n"],
    x1: Update["f4", "n"],
    x2: Update["f4", "n"],
):
    for i in screens(n):
        s = x1[i]
        for j in range(n):
            s += A[i, j] * y1[j]
        x1[i] = s
        s = x2[i]
        for j in range(n):
            s += A[j, i] * y2[j]
        x2[i] = s


def adi(A: Read["f4", "n", "n"], X: Update["f4", "n", "n"], B: Update["f4", "n", "n"]):
    for i in screens(n):
        for j in range(1, n):
            X[i, j] = X[i, j] - X[i, j - 1] * A[i, j] / B[i, j - 1]
            B[i, j] = B[i, j] - A[i, j] * A[i, j] / B[i, j - 1]
    for i in screens(n):
        X[i, n - 1] = X[i, n - 1] / B[i, n - 1]
        for j in range(0, n - 2):
            X[i, n - 2 - j] = (X[i, n - 2 - j] - X[i, n - 3 - j] * A[i, n - 3 - j]) / B[i, n - 3 - j]
    for i in range(1, n):
        for j in range(n):
            X[i, j] = X[i, j] - X[i - 1, j] * A[i, j] / B[i - 1, j]
            B[i, j] = B[i, j] - A[i, j] * A[i, j] / B[i - 1, j]
    for j in range(n):
        X[n - 1, j] = X[n - 1, j] / B[n - 1, j]
    for i in range(0, n - 2):
        for j in range(n):
            X[n - 2 - i, j] = (X[n - 2 - i, j] - X[n - 3 - i, j] * A[n - 3 - i, j]) / B[n - 2 - i, j]


def fdtd(
    fict: Read["f4", "t"],
    ex: Update["f4", "m", "n"],
    ey: Update["f4", "m", "n"],
    hz: Update["f4", "m", "n"],
    step: int,
):
    for j in range(n):
        ey[0, j] = fict[step]
    for i in screens(m):
        if i > 0:
            for j in range(n):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for j in range(1, n):
            ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
    for i in screens(m - 1):
        for j in range(n - 1):
            hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def gesummv(A: Read["f4", "n", "n"], B: Read["f4", "n", "n"], x: Read["f4", "n"], y: Write["f4", "n"]):
    for i in screens(n):
        s = 0.0 * x[0]
        t = 0.0 * x[0]
        for j in range(n):
            s += A[i, j] * x[j]
            t += B[i, j] * x[j]
        y[i] = 1.5 * s + 1.2 * t


def syrk(A: Read["f4", "n", "m"], C: Update["f4", "n", "n"]):
    for i in screens(n):
        for j in range(n):
            s = 0.0 * A[0, 0]
            for k in range(m):
                s += A[i, k] * A[j, k]
            C[i, j] = 1.2 * C[i, j] + 1.5 * s


def mm3(
    A: Read["f4", "n", "k"],
    B: Read["f4", "k", "m"],
    C: Read["f4", "m", "l"],
    D: Read["f4", "l", "p"],
    E: Temporary["f4", "n", "m"],
    F: Temporary["f4", "m", "p"],
    G: Write["f4", "n", "p"],
):
    for i in screens(n):
        for h in range(k):
            for j in range(m):
                E[i, j] += A[i, h] * B[h, j]
    for i in screens(m):
        for h in range(l):
            for j in range(p):
                F[i, j] += C[i, h] * D[h, j]
    for i in range(n):
        for h in range(m):
            for j in range(p):
                G[i, j] += E[i, h] * F[h, j]


def covar(
    data: Read["f4", "n", "m"], mean: Temporary["f4", "m"], centred: Temporary["f4", "n", "m"], C: Write["f4", "m", "m"]
):
    for i in range(n):
        for j in range(m):
            mean[j] += data[i, j]
    for j in range(m):
        mean[j] = mean[j] / n
    for i in screens(n):
        for j in range(m):
            centred[i, j] = data[i, j] - mean[j]
    for i in screens(m):
        for h in range(n):
            for j in range(m):
                C[i, j] += centred[h, i] * centred[h, j]
        for j in range(m):
            C[i, j] = C[i, j] / (n - 1)


def gemm(A: Read["f4", "n", "k"], B: Read["f4", "k", "m"], C: Update["f4", "n", "m"]):
    for i in screens(n):
        for j in range(m):
            C[i, j] = 1.2 * C[i, j]
        for h in range(k):
            for j in range(m):
                C[i, j] += 1.5 * A[i, h] * B[h, j]


def mm2(
    A: Read["f4", "n", "k"],
    B: Read["f4", "k", "m"],
    C: Read["f4", "m", "p"],
    T: Temporary["f4", "n", "m"],
    D: Update["f4", "n", "p"],
):
    for i in screens(n):
        for h in range(k):
            for j in range(m):
                T[i, j] += 1.5 * A[i, h] * B[h, j]
    for i in range(n):
        for j in range(p):
            D[i, j] = 1.2 * D[i, j]
        for h in range(m):
            for j in range(p):
                D[i, j] += T[i, h] * C[h, j]


def syr2k(A: Read["f4", "n", "m"], B: Read["f4", "n", "m"], C: Update["f4", "n", "n"]):
    for i in screens(n):
        for j in range(n):
            s = 0.0 * A[0, 0]
            for k in range(m):
                s += A[i, k] * B[j, k] + B[i, k] * A[j, k]
            C[i, j] = 1.2 * C[i, j] + 1.5 * s


def corr(
    data: Read["f4", "n", "m"],
    mean: Temporary["f4", "m"],
    deviation: Temporary["f4", "m"],
    scaled: Temporary["f4", "n", "m"],
    C: Write["f4", "m", "m"],
):
    for i in range(n):
        for j in range(m):
            mean[j] += data[i, j]
    for j in range(m):
        mean[j] = mean[j] / n
    for j in screens(m):
        s = 0.0 * data[0, 0]
        for i in range(n):
            s += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        s = sqrt(s / n)
        deviation[j] = 1.0 if s <= 0.1 else s
    for i in screens(n):
        for j in range(m):
            scaled[i, j] = (data[i, j] - mean[j]) / (sqrt(1.0 * n) * deviation[j])
    for i in screens(m):
        for h in range(n):
            for j in range(m):
                C[i, j] += scaled[h, i] * scaled[h, j]


def _adi(A, X, B):
    X, B, n = X.copy(), B.copy(), len(A)
    for j in range(1, n):
        X[:, j] = X[:, j] - X[:, j - 1] * A[:, j] / B[:, j - 1]
        B[:, j] = B[:, j] - A[:, j] * A[:, j] / B[:, j - 1]
    X[:, n - 1] = X[:, n - 1] / B[:, n - 1]
    for j in range(n - 2):
        X[:, n - 2 - j] = (X[:, n - 2 - j] - X[:, n - 3 - j] * A[:, n - 3 - j]) / B[:, n - 3 - j]
    for i in range(1, n):
        X[i] = X[i] - X[i - 1] * A[i] / B[i - 1]
        B[i] = B[i] - A[i] * A[i] / B[i - 1]
    X[n - 1] = X[n - 1] / B[n - 1]
    for i in range(n - 2):
        X[n - 2 - i] = (X[n - 2 - i] - X[n - 3 - i] * A[n - 3 - i]) / B[n - 2 - i]
    return {"X": X, "B": B}


def _fdtd(fict, ex, ey, hz, step):
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    ey[0] = fict[step]
    ey[1:] -= np.float32(0.5) * (hz[1:] - hz[:-1])
    ex[:, 1:] -= np.float32(0.5) * (hz[:, 1:] - hz[:, :-1])
    hz[:-1, :-1] -= np.float32(0.7) * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return {"ex": ex, "ey": ey, "hz": hz}


def _conv2d(A):
    weights = np.float32([[0.2, 0.5, -0.8], [-0.3, 0.6, -0.9], [0.4, 0.7, 0.1]])
    made = np.zeros_like(A)
    parts = [weights[a, b] * A[a : len(A) - 2 + a, b : A.shape[1] - 2 + b] for a in range(3) for b in range(3)]
    made[1:-1, 1:-1] = sum(parts)
    return made


def _corr(data):
    deviation = data.std(0)
    deviation[deviation <= 0.1] = 1
    scaled = (data - data.mean(0)) / (np.sqrt(np.float32(len(data))) * deviation)
    return scaled.T @ scaled


#: Twins of the kernels in NumPy, by name.
TWINS = {
    "atax": lambda A, x: A.T @ (A @ x),
    "bicg": lambda A, p, r: {"q": A @ p, "s": A.T @ r},
    "conv2d": _conv2d,
    "mvt": lambda A, y1, y2, x1, x2: {"x1": x1 + A @ y1, "x2": x2 + A.T @ y2},
    "adi": _adi,
    "fdtd": _fdtd,
    "gesummv": lambda A, B, x: np.float32(1.5) * (A @ x) + np.float32(1.2) * (B @ x),
    "syrk": lambda A, C: np.float32(1.2) * C + np.float32(1.5) * (A @ A.T),
    "mm3": lambda A, B, C, D: (A @ B) @ (C @ D),
    "covar": lambda data: np.cov(data.T.astype("f8")).astype("f4"),
    "gemm": lambda A, B, C: np.float32(1.2) * C + np.float32(1.5) * (A @ B),
    "mm2": lambda A, B, C, D: np.float32(1.2) * D + np.float32(1.5) * (A @ B) @ C,
    "syr2k": lambda A, B, C: np.float32(1.2) * C + np.float32(1.5) * (A @ B.T + B @ A.T),
    "corr": _corr,
}
