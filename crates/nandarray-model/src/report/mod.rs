//! Reports of runs: time, throughput, percentiles, energy by part, write amplification, utilisation, wear.
//!
//! A report consists of plain numbers with units in their names, and is serialised as it is:
//! docs/reference/replay-report.md describes its JSON. The version `schema` is incremented when a field changes its
//! meaning or is removed. `latency` collects requests as they end, `promise` compares with data sheets, `table`
//! formats. [`MachineParts`] holds the counts of a machine's parts.

mod bound;
mod compute;
mod latency;
mod promise;
mod table;

use serde::Serialize;

use crate::flash::{FlashAccount, OpCause};
use crate::ftl::FtlReport;
use crate::host::{DevicePort, Direction, HostCpu, HostLink};
use crate::workload::RequestOp;
use nandarray_sim::Ps;
use nandarray_sim::energy_pj;
use nandarray_uarch::CoreReport;

pub use compute::{CacheReport, ComponentReport, TimedCoresReport, TimedParts};
pub use latency::{Latencies, Latency, OpReport};
pub use promise::{Promise, WorkloadProfile, promises};

/// Version of the report's JSON.
pub const SCHEMA: u32 = 1;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this structure as JSON, [`SCHEMA`].
    pub schema: u32,
    /// The device's name.
    pub device: String,
    /// Seed of all random choices of the device.
    pub seed: u64,
    /// Hash of all events, in hexadecimal: two runs with the same hash did the same at the same times.
    pub hash: String,
    /// Seconds from the first arrival to the last completion.
    pub elapsed_s: f64,
    /// Seconds of modelled time until nothing was in flight, background work included.
    pub until_rest_s: f64,
    /// Figures of the requests of all operations.
    pub all: OpReport,
    /// Figures of the reads.
    pub read: OpReport,
    /// Figures of the writes.
    pub write: OpReport,
    /// Figures of the trims.
    pub trim: OpReport,
    /// Figures of the flushes.
    pub flush: OpReport,
    /// Counts of the flash's operations.
    pub flash: FlashReport,
    /// Counts of flash management; `None` where the host or the store manages the flash.
    pub management: Option<ManagementReport>,
    /// Busy fraction of each part.
    pub utilisation: Utilisation,
    /// Energy by part.
    pub energy: EnergyReport,
    /// Times in the idle states of the description, the lightest first.
    pub idle_states: Vec<IdleReport>,
    /// Figures of the data sheet that apply to this workload, each with the measured figure.
    pub promises: Vec<Promise>,
    /// Counts of the programs that ran on the device's cores; `None` if none ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramsReport>,
    /// Delays of completions on the wall clock; `None` unless modelled time kept pace with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
    /// Assumptions and changes, a sentence each.
    pub notes: Vec<String>,
}

/// Completions of a store whose modelled time keeps pace with a wall clock. A completion is late if the caller received
/// it later than modelled by more than a tenth of the command's latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PaceReport {
    /// Number of completions of commands that take modelled time.
    pub completions: u64,
    /// Number of late completions.
    pub late: u64,
    /// Mean time by which completions were received later than modelled, in seconds.
    pub behind_mean_s: f64,
    /// Longest time by which a completion was received later than modelled, in seconds.
    pub behind_max_s: f64,
}

impl PaceReport {
    /// Returns a sentence with these counts.
    #[must_use]
    pub fn note(&self) -> String {
        format!(
            "Completions kept pace with the wall clock: {} of {} left late (by more than a tenth of their latency); on \
             average {:.0} us after their modelled time, at most {:.0} us.",
            self.late,
            self.completions,
            self.behind_mean_s * 1e6,
            self.behind_max_s * 1e6
        )
    }
}

/// Numbers of flash operations, or of their bytes, by the operations' cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CauseCounts {
    /// Number for the host's requests.
    pub host: u64,
    /// Number for operations on the map.
    pub map: u64,
    /// Number for garbage collection.
    pub gc: u64,
    /// Number for wear levelling.
    pub wear: u64,
}

