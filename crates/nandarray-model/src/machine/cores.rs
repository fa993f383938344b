//! Cores that run programs beside the data: their busy times and energy.
//!
//! An executor (`store::executor`) decides what a core does: it books work on a core and gets an event at the work's
//! end. A core that has a program but no work waits, for data or for the executor; [`CoreClient::occupy`]
//! distinguishes this from a core without a program. This client issues no flash operations and requests no command on
//! the link.

use std::collections::VecDeque;

use super::clients::{Client, OperationEnded, Packed};
use super::fabric::ClientContext;
use crate::describe::Compute;
use crate::report::CoreTimes;
use nandarray_sim::{Ps, energy_pj};

/// An event of a core that runs programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CoreEvent {
    /// The work booked on this core has ended.
    Free(u32),
}

/// The empty type of waiters and requesters: cores wait for no flash operation and request no command on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoOperation;

const NOTHING: &str = "cores wait for no flash operation and request no command on the link";

impl Packed for NoOperation {
    fn pack(self) -> (u8, u32) {
        (0, 0)
    }

    fn unpack(_kind: u8, _number: u32) -> Self {
        Self
    }
}

/// State of one core.
#[derive(Clone, Copy, Debug, Default)]
struct ComputeCore {
    works: bool,
    worked: Ps,
    /// Time at which the core got its current program; `None` without one.
    occupied: Option<Ps>,
    had_program: Ps,
}

/// The cores of a device that run programs.
#[derive(Debug)]
pub(crate) struct CoreClient {
    compute: Compute,
    cores: Vec<ComputeCore>,
    free: VecDeque<u32>,
}

impl CoreClient {
    pub(super) fn new(compute: &Compute) -> Self {
        let cores = vec![ComputeCore::default(); compute.cores as usize];
        Self { compute: compute.clone(), cores, free: VecDeque::new() }
    }

    /// Books `time` of work on a core, beginning now.
    ///
    /// # Panics
    /// If the core already works, or has no program.
    pub(super) fn work(&mut self, ctx: &mut ClientContext<'_>, now: Ps, core: u32, time: Ps) {
        let one = &mut self.cores[core as usize];
        assert!(one.occupied.is_some(), "core {core} is to work without a program");
        assert!(!std::mem::replace(&mut one.works, true), "core {core} gets work while it works");
        one.worked += time;
        ctx.push(now + time, CoreEvent::Free(core));
    }

    /// Makes a core wait until a time, without counting it as work.
    ///
    /// # Panics
    /// If the core works.
    pub(super) fn hold(&mut self, ctx: &mut ClientContext<'_>, now: Ps, core: u32, until: Ps) {
        let one = &mut self.cores[core as usize];
        assert!(!std::mem::replace(&mut one.works, true), "core {core} is held at {now} while it works");
        ctx.push(until.max(now), CoreEvent::Free(core));
    }

    /// Records that a core gets a program (`has_program`) or gives it back.
    pub(super) fn occupy(&mut self, now: Ps, core: u32, has_program: bool) {
        let one = &mut self.cores[core as usize];
        match (has_program, one.occupied) {
            (true, None) => one.occupied = Some(now),
            (false, Some(since)) => {
                assert!(!one.works, "core {core} returns its program at {now} while it works");
                one.had_program += now.since(since);
                one.occupied = None;
            }
            _ => panic!("core {core} gets a program while it has one, or returns none"),
        }
    }

    /// Returns the next core whose work or wait has ended, each once; `None` if there is none.
    pub(super) fn take_free(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// Returns the cores' times and energy until `now`, of which the device was asleep for `asleep`.
    pub(super) fn times(&self, now: Ps, asleep: Ps) -> CoreTimes {
        // Work that is booked beyond `now` counts up to `now`.
        let worked: Vec<Ps> = self.cores.iter().map(|core| core.worked.min(now)).collect();
        let had = |core: &ComputeCore| core.had_program + core.occupied.map_or(Ps::ZERO, |since| now.since(since));
        let waited = self.cores.iter().map(|core| had(core).since(core.worked.min(had(core)))).collect();
        let at_work: Ps = worked.iter().copied().sum();
        let awake = now.since(asleep) * u64::from(self.compute.cores);
        let at_rest = awake.since(at_work.min(awake));
        let energy_pj =
            (energy_pj(self.compute.core_active_uw, at_work), energy_pj(self.compute.core_idle_uw, at_rest));
        CoreTimes { worked, waited, energy_pj }
    }
}

impl Client for CoreClient {
    type Event = CoreEvent;
    type Waiter = NoOperation;
    type Requester = NoOperation;

    fn handle(&mut self, _ctx: &mut ClientContext<'_>, _now: Ps, event: CoreEvent) {
        let CoreEvent::Free(core) = event;
        let worked = std::mem::replace(&mut self.cores[core as usize].works, false);
        assert!(worked, "core {core} ends work that it did not begin");
        self.free.push_back(core);
    }

    fn operation_ended(
        &mut self,
        _ctx: &mut ClientContext<'_>,
        _now: Ps,
        _waiter: NoOperation,
        _ended: OperationEnded,
    ) {
        unreachable!("{NOTHING}")
    }

    fn decoded(&mut self, _ctx: &mut ClientContext<'_>, _now: Ps, _io: u32, _requester: NoOperation) {
        unreachable!("{NOTHING}")
    }

    fn reaped(&mut self, _ctx: &mut ClientContext<'_>, _now: Ps, _requester: NoOperation) {
        unreachable!("{NOTHING}")
    }

    fn is_still(&self) -> bool {
        self.cores.iter().all(|core| core.occupied.is_none())
    }

    fn check_at_rest(&self) {
        assert!(self.cores.iter().all(|core| !core.works && core.occupied.is_none()), "a core was left at work");
    }

    fn code(event: CoreEvent) -> (u64, u32) {
        let CoreEvent::Free(core) = event;
        (26, core)
    }
}
