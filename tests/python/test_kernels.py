"""The ready-made kernels: equal to their twins under each scheduler, the paper's mixes, counted instructions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import nandarray
from nandarray.programs import kernels
from nandarray.programs.kernels.samples import extents, input_bytes, sample, size_of
from nandarray_papers import flashabacus
from nandarray_papers.flashabacus import workloads

SCHEDULERS = ("inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order")
TABLE2 = [one.kernel for one in flashabacus.WORKLOADS]


@cache
def grown(name: str) -> flashabacus.Growth:
    return flashabacus.growth(name, (16, 32, 48, 64, 96))


def wanted(name: str, given) -> dict[str, np.ndarray]:
    """Return the twin's results by name."""
    fixed = {"k": given.shapes["nearest"][0]} if name == "nn" else {}
    made = kernels.twin(name)(**given.inputs, **given.scalars, **fixed)
    return made if isinstance(made, dict) else {given.results[0]: made}


def same(name: str, found: dict[str, np.ndarray], given) -> None:
    """Compare results: integers exactly, floats as sums of another order may differ."""
    twin = wanted(name, given)
    assert set(found) == set(twin) == set(given.results)
    for key, value in twin.items():
        assert found[key].shape == given.shapes[key]
        if found[key].dtype.kind in "iu":
            np.testing.assert_array_equal(found[key], value, err_msg=f"{name}: {key}")
        else:
            np.testing.assert_allclose(found[key], value, rtol=3e-4, atol=2e-5, err_msg=f"{name}: {key}")


@pytest.fixture
def store(tmp_path):
    with nandarray.open(tmp_path / "k.nda", mode="w") as made:
        yield made


def submit(store, session, names: list[str], size: int, *, form: str, target: str = "rv64"):
    """Submit a kernel for each name, with data of its own; return jobs with their data and arrays of outputs."""
    jobs = []
    for number, name in enumerate(names):
        given = sample(name, size, seed=number)
        outputs = {}
        if name in ("bfs", "nn"):  # an extent of their result follows from no input
            result = given.results[0]
            dtype = next(one["dtype"] for one in kernels.get(name).sections if one["name"] == result)
            outputs[result] = store.create(f"{name}/{form}{number}", shape=given.shapes[result], dtype=dtype)
        kernel = kernels.get(name) if target == "rv64" else nandarray.Kernel(kernels.get(name).source, target=target)
        job = session.submit(kernel, inputs=given.inputs, outputs=outputs, scalars=given.scalars, form=form)
        jobs.append((name, given, job, outputs))
    return jobs


def results(job, given, outputs) -> dict[str, np.ndarray]:
    found = job.result()
    if outputs:
        return {key: array[:] for key, array in outputs.items()}
    return found if isinstance(found, dict) else {given.results[0]: found}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_kernel_equals_its_twin_under_each_scheduler(store, name, scheduler):
    with store.session(scheduler, workers=3) as session:
        translated = submit(store, session, [name, name], 14, form="translated")
        for _, given, job, outputs in translated + submit(store, session, [name], 33, form="native"):
            same(name, results(job, given, outputs), given)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_kernel_equals_its_twin_on_32_bits(store, name):
    with store.session("intra-out-of-order", workers=3) as session:
        for form in ("interpreted", "translated"):
            for _, given, job, outputs in submit(store, session, [name], 14, form=form, target="rv32"):
                same(name, results(job, given, outputs), given)


@pytest.mark.parametrize("name", kernels.NAMES)
@pytest.mark.parametrize("screens", [1, 5])
def test_a_kernel_touches_what_its_table_says(name, screens):
    given = sample(name, 11)
    # An extent of the results of bfs and nn follows from no input.
    results = {key: np.zeros(given.shapes[key]) for key in given.results} if name in ("bfs", "nn") else {}
    kernels.get(name).check(screens=screens, scalars=given.scalars, **{**given.inputs, **results})


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_mixes_give_the_results_of_twins(store, scheduler):
    for mix in flashabacus.MIXES:
        with store.session(scheduler, workers=6) as session:
            for name, given, job, outputs in submit(store, session, flashabacus.instances(mix), 9, form="native"):
                same(name, results(job, given, outputs), given)


