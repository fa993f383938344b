"""Programs whose inputs have lengths of their own: sequences that see ahead, ready-made ones over sorted arrays.

Each is compared with NumPy, for tasks of any size; what is no sorted array, or no such step, is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from test_programs import same

import nandarray
from nandarray import CompileError, InvalidError, ProgramFailedError, programs

pytest.importorskip("numba")

ALL = 1 << 30
RECORDS = [1, 2, 7, 512, ALL]
SORTED = ("merge", "search", "join")
sequence = nandarray.program.sequence


@sequence(inputs=["int64", "int64"], state="int64", output="int64", ahead=1, trusted=True)
class merged:
    """All elements of two sorted arrays in order."""

    def step(state, a, b, out):
        if a.size and (not b.size or a[0] <= b[0]):
            out[0] = a[0]
            return 1, 1, 0
        out[0] = b[0]
        return 1, 0, 1


PAIR = {"least": "int64", "n": "int64"}


@sequence(
    inputs=["int64", "int16", "int64"], state="int64", output=PAIR, ahead={"x": 3, "y": 2, "z": 1}, room=2, trusted=True
)
class odd:
    """Takes by what it sees of three inputs, writes up to two records, and one at its end."""

    def step(state, x, y, z, out):
        state[0] += 1
        seen = x.size + y.size + z.size
        out[0].least, out[0].n = min(x.sum(), 3) if x.size else -1, seen
        wrote = 0 if z.size and z[0] % 3 == 0 else 1
        if y.size == 2 and y[1] > y[0]:
            out[1].least, out[1].n = y[1], state[0]
            wrote = 2
        took_x = min(x.size, 1 + state[0] % 3)
        took_z = z.size if state[0] % 4 or not wrote else 0
        return wrote, took_x, min(y.size, 1), took_z

    def end(state, out):
        out[0].least, out[0].n = -5, state[0]
        return 1


def oddly(x: Any, y: Any, z: Any) -> list[tuple[int, int]]:
    """The same in Python."""
    found, at, steps = [], [0, 0, 0], 0
    while any(place < len(one) for place, one in zip(at, (x, y, z), strict=True)):
        a, b, c = x[at[0] : at[0] + 3], y[at[1] : at[1] + 2], z[at[2] : at[2] + 1]
        steps += 1
        first = (int(min(a.sum(), 3)) if a.size else -1, a.size + b.size + c.size)
        wrote = [] if c.size and c[0] % 3 == 0 else [first]
        if b.size == 2 and b[1] > b[0]:
            wrote = [first, (int(b[1]), steps)]
        found += wrote
        at[0] += min(a.size, 1 + steps % 3)
        at[1] += min(b.size, 1)
        at[2] += c.size if steps % 4 or not wrote else 0
    return [*found, (-5, steps)]


@sequence(inputs="float64", state="float64", output="float64", ahead=3)
class smoothed:
    """Means of an element and the two behind it, as far as there are."""

    def step(state, x, out):
        out[0] = x.mean()
        return 1, 1


@nandarray.program.filter(inputs="int64")
def even(x):
    return x % 2 == 0


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def drawn(seed: int, *, most: int = 900) -> tuple[Any, Any]:
    """Two sorted arrays of different lengths, one of them empty now and then."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, most, 2) * rng.choice([0, 1, 1, 1], 2)
    return tuple(np.sort(rng.integers(0, int(rng.choice([3, 300, 1 << 40])), n)) for n in lengths)


@pytest.mark.parametrize("records", RECORDS)
def test_inputs_have_their_own_lengths(store: Any, records: int) -> None:
    for seed in range(4):
        a, b = drawn(seed, most=200 if records < 7 else 900)
        store.create("a", data=a)
        store.create("b", data=b)
        size = {"task_bytes": 8 * records, "threads": 3}
        found = store["a"].offload(merged, store["b"], **size)
        np.testing.assert_array_equal(found, np.sort(np.r_[a, b]), err_msg=f"seed {seed}")
        for name in SORTED:
            found = store["a"].offload(programs.get(name, dtype="int64"), store["b"], **size)
            (wanted,) = programs.twin(name, dtype="int64")(a, b)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} seed {seed}")
        places = store["b"].offload(programs.get("lookup", dtype="int64"), a, right=True, **size)
        np.testing.assert_array_equal(places, np.searchsorted(a, b, "right"), err_msg=f"seed {seed}")
        del store["a"], store["b"]


