//! Traces beside bytes: extents cover the pages of each range and no others, blocks end where their operations do, and
//! the places of pages are those of nested loops.

use fastrand::Rng;
use nandarray::file_format::Layout;
use nandarray::probe::{Probe, Purpose};

use super::*;
use crate::describe::FlashGeometry;
use crate::flash::PageAddress;

fn geometry() -> Geometry {
    Geometry { page_bytes: 4_096, channels: 2, banks: 3, pages_per_block: 5, layout: Layout::NEWEST }
}

#[test]
fn extents_are_the_pages_of_their_bytes() {
    let g = geometry();
    let (page, area) = (u64::from(g.page_bytes), g.segment_data_bytes());
    let recorder = Recorder::new(g);
    let mut chance = Rng::with_seed(1);
    for n in 0..3_000 {
        let (op, log) = ([OpKind::Read, OpKind::Program][chance.usize(0..2)], chance.bool());
        let at = [0, chance.u64(0..area), chance.u64(0..area / page) * page][chance.usize(0..3)];
        let bytes = [0, 1, page, chance.u64(0..area)][chance.usize(0..4)].min(area - at);
        let reclaims = chance.u32(0..4) == 0;
        let before = recorder.purpose(if reclaims { Purpose::Reclaim } else { Purpose::Command });
        assert_eq!(before, Purpose::Command, "the purpose before is returned");
        recorder.pages(op, log, n % 7, at, bytes);
        recorder.purpose(Purpose::Command);
        let ops = recorder.take().ops;
        let touched: Vec<u64> = (0..area / page).filter(|p| p * page < at + bytes && (p + 1) * page > at).collect();
        if bytes == 0 {
            assert!(ops.is_empty(), "nothing is no operation");
            continue;
        }
        // The last page of a read is needed up to the last byte; the only page, for the range itself.
        let last = touched[touched.len() - 1];
        let last_bytes = match op {
            OpKind::Read if touched.len() == 1 => bytes,
            OpKind::Read => at + bytes - last * page,
            _ => page,
        };
        let cause = match (reclaims, log) {
            (true, _) => OpCause::Gc,
            (false, true) => OpCause::Map,
            (false, false) => OpCause::Host,
        };
        let first = g.ppa(n % 7, touched[0] as u32);
        let want = ExtentOp { op, cause, first, pages: touched.len() as u32, last_bytes: last_bytes as u32 };
        assert_eq!(ops, [want], "{bytes} bytes from {at}");
    }
}

#[test]
#[should_panic(expected = "page 30 of segment 3")]
fn bytes_beyond_a_segment_are_a_bug_of_the_caller() {
    let g = geometry();
    Recorder::new(g).pages(OpKind::Read, false, 3, g.segment_data_bytes() - 1, 2);
}

#[test]
fn a_trace_holds_what_was_recorded_since_the_last() {
    let recorder = Recorder::new(geometry());
    let mut chance = Rng::with_seed(2);
    for _ in 0..300 {
        let mut want = FlashTrace::default();
        for step in 0..chance.usize(0..20) {
            let bytes = chance.u64(1..4_096);
            let record = || recorder.pages(OpKind::Read, false, 0, 4_096, bytes);
            match chance.u32(0..6) {
                0 | 1 => {
                    record();
                    let (op, cause, first) = (OpKind::Read, OpCause::Host, geometry().ppa(0, 1));
                    want.ops.push(ExtentOp { op, cause, first, pages: 1, last_bytes: bytes as u32 });
                }
                2 => {
                    recorder.moved(step as u64, bytes);
                    want.blocks.push(BlockOps { ops_end: want.ops.len(), runs: step as u64, bytes });
                }
                3 => {
                    recorder.freed(step as u32);
                    want.freed.push((want.ops.len(), step as u32));
                }
                4 => {
                    recorder.barrier();
                    want.barriers += 1;
                }
                _ => {
                    let done = recorder.unrecorded(|| {
                        record();
                        recorder.moved(1, 1);
                        recorder.freed(1);
                        recorder.barrier();
                        step
                    });
                    assert_eq!(done, step, "the result of the second half is returned");
                }
            }
        }
        assert_eq!(recorder.take(), want);
        assert_eq!(recorder.take(), FlashTrace::default(), "a trace is taken once");
    }
}

#[test]
fn pages_lie_where_nested_loops_put_them() {
    let mut chance = Rng::with_seed(3);
    for _ in 0..40 {
        let flash = FlashGeometry {
            channels: chance.u32(1..5),
            ways: chance.u32(1..4),
            dies: chance.u32(1..4),
            planes: chance.u32(1..4),
            blocks: chance.u32(2..6),
            pages: chance.u32(2..9),
            page_bytes: 512 << chance.u32(0..4),
            spare_bytes: 0,
        };
        let Ok(layout) = StoreLayout::new(flash) else { continue };
        let store = layout.store();
        assert_eq!((layout.planes(), store.page_bytes), (flash.planes_total(), flash.page_bytes));
        assert!(layout.capacity_bytes() >= flash.bytes(), "a medium holds all pages: {flash:?}");
        for segment in 0..flash.blocks {
            let (mut page, mut lane) = (0, 0);
            for row in 0..flash.pages {
                for (way, die) in (0..flash.ways).flat_map(|way| (0..flash.dies).map(move |die| (way, die))) {
                    for (plane, channel) in (0..flash.planes).flat_map(|p| (0..flash.channels).map(move |c| (p, c))) {
                        let die = flash.die_index(channel, way, die);
                        let place = PageAddress { die, block: segment, page: row as u16, plane: plane as u16 };
                        assert_eq!(layout.place(store.ppa(segment, page)), place, "{flash:?}, page {page}");
                        if row == 0 {
                            assert_eq!(layout.block(segment, lane), place, "{flash:?}, lane {lane}");
                            lane += 1;
                        }
                        page += 1;
                    }
                }
            }
            assert_eq!((page, lane), (store.pages_per_segment(), layout.planes()));
        }
    }
}

/// Two channels of one plane, each of eight blocks of eight pages.
const SMALL: FlashGeometry =
    FlashGeometry { channels: 2, ways: 1, dies: 1, planes: 1, blocks: 8, pages: 8, page_bytes: 4_096, spare_bytes: 0 };

#[test]
fn a_flash_that_no_store_fits_on_says_why() {
    let error = StoreLayout::new(FlashGeometry { page_bytes: 256, ..SMALL }).unwrap_err().to_string();
    assert!(error.contains("no store fits on this device: ") && error.contains("page_bytes is 256"), "{error}");
    StoreLayout::new(SMALL).unwrap();
}

#[test]
#[should_panic(expected = "segment 8 of a flash with 8 blocks a plane")]
fn a_segment_beyond_the_flash_is_a_bug_of_the_caller() {
    StoreLayout::new(SMALL).unwrap().block(8, 0);
}
