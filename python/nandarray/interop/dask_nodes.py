"""Workers of a Dask cluster that work beside parts: the plugin that tells which folders they have, and their crew.

:class:`NodePlugin` is registered once by the client, and runs at each worker, also at those that come later.
Membership, heartbeats and retries are Dask's. Workers look for parts when a run begins, so nothing here can be out of
date. :mod:`nandarray.parts.away` decides on the work of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nandarray.errors import InvalidError
from nandarray.optional import require
from nandarray.parts.crew import FOLDERS, Crew

__all__ = ["NodePlugin", "crew"]

distributed = require("distributed", "dask")


class NodePlugin(distributed.WorkerPlugin):  # type: ignore[misc,name-defined]  # the package has no types
    """Tells workers in which folders of their machines parts lie.

    Parameters
    ----------
    folders : path, sequence of path, or mapping
        Folders with parts, as :meth:`PartedStore.protect` fills them; or these by worker: by its name or its address.

    Examples
    --------
    >>> from nandarray import parts
    >>> parts.NodePlugin(["/local/parts"]).folders
    ('/local/parts',)
    """

    name = "nandarray-node"

    def __init__(self, folders: Any) -> None:
        self.by_worker: dict[str, tuple[str, ...]] = {}
        self.folders: tuple[str, ...] = ()
        if isinstance(folders, Mapping):
            self.by_worker = {str(worker): _paths(one) for worker, one in folders.items()}
        else:
            self.folders = _paths(folders)

    def setup(self, worker: Any) -> None:
        """Note the folders of a worker; called by Dask in its process."""
        if not isinstance(worker, distributed.Worker):
            raise InvalidError(f"a plugin of workers must be set up at one of Dask, not at {type(worker).__name__}")
        own = self.by_worker.get(str(worker.name), self.by_worker.get(worker.address, self.folders))
        FOLDERS[:] = [folder for folder in own if os.path.isdir(folder)]

    def teardown(self, worker: Any) -> None:
        """Forget them; called by Dask."""
        FOLDERS.clear()


def _paths(given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(listed, Sequence) or not all(isinstance(one, str | os.PathLike) for one in listed):
        raise InvalidError(f"folders must be a path, paths, or paths by worker, not {given!r:.80}")
    return tuple(os.fsdecode(one) for one in listed)


def crew(client: Any) -> Crew:
    """Return the workers of a client of Dask."""
    return _Dask(client)


def _named(function: Callable[..., Any], *given: Any) -> tuple[str, Any]:
    return str(distributed.get_worker().address), function(*given)


class _Dask(Crew):
    """The workers that a scheduler knows."""

    def __init__(self, client: Any) -> None:
        if getattr(client, "asynchronous", False):
            raise InvalidError("client must not be asynchronous: the run waits for it")
        self._client = client

    def workers(self) -> set[str]:
        return set(self._client.nthreads())

    def size(self) -> int:
        return sum(self._client.nthreads().values())

    def ask(self, function: Callable[..., Any], *given: Any) -> dict[str | None, Any]:
        found = self._client.run(function, *given, on_error="return")
        answers: dict[str | None, Any] = {
            str(worker): one for worker, one in found.items() if not isinstance(one, BaseException)
        }
        for one in found.values():
            if not answers and isinstance(one, BaseException):
                raise one  # such as of workers that have another version of this package, or none
        return answers

    def submit(self, worker: str | None, function: Callable[..., Any], *given: Any) -> Any:
        pinned = {} if worker is None else {"workers": [worker], "allow_other_workers": False}
        return self._client.submit(_named, function, *given, pure=False, **pinned)

    def wait(self, given: Iterable[Any], seconds: float) -> Sequence[Any]:
        futures = list(given)
        try:
            distributed.wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return []
        return [one for one in futures if one.done()]

    def cancel(self, given: Iterable[Any]) -> None:
        self._client.cancel(list(given), force=True)
