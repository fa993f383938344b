//! Account of the flash: counts, bytes, busy time and energy, with a check that they are consistent.

use super::operation::{FlashOp, OpCause, OpKind, OpOutcome};
use crate::describe::Energy;
use nandarray_sim::Ps;

/// One value per cause, in the order of [`OpCause::ALL`].
pub type PerCause<T> = [T; 4];

/// Counts of a device's flash operations, commands and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Number of operations submitted.
    pub submitted: u64,
    /// Number of operations ended, by kind ([`OpKind`]) and cause.
    pub ended: [PerCause<u64>; 3],
    /// Number of pages sensed, retries included.
    pub senses: PerCause<u64>,
    /// Number of pages programmed.
    pub programs: PerCause<u64>,
    /// Number of blocks erased.
    pub erases: PerCause<u64>,
    /// Number of commands that sensed pages, each counted once however many planes took part, under the cause of its
    /// first page.
    pub sense_commands: PerCause<u64>,
    /// Number of commands that programmed pages, counted like `sense_commands`.
    pub program_commands: PerCause<u64>,
    /// Number of commands that erased blocks, counted like `sense_commands`.
    pub erase_commands: PerCause<u64>,
    /// User-data bytes returned by reads; retries are not counted again.
    pub read_bytes: PerCause<u64>,
    /// User-data bytes written by programs.
    pub program_bytes: PerCause<u64>,
    /// Bytes that sensed pages put on the bus or will put on it, spare bytes and retries included.
    pub sensed_bus_bytes: PerCause<u64>,
    /// Bytes transferred from dies over their channel, spare bytes included.
    pub out_bus_bytes: PerCause<u64>,
    /// Bytes transferred to dies over their channel, spare bytes included.
    pub in_bus_bytes: PerCause<u64>,
    /// Number of error-correction code words decoded.
    pub codewords: PerCause<u64>,
    /// Number of commands for more than one plane of a die.
    pub multi_plane: u64,
    /// Number of reads that began while data of the read before was still in the die's cache register.
    pub cache_reads: u64,
    /// Number of programs whose data was sent while the die still programmed another page.
    pub cache_programs: u64,
    /// Number of commands that programmed several pages of a word line at once.
    pub word_lines: u64,
    /// Number of suspensions of programs.
    pub program_suspends: u64,
    /// Number of suspensions of erases.
    pub erase_suspends: u64,
    /// Number of resumptions of suspended programs and erases.
    pub resumes: u64,
    /// Number of repeated reads of a page that could not be corrected.
    pub retries: u64,
    /// Number of reads that failed after all retries.
    pub uncorrectable: u64,
    /// Number of programs and erases that failed.
    pub failed: u64,
}

/// Busy time of a channel's bus, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusTime {
    /// Time of command and address cycles.
    pub command: Ps,
    /// Time in which data of programs was transferred, with their commands.
    pub data_in: Ps,
    /// Time in which data of reads was transferred.
    pub data_out: Ps,
}

impl BusTime {
    /// Returns the total busy time.
    pub fn total(&self) -> Ps {
        self.command + self.data_in + self.data_out
    }
}

/// Busy time of a die's cell array, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieTime {
    /// Time spent sensing pages.
    pub sense: Ps,
    /// Time spent programming pages.
    pub program: Ps,
    /// Time spent erasing blocks.
    pub erase: Ps,
    /// Time spent suspending programs and erases.
    pub suspend: Ps,
}

impl DieTime {
    /// Returns the total busy time.
    pub fn total(&self) -> Ps {
        self.sense + self.program + self.erase + self.suspend
    }
}

/// Energy by part, in picojoules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashEnergy {
    /// Energy of sensing pages.
    pub sense_pj: f64,
    /// Energy of programming pages.
    pub program_pj: f64,
    /// Energy of erasing blocks.
    pub erase_pj: f64,
    /// Energy of transfers over channels.
    pub bus_pj: f64,
    /// Energy of decoding error-correction code words.
    pub ecc_pj: f64,
    /// Energy of idle dies.
    pub idle_pj: f64,
    /// Energy of the operations of each cause; idle energy belongs to none.
    pub by_cause_pj: PerCause<f64>,
}

impl FlashEnergy {
    /// Returns the total energy in picojoules.
    pub fn total_pj(&self) -> f64 {
        self.sense_pj + self.program_pj + self.erase_pj + self.bus_pj + self.ecc_pj + self.idle_pj
    }
}

/// Account of a device's flash from the beginning to a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashAccount {
    /// End of the account, as time since the beginning.
    pub elapsed: Ps,
    /// Counts of operations, commands and bytes.
    pub counts: FlashCounts,
    /// Number of operations submitted and not ended.
    pub in_flight: u64,
    /// Busy time of each channel.
    pub channels: Vec<BusTime>,
    /// Busy time of each die.
    pub dies: Vec<DieTime>,
    /// Energy by part and by cause.
    pub energy: FlashEnergy,
}

