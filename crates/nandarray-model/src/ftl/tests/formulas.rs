//! The formulas that stand for a map: the sequential fill, the scattered one, the order of planes and the counters of
//! hot pages, each beside lists that are made page by page.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::{description, device};
use crate::describe::{FlashGeometry, StripeLevel, Striping};
use crate::ftl::blocks::Stream;
use crate::ftl::fill::Fill;
use crate::ftl::hot::HotData;
use crate::ftl::live_lists::LiveLists;
use crate::ftl::scatter::Scatter;
use crate::ftl::striping::StripeOrder;

fn letters(chance: &mut Rng) -> [StripeLevel; 4] {
    let mut all = [StripeLevel::Channel, StripeLevel::Way, StripeLevel::Die, StripeLevel::Plane];
    chance.shuffle(&mut all);
    all
}

fn geometry(chance: &mut Rng) -> FlashGeometry {
    let mut some = |most: u32| chance.u32(1..most);
    FlashGeometry {
        channels: some(4),
        ways: some(4),
        dies: some(3),
        planes: some(3),
        blocks: some(9) + 3,
        pages: some(12),
        page_bytes: 4_096,
        spare_bytes: 0,
    }
}

/// Returns the planes in a striping order, by counting like an odometer whose first letter turns fastest.
fn odometer(g: &FlashGeometry, levels: [StripeLevel; 4]) -> Vec<u32> {
    let size = |level| match level {
        StripeLevel::Channel => g.channels,
        StripeLevel::Way => g.ways,
        StripeLevel::Die => g.dies,
        StripeLevel::Plane => g.planes,
    };
    let mut digits = [0_u32; 4];
    let mut planes = Vec::new();
    loop {
        let digit = |level| digits[levels.iter().position(|&l| l == level).unwrap()];
        let die = (digit(StripeLevel::Channel) * g.ways + digit(StripeLevel::Way)) * g.dies + digit(StripeLevel::Die);
        planes.push(die * g.planes + digit(StripeLevel::Plane));
        let Some(turns) = (0..4).find(|&i| digits[i] + 1 < size(levels[i])) else { return planes };
        digits[turns] += 1;
        digits[..turns].fill(0);
    }
}

#[test]
fn a_device_that_was_filled_lies_where_its_pages_were_put_one_by_one() {
    for seed in 0..150 {
        let mut chance = Rng::with_seed(seed);
        let (g, levels) = (geometry(&mut chance), letters(&mut chance));
        let order = StripeOrder::new(&g, &Striping::Static(levels)).unwrap();
        let planes = odometer(&g, levels);
        assert_eq!(order.plane_at, planes, "seed {seed}: {levels:?}");
        let bad: Vec<Vec<u32>> =
            (0..g.planes_total()).map(|_| (0..g.blocks).filter(|_| chance.u32(0..4) == 0).collect()).collect();
        let fill = Fill::new(order.clone(), g.blocks, g.pages, bad.clone());
        let mut free: Vec<Vec<u32>> = bad
            .iter()
            .map(|bad| (0..g.blocks * g.pages).rev().filter(|page| !bad.contains(&(page / g.pages))).collect())
            .collect();
        for (plane, bad) in (0..).zip(&bad) {
            let good: Vec<u32> = (0..g.blocks).filter(|block| !bad.contains(block)).collect();
            let nth: Vec<u32> = (0..good.len() as u32).map(|nth| fill.nth_good(plane, nth)).collect();
            assert_eq!(nth, good, "seed {seed}: good blocks of plane {plane}");
        }
        for lpa in 0.. {
            let plane = planes[lpa as usize % planes.len()];
            assert_eq!(order.own(lpa), plane);
            assert_eq!(fill.row_and_plane(lpa), (lpa / planes.len() as u32, plane));
            let placed: u32 = (0..planes.len() as u32).map(|plane| fill.rows_of(plane, lpa)).sum();
            assert_eq!(placed, lpa, "seed {seed}: pages of all planes");
            let Some(page) = free[plane as usize].pop() else { break };
            assert_eq!(fill.page_of(lpa), plane * g.blocks * g.pages + page, "seed {seed}: logical page {lpa}");
            assert_eq!(fill.lpa_at(plane, page / g.pages, page % g.pages), lpa, "seed {seed}: page {page}");
        }
    }
}

