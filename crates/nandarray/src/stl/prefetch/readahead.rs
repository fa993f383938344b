//! Readahead: predicts the boxes of the next commands from those of the previous ones.
//!
//! A sequential stream is a series of boxes of one size, each beginning along one dimension where the one before ended.
//! Between two commands of a stream a disk would be idle, while the first is compared and copied and until the second
//! arrives; so from the second box on, the following ones are prefetched as well. It is the readahead of a file system,
//! but in the array's coordinates: it works along every dimension, whereas a file system recognises only sequences in
//! stored order.
//!
//! The window is as large as the number of bytes that the stream has read so far, at most [`READAHEAD_BYTES`]; a large
//! window is rounded up to whole building blocks. Along the last dimension it grows to all blocks that lie in one
//! extent of the medium, at most [`EXTENTS_BYTES`], since a disk reads an extent in half the time of its parts. Up to
//! [`STREAMS_MAX`] streams of a space are followed; the one without a new box for the longest time is replaced first.
//! Threads that share a stream take its boxes nearly in order, so a box at most [`NEAR`] boxes from the position of a
//! stream belongs to it. This module does not know whether predicted pages are in memory already.

use parking_lot::Mutex;
use smallvec::SmallVec;

/// Largest number of bytes that are prefetched beyond a command: enough to keep a disk's queue full.
pub const READAHEAD_BYTES: u64 = 32 << 20;
/// Largest number of bytes that are prefetched beyond a command in order to read whole extents.
const EXTENTS_BYTES: u64 = 128 << 20;
/// Largest number of streams of a space that are followed.
const STREAMS_MAX: usize = 8;
/// Largest distance, in boxes and in either direction, of a box from the position of the stream to which it belongs: a
/// few threads read that many boxes at a time.
const NEAR: u64 = 8;

/// A box of elements of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementBox {
    /// First coordinate along each dimension.
    pub start: SmallVec<[u64; 4]>,
    /// Number of elements along each dimension.
    pub count: SmallVec<[u64; 4]>,
}

/// A sequential stream: boxes of one size that follow one another along an axis.
#[derive(Debug, Default)]
struct ReadStream {
    /// The box of the stream that is furthest along the axis.
    last: ElementBox,
    axis: usize,
    /// Number of boxes of the stream after its first one.
    steps: u32,
    /// Coordinate along the axis up to which (exclusive) boxes to prefetch were returned.
    predicted: u64,
}

/// The active streams of a space, the most recently used one first.
#[derive(Debug, Default)]
pub struct ReadStreams(Mutex<Vec<ReadStream>>);

impl ReadStreams {
    /// Records the box of a command, and returns the box to prefetch beyond it; `None` if there is none, or it was
    /// returned before.
    ///
    /// `now` lies within `shape`. `shape` and `block` are those of the space and of its building blocks, in elements of
    /// `item_bytes` bytes; `in_extent` is the number of blocks, consecutive along the last dimension, in an extent of
    /// the medium.
    pub fn next(
        &self,
        now: ElementBox,
        shape: &[u64],
        block: &[u64],
        in_extent: u64,
        item_bytes: u64,
    ) -> Option<ElementBox> {
        let mut streams = self.0.lock();
        let known = streams.iter().position(|s| follows(&s.last, &now).is_some());
        let Some(at) = known.or_else(|| streams.iter().position(|s| s.is_near(&now))) else {
            streams.truncate(STREAMS_MAX - 1);
            streams.insert(0, ReadStream { last: now, ..ReadStream::default() });
            return None;
        };
        assert!(streams.len() <= STREAMS_MAX, "{} streams", streams.len());
        streams[..=at].rotate_right(1);
        let stream = &mut streams[0];
        if let Some(axis) = follows(&stream.last, &now) {
            if stream.steps == 0 || stream.axis != axis {
                *stream = ReadStream { axis, ..ReadStream::default() };
            }
            stream.steps += 1;
        } else if now.start[stream.axis] <= stream.last.start[stream.axis] {
            // Another thread has read further already.
            return None;
        }
        stream.last = now;
        stream.predict(shape, block, in_extent, item_bytes)
    }
}

impl ReadStream {
    /// Returns the box to prefetch beyond the last one; `None` if there is none at present.
    fn predict(&mut self, shape: &[u64], block: &[u64], in_extent: u64, item_bytes: u64) -> Option<ElementBox> {
        let (axis, now) = (self.axis, &self.last);
        let end = now.start[axis] + now.count[axis];
        let layer_bytes = now.count.iter().product::<u64>() / now.count[axis] * item_bytes;
        let most = (READAHEAD_BYTES / layer_bytes).max(1);
        let read = now.count[axis].saturating_mul(u64::from(self.steps));
        let extent = block[axis].saturating_mul(if axis + 1 == shape.len() { in_extent } else { 1 });
        let extents = extent > block[axis] && read >= extent / 2 && extent.saturating_mul(layer_bytes) <= EXTENTS_BYTES;
        // The window; the least part of it that must be left, otherwise it is extended; and the unit that it is rounded
        // up to. If a large part of a block is prefetched, the rest costs little more.
        let (far, least, grain) = match read.min(most) {
            _ if extents => (extent / 2, extent / 2, extent),
            far => (far, far / 2, if far >= block[axis] / 4 { block[axis] } else { 1 }),
        };
        if self.predicted >= end.saturating_add(least) {
            return None;
        }
        let goal = end.saturating_add(far).div_ceil(grain).saturating_mul(grain).min(shape[axis]);
        let from = self.predicted.max(end);
        if from >= goal {
            return None;
        }
        assert!(self.predicted <= from && goal <= shape[axis], "{from}..{goal} of {} along axis {axis}", shape[axis]);
        self.predicted = goal;
        let mut next = now.clone();
        (next.start[axis], next.count[axis]) = (from, goal - from);
        Some(next)
    }

