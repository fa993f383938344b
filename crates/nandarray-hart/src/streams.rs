//! Streams: ring buffers of the caller's that a program reads from their head and writes at their head.
//!
//! An input has a head (the program's) and a tail (the caller's: how far bytes have arrived); an output has a head (the
//! program's) and a tail (the caller's: how far there is room). All four count bytes from the beginning of the stream; the
//! byte `n` of a stream lies at `n` modulo the ring's length. A whole array is a stream whose ring is the array: nothing is
//! copied. What a stream instruction does with them is `exec/stream.rs`; when a hart waits, the caller moves a tail.

use std::ops::Range;

/// The most streams of either kind: what the field of an instruction can name.
pub const STREAMS_MAX: usize = 32;

/// How much room a `StreamStore` wants before it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Eight bytes, whatever its width: Table 7.2.
    #[default]
    Eight,
    /// Its own width, so that a ring can be filled to the last byte.
    Width,
}

/// A stream into a program.
#[derive(Debug)]
pub struct Input<'s> {
    ring: &'s [u8],
    head: u64,
    tail: u64,
    closed: bool,
}

impl<'s> Input<'s> {
    /// An empty, open stream over `ring`.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s [u8]) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        Self { ring, head: 0, tail: 0, closed: false }
    }

    /// A closed stream that holds all of `bytes`.
    pub fn whole(bytes: &'s [u8]) -> Self {
        Self { ring: bytes, head: 0, tail: bytes.len() as u64, closed: true }
    }

    /// Go on with a stream that was taken apart by the caller: `head` bytes were read, `tail` have arrived.
    ///
    /// # Panics
    /// If more bytes lie between them than the ring holds.
    pub fn resume(ring: &'s [u8], head: u64, tail: u64, closed: bool) -> Self {
        assert!(head <= tail && tail - head <= ring.len() as u64, "{head}..{tail} in a ring of {} bytes", ring.len());
        Self { ring, head, tail, closed }
    }

    /// Bytes that the program has read.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Bytes that have arrived.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes that have arrived and are not read.
    pub fn available(&self) -> u64 {
        self.tail - self.head
    }

    /// Say that `bytes` more have arrived in the ring: the doorbell.
    ///
    /// # Panics
    /// If there was no room for them.
    pub fn arrived(&mut self, bytes: u64) {
        assert!(self.available() + bytes <= self.ring.len() as u64, "{bytes} bytes have no room in the ring");
        self.tail += bytes;
    }

    /// Say that nothing will arrive any more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether nothing will arrive any more.
    pub fn closed(&self) -> bool {
        self.closed
    }

    /// The bytes that have arrived, are not read, and lie together in the ring.
    pub fn together(&self) -> &[u8] {
        let at = if self.ring.is_empty() { 0 } else { place(self.ring.len(), self.head) };
        let rest = &self.ring[at..];
        &rest[..rest.len().min(self.available() as usize)]
    }

    /// Say that the program has read `bytes` of them.
    ///
    /// # Panics
    /// If not that many had arrived.
    pub fn taken(&mut self, bytes: u64) {
        assert!(bytes <= self.available(), "{bytes} bytes have not arrived");
        self.head += bytes;
    }

    #[inline(always)]
    pub(crate) fn load<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.tail - self.head < N as u64 {
            return None;
        }
        let bytes = read(self.ring, self.head);
        self.head += N as u64;
        Some(bytes)
    }

    /// `N` bytes that begin `back` bytes before the tail.
    pub(crate) fn behind_tail<const N: usize>(&self, back: u64) -> Option<[u8; N]> {
        behind(self.ring, self.tail, back)
    }
}

/// A stream out of a program.
#[derive(Debug)]
pub struct Output<'s> {
    ring: &'s mut [u8],
    head: u64,
    tail: u64,
    room: Room,
}

