//! A scoreboard: computes, instruction by instruction, when each is issued and why it waited.
//!
//! In order: an instruction is issued when its operands and its unit are ready and the cycle has a free slot. A cycle
//! has as many slots as the core is wide, and takes one memory access and one operation of the vector datapath. Results
//! are forwarded after the latency of their unit. On a blocking core nothing overlaps: an instruction is issued when
//! the one before it is complete.

use super::{Breakdown, PipelineState, TimedOp};
use crate::describe::{CoreDescription, Issue};
use crate::unit::{FunctionalUnit, NUM_E, REGISTERS};

/// A pipeline while it issues the instructions of a block. Times are ticks from the block's beginning.
#[derive(Clone, Debug)]
pub struct Scoreboard<'d> {
    description: &'d CoreDescription,
    /// The tick in which the next instruction may be issued: the beginning of a cycle.
    now: u64,
    slots: u32,
    memory: bool,
    vector: bool,
    ready: [u64; REGISTERS],
    free: [u64; FunctionalUnit::COUNT],
    ticks: Breakdown,
}

impl<'d> Scoreboard<'d> {
    pub(super) fn new(description: &'d CoreDescription, state: &PipelineState) -> Self {
        let mut board = Self {
            description,
            now: 0,
            slots: state.slots,
            memory: state.memory,
            vector: state.vector,
            ready: [0; REGISTERS],
            free: [0; FunctionalUnit::COUNT],
            ticks: Breakdown::default(),
        };
        for &(register, ticks) in &state.registers {
            board.ready[register as usize] = u64::from(ticks);
        }
        for &(unit, ticks) in &state.units {
            board.free[unit as usize] = u64::from(ticks);
        }
        board
    }

    /// Returns the ticks so far, by reason.
    pub fn ticks(&self) -> Breakdown {
        self.ticks
    }

    /// Issues the next instruction; returns the ticks from the block's beginning to its issue.
    pub fn issue(&mut self, op: &TimedOp) -> u32 {
        let at = match self.description.issue {
            Issue::Blocking => self.issue_blocking(op),
            Issue::InOrder | Issue::Vliw => self.issue_in_order(op),
        };
        debug_assert_eq!(self.ticks.total(), self.now, "every tick has a reason");
        at as u32
    }

    fn issue_blocking(&mut self, op: &TimedOp) -> u64 {
        let d = self.description;
        let (at, latency) = (self.now, u64::from(d.latency_of(op.unit)));
        let cycle = u64::from(d.cycle).min(latency);
        self.ticks.issue += cycle;
        if matches!(op.unit, FunctionalUnit::Branch | FunctionalUnit::Jump) {
            self.ticks.branch += latency - cycle;
        } else {
            self.ticks.structural += latency - cycle;
        }
        self.now += latency;
        if op.conditional {
            self.ticks.branch += u64::from(d.t_not_taken);
            self.now += u64::from(d.t_not_taken);
        }
        at
    }

    fn issue_in_order(&mut self, op: &TimedOp) -> u64 {
        let d = self.description;
        let cycle = u64::from(d.cycle);
        let (access, computes) = (op.unit.accesses_memory(), op.unit.uses_datapath());
        let taken = access && self.memory || computes && self.vector;
        if self.slots > 0 && (self.slots == d.width || taken) {
            self.next_cycle();
        }
        let latency = u64::from(d.latency_of(op.unit));
        let sources = op.operands.sources().iter().map(|&register| self.ready[register as usize]).max().unwrap_or(0);
        // Results of one register are written in order: none overtakes an older one.
        let older = op.operands.destination.map_or(0, |r| (self.ready[r as usize] + 1).saturating_sub(latency));
        let operands = sources.max(older);
        let unit = self.free[op.unit as usize];
        let wait = |until: u64, now: u64| until.saturating_sub(now).div_ceil(cycle) * cycle;
        let for_operands = wait(operands, self.now);
        let for_unit = wait(unit, self.now + for_operands);
        if for_operands + for_unit > 0 {
            if self.slots > 0 {
                // The cycle, which had free slots left, is over: it counts as issue, and the wait is shorter by one
                // cycle.
                self.next_cycle();
                return self.issue_in_order(op);
            }
            self.ticks.hazard += for_operands;
            self.ticks.structural += for_unit;
            self.now += for_operands + for_unit;
        }
        let at = self.now;
        if let Some(register) = op.operands.destination {
            self.ready[register as usize] = at + latency;
        }
        if op.operands.counts {
            let num_e = &mut self.ready[NUM_E as usize];
            *num_e = (*num_e).max(at + latency);
        }
        if d.unpipelined.contains(&op.unit) {
            self.free[op.unit as usize] = at + latency;
        }
        debug_assert!(self.slots < d.width, "{} slots of {} are taken", self.slots, d.width);
        self.slots += 1;
        self.memory |= access;
        self.vector |= computes;
        match op.unit {
            FunctionalUnit::Jump => self.redirect(latency.saturating_sub(cycle)),
            FunctionalUnit::Branch if d.t_not_taken > 0 => self.redirect(u64::from(d.t_not_taken)),
            _ => {}
        }
        at
    }

    fn next_cycle(&mut self) {
        self.now += u64::from(self.description.cycle);
        self.ticks.issue += u64::from(self.description.cycle);
        debug_assert!(self.slots > 0, "a cycle in which nothing was issued");
        (self.slots, self.memory, self.vector) = (0, false, false);
    }

    /// Ends the current cycle, and blocks the issue of instructions for some more ticks.
    fn redirect(&mut self, ticks: u64) {
        if self.slots > 0 {
            self.next_cycle();
        }
        self.now += ticks;
        self.ticks.branch += ticks;
    }

    /// Adds the cost of a taken branch to the conditional branch that was issued last.
    pub fn take_branch(&mut self) {
        let d = self.description;
        let extra = u64::from(d.t_taken.saturating_sub(d.t_not_taken));
        if d.issue == Issue::Blocking {
            self.now += extra;
            self.ticks.branch += extra;
        } else {
            self.redirect(extra);
        }
    }

    /// Returns the pipeline state after the instructions issued so far.
    pub fn state(&self) -> PipelineState {
        let later = |times: &[u64]| -> Vec<(u8, u32)> {
            let left = |&(_, &time): &(usize, &u64)| time > self.now;
            times.iter().enumerate().filter(left).map(|(i, time)| (i as u8, (time - self.now) as u32)).collect()
        };
        PipelineState {
            registers: later(&self.ready),
            units: later(&self.free),
            slots: self.slots,
            memory: self.memory,
            vector: self.vector,
            iteration: None,
        }
    }
}
