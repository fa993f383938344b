//! The server's side of one queue pair.
//!
//! The states of a pair: it is free until a client sets the word `claim` to an odd number, then it is served, until the
//! client ends it (an even number), the client's process ends (the lock of the claim is released), or the server ends
//! it because the client broke the protocol (the word `ended` has the status). The server copies each entry once before
//! it checks it, and relies only on its own counts of entries and completions.

use std::sync::atomic::Ordering;

use zerocopy::FromZeros;

use crate::entries::{
    BROKEN, BlockPart, Blocks, Controller, DataBuffer, FLUSH, NSID_ALL, READ, Status, SubmissionEntry, WRITE,
};
use crate::layout::{
    CLAIM, CLAIM_BYTE, CQ_HEAD, ENDED, LBA_BYTES, QUEUE_HEADER_BYTES, READY, RegionHeader, SQ_TAIL, phase,
};
use crate::prepared::{ARRAY_NSID, Prepared};
use crate::region::{PairRings, QueueRegion};

/// The state of a queue pair, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairState {
    /// No client has claimed the pair, or its client has ended.
    Free,
    /// A client has claimed the pair, and its commands are served.
    Served,
    /// The client broke the protocol and is not served any more; a new claim begins again.
    Ended,
}

/// The data that all pairs of a server share.
#[derive(Debug)]
pub(crate) struct ServedStore {
    pub(crate) region: QueueRegion,
    pub(crate) header: RegionHeader,
    /// Served arrays; an array's index is its namespace identifier less [`ARRAY_NSID`].
    pub(crate) arrays: Vec<Prepared>,
    pub(crate) controller: Controller,
    /// Whether clients may write and flush.
    pub(crate) writable: bool,
}

/// The server's side of one queue pair.
#[derive(Debug)]
pub(crate) struct ServedPair {
    queue: u32,
    at: u64,
    state: PairState,
    /// The last value of the word `claim` that the server saw.
    claim: u32,
    /// Number of entries fetched since the claim, modulo 2^32.
    fetched: u32,
    /// Number of completions posted since the claim, modulo 2^32.
    posted: u32,
    batch: ReadBatch,
}

/// Maximum number of reads that are executed together.
const BATCH_READS_MAX: usize = 64;
/// Maximum number of bytes that are read together, less the last command's.
const BATCH_BYTES_MAX: u64 = 256 << 10;

/// The place of a command in a batch of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// The command was added to the batch.
    Added,
    /// The command can be read with others, but does not continue this batch.
    Later,
    /// The command has to be executed for itself.
    Alone,
}

/// Reads of equally many elements of one array to places at equal distances, which the engine executes by one command.
#[derive(Debug, Default)]
struct ReadBatch {
    entries: Vec<SubmissionEntry>,
    firsts: Vec<u64>,
    /// Number of elements, and of bytes, of each read.
    elements: u64,
    bytes: u64,
    /// Distance between successive places in bytes; 0 with fewer than two reads.
    apart: u64,
}

impl ReadBatch {
    /// Adds a command if it can be read with those before it.
    #[inline]
    fn offer(&mut self, shared: &ServedStore, entry: &SubmissionEntry) -> Offer {
        let nsid = entry.nsid.get();
        if entry.opcode != READ || entry.flags != 0 || nsid < ARRAY_NSID {
            return Offer::Alone;
        }
        let Some(array) = shared.arrays.get((nsid - ARRAY_NSID) as usize) else { return Offer::Alone };
        self.offer_read(shared, array, entry)
    }

    fn offer_read(&mut self, shared: &ServedStore, array: &Prepared, entry: &SubmissionEntry) -> Offer {
        let blocks = Blocks::decode(entry);
        let (slba, nlb) = (blocks.slba, blocks.nlb());
        let bytes = nlb * LBA_BYTES;
        let (Some(run), Ok(_)) = (array.run(slba, nlb), data(shared, entry, bytes)) else { return Offer::Alone };
        if let Some(last) = self.entries.last() {
            let place = (last.nsid, self.elements) == (entry.nsid, run.elements);
            let apart = entry.dptr[0].get().saturating_sub(last.dptr[0].get());
            let even = apart >= bytes && (self.apart == 0 || self.apart == apart);
            let full = self.entries.len() == BATCH_READS_MAX || self.entries.len() as u64 * bytes >= BATCH_BYTES_MAX;
            if !place || !even || full {
                return Offer::Later;
            }
            self.apart = apart;
        }
        (self.elements, self.bytes) = (run.elements, bytes);
        self.entries.push(*entry);
        self.firsts.push(run.first);
        Offer::Added
    }

