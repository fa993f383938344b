//! Times worked out by hand for MQSim's default geometry: the back end must agree to 1 %.

use super::{Rig, at, device};
use crate::flash::{OpCause, OpKind, policy};
use nandarray_sim::Ps;

fn within(what: &str, got: Ps, want_us: f64, percent: f64) {
    let off = (got.us() / want_us - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what}: {} us instead of {want_us} us, {off:+.2} %", got.us());
}

/// Reads whole pages of one channel in rotation, with `depth` reads in flight per plane; returns the mean time per
/// page.
fn saturated_reads(overrides: &[(&str, &str)], rounds: u16) -> Ps {
    let description = device(overrides);
    let g = description.geometry;
    let mut rig = Rig::new(&description);
    let dies = g.ways * g.dies;
    for page in 0..rounds {
        for die in 0..dies {
            for plane in 0..g.planes {
                rig.read(at(die, plane as u16, 0, page), g.page_bytes);
            }
        }
    }
    let pages = u64::from(rounds) * u64::from(dies * g.planes);
    rig.finish();
    Ps(rig.events.now().0 / pages)
}

#[test]
fn one_at_a_time() {
    for &scheduling in policy::ALL {
        let mut d = device(&[]);
        d.controller.scheduling = scheduling;
        // Facts: 75,020 + 290 + 12,288 ns for 4 KiB, without the link's 1,248.
        let mut rig = Rig::new(&d);
        rig.read(at(5, 1, 7, 3), 4_096);
        within("4 KiB read", rig.finish()[0], 75.020 + 0.290 + 12.288, 0.1);
        let mut rig = Rig::new(&d);
        rig.read(at(5, 1, 7, 3), 8_192);
        within("8 KiB read", rig.finish()[0], 75.020 + 0.290 + 24.576, 0.1);
        let mut rig = Rig::new(&d);
        rig.program(at(5, 1, 7, 3));
        within("8 KiB write", rig.finish()[0], 750.020 + 0.361 + 24.576, 0.1);
        // Two pages on two channels take no longer than one page.
        let mut rig = Rig::new(&d);
        rig.program(at(5, 1, 7, 3));
        rig.program(at(13, 1, 7, 3));
        within("16 KiB write", rig.finish()[1], 750.020 + 0.361 + 24.576, 0.1);
        let mut rig = Rig::new(&d);
        rig.submit(OpKind::Erase, OpCause::Gc, at(5, 1, 7, 0), 0);
        within("erase", rig.finish()[0], 3_800.020 + 0.220, 0.1);
    }
}

#[test]
fn a_saturated_channel_is_bound_by_its_bus() {
    // Eight dies keep the bus busy with one command per page (290 ns); a further plane in a command would take longer
    // (650 ns).
    let page = saturated_reads(&[], 128);
    within("normal", page, 24.576 + 0.290 + 0.030, 0.5);
    // If the dies do not keep the bus busy, planes sense together: one command and two transfers for two pages.
    let page = saturated_reads(&[("nand.t_read", "200 us")], 128);
    within("200 us", page, 24.576 + 0.940 / 2.0 + 0.030, 0.5);
}

#[test]
fn a_saturated_channel_of_mqsim_senses_and_transfers_in_turn() {
    let compat = ("controller.scheduling", "mqsim-compat");
    // One round takes tR + N P t_page, where N counts chips, since the dies of a chip take turns.
    let page = saturated_reads(&[compat], 128);
    within("8 pages a round", page, (75.020 + 0.940 + 8.0 * 24.576) / 8.0, 1.0);
    let page = saturated_reads(&[compat, ("geometry.ways", "8"), ("geometry.dies", "1")], 128);
    within("16 pages a round", page, (75.020 + 0.940 + 16.0 * 24.576) / 16.0, 1.0);
    let page = saturated_reads(&[compat, ("nand.t_read", "300 us")], 128);
    within("tR 300 us", page, (300.020 + 0.940 + 8.0 * 24.576) / 8.0, 1.0);
}

