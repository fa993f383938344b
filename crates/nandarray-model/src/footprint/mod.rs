//! What one command of the store asked of the device: flash operations by building block, in order.
//!
//! A [`Recorder`] writes down what the first half of a command asks of the medium, and what the probe is told. The
//! machine then lets modelled time pass for that. The order is the engine's own with one thread, which depends on
//! nothing but the commands.

mod places;

pub use places::Places;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::Geometry;
use nandarray::file_format::Ppa;
use nandarray::probe::{Probe, Purpose};
use parking_lot::Mutex;

use crate::flash::{OpCause, OpKind};

/// Consecutive pages of the store's flash that are read, or programmed, or a segment that is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub op: OpKind,
    /// For whom.
    pub cause: OpCause,
    /// The first page; for an erase, page 0 of the segment.
    pub first: Ppa,
    /// How many pages, at least 1; for an erase, 1.
    pub pages: u32,
    /// Bytes of the last page that are wanted, a whole page unless a read asks for less.
    pub last_bytes: u32,
}

/// One building block's share of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where its steps end in [`Footprint::steps`]; they begin where the last piece's end.
    pub steps_end: usize,
    /// Contiguous runs between block and buffer.
    pub runs: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What a command asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// In order.
    pub steps: Vec<Step>,
    /// By building block; steps behind the last piece's end belong to no block (reclaim, log).
    pub pieces: Vec<Piece>,
    /// Times that everything was to be made durable.
    pub barriers: u64,
    /// Segments that hold nothing any more, and after how many steps that was known.
    pub freed: Vec<(usize, u32)>,
}

#[derive(Debug, Default)]
struct State {
    now: Footprint,
    purpose: Purpose,
}

/// Writes down what a command asks for.
#[derive(Debug)]
pub struct Recorder {
    geometry: Geometry,
    armed: AtomicBool,
    state: Mutex<State>,
}

impl Recorder {
    /// A recorder for a store of this shape.
    pub fn new(geometry: Geometry) -> Arc<Self> {
        Arc::new(Self { geometry, armed: AtomicBool::new(true), state: Mutex::default() })
    }

    /// The store's shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Does something without writing down what it asks for: the second half of a command, whose pages the first half
    /// told.
    pub(crate) fn silently<T>(&self, work: impl FnOnce() -> T) -> T {
        self.armed.store(false, Ordering::Relaxed);
        let done = work();
        self.armed.store(true, Ordering::Relaxed);
        done
    }

    /// What was asked for since the last time.
    pub fn take(&self) -> Footprint {
        std::mem::take(&mut self.state.lock().now)
    }

    fn note(&self, f: impl FnOnce(&mut State)) {
        if self.armed.load(Ordering::Relaxed) {
            f(&mut self.state.lock());
        }
    }

    /// Bytes of the data area of a segment are read or programmed, from byte `at` of the segment on.
    pub(crate) fn pages(&self, op: OpKind, log: bool, segment: u32, at: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let page = u64::from(self.geometry.page_bytes);
        let (first, last) = (at / page, (at + bytes - 1) / page);
        let pages = (last - first + 1) as u32;
        let last_bytes = match (op, pages) {
            (OpKind::Read, 1) => bytes as u32,
            (OpKind::Read, _) => ((at + bytes - 1) % page + 1) as u32,
            _ => page as u32,
        };
        let first = self.geometry.ppa(segment, first as u32);
        self.note(|state| {
            let cause = match state.purpose {
                Purpose::Reclaim => OpCause::Gc,
                Purpose::Command if log => OpCause::Map,
                Purpose::Command => OpCause::Host,
            };
            state.now.steps.push(Step { op, cause, first, pages, last_bytes });
        });
    }

    pub(crate) fn barrier(&self) {
        self.note(|state| state.now.barriers += 1);
    }
}

impl Probe for Recorder {
    fn moved(&self, runs: u64, bytes: u64) {
        self.note(|state| {
            let steps_end = state.now.steps.len();
            state.now.pieces.push(Piece { steps_end, runs, bytes });
        });
    }

    fn freed(&self, segment: u32) {
        self.note(|state| state.now.freed.push((state.now.steps.len(), segment)));
    }

    fn purpose(&self, purpose: Purpose) -> Purpose {
        std::mem::replace(&mut self.state.lock().purpose, purpose)
    }
}
