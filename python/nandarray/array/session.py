"""Sessions: many kernels at once beside one store, ordered by a scheduler.

:meth:`nandarray.Store.session` makes a :class:`Session`; :meth:`Session.submit` gives a :class:`Job`, which is a
future. Any thread may submit and wait. Kernels that touch the same parts of arrays run in the order of their
submission; others run beside each other, as the scheduler and the memory bound allow.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from nandarray import _nandarray
from nandarray.array.creation import check_word
from nandarray.array.futures import Future
from nandarray.errors import ClosedError, InvalidError
from nandarray.programs import ports

if TYPE_CHECKING:
    from nandarray.array.store import Store
    from nandarray.programs.kernel import Kernel

__all__ = ["Job", "KernelScheduler", "Progress", "Session", "register_scheduler"]

#: Seconds after which a session says which native kernel it waits for, or gives up to wait for one that is cancelled.
PATIENCE_S = 10.0
# Seconds that a thread waits at once: in between, Ctrl-C is noticed.
_LOOK_S = 0.25

#: The most instructions of a screen unless the submission says otherwise: a kernel that never ends is an error.
INSTRUCTIONS = 1 << 40


class KernelScheduler(Protocol):
    """The methods of a scheduler in Python; ``crates/nandarray-runtime/src/schedule/mod.rs`` has their order."""

    #: Whether a microblock is divided into screens; otherwise it is one.
    splits: bool

    def arrived(self, number: int, application: int, priority: int, deadline: int | None, work: int) -> None:
        """A kernel may run: those it depends on are done, and its ranges are held."""

    def ready(self, kernel: int, screens: int) -> None:
        """A kernel has ``screens`` more screens that may run."""

    def next(self, worker: int) -> int | None:
        """Return the kernel whose next screen a worker runs now; None if there is none for it."""

    def ended(self, kernel: int) -> None:
        """A kernel is done, failed or cancelled; it may still have ready screens."""

    def lost(self, worker: int) -> None:
        """A worker has failed and calls :meth:`next` no more; its screen comes again by :meth:`ready`."""


def register_scheduler(name: str, maker: Callable[[int], KernelScheduler]) -> None:
    """Make a scheduler known by a name in this process, to sessions and to the modelled accelerator.

    Parameters
    ----------
    name : str
        The name, as ``store.session(scheduler=name)`` and :func:`nandarray.model.accelerator.run` take it.
    maker : callable
        A class, or a function: makes a scheduler for a number of workers. An exception of
        its methods ends the session: kernels that have not ended fail with its text.

    Raises
    ------
    InvalidError
        The name is taken.
    """
    _nandarray.register_scheduler(name, maker)


class Progress(NamedTuple):
    """The progress of a job.

    Attributes
    ----------
    state : str
        ``submitted``, ``blocked`` (by ranges of others), ``admitted``, ``mapping``, ``running``, ``draining``,
        ``stopping`` or ``ended``.
    microblock : int or None
        The microblock that runs.
    screens : int
        Screens that are done.
    """

    state: str
    microblock: int | None
    screens: int


@dataclass
class _Submit:
    """A submission, as the native session reads it."""

    kernel: Any
    form: str
    entries: list[int] | None
    sections: list[Any]
    scalars: list[int]
    name: str
    application: int
    priority: int
    deadline: int | None
    work: int
    after: list[int]
    after_names: list[str]
    instructions: int | None


class Job(Future):
    """A kernel that was submitted: its result, now or later. Made by :meth:`Session.submit`.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray.programs import kernels
    >>> store = nandarray.open("data.nand", mode="w")
    >>> with store.session(workers=1) as session:
    ...     job = session.submit(kernels.get("atax"), inputs={"A": np.eye(2, dtype="f4"), "x": np.ones(2, "f4")})
    >>> job.number, job.done()
    (0, True)
    """

    def __init__(
        self,
        session: Session,
        kernel: Kernel,
        native: _nandarray.SessionJob,
        shapes: list[Any],
        *,
        is_native: bool,
    ) -> None:
        self._session = session
        self._is_native = is_native
        self._kernel = kernel
        self._native = native
        self._shapes = shapes
        self._lock = threading.Lock()
        self._taken = False
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def number(self) -> int:
        """Its number in the session: the order of submission."""
        return self._native.number

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self._kernel

    def done(self) -> bool:
        """Return whether it has ended: its result, or its error, is there."""
        return self._native.done()

    def progress(self) -> Progress:
        """Return how far it has come."""
        found = self._session._engine.state(self._native)
        screens = self._native.progress()[0]
        return Progress(*(found or ("ended", None)), screens)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most: of the wall clock, also in a session on the modelled accelerator.

        Returns
        -------
        numpy.ndarray or dict or None
            Its output; a dictionary by name if there are several. Outputs that went into arrays are not among them.

        Raises
        ------
        ProgramFailedError
            It touched what it did not map, returned an error, or executed too many instructions.
        DependencyError
            A kernel that it depends on is not done.
        CancelledError
            It was cancelled.
        InvalidError
            On the modelled accelerator: it waits for a name that no kernel has, or flash has no place for its outputs.
        TimeoutError
            It has not ended in this time.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs import kernels
        >>> store = nandarray.open("data.nand", mode="w")
        >>> with store.session(workers=1) as session:
        ...     job = session.submit(kernels.get("atax"), inputs={"A": np.eye(2, dtype="f4"), "x": np.ones(2, "f4")})
        ...     job.result(timeout=60)
        array([1., 1.], dtype=float32)
        """
        if not self._waited(timeout):
            raise TimeoutError(f"job {self.number} ({self._kernel.name}) has not ended")
        with self._lock:
            if not self._taken:
                self._taken = True
                try:
                    self._value = self._shaped(self._native.take())
                except Exception as error:
                    self._error = error
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        """Cancel it, unless its outputs are being written.

        Screens in native form cannot be stopped: their end is awaited, for 10 s at most.

        Returns
        -------
        bool
            Whether it ends as cancelled; arrays are as they were then. False if it had ended, its outputs are being
            written, or a screen in native form goes on: that one may never end.
        """
        if not self._session._engine.cancel(self._native):
            return False
        return not self._is_native or self._waited(PATIENCE_S)

    def _waited(self, seconds: float | None) -> bool:
        """Wait, for a number of seconds at most if one is given; return whether it has ended."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
            if self._session._engine.wait(self._native, left):
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        if not self.done():
            yield from (
                asyncio.get_running_loop().run_in_executor(None, self._session._engine.wait, self._native).__await__()
            )
        return self.result()

    def _shaped(self, collected: Any) -> Any:
        named = {}
        for one, shape, raw in zip(self._kernel.sections, self._shapes, collected or [], strict=False):
            if raw is not None:
                named[one["name"]] = raw.view(np.dtype(one["dtype"])).reshape(shape)
        return next(iter(named.values())) if len(named) == 1 else named or None

    def __repr__(self) -> str:
        try:
            state = self.progress().state
        except ClosedError:
            state = "in another process"
        return f"<nandarray.Job {self.number}: {self._kernel.name}, {state}>"


class Session:
    """Kernels at once beside a store. Made by :meth:`nandarray.Store.session`.

    Examples
    --------
    >>> import nandarray
    >>> import numpy as np
    >>> from nandarray.programs.nest import Read, Write, screens
    >>> @nandarray.kernel
    ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
    ...     for i in screens(n):
    ...         y[i] = factor * x[i]
    >>> store = nandarray.open("session.nda", mode="w")
    >>> store["x"] = np.arange(4.0)
    >>> with store.session(scheduler="intra-out-of-order") as session:
    ...     jobs = [session.submit(scale, inputs={"x": store["x"]}, scalars={"factor": f}) for f in (2, 3)]
    ...     [job.result().tolist() for job in jobs]
    [[0.0, 2.0, 4.0, 6.0], [0.0, 3.0, 6.0, 9.0]]
    >>> store.close()
    """

    def __init__(
        self,
        store: Store,
        scheduler: str = "intra-out-of-order",
        *,
        workers: int | None = None,
        memory: int | None = None,
        window: int = 64 << 20,
        accelerator: Mapping[str, Any] | bool = False,
        core: str = "lwp",
    ) -> None:
        for what, word in (("scheduler", scheduler), ("core", core)):
            if word is None:
                raise InvalidError(f"{what} must be a word, not None")
            check_word(what, word)
        bound = memory if memory is not None else _half_of_memory()
        modelled = None
        if accelerator is not False and accelerator is not None:
            if accelerator is not True and not isinstance(accelerator, Mapping):
                raise InvalidError(f"accelerator must be True or values by name, not {accelerator!r}")
            platform = {} if accelerator is True else dict(accelerator)
            if workers is not None:
                platform["workers"] = workers
            try:
                modelled = (json.dumps(platform), core)
            except (TypeError, ValueError) as error:
                raise InvalidError(f"accelerator must have numbers and texts: {error}") from error
        count = workers if workers is not None else len(os.sched_getaffinity(0))
        ports.at_least_one(workers=count, memory=bound, window=0 if window is None else window)
        self._store = store
        self._scheduler = scheduler
        self._engine = store._engine.session(scheduler, count, bound, window, modelled)
        self._workers = len(self.report()["utilisation"]) if modelled else count

    @property
    def scheduler(self) -> str:
        """The scheduler's name."""
        return self._scheduler

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._workers

    def report(self) -> dict[str, Any]:
        """Return what happened so far on a modelled accelerator.

        Returns
        -------
        dict
            As :func:`nandarray.model.accelerator.run` returns it.

        Raises
        ------
        InvalidError
            The session is on the wall clock.
        """
        text = self._engine.report()
        if text is None:
            raise InvalidError("this session is on the wall clock; store.session(accelerator=True) models time")
        found: dict[str, Any] = json.loads(text)
        return found

    def submit(
        self,
        kernel: Kernel,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        scalars: Mapping[str, Any] | None = None,
        name: str = "",
        application: int | None = None,
        priority: int = 0,
        deadline: int | None = None,
        work: int = 0,
        after: Iterable[Job | str] = (),
        form: str | None = None,
        instructions: int | None = None,
    ) -> Job:
        """Submit a kernel.

        Parameters
        ----------
        kernel : Kernel
            The kernel.
        inputs : mapping
            Inputs by section: for each section that it reads an array, a view or a box of the store, or something in
            memory, which is copied. A section that it updates, if its new value is not to replace it.
        outputs : mapping
            Arrays of the store that its outputs go into. An updated section begins as this array. Outputs that are not
            named are returned.
        scalars : mapping
            Numbers by name.
        name : str
            A name by which other kernels of the session may depend on it, before or after it is submitted.
        application : int, optional
            The application that it belongs to; by default each kernel is one of its own.
        priority : int
            Kernels with a higher one come first.
        deadline : int, optional
            A time in units of the caller's, for schedulers that have use for it.
        work : int
            The expected work in units of the caller's, for schedulers that have use for it; 0 if it is not known.
        after : iterable of Job or str
            Jobs, or names of kernels, that are done before it begins.
        form : {"translated", "interpreted", "native"}, optional
            Form in which it is executed; None is the fastest in which it may be.
        instructions : int, optional
            The most instructions of a screen. A native form's are not counted.

        Returns
        -------
        Job
            Its future.

        Raises
        ------
        InvalidError
            Arrays, numbers or names do not fit.
        CircleError
            Kernels would wait for each other.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs.nest import Read, Write, screens
        >>> @nandarray.kernel
        ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
        ...     for i in screens(n):
        ...         y[i] = factor * x[i]
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["x"], y = np.arange(3.0), store.create("y", 3, "f8")
        >>> with store.session(workers=1) as session:
        ...     job = session.submit(scale, inputs={"x": store["x"]}, outputs={"y": y}, scalars={"factor": 2.0})
        >>> y[:]
        array([0., 2., 4.])
        """
        if not hasattr(kernel, "_native_kernel"):
            raise InvalidError(f"{kernel!r} must be a kernel, as nandarray.kernel makes one of a loop nest")
        ports.at_least_one(instructions=instructions)
        if application is not None and application < 0:
            raise InvalidError(f"application must be a number, at least 0, not {application}")
        if work < 0 or (deadline is not None and deadline < 0):
            raise InvalidError(f"deadline and work must be numbers, at least 0, not {deadline} and {work}")
        made, shapes = self._asked(kernel, dict(inputs or {}), dict(outputs or {}), dict(scalars or {}))
        if form is None:
            form = "native" if kernel.trusted and instructions is None else "translated"
        entries = kernel._functions() if form == "native" else None
        if form == "native" and instructions is not None:
            raise InvalidError("the instructions of a kernel in native form cannot be limited")
        jobs, names = [], []
        for one in after:
            if isinstance(one, str):
                names.append(one)
            elif not isinstance(one, Job):
                raise InvalidError(f"after must have jobs and names of kernels, not {one!r}")
            elif one._session is not self:
                raise InvalidError(f"job {one.number} is of another session")
            else:
                jobs.append(one.number)
        native = self._engine.submit(
            _Submit(
                kernel._native_kernel(),
                form,
                entries,
                made[0],
                made[1],
                name,
                -1 if application is None else application,
                priority,
                deadline,
                work,
                jobs,
                names,
                instructions or INSTRUCTIONS,
            )  # fmt: skip
        )
        return Job(self, kernel, native, shapes, is_native=form == "native")

    def _asked(
        self, kernel: Kernel, inputs: dict[str, Any], outputs: dict[str, Any], scalars: dict[str, Any]
    ) -> tuple[tuple[list[Any], list[int]], list[Any]]:
        known = {one["name"] for one in kernel.sections}
        stray = sorted({*inputs, *outputs} - known)
        if stray:
            raise InvalidError(f"{kernel.name} has no section {stray[0]!r}; it has {', '.join(sorted(known))}")
        results = {one["name"]: bool(one.get("update")) for one in kernel._table["outputs"]}
        if unread := [key for key in inputs if not results.get(key, True)]:
            raise InvalidError(f"{kernel.name}: {unread[0]} begins as zeros; name its array among the outputs")
        if unwritten := [key for key in outputs if key not in results]:
            raise InvalidError(f"{kernel.name}: {unwritten[0]} is an input; name its array among the inputs")
        sources: dict[str, Any] = {}
        targets: dict[str, Any] = {}
        for one in kernel._table["outputs"]:
            if one["name"] in outputs:
                targets[one["name"]] = ports.target(outputs[one["name"]], one)
                if one.get("update"):
                    sources[one["name"]] = targets[one["name"]]
        for key, given in inputs.items():
            port = next(one for one in kernel.sections if one["name"] == key)
            dtype = np.dtype(port["dtype"])
            if ports.is_stored(given):
                box = ports.Boxed(given)
                if box.dtype != dtype:
                    raise InvalidError(f"{kernel.name}: {key} has dtype {dtype}; the array has {box.dtype}")
                sources[key] = box
            else:
                array = ports.in_memory(given)
                if array.dtype != dtype:
                    raise InvalidError(f"{kernel.name}: {key} has dtype {dtype}; the array has {array.dtype}")
                sources[key] = np.ascontiguousarray(array)
        read = [*kernel._table["inputs"], *(one for one in kernel._table["outputs"] if one.get("update"))]
        if missing := [one["name"] for one in read if one["name"] not in sources]:
            raise InvalidError(f"{kernel.name}: section {missing[0]} is read, and has no array")
        shapes = kernel.shapes({name: tuple(one.shape) for name, one in {**targets, **sources}.items()})
        sections: list[Any] = []
        for one, shape in zip(kernel.sections, shapes, strict=True):
            key = one["name"]
            source: Any = sources.get(key)
            if isinstance(source, np.ndarray):
                source = source.reshape(-1).view(np.uint8)
            elif source is not None:
                source = source.native()
            target = targets[key].native() if key in targets else not one.get("temporary", False)
            sections.append((list(shape), source[0] if _is_tiled(source) else source, target))
        unknown = sorted(set(scalars) - {port["name"] for port in kernel._table["scalars"]})
        if unknown:
            raise InvalidError(f"{kernel.name} has no scalar {unknown[0]!r}")
        numbers = []
        for port in kernel._table["scalars"]:
            if port["name"] not in scalars:
                raise InvalidError(f"{kernel.name}: scalar {port['name']} is missing")
            numbers.append(ports.bits(scalars[port["name"]], port))
        return (sections, numbers), shapes

    def close(self, *, cancel: bool = False) -> None:
        """Take no more kernels, and wait for those that were submitted.

        Parameters
        ----------
        cancel : bool
            Whether to cancel them first.

        Raises
        ------
        InvalidError
            On the modelled accelerator: flash is full, and outputs never reach it. All kernels have ended.

        Warns
        -----
        RuntimeWarning
            A kernel in native form has not ended within 10 s; nothing can stop it. If it was cancelled, it is left
            behind, with its thread.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> session = store.session(workers=1)
        >>> session.close()
        """
        if not isinstance(cancel, bool):
            raise InvalidError(f"cancel must be True or False, not {cancel!r}")
        self._engine.begin_close(cancel=cancel)
        patient: float | None = time.monotonic() + PATIENCE_S
        while left := self._engine.wait_closed(_LOOK_S):
            endless = [(number, kernel) for number, kernel, is_native in left if is_native]
            if patient is None or time.monotonic() < patient or not endless:
                continue
            patient = None
            if cancel:
                self._engine.abandon()
            number, kernel = endless[0]
            does = "leaves behind" if cancel else "waits for"
            warnings.warn(
                f"the session {does} job {number} ({kernel}), in native form: nothing can stop it",
                RuntimeWarning,
                stacklevel=2,
            )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        return f"<nandarray.Session {self._scheduler}, {self._workers} workers>"


def _is_tiled(source: Any) -> bool:
    return isinstance(source, tuple) and len(source) == 2  # noqa: PLR2004


def _half_of_memory() -> int:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return max(64 << 20, pages * page // 2)
