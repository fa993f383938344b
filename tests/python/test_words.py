"""The words of the source: what ``tools/words.py`` finds in the repository, as one readable list."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "words.py"
_SPEC = importlib.util.spec_from_file_location("words", TOOL)
assert _SPEC is not None
assert _SPEC.loader is not None
words = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(words)


@pytest.mark.parametrize("folder", ["crates", "python", "tests", "bench", "examples", "fuzz", "tools", "docs", "*.md"])
def test_sentences_say_what_things_are(folder: str) -> None:
    found = [line for path in words.tracked(folder) for line in words.check(path)]
    assert not found, f"{len(found)} places (docs/internals/glossary.md has the words):\n" + "\n".join(found)


def test_each_type_has_a_name_of_its_own() -> None:
    found = [f"{name}: {' '.join(files)}" for name, files in words.types().items()]
    assert not found, f"{len(found)} names of types are declared more than once:\n" + "\n".join(found)
