//! Run Output on a connection: the command waits without a thread, and is completed by the thread that has its data:
//! one of the run, or the connection's own.

use std::sync::Arc;
use std::time::Instant;

use nandarray_nvme_spec::{CompletionEntry, NSID_ND, NdOpcode, SubmissionEntry};

use super::held::CommandMemory;
use super::outgoing::Completer;
use crate::association::Association;
use crate::measures::Measured;
use crate::run_outputs::OutputPiece;

/// Whether an entry is Run Output.
pub(super) fn is_run_output(entry: &SubmissionEntry) -> bool {
    entry.nsid.get() == NSID_ND && entry.opcode == NdOpcode::RUN_OUTPUT
}

/// Executes Run Output of queue `qid`, with room for `room` bytes.
pub(super) fn fetch(
    association: &Arc<Association>,
    qid: u16,
    completer: Completer,
    entry: SubmissionEntry,
    room: usize,
) {
    let (of, arrived) = (association.clone(), Instant::now());
    let answer = move |found: Result<Option<OutputPiece>, _>| {
        let outgoing = completer.outgoing();
        let told = found
            .as_ref()
            .map(|piece| piece.as_ref().map_or((0, 0), |piece| (piece.bytes.len() as u32, piece.output as u32)));
        let done = CompletionEntry::new(entry.cid.get(), told.map_err(|&status| status));
        let (bytes, memory) = match found {
            Ok(Some(piece)) => (piece.bytes, Some(CommandMemory::new(None, vec![piece.memory]))),
            _ => (Vec::new(), None),
        };
        let len = bytes.len();
        of.sent_piece(len);
        of.measure(qid, &entry, done.status(), Measured::of(arrived, None, len));
        completer.complete_holding(done, bytes, len, memory);
        outgoing.flush_soon();
    };
    association.fetch_output(qid, &entry, room, Box::new(answer));
}
