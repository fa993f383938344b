//! Descriptions of cores: every value with its key, checked when the description is read.
//!
//! A description is TOML. Times are in ticks of the core, of `tick_ps` picoseconds each: a core whose caches or
//! scratchpads take half cycles has two ticks per cycle. This file does not model pipelines or caches;
//! [`CoreDescription::parse`] returns numbers that the other files may rely on. Presets are in `presets`.

use std::borrow::Cow;

use nandarray_hart::{Extension, Extensions};
use serde::Deserialize;

use crate::parts::CorePart;
use crate::unit::FunctionalUnit;
use crate::vector::VectorDescription;

/// Reason why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescribeError {
    /// It is not TOML, or has an unknown key or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// A value is out of its range.
    #[error("{key} = {value}: {range}")]
    Range {
        /// The key.
        key: Cow<'static, str>,
        /// The value found.
        value: String,
        /// The values allowed.
        range: &'static str,
    },
    /// No preset has this name.
    #[error("no core is called {name:?}; there are {known}")]
    Unknown {
        /// The name requested.
        name: String,
        /// The names of the presets.
        known: String,
    },
}

fn range(key: &'static str, value: impl ToString, range: &'static str) -> DescribeError {
    DescribeError::Range { key: key.into(), value: value.to_string(), range }
}

/// Order in which a core issues instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Issue {
    /// One instruction after the other, each occupying the core for its latency, as in gem5's TimingSimple.
    Blocking,
    /// In order through a pipeline, which hazards stall.
    InOrder,
    /// Blocks are re-scheduled onto the units of a VLIW core.
    Vliw,
}

/// Replacement policy of a cache: which line leaves a full set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// Least recently used.
    #[default]
    Lru,
    /// Pseudo-random by a linear-feedback shift register, as in Spike's cache simulator.
    Lfsr,
}

/// Description of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDescription {
    /// Capacity for data, in bytes.
    pub size_bytes: u64,
    /// Number of lines of a set.
    pub ways: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Ticks that a hit takes in addition to the access of the level above; for a first-level cache, in addition to
    /// the latency of the load or store unit.
    #[serde(default)]
    pub t_hit: u32,
    /// Policy that chooses the line that leaves a full set.
    #[serde(default)]
    pub replacement: Replacement,
}

/// Kind of the prefetcher of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefetchKind {
    /// No prefetches.
    #[default]
    None,
    /// The next line is fetched at each miss.
    NextLine,
    /// Lines are fetched ahead by the stride of each instruction's addresses.
    Stride,
    /// Delta-correlating prediction tables, which repeat patterns of distances (Grannaes, Jahre, Natvig, 2009).
    Dcpt,
}

/// Path by which a core gets a task's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputPath {
    /// From the device's memory, through the caches.
    #[default]
    Dram,
    /// From a buffer of two halves beside the core: one is filled while the core reads the other.
    PingPong,
    /// From stream buffers beside the core.
    Stream,
}

/// Memory behind the caches of a core that is not part of a modelled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryDescription {
    /// Ticks from a miss until its line has arrived.
    pub t_access: u32,
    /// Ticks for which the transfer of a line occupies the memory's port.
    pub t_line: u32,
}

/// Latencies of functional units: ticks (of `tick_ps` picoseconds) from an instruction's issue to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLatencies([u32; FunctionalUnit::COUNT]);

impl UnitLatencies {
    /// Returns the latency of a unit, in ticks.
    pub fn of(&self, unit: FunctionalUnit) -> u32 {
        self.0[unit as usize]
    }

    /// Sets the latency of a unit, in ticks.
    pub fn set(&mut self, unit: FunctionalUnit, ticks: u32) {
        self.0[unit as usize] = ticks;
    }
}

fn yes() -> bool {
    true
}

