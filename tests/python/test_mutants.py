"""Promise: a seed draws the same mutants again, none of them one that tests are not meant to notice."""

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[2] / "tools" / "mutants.py"
_SPEC = importlib.util.spec_from_file_location("mutants", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
mutants = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(mutants)


def test_a_seed_draws_the_same_mutants() -> None:
    names = [f"crates/nandarray/src/ftl/segments.rs:{line}:9: replace + with -" for line in range(500)]
    hint = "crates/nandarray/src/ftl/mod.rs:640:5: replace Ftl::locate with ()"
    drawn = mutants.sample([*names, hint, *names], 200, 7)
    assert len(set(drawn)) == 200
    assert drawn == mutants.sample([hint, *reversed(names)], 200, 7)
    assert drawn != mutants.sample(names, 200, 8)
    assert hint not in mutants.sample([*names, hint], 1_000, 1)
    assert len(mutants.sample(names, 1_000, 1)) == 500


def test_folders_to_draw_from_are_there() -> None:
    assert all((_PATH.parents[1] / folder).is_dir() for folder in mutants.FOLDERS)


def test_a_mutant_replaces_its_span() -> None:
    text = "fn a() -> u32 {\n    1 << 12\n}\n"
    span = {"start": {"line": 2, "column": 7}, "end": {"line": 2, "column": 9}}
    assert mutants.mutated(text, span, ">>") == "fn a() -> u32 {\n    1 >> 12\n}\n"
    body = {"start": {"line": 2, "column": 5}, "end": {"line": 2, "column": 12}}
    assert mutants.mutated(text, body, "0") == "fn a() -> u32 {\n    0\n}\n"


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [{"name": name} for name in ("a", "b", "c")]
    seen: list[str] = []

    def outcome(mutant: dict[str, str]) -> str:
        if mutant["name"] == "b" and "b" not in seen:
            seen.append("b")
            raise KeyboardInterrupt
        seen.append(mutant["name"])
        return "missed" if mutant["name"] == "c" else "caught"

    monkeypatch.setattr(mutants, "outcome", outcome)
    with pytest.raises(KeyboardInterrupt):
        mutants.run(drawn, tmp_path / "results.jsonl")
    assert mutants.run(drawn, tmp_path / "results.jsonl") == ["c"]
    assert seen == ["a", "b", "b", "c"]
