//! `[compute]`: cores that run programs beside the data.

use nandarray_describe::ValueKind::{self, Count, CountOrNone, Frequency, RateOr, Real, Size, SizeOr, Word};
use nandarray_describe::{Checks, Quantities, declare, words};
use nandarray_sim::Ps;

use super::super::Description;
use super::{KIB, POWER, SHORT};

/// Area of a component in square millimetres.
const AREA: ValueKind = Real(0.0, 10_000.0);
const CACHE: ValueKind = SizeOr("core", 0, 1 << 34);
const WAYS: ValueKind = CountOrNone(1, 1_024);
const TICKS: ValueKind = CountOrNone(0, 4_096);
const VECTOR_BITS: ValueKind = CountOrNone(8, 8_192);
/// Timed cores, named by their presets.
const CORES: &[&str] = &[
    "none",
    "zou-2023",
    "zou-2023-prefetch",
    "zou-2023-sp",
    "zou-2023-stream",
    "zou-2023-stream-cache",
    "zou-2023-varve",
    "five-stage",
    "five-stage-prefetch",
    "five-stage-sp",
    "five-stage-stream",
    "five-stage-stream-cache",
    "ibex",
    "ibex-maxperf",
    "ex5",
    "c66x",
    "lwp",
];

words! {
    /// Place from which a core reads its input.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum InputFrom {
        /// The device's DRAM, line by line through the caches.
        Dram = "dram",
        /// A buffer of two halves: one is filled while the core works on the other.
        PingPong = "pingpong",
        /// Stream buffers, page by page.
        Stream = "stream",
    }
}

words! {
    /// Choice of the channels whose pages reach a core directly.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum CorePlacement {
        /// All channels, through a crossbar.
        Crossbar = "crossbar",
        /// Channel n belongs to core n, modulo the number of cores; pages of other channels go through DRAM.
        Channel = "channel",
    }
}

