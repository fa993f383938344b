//! The check of a store: metadata, indexes, pages and out-of-band records are compared with each other.
//!
//! Verified: both superblocks; the directory; every index; of every mapped page its place, that only one access unit
//! maps it, its checksum, its out-of-band record and that record's CRC, and that the record names the owner that maps
//! it; the number of live pages of every segment; that coded (compressed or encrypted) blocks decode, unless their
//! space is encrypted and locked. Not verified: pages that no index maps; the content of plain blocks beyond its
//! checksum.
//!
//! `repair` mends what a check finds.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::recover::directory_copies;
use super::salvage::{Rebuilt, RebuiltIndex};
use super::{Device, Dropped};
use crate::error::{Error, Result};
use crate::flash::geometry::LOST_SEGMENT;
use crate::flash::{Owner, Ppa, Run, Segment};
use crate::ftl::LOST;
use crate::ftl::superblock::{is_blank, read_slots};
use crate::stl::plan::BlockAt;
use crate::stl::read::Reader;
use crate::stl::space::{Space, SpaceId};

/// Number of times that a reader reads the superblocks, as a writer in another process may be writing one.
const READS_OF_SUPERBLOCKS: usize = 3;

/// One fault that a check found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Name of the array with the fault; `None` if the fault concerns the whole store.
    pub array: Option<String>,
    /// The fault, with its numbers.
    pub message: String,
    /// Description of the repair; `None` if the fault was not repaired.
    pub repaired: Option<String>,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// All faults that the check found.
    pub findings: Vec<Finding>,
    /// Journal records that were ignored when the store was opened; `None` if all were applied.
    pub dropped: Option<Dropped>,
    /// Damage that opening the store for writing found and repaired.
    pub mended: Vec<String>,
    /// Number of arrays that the check has read.
    pub arrays: u64,
    /// Number of building blocks that the check has read.
    pub blocks: u64,
    /// Number of pages that were compared with their checksum and owner.
    pub pages: u64,
}

/// A mapped page that failed a check.
pub(super) struct BadUnit {
    /// Index of the page's finding in [`CheckReport::findings`].
    pub(super) finding: usize,
    pub(super) at: BlockAt,
    pub(super) unit: u32,
    pub(super) page: Ppa,
}

/// A mapped page that a check has seen.
struct SeenPage {
    /// Number of the space that owns the page, as out-of-band records have it.
    space: SpaceId,
    unit: u32,
    /// Description of the page's fault; `None` if there is none.
    wrong: Option<String>,
}

impl CheckReport {
    /// Whether every fault that was found was repaired, and opening the store lost no flushed data.
    pub fn ok(&self) -> bool {
        !self.has_lost() && self.findings.iter().all(|f| f.repaired.is_some())
    }

    /// Whether the store was salvaged when it was opened, so that flushed data may be missing.
    pub fn has_lost(&self) -> bool {
        self.dropped.as_ref().is_some_and(|d| d.durable)
    }

    /// Adds a finding for each index that was rebuilt when the store was opened.
    fn add_rebuilt(&mut self, rebuilt: &Rebuilt) {
        for RebuiltIndex { array, why, blocks, unplaced } in &rebuilt.indexes {
            let done = format!(
                "opening rebuilt the index from out-of-band records: {blocks} building blocks; what was overwritten by \
                 the fill value may have come back"
            );
            self.add(Some(array), why.clone()).repaired = Some(done);
            if *unplaced > 0 {
                self.add(Some(array), format!("{unplaced} pages are lost: no record tells their building block"));
            }
            if rebuilt.unreadable > 0 {
                let what = format!(
                    "{} out-of-band records cannot be read; units whose newest page they tell of have older content \
                     now, or none",
                    rebuilt.unreadable
                );
                self.add(Some(array), what);
            }
        }
    }

    pub(super) fn add(&mut self, array: Option<&str>, message: String) -> &mut Finding {
        self.findings.push(Finding { array: array.map(str::to_owned), message, repaired: None });
        self.findings.last_mut().expect("just pushed")
    }
}

