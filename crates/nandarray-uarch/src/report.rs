//! The figures of a timed core: cycles by reason, instructions by unit, hits and misses.

use std::fmt;

use crate::cache::LineCounts;
use crate::describe::CoreDescription;
use crate::hierarchy::{MemoryCounts, Stall};
use crate::issue::Breakdown;
use crate::parts::{CorePart, PartEnergy};
use crate::unit::FunctionalUnit;
use crate::vector::VectorCounts;

/// Ticks for which the pipeline was frozen, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frozen {
    /// Ticks of waiting for instruction fetches, by the level of the hierarchy that answered.
    pub fetch: Stall,
    /// Ticks of waiting for data accesses, by the level of the hierarchy that answered.
    pub data: Stall,
    /// Ticks of scratchpad accesses, beyond the unit's latency.
    pub scratchpad: u64,
    /// Ticks of stream accesses, beyond the unit's latency.
    pub stream: u64,
    /// Ticks of waiting for bytes in an input stream or room in an output stream.
    pub stream_wait: u64,
    /// Ticks, beyond the first cycle, for which vector instructions used the datapath or the path to memory.
    pub vector: u64,
    /// Ticks of waiting for values of packed streams to be unpacked.
    pub unpack: u64,
}

impl Frozen {
    /// Returns the sum of all ticks.
    pub fn total(&self) -> u64 {
        self.fetch.total()
            + self.data.total()
            + self.scratchpad
            + self.stream
            + self.stream_wait
            + self.vector
            + self.unpack
    }
}

/// Figures of a timed core; times are in its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreReport {
    /// Name of the core's description.
    pub core: String,
    /// Picoseconds per tick.
    pub tick_ps: u64,
    /// Ticks per clock cycle.
    pub cycle: u32,
    /// Sum of all ticks.
    pub ticks: u64,
    /// Ticks of the pipeline, by reason.
    pub pipeline: Breakdown,
    /// Ticks for which the pipeline was frozen, by reason.
    pub frozen: Frozen,
    /// Number of instructions of each unit, in the order of [`FunctionalUnit::ALL`].
    pub instructions_by_unit: [u64; FunctionalUnit::COUNT],
    /// Counts of instruction cache, data cache and second-level cache; `None` for a cache that the core does not have.
    pub caches: [Option<LineCounts>; 3],
    /// Lines that were transferred over the memory's port.
    pub memory: MemoryCounts,
    /// Counts of the vector unit; zeros without one.
    pub vector: VectorCounts,
    /// Area and energy by part, with the parts that cores share.
    pub parts: Vec<PartEnergy>,
}

/// The counts of a core's caches and of its memory port.
pub(crate) struct HierarchyCounts {
    /// Counts of instruction cache, data cache and second-level cache; `None` for a cache that the core does not have.
    pub(crate) caches: [Option<LineCounts>; 3],
    /// Lines that were transferred over the memory's port.
    pub(crate) memory: MemoryCounts,
}

impl CoreReport {
    pub(crate) fn new(
        d: &CoreDescription,
        ticks: u64,
        pipeline: Breakdown,
        frozen: Frozen,
        instructions_by_unit: [u64; FunctionalUnit::COUNT],
        counts: HierarchyCounts,
        vector: VectorCounts,
    ) -> Self {
        let HierarchyCounts { caches, memory } = counts;
        assert_eq!(pipeline.total() + frozen.total(), ticks, "every tick of {} has one reason", d.name);
        let (core, tick_ps, cycle) = (d.name.clone(), d.tick_ps, d.cycle);
        let idle = frozen.stream_wait;
        let time = |ticks: u64| ticks.saturating_mul(d.tick_ps);
        let energy = |part: &CorePart| part.energy(time(ticks - idle), time(idle));
        let parts = d.parts.iter().map(energy).collect();
        Self { core, tick_ps, cycle, ticks, pipeline, frozen, instructions_by_unit, caches, memory, vector, parts }
    }

    /// Returns the number of instructions executed.
    pub fn instructions(&self) -> u64 {
        self.instructions_by_unit.iter().sum()
    }

    /// Returns the number of clock cycles.
    pub fn cycles(&self) -> f64 {
        self.ticks as f64 / f64::from(self.cycle)
    }

    /// Returns the cycles per instruction; 0 without instructions.
    pub fn cpi(&self) -> f64 {
        if self.instructions() == 0 { 0.0 } else { self.cycles() / self.instructions() as f64 }
    }

    /// Returns the energy in joules; 0 if the core's description has no parts.
    pub fn energy_j(&self) -> f64 {
        self.parts.iter().map(|part| part.energy_j).sum()
    }

    /// Returns the area in square millimetres; 0 if the core's description has no parts.
    pub fn area_mm2(&self) -> f64 {
        self.parts.iter().map(|part| part.area_mm2).sum()
    }

    /// Returns ticks by reason, in the order in which a CPI stack (cycles per instruction by reason) is drawn.
    pub fn reasons(&self) -> [(&'static str, u64); 14] {
        let Frozen { fetch, data, scratchpad, stream, stream_wait, vector, unpack } = self.frozen;
        [
            ("issue", self.pipeline.issue),
            ("hazard", self.pipeline.hazard),
            ("structural", self.pipeline.structural),
            ("branch", self.pipeline.branch),
            ("fetch", fetch.l1 + fetch.l2),
            ("fetch_memory", fetch.memory),
            ("l1", data.l1),
            ("l2", data.l2),
            ("memory", data.memory),
            ("scratchpad", scratchpad),
            ("stream", stream),
            ("stream_wait", stream_wait),
            ("vector", vector),
            ("unpack", unpack),
        ]
    }
}

impl fmt::Display for CoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instructions, cycles, cpi) = (self.instructions(), self.cycles(), self.cpi());
        writeln!(f, "{}: {instructions} instructions, {cycles:.0} cycles, {cpi:.3} cycles an instruction", self.core)?;
        for (reason, ticks) in self.reasons().into_iter().filter(|(_, ticks)| *ticks > 0) {
            writeln!(f, "  {reason:<12} {:5.1} %", 100.0 * ticks as f64 / self.ticks as f64)?;
        }
        if self.vector.operations > 0 {
            writeln!(f, "  {:<12} {:5.1} % of its bits carried values", "datapath", 100.0 * self.vector.efficiency())?;
        }
        for (name, counts) in ["l1i", "l1d", "l2"].into_iter().zip(self.caches) {
            if let Some(counts) = counts {
                let accesses = counts.reads + counts.writes;
                writeln!(f, "  {name:<12} {accesses} accesses, {} misses", counts.misses())?;
            }
        }
        Ok(())
    }
}
