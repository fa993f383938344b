//! Outputs of runs that a host fetches while its programs run: *Run Output* (opcode 16h of command set 30h).
//!
//! A run's outputs are cut into pieces of a transfer. Commands of the host wait here: a piece completes the one that
//! has waited longest, or waits for one. A run that is [`AHEAD_BYTES`] ahead of its host waits, and so it does while
//! the tenant's budget has no memory: the run's own threads wait, and end if the host takes nothing for [`HOST_TIME`].
//! When the run ends, its reply gets the rest. Not here: the completion of commands, which is the transport's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nandarray::Error;
use nandarray_nvme_spec::{NdCommand, Status, SubmissionEntry};
use nandarray_runtime::TransferError;
use parking_lot::{Condvar, Mutex};

use crate::association::Association;
use crate::budget::{Budget, ReservedMemory};
use crate::limits::TRANSFER_BYTES_MAX;

/// Bytes of a piece.
const PIECE_BYTES: usize = TRANSFER_BYTES_MAX;
/// Bytes of pieces that wait for the host from which on the run waits for it.
const AHEAD_BYTES: usize = 4 * PIECE_BYTES;
/// Maximum number of bytes of outputs of which each has less than a piece.
const RESTS_BYTES_MAX: usize = 32 << 20;
/// Maximum number of commands that wait for one run.
const WAITING_MAX: usize = 16;
/// Time after which a run ends whose host takes nothing, or for whose outputs there is no memory.
const HOST_TIME: Duration = Duration::from_secs(30);
/// Time between two looks at the budget, and at a run that is stopped.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of one output, which follow those before.
#[derive(Debug)]
pub(crate) struct OutputPiece {
    /// Number of the output among all that the run writes or gives back.
    pub(crate) output: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory: ReservedMemory,
}

/// Completes a command: with a piece, with none if the run is over, or with a status.
pub(crate) type PieceTaker = Box<dyn FnOnce(Result<Option<OutputPiece>, Status>) + Send>;

/// A command that waits for a piece.
struct WaitingFetch {
    /// Bytes that the host has room for.
    room: usize,
    take: PieceTaker,
}

impl fmt::Debug for WaitingFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingFetch").field("room", &self.room).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct RunOutputsState {
    /// For each output its last bytes, less than a piece.
    rests: BTreeMap<usize, OutputPiece>,
    pieces: VecDeque<OutputPiece>,
    piece_bytes: usize,
    waiting: VecDeque<WaitingFetch>,
    /// Bytes that the host has taken.
    taken: u64,
    /// Whether the run has ended, or its outputs are not fetched any more.
    is_over: bool,
}

impl RunOutputsState {
    /// Makes a piece of the last bytes of an output.
    fn cut(&mut self, output: usize) {
        if let Some(piece) = self.rests.remove(&output) {
            self.piece_bytes += piece.bytes.len();
            self.pieces.push_back(piece);
        }
    }

    /// Completes commands with pieces, the first with the first.
    fn serve(&mut self) {
        while !self.pieces.is_empty()
            && let Some(WaitingFetch { room, take }) = self.waiting.pop_front()
        {
            let mut piece = self.pieces.pop_front().expect("a piece waits");
            if piece.bytes.len() > room {
                let rest = piece.bytes.split_off(room);
                let memory = piece.memory.split(rest.len() as u64);
                self.pieces.push_front(OutputPiece { output: piece.output, bytes: rest, memory });
            }
            self.piece_bytes -= piece.bytes.len();
            self.taken += piece.bytes.len() as u64;
            take(Ok(Some(piece)));
        }
        let held: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        assert_eq!(held, self.piece_bytes, "bytes of pieces that wait");
    }
}

/// The outputs of one run, between its threads and its host.
#[derive(Debug)]
pub(crate) struct RunOutputs {
    state: Mutex<RunOutputsState>,
    /// Notified when the host has taken something, and at the end.
    taken: Condvar,
    budget: Arc<Budget>,
}

impl RunOutputs {
    fn new(budget: Arc<Budget>) -> Self {
        Self { state: Mutex::default(), taken: Condvar::new(), budget }
    }

    /// Lets a command with room for `room` bytes wait for the next piece.
    fn wait(&self, room: usize, take: PieceTaker) {
        let mut state = self.state.lock();
        if state.is_over {
            return take(Ok(None));
        }
        if state.waiting.len() >= WAITING_MAX {
            return take(Err(Status::RESOURCES));
        }
        state.waiting.push_back(WaitingFetch { room, take });
        state.serve();
        self.taken.notify_all();
    }

