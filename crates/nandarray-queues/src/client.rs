//! A client of one claimed queue pair, which gathers records of arrays.
//!
//! Calls from several threads of the client's process take turns. The commands for the records of a call are in flight
//! together, as many as the pair's data area has room for; each record is copied to the caller's memory when its
//! completion arrives, in any order. Waits have a deadline, and end early if the server sets the abort word or no
//! longer holds its lock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nandarray::{Home, past_caches};
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::entries::{BlockPart, Blocks, FLUSH, READ, Status, SubmissionEntry, WRITE};
use crate::error::QueueError;
use crate::futex;
use crate::layout::{
    ABORT_OFFSET, ASLEEP, CLAIM, CLAIM_BYTE, CQ_HEAD, ENDED, LBA_BYTES, NamespaceEntry, READY, RegionHeader,
    SERVER_BYTE, SQ_TAIL, phase,
};
use crate::region::{PairRings, QueueRegion, region_path};
use crate::wait::{Wait, WaitEnd};

mod info;
#[cfg(test)]
mod tests;
mod writes;

pub use info::NamespaceInfo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTransfer {
    /// From the array.
    In,
    /// To whole blocks of the array.
    Out,
    /// To whole elements of the array, which may begin and end within blocks.
    Elements { item_bytes: u64 },
}

impl ClientTransfer {
    fn opcode(self) -> u8 {
        match self {
            Self::In => READ,
            Self::Out | Self::Elements { .. } => WRITE,
        }
    }
}

/// The way of a call's commands: their namespace, and the pair's rings.
#[derive(Clone, Copy, Debug)]
struct ClientWay<'a> {
    nsid: u32,
    pair: PairRings<'a>,
}

/// A run of bytes of a namespace, with its address in the caller's memory.
#[derive(Clone, Copy, Debug)]
struct ByteRun {
    direction: ClientTransfer,
    first_byte: u64,
    bytes: u64,
    memory: *mut u8,
}

/// Counters of the pair's rings, modulo 2^32, and the run of bytes that each command in flight transfers.
#[derive(Debug)]
struct Rings {
    submitted: u32,
    rung: u32,
    consumed: u32,
    /// Slots of the data area, in the order in which they came free: successive commands have successive slots.
    free: VecDeque<u16>,
    /// Size of a slot (the part of the data area that one command uses) in the current call, in bytes.
    slot_bytes: u64,
    /// Whether the current call's bytes are stored past the caches.
    past: bool,
    /// Whether a call ended while commands were in flight. The memory of that call may be gone, so no other call may
    /// begin.
    broken: bool,
    runs: Vec<Option<ByteRun>>,
}

// SAFETY: the address of a run is only used by the call that lent the memory, and under the lock.
unsafe impl Send for Rings {}

/// A client of a server of queue pairs, which has claimed one of them.
#[derive(Debug)]
pub struct QueueClient {
    region: QueueRegion,
    header: RegionHeader,
    name: String,
    queue: u32,
    at: u64,
    claim: u32,
    deadline: Duration,
    rings: Mutex<Rings>,
    /// The process that claimed the pair: a process forked from it shares the rings, and must leave them alone.
    home: Home,
}

impl QueueClient {
    /// Maps the region of this name and claims a queue pair. `deadline` is the longest time to wait for a completion.
    ///
    /// # Errors
    /// [`QueueError::System`], [`QueueError::NotARegion`], [`QueueError::Gone`], [`QueueError::Full`].
    pub fn open(name: &str, deadline: Duration) -> Result<Self, QueueError> {
        Self::open_with(name, deadline, || ())
    }

