//! Streams: ring buffers of the caller's that a program reads from their head and writes at their head.
//!
//! An input has a head (the program's), a tail (the caller's: how far bytes have arrived) and, once it is known, an
//! end. An output has a head (the program's), a tail (the caller's: how far there is room in the ring) and a limit on
//! its length. All count bytes from the beginning of the stream; the byte `n` of a stream lies at `n` modulo the ring's
//! length. A whole array is a stream whose ring is the array: nothing is copied.
//!
//! A program never learns where a tail is: it learns ends and limits, and otherwise waits. Its results are therefore
//! the same however its bytes arrive and are drained. `exec/stream.rs` has the stream instructions; when a hart waits,
//! the caller moves a tail.

use std::ops::Range;

/// The most streams of either kind: what the field of an instruction can name.
pub const STREAMS_MAX: usize = 32;

/// The largest distance from a stream's head at which a program may read, in either direction, and the most bytes that
/// it may wait for: 64 KiB.
pub const REACH: u64 = 64 << 10;

/// The room that a `StreamStore` requires before it stores.
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
pub struct InputStream<'s> {
    ring: &'s [u8],
    head: u64,
    tail: u64,
    /// Where it ends, once that is known.
    end: Option<u64>,
    /// Bytes behind the head that are not overwritten: all of them where the ring holds the whole stream.
    kept: u64,
}

/// The result of reading from a stream without consuming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look<T> {
    /// It is there.
    There(T),
    /// It may still arrive, or the end has to be known first.
    Wait,
    /// The stream ends before it, or it is out of reach.
    Never,
}

impl<'s> InputStream<'s> {
    /// An empty stream over `ring` whose end is not known.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s [u8]) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        Self { ring, head: 0, tail: 0, end: None, kept: 0 }
    }

    /// A closed stream that holds all of `bytes`.
    pub fn whole(bytes: &'s [u8]) -> Self {
        let tail = bytes.len() as u64;
        Self { ring: bytes, head: 0, tail, end: Some(tail), kept: u64::MAX }
    }

    /// Go on with a stream that was taken apart by the caller: `head` bytes were read, `tail` have arrived.
    ///
    /// # Panics
    /// If more bytes lie between them than the ring holds.
    pub fn resume(ring: &'s [u8], head: u64, tail: u64, closed: bool) -> Self {
        assert!(head <= tail && tail - head <= ring.len() as u64, "{head}..{tail} in a ring of {} bytes", ring.len());
        Self { ring, head, tail, end: closed.then_some(tail), kept: 0 }
    }

    /// The same, of a stream whose bytes so far are `bytes`, all of them: nothing is ever overwritten.
    ///
    /// # Panics
    /// If more bytes were read than have arrived.
    pub fn window(bytes: &'s [u8], head: u64) -> Self {
        let tail = bytes.len() as u64;
        assert!(head <= tail, "{head} bytes were read of {tail}");
        Self { ring: bytes, head, tail, end: None, kept: u64::MAX }
    }

    /// Promise that the ring's last `kept` bytes behind the head are not overwritten, so that a program may look at
    /// them.
    ///
    /// # Panics
    /// If that leaves no room for others.
    #[must_use]
    pub fn keeping(mut self, kept: u64) -> Self {
        assert!(kept < self.ring.len() as u64, "{kept} bytes behind the head of a ring of {} bytes", self.ring.len());
        self.kept = kept;
        self
    }

    /// Say where it ends, if that is known; bytes may still be on their way.
    ///
    /// # Panics
    /// If more have arrived.
    #[must_use]
    pub fn ending(mut self, end: Option<u64>) -> Self {
        assert!(end.is_none_or(|end| self.tail <= end), "{} bytes arrived of {end:?}", self.tail);
        self.end = end;
        self
    }

    /// Bytes that the program has read.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Bytes that have arrived.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Where it ends, once that is known.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// Bytes that are not read, arrived or not, once the end is known.
    pub fn left(&self) -> Option<u64> {
        Some(self.end? - self.head)
    }

    /// Bytes that have arrived and are not read.
    pub fn available(&self) -> u64 {
        self.tail - self.head
    }

    /// Say that `bytes` more have arrived in the ring: the doorbell.
    ///
    /// # Panics
    /// If there was no room for them, or the stream ends before.
    pub fn arrived(&mut self, bytes: u64) {
        assert!(self.available() + bytes <= self.ring.len() as u64, "{bytes} bytes have no room in the ring");
        assert!(self.end.is_none_or(|end| bytes <= end - self.tail), "{bytes} bytes behind the end of the stream");
        self.tail += bytes;
    }

    /// Say that nothing will arrive any more.
    ///
    /// # Panics
    /// If more was promised.
    pub fn close(&mut self) {
        assert!(self.end.is_none_or(|end| end == self.tail), "{} bytes arrived of {:?}", self.tail, self.end);
        self.end = Some(self.tail);
    }

    /// Whether nothing will arrive any more.
    pub fn closed(&self) -> bool {
        self.end == Some(self.tail)
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

    /// Whether it ends before `bytes` more bytes.
    pub(crate) fn falls_short(&self, bytes: u64) -> bool {
        self.left().is_some_and(|left| left < bytes)
    }

    /// Bytes that may be waited for: [`REACH`], or fewer if the ring has no room for them.
    pub fn ahead(&self) -> u64 {
        if self.kept == u64::MAX { REACH } else { REACH.min(self.ring.len() as u64 - self.kept) }
    }

    /// `N` bytes that begin `ahead` bytes behind the head, or before it if that is negative.
    pub(crate) fn peek<const N: usize>(&self, ahead: i64) -> Look<[u8; N]> {
        let reachable = if ahead < 0 {
            ahead.unsigned_abs() <= self.head.min(self.kept).min(REACH)
        } else {
            (ahead as u64).saturating_add(N as u64) <= self.ahead()
        };
        if !reachable {
            return Look::Never;
        }
        let position = self.head.wrapping_add_signed(ahead);
        if self.end.is_some_and(|end| position + N as u64 > end) {
            return Look::Never;
        }
        if position + N as u64 > self.tail { Look::Wait } else { Look::There(read(self.ring, position)) }
    }

    /// `N` bytes that begin `back` bytes before the end.
    pub(crate) fn before_end<const N: usize>(&self, back: u64) -> Look<[u8; N]> {
        let Some(end) = self.end else { return Look::Wait };
        match end.checked_sub(back) {
            Some(position) => self.peek(position.wrapping_sub(self.head) as i64),
            None => Look::Never,
        }
    }

    /// Waits for `bytes` bytes, but not beyond the end, nor for more than may be waited for; returns their number.
    pub(crate) fn wait(&self, bytes: u64) -> Look<u64> {
        let wanted = bytes.min(self.ahead()).min(self.left().unwrap_or(u64::MAX));
        if self.available() >= wanted { Look::There(wanted) } else { Look::Wait }
    }
}

