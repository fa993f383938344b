//! Compares flash management with the simplest model of it: the last written version of every page, and the content of
//! every physical page of a flash that is really programmed and erased. Host requests, moves, erases and failures come
//! in any order.

use super::description;
use crate::describe::{Description, GcPolicy, StripeLevel, Striping};
use crate::flash::{OpCause, PageAddress};
use crate::ftl::{FtlError, MapOp, Move, Moved, Owner, PageMapped, ReclaimStep};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// The next action of a test; its numbers select among the existing pages, moves and erases.
#[derive(Clone, Debug)]
enum Action {
    Write { lpa: u16, part: bool },
    Writes { lpa: u16, count: u8 },
    Trim { lpa: u16, pages: u8 },
    ReclaimStep { plane: u8 },
    Answer { which: u8 },
    EraseEnds { which: u8, fails: u8 },
    ProgramFails { which: u8 },
    FlushMap,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        8 => (any::<u16>(), any::<bool>()).prop_map(|(lpa, part)| Action::Write { lpa, part }),
        6 => (any::<u16>(), 1u8..60).prop_map(|(lpa, count)| Action::Writes { lpa, count }),
        1 => (any::<u16>(), 0u8..20).prop_map(|(lpa, pages)| Action::Trim { lpa, pages }),
        8 => any::<u8>().prop_map(|plane| Action::ReclaimStep { plane }),
        8 => any::<u8>().prop_map(|which| Action::Answer { which }),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, fails)| Action::EraseEnds { which, fails }),
        1 => any::<u8>().prop_map(|which| Action::ProgramFails { which }),
        1 => Just(Action::FlushMap),
    ];
    prop::collection::vec(one, 1..400)
}

/// Returns small devices: the description, the number of blocks in 256 that are bad from the factory, and whether
/// programs and erases fail.
fn devices() -> impl Strategy<Value = (Description, u8, bool)> {
    let shape = prop_oneof![Just([1, 1, 1, 1]), Just([2, 1, 1, 2]), Just([3, 1, 2, 1]), Just([1, 2, 1, 1])];
    let gc = prop_oneof![
        Just(GcPolicy::Greedy),
        (1u32..6).prop_map(GcPolicy::DChoices),
        Just(GcPolicy::CostBenefit),
        Just(GcPolicy::RoundRobin),
        (1u32..6).prop_map(GcPolicy::WindowedGreedy)
    ];
    let settings = (gc, 0.0..0.4, 0u32..5, any::<bool>(), prop::option::of(1u64..9), any::<bool>());
    let wear = (any::<bool>(), prop::option::of(1u32..4));
    let bad = (prop_oneof![3 => Just(0u8), 1 => 1u8..30], any::<bool>());
    (shape, 8u32..20, 2u32..7, 0.02..0.5, settings, wear, bad).prop_map(
        |(shape, blocks, pages, spare, (gc, threshold, urgent, hot, cached, dynamic), (least, wear), (bad, fails))| {
            let mut d = description(shape, blocks, pages, spare);
            d.ftl.gc = gc;
            d.ftl.gc_threshold = threshold;
            d.ftl.gc_urgent_blocks = urgent;
            d.ftl.hot_cold = hot;
            // Eight map entries per map page, and room for a few entries in the cache.
            d.geometry.page_bytes = 64;
            d.ftl.map_entry_bytes = 8;
            d.ftl.map_cache_bytes = cached.map(|entries| entries * 8);
            d.ftl.wear_dynamic = least;
            d.ftl.wear_static_threshold = wear;
            if dynamic {
                use StripeLevel::{Channel, Die, Plane, Way};
                d.ftl.striping = Striping::Dynamic([Plane, Channel, Die, Way]);
            }
            (d, bad, fails)
        },
    )
}

/// Content of a physical page: its logical page, and the version written.
type PageContent = (Option<u64>, u64);

struct Rig {
    ftl: PageMapped,
    pages: u16,
    fails: bool,
    versions: u64,
    /// Last version of each logical page.
    wanted: HashMap<u64, u64>,
    flash: BTreeMap<PageAddress, PageContent>,
    /// Moves whose page was read and not yet relocated, each with the content that was read.
    moves: Vec<(Move, PageContent)>,
    erases: Vec<PageAddress>,
    /// The last 20 programs that ended; a test action may still report one of them as failed.
    recent: Vec<(PageAddress, OpCause)>,
    full: bool,
    /// Operations by kind (reads, programs, erases) and cause, as they were requested.
    requested: [[u64; 4]; 3],
}

