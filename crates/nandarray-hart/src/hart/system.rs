//! Instructions that a hart executes outside of blocks: control and status registers, calls, returns, fences; traps.

use crate::csr::{FS, MIE, MPIE, MPP, MPRV, Privilege, SIE, SPIE, SPP, TSR, TVM, TW};
use crate::exec::{Env, Exit};
use crate::hart::{Hart, HartMode, Stop};
use crate::isa::{Code, Format, Instruction};
use crate::meter::Meter;
use crate::trap::{Cause, Trap};
use crate::xlen::Xlen;

/// The registers that hold flags and rounding mode.
const FFLAGS: u32 = 1;
const FRM: u32 = 2;
const FCSR: u32 = 3;
/// The first stream register.
const STREAMS: u32 = 0x800;

/// The result of an instruction that is executed outside of blocks.
#[derive(Debug)]
pub(crate) enum SystemOutcome {
    /// It was executed; the next one follows.
    Next,
    /// It was executed; the one at an address follows.
    Jump(u64),
    /// It was executed; the run ends before the next one.
    Stop(Stop),
    /// It could not be executed.
    Leave(Exit),
}

const ILLEGAL: SystemOutcome = SystemOutcome::Leave(Exit::Trap { cause: Cause::IllegalInstruction, value: 0 });

fn trap(cause: Cause, value: u64) -> SystemOutcome {
    SystemOutcome::Leave(Exit::Trap { cause, value })
}

impl<X: Xlen, M: Meter> Hart<X, M> {
    /// Execute `op`, which stands at `pc`.
    pub(crate) fn system(&mut self, op: &Instruction, pc: u64, env: &mut Env<'_, '_>) -> SystemOutcome {
        let status = self.csrs.mstatus;
        match op.code {
            Code::Ecall => match (self.mode, self.privilege) {
                (HartMode::Program, _) => SystemOutcome::Stop(Stop::EnvironmentCall),
                (_, Privilege::User) => trap(Cause::UserCall, 0),
                (_, Privilege::Supervisor) => trap(Cause::SupervisorCall, 0),
                (_, Privilege::Machine) => trap(Cause::MachineCall, 0),
            },
            Code::Ebreak => trap(Cause::Breakpoint, pc),
            Code::FenceI => {
                self.forget_code(env);
                SystemOutcome::Next
            }
            Code::Mret if self.privilege == Privilege::Machine => {
                let to = Privilege::from_bits(status >> 11);
                let enabled = if status & MPIE != 0 { MIE } else { 0 };
                let mprv = if to == Privilege::Machine { status & MPRV } else { 0 };
                self.csrs.mstatus = status & !(MIE | MPP | MPRV) | MPIE | enabled | mprv;
                self.privilege = to;
                self.looks_anew = true;
                SystemOutcome::Jump(self.csrs.mepc)
            }
            Code::Sret
                if self.privilege == Privilege::Machine
                    || self.privilege == Privilege::Supervisor && status & TSR == 0 =>
            {
                let enabled = if status & SPIE != 0 { SIE } else { 0 };
                self.csrs.mstatus = status & !(SIE | SPP | MPRV) | SPIE | enabled;
                self.privilege = Privilege::from_bits(status >> 8 & 1);
                self.looks_anew = true;
                SystemOutcome::Jump(self.csrs.sepc)
            }
            // Waiting for an interrupt may end at any time; here it ends at once.
            Code::Wfi
                if self.privilege == Privilege::Machine
                    || self.privilege == Privilege::Supervisor && status & TW == 0 =>
            {
                SystemOutcome::Next
            }
            Code::SfenceVma
                if self.privilege == Privilege::Machine
                    || self.privilege == Privilege::Supervisor && status & TVM == 0 =>
            {
                env.spans.forget_pages();
                if self.csrs.satp != 0 {
                    self.forget_code(env);
                }
                SystemOutcome::Next
            }
            _ if matches!(op.row().format, Format::Csr | Format::CsrImmediate) => self.csr(op, env),
            // Also floating-point instructions while that unit is off.
            _ => ILLEGAL,
        }
    }

    fn csr(&mut self, op: &Instruction, env: &mut Env<'_, '_>) -> SystemOutcome {
        let number = op.imm as u32;
        let immediate = op.row().format == Format::CsrImmediate;
        let operand = if immediate { u64::from(op.rs1) } else { X::unsigned(self.state.x[op.rs1 as usize]) };
        let (swap, set) =
            (matches!(op.code, Code::Csrrw | Code::Csrrwi), matches!(op.code, Code::Csrrs | Code::Csrrsi));
        let writes = swap || op.rs1 != 0;
        if writes && number >> 10 == 3 {
            return ILLEGAL;
        }
        let old = match self.read_csr(number, env) {
            Some(Ok(value)) => value,
            Some(Err(exit)) => return SystemOutcome::Leave(exit),
            None => return ILLEGAL,
        };
        if writes {
            // The heads and tails are moved by instructions and by the caller.
            if number & !0xff == STREAMS {
                return ILLEGAL;
            }
            let new = if swap {
                operand
            } else if set {
                old | operand
            } else {
                old & !operand
            };
            self.write_csr(number, X::unsigned(X::word(new)), env);
        }
        if op.rd != 0 {
            self.state.x[op.rd as usize] = X::word(old);
        }
        SystemOutcome::Next
    }