/// Programs the first `rounds` pages of a block on every plane; returns the time until all are programmed, and their
/// bytes.
fn saturated_programs(overrides: &[(&str, &str)], rounds: u16) -> (Ps, u64) {
    let description = device(overrides);
    let g = description.geometry;
    let mut rig = Rig::new(&description);
    for page in 0..rounds {
        for die in 0..g.dies_total() {
            for plane in 0..g.planes {
                rig.program(at(die, plane as u16, 0, page));
            }
        }
    }
    rig.finish();
    let bytes = u64::from(rounds) * u64::from(g.planes_total()) * u64::from(g.page_bytes);
    (rig.events.now(), bytes)
}

#[test]
fn sequential_writes_are_bound_by_programming() {
    // MQSim: 32 chips x 16 KiB / (750 + 2 x 24.6) us = 656 MB/s.
    let (t, bytes) = saturated_programs(&[("controller.scheduling", "mqsim-compat")], 64);
    let rate = bytes as f64 / t.us();
    let want = 32.0 * 16_384.0 / (750.02 + 2.0 * 24.576 + 1.3);
    assert!((rate / want - 1.0).abs() < 0.01, "{rate} MB/s instead of {want}");
    // If each die works by itself, the rate is twice that.
    let (t, bytes) = saturated_programs(&[], 64);
    let rate = bytes as f64 / t.us();
    assert!((rate / (2.0 * want) - 1.0).abs() < 0.03, "{rate} MB/s instead of {}", 2.0 * want);
}

/// Returns the settings of a fast channel: 2,400 MT/s, so that a page of 8 KiB takes 3.4 us, and command cycles take a
/// good part of that.
fn fast(ways: &'static str, t_read: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("bus.rate", "2400 MT/s x8"),
        ("geometry.ways", ways),
        ("geometry.planes", "4"),
        ("nand.t_read", t_read),
        ("nand.independent_planes", "true"),
    ]
}

#[test]
fn joining_planes_never_loses() {
    let (transfer, out) = (8_192.0 / 2_400.0, 0.030);
    // Microseconds per page, if commands read `n` planes of a die at once, on a channel with `dies` dies.
    let page_us = |n: f64, dies: f64, t_read: f64| {
        let bus = 0.290 + 0.650 * (n - 1.0) + n * (transfer + out);
        (bus * dies).max(bus + t_read + 0.020) / (n * dies)
    };
    for (ways, t_read) in [("1", 25.0), ("1", 75.0), ("4", 25.0), ("4", 75.0), ("8", 25.0), ("8", 75.0), ("8", 300.0)] {
        let dies = 2.0 * ways.parse::<f64>().expect("a number");
        let of = |planes: f64| page_us(planes, dies, t_read);
        let best = [1.0, 2.0, 3.0, 4.0].map(of).into_iter().fold(f64::MAX, f64::min);
        let all = of(4.0);
        let text: &'static str = match t_read as u32 {
            25 => "25 us",
            75 => "75 us",
            _ => "300 us",
        };
        let page = saturated_reads(&fast(ways, text), 256).us();
        // Never slower than joining all planes, and at most some per cent slower than the best, since dies fall out of
        // step.
        assert!(page < all * 1.005, "{dies} dies of {t_read} us: {page} us a page, {all} with all planes");
        assert!(page < best * 1.06, "{dies} dies of {t_read} us: {page} us a page, {best} at best");
    }
    // A saturated channel: N page / (290 + 30 ns + page / rate).
    within("saturated", saturated_reads(&fast("8", "25 us"), 256), 0.290 + out + transfer, 0.5);
    // A die that is alone on its channel senses on all planes at once.
    let mut rig = Rig::new(&device(&fast("8", "25 us")));
    for plane in 0..4 {
        rig.read(at(0, plane, 0, 0), 8_192);
    }
    let last = rig.finish().into_iter().max().expect("four reads");
    within("alone", last, 0.290 + 3.0 * 0.650 + 25.020 + 4.0 * (transfer + out), 0.1);
}
