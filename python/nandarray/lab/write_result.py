"""A result, checked and written into a run's folder: tables, reports, and ``run.json`` with the judged answers.

Nothing here depends on time or place: the same result gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nandarray
from nandarray.errors import InvalidError
from nandarray.lab import registry
from nandarray.lab._files import plain, write_json, write_table
from nandarray.lab._heads import NAME, RUN, damage
from nandarray.lab.claims import base_of, near
from nandarray.lab.experiment import Result
from nandarray.lab.judge import judge
from nandarray.lab.prepare import Prepared
from nandarray.lab.read_run import SCHEMA

__all__ = ["write_result"]


def write_result(part: Path, prepared: Prepared, result: Result, *, traced: bool) -> None:
    """Write everything but the environment and the timeline; ``traced`` says whether a timeline is requested."""
    answers = _judged(prepared, result)
    _checked(result.tables, "table")
    _checked(result.reports, "report")
    (part / "tables").mkdir()
    tables = {name: write_table(part / "tables", name, rows) for name, rows in result.tables.items()}
    for figure in result.figures:
        _figure_has_columns(prepared.experiment.id, figure, tables)
    if result.reports:
        (part / "reports").mkdir()
    for label, report in result.reports.items():
        write_json(part / "reports" / f"{label}.json", report)
    written = {"tables": tables, "devices": prepared.inputs.write(part), "answers": answers}
    head = plain({**_head(prepared, result, traced=traced), **written})
    head["unanswered"] = sorted(set(prepared.experiment.claims) - {base_of(answer["claim"]) for answer in answers})
    if wrong := damage(head, RUN):
        raise InvalidError(f"{prepared.experiment.id}: a result cannot be written: {wrong}")
    write_json(part / "run.json", head)


def _head(prepared: Prepared, result: Result, *, traced: bool) -> dict[str, Any]:
    """Return ``run.json`` without what was judged and written."""
    experiment = prepared.experiment
    return {
        "schema": SCHEMA,
        "experiment": experiment.id,
        "title": experiment.title,
        "question": experiment.question,
        "claims": list(experiment.claims),
        "profile": prepared.profile,
        "seed": prepared.seed,
        "parameters": prepared.parameters,
        "files": prepared.inputs.files,
        "meanings": {name: parameter.meaning for name, parameter in experiment.parameters.items()},
        "version": nandarray.__version__,
        "source": prepared.source,
        "command": _command(prepared, traced=traced),
        "deterministic": experiment.deterministic,
        "figures": [dataclasses.asdict(figure) for figure in result.figures],
        "reports": sorted(result.reports),
        "assumptions": list(result.assumptions),
        "misfits": list(result.misfits),
    }


def _judged(prepared: Prepared, result: Result) -> list[dict[str, Any]]:
    """Return the answers, each judged against its claim where the sizes are those of claims."""
    experiment = prepared.experiment
    for found in result.answers:
        base = base_of(found.claim)
        if base not in experiment.claims:
            raise InvalidError(
                f"{experiment.id} answers {base!r}, which is not among its claims{near(base, experiment.claims)}"
            )
    return [judge(found, experiment, prepared.claims, full_size=prepared.full_size) for found in result.answers]


def _command(prepared: Prepared, *, traced: bool) -> str:
    """Write the command line that runs the same again."""
    path = registry.file_of(prepared.experiment.run.__module__)
    words = ["nandarray", "lab", "run", Path(path).name if path else prepared.experiment.id]
    if prepared.profile != "full":
        words += ["--profile", prepared.profile]
    if prepared.seed:
        words += ["--seed", str(prepared.seed)]
    for name, value in prepared.given.items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"]
    return shlex.join([*words, "--trace"] if traced else words)


def _checked(names: Sequence[str] | Mapping[str, Any], what: str) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            raise InvalidError(f"{what} {name!r} cannot be a file's name: letters, digits, and . _ + @ - are taken")


def _figure_has_columns(owner: str, figure: Any, tables: Mapping[str, Mapping[str, Any]]) -> None:
    if figure.table not in tables:
        raise InvalidError(f"{owner}: figure {figure.id!r} shows the table {figure.table!r}, which is not there")
    columns = tables[figure.table]["columns"]
    for column in (figure.x, figure.y, figure.series, figure.value):
        if column and column not in columns and tables[figure.table]["rows"]:
            raise InvalidError(
                f"{owner}: figure {figure.id!r} shows the column {column!r} of {figure.table!r}: not there"
            )
