//! The store's pages in the flash: issued by steps of a footprint, programs counted, segments erased in order, and what
//! reclaim of the store moved, chunk by chunk.
//!
//! A program into a segment that is being erased waits for the erase; an erase of a segment whose last erase has not
//! ended waits behind the programs that came in between. This file knows no commands: it returns whose chunk is over.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Wait;
use crate::flash::{OpCause, OpKind, PageAddress};
use crate::footprint::{Places, Step};
use crate::machine::clients::Waiting;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// An operation that waits for an erase.
#[derive(Clone, Copy, Debug)]
struct Held {
    op: OpKind,
    cause: OpCause,
    place: PageAddress,
    bytes: u32,
    wait: Wait,
}

/// Pages that are read, then programmed elsewhere, in the background of a command.
#[derive(Debug)]
struct Chunk {
    job: u32,
    /// The job's number among all: how old it is.
    age: u64,
    steps: Vec<Step>,
    left: u32,
    programming: bool,
}

/// An operation of a chunk that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkProgress {
    /// The job whose chunk is over with it.
    pub(super) over: Option<u32>,
    /// If it was a program: of a job of this age.
    pub(super) programmed: Option<u64>,
}

/// The flash as the store sees it.
#[derive(Debug)]
pub(super) struct StoreFlash {
    places: Places,
    /// Programs under way, by the age of their job.
    programs: BTreeMap<u64, u64>,
    /// Blocks of a segment that are still to be erased.
    erasing: BTreeMap<u32, u32>,
    held: Vec<Held>,
    chunks: slab::Slab<Chunk>,
}

impl StoreFlash {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            programs: BTreeMap::new(),
            erasing: BTreeMap::new(),
            held: Vec::new(),
            chunks: slab::Slab::new(),
        }
    }

    /// Bytes of a page of the store.
    pub(super) fn page_bytes(&self) -> u32 {
        self.places.store().page_bytes
    }

    /// Whether no program of this job or of an older one is on its way.
    pub(super) fn is_settled(&self, age: u64) -> bool {
        self.programs.first_key_value().is_none_or(|(&oldest, _)| oldest > age)
    }

    /// Reads or programs the pages of some steps of a job of this age.
    pub(super) fn issue(&mut self, fabric: &mut Fabric, now: Ps, age: u64, steps: &[Step], wait: Wait) {
        let page = self.page_bytes();
        for step in steps {
            for i in 0..step.pages {
                let place = self.places.place(nandarray::file_format::Ppa(step.first.0 + u64::from(i)));
                let bytes = if i + 1 == step.pages { step.last_bytes } else { page };
                if step.op == OpKind::Program {
                    *self.programs.entry(age).or_default() += 1;
                    if self.erasing.contains_key(&place.block) {
                        self.held.push(Held { op: step.op, cause: step.cause, place, bytes, wait });
                        continue;
                    }
                }
                fabric.issue(now, step.op, step.cause, place, bytes, Waiting::Spaces(wait));
            }
        }
    }

    /// A program of a job of this age has ended; `true` if it was the job's last one under way.
    pub(super) fn program_ended(&mut self, age: u64) -> bool {
        let left = self.programs.get_mut(&age).expect("a program that ends was counted");
        *left -= 1;
        let last = *left == 0;
        if last {
            self.programs.remove(&age);
        }
        last
    }

    /// Begins with a chunk of a job: its reads, then its programs. `true` if it is over at once, having neither.
    pub(super) fn start_chunk(
        &mut self,
        fabric: &mut Fabric,
        now: Ps,
        (job, age): (u32, u64),
        steps: Vec<Step>,
    ) -> bool {
        let chunk = self.chunks.insert(Chunk { job, age, steps, left: 0, programming: false }) as u32;
        self.chunk_next(fabric, now, chunk, OpKind::Read).is_some()
    }

    fn chunk_next(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32, op: OpKind) -> Option<u32> {
        let c = &mut self.chunks[chunk as usize];
        c.programming = op == OpKind::Program;
        let steps: Vec<Step> = c.steps.iter().filter(|s| s.op == op).copied().collect();
        c.left = steps.iter().map(|s| s.pages).sum();
        if c.left == 0 {
            return self.chunk_stage_over(fabric, now, chunk);
        }
        let age = c.age;
        self.issue(fabric, now, age, &steps, Wait::Chunk(chunk));
        None
    }

    fn chunk_stage_over(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32) -> Option<u32> {
        if !self.chunks[chunk as usize].programming {
            return self.chunk_next(fabric, now, chunk, OpKind::Program);
        }
        Some(self.chunks.remove(chunk as usize).job)
    }

    /// An operation of a chunk has ended.
    pub(super) fn chunk_operation_ended(&mut self, fabric: &mut Fabric, now: Ps, chunk: u32) -> ChunkProgress {
        let c = &mut self.chunks[chunk as usize];
        c.left -= 1;
        let (stage_over, programmed) = (c.left == 0, c.programming.then_some(c.age));
        let over = if stage_over { self.chunk_stage_over(fabric, now, chunk) } else { None };
        ChunkProgress { over, programmed }
    }

    /// Erases a segment's blocks. A nearly full store may free a segment again before its last erase has ended in
    /// modelled time: this erase then waits for that one, behind the programs that came in between.
    pub(super) fn erase(&mut self, fabric: &mut Fabric, now: Ps, segment: u32) {
        let waits = match self.erasing.entry(segment) {
            Entry::Occupied(_) => true,
            Entry::Vacant(free) => {
                free.insert(self.places.planes());
                false
            }
        };
        for lane in 0..self.places.planes() {
            let (place, wait) = (self.places.block(segment, lane), Wait::Erase(segment));
            if waits {
                self.held.push(Held { op: OpKind::Erase, cause: OpCause::Gc, place, bytes: 0, wait });
            } else {
                fabric.issue(now, OpKind::Erase, OpCause::Gc, place, 0, Waiting::Spaces(wait));
            }
        }
    }

    /// A block of a segment was erased; behind the last one goes what waited for that.
    pub(super) fn erase_ended(&mut self, fabric: &mut Fabric, now: Ps, segment: u32) {
        let left = self.erasing.get_mut(&segment).expect("an erase of a segment that is being erased");
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.erasing.remove(&segment);
        // Programs that waited go first; the next erase of the segment, if there is one, holds back what came behind
        // it.
        let planes = self.places.planes();
        let mut erases = 0;
        for held in std::mem::take(&mut self.held) {
            let erase = held.op == OpKind::Erase;
            let goes = held.place.block == segment && if erase { erases < planes } else { erases == 0 };
            if !goes {
                self.held.push(held);
                continue;
            }
            erases += u32::from(erase);
            fabric.issue(now, held.op, held.cause, held.place, held.bytes, Waiting::Spaces(held.wait));
        }
        assert!(erases == 0 || erases == planes, "{erases} of {planes} blocks of segment {segment} are erased again");
        if erases > 0 {
            self.erasing.insert(segment, planes);
        }
    }
}
