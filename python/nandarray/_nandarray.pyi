"""The native engine, as the Python layer sees it: typed commands, no ergonomics.

Every call releases the GIL while it works and may be made from many threads. Coordinates count elements. Every error is
one of :mod:`nandarray.errors`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self, final

import numpy as np

__all__ = [
    "Clock",
    "DoorMemory",
    "DoorTenant",
    "DoorTenants",
    "Far",
    "Flight",
    "Kernel",
    "NVME_MOVE_BYTES_MAX",
    "NVME_WRITE_ROWS_MAX",
    "Nvme",
    "NvmeHost",
    "NvmeServer",
    "QueueClient",
    "QueueServer",
    "Selection",
    "Session",
    "SessionJob",
    "Space",
    "Store",
    "Transaction",
    "Watch",
    "__version__",
    "accelerator_run",
    "check_name",
    "core_describe",
    "core_names",
    "core_text",
    "device_import_mqsim",
    "device_json",
    "device_keys",
    "device_preset",
    "device_presets",
    "device_toml",
    "device_units",
    "far_end",
    "far_evict",
    "far_forked",
    "dhchap_key",
    "dhchap_secret",
    "error_kinds",
    "fetch_run",
    "get",
    "get_sub_block",
    "nvme_account",
    "nvme_activate_entry",
    "nvme_completion",
    "nvme_delete_box_entry",
    "nvme_encode",
    "nvme_event_kinds",
    "nvme_execute_entry",
    "nvme_load_entry",
    "nvme_log_entry",
    "nvme_memory_entry",
    "nvme_output_entry",
    "nvme_reply_entry",
    "nvme_request_entry",
    "nvme_rules_hosts",
    "nvme_rules_keys",
    "nvme_space",
    "nvme_status_kind",
    "nvme_statuses",
    "nvme_tls_key",
    "nvme_tls_psks",
    "nvme_store_box_entry",
    "nvme_unload_entry",
    "program_disassemble",
    "program_metadata",
    "program_run_bare",
    "queue_path",
    "replay",
    "register_scheduler",
    "schedule_decisions",
    "select",
]

NVME_MOVE_BYTES_MAX: int
NVME_WRITE_ROWS_MAX: int
__version__: str

_Array = np.ndarray[Any, Any]
_Integers = Sequence[int]
# One axis of an outer (orthogonal) selection: (start, step, count) with step >= 1, or a 1-D uint64 array of indices in
# any order, repeats allowed (on a write the last one wins).
_Axis = tuple[int, int, int] | _Array

@final
class QueueServer:
    def stop(self) -> None: ...
    def counts(self) -> dict[str, int]: ...  # commands, served, dead
    def arrays(self) -> list[str]: ...
    def lost(self) -> bool: ...  # the region lost its memory
    def failed(self) -> bool: ...

@final
class QueueClient:
    @staticmethod
    def open(name: str, *, deadline_ms: int) -> QueueClient: ...
    # nsid, name, dtype, shape, bytes of an element, bytes, writable
    def arrays(self) -> list[tuple[int, str, str, list[int], int, int, bool]]: ...
    def gather(self, nsid: int, record_bytes: int, records: _Array, out: _Array) -> None: ...
    def read(self, nsid: int, first_byte: int, out: _Array) -> None: ...
    def write(self, nsid: int, first_byte: int, data: _Array) -> None: ...
    # Runs of equal size from these bytes on, whole elements, one behind the other in `data`.
    def write_runs(self, nsid: int, item_bytes: int, firsts: _Array, data: _Array) -> None: ...
    def catalog(self) -> bytes: ...
    def flush(self, nsid: int) -> None: ...

@final
class Watch:
    def __new__(cls, *, profile: bool = False, core: tuple[str, list[tuple[str, str]]] | None = None) -> Watch: ...
    def state(self) -> tuple[int, int, int]: ...  # tasks done, tasks there are, bytes read
    def stages(self) -> list[tuple[int, int]]: ...  # of each program tasks done, tasks there are
    def cancel(self) -> None: ...
    def profile(self) -> tuple[list[tuple[int, str, str, int]], list[tuple[int, int, int]]]: ...
    def timing(self) -> dict[str, Any]: ...

def program_run_bare(
    elf: bytes,
    watch: Watch,
    *,
    isa: str | None = None,
    vlen: int | None = None,
    granularity: int = 4,
    instructions: int | None = None,
) -> dict[str, Any]: ...
def core_names() -> list[str]: ...
def core_text(name: str) -> str: ...
def core_describe(text: str, changes: list[tuple[str, str]]) -> dict[str, Any]: ...
def program_disassemble(elf: bytes) -> list[tuple[int, str | None, str]]: ...  # a symbol has no bytes
def program_metadata(text: bytes, entries: list[str]) -> str: ...

@final
class Far:
    """An object far away, of which stores are opened."""

    def __new__(
        cls,
        url: str,
        bytes: int,
        fetch: Callable[[int, int], memoryview],  # the first byte, and the end
        warn: Callable[[str], None],  # told once why bytes cannot be kept in the files
        *,
        kept: _FarFiles | None = None,
        trusting: bool = True,  # uses bytes from before the machine's last start
    ) -> Far: ...
    @property
    def url(self) -> str: ...
    def prefetch(self, ranges: list[tuple[int, int]]) -> None: ...
    def give(self, bytes: memoryview) -> None: ...  # from the beginning of the object

#: Descriptors of the bytes and of the marks; whether units may be evicted while they are open; whether no other
#: process has the files open.
_FarFiles = tuple[int, int, bool, bool]

def far_evict(files: _FarFiles, size: int, bytes: int, seed: int) -> int: ...
def far_end() -> None: ...
def far_forked() -> None: ...

@final
class Store:
    @staticmethod
    def open(
        path: str,
        mode: str,  # "r" | "r+" | "a" | "w" | "x" as in h5py; "a" creates where nothing is there
        *,
        capacity: int | None = None,  # bytes; None grows by segments
        preset: str | None = None,  # geometry preset of a new store; None is "file"
        geometry: dict[str, int] | None = None,  # overrides: page_bytes, channels, banks, pages_per_block
        placement: str | None = None,  # "nds" (the paper's four rules) | "log"
        gc_policy: str | None = None,  # "greedy" | "cost-benefit" | "d-choices" | "round-robin"
        verify: str = "once",  # "once" | "always" | "never"
        io: str = "map",  # "map" | "read"
        threads: int | None = None,  # None: one a core
        write_buffer: int | None = None,  # bytes of partly filled units kept in memory
        seed: int = 0,
        salvage: bool = False,  # open a damaged store as far as it can be read
    ) -> Store: ...
    @staticmethod
    def open_modelled(
        path: str,
        mode: str,
        device: str,  # TOML
        overrides: str,  # a JSON object: values by dotted keys
        *,
        bytes: str = "file",  # "file" | "memory" | "nowhere"
        placement: str | None = None,
        gc_policy: str | None = None,
        verify: str = "once",
        write_buffer: int | None = None,
        seed: int = 0,
        trace: str | None = None,  # a .pftrace to write
    ) -> Store: ...
    def at(self, snapshot: str) -> Store: ...  # as a snapshot keeps it, for reading
    def take_snapshot(self, name: str, time: int) -> None: ...
    def delete_snapshot(self, name: str) -> None: ...
    def snapshots(self) -> list[tuple[str, int, int, int]]: ...  # name, time, arrays, bytes held; the oldest first
    @staticmethod
    def open_far(far: Far, *, verify: str = "once", threads: int | None = None) -> Store: ...
    def session(
        self,
        scheduler: str,
        workers: int,
        memory_bytes: int,
        window_bytes: int,
        accelerator: tuple[str, str] | None = None,
    ) -> Session: ...
    @property
    def clock(self) -> Clock | None: ...
    @property
    def path(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...  # flush and release; idempotent
    def panic_on_purpose(self) -> None: ...  # a broken invariant inside of a command, for tests
    def flush(self) -> None: ...
    def submit_flush(self) -> Flight: ...
    # Lets modelled time pass until the next command in flight is delivered; whether there was one.
    def drive(self) -> bool: ...
    def load_program(self, elf: bytes, metadata: bytes | None = None) -> int: ...
    def unload_program(self, program: int) -> None: ...
    def execute(self, asked: Any, watch: Watch) -> dict[str, Any]: ...
    def task_cuts(self, asked: Any) -> tuple[list[int], int] | None: ...
    def nvme(self) -> Nvme: ...
    def serve_queues(
        self,
        name: str,
        *,
        queues: int,
        depth: int,
        data_bytes: int,
        threads: int,
        writable: bool,
        group: int | None = None,  # the number of a group whose members may be clients
        catalog: bytes | None = None,  # for clients, as it is
    ) -> QueueServer: ...
    # "own", "kept" or "new"; what a copy of a served file gives up, in 16 bytes
    def choose_identity(self, choice: str) -> bytes | None: ...
    def file_state(self) -> dict[str, Any] | None: ...  # uid, gid, mode, names, at_path
    def refresh(self) -> None: ...  # a read-only store: see what the writer has committed since
    def create(
        self,
        name: str,
        shape: _Integers,
        itemsize: int,
        dtype: str,  # opaque to the engine: what dtypes.encode gives
        *,
        building_block: _Integers | None = None,
        compression: str | None = None,  # "lz4", "zstd", "zstd:7", with "+shuffle" or "+bitshuffle" behind
        encryption_key: bytes | None = None,  # 32 bytes
        fill: bytes | None = None,  # itemsize bytes; None is zeroes
        attrs: str = "{}",  # opaque to the engine: JSON
    ) -> Space: ...
    def open_space(self, name: str, *, encryption_key: bytes | None = None) -> Space: ...
    def delete(self, name: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    # Deletes, renames, then sets attributes by name: all as one command.
    def together(
        self,
        *,
        delete: Sequence[str] = ...,
        rename: Sequence[tuple[str, str]] = ...,
        attrs: Sequence[tuple[str, str]] = ...,
    ) -> None: ...
    def __contains__(self, name: str, /) -> bool: ...
    def names(self, prefix: str = "") -> list[str]: ...  # sorted, of arrays only
    def describe(self, name: str) -> dict[str, Any]: ...  # what a Space tells, without a key
    def stat(self) -> dict[str, Any]: ...
    def stat_arrays(self) -> dict[str, dict[str, Any]]: ...
    @property
    def dropped(self) -> dict[str, Any] | None: ...  # journal records that opening left out
    def check(
        self, *, repair: bool = False, accept_older: bool = False
    ) -> dict[str, Any]: ...  # {"ok", "errors": [...], "repaired": [...], "dropped", counts}
    def compact(self) -> dict[str, Any]: ...
    def geometry(self) -> dict[str, Any]: ...

# Writes to several spaces, made as one by `apply`. It holds the spaces against all other writes from the beginning on, also
# against those of its own thread, which would wait for ever. Dropped, it is given up.
@final
class Transaction:
    # Each space once, with the shape that it will have, nowhere smaller.
    def __new__(cls, store: Store, spaces: Sequence[tuple[Space, _Integers]]) -> Transaction: ...
    # Seen by nobody before `apply`. From many threads, if need be.
    def write(self, space: Space, src: _Array, start: _Integers) -> None: ...
    # All of it, then deletes, renames, and sets attributes by name. It is over then, also if this fails.
    def apply(
        self,
        *,
        delete: Sequence[str] = ...,
        rename: Sequence[tuple[str, str]] = ...,
        attrs: Sequence[tuple[str, str]] = ...,
    ) -> None: ...
    def abort(self) -> None: ...  # leaves everything as it was

# A loaded kernel, and sections of sample data: shape and bytes.
@final
class Kernel:
    def __new__(cls, elf: bytes, table: bytes) -> Kernel: ...
    def check(self, sections: list[tuple[list[int], _Array]], scalars: list[int], screens: int) -> list[str]: ...
    # Cycles, instructions and bytes of memory of each microblock.
    def cost(
        self, sections: list[tuple[list[int], _Array]], scalars: list[int], core: str
    ) -> list[tuple[float, int, int]]: ...

# A kernel of a session.
@final
class SessionJob:
    @property
    def number(self) -> int: ...
    def done(self) -> bool: ...
    def progress(self) -> tuple[int, int]: ...  # screens done, microblocks
    def take(self) -> list[_Array | None] | None: ...  # once; raises its error

@final
class Session:
    @staticmethod
    def schedulers() -> list[str]: ...
    def submit(self, request: object) -> SessionJob: ...
    def wait(self, job: SessionJob, seconds: float | None = None) -> bool: ...
    def cancel(self, job: SessionJob) -> bool: ...
    def state(self, job: SessionJob) -> tuple[str, int | None] | None: ...
    def begin_close(self, *, cancel: bool = False) -> None: ...
    def wait_closed(self, seconds: float) -> list[tuple[int, str, bool]]: ...
    def abandon(self) -> None: ...
    def report(self) -> str | None: ...  # on a modelled accelerator, in JSON

def register_scheduler(name: str, maker: object) -> None: ...
def accelerator_run(platform: str, scheduler: str, kernels: str) -> str: ...  # all in JSON
def fetch_run(
    devices: list[str],
    platform: str,
    rows: np.ndarray[Any, np.dtype[np.uint32]],
    addresses: np.ndarray[Any, np.dtype[np.uint64]],
    bytes: np.ndarray[Any, np.dtype[np.uint32]],
    seed: int,
) -> str: ...  # a report in JSON
def schedule_decisions(scheduler: str, kernels: int, decisions: int) -> int: ...

# A command in flight on a modelled device.
@final
class Flight:
    def done(self) -> bool: ...
    # Lets modelled time pass until its result is known; raises its error.
    def wait(self) -> None: ...
    def cancel(self) -> bool: ...

@final
class Space:
    # The same space, whose reads and writes are submitted instead of executed, and what was submitted.
    def in_flight(self) -> Space: ...
    def take_flights(self) -> list[Flight]: ...
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def building_block(self) -> tuple[int, ...]: ...
    @property
    def compression(self) -> str | None: ...
    @property
    def encrypted(self) -> bool: ...
    @property
    def fill(self) -> bytes: ...
    @property
    def attrs(self) -> str: ...
    def set_attrs(self, attrs: str) -> None: ...
    def resize(self, shape: _Integers) -> None: ...
    # Grows one axis and writes src to the new part, as one command; gives the shape then.
    def append(self, src: _Array, axis: int) -> tuple[int, ...]: ...
    # The box start + step * [0, out.shape) of the space, or of the view of it with shape `view`. `out` is a NumPy array
    # of this itemsize with as many dimensions as the space (or the view) and any strides; the engine looks at bytes only.
    def read(
        self,
        out: _Array,
        start: _Integers,
        step: _Integers | None = None,
        view: _Integers | None = None,
    ) -> None: ...
    # src may have zero strides (np.broadcast_to).
    def write(
        self,
        src: _Array,
        start: _Integers,
        step: _Integers | None = None,
        view: _Integers | None = None,
    ) -> None: ...
    # Boxes of one size: starts is uint64 [boxes, ndim], C order; out/src has the boxes as its first dimension. Along every
    # axis a box has one element, or all start at the same place. Of boxes written twice the last counts.
    def read_boxes(self, out: _Array, starts: _Array, step: _Integers, view: _Integers | None = None) -> None: ...
    def write_boxes(self, src: _Array, starts: _Array, step: _Integers, view: _Integers | None = None) -> None: ...
    def read_outer(self, out: _Array, axes: Sequence[_Axis]) -> None: ...
    def write_outer(self, src: _Array, axes: Sequence[_Axis]) -> None: ...
    # coords: uint64 [points, ndim], C order; out/src: 1-D, contiguous.
    def read_points(self, out: _Array, coords: _Array) -> None: ...
    def write_points(self, src: _Array, coords: _Array) -> None: ...
    # Calls `work` once all commands so far have ended: at once.
    @staticmethod
    def after(work: Callable[[], None]) -> None: ...
    # Give the box back: it reads as the fill value, and building blocks wholly inside take no space.
    def deallocate(self, start: _Integers, count: _Integers) -> None: ...
    # Coordinates of the building blocks that have content, counted in blocks, ascending, all in one row; a scalar has one
    # dimension here. All others read as the fill value.
    def blocks(self) -> np.ndarray[Any, np.dtype[np.uint64]]: ...
    # Copies building blocks (uint64 [blocks, ndim]) from a space of the same elements, block, compression and fill value
    # as they are stored; tells for each whether it was: one in a write buffer, or without content, is not.
    def copy_stored(self, source: Space, blocks: _Array) -> list[bool]: ...
    def stat(self) -> dict[str, Any]: ...  # blocks, blocks_allocated, pages_live, bytes_stored, ...

# The elements that an index expression names, compared with a shape: a box (runs alone), an outer selection (runs, and index
# arrays each along its own axis), or points (index arrays that walk together) times a box.
@final
class Selection:
    @property
    def shape(self) -> tuple[int, ...]: ...  # of the result
    @property
    def scalar(self) -> bool: ...  # whether NumPy gives a scalar rather than an array without dimensions
    @property
    def is_box(self) -> bool: ...
    # One entry for each axis; 0, 1 and the number of indices where it has no run.
    @property
    def start(self) -> tuple[int, ...]: ...
    @property
    def step(self) -> tuple[int, ...]: ...
    @property
    def lengths(self) -> tuple[int, ...]: ...
    # For each dimension of the result its axis; None where it comes of no axis.
    @property
    def kept(self) -> tuple[int | None, ...]: ...
    # For each axis its run (start, step, count); uint64 indices, flat, but for points in the shape that is stretched to
    # `points`; or None where the mask has them.
    @property
    def axes(self) -> tuple[Any, ...]: ...
    @property
    def points(self) -> tuple[int, ...] | None: ...  # the shape over which index arrays walk together
    @property
    def mask(self) -> _Array | None: ...  # stands for all index arrays, which would be larger
    # The shape in which native commands see the elements: points first, if any, then a length for each axis that has no
    # points; whether each of these dimensions is reversed in the result (empty: none is); and the order of the result's
    # dimensions that, reshaped to `counts`, is native.
    @property
    def counts(self) -> tuple[int, ...]: ...
    @property
    def reverse(self) -> tuple[bool, ...]: ...
    @property
    def permutation(self) -> tuple[int, ...]: ...

# Reads an index expression by NumPy's rules; mode says how index arrays combine: "numpy", "outer" (each along its own axis),
# or "pointwise" (all together, in front). Without `outer`, index arrays become points.
def select(key: object, shape: tuple[int, ...], mode: str = "numpy", *, outer: bool = True) -> Selection: ...

# Reads a selection of an array, or of the view of it, whose dtype is plain: into `out`, which is returned, or into a new array
# or scalar. None for what `select` and the commands of a space are to do: other dtypes, large results, masks, index arrays of a
# view, other memory. A wrong expression raises as in `select`.
def get(
    space: object,
    key: object,
    dtype: np.dtype[Any],
    out: object = None,
    view: tuple[int, ...] | None = None,
    mode: str = "numpy",
) -> Any: ...
def get_sub_block(
    space: object,
    view: tuple[int, ...],
    coordinate: object,
    sub_shape: object,
    dtype: np.dtype[Any],
    out: object = None,
) -> Any: ...
def error_kinds() -> list[str]: ...
def check_name(name: str, *, chosen: bool) -> None: ...  # the rule of new names

# The modelled clock of a store; times in modelled seconds.
@final
class Clock:
    @property
    def now_s(self) -> float: ...
    @property
    def mount_s(self) -> float: ...
    def think(self, seconds: float) -> None: ...
    def arrive_after(self, seconds: float) -> None: ...
    def batch(self) -> None: ...  # commands from now on are timed together
    def end_batch(
        self, depth: int
    ) -> list[tuple[str, int, float, float, bool]]: ...  # kind, bytes, submitted, done, failed
    def settle(self) -> None: ...
    def report(self) -> tuple[str, str]: ...  # JSON, table

# A status is the 15 bits of a completion entry's status field: SC, SCT from bit 8, DNR in bit 14.
@final
class Nvme:
    # entry: 64 bytes; data: uint8, 1-D, contiguous; page: the coordinates of an N-D command. Gives the 16-byte completion.
    def submit(
        self,
        entry: bytes,
        data: _Array | None = None,
        *,
        to_host: bool = False,  # which way data goes
        page: bytes | None = None,
    ) -> bytes: ...
    def create_namespace(
        self,
        nsid: int,
        nsze: int,
        lba_bytes: int,
        *,
        compression: str | None = None,
        encryption_key: bytes | None = None,
    ) -> int: ...
    def delete_namespace(self, nsid: int) -> int: ...
    def identify(self, cns: int, nsid: int) -> tuple[int, bytes]: ...

@final
class NvmeServer:
    @staticmethod
    def start(
        store: Store,
        listen: list[str],  # HOST:PORT, unix:PATH
        *,
        nqn: str | None = None,
        insecure: bool = False,
        read_only: bool = False,
        programs: bool = True,
        hosts: list[str] | None = None,
        secrets: dict[str, tuple[str, str | None]] | None = None,
        kill_safe: bool = True,
        pace: bool = False,
        nd: bool = True,
        advertise: tuple[str, int | None] | None = None,
        access: tuple[int | None, int | None, bool] | None = None,  # of unix sockets: owner, group, all others
        rules: tuple[str, str] | None = None,  # a TOML text, and its name in errors
        tls: dict[str, str] | None = None,
        fallback: list[int] = ...,  # of the places, by their numbers
    ) -> NvmeServer: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def nqn(self) -> str: ...
    def status(self) -> dict[str, Any]: ...
    def reload(
        self,
        *,
        hosts: list[str],
        secrets: dict[str, tuple[str, str | None]],
        rules: tuple[str, str] | None,
        tls: dict[str, str] | None = None,
    ) -> list[str]: ...  # names of hosts whose connections it has ended
    # operations: tenant, kind, failed, bytes from and to hosts, sum of durations in ns, commands by bucket; bounds_ns;
    # failures by the name of their status
    def operations(self) -> dict[str, Any]: ...
    def kill(self, run: int) -> bool: ...  # whether it runs
    # What happened since the last call, which the first one begins: kind, seconds since 1970, fields.
    def events(self, seconds: float) -> list[tuple[str, float, dict[str, Any]]]: ...
    def stop(self) -> None: ...

# Tenants of a node for a door that is not NVMe's; rules are their text and its name in errors.
@final
class DoorTenants:
    def __new__(cls, rules: tuple[str, str] | None) -> Self: ...
    def admit(self, hostnqn: str, peer: str | None) -> DoorTenant | None: ...
    def is_host_of(self, hostnqn: str, tenant: DoorTenant) -> bool: ...
    def replace(self, rules: tuple[str, str] | None) -> None: ...
    def memory(self) -> tuple[int, int]: ...
    def in_use(self) -> list[tuple[str, int, int]]: ...

@final
class DoorTenant:
    @property
    def name(self) -> str: ...
    def reads(self, array: str) -> bool: ...
    def writes(self, array: str) -> bool: ...
    def limits(self) -> dict[str, Any]: ...
    def pace(self, now: float, bytes: int) -> float: ...
    def reserve(self, bytes: int) -> DoorMemory | None: ...

@final
class DoorMemory:
    def give_back(self) -> None: ...

@final
class NvmeHost:
    @staticmethod
    def connect(
        address: str,
        nqn: str,
        *,
        hostnqn: str | None = None,
        secrets: tuple[str, str | None] | None = None,
        header_digest: bool = False,
        data_digest: bool = False,
        tls: str | None = None,
    ) -> NvmeHost: ...
    def close(self) -> None: ...
    def wire_bytes(self) -> tuple[int, int]: ...  # sent and received
    def call_fetching(self, entry: bytes, data: bytes, fetch: bytes, take: Callable[[int, bytes], object]) -> bytes: ...
    def peer(self) -> tuple[int, int] | None: ...  # user and process that serve, over a unix socket
    # The 16-byte completion, and the controller's data.
    def call(
        self, entry: bytes, data: bytes | None = None, room: int = 0, *, admin: bool = False
    ) -> tuple[bytes, bytes]: ...
    # Entry, data and room of each; completion and data of each. `depth` of them are in flight at a time.
    def call_many(self, calls: list[tuple[bytes, bytes | None, int]], depth: int) -> list[tuple[bytes, bytes]]: ...
    def read_many(self, entries: list[bytes], bytes: int, depth: int) -> int: ...
    def write_many(self, entries: list[bytes], data: bytes, depth: int) -> None: ...

def dhchap_secret(hash: int, key: bytes) -> str: ...
def dhchap_key(nqn: str, text: str) -> bytes: ...  # as the host of this name uses the secret
def nvme_tls_key(key: bytes, *, transformed: bool) -> str: ...
def nvme_tls_psks(key: str, hostnqn: str, subnqn: str) -> list[tuple[str, bytes]]: ...  # identities, pre-shared keys
def nvme_rules_hosts(text: str, name: str) -> list[str]: ...

# Name, range and meaning of each key: those of the node, those of a tenant.
def nvme_rules_keys() -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]: ...
def queue_path(name: str) -> str: ...  # of the region of this name
def nvme_statuses() -> list[tuple[int, str]]: ...

# A command of nandarray.nvme.commands as its 64-byte entry; its data, if that is a part of it; its page of coordinates.
def nvme_encode(command: object, cid: int = 0) -> tuple[bytes, bytes | None, bytes | None]: ...
def nvme_completion(entry: bytes) -> tuple[int, int, int]: ...  # status bits, dw0, dw1
def nvme_status_kind(status: int) -> str: ...  # of BY_KIND
def nvme_request_entry(
    tag: int, size: int, offset: int, changes: bool, programs: bool, fetches: bool = False
) -> bytes: ...
def nvme_output_entry(tag: int) -> bytes: ...
def nvme_reply_entry(handle: int, offset: int) -> bytes: ...
def nvme_log_entry(lid: int, size: int, offset: int = 0, tag: int = 0) -> bytes: ...
def nvme_load_entry(slot: int, size: int, program_id: int, part_bytes: int, offset: int) -> bytes: ...
def nvme_unload_entry(slot: int) -> bytes: ...
def nvme_event_kinds() -> list[str]: ...
def nvme_activate_entry(slot: int, active: bool) -> bytes: ...
def nvme_execute_entry(
    slot: int, ranges: list[tuple[int, int, int]], scalars: list[int], tag: int
) -> tuple[bytes, bytes]: ...  # ranges: namespace, first byte or handle, bytes; the entry and its data
def nvme_memory_entry(writes: bool, first: int, size: int) -> bytes: ...
def nvme_store_box_entry(dsid: int, ndim: int) -> bytes: ...
def nvme_delete_box_entry(handle: int) -> bytes: ...
def nvme_account(text: str) -> tuple[list[int], int] | None: ...  # bytes of outputs, instructions
def nvme_space(page: bytes | bytearray) -> dict[str, Any]: ...  # what space information gave

# Device descriptions: a TOML text and what is changed of it, a JSON object from dotted keys to values.
def device_presets() -> list[str]: ...
def device_preset(name: str) -> str: ...  # its TOML, as it is written
def device_keys() -> str: ...  # JSON: [{"key", "meaning", "allowed", "bound", "number"}]
def device_json(toml: str, overrides: str) -> str: ...  # name, summary, bases, values, resolved, effective
def device_toml(toml: str, overrides: str) -> str: ...  # all of it as one text that needs no other
def device_units() -> list[tuple[str, list[tuple[str, float]]]]: ...
def device_import_mqsim(xml: str, name: str) -> str: ...  # JSON: {"toml", "notes": [{"key", "value", "what"}]}

# A workload on a described device; settings and the report are JSON, as on the page docs/reference/replay-report.md.
# progress(phase, share, requests, bytes, modelled seconds): phase is "preconditioning" or "replaying".
def replay(
    toml: str, settings: str, progress: Callable[[str, float | None, int, int, float], object] | None = None
) -> str: ...