impl From<[u64; 4]> for CauseCounts {
    fn from(by: [u64; 4]) -> Self {
        let of = |cause: OpCause| by[cause as usize];
        Self { host: of(OpCause::Host), map: of(OpCause::Map), gc: of(OpCause::Gc), wear: of(OpCause::Wear) }
    }
}

/// Counts of the flash's operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlashReport {
    /// Number of pages sensed, retries included.
    pub senses: CauseCounts,
    /// Number of pages programmed.
    pub programs: CauseCounts,
    /// Number of blocks erased.
    pub erases: CauseCounts,
    /// Bytes requested by page reads.
    pub read_bytes: CauseCounts,
    /// Bytes programmed.
    pub program_bytes: CauseCounts,
    /// Number of commands for more than one plane of a die.
    pub multi_plane: u64,
    /// Number of reads that began while data of the read before was still in the die's cache register.
    pub cache_reads: u64,
    /// Number of programs whose data was sent while the die still programmed another page.
    pub cache_programs: u64,
    /// Number of suspensions of programs.
    pub program_suspends: u64,
    /// Number of suspensions of erases.
    pub erase_suspends: u64,
    /// Number of repeated reads of a page that could not be corrected.
    pub retries: u64,
    /// Number of reads whose page could not be corrected.
    pub uncorrectable: u64,
    /// Number of programs and erases that failed.
    pub failed: u64,
}

/// Counts of conventional flash management.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ManagementReport {
    /// Bytes that requests can address.
    pub capacity_bytes: u64,
    /// Pages programmed per page that the host wrote; `None` if it wrote none.
    pub write_amplification: Option<f64>,
    /// Number of logical pages trimmed.
    pub trimmed_pages: u64,
    /// Number of map entries found in the cache.
    pub map_hits: u64,
    /// Number of map entries that had to be read from flash.
    pub map_misses: u64,
    /// Number of live pages at the end.
    pub live_pages: u64,
    /// Number of free blocks at the end.
    pub free_blocks: u64,
    /// Number of blocks bad from the factory.
    pub factory_bad_blocks: u64,
    /// Number of blocks that failed in use.
    pub grown_bad_blocks: u64,
    /// Erase counts of the good blocks over the device's life.
    pub wear: WearReport,
}

/// Erase counts of the good blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WearReport {
    /// Lowest erase count.
    pub min: u32,
    /// Mean erase count.
    pub mean: f64,
    /// Highest erase count.
    pub max: u32,
    /// Number of blocks erased more often than the cells' endurance.
    pub beyond_endurance: u64,
}

/// Busy fraction of each part, from 0 to 1, of the time until nothing is in flight. Pipelined stages and ideal DRAM
/// are never busy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Utilisation {
    /// Busy fraction of each channel's bus.
    pub channels: Vec<f64>,
    /// Busy fraction of each die, channel by channel.
    pub dies: Vec<f64>,
    /// Busy fraction of each controller core.
    pub cores: Vec<f64>,
    /// Fraction of the time in which each core that runs programs worked.
    pub compute: Vec<f64>,
    /// Busy fraction of the link in the direction of the device.
    pub link_down: f64,
    /// Busy fraction of the link in the direction of the host.
    pub link_up: f64,
    /// Busy fraction of the DRAM port.
    pub dram: f64,
    /// Busy fraction of each host core; polling counts as busy.
    pub host_cores: Vec<f64>,
}

