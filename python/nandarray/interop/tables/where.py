"""Tests of rows, written with columns' names: ``(col("price") < 5) & col("name").startswith("a")``.

A test is a tree of tuples, as the program ``psf`` takes it but for names in place of numbers and values as users write
them. ``lowered`` turns it into the program's; ``of_arrow`` reads the filter of an Arrow dataset, as far as a program
can decide it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.schema import Column

__all__ = ["Test", "checked", "col", "lowered", "names", "of_arrow"]

Tree = tuple[Any, ...]

#: Comparisons of a test, at most, one of text counted as ten: the compiler takes longer than in proportion to them.
COMPARISONS_MAX = 1000
_OF_TEXT = 10


class Test:
    """A test of rows; joined by ``&`` and ``|``, turned by ``~``.

    Parameters
    ----------
    tree : tuple
        ``("and", ...)``, ``("or", ...)``, ``("not", tree)``, ``(op, name, value)``, or ``("true",)``.
    """

    __slots__ = ("tree",)
    __test__ = False  # not one of pytest's

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __and__(self, other: Test) -> Test:
        if not isinstance(other, Test):
            return NotImplemented
        return Test(("and", self.tree, other.tree))

    def __or__(self, other: Test) -> Test:
        if not isinstance(other, Test):
            return NotImplemented
        return Test(("or", self.tree, other.tree))

    def __invert__(self) -> Test:
        return Test(("not", self.tree))

    def __bool__(self) -> bool:
        raise InvalidError("a test of rows has no truth value; join tests by & and |, and put each in parentheses")

    def __repr__(self) -> str:
        return f"<nandarray.interop.tables.Test {self.tree!r}>"


class Name:
    """A column in a test: made by :func:`col`."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __lt__(self, value: Any) -> Test:
        return Test(("<", self.name, value))

    def __le__(self, value: Any) -> Test:
        return Test(("<=", self.name, value))

    def __gt__(self, value: Any) -> Test:
        return Test((">", self.name, value))

    def __ge__(self, value: Any) -> Test:
        return Test((">=", self.name, value))

    def __eq__(self, value: Any) -> Test:  # type: ignore[override]
        return Test(("==", self.name, value))

    def __ne__(self, value: Any) -> Test:  # type: ignore[override]
        return Test(("!=", self.name, value))

    def isin(self, values: Iterable[Any]) -> Test:
        """Test for one of some values."""
        return Test(("or", *(("==", self.name, value) for value in values)))

    def between(self, low: Any, high: Any) -> Test:
        """Test for a value from low to high, both included."""
        return Test(("and", (">=", self.name, low), ("<=", self.name, high)))

    def startswith(self, text: str) -> Test:
        """Test how the characters begin."""
        return Test(("begins", self.name, text))

    def endswith(self, text: str) -> Test:
        """Test how the characters end."""
        return Test(("ends", self.name, text))

    def contains(self, text: str) -> Test:
        """Test for characters within the text."""
        return Test(("holds", self.name, text))


def col(name: str) -> Name:
    """Return a column for a test.

    Examples
    --------
    >>> from nandarray.interop.tables import col
    >>> (col("day") >= "1998-01-01") & ~col("name").startswith("a")
    <nandarray.interop.tables.Test ('and', ('>=', 'day', '1998-01-01'), ('not', ('begins', 'name', 'a')))>
    """
    return Name(name)


def names(tree: Tree) -> set[str]:
    """Return the columns that a test asks for."""
    if tree[0] in ("and", "or", "not"):
        return set[str]().union(*(names(part) for part in tree[1:]))
    return {tree[1]} if tree[0] != "true" else set()


def checked(where: Test | None, columns: Sequence[Column]) -> Tree | bool:
    """Return a scan's test as ``psf`` takes it; a truth value where it is the same for all rows.

    A TypeError says that it is no test; else errors are those of :func:`lowered`, or an InvalidError that it has too
    many comparisons for a program.
    """
    if where is None:
        return True
    if not isinstance(where, Test):
        raise TypeError(f"where is a test of rows, such as col('id') > 5; {where!r} is a {type(where).__name__}")
    tree = lowered(where.tree, columns)
    if not isinstance(tree, bool) and (count := comparisons(tree)) > COMPARISONS_MAX:
        raise InvalidError(
            f"a test with {count:,} comparisons, one of text counted as {_OF_TEXT}; a program has {COMPARISONS_MAX:,} "
            "at most: scan without it, and filter what comes back"
        )
    return tree


def comparisons(tree: Tree) -> int:
    """Count the comparisons of a lowered test, one of text as ten."""
    if tree[0] in ("and", "or", "not"):
        return sum(map(comparisons, tree[1:]))
    return _OF_TEXT if isinstance(tree[2], bytes) else 1


def lowered(tree: Tree, columns: Sequence[Column]) -> Tree | bool:
    """Return a test as ``psf`` takes it; a truth value where it is the same for all rows.

    A NotFoundError says that there is no such column, an InvalidError that a value is none of its column's type.
    """
    op: str = tree[0]
    rest = tree[1:]
    if op == "true":
        return True
    if op == "not":
        inner = lowered(rest[0], columns)
        return ("not", inner) if not isinstance(inner, bool) else not inner
    if op in ("and", "or"):
        parts = [lowered(part, columns) for part in rest]
        if (op == "or") in [part for part in parts if isinstance(part, bool)]:
            return op == "or"
        kept = [part for part in parts if not isinstance(part, bool)]
        return (op, *kept) if len(kept) > 1 else kept[0] if kept else op == "and"
    number = _number(rest[0], columns)
    if op in ("begins", "ends", "holds"):
        made = columns[number].test("==", rest[1])
        assert not isinstance(made, bool)
        return op, number, made[1]
    found = columns[number].test(op, rest[1])
    return found if isinstance(found, bool) else (found[0], number, found[1])


