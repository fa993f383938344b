//! Processors execute a program's instructions: one is given an entry point, then run until something stops it, as
//! often as it takes.

use std::any::Any;

use nandarray_hart::{Hart, Limits, Memory, Meter, Stop, Streams, Xlen};

/// Executes a program's instructions.
pub trait Processor: Send {
    /// Begin a call of the function at `entry` with one argument; [`run`](Self::run) executes it.
    fn start(&mut self, entry: u64, stack: u64, argument: u64);
    /// Go on until something stops it. After a wait, a pause or a limit it can be called again, with the same memory,
    /// and streams that stand where they stood or have moved on.
    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop;
    /// Program counter after the last run.
    fn pc(&self) -> u64;
    /// The return address, by the calling convention, if it is known.
    fn link(&self) -> Option<u64> {
        None
    }
    /// The value that a function of 64 bits returned.
    fn result(&self) -> i64;
    /// Instructions executed so far.
    fn instructions(&self) -> u64;

    /// The meter that observes its instructions, if it has one to be asked.
    fn meter(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// Begin a call, and run until something stops it.
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

/// The owner of a metered hart, which observes the begin and the stop of calls, and gets the hart back when its
/// processor is dropped.
pub trait HartOwner<X: Xlen, M: Meter>: Send {
    /// A call begins.
    fn begins(&mut self, meter: &mut M) {
        let _ = meter;
    }

    /// A call begins that is to run to its end, without a return to the caller while it waits.
    fn begins_whole(&mut self, meter: &mut M) {
        let _ = meter;
    }

    /// A call that is to run to its end has stopped; returns whether it goes on.
    fn goes_on(&mut self, stop: &Stop, meter: &mut M) -> bool {
        let _ = (stop, meter);
        false
    }

    /// The processor is dropped.
    fn returned(&mut self, hart: Hart<X, M>);
}

/// A processor that is a hart with a meter, and that goes back to an owner.
pub struct OwnedHart<X: Xlen, M: Meter, O: HartOwner<X, M>> {
    /// Until it is dropped.
    hart: Option<Hart<X, M>>,
    owner: O,
}

impl<X: Xlen, M: Meter, O: HartOwner<X, M>> OwnedHart<X, M, O> {
    /// A hart and its owner.
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