declare! {
    /// Cores that run programs beside the data, separate from the firmware's cores ([`ControllerSettings::cores`]).
    #[derive(Copy)]
    pub struct Compute in "compute", from "no cores for programs: nothing is assumed", {
        "cores": CountOrNone(1, 4_096), "cores that run programs; none: the device runs none", default "none"
            => cores: u32;
        "clock": Frequency(1_000_000, 10_000_000_000), "cycles a second of each",
            bound "no processor sold runs at 10 GHz",
            default "1 GHz" => clock_hz: u64;
        "core_active": POWER, "a core that runs a program; parts with a power take its place", default "0 W" =>
            /// Power of a core that works, in microwatts.
            core_active_uw: f64 = |q| power(q, "compute.core_active");
        "core_idle": POWER, "a core that waits for one, or for its data; parts with a power take its place",
            default "0 W" =>
            /// Power of a core that does not work, in microwatts.
            core_idle_uw: f64 = |q| power(q, "compute.core_idle");
        "core": Word(CORES), "the timed core of each, a preset; none: it takes one instruction a cycle",
            default "none" =>
            /// The timed core, a preset of `nandarray-uarch`; `None` for a core that executes one instruction per
            /// cycle.
            core: Option<&'static str> = |q| word_but(q, "compute.core", "none");
        "isa": Word(&["own", "any"]), "programs that it runs: its own instruction set's, or any", default "any" =>
            /// Whether the core only runs programs of its own instruction set; otherwise set and width of programs
            /// are not checked.
            checks_isa: bool = |q| q.is("compute.isa", "own");
        "l1i_size": CACHE, "instruction cache; 0 B: none", default "core" =>
            /// Bytes of the instruction cache, 0 for no cache. Here and in the following fields `None` stands for the
            /// core preset's value.
            l1i_bytes: Option<u64>;
        "l1i_ways": WAYS, "its ways; none: as the core has them", default "none" =>
            /// Ways of the instruction cache; `None` for the preset's.
            l1i_ways: Option<u32>;
        "l1d_size": CACHE, "data cache; 0 B: none", default "core" =>
            /// Bytes of the data cache, 0 for no cache; `None` for the preset's.
            l1d_bytes: Option<u64>;
        "l1d_ways": WAYS, "its ways; none: as the core has them", default "none" =>
            /// Ways of the data cache; `None` for the preset's.
            l1d_ways: Option<u32>;
        "l1d_ticks": TICKS, "ticks of its hit beyond the unit's; none: as the core has it", default "none" =>
            /// Ticks of a hit in the data cache, in addition to the latency of the load or store unit; `None` for the
            /// preset's.
            l1d_ticks: Option<u32>;
        "l2_size": CACHE, "second-level cache; 0 B: none", default "core" =>
            /// Bytes of the second-level cache, 0 for no cache; `None` for the preset's.
            l2_bytes: Option<u64>;
        "l2_ways": WAYS, "its ways; none: as the core has them", default "none" =>
            /// Ways of the second-level cache; `None` for the preset's.
            l2_ways: Option<u32>;
        "l2_ticks": TICKS, "ticks of its hit; none: as the core has it", default "none" =>
            /// Ticks of a hit in the second-level cache; `None` for the preset's.
            l2_ticks: Option<u32>;
        "prefetch": Word(&["core", "none", "next-line", "stride", "dcpt"]),
            "prefetcher beside the data cache and the second level", default "core" =>
            /// Prefetcher of the data cache and of the second-level cache; `None` for the preset's.
            prefetch: Option<&'static str> = |q| word_but(q, "compute.prefetch", "core");
        "load_ticks": TICKS, "ticks of a load; none: as the core has it", default "none" =>
            /// Latency of a load in ticks; `None` for the preset's.
            load_ticks: Option<u32>;
        "store_ticks": TICKS, "ticks of a store; none: as the core has it", default "none" =>
            /// Latency of a store in ticks; `None` for the preset's.
            store_ticks: Option<u32>;
        "multiply_ticks": TICKS, "ticks of a multiplication; none: as the core has it", default "none" =>
            /// Latency of a multiplication in ticks; `None` for the preset's.
            multiply_ticks: Option<u32>;
        "divide_ticks": TICKS, "ticks of a division; none: as the core has it", default "none" =>
            /// Latency of a division in ticks; `None` for the preset's.
            divide_ticks: Option<u32>;
        "taken_ticks": TICKS, "ticks that a taken branch costs; none: as the core has it", default "none" =>
            /// Ticks that a taken branch costs; `None` for the preset's.
            taken_ticks: Option<u32>;
        "vector_length": CountOrNone(64, 1_024),
            "bits of a vector register, a power of two; none: as the core has them",
            default "none" => vector: VectorKeys = VectorKeys::read;
        "datapath_bits": VECTOR_BITS,
            "bits of elements that the vector datapath takes in a cycle; none: as the core has it",
            default "none";
        "vector_memory_bits": VECTOR_BITS,
            "bits that a vector load or store of consecutive elements moves in a cycle; none: as the core has it",
            default "none";
        "element_ticks": TICKS, "ticks of each element of other loads and stores; none: as the core has it",
            default "none";
        "align_bits": CountOrNone(1, 64),
            "w: bits to which VarVE rounds up each element in the datapath, a power of two; none: as the core has it",
            default "none";
        "align_ticks": TICKS, "ticks of the step that aligns elements; none: as the core has it", default "none";
        "unpack_lines": CountOrNone(0, 64),
            "lines of each packed stream that are fetched and unpacked ahead of use; none: as the core has it",
            default "none";
        "unpack_bits": VECTOR_BITS, "packed bits that are unpacked in a cycle; none: as the core has it",
            default "none";
        "unpack_ticks": TICKS, "ticks of unpacking what was not unpacked ahead; none: as the core has it",
            default "none";
        "scratchpad": Size(0, 256 << 20), "scratchpad of a core; 0 B: none", default "0 B" =>
            /// Bytes of scratchpad; 0 for none.
            scratchpad_bytes: u64;
        "scratchpad_ticks": TICKS, "ticks of its access beyond the unit's; none: as the core has it", default "none"
            =>
            /// Ticks of a scratchpad access, in addition to the latency of the load or store unit; `None` for the
            /// preset's.
            scratchpad_ticks: Option<u32>;
        "streams": Count(0, 8), "S: input streams, and output streams, that a core has buffers for",
            bound "a program has at most 8 of each",
            default "8" from "Zou (dissertation, 2023), Table 7.3: S = 8" => streams: u32;
        "pages": Count(1, 4_096), "P: pages of the buffer of one stream",
            default "2" from "Zou (dissertation, 2023), Table 7.3: P = 2" => pages: u32;
        "read_ahead": CountOrNone(1, 65_536),
            "pages of one stream that are requested ahead, those in its buffer included; none: P",
            default "none"
            => read_ahead: u32 = |q| q.get::<Option<_>>("compute.read_ahead").unwrap_or(q.get("compute.pages"));
        "stream_ticks": TICKS, "ticks of a stream access beyond the unit's; none: as the core has it", default "none"
            =>
            /// Ticks of a stream access, in addition to the latency of the load or store unit; `None` for the
            /// preset's.
            stream_ticks: Option<u32>;
        "half_size": Size(4 * KIB, 64 << 20),
            "a half of the ping-pong buffer of a core, shared by the inputs of a program",
            default "64 KiB" from "Zou (dissertation, 2023), Table 7.3: two halves of 64 KB" => half_bytes: u64;
        "input": Word(InputFrom::WORDS), "where the input of a core comes from", default "dram" => input: InputFrom;
        "placement": Word(CorePlacement::WORDS),
            "whose pages reach a core: those of all channels, or of its own (others cross DRAM)",
            default "crossbar" => placement: CorePlacement;
        "crossbar_rate": RateOr("ideal", 1_000_000, 2_000_000_000_000),
            "bandwidth of the crossbar's port of one core; ideal: takes no time",
            default "ideal" =>
            /// Rate of the crossbar's port of one core, in bytes per second; 0 stands for an ideal port without
            /// delay.
            crossbar_bytes_per_s: u64;
        "t_crossbar": SHORT, "latency of the crossbar", default "0 s" => t_crossbar: Ps;
        "t_manage": SHORT, "firmware: a transition of a core's state", default "0 s" => t_manage: Ps;
        "t_request": SHORT, "firmware: a page of a stream requested or drained", default "0 s" => t_request: Ps;
        "pipeline_power": POWER, "power of a core's pipeline", default "0 W" =>
            /// Power and area of the components of one core, in the order of [`ComputeParts::NAMES`].
            parts: ComputeParts = ComputeParts::read;
        "pipeline_mm2": AREA, "its area in square millimetres", default "0.0";
        "l1i_power": POWER, "power of an instruction cache", default "0 W";
        "l1i_mm2": AREA, "its area in square millimetres", default "0.0";
        "l1d_power": POWER, "power of a data cache", default "0 W";
        "l1d_mm2": AREA, "its area in square millimetres", default "0.0";
        "l2_power": POWER, "power of a second-level cache", default "0 W";
        "l2_mm2": AREA, "its area in square millimetres", default "0.0";
        "scratchpad_power": POWER, "power of a scratchpad", default "0 W";
        "scratchpad_mm2": AREA, "its area in square millimetres", default "0.0";
        "input_buffers_power": POWER, "power of a core's input stream buffers, or ping-pong buffer", default "0 W";
        "input_buffers_mm2": AREA, "their area in square millimetres", default "0.0";
        "output_buffers_power": POWER, "power of a core's output stream buffers, or ping-pong buffer", default "0 W";
        "output_buffers_mm2": AREA, "their area in square millimetres", default "0.0";
        "vector_power": POWER, "power of a core's vector unit", default "0 W";
        "vector_mm2": AREA, "its area in square millimetres", default "0.0";
        "crossbar_power": POWER, "power of the crossbar", default "0 W";
        "crossbar_mm2": AREA, "its area in square millimetres", default "0.0";
    }
}

