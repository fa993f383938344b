//! The thresholds of flash management, and rare steps of the table of segments: by the numbers that their comments
//! promise.

use super::reserve::SEGMENTS_FOR_RECLAIM;
use super::*;
use crate::media::sparse::SparseMedia;

const G: Geometry = Geometry::TINY;
const PER_SEGMENT: u64 = 32;

/// Creates the flash management of a medium with this many segments, all of them free. The capacity is a number of
/// segments, too; 0 sets none.
fn ftl(segments: u64, capacity: u64) -> Ftl {
    assert_eq!(u64::from(G.pages_per_segment()), PER_SEGMENT);
    let media = Arc::new(SparseMedia::default());
    media.set_len(G.medium_bytes(segments)).unwrap();
    let policies = (placement::by_name("log").unwrap(), GcPolicy::Greedy);
    let capacity_bytes = if capacity == 0 { 0 } else { G.medium_bytes(capacity) };
    Ftl::new(media, G, Arc::default(), Verify::Always, policies, capacity_bytes, 1)
}

const OWNER: Owner = Owner { space: 1, unit: 0, key: [0; 10] };

/// Appends pages of one block, which are live afterwards.
fn append(ftl: &Ftl, pages: u32) -> Vec<Run> {
    let bytes = vec![7; (pages * G.page_bytes) as usize];
    let units: Vec<UnitWrite> = (0..pages).map(|unit| (unit, None)).collect();
    let runs = ftl.append(OWNER, 1, &bytes, &units, &mut std::iter::empty()).unwrap();
    ftl.adopt(&runs);
    runs
}

/// Makes this many free segments pending free.
fn make_pending(ftl: &Ftl, segments: usize) {
    ftl.with_segments(|s| {
        for _ in 0..segments {
            let segment = s.next_free(false, WearLevelling::default()).unwrap();
            s.take_free(segment, SegmentState::Chain);
            s.release_chain(&[segment], 9);
        }
    });
}

/// Reserves pages for write buffers until exactly this many pages are available.
fn make_available(ftl: &Ftl, pages: u64) {
    let now = ftl.available(&ftl.state.lock());
    ftl.promise(0, now - pages);
}

#[test]
fn a_barrier_is_wanted_for_a_quarter_of_the_segments_and_64_more() {
    let ftl = ftl(402, 0);
    make_pending(&ftl, 64 + 402 / 4);
    assert!(!ftl.wants_barrier());
    make_pending(&ftl, 1);
    assert!(ftl.wants_barrier());
}

#[test]
fn under_a_capacity_a_barrier_is_wanted_below_a_twentieth() {
    let ftl = ftl(50, 50);
    let twentieth = 50 * PER_SEGMENT / 20;
    make_pending(&ftl, 1);
    assert!(!ftl.wants_barrier(), "nearly everything is available");
    make_available(&ftl, twentieth);
    assert!(!ftl.wants_barrier());
    ftl.promise(0, 1);
    assert!(ftl.wants_barrier());
    ftl.free_durable(9).unwrap();
    ftl.promise(0, PER_SEGMENT);
    assert!(ftl.available(&ftl.state.lock()) < twentieth && !ftl.wants_barrier(), "no segment is pending free");
}

#[test]
fn reclaim_is_due_for_half_of_the_live_pages_and_16_segments() {
    let ftl = ftl(100, 0);
    append(&ftl, 10 * PER_SEGMENT as u32);
    let dying = append(&ftl, 32 * PER_SEGMENT as u32);
    ftl.close_open();
    // The first pages of each segment, so that none loses all its live pages.
    let mut dead = 0;
    let mut pages = dying.iter().flat_map(|run| run.unit..run.end()).filter(|unit| unit % 32 < 31);
    let mut release_until = |wanted: u64| {
        for unit in pages.by_ref().take((wanted - dead) as usize) {
            let run = dying.iter().find(|run| (run.unit..run.end()).contains(&unit)).unwrap();
            ftl.release(std::iter::once(Run { unit, count: 1, ppa: run.page_of(unit) }));
        }
        dead = wanted;
        ftl.with_segments(|s| assert_eq!((s.garbage(), s.live()), (wanted, 42 * PER_SEGMENT - wanted)));
    };
    // With 42 segments written, d dead pages are more than (42 * 32 - d) / 2 + 16 * 32 from 790 on.
    release_until(789);
    assert!(!ftl.wants_reclaim());
    release_until(790);
    assert!(ftl.wants_reclaim());
}