/// Energy in joules, by part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EnergyReport {
    /// Energy of sensing pages, in joules.
    pub sense_j: f64,
    /// Energy of programming pages, in joules.
    pub program_j: f64,
    /// Energy of erasing blocks, in joules.
    pub erase_j: f64,
    /// Energy of the channel buses.
    pub bus_j: f64,
    /// Energy of decoding error-correction code words.
    pub ecc_j: f64,
    /// Energy of idle dies.
    pub die_idle_j: f64,
    /// Energy of transfers into and out of DRAM.
    pub dram_j: f64,
    /// Energy of DRAM's refresh and standby.
    pub dram_idle_j: f64,
    /// Energy of transfers over the link.
    pub link_j: f64,
    /// Energy of the link's idle power.
    pub link_idle_j: f64,
    /// Energy of controller cores while they work.
    pub cores_j: f64,
    /// Energy of controller cores while they are idle.
    pub cores_idle_j: f64,
    /// Energy of the cores that run programs, while they work.
    pub compute_j: f64,
    /// Energy of the cores that run programs, while they are idle or wait for data.
    pub compute_idle_j: f64,
    /// Energy of the remaining parts of the controller.
    pub controller_idle_j: f64,
    /// Energy of the whole device in its idle states; the energy of idle parts above is counted only while the device
    /// is awake.
    pub asleep_j: f64,
    /// Total energy of the device: the sum of the fields above.
    pub device_j: f64,
    /// Energy of host cores that work on I/O; not part of the device.
    pub host_cores_j: f64,
    /// Average power of the device until nothing is in flight, in watts.
    pub device_w: f64,
    /// Energy of the device in joules per byte that requests moved; `None` if they moved none.
    pub device_j_per_byte: Option<f64>,
}

/// Time that a device spent in one idle state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slept {
    /// Power of the device in this state, in microwatts.
    pub power_uw: f64,
    /// Time in this state.
    pub lasted: Ps,
    /// Number of times that the device entered this state.
    pub entered: u64,
}

/// Time that a device spent in one idle state, as reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleReport {
    /// Power of the whole device in this state, in watts.
    pub power_w: f64,
    /// Seconds in this state.
    pub asleep_s: f64,
    /// Number of times that the device entered this state.
    pub entered: u64,
}

/// Counts of programs that ran on the device's cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgramsReport {
    /// Number of programs that were interpreted.
    pub interpreted: u64,
    /// Number of programs that were translated to host code; no other count depends on whether a program was.
    pub translated: u64,
    /// Number of tasks of the programs that ran.
    pub tasks: u64,
    /// Number of instructions that the cores executed.
    pub instructions: u64,
    /// Bytes of inputs that came from the flash, without crossing the link.
    pub stored_bytes: u64,
    /// Bytes of inputs that came over the link.
    pub host_bytes: u64,
    /// Bytes of outputs that went over the link.
    pub result_bytes: u64,
    /// Bytes of outputs that went into the flash, without crossing the link.
    pub written_bytes: u64,
    /// Time in which cores worked, in seconds; the sum over all cores.
    pub work_s: f64,
    /// Time in which cores had a program and waited for data, in seconds; the sum over all cores.
    pub wait_s: f64,
    /// Ticks of timed cores by reason, in the order of [`nandarray_uarch::CoreReport::reasons`]; empty without timed
    /// cores.
    #[serde(skip)]
    pub ticks_by_reason: Vec<(&'static str, u64)>,
    /// Ticks of calls of programs' entry points, which run without interruption; these ticks are not among the reasons.
    #[serde(skip)]
    pub entry_ticks: u64,
    /// Numbers of reads, read misses, writes and write misses: of the instruction, data and second-level caches.
    #[serde(skip)]
    pub cache_counts: [[u64; 4]; 3],
    /// Numbers of cache lines that cores read, wrote back and prefetched.
    #[serde(skip)]
    pub line_counts: [u64; 3],
    /// Figures of the host's commands that ended while a program ran; `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_beside: Option<OpReport>,
    /// Figures of the timed cores; `None` if the programs ran on no timed cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_cores: Option<TimedCoresReport>,
}