impl<'s> Output<'s> {
    /// An empty stream that may be written until `ring` is full.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s mut [u8], room: Room) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        let tail = ring.len() as u64;
        Self { ring, head: 0, tail, room }
    }

    /// Go on with a stream: `head` bytes were written, those before `drained` have been taken away.
    ///
    /// # Panics
    /// If more bytes lie between them than the ring holds.
    pub fn resume(ring: &'s mut [u8], head: u64, drained: u64, room: Room) -> Self {
        let len = ring.len() as u64;
        assert!(drained <= head && head - drained <= len, "{drained}..{head} in a ring of {len} bytes");
        Self { ring, head, tail: drained + len, room }
    }

    /// Bytes that the program has written.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The head at which there is no room any more.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes that are written and not taken away.
    pub fn waiting(&self) -> u64 {
        self.head + self.ring.len() as u64 - self.tail
    }

    /// Where they lie in the ring: a range, and a second one if they wrap.
    pub fn waiting_at(&self) -> [Range<usize>; 2] {
        let len = self.ring.len() as u64;
        if len == 0 {
            return [0..0, 0..0];
        }
        let (from, count) = (((self.tail - len) % len) as usize, self.waiting() as usize);
        let first = count.min(self.ring.len() - from);
        [from..from + first, 0..count - first]
    }

    /// The ring.
    pub fn ring(&self) -> &[u8] {
        self.ring
    }

    /// Say that `bytes` have been taken away, and their room is free.
    ///
    /// # Panics
    /// If not that many were waiting.
    pub fn drained(&mut self, bytes: u64) {
        assert!(bytes <= self.waiting(), "{bytes} bytes were not waiting");
        self.tail += bytes;
    }

    /// The room that lies together in the ring.
    pub fn room_together(&mut self) -> &mut [u8] {
        let at = if self.ring.is_empty() { 0 } else { place(self.ring.len(), self.head) };
        let room = (self.tail - self.head) as usize;
        let rest = &mut self.ring[at..];
        let length = rest.len().min(room);
        &mut rest[..length]
    }

    /// Say that the program has written `bytes` of it.
    ///
    /// # Panics
    /// If there was no room for them.
    pub fn put(&mut self, bytes: u64) {
        assert!(bytes <= self.tail - self.head, "no room for {bytes} bytes");
        self.head += bytes;
    }

    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, bytes: [u8; N]) -> bool {
        let room = if self.room == Room::Eight { 8 } else { N as u64 };
        if self.tail - self.head < room {
            return false;
        }
        let (len, at) = (self.ring.len(), place(self.ring.len(), self.head));
        if let Some(to) = self.ring.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *to = bytes;
        } else {
            for (i, byte) in bytes.into_iter().enumerate() {
                self.ring[(at + i) % len] = byte;
            }
        }
        self.head += N as u64;
        true
    }

    /// `N` bytes that begin `back` bytes before the head.
    pub(crate) fn behind_head<const N: usize>(&self, back: u64) -> Option<[u8; N]> {
        behind(self.ring, self.head, back)
    }
}

/// Where byte `position` of a stream lies in a ring of `len` bytes.
#[inline(always)]
fn place(len: usize, position: u64) -> usize {
    if position < len as u64 {
        position as usize
    } else if len.is_power_of_two() {
        position as usize & (len - 1)
    } else {
        (position % len as u64) as usize
    }
}

#[inline(always)]
fn read<const N: usize>(ring: &[u8], position: u64) -> [u8; N] {
    let at = place(ring.len(), position);
    match ring.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => *bytes,
        None => std::array::from_fn(|i| ring[(at + i) % ring.len()]),
    }
}

fn behind<const N: usize>(ring: &[u8], end: u64, back: u64) -> Option<[u8; N]> {
    let held = back <= end && back <= ring.len() as u64 && back >= N as u64;
    held.then(|| read(ring, end - back))
}

/// The streams of a program, by number.
#[derive(Debug, Default)]
pub struct Streams<'s> {
    /// Streams into it.
    pub inputs: Vec<Input<'s>>,
    /// Streams out of it.
    pub outputs: Vec<Output<'s>>,
}

impl Streams<'_> {
    /// No streams.
    pub fn none() -> Self {
        Self::default()
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