/// Numbers of units of a VLIW core, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VliwUnits {
    /// Number of multipliers (M).
    pub multiply: u32,
    /// Number of load and store units (D).
    pub memory: u32,
    /// Number of units of arithmetic and logic (L and S).
    pub general: u32,
    /// Maximum number of instructions of an execute packet, which are issued in one cycle.
    pub width: u32,
    /// Whether two single-precision operations, loads or stores of the same kind share a unit's cycle.
    #[serde(default)]
    pub simd_pairs: bool,
    /// Whether a fused multiplication and addition is one instruction; otherwise a multiplier and, with the product, a
    /// general unit execute it.
    #[serde(default = "yes")]
    pub fused: bool,
}

/// Description of a core.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreDescription {
    /// Name of the core.
    pub name: String,
    /// Publication or data sheet that the numbers come from.
    pub source: String,
    /// Picoseconds per tick.
    pub tick_ps: u64,
    /// Ticks per clock cycle.
    pub cycle: u32,
    /// Instruction set, for example `rv32im`.
    pub isa: String,
    /// Order in which the core issues instructions.
    pub issue: Issue,
    /// Maximum number of instructions issued per cycle, if the core issues in order.
    pub width: u32,
    /// Ticks from the issue of an instruction to its result, by the unit that executes it.
    pub latency: UnitLatencies,
    /// Units that accept no further instruction until their result is ready.
    pub unpipelined: Vec<FunctionalUnit>,
    /// Ticks that a taken branch or jump costs in addition to its cycle.
    pub t_taken: u32,
    /// Ticks that a branch not taken costs in addition to its cycle.
    pub t_not_taken: u32,
    /// Units of a VLIW core; `None` for other cores.
    pub vliw: Option<VliwUnits>,
    /// Instruction cache; `None` if fetching costs nothing.
    pub l1i: Option<CacheDescription>,
    /// Data cache; `None` if an access only takes its unit's latency.
    pub l1d: Option<CacheDescription>,
    /// Second-level cache of both; `None` if there is none.
    pub l2: Option<CacheDescription>,
    /// Prefetcher of the data cache.
    pub prefetch_l1d: PrefetchKind,
    /// Prefetcher of the second-level cache.
    pub prefetch_l2: PrefetchKind,
    /// Ticks of a scratchpad access, in addition to the latency of the load or store unit.
    pub t_scratchpad: u32,
    /// Ticks of a stream access, in addition to the latency of the load or store unit.
    pub t_stream: u32,
    /// Memory behind the caches, for a core that is not part of a modelled device; `None` if misses cost nothing
    /// further.
    pub memory: Option<MemoryDescription>,
    /// Bytes of scratchpad; 0 if the core has none, and the scratchpad of programs is ordinary memory.
    pub scratchpad_bytes: u64,
    /// Bytes of both halves of the ping-pong buffer; 0 if the core has none.
    pub pingpong_bytes: u64,
    /// Number of input streams, and of output streams; 0 if the core has no stream instructions.
    pub streams: u32,
    /// Number of pages of each stream that the core's buffers hold.
    pub stream_pages: u32,
    /// Path by which the core gets a task's input.
    pub input_source: InputPath,
    /// The vector unit; `None` if the description gives no value of one.
    pub vector: Option<VectorDescription>,
    /// Parts of the core, with their area and power.
    pub parts: Vec<CorePart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCore {
    name: String,
    source: String,
    tick_ps: u64,
    #[serde(default = "one")]
    cycle: u32,
    isa: String,
    issue: Issue,
    #[serde(default = "one")]
    width: u32,
    latency: std::collections::BTreeMap<String, u32>,
    #[serde(default)]
    unpipelined: Vec<String>,
    #[serde(default)]
    t_taken: u32,
    #[serde(default)]
    t_not_taken: u32,
    vliw: Option<VliwUnits>,
    l1i: Option<CacheDescription>,
    l1d: Option<CacheDescription>,
    l2: Option<CacheDescription>,
    #[serde(default)]
    prefetch_l1d: PrefetchKind,
    #[serde(default)]
    prefetch_l2: PrefetchKind,
    #[serde(default)]
    t_scratchpad: u32,
    #[serde(default)]
    t_stream: u32,
    memory: Option<MemoryDescription>,
    #[serde(default)]
    scratchpad_bytes: u64,
    #[serde(default)]
    pingpong_bytes: u64,
    #[serde(default)]
    streams: u32,
    #[serde(default)]
    stream_pages: u32,
    #[serde(default)]
    input_source: InputPath,
    vector: Option<VectorDescription>,
    #[serde(default)]
    parts: Vec<CorePart>,
}

