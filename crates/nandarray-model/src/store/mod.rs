//! The array store under the modelled clock: the same commands, the same bytes, and what they take on a described device.
//!
//! The engine executes a command at once and whole; a [`Recorder`] and a [`media::ModelMedia`] below the engine write down what
//! it asked of the flash; the [`Machine`] then lets modelled time pass for that. The [`Clock`] is the engine's probe: it lets
//! commands in one at a time, and with one thread each, so that one history of commands gives one trace. Every door works
//! unchanged: it has a [`Device`] like any other. What runs side by side in modelled time is said by the caller
//! ([`Clock::batch`]): so many commands in flight, as a host with that queue depth would have them.

pub mod media;
pub mod power;

use std::path::PathBuf;
use std::sync::Arc;

use nandarray::device::{Device, Mode, Options};
use nandarray::flash::Geometry;
use nandarray::ftl::Verify;
use nandarray::media::Media;
use nandarray::media::sparse::SparseMedia;
use nandarray::sim::{Moves, Probe, Purpose};
use nandarray::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::describe::Description;
use crate::footprint::{Footprint, Places, Recorder};
use crate::machine::{JobDone, JobKind, Machine};
use crate::report::{Latencies, ManagementReport, Report, WearReport};
use crate::spans::Spans;
use crate::workload::RequestOp;
use media::ModelMedia;
use nandarray_sim::Ps;
use power::WriteLog;

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

/// What the model does not tell of programs yet.
const PROGRAMS_UNTIMED: &str =
    "their instructions take no modelled time, and their inputs are priced as reads over the host link.";

#[derive(Debug)]
struct State {
    machine: Machine,
    /// When the host gives its next command at the earliest.
    host: Ps,
    /// Commands of a batch, not timed yet.
    gathered: Option<Vec<(JobKind, Footprint)>>,
    latencies: Latencies,
    mount: Ps,
    /// Set while modelled time passes, and left so by a panic: what the machine holds is unknown then, and it is not run again.
    running: bool,
    /// Programs that were run.
    programs: u64,
}

/// The modelled clock of one store.
#[derive(Debug)]
pub struct Clock {
    recorder: Arc<Recorder>,
    /// Whether a command is being executed.
    busy: Mutex<bool>,
    idle: Condvar,
    /// Made when the store is open.
    state: Mutex<Option<State>>,
}

/// A command's turn, which ends however the command does.
struct Turn<'a>(&'a Clock);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.busy.lock() = false;
        self.0.idle.notify_one();
    }
}

impl Probe for Clock {
    fn begin(&self) {
        let mut busy = self.busy.lock();
        while *busy {
            self.idle.wait(&mut busy);
        }
        *busy = true;
        drop(busy);
        let turn = Turn(self);
        // A clock that a panic stopped must not give times. The entrance of the store makes an error of this.
        let stopped = self.state.lock().as_ref().is_some_and(|state| state.running);
        assert!(!stopped, "the modelled clock was stopped by an earlier panic");
        std::mem::forget(turn);
    }

    fn end(&self, moved: Moves) {
        let _turn = Turn(self);
        let footprint = self.recorder.take();
        // Looking numbers or names up is no command of a device.
        if moved != Moves::Nothing || footprint != Footprint::default() {
            if let Some(state) = &mut *self.state.lock() {
                let kind = match moved {
                    Moves::Out => JobKind::Read,
                    Moves::In => JobKind::Write,
                    Moves::Nothing => JobKind::Other,
                };
                state.run(|state| state.pass(kind, footprint));
            }
        }
    }

    fn abandoned(&self) {
        let _turn = Turn(self);
        drop(self.recorder.take());
    }

    fn moved(&self, runs: u64, bytes: u64) {
        self.recorder.moved(runs, bytes);
    }

    fn executed(&self, programs: u64) {
        if let Some(state) = &mut *self.state.lock() {
            state.programs += programs;
        }
    }

    fn freed(&self, segment: u32) {
        self.recorder.freed(segment);
    }

    fn purpose(&self, purpose: Purpose) -> Purpose {
        self.recorder.purpose(purpose)
    }
}

/// Opens a store on a described device. What the description fixes (geometry, capacity) is taken from it; one thread works.
///
/// # Errors
/// As [`Device::open_file`]; [`Error::Invalid`] if the device cannot hold a store, or the file is one of another device.
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
        busy: Mutex::new(false),
        idle: Condvar::new(),
        state: Mutex::new(None),
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
    machine.attach_store(places);
    let id = machine.submit_job(Ps::ZERO, JobKind::Other, 0, recorder.take());
    let mount = machine.run_job(id).done;
    let latencies = Latencies::default();
    *clock.state.lock() =
        Some(State { machine, host: mount, gathered: None, latencies, mount, running: false, programs: 0 });
    Ok((device, clock))
}

impl Clock {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(self.state.lock().as_mut().expect("the clock runs once the store is open"))
    }

    /// Gathers commands from now on: they are executed at once, and timed together when the batch ends.
    pub fn batch(&self) {
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

    /// Lets everything end that goes on in the background.
    pub fn settle(&self) {
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

    /// What came out since opening. Commands other than reads and writes (flush, create, ...) are its "flush". `numbers` are
    /// the store's own ([`nandarray::device::Command::Stat`]).
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
            if state.programs > 0 {
                let ran =
                    if state.programs == 1 { "1 program ran" } else { &format!("{} programs ran", state.programs) };
                report.notes.push(format!("{ran}; {PROGRAMS_UNTIMED}"));
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

    fn pass(&mut self, kind: JobKind, footprint: Footprint) {
        if let Some(gathered) = &mut self.gathered {
            gathered.push((kind, footprint));
            return;
        }
        let at = self.host.max(self.machine.now());
        let id = self.machine.submit_job(at, kind, 0, footprint);
        let done = self.machine.run_job(id);
        self.took(&done);
    }

    fn took(&mut self, done: &JobDone) {
        self.host = done.done;
        let op = match done.kind {
            JobKind::Read => RequestOp::Read,
            JobKind::Write => RequestOp::Write,
            JobKind::Other => RequestOp::Flush,
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
