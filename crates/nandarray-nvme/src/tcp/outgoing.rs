//! The sending half of a connection: one lock protects the PDUs that wait, another the socket, so that PDUs of several
//! threads are never interleaved.
//!
//! The connection's own thread waits for a host that does not receive. Workers and the thread that sends events serve
//! all hosts, and never wait: a thread made for it sends what they could not. A host that does not receive in time
//! loses its connection.
//!
//! A [`Completer`] is the right to complete one command. It is created when the command is accepted, and consumed by
//! its completion, so that each command is completed once.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nandarray::nvme::{CompletionEntry, Status};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::endpoint::SocketStream;
use super::held::CommandMemory;
use super::pdu::{self, Digests, FLAG_LAST, FLAG_SUCCESS, FatalError, PduKind, TransferFields};
use crate::queue::QueuePair;

/// Size of the stack of a thread that sends, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// Number of buffered bytes at which they are sent before the batch ends.
const BATCH_BYTES: usize = 512 << 10;

/// Least number of bytes of data that are sent from where they were read, instead of being copied to the buffer.
const DIRECT_BYTES: usize = 64 << 10;

/// Maximum number of data buffers that an I/O queue keeps for later commands.
const ROOMS_MAX: usize = 16;
/// Maximum total size of these buffers.
const ROOMS_BYTES_MAX: usize = 2 << 20;

/// Maximum number of parts that one system call sends.
const PARTS_MAX: usize = 1024;
/// Time in which a host has to receive a batch, beside a second for each [`RATE_BYTES`] of it.
pub(super) const SEND_TIME: Duration = Duration::from_secs(30);
/// Number of bytes that a host has to receive in a second.
const RATE_BYTES: u64 = 1 << 20;

/// Data that are sent from where they were read.
#[derive(Debug)]
struct DirectData {
    /// Number of buffered bytes that are sent before them.
    position: usize,
    room: Vec<u8>,
    /// Number of bytes of the room that are sent.
    len: usize,
}

/// PDUs in the order in which they are sent.
#[derive(Debug, Default)]
struct OutgoingBatch {
    bytes: Vec<u8>,
    /// Data between the buffered bytes, in order.
    direct: Vec<DirectData>,
    direct_bytes: usize,
    /// Memory of the commands whose answers these are.
    memory: Vec<CommandMemory>,
}

impl OutgoingBatch {
    fn len(&self) -> usize {
        self.bytes.len() + self.direct_bytes
    }

    /// Returns the parts from byte `sent` on, as many as one system call sends.
    fn parts(&self, sent: usize) -> Vec<IoSlice<'_>> {
        let mut parts = Vec::with_capacity(2 * self.direct.len() + 1);
        let mut at = 0;
        for data in &self.direct {
            parts.push(&self.bytes[at..data.position]);
            parts.push(&data.room[..data.len]);
            at = data.position;
        }
        parts.push(&self.bytes[at..]);
        let mut skip = sent;
        let rest = parts.into_iter().filter_map(|part| {
            let gone = skip.min(part.len());
            skip -= gone;
            (gone < part.len()).then(|| IoSlice::new(&part[gone..]))
        });
        rest.take(PARTS_MAX).collect()
    }
}

/// PDUs that wait to be sent.
#[derive(Debug, Default)]
struct Waiting {
    batch: OutgoingBatch,
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
}

/// The batch that is being sent.
#[derive(Debug)]
struct Sending {
    stream: SocketStream,
    batch: OutgoingBatch,
    /// Number of its bytes that were sent.
    sent: usize,
}

/// Whether a thread may wait until the host receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It is the connection's own.
    Waits,
    /// It is one that other hosts need, too.
    Never,
}

impl Sending {
    /// Sends the rest of the batch; returns false if the host does not receive now and the thread may not wait.
    fn send(&mut self, patience: Patience) -> io::Result<bool> {
        let may_wait = patience == Patience::Waits;
        let rest = (self.batch.len() - self.sent) as u64;
        let limit = SEND_TIME + Duration::from_secs(rest / RATE_BYTES);
        let begun = Instant::now();
        while self.sent < self.batch.len() {
            let parts = self.batch.parts(self.sent);
            match self.stream.send(&parts, may_wait, SEND_TIME)? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(n) => self.sent += n,
                None => return Ok(false),
            }
            if may_wait && begun.elapsed() > limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(true)
    }
}

