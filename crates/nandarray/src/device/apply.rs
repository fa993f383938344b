//! The second half of a write, and of moving pages: staged pages become visible, and the change is queued for the
//! journal.

use std::collections::BTreeSet;

use super::Device;
use super::wire::{JournalOp, MovedPages, Update};
use crate::error::Result;
use crate::flash::{Ppa, Run};
use crate::sim::count;
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Inner, Space, SpaceId, to_wire};
use crate::stl::write::{Applied, Gone, Lost, Staged, apply, remap, substitute};

impl Device {
    /// Makes staged blocks visible, together with the new shape if there is one.
    pub(super) fn apply(&self, space: &Space, staged: Vec<Staged>, shape: Option<&[u64]>) -> Result<()> {
        let _epoch = self.epoch.read();
        let mut inner = match self.still_open().and_then(|()| space.write()) {
            Ok(inner) => inner,
            Err(e) => {
                staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
                return Err(e);
            }
        };
        self.apply_to(space, &mut inner, staged, shape);
        Ok(())
    }

    /// Applies staged blocks, and the new shape if there is one, to a space whose lock the caller holds; the caller
    /// also holds the epoch.
    pub(super) fn apply_to(&self, space: &Space, inner: &mut Inner, staged: Vec<Staged>, shape: Option<&[u64]>) {
        assert!(!inner.deleted, "space {} is deleted, and nothing is applied to it", space.id);
        assert!(space.frozen.is_none(), "space {} is of a snapshot, and nothing is applied to it", space.origin);
        let mut ops = Vec::with_capacity(staged.len());
        let mut dead = Vec::new();
        for one in staged {
            let before = space.buffered(inner, &one.at);
            let at = one.at.clone();
            let applied = apply(inner, one);
            self.account_buffered(before, space.buffered(inner, &at));
            self.ftl.adopt(&applied.runs);
            if !applied.runs.is_empty() || applied.lost > 0 {
                let Applied { seq, ref at, ref gone, ref runs, .. } = applied;
                ops.push(JournalOp::Update(Update::new(space.id, seq, at, gone, runs)));
            }
            dead.extend(applied.dead);
        }
        if let Some(shape) = shape.filter(|&shape| shape != inner.record.shape) {
            assert!(
                shape.len() == inner.record.shape.len(),
                "a space keeps its {} dimensions",
                inner.record.shape.len()
            );
            inner.record.shape = shape.to_vec();
            ops.push(JournalOp::Resize(space.id, shape.to_vec()));
        }
        // Under the log's lock: the record that has these changes is the one whose durability frees the dead pages.
        let mut log = self.log.lock();
        self.ftl.release(dead.into_iter());
        log.queue(ops);
    }

    /// Maps units of a block, which lose their pages (`gone`), to the staged pages `runs` with the same content, if
    /// `is_unchanged` is true for the pages that the block has now. Otherwise drops the staged pages and returns
    /// `false`.
    pub(super) fn replace_pages(
        &self,
        space: &Space,
        at: &BlockAt,
        seq: u64,
        (gone, runs): (Gone, Vec<Run>),
        is_unchanged: impl FnOnce(Option<&BlockMap>) -> bool,
    ) -> Result<bool> {
        let _epoch = self.epoch.read();
        let unchanged = space.write().map(|inner| is_unchanged(inner.index().get(at)).then_some(inner));
        let Ok(Some(mut inner)) = unchanged else {
            self.ftl.abandon(&runs);
            return unchanged.map(|_| false);
        };
        let Lost { pages: lost, dead } = remap(&mut inner, at, &gone, &runs);
        self.ftl.adopt(&runs);
        let pages = |runs: &[Run]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        assert_eq!(lost, pages(&runs), "as many pages are lost as are moved, block {at:?}");
        let mut log = self.log.lock();
        log.queue([JournalOp::Update(Update::new(space.id, seq, at, &gone, &runs))]);
        count(&self.counters.pages_moved, pages(&runs));
        self.ftl.release(dead.into_iter());
        Ok(true)
    }

    /// Maps units of a block to the staged pages `to` with the same content, in all versions of a space that have the
    /// pages `from`. Drops the staged pages and returns `false` if some of `from` are in no version any more.
    pub(super) fn move_in_versions(
        &self,
        origin: SpaceId,
        at: &BlockAt,
        seq: u64,
        (from, to): (Vec<Run>, Vec<Run>),
    ) -> Result<bool> {
        // The lock is exclusive: nothing else changes a version, and the locks of spaces are taken one at a time.
        let _epoch = self.epoch.write();
        let moved = self.substitute_in_versions(origin, at, &from, &to);
        if !matches!(moved, Ok(true)) {
            self.ftl.abandon(&to);
            return moved;
        }
        self.ftl.adopt(&to);
        let mut log = self.log.lock();
        let (wire_from, wire_to) = (to_wire(&from), to_wire(&to));
        log.queue([JournalOp::Move(MovedPages { space: origin, seq, at: at.to_vec(), from: wire_from, to: wire_to })]);
        count(&self.counters.pages_moved, to.iter().map(|run| u64::from(run.count)).sum());
        self.ftl.release(from.into_iter());
        Ok(true)
    }

    /// The change of the indexes in [`Self::move_in_versions`]; changes nothing unless all pages of `from` are mapped.
    fn substitute_in_versions(&self, origin: SpaceId, at: &BlockAt, from: &[Run], to: &[Run]) -> Result<bool> {
        self.still_open()?;
        let versions = self.catalog.read().versions(origin);
        let mut left: BTreeSet<(u32, Ppa)> =
            from.iter().flat_map(|run| (run.unit..run.end()).map(|unit| (unit, run.page_of(unit)))).collect();
        for space in &versions {
            let inner = space.write()?;
            let Some(map) = inner.index().get(at) else { continue };
            left.retain(|&(unit, ppa)| map.page_of(unit) != Some(ppa));
        }
        if !left.is_empty() {
            return Ok(false);
        }
        for space in &versions {
            substitute(&mut *space.write()?, at, from, to);
        }
        Ok(true)
    }
}
