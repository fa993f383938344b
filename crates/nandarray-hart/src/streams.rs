//! Streams: ring buffers, owned by the caller, that a program reads at their head or writes at their head.
//!
//! An input has a head (moved by the program), a tail (moved by the caller: the end of the bytes that have arrived)
//! and, once it is known, an end. An output has a head (moved by the program), a tail (moved by the caller: the end of
//! the room in the ring) and a limit on its length. All are numbers of bytes from the beginning of the stream; byte `n`
//! of a stream is at index `n` modulo the ring's length. A whole array is a stream whose ring is the array, so that
//! nothing is copied.
//!
//! A program can never read a tail: it can read ends and limits, and otherwise waits. Its results are therefore the
//! same however its bytes arrive and are drained. `exec/stream.rs` has the stream instructions. When a hart waits, the
//! caller moves a tail and resumes it.

use std::ops::Range;

/// Most input streams, and most output streams, that the field of an instruction can number.
pub const STREAMS_MAX: usize = 32;

/// Largest distance in bytes from a stream's head at which a program may read, in either direction, and most bytes that
/// it may wait for: 64 KiB.
pub const REACH: u64 = 64 << 10;

/// The room that a `StreamStore` requires in the ring before it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Eight bytes, whatever the store's width, as in Table 7.2.
    #[default]
    Eight,
    /// The store's own width, so that a ring can be filled to the last byte.
    Width,
}

/// A stream that a program reads.
#[derive(Debug)]
pub struct InputStream<'s> {
    ring: &'s [u8],
    head: u64,
    tail: u64,
    /// The stream's length, once it is known.
    end: Option<u64>,
    /// Number of bytes before the head that are not overwritten; `u64::MAX` if the ring holds the whole stream.
    kept: u64,
}

/// The result of reading from a stream without moving its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look<T> {
    /// The value that was read.
    There(T),
    /// The bytes may still arrive, or the stream's end must be known first.
    Wait,
    /// The stream ends before these bytes, or they are out of reach.
    Never,
}

