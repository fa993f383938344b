//! Sizes that this target and its initiator have in common.

/// Maximum data transfer size (MDTS): a power of two of 4 KiB pages.
pub(crate) const MDTS: u8 = 9;
/// Maximum data transfer size in bytes.
pub(crate) const TRANSFER_BYTES_MAX: usize = 4096 << MDTS;
/// Maximum bytes of data within a capsule of an I/O queue.
pub(crate) const IN_CAPSULE_BYTES: usize = 16384;
/// Maximum number of entries of a queue.
pub(crate) const QUEUE_ENTRIES_MAX: u16 = 128;
