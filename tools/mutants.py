"""Draw mutants of the storage engine by a seed and run the tests against each; list those that no test notices.

cargo-mutants lists all mutants (a changed operator, a replaced body) of flash, ftl and stl. This script samples them,
so that a run takes an hour or two instead of weeks, and another seed takes others. All drawn mutants are compiled at
once, into a copy of the last commit under target/mutants: a function with mutants chooses at run time, by the
environment variable NANDARRAY_MUTANT, between its own body and a mutated one. The test programs of the mutant's package
run once without a mutant, which tells the places of mutants that each of them reaches, and then once for each mutant
that they reach, quick ones first, until one fails. A mutant that does not compile beside the others (the compiler's
errors tell which) is compiled alone at the end. Outcomes are appended to a file, so that a run that was stopped goes on
where it was. A survivor gets a test, or, if it is no bug, a line in `EQUIVALENT` with a reason.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --count 200 --seed 1 --list     # the sample only, nothing is built
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

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
    r"replace - with . in Rows::each$": "its one subtraction is in the address of a cache line that is prefetched",
    r"replace < with <= in Fill::lpa_at$": "the blocks differ only if one is bad, and a bad one holds no logical page",
    r"copy/assemble.rs:\d+:\d+: replace << with >>$": "a length from which rows are copied together: times only",
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


def offset(text: str, place: dict[str, int]) -> int:
    """Return the index in a file's text of a line and column, which count from 1."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1


def mutated(text: str, span: dict[str, dict[str, int]], replacement: str) -> str:
    """Return a file's text with the part of a mutant replaced; lines and columns of its span count from 1."""
    return text[: offset(text, span["start"])] + replacement + text[offset(text, span["end"]) :]


def body_start(function: str) -> int | None:
    """Return the index of the brace that opens a function's body; None for a `const fn`, which cannot choose."""
    depth = 0
    for index, character in enumerate(function):
        if character == "{" and depth == 0:
            return None if re.search(r"\bconst (unsafe )?fn\b", function[:index]) else index
        depth += (character in "([") - (character in ")]")
    return None


def switched(text: str, drawn: list[dict[str, Any]], numbers: dict[str, int]) -> tuple[str, list[str]]:
    """Return a file's text with a choice in each function that has mutants, and the mutants that cannot be chosen.

    Args:
        text: The file.
        drawn: Its mutants.
        numbers: Their numbers by name, by which the environment variable chooses one.
    """
    functions: dict[tuple[int, int], list[dict[str, Any]]] = {}
    alone = []
    for mutant in drawn:
        span = (mutant.get("function") or {}).get("span")
        if span is None:
            alone.append(mutant["name"])
        else:
            functions.setdefault((offset(text, span["start"]), offset(text, span["end"])), []).append(mutant)
    for (start, end), mutants in sorted(functions.items(), reverse=True):
        opening = body_start(text[start:end])
        if opening is None:
            alone += [mutant["name"] for mutant in mutants]
            continue
        choices = ""
        for mutant in mutants:
            at, to = (offset(text, mutant["span"][edge]) - start - opening for edge in ("start", "end"))
            body = text[start + opening : end]
            if mutant["genre"] == "FnValue":
                body = "{ " + mutant["replacement"] + " }"
            elif at < 0:
                alone.append(mutant["name"])
                continue
            else:
                body = body[:at] + mutant["replacement"] + body[to:]
            # On one line, so that lines of the compiler's errors tell mutants apart: line comments are cut off.
            body = " ".join(re.sub(r"(^|\s)//.*", "", line).strip() for line in body.split("\n"))
            number = numbers[mutant["name"]]
            choices += f"\nif crate::mutation::is({number}) {{ return {body}; }} // mutant {number}"
        text = text[: start + opening + 1] + choices + "\n" + text[start + opening + 1 :]
    return text, alone


