//! The flash back end under the clock: channels, chips, dies, planes; what they are asked for and when they are done.

pub mod operation;

pub use operation::*;
