//! The array store under the modelled clock: the same commands, the same bytes, and what they take on a described device.
//!
//! The engine executes a command at once and whole; a [`Recorder`] beside it and a [`media::ModelMedia`] below it write
//! down what it asked of the flash; the [`Machine`] then lets modelled time pass for that. Commands are executed one at a
//! time and with one thread, so that one history of commands gives one trace. What runs side by side in modelled time is said
//! by the caller ([`Modelled::batch`]): so many commands in flight, as a host with that queue depth would have them.
//!
//! The medium that tells is [`media`]; what it tells, [`crate::footprint`].

pub mod media;

use std::path::PathBuf;
use std::sync::Arc;

use nandarray::device::{Command, Device, Mode, Options, Reply};
use nandarray::ftl::Verify;
use nandarray::media::Media;
use nandarray::media::sparse::SparseMedia;
use nandarray::{Error, Result};
use parking_lot::Mutex;

use crate::describe::Description;
use crate::footprint::{Footprint, Places, Recorder};
use crate::machine::{JobDone, JobKind, Machine};
use crate::report::{Latencies, ManagementReport, Report, WearReport};
use crate::spans::Spans;
use crate::time::Ps;
use crate::workload::RequestOp;
use media::ModelMedia;

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
struct Clock {
    machine: Machine,
    /// When the host gives its next command at the earliest.
    host: Ps,
    /// Commands of a batch, not timed yet.
    gathered: Option<Vec<(JobKind, Footprint)>>,
    latencies: Latencies,
    mount: Ps,
}

/// A store on a described device.
#[derive(Debug)]
pub struct Modelled {
    device: Arc<Device>,
    recorder: Arc<Recorder>,
    clock: Mutex<Clock>,
}

impl Modelled {
    /// Opens a store on a device. What the description fixes (geometry, capacity) is taken from it; one thread works.
    ///
    /// # Errors
    /// As [`Device::open_file`]; [`Error::Invalid`] if the device cannot hold a store, or the file is one of another device.
    pub fn open(
        bytes: &Bytes,
        mode: Mode,
        options: &Options,
        description: &Description,
        spans: Option<Box<dyn Spans>>,
    ) -> Result<Self> {
        let places = Places::new(description.geometry)?;
        let recorder = Recorder::new(places.store());
        let options = Options {
            geometry: places.store(),
            exact_geometry: true,
            capacity_bytes: Some(places.capacity_bytes()),
            threads: Some(1),
            map: false,
            verify: if *bytes == Bytes::Nowhere { Verify::Never } else { options.verify },
            probe: Some(recorder.clone()),
            ..options.clone()
        };
        let wrap = |below: Arc<dyn Media>| -> Arc<dyn Media> {
            Arc::new(ModelMedia::new(below, recorder.clone(), *bytes != Bytes::Nowhere))
        };
        let device = match bytes {
            Bytes::File(path) => Device::open_file_through(path, mode, &options, wrap)?,
            Bytes::Memory | Bytes::Nowhere => {
                let name = if *bytes == Bytes::Memory { "memory" } else { "a device without bytes" };
                Device::open(wrap(Arc::new(SparseMedia::default())), name, mode, &options)?
            }
        };
        if device.geometry() != places.store() {
            return Err(Error::invalid(format!(
                "the store was made with the geometry {:?}; device {:?} has {:?}",
                device.geometry(),
                description.name,
                places.store()
            )));
        }
        let mut machine = Machine::new(description, options.seed, spans);
        machine.attach_store(places);
        let id = machine.submit_job(Ps::ZERO, JobKind::Other, 0, recorder.take());
        let mount = machine.run_job(id).done;
        let clock = Mutex::new(Clock { machine, host: mount, gathered: None, latencies: Latencies::default(), mount });
        Ok(Self { device: Arc::new(device), recorder, clock })
    }

