"""Arrays as NumPy users meet them, beyond indexing: facts, conversion, shape changes, fields, sparse giants."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray


@pytest.fixture
def a(store: nandarray.Store) -> nandarray.Array:
    return store.create("g/a", data=np.arange(24, dtype="<i4").reshape(2, 3, 4))


def test_facts(store: nandarray.Store, a: nandarray.Array) -> None:
    assert (a.shape, a.ndim, a.size, a.itemsize, a.nbytes) == ((2, 3, 4), 3, 24, 4, 96)
    assert a.dtype == np.int32
    assert a.name == "g/a"
    assert a.store is store
    assert len(a.chunks) == 3
    assert a.compression is None
    assert not a.encrypted
    assert a.fill_value == 0
    assert type(a.fill_value) is np.int32
    assert len(a) == 2
    assert isinstance(a.stat(), dict)
    assert all(type(n) is int for n in a.shape)


def test_numpy_takes_an_array_for_an_array(a: nandarray.Array) -> None:
    model = np.arange(24, dtype="<i4").reshape(2, 3, 4)
    assert np.array_equal(np.asarray(a), model)
    assert np.asarray(a, dtype="f8").dtype == np.float64
    assert np.array(a, copy=True).flags.writeable
    assert np.sum(a) == model.sum()
    assert np.array_equal(np.stack([a, a])[1], model)
    assert (model + a).sum() == 2 * model.sum()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(a, copy=False)
    assert np.array_equal(np.from_dlpack(a), model)


def test_an_array_is_assigned_to_itself_as_in_numpy(store: nandarray.Store) -> None:
    model = np.arange(1 << 17, dtype="i8")
    a = store.create("self", data=model, building_block=(1000,))
    a[:] = a
    for into, of in ((np.s_[2:], np.s_[:-2]), (np.s_[:-7], np.s_[7:]), (np.s_[::2], np.s_[1::2]), (np.s_[::-1], ...)):
        a[into] = a[of]
        model[into] = model[of].copy()
    a.view((2, -1))[...] = a.view((2, -1))
    a[...] = nandarray.concat([a])
    assert np.array_equal(a[...], model)


def test_what_numpy_makes_like_an_array_is_numpys(a: nandarray.Array) -> None:
    model = np.asarray(a)
    for handle in (a, a.view(a.shape), nandarray.concat([a])):
        for make in (np.zeros_like, np.ones_like, np.empty_like, np.copy, lambda of: np.full_like(of, 7)):
            found = make(handle)
            assert type(found) is np.ndarray
            assert (found.shape, found.dtype) == (model.shape, model.dtype)
            assert make is np.empty_like or np.array_equal(found, make(model))
            found[...] = 5
        assert np.zeros_like(handle, dtype="f4", shape=(3,)).dtype == np.float32
    assert np.array_equal(a[...], model)


def test_iteration_and_membership(store: nandarray.Store, a: nandarray.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    model = np.asarray(a)
    assert [row.tolist() for row in a] == model.tolist()
    assert 23 in a
    assert 24 not in a
    assert list(store.create("line", data=[3, 1])) == [3, 1]
    monkeypatch.setattr("nandarray.array.base._BAND_BYTES", 40)
    long = store.create("long", data=np.arange(100).reshape(50, 2), building_block=(4, 2))
    assert np.array_equal(np.array(list(long)), np.arange(100).reshape(50, 2))
    assert np.array_equal(store.create("copy", data=long)[:], long[:])
    scalar = store.create("scalar", data=5)
    for use in (lambda: iter(scalar), lambda: len(scalar)):
        with pytest.raises(TypeError):
            use()
    assert 5 in scalar


def test_single_elements_convert(store: nandarray.Store, a: nandarray.Array) -> None:
    one = store.create("one", data=3)
    assert (int(one), float(one), complex(one), bool(one)) == (3, 3.0, 3 + 0j, True)
    assert [10, 11, 12, 13][one] == 13
    assert not store.create("zero", data=0.0)
    for convert in (int, float, complex):
        with pytest.raises(TypeError):
            convert(a)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a)


def test_operators_say_what_to_write(store: nandarray.Store, a: nandarray.Array) -> None:
    store["r"] = np.arange(1, 4).astype([("x", "i4")])
    for sign in ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "@", "<", "<=", ">", ">="):
        for one in (a, a.view(-1), a.astype("f4"), store["r"]["x"]):
            for words in (f"one {sign} 5", f"5 {sign} one", f"one {sign} a"):
                with pytest.raises(TypeError, match="not supported between.*read them first, as in array"):
                    eval(words, {"one": one, "a": a})  # noqa: S307
        one, other = store["r"]["x"], np.arange(1, 4)  # beside NumPy's arrays, NumPy reads and computes
        for words in (f"one {sign} other", f"other {sign} one"):
            expected = eval(words, {"one": one[...], "other": other})  # noqa: S307
            assert np.array_equal(eval(words, {"one": one, "other": other}), expected)  # noqa: S307
    assert np.array_equal(np.add(a, 1), a[...] + 1)


def test_equality_is_never_false_without_a_word(store: nandarray.Store, a: nandarray.Array) -> None:
    store["r"] = np.zeros(2, [("x", "i4")])
    for one in (a, a.view((6, 4)), a.astype("f4"), store["r"]["x"], nandarray.concat([a, a])):
        # Dictionaries and sets go by identity; Python compares no object with itself there.
        assert len({one, one, a}) == 1 + (one is not a)
        assert {a: 4, one: 5}[one] == 5
        assert one in [one]
        for other in (5, None, "x", [0, 1], one, a, store["g/a"]):
            for words in ("one == other", "other != one"):
                with pytest.raises(TypeError, match="not supported.*read them first"):
                    eval(words, {"one": one, "other": other})  # noqa: S307
        with pytest.raises(TypeError, match="their stores and names tell"):
            [store["g/a"], one].index(one)
        # As for `<`, an array or a scalar of NumPy makes it NumPy's comparison.
        assert np.array_equal(one == np.float64(0), one[...] == 0)
        assert np.array_equal(np.asarray(one) != one, np.zeros(np.shape(one), bool))


def test_what_would_leave_the_store_as_it_is_is_refused(store: nandarray.Store, a: nandarray.Array) -> None:
    before = a[...]
    for one in (a, a.view((6, 4)), a.astype("f4"), nandarray.concat([a, a])):
        for sign in ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "@"):
            for other in (2, one, np.ones(4, "i4")):
                with pytest.raises(TypeError, match=re.escape(f"in array[...] {sign}= 5")):
                    exec(f"one {sign}= other", {"one": one, "other": other})  # noqa: S102
        for words in ("-{}", "+{}", "~{}", "abs({})"):
            with pytest.raises(TypeError, match=re.escape(f"in {words.format('array[...]')}")):
                eval(words.format("one"), {"one": one})  # noqa: S307
        for words in ("one << 1", "1 >> one", "divmod(one, 2)"):
            with pytest.raises(TypeError, match="read them first"):
                eval(words, {"one": one})  # noqa: S307
    a[...] += 1
    assert np.array_equal(a[...], before + 1)


def test_a_value_is_converted_once_and_times_are_no_integers(store: nandarray.Store) -> None:
    real, whole, text = store.create("real", 3, "f4"), store.create("whole", 3, "i4"), store.create("text", 3, "S5")
    with pytest.warns(np.exceptions.ComplexWarning) as caught:
        real[1] = np.complex64(1 + 2j)
    assert (len(caught), real[1]) == (1, 1.0)
    when = np.datetime64("2001-01-02")
    for value in (when, np.timedelta64(3, "s"), [when]):
        with pytest.raises(nandarray.InvalidError, match="cannot store"):
            whole[1] = value
    whole[1] = np.array(when)  # as NumPy casts arrays
    real[2] = when
    assert (whole[1], real[2]) == (11324, 11324.0)
    with pytest.raises(nandarray.InvalidError, match="cannot store datetime64 as .S5.*too short"):
        text[1] = when
    with pytest.raises(nandarray.InvalidError, match="cannot store ndarray as .S5"):
        text[:] = np.array([when] * 3)
    assert text[:].tolist() == [b""] * 3


def test_casts_are_those_of_assignment(store: nandarray.Store) -> None:
    a: Any = store.create("a", 3, "u1")
    model = np.zeros(3, "u1")
    cases: list[Any] = [[1, 2, 3], np.array([1.9, 2.1, 250.0]), np.array([258, 1, 2]), True, "7", np.float32(9.7)]
    for values in cases:
        a[:] = values
        model[:] = values
        assert a[:].tolist() == model.tolist()
    with pytest.raises(nandarray.InvalidError, match="300"):
        a[0] = 300
    with pytest.raises(nandarray.InvalidError):
        a[:] = ["x", "y", "z"]
    with pytest.raises(nandarray.InvalidError):
        a[:] = object()
    text: Any = store.create("text", 2, "U3")
    text[:] = ["abcdef", 12]
    assert text[:].tolist() == ["abc", "12"]
    days: Any = store.create("days", 2, "M8[D]")
    days[:] = ["2020-01-02", np.datetime64("2021-03-04T05:06")]
    assert days[:].tolist() == np.array(["2020-01-02", "2021-03-04"], "M8[D]").tolist()


def test_broadcasting_is_that_of_assignment(a: nandarray.Array) -> None:
    model = np.asarray(a)
    cases: list[tuple[Any, Any]] = [
        (np.s_[:, 1], 7), (np.s_[:], [1, 2, 3, 4]), (np.s_[0], [[1], [2], [3]]), (np.s_[1, 2], np.ones((1, 1, 4))),
        (np.s_[..., 0], [[5, 6, 7]]),
    ]  # fmt: skip
    for key, values in cases:
        model[key] = values
        a[key] = values
        assert np.array_equal(a[...], model)
    with pytest.raises(nandarray.InvalidError, match=r"\(5,\) into shape \(2, 3, 4\)"):
        a[...] = np.ones(5)
    assert np.array_equal(a[...], model)


def test_write_and_read_as_methods(a: nandarray.Array) -> None:
    a.write(np.s_[0, :, ::2], -1)
    assert a.read(np.s_[0, 1]).tolist() == [-1, 5, -1, 7]
    assert a.read().shape == (2, 3, 4)
    assert a.read((1, 2, 3)) == 23


@given(data=st.data())
def test_resizing_keeps_elements_at_their_coordinates(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    ndim = data.draw(st.integers(1, 3))
    sides = st.lists(st.integers(0, 7), min_size=ndim, max_size=ndim).map(tuple)
    shape = data.draw(sides)
    block = data.draw(st.one_of(st.none(), st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim)))
    model = np.arange(1, math.prod(shape) + 1).reshape(shape)
    with nandarray.open(tmp_path_factory.mktemp("resize") / "data.nand", mode="w") as store:
        a = store.create("a", data=model, fill_value=-1, building_block=block)
        for _ in range(3):
            new = data.draw(sides)
            a.resize(new)
            grown = np.full(new, -1)
            common = tuple(slice(0, min(old, n)) for old, n in zip(model.shape, new, strict=True))
            grown[common] = model[common]
            model = grown
            assert a.shape == new
            assert np.array_equal(a[...], model)


def test_resizing_one_axis(a: nandarray.Array) -> None:
    a.resize(5, axis=-1)
    assert a.shape == (2, 3, 5)
    assert a[0, 0].tolist() == [0, 1, 2, 3, 0]
    for shape, axis in (((2, 3), None), (3, 7), ((1, 1), 0)):
        with pytest.raises(nandarray.NandarrayError):
            a.resize(shape, axis=axis)
    assert a.shape == (2, 3, 5)


def test_append(store: nandarray.Store) -> None:
    log = store.create("log", (0, 3), "f8")
    assert log.append([[1, 2, 3]]) == (1, 3)
    assert log.append(np.ones((2, 3))) == (3, 3)
    assert log.append([[7], [8], [9]], axis=1) == (3, 4)
    assert log.append(np.ones((0, 4))) == (3, 4)
    assert log[...].tolist() == [[1, 2, 3, 7], [1, 1, 1, 8], [1, 1, 1, 9]]
    for values, axis, message in (
        (np.ones((2, 3)), 0, r"\(2, 3\).*\(3, 4\)"), (np.ones(4), 0, r"\(4,\)"), (np.ones((1, 4)), 5, "axis 5"),
        ([["x"] * 4], 0, "float64"),
    ):  # fmt: skip
        with pytest.raises(nandarray.NandarrayError, match=message):
            log.append(values, axis)
    assert log.shape == (3, 4)


def test_append_is_one_command(store: nandarray.Store) -> None:
    for options in ({}, {"compression": "lz4"}, {"encryption_key": bytes(32)}):
        given: dict[str, Any] = {"building_block": (4, 4, 4), "fill_value": -1, **options}
        log = store.create("log", (0, 5, 7), ">i4", **given)
        expected = np.empty((0, 5, 7), ">i4")
        for turn, axis in enumerate((0, 0, 1, 2, 0, 2)):
            shape = [*expected.shape]
            shape[axis] = turn + 1
            part = np.asfortranarray(np.random.default_rng(turn).integers(0, 99, shape))[::-1]
            before = store.stat()["writes"]
            assert log.append(part, axis) == log.shape
            assert store.stat()["writes"] == before + 1
            expected = np.concatenate([expected, part.astype(">i4")], axis)
            assert (log[...] == expected).all()
        del store["log"]


def test_astype_converts_what_is_read(a: nandarray.Array) -> None:
    real = a.astype("f4")
    assert real.dtype == np.float32
    assert real[0, 1].dtype == np.float32
    assert type(real[0, 1, 2]) is np.float32
    assert np.asarray(real).dtype == np.float32
    assert (real.shape, real.ndim, real.size, len(real)) == (a.shape, 3, 24, 2)
    assert next(iter(real)).dtype == np.float32
    assert real.array is a
    assert "float32" in repr(real)
    with pytest.raises(nandarray.InvalidError):
        a.astype("nonsense")


def test_fields(store: nandarray.Store) -> None:
    model = np.zeros((3, 2), [("x", "<i4"), ("p", "<f8", (2,)), ("n", [("k", "u1")])])
    a = store.create("a", data=model)
    a["x"] = [1, 2]
    model["x"] = [1, 2]
    a["p"][1:, 0] = [3, 4]
    model["p"][1:, 0] = [3, 4]
    a["n"][0] = (5,)
    model["n"][0] = (5,)
    a[2, 1] = (7, [8, 9], (6,))
    model[2, 1] = (7, [8, 9], (6,))
    assert a[...].tobytes() == model.tobytes()
    assert np.array_equal(a["x"][::-1], model["x"][::-1])
    assert np.array_equal(np.asarray(a["p"]), model["p"])
    assert a["x"][2, 1] == 7
    assert a[["x", "n"]][0].dtype.names == ("x", "n")
    assert a["x"].dtype == np.int32
    assert "'x'" in repr(a["x"])
    assert [row.tolist() for row in a["x"]] == model["x"].tolist()
    uses: list[Callable[[], Any]] = [lambda: a["z"], lambda: a[["x", "z"]]]
    for use in uses:
        with pytest.raises(nandarray.InvalidError, match="'z'; the fields are 'x', 'p', 'n'"):
            use()
    with pytest.raises(nandarray.InvalidError, match="'x'"):
        a["x"] = ["no number"] * 2
    with pytest.raises(nandarray.BadIndexError):
        store.create("plain", 3)["x"]


def test_assigning_the_fill_value_takes_no_space(store: nandarray.Store) -> None:
    a = store.create("a", (64, 64), "f4", fill_value=np.nan, building_block=(16, 16))
    a[...] = 1
    a[:32] = np.nan
    assert np.isnan(a[:32]).all()
    assert (a[32:] == 1).all()
    a[40, ::2] = np.float32("nan")
    assert np.isnan(a[40]).sum() == 32


def test_assigning_the_fill_value_to_no_element_frees_nothing(store: nandarray.Store) -> None:
    for shape in ((), (2, 3)):
        model = np.ones(shape, "i4")
        a = store.create(f"a{len(shape)}", data=model)
        a[False], a[np.False_, ...], a[None, False] = 0, 0, 0
        assert np.array_equal(a[...], model)


def test_arrays_far_larger_than_the_disk(store: nandarray.Store) -> None:
    side = 2**60
    a = store.create("a", (side, 3, side), "i2", fill_value=-1)
    assert a.size == 3 * side * side
    assert a.nbytes == 6 * side * side
    a[side - 1, 1, -4:] = [1, 2, 3, 4]
    a[[5, 2**50], 2, 2**59] = [8, 9]
    assert a[-1, 1, side - 5 :].tolist() == [-1, 1, 2, 3, 4]
    assert a[2**50, :, 2**59].tolist() == [-1, -1, 9]
    assert a[5, ::-1, [2**59, 0]].tolist() == [[8, -1, -1], [-1, -1, -1]]
    a[...] = -1
    assert a[-1, 1, -1] == -1
    assert len(a) == side
    a.resize((2, 1, 2))
    assert a[...].tolist() == [[[-1, -1]], [[-1, -1]]]
    uses: list[Callable[[], Any]] = [
        lambda: store.create("b", (side, side))[:, 0],
        lambda: store["b"].__setitem__(..., 3),
    ]
    for use in uses:
        with pytest.raises(nandarray.InvalidError, match=str(side)):
            use()


def test_the_longest_axis(store: nandarray.Store) -> None:
    a = store.create("a", (2**64 - 1,), "u1")
    a[-1] = 7
    a[2**63] = 5
    assert a[2**64 - 3 :].tolist() == [0, 7]
    assert a[[2**63, 0]].tolist() == [5, 0]
    assert a[:: 2**63].tolist() == [0, 5]
    with pytest.raises(OverflowError):
        len(a)
    with pytest.raises(nandarray.BadIndexError, match=str(2**64)):
        a[2**64]


def test_thirty_two_dimensions(store: nandarray.Store) -> None:
    shape = (1,) * 20 + (2,) * 12
    model = np.arange(2**12, dtype="i4").reshape(shape)
    a = store.create("a", data=model)
    assert np.array_equal(a[...], model)
    assert np.array_equal(a[..., ::-1, 0], model[..., ::-1, 0])
    with pytest.raises(nandarray.InvalidError, match="at most 32 dimensions, not 33"):
        store.create("b", (1,) * 33, "u1")


def test_a_handle_is_cheap_and_shared(store: nandarray.Store, a: nandarray.Array) -> None:
    other = store["g/a"]
    other[0, 0, 0] = 99
    assert a[0, 0, 0] == 99
    assert copy.copy(a).name == "g/a"


def test_values_that_no_integer_has_are_numpys_to_cast(store: nandarray.Store) -> None:
    a = store.create("far", 2, "i4")
    with pytest.warns(RuntimeWarning, match="invalid value encountered in cast"):
        a[:] = np.array([1e20, 1])
    assert a[1] == 1
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        a[:] = np.array([1e20, 2])
    assert a[1] == 1
    with pytest.raises(nandarray.InvalidError):
        a[0] = 10**20
