//! Inputs of a task on their way to a timed core: pages in the order of the stream, credits that allow their transfer,
//! and the number of bytes that have arrived.
//!
//! An input takes one of two ways. Pages of a stored input that lie in the order of the stream may go from their
//! channels directly to the core, past DRAM. All other inputs arrive in DRAM, from which a core with caches reads them,
//! and a core with stream buffers gets them page by page. This file knows no time: the executor passes on the events
//! that the machine reports.

use nandarray_runtime::InputLocation;
use nandarray_uarch::InputPath;

use super::connections::StageOutput;
use crate::flash::{OpCause, OpKind};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace};
use crate::machine::SpaceJobId;

/// The pages of an input, in the order of the stream, and which of them have arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct PageArrivals {
    /// End of each page, as an offset in the stream in bytes.
    ends: Vec<u64>,
    there: Vec<bool>,
    /// Number of pages before the first page that has not arrived.
    prefix: usize,
}

impl PageArrivals {
    fn new(bytes: impl Iterator<Item = u64>) -> Self {
        let ends: Vec<u64> = bytes
            .scan(0, |end, bytes| {
                *end += bytes;
                Some(*end)
            })
            .collect();
        Self { there: vec![false; ends.len()], ends, prefix: 0 }
    }

    fn arrives(&mut self, page: usize) {
        assert!(!std::mem::replace(&mut self.there[page], true), "page {page} of an input arrives twice");
        while self.there.get(self.prefix) == Some(&true) {
            self.prefix += 1;
        }
    }

    fn is_complete(&self) -> bool {
        self.prefix == self.ends.len()
    }

    /// Returns the number of bytes before the first page that has not arrived.
    fn bytes(&self) -> u64 {
        self.prefix.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Returns the number of pages that end at or before this offset.
    fn until(&self, byte: u64) -> usize {
        self.ends.partition_point(|&end| end <= byte)
    }

    /// Returns the number of pages that hold the first `byte` bytes of the stream.
    fn covering(&self, byte: u64) -> usize {
        (self.ends.partition_point(|&end| end < byte) + 1).min(self.ends.len())
    }
}

/// The pages of an input on their last way, into the core's stream buffer; each page needs a credit to be sent.
#[derive(Clone, Debug)]
struct PagesToCore {
    job: Option<SpaceJobId>,
    pages: PageArrivals,
    /// Number of pages that the core has consumed.
    taken: usize,
    /// Number of pages that have been granted a credit.
    credited: usize,
}

/// An input of a task on its way to a core.
#[derive(Clone, Debug)]
pub(super) struct InputFeed {
    /// Size of the input in bytes.
    pub(super) bytes: u64,
    /// The input's way into DRAM: the machine's job (`None` before it is submitted) and its pages; `None` if the input
    /// does not pass DRAM.
    dram: Option<(Option<SpaceJobId>, PageArrivals)>,
    /// The input's way into the core's buffers; `None` if the core reads the input from DRAM.
    core: Option<PagesToCore>,
    /// Whether the core gets the input only when all of it has arrived.
    as_a_whole: bool,
    /// The connected output of another program that the input reads, and the offset of the input's first byte in it;
    /// `None` for an input that is connected to no output.
    source: Option<(StageOutput, u64)>,
}

/// One part of the way of an input, which the machine executes as a job.
#[derive(Clone, Debug)]
pub(super) enum Leg {
    /// Blocks are read from the flash into DRAM.
    IntoDram(FlashTrace),
    /// This number of the caller's bytes crosses the link into DRAM.
    OverLink(u64),
    /// Pages go from the flash to the core.
    FlashToCore(FlashTrace),
    /// Pages go from DRAM to the core.
    DramToCore(FlashTrace),
    /// Pages go to the core from the output buffers of other cores.
    CoreToCore(FlashTrace),
}

/// The rules by which inputs reach a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedRules {
    pub(super) from: InputPath,
    /// Whether the program reads streams; otherwise it reads windows, ranges of memory that hold whole inputs.
    pub(super) streams: bool,
    pub(super) page_bytes: u64,
    pub(super) read_ahead: usize,
}

