//! The array store under the modelled clock: the same commands, the same bytes, and what they take on a described
//! device.
//!
//! The [`Clock`] is the engine's probe, and calls the two halves of every command ([`Halves`]): the first tells what is
//! asked of the flash, which a [`Recorder`] and a [`media::ModelMedia`] below the engine write down; the [`Machine`]
//! then lets modelled time pass for that, and for all other commands in flight; when it is done with it, the second
//! half completes the command for its caller. Every door works unchanged: it has a [`Device`] like any other, whose
//! commands take modelled time.
//!
//! Any number of commands can be in flight ([`Device::submit`]). Time passes only while somebody waits: for a command
//! of its own ([`Device::execute`]), for one that was submitted, or for the next that ends ([`Device::drive`]). So one
//! history of calls gives one trace, whatever the machine that it runs on does. One thread at a time is inside the
//! clock; commands that end are delivered outside of it, at their modelled time, and may give further commands.
//!
//! [`Clock::batch`] is for callers that want values at once: both halves happen in the call, and time passes for all
//! commands of the batch at its end, so many of them in flight.
//!
//! | file | one idea |
//! | --- | --- |
//! | `flights` | commands in flight: which may begin |
//! | `executor` | programs on the device's cores |
//! | `media` | which pages a command reads and programs |
//! | `power` | what is left when the power fails |

pub mod executor;
mod flights;
pub mod media;
pub mod power;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::ThreadId;

use nandarray::probe::{FlightId, Halves, Moves, Probe, Purpose};
use nandarray::{Device, Error, Geometry, Media, Mode, Options, Result, SparseMedia, Verify};
use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard};

use crate::describe::Description;
use crate::footprint::{Footprint, Places, Recorder};
use crate::machine::{Happening, JobDone, JobId, JobKind, Machine, Part};
use crate::report::{Latencies, ManagementReport, ProgramsReport, Report, WearReport};
use crate::spans::Spans;
use crate::workload::RequestOp;
use flights::{Admission, Flights, Held, stuck, too_many};
use media::ModelMedia;
use nandarray_sim::Ps;
use power::WriteLog;

pub use flights::IN_FLIGHT_MAX;

/// Where the bytes of a modelled device are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// In memory, zeroes taking none; lost when the store is dropped.
    Memory,
    /// In a file, which is a store like any other.
    File(PathBuf),
    /// Nowhere: what is read are zeroes. For times only.
    Nowhere,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    /// When the host gives its next command at the earliest.
    host: Ps,
    flights: Flights,
    /// Which command in flight a job of the machine is.
    jobs: BTreeMap<JobId, FlightId>,
    /// Commands given to the machine beside others: they go to its queues in turn.
    given: u32,
    /// Commands of a batch, not timed yet.
    gathered: Option<Vec<(JobKind, Footprint)>>,
    /// Happenings that an executor of programs has not taken yet.
    happened: VecDeque<Happening>,
    /// Counts of programs.
    programs: ProgramsReport,
    latencies: Latencies,
    mount: Ps,
    /// Set while modelled time passes, and left so by a panic: what the machine holds is unknown then, and it is not
    /// run again.
    running: bool,
}

/// Commands that have ended and are to be delivered, once the clock is let go of.
type Ended = Vec<(FlightId, Box<dyn Halves>)>;

/// The modelled clock of one store.
#[derive(Debug)]
pub struct Clock {
    recorder: Arc<Recorder>,
    /// Made when the store is open. A thread that holds this is inside the clock; it may enter again, since programs
    /// run inside of a command.
    state: ReentrantMutex<RefCell<Option<State>>>,
    /// Commands that have ended and are being delivered, which others may wait for, and the thread that does it.
    delivering: Mutex<BTreeMap<FlightId, ThreadId>>,
    delivered: Condvar,
}

impl Probe for Clock {
    fn run(&self, command: &mut dyn Halves) {
        let mut guard = self.state.lock();
        if guard.borrow().is_none() {
            // Opening: timed as one, by `open`.
            drop(guard);
            command.plan();
            command.complete();
            return;
        }
        self.assert_alive();
        // SAFETY: this call goes on until the command was taken out of the table, or panics with the clock stopped for
        // good while it was inside: then nobody looks into the table again.
        let held = unsafe { Held::borrowed(command) };
        let id = self.with(|state| state.give(held));
        loop {
            let mut ended = Ended::new();
            self.begin_all(&mut ended);
            let goes_on = self.with(|state| !state.flights.contains(id)) || self.advance(&mut ended);
            if !goes_on {
                self.with(|state| state.refuse_stuck(id, &mut ended));
            }
            self.announce(&ended);
            let over = self.with(|state| !state.flights.contains(id));
            if !ended.is_empty() {
                ReentrantMutexGuard::unlocked(&mut guard, || self.deliver(ended));
            }
            if over {
                return;
            }
        }
    }

