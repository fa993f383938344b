//! The array store under the modelled clock: the same commands and bytes, with the time and energy of a described
//! device.
//!
//! The [`Clock`] is the engine's conductor, and calls the two halves of every command ([`Halves`]): the first accesses
//! the flash, which a [`Recorder`] and a [`media::ModelMedia`] below the engine record; the [`Machine`] then lets
//! modelled time pass for this trace, and for all other commands in flight; when the trace is done, the second half
//! completes the command for its caller. Every door works unchanged: its [`Device`] is like any other, but its commands
//! take modelled time.
//!
//! Any number of commands can be in flight ([`Device::submit`]). Time passes only while a caller waits: for a command
//! of its own ([`Device::execute`]), for one that was submitted, or for the next that ends ([`Device::drive`]). So one
//! history of calls gives one trace, on any machine. One thread at a time is inside the clock; commands that end are
//! delivered outside of it, at their modelled time, and may submit further commands.
//!
//! [`Clock::batch`] is for callers that need results at once: both halves are executed in the call, and time passes for
//! all commands of the batch at its end, with a number of them in flight.
//!
//! | file | one idea |
//! | --- | --- |
//! | `flights` | commands in flight, and the order in which they begin |
//! | `executor` | programs on the device's cores |
//! | `crew` | the parts of a run that its executors share |
//! | `timed`, `timed_cores`, `feeds` | programs on timed cores, the cores, their inputs on the way |
//! | `media` | the medium that records a command's pages |
//! | `pace` | modelled time that keeps pace with a wall clock |
//! | `power` | the medium that survives lost power |

mod connections;
mod crew;
mod executor;
mod feeds;
mod flights;
mod media;
mod pace;
mod power;
mod timed;
mod timed_cores;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;

use nandarray::probe::{Conductor, FlightId, Halves, Moves, Probe, Purpose};
use nandarray::{Device, Error, Geometry, Media, Mode, Options, Result, SparseMedia, Verify};
use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock};

use crate::describe::Description;
use crate::flash_trace::{FlashTrace, Recorder, StoreLayout};
use crate::machine::{Machine, Notification, PlatformPart, SpaceJobDone, SpaceJobId, SpaceJobKind};
use crate::report::{
    CoreTimes, Latencies, ManagementReport, ProgramsReport, Report, TimedCoresReport, TimedParts, WearReport,
};
use crate::spans::DeviceSpanSink;
use crate::workload::RequestOp;
use flights::{Admission, FlightHalves, Flights, stuck, too_many};
use media::ModelMedia;
use nandarray_sim::Ps;

pub use executor::Modelled;
pub use flights::IN_FLIGHT_MAX;
pub use pace::WallTime;
pub use power::WriteLog;

/// The place of a modelled device's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In memory, where zeroes take no space; the bytes are lost when the store is dropped.
    Memory,
    /// In a file, which is a store like any other.
    File(PathBuf),
    /// Nowhere: data reads as zeroes. For measuring times only.
    Nowhere,
}

#[derive(Debug)]
struct ClockState {
    machine: Machine,
    /// Earliest time at which the host can submit its next command.
    host: Ps,
    flights: Flights,
    /// The command in flight for which each job of the machine is executed.
    jobs: BTreeMap<SpaceJobId, FlightId>,
    /// Number of commands submitted so far to be in flight together with others; successive ones use the queues in
    /// turn.
    submitted: u32,
    /// Time from the host's submission of a command to the command's arrival at the device.
    arrives_after: Ps,
    /// Whether a program runs: commands that end meanwhile are counted in `beside`.
    program_runs: bool,
    /// Latencies of commands that ended while a program ran.
    beside: Latencies,
    /// Commands of a batch that are not timed yet; `None` outside of batches.
    batched: Option<Vec<(SpaceJobKind, FlashTrace)>>,
    /// Notifications of the machine that the executor of programs has not taken yet.
    notifications: VecDeque<Notification>,
    /// Counts of the programs that ran.
    programs: ProgramsReport,
    latencies: Latencies,
    mount: Ps,
    /// Modelled ends of commands whose threads have not yet returned; only with a wall clock.
    done_at: BTreeMap<FlightId, Ps>,
    /// Whether commands keep pace with a wall clock, so that their times are needed.
    paced: bool,
    /// Whether modelled time is passing. A panic leaves this set: the machine's state is then unknown, and the machine
    /// is not run again.
    running: bool,
}

