"""The ten workloads: right results through the store under both clocks, and what they say of themselves.

Oracles are whole-array computations by other means (SciPy's graph algorithms, convolution and distances, einsum, plain
NumPy loops); they stand in each workload's ``reference``. Hypothesis draws shapes, shapes of blocks and seeds, and
prints them when an example fails.
"""

from __future__ import annotations

import math
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, note, settings

import nandarray
from nandarray_papers.workloads import ASSUMPTIONS, RTX_2080, TABLE_1, Cost, Fetch, Mismatch, Workload
from nandarray_papers.workloads._stencil import Sweep

NAMES = list(TABLE_1)


@st.composite
def sized(draw: st.DrawFn, name: str) -> Workload:
    """A workload of a small size, with blocks of any size that its kernel takes."""
    paper = TABLE_1[name]
    largest = 12 if len(paper.shape) == 3 else 40
    shape = draw(st.tuples(*[st.integers(1, largest)] * len(paper.shape)))
    if paper.square:
        shape = shape[:1] * len(shape)
    kernel = draw(st.tuples(*[st.integers(1, n) for n in shape]))
    if name == "GEMM":
        kernel = kernel[:1] * 2
    kernel = tuple(n if axis in paper.spans else k for axis, (k, n) in enumerate(zip(kernel, shape, strict=True)))
    return type(paper)(shape, kernel, seed=draw(st.integers(0, 2**32)))


class Reader:
    """Reads fetches out of stored operands by one command each, and remembers them."""

    def __init__(self, workload: Workload, store: nandarray.Store) -> None:
        self.fetches: list[Fetch] = []
        self._views = []
        for operand in range(workload.operands):
            array = store.create(f"operand{operand}", workload.shape, workload.dataset.dtype)
            array[...] = workload.make(operand)
            self._views.append(array.view(workload.view))

    def __call__(self, fetch: Fetch) -> np.ndarray:
        self.fetches.append(fetch)
        return self._views[fetch.operand].read(fetch.coordinate, fetch.sub_shape)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(data=st.data())
def test_through_the_store_under_both_clocks(name: str, data: st.DataObject, tmp_path: Path) -> None:
    workload = data.draw(sized(name))
    rounds = data.draw(st.sampled_from([None, 1, 2]))
    note(f"{workload!r}, rounds={rounds}")
    with nandarray.open(tmp_path / "data.nand", mode="w") as store:
        wall = Reader(workload, store)
        found = workload.run(wall, rounds)
    with nandarray.open(device="tiny", mode="w") as store:
        modelled = Reader(workload, store)
        again = workload.run(modelled, rounds)
        assert store.clock.now > 0
    assert wall.fetches == modelled.fetches
    for key, value in found.items():
        np.testing.assert_array_equal(again[key], value, strict=True)
    workload.check(found, workload.reference(*map(workload.make, range(workload.operands)), rounds=rounds))


