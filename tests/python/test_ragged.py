"""Ragged arrays (text, bytes, lists) against Python's lists and Arrow's, behind every door; crashes, bad bytes."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from processes import killed
from typer.testing import CliRunner

import nandarray
from nandarray.cli import app
from nandarray.errors import (
    BadIndexError,
    CorruptError,
    ExistsError,
    InvalidError,
    NandarrayError,
    WrongKeyError,
)

pa = pytest.importorskip("pyarrow")

RECORD = np.dtype([("id", "i4"), ("at", "M8[ms]"), ("place", [("x", "f8"), ("y", "f4")])])
DTYPES: dict[str, Any] = {
    "text": str, "bytes": bytes, "f4": "f4", "bool": bool, "big": ">i8", "days": "M8[D]",
    "points": ("i2", (2,)), "records": RECORD,
}  # fmt: skip
LETTERS = "aé\0\n漢🙂 \x9b"


def rows(kind: str, random_: random.Random, count: int, *, missing: float) -> list[Any]:
    """Rows of Python's objects; NumPy arrays for lists."""
    found: list[Any] = []
    for _ in range(count):
        length = random_.choice([0, 0, 1, 3, random_.randrange(60)])
        if random_.random() < missing:
            found.append(None)
        elif kind == "text":
            found.append("".join(random_.choices(LETTERS, k=length)))
        elif kind == "bytes":
            found.append(random_.randbytes(length))
        else:
            dtype = np.dtype(DTYPES[kind])
            found.append(np.random.default_rng(random_.randrange(2**32)).integers(0, 2, (length, *dtype.shape)))
            found[-1] = found[-1].astype(dtype.base) if kind != "records" else _records(length, random_)
    return found


def _records(length: int, random_: random.Random) -> Any:
    made = np.zeros(length, RECORD)
    made["id"] = [random_.randrange(100) for _ in range(length)]
    made["place"]["x"] = random_.random()
    return made


def same(got: Any, expected: Any) -> bool:
    """Whether rows are equal, with their types."""
    if isinstance(expected, np.ndarray):
        return isinstance(got, np.ndarray) and got.dtype == expected.dtype and np.array_equal(got, expected)
    return type(got) is type(expected) and got == expected


def all_same(got: Any, expected: list[Any]) -> bool:
    """Whether arrays of rows are equal."""
    return len(got) == len(expected) and all(same(*pair) for pair in zip(got, expected, strict=True))


def check_reads(ragged: Any, model: list[Any], random_: random.Random) -> None:
    """Compare every way of reading with the model."""
    count = len(model)
    assert len(ragged) == count == ragged.shape[0] == ragged.size
    assert all_same(ragged[:], model)
    assert all_same(list(ragged), model)
    for _ in range(3):
        low, high = sorted(random_.randrange(-count - 1, count + 2) for _ in range(2))
        step = random_.choice([1, 2, -1, -3])
        assert all_same(ragged[low:high:step], model[low:high:step]), (low, high, step)
        chosen = [random_.randrange(-count, count) for _ in range(random_.randrange(6))] if count else []
        assert all_same(ragged[chosen], [model[at] for at in chosen]), chosen
        mask = np.array([random_.random() < 0.3 for _ in range(count)], bool)
        assert all_same(ragged[mask], list(itertools.compress(model, mask)))
        if count:
            at = random_.randrange(-count, count)
            assert same(ragged[at], model[at]), at
    arrow = ragged.to_arrow()
    arrow.validate(full=True)
    assert arrow.null_count == sum(row is None for row in model)
    plain = [row.tolist() if isinstance(row, np.ndarray) and row.dtype.names is None else row for row in model]
    if not (ragged.values.dtype.names or ragged.values.dtype.kind == "M"):
        assert arrow.to_pylist() == plain
    assert pa.chunked_array(ragged).combine_chunks().equals(arrow)
    assert pa.array(ragged).equals(arrow)


@pytest.fixture(params=doors.COMPUTING)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.opened(request.param, tmp_path / "a.nand") as store:
        yield store


