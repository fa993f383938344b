r"""NVMe: typed commands for a store, as a host that speaks NVMe submits them.

:mod:`commands` has the commands and the entries that they become, :mod:`controller` submits them to a store.
"""

from nandarray.nvme.commands import (
    ALL,
    CloseSpace,
    Command,
    Compare,
    Completion,
    Copy,
    CreateSpace,
    DatasetManagement,
    DeleteSpace,
    Direction,
    Flush,
    NdRead,
    NdWrite,
    OpenSpace,
    Read,
    ResizeSpace,
    SpaceInformation,
    Write,
    WriteZeroes,
)
from nandarray.nvme.controller import Controller

__all__ = [
    "ALL",
    "CloseSpace",
    "Command",
    "Compare",
    "Completion",
    "Controller",
    "Copy",
    "CreateSpace",
    "DatasetManagement",
    "DeleteSpace",
    "Direction",
    "Flush",
    "NdRead",
    "NdWrite",
    "OpenSpace",
    "Read",
    "ResizeSpace",
    "SpaceInformation",
    "Write",
    "WriteZeroes",
]