@pytest.mark.parametrize("name", NAMES)
def test_reads_what_it_says_it_reads(name: str, store: nandarray.Store) -> None:
    workload = TABLE_1[name].at((12, 10, 14) if len(TABLE_1[name].shape) == 3 else (40, 40))
    read = Reader(workload, store)
    rounds = 2
    workload.run(read, rounds)
    one = list(workload.fetches())
    if name == "BFS":  # leaves out bands without a vertex of the frontier
        assert set(read.fetches) <= set(one)
        return
    if name == "GEMM":  # rounds are row panels
        assert read.fetches == one[: rounds * len(one) // workload.blocks[0]]
        return
    if name == "KMeans":  # the first centres are a fetch more
        assert read.fetches.pop(0) == one[0]
        while read.fetches[0] != one[0]:
            read.fetches.pop(0)
    passes = rounds if name in {"SSSP", "KMeans", "PageRank"} else 1
    assert read.fetches == one * passes


@pytest.mark.parametrize("name", NAMES)
def test_at_the_size_of_the_paper(name: str) -> None:
    workload = TABLE_1[name]
    fetches = list(workload.fetches())
    times = {"GEMM": 8, "PageRank": 2}.get(name, 1)
    for operand in range(workload.operands):
        mine = [f for f in fetches if f.operand == operand]
        assert sum(map(workload.elements, mine)) == times * math.prod(workload.shape)
        assert len(set(mine)) * times == len(mine) or name == "PageRank"
        assert max(map(workload.nbytes, mine)) * 2 <= RTX_2080.memory_bytes, "two of them fit, so that stages overlap"
    assert workload.dataset.nbytes > 32e9, "more than the host's memory"
    assert workload.passes >= 1
    assert workload.passes_because
    assert all(text.startswith(f"{name}: ") for text in workload.assumptions)
    assert ASSUMPTIONS


@pytest.mark.parametrize("name", NAMES)
def test_storage_is_the_longest_stage(name: str) -> None:
    """As the paper says of its baseline (section 6.2), at the best bandwidth that it measures, 4.3 GB/s (Figure 9)."""
    workload = TABLE_1[name]
    costs = [workload.kernel_cost(f) for f in workload.fetches()]
    assert sum(c.host_to_device_bytes for c in costs) == sum(map(workload.nbytes, workload.fetches()))
    fetch_ns = sum(map(workload.nbytes, workload.fetches())) / 4.3
    assert sum(map(RTX_2080.kernel_ns, costs)) < fetch_ns
    assert sum(map(RTX_2080.copy_ns, costs)) < fetch_ns


def test_costs_follow_their_derivations() -> None:
    def costs(name: str, index: int) -> Cost:
        workload = TABLE_1[name]
        return workload.kernel_cost(list(workload.fetches())[index])

    assert costs("GEMM", 1).flops == 2 * 8192**3
    assert costs("GEMM", 0).flops == 0
    assert sum(TABLE_1["GEMM"].kernel_cost(f).device_to_host_bytes for f in TABLE_1["GEMM"].fetches()) == 4 * 65536**2
    assert costs("Hotspot", 1).flops == 30 * 4096**2
    assert costs("Conv2D", 0).flops == 68 * 4096**2
    assert costs("KNN", 0).flops == 258 * 65536 * 4096
    assert costs("TTV", 0).flops == 2 * 512**3
    assert costs("TC", 3).device_to_host_bytes == 8 * 16 * 512**2


def test_data_are_shared_as_in_the_paper() -> None:
    names = [w.dataset.name for w in TABLE_1.values()]
    assert len(set(names)) == 7
    for one, other in [("BFS", "SSSP"), ("KMeans", "KNN"), ("TTV", "TC")]:
        a, b = TABLE_1[one].at((16,) * len(TABLE_1[one].shape)), TABLE_1[other].at((16,) * len(TABLE_1[other].shape))
        assert a.dataset == b.dataset
        np.testing.assert_array_equal(a.make(), b.make(), strict=True)


def test_roofline_by_hand() -> None:
    one = Cost(flops=40.3e12, device_bytes=0, precision="fp16_tensor", host_to_device_bytes=12.5e9)
    assert RTX_2080.kernel_ns(one) == 10**9 + 5000
    assert RTX_2080.copy_ns(one) == 10**9
    bound_by_memory = Cost(flops=1, device_bytes=448e9, precision="fp64", host_to_device_bytes=0, launches=0)
    assert RTX_2080.kernel_ns(bound_by_memory) == 10**9


@pytest.mark.parametrize("seed", range(3))
def test_pagerank_is_the_eigenvector(seed: int) -> None:
    print(f"seed {seed}")
    workload = type(TABLE_1["PageRank"])((30, 30), (7, 30), seed=seed)
    links = workload.make()
    for vertex in range(30):  # so that every vertex links to another
        links[vertex, (vertex + 1) % 30] = 1
    rank = workload.run(lambda f: links[f.box(workload.view)], rounds=200)["rank"]
    out = links.sum(axis=1, keepdims=True)
    google = 0.85 * (links / out).T + 0.15 / 30
    values, vectors = np.linalg.eig(google)
    principal = np.real(vectors[:, np.argmax(np.real(values))])
    np.testing.assert_allclose(rank / rank.sum(), principal / principal.sum(), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_kmeans_ends_where_lloyd_ends(seed: int) -> None:
    """Four far apart clouds: every point with its own cloud's centre, which is their mean."""
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    cloud = np.concatenate([np.arange(4), random.integers(0, 4, 60)])
    points = 100.0 * np.eye(8)[:, cloud] + random.random((8, 64))
    workload = type(TABLE_1["KMeans"])(points.shape, (8, 10), seed=seed)
    found = workload.run(lambda f: points[f.box(workload.view)])
    np.testing.assert_array_equal(found["labels"], cloud)
    for k in range(4):
        np.testing.assert_allclose(found["centres"][:, k], points[:, cloud == k].mean(axis=1))


@pytest.mark.parametrize(
    ("shape", "block", "margin"), [((9, 9), (2, 3), 2), ((5, 40), (5, 7), 8), ((33, 17), (8, 8), 3)]
)
def test_a_sweep_gives_what_the_whole_gives(shape: tuple[int, int], block: tuple[int, int], margin: int) -> None:
    from scipy.ndimage import uniform_filter

    data = np.random.default_rng(0).random(shape)

    def blur(arrays: list[np.ndarray]) -> np.ndarray:
        return uniform_filter(arrays[0], 2 * margin + 1, mode="nearest")

    sweep = Sweep(shape, block, margin, operands=1, kernel=blur)
    for y in range(0, shape[0], block[0]):
        for x in range(0, shape[1], block[1]):
            box = (slice(y, min(y + block[0], shape[0])), slice(x, min(x + block[1], shape[1])))
            sweep.add(box, [data[box]])
    np.testing.assert_allclose(sweep.result(), blur([data]), rtol=1e-12)


def test_a_wrong_result_is_told() -> None:
    workload = TABLE_1["TTV"].at((4, 4, 4))
    right = workload.reference(workload.make())
    with pytest.raises(Mismatch, match="off by"):
        workload.check({"y": right["y"] + 1}, right)
    with pytest.raises(Mismatch, match="results"):
        workload.check({}, right)
    with pytest.raises(Mismatch, match="expected"):
        workload.check({"y": right["y"][1:]}, right)
    graph = TABLE_1["BFS"].at((4, 4))
    with pytest.raises(Mismatch, match="1 of 4 differ"):
        graph.check({"level": np.array([0, 1, 1, 1])}, {"level": np.array([0, 1, 2, 1])})


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="takes 3 dimensions"):
        TABLE_1["TTV"].at((4, 4))
    with pytest.raises(ValueError, match="kernel of TTV"):
        TABLE_1["TTV"].at((4, 4, 4), (2, 2))
    for name in ("GEMM", "BFS", "SSSP", "PageRank"):
        with pytest.raises(ValueError, match="square"):
            TABLE_1[name].at((4, 5))
    with pytest.raises(ValueError, match="square blocks"):
        TABLE_1["GEMM"].at((4, 4), (2, 3))
    with pytest.raises(ValueError, match=r"span dimensions \(0,\)"):
        TABLE_1["KNN"].at((4, 4), (2, 2))


def test_the_guide_has_their_fetches_and_passes() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "workloads.md"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in guide.read_text().splitlines()]
    table = {row[0]: row for row in rows if len(row) == 7}
    for name, workload in TABLE_1.items():
        _, _, kernel, fetch, _, passes, _ = table[name]
        assert kernel.replace(" ", "") == workload.table_1
        assert fetch.split(",")[0] == " x ".join(map(str, workload.kernel_shape))
        assert int(passes) == workload.passes