@pytest.mark.parametrize("kind", DTYPES)
def test_rows_are_those_of_a_list(served: Any, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("nandarray.array.ragged._BATCH_BYTES", 200)
    for name in ("_GAP_BYTES", "_GAP_BYTES_SENT"):
        monkeypatch.setattr(f"nandarray.array.ragged.{name}", 64)
    for seed in range(4 if doors.is_file(served) else 2):
        random_ = random.Random(f"{kind} {seed}")
        missing = random_.choice([0, 0.2])
        model = rows(kind, random_, random_.choice([0, 1, 30]), missing=missing)
        compression = random_.choice([None, "zstd"])
        ragged = served.create_ragged(f"g/{seed}", model or None, DTYPES[kind], compression=compression)
        check_reads(ragged, model, random_)
        for _ in range(4):
            more = rows(kind, random_, random_.randrange(20), missing=missing)
            made = served.create_ragged("tmp", more, DTYPES[kind]) if random_.random() < 0.3 else None
            given = more if made is None else random_.choice([made, made.to_arrow()])
            if kind in ("big", "records", "bool") and not isinstance(given, list):
                given = made  # Arrow has no other byte order
            assert ragged.append(given) == len(model) + len(more), seed
            model += more
            check_reads(ragged, model, random_)
            if made is not None:
                del served["tmp"]
        again = served[f"g/{seed}"]
        assert (again.kind, again.dtype) == (ragged.kind, ragged.dtype)
        check_reads(again, model, random_)
    assert sorted(served["g"]) == sorted(map(str, range(4 if doors.is_file(served) else 2)))


def test_rows_of_a_drive_that_lie_apart_are_read_by_few_commands(tmp_path: Path, monkeypatch: Any) -> None:
    random_ = random.Random(4)
    model = ["é" * random_.choice([0, 3, 9, 200, 5000]) + str(number) for number in range(3000)]
    model[1500] = "long" * 40_000
    with doors.opened("drive", tmp_path / "a.nand") as store:
        ragged = store.create_ragged("names", model)
        asked: list[int] = []
        calls = type(store._engine).done
        monkeypatch.setattr(type(store._engine), "done", lambda *some, **more: asked.append(1) or calls(*some, **more))
        for few in (3000, 80):
            numbers = [*random_.sample(range(3000), few), 1500, 2999, 0]
            wanted = [model[number] for number in numbers]
            before, asked[:] = doors.wire_bytes(store), []
            assert ragged[numbers].tolist() == wanted
            assert 0 < len(asked) < 60, few
            assert doors.wire_bytes(store) - before < 2 * sum(len(one.encode()) for one in wanted) + few * 600 + 16_384


def test_a_region_reads_what_it_serves(tmp_path: Path) -> None:
    with doors.opened("region", tmp_path / "a.nand") as shelf:
        file = doors.file_of(shelf)
        model = ["Ada", None, "é" * 40_000, ""]
        file["names"] = np.array(model, object)
        names = shelf["names"]
        assert isinstance(names, nandarray.Ragged)
        check_reads(names, model, random.Random(1))
        names.append(["x", None])
        check_reads(names, [*model, "x", None], random.Random(2))
        check_reads(file["names"], [*model, "x", None], random.Random(3))


@pytest.mark.parametrize("device", ["mqsim-ideal"])
def test_a_modelled_device_gives_the_same_rows(device: str) -> None:
    with nandarray.open(device=device, mode="w") as store:
        model = rows("text", random.Random(7), 200, missing=0.1)
        check_reads(store.create_ragged("t", model), model, random.Random(8))


# --- As one thing -----------------------------------------------------------------------------------------------------


def test_it_is_copied_renamed_and_deleted_as_one(served: Any, tmp_path: Path) -> None:
    model = ["a", None, "ccc"]
    served.create_ragged("names", model, attrs={"unit": "m"})
    assert served["names"].attrs["unit"] == "m"
    copied = served.copy("names", "g/copy")
    assert isinstance(copied, nandarray.Ragged)
    copied.append(["d"])
    with nandarray.open(tmp_path / "other.nand", "w") as other:
        assert served.copy(served["names"], other)[:].tolist() == model
        assert served.copy("g", other)["copy"][:].tolist() == [*model, "d"]
    served.rename("g/copy", "moved")
    assert served["moved"][:].tolist() == [*model, "d"]
    assert served["names"][:].tolist() == model
    del served["moved"]
    assert "moved" not in served
    assert list(served) == ["names"]
    assert doors.file_of(served)._engine.names() == [f"names/{one}" for one in (".group", "offsets", "valid", "values")]
    served["again"] = served["names"]
    assert served["again"][:].tolist() == model
    with pytest.raises(ExistsError, match="exists"):
        served["names"] = np.array(["x"], object)
    with pytest.raises(ExistsError, match="'names' is a ragged array, which get"):
        served.open_array("names")


def test_handles_append_in_turn(served: Any) -> None:
    one = served.create_ragged("x", ["a"])
    two, model = served["x"], ["a"]
    for number in range(6):
        rows_ = [str(number), None] if number > 2 else [str(number)]
        assert (one if number % 2 else two).append(rows_) == len(model) + len(rows_)
        model += rows_
    assert served["x"][:].tolist() == model
    served.refresh()
    assert one[:].tolist() == two[:].tolist() == model


def test_what_cannot_be_created_leaves_nothing(served: Any) -> None:
    def broken() -> Any:
        return np.array(["fine", 7], object)

    for make in (
        lambda: served.create_ragged("x", broken()),
        lambda: served.create_ragged("x", ["fine", "\ud800"]),
        lambda: served.create_ragged("x", pa.chunked_array([pa.array([[1]]), pa.array([[None, 2]])])),
        lambda: served.create_ragged("x", [[1]], compression="none such"),
        lambda: served.create_ragged("x", attrs={"_RAGGED": "text"}, dtype=str),
        lambda: served.create_ragged("x"),
        lambda: served.create_ragged("x", [None]),
        lambda: served.create_ragged("", ["a"]),
        lambda: served.create_ragged("x", "text"),
        lambda: served.create_ragged("x", np.array([["a"]], object)),
        lambda: served.create_ragged("x", pa.array([1, 2])),
        lambda: served.create_ragged("x", [[1], ["a"], [b"b"], [{}]]),
        lambda: served.__setitem__("x", pa.array([["a"]])),
    ):
        with pytest.raises(InvalidError):
            make()
        assert doors.file_of(served)._engine.names() == []


def test_an_encrypted_one_needs_its_key(tmp_path: Path) -> None:
    key, model = bytes(range(32)), ["secret", None, "more"]
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store.create_ragged("s", model, encryption_key=key).append([None])
        with pytest.raises(WrongKeyError):
            store["s"]
        assert store.get("s", encryption_key=key)[:].tolist() == [*model, None]
        copied = store.copy("s", "t", encryption_key=key)
        assert copied.encrypted
        assert copied.valid.encrypted
        assert copied[:].tolist() == [*model, None]
    assert b"secret" not in (tmp_path / "a.nand").read_bytes()
    with nandarray.open(tmp_path / "a.nand") as store, pytest.raises(TypeError, match="its key stays in this process"):
        pickle.dumps(store.get("s", encryption_key=key))


def test_it_is_pickled_as_its_name(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["b"] = pa.array([b"x", None])
        assert pickle.loads(pickle.dumps(store["b"])).store is store
    with nandarray.open(tmp_path / "a.nand") as store:
        assert pickle.loads(pickle.dumps(store["b"]))[:].tolist() == [b"x", None]


# --- Data of others ---------------------------------------------------------------------------------------------------


def test_arrays_of_arrow_arrive(store: nandarray.Store) -> None:
    text = pa.array(["a", None, "ccc", ""])
    listed = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16()))
    struct = pa.array([[{"a": 1, "b": True}], []])
    given = {
        "text": text, "large": text.cast(pa.large_string()), "view": text.cast(pa.string_view()),
        "dictionary": text.dictionary_encode(), "slice": text.slice(1, 2), "chunks": pa.chunked_array([text, text[:1]]),
        "bytes": pa.array([b"\xff", None]), "byte views": pa.array([b"\xff", None], pa.binary_view()),
        "empty": pa.array([], pa.string()), "nulls": pa.array([None, None], pa.string()),
        "list": listed, "large list": listed.cast(pa.large_list(pa.int16())), "list slice": listed.slice(1, 3),
        "no lists": pa.array([], pa.list_(pa.float32())), "structs": struct, "sliced structs": struct.slice(1),
        "fixed": pa.array([[[1, 2], [3, 4]], []], pa.list_(pa.list_(pa.int8(), 2))),
        "times": pa.array([[1, None], [3]], pa.list_(pa.timestamp("us"))),
        "days": pa.array([[1, None], [3]], pa.list_(pa.date32())),
        "flags": pa.array([[True, False], [], [True]]),
    }  # fmt: skip
    for name, array in given.items():
        store[name] = array
        found = store[name]
        assert isinstance(found, nandarray.Ragged), name
        assert found.to_arrow().to_pylist() == array.to_pylist(), name
        assert found.to_arrow().type == store.create_ragged(f"{name}2", found.to_arrow()).to_arrow().type
    assert store["structs"].values.dtype == np.dtype([("a", "i8"), ("b", "?")])
    assert store["fixed"].values.shape == (2, 2)
    assert store["text"].to_arrow(slice(1, 3)).to_pylist() == [None, "ccc"]
    assert pa.array(store["text"], pa.string()).equals(text)
    for wrong in (pa.array([["a"]]), pa.array([[[1]]]), pa.array([[1, None]]), pa.array([[{"a": None}]])):
        with pytest.raises(InvalidError):
            store["wrong"] = wrong
    with pytest.raises(InvalidError, match=r"a row of Arrow's list<list<.*>> must be a list of elements of one shape"):
        store["wrong"] = pa.array([[[1], [2, 3]]])
    with pytest.raises(InvalidError, match=r"must be text to be appended|must be bytes"):
        store["text"].append(pa.array([b"a"]))
    offsets = pa.array([0, 3, 1], pa.int32()).buffers()[1]
    hostile = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(InvalidError, match="an array of Arrow that is none"):
        store["hostile"] = hostile
    not_text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(InvalidError, match="an array of Arrow that is none"):
        store["text"].append(not_text)
    assert store["text"].to_arrow().equals(text.cast(pa.large_string()))


