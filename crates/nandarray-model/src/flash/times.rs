//! A description's times, ready to be added up: what a command, a transfer, a suspension takes.

use crate::describe::{Description, Scheduling};
use crate::time::Ps;

use super::slab::{CLASSES, Class};

/// Times and abilities of the back end.
#[derive(Clone, Debug)]
pub(super) struct Times {
    bytes_per_s: u64,
    page_bytes: u32,
    /// Bytes that cross the bus with `page_bytes` bytes of a page, beyond them.
    spare_bytes: u32,
    /// The last transfer that was asked for: nearly all of a run are of one or two lengths.
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
    /// How long an incomplete word line waits for the rest of its pages.
    pub(super) t_hold: Ps,
    /// How much older than a host's read an operation of each class has to be to go before it.
    pub(super) patience: [Ps; CLASSES],
}

/// Programs (and background work) that have waited this many program times go before younger reads.
const PATIENCE_PROGRAMS: u64 = 8;
/// Erases that have waited this many erase times go before younger reads and programs.
const PATIENCE_ERASES: u64 = 8;

impl Times {
    pub(super) fn new(description: &Description) -> Self {
        let Description { geometry, bus, nand, .. } = description;
        // MQSim has no cache operations and no word lines, and never comes to suspend.
        let compat = description.controller.scheduling == Scheduling::MqsimCompat;
        let plain = compat || description.controller.scheduling == Scheduling::Fifo;
        let t_program = nand.t_program.iter().copied().max().unwrap_or(Ps::ZERO);
        let mut patience = [Ps::ZERO; CLASSES];
        patience[Class::ReadBack as usize] = t_program * PATIENCE_PROGRAMS;
        patience[Class::ProgramFront as usize] = t_program * PATIENCE_PROGRAMS;
        patience[Class::ProgramBack as usize] = t_program * (2 * PATIENCE_PROGRAMS);
        patience[Class::Erase as usize] = t_program * PATIENCE_PROGRAMS + nand.t_erase * PATIENCE_ERASES;
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

    /// Bytes on the bus for `bytes` of a page: the spare ones go with them in proportion, as each code word has its parity.
    pub(super) fn bus_bytes(&self, bytes: u32) -> u64 {
        if self.spare_bytes == 0 {
            return u64::from(bytes);
        }
        u64::from(bytes) + (u64::from(bytes) * u64::from(self.spare_bytes)).div_ceil(u64::from(self.page_bytes))
    }

    /// The time that so many bytes take on the bus.
    pub(super) fn transfer(&mut self, bus_bytes: u64) -> Ps {
        if self.last.0 != bus_bytes {
            self.last = (bus_bytes, Ps::of_bytes(bus_bytes, self.bytes_per_s));
        }
        self.last.1
    }
}
