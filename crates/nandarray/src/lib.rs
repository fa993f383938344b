//! The engine of nandarray: N-dimensional arrays in flash-shaped building blocks.
//!
//! One engine, cut in layers whose arrows only point down (ARCHITECTURE.md): [`device`] executes typed commands over
//! spaces ([`stl`]), which lie on pages ([`ftl`]) of a described flash ([`flash`]), whose bytes live on a medium
//! ([`media`]). Under the wall clock the medium is a file and everything runs as fast as the machine can.
//!
//! ```
//! use nandarray::device::{Command, Device, Mode, NewSpace, Options, Target};
//! use nandarray::stl::{read::BufferMut, write::Source};
//!
//! let dir = tempfile::tempdir()?;
//! let store = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default())?;
//! let new = NewSpace {
//!     name: "matrix", shape: &[300, 400], item_bytes: 4, dtype: "<f4",
//!     block: None, compression: None, key: None, fill: None, attrs: "{}",
//! };
//! let space = store.execute(Command::Create(new))?.into_space().id;
//!
//! let column = [7f32; 300];
//! let target = Target::Box { start: &[0, 5], step: &[1, 1], count: &[300, 1], strides: &[4, 4], view: None };
//! // SAFETY: the target reaches 300 elements of 4 bytes from the buffer's start.
//! let source = unsafe { Source::from_raw(column.as_ptr().cast()) };
//! store.execute(Command::Write { space, target, source })?;
//!
//! let mut row = [0f32; 400];
//! let target = Target::Box { start: &[9, 0], step: &[1, 1], count: &[1, 400], strides: &[4, 4], view: None };
//! // SAFETY: the target reaches 400 elements of 4 bytes from the buffer's start.
//! let out = unsafe { BufferMut::from_raw(row.as_mut_ptr().cast()) };
//! store.execute(Command::Read { space, target, out })?;
//! assert_eq!((row[4], row[5]), (0.0, 7.0));
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod codec;
pub mod device;
pub mod error;
pub mod flash;
pub mod ftl;
pub mod media;
pub mod nvme;
pub mod sched;
pub mod sim;
pub mod stl;

pub use error::{Error, Result};

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
