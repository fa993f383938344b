//! `[compute]`: cores that run programs beside the data; `[compute.core]`: the timed core of each, in the keys of a
//! description of a core.

use nandarray_describe::ValueKind::{self, CountOrNone, Frequency, RateOr, Real, Word};
use nandarray_describe::{Checks, Key, Quantities, Quantity, Renamed, Value, declare, words};
use nandarray_sim::Ps;
use nandarray_uarch::{CoreDescription, PRESET_NAMES};

use super::super::Description;
use super::super::cores;
use super::{POWER, SHORT};

/// Area of a component in square millimetres.
const AREA: ValueKind = Real(0.0, 10_000.0);
/// Words of a core's base: presets, and two that are none.
const BASES: [&str; PRESET_NAMES.len() + 2] = {
    let mut words = ["none"; PRESET_NAMES.len() + 2];
    words[1] = "own";
    let mut preset = 0;
    while preset < PRESET_NAMES.len() {
        words[preset + 2] = PRESET_NAMES[preset];
        preset += 1;
    }
    words
};
/// Keys of a core that a device says itself: the clock, its DRAM, and its parts.
const OF_THE_DEVICE: [&str; 4] = ["source", "tick_ps", "memory", "parts"];

words! {
    /// Choice of the channels whose pages reach a core directly.
    pub enum CorePlacement {
        /// All channels, through a crossbar.
        Crossbar = "crossbar",
        /// Channel n belongs to core n, modulo the number of cores; pages of other channels go through DRAM.
        Channel = "channel",
    }
}