#[test]
fn under_a_capacity_reclaim_is_due_below_a_tenth_if_a_segment_can_be_gained() {
    let ftl = ftl(50, 50);
    let tenth = 50 * PER_SEGMENT / 10;
    let runs = append(&ftl, 2 * PER_SEGMENT as u32);
    ftl.close_open();
    let release = |unit: u32| {
        let run = runs.iter().find(|run| (run.unit..run.end()).contains(&unit)).unwrap();
        ftl.release(std::iter::once(Run { unit, count: 1, ppa: run.page_of(unit) }));
    };
    make_available(&ftl, tenth - 1);
    (0..16).chain(32..47).for_each(release);
    assert!(!ftl.wants_reclaim(), "31 dead pages do not fill a segment");
    release(16);
    assert!(ftl.wants_reclaim());
    ftl.promise(1, 0);
    assert!(!ftl.wants_reclaim(), "a tenth is available");
}

#[test]
fn staged_pages_are_no_garbage() {
    let ftl = ftl(4, 0);
    let live = append(&ftl, 10);
    let staged = ftl.append(OWNER, 2, &[7; 5 * 512], &[(0, None), (4, None)], &mut std::iter::empty()).unwrap();
    let garbage = || ftl.with_segments(|s| s.garbage());
    assert_eq!(garbage(), 0, "the segment is open");
    ftl.close_open();
    assert_eq!(garbage(), PER_SEGMENT - 12);
    ftl.release(live.into_iter());
    assert_eq!(garbage(), PER_SEGMENT - 2);
    ftl.adopt(&staged);
    assert_eq!(garbage(), PER_SEGMENT - 2);
}

#[test]
fn segments_kept_for_journal_and_checkpoint_are_not_reserved_for_commands() {
    let ftl = ftl(12, 20);
    for kept in [0, 5, 11] {
        ftl.reserve_segments(kept);
        let left = (20 - SEGMENTS_FOR_RECLAIM - kept) * PER_SEGMENT;
        assert!(matches!(ftl.reserve(left + 1, false), Err(Error::Full { .. })), "{kept} segments are kept");
        drop(ftl.reserve(left, false).unwrap());
        drop(ftl.reserve(left + 1, true).unwrap());
        // Reservations of other commands and of write buffers.
        let _reserved = ftl.reserve(40, false).unwrap();
        ftl.promise(0, 9);
        assert!(matches!(ftl.reserve(left - 48, false), Err(Error::Full { .. })), "{kept} segments are kept");
        drop(ftl.reserve(left - 49, false).unwrap());
        ftl.promise(9, 0);
    }
}

#[test]
fn the_medium_grows_by_an_eighth_of_its_segments() {
    for (have, asked, grown) in [
        (1, 1, 1),
        (15, 1, 1),
        (17, 1, 2),
        (80, 1, 10),
        (511, 3, 63),
        (513, 1, 64),
        (900, 1, 64),
        (80, 30, 30),
        (80, 0, 0),
    ] {
        let ftl = ftl(have, 0);
        ftl.grow(&mut ftl.state.lock(), asked).unwrap();
        assert_eq!(ftl.usage().segments, have + grown, "{have} segments grow by {asked}");
        assert_eq!(ftl.media().len(), G.medium_bytes(have + grown));
    }
    let limited = ftl(80, 83);
    for _ in 0..2 {
        limited.grow(&mut limited.state.lock(), 1).unwrap();
        assert_eq!(limited.usage().segments, 83, "not beyond the capacity");
    }
}