impl InputFeed {
    /// Makes the feeds of a task's inputs, each with the parts of its way. `trace` holds the flash operations with
    /// which the engine has read the inputs.
    pub(super) fn of(rules: &FeedRules, inputs: &[InputLocation], trace: &FlashTrace) -> Vec<(Self, Vec<Leg>)> {
        let mut next = 0;
        let all = inputs.iter().map(|input| {
            let first = next;
            if let InputLocation::Stored(bytes) = *input {
                let mut left = bytes;
                while next < trace.blocks.len() && trace.blocks[next].bytes <= left && left > 0 {
                    left -= trace.blocks[next].bytes;
                    next += 1;
                }
            }
            Self::one(rules, *input, share(trace, first, next))
        });
        all.collect()
    }

    fn one(rules: &FeedRules, input: InputLocation, stored: FlashTrace) -> (Self, Vec<Leg>) {
        let in_pages = in_stream_order(&stored, rules.page_bytes);
        let as_a_whole = rules.from == InputPath::PingPong;
        let direct = rules.from != InputPath::Dram;
        let mut legs = Vec::new();
        let bytes = match input {
            InputLocation::Stored(bytes) | InputLocation::Host(bytes) | InputLocation::Here(bytes) => bytes,
            InputLocation::Queued { bytes, .. } => bytes,
        };
        let source = match input {
            InputLocation::Queued { stage, output, from, .. } => Some(((stage, output), from)),
            _ => None,
        };
        let arrivals = |trace: &FlashTrace| PageArrivals::new(trace.blocks.iter().map(|block| block.bytes));
        let to_core = |pages: PageArrivals| PagesToCore { job: None, pages, taken: 0, credited: 0 };
        let whole = |pages: &FlashTrace| pages.blocks.iter().map(|block| block.bytes).sum::<u64>() == bytes;
        let (dram, core) = match (input, in_pages) {
            (InputLocation::Stored(_), Some(pages)) if direct && whole(&pages) => {
                let core = to_core(arrivals(&pages));
                legs.push(Leg::FlashToCore(pages));
                (None, Some(core))
            }
            (InputLocation::Stored(_), pages) => {
                let ordered = pages.filter(|pages| whole(pages));
                // If the elements of blocks are interleaved in the stream, they have arrived when the last block has.
                let into = match ordered {
                    Some(pages) => (arrivals(&pages), pages),
                    None => (mixed(&stored, bytes), stored),
                };
                legs.push(Leg::IntoDram(into.1));
                (Some((None, into.0)), None)
            }
            (InputLocation::Host(_), _) => {
                legs.push(Leg::OverLink(bytes));
                (Some((None, PageArrivals::new(std::iter::once(bytes)))), None)
            }
            (InputLocation::Here(_) | InputLocation::Queued { .. }, _) => (None, None),
        };
        let buffered = rules.streams || direct;
        let core = core.or_else(|| {
            (buffered && bytes > 0).then(|| {
                let pages = cut(bytes, rules.page_bytes);
                let core = to_core(arrivals(&pages));
                legs.push(if source.is_some() { Leg::CoreToCore(pages) } else { Leg::DramToCore(pages) });
                core
            })
        });
        (Self { bytes, dram, core, as_a_whole, source }, legs)
    }

    /// Sets the machine's job that brings the input into DRAM.
    pub(super) fn set_dram_job(&mut self, job: SpaceJobId) {
        self.dram.as_mut().expect("an input that goes through DRAM").0 = Some(job);
    }

    /// Sets the machine's job that brings the input's pages to the core.
    pub(super) fn set_core_job(&mut self, job: SpaceJobId) {
        self.core.as_mut().expect("an input that goes to a core").job = Some(job);
    }

    /// Returns the machine's job that brings pages to the core by credits; `None` if there is none.
    pub(super) fn core_job(&self) -> Option<SpaceJobId> {
        self.core.as_ref()?.job
    }

