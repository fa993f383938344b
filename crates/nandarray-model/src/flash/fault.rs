//! Injected faults of dies: a slow die, a dead die, bit errors. Each wraps other cells, so faults can be nested.

use super::cells::{Cells, Verdict};
use super::operation::PageAddress;
use nandarray_sim::Ps;

/// Implements the listed methods of a wrapper, and those that no fault changes, by calling the cells in its field
/// `within`.
macro_rules! as_within {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(fn $name(&mut self, $($arg: $ty),*) -> $ret {
            self.within.$name($($arg),*)
        })*
        fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
            self.within.is_factory_bad(die, plane, block)
        }
        fn codewords(&self, bytes: u32) -> u32 {
            self.within.codewords(bytes)
        }
    };
}

/// Cells with one die that takes `percent` of its normal time from a given moment on.
pub struct SlowDie<C> {
    within: C,
    die: u32,
    from: Ps,
    percent: u64,
}

impl<C: Cells> SlowDie<C> {
    /// Makes `die` slow from time `from` on; at 300 percent it takes three times as long.
    pub fn new(within: C, die: u32, from: Ps, percent: u64) -> Self {
        Self { within, die, from, percent }
    }

    fn slowed(&self, now: Ps, place: PageAddress, t: Ps) -> Ps {
        if place.die == self.die && now >= self.from { Ps((t * self.percent).0 / 100) } else { t }
    }
}

impl<C: Cells> Cells for SlowDie<C> {
    fn t_sense(&mut self, now: Ps, place: PageAddress, retry: u16) -> Ps {
        let t = self.within.t_sense(now, place, retry);
        self.slowed(now, place, t)
    }
    fn t_program(&mut self, now: Ps, place: PageAddress) -> Ps {
        let t = self.within.t_program(now, place);
        self.slowed(now, place, t)
    }
    fn t_erase(&mut self, now: Ps, place: PageAddress) -> Ps {
        let t = self.within.t_erase(now, place);
        self.slowed(now, place, t)
    }
    as_within! {
        read(now: Ps, place: PageAddress, bytes: u32) -> Verdict;
        programmed(now: Ps, place: PageAddress) -> bool;
        erased(now: Ps, place: PageAddress) -> bool;
    }
}

/// Cells with one die that fails every operation from a given moment on, in the time the operation normally takes.
pub struct DeadDie<C> {
    within: C,
    die: u32,
    from: Ps,
}

impl<C: Cells> DeadDie<C> {
    /// Makes `die` fail from time `from` on.
    pub fn new(within: C, die: u32, from: Ps) -> Self {
        Self { within, die, from }
    }

    fn dead(&self, now: Ps, place: PageAddress) -> bool {
        place.die == self.die && now >= self.from
    }
}

impl<C: Cells> Cells for DeadDie<C> {
    fn read(&mut self, now: Ps, place: PageAddress, bytes: u32) -> Verdict {
        // A dead die fails its status check, so the read is not retried with other voltages.
        if self.dead(now, place) {
            return Verdict { retries: 0, lost: true };
        }
        self.within.read(now, place, bytes)
    }
    fn programmed(&mut self, now: Ps, place: PageAddress) -> bool {
        !self.dead(now, place) && self.within.programmed(now, place)
    }
    fn erased(&mut self, now: Ps, place: PageAddress) -> bool {
        !self.dead(now, place) && self.within.erased(now, place)
    }
    as_within! {
        t_sense(now: Ps, place: PageAddress, retry: u16) -> Ps;
        t_program(now: Ps, place: PageAddress) -> Ps;
        t_erase(now: Ps, place: PageAddress) -> Ps;
    }
}

/// Cells in which all pages of one block need retries, or cannot be read at all, independently of wear.
pub struct BitErrors<C> {
    within: C,
    block: PageAddress,
    verdict: Verdict,
}

impl<C: Cells> BitErrors<C> {
    /// Makes cells that give `verdict` for every read of a page of `block`, whose `page` field is ignored.
    pub fn new(within: C, block: PageAddress, verdict: Verdict) -> Self {
        Self { within, block, verdict }
    }
}

impl<C: Cells> Cells for BitErrors<C> {
    fn read(&mut self, now: Ps, place: PageAddress, bytes: u32) -> Verdict {
        let own = self.within.read(now, place, bytes);
        if (place.die, place.plane, place.block) != (self.block.die, self.block.plane, self.block.block) {
            return own;
        }
        Verdict { retries: own.retries.max(self.verdict.retries), lost: own.lost || self.verdict.lost }
    }
    as_within! {
        t_sense(now: Ps, place: PageAddress, retry: u16) -> Ps;
        t_program(now: Ps, place: PageAddress) -> Ps;
        t_erase(now: Ps, place: PageAddress) -> Ps;
        programmed(now: Ps, place: PageAddress) -> bool;
        erased(now: Ps, place: PageAddress) -> bool;
    }
}

impl<C: Cells + ?Sized> Cells for Box<C> {
    fn t_sense(&mut self, now: Ps, place: PageAddress, retry: u16) -> Ps {
        (**self).t_sense(now, place, retry)
    }
    fn t_program(&mut self, now: Ps, place: PageAddress) -> Ps {
        (**self).t_program(now, place)
    }
    fn t_erase(&mut self, now: Ps, place: PageAddress) -> Ps {
        (**self).t_erase(now, place)
    }
    fn read(&mut self, now: Ps, place: PageAddress, bytes: u32) -> Verdict {
        (**self).read(now, place, bytes)
    }
    fn programmed(&mut self, now: Ps, place: PageAddress) -> bool {
        (**self).programmed(now, place)
    }
    fn erased(&mut self, now: Ps, place: PageAddress) -> bool {
        (**self).erased(now, place)
    }
    fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
        (**self).is_factory_bad(die, plane, block)
    }
    fn codewords(&self, bytes: u32) -> u32 {
        (**self).codewords(bytes)
    }
}
