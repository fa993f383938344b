//! Idle states: a device without work for long enough sleeps, draws less power, and takes time to wake.
//!
//! It rests from the completion of its last command and its last flash operation until the next doorbell. Its time in
//! idle states is computed then, without events for falling asleep. While it wakes it draws the power of an awake
//! device. Deeper states are entered one after the other and left at once, with the exit latency of the deepest. Work
//! before entering a state (emptying a write buffer, saving a map) is not modelled, and neither are states that the
//! host requests: the device decides alone.

use crate::describe::IdleState;
use crate::report::Slept;
use nandarray_sim::Ps;

/// The rest and the sleep of a device.
#[derive(Clone, Debug)]
pub(super) struct Sleep {
    states: Vec<IdleState>,
    /// Begin of the present rest; `None` while the device works.
    rests_since: Option<Ps>,
    /// Time at which it is awake, or was.
    awake_at: Ps,
    /// Time in each state, up to the last time it woke.
    slept: Vec<Ps>,
    entered: Vec<u64>,
}

impl Sleep {
    /// A device at rest from time 0.
    pub(super) fn new(states: &[IdleState]) -> Self {
        Self {
            states: states.to_vec(),
            rests_since: Some(Ps::ZERO),
            awake_at: Ps::ZERO,
            slept: vec![Ps::ZERO; states.len()],
            entered: vec![0; states.len()],
        }
    }

    /// Time in each state within a rest of the given length.
    fn within(&self, rest: Ps) -> impl Iterator<Item = Ps> + '_ {
        self.states.iter().enumerate().map(move |(i, state)| {
            let end = self.states.get(i + 1).map_or(rest, |next| next.t_after.min(rest));
            end.since(state.t_after)
        })
    }

    /// Wakes the device for new work; returns the time at which it is awake.
    pub(super) fn wakes(&mut self, now: Ps) -> Ps {
        if self.states.is_empty() {
            return now;
        }
        if let Some(since) = self.rests_since.take() {
            let rest = now.since(since);
            let within: Vec<Ps> = self.within(rest).collect();
            let asleep: Ps = within.iter().copied().sum();
            assert!(since <= now && asleep <= rest, "asleep for {asleep} of {rest}, from {since} to {now}");
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

    /// Whether it works and is awake; `false` for a device without idle states, which never rests.
    pub(super) fn is_up(&self, now: Ps) -> bool {
        !self.states.is_empty() && self.rests_since.is_none() && now >= self.awake_at
    }

    /// The device begins to rest.
    pub(super) fn rests(&mut self, now: Ps) {
        assert!(self.is_up(now), "the device rests at {now}: it rests already, or wakes until {}", self.awake_at);
        self.rests_since = Some(now);
    }

    /// Time until `now` in each state.
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
        // Awake at once, since it has not slept.
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
