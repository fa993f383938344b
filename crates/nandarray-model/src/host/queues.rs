//! NVMe queue pairs: commands submitted by the host, commands visible to the device, and the arbitration between
//! queues.
//!
//! A pair is a submission queue and a completion queue with the same number of entries. The host enqueues commands and
//! rings the doorbell, which makes them visible; the device fetches visible commands, one at a time, by the
//! arbitration, and posts completions, which the host reaps. A command holds its entry from `submit` to `reap`, so
//! neither queue can overflow. Nothing here depends on time: the caller books link and cores.
//!
//! The arbitration is that of the NVMe base specification, 3.4.4: round robin with an arbitration burst; or urgent
//! queues first, then weighted round robin among the high, medium and low classes, with round robin within each class.

use std::collections::VecDeque;

use crate::describe::Arbitration;

/// Priority class of a submission queue under weighted round robin; plain round robin ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueClass {
    /// Served before all others.
    Urgent,
    /// Served by the first weight of `Arbitration::Weighted`.
    High,
    /// Served by the second weight; the default.
    #[default]
    Medium,
    /// Served by the third weight.
    Low,
}

/// Error: a queue already holds as many commands as it has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("queue {queue} holds {entries} commands already")]
pub struct QueueFull {
    /// Number of the queue.
    pub queue: u32,
    /// Number of entries of the queue.
    pub entries: u32,
}

/// A command that the device has fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedCommand<C> {
    /// Number of the queue from which the command was fetched.
    pub queue: u32,
    /// The command.
    pub command: C,
}

#[derive(Clone, Debug)]
struct Pair<C> {
    submitted: VecDeque<C>,
    visible: u32,
    completed: VecDeque<C>,
    held: u32,
    class: QueueClass,
}

/// The queues of one class: a bit mask of those that have visible commands, and the queue that is served next.
#[derive(Clone, Debug)]
struct Turns {
    ready: Vec<u64>,
    waiting: u32,
    queue: u32,
    left: u32,
}

/// All queue pairs of a controller, with commands of type `C`.
#[derive(Clone, Debug)]
pub struct Queues<C> {
    pairs: Vec<Pair<C>>,
    entries: u32,
    burst: u32,
    /// Number of commands that may still be fetched from each class in this round, and in a whole round; `None` for
    /// plain round robin.
    credits: Option<([u32; 3], [u32; 3])>,
    turns: [Turns; 4],
}

impl<C: Copy> Queues<C> {
    /// Makes empty queue pairs; a burst or a weight of 0 counts as 1.
    ///
    /// # Panics
    /// If there are no queues or no entries.
    pub fn new(queues: u32, entries: u32, arbitration: &Arbitration) -> Self {
        assert!(queues > 0 && entries > 0, "{queues} queues of {entries} entries");
        let (burst, credits, classes) = match *arbitration {
            Arbitration::RoundRobin { burst } => (burst, None, [0; 4]),
            Arbitration::Weighted { burst, weights, classes } => (burst, Some(weights.map(|w| w.max(1))), classes),
        };
        let pair = |class| Pair { submitted: VecDeque::new(), visible: 0, completed: VecDeque::new(), held: 0, class };
        // From queue 0 on, the given number of queues of each class; the remaining queues are medium.
        let each = [QueueClass::Urgent, QueueClass::High, QueueClass::Medium, QueueClass::Low].into_iter().zip(classes);
        let classes = each.flat_map(|(class, n)| std::iter::repeat_n(class, n as usize));
        let classes = classes.chain(std::iter::repeat(QueueClass::default())).take(queues as usize);
        let turns = || Turns { ready: vec![0; queues.div_ceil(64) as usize], waiting: 0, queue: queues - 1, left: 0 };
        Self {
            pairs: classes.map(pair).collect(),
            entries,
            burst: burst.max(1),
            credits: credits.map(|c| (c, c)),
            turns: [turns(), turns(), turns(), turns()],
        }
    }

