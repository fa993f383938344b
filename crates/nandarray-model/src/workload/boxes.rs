//! Requests for boxes of an array that is stored row by row on a conventional device, as a program without spaces
//! would issue them.
//!
//! An array of elements begins at a byte of the device, and its last dimension is contiguous (for an array stored
//! column by column, reverse shape and boxes). A box consists of one contiguous run for each of its outer coordinates;
//! trailing dimensions that the box covers completely make the runs longer. Each run is one request, or several of at
//! most `request_bytes_max`; requests are rounded out to sectors. Boxes follow one another without a pause, always
//! with `depth` requests in flight, from one queue pair: one thread.

use serde::{Deserialize, Serialize};

use super::synthetic::SECTOR_BYTES;
use super::{IoRequest, RequestOp, RequestSource, WorkloadError};
use nandarray_sim::Ps;

/// A box of an array: a range of indexes along each dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayBox {
    /// Index of the first element along each dimension.
    pub start: Vec<u64>,
    /// Number of elements along each dimension, at least 1.
    pub count: Vec<u64>,
}

/// Settings of a workload: boxes of an array, to read or to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boxes {
    /// Whether the boxes are written; otherwise they are read.
    #[serde(default)]
    pub write: bool,
    /// Number of elements along each dimension; the last dimension is contiguous.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_bytes: u64,
    /// Byte of the device at which the array begins.
    #[serde(default)]
    pub offset_bytes: u64,
    /// The boxes, in the order in which they are requested.
    pub boxes: Vec<ArrayBox>,
    /// Maximum number of bytes of a request, a multiple of a sector.
    pub request_bytes_max: u64,
    /// Number of requests in flight at all times.
    pub depth: u32,
}

/// The contiguous runs of a box, in order.
#[derive(Clone, Debug)]
struct Runs {
    /// Offset on the device of the first run's first byte.
    from: u64,
    /// Dimensions around a run, slowest first: (current step, number of steps, bytes between steps).
    outer: Vec<(u64, u64, u64)>,
    bytes: u64,
    over: bool,
}

impl Runs {
    fn new(all: &Boxes, part: &ArrayBox) -> Self {
        let n = all.shape.len();
        let mut strides = vec![all.item_bytes; n];
        for i in (0..n - 1).rev() {
            strides[i] = strides[i + 1] * all.shape[i + 1];
        }
        // A run covers the last dimension, and each dimension before it as long as all later ones are covered
        // completely.
        let mut first = n - 1;
        while first > 0 && part.count[first] == all.shape[first] {
            first -= 1;
        }
        Self {
            from: all.offset_bytes + part.start.iter().zip(&strides).map(|(s, b)| s * b).sum::<u64>(),
            outer: (0..first).map(|i| (0, part.count[i], strides[i])).collect(),
            bytes: part.count[first] * strides[first],
            over: false,
        }
    }

    /// Returns the first byte of the next run; `None` after the last.
    fn next(&mut self) -> Option<u64> {
        if self.over {
            return None;
        }
        let at = self.from + self.outer.iter().map(|(i, _, bytes)| i * bytes).sum::<u64>();
        match self.outer.iter().rposition(|(i, n, _)| i + 1 < *n) {
            None => self.over = true,
            Some(k) => {
                self.outer[k].0 += 1;
                self.outer[k + 1..].iter_mut().for_each(|o| o.0 = 0);
            }
        }
        Some(at)
    }
}

/// A source of the requests of boxes.
#[derive(Clone, Debug)]
pub struct BoxRequests {
    settings: Boxes,
    next_box: usize,
    runs: Option<Runs>,
    /// The part of the current run that was not requested yet: (first byte, end).
    left: (u64, u64),
    requested_bytes: u64,
    total: u64,
}

fn wrong<T>(text: String) -> Result<T, WorkloadError> {
    Err(WorkloadError::Parameter(text))
}

