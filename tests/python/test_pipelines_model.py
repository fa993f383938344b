"""Descriptions of pipelines, and the path that a program is on, beside definitions: no program is compiled or run.

Files of pipelines have any value in any place; graphs of steps are random, with their order by brute force; flows of
bytes are enumerated.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray import Box, InvalidError
from nandarray.cli.program import pipeline
from nandarray.cli.program.pipeline import Spec, StepSpec
from nandarray.programs.advise import flows
from nandarray.programs.advise.flows import AROUND, READ, WITHIN, WRITE, Flows

GOOD: dict[str, Any] = {
    "inputs": {"log": "data.nand:/log", "more": "more.npy"},
    "steps": {
        "rows": {"program": "parse", "inputs": ["log"], "scalars": {"fields": ["int", "int"], "low": 3}},
        "took": {"program": "took.py:took", "inputs": "rows", "form": "interpreted", "task_bytes": "1KiB"},
        "both": {"program": "b.c", "inputs": ["took", "x.npy"], "flags": ["-DX"], "stream": False, "trust": True},
    },
    "outputs": {"out": {"from": "both.twice", "to": "data.nand:/out"}, "rows": "rows"},
}
JUNK: list[Any] = [None, True, 0, -1, 1.5, 2**70, "", "x", "rows", "a b", [], {}, [1], ["rows", "rows"], {"a": 1}, [[]]]


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from paths(one, (*before, key))


def changed(path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    made = copy.deepcopy(GOOD)
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    if new is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return made


def test_a_file_with_any_value_in_any_place_is_refused_in_a_line_or_read(tmp_path: Path) -> None:
    file, taken = tmp_path / "work" / "p.json", 0
    refused: list[tuple[str, str]] = []
    file.parent.mkdir()
    for path in paths(GOOD):
        for new in (*JUNK, ...) if path else JUNK:
            file.write_text(json.dumps(changed(path, new)))
            what = f"{path} becomes {new!r}"
            try:
                spec = pipeline.read_spec(file)
            except InvalidError as error:
                refused.append((what, str(error)))
                continue
            taken += 1
            assert spec.steps, what
            for step in spec.steps.values():
                assert step.inputs, what
                assert all(isinstance(word, str) and word for word in (step.program, *step.inputs)), what
                assert all(type(value) is int and value > 0 for value in step.settings.values() if value != "x"
                           and not isinstance(value, str)), what  # fmt: skip
            for name, word in spec.outputs.items():
                assert word.partition(".")[0] in spec.steps, (what, name)
    assert taken > 40
    for what, says in refused:
        assert says.startswith(f"{file}: "), what
        assert "\n" not in says, what


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.json", "[" * 100_000, "p.json is no JSON"),
        ("p.json", '{"steps": ', "p.json is no JSON"),
        ("p.toml", "x = " + "[" * 100_000, "p.toml is no TOML"),
        ("p.toml", "steps = [", "p.toml is no TOML"),
        ("p.json", "[]", "a pipeline must be a table, not []"),
    ],
    ids=range(5),
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidError) as caught:
        pipeline.read_spec(tmp_path / name)
    assert says in str(caught.value)
    (tmp_path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidError, match=rf"{name} must be a pipeline in TOML or JSON, in UTF-8"):
        pipeline.read_spec(tmp_path / name)


@pytest.mark.parametrize("seed", range(40))
def test_steps_come_behind_those_that_they_need_or_wait_for_each_other(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"s{number}" for number in range(rng.randrange(1, 8))]
    needs: dict[str, set[str]] = {}
    for at, name in enumerate(names):
        pool = names if rng.random() < 0.15 else names[:at]
        needs[name] = set(rng.sample(pool, rng.randrange(min(len(pool), 3) + 1)))
    listed = rng.sample(names, len(names))
    words = {
        name: (
            *(f"{one}{rng.choice(['', '.y', '.z'])}" for one in sorted(needs[name])),
            rng.choice(["d.nand:/x", "s0.npy"]),
        )
        for name in names
    }
    spec = Spec("p.toml", {}, {name: StepSpec("sum", words[name]) for name in listed})

    def reached(name: str) -> set[str]:
        found, new = set[str](), set(needs[name])
        while new:
            found |= new
            new = set().union(*(needs[one] for one in new)) - found
        return found

    circular = [name for name in names if name in reached(name)]
    if not circular:
        order = pipeline._order(spec)
        assert sorted(order) == sorted(names)
        for at, name in enumerate(order):
            assert needs[name] <= set(order[:at]), f"seed {seed}: {name} in {order}"
        return
    stuck = {name for name in names if name in circular or reached(name) & set(circular)}
    with pytest.raises(InvalidError) as caught:
        pipeline._order(spec)
    assert str(caught.value) == f"p.toml: steps wait for each other: {', '.join(one for one in listed if one in stuck)}"


@given(st.lists(st.sampled_from(["a", "b", "a-2", "a-3", "a b", "é", "", "a_b"]), min_size=1, max_size=7))
def test_programs_of_a_chain_have_names_of_their_own(sources: list[str]) -> None:
    spec = pipeline.chain(sources, ["d.nand:/x", "y.npy"], lambda source: source)
    assert [step.program for step in spec.steps.values()] == sources
    assert dict(spec.inputs) == {"1": "d.nand:/x", "2": "y.npy"}
    last: tuple[str, ...] = ("1", "2")
    for name, step in spec.steps.items():
        assert step.inputs == last
        last = (name,)
    assert pipeline._order(spec) == list(spec.steps)


def test_inputs_and_numbers_are_put_in_their_places() -> None:
    spec = Spec("p.toml", {"log": "a"}, {"one": StepSpec("p", ("log",)), "two": StepSpec("q", ("one",), {"low": 1})})
    assert spec.given(["log=b:/c=d"]).inputs == {"log": "b:/c=d"}
    made = spec.numbered({"one.low": 2, "two.high": 3})
    assert [dict(step.scalars) for step in made.steps.values()] == [{"low": 2}, {"low": 1, "high": 3}]
    assert dict(spec.steps["one"].scalars) == {}
    single = Spec("p.toml", {}, {"one": StepSpec("p", ("x",))})
    assert single.numbered({"low": 2, "one.high": 1}).steps["one"].scalars == {"low": 2, "high": 1}
    for call, says in [
        (lambda: spec.given(["log"]), "'log': an input of a pipeline is written NAME=WHERE"),
        (lambda: spec.given(["log="]), "'log=': an input of a pipeline is written"),
        (lambda: spec.given(["lag=x"]), "p.toml has no input 'lag'; did you mean 'log'?"),
        (lambda: spec.numbered({"low": 1}), "scalar 'low': say of which step, like one.low"),
        (lambda: spec.numbered({"three.low": 1}), "scalar 'three.low': there is no step 'three'; there is one, two"),
    ]:
        with pytest.raises(InvalidError) as caught:
            call()
        assert says in str(caught.value)


# --- the path of a program --------------------------------------------------------------------------------------------


def test_the_path_follows_from_the_side_that_takes_the_data() -> None:
    for counts in itertools.product((0, 1, 7, 8), repeat=4):
        made = Flows(*counts)
        from_store, from_host, to_store, to_host = counts
        to_the_host = READ if from_store else AROUND
        wanted = to_the_host if to_host >= to_store else WRITE if from_host else WITHIN
        assert flows.path_of(made) == wanted, counts
        assert made.link_device + made.link_host == sum(counts)
        taken = from_host if wanted in (WRITE, AROUND) else from_store
        assert made.ratio == (to_store + to_host) / max(taken, 1), counts


@given(st.data())
def test_a_part_of_an_input_is_its_first_rows(store: nandarray.Store, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
    most = data.draw(st.sampled_from([1, 8, 40, 200, 1 << 20]))
    array = np.arange(int(np.prod(shape)), dtype="<f8").reshape(shape)
    if "x" in store:
        del store["x"]
    store["x"] = array
    rows = max(1, most // max(1, 8 * int(np.prod(shape[1:]))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "SAMPLE_BYTES", most)
        wanted = array[:rows] if shape else array
        np.testing.assert_array_equal(flows.part(array), wanted)
        np.testing.assert_array_equal(flows.part(store["x"]), wanted)
        if shape and shape[0] > 2:
            boxed = array[1::2]
            np.testing.assert_array_equal(flows.part(Box(store["x"], np.s_[1::2])), boxed[:rows])
