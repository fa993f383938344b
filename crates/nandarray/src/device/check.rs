//! Comparing everything with everything; and mending what the records allow.
//!
//! Verified: both superblocks; the directory; every index; of every mapped page that it lies where pages may lie, that nobody
//! else maps it, its checksum, its out-of-band record and that record's CRC, and that the record names the owner that maps it;
//! the live pages of every segment against the indexes; that coded blocks decode (if they are not encrypted, or unlocked).
//! Not verified: pages that nobody maps; the content of what is not coded beyond its checksum.
//!
//! Repair takes an index that cannot be read from the generation before and the journals since, and only if these are gone,
//! too, rebuilds it from the newest intact pages whose records name its blocks (then what was overwritten by fill may come
//! back, which the report says). A damaged page is replaced by another copy that reclaim left behind, known by the number of
//! its command, never by an older version or by fill: what nobody knows stays as found. Then a new checkpoint is written,
//! and with it both superblocks.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::Device;
use super::recover::{directory_copies, generation_before};
use super::wire::{decode_index, encode_index};
use crate::error::{Error, Result};
use crate::flash::{Owner, Ppa, Run, Segment, SegmentKind};
use crate::ftl::superblock::read_slots;
use crate::stl::index::{BlockMap, Index};
use crate::stl::plan::BlockAt;
use crate::stl::read::Reader;
use crate::stl::space::{IndexState, Space, SpaceId, owner_space, unpack};
use crate::stl::write::remap;

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The array, if it is one's.
    pub array: Option<String>,
    /// What is wrong, with its numbers.
    pub message: String,
    /// What was done about it.
    pub repaired: Option<String>,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Arrays looked at.
    pub arrays: u64,
    /// Building blocks looked at.
    pub blocks: u64,
    /// Pages compared.
    pub pages: u64,
}

impl CheckReport {
    /// Whether everything is as it should be, or was mended.
    pub fn ok(&self) -> bool {
        self.findings.iter().all(|f| f.repaired.is_some())
    }

    fn add(&mut self, array: Option<&str>, message: String) -> &mut Finding {
        self.findings.push(Finding { array: array.map(str::to_owned), message, repaired: None });
        self.findings.last_mut().expect("just pushed")
    }
}

/// Intact pages by owner: (number of the command, page).
type Intact = BTreeMap<(SpaceId, BlockAt, u32), Vec<(u64, Ppa)>>;

/// A mapped page that is not what it should be.
struct BadUnit {
    finding: usize,
    at: BlockAt,
    unit: u32,
}