impl BoxRequests {
    /// Makes the source of requests for boxes on a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// If the array exceeds the device, a box exceeds the array, or a setting is out of range.
    pub fn new(settings: Boxes, device_bytes: u64) -> Result<Self, WorkloadError> {
        let s = &settings;
        let bytes = s.shape.iter().try_fold(s.item_bytes, |v, &d| v.checked_mul(d)).unwrap_or(u64::MAX);
        if s.shape.is_empty() || bytes == 0 || bytes.saturating_add(s.offset_bytes) > device_bytes {
            let from = s.offset_bytes;
            return wrong(format!("an array of {bytes} B from byte {from} on a device of {device_bytes} B"));
        }
        if s.request_bytes_max == 0 || !s.request_bytes_max.is_multiple_of(SECTOR_BYTES) {
            let most = s.request_bytes_max;
            return wrong(format!("a request's most bytes must be a multiple of {SECTOR_BYTES} above 0, not {most}"));
        }
        if !(1..=65_536).contains(&s.depth) {
            return wrong(format!("a queue depth must be from 1 to 65,536, not {}", s.depth));
        }
        for part in &s.boxes {
            let n = s.shape.len();
            let within = |i: usize| {
                part.count[i] > 0 && part.start[i].checked_add(part.count[i]).is_some_and(|end| end <= s.shape[i])
            };
            if part.start.len() != n || part.count.len() != n || !(0..n).all(within) {
                return wrong(format!(
                    "a box from {:?} of {:?} elements; the array has {:?}",
                    part.start, part.count, s.shape
                ));
            }
        }
        let total = s.boxes.iter().map(|p| p.count.iter().product::<u64>() * s.item_bytes).sum();
        Ok(Self { settings, next_box: 0, runs: None, left: (0, 0), requested_bytes: 0, total })
    }
}

impl RequestSource for BoxRequests {
    fn next(&mut self, _now: Ps) -> Result<Option<IoRequest>, WorkloadError> {
        while self.left.0 >= self.left.1 {
            match self.runs.as_mut().and_then(|runs| Some((runs.next()?, runs.bytes))) {
                Some((at, bytes)) => {
                    self.left = (at / SECTOR_BYTES * SECTOR_BYTES, (at + bytes).next_multiple_of(SECTOR_BYTES));
                }
                None => {
                    let Some(part) = self.settings.boxes.get(self.next_box) else { return Ok(None) };
                    self.runs = Some(Runs::new(&self.settings, part));
                    self.next_box += 1;
                }
            }
        }
        let (from, end) = self.left;
        let bytes = (end - from).min(self.settings.request_bytes_max);
        self.left.0 += bytes;
        self.requested_bytes += bytes;
        let op = if self.settings.write { RequestOp::Write } else { RequestOp::Read };
        Ok(Some(IoRequest { at: None, op, stream: 0, offset_bytes: from, bytes }))
    }

    fn depth(&self) -> Option<u32> {
        Some(self.settings.depth)
    }

