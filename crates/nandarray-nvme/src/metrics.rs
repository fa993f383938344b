//! Counts of commands by kind and by tenant: operations, failures, bytes, and durations in buckets.
//!
//! A tenant's counts are in shards, one for each few queues, so that threads of different queues do not write the same
//! cache line; a command adds to two to four of them, relaxed and without a lock. Durations are integers in
//! nanoseconds, and bucket `i` has those of at most `2^(10 + i)`. The number of tenants that have counts of their own
//! is limited: names come from hosts. Not here: what a count is called outside (`python/nandarray/serving/metrics.py`),
//! and clocks: the transport measures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray_nvme_spec::Status;
use parking_lot::Mutex;

use crate::commands::IoCommand;

/// Maximum number of tenants with counts of their own; those of all later ones are together in [`OTHER_TENANTS`].
pub(crate) const TENANTS_MAX: usize = 32;
/// Name of the tenants beyond the first [`TENANTS_MAX`].
pub(crate) const OTHER_TENANTS: &str = "other";
/// Name of the hosts of the discovery service, which are strangers.
pub(crate) const DISCOVERY_TENANT: &str = "discovery";
/// Binary logarithm of the least upper bound of a bucket, in nanoseconds: 1,024 ns.
pub const BUCKET_FIRST_LOG2: u32 = 10;
/// Number of buckets: the last but one is for up to 2^36 ns (69 s), the last for all longer ones.
pub const BUCKETS: usize = 28;
/// Number of shards of a tenant's counts.
const SHARDS: usize = 8;

/// A kind of command, as an operator tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// Read of a block namespace.
    Read,
    /// Write of a block namespace.
    Write,
    /// Flush.
    Flush,
    /// Copy within block namespaces.
    Copy,
    /// N-D read.
    NdRead,
    /// N-D write.
    NdWrite,
    /// A part of an array request or of its reply.
    ArrayRequest,
    /// An execution of programs: by a slot, or by an array request.
    ProgramRun,
    /// A command of the admin queue.
    Admin,
    /// Any other command.
    Other,
}

impl OperationKind {
    /// All kinds, in order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Copy,
        Self::NdRead,
        Self::NdWrite,
        Self::ArrayRequest,
        Self::ProgramRun,
        Self::Admin,
        Self::Other,
    ];

    /// Returns the word of the kind, the value of a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Copy => "copy",
            Self::NdRead => "nd_read",
            Self::NdWrite => "nd_write",
            Self::ArrayRequest => "array_request",
            Self::ProgramRun => "program_run",
            Self::Admin => "admin",
            Self::Other => "other",
        }
    }

    /// Returns the kind of a command of an I/O queue; `None` stands for a command that the subsystem does not have.
    pub(crate) fn of(command: Option<IoCommand>) -> Self {
        match command {
            Some(IoCommand::Read) => Self::Read,
            Some(IoCommand::Write) => Self::Write,
            Some(IoCommand::Flush) => Self::Flush,
            Some(IoCommand::Copy) => Self::Copy,
            Some(IoCommand::NdRead) => Self::NdRead,
            Some(IoCommand::NdWrite) => Self::NdWrite,
            Some(IoCommand::ArrayRequest | IoCommand::ArrayReply | IoCommand::RunOutput) => Self::ArrayRequest,
            Some(IoCommand::ExecuteProgram) => Self::ProgramRun,
            Some(IoCommand::Compare | IoCommand::WriteZeroes | IoCommand::DatasetManagement) => Self::Other,
            Some(IoCommand::OpenSpace | IoCommand::SpaceInformation | IoCommand::CloseSpace) => Self::Other,
            Some(IoCommand::DeleteSpace | IoCommand::StoreBox | IoCommand::DeleteBox) => Self::Other,
            Some(IoCommand::MemoryCopy | IoCommand::MemoryRead | IoCommand::MemoryFill) => Self::Other,
            Some(IoCommand::ReservationRegister | IoCommand::ReservationReport) => Self::Other,
            Some(IoCommand::ReservationAcquire | IoCommand::ReservationRelease) => Self::Other,
            Some(IoCommand::MemoryWrite) | None => Self::Other,
        }
    }
}

