//! The translator's port: a hart between two instructions, with memory and streams lent to it.
//!
//! A translator executes instructions by code of its own, on the registers that [`TranslatorPort::registers`] points to
//! and the memory that [`TranslatorPort::spans`] lists, and has all others executed here: one instruction, one block,
//! or many, exactly as [`Hart::run`] does. It reports its progress by [`TranslatorPort::retire`] and
//! [`TranslatorPort::set_pc`]. Programs only: no privileged mode.

use std::ops::Range;

use crate::exec::Env;
use crate::hart::{Hart, HartMode, LoopExit, SLICE, Stop};
use crate::memory::Memory;
use crate::streams::Streams;
use crate::xlen::Xlen;

/// Pointers to a hart's registers. Valid as long as the [`TranslatorPort`] that returned them; written only while no
/// other method is called.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// 32 integer registers of the hart's width; the first stays 0.
    pub x: *mut u8,
    /// 32 floating-point registers.
    pub f: *mut u64,
    /// Accrued exceptions: NV 16, DZ 8, OF 4, UF 2, NX 1.
    pub fflags: *mut u8,
}

/// A region of memory as a translator reaches it.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// The writable part of them.
    pub writable: Range<u64>,
    /// Whether any of them may be executed.
    pub executable: bool,
    /// Its first byte; valid as long as the [`TranslatorPort`].
    pub pointer: *mut u8,
}

/// A hart, its memory and its streams.
#[derive(Debug)]
pub struct TranslatorPort<'h, 'e, 's, X: Xlen> {
    hart: &'h mut Hart<X>,
    env: &'e mut Env<'e, 's>,
}

impl<X: Xlen> Hart<X> {
    /// Lend memory and streams to a translator that executes this hart's instructions.
    pub fn open<'h, 'e, 's>(
        &'h mut self,
        memory: &'e mut Memory<'_>,
        streams: &'e mut Streams<'s>,
    ) -> TranslatorPort<'h, 'e, 's, X> {
        let env = Env::open(memory, streams, std::ptr::null_mut(), &self.code);
        TranslatorPort { hart: self, env }
    }
}

impl<'s, X: Xlen> TranslatorPort<'_, '_, 's, X> {
    /// The hart.
    pub fn hart(&self) -> &Hart<X> {
        self.hart
    }

    /// Go on at `pc`.
    pub fn set_pc(&mut self, pc: u64) {
        self.hart.set_pc(pc);
    }

    /// Count instructions that were executed outside.
    pub fn retire(&mut self, instructions: u64) {
        self.hart.retired += instructions;
    }

    /// The registers.
    pub fn registers(&mut self) -> Registers {
        let state = &raw mut self.hart.state;
        // SAFETY: the state is there; only addresses are taken.
        unsafe {
            Registers {
                x: (&raw mut (*state).x).cast(),
                f: (&raw mut (*state).f).cast(),
                fflags: &raw mut (*state).fflags,
            }
        }
    }

    /// The streams.
    pub fn streams(&mut self) -> &mut Streams<'s> {
        self.env.streams()
    }

    /// The memory, in the order in which it was laid out.
    pub fn spans(&self) -> Vec<MappedRegion> {
        let spans = self.env.spans.list();
        spans
            .map(|(addresses, writable, executable, pointer)| MappedRegion { addresses, writable, executable, pointer })
            .collect()
    }

    /// Whether code stays what it is: nothing can be both written and executed, no store is watched, and traps stop the
    /// hart.
    pub fn fixed(&self) -> bool {
        self.hart.mode == HartMode::Program && self.env.spans.fixed()
    }

    /// The instruction at an address, if one can be fetched there.
    pub fn fetch(&self, address: u64) -> Option<u32> {
        self.env.spans.executable(address)
    }

    /// Interpret one instruction.
    pub fn step(&mut self) -> Option<Stop> {
        self.hart.part(self.env, 1)
    }

    /// From now on, [`TranslatorPort::interpret`] ends before the block at `pc`, unless it begins there; [`Hart::run`]
    /// forgets it.
    pub fn mark(&mut self, pc: u64) {
        self.hart.cache.mark(pc);
    }

    /// Whether the block at the program counter is marked.
    pub fn is_marked(&self) -> bool {
        self.hart.cache.is_marked(self.hart.pc)
    }

    /// Take back all marks.
    pub fn unmark(&mut self) {
        self.hart.cache.unmark();
    }

    /// Interpret to the end of the block at the program counter, but at most `most` instructions.
    pub fn block(&mut self, most: u64) -> Option<Stop> {
        if self.is_marked() {
            return self.part(most);
        }
        let length = match self.hart.find(self.env) {
            Ok(unit) => self.hart.cache.blocks[unit].ops.len() as u64,
            Err(LoopExit::Returned) => return Some(Stop::Returned { code: self.hart.x(10) }),
            Err(_) => 1,
        };
        if length <= most { self.hart.slice(self.env, length) } else { self.part(most) }
    }

    /// Interpret at most `most` instructions; fewer if something stops it, after a few thousand, or before a marked
    /// block. One that it begins at is executed.
    pub fn interpret(&mut self, most: u64) -> Option<Stop> {
        if most < crate::block::OPS_MAX as u64 || self.is_marked() {
            self.part(most)
        } else {
            self.hart.slice(self.env, most.min(SLICE))
        }
    }

    fn part(&mut self, most: u64) -> Option<Stop> {
        self.hart.part(self.env, most.min(crate::block::OPS_MAX as u64) as usize)
    }
}
