"""The greatest and least elements with their places, over all doors, against a sort."""

from __future__ import annotations

from typing import Any

import doors
import numpy as np
import pytest

from nandarray import InvalidError


@pytest.fixture(scope="module", params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("top") / "data.nand") as opened:
        yield opened


def put(store: Any, data: np.ndarray[Any, Any]) -> Any:
    if "x" in store:
        del store["x"]
    array = store.create("x", data.shape, data.dtype, building_block=(64,) * data.ndim)
    array[...] = data
    return array


def best(data: np.ndarray[Any, Any], k: int, largest: bool) -> np.ndarray[Any, Any]:
    """Places of the best elements: NaN first, then by value, then by place."""
    flat = data.reshape(-1)
    numbers = flat.view("i8") if flat.dtype.kind == "M" else flat
    _, ranks = np.unique(numbers, return_inverse=True)
    ranks = -ranks if largest else ranks
    return np.lexsort((np.arange(flat.size), ranks, ~(np.isnat(flat) if flat.dtype.kind == "M" else flat != flat)))[:k]


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f4", "f8", "M8[s]"])
@pytest.mark.parametrize("largest", [True, False])
def test_as_a_sort(store: Any, dtype: str, largest: bool) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for high in (3, 10**6):
        numbers = rng.integers(0, high, (40, 50))
        data = numbers.astype(dtype) if dtype != "M8[s]" else numbers.view(dtype)
        if dtype[0] in "fM":
            data[rng.random(data.shape) < 0.002] = np.nan if dtype[0] == "f" else np.datetime64("NaT")
        key = np.s_[5:, ::2]
        for k in (1, 70):
            found = put(store, data).reduce(
                "top", k=k, largest=largest, key=key, task_bytes=int(rng.choice([256, 1 << 20]))
            )
            places = best(data[key], k, largest)
            np.testing.assert_array_equal(found["places"], places)
            np.testing.assert_array_equal(found["values"], data[key].reshape(-1)[places])
            assert found["values"].dtype == data.dtype


def test_of_few_and_what_is_refused(store: Any) -> None:
    array = put(store, np.array([2, 9, 4]))
    assert array.reduce("top", k=70)["places"].tolist() == [1, 2, 0]
    assert array.reduce("top", k=70, key=np.s_[:0])["values"].tolist() == []
    for options, says in (
        ({}, "k must be from 1 to 65536, not None"),
        ({"k": 0}, "k must be from 1 to 65536, not 0"),
        ({"k": 1, "largest": "no"}, "largest must be True or False"),
        ({"k": 1, "sorted": True}, "top takes no 'sorted'"),
        ({"k": 1, "keepdims": True}, "keepdims is for results of one number"),
    ):
        with pytest.raises(InvalidError, match=says):
            array.reduce("top", **options)
