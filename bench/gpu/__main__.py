"""The process that goes through the steps on a card: ``python -m bench.gpu FOLDER CUBIN DRIVER [--short]``.

It writes one line of JSON for each row as soon as it is known. A card that is lost, to a kernel that does not end or to
an error, ends it: the lines so far stand.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from . import STEPS, Row, broken, missing, outcome
from .card import Card
from .door import Host
from .session import FULL, SHORT, MissingError, Session, Step


def _rows(session: Session, step: Step) -> list[Row]:
    rows = [Row(step.part, what) for what in step.rows]
    try:
        return outcome(rows, step.run(session))
    except MissingError as error:
        return missing(rows, str(error))
    except Exception as error:  # a step that fails is a row of the table, whatever failed
        return broken(rows, f"{type(error).__name__}: {error}")


def main(words: list[str]) -> int:
    """Go through all steps; 3 if the card was lost."""
    folder, cubin, driver, *options = words
    card = Card(driver)
    card.begin(Path(cubin).read_bytes())
    session = Session(card, Host(Path(folder)), Path(folder), SHORT if "--short" in options else FULL)
    for step in STEPS:
        rows = _rows(session, step)
        for row in rows:
            print(json.dumps(asdict(row)), flush=True)
        if card.lost:
            print(json.dumps({"lost": f"the card was lost by {step.rows[0]!r}"}), flush=True)
            # Without waiting for the threads of a hung kernel, or for the driver's own end.
            os._exit(3)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
