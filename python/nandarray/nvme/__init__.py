r"""NVMe: typed commands for a store, as a host that speaks NVMe submits them.

:mod:`commands` has the commands and the entries that they become, :mod:`controller` submits them to a store of this
process. :mod:`server` serves a store over TCP, :mod:`remote` is a store on the other side; :mod:`secrets` has what both
need to know each other.
"""

from nandarray.nvme import commands
from nandarray.nvme.commands import *  # noqa: F403
from nandarray.nvme.controller import Controller
from nandarray.nvme.remote import RemoteProgram, RemoteStore, connect
from nandarray.nvme.secrets import new_secret, new_tls_key, read_secrets, read_tls_keys
from nandarray.nvme.server import Server, serve

__all__ = [
    "Controller",
    "RemoteProgram",
    "RemoteStore",
    "Server",
    "connect",
    "new_secret",
    "new_tls_key",
    "read_secrets",
    "read_tls_keys",
    "serve",
]
__all__ += commands.__all__