def test_text_of_numpy_and_pandas_arrives(store: nandarray.Store) -> None:
    pandas = pytest.importorskip("pandas")
    string = np.dtypes.StringDType
    store["numpy"] = np.array(["a", "bb"], string())
    store["missing"] = np.array(["a", np.nan], string(na_object=np.nan))
    store["series"] = pandas.Series(["a", None, "ccc"])
    store["objects"] = np.array([[1, 2], None], object)
    assert store["numpy"].dtype == string()
    assert store["missing"][:].tolist() == ["a", None]
    assert store["series"][:].tolist() == ["a", None, "ccc"]
    assert store["objects"][0].tolist() == [1, 2]
    assert np.array_equal(np.asarray(store["numpy"]), np.array(["a", "bb"], string()))
    frame = pandas.Series(store["series"].to_arrow().to_pandas())
    assert frame.isna().tolist() == [False, True, False]
    # Text of a fixed width, and numbers of Arrow, are arrays as ever.
    store["fixed"], store["numbers"] = ["a", "bb"], pa.array([1, 2])
    assert (store["fixed"].dtype, store["numbers"].dtype) == (np.dtype("U2"), np.dtype("i8"))


def test_engines_of_tables_take_it(store: nandarray.Store) -> None:
    duckdb = pytest.importorskip("duckdb")
    store["names"], store["tracks"] = pa.array(["b", None, "a"]), pa.array([[1, 2], [], [3]])
    rows_ = pa.table({"name": store["names"].to_arrow(), "track": pa.chunked_array(store["tracks"])})
    found = (
        duckdb.connect()
        .register("rows_", rows_)
        .execute("select name, len(track) from rows_ order by name nulls last")
        .fetchall()
    )
    assert found == [("a", 1), ("b", 2), (None, 0)]


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_indices_that_are_none_are_errors(store: nandarray.Store) -> None:
    names = store.create_ragged("names", ["a", "b", None])
    for key in (
        3, -4, [3], [-4], True, 1.5, [1.5], np.zeros(2, bool), "x", None, (0, 1), slice("a"), [[0, 1]], object(), 2**70,
    ):  # fmt: skip
        with pytest.raises(BadIndexError):
            names[key]
    with pytest.raises(InvalidError, match="slice step cannot be zero"):
        names[::0]
    for compare in (lambda: names == "a", lambda: names == store["names"], lambda: names != 5, lambda: names + "a"):
        with pytest.raises(TypeError, match="the elements lie in a store"):
            compare()
    assert names in {names}
    assert (names == np.array(["a", "c", None], object)).tolist() == [True, False, True]
    with pytest.raises(BadIndexError):
        names.to_arrow(0)
    assert names[(1,)] == "b"
    assert names[...].tolist() == names[[]].tolist() + ["a", "b", None]
    for rows_ in (["a", 1], [b"a"], [["a"]], "abc", 5, ["\ud800"]):
        with pytest.raises(InvalidError):
            names.append(rows_)
    lists = store.create_ragged("lists", [[1, 2]])
    for given in ([[1], 5], ["ab"], [[[1]]], [{"a": 1}]):
        with pytest.raises(InvalidError):
            lists.append(given)
    assert (len(names), len(lists)) == (3, 1)


