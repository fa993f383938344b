//! The order of commands on the same building blocks: a range lock with tickets.
//!
//! A command requests a box of blocks of a space, shared (to read) or exclusive (to write), and immediately gets a
//! ticket. A ticket is granted once no earlier request that is held or waiting overlaps its box, unless both are
//! shared. Conflicting requests are granted in the order of their arrival, so none starves. Requesting never blocks.
//! Without a modelled clock a thread waits for its ticket ([`RangeTicket::wait`]); an event loop tests whether it is
//! granted ([`RangeTicket::is_granted`]) and executes other commands until it is.
//!
//! Without a modelled clock reads request nothing: both halves of such a read are done under the space's own lock, so
//! it sees either all of a write or none of it. Under a modelled clock reads request their blocks, since time passes
//! between their halves. A holder must not wait for a second ticket of the same space: it could wait for itself.

mod intervals;
mod table;
pub mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use waits::ThreadWait;

pub use table::{RangeTable, SharedRange, WaitCircle};

/// Time between two looks at whether a wait was stopped.
const LOOK: Duration = Duration::from_millis(20);

/// A box of building blocks: first and last coordinate (inclusive) along each dimension. An empty list is the whole
/// space.
pub(crate) type BlockBox = Vec<(u64, u64)>;

/// Whether a request shares its blocks with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The request reads the blocks, and may be granted together with other readers.
    Shared,
    /// The request writes the blocks, and is granted only when no overlapping request is.
    Exclusive,
}

/// The end of a wait for a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketEnd {
    /// The request is granted.
    Granted,
    /// The lock was closed.
    Closed,
    /// The caller has lost interest.
    Stopped,
    /// The thread must not wait; the text says why.
    Refused(String),
}

/// The range lock of one space: a queue of granted and waiting requests.
#[derive(Clone, Debug, Default)]
pub struct RangeLock(Arc<RangeQueue>);

#[derive(Debug, Default)]
struct RangeQueue {
    requests: Mutex<Requests>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    /// Number of the next request.
    next: u64,
    /// Number of exclusive requests in the queue; while it is 0, every shared request is granted at once.
    exclusive: usize,
    /// Whether the lock was closed, after which no thread waits.
    closed: bool,
    /// All requests by their number, in the order of their arrival.
    queue: BTreeMap<u64, RangeRequest>,
}

#[derive(Debug)]
struct RangeRequest {
    share: Share,
    blocks: BlockBox,
}

/// A granted or waiting request for a box of blocks. Dropping it withdraws the request or releases the blocks. It
/// borrows nothing, so that a command in flight or a transaction can keep it.
#[derive(Debug)]
pub struct RangeTicket {
    queue: Arc<RangeQueue>,
    number: u64,
}

fn meet(a: &BlockBox, b: &BlockBox) -> bool {
    a.iter().zip(b).all(|(x, y)| x.0 <= y.1 && y.0 <= x.1)
}

impl Requests {
    fn is_granted(&self, number: u64) -> bool {
        let own = &self.queue[&number];
        if own.share == Share::Shared && self.exclusive == 0 {
            return true;
        }
        let excludes = |r: &RangeRequest| r.share == Share::Exclusive || own.share == Share::Exclusive;
        !self.queue.range(..number).any(|(_, r)| excludes(r) && meet(&r.blocks, &own.blocks))
    }
}

impl RangeLock {
    /// Requests a box of blocks; returns the ticket without waiting.
    pub fn request(&self, blocks: BlockBox, share: Share) -> RangeTicket {
        let mut requests = self.0.requests.lock();
        let number = requests.next;
        requests.next += 1;
        requests.exclusive += usize::from(share == Share::Exclusive);
        requests.queue.insert(number, RangeRequest { share, blocks });
        RangeTicket { queue: self.0.clone(), number }
    }

    /// Requests a box of blocks exclusively, and waits until it is granted or the lock is closed.
    pub fn lock(&self, blocks: BlockBox) -> RangeTicket {
        let ticket = self.request(blocks, Share::Exclusive);
        ticket.wait();
        ticket
    }

    /// Returns the number of requests, granted or not.
    pub fn requests(&self) -> usize {
        self.0.requests.lock().queue.len()
    }

    /// Closes the lock, because the store was closed: waiting threads return, and no thread waits from now on.
    pub fn close(&self) {
        self.0.requests.lock().closed = true;
        self.0.released.notify_all();
    }
}

impl RangeTicket {
    /// Whether the request is granted; once true, this stays true until the ticket is dropped.
    pub fn is_granted(&self) -> bool {
        self.queue.requests.lock().is_granted(self.number)
    }

    /// Waits until the request is granted, or the lock is closed, or the thread has a reason to stop ([`waits`]).
    pub fn wait(&self) -> TicketEnd {
        self.wait_unless(None)
    }