#: The module that a crate with mutants gets: the choice of a mutant by its number. The numbers of all mutants whose
#: place is reached are appended, each once a process, to the file that NANDARRAY_MUTANTS_REACHED names, if it is set.
CHOICE = """
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutation {
    use std::{collections::HashSet, fs::File, io::Write, sync::{LazyLock, Mutex}};
    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| std::env::var("NANDARRAY_MUTANT").map_or(0, |n| n.parse().unwrap()));
    static REACHED: LazyLock<Option<Mutex<(File, HashSet<u32>)>>> = LazyLock::new(|| {
        let path = std::env::var_os("NANDARRAY_MUTANTS_REACHED")?;
        let file = File::options().append(true).create(true).open(path).unwrap();
        Some(Mutex::new((file, HashSet::new())))
    });
    pub fn is(n: u32) -> bool {
        if let Some(reached) = &*REACHED {
            let mut reached = reached.lock().unwrap();
            if reached.1.insert(n) {
                reached.0.write_all(format!("{n}\\n").as_bytes()).unwrap();
            }
        }
        *CHOSEN == n
    }
}
"""


class Program(NamedTuple):
    """A test program: its time without a mutant, and the numbers of the mutants whose places it reaches."""

    path: Path
    seconds: float
    reached: frozenset[int]

    @property
    def name(self) -> str:
        """The name without cargo's hash."""
        return self.path.name.rsplit("-", 1)[0]


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process with its children, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Tree:
    """A copy of the last commit, in which mutants are compiled and run."""

    def __init__(self) -> None:
        """Copy the last commit."""
        self.path = ROOT / "target" / "mutants" / "tree"
        self.path.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x"], cwd=self.path, input=archive, check=True)
        self.programs: list[Path] = []

    def write(self, file: str, text: str) -> None:
        """Write a file, unless it has this text already (cargo compiles by the time of change)."""
        path = self.path / file
        if path.read_text() != text:
            path.write_text(text)

    def build(self, package: str, seconds: float = TIMEOUT_S) -> list[tuple[str, int]]:
        """Compile a package's test programs; return file and line of each error, none if all compiled."""
        command = ["cargo", "test", "--locked", "--no-run", "--package", package, "--message-format=json"]
        output = subprocess.run(
            [*command, "--lib", "--tests"], cwd=self.path, capture_output=True, text=True, check=False, timeout=seconds
        ).stdout
        messages = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        built = [one["executable"] for one in messages if one.get("executable")]
        # `tidy` holds rules on the sources, which mutants break.
        self.programs = [Path(program) for program in built if not Path(program).name.startswith("tidy-")]
        errors = [one["message"] for one in messages if one.get("reason") == "compiler-message"]
        return [
            (span["file_name"], span["line_start"])
            for message in errors
            if message["level"] == "error"
            for span in message["spans"]
        ]

    def folder(self, package: str) -> Path:
        """Return the folder of a package, in which its tests run."""
        return self.path / "crates" / package

    def fails(self, program: Path, package: str, seconds: float, **environment: str) -> bool:
        """Run a test program with a mutant; return whether a test of it failed or did not end in time."""
        environment = os.environ | {"CARGO_MANIFEST_DIR": str(self.folder(package))} | environment
        process = subprocess.Popen(
            [program],
            cwd=self.folder(package),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        timer = threading.Timer(seconds, killed, (process,))
        timer.start()
        try:
            for line in process.stdout or ():
                if line.rstrip().endswith("FAILED"):
                    return True
            return process.wait() != 0
        finally:
            timer.cancel()
            if process.poll() is None:
                killed(process)
            process.wait()

    def baseline(self, package: str) -> list[Program]:
        """Return the test programs that pass without a mutant, the quickest first."""
        programs = []
        seen = self.path / "reached"
        for path in self.programs:
            seen.write_text("")
            began = time.monotonic()
            if self.fails(path, package, TIMEOUT_S, NANDARRAY_MUTANTS_REACHED=str(seen)):
                print(f"left out: {path.name} fails without a mutant", flush=True)
                continue
            reached = frozenset(map(int, seen.read_text().split()))
            programs.append(Program(path, time.monotonic() - began, reached))
        return sorted(programs, key=lambda one: one.seconds)

    def outcome(self, programs: list[Program], package: str, number: int) -> str:
        """Return `caught`, with the program that noticed a mutant, or `missed`."""
        reaching = [program for program in programs if number in program.reached]
        # Cases of property tests differ from run to run, so a place that none reached may be reached yet.
        for program in reaching or programs:
            limit_s = max(60.0, 10 * program.seconds)
            if self.fails(program.path, package, limit_s, NANDARRAY_MUTANT=str(number)):
                return f"caught by {program.name}"
        return "missed" if reaching else "missed: no test reaches it"


class Results:
    """Outcomes by name, kept in a file of one JSON object a line."""

    def __init__(self, path: Path) -> None:
        """Read what an earlier run left."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.done: dict[str, str] = {one["name"]: one["outcome"] for one in known}

    def add(self, name: str, outcome: str) -> None:
        """Append an outcome."""
        self.done[name] = outcome
        with self.path.open("a") as file:
            file.write(json.dumps({"name": name, "outcome": outcome}) + "\n")
        print(f"{len(self.done)}: {outcome}: {name}", flush=True)


def compiled_together(tree: Tree, package: str, drawn: list[dict[str, Any]], numbers: dict[str, int]) -> set[str]:
    """Compile mutants of a package into one build; return the names of those that do not compile so."""
    alone: set[str] = set()
    library = f"crates/{package}/src/lib.rs"
    tree.write(library, (ROOT / library).read_text() + CHOICE)
    while True:
        for file in sorted({mutant["file"] for mutant in drawn}):
            chosen = [mutant for mutant in drawn if mutant["file"] == file and mutant["name"] not in alone]
            text, impossible = switched((ROOT / file).read_text(), chosen, numbers)
            alone |= set(impossible)
            tree.write(file, text)
        errors = tree.build(package)
        if not errors:
            return alone
        names = {number: name for name, number in numbers.items()}
        found = set()
        for file, line in errors:
            marked = re.search(r"// mutant (\d+)$", (tree.path / file).read_text().split("\n")[line - 1])
            if marked:
                found.add(names[int(marked[1])])
        if not found:
            raise SystemExit(f"the build fails, but at no mutant: {errors}")
        print(f"{package}: {len(found)} mutants do not compile beside the others", flush=True)
        alone |= found


def run_alone(tree: Tree, mutant: dict[str, Any]) -> str:
    """Compile and run one mutant in the copy, whose file is put back afterwards."""
    file = mutant["file"]
    original = (ROOT / file).read_text()
    tree.write(file, mutated(original, mutant["span"], mutant["replacement"]))
    try:
        if tree.build(mutant["package"]):
            return "unviable"
        programs = [Program(path, TIMEOUT_S / 10, frozenset([0])) for path in tree.programs]
        return tree.outcome(programs, mutant["package"], 0)
    except subprocess.TimeoutExpired:
        return "caught: the build does not end"
    finally:
        tree.write(file, original)


def run(drawn: list[dict[str, Any]], results: Results) -> list[str]:
    """Run the mutants that the results do not have yet; return the names of all that were missed."""
    numbers = {mutant["name"]: number for number, mutant in enumerate(drawn, 1)}
    left = [mutant for mutant in drawn if mutant["name"] not in results.done]
    tree = Tree() if left else None
    alone: set[str] = set()
    for package in sorted({mutant["package"] for mutant in left}):
        assert tree is not None
        mutants = [mutant for mutant in left if mutant["package"] == package]
        alone |= compiled_together(tree, package, mutants, numbers)
        programs = tree.baseline(package)
        for mutant in mutants:
            if mutant["name"] not in alone:
                results.add(mutant["name"], tree.outcome(programs, package, numbers[mutant["name"]]))
    if alone:
        tree = Tree()
    for mutant in left:
        if mutant["name"] in alone:
            results.add(mutant["name"], run_alone(tree or Tree(), mutant))
    return [mutant["name"] for mutant in drawn if results.done[mutant["name"]].startswith("missed")]


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
        print("the checkout has uncommitted changes, which mutants of the last commit would miss: commit them first")
        return 1
    # The order in which they run is drawn, too: of a run that is stopped, a random part is done.
    random.Random(args.seed).shuffle(drawn)
    results = args.results or ROOT / "target" / f"mutants-{args.seed}.jsonl"
    missed = run([mutants[name] for name in drawn], Results(results))
    print("\n".join([f"{len(missed)} missed", *missed]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
