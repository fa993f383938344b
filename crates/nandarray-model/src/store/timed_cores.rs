//! The timed cores of a device for programs: which programs they can run, and the processors that time them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray_cores::{Core, HartOwner, LoadError, OwnedHart, Processor, Program, ProgramKind, abi};
use nandarray_hart::{Extension, Extensions, Hart, Rv32, Rv64, Stop, Xlen};
use nandarray_sim::Ps;
use nandarray_uarch::{CoreDescription, CoreNeed, InputPath, TaskFeed, TimedCore};

use crate::describe::Compute;

/// A described core, and the data that its runs share.
#[derive(Clone, Debug)]
pub(super) struct TimedCores {
    pub(super) compute: Compute,
    pub(super) core: CoreDescription,
    pub(super) page_bytes: u64,
    /// Ticks spent so far by entry points, which run without interruption.
    spent: Arc<AtomicU64>,
}

/// Serves calls that run without interruption on a core that shares its memory with others: a cache line takes a fixed
/// time.
struct SharedOwner {
    /// Ticks that a cache line takes to arrive.
    t_line: u64,
    /// Tick at which the call began.
    began: u64,
    spent: Arc<AtomicU64>,
}

impl<X: Xlen> HartOwner<X, TimedCore> for SharedOwner {
    fn begins_whole(&mut self, meter: &mut TimedCore) {
        meter.set_feed(TaskFeed::default());
        self.began = meter.ticks();
    }

    fn goes_on(&mut self, stop: &Stop, meter: &mut TimedCore) -> bool {
        if *stop != Stop::Paused {
            self.spent.fetch_add(meter.ticks() - self.began, Ordering::Relaxed);
            return false;
        }
        if let (at, CoreNeed::Lines(lines)) = meter.need() {
            lines.prefetches.iter().for_each(|&line| meter.prefetched(line, at + self.t_line));
            meter.grant(if lines.wanted.is_empty() { at } else { at + self.t_line });
        }
        true
    }

    fn returned(&mut self, hart: Hart<X, TimedCore>) {
        // The hart's figures were taken at the end of each call.
        drop(hart);
    }
}

impl TimedCores {
    /// Makes the timed cores of a description; `None` if its cores execute one instruction per cycle, or it has none.
    pub(super) fn of(d: &crate::describe::Description) -> Option<Self> {
        let compute = d.compute.clone()?;
        let core = compute.core.clone()?;
        let page_bytes = u64::from(d.geometry.page_bytes);
        Some(Self { compute, core, page_bytes, spent: Arc::default() })
    }

    /// Checks that the cores can run a program; the error names what they lack.
    pub(super) fn accepts(&self, program: &Program) -> nandarray::Result<()> {
        let (c, metadata) = (&self.core, program.metadata());
        let name = &metadata.name;
        let refuse = |key: &str, value: String, what: String| {
            Err(nandarray::Error::invalid(format!("compute.core.{key} = {value}: program {name:?} {what}")))
        };
        let is_stream = metadata.kind == ProgramKind::Stream;
        let ports = metadata.inputs.len().max(metadata.outputs.len());
        if is_stream && ports > c.streams as usize {
            let what = format!("has {ports} streams; at least as many are needed (0 to 8)");
            return refuse("streams", c.streams.to_string(), what);
        }
        if is_stream && c.input_source == InputPath::PingPong {
            let what = "has streams; a ping-pong buffer holds windows (allowed is \"dram\" or \"stream\")";
            return refuse("input_source", "\"ping-pong\"".to_owned(), what.to_owned());
        }
        if !is_stream && c.input_source == InputPath::Stream {
            let what =
                "has windows, not streams; allowed is \"dram\" or \"ping-pong\", or the program's kind \"stream\"";
            return refuse("input_source", "\"stream\"".to_owned(), what.to_owned());
        }
        if c.scratchpad_bytes > 0 && metadata.scratchpad() > c.scratchpad_bytes {
            let what = format!("asks for {} B; at least that is needed, or 0 for none", metadata.scratchpad());
            return refuse("scratchpad_bytes", c.scratchpad_bytes.to_string(), what);
        }
        if !self.compute.checks_isa {
            return Ok(());
        }
        nandarray_cores::check(program, &self.core).map_err(|refused| {
            nandarray::Error::invalid(format!(
                "compute.isa = \"own\": {refused}; compile it for the core, or give compute.isa = \"any\""
            ))
        })
    }

    /// Returns the ticks that entry points have spent so far.
    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Makes a core for a program.
    pub(super) fn core<'p>(&self, program: &'p Program) -> Result<Core<'p>, LoadError> {
        let mut extensions = Extensions::PROGRAM.with_vectors_of(self.core.extensions().1);
        if self.compute.checks_isa {
            extensions = self.core.extensions().1.with(Extension::Stream);
        }
        let processor: Box<dyn Processor> = match program.bits() {
            32 => Box::new(self.processor::<Rv32>(extensions)),
            _ => Box::new(self.processor::<Rv64>(extensions)),
        };
        Core::new(program, processor)
    }

    fn processor<X: Xlen>(&self, extensions: Extensions) -> OwnedHart<X, TimedCore, SharedOwner> {
        let mut meter = TimedCore::shared(&self.core);
        if self.core.l1d.is_none() {
            // Without a data cache, all memory that a program reaches is in its scratchpad or its buffers.
            meter.set_scratchpad(0..u64::MAX);
        } else if self.core.scratchpad_bytes > 0 {
            let from = abi::SCRATCHPAD_ADDRESS;
            meter.set_scratchpad(from..from + abi::SCRATCHPAD_BYTES_MAX);
        }
        let t_line = self.core.memory.map_or(0, |memory| u64::from(memory.t_access));
        let hart = nandarray_cores::timed_hart(extensions, meter);
        OwnedHart::new(hart, SharedOwner { t_line, began: 0, spent: self.spent.clone() })
    }

    /// Returns the time of a tick.
    pub(super) fn tick(&self) -> Ps {
        Ps(self.core.tick_ps)
    }
}
