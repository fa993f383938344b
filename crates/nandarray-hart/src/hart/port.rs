//! The translator's port: access to a hart between two instructions, with memory and streams lent to it.
//!
//! A translator executes some instructions by code of its own, which uses the registers that
//! [`TranslatorPort::registers`] points to and the memory that [`TranslatorPort::spans`] lists. It has all other
//! instructions executed here, by one instruction, one block or many at a time, exactly as [`Hart::run`] does. It
//! reports its progress by [`TranslatorPort::retire`] and [`TranslatorPort::set_pc`]. Harts for programs only: there is
//! no privileged mode.

use std::ops::Range;

use crate::exec::Env;
use crate::hart::{Hart, HartMode, LoopExit, SLICE, Stop};
use crate::memory::Memory;
use crate::streams::Streams;
use crate::xlen::Xlen;

/// Pointers to a hart's registers. They are valid as long as the [`TranslatorPort`] that returned them; write through
/// them only while no other method of it is being called.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The 32 integer registers, each of the hart's width; the first must stay 0.
    pub x: *mut u8,
    /// The 32 floating-point registers.
    pub f: *mut u64,
    /// Accrued exceptions: NV 16, DZ 8, OF 4, UF 2, NX 1.
    pub fflags: *mut u8,
}

/// A memory region as a translator accesses it.
#[derive(Clone, Debug)]
pub struct MappedRegion {
    /// Addresses of the region.
    pub addresses: Range<u64>,
    /// The writable part of the addresses.
    pub writable: Range<u64>,
    /// Whether any of the addresses may be executed.
    pub executable: bool,
    /// Pointer to the region's first byte; valid as long as the [`TranslatorPort`].
    pub pointer: *mut u8,
}

/// A hart with the memory and the streams that are lent to it.
#[derive(Debug)]
pub struct TranslatorPort<'h, 'e, 's, X: Xlen> {
    hart: &'h mut Hart<X>,
    env: &'e mut Env<'e, 's>,
}

impl<X: Xlen> Hart<X> {
    /// Lends memory and streams to a translator that executes this hart's instructions.
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
    /// Returns the hart, for reading its state.
    pub fn hart(&self) -> &Hart<X> {
        self.hart
    }

    /// Sets the address of the next instruction.
    pub fn set_pc(&mut self, pc: u64) {
        self.hart.set_pc(pc);
    }

    /// Counts instructions that the translator's own code has executed.
    pub fn retire(&mut self, instructions: u64) {
        self.hart.retired += instructions;
    }

    /// Returns pointers to the hart's registers.
    pub fn registers(&mut self) -> Registers {
        let state = &raw mut self.hart.state;
        // SAFETY: the state is alive; only addresses of its fields are taken.
        unsafe {
            Registers {
                x: (&raw mut (*state).x).cast(),
                f: (&raw mut (*state).f).cast(),
                fflags: &raw mut (*state).fflags,
            }
        }
    }

    /// Returns the streams lent to this port.
    pub fn streams(&mut self) -> &mut Streams<'s> {
        self.env.streams()
    }

    /// Returns the memory regions, in the order in which they were added.
    pub fn spans(&self) -> Vec<MappedRegion> {
        let spans = self.env.spans.list();
        spans
            .map(|(addresses, writable, executable, pointer)| MappedRegion { addresses, writable, executable, pointer })
            .collect()
    }

    /// Whether code cannot change during the run: no memory is both writable and executable, no address is watched for
    /// stores, and traps stop the hart.
    pub fn fixed(&self) -> bool {
        self.hart.mode == HartMode::Program && self.env.spans.fixed()
    }

    /// Returns the two or four bytes of the instruction at an address; `None` if it cannot be fetched.
    pub fn fetch(&self, address: u64) -> Option<u32> {
        self.env.spans.executable(address)
    }

    /// Interprets one instruction; returns why the hart stopped, if it did.
    pub fn step(&mut self) -> Option<Stop> {
        self.hart.part(self.env, 1)
    }

    /// Marks the block at `pc`: [`TranslatorPort::interpret`] ends before it, unless it begins there. [`Hart::run`]
    /// removes all marks.
    pub fn mark(&mut self, pc: u64) {
        self.hart.cache.mark(pc);
    }

    /// Whether the block at the program counter is marked by [`TranslatorPort::mark`].
    pub fn is_marked(&self) -> bool {
        self.hart.cache.is_marked(self.hart.pc)
    }

    /// Removes the marks of all blocks, so that [`TranslatorPort::interpret`] no longer ends before any.
    pub fn unmark(&mut self) {
        self.hart.cache.unmark();
    }

    /// Interprets to the end of the block at the program counter, but at most `most` instructions; returns why the hart
    /// stopped, if it did.
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

    /// Interprets at most `most` instructions. Ends earlier if something stops the hart, after a few thousand
    /// instructions, or before a block that a translator has marked as translated; such a block at the program counter
    /// itself is executed. Returns why the hart stopped; `None` if it can go on.
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
