//! The engine's only entrance: typed commands.
//!
//! A command is a struct that borrows what it needs; its type fixes the type of the reply ([`super::Command`]).
//! Commands follow the NDS paper's interface (section 5.1 and the command set of 5.3.1): create, open, resize and
//! delete a space; move one sub-block of a space or of a view by one command; flush, deallocate, read numbers.
//! Dimensions are in elements, slowest-varying first; strides in bytes. A view is named in the command, not opened
//! first: translating costs less than looking up a handle.

use super::transaction::TransactionId;
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::SpaceId;
use crate::stl::write::Source;

/// The description of a space to create.
#[derive(Clone, Debug)]
pub struct NewSpace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Elements along each dimension.
    pub shape: &'a [u64],
    /// Bytes of an element.
    pub item_bytes: u32,
    /// The door's name of the element type.
    pub dtype: &'a str,
    /// Shape of a building block; `None` takes the default (`stl::block_size`).
    pub block: Option<&'a [u64]>,
    /// Compression, e.g. `zstd:3+shuffle`.
    pub compression: Option<&'a str>,
    /// 32 bytes; encrypts the space.
    pub key: Option<&'a [u8]>,
    /// The element that was never written; `None` is zeroes.
    pub fill: Option<&'a [u8]>,
    /// The door's attributes.
    pub attrs: &'a str,
}

/// The elements of a space that a command moves, and their places in the buffer.
#[derive(Clone, Debug)]
pub enum Target<'a> {
    /// `start + step * [0, count)` of the space, or of the view of it with this shape.
    Box {
        /// First coordinate.
        start: &'a [u64],
        /// Distances, at least 1.
        step: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Byte strides in the buffer.
        strides: &'a [isize],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
    },
    /// The product of a range or list for each dimension.
    Outer {
        /// One for each dimension.
        axes: &'a [Axis],
        /// Byte strides in the buffer.
        strides: &'a [isize],
    },
    /// Boxes of one size, each somewhere else: along every dimension either a box has one coordinate, or all boxes
    /// begin at the same. Of boxes that are written twice the last counts.
    Boxes {
        /// First coordinates, one box after the other.
        starts: &'a [u64],
        /// Distances, at least 1.
        step: &'a [u64],
        /// Elements of a box.
        count: &'a [u64],
        /// Byte strides in the buffer, within a box.
        strides: &'a [isize],
        /// Bytes between boxes in the buffer.
        stride: isize,
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
    },
    /// Single elements.
    Points {
        /// Coordinates, one point after the other.
        coordinates: &'a [u64],
        /// Bytes between elements in the buffer.
        stride: isize,
    },
}

/// One of several changes that are made together.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Deletes a space.
    Delete {
        /// Its name.
        name: &'a str,
    },
    /// Renames a space.
    Rename {
        /// Its name.
        from: &'a str,
        /// Its new name, which must be free.
        to: &'a str,
    },
    /// Replaces a space's attributes.
    SetAttrs {
        /// Its name.
        name: &'a str,
        /// Its new attributes.
        attrs: &'a str,
    },
}

/// Creates a space; the reply is the space.
#[derive(Debug)]
pub struct Create<'a>(pub NewSpace<'a>);

/// Opens a space by name; the reply is the space.
#[derive(Debug)]
pub struct Open<'a> {
    /// Name of the space.
    pub name: &'a str,
    /// Its key, if it is encrypted.
    pub key: Option<&'a [u8]>,
}

/// Deletes a space.
#[derive(Debug)]
pub struct Delete<'a> {
    /// Name of the space.
    pub name: &'a str,
}

/// Renames a space.
#[derive(Debug)]
pub struct Rename<'a> {
    /// Name of the space.
    pub from: &'a str,
    /// Its new name, which must be free.
    pub to: &'a str,
}

/// Makes several changes in order, as one: all of them or none.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The changes; each sees those before it.
    pub changes: &'a [Change<'a>],
}

