//! Tests of the back end, by what its times are compared with: closed forms, cases computed by hand, invariants and
//! laws of conservation under random operations, naive schedulers, models of the parts.

mod added_policy;
mod cases;
mod closed_forms;
mod failures;
mod invariants;
mod laws;
mod mqsim_rows;
mod parts;
mod reference;
mod word_lines;
mod worn_cells;

use crate::describe::{Description, Scheduling, preset_with};
use crate::flash::policy::DiePolicy;
use crate::flash::{Backend, Cells, FlashEvent, FlashOp, OpCause, OpEnded, OpKind, OpOutcome, PageAddress};
use nandarray_sim::Events;
use nandarray_sim::Ps;

/// Returns MQSim's default geometry and times, with some values changed.
pub(crate) fn device(overrides: &[(&str, &str)]) -> Description {
    preset_with("mqsim-ideal", overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// A back end with an event queue and a clock.
pub(crate) struct Rig<P: DiePolicy = Scheduling> {
    pub(crate) flash: Backend<P>,
    pub(crate) events: Events<FlashEvent>,
    ended: Vec<OpEnded>,
    token: u64,
}

impl Rig {
    pub(crate) fn new(description: &Description) -> Self {
        Self::of(Backend::new(description, 1, None))
    }

    pub(crate) fn with_cells(description: &Description, cells: Box<dyn Cells>) -> Self {
        Self::of(Backend::with_cells(description, cells, None))
    }
}

impl<P: DiePolicy> Rig<P> {
    pub(crate) fn of(flash: Backend<P>) -> Self {
        Self { flash, events: Events::default(), ended: Vec::new(), token: 0 }
    }

    /// Submits an operation now; returns its token.
    pub(crate) fn submit(&mut self, op: OpKind, cause: OpCause, place: PageAddress, bytes: u32) -> u64 {
        let token = self.token;
        self.token += 1;
        let now = self.events.now();
        self.flash.submit(now, FlashOp { op, cause, place, bytes, token }, &mut self.events);
        token
    }

    /// Submits a host's read of `bytes` bytes; returns its token.
    pub(crate) fn read(&mut self, place: PageAddress, bytes: u32) -> u64 {
        self.submit(OpKind::Read, OpCause::Host, place, bytes)
    }

    /// Submits a host's program of a whole page; returns its token.
    pub(crate) fn program(&mut self, place: PageAddress) -> u64 {
        let bytes = self.flash.geometry.page_bytes;
        self.submit(OpKind::Program, OpCause::Host, place, bytes)
    }

    /// Handles events until an operation ends, or no event is left; returns the operations that ended, with their
    /// times.
    pub(crate) fn step(&mut self) -> Vec<(Ps, OpEnded)> {
        while let Some((now, event)) = self.events.pop() {
            self.flash.handle(now, event, &mut self.events, &mut self.ended);
            if !self.ended.is_empty() {
                return self.ended.drain(..).map(|e| (now, e)).collect();
            }
        }
        Vec::new()
    }

    /// Handles events until the clock reaches `at`; returns the operations that ended, with their times.
    pub(crate) fn until(&mut self, at: Ps) -> Vec<(Ps, OpEnded)> {
        let mut all = Vec::new();
        // An event that only this test handles moves the clock.
        self.events.push(at, FlashEvent::HoldOver(0));
        while self.events.next_at().is_some_and(|t| t <= at) {
            let (now, event) = self.events.pop().expect("there is a next");
            self.flash.handle(now, event, &mut self.events, &mut self.ended);
            all.extend(self.ended.drain(..).map(|e| (now, e)));
        }
        all
    }

    /// Handles all events, checks that every operation succeeded and that the account is consistent; returns the end of
    /// each operation, by token.
    pub(crate) fn finish(&mut self) -> Vec<Ps> {
        let mut at = vec![Ps::MAX; self.token as usize];
        loop {
            let ended = self.step();
            if ended.is_empty() {
                break;
            }
            for (now, e) in ended {
                assert_eq!(e.outcome, OpOutcome::Done);
                at[e.token as usize] = now;
            }
        }
        assert_eq!(self.flash.in_flight(), 0, "something never ended");
        self.flash.check(self.events.now()).unwrap_or_else(|e| panic!("{e}"));
        at
    }
}

/// Returns the address of a page.
pub(crate) fn at(die: u32, plane: u16, block: u32, page: u16) -> PageAddress {
    PageAddress { die, block, page, plane }
}