def test_parts_that_contradict_each_other_are_named(store: nandarray.Store) -> None:
    def made() -> Any:
        if "x" in store:
            del store["x"]
        return store.create_ragged("x", ["aa", None, "bb", "cc"])

    x = made()
    x.values[2] = 255
    assert x[0] == "aa"
    for read in (lambda: x[2], lambda: x[:], lambda: x[[2]], lambda: list(x), x.to_arrow, lambda: pa.array(x)):
        with pytest.raises(CorruptError, match=r"text of 'x' must be UTF-8"):
            read()
    x = made()
    x.valid[0] = False
    x.values[0] = 255  # of a row that is missing
    assert x[:2].tolist() == [None, None]
    assert x.to_arrow().to_pylist() == [None, None, "bb", "cc"]
    for places in ([0, 4, 2, 4, 6], [0, 2, 2, 4, 7], [-1, 2, 2, 4, 6]):
        x = made()
        x.offsets[:] = places
        for read in (lambda x=x: x[:], lambda x=x: x[[0, 1, 2, 3]], x.to_arrow, lambda x=x: list(x)):
            with pytest.raises(CorruptError, match=r"row \d of 'x' lies from .* offsets must not decrease"):
                read()
    x.offsets[:] = [0, 2, 2, 4, 9]
    with pytest.raises(CorruptError, match="it must have at least 9"):
        x.append(["d"])
    x = made()
    x.valid.resize((2,))
    with pytest.raises(CorruptError, match=r"'x/valid' has 2 elements, it must have 4"):
        x[:]
    with pytest.raises(CorruptError, match=r"'x/valid' has 2 elements, it must have at least 4"):
        x.append(["d"])
    for part, array in (("offsets", np.zeros(3)), ("values", np.zeros((3, 2), "u1")), ("valid", np.zeros(4, "i4"))):
        made()
        del store[f"x/{part}"]
        store[f"x/{part}"] = array
        with pytest.raises(CorruptError, match=rf"'x/{part}' must have one dimension"):
            store["x"]
    made()
    del store["x/values"]
    with pytest.raises(CorruptError, match="has no array 'values'"):
        store["x"]
    made().attrs["_RAGGED"] = "tree"
    with pytest.raises(CorruptError, match="must be one of text, bytes, list, not 'tree'"):
        store["x"]
    store.create("y/.group2", 3)
    store.create_group("z", attrs={"_RAGGED": None})
    assert isinstance(store["z"], nandarray.Group)