/// Returns the word of a key; `None` if it is this one.
fn word_but(q: &Quantities<'_>, path: &str, none: &str) -> Option<&'static str> {
    Some(q.get(path)).filter(|word| *word != none)
}

/// Returns the power of a core in microwatts: that of its parts, if they have any.
fn power(q: &Quantities<'_>, path: &str) -> f64 {
    let cores: u32 = q.get("compute.cores");
    let of_parts = ComputeParts::sum(&ComputeParts::read(q).power_uw, cores) / f64::from(cores);
    if of_parts > 0.0 { of_parts } else { q.get(path) }
}

/// Values of a core's vector unit; `None` stands for the core preset's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VectorKeys {
    /// Bits of a vector register.
    pub length_bits: Option<u32>,
    /// Bits of elements that the datapath takes in a cycle.
    pub datapath_bits: Option<u32>,
    /// Bits that a load or store of consecutive elements moves in a cycle.
    pub memory_bits: Option<u32>,
    /// Ticks per element of loads and stores of elements that are not consecutive.
    pub element_ticks: Option<u32>,
    /// Bits to which VarVE rounds up the width of each element in the datapath.
    pub align_bits: Option<u32>,
    /// Ticks of the VarVE datapath's step that aligns elements to `align_bits`.
    pub align_ticks: Option<u32>,
    /// Lines of each packed stream that are fetched and unpacked ahead of use.
    pub unpack_lines: Option<u32>,
    /// Packed bits that are unpacked in a cycle.
    pub unpack_bits: Option<u32>,
    /// Ticks to unpack a line of a packed stream that was not unpacked ahead.
    pub unpack_ticks: Option<u32>,
}

