//! Commands that own their arguments, so that they can be in flight after the call that submitted them has returned.
//!
//! Only coordinates and names are owned: buffers must be kept by the caller until the command is delivered.

use super::Device;
use super::command::{Delete, Flush, Read, Resize, Target, Write};
use super::execute::Execute;
use crate::error::Result;
use crate::sched::RangeTicket;
use crate::sim::{Moves, Order};
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::SpaceId;
use crate::stl::write::Source;

/// A [`Target`] that owns its coordinates; its fields have the same meaning.
#[derive(Clone, Debug)]
pub enum OwnedTarget {
    /// Owned form of [`Target::Box`].
    Box {
        /// First coordinate along each dimension.
        start: Vec<u64>,
        /// Distance between elements along each dimension, at least 1.
        step: Vec<u64>,
        /// Number of elements along each dimension.
        count: Vec<u64>,
        /// Byte strides in the buffer, one for each dimension.
        strides: Vec<isize>,
        /// Shape of the view that the coordinates refer to; `None` is the space's own shape.
        view: Option<Vec<u64>>,
    },
    /// Owned form of [`Target::Outer`].
    Outer {
        /// A range or a list of coordinates for each dimension.
        axes: Vec<Axis>,
        /// Byte strides in the buffer, one for each dimension.
        strides: Vec<isize>,
    },
    /// Owned form of [`Target::Boxes`].
    Boxes {
        /// First coordinates: those of the first box, then those of the second, and so on.
        starts: Vec<u64>,
        /// Distance between elements along each dimension, at least 1.
        step: Vec<u64>,
        /// Number of elements of a box along each dimension.
        count: Vec<u64>,
        /// Byte strides in the buffer within a box, one for each dimension.
        strides: Vec<isize>,
        /// Distance in bytes between the beginnings of successive boxes in the buffer.
        stride: isize,
        /// Shape of the view that the coordinates refer to; `None` is the space's own shape.
        view: Option<Vec<u64>>,
    },
    /// Owned form of [`Target::Points`].
    Points {
        /// Coordinates: those of the first point, then those of the second, and so on.
        coordinates: Vec<u64>,
        /// Distance in bytes between successive elements in the buffer.
        stride: isize,
    },
}

impl OwnedTarget {
    /// Copies a target.
    pub fn of(target: &Target<'_>) -> Self {
        match *target {
            Target::Box { start, step, count, strides, view } => Self::Box {
                start: start.to_vec(),
                step: step.to_vec(),
                count: count.to_vec(),
                strides: strides.to_vec(),
                view: view.map(<[u64]>::to_vec),
            },
            Target::Outer { axes, strides } => Self::Outer { axes: axes.to_vec(), strides: strides.to_vec() },
            Target::Boxes { starts, step, count, strides, stride, view } => Self::Boxes {
                starts: starts.to_vec(),
                step: step.to_vec(),
                count: count.to_vec(),
                strides: strides.to_vec(),
                stride,
                view: view.map(<[u64]>::to_vec),
            },
            Target::Points { coordinates, stride } => Self::Points { coordinates: coordinates.to_vec(), stride },
        }
    }

    /// Returns the target with its coordinates borrowed from `self`.
    pub fn borrow(&self) -> Target<'_> {
        match self {
            Self::Box { start, step, count, strides, view } => {
                Target::Box { start, step, count, strides, view: view.as_deref() }
            }
            Self::Outer { axes, strides } => Target::Outer { axes, strides },
            Self::Boxes { starts, step, count, strides, stride, view } => {
                Target::Boxes { starts, step, count, strides, stride: *stride, view: view.as_deref() }
            }
            Self::Points { coordinates, stride } => Target::Points { coordinates, stride: *stride },
        }
    }
}

/// A command that owns its coordinates and names and has no reply. Its buffer must stay valid until the command is
/// delivered.
#[derive(Clone, Debug)]
pub enum OwnedCommand {
    /// Owned form of [`Read`].
    Read {
        /// Number of the space to read.
        space: SpaceId,
        /// The elements to read.
        target: OwnedTarget,
        /// Destination buffer, which must cover the target.
        out: BufferMut,
    },
    /// Owned form of [`Write`].
    Write {
        /// Number of the space to write.
        space: SpaceId,
        /// The elements to write.
        target: OwnedTarget,
        /// Source of the values to write.
        source: Source,
    },
    /// Owned form of [`Resize`].
    Resize {
        /// Number of the space to resize.
        space: SpaceId,
        /// New shape of the space, with as many dimensions as before.
        shape: Vec<u64>,
    },
    /// Owned form of [`Delete`].
    Delete {
        /// Name of the space to delete.
        name: String,
    },
    /// Owned form of [`Flush`].
    Flush,
}

impl OwnedCommand {
    /// Calls `f` with a command that borrows its arguments from `self`.
    fn with<T>(&self, f: impl FnOnce(&dyn Execute<Reply = ()>) -> T) -> T {
        match self {
            Self::Read { space, target, out } => f(&Read { space: *space, target: target.borrow(), out: *out }),
            Self::Write { space, target, source } => {
                f(&Write { space: *space, target: target.borrow(), source: *source })
            }
            Self::Resize { space, shape } => f(&Resize { space: *space, shape }),
            Self::Delete { name } => f(&Delete { name }),
            Self::Flush => f(&Flush),
        }
    }
}

impl Execute for OwnedCommand {
    type Reply = ();

    fn order(&self) -> Order {
        self.with(|command| command.order())
    }

    fn moves(&self) -> Moves {
        self.with(|command| command.moves())
    }

    fn writes(&self) -> bool {
        self.with(|command| command.writes())
    }

    fn request(&self, device: &Device) -> Result<Option<RangeTicket>> {
        self.with(|command| command.request(device))
    }

    fn first_half(&self, device: &Device, granted: bool) -> Result<Option<()>> {
        self.with(|command| command.first_half(device, granted))
    }

    fn second_half(&self, device: &Device) -> Result<()> {
        self.with(|command| command.second_half(device))
    }

    fn run(&self, device: &Device) -> Result<()> {
        self.with(|command| command.run(device))
    }
}