/// The sending half of a connection, with its queue pair.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// A thread has this lock for as long as it takes to add a PDU, never while it waits for the host.
    waiting: Mutex<Waiting>,
    /// A thread has this lock while it sends.
    sending: Mutex<Sending>,
    /// The socket once more, to close it while another thread sends.
    socket: SocketStream,
    /// Whether a thread of its own sends what a worker could not.
    is_draining: AtomicBool,
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
    pub(crate) fn new(stream: SocketStream, digests: Digests) -> io::Result<Self> {
        let socket = stream.try_clone()?;
        // An admin queue of 32 entries until the connect command gives another size.
        let queue = Mutex::new(QueuePair::new(0, 32, true));
        let sending = Mutex::new(Sending { stream, batch: OutgoingBatch::default(), sent: 0 });
        Ok(Self { waiting: Mutex::default(), sending, socket, is_draining: AtomicBool::new(false), queue, digests })
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
        self.add(PduKind::CapsuleResp, entry.as_bytes(), self.digests);
    }

    /// Adds a PDU without data to those that wait.
    fn add(&self, kind: PduKind, rest: &[u8], digests: Digests) {
        let mut waiting = self.waiting.lock();
        if !waiting.failed {
            pdu::begin(&mut waiting.batch.bytes, kind, 0, rest, 0, digests);
        }
    }

    /// Sends the PDUs that wait if they have at least [`BATCH_BYTES`].
    pub(crate) fn bound(&self) {
        if self.waiting.lock().batch.len() >= BATCH_BYTES {
            self.flush();
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
        self.add(PduKind::R2T, fields.as_bytes(), self.digests);
    }

    /// Queues the answer to a handshake; `limit` is the most bytes of data in one H2CData PDU.
    pub(crate) fn handshake(&self, limit: u32) {
        self.add(PduKind::ICResp, &pdu::handshake(self.digests, limit), Digests::default());
    }

    /// Sends all PDUs that wait; the calling thread, which is the connection's own, waits for the host.
    pub(crate) fn flush(&self) {
        while self.has_some() {
            let mut sending = self.sending.lock();
            if !self.send(&mut sending, Patience::Waits) {
                return;
            }
        }
    }

    /// Sends all PDUs that wait, as far as the host receives them now; a thread made for it sends the rest. The calling
    /// thread never waits.
    pub(crate) fn flush_soon(self: &Arc<Self>) {
        while self.has_some() {
            // The thread that sends now looks again afterwards.
            let Some(mut sending) = self.sending.try_lock() else { return };
            if !self.send(&mut sending, Patience::Never) {
                drop(sending);
                return self.drain();
            }
        }
    }

    fn has_some(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.failed && waiting.batch.len() > 0
    }

    /// Sends what is left of the batch, and the PDUs that wait; returns false if some are left, or the connection has
    /// failed.
    fn send(&self, sending: &mut Sending, patience: Patience) -> bool {
        loop {
            match sending.send(patience) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    // The reading half notices the error, too, and ends the connection.
                    self.fail();
                    sending.batch = OutgoingBatch::default();
                    sending.sent = 0;
                    return false;
                }
            }
            let mut waiting = self.waiting.lock();
            let mut done = std::mem::take(&mut sending.batch);
            sending.sent = 0;
            done.direct.drain(..).for_each(|data| waiting.keep(data.room));
            if waiting.batch.len() == 0 {
                // Its memory is used again.
                done.bytes.clear();
                (done.direct_bytes, done.memory) = (0, Vec::new());
                std::mem::swap(&mut waiting.batch.bytes, &mut done.bytes);
                return true;
            }
            sending.batch = std::mem::take(&mut waiting.batch);
        }
    }

    /// Has a thread of its own send the rest, unless there is one.
    fn drain(self: &Arc<Self>) {
        if self.is_draining.swap(true, Ordering::SeqCst) {
            return;
        }
        let outgoing = self.clone();
        let run = move || {
            outgoing.finish();
            outgoing.is_draining.store(false, Ordering::SeqCst);
            // A worker may have left this thread the rest just before.
            outgoing.finish();
        };
        if thread::Builder::new().name("nvme-send".to_owned()).stack_size(STACK_BYTES).spawn(run).is_err() {
            self.fail();
        }
    }

    /// Sends what is left of the batch, and all PDUs that wait.
    fn finish(&self) {
        if self.send(&mut self.sending.lock(), Patience::Waits) {
            self.flush();
        }
    }

    /// Discards what waits, and closes the socket, which ends the connection.
    fn fail(&self) {
        let mut waiting = self.waiting.lock();
        waiting.failed = true;
        waiting.batch = OutgoingBatch::default();
        // The other side may have closed it already.
        drop(self.socket.shutdown(Shutdown::Both));
    }

    /// Sends the reason for which the connection ends, with the header that caused it.
    pub(crate) fn terminate(&self, error: FatalError, header: &[u8]) {
        let mut rest = [0u8; 16];
        rest[..2].copy_from_slice(&(error.status as u16).to_le_bytes());
        rest[2..6].copy_from_slice(&error.detail.to_le_bytes());
        let header = &header[..header.len().min(128)];
        {
            let mut waiting = self.waiting.lock();
            pdu::begin(&mut waiting.batch.bytes, PduKind::C2HTermReq, 0, &rest, header.len(), Digests::default());
            waiting.batch.bytes.extend_from_slice(header);
        }
        self.flush();
    }

    /// Closes the connection; later data is discarded.
    pub(crate) fn close(&self) {
        self.fail();
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
    pub(crate) fn complete_with(self, entry: CompletionEntry, room: Vec<u8>, len: usize) {
        self.complete_holding(entry, room, len, None);
    }

    /// As [`Self::complete_with`], with memory that is free again once the answer is sent.
    pub(crate) fn complete_holding(
        self,
        mut entry: CompletionEntry,
        room: Vec<u8>,
        len: usize,
        memory: Option<CommandMemory>,
    ) {
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
            if waiting.failed {
                return;
            }
            let batch = &mut waiting.batch;
            pdu::begin(&mut batch.bytes, PduKind::C2HData, flags, fields.as_bytes(), len, digests);
            batch.memory.extend(memory);
            if len >= DIRECT_BYTES && !digests.data {
                batch.direct_bytes += len;
                batch.direct.push(DirectData { position: batch.bytes.len(), room, len });
            } else {
                pdu::data(&mut batch.bytes, &room[..len], digests);
                waiting.keep(room);
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
