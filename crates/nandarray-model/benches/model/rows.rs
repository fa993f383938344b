//! Compares MQSim's rows, measured from the completion times of its own runs (commit 7ec40e3), with this model's.
//!
//! MQSim's reads run on a filled device. Its writes go to pages that were never written, so writes of a part of a page
//! read nothing first.

use nandarray_model::Arrival;
use nandarray_model::describe::{Scheduling, preset_with};

use crate::Options;
use crate::cases::{Before, Case};
use crate::configurations::{self, ROWS, case, description};
use crate::table::{Table, ratio, whole};

/// A row: name of the workload, bytes, whether sequential, share of reads, depth; then MQSim's IOPS, and its mean,
/// median and 99th percentile of latency in microseconds.
type Row = (&'static str, u64, bool, f64, u32, f64, f64, f64, f64);

/// MQSim's rows for an ideal map, fast DRAM and no cache.
const IDEAL: [Row; 11] = [
    ("rand read 4K QD1", 4 << 10, false, 1.0, 1, 11_248.0, 88.9, 88.9, 88.9),
    ("rand read 4K QD32", 4 << 10, false, 1.0, 32, 191_797.0, 166.8, 125.3, 543.6),
    ("rand read 4K QD256", 4 << 10, false, 1.0, 256, 250_254.0, 1_021.0, 663.7, 5_287.0),
    ("rand read 16K QD32", 16 << 10, false, 1.0, 32, 81_532.0, 392.0, 298.0, 1_440.0),
    ("rand read 16K QD512", 16 << 10, false, 1.0, 512, 93_698.0, 5_438.0, 3_687.0, 21_021.0),
    ("seq read 128K QD32", 128 << 10, true, 1.0, 32, 14_674.0, 2_180.0, 2_141.0, 2_453.0),
    ("rand write 4K QD32", 4 << 10, false, 0.0, 32, 24_870.0, 1_287.0, 803.0, 3_815.0),
    ("rand write 16K QD32", 16 << 10, false, 0.0, 32, 16_118.0, 1_985.0, 1_555.0, 6_454.0),
    ("seq write 128K QD32", 128 << 10, true, 0.0, 32, 4_997.0, 6_400.0, 6_403.0, 7_203.0),
    ("70/30 16K QD32", 16 << 10, false, 0.7, 32, 39_143.0, 817.0, 571.0, 4_776.0),
    ("open loop 4K read 400 MB/s", 4 << 10, false, 1.0, 0, 97_924.0, 108.3, 89.4, 256.2),
];

/// MQSim's results, a workload a row, for the configuration that it comes with:
/// 2 MiB for the map, DRAM of 200 MB/s, a cache of 256 MiB.
const DEFAULT: [Row; 10] = [
    ("rand read 4K QD1", 4 << 10, false, 1.0, 1, 6_034.0, 165.7, 165.8, 165.8),
    ("rand read 4K QD32", 4 << 10, false, 1.0, 32, 116_768.0, 274.0, 238.9, 823.9),
    ("rand read 4K QD256", 4 << 10, false, 1.0, 256, 160_225.0, 1_596.0, 1_111.0, 7_166.0),
    ("rand read 16K QD32", 16 << 10, false, 1.0, 32, 67_286.0, 475.5, 394.5, 1_506.0),
    ("seq read 128K QD32", 128 << 10, true, 1.0, 32, 13_907.0, 2_300.0, 2_459.0, 4_452.0),
    ("rand write 4K QD32", 4 << 10, false, 0.0, 32, 36_621.0, 873.8, 872.1, 1_019.0),
    ("rand write 16K QD32", 16 << 10, false, 0.0, 32, 17_296.0, 1_850.0, 1_722.0, 2_623.0),
    ("seq write 128K QD32", 128 << 10, true, 0.0, 32, 3_037.0, 10_529.0, 10_491.0, 10_860.0),
    ("70/30 16K QD32", 16 << 10, false, 0.7, 32, 41_891.0, 763.7, 780.1, 1_799.0),
    ("open loop 4K read 400 MB/s", 4 << 10, false, 1.0, 0, 97_914.0, 264.7, 232.6, 713.6),
];

/// Returns the reason why this model's own scheduling gives another figure for a workload.
fn why(name: &str) -> &'static str {
    match name {
        "rand read 4K QD1" => "nothing to schedule",
        "seq read 128K QD32" => "sensing goes on while data leaves; dies of a chip work side by side",
        "seq write 128K QD32" | "rand write 4K QD32" | "rand write 16K QD32" => "dies of a chip work side by side",
        "70/30 16K QD32" => "dies side by side; reads before programs, which are suspended",
        "open loop 4K read 400 MB/s" => "dies side by side: shorter queues at the same rate",
        _ => "dies of a chip work side by side; commands go before data",
    }
}