impl<'s> InputStream<'s> {
    /// Creates an empty stream in `ring` whose end is not known yet.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s [u8]) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        Self { ring, head: 0, tail: 0, end: None, kept: 0 }
    }

    /// Creates a closed stream that contains exactly `bytes`.
    pub fn whole(bytes: &'s [u8]) -> Self {
        let tail = bytes.len() as u64;
        Self { ring: bytes, head: 0, tail, end: Some(tail), kept: u64::MAX }
    }

    /// Continues a stream whose state the caller kept: `head` bytes were read, `tail` bytes have arrived in `ring`.
    ///
    /// # Panics
    /// If more bytes lie between `head` and `tail` than the ring holds.
    pub fn resume(ring: &'s [u8], head: u64, tail: u64, closed: bool) -> Self {
        assert!(head <= tail && tail - head <= ring.len() as u64, "{head}..{tail} in a ring of {} bytes", ring.len());
        Self { ring, head, tail, end: closed.then_some(tail), kept: 0 }
    }

    /// Continues a stream of which `head` bytes were read and all bytes so far are in `bytes`, so that nothing is ever
    /// overwritten.
    ///
    /// # Panics
    /// If more bytes were read than have arrived.
    pub fn window(bytes: &'s [u8], head: u64) -> Self {
        let tail = bytes.len() as u64;
        assert!(head <= tail, "{head} bytes were read of {tail}");
        Self { ring: bytes, head, tail, end: None, kept: u64::MAX }
    }

    /// Promises that the `kept` bytes before the head are not overwritten in the ring, so that a program may read them.
    ///
    /// # Panics
    /// If that leaves no room for bytes to arrive.
    #[must_use]
    pub fn keeping(mut self, kept: u64) -> Self {
        assert!(kept < self.ring.len() as u64, "{kept} bytes behind the head of a ring of {} bytes", self.ring.len());
        self.kept = kept;
        self
    }

    /// Sets the stream's end, if it is known; bytes before it may still have to arrive.
    ///
    /// # Panics
    /// If more bytes have arrived already.
    #[must_use]
    pub fn ending(mut self, end: Option<u64>) -> Self {
        assert!(end.is_none_or(|end| self.tail <= end), "{} bytes arrived of {end:?}", self.tail);
        self.end = end;
        self
    }

    /// Returns the number of bytes that the program has read.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the number of bytes that have arrived.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the stream's length; `None` until it is known.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// Returns the number of bytes that the program has not read, arrived or not; `None` until the end is known.
    pub fn left(&self) -> Option<u64> {
        debug_assert!(self.end.is_none_or(|end| self.head <= end), "{} bytes were read of {:?}", self.head, self.end);
        Some(self.end? - self.head)
    }

    /// Returns the number of bytes that have arrived and are not read.
    pub fn available(&self) -> u64 {
        debug_assert!(self.head <= self.tail, "{} bytes were read, {} arrived", self.head, self.tail);
        self.tail - self.head
    }

    /// Notes that `bytes` more bytes have arrived in the ring: the doorbell.
    ///
    /// # Panics
    /// If the ring had no room for them, or the stream ends before them.
    pub fn arrived(&mut self, bytes: u64) {
        assert!(self.available() + bytes <= self.ring.len() as u64, "{bytes} bytes have no room in the ring");
        assert!(self.end.is_none_or(|end| bytes <= end - self.tail), "{bytes} bytes behind the end of the stream");
        self.tail += bytes;
    }

    /// Notes that no more bytes will arrive.
    ///
    /// # Panics
    /// If the end that was set has not been reached.
    pub fn close(&mut self) {
        assert!(self.end.is_none_or(|end| end == self.tail), "{} bytes arrived of {:?}", self.tail, self.end);
        self.end = Some(self.tail);
    }

    /// Whether no more bytes will arrive.
    pub fn closed(&self) -> bool {
        self.end == Some(self.tail)
    }

    /// Returns the bytes that have arrived and are not read, up to the end of the ring buffer's memory.
    pub fn together(&self) -> &[u8] {
        let at = if self.ring.is_empty() { 0 } else { place(self.ring.len(), self.head) };
        let rest = &self.ring[at..];
        &rest[..rest.len().min(self.available() as usize)]
    }

    /// Notes that the program has read `bytes` bytes at the head.
    ///
    /// # Panics
    /// If fewer bytes have arrived.
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
        debug_assert!(self.end.is_none_or(|end| self.head <= end), "{} bytes were read of {:?}", self.head, self.end);
        Some(bytes)
    }

    /// Whether the stream ends before `bytes` more bytes.
    pub(crate) fn falls_short(&self, bytes: u64) -> bool {
        self.left().is_some_and(|left| left < bytes)
    }

    /// Most bytes that may be waited for: [`REACH`], or fewer if the ring has no room for them.
    pub fn ahead(&self) -> u64 {
        if self.kept == u64::MAX { REACH } else { REACH.min(self.ring.len() as u64 - self.kept) }
    }

    /// Reads `N` bytes that begin `ahead` bytes after the head, or before it if `ahead` is negative.
    pub(crate) fn peek<const N: usize>(&self, ahead: i64) -> Look<[u8; N]> {
        // Bytes that begin behind the head may end before it: a ring must have room for all of them at once.
        let held = ahead >= 0 || ahead.unsigned_abs() <= self.head.min(self.kept).min(REACH);
        let reachable = held && i128::from(ahead) + N as i128 <= i128::from(self.ahead());
        if !reachable {
            return Look::Never;
        }
        let position = self.head.wrapping_add_signed(ahead);
        debug_assert!(self.kept == u64::MAX || self.tail <= position + self.ring.len() as u64, "overwritten bytes");
        if self.end.is_some_and(|end| position + N as u64 > end) {
            return Look::Never;
        }
        if position + N as u64 > self.tail { Look::Wait } else { Look::There(read(self.ring, position)) }
    }

    /// Reads `N` bytes that begin `back` bytes before the stream's end.
    pub(crate) fn before_end<const N: usize>(&self, back: u64) -> Look<[u8; N]> {
        let Some(end) = self.end else { return Look::Wait };
        match end.checked_sub(back) {
            Some(position) => self.peek(position.wrapping_sub(self.head) as i64),
            None => Look::Never,
        }
    }

    /// Waits for `bytes` bytes, or for fewer if the stream ends earlier or [`Self::ahead`] is less; returns the number
    /// waited for.
    pub(crate) fn wait(&self, bytes: u64) -> Look<u64> {
        let wanted = bytes.min(self.ahead()).min(self.left().unwrap_or(u64::MAX));
        if self.available() >= wanted { Look::There(wanted) } else { Look::Wait }
    }
}

/// A stream that a program writes.
#[derive(Debug)]
pub struct OutputStream<'s> {
    ring: &'s mut [u8],
    head: u64,
    /// Position before which the program may write: beyond it the ring has no room, or the limit is reached.
    tail: u64,
    drained: u64,
    /// The most bytes that the stream may have.
    limit: u64,
    room: Room,
}

