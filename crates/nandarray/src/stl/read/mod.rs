//! Reading: copies elements from building blocks to the caller's buffer, each byte once (NDS paper, section 4.4,
//! assembly).
//!
//! Every read has three stages. A *walk* ([`walk`]) goes through the building blocks of a plan. The bytes of each block
//! are *located* ([`locate`]): in pages that the medium shows in memory, in the write buffer, in no page (fill), or in
//! pages to be fetched; pages are verified the first time that they are read. A *mover* ([`mover`]) copies located
//! pieces while cache lines of later pieces are prefetched: block by block below 4 MiB, row by row above.
//!
//! Variants, each with the row of `python -m bench run` that it serves and its gain in its head comment (of build with
//! and build without, in turn: `docs/lab-notes/read-branches.md`): [`small`] runs the stages without a list of work;
//! [`points`] moves single elements; [`split`] cuts tasks of blocks whose pages are scattered; [`verify_copy`] verifies
//! and copies the new pages of a large read in turns. Media that are not memory-mapped, such as those under the
//! modelled clock, and coded blocks ([`coded`]) are read through a scratch block of the thread. [`lookup`]
//! ends before the third stage: it announces the pages of a read, or lends bytes in place.
//!
//! The caller holds the space's lock for the whole command, so that a read sees either all of a write or none of it.

mod coded;
mod locate;
mod lookup;
mod mover;
mod points;
mod small;
mod split;
mod verify_copy;
mod walk;

use std::cell::RefCell;
use std::ops::Range;

pub use self::locate::BlockContent;
use self::mover::Mover;
use self::walk::BlockWalk;
use super::copy::{Loop, copy, copy_streaming, fill, merge};
use super::index::Cursor;
use super::plan::{Plan, Task};
use super::prefetch::PagePrefetcher;
use super::space::{BlockShape, Inner, Space};
use super::units::UnitSet;
use super::work::{Work, Workers, run};
use crate::codec::CodecSpec;
use crate::error::Result;
use crate::ftl::Ftl;
use crate::sim::Probe;

/// Smallest size, in bytes, of a read that is assembled row by row and, if possible, streamed past the caches: twice
/// the size of a core's own cache.
pub(super) const LARGE_BYTES: u64 = 4 << 20;

/// Least number of tasks of a large read for one thread: while one task is copied, the lines of the next are
/// prefetched.
const LARGE_TASKS_MIN: u64 = 8;

/// Largest scratch buffer, in bytes, that a thread keeps between commands.
const SCRATCH_KEPT_BYTES: usize = 8 << 20;

/// The caller's buffer, as the address of element (0, 0, ...) of the selection.
#[derive(Clone, Copy, Debug)]
pub struct BufferMut(*mut u8);

impl BufferMut {
    /// Lends a buffer to one read command; `first` is the address of the selection's first element.
    ///
    /// # Safety
    /// Every element that the command's target reaches from here must be writable memory that nothing else uses until
    /// the command is done.
    pub unsafe fn from_raw(first: *mut u8) -> Self {
        Self(first)
    }

    /// Returns the address of the element at this byte offset from the first one.
    ///
    /// # Safety
    /// The offset must be in the command's target.
    unsafe fn at(&self, offset: isize) -> *mut u8 {
        // SAFETY: the caller's promise, and that of `from_raw`.
        unsafe { self.0.offset(offset) }
    }
}

// SAFETY: tasks of one command write disjoint elements, and the caller lends the buffer for the length of the command.
unsafe impl Send for BufferMut {}
// SAFETY: as above.
unsafe impl Sync for BufferMut {}

/// State of a thread that is kept from one block of a command to the next.
#[derive(Default)]
pub struct WorkerState<'a> {
    /// Whether the command reads [`LARGE_BYTES`] or more.
    large: bool,
    /// The path in the index to the block that was looked up last.
    pub(super) cursor: Cursor<'a>,
    /// The access units that the present task touches.
    pub(super) units: UnitSet,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PAYLOAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with scratch memory for a block, padded to whole units; the thread keeps the memory unless it is large.
pub fn with_scratch<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
    with_buffer(&SCRATCH, bytes, f)
}

