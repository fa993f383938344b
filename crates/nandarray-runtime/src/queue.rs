//! Stream queues: the bytes that a stage has produced and its readers have not consumed yet, in order.
//!
//! Bytes stay in the chunks in which they were produced; readers get slices of these chunks, not copies. A position is
//! a number of bytes from the beginning of the output. Each chunk carries the turn in which it was produced;
//! [`crate::stage::Rank`] explains turns. The scheduler bounds the length of a queue.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A shared chunk, and the range of its bytes that a reader gets.
pub(crate) type ChunkSlice = (Arc<Vec<u8>>, Range<usize>);

/// A chunk of bytes that were produced at once, with its position and its turn (see [`crate::stage::Rank`]).
#[derive(Debug)]
struct QueuedChunk {
    at: u64,
    bytes: Arc<Vec<u8>>,
    turn: u64,
}

impl QueuedChunk {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// The queue of an output: the bytes that at least one of its readers has not consumed.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    chunks: VecDeque<QueuedChunk>,
    end: u64,
    /// The turn (see [`crate::stage::Rank`]) in which the producer ended; `None` while it produces.
    closed: Option<u64>,
    /// Position of each reader: the number of bytes that it has consumed.
    readers: Vec<u64>,
}

impl StreamQueue {
    /// Adds a reader at position 0; returns the reader's number.
    pub(crate) fn add_reader(&mut self) -> usize {
        self.readers.push(0);
        self.readers.len() - 1
    }

