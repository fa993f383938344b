//! Times of a description in the form the back end adds up: of commands, transfers and suspensions.

use crate::describe::Description;
use nandarray_sim::Ps;

use super::operation::OpKind;
use super::policy::Features;
use super::slab::{CLASSES, OpClass};

/// Times and abilities of a described device, as the back end needs them.
#[derive(Clone, Debug)]
pub(super) struct Times {
    bytes_per_s: u64,
    page_bytes: u32,
    /// Spare bytes that cross the bus with a whole page; 0 if none do.
    spare_bytes: u32,
    /// Bytes and time of the transfer computed last, kept since most transfers of a run have one of two lengths.
    last: (u64, Ps),
    pub(super) t_read_command: Ps,
    pub(super) t_read_further_plane: Ps,
    pub(super) t_program_command: Ps,
    pub(super) t_program_further_plane: Ps,
    pub(super) t_erase_command: Ps,
    pub(super) t_erase_further_plane: Ps,
    pub(super) t_data_out_command: Ps,
    pub(super) t_suspend_command: Ps,
    pub(super) t_ready: Ps,
    /// Mean times of sensing and programming over the kinds of pages, each with `t_ready`; this one is of sensing.
    t_sense_mean: Ps,
    t_program_mean: Ps,
    pub(super) t_cache_read_busy: Option<Ps>,
    pub(super) t_cache_program_busy: Option<Ps>,
    pub(super) t_suspend_program: Option<Ps>,
    pub(super) t_suspend_erase: Option<Ps>,
    pub(super) t_resume: Ps,
    pub(super) suspends_max: u32,
    pub(super) multi_plane: bool,
    pub(super) independent_planes: bool,
    /// Number of pages that are programmed together; 1 without one-shot programming.
    pub(super) word_line_pages: u16,
    /// Time that an incomplete word line waits for its missing pages.
    pub(super) t_hold: Ps,
    /// Time added to the submission time of an operation of each class to form its scheduling key: the operation goes
    /// before host reads that were submitted later by more than this.
    pub(super) patience: [Ps; CLASSES],
}

/// Multiple of the programming time for which programs and background reads give way to younger host reads.
const PATIENCE_PROGRAMS: u64 = 8;
/// Fraction of a die's cycle, as a divisor, by which dies may drift out of step: cycles count as longer by it when the
/// number of planes in a command is chosen.
const OUT_OF_STEP: u64 = 4;
/// Multiple of the erase time for which erases give way to younger reads and programs.
const PATIENCE_ERASES: u64 = 8;

fn mean(all: &[Ps]) -> Ps {
    Ps(all.iter().map(|t| t.0).sum::<u64>() / all.len().max(1) as u64)
}

impl Times {
    /// Returns the times of a description, without those of features that the policy does not use.
    pub(super) fn new(description: &Description, used: Features) -> Self {
        let Description { geometry, bus, nand, .. } = description;
        let t_program = nand.t_program.iter().copied().max().unwrap_or(Ps::ZERO);
        let mut patience = [Ps::ZERO; CLASSES];
        patience[OpClass::ReadBack as usize] = t_program * PATIENCE_PROGRAMS;
        patience[OpClass::ProgramFront as usize] = t_program * PATIENCE_PROGRAMS;
        patience[OpClass::ProgramBack as usize] = t_program * (2 * PATIENCE_PROGRAMS);
        patience[OpClass::Erase as usize] = t_program * PATIENCE_PROGRAMS + nand.t_erase * PATIENCE_ERASES;
        Self {
            bytes_per_s: bus.bytes_per_s,
            page_bytes: geometry.page_bytes,
            spare_bytes: if bus.transfers_spare { geometry.spare_bytes } else { 0 },
            last: (0, Ps::ZERO),
            t_read_command: bus.t_read_command,
            t_read_further_plane: bus.t_read_further_plane,
            t_program_command: bus.t_program_command,
            t_program_further_plane: bus.t_program_further_plane,
            t_erase_command: bus.t_erase_command,
            t_erase_further_plane: bus.t_erase_further_plane,
            t_data_out_command: bus.t_data_out_command,
            t_suspend_command: bus.t_suspend_command,
            t_ready: nand.t_ready,
            t_sense_mean: mean(&nand.t_read) + nand.t_ready,
            t_program_mean: mean(&nand.t_program) + nand.t_ready,
            t_cache_read_busy: nand.t_cache_read_busy.filter(|_| used.cache),
            t_cache_program_busy: nand.t_cache_program_busy.filter(|_| used.cache),
            t_suspend_program: nand.t_suspend_program.filter(|_| used.suspension),
            t_suspend_erase: nand.t_suspend_erase.filter(|_| used.suspension),
            t_resume: nand.t_resume,
            suspends_max: nand.suspends_max,
            multi_plane: nand.multi_plane,
            independent_planes: nand.independent_planes,
            word_line_pages: if nand.one_shot { nand.cell.bits() as u16 } else { 1 },
            t_hold: nand.t_program.first().copied().filter(|_| used.word_lines).unwrap_or(Ps::ZERO),
            patience,
        }
    }

