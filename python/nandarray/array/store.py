"""Stores: one file of arrays.

A :class:`Store` is the group at the root (:mod:`nandarray.array.group` finds arrays by name), and the file: flushing,
closing, checking, compacting, its statistics, and the threads of its asynchronous commands.

Elsewhere: opening (:mod:`nandarray.array.opening`), moving data (:mod:`nandarray.array.array`), and other formats
(``nandarray.import_`` and ``export``).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from nandarray import _nandarray
from nandarray.array.fork import StoreLock, own_again
from nandarray.array.futures import Future, Submitted, Threaded
from nandarray.array.group import Group
from nandarray.array.names import is_hidden, snapshot_name
from nandarray.array.pickling import reduce_store
from nandarray.errors import ClosedError, ExistsError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from nandarray.array.pickling import Opening
    from nandarray.array.session import Session
    from nandarray.array.writer_door import WriterAddress, WriterDoor
    from nandarray.model.clock import Clock
    from nandarray.model.report import Report
    from nandarray.nvme import Controller
    from nandarray.remote.objects import Facts

__all__ = ["Mode", "Store"]

Mode = Literal["r", "r+", "a", "w", "x"]
_T = TypeVar("_T")


class Store(Group):
    """One file of arrays: the root group, and what concerns the file. What :func:`nandarray.open` gives.

    A store may be used from many threads. :meth:`flush` and :meth:`close` make everything written so far durable; what
    was not flushed may be lost when the process is killed, but never half of a write.

    Examples
    --------
    >>> import nandarray
    >>> with nandarray.open("data.nand", mode="w") as store:
    ...     store["x"] = np.arange(3)
    ...     store.flush()
    >>> store.closed
    True
    """

    def __init__(self, engine: _nandarray.Store, mode: Mode, opening: Opening | None = None) -> None:
        self._engine = engine
        self._mode = mode
        self._opening = opening
        #: Size, version and age of the object far away that the store is in; None on this machine.
        self._facts: Facts | None = None
        #: Bytes that the inputs of a task may have on a device whose cores have ping-pong halves.
        self._half_bytes: int | None = None
        self._lock = StoreLock()
        self._threads: ThreadPoolExecutor | None = None
        self._pump: Any = None
        #: The door by which other processes have what was pickled here; and of what came by one, the address.
        self._door: WriterDoor | None = None
        self._writer: WriterAddress | None = None
        #: Stores that show snapshots of this one, which end with it; and of such a one, the snapshot and this one.
        self._shown: weakref.WeakSet[Store] = weakref.WeakSet()
        self._snapshot: tuple[str, Store] | None = None
        own_again(self, Store._forget_threads)
        super().__init__(None, "")

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_store(self)

    def _forget_threads(self) -> None:
        self._threads = None

    @property
    def store(self) -> Store:
        """The store itself."""
        return self

    @property
    def path(self) -> str:
        """The file, or the URL."""
        return self._engine.path

    @property
    def mode(self) -> Mode:
        """The mode that the store was opened with."""
        return self._mode

    @property
    def read_only(self) -> bool:
        """Whether the store refuses to be changed."""
        return self._engine.read_only

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._engine.closed

    @property
    def clock(self) -> Clock:
        """The modelled clock of a store that was opened with ``device=``.

        Raises
        ------
        InvalidError
            The store has none: it runs under the wall clock.
        """
        from nandarray.model.clock import Clock

        engine = self._engine.clock
        if engine is None:
            raise InvalidError("the store has no modelled clock; open it with device=, for example 'samsung-970-pro'")
        return Clock(engine)

    def report(self) -> Report:
        """Return the report of the commands since opening on the modelled device.

        Returns
        -------
        nandarray.Report
            Time, throughput, latency percentiles, energy by part, write amplification, utilisation, wear.

        Raises
        ------
        InvalidError
            The store was opened without ``device=``.
        """
        return self.clock.report()

    def nvme(self) -> Controller:
        """Return an NVMe controller on this store: typed commands, namespaces, N-D commands.

        Returns
        -------
        nandarray.nvme.Controller
            A new controller, with no views open.
        """
        from nandarray.nvme import Controller

        return Controller(self)

    def __copy__(self) -> Store:
        again, opening = reduce_store(self, "copied")
        copied: Store = again(*opening)
        return copied

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError(f"the store {self.path!r} is closed; open it again")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush and release the file; asynchronous commands in flight finish first. Closing twice is fine."""
        with self._lock:
            threads, self._threads = self._threads, None
            door, self._door = self._door, None
        if threads is not None:
            threads.shutdown(wait=True)
        if door is not None:
            door.end()
        try:
            self._engine.close()
        finally:
            if self._engine.closed:  # not if the last flush found no room
                for shown in list(self._shown):
                    shown.close()

    def flush(self) -> None:
        """Make everything written so far durable."""
        self._engine.flush()

    def refresh(self) -> None:
        """See what the writer has committed since this read-only store was opened or refreshed."""
        self._engine.refresh()

    def stat(self) -> dict[str, Any]:
        """Return the use of space: by array, live and dead pages, write amplification, wear.

        Returns
        -------
        dict
            Counters of the store; ``write_amplification``, pages written for every page's worth given to write since
            the store was opened (``nan`` before the first write); and ``arrays``, the space of each array by name.
        """
        numbers: dict[str, Any] = dict(self._engine.stat())
        arrays = {name: facts for name, facts in self._engine.stat_arrays().items() if not is_hidden(name)}
        numbers.pop("arrays")  # with those that keep groups
        numbers["array_count"] = len(arrays)
        written = numbers["bytes_written"]
        pages = numbers["pages_appended"] + numbers["pages_moved"]
        numbers["write_amplification"] = pages * numbers["page_bytes"] / written if written else float("nan")
        numbers["arrays"] = arrays
        return numbers

    @property
    def dropped(self) -> dict[str, Any] | None:
        """Journal records that opening this store left out, or ``None``.

        A loss of power leaves records that are not whole; they and those behind them are dropped, none of which a flush
        had promised. Records that were ``flushed`` are dropped by ``salvage`` only, and are lost. The numbers of the
        ``first`` and the ``last`` are given, the number of ``records``, the ``arrays`` that they changed as far as
        they can be read, the pages that a salvage gave back to their arrays (``pages_taken``) and those whose array is
        not known (``pages_lost``), and a ``message`` with all of it.

        Examples
        --------
        >>> import nandarray
        >>> with nandarray.open("data.nand", "w") as store:
        ...     print(store.dropped)
        None
        """
        dropped: dict[str, Any] | None = self._engine.dropped
        return dropped

    def check(self, *, repair: bool = False, accept_older: bool = False) -> dict[str, Any]:
        """Verify every checksum, index entry and reverse record.

        Parameters
        ----------
        repair : bool
            Repair what the records allow.
        accept_older : bool
            Permission for ``repair`` to take older content: where the newest content of an access unit is damaged and
            no copy of it is left, take the newest intact content before it, and say so in ``repaired``. Otherwise
            reading it stays an error.

        Returns
        -------
        dict
            ``ok``, the ``errors`` found, what was ``repaired``, what opening ``dropped``, as :attr:`dropped` has it,
            and counts. ``ok`` is false if there are errors, and in a store that was salvaged when it was opened and
            lost what had been flushed.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store.check()["ok"]
        True
        """
        for what, value in (("repair", repair), ("accept_older", accept_older)):
            if not isinstance(value, bool):
                raise InvalidError(f"{what} must be True or False, not {value!r}")
        found = self._engine.check(repair=repair, accept_older=accept_older)
        live = self._engine if self._snapshot is None else self._snapshot[1]._engine
        found["arrays"] -= sum(map(is_hidden, live.names("")))
        return found

    def compact(self) -> dict[str, Any]:
        """Reclaim every dead page, bring together blocks that were written in parts, and shorten the file.

        Returns
        -------
        dict
            Bytes that the file gave back, as ``bytes_freed``.
        """
        return self._engine.compact()

    def geometry(self) -> dict[str, Any]:
        """Return the flash geometry that the store was created with.

        Returns
        -------
        dict
            Page size, channels, banks, pages of a block.
        """
        return self._engine.geometry()

    def __repr__(self) -> str:
        if self.closed:
            return f"<nandarray.Store {self.path!r} (closed)>"
        if self._snapshot is not None:
            return f"<nandarray.Store {self.path!r} at snapshot {self._snapshot[0]!r}, {len(self)} inside>"
        return f"<nandarray.Store {self.path!r} mode={self._mode!r}, {len(self)} inside>"

    def snapshot(self, name: str) -> None:
        """Keep all arrays, groups and attributes as they are now, under a name.

        A snapshot takes no time that depends on the data, and no space of its own: it shares what is stored with the
        arrays until these change. It is there after a loss of power once the store was flushed.

        Parameters
        ----------
        name : str
            The name: letters, digits, ``.``, ``_`` and ``-``, as a tag of a store of parts.

        Raises
        ------
        ExistsError
            Another snapshot has this name.
        InvalidError
            It is no name, or the store is of a format version before 3.
        DoorError
            Another process has the file, or the store has parts: these have versions.

        Examples
        --------
        >>> import nandarray
        >>> with nandarray.open("data.nand", mode="w") as store:
        ...     store["x"] = np.arange(3)
        ...     store.snapshot("before")
        ...     store["x"][:] = 0
        ...     with store.at("before") as old:
        ...         print(old["x"][:], store["x"][:])
        [0 1 2] [0 0 0]
        """
        self._engine.take_snapshot(snapshot_name(name), time.time_ns())

    def snapshots(self) -> list[dict[str, Any]]:
        """List the snapshots that there are.

        Returns
        -------
        list of dict
            The oldest first: ``name``, ``taken_at`` (UTC), number of ``arrays``, and ``bytes_held``: of what only this
            snapshot still has, which its deletion frees.
        """
        found = []
        for name, taken, _, held in self._engine.snapshots():
            at = datetime.fromtimestamp(taken / 1e9, UTC).isoformat(timespec="milliseconds")
            try:
                arrays = sum(not is_hidden(one) for one in self._engine.at(name).names(""))
            except (NotFoundError, ClosedError):  # another thread has deleted it, and maybe taken another
                if self.closed:
                    raise
                continue
            found.append({"name": name, "taken_at": at, "arrays": arrays, "bytes_held": held})
        return found

    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. Space that only it had is used again; :meth:`compact` gives it back to the disk.

        Stores that :meth:`at` gave for it can no longer be read.

        Parameters
        ----------
        name : str
            The snapshot.

        Raises
        ------
        NotFoundError
            There is no such snapshot.

        Examples
        --------
        >>> import nandarray
        >>> with nandarray.open("data.nand", mode="w") as store:
        ...     store.snapshot("before")
        ...     store.delete_snapshot("before")
        ...     store.snapshots()
        []
        """
        self._engine.delete_snapshot(snapshot_name(name))

    def at(self, name: str) -> Store:
        """Open a snapshot, for reading.

        Parameters
        ----------
        name : str
            The snapshot.

        Returns
        -------
        Store
            The store as it was, which stays so: arrays, groups, views, programs. It ends with this one. One that was
            opened for reading has the snapshots that there were when it was opened or refreshed.

        Raises
        ------
        NotFoundError
            There is no such snapshot.
        DoorError
            Another process has the file.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["x"] = np.arange(3)
        >>> store.snapshot("before")
        >>> store["x"][1:] = 7
        >>> store.at("before")["x"][:]
        array([0, 1, 2])
        """
        engine = self._engine.at(snapshot_name(name))
        opening = self._opening
        if opening is not None:
            path, options = opening
            opening = path, (*options, ("snapshot", (name, engine.taken)))
        shown = Store(engine, "r", opening)
        shown._facts, shown._snapshot = self._facts, (name, self)
        self._shown.add(shown)
        return shown

    def _file_state(self) -> dict[str, Any] | None:
        """Return ``uid``, ``gid``, ``mode``, number of ``names`` of the file now, and whether it is ``at_path``.

        None for a store in no file.
        """
        return self._engine.file_state()

    def _is_group(self, path: str) -> bool:
        return not path or bool(self._engine.names(path + "/"))

    def _check_free(self, path: str) -> None:
        """Refuse a name that is taken, or that lies below an array."""
        if path in self._engine:
            raise ExistsError(f"an array named {path!r} exists in {self.path!r}")
        if self._is_group(path):
            raise ExistsError(f"a group named {path or '/'!r} exists in {self.path!r}")
        self._check_above(path)

    def _check_above(self, path: str) -> None:
        """Refuse a name that lies below an array."""
        above = path.rpartition("/")[0]
        while above:
            if above in self._engine:
                raise ExistsError(f"{above!r} is an array, so {path!r} cannot lie in it")
            above = above.rpartition("/")[0]

    def session(
        self,
        scheduler: str = "intra-out-of-order",
        *,
        workers: int | None = None,
        memory: int | None = None,
        window: int = 64 << 20,
        accelerator: Mapping[str, Any] | bool = False,
        core: str = "lwp",
    ) -> Session:
        """Open a session: many kernels at once beside this store.

        Parameters
        ----------
        scheduler : {"intra-out-of-order", "intra-in-order", "inter-dynamic", "inter-static"}
            Decides which kernel a free worker runs, and how much of it.
        workers : int, optional
            Threads that run kernels; by default one a processor. On a modelled device there is one.
        memory : int, optional
            The most bytes that kernels need at once; by default half of the machine's memory.
        window : int
            The most bytes of an input that stays in the store which one screen maps at once.
        accelerator : bool or mapping
            True for FlashAbacus' platform, or values in place of those of its description: kernels run on the store's
            bytes, in modelled time, and :meth:`Session.report` tells it.
        core : str
            The preset of that platform's workers.

        Returns
        -------
        Session
            A context manager, which waits for its kernels at the end.

        Raises
        ------
        InvalidError
            There is no such scheduler.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs import kernels
        >>> store = nandarray.open("data.nand", mode="w")
        >>> with store.session(workers=1) as session:
        ...     job = session.submit(kernels.get("atax"), inputs={"A": np.eye(2, dtype="f4"), "x": np.ones(2, "f4")})
        ...     job.result()
        array([1., 1.], dtype=float32)
        """
        from nandarray.array.session import Session

        return Session(
            self, scheduler, workers=workers, memory=memory, window=window, accelerator=accelerator, core=core
        )

    def submit_flush(self) -> Future:
        """Flush later, beside whatever else is in flight: it begins when every command submitted before has ended.

        Returns
        -------
        nandarray.Future
            Gives None, once all that was written before is durable.
        """
        if not self._is_modelled():
            return self._submit_to_thread(self.flush)
        return Submitted(self, [self._engine.submit_flush()], lambda: None)

    def _is_modelled(self) -> bool:
        return self._engine.clock is not None

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                count = min(64, 4 * (os.cpu_count() or 1) + 4)
                self._threads = ThreadPoolExecutor(count, thread_name_prefix="nandarray")
            return self._threads

    def _submit_to_thread(self, call: Callable[[], Any]) -> Future:
        return Threaded(self._pool().submit(call))

    async def _in_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        """Run a blocking command in a thread of this store's own pool."""
        import asyncio  # 20 ms, which few need

        return await asyncio.get_running_loop().run_in_executor(self._pool(), partial(function, *args))
