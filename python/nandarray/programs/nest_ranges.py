"""Ranges of the integers of a loop nest, as far as they follow from its loops: which subscripts need no check.

An integer has a least value, a number, and is at most any of some bounds: a number, or an extent and a number. Both
follow for numbers, extents (which are not negative), variables of loops over these, and sums, differences, products,
remainders, ``min`` and ``max`` of them. Of everything else, as of what comes from data, nothing is known.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator

__all__ = ["Ranges"]

#: A bound: the name of an extent, or None, and a number that is added.
_Bound = tuple[str | None, int]


class Ranges:
    """The known ranges of the variables of the loops around a place."""

    def __init__(self) -> None:
        self._extents: Collection[str] = ()
        self._least: dict[str, int] = {}
        self._most: dict[str, set[_Bound]] = {}

    @contextlib.contextmanager
    def loop(self, name: str, loop: ast.For, extents: Collection[str]) -> Iterator[None]:
        """Know the variable of a loop over ``range`` or ``screens`` within it; ``extents`` are the nest's."""
        self._extents = extents
        assert isinstance(loop.iter, ast.Call)
        given = loop.iter.args
        start, stop = (given[0], given[1]) if len(given) > 1 else (ast.Constant(0), given[0])
        step = _number(given[2]) if len(given) > 2 else 1  # noqa: PLR2004
        least, most = None, set[_Bound]()
        if step is not None and step > 0:
            least, most = self.least(start), {(of, by - 1) for of, by in self.most(stop)}
        elif step is not None and step < 0:
            below = self.least(stop)
            least, most = None if below is None else below + 1, self.most(start)
        if not (isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"):
            least = max(least or 0, 0)  # screens share rows, of which the first is 0
        if least is not None:
            self._least[name] = least
        self._most[name] = most
        try:
            yield
        finally:
            self._least.pop(name, None)
            del self._most[name]

    def inside(self, index: ast.expr, extent: str | int) -> bool:
        """Return whether an index is surely at least 0 and below an extent."""
        least = self.least(index)
        if least is None or least < 0:
            return False
        of, size = (extent, 0) if isinstance(extent, str) else (None, extent)
        return any(of == known and by < size for known, by in self.most(index))

    def least(self, e: ast.expr) -> int | None:
        """Return a number that an integer is at least; None if none is known."""
        match e:
            case ast.Constant() | ast.UnaryOp():
                return _number(e)
            case ast.Name(id=name):
                return 0 if name in self._extents else self._least.get(name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as op, right=right):
                a, b = self.least(left), self.least(right)
                if a is None or b is None:
                    return None
                if isinstance(op, ast.Add):
                    return a + b
                return a * b if min(a, b) >= 0 else None
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                known = [a - b for of, a in self._from(left) for to, b in self.most(right) if of == to]
                return max(known, default=None)
            case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv(), right=right):
                a, b = self.least(left), _number(right)
                return 0 if a is not None and a >= 0 and b is not None and b > 0 else None
            case ast.Call(func=ast.Name(id="min" | "max" as which), args=[one, other]):
                found = [n for n in (self.least(one), self.least(other)) if n is not None]
                if which == "max":
                    return max(found, default=None)
                return min(found) if len(found) == 2 else None  # noqa: PLR2004
        return None

    def _from(self, e: ast.expr) -> set[_Bound]:
        """Return bounds that an integer is at least, each of them."""
        least = self.least(e) if not isinstance(e, ast.BinOp) or not isinstance(e.op, ast.Sub) else None
        found: set[_Bound] = set() if least is None else {(None, least)}
        match e:
            case ast.Name(id=name) if name in self._extents:
                found.add((name, 0))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                # Of a difference the part that is taken away is at most a number.
                found |= {(of, by - less) for of, by in self._from(left) for to, less in self.most(right) if to is None}
        return found

    def most(self, e: ast.expr) -> set[_Bound]:
        """Return bounds that an integer is at most, each of them."""
        match e:
            case ast.Constant() | ast.UnaryOp():
                number = _number(e)
                return set() if number is None else {(None, number)}
            case ast.Name(id=name):
                return {(name, 0)} if name in self._extents else self._most.get(name, set())
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                # Of a sum only one part may be an extent.
                pairs = [(a, b) for a in self.most(left) for b in self.most(right)]
                return {(a[0] or b[0], a[1] + b[1]) for a, b in pairs if a[0] is None or b[0] is None}
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                b = self.least(right)
                return set() if b is None else {(of, by - b) for of, by in self.most(left)}
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                a, b = self.least(left), _number(right)
                return {(None, b - 1)} if a is not None and a >= 0 and b is not None and b > 0 else set()
            case ast.Call(func=ast.Name(id="min"), args=[one, other]):
                return self.most(one) | self.most(other)
            case ast.Call(func=ast.Name(id="max"), args=[one, other]):
                return self.most(one) & self.most(other)
        return set()


def _number(e: ast.expr) -> int | None:
    match e:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None
