//! Latencies of requests: counts, bytes and percentiles by operation, up to the 99.99th.
//!
//! Latencies are kept in histograms of three significant digits (HdrHistogram) from a picosecond to 11 days: a
//! percentile is at most 0.1 % above the exact value, and memory use does not depend on the number of requests. Mean,
//! minimum and maximum are exact.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::workload::RequestOp;
use nandarray_sim::Ps;

/// Longest latency that the histograms distinguish: 11.5 days.
const LONGEST_PS: u64 = 1_000_000_000_000_000_000;

#[derive(Clone, Debug)]
struct OfOp {
    histogram: Histogram<u64>,
    bytes: u64,
    failed: u64,
    sum_ps: u128,
    least: Ps,
    most: Ps,
}

impl OfOp {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_PS, 3).expect("bounds that are known to do");
        Self { histogram, bytes: 0, failed: 0, sum_ps: 0, least: Ps::MAX, most: Ps::ZERO }
    }
}

/// Latencies of the requests that have ended so far.
#[derive(Clone, Debug)]
pub struct Latencies {
    ops: [OfOp; 4],
    first: Ps,
    last: Ps,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { ops: std::array::from_fn(|_| OfOp::new()), first: Ps::MAX, last: Ps::ZERO }
    }
}

impl Latencies {
    /// Records a request with its arrival and its completion. A failed request is counted, but its latency is not.
    pub fn record(&mut self, op: RequestOp, bytes: u64, arrived: Ps, done: Ps, succeeded: bool) {
        self.first = self.first.min(arrived);
        self.last = self.last.max(done);
        let of = &mut self.ops[op as usize];
        if !succeeded {
            of.failed += 1;
            return;
        }
        let took = done - arrived;
        of.histogram.saturating_record(took.0);
        of.bytes += bytes;
        of.sum_ps += u128::from(took.0);
        of.least = of.least.min(took);
        of.most = of.most.max(took);
    }

    /// Returns the time from the first arrival to the last completion.
    pub fn elapsed(&self) -> Ps {
        self.last.since(self.first)
    }

    /// Returns the figures of one operation.
    pub fn of(&self, op: RequestOp) -> OpReport {
        OpReport::new(&self.ops[op as usize], self.elapsed())
    }

    /// Returns the figures of all operations together.
    pub fn all(&self) -> OpReport {
        let mut all = OfOp::new();
        for of in &self.ops {
            all.histogram.add(&of.histogram).expect("all have the same bounds");
            all.bytes += of.bytes;
            all.failed += of.failed;
            all.sum_ps += of.sum_ps;
            all.least = all.least.min(of.least);
            all.most = all.most.max(of.most);
        }
        OpReport::new(&all, self.elapsed())
    }
}

/// Returns the latency distribution for a chart: pairs of a latency in microseconds and the fraction of requests that
/// took no longer, in order. There are as many points for the last thousandth of the requests as for the first half.
fn distribution(of: &OfOp) -> Vec<(f64, f64)> {
    const POINTS: u32 = 64;
    let mut drawn: Vec<(f64, f64)> = vec![(of.least.us(), 0.0)];
    for i in 1..POINTS {
        let share = 1.0 - 0.5f64.powf(f64::from(i) * 16.0 / f64::from(POINTS));
        let us = value(of, share).us();
        if us < of.most.us() && drawn.last().is_none_or(|&(last, _)| us > last) {
            drawn.push((us, share));
        }
    }
    drawn.push((of.most.us(), 1.0));
    drawn
}

/// Returns the latency that this fraction of the requests did not exceed.
fn value(of: &OfOp, share: f64) -> Ps {
    Ps(of.histogram.value_at_quantile(share)).clamp(of.least, of.most)
}

