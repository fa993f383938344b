//! Configurations of MQSim for which there is no preset, with MQSim's results: data that the benchmark and
//! `tests/mqsim_configurations.rs` share. The test requires some of the rows to agree to 2 %.
//!
//! The files are in `tests/mqsim/`, as MQSim (commit 7ec40e3) read them. Its requests per second are computed from the
//! completion times of its own runs. Of its 99th percentiles only the ratios to ours are recorded.

use nandarray_model::Arrival;
use nandarray_model::describe::{self, Description, Scheduling, mqsim};

use super::cases::{Before, Case};

/// Whether the figure that MQSim gives for a row can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// MQSim does what the configuration says, so any correct simulator agrees.
    Ok,
    /// In MQSim, only one die of a chip works at a time, and sensing alternates with transfers: only the scheduling
    /// `mqsim-compat` must agree.
    Specific,
    /// The figure follows from a defect of MQSim.
    Artefact,
}

impl Trust {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Specific => "specific",
            Self::Artefact => "artefact",
        }
    }
}

/// A configuration with a workload, and MQSim's figures for them.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub trust: Trust,
    pub configuration: &'static str,
    pub workload: &'static str,
    bytes: u64,
    sequential: bool,
    read_share: f64,
    /// Number of requests in flight; 0 for an open loop.
    pub depth: u32,
    /// MQSim's requests per second; for the open loop, its mean latency in microseconds.
    pub mqsim: f64,
    /// 99th percentile of latencies with `mqsim-compat`, divided by MQSim's; 0 if it was not measured.
    pub p99_ratio: f64,
    /// Whether the test requires agreement to 2 %; `docs/model/validation.md` has the causes for other rows.
    pub held: bool,
    /// Number of requests, for rows whose figure depends on it; otherwise `None`.
    requests: Option<u64>,
}

const fn row(
    (trust, configuration, workload): (Trust, &'static str, &'static str),
    (bytes, sequential, read_share, depth): (u64, bool, f64, u32),
    (mqsim, p99_ratio): (f64, f64),
) -> Row {
    // At a deep queue, filling and draining the queue make up one percent of a short run.
    let (held, requests) = (true, if depth >= 256 { Some(200_000) } else { None });
    Row { trust, configuration, workload, bytes, sequential, read_share, depth, mqsim, p99_ratio, held, requests }
}

impl Row {
    /// Returns the row as one that need not agree, to be run with as many requests as MQSim's own run.
    const fn misses(self, requests: u64) -> Self {
        Self { held: false, requests: Some(requests), ..self }
    }
}

const KIB: u64 = 1 << 10;
use Trust::{Artefact, Ok, Specific};

/// Arrivals per second of the open loop: 200 MB/s in requests of 4 KiB.
const OPEN_PER_S: f64 = 200e6 / 4096.0;

