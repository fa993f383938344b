"""Tests of rows, written with columns' names: ``(col("price") < 5) & col("name").startswith("a")``.

A test is a tree of tuples. ``lowered`` turns it into that of the program ``psf`` for a table of text; tables of columns
have :mod:`nandarray.interop.tables.choosing` for that. Filters of Arrow become tests in
:mod:`nandarray.interop.tables.filters`.

Tests have SQL's logic: a comparison with a missing value is neither true nor false, and rows are given for which a test
is true. Arithmetic of integers and decimals is exact; where a float is on one side, both are float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nandarray.errors import InvalidError, NotFoundError
from nandarray.interop.tables.schema import Column

__all__ = ["Name", "Test", "Value", "as_test", "checked", "col", "conjuncts", "decidable", "lowered", "names"]

Tree = tuple[Any, ...]

#: Comparisons of a test, at most, one of text counted as ten: the compiler takes longer than in proportion to them.
COMPARISONS_MAX = 1000
_OF_TEXT = 10
JOINING = ("and", "or", "not")


class Test:
    """A test of rows; joined by ``&`` and ``|``, turned by ``~``.

    Parameters
    ----------
    tree : tuple
        ``("and", ...)``, ``("or", ...)``, ``("not", tree)``, ``("true",)``; ``(op, x, value)`` with one of ``<``,
        ``<=``, ``>``, ``>=``, ``==``, ``!=``; ``("in", x, values)``; ``("begins", x, text)``, ``("ends", x, text)``,
        ``("holds", x, text)``; ``("is", x)`` of truth values, ``("null", x)``, ``("valid", x)``; or
        ``("given", x, tree)``, which is missing where x is. An x is a column's name, or a tree of values:
        ``("col", name)``, ``("value", constant)``, ``("negative", x)``, or ``+``, ``-``, ``*``, ``/`` with two of them;
        such a tree may be the value of a comparison, too.
    """

    __slots__ = ("tree",)
    __test__ = False  # not one of pytest's

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __and__(self, other: Test | Value) -> Test:
        return self._joined("and", other)

    def __or__(self, other: Test | Value) -> Test:
        return self._joined("or", other)

    def _joined(self, op: str, other: Test | Value) -> Test:
        if not isinstance(other, Test | Value):
            return NotImplemented
        return Test((op, self.tree, as_test(other).tree))

    def __invert__(self) -> Test:
        return Test(("not", self.tree))

    def __bool__(self) -> bool:
        raise InvalidError("a test of rows has no truth value; join tests by & and |, and put each in parentheses")

    def __repr__(self) -> str:
        return f"<nandarray.interop.tables.Test {self.tree!r}>"


class Value:
    """A value in a test, computed of columns: ``col("price") * (1 - col("discount"))``."""

    __slots__ = ("tree",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def _operand(self) -> Any:
        return self.tree

    def _compared(self, op: str, value: Any) -> Test:
        if isinstance(value, Test):
            raise InvalidError("a value must be compared with a value, not with a test; put each test in parentheses")
        return Test((op, self._operand(), value.tree if isinstance(value, Value) else _constant(value)))

    def __lt__(self, value: Any) -> Test:
        return self._compared("<", value)

    def __le__(self, value: Any) -> Test:
        return self._compared("<=", value)

    def __gt__(self, value: Any) -> Test:
        return self._compared(">", value)

    def __ge__(self, value: Any) -> Test:
        return self._compared(">=", value)

    def __eq__(self, value: Any) -> Test:  # type: ignore[override]
        return self._compared("==", value)

    def __ne__(self, value: Any) -> Test:  # type: ignore[override]
        return self._compared("!=", value)

    def __add__(self, other: Any) -> Value:
        return Value(("+", self.tree, _tree(other)))

    def __radd__(self, other: Any) -> Value:
        return Value(("+", _tree(other), self.tree))

    def __sub__(self, other: Any) -> Value:
        return Value(("-", self.tree, _tree(other)))

    def __rsub__(self, other: Any) -> Value:
        return Value(("-", _tree(other), self.tree))

    def __mul__(self, other: Any) -> Value:
        return Value(("*", self.tree, _tree(other)))

    def __rmul__(self, other: Any) -> Value:
        return Value(("*", _tree(other), self.tree))

    def __truediv__(self, other: Any) -> Value:
        return Value(("/", self.tree, _tree(other)))

    def __rtruediv__(self, other: Any) -> Value:
        return Value(("/", _tree(other), self.tree))

    def __neg__(self) -> Value:
        return Value(("negative", self.tree))

    def __and__(self, other: Test | Value) -> Test:
        return as_test(self) & other

    def __or__(self, other: Test | Value) -> Test:
        return as_test(self) | other

    def __invert__(self) -> Test:
        return ~as_test(self)

    def __bool__(self) -> bool:
        raise InvalidError("a column has no truth value; join tests by & and |, and put each in parentheses")

    def isin(self, values: Iterable[Any]) -> Test:
        """Test for one of some values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidError(f"isin must have a list of values, not {values!r}")
        found = tuple(map(_constant, values))
        if any(one is None for one in found):
            raise InvalidError("isin must have values; missing ones are found by is_null()")
        return Test(("in", self._operand(), found))

    def between(self, low: Any, high: Any) -> Test:
        """Test for a value from low to high, both included."""
        return Test(("and", (self >= low).tree, (self <= high).tree))

    def is_null(self) -> Test:
        """Test for a missing value."""
        return Test(("null", self._operand()))

    def is_valid(self) -> Test:
        """Test for a value that is there."""
        return Test(("valid", self._operand()))

    def __repr__(self) -> str:
        return f"<nandarray.interop.tables.Value {self.tree!r}>"


