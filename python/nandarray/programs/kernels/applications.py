# mypy: ignore-errors
# ruff: noqa: D103, F821, N803, N806
"""FlashAbacus' graph and text applications: nearest neighbour, traversal, sequence search, grid paths, word count.

``nw`` and ``path`` work on many sequences and grids at once, a row of the batch each, so that they have no serial
microblock, as the paper says. ``bfs`` traverses in one serial microblock behind one that prepares; ``nn`` and ``wc``
end with a serial reduction.
"""

from __future__ import annotations

import numpy as np

from nandarray.programs.nest import Read, Temporary, Write, screens


def nn(points: Read["f4", "n", 2], query: Read["f4", 2], d: Temporary["f4", "n"], nearest: Write["i8", "k"]):
    for i in screens(n):
        a = points[i, 0] - query[0]
        b = points[i, 1] - query[1]
        d[i] = sqrt(a * a + b * b)
    for h in range(k):
        best = 0
        for i in range(n):
            if d[i] >= 0.0 and (d[i] < d[best] or d[best] < 0.0):
                best = i
        nearest[h] = best
        d[best] = -1.0


def bfs(
    first: Read["i4", "v1"],
    edges: Read["i4", "e"],
    start: Read["i4", 1],
    queue: Temporary["i4", "v"],
    level: Write["i4", "v"],
):
    for i in screens(v):
        level[i] = -1
    head = 0
    tail = 1
    queue[0] = start[0]
    level[start[0]] = 0
    while head < tail:
        u = queue[head]
        head += 1
        for j in range(first[u], first[u + 1]):
            w = edges[j]
            if level[w] < 0:
                level[w] = level[u] + 1
                queue[tail] = w
                tail += 1


def nw(
    sequences: Read["u1", "n", "m"], query: Read["u1", "q"], row: Temporary["i4", "n", "q"], score: Write["i4", "n"]
):
    for i in screens(n):
        for j in range(q):
            row[i, j] = -j - 1
        for h in range(m):
            diagonal = -h
            left = -h - 1
            for j in range(q):
                above = row[i, j]
                hit = 1 if sequences[i, h] == query[j] else -1
                left = max(diagonal + hit, max(above, left) - 1)
                row[i, j] = left
                diagonal = above
        score[i] = row[i, q - 1]


def path(grids: Read["i4", "g", "rows", "columns"], cost: Temporary["i4", "g", 2, "columns"], best: Write["i4", "g"]):
    for i in screens(g):
        for j in range(columns):
            cost[i, 0, j] = grids[i, 0, j]
        for r in range(1, rows):
            for j in range(columns):
                left = max(j - 1, 0)
                right = min(j + 1, columns - 1)
                least = min(cost[i, (r - 1) % 2, j], min(cost[i, (r - 1) % 2, left], cost[i, (r - 1) % 2, right]))
                cost[i, r % 2, j] = grids[i, r, j] + least
        least = cost[i, (rows - 1) % 2, 0]
        for j in range(columns):
            least = min(least, cost[i, (rows - 1) % 2, j])
        best[i] = least


def wc(text: Read["u1", "n", "width"], words: Temporary["i8", "n"], total: Write["i8", 1]):
    for i in screens(n):
        inside = 0
        count = 0
        for j in range(width):
            letter = 1 if text[i, j] > 32 else 0
            if letter > inside:
                count += 1
            inside = letter
        words[i] = count
    for i in range(n):
        total[0] += words[i]


def _bfs(first, edges, start):
    level = np.full(len(first) - 1, -1, "i4")
    queue = [int(start[0])]
    level[start[0]] = 0
    for u in queue:
        for w in edges[first[u] : first[u + 1]]:
            if level[w] < 0:
                level[w] = level[u] + 1
                queue.append(int(w))
    return level


def _nw(sequences, query):
    scores = []
    for one in sequences:
        row = -np.arange(len(query) + 1)
        for h, letter in enumerate(one):
            new = [-h - 1]
            for j, other in enumerate(query):
                new.append(max(row[j] + (1 if letter == other else -1), row[j + 1] - 1, new[j] - 1))
            row = np.array(new)
        scores.append(row[-1])
    return np.array(scores, "i4")


def _path(grids):
    cost = grids[:, 0].copy()
    for r in range(1, grids.shape[1]):
        around = np.pad(cost, ((0, 0), (1, 1)), mode="edge")
        cost = grids[:, r] + np.minimum(cost, np.minimum(around[:, :-2], around[:, 2:]))
    return cost.min(1)


def _nn(points, query, k):
    return np.argsort(np.sqrt(((points - query) ** 2).sum(1)), kind="stable")[:k]


#: Twins of the kernels in NumPy, by name.
TWINS = {
    "nn": _nn,
    "bfs": _bfs,
    "nw": _nw,
    "path": _path,
    "wc": lambda text: np.array([sum(len(bytes(row).split()) for row in text)]),
}