/// One command that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: OperationKind,
    pub(crate) nanoseconds: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) failed: bool,
}

/// Returns the bucket of a duration.
fn bucket_of(nanoseconds: u64) -> usize {
    let log2_up = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
    (log2_up.saturating_sub(BUCKET_FIRST_LOG2) as usize).min(BUCKETS - 1)
}

#[derive(Debug, Default)]
struct KindCounts {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    kinds: [KindCounts; OperationKind::ALL.len()],
}

/// The counts of one kind of command of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationCounts {
    /// The kind.
    pub kind: OperationKind,
    /// Number of commands that have ended, by their duration: those of at most `2^(BUCKET_FIRST_LOG2 + i)` ns, and of
    /// none of the earlier buckets.
    pub buckets: [u64; BUCKETS],
    /// Sum of all durations.
    pub nanoseconds: u64,
    /// Bytes from hosts.
    pub bytes_in: u64,
    /// Bytes to hosts.
    pub bytes_out: u64,
    /// Number of commands that ended with an error.
    pub failed: u64,
}

/// The counts of one tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantMeter {
    shards: [Shard; SHARDS],
}

impl TenantMeter {
    /// Counts a command of queue `qid`.
    pub(crate) fn add(&self, qid: u16, operation: Operation) {
        let counts = &self.shards[usize::from(qid) % SHARDS].kinds[operation.kind as usize];
        counts.buckets[bucket_of(operation.nanoseconds)].fetch_add(1, Ordering::Relaxed);
        counts.nanoseconds.fetch_add(operation.nanoseconds, Ordering::Relaxed);
        if operation.bytes_in > 0 {
            counts.bytes_in.fetch_add(operation.bytes_in, Ordering::Relaxed);
        }
        if operation.bytes_out > 0 {
            counts.bytes_out.fetch_add(operation.bytes_out, Ordering::Relaxed);
        }
        if operation.failed {
            counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts of each kind of which there were commands.
    fn counts(&self) -> Vec<OperationCounts> {
        let of = |kind: OperationKind| {
            let all = self.shards.iter().map(|shard| &shard.kinds[kind as usize]);
            let sum = |one: &dyn Fn(&KindCounts) -> &AtomicU64| -> u64 {
                all.clone().map(|counts| one(counts).load(Ordering::Relaxed)).sum()
            };
            OperationCounts {
                kind,
                buckets: std::array::from_fn(|i| sum(&|counts| &counts.buckets[i])),
                nanoseconds: sum(&|counts| &counts.nanoseconds),
                bytes_in: sum(&|counts| &counts.bytes_in),
                bytes_out: sum(&|counts| &counts.bytes_out),
                failed: sum(&|counts| &counts.failed),
            }
        };
        OperationKind::ALL.into_iter().map(of).filter(|found| found.buckets.iter().any(|&count| count > 0)).collect()
    }
}

/// The counts of all tenants of a subsystem.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    tenants: Mutex<BTreeMap<String, Arc<TenantMeter>>>,
    /// Number of commands that failed, by the name of their status.
    failures: Mutex<BTreeMap<&'static str, u64>>,
}

impl Meters {
    /// Returns the counts of a tenant, or those that it shares with other late ones.
    pub(crate) fn of(&self, tenant: &str) -> Arc<TenantMeter> {
        let mut tenants = self.tenants.lock();
        let own = tenants.keys().filter(|name| !matches!(name.as_str(), OTHER_TENANTS | DISCOVERY_TENANT)).count();
        let is_known = tenants.contains_key(tenant) || tenant == DISCOVERY_TENANT;
        let name = if is_known || own < TENANTS_MAX { tenant } else { OTHER_TENANTS };
        tenants.entry(name.to_owned()).or_default().clone()
    }

    /// Counts a command that failed.
    pub(crate) fn failed(&self, status: Status) {
        *self.failures.lock().entry(status.name()).or_default() += 1;
    }

    /// Returns the counts of each tenant, by its name.
    pub(crate) fn operations(&self) -> Vec<(String, Vec<OperationCounts>)> {
        let tenants = self.tenants.lock().clone();
        tenants.into_iter().map(|(name, meter)| (name, meter.counts())).collect()
    }

