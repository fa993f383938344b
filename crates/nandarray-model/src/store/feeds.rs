//! Inputs of a task on their way to a timed core: pages in the order of the stream, credits for them, and how far they
//! have arrived.
//!
//! An input goes one of two ways. Pages of a stored input whose order is that of the stream may go from their channels
//! to the core, past DRAM. All others arrive in DRAM, where a core with caches reads them; one with stream buffers gets
//! them from there. Nothing here knows time: the executor passes on what the machine reports.

use nandarray_runtime::InputLocation;

use super::connections::StageOutput;
use crate::describe::InputFrom;
use crate::flash::{OpCause, OpKind};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace};
use crate::machine::SpaceJobId;

/// The pages of an input, by the bytes of each in the order of the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct PageArrivals {
    /// End of each page in the stream.
    ends: Vec<u64>,
    there: Vec<bool>,
    /// Number of pages at the beginning that are there.
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

    /// Bytes at the beginning that are there.
    fn bytes(&self) -> u64 {
        self.prefix.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Number of pages that end at or before a byte.
    fn until(&self, byte: u64) -> usize {
        self.ends.partition_point(|&end| end <= byte)
    }

    /// Number of pages that hold the bytes before this one.
    fn covering(&self, byte: u64) -> usize {
        (self.ends.partition_point(|&end| end < byte) + 1).min(self.ends.len())
    }
}

/// Pages on the last leg to a stream buffer, by credits.
#[derive(Clone, Debug)]
struct PagesToCore {
    job: Option<SpaceJobId>,
    pages: PageArrivals,
    /// Pages that the core has taken.
    taken: usize,
    /// Pages that have a credit.
    credited: usize,
}

/// An input of a task.
#[derive(Clone, Debug)]
pub(super) struct InputFeed {
    /// All of its bytes.
    pub(super) bytes: u64,
    /// Its way into DRAM, if it takes that.
    dram: Option<(Option<SpaceJobId>, PageArrivals)>,
    /// Its way into the core's buffers, if it takes that.
    core: Option<PagesToCore>,
    /// Whether the core gets it as a whole, when all of it is there.
    as_a_whole: bool,
    /// The output of another program that it is connected to, and the position of its first byte in that.
    source: Option<(StageOutput, u64)>,
}

/// A part of the way of an input, which is a job of the machine.
#[derive(Clone, Debug)]
pub(super) enum Leg {
    /// Blocks of the flash into DRAM.
    IntoDram(FlashTrace),
    /// The caller's bytes over the link, into DRAM.
    OverLink(u64),
    /// Pages of the flash to the core.
    FlashToCore(FlashTrace),
    /// Pages in DRAM to the core.
    DramToCore(FlashTrace),
    /// Pages in the output buffers of other cores to the core.
    CoreToCore(FlashTrace),
}

/// The rules by which inputs reach a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedRules {
    pub(super) from: InputFrom,
    /// Whether the program has streams, not windows.
    pub(super) streams: bool,
    pub(super) page_bytes: u64,
    pub(super) read_ahead: usize,
}

impl InputFeed {
    /// The feeds of a task's inputs and the legs of each, from what the engine has read for them.
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
        let as_a_whole = rules.from == InputFrom::PingPong;
        let direct = rules.from != InputFrom::Dram;
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
                // Blocks whose elements lie mixed in the stream have arrived when the last of them has.
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

    /// The machine's job of a leg into DRAM.
    pub(super) fn set_dram_job(&mut self, job: SpaceJobId) {
        self.dram.as_mut().expect("an input that goes through DRAM").0 = Some(job);
    }

    /// The machine's job of the last leg.
    pub(super) fn set_core_job(&mut self, job: SpaceJobId) {
        self.core.as_mut().expect("an input that goes to a core").job = Some(job);
    }

    /// The job whose pages go by credits.
    pub(super) fn core_job(&self) -> Option<SpaceJobId> {
        self.core.as_ref()?.job
    }

    /// A page of one of its jobs has arrived.
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

