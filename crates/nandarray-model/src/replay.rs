//! Replays: a workload on a described device, from settings to a report. This is the entry point of `nandarray.replay`
//! and of the command `nandarray replay`.
//!
//! The device is preconditioned (empty, full, or as after long use; this takes no modelled time) and executes the
//! requests of a trace or a generator until there are no more. Invariants are checked on every run: every request ends
//! once, no part is busy for longer than the elapsed time, and bytes and energy add up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::describe::Description;
use crate::ftl::{FtlError, FtlSetupError, LayOutError};
use crate::machine::{DriveProgress, Machine, RequestEnded, RequestStatus};
use crate::report::{Latencies, Report, WorkloadProfile, promises};
use crate::timeline::{Timeline, TimelineOptions};
use crate::workload::{BoxRequests, Boxes, Generator, RequestSource, Synthetic, Trace, TraceSettings, WorkloadError};
use nandarray_sim::Ps;

/// Number of pages written between two reports of progress while a device is brought into its steady state.
const PAGES_PER_REPORT: u64 = 1 << 20;

/// The requests to be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Workload {
    /// Requests from a generator.
    Synthetic(Synthetic),
    /// Requests from a trace file.
    Trace {
        /// Path of the trace file.
        path: PathBuf,
        /// Settings of the trace.
        #[serde(default)]
        settings: TraceSettings,
    },
    /// Requests for boxes of an array that is stored row by row.
    Boxes(Boxes),
}

/// State of the device when the first request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Precondition {
    /// As it leaves the factory: reads find no data and need no flash operation.
    Empty,
    /// Every byte was written once, in order.
    #[default]
    Full,
    /// Full, then overwritten at random.
    Steady {
        /// Amount of overwrites as a multiple of the capacity, above 0 and at most 100.
        overwrites: f64,
    },
    /// As after long random overwrites; the state is computed, not written: [`crate::ftl::PageMapped::lay_out_used`].
    LaidOut,
}

/// Settings of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineSettings {
    /// Path of the file.
    pub path: PathBuf,
    /// Maximum number of spans that are written.
    #[serde(default = "spans_max")]
    pub spans_max: u64,
    /// Spans that end before this time, in seconds, are left out.
    #[serde(default)]
    pub from_s: f64,
    /// Spans that begin at or after this time, in seconds, are left out; `None` for no such limit.
    #[serde(default)]
    pub until_s: Option<f64>,
}

fn spans_max() -> u64 {
    TimelineOptions::default().spans_max
}

/// Settings of a replay, without the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySettings {
    /// The requests to be replayed.
    pub workload: Workload,
    /// State of the device before the first request.
    #[serde(default)]
    pub precondition: Precondition,
    /// Seed of all random choices of the device.
    #[serde(default = "one")]
    pub seed: u64,
    /// Settings of the timeline; `None` to write none.
    #[serde(default)]
    pub timeline: Option<TimelineSettings>,
}

fn one() -> u64 {
    1
}

/// Progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayPhase {
    /// The device is being preconditioned; the fraction that is done.
    Preconditioning(f64),
    /// Requests are being replayed.
    Replaying {
        /// Fraction of the workload that was submitted; `None` if it is not known.
        share: Option<f64>,
        /// Number of requests that have ended.
        requests: u64,
        /// Bytes that the ended requests moved.
        bytes: u64,
        /// Modelled time since the replay began.
        now: Ps,
    },
}

