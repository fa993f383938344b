"""Sessions: every kernel against NumPy, schedulers against a serial run, dependencies, errors, bounds on memory."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
import warnings

import numpy as np
import pytest

import nandarray
from nandarray.array.session import register_scheduler
from nandarray.programs import kernels
from nandarray.programs.nest import Read, Update, Write, screens

SCHEDULERS = ("inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order")
m = n = 0  # names of extents in the kernels below


@nandarray.kernel
def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
    for i in screens(n):
        y[i] = factor * x[i]


@nandarray.kernel
def add_rows(x: Read["f8", "m", "n"], total: Update["f8", "m", "n"]):
    for i in screens(m):
        for j in range(n):
            total[i, j] += x[i, j]


FOREVER = """
#include <nandarray.h>
ND_PROGRAM("name": "forever", "kind": "kernel", "inputs": [{"name": "x", "dtype": "f8", "shape": ["n"]}],
           "outputs": [{"name": "y", "dtype": "f8", "shape": ["n"]}],
           "microblocks": [{"entry": "spin", "screens": "y", "reads": {"x": "rows"}, "writes": {"y": "rows"}}])
ND_MICROBLOCK(spin) { volatile uint64_t *turn = (volatile uint64_t *)args; for (;;) (void)*turn; }
"""

STRAY = """
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

MEET = (
    STRAY.replace("stray", "meet")
    .replace('"reads": {"x": "rows"}', '"reads": {"x": "all"}')
    .replace("y[i] = x[(i + 1) % n]", "y[(i + 1) % n] = x[i]")
)


@pytest.fixture
def store(tmp_path):
    with nandarray.open(tmp_path / "s.nda", mode="w") as made:
        yield made


def sample(name: str, size: int, rng: np.random.Generator) -> tuple[dict, dict]:
    """Inputs and scalars of a ready-made kernel."""

    def f(*shape: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, shape).astype("f4")

    a, b, c = size, size + 3, size + 5
    made = {
        "atax": {"A": (a, b), "x": (b,)},
        "bicg": {"A": (a, b), "p": (b,), "r": (a,)},
        "conv2d": {"A": (a, b)},
        "mvt": {"A": (a, a), "y1": (a,), "y2": (a,), "x1": (a,), "x2": (a,)},
        "adi": {"A": (a, a), "X": (a, a), "B": (a, a)},
        "fdtd": {"fict": (4,), "ex": (a, b), "ey": (a, b), "hz": (a, b)},
        "gesummv": {"A": (a, a), "B": (a, a), "x": (a,)},
        "syrk": {"A": (a, b), "C": (a, a)},
        "mm3": {"A": (a, b), "B": (b, c), "C": (c, a), "D": (a, b)},
        "covar": {"data": (c, a)},
        "gemm": {"A": (a, b), "B": (b, c), "C": (a, c)},
        "mm2": {"A": (a, b), "B": (b, c), "C": (c, a), "D": (a, a)},
        "syr2k": {"A": (a, b), "B": (a, b), "C": (a, a)},
        "corr": {"data": (c, a)},
    }
    if name in made:
        inputs = {key: f(*shape) for key, shape in made[name].items()}
        if name == "adi":
            inputs["A"] *= np.float32(0.1)
        return inputs, {"step": 2} if name == "fdtd" else {}
    if name == "nn":
        return {"points": f(a, 2), "query": f(2)}, {}
    if name == "bfs":
        ends = [rng.integers(0, a, 3) for _ in range(a)]
        first = np.cumsum([0, *map(len, ends)]).astype("i4")
        edges = np.concatenate(ends).astype("i4")
        return {"first": first, "edges": edges, "start": np.array([0], "i4")}, {}
    if name == "nw":
        letters = rng.integers(65, 69, (a, 12)).astype("u1")
        return {"sequences": letters, "query": rng.integers(65, 69, 9).astype("u1")}, {}
    if name == "path":
        return {"grids": rng.integers(0, 9, (a, 6, 7)).astype("i4")}, {}
    text = rng.choice(np.frombuffer(b"ab cd  e\n", "u1"), (a, 33))
    return {"text": text}, {}