    /// Whether the queue has a reader.
    pub(crate) fn is_read(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Appends bytes that were produced in this turn (see [`crate::stage::Rank`]); drops them if the queue has no
    /// reader.
    pub(crate) fn push(&mut self, bytes: Vec<u8>, turn: u64) {
        assert!(self.closed.is_none(), "{} bytes are pushed after the end at {}", bytes.len(), self.end);
        if !bytes.is_empty() && self.is_read() {
            let before = self.chunks.back().map_or(0, |last| last.turn);
            assert!(before <= turn, "bytes of turn {turn} are pushed behind those of turn {before}");
            let at = self.end;
            self.end += bytes.len() as u64;
            self.chunks.push_back(QueuedChunk { at, bytes: Arc::new(bytes), turn });
        }
    }

    /// Marks the end of the output, which the producer reached in this turn (see [`crate::stage::Rank`]).
    pub(crate) fn close(&mut self, turn: u64) {
        assert!(self.closed.is_none_or(|known| known == turn), "it ends at turn {turn}, and at {:?}", self.closed);
        self.closed = Some(turn);
    }

    /// Whether the producer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Returns the turn (see [`crate::stage::Rank`]) in which the byte before position `to` was produced; a reader has
    /// not consumed this byte yet. Beyond the last byte, returns the turn of the output's end; 0 if the output has not
    /// ended.
    pub(crate) fn turn(&self, to: u64) -> u64 {
        if to > self.end {
            return self.closed.unwrap_or(0);
        }
        self.chunks.get(self.chunks.partition_point(|one| one.end() < to)).map_or(0, |one| one.turn)
    }

    /// Returns the number of bytes produced so far.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes that a reader has consumed.
    pub(crate) fn position(&self, reader: usize) -> u64 {
        self.readers[reader]
    }

    /// Returns the number of produced bytes that a reader has not consumed.
    pub(crate) fn backlog(&self, reader: usize) -> u64 {
        self.end - self.readers[reader]
    }

    /// Returns the number of produced bytes that the slowest reader has not consumed.
    pub(crate) fn queued(&self) -> u64 {
        self.end - self.readers.iter().min().copied().unwrap_or(self.end)
    }

    /// Returns a reader's bytes up to position `to` as slices of chunks, without consuming them.
    pub(crate) fn peek(&self, reader: usize, to: u64) -> Vec<ChunkSlice> {
        self.chunks(self.readers[reader]..to)
    }

    /// Consumes a reader's bytes up to position `to`; returns them as slices of chunks.
    pub(crate) fn take(&mut self, reader: usize, to: u64) -> Vec<ChunkSlice> {
        let from = self.readers[reader];
        assert!(from <= to && to <= self.end, "reader {reader} at {from} of {} goes to {to}", self.end);
        let found = self.chunks(from..to);
        self.readers[reader] = to;
        let last = self.readers.iter().min().copied().unwrap_or(to);
        while self.chunks.front().is_some_and(|one| one.end() <= last) {
            self.chunks.pop_front();
        }
        found
    }

    fn chunks(&self, range: Range<u64>) -> Vec<ChunkSlice> {
        assert!(range.end <= self.end, "bytes up to {} of {}", range.end, self.end);
        let first = self.chunks.partition_point(|one| one.end() <= range.start);
        let within = self.chunks.range(first..).take_while(|one| one.at < range.end);
        let cut = |one: &QueuedChunk| {
            let from = range.start.max(one.at) - one.at;
            let to = range.end.min(one.end()) - one.at;
            (one.bytes.clone(), from as usize..to as usize)
        };
        within.map(cut).collect()
    }

    /// Returns the position of the first `byte` at or after position `from`; `None` if there is none.
    pub(crate) fn find(&self, byte: u8, from: u64) -> Option<u64> {
        let mut at = from;
        for (bytes, range) in self.chunks(from.min(self.end)..self.end) {
            if let Some(i) = bytes[range.clone()].iter().position(|b| *b == byte) {
                return Some(at + i as u64);
            }
            at += range.len() as u64;
        }
        None
    }

    /// Returns the four bytes at a position; `None` if not all of them have arrived.
    pub(crate) fn word(&self, at: u64) -> Option<[u8; 4]> {
        if at + 4 > self.end {
            return None;
        }
        let mut word = [0; 4];
        let mut filled = 0;
        for (bytes, range) in self.chunks(at..at + 4) {
            let n = range.len();
            word[filled..filled + n].copy_from_slice(&bytes[range]);
            filled += n;
        }
        Some(word)
    }
}

/// Concatenates chunks into `into`, whose earlier content is dropped.
pub(crate) fn joined(chunks: &[ChunkSlice], into: &mut Vec<u8>) {
    into.clear();
    for (bytes, range) in chunks {
        into.extend_from_slice(&bytes[range.clone()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_taken_is_what_was_given(
            given in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..12),
            steps in prop::collection::vec((0usize..2, 0u64..7), 0..60),
        ) {
            let all: Vec<u8> = given.concat();
            let mut queue = StreamQueue::default();
            let readers = [queue.add_reader(), queue.add_reader()];
            let mut given = given.into_iter();
            let mut taken = [Vec::new(), Vec::new()];
            for (turn, (who, more)) in steps.into_iter().enumerate() {
                match given.next() {
                    Some(bytes) => queue.push(bytes, turn as u64),
                    None => queue.close(1000),
                }
                if queue.queued() > 0 {
                    prop_assert!(queue.turn(queue.end()) <= turn as u64);
                }
                prop_assert_eq!(queue.turn(queue.end() + 1), if queue.is_closed() { 1000 } else { 0 });
                let to = (taken[who].len() as u64 + more).min(queue.end());
                let (mut bytes, mut peeked) = (Vec::new(), Vec::new());
                joined(&queue.peek(readers[who], to), &mut peeked);
                joined(&queue.take(readers[who], to), &mut bytes);
                prop_assert_eq!(&peeked, &bytes);
                taken[who].extend(bytes);
                prop_assert_eq!(queue.backlog(readers[who]), queue.end() - to);
                let least = taken[0].len().min(taken[1].len()) as u64;
                prop_assert_eq!(queue.queued(), queue.end() - least);
                let from = least.min(queue.end());
                let expected = all[from as usize..queue.end() as usize].iter().position(|b| *b == 7);
                prop_assert_eq!(queue.find(7, from), expected.map(|i| from + i as u64));
                let word = all[from as usize..queue.end() as usize].get(..4).map(<[u8]>::to_vec);
                prop_assert_eq!(queue.word(from).map(Vec::from), word);
            }
            for one in taken {
                prop_assert_eq!(&all[..one.len()], &one[..]);
            }
        }
    }
}