    /// Returns the number of free entries of a queue.
    pub fn room(&self, queue: u32) -> u32 {
        self.entries - self.pairs[queue as usize].held
    }

    /// Submits a command to a queue; it is visible to the device only after the doorbell.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn submit(&mut self, queue: u32, command: C) -> Result<(), QueueFull> {
        let pair = &mut self.pairs[queue as usize];
        if pair.held == self.entries {
            return Err(QueueFull { queue, entries: self.entries });
        }
        pair.held += 1;
        pair.submitted.push_back(command);
        Ok(())
    }

    /// Handles a doorbell at the device: makes all submitted commands of the queue visible. Returns the number of
    /// newly visible ones.
    #[cfg(test)]
    pub fn ring(&mut self, queue: u32) -> u32 {
        self.show(queue, u32::MAX)
    }

    /// Handles a doorbell with an older tail: makes at most `commands` more commands visible, and returns their
    /// number.
    pub fn show(&mut self, queue: u32, commands: u32) -> u32 {
        let pair = &mut self.pairs[queue as usize];
        let new = (pair.submitted.len() as u32 - pair.visible).min(commands);
        if new > 0 {
            let turns = &mut self.turns[if self.credits.is_some() { pair.class as usize } else { 0 }];
            turns.ready[queue as usize / 64] |= 1 << (queue % 64);
            turns.waiting += new;
            pair.visible += new;
        }
        new
    }

    /// Returns the number of commands that the device could fetch.
    pub fn visible(&self) -> u32 {
        self.turns.iter().map(|t| t.waiting).sum()
    }

    /// Fetches the next command, by the arbitration; `None` if no command is visible.
    pub fn fetch(&mut self) -> Option<FetchedCommand<C>> {
        let class = self.next_class()?;
        let turns = &mut self.turns[class];
        let queue = turns.next_queue(self.burst);
        let pair = &mut self.pairs[queue as usize];
        let command = pair.submitted.pop_front().expect("a ready queue has commands");
        assert!(pair.visible > 0 && turns.waiting > 0, "queue {queue} is fetched from without a doorbell");
        pair.visible -= 1;
        turns.waiting -= 1;
        if pair.visible == 0 {
            turns.ready[queue as usize / 64] &= !(1 << (queue % 64));
            turns.left = 0;
        }
        Some(FetchedCommand { queue, command })
    }

    /// Returns the class that is served next, and takes one credit from it; `None` if no command is visible.
    fn next_class(&mut self) -> Option<usize> {
        let Some((left, weights)) = &mut self.credits else {
            return (self.turns[0].waiting > 0).then_some(0);
        };
        if self.turns[0].waiting > 0 {
            return Some(0);
        }
        for _ in 0..2 {
            for class in 1..4 {
                if self.turns[class].waiting > 0 && left[class - 1] > 0 {
                    left[class - 1] -= 1;
                    return Some(class);
                }
            }
            // No class with visible commands has credit left: a new round begins.
            *left = *weights;
        }
        None
    }

    /// Posts a completion.
    ///
    /// # Panics
    /// If a queue gets more completions than commands were fetched from it.
    pub fn post(&mut self, queue: u32, command: C) {
        let pair = &mut self.pairs[queue as usize];
        let on_their_way = pair.held as usize - pair.submitted.len() - pair.completed.len();
        assert!(on_their_way > 0, "queue {queue}: a completion of what was never fetched");
        pair.completed.push_back(command);
    }

    /// Removes and returns the oldest completion of a queue, and frees its command's entry; `None` if there is none.
    pub fn reap(&mut self, queue: u32) -> Option<C> {
        let pair = &mut self.pairs[queue as usize];
        let command = pair.completed.pop_front()?;
        assert!(pair.held > 0, "queue {queue} holds no command and completes one");
        pair.held -= 1;
        Some(command)
    }
}