/// Calls `f` with a second scratch buffer, for the payload of a coded block.
fn with_payload<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
    with_buffer(&PAYLOAD, bytes, f)
}

fn with_buffer<T>(
    buffer: &'static std::thread::LocalKey<RefCell<Vec<u8>>>,
    bytes: usize,
    f: impl FnOnce(&mut [u8]) -> T,
) -> T {
    // Taken out of the cell while in use, so a nested call gets a buffer of its own.
    let mut scratch = buffer.take();
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    let got = f(&mut scratch[..bytes]);
    if scratch.len() <= SCRATCH_KEPT_BYTES {
        buffer.set(scratch);
    }
    got
}

/// The reader of one space, whose lock the caller holds.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The flash management that holds the space's pages.
    pub ftl: &'a Ftl,
    /// The space that is read.
    pub space: &'a Space,
    /// State of the space, which the caller has locked.
    pub inner: &'a Inner,
    /// Whether the probe, if there is one, is notified of reads and moves.
    pub watched: bool,
}

impl<'a> Reader<'a> {
    fn probe(&self) -> Option<&'a dyn Probe> {
        if self.watched { self.ftl.probe() } else { None }
    }

    /// Notifies the probe that a task's elements were moved. Must follow the notifications of the task's page reads.
    fn report_moves<'t>(&self, task: impl FnOnce() -> Task<'t>) {
        if let Some(probe) = self.probe() {
            let (runs, bytes) = task().moves(self.space.shape.item_bytes);
            debug_assert!(runs > 0, "a task moves something");
            probe.moved(runs, bytes);
        }
    }

    /// Reads all elements of the work, on several threads if that is worth it; `predicted` is the work of commands that
    /// will probably follow.
    ///
    /// # Safety
    /// Every element that the work reaches in the buffer must be writable memory that nothing else uses meanwhile.
    pub unsafe fn read(
        &self,
        workers: &Workers,
        work: &Work,
        predicted: Option<&Work>,
        bytes: u64,
        out: BufferMut,
    ) -> Result<()> {
        let prefetcher = PagePrefetcher::new(self, work, predicted, bytes);
        let (item, large) = (self.space.shape.item_bytes, bytes >= LARGE_BYTES);
        let row_tasks = if large { work.row_tasks(item) } else { 1 };
        let least = if large { LARGE_TASKS_MIN } else { 1 };
        let cost = cost(&self.space.shape, self.space.spec(), work, bytes);
        // From far away this thread, which can be interrupted, waits for the bytes of some tasks after the other, while
        // those of the next are on their way.
        let together = prefetcher.together();
        let (mut from, mut waiting) = (0, WorkerState::default());
        while from < work.len() {
            let to = work.len().min(from.saturating_add(together));
            prefetcher.bring(from..to, &mut waiting)?;
            let cost = (u128::from(cost) * u128::from(to - from) / u128::from(work.len())) as u64;
            run(workers, to - from, cost, row_tasks, least, &|range, state: &mut WorkerState<'a>| {
                let range = from + range.start..from + range.end;
                state.large = large;
                let mut mover = if large { Mover::rows(item) } else { Mover::ring(item) };
                // SAFETY: the caller's promise about the buffer; the space's lock keeps the source bytes valid.
                unsafe {
                    match work {
                        Work::Plans { plans, ends } => {
                            let mut next = range.start;
                            while next < range.end {
                                let number = ends.partition_point(|&end| end <= next);
                                let (plan, end) = (&plans[number], ends[number].min(range.end));
                                let first = ends[number] - plan.tasks();
                                self.read_plan((plan, first), next..end, &prefetcher, state, out, &mut mover)?;
                                next = end;
                            }
                        }
                        Work::Points { .. } => self.read_points(work, range, &prefetcher, state, out, &mut mover)?,
                    }
                    mover.finish();
                }
                Ok(())
            })?;
            from = to;
        }
        Ok(())
    }

    /// Reads tasks of a plan. `tasks` are numbers within the command, and `first` is the number of the plan's first
    /// task.
    ///
    /// # Safety
    /// The tasks' elements in the buffer must be writable until the mover has finished.
    unsafe fn read_plan<'p>(
        &self,
        (plan, first): (&'p Plan, u64),
        tasks: Range<u64>,
        prefetcher: &PagePrefetcher<'a, '_>,
        state: &mut WorkerState<'a>,
        out: BufferMut,
        mover: &mut Mover<'p>,
    ) -> Result<()> {
        let (item, page) = (self.space.shape.item_bytes, self.space.shape.page);
        assert!(first <= tasks.start && tasks.end - first <= plan.tasks(), "tasks {tasks:?} of a plan from {first} on");
        let mut walk = BlockWalk::new(plan, tasks.start - first);
        // Whether the mover has the loops of the walk, and whether the last task was verified while it was copied.
        let (mut has_loops, mut verified) = (false, false);
        for index in tasks.clone() {
            prefetcher.advance(index, state);
            has_loops &= !walk.loops_changed;
            if verified && index + 1 < tasks.end {
                self.fault_in_next(&plan.task(index + 1 - first), state);
            }
            verified = false;
            let loops = (!has_loops).then(|| walk.loops());
            let content = self.content(&walk.at, &mut state.cursor);
            let mapped = self.mapped(&content, &walk.span(item));
            // SAFETY: the caller's promise about the buffer covers the task's elements.
            unsafe {
                if let Some(mapped) = mapped.filter(|mapped| self.is_verified(mapped.run)) {
                    if let Some(loops) = loops {
                        mover.set_loops(loops, plan.row);
                        has_loops = true;
                    }
                    mover.push(mapped.at(walk.in_block, page), out.at(walk.in_buffer));
                } else {
                    verified = self.read_task(&walk.task(), state, out, mover)?;
                    has_loops = false;
                }
            }
            self.report_moves(|| walk.task());
            walk.step();
        }
        Ok(())
    }

    /// Reads a task that is not one run of verified pages: pages not verified yet, fill, scattered pages, buffered
    /// units, coded blocks, media that are not memory-mapped. Returns `true` if its pages were verified while they were
    /// copied.
    ///
    /// # Safety
    /// The task's elements in the buffer must be writable until the mover has finished.
    unsafe fn read_task<'t>(
        &self,
        task: &Task<'t>,
        state: &mut WorkerState<'a>,
        out: BufferMut,
        mover: &mut Mover<'t>,
    ) -> Result<bool> {
        let shape = &self.space.shape;
        let content = self.content(&task.at, &mut state.cursor);
        // SAFETY: the caller's promise, here and below.
        let to = unsafe { out.at(task.in_buffer) };
        if let Some(mapped) = self.mapped(&content, &self.span(task)) {
            // SAFETY: as above.
            if mover.verifies_while_copying() && unsafe { self.verify_copy(task, &mapped, &mut state.units, out)? } {
                return Ok(true);
            }
            self.verify_task(task, &mapped, &mut state.units)?;
            // SAFETY: as above; the space's lock keeps the pages mapped.
            unsafe {
                mover.set_loops(task.loops.clone(), task.row);
                mover.push(mapped.at(task.in_block, shape.page), to);
            }
            return Ok(false);
        }
        if content.is_absent() {
            // SAFETY: as above.
            unsafe { fill(&task.loops, &shape.fill, to) };
            return Ok(false);
        }
        if self.space.coded() {
            // SAFETY: as above.
            unsafe { self.read_coded(task, &content, state, to)? };
            return Ok(false);
        }
        // SAFETY: as above.
        if unsafe { self.split(task, &content, to, mover)? } {
            return Ok(false);
        }
        self.touched(task, &mut state.units);
        debug_assert!(task.in_block < shape.bytes, "offset {} of a block of {}", task.in_block, shape.bytes);
        with_scratch(shape.units as usize * shape.page, |scratch| {
            for units in state.units.ranges() {
                self.load(&task.at, &content, units, scratch)?;
            }
            // SAFETY: the scratch is a whole block; the destination as above.
            unsafe { copy_task(task, shape.item_bytes, state.large, scratch[task.in_block..].as_ptr(), to) };
            Ok(false)
        })
    }

    /// Returns the range of bytes of the block from the task's first element (for lists, from the block's start) to the
    /// end of its last one.
    fn span(&self, task: &Task<'_>) -> Range<usize> {
        task.in_block..task.span(self.space.shape.item_bytes).end
    }
}

