//! The part of a report about timed cores: cycles by reason, hits and misses, traffic, energy and area by component.

use serde::Serialize;

use super::{CoreTimes, ProgramsReport};
use crate::describe::{Compute, ComputeParts};

/// Counts of one kind of cache, summed over all cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheReport {
    /// Name of the cache: `l1i`, `l1d` or `l2`.
    pub name: &'static str,
    /// Number of reads.
    pub reads: u64,
    /// Number of reads that missed.
    pub read_misses: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of writes that missed.
    pub write_misses: u64,
}

/// One component of the cores, summed over all cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComponentReport {
    /// Name of the component.
    pub name: &'static str,
    /// Number of components of this name in the device.
    pub count: u32,
    /// Power of all components of this name, in watts.
    pub power_w: f64,
    /// Energy until now of all components of this name, in joules.
    pub energy_j: f64,
    /// Area of all components of this name, in square millimetres.
    pub area_mm2: f64,
}

/// Figures of the timed cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimedCoresReport {
    /// Name of the cores' preset.
    pub core: String,
    /// Number of cycles in which the cores had a call to execute, waits for inputs included; the sum over all cores.
    pub cycles: f64,
    /// Cycles per instruction.
    pub cpi: f64,
    /// Seconds of the cores' cycles by reason, summed over all cores; `stream_wait` are waits for inputs.
    pub seconds_by_reason: Vec<(&'static str, f64)>,
    /// Counts of the caches that the cores have.
    pub caches: Vec<CacheReport>,
    /// Number of cache lines read from DRAM.
    pub lines_read: u64,
    /// Number of cache lines written back to DRAM.
    pub lines_written: u64,
    /// Number of cache lines prefetched from DRAM.
    pub lines_prefetched: u64,
    /// Bytes transferred through DRAM since the store was opened, for any purpose.
    pub dram_bytes: u64,
    /// Bytes transferred through the crossbar.
    pub crossbar_bytes: u64,
    /// Number of input pages that reached a core without passing DRAM.
    pub pages_past_dram: u64,
    /// Number of input pages that crossed DRAM since their channel is not the core's.
    pub pages_of_other_channels: u64,
    /// Number of pages that reached a core from another core, without passing DRAM.
    pub pages_between_cores: u64,
    /// Components of the cores, if the description has their powers or areas.
    pub components: Vec<ComponentReport>,
    /// Area of all components, in square millimetres.
    pub area_mm2: f64,
}

/// Input of a report about timed cores, in addition to the counts of programs.
#[derive(Clone, Copy, Debug)]
pub struct TimedParts<'a> {
    /// The description of the cores.
    pub compute: &'a Compute,
    /// Picoseconds per tick, and ticks per cycle.
    pub tick: (u64, u32),
    /// Times and energy of the cores.
    pub times: &'a CoreTimes,
    /// Bytes transferred through DRAM.
    pub dram_bytes: u64,
    /// Bytes through the crossbar, and numbers of pages that bypassed DRAM, that went through DRAM, and that came from
    /// other cores.
    pub traffic: (u64, u64, u64, u64),
}

impl TimedCoresReport {
    /// Makes the report of timed cores that ran `programs`.
    pub fn new(parts: &TimedParts<'_>, programs: &ProgramsReport) -> Self {
        let (tick_ps, cycle) = parts.tick;
        let tick_s = tick_ps as f64 * 1e-12;
        let mut reasons: Vec<(&'static str, f64)> =
            programs.ticks_by_reason.iter().map(|&(name, ticks)| (name, ticks as f64 * tick_s)).collect();
        reasons.push(("entry_points", programs.entry_ticks as f64 * tick_s));
        let ticks = programs.ticks_by_reason.iter().map(|(_, ticks)| ticks).sum::<u64>() + programs.entry_ticks;
        let cycles = ticks as f64 / f64::from(cycle);
        let cache = |(name, [reads, read_misses, writes, write_misses]): (&'static str, [u64; 4])| {
            (reads + writes > 0).then_some(CacheReport { name, reads, read_misses, writes, write_misses })
        };
        let [lines_read, lines_written, lines_prefetched] = programs.line_counts;
        let (crossbar_bytes, pages_past_dram, pages_of_other_channels, pages_between_cores) = parts.traffic;
        let components = components(parts);
        Self {
            core: parts.compute.core.as_ref().map_or_else(String::new, |core| core.name.clone()),
            cycles,
            cpi: if programs.instructions == 0 { 0.0 } else { cycles / programs.instructions as f64 },
            seconds_by_reason: reasons,
            caches: ["l1i", "l1d", "l2"].into_iter().zip(programs.cache_counts).filter_map(cache).collect(),
            lines_read,
            lines_written,
            lines_prefetched,
            dram_bytes: parts.dram_bytes,
            crossbar_bytes,
            pages_past_dram,
            pages_of_other_channels,
            pages_between_cores,
            area_mm2: components.iter().map(|one| one.area_mm2).sum(),
            components,
        }
    }
}

fn components(parts: &TimedParts<'_>) -> Vec<ComponentReport> {
    let ComputeParts { power_uw, area_mm2 } = parts.compute.parts;
    let all_uw = ComputeParts::sum(&power_uw, parts.compute.cores);
    // The energy of the cores is divided among the components by their power, so that the sum is the cores' energy.
    let energy_j = (parts.times.energy_pj.0 + parts.times.energy_pj.1) * 1e-12;
    let counts = ComputeParts::counts(parts.compute.cores);
    let one = |i: usize| {
        let (power, area, count) = (power_uw[i], area_mm2[i], counts[i]);
        (power > 0.0 || area > 0.0).then(|| ComponentReport {
            name: ComputeParts::NAMES[i],
            count,
            power_w: power * f64::from(count) * 1e-6,
            energy_j: if all_uw > 0.0 { energy_j * power * f64::from(count) / all_uw } else { 0.0 },
            area_mm2: area * f64::from(count),
        })
    };
    (0..counts.len()).filter_map(one).collect()
}
