"""The lab: experiments on described devices, their runs, sweeps, comparisons and reports.

:class:`Experiment` says what one is; :mod:`nandarray.lab.bundled` has the lab's own, and the distribution
``nandarray-papers`` those of papers. :func:`run` runs one and gives a :class:`Run`, a folder; :func:`load` reads it
again. Tables need the extra ``lab``, which brings pandas and pyarrow; importing this package does not import them. What
:mod:`nandarray.lab.report` draws is one HTML page.
"""

from __future__ import annotations

from nandarray.lab._compare import Comparison, compare
from nandarray.lab.claims import Claim, claims
from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray.lab.read_run import Run, load, runs
from nandarray.lab.read_sweep import Sweep, damaged, load_sweep, sweeps
from nandarray.lab.registry import experiments
from nandarray.lab.write_run import run
from nandarray.lab.write_sweep import sweep

__all__ = [
    "Answer",
    "Claim",
    "Comparison",
    "Context",
    "Experiment",
    "Figure",
    "PaperPoint",
    "Parameter",
    "Result",
    "Run",
    "Sweep",
    "claims",
    "compare",
    "damaged",
    "experiments",
    "load",
    "load_sweep",
    "run",
    "runs",
    "sweep",
    "sweeps",
]
