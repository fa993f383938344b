//! Device descriptions: typed, range-checked, with a unit and a source for every number.

pub mod description;

pub use description::*;