    fn submit(&self, mut command: Box<dyn Halves>) -> Option<FlightId> {
        let guard = self.state.lock();
        self.assert_alive();
        if self.with(|state| state.flights.len()) >= IN_FLIGHT_MAX {
            drop(guard);
            command.refuse(too_many());
            command.deliver();
            return None;
        }
        let id = self.with(|state| state.give(Held::Owned(command)));
        let mut ended = Ended::new();
        self.begin_all(&mut ended);
        let in_flight = self.with(|state| state.flights.contains(id));
        self.announce(&ended);
        drop(guard);
        self.deliver(ended);
        in_flight.then_some(id)
    }

    fn drive(&self, flight: Option<FlightId>) -> bool {
        let mut any = false;
        loop {
            let guard = self.state.lock();
            let waits = self.with(|state| match flight {
                _ if state.running => false,
                Some(id) => state.flights.contains(id),
                None => state.flights.len() > 0 && !any,
            });
            if !waits {
                drop(guard);
                return self.wait_for_delivery(flight, any);
            }
            let mut ended = Ended::new();
            if !self.advance(&mut ended) {
                self.with(|state| {
                    let id = flight.or(state.flights.first_waiting()).expect("what cannot go on has not begun");
                    state.refuse_stuck(id, &mut ended);
                });
                self.begin_all(&mut ended);
            }
            any |= flight.is_some() || !ended.is_empty();
            self.announce(&ended);
            drop(guard);
            self.deliver(ended);
        }
    }

    fn cancel(&self, flight: FlightId) -> bool {
        let guard = self.state.lock();
        let mut ended = Ended::new();
        let waits = self.with(|state| {
            let waits = !state.running
                && state.flights.contains(flight)
                && state.flights.get(flight).admission != Admission::Begun;
            if waits {
                state.refuse(flight, Error::Cancelled, &mut ended);
            }
            waits
        });
        if waits {
            self.begin_all(&mut ended);
        }
        self.announce(&ended);
        drop(guard);
        self.deliver(ended);
        waits
    }

    fn has_clock(&self) -> bool {
        true
    }

    fn moved(&self, runs: u64, bytes: u64) {
        self.recorder.moved(runs, bytes);
    }

    fn executed(&self, interpreted: u64, translated: u64) {
        self.with(|state| {
            state.programs.interpreted += interpreted;
            state.programs.translated += translated;
        });
    }

    fn freed(&self, segment: u32) {
        self.recorder.freed(segment);
    }

    fn purpose(&self, purpose: Purpose) -> Purpose {
        self.recorder.purpose(purpose)
    }
}

/// Opens a store on a described device. What the description fixes (geometry, capacity) is taken from it; one thread
/// works.
///
/// # Errors
/// As [`Device::open_file`]; [`Error::Invalid`] if the device cannot hold a store, or the file is one of another
/// device.
pub fn open(
    bytes: &Bytes,
    mode: Mode,
    options: &Options,
    description: &Description,
    spans: Option<Box<dyn Spans>>,
) -> Result<(Device, Arc<Clock>)> {
    open_logged(bytes, mode, options, description, spans, None)
}

