//! The time of vector instructions beyond their issue: memory, further cycles of the datapath, unpacking.
//!
//! The pipeline issues a vector instruction as any other, with the latency of its unit. Cycles that depend on the
//! vector length and on values freeze it: an instruction whose elements have more bits than the datapath, or than the
//! path to memory, takes further cycles. Loads and stores access the caches line by line. Lines of packed streams are
//! fetched ahead, and values are unpacked at a rate while earlier ones are computed on: an instruction waits only for
//! what is not there yet. The hart repeats an instruction after a pause; lines that it has accessed are not accessed
//! again.

use nandarray_hart::{DataAccess, MeterAnswer, VectorBytes, VectorWork, VectorWorkKind};

use super::TimedCore;
use crate::describe::CoreDescription;
use crate::unit::FunctionalUnit;
use crate::vector::{UnpackEngine, VectorCounts, VectorDescription};

/// Bytes of a line, for cores without a data cache.
const LINE_BYTES: u64 = 64;

/// The vector unit of a core: its description with no value left out, and its state.
#[derive(Debug)]
pub(super) struct VectorMeter {
    unit: VectorDescription,
    line_bytes: u64,
    /// Ticks of each cycle of the datapath that a division needs after its first.
    t_divide: u64,
    counts: VectorCounts,
    engine: UnpackEngine,
    /// Number of lines that the current instruction has accessed, since it was reported first.
    done: usize,
}

impl VectorMeter {
    pub(super) fn new(d: &CoreDescription) -> Self {
        let mut unit = d.vector_unit();
        let or = |value: u32, otherwise: u32| if value == 0 { otherwise } else { value };
        unit.datapath_bits = or(unit.datapath_bits, d.extensions().1.vlen());
        unit.memory_bits = or(unit.memory_bits, unit.datapath_bits);
        unit.t_element = or(unit.t_element, d.cycle);
        let divides = [FunctionalUnit::VectorDivide, FunctionalUnit::VarveDivide, FunctionalUnit::VectorFloatDivide];
        let unpipelined = divides.into_iter().filter(|unit| d.unpipelined.contains(unit));
        Self {
            unit,
            line_bytes: d.l1d.map_or(LINE_BYTES, |cache| u64::from(cache.line_bytes)),
            t_divide: unpipelined.map(|unit| d.latency_of(unit)).max().unwrap_or(d.cycle).into(),
            counts: VectorCounts::default(),
            engine: UnpackEngine::default(),
            done: 0,
        }
    }

    pub(super) fn counts(&self) -> VectorCounts {
        self.counts
    }
}

impl TimedCore {
    /// Times a vector instruction that is about to be executed; the answer is a pause if it needs memory or bytes of an
    /// input that another part of a device has to provide.
    pub(super) fn vector_work(&mut self, index: u32, work: &VectorWork) -> MeterAnswer {
        if self.vector.done == 0 {
            self.fetch_streams_ahead(index, work);
        }
        let mut lines = 0;
        for piece in &work.memory {
            let kind = if piece.store { DataAccess::Store } else { DataAccess::Load };
            let mut at = piece.address;
            let end = piece.address.saturating_add(piece.bytes);
            while at < end {
                let next = (at & !(self.vector.line_bytes - 1)).saturating_add(self.vector.line_bytes).min(end);
                if lines == self.vector.done {
                    if <Self as nandarray_hart::Meter>::access(self, index, kind, at, (next - at) as u32)
                        == MeterAnswer::Pause
                    {
                        return MeterAnswer::Pause;
                    }
                    self.vector.done += 1;
                }
                lines += 1;
                at = next;
            }
        }
        if self.hierarchy.pauses(self.now) {
            // Lines to fetch ahead, or to write back, have been requested and nothing waits for them.
            self.waits = Some(self.now);
            self.vector.done = lines + 1;
            return MeterAnswer::Pause;
        }
        if self.granted {
            // The pause was for such a request.
            self.granted = false;
            self.gate();
        }
        debug_assert!(self.vector.done <= lines + 1, "{} accesses were made of {lines}", self.vector.done);
        self.vector.done = 0;
        self.take_cycles(index, work);
        MeterAnswer::Proceed
    }

