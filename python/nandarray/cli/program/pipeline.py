"""Pipelines of programs from the command line: a TOML or JSON file with named steps, or a chain behind ``--then``.

A :class:`Spec` says which programs there are, where their inputs come from and which outputs are wanted; it holds words
and numbers, nothing is opened or compiled by reading one. :func:`steps_of` makes :class:`nandarray.Step` of it. Words
for arrays are :mod:`nandarray.cli.program.run`'s; running is there, too.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandarray import units
from nandarray.cli.program.source import is_ready_made
from nandarray.errors import InvalidError
from nandarray.inputs import read_text

if TYPE_CHECKING:
    from nandarray.programs.step import Output, Step

__all__ = ["Spec", "StepSpec", "chain", "read_spec", "steps_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_TOP = ("inputs", "steps", "outputs")
_STEP = ("program", "inputs", "scalars", "dtype", "stream", "target", "flags", "trust", "form", "task_bytes",
         "max_instructions")  # fmt: skip
_OUTPUT = ("from", "to")


@dataclass(frozen=True)
class StepSpec:
    """A program of a pipeline, in words.

    ``program`` is a SOURCE of the command line. ``inputs`` are names of steps (``step`` or ``step.output``) or of
    inputs of the pipeline, or arrays and files. ``scalars`` are numbers, and sizes of a ready-made program. ``options``
    has the keys ``dtype``, ``stream``, ``target``, ``flags``, ``trust``; ``settings`` has ``form``, ``task_bytes``,
    ``instructions`` of this step alone.
    """

    program: str
    inputs: tuple[str, ...]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """A pipeline, in words; ``where`` is its origin, for errors.

    ``inputs`` are arrays and files, ``steps`` programs, both by name. ``outputs`` has for each wanted output the step,
    or ``step.output``, that gives it; if it is empty, all that no step takes is wanted. ``targets`` are the places of
    outputs; those left out are printed.
    """

    where: str
    inputs: Mapping[str, str]
    steps: Mapping[str, StepSpec]
    outputs: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)

    def given(self, words: Sequence[str]) -> Spec:
        """Put ``NAME=WHERE`` of the command line in the place of its inputs; another name is an InvalidError."""
        found = {}
        for word in words:
            name, equals, where = word.partition("=")
            if not equals or not where:
                raise InvalidError(f"{word!r}: an input of a pipeline is written NAME=WHERE, like log=data.nand:/log")
            if name not in self.inputs:
                raise InvalidError(f"{self.where} has no input {name!r}{_hint(name, self.inputs)}")
            found[name] = where
        return replace(self, inputs={**self.inputs, **found})

    def numbered(self, numbers: Mapping[str, Any]) -> Spec:
        """Put ``STEP.NAME`` in the place of its scalars; of a single step the name will do."""
        steps = dict(self.steps)
        for key, value in numbers.items():
            step, dot, name = key.partition(".")
            if not dot:
                step, name = next(iter(steps)), key
                if len(steps) > 1:
                    raise InvalidError(f"scalar {key!r}: say of which step, like {step}.{key}")
            if step not in steps:
                raise InvalidError(f"scalar {key!r}: there is no step {step!r}{_hint(step, steps)}")
            steps[step] = replace(steps[step], scalars={**steps[step].scalars, name: value})
        return replace(self, steps=steps)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_spec(path: Path) -> Spec:
    """Read a pipeline from a file: JSON if its name ends in ``.json``, TOML else.

    Paths are relative to the file; whether programs and arrays are there is not looked into. An InvalidError says where
    something is wrong; a file that cannot be read is an OSError.
    """
    try:
        text = read_text(path, "a pipeline in TOML or JSON")
        said = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InvalidError(f"{path} is no {kind}: {error}") from None
    try:
        return _spec(said, path)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error}") from None


def _spec(said: Any, path: Path) -> Spec:
    _known(_table(said, "a pipeline"), _TOP, "a pipeline")
    folder = path.parent
    inputs = {
        name: _beside(folder, _text(value, f"inputs.{name}"))
        for name, value in _table(said.get("inputs", {}), "inputs").items()
    }
    steps = {name: _step(name, one) for name, one in _table(said.get("steps", {}), "steps").items()}
    if not steps:
        raise InvalidError("it has no steps: [steps.NAME] is one, with program and inputs")
    for name in (*inputs, *steps):
        if not _NAME.match(name):
            raise InvalidError(f"{name!r} is no name: letters, digits, dashes and underscores")
        if name in inputs and name in steps:
            raise InvalidError(f"{name!r} is an input and a step; names are given once")
    outputs, targets = {}, {}
    for name, one in _table(said.get("outputs", {}), "outputs").items():
        where = f"outputs.{name}"
        if isinstance(one, Mapping):
            _known(one, _OUTPUT, where)
            if "to" in one:
                targets[name] = _beside(folder, _text(one["to"], f"{where}.to"))
            one = one.get("from", name)
        outputs[name] = _text(one, where)
        _there(outputs[name].partition(".")[0], steps, where)
    for name, one in steps.items():
        for word in one.inputs:
            if not (word in inputs or _refers(word, steps) or ":" in word or word.endswith(".npy")):
                hint = _hint(word, (*inputs, *steps))
                raise InvalidError(f"steps.{name}: {word!r} is no step, input, array (STORE:/NAME) or .npy file{hint}")
        words = [one if one in inputs or _refers(one, steps) else _beside(folder, one) for one in one.inputs]
        steps[name] = replace(one, program=_source(folder, one.program), inputs=tuple(words))
    return Spec(str(path), inputs, steps, outputs, targets)


def _beside(folder: Path, word: str) -> str:
    """Return a word with its path as seen from the current directory."""
    return str(folder / word)


def _source(folder: Path, word: str) -> str:
    there = (folder / word).exists()
    return word if is_ready_made(word) and not there else _beside(folder, word)


def _refers(word: str, steps: Mapping[str, Any]) -> bool:
    """Return whether a word names a step, or an output of one, and not a file."""
    name, _, output = word.partition(".")
    return name in steps and output != "npy" and ":" not in word


def _step(name: str, said: Any) -> StepSpec:
    where = f"steps.{name}"
    _known(_table(said, where), _STEP, where)
    if "program" not in said:
        raise InvalidError(f"{where} has no program")
    given = said.get("inputs", [])
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list) or not given:
        raise InvalidError(f"{where}.inputs must be a list of names, arrays or files, not {given!r}")
    inputs = tuple(_text(one, f"{where}.inputs") for one in given)
    flags = said.get("flags", [])
    if not isinstance(flags, list) or not all(isinstance(one, str) for one in flags):
        raise InvalidError(f"{where}.flags must be a list of words, not {flags!r}")
    options: dict[str, Any] = {"flags": flags}
    for key, kind, what in (("dtype", str, "text"), ("target", str, "text"), ("stream", bool, "true or false"),
                            ("trust", bool, "true or false")):  # fmt: skip
        if key in said:
            if not isinstance(said[key], kind):
                raise InvalidError(f"{where}.{key} must be {what}, not {said[key]!r}")
            options[key] = said[key]
    settings: dict[str, Any] = {}
    if "form" in said:
        settings["form"] = _text(said["form"], f"{where}.form")
    for key, setting in (("task_bytes", "task_bytes"), ("max_instructions", "instructions")):
        if key in said:
            value = _size(said[key], f"{where}.{key}") if key == "task_bytes" else said[key]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidError(f"{where}.{key} must be a whole number from 1 on, not {said[key]!r}")
            settings[setting] = value
    scalars = {key: _value(one, f"{where}.scalars.{key}")
               for key, one in _table(said.get("scalars", {}), f"{where}.scalars").items()}  # fmt: skip
    return StepSpec(_text(said["program"], f"{where}.program"), inputs, scalars, options, settings)


def _value(said: Any, where: str) -> Any:
    """Read a number; of ready-made programs some sizes are lists, and words in them."""
    if isinstance(said, list):
        return tuple(_value(one, where) for one in said)
    if isinstance(said, bool | int | float | str):
        return said
    raise InvalidError(f"{where} must be a number, not {said!r}")


def _size(said: Any, where: str) -> int:
    try:
        return units.parse_size(str(said))
    except InvalidError as error:
        raise InvalidError(f"{where}: {error}") from None


def _table(said: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise InvalidError(f"{where} must be a table, not {said!r}")
    return said


def _text(said: Any, where: str) -> str:
    if not isinstance(said, str) or not said:
        raise InvalidError(f"{where} must be a word, not {said!r}")
    return said


def _known(said: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in said:
        if key not in keys:
            raise InvalidError(f"{key!r} is no part of {where}{_hint(key, keys)}")


def _there(name: str, steps: Mapping[str, Any], where: str) -> None:
    if name not in steps:
        raise InvalidError(f"{where}: there is no step {name!r}{_hint(name, steps)}")


def _hint(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(names) or 'none'}"


def chain(sources: Sequence[str], inputs: Sequence[str], name: Callable[[str], str]) -> Spec:
    """Make a pipeline of programs that each take the output of the one before, the first of them ``inputs``.

    The output of the last is wanted. ``name`` gives a program a name; a later program of the same name gets a number
    behind it.
    """
    steps: dict[str, StepSpec] = {}
    outside = {str(number): word for number, word in enumerate(inputs, 1)}
    last: tuple[str, ...] = tuple(outside)
    for source in sources:
        base = re.sub(r"[^A-Za-z0-9_-]", "_", name(source))
        called, number = base, 1
        while called in steps:  # a file may be called as another's second
            number += 1
            called = f"{base}-{number}"
        steps[called] = StepSpec(source, last)
        last = (called,)
    return Spec("--then", outside, steps)


# --- making steps -----------------------------------------------------------------------------------------------------


def steps_of(
    spec: Spec,
    outside: Callable[[str], Any],
    make: Callable[[StepSpec, Any], tuple[Any, dict[str, Any]]],
) -> tuple[dict[str, Step], dict[str, Output]]:
    """Compile the programs of a pipeline and give them their inputs.

    ``outside`` gives, for a word, an array or the contents of a file; ``make`` a program and its scalars, for its words
    and its first input. All steps come back by name, those first that others need, with the outputs that are wanted. A
    word that names nothing, steps that wait for each other and inputs that do not fit are an InvalidError.
    """
    from nandarray.programs.step import Step, source

    made: dict[str, Step] = {}
    for name in _order(spec):
        one = spec.steps[name]
        inputs: list[Any] = []
        for word in one.inputs:
            if word in spec.inputs:
                inputs.append(outside(spec.inputs[word]))
            elif _refers(word, spec.steps):
                inputs.append(_output(made, word, source))
            else:
                inputs.append(outside(word))
        try:
            program, scalars = make(one, inputs[0])
            step = Step(program, inputs, scalars)
        except InvalidError as error:
            if len(spec.steps) == 1:
                raise
            raise InvalidError(f"step {name}: {error}") from error
        made[name] = step.using(**one.settings) if one.settings else step
    if spec.outputs:
        wanted = {name: _output(made, word, source) for name, word in spec.outputs.items()}
    else:
        taken = {word for one in spec.steps.values() for word in one.inputs}
        wanted = {}
        for name, step in made.items():
            several = len(step.program.outputs) > 1
            for output in step:
                if not {name, f"{name}.{output.name}"} & taken:
                    wanted[f"{name}.{output.name}" if several else name] = output
    if not wanted:
        raise InvalidError(f"{spec.where}: no step gives anything that is wanted")
    return made, wanted


def _output(made: Mapping[str, Step], word: str, source: Callable[[Any], Output]) -> Output:
    name, dot, output = word.partition(".")
    step = made[name]
    try:
        return step[output] if dot else source(step)
    except InvalidError as error:
        listed = " or ".join(f"{name}.{one.name}" for one in step)
        raise InvalidError(f"{word!r}: {str(error).split(': name one')[0]}{f'; write {listed}' if listed else ''}") \
            from None  # fmt: skip


def _order(spec: Spec) -> list[str]:
    """Return the steps, those first that others take."""
    needs = {
        name: {one.partition(".")[0] for one in step.inputs if one not in spec.inputs and _refers(one, spec.steps)}
        for name, step in spec.steps.items()
    }
    found: list[str] = []
    while len(found) < len(needs):
        ready = [name for name, of in needs.items() if name not in found and of <= set(found)]
        if not ready:
            circle = ", ".join(name for name in needs if name not in found)
            raise InvalidError(f"{spec.where}: steps wait for each other: {circle}")
        found += ready
    return found
