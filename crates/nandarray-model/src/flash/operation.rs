//! Flash operations: a page read, a page programmed, a block erased, each with its cause.
//!
//! Flash management (conventional or the store's own) names physical addresses; the back end decides when, and joins
//! operations (planes of a die, pages that follow each other) into one command.

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Senses a page and moves bytes of it to the controller.
    Read,
    /// Moves a page to the die and programs it.
    Program,
    /// Erases a block; `page` is 0, `bytes` 0.
    Erase,
}

/// Cause of an operation, to which its energy and bytes are booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpCause {
    /// A host's command.
    Host,
    /// The map: translation pages, journal, checkpoints.
    Map,
    /// Reclaim.
    Gc,
    /// Wear levelling.
    Wear,
}

impl OpCause {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Host, Self::Map, Self::Gc, Self::Wear];
}

/// A physical page: the die's number in the whole device (`FlashGeometry::die_index`), plane, block, page within the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageAddress {
    /// Die, of the whole device.
    pub die: u32,
    /// Block within its plane.
    pub block: u32,
    /// Page within its block.
    pub page: u16,
    /// Plane of the die.
    pub plane: u16,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashOp {
    /// Its kind.
    pub op: OpKind,
    /// Its cause.
    pub cause: OpCause,
    /// Address of the page or block.
    pub place: PageAddress,
    /// Bytes that cross the channel (spare bytes are the back end's business); a part of a page for reads, a page for
    /// programs.
    pub bytes: u32,
    /// The caller's value, returned with the outcome.
    pub token: u64,
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// Success.
    Done,
    /// A page that could not be corrected after all retries.
    Uncorrectable,
    /// A program or an erase that failed: the block is bad from now on.
    Failed,
}

/// An operation that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpEnded {
    /// The caller's value.
    pub token: u64,
    /// Its kind.
    pub op: OpKind,
    /// Address of the page or block.
    pub place: PageAddress,
    /// Its outcome.
    pub outcome: OpOutcome,
}
