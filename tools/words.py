"""Check the words of the source: beginnings of sentences, words without a meaning in the field, long lines, type names.

It reads comments of Rust, Python and C, docstrings, paragraphs of Markdown, and texts of messages, which say a norm by
"must be" and not as if it were so ("seconds is -1; it is more than 0"); `docs/internals/glossary.md` says why. The
rules are lists in this file. Nothing is rewritten.

    python tools/words.py                    # everything that the tests hold
    python tools/words.py crates/nandarray   # one folder
    python tools/words.py --types            # type names that are declared more than once
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120

#: Beginnings of sentences with a clause in place of the subject; questions and headings are let through.
CLAUSE = re.compile(
    r"(What(?:ever)?|Who(?:ever|se)?|That which|Those (?:that|who|which|of)|So (?:many|much)|As many|Which(?:ever)?"
    r"|Where|How|Told|Asked|Given|Held|Shown|Seen|Due) [a-z]"
)
#: "Given a sorted list, ..." and "Where the host allows it, ..." are clauses beside a subject, not instead of one.
BESIDE = re.compile(r"(?:Given|Where|Whatever|However)\b[^.:]*, ")
#: Words with a private meaning, and the field's.
WORDS = {
    r"bur(?:y|ied|ies)": "free",
    r"rents?": "charge",
    r"somebody|anybody": "a caller, another process",
    r"nobody": "no reader, no process",
    r"whoever": "a noun",
    r"(?:is|are|was|were|be) told": "is notified, learns",
    r"(?:is|are|was|were|be) asked for": "is requested",
    r"so many": "a number of",
    r"regathers?": "account again",
}
#: A norm that is stated as a fact, behind what breaks it: "seconds is -1; it is more than 0".
NORM = re.compile(
    r"; (?:(?:it|they|both|all|each|these)(?: \w+)? (?:is|are|has to|have to|goes?)|they have|it has \d"
    r"|(?:there )?(?:is|are) from|there (?:is|are) \d)\b"
)
#: A fragment in place of what a parameter or result is: the house form is a noun phrase ("Seed of the generator").
FRAGMENT = re.compile(r"(?:Of|Which|How|Told|What|Where|From|With(?:out)?|When|Given)\b")
#: The same at the beginning of a docstring or of the comment of a constant.
OPENING = re.compile(rf"(?:{FRAGMENT.pattern}|Its\b)")
#: Folders whose docstrings are not held to that yet.
OPEN = "python/nandarray/array/"
_ENTRY = re.compile(r"^( *)[\w*]+(?:, [\w*]+)*(?: : .+)?\n\1    (\S.*)$", re.MULTILINE)
#: Texts of messages are looked for here; notes of experiments are sentences about what was found.
MESSAGES = re.compile(
    r"(?:python/nandarray/|papers/nandarray_papers/(?!experiments/)|crates/[\w-]+/src/)(?!.*tests?(?:/|\.rs))"
)
_RUST_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"((?:[^"\\]|\\.)*)"|'(?:[^'\\]|\\.)'""", re.DOTALL)
#: Tests within a file, its last part; `mod tests;` near the top names a file of their own.
_RUST_TESTS = re.compile(r"#\[cfg\(test\)\]\n(?:#\[.*\n)*mod \w+ \{")
LISTED = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): better for word, better in WORDS.items()}
#: Files that are not ours to word, or that list words.
SKIPPED = (
    "CHANGELOG.md", "docs/internals/glossary.md", "docs/lab-notes/", "tools/words.py", "tests/python/test_words.py",
)  # fmt: skip
SUFFIXES = (".rs", ".py", ".md", ".c", ".h")
#: Type names that several crates declare with one meaning: the crate's own error.
SAME_MEANING = {"Error", "Result"}
_PUBLIC = r"(?:pub(?:\([^)]*\))? )?"
DECLARED = re.compile(rf"^ *{_PUBLIC}(?:struct|enum|trait|union) ([A-Z]\w*)|^{_PUBLIC}type ([A-Z]\w*)", re.MULTILINE)


def tracked(folder: str) -> Iterator[Path]:
    """Yield the repository's files below a folder that are read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in SUFFIXES and path.exists() and not name.startswith(SKIPPED):
            yield path


def rust_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield blocks of line comments as (first line, text)."""
    block: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*//[/!]? ?(.*)", line)
        if found:
            if not block:
                first = number
            block.append(found.group(1))
            continue
        if block:
            yield first, "\n".join(block)
            block = []
        behind = re.search(r"[^:\"']//(?!/) ([A-Z].*)$", line)
        if behind and line.count('"') % 2 == 0:
            yield number, behind.group(1)
    if block:
        yield first, "\n".join(block)


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and blocks of comments as (first line, text)."""
    behind = (None, tokenize.NEWLINE, tokenize.INDENT, tokenize.NL, tokenize.COMMENT, tokenize.DEDENT)
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
        if token.type == tokenize.STRING and before in behind:
            yield token.start[0], token.string.strip("rbuf\"'")
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs of Markdown without code and headings, rows of tables as their cells."""
    fenced, block, first = False, [], 0
    for number, line in [*enumerate(text.splitlines(), 1), (0, "")]:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or not line.strip() or line.startswith(("#", "|", "```")):
            if block:
                yield first, "\n".join(block)
            block = []
            continue
        if not block:
            first = number
        block.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line))