impl VectorKeys {
    fn read(q: &Quantities<'_>) -> Self {
        Self {
            length_bits: q.get("compute.vector_length"),
            datapath_bits: q.get("compute.datapath_bits"),
            memory_bits: q.get("compute.vector_memory_bits"),
            element_ticks: q.get("compute.element_ticks"),
            align_bits: q.get("compute.align_bits"),
            align_ticks: q.get("compute.align_ticks"),
            unpack_lines: q.get("compute.unpack_lines"),
            unpack_bits: q.get("compute.unpack_bits"),
            unpack_ticks: q.get("compute.unpack_ticks"),
        }
    }
}

/// Power and area of the components of one core; the crossbar exists once per device.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ComputeParts {
    /// Power of each component in microwatts, in the order of [`Self::NAMES`].
    pub power_uw: [f64; 9],
    /// Area of each component in square millimetres, in the order of [`Self::NAMES`].
    pub area_mm2: [f64; 9],
}

impl ComputeParts {
    /// Names of the components.
    pub const NAMES: [&str; 9] =
        ["pipeline", "l1i", "l1d", "l2", "scratchpad", "input_buffers", "output_buffers", "crossbar", "vector"];

    fn read(q: &Quantities<'_>) -> Self {
        let each = |what: &str| Self::NAMES.map(|name| q.get(&format!("compute.{name}_{what}")));
        Self { power_uw: each("power"), area_mm2: each("mm2") }
    }

    /// Returns how often each component exists in a device with `cores` cores.
    pub fn counts(cores: u32) -> [u32; 9] {
        let mut counts = [cores; 9];
        counts[7] = 1;
        counts
    }

    /// Returns the sum of a value of the components over a whole device with `cores` cores.
    pub fn sum(values: &[f64; 9], cores: u32) -> f64 {
        values.iter().zip(Self::counts(cores)).map(|(value, count)| value * f64::from(count)).sum()
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let Some(c) = &d.compute else { return };
    if let Err(problem) = c.core_checked(&d.dram) {
        checks.hold(false, problem.key, || problem.what, || problem.allowed);
    }
    checks.hold(
        c.read_ahead >= c.pages,
        "compute.read_ahead",
        || format!("is less than the {} pages of a stream buffer", c.pages),
        || format!("allowed is at least compute.pages ({}), or \"none\"", c.pages),
    );
    checks.hold(
        c.core.is_none() || c.input != InputFrom::Stream || c.streams > 0,
        "compute.streams",
        || "leaves a core without stream buffers".to_owned(),
        || "compute.input is \"stream\": allowed are 1 to 8".to_owned(),
    );
}