def _number(name: str, columns: Sequence[Column]) -> int:
    for number, one in enumerate(columns):
        if one.name == name:
            return number
    raise NotFoundError(f"there is no column {name!r}; there is {', '.join(one.name for one in columns)}")


# --- filters of Arrow datasets ----------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?: (?P<date>\d{4}-\d\d-\d\d)(?![\d:T ]*[\d:T]) | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | "(?P<text>[^"\\\n]*)" | (?P<name>[A-Za-z_]\w*) | (?P<op><=|>=|==|!=|<|>) | (?P<sign>[(),{}\[\]=:]) )""",
    re.VERBOSE,
)


class _NotUnderstood(Exception):
    """A part of a filter that programs cannot decide."""


class _Reader:
    """A filter's text, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _NotUnderstood(text[at : at + 20])
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind]))
            at = found.end()
        self._at = 0

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def take(self, *wanted: str) -> str:
        kind, word = self.peek()
        if wanted and kind not in wanted and word not in wanted:
            raise _NotUnderstood(word)
        self._at += 1
        return word


def of_arrow(text: str, columns: Sequence[Column]) -> tuple[Test | None, bool]:
    """Read the filter of an Arrow dataset, as it writes itself.

    The part that a program can decide is returned, and whether it is the whole filter.
    """
    try:
        reader = _Reader(text)
        tree = _expression(reader)
        if reader.peek()[0]:
            raise _NotUnderstood(text)
    except _NotUnderstood:
        return None, False
    kept, whole = _decidable(tree, columns)
    return (None if kept is None else Test(kept)), whole


def _decidable(tree: Tree, columns: Sequence[Column], room: int = COMPARISONS_MAX) -> tuple[Tree | None, bool]:
    """Keep of a conjunction what can be lowered, with no more comparisons than there is room for."""
    if tree[0] == "and":
        parts: list[tuple[Tree | None, bool]] = []
        for part in tree[1:]:
            found = _decidable(part, columns, room)
            room -= 0 if found[0] is None else _weight(found[0], columns)
            parts.append(found)
        kept = [part for part, _ in parts if part is not None]
        return (("and", *kept) if kept else None), all(whole for _, whole in parts)
    try:
        fits = _weight(tree, columns) <= room
    except (InvalidError, NotFoundError):
        return None, False
    return (tree, True) if fits else (None, False)


def _weight(tree: Tree, columns: Sequence[Column]) -> int:
    made = lowered(tree, columns)
    return 0 if isinstance(made, bool) else comparisons(made)


def _expression(reader: _Reader) -> Tree:
    kind, word = reader.peek()
    if word == "(" and kind == "sign":
        return _parenthesised(reader)
    if kind == "name":
        reader.take("name")
        if reader.peek()[1] == "(":
            return _call(word, reader)
    raise _NotUnderstood(word)


def _parenthesised(reader: _Reader) -> Tree:
    reader.take("(")
    kind, word = reader.peek()
    if kind == "name":
        reader.take()
        if reader.peek()[0] == "op":
            op = reader.take("op")
            value = reader.take("date", "number", "text")
            reader.take(")")
            return op, word, value
        left = _call(word, reader)
    else:
        left = _expression(reader)
    op = reader.take("and", "or")
    right = _expression(reader)
    reader.take(")")
    return op, left, right


def _call(name: str, reader: _Reader) -> Tree:
    made: dict[str, Callable[[_Reader], Tree]] = {
        "if_else": _where_valid, "is_in": _one_of, "invert": _inverted, "is_valid": _valid, "is_null": _null,
    }  # fmt: skip
    if name not in made:
        raise _NotUnderstood(name)
    reader.take("(")
    tree = made[name](reader)
    reader.take(")")
    return tree


def _where_valid(reader: _Reader) -> Tree:
    """Read ``if_else(is_valid(x), test, null[bool])``; there are no missing values."""
    for word in ("is_valid", "(", "name", ")", ","):
        reader.take(word)
    tree = _expression(reader)
    for word in (",", "null", "[", "bool", "]"):
        reader.take(word)
    return tree


def _one_of(reader: _Reader) -> Tree:
    name = reader.take("name")
    for word in (",", "{", "value_set", "=", "name"):
        reader.take(word)
    while reader.peek()[1] != ":":
        reader.take("name", "number", "(", ")", "[", "]", ",")
    reader.take(":")
    reader.take("[")
    values = [reader.take("date", "number", "text")]
    while reader.peek()[1] == ",":
        reader.take(",")
        values.append(reader.take("date", "number", "text"))
    reader.take("]")
    while reader.peek()[1] != "}":
        reader.take("name", ",", "=")
    reader.take("}")
    return ("or", *(("==", name, value) for value in values))


def _inverted(reader: _Reader) -> Tree:
    return "not", _expression(reader)


def _valid(reader: _Reader) -> Tree:
    reader.take("name")
    return ("true",)


def _null(reader: _Reader) -> Tree:
    reader.take("name")
    while reader.peek()[1] != ")":
        reader.take()
    return "not", ("true",)
