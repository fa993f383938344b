//! Promise: a preset that claims to match its data sheet does, to 15 %.
//!
//! The same runs as `python -m bench model --section sheets`, a tenth as long.

#[path = "../benches/model/cases.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "shared with a benchmark, which uses all of it")]
mod cases;

use nandarray_model::describe;
use nandarray_model::{WorkloadProfile, promises};

#[test]
fn presets_keep_what_they_claim() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for name in describe::presets() {
        let d = describe::preset(name).unwrap();
        let Some(spec) = d.spec.clone().filter(|spec| spec.claims_match) else { continue };
        for case in cases::sheet(&d, &spec, 40_000, 1) {
            let (report, counted) = case.run(&mut case.machine(&d));
            assert_eq!(counted.failed, 0, "{name}: {}", case.name);
            for promise in promises(&spec, WorkloadProfile::of(&case.load), &report) {
                compared += 1;
                if !(0.85..=1.15).contains(&promise.ratio) {
                    wrong.push(format!("{name}, {}: {promise:?}", case.name));
                }
            }
        }
    }
    assert!(compared >= 6, "{compared} promises were compared");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