    /// The engine below, for what takes no modelled time (names, geometry). Commands given to it directly are timed with the
    /// next one that comes through here.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Executes a command, and lets the time pass that it takes.
    ///
    /// # Errors
    /// As the command says. The time of what was tried passes as well.
    pub fn execute(&self, command: Command<'_>) -> Result<Reply> {
        let mut clock = self.clock.lock();
        let kind = match &command {
            Command::Read { .. } => JobKind::Read,
            Command::Write { .. } => JobKind::Write,
            _ => JobKind::Other,
        };
        // Looking numbers up is no command of a device.
        let free = matches!(command, Command::Stat | Command::StatSpace { .. } | Command::List { .. });
        let reply = self.device.execute(command);
        let footprint = self.recorder.take();
        if free && footprint == Footprint::default() {
            return reply;
        }
        clock.pass(kind, footprint);
        reply
    }

    /// Flushes, closes the store, and lets everything end that is on its way.
    ///
    /// # Errors
    /// As [`Device::close`].
    pub fn close(&self) -> Result<()> {
        let mut clock = self.clock.lock();
        if self.device.closed() {
            return Ok(());
        }
        clock.end_batch(1);
        let closed = self.device.close();
        let footprint = self.recorder.take();
        clock.pass(JobKind::Other, footprint);
        clock.machine.settle();
        closed
    }

    /// Gathers commands from now on: they are executed at once, and timed together when the batch ends.
    pub fn batch(&self) {
        self.clock.lock().gathered.get_or_insert_default();
    }

    /// Ends a batch: its commands as a host gives them that keeps `depth` of them on their way, spread over its queues.
    /// Returns when each began and ended, in order of their ends.
    pub fn end_batch(&self, depth: usize) -> Vec<JobDone> {
        self.clock.lock().end_batch(depth)
    }

    /// Lets the host do something else for a time.
    pub fn think(&self, time: Ps) {
        let clock = &mut *self.clock.lock();
        clock.host += time;
    }

    /// When the host could give its next command.
    pub fn now(&self) -> Ps {
        self.clock.lock().host
    }

    /// How long opening took: reading the newest checkpoint and journal, or making them.
    pub fn mount_time(&self) -> Ps {
        self.clock.lock().mount
    }

    /// What came out since opening. Commands other than reads and writes (flush, create, ...) are its "flush".
    pub fn report(&self) -> Report {
        let clock = self.clock.lock();
        let mut report = clock.machine.report(&clock.latencies);
        let d = clock.machine.description();
        let numbers = self.device.execute(Command::Stat);
        if let Ok(Reply::Numbers(numbers)) = numbers {
            report.management = Some(management(&numbers, d));
        }
        report.notes.push(if d.controller.spaces_in_device {
            "Spaces are translated and assembled in the device (hardware NDS).".to_owned()
        } else {
            "Spaces are translated and assembled by the host (software NDS).".to_owned()
        });
        report.notes.push(format!("Opening took {}.", clock.mount));
        report
    }

    /// Looks at the machine.
    pub fn machine<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        f(&mut self.clock.lock().machine)
    }
}

/// What the store's own flash management did, as a conventional one's is reported.
fn management(numbers: &[(&'static str, u64)], d: &Description) -> ManagementReport {
    let of = |name: &str| numbers.iter().find(|n| n.0 == name).map_or(0, |n| n.1);
    let written = of("bytes_written") as f64 / f64::from(d.geometry.page_bytes);
    let pages = of("pages_appended") as f64
        + (of("journal_bytes") + of("checkpoint_bytes")) as f64 / f64::from(d.geometry.page_bytes);
    let segments = of("segments").max(1);
    ManagementReport {
        capacity_bytes: of("capacity_bytes"),
        write_amplification: (written > 0.0).then(|| pages / written),
        live_pages: of("pages_live"),
        free_blocks: of("segments_free") * u64::from(d.geometry.planes_total()),
        grown_bad_blocks: of("segments_bad") * u64::from(d.geometry.planes_total()),
        wear: WearReport {
            min: of("erases_min") as u32,
            mean: of("erases_total") as f64 / segments as f64,
            max: of("erases_max") as u32,
            beyond_endurance: 0,
        },
        ..ManagementReport::default()
    }
}

impl Clock {
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
