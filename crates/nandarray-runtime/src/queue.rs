//! Stream queues: the bytes that a stage has produced and its readers have not consumed yet, in order.
//!
//! Bytes stay in the chunks in which they were produced and are lent, not copied. Positions are bytes from the
//! beginning of the output. Each chunk carries its turn, which [`crate::stage::Rank`] explains. The scheduler bounds
//! the length of a queue.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A chunk, and the range of its bytes that is meant.
pub(crate) type ChunkSlice = (Arc<Vec<u8>>, Range<usize>);

/// Bytes that were produced at once, and their position.
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

/// An output on its way to its readers.
#[derive(Debug, Default)]
pub(crate) struct StreamQueue {
    chunks: VecDeque<QueuedChunk>,
    end: u64,
    /// The turn of the end, once the producer has ended.
    closed: Option<u64>,
    /// Position of each reader.
    readers: Vec<u64>,
}

impl StreamQueue {
    /// Adds a reader at the beginning; returns its number.
    pub(crate) fn add_reader(&mut self) -> usize {
        self.readers.push(0);
        self.readers.len() - 1
    }

    /// Whether there is a reader.
    pub(crate) fn is_read(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Appends bytes; dropped if there is no reader.
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

    /// Marks the end.
    pub(crate) fn close(&mut self, turn: u64) {
        assert!(self.closed.is_none_or(|known| known == turn), "it ends at turn {turn}, and at {:?}", self.closed);
        self.closed = Some(turn);
    }

    /// Whether the producer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The turn of the byte before `to`, which a reader has not consumed; that of the end if the output ends before.
    pub(crate) fn turn(&self, to: u64) -> u64 {
        if to > self.end {
            return self.closed.unwrap_or(0);
        }
        self.chunks.get(self.chunks.partition_point(|one| one.end() < to)).map_or(0, |one| one.turn)
    }

    /// Bytes produced so far.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that a reader has not consumed.
    pub(crate) fn backlog(&self, reader: usize) -> u64 {
        self.end - self.readers[reader]
    }

    /// Bytes queued for the slowest reader.
    pub(crate) fn queued(&self) -> u64 {
        self.end - self.readers.iter().min().copied().unwrap_or(self.end)
    }

    /// Consumes the bytes of a reader up to position `to`.
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

    /// The first place of a byte from `from` on.
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

    /// The four bytes at a place, if they are there.
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

/// Put chunks one behind the other.
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
                let mut bytes = Vec::new();
                joined(&queue.take(readers[who], to), &mut bytes);
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
