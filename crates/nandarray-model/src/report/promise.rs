//! Compares a data sheet's figures with measured ones. A figure holds for one kind of workload, and only matching
//! figures are compared.

use serde::Serialize;

use super::Report;
use crate::describe::Spec;
use crate::workload::{Arrival, Pattern, Skew, Synthetic};

/// The kind of a workload, as far as data sheets distinguish kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadProfile {
    /// Sequential reads of at least 64 KiB.
    SequentialRead,
    /// Sequential writes of at least 64 KiB.
    SequentialWrite,
    /// Random reads of 4 KiB.
    RandomRead {
        /// Number of requests in flight, of all queues together.
        depth: u32,
    },
    /// Random writes of 4 KiB.
    RandomWrite {
        /// Number of requests in flight, of all queues together.
        depth: u32,
    },
    /// A workload that no data sheet has a figure for.
    Other,
}

impl WorkloadProfile {
    /// Returns the kind of a generated workload.
    pub fn of(synthetic: &Synthetic) -> Self {
        let Arrival::Closed { depth } = synthetic.arrival else { return Self::Other };
        let reads = synthetic.read_share >= 1.0;
        let writes = synthetic.read_share <= 0.0 && synthetic.trim_share <= 0.0 && synthetic.flush_every == 0;
        let [size] = synthetic.sizes[..] else { return Self::Other };
        match synthetic.pattern {
            Pattern::Sequential if size.bytes >= 64 << 10 && reads => Self::SequentialRead,
            Pattern::Sequential if size.bytes >= 64 << 10 && writes => Self::SequentialWrite,
            Pattern::Random if size.bytes == 4096 && synthetic.skew == Skew::Uniform => match (reads, writes) {
                (true, _) => Self::RandomRead { depth },
                (_, true) => Self::RandomWrite { depth },
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// A figure of a data sheet and its measured counterpart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// Name of the figure.
    pub what: &'static str,
    /// Unit of the figure.
    pub unit: &'static str,
    /// The data sheet's figure.
    pub promised: f64,
    /// The measured figure.
    pub measured: f64,
    /// The measured figure divided by the data sheet's.
    pub ratio: f64,
    /// Whether the preset claims to match the data sheet within 15 %.
    pub claimed: bool,
}

/// Returns the data sheet's figures that hold for this kind of workload, each with the measured figure.
pub fn promises(spec: &Spec, profile: WorkloadProfile, report: &Report) -> Vec<Promise> {
    let mut found = Vec::new();
    let mut compare = |what, unit, promised: Option<f64>, measured: f64| {
        if let Some(promised) = promised.filter(|&p| p > 0.0) {
            let ratio = measured / promised;
            found.push(Promise { what, unit, promised, measured, ratio, claimed: spec.claims_match });
        }
    };
    let number = |n: Option<u64>| n.map(|n| n as f64);
    let (read, write) = (&report.read, &report.write);
    match profile {
        WorkloadProfile::SequentialRead => {
            compare("sequential read", "B/s", number(spec.seq_read_bytes_per_s), read.bytes_per_s);
        }
        WorkloadProfile::SequentialWrite => {
            compare("sequential write", "B/s", number(spec.seq_write_bytes_per_s), write.bytes_per_s);
        }
        WorkloadProfile::RandomRead { depth } => {
            let deep = depth >= spec.queue_depth;
            compare("random 4 KiB read", "IOPS", number(spec.rand_read_iops.filter(|_| deep)), read.iops);
            let alone = spec.read_latency.filter(|_| depth == 1).map(|t| t.us());
            compare("4 KiB read alone", "us", alone, read.latency.as_ref().map_or(0.0, |l| l.mean_us));
        }
        WorkloadProfile::RandomWrite { depth } => {
            let deep = depth >= spec.queue_depth;
            compare("random 4 KiB write", "IOPS", number(spec.rand_write_iops.filter(|_| deep)), write.iops);
        }
        WorkloadProfile::Other => {}
    }
    if matches!(profile, WorkloadProfile::SequentialRead | WorkloadProfile::SequentialWrite) {
        compare("power while busy", "W", number(spec.power_uw).map(|uw| uw * 1e-6), report.energy.device_w);
    }
    found
}
