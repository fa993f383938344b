//! Timed cores for programs: checks whether a program can run on a described core, and makes cores that count their
//! ticks.
//!
//! A [`CoreTimer`] makes cores whose hart has exactly the instruction set of a description, and whose meter is a
//! [`TimedCore`]; each core hands its figures to the timer when it is dropped. [`timed_core`] makes cores with a meter
//! of the caller's, for a device whose cores share memory. A program's results do not depend on its core.

use std::sync::Arc;

use nandarray_hart::{Extension, Extensions, Hart, HartMode, Rv32, Rv64, Xlen};
use nandarray_uarch::{AddressTicks, CoreDescription, CoreReport, TaskFeed, TimedCore};
use parking_lot::Mutex;

use crate::abi;
use crate::core::Core;
use crate::error::LoadError;
use crate::metadata::ProgramKind;
use crate::processor::{HartOwner, OwnedHart, Processor};
use crate::program::Program;

/// Distance between the addresses of one task's windows and those of the next task's, as the caches see them, in bytes.
const TASK_BYTES: u64 = 1 << 31;
/// Distance by which each window's addresses are shifted against those of the window before, in bytes. Windows lie at
/// multiples of a large power of 2: without a shift streams that advance together would all be in one set of a cache,
/// which arrays that are allocated one after another are not.
const SHIFT_BYTES: u64 = 5 << 10;
/// Number of tasks after which the addresses of the first task are used again, so that a line's number fits a cache's
/// tag.
const TASKS: u64 = 1 << 24;

/// Checks that a described core can run a program: its instruction set, its scratchpad, its streams.
///
/// # Errors
/// [`LoadError::Core`]: what the program needs, and what the core has.
pub fn check(program: &Program, core: &CoreDescription) -> Result<(), LoadError> {
    let refuse = |needs: String, has: String| Err(LoadError::Core { core: core.name.clone(), needs, has });
    let (bits, has) = core.extensions();
    if program.bits() != bits {
        return refuse(format!("is of {} bits", program.bits()), format!("isa = {}", core.isa));
    }
    let declared = program.image().declared.unwrap_or(Extensions::parse("rv32i").expect("a base").1);
    // Every core has the registers of streams and counters, which are part of the interface.
    let beyond = declared.beyond(has.with(Extension::Zicsr).with(Extension::Zifencei));
    let missing: Vec<String> = beyond.map(|extension| format!("{extension:?}")).collect();
    if !missing.is_empty() {
        return refuse(format!("is compiled for the extensions {}", missing.join(", ")), format!("isa = {}", core.isa));
    }
    let metadata = program.metadata();
    if core.scratchpad_bytes > 0 && metadata.scratchpad() > core.scratchpad_bytes {
        let needs = format!("needs {} bytes of scratchpad", metadata.scratchpad());
        return refuse(needs, format!("scratchpad_bytes = {}", core.scratchpad_bytes));
    }
    let streams = metadata.inputs.len().max(metadata.outputs.len());
    if metadata.kind == ProgramKind::Stream && streams > core.streams as usize {
        return refuse(format!("has {streams} streams on one side"), format!("streams = {}", core.streams));
    }
    Ok(())
}

/// Creates a core with this meter, whose hart has exactly the extensions of the meter's description. [`Core::meter`]
/// returns the meter.
///
/// # Errors
/// [`LoadError`]: the core cannot run the program.
pub fn timed_core(program: &Program, mut meter: TimedCore) -> Result<Core<'_>, LoadError> {
    check(program, meter.description())?;
    meter.set_scratchpad(beside(meter.description()));
    let (bits, extensions) = meter.description().extensions();
    let processor: Box<dyn Processor> = match bits {
        32 => Box::new(timed_hart::<Rv32>(extensions, meter)),
        _ => Box::new(timed_hart::<Rv64>(extensions, meter)),
    };
    Core::new(program, processor)
}

/// Creates a hart with this meter, whose VarVE unit aligns elements as the meter's description says.
pub fn timed_hart<X: Xlen>(extensions: Extensions, meter: TimedCore) -> Hart<X, TimedCore> {
    let alignment = meter.description().vector_unit().alignment();
    let mut hart = Hart::with_meter(HartMode::Program, extensions, meter);
    hart.set_varve_alignment(alignment);
    hart
}

