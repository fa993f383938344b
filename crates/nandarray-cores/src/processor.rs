//! Processors execute a program's instructions: a processor starts at an entry point, then runs until it is stopped,
//! and can be resumed until the call is over.

use std::any::Any;

use nandarray_hart::{Hart, Limits, Memory, Meter, Stop, Streams, Xlen};

/// Executes a program's instructions: the interpreter, or a translator.
pub trait Processor: Send {
    /// Begins a call of the function at address `entry` with one argument; [`run`](Self::run) executes it. `stack` is
    /// the initial stack pointer.
    fn start(&mut self, entry: u64, stack: u64, argument: u64);
    /// Executes instructions until something stops the processor. After a wait, a pause or a limit `run` can be called
    /// again, with the same memory and the same streams, which may have received bytes or been drained.
    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop;
    /// Returns the program counter after the last run.
    fn pc(&self) -> u64;
    /// Returns the value of the register that holds the return address by the calling convention; `None` if the
    /// processor does not know it.
    fn link(&self) -> Option<u64> {
        None
    }
    /// Returns the 64-bit value that the called function returned.
    fn result(&self) -> i64;
    /// Returns the number of instructions executed so far.
    fn instructions(&self) -> u64;

    /// Returns the meter that observes the processor's instructions; `None` if it has none that callers may access.
    fn meter(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// Begins a call, and executes it until something stops the processor.
    fn call(
        &mut self,
        entry: u64,
        stack: u64,
        argument: u64,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        self.start(entry, stack, argument);
        self.run(memory, streams, limits)
    }
}

impl<X: Xlen, M: Meter + 'static> Processor for Hart<X, M> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        Hart::call(self, entry, stack, &[argument]);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        Hart::run(self, memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        Hart::pc(self)
    }

    fn link(&self) -> Option<u64> {
        Some(self.x(1))
    }

    fn result(&self) -> i64 {
        let low = self.x(10);
        if X::BITS == 32 { (low & 0xffff_ffff | self.x(11) << 32) as i64 } else { low as i64 }
    }

    fn instructions(&self) -> u64 {
        Hart::instructions(self)
    }

    fn meter(&mut self) -> Option<&mut dyn Any> {
        Some(self.meter_mut())
    }
}

/// The owner of a metered hart: it is notified when calls begin and stop, and gets the hart back when the hart's
/// processor is dropped.
pub trait HartOwner<X: Xlen, M: Meter>: Send {
    /// Called when a call begins that may be interrupted and resumed.
    fn begins(&mut self, meter: &mut M) {
        let _ = meter;
    }

    /// Called when a call begins that runs to its end, without a return to the caller while it waits.
    fn begins_whole(&mut self, meter: &mut M) {
        let _ = meter;
    }

    /// Called when a call that runs to its end has stopped; returns whether the processor resumes it.
    fn goes_on(&mut self, stop: &Stop, meter: &mut M) -> bool {
        let _ = (stop, meter);
        false
    }

    /// Called when the processor is dropped; takes the hart back.
    fn returned(&mut self, hart: Hart<X, M>);
}

/// A processor that is a hart with a meter, and that hands the hart to an owner when dropped.
pub struct OwnedHart<X: Xlen, M: Meter, O: HartOwner<X, M>> {
    /// The hart; `None` only while the processor is being dropped.
    hart: Option<Hart<X, M>>,
    owner: O,
}

impl<X: Xlen, M: Meter, O: HartOwner<X, M>> OwnedHart<X, M, O> {
    /// Creates a processor from a hart and the hart's owner.
    pub fn new(hart: Hart<X, M>, owner: O) -> Self {
        Self { hart: Some(hart), owner }
    }

    fn hart(&self) -> &Hart<X, M> {
        self.hart.as_ref().expect("it is there until it is dropped")
    }

    fn hart_mut(&mut self) -> &mut Hart<X, M> {
        self.hart.as_mut().expect("it is there until it is dropped")
    }
}

impl<X: Xlen, M: Meter, O: HartOwner<X, M>> std::fmt::Debug for OwnedHart<X, M, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedHart").finish_non_exhaustive()
    }
}

impl<X: Xlen, M: Meter, O: HartOwner<X, M>> Drop for OwnedHart<X, M, O> {
    fn drop(&mut self) {
        if let Some(hart) = self.hart.take() {
            self.owner.returned(hart);
        }
    }
}

impl<X: Xlen, M: Meter + 'static, O: HartOwner<X, M>> Processor for OwnedHart<X, M, O> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        let hart = self.hart.as_mut().expect("it is there until it is dropped");
        self.owner.begins(hart.meter_mut());
        Processor::start(hart, entry, stack, argument);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.hart_mut().run(memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        Processor::pc(self.hart())
    }

    fn link(&self) -> Option<u64> {
        Processor::link(self.hart())
    }

    fn result(&self) -> i64 {
        Processor::result(self.hart())
    }

    fn instructions(&self) -> u64 {
        self.hart().instructions()
    }

    fn meter(&mut self) -> Option<&mut dyn Any> {
        Some(self.hart_mut().meter_mut())
    }

    fn call(
        &mut self,
        entry: u64,
        stack: u64,
        argument: u64,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        let meter = self.hart.as_mut().expect("it is there until it is dropped").meter_mut();
        self.owner.begins_whole(meter);
        Processor::start(self, entry, stack, argument);
        loop {
            let stop = Processor::run(self, memory, streams, limits);
            let meter = self.hart.as_mut().expect("it is there until it is dropped").meter_mut();
            if !self.owner.goes_on(&stop, meter) {
                return stop;
            }
        }
    }
}
