"""N-dimensional arrays that live in flash-shaped blocks.

Start with :func:`open`; it gives a :class:`Store`, a mapping of names to :class:`Array`. ``array.view(shape)`` gives a
:class:`View`. Everything that goes wrong is a :class:`NandarrayError`. This file is the whole public surface; what it
does not name may change.

``to_dask``, ``from_dask``, ``to_xarray``, ``from_xarray``, ``import_``, ``export``, ``Program`` and what belongs to
it are loaded when first used, since they need other packages.
"""

from __future__ import annotations

from nandarray import announce, interrupts  # noqa: F401 -- before all that takes time to load

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from nandarray import errors
from nandarray._nandarray import __version__
from nandarray.array.array import Array
from nandarray.array.futures import Future, as_completed
from nandarray.array.group import Group
from nandarray.array.joined import Joined, concat, stack
from nandarray.array.opening import open
from nandarray.array.ragged import Ragged
from nandarray.array.store import Store
from nandarray.array.view import View
from nandarray.errors import *  # noqa: F403
from nandarray.model.report import Report

if TYPE_CHECKING:
    from nandarray.array.session import Job, Session
    from nandarray.device import Description, devices
    from nandarray.flight.server import serve as serve_flight
    from nandarray.interop.convert.copying import export, import_
    from nandarray.interop.dask import from_dask, to_dask
    from nandarray.interop.xarray.backend import to_xarray
    from nandarray.interop.xarray.write import from_xarray
    from nandarray.model.replay import Boxes, Replay, Synthetic, Trace, replay
    from nandarray.nvme.server import serve
    from nandarray.programs.advise import Advice, advise
    from nandarray.programs.annotations import Block, First, Length, Out, OutStream, Scalar, Stream, Whole
    from nandarray.programs.calls.groups import GroupBy, group_by
    from nandarray.programs.decorator import program
    from nandarray.programs.kernel import Kernel, kernel
    from nandarray.programs.profile import profile
    from nandarray.programs.program import Program
    from nandarray.programs.run import Box, offload
    from nandarray.programs.step import Step

__all__ = [
    "Advice",
    "Array",
    "Block",
    "Box",
    "Boxes",
    "Description",
    "First",
    "Future",
    "Group",
    "GroupBy",
    "Job",
    "Joined",
    "Kernel",
    "Length",
    "Out",
    "OutStream",
    "Program",
    "Ragged",
    "Replay",
    "Report",
    "Scalar",
    "Session",
    "Step",
    "Store",
    "Stream",
    "Synthetic",
    "Trace",
    "View",
    "Whole",
    "__version__",
    "advise",
    "as_completed",
    "concat",
    "devices",
    "export",
    "from_dask",
    "from_xarray",
    "group_by",
    "import_",
    "kernel",
    "offload",
    "open",
    "profile",
    "program",
    "replay",
    "serve",
    "serve_flight",
    "stack",
    "to_dask",
    "to_xarray",
]
__all__ += errors.__all__

# Public name -> module that has it.
_LAZY = {
    name: module
    for module, names in {
        "nandarray.array.session": ("Job", "Session"),
        "nandarray.device": ("Description", "devices"),
        "nandarray.interop.convert.copying": ("export", "import_"),
        "nandarray.interop.dask": ("from_dask", "to_dask"),
        "nandarray.interop.xarray.backend": ("to_xarray",),
        "nandarray.interop.xarray.write": ("from_xarray",),
        "nandarray.model.replay": ("Boxes", "Replay", "Synthetic", "Trace", "replay"),
        "nandarray.nvme.server": ("serve",),
        "nandarray.programs.advise": ("Advice", "advise"),
        "nandarray.programs.annotations": ("Block", "First", "Length", "Out", "OutStream", "Scalar", "Stream", "Whole"),
        "nandarray.programs.calls.groups": ("GroupBy", "group_by"),
        "nandarray.programs.decorator": ("program",),
        "nandarray.programs.kernel": ("Kernel", "kernel"),
        "nandarray.programs.profile": ("profile",),
        "nandarray.programs.program": ("Program",),
        "nandarray.programs.run": ("Box", "offload"),
        "nandarray.programs.step": ("Step",),
    }.items()
    for name in names
}
# Public name -> module that has it, and its name there.
_RENAMED = {"serve_flight": ("nandarray.flight", "serve")}
#: Modules that ``import nandarray`` makes reachable, each loaded when it is first used.
_MODULES = ("flight", "gpu", "lab", "nvme", "parts")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"nandarray.{name}")
    if name in _RENAMED:
        module, own = _RENAMED[name]
        return getattr(importlib.import_module(module), own)
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'nandarray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_RENAMED, *_MODULES})
