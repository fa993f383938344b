r"""NVMe: typed commands for a store, as a host that speaks NVMe submits them.

:mod:`commands` has the commands and the entries that they become, :mod:`controller` submits them to a store of this
process. :mod:`server` serves a store over TCP, :mod:`remote` is a store on the other side; :mod:`secrets` has what both
need to know each other.
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
from nandarray.nvme.remote import RemoteArray, RemoteProgram, RemoteStore, connect
from nandarray.nvme.secrets import new_secret, read_secrets
from nandarray.nvme.server import Server, serve

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
    "RemoteArray",
    "RemoteProgram",
    "RemoteStore",
    "ResizeSpace",
    "Server",
    "SpaceInformation",
    "Write",
    "WriteZeroes",
    "connect",
    "new_secret",
    "read_secrets",
    "serve",
]