#[test]
fn records_are_unreadable_only_if_they_were_written_and_damaged() {
    let ftl = ftl(4, 0);
    let runs = append(&ftl, 5);
    let [run] = runs[..] else { panic!("{runs:?}") };
    let segment = G.segment_of(run.ppa);
    assert_eq!(ftl.unreadable_records_of(segment).unwrap(), 0, "5 are intact, 27 were never written");
    for (unit, damaged) in [(1, 1), (3, 2)] {
        ftl.media().write_at(G.oob_offset(run.page_of(unit)), &[0xff]).unwrap();
        assert_eq!(ftl.unreadable_records_of(segment).unwrap(), damaged);
    }
}

#[test]
fn segments_have_live_pages_until_all_are_released() {
    let ftl = ftl(4, 0);
    let runs = append(&ftl, 2);
    let run = runs[0];
    let has_live = |ppa| ftl.with_segments(|s| s.has_live(Run { ppa, count: 1, ..run }));
    let (first, next) = (run.ppa, G.ppa(G.segment_of(run.ppa) + 1, 0));
    assert_eq!((has_live(first), has_live(next)), (true, false));
    assert!(!has_live(G.ppa(LOST_SEGMENT, 0)), "lost units are in no segment");
    ftl.release(runs.into_iter());
    assert!(!has_live(first));
}

#[test]
fn a_table_is_cut_to_the_medium_unless_pages_are_live_beyond_its_end() {
    let mut s = Segments::new(G, false);
    s.grow(5);
    assert_eq!((s.cut_to(3), s.len(), s.free().len()), (None, 3, 3));
    assert_eq!((s.cut_to(4), s.len()), (None, 4), "another process may have enlarged the medium");

    let ftl = ftl(4, 0);
    let runs = append(&ftl, 40);
    let last = runs.iter().map(|run| G.segment_of(run.ppa)).max().unwrap();
    ftl.close_open();
    ftl.with_segments(|s| assert_eq!((s.cut_to(1), s.len()), (Some(last), last as usize + 1)));
}

#[test]
fn live_pages_beyond_the_end_belong_to_a_medium_that_grew_or_to_a_damaged_one() {
    let run = |segment| Run { unit: 0, count: 1, ppa: G.ppa(segment, 3) };
    for (cut, beyond) in [(5, None), (4, Some(4))] {
        let mut s = Segments::new(G, false);
        s.grow(2);
        assert!(s.revive(run(4)) && s.revive(run(3)) && s.unrevive(run(3)));
        assert_eq!(s.cut_to(cut), beyond, "cut to {cut}");
        if beyond.is_none() {
            assert_eq!(
                (s.info(4).state, s.info(4).live, s.info(3).state),
                (SegmentState::Closed, 1, SegmentState::Free)
            );
            assert!(!s.free().contains(&4) && s.free().contains(&3));
        }
    }
}

#[test]
fn retired_segments_return_when_the_disk_and_not_they_failed() {
    let ftl = ftl(4, 0);
    let runs = append(&ftl, 2 * PER_SEGMENT as u32);
    ftl.close_open();
    ftl.with_segments(|s| {
        let states = |s: &Segments| s.infos().iter().map(|i| i.state).collect::<Vec<_>>();
        let dead = G.segment_of(runs[0].ppa);
        let (live, unused) = (dead + 1, s.next_free(false, WearLevelling::default()).unwrap());
        assert_eq!((dead, unused), (0, 2));
        [dead, live, unused].into_iter().for_each(|segment| s.retire(segment));
        assert_eq!(states(s), [SegmentState::Bad, SegmentState::Bad, SegmentState::Bad, SegmentState::Free]);
        s.release(Run { unit: 0, count: PER_SEGMENT as u32, ppa: G.ppa(dead, 0) }, 5);
        assert_eq!(s.unretire(&[dead, live, unused, 3], 6), [unused], "records name the others, and 3 was not retired");
        assert_eq!(
            states(s),
            [SegmentState::PendingFree(6), SegmentState::Closed, SegmentState::Free, SegmentState::Free]
        );
        assert_eq!(s.next_free(false, WearLevelling::default()), Some(3), "{unused} is suspect");
        assert_eq!(s.free_durable(6), [dead]);
    });
}
