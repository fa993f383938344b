"""Measuring: the call of an experiment's function, with its processes, its progress and its timeline.

An error of a packaged experiment's arithmetic is one of the parameters that it was given, and says so.
"""

from __future__ import annotations

import time
from pathlib import Path

from nandarray.errors import InvalidError, NandarrayError
from nandarray.lab import packages
from nandarray.lab._inputs import inputs_of
from nandarray.lab.experiment import Context, Progress, Result
from nandarray.lab.pool import Pool
from nandarray.lab.prepare import Prepared

__all__ = ["measure"]


def measure(prepared: Prepared, pool: Pool, timeline: Path | None, progress: Progress | None) -> tuple[Result, float]:
    """Run an experiment; return its result and the seconds that it took.

    ``timeline`` is the file for a timeline, if one is wanted. A device or a file that changes meanwhile is an
    InvalidError.
    """
    context = Context(
        parameters=prepared.parameters,
        seed=prepared.seed,
        profile=prepared.profile,
        jobs=pool.jobs,
        progress=progress or (lambda _what, _done, _of: None),
        executor=pool if pool.given or pool.jobs > 1 else None,
        timeline=timeline,
    )
    start = time.perf_counter()
    try:
        result = prepared.experiment.run(context)
    except NandarrayError:
        raise
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError) as error:
        if prepared.given and packages.is_packaged(prepared.experiment.run.__module__):
            raise _of_parameters(prepared, error) from error
        raise
    seconds = time.perf_counter() - start
    if inputs_of(prepared.experiment, prepared.parameters) != prepared.inputs:
        raise InvalidError(
            f"a device or a file that {prepared.experiment.id} was given changed while it ran: run it again"
        )
    return result, seconds


def _of_parameters(prepared: Prepared, error: Exception) -> InvalidError:
    said = ", ".join(f"{name} = {value!r}" for name, value in prepared.given.items())
    why = " ".join(str(error).split())
    return InvalidError(
        f"{prepared.experiment.id} cannot be run with {said}: {type(error).__name__}{': ' if why else ''}{why}"
    )