impl ProgramsReport {
    /// Adds what a timed core did between two of its reports.
    pub fn timed(&mut self, before: &CoreReport, after: &CoreReport) {
        let (reasons, earlier) = (after.reasons(), before.reasons());
        if self.ticks_by_reason.is_empty() {
            self.ticks_by_reason = reasons.iter().map(|&(name, _)| (name, 0)).collect();
        }
        for (sum, ((_, now), (_, then))) in self.ticks_by_reason.iter_mut().zip(reasons.iter().zip(earlier)) {
            sum.1 += now - then;
        }
        for (sums, (now, then)) in self.cache_counts.iter_mut().zip(after.caches.iter().zip(&before.caches)) {
            if let (Some(now), Some(then)) = (now, then) {
                let of = |c: &nandarray_uarch::cache::LineCounts| [c.reads, c.read_misses, c.writes, c.write_misses];
                sums.iter_mut().zip(of(now).into_iter().zip(of(then))).for_each(|(sum, (n, t))| *sum += n - t);
            }
        }
        let of = |c: &nandarray_uarch::MemoryCounts| [c.lines_read, c.lines_written, c.lines_prefetched];
        let pairs = of(&after.memory).into_iter().zip(of(&before.memory));
        self.line_counts.iter_mut().zip(pairs).for_each(|(sum, (n, t))| *sum += n - t);
    }

    /// Returns one sentence on the programs and the assumptions about them. `core` is the preset of timed cores.
    pub fn note(&self, core: Option<&str>) -> String {
        let programs = self.interpreted + self.translated;
        let ran = if programs == 1 { "1 program ran" } else { &format!("{programs} programs ran") };
        if let Some(core) = core {
            return format!(
                "{ran} on the device's timed cores ({core}): {} instructions in {} tasks.",
                self.instructions, self.tasks
            );
        }
        format!(
            "{ran} on the device's cores ({} interpreted, {} translated), at one instruction a cycle of the described \
             clock: {} instructions in {} tasks.",
            self.interpreted, self.translated, self.instructions, self.tasks
        )
    }
}

/// Times and energy of the cores that run programs, until now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// Time in which each core worked.
    pub worked: Vec<Ps>,
    /// Time in which each core had a program and waited for data.
    pub waited: Vec<Ps>,
    /// Energy while the cores worked, and while they were idle or waited, in picojoules.
    pub energy_pj: (f64, f64),
}

/// Counts of a machine's parts, from which a report is made.
pub struct MachineParts<'a> {
    /// Name of the device's description.
    pub device: &'a str,
    /// The description's energies and powers, for the idle powers.
    pub energy: &'a crate::describe::Energy,
    /// Seed of all random choices of the device.
    pub seed: u64,
    /// Hash of all events.
    pub hash: u64,
    /// Modelled time, with nothing in flight.
    pub now: Ps,
    /// Account of the flash.
    pub flash: &'a FlashAccount,
    /// Counts of flash management; `None` where the host or the store manages the flash.
    pub ftl: Option<&'a FtlReport>,
    /// The link, with its bookings.
    pub link: &'a HostLink,
    /// Host cores, with their bookings.
    pub cpu: &'a HostCpu,
    /// The DRAM port, with its bookings.
    pub dram: &'a DevicePort,
    /// Busy times of controller cores until now.
    pub cores: Vec<Ps>,
    /// Energy of controller cores in picojoules: while working, and while idle.
    pub cores_pj: (f64, f64),
    /// Times of the cores that run programs; `None` without such cores.
    pub compute: Option<CoreTimes>,
    /// Time in each idle state.
    pub slept: Vec<Slept>,
}

impl Report {
    /// Makes a report from the counts of parts and the latencies of requests.
    pub fn new(parts: &MachineParts<'_>, latencies: &Latencies) -> Self {
        let all = latencies.all();
        let utilisation = Utilisation::new(parts);
        let bound = bound::note(parts, &utilisation, latencies.elapsed(), all.requests);
        Self {
            schema: SCHEMA,
            device: parts.device.to_owned(),
            seed: parts.seed,
            hash: format!("{:016x}", parts.hash),
            elapsed_s: latencies.elapsed().seconds(),
            until_rest_s: parts.now.seconds(),
            read: latencies.of(RequestOp::Read),
            write: latencies.of(RequestOp::Write),
            trim: latencies.of(RequestOp::Trim),
            flush: latencies.of(RequestOp::Flush),
            flash: FlashReport::new(parts.flash),
            management: parts.ftl.map(ManagementReport::new),
            utilisation,
            energy: EnergyReport::new(parts, all.bytes),
            idle_states: parts.slept.iter().map(IdleReport::new).collect(),
            programs: None,
            pace: None,
            promises: Vec::new(),
            notes: bound.into_iter().collect(),
            all,
        }
    }

