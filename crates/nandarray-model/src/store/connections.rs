//! Connections of output streams to input streams: the pages of a program's output stay in the output buffers of its
//! core until a core of the next program takes them, and do not pass DRAM.
//!
//! An output is connected if only other programs read it, as streams, on cores of their own. Its pages are held from
//! the moment they are stored; a core without room waits until older pages have left. A page for which no room can
//! come goes to DRAM, so a connection never changes a result and never ends a run. Nothing here knows time: the
//! executor books the crossbar and wakes the cores.

use std::collections::{BTreeMap, VecDeque};

use nandarray_cores::{ProgramKind, abi};
use nandarray_runtime::{Origin, Stage};
use nandarray_uarch::InputPath;

use super::timed_cores::TimedCores;

/// An output of a stage: the stage's number, and the output's number in it.
pub(super) type StageOutput = (usize, usize);

/// Decision about pages that a core has stored in a connected output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageRoom {
    /// The core's output buffers hold the pages.
    Held,
    /// The core waits: the buffers are full, but older pages in them will leave.
    Wait,
    /// The pages go to DRAM: the buffers are full of pages of the same task, which cannot leave before it ends.
    Spill,
}

/// One task's output: a core holds its first `held` bytes, and the other bytes are in DRAM.
#[derive(Clone, Copy, Debug, Default)]
struct HeldOutput {
    held: u64,
    /// Whether a page of the output went to DRAM; all later pages then go there, too.
    is_spilled: bool,
}

/// The output buffers of a core.
#[derive(Clone, Debug, Default)]
struct OutputBuffers {
    /// Number of bytes in the buffers, of all tasks.
    held: u64,
    /// Outputs of the task that the core executes.
    current: Vec<HeldOutput>,
    /// Number of the output for which the core waits for room, and the bytes of it that were stored; `None` if it does
    /// not wait.
    waits: Option<(usize, u64)>,
}

/// A task that has ended and whose connected outputs were not all delivered yet.
#[derive(Clone, Debug)]
struct MadeTask {
    core: usize,
    outputs: Vec<HeldOutput>,
    /// Number of connected outputs that are still to be delivered.
    undelivered: usize,
}

/// One task's bytes within a connected output.
#[derive(Clone, Copy, Debug)]
struct HeldPiece {
    /// Offset in the output after the last byte of the task.
    end: u64,
    core: usize,
    /// Number of the task's first bytes that the core holds or held.
    held: u64,
    /// Number of the held bytes that readers have still to take; a byte counts once for each reader that has not taken
    /// it.
    left: u64,
    /// Number of the task's bytes, held or not, that readers have still to take, counted in the same way.
    unread: u64,
}

/// The tasks' bytes within a connected output, from the first task that a reader still has to take.
#[derive(Clone, Debug, Default)]
struct HeldPieces {
    /// Offset in the output of the first byte of the first piece: all readers have taken the bytes before it.
    begin: u64,
    pieces: VecDeque<HeldPiece>,
}

impl HeldPieces {
    /// Offset in the output after its last byte.
    fn end(&self) -> u64 {
        self.pieces.back().map_or(self.begin, |last| last.end)
    }

    /// Forgets the pieces at the beginning that all readers have taken.
    fn forget(&mut self) {
        while let Some(piece) = self.pieces.front().filter(|piece| piece.unread == 0) {
            self.begin = piece.end;
            self.pieces.pop_front();
        }
    }
}

/// The connections of a run: outputs whose pages go from core to core without passing DRAM.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    /// For each stage and output, the number of its readers if it is connected, and otherwise 0.
    readers: Vec<Vec<u64>>,
    capacity: u64,
    cores: Vec<OutputBuffers>,
    /// Tasks that have ended with connected outputs to be delivered, by stage and task number.
    made: BTreeMap<(usize, u64), MadeTask>,
    pieces: BTreeMap<StageOutput, HeldPieces>,
}

