"""Draw mutants of the storage engine by a seed and run the tests against each; list those that no test notices.

cargo-mutants lists all mutants (a changed operator, a replaced body) of flash, ftl and stl. This script samples them,
so that a run takes hours instead of weeks, and another seed takes others. A survivor gets a test, or, if it is no bug,
a line in `EQUIVALENT` with a reason.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --count 200 --seed 1 --list     # the sample only, nothing is built
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def listed() -> dict[str, str]:
    """Return the package of each mutant by its name."""
    files = [argument for folder in FOLDERS for argument in ("--file", f"{folder}/**")]
    command = ["cargo", "mutants", "--list", "--json", *files]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {mutant["name"]: mutant["package"] for mutant in json.loads(output)}


def run(package: str, names: list[str], out: Path) -> int:
    """Run the tests of a package against its mutants; return the exit status of cargo-mutants (2: some survived)."""
    chosen = [argument for name in names for argument in ("--re", f"^{re.escape(name)}$")]
    command = ["cargo", "mutants", "--package", package, "--test-package", package, "--output", str(out), *chosen]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--list", action="store_true", help="print the sample and build nothing")
    parser.add_argument("--output", type=Path, default=ROOT / "target" / "mutants", help="folder of logs and outcomes")
    args = parser.parse_args()
    mutants = listed()
    drawn = sample(list(mutants), args.count, args.seed)
    print(f"seed {args.seed}: {len(drawn)} of {len(mutants)} mutants")
    if args.list:
        print("\n".join(drawn))
        return 0
    worst = 0
    for package in sorted(set(FOLDERS.values())):
        names = [name for name in drawn if mutants[name] == package]
        if names:
            worst = max(worst, run(package, names, args.output / package))
    return worst


if __name__ == "__main__":
    sys.exit(main())
