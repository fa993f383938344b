//! The space translation layer: spaces, building blocks, views (NDS paper, section 4).
//!
//! Parts: [`block_size`] computes the size of building blocks; [`index`] finds them; [`translate`] turns a view's box
//! into selections of the space; [`plan`] cuts selections at the edges of building blocks; [`work`] distributes the
//! tasks to threads; [`space`] is a space's state: its record, its index and its write buffer. [`read`] moves elements
//! from blocks to the caller in three stages (walk, locate, move); [`mod@write`] composes blocks; [`copy`] has the
//! loops that move bytes; [`prefetch`] fetches pages before they are read, within a command and, for sequential
//! streams, beyond it. The layer knows dimensions and access units, never segments or erase blocks.

pub mod block_size;
pub mod copy;
pub mod index;
pub mod plan;
pub mod prefetch;
pub mod read;
pub mod space;
pub mod translate;
pub mod units;
pub mod work;
pub mod write;
