//! Compares devices whose used state was computed with devices that were really overwritten.

use super::{POLICIES, description, device};
use crate::describe::{Description, GcPolicy, StripeLevel, Striping};
use crate::ftl::blocks::Stream;
use crate::ftl::{LayOutError, PageMapped};

/// Makes `writes` random writes; returns their write amplification.
fn amplification(ftl: &mut PageMapped, writes: u64) -> f64 {
    // The seed differs by length: repeating the same addresses would be another workload.
    let (pages, mut chance, mut ops) = (ftl.capacity_pages(), fastrand::Rng::with_seed(writes), Vec::new());
    ftl.forget_counts();
    for _ in 0..writes {
        super::steady::write(ftl, chance.u64(0..pages), &mut ops);
    }
    ftl.audit();
    ftl.report().write_amplification
}

fn laid_out(d: &Description, seed: u64) -> PageMapped {
    let mut ftl = device(d);
    ftl.lay_out_used(seed).unwrap();
    ftl
}

#[test]
fn what_was_laid_out_fits_together_and_is_the_same_for_the_same_seed() {
    use StripeLevel::{Channel, Die, Plane, Way};
    for &gc in &POLICIES[..4] {
        for (striping, hot) in [
            (Striping::Static([Channel, Way, Die, Plane]), false),
            (Striping::Dynamic([Plane, Channel, Die, Way]), true),
            (Striping::Dynamic([Channel, Plane, Die, Way]), false),
        ] {
            let mut d = description([2, 1, 2, 2], 64, 24, 0.2);
            (d.ftl.gc, d.ftl.striping, d.ftl.hot_cold) = (gc, striping, hot);
            let bad = |die: u32, plane: u16, block: u32| die == 1 && plane == 0 && block % 29 == 1;
            let made = |seed| {
                let mut ftl = PageMapped::new(&d, 1, &bad).unwrap();
                ftl.lay_out_used(seed).unwrap();
                ftl
            };
            let mut ftl = made(3);
            ftl.audit();
            let report = ftl.report();
            let found = (report.live_pages, report.programs, report.retiring_blocks);
            assert_eq!(found, (ftl.capacity_pages(), [0; 4], 0));
            let places = |ftl: &PageMapped| -> Vec<_> { (0..ftl.capacity_pages()).map(|n| ftl.place_of(n)).collect() };
            assert_eq!(places(&ftl), places(&made(3)));
            assert_ne!(places(&ftl), places(&made(4)));
            ftl.steady_state(1, u64::MAX, 5_000).unwrap();
            ftl.audit();
        }
    }
}

/// Planes of a die are filled in turn, so the host's open blocks are at the same page; with a hot stream dies differ.
#[test]
fn planes_of_a_die_are_laid_out_at_the_same_page() {
    use StripeLevel::{Channel, Die, Plane, Way};
    let mut d = description([2, 1, 2, 2], 64, 24, 0.2);
    (d.ftl.striping, d.ftl.hot_cold) = (Striping::Dynamic([Plane, Channel, Die, Way]), true);
    let ftl = laid_out(&d, 3);
    let next_pages = |plane: u32| {
        let open = ftl.blocks.planes[plane as usize].open;
        [Stream::Host, Stream::Hot].map(|stream| ftl.blocks.blocks[open[stream as usize] as usize].next)
    };
    let dies: Vec<_> = (0..ftl.planes()).step_by(2).map(|plane| [next_pages(plane), next_pages(plane + 1)]).collect();
    assert_eq!(dies.len(), 4);
    assert!(dies.iter().all(|[a, b]| a == b), "{dies:?}");
    assert!(dies.iter().any(|die| die != &dies[0]), "{dies:?}");
}

#[test]
fn a_laid_out_device_amplifies_writes_as_an_overwritten_one() {
    for gc in [POLICIES[0], GcPolicy::DChoices(2), POLICIES[1], POLICIES[2], POLICIES[3]] {
        for spare in [0.1, 0.28] {
            let mut d = description([2, 1, 1, 2], 192, 64, spare);
            d.ftl.gc = gc;
            let mut written = device(&d);
            written.fill_sequential().unwrap();
            let pages = written.capacity_pages();
            written.steady_state(11, pages, 4 * pages).unwrap();
            let mut laid = laid_out(&d, 5);
            // Also for the first half of the run alone: the computed state must be right from the beginning.
            for writes in [pages / 2, pages] {
                let (laid, written) = (amplification(&mut laid, writes), amplification(&mut written, writes));
                let off = laid / written - 1.0;
                eprintln!("{gc:?} {spare} {writes}: laid out {laid:.3}, written {written:.3}, off {off:.3}");
                assert!(off.abs() < 0.05, "{gc:?}, {spare} spare, {writes} writes: {laid:.3} for {written:.3}");
            }
        }
    }
}

#[test]
fn what_is_not_known_is_refused_and_can_be_written() {
    let mut d = description([1, 1, 1, 1], 64, 16, 0.2);
    d.ftl.map_cache_bytes = Some(1_000);
    let mut ftl = device(&d);
    assert_eq!(ftl.lay_out_used(1), Err(LayOutError::CachedMap));
    ftl.fill_sequential().unwrap();
    let mut d = description([1, 1, 1, 1], 64, 16, 0.07);
    d.ftl.gc_threshold = 0.05;
    let mut ftl = device(&d);
    let error = ftl.lay_out_used(1).unwrap_err();
    assert!(matches!(error, LayOutError::NoSpare { .. }), "{error}");
    ftl.fill_sequential().unwrap();
    ftl.audit();
}
