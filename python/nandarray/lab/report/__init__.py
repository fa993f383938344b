"""One self-contained page of runs: claims, figures, devices, sweeps, a comparison.

:func:`write` makes an HTML file that works off line and asks for nothing: style, scripts, charts and data are in it.
Python shapes the data (``figures``, ``answers``, ``devices``, ``compare``, ``sweeps``), templates set it as text and
tables, and a small script draws the charts when they come into view, with a part of Apache ECharts that set-up builds
into ``charts`` (``tools/charts/build.py``). Without the script, or without that library, all text and all tables are
there.

It runs nothing and judges nothing; a run says itself what is within.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nandarray import __version__
from nandarray.lab import Comparison, Run, Sweep
from nandarray.lab.report.page import NO_CHARTS, has_charts, render
from nandarray.lab.report.source import Source, read
from nandarray.lab.report.sweeps import SweepData, sweep_data

AnyRun = Run | str | os.PathLike[str]

__all__ = ["NO_CHARTS", "Source", "SweepData", "has_charts", "write"]


def write(
    runs: Sequence[Source | AnyRun],
    path: str | os.PathLike[str],
    sweeps: Sequence[SweepData | Sweep | str | os.PathLike[str]] = (),
    compare: Comparison | tuple[AnyRun, AnyRun] | None = None,
) -> Path:
    """Write the page; without the chart library (:func:`has_charts`) it has tables alone, and says so.

    Parameters
    ----------
    runs : sequence of run or path
        Finished runs, or their folders, in the order in which the page shows them.
    path : str or path
        Path of the page; a file that is there is replaced.
    sweeps : sequence of sweep or path
        Shown as tables and Pareto plots.
    compare : Comparison or (run or path, run or path), optional
        Two runs to put beside each other. Ratios are of the second to the first.

    Returns
    -------
    Path
        The file. The same runs give the same bytes.

    Raises
    ------
    NotFoundError
        If a folder holds no run, or no sweep.
    ImportError
        If jinja2 is not installed (extra ``lab``).
    OSError
        If the file cannot be written.
    """
    both = Comparison(*map(_run, compare)) if isinstance(compare, tuple) else compare
    html = render([read(run) for run in runs], [sweep_data(one) for one in sweeps], both, __version__)
    target = Path(path)
    part = target.with_name(f"{target.name}.part")
    part.write_text(html, encoding="utf-8")
    part.replace(target)
    return target


def _run(run: AnyRun) -> Run:
    return run if isinstance(run, Run) else Run(run)