def test_mixes_are_those_of_table_2():
    assert [len(mix) for mix in flashabacus.MIXES.values()] == [6, 6, 6, 6, 5, *[6] * 9]
    assert flashabacus.MIXES["MX1"] == ("atax", "bicg", "conv2d", "mvt", "syrk", "mm3")
    assert flashabacus.MIXES["MX14"] == ("mvt", "adi", "fdtd", "gesummv", "gemm", "corr")
    assert len(flashabacus.instances("MX1")) == 24
    assert flashabacus.instances("atax") == ["atax"] * 6
    assert tuple(TABLE2) == kernels.NAMES[:14]
    assert workloads.MIXES["MX1"] == ("ATAX", "BICG", "2DCON", "MVT", "SYRK", "3MM")
    assert workloads.MIXES["MX12"] == ("2DCON", "MVT", "ADI", "FDTD", "GESUM", "GEMM")
    assert sorted(len(one.mixes) for one in flashabacus.WORKLOADS) == [3, 4, 4, 4, 4, 5, 5, 5, 7, 8, 8, 8, 9, 9]
    with pytest.raises(nandarray.InvalidError, match="no workload 'MX15'; there is MX1"):
        flashabacus.instances("MX15")


@pytest.mark.parametrize("paper", flashabacus.WORKLOADS, ids=lambda one: one.kernel)
def test_sizes_and_microblocks_are_those_of_table_2(paper):
    microblocks = kernels.get(paper.kernel).table["microblocks"]
    assert len(microblocks) == paper.microblocks
    assert sum(one["screens"] == 1 for one in microblocks) == paper.serial
    wanted_bytes = paper.input_MB << 20
    assert input_bytes(paper.kernel, size_of(paper.kernel, wanted_bytes)) == pytest.approx(wanted_bytes, rel=2e-4)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_sample_has_the_shapes_and_bytes_that_it_says(name):
    given = sample(name, 16, seed=3, square=True)
    assert given.input_bytes == input_bytes(name, 16)
    again = sample(name, 16, seed=3, square=True)
    for key, array in given.inputs.items():
        assert array.shape == given.shapes[key]
        np.testing.assert_array_equal(array, again.inputs[key])
    assert kernels.get(name).shapes(given.shapes) == list(given.shapes.values())


def test_samples_that_cannot_be_are_refused():
    with pytest.raises(nandarray.InvalidError, match="the size of a sample must be at least 4, not 3"):
        extents("gemm", 3)
    with pytest.raises(nandarray.InvalidError, match="there is no kernel 'lu'"):
        sample("lu", 9)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_counted_run_gives_the_twins_results(name):
    counted = flashabacus.count(name, 16, seed=5)
    same(name, counted.results, sample(name, 16, seed=5, square=True))
    assert sum(counted.microblocks.values()) == counted.total
    entries = {one["entry"] for one in kernels.get(name).table["microblocks"]}
    assert entries <= set(counted.microblocks) <= {*entries, ""}
    assert 5 < counted.load_store < 60


@pytest.mark.parametrize("name", TABLE2)
def test_counts_are_polynomials_of_the_size(name):
    found = grown(name)
    assert found.error == 0
    cubic = {"syrk", "mm3", "covar", "gemm", "mm2", "syr2k", "corr"}
    assert (found.polynomials["total"][3] > 0) == (name in cubic)
    # Flops of the innermost loop are a lower bound of instructions.
    assert found.at(4096) > 4096 ** (3 if name in cubic else 2)


def test_growth_needs_sizes_that_leave_no_rest():
    with pytest.raises(nandarray.InvalidError, match="multiples of 16"):
        flashabacus.growth("gemm", (16, 32, 50))
    with pytest.raises(nandarray.InvalidError, match="three at least"):
        flashabacus.growth("gemm", (16, 32))
    with pytest.raises(nandarray.InvalidError, match="more than 4194304 bytes"):
        flashabacus.count("mm3", 1024)


