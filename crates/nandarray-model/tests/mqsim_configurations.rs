//! Promise: configurations of MQSim that no preset was made from come out to 2 % in requests a second with its
//! scheduling.
//!
//! The same rows as `python -m bench model --section configurations`, with fewer requests. Of rows that do not come
//! out, the causes are in `docs/model/validation.md`.

#[path = "../benches/model/cases.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "shared with a benchmark, which uses all of it")]
mod cases;
#[path = "../benches/model/configurations.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "shared with a benchmark, which uses all of it")]
mod configurations;

use configurations::{ROWS, case, description};
use nandarray_model::describe::Scheduling;

#[test]
fn configurations_of_mqsim_come_out() {
    let mut wrong = Vec::new();
    for row in ROWS.iter().filter(|row| row.held) {
        let case = case(row, 16_000);
        let d = description(row, Scheduling::MqsimCompat);
        let (report, counted) = case.run(&mut case.machine(&d));
        assert_eq!(counted.failed, 0, "{row:?}");
        let latency = report.all.latency.as_ref().unwrap();
        let ours = if row.depth == 0 { latency.mean_us } else { report.all.iops };
        eprintln!("{}, {}: {ours:.1}, MQSim {}: {:.3}", row.configuration, row.workload, row.mqsim, ours / row.mqsim);
        if (ours / row.mqsim - 1.0).abs() > 0.02 {
            wrong.push(format!("{}, {}: {ours:.1}; MQSim {}", row.configuration, row.workload, row.mqsim));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
