//! Repairs what a check found, as far as the out-of-band records allow.
//!
//! An unreadable index is taken from the previous generation and the journals since. If these are unreadable too, it is
//! rebuilt from pages: every access unit gets the newest page whose record names it. Content that was overwritten by
//! fill may come back then, and the report says so. A damaged mapped page is replaced by another copy of the same
//! content that reclaim left behind, recognised by the sequence number of its command.
//!
//! If the newest content of a unit is damaged and no copy is left, the unit stays mapped to the damaged page, so that
//! reading it is an error that names the place. It is never silently replaced by fill or older content; the newest
//! intact older content replaces it only if the caller accepts that, and the report names every such unit. At the end a
//! new checkpoint and both superblocks are written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::Device;
use super::check::{BadUnit, CheckReport};
use super::oob_scan::{OobScan, PageCopy, scan, up_to};
use super::recover::generation_before;
use super::wire::{decode_index, encode_index};
use crate::error::{Error, Result, Shape};
use crate::flash::{Owner, Ppa, Run};
use crate::stl::index::{BlockMap, Index};
use crate::stl::plan::BlockAt;
use crate::stl::read::Reader;
use crate::stl::space::{IndexState, Space, SpaceId};
use crate::stl::write::{Gone, remap};

impl Device {
    pub(super) fn repair(
        &self,
        report: &mut CheckReport,
        bad: Vec<(Arc<Space>, BadUnit)>,
        unreadable: Vec<(Arc<Space>, usize)>,
        accept_older: bool,
    ) -> Result<()> {
        let before = if unreadable.is_empty() { None } else { generation_before(self) };
        let index_before = |space: &Space| {
            let same = before.as_ref()?.catalog.read().same_version(space)?.clone();
            let bytes = encode_index(same.read().ok()?.index());
            decode_index(&bytes, space.shape.block.len(), &self.geometry()).ok()
        };
        let mut forgotten = Vec::new();
        for (space, finding) in unreadable {
            let Some(index) = index_before(&space) else {
                forgotten.push((space, finding));
                continue;
            };
            report.findings[finding].repaired =
                Some(format!("the index was taken from the generation before: {} building blocks", index.blocks()));
            space.peek_mut().index = IndexState::Loaded(index);
        }
        let found = self.records_of_spaces(&bad, &forgotten)?;
        for (space, finding) in &forgotten {
            let count = self.rebuild_index(space, &found, accept_older, report)?;
            report.findings[*finding].repaired = Some(format!(
                "the index was rebuilt from out-of-band records: {count} building blocks; what was overwritten by the \
                 fill value, or cut off, may have come back"
            ));
        }
        if found.unreadable > 0 && !forgotten.is_empty() {
            let what = format!(
                "{} out-of-band records cannot be read; units whose newest page they tell of have older content now, \
                 or none",
                found.unreadable
            );
            let finding = report.add(Some(&forgotten[0].0.peek().record.name.clone()), what);
            finding.repaired = accept_older.then(|| "accepted".to_owned());
        }
        self.replace_bad(report, bad, &found, accept_older)?;
        {
            let _commit = self.commit.lock();
            let _epoch = self.epoch.write();
            let lost = self.catalog.read().separate_versions(&self.geometry())?;
            for (space, at, unit) in lost {
                let (name, block) = (space.peek().record.name.clone(), Shape(&at));
                let what = format!(
                    "building block {block}, access unit {unit}: its page was that of a version of another time, and \
                     is taken from it"
                );
                report.add(Some(&name), what);
            }
            self.recount()?;
            self.drain()?;
            let mut log = self.log.lock();
            // Changes that wait for a record, such as earlier writes of callers, are in the checkpoint; if it fails,
            // they wait on.
            self.leave_journal(&mut log)?;
            self.checkpoint(&mut log)?;
        }
        for finding in &mut report.findings {
            let of_metadata = finding.array.is_none();
            if of_metadata && finding.repaired.is_none() {
                finding.repaired = Some("written anew".to_owned());
            }
        }
        Ok(())
    }

