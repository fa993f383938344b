//! What a data sheet promises, beside what came out. A promise holds for one kind of workload; only the fitting ones
//! are compared.

use serde::Serialize;

use super::Report;
use crate::describe::Spec;
use crate::workload::{Arrival, Pattern, Skew, Synthetic};

/// What kind of a workload ran, as far as promises tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Large, one after the other, all reads.
    SequentialRead,
    /// Large, one after the other, all writes.
    SequentialWrite,
    /// 4 KiB reads anywhere, so many at once.
    RandomRead {
        /// Of all queues together.
        depth: u32,
    },
    /// 4 KiB writes anywhere, so many at once.
    RandomWrite {
        /// Of all queues together.
        depth: u32,
    },
    /// Something that no data sheet speaks of.
    Other,
}

impl Profile {
    /// Of a workload that was made up.
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

/// A promise, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// Of what.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// What the data sheet says.
    pub promised: f64,
    /// What came out.
    pub measured: f64,
    /// Measured / promised.
    pub ratio: f64,
    /// Whether the preset claims to match, to 15 %.
    pub claimed: bool,
}

/// The promises of a data sheet that speak of such a workload.
pub fn promises(spec: &Spec, profile: Profile, report: &Report) -> Vec<Promise> {
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
        Profile::SequentialRead => {
            compare("sequential read", "B/s", number(spec.seq_read_bytes_per_s), read.bytes_per_s);
        }
        Profile::SequentialWrite => {
            compare("sequential write", "B/s", number(spec.seq_write_bytes_per_s), write.bytes_per_s);
        }
        Profile::RandomRead { depth } => {
            let deep = depth >= spec.queue_depth;
            compare("random 4 KiB read", "IOPS", number(spec.rand_read_iops.filter(|_| deep)), read.iops);
            let alone = spec.read_latency.filter(|_| depth == 1).map(|t| t.us());
            compare("4 KiB read alone", "us", alone, read.latency.as_ref().map_or(0.0, |l| l.mean_us));
        }
        Profile::RandomWrite { depth } => {
            let deep = depth >= spec.queue_depth;
            compare("random 4 KiB write", "IOPS", number(spec.rand_write_iops.filter(|_| deep)), write.iops);
        }
        Profile::Other => {}
    }
    if matches!(profile, Profile::SequentialRead | Profile::SequentialWrite) {
        compare("power while busy", "W", number(spec.power_uw).map(|uw| uw * 1e-6), report.energy.device_w);
    }
    found
}
