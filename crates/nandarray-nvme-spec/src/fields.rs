//! Fields of a submission entry: the dword and the bits of each are a type, which encodes and decodes it.
//!
//! A field that lies in no dword of a command, or is read as a type that is narrower than it, does not compile.

use crate::entry::SubmissionEntry;

/// Bits `HIGH` to `LOW` of a dword, as the specification writes them.
pub(crate) struct DwordBits<const DWORD: usize, const HIGH: u32, const LOW: u32>;

/// Bit `BIT` of a dword.
pub(crate) type Bit<const DWORD: usize, const BIT: u32> = DwordBits<DWORD, BIT, BIT>;

impl<const DWORD: usize, const HIGH: u32, const LOW: u32> DwordBits<DWORD, HIGH, LOW> {
    const MASK: u32 = {
        assert!(DWORD == 2 || DWORD == 3 || (DWORD >= 10 && DWORD <= 15), "a command has dwords 2, 3 and 10 to 15");
        assert!(LOW <= HIGH && HIGH < 32, "a dword has bits 31 to 0");
        u32::MAX >> (31 - (HIGH - LOW))
    };

    pub(crate) fn get(entry: &SubmissionEntry) -> u32 {
        entry.cdw(DWORD) >> LOW & Self::MASK
    }

    pub(crate) fn u16(entry: &SubmissionEntry) -> u16 {
        const { assert!(HIGH - LOW < 16, "the field has at most 16 bits") };
        Self::get(entry) as u16
    }

    pub(crate) fn u8(entry: &SubmissionEntry) -> u8 {
        const { assert!(HIGH - LOW < 8, "the field has at most 8 bits") };
        Self::get(entry) as u8
    }

    pub(crate) fn flag(entry: &SubmissionEntry) -> bool {
        const { assert!(HIGH == LOW, "the field is one bit") };
        Self::get(entry) == 1
    }

    /// Sets the field.
    ///
    /// # Panics
    /// If the value has more bits than the field.
    pub(crate) fn put(entry: &mut SubmissionEntry, value: impl Into<u32>) {
        let value = value.into();
        assert!(value <= Self::MASK, "{value:#x} in bits {HIGH}:{LOW} of dword {DWORD}");
        entry.set_cdw(DWORD, entry.cdw(DWORD) & !(Self::MASK << LOW) | value << LOW);
    }
}

/// A field of 64 bits in dword `FIRST`, its lower half, and the dword behind it.
pub(crate) struct Wide<const FIRST: usize>;

impl<const FIRST: usize> Wide<FIRST> {
    const FITS: () = assert!(FIRST == 2 || (FIRST >= 10 && FIRST <= 14), "both halves are dwords of a command");

    pub(crate) fn get(entry: &SubmissionEntry) -> u64 {
        () = Self::FITS;
        entry.cdw_pair(FIRST)
    }

    pub(crate) fn put(entry: &mut SubmissionEntry, value: u64) {
        () = Self::FITS;
        entry.set_cdw_pair(FIRST, value);
    }
}

/// Declares an enumeration of numbers of 8 bits, with all of them and the search by number.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$each])* $variant = $number,)*
        }

        impl $name {
            /// All of them, in the order in which they are declared.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the one that has a number; `None` if none has.
            pub fn of(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| *one as u8 == number)
            }
        }
    };
}

pub(crate) use numbers;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_leaves_its_neighbours_alone() {
        let mut entry = SubmissionEntry::default();
        entry.set_cdw(11, u32::MAX);
        DwordBits::<11, 15, 4>::put(&mut entry, 0x123u16);
        assert_eq!(entry.cdw(11), 0xffff_123f);
        assert_eq!((DwordBits::<11, 15, 4>::u16(&entry), Bit::<11, 31>::flag(&entry)), (0x123, true));
        DwordBits::<10, 31, 0>::put(&mut entry, 7u32);
        Wide::<14>::put(&mut entry, 1 << 40);
        assert_eq!((entry.cdw(10), entry.cdw(14), entry.cdw(15), Wide::<14>::get(&entry)), (7, 0, 256, 1 << 40));
    }

    #[test]
    #[should_panic(expected = "0x10 in bits 3:0 of dword 10")]
    fn a_value_that_is_too_wide_is_noticed() {
        DwordBits::<10, 3, 0>::put(&mut SubmissionEntry::default(), 16u8);
    }
}
