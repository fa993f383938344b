//! Flash operations: a page read, a page programmed, a block erased, each with its cause.
//!
//! Flash management (conventional or the store's own) submits operations on physical addresses. The back end decides
//! when each is executed, and combines operations (on several planes of a die, or on consecutive pages) into one
//! command.

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Sense a page and transfer bytes of it to the controller.
    Read,
    /// Transfer a page to the die and program it.
    Program,
    /// Erase a block; `page` and `bytes` are 0.
    Erase,
}

/// Reason for an operation, to which its energy and bytes are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpCause {
    /// A host's command.
    Host,
    /// Reading or writing the map: translation pages, journal, checkpoints.
    Map,
    /// Garbage collection.
    Gc,
    /// Wear levelling.
    Wear,
}

impl OpCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Host, Self::Map, Self::Gc, Self::Wear];
}

/// Address of a physical page; of a block, if `page` is 0 or does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageAddress {
    /// Number of the die within the whole device, as `FlashGeometry::die_index` counts.
    pub die: u32,
    /// Block within its plane.
    pub block: u32,
    /// Page within its block.
    pub page: u16,
    /// Plane within its die.
    pub plane: u16,
}

/// A flash operation as its submitter describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashOp {
    /// Kind of the operation.
    pub op: OpKind,
    /// Cause of the operation.
    pub cause: OpCause,
    /// Address of the page or block.
    pub place: PageAddress,
    /// User-data bytes that cross the channel: a part of a page for reads, a whole page for programs. The back end
    /// adds the spare bytes.
    pub bytes: u32,
    /// A value of the caller's choice, returned in [`OpEnded`].
    pub token: u64,
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// Success.
    Done,
    /// A read whose page could not be corrected after all retries.
    Uncorrectable,
    /// A program or an erase that failed: the block is bad from now on.
    Failed,
}

/// Report of an operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpEnded {
    /// The caller's value from [`FlashOp::token`].
    pub token: u64,
    /// Kind of the operation.
    pub op: OpKind,
    /// Address of the page or block.
    pub place: PageAddress,
    /// Outcome of the operation.
    pub outcome: OpOutcome,
}