    /// Records that a page of one of the input's jobs has arrived.
    pub(super) fn arrives(&mut self, job: SpaceJobId, page: usize) {
        if let Some(core) = self.core.as_mut().filter(|core| core.job == Some(job)) {
            return core.pages.arrives(page);
        }
        if let Some((_, pages)) = self.dram.as_mut().filter(|(own, _)| *own == Some(job)) {
            if page < pages.ends.len() {
                pages.arrives(page);
            }
        }
    }

    /// Records that the input's job into DRAM has ended: all bytes are in DRAM, including fill, which is not stored.
    pub(super) fn ends(&mut self, job: SpaceJobId) {
        if let Some((_, pages)) = self.dram.as_mut().filter(|(own, _)| *own == Some(job)) {
            pages.there.fill(true);
            pages.prefix = pages.ends.len();
        }
    }

    /// Returns the number of bytes of the pages that the core has consumed.
    pub(super) fn taken_bytes(&self) -> u64 {
        let taken = self.core.as_ref().and_then(|core| Some(core.pages.ends[core.taken.checked_sub(1)?]));
        taken.unwrap_or(0)
    }

    /// Records that the core has consumed the first `bytes` bytes.
    pub(super) fn taken(&mut self, bytes: u64) {
        if let Some(core) = &mut self.core {
            core.taken = core.pages.until(bytes);
        }
    }

    /// Returns the number of bytes, from the beginning of the input, that the core may read now.
    pub(super) fn available(&self) -> u64 {
        let (bytes, complete) = match (&self.core, &self.dram) {
            (Some(core), _) => (core.pages.bytes(), core.pages.is_complete()),
            (None, Some((_, pages))) => (pages.bytes(), pages.is_complete()),
            (None, None) => (self.bytes, true),
        };
        if complete {
            self.bytes
        } else if self.as_a_whole {
            0
        } else {
            bytes.min(self.bytes)
        }
    }

    /// Returns the number of pages that the input occupies in the core's buffer (arrived or granted a credit, and not
    /// consumed), and whether all of its pages have been granted a credit.
    pub(super) fn holds(&self) -> (usize, bool) {
        self.core
            .as_ref()
            .map_or((0, true), |core| (core.credited - core.taken, core.credited == core.pages.ends.len()))
    }

    /// Grants credits to further pages and returns their number. A page must lie within the read-ahead, of which the
    /// task before this one occupies `held` pages; if the input passes DRAM, the page must have arrived there.
    pub(super) fn credits(&mut self, rules: &FeedRules, held: usize) -> u64 {
        let in_dram = self.dram.as_ref().map_or(
            u64::MAX,
            |(_, pages)| {
                if pages.is_complete() { u64::MAX } else { pages.bytes() }
            },
        );
        let Some(core) = &mut self.core else { return 0 };
        let ahead = if self.as_a_whole { usize::MAX } else { core.taken + rules.read_ahead.saturating_sub(held) };
        let may = ahead.min(core.pages.until(in_dram)).min(core.pages.ends.len());
        let more = may.saturating_sub(core.credited);
        core.credited += more;
        more as u64
    }

    /// Returns the output that the input is connected to, with offset and bytes in that output of each of the last
    /// `pages` pages that were granted credits; `None` if it is connected to none.
    pub(super) fn connected(&self, pages: u64) -> Option<(StageOutput, Vec<(u64, u64)>)> {
        let ((of, from), core) = (self.source?, self.core.as_ref()?);
        let range = |page: usize| {
            let begin = page.checked_sub(1).map_or(0, |before| core.pages.ends[before]);
            (from + begin, core.pages.ends[page] - begin)
        };
        Some((of, (core.credited - pages as usize..core.credited).map(range).collect()))
    }

    /// Whether the input's buffer can hold all bytes from the page that the core works on up to offset `until`.
    pub(super) fn reaches(&self, until: u64, rules: &FeedRules) -> bool {
        self.as_a_whole
            || self.core.as_ref().is_none_or(|core| core.pages.covering(until) <= core.taken + rules.read_ahead)
    }
}