impl Rig {
    fn new(d: &Description, bad: u8, fails: bool) -> Option<Self> {
        let is_bad = |die: u32, plane: u16, block: u32| {
            let hash = (u64::from(die * 977 + u32::from(plane) * 131 + block) + 7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (hash >> 56) < u64::from(bad)
        };
        Some(Self {
            ftl: PageMapped::new(d, 5, &is_bad).ok()?,
            pages: d.geometry.pages as u16,
            fails,
            versions: 0,
            wanted: HashMap::new(),
            flash: BTreeMap::new(),
            moves: Vec::new(),
            erases: Vec::new(),
            recent: Vec::new(),
            full: false,
            requested: [[0; 4]; 3],
        })
    }

    fn lpa(&self, n: u16) -> u64 {
        u64::from(n) % self.ftl.capacity_pages()
    }

    fn program(&mut self, place: PageAddress, held: PageContent, cause: OpCause) {
        self.requested[1][cause as usize] += 1;
        assert!(self.flash.insert(place, held).is_none(), "{place:?} programmed twice");
        for page in 0..place.page {
            assert!(self.flash.contains_key(&PageAddress { page, ..place }), "{place:?} programmed before page {page}");
        }
        self.recent.push((place, cause));
        if self.recent.len() > 20 {
            self.recent.remove(0);
        }
    }

    fn map_ops(&mut self, ops: &[MapOp]) {
        for op in ops {
            match *op {
                MapOp::Read(place) => {
                    self.requested[0][OpCause::Map as usize] += 1;
                    assert!(self.flash.get(&place).is_some_and(|h| h.0.is_none()), "no map at {place:?}")
                }
                MapOp::Program(place) => self.program(place, (None, 0), OpCause::Map),
            }
        }
    }

    fn write(&mut self, lpa: u64, part: bool) {
        let mut ops = Vec::new();
        let load = |die: u32| u64::from(die * 7 % 3);
        for _ in 0..10_000 {
            match self.ftl.write(lpa, !part, 3, load, &mut ops) {
                Ok(to) => {
                    let before = self.wanted.get(&lpa);
                    assert_eq!(to.read_first.is_some(), part && before.is_some());
                    self.requested[0][OpCause::Host as usize] += u64::from(to.read_first.is_some());
                    if let (Some(read), Some(&version)) = (to.read_first, before) {
                        assert_eq!(self.flash[&read], (Some(lpa), version));
                    }
                    self.versions += 1;
                    self.wanted.insert(lpa, self.versions);
                    self.map_ops(&ops);
                    self.program(to.place, (Some(lpa), self.versions), OpCause::Host);
                    return;
                }
                Err(FtlError::NotNow { plane }) => self.go_on(plane),
                Err(FtlError::NoSpace { bad_blocks, .. }) => {
                    assert!(bad_blocks > 0, "no space on a device without bad blocks: {:?}", self.ftl.report());
                    self.full = true;
                    return;
                }
                Err(e) => panic!("{e}"),
            }
        }
        panic!("page {lpa} is never written: {:?}", self.ftl.report());
    }

    /// Executes the next reclaim step of a plane, because a write waits for it.
    fn go_on(&mut self, plane: u32) {
        if self.step(plane) {
            return;
        }
        if let Some(at) = self.moves.iter().position(|(m, _)| self.plane(m.from) == plane) {
            self.answer(at);
        } else if let Some(at) = self.erases.iter().position(|&p| self.plane(p) == plane) {
            self.erase_ends(at, false);
        } else {
            panic!("nothing to do in plane {plane}, and no page to write to: {:?}", self.ftl.report());
        }
    }

    fn plane(&self, place: PageAddress) -> u32 {
        place.die * (self.ftl.planes() / self.dies()) + u32::from(place.plane)
    }

    fn dies(&self) -> u32 {
        self.ftl.geometry.dies_total()
    }

    fn step(&mut self, plane: u32) -> bool {
        match self.ftl.step(plane) {
            ReclaimStep::Move(m) => {
                self.requested[0][m.cause as usize] += 1;
                let held = self.flash[&m.from];
                assert_eq!(matches!(m.owner, Owner::Map(_)), held.0.is_none());
                if let Owner::Page(lpa) = m.owner {
                    assert_eq!(held, (Some(lpa), self.wanted[&lpa]));
                }
                self.moves.push((m, held));
            }
            ReclaimStep::Erase { place, cause } => {
                self.requested[2][cause as usize] += 1;
                self.erases.push(place);
            }
            ReclaimStep::Wait => return false,
            // A job that found no room was abandoned; the write receives the error later.
            ReclaimStep::Idle => return self.full || self.fails,
        }
        true
    }

    fn answer(&mut self, at: usize) {
        let (m, held) = self.moves.remove(at);
        match self.ftl.relocate(&m) {
            Ok(Moved::To(place)) => {
                if let Owner::Page(lpa) = m.owner {
                    assert_eq!(self.wanted.get(&lpa), Some(&held.1), "an old version was moved");
                }
                self.program(place, held, m.cause);
            }
            Ok(Moved::Overwritten) => {
                if let Owner::Page(lpa) = m.owner {
                    let at = self.ftl.place_of(lpa).unwrap();
                    assert!(at != Some(m.from), "{m:?} was not overwritten");
                }
            }
            Err(FtlError::NoSpace { bad_blocks, .. }) => assert!(bad_blocks > 0, "no room for {m:?}"),
            Err(e) => panic!("{e}"),
        }
    }

    fn erase_ends(&mut self, at: usize, fails: bool) {
        let place = self.erases.remove(at);
        let gone: Vec<PageAddress> = (0..self.pages).map(|page| PageAddress { page, ..place }).collect();
        for at in &gone {
            self.flash.remove(at);
        }
        self.recent.retain(|(p, _)| !gone.contains(p));
        if fails {
            self.ftl.erase_failed(place);
        } else {
            self.ftl.erased(place);
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Write { lpa, part } => self.write(self.lpa(lpa), part),
            Action::Writes { lpa, count } => {
                for n in 0..u16::from(count) {
                    self.write(self.lpa(lpa.wrapping_add(n * 3)), false);
                }
            }
            Action::Trim { lpa, pages } => {
                let lpa = self.lpa(lpa);
                let pages = u64::from(pages).min(self.ftl.capacity_pages() - lpa);
                let there = (lpa..lpa + pages).filter(|l| self.wanted.remove(l).is_some()).count() as u64;
                let mut ops = Vec::new();
                assert_eq!(self.ftl.trim(lpa, pages, &mut ops), Ok(there));
                self.map_ops(&ops);
            }
            Action::ReclaimStep { plane } => {
                self.step(u32::from(plane) % self.ftl.planes());
            }
            Action::Answer { which } if !self.moves.is_empty() => {
                self.answer(usize::from(which) % self.moves.len());
            }
            Action::EraseEnds { which, fails } if !self.erases.is_empty() => {
                self.erase_ends(usize::from(which) % self.erases.len(), self.fails && fails < 8);
            }
            Action::ProgramFails { which } if self.fails && !self.recent.is_empty() => {
                let (place, cause) = self.recent.remove(usize::from(which) % self.recent.len());
                match self.ftl.program_failed(place, cause) {
                    Ok(Some(renewed)) => {
                        // The moved page is programmed at its new address, but its content is dead.
                        let held = self.flash.insert(place, (Some(u64::MAX), 0)).unwrap();
                        if let Owner::Page(lpa) = renewed.owner {
                            assert_eq!(held, (Some(lpa), self.wanted[&lpa]));
                        }
                        self.program(renewed.place, held, cause);
                    }
                    Ok(None) | Err(FtlError::NoSpace { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            Action::FlushMap => {
                let mut ops = Vec::new();
                self.ftl.flush_map(&mut ops);
                self.map_ops(&ops);
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        self.ftl.audit();
        let report = self.ftl.report();
        assert_eq!([report.reads, report.programs, report.erases], self.requested, "reads, programs, erases by cause");
        for lpa in 0..self.ftl.capacity_pages() {
            let held = self.ftl.place_of(lpa).unwrap().map(|p| self.flash[&p]);
            assert_eq!(held, self.wanted.get(&lpa).map(|&v| (Some(lpa), v)), "page {lpa}");
        }
    }
}

proptest! {
    #[test]
    fn no_page_is_ever_lost((d, bad, fails) in devices(), filled in any::<bool>(), actions in actions()) {
        let Some(mut rig) = Rig::new(&d, bad, fails) else { return Ok(()) };
        if filled && d.ftl.map_cache_bytes.is_none() {
            // The device is filled by formula: the test's flash then holds what the map says.
            if rig.ftl.fill_sequential().is_ok() {
                for lpa in 0..rig.ftl.capacity_pages() {
                    let place = rig.ftl.place_of(lpa).unwrap().unwrap();
                    rig.versions += 1;
                    rig.wanted.insert(lpa, rig.versions);
                    rig.flash.insert(place, (Some(lpa), rig.versions));
                }
            }
        }
        for (n, action) in actions.iter().enumerate() {
            rig.act(action);
            if n % 16 == 0 {
                rig.check();
            }
        }
        rig.check();
// All moves in flight end; afterwards the whole device can still be written.
        while !rig.moves.is_empty() {
            rig.answer(0);
        }
        while !rig.erases.is_empty() {
            rig.erase_ends(0, false);
        }
        for lpa in 0..rig.ftl.capacity_pages() {
            rig.write(lpa, false);
        }
        rig.check();
    }
}