fn one() -> u32 {
    1
}

/// Highest latency that is accepted, which keeps pipeline states small.
const LATENCY_MAX: u32 = 4_096;

/// Returns the unit of a name; `what` is the key and the value for the error.
fn unit(name: &str, what: impl Fn() -> String) -> Result<FunctionalUnit, DescribeError> {
    FunctionalUnit::ALL.into_iter().find(|u| u.name() == name).ok_or_else(|| {
        let known: Vec<_> = FunctionalUnit::ALL.iter().map(|u| u.name()).collect();
        DescribeError::Syntax(format!("{}: no unit has this name; there are {}", what(), known.join(", ")))
    })
}

impl CacheDescription {
    fn check(&self, [size, ways, line]: [&'static str; 3]) -> Result<(), DescribeError> {
        let CacheDescription { size_bytes, ways: count, line_bytes, .. } = *self;
        if !line_bytes.is_power_of_two() || !(8..=4_096).contains(&line_bytes) {
            return Err(range(line, line_bytes, "a power of two from 8 to 4096 is needed"));
        }
        if count == 0 || count > 1_024 {
            return Err(range(ways, count, "1 to 1024 are needed"));
        }
        let set_bytes = u64::from(line_bytes) * u64::from(count);
        if size_bytes == 0 || size_bytes > 1 << 34 || size_bytes % set_bytes != 0 {
            return Err(range(size, size_bytes, "a multiple of ways times line_bytes up to 16 GiB is needed"));
        }
        if !(size_bytes / set_bytes).is_power_of_two() {
            return Err(range(size, size_bytes, "the number of sets has to be a power of two"));
        }
        Ok(())
    }

    /// Returns the number of sets.
    pub fn sets(&self) -> u64 {
        self.size_bytes / (u64::from(self.line_bytes) * u64::from(self.ways))
    }
}

impl CoreDescription {
    /// Reads a description from its TOML text.
    ///
    /// # Errors
    /// [`DescribeError`], which names the key, its value, and the values allowed.
    pub fn parse(text: &str) -> Result<Self, DescribeError> {
        let written: WrittenCore = toml::from_str(text).map_err(|e| DescribeError::Syntax(e.to_string()))?;
        let mut latency = UnitLatencies([written.cycle; FunctionalUnit::COUNT]);
        for (key, &ticks) in &written.latency {
            let unit = unit(key, || format!("latency.{key}"))?;
            if ticks == 0 || ticks > LATENCY_MAX {
                let allowed = "1 to 4096 ticks are needed";
                let key = format!("latency.{key}").into();
                return Err(DescribeError::Range { key, value: ticks.to_string(), range: allowed });
            }
            latency.0[unit as usize] = ticks;
        }
        let listed = |name: &String| unit(name, || format!("unpipelined = {name:?}"));
        let unpipelined = written.unpipelined.iter().map(listed).collect::<Result<_, _>>()?;
        let description = Self {
            name: written.name,
            source: written.source,
            tick_ps: written.tick_ps,
            cycle: written.cycle,
            isa: written.isa,
            issue: written.issue,
            width: written.width,
            latency,
            unpipelined,
            t_taken: written.t_taken,
            t_not_taken: written.t_not_taken,
            vliw: written.vliw,
            l1i: written.l1i,
            l1d: written.l1d,
            l2: written.l2,
            prefetch_l1d: written.prefetch_l1d,
            prefetch_l2: written.prefetch_l2,
            t_scratchpad: written.t_scratchpad,
            t_stream: written.t_stream,
            memory: written.memory,
            scratchpad_bytes: written.scratchpad_bytes,
            pingpong_bytes: written.pingpong_bytes,
            streams: written.streams,
            stream_pages: written.stream_pages,
            input_source: written.input_source,
            vector: written.vector,
            parts: written.parts,
        };
        description.check()?;
        Ok(description)
    }

