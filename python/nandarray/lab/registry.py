"""The known experiments, and the files of their code.

Two places have experiments: the packages that entry points name (:mod:`nandarray.lab.packages`), the lab's own among
them, and Python files given by their path. Each module defines ``EXPERIMENT``, or ``EXPERIMENTS`` with several. A
module that cannot be imported hides no other: :func:`broken` says why.

This module runs nothing. It also tells of an experiment which source it was made of, for the name of its runs.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from nandarray.errors import InvalidError, NotFoundError
from nandarray.inputs import read_input
from nandarray.lab import packages
from nandarray.lab.claims import near
from nandarray.lab.experiment import Experiment, Parameter
from nandarray.units import is_number

__all__ = ["PROFILES", "broken", "experiments", "file_of", "find", "load_file", "resolve", "source_hash"]

PROFILES = ("full", "small", "deep")
#: The largest number that a parameter takes.
LARGEST = 2**63 - 1
_FILE_MODULE = "nandarray_lab_file_"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FAILED: dict[str, str] = {}


def experiments(paths: Sequence[str | os.PathLike[str]] = ()) -> dict[str, Experiment]:
    """Return all experiments.

    Parameters
    ----------
    paths : sequence of path
        Python files whose experiments are to be among them.

    Returns
    -------
    dict
        Experiments by id, sorted.

    Examples
    --------
    >>> from nandarray import lab
    >>> "model.queue-depth" in lab.experiments()
    True
    """
    found: dict[str, Experiment] = {}
    _FAILED.clear()
    for name, load in packages.modules():
        _add(found, name, load)
    for path in paths:
        for one in _of(load_file(path)):
            found[one.id] = one
    return dict(sorted(found.items()))


def _add(found: dict[str, Experiment], name: str, load: Callable[[], Any]) -> None:
    try:
        made = list(_of(load()))
    except Exception as error:  # whatever it is, the other experiments stay usable
        _FAILED[name] = f"{type(error).__name__}: {error}"
        return
    for one in made:
        if one.id in found:
            _FAILED[name] = f"the id {one.id!r} is taken"
        else:
            found[one.id] = one


def broken() -> dict[str, str]:
    """Return the modules that :func:`experiments` could not use when it was last called, with the reason."""
    return dict(_FAILED)


def _of(module: Any) -> Iterable[Experiment]:
    """Return the experiments of a module, of one, or of several."""
    made = getattr(module, "EXPERIMENTS", None) or getattr(module, "EXPERIMENT", None) or module
    for one in [made] if isinstance(made, Experiment) else made if isinstance(made, list | tuple) else []:
        if not isinstance(one, Experiment):
            raise InvalidError(f"{one!r} is no Experiment")
        if not _ID.fullmatch(one.id):
            raise InvalidError(f"{one.id!r} is no id of an experiment: small letters, digits, dots, dashes")
        yield one


def load_file(path: str | os.PathLike[str]) -> ModuleType:
    """Import a Python file under a name of its own, once.

    An InvalidError says that it raises, or defines no experiment; an OSError, that it cannot be read.
    """
    file = Path(path).resolve()
    text = read_input(file)
    name = _FILE_MODULE + hashlib.sha256(str(file).encode() + b"\0" + text).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        if not list(_of(module)):
            raise InvalidError("it defines no EXPERIMENT")
    except Exception as error:
        del sys.modules[name]
        raise InvalidError(f"{path} holds no experiment: {type(error).__name__}: {error}") from error
    return module


def file_of(module_name: str) -> str | None:
    """Return the file of a module that :func:`load_file` made: other processes have to load it, too."""
    if not module_name.startswith(_FILE_MODULE):
        return None
    return str(sys.modules[module_name].__file__)


def find(what: str | os.PathLike[str] | Experiment) -> Experiment:
    """Find an experiment by its id, or in a Python file: ``FILE.py`` with one, ``FILE.py:ID`` for one of several.

    A NotFoundError names the nearest id; an InvalidError says that the file is no experiment, or has several.
    """
    if isinstance(what, Experiment):
        return what
    text = os.fspath(what)
    file, _, inside = text.partition(".py:")
    if inside or text.endswith(".py"):
        made = {one.id: one for one in _of(load_file(f"{file}.py" if inside else text))}
        if not inside and len(made) > 1:
            raise InvalidError(f"{text} has several experiments: write {text}:ID with one of {', '.join(made)}")
        wanted = inside or next(iter(made))
        if wanted not in made:
            raise NotFoundError(f"no experiment {wanted!r} in {file}.py{near(wanted, made)}")
        return made[wanted]
    known = experiments()
    if text not in known:
        hidden = "".join(f"; {name} could not be loaded: {why}" for name, why in broken().items())
        raise NotFoundError(f"no experiment {text!r}{near(text, known)}{hidden}{packages.missing()}")
    return known[text]


def resolve(experiment: Experiment, profile: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Settle the values of all parameters of an experiment, in its order: given ones, else those of the profile.

    An InvalidError says that there is no such parameter or profile, or that a value is none for its parameter: of
    another kind than the experiment's own values, an empty list where they have elements, or a number out of range.
    """
    if profile not in PROFILES:
        raise InvalidError(f"a profile is 'full', 'small' or 'deep', not {profile!r}")
    given = dict(given or {})
    for name in given:
        if name not in experiment.parameters:
            hint = near(name, experiment.parameters) or "; it has none"
            raise InvalidError(f"{experiment.id} has no parameter {name!r}{hint}")
    found: dict[str, Any] = {}
    for name, parameter in experiment.parameters.items():
        value = given.get(name, parameter.value(profile))
        found[name] = _checked(f"parameter {name!r} of {experiment.id}", value, parameter)
    return found