#[test]
fn a_scattered_device_holds_each_page_once_and_as_many_a_block_as_asked() {
    for seed in 0..80 {
        let mut chance = Rng::with_seed(1_000 + seed);
        let (g, own) = (geometry(&mut chance), chance.bool());
        let planes = g.planes_total();
        let order = StripeOrder::new(&g, &Striping::Static(letters(&mut chance))).unwrap();
        let mut live: Vec<u32> = (0..planes * g.blocks).map(|_| chance.u32(0..g.pages + 1)).collect();
        // With pages that stay in their own planes, each plane has as many as striping assigns to it.
        let fewest =
            |live: &[u32], plane: u32| -> u32 { live[(plane * g.blocks) as usize..][..g.blocks as usize].iter().sum() };
        let rows = (0..planes).map(|plane| fewest(&live, plane)).min().unwrap();
        if own {
            for plane in 0..planes {
                let mut over = fewest(&live, plane) - rows;
                for block in &mut live[(plane * g.blocks) as usize..][..g.blocks as usize] {
                    let less = over.min(*block);
                    (*block, over) = (*block - less, over - less);
                }
            }
        }
        let total: u32 = live.iter().sum();
        let shape = (planes, g.blocks, g.pages);
        let mut scatter = Scatter::new(shape, own, live.iter().copied(), &mut chance);
        let ordered = chance.u32(0..planes * g.blocks);
        scatter.in_order(ordered, 0);
        let fill = Fill::new(order.clone(), g.blocks, g.pages, vec![Vec::new(); planes as usize]);
        let what = format!("seed {seed}, {g:?}, in their own planes: {own}");
        let mut pages_of_blocks: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for lpa in 0..total {
            let page = scatter.page_of(lpa, &fill);
            let block = page / g.pages;
            assert!(pages_of_blocks.entry(block).or_default().insert(page % g.pages), "{what}: page {page} twice");
            assert_eq!(scatter.lpa_at(block, page % g.pages, &fill), lpa, "{what}");
            assert!(
                !own || order.own(lpa) == block / g.blocks,
                "{what}: page {lpa} lies in plane {}",
                block / g.blocks
            );
        }
        for (block, &live) in (0..).zip(&live) {
            let found = pages_of_blocks.remove(&block).unwrap_or_default();
            assert_eq!((found.len() as u32, scatter.live(block)), (live, live), "{what}: block {block}");
            let pages: Vec<u32> = scatter.pages_of(block).collect();
            assert_eq!(pages[..live as usize].iter().copied().collect::<BTreeSet<_>>(), found, "{what}: block {block}");
            let all: BTreeSet<u32> = pages.iter().copied().collect();
            assert!(all.into_iter().eq(0..g.pages), "{what}: every page of block {block} is live or dead");
            assert!(block != ordered || found.into_iter().eq(0..live), "{what}: block {block} is in order");
        }
    }
}

/// Each block's list is found again by a search over all blocks.
#[test]
fn lists_of_live_pages_name_the_block_that_a_search_finds() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let (planes, per_plane, pages) = (chance.u32(1..4), chance.u32(1..12), chance.u32(1..9));
        let mut lists = LiveLists::new(planes, per_plane, pages);
        // Closed blocks with their live pages, each with the number of its last change.
        let mut closed: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for change in 0..600 {
            let block = chance.u32(0..planes * per_plane);
            match (closed.get(&block).copied(), chance.u32(0..5)) {
                (None, _) => {
                    let live = chance.u32(0..pages + 1);
                    lists.closed(block, live as u16);
                    closed.insert(block, (live, change));
                }
                (Some((live, _)), 0) => {
                    lists.gone(block, live as u16);
                    closed.remove(&block);
                }
                (Some((live, _)), _) if live > 0 => {
                    lists.less(block, live as u16 - 1);
                    closed.insert(block, (live - 1, change));
                }
                _ => lists.settle(block / per_plane),
            }
            for plane in 0..planes {
                let here = closed.iter().filter(|(block, of)| **block / per_plane == plane && of.0 < pages);
                let want = here.min_by_key(|(_, (live, change))| (*live, std::cmp::Reverse(*change)));
                assert_eq!(lists.emptiest(plane), want.map(|(block, _)| *block), "seed {seed}, change {change}");
            }
        }
    }
}