/// Commands that have ended, to be delivered once the clock's lock is released.
type EndedCommands = Vec<(FlightId, Box<dyn Halves>)>;

/// The modelled clock of one store.
#[derive(Debug)]
pub struct Clock {
    recorder: Arc<Recorder>,
    /// The clock's state; `None` until the store is open. A thread that holds the lock may lock again, since a program
    /// runs within a command.
    state: ReentrantMutex<RefCell<Option<ClockState>>>,
    /// Commands that have ended and are being delivered, each with the thread that delivers it; other threads may wait
    /// for them.
    delivering: Mutex<BTreeMap<FlightId, ThreadId>>,
    delivered: Condvar,
    /// The wall clock with which modelled time keeps pace; `None` if time passes as fast as it is simulated.
    pace: RwLock<Option<Arc<pace::Pace>>>,
}

impl Conductor for Clock {
    fn run(&self, command: &mut dyn Halves) {
        let mut guard = self.state.lock();
        if guard.borrow().is_none() {
            // The store is being opened, which `open` times as one command.
            drop(guard);
            command.plan();
            command.complete();
            return;
        }
        let paced = self.pace.read().clone();
        if let Some(pace) = paced.filter(|pace| pace.active.load(Ordering::Relaxed)) {
            drop(guard);
            return self.run_paced(&pace, command);
        }
        self.assert_alive();
        // SAFETY: this call goes on until the command was taken out of the table, or panics with the clock stopped for
        // good while it was inside: then no thread uses the table again.
        let held = unsafe { FlightHalves::borrowed(command) };
        let id = self.with(|state| state.submit(held));
        loop {
            let mut ended = EndedCommands::new();
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
        let id = self.with(|state| state.submit(FlightHalves::Owned(command)));
        let mut ended = EndedCommands::new();
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
            if guard.borrow().is_none() {
                // A store that is being opened, or that could not be: no command is in flight.
                return false;
            }
            let waits = self.with(|state| match flight {
                _ if state.running => false,
                Some(id) => state.flights.contains(id),
                None => state.flights.len() > 0 && !any,
            });
            if !waits {
                drop(guard);
                return self.wait_for_delivery(flight, any);
            }
            let mut ended = EndedCommands::new();
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
        let mut ended = EndedCommands::new();
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
}

impl Probe for Clock {
    fn conductor(&self) -> Option<&dyn Conductor> {
        Some(self)
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

/// Opens a store on a described device, with the description's geometry and capacity and a single thread.
///
/// # Errors
/// As [`Device::open_file`]; [`Error::Invalid`] if the device cannot hold a store, or the file belongs to another
/// device.
pub fn open(
    bytes: &Backing,
    mode: Mode,
    options: &Options,
    description: &Description,
    spans: Option<Box<dyn DeviceSpanSink>>,
) -> Result<(Device, Arc<Clock>)> {
    open_logged(bytes, mode, options, description, spans, None)
}

/// Opens a store as [`open`] does, with a log of every write for [`WriteLog::survives`].
///
/// # Errors
/// As [`open`].
pub fn open_logged(
    bytes: &Backing,
    mode: Mode,
    options: &Options,
    description: &Description,
    spans: Option<Box<dyn DeviceSpanSink>>,
    writes: Option<Arc<Mutex<WriteLog>>>,
) -> Result<(Device, Arc<Clock>)> {
    let layout = StoreLayout::new(description.geometry)?;
    let recorder = Recorder::new(layout.store());
    let clock = Arc::new(Clock {
        recorder: recorder.clone(),
        state: ReentrantMutex::new(RefCell::new(None)),
        delivering: Mutex::default(),
        delivered: Condvar::new(),
        pace: RwLock::new(None),
    });
    let options = Options {
        geometry: layout.store(),
        exact_geometry: true,
        capacity_bytes: Some(layout.capacity_bytes()),
        threads: Some(1),
        map: false,
        verify: if *bytes == Backing::Nowhere { Verify::Never } else { options.verify },
        probe: Some(clock.clone()),
        ..options.clone()
    };
    let wrap = |below: Arc<dyn Media>| -> Arc<dyn Media> {
        let media = ModelMedia::new(below, recorder.clone(), *bytes != Backing::Nowhere);
        match writes {
            Some(writes) => Arc::new(media.logged(writes, layout)),
            None => Arc::new(media),
        }
    };
    let device = match bytes {
        Backing::File(path) => Device::open_file_through(path, mode, &options, wrap)?,
        Backing::Memory => Device::open(wrap(Arc::new(SparseMedia::default())), "memory", mode, &options)?,
        Backing::Nowhere => Device::open(wrap(Arc::new(SparseMedia::default())), "nowhere", mode, &options)?,
    };
    // A store of any layout of the medium has the same pages.
    let (found, wanted) = (device.geometry(), layout.store());
    if found != (Geometry { layout: found.layout, ..wanted }) {
        let sizes = |g: Geometry| {
            let Geometry { page_bytes, channels, banks, pages_per_block, .. } = g;
            format!(
                "pages of {page_bytes} bytes, {channels} channels, {banks} banks and {pages_per_block} pages a block"
            )
        };
        return Err(Error::invalid(format!(
            "the store has {}, device {:?} has {}: a store must be made for its device, by `nandarray create STORE \
             --device NAME` or `nandarray.open(path, \"x\", device=NAME)`",
            sizes(found),
            description.name,
            sizes(wanted)
        )));
    }
    let mut machine = Machine::new(description, options.seed, spans);
    machine.add([PlatformPart::Spaces(layout), PlatformPart::Cores]).expect("only flash management can be refused");
    let id = machine.submit_job(Ps::ZERO, SpaceJobKind::Other, 0, recorder.take());
    let mount = machine.run_job(id).done;
    *clock.state.lock().borrow_mut() = Some(ClockState::mounted(machine, mount));
    Ok((device, clock))
}

impl Clock {
    fn with<T>(&self, f: impl FnOnce(&mut ClockState) -> T) -> T {
        f(self.state.lock().borrow_mut().as_mut().expect("the clock runs once the store is open"))
    }

    /// Registers commands that are about to be delivered, while the clock is still held.
    fn announce(&self, ended: &EndedCommands) {
        if !ended.is_empty() {
            let own = std::thread::current().id();
            self.delivering.lock().extend(ended.iter().map(|(id, _)| (*id, own)));
        }
    }

    /// Delivers the results of commands to their callers, in the order of their ends.
    fn deliver(&self, ended: EndedCommands) {
        /// Guard that removes a command from the table of deliveries, also if its callback panics, so that no thread
        /// waits for it.
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

    /// Waits until another thread has delivered the command `flight`, or any command if it is `None`. Deliveries of the
    /// calling thread itself are not waited for, as a callback would wait for ever. Returns `any` if there is no
    /// delivery to wait for, otherwise true.
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

    /// Panics if an earlier panic has stopped the clock, since its times would be wrong. The store's entrance converts
    /// this panic to an error.
    fn assert_alive(&self) {
        assert!(!self.with(|state| state.running), "the modelled clock was stopped by an earlier panic");
    }

    /// Begins every command that may begin: executes its first half, and submits its trace to the machine.
    fn begin_all(&self, ended: &mut EndedCommands) {
        let next = |state: &mut ClockState| {
            let id = if state.running { None } else { state.flights.next_to_begin() }?;
            Some((id, state.flights.get(id).halves()))
        };
        while let Some((id, halves)) = self.with(next) {
            // SAFETY: the halves lie behind a pointer, whatever happens to the table; they stay until `begun` or a
            // later call ends the command, and no other thread uses those of a command that has just begun. The state
            // is not borrowed meanwhile: programs let time pass in their command's first half.
            let moves = unsafe { (*halves).plan() };
            let trace = self.recorder.take();
            self.with(|state| state.run(|state| state.begun(id, moves, trace, &self.recorder, ended)));
        }
    }

    /// Lets time pass until the next notification or end of a command, and begins commands that waited for it. Returns
    /// `false` if nothing is in flight.
    fn advance(&self, ended: &mut EndedCommands) -> bool {
        let goes_on = self.with(|state| state.run(|state| state.advance(&self.recorder, ended)));
        self.begin_all(ended);
        goes_on
    }

    /// Returns the next notification for an executor of programs; commands in flight that end meanwhile are delivered.
    /// `None` if nothing is in flight.
    fn next_notification(&self) -> Option<Notification> {
        loop {
            let mut ended = EndedCommands::new();
            let (notification, goes_on) = self.with(|state| {
                let waiting = state.notifications.pop_front();
                if waiting.is_some() {
                    return (waiting, true);
                }
                let goes_on = state.run(|state| state.advance(&self.recorder, &mut ended));
                // If no command ended and none waits to begin, the notification is all there is.
                let is_all = ended.is_empty() && !state.flights.has_waiting();
                (if is_all { state.notifications.pop_front() } else { None }, goes_on)
            });
            if notification.is_some() {
                return notification;
            }
            self.begin_all(&mut ended);
            self.announce(&ended);
            self.deliver(ended);
            if !goes_on {
                return None;
            }
        }
    }

    /// Lets modelled time pass until all commands in flight have ended.
    fn drain(&self) {
        while self.drive(None) {}
    }

    /// Begins a batch, after all commands in flight have ended: both halves of its commands are executed at once, and
    /// the commands are timed together at the batch's end.
    pub fn batch(&self) {
        self.drain();
        self.with(|state| {
            state.batched.get_or_insert_default();
        });
    }

    /// Ends a batch: times its commands as if a host kept `depth` of them in flight, spread over its queues. Returns
    /// their completions, in order.
    pub fn end_batch(&self, depth: usize) -> Vec<SpaceJobDone> {
        self.with(|state| state.run(|state| state.end_batch(depth)))
    }

    /// Delays the host's next command by a time.
    pub fn think(&self, time: Ps) {
        self.with(|state| state.host += time);
    }

    /// Delays the arrival at the device of commands that are submitted from now on: they arrive `time` after the host's
    /// time. A schedule of arrivals can thus be submitted before the work that it is to run beside.
    pub fn arrive_after(&self, time: Ps) {
        self.with(|state| state.arrives_after = time);
    }

    /// Lets modelled time pass until nothing is in flight, background work included.
    pub fn settle(&self) {
        self.drain();
        self.with(|state| {
            state.run(|state| {
                state.end_batch(1);
                state.machine.settle();
            });
        });
    }

    /// Returns the earliest time at which the host can submit its next command.
    pub fn now(&self) -> Ps {
        self.with(|state| state.host)
    }

    /// Returns the time that opening the store took: reading the newest checkpoint and journal, or making them.
    pub fn mount_time(&self) -> Ps {
        self.with(|state| state.mount)
    }

    /// Calls `f` with the machine.
    pub fn machine<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        self.with(|state| f(&mut state.machine))
    }

    /// Returns the report since opening; commands other than reads and writes (flush, create, ...) count as "flush".
    /// `numbers` are the store's own counts ([`nandarray::command::Stat`]).
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
            report.pace = self.pace_report();
            report.notes.extend(report.pace.map(|pace| pace.note()));
            if state.programs.interpreted + state.programs.translated > 0 {
                let core = d.compute.as_ref().and_then(|compute| compute.core.as_ref());
                report.notes.push(state.programs.note(core.map(|core| &*core.name)));
                let times = state.machine.core_times().unwrap_or_default();
                let seconds = |all: &[Ps]| all.iter().copied().sum::<Ps>().seconds();
                let (work_s, wait_s) = (seconds(&times.worked), seconds(&times.waited));
                let timed_cores = timed_cores(&state.machine, &times, &state.programs);
                let beside = state.beside.all();
                let host_beside = (beside.requests > 0).then_some(beside);
                let programs = state.programs.clone();
                report.programs = Some(ProgramsReport { work_s, wait_s, timed_cores, host_beside, ..programs });
            }
            report
        })
    }
}

/// Returns the figures of the timed cores; `None` if the device has none.
fn timed_cores(machine: &Machine, times: &CoreTimes, programs: &ProgramsReport) -> Option<TimedCoresReport> {
    let d = machine.description();
    let compute = d.compute.as_ref()?;
    let core = compute.core.as_ref()?;
    let (dram_bytes, traffic) = (machine.dram_bytes(), machine.core_traffic());
    let parts = TimedParts { compute, tick: (core.tick_ps, core.cycle), times, dram_bytes, traffic };
    Some(TimedCoresReport::new(&parts, programs))
}

/// Converts the counts of the store's own flash management to the form of conventional flash management.
fn management(
    numbers: &[(&'static str, u64)],
    d: &Description,
    programs: &crate::report::CauseCounts,
) -> ManagementReport {
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

impl ClockState {
    /// Returns the state of a store that was opened just now, which took the time `mount`.
    fn mounted(machine: Machine, mount: Ps) -> Self {
        Self {
            machine,
            host: mount,
            flights: Flights::default(),
            jobs: BTreeMap::new(),
            submitted: 0,
            arrives_after: Ps::ZERO,
            program_runs: false,
            beside: Latencies::default(),
            batched: None,
            notifications: VecDeque::new(),
            programs: ProgramsReport::default(),
            latencies: Latencies::default(),
            mount,
            done_at: BTreeMap::new(),
            paced: false,
            running: false,
        }
    }

    /// Calls `f`, which lets modelled time pass, unless a panic has stopped the machine: from then on time stands
    /// still, and the default is returned.
    fn run<T: Default>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        if std::mem::replace(&mut self.running, true) {
            return T::default();
        }
        let done = f(self);
        self.running = false;
        done
    }

    /// Adds a command at the host's time; returns its number.
    fn submit(&mut self, held: FlightHalves) -> FlightId {
        let delay = if matches!(held, FlightHalves::Owned(_)) { self.arrives_after } else { Ps::ZERO };
        let at = self.host.max(self.machine.now()) + delay;
        self.flights.submit(held, at)
    }

    /// Submits a command, whose first half recorded this trace, to the machine.
    fn begun(
        &mut self,
        id: FlightId,
        moves: Option<Moves>,
        trace: FlashTrace,
        recorder: &Recorder,
        ended: &mut EndedCommands,
    ) {
        let kind = match moves {
            Some(Moves::Out) => SpaceJobKind::Read,
            Some(Moves::In) => SpaceJobKind::Write,
            Some(Moves::Nothing) if trace != FlashTrace::default() => SpaceJobKind::Other,
            // A lookup of numbers or names needs no command to the device; a command that panicked is not timed.
            Some(Moves::Nothing) | None => return self.end(id, recorder, ended),
        };
        if let Some(batched) = &mut self.batched {
            batched.push((kind, trace));
            return self.end(id, recorder, ended);
        }
        let owned = matches!(self.flights.get(id).held, FlightHalves::Owned(_));
        let queue = if owned { self.submitted % self.machine.description().host.queues } else { 0 };
        self.submitted = self.submitted.wrapping_add(u32::from(owned));
        let at = self.host.max(self.machine.now()).max(self.flights.get(id).submitted);
        let job = self.machine.submit_job(at, kind, queue, trace);
        let other = self.jobs.insert(job, id);
        assert_eq!(other, None, "{job:?} of the machine is one command's");
    }

    /// Lets time pass until a command ends, or until the machine has a notification for a program. Returns `false` if
    /// nothing is in flight.
    fn advance(&mut self, recorder: &Recorder, ended: &mut EndedCommands) -> bool {
        self.advance_until(Ps::MAX, recorder, ended)
    }

    /// Lets time pass as [`Self::advance`] does, but handles no event later than `until`: also returns `false` if no
    /// command ends and no notification comes by then.
    fn advance_until(&mut self, until: Ps, recorder: &Recorder, ended: &mut EndedCommands) -> bool {
        let Some(notification) = self.machine.next_notification_until(until) else { return false };
        let command = match notification {
            Notification::Done(done) => self.jobs.remove(&done.id).map(|id| (id, done)),
            Notification::Arrived(..) | Notification::CoreFree(_) => None,
        };
        match command {
            Some((id, done)) => {
                let submitted = self.flights.get(id).submitted;
                self.record(&SpaceJobDone { submitted, ..done });
                if self.paced && matches!(self.flights.get(id).held, FlightHalves::Borrowed(_)) {
                    self.done_at.insert(id, done.done);
                }
                self.end(id, recorder, ended);
            }
            None => self.notifications.push_back(notification),
        }
        true
    }

    /// Executes the second half of a command.
    fn end(&mut self, id: FlightId, recorder: &Recorder, ended: &mut EndedCommands) {
        assert_eq!(self.flights.get(id).admission, Admission::Begun, "command {id} ends");
        recorder.unrecorded(|| self.flights.get(id).held.halves().complete());
        if let Some(FlightHalves::Owned(halves)) = self.flights.remove(id).map(|flight| flight.held) {
            ended.push((id, halves));
        }
    }

    /// Refuses the command that blocks command `id`, when nothing in flight can make progress and a caller waits for
    /// `id`.
    fn refuse_stuck(&mut self, id: FlightId, ended: &mut EndedCommands) {
        let stuck_one = self.flights.stuck_for(id);
        self.refuse(stuck_one, stuck(), ended);
    }

    /// Ends a command that has not begun, with the error `why`.
    fn refuse(&mut self, id: FlightId, why: Error, ended: &mut EndedCommands) {
        let mut flight = self.flights.remove(id).expect("a command in flight");
        assert_ne!(flight.admission, Admission::Begun, "command {id} has begun and is refused: {why}");
        flight.held.halves().refuse(why);
        if let FlightHalves::Owned(halves) = flight.held {
            ended.push((id, halves));
        }
    }

    fn record(&mut self, done: &SpaceJobDone) {
        assert!(done.done >= done.submitted, "{done:?} is done before it is submitted");
        self.host = self.host.max(done.done);
        let op = match done.kind {
            SpaceJobKind::Read => RequestOp::Read,
            SpaceJobKind::Write => RequestOp::Write,
            SpaceJobKind::Other => RequestOp::Flush,
            kind => unreachable!("{kind:?} is no command of a host"),
        };
        self.latencies.record(op, done.bytes, done.submitted, done.done, !done.failed);
        if self.program_runs {
            self.beside.record(op, done.bytes, done.submitted, done.done, !done.failed);
        }
    }

    fn end_batch(&mut self, depth: usize) -> Vec<SpaceJobDone> {
        let mut waiting = self.batched.take().unwrap_or_default().into_iter();
        let queues = self.machine.description().host.queues;
        let (mut submitted, mut ended) = (0, Vec::new());
        let mut give = |machine: &mut Machine, at: Ps, n: usize| {
            for (kind, trace) in waiting.by_ref().take(n) {
                machine.submit_job(at.max(machine.now()), kind, submitted % queues, trace);
                submitted += 1;
            }
        };
        give(&mut self.machine, self.host, depth.max(1));
        while let Some(done) = self.machine.next_job() {
            self.record(&done);
            ended.push(done);
            give(&mut self.machine, done.done, 1);
        }
        ended
    }
}