def _checked(named: str, value: Any, parameter: Parameter) -> Any:
    """Return a parameter's value, of the kind and in the range of those that the experiment gives it."""
    own = [one for one in (parameter.default, parameter.small, parameter.deep) if one is not None]
    if not own or any(type(value) is type(one) and value == one for one in own):
        return value
    if value is None and parameter.default is None:
        return value
    _same_kind(named, value, own[0])
    if is_number(value) and all(map(is_number, own)):
        return _number(named, value, own, fractions=parameter.fractions)
    if isinstance(value, list | tuple):
        if not value and all(own):
            raise InvalidError(f"{named} is a list with an element at least, like {parameter.default!r}; [] has none")
        inner = [one for many in own if isinstance(many, list | tuple) for one in many]
        each, numbers = f"each element of {named}", bool(inner) and all(map(is_number, inner))
        if numbers or (inner and all(isinstance(one, str) for one in inner)):
            for one in value:
                _same_kind(each, one, inner[0])
        if numbers:
            return type(value)([_number(each, one, inner, fractions=parameter.fractions) for one in value])
    return value


def _number(named: str, value: float, own: Sequence[Any], *, fractions: bool) -> int | float:
    """Return a number: whole if the experiment's own are, not negative if they are not, and of at most 63 bits."""
    low = "0" if min(own) >= 0 else f"-{LARGEST:,}"
    whole = not fractions and all(isinstance(one, int) for one in own)
    kind = "whole number" if whole else "number"
    fits = math.isfinite(value) and (value >= 0 or min(own) < 0) and abs(value) <= LARGEST
    if not fits or (whole and value != int(value)):
        raise InvalidError(f"{named} is a {kind} from {low} to {LARGEST:,}; {value!r} is not")
    return int(value) if whole else value


def _same_kind(named: str, value: Any, default: Any) -> None:
    """Refuse a text where a number is wanted, a number for a list, and the like."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (dict, "a table"),
    )
    for kind, words in kinds:
        if isinstance(default, kind):
            wrong = not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))
            if wrong:
                raise InvalidError(f"{named} is {words}, like {default!r}; {value!r} is not")
            return


def source_hash(experiment: Experiment) -> str:
    """Hash the source of an experiment: its module, and what that imports of the lab and of packages of experiments.

    The text is hexadecimal, the same on every machine with the same source.
    """
    digest = hashlib.sha256()
    module = sys.modules.get(experiment.run.__module__)
    file = getattr(module, "__file__", None)
    seen: dict[str, bytes] = {}
    if file is not None and Path(file).is_file():
        _follow(experiment.run.__module__ if file_of(experiment.run.__module__) is None else "file", Path(file), seen)
    for name, text in sorted(seen.items()):
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def _follow(name: str, file: Path, seen: dict[str, bytes]) -> None:
    if name in seen:
        return
    text = seen[name] = file.read_bytes()
    for other in _imports(text):
        if other.startswith(packages.sources()):
            spec = _spec(other)
            if spec is not None:
                _follow(other, Path(spec), seen)


@lru_cache(maxsize=512)
def _imports(text: bytes) -> tuple[str, ...]:
    """Return the names that a source imports; parsing it takes longer than many a run."""
    wanted: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            wanted += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            wanted += [alias.name for alias in node.names]
    return tuple(wanted)


def _spec(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a name inside a module, not a module
        return None
    return None if spec is None or not spec.origin or not spec.origin.endswith(".py") else spec.origin