@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_ready_made_kernel_is_the_same_as_in_numpy(store, name):
    rng = np.random.default_rng(18)
    inputs, scalars = sample(name, 13, rng)
    made, kernel = kernels.get(name), kernels.twin(name)
    extra = {"k": 3} if name == "nn" else {}
    wanted = kernel(**inputs, **scalars, **extra)
    if name == "nn":
        store.create("nearest", shape=(3,), dtype="i8")
    for number, form in enumerate(("interpreted", "translated", "native")):
        given = dict(inputs)
        if name == "bfs":
            store[f"level{number}"] = np.zeros(13, "i4")
            outputs = {"level": store[f"level{number}"]}
        elif name == "nn":
            outputs = {"nearest": store["nearest"]}
        elif name == "nw":
            outputs = {}
        else:
            outputs = {}
        with store.session("intra-out-of-order", workers=3) as session:
            found = session.submit(made, inputs=given, outputs=outputs, scalars=scalars, form=form).result()
        if outputs:
            found = next(iter(outputs.values()))[:]
        if isinstance(wanted, dict):
            for key, value in wanted.items():
                np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=1e-5)
        else:
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)
    if name not in ("bfs", "nn"):
        made.check(screens=4, scalars=scalars, **inputs)


def test_microblocks_are_those_of_table_2():
    serial = [
        (len(table["microblocks"]), sum(one["screens"] == 1 for one in table["microblocks"]))
        for table in (kernels.get(name).table for name in kernels.NAMES[:14])
    ]
    wanted = [
        (2, 1),
        (2, 1),
        (1, 0),
        (1, 0),
        (3, 1),
        (3, 1),
        (1, 0),
        (1, 0),
        (3, 1),
        (3, 1),
        (1, 0),
        (2, 1),
        (1, 0),
        (4, 1),
    ]
    assert serial == wanted


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_random_graphs_give_the_results_of_a_serial_run(store, scheduler):
    rng = np.random.default_rng(7)
    arrays = [rng.integers(0, 9, (6, 4)).astype("f8") for _ in range(5)]
    for number, array in enumerate(arrays):
        store[f"a{number}"] = array
    with store.session(scheduler, workers=3) as session:
        jobs = []
        for _ in range(40):
            source, to = rng.choice(5, 2, replace=False)
            arrays[to] = arrays[to] + arrays[source]
            jobs.append(session.submit(add_rows, inputs={"x": store[f"a{source}"]}, outputs={"total": store[f"a{to}"]}))
    assert all(job.done() for job in jobs)
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(store[f"a{number}"][:], array)


def test_dependencies_by_job_and_by_name_are_kept(store):
    x = np.arange(50.0)
    with store.session(workers=2) as session:
        late = session.submit(scale, inputs={"x": x}, scalars={"factor": 3}, after=["first"])
        assert late.progress().state == "submitted"
        first = session.submit(scale, inputs={"x": x}, scalars={"factor": 2}, name="first")
        third = session.submit(scale, inputs={"x": x}, scalars={"factor": 4}, after=[late, first])
        np.testing.assert_array_equal(third.result(), 4 * x)
        assert late.done()
        assert first.done()


def test_a_circle_is_an_error_that_names_its_kernels(store):
    x = np.arange(5.0)
    with store.session(workers=1) as session:
        a = session.submit(scale, inputs={"x": x}, scalars={"factor": 3}, name="a", after=["b"])
        with pytest.raises(nandarray.CircleError, match="b -> a -> b"):
            session.submit(scale, inputs={"x": x}, scalars={"factor": 3}, name="b", after=["a"])
        with pytest.raises(nandarray.CircleError, match="c -> c"):
            session.submit(scale, inputs={"x": x}, scalars={"factor": 3}, name="c", after=["c"])
        session.submit(scale, inputs={"x": x}, scalars={"factor": 3}, name="b").result()
        assert a.result()[1] == 3