# --- Crashes and threads ----------------------------------------------------------------------------------------------


def test_what_an_unfinished_append_left_is_no_row(store: nandarray.Store) -> None:
    x = store.create_ragged("x", ["aa", None])
    for _ in range(2):
        x.values.append(np.full(100, 255, "u1"))  # where an append was cut off
        x.valid.append([False, False, True])
        before = x[:].tolist()
        assert store.copy("x", "y")[:].tolist() == before
        del store["y"]
        x.append(["ccc", "d"])
        assert x[:].tolist() == [*before, "ccc", "d"]
        assert x.values.shape[0] == x.offsets[-1]


WRITER = """
import sys
import nandarray

store = nandarray.open(sys.argv[1], mode="a")
x = store["x"] if "x" in store else store.create_ragged("x", dtype=str)
step = len(x) // 5
print(step, flush=True)
while True:
    x.append([f"{step} {at} " + "x" * (step * 7919 % 5000) if at != step % 5 else None for at in range(5)])
    step += 1
    if step % 7 == 0:
        store.flush()
        print(step, flush=True)
"""


def test_a_killed_writer_leaves_whole_appends(path: Path) -> None:
    for seed in range(8):
        told = killed(WRITER, path, seed, 0.15)[1:]
        with nandarray.open(path) as store:
            assert store.check()["ok"]
            if "x" not in store:
                assert not told, seed
                continue
            found = store["x"][:].tolist()
        steps, rest = divmod(len(found), 5)
        assert not rest, f"seed {seed}: an append is torn"
        assert steps >= max(told, default=0), f"seed {seed}: what was flushed is lost"
        for step in range(steps):
            text = "x" * (step * 7919 % 5000)
            expected = [f"{step} {at} {text}" if at != step % 5 else None for at in range(5)]
            assert found[5 * step : 5 * step + 5] == expected, seed


