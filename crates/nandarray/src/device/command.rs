//! The engine's only entrance: typed commands.
//!
//! They follow the NDS paper's interface (section 5.1 and the command set of 5.3.1): make, open, resize and delete a
//! space; move one sub-block of a space or of a view by one command; flush, deallocate, tell. Dimensions are in
//! elements, slowest-varying first; strides in bytes. A view is named in the command, not opened first: translating
//! costs less than looking a handle up.

use std::sync::Arc;

use super::Device;
use super::check::CheckReport;
use super::transaction::TransactionId;
use crate::error::Result;
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::{Space, SpaceId};
use crate::stl::write::Source;

/// A space to make.
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

/// Which elements of a space a command moves, and where they lie in the buffer.
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
        /// One a dimension.
        axes: Vec<Axis>,
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
    /// Gives a space another name.
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

/// A command.
#[derive(Debug)]
pub enum Command<'a> {
    /// Makes a space. Gives [`Reply::Space`].
    Create(NewSpace<'a>),
    /// Opens a space by name. Gives [`Reply::Space`].
    Open {
        /// Its name.
        name: &'a str,
        /// Its key, if it is encrypted.
        key: Option<&'a [u8]>,
    },
    /// Deletes a space.
    Delete {
        /// Its name.
        name: &'a str,
    },
    /// Gives a space another name.
    Rename {
        /// Its name.
        from: &'a str,
        /// Its new name, which must be free.
        to: &'a str,
    },
    /// Makes several changes, one after the other, as one: all of them or none.
    Together {
        /// The changes; each sees those before it.
        changes: &'a [Change<'a>],
    },
    /// Grows a space along one dimension and writes the new part, as one. Gives [`Reply::Shape`]: the shape then.
    Append {
        /// The space.
        space: SpaceId,
        /// The dimension.
        axis: usize,
        /// Elements of the new part: the space's own numbers but along the dimension.
        count: &'a [u64],
        /// Byte strides in the buffer.
        strides: &'a [isize],
        /// Where from.
        source: Source,
    },
    /// Holds spaces against all other writes, for what a transaction will make of them. Gives [`Reply::Transaction`].
    ///
    /// A thread that holds a space by a transaction must not write to it otherwise: it would wait for itself.
    Begin {
        /// The spaces, each once, and the shape that each will have: as many dimensions, none smaller.
        spaces: &'a [(SpaceId, &'a [u64])],
    },
    /// Writes elements of a space of a transaction, within the shape that it will have. Nobody sees them before the
    /// end.
    Stage {
        /// Which transaction.
        transaction: TransactionId,
        /// The space.
        space: SpaceId,
        /// Which elements.
        target: Target<'a>,
        /// Where from.
        source: Source,
    },
    /// Ends a transaction: shapes, elements and changes are made as one, all or none. It is over also when this fails.
    Apply {
        /// Which transaction.
        transaction: TransactionId,
        /// Changes of names and attributes that belong to it, made after all else.
        changes: &'a [Change<'a>],
    },
    /// Ends a transaction, and leaves everything as it was. One that is over, or never was, is no error.
    Abort {
        /// Which transaction.
        transaction: TransactionId,
    },
    /// Grows or cuts a space. What is cut off and grown again reads as fill.
    Resize {
        /// The space.
        space: SpaceId,
        /// Its new shape; as many dimensions as before.
        shape: &'a [u64],
    },
    /// Replaces a space's attributes.
    SetAttrs {
        /// The space.
        space: SpaceId,
        /// Its new attributes.
        attrs: &'a str,
    },
    /// Moves elements from a space to a buffer.
    Read {
        /// The space.
        space: SpaceId,
        /// Which.
        target: Target<'a>,
        /// Where to.
        out: BufferMut,
    },
    /// Moves elements from a buffer to a space.
    Write {
        /// The space.
        space: SpaceId,
        /// Which.
        target: Target<'a>,
        /// Where from.
        source: Source,
    },
    /// Gives a box back: it reads as fill from then on, and blocks within take no space.
    Deallocate {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Elements.
        count: &'a [u64],
    },
    /// Makes everything that was written so far durable.
    Flush,
    /// Compares everything with everything. Gives [`Reply::Checked`].
    Check {
        /// Mend what the records allow.
        repair: bool,
        /// Where the newest content is damaged, map the newest intact content before it. Without, it stays an error.
        accept_older: bool,
    },
    /// Moves live pages together and cuts the file. Gives [`Reply::Bytes`]: what was given back.
    Compact,
    /// Tells numbers. Gives [`Reply::Numbers`].
    Stat,
    /// Tells numbers of one space. Gives [`Reply::Numbers`].
    StatSpace {
        /// The space.
        space: SpaceId,
    },
    /// Names with this prefix. Gives [`Reply::Names`].
    List {
        /// How they begin.
        prefix: &'a str,
    },
}

