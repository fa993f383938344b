//! Descriptions of cores: every value with its key, checked when the description is read.
//!
//! A description is TOML. Times are in ticks of the core, of `tick_ps` picoseconds each: a core whose caches or
//! scratchpads take half cycles has two ticks per cycle. This file does not model pipelines or caches;
//! [`CoreDescription::parse`] returns numbers that the other files may rely on. Presets are in `presets`.

use std::collections::BTreeMap;

use nandarray_describe::{Field, TableKey, ValueKind, number, table, words};
use nandarray_hart::{Extension, Extensions};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{DescribeError, range, within};
use crate::parts::CorePart;
use crate::unit::FunctionalUnit;
use crate::vector::VectorDescription;

words! {
    /// Order in which a core issues instructions.
    pub enum Issue {
        /// One instruction after the other, each occupying the core for its latency, as in gem5's TimingSimple.
        Blocking = "blocking",
        /// In order through a pipeline, which hazards stall.
        InOrder = "in-order",
        /// Blocks are re-scheduled onto the units of a VLIW core.
        Vliw = "vliw",
    }
}

words! {
    /// Replacement policy of a cache: which line leaves a full set.
    #[derive(Default)]
    pub enum Replacement {
        /// Least recently used.
        #[default]
        Lru = "lru",
        /// Pseudo-random by a linear-feedback shift register, as in Spike's cache simulator.
        Lfsr = "lfsr",
    }
}

words! {
    /// Kind of the prefetcher of a cache.
    #[derive(Default)]
    pub enum PrefetchKind {
        /// No prefetches.
        #[default]
        None = "none",
        /// The next line is fetched at each miss.
        NextLine = "next-line",
        /// Lines are fetched ahead by the stride of each instruction's addresses.
        Stride = "stride",
        /// Delta-correlating prediction tables, which repeat patterns of distances (Grannaes, Jahre, Natvig, 2009).
        Dcpt = "dcpt",
    }
}

words! {
    /// Path by which a core gets a task's input.
    #[derive(Default)]
    pub enum InputPath {
        /// From the device's memory, through the caches.
        #[default]
        Dram = "dram",
        /// From a buffer of two halves beside the core: one is filled while the core reads the other.
        PingPong = "ping-pong",
        /// From stream buffers beside the core.
        Stream = "stream",
    }
}

table! {
    /// Description of a cache.
    #[derive(Copy, Eq)]
    pub struct CacheDescription {
        size_bytes: u64, "capacity for data, in bytes";
        ways in 1..=1_024: u32, "number of lines of a set", default by "number::<8>";
        line_bytes: u32, "bytes of a line, a power of two from 8 to 4096", default by "number::<64>";
        t_hit: u32, "ticks that a hit takes beyond the access of the level above; of a first level, beyond the \
            latency of the load or store unit", default;
        replacement: Replacement, "policy that chooses the line that leaves a full set", default;
    }
}

table! {
    /// Memory behind the caches of a core that is not part of a modelled device.
    #[derive(Copy, Eq)]
    pub struct MemoryDescription {
        t_access: u32, "ticks from a miss until its line has arrived";
        t_line: u32, "ticks for which the transfer of a line occupies the memory's port";
    }
}

table! {
    /// Numbers of units of a VLIW core, by kind.
    #[derive(Copy, Eq)]
    pub struct VliwUnits {
        multiply: u32, "number of multipliers (M)";
        memory: u32, "number of load and store units (D)";
        general: u32, "number of units of arithmetic and logic (L and S)";
        width: u32, "maximum number of instructions of an execute packet, which are issued in one cycle";
        simd_pairs: bool, "whether two single-precision operations, loads or stores of the same kind share a unit's \
            cycle", default;
        fused: bool, "whether a fused multiplication and addition is one instruction; otherwise a multiplier and, \
            with the product, a general unit execute it", default by "yes";
    }
}

