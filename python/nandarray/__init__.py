"""N-dimensional arrays that live in flash-shaped blocks.

Start with :func:`open`; it gives a :class:`Store`, a mapping of names to :class:`Array`. ``array.view(shape)`` gives a
:class:`View`. Everything that goes wrong is a :class:`NandarrayError`. This file is the whole public surface; what it
does not name may change.

``to_dask``, ``from_dask``, ``to_xarray``, ``from_xarray``, ``import_``, ``export``, ``Program`` and what belongs to
it are loaded when first used, since they need other packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nandarray._nandarray import __version__
from nandarray.array.array import Array
from nandarray.array.futures import Future, as_completed
from nandarray.array.group import Group
from nandarray.array.opening import open
from nandarray.array.store import Store
from nandarray.array.view import View
from nandarray.errors import (
    BadIndexError,
    BusyError,
    CancelledError,
    ChecksumError,
    CircleError,
    ClosedError,
    CompileError,
    CorruptError,
    DependencyError,
    DescriptionError,
    ExistsError,
    InternalError,
    InvalidError,
    LockedError,
    MalformedLineError,
    MediaError,
    NandarrayError,
    NotAStoreError,
    NotFoundError,
    ProgramError,
    ProgramFailedError,
    ReadOnlyError,
    StoreExistsError,
    StoreFullError,
    StoreMissingError,
    UnsupportedVersionError,
    VolumeMismatchError,
    WrongKeyError,
)
from nandarray.model.report import Report

if TYPE_CHECKING:
    from nandarray.array.session import Job, Session
    from nandarray.device import Description, devices
    from nandarray.interop.convert.copying import export, import_
    from nandarray.interop.dask import from_dask, to_dask
    from nandarray.interop.xarray.backend import to_xarray
    from nandarray.interop.xarray.write import from_xarray
    from nandarray.model.replay import Boxes, Replay, Synthetic, Trace, replay
    from nandarray.programs.advise import Advice, advise
    from nandarray.programs.annotations import Block, Out, OutStream, Scalar, Stream
    from nandarray.programs.decorator import program
    from nandarray.programs.kernel import Kernel, kernel
    from nandarray.programs.profile import profile
    from nandarray.programs.program import Program
    from nandarray.programs.run import Box, offload
    from nandarray.programs.step import Step

__all__ = [
    "Advice",
    "Array",
    "BadIndexError",
    "Block",
    "Box",
    "Boxes",
    "BusyError",
    "ChecksumError",
    "CancelledError",
    "CircleError",
    "ClosedError",
    "CompileError",
    "CorruptError",
    "DependencyError",
    "Description",
    "DescriptionError",
    "ExistsError",
    "Future",
    "Group",
    "InternalError",
    "InvalidError",
    "Job",
    "Kernel",
    "LockedError",
    "MalformedLineError",
    "MediaError",
    "NandarrayError",
    "NotAStoreError",
    "NotFoundError",
    "Out",
    "OutStream",
    "Program",
    "ProgramError",
    "ProgramFailedError",
    "ReadOnlyError",
    "Replay",
    "Report",
    "Scalar",
    "Session",
    "Step",
    "Store",
    "StoreExistsError",
    "StoreFullError",
    "StoreMissingError",
    "Stream",
    "Synthetic",
    "Trace",
    "UnsupportedVersionError",
    "View",
    "VolumeMismatchError",
    "WrongKeyError",
    "__version__",
    "advise",
    "as_completed",
    "devices",
    "export",
    "from_dask",
    "from_xarray",
    "import_",
    "kernel",
    "offload",
    "open",
    "profile",
    "program",
    "replay",
    "serve",
    "to_dask",
    "to_xarray",
]

# Public name -> module that has it.
_LAZY = {
    "Advice": "nandarray.programs.advise",
    "advise": "nandarray.programs.advise",
    "to_dask": "nandarray.interop.dask",
    "from_dask": "nandarray.interop.dask",
    "import_": "nandarray.interop.convert.copying",
    "export": "nandarray.interop.convert.copying",
    "Description": "nandarray.device",
    "Block": "nandarray.programs.annotations",
    "Out": "nandarray.programs.annotations",
    "OutStream": "nandarray.programs.annotations",
    "Job": "nandarray.array.session",
    "Kernel": "nandarray.programs.kernel",
    "Program": "nandarray.programs.program",
    "Session": "nandarray.array.session",
    "kernel": "nandarray.programs.kernel",
    "Scalar": "nandarray.programs.annotations",
    "Stream": "nandarray.programs.annotations",
    "program": "nandarray.programs.decorator",
    "Box": "nandarray.programs.run",
    "offload": "nandarray.programs.run",
    "profile": "nandarray.programs.profile",
    "Step": "nandarray.programs.step",
    "devices": "nandarray.device",
    "Replay": "nandarray.model.replay",
    "Boxes": "nandarray.model.replay",
    "Synthetic": "nandarray.model.replay",
    "Trace": "nandarray.model.replay",
    "replay": "nandarray.model.replay",
    "serve": "nandarray.nvme.server",
    "to_xarray": "nandarray.interop.xarray.backend",
    "from_xarray": "nandarray.interop.xarray.write",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'nandarray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
