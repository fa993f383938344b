//! The modelled clock of a store: Python reads its times and reports here, and lets its time pass.
//!
//! The store is used like any other; its device has the clock as its probe. A report is JSON, as in
//! docs/reference/replay-report.md, and the same figures as a table in text.

use std::path::PathBuf;
use std::sync::Arc;

use nandarray::panics::caught;
use nandarray::{Device, Error, Mode, Options, Result, command};
use nandarray_model::describe::Description;
use nandarray_model::store::{self, Backing};
use nandarray_model::{Ps, SpaceJobKind, Timeline, TimelineOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{detached, to_py};
use crate::handle::{SharedRuntime, device_of};

/// The modelled clock of a store, and the trace file of its timeline, if one is recorded.
#[pyclass(module = "nandarray._nandarray", name = "Clock", frozen)]
pub(crate) struct PyClock {
    pub(crate) clock: Arc<store::Clock>,
    device: SharedRuntime,
    timeline: Mutex<Option<(Timeline, PathBuf)>>,
}

/// A modelled store's device, its clock, and the trace file of its timeline, if one is recorded.
pub(crate) type Opened = (Device, Arc<store::Clock>, Option<(Timeline, PathBuf)>);

/// Opens a store on a described device; `trace` is the file to which a timeline is written, if one is wanted.
pub(crate) fn open(
    bytes: &Backing,
    mode: Mode,
    options: Options,
    description: &Description,
    trace: Option<PathBuf>,
) -> Result<Opened> {
    // Pages that a crash left in a file must never be taken for new ones, so an existing file needs entropy. A new
    // device needs no randomness but its seed.
    let fresh = match bytes {
        Backing::File(path) => !path.exists(),
        Backing::Memory | Backing::Nowhere => true,
    };
    let options = Options { entropy: if fresh { 0 } else { options.entropy }, ..options };
    let timeline = match trace {
        None => None,
        Some(path) => {
            let made = Timeline::create(&path, &description.name, &description.geometry, TimelineOptions::default());
            Some((made.map_err(|source| media(&path, source))?, path))
        }
    };
    let spans = timeline.as_ref().map(|(timeline, _)| timeline.spans());
    let (device, clock) = store::open(bytes, mode, &options, description, spans)?;
    Ok((device, clock, timeline))
}

fn media(path: &std::path::Path, source: std::io::Error) -> Error {
    Error::Invalid(format!("the timeline {} cannot be written: {source}", path.display()))
}

impl PyClock {
    /// Calls `ask` with the clock while the GIL is released, since another thread may hold the clock for as long as a
    /// program runs. In a process forked from the one that opened the store, that thread may not exist; the call then
    /// fails instead of waiting.
    fn inside<T: Send>(&self, py: Python<'_>, ask: impl Send + FnOnce(&store::Clock) -> T) -> PyResult<T> {
        if let Ok(device) = device_of(&self.device) {
            if !device.is_here() {
                device.usable().map_err(|e| to_py(py, &e, None))?;
            }
        }
        detached(py, || ask(&self.clock)).map_err(|e| to_py(py, &e, None))
    }

    pub(crate) fn new(clock: Arc<store::Clock>, device: SharedRuntime, timeline: Option<(Timeline, PathBuf)>) -> Self {
        Self { clock, device, timeline: Mutex::new(timeline) }
    }

    /// Waits, in modelled time, for background work of the closed store, then finishes the timeline's file.
    pub(crate) fn close(&self) -> Result<()> {
        let settled = caught(|| self.clock.settle()).map_err(Error::Internal);
        let finished = match self.timeline.lock().take() {
            None => Ok(()),
            Some((timeline, path)) => timeline.finish().map(drop).map_err(|source| media(&path, source)),
        };
        settled.and(finished)
    }
}

#[pymethods]
impl PyClock {
    #[getter]
    fn now_s(&self, py: Python<'_>) -> PyResult<f64> {
        self.inside(py, |clock| clock.now().seconds())
    }

    #[getter]
    fn mount_s(&self, py: Python<'_>) -> PyResult<f64> {
        self.inside(py, |clock| clock.mount_time().seconds())
    }

    fn think(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        if !(0.0..=1e7).contains(&seconds) {
            let e = Error::Invalid(format!("the time to let pass must be from 0 to 10,000,000 s, not {seconds} s"));
            return Err(to_py(py, &e, None));
        }
        self.inside(py, |clock| clock.think(Ps::from_seconds(seconds)))
    }

    fn arrive_after(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        if !(0.0..=1e6).contains(&seconds) {
            let e = Error::Invalid(format!("commands arrive {seconds} s later; this is from 0 to 1,000,000 s"));
            return Err(to_py(py, &e, None));
        }
        self.inside(py, |clock| clock.arrive_after(Ps::from_seconds(seconds)))
    }

    fn batch(&self, py: Python<'_>) -> PyResult<()> {
        self.inside(py, store::Clock::batch)
    }

    /// Ends a batch and returns (kind, bytes, submitted, done, failed) of each of its commands in the order in which
    /// they ended; times in seconds.
    fn end_batch(&self, py: Python<'_>, depth: usize) -> PyResult<Vec<(&'static str, u64, f64, f64, bool)>> {
        let done = self.inside(py, |clock| clock.end_batch(depth))?;
        let kind = |kind| match kind {
            SpaceJobKind::Read => "read",
            SpaceJobKind::Write => "write",
            SpaceJobKind::Other
            | SpaceJobKind::Input
            | SpaceJobKind::Output
            | SpaceJobKind::Stream { .. }
            | SpaceJobKind::Feed { .. }
            | SpaceJobKind::Pass { .. } => "command",
        };
        Ok(done.iter().map(|d| (kind(d.kind), d.bytes, d.submitted.seconds(), d.done.seconds(), d.failed)).collect())
    }

    /// Lets modelled time pass until all background work has ended.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.inside(py, store::Clock::settle)
    }

    /// Returns the clock's report as JSON, and as a table in text.
    fn report(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let stat = || device_of(&self.device).and_then(|device| device.execute(command::Stat));
        let numbers = match detached(py, stat).flatten() {
            Ok(numbers) => numbers,
            // A closed store no longer has counters of its own.
            Err(Error::Closed(_)) => vec![],
            Err(e) => return Err(to_py(py, &e, None)),
        };
        let report = self.inside(py, |clock| clock.report(&numbers))?;
        Ok((report.to_json(), report.to_string()))
    }
}
