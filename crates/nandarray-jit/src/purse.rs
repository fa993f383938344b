//! The budget for translating: at any moment of any run, the time spent on it exceeds the time saved by a small amount
//! at most.
//!
//! Translating a region costs as much as interpreting it some 20,000 times, so it must be put off until it pays, and
//! the length of a run is not known in advance. Two rules bound the loss. First, a region is translated only when
//! translated code would have saved, during the interpretation so far, the time that translating takes. Second, this
//! time is paid from a budget, the purse: a run begins with an advance, and earns a small share of the time that it
//! interprets, and the time that its translated code saves. So a run takes at most that share and the advance longer
//! than interpreting it, in processor time of all its cores, whatever follows. Each run of a program has a purse of its
//! own.
//!
//! Time is estimated from counts of instructions: no clock is read, so a run on one core translates the same each time.
//! With several cores, or simultaneous runs, the threads' timing decides which core translates what, and when. Results
//! and counts of instructions are the same either way.

use std::sync::atomic::{AtomicU64, Ordering};

/// Estimated costs of executing and of translating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Picoseconds that a translated instruction saves compared with an interpreted one.
    pub saved_ps: u64,
    /// Nanoseconds that translating a region takes, in addition to those for its instructions.
    pub region_ns: u64,
    /// Nanoseconds that translating takes for each instruction of a region; floating-point instructions count several
    /// times.
    pub instruction_ns: u64,
    /// Nanoseconds that observing an instruction takes, when it is executed singly before its translation.
    pub watched_ns: u64,
    /// Nanoseconds that a run may spend on translating from its beginning.
    pub advance_ns: u64,
    /// Picoseconds that a run may spend in addition for each instruction that it interprets.
    pub earned_ps: u64,
    /// Number of instructions between two samples of the program counter.
    pub sample: u64,
    /// Number of instructions that are interpreted at one address before its blocks are observed.
    pub warm: u64,
    /// Largest number of instructions that are observed at a time, one after the other, before a region is translated.
    pub watched: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            saved_ps: 650,
            region_ns: 300_000,
            instruction_ns: 20_000,
            watched_ns: 400,
            advance_ns: 10_000_000,
            earned_ps: 60,
            sample: 1 << 14,
            warm: 1 << 18,
            watched: 1 << 10,
        }
    }
}

impl Costs {
    /// Costs with which every region is translated as soon as it was observed; for tests.
    pub const NONE: Self = Self {
        saved_ps: 1000,
        region_ns: 0,
        instruction_ns: 0,
        watched_ns: 0,
        advance_ns: 1 << 40,
        earned_ps: 0,
        sample: 16,
        warm: 1,
        watched: 64,
    };

    /// Nanoseconds that translating a region of `instructions` instructions takes.
    pub(crate) fn region(&self, instructions: u64) -> u64 {
        self.region_ns + self.instruction_ns * instructions
    }

    /// Returns the largest number of instructions of a region that can be translated in `ns` nanoseconds.
    pub(crate) fn affordable(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.region_ns) / self.instruction_ns.max(1)
    }

    /// Returns the number of instructions that translated code must execute until it has saved the `ns` nanoseconds of
    /// its translation.
    pub(crate) fn pays_after(&self, ns: u64) -> u64 {
        ns.saturating_mul(1000) / self.saved_ps.max(1)
    }
}

/// The time that a run may still spend on translating. All cores of the run, and nothing else, pay from it and earn for
/// it.
#[derive(Debug)]
pub(crate) struct Purse {
    ps: AtomicU64,
}

impl Purse {
    /// Creates the purse of a new run; it contains the advance.
    pub(crate) fn open(costs: &Costs) -> Self {
        Self { ps: AtomicU64::new(costs.advance_ns.saturating_mul(1000)) }
    }

    /// Adds the time that a run earns by interpreted instructions, and the time saved by translated ones.
    pub(crate) fn earn(&self, costs: &Costs, interpreted: u64, translated: u64) {
        let earned_ps = interpreted.saturating_mul(costs.earned_ps);
        let saved_ps = translated.saturating_mul(costs.saved_ps);
        self.change(|ps| Some(ps.saturating_add(earned_ps).saturating_add(saved_ps)));
    }

    /// Whether `ns` nanoseconds can be spent.
    pub(crate) fn has(&self, ns: u64) -> bool {
        ns <= self.ns()
    }

    /// Returns the number of nanoseconds that can be spent.
    pub(crate) fn ns(&self) -> u64 {
        self.ps.load(Ordering::Relaxed) / 1000
    }

    /// Spends `ns` nanoseconds, if the purse contains them; returns whether it did.
    pub(crate) fn take(&self, ns: u64) -> bool {
        self.change(|ps| ps.checked_sub(ns.saturating_mul(1000)))
    }

    /// Subtracts `ns` nanoseconds that have been spent already; the purse becomes empty if it contains less.
    pub(crate) fn spend(&self, ns: u64) {
        self.change(|ps| Some(ps.saturating_sub(ns.saturating_mul(1000))));
    }

    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // The order of other memory accesses does not depend on this one.
        self.ps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_never_spends_more_than_its_advance_and_what_it_earned() {
        let costs = Costs::default();
        let purse = Purse::open(&costs);
        let (mut spent, mut interpreted, mut translated) = (0, 0, 0);
        for turn in 0..10_000u64 {
            let executed = [7, 4096 * (turn % 9)];
            purse.earn(&costs, executed[0], executed[1]);
            (interpreted, translated) = (interpreted + executed[0], translated + executed[1]);
            let cost = costs.region(turn % 700);
            if purse.take(cost) {
                spent += cost;
            }
            let most = costs.advance_ns + (interpreted * costs.earned_ps + translated * costs.saved_ps) / 1000;
            assert!(spent <= most, "turn {turn}: {spent} of {most} ns");
        }
        assert!(spent > costs.advance_ns);
        assert_eq!(Purse::open(&costs).ns(), costs.advance_ns, "what one run earned is not the next one's");
    }

    #[test]
    fn a_region_pays_after_what_it_costs() {
        let costs = Costs { saved_ps: 500, region_ns: 100, instruction_ns: 10, ..Costs::default() };
        assert_eq!(costs.pays_after(costs.region(40)), 1000);
        assert_eq!(Costs::NONE.pays_after(Costs::NONE.region(1500)), 0);
    }
}
