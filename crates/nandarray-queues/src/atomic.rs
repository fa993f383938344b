//! Atomics of the protocol of sleeping: the machine's here, loom's where `tests/loom.rs` includes that file.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
