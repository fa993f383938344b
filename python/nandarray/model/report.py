"""Reports of the modelled clock: what a run or a store's commands took on a described device.

A :class:`Report` is the numbers that the simulation gave, with the manners of a Python object: keys, the table as text,
HTML for notebooks. The fields are on the page ``docs/reference/replay-report.md``. Nothing is computed here but what is
drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from nandarray.errors import NotFoundError
from nandarray.present.html import Markup, table

__all__ = ["Report"]

_OPS = ("read", "write", "trim", "flush")
_BAR_PX = 120


class Report(Mapping[str, Any]):
    """The report of a run: time, throughput, percentiles, energy by part, write amplification, utilisation, wear.

    A mapping of dotted keys to numbers: ``report["read.latency.p99_us"]``. ``str(report)`` is a table.

    Parameters
    ----------
    text : str
        The report as JSON.
    table : str
        The same as a table to print.

    Examples
    --------
    >>> import nandarray
    >>> with nandarray.open(device="mqsim-ideal", mode="w") as store:
    ...     store["x"] = np.arange(2048, dtype="u4")
    ...     _ = store["x"][:]
    ...     report = store.report()
    >>> report["read.requests"], 100 < report["read.latency.p50_us"] < 105
    (1, True)
    """

    def __init__(self, text: str, table: str) -> None:
        self._data: dict[str, Any] = json.loads(text)
        self._table = table

    @property
    def data(self) -> dict[str, Any]:
        """The whole report, as plain dictionaries and lists."""
        return self._data

    @property
    def elapsed_s(self) -> float:
        """Modelled seconds from the first command to the last answer."""
        return float(self._data["elapsed_s"])

    @property
    def energy_j(self) -> dict[str, float]:
        """Joules of the device by part; they add up to ``report["energy.device_j"]``. The host's are beside it."""
        not_parts = ("device_j", "host_cores_j")
        parts = {k: v for k, v in self._data["energy"].items() if k.endswith("_j") and k not in not_parts}
        return {key.removesuffix("_j"): float(value) for key, value in parts.items()}

    def __getitem__(self, key: str) -> Any:
        found: Any = self._data
        for part in key.split(".") if isinstance(key, str) else [key]:
            if not isinstance(found, dict) or not isinstance(part, str) or part not in found:
                raise NotFoundError(f"the report has no {key!r}")
            found = found[part]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __str__(self) -> str:
        return self._table

    def __repr__(self) -> str:
        done = self._data["all"]
        return (
            f"<Report of {self._data['device']!r}: {done['requests']:,} commands in {self.elapsed_s:.6g} modelled s, "
            f"{self._data['energy']['device_j']:.4g} J>"
        )

    def _repr_html_(self) -> str:
        head = ("", "requests", "MB/s", "mean us", "p50", "p99", "p99.99")
        rows = []
        for op in _OPS:
            of = self._data[op]
            if of["requests"]:
                took = [f"{of['latency'][key]:,.1f}" for key in ("mean_us", "p50_us", "p99_us", "p99_99_us")]
                rows.append([op, f"{of['requests']:,}", f"{of['bytes_per_s'] / 1e6:,.1f}", *took])
        used = self._data["utilisation"]
        busy = [(key, used[key]) for key in ("channels", "dies", "cores", "host_cores")]
        shares = [(key.replace("_", " "), sum(all_) / len(all_)) for key, all_ in busy if all_]
        shares += [("link up", used["link_up"]), ("link down", used["link_down"]), ("DRAM", used["dram"])]
        total = self._data["energy"]["device_j"] or 1.0
        parts = sorted(self.energy_j.items(), key=lambda part: -part[1])
        energy = [(key.replace("_", " "), value / total) for key, value in parts if value > 0]
        title = f"<strong>{escape(str(self._data['device']))}</strong>: {self.elapsed_s:.6g} s modelled, "
        tables = table(rows, head, numbers=True) + _bars("busy", shares) + _bars("energy", energy)
        return f"<div>{title}{self._data['energy']['device_j']:.4g} J{tables}</div>"


def _bars(title: str, shares: list[tuple[str, float]]) -> str:
    bar = "<span style='display:inline-block;background:#4a7ebb;height:0.7em;width:{:.0f}px'></span> {:.1%}"
    return table([(name, Markup(bar.format(share * _BAR_PX, share))) for name, share in shares], (title, ""))