    /// Returns the report as JSON, on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers serialise")
    }
}

impl IdleReport {
    fn new(slept: &Slept) -> Self {
        Self { power_w: slept.power_uw * 1e-6, asleep_s: slept.lasted.seconds(), entered: slept.entered }
    }
}

impl FlashReport {
    fn new(account: &FlashAccount) -> Self {
        let c = &account.counts;
        Self {
            senses: c.senses.into(),
            programs: c.programs.into(),
            erases: c.erases.into(),
            read_bytes: c.read_bytes.into(),
            program_bytes: c.program_bytes.into(),
            multi_plane: c.multi_plane,
            cache_reads: c.cache_reads,
            cache_programs: c.cache_programs,
            program_suspends: c.program_suspends,
            erase_suspends: c.erase_suspends,
            retries: c.retries,
            uncorrectable: c.uncorrectable,
            failed: c.failed,
        }
    }
}

impl ManagementReport {
    fn new(ftl: &FtlReport) -> Self {
        Self {
            capacity_bytes: ftl.capacity_pages * u64::from(ftl.page_bytes),
            write_amplification: (ftl.programs[OpCause::Host as usize] > 0).then_some(ftl.write_amplification),
            trimmed_pages: ftl.trimmed,
            map_hits: ftl.map_hits,
            map_misses: ftl.map_misses,
            live_pages: ftl.live_pages,
            free_blocks: ftl.free_blocks,
            factory_bad_blocks: ftl.factory_bad_blocks,
            grown_bad_blocks: ftl.grown_bad_blocks,
            wear: WearReport {
                min: ftl.wear.least,
                mean: ftl.wear.mean,
                max: ftl.wear.most,
                beyond_endurance: ftl.wear.beyond_endurance,
            },
        }
    }
}

impl Utilisation {
    fn new(parts: &MachineParts<'_>) -> Self {
        let now = parts.now;
        let share = |busy: Ps| if now == Ps::ZERO { 0.0 } else { busy.0 as f64 / now.0 as f64 };
        Self {
            channels: parts.flash.channels.iter().map(|t| share(t.total())).collect(),
            dies: parts.flash.dies.iter().map(|t| share(t.total())).collect(),
            cores: parts.cores.iter().map(|&t| share(t)).collect(),
            compute: parts.compute.iter().flat_map(|times| &times.worked).map(|&t| share(t)).collect(),
            link_down: share(parts.link.busy_until(Direction::Down, now)),
            link_up: share(parts.link.busy_until(Direction::Up, now)),
            dram: share(parts.dram.resource().busy_until(now).sum()),
            host_cores: parts.cpu.active_until(now).map(share).collect(),
        }
    }

    /// Returns the busy fractions of the device's parts and its link, with their names.
    fn device(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        let single = [("link_down", self.link_down), ("link_up", self.link_up), ("dram", self.dram)];
        let cores = [("core", &self.cores), ("compute core", &self.compute)];
        let many = [("channel", &self.channels), ("die", &self.dies)].into_iter().chain(cores);
        let many = many.flat_map(|(name, shares)| shares.iter().map(move |&s| (name, s)));
        single.into_iter().chain(many)
    }

    /// Returns all busy fractions, with the parts' names.
    fn all(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.device().chain(self.host_cores.iter().map(|&s| ("host core", s)))
    }
}