    /// Takes the next bytes of an output; waits for the host until `stop` is set.
    ///
    /// # Errors
    /// Cancelled. Busy: the host takes nothing, or there is no memory.
    pub(crate) fn hand_over(&self, output: usize, bytes: &[u8], stop: &AtomicBool) -> Result<(), TransferError> {
        let mut left = bytes;
        while !left.is_empty() {
            let mut state = self.state.lock();
            let held = state.rests.get(&output).map_or(0, |rest| rest.bytes.len());
            let (now, later) = left.split_at(left.len().min(PIECE_BYTES - held));
            left = later;
            let mut memory = self.budget.reserve(0).map_err(|_| Error::Busy("no memory is left".to_owned()))?;
            let (mut waited, mut taken) = (Duration::ZERO, state.taken);
            loop {
                if state.is_over || stop.load(Ordering::Relaxed) {
                    return Err(Error::Cancelled.into());
                }
                if state.piece_bytes < AHEAD_BYTES && memory.grow(now.len() as u64).is_ok() {
                    break;
                }
                if state.taken != taken {
                    (waited, taken) = (Duration::ZERO, state.taken);
                }
                if waited > HOST_TIME {
                    let (time, ahead) = (HOST_TIME.as_secs(), state.piece_bytes);
                    let text = format!("no room for outputs within {time} s: the host must fetch the {ahead} bytes");
                    return Err(Error::Busy(format!("{text} that wait for it, or less memory be in use")).into());
                }
                if self.taken.wait_for(&mut state, PAUSE).timed_out() {
                    waited += PAUSE;
                }
            }
            let state = &mut *state;
            match state.rests.get_mut(&output) {
                Some(rest) => {
                    rest.bytes.extend_from_slice(now);
                    rest.memory.join(memory);
                }
                None => drop(state.rests.insert(output, OutputPiece { output, bytes: now.to_vec(), memory })),
            }
            let rests: usize = state.rests.values().map(|rest| rest.bytes.len()).sum();
            if held + now.len() == PIECE_BYTES {
                state.cut(output);
            } else if rests > RESTS_BYTES_MAX {
                let largest = state.rests.values().max_by_key(|rest| rest.bytes.len()).map(|rest| rest.output);
                state.cut(largest.expect("some output has bytes"));
            }
            state.serve();
        }
        Ok(())
    }

    /// Ends the run's outputs; returns what was not fetched, in order. Commands that wait get nothing, or the status.
    pub(crate) fn end(&self, status: Option<Status>) -> Vec<OutputPiece> {
        let mut state = self.state.lock();
        state.is_over = true;
        state.piece_bytes = 0;
        let mut left: Vec<OutputPiece> = std::mem::take(&mut state.pieces).into();
        left.extend(std::mem::take(&mut state.rests).into_values());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.taken.notify_all();
        waiting.into_iter().for_each(|fetch| (fetch.take)(status.map_or(Ok(None), Err)));
        left
    }
}

/// The runs of one host whose outputs it fetches, by the tags of their requests.
#[derive(Debug)]
pub(crate) struct FetchedRuns {
    runs: Mutex<BTreeMap<u32, Arc<RunOutputs>>>,
    budget: Arc<Budget>,
    /// Bytes of pieces that were sent, and not yet counted for the tenant's pace.
    sent: AtomicU64,
}

/// A run whose outputs are fetched, until this is dropped.
pub(crate) struct FetchedRun {
    association: Arc<Association>,
    tag: u32,
}

impl Drop for FetchedRun {
    fn drop(&mut self) {
        let run = self.association.fetched.runs.lock().remove(&self.tag);
        drop(run.map(|run| run.end(None)));
    }
}

impl FetchedRuns {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { runs: Mutex::default(), budget, sent: AtomicU64::new(0) }
    }

    /// Returns the outputs of a run.
    pub(crate) fn of(&self, tag: u32) -> Option<Arc<RunOutputs>> {
        self.runs.lock().get(&tag).cloned()
    }

    /// Ends all of them.
    pub(crate) fn clear(&self) {
        let runs = std::mem::take(&mut *self.runs.lock());
        runs.into_values().for_each(|run| drop(run.end(Some(Status::ABORTED))));
    }

    /// Returns the bytes of the pieces that were sent since the last call.
    pub(crate) fn unpaid_bytes(&self) -> usize {
        self.sent.swap(0, Ordering::Relaxed) as usize
    }
}

impl Association {
    /// Begins a run whose outputs its host fetches, if the entry is the last part, of `bytes` bytes, of such a request.
    pub(crate) fn begin_fetched(self: &Arc<Self>, entry: &SubmissionEntry, bytes: usize) -> Option<FetchedRun> {
        let Ok(NdCommand::ArrayRequest(part)) = NdCommand::decode(entry) else { return None };
        let is_last = part.offset as usize + bytes == part.size as usize;
        if !(is_last && part.fetches && part.programs) {
            return None;
        }
        let mut runs = self.fetched.runs.lock();
        // A second request with the tag of one that runs has none of its outputs fetched.
        if runs.contains_key(&part.tag) {
            return None;
        }
        runs.insert(part.tag, Arc::new(RunOutputs::new(self.fetched.budget.clone())));
        Some(FetchedRun { association: self.clone(), tag: part.tag })
    }