    /// Adds the cycles that an instruction takes beyond the one of its issue, and counts its bits.
    fn take_cycles(&mut self, index: u32, work: &VectorWork) {
        let unit = self.vector.unit;
        let cycle = u64::from(self.timing.description().cycle);
        let cycles = |bits: u64, of: u32| bits.div_ceil(u64::from(of)).max(1);
        let datapath = cycles(work.datapath_bits, unit.datapath_bits);
        let ticks = match work.kind {
            VectorWorkKind::Scalar | VectorWorkKind::Describe => 0,
            VectorWorkKind::Compute => (datapath - 1) * cycle,
            VectorWorkKind::Divide => (datapath - 1) * self.vector.t_divide,
            VectorWorkKind::Consecutive => (cycles(work.datapath_bits, unit.memory_bits) - 1) * cycle,
            VectorWorkKind::Scattered => (work.memory.len() as u64 * u64::from(unit.t_element)).saturating_sub(cycle),
            VectorWorkKind::Unpack | VectorWorkKind::Pack => (datapath - 1) * cycle,
        };
        if ticks > 0 {
            self.frozen.vector += ticks;
            self.freeze_at(index, ticks);
        }
        let counts = &mut self.vector.counts;
        match work.kind {
            VectorWorkKind::Compute | VectorWorkKind::Divide => {
                counts.operations += 1;
                counts.elements += work.elements;
                counts.offered_bits += datapath * u64::from(unit.datapath_bits);
                counts.occupied_bits += work.datapath_bits;
                counts.value_bits += work.value_bits;
            }
            VectorWorkKind::Unpack | VectorWorkKind::Pack => self.unpack(index, work),
            _ => {}
        }
    }

    /// Adds the time for which an instruction waits until its values are unpacked, or packed.
    fn unpack(&mut self, index: u32, work: &VectorWork) {
        let unit = self.vector.unit;
        let cycle = u64::from(self.timing.description().cycle);
        // A value that an instruction has read and that was not consumed is not unpacked again.
        let data = work.memory.iter().filter_map(|piece| Some((piece.stream.filter(|&n| n < 32)?, piece)));
        let new = data.map(|(n, piece)| {
            self.vector.engine.new_bytes(n, piece.address, piece.address.saturating_add(piece.bytes))
        });
        let packed_bits = 8 * new.sum::<u64>();
        self.vector.counts.packed_bits += packed_bits;
        let work_ticks = |bits: u64| match unit.unpack_bits {
            0 => 0,
            each => bits.div_ceil(u64::from(each)) * cycle,
        };
        let ahead = work_ticks(u64::from(unit.unpack_lines) * self.vector.line_bytes * 8);
        let now = self.issued_at(index);
        let mut wait = self.vector.engine.unpack(now, work_ticks(packed_bits), ahead);
        if unit.unpack_lines == 0 {
            wait += u64::from(unit.t_unpack);
        }
        if wait > 0 {
            self.frozen.unpack += wait;
            self.freeze_at(index, wait);
        }
    }

    /// Fetches the lines that follow those which an instruction accesses in a packed stream.
    fn fetch_streams_ahead(&mut self, index: u32, work: &VectorWork) {
        if work.kind == VectorWorkKind::Describe {
            let streams = work.memory.iter().filter_map(|piece| Some((piece.stream?, piece.address)));
            streams.for_each(|(stream, address)| self.vector.engine.begin(stream, address));
        }
        let lines = u64::from(self.vector.unit.unpack_lines);
        if lines == 0 || !self.hierarchy.caches_data() {
            return;
        }
        let now = self.issued_at(index);
        for piece in &work.memory {
            let Some(stream) = piece.stream else { continue };
            let VectorBytes { address, bytes, .. } = *piece;
            let until = address.saturating_add(bytes).saturating_add(lines * self.vector.line_bytes);
            let new = self.vector.engine.advance(stream, address, until);
            let mut at = new.start & !(self.vector.line_bytes - 1);
            while at < new.end {
                let stored = self.feed.address(at);
                self.hierarchy.fetch_ahead(now, stored);
                self.latest_data.forget(stored);
                at = at.saturating_add(self.vector.line_bytes);
            }
        }
    }
}