/// Grows a space along one dimension and writes the new part, as one; the reply is the new shape.
#[derive(Debug)]
pub struct Append<'a> {
    /// The space.
    pub space: SpaceId,
    /// The dimension.
    pub axis: usize,
    /// Elements of the new part: the space's own numbers but along the dimension.
    pub count: &'a [u64],
    /// Byte strides in the buffer.
    pub strides: &'a [isize],
    /// The elements.
    pub source: Source,
}

/// Begins a transaction: reserves whole spaces against all other writes; the reply is the transaction.
///
/// A thread that reserves a space by a transaction must not write to it otherwise: it would wait for itself.
#[derive(Debug)]
pub struct Begin<'a> {
    /// The spaces, each once, and the shape that each will have: as many dimensions, none smaller.
    pub spaces: &'a [(SpaceId, &'a [u64])],
}

/// Writes elements of a space of a transaction, within the shape that it will have. No reader sees them before the
/// transaction is applied.
#[derive(Debug)]
pub struct StageWrite<'a> {
    /// The transaction.
    pub transaction: TransactionId,
    /// The space.
    pub space: SpaceId,
    /// The elements to write.
    pub target: Target<'a>,
    /// Their values.
    pub source: Source,
}

/// Ends a transaction: shapes, elements and changes are made as one, all or none. It is over also when this fails.
#[derive(Debug)]
pub struct Apply<'a> {
    /// The transaction.
    pub transaction: TransactionId,
    /// Changes of names and attributes that belong to it, made after all else.
    pub changes: &'a [Change<'a>],
}

/// Ends a transaction and leaves everything as it was. A transaction that is over, or never was, is no error.
#[derive(Debug)]
pub struct Abort {
    /// The transaction.
    pub transaction: TransactionId,
}

/// Grows or cuts a space. A part that is cut off and grown again reads as fill.
#[derive(Debug)]
pub struct Resize<'a> {
    /// The space.
    pub space: SpaceId,
    /// Its new shape; as many dimensions as before.
    pub shape: &'a [u64],
}

/// Replaces a space's attributes.
#[derive(Debug)]
pub struct SetAttrs<'a> {
    /// The space.
    pub space: SpaceId,
    /// Its new attributes.
    pub attrs: &'a str,
}

/// Moves elements from a space to a buffer.
#[derive(Debug)]
pub struct Read<'a> {
    /// The space.
    pub space: SpaceId,
    /// The elements to read.
    pub target: Target<'a>,
    /// Destination.
    pub out: BufferMut,
}

/// Moves elements from a buffer to a space.
#[derive(Debug)]
pub struct Write<'a> {
    /// The space.
    pub space: SpaceId,
    /// The elements to write.
    pub target: Target<'a>,
    /// Their values.
    pub source: Source,
}

/// Deallocates a box: it reads as fill from then on, and blocks within take no space.
#[derive(Debug)]
pub struct Deallocate<'a> {
    /// The space.
    pub space: SpaceId,
    /// First coordinate.
    pub start: &'a [u64],
    /// Number of elements along each dimension.
    pub count: &'a [u64],
}

/// Makes every earlier write durable.
#[derive(Debug)]
pub struct Flush;

/// Hands every earlier write to the system: it survives the end of this process from then on, a power failure only
/// after a [`Flush`].
#[derive(Debug)]
pub struct Settle;

/// Compares all metadata and pages with each other; the reply is the report.
#[derive(Debug)]
pub struct Check {
    /// Mend what the records allow.
    pub repair: bool,
    /// Where the newest content is damaged, map the newest intact content before it. Without, it stays an error.
    pub accept_older: bool,
}

/// Moves live pages together and cuts the file; the reply is the number of bytes by which it shrank.
#[derive(Debug)]
pub struct Compact;

/// Reads the store's numbers; the reply has each with its name.
#[derive(Debug)]
pub struct Stat;

/// Reads the numbers of one space; the reply has each with its name.
#[derive(Debug)]
pub struct StatSpace {
    /// The space.
    pub space: SpaceId,
}

/// Lists names with a prefix; the reply has them in order.
#[derive(Debug)]
pub struct List<'a> {
    /// The prefix.
    pub prefix: &'a str,
}