impl Device {
    pub(super) fn check(&self, repair: bool) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        if !self.read_only() {
            self.commit(false)?;
        }
        // Writes wait: what one array maps is compared with what all of them do.
        let rest = self.epoch.write();
        match read_slots(self.ftl.media().as_ref(), "the store") {
            Ok(slots) if slots.len() == 2 => {}
            Ok(_) => {
                report.add(None, "one of the two superblocks is damaged".to_owned());
            }
            Err(e) => {
                report.add(None, e.to_string());
            }
        }
        for (copy, intact) in directory_copies(self).into_iter().enumerate() {
            if !intact {
                report.add(None, format!("copy {copy} of the checkpoint's directory is damaged"));
            }
        }
        if let Some(why) = &self.passed_over {
            report.add(None, format!("the newest checkpoint cannot be used, the one before it was: {why}"));
        }
        let mut bad: Vec<(Arc<Space>, BadUnit)> = Vec::new();
        let mut unreadable: Vec<(Arc<Space>, usize)> = Vec::new();
        let mut owners: HashMap<u64, (SpaceId, u32)> = HashMap::new();
        let mut live: HashMap<Segment, u32> = HashMap::new();
        for space in self.spaces() {
            report.arrays += 1;
            match self.check_space(&space, &mut report, &mut owners, &mut live) {
                Ok(units) => bad.extend(units.into_iter().map(|u| (space.clone(), u))),
                Err(e) => {
                    let name = space.peek().record.name.clone();
                    report.add(Some(&name), e.to_string());
                    unreadable.push((space, report.findings.len() - 1));
                }
            }
        }
        if unreadable.is_empty() {
            self.check_segments(&live, &mut report);
        }
        drop(rest);
        if repair && !report.findings.is_empty() {
            self.repair(&mut report, bad, unreadable)?;
        }
        Ok(report)
    }

    fn check_space(
        &self,
        space: &Space,
        report: &mut CheckReport,
        owners: &mut HashMap<u64, (SpaceId, u32)>,
        live: &mut HashMap<Segment, u32>,
    ) -> Result<Vec<BadUnit>> {
        let inner = space.read()?;
        let name = inner.record.name.clone();
        let reader = Reader { ftl: &self.ftl, space, inner: &inner };
        let segments = self.ftl.with_segments(|s| s.len()) as u64;
        let mut bad = Vec::new();
        let mut failed = None;
        let mut scratch = vec![0; if space.coded() { space.shape.bytes } else { 0 }];
        inner.index().for_each(&mut |at, map| {
            if failed.is_some() {
                return;
            }
            report.blocks += 1;
            let before = bad.len();
            for run in map.runs() {
                for unit in run.unit..run.end() {
                    let ppa = run.page_of(unit);
                    report.pages += 1;
                    let wrong = if !self.geometry().has_run(Run { unit, count: 1, ppa }, segments) {
                        Ok(Some("it is mapped beyond the end of the store".to_owned()))
                    } else {
                        *live.entry(self.geometry().segment_of(ppa)).or_default() += 1;
                        match owners.insert(ppa.0, (space.id, unit)) {
                            Some((other, _)) => Ok(Some(format!("its page is mapped by space {other}, too"))),
                            None => self.inspect(ppa, Owner { unit: unit as u16, ..space.owner(at) }),
                        }
                    };
                    match wrong {
                        Ok(None) => {}
                        Ok(Some(what)) => {
                            let block = crate::error::Shape(at);
                            report.add(
                                Some(&name),
                                format!("building block {block}, access unit {unit}, page {}: {what}", ppa.0),
                            );
                            let finding = report.findings.len() - 1;
                            bad.push(BadUnit { finding, at: at.into(), unit });
                        }
                        Err(e) => failed = Some(e),
                    }
                }
            }
            if space.coded() && bad.len() == before && space.codec().is_ok() {
                let whole: Range<usize> = 0..space.shape.bytes;
                if let Err(e) = reader.decode(&at.into(), map, std::slice::from_ref(&whole), &mut scratch) {
                    report.add(Some(&name), e.to_string());
                }
            }
        });
        failed.map_or(Ok(bad), Err)
    }

    /// Compares one page with its record and its owner; tells what is wrong.
    fn inspect(&self, ppa: Ppa, owner: Owner) -> Result<Option<String>> {
        let mut bytes = vec![0; self.geometry().page_bytes as usize];
        self.ftl.media().read_at(self.geometry().page_offset(ppa), &mut bytes)?;
        let offset = self.geometry().page_offset(ppa);
        Ok(match self.ftl.oob(ppa)? {
            None => {
                Some(format!("its out-of-band record is damaged (file offset {})", self.geometry().oob_offset(ppa)))
            }
            Some(r) if r.owner() != owner => Some("its out-of-band record names another owner".to_owned()),
            Some(r) if !r.matches(&bytes) => Some(format!("it does not match its CRC-32C (file offset {offset})")),
            Some(_) => None,
        })
    }

    fn check_segments(&self, live: &HashMap<Segment, u32>, report: &mut CheckReport) {
        let counted: Vec<u32> = self.ftl.with_segments(|s| s.infos().iter().map(|i| i.live).collect());
        for (segment, &count) in counted.iter().enumerate() {
            let mapped = live.get(&(segment as Segment)).copied().unwrap_or(0);
            if mapped != count {
                report.add(None, format!("segment {segment} counts {count} live pages; indexes map {mapped}"));
            }
        }
    }

    fn repair(
        &self,
        report: &mut CheckReport,
        bad: Vec<(Arc<Space>, BadUnit)>,
        unreadable: Vec<(Arc<Space>, usize)>,
    ) -> Result<()> {
        let before = if unreadable.is_empty() { None } else { generation_before(self) };
        let told = |space: &Space| {
            let same = before.as_ref()?.space(space.id).ok()?;
            let bytes = encode_index(same.read().ok()?.index());
            decode_index(&bytes, space.shape.block.len()).ok()
        };
        let mut forgotten = Vec::new();
        for (space, finding) in unreadable {
            let Some(index) = told(&space) else {
                forgotten.push((space, finding));
                continue;
            };
            report.findings[finding].repaired =
                Some(format!("the index was taken from the generation before: {} building blocks", index.blocks()));
            space.peek_mut().index = IndexState::Loaded(index);
        }
        let intact = self.intact_pages(&bad, &forgotten)?;
        for (space, finding) in forgotten {
            let count = self.rebuild_index(&space, &intact)?;
            report.findings[finding].repaired = Some(format!(
                "the index was rebuilt from out-of-band records: {count} building blocks; what was overwritten by the fill \
                 value, or cut off, may have come back"
            ));
        }
        for (space, unit) in bad {
            let old = space.read()?.index().get(&unit.at).and_then(|map| map.page_of(unit.unit));
            // Its own record tells which version the page was.
            let Some(old) = old.filter(|&ppa| self.within(ppa)) else { continue };
            let owner = Owner { unit: unit.unit as u16, ..space.owner(&unit.at) };
            let Some(record) = self.ftl.oob(old)?.filter(|r| r.owner() == owner) else { continue };
            let copies = intact.get(&(space.id, unit.at.clone(), unit.unit));
            let Some(&(_, ppa)) = copies.into_iter().flatten().find(|(seq, _)| *seq == record.seq()) else { continue };
            if ppa == old {
                continue;
            }
            let gone = crate::stl::write::Gone::Units(vec![unit.unit..unit.unit + 1]);
            let runs = [Run { unit: unit.unit, count: 1, ppa }];
            remap(&mut *space.write()?, &unit.at, &gone, &runs);
            report.findings[unit.finding].repaired =
                Some(format!("mapped to a copy that reclaim left behind, page {}", ppa.0));
        }
        self.recount()?;
        {
            let _commit = self.commit.lock();
            let _epoch = self.epoch.write();
            let mut log = self.log.lock();
            log.pending.clear(); // the checkpoint tells all of it
            self.checkpoint(&mut log)?;
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

    /// Whether the page lies on the medium.
    fn within(&self, ppa: Ppa) -> bool {
        let segments = self.ftl.with_segments(|s| s.len()) as u64;
        self.geometry().has_run(Run { unit: 0, count: 1, ppa }, segments)
    }

    /// The intact pages of every unit of the spaces concerned, by their out-of-band records: numbers of commands, pages.
    fn intact_pages(&self, bad: &[(Arc<Space>, BadUnit)], forgotten: &[(Arc<Space>, usize)]) -> Result<Intact> {
        let wanted: HashMap<SpaceId, &Arc<Space>> =
            bad.iter().map(|(s, _)| (s.id, s)).chain(forgotten.iter().map(|(s, _)| (s.id, s))).collect();
        let mut intact = Intact::new();
        if wanted.is_empty() {
            return Ok(intact);
        }
        let geometry = self.geometry();
        let mut bytes = vec![0; geometry.page_bytes as usize];
        for segment in 0..self.ftl.with_segments(|s| s.len()) as Segment {
            if self.ftl.header_of(segment)?.is_some_and(|h| h.kind() != Some(SegmentKind::Data)) {
                continue;
            }
            for (page, record) in self.ftl.oob_of_segment(segment)?.into_iter().enumerate() {
                let Some(record) = record else { continue };
                let (id, spilled) = owner_space(&record.owner());
                let Some(space) = wanted.get(&id).filter(|_| !spilled) else { continue };
                let Some(at) = unpack(&record.owner().key, space.shape.block.len()) else { continue };
                let (unit, ppa) = (u32::from(record.owner().unit), geometry.ppa(segment, page as u32));
                self.ftl.media().read_at(geometry.page_offset(ppa), &mut bytes)?;
                if record.matches(&bytes) {
                    intact.entry((id, at, unit)).or_default().push((record.seq(), ppa));
                }
            }
        }
        Ok(intact)
    }

    fn rebuild_index(&self, space: &Space, intact: &Intact) -> Result<u64> {
        let mut blocks: BTreeMap<&BlockAt, Vec<(u32, u64, Ppa)>> = BTreeMap::new();
        for ((id, at, unit), copies) in intact {
            let newest = copies.iter().max_by_key(|c| c.0).filter(|_| *id == space.id);
            if let Some(&(seq, ppa)) = newest {
                blocks.entry(at).or_default().push((*unit, seq, ppa));
            }
        }
        let mut index = Index::new(space.shape.block.len());
        for (at, units) in blocks {
            // A coded block's units belong together: only those of its newest command.
            let last = units.iter().map(|u| u.1).max().unwrap_or(0);
            let runs: Vec<Run> = units
                .iter()
                .filter(|u| !space.coded() || u.1 == last)
                .map(|&(unit, _, ppa)| Run { unit, count: 1, ppa })
                .collect();
            index.set(at, BlockMap::from_runs(runs));
        }
        let count = index.blocks();
        space.peek_mut().index = IndexState::Loaded(index);
        Ok(count)
    }

    /// Counts live pages anew from the indexes.
    fn recount(&self) -> Result<()> {
        let mut runs = Vec::new();
        for space in self.spaces() {
            space.read()?.index().for_each(&mut |_, map| runs.extend(map.runs()));
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