    fn progress(&self, _now: Ps) -> Option<f64> {
        Some((self.requested_bytes as f64 / self.total.max(1) as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(shape: &[u64], start: &[u64], count: &[u64]) -> Boxes {
        Boxes {
            write: false,
            shape: shape.to_vec(),
            item_bytes: 8,
            offset_bytes: 0,
            boxes: vec![ArrayBox { start: start.to_vec(), count: count.to_vec() }],
            request_bytes_max: 1 << 21,
            depth: 2,
        }
    }

    fn all(settings: Boxes) -> Vec<(u64, u64)> {
        let mut source = BoxRequests::new(settings, 1 << 40).unwrap();
        std::iter::from_fn(|| source.next(Ps::ZERO).unwrap()).map(|r| (r.offset_bytes, r.bytes)).collect()
    }

    #[test]
    fn a_box_is_a_request_a_row_and_whole_rows_are_one_run() {
        assert_eq!(all(settings(&[1024, 1024], &[2, 512], &[2, 512])), [(20_480, 4096), (28_672, 4096)]);
        let rows = all(settings(&[1024, 1024], &[512, 0], &[512, 1024]));
        assert_eq!(rows, [(4 << 20, 2 << 20), (6 << 20, 2 << 20)], "4 MiB in requests of at most 2");
        let planes = all(settings(&[4, 64, 64], &[1, 0, 0], &[2, 64, 64]));
        assert_eq!(planes, [(32_768, 65_536)]);
        assert_eq!(all(settings(&[10, 10], &[1, 1], &[1, 1])), [(0, 512)], "rounded out to sectors");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |s: Boxes| BoxRequests::new(s, 1 << 20).unwrap_err().to_string();
        assert!(refused(settings(&[1024, 1024], &[0, 0], &[1, 1])).contains("8388608 B"));
        assert!(refused(settings(&[16, 16], &[8, 8], &[8, 9])).contains("[16, 16]"));
        assert!(refused(Boxes { depth: 0, ..settings(&[16], &[0], &[1]) }).contains("not 0"));
        assert!(refused(Boxes { request_bytes_max: 100, ..settings(&[16], &[0], &[1]) }).contains("above 0, not 100"));
    }

    proptest! {
        /// The requests cover the bytes that a loop over all elements of the box lists, one by one.
        #[test]
        fn requests_cover_the_box_in_order(
            dims in prop::collection::vec((1u64..6, 0u64..6, 1u64..6), 1..4),
        ) {
            let shape: Vec<u64> = dims.iter().map(|(d, s, c)| d + s + c).collect();
            let (start, count): (Vec<u64>, Vec<u64>) = dims.iter().map(|&(_, s, c)| (s, c)).unzip();
            // Elements of a sector each, so that nothing is rounded.
            let boxes = Boxes { item_bytes: 512, ..settings(&shape, &start, &count) };
            let got: Vec<u64> = all(boxes).iter().flat_map(|&(at, n)| (at..at + n).step_by(512)).collect();
            let volume: u64 = shape.iter().product();
            let inside = |mut e: u64| {
                let mut ok = true;
                for i in (0..shape.len()).rev() {
                    ok &= (start[i]..start[i] + count[i]).contains(&(e % shape[i]));
                    e /= shape[i];
                }
                ok
            };
            let expected: Vec<u64> = (0..volume).filter(|&e| inside(e)).map(|e| e * 512).collect();
            prop_assert_eq!(got, expected);
        }
    }
    /// Elements of any size at any place, several boxes, small requests: the bytes of all runs, one by one, rounded out
    /// to sectors, are requested in order and no others.
    #[test]
    fn requests_are_the_sectors_of_runs_byte_by_byte() {
        for seed in 0..200 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let n = chance.usize(1..4);
            let shape: Vec<u64> = (0..n).map(|_| chance.u64(1..9)).collect();
            let part = |chance: &mut fastrand::Rng| {
                let start: Vec<u64> = shape.iter().map(|&d| chance.u64(0..d)).collect();
                let count = start.iter().zip(&shape).map(|(s, d)| chance.u64(1..=d - s)).collect();
                ArrayBox { start, count }
            };
            let all_boxes = Boxes {
                write: chance.bool(),
                item_bytes: chance.u64(1..900),
                offset_bytes: chance.u64(0..3_000),
                boxes: (0..chance.usize(0..4)).map(|_| part(&mut chance)).collect(),
                request_bytes_max: 512 * chance.u64(1..6),
                depth: 1,
                shape: shape.clone(),
            };
            let mut wanted: Vec<u64> = Vec::new();
            for part in &all_boxes.boxes {
                // Elements in order; those that follow each other without a gap are one run.
                let mut runs: Vec<(u64, u64)> = Vec::new();
                for element in 0..shape.iter().product::<u64>() {
                    let mut rest = element;
                    let inside = (0..n).rev().all(|i| {
                        let index = rest % shape[i];
                        rest /= shape[i];
                        (part.start[i]..part.start[i] + part.count[i]).contains(&index)
                    });
                    let at = all_boxes.offset_bytes + element * all_boxes.item_bytes;
                    match runs.last_mut() {
                        Some((_, end)) if inside && *end == at => *end += all_boxes.item_bytes,
                        _ if inside => runs.push((at, at + all_boxes.item_bytes)),
                        _ => {}
                    }
                }
                wanted.extend(runs.iter().flat_map(|(from, end)| from / 512..end.div_ceil(512)));
            }
            let (write, most) = (all_boxes.write, all_boxes.request_bytes_max);
            let mut source = BoxRequests::new(all_boxes, 1 << 30).unwrap();
            let mut found = Vec::new();
            while let Some(r) = source.next(Ps::ZERO).unwrap() {
                assert!(r.bytes > 0 && r.bytes <= most && (r.op == RequestOp::Write) == write, "seed {seed}: {r:?}");
                assert_eq!((r.offset_bytes % 512, r.bytes % 512, r.at), (0, 0, None), "seed {seed}: {r:?}");
                found.extend(r.offset_bytes / 512..(r.offset_bytes + r.bytes) / 512);
            }
            assert_eq!(found, wanted, "seed {seed}: {shape:?}");
            assert_eq!(source.progress(Ps::ZERO), Some(if wanted.is_empty() { 0.0 } else { 1.0 }), "seed {seed}");
        }
    }
}