/// Counters are shared by pages, so a page may be taken for hot; a page that was written often enough never is not.
#[test]
fn a_page_that_is_written_often_is_never_taken_for_cold() {
    for seed in 0..12 {
        let mut chance = Rng::with_seed(seed);
        let mut hot = HotData::new(1 << 17);
        // At least 4 of its writes in the last round of halvings make a page hot.
        let round = hot.remembers() as u64;
        let mut recent: Vec<(u64, u32)> = Vec::new();
        for n in 0..30_000 {
            let lpa = if chance.u32(0..3) == 0 { chance.u32(0..40) } else { chance.u32(0..1 << 17) };
            hot.written(lpa);
            if lpa < 40 {
                recent.push((n, lpa));
            }
            if n % 1_000 == 999 {
                for lpa in 0..40 {
                    // A counter is halved at most once in a round: eight writes leave at least four.
                    let writes = recent.iter().filter(|&&(at, page)| page == lpa && at + round > n).count();
                    assert!(writes < 8 || hot.is_hot(lpa), "seed {seed}: page {lpa} after {writes} of {round} writes");
                }
            }
        }
    }
    let mut hot = HotData::new(100);
    (0..3).for_each(|_| hot.written(7));
    assert!(!hot.is_hot(7), "three writes");
    hot.written(7);
    assert!(hot.is_hot(7), "four writes");
}

/// Dynamic striping beside a search of all dies: the first of the least busy planes after the last choice, or, where
/// the order begins with planes, all planes of the least busy die.
#[test]
fn dynamic_striping_goes_where_a_search_of_all_dies_goes() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let shape = [chance.u32(1..4), chance.u32(1..3), chance.u32(1..3), chance.u32(1..4)];
        let mut d = description(shape, 30, 8, 0.3);
        let levels = letters(&mut chance);
        d.ftl.striping = Striping::Dynamic(levels);
        let mut ftl = device(&d);
        let (g, order) = (d.geometry, odometer(&d.geometry, levels));
        let dies = g.dies_total() as usize;
        let whole_die = levels[0] == StripeLevel::Plane && g.planes > 1;
        let (mut cursor, mut left_of_die) = (0, Vec::new());
        let mut given = vec![0; order.len()];
        for n in 0..4 * order.len() as u64 {
            let busy: Vec<u64> = (0..dies).map(|_| chance.u64(0..4)).collect();
            let group = if whole_die { g.planes as usize } else { 1 };
            if left_of_die.is_empty() {
                let starts = (0..order.len()).step_by(group).map(|n| (cursor + n) % order.len());
                let load = |at: &usize| busy[(order[*at] / g.planes) as usize];
                let at = starts.min_by_key(load).unwrap();
                cursor = (at + group) % order.len();
                let first = if whole_die { order[at] / g.planes * g.planes } else { order[at] };
                left_of_die = (first..first + group as u32).collect();
                left_of_die.sort_by_key(|&plane| (given[plane as usize], plane));
            }
            let want = left_of_die.remove(0);
            given[want as usize] += 1;
            let lpa = n % ftl.capacity_pages();
            let written = ftl.write(lpa, true, 0, |die| busy[die as usize], &mut Vec::new()).unwrap();
            assert_eq!(written.plane, want, "seed {seed}, write {n}: {levels:?}, busy {busy:?}");
            assert_eq!(ftl.blocks.given(want, Stream::Host), given[want as usize], "seed {seed}, write {n}");
        }
    }
}