pub const ROWS: [Row; 29] = [
    row((Ok, "ideal", "seq read 4K QD1"), (4 * KIB, true, 1.0, 1), (11_248.0, 1.00)),
    row((Ok, "ideal_1die", "rand read 4K QD1"), (4 * KIB, false, 1.0, 1), (11_248.0, 1.00)),
    row((Ok, "ideal_1die", "rand write 16K QD1"), (16 * KIB, false, 0.0, 1), (1_282.0, 1.00)),
    row((Ok, "ideal_1die", "open loop 4K read 200 MB/s"), (4 * KIB, false, 1.0, 0), (93.2, 1.00)),
    row((Ok, "mini256_op28", "rand read 8K QD1"), (8 * KIB, false, 1.0, 1), (9_762.0, 1.00)),
    row((Ok, "mini256_op28", "rand write 8K QD1"), (8 * KIB, false, 0.0, 1), (1_286.0, 1.00)),
    row((Ok, "mini256_op28", "rand write 8K QD1, reclaim"), (8 * KIB, false, 0.0, 1), (954.0, 1.93)).misses(1_000_000),
    row((Ok, "default", "seq read 4K QD1"), (4 * KIB, true, 1.0, 1), (7_854.0, 1.39)).misses(20_000),
    row((Specific, "ideal_1die", "rand read 16K QD32"), (16 * KIB, false, 1.0, 32), (97_544.0, 1.01)),
    row((Specific, "ideal_1die", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (117_919.0, 0.57)),
    row((Specific, "ideal_1die", "seq read 128K QD32"), (128 * KIB, true, 1.0, 32), (17_050.0, 1.00)),
    row((Specific, "ideal_1die", "rand write 16K QD32"), (16 * KIB, false, 0.0, 32), (24_390.0, 1.01)),
    row((Specific, "ideal_1die", "70/30 16K QD32"), (16 * KIB, false, 0.7, 32), (55_544.0, 1.02)),
    row((Specific, "ideal_tR300", "rand read 16K QD32"), (16 * KIB, false, 1.0, 32), (35_089.0, 1.04)),
    row((Specific, "ideal_tR300", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (41_464.0, 0.68)),
    row((Specific, "ideal_tR300", "seq read 128K QD32"), (128 * KIB, true, 1.0, 32), (8_038.0, 1.00)),
    row((Specific, "ideal_1die_tR300", "rand read 16K QD32"), (16 * KIB, false, 1.0, 32), (50_297.0, 1.01)),
    row((Specific, "ideal_1die_tR300", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (64_919.0, 0.66)),
    row((Specific, "ideal_1die_tR300", "seq read 128K QD32"), (128 * KIB, true, 1.0, 32), (11_523.0, 1.00)),
    row((Specific, "mini256_op28", "rand read 8K QD16"), (8 * KIB, false, 1.0, 16), (30_855.0, 1.00)),
    row((Specific, "ideal + cache", "rand write 16K QD32"), (16 * KIB, false, 0.0, 32), (18_493.0, 0.89))
        .misses(150_000),
    row((Specific, "ideal + cache", "rand write 4K QD32"), (4 * KIB, false, 0.0, 32), (40_526.0, 0.77)).misses(150_000),
    row((Artefact, "ideal_mt400", "rand read 16K QD32"), (16 * KIB, false, 1.0, 32), (100_469.0, 1.03)),
    row((Artefact, "ideal_mt400", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (116_095.0, 0.72)),
    row((Artefact, "ideal_mt400", "seq read 128K QD32"), (128 * KIB, true, 1.0, 32), (19_319.0, 1.00)),
    row((Artefact, "ideal_mt1200", "rand read 16K QD32"), (16 * KIB, false, 1.0, 32), (162_766.0, 1.32)).misses(30_000),
    row((Artefact, "ideal_mt1200", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (199_541.0, 2.07))
        .misses(200_000),
    row((Artefact, "ideal_mt1200", "seq read 128K QD32"), (128 * KIB, true, 1.0, 32), (25_027.0, 1.17)),
    row((Artefact, "ideal_mt1200, 9.6 GB/s", "rand read 16K QD512"), (16 * KIB, false, 1.0, 512), (199_541.0, 0.0)),
];

/// Returns the device description of a row, with MQSim's scheduling (`mqsim-compat`) or this model's own (`normal`).
pub fn description(row: &Row, scheduling: Scheduling) -> Description {
    let imported = |xml: &str| {
        let imported = mqsim::import(xml, row.configuration).unwrap_or_else(|e| panic!("{}: {e}", row.configuration));
        imported.sheet.description().unwrap_or_else(|e| panic!("{}: {e}", row.configuration))
    };
    let mut d = match row.configuration {
        "ideal" => describe::preset("mqsim-ideal").expect("a preset"),
        "ideal + cache" => {
            let cache = [("ftl.write_cache", "256 MiB"), ("ftl.early_completion", "true")];
            describe::preset_with("mqsim-ideal", &cache).expect("a preset")
        }
        "default" => describe::preset("mqsim-default").expect("a preset"),
        "ideal_1die" => imported(include_str!("../../tests/mqsim/ideal_1die.xml")),
        "ideal_1die_tR300" => imported(include_str!("../../tests/mqsim/ideal_1die_tR300.xml")),
        "ideal_tR300" => imported(include_str!("../../tests/mqsim/ideal_tR300.xml")),
        "mini256_op28" => imported(include_str!("../../tests/mqsim/mini256_op28.xml")),
        "ideal_mt400" => {
            let mut d = imported(include_str!("../../tests/mqsim/ideal_mt400.xml"));
            // MQSim rounds a transfer of 400 MT/s down to 2 ns.
            d.bus.bytes_per_s = 500_000_000;
            d
        }
        "ideal_mt1200" => imported(include_str!("../../tests/mqsim/ideal_mt1200.xml")),
        "ideal_mt1200, 9.6 GB/s" => {
            let mut d = imported(include_str!("../../tests/mqsim/ideal_mt1200.xml"));
            // In MQSim, a bus above 1,000 MT/s takes no time; this one takes nearly none.
            d.bus.bytes_per_s = 9_600_000_000;
            d
        }
        other => panic!("no configuration {other}"),
    };
    d.controller.scheduling = scheduling;
    d
}

/// Returns the workload of a row, with `requests` requests, or with as many as the row needs.
pub fn case(row: &Row, requests: u64) -> Case {
    let before = if row.read_share > 0.0 { Before::Filled } else { Before::Empty };
    let requests = row.requests.unwrap_or(if row.bytes > 100_000 { requests / 10 } else { requests });
    let mut case =
        Case::closed(row.workload, before, row.bytes, row.sequential, row.read_share, row.depth.max(1), requests);
    if row.depth == 0 {
        case.load.arrival = Arrival::Poisson { per_s: OPEN_PER_S };
    }
    case
}
