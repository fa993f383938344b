//! Typed commands, the only entrance to the engine.
//!
//! A command is a struct that borrows its arguments; its type determines the type of the reply ([`super::Command`]).
//! Commands follow the NDS paper's interface (section 5.1 and the command set of 5.3.1): create, open, resize and
//! delete a space; move one sub-block of a space or of a view by one command; flush, deallocate, read statistics.
//! Dimensions are in elements, slowest-varying first; strides are in bytes. A view is named in the command instead of
//! being opened first, since translating its coordinates costs less than looking up a handle.

use super::transaction::TransactionId;
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::SpaceId;
use crate::stl::write::Source;

/// The description of a space to create.
#[derive(Clone, Debug)]
pub struct NewSpace<'a> {
    /// Name of the space.
    pub name: &'a str,
    /// Number of elements along each dimension; empty for a scalar.
    pub shape: &'a [u64],
    /// Size of an element in bytes.
    pub item_bytes: u32,
    /// Name of the element type, as the caller writes it; the engine stores it and does not interpret it.
    pub dtype: &'a str,
    /// Shape of a building block in elements; `None` chooses the default (`stl::block_size`).
    pub block: Option<&'a [u64]>,
    /// Compression, e.g. `zstd:3+shuffle`; `None` stores elements as they are.
    pub compression: Option<&'a str>,
    /// Key of 32 bytes; the space is encrypted with it. `None` creates a plain space.
    pub key: Option<&'a [u8]>,
    /// Value of elements that were never written, `item_bytes` long; `None` is zeroes.
    pub fill: Option<&'a [u8]>,
    /// Attributes as text; the engine stores them and does not interpret them.
    pub attrs: &'a str,
}

/// The elements of a space that a command moves, and where they lie in the caller's buffer.
#[derive(Clone, Debug)]
pub enum Target<'a> {
    /// A strided box: elements `start + step * i` for all `i < count`, of the space or of a view of it.
    Box {
        /// First coordinate along each dimension.
        start: &'a [u64],
        /// Distance between elements along each dimension, at least 1.
        step: &'a [u64],
        /// Number of elements along each dimension.
        count: &'a [u64],
        /// Byte strides in the buffer, one for each dimension.
        strides: &'a [isize],
        /// Shape of the view that `start` and `count` refer to; `None` is the space's own shape.
        view: Option<&'a [u64]>,
    },
    /// Every combination of coordinates from one range or list for each dimension.
    Outer {
        /// A range or a list of coordinates for each dimension.
        axes: &'a [Axis],
        /// Byte strides in the buffer, one for each dimension.
        strides: &'a [isize],
    },
    /// Several boxes of one size. Boxes that are read may lie anywhere. Of boxes that are written, along each dimension
    /// either each has one coordinate only, or all begin at the same coordinate, so that any two are equal or disjoint;
    /// of equal ones the last counts.
    Boxes {
        /// First coordinates: those of the first box, then those of the second, and so on.
        starts: &'a [u64],
        /// Distance between elements along each dimension, at least 1.
        step: &'a [u64],
        /// Number of elements of a box along each dimension.
        count: &'a [u64],
        /// Byte strides in the buffer within a box, one for each dimension.
        strides: &'a [isize],
        /// Distance in bytes between the beginnings of successive boxes in the buffer.
        stride: isize,
        /// Shape of the view that the coordinates refer to; `None` is the space's own shape.
        view: Option<&'a [u64]>,
    },
    /// Single elements.
    Points {
        /// Coordinates: those of the first point, then those of the second, and so on.
        coordinates: &'a [u64],
        /// Distance in bytes between successive elements in the buffer.
        stride: isize,
    },
}

/// One of several changes of names and attributes that are made together ([`Batch`], [`Apply`]).
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Deletes a space.
    Delete {
        /// Name of the space to delete.
        name: &'a str,
    },
    /// Renames a space.
    Rename {
        /// Name of the space to rename.
        from: &'a str,
        /// New name, which no other space may have.
        to: &'a str,
    },
    /// Replaces a space's attributes.
    SetAttrs {
        /// Name of the space whose attributes are replaced.
        name: &'a str,
        /// New attributes of the space.
        attrs: &'a str,
    },
}

/// Creates a space; the reply is the space.
#[derive(Debug)]
pub struct Create<'a>(pub NewSpace<'a>);

/// Opens a space by name; the reply is the space.
#[derive(Debug)]
pub struct Open<'a> {
    /// Name of the space to open.
    pub name: &'a str,
    /// Key of an encrypted space; `None` opens a plain space.
    pub key: Option<&'a [u8]>,
}

/// Deletes a space.
#[derive(Debug)]
pub struct Delete<'a> {
    /// Name of the space to delete.
    pub name: &'a str,
}

/// Renames a space.
#[derive(Debug)]
pub struct Rename<'a> {
    /// Name of the space to rename.
    pub from: &'a str,
    /// New name, which no other space may have.
    pub to: &'a str,
}

/// Makes several changes of names and attributes in order, all of them or none.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The changes; each is made to the names that the changes before it left.
    pub changes: &'a [Change<'a>],
}

/// Grows a space along one dimension and writes the new elements, in one step; the reply is the new shape.
#[derive(Debug)]
pub struct Append<'a> {
    /// Number of the space that grows.
    pub space: SpaceId,
    /// Number of the dimension along which the space grows, from 0.
    pub axis: usize,
    /// Number of elements of the new part along each dimension: equal to the space's, except along `axis`.
    pub count: &'a [u64],
    /// Byte strides in the buffer, one for each dimension.
    pub strides: &'a [isize],
    /// Source of the new elements' values.
    pub source: Source,
}

