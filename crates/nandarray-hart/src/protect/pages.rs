//! Page tables: Sv32, and Sv39, Sv48 and Sv57, which differ only in the number of levels.
//!
//! A table is a page of entries. An entry that may be read, written or executed refers to a page (at a higher level, to
//! a larger page); any other entry refers to the next table. The accessed and the dirty bit are set when the page is
//! used, as QEMU does by default; a hart that left this to software would fault instead. The upper bits of an entry
//! that no extension here uses must be zero.

use super::AccessKind;

const VALID: u64 = 1;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// Number of address bits within a page.
pub(crate) const PAGE_BITS: u32 = 12;
/// Mask of the page number in a 64-bit entry; `NUMBER_32` is that of a 32-bit entry.
const NUMBER_64: u64 = (1 << 44) - 1;
const NUMBER_32: u64 = (1 << 22) - 1;

/// The format of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTableFormat {
    pub(crate) levels: u32,
    /// Number of address bits that each level translates; entries have 4 bytes if it is 10, and 8 if it is 9.
    pub(crate) level_bits: u32,
}

impl PageTableFormat {
    pub(crate) const SV32: Self = Self { levels: 2, level_bits: 10 };

    /// Returns the format that the mode field of a 64-bit `satp` selects: 8 for Sv39, 9 for Sv48, 10 for Sv57; `None`
    /// for no translation.
    pub(crate) fn of_mode(mode: u64) -> Option<Self> {
        (8..=10).contains(&mode).then(|| Self { levels: mode as u32 - 5, level_bits: 9 })
    }

    fn entry_bytes(self) -> u64 {
        if self.level_bits == 10 { 4 } else { 8 }
    }
}

/// The page tables that translate addresses, and the rights with which they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTranslation {
    pub(crate) table: PageTableFormat,
    /// Physical address of the first table.
    pub(crate) root: u64,
    /// Whether the access is made in user mode.
    pub(crate) user: bool,
    /// Whether supervisor mode may access pages of user mode.
    pub(crate) sum: bool,
    /// Whether executable pages may be loaded from.
    pub(crate) mxr: bool,
}

/// Access to page tables in memory. A function returns `None` if no memory is at the address, or the access is
/// forbidden.
pub(crate) trait PageTables {
    fn entry(&mut self, address: u64, bytes: u64) -> Option<u64>;
    fn set_entry(&mut self, address: u64, bytes: u64, value: u64) -> Option<()>;
}

/// The reason why an address has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkFailure {
    /// The page tables have no translation for the address, or forbid the access.
    Page,
    /// The page tables themselves cannot be accessed.
    Access,
}

impl PageTranslation {
    /// Translates `address` to a physical address, and sets the accessed and dirty bits of the page.
    pub(crate) fn translate(
        &self,
        address: u64,
        access: AccessKind,
        tables: &mut impl PageTables,
    ) -> Result<u64, WalkFailure> {
        let PageTableFormat { levels, level_bits } = self.table;
        let bits = levels * level_bits + PAGE_BITS;
        // With 64-bit entries, the upper address bits must be copies of the highest translated bit.
        let sign = (address as i64) << (64 - bits) >> (64 - bits);
        if level_bits == 9 && sign as u64 != address {
            return Err(WalkFailure::Page);
        }
        let bytes = self.table.entry_bytes();
        let mut table = self.root;
        for level in (0..levels).rev() {
            let shift = PAGE_BITS + level * level_bits;
            let index = address >> shift & ((1 << level_bits) - 1);
            debug_assert!(
                index * bytes < 1 << PAGE_BITS && table.is_multiple_of(1 << PAGE_BITS),
                "{index} of {table:#x}"
            );
            let at = table.wrapping_add(index * bytes);
            let entry = tables.entry(at, bytes).ok_or(WalkFailure::Access)?;
            let number = if bytes == 4 { entry >> 10 & NUMBER_32 } else { entry >> 10 & NUMBER_64 };
            if entry & VALID == 0 || entry & (READ | WRITE) == WRITE || bytes == 8 && entry >> 54 != 0 {
                return Err(WalkFailure::Page);
            }
            if entry & (READ | WRITE | EXECUTE) == 0 {
                if entry & (USER | ACCESSED | DIRTY) != 0 {
                    return Err(WalkFailure::Page);
                }
                table = number << PAGE_BITS;
                continue;
            }
            let within = (1 << shift) - 1;
            if !self.allows(entry, access) || (number << PAGE_BITS) & within != 0 {
                return Err(WalkFailure::Page);
            }
            let used = entry | ACCESSED | if access == AccessKind::Store { DIRTY } else { 0 };
            if used != entry {
                tables.set_entry(at, bytes, used).ok_or(WalkFailure::Access)?;
            }
            return Ok(number << PAGE_BITS | address & within);
        }
        Err(WalkFailure::Page)
    }

    fn allows(&self, entry: u64, access: AccessKind) -> bool {
        let users = entry & USER != 0;
        let mode = if self.user { users } else { !users || self.sum && access != AccessKind::Fetch };
        mode && match access {
            AccessKind::Load => entry & READ != 0 || self.mxr && entry & EXECUTE != 0,
            AccessKind::Store => entry & WRITE != 0,
            AccessKind::Fetch => entry & EXECUTE != 0,
        }
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
