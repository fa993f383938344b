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

/// Least number of bytes of data that are sent from where they were read, instead of being copied to the buffer.
const DIRECT_BYTES: usize = 64 << 10;

/// Maximum number of data buffers that an I/O queue keeps for later commands.
const ROOMS_MAX: usize = 16;
/// Maximum total size of these buffers.
const ROOMS_BYTES_MAX: usize = 2 << 20;

/// Data that are sent from where they were read.
#[derive(Debug)]
struct DirectData {
    /// Number of buffered bytes that are sent before them.
    position: usize,
    room: Vec<u8>,
    /// Number of bytes of the room that are sent.
    len: usize,
}

/// PDUs that wait to be sent.
#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Data between the buffered bytes, in order.
    direct: Vec<DirectData>,
    direct_bytes: usize,
    /// Memory of data that were sent, for data of later commands. Only I/O queues keep any.
    rooms: Vec<Vec<u8>>,
    is_io: bool,
    failed: bool,
}

impl Waiting {
    fn keep(&mut self, room: Vec<u8>) {
        let kept: usize = self.rooms.iter().map(Vec::len).sum();
        let fits = self.rooms.len() < ROOMS_MAX && kept + room.len() <= ROOMS_BYTES_MAX;
        if self.is_io && !room.is_empty() && fits {
            self.rooms.push(room);
        }
    }

    /// Sends all PDUs by as few system calls as possible.
    fn send(&mut self) {
        if !self.failed && self.write_all().is_err() {
            // The reading half notices the error, too, and ends the connection.
            self.failed = true;
            drop(self.stream.shutdown(std::net::Shutdown::Both));
        }
        self.bytes.clear();
        self.direct_bytes = 0;
        for data in std::mem::take(&mut self.direct) {
            self.keep(data.room);
        }
    }

    fn write_all(&mut self) -> io::Result<()> {
        let mut slices = Vec::with_capacity(2 * self.direct.len() + 1);
        let mut sent = 0;
        for data in &self.direct {
            slices.push(IoSlice::new(&self.bytes[sent..data.position]));
            slices.push(IoSlice::new(&data.room[..data.len]));
            sent = data.position;
        }
        slices.push(IoSlice::new(&self.bytes[sent..]));
        let mut rest = &mut slices[..];
        // Passes over slices that are empty.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut rest, n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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
        let (bytes, direct, rooms) = (Vec::new(), Vec::new(), Vec::new());
        let waiting = Waiting { stream, bytes, direct, direct_bytes: 0, rooms, is_io: false, failed: false };
        // An admin queue of 32 entries until the connect command gives another size.
        Self { waiting: Mutex::new(waiting), queue: Mutex::new(QueuePair::new(0, 32, true)), digests }
    }

    /// Replaces the queue once the connect command has given its number and size; that command is in flight on it.
    pub(crate) fn set_queue(&self, mut queue: QueuePair, connect: u16) {
        queue.accept(connect).expect("a new queue is empty");
        self.waiting.lock().is_io = queue.qid() > 0;
        *self.queue.lock() = queue;
    }

    /// Returns the number of commands that were accepted and are not completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.lock().in_flight()
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

    /// Sends the PDUs that wait if they have at least [`BATCH_BYTES`].
    fn bound(&self, waiting: &mut Waiting) {
        if waiting.bytes.len() + waiting.direct_bytes >= BATCH_BYTES {
            waiting.send();
        }
    }

    /// Returns memory for data of a command, at least `bytes` long, which is not cleared: fresh pages
    /// would cost more than the copy into them.
    pub(crate) fn room(&self, bytes: usize) -> Vec<u8> {
        let mut room = if bytes > 0 { self.waiting.lock().rooms.pop().unwrap_or_default() } else { Vec::new() };
        if room.len() < bytes {
            room.resize(bytes, 0);
        }
        room
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
        self.waiting.lock().send();
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
        waiting.send();
    }

    /// Closes the connection; later data is discarded.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.failed = true;
        // The other side may have closed it already.
        drop(waiting.stream.shutdown(std::net::Shutdown::Both));
    }
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

    /// Completes a command with data for the host: the first `len` bytes of `room`. If dwords 0 and 1 are 0, the last
    /// data PDU also stands for the completion.
    pub(crate) fn complete_with(self, mut entry: CompletionEntry, room: Vec<u8>, len: usize) {
        if !entry.status().ok() || len == 0 {
            self.outgoing.waiting.lock().keep(room);
            return self.complete(entry);
        }
        assert_eq!(entry.cid.get(), self.cid, "the completion of another command");
        self.outgoing.queue.lock().complete(&mut entry);
        let success = entry.dw0.get() == 0 && entry.dw1.get() == 0;
        let flags = FLAG_LAST | if success { FLAG_SUCCESS } else { 0 };
        let fields = TransferFields::new(self.cid, 0, 0, len as u32);
        let digests = self.outgoing.digests;
        {
            let mut waiting = self.outgoing.waiting.lock();
            pdu::begin(&mut waiting.bytes, PduKind::C2HData, flags, fields.as_bytes(), len, digests);
            if len >= DIRECT_BYTES && !digests.data {
                let position = waiting.bytes.len();
                waiting.direct_bytes += len;
                waiting.direct.push(DirectData { position, room, len });
            } else {
                pdu::data(&mut waiting.bytes, &room[..len], digests);
                waiting.keep(room);
            }
            self.outgoing.bound(&mut waiting);
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