    /// Maps intact copies in place of damaged pages, with `accept_older` also of older content, and notes each repair
    /// in the report.
    fn replace_bad(
        &self,
        report: &mut CheckReport,
        bad: Vec<(Arc<Space>, BadUnit)>,
        found: &OobScan,
        accept_older: bool,
    ) -> Result<()> {
        let mut replaced: HashMap<(SpaceId, BlockAt), u64> = HashMap::new();
        // The repair of a page, in all versions of its space that had it; each version has findings of its own.
        let mut done: HashMap<(SpaceId, BlockAt, u32, Ppa), String> = HashMap::new();
        for (space, unit) in bad {
            let block = (space.origin, unit.at.clone());
            // Units of several blocks may have the page of lost ones.
            let page = (space.origin, unit.at.clone(), unit.unit, unit.page);
            if let Some(seq) = replaced.get(&(space.id, unit.at.clone())) {
                done.insert(page.clone(), older_block(*seq));
            }
            if let Some(how) = done.get(&page) {
                report.findings[unit.finding].repaired = Some(how.clone());
                continue;
            }
            let old = space.read()?.index().get(&unit.at).and_then(|map| map.page_of(unit.unit));
            let Some(old) = old else { continue };
            // The sequence number of the damaged version is in the page's own record.
            let owner = Owner { unit: unit.unit as u16, ..space.owner(&unit.at) };
            let record = if self.within(old) { self.ftl.oob(old)?.filter(|r| r.owner() == owner) } else { None };
            let seq = record.map(|r| r.seq());
            let Some(units) = found.copies.get(&block) else { continue };
            let newest = space.newest_seq();
            let others = || {
                let copies = units.get(&unit.unit).into_iter().flatten();
                copies.filter(|c| c.intact && c.ppa != old && c.seq <= newest)
            };
            if let Some(copy) = others().find(|c| Some(c.seq) == seq) {
                self.map_instead(&space, &unit.at, (unit.unit, old), copy.ppa)?;
                let how = format!("mapped to a copy that reclaim left behind, page {}", copy.ppa.0);
                report.findings[unit.finding].repaired = Some(how.clone());
                done.insert(page, how);
                continue;
            }
            if !accept_older {
                continue;
            }
            if space.coded() {
                // The pages of a coded block only make sense together.
                let before = seq.unwrap_or(newest.saturating_add(1));
                let Some((seq, runs)) = self.whole_block(&space, &unit.at, units, before) else {
                    continue;
                };
                for version in self.having(&space, &unit.at, (unit.unit, old))? {
                    remap(&mut *version.write()?, &unit.at, &Gone::All, &runs);
                }
                report.findings[unit.finding].repaired = Some(older_block(seq));
                done.insert(page, older_block(seq));
                replaced.insert((space.id, unit.at), seq);
            } else if let Some(copy) = others().filter(|c| seq.is_none_or(|s| c.seq < s)).max_by_key(|c| c.seq) {
                self.map_instead(&space, &unit.at, (unit.unit, old), copy.ppa)?;
                let how = format!("mapped to OLDER content, of command {}, page {}", copy.seq, copy.ppa.0);
                report.findings[unit.finding].repaired = Some(how.clone());
                done.insert(page, how);
            }
        }
        Ok(())
    }

    /// Maps a unit of a block to another page than `old`, in all versions of the space that have this one.
    fn map_instead(&self, space: &Space, at: &BlockAt, (unit, old): (u32, Ppa), ppa: Ppa) -> Result<()> {
        let gone = Gone::Units(vec![unit..unit + 1]);
        for version in self.having(space, at, (unit, old))? {
            let mut inner = version.write()?;
            remap(&mut inner, at, &gone, &[Run { unit, count: 1, ppa }]);
            let mapped = inner.index().get(at).and_then(|map| map.page_of(unit));
            assert_eq!(mapped, Some(ppa), "unit {unit} of block {at:?} was mapped instead");
        }
        Ok(())
    }

    /// Returns the versions of a space that map a unit of a block to this page.
    fn having(&self, space: &Space, at: &BlockAt, (unit, page): (u32, Ppa)) -> Result<Vec<Arc<Space>>> {
        let mut all = self.catalog.read().versions(space.origin);
        let mut failed = None;
        all.retain(|version| match version.read() {
            Ok(inner) => inner.index().get(at).and_then(|map| map.page_of(unit)) == Some(page),
            Err(e) => {
                failed.get_or_insert(e);
                false
            }
        });
        failed.map_or(Ok(all), Err)
    }

    /// Whether the page lies within the medium.
    fn within(&self, ppa: Ppa) -> bool {
        let segments = self.ftl.with_segments(|s| s.len()) as u64;
        self.geometry().has_run(Run { unit: 0, count: 1, ppa }, segments)
    }

    /// Scans the out-of-band records for pages of the spaces that have bad units or lost their index.
    fn records_of_spaces(&self, bad: &[(Arc<Space>, BadUnit)], forgotten: &[(Arc<Space>, usize)]) -> Result<OobScan> {
        let wanted: HashMap<SpaceId, &Arc<Space>> =
            bad.iter().map(|(s, _)| (s.origin, s)).chain(forgotten.iter().map(|(s, _)| (s.origin, s))).collect();
        scan(&self.ftl, &wanted, u64::MAX, &|segment| self.ftl.with_segments(|s| s.info(segment).live) > 0)
    }

