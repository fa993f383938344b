//! A command that has ended, as its transport measured it: counted for its tenant, and an event if it took long.

use std::time::{Duration, Instant};

use nandarray_nvme_spec::{Status, SubmissionEntry};

use crate::association::Association;
use crate::events::EventKind;
use crate::io::CommandPlace;
use crate::metrics::{Operation, OperationKind};

/// Duration from which a command is an event of its own; runs of programs have events of their own.
const SLOW: Duration = Duration::from_secs(1);

/// Duration and bytes of a command, measured by the transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Time from the arrival of the whole command to its completion.
    pub(crate) time: Duration,
    /// Bytes of data from the host.
    pub(crate) bytes_in: usize,
    /// Bytes of room for data to the host.
    pub(crate) bytes_out: usize,
}

impl Measured {
    /// Measures a command that arrived at `arrived` and ends now, with its data from the host and its room for data.
    pub(crate) fn of(arrived: Instant, data: Option<&[u8]>, room: usize) -> Self {
        Self { time: arrived.elapsed(), bytes_in: data.map_or(0, <[u8]>::len), bytes_out: room }
    }
}

impl Association {
    /// Counts a command of queue `qid` that has ended with `status`.
    pub(crate) fn measure(&self, qid: u16, entry: &SubmissionEntry, status: Status, measured: Measured) {
        let kind = match qid {
            0 => OperationKind::Admin,
            _ if Self::place_of(entry) == CommandPlace::ProgramWorker => OperationKind::ProgramRun,
            _ => OperationKind::of(self.io_command(entry)),
        };
        let failed = !status.ok();
        let bytes_out = if failed { 0 } else { measured.bytes_out as u64 };
        let nanoseconds = u64::try_from(measured.time.as_nanos()).unwrap_or(u64::MAX);
        self.meter.add(qid, Operation { kind, nanoseconds, bytes_in: measured.bytes_in as u64, bytes_out, failed });
        if failed {
            self.subsystem().meters.failed(status);
        }
        if measured.time >= SLOW && kind != OperationKind::ProgramRun {
            self.subsystem().events.add(EventKind::CommandSlow, || {
                vec![
                    ("host", self.host().hostnqn.as_str().into()),
                    ("controller", u64::from(self.cntlid()).into()),
                    ("queue", u64::from(qid).into()),
                    ("operation", kind.name().into()),
                    ("duration_ns", nanoseconds.into()),
                    ("status", status.name().into()),
                ]
            });
        }
    }
}
