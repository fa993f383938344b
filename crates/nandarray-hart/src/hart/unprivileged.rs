//! Harts in builds without bare machines (feature `bare`): one function in user mode, whose traps end the run.
//!
//! The interface is that of `privileged`, of which programs use only the counters.

use crate::exec::Env;
use crate::hart::system::{ILLEGAL, SystemOutcome};
use crate::hart::{Hart, HartMode};
use crate::isa::{Extensions, Instruction};
use crate::meter::Meter;
use crate::trap::{Cause, Trap};
use crate::xlen::Xlen;

/// The state of the privileged modes, which do not exist in this build.
#[derive(Debug)]
pub(crate) struct Unprivileged;

pub(crate) use Unprivileged as Privileged;

impl Unprivileged {
    pub(crate) fn new(HartMode::Program: HartMode, _extensions: Extensions) -> Self {
        Self
    }
}

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in builds with bare machines")]
impl<X: Xlen, M: Meter> Hart<X, M> {
    /// Prepares a run; there is nothing to do.
    pub(super) fn begin_run(&mut self) {}

    /// Called between two blocks; there is nothing to do.
    pub(super) fn between_blocks(&mut self, _env: &mut Env<'_, '_>) {}

    /// Rejects a privileged instruction as illegal, since there are none in this build.
    pub(super) fn execute_privileged(&mut self, _op: &Instruction, _env: &mut Env<'_, '_>) -> SystemOutcome {
        ILLEGAL
    }

    /// Whether vector instructions are currently illegal; never in this build.
    pub(crate) fn vector_off(&self) -> bool {
        false
    }

    /// Returns the value of a counter, the only registers of user mode; `None` for another register.
    pub(super) fn read_privileged(&self, number: u32) -> Option<u64> {
        let shown = if number & 0x1f < 3 { self.retired } else { 0 };
        match number {
            0xc00..=0xc1f => Some(shown),
            0xc80..=0xc9f if X::BITS == 32 => Some(shown >> 32),
            _ => None,
        }
    }

    /// Never called, since the registers that can be read are read-only.
    pub(super) fn write_privileged(&mut self, number: u32, _value: u64, _env: &mut Env<'_, '_>) {
        unreachable!("register {number:#x} is read-only");
    }

    /// Whether floating-point instructions are currently illegal; never in this build.
    pub(crate) fn float_off(&self) -> bool {
        false
    }

    /// Returns the trap, since programs cannot handle one.
    pub(crate) fn enter_trap(&mut self, cause: Cause, value: u64, pc: u64) -> Result<(), Trap> {
        Err(Trap { cause, pc, value })
    }
}
