"""The known experiments, found by id, file or pattern.

Two places have experiments: the packages that entry points name (:mod:`nandarray.lab.packages`), the lab's own among
them, and Python files given by their path. Each module defines ``EXPERIMENT``, or ``EXPERIMENTS`` with several. A
module that cannot be imported hides no other: :func:`broken` says why.

This module runs nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from nandarray.errors import InvalidError, NotFoundError
from nandarray.inputs import read_input
from nandarray.lab import packages
from nandarray.lab.claims import near
from nandarray.lab.experiment import Experiment
from nandarray.lab.places import by_place

__all__ = ["broken", "experiments", "file_of", "find", "load_file", "select"]

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
    """Find an experiment by its id, by a figure, table or section of its paper, or in a Python file.

    ``assasin.fig7.12`` is the one that answers a claim of that figure, ``FILE.py`` the only one of a file, and
    ``FILE.py:ID`` one of several. A NotFoundError names the nearest id; an InvalidError says that the file is no
    experiment, or that there are several.
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
    if text in known:
        return known[text]
    places = by_place(known)
    fitting = places.get(text, [])
    if len(fitting) > 1:
        raise InvalidError(f"several experiments answer claims of {text}: name one of {', '.join(fitting)}")
    if not fitting:
        hidden = "".join(f"; {name} could not be loaded: {why}" for name, why in broken().items())
        raise NotFoundError(f"no experiment {text!r}{near(text, [*known, *places])}{hidden}{packages.missing()}")
    return known[fitting[0]]


def select(names: Sequence[str]) -> dict[str, Experiment]:
    """Find experiments by what :func:`find` takes, and by sets, patterns of ids, and places that several answer.

    The keys are ids, and for files what was given.
    """
    found: dict[str, Experiment] = {}
    for one in (pattern for name in names for pattern in packages.sets().get(name, (name,))):
        if one.endswith(".py") or ".py:" in one:
            found[one] = find(one)
            continue
        known = experiments()
        if one in known:
            found[one] = known[one]
            continue
        places = by_place(known)
        if any(sign in one for sign in "*?["):
            fitting = fnmatch.filter(known, one)
            fitting = fitting or list(
                dict.fromkeys(name for place in fnmatch.filter(places, one) for name in places[place])
            )
            if not fitting:
                raise NotFoundError(f"no experiment fits {one!r}{near(one, known)}{packages.missing()}")
        else:
            fitting = places.get(one) or [find(one).id]
        found |= {name: known[name] for name in fitting}
    return found
