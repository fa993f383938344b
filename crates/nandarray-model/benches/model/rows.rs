//! MQSim's rows, as measured from the completion times of its own runs (commit 7ec40e3), beside ours.
//!
//! Its reads find a filled device. Its writes went to pages that were never written, so parts of a page read nothing first.

use nandarray_model::describe::preset_with;
use nandarray_model::workload::Arrival;

use crate::Options;
use crate::cases::{Before, Case};
use crate::table::{Table, ratio, whole};

/// Workload, and MQSim's IOPS and mean latency in microseconds.
type Row = (&'static str, u64, bool, f64, u32, f64, f64);

/// Ideal map, fast DRAM, no cache.
const IDEAL: [Row; 11] = [
    ("rand read 4K QD1", 4 << 10, false, 1.0, 1, 11_248.0, 88.9),
    ("rand read 4K QD32", 4 << 10, false, 1.0, 32, 191_797.0, 166.8),
    ("rand read 4K QD256", 4 << 10, false, 1.0, 256, 250_254.0, 1_021.0),
    ("rand read 16K QD32", 16 << 10, false, 1.0, 32, 81_532.0, 392.0),
    ("rand read 16K QD512", 16 << 10, false, 1.0, 512, 93_698.0, 5_438.0),
    ("seq read 128K QD32", 128 << 10, true, 1.0, 32, 14_674.0, 2_180.0),
    ("rand write 4K QD32", 4 << 10, false, 0.0, 32, 24_870.0, 1_287.0),
    ("rand write 16K QD32", 16 << 10, false, 0.0, 32, 16_118.0, 1_985.0),
    ("seq write 128K QD32", 128 << 10, true, 0.0, 32, 4_997.0, 6_400.0),
    ("70/30 16K QD32", 16 << 10, false, 0.7, 32, 39_143.0, 817.0),
    ("open loop 4K read 400 MB/s", 4 << 10, false, 1.0, 0, 97_924.0, 108.3),
];

/// As it is shipped: 2 MiB of map, 200 MB/s of DRAM, a cache of 256 MiB.
const DEFAULT: [Row; 10] = [
    ("rand read 4K QD1", 4 << 10, false, 1.0, 1, 6_034.0, 165.7),
    ("rand read 4K QD32", 4 << 10, false, 1.0, 32, 116_768.0, 274.0),
    ("rand read 4K QD256", 4 << 10, false, 1.0, 256, 160_225.0, 1_596.0),
    ("rand read 16K QD32", 16 << 10, false, 1.0, 32, 67_286.0, 475.5),
    ("seq read 128K QD32", 128 << 10, true, 1.0, 32, 13_907.0, 2_300.0),
    ("rand write 4K QD32", 4 << 10, false, 0.0, 32, 36_621.0, 873.8),
    ("rand write 16K QD32", 16 << 10, false, 0.0, 32, 17_296.0, 1_850.0),
    ("seq write 128K QD32", 128 << 10, true, 0.0, 32, 3_037.0, 10_529.0),
    ("70/30 16K QD32", 16 << 10, false, 0.7, 32, 41_891.0, 763.7),
    ("open loop 4K read 400 MB/s", 4 << 10, false, 1.0, 0, 97_914.0, 264.7),
];

/// Why ours comes out otherwise with our own scheduling.
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
        let title = format!("MQSim beside {preset}, DRAM {dram}: requests a second and mean latency");
        let header = [
            "workload",
            "MQSim IOPS",
            "us",
            "mqsim-compat IOPS",
            "us",
            "ratio",
            "normal IOPS",
            "us",
            "ratio",
            "why normal differs",
        ];
        let mut table = Table::new("rows", title, &header);
        for &(name, bytes, sequential, reads, depth, iops, mean_us) in rows {
            let before = if reads > 0.0 { Before::Filled } else { Before::Empty };
            let requests = options.many(if bytes > 100_000 { 20_000 } else { 200_000 });
            let mut case = Case::closed(name, before, bytes, sequential, reads, depth, requests);
            if depth == 0 {
                case.load.arrival = Arrival::Poisson { per_s: iops };
            }
            let mut row = vec![name.to_owned(), whole(iops), format!("{mean_us:.1}")];
            for scheduling in ["mqsim-compat", "normal"] {
                let d = preset_with(preset, &[("controller.scheduling", scheduling), ("dram.rate", dram)])
                    .expect("a preset");
                let (report, _) = case.run(&mut case.machine(&d));
                let latency = report.all.latency.as_ref().expect("requests ended");
                row.extend([whole(report.all.iops), format!("{:.1}", latency.mean_us)]);
                row.push(if depth == 0 { ratio(latency.mean_us, mean_us) } else { ratio(report.all.iops, iops) });
            }
            row.push(why(name).to_owned());
            table.row(row);
        }
        table.note("ratios: requests a second, ours by MQSim's; of the open loop, mean latency");
        table.print(options.json);
    }
}
