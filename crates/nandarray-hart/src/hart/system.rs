//! Instructions that a hart executes outside of blocks: accesses to control and status registers, calls, returns,
//! fences.

use crate::exec::{Env, Exit};
use crate::hart::{Hart, HartMode, Stop};
use crate::isa::{Code, Format, Instruction};
use crate::meter::Meter;
use crate::trap::Cause;
use crate::xlen::Xlen;

/// Number (CSR address) of the register of floating-point flags.
const FFLAGS: u32 = 1;
/// Number (CSR address) of the register of the floating-point rounding mode.
const FRM: u32 = 2;
/// Number (CSR address) of the register of both floating-point flags and rounding mode.
const FCSR: u32 = 3;
/// Number (CSR address) of the first register of the vector unit; the following constants are those of the others.
const VSTART: u32 = 8;
const VXSAT: u32 = 9;
const VXRM: u32 = 10;
const VCSR: u32 = 15;
const VL: u32 = 0xc20;
const VTYPE: u32 = 0xc21;
const VLENB: u32 = 0xc22;
/// Number (CSR address) of the first stream register.
const STREAMS: u32 = 0x800;

/// The outcome of an instruction that is executed outside of blocks.
#[derive(Debug)]
pub(crate) enum SystemOutcome {
    /// The instruction was executed, and the next one follows.
    Next,
    /// The instruction was executed, and the one at this address follows.
    #[cfg_attr(not(feature = "bare"), expect(dead_code, reason = "only returns from traps jump"))]
    Jump(u64),
    /// The instruction was executed, and the run ends after it.
    Stop(Stop),
    /// The instruction was not executed: it traps, or waits and is repeated later, as this [`Exit`] says.
    Leave(Exit),
}

pub(super) const ILLEGAL: SystemOutcome =
    SystemOutcome::Leave(Exit::Trap { cause: Cause::IllegalInstruction, value: 0 });

pub(super) fn trap(cause: Cause, value: u64) -> SystemOutcome {
    SystemOutcome::Leave(Exit::Trap { cause, value })
}

impl<X: Xlen, M: Meter> Hart<X, M> {
    /// Executes the instruction `op` at address `pc`.
    pub(crate) fn system(&mut self, op: &Instruction, pc: u64, env: &mut Env<'_, '_>) -> SystemOutcome {
        match op.code {
            Code::Ecall if self.mode == HartMode::Program => SystemOutcome::Stop(Stop::EnvironmentCall),
            Code::Ebreak => trap(Cause::Breakpoint, pc),
            Code::FenceI => {
                self.forget_code(env);
                SystemOutcome::Next
            }
            _ if matches!(op.row().format, Format::Csr | Format::CsrImmediate) => self.csr(op, env),
            // Floating-point instructions also arrive here while their unit is off; they are illegal then.
            _ => self.execute_privileged(op, env),
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
            // Stream registers are read-only: instructions and the caller move heads and tails.
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
            VSTART..=VXRM | VCSR | VL..=VLENB => {
                let unit = self.state.vector.as_ref().filter(|_| !self.vector_off())?;
                Some(Ok(match number {
                    VSTART => unit.vstart as u64,
                    VXSAT => u64::from(unit.vxsat),
                    VXRM => u64::from(unit.vxrm),
                    VCSR => u64::from(unit.vxrm) << 1 | u64::from(unit.vxsat),
                    VL => unit.vl as u64,
                    VTYPE => unit.vtype(X::BITS),
                    _ => unit.vlenb as u64,
                }))
            }
            _ if number & !0xff == STREAMS => crate::exec::stream_register(env, number as i32),
            _ => self.read_privileged(number).map(Ok),
        }
    }

    fn write_csr(&mut self, number: u32, value: u64, env: &mut Env<'_, '_>) {
        match number {
            FFLAGS => self.state.fflags = value as u8 & 31,
            FRM => self.state.set_frm(value as u8),
            FCSR => self.set_fcsr(value as u8),
            VSTART..=VXRM | VCSR => {
                let Some(unit) = self.state.vector.as_mut() else { return };
                match number {
                    VSTART => unit.vstart = value as usize & (8 * unit.vlenb - 1),
                    VXSAT => unit.vxsat = value & 1 != 0,
                    VXRM => unit.vxrm = value as u8 & 3,
                    _ => (unit.vxrm, unit.vxsat) = (value as u8 >> 1 & 3, value & 1 != 0),
                }
            }
            _ => self.write_privileged(number, value, env),
        }
    }

    /// Drops all decoded blocks, also from the table of memory regions.
    pub(crate) fn forget_code(&mut self, env: &mut Env<'_, '_>) {
        self.forget_blocks();
        env.spans.forget_decoded();
    }
}
