//! The space translation layer: spaces, building blocks, views (NDS paper, section 4).
//!
//! Cut: [`block_size`] sizes building blocks; [`index`] finds them; [`translate`] turns a view's box into selections of
//! the space; [`plan`] cuts selections at building blocks; [`copy`] moves the elements; [`space`] is a space's state:
//! its record, its index and the units that gather in memory; [`read`] assembles ([`assemble`] for large reads, with
//! the loops of [`pieces`] and [`stream`], `first_look` where pages are still to be compared; `short` for small ones,
//! whose tasks come from a `walk`; `fragments` for blocks whose pages lie apart, `points` for single elements,
//! [`small`] for a few bytes), [`write`] composes; [`ahead`] asks for what is read next (`looks` say whether that is
//! needed), within a command and, where [`sequence`] sees a scan, beyond it; [`lend`] shows bytes where they lie;
//! `locate` finds the pages of a read in flight. The layer knows dimensions and access units, never segments or erase
//! blocks.

pub mod ahead;
pub mod assemble;
pub mod block_size;
pub mod copy;
mod first_look;
mod fragments;
pub mod index;
pub mod lend;
mod locate;
mod looks;
pub mod pieces;
pub mod plan;
mod points;
pub mod read;
pub mod rent;
pub mod sequence;
mod short;
pub mod small;
pub mod space;
pub mod stream;
pub mod translate;
pub mod units;
mod walk;
pub mod work;
pub mod write;
