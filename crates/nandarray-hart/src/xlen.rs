//! The two register widths as types: the interpreter is compiled for each, so it never checks the width while it runs.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rv32 {}
    impl Sealed for super::Rv64 {}
}

/// A register width: [`Rv32`] or [`Rv64`].
pub trait Xlen: sealed::Sealed + Copy + Debug + Default + Send + Sync + 'static {
    /// Bits of an integer register.
    const BITS: u32;
    /// The type of an integer register's value.
    type Word: Copy + Default + Debug + PartialEq + Eq + Send + Sync;

    /// Truncates a value to the width of a register.
    fn word(value: u64) -> Self::Word;
    /// Extends a register's value to 64 bits with zeros.
    fn unsigned(word: Self::Word) -> u64;
    /// Extends a register's value to 64 bits with its sign.
    fn signed(word: Self::Word) -> i64;
}

/// 32-bit registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rv32;

/// 64-bit registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rv64;

impl Xlen for Rv32 {
    const BITS: u32 = 32;
    type Word = u32;

    #[inline(always)]
    fn word(value: u64) -> u32 {
        value as u32
    }

    #[inline(always)]
    fn unsigned(word: u32) -> u64 {
        u64::from(word)
    }

    #[inline(always)]
    fn signed(word: u32) -> i64 {
        i64::from(word as i32)
    }
}

impl Xlen for Rv64 {
    const BITS: u32 = 64;
    type Word = u64;

    #[inline(always)]
    fn word(value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn unsigned(word: u64) -> u64 {
        word
    }

    #[inline(always)]
    fn signed(word: u64) -> i64 {
        word as i64
    }
}