/// Begins a transaction: locks whole spaces against all other writes; the reply is the transaction's number.
///
/// A thread that began a transaction must write to its spaces by [`StageWrite`] only, and not compact the store: any
/// other write would wait for the transaction, and so for itself.
#[derive(Debug)]
pub struct Begin<'a> {
    /// The spaces, each once, and the shape that each has after [`Apply`]: no dimension is added or becomes smaller.
    pub spaces: &'a [(SpaceId, &'a [u64])],
}

/// Writes elements to a space of a transaction, within the shape that the space has after [`Apply`]. No reader sees
/// them before the transaction is applied.
#[derive(Debug)]
pub struct StageWrite<'a> {
    /// Number of the transaction.
    pub transaction: TransactionId,
    /// Number of the space to write, one of the transaction's.
    pub space: SpaceId,
    /// The elements to write.
    pub target: Target<'a>,
    /// Source of the elements' values.
    pub source: Source,
}

/// Applies a transaction: new shapes, elements and changes become visible together, or not at all. The transaction has
/// ended even if this fails.
#[derive(Debug)]
pub struct Apply<'a> {
    /// Number of the transaction to apply.
    pub transaction: TransactionId,
    /// Changes of names and attributes, made after the shapes and elements.
    pub changes: &'a [Change<'a>],
}

/// Ends a transaction and discards its writes. It is no error if the transaction has ended or never existed.
#[derive(Debug)]
pub struct Abort {
    /// Number of the transaction to end.
    pub transaction: TransactionId,
}

/// Grows or shrinks a space. Elements that are cut off are lost: growing the space again shows the fill value.
#[derive(Debug)]
pub struct Resize<'a> {
    /// Number of the space to resize.
    pub space: SpaceId,
    /// New shape, with as many dimensions as before.
    pub shape: &'a [u64],
}

/// Replaces a space's attributes.
#[derive(Debug)]
pub struct SetAttrs<'a> {
    /// Number of the space whose attributes are replaced.
    pub space: SpaceId,
    /// New attributes of the space.
    pub attrs: &'a str,
}

/// Copies elements from a space to a buffer.
#[derive(Debug)]
pub struct Read<'a> {
    /// Number of the space to read.
    pub space: SpaceId,
    /// The elements to read.
    pub target: Target<'a>,
    /// Destination buffer, which must cover the target.
    pub out: BufferMut,
}

/// Copies elements from a buffer to a space.
#[derive(Debug)]
pub struct Write<'a> {
    /// Number of the space to write.
    pub space: SpaceId,
    /// The elements to write.
    pub target: Target<'a>,
    /// Source of the elements' values.
    pub source: Source,
}

/// Reads compressed building blocks as they are stored, without decoding; the space must have no encryption. The reply
/// has a payload for each block, `None` where a block has no content, or has a part in the write buffer.
#[derive(Debug)]
pub struct ReadStored<'a> {
    /// Number of the space to read.
    pub space: SpaceId,
    /// Coordinates of the blocks, counted in blocks: those of the first, then those of the second, and so on.
    pub blocks: &'a [u64],
}

/// Replaces whole building blocks by payloads that [`ReadStored`] returned for a space with the same elements, building
/// block, compression and fill value. Each payload is decoded once, and damaged ones are refused.
#[derive(Debug)]
pub struct WriteStored<'a> {
    /// Number of the space to write.
    pub space: SpaceId,
    /// Coordinates of the blocks, each once, as in [`ReadStored`].
    pub blocks: &'a [u64],
    /// Payload of each block.
    pub payloads: &'a [&'a [u8]],
}

/// Deallocates a box: its elements read as the fill value from then on, and blocks that lie in it take no space.
#[derive(Debug)]
pub struct Deallocate<'a> {
    /// Number of the space with the box.
    pub space: SpaceId,
    /// First coordinate along each dimension.
    pub start: &'a [u64],
    /// Number of elements along each dimension.
    pub count: &'a [u64],
}

/// Makes all earlier writes durable: after the reply they survive a power failure.
#[derive(Debug)]
pub struct Flush;

/// Commits all earlier writes to the operating system: after the reply they survive the end of this process, but a
/// power failure only after a [`Flush`].
#[derive(Debug)]
pub struct Settle;

/// Compares all metadata and pages with each other; the reply is a report of the faults.
#[derive(Debug)]
pub struct Check {
    /// Whether to repair faults as far as the out-of-band records allow.
    pub repair: bool,
    /// Whether a repair may replace damaged content by the newest intact older content. Otherwise reading the damaged
    /// content stays an error.
    pub accept_older: bool,
}

/// Moves live pages together and truncates the file; the reply is the number of bytes by which it shrank.
#[derive(Debug)]
pub struct Compact;

/// Reads the store's statistics; the reply is a list of names and numbers.
#[derive(Debug)]
pub struct Stat;

/// Reads the statistics of one space; the reply is a list of names and numbers.
#[derive(Debug)]
pub struct StatSpace {
    /// Number of the space whose statistics are read.
    pub space: SpaceId,
}

/// Lists the building blocks of a space that have content; the others read as the fill value. The reply has the
/// coordinates of each, counted in blocks, one after the other in ascending order; a scalar has one dimension here.
#[derive(Debug)]
pub struct ListBlocks {
    /// Number of the space whose blocks are listed.
    pub space: SpaceId,
}

/// Lists the names that begin with a prefix; the reply has them in byte order.
#[derive(Debug)]
pub struct List<'a> {
    /// Prefix of the names to list.
    pub prefix: &'a str,
}