class Name(Value):
    """A column in a test: made by :func:`col`. By itself it is a test if it has truth values."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(("col", name))
        self.name = name

    def _operand(self) -> Any:
        return self.name

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
    >>> col("price") * (1 - col("cut")) > 5
    <nandarray.interop.tables.Test ('>', ('*', ('col', 'price'), ('-', ('value', 1), ('col', 'cut'))), 5)>
    """
    if not isinstance(name, str):
        raise InvalidError(f"a column must have a text as its name, not {name!r}")
    return Name(name)


def _constant(value: Any) -> Any:
    """Refuse what a tree would take for a part of it."""
    if isinstance(value, tuple | Test | Value):
        raise InvalidError(f"a value must be one number, text, time or truth value, not {value!r}")
    return value


def _tree(value: Any) -> Tree:
    if isinstance(value, Test):
        raise InvalidError("arithmetic must be of columns and numbers, not of tests")
    return value.tree if isinstance(value, Value) else ("value", _constant(value))


def as_test(where: Any) -> Test:
    """Return a test, or that of a column of truth values by itself; anything else is a TypeError."""
    if isinstance(where, Name):
        return Test(("is", where.name))
    if not isinstance(where, Test):
        raise TypeError(f"where is a test of rows, such as col('id') > 5; {where!r} is a {type(where).__name__}")
    return where


def conjuncts(tree: Tree) -> Iterator[Tree]:
    """Take a test apart at its outer ``and``."""
    if tree[0] == "and":
        for part in tree[1:]:
            yield from conjuncts(part)
    else:
        yield tree


def value_names(value: Any) -> set[str]:
    """Return the columns of a value of a test: a column's name, a tree of values, or a constant."""
    if isinstance(value, str):
        return {value}
    if value[0] in ("col", "value"):
        return {value[1]} if value[0] == "col" else set()
    return set[str]().union(*(value_names(part) for part in value[1:]))


def names(tree: Tree) -> set[str]:
    """Return the columns that a test asks for."""
    op, *rest = tree
    if op in JOINING:
        return set[str]().union(*(names(part) for part in rest))
    if op == "true":
        return set()
    found = value_names(rest[0])
    if op == "given":
        return found | names(rest[1])
    return found | (value_names(rest[1]) if len(rest) > 1 and op != "in" and isinstance(rest[1], tuple) else set())


def checked(where: Test | None, columns: Sequence[Column]) -> Tree | bool:
    """Return a scan's test as ``psf`` takes it; a truth value where it is the same for all rows.

    A TypeError says that it is no test; else errors are those of :func:`lowered`, or an InvalidError that it has too
    many comparisons for a program.
    """
    if where is None:
        return True
    tree = lowered(as_test(where).tree, columns)
    if not isinstance(tree, bool) and (count := comparisons(tree)) > COMPARISONS_MAX:
        raise InvalidError(
            f"a test with {count:,} comparisons, one of text counted as {_OF_TEXT}; a program has {COMPARISONS_MAX:,} "
            "at most: scan without it, and filter what comes back"
        )
    return tree


def comparisons(tree: Tree) -> int:
    """Count the comparisons of a lowered test, one of text as ten."""
    if tree[0] in JOINING:
        return sum(map(comparisons, tree[1:]))
    if tree[0] in ("valid", "given"):
        return 1 + sum(map(comparisons, tree[2:]))
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
    if not isinstance(rest[0], str) or (len(rest) > 1 and op != "in" and isinstance(rest[1], tuple) and op != "given"):
        raise InvalidError("a test of a table of text must compare a column with a value, not with what is computed")
    number = _number(rest[0], columns)
    if op == "in":
        return lowered(("given", rest[0], ("or", *(("==", rest[0], value) for value in rest[1]))), columns)
    nullable = columns[number].nullable
    if op in ("null", "valid"):
        there: Tree | bool = ("valid", number) if nullable else True
        return there if op == "valid" else ("not", there) if nullable else False
    if op == "given":
        inner = lowered(rest[1], columns)
        return _given(number, inner) if nullable else inner
    if op == "is":
        raise InvalidError(f"column {rest[0]} is {columns[number].type}; a test by itself must be a column of booleans")
    if op in ("begins", "ends", "holds"):
        made = columns[number].test("==", rest[1])
        assert not isinstance(made, bool)
        return op, number, made[1]
    found = columns[number].test(op, rest[1])
    if isinstance(found, bool):
        return _given(number, found) if nullable else found
    return found[0], number, found[1]


def _given(number: int, inner: Tree | bool) -> Tree:  # noqa: FBT001
    """Make a test neither true nor false where a column has no value."""
    if isinstance(inner, bool):
        inner = ("valid", number) if inner else ("not", ("valid", number))
    return "given", number, inner


def _number(name: str, columns: Sequence[Column]) -> int:
    for number, one in enumerate(columns):
        if one.name == name:
            return number
    raise NotFoundError(f"there is no column {name!r}; there is {', '.join(one.name for one in columns)}")


def decidable(test: Test | None, columns: Sequence[Column]) -> tuple[Test | None, bool]:
    """Return the part of a test that a table of text decides, and whether that is all of it."""
    if test is None:
        return None, False
    kept, whole = _decidable(test.tree, columns)
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
        made = ("and", *kept) if len(kept) > 1 else kept[0] if kept else None
        return made, all(whole for _, whole in parts)
    try:
        fits = _weight(tree, columns) <= room
    except (InvalidError, NotFoundError):
        return None, False
    return (tree, True) if fits else (None, False)


def _weight(tree: Tree, columns: Sequence[Column]) -> int:
    made = lowered(tree, columns)
    return 0 if isinstance(made, bool) else comparisons(made)
