"""Slice expressions as text: ``"0:10, ::2, ..., 5"`` to the tuple that NumPy indexing takes.

The command line needs it, and nothing here evaluates code: a character-level grammar of five kinds of item between
commas, each error with the column it stands at.

- an integer: ``5``, ``-1``
- a range: ``a:b``, ``a:b:c``, any part left out
- ``...``
- ``None`` or ``newaxis``
- a list of integers: ``[0, 5, -1]``

A pair of parentheses around everything is allowed. Boolean masks and nested lists are not; neither is checking against
a shape, which is the array's own job.
"""

from __future__ import annotations

import re
from types import EllipsisType

from nandarray.errors import InvalidError

__all__ = ["Item", "format_slices", "parse_slices"]

#: Digits of an integer, at most: no axis needs more than 20, and Python refuses to read thousands.
_DIGITS_MAX = 100
_INTEGER = re.compile(r"[+-]?[0-9](?:_?[0-9])*\Z")

Item = int | slice | EllipsisType | list[int] | None


def parse_slices(text: str) -> tuple[Item, ...]:
    """Parse the text between the brackets of ``a[...]`` into a tuple for ``array[result]``; empty means everything.

    An InvalidError has the column and what was expected there.
    """
    body, base = text, 0
    if body.strip().startswith("(") and body.strip().endswith(")"):
        base = body.index("(") + 1
        body = body[base : body.rindex(")")]
    if not body.strip():
        return ()
    pieces = _split(text, body, base)
    if len(pieces) > 1 and not pieces[-1][1].strip():
        pieces.pop()  # a trailing comma, as in Python
    items = [_item(text, column, piece) for column, piece in pieces]
    if sum(item is Ellipsis for item in items) > 1:
        raise InvalidError(f"slice expression {text!r}: '...' may stand only once")
    return tuple(items)


def format_slices(items: tuple[Item, ...]) -> str:
    """Give the text that :func:`parse_slices` turns back into ``items``."""
    return ", ".join(_format(item) for item in items) + ("," if len(items) == 1 else "")


def _format(item: Item) -> str:
    if item is None:
        return "None"
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        parts = [item.start, item.stop] + ([item.step] if item.step is not None else [])
        return ":".join("" if part is None else str(part) for part in parts)
    if isinstance(item, list):
        return "[" + ", ".join(map(str, item)) + "]"
    return str(item)


def _fail(text: str, column: int, why: str) -> InvalidError:
    return InvalidError(f"slice expression {text!r}, column {column + 1}: {why}")


def _split(text: str, body: str, base: int) -> list[tuple[int, str]]:
    """Cut at the commas outside brackets; with each piece goes the column it begins at."""
    pieces, depth, begin = [], 0, 0
    for at, char in enumerate(body):
        if char == "[":
            depth += 1
            if depth > 1:
                raise _fail(text, base + at, "a list of integers cannot hold another list")
        elif char == "]":
            depth -= 1
            if depth < 0:
                raise _fail(text, base + at, "']' without '['")
        elif char == "," and depth == 0:
            pieces.append((base + begin, body[begin:at]))
            begin = at + 1
    if depth:
        raise _fail(text, base + body.rindex("["), "'[' is never closed")
    pieces.append((base + begin, body[begin:]))
    return pieces


def _item(text: str, column: int, piece: str) -> Item:
    word = piece.strip()
    column += len(piece) - len(piece.lstrip())
    if not word:
        raise _fail(text, column, "expected an index between the commas")
    if word == "...":
        return Ellipsis
    if word in {"None", "newaxis", "np.newaxis"}:
        return None
    if word.startswith("["):
        if not word.endswith("]"):
            raise _fail(text, column + word.rindex("]") + 1, "expected ',' after the list")
        inner = word[1:-1].strip()
        if not inner:
            return []
        inner = inner.removesuffix(",")
        return [_integer(text, column, part) for part in inner.split(",")]
    if ":" in word:
        parts = word.split(":")
        if len(parts) > 3:
            raise _fail(text, column, f"{word!r} has {len(parts) - 1} colons; a range is start:stop:step")
        start, stop, step = (_integer(text, column, part) if part.strip() else None for part in [*parts, "", ""][:3])
        if step == 0:
            raise _fail(text, column, f"{word!r} has step 0")
        return slice(start, stop, step)
    return _integer(text, column, word)


def _integer(text: str, column: int, word: str) -> int:
    word = word.strip()
    if not _INTEGER.match(word):
        expected = "an integer, start:stop:step, '...', 'None' or a list like [0, 5]"
        raise _fail(text, column, f"{word!r} is not {expected}")
    if len(word) > _DIGITS_MAX:
        raise _fail(text[:_DIGITS_MAX] + "...", column, f"an integer with {len(word)} characters is no index")
    return int(word)
