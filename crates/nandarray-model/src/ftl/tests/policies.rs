//! The store and the page-mapped management use the same victim policies: each policy must choose the same block in
//! both, and both must empty it.

use super::{description, device};
use crate::describe::GcPolicy;
use crate::ftl::{Moved, ReclaimStep};
use nandarray::file_format::{HEAD_BYTES, Owner, Ppa, Run};
use nandarray::internals::{Ftl, SegmentState, placement};
use nandarray::probe::Counters;
use nandarray::{Geometry, Media, MemoryMedia, Verify};
use std::sync::Arc;

/// Number of pages that die in each of three closed blocks of 32 pages, in the order in which the blocks were closed.
const DEAD: [u32; 3] = [8, 16, 24];
const PAGES: u32 = 32;

/// Each policy, with the index of the block that it must choose among the three blocks of [`DEAD`].
const VICTIMS: [(GcPolicy, u32); 6] = [
    (GcPolicy::Greedy, 2),
    (GcPolicy::DChoices(64), 2),
    (GcPolicy::RoundRobin, 0),
    (GcPolicy::WindowedGreedy(1), 0),
    (GcPolicy::WindowedGreedy(2), 1),
    (GcPolicy::WindowedGreedy(3), 2),
];

/// Returns the index of the block that the page-mapped management erases first.
fn emptied_by_the_model(policy: GcPolicy) -> u32 {
    let mut d = description([1, 1, 1, 1], 8, PAGES, 0.3);
    (d.ftl.gc, d.ftl.gc_threshold) = (policy, 0.99);
    let (mut ftl, mut ops) = (device(&d), Vec::new());
    for lpa in 0..u64::from(3 * PAGES) {
        ftl.write(lpa, true, 0, |_| 0, &mut ops).unwrap();
    }
    for (block, dead) in (0..).zip(DEAD) {
        ftl.trim(block * u64::from(PAGES), dead.into(), &mut ops).unwrap();
    }
    loop {
        match ftl.step(0) {
            ReclaimStep::Move(page) => assert!(matches!(ftl.relocate(&page), Ok(Moved::To(_)))),
            ReclaimStep::Erase { place, .. } => {
                ftl.erased(place);
                ftl.audit();
                return place.block;
            }
            step => panic!("{policy:?}: {step:?}"),
        }
    }
}

/// Returns the index of the segment that the store's flash management reclaims first: its live pages are moved and it
/// becomes free.
fn emptied_by_the_store(policy: GcPolicy) -> u32 {
    let geometry = Geometry::TINY;
    assert_eq!(geometry.pages_per_segment(), PAGES);
    let media = Arc::new(MemoryMedia::default());
    media.set_len(HEAD_BYTES).unwrap();
    let policies = (placement::by_name("log").unwrap(), policy);
    let ftl = Ftl::new(media, geometry, Arc::new(Counters::default()), Verify::Always, policies, 0, 5);
    let append = |block: u8, units: &[(u32, Option<Ppa>)]| {
        let owner = Owner { space: 1, unit: 0, key: [block, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
        let bytes = vec![block; (PAGES * geometry.page_bytes) as usize];
        let runs = ftl.append(owner, 1, &bytes, units, &mut std::iter::empty()).unwrap();
        ftl.adopt(&runs);
        runs
    };
    let units: Vec<_> = (0..PAGES).map(|unit| (unit, None)).collect();
    for (block, dead) in (0..).zip(DEAD) {
        let runs = append(block, &units);
        assert_eq!(runs, [Run { unit: 0, count: PAGES, ppa: geometry.ppa(block.into(), 0) }], "a segment of its own");
        ftl.release(std::iter::once(Run { count: dead, ..runs[0] }));
    }
    ftl.close_open();
    let victim = ftl.victim().unwrap();
    let left = Run { unit: 0, count: PAGES - DEAD[victim as usize], ppa: geometry.ppa(victim, DEAD[victim as usize]) };
    append(victim as u8, &units[DEAD[victim as usize] as usize..]);
    ftl.release(std::iter::once(left));
    ftl.free_durable(1).unwrap();
    assert_eq!(ftl.with_segments(|s| s.info(victim).state), SegmentState::Free, "{policy:?}");
    victim
}

#[test]
fn a_policy_empties_the_same_block_in_the_model_and_in_a_store() {
    for (policy, block) in VICTIMS {
        assert_eq!((emptied_by_the_model(policy), emptied_by_the_store(policy)), (block, block), "{policy:?}");
    }
}
