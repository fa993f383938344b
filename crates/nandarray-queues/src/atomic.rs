//! The atomics that the sleep protocol uses: the standard library's here, loom's where `tests/loom.rs` replaces this
//! file.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