/// Estimates the bytes that a read of `bytes` bytes moves through a core, by which the work is distributed to threads:
/// coded blocks are decoded in whole frames, and an element without neighbours costs a cache line.
fn cost(shape: &BlockShape, spec: Option<&CodecSpec>, work: &Work, bytes: u64) -> u64 {
    if work.len() == 0 {
        return 0;
    }
    if let Some(spec) = spec {
        let span = work.task(0).span(shape.item_bytes).len().max(spec.frame_bytes()).min(shape.bytes);
        return bytes.max(work.len() * span as u64) * spec.weight();
    }
    let alone = match work.task(0).loops.last() {
        Some(&Loop::Affine { n, from, .. }) => n == 1 || from != shape.item_bytes as isize,
        _ => true,
    };
    if alone { bytes.max(bytes / shape.item_bytes as u64 * 64) } else { bytes }
}

/// Copies a task's elements from a buffer with the whole block, past the caches if `large`.
///
/// # Safety
/// `from` must be readable and `to` writable along the task's loops.
unsafe fn copy_task(task: &Task<'_>, item_bytes: usize, large: bool, from: *const u8, to: *mut u8) {
    let mut loops = task.loops.clone();
    let (left, run) = merge(&mut loops, item_bytes);
    // SAFETY: the caller's promise.
    unsafe { if large { copy_streaming(&loops[..left], run, from, to) } else { copy(&loops[..left], run, from, to) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Framing;
    use crate::stl::plan::{Axis, Plan, Selection};

    #[test]
    fn a_read_costs_the_bytes_that_it_moves_through_a_core() {
        let shape = BlockShape {
            block: [128, 128][..].into(),
            strides: [1024, 8][..].into(),
            item_bytes: 8,
            bytes: 128 << 10,
            units: 32,
            page: 4096,
            fill: vec![0; 8],
        };
        let work = |rows: u64, columns: Axis| {
            let axes = vec![Axis::Range { start: 0, step: 1, count: rows }, columns];
            let selection = Selection { axes, strides: vec![1024, 8], offset: 0 };
            Work::plans(vec![Plan::new(&selection, &shape.block, 8)])
        };
        let range = |start, step, count| Axis::Range { start, step, count };
        let plain = |work: Work, bytes| cost(&shape, None, &work, bytes);
        assert_eq!(plain(work(10, range(0, 1, 50)), 4000), 4000);
        assert_eq!(plain(work(10, range(0, 2, 50)), 4000), 500 * 64, "a cache line for each");
        assert_eq!(plain(work(10, range(7, 1, 1)), 80), 10 * 64, "a column");
        assert_eq!(plain(work(10, Axis::List(vec![3, 9])), 160), 20 * 64);
        assert_eq!(plain(Work::plans(vec![]), 0), 0);
        let points = Work::points(&[3, 4, 200, 9], &[256, 256], &shape.block, &shape.strides, 8).unwrap();
        assert_eq!(plain(points, 16), 2 * 64);

        let compression = Some("zstd:1".parse().unwrap());
        let (element_bytes, block_bytes) = (8, 128 << 10);
        let spec = CodecSpec { compression, encrypted: false, element_bytes, block_bytes, framing: Framing::V2 };
        let coded = |work: Work, bytes| cost(&shape, Some(&spec), &work, bytes) / spec.weight();
        assert_eq!(coded(work(1, range(0, 1, 50)), 400), 32 << 10, "a frame");
        assert_eq!(coded(work(100, range(0, 1, 50)), 40_000), 99 * 1024 + 400, "the frames in which the rows lie");
        assert_eq!(coded(work(256, range(0, 1, 256)), 512 << 10), 512 << 10, "four whole blocks");
        assert_eq!(coded(work(256, range(127, 1, 2)), 4096), 4 * (127 * 1024 + 8), "a column of each of four blocks");
    }
}
