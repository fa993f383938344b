"""Names of experiments by the place in the paper: ``assasin.fig7.12``, ``zou.table7.4``, ``flashabacus.section5.2``.

They follow from an experiment's title and from the claims that it answers, whose ``where`` names the figure, the table
or the section. The paper is the first word of the experiment's id or of the claim's; both are taken. A panel is a
letter behind the number, a section stands for all below it, and the first number of a section is a chapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nandarray.lab.claims import claims_of
from nandarray.lab.experiment import Experiment

__all__ = ["by_place", "figures"]

_PLACE = re.compile(
    r"\b(Fig|Table)(?:ure)?s? (\d[\d.]*(?:\([a-z]\))?(?:(?:, | and | to )\d[\d.]*)*)|(?<![\d.])(\d+(?:\.\d+)+)"
)


def _places(text: str) -> Iterator[str]:
    """Yield the figures, tables, sections and chapters that a title names, or the ``where`` of a claim.

    >>> list(_places("FlashAbacus 5.1, Fig 10(b)"))
    ['chapter5', 'section5.1', 'fig10', 'fig10b']
    >>> list(_places("ASSASIN, Figures 7.13, 7.15 to 7.17: throughput"))
    ['fig7.13', 'fig7.15', 'fig7.16', 'fig7.17']
    """
    for kind, listed, section in _PLACE.findall(text):
        numbers = section.split(".")
        if section:
            yield f"chapter{numbers[0]}"
            yield from (f"section{'.'.join(numbers[:many])}" for many in range(2, len(numbers) + 1))
        for one in filter(None, re.split(", | and ", listed)):
            first, _, last = one.partition(" to ")
            number, _, panel = first.rstrip(").").partition("(")
            begun, dot, end = number.rpartition(".")
            for each in range(int(end), int((last or number).rpartition(".")[2]) + 1):
                yield f"{kind.lower()}{begun}{dot}{each}"
            if panel:
                yield f"{kind.lower()}{number}{panel}"


def _named(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield papers and places that an experiment names."""
    paper = experiment.id.partition(".")[0]
    yield from ((paper, place) for place in _places(experiment.title))
    for claim in claims_of(experiment).values():
        for place in _places(claim.where):
            yield paper, place
            yield claim.id.partition(".")[0], place


def figures(experiment: Experiment) -> list[str]:
    """Return the figures and tables of papers that an experiment answers, without panels."""
    return list(dict.fromkeys(place for _, place in _named(experiment) if re.fullmatch(r"(fig|table)[\d.]+", place)))


def by_place(known: Mapping[str, Experiment]) -> dict[str, list[str]]:
    """Return the ids of the experiments that answer a claim of each place; a place that is an id is left out."""
    found: dict[str, dict[str, None]] = {}
    for name, experiment in known.items():
        for paper, place in _named(experiment):
            found.setdefault(f"{paper}.{place}", {})[name] = None
    return {place: list(names) for place, names in found.items() if place not in known}