/// Returns the part of a trace that consists of the blocks from index `first` up to, and without, `end`.
fn share(trace: &FlashTrace, first: usize, end: usize) -> FlashTrace {
    let from = first.checked_sub(1).map_or(0, |before| trace.blocks[before].ops_end);
    let to = end.checked_sub(1).map_or(from, |last| trace.blocks[last].ops_end).max(from);
    let own = |block: &BlockOps| BlockOps { ops_end: block.ops_end - from, ..*block };
    FlashTrace {
        ops: trace.ops[from..to].to_vec(),
        blocks: trace.blocks[first..end].iter().map(own).collect(),
        ..FlashTrace::default()
    }
}

/// Returns the arrivals of an input none of whose bytes may be read before the last of its blocks has arrived.
fn mixed(stored: &FlashTrace, bytes: u64) -> PageArrivals {
    let mut pages = PageArrivals::new(stored.blocks.iter().map(|_| 0));
    if let Some(last) = pages.ends.last_mut() {
        *last = bytes;
    }
    pages
}

/// Returns the trace with one block for each page; `None` if its pages are not in the order of the stream.
fn in_stream_order(stored: &FlashTrace, page_bytes: u64) -> Option<FlashTrace> {
    let (mut ops, mut blocks, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut from = 0;
    for block in &stored.blocks {
        let all = &stored.ops[from..block.ops_end];
        from = block.ops_end;
        // The out-of-band records of segments are read in addition to the pages.
        others.extend(all.iter().filter(|op| op.cause == OpCause::Map).copied());
        let own: Vec<ExtentOp> = all.iter().filter(|op| op.cause != OpCause::Map).copied().collect();
        if block.runs > 1 || own.iter().any(|op| op.op != OpKind::Read) {
            return None;
        }
        let pages: u64 = own.iter().map(|op| u64::from(op.pages)).sum();
        if pages == 0 {
            // Fill, which is not stored, arrives at once.
            blocks.push(BlockOps { ops_end: ops.len(), runs: 0, bytes: block.bytes });
            continue;
        }
        let last = u64::from(own.last()?.last_bytes);
        let full = pages.saturating_sub(2) * page_bytes;
        let first = if pages == 1 { block.bytes } else { block.bytes.checked_sub(full + last)? };
        if first == 0 || first > page_bytes {
            return None;
        }
        let mut number = 0;
        for op in &own {
            for page in 0..op.pages {
                number += 1;
                let bytes = match number {
                    1 => first,
                    n if n == pages => last,
                    _ => page_bytes,
                };
                let at = nandarray::file_format::Ppa(op.first.0 + u64::from(page));
                let last_bytes = if number == pages { op.last_bytes } else { page_bytes as u32 };
                ops.push(ExtentOp { first: at, pages: 1, last_bytes, ..*op });
                blocks.push(BlockOps { ops_end: ops.len(), runs: u64::from(number == 1), bytes });
            }
        }
    }
    ops.extend(others);
    Some(FlashTrace { ops, blocks, ..FlashTrace::default() })
}

/// Returns a trace of `bytes` bytes in pages of `page_bytes`, without flash operations, since the bytes are in DRAM.
fn cut(bytes: u64, page_bytes: u64) -> FlashTrace {
    let page = |n: u64| BlockOps { ops_end: 0, runs: 0, bytes: page_bytes.min(bytes - n * page_bytes) };
    FlashTrace { blocks: (0..bytes.div_ceil(page_bytes)).map(page).collect(), ..FlashTrace::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: u64, pages: u32, last_bytes: u32) -> ExtentOp {
        let first = nandarray::file_format::Ppa(first);
        ExtentOp { op: OpKind::Read, cause: OpCause::Host, first, pages, last_bytes }
    }

    fn rules(from: InputPath) -> FeedRules {
        FeedRules { from, streams: true, page_bytes: 4096, read_ahead: 2 }
    }

    #[test]
    fn a_block_in_order_is_cut_into_its_pages() {
        let blocks = vec![BlockOps { ops_end: 2, runs: 1, bytes: 96 + 4096 + 4096 + 100 }];
        let trace = FlashTrace { ops: vec![read(7, 2, 4096), read(40, 2, 100)], blocks, ..FlashTrace::default() };
        let pages = in_stream_order(&trace, 4096).unwrap();
        assert_eq!(pages.blocks.iter().map(|b| b.bytes).collect::<Vec<_>>(), [96, 4096, 4096, 100]);
        assert_eq!(pages.ops.iter().map(|op| op.first.0).collect::<Vec<_>>(), [7, 8, 40, 41]);
        let mut runs = trace.clone();
        runs.blocks[0].runs = 3;
        assert!(in_stream_order(&runs, 4096).is_none(), "elements that lie mixed");
    }

    #[test]
    fn credits_follow_what_was_taken() {
        let blocks = vec![BlockOps { ops_end: 1, runs: 1, bytes: 5 * 4096 }];
        let trace = FlashTrace { ops: vec![read(0, 5, 4096)], blocks, ..FlashTrace::default() };
        let rules = rules(InputPath::Stream);
        let mut all = InputFeed::of(&rules, &[InputLocation::Stored(5 * 4096)], &trace);
        let (mut feed, legs) = all.pop().unwrap();
        assert!(matches!(legs[..], [Leg::FlashToCore(_)]));
        assert_eq!((feed.credits(&rules, 1), feed.holds(), feed.available()), (1, (1, false), 0));
        assert_eq!((feed.credits(&rules, 0), feed.credits(&rules, 0), feed.available()), (1, 0, 0));
        let job = SpaceJobId::for_test(1);
        feed.set_core_job(job);
        feed.arrives(job, 1);
        assert_eq!(feed.available(), 0, "page 0 is not there");
        feed.arrives(job, 0);
        assert_eq!(feed.available(), 8192);
        feed.taken(4096);
        assert_eq!((feed.credits(&rules, 0), feed.holds()), (1, (2, false)));
        assert_eq!((feed.reaches(3 * 4096, &rules), feed.reaches(3 * 4096 + 1, &rules)), (true, false));
    }

    #[test]
    fn what_lies_in_dram_is_fed_from_there() {
        let rules = rules(InputPath::Stream);
        let inputs = [InputLocation::Host(10_000), InputLocation::Here(100)];
        let mut all = InputFeed::of(&rules, &inputs, &FlashTrace::default());
        let (mut here, legs) = all.pop().unwrap();
        assert!(matches!(legs[..], [Leg::DramToCore(_)]));
        assert_eq!(here.credits(&rules, 0), 1);
        let (mut host, legs) = all.pop().unwrap();
        assert!(matches!(legs[..], [Leg::OverLink(10_000), Leg::DramToCore(_)]));
        assert_eq!(host.credits(&rules, 0), 0, "it is on the link");
        host.set_dram_job(SpaceJobId::for_test(1));
        host.ends(SpaceJobId::for_test(1));
        assert_eq!(host.credits(&rules, 0), 2);
        let mut rules = rules;
        (rules.from, rules.streams) = (InputPath::Dram, false);
        let (window, legs) = InputFeed::of(&rules, &[InputLocation::Here(100)], &FlashTrace::default()).pop().unwrap();
        assert!(legs.is_empty() && window.available() == 100, "a window in DRAM is there");
    }
    /// Blocks of random pages: cut into pages they name the same pages in the same order, with the same bytes, and each
    /// page has no more than a page's.
    #[test]
    fn pages_of_blocks_in_order_are_the_pages_of_the_trace() {
        let mut in_order = 0;
        for seed in 0..400 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let page = 4096u64;
            let (mut ops, mut blocks, mut places) = (Vec::new(), Vec::new(), 0);
            for _ in 0..chance.u32(1..5) {
                let extents: Vec<u32> = (0..chance.u32(0..4)).map(|_| chance.u32(1..6)).collect();
                let pages: u32 = extents.iter().sum();
                let last = chance.u32(1..=4096);
                for (n, &extent) in extents.iter().enumerate() {
                    let last_bytes = if n + 1 == extents.len() { last } else { 4096 };
                    ops.push(read(places, extent, last_bytes));
                    places += u64::from(extent) + chance.u64(1..9);
                    if chance.u8(0..6) == 0 {
                        ops.push(ExtentOp { cause: OpCause::Map, ..read(1 << 20, 1, 4096) });
                    }
                }
                let first = chance.u64(1..=page);
                let bytes = match pages {
                    0 => chance.u64(1..9_000),
                    1 => u64::from(last),
                    n => first + u64::from(n - 2) * page + u64::from(last),
                };
                let runs = if chance.u8(0..8) == 0 { 2 } else { 1 };
                blocks.push(BlockOps { ops_end: ops.len(), runs, bytes });
            }
            let trace = FlashTrace { ops, blocks, ..FlashTrace::default() };
            let found = in_stream_order(&trace, page);
            assert_eq!(found.is_none(), trace.blocks.iter().any(|block| block.runs > 1), "seed {seed}");
            let Some(found) = found else { continue };
            in_order += 1;
            let sum = |blocks: &[BlockOps]| blocks.iter().map(|block| block.bytes).sum::<u64>();
            assert_eq!(sum(&found.blocks), sum(&trace.blocks), "seed {seed}");
            let pages = |trace: &FlashTrace, cause| -> Vec<u64> {
                let own = trace.ops.iter().filter(|op| op.cause == cause);
                own.flat_map(|op| (0..u64::from(op.pages)).map(|n| op.first.0 + n)).collect()
            };
            for cause in [OpCause::Host, OpCause::Map] {
                assert_eq!(pages(&found, cause), pages(&trace, cause), "seed {seed}, {cause:?}");
            }
            let mut from = 0;
            for block in &found.blocks {
                assert!(block.ops_end - from <= 1, "seed {seed}: {block:?} has more than a page");
                assert!(block.ops_end == from || block.bytes <= page, "seed {seed}: {block:?}");
                from = block.ops_end;
            }
        }
        assert!(in_order > 40, "{in_order} traces are in order");
    }

    /// An input that is read page by page, with pages that arrive in any order: the core never has more pages than the
    /// read-ahead, sees a growing prefix of its bytes, and in the end all of them.
    #[test]
    fn pages_come_within_the_read_ahead_and_in_order() {
        for seed in 0..200 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (bytes, read_ahead) = (chance.u64(1..60_000), chance.usize(1..6));
            let rules = FeedRules { read_ahead, ..rules(InputPath::Stream) };
            let mut all = InputFeed::of(&rules, &[InputLocation::Here(bytes)], &FlashTrace::default());
            let (mut feed, _) = all.pop().unwrap();
            let job = SpaceJobId::for_test(seed);
            feed.set_core_job(job);
            let pages = bytes.div_ceil(4096) as usize;
            let (mut credited, mut there, mut read) = (0usize, vec![false; pages], 0u64);
            for step in 0..2_000 {
                let context = format!("seed {seed}, step {step}");
                credited += feed.credits(&rules, 0) as usize;
                assert!(credited <= pages && credited <= (read / 4096) as usize + read_ahead, "{context}");
                assert_eq!(feed.holds(), (credited - (read / 4096) as usize, credited == pages), "{context}");
                let on_the_way: Vec<usize> = (0..credited).filter(|&page| !there[page]).collect();
                if let Some(&page) = chance.choice(&on_the_way) {
                    feed.arrives(job, page);
                    there[page] = true;
                }
                let prefix = there.iter().take_while(|&&there| there).count() as u64;
                let available = (prefix * 4096).min(bytes);
                assert_eq!(feed.available(), available, "{context}");
                if available > read && chance.bool() {
                    read += chance.u64(1..=available - read);
                    feed.taken(read);
                }
                if read == bytes {
                    break;
                }
            }
            assert_eq!(read, bytes, "seed {seed}");
        }
    }
}
