//! Admission of random commands compared with its rules, command by command, as [`Order`] states them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::*;

/// The state that all test commands share: locks of blocks, and refusals.
#[derive(Debug, Default)]
struct Locks {
    /// Commands that hold or wait for blocks, in the order of their requests: number, blocks as bits, whether it
    /// writes.
    requests: Vec<(u64, u8, bool)>,
    refused: Vec<u64>,
}

impl Locks {
    fn is_granted(&self, number: u64) -> bool {
        let Some(at) = self.requests.iter().position(|one| one.0 == number) else { return false };
        let (_, blocks, writes) = self.requests[at];
        self.requests[..at].iter().all(|&(_, other, wrote)| other & blocks == 0 || !(writes || wrote))
    }
}

#[derive(Debug)]
struct TestCommand {
    number: u64,
    order: Order,
    blocks: u8,
    writes: bool,
    locks: Arc<Mutex<Locks>>,
}

impl Halves for TestCommand {
    fn order(&self) -> Order {
        self.order
    }
    fn moves(&self) -> Moves {
        if self.writes { Moves::In } else { Moves::Nothing }
    }
    fn request(&mut self) {
        if self.order == Order::Blocks {
            let mut locks = self.locks.lock().unwrap();
            assert!(locks.requests.iter().all(|one| one.0 < self.number), "{self:?} requests out of order, or twice");
            locks.requests.push((self.number, self.blocks, self.writes));
        }
    }
    fn is_granted(&self) -> bool {
        self.locks.lock().unwrap().is_granted(self.number)
    }
    fn plan(&mut self) -> Option<Moves> {
        unreachable!("admission runs no halves")
    }
    fn complete(&mut self) {
        unreachable!("admission runs no halves")
    }
    fn refuse(&mut self, why: Error) {
        assert!(matches!(why, Error::Busy(_)), "{why}");
        self.locks.lock().unwrap().refused.push(self.number);
    }
    fn deliver(self: Box<Self>) {}
}

/// A command in flight in the reference.
#[derive(Clone, Copy, Debug)]
struct Listed {
    number: u64,
    order: Order,
    writes: bool,
    begun: bool,
}

/// Whether a command may begin now, by the rules of its order.
fn may_begin(one: &Listed, all: &[Listed], locks: &Locks) -> bool {
    let earlier: Vec<&Listed> = all.iter().filter(|other| other.number < one.number).collect();
    let held = earlier.iter().any(|other| other.order == Order::Alone);
    match one.order {
        Order::Free => true,
        Order::Between => all.iter().all(|other| !other.begun),
        Order::Blocks => !held && locks.is_granted(one.number),
        Order::Behind | Order::Alone => earlier.is_empty(),
        Order::Beside => {
            let beside = all.iter().any(|other| other.begun && other.order == Order::Beside);
            !held && !beside && earlier.iter().all(|other| !other.writes)
        }
    }
}

#[test]
fn commands_begin_as_the_rules_of_their_orders_allow() {
    let mut begun_later = 0;
    for seed in 0..400 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut flights, locks) = (Flights::default(), Arc::new(Mutex::new(Locks::default())));
        let mut all: Vec<Listed> = Vec::new();
        let mut given = 0;
        for step in 0..150 {
            if chance.u8(0..3) > 0 && all.len() < 12 {
                use Order::*;
                let order = [Free, Blocks, Blocks, Blocks, Blocks, Behind, Between, Beside, Alone][chance.usize(0..9)];
                let writes = matches!(order, Blocks) && chance.bool();
                given += 1;
                let command =
                    TestCommand { number: given, order, blocks: chance.u8(1..16), writes, locks: locks.clone() };
                assert_eq!(flights.submit(FlightHalves::Owned(Box::new(command)), Ps(step)), given);
                all.push(Listed { number: given, order, writes, begun: false });
            } else if let Some(one) = chance.choice(all.iter().filter(|one| one.begun).collect::<Vec<_>>()).copied() {
                assert!(flights.remove(one.number).is_some_and(|flight| flight.admission == Admission::Begun));
                all.retain(|other| other.number != one.number);
                locks.lock().unwrap().requests.retain(|other| other.0 != one.number);
            }
            // All that may begin do, in order of numbers, each with what began before it in view.
            let mut began = BTreeSet::new();
            while let Some(id) = flights.next_to_begin() {
                let at = all.iter().position(|one| one.number == id).expect("a command in flight");
                let may = may_begin(&all[at], &all, &locks.lock().unwrap());
                assert!(may && !all[at].begun, "seed {seed}, step {step}: {:?} begins among {all:?}", all[at]);
                all[at].begun = true;
                began.insert(id);
                begun_later += u64::from(id != given);
            }
            let waiting: Vec<&Listed> = all.iter().filter(|one| !one.begun).collect();
            for one in &waiting {
                let may = may_begin(one, &all, &locks.lock().unwrap());
                assert!(!may, "seed {seed}, step {step}: {one:?} waits among {all:?}, behind {began:?}");
            }
            assert_eq!(flights.len(), all.len(), "seed {seed}, step {step}");
            assert_eq!(flights.has_waiting(), !waiting.is_empty(), "seed {seed}, step {step}");
            assert_eq!(flights.first_waiting(), waiting.first().map(|one| one.number), "seed {seed}, step {step}");
        }
    }
    assert!(begun_later > 500, "{begun_later} commands had to wait");
}

/// When blocks are held for ever, the command that waits for them is the one to refuse, and the others go on.
#[test]
fn the_command_that_blocks_the_others_is_found() {
    let locks = Arc::new(Mutex::new(Locks { requests: vec![(0, 0b1, true)], refused: Vec::new() }));
    let mut flights = Flights::default();
    let mut give = |order, blocks| {
        let number = flights.next + 1;
        let command = TestCommand { number, order, blocks, writes: true, locks: locks.clone() };
        flights.submit(FlightHalves::Owned(Box::new(command)), Ps::ZERO)
    };
    let (first, free, flush) = (give(Order::Blocks, 0b1), give(Order::Blocks, 0b10), give(Order::Behind, 0));
    assert_eq!((flights.next_to_begin(), flights.next_to_begin()), (Some(free), None));
    assert!(flights.remove(free).is_some() && flights.remove(free).is_none());
    assert_eq!((flights.stuck_for(flush), flights.stuck_for(first)), (first, first));
    let mut gone = flights.remove(first).unwrap();
    gone.held.halves().refuse(stuck());
    locks.lock().unwrap().requests.retain(|one| one.0 != first);
    assert_eq!((flights.next_to_begin(), flights.stuck_for(flush)), (Some(flush), flush));
    assert_eq!(locks.lock().unwrap().refused, [first]);
    assert_eq!(too_many().to_string().matches("65536").count(), 1, "{}", too_many());
}
