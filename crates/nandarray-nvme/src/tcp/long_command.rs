//! A command that a worker thread executes, from its arrival to its answer.
//!
//! The worker serves all hosts: it neither ends by a panic of the command nor waits for a host that does not receive.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use nandarray::panics::caught;
use nandarray_nvme_spec::{CompletionEntry, Opcode, Status, SubmissionEntry};

use super::held::CommandMemory;
use super::outgoing::Completer;
use crate::association::Association;
use crate::measures::Measured;
use crate::payload::Payload;

/// Returns the payload of a command: its data, or room for data to the host.
pub(super) fn payload<'a>(data: Option<&'a [u8]>, out: &'a mut [u8]) -> Payload<'a> {
    match data {
        Some(bytes) => Payload::ToController(bytes),
        None if out.is_empty() => Payload::None,
        None => Payload::ToHost(out),
    }
}

thread_local! {
    /// When the command that this worker thread executes arrived.
    static ARRIVED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the time at which the command that the calling thread executes arrived at its connection; `None` on threads
/// that are no workers of a server. A modelled drive counts a command's latency from it.
pub fn arrived() -> Option<Instant> {
    ARRIVED.get()
}

/// A command that a worker thread executes.
pub(super) struct LongCommand {
    pub(super) association: Arc<Association>,
    pub(super) qid: u16,
    pub(super) completer: Completer,
    pub(super) entry: SubmissionEntry,
    pub(super) data: Option<Vec<u8>>,
    pub(super) room: usize,
    /// Whether the completion of a write is sent only once the write survives the end of this process.
    pub(super) safe: bool,
    pub(super) memory: CommandMemory,
    /// When it arrived at its connection.
    pub(super) arrived: Instant,
}

impl LongCommand {
    /// Executes the command, and has its answer sent.
    pub(super) fn run(self) {
        ARRIVED.set(Some(self.arrived));
        self.execute();
        ARRIVED.set(None);
    }

    fn execute(self) {
        let Self { association, qid, completer, entry, data, room, safe, memory, arrived } = self;
        let outgoing = completer.outgoing();
        let mut out = outgoing.room(room);
        if entry.opcode != Opcode::READ {
            out[..room].fill(0);
        }
        // A panic must not end the worker, which all hosts share, nor leave the command without a completion.
        let done = caught(|| association.io(qid, &entry, payload(data.as_deref(), &mut out[..room])));
        let mut done = done.unwrap_or_else(|_| {
            let mut failed = CompletionEntry { cid: entry.cid, ..CompletionEntry::default() };
            failed.set_status(Status::INTERNAL_ERROR);
            failed
        });
        if safe && done.status().ok() {
            if let Err(status) = association.subsystem().settle() {
                done.set_status(status);
            }
        }
        association.measure(qid, &entry, done.status(), Measured::of(arrived, data.as_deref(), room));
        drop(data);
        completer.complete_holding(done, out, room, Some(memory));
        outgoing.flush_soon();
    }
}
