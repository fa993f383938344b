//! Promise: no described drive draws more power than its form factor allows, whatever its workload; a resting drive
//! draws what its data sheet says.

#[path = "../benches/model/cases.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "shared with a benchmark, which uses all of it")]
mod cases;

use cases::{Before, Case};
use nandarray_model::describe::{self, Description};
use nandarray_model::{IoRequest, Latencies, Machine, Ps, RequestList, RequestOp};

/// Returns the average power, in watts, of the second of two runs of a load; the first run fills the buffers.
fn power_w(d: &Description, bytes: u64, sequential: bool, read_share: f64, depth: u32) -> f64 {
    let buffered = if read_share > 0.0 { 0 } else { d.ftl.write_cache_bytes / bytes };
    let n = (buffered * 3 / 2).max(if sequential { 1_000 } else { 20_000 });
    let case = Case::closed("power", Before::Filled, bytes, sequential, read_share, depth, n);
    let case = case.streams(depth.min(d.host.queues).min(d.host.cores));
    let mut machine = case.machine(d);
    let (before, _) = case.run(&mut machine);
    let (after, _) = case.run(&mut machine);
    (after.energy.device_j - before.energy.device_j) / (after.until_rest_s - before.until_rest_s)
}

/// Returns the average power, in watts, of a device that answers one read, rests for `rest` and answers another, and
/// the longer latency of the two in microseconds.
fn resting_w(d: &Description, rest: Ps) -> (f64, f64) {
    let mut machine = Machine::new(d, 1, None);
    machine.attach_blocks(1).unwrap();
    let read = |at| IoRequest { at: Some(at), op: RequestOp::Read, stream: 0, offset_bytes: 0, bytes: 4_096 };
    let mut slowest = Ps::ZERO;
    let each = &mut |e: &nandarray_model::RequestEnded| slowest = slowest.max(e.done - e.arrived);
    machine.drive(&mut RequestList::new([read(Ps::ZERO), read(rest)], None), each, &mut |_| true).unwrap();
    machine.check();
    let report = machine.report(&Latencies::default());
    report.check().unwrap();
    (report.energy.device_w, slowest.us())
}

#[test]
fn no_preset_exceeds_its_form_factor() {
    let (mut held, mut wrong) = (0, Vec::new());
    for name in describe::presets() {
        let d = describe::preset(name).unwrap();
        let Some(spec) = &d.spec else { continue };
        // Every described drive has a form factor, so it needs a limit.
        let limit_w = spec.power_limit_uw.unwrap_or_else(|| panic!("{name}: no spec.power_limit")) as f64 * 1e-6;
        let mut loads = vec![("at rest", resting_w(&d, Ps::from_ms(50)).0)];
        for (what, read_share) in [("reads", 1.0), ("writes", 0.0)] {
            loads.push((what, power_w(&d, 128 << 10, true, read_share, 32)));
            loads.push((what, power_w(&d, 4 << 10, false, read_share, spec.queue_depth)));
        }
        held += loads.len();
        wrong.extend(
            loads
                .into_iter()
                .filter(|&(_, w)| w > limit_w)
                .map(|(what, w)| format!("{name}: {what} {w:.1} W of {limit_w}")),
        );
    }
    assert!(held >= 25, "{held} loads were looked at");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_drive_that_rests_takes_what_its_sheet_says() {
    let d = describe::preset("samsung-970-pro").unwrap();
    let minutes = Ps::from_ms(600_000);
    let (asleep_w, woken_us) = resting_w(&d, minutes);
    assert!((0.030..0.031).contains(&asleep_w), "{asleep_w} W at rest");
    let awake = describe::preset_with(
        "samsung-970-pro",
        &[("power.idle", "none"), ("power.idle_after", "none"), ("power.exit", "none")],
    );
    let (awake_w, alone_us) = resting_w(&awake.unwrap(), minutes);
    assert!(awake_w > 1.0, "{awake_w} W awake");
    // The first read after the rest takes longer by the exit latency.
    assert!((woken_us - alone_us - 1_200.0).abs() < 0.001, "{woken_us} us instead of {alone_us}");
}

#[test]
fn dram_at_rest_goes_by_its_size() {
    let uw = |size: &str, more: &[(&str, &str)]| {
        let with: Vec<_> = [("dram.size", size)].into_iter().chain(more.iter().copied()).collect();
        describe::preset_with("mqsim-ideal", &with).unwrap().energy.dram_idle_uw
    };
    assert_eq!((uw("512 MiB", &[]), uw("32 GiB", &[])), (40_000.0, 2_560_000.0));
    assert_eq!(uw("32 GiB", &[("energy.dram_idle", "1 W")]), 1e6);
}