    /// Executes Run Output, with room for `room` bytes: `take` completes it, now or later.
    pub(crate) fn fetch_output(&self, qid: u16, entry: &SubmissionEntry, room: usize, take: PieceTaker) {
        self.seen.store(true, Ordering::Relaxed);
        match self.checked_fetch(entry, room) {
            Err(status) => {
                self.log_failure(qid, entry, status);
                take(Err(status));
            }
            Ok(None) => take(Ok(None)),
            Ok(Some(run)) => run.wait(room, take),
        }
    }

    fn checked_fetch(&self, entry: &SubmissionEntry, room: usize) -> Result<Option<Arc<RunOutputs>>, Status> {
        if !self.is_ready() {
            return Err(Status::ABORTED);
        }
        if entry.is_fused() {
            return Err(Status::INVALID_FIELD);
        }
        self.csi(entry.nsid.get())?;
        self.io_command(entry).ok_or(Status::INVALID_OPCODE)?;
        let NdCommand::RunOutput { tag } = NdCommand::decode(entry)? else { return Err(Status::INVALID_OPCODE) };
        if room == 0 {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        Ok(self.fetched.of(tag))
    }

    /// Counts the bytes of a piece that was sent.
    pub(crate) fn sent_piece(&self, bytes: usize) {
        self.fetched.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Fetches the outputs of a run with rooms of different sizes; the budget has less than a tenth of them.
    #[test]
    fn a_host_gets_all_bytes_in_order_and_the_run_waits_for_it() {
        let budget = Budget::new(AHEAD_BYTES as u64 + (3 << 20), None);
        let run = Arc::new(RunOutputs::new(budget.clone()));
        let byte = |output: usize, at: usize| (at / 1000 * 7 + output) as u8;
        let all: Vec<Vec<u8>> =
            [90 << 20, 12_345_678].iter().enumerate().map(|(o, &n)| (0..n).map(|at| byte(o, at)).collect()).collect();
        let mut got = [Vec::new(), Vec::new()];
        let tails = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let never = AtomicBool::new(false);
                for (at, part) in all[0].chunks(700_001).enumerate() {
                    run.hand_over(0, part, &never).unwrap();
                    if let Some(part) = all[1].chunks(99_999).nth(at) {
                        run.hand_over(1, part, &never).unwrap();
                    }
                }
                run.end(None)
            });
            let (tell, told) = mpsc::channel();
            for number in 0.. {
                let tell = tell.clone();
                let room = if number % 5 == 0 { 100_000 } else { PIECE_BYTES };
                run.wait(room, Box::new(move |found| tell.send(found).unwrap()));
                let found = told.recv_timeout(Duration::from_secs(60)).expect("the run hands pieces over");
                let Some(piece) = found.unwrap() else { break };
                assert!(piece.bytes.len() <= room && !piece.bytes.is_empty());
                got[piece.output].extend_from_slice(&piece.bytes);
                assert!(budget.used() <= budget.limit());
            }
            nandarray::internals::joined(worker)
        });
        let fetched = got.each_ref().map(Vec::len);
        tails.iter().for_each(|piece| got[piece.output].extend_from_slice(&piece.bytes));
        drop(tails);
        let wanted: usize = all[1].chunks(99_999).take(all[0].chunks(700_001).count()).map(<[u8]>::len).sum();
        assert!(fetched[0] > 70 << 20, "{fetched:?} bytes were fetched while the run went on");
        assert!(got[0] == all[0] && got[1] == all[1][..wanted], "other bytes");
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_run_that_waits_for_its_host_ends_when_it_is_stopped() {
        let budget = Budget::new(1 << 30, None);
        let run = RunOutputs::new(budget.clone());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| run.hand_over(0, &vec![1; 64 << 20], &stop));
            while run.state.lock().piece_bytes < AHEAD_BYTES && !worker.is_finished() {
                thread::yield_now();
            }
            assert!(budget.used() <= (AHEAD_BYTES + PIECE_BYTES) as u64, "{} bytes", budget.used());
            stop.store(true, Ordering::Relaxed);
            assert!(nandarray::internals::joined(worker).is_err());
        });
        drop(run.end(None));
        run.wait(1, Box::new(|found| assert!(found.unwrap().is_none(), "a run that is over has no pieces")));
        assert_eq!(budget.used(), 0);
    }
}