/// A contradiction between the numbers of an account.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Imbalance {
    /// An operation was lost or invented.
    #[error("{submitted} operations taken, but {ended} ended and {in_flight} in flight")]
    Operations {
        /// Number of operations submitted.
        submitted: u64,
        /// Number of operations ended.
        ended: u64,
        /// Number of operations in flight.
        in_flight: u64,
    },
    /// More bytes crossed channels than were sensed, or fewer although nothing is in flight.
    #[error("{sensed} bytes were sensed, {crossed} crossed a channel, with {in_flight} operations in flight")]
    Bytes {
        /// Bytes sensed.
        sensed: u64,
        /// Bytes that crossed a channel.
        crossed: u64,
        /// Number of operations in flight.
        in_flight: u64,
    },
    /// A channel or die was busy for longer than the elapsed time.
    #[error("{what} {number} was busy for {busy} of {elapsed}")]
    Busy {
        /// "channel" or "die".
        what: &'static str,
        /// Number of the channel or die.
        number: usize,
        /// Busy time of the channel or die.
        busy: Ps,
        /// Elapsed time of the account.
        elapsed: Ps,
    },
    /// The sums of energy by part and by cause differ.
    #[error("energy by part is {parts_pj} pJ, by cause {causes_pj} pJ")]
    Energy {
        /// Sum over parts, in picojoules.
        parts_pj: f64,
        /// Sum over causes plus idle energy, in picojoules.
        causes_pj: f64,
    },
}

impl FlashCounts {
    pub(super) fn took(&mut self) {
        self.submitted += 1;
    }

    pub(super) fn ended(&mut self, operation: &FlashOp, outcome: OpOutcome) {
        let cause = operation.cause as usize;
        self.ended[operation.op as usize][cause] += 1;
        debug_assert!(self.ended.iter().flatten().sum::<u64>() <= self.submitted, "{operation:?} ended twice");
        match operation.op {
            OpKind::Read => self.read_bytes[cause] += u64::from(operation.bytes),
            OpKind::Program => self.program_bytes[cause] += u64::from(operation.bytes),
            OpKind::Erase => {}
        }
        match outcome {
            OpOutcome::Done => {}
            OpOutcome::Uncorrectable => self.uncorrectable += 1,
            OpOutcome::Failed => self.failed += 1,
        }
    }

    /// Returns the energy of everything counted, plus that of dies which were idle for `idle` in total.
    pub(super) fn energy(&self, of: &Energy, idle: Ps) -> FlashEnergy {
        let mut energy = FlashEnergy::default();
        for cause in OpCause::ALL {
            let i = cause as usize;
            let took = |n: PerCause<u64>, each_pj: f64, commands: PerCause<u64>, command_pj: f64| {
                n[i] as f64 * each_pj + commands[i] as f64 * command_pj
            };
            let sense_pj = took(self.senses, of.read_pj, self.sense_commands, of.read_command_pj);
            let program_pj = took(self.programs, of.program_pj, self.program_commands, of.program_command_pj);
            let erase_pj = took(self.erases, of.erase_pj, self.erase_commands, of.erase_command_pj);
            let bus_pj = (self.out_bus_bytes[i] + self.in_bus_bytes[i]) as f64 * of.bus_pj_per_byte;
            let ecc_pj = self.codewords[i] as f64 * of.ecc_pj;
            energy.sense_pj += sense_pj;
            energy.program_pj += program_pj;
            energy.erase_pj += erase_pj;
            energy.bus_pj += bus_pj;
            energy.ecc_pj += ecc_pj;
            energy.by_cause_pj[i] = sense_pj + program_pj + erase_pj + bus_pj + ecc_pj;
        }
        // A microwatt is a picojoule a microsecond.
        energy.idle_pj = of.die_idle_uw * idle.us();
        energy
    }
}

impl FlashAccount {
    /// Checks that no operation or byte was lost or invented, that no part was busy for longer than the elapsed time,
    /// and that energy by part and by cause agree.
    pub fn check(&self) -> Result<(), Imbalance> {
        let counts = &self.counts;
        let in_flight = self.in_flight;
        let ended: u64 = counts.ended.iter().flatten().sum();
        if counts.submitted != ended + in_flight {
            return Err(Imbalance::Operations { submitted: counts.submitted, ended, in_flight });
        }
        let sensed: u64 = counts.sensed_bus_bytes.iter().sum();
        let crossed: u64 = counts.out_bus_bytes.iter().sum();
        if crossed > sensed || (in_flight == 0 && crossed != sensed) {
            return Err(Imbalance::Bytes { sensed, crossed, in_flight });
        }
        let channels = self.channels.iter().map(BusTime::total).enumerate().map(|(i, t)| ("channel", i, t));
        let dies = self.dies.iter().map(DieTime::total).enumerate().map(|(i, t)| ("die", i, t));
        if let Some((what, number, busy)) = channels.chain(dies).find(|&(_, _, t)| t > self.elapsed) {
            return Err(Imbalance::Busy { what, number, busy, elapsed: self.elapsed });
        }
        let parts_pj = self.energy.total_pj();
        let causes_pj = self.energy.by_cause_pj.iter().sum::<f64>() + self.energy.idle_pj;
        // A sum that is no number is no balance either.
        let balanced = (parts_pj - causes_pj).abs() <= 1e-9 * parts_pj.abs() + 1e-6;
        if !balanced {
            return Err(Imbalance::Energy { parts_pj, causes_pj });
        }
        Ok(())
    }
}
