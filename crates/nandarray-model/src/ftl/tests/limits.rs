//! Flash management at its limits: devices that leave nothing to manage, requests that are refused and change nothing,
//! the least over-provisioning, and the words of every error.

use super::{POLICIES, description, device};
use crate::describe::{Description, GcPolicy, StripeLevel, Striping, preset_with};
use crate::flash::{OpCause, PageAddress};
use crate::ftl::{FtlError, LayOutError, MapOp, Moved, PageMapped, ReclaimStep};

fn refused(change: impl FnOnce(&mut Description)) -> String {
    let mut d = description([2, 1, 1, 2], 16, 8, 0.3);
    change(&mut d);
    PageMapped::new(&d, 1, &|_, _, _| false).expect_err("a device that cannot be").to_string()
}

#[test]
fn devices_that_cannot_be_managed_are_refused_with_their_numbers() {
    let pages =
        |blocks: u32, pages: u32| move |d: &mut Description| (d.geometry.blocks, d.geometry.pages) = (blocks, pages);
    assert_eq!(
        refused(pages(1 << 20, 1 << 10)),
        "4294967296 flash pages; the page map takes at most 4294967293: use larger pages or fewer of them"
    );
    assert_eq!(refused(pages(8, 65_536)), "65536 pages a block; at most 65535");
    for (value, said) in [(1.0, "1"), (-0.1, "-0.1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let at_least = format!("at least 0 and less than 1, not {said}");
        assert_eq!(refused(|d| d.ftl.over_provisioning = value), format!("over_provisioning must be {at_least}"));
        assert_eq!(refused(|d| d.ftl.gc_threshold = value), format!("gc_threshold must be {at_least}"));
    }
    let channel = StripeLevel::Channel;
    assert_eq!(refused(|d| d.ftl.striping = Striping::Static([channel; 4])), "the striping order names a level twice");
    for policy in [GcPolicy::DChoices(0), GcPolicy::WindowedGreedy(0)] {
        assert_eq!(refused(|d| d.ftl.gc = policy), "d-choices of 0 blocks");
    }
    assert_eq!(refused(|d| d.ftl.map_entry_bytes = 0), "a map entry of 0 bytes with pages of 8192");
    assert_eq!(refused(|d| d.ftl.map_entry_bytes = 8_193), "a map entry of 8193 bytes with pages of 8192");
    // Four good blocks a plane: three are kept for reclaim, one is open.
    let few = |good: u32, cached: bool| {
        let mut d = description([1, 1, 1, 2], 10, 8, 0.0);
        d.ftl.map_cache_bytes = cached.then_some(4_096);
        PageMapped::new(&d, 1, &|_, _, block| block >= good)
    };
    let error = few(4, false).expect_err("no page is left").to_string();
    assert_eq!(error, "8 good blocks in 2 planes leave no page beside the 4 a plane that reclaim needs");
    assert_eq!(few(5, false).unwrap().capacity_pages(), 2 * 8);
    let error = few(5, true).expect_err("no page is left").to_string();
    assert_eq!(error, "10 good blocks in 2 planes leave no page beside the 5 a plane that reclaim needs");
    assert_eq!(few(6, true).unwrap().capacity_pages(), 2 * 8 - 1, "one page holds the map");
}

/// Runs reclaim until no step is left in any plane.
fn settle(ftl: &mut PageMapped) {
    while (0..ftl.planes()).any(|plane| ftl.reclaim_at_once(plane).unwrap()) {}
}

#[test]
fn a_device_with_the_least_spare_blocks_is_written_for_ever() {
    for policy in POLICIES {
        for (urgent, hot, cached) in [(1, false, false), (2, true, false), (5, false, true), (3, true, true)] {
            let needs = urgent + 2;
            let blocks = 24;
            let [share, less] =
                [needs, needs - 1].map(|n| format!("{} %", 100.0 * f64::from(n) / f64::from(blocks) + 0.01));
            let urgent = urgent.to_string();
            let with = |share: &str| {
                let overrides = [
                    ("geometry.channels", "1"),
                    ("geometry.blocks", "24"),
                    ("geometry.pages", "6"),
                    ("ftl.gc_urgent_blocks", &urgent),
                    ("ftl.gc_threshold", "0"),
                    ("ftl.over_provisioning", share),
                    ("ftl.hot_cold", if hot { "true" } else { "false" }),
                    ("ftl.map_cache", if cached { "4 KiB" } else { "ideal" }),
                    ("ftl.map_entry_size", "64 B"),
                ];
                preset_with("tiny", &overrides)
            };
            let error = with(&less).unwrap_err().to_string();
            assert!(error.contains(&format!("leaves {} of 24 blocks of a plane spare", needs - 1)), "{error}");
            let mut d = with(&share).unwrap();
            d.ftl.gc = policy;
            let what = format!("{policy:?}, {urgent} urgent blocks, hot {hot}, cached {cached}");
            let mut ftl = device(&d);
            ftl.fill_sequential().unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut chance = fastrand::Rng::with_seed(8);
            for n in 0..1_500 {
                let lpa = chance.u64(0..ftl.capacity_pages());
                super::steady::write(&mut ftl, lpa, &mut Vec::new());
                if n % 300 == 0 {
                    settle(&mut ftl);
                    ftl.audit();
                }
            }
            let report = ftl.report();
            assert!(report.live_pages <= report.usable_pages, "{what}: {report:?}");
            assert!(report.erases[OpCause::Gc as usize] > 50, "{what}: {:?}", report.erases);
        }
    }
}

/// Everything of a device that a refused request must not change.
fn state(ftl: &PageMapped) -> (Vec<Option<PageAddress>>, crate::ftl::FtlReport) {
    ((0..ftl.capacity_pages()).map(|lpa| ftl.place_of(lpa).unwrap()).collect(), ftl.report())
}

#[test]
fn a_refused_request_changes_nothing() {
    let mut ftl = device(&description([1, 1, 1, 2], 10, 4, 0.3));
    let capacity = ftl.capacity_pages();
    let mut ops: Vec<MapOp> = Vec::new();
    ftl.fill_sequential().unwrap();
    let beyond = |lpa: u64| format!("logical page {lpa} of {capacity}");
    for lpa in [capacity, capacity + 1, u64::from(u32::MAX), u64::MAX] {
        let before = state(&ftl);
        assert_eq!(ftl.read(lpa, 3, &mut ops).unwrap_err().to_string(), beyond(lpa));
        assert_eq!(ftl.place_of(lpa).unwrap_err().to_string(), beyond(lpa));
        assert_eq!(ftl.write(lpa, true, 3, |_| 0, &mut ops).unwrap_err().to_string(), beyond(lpa));
        assert_eq!(ftl.trim(lpa, 1, &mut ops).unwrap_err().to_string(), beyond(lpa));
        assert_eq!(ftl.trim(lpa, 0, &mut ops), Ok(0), "no page is trimmed nowhere");
        assert_eq!(state(&ftl), before);
    }
    assert_eq!(ftl.trim(1, capacity, &mut ops).unwrap_err().to_string(), beyond(capacity));
    assert_eq!(ftl.trim(1, u64::MAX, &mut ops).unwrap_err().to_string(), beyond(u64::MAX));
    // A write that must wait for reclaim is refused as often as it is tried.
    let mut chance = fastrand::Rng::with_seed(2);
    let plane = loop {
        match ftl.write(chance.u64(0..capacity), true, 0, |_| 0, &mut ops) {
            Ok(_) => {}
            Err(FtlError::NotNow { plane }) => break plane,
            Err(e) => panic!("{e}"),
        }
    };
    let before = state(&ftl);
    let waits = (0..capacity).filter(|lpa| ftl.order.own(*lpa as u32) == plane);
    for lpa in waits.collect::<Vec<_>>() {
        let error = ftl.write(lpa, lpa % 2 == 0, 0, |_| 0, &mut ops).unwrap_err();
        assert_eq!(error.to_string(), format!("plane {plane} has no page to write to before it is reclaimed"));
    }
    assert_eq!(state(&ftl), before);
    ftl.audit();
}

/// Blocks fail one after the other until the device is full: the error has the numbers, everything stays readable, and
/// space that a trim frees can be written.
#[test]
fn a_device_whose_blocks_fail_says_how_much_it_still_holds() {
    let d = description([1, 1, 1, 2], 14, 4, 0.3);
    let mut ftl = device(&d);
    let capacity = ftl.capacity_pages();
    ftl.fill_sequential().unwrap();
    let (mut chance, mut ops, mut failed, mut tries) = (fastrand::Rng::with_seed(4), Vec::new(), 0, 0);
    let error = 'full: loop {
        let lpa = chance.u64(0..capacity);
        match ftl.write(lpa, true, 0, |_| 0, &mut ops) {
            Ok(_) => {}
            Err(FtlError::NotNow { plane }) => loop {
                match ftl.step(plane) {
                    ReclaimStep::Move(m) => match ftl.relocate(&m) {
                        Ok(Moved::To(_) | Moved::Overwritten) => {}
                        Err(error) => break 'full error,
                    },
                    ReclaimStep::Erase { place, .. } => {
                        // Every other erase fails.
                        failed += 1;
                        if failed % 2 == 0 {
                            ftl.erase_failed(place)
                        } else {
                            ftl.erased(place)
                        }
                        break;
                    }
                    ReclaimStep::Wait | ReclaimStep::Idle => break,
                }
            },
            Err(error) => break error,
        }
        tries += 1;
        assert!(failed < 200 && tries < 100_000, "the device takes {failed} failures");
    };
    let FtlError::NoSpace { live_pages, usable_pages, bad_blocks, lpa } = error else { panic!("{error}") };
    let report = ftl.report();
    assert_eq!((live_pages, bad_blocks), (report.live_pages, report.grown_bad_blocks));
    assert_eq!((usable_pages, live_pages), (report.usable_pages, capacity), "all pages were written");
    assert!(usable_pages <= live_pages, "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "no space for page {lpa}: {live_pages} of {usable_pages} usable pages are live, {bad_blocks} blocks are bad"
        )
    );
    ftl.audit();
    assert!((0..capacity).all(|lpa| ftl.place_of(lpa).unwrap().is_some()), "everything is readable");
    assert_eq!(ftl.trim(0, capacity, &mut ops), Ok(capacity));
    settle(&mut ftl);
    super::steady::write(&mut ftl, 3, &mut ops);
    ftl.audit();
}

