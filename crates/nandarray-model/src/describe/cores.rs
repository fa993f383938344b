//! The timed core of a description: a preset of `nandarray-uarch` with the description's own caches, latencies, clock
//! and memory.

use nandarray_hart::Extension;
use nandarray_uarch::{
    CacheDescription, CoreDescription, DescribeError, FunctionalUnit, InputPath, MemoryDescription, PrefetchKind,
    Replacement,
};

use super::description::{Compute, Dram, InputFrom, VectorKeys};
use nandarray_sim::Ps;

/// A value of a description that is not allowed for its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreProblem {
    /// The key of the device's description.
    pub(super) key: &'static str,
    /// Description of the problem.
    pub(super) what: String,
    /// The allowed values.
    pub(super) allowed: String,
}

/// Bytes of a line of a cache that the description adds to the core's preset.
const LINE_BYTES: u32 = 64;
/// Ways of a cache that the description adds to the core's preset.
const WAYS: u32 = 8;

impl Compute {
    /// Returns the timed core of the description with this DRAM as its memory; `None` if the core is not a timed one.
    ///
    /// # Panics
    /// If the description does not give a valid core, which is checked when descriptions are read.
    pub fn core_description(&self, dram: &Dram) -> Option<CoreDescription> {
        self.core_checked(dram).unwrap_or_else(|problem| panic!("a core that was checked: {problem:?}"))
    }

    /// Returns the duration of one tick of a core, the unit of its description's latencies: a cycle or a part of one.
    pub fn tick(&self, core: &CoreDescription) -> Ps {
        Ps(core.tick_ps)
    }

    pub(super) fn core_checked(&self, dram: &Dram) -> Result<Option<CoreDescription>, CoreProblem> {
        let Some(name) = self.core else { return Ok(None) };
        let mut core = CoreDescription::preset(name).expect("one of the words of compute.core");
        let cycle_ps = 1_000_000_000_000 / self.clock_hz;
        core.tick_ps = (cycle_ps / u64::from(core.cycle)).max(1);
        resize(&mut core.l1i, self.l1i_bytes, self.l1i_ways, None);
        resize(&mut core.l1d, self.l1d_bytes, self.l1d_ways, self.l1d_ticks);
        resize(&mut core.l2, self.l2_bytes, self.l2_ways, self.l2_ticks);
        if let Some(kind) = self.prefetch {
            let kind = match kind {
                "none" => PrefetchKind::None,
                "next-line" => PrefetchKind::NextLine,
                "stride" => PrefetchKind::Stride,
                "dcpt" => PrefetchKind::Dcpt,
                other => panic!("{other:?} is no word of compute.prefetch"),
            };
            core.prefetch_l1d = kind;
            core.prefetch_l2 = kind;
        }
        // A prefetcher is left out together with its cache.
        if core.l1d.is_none() {
            core.prefetch_l1d = PrefetchKind::None;
        }
        if core.l2.is_none() {
            core.prefetch_l2 = PrefetchKind::None;
        }
        for (unit, ticks) in [
            (FunctionalUnit::Load, self.load_ticks),
            (FunctionalUnit::Store, self.store_ticks),
            (FunctionalUnit::Multiply, self.multiply_ticks),
            (FunctionalUnit::Divide, self.divide_ticks),
        ] {
            if let Some(ticks) = ticks {
                core.latency.set(unit, ticks.max(1));
            }
        }
        self.vector.change(&mut core)?;
        core.scratchpad_bytes = self.scratchpad_bytes;
        core.streams = self.streams;
        core.stream_pages = if self.streams == 0 { 0 } else { self.pages };
        core.pingpong_bytes = self.half_bytes;
        core.input_source = match self.input {
            InputFrom::Dram => InputPath::Dram,
            InputFrom::PingPong => InputPath::PingPong,
            InputFrom::Stream => InputPath::Stream,
        };
        core.t_taken = self.taken_ticks.unwrap_or(core.t_taken);
        core.t_scratchpad = self.scratchpad_ticks.unwrap_or(core.t_scratchpad);
        core.t_stream = self.stream_ticks.unwrap_or(core.t_stream);
        let line_bytes = core.l2.or(core.l1d).or(core.l1i).map_or(LINE_BYTES, |cache| cache.line_bytes);
        let t_line = if dram.bytes_per_s == 0 { Ps::ZERO } else { Ps::of_bytes(line_bytes.into(), dram.bytes_per_s) };
        let ticks = |time: Ps| time.0.div_ceil(core.tick_ps) as u32;
        core.memory = Some(MemoryDescription { t_access: ticks(dram.t_access + t_line), t_line: ticks(t_line) });
        match core.check() {
            Ok(()) => Ok(Some(core)),
            Err(problem) => Err(named(&problem)),
        }
    }
}

