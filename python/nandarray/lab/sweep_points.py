"""Measuring points of a sweep: what runs in the processes.

A batch is many points at once, so that handing them over costs little. An error of a point becomes that point's result;
a batch always comes back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from nandarray import Synthetic, Trace, replay
from nandarray.device import Description, load
from nandarray.errors import InvalidError
from nandarray.lab import registry
from nandarray.lab._files import plain
from nandarray.lab.claims import near
from nandarray.lab.cost import cost
from nandarray.lab.experiment import Context, Experiment, Result
from nandarray.lab.parameters import resolve
from nandarray.lab.sweep_spec import HOW, described, device_of

__all__ = ["batch", "measures_of_report"]

Found = dict[str, Any]


def batch(shared: Mapping[str, Any], points: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Found]:
    """Measure several points, each a number and its settings; ``shared`` is ``Spec.shared``.

    For each there is ``point``, ``seconds``, and either ``measures`` or ``error`` with ``kind``.
    """
    found = []
    for number, settings in points:
        start = time.perf_counter()
        one: Found = {"point": number}
        try:
            one["measures"] = plain(_measure(shared, settings))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the native module is no Exception
            one |= failure(error)
        one["seconds"] = round(time.perf_counter() - start, 6)
        found.append(one)
    return found


def failure(error: BaseException) -> Found:
    """Return an error as its kind and its message on one line."""
    return {"kind": type(error).__name__, "error": " ".join(str(error).split()) or type(error).__name__}


def _measure(shared: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    seed = settings.get("seed", shared["seed"])
    if shared["kind"] == "experiment":
        return _of_experiment(shared, settings, seed)
    own = {**shared["workload"], **_section(settings, "workload.")}
    workload: Synthetic | Trace
    try:
        if shared["kind"] == "trace":
            workload = Trace(shared["trace"], **own)
        else:
            size = own.get("size")
            if isinstance(size, Mapping):
                own["size"] = {int(key): weight for key, weight in size.items()}
            hot = own.get("hot")
            workload = Synthetic(**{"seed": seed, **own, "hot": None if hot is None else tuple(hot)})
    except TypeError as error:
        raise InvalidError(f"workload: {error}") from None
    built = device_of(shared, settings)
    state = settings.get("precondition", shared["precondition"])
    done = replay(workload, device=built, precondition=state, seed=seed)
    return measures_of_report(done.data) | {"cost": cost(built, shared["cost"])}


def _section(settings: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key.removeprefix(section): value for key, value in settings.items() if key.startswith(section)}


def measures_of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a report for a sweep's table, None for missing ones.

    ``docs/reference/replay-report.md`` has a report's keys.
    """
    done, energy, used = report["all"], report["energy"], report["utilisation"]
    took = done["latency"] or {}
    management = report.get("management") or {}

    def mean(shares: Sequence[float]) -> float | None:
        return sum(shares) / len(shares) if shares else None

    return {
        "bytes_per_s": done["bytes_per_s"],
        "iops": done["iops"],
        **{f"latency_{key}": took.get(key) for key in ("mean_us", "p50_us", "p99_us", "p99_9_us", "max_us")},
        "elapsed_s": report["elapsed_s"],
        "failed_requests": done["failed"],
        "device_j": energy["device_j"],
        "device_w": energy["device_w"],
        "j_per_byte": energy["device_j_per_byte"],
        "write_amplification": management.get("write_amplification"),
        "channels_busy": mean(used["channels"]),
        "dies_busy": mean(used["dies"]),
        "cores_busy": mean(used["cores"]),
        "link_busy": max(used["link_up"], used["link_down"]),
    }


@lru_cache(maxsize=4)
def _find(name: str, _digest: str) -> Experiment:
    """Find an experiment once: looking through installed packages takes longer than many a point."""
    return registry.find(name)


def _of_experiment(shared: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    experiment = _find(shared["experiment"], shared["digest"])
    given = {**shared["workload"], **_section(settings, "parameters.")}
    changes = described(shared, settings)[1]
    built = None
    if "device" in experiment.parameters:
        if "device" in settings or shared["device_given"]:
            given["device"] = settings.get("device", shared["device"])
        if changes:
            given["changes"] = {**given.get("changes", {}), **changes}
        name = given.get("device", experiment.parameters["device"].value(shared["profile"]))
        base = Description(shared["devices"][name]) if name in shared["devices"] else load(name)
        built = base.with_(given.get("changes", {}))
    parameters = resolve(experiment, shared["profile"], given)
    result = experiment.run(Context(parameters=parameters, seed=seed, profile=shared["profile"]))
    found = _of_result(result, shared["measure"])
    return found if built is None else found | {"cost": cost(built, shared["cost"])}


def _of_result(result: Result, measure: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Take numbers out of a result: answers, the report if there is one, tables of one row, what is to be measured."""
    found: dict[str, Any] = {}
    if len(result.reports) == 1:
        found |= measures_of_report(next(iter(result.reports.values())))
    for rows in result.tables.values():
        if len(rows) == 1:
            found |= {key: value for key, value in rows[0].items() if isinstance(value, int | float)}
    found |= {answer.claim: answer.measured for answer in result.answers}
    for name, about in measure.items():
        if about["table"] not in result.tables:
            raise InvalidError(f"measure: {name}: no table {about['table']!r}{near(about['table'], result.tables)}")
        rows = result.tables[about["table"]]
        if rows and about["column"] not in rows[0]:
            raise InvalidError(f"measure: {name}: no column {about['column']!r}{near(about['column'], rows[0])}")
        found[name] = _reduced(f"measure: {name}", [row[about["column"]] for row in rows], about["how"])
    if not found:
        raise InvalidError("there is nothing to measure: say [measure] NAME = {table = ..., column = ...}")
    return found


def _reduced(where: str, numbers: Sequence[Any], how: str) -> Any:
    wrong = [value for value in numbers if not isinstance(value, int | float)] if how not in ("first", "last") else []
    if wrong:
        raise InvalidError(f"{where}: {how} of {wrong[0]!r}, which is no number")
    return HOW[how](numbers) if numbers else None
