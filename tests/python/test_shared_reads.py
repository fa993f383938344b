"""Reads of served arrays without a server: any index against NumPy, over memory that counts what is read of it.

:class:`Memory` takes the commands of a queue pair. Rows are gathered into fake arrays of torch and CuPy, too, and a
client whose native half is a stand-in says what a server's status means for an array.
"""

from __future__ import annotations

import json
import math
import random
import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nandarray
from nandarray.errors import ClosedError, DoorError, InvalidError, NotFoundError, VolumeMismatchError
from nandarray.gpu import client as client_module
from nandarray.gpu import reads as reads_module
from nandarray.gpu import server as server_module
from nandarray.gpu.gather import gather, library_of, rows_of
from nandarray.gpu.source import RegionSource
from strategies import DTYPES, content, keys, shapes

Array = np.ndarray[Any, Any]


class Memory:
    """The native half of a client: arrays of this process by their numbers."""

    def __init__(self, *arrays: Array) -> None:
        self.arrays = [np.array(one, order="C") for one in arrays]
        self.reads: list[tuple[int, int]] = []
        self.gathers: list[int] = []
        self.writes: list[tuple[int, int]] = []
        self.error: Exception | None = None

    def bytes(self, nsid: int) -> Array:
        if self.error is not None:
            raise self.error
        return self.arrays[nsid - 1].reshape(-1).view(np.uint8)

    def read(self, nsid: int, first: int, memory: Array) -> None:
        whole = self.bytes(nsid)
        assert 0 <= first <= first + len(memory) <= len(whole), f"bytes {first} and {len(memory)} of {len(whole)}"
        self.reads.append((first, len(memory)))
        memory[:] = whole[first : first + len(memory)]

    def gather(self, nsid: int, record: int, numbers: Array, memory: Array) -> None:
        assert numbers.dtype == np.uint64
        assert len(memory) == record * len(numbers)
        records = self.bytes(nsid)[: len(self.bytes(nsid)) // record * record].reshape(-1, record)
        self.gathers.append(len(numbers))
        memory[:] = records[numbers.astype(np.int64)].reshape(-1)

    def write_runs(self, nsid: int, item: int, firsts: Array, values: Array) -> None:
        whole, each = self.bytes(nsid), len(values) // len(firsts)
        assert each % item == 0
        for number, first in enumerate(firsts.tolist()):
            assert first % item == 0
            assert first + each <= len(whole), f"byte {first} and {each} of {len(whole)}"
            self.writes.append((first, each))
            whole[first : first + each] = values[number * each : (number + 1) * each]

    def flush(self, nsid: int) -> None:
        self.bytes(nsid)

    def row(self, nsid: int, *, writable: bool = True) -> Any:
        array = self.arrays[nsid - 1]
        text = nandarray.dtypes.encode(array.dtype)
        return (nsid, f"a{nsid}", text, list(array.shape), array.itemsize, array.nbytes, writable)

    def catalog(self) -> bytes:
        told = []
        for number, array in enumerate(self.arrays, 1):
            facts = {"name": f"a{number}", "shape": array.shape, "dtype": nandarray.dtypes.encode(array.dtype)}
            facts |= {"itemsize": array.itemsize, "building_block": array.shape, "compression": None}
            told.append({**facts, "encrypted": False, "fill": bytes(array.itemsize).hex(), "attrs": '{"k": 1}'})
        return json.dumps(told).encode()

    def rows(self) -> list[Any]:
        return [self.row(number) for number, _ in enumerate(self.arrays, 1)]


def served(array: Array) -> tuple[nandarray.Array, Memory]:
    memory = Memory(array)
    source: Any = RegionSource(types.SimpleNamespace(  # type: ignore[arg-type]
        arrays=memory.rows, catalog=memory.catalog, read=memory.read, gather=memory.gather,
        write_runs=memory.write_runs, flush=memory.flush,
    ), "features", read_only=False)  # fmt: skip
    return nandarray.Store(source, "r+")["a1"], memory


# --- any index --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[(1, 1), (64, 24), (32 << 20, 4096)], ids=["small", "middling", "as it is"])
def bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of bands and gaps, which small arrays would never reach."""
    monkeypatch.setattr(reads_module, "_BAND_BYTES", request.param[0])
    monkeypatch.setattr(reads_module, "_BETWEEN_BYTES", request.param[1])


@pytest.mark.usefixtures("bands")
@given(data=st.data())
def test_any_index_gives_what_numpy_gives(data: st.DataObject) -> None:
    shape = data.draw(shapes(max_dims=4, max_side=7).filter(lambda one: 0 not in one))
    array = content(shape, data.draw(st.sampled_from([one for one in DTYPES if one.itemsize])), 1)
    key = data.draw(keys(shape))
    one, _ = served(array)
    try:
        wanted = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            one[key]
        return
    found = one[key]
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("seed", range(30))
def test_boxes_and_points_read_no_byte_outside(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.randrange(1, 12) for _ in range(rng.randrange(1, 4)))
    array = np.arange(math.prod(shape), dtype="<u4").reshape(shape)
    one, memory = served(array)
    for _ in range(20):
        key: list[Any] = []
        for size in shape:
            start = rng.randrange(size)
            key.append(
                rng.choice(
                    [
                        slice(start, rng.randrange(start, size) + 1, rng.randrange(1, 4)),
                        slice(None, None, rng.choice([1, 2, -1, -3])),
                        start,
                        np.array([rng.randrange(-size, size) for _ in range(rng.randrange(1, 4))]),
                    ]
                )
            )
        if sum(isinstance(part, np.ndarray) for part in key) > 1:
            key = [part if not isinstance(part, np.ndarray) else int(part[0]) for part in key]
        np.testing.assert_array_equal(one[tuple(key)], array[tuple(key)], err_msg=f"seed {seed}: {key}")
    assert memory.reads or memory.gathers


def test_a_part_that_lies_together_is_one_read_of_its_bytes() -> None:
    array = np.arange(6 * 5 * 4, dtype="<f4").reshape(6, 5, 4)
    one, memory = served(array)
    for key, first, size in [
        (np.s_[2], 40, 20),
        (np.s_[1:3], 20, 40),
        (np.s_[2, 1:4], 44, 12),
        (np.s_[2, 3, 1:3], 53, 2),
        (np.s_[...], 0, 120),
        (np.s_[2, 3, 1], 53, 1),
    ]:
        memory.reads.clear()
        np.testing.assert_array_equal(one[key], array[key])
        assert memory.reads == [(4 * first, 4 * size)], key
    assert memory.gathers == []


def test_far_rows_are_gathered_and_near_ones_are_read_with_what_lies_between() -> None:
    array = np.arange(64 * 2048, dtype="<u1").reshape(64, 2048)
    one, memory = served(array)
    np.testing.assert_array_equal(one[::2], array[::2])
    assert (memory.reads, memory.gathers) == ([(0, 63 * 2048)], [])
    np.testing.assert_array_equal(one[1::3], array[1::3])
    assert (len(memory.reads), memory.gathers) == (1, [21])


def test_wide_rows_of_which_a_part_is_wanted_come_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "_BAND_BYTES", 3 * 40)
    array = np.arange(80, dtype="<u4").reshape(8, 10)
    one, memory = served(array)
    np.testing.assert_array_equal(one[:, 2:5], array[:, 2:5])
    assert memory.reads == [(0, 120), (120, 120), (240, 80)]


# --- rows -------------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 20),
    st.lists(st.integers(-25, 25), max_size=6),
    st.sampled_from(["i1", "u1", "i4", "u8", ">i8", "f8", "?"]),
)
@example(4, [2**64 - 1], "u8")
@example(4, [2**63], "u8")
@example(0, [0], "i8")
def test_row_numbers_are_those_of_numpy(length: int, numbers: list[int], dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "u" and min(numbers, default=0) < 0:
        numbers = [abs(one) for one in numbers]
    given_ = np.array(numbers).astype(kind) if max(numbers, default=0) < 2**63 else np.array(numbers, kind)
    rows = list(range(length))
    if kind.kind not in "iu" and len(numbers):
        with pytest.raises(InvalidError, match=f"indices must be integers, not of type {kind}"):
            rows_of(given_, length)
        return
    try:
        # By Python's list: NumPy takes numbers of 64 bits without a sign for negative ones.
        wanted = [rows[int(one)] for one in given_]
    except IndexError:
        with pytest.raises(IndexError, match=rf"row -?\d+ of an array of {length} rows"):
            rows_of(given_, length)
    else:
        found, shape = rows_of(given_, length)
        assert found.tolist() == wanted
        assert shape == given_.shape
        assert found.dtype == np.int64


def reading(array: Array) -> Any:
    def read(numbers: Array, memory: Array) -> None:
        assert memory.flags.c_contiguous
        memory[...] = array[numbers]

    return read


def test_rows_are_gathered_into_ones_own_memory() -> None:
    array = np.arange(60.0).reshape(10, 3, 2)
    numbers = np.array([[1, -1], [3, 3]])
    wanted = array[numbers]
    np.testing.assert_array_equal(gather(array.shape, array.dtype, numbers, None, reading(array)), wanted)
    contiguous = np.zeros((2, 2, 3, 2))
    assert gather(array.shape, array.dtype, numbers, contiguous, reading(array)) is contiguous
    np.testing.assert_array_equal(contiguous, wanted)
    spread = np.zeros((2, 2, 3, 4))[..., ::2]
    assert gather(array.shape, array.dtype, numbers, spread, reading(array)) is spread
    np.testing.assert_array_equal(spread, wanted)
    for out in (np.zeros((2, 2, 3, 3)), np.zeros((2, 2, 3, 2), "f4"), np.zeros((4, 3, 2))):
        with pytest.raises(InvalidError, match=r"out has .*, the (selection|array) has (\(2, 2, 3, 2\)|float64)"):
            gather(array.shape, array.dtype, numbers, out, reading(array))
    with pytest.raises(InvalidError, match="out must be a writable buffer, not list"):
        gather(array.shape, array.dtype, numbers, [0], reading(array))
    empty = gather(array.shape, array.dtype, np.zeros((0, 4), np.int64), None, reading(array))
    assert empty.shape == (0, 4, 3, 2)


class Foreign:
    """An array of another library, as far as gathering uses one."""

    device = "gpu:3"

    def __init__(self, array: Array, log: list[str]) -> None:
        self.array, self.log = array, log
        self.ndim, self.shape, self.dtype, self.strides = array.ndim, array.shape, array.dtype, array.strides

    def detach(self) -> Foreign:
        self.log.append("detach")
        return self

    def cpu(self) -> Foreign:
        return self

    def numpy(self) -> Array:
        return self.array

    def get(self) -> Array:
        self.log.append("get")
        return self.array

    def to(self, device: str) -> Foreign:
        self.log.append(f"to {device}")
        return self

    def copy_(self, other: Foreign) -> Foreign:
        self.array[...] = other.array
        return self

    def set(self, memory: Array) -> None:
        self.array[...] = memory

    def __getitem__(self, key: Any) -> Array:
        found: Array = self.array[key]
        return found


class Exchanged:
    """An array that is known by DLPack alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    for name in ("torch", "cupy"):
        kind = type(name.title(), (Foreign,), {"__module__": f"{name}.core"})
        module = types.ModuleType(name)
        module.made = lambda array, kind=kind: kind(array, log)  # type: ignore[attr-defined]
        module.from_numpy = module.asarray = module.made  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return log


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_rows_go_to_the_library_of_the_indices_or_of_the_memory(libraries: list[str], name: str) -> None:
    array = np.arange(20.0).reshape(5, 4)
    made = sys.modules[name].made
    numbers = np.array([4, 0, -2])
    found = gather(array.shape, array.dtype, made(numbers), None, reading(array))
    assert library_of(found) == name
    np.testing.assert_array_equal(found.array, array[numbers])
    assert libraries == (["detach", "to gpu:3"] if name == "torch" else ["get"])
    out = made(np.zeros((3, 4)))
    assert gather(array.shape, array.dtype, numbers, out, reading(array)) is out
    np.testing.assert_array_equal(out.array, array[numbers])
    for memory in (
        np.zeros((3, 3)),
        np.zeros((3, 4), "f4"),
        np.lib.stride_tricks.as_strided(np.zeros(4), (3, 4), (0, 8)),
    ):
        with pytest.raises(InvalidError, match=r"out (is|has)"):
            gather(array.shape, array.dtype, numbers, made(memory), reading(array))
    plain = np.zeros((3, 4))
    assert gather(array.shape, array.dtype, made(numbers), plain, reading(array)) is plain
    one, _ = served(array)
    np.testing.assert_array_equal(one.gather(made(numbers)).array, array[numbers])


def test_memory_that_is_known_by_dlpack_is_filled() -> None:
    array = np.arange(20.0).reshape(5, 4)
    memory = Exchanged(np.zeros((2, 4)))
    assert gather(array.shape, array.dtype, Exchanged(np.array([3, 1])), memory, reading(array)) is memory
    np.testing.assert_array_equal(memory.array, array[[3, 1]])


# --- the client -------------------------------------------------------------------------------------------------------

STATUSES = [
    (InvalidError("the queue pair: Space Changed (0x1c2)"), VolumeMismatchError, "array 'a1' was resized while"),
    (InvalidError("the queue pair: Space Changed (0x41c2)"), VolumeMismatchError, "it had shape (6, 4)"),
    (InvalidError("the queue pair: Namespace Not Ready (0x82)"), ClosedError, "was deleted while it was served"),
    (InvalidError("the queue pair: Namespace Not Ready (0x4082)"), ClosedError, "or its store is closed"),
    (InvalidError("the queue pair: LBA Out of Range (0x80)"), InvalidError, "LBA Out of Range (0x80)"),
    (InvalidError("no status at all"), InvalidError, "no status at all"),
    (ClosedError("the server is gone (0x1c2)"), ClosedError, "the server is gone"),
]


@pytest.mark.parametrize(("error", "kind", "says"), STATUSES)
def test_a_status_says_what_became_of_the_array(error: Exception, kind: type[Exception], says: str) -> None:
    one, memory = served(np.zeros((6, 4)))
    memory.error = error
    for call in (
        lambda: one[2],
        lambda: one.gather([1, 2]),
        lambda: one[[0, 2], [1, 1]],
        lambda: one.write(0, 1),
        lambda: one[:, 1],
    ):
        with pytest.raises(kind) as caught:
            call()
        assert says in str(caught.value)


@given(data=st.data())
def test_any_write_is_numpys_and_touches_what_it_names(data: st.DataObject) -> None:
    shape = data.draw(shapes(max_dims=4, max_side=7).filter(lambda one: 0 not in one))
    array = content(shape, data.draw(st.sampled_from([one for one in DTYPES if one.itemsize])), 1)
    key = data.draw(keys(shape))
    one, memory = served(array)
    try:
        found = np.shape(array[key])
        values = content(found, array.dtype, 2) if found else array.reshape(-1)[-1]
    except IndexError:
        with pytest.raises(IndexError):
            one[key] = array.reshape(-1)[0]
        return
    array[key] = values
    one[key] = values
    assert memory.arrays[0].tobytes() == array.tobytes()


def test_elements_that_lie_together_are_one_run() -> None:
    array = np.zeros((6, 5, 4), "<f4")
    one, memory = served(array)
    for key, runs in [
        (np.s_[2], [(160, 80)]), (np.s_[1:3], [(80, 160)]), (np.s_[2, 1:4], [(176, 48)]), (np.s_[...], [(0, 480)]),
        (np.s_[2, 3, 1:3], [(212, 8)]), (np.s_[::3, 1:3], [(16, 32), (256, 32)]), (np.s_[1, :2, 0], [(80, 4), (96, 4)]),
    ]:  # fmt: skip
        memory.writes.clear()
        one[key] = 1
        assert memory.writes == runs, key


def test_an_array_says_what_it_is() -> None:
    one, _ = served(np.zeros((6, 4), "<i2"))
    assert (one.ndim, one.size, len(one), one.shape, one.nbytes) == (2, 24, 6, (6, 4), 48)
    assert dict(one.attrs) == {"k": 1}
    np.testing.assert_array_equal(np.asarray(one, "f4"), np.zeros((6, 4), "f4"))
    single, _ = served(np.array(5.0))
    assert single[()] == 5.0
    with pytest.raises(InvalidError, match="an array without dimensions has no rows"):
        single.gather([0])
    for change in (lambda: one.attrs.update(k=2), lambda: one.resize((7, 4)), one.stat):
        with pytest.raises(DoorError, match="shm://features: shared memory has no "):
            change()


def test_a_store_is_a_mapping_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(np.zeros(3), np.ones((2, 2)))
    native = types.SimpleNamespace(arrays=memory.rows, catalog=memory.catalog, read=memory.read)
    opened = types.SimpleNamespace(open=lambda name, deadline_ms: native)
    monkeypatch.setattr(client_module._nandarray, "QueueClient", opened)
    with client_module.connect("features") as store:
        assert list(store) == ["a1", "a2"]
        assert (len(store), "a2" in store, "a3" in store) == (2, True, False)
        assert repr(store) == "<nandarray.Store 'shm://features' mode='r+', 2 inside>"
        np.testing.assert_array_equal(store["a2"][...], np.ones((2, 2)))
        with pytest.raises(NotFoundError, match="no array or group named 'a3' in 'shm://features'"):
            store["a3"]
    assert repr(store) == "<nandarray.Store 'shm://features' (closed)>"
    for call in (lambda: store["a1"], lambda: len(store), lambda: list(store), lambda: "a1" in store):
        with pytest.raises(ClosedError, match="the client of shm://features is closed"):
            call()
    store.close()


LIMITS = [
    ({"name": ""}, "a server in shared memory needs a name"),
    ({"queues": 0}, "queue pairs must be from 1 to 4096, not 0"),
    ({"queues": 4097}, "from 1 to 4096, not 4097"),
    ({"depth": 1}, "a depth must be a power of two from 2 to 32768, not 1"),
    ({"depth": 48}, "from 2 to 32768, not 48"),
    ({"depth": 65536}, "from 2 to 32768, not 65536"),
    ({"data_bytes": 0}, "whole pages of 4096 bytes, 1 TiB at most, not 0"),
    ({"data_bytes": 4095}, "whole pages of 4096 bytes, 1 TiB at most, not 4095"),
    ({"data_bytes": 1 << 41}, "1 TiB at most, not 2199023255552"),
    ({"threads": 0}, "from 1 to 16, not 0"),
    ({"threads": 3, "queues": 2}, "threads for 2 queue pairs must be from 1 to 2, not 3"),
]


@pytest.mark.parametrize(("options", "says"), LIMITS)
def test_sizes_that_no_server_has_are_refused_before_there_is_a_region(options: dict[str, Any], says: str) -> None:
    with nandarray.open(device="qlc-enterprise", mode="w") as store, pytest.raises(InvalidError) as caught:
        server_module.serve(store, **{"name": "n", **options})
    assert says in str(caught.value)