    /// Executes two or more reads together; `false` if each has to be executed for itself.
    fn read(&self, shared: &ServedStore) -> bool {
        let [first, _, ..] = self.entries.as_slice() else { return false };
        let array = &shared.arrays[(first.nsid.get() - ARRAY_NSID) as usize];
        let bytes = (self.entries.len() as u64 - 1) * self.apart + self.bytes;
        let Ok(to) = data(shared, first, bytes) else { return false };
        // SAFETY: memory of the region, as in `move_blocks`; the places lie within it and do not overlap.
        unsafe { array.read_runs(&self.firsts, self.elements, to, self.apart) }.is_ok()
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.firsts.clear();
        self.apart = 0;
    }
}

impl ServedPair {
    pub(crate) fn new(header: &RegionHeader, queue: u32) -> Self {
        Self {
            queue,
            at: header.queue(queue),
            state: PairState::Free,
            claim: 0,
            fetched: 0,
            posted: 0,
            batch: ReadBatch::default(),
        }
    }

    /// Returns whether the client has rung its doorbell or changed its claim since the last round.
    pub(crate) fn has_work(&self, region: &QueueRegion) -> bool {
        let claim = region.word(self.at + CLAIM).load(Ordering::SeqCst);
        let served = self.state == PairState::Served;
        claim != self.claim || (served && region.word(self.at + SQ_TAIL).load(Ordering::SeqCst) != self.fetched)
    }

    /// Returns whether a client has claimed the pair and is served.
    pub(crate) fn is_served(&self) -> bool {
        self.state == PairState::Served
    }

    /// Frees the pair if no client holds the lock of its claim any more; returns whether this was so.
    pub(crate) fn drop_dead(&mut self, region: &QueueRegion) -> bool {
        let dead = self.state != PairState::Free && !region.held(CLAIM_BYTE + i64::from(self.queue));
        if dead {
            self.state = PairState::Free;
        }
        dead
    }

    /// Serves the commands that the client has submitted so far; returns their number.
    pub(crate) fn serve(&mut self, shared: &ServedStore) -> u64 {
        let region = &shared.region;
        let claim = region.word(self.at + CLAIM).load(Ordering::Acquire);
        if claim != self.claim {
            self.begin(shared, claim);
        }
        if self.state != PairState::Served {
            return 0;
        }
        let depth = shared.header.depth;
        let tail = region.word(self.at + SQ_TAIL).load(Ordering::Acquire);
        let head = region.word(self.at + CQ_HEAD).load(Ordering::Acquire);
        let (waiting, unseen) = (tail.wrapping_sub(self.fetched), self.posted.wrapping_sub(head));
        if waiting > depth || unseen > depth {
            self.state = PairState::Ended;
            region.word(self.at + ENDED).store(BROKEN, Ordering::Release);
            return 0;
        }
        let (n, pair) = (waiting.min(depth - unseen), region.pair_rings(self.at, depth));
        for _ in 0..n {
            let entry: SubmissionEntry = zerocopy::transmute!(pair.take(self.fetched));
            self.fetched = self.fetched.wrapping_add(1);
            let mut offer = self.batch.offer(shared, &entry);
            if offer != Offer::Added && !self.batch.entries.is_empty() {
                self.end_batch(shared, pair);
            }
            if offer == Offer::Later {
                offer = self.batch.offer(shared, &entry);
            }
            if offer != Offer::Added {
                let (status, result) = execute(shared, &entry);
                self.post(pair, entry.cid.get(), status, result);
            }
        }
        if !self.batch.entries.is_empty() {
            self.end_batch(shared, pair);
        }
        u64::from(n)
    }

    /// Executes the batch, and posts its completions. If the engine refuses it, each command gets a status of its own.
    fn end_batch(&mut self, shared: &ServedStore, pair: PairRings<'_>) {
        let together = self.batch.read(shared);
        for i in 0..self.batch.entries.len() {
            let entry = self.batch.entries[i];
            let (status, result) = if together { (Status::SUCCESS, 0) } else { execute(shared, &entry) };
            self.post(pair, entry.cid.get(), status, result);
        }
        self.batch.clear();
    }

    fn begin(&mut self, shared: &ServedStore, claim: u32) {
        let (region, depth) = (&shared.region, u64::from(shared.header.depth));
        self.claim = claim;
        (self.fetched, self.posted) = (0, 0);
        self.state = if claim % 2 == 1 { PairState::Served } else { PairState::Free };
        let cq = self.at + QUEUE_HEADER_BYTES + 64 * depth;
        for i in 0..2 * depth {
            region.long(cq + 8 * i).store(0, Ordering::Relaxed);
        }
        region.word(self.at + ENDED).store(0, Ordering::Relaxed);
        region.word(self.at + READY).store(claim, Ordering::Release);
    }

    /// Posts a completion; writes the half with the phase tag last, which makes the completion visible.
    #[inline(always)]
    fn post(&mut self, pair: PairRings<'_>, cid: u16, status: Status, result: u64) {
        let [first, last] = pair.completion(self.posted);
        first.store(result, Ordering::Relaxed);
        let half = u64::from(self.fetched as u16)
            | u64::from(self.queue as u16) << 16
            | u64::from(cid) << 32
            | phase(self.posted, pair.depth()) << 48
            | u64::from(status.bits()) << 49;
        last.store(half, Ordering::Release);
        self.posted = self.posted.wrapping_add(1);
    }
}

