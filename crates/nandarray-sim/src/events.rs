//! The event queue: pops events in order of time and, at one time, in the order in which they were pushed.
//!
//! A 4-ary heap of small values with the time and a running number in one 128-bit key: no allocation once it has grown
//! to the most events that are pending at once, and ties are broken the same way on every machine. It knows no devices;
//! an event is whatever the simulation pushes.

use crate::time::Ps;

/// Number of children of each node of the heap: four keys fill one cache line.
const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct PendingEvent<E> {
    key: u128,
    event: E,
}

/// Pending events in order of time; events at one time stay in the order of their pushes.
#[derive(Clone, Debug)]
pub struct Events<E> {
    heap: Vec<PendingEvent<E>>,
    pushed: u64,
    now: Ps,
}

impl<E: Copy> Default for Events<E> {
    fn default() -> Self {
        Self { heap: Vec::new(), pushed: 0, now: Ps::ZERO }
    }
}

impl<E: Copy> Events<E> {
    /// Returns the time of the event that was popped last; zero before the first.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of events pushed so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Returns the time of the next event; `None` if no event is pending.
    pub fn next_at(&self) -> Option<Ps> {
        self.heap.first().map(|e| Ps((e.key >> 64) as u64))
    }

    /// Adds an event that happens at time `at`, after the events already pending for that time.
    ///
    /// # Panics
    /// If `at` is earlier than [`Self::now`].
    pub fn push(&mut self, at: Ps, event: E) {
        assert!(at >= self.now, "an event at {at}, which was before {}", self.now);
        let entry = PendingEvent { key: u128::from(at.0) << 64 | u128::from(self.pushed), event };
        self.pushed += 1;
        let mut i = self.heap.len();
        self.heap.push(entry);
        while i > 0 {
            let up = (i - 1) / ARITY;
            if self.heap[up].key <= entry.key {
                break;
            }
            self.heap[i] = self.heap[up];
            i = up;
        }
        self.heap[i] = entry;
    }

    /// Removes the next event, advances the current time to it and returns both; `None` if no event is pending.
    pub fn pop(&mut self) -> Option<(Ps, E)> {
        let first = *self.heap.first()?;
        let last = self.heap.pop().expect("there was a first");
        let at = Ps((first.key >> 64) as u64);
        assert!(at >= self.now, "an event at {at} comes behind {}", self.now);
        if !self.heap.is_empty() {
            self.sink(last);
        }
        self.now = at;
        Some((self.now, first.event))
    }

    /// Writes an event to the root of the heap, then moves it down until no child has a smaller key.
    fn sink(&mut self, entry: PendingEvent<E>) {
        let len = self.heap.len();
        let mut i = 0;
        loop {
            let below = i * ARITY + 1;
            if below >= len {
                break;
            }
            // The smaller of either pair, then the smaller of both: three comparisons without branches, since their
            // outcomes cannot be predicted.
            let less = |a: usize, b: usize| if self.heap[b].key < self.heap[a].key { b } else { a };
            let least = if below + ARITY <= len {
                less(less(below, below + 1), less(below + 2, below + 3))
            } else {
                (below + 1..len).fold(below, less)
            };
            if self.heap[least].key >= entry.key {
                break;
            }
            self.heap[i] = self.heap[least];
            i = least;
        }
        self.heap[i] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pops_in_order_of_time_then_of_pushing(times in prop::collection::vec((0u64..50, any::<bool>()), 1..400)) {
            let mut events = Events::default();
            let mut model: Vec<(u64, usize)> = Vec::new();
            for (n, &(wait, take)) in times.iter().enumerate() {
                let at = events.now().0 + wait;
                events.push(Ps(at), n);
                model.push((at, n));
                if take {
                    model.sort_unstable();
                    let (at, n) = model.remove(0);
                    prop_assert_eq!(events.pop(), Some((Ps(at), n)));
                }
            }
            model.sort_unstable();
            for (at, n) in model {
                prop_assert_eq!(events.pop(), Some((Ps(at), n)));
            }
            prop_assert!(events.pop().is_none());
        }
    }
    proptest! {
        /// Events that push further events, now or later, are popped as a sorted list would have them; the counts and
        /// the time of the next event agree with the list at every step.
        #[test]
        fn events_that_push_events(
            first in prop::collection::vec(0u64..30, 1..20),
            waits in prop::collection::vec(prop::collection::vec(0u64..6, 0..3), 1..150),
        ) {
            let mut events = Events::default();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut number = 0;
            let mut push = |events: &mut Events<usize>, list: &mut Vec<(u64, usize)>, at: u64| {
                events.push(Ps(at), number);
                list.push((at, number));
                number += 1;
            };
            first.iter().for_each(|&at| push(&mut events, &mut list, at));
            for after in &waits {
                list.sort_unstable();
                prop_assert_eq!(events.next_at(), list.first().map(|&(at, _)| Ps(at)));
                prop_assert_eq!((events.len(), events.is_empty()), (list.len(), list.is_empty()));
                let Some((at, event)) = events.pop() else { break };
                prop_assert_eq!((at.0, event), list.remove(0));
                prop_assert_eq!(events.now(), at);
                after.iter().for_each(|wait| push(&mut events, &mut list, at.0 + wait));
            }
        }
    }

    #[test]
    fn the_latest_time_has_its_place_and_an_earlier_one_is_refused() {
        let mut events = Events::default();
        events.push(Ps::MAX, 'b');
        events.push(Ps(7), 'a');
        events.push(Ps::MAX, 'c');
        assert_eq!(events.pop(), Some((Ps(7), 'a')));
        let found = std::panic::catch_unwind(move || events.push(Ps(6), 'x')).unwrap_err();
        assert!(found.downcast_ref::<String>().unwrap().contains("an event at 6 ps, which was before 7 ps"));
        let mut events = Events::default();
        [Ps::MAX, Ps(0), Ps::MAX].into_iter().zip('a'..).for_each(|(at, event)| events.push(at, event));
        assert_eq!(std::iter::from_fn(|| events.pop()).map(|(_, event)| event).collect::<String>(), "bac");
    }
}