def test_threads_append_and_read_at_the_same_time(store: nandarray.Store) -> None:
    store.create_ragged("x", dtype=bytes)
    failed: list[BaseException] = []
    ended = threading.Event()

    def write(letter: bytes) -> None:
        x = store["x"]
        for number in range(60):
            x.append([letter * 10, None if number == 30 else letter, letter * (number % 7)])

    def read() -> None:
        try:
            while not ended.is_set():
                got = store["x"][:]
                assert len(got) % 3 == 0
                assert all(len({*(row or b"")}) <= 1 for row in got)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    assert not failed, failed
    found = store["x"][:].tolist()
    assert len(found) == 3 * 180
    assert sorted(set(found[::3])) == [b"a" * 10, b"b" * 10, b"c" * 10]
    assert all(row is None or row[:1] == first[:1] for first, row in zip(found[::3], found[1::3], strict=True))


def test_another_process_that_appends_is_noticed(store: nandarray.Store, monkeypatch: Any) -> None:
    x = store.create_ragged("x", ["a"])
    mark = type(x)._mark

    def beside(self: Any, *given: Any) -> None:
        self.values.append(np.zeros(3, "u1"))
        mark(self, *given)

    monkeypatch.setattr(type(x), "_mark", beside)
    with pytest.raises(NandarrayError, match="another process appends to it"):
        x.append(["b"])
    monkeypatch.undo()
    assert x.append(["c"]) == 2
    assert x[:].tolist() == ["a", "c"]


# --- For people -------------------------------------------------------------------------------------------------------


