//! Long runs: write amplification compared with the closed form, millions of overwrites without a lost page, speed and
//! memory of a large device.

use super::{POLICIES, description, device};
use crate::describe::{self, GcPolicy};
use crate::flash::OpCause;
use crate::ftl::{FtlError, PageMapped, Urgency};

/// Returns the write amplification of greedy reclaim under uniform random writes, for blocks of many pages: 1 / (1 -
/// u), where u is the live share of a victim. With many pages per block, greedy and first-in-first-out agree
/// (Desnoyers, SYSTOR 2012), and u solves `u = exp((u - 1) / rho)`, rho = live pages / pages in use (Menon, 1995; Hu et
/// al., SYSTOR 2009).
fn closed_form(rho: f64) -> f64 {
    let mut u = 0.5_f64;
    for _ in 0..10_000 {
        u = ((u - 1.0) / rho).exp();
    }
    1.0 / (1.0 - u)
}

#[test]
fn greedy_amplifies_writes_as_the_closed_form_says() {
    for spare in [0.1, 0.2, 0.3] {
        let d = description([1, 1, 1, 1], 1_024, 256, spare);
        let mut ftl = device(&d);
        ftl.fill_sequential().unwrap();
        let pages = ftl.capacity_pages();
        ftl.steady_state(11, pages, 5 * pages).unwrap();
        let mut chance = fastrand::Rng::with_seed(12);
        let mut ops = Vec::new();
        for _ in 0..2 * pages {
            write(&mut ftl, chance.u64(0..pages), &mut ops);
        }
        let measured = ftl.report().write_amplification;
        // The free blocks that reclaim keeps, and half of each open block of host and reclaim, hold no pages.
        let used = (1_024 - 3) as f64 * 256.0;
        let expected = closed_form(pages as f64 / used);
        let off = measured / expected - 1.0;
        assert!(off.abs() < 0.03, "over-provisioning {spare}: {measured:.3}, closed form {expected:.3}");
    }
}