def test_a_kernel_that_touches_what_it_does_not_map_fails_alone(store):
    stray = nandarray.Kernel.from_c(STRAY)
    store["y"] = np.zeros(100)
    x = np.arange(100.0)
    with store.session(workers=4) as session:
        bad = session.submit(stray, inputs={"x": x}, outputs={"y": store["y"]})
        good = session.submit(scale, inputs={"x": x}, outputs={"y": store["y"]}, scalars={"factor": 2})
        with pytest.raises(nandarray.ProgramFailedError, match=r"a load at byte \d+ of x, which it does not map"):
            bad.result()
        good.result()
        behind = session.submit(scale, inputs={"x": x}, scalars={"factor": 2}, after=[good])
        behind.result()
    np.testing.assert_array_equal(store["y"][:], 2 * x)
    with pytest.raises(nandarray.ProgramError, match=r"reads byte \d+ of x; its table says"):
        stray.check(x=x)
    with pytest.raises(nandarray.ProgramError, match="writes byte|conflict"):
        nandarray.Kernel.from_c(MEET).check(x=x)


def test_a_kernel_that_never_ends_is_limited_or_cancelled(store):
    spin = nandarray.Kernel.from_c(FOREVER)
    x = np.arange(8.0)
    with store.session(workers=2) as session:
        limited = session.submit(spin, inputs={"x": x}, instructions=100_000)
        with pytest.raises(nandarray.ProgramFailedError, match="more than 100000 instructions"):
            limited.result()
        endless = session.submit(spin, inputs={"x": x})
        other = session.submit(scale, inputs={"x": x}, scalars={"factor": 2}, after=[endless])
        with pytest.raises(TimeoutError):
            endless.result(timeout=0.05)
        assert endless.cancel()
        with pytest.raises(nandarray.CancelledError):
            endless.result()
        with pytest.raises(nandarray.DependencyError):
            other.result()
        assert session.submit(scale, inputs={"x": x}, scalars={"factor": 2}).result()[7] == 14


def test_the_end_of_another_kernel_does_not_end_a_wait(store):
    spin = nandarray.Kernel.from_c(FOREVER)
    x = np.arange(8.0)
    with store.session("inter-dynamic", workers=2) as session:
        endless = session.submit(spin, inputs={"x": x}, form="translated")
        found = []

        def other() -> None:
            found.append(session.submit(scale, inputs={"x": x}, scalars={"factor": 2}).result())

        later = [threading.Timer(0.05 * turn, other) for turn in range(1, 6)]
        for timer in later:
            timer.start()
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="has not ended"):
            endless.result(timeout=0.5)
        waited = time.monotonic() - begun
        for timer in later:
            timer.join()
        assert endless.cancel()
    assert waited >= 0.5
    assert [value[1] for value in found] == [2] * 5


def test_a_submission_that_does_not_fit_says_why(store):
    x = np.arange(5.0)
    total = np.ones((2, 5))
    store["x"] = x
    with store.session(workers=1) as session:
        for call, said in [
            (lambda: session.submit(lambda: None), "must be a kernel, as nandarray.kernel makes one"),
            (lambda: session.submit(scale, inputs={"z": x}), "scale has no section 'z'; it has x, y"),
            (lambda: session.submit(scale, inputs={"x": x, "y": x}), "y begins as zeros"),
            (lambda: session.submit(scale, outputs={"x": store["x"]}), "x is an input; name its array among"),
            (lambda: session.submit(scale, scalars={"factor": 1}), "section x is read, and has no array"),
            (lambda: session.submit(scale, inputs={"x": x}), "scalar factor is missing"),
            (lambda: session.submit(scale, inputs={"x": x}, scalars={"f": 1}), "scale has no scalar 'f'"),
            (lambda: session.submit(scale, inputs={"x": x.astype("f4")}), "dtype float64; the array has float32"),
            (lambda: session.submit(add_rows, inputs={"x": total, "total": total.T}), "total has shape"),
            (
                lambda: session.submit(scale, inputs={"x": x}, instructions=0),
                "instructions must be a number, at least 1",
            ),
            (
                lambda: session.submit(scale, inputs={"x": x}, application=-1),
                "application must be a number, at least 0, not -1",
            ),
            (
                lambda: session.submit(scale, inputs={"x": x}, deadline=-5),
                "deadline and work must be numbers, at least 0, not -5 and 0",
            ),
            (
                lambda: session.submit(scale, inputs={"x": x}, scalars={"factor": 1}, after=[3]),
                "after must have jobs and names",
            ),
            (lambda: scale.check(z=x), "scale has no section 'z'; it has x, y"),
            (lambda: scale.check(y=x), "section x is read, and has no array"),
            (lambda: scale.check(x=x), "scalar factor is missing"),
            (lambda: scale.check(x=x, scalars={"f": 1}), "scale has no scalar 'f'"),
            (lambda: store.session("fifo"), 'no scheduler "fifo"; there are inter-static, inter-dynamic'),
        ]:
            with pytest.raises(nandarray.InvalidError, match=said):
                call()