/// What a command gives.
#[derive(Debug)]
pub enum Reply {
    /// Nothing but that it is done.
    Done,
    /// A space.
    Space(Arc<Space>),
    /// A shape.
    Shape(Vec<u64>),
    /// Names in order.
    Names(Vec<String>),
    /// Numbers by name.
    Numbers(Vec<(&'static str, u64)>),
    /// What a check found.
    Checked(CheckReport),
    /// Bytes.
    Bytes(u64),
    /// A transaction.
    Transaction(TransactionId),
}

impl Reply {
    /// The space of a reply that has one.
    ///
    /// # Panics
    /// For any other reply.
    pub fn into_space(self) -> Arc<Space> {
        match self {
            Self::Space(space) => space,
            other => panic!("the reply has no space: {other:?}"),
        }
    }
}

impl Command<'_> {
    /// Whether the command changes the store.
    pub fn writes(&self) -> bool {
        match self {
            Self::Open { .. } | Self::Read { .. } | Self::Stat | Self::StatSpace { .. } | Self::List { .. } => false,
            Self::Check { repair, .. } => *repair,
            Self::Create(_)
            | Self::Delete { .. }
            | Self::Rename { .. }
            | Self::Together { .. }
            | Self::Append { .. }
            | Self::Begin { .. }
            | Self::Stage { .. }
            | Self::Apply { .. }
            | Self::Abort { .. }
            | Self::Resize { .. }
            | Self::SetAttrs { .. }
            | Self::Write { .. }
            | Self::Deallocate { .. }
            | Self::Flush
            | Self::Compact => true,
        }
    }

    pub(super) fn run(self, device: &Device) -> Result<Reply> {
        match self {
            Self::Create(new) => device.create(&new).map(Reply::Space),
            Self::Open { name, key } => device.open_space(name, key).map(Reply::Space),
            Self::Delete { name } => device.delete(name).map(|()| Reply::Done),
            Self::Rename { from, to } => device.together(&[Change::Rename { from, to }]).map(|()| Reply::Done),
            Self::Together { changes } => device.together(changes).map(|()| Reply::Done),
            Self::Append { space, axis, count, strides, source } => {
                device.append(space, axis, count, strides, source).map(Reply::Shape)
            }
            Self::Begin { spaces } => device.begin(spaces).map(Reply::Transaction),
            Self::Stage { transaction, space, target, source } => {
                device.stage(transaction, space, &target, source).map(|()| Reply::Done)
            }
            Self::Apply { transaction, changes } => {
                device.apply_transaction(transaction, changes).map(|()| Reply::Done)
            }
            Self::Abort { transaction } => {
                device.abort(transaction);
                Ok(Reply::Done)
            }
            Self::Resize { space, shape } => device.resize(space, shape).map(|()| Reply::Done),
            Self::SetAttrs { space, attrs } => device.set_attrs(space, attrs).map(|()| Reply::Done),
            Self::Read { space, target, out } => device.read(space, target, out).map(|()| Reply::Done),
            Self::Write { space, target, source } => device.write(space, target, source).map(|()| Reply::Done),
            Self::Deallocate { space, start, count } => device.deallocate(space, start, count).map(|()| Reply::Done),
            Self::Flush => device.flush().map(|()| Reply::Done),
            Self::Check { repair, accept_older } => device.check(repair, accept_older).map(Reply::Checked),
            Self::Compact => device.compact().map(Reply::Bytes),
            Self::Stat => Ok(Reply::Numbers(device.stat())),
            Self::StatSpace { space } => device.stat_space(space).map(Reply::Numbers),
            Self::List { prefix } => Ok(Reply::Names(device.list(prefix))),
        }
    }
}