/// Writes a page, running reclaim only when the write must wait for it.
pub(super) fn write(ftl: &mut PageMapped, lpa: u64, ops: &mut Vec<crate::ftl::MapOp>) {
    loop {
        match ftl.write(lpa, true, 0, |_| 0, ops) {
            Ok(_) => return,
            Err(FtlError::NotNow { plane }) => {
                assert!(ftl.reclaim_at_once(plane).unwrap());
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn policies_rank_as_published() {
    let amplification = |gc, skewed: bool, hot_cold: bool| {
        let mut d = description([1, 1, 1, 1], 512, 64, 0.15);
        d.ftl.gc = gc;
        d.ftl.hot_cold = hot_cold;
        let mut ftl = device(&d);
        ftl.fill_sequential().unwrap();
        let pages = ftl.capacity_pages();
        let mut chance = fastrand::Rng::with_seed(2);
        let mut ops = Vec::new();
        for n in 0..16 * pages {
            if n == 8 * pages {
                ftl.forget_counts();
            }
            // Nine of ten writes go to a tenth of the pages.
            let hot = skewed && chance.u32(0..10) != 0;
            let lpa = if hot { chance.u64(0..pages / 10) } else { chance.u64(0..pages) };
            write(&mut ftl, lpa, &mut ops);
        }
        ftl.audit();
        ftl.report().write_amplification
    };
    let [greedy, choices, benefit, robin, windowed] = POLICIES.map(|gc| amplification(gc, false, false));
    assert!(greedy < choices && choices < robin, "uniform: {greedy:.2}, {choices:.2}, {robin:.2}");
    assert!(greedy < windowed && windowed < robin, "uniform: {greedy:.2}, {windowed:.2}, {robin:.2}");
    assert!(benefit < 1.1 * greedy, "uniform: {benefit:.2} against {greedy:.2}");
    let greedy = amplification(GcPolicy::Greedy, true, false);
    let benefit = amplification(GcPolicy::CostBenefit, true, false);
    let separated = amplification(GcPolicy::Greedy, true, true);
    assert!(benefit < greedy, "skewed: cost-benefit {benefit:.2}, greedy {greedy:.2}");
    assert!(separated < greedy, "skewed: separated {separated:.2}, greedy {greedy:.2}");
}

#[test]
fn wear_levelling_narrows_the_spread() {
    let spread = |dynamic, threshold| {
        let mut d = description([1, 1, 1, 1], 64, 16, 0.2);
        d.ftl.wear_dynamic = dynamic;
        d.ftl.wear_static_threshold = threshold;
        let mut ftl = device(&d);
        ftl.fill_sequential().unwrap();
        // Only a quarter of the pages is overwritten.
        ftl.steady_state(4, ftl.capacity_pages() / 4, 60_000).unwrap();
        ftl.audit();
        let wear = ftl.report().wear;
        wear.most - wear.least
    };
    let (none, levelled) = (spread(false, None), spread(true, Some(8)));
    assert!(levelled <= 16, "{levelled}");
    assert!(none > 4 * levelled, "{none} without levelling, {levelled} with");
}

#[test]
fn a_large_device_is_set_up_at_once_and_takes_no_memory() {
    let mut d = describe::preset("mqsim-default").unwrap();
    d.geometry.blocks = 2_048;
    let mut ftl = PageMapped::new(&d, 1, &|_, _, _| false).unwrap();
    ftl.fill_sequential().unwrap();
    assert_eq!(ftl.report().live_pages, u64::from(ftl.owners));
    let mut ops = Vec::new();
    let last = ftl.capacity_pages() - 1;
    assert!(ftl.read(last, 0, &mut ops).unwrap().is_some());
    assert_eq!(ops.len(), 1);
}

#[test]
fn a_cached_map_costs_reads_and_programs() {
    let mut d = description([1, 1, 1, 1], 256, 64, 0.2);
    d.ftl.map_cache_bytes = Some(1_000 * u64::from(d.ftl.map_entry_bytes));
    let mut ftl = device(&d);
    ftl.fill_sequential().unwrap();
    let pages = ftl.capacity_pages();
    let mut chance = fastrand::Rng::with_seed(3);
    let mut ops = Vec::new();
    for _ in 0..50_000 {
        ftl.read(chance.u64(0..pages), 0, &mut ops).unwrap();
    }
    let r = ftl.report();
    assert_eq!(r.map_misses, r.reads[OpCause::Map as usize]);
    let misses = r.map_misses as f64 / 50_000.0;
    let expected = 1.0 - 1_000.0 / pages as f64;
    assert!((misses - expected).abs() < 0.02, "{misses} of reads missed, {expected} expected");
    ftl.steady_state(9, pages, 100_000).unwrap();
    ftl.audit();
    // A read of several pages in one request loads the entries of a map page at once.
    ops.clear();
    for lpa in 0..64 {
        ftl.read(lpa, 63 - lpa as u32, &mut ops).unwrap();
    }
    assert!(ops.iter().filter(|op| matches!(op, crate::ftl::MapOp::Read(_))).count() < 16, "{ops:?}");
}

/// Checks long runs in release: `cargo test --release -p nandarray-model ten_million -- --ignored --nocapture`.
#[test]
#[ignore = "a deep test: minutes unless built for speed"]
fn ten_million_overwrites_lose_nothing_under_any_policy() {
    for gc in POLICIES {
        let mut d = description([2, 1, 1, 2], 256, 64, 0.12);
        d.ftl.gc = gc;
        d.ftl.gc_threshold = 0.02;
        let mut ftl = device(&d);
        ftl.fill_sequential().unwrap();
        let pages = ftl.capacity_pages();
        let mut chance = fastrand::Rng::with_seed(7);
        let mut ops = Vec::new();
        for n in 0..10_000_000_u64 {
            loop {
                match ftl.write(chance.u64(0..pages), true, 0, |_| 0, &mut ops) {
                    Ok(to) => {
                        if to.reclaim != Urgency::None {
                            ftl.reclaim_at_once(to.plane).unwrap();
                        }
                        break;
                    }
                    Err(FtlError::NotNow { plane }) => assert!(ftl.reclaim_at_once(plane).unwrap()),
                    Err(e) => panic!("write {n}: {e}"),
                }
            }
        }
        ftl.audit();
        assert_eq!(ftl.report().live_pages, pages);
        assert_eq!(ftl.report().programs[OpCause::Host as usize], 10_000_000);
    }
}