def test_tables_that_lie_are_refused():
    with pytest.raises(nandarray.CompileError, match="would meet in y"):

        @nandarray.kernel
        def shifted(x: Read["f8", "n"], y: Write["f8", "n"]):
            for i in screens(n - 1):
                y[i + 1] = x[i]

    with pytest.raises(nandarray.ProgramError, match="nd_kernel_other"):
        nandarray.Kernel.from_c(STRAY.replace('"entry": "next"', '"entry": "other"'))
    with pytest.raises(nandarray.ProgramError, match="its screens would meet in y"):
        nandarray.Kernel.from_c(STRAY.replace('"writes": {"y": "rows"}', '"writes": {"y": "all"}'))


def test_inputs_stay_in_the_store_and_are_mapped_by_windows(store):
    x = np.arange(40_000.0).reshape(400, 100)
    store["x"] = x
    with store.session(workers=2, window=32_000, memory=2_000_000) as session:
        job = session.submit(add_rows, inputs={"x": store["x"], "total": np.ones((400, 100))})
        np.testing.assert_array_equal(job.result(), x + 1)
        assert job.progress().screens == 10  # 320,000 bytes in windows of 32,000
        with pytest.raises(nandarray.InvalidError, match="needs .* bytes of memory; the session has 2000000"):
            session.submit(add_rows, inputs={"x": np.ones((4000, 100)), "total": np.ones((4000, 100))})


def test_threads_and_tasks_share_a_session(store):
    x = np.arange(30.0)
    found = {}

    with store.session("inter-dynamic", workers=2) as session:

        def work(number: int) -> None:
            jobs = [session.submit(scale, inputs={"x": x}, scalars={"factor": number}) for _ in range(5)]
            found[number] = [job.result() for job in jobs]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def later() -> list[np.ndarray]:
            jobs = [session.submit(scale, inputs={"x": x}, scalars={"factor": f}) for f in (1, 2)]
            return [await job for job in jobs]

        one, two = asyncio.run(later())
    for number, results in found.items():
        assert all((result == number * x).all() for result in results)
    assert (two == 2 * one).all()


class NoScheduler:
    """A scheduler in Python that gives no worker anything; tests replace one of its methods."""

    splits = True

    def __init__(self, workers):
        pass

    def arrived(self, number, application, priority, deadline, work):
        pass

    def ready(self, kernel, screens):
        pass

    def next(self, worker):
        return None

    def ended(self, kernel):
        pass


def raises(*_arguments):
    raise ZeroDivisionError("none")


@pytest.mark.parametrize("accelerator", [False, True])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"next": raises}, "next: ZeroDivisionError: none"),
        ({"next": lambda self, worker: 999}, "a scheduler names kernels that arrived"),
        ({"next": lambda self, worker: "0"}, "next: TypeError"),
        ({"arrived": raises}, "arrived: ZeroDivisionError"),
        ({"ready": raises}, "ready: ZeroDivisionError"),
    ],
)
def test_a_scheduler_that_fails_fails_its_kernels_and_not_the_store(store, accelerator, changed, said):
    name = f"fails-{sorted(changed)[0]}-{said}-{accelerator}"
    register_scheduler(name, type("Failing", (NoScheduler,), changed))
    store["x"] = x = np.arange(100.0)
    failed = pytest.raises(nandarray.ProgramFailedError, match=said)
    with failed, store.session(name, workers=2, accelerator=accelerator) as session:
        session.submit(scale, inputs={"x": store["x"]}, scalars={"factor": 2.0}).result(30)
    with store.session("inter-dynamic", accelerator=accelerator) as session:
        job = session.submit(scale, inputs={"x": store["x"]}, scalars={"factor": 2.0})
        np.testing.assert_array_equal(job.result(30), 2 * x)


