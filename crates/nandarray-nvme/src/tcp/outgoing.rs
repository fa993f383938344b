//! The sending half of a connection: one lock protects the buffer, so that PDUs of several threads are never
//! interleaved.
//!
//! A [`Completer`] is the right to complete one command. It is created when the command is accepted, and consumed by
//! its completion, so that each command is completed once.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::Arc;

use nandarray::nvme::{CompletionEntry, Status};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::pdu::{self, Digests, FLAG_LAST, FLAG_SUCCESS, FatalError, PduKind, TransferFields};
use crate::queue::QueuePair;

/// Number of buffered bytes at which they are sent before the batch ends.
const BATCH_BYTES: usize = 512 << 10;

/// Least number of bytes of data that are sent at once, from the caller's memory, instead of being buffered.
const DIRECT_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    bytes: Vec<u8>,
    failed: bool,
}

/// The sending half of a connection, with its queue pair.
#[derive(Debug)]
pub(crate) struct Outgoing {
    waiting: Mutex<Waiting>,
    queue: Mutex<QueuePair>,
    digests: Digests,
}

/// The right to complete one command.
#[derive(Debug)]
pub(crate) struct Completer {
    outgoing: Arc<Outgoing>,
    cid: u16,
}

impl Outgoing {
    pub(crate) fn new(stream: TcpStream, digests: Digests) -> Self {
        let waiting = Waiting { stream, bytes: Vec::new(), failed: false };
        // An admin queue of 32 entries until the connect command gives another size.
        Self { waiting: Mutex::new(waiting), queue: Mutex::new(QueuePair::new(0, 32, true)), digests }
    }

    /// Replaces the queue once the connect command has given its number and size; that command is in flight on it.
    pub(crate) fn set_queue(&self, mut queue: QueuePair, connect: u16) {
        queue.accept(connect).expect("a new queue is empty");
        *self.queue.lock() = queue;
    }

    /// Accepts a command; returns the right to complete it.
    ///
    /// # Errors
    /// If the command must be refused; its completion with that status is queued.
    pub(crate) fn accept(self: &Arc<Self>, cid: u16) -> Result<Completer, Status> {
        let mut queue = self.queue.lock();
        if let Err(status) = queue.accept(cid) {
            let mut entry = CompletionEntry { cid: cid.into(), ..CompletionEntry::default() };
            entry.set_status(status);
            queue.refuse(&mut entry);
            self.respond(entry);
            return Err(status);
        }
        Ok(Completer { outgoing: self.clone(), cid })
    }

    fn respond(&self, mut entry: CompletionEntry) {
        // Completions in capsules have no phase.
        entry.status_phase.set(entry.status_phase.get() & !1);
        let mut waiting = self.waiting.lock();
        pdu::begin(&mut waiting.bytes, PduKind::CapsuleResp, 0, entry.as_bytes(), 0, self.digests);
        self.bound(&mut waiting);
    }

    /// Sends the buffered bytes if they are at least [`BATCH_BYTES`].
    fn bound(&self, waiting: &mut Waiting) {
        if waiting.bytes.len() >= BATCH_BYTES {
            send(waiting);
        }
    }

    /// Requests data of a command from the host.
    pub(crate) fn ready_to_transfer(&self, fields: TransferFields) {
        let mut waiting = self.waiting.lock();
        pdu::begin(&mut waiting.bytes, PduKind::R2T, 0, fields.as_bytes(), 0, self.digests);
    }

    /// Queues the answer to a handshake; `limit` is the most bytes of data in one H2CData PDU.
    pub(crate) fn handshake(&self, limit: u32) {
        let mut waiting = self.waiting.lock();
        let rest = pdu::handshake(self.digests, limit);
        pdu::begin(&mut waiting.bytes, PduKind::ICResp, 0, &rest, 0, Digests::default());
    }

    /// Sends all buffered bytes.
    pub(crate) fn flush(&self) {
        send(&mut self.waiting.lock());
    }

    /// Sends the reason for which the connection ends, with the header that caused it.
    pub(crate) fn terminate(&self, error: FatalError, header: &[u8]) {
        let mut rest = [0u8; 16];
        rest[..2].copy_from_slice(&(error.status as u16).to_le_bytes());
        rest[2..6].copy_from_slice(&error.detail.to_le_bytes());
        let header = &header[..header.len().min(128)];
        let mut waiting = self.waiting.lock();
        pdu::begin(&mut waiting.bytes, PduKind::C2HTermReq, 0, &rest, header.len(), Digests::default());
        waiting.bytes.extend_from_slice(header);
        send(&mut waiting);
    }

    /// Closes the connection; later data is discarded.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.failed = true;
        // The other side may have closed it already.
        drop(waiting.stream.shutdown(std::net::Shutdown::Both));
    }
}

fn send(waiting: &mut Waiting) {
    send_with(waiting, &[]);
}

/// Writes two slices by as few system calls as possible.
fn write_both(stream: &mut TcpStream, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut both = [IoSlice::new(first), IoSlice::new(second)];
    let mut rest = &mut both[..];
    // Passes over slices that are empty.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends all buffered bytes, then `data`.
fn send_with(waiting: &mut Waiting, data: &[u8]) {
    let Waiting { stream, bytes, failed } = waiting;
    if !*failed && write_both(stream, bytes, data).is_err() {
        // The reading half notices the error, too, and ends the connection.
        *failed = true;
        drop(stream.shutdown(std::net::Shutdown::Both));
    }
    bytes.clear();
}

impl Completer {
    /// Returns the identifier of the command.
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// Completes the command without data.
    pub(crate) fn complete(self, mut entry: CompletionEntry) {
        assert_eq!(entry.cid.get(), self.cid, "the completion of another command");
        self.outgoing.queue.lock().complete(&mut entry);
        self.outgoing.respond(entry);
    }

    /// Completes a command with data for the host. If dwords 0 and 1 are 0, the last data PDU also stands for the
    /// completion.
    pub(crate) fn complete_with(self, mut entry: CompletionEntry, data: &[u8]) {
        if !entry.status().ok() || data.is_empty() {
            return self.complete(entry);
        }
        assert_eq!(entry.cid.get(), self.cid, "the completion of another command");
        self.outgoing.queue.lock().complete(&mut entry);
        let success = entry.dw0.get() == 0 && entry.dw1.get() == 0;
        let flags = FLAG_LAST | if success { FLAG_SUCCESS } else { 0 };
        let fields = TransferFields::new(self.cid, 0, 0, data.len() as u32);
        let digests = self.outgoing.digests;
        {
            let mut waiting = self.outgoing.waiting.lock();
            pdu::begin(&mut waiting.bytes, PduKind::C2HData, flags, fields.as_bytes(), data.len(), digests);
            if data.len() >= DIRECT_BYTES && !digests.data {
                send_with(&mut waiting, data);
            } else {
                pdu::data(&mut waiting.bytes, data, digests);
                self.outgoing.bound(&mut waiting);
            }
        }
        if !success {
            self.outgoing.respond(entry);
        }
    }

    /// Returns the connection's sending half.
    pub(crate) fn outgoing(&self) -> Arc<Outgoing> {
        self.outgoing.clone()
    }
}