    /// As [`Self::wait`]; the wait also ends soon after `is_stopped` is true.
    pub fn wait_unless(&self, is_stopped: Option<&dyn Fn() -> bool>) -> TicketEnd {
        if self.is_granted() {
            return TicketEnd::Granted;
        }
        let mut wait = match ThreadWait::begin() {
            Ok(wait) => wait,
            Err(why) => return TicketEnd::Refused(why),
        };
        let looks = wait.may_stop() || is_stopped.is_some();
        let mut requests = self.queue.requests.lock();
        while !requests.is_granted(self.number) {
            if requests.closed {
                return TicketEnd::Closed;
            }
            if wait.is_stopped() || is_stopped.is_some_and(|is_stopped| is_stopped()) {
                return TicketEnd::Stopped;
            }
            if looks {
                let _ = self.queue.released.wait_for(&mut requests, LOOK);
            } else {
                self.queue.released.wait(&mut requests);
            }
        }
        drop(requests);
        wait.grant();
        TicketEnd::Granted
    }
}

impl Drop for RangeTicket {
    fn drop(&mut self) {
        let mut requests = self.queue.requests.lock();
        let gone = requests.queue.remove(&self.number).expect("a ticket's request is in the queue");
        requests.exclusive -= usize::from(gone.share == Share::Exclusive);
        drop(requests);
        self.queue.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[test]
    fn boxes_that_meet_exclude_one_another() {
        assert!(meet(&vec![(0, 3), (2, 2)], &vec![(3, 5), (0, 9)]));
        assert!(!meet(&vec![(0, 3), (2, 2)], &vec![(3, 5), (3, 9)]));
        assert!(meet(&vec![], &vec![(1, 1)]), "an empty box is the whole space");
        let lock = RangeLock::default();
        let inside = AtomicU32::new(0);
        std::thread::scope(|s| {
            for i in 0..8u64 {
                let (lock, inside) = (&lock, &inside);
                s.spawn(move || {
                    for _ in 0..200 {
                        let ticket = lock.lock(vec![(i % 2, 1)]);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(ticket);
                    }
                });
            }
        });
    }

    #[test]
    fn readers_share_and_requests_are_granted_in_their_order() {
        let lock = RangeLock::default();
        let ask = |at: u64, share| lock.request(vec![(at, at)], share);
        let (first, second) = (ask(1, Share::Shared), ask(1, Share::Shared));
        assert!(first.is_granted() && second.is_granted());
        let (writer, late, apart) = (ask(1, Share::Exclusive), ask(1, Share::Shared), ask(2, Share::Exclusive));
        assert!(!writer.is_granted() && !late.is_granted(), "a reader does not pass a writer that waits");
        assert!(apart.is_granted());
        drop(first);
        assert!(!writer.is_granted());
        drop(second);
        assert!(writer.is_granted() && !late.is_granted());
        drop(writer);
        assert!(late.is_granted());
    }

    #[test]
    fn closing_ends_waiting() {
        let lock = RangeLock::default();
        let (held, stopped) = (lock.lock(vec![]), AtomicBool::new(false));
        std::thread::scope(|s| {
            let waits = s.spawn(|| lock.request(vec![(1, 1)], Share::Exclusive).wait());
            let stops = s.spawn(|| {
                lock.request(vec![(1, 1)], Share::Exclusive).wait_unless(Some(&|| stopped.load(Ordering::Relaxed)))
            });
            stopped.store(true, Ordering::Relaxed);
            assert_eq!(crate::sim::patience::joined(stops), TicketEnd::Stopped);
            lock.close();
            assert_eq!(crate::sim::patience::joined(waits), TicketEnd::Closed);
        });
        assert!(held.is_granted());
        assert_eq!(
            lock.request(vec![(1, 1)], Share::Shared).wait(),
            TicketEnd::Closed,
            "nor does anybody begin to wait"
        );
    }

    #[test]
    fn a_request_that_is_withdrawn_holds_nobody_back() {
        let lock = RangeLock::default();
        let held = lock.lock(vec![(0, 9)]);
        let (waits, behind) = (lock.request(vec![(5, 6)], Share::Exclusive), lock.request(vec![(6, 6)], Share::Shared));
        drop(held);
        assert!(waits.is_granted() && !behind.is_granted());
        drop(waits);
        assert!(behind.is_granted());
    }

    /// Makes and drops random requests (fixed seed), and checks that each is granted exactly if no earlier one
    /// conflicts.
    #[test]
    fn agrees_with_its_definition() {
        let mut chance = crate::sim::Chance::seeded(14);
        let lock = RangeLock::default();
        let mut tickets: Vec<(RangeTicket, (u64, u64), Share)> = vec![];
        for step in 0..4000 {
            if chance.below(2) == 0 || tickets.is_empty() {
                let from = chance.below(20);
                let range = (from, from + chance.below(4));
                let share = if chance.below(3) == 0 { Share::Exclusive } else { Share::Shared };
                tickets.push((lock.request(vec![range], share), range, share));
            } else {
                tickets.remove(chance.below(tickets.len() as u64) as usize);
            }
            for (i, (ticket, range, share)) in tickets.iter().enumerate() {
                let blocked = tickets[..i].iter().any(|(_, other, theirs)| {
                    (*share == Share::Exclusive || *theirs == Share::Exclusive)
                        && range.0 <= other.1
                        && other.0 <= range.1
                });
                assert_eq!(ticket.is_granted(), !blocked, "seed 14, step {step}, request {i}");
            }
        }
    }
}
