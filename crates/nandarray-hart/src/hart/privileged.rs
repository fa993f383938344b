//! The privileged modes of a bare machine: entering traps, returning from them, interrupts, and the guard of memory
//! accesses.
//!
//! Builds without the feature `bare` use `unprivileged` instead of this file.

use crate::csr::{Csrs, FS, MIE, MPIE, MPP, MPRV, Privilege, SIE, SPIE, SPP, TSR, TVM, TW, VS};
use crate::exec::Env;
use crate::hart::system::{ILLEGAL, SystemOutcome, trap};
use crate::hart::{Hart, HartMode};
use crate::isa::{Code, Extension, Extensions, Instruction};
use crate::meter::Meter;
use crate::protect::Guard;
use crate::trap::{Cause, Trap};
use crate::xlen::Xlen;

/// The state of the privileged modes.
#[derive(Debug)]
pub(crate) struct Privileged {
    mode: Privilege,
    csrs: Csrs,
    /// Whether registers that determine how memory is accessed have changed, so that the guard must be computed again.
    looks_anew: bool,
    /// The page tables and memory protection under which the decoded blocks were fetched; `None` if there were none.
    decoded_behind: Option<Guard>,
}

impl Privileged {
    pub(crate) fn new(mode: HartMode, extensions: Extensions) -> Self {
        let all = u64::from(u32::MAX);
        let (mode, csrs) = match mode {
            HartMode::Program => (Privilege::User, Csrs { mcounteren: all, scounteren: all, ..Csrs::default() }),
            HartMode::Bare => (Privilege::Machine, Csrs::default()),
        };
        let csrs = Csrs { has_vectors: extensions.has(Extension::Zve32x), ..csrs };
        Self { mode, csrs, looks_anew: false, decoded_behind: None }
    }
}

impl<X: Xlen, M: Meter> Hart<X, M> {
    /// Returns the hart's current privilege mode.
    pub fn privilege(&self) -> Privilege {
        self.privileged.mode
    }

    /// Prepares a run, which may be on other memory than the last.
    pub(super) fn begin_run(&mut self) {
        self.privileged.looks_anew = self.mode == HartMode::Bare;
    }

    /// Takes a pending interrupt, and applies changes of registers that determine how memory is accessed. Called
    /// between two blocks.
    pub(super) fn between_blocks(&mut self, env: &mut Env<'_, '_>) {
        self.take_interrupt();
        if self.privileged.looks_anew {
            self.look(env);
        }
    }

    /// Executes a privileged instruction, or an environment call of a bare machine.
    pub(super) fn execute_privileged(&mut self, op: &Instruction, env: &mut Env<'_, '_>) -> SystemOutcome {
        let status = self.privileged.csrs.mstatus;
        match op.code {
            Code::Ecall => match self.privileged.mode {
                Privilege::User => trap(Cause::UserCall, 0),
                Privilege::Supervisor => trap(Cause::SupervisorCall, 0),
                Privilege::Machine => trap(Cause::MachineCall, 0),
            },
            Code::Mret if self.privileged.mode == Privilege::Machine => {
                let to = Privilege::from_bits(status >> 11);
                let enabled = if status & MPIE != 0 { MIE } else { 0 };
                let mprv = if to == Privilege::Machine { status & MPRV } else { 0 };
                self.privileged.csrs.mstatus = status & !(MIE | MPP | MPRV) | MPIE | enabled | mprv;
                self.privileged.mode = to;
                self.privileged.looks_anew = true;
                SystemOutcome::Jump(self.privileged.csrs.mepc)
            }
            Code::Sret
                if self.privileged.mode == Privilege::Machine
                    || self.privileged.mode == Privilege::Supervisor && status & TSR == 0 =>
            {
                let enabled = if status & SPIE != 0 { SIE } else { 0 };
                self.privileged.csrs.mstatus = status & !(SIE | SPP | MPRV) | SPIE | enabled;
                self.privileged.mode = Privilege::from_bits(status >> 8 & 1);
                self.privileged.looks_anew = true;
                SystemOutcome::Jump(self.privileged.csrs.sepc)
            }
            // A wait for an interrupt may end at any time; here it ends at once.
            Code::Wfi
                if self.privileged.mode == Privilege::Machine
                    || self.privileged.mode == Privilege::Supervisor && status & TW == 0 =>
            {
                SystemOutcome::Next
            }
            Code::SfenceVma
                if self.privileged.mode == Privilege::Machine
                    || self.privileged.mode == Privilege::Supervisor && status & TVM == 0 =>
            {
                env.spans.forget_pages();
                if self.privileged.csrs.satp != 0 {
                    self.forget_code(env);
                }
                SystemOutcome::Next
            }
            _ => ILLEGAL,
        }
    }