@pytest.mark.parametrize("records", RECORDS)
def test_a_step_sees_the_same_wherever_tasks_end(store: Any, records: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, z = (rng.integers(0, 9, rng.integers(0, 150)) for _ in range(2))
        y = rng.integers(0, 9, rng.integers(0, 90)).astype("i2")
        store.create("x", data=x)
        run = store["x"].offload(odd, y, z, task_bytes=8 * records, threads=2)
        assert run.tolist() == oddly(x, y, z), f"seed {seed}"
        del store["x"]
    store.create("x", data=np.arange(10.0))
    means = store["x"].offload(smoothed, task_bytes=8 * records)
    assert means.tolist() == [*np.arange(1.0, 9), 8.5, 9]


@pytest.mark.parametrize("form", ["interpreted", "translated", "native"])
@pytest.mark.parametrize("name", SORTED)
def test_each_form_and_each_dtype(name: str, form: str) -> None:
    for dtype in ("uint8", "int32", "float32", "float64"):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            a, b = (np.sort(rng.integers(0, 200, n).astype(dtype)) for n in rng.integers(0, 5000, 2))
            if a.dtype.kind == "f":
                a, b = (np.sort(np.r_[one, np.nan, -0.0, 0.0, np.inf, np.nan].astype(dtype)) for one in (a, b))
            program, twin = programs.get(name, dtype=dtype), programs.twin(name, dtype=dtype)
            for scalars in [{}, {"right": True}] if name == "search" else [{}]:
                (wanted,) = twin(a, b, **scalars)
                for size in (64, 4096, 1 << 20):
                    run = nandarray.offload(program, [a, b], scalars, task_bytes=size, form=form)
                    assert same(run.result, wanted), f"{name} {dtype} seed {seed} size {size}"


def test_inputs_that_other_programs_give(store: Any) -> None:
    a, b = drawn(11)
    store.create("a", data=a)
    store.create("b", data=b)
    merge = programs.get("merge", dtype="int64")
    for size in (8, 56, 4096):
        evens = [even.on(store[name]).using(task_bytes=size) for name in "ab"]
        step = merge.on(*evens).using(task_bytes=2 * size)
        kept = np.sort(np.r_[a, b])
        np.testing.assert_array_equal(nandarray.offload(step, threads=3).result, kept[kept % 2 == 0])
        # All of one input before any of the other: what waits is held.
        last = merge.on(evens[0], merged.on(store["a"], np.full(3, 1 << 50))).using(task_bytes=size)
        wanted = np.sort(np.r_[a[a % 2 == 0], a, np.full(3, 1 << 50)])
        np.testing.assert_array_equal(nandarray.offload(last, threads=2).result, wanted)


def test_on_a_modelled_device() -> None:
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 4, "compute.clock": "1 GHz"})
    a, b = drawn(12, most=9000)
    with nandarray.open(device=device, mode="w") as store:
        store["a"], store["b"] = a, b
        store.flush()
        for name in SORTED:
            found = store["a"].offload(programs.get(name, dtype="int64"), store["b"], task_bytes=10_000)
            np.testing.assert_array_equal(found, programs.twin(name, dtype="int64")(a, b)[0])
        step = programs.get("merge", dtype="int64").on(even.on(store["a"]), even.on(store["b"]))
        kept = np.sort(np.r_[a, b])
        np.testing.assert_array_equal(step.run(), kept[kept % 2 == 0])


def test_room_bounds_a_window_not_the_run(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "data.nand", "w") as store:
        x = np.arange(4_000_000) // 16_000 % 251  # its rows have 24 bytes for each element
        store["x"] = np.sort(x.astype("u1"))
        run = nandarray.offload(
            programs.get("join", dtype="uint8"), [store["x"], np.arange(99, dtype="u1")], task_bytes=ALL
        )
        assert run.account.tasks > 2
        assert run.result.size == int((x < 99).sum())