/// The same, with every write kept: what [`power::WriteLog::survives`] needs.
///
/// # Errors
/// As [`open`].
pub fn open_logged(
    bytes: &Bytes,
    mode: Mode,
    options: &Options,
    description: &Description,
    spans: Option<Box<dyn Spans>>,
    writes: Option<Arc<Mutex<WriteLog>>>,
) -> Result<(Device, Arc<Clock>)> {
    let places = Places::new(description.geometry)?;
    let recorder = Recorder::new(places.store());
    let clock = Arc::new(Clock {
        recorder: recorder.clone(),
        state: ReentrantMutex::new(RefCell::new(None)),
        delivering: Mutex::default(),
        delivered: Condvar::new(),
    });
    let options = Options {
        geometry: places.store(),
        exact_geometry: true,
        capacity_bytes: Some(places.capacity_bytes()),
        threads: Some(1),
        map: false,
        verify: if *bytes == Bytes::Nowhere { Verify::Never } else { options.verify },
        probe: Some(clock.clone()),
        ..options.clone()
    };
    let wrap = |below: Arc<dyn Media>| -> Arc<dyn Media> {
        let media = ModelMedia::new(below, recorder.clone(), *bytes != Bytes::Nowhere);
        match writes {
            Some(writes) => Arc::new(media.logged(writes, places)),
            None => Arc::new(media),
        }
    };
    let device = match bytes {
        Bytes::File(path) => Device::open_file_through(path, mode, &options, wrap)?,
        Bytes::Memory => Device::open(wrap(Arc::new(SparseMedia::default())), "memory", mode, &options)?,
        Bytes::Nowhere => Device::open(wrap(Arc::new(SparseMedia::default())), "nowhere", mode, &options)?,
    };
    // Stores of either layout of the medium have the same pages.
    if device.geometry() != (Geometry { layout: device.geometry().layout, ..places.store() }) {
        return Err(Error::invalid(format!(
            "the store was made with {:?}; device {:?} has {:?}",
            device.geometry(),
            description.name,
            places.store()
        )));
    }
    let mut machine = Machine::new(description, options.seed, spans);
    machine.add([Part::Spaces(places), Part::Cores]).expect("only flash management can be refused");
    let id = machine.submit_job(Ps::ZERO, JobKind::Other, 0, recorder.take());
    let mount = machine.run_job(id).done;
    let latencies = Latencies::default();
    *clock.state.lock().borrow_mut() = Some(State {
        machine,
        host: mount,
        flights: Flights::default(),
        jobs: BTreeMap::new(),
        given: 0,
        gathered: None,
        happened: VecDeque::new(),
        programs: ProgramsReport::default(),
        latencies,
        mount,
        running: false,
    });
    Ok((device, clock))
}

