"""Draw mutants of the storage engine by a seed and run the tests against each; list those that no test notices.

cargo-mutants lists all mutants (a changed operator, a replaced body) of flash, ftl and stl. This script samples them,
so that a run takes hours instead of weeks, and another seed takes others. Each mutant is written into the checkout,
which must have no uncommitted change, and taken back afterwards: first the package's unit tests run, then, if they
pass, all of its tests. Outcomes are appended to a file, so that a run that was stopped goes on where it was. A survivor
gets a test, or, if it is no bug, a line in `EQUIVALENT` with a reason.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --count 200 --seed 1 --list     # the sample only, nothing is built
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Time after which a build or a run of the tests counts as one that does not end.
TIMEOUT_S = 1200.0
#: Folders whose mutants are drawn, with the package whose tests run against them.
FOLDERS = {
    "crates/nandarray/src/flash": "nandarray",
    "crates/nandarray/src/ftl": "nandarray",
    "crates/nandarray/src/stl": "nandarray",
    "crates/nandarray-model/src/flash": "nandarray-model",
    "crates/nandarray-model/src/ftl": "nandarray-model",
}
#: Mutants that are not drawn, since no test can or should notice them: a pattern of their names, and the reason.
EQUIVALENT = {
    r"replace .* <impl .*Debug for .*>::fmt": "texts for developers",
    r"replace .*(prefetch|locate|map_in|will_read)": "hints change times, not results",
}


def is_equivalent(name: str) -> bool:
    """Tell whether a mutant changes nothing that tests are for."""
    return any(re.search(pattern, name) for pattern in EQUIVALENT)


def sample(names: list[str], count: int, seed: int) -> list[str]:
    """Draw mutants, the same for the same seed and the same list, in order."""
    candidates = sorted(name for name in set(names) if not is_equivalent(name))
    return sorted(random.Random(seed).sample(candidates, min(count, len(candidates))))


def listed() -> dict[str, dict[str, Any]]:
    """Return each mutant, as cargo-mutants describes it, by its name."""
    files = [argument for folder in FOLDERS for argument in ("--file", f"{folder}/**")]
    command = ["cargo", "mutants", "--list", "--json", *files]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {mutant["name"]: mutant for mutant in json.loads(output)}


def mutated(text: str, span: dict[str, dict[str, int]], replacement: str) -> str:
    """Return a file's text with the part of a mutant replaced; lines and columns of its span count from 1."""
    lines = text.splitlines(keepends=True)
    places = []
    for end in ("start", "end"):
        line, column = span[end]["line"], span[end]["column"]
        places.append(sum(map(len, lines[: line - 1])) + column - 1)
    return text[: places[0]] + replacement + text[places[1] :]


def outcome(mutant: dict[str, Any]) -> str:
    """Run the tests against a mutant: `unviable` (it does not compile), `caught`, `timeout` (caught, too), `missed`."""
    file = ROOT / mutant["file"]
    original = file.read_text()
    file.write_text(mutated(original, mutant["span"], mutant["replacement"]))
    command = ["cargo", "test", "--quiet", "--locked", "--package", mutant["package"]]
    try:
        if _status([*command, "--lib", "--no-run"], TIMEOUT_S):
            return "unviable"
        for tests in (["--lib"], ["--tests"]):
            if _status([*command, *tests], TIMEOUT_S):
                return "caught"
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        file.write_text(original)
    return "missed"


def _status(command: list[str], seconds: float) -> int:
    """Run a command in a group of its own; one that does not end is killed with all that it started."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        return process.wait(seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def run(drawn: list[dict[str, Any]], results: Path) -> list[str]:
    """Run the mutants that the results do not have yet; return the names of all that were missed."""
    results.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {one["name"]: one["outcome"] for one in known}
    for number, mutant in enumerate(drawn, 1):
        if mutant["name"] not in done:
            began = time.monotonic()
            done[mutant["name"]] = outcome(mutant)
            line = {"name": mutant["name"], "outcome": done[mutant["name"]], "seconds": time.monotonic() - began}
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
        print(f"{number} of {len(drawn)}: {done[mutant['name']]}: {mutant['name']}", flush=True)
    return [mutant["name"] for mutant in drawn if done[mutant["name"]] == "missed"]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--list", action="store_true", help="print the sample and build nothing")
    parser.add_argument("--results", type=Path, help="file of outcomes (default: target/mutants-SEED.jsonl)")
    args = parser.parse_args()
    mutants = listed()
    drawn = sample(list(mutants), args.count, args.seed)
    print(f"seed {args.seed}: {len(drawn)} of {len(mutants)} mutants")
    if args.list:
        print("\n".join(drawn))
        return 0
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode:
        print("the checkout has uncommitted changes, among which a mutant could stay: commit them first")
        return 1
    # The order in which they run is drawn, too: of a run that is stopped, a random part is done.
    random.Random(args.seed).shuffle(drawn)
    results = args.results or ROOT / "target" / f"mutants-{args.seed}.jsonl"
    missed = run([mutants[name] for name in drawn], results)
    print("\n".join([f"{len(missed)} missed", *missed]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