    /// Checks a description that was built or changed by a program.
    ///
    /// # Errors
    /// [`DescribeError::Range`]: a value is out of its range.
    pub fn check(&self) -> Result<(), DescribeError> {
        if !(1..=1_000_000).contains(&self.tick_ps) {
            return Err(range("tick_ps", self.tick_ps, "1 to 1000000 picoseconds are needed"));
        }
        if !(1..=64).contains(&self.cycle) {
            return Err(range("cycle", self.cycle, "1 to 64 ticks are needed"));
        }
        if !(1..=4).contains(&self.width) {
            return Err(range("width", self.width, "1 to 4 instructions a cycle are needed"));
        }
        for (key, ticks) in [("t_taken", self.t_taken), ("t_not_taken", self.t_not_taken)] {
            if ticks > LATENCY_MAX {
                return Err(range(key, ticks, "at most 4096 ticks are allowed"));
            }
        }
        let levels = [
            (&self.l1i, ["l1i.size_bytes", "l1i.ways", "l1i.line_bytes"]),
            (&self.l1d, ["l1d.size_bytes", "l1d.ways", "l1d.line_bytes"]),
            (&self.l2, ["l2.size_bytes", "l2.ways", "l2.line_bytes"]),
        ];
        for (cache, keys) in levels {
            if let Some(cache) = cache {
                cache.check(keys)?;
            }
        }
        for (first, key) in [(&self.l1i, "l1i.line_bytes"), (&self.l1d, "l1d.line_bytes")] {
            if let (Some(first), Some(l2)) = (first, &self.l2) {
                if first.line_bytes > l2.line_bytes {
                    return Err(range(key, first.line_bytes, "at most l2.line_bytes are allowed"));
                }
            }
        }
        if self.prefetch_l1d != PrefetchKind::None && self.l1d.is_none() {
            return Err(range("prefetch_l1d", format!("{:?}", self.prefetch_l1d), "a prefetcher needs l1d"));
        }
        if self.prefetch_l2 != PrefetchKind::None && self.l2.is_none() {
            return Err(range("prefetch_l2", format!("{:?}", self.prefetch_l2), "a prefetcher needs l2"));
        }
        self.check_beside()?;
        if let Err(name) = Extensions::parse(&self.isa) {
            return Err(range(
                "isa",
                format!("{:?} ({name:?})", self.isa),
                "an architecture string such as rv32im is needed",
            ));
        }
        self.check_vector()?;
        match (self.issue, &self.vliw) {
            (Issue::Blocking | Issue::InOrder, Some(_)) => Err(range("vliw", "units", "only a VLIW core has them")),
            (Issue::Vliw, None) => Err(range("vliw", "nothing", "a VLIW core needs its units")),
            (Issue::Vliw, Some(units)) if units.multiply == 0 || units.memory == 0 || units.general == 0 => {
                Err(range("vliw", format!("{units:?}"), "at least one unit of each kind is needed"))
            }
            (Issue::Vliw, Some(units)) if units.width == 0 => Err(range("vliw.width", 0, "at least 1 is needed")),
            _ => Ok(()),
        }
    }

    /// Checks the memories beside the pipeline: scratchpad, buffers and streams; then the parts.
    fn check_beside(&self) -> Result<(), DescribeError> {
        for (key, bytes) in [("scratchpad_bytes", self.scratchpad_bytes), ("pingpong_bytes", self.pingpong_bytes)] {
            if bytes % 8 != 0 || bytes > 1 << 28 {
                return Err(range(key, bytes, "a multiple of 8 up to 256 MiB is needed"));
            }
        }
        if self.streams > 8 {
            return Err(range("streams", self.streams, "programs have at most 8"));
        }
        if self.stream_pages > 4_096 || (self.stream_pages == 0) != (self.streams == 0) {
            return Err(range("stream_pages", self.stream_pages, "1 to 4096 if there are streams, and else 0"));
        }
        match self.input_source {
            InputPath::PingPong if self.pingpong_bytes == 0 => {
                Err(range("input_source", "ping-pong", "pingpong_bytes are needed for it"))
            }
            InputPath::Stream if self.streams == 0 => Err(range("input_source", "stream", "streams are needed for it")),
            _ => self.check_parts(),
        }
    }

