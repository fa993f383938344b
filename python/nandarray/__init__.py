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
from nandarray._open import open
from nandarray.array import Array
from nandarray.errors import (
    BadIndexError,
    BusyError,
    CancelledError,
    ChecksumError,
    ClosedError,
    CompileError,
    CorruptError,
    DescriptionError,
    ExistsError,
    InternalError,
    InvalidError,
    LockedError,
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
from nandarray.futures import Future, as_completed
from nandarray.group import Group
from nandarray.report import Report
from nandarray.store import Store
from nandarray.view import View

if TYPE_CHECKING:
    from nandarray._advise import Advice, advise
    from nandarray._dask import from_dask, to_dask
    from nandarray._program.annotations import Block, Out, OutStream, Scalar, Stream
    from nandarray._program.decorator import program
    from nandarray._program.profile import profile
    from nandarray._program.program import Program
    from nandarray._program.run import Box, offload
    from nandarray._program.step import Step
    from nandarray._replay import Boxes, Replay, Synthetic, Trace, replay
    from nandarray._xarray import to_xarray
    from nandarray._xarray_write import from_xarray
    from nandarray.convert import export, import_
    from nandarray.device import Description, devices

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
    "ClosedError",
    "CompileError",
    "CorruptError",
    "Description",
    "DescriptionError",
    "ExistsError",
    "Future",
    "Group",
    "InternalError",
    "InvalidError",
    "LockedError",
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
    "offload",
    "open",
    "profile",
    "program",
    "replay",
    "to_dask",
    "to_xarray",
]

# Public name -> module that has it.
_LAZY = {
    "Advice": "nandarray._advise",
    "advise": "nandarray._advise",
    "to_dask": "nandarray._dask",
    "from_dask": "nandarray._dask",
    "import_": "nandarray.convert",
    "export": "nandarray.convert",
    "Description": "nandarray.device",
    "Block": "nandarray._program.annotations",
    "Out": "nandarray._program.annotations",
    "OutStream": "nandarray._program.annotations",
    "Program": "nandarray._program.program",
    "Scalar": "nandarray._program.annotations",
    "Stream": "nandarray._program.annotations",
    "program": "nandarray._program.decorator",
    "Box": "nandarray._program.run",
    "offload": "nandarray._program.run",
    "profile": "nandarray._program.profile",
    "Step": "nandarray._program.step",
    "devices": "nandarray.device",
    "Replay": "nandarray._replay",
    "Boxes": "nandarray._replay",
    "Synthetic": "nandarray._replay",
    "Trace": "nandarray._replay",
    "replay": "nandarray._replay",
    "to_xarray": "nandarray._xarray",
    "from_xarray": "nandarray._xarray_write",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'nandarray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