/// Returns the addresses of memory beside a core, which no cache serves: the scratchpad, or all memory of a core
/// without a data cache; empty if the core has no scratchpad.
fn beside(core: &CoreDescription) -> std::ops::Range<u64> {
    match (core.scratchpad_bytes, &core.l1d) {
        (0, _) => 0..0,
        (_, None) => 0..u64::MAX,
        (_, Some(_)) => abi::SCRATCHPAD_ADDRESS..abi::SCRATCHPAD_ADDRESS + abi::SCRATCHPAD_BYTES_MAX,
    }
}

/// Number of calls of which a core keeps the beginnings; later ones count with the last of these.
const CALLS_MAX: usize = 4096;

/// The beginning of a call of an entry point, or the end of the last one: ticks of its core so far, by reason.
pub type CallMark = Vec<(&'static str, u64)>;

/// The figures of a timer's cores; a core hands them over when it is dropped, at its end.
#[derive(Clone, Debug, Default)]
pub struct CoreFigures {
    /// One report for each core, in the order in which the cores were dropped.
    pub reports: Vec<CoreReport>,
    /// Executions and ticks of each instruction's address, summed over the cores.
    pub addresses: AddressTicks,
    /// For each report the beginnings of the core's calls, and the end of the last one.
    pub calls: Vec<Vec<CallMark>>,
}

/// Makes cores after a description, and collects their figures.
#[derive(Clone, Debug)]
pub struct CoreTimer {
    description: Arc<CoreDescription>,
    found: Arc<Mutex<CoreFigures>>,
}

impl CoreTimer {
    /// Creates a timer whose cores have this description.
    pub fn new(description: CoreDescription) -> Self {
        Self { description: Arc::new(description), found: Arc::default() }
    }

    /// Returns the description of the timer's cores.
    pub fn description(&self) -> &CoreDescription {
        &self.description
    }

    /// Creates a core with memory of its own. Its caches see the windows of each task at different addresses.
    ///
    /// # Errors
    /// [`LoadError`]: the core cannot run the program.
    pub fn core<'p>(&self, program: &'p Program) -> Result<Core<'p>, LoadError> {
        check(program, &self.description)?;
        let (bits, extensions) = self.description.extensions();
        let mut meter = TimedCore::new(&self.description);
        meter.set_scratchpad(beside(&self.description));
        let processor: Box<dyn Processor> = match bits {
            32 => Box::new(self.owned::<Rv32>(extensions, meter)),
            _ => Box::new(self.owned::<Rv64>(extensions, meter)),
        };
        Core::new(program, processor)
    }

    fn owned<X: Xlen>(&self, extensions: Extensions, meter: TimedCore) -> OwnedHart<X, TimedCore, TimerOwner> {
        let hart = timed_hart(extensions, meter);
        OwnedHart::new(hart, TimerOwner { calls: 0, marks: Vec::new(), to: self.clone() })
    }

    /// Returns the figures that this timer's cores have handed over since the last `take`; a core does so when it is
    /// dropped.
    pub fn take(&self) -> CoreFigures {
        std::mem::take(&mut *self.found.lock())
    }
}

/// The owner of a timer's hart: hands the hart's figures to the timer.
struct TimerOwner {
    calls: u64,
    marks: Vec<CallMark>,
    to: CoreTimer,
}

impl<X: Xlen> HartOwner<X, TimedCore> for TimerOwner {
    fn begins(&mut self, meter: &mut TimedCore) {
        // Another task has different data in the same window: their addresses differ, so that no cache takes the one
        // task's lines for the other's.
        self.calls += 1;
        if self.marks.len() < CALLS_MAX {
            self.marks.push(meter.report().reasons().to_vec());
        }
        let mut feed = TaskFeed::default();
        let first = self.calls % TASKS * TASK_BYTES;
        let windows = (0..abi::PORTS_MAX).map(abi::input_window).chain((0..abi::PORTS_MAX).map(abi::output_window));
        for (number, window) in windows.enumerate() {
            feed.place(window, None, first + window + number as u64 * SHIFT_BYTES);
        }
        meter.set_feed(feed);
    }

    fn returned(&mut self, hart: Hart<X, TimedCore>) {
        let meter = hart.meter();
        if meter.ticks() == 0 {
            return;
        }
        let (report, addresses) = (meter.report(), meter.addresses());
        self.marks.push(report.reasons().to_vec());
        let mut found = self.to.found.lock();
        found.calls.push(std::mem::take(&mut self.marks));
        found.reports.push(report);
        for (pc, ticks) in addresses {
            found.addresses.entry(pc).or_default().add(&ticks);
        }
    }
}
