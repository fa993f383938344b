//! The second half of a write, and of moving pages: staged pages become visible, and the change is queued for the
//! journal.

use super::Device;
use super::wire::{JournalOp, Update};
use crate::error::Result;
use crate::flash::Run;
use crate::sim::count;
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Inner, Space};
use crate::stl::write::{Applied, Gone, Staged, apply, remap};

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
        let mut ops = Vec::with_capacity(staged.len());
        let mut dead = Vec::new();
        for one in staged {
            let before = space.buffered(inner, &one.at);
            let at = one.at.clone();
            let applied = apply(inner, one);
            self.account_buffered(before, space.buffered(inner, &at));
            self.ftl.adopt(&applied.runs);
            if !applied.runs.is_empty() || !applied.dead.is_empty() {
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
        let dead = remap(&mut inner, at, &gone, &runs);
        self.ftl.adopt(&runs);
        let pages = |runs: &[Run]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        assert_eq!(pages(&dead), pages(&runs), "as many pages die as are moved, block {at:?}");
        let mut log = self.log.lock();
        log.queue([JournalOp::Update(Update::new(space.id, seq, at, &gone, &runs))]);
        count(&self.counters.pages_moved, pages(&runs));
        self.ftl.release(dead.into_iter());
        Ok(true)
    }
}