table! {
    /// Description of a core.
    pub struct CoreDescription {
        name: String, "name of the core";
        source: String, "publication or data sheet that the numbers come from";
        tick_ps in 1..=1_000_000 "picoseconds": u64, "picoseconds per tick";
        cycle in 1..=64 "ticks": u32, "ticks per clock cycle", default by "number::<1>";
        isa: String, "instruction set, for example `rv32im`";
        issue: Issue, "order in which the core issues instructions";
        width in 1..=4 "instructions a cycle": u32, "maximum number of instructions issued per cycle, if the core \
            issues in order", default by "number::<1>";
        latency: UnitLatencies, "ticks from the issue of an instruction to its result, by the unit that executes it";
        unpipelined: Vec<FunctionalUnit>, "units that accept no further instruction until their result is ready",
            default;
        t_taken in 0..=4_096 "ticks": u32, "ticks that a taken branch or jump costs in addition to its cycle",
            default;
        t_not_taken in 0..=4_096 "ticks": u32, "ticks that a branch not taken costs in addition to its cycle",
            default;
        vliw: Option<VliwUnits>, "units of a VLIW core; left out for other cores";
        l1i: Option<CacheDescription>, "instruction cache; if left out, fetching costs nothing";
        l1d: Option<CacheDescription>, "data cache; if left out, an access only takes its unit's latency";
        l2: Option<CacheDescription>, "second-level cache of both, if there is one";
        prefetch_l1d: PrefetchKind, "prefetcher of the data cache", default;
        prefetch_l2: PrefetchKind, "prefetcher of the second-level cache", default;
        t_scratchpad: u32, "ticks of a scratchpad access, in addition to the latency of the load or store unit",
            default;
        t_stream: u32, "ticks of a stream access, in addition to the latency of the load or store unit", default;
        memory: Option<MemoryDescription>, "memory behind the caches, for a core that is not part of a modelled \
            device; if left out, misses cost nothing further";
        scratchpad_bytes: u64, "bytes of scratchpad; 0 if the core has none, and the scratchpad of programs is \
            ordinary memory", default;
        pingpong_bytes: u64, "bytes of both halves of the ping-pong buffer; 0 if the core has none", default;
        streams: u32, "number of input streams, and of output streams; 0 if the core has no stream instructions",
            default;
        stream_pages: u32, "number of pages of each stream that the core's buffers hold", default by "number::<2>";
        input_source: InputPath, "path by which the core gets a task's input", default;
        vector: Option<VectorDescription>, "the vector unit; left out if the description gives no value of one";
        parts: Vec<CorePart>, "parts of the core, with their area and power", default;
    }
}

fn yes() -> bool {
    true
}

/// Latencies of functional units: ticks (of `tick_ps` picoseconds) from an instruction's issue to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLatencies([u32; FunctionalUnit::COUNT]);

impl UnitLatencies {
    /// Latency of a unit that has none of its own, until the ticks of a cycle are known.
    const CYCLE: u32 = u32::MAX;

    /// Returns the latency of a unit, in ticks.
    pub fn of(&self, unit: FunctionalUnit) -> u32 {
        self.0[unit as usize]
    }

    /// Sets the latency of a unit, in ticks.
    pub fn set(&mut self, unit: FunctionalUnit, ticks: u32) {
        self.0[unit as usize] = ticks;
    }
}

impl<'de> Deserialize<'de> for UnitLatencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latency = Self([Self::CYCLE; FunctionalUnit::COUNT]);
        for (name, ticks) in BTreeMap::<String, u32>::deserialize(deserializer)? {
            let unit = FunctionalUnit::ALL.into_iter().find(|unit| unit.word() == name).ok_or_else(|| {
                D::Error::custom(format!("latency.{name}: {NO_UNIT}; there are {}", FunctionalUnit::WORDS.join(", ")))
            })?;
            // As large a number is out of range in any case.
            latency.set(unit, ticks.min(Self::CYCLE - 1));
        }
        Ok(latency)
    }
}

impl Serialize for UnitLatencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FunctionalUnit::ALL.into_iter().zip(self.0))
    }
}

impl Field for UnitLatencies {
    const KIND: ValueKind = ValueKind::Table;
    const KEYS: &'static [TableKey] = &LATENCIES;
}