pub fn run(options: Options) {
    for (preset, rows, dram) in [
        ("mqsim-ideal", &IDEAL[..], "3200 MT/s x64"),
        ("mqsim-default", &DEFAULT[..], "200 MB/s"),
        ("mqsim-default", &DEFAULT[..], "ideal"),
    ] {
        let title = format!("MQSim beside {preset}, DRAM {dram}: requests a second, median and 99th percentile");
        let header = [
            "workload",
            "MQSim IOPS",
            "p50 us",
            "p99 us",
            "mqsim-compat IOPS",
            "ratio",
            "p50 us",
            "ratio",
            "p99 us",
            "ratio",
            "normal IOPS",
            "ratio",
            "p50 us",
            "p99 us",
            "why normal differs",
        ];
        let mut table = Table::new("rows", title, &header);
        for &(name, bytes, sequential, reads, depth, iops, mean_us, p50_us, p99_us) in rows {
            let before = if reads > 0.0 { Before::Filled } else { Before::Empty };
            let requests = options.many(if bytes > 100_000 { 20_000 } else { 200_000 });
            let mut case = Case::closed(name, before, bytes, sequential, reads, depth, requests);
            if depth == 0 {
                case.load.arrival = Arrival::Poisson { per_s: iops };
            }
            let mut row = vec![name.to_owned(), whole(iops), format!("{p50_us:.0}"), format!("{p99_us:.0}")];
            for scheduling in ["mqsim-compat", "normal"] {
                let d = preset_with(preset, &[("controller.scheduling", scheduling), ("dram.rate", dram)])
                    .expect("a preset");
                let (report, _) = case.run(&mut case.machine(&d));
                let latency = report.all.latency.as_ref().expect("requests ended");
                row.push(whole(report.all.iops));
                // The rate of an open loop is given by its arrivals: the mean latency is compared instead.
                row.push(if depth == 0 { ratio(latency.mean_us, mean_us) } else { ratio(report.all.iops, iops) });
                for (ours, theirs) in [(latency.p50_us, p50_us), (latency.p99_us, p99_us)] {
                    row.push(format!("{ours:.0}"));
                    if scheduling == "mqsim-compat" {
                        row.push(ratio(ours, theirs));
                    }
                }
            }
            row.push(why(name).to_owned());
            table.row(row);
        }
        table.note("ratios: ours by MQSim's; of the open loop, the first one is of mean latencies");
        table.note(
            "at a fixed depth the mean latency is the depth by the requests a second (Little's law): no second check",
        );
        table
            .note("at depths from 256 on, MQSim's latencies are distributed differently: see docs/model/validation.md");
        table.print(options.json);
    }
}

/// Compares configurations for which there is no preset, grouped by how far MQSim's figure can be trusted.
pub fn run_configurations(options: Options) {
    let header = [
        "trust",
        "configuration",
        "workload",
        "MQSim",
        "mqsim-compat",
        "ratio",
        "p99 us",
        "p99 then",
        "normal",
        "ratio",
        "held",
    ];
    let mut table = Table::new("configurations", "MQSim beside configurations that no preset was made from", &header);
    for row in &ROWS {
        let case = case(row, options.many(300_000));
        let mut cells = vec![
            row.trust.name().to_owned(),
            row.configuration.to_owned(),
            row.workload.to_owned(),
            figure(row, row.mqsim),
        ];
        for scheduling in [Scheduling::MqsimCompat, Scheduling::Normal] {
            let (report, counted) = case.run(&mut case.machine(&description(row, scheduling)));
            assert_eq!(counted.failed, 0, "{row:?}");
            let latency = report.all.latency.as_ref().expect("requests ended");
            let ours = if row.depth == 0 { latency.mean_us } else { report.all.iops };
            cells.extend([figure(row, ours), format!("{:.3}", ours / row.mqsim)]);
            if scheduling == Scheduling::MqsimCompat {
                let then = if row.p99_ratio > 0.0 { format!("{:.2}", row.p99_ratio) } else { String::new() };
                cells.extend([format!("{:.0}", latency.p99_us), then]);
            }
        }
        cells.push(if row.held { "2 %" } else { "no" }.to_owned());
        table.row(cells);
    }
    table.note("requests a second, and their ratios to MQSim's; of the open loop, mean latency in us");
    table.note("p99 then: 99th percentile of mqsim-compat by MQSim's, as it was beside MQSim's own run");
    table.print(options.json);
}

fn figure(row: &configurations::Row, of: f64) -> String {
    if row.depth == 0 { format!("{of:.1} us") } else { whole(of) }
}
