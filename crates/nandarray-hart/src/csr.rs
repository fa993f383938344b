//! Control and status registers of the privileged modes: their values, and the bits that can be written.
//!
//! `satp` selects page tables of Sv32, or of Sv39, Sv48 and Sv57; sixteen entries protect physical memory; `protect`
//! applies both. There are no debug triggers, no event counters and no interrupt controller: software raises interrupts
//! by writing `mip`. The state of the floating-point unit is "off" or "dirty", nothing between. `cycle` and `time`
//! count instructions, since there is no clock.

use crate::isa::{Extension, Extensions};
use crate::protect::{ENTRIES, Guard, PageTableFormat, PageTranslation, Pmp, Who};
use crate::xlen::Xlen;

/// Privilege modes, with their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Privilege {
    /// User mode.
    User = 0,
    /// Supervisor mode.
    Supervisor = 1,
    /// Machine mode.
    Machine = 3,
}

impl Privilege {
    pub(crate) fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::User,
            1 => Self::Supervisor,
            _ => Self::Machine,
        }
    }
}

pub(crate) const SIE: u64 = 1 << 1;
pub(crate) const MIE: u64 = 1 << 3;
pub(crate) const SPIE: u64 = 1 << 5;
pub(crate) const MPIE: u64 = 1 << 7;
pub(crate) const SPP: u64 = 1 << 8;
pub(crate) const MPP: u64 = 3 << 11;
pub(crate) const VS: u64 = 3 << 9;
pub(crate) const FS: u64 = 3 << 13;
pub(crate) const MPRV: u64 = 1 << 17;
pub(crate) const TVM: u64 = 1 << 20;
pub(crate) const TW: u64 = 1 << 21;
pub(crate) const TSR: u64 = 1 << 22;
const SUM: u64 = 1 << 18;
const MXR: u64 = 1 << 19;
const MSTATUS: u64 = SIE | MIE | SPIE | MPIE | SPP | MPP | FS | VS | MPRV | SUM | MXR | TVM | TW | TSR;
const SSTATUS: u64 = SIE | SPIE | SPP | FS | VS | SUM | MXR;
/// Bits of the interrupts of supervisor mode: software, timer, external.
const SUPERVISOR: u64 = 0x222;
/// Bits of all interrupts of supervisor and machine mode.
const INTERRUPTS: u64 = 0xaaa;
/// Bits of the exceptions that can be delegated to supervisor mode: all except `ecall` from machine mode.
const DELEGABLE: u64 = 0xb3ff;

/// The control and status registers of the privileged modes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Csrs {
    pub(crate) mstatus: u64,
    pub(crate) medeleg: u64,
    pub(crate) mideleg: u64,
    pub(crate) mie: u64,
    pub(crate) mip: u64,
    pub(crate) mtvec: u64,
    pub(crate) mepc: u64,
    pub(crate) mcause: u64,
    pub(crate) mtval: u64,
    pub(crate) stvec: u64,
    pub(crate) sepc: u64,
    pub(crate) scause: u64,
    pub(crate) stval: u64,
    pub(crate) mscratch: u64,
    pub(crate) sscratch: u64,
    pub(crate) mcounteren: u64,
    pub(crate) scounteren: u64,
    pub(crate) satp: u64,
    /// Whether the hart has vectors; without them, the vector state in `mstatus` (VS) stays off.
    pub(crate) has_vectors: bool,
    pub(crate) pmp: Pmp,
    /// Difference between `mcycle` and the number of executed instructions; `instret_more` is that of `minstret`.
    pub(crate) cycle_more: u64,
    pub(crate) instret_more: u64,
}

/// Replaces the low or the high half of `value` by `part`.
fn half(value: u64, part: u64, high: bool) -> u64 {
    if high { value & 0xffff_ffff | part << 32 } else { value & !0xffff_ffff | part & 0xffff_ffff }
}

/// Returns the number of the first protection entry whose settings the register `pmpcfg` with this number contains.
fn first_entry(number: u32) -> usize {
    (number as usize & 3) * 4 % ENTRIES
}

impl Csrs {
    /// Returns the value of `mstatus` or `sstatus` when read: the bits of `mask`, whether any state is dirty, and the
    /// register widths of lower modes.
    fn status<X: Xlen>(&self, mask: u64) -> u64 {
        let dirty = if self.mstatus & FS == FS || self.mstatus & VS == VS { 1 << (X::BITS - 1) } else { 0 };
        let widths = if X::BITS == 32 {
            0
        } else if mask == SSTATUS {
            2 << 32
        } else {
            0xa << 32
        };
        self.mstatus & mask | dirty | widths
    }

