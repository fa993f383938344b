"""Run every check and every test of the repository, and say at the end what came out.

Each step runs whatever became of those before it, its output passed on as it comes. Steps that use one core run in a
second lane, beside those of cargo, which leave a core idle while they link; their output is printed when they end. The
summary names every step, and the twenty slowest tests; a lint counts as one test. It is also written to
``target/test-summary.txt``. Its last line is for machines: ``N passed, N failed, N skipped``. Exit status 0 if nothing
failed.

``make test`` sets up what this needs and calls it. It takes words that steps begin with, to run only these::

    python tests/run.py            # everything
    python tests/run.py pytest     # one step

``make setup-test`` builds the native module, ``make bench`` measures speed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / "target" / "test-summary.txt"
BENCH = "tests/python/test_bench.py"
#: Number of the slowest tests that the summary names.
SLOWEST = 20


@dataclass(frozen=True)
class Counts:
    """Numbers of tests by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


Reader = Callable[[list[str], int], Counts]


@dataclass(frozen=True)
class Step:
    """A command, and how its output is counted."""

    name: str
    command: tuple[str, ...]
    count: Reader
    #: Whether it runs in the second lane, beside the steps of cargo.
    beside: bool = False
    #: Whether it begins when both lanes have come to it: it uses all cores itself.
    waits: bool = False


def of_status(_lines: list[str], status: int) -> Counts:
    """A lint passes or fails as a whole."""
    return Counts(passed=int(status == 0), failed=int(status != 0))


def of_cargo(lines: list[str], status: int) -> Counts:
    """Sum of the "test result" lines; a run that broke off failed once more."""
    total = Counts()
    for line in lines:
        found = re.search(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", line)
        if found:
            total += Counts(*map(int, found.groups()))
    return total + Counts(failed=int(status != 0 and total.failed == 0))


def of_pytest(lines: list[str], status: int) -> Counts:
    """Pytest's last line."""
    last = next((line for line in reversed(lines) if re.search(r"\d+ \w+.* in [\d.]+s", line)), "")
    found = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last.split(" in ")[0])}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    skipped = found.get("skipped", 0) + found.get("xfailed", 0)
    return Counts(found.get("passed", 0), failed or int(status != 0), skipped)


def slow_tests(lines: list[str]) -> list[tuple[float, str]]:
    """Seconds and names of pytest's slowest phases, and of cargo's test binaries (it tells no times of tests)."""
    found, binary = [], ""
    for line in lines:
        if started := re.match(r" +(?:Running|Doc-tests) (?:unittests )?(.+?)(?: \(target/.*)?$", line):
            binary = started[1]
        elif ended := re.match(r"test result: .* finished in ([\d.]+)s", line):
            found.append((float(ended[1]), f"all of {binary}"))
        elif phase := re.match(r"([\d.]+)s (call|setup|teardown) +(\S+)", line):
            found.append((float(phase[1]), phase[3] + ("" if phase[2] == "call" else f" ({phase[2]})")))
    return found


def steps() -> list[Step]:
    """All steps, cheap ones first."""
    python = (sys.executable, "-m")
    cargo = shutil.which("cargo") or "cargo"
    return [
        Step("cargo fmt", (cargo, "fmt", "--all", "--check"), of_status),
        Step("ruff check", (*python, "ruff", "check", "--quiet", "."), of_status),
        Step("ruff format", (*python, "ruff", "format", "--quiet", "--check", "."), of_status),
        Step("mypy", (*python, "mypy", "--no-error-summary"), of_status, beside=True),
        Step("stubtest", (*python, "mypy.stubtest", "nandarray._nandarray"), of_status, beside=True),
        # The benchmarks have a process of their own: the filters of HDF5 cannot be registered where other tests have
        # used its library.
        Step("pytest, benchmarks", (*python, "pytest", BENCH, f"--durations={SLOWEST}"), of_pytest, beside=True),
        Step(
            "cargo clippy",
            (cargo, "clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"),
            of_status,
        ),
        # Programs' harts are built without bare machines, which the workspace turns on for the command line.
        Step(
            "cargo clippy, hart alone",
            (cargo, "clippy", "--quiet", "-p", "nandarray-hart", "--locked", "--", "-D", "warnings"),
            of_status,
        ),
        Step("cargo test", (cargo, "test", "--workspace", "--locked", "--no-fail-fast"), of_cargo),
        # Two processes, a file at a time: its tests share what they set up.
        Step(
            "pytest",
            (*python, "pytest", "-n", "2", "--dist", "loadfile", f"--ignore={BENCH}", f"--durations={SLOWEST}"),
            of_pytest,
            waits=True,
        ),
    ]


def run(step: Step) -> tuple[Counts, list[str]]:
    """Run one step, pass its output on (of the second lane: when it has ended), count."""
    head = f"\n==> {step.name}: {shlex.join(step.command)}"
    if not step.beside:
        _print([head])
    lines: list[str] = []
    started = subprocess.Popen(
        step.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert started.stdout is not None
    for line in started.stdout:
        lines.append(line.rstrip("\n"))
        if not step.beside:
            _print(lines[-1:])
    status = started.wait()
    if step.beside:
        _print([head, *lines])
    return step.count(lines, status), lines


_PRINTING = threading.Lock()


def _print(lines: list[str]) -> None:
    with _PRINTING:
        print("\n".join(lines), flush=True)


def closing(step: Step, lines: list[str]) -> list[str]:
    """The last lines of the step's own runner."""
    if step.count is of_cargo:
        return [line for line in lines if line.startswith("test result")]
    if step.count is of_pytest:
        return [line for line in lines if line.startswith(("FAILED", "ERROR", "SKIPPED"))] + lines[-1:]
    return []


@dataclass(frozen=True)
class Outcome:
    """Counts of a step, its lines of the summary, seconds and names of its slow tests."""

    counts: Counts
    lines: list[str]
    slow: list[tuple[float, str]]


def outcome(step: Step) -> Outcome:
    """Run one step."""
    start = time.monotonic()
    counts, lines = run(step)
    last = f"{step.name:<14}{time.monotonic() - start:7.1f} s   {counts}"
    return Outcome(counts, [*closing(step, lines), last], slow_tests(lines))


def run_all(chosen: list[Step]) -> list[Outcome]:
    """Run steps in their lanes; return the outcomes in the order of the steps."""
    outcomes: dict[str, Outcome] = {}

    def lane(steps: list[Step]) -> None:
        for step in steps:
            outcomes[step.name] = outcome(step)

    beside = threading.Thread(target=lane, args=([step for step in chosen if step.beside],))
    beside.start()
    lane([step for step in chosen if not step.beside and not step.waits])
    beside.join()
    lane([step for step in chosen if step.waits])
    return [outcomes[step.name] for step in chosen]


def main(only: list[str]) -> int:
    """Run the chosen steps, all by default; return the exit status."""
    chosen = [step for step in steps() if not only or step.name.startswith(tuple(only))]
    total, summary, slow = Counts(), [], []
    for one in run_all(chosen):
        total += one.counts
        summary += one.lines
        slow += one.slow
    summary += [f"{seconds:7.1f} s   {name}" for seconds, name in sorted(slow, reverse=True)[:SLOWEST]]
    summary.append(str(total))
    SUMMARY.parent.mkdir(exist_ok=True)
    SUMMARY.write_text("\n".join(summary) + "\n")
    _print(["\n==> summary", *summary])
    return int(total.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
