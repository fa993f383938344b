//! Flash traces: the flash operations that one command of the store needs, in order and by building block.
//!
//! A [`Recorder`] records how the first half of a command accesses the medium and calls the probe. The machine then
//! lets modelled time pass for the trace. The order is that of the engine with one thread, and depends only on the
//! commands.

mod layout;

pub use layout::StoreLayout;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::Geometry;
use nandarray::file_format::Ppa;
use nandarray::probe::{Probe, Purpose};
use parking_lot::Mutex;

use crate::flash::{OpCause, OpKind};

/// An operation on an extent of the store's flash: consecutive pages that are read or programmed, or a segment that is
/// erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentOp {
    /// Kind of the operation.
    pub op: OpKind,
    /// Cause of the operation.
    pub cause: OpCause,
    /// The extent's first page; for an erase, page 0 of the segment.
    pub first: Ppa,
    /// Number of pages, at least 1; 1 for an erase.
    pub pages: u32,
    /// Bytes needed of the last page: the whole page, unless a read needs less.
    pub last_bytes: u32,
}

/// The operations of one building block in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockOps {
    /// End of the block's operations in [`FlashTrace::ops`]; they begin where those of the previous block end.
    pub ops_end: usize,
    /// Number of contiguous runs that are copied between the block and the caller's buffer.
    pub runs: u64,
    /// Bytes of all runs that are copied.
    pub bytes: u64,
}

/// The flash operations of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlashTrace {
    /// All operations, in order.
    pub ops: Vec<ExtentOp>,
    /// Operations of each building block; the operations after the last block's belong to no block: those of reclaim
    /// and of the log (journal and checkpoints).
    pub blocks: Vec<BlockOps>,
    /// Number of barriers; each makes everything written before it durable.
    pub barriers: u64,
    /// Segments that became empty, each after this number of operations: (operations, segment).
    pub freed: Vec<(usize, u32)>,
}

#[derive(Debug, Default)]
struct Recording {
    trace: FlashTrace,
    purpose: Purpose,
}

/// Recorder of the flash trace of the command that is being executed.
#[derive(Debug)]
pub struct Recorder {
    geometry: Geometry,
    is_recording: AtomicBool,
    recording: Mutex<Recording>,
}

impl Recorder {
    /// Makes a recorder for a store of this geometry.
    pub fn new(geometry: Geometry) -> Arc<Self> {
        Arc::new(Self { geometry, is_recording: AtomicBool::new(true), recording: Mutex::default() })
    }

    /// Returns the store's geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Executes `work` without recording: the second half of a command, whose pages the first half has recorded.
    pub(crate) fn unrecorded<T>(&self, work: impl FnOnce() -> T) -> T {
        self.is_recording.store(false, Ordering::Relaxed);
        let done = work();
        self.is_recording.store(true, Ordering::Relaxed);
        done
    }

    /// Returns the operations recorded since the last call.
    pub fn take(&self) -> FlashTrace {
        std::mem::take(&mut self.recording.lock().trace)
    }

    fn record(&self, f: impl FnOnce(&mut Recording)) {
        if self.is_recording.load(Ordering::Relaxed) {
            f(&mut self.recording.lock());
        }
    }

    /// Records a read or program of bytes of a segment's data area, from byte `at` of it on; `log` says whether they
    /// belong to the journal or to a checkpoint.
    pub(crate) fn pages(&self, op: OpKind, log: bool, segment: u32, at: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let page = u64::from(self.geometry.page_bytes);
        let (first, last) = (at / page, (at + bytes - 1) / page);
        let pages = (last - first + 1) as u32;
        assert!(last < u64::from(self.geometry.pages_per_segment()), "page {last} of segment {segment}");
        let last_bytes = match (op, pages) {
            (OpKind::Read, 1) => bytes as u32,
            (OpKind::Read, _) => ((at + bytes - 1) % page + 1) as u32,
            _ => page as u32,
        };
        let first = self.geometry.ppa(segment, first as u32);
        self.record(|recording| {
            let cause = match recording.purpose {
                Purpose::Reclaim => OpCause::Gc,
                Purpose::Command if log => OpCause::Map,
                Purpose::Command => OpCause::Host,
            };
            recording.trace.ops.push(ExtentOp { op, cause, first, pages, last_bytes });
        });
    }

    pub(crate) fn barrier(&self) {
        self.record(|recording| recording.trace.barriers += 1);
    }
}

impl Probe for Recorder {
    fn moved(&self, runs: u64, bytes: u64) {
        self.record(|recording| {
            let ops_end = recording.trace.ops.len();
            recording.trace.blocks.push(BlockOps { ops_end, runs, bytes });
        });
    }

    fn freed(&self, segment: u32) {
        self.record(|recording| recording.trace.freed.push((recording.trace.ops.len(), segment)));
    }

    fn purpose(&self, purpose: Purpose) -> Purpose {
        std::mem::replace(&mut self.recording.lock().purpose, purpose)
    }
}

#[cfg(test)]
mod tests;
