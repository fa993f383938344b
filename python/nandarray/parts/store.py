"""A store of parts: a folder in place of a file, with versions, written by many processes.

:class:`PartedStore` is a :class:`~nandarray.array.store.Store`: arrays, views, groups, Dask, xarray and programs are
those of every store, by way of :mod:`nandarray.parts.source`. Its own are versions, and transactions
(:class:`PartsTransaction`), which are stores themselves until they are committed.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from nandarray.array.array import Array
from nandarray.array.names import is_hidden
from nandarray.array.store import Store
from nandarray.errors import (
    InvalidError,
    NandarrayError,
    NotFoundError,
    ReadOnlyError,
    StoreExistsError,
    StoreMissingError,
    refuse_homeless,
)
from nandarray.index.shapes import check_number
from nandarray.parts import changes, protection, reclaim
from nandarray.parts.away import run_away
from nandarray.parts.blobs.files import Files, in_folder
from nandarray.parts.blobs.objects import KeptBytes
from nandarray.parts.blobs.places import blobs_of, opening_of
from nandarray.parts.commit import commit, empty
from nandarray.parts.forks import Fork, Receipt, worker_source
from nandarray.parts.history import History, is_parted
from nandarray.parts.jobs import WAIT_S, Jobs
from nandarray.parts.parity import DATA_MAX
from nandarray.parts.repair import repair
from nandarray.parts.source import PartSpace, PartsSource
from nandarray.parts.writer import OpenParts

if TYPE_CHECKING:
    from nandarray import _nandarray
    from nandarray.array.pickling import Opening
    from nandarray.array.store import Mode
    from nandarray.parts.manifest import Manifest

__all__ = ["PartedStore", "PartsTransaction", "create", "open_folder"]


def create(path: str | os.PathLike[str], *, storage: Any = None) -> PartedStore:
    """Make a store of parts, and open it for writing.

    Parameters
    ----------
    path : path_like
        The folder, which must be absent, empty, or what a creation has left that was killed; or the URL of a place in
        a bucket, of which the same holds (``s3://BUCKET/KEY``).
    storage : obstore.store.ObjectStore, optional
        The store of objects, with its credentials; ``path`` is a key in it then, or a URL. Without it obstore makes
        one for a URL, with what the environment says.

    Returns
    -------
    PartedStore
        The store, at version 1, without arrays.

    Raises
    ------
    StoreExistsError
        There is something.
    InvalidError
        The bucket makes objects though they are there, so that no commit in it would be safe.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray import parts
    >>> with parts.create("sky.nand") as store:
    ...     store["a"] = np.arange(3)
    >>> with nandarray.open("sky.nand") as store:
    ...     store["a"][:], store.version
    (array([0, 1, 2]), 2)
    """
    files = blobs_of(path, storage)
    if isinstance(files, Files):
        refuse_homeless(Path(files.root))
    History.make(files, uuid.uuid4().hex, empty("created"))
    return open_folder(path, "r+", storage=storage)


def open_folder(
    path: str | os.PathLike[str],
    mode: Mode,
    options: Mapping[str, Any] | None = None,
    *,
    storage: Any = None,
    kept: KeptBytes = (None, None),
) -> PartedStore:
    """Open a store of parts; :func:`nandarray.open` does so for a folder.

    Parameters
    ----------
    path : path_like
        The folder, or a URL.
    mode : {"r", "r+", "a", "w", "x"}
        As for :func:`nandarray.open`; ``"w"`` deletes all arrays, in a new version: older ones stay.
    options : mapping, optional
        Options of :func:`nandarray.open` with which parts are opened.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        The store of objects, as for :func:`create`.
    kept : tuple
        Folder and bound of the cache of what is read of a bucket: ``cache`` and ``cache_bytes`` of
        :func:`nandarray.open`.

    Returns
    -------
    PartedStore
        The store at its newest version.

    Raises
    ------
    StoreMissingError, StoreExistsError
        There is none, or with mode ``"x"`` one.
    """
    name, files = os.fsdecode(path), blobs_of(path, storage, kept)
    if not is_parted(files):
        raise StoreMissingError(errno.ENOENT, "has no store of parts", name)
    if mode == "x":
        raise StoreExistsError(name)
    read_only = mode == "r"
    history = History(files)
    if not read_only:  # readers go by the manifests, each of which says its format
        history.identity()
        files.check_writer()
    source = _at(history, lambda: history.newest(intact=read_only), read_only=read_only, options=options or {})
    source.path = name
    if not isinstance(files, Files):
        source.far = opening_of(storage, kept)
    store = PartedStore(source, mode)
    if mode == "w":
        for name in list(source.draft.arrays):
            source.delete(name)
    return store


def _at(history: History, read: Callable[[], Manifest], **how: Any) -> PartsSource:
    """Return a source of a version, which it holds."""
    base = read()
    source = PartsSource(history, base, **how)
    source.begin(read, base)
    return source


_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class PartedStore(Store):
    """A store of parts. What :func:`nandarray.open` gives for a folder.

    Changes are seen here at once, and become a new version by :meth:`flush` and :meth:`close`; or by a
    :meth:`transaction`. Arrays that are open for writing can be pickled: other processes write into parts of their own,
    which :meth:`flush` brings in.

    Parameters
    ----------
    source : PartsSource
        The version, and its changes.
    mode : str
        The mode of opening.
    """

    def __init__(self, source: PartsSource, mode: Mode) -> None:
        self._source = source
        self._forks = Jobs(source)
        itself = weakref.ref(self)
        source.reduces = lambda space: None if (store := itself()) is None else store._reduced(space)
        source.away = run_away
        super().__init__(cast("_nandarray.Store", source), mode)

    # --- Versions ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version that is seen, without what was changed since."""
        return self._source.draft.base.version

    @property
    def changed(self) -> bool:
        """Whether there are changes that are not committed."""
        return self._source.draft.is_changed or self._forks.any

    def versions(self) -> list[dict[str, Any]]:
        """List the versions that there are.

        Returns
        -------
        list of dict
            The oldest first: ``version``, ``parent``, ``commit``, ``message``, ``written_at``, ``writer``, number of
            ``arrays``, ``tags``; ``error`` of one that cannot be read.
        """
        tags: dict[int, list[str]] = {}
        for name, number in self._history.tags().items():
            tags.setdefault(number, []).append(name)
        found = []
        strays = self._history.strays()
        for number in reversed(self._history.numbers()):
            if number in strays:
                continue
            try:
                facts = self._history.at(number).facts()
            except NandarrayError as error:
                facts = {"version": number, "error": str(error)}
            found.append({**facts, "tags": tags.get(number, [])})
        return found

    def at(self, name: str | None = None, *, version: int | None = None, tag: str | None = None) -> PartedStore:
        """Open a version, for reading.

        Parameters
        ----------
        name : str, optional
            A tag of it, as ``tag``: the word for snapshots of a single file.
        version : int, optional
            Its number.
        tag : str, optional
            Its name, in place of a number.

        Returns
        -------
        PartedStore
            The store as it was, which stays so.

        Raises
        ------
        NotFoundError
            There is no such version or tag, or it has expired.

        Examples
        --------
        >>> from nandarray import parts
        >>> store = parts.create("sky.nand")
        >>> store["a"] = np.arange(3)
        >>> store.flush()
        >>> store.tag("paper")
        >>> store["a"][0] = 7
        >>> store.flush()
        >>> store["a"][0], store.at(tag="paper")["a"][0], store.version
        (np.int64(7), np.int64(0), 3)
        """
        if (name, version, tag).count(None) != 2:
            raise InvalidError("either a version or a tag must be given")
        tag = name if tag is None else tag
        if tag is not None:
            tags = self._history.tags()
            if tag not in tags:
                raise NotFoundError(f"{self.path!r} has no tag {tag!r}; it has {', '.join(sorted(tags)) or 'none'}")
            version = tags[tag]
        number, history = check_number("version", version), self._history
        source = _at(history, lambda: history.at(number), read_only=True, options=self._source.options, pinned=True)
        if history.is_stray(source.draft.base):
            raise NotFoundError(f"version {number} of {self.path!r} is in no history: it was made in place of another")
        source.path, source.far = self._source.path, self._source.far
        return PartedStore(source, "r")

    def tag(self, name: str, version: int | None = None) -> None:
        """Give a version a name, for good: it does not expire.

        Parameters
        ----------
        name : str
            The name: letters, digits, ``.``, ``_`` and ``-``.
        version : int, optional
            The version; by default the one that is seen.

        Raises
        ------
        StoreExistsError
            Another version has this name.
        InvalidError
            It is no name.
        """
        if not isinstance(name, str) or not _TAG.fullmatch(name):
            raise InvalidError(
                "a tag must begin with a letter, digit or '_' and have letters, digits, '.', '_' and '-' of ASCII, "
                f"200 at most, not {name!r}"
            )
        number = self.version if version is None else check_number("version", version)
        if self._history.is_stray(self._history.at(number)):
            raise NotFoundError(f"version {number} of {self.path!r} is in no history: it was made in place of another")
        self._history.tag(name, number)

    def tags(self) -> dict[str, int]:
        """Return the names of versions.

        Returns
        -------
        dict
            The version of each name.
        """
        return self._history.tags()

    def diff(self, old: int, new: int) -> dict[str, Any]:
        """Compare two versions, without reading elements.

        Parameters
        ----------
        old, new : int
            The versions.

        Returns
        -------
        dict
            Names of arrays that were ``created``, ``deleted``, ``renamed`` (pairs) or ``resized`` (with both shapes),
            or whose ``attributes`` changed; and the boxes of shards that were ``written``, by array.
        """
        return changes.between(self._history, self._history.at(old), self._history.at(new), is_hidden)

    def expire_versions(self, *, keep: int = 10, older_than: Any = "1h") -> list[int]:
        """Forget old versions; :meth:`gc` deletes what only they had.

        Parameters
        ----------
        keep : int
            Number of newest versions to keep, at least 1. Those with tags stay, too, and those that are open anywhere.
        older_than : float or str
            Versions that were the newest within this time stay: seconds, or ``"90s"``, ``"10m"``, ``"1h"``, ``"7d"``.

        Returns
        -------
        list of int
            The versions that are gone.
        """
        self._source.check_writable()
        if (keep := check_number("keep", keep)) < 1:
            raise InvalidError(f"keep must be at least 1, not {keep}")
        return reclaim.expire(self._history, keep, reclaim.seconds(older_than))

    def gc(self, *, older_than: Any = "1h", jobs_older_than: Any = "7d") -> dict[str, int]:
        """Delete what no version names: leaves, parts, and what killed processes left.

        Parameters
        ----------
        older_than : float or str
            Age of files that may be deleted, by the file system's clock.
        jobs_older_than : float or str
            Age of transactions that are taken for dead: since their last fork or receipt. Their parts are deleted.

        Returns
        -------
        dict
            Numbers of deleted ``leaves`` and ``parts``, and their ``bytes``.

        Raises
        ------
        CorruptError
            A version cannot be read, so it is not known what it names: nothing was deleted.
        """
        self._source.check_writable()
        try:
            return reclaim.collect(self._history, reclaim.seconds(older_than), reclaim.seconds(jobs_older_than))
        finally:
            self._source.parts.forget()  # a deleted file that is open takes space

    def check(self, *, repair: bool = False, accept_older: bool = False) -> dict[str, Any]:
        """Verify manifests, leaves, and every checksum of the parts that versions name.

        Parameters
        ----------
        repair, accept_older : bool
            For stores of one file: sealed parts are never changed.

        Returns
        -------
        dict
            ``ok``, the ``errors`` found, and the numbers of ``versions``, ``arrays``, ``leaves``, ``parts``.
        """
        if repair or accept_older:
            self._source.refuse("repair: parts are never changed")
        return changes.check(self._history, OpenParts(self._source.files, self._source.options), is_hidden)

    def protect(
        self,
        *,
        replicas: int | None = None,
        data: int | None = None,
        parity: int | None = None,
        at: Any = (),
    ) -> dict[str, int]:
        """Protect the parts that versions name: by copies in other folders, or by parity of groups of parts.

        Parts that are protected already are left alone, so that this can be called after each commit. Each part is
        verified first. :meth:`repair` brings parts back.

        Parameters
        ----------
        replicas : int, optional
            Number of files that a part has then, itself included, at least 2.
        data : int, optional
            Number of parts that have parity together, from 2 to 8; 4 if left out and ``parity`` is given.
        parity : int, optional
            Number of parts of a group that may be lost: 1, or 2; 1 if left out and ``data`` is given.
        at : path or sequence of path
            Folders for copies, on other disks than the store's: at least ``replicas - 1`` of them, which the parts
            take in turn. For parity the folder of each; the store's own if left out.

        Returns
        -------
        dict
            Numbers of ``parts`` that are protected by this call, and of ``files`` and ``bytes`` that it wrote.

        Raises
        ------
        InvalidError
            The numbers are others, or folders are too few, or not there.
        PartError
            A part is missing or damaged.

        Examples
        --------
        >>> import os
        >>> from nandarray import parts
        >>> store = parts.create("sky.nand")
        >>> store["a"] = np.arange(1000)
        >>> store.flush()
        >>> store.protect(data=4, parity=1)["parts"]
        1
        >>> os.unlink(os.path.join("sky.nand", "parts", os.listdir("sky.nand/parts")[0]))
        >>> len(store.repair()["rebuilt"]), int(store["a"][999])
        (1, 999)
        """
        self._source.check_writable()
        in_folder(self._source.files)
        self.flush()
        folders = [os.fsdecode(one) for one in ([at] if isinstance(at, str | os.PathLike) else at)]
        parts = OpenParts(self._source.files, self._source.options)
        if (replicas is None) == (data is None and parity is None):
            raise InvalidError("protect must be given replicas, or data and parity")
        if replicas is not None:
            if (replicas := check_number("replicas", replicas)) < 2:  # noqa: PLR2004
                raise InvalidError(f"replicas must be at least 2, not {replicas}")
            return protection.copy_parts(self._history, parts, replicas, folders)
        data = 4 if data is None else check_number("data", data)
        parity = 1 if parity is None else check_number("parity", parity)
        if not 2 <= data <= DATA_MAX or parity not in (1, 2):
            raise InvalidError(f"data must be from 2 to {DATA_MAX} and parity 1 or 2, not {data} and {parity}")
        return protection.group_parts(self._history, parts, data, parity, folders)

    def repair(self, *, at: Any = (), partly: bool = False) -> dict[str, Any]:
        """Put back parts that are missing or damaged, from copies and parity; make these again where they are missing.

        Parameters
        ----------
        at : path or sequence of path
            Further folders with copies of parts.
        partly : bool
            Whether parts are put back though others cannot be.

        Returns
        -------
        dict
            The parts that were ``copied`` and ``rebuilt``, their ``bytes``, the ``files`` with copies and parity that
            were made again, and the files ``set_aside``, whose damaged content said what protects parts: after that
            :meth:`protect` protects them anew.

        Raises
        ------
        PartError
            Too much is lost: names the parts that cannot be brought back. Nothing was written, unless ``partly``.
        """
        self._source.check_writable()
        folders = [os.fsdecode(one) for one in ([at] if isinstance(at, str | os.PathLike) else at)]
        with self._source.alone():
            self._source.parts.forget()
            parts = OpenParts(self._source.files, self._source.options)
            return repair(self._history, parts, folders, partly=partly)

    def compact(self) -> dict[str, Any]:
        """Bring shards together that lie in small parts, or in parts most of whose shards no newest version has.

        The shards are copied to one new part, as a version of its own. The old parts stay until the versions that have
        them expire, and :meth:`gc` deletes them.

        Returns
        -------
        dict
            Numbers of ``parts`` that the newest version has no more, and of ``shards`` that were copied.
        """
        with self.transaction("compact") as tx:
            done = changes.bring_together(tx._source)
        return done

    # --- Changing ----------------------------------------------------------------------------------------------------

    def create(self, name: str, *given: Any, shards: int | Sequence[int] | None = None, **options: Any) -> Array:
        """Create an array: :meth:`Group.create`, with the shape of its shards.

        Parameters
        ----------
        name : str
            The full name.
        *given
            As for :meth:`Group.create`.
        shards : int or sequence of int, optional
            Shape of the unit that one process writes whole: multiples of the building block, about 256 MiB by default.
        **options
            As for :meth:`Group.create`.

        Returns
        -------
        Array
            The new array.
        """
        with self._source.sharding(None if shards is None else (shards,) if isinstance(shards, int) else shards):
            return super().create(name, *given, **options)

    def shards_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array's shards.

        Parameters
        ----------
        name : str
            The array.

        Returns
        -------
        tuple of int
            The shape of a shard; at the end of an axis they are cut.
        """
        return cast("PartSpace", self.open_array(name)._space).entry.shard

    def transaction(self, message: str = "") -> PartsTransaction:
        """Begin a transaction on the newest version; what this store has changed is committed first.

        Parameters
        ----------
        message : str
            A note for :meth:`versions`.

        Returns
        -------
        PartsTransaction
            A store of its own, and a context manager: leaving it commits, an exception gives it up.

        Examples
        --------
        >>> from nandarray import parts
        >>> store = parts.create("sky.nand")
        >>> with store.transaction("first light") as tx:
        ...     tx["a"] = np.arange(3)
        >>> store["a"][:], store.versions()[-1]["message"]
        (array([0, 1, 2]), 'first light')
        """
        self._source.check_writable()
        if self._source.fork_job is not None:
            self._source.refuse("transactions in a worker")
        if self._source.pinned:
            raise ReadOnlyError(f"version {self.version} of {self.path} is not the newest")
        self.flush()
        source = _at(self._history, self._history.newest, read_only=False, options=self._source.options)
        source.path, source.far = self._source.path, self._source.far
        return PartsTransaction(source, message, self)

    def fork(self) -> Fork:
        """Make what a worker needs to write; it can be pickled.

        Returns
        -------
        Fork
            The state of now, for other processes.
        """
        return self._forks.fork()

    def merge(self, receipts: Iterable[Receipt]) -> None:
        """Take what workers wrote.

        Parameters
        ----------
        receipts : iterable of Receipt
            Their receipts, in any order, some maybe twice.

        Raises
        ------
        InvalidError
            One of them is no receipt.
        """
        self._forks.merge(receipts)

    def collect(self, *, wait_s: float = WAIT_S) -> None:
        """Bring in what workers wrote, and end their writing; committing does so, too.

        Parameters
        ----------
        wait_s : float
            Seconds to wait for workers to seal their parts.

        Raises
        ------
        ReceiptError
            Parts are lost, or held by processes that do not answer; it has the boxes to write again.
        """
        self._forks.collect(wait_s)

    @property
    def stats(self) -> dict[str, int]:
        """Counts since opening: shards written, copied and merged, bytes copied, receipts, tries of commits."""
        return dict(vars(self._source.stats))

    def flush(self) -> None:
        """Commit what was changed, as a new version; nothing if there is nothing."""
        self._source.flush()
        if self._source.fork_job is not None:  # in a worker: the transaction commits
            self._source.flush_own()
        elif not self.read_only:
            self.collect()
            commit(self._source)

    def refresh(self) -> None:
        """See the newest version, if nothing was changed here."""
        self._source.refresh()

    def discard(self) -> None:
        """Forget what was changed and not committed."""
        self._forks.forget()
        self._source.discard()
        self._source.end_jobs(())

    def close(self) -> None:
        """Commit what was changed, and close; closing twice is fine."""
        if self.closed:
            return
        if self._source.fork_job is not None:  # in a worker: its part is sealed when the transaction commits
            self.flush()
            return
        try:
            if self._source.is_home:
                self.flush()
        finally:
            self._forks.forget()
            self._source.discard()
            if not self.read_only:
                self._source.end_jobs(())
            super().close()

    def stat(self) -> dict[str, Any]:
        """Return the use of space: files and bytes of parts, and of each array.

        Returns
        -------
        dict
            ``version``, ``versions``, ``parts``, ``bytes_file`` (of parts, on disk), and ``arrays``, by name.
        """
        found = changes.space(self._history, self.version)
        arrays = {name: self.open_array("/" + name).stat() for name in self._source.names() if not is_hidden(name)}
        return {**found, "array_count": len(arrays), "arrays": arrays}

    def __repr__(self) -> str:
        if self.closed:
            return f"<nandarray.PartedStore {self.path!r} (closed)>"
        told = f"version {self.version}{', changed' if self.changed else ''}"
        return f"<nandarray.PartedStore {self.path!r} mode={self._mode!r}, {told}, {len(self)} inside>"

    # --- Towards the engine ------------------------------------------------------------------------------------------

    @property
    def _history(self) -> History:
        return self._source.history

    @property
    def _opening(self) -> Opening | None:
        source = self._source
        again = (*source.options.items(), ("version", self.version))
        if isinstance(source.files, Files):
            return source.files.root, again
        return source.path, (*again, *source.far)

    @_opening.setter
    def _opening(self, opening: Opening | None) -> None:
        """Nothing: it is made of the version."""

    def _file_state(self) -> dict[str, Any] | None:
        return None

    def _reduced(self, space: PartSpace) -> tuple[Any, ...] | None:
        """Return how an array is opened in a process that may write to it, too; None where it may not."""
        if self.read_only:
            return None
        files, job = self._source.files, self._source.job
        fork = Fork(files.root, job, files) if self._source.fork_job else self._forks.implicit()
        return _worker_array, (fork, space.id)


def _worker_array(fork: Fork, identity: str) -> Array:
    """Open an array of a transaction in a worker."""
    store = _worker_stores.get(fork)
    source = worker_source(fork)
    if store is None or store._source is not source:
        store = _worker_stores[fork] = PartedStore(source, "r+")
        while len(_worker_stores) > _WORKER_STORES:
            _worker_stores.pop(next(iter(_worker_stores)))
    return Array(store, cast("_nandarray.Space", PartSpace(source, identity)))


_worker_stores: dict[Fork, PartedStore] = {}
_WORKER_STORES = 16


class PartsTransaction(PartedStore):
    """Changes that become one version together. What :meth:`PartedStore.transaction` gives.

    It is a store: arrays are made, written, read and deleted in it, and no other process sees that before
    :meth:`commit`.

    Parameters
    ----------
    source : PartsSource
        The version from which it begins.
    message : str
        A note for :meth:`PartedStore.versions`.
    store : PartedStore
        The store that sees the new version then.
    """

    def __init__(self, source: PartsSource, message: str, store: PartedStore) -> None:
        super().__init__(source, "r+")
        self._message, self._of = message, store

    def commit(self, message: str | None = None, *, wait_s: float = WAIT_S) -> int:
        """Make the changes the next version.

        Changes that others have committed since are kept: where they touch other shards, names and attributes than this
        transaction's, no data is read for that.

        Parameters
        ----------
        message : str, optional
            In place of the transaction's.
        wait_s : float
            Seconds to wait for workers to seal their parts.

        Returns
        -------
        int
            The version; the present one if nothing was changed.

        Raises
        ------
        ConflictError
            Another transaction has changed the same.
        ReceiptError
            Parts of workers are lost; it has the boxes to write again.
        """
        self.collect(wait_s=wait_s)
        number = commit(self._source, self._message if message is None else message)
        self._of.refresh()
        return number

    def abort(self) -> None:
        """Give the changes up, and close."""
        self._forks.forget()
        self._source.discard()
        self._source.end_jobs(())
        Store.close(self)

    def flush(self) -> None:
        """Make what was written durable; :meth:`commit` makes it a version."""
        self._source.flush_own()

    def transaction(self, message: str = "") -> PartsTransaction:
        """Refuse: a transaction has none within it.

        Parameters
        ----------
        message : str
            Not used.

        Raises
        ------
        InvalidError
            Always.
        """
        raise InvalidError("a transaction has no transactions within it")

    def __enter__(self) -> Self:
        return super().__enter__()

    def __exit__(self, kind: object = None, *_: object) -> None:
        if self.closed:
            return
        if kind is None:
            try:
                self.commit()
            except BaseException:
                self.abort()
                raise
        self.abort()

    def close(self) -> None:
        """Give up what was not committed, and close."""
        if not self.closed:
            self.abort()
