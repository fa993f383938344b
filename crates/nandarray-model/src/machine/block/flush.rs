//! Flushes. A flush waits until the write cache has written its content of that moment, then until the changed pages
//! of a cached map and all programs that had begun by then have ended ([`super::programs::Epochs`]).

use std::collections::VecDeque;

use super::RequestStatus;
use super::cached::Cached;
use super::programs::PagePrograms;
use crate::ftl::cache::FlushTicket;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// Stage of a flush.
#[derive(Clone, Copy, Debug)]
enum FlushStage {
    /// The cache writes the pages that were dirty when the flush arrived; `None` without a cache.
    Draining(Option<FlushTicket>),
    /// The flush waits for all programs that were issued in this epoch (the time between two flushes) or earlier.
    Programming(u64),
}

#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    io: u32,
    stage: FlushStage,
    status: RequestStatus,
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    /// Number of its command on the link.
    pub(super) io: u32,
    /// Outcome of the flush.
    pub(super) status: RequestStatus,
}

/// Flushes in flight, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    waiting: VecDeque<PendingFlush>,
}

impl Flushes {
    /// Begins a flush; `ticket` identifies the dirty pages of the cache, and is `None` without a cache.
    pub(super) fn begin(&mut self, io: u32, ticket: Option<FlushTicket>) {
        assert!(self.waiting.iter().all(|flush| flush.io != io), "flush {io} begins twice");
        self.waiting.push_back(PendingFlush {
            io,
            stage: FlushStage::Draining(ticket),
            status: RequestStatus::Success,
        });
    }

    /// Whether a flush waits for the cache to write its dirty pages.
    pub(super) fn drains(&self) -> bool {
        self.waiting.back().is_some_and(|flush| matches!(flush.stage, FlushStage::Draining(_)))
    }

    /// Advances the oldest flush; returns it once it has ended. Call again for the next one until `None`.
    pub(super) fn go_on(
        &mut self,
        programs: &mut PagePrograms,
        cached: Option<&Cached>,
        fabric: &mut Fabric,
        now: Ps,
    ) -> Option<Flushed> {
        loop {
            let flush = self.waiting.front_mut()?;
            match flush.stage {
                FlushStage::Draining(ticket) => {
                    if let (Some(cached), Some(ticket)) = (cached, ticket) {
                        if !cached.cache.is_flushed(ticket) {
                            if !cached.is_stuck() {
                                return None;
                            }
                            flush.status = RequestStatus::NoSpace;
                        }
                    }
                    programs.write_map(fabric, now);
                    if programs.has_unplaced() {
                        flush.status = RequestStatus::NoSpace;
                    }
                    flush.stage = FlushStage::Programming(programs.epochs.next());
                }
                FlushStage::Programming(epoch) => {
                    if !programs.epochs.is_over(epoch) {
                        return None;
                    }
                    let PendingFlush { io, status, .. } = self.waiting.pop_front().expect("it was there");
                    return Some(Flushed { io, status });
                }
            }
        }
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.waiting.is_empty(), "a flush was left in flight");
    }
}
