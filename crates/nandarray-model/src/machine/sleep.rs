//! Idle states: when the device has nothing to do for long enough it sleeps, takes less, and is later for who wakes it.
//!
//! It rests from when its last command was answered and its flash is still; a doorbell ends that. How it slept in
//! between is worked out then: no event is needed to fall asleep. While it wakes it takes what it takes awake. Deeper
//! states are entered one after the other and left at once, with the exit latency of the deepest. What such a state
//! needs before it is entered (a write buffer emptied, a map saved) is not modelled, and the description's host asks
//! for none: the device decides alone.

use crate::describe::IdleState;
use crate::report::Slept;
use nandarray_sim::Ps;

/// A device's rest.
#[derive(Clone, Debug)]
pub(super) struct Sleep {
    states: Vec<IdleState>,
    /// Since when it rests; `None` while it works.
    rests_since: Option<Ps>,
    /// When it is awake, or was.
    awake_at: Ps,
    /// How long it was in each state, up to the last time it woke.
    slept: Vec<Ps>,
    entered: Vec<u64>,
}

impl Sleep {
    /// At rest from time 0.
    pub(super) fn new(states: &[IdleState]) -> Self {
        Self {
            states: states.to_vec(),
            rests_since: Some(Ps::ZERO),
            awake_at: Ps::ZERO,
            slept: vec![Ps::ZERO; states.len()],
            entered: vec![0; states.len()],
        }
    }

    /// How long each state lasts within a rest.
    fn within(&self, rest: Ps) -> impl Iterator<Item = Ps> + '_ {
        self.states.iter().enumerate().map(move |(i, state)| {
            let end = self.states.get(i + 1).map_or(rest, |next| next.t_after.min(rest));
            end.since(state.t_after)
        })
    }

    /// There is something to do: when the device is awake for it.
    pub(super) fn wakes(&mut self, now: Ps) -> Ps {
        if self.states.is_empty() {
            return now;
        }
        if let Some(since) = self.rests_since.take() {
            let rest = now.since(since);
            let within: Vec<Ps> = self.within(rest).collect();
            for (i, lasted) in within.into_iter().enumerate() {
                self.slept[i] += lasted;
                if lasted > Ps::ZERO {
                    self.entered[i] += 1;
                    self.awake_at = now + self.states[i].t_exit;
                }
            }
        }
        self.awake_at.max(now)
    }

    /// Whether it works, and is not on its way out of an idle state; a device without such states never rests.
    pub(super) fn is_up(&self, now: Ps) -> bool {
        !self.states.is_empty() && self.rests_since.is_none() && now >= self.awake_at
    }

    /// It has nothing more to do.
    pub(super) fn rests(&mut self, now: Ps) {
        self.rests_since = Some(now);
    }

    /// How it slept until `now`, state by state.
    pub(super) fn slept_until(&self, now: Ps) -> Vec<Slept> {
        let rest = self.rests_since.map_or(Ps::ZERO, |since| now.since(since));
        let states = self.states.iter().zip(self.within(rest)).zip(self.slept.iter().zip(&self.entered));
        states
            .map(|((state, within), (&slept, &entered))| {
                let lasted = slept + within;
                let entered = entered + u64::from(within > Ps::ZERO);
                Slept { power_uw: state.power_uw, lasted, entered }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_entered_one_after_the_other() {
        let state = |power_uw, after_ms, exit_us| IdleState {
            power_uw,
            t_after: Ps::from_ms(after_ms),
            t_exit: Ps::from_us(exit_us),
        };
        let mut sleep = Sleep::new(&[state(50_000.0, 100, 10), state(5_000.0, 500, 1_000)]);
        // At once: it has not slept.
        assert_eq!(sleep.wakes(Ps::ZERO), Ps::ZERO);
        sleep.rests_since = Some(Ps::from_ms(1));
        assert_eq!(sleep.wakes(Ps::from_ms(301)), Ps::from_ms(301) + Ps::from_us(10));
        sleep.rests_since = Some(Ps::from_ms(400));
        // While it wakes, another doorbell waits as long.
        assert_eq!(sleep.wakes(Ps::from_ms(1_400)), Ps::from_ms(1_401));
        assert_eq!(sleep.wakes(Ps::from_us(1_400_500)), Ps::from_ms(1_401));
        sleep.rests_since = Some(Ps::from_ms(2_000));
        let slept = sleep.slept_until(Ps::from_ms(2_200));
        assert_eq!((slept[0].lasted, slept[0].entered), (Ps::from_ms(200 + 400 + 100), 3));
        assert_eq!((slept[1].lasted, slept[1].entered), (Ps::from_ms(500), 1));
    }
}