    /// Returns the bytes that cross the bus for `bytes` of a page: these and their share of the page's spare bytes,
    /// since each code word carries its own parity.
    pub(super) fn bus_bytes(&self, bytes: u32) -> u64 {
        if self.spare_bytes == 0 {
            return u64::from(bytes);
        }
        u64::from(bytes) + (u64::from(bytes) * u64::from(self.spare_bytes)).div_ceil(u64::from(self.page_bytes))
    }

    /// Whether adding a plane to a command takes the bus for longer than a separate command would.
    pub(super) fn joining_costs(&self, op: OpKind) -> bool {
        match op {
            OpKind::Read => self.t_read_further_plane > self.t_read_command,
            OpKind::Program => self.t_program_further_plane > self.t_program_command,
            // Erases transfer no data, so the bus is not their bottleneck.
            OpKind::Erase => false,
        }
    }

    /// Returns the number of planes in a command, up to `planes`, that gives the least time per page when `dies` dies
    /// share the bus; the highest such number if several give the same time.
    pub(super) fn best_planes(&self, op: OpKind, bus_bytes: u64, planes: u32, dies: u64) -> u32 {
        let transfer = Ps::of_bytes(bus_bytes, self.bytes_per_s);
        let (command, further, data, array, cache_busy) = match op {
            OpKind::Read => {
                let data = self.t_data_out_command + transfer;
                (self.t_read_command, self.t_read_further_plane, data, self.t_sense_mean, self.t_cache_read_busy)
            }
            _ => {
                let data = transfer * u64::from(self.word_line_pages);
                let busy = self.t_cache_program_busy;
                (self.t_program_command, self.t_program_further_plane, data, self.t_program_mean, busy)
            }
        };
        let (mut best, mut best_ps) = (1, u128::MAX);
        for n in 1..=u64::from(planes) {
            let commands = command + further * (n - 1);
            let bus = commands + data * n;
            let cycle = match (cache_busy, op) {
                (None, _) => bus + array,
                (Some(busy), OpKind::Read) => commands + (array + busy).max(data * n),
                (Some(busy), _) => bus.max(array + busy),
            };
            // The time of one command of each of the `dies` dies. Dies drift out of step, so the bus counts as the
            // bottleneck only if it would be one with somewhat slower dies, too.
            let round = u128::from((bus * dies).max(cycle + Ps(cycle.0 / OUT_OF_STEP)).0);
            // Compares the time per page of `n` planes with the best so far: round / n <= best_ps / best.
            if best_ps == u128::MAX || round * u128::from(best) <= best_ps * u128::from(n) {
                (best, best_ps) = (n, round);
            }
        }
        best as u32
    }

    /// Returns the time of a transfer of `bus_bytes` bytes on the bus.
    pub(super) fn transfer(&mut self, bus_bytes: u64) -> Ps {
        if self.last.0 != bus_bytes {
            self.last = (bus_bytes, Ps::of_bytes(bus_bytes, self.bytes_per_s));
        }
        self.last.1
    }
}
