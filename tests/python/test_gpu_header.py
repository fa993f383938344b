"""The header for kernels, on warps of fibres and on threads: every schedule from a seed, mutants killed by name.

The cases are in ``tests/gpu/shim.cpp`` (SIMT, deterministic) and ``tests/gpu/threads.cpp`` (ThreadSanitizer).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nandarray import gpu, lab

GPU = Path(__file__).parents[1] / "gpu"
INCLUDE = gpu.include()
#: `drive.hpp`, which recordings for the model use as well.
DRIVE = Path(lab.__file__).parent / "bam" / "native"
DEEP = bool(os.environ.get("NANDARRAY_DEEP"))
SEEDS = range(1, 40) if DEEP else range(1, 5)

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


def test_a_line_has_at_most_16_bytes_of_directory(built) -> None:
    assert json.loads(run(built["threads"], "hits").stdout)["metadata_bytes"] <= 16


#: Mutants of the header: file, text, replacement, and what kills it. Two are not among them: `<=` for `<` in `sweep`
#: changes nothing, as no slot has the mark of the next lap before its turn; and a turn that is released relaxed
#: survives ThreadSanitizer, as threads that wait for it take locks meanwhile: the order of its steps is tested instead.
MUTANTS = {
    "mark published relaxed": ("queue.hpp", "P::store_release(&slot->mark", "P::store(&slot->mark", ("tsan", "queue")),
    "no wait for the turn": ("queue.hpp", "if (P::load_acquire(&slot->turn) != lap) {", "if (false) {",
                             ("shim", "reads")),
    "ring a lap too full": ("queue.hpp", "if (P::load_acquire(&slot->turn) != lap) {",
                            "if (P::load_acquire(&slot->turn) + 1 < lap) {", ("shim", "reads")),
    "doorbell rung relaxed": ("policy.hpp", "__atomic_exchange_n(&doorbell->raw, value, __ATOMIC_SEQ_CST);",
                              "__atomic_store_n(&doorbell->raw, value, __ATOMIC_RELAXED);", ("tsan", "queue")),
    "phase ignored": ("queue.hpp", "& 1) != phase) break;", "& 1) != phase && at == 7) break;", ("shim", "reads")),
    "turn released before the cookie is read": (
        "queue.hpp",
        "u64 cookie = P::load(&slot->cookie);\n        P::store_release(&slot->turn, turn + 1);",
        "P::store_release(&slot->turn, turn + 1);\n        u64 cookie = P::load(&slot->cookie);",
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
    "set's lock ignored": ("cache.hpp", "while (P::fetch_or(&at.sets[set], lock_bit) & lock_bit) {", "while (false) {",
                           ("shim", "loaded_once")),
    "tag not checked": ("cache.hpp", "if (tag_of(seen) == wanted && state_of(seen)", "if (state_of(seen)",
                        ("shim", "reads")),
    "status of a load ignored": ("cache.hpp", "} else if (code != 0) {", "} else if (code == 1) {", ("shim", "errors")),
    "page number cut": ("cache.hpp", "return u64(ns) << page_bits | page;", "return u64(ns) << page_bits | u32(page);",
                        ("shim", "far")),
    "no deadline": ("queue.hpp", "if (P::now_ns() >= l.until) return timed_out;", "", ("shim", "lost")),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_killed(name, tmp_path) -> None:
    file, text, changed, (tool, case) = MUTANTS[name]
    shutil.copytree(INCLUDE, tmp_path / "include")
    source = tmp_path / "include" / "nandarray" / file
    original = source.read_text()
    assert original.count(text) >= 1, "the mutant's text is in the header"
    source.write_text(original.replace(text, changed))
    flags = ("-O1", "-fsanitize=thread") if tool == "tsan" else ("-O1",)
    program = build({"shim": "shim.cpp", "tsan": "threads.cpp"}[tool], tmp_path / "mutant", *flags,
                    include=tmp_path / "include")  # fmt: skip
    for seed in range(1, 12):
        for mode in ((), ("split",)):
            try:
                if run(program, case, str(seed), *mode, timeout=20).returncode:
                    return
            except subprocess.TimeoutExpired:
                return
    pytest.fail(f"{name} survived")