    /// Whether a box belongs to this stream and is near its position; false for a stream of a single box.
    fn is_near(&self, now: &ElementBox) -> bool {
        if self.steps == 0 || self.last.count != now.count {
            return false;
        }
        let axis = self.axis;
        let moved = (0..now.start.len()).all(|i| i == axis || self.last.start[i] == now.start[i]);
        let away = self.last.start[axis].abs_diff(now.start[axis]);
        moved && away <= now.count[axis].saturating_mul(NEAR) && away.is_multiple_of(now.count[axis])
    }
}

/// The box that was written last, to recognise boxes that are written one after the other.
#[derive(Debug, Default)]
pub struct AppendStream(Mutex<ElementBox>);

impl AppendStream {
    /// Records the box of a write; returns the axis along which this box begins where the previous box ended, `None` if
    /// there is none.
    pub fn next(&self, now: ElementBox) -> Option<usize> {
        // Two threads that write at the same time are no sequence.
        let mut last = self.0.try_lock()?;
        let axis = follows(&last, &now);
        *last = now;
        axis
    }
}

/// Returns the axis along which a box begins where another of its size ended; `None` if there is none.
fn follows(last: &ElementBox, now: &ElementBox) -> Option<usize> {
    if last.count != now.count {
        return None;
    }
    let mut moved = (0..now.start.len()).filter(|&i| last.start[i] != now.start[i]);
    let axis = moved.next()?;
    (moved.next().is_none() && last.start[axis] + last.count[axis] == now.start[axis]).then_some(axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: &[u64], count: &[u64]) -> ElementBox {
        ElementBox { start: start.into(), count: count.into() }
    }

    #[test]
    fn a_stream_is_followed_along_any_axis() {
        for axis in 0..2 {
            let s = ReadStreams::default();
            let (shape, block) = ([16_384; 2], [256; 2]);
            let band = |i: u64, n: u64| {
                let (mut start, mut count) = ([0; 2], [16_384; 2]);
                (start[axis], count[axis]) = (512 * i, 512 * n);
                extent(&start, &count)
            };
            let next = |i| s.next(band(i, 1), &shape, &block, 1, 4);
            assert_eq!(next(3), None, "one box is no stream");
            assert_eq!(next(4), Some(band(5, 1)));
            assert_eq!(next(5), Some(band(6, 1)));
            assert_eq!(next(30), None, "a jump ends it");
            assert_eq!(next(31), None, "nothing lies beyond the end");
        }
    }

    #[test]
    fn extents_are_predicted_as_a_whole_along_the_last_dimension() {
        let asked = |axis: usize, count: u64, together, layer| {
            let s = ReadStreams::default();
            let mut all = Vec::new();
            for i in 0..16_384 / count {
                let (mut start, mut counts) = ([0; 2], [layer; 2]);
                (start[axis], counts[axis]) = (count * i, count);
                let ask = s.next(extent(&start, &counts), &[16_384; 2], &[256; 2], together, 4);
                all.extend(ask.map(|e| (e.start[axis], e.start[axis] + e.count[axis])));
            }
            all
        };
        let bands = asked(1, 512, 8, 16_384);
        assert_eq!(bands[..2], [(1024, 1536), (1536, 4096)], "once the stream has read half of an extent");
        assert!(bands[2..].iter().all(|ask| ask.0 % 2048 == 0 && ask.1 - ask.0 == 2048), "{bands:?}");
        assert_eq!(bands.last().unwrap().1, 16_384);
        assert!(
            asked(0, 512, 8, 16_384).iter().all(|ask| ask.1 - ask.0 == 512),
            "extents do not lie along other dimensions"
        );
        assert!(asked(1, 512, 1, 16_384).iter().all(|ask| ask.1 - ask.0 == 512), "blocks as large as extents");
        assert!(
            asked(1, 512, 16, 16_384).iter().all(|ask| ask.1 - ask.0 == 512),
            "an extent's layer is too much at once"
        );
        assert!(asked(1, 64, 8, 1024).iter().skip(20).all(|ask| ask.1 % 2048 == 0), "small steps");
    }

    #[test]
    fn small_steps_grow() {
        let s = ReadStreams::default();
        let (shape, block) = ([16_384; 2], [256; 2]);
        let row = |i: u64| s.next(extent(&[i, 0], &[1, 16_384]), &shape, &block, 1, 4);
        let (mut asked, mut commands) = (1, 0);
        assert_eq!(row(0), None);
        for i in 1..4_000 {
            if let Some(ask) = row(i) {
                assert_eq!(ask.start[0], asked.max(i + 1), "each part once");
                asked = ask.start[0] + ask.count[0];
                commands += 1;
            }
            assert!(asked > i, "row {} was not asked for", i + 1);
            assert!(asked <= i + 1 + READAHEAD_BYTES / 65_536 + 256);
        }
        assert!(commands < 60, "asked {commands} times");
    }

    #[test]
    fn threads_that_share_a_stream_are_followed() {
        // Two threads take boxes from a counter; each keeps one a while, so that they come in pairs the wrong way
        // round.
        let s = ReadStreams::default();
        let (mut asked, mut given) = (0, Vec::new());
        for i in (0..64u64).map(|i| if i == 0 || i % 3 == 0 { i } else { i / 3 * 3 + 3 - i % 3 }) {
            if let Some(ask) = s.next(extent(&[i * 512, 0], &[512, 4096]), &[1 << 20, 4096], &[256; 2], 1, 4) {
                assert!(ask.start[0] >= asked, "each part once");
                asked = ask.start[0] + ask.count[0];
                given.push(i);
            }
        }
        let most = 64 * 512 + READAHEAD_BYTES / 16_384 + 256;
        assert!((64 * 512..=most).contains(&asked), "{asked} {given:?}");
    }

    #[test]
    fn boxes_near_a_stream_belong_to_it() {
        let next = |s: &ReadStreams, row: u64, column: u64| {
            let ask = s.next(extent(&[row * 512, column], &[512, 4096]), &[1 << 20, 1 << 14], &[256; 2], 1, 4);
            ask.map(|ask| (ask.start[0] / 512, ask.count[0] / 512))
        };
        let stream = || {
            let s = ReadStreams::default();
            assert_eq!((next(&s, 20, 4096), next(&s, 21, 4096)), (None, Some((22, 1))));
            s
        };
        let s = stream();
        assert_eq!(next(&s, 29, 4096), Some((30, 1)), "a box was left out, for another thread");
        assert_eq!(next(&s, 21, 4096), None, "which comes later");
        assert_eq!(next(&s, 30, 4096), Some((31, 2)));
        for (row, column) in [(21 + NEAR + 1, 4096), (23, 0), (23, 8192)] {
            let s = stream();
            assert_eq!(next(&s, row, column), None, "box {row} at column {column} begins another stream");
            assert_eq!(next(&s, row + 1, column), Some((row + 2, 1)));
        }
        let s = stream();
        let half = extent(&[22 * 512, 4096], &[512, 2048]);
        assert_eq!(s.next(half, &[1 << 20, 1 << 14], &[256; 2], 1, 4), None, "another size");
        assert_eq!(next(&s, 22, 4096), Some((23, 2)), "the stream goes on");
        let s = ReadStreams::default();
        assert_eq!((next(&s, 20, 4096), next(&s, 22, 4096)), (None, None), "one box is no stream");
        assert_eq!(next(&s, 21, 4096), Some((22, 1)));
    }

    #[test]
    fn streams_in_turn_are_all_followed() {
        let s = ReadStreams::default();
        let row =
            |scan: u64, i: u64| s.next(extent(&[scan * 10_000 + i, 0], &[1, 4096]), &[1 << 20, 4096], &[256; 2], 1, 4);
        for scan in 0..STREAMS_MAX as u64 {
            assert_eq!(row(scan, 0), None);
        }
        for scan in 0..STREAMS_MAX as u64 {
            assert_eq!(row(scan, 1).map(|e| e.start[0]), Some(scan * 10_000 + 2));
        }
        assert_eq!(row(99, 0), None, "one more: the oldest is forgotten");
        assert_eq!(row(0, 2), None);
        assert!(row(7, 2).is_some());
    }

    #[test]
    fn writes_go_on_where_one_ends_and_the_next_begins() {
        let s = AppendStream::default();
        let next = |start, n| s.next(extent(&[0, start], &[100, n]));
        assert_eq!(next(0, 5), None, "the first follows nothing");
        assert_eq!(next(5, 5), Some(1));
        assert_eq!(next(10, 5), Some(1));
        assert_eq!(next(20, 5), None, "a gap");
        assert_eq!(next(25, 6), None, "another size");
    }

    #[test]
    fn other_boxes_are_no_stream() {
        let s = ReadStreams::default();
        let next = |start: [u64; 2], count: [u64; 2]| s.next(extent(&start, &count), &[100; 2], &[10; 2], 1, 8);
        assert_eq!(next([0, 0], [10, 10]), None);
        assert_eq!(next([10, 10], [10, 10]), None, "two axes moved");
        assert_eq!(next([30, 10], [10, 10]), None, "a gap");
        assert_eq!(next([40, 10], [20, 10]), None, "another size");
        assert_eq!(next([40, 10], [20, 10]), None, "the same again");
        assert!(next([60, 10], [20, 10]).is_some());
        assert_eq!(next([60, 20], [20, 10]).map(|e| e.start[1]), Some(30), "around the corner");
    }
}