    fn check_vector(&self) -> Result<(), DescribeError> {
        let Some(vector) = &self.vector else { return Ok(()) };
        let (_, extensions) = self.extensions();
        if !extensions.has(Extension::Zve32x) {
            return Err(range("vector", "a unit", "isa has no vectors"));
        }
        vector.check(extensions.vlen()).map_err(|(key, value, allowed)| range(key, value, allowed))
    }

    /// Returns the vector unit; all values are left out if the description has none.
    pub fn vector_unit(&self) -> VectorDescription {
        self.vector.unwrap_or_default()
    }

    /// Returns the ticks from the issue of an instruction to its result: the latency of its unit, and the alignment of
    /// elements where they are aligned.
    pub fn latency_of(&self, unit: FunctionalUnit) -> u32 {
        self.latency.of(unit) + if unit.aligns() { self.vector_unit().t_align } else { 0 }
    }

    fn check_parts(&self) -> Result<(), DescribeError> {
        for part in &self.parts {
            let numbers =
                [("area_mm2", part.area_mm2), ("active_mw", part.active_mw), ("idle_mw", part.idle_mw.unwrap_or(0.0))];
            for (key, value) in numbers {
                if !(0.0..=1e6).contains(&value) {
                    let key = match key {
                        "area_mm2" => "parts.area_mm2",
                        "active_mw" => "parts.active_mw",
                        _ => "parts.idle_mw",
                    };
                    return Err(range(key, value, "0 to 1000000 are needed"));
                }
            }
            if part.count == 0 {
                return Err(range("parts.count", 0, "at least 1 is needed"));
            }
        }
        Ok(())
    }

    /// Returns the register width in bits, and the extensions of the core's instruction set, with those that the
    /// interface of programs requires: control and status registers, and stream instructions if the core has streams.
    pub fn extensions(&self) -> (u32, Extensions) {
        let (bits, found) = Extensions::parse(&self.isa).expect("a checked description");
        let found = found.with(Extension::Zicsr);
        (bits, if self.streams > 0 { found.with(Extension::Stream) } else { found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = 'x'\nsource = 'test'\ntick_ps = 1000\nisa = 'rv32im'\nissue = 'in-order'\n[latency]\n";

    #[test]
    fn bad_values_name_key_value_and_range() {
        let of = |more: &str| CoreDescription::parse(&format!("{LEAST}{more}")).unwrap_err().to_string();
        assert!(of("alu = 0").contains("latency.alu = 0: 1 to 4096"));
        assert!(of("adder = 1").contains("latency.adder"));
        let cache = |size: u64, ways: u32, line: u32| {
            of(&format!("[l1d]\nsize_bytes = {size}\nways = {ways}\nline_bytes = {line}\n"))
        };
        assert!(cache(32_768, 8, 48).contains("l1d.line_bytes = 48: a power of two"));
        assert!(cache(32_768, 3, 64).contains("l1d.size_bytes = 32768: a multiple of ways times line_bytes"));
        assert!(cache(3 * 16_384, 8, 64).contains("the number of sets has to be a power of two"));
        assert!(cache(32_768, 0, 64).contains("l1d.ways = 0"));
        let units = "[vliw]\nmultiply = 1\nmemory = 1\ngeneral = 1\nwidth = 2\n";
        assert!(of(units).contains("vliw = units: only a VLIW core"));
        let isa = CoreDescription::parse(&LEAST.replace("rv32im", "rv32iq")).unwrap_err().to_string();
        assert!(isa.contains("isa = \"rv32iq\" (\"q\"): an architecture string"), "{isa}");
    }
}