impl VectorKeys {
    /// Changes the vector unit of a core where values are given.
    fn change(&self, core: &mut CoreDescription) -> Result<(), CoreProblem> {
        if *self == Self::default() {
            return Ok(());
        }
        let problem = |key, what: String, allowed: &str| CoreProblem { key, what, allowed: allowed.to_owned() };
        if !core.extensions().1.has(Extension::Zve32x) {
            let what = format!("gives a vector unit to {}, which has none", core.name);
            return Err(problem(
                "compute.core",
                what,
                "a core with vectors, or \"none\" for all keys of its vector unit",
            ));
        }
        if let Some(bits) = self.length_bits {
            let least = core.extensions().1.vlen();
            if !bits.is_power_of_two() || bits < least {
                let allowed = format!("a power of two from {least} to 1024");
                return Err(problem("compute.vector_length", format!("is {bits}"), &allowed));
            }
            core.isa = format!("{}_zvl{bits}b", core.isa);
        }
        let mut unit = core.vector_unit();
        if self.length_bits.is_some() {
            // A datapath as wide as the registers grows with them.
            unit.datapath_bits = 0;
        }
        for (value, given) in [
            (&mut unit.datapath_bits, self.datapath_bits),
            (&mut unit.memory_bits, self.memory_bits),
            (&mut unit.t_element, self.element_ticks),
            (&mut unit.align_bits, self.align_bits),
            (&mut unit.t_align, self.align_ticks),
            (&mut unit.unpack_lines, self.unpack_lines),
            (&mut unit.unpack_bits, self.unpack_bits),
            (&mut unit.t_unpack, self.unpack_ticks),
        ] {
            *value = given.unwrap_or(*value);
        }
        core.vector = Some(unit);
        Ok(())
    }
}

/// Changes size, ways and hit latency of a cache where given; 0 bytes remove the cache, and a size adds a missing one.
fn resize(cache: &mut Option<CacheDescription>, bytes: Option<u64>, ways: Option<u32>, ticks: Option<u32>) {
    match (bytes, &mut *cache) {
        (Some(0), _) => *cache = None,
        (Some(size_bytes), Some(cache)) => cache.size_bytes = size_bytes,
        (Some(size_bytes), None) => {
            let replacement = Replacement::Lru;
            *cache = Some(CacheDescription { size_bytes, ways: WAYS, line_bytes: LINE_BYTES, t_hit: 0, replacement });
        }
        (None, _) => {}
    }
    if let Some(cache) = cache {
        cache.ways = ways.unwrap_or(cache.ways);
        cache.t_hit = ticks.unwrap_or(cache.t_hit);
    }
}

/// Translates a problem of a core into one of the device description's key.
fn named(problem: &DescribeError) -> CoreProblem {
    let DescribeError::Range { key, value, range } = problem else {
        return CoreProblem { key: "compute.core", what: problem.to_string(), allowed: String::new() };
    };
    let ours = match &**key {
        "l1i.size_bytes" => "compute.l1i_size",
        "l1i.ways" => "compute.l1i_ways",
        "l1d.size_bytes" => "compute.l1d_size",
        "l1d.ways" => "compute.l1d_ways",
        "l2.size_bytes" => "compute.l2_size",
        "l2.ways" => "compute.l2_ways",
        "t_taken" => "compute.taken_ticks",
        "vector.datapath_bits" => "compute.datapath_bits",
        "vector.memory_bits" => "compute.vector_memory_bits",
        "vector.align_bits" => "compute.align_bits",
        "vector.unpack_bits" => "compute.unpack_bits",
        _ => "compute.core",
    };
    CoreProblem { key: ours, what: format!("gives the core {key} = {value}"), allowed: range.clone().into_owned() }
}
