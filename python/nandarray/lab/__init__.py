"""The lab: experiments on described devices, their runs, sweeps, comparisons and reports.

:class:`Experiment` says what one is; those that come along are the modules of :mod:`nandarray.lab.experiments`.
"""

from __future__ import annotations

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result

__all__ = ["Answer", "Context", "Experiment", "Figure", "PaperPoint", "Parameter", "Result"]
