"""Promise: a seed draws the same mutants again, none of them one that tests are not meant to notice."""

import importlib.util
from pathlib import Path

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


def test_a_function_chooses_between_its_body_and_mutated_ones() -> None:
    text = "const fn k() -> u32 { 1 + 2 }\nfn a(x: u32) -> u32 {\n    // twelve\n    x << 12\n}\n"
    spans = [((1, 25), (1, 26)), ((4, 7), (4, 9)), ((3, 5), (4, 12))]
    functions = [((1, 1), (1, 31)), ((2, 1), (5, 2)), ((2, 1), (5, 2))]
    replaced = [("BinaryOperator", "-"), ("BinaryOperator", ">>"), ("FnValue", "7")]

    def span(ends: tuple[tuple[int, int], tuple[int, int]]) -> dict[str, dict[str, int]]:
        return {
            name: {"line": line, "column": column} for name, (line, column) in zip(("start", "end"), ends, strict=True)
        }

    drawn = [
        {"name": f"m{n}", "genre": genre, "replacement": text, "span": span(at), "function": {"span": span(function)}}
        for n, (at, function, (genre, text)) in enumerate(zip(spans, functions, replaced, strict=True), 1)
    ]
    switched, alone = mutants.switched(text, drawn, {"m1": 1, "m2": 2, "m3": 3})
    assert alone == ["m1"]
    assert switched == (
        "const fn k() -> u32 { 1 + 2 }\nfn a(x: u32) -> u32 {\n"
        "if crate::mutation::is(2) { return {  x >> 12 }; } // mutant 2\n"
        "if crate::mutation::is(3) { return { 7 }; } // mutant 3\n"
        "\n    // twelve\n    x << 12\n}\n"
    )


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    results = mutants.Results(tmp_path / "results.jsonl")
    results.add("a", "caught by nandarray")
    results.add("b", "missed")
    drawn = [{"name": name} for name in ("a", "b")]
    assert mutants.run(drawn, mutants.Results(tmp_path / "results.jsonl")) == ["b"]
