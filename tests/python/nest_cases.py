"""Random loop nests for tests: the text of a kernel, and Python's own run of that text.

A loop nest is a function of Python, so Python itself is its model: :func:`by_python` calls it on sections that give
numbers of Python and keep them as the section's dtype does. :func:`nest_text` writes functions within the language;
integers stay below 2**60, operands of ``//`` and ``%`` are not negative, and floats are finite, as the language says.
"""

from __future__ import annotations

import itertools
import linecache
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from nandarray.programs.nest import Read, Temporary, Update, Write, screens

Array = np.ndarray[Any, Any]
NAMES = {"Read": Read, "Write": Write, "Update": Update, "Temporary": Temporary, "screens": screens}
NAMES |= {"sqrt": math.sqrt, "exp": math.exp}
_NUMBERS = itertools.count()
BITS_MAX = 60
#: Integer sections of a random nest, with the bits of their elements.
INTEGERS = {"a": ("i8", 33), "b": ("i4", 31), "c": ("u4", 32), "d": ("u1", 8)}


class Section:
    """An array that gives and takes Python's numbers."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> Any:
        assert min(key if isinstance(key, tuple) else (key,)) >= 0, f"index {key}"
        return self.array[key].item()

    def __setitem__(self, key: Any, value: Any) -> None:
        kind = self.array.dtype
        if kind.kind in "iu":
            value = int(value) & (1 << 8 * kind.itemsize) - 1
            self.array[key] = np.array(value, f"u{kind.itemsize}").view(kind)
        else:
            self.array[key] = value


def function_of(text: str, **extents: int) -> Callable[..., Any]:
    """Make a function of its text; the text stays readable, and extents are globals of it."""
    file = f"<nest {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {**NAMES, **extents}
    exec(compile(text, file, "exec"), names)
    (made,) = [one for one in names.values() if getattr(getattr(one, "__code__", None), "co_filename", "") == file]
    return cast("Callable[..., Any]", made)


def by_python(function: Callable[..., Any], arrays: Mapping[str, Array], **numbers: Any) -> None:
    """Call the function itself; it changes its outputs among the arrays."""
    function(**{name: Section(array) for name, array in arrays.items()}, **numbers)


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.floats: list[str] = []
        self.integers: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.count = 0

    def say(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    # --- expressions --------------------------------------------------------------------------------------------------

    def leaf(self) -> tuple[str, int]:
        pick = self.random.randrange(4)
        if pick == 0:
            value = self.random.choice([0, 1, 2, 7, 255, 65536, 2**31 - 1, 2**31, 2**32 + 5])
            return str(value), value.bit_length()
        if pick == 1 and self.integers:
            return self.random.choice(self.integers)
        if pick == 2:
            return self.random.choice([("i", 5), ("n", 6), ("whole", 20)])
        name = self.random.choice(list(INTEGERS))
        return f"{name}[i]", INTEGERS[name][1]

    def integer(self, depth: int) -> tuple[str, int]:
        """Write an integer, and tell of how many bits it is at most."""
        if depth == 0:
            return self.leaf()
        (left, most), (right, other) = self.integer(depth - 1), self.integer(depth - 1)
        made: list[tuple[str, int]] = [
            (f"({left} + {right})", max(most, other) + 1),
            (f"({left} - {right})", max(most, other) + 1),
            (f"({left} * {right})", most + other),
            (f"({left} << {(shift := self.random.randrange(1, 20))})", most + shift),
            (f"({left} >> {self.random.randrange(0, 40)})", most),
            (f"({left} {self.random.choice('&|^')} {right})", max(most, other) + 1),
            (f"(abs({left}) // (abs({right}) + 1))", most),
            (f"(abs({left}) % (abs({right}) + 1))", other + 1),
            (f"{self.random.choice(['min', 'max'])}({left}, {right})", max(most, other)),
            (f"(-{left})", most),
            (f"abs({left})", most),
            (f"({left} if {self.truth(depth - 1)} else {right})", max(most, other)),
            (f"({left} + (1 << {(place := self.random.randrange(20, 50))}))", max(most, place) + 1),
            (f"({self.truth(depth - 1)} and {left} != {right})", 1),
        ]
        fitting = [one for one in made if one[1] < BITS_MAX]
        return self.random.choice(fitting) if fitting else self.leaf()

    def real(self, depth: int) -> str:
        if depth == 0:
            return self.random.choice(["x[i, 0]", "x[i, 1]", "0.5", "3.0", "scale", *self.floats[-3:]])
        left, right = self.real(depth - 1), self.real(depth - 1)
        return self.random.choice(
            [
                f"({left} + {right})",
                f"({left} - {right})",
                f"({left} * 0.25)",
                f"({left} / (abs({right}) + 1.0))",
                f"sqrt(abs({left}))",
                f"{self.random.choice(['min', 'max'])}({left}, {right})",
                f"(-{left})",
                f"({left} if {self.truth(depth - 1)} else {right})",
                f"({left} + d[i])",
                f"({left} * d[i])",
                f"float({self.leaf()[0]})",
                f"(b[i] / {self.random.randrange(1, 9)})",
                f"int({left}) * 0.5",
            ]
        )

    def truth(self, depth: int) -> str:
        test = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        if self.random.random() < 0.3:
            return f"({self.real(0)} {test} {self.real(0)})"
        made = f"({self.integer(min(depth, 1))[0]} {test} {self.integer(min(depth, 1))[0]})"
        if depth <= 0:
            return made
        pick = self.random.random()
        if pick < 0.2:
            return f"(not {self.truth(depth - 1)})"
        return f"({made} {self.random.choice(['and', 'or'])} {self.truth(depth - 1)})" if pick < 0.5 else made

    # --- statements ---------------------------------------------------------------------------------------------------

    def local(self, depth: int) -> None:
        name = self.new()
        if self.random.random() < 0.5:
            text, bits = self.integer(2)
            self.say(depth, f"{name} = {text}")
            self.integers.append((name, bits))
        else:
            self.say(depth, f"{name} = {self.real(2)} * 1.0")
            self.floats.append(name)

    def loop(self, depth: int) -> None:
        """Sum over a loop; its limits may change within it, of which Python takes no notice."""
        name, turn, end = self.new(), self.new(), self.new()
        first, last = sorted(self.random.sample(range(8), 2))
        limits = self.random.choice(
            [f"{last}", f"{first}, {last}", f"{last}, {first}, -1", f"{first}, {end}, {self.random.randrange(1, 4)}",
             f"{end}, {first}, -2", f"d[i] % 5, {end}"]
        )  # fmt: skip
        self.say(depth, f"{name} = 0")
        self.say(depth, f"{end} = {last}")
        self.say(depth, f"for {turn} in range({limits}):")
        self.say(depth + 1, f"if {turn} == {self.random.randrange(8)}:")
        self.say(depth + 2, self.random.choice(["continue", "break", f"{name} -= 3"]))
        self.say(depth + 1, f"{name} += abs({turn} * {self.leaf()[0]}) % 1024")
        if self.random.random() < 0.5:
            self.say(depth + 1, f"{end} -= 1")
        self.integers.append((name, 45))

    def turns(self, depth: int) -> None:
        name = self.new()
        self.say(depth, f"{name} = d[i]")
        self.say(depth, f"while {name} > {self.random.randrange(9)} and not {name} == 40:")
        self.say(depth + 1, f"{name} -= {self.random.randrange(1, 4)}")
        self.integers.append((name, 9))

    def choice(self, depth: int) -> None:
        name = self.new()
        self.say(depth, f"{name} = {self.leaf()[0]}")
        self.say(depth, f"if {self.truth(2)}:")
        text, bits = self.integer(1)
        self.say(depth + 1, f"{name} = {text}")
        self.say(depth, "else:")
        self.say(depth + 1, f"{name} = 0 - d[i]")
        self.integers.append((name, max(bits, 34)))


def nest_text(seed: int, outputs: int = 6) -> str:
    """Write a loop nest: a microblock of rows, one that reads its neighbours, and a serial one.

    Inputs are ``a`` to ``d`` (integers of n elements), ``x`` (floats of n rows and 2 columns), ``whole`` and ``scale``;
    ``y`` and ``z`` have n rows and a column for each output, ``narrow`` an element of 32 bits for each row.
    """
    made = _Writer(seed)
    sections = ", ".join(f'{name}: Read["{dtype}", "n"]' for name, (dtype, _) in INTEGERS.items())
    made.say(0, f'def nest{seed}({sections}, x: Read["f8", "n", 2], y: Write["i8", "n", {outputs}],')
    made.say(2, f'z: Write["f8", "n", {outputs}], narrow: Write["{made.random.choice(["i4", "u4", "u1"])}", "n"],')
    made.say(2, 'near: Write["f8", "n"], total: Update["i8", 3], whole: int, scale: float):')
    made.say(1, "for i in screens(n):")
    for number in range(outputs):
        for kind in made.random.sample([made.local, made.loop, made.turns, made.choice], 2):
            kind(2)
        made.say(2, f"y[i, {number}] = {made.integer(3)[0]}")
        made.say(2, f"z[i, {number}] = {made.real(3)}")
        made.say(2, f"y[i, {number}] += {made.leaf()[0]}")
    made.say(2, f"narrow[i] = {made.integer(2)[0]}")
    before, behind = made.random.randrange(3), made.random.randrange(3)
    made.say(1, f"for i in screens({before}, n - {behind}):")
    made.say(2, f"near[i] = {f'x[i - {before}, 0]' if before else 'x[i, 0]'} - x[i + {behind}, 1] * z[i, 0]")
    made.say(1, "for i in range(n):")
    made.say(2, "if narrow[i] > 3 or y[i, 0] < 0:")
    made.say(3, "total[0] += y[i, 1] % 7 if y[i, 1] > 0 else 1")
    made.say(2, "total[1] = max(total[1], narrow[i])")
    made.say(1, "total[2] = 0 if n > 5 else total[0]")
    return "\n".join(made.lines) + "\n"