    fn set_status(&mut self, value: u64, mask: u64) {
        let mut new = self.mstatus & !mask | value & mask;
        if new & FS != 0 {
            new |= FS;
        }
        if !self.has_vectors {
            new &= !VS;
        } else if new & VS != 0 {
            new |= VS;
        }
        // Mode 2 does not exist.
        if new & MPP == 2 << 11 {
            new = new & !MPP | self.mstatus & MPP;
        }
        debug_assert!(new & !MSTATUS == 0 && new & MPP != 2 << 11, "mstatus {new:#x}");
        self.mstatus = new;
    }

    fn misa<X: Xlen>(extensions: Extensions) -> u64 {
        let letter = |letter: u8, there: bool| u64::from(there) << (letter - b'A');
        let bits = [Extension::Zba, Extension::Zbb, Extension::Zbs];
        let mxl = u64::from(X::BITS / 32) << (X::BITS - 2);
        letter(b'A', extensions.has(Extension::A))
            | letter(b'B', bits.iter().all(|e| extensions.has(*e)))
            | letter(b'C', extensions.has(Extension::C))
            | letter(b'D', extensions.has(Extension::D))
            | letter(b'F', extensions.has(Extension::F))
            | letter(b'I', true)
            | letter(b'M', extensions.has(Extension::M))
            | letter(b'S', true)
            | letter(b'U', true)
            | letter(b'V', extensions.has(Extension::V))
            | letter(b'X', extensions.has(Extension::Stream))
            | mxl
    }

    /// Whether the counter `number` may be read in `privilege`.
    fn counts(&self, number: u32, privilege: Privilege) -> bool {
        let bit = 1 << (number & 31);
        match privilege {
            Privilege::Machine => true,
            Privilege::Supervisor => self.mcounteren & bit != 0,
            Privilege::User => self.mcounteren & self.scounteren & bit != 0,
        }
    }

    /// The value of register `number`; `None` if there is no such register, or it cannot be read in `privilege`.
    /// `retired` is the number of executed instructions.
    pub(crate) fn read<X: Xlen>(
        &self,
        number: u32,
        privilege: Privilege,
        retired: u64,
        extensions: Extensions,
    ) -> Option<u64> {
        if (number >> 8 & 3) as u8 > privilege as u8 {
            return None;
        }
        let high = X::BITS == 32;
        let counter = |number: u32, machine: bool| {
            let value = match number & 0x1f {
                0 => retired.wrapping_add(self.cycle_more),
                1 if !machine => retired,
                1 => return None,
                2 => retired.wrapping_add(self.instret_more),
                _ => 0,
            };
            Some(if number & 0x80 != 0 { value >> 32 } else { value })
        };
        Some(match number {
            0xc00..=0xc1f if self.counts(number, privilege) => counter(number, false)?,
            0xc80..=0xc9f if high && self.counts(number, privilege) => counter(number, false)?,
            0xb00..=0xb1f => counter(number, true)?,
            0xb80..=0xb9f if high => counter(number, true)?,
            0x100 => self.status::<X>(SSTATUS),
            0x104 => self.mie & self.mideleg,
            0x105 => self.stvec,
            0x106 => self.scounteren,
            0x140 => self.sscratch,
            0x141 => self.sepc,
            0x142 => self.scause,
            0x143 => self.stval,
            0x144 => self.mip & self.mideleg,
            0x180 if privilege == Privilege::Supervisor && self.mstatus & TVM != 0 => return None,
            0x180 => self.satp,
            0x300 => self.status::<X>(MSTATUS),
            0x301 => Self::misa::<X>(extensions),
            0x302 => self.medeleg,
            0x303 => self.mideleg,
            0x304 => self.mie,
            0x305 => self.mtvec,
            0x306 => self.mcounteren,
            0x340 => self.mscratch,
            0x341 => self.mepc,
            0x342 => self.mcause,
            0x343 => self.mtval,
            0x344 => self.mip,
            0x310 if high => 0,
            0x3a0..=0x3a3 if high || number & 1 == 0 => self.pmp.settings(first_entry(number), X::BITS),
            0x3b0..=0x3bf => self.pmp.address(number as usize - 0x3b0),
            // senvcfg, menvcfg, mcountinhibit, mhpmevent, triggers and machine information always read as 0.
            0x10a | 0x30a | 0x320 | 0x323..=0x33f | 0x7a0..=0x7a5 | 0xf11..=0xf15 => 0,
            0x31a if high => 0,
            _ => return None,
        })
    }

