//! What the flash is asked for: one page read, one page programmed, one block erased; by whom and for whom.
//!
//! Whoever asks (flash management, conventional or the store's own) names physical places; the back end decides when,
//! and joins what it may join (planes of a die, pages that follow each other) into one command.

/// What is done to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Senses a page and moves bytes of it to the controller.
    Read,
    /// Moves a page to the die and programs it.
    Program,
    /// Erases a block; `page` is 0, `bytes` 0.
    Erase,
}

/// For whom, which is also what energy and bytes are booked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// A host's command.
    Host,
    /// The map: translation pages, journal, checkpoints.
    Map,
    /// Reclaim.
    Gc,
    /// Wear levelling.
    Wear,
}

impl Cause {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Host, Self::Map, Self::Gc, Self::Wear];
}

/// A physical page: the die's number in the whole device (`FlashGeometry::die_index`), plane, block, page within the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Die, of the whole device.
    pub die: u32,
    /// Block within its plane.
    pub block: u32,
    /// Page within its block.
    pub page: u16,
    /// Plane of the die.
    pub plane: u16,
}

/// One thing asked of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What.
    pub op: Op,
    /// For whom.
    pub cause: Cause,
    /// Where.
    pub place: Place,
    /// Bytes that cross the channel (spare bytes are the back end's business); a part of a page for reads, a page for
    /// programs.
    pub bytes: u32,
    /// Comes back with the outcome; the back end never looks at it.
    pub token: u64,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Done,
    /// A page that could not be corrected after all retries.
    Uncorrectable,
    /// A program or an erase that failed: the block is bad from now on.
    Failed,
}

/// An operation that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As asked for.
    pub token: u64,
    /// What was done.
    pub op: Op,
    /// Where.
    pub place: Place,
    /// How.
    pub outcome: Outcome,
}
