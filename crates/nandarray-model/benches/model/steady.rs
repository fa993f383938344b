//! Runs a device that reclaims all the time: ten million random writes after it was overwritten, of which none may be
//! lost.

use cpu_time::ProcessTime;
use nandarray_model::describe::preset_with;

use crate::Options;
use crate::cases::{Before, Case};
use crate::table::{Table, whole};

pub fn run(options: Options) {
    let n = options.many(10_000_000);
    let header = [
        "kept back",
        "depth",
        "requests",
        "ended",
        "failed",
        "write amplification",
        "modelled IOPS",
        "mean us",
        "p99.9 us",
        "requests a CPU second",
    ];
    let title = "Random writes of 8 KiB on mqsim-ideal cut to 64 GiB, after three times its capacity was overwritten";
    let mut table = Table::new("steady", title, &header);
    for (kept, depth) in [("28 %", 64), ("7 %", 64)] {
        // MQSim's reclaim begins at 5 % free blocks, which over-provisioning of 7 % cannot provide; the dies need 2 %
        // to make progress.
        let overrides = [("geometry.blocks", "256"), ("ftl.over_provisioning", kept), ("ftl.gc_threshold", "2 %")];
        let overrides: Vec<_> =
            overrides.into_iter().chain([("ftl.gc_urgent_blocks", "3"), ("ftl.gc", "greedy")]).collect();
        let d = preset_with("mqsim-ideal", &overrides).expect("a preset");
        let case = Case::closed("", Before::Used(3), 8192, false, 0.0, depth, n);
        let mut machine = case.machine(&d);
        let start = ProcessTime::now();
        let (report, counted) = case.run(&mut machine);
        let spent = start.elapsed().as_secs_f64();
        assert_eq!(counted.ended, n, "requests were lost");
        let latency = report.write.latency.as_ref().expect("writes ended");
        let amplification = report.management.as_ref().and_then(|m| m.write_amplification).expect("pages were written");
        table.row(vec![
            kept.to_owned(),
            depth.to_string(),
            whole(n as f64),
            whole(counted.ended as f64),
            counted.failed.to_string(),
            format!("{amplification:.2}"),
            whole(report.write.iops),
            format!("{:.0}", latency.mean_us),
            format!("{:.0}", latency.p99_9_us),
            whole(counted.ended as f64 / spent),
        ]);
    }
    table.print(options.json);
}