    fn read_csr(&self, number: u32, env: &mut Env<'_, '_>) -> Option<Result<u64, Exit>> {
        match number {
            FFLAGS..=FCSR if self.float_off() => None,
            FFLAGS => Some(Ok(u64::from(self.state.fflags))),
            FRM => Some(Ok(u64::from(self.state.frm))),
            FCSR => Some(Ok(u64::from(self.fcsr()))),
            _ if number & !0xff == STREAMS => crate::exec::stream_register(env, number as i32),
            _ => self.csrs.read::<X>(number, self.privilege, self.retired, self.extensions).map(Ok),
        }
    }

    fn write_csr(&mut self, number: u32, value: u64, env: &mut Env<'_, '_>) {
        match number {
            FFLAGS => self.state.fflags = value as u8 & 31,
            FRM => self.state.set_frm(value as u8),
            FCSR => self.set_fcsr(value as u8),
            _ => {
                let off = self.float_off();
                self.csrs.write::<X>(number, value, self.retired);
                self.looks_anew = true;
                if off != self.float_off() {
                    self.forget_code(env);
                }
            }
        }
    }

    /// Whether floating-point instructions are illegal now.
    pub(crate) fn float_off(&self) -> bool {
        self.mode == HartMode::Bare && self.csrs.mstatus & FS == 0
    }

    /// Drop what was decoded.
    pub(crate) fn forget_code(&mut self, env: &mut Env<'_, '_>) {
        self.forget_blocks();
        env.spans.forget_decoded();
    }

    /// Enter a trap at `pc`; the trap itself if nothing in the program handles it.
    pub(crate) fn enter_trap(&mut self, cause: Cause, value: u64, pc: u64) -> Result<(), Trap> {
        let unhandled = Trap { cause, pc, value };
        if self.mode == HartMode::Program {
            return Err(unhandled);
        }
        let supervisor = self.privilege < Privilege::Machine && self.csrs.medeleg >> cause as u8 & 1 != 0;
        let vector = if supervisor { self.csrs.stvec } else { self.csrs.mtvec } & !3;
        // A handler that cannot be fetched in the mode that it is entered in traps for ever.
        let to = if supervisor { Privilege::Supervisor } else { Privilege::Machine };
        if matches!(cause, Cause::FetchAccess | Cause::FetchPage) && pc == vector && self.privilege == to {
            return Err(unhandled);
        }
        self.vector(cause as u64, value, pc, supervisor, vector);
        Ok(())
    }

    /// Takes the pending interrupt, if one is enabled.
    pub(crate) fn take_interrupt(&mut self) {
        if self.mode == HartMode::Program {
            return;
        }
        if let Some((number, supervisor)) = self.csrs.interrupt(self.privilege) {
            let tvec = if supervisor { self.csrs.stvec } else { self.csrs.mtvec };
            let vector = (tvec & !3) + if tvec & 1 != 0 { 4 * number } else { 0 };
            self.vector(1 << (X::BITS - 1) | number, 0, self.pc, supervisor, vector);
        }
    }

    fn vector(&mut self, cause: u64, value: u64, pc: u64, supervisor: bool, vector: u64) {
        let status = self.csrs.mstatus;
        let from = self.privilege as u64;
        if supervisor {
            (self.csrs.scause, self.csrs.stval, self.csrs.sepc) = (cause, value, pc);
            let was = if status & SIE != 0 { SPIE } else { 0 };
            self.csrs.mstatus = status & !(SIE | SPIE | SPP) | was | (from & 1) << 8;
            self.privilege = Privilege::Supervisor;
        } else {
            (self.csrs.mcause, self.csrs.mtval, self.csrs.mepc) = (cause, value, pc);
            let was = if status & MIE != 0 { MPIE } else { 0 };
            self.csrs.mstatus = status & !(MIE | MPIE | MPP) | was | from << 11;
            self.privilege = Privilege::Machine;
        }
        self.pc = X::unsigned(X::word(vector));
        self.looks_anew = true;
    }

    /// Reach memory as the registers say now; what was decoded is dropped if it might not be fetched so any more.
    pub(crate) fn look(&mut self, env: &mut Env<'_, '_>) {
        self.looks_anew = false;
        let guard = self.csrs.guard::<X>(self.privilege);
        let translates = guard.data.pages.is_some() || guard.fetch.pages.is_some();
        let guard = (translates || !env.spans.open_to(&guard)).then_some(guard);
        let same = match (&guard, &self.decoded_behind) {
            (None, None) => true,
            (Some(now), Some(then)) => now.fetches_as(then),
            _ => false,
        };
        if !same {
            self.forget_code(env);
        }
        self.decoded_behind.clone_from(&guard);
        if env.spans.guard.as_deref() != guard.as_ref() {
            env.spans.set_guard(guard);
        }
    }
}
