//! An input of a call as it arrives: the caller pushes bytes and marks the end; the program consumes them.
//!
//! It is complete and shared, a window that grows to its end, or a ring that holds a part of a stream at once: bytes
//! farther behind the program's head than it may look back are overwritten.

use std::ops::Range;
use std::sync::Arc;

use nandarray_hart::{InputStream, REACH};

use crate::abi;

/// Storage of the bytes of an input.
#[derive(Debug)]
pub(crate) enum InflowBytes {
    /// All of them, in memory that is shared.
    Shared(Arc<Vec<u8>>, Range<usize>),
    /// The bytes that arrived so far.
    Window(Vec<u8>),
    /// The last of those that arrived so far: byte `n` is at `n` modulo the ring's length.
    Ring(Box<[u8]>),
}

/// An input of a call: what has arrived of it so far.
#[derive(Debug)]
pub struct Inflow {
    pub(crate) bytes: InflowBytes,
    /// Bytes that the program has consumed.
    pub(crate) head: u64,
    /// Bytes that have arrived.
    pub(crate) tail: u64,
    pub(crate) end: Option<u64>,
    /// Whether its end was known when the call began.
    pub(crate) end_known: bool,
}

impl Inflow {
    /// The fewest bytes of a ring: those that a program may look back at, and those that it may wait for.
    pub const RING_BYTES_MIN: usize = 2 * REACH as usize;

    /// All of an input, in memory that is shared.
    ///
    /// # Panics
    /// If there is no such range.
    pub fn shared(bytes: Arc<Vec<u8>>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= bytes.len(), "{range:?} of {} bytes", bytes.len());
        let tail = range.len() as u64;
        Self { bytes: InflowBytes::Shared(bytes, range), head: 0, tail, end: Some(tail), end_known: true }
    }

    /// All of an input.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let tail = bytes.len() as u64;
        Self { bytes: InflowBytes::Window(bytes), head: 0, tail, end: Some(tail), end_known: true }
    }

    /// An empty input of `end` bytes, if that is known; all bytes that arrive stay in memory.
    pub fn window(end: Option<u64>) -> Self {
        let bytes = Vec::with_capacity(end.unwrap_or(0).min(abi::WINDOW_BYTES) as usize);
        Self { bytes: InflowBytes::Window(bytes), head: 0, tail: 0, end, end_known: end.is_some() }
    }

    /// An empty stream of `end` bytes, if that is known; at most `ring_bytes` of them are in memory at once.
    ///
    /// # Panics
    /// If the ring is shorter than [`RING_BYTES_MIN`](Self::RING_BYTES_MIN).
    pub fn ring(ring_bytes: usize, end: Option<u64>) -> Self {
        assert!(ring_bytes >= Self::RING_BYTES_MIN, "a ring of {ring_bytes} bytes");
        let ring = InflowBytes::Ring(vec![0; ring_bytes].into_boxed_slice());
        Self { bytes: ring, head: 0, tail: 0, end, end_known: end.is_some() }
    }

    /// Bytes that have arrived.
    pub fn arrived(&self) -> u64 {
        self.tail
    }

    /// Bytes that the program has consumed; of a window, none before it begins.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Whether it has arrived up to its end.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.tail)
    }

    /// Bytes that there is room for.
    pub fn room(&self) -> u64 {
        let rest = self.end.map_or(u64::MAX, |end| end - self.tail);
        match &self.bytes {
            InflowBytes::Ring(ring) => rest.min(ring.len() as u64 - (self.tail - self.head.saturating_sub(REACH))),
            InflowBytes::Window(_) => rest,
            InflowBytes::Shared(..) => 0,
        }
    }

    /// Appends bytes that have arrived, as far as there is room for them; returns their number.
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

    /// Marks its end.
    ///
    /// # Panics
    /// If its end is known and lies elsewhere.
    pub fn close(&mut self) {
        assert!(self.end.is_none_or(|end| end == self.tail), "{} bytes arrived of {:?}", self.tail, self.end);
        self.end = Some(self.tail);
    }

    /// As a hart's stream.
    pub(crate) fn stream(&self) -> InputStream<'_> {
        match &self.bytes {
            InflowBytes::Shared(bytes, range) => InputStream::window(&bytes[range.clone()], self.head),
            InflowBytes::Window(bytes) => InputStream::window(bytes, self.head),
            InflowBytes::Ring(ring) => InputStream::resume(ring, self.head, self.tail, false).keeping(REACH),
        }
        .ending(self.end)
    }

    /// All of its bytes, which have arrived.
    pub(crate) fn all(&self) -> &[u8] {
        match &self.bytes {
            InflowBytes::Shared(bytes, range) => &bytes[range.clone()],
            InflowBytes::Window(bytes) => bytes,
            InflowBytes::Ring(_) => unreachable!("rings are streams"),
        }
    }
}
