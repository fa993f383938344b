//! The store's pages in the flash: issues the operations of flash traces, counts programs, erases segments in order,
//! and moves the pages of the store's reclaim in chunks.
//!
//! A program into a segment that is being erased waits for the erase. An erase of a segment whose previous erase has
//! not ended waits until that erase has ended and the programs issued in between have been issued. This file knows no
//! commands: it returns the job whose chunk has ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::SpaceWaiter;
use crate::flash::{OpCause, OpKind, PageAddress};
use crate::flash_trace::{ExtentOp, StoreLayout};
use crate::machine::clients::Waiter;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// A program or erase that waits for an erase of its segment.
#[derive(Clone, Copy, Debug)]
struct HeldOp {
    op: OpKind,
    cause: OpCause,
    place: PageAddress,
    bytes: u32,
    wait: SpaceWaiter,
}

/// A chunk of reclaim: pages that are read, then programmed elsewhere, in the background of a command.
#[derive(Debug)]
struct ReclaimChunk {
    job: u32,
    /// Age of the job: its number in order of submission.
    age: u64,
    ops: Vec<ExtentOp>,
    left: u32,
    programming: bool,
}

/// Progress of a chunk by the end of one of its operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkProgress {
    /// The job whose chunk has ended; `None` if the chunk has further operations.
    pub(super) over: Option<u32>,
    /// Age of the job (its number in order of submission) if the operation was a program; `None` otherwise.
    pub(super) programmed: Option<u64>,
}

/// The flash of a device as its store uses it.
#[derive(Debug)]
pub(super) struct StoreFlash {
    layout: StoreLayout,
    /// Number of programs in flight, by the age of their job (its number in order of submission).
    programs: BTreeMap<u64, u64>,
    /// Number of blocks still to be erased, by segment that is being erased.
    erasing: BTreeMap<u32, u32>,
    held: Vec<HeldOp>,
    chunks: slab::Slab<ReclaimChunk>,
}

impl StoreFlash {
    pub(super) fn new(layout: StoreLayout) -> Self {
        Self {
            layout,
            programs: BTreeMap::new(),
            erasing: BTreeMap::new(),
            held: Vec::new(),
            chunks: slab::Slab::new(),
        }
    }

    /// Returns the bytes of a page of the store.
    pub(super) fn page_bytes(&self) -> u32 {
        self.layout.store().page_bytes
    }

    /// Returns the channel of an operation's first page.
    pub(super) fn channel(&self, fabric: &Fabric, op: &ExtentOp) -> u32 {
        fabric.description.geometry.channel_of(self.layout.place(op.first).die)
    }

    /// Whether neither the job of this age (number in order of submission) nor an older job has a program in flight.
    pub(super) fn is_settled(&self, age: u64) -> bool {
        self.programs.first_key_value().is_none_or(|(&oldest, _)| oldest > age)
    }

    /// Issues reads and programs for the job of this age; `wait` is notified of the end of each.
    pub(super) fn issue(&mut self, fabric: &mut Fabric, now: Ps, age: u64, ops: &[ExtentOp], wait: SpaceWaiter) {
        let page = self.page_bytes();
        for extent in ops {
            assert!(
                extent.pages > 0 && extent.last_bytes <= page && extent.op != OpKind::Erase,
                "of job {age}: {extent:?}"
            );
            for i in 0..extent.pages {
                let place = self.layout.place(nandarray::file_format::Ppa(extent.first.0 + u64::from(i)));
                let bytes = if i + 1 == extent.pages { extent.last_bytes } else { page };
                if extent.op == OpKind::Program {
                    *self.programs.entry(age).or_default() += 1;
                    if self.erasing.contains_key(&place.block) {
                        self.held.push(HeldOp { op: extent.op, cause: extent.cause, place, bytes, wait });
                        continue;
                    }
                }
                fabric.issue(now, extent.op, extent.cause, place, bytes, Waiter::SpaceClient(wait));
            }
        }
    }

    /// Counts the end of a program of the job of this age; returns whether it was the job's last one in flight.
    pub(super) fn program_ended(&mut self, age: u64) -> bool {
        let left = self.programs.get_mut(&age).expect("a program that ends was counted");
        assert!(*left > 0, "a program of job {age} ends that was not issued");
        *left -= 1;
        let last = *left == 0;
        if last {
            self.programs.remove(&age);
        }
        last
    }