def c_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments of C as (first line, text)."""
    for found in re.finditer(r"/\*(.*?)\*/|//(.*)", text, re.DOTALL):
        inside = (found.group(1) or found.group(2) or "").replace("\n *", "\n")
        yield text[: found.start()].count("\n") + 1, inside.strip()


def rust_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield string literals of Rust as (line, text), those of a file's own tests left out."""
    for found in _RUST_TEXT.finditer(_RUST_TESTS.split(text)[0]):
        if found.group(2):
            yield text[: found.start()].count("\n") + 1, re.sub(r"\\\n\s*", "", found.group(2))


def python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield strings of Python as (line, text), docstrings left out; values of an f-string are ``{}``."""
    tree = ast.parse(text)
    parts: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
    for node in ast.walk(tree):
        if node in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def norms(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the messages of a file that state a norm as a fact, as (line, text)."""
    texts = {".py": python_texts, ".rs": rust_texts}.get(path.suffix)
    for number, message in texts(text) if texts else ():
        if NORM.search(message):
            yield number, message


def fragments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of parameters and results, in numpydoc's sections of docstrings, that are fragments."""
    for first, block in python_comments(text):
        for entry in _ENTRY.finditer(block) if "----\n" in block else ():
            if FRAGMENT.match(entry[2]):
                yield first + block[: entry.start(2)].count("\n"), entry[2]


def openings(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, and comments of constants, that begin with a fragment."""
    lines = text.splitlines()
    for first, block in python_comments(text):
        documents = lines[first - 1].lstrip().startswith(('"""', "#: ")) and not lines[first - 2].startswith("#: ")
        if documents and OPENING.match(block):
            yield first, block.splitlines()[0]


def helps(text: str) -> Iterator[tuple[int, str]]:
    """Yield the help texts of command line options that are fragments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "help":
            said = "".join(_said(node.value))
            if FRAGMENT.match(said):
                yield node.value.lineno, said


def _said(node: ast.expr) -> Iterator[str]:
    """Yield the constant parts of a text."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield sentences with the line of the text that they begin in, code blocks left out."""
    text = re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL)
    at = 0
    for found in re.finditer(r"(?:[.!?:](?=\s)|\n\s*\n|\n\s*[-*] |\Z)", text):
        sentence = text[at : found.end()]
        stripped = sentence.lstrip(" \n-*")
        if stripped:
            yield text[: at + len(sentence) - len(stripped)].count("\n"), " ".join(stripped.split())
        at = found.end()


def comments_of(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield all prose of a file."""
    if path.suffix == ".rs":
        return rust_comments(text)
    if path.suffix == ".py":
        return python_comments(text)
    return paragraphs(text) if path.suffix == ".md" else c_comments(text)


def check(path: Path) -> Iterator[str]:
    """Yield one line for each place of a file that breaks a rule."""
    text = path.read_text()
    name = path.relative_to(ROOT)
    for first, block in comments_of(path, text):
        for offset, sentence in sentences(block):
            if CLAUSE.match(sentence) and not sentence.endswith("?") and not BESIDE.match(sentence):
                yield f"{name}:{first + offset}: a clause for a subject: {sentence[:70]}"
        for offset, line in enumerate(block.splitlines()):
            for word, better in LISTED.items():
                if found := word.search(line):
                    yield f"{name}:{first + offset}: {found.group(0)!r}: say {better}"
    if MESSAGES.match(str(name)):
        for number, message in norms(path, text):
            yield f"{name}:{number}: a norm as a fact, say 'must be': {message[:70]}"
        if path.suffix == ".py":
            opened = [] if str(name).startswith(OPEN) else openings(text)
            for number, said in [*fragments(text), *helps(text), *opened]:
                yield f"{name}:{number}: a fragment, say what it is by a noun: {said[:70]}"
    if path.suffix != ".md":
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > WIDTH and "http" not in line:
                yield f"{name}:{number}: {len(line)} columns, {WIDTH} are allowed"


def types() -> dict[str, list[str]]:
    """Return the type names that the crates declare more than once, with the files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        if "tests" in str(path.relative_to(ROOT)):
            continue
        text = path.read_text().split("#[cfg(test)]\nmod")[0]
        for declared in DECLARED.finditer(text):
            found[declared.group(1) or declared.group(2)].append(str(path.relative_to(ROOT / "crates")))
    return {name: files for name, files in sorted(found.items()) if len(files) > 1 and name not in SAME_MEANING}


def main() -> int:
    """Print what breaks a rule; 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["."])
    parser.add_argument("--types", action="store_true", help="type names that are declared more than once")
    chosen = parser.parse_args()
    if chosen.types:
        lines = [f"{name}: {' '.join(files)}" for name, files in types().items()]
    else:
        lines = [line for folder in chosen.folders for path in tracked(folder) for line in check(path)]
    print("\n".join(lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