    /// Returns the number of failed commands by the name of their status.
    pub(crate) fn failures(&self) -> Vec<(&'static str, u64)> {
        self.failures.lock().iter().map(|(&name, &count)| (name, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_durations_up_to_its_power_of_two() {
        for (nanoseconds, bucket) in [(0, 0), (1, 0), (1024, 0), (1025, 1), (2048, 1), (2049, 2), (1 << 36, 26)] {
            assert_eq!(bucket_of(nanoseconds), bucket, "{nanoseconds} ns");
        }
        assert_eq!(bucket_of((1 << 36) + 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn counts_of_threads_add_up_to_a_second_implementation() {
        let meters = Meters::default();
        let threads: Vec<_> = (0..4u16)
            .map(|qid| {
                let meter = meters.of("a");
                std::thread::spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(u64::from(qid));
                    let mut model: BTreeMap<OperationKind, (u64, u64, u64, u64, u64)> = BTreeMap::new();
                    for _ in 0..5000 {
                        let operation = Operation {
                            kind: OperationKind::ALL[rng.usize(..OperationKind::ALL.len())],
                            nanoseconds: rng.u64(..1 << 40),
                            bytes_in: rng.u64(..3),
                            bytes_out: rng.u64(..3),
                            failed: rng.bool(),
                        };
                        meter.add(qid * 5, operation);
                        let of = model.entry(operation.kind).or_default();
                        of.0 += 1;
                        of.1 += operation.nanoseconds;
                        of.2 += operation.bytes_in;
                        of.3 += operation.bytes_out;
                        of.4 += u64::from(operation.failed);
                    }
                    model
                })
            })
            .collect();
        let mut wanted: BTreeMap<OperationKind, (u64, u64, u64, u64, u64)> = BTreeMap::new();
        for thread in threads {
            for (kind, one) in nandarray::internals::joined(thread) {
                let of = wanted.entry(kind).or_default();
                *of = (of.0 + one.0, of.1 + one.1, of.2 + one.2, of.3 + one.3, of.4 + one.4);
            }
        }
        let found = meters.operations();
        assert_eq!(found.len(), 1);
        for counts in &found[0].1 {
            let sums =
                (counts.buckets.iter().sum(), counts.nanoseconds, counts.bytes_in, counts.bytes_out, counts.failed);
            assert_eq!(Some(&sums), wanted.get(&counts.kind), "{:?}", counts.kind);
        }
        assert_eq!(found[0].1.len(), wanted.len());
    }

    #[test]
    fn tenants_beyond_the_limit_share_their_counts() {
        let meters = Meters::default();
        for number in 0..1000 {
            let kind = OperationKind::Read;
            let operation = Operation { kind, nanoseconds: 1, bytes_in: 0, bytes_out: 0, failed: false };
            meters.of(&format!("host {number}")).add(1, operation);
        }
        drop(meters.of(DISCOVERY_TENANT));
        let found = meters.operations();
        assert_eq!(found.len(), TENANTS_MAX + 2);
        let other = found.iter().find(|(name, _)| name == OTHER_TENANTS).unwrap();
        assert_eq!(other.1[0].buckets[0], (1000 - TENANTS_MAX) as u64);
    }

    /// `cargo test -p nandarray-nvme the_cost_of_counting -- --ignored --nocapture` prints the cost.
    #[test]
    #[ignore = "a measurement"]
    #[allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement")]
    fn the_cost_of_counting() {
        let (meter, mut sum) = (Meters::default().of("a"), 0);
        let rounds = 2_000_000u32;
        let begun = std::time::Instant::now();
        for _ in 0..rounds {
            let before = std::time::Instant::now();
            let nanoseconds = before.elapsed().as_nanos() as u64;
            sum += nanoseconds;
            let kind = OperationKind::Read;
            meter.add(1, Operation { kind, nanoseconds, bytes_in: 0, bytes_out: 4096, failed: false });
        }
        let each = begun.elapsed().as_nanos() as f64 / f64::from(rounds);
        println!("{each:.1} ns a command, with two looks at the clock ({sum} ns)");
    }
}
