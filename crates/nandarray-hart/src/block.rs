//! Basic blocks: instructions that are executed one after the other, decoded once.
//!
//! The interpreter executes blocks, a translator translates them and a timing model sums them up. A block ends at the
//! first instruction that may jump, after [`OPS_MAX`] instructions, or where no more can be fetched.

use crate::isa::{Extensions, Format, Instruction, decode};

/// The most instructions in a block.
pub const OPS_MAX: usize = 64;

/// Decoded instructions that are executed in order: entered at the first, left after the last.
#[derive(Clone, Debug)]
pub struct BasicBlock {
    /// Address of the first instruction.
    pub pc: u64,
    /// The instructions; at least one.
    pub ops: Vec<Instruction>,
}

impl BasicBlock {
    /// Decodes at most `ops_max` instructions from `pc` on, for a hart of `bits` (32 or 64) bits.
    ///
    /// `fetch` returns the two or four bytes of the instruction at an address. The result is `None` if none can be
    /// fetched at `pc`.
    pub fn decode(
        pc: u64,
        bits: u32,
        extensions: Extensions,
        ops_max: usize,
        mut fetch: impl FnMut(u64) -> Option<u32>,
    ) -> Option<Self> {
        let mut ops = Vec::new();
        let mut at = pc;
        while ops.len() < ops_max.min(OPS_MAX) {
            let Some(word) = fetch(at) else { break };
            let op = decode(word, bits, extensions);
            ops.push(op);
            if op.ends_block() {
                break;
            }
            at = wrap(at.wrapping_add(u64::from(op.len)), bits);
        }
        ops.shrink_to_fit();
        (!ops.is_empty()).then_some(Self { pc, ops })
    }

    /// Returns the length of all instructions in bytes.
    pub fn bytes(&self) -> u64 {
        self.ops.iter().map(|op| u64::from(op.len)).sum()
    }

    /// Returns the address of instruction `index`; the end of the block if it has no such instruction.
    pub fn address(&self, index: usize) -> u64 {
        self.pc.wrapping_add(self.ops.iter().take(index).map(|op| u64::from(op.len)).sum())
    }

    /// Returns the target of the branch or direct jump that ends the block; `None` if it ends otherwise.
    pub fn taken(&self, bits: u32) -> Option<u64> {
        let last = self.ops.last()?;
        let direct = matches!(last.row().format, Format::Branch | Format::Jump);
        let from = self.address(self.ops.len() - 1);
        direct.then(|| wrap(from.wrapping_add(last.imm as u64), bits))
    }

    /// Returns the address after the block's last instruction.
    pub fn next(&self, bits: u32) -> u64 {
        wrap(self.address(self.ops.len()), bits)
    }
}

/// Limits an address to the `bits` bits of a hart's addresses.
fn wrap(address: u64, bits: u32) -> u64 {
    if bits == 32 { address & 0xffff_ffff } else { address }
}