/// The error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The workload's settings are invalid, or its trace is malformed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The description leaves no flash to manage.
    #[error(transparent)]
    Setup(#[from] FtlSetupError),
    /// The device ran out of blocks before the first request.
    #[error("preconditioning: {0}")]
    Precondition(FtlError),
    /// The state of the device after long use cannot be computed.
    #[error("preconditioning: {0}; a number of overwrites writes it instead")]
    LayOut(#[from] LayOutError),
    /// A setting is out of range; the sentence names its value and its range.
    #[error("{0}")]
    Setting(String),
    /// The timeline could not be written.
    #[error("writing the timeline failed: {0}")]
    Timeline(std::io::Error),
    /// The progress callback ended the replay.
    #[error("the replay was interrupted")]
    Interrupted,
}

fn timeline(description: &Description, settings: &TimelineSettings) -> Result<Timeline, ReplayError> {
    let second = |what: &str, s: f64| {
        // Up to about the largest time that the clock can represent.
        if (0.0..=1.8e7).contains(&s) {
            Ok(Ps::from_seconds(s))
        } else {
            Err(ReplayError::Setting(format!("the timeline {what} second {s}, which must be from 0 to 18,000,000")))
        }
    };
    let from = second("begins at", settings.from_s)?;
    let until = settings.until_s.map_or(Ok(Ps::MAX), |s| second("ends at", s))?;
    let options = TimelineOptions { spans_max: settings.spans_max, from, until };
    Timeline::create(&settings.path, &description.name, &description.geometry, options).map_err(ReplayError::Timeline)
}

/// Brings the device into its state before the first request.
fn precondition(
    machine: &mut Machine,
    settings: &ReplaySettings,
    on_progress: &mut dyn FnMut(ReplayPhase) -> bool,
) -> Result<(), ReplayError> {
    let failed = ReplayError::Precondition;
    match settings.precondition {
        Precondition::Empty => Ok(()),
        Precondition::Full => machine.ftl().fill_sequential().map_err(failed),
        Precondition::LaidOut => {
            if !on_progress(ReplayPhase::Preconditioning(0.0)) {
                return Err(ReplayError::Interrupted);
            }
            Ok(machine.ftl().lay_out_used(settings.seed)?)
        }
        Precondition::Steady { overwrites } => {
            if !(overwrites > 0.0 && overwrites <= 100.0) {
                let said = format!("overwrites of the device must be above 0 and at most 100, not {overwrites}");
                return Err(ReplayError::Setting(said));
            }
            machine.ftl().fill_sequential().map_err(failed)?;
            let capacity = machine.ftl().capacity_pages();
            let pages = (capacity as f64 * overwrites).ceil() as u64;
            let mut done = 0;
            while done < pages {
                if !on_progress(ReplayPhase::Preconditioning(done as f64 / pages as f64)) {
                    return Err(ReplayError::Interrupted);
                }
                let now = PAGES_PER_REPORT.min(pages - done);
                // Each stretch of writes has its own seed, derived from the run's.
                let seed = settings.seed ^ (done / PAGES_PER_REPORT + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                machine.ftl().steady_state(seed, capacity, now).map_err(failed)?;
                done += now;
            }
            Ok(())
        }
    }
}

/// Replays a workload on a device. `on_progress` is called from time to time with the progress and ends the replay by
/// returning `false`.
///
/// # Errors
/// If a setting is out of range, the workload cannot be read or does not fit the device, the timeline cannot be
/// written, or `on_progress` returned `false`. Failed requests are not an error: the report counts them.
///
/// # Panics
/// If the report is inconsistent, which is a defect of the model.
pub fn replay(
    description: &Description,
    settings: &ReplaySettings,
    on_progress: &mut dyn FnMut(ReplayPhase) -> bool,
) -> Result<Report, ReplayError> {
    let timeline = settings.timeline.as_ref().map(|t| timeline(description, t)).transpose()?;
    let mut machine = Machine::new(description, settings.seed, timeline.as_ref().map(Timeline::spans));
    machine.attach_blocks(settings.seed)?;
    let capacity_bytes = machine.capacity_bytes();
    let mut source: Box<dyn RequestSource> = match &settings.workload {
        Workload::Synthetic(synthetic) => Box::new(Generator::new(synthetic.clone(), capacity_bytes)?),
        Workload::Boxes(boxes) => Box::new(BoxRequests::new(boxes.clone(), capacity_bytes)?),
        Workload::Trace { path, settings } => Box::new(Trace::open(path, *settings, capacity_bytes)?),
    };
    precondition(&mut machine, settings, on_progress)?;
    let mut latencies = Latencies::default();
    let mut interrupted = false;
    let mut progress = |p: DriveProgress| {
        let phase = ReplayPhase::Replaying { share: p.share, requests: p.requests, bytes: p.bytes, now: p.now };
        interrupted |= !on_progress(phase);
        !interrupted
    };
    let mut on_end = |ended: &RequestEnded| {
        let request = &ended.request;
        latencies.record(request.op, request.bytes, ended.arrived, ended.done, ended.status == RequestStatus::Success);
    };
    let driven = machine.drive(source.as_mut(), &mut on_end, &mut progress);
    if interrupted {
        return Err(ReplayError::Interrupted);
    }
    driven?;
    let mut report = machine.report(&latencies);
    report.check().unwrap_or_else(|e| panic!("the report does not add up: {e}"));
    if let Workload::Synthetic(synthetic) = &settings.workload {
        if let Some(spec) = &description.spec {
            report.promises = promises(spec, WorkloadProfile::of(synthetic), &report);
        }
    }
    let limit_w = description.spec.as_ref().and_then(|spec| spec.power_limit_uw).map(|uw| uw as f64 * 1e-6);
    if let Some(limit_w) = limit_w.filter(|&limit_w| report.energy.device_w > limit_w) {
        let device_w = report.energy.device_w;
        report.notes.push(format!(
            "the device took {device_w:.1} W, more than the {limit_w} W that its form factor allows: a real one would \
             slow down"
        ));
    }
    report.notes.push(match settings.precondition {
        Precondition::Empty => "the device was empty".into(),
        Precondition::Full => "the device had been filled once, in order".into(),
        Precondition::LaidOut => "the device was laid out as after long random overwrites; no block was worn".into(),
        Precondition::Steady { overwrites } => {
            format!("the device had been filled, and overwritten at random {overwrites} times")
        }
    });
    report.notes.extend(source.notes());
    if let Some(timeline) = timeline {
        drop(machine);
        let end = timeline.finish().map_err(ReplayError::Timeline)?;
        if end.left_out > 0 {
            report
                .notes
                .push(format!("the timeline has the first {} spans; {} were left out", end.written, end.left_out));
        }
    }
    Ok(report)
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