    /// Starts a chunk of a job: its reads, then its programs. Returns `true` if the chunk has neither, and so has
    /// ended.
    pub(super) fn start_chunk(
        &mut self,
        fabric: &mut Fabric,
        now: Ps,
        (job, age): (u32, u64),
        ops: Vec<ExtentOp>,
    ) -> bool {
        let chunk = self.chunks.insert(ReclaimChunk { job, age, ops, left: 0, programming: false }) as u32;
        self.chunk_next(fabric, now, chunk, OpKind::Read).is_some()
    }

    fn chunk_next(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32, op: OpKind) -> Option<u32> {
        let c = &mut self.chunks[chunk as usize];
        c.programming = op == OpKind::Program;
        let ops: Vec<ExtentOp> = c.ops.iter().filter(|s| s.op == op).copied().collect();
        c.left = ops.iter().map(|s| s.pages).sum();
        if c.left == 0 {
            return self.chunk_stage_over(fabric, now, chunk);
        }
        let age = c.age;
        self.issue(fabric, now, age, &ops, SpaceWaiter::Chunk(chunk));
        None
    }

    fn chunk_stage_over(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32) -> Option<u32> {
        assert_eq!(self.chunks[chunk as usize].left, 0, "a stage of a chunk is over");
        if !self.chunks[chunk as usize].programming {
            return self.chunk_next(fabric, now, chunk, OpKind::Program);
        }
        Some(self.chunks.remove(chunk as usize).job)
    }

    /// Handles the end of a chunk's read or program; after the last read, issues the programs.
    pub(super) fn chunk_operation_ended(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32) -> ChunkProgress {
        let c = &mut self.chunks[chunk as usize];
        assert!(c.left > 0, "a chunk of job {} has no operation in flight", c.age);
        c.left -= 1;
        let (stage_over, programmed) = (c.left == 0, c.programming.then_some(c.age));
        let over = if stage_over { self.chunk_stage_over(fabric, now, chunk) } else { None };
        ChunkProgress { over, programmed }
    }

    /// Erases a segment's blocks. A nearly full store may free a segment again before its previous erase has ended in
    /// modelled time: the new erase then waits for the previous one and for the programs issued in between.
    pub(super) fn erase(&mut self, fabric: &mut Fabric, now: Ps, segment: u32) {
        let waits = match self.erasing.entry(segment) {
            Entry::Occupied(_) => true,
            Entry::Vacant(free) => {
                free.insert(self.layout.planes());
                false
            }
        };
        for lane in 0..self.layout.planes() {
            let (place, wait) = (self.layout.block(segment, lane), SpaceWaiter::Erase(segment));
            if waits {
                self.held.push(HeldOp { op: OpKind::Erase, cause: OpCause::Gc, place, bytes: 0, wait });
            } else {
                fabric.issue(now, OpKind::Erase, OpCause::Gc, place, 0, Waiter::SpaceClient(wait));
            }
        }
    }

    /// Handles the end of a block's erase; after the segment's last block, issues the operations that waited for it.
    pub(super) fn erase_ended(&mut self, fabric: &mut Fabric, now: Ps, segment: u32) {
        let left = self.erasing.get_mut(&segment).expect("an erase of a segment that is being erased");
        assert!((1..=self.layout.planes()).contains(left), "{left} blocks of segment {segment} are still to be erased");
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.erasing.remove(&segment);
        // Programs that waited are issued first; the segment's next erase, if there is one, holds back the operations
        // that came after it.
        let planes = self.layout.planes();
        let mut erases = 0;
        for held in std::mem::take(&mut self.held) {
            let erase = held.op == OpKind::Erase;
            let goes = held.place.block == segment && if erase { erases < planes } else { erases == 0 };
            if !goes {
                self.held.push(held);
                continue;
            }
            erases += u32::from(erase);
            fabric.issue(now, held.op, held.cause, held.place, held.bytes, Waiter::SpaceClient(held.wait));
        }
        assert!(erases == 0 || erases == planes, "{erases} of {planes} blocks of segment {segment} are erased again");
        if erases > 0 {
            self.erasing.insert(segment, planes);
        }
    }
}
