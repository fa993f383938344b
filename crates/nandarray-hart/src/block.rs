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
        debug_assert!(ops.len() <= OPS_MAX, "a block of {} instructions", ops.len());
        ops.shrink_to_fit();
        (!ops.is_empty()).then_some(Self { pc, ops })
    }

    /// Returns the length of all instructions in bytes.
    pub fn bytes(&self) -> u64 {
        self.ops.iter().map(|op| u64::from(op.len)).sum()
    }

    /// Returns the address of instruction `index`; the end of the block if it has no such instruction.
    pub fn address(&self, index: usize) -> u64 {
        debug_assert!(index <= self.ops.len(), "instruction {index} of {}", self.ops.len());
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

#[cfg(test)]
mod tests {
    //! Tests of blocks of random code against a walk over its instructions.

    use super::*;
    use crate::isa::length;

    /// Code at random addresses, some of them the last: 16-bit and 32-bit words, few of which end a block.
    struct PlainCode {
        base: u64,
        bits: u32,
        bytes: Vec<u8>,
    }

    impl PlainCode {
        fn random(chance: &mut fastrand::Rng) -> Self {
            let bits = if chance.bool() { 32 } else { 64 };
            let top = if bits == 32 { 0xffff_ffff } else { u64::MAX };
            let base = [0x1000, top - chance.u64(..300), top - 63][chance.usize(..3)] & !1;
            let mut bytes = Vec::new();
            for _ in 0..chance.usize(1..140) {
                match chance.u8(..24) {
                    0 => bytes.extend(chance.u32(..).to_le_bytes()),
                    1..=12 => bytes.extend((0x13u32 | chance.u32(..32) << 7).to_le_bytes()),
                    _ => bytes.extend((0x4001u16 | chance.u16(..32) << 7).to_le_bytes()),
                }
            }
            Self { base, bits, bytes }
        }

        /// Returns the bytes of the instruction at an address; code wraps at the last one.
        fn fetch(&self, address: u64) -> Option<u32> {
            let at = wrap(address.wrapping_sub(self.base), self.bits) as usize;
            let low = u16::from_le_bytes(self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?);
            if length(low) == 2 {
                return Some(u32::from(low));
            }
            Some(u32::from_le_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
        }
    }

    #[test]
    fn a_block_is_the_instructions_up_to_the_first_that_ends_it() {
        for seed in 0..3_000 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let code = PlainCode::random(&mut chance);
            let most = [1, 3, 64, 1000][chance.usize(..4)];
            let block = BasicBlock::decode(code.base, code.bits, Extensions::ALL, most, |at| code.fetch(at));
            let (mut at, mut wanted) = (code.base, Vec::new());
            let end = loop {
                let Some(word) = code.fetch(at).filter(|_| wanted.len() < most.min(OPS_MAX)) else { break at };
                let op = decode(word, code.bits, Extensions::ALL);
                wanted.push((at, op));
                at = wrap(at.wrapping_add(u64::from(op.len)), code.bits);
                if op.ends_block() {
                    break at;
                }
            };
            let Some(block) = block else {
                assert!(wanted.is_empty(), "seed {seed}");
                continue;
            };
            let ops: Vec<Instruction> = wanted.iter().map(|(_, op)| *op).collect();
            assert_eq!((block.pc, &block.ops), (code.base, &ops), "seed {seed}");
            for (n, (at, _)) in wanted.iter().enumerate() {
                assert_eq!(wrap(block.address(n), code.bits), *at, "seed {seed}, instruction {n}");
            }
            assert_eq!(block.next(code.bits), end, "seed {seed}");
            assert_eq!(block.bytes(), ops.iter().map(|op| u64::from(op.len)).sum::<u64>(), "seed {seed}");
            let (from, last) = wanted.last().unwrap();
            let direct = matches!(last.row().format, Format::Branch | Format::Jump);
            let to = wrap(from.wrapping_add_signed(i64::from(last.imm)), code.bits);
            assert_eq!(block.taken(code.bits), direct.then_some(to), "seed {seed}");
        }
    }
}