    /// Writes the writable bits of a register that [`Csrs::read`] returned a value for.
    pub(crate) fn write<X: Xlen>(&mut self, number: u32, value: u64, retired: u64) {
        // A trap vector is direct or vectored, so bit 1 stays 0; an exception's address is even.
        let vector = value & !2;
        match number {
            0xb00 | 0xb80 | 0xb02 | 0xb82 => {
                let more = if number & 2 == 0 { &mut self.cycle_more } else { &mut self.instret_more };
                // The writing instruction itself is counted afterwards.
                let shown = retired.wrapping_add(*more);
                let new = if X::BITS == 64 { value } else { half(shown, value, number & 0x80 != 0) };
                *more = new.wrapping_sub(retired + 1);
            }
            0x100 => self.set_status(value, SSTATUS),
            0x104 => self.mie = self.mie & !self.mideleg | value & self.mideleg,
            0x105 => self.stvec = vector,
            0x106 => self.scounteren = value & 0xffff_ffff,
            0x140 => self.sscratch = value,
            0x141 => self.sepc = value & !1,
            0x142 => self.scause = value,
            0x143 => self.stval = value,
            0x144 => {
                let software = 2 & self.mideleg;
                self.mip = self.mip & !software | value & software;
            }
            // The mode is valid, or the whole write is ignored.
            0x180 if X::BITS == 32 || value >> 60 == 0 || PageTableFormat::of_mode(value >> 60).is_some() => {
                self.satp = value
            }
            0x300 => self.set_status(value, MSTATUS),
            0x302 => self.medeleg = value & DELEGABLE,
            0x303 => self.mideleg = value & SUPERVISOR,
            0x304 => self.mie = value & INTERRUPTS,
            0x305 => self.mtvec = vector,
            0x306 => self.mcounteren = value & 0xffff_ffff,
            0x340 => self.mscratch = value,
            0x341 => self.mepc = value & !1,
            0x342 => self.mcause = value,
            0x343 => self.mtval = value,
            0x344 => self.mip = self.mip & !SUPERVISOR | value & SUPERVISOR,
            0x3a0..=0x3a3 => self.pmp.set_settings(first_entry(number), X::BITS, value),
            0x3b0..=0x3bf => self.pmp.set_address(number as usize - 0x3b0, X::BITS, value),
            _ => {}
        }
    }

    /// Returns the rights (machine mode or not, page tables) by which an access in `privilege` is checked.
    fn who<X: Xlen>(&self, privilege: Privilege) -> Who {
        let table = if X::BITS == 32 {
            (self.satp >> 31 != 0).then_some(PageTableFormat::SV32)
        } else {
            PageTableFormat::of_mode(self.satp >> 60)
        };
        let number = self.satp & if X::BITS == 32 { (1 << 22) - 1 } else { (1 << 44) - 1 };
        let pages = table.filter(|_| privilege != Privilege::Machine).map(|table| PageTranslation {
            table,
            root: number << 12,
            user: privilege == Privilege::User,
            sum: self.mstatus & SUM != 0,
            mxr: self.mstatus & MXR != 0,
        });
        Who { machine: privilege == Privilege::Machine, pages }
    }

    /// Builds the guard that checks memory accesses in `privilege`.
    pub(crate) fn guard<X: Xlen>(&self, privilege: Privilege) -> Guard {
        let lent = Privilege::from_bits(self.mstatus >> 11);
        let data = self.who::<X>(if self.mstatus & MPRV != 0 { lent } else { privilege });
        let mut fetch = self.who::<X>(privilege);
        // These two bits do not apply to fetches.
        fetch.pages = fetch.pages.map(|pages| PageTranslation { sum: false, mxr: false, ..pages });
        let addresses = if X::BITS == 32 { u64::from(u32::MAX) } else { u64::MAX };
        Guard { pmp: self.pmp.clone(), data, fetch, addresses }
    }

    /// Returns the interrupt to take now, as its number and whether supervisor mode takes it; `None` if none is pending
    /// and enabled.
    pub(crate) fn interrupt(&self, privilege: Privilege) -> Option<(u64, bool)> {
        debug_assert_eq!((self.mie & !INTERRUPTS, self.mideleg & !SUPERVISOR), (0, 0), "interrupts that do not exist");
        let pending = self.mip & self.mie;
        if pending == 0 {
            return None;
        }
        let machine = privilege < Privilege::Machine || self.mstatus & MIE != 0;
        let supervisor =
            privilege < Privilege::Supervisor || privilege == Privilege::Supervisor && self.mstatus & SIE != 0;
        // Priority: external, software, timer; those of machine mode before those of supervisor mode.
        let first = |set: u64| [11, 3, 7, 9, 1, 5].into_iter().find(|number| set >> number & 1 != 0);
        let for_machine = first(pending & !self.mideleg).filter(|_| machine).map(|number| (number, false));
        for_machine.or_else(|| first(pending & self.mideleg).filter(|_| supervisor).map(|number| (number, true)))
    }
}

#[cfg(test)]
#[path = "csr_tests.rs"]
mod tests;
