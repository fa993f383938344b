"""The header for kernels, on warps of fibres and on threads: every schedule from a seed, mutants killed by name.

The cases are in ``tests/gpu/shim.cpp`` (SIMT, deterministic), ``tests/gpu/threads.cpp`` (ThreadSanitizer) and
``tests/gpu/relacy.cpp`` (relacy's model of C++'s memory; skipped where ``tools/system-packages.sh relacy-dev`` was not
run).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import nandarray_papers
from nandarray import gpu

GPU = Path(__file__).parents[1] / "gpu"
INCLUDE = gpu.include()
#: `drive.hpp`, which recordings for the model use as well.
DRIVE = Path(nandarray_papers.__file__).parent / "bam" / "native"
DEEP = bool(os.environ.get("NANDARRAY_DEEP"))
SEEDS = range(1, 40) if DEEP else range(1, 5)
#: Executions of each case under relacy.
EXECUTIONS = 200_000 if DEEP else 5_000
#: relacy replaces `operator delete` without a size only.
RELACY = ("-O1", "-w", "-fno-sized-deallocation")

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def build(source: str, to: Path, *flags: str, include: Path = INCLUDE) -> Path:
    base = [
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wno-clobbered",
        "-pthread",
        f"-I{include}",
        f"-I{GPU}",
        f"-I{DRIVE}",
    ]
    subprocess.run([*base, *flags, str(GPU / source), "-o", str(to)], check=True, timeout=300)
    return to


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    return {
        "shim": build("shim.cpp", folder / "shim", "-O1", "-g"),
        "tsan": build("threads.cpp", folder / "tsan", "-O1", "-g", "-fsanitize=thread"),
        "threads": build("threads.cpp", folder / "threads", "-O2"),
    }


def has_relacy() -> bool:
    asked = subprocess.run(["g++", "-E", "-x", "c++", "-"], input="#include <relacy/relacy.hpp>\n", text=True,
                           capture_output=True, check=False)  # fmt: skip
    return asked.returncode == 0


def run(program: Path, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=timeout, check=False)


#: Each case of the shim, by the fault of BaM that it would show.
CASES = {
    "reads": "a warp's lanes read what the drive holds, at depth 2, 8 and 64, whoever runs",
    "stores": "stores of lanes survive eviction, write-back and flush; a flush sends NVMe's flush",
    "loaded_once": "a page is loaded once, however many want it",
    "errors": "a status reaches every waiter, stale bytes nobody",
    "lost": "a completion that never comes, and a server that dies, end in a status",
    "pinned": "with every line pinned the search ends",
    "dirty": "reads leave lines clean; the dirty bit is the right page's; a failed write-back is reported",
    "far": "pages beyond 2^32 are others",
    "prefetches": "prefetches need nobody to wait for them",
    "flushed": "a flush reaches the drive behind the write-backs of all queue pairs",
    "flushed_slowly": "a flush takes as long as its lines do; one that never ends is a status",
    "crowded": "a line takes more lanes than 65,536; a lane above its limit waits or gets a status",
    "wraps": "a queue pair goes on behind 2^32 commands",
    "given_back_together": "lanes give a line back, and mark it, by one atomic",
    "across_the_bus": "waiters seldom read the server's words, and the head is written every quarter of the ring",
    "stopped": "the time in which a kernel was stopped is no part of a deadline",
    "typed": "an array is opened as its own type only",
}


@pytest.mark.parametrize("mode", ["together", "split"])
@pytest.mark.parametrize("case", CASES)
def test_warps(built, case, mode) -> None:
    for seed in SEEDS:
        done = run(built["shim"], case, str(seed), *(["split"] if mode == "split" else []))
        assert done.returncode == 0, f"seed {seed}: {CASES[case]}\n{done.stderr}"


@pytest.mark.parametrize("case", ["queue", "lines"])
def test_threads_race_nowhere(built, case) -> None:
    for seed in SEEDS:
        done = run(built["tsan"], case, str(seed))
        assert done.returncode == 0, f"seed {seed}\n{done.stderr[:4000]}"


@pytest.fixture(scope="module")
def relacy(tmp_path_factory):
    if not has_relacy():
        pytest.skip("relacy is not installed: tools/system-packages.sh relacy-dev (Debian, as root)")
    return build("relacy.cpp", tmp_path_factory.mktemp("relacy") / "relacy", *RELACY)


@pytest.mark.parametrize("case", ["queue", "cache", "flush"])
def test_no_order_of_the_header_is_too_weak(relacy, case) -> None:
    done = run(relacy, case, str(EXECUTIONS), timeout=600)
    assert done.returncode == 0, done.stderr[:4000]


def test_a_line_has_at_most_16_bytes_of_directory(built) -> None:
    assert json.loads(run(built["threads"], "hits").stdout)["metadata_bytes"] <= 16


def test_a_hit_changes_its_own_line_only_and_nothing_grows_with_the_data(built) -> None:
    done = run(built["threads"], "touches")
    assert done.returncode == 0, done.stderr


HIT = "test_a_hit_changes_its_own_line_only_and_nothing_grows_with_the_data"
#: Defects of BaM's implementation, each with the test of this package that would show it: a case of the shim, or a
#: function of the module that is named.
DEFECTS = {
    "the dirty bit is set on the wrong page": "dirty",
    "reads through a pointer that is not const mark a page dirty": "dirty",
    "the status of a completion is ignored, and stale bytes are returned": "errors",
    "a completion that is lost hangs the GPU": "lost",
    "with every slot pinned the search for one never ends": "pinned",
    "the directory is sized by the data": HIT,
    "a flush loses a concurrent write": "test_no_order_of_the_header_is_too_weak",
    "a flush never sends NVMe's": "stores",
    "statistics are global atomics on the path of a hit": HIT,
    "page numbers are cut to 32 bits": "far",
    "a page is loaded twice": "loaded_once",
    "2 MiB of locks of command identifiers a queue pair": HIT,
    "arrays are searched for one after the other": HIT,
    "it needs root, a kernel module and a raw drive": "test_queues.test_an_ordinary_user_serves_and_reads",
    "it does not build with CUDA 13": "test_cuda_registers.test_every_kernel_is_within_its_budget",
}


def test_each_defect_has_its_test() -> None:
    for defect, test in DEFECTS.items():
        module, _, name = test.rpartition(".")
        where = Path(__file__).with_name(f"{module}.py") if module else Path(__file__)
        assert test in CASES or f"def {name}(" in where.read_text(), defect


#: Invariants of `cache.hpp`, each with a mutant that breaks it.
INVARIANTS = {
    "I1": "victim taken while held",
    "I2": "set's lock ignored",
    "I3": "loaded before the load",
    "I4": "DIRTY cleared after the write-back",
    "I5": "failed line left behind",
    "I6": "word replaced without a comparison",
    "I7": "flush waits for no write-back",
}


def test_each_invariant_of_the_cache_has_a_mutant() -> None:
    stated = re.findall(r"^//   (I\d+)  ", (INCLUDE / "nandarray" / "cache.hpp").read_text(), re.MULTILINE)
    assert stated == list(INVARIANTS)
    assert set(INVARIANTS.values()) <= MUTANTS.keys()


#: Mutants of the header: file, text, replacement, and what kills it. `<=` for `<` in `sweep` is not among them: it
#: changes nothing, as no slot has the mark of the next lap before its turn.
MUTANTS = {
    "mark published relaxed": ("queue.hpp", "P::store_release(&slot->mark", "P::store(&slot->mark", ("tsan", "queue")),
    "no wait for the turn": ("queue.hpp", "if (P::load_acquire(&slot->turn) != lap) {", "if (false) {",
                             ("shim", "reads")),
    "ring a lap too full": ("queue.hpp", "if (P::load_acquire(&slot->turn) != lap) {",
                            "if (P::load_acquire(&slot->turn) + 1 < lap) {", ("shim", "reads")),
    "doorbell rung relaxed": ("policy.hpp", "__atomic_exchange_n(&doorbell->raw, value, __ATOMIC_SEQ_CST);",
                              "__atomic_store_n(&doorbell->raw, value, __ATOMIC_RELAXED);", ("tsan", "queue")),
    "phase ignored": ("queue.hpp", "& 1) == phase;", "& 1) == phase || at != 7;", ("shim", "reads")),
    "turn released before the cookie is read": (
        "queue.hpp",
        "u64 cookie = P::load(&slot->cookie);\n        P::store_release(&slot->turn, lap_after(turn));",
        "P::store_release(&slot->turn, lap_after(turn));\n        u64 cookie = P::load(&slot->cookie);",
        ("shim", "reads"),
    ),
    "DIRTY cleared after the write-back": (
        "cache.hpp",
        "((u64(line_writing) - line_valid) << state_shift));\n    }\n\n    /// Waits",
        "((u64(line_writing) - line_valid) << state_shift));\n"
        "        P::fetch_and(word, ~dirty_bit);\n    }\n\n    /// Waits",
        ("shim", "stores"),
    ),
    "count dropped before the use": (
        "array.hpp",
        "        result<T> r = {*reinterpret_cast<const T *>(lines->data_of(h.line) + offset_of(i)), ok};\n"
        "        lines->release_together(h);",
        "        lines->release_together(h);\n"
        "        for (int k = 0; k < 300; ++k) P::pause(0);\n"
        "        result<T> r = {*reinterpret_cast<const T *>(lines->data_of(h.line) + offset_of(i)), ok};",
        ("shim", "reads"),
    ),
    "set's lock ignored": ("cache.hpp", "while (P::fetch_or(&at.sets[set], lock_bit) & lock_bit)\n", "while (false)\n",
                           ("shim", "loaded_once")),
    "tag not checked": ("cache.hpp", "if (tag_of(seen) == wanted && state_of(seen)", "if (state_of(seen)",
                        ("shim", "reads")),
    "status of a load ignored": ("cache.hpp", "} else if (code != 0) {", "} else if (code == 1) {", ("shim", "errors")),
    "page number cut": ("cache.hpp", "return u64(ns) << at.page_bits | page;",
                        "return u64(ns) << at.page_bits | u32(page);", ("shim", "far")),
    "turn released relaxed": ("queue.hpp", "P::store_release(&slot->turn", "P::store(&slot->turn", ("relacy", "queue")),
    "turn looked at relaxed": ("queue.hpp", "while (P::load_acquire(&slot->turn)", "while (P::load(&slot->turn)",
                               ("relacy", "queue")),
    "marks swept relaxed": ("queue.hpp", "P::load_acquire(&slots[to & (depth - 1)].mark)",
                            "P::load(&slots[to & (depth - 1)].mark)", ("relacy", "queue")),
    "tail's lock released relaxed": ("queue.hpp", "P::store_release(&words->tail_lock", "P::store(&words->tail_lock",
                                     ("relacy", "queue")),
    "completions' lock released relaxed": ("queue.hpp", "P::store_release(&words->cq_lock", "P::store(&words->cq_lock",
                                           ("relacy", "queue")),
    "completions read relaxed": ("queue.hpp", "P::sys_load_acquire(&cq[", "P::sys_load(&cq[", ("relacy", "queue")),
    "laps do not wrap": ("queue.hpp", "& (~0u >> shift)", "& ~0u", ("shim", "wraps")),
    "head written by each poll": ("queue.hpp", ">= (depth + 3) / 4", "!= 0", ("shim", "across_the_bus")),
    "server looked at in each round": ("queue.hpp", "(l.round & 63) == 0", "true", ("shim", "across_the_bus")),
    "time of a stop counted": ("queue.hpp", "gap < most ? gap : most", "most ? gap : gap", ("shim", "stopped")),
    "one deadline for all lines": ("cache.hpp", "typename queue_pair<P>::limit l = of.begin();",
                                   "static typename queue_pair<P>::limit l = of.begin();", ("shim", "flushed_slowly")),
    "a crowd is let in": ("cache.hpp", "if (count_of(word) >= crowd) return lines() + 1;", "", ("shim", "crowded")),
    "given back lane by lane": ("cache.hpp", "u64(line) << 1 | u64(changed));", "u64(P::lane()));",
                                ("shim", "given_back_together")),
    "result published relaxed": ("queue.hpp", "P::store_release(&word->value, done_bit",
                                 "P::store(&word->value, done_bit", ("relacy", "queue")),
    "victim taken while held": ("cache.hpp", "if (count_of(word) != 0) continue;", "", ("relacy", "cache")),
    "loaded before the load": ("cache.hpp", "u64 fresh = word_of(wanted, line_loading, n);",
                               "u64 fresh = word_of(wanted, line_valid, n);", ("relacy", "cache")),
    "failed line left behind": ("cache.hpp", "if (state_of(now) == line_failed && count_of(now) == 0)\n",
                                "if (false)\n", ("shim", "errors")),
    "word replaced without a comparison": (
        "cache.hpp",
        "} else if (P::compare_exchange(&at.words[line], word, fresh)) {",
        "} else if (P::store(&at.words[line], fresh), true) {",
        ("relacy", "cache"),
    ),
    "flush waits for no write-back": (
        "cache.hpp",
        "if (state_of(seen) != line_writing) continue;",
        "if (true) continue;",
        ("shim", "flushed"),
    ),
    "flush not sent to the drive": ("cache.hpp", "return q.finish(word, *this);", "return ok;", ("shim", "stores")),
    "store leaves its line clean": ("cache.hpp", "P::fetch_or(&at.words[line], dirty_bit);",
                                    "P::fetch_or(&at.words[line], u64(0));", ("shim", "stores")),
    "read marks its line": ("cache.hpp", "if (!(seen & referenced_bit)) P::fetch_or(&at.words[line], referenced_bit);",
                            "P::fetch_or(&at.words[line], referenced_bit | dirty_bit);", ("shim", "dirty")),
    "hit counted for all": ("cache.hpp", "if (line < lines() && readable(seen)) {",
                            "if (line < lines() && readable(seen)) {\nP::fetch_add(&at.counts->refused, u64(1));",
                            ("threads", "touches")),
    "no deadline": ("queue.hpp", "if (l.waited >= deadline_ns) return timed_out;", "", ("shim", "lost")),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_killed(name, tmp_path) -> None:
    file, text, changed, (tool, case) = MUTANTS[name]
    shutil.copytree(INCLUDE, tmp_path / "include")
    source = tmp_path / "include" / "nandarray" / file
    original = source.read_text()
    assert original.count(text) >= 1, "the mutant's text is in the header"
    source.write_text(original.replace(text, changed))
    if tool == "relacy" and not has_relacy():
        pytest.skip("relacy is not installed: tools/system-packages.sh relacy-dev (Debian, as root)")
    flags = {"shim": ("-O1",), "threads": ("-O1",), "tsan": ("-O1", "-fsanitize=thread"), "relacy": RELACY}[tool]
    source_of = {"shim": "shim.cpp", "relacy": "relacy.cpp"}.get(tool, "threads.cpp")
    program = build(source_of, tmp_path / "mutant", *flags, include=tmp_path / "include")
    if tool == "relacy":
        assert run(program, case, "100000", timeout=300).returncode, f"{name} survived"
        return
    for seed in range(1, 12):
        for mode in ((), ("split",)):
            try:
                if run(program, case, str(seed), *mode, timeout=20).returncode:
                    return
            except subprocess.TimeoutExpired:
                return
    pytest.fail(f"{name} survived")