    /// A job of it into DRAM is done: all is there, also what is stored nowhere.
    pub(super) fn ends(&mut self, job: SpaceJobId) {
        if let Some((_, pages)) = self.dram.as_mut().filter(|(own, _)| *own == Some(job)) {
            pages.there.fill(true);
            pages.prefix = pages.ends.len();
        }
    }

    /// Bytes of the pages that the core has taken.
    pub(super) fn taken_bytes(&self) -> u64 {
        let taken = self.core.as_ref().and_then(|core| Some(core.pages.ends[core.taken.checked_sub(1)?]));
        taken.unwrap_or(0)
    }

    /// The core has taken this number of bytes.
    pub(super) fn taken(&mut self, bytes: u64) {
        if let Some(core) = &mut self.core {
            core.taken = core.pages.until(bytes);
        }
    }

    /// Bytes at its beginning that the core can have.
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

    /// Pages of a buffer that it holds or waits for, and whether all of its pages have their credits.
    pub(super) fn holds(&self) -> (usize, bool) {
        self.core
            .as_ref()
            .map_or((0, true), |core| (core.credited - core.taken, core.credited == core.pages.ends.len()))
    }

    /// Credits that its last leg may have now and has not got: of what is in DRAM, and within the read-ahead, of which
    /// the task before it holds this number of pages.
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

    /// The output that it is connected to, and positions and bytes in that of the last `pages` pages that have credits.
    pub(super) fn connected(&self, pages: u64) -> Option<(StageOutput, Vec<(u64, u64)>)> {
        let ((of, from), core) = (self.source?, self.core.as_ref()?);
        let range = |page: usize| {
            let begin = page.checked_sub(1).map_or(0, |before| core.pages.ends[before]);
            (from + begin, core.pages.ends[page] - begin)
        };
        Some((of, (core.credited - pages as usize..core.credited).map(range).collect()))
    }

    /// Whether its buffer can hold all bytes from the page that the core works on to this one.
    pub(super) fn reaches(&self, until: u64, rules: &FeedRules) -> bool {
        self.as_a_whole
            || self.core.as_ref().is_none_or(|core| core.pages.covering(until) <= core.taken + rules.read_ahead)
    }
}

/// The operations of some of a trace's blocks.
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

/// One page of blocks that arrives with the last of them.
fn mixed(stored: &FlashTrace, bytes: u64) -> PageArrivals {
    let mut pages = PageArrivals::new(stored.blocks.iter().map(|_| 0));
    if let Some(last) = pages.ends.last_mut() {
        *last = bytes;
    }
    pages
}

/// The same trace with a block for each page, if the order of its pages is that of the stream.
fn in_stream_order(stored: &FlashTrace, page_bytes: u64) -> Option<FlashTrace> {
    let (mut ops, mut blocks, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut from = 0;
    for block in &stored.blocks {
        let all = &stored.ops[from..block.ops_end];
        from = block.ops_end;
        // Records of segments are read beside the pages.
        others.extend(all.iter().filter(|op| op.cause == OpCause::Map).copied());
        let own: Vec<ExtentOp> = all.iter().filter(|op| op.cause != OpCause::Map).copied().collect();
        if block.runs > 1 || own.iter().any(|op| op.op != OpKind::Read) {
            return None;
        }
        let pages: u64 = own.iter().map(|op| u64::from(op.pages)).sum();
        if pages == 0 {
            // Bytes that are stored nowhere arrive at once.
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

/// The pages of a number of bytes, without operations: they are in DRAM.
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

    fn rules(from: InputFrom) -> FeedRules {
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
        let rules = rules(InputFrom::Stream);
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
        let rules = rules(InputFrom::Stream);
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
        (rules.from, rules.streams) = (InputFrom::Dram, false);
        let (window, legs) = InputFeed::of(&rules, &[InputLocation::Here(100)], &FlashTrace::default()).pop().unwrap();
        assert!(legs.is_empty() && window.available() == 100, "a window in DRAM is there");
    }
}