/// Figures of the requests of one operation, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpReport {
    /// Number of requests that succeeded.
    pub requests: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Bytes that the successful requests moved (that they named, for trims).
    pub bytes: u64,
    /// Successful requests per second, from the first arrival to the last completion.
    pub iops: f64,
    /// Bytes per second, from the first arrival to the last completion.
    pub bytes_per_s: f64,
    /// Latencies from arrival to completion; `None` if no request succeeded.
    pub latency: Option<Latency>,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean latency.
    pub mean_us: f64,
    /// Lowest latency.
    pub min_us: f64,
    /// Median: half of the requests took no longer.
    pub p50_us: f64,
    /// 90th percentile of the latencies.
    pub p90_us: f64,
    /// 95th percentile of the latencies.
    pub p95_us: f64,
    /// 99th percentile of the latencies.
    pub p99_us: f64,
    /// 99.9th percentile of the latencies.
    pub p99_9_us: f64,
    /// 99.99th percentile of the latencies.
    pub p99_99_us: f64,
    /// Highest latency.
    pub max_us: f64,
    /// At most 65 pairs of a latency in microseconds and the fraction of requests that took no longer, in order.
    pub distribution: Vec<(f64, f64)>,
}

impl OpReport {
    fn new(of: &OfOp, elapsed: Ps) -> Self {
        let requests = of.histogram.len();
        let a_second = |n: u64| if elapsed == Ps::ZERO { 0.0 } else { n as f64 / elapsed.seconds() };
        let at = |share| value(of, share).us();
        let latency = (requests > 0).then(|| Latency {
            mean_us: of.sum_ps as f64 / requests as f64 / 1e6,
            min_us: of.least.us(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: of.most.us(),
            distribution: distribution(of),
        });
        Self {
            requests,
            failed: of.failed,
            bytes: of.bytes,
            iops: a_second(requests),
            bytes_per_s: a_second(of.bytes),
            latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_from_the_first_arrival_to_the_last_answer() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.all(), OpReport::default());
        latencies.record(RequestOp::Read, 4096, Ps::from_ms(1), Ps::from_ms(3), true);
        latencies.record(RequestOp::Write, 8192, Ps::from_ms(2), Ps::from_ms(5), true);
        latencies.record(RequestOp::Write, 8192, Ps::from_ms(2), Ps::from_ms(5), false);
        assert_eq!(latencies.elapsed(), Ps::from_ms(4));
        let (read, all) = (latencies.of(RequestOp::Read), latencies.all());
        assert_eq!((read.requests, read.iops, read.bytes_per_s), (1, 250.0, 1_024_000.0));
        assert_eq!((all.requests, all.failed, all.bytes), (2, 1, 12_288));
        assert_eq!(all.latency.unwrap().mean_us, 2_500.0);
        assert_eq!(latencies.of(RequestOp::Trim).latency, None);
    }

    #[test]
    fn a_distribution_climbs_to_the_longest() {
        let mut latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.record(RequestOp::Read, 1, Ps::ZERO, Ps::from_us(us), true);
        }
        let drawn = latencies.of(RequestOp::Read).latency.unwrap().distribution;
        assert!(drawn.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{drawn:?}");
        assert_eq!((drawn[0], *drawn.last().unwrap()), ((1.0, 0.0), (1000.0, 1.0)));
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_sorting(mut took in prop::collection::vec(0u64..1 << 45, 1..3000)) {
            let mut latencies = Latencies::default();
            for &ps in &took {
                latencies.record(RequestOp::Read, 0, Ps(5), Ps(5 + ps), true);
            }
            took.sort_unstable();
            let got = latencies.of(RequestOp::Read).latency.unwrap();
            for (share, us) in [(0.5, got.p50_us), (0.9, got.p90_us), (0.95, got.p95_us), (0.99, got.p99_us),
                                (0.999, got.p99_9_us), (0.9999, got.p99_99_us)] {
                let rank = ((share * took.len() as f64).ceil() as usize).max(1) - 1;
                let want = took[rank] as f64 / 1e6;
                let fits = us >= want * (1.0 - 1e-12) && us <= want * 1.001 + 1e-6;
                prop_assert!(fits, "{} is {}, not {}", share, us, want);
            }
            prop_assert_eq!(got.min_us, took[0] as f64 / 1e6);
            prop_assert_eq!(got.max_us, *took.last().unwrap() as f64 / 1e6);
            let mean = took.iter().map(|&t| t as f64).sum::<f64>() / took.len() as f64 / 1e6;
            prop_assert!((got.mean_us - mean).abs() <= mean * 1e-9);
        }
    }
}