#[test]
fn states_that_cannot_be_computed_are_refused_with_their_numbers() {
    let mut d = description([1, 1, 1, 2], 32, 8, 0.25);
    d.ftl.gc = GcPolicy::WindowedGreedy(4);
    let error = device(&d).lay_out_used(1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the steady state of a device that reclaims by windowed-greedy (ftl.gc) is not known in advance"
    );
    d.ftl.map_cache_bytes = Some(4_096);
    assert_eq!(
        device(&d).lay_out_used(1).unwrap_err().to_string(),
        "the steady state of a device whose map is cached in part (ftl.map_cache) is not known in advance"
    );
    // All bad blocks in one plane: its share of the logical pages does not fit.
    let d = description([1, 1, 1, 2], 32, 8, 0.25);
    let mut ftl = PageMapped::new(&d, 1, &|_, plane, block| plane == 1 && block >= 20).unwrap();
    let error = ftl.lay_out_used(1).unwrap_err();
    let LayOutError::BadBlocks { plane: 1, live, room } = error else { panic!("{error}") };
    assert_eq!((live, room), (u64::from(ftl.map.fill.rows_of(1, ftl.lpas)), (20 - 3 - 1) * 8));
    assert_eq!(
        error.to_string(),
        format!("plane 1 has {live} logical pages and, with its bad blocks, room for {room}")
    );
    ftl.fill_sequential().unwrap();
    ftl.audit();
    let mut d = description([1, 1, 1, 1], 32, 8, 0.2);
    d.ftl.gc_threshold = 0.19;
    let mut ftl = device(&d);
    let error = ftl.lay_out_used(1).unwrap_err();
    let LayOutError::NoSpare { plane: 0, live, closed, free: 7, pages: 8 } = error else { panic!("{error}") };
    assert_eq!((live, closed), (ftl.capacity_pages(), 32 - 7 - 2));
    assert!(
        error.to_string().starts_with(&format!("plane 0 has {live} live pages for 23 blocks of 8 beside 7 free ones"))
    );
}

#[test]
#[should_panic(expected = "only a device that was never written is laid out")]
fn a_written_device_is_not_laid_out() {
    let mut ftl = device(&description([1, 1, 1, 1], 32, 8, 0.25));
    ftl.write(0, true, 0, |_| 0, &mut Vec::new()).unwrap();
    let _ = ftl.lay_out_used(1);
}