def test_what_is_not_sorted_is_refused(store: Any) -> None:
    good, bad = np.arange(1000), np.r_[np.arange(500), 3, np.arange(501, 1000)]
    store.create("good", data=good)
    store.create("bad", data=bad)
    for name in SORTED:
        program = programs.get(name, dtype="int64")
        for one, other in (("good", "bad"), ("bad", "good")):
            for size in (8, 4000, 1 << 20):
                with pytest.raises(ProgramFailedError, match="-2: an input is not sorted"):
                    store[one].offload(program, store[other], task_bytes=size)
    with pytest.raises(InvalidError, match="int32"):
        store["good"].offload(programs.get("merge", dtype="int64"), good.astype("i4"))


def test_what_is_no_step_that_sees_ahead_is_refused() -> None:
    def made(ahead: Any = 1, output: Any = "int64", **more: Any) -> Any:
        functions = {"step": more.pop("step", lambda state, a, b, out: (0, 1, 1))}
        given = {"inputs": ["int64", "int64"], "state": "int64", "output": output, "ahead": ahead, **more}
        return sequence(**given)(type("made", (), functions))

    for wrong, says in [
        ({"ahead": 0}, "ahead of a must be an integer from 1 to 65536, not 0"),
        ({"ahead": {"a": 1}}, "ahead must name the inputs a, b, not a"),
        ({"ahead": None, "room": 2}, "ahead must be given, too"),
        ({"room": 1.5}, "room must be an integer from 1 to 65536, not 1.5"),
        ({"bound": {"out": 80}}, "said by room=, not by bound="),
        ({"step": lambda state, a, b: 1}, r"for a step\(state, x, out\)"),
    ]:
        with pytest.raises(InvalidError, match=says):
            made(**wrong)
    for step in (lambda state, a, b, out: 1, lambda state, a, b, out: (1, 1), lambda state, a, b, out: (1, 0.5, 1)):
        with pytest.raises(CompileError, match=r"step\(\) must return 3 integers: wrote, took of a, took of b"):
            _ = made(step=step).elf
    x = np.arange(5)
    for step, says in [
        (lambda state, a, b, out: (0, 0, 0), "took nothing and wrote nothing"),
        (lambda state, a, b, out: (0, 2, 0), "took more of a than it saw"),
        (lambda state, a, b, out: (0, -1, 1), "took more of a than it saw, or less than 0"),
        (lambda state, a, b, out: (2, 1, 1), "wrote more than its room, 1"),
        (lambda state, a, b, out: (0, 1, 1 + int(a[1])), "index 1 is out of bounds for size 1"),
    ]:
        with pytest.raises(ProgramFailedError, match=says):
            nandarray.offload(made(step=step), [x, x])


C = """
#include <nandarray.h>
ND_PROGRAM("name": "takes", "kind": "block", "tasks": "ordered", "state_bytes": 8, INPUTS,
           "outputs": [{"name": "y", "dtype": "int64", "exact": false}], "scalars": [{"name": "n", "dtype": "int64"}])
int64_t nd_block(nd_args *args) {
    args->inputs[0].used = nd_scalar_u64(args, 0);
    return 0;
}
"""
X = '"inputs": [{"name": "x", "dtype": "int64", "ahead": 1}]'


def test_programs_in_c_that_take_what_they_did_not_see(store: Any) -> None:
    store.create("x", data=np.arange(8))
    program = nandarray.Program.from_c(C.replace("INPUTS", X))
    for n, says in [
        (0, "task 0: the program took nothing of its inputs and wrote nothing"),
        (24, "task 0: the program says that it took 24 bytes of input x, of which it saw 16"),
        (12, "task 0: the program took 12 bytes of input x, not whole records of 8"),
    ]:
        with pytest.raises(ProgramFailedError, match=says):
            store["x"].offload(program, n=n, task_bytes=16)
    assert store["x"].offload(program, n=8, task_bytes=16).size == 0
    for inputs, says in [
        (X.replace("1}", '1, "packed": "bitpack"}'), "ahead is for inputs"),
        (X.replace("1}", "-1}"), "ahead must be a number from 0 to 8388608, not -1"),
        (X.replace("]", ', {"name": "z", "dtype": "int64"}]'), "x says ahead: input z must say it, too, or be whole"),
    ]:
        with pytest.raises(nandarray.ProgramError, match=says):
            nandarray.Program.from_c(C.replace("INPUTS", inputs))
    with pytest.raises(nandarray.ProgramError, match='tasks must be "ordered"'):
        nandarray.Program.from_c(C.replace("INPUTS", X).replace('"ordered"', '"any"'))