    /// Rebuilds a space's index from the newest page of every unit; returns the number of blocks in it. Reports each
    /// unit whose newest content is damaged, with the repair if older content was accepted.
    fn rebuild_index(
        &self,
        space: &Space,
        found: &OobScan,
        accept_older: bool,
        report: &mut CheckReport,
    ) -> Result<u64> {
        let name = space.peek().record.name.clone();
        let mut index = Index::new(space.shape.block.len());
        for ((_, at), units) in found.copies.iter().filter(|((id, _), _)| *id == space.origin) {
            let units = &up_to(units, space.newest_seq());
            let mut chosen: Vec<(u32, PageCopy)> = Vec::new();
            let mut done: Option<String> = None;
            let newest = |copies: &[PageCopy]| copies.iter().max_by_key(|c| (c.seq, c.intact)).copied();
            if space.coded() {
                // The units of a coded block are valid only together, so only those of its newest command are mapped.
                let last = units.values().flatten().map(|c| c.seq).max().unwrap_or(0);
                for (&unit, copies) in units {
                    let of_last: Vec<PageCopy> = copies.iter().filter(|c| c.seq == last).copied().collect();
                    chosen.extend(newest(&of_last).map(|c| (unit, c)));
                }
                if accept_older && chosen.iter().any(|(_, c)| !c.intact) {
                    if let Some((seq, runs)) = self.whole_block(space, at, units, last) {
                        let block = Shape(at);
                        report
                            .add(Some(&name), format!("building block {block}: its newest content is damaged"))
                            .repaired = Some(older_block(seq));
                        index.set(at, BlockMap::from_runs(runs));
                        continue;
                    }
                }
            } else {
                for (&unit, copies) in units {
                    chosen.extend(newest(copies).map(|c| (unit, c)));
                }
            }
            for (unit, copy) in &mut chosen {
                if copy.intact {
                    continue;
                }
                let (block, offset) = (Shape(at), self.geometry().page_offset(copy.ppa));
                let what = format!(
                    "building block {block}, access unit {unit}, page {}: its newest content is damaged (file offset \
                     {offset})",
                    copy.ppa.0
                );
                let older = units[unit].iter().filter(|c| c.intact).max_by_key(|c| c.seq);
                if let Some(older) = older.filter(|_| accept_older && !space.coded()) {
                    *copy = *older;
                    done = Some(format!("mapped to OLDER content, of command {}, page {}", older.seq, older.ppa.0));
                }
                report.add(Some(&name), what).repaired = done.take();
            }
            let runs = chosen.iter().map(|&(unit, copy)| Run { unit, count: 1, ppa: copy.ppa }).collect();
            index.set(at, BlockMap::from_runs(runs));
        }
        let count = index.blocks();
        space.peek_mut().index = IndexState::Loaded(index);
        Ok(count)
    }

    /// Finds the newest intact content of a coded block older than command `before`: all its pages are intact, and they
    /// decode if the space is unlocked. Returns the command's sequence number and the pages; `None` if there is no such
    /// content.
    fn whole_block(
        &self,
        space: &Space,
        at: &BlockAt,
        units: &BTreeMap<u32, Vec<PageCopy>>,
        before: u64,
    ) -> Option<(u64, Vec<Run>)> {
        let seqs: BTreeSet<u64> = units.values().flatten().map(|c| c.seq).filter(|&s| s < before).collect();
        seqs.into_iter().rev().find_map(|seq| {
            let mut runs = Vec::new();
            for (&unit, copies) in units {
                let mut same = copies.iter().filter(|c| c.seq == seq).peekable();
                if same.peek().is_none() {
                    continue;
                }
                let copy = same.find(|c| c.intact)?;
                if unit as usize != runs.len() {
                    return None;
                }
                runs.push(Run { unit, count: 1, ppa: copy.ppa });
            }
            let inner = space.peek();
            let reader = Reader { ftl: &self.ftl, space, inner: &inner, watched: true };
            let map = BlockMap::from_runs(runs.clone())?;
            let mut scratch = vec![0; space.shape.bytes];
            let whole: Range<usize> = 0..space.shape.bytes;
            let decodes =
                space.codec().is_err() || reader.decode(at, &map, std::slice::from_ref(&whole), &mut scratch).is_ok();
            decodes.then_some((seq, runs))
        })
    }

    /// Recomputes the number of live pages of all segments from the indexes.
    fn recount(&self) -> Result<()> {
        let mut runs = Vec::new();
        let all: Vec<Arc<Space>> = self.catalog.read().spaces_and_versions().cloned().collect();
        for space in all {
            let inner = space.write()?;
            // Each page is counted in the oldest of the versions, next to each other, that have it.
            runs.extend(inner.all_unshared());
        }
        self.ftl.with_segments(|s| {
            s.forget_live();
            for run in runs {
                if !s.revive(run) {
                    return Err(Error::corrupt(format!("page {} cannot be live", run.ppa.0)));
                }
            }
            Ok(())
        })
    }
}

/// Describes, for the report, the repair of a block that was mapped to older content.
fn older_block(seq: u64) -> String {
    format!("the whole block was mapped to OLDER content, of command {seq}")
}
