//! Physical memory protection: sixteen entries of an address and a byte of settings.
//!
//! An entry is off, the top of a range that begins where the entry before it ends, four bytes, or a power of two that
//! the address's low ones tell. The lowest entry that has any byte of an access decides: it must have them all, also in
//! machine mode, and allow it. A locked entry binds machine mode, too, and stays until the machine begins anew. Other
//! modes may do nothing that no entry allows.

use std::ops::Range;

use super::AccessKind;

/// Entries there are.
pub(crate) const ENTRIES: usize = 16;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;
const MATCHING: u8 = 3 << 3;
const TOP_OF_RANGE: u8 = 1 << 3;
const FOUR_BYTES: u8 = 2 << 3;
const LOCKED: u8 = 1 << 7;
/// Bits of an address register: addresses of 56 bits without the low two.
const ADDRESS_64: u64 = (1 << 54) - 1;
const ADDRESS_32: u64 = (1 << 32) - 1;

/// The registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pmp {
    settings: [u8; ENTRIES],
    addresses: [u64; ENTRIES],
}

impl Pmp {
    /// The settings of entry `first` and those behind it that fit into a register of `bits` bits.
    pub(crate) fn settings(&self, first: usize, bits: u32) -> u64 {
        let bytes = self.settings.iter().skip(first).take(bits as usize / 8);
        bytes.rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    /// Write those of them that are not locked.
    pub(crate) fn set_settings(&mut self, first: usize, bits: u32, value: u64) {
        let bytes = value.to_le_bytes();
        for (old, new) in self.settings.iter_mut().skip(first).zip(&bytes[..bits as usize / 8]) {
            if *old & LOCKED == 0 {
                let new = new & (LOCKED | MATCHING | EXECUTE | WRITE | READ);
                // Writable memory is readable: the other combination is reserved.
                *old = if new & READ == 0 { new & !WRITE } else { new };
            }
        }
    }

    /// An address register.
    pub(crate) fn address(&self, entry: usize) -> u64 {
        self.addresses[entry]
    }

    /// Write it, unless the entry is locked, or is the beginning of one that is.
    pub(crate) fn set_address(&mut self, entry: usize, bits: u32, value: u64) {
        let next = self.settings.get(entry + 1).copied().unwrap_or(0);
        let begins_locked = next & LOCKED != 0 && next & MATCHING == TOP_OF_RANGE;
        if self.settings[entry] & LOCKED == 0 && !begins_locked {
            self.addresses[entry] = value & if bits == 32 { ADDRESS_32 } else { ADDRESS_64 };
        }
    }

    /// The addresses of an entry.
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

    /// Whether `bytes` bytes from `address` on may be reached: all of them by one entry's word.
    pub(crate) fn allows(&self, address: u64, bytes: u64, access: AccessKind, machine: bool) -> bool {
        let end = address.saturating_add(bytes);
        for (entry, settings) in self.settings.iter().enumerate() {
            let range = self.range(entry);
            // An empty range inside the access matches nothing.
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