def test_it_is_shown_as_one(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["g/names"], store["g/x"] = pa.array(["<a>", None]), np.arange(3)
        names = store["g/names"]
        assert repr(names) == "<nandarray.Ragged 'g/names' text rows=2>"
        assert "names  text (2,)" in str(store.tree())
        assert "offsets" not in str(store.tree())
        assert "offsets" not in store.tree()._repr_html_()
        assert "<td" in names._repr_html_()
    assert repr(names) == "<nandarray.Ragged (closed)>"
    assert "closed" in names._repr_html_()


def test_the_command_line_shows_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "a.nand")
    with nandarray.open(path, "w") as store:
        store["g/names"], store["b"] = pa.array(["<é>\x1b", None, "c"]), pa.array([b"\xff"])
        store["lists"] = pa.array([[1, 2], []])
        store["many"] = pa.array([str(at) for at in range(2500)])

    def call(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == code, (words, done.output)
        return done.stderr if code else done.stdout

    assert call("ls", path).split() == ["b", "g/names", "lists", "many"]
    told = {one["name"]: one for one in json.loads(call("ls", "--json", path))}
    assert told["g/names"]["dtype"] == "text"
    assert told["g/names"]["shape"] == [3]
    assert told["lists"]["dtype"] == "list of int64"
    assert json.loads(call("info", "--json", path, "g"))["arrays"] == 1
    assert json.loads(call("tree", "--json", path))["g"] == {
        "names": {key: told["g/names"][key] for key in ("shape", "dtype", "building_block")}
    }
    assert "\x1b" not in call("read", path, "g/names")
    assert json.loads(call("read", "--json", path, "g/names")) == ["<é>\x1b", None, "c"]
    assert json.loads(call("read", "--json", path, "g/names", "[2, 0]")) == ["c", "<é>\x1b"]
    assert json.loads(call("read", "--json", path, "many")) == [str(at) for at in range(2500)]
    assert call("read", path, "many").split() == ['"0"', '"1"', '"2"', "...", '"2497"', '"2498"', '"2499"']
    assert call("read", path, "b", "0") == '"ff"\n'
    assert json.loads(call("read", "--json", path, "lists", "5:")) == []
    assert "out of bounds" in call("read", path, "lists", "2", code=1)
    assert "no view" in call("read", path, "lists", "--view", "2", code=2)


def test_xarray_and_zarr_see_its_parts(tmp_path: Path) -> None:
    xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    from nandarray.interop.zarr_store import ZarrStore

    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["g/names"], store["g/x"] = pa.array(["a", None]), np.arange(3.0)
        store.create_ragged("secret", ["a"], encryption_key=bytes(32))
        assert list(nandarray.to_xarray(store["g"]).variables) == ["x"]
        with pytest.raises(InvalidError, match="to_xarray takes no ragged array"):
            nandarray.to_xarray(store["g/names"])
        del store["secret"]
        root = zarr.open_group(ZarrStore(store), mode="r")
        assert sorted(name for name, _ in root.members(max_depth=None)) == [
            "g", "g/names", "g/names/offsets", "g/names/valid", "g/names/values", "g/x"
        ]  # fmt: skip
        assert root["g/names/offsets"][:].tolist() == [0, 1, 1]
    tree = xarray.open_datatree(tmp_path / "a.nand", engine="nandarray")
    assert tree["g/names/offsets"].values.tolist() == [0, 1, 1]
    tree.close()


def test_elements_of_lists_are_whole_or_refused(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        texts = store.create_ragged("texts", [["a", "bc"], None, ["d"]])
        with pytest.raises(InvalidError, match=r"row 0 has text of type <U6; the array's lists must have <U2"):
            texts.append([["longer"]])
        numbers = store.create_ragged("numbers", [[1.0]])
        with pytest.raises(InvalidError, match=r"row 1 must be a list of float64 without None"):
            numbers.append([[2.0], [1, None]])
        even = store.create_ragged("even", [[[1, 2]], [[3, 4], [5, 6]]])
        for call in (
            lambda: store.create_ragged("deep", [[[1, 2]], [[1, 2], [3]]]),
            lambda: store.create_ragged("deep", [[1], [[1, 2], [3]]], "i8"),
            lambda: even.append([[[1, 2]], [[1, 2], [3]]]),
        ):
            with pytest.raises(
                InvalidError, match="row 1 must be a list of elements of one shape, not of lists of diff"
            ):
                call()
        with pytest.raises(InvalidError, match="must be given elements of one shape, .* create_ragged"):
            store["deep"] = [[1, 2], [3]]
        assert "deep" not in store
        assert len(texts) == 3
        assert len(numbers) == 1
