//! Idle states: a device without work for long enough sleeps, draws less power, and takes time to wake.
//!
//! The device rests from the completion of its last command and its last flash operation until the next doorbell. Its
//! time in idle states is computed at that doorbell; falling asleep needs no events. While it wakes, it draws the
//! power of an awake device. Deeper states are entered one after the other, and all are left at once, with the exit
//! latency of the deepest. Work before entering a state (emptying a write buffer, saving a map) is not modelled, and
//! neither are states that the host requests: the device decides alone.

use crate::describe::IdleState;
use crate::report::Slept;
use nandarray_sim::Ps;

/// A device's idle states, and the time it spent in each.
#[derive(Clone, Debug)]
pub(super) struct Sleep {
    states: Vec<IdleState>,
    /// Begin of the current rest; `None` while the device works.
    rests_since: Option<Ps>,
    /// Time at which the last wake-up ends or ended.
    awake_at: Ps,
    /// Time in each idle state until the last wake-up.
    slept: Vec<Ps>,
    entered: Vec<u64>,
}

impl Sleep {
    /// Makes the state of a device that rests from time 0 on.
    pub(super) fn new(states: &[IdleState]) -> Self {
        Self {
            states: states.to_vec(),
            rests_since: Some(Ps::ZERO),
            awake_at: Ps::ZERO,
            slept: vec![Ps::ZERO; states.len()],
            entered: vec![0; states.len()],
        }
    }

    /// Returns the time in each idle state within a rest of length `rest`.
    fn within(&self, rest: Ps) -> impl Iterator<Item = Ps> + '_ {
        self.states.iter().enumerate().map(move |(i, state)| {
            let end = self.states.get(i + 1).map_or(rest, |next| next.t_after.min(rest));
            end.since(state.t_after)
        })
    }

    /// Wakes the device for new work; returns the time at which it is awake, `now` if it was.
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

    /// Whether the device works and is awake; always `false` for a device without idle states.
    pub(super) fn is_up(&self, now: Ps) -> bool {
        !self.states.is_empty() && self.rests_since.is_none() && now >= self.awake_at
    }

    /// Begins a rest at `now`.
    pub(super) fn rests(&mut self, now: Ps) {
        assert!(self.is_up(now), "the device rests at {now}: it rests already, or wakes until {}", self.awake_at);
        self.rests_since = Some(now);
    }

    /// Returns the time until `now` in each idle state, with the number of entries into it.
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
        // The device is awake at once, since it has not slept.
        assert_eq!(sleep.wakes(Ps::ZERO), Ps::ZERO);
        sleep.rests_since = Some(Ps::from_ms(1));
        assert_eq!(sleep.wakes(Ps::from_ms(301)), Ps::from_ms(301) + Ps::from_us(10));
        sleep.rests_since = Some(Ps::from_ms(400));
        // While the device wakes, a second doorbell waits for the same wake-up.
        assert_eq!(sleep.wakes(Ps::from_ms(1_400)), Ps::from_ms(1_401));
        assert_eq!(sleep.wakes(Ps::from_us(1_400_500)), Ps::from_ms(1_401));
        sleep.rests_since = Some(Ps::from_ms(2_000));
        let slept = sleep.slept_until(Ps::from_ms(2_200));
        assert_eq!((slept[0].lasted, slept[0].entered), (Ps::from_ms(200 + 400 + 100), 3));
        assert_eq!((slept[1].lasted, slept[1].entered), (Ps::from_ms(500), 1));
    }
    /// Compares with a device that is looked at every millisecond: awake, or in the deepest state whose time of rest
    /// has passed.
    #[test]
    fn time_asleep_is_counted_millisecond_by_millisecond() {
        for seed in 0..200 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let mut after = 0;
            let states: Vec<IdleState> = (0..chance.u64(0..4))
                .map(|n| {
                    after += chance.u64(1..20);
                    let t_exit = Ps::from_us(chance.u64(0..3_000));
                    IdleState { power_uw: 10.0 / (n + 1) as f64, t_after: Ps::from_ms(after), t_exit }
                })
                .collect();
            let mut sleep = Sleep::new(&states);
            let (mut now, mut rests, mut awake) = (0u64, Some(0u64), Ps::ZERO);
            let (mut slept, mut entered) = (vec![0u64; states.len()], vec![0u64; states.len()]);
            for step in 0..40 {
                let next = now + chance.u64(0..60);
                for ms in now..next {
                    let rested = rests.map(|since| Ps::from_ms(ms - since));
                    let state = rested.and_then(|rested| states.iter().rposition(|state| state.t_after <= rested));
                    if let Some(state) = state {
                        slept[state] += 1;
                        entered[state] += u64::from(Some(states[state].t_after) == rested);
                    }
                }
                now = next;
                let found = sleep.slept_until(Ps::from_ms(now));
                let lasted: Vec<Ps> = found.iter().map(|state| state.lasted).collect();
                assert_eq!(
                    lasted,
                    slept.iter().map(|&ms| Ps::from_ms(ms)).collect::<Vec<_>>(),
                    "seed {seed}, step {step}"
                );
                assert_eq!(found.iter().map(|s| s.entered).collect::<Vec<_>>(), entered, "seed {seed}, step {step}");
                if let Some(since) = rests.filter(|_| chance.bool()) {
                    let rested = Ps::from_ms(now - since);
                    let deepest = states.iter().rev().find(|state| state.t_after < rested);
                    awake = deepest.map_or(awake, |state| Ps::from_ms(now) + state.t_exit);
                    let wanted = if states.is_empty() { Ps::from_ms(now) } else { awake.max(Ps::from_ms(now)) };
                    assert_eq!(sleep.wakes(Ps::from_ms(now)), wanted, "seed {seed}, step {step}");
                    rests = None;
                } else if rests.is_none() && sleep.is_up(Ps::from_ms(now)) {
                    sleep.rests(Ps::from_ms(now));
                    rests = Some(now);
                }
            }
        }
    }
}