/// Executes a command; returns its status, and dwords 0 and 1 of its completion.
#[inline]
fn execute(shared: &ServedStore, entry: &SubmissionEntry) -> (Status, u64) {
    let nsid = entry.nsid.get();
    if entry.flags != 0 {
        return (Status::INVALID_FIELD, 0);
    }
    if entry.opcode == FLUSH || nsid < ARRAY_NSID {
        return by_controller(shared, entry);
    }
    let array = shared.arrays.get((nsid - ARRAY_NSID) as usize);
    let done = match (array, entry.opcode) {
        (None, _) => Err(Status::INVALID_NAMESPACE),
        (Some(array), READ | WRITE) => move_blocks(shared, array, entry),
        _ => Err(Status::INVALID_OPCODE),
    };
    (done.err().unwrap_or(Status::SUCCESS), 0)
}

fn move_blocks(shared: &ServedStore, array: &Prepared, entry: &SubmissionEntry) -> Result<(), Status> {
    assert_eq!(array.nsid, entry.nsid.get(), "arrays lie by their identifiers");
    let blocks = Blocks::decode(entry);
    let (slba, nlb, fua) = (blocks.slba, blocks.nlb(), blocks.fua);
    let at = data(shared, entry, nlb * LBA_BYTES)?;
    if entry.opcode == READ {
        // SAFETY: `data` returns memory of the region; a client that uses the memory meanwhile harms only its own
        // bytes.
        return unsafe { array.read(slba, nlb, at) };
    }
    let part = BlockPart::decode(entry);
    if part.bytes == 0 {
        // SAFETY: as above.
        unsafe { array.write(slba, nlb, at) }?;
    } else {
        // SAFETY: as above.
        unsafe { array.write_elements((slba, nlb), (part.skip.into(), part.bytes.into()), at) }?;
    }
    if fua { by_controller(shared, &flush_all()).0.ok().then_some(()).ok_or(Status::INTERNAL_ERROR) } else { Ok(()) }
}

fn flush_all() -> SubmissionEntry {
    let mut entry = SubmissionEntry::new_zeroed();
    entry.opcode = FLUSH;
    entry.nsid.set(NSID_ALL);
    entry
}

/// Returns the address of a command's data; an error if the data does not lie within the data areas of the region.
fn data(shared: &ServedStore, entry: &SubmissionEntry, bytes: u64) -> Result<*mut u8, Status> {
    let header = &shared.header;
    let first = entry.dptr[0].get();
    let end = header.data_offset + u64::from(header.queues) * header.data_stride;
    let inside = first >= header.data_offset && first.checked_add(bytes).is_some_and(|e| e <= end);
    if inside { Ok(shared.region.at(first, bytes)) } else { Err(Status::INVALID_FIELD) }
}

/// Lets the NVMe controller execute a command, which is for one of the controller's own namespaces, or a flush; returns
/// the status, and dwords 0 and 1 of the completion.
fn by_controller(shared: &ServedStore, entry: &SubmissionEntry) -> (Status, u64) {
    let mut entry = *entry;
    if entry.opcode == FLUSH && entry.nsid.get() >= ARRAY_NSID {
        entry.nsid.set(NSID_ALL);
    }
    let writes = !matches!(entry.opcode, FLUSH | READ);
    if writes && !shared.writable {
        return (Status::WRITE_PROTECTED, 0);
    }
    let buffer = match entry.opcode {
        FLUSH => DataBuffer::NONE,
        READ | WRITE => {
            // The controller checks lengths against the namespace's block size; its blocks have 512 bytes or more.
            let Some(bytes) = namespace_bytes(shared, &entry) else { return (Status::INVALID_NAMESPACE, 0) };
            match data(shared, &entry, bytes) {
                // SAFETY: memory of the region, as in `move_blocks`.
                Ok(at) if entry.opcode == READ => unsafe { DataBuffer::to_host_raw(at, bytes) },
                // SAFETY: as above.
                Ok(at) => unsafe { DataBuffer::to_controller_raw(at, bytes) },
                Err(status) => return (status, 0),
            }
        }
        _ => return (Status::INVALID_OPCODE, 0),
    };
    let done = shared.controller.submit(&entry, buffer);
    (done.status(), u64::from(done.dw0.get()) | u64::from(done.dw1.get()) << 32)
}

/// Returns the number of bytes that a read or write of one of the controller's namespaces transfers; `None` if there is
/// no such namespace.
fn namespace_bytes(shared: &ServedStore, entry: &SubmissionEntry) -> Option<u64> {
    let name = format!("ns/{}", entry.nsid.get());
    let array = shared.arrays.iter().find(|a| a.name() == name)?;
    Some(Blocks::decode(entry).nlb() * u64::from(array.entry().item_bytes))
}