@pytest.mark.parametrize("accelerator", [False, True])
def test_a_scheduler_that_cannot_be_made_is_bad_input(store, accelerator):
    name = f"unmade-{accelerator}"
    register_scheduler(name, type("Unmade", (NoScheduler,), {"__init__": raises}))
    with pytest.raises(nandarray.InvalidError, match=f'"{name}" could not be made: ZeroDivisionError'):
        store.session(name, accelerator=accelerator)
    with pytest.raises(nandarray.InvalidError, match="needs a name"):
        register_scheduler("", NoScheduler)


def test_a_scheduler_that_gives_no_work_ends_with_its_session(store):
    register_scheduler("idle", NoScheduler)
    with store.session("idle", workers=2) as session:
        job = session.submit(scale, inputs={"x": np.arange(10.0)}, scalars={"factor": 1.0})
        with pytest.raises(TimeoutError):
            job.result(0.1)
    with pytest.raises(nandarray.ProgramFailedError, match="gives no worker anything, and 1 kernels wait"):
        job.result(1)
    with store.session("idle", accelerator=True) as session:
        job = session.submit(scale, inputs={"x": np.arange(10.0)}, scalars={"factor": 1.0})
        with pytest.raises(nandarray.InvalidError, match="given to no worker by the scheduler"):
            job.result(1)


def test_the_number_of_workers_is_bounded(store):
    with pytest.raises(nandarray.InvalidError, match="workers = 1000000: a session has at most 1024"):
        store.session("inter-dynamic", workers=10**6)


# It ends when the test says so: a thread that is left behind must not run on beside other tests.
SPINS = FOREVER.replace('"outputs"', '"scalars": [{"name": "word", "dtype": "u8"}], "outputs"').replace(
    "for (;;) (void)*turn;", "while (!*(volatile uint64_t *)(uintptr_t)args->scalars[0]) (void)*turn; return 0;"
)
ENDS = [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # words that such threads read, for as long as there are threads


@pytest.mark.parametrize("raised", [False, True])
def test_a_native_kernel_that_does_not_end_is_named_and_left(tmp_path, monkeypatch, raised: bool) -> None:
    """Nothing can stop it: cancel() does not say that it did, and closing says which one it is."""
    monkeypatch.setattr("nandarray.array.session.PATIENCE_S", 0.3)
    spins, word = nandarray.Kernel.from_c(SPINS, trusted=True), ENDS[raised]
    says = r"leaves behind job 0 \(forever\), in native form"
    with nandarray.open(tmp_path / "s.nda", mode="w") as store:
        session = store.session(workers=2)
        job = session.submit(spins, inputs={"x": np.ones(4)}, scalars={"word": ctypes.addressof(word)})
        try:
            while job.progress().state != "running":
                time.sleep(0.001)
            assert not job.cancel()
            if raised:  # as python -W error has it: the kernel is left all the same
                with warnings.catch_warnings(action="error"), pytest.raises(RuntimeWarning, match=says):
                    session.close(cancel=True)
                session.close(cancel=True)
            else:
                with pytest.warns(RuntimeWarning, match=says):
                    session.close(cancel=True)
            assert not job.done()
        finally:
            word.value = 1


def test_a_kernel_behind_one_that_was_cancelled_fails_whatever_the_timing(tmp_path) -> None:
    with nandarray.open(tmp_path / "s.nda", mode="w") as store, store.session(workers=1) as session:
        spins = session.submit(nandarray.Kernel.from_c(FOREVER), inputs={"x": np.ones(4)})
        early = session.submit(scale, inputs={"x": np.ones(3)}, scalars={"factor": 2}, after=[spins])
        assert spins.cancel()
        with pytest.raises(nandarray.CancelledError):
            spins.result()
        late = session.submit(scale, inputs={"x": np.ones(3)}, scalars={"factor": 2}, after=[spins])
        for job in (early, late):
            with pytest.raises(nandarray.DependencyError, match="depends on kernel 0"):
                job.result()