    /// Does the same as [`Self::open`], with a server in this thread: `step` is called in each round of waiting to let
    /// the server work.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(name: &str, deadline: Duration, mut step: impl FnMut()) -> Result<Self, QueueError> {
        let (region, header) = QueueRegion::open(&region_path(name))?;
        let free = (0..header.queues).find(|&q| region.lock(CLAIM_BYTE + i64::from(q)));
        let queue = free.ok_or(QueueError::Full(header.queues))?;
        let at = header.queue(queue);
        let claim = (region.word(at + CLAIM).load(Ordering::Relaxed) | 1).wrapping_add(2);
        region.word(at + SQ_TAIL).store(0, Ordering::Relaxed);
        region.word(at + CQ_HEAD).store(0, Ordering::Relaxed);
        // Clear the status that an earlier client got; the server writes no new one before it sees the claim.
        region.word(at + ENDED).store(0, Ordering::Relaxed);
        region.word(at + CLAIM).swap(claim, Ordering::SeqCst);
        let depth = header.depth as usize;
        let free = VecDeque::with_capacity(depth);
        let (slot_bytes, runs) = (LBA_BYTES, vec![None; depth]);
        let rings = Rings { submitted: 0, rung: 0, consumed: 0, free, slot_bytes, past: false, broken: false, runs };
        let rings = Mutex::new(rings);
        let (name, home) = (name.to_owned(), Home::here());
        let client = Self { region, header, name, queue, at, claim, deadline, rings, home };
        let mut wait = Wait::default();
        futex::wake(client.asleep());
        while client.word(READY).load(Ordering::Acquire) != claim {
            step();
            client.round(&mut wait)?;
        }
        Ok(client)
    }

    /// Returns the arrays that the server offers.
    pub fn arrays(&self) -> Vec<NamespaceInfo> {
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let entry = |i: u32| {
            let mut entry = NamespaceEntry::new_zeroed();
            let at = self.header.namespaces_offset + u64::from(i) * size_of::<NamespaceEntry>() as u64;
            self.region.copy_out(at, entry.as_mut_bytes());
            NamespaceInfo {
                nsid: entry.nsid,
                name: text(&entry.name),
                dtype: text(&entry.dtype),
                shape: entry.shape[..(entry.ndim as usize).min(16)].to_vec(),
                item_bytes: entry.item_bytes,
                bytes: entry.bytes,
                writable: entry.writable != 0,
            }
        };
        (0..self.header.namespaces).map(entry).collect()
    }

    /// Reads records of `record_bytes` bytes of an array, and stores record number `records[i]` at
    /// `to + i * record_bytes`.
    ///
    /// # Safety
    /// `to` has room for all records, and no other thread uses this memory during the call.
    ///
    /// # Errors
    /// [`QueueError::Status`] of the first command that failed, once all commands are complete;
    /// [`QueueError::TimedOut`]; [`QueueError::Gone`]; [`QueueError::Forked`].
    pub unsafe fn gather(&self, nsid: u32, record_bytes: u64, records: &[u64], to: *mut u8) -> Result<(), QueueError> {
        // SAFETY: the caller's promise.
        unsafe { self.gather_with(nsid, record_bytes, records, to, || ()) }
    }

    /// Does the same as [`Self::gather`], with a server in this thread: `step` is called in each round of waiting to
    /// let the server work.
    ///
    /// # Safety
    /// As [`Self::gather`].
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub unsafe fn gather_with(
        &self,
        nsid: u32,
        record_bytes: u64,
        records: &[u64],
        to: *mut u8,
        mut step: impl FnMut(),
    ) -> Result<(), QueueError> {
        let run = |(i, &record): (usize, &u64)| ByteRun {
            direction: ClientTransfer::In,
            first_byte: record.saturating_mul(record_bytes),
            bytes: record_bytes,
            // SAFETY: the caller's promise.
            memory: unsafe { to.add(i * record_bytes as usize) },
        };
        self.transfer(nsid, record_bytes, records.iter().enumerate().map(run), &mut step)
    }

    /// Reads `bytes` bytes of an array from byte `first_byte` on.
    ///
    /// # Safety
    /// As [`Self::gather`].
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub unsafe fn read(&self, nsid: u32, first_byte: u64, bytes: u64, to: *mut u8) -> Result<(), QueueError> {
        let run = ByteRun { direction: ClientTransfer::In, first_byte, bytes, memory: to };
        self.transfer(nsid, bytes, std::iter::once(run), &mut || ())
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub fn flush(&self, nsid: u32) -> Result<(), QueueError> {
        let mut entry = SubmissionEntry::new_zeroed();
        entry.opcode = FLUSH;
        entry.nsid.set(nsid);
        self.call(LBA_BYTES, &mut || (), |rings, _, _| {
            self.submit(rings, self.pair_rings(), entry, None);
            Ok(())
        })
    }

    /// Runs one call: `work` submits its commands, and all of them are complete when this function returns. After an
    /// error of `work` or of the wait, the client cannot be used any more.
    fn call(
        &self,
        run_bytes: u64,
        step: &mut dyn FnMut(),
        work: impl FnOnce(&mut Rings, &mut Option<QueueError>, &mut dyn FnMut()) -> Result<(), QueueError>,
    ) -> Result<(), QueueError> {
        if !self.home.is_here() {
            return Err(QueueError::Forked(self.name.clone()));
        }
        let mut rings = self.rings.lock();
        if rings.broken {
            return Err(QueueError::Gone(self.name.clone()));
        }
        rings.slot_bytes = slot_bytes(run_bytes, self.header.data_stride);
        let slots = (self.header.data_stride / rings.slot_bytes).min(u64::from(self.header.depth)) as u16;
        rings.free.clear();
        rings.free.extend(0..slots);
        let mut failure = None;
        let done = work(&mut rings, &mut failure, step).and_then(|()| {
            self.ring(&mut rings);
            self.drain(&mut rings, &mut failure, step)
        });
        if std::mem::take(&mut rings.past) {
            past_caches::fence();
        }
        // Bytes of a region that lost its file are none of the array's.
        let done = if self.region.lost() { Err(QueueError::Gone(self.name.clone())) } else { done };
        if let Err(error) = done {
            rings.broken = true;
            rings.runs.fill(None);
            return Err(error);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns the offset of this pair's data area in the region.
    fn area(&self) -> u64 {
        self.header.data_offset + u64::from(self.queue) * self.header.data_stride
    }

    fn pair_rings(&self) -> PairRings<'_> {
        self.region.pair_rings(self.at, self.header.depth)
    }

    fn word(&self, offset: u64) -> &std::sync::atomic::AtomicU32 {
        self.region.word(self.at + offset)
    }

    fn asleep(&self) -> &std::sync::atomic::AtomicU32 {
        self.region.word(self.header.queue(self.queue % self.header.threads) + ASLEEP)
    }

    fn transfer(
        &self,
        nsid: u32,
        run_bytes: u64,
        runs: impl ExactSizeIterator<Item = ByteRun>,
        step: &mut dyn FnMut(),
    ) -> Result<(), QueueError> {
        self.call(run_bytes, step, |rings, failure, step| {
            let bytes = run_bytes.saturating_mul(runs.len() as u64);
            let gains = past_caches::gains(bytes);
            let way = ClientWay { nsid, pair: self.pair_rings() };
            for run in runs {
                rings.past = gains && run.direction == ClientTransfer::In;
                let mut done = 0;
                while done < run.bytes {
                    let first_byte = run.first_byte.saturating_add(done);
                    let mut bytes = (rings.slot_bytes - first_byte % LBA_BYTES).min(run.bytes - done);
                    if let ClientTransfer::Elements { item_bytes } = run.direction {
                        bytes -= bytes % item_bytes;
                    }
                    // SAFETY: within the run's memory, by the caller's promise.
                    let memory = unsafe { run.memory.add(done as usize) };
                    let piece = ByteRun { direction: run.direction, first_byte, bytes, memory };
                    self.send(rings, way, piece, failure, step)?;
                    done += bytes;
                }
            }
            Ok(())
        })
    }

    /// Submits the command for a piece of a run, as soon as a slot is free.
    // In the loop of its caller, so that a piece stays in registers: loads of what was just stored in parts took a
    // fifth of a command without payload.
    #[inline(always)]
    fn send(
        &self,
        rings: &mut Rings,
        way: ClientWay<'_>,
        piece: ByteRun,
        failure: &mut Option<QueueError>,
        step: &mut dyn FnMut(),
    ) -> Result<(), QueueError> {
        if rings.free.is_empty() {
            self.make_room(rings, failure, step)?;
        }
        let ClientWay { nsid, pair } = way;
        let slot = *rings.free.front().expect("a slot came free");
        let offset = self.area() + u64::from(slot) * rings.slot_bytes;
        let mut entry = SubmissionEntry::new_zeroed();
        entry.opcode = piece.direction.opcode();
        entry.dptr[0].set(offset);
        let slba = piece.first_byte / LBA_BYTES;
        let nlb = (piece.first_byte % LBA_BYTES + piece.bytes).div_ceil(LBA_BYTES);
        Blocks::new(nsid, slba, nlb as u32).encode(&mut entry);
        if piece.direction != ClientTransfer::In {
            let skip = match piece.direction {
                ClientTransfer::Elements { .. } => piece.first_byte % LBA_BYTES,
                ClientTransfer::In | ClientTransfer::Out => 0,
            };
            if let ClientTransfer::Elements { .. } = piece.direction {
                BlockPart { skip: skip as u32, bytes: piece.bytes as u32 }.encode(&mut entry);
            }
            // SAFETY: the caller's memory, and a slot of this queue's data area.
            unsafe {
                let to = self.region.at(offset + skip, piece.bytes);
                std::ptr::copy_nonoverlapping(piece.memory, to, piece.bytes as usize);
            }
        }
        self.submit(rings, pair, entry, Some(piece));
        // After 16 commands, or when the slots are used up, the doorbell rings: the server works while this side
        // continues.
        if rings.submitted.wrapping_sub(rings.rung) >= 16 {
            self.ring(rings);
        }
        Ok(())
    }

    /// Rings the doorbell and waits until a slot is free.
    #[cold]
    fn make_room(
        &self,
        rings: &mut Rings,
        failure: &mut Option<QueueError>,
        step: &mut dyn FnMut(),
    ) -> Result<(), QueueError> {
        self.ring(rings);
        let mut wait = Wait::default();
        while self.consume(rings, failure)? == 0 {
            step();
            self.round(&mut wait)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn submit(&self, rings: &mut Rings, pair: PairRings<'_>, mut entry: SubmissionEntry, run: Option<ByteRun>) {
        let cid = rings.free.pop_front().expect("a free slot");
        entry.cid.set(cid);
        rings.runs[usize::from(cid)] = run;
        pair.put(rings.submitted, zerocopy::transmute!(entry));
        rings.submitted = rings.submitted.wrapping_add(1);
    }

    fn ring(&self, rings: &mut Rings) {
        if rings.rung != rings.submitted {
            // Ordered before the load of `asleep` by the fence in `wake`.
            self.word(SQ_TAIL).store(rings.submitted, Ordering::Release);
            rings.rung = rings.submitted;
            futex::wake(self.asleep());
        }
    }

    fn drain(
        &self,
        rings: &mut Rings,
        failure: &mut Option<QueueError>,
        step: &mut dyn FnMut(),
    ) -> Result<(), QueueError> {
        let mut wait = Wait::default();
        while rings.consumed != rings.submitted {
            if self.consume(rings, failure)? > 0 {
                wait = Wait::default();
                continue;
            }
            step();
            self.round(&mut wait)?;
        }
        Ok(())
    }

    /// Consumes the completions that have arrived; returns their number.
    fn consume(&self, rings: &mut Rings, failure: &mut Option<QueueError>) -> Result<u32, QueueError> {
        let depth = self.header.depth;
        let (from, pair) = (rings.consumed, self.pair_rings());
        while rings.consumed != rings.rung {
            let [_, status] = pair.completion(rings.consumed);
            let half = status.load(Ordering::Acquire);
            if half >> 48 & 1 != phase(rings.consumed, depth) {
                break;
            }
            let cid = (half >> 32) as u16;
            if u32::from(cid) >= depth {
                return Err(QueueError::NotARegion(self.name.clone()));
            }
            let status = Status::from_bits((half >> 49) as u16);
            self.deliver(rings, cid, status, failure);
            rings.consumed = rings.consumed.wrapping_add(1);
        }
        if from != rings.consumed {
            self.word(CQ_HEAD).store(rings.consumed, Ordering::Release);
        }
        Ok(rings.consumed.wrapping_sub(from))
    }

    fn deliver(&self, rings: &mut Rings, cid: u16, status: Status, failure: &mut Option<QueueError>) {
        rings.free.push_back(cid);
        let run = rings.runs[usize::from(cid)].take();
        if !status.ok() {
            let slba = run.map_or(0, |r| r.first_byte / LBA_BYTES);
            let opcode = run.map_or(FLUSH, |r| r.direction.opcode());
            failure.get_or_insert_with(|| QueueError::Status {
                opcode,
                slba,
                status: status.bits(),
                name: status.name(),
            });
            return;
        }
        if let Some(run) = run.filter(|run| run.direction == ClientTransfer::In) {
            let from = self.area() + u64::from(cid) * rings.slot_bytes + run.first_byte % LBA_BYTES;
            // SAFETY: the caller's memory, lent for the call in progress, and a slot of this queue's data area.
            unsafe {
                let from = self.region.at(from, run.bytes);
                if rings.past {
                    past_caches::copy(from, run.memory, run.bytes as usize);
                } else {
                    std::ptr::copy_nonoverlapping(from, run.memory, run.bytes as usize);
                }
            }
        }
    }

    /// One round of a wait: an error if the server has ended or the deadline has passed.
    fn round(&self, wait: &mut Wait) -> Result<(), QueueError> {
        let ended = || {
            self.region.lost()
                || self.region.word(ABORT_OFFSET).load(Ordering::Relaxed) != 0
                || self.word(ENDED).load(Ordering::Relaxed) != 0
        };
        match wait.round(self.deadline, ended, || !self.region.held(SERVER_BYTE)) {
            None => Ok(()),
            Some(WaitEnd::Gone) => Err(QueueError::Gone(self.name.clone())),
            Some(WaitEnd::TimedOut) => Err(QueueError::TimedOut(self.deadline.as_millis() as u64)),
        }
    }
}

/// Returns the size of a slot, in bytes, for runs of this length: whole blocks, at most the smaller of `room` and
/// 1 MiB. With long runs, fewer slots than the queue's depth fit.
fn slot_bytes(run_bytes: u64, room: u64) -> u64 {
    let covers = run_bytes.saturating_add(2 * (LBA_BYTES - 1)) / LBA_BYTES * LBA_BYTES;
    covers.clamp(LBA_BYTES, room.min(1 << 20))
}

impl Drop for QueueClient {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        self.word(CLAIM).store(self.claim.wrapping_add(1), Ordering::SeqCst);
        self.region.unlock(CLAIM_BYTE + i64::from(self.queue));
    }
}