/// The keys of `[latency]`: a unit each.
const LATENCIES: [TableKey; FunctionalUnit::COUNT] = {
    let kind = ValueKind::Count(1, LATENCY_MAX as u64);
    let (meaning, range) = ("ticks from the issue of an instruction of the unit to its result", "1 to 4096 ticks");
    let mut keys = [TableKey { name: "", meaning, range, kind, keys: &[] }; FunctionalUnit::COUNT];
    let mut unit = 0;
    while unit < keys.len() {
        keys[unit].name = FunctionalUnit::WORDS[unit];
        unit += 1;
    }
    keys
};

/// End of the messages of names that no unit has.
const NO_UNIT: &str = "no unit has this name";

/// Highest latency that is accepted, which keeps pipeline states small.
const LATENCY_MAX: u32 = 4_096;

impl CacheDescription {
    fn check(&self, level: &str) -> Result<(), DescribeError> {
        let CacheDescription { size_bytes, ways: count, line_bytes, .. } = *self;
        if !line_bytes.is_power_of_two() || !(8..=4_096).contains(&line_bytes) {
            return Err(range(format!("{level}.line_bytes"), line_bytes, "a power of two from 8 to 4096 is needed"));
        }
        within(level, self.out_of_range())?;
        let set_bytes = u64::from(line_bytes) * u64::from(count);
        if size_bytes == 0 || size_bytes > 1 << 34 || size_bytes % set_bytes != 0 {
            return Err(range(
                format!("{level}.size_bytes"),
                size_bytes,
                "a multiple of ways times line_bytes up to 16 GiB is needed",
            ));
        }
        if !(size_bytes / set_bytes).is_power_of_two() {
            return Err(range(
                format!("{level}.size_bytes"),
                size_bytes,
                "the number of sets has to be a power of two",
            ));
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
        let mut core: Self = toml::from_str(text).map_err(|e| {
            let named = e.message().contains(NO_UNIT);
            DescribeError::Syntax(if named { e.message().to_owned() } else { e.to_string() })
        })?;
        core.latency.0.iter_mut().filter(|ticks| **ticks == UnitLatencies::CYCLE).for_each(|ticks| *ticks = core.cycle);
        core.check()?;
        Ok(core)
    }

    /// Checks a description that was built or changed by a program.
    ///
    /// # Errors
    /// [`DescribeError::Range`]: a value is out of its range.
    pub fn check(&self) -> Result<(), DescribeError> {
        within("", self.out_of_range())?;
        for unit in FunctionalUnit::ALL {
            let ticks = self.latency.of(unit);
            if !(1..=LATENCY_MAX).contains(&ticks) {
                return Err(range(
                    format!("latency.{}", unit.word()),
                    ticks,
                    TableKey::needed(1, LATENCY_MAX, "ticks"),
                ));
            }
        }
        for (cache, level) in [(&self.l1i, "l1i"), (&self.l1d, "l1d"), (&self.l2, "l2")] {
            if let Some(cache) = cache {
                cache.check(level)?;
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
        if self.stream_pages > 4_096 || (self.stream_pages == 0 && self.streams > 0) {
            return Err(range("stream_pages", self.stream_pages, "1 to 4096 are needed if there are streams"));
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
        vector.check(extensions.vlen())
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
                    return Err(range(format!("parts.{key}"), value, "0 to 1000000 are needed"));
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

    /// The page has a row of each key; `.key` is that of a table.
    #[test]
    fn the_reference_has_every_key_and_its_range() {
        let page = include_str!("../../../docs/reference/core-descriptions.md");
        let tables = [
            ("", CoreDescription::KEYS),
            (".", CacheDescription::KEYS),
            (".", VectorDescription::KEYS),
            ("", MemoryDescription::KEYS),
            ("", CorePart::KEYS),
        ];
        for (dot, keys) in tables {
            for key in keys {
                let names =
                    [format!("`{dot}{}`", key.name), format!("`[{}]`", key.name), format!("`[[{}]]`", key.name)];
                let row = page.lines().find(|row| names.iter().any(|name| row.starts_with('|') && row.contains(name)));
                let row = row.unwrap_or_else(|| panic!("{} has no row", key.name));
                let range = key.range.replace('_', "");
                let ends = range.split(' ').filter(|word| word.parse::<u64>().is_ok());
                assert!(ends.clone().count() == 0 || ends.clone().all(|end| row.contains(end)), "{range}: {row}");
            }
        }
    }
}
