//! A queue pair without a transport: heads, phase, identifiers of commands in flight.
//!
//! A transport accepts each command that arrives, and completes it once. Fabrics capsules need only the submission
//! queue's head from here; rings in memory also need the slot and the phase of each completion.

use std::collections::BTreeSet;

use nandarray::nvme::{CompletionEntry, Status};

/// Submission queue head that is reported for a queue without flow control.
const NO_FLOW_CONTROL: u16 = 0xffff;

/// A submission queue and its completion queue, which have the same number of entries.
#[derive(Debug)]
pub struct QueuePair {
    qid: u16,
    entries: u32,
    flow_control: bool,
    head: u32,
    tail: u32,
    phase: bool,
    in_flight: BTreeSet<u16>,
}

impl QueuePair {
    /// Makes an empty queue pair of `entries` entries on both sides.
    ///
    /// # Panics
    /// If there are fewer than 2 entries.
    pub fn new(qid: u16, entries: u32, flow_control: bool) -> Self {
        assert!(entries >= 2, "a queue must have at least 2 entries, not {entries}");
        Self { qid, entries, flow_control, head: 0, tail: 0, phase: true, in_flight: BTreeSet::new() }
    }

    /// Returns the number of the queue.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Returns the number of commands that were accepted and are not complete.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the submission queue's head: the slot of the next command to fetch.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Accepts a command, and frees its slot of the submission queue.
    ///
    /// # Errors
    /// Command identifier conflict: the command is not in flight, and is answered with [`Self::refuse`]. Command
    /// sequence error if the host has more commands in flight than the queue has entries.
    pub fn accept(&mut self, cid: u16) -> Result<(), Status> {
        self.head = (self.head + 1) % self.entries;
        if self.in_flight.len() >= self.entries as usize {
            return Err(Status::SEQUENCE_ERROR);
        }
        assert!(self.head < self.entries, "slot {} of {} entries", self.head, self.entries);
        if self.in_flight.insert(cid) { Ok(()) } else { Err(Status::CID_CONFLICT) }
    }

    /// Fills in the queue's fields of a completion, ends the command, and returns the slot of the completion queue.
    ///
    /// # Panics
    /// If the command is not in flight: each command is completed once.
    pub fn complete(&mut self, entry: &mut CompletionEntry) -> u32 {
        let cid = entry.cid.get();
        assert!(self.in_flight.remove(&cid), "command {cid:#06x} of queue {} completed and not in flight", self.qid);
        self.refuse(entry)
    }

    /// As [`Self::complete`], for a command that was not accepted.
    pub fn refuse(&mut self, entry: &mut CompletionEntry) -> u32 {
        entry.sqhd.set(if self.flow_control { self.head as u16 } else { NO_FLOW_CONTROL });
        entry.sqid.set(self.qid);
        let status = entry.status_phase.get() & !1;
        entry.status_phase.set(status | u16::from(self.phase));
        let slot = self.tail;
        assert!(slot < self.entries, "slot {slot} of {} entries", self.entries);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cid: u16) -> CompletionEntry {
        CompletionEntry { cid: cid.into(), ..CompletionEntry::default() }
    }

    #[test]
    fn heads_and_phases_go_around() {
        let mut queue = QueuePair::new(3, 4, true);
        for round in 0..10u32 {
            queue.accept(7).unwrap();
            let mut done = entry(7);
            assert_eq!(queue.complete(&mut done), round % 4);
            assert_eq!(u32::from(done.sqhd.get()), (round + 1) % 4);
            assert_eq!(done.status_phase.get(), u16::from(round / 4 % 2 == 0), "round {round}");
            assert_eq!(done.sqid.get(), 3);
        }
    }

    #[test]
    fn an_identifier_is_in_flight_once() {
        let mut queue = QueuePair::new(1, 4, false);
        queue.accept(0xf001).unwrap();
        assert_eq!(queue.accept(0xf001), Err(Status::CID_CONFLICT));
        queue.refuse(&mut entry(0xf001));
        assert_eq!(queue.in_flight(), 1);
        let mut done = entry(0xf001);
        queue.complete(&mut done);
        assert_eq!((queue.in_flight(), done.sqhd.get()), (0, 0xffff));
    }

    /// A reference that counts what arrived and what was answered, and has the identifiers in flight in a list.
    #[test]
    fn any_order_of_arrivals_and_answers_is_counted() {
        for seed in 0..60 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (entries, flow_control) = (rng.u32(2..9), rng.bool());
            let mut queue = QueuePair::new(5, entries, flow_control);
            let (mut arrived, mut answered, mut in_flight) = (0u32, 0u32, Vec::new());
            for step in 0..300 {
                let context = format!("seed {seed}, step {step}");
                let mut done = entry(rng.u16(..6));
                done.set_status(Status::COMPARE_FAILURE);
                let cid = done.cid.get();
                let slot = if rng.bool() {
                    arrived += 1;
                    let wanted = match () {
                        () if in_flight.len() >= entries as usize => Err(Status::SEQUENCE_ERROR),
                        () if in_flight.contains(&cid) => Err(Status::CID_CONFLICT),
                        () => Ok(()),
                    };
                    assert_eq!(queue.accept(cid), wanted, "{context}");
                    assert_eq!(queue.head(), arrived % entries, "{context}");
                    in_flight.extend(wanted.ok().map(|()| cid));
                    wanted.is_err().then(|| queue.refuse(&mut done))
                } else if !in_flight.is_empty() {
                    // In any order, not that of their arrival.
                    done.cid.set(in_flight.swap_remove(rng.usize(..in_flight.len())));
                    Some(queue.complete(&mut done))
                } else {
                    None
                };
                assert_eq!(queue.in_flight(), in_flight.len(), "{context}");
                let Some(slot) = slot else { continue };
                assert_eq!(slot, answered % entries, "{context}");
                let head = if flow_control { (arrived % entries) as u16 } else { 0xffff };
                let phase = u16::from((answered / entries).is_multiple_of(2));
                assert_eq!((done.sqhd.get(), done.sqid.get()), (head, 5), "{context}");
                assert_eq!((done.status_phase.get() & 1, done.status()), (phase, Status::COMPARE_FAILURE), "{context}");
                answered += 1;
            }
        }
    }

    #[test]
    #[should_panic(expected = "a queue must have at least 2 entries, not 1")]
    fn a_queue_of_one_entry_would_never_be_full_nor_empty() {
        drop(QueuePair::new(1, 1, true));
    }

    #[test]
    #[should_panic(expected = "not in flight")]
    fn a_completion_has_one_sender() {
        QueuePair::new(1, 4, true).complete(&mut entry(1));
    }
}
