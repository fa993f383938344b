"""A drive as a store: connecting, commands of the drive, programs in its slots (command sets 3 and 4).

``nandarray.open("nvme+tcp://HOST:PORT/NQN")`` or ``"nvme+unix:///PATH"`` gives a :class:`RemoteStore`, by an initiator;
``"/dev/nvmeX"`` gives one of a drive that this machine's kernel is connected to. Arrays and what is done with them are
those of every store (:mod:`nandarray.array`), by way of :mod:`nandarray.nvme.source`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from nandarray import _nandarray
from nandarray.array.array import Array
from nandarray.array.store import Store
from nandarray.array.view import View
from nandarray.errors import DoorError, InvalidError, NandarrayError, NotFoundError
from nandarray.index.shapes import check_number
from nandarray.nvme.commands import ALL, CloseSpace, Command, Completion, CreateSpace, memory_of
from nandarray.nvme.kernel import KernelDrive
from nandarray.nvme.names import check_nqn, own_nqn
from nandarray.nvme.namespaces import BlockNamespaces
from nandarray.nvme.places import has_tls, parse_url
from nandarray.nvme.source import ND, TRANSFER, DriveSource, DriveSpace

if TYPE_CHECKING:
    from nandarray.array.pickling import Opening
    from nandarray.array.store import Mode

__all__ = ["RemoteProgram", "RemoteStore", "connect"]

_WRONG_PARAMETERS = "Connect Invalid Parameters"
_MEMORY = 1022
_ACCOUNTS, _ACCOUNT_BYTES = 0xC1, 4096
_PART = 64 << 10
_PROGRAM_DATA = 0x18E
_SLOTS = 64
_INVALID_FIELD, _INVALID_NAMESPACE = 0x002, 0x00B
_LBA_BYTES = {1 << bits for bits in range(9, 17)}
# Tags of accounts: those of executions go up to that of loads, which a host gives to none.
_LOAD_TAG = 0xFFFF


def connect(
    url: str | os.PathLike[str],
    *,
    hostnqn: str | None = None,
    secret: str | None = None,
    controller_secret: str | None = None,
    digests: bool = False,
    mode: Mode = "r+",
    tls: str | None = None,
) -> RemoteStore:
    """Connect to a drive.

    Parameters
    ----------
    url : str or path
        ``nvme+tcp://HOST:PORT/NQN``; ``nvme+tls://HOST:PORT/NQN``, with TLS 1.3; ``nvme+unix:///PATH``, a unix socket
        of this machine, with ``/NQN`` behind it where the name is to be checked, as a secret needs; or
        ``/dev/nvmeX``, the controller's device of a drive that this machine's kernel is connected to, whose host and
        secrets are the kernel's.
    hostnqn : str, optional
        Qualified name of this host; one of this machine's user by default.
    secret : str, optional
        Secret by which this host proves its identity, if the drive asks for that.
    controller_secret : str, optional
        Secret by which the drive has to prove its own identity.
    digests : bool
        Whether headers and data have CRC32C digests.
    mode : {"r+", "r"}
        Whether the store may be changed from here.
    tls : str, optional
        Key of TLS, which this host and the drive have (:func:`nandarray.nvme.new_tls_key`): for ``nvme+tls://`` alone.

    Returns
    -------
    RemoteStore
        The store behind it.

    Raises
    ------
    InvalidError
        The URL is no URL of a drive, the drive cannot be reached or refuses, or one of the two sides does not know its
        secret; there is no key of TLS, another one than the drive has, or a drive without TLS.
    """
    url = os.fspath(url)
    if url.startswith("/dev/"):
        if digests or tls is not None or not (hostnqn is secret is controller_secret is None):
            raise InvalidError(f"{url}: the kernel has chosen host, secrets and digests when it connected")
        return RemoteStore(KernelDrive(url), url, mode, (url, ()))
    address, nqn = parse_url(url)
    if has_tls(url) and tls is None:
        raise InvalidError(f"a key of TLS must be given for {url}: nandarray.nvme.connect(url, tls=KEY), or --tls FILE")
    if tls is not None and not has_tls(url):
        raise InvalidError(f"a URL with a key of TLS must begin with nvme+tls://, and {url} does not")
    for what, text in ("tls", tls), ("secret", secret), ("controller_secret", controller_secret):
        if not isinstance(text, str | None):
            raise InvalidError(f"{what} must be a text, not {type(text).__name__}")
    if secret is None and controller_secret is not None:
        raise InvalidError("beside a controller's secret the host's must be given, too")
    if nqn:
        check_nqn(nqn, "the subsystem")
    elif secret is not None:
        raise InvalidError(f"a URL with a secret must have the name of the drive: {url}/NQN")
    if hostnqn is not None:
        check_nqn(hostnqn, "this host")

    def link() -> _nandarray.NvmeHost:
        return _nandarray.NvmeHost.connect(
            address,
            nqn,
            hostnqn=hostnqn or own_nqn(),
            secrets=None if secret is None else (secret, controller_secret),
            header_digest=digests,
            data_digest=digests,
            tls=tls,
        )

    try:
        native = link()
    except InvalidError as error:
        if _WRONG_PARAMETERS in str(error):  # of those of Connect, the name alone is the caller's
            raise InvalidError(f"no subsystem there has the name {nqn!r}: {error}") from error
        raise
    shown = {"hostnqn": hostnqn, "digests": digests or None}
    # A pickle has no secret and no key: another process connects with its own.
    opening = (
        None
        if secret is not None or tls is not None
        else (url, tuple((key, value) for key, value in shown.items() if value))
    )
    return RemoteStore(native, url, mode, opening, link)


class RemoteStore(BlockNamespaces, Store):
    """A store behind NVMe/TCP. What :func:`nandarray.open` gives for a URL of a drive.

    It is a :class:`nandarray.Store`: arrays, views, groups and programs are those of a store here. Its own are
    commands of the drive, for programs in its slots and for hosts that speak NVMe themselves.

    Parameters
    ----------
    native : NvmeHost or KernelDrive
        The connection.
    url : str
        Address of the drive.
    mode : {"r+", "r"}
        Whether the store may be changed from here.
    opening : tuple, optional
        Arguments to open it again in another process, without secrets.
    again : callable, optional
        Connects once more.
    """

    def __init__(
        self,
        native: _nandarray.NvmeHost | KernelDrive,
        url: str,
        mode: Mode = "r+",
        opening: Opening | None = None,
        again: Callable[[], _nandarray.NvmeHost] | None = None,
    ) -> None:
        self._source = DriveSource(native, url, read_only=mode == "r", again=again)
        super().__init__(cast("_nandarray.Store", self._source), mode, opening)
        # Tags of executions. The first one is random: processes may share one controller of the kernel.
        self._tags = itertools.count(int.from_bytes(os.urandom(2), "little"))

    @property
    def url(self) -> str:
        """Address of the drive."""
        return self._source.path

    def call(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[Completion, bytes]:
        """Execute a command that is given as bytes.

        Parameters
        ----------
        entry : bytes
            The 64-byte submission entry, without identifier and data pointer.
        data : bytes, optional
            Data for the controller.
        room : int
            Bytes of the controller's data.
        admin : bool
            Whether it goes to the admin queue.

        Returns
        -------
        tuple of Completion and bytes
            Completion of the command, and the controller's data.
        """
        if not isinstance(entry, bytes) or not isinstance(data, bytes | None):
            raise InvalidError(f"entry and data must be bytes, not {type(entry).__name__} and {type(data).__name__}")
        if not isinstance(admin, bool):
            raise InvalidError(f"admin must be True or False, not {admin!r}")
        room = check_number("room", room, most=2**32 - 1)
        done, found = self._source.connection.call(entry, data, room, admin=admin)
        return Completion.decode(done), found

    def _done(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[Completion, bytes]:
        return self._source.done(entry, data, room, admin=admin)

    def submit(self, command: Command, data: Any = None) -> Completion:
        """Execute a command of :mod:`nandarray.nvme`, as :meth:`nandarray.nvme.Controller.submit` does.

        Parameters
        ----------
        command : Command
            The command; N-D commands go to the drive's N-D namespace.
        data : buffer, optional
            Contiguous memory to read into or to write from.

        Returns
        -------
        Completion
            Completion of the command.
        """
        return self._source.submit(command, data)

    def _create_namespace(
        self, nsid: int, nsze: int, lba_bytes: int, compression: str | None, encryption_key: bytes | None
    ) -> Completion:
        if compression is not None or encryption_key is not None:
            raise DoorError("a drive's namespaces are compressed and encrypted where the store's file is")
        nsid, nsze, lba_bytes = (
            check_number(what, given) for what, given in (("nsid", nsid), ("nsze", nsze), ("lba_bytes", lba_bytes))
        )
        self._source.check_writable()
        if not 0 < nsid < ALL or not nsze or lba_bytes not in _LBA_BYTES:
            return Completion(_INVALID_FIELD, dnr=True)
        done = self.submit(CreateSpace(_namespace(nsid), (nsze,), lba_bytes, f"|V{lba_bytes}"))
        if done.ok:
            self.submit(CloseSpace(done.dw0))
        return done

    def _delete_namespace(self, nsid: int) -> Completion:
        name = _namespace(check_number("nsid", nsid))
        self._source.check_writable()
        try:
            told = self._source.describe(name)
            if len(told["shape"]) != 1 or told["itemsize"] not in _LBA_BYTES:
                return Completion(_INVALID_NAMESPACE, dnr=True)
            self._source.delete(name)
        except NotFoundError:
            return Completion(_INVALID_NAMESPACE, dnr=True)
        return Completion(0)

    def load(self, elf: bytes, *, index: int = 1, program_id: int = 0) -> RemoteProgram:
        """Load a program in parts and activate it.

        Parameters
        ----------
        elf : bytes
            A RISC-V ELF of the program ABI, as :attr:`nandarray.Program.elf` has it.
        index : int
            The slot, from 1 to 64.
        program_id : int
            An identifier of the caller's.

        Returns
        -------
        RemoteProgram
            The active program.

        Raises
        ------
        NandarrayError
            The drive refuses it; the message has the drive's reason.
        """
        if not isinstance(elf, bytes):
            raise InvalidError(f"elf must be the bytes of a program, not {type(elf).__name__}")
        _check_slot(index)
        program_id = check_number("program_id", program_id)
        program = RemoteProgram(self, index)
        for offset in range(0, len(elf), _PART):
            part = elf[offset : offset + _PART]
            entry = _nandarray.nvme_load_entry(index, len(elf), program_id, len(part), offset)
            done, _ = self.call(entry, part, admin=True)
            if not done.ok:
                why = program._why(_LOAD_TAG) if done.status == _PROGRAM_DATA else ""
                raise NandarrayError(f"the drive: {done}{why}")
        program.activate()
        return program

    def memory_write(self, first: int, data: bytes) -> None:
        """Write to Subsystem Local Memory.

        Parameters
        ----------
        first : int
            First byte, a multiple of 4.
        data : bytes
            The data; zeroes fill it to a multiple of 4.
        """
        first, data = check_number("first", first), memory_of(data, write=False).tobytes()
        data += bytes(-len(data) % 4)
        for at in range(0, len(data), TRANSFER):
            part = data[at : at + TRANSFER]
            self._done(_nandarray.nvme_memory_entry(True, first + at, len(part)), part)  # noqa: FBT003 (it writes)

    def memory_read(self, first: int, size: int) -> bytes:
        """Read from Subsystem Local Memory.

        Parameters
        ----------
        first : int
            First byte, a multiple of 4.
        size : int
            Bytes.

        Returns
        -------
        bytes
            The memory's content.
        """
        first, size = check_number("first", first), check_number("size", size)
        found = bytearray()
        whole = size + -size % 4
        for at in range(0, whole, TRANSFER):
            part = min(TRANSFER, whole - at)
            entry = _nandarray.nvme_memory_entry(False, first + at, part)  # noqa: FBT003 (it reads)
            found += self._done(entry, None, part)[1]
        return bytes(found[:size])

    @contextlib.contextmanager
    def _freed(self, handles: list[int]) -> Iterator[None]:
        """Give boxes back at the end; an error of what is done with them counts before one of that."""
        try:
            yield
        except BaseException:
            for handle in handles:
                with contextlib.suppress(NandarrayError):
                    self._done(_nandarray.nvme_delete_box_entry(handle))
            raise
        for handle in handles:
            self._done(_nandarray.nvme_delete_box_entry(handle))


class RemoteProgram:
    """A program in a slot of a drive.

    Parameters
    ----------
    store : RemoteStore
        Its store.
    index : int
        Its slot.
    """

    def __init__(self, store: RemoteStore, index: int) -> None:
        _check_slot(index)
        self._store, self.index = store, index

    def activate(self) -> None:
        """Make it ready to run."""
        self._store._done(_nandarray.nvme_activate_entry(self.index, active=True), admin=True)

    def unload(self) -> None:
        """Deactivate it and free its slot."""
        self._store._done(_nandarray.nvme_activate_entry(self.index, active=False), admin=True)
        self._store._done(_nandarray.nvme_unload_entry(self.index), admin=True)

    def execute(
        self, *inputs: Any, scalars: Sequence[int] = (), room: int = 1 << 20, outputs: int = 1, memory: int = 0
    ) -> list[bytes]:
        """Run the program beside the data.

        Parameters
        ----------
        *inputs : Array, View or bytes
            An array of the drive is streamed where it lies; bytes are put into Subsystem Local Memory first.
        scalars : sequence of int
            Bit patterns of the program's scalars. Those at the end that are left out have their defaults; one without a
            default must be given.
        room : int
            Bytes for each output.
        outputs : int
            Outputs of the program.
        memory : int
            First byte of Subsystem Local Memory for inputs that are bytes, and for outputs; a multiple of 4. All hosts
            of a tenant share that memory: those that execute at once agree on places.

        Returns
        -------
        list of bytes
            The outputs.
        """
        at = memory
        ranges: list[tuple[int, int, int]] = []
        handles: list[int] = []
        room += -room % 4
        if not 0 < room < 1 << 32:
            raise InvalidError(f"room must be from 1 to {(1 << 32) - 4} bytes for each output, not {room}")
        with self._store._freed(handles):
            for one in inputs:
                if isinstance(one, Array | View):
                    handles.append(self._box(one))
                    ranges.append((ND, handles[-1], 0))
                else:
                    raw = memory_of(one, write=False).tobytes()
                    self._store.memory_write(at, raw)
                    ranges.append((_MEMORY, at, len(raw)))
                    at += len(raw) + -len(raw) % 4
            places = [at + i * room for i in range(outputs)]
            ranges += [(_MEMORY, place, room) for place in places]
            tag = next(self._store._tags) % (_LOAD_TAG - 1) + 1
            bits = [scalar & (2**64 - 1) for scalar in scalars]
            done, _ = self._store.call(*_nandarray.nvme_execute_entry(self.index, ranges, bits, tag))
            if not done.ok:
                raise NandarrayError(f"the drive: {done}{self._why(tag)}")
            sizes = self._sizes(done, outputs, tag)
        if any(size > room for size in sizes):
            raise NandarrayError(f"the drive: outputs of {sizes} bytes, where each has room for {room}")
        return [self._store.memory_read(place, size) for place, size in zip(places, sizes, strict=True)]

    def _box(self, whole: Array | View) -> int:
        """Store the box of a whole array, or of a view of one, in the drive; return its handle."""
        origin = whole._origin()
        space = origin.array._space
        if not isinstance(space, DriveSpace) or space.source is not self._store._source:
            raise InvalidError(f"array {origin.array.name!r} is not of the drive that runs the program")
        return space.box([0] * whole.ndim, whole.shape, origin.view)

    def _sizes(self, done: Completion, outputs: int, tag: int) -> list[int]:
        """Return the bytes of each output of the execution with a tag."""
        # The account is an admin command, which a kernel may refuse to this user.
        if outputs == 1:
            return [done.dw0 | done.dw1 << 32]
        told = self._account(tag)
        account = _nandarray.nvme_account(told)
        if account is None or len(account[0]) != outputs:
            raise NandarrayError(f"the drive: an account without the bytes of {outputs} outputs: {told[:80]!r}")
        return account[0]

    def _account(self, tag: int) -> str:
        """Return the drive's account of the execution with a tag, or of the load that failed last."""
        entry = _nandarray.nvme_log_entry(_ACCOUNTS, _ACCOUNT_BYTES, tag=tag)
        page = self._store._done(entry, None, _ACCOUNT_BYTES, admin=True)[1]
        return page.rstrip(b"\0").decode(errors="replace")

    def _why(self, tag: int) -> str:
        """Return the drive's reason for a failure, to be put behind its status; nothing if it is not to be had."""
        # An admin command, which a kernel may refuse to this user.
        with contextlib.suppress(NandarrayError):
            if told := self._account(tag):
                return f": {told}"
        return ""


def _namespace(nsid: int) -> str:
    """Return the name of the array that is a block namespace."""
    return f"ns/{nsid}"


def _check_slot(index: int) -> None:
    if not 1 <= check_number("slot", index) <= _SLOTS:
        raise InvalidError(f"a slot must be from 1 to {_SLOTS}, not {index}")
