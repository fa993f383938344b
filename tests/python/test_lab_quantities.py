"""Quantities, ranges and points of sweeps beside exact arithmetic and plain loops; sweep files cut and spoilt."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nandarray import device
from nandarray.errors import InvalidError, NandarrayError
from nandarray.lab.quantities import parse, span
from nandarray.lab.sweep_points import _reduced, measures_of_report
from nandarray.lab.sweep_spec import device_of, read_spec
from nandarray.units import UNITS, format_number, parse_size

#: Column suffix of each kind of unit, and its unit in the terms of descriptions.
COLUMNS = {
    "time": ("_us", 10**6), "size": ("_bytes", 1), "rate": ("_bytes_per_s", 1), "energy": ("_uj", 10**6),
    "energy_per_byte": ("_pj_per_byte", 1), "power": ("_mw", 10**3),
}  # fmt: skip
UNIT = st.sampled_from([(kind, unit) for kind in COLUMNS for unit in UNITS[kind]])
DECIMAL = st.builds(lambda digits, power: Fraction(digits, 10**power), st.integers(-(10**6), 10**6), st.integers(0, 4))
BASE: dict[str, Any] = {"name": "s", "device": "tiny", "axes": {"seed": [1]}, "workload": {"requests": 9}}


def written(number: Fraction) -> str:
    """A decimal number without an exponent."""
    return f"{number.numerator * 10**4 // number.denominator / 10**4:.4f}"


# --- quantities -------------------------------------------------------------------------------------------------------


@given(number=DECIMAL, unit=UNIT, space=st.sampled_from(["", " ", "  "]), form=st.sampled_from(["{}", " {} ", "{}\t"]))
def test_a_quantity_is_its_number_times_its_unit(
    number: Fraction, unit: tuple[str, str], space: str, form: str
) -> None:
    kind, name = unit
    found = parse(form.format(f"{written(number)}{space}{name}"))
    suffix, scale = COLUMNS[kind]
    assert found is not None
    assert (found.unit, found.suffix) == (name, suffix)
    exact = float(written(number)) * float(UNITS[kind][name]) / scale
    assert found.scaled == pytest.approx(exact, rel=1e-12, abs=0)
    assert found.number == float(written(number))


@given(number=st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9), percent=st.integers(0, 10_000))
def test_plain_numbers_and_percentages_have_no_column_of_their_own(number: float, percent: int) -> None:
    found = parse(number)
    assert found is not None
    assert (found.number, found.unit, found.suffix, found.scaled) == (number, "", "", number)
    share = parse(f"{percent} %")
    assert share is not None
    assert share.scaled == percent / 100, "divided, so that 7 % is 0.07"
    assert share.suffix == ""


@given(text=st.text(max_size=12) | st.from_regex(r"[-+]?[0-9_.eE]{1,8} ?[A-Za-z/%µ]{0,5}", fullmatch=True))
def test_any_text_is_a_quantity_or_none(text: str) -> None:
    found = parse(text)
    if found is None:
        return
    assert math.isfinite(found.number)
    assert math.isfinite(found.scaled)
    again = parse(f"{found.number!r} {found.unit}")
    assert again == found


@pytest.mark.parametrize("value", [10**400, math.inf, -math.inf, math.nan, "1e999", "9" * 400, True, None, b"1", 1j])
def test_what_no_float_holds_is_no_quantity(value: Any) -> None:
    assert parse(value) is None


# --- ranges -----------------------------------------------------------------------------------------------------------


@given(first=DECIMAL, step=DECIMAL, count=st.integers(0, 40), over=st.integers(0, 9), unit=UNIT | st.just(("", "")))
def test_steps_lead_to_the_end_or_stop_before_it(
    first: Fraction, step: Fraction, count: int, over: int, unit: tuple[str, str]
) -> None:
    assume(step != 0)
    last = first + count * step + step * over / 10
    begin, size, end = (float(number) for number in (first, step, last))
    name = unit[1]
    said = [f"{number!r} {name}" if name else number for number in (begin, end, size)]
    values = span({"from": said[0], "to": said[1], "step": said[2]}, "x")
    numbers = [float(str(value).split(" ")[0]) for value in values]
    exact = [first + n * step for n in range(count + 1)]
    assert len(numbers) == len(exact), (said, values)
    for number, right in zip(numbers, exact, strict=True):
        assert number == pytest.approx(float(right), rel=1e-9, abs=1e-9 * max(abs(begin), abs(end), 1e-3))
    assert {str(value).partition(" ")[2] for value in values} == {name}


@given(first=st.integers(-(2**62), 2**62), width=st.integers(0, 2**62), steps=st.integers(2, 12))
def test_whole_ends_give_whole_numbers_evenly_apart(first: int, width: int, steps: int) -> None:
    values = span({"from": first, "to": first + width, "steps": steps}, "x")
    wanted = [round(first + Fraction(width * n, steps - 1)) for n in range(steps)]
    assert values == list(dict.fromkeys(wanted))
    assert all(type(value) is int for value in values)
    assert (values[0], values[-1]) == (first, first + width)


@given(first=st.integers(1, 2**40), factor=st.integers(2, 64), steps=st.integers(2, 8))
def test_a_logarithmic_range_multiplies_by_one_factor(first: int, factor: int, steps: int) -> None:
    last = first * factor ** (steps - 1)
    assume(last < 2**62)
    values = span({"from": first, "to": last, "steps": steps, "scale": "log"}, "x")
    assert (values[0], values[-1]) == (first, last)
    for n, value in enumerate(values):
        assert value == pytest.approx(first * factor**n, rel=1e-9)
    if last < 2**50:
        assert values == [first * factor**n for n in range(steps)]


@given(power=st.integers(9, 45), factor=st.integers(1, 6), steps=st.integers(2, 4), unit=st.sampled_from(["B", "KiB"]))
def test_a_range_of_sizes_gives_sizes_down_to_the_byte(power: int, factor: int, steps: int, unit: str) -> None:
    first, last = 1 << power, 1 << power + factor * (steps - 1)
    divisor = {"B": 1, "KiB": 1024}[unit]
    assume(first >= divisor)
    about = {"from": f"{first // divisor} {unit}", "to": f"{last} B", "steps": steps, "scale": "log"}
    assert [parse_size(value, "x") for value in span(about, "x")] == [first << factor * n for n in range(steps)]


def test_a_range_of_seeds_keeps_every_digit() -> None:
    low = 2**60 + 1
    assert span({"from": low, "to": low + 6, "step": 3}, "x") == [low, low + 3, low + 6]
    said = BASE | {"axes": {"seed": {"from": low, "to": low + 3, "steps": 4}}}
    spec = read_spec(said)
    assert [spec.settings(point)["seed"] for point in spec.points()] == [low, low + 1, low + 2, low + 3]
    assert [spec.cells(point)["seed"] for point in spec.points()] == [low, low + 1, low + 2, low + 3]


@pytest.mark.parametrize(
    "axes", [{"seed": [1, 2**63]}, {"workload.offset": [0, "8388608 TiB"]}, {"workload.rate": [-(2**70)]}]
)
def test_a_number_that_no_table_holds_is_refused_before_anything_is_measured(axes: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"axes: .*: -?\d+ is beyond 9,223,372,036,854,775,807"):
        read_spec(BASE | {"axes": axes})
    assert read_spec(BASE | {"axes": {"seed": [2**63 - 1]}}).axes[0].cells == (2**63 - 1,)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"from": 0, "to": 100_001, "step": 1}, "steps of 1 do not lead from 0 to 100001"),
        ({"from": 0, "to": 1, "steps": 100_001}, "steps must be a number of values from 2 to 100000, not 100001"),
        ({"from": 0, "to": 1, "steps": 2.0}, "not 2.0"),
        ({"from": 1, "to": 2, "step": "5 %"}, "the step is of another kind than the ends"),
        ({"from": "1 us", "to": "2 us", "step": 1}, "the step is of another kind than the ends"),
        ({"from": "1 us", "to": "2 us", "step": "1 B"}, "the step is of another kind than the ends"),
        ({"from": "7 %", "to": 0.3, "steps": 2}, "'7 %' and 0.3 are of different kinds"),
        ({"from": -1, "to": 1, "steps": 3, "scale": "log"}, "both ends above 0"),
        ({"from": 1e-300, "to": 1e300, "steps": 3, "scale": "log"}, "between 1e-300 and 1e+300 are too large"),
        ({"from": True, "to": 2, "steps": 2}, "a value must be a number, or one with a unit, not True"),
        ({"from": 1, "to": None, "steps": 2}, "must be a number, or one with a unit, not None"),
        ({"to": 2, "steps": 2}, "must have from and to"),
    ],
)
def test_a_range_that_is_none_says_so_with_its_numbers(about: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidError) as raised:
        span(about, "depth")
    assert str(raised.value).startswith("depth: ")
    assert says in str(raised.value)


# --- points -----------------------------------------------------------------------------------------------------------

AXES = {
    "geometry.channels": [1, 2, 4], "workload.depth": [1, 8], "nand.t_read": ["20 us", "1 ms", "3 us"],
    "seed": [1, 2, 3], "precondition": ["empty", 0.5], "ftl.over_provisioning": ["25 %", 0.5, "30 %"],
}  # fmt: skip


@given(keys=st.lists(st.sampled_from(list(AXES)), min_size=1, max_size=4, unique=True), data=st.data())
def test_points_are_nested_loops_over_groups_of_axes(keys: list[str], data: st.DataObject) -> None:
    axes = {key: AXES[key] for key in keys}
    zipped = []
    for length in (2, 3):
        same = [key for key in keys if len(AXES[key]) == length]
        chosen = data.draw(st.lists(st.sampled_from(same), unique=True, max_size=3)) if same else []
        if chosen:
            zipped.append(chosen)
    spec = read_spec(BASE | {"axes": axes, "zip": zipped})
    group_of = {key: next((tuple(one) for one in zipped if key in one), (key,)) for key in keys}
    groups = list(dict.fromkeys(group_of[key] for key in keys))
    wanted = []
    for places in itertools.product(*(range(len(AXES[group[0]])) for group in groups)):
        at = dict(zip(groups, places, strict=True))
        wanted.append({key: AXES[key][at[group_of[key]]] for key in keys})
    assert [spec.settings(point) for point in spec.points()] == wanted
    assert spec.count == len(wanted)
    if zipped == [] and len(keys) > 1:
        assert spec.settings(spec.points()[1])[keys[0]] == AXES[keys[0]][0], "the last axis runs fastest"


def test_a_points_device_has_the_files_changes_and_its_own_over_them() -> None:
    said = BASE | {
        "set": {"nand": {"t_read": "10 us"}, "geometry.channels": 2},
        "axes": {"geometry.channels": [1, 4], "device": ["tiny", "mqsim-ideal"], "seed": [7]},
    }
    spec = read_spec(said)
    for point in spec.points():
        settings = spec.settings(point)
        built = device_of(spec.shared, settings)
        wanted = device.load(settings["device"]).with_(
            {"nand.t_read": "10 us", "geometry.channels": settings["geometry.channels"]}
        )
        assert built == wanted
        assert spec.cells(point)["device"] == settings["device"]


def test_two_files_that_say_the_same_are_one_sweep(tmp_path: Path) -> None:
    one, other = tmp_path / "a.toml", tmp_path / "b" / "a.toml"
    other.parent.mkdir()
    one.write_text(
        'device = "tiny"\nset.geometry.channels = 2\naxes.workload.size = ["4 KiB", "8 KiB"]\n'
        "[workload]\nrequests = 5\n"
    )
    other.write_text(
        'name = "a"\ndevice = "tiny"\naxes."workload.size" = ["4KiB", "8192"]\n[set.geometry]\nchannels = 2\n'
        "[workload]\nrequests = 5\n"
    )
    first, second = read_spec(one), read_spec(other)
    assert first.resolved == second.resolved
    assert [axis.values for axis in first.axes] == [(4096, 8192)]
    assert [axis.column for axis in second.axes] == ["workload.size"]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [("4 KiB", 4096), (512, 512), ({"4 KiB": 3, "512": 1}, {"4096": 3, "512": 1}), ({"1KiB": 0.5}, {"1024": 0.5})],
)
def test_sizes_of_a_workload_are_bytes(size: Any, wanted: Any) -> None:
    spec = read_spec(BASE | {"workload": {"requests": 9, "size": size, "working_set": "1 MiB"}})
    assert spec.shared["workload"] == {"requests": 9, "size": wanted, "working_set": 1 << 20}
    json.dumps(spec.shared)


TOML = (
    'name = "cut"\ntitle = "T"\ndevice = "tiny"\nprecondition = "empty"\nseed = 3\nzip = true\n'
    'set.nand.t_read = "30 us"\n[axes]\ngeometry.channels = [1, 2]\nworkload.depth = {from = 1, to = 9, steps = 2}\n'
    '[workload]\nrequests = 9\nsize = "4 KiB"\n[pareto]\niops = "max"\n[cost]\ndie = 2\n'
)


def test_a_sweep_file_cut_anywhere_is_read_or_named(tmp_path: Path) -> None:
    file = tmp_path / "cut.toml"
    whole = 0
    for end in range(len(TOML) + 1):
        file.write_text(TOML[:end])
        said = ""
        try:
            spec = read_spec(file)
        except NandarrayError as error:
            said = str(error)
        if said:
            assert said.startswith(str(file)), (end, said)
            assert "\n" not in said, (end, said)
            continue
        whole += 1
        assert spec.name == "cut"
        assert len(spec.points()) == spec.count
    assert 0 < whole < len(TOML) / 4


# --- measures ---------------------------------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(-100, 100), max_size=6))
def test_a_column_is_reduced_as_its_name_says(numbers: list[int]) -> None:
    how = {"mean", "min", "max", "sum", "first", "last"}
    found = {one: _reduced("m", numbers, one) for one in how}
    if not numbers:
        assert set(found.values()) == {None}
        return
    assert found == {
        "mean": sum(numbers) / len(numbers), "min": sorted(numbers)[0], "max": sorted(numbers)[-1],
        "sum": sum(numbers), "first": numbers[0], "last": numbers[-1],
    }  # fmt: skip


def test_a_column_of_words_has_no_mean() -> None:
    for how in ("mean", "min", "max", "sum"):
        for column in (["a"], [1, None], [1.5, [2]]):
            with pytest.raises(InvalidError, match=rf"measure: x: {how} of .*, which is no number"):
                _reduced("measure: x", column, how)
    assert [_reduced("m", ["a", None], how) for how in ("first", "last")] == ["a", None]


def test_measures_of_a_report_without_latencies_or_cores_are_none() -> None:
    done = {"bytes_per_s": 0.0, "iops": 0.0, "failed": 3, "latency": None}
    used = {"channels": [0.25, 0.75], "dies": [], "cores": [], "link_up": 0.5, "link_down": 0.75}
    energy = {"device_j": 1.0, "device_w": 2.0, "device_j_per_byte": None}
    report = {"all": done, "energy": energy, "utilisation": used, "elapsed_s": 0.0, "management": None}
    found = measures_of_report(report)
    assert found["channels_busy"] == 0.5
    assert found["link_busy"] == 0.75
    assert {name for name, value in found.items() if value is None} == {
        "latency_mean_us", "latency_p50_us", "latency_p99_us", "latency_p99_9_us", "latency_max_us", "j_per_byte",
        "write_amplification", "dies_busy", "cores_busy",
    }  # fmt: skip
    assert format_number(found["j_per_byte"]) == "-"
