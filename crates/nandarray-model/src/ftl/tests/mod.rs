//! Tests of flash management as a whole.

mod formulas;
mod layout;
mod limits;
mod map_cache;
mod model;
mod policies;
mod steady;
mod victims;
mod write_cache;

use super::{PageMapped, ReclaimStep};
use crate::describe::{self, Description, GcPolicy, StripeLevel, Striping};

/// Returns a description with an ideal map, greedy reclaim and no reclaim threshold; `shape` is channels x ways x dies
/// x planes.
fn description(shape: [u32; 4], blocks: u32, pages: u32, over_provisioning: f64) -> Description {
    let mut d = describe::preset("mqsim-ideal").unwrap();
    [d.geometry.channels, d.geometry.ways, d.geometry.dies, d.geometry.planes] = shape;
    d.geometry.blocks = blocks;
    d.geometry.pages = pages;
    d.ftl.over_provisioning = over_provisioning;
    d.ftl.gc = GcPolicy::Greedy;
    d.ftl.gc_threshold = 0.0;
    d.ftl.gc_urgent_blocks = 0;
    d.ftl.wear_static_threshold = None;
    d
}

fn device(d: &Description) -> PageMapped {
    PageMapped::new(d, 1, &|_, _, _| false).unwrap()
}

const POLICIES: [GcPolicy; 5] =
    [GcPolicy::Greedy, GcPolicy::DChoices(8), GcPolicy::CostBenefit, GcPolicy::RoundRobin, GcPolicy::WindowedGreedy(8)];

#[test]
fn pages_are_striped_and_read_where_they_were_written() {
    use StripeLevel::{Channel, Die, Plane, Way};
    let mut d = description([2, 2, 1, 2], 8, 4, 0.3);
    d.ftl.striping = Striping::Static([Channel, Way, Die, Plane]);
    let mut ftl = device(&d);
    let mut ops = Vec::new();
    assert_eq!(ftl.read(0, 0, &mut ops), Ok(None));
    let first = ftl.write(0, true, 0, |_| 0, &mut ops).unwrap();
    let second = ftl.write(1, true, 0, |_| 0, &mut ops).unwrap();
    let third = ftl.write(2, true, 0, |_| 0, &mut ops).unwrap();
    assert_eq!((first.place.die, second.place.die, third.place.die), (0, 2, 1));
    assert_eq!(ftl.read(1, 0, &mut ops), Ok(Some(second.place)));
    let part = ftl.write(1, false, 0, |_| 0, &mut ops).unwrap();
    assert_eq!(part.read_first, Some(second.place));
    assert_eq!((part.place.page, part.place.block), (1, second.place.block));
    assert_eq!(ftl.trim(0, 3, &mut ops), Ok(3));
    assert_eq!(ftl.read(1, 0, &mut ops), Ok(None));
    assert!(ops.is_empty());
    assert!(ftl.read(ftl.capacity_pages(), 0, &mut ops).is_err());
    assert!(ftl.trim(0, ftl.capacity_pages() + 1, &mut ops).is_err());
    assert!(ftl.trim(1, u64::MAX, &mut ops).is_err());
    ftl.audit();
}

#[test]
fn dynamic_striping_takes_the_least_busy_die() {
    let mut d = description([4, 1, 1, 2], 8, 4, 0.3);
    d.ftl.striping = Striping::Dynamic([StripeLevel::Channel, StripeLevel::Way, StripeLevel::Die, StripeLevel::Plane]);
    let mut ftl = device(&d);
    let mut ops = Vec::new();
    let busy = [9u64, 3, 2, 5];
    for _ in 0..2 {
        let to = ftl.write(7, true, 0, |die| busy[die as usize], &mut ops).unwrap();
        assert_eq!(to.place.die, 2);
    }
    let idle: Vec<u32> = (0..4).map(|n| ftl.write(n, true, 0, |_| 0, &mut ops).unwrap().place.die).collect();
    assert_eq!(idle, [3, 0, 1, 2]);
}

#[test]
fn a_full_device_is_a_formula_until_it_is_overwritten() {
    let d = description([2, 1, 2, 2], 16, 8, 0.25);
    let mut filled = PageMapped::new(&d, 1, &|die, plane, block| die == 1 && plane == 0 && block % 5 == 1).unwrap();
    filled.fill_sequential().unwrap();
    filled.audit();
    let mut written = PageMapped::new(&d, 1, &|die, plane, block| die == 1 && plane == 0 && block % 5 == 1).unwrap();
    let mut ops = Vec::new();
    for lpa in 0..written.capacity_pages() {
        written.write(lpa, true, 0, |_| 0, &mut ops).unwrap();
    }
    for lpa in 0..written.capacity_pages() {
        assert_eq!(filled.place_of(lpa), written.place_of(lpa));
    }
    filled.steady_state(3, u64::MAX, 5_000).unwrap();
    filled.audit();
    let report = filled.report();
    assert_eq!(report.live_pages, filled.capacity_pages());
    assert_eq!(report.programs, [0; 4]);
    assert!(report.wear.mean > 1.0);
    // The preset's blocks are good for 10,000 cycles and more; blocks of one cycle would be beyond it.
    assert!(d.nand.endurance_cycles > report.wear.most);
    assert_eq!(report.wear.beyond_endurance, 0);
}

#[test]
fn what_is_live_is_moved_and_what_was_overwritten_meanwhile_is_not() {
    let mut d = description([1, 1, 1, 1], 8, 4, 0.3);
    d.ftl.gc_threshold = 0.9;
    let mut ftl = device(&d);
    let mut ops = Vec::new();
    for lpa in [0, 1, 2, 3, 0, 4, 5, 6] {
        ftl.write(lpa, true, 0, |_| 0, &mut ops).unwrap();
    }
    let ReclaimStep::Move(one) = ftl.step(0) else { panic!("nothing to move") };
    let ReclaimStep::Move(two) = ftl.step(0) else { panic!("nothing to move") };
    let ReclaimStep::Move(three) = ftl.step(0) else { panic!("nothing to move") };
    assert_eq!(ftl.step(0), ReclaimStep::Wait);
    assert_eq!(two.owner, super::Owner::Page(2));
    ftl.write(2, true, 0, |_| 0, &mut ops).unwrap();
    assert!(matches!(ftl.relocate(&one), Ok(super::Moved::To(_))));
    assert_eq!(ftl.relocate(&two), Ok(super::Moved::Overwritten));
    assert_eq!(ftl.step(0), ReclaimStep::Wait);
    assert!(matches!(ftl.relocate(&three), Ok(super::Moved::To(_))));
    let ReclaimStep::Erase { place, .. } = ftl.step(0) else { panic!("not empty") };
    assert_eq!(place.block, 0);
    assert_eq!(ftl.step(0), ReclaimStep::Wait);
    ftl.erased(place);
    ftl.audit();
    assert_eq!(ftl.report().erases[2], 1);
}

#[test]
fn steady_state_runs_under_every_policy() {
    for gc in POLICIES {
        for shape in [[1, 1, 1, 1], [2, 1, 2, 2]] {
            let mut d = description(shape, 32, 8, 0.2);
            d.ftl.gc = gc;
            let mut ftl = device(&d);
            ftl.fill_sequential().unwrap();
            ftl.steady_state(1, u64::MAX, 20_000).unwrap();
            ftl.audit();
        }
    }
}