impl Turns {
    /// Returns the queue that is served next: the same one until its burst is used up or it is empty, then the next one
    /// with a visible command.
    fn next_queue(&mut self, burst: u32) -> u32 {
        let mine = self.ready[self.queue as usize / 64] >> (self.queue % 64) & 1 == 1;
        if self.left == 0 || !mine {
            self.queue = self.after(self.queue);
            self.left = burst;
        }
        self.left -= 1;
        self.queue
    }

    /// Returns the first ready queue after `queue`, in circular order, which may be `queue` itself.
    fn after(&self, queue: u32) -> u32 {
        let words = self.ready.len();
        let from = (queue as usize + 1) % (words * 64);
        let rest = self.ready[from / 64] & (!0u64 << (from % 64));
        if rest != 0 {
            return (from / 64 * 64) as u32 + rest.trailing_zeros();
        }
        let word = (1..=words).map(|step| (from / 64 + step) % words).find(|&word| self.ready[word] != 0);
        let word = word.expect("a class that waits has a ready queue");
        (word * 64) as u32 + self.ready[word].trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(queues: &mut Queues<u32>, n: usize) -> Vec<u32> {
        (0..n).map_while(|_| queues.fetch()).map(|f| f.queue).collect()
    }

    fn filled(queues: u32, each: u32, arbitration: &Arbitration) -> Queues<u32> {
        let mut all = Queues::new(queues, each, arbitration);
        for queue in 0..queues {
            fill(&mut all, queue, each);
        }
        all
    }

    fn fill(all: &mut Queues<u32>, queue: u32, n: u32) {
        for i in 0..n {
            all.submit(queue, i).unwrap();
        }
        assert_eq!(all.ring(queue), n);
    }

    #[test]
    fn a_command_is_seen_only_after_the_doorbell_and_holds_its_place_until_it_is_reaped() {
        let mut all: Queues<u32> = Queues::new(2, 2, &Arbitration::RoundRobin { burst: 1 });
        all.submit(1, 7).unwrap();
        all.submit(1, 8).unwrap();
        assert_eq!(all.submit(1, 9), Err(QueueFull { queue: 1, entries: 2 }));
        assert_eq!(all.fetch(), None);
        assert_eq!((all.show(1, 1), all.visible()), (1, 1));
        assert_eq!(all.fetch(), Some(FetchedCommand { queue: 1, command: 7 }));
        assert_eq!(all.fetch(), None);
        assert_eq!((all.ring(1), all.ring(1)), (1, 0));
        assert_eq!(all.room(1), 0);
        all.post(1, 7);
        assert_eq!((all.room(1), all.reap(1), all.room(1), all.reap(1)), (0, Some(7), 1, None));
        assert_eq!(all.room(1), 1, "one of two is in flight");
    }

    #[test]
    #[should_panic(expected = "never fetched")]
    fn what_was_not_fetched_cannot_complete() {
        let mut all: Queues<u32> = Queues::new(1, 2, &Arbitration::RoundRobin { burst: 1 });
        all.submit(0, 7).unwrap();
        all.post(0, 7);
    }

    #[test]
    fn bursts() {
        let mut all = filled(3, 5, &Arbitration::RoundRobin { burst: 2 });
        assert_eq!(take(&mut all, 99), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 1, 2]);
    }

    #[test]
    fn urgent_goes_first_and_the_others_by_weight() {
        // Queue 0 is urgent, 1 and 2 are high, 3 is medium, 4 low.
        let arbitration = Arbitration::Weighted { burst: 1, weights: [4, 2, 1], classes: [1, 2, 1, 1] };
        let mut all: Queues<u32> = Queues::new(5, 100, &arbitration);
        for queue in [1, 2, 3, 4] {
            fill(&mut all, queue, 70);
        }
        fill(&mut all, 0, 2);
        let got = take(&mut all, 2 + 70);
        assert_eq!(got[..9], [0, 0, 1, 2, 1, 2, 3, 3, 4]);
        let share = |q| got[2..].iter().filter(|&&g| g == q).count();
        assert_eq!([4, 3, 1, 2].map(share), [10, 20, 20, 20]);
        fill(&mut all, 0, 1);
        assert_eq!(all.fetch().unwrap().queue, 0, "urgent interrupts a round");
    }