def test_data_intensive_kernels_are_those_of_the_paper():
    """Table 2's B/KI part the kernels in two groups; so do ours, at the paper's sizes."""
    data = [one.kernel for one in flashabacus.WORKLOADS if one.bytes_per_ki > 10]
    sizes = {one.kernel: size_of(one.kernel, one.input_MB << 20) for one in flashabacus.WORKLOADS}
    found = {name: grown(name).bytes_per_ki(size) for name, size in sizes.items()}
    assert min(found[name] for name in data) > 100 * max(found[name] for name in found if name not in data)


def test_a_kernel_of_32_bits_is_checked_as_one_of_64() -> None:
    given = sample("atax", 8)
    small = nandarray.Kernel(kernels.get("atax").source, target="rv32")
    small.check(**given.inputs)
    lies = """
#include <nandarray.h>
ND_PROGRAM("name": "stray", "kind": "kernel", "inputs": [{"name": "x", "dtype": "f8", "shape": ["n"]}],
           "outputs": [{"name": "y", "dtype": "f8", "shape": ["n"]}],
           "microblocks": [{"entry": "next", "screens": "y", "reads": {"x": "rows"}, "writes": {"y": "rows"}}])
ND_MICROBLOCK(next) {
    const double *x = ND_SECTION_IN(args, 0, double);
    double *y = ND_SECTION_OUT(args, 0, double);
    int64_t n = (int64_t)args->outputs[0].shape[0];
    for (int64_t i = nd_first(args, n); i < nd_last(args, n); i++) y[i] = x[(i + 1) % n];
    return 0;
}
"""
    with pytest.raises(nandarray.ProgramError, match=r"reads byte \d+ of x; its table says"):
        nandarray.Kernel(lies, target="rv32").check(x=np.arange(16.0))


@pytest.mark.parametrize("form", ["native", "translated", "interpreted"])
def test_an_index_from_bad_data_is_an_error_with_its_place(store, form) -> None:
    """A vertex that is not there, as an edge, as the start and as a row: no memory outside of sections is touched."""
    first, edges = np.array([0, 2, 3, 3], "i4"), np.array([1, 2, 0], "i4")
    good = {"first": first, "edges": edges, "start": np.zeros(1, "i4")}
    spoilt = [
        ("edges", np.array([1, 100_000, 0], "i4"), "index 100000 of level, dimension 0: .* below 3 .*inner loop at 1"),
        ("edges", np.array([1, 2, -5], "i4"), "index -5 of level, dimension 0: it must be at least 0"),
        ("start", np.array([3], "i4"), "index 3 of level"),
        ("first", np.array([0, 2, 4, 4], "i4"), "index 3 of edges, dimension 0: .* below 3"),
    ]
    with store.session() as session:
        level = store.create("level", (3,), "i4")
        for name, values, says in spoilt:
            job = session.submit(kernels.get("bfs"), inputs=good | {name: values}, outputs={"level": level}, form=form)
            with pytest.raises(nandarray.ProgramFailedError, match=says):
                job.result()
        session.submit(kernels.get("bfs"), inputs=good, outputs={"level": level}, form=form).result()
    assert level[...].tolist() == [0, 1, 1]


def test_only_subscripts_that_do_not_follow_from_loops_are_checked() -> None:
    def checks(name: str) -> int:
        return kernels.get(name).source.count("at_ = ")

    assert {name: checks(name) for name in ("conv2d", "mvt", "mm3", "covar", "gemm", "mm2")} == dict.fromkeys(
        ("conv2d", "mvt", "mm3", "covar", "gemm", "mm2"), 0
    )
    assert checks("adi") == 6  # the last column and row, which are there if there are any
    assert "nd_outside" in kernels.get("bfs").source
    assert "nd_outside" not in kernels.get("bfs", checked=False).source
