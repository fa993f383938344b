//! Quantities as read from values, in the simulation's units, and what is wrong with a value that gives none. Kinds, in
//! `kind`, read them; this file does not.

use nandarray_sim::Ps;

/// A quantity read from a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// A count, a size in bytes, a rate in bytes per second or a frequency in hertz.
    Whole(u64),
    /// A number, a fraction, an energy in picojoules, or a power in microwatts.
    Real(f64),
    /// A time.
    Time(Ps),
    /// One time, or one for each kind of page.
    Times(Vec<Ps>),
    /// An energy given as a power in watts, which lasts as long as the operation.
    WattsWhile(f64),
    /// `"none"`, or the word that the key allows instead of a number.
    Nothing,
    /// `true` or `false`.
    Flag(bool),
    /// One of the key's words.
    Word(&'static str),
    /// A striping order: whether it is dynamic, and its letters.
    Striping(bool, [u8; 4]),
    /// Counts; `None` stands for `"none"`.
    Counts(Vec<Option<u64>>),
    /// A list of quantities of one kind.
    List(Vec<Quantity>),
}

/// The problem with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Description of the problem.
    pub what: String,
    /// The allowed values.
    pub allowed: String,
}