/// A stream out of a program.
#[derive(Debug)]
pub struct OutputStream<'s> {
    ring: &'s mut [u8],
    head: u64,
    /// The head at which there is no room, in the ring or at all.
    tail: u64,
    drained: u64,
    /// The most bytes that it may have.
    limit: u64,
    room: Room,
}

impl<'s> OutputStream<'s> {
    /// An empty stream that may be written until `ring` is full.
    ///
    /// # Panics
    /// If the ring is empty.
    pub fn new(ring: &'s mut [u8], room: Room) -> Self {
        assert!(!ring.is_empty(), "a stream needs a ring");
        let tail = ring.len() as u64;
        Self { ring, head: 0, tail, drained: 0, limit: u64::MAX, room }
    }

    /// Go on with a stream: `head` bytes were written, those before `drained` have been taken away.
    ///
    /// # Panics
    /// If more bytes lie between them than the ring holds.
    pub fn resume(ring: &'s mut [u8], head: u64, drained: u64, room: Room) -> Self {
        let len = ring.len() as u64;
        assert!(drained <= head && head - drained <= len, "{drained}..{head} in a ring of {len} bytes");
        Self { ring, head, tail: drained + len, drained, limit: u64::MAX, room }
    }

    /// Say that it may have `limit` bytes at most: a store beyond them does not wait for room, there will be none.
    ///
    /// # Panics
    /// If it has more.
    #[must_use]
    pub fn limited(mut self, limit: u64) -> Self {
        assert!(self.head <= limit, "{} bytes were written of {limit}", self.head);
        self.limit = limit;
        self.tail = self.tail.min(limit);
        self
    }

    /// Bytes that the program has written.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The head at which there is no room any more.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The most bytes that it may have; all ones where nothing limits them.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are written and not taken away.
    pub fn waiting(&self) -> u64 {
        self.head - self.drained
    }

    /// Their ranges in the ring: one, and a second one if they wrap.
    pub fn waiting_at(&self) -> [Range<usize>; 2] {
        let len = self.ring.len() as u64;
        if len == 0 {
            return [0..0, 0..0];
        }
        let (from, count) = ((self.drained % len) as usize, self.waiting() as usize);
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
        self.drained += bytes;
        self.tail = self.limit.min(self.drained.saturating_add(self.ring.len() as u64));
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
        true
    }

    /// The room that a store of `bytes` bytes requires.
    #[inline(always)]
    fn wanted(&self, bytes: u64) -> u64 {
        if self.room == Room::Eight { 8 } else { bytes }
    }

    /// Whether there will never be room for a store of `bytes` bytes.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        self.limit - self.head < self.wanted(bytes)
    }

    /// `N` bytes that begin `back` bytes before the head.
    pub(crate) fn behind_head<const N: usize>(&self, back: u64) -> Look<[u8; N]> {
        let held = back <= self.head.min(REACH).min(self.ring.len() as u64) && back >= N as u64;
        if held { Look::There(read(self.ring, self.head - back)) } else { Look::Never }
    }
}

/// Index of byte `position` of a stream in a ring of `len` bytes.
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

/// The streams of a program, by number.
#[derive(Debug, Default)]
pub struct Streams<'s> {
    /// Streams into it.
    pub inputs: Vec<InputStream<'s>>,
    /// Streams out of it.
    pub outputs: Vec<OutputStream<'s>>,
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
