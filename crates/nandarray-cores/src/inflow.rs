//! An input of a call while it arrives: the caller pushes bytes and marks the end; the program consumes them.
//!
//! An input has one of three forms: complete and shared; a window, which grows until the input has ended; or a ring,
//! which holds the latest part of a stream: bytes farther back than the program may look behind its head are
//! overwritten.

use std::ops::Range;
use std::sync::Arc;

use nandarray_hart::{InputStream, REACH};

use crate::abi;

/// Storage of the bytes of an input.
#[derive(Debug)]
pub(crate) enum InflowBytes {
    /// The whole input, in memory that is shared with others: a range of a vector.
    Shared(Arc<Vec<u8>>, Range<usize>),
    /// The bytes that arrived so far.
    Window(Vec<u8>),
    /// The latest bytes that arrived: byte `n` lies at `n` modulo the ring's length.
    Ring(Box<[u8]>),
}

/// An input of a call, with the bytes that have arrived so far.
#[derive(Debug)]
pub struct Inflow {
    pub(crate) bytes: InflowBytes,
    /// Bytes that the program has consumed.
    pub(crate) head: u64,
    /// Bytes that have arrived.
    pub(crate) tail: u64,
    pub(crate) end: Option<u64>,
    /// Whether the input's length was known when the call began.
    pub(crate) end_known: bool,
}

impl Inflow {
    /// Least size of a ring, in bytes: those that a program may look back at, and those that it may wait for.
    pub const RING_BYTES_MIN: usize = 2 * REACH as usize;

    /// Creates a complete input: a range of shared bytes.
    ///
    /// # Panics
    /// If `range` does not lie within `bytes`.
    pub fn shared(bytes: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= bytes.len(), "{range:?} of {} bytes", bytes.len());
        let tail = range.len() as u64;
        Self { bytes: InflowBytes::Shared(bytes, range), head: 0, tail, end: Some(tail), end_known: true }
    }

    /// Creates a complete input that owns its bytes.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let tail = bytes.len() as u64;
        Self { bytes: InflowBytes::Window(bytes), head: 0, tail, end: Some(tail), end_known: true }
    }

    /// Creates an empty input, whose bytes all stay in memory; `end` is its length in bytes, `None` if that is not
    /// known.
    pub fn window(end: Option<u64>) -> Self {
        let bytes = Vec::with_capacity(end.unwrap_or(0).min(abi::WINDOW_BYTES) as usize);
        Self { bytes: InflowBytes::Window(bytes), head: 0, tail: 0, end, end_known: end.is_some() }
    }

    /// Creates an empty stream of which at most `ring_bytes` bytes are in memory at once; `end` is its length in bytes,
    /// `None` if that is not known.
    ///
    /// # Panics
    /// If the ring is shorter than [`RING_BYTES_MIN`](Self::RING_BYTES_MIN).
    pub fn ring(ring_bytes: usize, end: Option<u64>) -> Self {
        assert!(ring_bytes >= Self::RING_BYTES_MIN, "a ring of {ring_bytes} bytes");
        let ring = InflowBytes::Ring(vec![0; ring_bytes].into_boxed_slice());
        Self { bytes: ring, head: 0, tail: 0, end, end_known: end.is_some() }
    }

    /// Returns the number of bytes that have arrived.
    pub fn arrived(&self) -> u64 {
        self.tail
    }

    /// Returns the number of bytes that a stream program has consumed; always 0 for a program of windows.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Returns whether all bytes of the input have arrived and its end is known.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.tail)
    }

    /// Returns the number of bytes that can be pushed now.
    pub fn room(&self) -> u64 {
        let rest = self.end.map_or(u64::MAX, |end| end - self.tail);
        match &self.bytes {
            InflowBytes::Ring(ring) => rest.min(ring.len() as u64 - (self.tail - self.head.saturating_sub(REACH))),
            InflowBytes::Window(_) => rest,
            InflowBytes::Shared(..) => 0,
        }
    }

    /// Appends bytes that have arrived, as many as there is room for; returns how many were appended.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let count = self.room().min(bytes.len() as u64) as usize;
        let bytes = &bytes[..count];
        match &mut self.bytes {
            InflowBytes::Window(all) => all.extend_from_slice(bytes),
            InflowBytes::Ring(ring) => {
                let at = (self.tail % ring.len() as u64) as usize;
                let first = count.min(ring.len() - at);
                ring[at..at + first].copy_from_slice(&bytes[..first]);
                ring[..count - first].copy_from_slice(&bytes[first..]);
            }
            InflowBytes::Shared(..) => {}
        }
        self.tail += count as u64;
        assert!(self.end.is_none_or(|end| self.tail <= end), "{} bytes arrived of {:?}", self.tail, self.end);
        count
    }

    /// Marks the end of the input after the bytes that have arrived.
    ///
    /// # Panics
    /// If the input has another length by what was known before.
    pub fn close(&mut self) {
        assert!(self.end.is_none_or(|end| end == self.tail), "{} bytes arrived of {:?}", self.tail, self.end);
        self.end = Some(self.tail);
    }

    /// Returns the input as a stream of a hart.
    pub(crate) fn stream(&self) -> InputStream<'_> {
        match &self.bytes {
            InflowBytes::Shared(bytes, range) => InputStream::window(&bytes[range.clone()], self.head),
            InflowBytes::Window(bytes) => InputStream::window(bytes, self.head),
            InflowBytes::Ring(ring) => InputStream::resume(ring, self.head, self.tail, false).keeping(REACH),
        }
        .ending(self.end)
    }

    /// Returns all bytes of the input, which must be complete and no ring.
    pub(crate) fn all(&self) -> &[u8] {
        match &self.bytes {
            InflowBytes::Shared(bytes, range) => &bytes[range.clone()],
            InflowBytes::Window(bytes) => bytes,
            InflowBytes::Ring(_) => unreachable!("rings are streams"),
        }
    }
}