impl Connections {
    /// Finds the connections of a run's stages, on cores with output buffers as described.
    pub(super) fn of(stages: &[Stage<'_, '_>], cores: &TimedCores) -> Self {
        let streams = |stage: &Stage<'_, '_>| stage.program.metadata().kind == ProgramKind::Stream;
        let apart = |a: &Stage<'_, '_>, b: &Stage<'_, '_>| {
            !a.cores.is_empty() && !b.cores.is_empty() && a.cores.iter().all(|core| !b.cores.contains(core))
        };
        let readers_of = |number: usize, output: usize| {
            let stage = &stages[number];
            let origin = Origin::Stage { stage: number, output };
            let readers = || {
                stages.iter().flat_map(move |reader| {
                    let ports = &reader.program.metadata().inputs;
                    reader
                        .inputs
                        .iter()
                        .zip(ports)
                        .filter(move |(from, _)| **from == origin)
                        .map(move |(_, p)| (reader, p))
                })
            };
            let is_connected = cores.core.input_source == InputPath::Stream
                && stage.outputs[output].is_none()
                && streams(stage)
                // Outputs of a program with a state come many tasks at a time.
                && stage.program.metadata().state_bytes == 0
                && readers().all(|(reader, port)| streams(reader) && apart(stage, reader) && !port.whole);
            if is_connected { readers().count() as u64 } else { 0 }
        };
        let outputs = |(number, stage): (usize, &Stage<'_, '_>)| {
            (0..stage.outputs.len()).map(|output| readers_of(number, output)).collect()
        };
        Self {
            readers: stages.iter().enumerate().map(outputs).collect(),
            capacity: u64::from(cores.core.streams) * u64::from(cores.core.stream_pages) * cores.page_bytes,
            cores: vec![OutputBuffers::default(); cores.compute.cores as usize],
            made: BTreeMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    /// Whether pages of an output go to their readers without passing DRAM.
    pub(super) fn is_connected(&self, (stage, output): StageOutput) -> bool {
        self.readers[stage][output] > 0
    }

    /// Records that a core begins a task.
    pub(super) fn begin(&mut self, core: usize) {
        let buffers = &mut self.cores[core];
        assert!(buffers.current.is_empty(), "core {core} has a task: {:?}", buffers.current);
        buffers.current = vec![HeldOutput::default(); abi::PORTS_MAX];
    }

    /// Decides where a core keeps `more` bytes that it has stored in a connected output, and counts them if it holds
    /// them.
    pub(super) fn store(&mut self, core: usize, output: usize, more: u64) -> PageRoom {
        let capacity = self.capacity;
        let OutputBuffers { held, current, .. } = &mut self.cores[core];
        let own: u64 = current.iter().map(|one| one.held).sum();
        assert!(own <= *held, "core {core} holds {held} B, and {own} B of its task");
        if !current[output].is_spilled && *held + more <= capacity {
            *held += more;
            current[output].held += more;
            return PageRoom::Held;
        }
        if !current[output].is_spilled && *held > own {
            return PageRoom::Wait;
        }
        current[output].is_spilled = true;
        PageRoom::Spill
    }

    /// Records that a core waits for room for an output of which `bytes` bytes were stored.
    pub(super) fn wait(&mut self, core: usize, output: usize, bytes: u64) {
        self.cores[core].waits = Some((output, bytes));
    }

    /// Ends a core's wait for room; returns the output and the number of its stored bytes, or `None` if the core does
    /// not wait.
    pub(super) fn resume(&mut self, core: usize) -> Option<(usize, u64)> {
        self.cores[core].waits.take()
    }

    /// Makes the first core that waits for room send its output to DRAM instead, since no room will come. Returns the
    /// core; `None` if no core waits.
    pub(super) fn spill_one(&mut self) -> Option<usize> {
        let core = self.cores.iter().position(|one| one.waits.is_some())?;
        let (output, _) = self.cores[core].waits.expect("a core that waits");
        self.cores[core].current[output].is_spilled = true;
        Some(core)
    }

    /// Records that a core has ended a task, whose outputs have `used` bytes each; `None` if the task failed. A page
    /// that is filled in part is held, too, since it lies in the buffers already.
    pub(super) fn end(&mut self, core: usize, (stage, task): (usize, u64), used: Option<&[u64]>) {
        let buffers = &mut self.cores[core];
        let mut current = std::mem::take(&mut buffers.current);
        for (output, &used) in used.unwrap_or(&[]).iter().enumerate() {
            let one = &mut current[output];
            if self.readers[stage][output] > 0 && !one.is_spilled {
                buffers.held += used - one.held;
                one.held = used;
            }
        }
        let undelivered = self.readers[stage].iter().filter(|&&readers| readers > 0).count();
        if used.is_some() && undelivered > 0 {
            self.made.insert((stage, task), MadeTask { core, outputs: current, undelivered });
        } else {
            buffers.held -= current.iter().map(|one| one.held).sum::<u64>();
        }
    }

    /// Whether the core that has executed a task holds the last page of the task's output.
    pub(super) fn is_held(&self, (stage, output): StageOutput, task: u64, core: usize) -> bool {
        let made = self.made.get(&(stage, task));
        self.readers[stage][output] > 0
            && made.is_some_and(|made| made.core == core && !made.outputs[output].is_spilled)
    }

    /// Records that `bytes` bytes of an output, by a task or (with `None`) at the program's end, were delivered after
    /// all bytes before them.
    pub(super) fn delivered(&mut self, (stage, output): StageOutput, task: Option<u64>, bytes: u64) {
        let readers = self.readers[stage][output];
        if readers == 0 {
            return;
        }
        let key = task.map(|task| (stage, task));
        let made = key.and_then(|key| self.made.get_mut(&key));
        let (core, held, is_last) = made.map_or((0, 0, false), |made| {
            made.undelivered -= 1;
            (made.core, made.outputs[output].held, made.undelivered == 0)
        });
        if let Some(key) = key.filter(|_| is_last) {
            self.made.remove(&key);
        }
        assert!(held <= bytes, "{held} of {bytes} B of an output are held");
        let pieces = self.pieces.entry((stage, output)).or_default();
        let (end, left, unread) = (pieces.end() + bytes, held * readers, bytes * readers);
        pieces.pieces.push_back(HeldPiece { end, core, held, left, unread });
        pieces.forget();
    }

    /// Takes `bytes` bytes of an output for a reader, from offset `from` on. Returns the parts in order, each as its
    /// number of bytes with the core that holds it (`None` for DRAM), and the cores whose buffers have gained room.
    pub(super) fn take(&mut self, of: StageOutput, from: u64, bytes: u64) -> (Vec<(Option<usize>, u64)>, Vec<usize>) {
        let readers = self.readers[of.0][of.1];
        let all = self.pieces.get_mut(&of).expect("an output that was delivered");
        assert!(from >= all.begin, "byte {from} of an output was taken by all readers, up to {}", all.begin);
        let pieces = &mut all.pieces;
        let (mut parts, mut freed) = (Vec::new(), Vec::new());
        let (mut at, end) = (from, from + bytes);
        let mut number = pieces.partition_point(|piece| piece.end <= at);
        while at < end {
            let begin = number.checked_sub(1).map_or(all.begin, |before| pieces[before].end);
            let piece = &mut pieces[number];
            let to = end.min(piece.end);
            let held = to.min(begin + piece.held).saturating_sub(at);
            piece.unread -= to - at;
            if held > 0 {
                parts.push((Some(piece.core), held));
                assert!(piece.left >= held, "{held} B more than the {piece:?} are taken");
                piece.left -= held;
                // With several readers a piece leaves when the last of them has taken all of it.
                let gone = match (readers, piece.left) {
                    (1, _) => held,
                    (_, 0) => piece.held,
                    _ => 0,
                };
                self.cores[piece.core].held -= gone;
                if gone > 0 {
                    freed.push(piece.core);
                }
            }
            if to - at > held {
                parts.push((None, to - at - held));
            }
            (at, number) = (to, number + 1);
        }
        all.forget();
        (parts, freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(readers: u64, capacity: u64) -> Connections {
        Connections {
            readers: vec![vec![readers], vec![0]],
            capacity,
            cores: vec![OutputBuffers::default(); 2],
            made: BTreeMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    #[test]
    fn a_core_waits_for_its_reader_and_goes_on_when_pages_leave() {
        let mut all = connections(1, 4);
        all.begin(0);
        assert_eq!((all.store(0, 0, 2), all.store(0, 0, 1)), (PageRoom::Held, PageRoom::Held));
        // The last part of a page is held without asking.
        all.end(0, (0, 0), Some(&[4]));
        assert!(all.is_held((0, 0), 0, 0));
        all.delivered((0, 0), Some(0), 4);
        assert!(all.made.is_empty(), "a task that was delivered is forgotten");
        all.begin(0);
        assert_eq!(all.store(0, 0, 2), PageRoom::Wait);
        all.wait(0, 0, 2);
        assert_eq!(all.take((0, 0), 0, 1), (vec![(Some(0), 1)], vec![0]));
        assert_eq!(all.resume(0), Some((0, 2)));
        assert_eq!((all.store(0, 0, 2), all.resume(0)), (PageRoom::Wait, None));
        assert_eq!(all.take((0, 0), 1, 3), (vec![(Some(0), 3)], vec![0]));
        assert_eq!(all.store(0, 0, 2), PageRoom::Held);
    }

    #[test]
    fn a_task_larger_than_the_buffers_goes_to_dram_from_there_on() {
        let mut all = connections(1, 4);
        all.begin(1);
        let rooms: Vec<PageRoom> = (0..4).map(|_| all.store(1, 0, 2)).collect();
        assert_eq!(rooms, [PageRoom::Held, PageRoom::Held, PageRoom::Spill, PageRoom::Spill]);
        all.end(1, (0, 0), Some(&[9]));
        all.delivered((0, 0), Some(0), 9);
        all.delivered((0, 0), None, 3);
        assert_eq!(all.take((0, 0), 0, 12).0, [(Some(1), 4), (None, 5), (None, 3)]);
        assert_eq!(all.cores[1].held, 0);
    }

    #[test]
    fn pages_with_two_readers_leave_with_the_last() {
        let mut all = connections(2, 8);
        all.begin(0);
        assert_eq!(all.store(0, 0, 4), PageRoom::Held);
        all.end(0, (0, 0), Some(&[4]));
        all.delivered((0, 0), Some(0), 4);
        assert_eq!(all.take((0, 0), 0, 4), (vec![(Some(0), 4)], vec![]));
        assert_eq!((all.take((0, 0), 0, 2), all.cores[0].held), ((vec![(Some(0), 2)], vec![]), 4));
        assert_eq!((all.take((0, 0), 2, 2), all.cores[0].held), ((vec![(Some(0), 2)], vec![0]), 0));
    }

    #[test]
    fn a_failed_task_holds_nothing() {
        let mut all = connections(1, 8);
        all.begin(0);
        assert_eq!(all.store(0, 0, 4), PageRoom::Held);
        all.end(0, (0, 0), None);
        assert_eq!((all.cores[0].held, all.spill_one()), (0, None));
    }
    /// A byte of a connected output in the reference: the core that holds it, and its readers that have not taken it.
    struct HeldByte {
        core: Option<usize>,
        left: u64,
    }

    /// Takes all that is left of an output for each reader.
    fn take_rest(all: &mut Connections, bytes: u64, taken: &[u64]) {
        for &from in taken.iter().filter(|&&from| from < bytes) {
            all.take((0, 0), from, bytes - from);
        }
    }

    /// Random tasks of one program, whose output several readers take piece by piece, compared with a list of bytes:
    /// each reader gets every byte once, from the place where it lies, and buffers hold what no reader has given up.
    #[test]
    fn readers_take_every_byte_from_where_it_lies() {
        for seed in 0..300 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (readers, page) = (chance.u64(1..4), chance.u64(1..6));
            let mut all = connections(readers, chance.u64(4..40));
            let (mut bytes, mut taken, mut task) = (Vec::<HeldByte>::new(), vec![0u64; readers as usize], 0);
            for step in 0..200 {
                let context = format!("seed {seed}, step {step}");
                if chance.u8(0..3) == 0 && task < 12 {
                    // A task runs on a core: it stores whole pages, waits or spills, and ends with a part of a page.
                    let (core, pages) = (chance.usize(0..2), chance.u64(0..6));
                    all.begin(core);
                    let (mut held, mut spilled, mut waits) = (0, false, false);
                    for _ in 0..pages {
                        match all.store(core, 0, page) {
                            PageRoom::Held => held += page,
                            PageRoom::Spill => spilled = true,
                            PageRoom::Wait => {
                                waits = true;
                                break;
                            }
                        }
                        assert!(!spilled || all.store(core, 0, page) == PageRoom::Spill, "{context}: it stays spilled");
                    }
                    if waits {
                        all.wait(core, 0, held);
                        assert_eq!((all.spill_one(), all.resume(core)), (Some(core), Some((0, held))), "{context}");
                        assert_eq!(all.store(core, 0, page), PageRoom::Spill, "{context}");
                        spilled = true;
                    }
                    let used = if spilled { held + chance.u64(0..20) } else { held + chance.u64(0..page) };
                    if chance.u8(0..8) == 0 {
                        all.end(core, (0, task), None);
                    } else {
                        all.end(core, (0, task), Some(&[used]));
                        assert_eq!(all.is_held((0, 0), task, core), !spilled, "{context}");
                        all.delivered((0, 0), Some(task), used);
                        let here = if spilled { held } else { used };
                        let byte = |n| HeldByte { core: (n < here).then_some(core), left: readers };
                        bytes.extend((0..used).map(byte));
                    }
                    task += 1;
                }
                let reader = chance.usize(0..readers as usize);
                let (from, there) = (taken[reader], bytes.len() as u64);
                if from < there {
                    let more = chance.u64(1..=there - from);
                    let (parts, freed) = all.take((0, 0), from, more);
                    let found: Vec<Option<usize>> =
                        parts.iter().flat_map(|&(core, bytes)| std::iter::repeat_n(core, bytes as usize)).collect();
                    let own = &mut bytes[from as usize..(from + more) as usize];
                    let wanted: Vec<Option<usize>> = own.iter().map(|byte| byte.core).collect();
                    assert_eq!(found, wanted, "{context}: bytes {from} to {} of reader {reader}", from + more);
                    assert!(freed.iter().all(|core| found.contains(&Some(*core))), "{context}: {freed:?}");
                    own.iter_mut().for_each(|byte| byte.left -= 1);
                    taken[reader] += more;
                }
                for core in 0..2 {
                    let least = bytes.iter().filter(|byte| byte.core == Some(core) && byte.left > 0).count() as u64;
                    let held = all.cores[core].held;
                    // With several readers, a task's bytes leave together.
                    assert!(held >= least && (readers > 1 || held == least), "{context}: core {core} holds {held} B");
                }
            }
            take_rest(&mut all, bytes.len() as u64, &taken);
            let kept = all.pieces.values().map(|of| of.pieces.len()).sum::<usize>();
            let rest = (all.cores[0].held, all.cores[1].held, all.made.len(), kept);
            assert_eq!(rest, (0, 0, 0, 0), "seed {seed}: all was taken, and tasks that all have taken are forgotten");
        }
    }
}
