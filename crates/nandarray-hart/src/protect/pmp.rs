//! Physical memory protection: sixteen entries, each with an address and a byte of settings.
//!
//! An entry is off, the end of a range that begins where the entry before it ends, a range of four bytes, or a range
//! whose length is a power of two that the low ones of the address encode. The lowest entry that contains any byte of
//! an access decides: it must contain all bytes, even in machine mode, and allow the access. A locked entry restricts
//! machine mode, too, and stays until the machine is reset. In other modes, an access is forbidden if no entry allows
//! it.

use std::ops::Range;

use super::AccessKind;

/// Number of entries.
pub(crate) const ENTRIES: usize = 16;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;
const MATCHING: u8 = 3 << 3;
const TOP_OF_RANGE: u8 = 1 << 3;
const FOUR_BYTES: u8 = 2 << 3;
const LOCKED: u8 = 1 << 7;
/// Mask of an address register on 64 bits: addresses of 56 bits without the two lowest bits.
const ADDRESS_64: u64 = (1 << 54) - 1;
const ADDRESS_32: u64 = (1 << 32) - 1;

/// The registers of physical memory protection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pmp {
    settings: [u8; ENTRIES],
    addresses: [u64; ENTRIES],
}

impl Pmp {
    /// Returns the settings of entry `first` and of those after it, as many as fit in a register of `bits` bits.
    pub(crate) fn settings(&self, first: usize, bits: u32) -> u64 {
        let bytes = self.settings.iter().skip(first).take(bits as usize / 8);
        bytes.rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    /// Sets the settings of entry `first` and of those after it; locked entries keep theirs.
    pub(crate) fn set_settings(&mut self, first: usize, bits: u32, value: u64) {
        let bytes = value.to_le_bytes();
        for (old, new) in self.settings.iter_mut().skip(first).zip(&bytes[..bits as usize / 8]) {
            if *old & LOCKED == 0 {
                let new = new & (LOCKED | MATCHING | EXECUTE | WRITE | READ);
                // Memory that can be written but not read is a reserved combination.
                *old = if new & READ == 0 { new & !WRITE } else { new };
            }
        }
    }

    /// Returns the value of an entry's address register.
    pub(crate) fn address(&self, entry: usize) -> u64 {
        self.addresses[entry]
    }

    /// Sets an entry's address register, unless the entry is locked, or is the beginning of a locked range.
    pub(crate) fn set_address(&mut self, entry: usize, bits: u32, value: u64) {
        let next = self.settings.get(entry + 1).copied().unwrap_or(0);
        let begins_locked = next & LOCKED != 0 && next & MATCHING == TOP_OF_RANGE;
        if self.settings[entry] & LOCKED == 0 && !begins_locked {
            self.addresses[entry] = value & if bits == 32 { ADDRESS_32 } else { ADDRESS_64 };
        }
    }

    /// Returns the range of addresses of an entry; empty if it is off.
    fn range(&self, entry: usize) -> Range<u64> {
        let address = self.addresses[entry];
        match self.settings[entry] & MATCHING {
            0 => 0..0,
            TOP_OF_RANGE => {
                let from = if entry == 0 { 0 } else { self.addresses[entry - 1] << 2 };
                from..(address << 2).max(from)
            }
            FOUR_BYTES => address << 2..(address << 2) + 4,
            _ => {
                let ones = address.trailing_ones();
                let from = (address >> ones << ones) << 2;
                from..from + (8 << ones)
            }
        }
    }

    /// Whether `bytes` bytes from `address` on may be accessed; the first entry that contains any of them decides.
    pub(crate) fn allows(&self, address: u64, bytes: u64, access: AccessKind, machine: bool) -> bool {
        let end = address.saturating_add(bytes);
        for (entry, settings) in self.settings.iter().enumerate() {
            let range = self.range(entry);
            // An empty range within the access matches nothing.
            if !range.is_empty() && range.start < end && address < range.end {
                let need = match access {
                    AccessKind::Load => READ,
                    AccessKind::Store => WRITE,
                    AccessKind::Fetch => EXECUTE,
                };
                let binds = !machine || settings & LOCKED != 0;
                return range.start <= address && end <= range.end && (!binds || settings & need != 0);
            }
        }
        machine
    }
}

#[cfg(test)]
#[path = "pmp_tests.rs"]
mod tests;