impl Clock {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(self.state.lock().borrow_mut().as_mut().expect("the clock runs once the store is open"))
    }

    /// Says which commands are about to be delivered, while the clock is still held.
    fn announce(&self, ended: &Ended) {
        if !ended.is_empty() {
            let own = std::thread::current().id();
            self.delivering.lock().extend(ended.iter().map(|(id, _)| (*id, own)));
        }
    }

    /// Gives the results of commands to whom they belong, in the order of their ends.
    fn deliver(&self, ended: Ended) {
        /// Takes a command out of the table, also if its callback panics: nobody waits for it then.
        struct Delivered<'c>(&'c Clock, FlightId);
        impl Drop for Delivered<'_> {
            fn drop(&mut self) {
                self.0.delivering.lock().remove(&self.1);
                self.0.delivered.notify_all();
            }
        }
        let mut marks: VecDeque<Delivered<'_>> = ended.iter().map(|(id, _)| Delivered(self, *id)).collect();
        for (_, halves) in ended {
            halves.deliver();
            marks.pop_front();
        }
    }

    /// Waits until a command, or for none the first of any, was delivered that another thread is delivering. A callback
    /// that asks does not wait for what its own thread delivers. Gives whether there was one to wait for, or `any`.
    fn wait_for_delivery(&self, flight: Option<FlightId>, any: bool) -> bool {
        let own = std::thread::current().id();
        let mut delivering = self.delivering.lock();
        let others: Vec<FlightId> = delivering
            .iter()
            .filter(|&(&id, &by)| by != own && flight.is_none_or(|flight| flight == id))
            .map(|(&id, _)| id)
            .collect();
        if any && flight.is_none() || others.is_empty() {
            return any;
        }
        while others.iter().all(|id| delivering.contains_key(id)) {
            self.delivered.wait(&mut delivering);
        }
        true
    }

    /// A clock that a panic stopped must not give times. The entrance of the store makes an error of this panic.
    fn assert_alive(&self) {
        assert!(!self.with(|state| state.running), "the modelled clock was stopped by an earlier panic");
    }

    /// Begins every command that may: its first half happens, and what it asked for goes to the machine.
    fn begin_all(&self, ended: &mut Ended) {
        let next = |state: &mut State| {
            let id = if state.running { None } else { state.flights.next_to_begin() }?;
            Some((id, state.flights.get(id).halves()))
        };
        while let Some((id, halves)) = self.with(next) {
            // SAFETY: the halves lie behind a pointer, whatever happens to the table; they stay until `begun` or a
            // later call ends the command, and nobody else looks at those of a command that has just begun. The state
            // is not borrowed meanwhile: programs let time pass in their command's first half.
            let moves = unsafe { (*halves).plan() };
            let footprint = self.recorder.take();
            self.with(|state| state.run(|state| state.begun(id, moves, footprint, &self.recorder, ended)));
        }
    }

    /// Lets time pass until something happens, and begins the commands that waited for it. `false` if nothing is on its
    /// way.
    fn advance(&self, ended: &mut Ended) -> bool {
        let goes_on = self.with(|state| state.run(|state| state.advance(&self.recorder, ended)));
        self.begin_all(ended);
        goes_on
    }

    /// The next happening for an executor of programs; commands in flight that end meanwhile are delivered. `None` if
    /// nothing is on its way.
    fn next_happening(&self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.with(|state| state.happened.pop_front()) {
                return Some(happening);
            }
            let mut ended = Ended::new();
            let goes_on = self.advance(&mut ended);
            self.announce(&ended);
            self.deliver(ended);
            if !goes_on {
                return None;
            }
        }
    }

    /// Lets everything end that is in flight.
    fn drain(&self) {
        while self.drive(None) {}
    }

    /// Gathers commands from now on: both halves of them happen at once, and they are timed together when the batch
    /// ends. What is in flight ends first.
    pub fn batch(&self) {
        self.drain();
        self.with(|state| {
            state.gathered.get_or_insert_default();
        });
    }

    /// Ends a batch: its commands as a host gives them that keeps `depth` of them on their way, spread over its queues.
    /// Returns when each began and ended, in order of their ends.
    pub fn end_batch(&self, depth: usize) -> Vec<JobDone> {
        self.with(|state| state.run(|state| state.end_batch(depth)))
    }

    /// Lets the host do something else for a time.
    pub fn think(&self, time: Ps) {
        self.with(|state| state.host += time);
    }

    /// Lets everything end that is in flight, or goes on in the background.
    pub fn settle(&self) {
        self.drain();
        self.with(|state| {
            state.run(|state| {
                state.end_batch(1);
                state.machine.settle();
            });
        });
    }

    /// When the host could give its next command.
    pub fn now(&self) -> Ps {
        self.with(|state| state.host)
    }

    /// How long opening took: reading the newest checkpoint and journal, or making them.
    pub fn mount_time(&self) -> Ps {
        self.with(|state| state.mount)
    }

    /// Looks at the machine.
    pub fn machine<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        self.with(|state| f(&mut state.machine))
    }

    /// What came out since opening. Commands other than reads and writes (flush, create, ...) are its "flush".
    /// `numbers` are the store's own ([`command::Stat`]).
    pub fn report(&self, numbers: &[(&'static str, u64)]) -> Report {
        self.with(|state| {
            let mut report = state.machine.report(&state.latencies);
            let d = state.machine.description();
            report.management = Some(management(numbers, d, &report.flash.programs));
            report.notes.push(if d.controller.spaces_in_device {
                "Spaces are translated and assembled in the device (hardware NDS).".to_owned()
            } else {
                "Spaces are translated and assembled by the host (software NDS).".to_owned()
            });
            report.notes.push(format!("Opening took {}.", state.mount));
            if state.programs.interpreted + state.programs.translated > 0 {
                report.notes.push(state.programs.note());
                let times = state.machine.core_times().unwrap_or_default();
                let seconds = |all: &[Ps]| all.iter().copied().sum::<Ps>().seconds();
                let (work_s, wait_s) = (seconds(&times.worked), seconds(&times.waited));
                report.programs = Some(ProgramsReport { work_s, wait_s, ..state.programs.clone() });
            }
            report
        })
    }
}

/// What the store's own flash management did, as a conventional one's is reported.
fn management(numbers: &[(&'static str, u64)], d: &Description, programs: &crate::report::ByCause) -> ManagementReport {
    let of = |name: &str| numbers.iter().find(|n| n.0 == name).map_or(0, |n| n.1);
    let written = of("bytes_written") as f64 / f64::from(d.geometry.page_bytes);
    let pages = programs.host + programs.map + programs.gc + programs.wear;
    let planes = u64::from(d.geometry.planes_total());
    ManagementReport {
        capacity_bytes: of("capacity_bytes"),
        write_amplification: (written > 0.0).then(|| pages as f64 / written),
        live_pages: of("pages_live"),
        free_blocks: of("segments_free") * planes,
        grown_bad_blocks: of("segments_bad") * planes,
        wear: WearReport {
            min: of("erases_min") as u32,
            mean: of("erases_total") as f64 / of("segments").max(1) as f64,
            max: of("erases_max") as u32,
            beyond_endurance: 0,
        },
        ..ManagementReport::default()
    }
}

impl State {
    /// Lets modelled time pass, unless a panic has stopped the machine: time stands still from then on.
    fn run<T: Default>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        if std::mem::replace(&mut self.running, true) {
            return T::default();
        }
        let done = f(self);
        self.running = false;
        done
    }

    /// Takes a command in, at the host's time.
    fn give(&mut self, held: Held) -> FlightId {
        let at = self.host.max(self.machine.now());
        self.flights.give(held, at)
    }

    /// The first half of a command has happened, and asked for this.
    fn begun(
        &mut self,
        id: FlightId,
        moves: Option<Moves>,
        footprint: Footprint,
        recorder: &Recorder,
        ended: &mut Ended,
    ) {
        let kind = match moves {
            Some(Moves::Out) => JobKind::Read,
            Some(Moves::In) => JobKind::Write,
            Some(Moves::Nothing) if footprint != Footprint::default() => JobKind::Other,
            // Looking numbers or names up is no command of a device; nor is one that panicked.
            Some(Moves::Nothing) | None => return self.end(id, recorder, ended),
        };
        if let Some(gathered) = &mut self.gathered {
            gathered.push((kind, footprint));
            return self.end(id, recorder, ended);
        }
        let owned = matches!(self.flights.get(id).held, Held::Owned(_));
        let queue = if owned { self.given % self.machine.description().host.queues } else { 0 };
        self.given = self.given.wrapping_add(u32::from(owned));
        let at = self.host.max(self.machine.now());
        let job = self.machine.submit_job(at, kind, queue, footprint);
        self.jobs.insert(job, id);
    }

    /// Lets time pass until a command ends, or something happens that a program waits for. `false` if nothing is on its
    /// way.
    fn advance(&mut self, recorder: &Recorder, ended: &mut Ended) -> bool {
        let Some(happening) = self.machine.next_happening() else { return false };
        let command = match happening {
            Happening::Done(done) => self.jobs.remove(&done.id).map(|id| (id, done)),
            Happening::Arrived(..) | Happening::CoreFree(_) => None,
        };
        match command {
            Some((id, done)) => {
                let submitted = self.flights.get(id).submitted;
                self.took(&JobDone { submitted, ..done });
                self.end(id, recorder, ended);
            }
            None => self.happened.push_back(happening),
        }
        true
    }

    /// The second half of a command.
    fn end(&mut self, id: FlightId, recorder: &Recorder, ended: &mut Ended) {
        recorder.silently(|| self.flights.get(id).held.halves().complete());
        if let Some(Held::Owned(halves)) = self.flights.remove(id).map(|flight| flight.held) {
            ended.push((id, halves));
        }
    }

    /// Nothing in flight can go on, and this command is waited for: ends the one that keeps it.
    fn refuse_stuck(&mut self, id: FlightId, ended: &mut Ended) {
        let stuck_one = self.flights.stuck_for(id);
        self.refuse(stuck_one, stuck(), ended);
    }

    /// Ends a command that has not begun by an error.
    fn refuse(&mut self, id: FlightId, why: Error, ended: &mut Ended) {
        let mut flight = self.flights.remove(id).expect("a command in flight");
        flight.held.halves().refuse(why);
        if let Held::Owned(halves) = flight.held {
            ended.push((id, halves));
        }
    }

    fn took(&mut self, done: &JobDone) {
        self.host = self.host.max(done.done);
        let op = match done.kind {
            JobKind::Read => RequestOp::Read,
            JobKind::Write => RequestOp::Write,
            JobKind::Other => RequestOp::Flush,
            JobKind::Input | JobKind::Output => unreachable!("no command of a host"),
        };
        self.latencies.record(op, done.bytes, done.submitted, done.done, !done.failed);
    }

    fn end_batch(&mut self, depth: usize) -> Vec<JobDone> {
        let mut waiting = self.gathered.take().unwrap_or_default().into_iter();
        let queues = self.machine.description().host.queues;
        let (mut given, mut ended) = (0, Vec::new());
        let mut give = |machine: &mut Machine, at: Ps, n: usize| {
            for (kind, footprint) in waiting.by_ref().take(n) {
                machine.submit_job(at.max(machine.now()), kind, given % queues, footprint);
                given += 1;
            }
        };
        give(&mut self.machine, self.host, depth.max(1));
        while let Some(done) = self.machine.next_job() {
            self.took(&done);
            ended.push(done);
            give(&mut self.machine, done.done, 1);
        }
        ended
    }
}
