"""Whether a program should run beside the data: three properties, measured, and what follows from bandwidths.

The properties are those of chapter 6 of Zou's dissertation: how the data's size changes, on which path the program is,
and whether it vectorises. :func:`advise` measures all three on sample data, and sets them against the bandwidths of a
described device: of its flash, of its cores, of the link to its host. :mod:`figure` draws the figure.

Read in this order: this file, :mod:`flows`, :mod:`paper`, :mod:`samples`, :mod:`vector`, :mod:`figure`. The advice is
a formula's; :mod:`simulate` runs the sample on the modelled device, whose answer stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import programs
from nandarray.device import devices, load
from nandarray.errors import InvalidError, NandarrayError
from nandarray.programs import ports
from nandarray.programs.advise import paper, vector
from nandarray.programs.advise import simulate as simulation
from nandarray.programs.advise.flows import READ, WRITE, Flows, Use, measure, part, path_of
from nandarray.programs.advise.samples import ASSUMED, has_sample, sample, use_of
from nandarray.programs.advise.simulate import Simulated

if TYPE_CHECKING:
    from nandarray.device import Description
    from nandarray.programs.program import Program

__all__ = ["Advice", "Bandwidths", "advise", "advise_all"]

_SAME = 0.05  # sizes, and times, that differ by less than this share are taken for the same
_EASY, _MODERATE, _HARMFUL = 1.5, 1.1, 0.85  # times as fast with vector instructions
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bandwidths:
    """Rates of a device, in bytes and instructions a second.

    Attributes
    ----------
    device : str
        Its name.
    flash_read, flash_program, link : float
        Bytes a second: all dies reading, all dies programming, the link to the host.
    cores : int
        That run programs.
    instructions : float
        A second, of one core: one a cycle, without stalls. An upper bound of what an in-order core does.
    """

    device: str
    flash_read: float
    flash_program: float
    link: float
    cores: int
    instructions: float


@dataclass(frozen=True)
class Advice:
    """The measurements of a program, and the advice for a device.

    Attributes
    ----------
    name : str
        The program.
    bytes_in, bytes_out : int
        Bytes that the sample reads and writes; what is written to the store beside the outputs is in the latter.
    flows : Flows
        The same by where they come from and go to: the store or the host.
    ratio : float
        Bytes out for a byte that comes in on the path; what else is taken in (a log's pages) does not count.
    link_host, link_device : int
        Bytes that cross the link if the host computes, and if the device does.
    size : {"reduces", "keeps", "increases"}
        The data's size, by more than a twentieth.
    direction : {"read", "write", "within", "around"}
        The path, from ``flows``: see :func:`nandarray.programs.advise.flows.path_of`.
    stated : bool
        Whether the caller stated the path, so that the sample was run that way.
    vectorises : {"easily", "moderately", "hardly", "unknown"}
        Easily: 1.5 times as fast, or Clang makes a vector loop of every loop that it looks at. Moderately: 1.1 times,
        or it makes one of some, and the program is not slower by it. Hardly: neither.
    gain : float or None
        Speedup by this machine's vector instructions; None where that was not timed.
    loops : vector.Loops or None
        Clang's remarks on the loops.
    instructions_per_byte : float
        RISC-V instructions for a byte that comes in.
    host_bytes_per_s : float or None
        Input rate of one thread of this machine, natively.
    link_saved : float
        Share of the link's bytes that the device saves by computing; below 0 there are more.
    seconds_host, seconds_device, seconds_vector : float
        Times of the sample on the device, by its narrowest part: the host computes (and keeps up); the device's cores
        do; they do, and have vector units that give them the same gain.
    bound : str
        Narrowest part when the device computes: ``"flash"``, ``"cores"`` or ``"link"``.
    candidate : bool
        The dissertation's rule: it saves traffic, and is not hard to vectorise.
    verdict : {"offload", "offload for traffic", "needs faster cores", "keep on the host"}
        The verdict in a word.
    why : str
        Reason of the verdict, in a sentence.
    assumed : str
        Assumptions about the sample.
    simulated : simulate.Simulated or None
        The sample's run on the modelled device, beside the formula's ``seconds_device``; None where it was not asked
        for.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray import programs
    >>> found = nandarray.advise(programs.get("sum", dtype="int64"), [np.arange(1 << 16)])
    >>> found.size
    'reduces'
    """

    name: str
    bytes_in: int
    bytes_out: int
    flows: Flows
    link_host: int
    link_device: int
    size: str
    ratio: float
    direction: str
    stated: bool
    vectorises: str
    gain: float | None
    loops: vector.Loops | None
    instructions_per_byte: float
    host_bytes_per_s: float | None
    link_saved: float
    seconds_host: float
    seconds_device: float
    seconds_vector: float
    bound: str
    candidate: bool
    verdict: str
    why: str
    assumed: str
    bandwidths: Bandwidths
    simulated: Simulated | None = None

    @property
    def speedup(self) -> float:
        """The host's time divided by that of the device's scalar cores."""
        return self.seconds_host / self.seconds_device

    @property
    def in_paper(self) -> str | None:
        """The dissertation's name of the function, if this is a ready-made program for one of them."""
        return paper.FUNCTIONS.get(self.name)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {**asdict(self), "speedup": self.speedup, "in_paper": self.in_paper}

    def __str__(self) -> str:
        return f"{self.name}: {self.verdict}. {self.why}"


def advise(
    program: Program | str,
    data: Any = None,
    *,
    scalars: Mapping[str, Any] | None = None,
    to_store: bool | Iterable[str] = False,
    direction: str | None = None,
    device: str | Description = "assasin",
    core_hz: float | None = None,
    times: bool = True,
    simulate: bool = False,
) -> Advice:
    """Return whether a program should run beside the data, and why.

    Parameters
    ----------
    program : Program or str
        A program, or the name of a ready-made one.
    data : Array, View, nandarray.Box, array_like or list of them, optional
        Its inputs, of which the first 4 MiB are taken. Arrays of a store are run from a store, the others are given by
        the host; where none is of a store, and nothing goes there, they stand for arrays of one. A ready-made program,
        given by its name, has samples.
    scalars : mapping, optional
        Its numbers, by name.
    to_store : bool or iterable of str
        Outputs that go to arrays of the store instead of the host: all, or these. Nothing of yours is written.
    direction : {"read", "write"}, optional
        Direction that replaces the measured one: all inputs lie in the store and outputs go to the host, or the other
        way.
    device : str or Description
        Whose bandwidths count; its description has cores for programs (``compute.cores``).
    core_hz : float, optional
        Instructions a second of one of them, in the place of the described clock.
    times : bool
        Whether to time it with and without vector instructions: some tenths of a second, of trusted programs.
    simulate : bool
        Whether to run the sample on the modelled device, too.

    Returns
    -------
    Advice
        Printed, it is the verdict with its reason.

    Raises
    ------
    InvalidError
        There are no data, or they do not fit the program; or the device has no cores for programs.

    Examples
    --------
    >>> import nandarray
    >>> advice = nandarray.advise("sum")
    >>> advice.size, advice.direction, advice.verdict
    ('reduces', 'read', 'offload')
    >>> advice.link_saved > 0.99
    True
    """
    name = program if isinstance(program, str) else program.name
    known = isinstance(program, str)
    if direction not in (None, READ, WRITE):
        raise InvalidError(f"direction must be read or write, not {direction!r}")
    if direction is not None and to_store:
        raise InvalidError("direction says where all outputs go; to_store cannot say it, too")
    if isinstance(program, str):
        inputs, given, parameters = sample(name)
        made = programs.get(name, **parameters)
        scalars = {**given, **(scalars or {})}
    else:
        made = program
    listed: list[Any] = []
    if data is not None:
        listed = list(data) if isinstance(data, list | tuple) else [data]
        inputs = [part(one) for one in listed]
        if known and len(inputs) == 1 and programs.describe(name).dtypes:
            made = programs.get(name, dtype=inputs[0].dtype)
    elif not known:
        raise InvalidError(f"{name} has no sample data; give its inputs")
    if not inputs:
        raise InvalidError(f"{made.name} needs inputs")
    described = _described(device)
    bandwidths = _bandwidths(described, core_hz)
    use = _use(name if known else None, made, listed, to_store=to_store, direction=direction)
    counted, flows = measure(made, inputs, scalars or {}, use)
    values = ports.scalar_bits(scalars or {}, made.metadata)
    small = _small(made, inputs)
    timed = vector.times(made, small, values) if times else None
    taken = sum(one.nbytes for one in small)
    return _advice(
        name,
        bandwidths,
        counted=counted,
        flows=flows,
        stated=direction is not None,
        timed=timed,
        loops=vector.loops(made),
        per_second=None if timed is None else taken / timed.vector_s,
        assumed=ASSUMED.get(name, "") if known and data is None else "",
        simulated=simulation.simulate(made, inputs, scalars or {}, use, described) if simulate else None,
    )


def advise_all(**options: Any) -> tuple[list[Advice], dict[str, str]]:
    """Return advice on every ready-made program with a sample, and the reasons why others have none."""
    _bandwidths(
        _described(options.get("device", "assasin")), options.get("core_hz")
    )  # an error of the device's is not a program's
    found, without = [], dict[str, str]()
    for name in programs.names():
        try:
            found.append(advise(name, **options))
        except NandarrayError as error:
            if has_sample(name):
                raise
            without[name] = str(error)
    return found, without


# --- measuring --------------------------------------------------------------------------------------------------------


def _use(
    known: str | None, made: Program, data: Sequence[Any], *, to_store: bool | Iterable[str], direction: str | None
) -> Use:
    """Choose the use for a run: the caller's, that of the data's places, or a ready-made program's."""
    inputs = [port["name"] for port in made.inputs]
    outputs = frozenset(port["name"] for port in made.outputs)
    stored = frozenset(name for name, one in zip(inputs, data, strict=False) if ports.is_stored(one))
    usual = use_of(known) if known else Use()
    if direction == READ:
        return Use()
    if direction == WRITE:
        return usual if usual.stored and not stored else Use(frozenset(inputs), outputs)
    if to_store:
        wanted = outputs if to_store is True else frozenset([to_store] if isinstance(to_store, str) else to_store)
        return Use(frozenset(inputs) - stored, wanted)
    return Use(frozenset(inputs) - stored) if stored else usual


def _small(made: Program, inputs: Sequence[_Array]) -> list[_Array]:
    """Cut what has records of one size so that it stays in a processor's inner caches, where memory does not bind."""
    ports = made.metadata["inputs"]
    cut = [port for port in ports if not port.get("whole")]
    if any(port.get("records", "fixed") != "fixed" for port in cut):
        return list(inputs)
    records = max(1, (32 << 10) // max(sum(port["record_bytes"] for port in cut), 1))
    raw = [np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in inputs]
    return [one if p.get("whole") else one[: records * p["record_bytes"]] for p, one in zip(ports, raw, strict=True)]


def _described(device: str | Description) -> Description:
    if not isinstance(device, str):
        return device
    found = devices().get(device)
    return load(device) if found is None else found


def _bandwidths(device: Description, core_hz: float | None) -> Bandwidths:
    facts, compute = device.effective, device.resolved["compute"]
    if compute is None:
        raise InvalidError(
            f"device {device.name} has no cores for programs: give its description compute.cores, and compute.clock"
        )
    return Bandwidths(
        device.name,
        float(facts["read_bytes_per_s"]),
        float(facts["program_bytes_per_s"]),
        float(facts["link_bytes_per_s"]),
        int(compute["cores"]),
        float(compute["clock_hz"] if core_hz is None else core_hz),
    )


# --- concluding -------------------------------------------------------------------------------------------------------


def _vectorises(timed: vector.Times | None, loops: vector.Loops | None) -> str:
    if timed is None and loops is None:
        return "unknown"
    gain = 1.0 if timed is None else timed.gain
    done, missed = (0, 0) if loops is None else (loops.vectorised, loops.missed)
    if gain >= _EASY or (done and not missed):
        return "easily"
    some = done > 0 and gain >= _HARMFUL
    return "moderately" if gain >= _MODERATE or some else "hardly"


def _advice(
    name: str,
    of: Bandwidths,
    *,
    counted: Any,
    flows: Flows,
    stated: bool,
    timed: vector.Times | None,
    loops: vector.Loops | None,
    per_second: float | None,
    assumed: str,
    simulated: Simulated | None,
) -> Advice:
    taken = counted.bytes_in
    if taken == 0:
        raise InvalidError(f"{name}: the sample is empty")
    compute = counted.instructions / (of.cores * of.instructions)
    flash = flows.from_store / of.flash_read + flows.to_store / of.flash_program
    parts = {"flash": flash, "cores": compute, "link": flows.link_device / of.link}
    host = max(flash, flows.link_host / of.link)
    size = "keeps" if abs(flows.ratio - 1) <= _SAME else "reduces" if flows.ratio < 1 else "increases"
    vectorises = _vectorises(timed, loops)
    device = max(parts.values())
    bound = max(parts, key=lambda part: parts[part])
    gain = 1.0 if timed is None else max(timed.gain, 1.0)
    saved = 1 - flows.link_device / flows.link_host if flows.link_host else 0.0
    verdict, why = _verdict(saved, host / device, bound, of, taken / compute if compute else float("inf"))
    return Advice(
        name=name,
        bytes_in=taken,
        bytes_out=flows.to_host + flows.to_store,
        flows=flows,
        link_host=flows.link_host,
        link_device=flows.link_device,
        size=size,
        ratio=flows.ratio,
        direction=path_of(flows),
        stated=stated,
        vectorises=vectorises,
        gain=None if timed is None else timed.gain,
        loops=loops,
        instructions_per_byte=counted.instructions / taken,
        host_bytes_per_s=per_second,
        link_saved=saved,
        seconds_host=host,
        seconds_device=device,
        seconds_vector=max(parts["flash"], parts["link"], compute / gain),
        bound=bound,
        candidate=saved > _SAME and vectorises in ("easily", "moderately"),
        verdict=verdict,
        why=why,
        assumed=assumed,
        bandwidths=of,
        simulated=simulated,
    )


def _verdict(saved: float, speedup: float, bound: str, of: Bandwidths, core_rate: float) -> tuple[str, str]:
    link = f"{of.device}'s link of {of.link / 1e9:.1f} GB/s"
    cores = f"{of.cores} cores of {of.instructions / 1e9:g} GHz take in {core_rate / 1e9:.2f} GB/s at most"
    if saved <= _SAME:
        more = f"{-saved:.0%} more" if saved < -_SAME else "just as many"
        return "keep on the host", f"{more} bytes would cross {link}, so the host may as well compute it."
    said = f"{saved:.1%} of the bytes need not cross {link}"
    if speedup >= 1 + _SAME:
        return "offload", f"{said}; {speedup:.1f} times faster, bound by the {bound} ({cores})."
    if speedup >= 1 - _SAME:
        return "offload for traffic", f"{said}; it takes as long, bound by the {bound} ({cores})."
    return "needs faster cores", f"{said}, but {cores}: it would take {1 / speedup:.1f} times as long."
