//! Account of the flash: counts, bytes, busy time, energy; and the check that they add up.

use super::operation::{FlashOp, OpCause, OpKind, OpOutcome};
use crate::describe::Energy;
use nandarray_sim::Ps;

/// By cause, in the order of [`OpCause::ALL`].
pub type PerCause<T> = [T; 4];

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Operations taken.
    pub submitted: u64,
    /// Operations ended, by kind ([`OpKind`]) and cause.
    pub ended: [PerCause<u64>; 3],
    /// Pages sensed, retries included.
    pub senses: PerCause<u64>,
    /// Pages programmed.
    pub programs: PerCause<u64>,
    /// Blocks erased.
    pub erases: PerCause<u64>,
    /// Commands that sensed, whatever number of planes took part; for whom the first of their pages was.
    pub sense_commands: PerCause<u64>,
    /// ... that programmed.
    pub program_commands: PerCause<u64>,
    /// ... that erased.
    pub erase_commands: PerCause<u64>,
    /// Bytes of reads that were delivered; retries are not counted again.
    pub read_bytes: PerCause<u64>,
    /// Bytes brought by programs.
    pub program_bytes: PerCause<u64>,
    /// Bytes that sensed pages had to send, spare ones and retries included.
    pub sensed_bus_bytes: PerCause<u64>,
    /// Bytes that left dies over their channel.
    pub out_bus_bytes: PerCause<u64>,
    /// Bytes that came to dies over their channel.
    pub in_bus_bytes: PerCause<u64>,
    /// Code words decoded.
    pub codewords: PerCause<u64>,
    /// Commands for more than one plane.
    pub multi_plane: u64,
    /// Cache reads.
    pub cache_reads: u64,
    /// Cache programs.
    pub cache_programs: u64,
    /// Word lines programmed at once, with one-shot programming.
    pub word_lines: u64,
    /// Programs interrupted.
    pub program_suspends: u64,
    /// Erases interrupted.
    pub erase_suspends: u64,
    /// Suspended operations that were resumed.
    pub resumes: u64,
    /// Pages sensed again.
    pub retries: u64,
    /// Pages given up.
    pub uncorrectable: u64,
    /// Programs and erases that failed.
    pub failed: u64,
}

/// Busy time of a channel, by what the bus was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusTime {
    /// Commands and addresses.
    pub command: Ps,
    /// Pages to be programmed, with their commands.
    pub data_in: Ps,
    /// Data of reads.
    pub data_out: Ps,
}

impl BusTime {
    /// All of it.
    pub fn total(&self) -> Ps {
        self.command + self.data_in + self.data_out
    }
}

/// Busy time of a die's array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieTime {
    /// Sensing.
    pub sense: Ps,
    /// Programming.
    pub program: Ps,
    /// Erasing.
    pub erase: Ps,
    /// Being interrupted.
    pub suspend: Ps,
}

impl DieTime {
    /// All of it.
    pub fn total(&self) -> Ps {
        self.sense + self.program + self.erase + self.suspend
    }
}

/// Energy by part, in picojoules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashEnergy {
    /// Sensing.
    pub sense_pj: f64,
    /// Programming.
    pub program_pj: f64,
    /// Erasing.
    pub erase_pj: f64,
    /// Moving bytes over channels.
    pub bus_pj: f64,
    /// Decoding.
    pub ecc_pj: f64,
    /// Dies that rest.
    pub idle_pj: f64,
    /// Energy of the operations of each cause; all but the energy of idle parts.
    pub by_cause_pj: PerCause<f64>,
}

impl FlashEnergy {
    /// All of it.
    pub fn total_pj(&self) -> f64 {
        self.sense_pj + self.program_pj + self.erase_pj + self.bus_pj + self.ecc_pj + self.idle_pj
    }
}

/// Everything, at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashAccount {
    /// Elapsed time.
    pub elapsed: Ps,
    /// Counts.
    pub counts: FlashCounts,
    /// Operations taken and not ended.
    pub in_flight: u64,
    /// Busy time of channels.
    pub channels: Vec<BusTime>,
    /// Busy time of dies.
    pub dies: Vec<DieTime>,
    /// Energy.
    pub energy: FlashEnergy,
}

/// A part of the account that does not add up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Imbalance {
    /// An operation was lost or invented.
    #[error("{submitted} operations taken, but {ended} ended and {in_flight} in flight")]
    Operations {
        /// Taken.
        submitted: u64,
        /// Ended.
        ended: u64,
        /// In flight.
        in_flight: u64,
    },
    /// Bytes read from dies and bytes that crossed channels.
    #[error("{sensed} bytes were sensed, {crossed} crossed a channel, with {in_flight} operations in flight")]
    Bytes {
        /// Sensed.
        sensed: u64,
        /// Crossed a channel.
        crossed: u64,
        /// Operations in flight.
        in_flight: u64,
    },
    /// Something was busy for longer than it existed.
    #[error("{what} {number} was busy for {busy} of {elapsed}")]
    Busy {
        /// "channel" or "die".
        what: &'static str,
        /// Which.
        number: usize,
        /// Its busy time.
        busy: Ps,
        /// Of how long.
        elapsed: Ps,
    },
    /// Energy by part and by cause differ.
    #[error("energy by part is {parts_pj} pJ, by cause {causes_pj} pJ")]
    Energy {
        /// Sum of parts.
        parts_pj: f64,
        /// Sum of causes, and of resting.
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

    /// Energy of what was counted, and of `idle` die time.
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
    /// That nothing was lost, invented, or busy for longer than it existed.
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
        if (parts_pj - causes_pj).abs() > 1e-9 * parts_pj.abs() + 1e-6 {
            return Err(Imbalance::Energy { parts_pj, causes_pj });
        }
        Ok(())
    }
}
