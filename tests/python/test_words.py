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


FOLDERS = ("crates", "python", "papers", "tests", "bench", "examples", "fuzz", "tools", "docs", "*.md")


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_say_what_things_are(folder: str) -> None:
    found = [line for path in words.tracked(folder) for line in words.check(path)]
    assert not found, f"{len(found)} places (docs/internals/glossary.md has the words):\n" + "\n".join(found)


def test_each_type_has_a_name_of_its_own() -> None:
    found = [f"{name}: {' '.join(files)}" for name, files in words.types().items()]
    assert not found, f"{len(found)} names of types are declared more than once:\n" + "\n".join(found)


def test_a_norm_in_a_message_is_no_fact() -> None:
    python = '''
def f(seconds):
    """Seconds; they are not looked at."""
    if seconds < 0:
        raise ValueError(f"seconds is {seconds}; it is more than 0")
    raise KeyError("no 'x'; there is 'a', 'b'" "; it must be one of them")
'''
    assert list(words.norms(Path("a.py"), python)) == [(5, "seconds is {}; it is more than 0")]
    rust = """
#[cfg(test)]
mod tests;
// threads; they are counted
let says = format!("{threads} threads; there are 1 to {most}");
let quote = '"';
let fact = "no such mode; there are 'r' and 'w'";
let said = "elements of 0 bytes; \\
    they have 1 to 8";
#[cfg(test)]
mod tests { const SAYS: &str = "x is 1; it is 2"; }
"""
    found = list(words.norms(Path("a.rs"), rust))
    assert found == [(5, "{threads} threads; there are 1 to {most}"), (8, "elements of 0 bytes; they have 1 to 8")]


def test_the_text_of_a_parameter_is_a_noun_phrase() -> None:
    text = '''def draw(seed, size, depth):
    """Draw.

    Parameters
    ----------
    seed : int
        Of all chance.
    size, depth : int
        Number of requests, and how many are in flight.

    Returns
    -------
    dict
        What was drawn.
    """
'''
    assert list(words.fragments(text)) == [(7, "Of all chance."), (14, "What was drawn.")]


def test_the_help_of_an_option_is_no_fragment() -> None:
    text = 'typer.Option(help="Seed of draws.")\ntyper.Option(help=f"With --shm: {most} at most.")\nhelp("Of all.")\n'
    assert list(words.helps(text)) == [(2, "With --shm:  at most.")]
