"""Each key of descriptions through Python: wrong kinds, the ends of its range, texts and TOML; spoilt files."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nandarray import device
from nandarray.cli import app
from nandarray.device import Description, Key
from nandarray.errors import DescriptionError, InvalidError
from nandarray.units import UNITS

TINY = device.load("tiny")
LISTED = device.keys()
KEYS = dict(zip((one.key for one in LISTED), LISTED, strict=True))
WRONG: list[Any] = ["", "x", -1, "2.5 parsecs", [], {"a": 1}, True, "1e400", 2**64, None]
SECTIONS = list(dict.fromkeys(key.partition(".")[0] for key in KEYS))
WHOLE = re.compile(r"a whole number from (-?[\d,]+) to (-?[\d,]+)")


def changed(key: str, value: Any) -> Description | DescriptionError:
    try:
        return TINY.with_({key: value})
    except DescriptionError as error:
        return error


def keys_of(section: str) -> list[str]:
    return [key for key in KEYS if key.startswith(f"{section}.")]


def mentions(error: DescriptionError, key: str) -> bool:
    name = key.rpartition(".")[2]
    return any(one["key"].startswith(key) or name in one["text"] + one["allowed"] for one in error.problems)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_wrong_value_is_refused_with_the_key_or_is_a_device(section: str) -> None:
    for key in keys_of(section):
        refused = 0
        for value in WRONG:
            found = changed(key, value)
            if isinstance(found, DescriptionError):
                refused += 1
                assert found.problems, (key, value)
                assert mentions(found, key), (value, found.problems)
                assert len(str(found)) < 3000
                continue
            assert Description.parse(found.to_toml()) == found, (key, value)
            assert found.source(key) == "set by the caller"
        assert refused >= len(WRONG) // 2, key


@pytest.mark.parametrize("section", SECTIONS)
def test_a_whole_number_is_within_its_range_or_refused_with_it(section: str) -> None:
    for key in keys_of(section):
        found = WHOLE.search(KEYS[key].allowed)
        if found is None:
            continue
        low, high = (int(end.replace(",", "")) for end in found.groups())
        for beyond in (low - 1, high + 1):
            error = changed(key, beyond)
            assert isinstance(error, DescriptionError), (key, beyond)
            own = [one for one in error.problems if one["key"] == key]
            assert own, error.problems
            assert KEYS[key].allowed.split(",")[0] in own[0]["allowed"]
        for end in (low, high):
            within = changed(key, end)
            if isinstance(within, DescriptionError):  # another key bounds it more closely, and says so
                said = "".join(one["text"] for one in within.problems if one["key"] == key)
                assert "is out of range" not in said, (key, end)
            else:
                assert within[key] == end


@pytest.mark.parametrize("section", SECTIONS)
def test_a_quantity_takes_each_unit_that_it_lists_and_no_other(section: str) -> None:
    for key in keys_of(section):
        about = KEYS[key]
        if not about.number or ", in one of " not in about.allowed:
            continue
        listed = re.split(r", | or ", about.allowed.partition(", in one of ")[2].replace('"', ""))
        kinds = {kind for kind, units in UNITS.items() if set(units) & set(listed)}
        own = [(kind, unit) for kind in kinds for unit in UNITS[kind] if unit in listed]
        others = [(kind, next(iter(units))) for kind, units in UNITS.items() if kind not in kinds]
        for kind, unit in own + others:
            found = changed(key, f"1 {unit}")
            said = "".join(one["text"] for one in found.problems) if isinstance(found, DescriptionError) else ""
            if kind in kinds:
                assert "has the unit" not in said, (key, unit, said)
            else:
                assert isinstance(found, DescriptionError), (key, unit, about.allowed)
                assert mentions(found, key)


def test_every_preset_says_the_same_after_its_own_text() -> None:
    for name, found in device.devices().items():
        again = Description.parse(found.to_toml())
        assert again == found, name
        assert again.values == found.values
        assert [again.source(key) for key in again.values] == [found.source(key) for key in found.values]
        assert again.effective == found.effective
        assert found.to_dict() == json.loads(json.dumps(found.to_dict()))
        assert {key for key in KEYS if not key.startswith("compute.core.")} <= set(found.values) <= set(KEYS)
        for about in KEYS.values():
            assert isinstance(about, Key)
            assert about.meaning
            assert about.allowed


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["geometry.channels", "geometry.ways", "nand.t_erase", "ftl.hot_cold"]), max_size=6))
def test_the_last_change_of_a_key_counts(keys: list[str]) -> None:
    options = {
        "geometry.channels": [1, 2, 8], "geometry.ways": [1, 2], "nand.t_erase": ["1 ms", "2 ms"],
        "ftl.hot_cold": [True, False],
    }  # fmt: skip
    one, together = TINY, {}
    for n, key in enumerate(keys):
        value = options[key][n % len(options[key])]
        one, together[key] = one.with_({key: value}), value
    assert one == TINY.with_(together)
    assert one.overrides == together
    for key in options:
        assert one[key] == together.get(key, TINY[key])


def test_changes_may_be_numpys_and_are_plain_data() -> None:
    for value in (np.int64(2), np.uint8(2), np.array(2), 2, "2"):
        assert TINY.with_({"geometry.channels": value}) == TINY.with_(geometry={"channels": 2}), repr(value)
    assert TINY.with_(ftl__hot_cold=np.bool_(True)) == TINY.with_(ftl__hot_cold=True)
    two = TINY.with_(nand__t_read=np.array(["20 us", "50 us"]))
    assert two == TINY.with_(nand__t_read=["20 us", "50 us"])
    assert json.loads(two.texts()[1]) == two.overrides


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"geometry.channels": math.nan}, "geometry.channels = nan is no whole number"),
        ({"nand.t_read": [math.inf]}, r"nand.t_read = \[inf\]"), ({5: 1}, "5 is no key of a description"),
        ({"geometry.channels": {1}}, r"geometry.channels = \{1\} is no value of a description"),
        ({"geometry": {"channels": b"2"}}, "geometry.channels = b'2' is no value"), ({"a": 1j}, "a = 1j is no value"),
    ],
)  # fmt: skip
def test_a_change_that_no_text_has_is_named(changes: Any, says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        TINY.with_(changes)


def test_effective_figures_follow_from_the_resolved_ones() -> None:
    for name, found in device.devices().items():
        geometry, facts = found.resolved["geometry"], found.effective
        dies = geometry["channels"] * geometry["ways"] * geometry["dies"]
        assert facts["dies"] == dies, name
        assert facts["bus_bytes_per_s"] == geometry["channels"] * found.resolved["bus"]["bytes_per_s"]
        pages = dies * geometry["planes"] * geometry["blocks"] * geometry["pages"]
        assert facts["raw_bytes"] == pages * geometry["page_bytes"]
        assert 0 < facts["user_bytes"] <= facts["raw_bytes"]
        link = found.resolved["link"]
        whole = link["packet_payload_bytes"] + link["packet_overhead_bytes"]
        wanted = link["bytes_per_s"] * link["packet_payload_bytes"] / whole
        assert facts["link_bytes_per_s"] == pytest.approx(wanted, rel=1e-6)
        rows = dict(device.effective_rows(found))
        assert rows["link, data"] == f"{facts['link_bytes_per_s'] / 1e9:.3g} GB/s"
        assert rows["a lone read of 4 KiB"] == f"{facts['read_4k_ps'] / 1e6:.4g} us"


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_description_cut_behind_any_line_is_read_or_refused(tmp_path: Path) -> None:
    lines = TINY.to_toml().splitlines(keepends=True)
    file = tmp_path / "cut.toml"
    for end in range(0, len(lines), 5):
        file.write_text("".join(lines[:end]))
        try:
            found = device.load(file)
        except DescriptionError as error:
            problems = error.problems
        else:
            assert found.name == "tiny"
            continue
        assert problems
        assert all(one["text"] for one in problems), end


@pytest.mark.parametrize("seed", range(6))
def test_a_description_with_bytes_changed_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    text = TINY.to_toml().encode()
    file = tmp_path / "spoilt.toml"
    for _ in range(25):
        spoilt = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        file.write_bytes(spoilt)
        try:
            found = device.load(file)
        except (DescriptionError, InvalidError):
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {bytes(spoilt)!r}") from error
        assert Description.parse(found.to_toml()) == found, (seed, bytes(spoilt))


def test_a_base_that_leads_to_itself_or_nowhere_is_named() -> None:
    for base in ("mine", "none", "tiny.toml", "../tiny", "", 5, "TINY"):
        text = f'name = "mine"\nsummary = "x"\nbase = {json.dumps(base)}\n'
        with pytest.raises(DescriptionError) as raised:
            Description.parse(text)
        assert any(one["key"] == "base" for one in raised.value.problems), raised.value.problems


@pytest.mark.parametrize(
    "text", ["", "tiny\n", " tiny", "Tiny", "\u202etiny", "tiny/", "a" * 300 + ".toml", "x\x00.toml"]
)
def test_a_name_that_is_no_preset_is_no_device(text: str) -> None:
    with pytest.raises((DescriptionError, OSError, ValueError)):
        device.load(text)


# --- the command line -------------------------------------------------------------------------------------------------


def call(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["device", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
    assert "please report" not in done.output, (words, done.output)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("key", list(KEYS)[::30])
def test_settings_of_the_command_line_are_those_of_python(key: str) -> None:
    for value in ("7", "x", "1 us", "[1, 2]", "", '"'):
        code, out, said = call("show", "tiny", "--json", "--set", f"{key}={value}")
        found = changed(key, value)
        if isinstance(found, DescriptionError):
            assert code == 1, (value, out)
            assert said.count("\n") == 1
            assert key in said or found.problems[0]["key"] in said
        elif code == 0:
            assert json.loads(out)["resolved"] == found.to_dict()["resolved"], value


def test_each_section_lists_its_keys_and_no_other() -> None:
    for section in SECTIONS[::3]:
        code, out, _ = call("keys", section, "--json")
        assert code == 0
        assert [one["key"] for one in json.loads(out)] == keys_of(section)
    for wrong in ("geo", "*"):
        code, _, said = call("keys", wrong)
        assert code == 2
        assert f"{wrong!r} is no section; there are" in " ".join(said.replace("│", " ").split())


def test_rates_and_sizes_of_the_list_are_those_of_the_descriptions() -> None:
    rows = {row["name"]: row for row in json.loads(call("list", "--json")[1])}
    for name, found in device.devices().items():
        assert rows[name] == {"name": name, "summary": found.summary, **found.effective}
        assert math.isfinite(found.effective["read_4k_ps"])
