"""Experiments, and their results.

An experiment is a small Python module that defines ``EXPERIMENT``, an :class:`Experiment`: a question, the ids of the
claims that it answers, its parameters with their meanings, the range that each answer is expected in, and a function
that measures. The function gets a :class:`Context` (resolved parameters, seed, progress) and returns a
:class:`Result`: tables, figures that say which columns they show, answers to claims, reports of modelled devices,
assumptions. It draws nothing and writes nothing: the run writes (:mod:`nandarray.lab.run`), the report draws
(:mod:`nandarray.lab.report`).

Everything here is plain data, so that a result can be written as JSON and Parquet and read again, the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Answer", "Context", "Experiment", "Figure", "Parameter", "PaperPoint", "Result"]

Row = Mapping[str, Any]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Parameter:
    """Something of an experiment that may be set.

    Parameters
    ----------
    default : any
        Its value at the paper's size. A JSON value: number, text, truth value, None, or a list or mapping of these.
    meaning : str
        One phrase, with the unit.
    small : any, optional
        Its value in the small profile that the tests run, in seconds.
    deep : any, optional
        Its value in the deep profile, which takes as long as it takes.
    fractions : bool
        Whether it takes fractions even though its own values are whole numbers.
    """

    default: Any
    meaning: str
    small: Any = None
    deep: Any = None
    fractions: bool = False

    def value(self, profile: str) -> Any:
        """Return its value in a profile.

        Parameters
        ----------
        profile : {"full", "small", "deep"}
            Profile whose value is returned.

        Returns
        -------
        any
            The default, or the profile's own value if there is one.
        """
        own = {"small": self.small, "deep": self.deep}.get(profile)
        return self.default if own is None else own


@dataclass(frozen=True)
class PaperPoint:
    """A point that the text of a paper states, for a figure.

    Parameters
    ----------
    series : str
        Series of the figure that it belongs to.
    x, y : float or str
        Its coordinates; ``y`` may be a bound (``bound``).
    where : str
        Section or figure.
    bound : {"", "at most", "at least", "about"}
        Kind of bound that the text states.
    """

    series: str
    x: float | str
    y: float
    where: str
    bound: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: a table, and which of its columns are shown how.

    Parameters
    ----------
    id : str
        Within the experiment, such as ``"fig9a"``.
    title : str
        Title of the figure.
    kind : {"line", "bar", "scatter", "heatmap", "timeline"}
        Kind of chart.
    table : str
        Name of the result's table.
    x, y : str
        Columns. In a heat map ``y`` is the second axis, in a timeline its lanes.
    series : str, optional
        Column that tells the series apart.
    value : str, optional
        Column that is the colour of a heat map; of a timeline, the column with the ends of bars, which begin at
        ``x``.
    x_label, y_label : str
        Labels of the axes, with units.
    x_log, y_log : bool
        Logarithmic axes.
    stacked : bool
        Whether bars of one place stand on one another: parts of a sum, which the paper's points state.
    points : sequence of PaperPoint
        Points that the paper states.
    caption : str
        Text below the figure.
    """

    id: str
    title: str
    kind: Literal["line", "bar", "scatter", "heatmap", "timeline"]
    table: str
    x: str
    y: str
    series: str = ""
    value: str = ""
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    points: Sequence[PaperPoint] = ()
    caption: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Answer:
    """The measurement for a claim of a paper.

    Parameters
    ----------
    claim : str
        Its id in ``claims.toml``; a part of a claim has a name behind a ``#``, such as ``"nds.fig2.subblock#ssd"``.
    measured : float or bool
        The figure, in the claim's unit; for an ordering or a trend, whether it holds.
    paper : float or tuple of two float, optional
        The paper's figure or range, if this part's is not the claim's own.
    calibrated : bool
        Whether a parameter of the model was fitted to this figure (then it proves nothing).
    input : bool
        Whether a parameter of the model was taken from this figure (then it is printed and not judged).
    note : str
        Remark: the reason of a misfit, an assumption.
    """

    claim: str
    measured: float | bool
    paper: float | tuple[float, float] | None = None
    calibrated: bool = False
    input: bool = False
    note: str = ""


