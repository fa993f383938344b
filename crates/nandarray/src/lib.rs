//! The engine of nandarray: N-dimensional arrays in flash-shaped building blocks.
//!
//! The engine consists of layers, each of which uses only lower ones (ARCHITECTURE.md): a [`Device`] executes typed
//! commands ([`command`]) on spaces ([`Space`]), which are stored in pages of a described flash ([`Geometry`]), whose
//! bytes are on a medium ([`Media`]). Without a modelled clock the medium is a file, and everything runs as fast as the
//! machine can.
//!
//! ```
//! use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, Target, command};
//!
//! let dir = tempfile::tempdir()?;
//! let store = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default())?;
//! let new = NewSpace {
//!     name: "matrix", shape: &[300, 400], item_bytes: 4, dtype: "<f4",
//!     block: None, compression: None, key: None, fill: None, attrs: "{}",
//! };
//! let space = store.execute(command::Create(new))?.id;
//!
//! let column = [7f32; 300];
//! let target = Target::Box { start: &[0, 5], step: &[1, 1], count: &[300, 1], strides: &[4, 4], view: None };
//! // SAFETY: the target reaches 300 elements of 4 bytes from the buffer's start.
//! let source = unsafe { Source::from_raw(column.as_ptr().cast()) };
//! store.execute(command::Write { space, target, source })?;
//!
//! let mut row = [0f32; 400];
//! let target = Target::Box { start: &[9, 0], step: &[1, 1], count: &[1, 400], strides: &[4, 4], view: None };
//! // SAFETY: the target reaches 400 elements of 4 bytes from the buffer's start.
//! let out = unsafe { BufferMut::from_raw(row.as_mut_ptr().cast()) };
//! store.execute(command::Read { space, target, out })?;
//! assert_eq!((row[4], row[5]), (0.0, 7.0));
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[allow(unreachable_pub, reason = "inner layers; the list below says what is public")]
mod codec;
mod device;
mod error;
#[allow(unreachable_pub, reason = "as codec")]
mod flash;
#[allow(unreachable_pub, reason = "as codec")]
mod ftl;
#[allow(unreachable_pub, reason = "as codec")]
mod media;
pub mod nvme;
mod sched;
mod sim;
#[allow(unreachable_pub, reason = "as codec")]
mod stl;

// A store, its commands, and their parts.
pub use codec::Packing;
pub use device::names;
pub use device::{Change, Command, NewSpace, Target, TransactionId, command};
pub use device::{CheckReport, Dropped, Finding};
pub use device::{Compound, Spool, StagedWrite};
pub use device::{Device, IdentityChoice, Mode, Options, ServiceCounts};
pub use device::{Done, OwnedCommand, OwnedTarget};
pub use error::{Error, KINDS, Result, Shape};
pub use flash::Geometry;
pub use ftl::Verify;
pub use sched::{RangeTable, RangeTicket, Share, SharedRange, TicketEnd, WaitCircle, waits};
pub use sim::panics;
pub use stl::plan::Axis;
pub use stl::read::BufferMut;
pub use stl::space::{Space, SpaceId, SpaceRecord};
pub use stl::translate::check_view;
pub use stl::write::Source;

// Media, which store a store's bytes.
pub use media::fault::FaultMedia;
pub use media::file::{FileAccess, FileMedia};
pub use media::memory::MemoryMedia;
pub use media::remote;
pub use media::sparse::SparseMedia;
pub use media::{FileState, Media};
pub use sim::process::Home;

/// Copies that bypass the caches, for destinations that do not fit into them.
pub mod past_caches {
    use crate::stl::copy::stream;

    pub use stream::{fence, gains};

    /// Copies bytes past the caches; [`fence`] must follow before another thread learns of them.
    ///
    /// # Safety
    /// `bytes` bytes must be readable at `from` and writable at `to`, and not overlap.
    pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { stream::run(bytes, from, to) }
    }
}

/// The interface between a store's commands and a clock or observer.
pub mod probe {
    pub use crate::sim::{Conductor, Counters, FlightId, Halves, Moves, Order, Probe, Purpose};
}

/// Policies of garbage collection and wear levelling, for use by other flash managements.
pub mod policy {
    pub use crate::ftl::policy::wear_levelling::WearLevelling;
    pub use crate::ftl::policy::{ClosedBlock, Draw, GcPolicy, ReclaimView};
}

/// The structures in a store's file, for tools that read or write them without opening the store.
pub mod file_format {
    pub use crate::flash::geometry::{OOB_BYTES, SEGMENT_HEADER_BYTES};
    pub use crate::flash::{Area, Layout, Owner, Ppa, Run, Segment, SegmentHeader, SegmentKind, crc32c};
    pub use crate::ftl::chain::Chain;
    pub use crate::ftl::journal;
    pub use crate::ftl::mark::{Mark, read_marks};
    pub use crate::ftl::superblock::{ChainStart, FORMAT_VERSION, Superblock, read_slots};
    pub use crate::media::HEAD_BYTES;
}

/// Inner layers, for their own tests; not part of the public interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::codec::{BlockContext, CipherKey, Codec, CodecSpec, Compression, Framing};
    pub use crate::ftl::segments::SegmentState;
    pub use crate::ftl::{FetchError, Ftl, placement};
    pub use crate::sched::RangeLock;
    pub use crate::sim::patience::joined;
}

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
