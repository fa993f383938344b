//! `[spec]`: figures of a data sheet, for comparison with the model.

use nandarray_describe::ValueKind::{self, Count, CountOrNone, Flag, Power, RateOr, TimeOrNone};
use nandarray_describe::{Checks, Quantities, declare};
use nandarray_sim::Ps;

use super::super::Description;

const SPEC_RATE: ValueKind = RateOr("none", 1_000_000, 256_000_000_000);
const SPEC_COUNT: ValueKind = CountOrNone(1, 1_000_000_000);

declare! {
    /// Figures of a data sheet.
    #[derive(Default)]
    pub struct Spec in "spec", from "not published", {
        "seq_read": SPEC_RATE, "data sheet: sequential read", default "none" => seq_read_bytes_per_s: Option<u64>;
        "seq_write": SPEC_RATE, "data sheet: sequential write", default "none" => seq_write_bytes_per_s: Option<u64>;
        "rand_read_iops": SPEC_COUNT, "data sheet: random 4 KiB reads a second", default "none"
            => rand_read_iops: Option<u64>;
        "rand_write_iops": SPEC_COUNT, "data sheet: random 4 KiB writes a second", default "none"
            => rand_write_iops: Option<u64>;
        "queue_depth": Count(1, 1 << 20), "queue depth, of all queues, of the random figures", default "1"
            => queue_depth: u32;
        "read_latency": TimeOrNone(Ps::ZERO, Ps::from_ms(100)), "data sheet: latency of one 4 KiB read",
            default "none" => read_latency: Option<Ps>;
        "power": Power(0.0, 1e9), "data sheet: average power while busy", default "0 W" =>
            /// Average power while busy, in microwatts, if published.
            power_uw: Option<u64> = |q| stated(q, "spec.power");
        "power_limit": Power(0.0, 1e9), "the most that its form factor lets it take; 0: not stated", default "0 W" =>
            /// Power limit of the form factor, in microwatts, if stated.
            power_limit_uw: Option<u64> = |q| stated(q, "spec.power_limit");
        "claims_match": Flag, "whether the preset claims to match, to 15 %", default "false" => claims_match: bool;
    }
}

/// Returns a power in whole microwatts; `None` if it is not stated.
fn stated(q: &Quantities<'_>, path: &str) -> Option<u64> {
    let uw = q.get::<f64>(path).round() as u64;
    (uw > 0).then_some(uw)
}

impl Spec {
    /// Whether there is any figure.
    pub(in super::super) fn promises(&self) -> bool {
        self.seq_read_bytes_per_s.is_some()
            || self.seq_write_bytes_per_s.is_some()
            || self.rand_read_iops.is_some()
            || self.rand_write_iops.is_some()
            || self.read_latency.is_some()
            || self.power_uw.is_some()
            || self.power_limit_uw.is_some()
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let depth = u64::from(d.host.queues) * u64::from(d.host.queue_entries);
    checks.hold(
        d.spec.as_ref().is_none_or(|s| u64::from(s.queue_depth) <= depth),
        "spec.queue_depth",
        || "is deeper than all queues together".to_owned(),
        || format!("allowed are {depth}: host.queues x host.queue_entries"),
    );
}