@dataclass(frozen=True)
class Result:
    """The result of an experiment: tables, answers, figures.

    Parameters
    ----------
    tables : mapping
        Tidy tables by name: sequences of rows with the same columns. Units stand at the end of names.
    answers : sequence of Answer
        Answers to claims.
    figures : sequence of Figure
        Figures to draw.
    reports : mapping
        Reports of modelled devices (``Report.data``) by a label: utilisation, energy and latency come from them.
    assumptions : sequence of str
        Assumptions, a sentence each, with their sources.
    misfits : sequence of str
        Results that differ from the paper's, with the reasons.
    """

    tables: Mapping[str, Sequence[Row]]
    answers: Sequence[Answer] = ()
    figures: Sequence[Figure] = ()
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    assumptions: Sequence[str] = ()
    misfits: Sequence[str] = ()


@dataclass(frozen=True)
class Context:
    """The arguments of a running experiment: parameters, seed, progress, folders.

    Parameters
    ----------
    parameters : mapping
        Every parameter, resolved.
    seed : int
        Seed of every random generator of the run.
    profile : {"full", "small"}
        Profile that chooses the sizes.
    jobs : int
        Processes that it may use (``map``).
    progress : callable
        Function of a step's text, the number of steps done and the number of all steps.
    executor : concurrent.futures.Executor, optional
        Executor of ``map``; in this process if left out.
    timeline : path, optional
        The file for a timeline, if one is wanted; an experiment without one writes none.
    """

    parameters: Mapping[str, Any]
    seed: int = 0
    profile: str = "full"
    jobs: int = 1
    progress: Progress = lambda _what, _done, _of: None
    executor: Any = None
    timeline: Path | None = None

    def __getitem__(self, name: str) -> Any:
        """Return a parameter."""
        return self.parameters[name]

    def map(self, function: Callable[..., Any], cases: Sequence[tuple[Any, ...]], what: str = "cases") -> list[Any]:
        """Call a function for each case, in parallel where the run has an executor; results in order of the cases.

        Parameters
        ----------
        function : callable
            Function of a module (it is pickled by name).
        cases : sequence of tuple
            Arguments of each call.
        what : str
            Text that the progress shows.

        Returns
        -------
        list
            One result a case.
        """
        self.progress(what, 0, len(cases))
        found: list[Any] = []
        if self.executor is None:
            for case in cases:
                found.append(function(*case))
                self.progress(what, len(found), len(cases))
            return found
        futures = [self.executor.submit(function, *case) for case in cases]
        for future in futures:
            found.append(future.result())
            self.progress(what, len(found), len(cases))
        return found


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Parameters
    ----------
    id : str
        Dotted and short: ``"nds.fig9"``.
    title : str
        A phrase.
    question : str
        Question of the experiment, in one sentence.
    claims : sequence of str
        Ids of the claims that it answers.
    parameters : mapping
        Parameters that may be set, by name.
    devices : sequence of str
        Presets that it uses without a parameter that names them; those that parameters name need no mention.
    expected : mapping
        Range (low, high) by claim id, of the ratio of measured / paper that counts as within; if left out, the rules of
        :mod:`nandarray.lab.claims`.
    run : callable
        Takes a Context, returns a Result. The same context gives the same result.
    deterministic : bool
        False if it measures this machine (a wall clock): then only its inputs are reproducible.
    minutes : float
        About how long it takes at full size on two cores.
    """

    id: str
    title: str
    question: str
    run: Callable[[Context], Result]
    claims: Sequence[str] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    devices: Sequence[str] = ()
    expected: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    deterministic: bool = True
    minutes: float = 1.0