    #[test]
    fn a_class_alone_takes_all() {
        let mut all = filled(2, 9, &Arbitration::Weighted { burst: 1, weights: [0, 1, 0], classes: [0; 4] });
        assert_eq!(take(&mut all, 99).len(), 18);
        assert_eq!(all.visible(), 0);
    }

    /// A slow second implementation of the arbiter for comparison: every queue is a list, and each choice of the next
    /// queue searches all of them.
    struct SimpleQueues {
        queues: Vec<(usize, VecDeque<u32>)>,
        burst: u32,
        weights: Option<[u32; 3]>,
        credit: [u32; 3],
        turn: [(usize, u32); 4],
    }

    impl SimpleQueues {
        fn has(&self, class: usize) -> bool {
            self.queues.iter().any(|(c, q)| *c == class && !q.is_empty())
        }

        fn fetch(&mut self) -> Option<(usize, u32)> {
            let class = match self.weights {
                _ if self.has(0) => 0,
                None => return None,
                Some(weights) => {
                    let mut able = (1..4).find(|&c| self.has(c) && self.credit[c - 1] > 0);
                    if able.is_none() {
                        self.credit = weights;
                        able = (1..4).find(|&c| self.has(c));
                    }
                    let class = able?;
                    self.credit[class - 1] -= 1;
                    class
                }
            };
            let n = self.queues.len();
            let (queue, left) = &mut self.turn[class];
            let stays = *left > 0 && !self.queues[*queue].1.is_empty() && self.queues[*queue].0 == class;
            if !stays {
                let from = *queue;
                *queue = (1..=n)
                    .map(|s| (from + s) % n)
                    .find(|&q| self.queues[q].0 == class && !self.queues[q].1.is_empty())
                    .unwrap();
                *left = self.burst;
            }
            *left -= 1;
            let queue = *queue;
            let command = self.queues[queue].1.pop_front().unwrap();
            if self.queues[queue].1.is_empty() {
                self.turn[class].1 = 0;
            }
            Some((queue, command))
        }
    }

    proptest! {
        #[test]
        fn arbitration_is_that_of_a_simple_model(
            classes in prop::array::uniform4(0u32..40),
            beyond in 1u32..20,
            weights in prop::option::of([1u32..5, 1u32..5, 1u32..5]),
            burst in 1u32..4,
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..400),
        ) {
            let arbitration = match weights {
                None => Arbitration::RoundRobin { burst },
                Some(weights) => Arbitration::Weighted { burst, weights, classes },
            };
            let classes: Vec<usize> = (0..4usize)
                .flat_map(|class| std::iter::repeat_n(class, classes[class] as usize))
                .chain(std::iter::repeat_n(2, beyond as usize))
                .collect();
            let mut all = Queues::new(classes.len() as u32, 1024, &arbitration);
            let mut model = SimpleQueues {
                queues: classes.iter().map(|&c| (if weights.is_some() { c } else { 0 }, VecDeque::new())).collect(),
                burst, weights, credit: weights.unwrap_or_default(), turn: [(classes.len() - 1, 0); 4],
            };
            for (n, (at, submits)) in steps.iter().enumerate() {
                if *submits {
                    let queue = at.index(classes.len());
                    all.submit(queue as u32, n as u32).unwrap();
                    all.ring(queue as u32);
                    model.queues[queue].1.push_back(n as u32);
                } else {
                    let got = all.fetch().map(|f| (f.queue as usize, f.command));
                    prop_assert_eq!(got, model.fetch());
                    if let Some((queue, command)) = got {
                        all.post(queue as u32, command);
                        prop_assert_eq!(all.reap(queue as u32), Some(command));
                    }
                }
            }
            while let Some(want) = model.fetch() {
                prop_assert_eq!(all.fetch().map(|f| (f.queue as usize, f.command)), Some(want));
            }
            prop_assert_eq!(all.fetch(), None);
        }
    }
}
