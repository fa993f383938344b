"""Figure 6.1 of the ASSASIN dissertation: functions by size, path and how well they vectorise.

The dissertation places fourteen functions by judgement. Here each of the ready-made programs that is one of them runs
over a sample: bytes are counted, the path follows from where they come from and go to, and Clang says what it
vectorises. A function is a first candidate if it saves bytes on the link and vectorises. Gains by vectors are not
timed, so that two runs give the same; ``nandarray advise`` times them.
"""

from __future__ import annotations

from typing import Any

import nandarray
from nandarray.lab.experiment import Answer, Context, Experiment, Parameter, Result
from nandarray.programs.advise.paper import BECAUSE, FUNCTIONS, PAPER

__all__ = ["EXPERIMENT", "run_one"]

PROPERTIES = ("size", "direction", "vectorises")


def run_one(program: str) -> dict[str, Any]:
    """Place a ready-made program that is one of the dissertation's functions, here and there.

    The row says, too, whether it is a first candidate.
    """
    found = nandarray.advise(program, times=False)
    place = PAPER[FUNCTIONS[program]]
    row = {"program": program, "function": FUNCTIONS[program], "bytes_out_a_byte_in": found.ratio}
    for what in PROPERTIES:
        row |= {what: getattr(found, what), f"{what}_paper": getattr(place, what)}
    return {**row, "candidate": found.candidate, "because": BECAUSE.get(program, "")}


def run(context: Context) -> Result:
    """Place every program."""
    rows = context.map(run_one, [(name,) for name in context["programs"] or sorted(FUNCTIONS)], "programs")
    share = {what: sum(one[what] == one[f"{what}_paper"] for one in rows) / len(rows) for what in PROPERTIES}
    claim = "zou.offload.fig6_1.candidates"
    return Result(
        tables={"places": rows},
        answers=[
            Answer(f"{claim}#{what}", share[what], paper=1.0, note="share of programs that agree")
            for what in PROPERTIES
        ],
        assumptions=[
            "Programs' samples are set up as the dissertation uses them: where inputs come from and outputs go.",
            "Vectorised: every loop that Clang looks at (easily), or some (moderately), for the machine that runs it.",
        ],
        misfits=[
            f"{one['program']}: {one['vectorises']} vectorised, not {one['vectorises_paper']}"
            + (f": {one['because']}." if one["because"] else ".")
            for one in rows
            if one["vectorises"] != one["vectorises_paper"]
        ],
    )


EXPERIMENT = Experiment(
    id="assasin.candidates",
    title="ASSASIN, Figure 6.1: which functions should be offloaded first",
    question="Which functions save traffic beside the data, on which path, and which of them vectorise?",
    run=run,
    claims=("zou.offload.fig6_1.candidates",),
    parameters={
        "programs": Parameter([], "ready-made programs; all functions' if empty", small=["minmax", "raid4_encode"]),
    },
    minutes=0.5,
)