impl<'s> OutputStream<'s> {
    /// Creates an empty stream that may be written until `ring` is full.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s mut [u8], room: Room) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        let tail = ring.len() as u64;
        Self { ring, head: 0, tail, drained: 0, limit: u64::MAX, room }
    }

    /// Continues a stream whose state the caller kept: `head` bytes were written, and the caller has taken the first
    /// `drained` bytes.
    ///
    /// # Panics
    /// If more bytes lie between `drained` and `head` than the ring holds.
    pub fn resume(ring: &'s mut [u8], head: u64, drained: u64, room: Room) -> Self {
        let len = ring.len() as u64;
        assert!(drained <= head && head - drained <= len, "{drained}..{head} in a ring of {len} bytes");
        Self { ring, head, tail: drained + len, drained, limit: u64::MAX, room }
    }

    /// Limits the stream to `limit` bytes: a store beyond them fails instead of waiting for room.
    ///
    /// # Panics
    /// If the stream has more bytes already.
    #[must_use]
    pub fn limited(mut self, limit: u64) -> Self {
        assert!(self.head <= limit, "{} bytes were written of {limit}", self.head);
        self.limit = limit;
        self.tail = self.tail.min(limit);
        self
    }

    /// Returns the number of bytes that the program has written.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the position before which the program may write: beyond it the ring has no room, or the limit is
    /// reached.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the largest number of bytes that the stream may have; `u64::MAX` without a limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of bytes that are written, and not yet taken by the caller.
    pub fn waiting(&self) -> u64 {
        debug_assert!(self.drained <= self.head, "{} bytes were drained of {}", self.drained, self.head);
        self.head - self.drained
    }

    /// Places in the ring of the bytes that the caller has not taken: a range, and a second one, which is empty unless
    /// they wrap.
    pub fn waiting_at(&self) -> [Range<usize>; 2] {
        let len = self.ring.len() as u64;
        if len == 0 {
            return [0..0, 0..0];
        }
        let (from, count) = ((self.drained % len) as usize, self.waiting() as usize);
        debug_assert!(count <= self.ring.len(), "{count} bytes wait in a ring of {len}");
        let first = count.min(self.ring.len() - from);
        [from..from + first, 0..count - first]
    }

    /// Returns the ring's memory.
    pub fn ring(&self) -> &[u8] {
        self.ring
    }

    /// Notes that the caller has taken `bytes` bytes, whose room is free again.
    ///
    /// # Panics
    /// If fewer bytes were waiting.
    pub fn drained(&mut self, bytes: u64) {
        assert!(bytes <= self.waiting(), "{bytes} bytes were not waiting");
        self.drained += bytes;
        self.tail = self.limit.min(self.drained.saturating_add(self.ring.len() as u64));
        debug_assert!(self.head <= self.tail, "{} bytes were written, {} have room", self.head, self.tail);
    }

    /// Returns the free room from the head up to the end of the ring buffer's memory.
    pub fn room_together(&mut self) -> &mut [u8] {
        let at = if self.ring.is_empty() { 0 } else { place(self.ring.len(), self.head) };
        let room = (self.tail - self.head) as usize;
        let rest = &mut self.ring[at..];
        let length = rest.len().min(room);
        &mut rest[..length]
    }

    /// Notes that the program has written `bytes` bytes at the head.
    ///
    /// # Panics
    /// If there was no room for them.
    pub fn put(&mut self, bytes: u64) {
        assert!(bytes <= self.tail - self.head, "no room for {bytes} bytes");
        self.head += bytes;
    }

    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, bytes: [u8; N]) -> bool {
        if self.tail - self.head < self.wanted(N as u64) {
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
        debug_assert!(self.head <= self.tail && self.tail <= self.limit, "a store of {N} bytes without room");
        true
    }

    /// Returns the number of bytes of room that a store of `bytes` bytes requires.
    #[inline(always)]
    fn wanted(&self, bytes: u64) -> u64 {
        if self.room == Room::Eight { 8 } else { bytes }
    }

    /// Whether the limit leaves no room for a store of `bytes` bytes, now or later.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        debug_assert!(self.head <= self.limit, "{} bytes were written of {}", self.head, self.limit);
        self.limit - self.head < self.wanted(bytes)
    }

    /// Reads `N` bytes that begin `back` bytes before the head.
    pub(crate) fn behind_head<const N: usize>(&self, back: u64) -> Look<[u8; N]> {
        let held = back <= self.head.min(REACH).min(self.ring.len() as u64) && back >= N as u64;
        if held { Look::There(read(self.ring, self.head - back)) } else { Look::Never }
    }
}

/// Returns the index, in a ring of `len` bytes, of the byte at `position` of the stream.
#[inline(always)]
fn place(len: usize, position: u64) -> usize {
    debug_assert!(len > 0, "position {position} of an empty ring");
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

/// The streams of a program, by number.
#[derive(Debug, Default)]
pub struct Streams<'s> {
    /// Streams that the program reads.
    pub inputs: Vec<InputStream<'s>>,
    /// Streams that the program writes.
    pub outputs: Vec<OutputStream<'s>>,
}

impl Streams<'_> {
    /// Creates a set without streams.
    pub fn none() -> Self {
        Self::default()
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