declare! {
    /// Cores that run programs beside the data, separate from the firmware's cores ([`ControllerSettings::cores`]).
    pub struct Compute in "compute", from "no cores for programs: nothing is assumed", {
        "cores": CountOrNone(1, 4_096), "cores that run programs; none: the device runs none", default "none"
            => cores: u32;
        "clock": Frequency(1_000_000, 10_000_000_000), "cycles a second of each",
            bound "no processor sold runs at 10 GHz",
            default "1 GHz" => clock_hz: u64 =>
            /// The timed core, which has this clock and the device's DRAM as its memory; `None` for a core that
            /// executes one instruction per cycle.
            core: Option<CoreDescription> = |q| cores::core(q).ok().flatten();
        "core_active": POWER, "a core that runs a program; parts with a power take its place", default "0 W" =>
            /// Power of a core that works, in microwatts.
            core_active_uw: f64 = |q| power(q, "compute.core_active");
        "core_idle": POWER, "a core that waits for one, or for its data; parts with a power take its place",
            default "0 W" =>
            /// Power of a core that does not work, in microwatts.
            core_idle_uw: f64 = |q| power(q, "compute.core_idle");
        "isa": Word(&["own", "any"]), "programs that it runs: its own instruction set's, or any", default "any" =>
            /// Whether the core only runs programs of its own instruction set; otherwise set and width of programs
            /// are not checked.
            checks_isa: bool = |q| q.is("compute.isa", "own");
        "read_ahead": CountOrNone(1, 65_536),
            "pages of one stream that are requested ahead, those in its buffer included; none: P",
            default "none"
            => read_ahead: u32 = read_ahead;
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

declare! {
    /// The preset of the timed core.
    pub(in super::super) struct CoreBase in "compute.core", from "no timed core: nothing is assumed", {
        "base": Word(&BASES),
            "preset whose values the table replaces; own: the table has all; none: one instruction a cycle, untimed",
            default "none" => base: &'static str;
    }
}

/// Returns the keys of `[compute.core]` beside its base: a core's own.
pub(in super::super) fn core_keys() -> impl Iterator<Item = Key> {
    let own = |key: &Key| !OF_THE_DEVICE.contains(&key.name.split('.').next().unwrap_or_default());
    Key::of_table("compute.core", CoreDescription::KEYS).filter(own)
}

/// Returns an old spelling of keys of the core, by which a value sets one key or several.
macro_rules! renamed {
    ($old:literal => $($new:literal),+; $value:expr) => {
        Renamed {
            old: concat!("compute.", $old),
            sets: |value| {
                let value = $value(value);
                vec![$((concat!("compute.core.", $new), value.clone())),+]
            },
            told: true,
        }
    };
    ($old:literal => cache $level:literal) => {
        Renamed {
            old: concat!("compute.", $old),
            sets: |value| match bytes(value) {
                Some(0) => vec![(concat!("compute.core.", $level), Some("none".into()))],
                _ => vec![(concat!("compute.core.", $level, ".size_bytes"), given(value))],
            },
            told: true,
        }
    };
}

/// Other spellings of keys of cores: `core = "PRESET"` for its base, and those of 0.1, which go after 0.2.
pub(in super::super) const RENAMED: &[Renamed] = &[
    Renamed { old: "compute.core", sets: |value| vec![("compute.core.base", Some(value.clone()))], told: false },
    renamed!("l1i_size" => cache "l1i"),
    renamed!("l1i_ways" => "l1i.ways"; given),
    renamed!("l1d_size" => cache "l1d"),
    renamed!("l1d_ways" => "l1d.ways"; given),
    renamed!("l1d_ticks" => "l1d.t_hit"; given),
    renamed!("l2_size" => cache "l2"),
    renamed!("l2_ways" => "l2.ways"; given),
    renamed!("l2_ticks" => "l2.t_hit"; given),
    renamed!("prefetch" => "prefetch_l1d", "prefetch_l2"; prefetcher),
    renamed!("load_ticks" => "latency.load"; given),
    renamed!("store_ticks" => "latency.store"; given),
    renamed!("multiply_ticks" => "latency.multiply"; given),
    renamed!("divide_ticks" => "latency.divide"; given),
    renamed!("taken_ticks" => "t_taken"; given),
    renamed!("vector_length" => "isa"; registers),
    renamed!("datapath_bits" => "vector.datapath_bits"; given),
    renamed!("vector_memory_bits" => "vector.memory_bits"; given),
    renamed!("element_ticks" => "vector.t_element"; given),
    renamed!("align_bits" => "vector.align_bits"; given),
    renamed!("align_ticks" => "vector.t_align"; given),
    renamed!("unpack_lines" => "vector.unpack_lines"; given),
    renamed!("unpack_bits" => "vector.unpack_bits"; given),
    renamed!("unpack_ticks" => "vector.t_unpack"; given),
    renamed!("scratchpad" => "scratchpad_bytes"; given),
    renamed!("scratchpad_ticks" => "t_scratchpad"; given),
    renamed!("streams" => "streams"; given),
    renamed!("pages" => "stream_pages"; given),
    renamed!("stream_ticks" => "t_stream"; given),
    renamed!("half_size" => "pingpong_bytes"; both_halves),
    renamed!("input" => "input_source"; path),
];

/// Returns a value but for the words of a core's own.
fn given(value: &Value) -> Option<Value> {
    Some(value.clone()).filter(|value| *value != "none".into() && *value != "core".into())
}

/// Returns a prefetcher; `"none"` is none, whatever the core has.
fn prefetcher(value: &Value) -> Option<Value> {
    Some(value.clone()).filter(|value| *value != "core".into())
}

/// Returns the addition to the instruction set that makes registers as long.
fn registers(value: &Value) -> Option<Value> {
    given(value).map(|bits| Value::Text(format!("+zvl{bits}b")))
}

/// Returns the bytes of a size.
fn bytes(value: &Value) -> Option<u64> {
    match ValueKind::Size(0, 1 << 40).read(value) {
        Ok(Quantity::Whole(bytes)) => Some(bytes),
        _ => None,
    }
}

/// Returns the bytes of both halves of a ping-pong buffer.
fn both_halves(value: &Value) -> Option<Value> {
    Some(bytes(value).map_or_else(|| value.clone(), |half| Value::Whole(2 * half as i64)))
}

/// Returns the path of the input in the words of cores.
fn path(value: &Value) -> Option<Value> {
    Some(if *value == "pingpong".into() { "ping-pong".into() } else { value.clone() })
}

/// Returns the number of pages that are requested ahead: by default, those of a stream's buffer.
fn read_ahead(q: &Quantities<'_>) -> u32 {
    q.get::<Option<_>>("compute.read_ahead").unwrap_or_else(|| match cores::core(q) {
        Ok(Some(core)) => core.stream_pages,
        _ => 2,
    })
}

/// Returns the power of a core in microwatts: that of its parts, if they have any.
fn power(q: &Quantities<'_>, path: &str) -> f64 {
    let cores: u32 = q.get("compute.cores");
    let of_parts = ComputeParts::sum(&ComputeParts::read(q).power_uw, cores) / f64::from(cores);
    if of_parts > 0.0 { of_parts } else { q.get(path) }
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
    if let Err(problem) = cores::core(&checks.quantities) {
        checks.hold(false, &problem.key, || problem.what, || problem.allowed);
    }
    let Some(core) = &c.core else { return };
    checks.hold(
        c.read_ahead >= core.stream_pages,
        "compute.read_ahead",
        || format!("is less than the {} pages of a stream buffer", core.stream_pages),
        || format!("allowed is at least compute.core.stream_pages ({}), or \"none\"", core.stream_pages),
    );
}