impl EnergyReport {
    fn new(parts: &MachineParts<'_>, bytes: u64) -> Self {
        let j = |pj: f64| pj * 1e-12;
        let flash = &parts.flash.energy;
        let asleep: Ps = parts.slept.iter().map(|state| state.lasted).sum();
        let awake = parts.now.since(asleep);
        let mut of = Self {
            sense_j: j(flash.sense_pj),
            program_j: j(flash.program_pj),
            erase_j: j(flash.erase_pj),
            bus_j: j(flash.bus_pj),
            ecc_j: j(flash.ecc_pj),
            die_idle_j: j(flash.idle_pj),
            dram_j: j(parts.dram.energy_pj()),
            dram_idle_j: j(energy_pj(parts.energy.dram_idle_uw, awake)),
            link_j: j(parts.link.energy_pj()),
            link_idle_j: j(parts.link.idle_energy_pj(awake)),
            cores_j: j(parts.cores_pj.0),
            cores_idle_j: j(parts.cores_pj.1),
            compute_j: j(parts.compute.as_ref().map_or(0.0, |times| times.energy_pj.0)),
            compute_idle_j: j(parts.compute.as_ref().map_or(0.0, |times| times.energy_pj.1)),
            controller_idle_j: j(energy_pj(parts.energy.controller_idle_uw, awake)),
            asleep_j: j(parts.slept.iter().map(|state| energy_pj(state.power_uw, state.lasted)).sum()),
            host_cores_j: j(parts.cpu.energy_pj(parts.now)),
            ..Self::default()
        };
        of.device_j = of.parts().iter().map(|(_, part)| part).sum();
        of.device_w = if parts.now == Ps::ZERO { 0.0 } else { of.device_j / parts.now.seconds() };
        of.device_j_per_byte = (bytes > 0).then(|| of.device_j / bytes as f64);
        of
    }

    /// Returns the energy of the device's parts in joules, with their names; the sum is `device_j`.
    pub fn parts(&self) -> [(&'static str, f64); 16] {
        [
            ("sensing", self.sense_j),
            ("programming", self.program_j),
            ("erasing", self.erase_j),
            ("channels", self.bus_j),
            ("decoding", self.ecc_j),
            ("dies at rest", self.die_idle_j),
            ("DRAM", self.dram_j),
            ("DRAM at rest", self.dram_idle_j),
            ("link", self.link_j),
            ("link at rest", self.link_idle_j),
            ("cores", self.cores_j),
            ("cores at rest", self.cores_idle_j),
            ("compute cores", self.compute_j),
            ("compute cores at rest", self.compute_idle_j),
            ("controller", self.controller_idle_j),
            ("idle states", self.asleep_j),
        ]
    }
}

/// A contradiction between the numbers of a report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReportImbalance {
    /// A part was busy for longer than the elapsed time.
    #[error("a {what} was busy for {share} of the time")]
    Busy {
        /// Kind of the part.
        what: &'static str,
        /// Busy fraction of the part.
        share: f64,
    },
    /// The sum over parts is not the device's energy.
    #[error("parts took {parts_j} J, the device {device_j} J")]
    Energy {
        /// Sum over parts, in joules.
        parts_j: f64,
        /// Energy of the device, in joules.
        device_j: f64,
    },
    /// The sum over operations is not the number of all requests.
    #[error("{by_op} requests by operation, {all} in all")]
    Requests {
        /// Sum over operations.
        by_op: u64,
        /// Number of all requests.
        all: u64,
    },
}

impl Report {
    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), ReportImbalance> {
        if let Some((what, share)) = self.utilisation.all().find(|&(_, s)| !(0.0..=1.0 + 1e-9).contains(&s)) {
            return Err(ReportImbalance::Busy { what, share });
        }
        let parts_j: f64 = self.energy.parts().iter().map(|(_, j)| j).sum();
        let device_j = self.energy.device_j;
        // A sum that is no number is no balance either.
        let balanced = (parts_j - device_j).abs() <= 1e-9 * device_j.abs();
        if !balanced {
            return Err(ReportImbalance::Energy { parts_j, device_j });
        }
        let by_op = [&self.read, &self.write, &self.trim, &self.flush].iter().map(|o| o.requests + o.failed).sum();
        let all = self.all.requests + self.all.failed;
        if by_op != all {
            return Err(ReportImbalance::Requests { by_op, all });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
