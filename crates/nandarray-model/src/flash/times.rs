//! A description's times, ready to be added up: what a command, a transfer, a suspension takes.

use crate::describe::{Description, Scheduling};
use nandarray_sim::Ps;

use super::operation::OpKind;
use super::slab::{CLASSES, OpClass};

/// Times and abilities of the back end.
#[derive(Clone, Debug)]
pub(super) struct Times {
    bytes_per_s: u64,
    page_bytes: u32,
    /// Bytes that cross the bus with `page_bytes` bytes of a page, beyond them.
    spare_bytes: u32,
    /// Bytes and time of the last transfer: nearly all of a run have one or two lengths.
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
    /// Sensing and programming on average over kinds of pages, to the end of their array's work.
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
    /// Pages that are programmed together; 1 without one-shot programming.
    pub(super) word_line_pages: u16,
    /// Time that an incomplete word line waits for the rest of its pages.
    pub(super) t_hold: Ps,
    /// Age beyond a host's read from which an operation of each class goes before it.
    pub(super) patience: [Ps; CLASSES],
}

/// Programs (and background work) that have waited this many program times go before younger reads.
const PATIENCE_PROGRAMS: u64 = 8;
/// Part of its own time by which a die may be late for its turn at the bus, in the decision whether planes join.
const OUT_OF_STEP: u64 = 4;
/// Erases that have waited this many erase times go before younger reads and programs.
const PATIENCE_ERASES: u64 = 8;

fn mean(all: &[Ps]) -> Ps {
    Ps(all.iter().map(|t| t.0).sum::<u64>() / all.len().max(1) as u64)
}

impl Times {
    pub(super) fn new(description: &Description) -> Self {
        let Description { geometry, bus, nand, .. } = description;
        // MQSim has no cache operations and no word lines, and never comes to suspend.
        let compat = description.controller.scheduling == Scheduling::MqsimCompat;
        let plain = compat || description.controller.scheduling == Scheduling::Fifo;
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
            t_cache_read_busy: nand.t_cache_read_busy.filter(|_| !compat),
            t_cache_program_busy: nand.t_cache_program_busy.filter(|_| !compat),
            t_suspend_program: nand.t_suspend_program.filter(|_| !plain),
            t_suspend_erase: nand.t_suspend_erase.filter(|_| !plain),
            t_resume: nand.t_resume,
            suspends_max: nand.suspends_max,
            multi_plane: nand.multi_plane,
            independent_planes: nand.independent_planes && !compat,
            word_line_pages: if nand.one_shot { nand.cell.bits() as u16 } else { 1 },
            t_hold: if compat { Ps::ZERO } else { nand.t_program.first().copied().unwrap_or(Ps::ZERO) },
            patience,
        }
    }

    /// Bytes on the bus for `bytes` of a page: the spare ones go with them in proportion, as each code word has its
    /// parity.
    pub(super) fn bus_bytes(&self, bytes: u32) -> u64 {
        if self.spare_bytes == 0 {
            return u64::from(bytes);
        }
        u64::from(bytes) + (u64::from(bytes) * u64::from(self.spare_bytes)).div_ceil(u64::from(self.page_bytes))
    }

    /// Whether a plane that joins a command takes the bus for longer than a command of its own would.
    pub(super) fn joining_costs(&self, op: OpKind) -> bool {
        match op {
            OpKind::Read => self.t_read_further_plane > self.t_read_command,
            OpKind::Program => self.t_program_further_plane > self.t_program_command,
            // No data follows: the bus is not what erases wait for.
            OpKind::Erase => false,
        }
    }

    /// Number of planes in a command, up to `planes`, with the least time a page when `dies` dies share the bus; the
    /// highest of those with the same time.
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
            // Of `dies` commands. Dies fall out of step, so the bus is the bound only where it would be with slower
            // dies, too.
            let round = u128::from((bus * dies).max(cycle + Ps(cycle.0 / OUT_OF_STEP)).0);
            // A page of this many planes against one of the best: round / n <= best_ps / best.
            if best_ps == u128::MAX || round * u128::from(best) <= best_ps * u128::from(n) {
                (best, best_ps) = (n, round);
            }
        }
        best as u32
    }

    /// Time of a transfer of this many bytes on the bus.
    pub(super) fn transfer(&mut self, bus_bytes: u64) -> Ps {
        if self.last.0 != bus_bytes {
            self.last = (bus_bytes, Ps::of_bytes(bus_bytes, self.bytes_per_s));
        }
        self.last.1
    }
}