    /// Returns the value of a counter, or of a register of the privileged modes; `None` if it cannot be read in the
    /// current mode.
    pub(super) fn read_privileged(&self, number: u32) -> Option<u64> {
        self.privileged.csrs.read::<X>(number, self.privileged.mode, self.retired, self.extensions)
    }

    /// Writes a register of the privileged modes.
    pub(super) fn write_privileged(&mut self, number: u32, value: u64, env: &mut Env<'_, '_>) {
        let off = (self.float_off(), self.vector_off());
        self.privileged.csrs.write::<X>(number, value, self.retired);
        self.privileged.looks_anew = true;
        if off != (self.float_off(), self.vector_off()) {
            self.forget_code(env);
        }
    }

    /// Whether floating-point instructions are currently illegal, since their unit is off.
    pub(crate) fn float_off(&self) -> bool {
        self.mode == HartMode::Bare && self.privileged.csrs.mstatus & FS == 0
    }

    /// Whether vector instructions are currently illegal, since their unit is off.
    pub(crate) fn vector_off(&self) -> bool {
        self.mode == HartMode::Bare && self.privileged.csrs.mstatus & VS == 0
    }

    /// Enters the handler of a trap at `pc`; returns the trap itself if the program has no handler that can run.
    pub(crate) fn enter_trap(&mut self, cause: Cause, value: u64, pc: u64) -> Result<(), Trap> {
        let unhandled = Trap { cause, pc, value };
        if self.mode == HartMode::Program {
            return Err(unhandled);
        }
        let supervisor =
            self.privileged.mode < Privilege::Machine && self.privileged.csrs.medeleg >> cause as u8 & 1 != 0;
        let vector = if supervisor { self.privileged.csrs.stvec } else { self.privileged.csrs.mtvec } & !3;
        // If the handler cannot be fetched in the mode in which it is entered, it would trap for ever.
        let to = if supervisor { Privilege::Supervisor } else { Privilege::Machine };
        if matches!(cause, Cause::FetchAccess | Cause::FetchPage) && pc == vector && self.privileged.mode == to {
            return Err(unhandled);
        }
        self.vector(cause as u64, value, pc, supervisor, vector);
        Ok(())
    }

    /// Takes the pending interrupt, if one is enabled.
    fn take_interrupt(&mut self) {
        if self.mode == HartMode::Program {
            return;
        }
        if let Some((number, supervisor)) = self.privileged.csrs.interrupt(self.privileged.mode) {
            let tvec = if supervisor { self.privileged.csrs.stvec } else { self.privileged.csrs.mtvec };
            let vector = (tvec & !3) + if tvec & 1 != 0 { 4 * number } else { 0 };
            self.vector(1 << (X::BITS - 1) | number, 0, self.pc, supervisor, vector);
        }
    }

    fn vector(&mut self, cause: u64, value: u64, pc: u64, supervisor: bool, vector: u64) {
        debug_assert!(self.mode == HartMode::Bare && vector & 3 == 0, "a trap to {vector:#x}");
        let status = self.privileged.csrs.mstatus;
        let from = self.privileged.mode as u64;
        if supervisor {
            (self.privileged.csrs.scause, self.privileged.csrs.stval, self.privileged.csrs.sepc) = (cause, value, pc);
            let was = if status & SIE != 0 { SPIE } else { 0 };
            self.privileged.csrs.mstatus = status & !(SIE | SPIE | SPP) | was | (from & 1) << 8;
            self.privileged.mode = Privilege::Supervisor;
        } else {
            (self.privileged.csrs.mcause, self.privileged.csrs.mtval, self.privileged.csrs.mepc) = (cause, value, pc);
            let was = if status & MIE != 0 { MPIE } else { 0 };
            self.privileged.csrs.mstatus = status & !(MIE | MPIE | MPP) | was | from << 11;
            self.privileged.mode = Privilege::Machine;
        }
        self.pc = X::unsigned(X::word(vector));
        self.privileged.looks_anew = true;
    }

    /// Computes the guard from the registers that determine how memory is accessed, and drops decoded blocks if
    /// instructions might now be fetched from elsewhere.
    fn look(&mut self, env: &mut Env<'_, '_>) {
        self.privileged.looks_anew = false;
        let guard = self.privileged.csrs.guard::<X>(self.privileged.mode);
        let translates = guard.data.pages.is_some() || guard.fetch.pages.is_some();
        let guard = (translates || !env.spans.open_to(&guard)).then_some(guard);
        let same = match (&guard, &self.privileged.decoded_behind) {
            (None, None) => true,
            (Some(now), Some(then)) => now.fetches_as(then),
            _ => false,
        };
        if !same {
            self.forget_code(env);
        }
        self.privileged.decoded_behind.clone_from(&guard);
        if env.spans.guard.as_deref() != guard.as_ref() {
            env.spans.set_guard(guard);
        }
    }
}
