"""The rows of a replay's report: what tables in terminals and notebooks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nandarray.units import scaled

__all__ = ["LATENCIES", "OPERATIONS", "energy_rows", "facts", "promise_rows", "spread", "throughput_rows"]

OPERATIONS = ("read", "write", "trim", "flush")

#: Key of a latency -> its heading.
LATENCIES = {
    "mean_us": "mean",
    "p50_us": "p50",
    "p99_us": "p99",
    "p99_9_us": "p99.9",
    "p99_99_us": "p99.99",
    "max_us": "max",
}

_SMALLEST_SHARE = 0.005


def spread(shares: Sequence[float]) -> str:
    """Write shares as a percentage, with least and most where there are several."""
    if not shares:
        return "-"
    mean = sum(shares) / len(shares)
    if len(shares) == 1:
        return f"{mean:.1%}"
    return f"{mean:.1%} ({min(shares):.1%} to {max(shares):.1%})"


def throughput_rows(data: dict[str, Any]) -> list[list[str]]:
    """Return a row for each operation that there was: name, requests, IOPS, throughput, latencies in microseconds."""
    rows = []
    for name in OPERATIONS:
        op = data[name]
        if not op["requests"]:
            continue
        latency = op["latency"]
        took = [f"{latency[key]:,.1f}" for key in LATENCIES]
        rows.append([name, f"{op['requests']:,}", f"{op['iops']:,.0f}", scaled(op["bytes_per_s"], "B/s"), *took])
    return rows


def facts(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a report beside throughput: amplification, wear, utilisation."""
    busy, found = data["utilisation"], list[tuple[str, str]]()
    if data["all"]["failed"]:
        found.append(("failed requests", f"{data['all']['failed']:,}"))
    management = data["management"]
    if management is not None and management["write_amplification"] is not None:
        wear = management["wear"]
        found.append(("write amplification", f"{management['write_amplification']:.3f}"))
        found.append(("erases per block", f"{wear['mean']:.2f} ({wear['min']} to {wear['max']})"))
    if management is not None and management["map_misses"]:
        share = management["map_hits"] / (management["map_hits"] + management["map_misses"])
        found.append(("map entries in the cache", f"{share:.1%}"))
    for name, key in (("channels", "channels"), ("dies", "dies"), ("controller cores", "cores")):
        found.append((f"{name} busy", spread(busy[key])))
    found.append(("link busy", f"{busy['link_down']:.1%} to the device, {busy['link_up']:.1%} to the host"))
    if busy["dram"]:
        found.append(("DRAM busy", f"{busy['dram']:.1%}"))
    found.append(("host cores busy", spread(busy["host_cores"])))
    energy = data["energy"]
    each = energy["device_j_per_byte"]
    a_byte = "" if each is None else f", {scaled(each, 'J')} a byte"
    found.append(
        ("energy of the device", f"{scaled(energy['device_j'], 'J')}, {scaled(energy['device_w'], 'W')}{a_byte}")
    )
    return found


def energy_rows(data: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return the parts that took energy, most first: name, joules, share of the device's."""
    energy = data["energy"]
    whole = energy["device_j"] or 1.0
    names = {
        "sense_j": "sensing",
        "program_j": "programming",
        "erase_j": "erasing",
        "bus_j": "channels",
        "ecc_j": "decoding",
        "die_idle_j": "dies at rest",
        "dram_j": "DRAM",
        "dram_idle_j": "DRAM at rest",
        "link_j": "link",
        "link_idle_j": "link at rest",
        "cores_j": "cores",
        "cores_idle_j": "cores at rest",
        "compute_j": "cores for programs",
        "compute_idle_j": "cores for programs at rest",
        "controller_idle_j": "controller",
        "asleep_j": "idle states",
    }
    rows = [(name, energy[key], energy[key] / whole) for key, name in names.items()]
    return sorted((row for row in rows if row[2] >= _SMALLEST_SHARE), key=lambda row: -row[1])


def promise_rows(data: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the data sheet's figures for such a workload: name, measured, promised, difference."""
    rows = []
    for promise in data["promises"]:
        unit = promise["unit"]
        numbers = [scaled(promise[key], unit) for key in ("measured", "promised")]
        rows.append((promise["what"], *numbers, f"{promise['ratio'] - 1:+.1%}"))
    return rows