impl Device {
    pub(super) fn check(&self, repair: bool, accept_older: bool) -> Result<CheckReport> {
        if accept_older && !repair {
            return Err(Error::invalid("older content is accepted by a repair only"));
        }
        let mut report =
            CheckReport { dropped: self.dropped().cloned(), mended: self.opening.mended(), ..CheckReport::default() };
        if !self.read_only() {
            match self.commit_with_room(false) {
                // Changes that the disk has no room for are in memory only; these are not checked.
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        // Writers wait: the pages that one array maps are compared with those of all others.
        let rest = self.epoch.write();
        self.check_superblocks(&mut report);
        for (copy, intact) in directory_copies(self).into_iter().enumerate() {
            if !intact {
                report.add(None, format!("copy {copy} of the checkpoint's directory is damaged"));
            }
        }
        if let Some(why) = self.opening.passed_over.as_ref().filter(|_| self.read_only()) {
            report.add(None, format!("the newest checkpoint cannot be used, the one before it was: {why}"));
        }
        report.add_rebuilt(&self.opening.rebuilt);
        let mut bad: Vec<(Arc<Space>, BadUnit)> = Vec::new();
        let mut unreadable: Vec<(Arc<Space>, usize)> = Vec::new();
        let mut seen: HashMap<u64, SeenPage> = HashMap::new();
        let mut live: HashMap<Segment, u32> = HashMap::new();
        let all: Vec<Arc<Space>> = self.catalog.read().spaces_and_versions().cloned().collect();
        for space in all {
            report.arrays += u64::from(space.frozen.is_none());
            match self.check_space(&space, &mut report, &mut seen, &mut live) {
                Ok(units) => bad.extend(units.into_iter().map(|u| (space.clone(), u))),
                Err(e) => {
                    let name = space.peek().record.name.clone();
                    report.add(Some(&name), format!("{}{e}", self.in_snapshot(&space)));
                    unreadable.push((space, report.findings.len() - 1));
                }
            }
        }
        if unreadable.is_empty() {
            self.check_segments(&live, &mut report);
        }
        drop(rest);
        if repair && !report.findings.is_empty() {
            self.repair(&mut report, bad, unreadable, accept_older)?;
        }
        Ok(report)
    }

    fn check_superblocks(&self, report: &mut CheckReport) {
        let media = self.ftl.media().as_ref();
        let mut slots = read_slots(media, "the store");
        for _ in 0..READS_OF_SUPERBLOCKS {
            // A writer in another process may be writing one at this moment.
            if !self.read_only() || slots.as_ref().is_ok_and(|s| s.len() == 2) {
                break;
            }
            slots = read_slots(media, "the store");
        }
        match slots.as_deref() {
            Ok([_, _]) => {}
            // A crash interrupted the creation of the store; nothing was lost.
            Ok([(slot, _)]) if self.opening.unfinished && is_blank(media, 1 - slot).unwrap_or(false) => {}
            Ok(_) => {
                report.add(None, "one of the two superblocks is damaged".to_owned());
            }
            Err(e) => {
                report.add(None, e.to_string());
            }
        }
    }

    /// Returns the beginning of a finding about a version of a space, which names its snapshot; nothing for a space
    /// that can be written.
    fn in_snapshot(&self, space: &Space) -> String {
        let snapshot = space.frozen.and_then(|seq| self.catalog.read().kept.name_of(seq).map(str::to_owned));
        snapshot.map_or_else(String::new, |name| format!("in snapshot {name:?}: "))
    }

    /// Checks a space, or a version of one that a snapshot keeps. Pages that a version has which was checked before are
    /// not read again; their faults are reported for each version.
    fn check_space(
        &self,
        space: &Space,
        report: &mut CheckReport,
        seen: &mut HashMap<u64, SeenPage>,
        live: &mut HashMap<Segment, u32>,
    ) -> Result<Vec<BadUnit>> {
        let place = self.in_snapshot(space);
        let inner = space.read()?;
        let name = inner.record.name.clone();
        let reader = Reader { ftl: &self.ftl, space, inner: &inner, watched: true };
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
            let pages_before = report.pages;
            for run in map.runs() {
                for unit in run.unit..run.end() {
                    let ppa = run.page_of(unit);
                    let known = seen.get(&ppa.0).filter(|page| (page.space, page.unit) == (space.origin, unit));
                    let known = known.filter(|_| self.is_owned(ppa, space, at, unit));
                    report.pages += u64::from(known.is_none());
                    let wrong = if let Some(page) = known {
                        Ok(page.wrong.clone())
                    } else if self.geometry().segment_of(ppa) == LOST_SEGMENT {
                        Ok(Some(LOST.to_owned()))
                    } else if !self.geometry().has_run(Run { unit, count: 1, ppa }, segments) {
                        Ok(Some("it is mapped beyond the end of the store".to_owned()))
                    } else {
                        *live.entry(self.geometry().segment_of(ppa)).or_default() += 1;
                        let wrong = match seen.get(&ppa.0) {
                            Some(page) => Ok(Some(format!("its page is mapped by space {}, too", page.space))),
                            None => self.inspect(ppa, Owner { unit: unit as u16, ..space.owner(at) }),
                        };
                        let told = wrong.as_ref().ok().cloned().flatten();
                        seen.insert(ppa.0, SeenPage { space: space.origin, unit, wrong: told });
                        wrong
                    };
                    match wrong {
                        Ok(None) => {}
                        Ok(Some(what)) => {
                            let block = crate::error::Shape(at);
                            report.add(
                                Some(&name),
                                format!("{place}building block {block}, access unit {unit}, page {}: {what}", ppa.0),
                            );
                            let finding = report.findings.len() - 1;
                            bad.push(BadUnit { finding, at: at.into(), unit, page: ppa });
                        }
                        Err(e) => failed = Some(e),
                    }
                }
            }
            let is_new = report.pages > pages_before;
            if space.coded() && is_new && bad.len() == before && space.codec().is_ok() {
                let whole: Range<usize> = 0..space.shape.bytes;
                if let Err(e) = reader.decode(at, map, std::slice::from_ref(&whole), &mut scratch) {
                    report.add(Some(&name), format!("{place}{e}"));
                }
            }
        });
        failed.map_or(Ok(bad), Err)
    }

    /// Whether the page's out-of-band record names this unit, or is damaged; the page itself is not read.
    fn is_owned(&self, ppa: Ppa, space: &Space, at: &[u64], unit: u32) -> bool {
        let owner = Owner { unit: unit as u16, ..space.owner(at) };
        space.frozen.is_some() && self.ftl.oob(ppa).is_ok_and(|record| record.is_none_or(|r| r.owner() == owner))
    }

    /// Compares one page with its out-of-band record and its owner; returns a description of the fault, `None` if there
    /// is none.
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
}
