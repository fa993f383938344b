//! Snapshots: all spaces as they were between two commands, readable by name until the snapshot is deleted.
//!
//! A snapshot keeps a *version* of every space: its record, and a copy of its index, which shares the chunks of the
//! original (`stl/index.rs`). Versions of one space share pages, whose out-of-band records name the space. Sorted by
//! age, those that have a given page are neighbours: a page that a version has lost is never mapped again. So a page is
//! dead when neither the next older nor the next newer version has it, and each version knows the next older one
//! (`stl/space.rs`). Reclaim moves a page in all versions that have it (`reclaim`).
//!
//! The journal has a snapshot as a name: replaying it copies the indexes again. A checkpoint stores the index of each
//! version, once for neighbours that are alike (`log/checkpoint.rs`). Since earlier versions of the engine know
//! neither, the store has another format version as long as it has a snapshot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::wire::{IndexPlace, JournalOp, SnapshotEntry, SpaceEntry};
use super::{Catalog, Device};
use crate::codec::Framing;
use crate::error::{Error, Result};
use crate::flash::geometry::LOST_SEGMENT;
use crate::flash::{Geometry, Layout, Run};
use crate::ftl::superblock::{SNAPSHOT_FORMAT, Superblock};
use crate::stl::index::Index;
use crate::stl::plan::BlockAt;
use crate::stl::space::{IndexState, SPILLED, Space, SpaceId, unshared};
use crate::stl::write::{Gone, remap};

/// Longest name of a snapshot, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A snapshot, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Name of the snapshot.
    pub name: String,
    /// Time at which it was taken, as the caller told it.
    pub time: u64,
    /// Number of spaces that it keeps.
    pub spaces: u64,
    /// Bytes of the pages that only this snapshot has, which its deletion frees.
    pub bytes_held: u64,
}

/// A snapshot and its versions of spaces.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) time: u64,
    /// Sequence number of the command that took it.
    pub(super) seq: u64,
    /// The versions, by the names that the spaces had.
    pub(super) spaces: BTreeMap<String, Arc<Space>>,
}

/// The snapshots of a store, and all versions of spaces that they keep.
#[derive(Debug, Default)]
pub(super) struct KeptVersions {
    by_name: BTreeMap<String, Snapshot>,
    by_id: HashMap<SpaceId, Arc<Space>>,
    /// The versions of each space, by its number, the newest first.
    versions: BTreeMap<SpaceId, Vec<Arc<Space>>>,
    /// Number of versions that were given numbers since the store was opened.
    numbered: SpaceId,
}

impl KeptVersions {
    /// Whether there is no snapshot.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the number of snapshots.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the name of the snapshot that was taken by the command with this number.
    pub(super) fn name_of(&self, seq: u64) -> Option<&str> {
        self.by_name.iter().find(|(_, snapshot)| snapshot.seq == seq).map(|(name, _)| name.as_str())
    }

    /// Returns the version with this number.
    pub(super) fn by_id(&self, id: SpaceId) -> Result<Arc<Space>> {
        let found = self.by_id.get(&id).cloned();
        found.ok_or_else(|| Error::Closed("the snapshot of the array was deleted".to_owned()))
    }

    /// Returns the versions of a space that snapshots keep, the newest first.
    pub(super) fn of(&self, origin: SpaceId) -> &[Arc<Space>] {
        self.versions.get(&origin).map_or(&[], Vec::as_slice)
    }

    /// Returns all versions, those of a space next to each other.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.versions.values().flatten()
    }

    /// Returns the spaces that have versions in snapshots, and are deleted unless `by_id` has them.
    pub(super) fn origins(&self) -> impl Iterator<Item = SpaceId> {
        self.versions.keys().copied()
    }

    fn find(&self, name: &str) -> Result<&Snapshot> {
        self.by_name.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            Error::NoSnapshot { name: name.to_owned(), has: names.join(", ") }
        })
    }

    fn next_number(&mut self) -> Result<SpaceId> {
        let number = SPILLED.checked_add(self.numbered);
        self.numbered += 1;
        number.ok_or_else(|| Error::corrupt("no number is left for another version of an array"))
    }

    /// Returns the entries of the directory for all snapshots; `stored` has the place of the index of each version.
    pub(super) fn entries(&self, stored: &BTreeMap<SpaceId, IndexPlace>) -> Vec<SnapshotEntry> {
        let entry = |space: &Arc<Space>| SpaceEntry { record: space.peek().record.clone(), index: stored[&space.id] };
        let all = self.by_name.iter().map(|(name, snapshot)| SnapshotEntry {
            name: name.clone(),
            time: snapshot.time,
            seq: snapshot.seq,
            spaces: snapshot.spaces.values().map(entry).collect(),
        });
        all.collect()
    }
}

impl Catalog {
    /// Returns the space with this number, if it was not deleted, and the versions of it that snapshots keep, the
    /// newest first.
    pub(super) fn versions(&self, origin: SpaceId) -> Vec<Arc<Space>> {
        self.by_id.get(&origin).into_iter().chain(self.kept.of(origin)).cloned().collect()
    }

    /// Returns all spaces in the order of their names, then all versions that snapshots keep.
    pub(super) fn spaces_and_versions(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.by_name.values().map(|id| &self.by_id[id]).chain(self.kept.all())
    }

    /// Returns the same version as `space`, which is of another catalog of the same store.
    pub(super) fn same_version(&self, space: &Space) -> Option<&Arc<Space>> {
        match space.frozen {
            None => self.by_id.get(&space.id),
            Some(_) => self.kept.of(space.origin).iter().find(|version| version.frozen == space.frozen),
        }
    }

    /// Estimates the bytes of the indexes of all spaces that can be written.
    pub(super) fn bytes_of_indexes(&self) -> u64 {
        self.by_name.values().map(|id| self.by_id[id].peek().index.stored_bytes()).sum()
    }

    /// Estimates the bytes of the indexes of those spaces that can be written and of which snapshots have versions.
    pub(super) fn bytes_of_versioned(&self) -> u64 {
        let live = self.kept.versions.keys().filter_map(|origin| self.by_id.get(origin));
        live.map(|space| space.peek().index.stored_bytes()).sum()
    }

    /// Adds a snapshot of all spaces as they are. The caller makes the links.
    pub(super) fn freeze(
        &mut self,
        name: &str,
        time: u64,
        seq: u64,
        (geometry, framing): (Geometry, Framing),
    ) -> Result<Links> {
        if self.kept.by_name.contains_key(name) {
            return Err(Error::SnapshotExists { name: name.to_owned() });
        }
        let mut spaces = BTreeMap::new();
        for (name, id) in &self.by_name {
            let number = self.kept.next_number()?;
            let inner = self.by_id[id].peek();
            let (record, index) = (inner.record.clone(), inner.index.clone());
            let version = Space::of_snapshot(record, index, geometry.page_bytes, framing, (number, seq))?;
            spaces.insert(name.clone(), version);
        }
        self.keep(name, Snapshot { time, seq, spaces })
    }

    /// Adds a snapshot, the newest one. The caller makes the links.
    fn keep(&mut self, name: &str, snapshot: Snapshot) -> Result<Links> {
        let mut links = Links::default();
        for version in snapshot.spaces.values() {
            let versions = self.kept.versions.entry(version.origin).or_default();
            if versions.first().is_some_and(|newest| newest.frozen >= version.frozen) {
                return Err(Error::corrupt(format!("snapshot {name:?} has space {} twice", version.origin)));
            }
            version.peek_mut().older = versions.first().cloned();
            versions.insert(0, version.clone());
            if let Some(live) = self.by_id.get(&version.origin) {
                links.0.push((live.clone(), version.clone()));
            }
            self.kept.by_id.insert(version.id, version.clone());
        }
        self.kept.by_name.insert(name.to_owned(), snapshot);
        Ok(links)
    }

    /// Adds the snapshots of a directory; `index` gives the index at a place.
    pub(super) fn restore_snapshots(
        &mut self,
        mut entries: Vec<SnapshotEntry>,
        superblock: &Superblock,
        index: &dyn Fn(&SpaceEntry) -> IndexState,
    ) -> Result<()> {
        let (page_bytes, framing) = (superblock.geometry.page_bytes, Framing::of_format(superblock.version));
        entries.sort_by_key(|entry| entry.seq);
        for SnapshotEntry { name, time, seq, spaces } in entries {
            let bad = |what: String| Error::corrupt(format!("the directory's entry for snapshot {name:?}: {what}"));
            check_snapshot_name(&name).map_err(|e| bad(e.to_string()))?;
            let mut versions = BTreeMap::new();
            for entry in spaces {
                self.next = self.next.max(entry.record.id.saturating_add(1));
                let number = self.kept.next_number()?;
                let (array, index) = (entry.record.name.clone(), index(&entry));
                let alike = |other: &Arc<Space>| {
                    let (one, other) = (&entry.record, &other.peek().record);
                    (&one.block, one.item_bytes, &one.compression, &one.encryption)
                        == (&other.block, other.item_bytes, &other.compression, &other.encryption)
                };
                if !self.versions(entry.record.id).iter().all(alike) {
                    return Err(bad(format!("array {array:?} has other blocks than other versions of it")));
                }
                let version = Space::of_snapshot(entry.record.clone(), index, page_bytes, framing, (number, seq))
                    .map_err(|e| bad(format!("array {array:?}: {e}")))?;
                if versions.insert(array, version).is_some() {
                    return Err(bad("it has a name twice".to_owned()));
                }
            }
            if self.kept.by_name.contains_key(&name) {
                return Err(bad("it is there twice".to_owned()));
            }
            self.keep(&name, Snapshot { time, seq, spaces: versions })?.make();
        }
        Ok(())
    }

    /// Returns the versions of a snapshot, each with the next newer one of its space.
    pub(super) fn ending(&self, name: &str) -> Result<Ending> {
        let versions = self.kept.find(name)?.spaces.values();
        Ok(Ending(versions.map(|version| (version.clone(), self.newer(version).cloned())).collect()))
    }

    /// Removes a snapshot, whose versions have ended ([`Ending::end`]).
    pub(super) fn forget_snapshot(&mut self, name: &str) {
        let Some(snapshot) = self.kept.by_name.remove(name) else { return };
        for version in snapshot.spaces.into_values() {
            self.kept.by_id.remove(&version.id);
            if let Some(versions) = self.kept.versions.get_mut(&version.origin) {
                versions.retain(|other| other.id != version.id);
                if versions.is_empty() {
                    self.kept.versions.remove(&version.origin);
                }
            }
        }
    }

    /// Returns the next newer version of a space than one that a snapshot keeps; `None` if the space was deleted since.
    fn newer(&self, version: &Space) -> Option<&Arc<Space>> {
        let versions = self.kept.of(version.origin);
        match versions.iter().position(|other| other.id == version.id) {
            Some(0) | None => self.by_id.get(&version.origin),
            Some(at) => Some(&versions[at - 1]),
        }
    }

    /// Makes units unreadable, after indexes were rebuilt, that have a page which a version has that is no neighbour:
    /// such a page would be taken for dead too early. Returns version, block and unit of each.
    pub(super) fn separate_versions(&self, geometry: &Geometry) -> Result<Vec<(Arc<Space>, BlockAt, u32)>> {
        let mut lost = Vec::new();
        for origin in self.kept.origins() {
            // Pages of versions that are newer than the last one that was looked at.
            let mut before: HashSet<u64> = HashSet::new();
            let mut last: HashSet<u64> = HashSet::new();
            for space in self.versions(origin) {
                let (mut now, mut apart) = (HashSet::new(), Vec::new());
                let mut inner = space.write()?;
                inner.index().for_each(&mut |at, map| {
                    for run in map.runs().filter(|run| geometry.segment_of(run.ppa) != LOST_SEGMENT) {
                        for unit in run.unit..run.end() {
                            let ppa = run.page_of(unit).0;
                            if before.contains(&ppa) && !last.contains(&ppa) {
                                apart.push((BlockAt::from_slice(at), unit));
                            } else {
                                now.insert(ppa);
                            }
                        }
                    }
                });
                for (at, unit) in apart {
                    remap(&mut inner, &at, &Gone::Units(vec![unit..unit + 1]), &[nowhere(geometry, unit)]);
                    lost.push((space.clone(), at, unit));
                }
                before.extend(last);
                last = now;
            }
        }
        Ok(lost)
    }
}

/// Spaces, each with the version of it that a new snapshot keeps. The links to these are made without the catalog's
/// lock: the lock of a space may be held for as long as a program reads it in place.
#[must_use = "a space that does not know its next older version frees pages that this one has"]
#[derive(Debug, Default)]
pub(super) struct Links(Vec<(Arc<Space>, Arc<Space>)>);

impl Links {
    /// Makes each version the next older one of its space. The caller holds the epoch exclusively.
    pub(super) fn make(self) {
        for (space, version) in self.0 {
            space.peek_mut().older = Some(version);
        }
    }
}

/// The versions of a snapshot that is being deleted, each with the next newer version of its space.
#[derive(Debug)]
pub(super) struct Ending(Vec<(Arc<Space>, Option<Arc<Space>>)>);

impl Ending {
    /// Marks the versions as deleted; returns the pages that only they had. Changes nothing if an index cannot be read.
    /// The caller holds the epoch exclusively, and not the catalog's lock (see [`Links`]).
    pub(super) fn end(self) -> Result<Vec<Run>> {
        for (version, newer) in &self.0 {
            // The locks of the newer version and of this one load the indexes that are compared.
            if let Some(newer) = newer {
                drop(newer.write()?);
            }
            drop(version.write()?);
        }
        let mut dead = Vec::new();
        for (version, newer) in self.0 {
            dead.extend(held_by(&version, newer.as_deref())?);
            // One lock at a time: others lock versions from the newest to the oldest.
            let older = version.peek().older.clone();
            if let Some(newer) = newer {
                newer.peek_mut().older = older;
            }
            let mut inner = version.peek_mut();
            inner.older = None;
            inner.deleted = true;
            inner.index = IndexState::Loaded(Index::new(version.shape.block.len()));
        }
        Ok(dead)
    }
}

/// Returns the pages that only this version of a space has; `newer` is the next newer one.
fn held_by(version: &Space, newer: Option<&Space>) -> Result<Vec<Run>> {
    // Locked from the newest to the oldest, as everywhere.
    let newer = newer.map(Space::read).transpose()?;
    let inner = version.read()?;
    let older = inner.older.as_ref().map(|older| older.read()).transpose()?;
    let mut own = Vec::new();
    inner.index().for_each(&mut |at, map| {
        let not_older = unshared(map.runs(), older.as_ref().and_then(|older| older.index().get(at)));
        own.extend(unshared(not_older.into_iter(), newer.as_ref().and_then(|newer| newer.index().get(at))));
    });
    Ok(own)
}

/// Returns the page, which no store has, of a unit whose content was lost.
pub(super) fn nowhere(geometry: &Geometry, unit: u32) -> Run {
    Run { unit, count: 1, ppa: geometry.ppa(LOST_SEGMENT, unit % geometry.pages_per_segment()) }
}

/// Checks the name of a snapshot, which is a tag's in stores of parts.
///
/// # Errors
/// [`Error::Invalid`]
pub(super) fn check_snapshot_name(name: &str) -> Result<()> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = name.bytes().next().is_some_and(letter);
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(|b| letter(b) || b == b'.' || b == b'-') {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the name of a snapshot must begin with a letter, digit or '_' and have letters, digits, '.', '_' and '-' of \
         ASCII, {NAME_BYTES_MAX} at most, not {name:?}"
    )))
}

impl Device {
    pub(super) fn take_snapshot(&self, name: &str, time: u64) -> Result<()> {
        self.ready()?;
        check_snapshot_name(name)?;
        if self.geometry().layout != Layout::NEWEST {
            return Err(Error::invalid(
                "snapshots need a store of format version 3 or later, and this one is older: copy its arrays to a new \
                 store",
            ));
        }
        let _pages = self.reserve_metadata(name.len())?;
        self.commit_with_room(false)?;
        {
            let _commit = self.commit.lock();
            let _epoch = self.epoch.write();
            self.still_open()?;
            self.whole()?;
            if self.catalog.read().kept.by_name.contains_key(name) {
                return Err(Error::SnapshotExists { name: name.to_owned() });
            }
            // Units that commands left in the write buffer since then become pages, which versions can share.
            self.drain()?;
            let mut log = self.log.lock();
            if log.superblock().version < SNAPSHOT_FORMAT {
                self.write_record(&mut log, false)?;
                self.checkpoint_for_snapshots(&mut log)?;
            }
            let seq = self.next_seq();
            let framing = Framing::of_format(log.superblock().version);
            let links = self.catalog.write().freeze(name, time, seq, (self.geometry(), framing))?;
            links.make();
            log.expect_spread(self.catalog.read().bytes_of_indexes());
            log.queue([JournalOp::Snapshot { name: name.to_owned(), time, seq }]);
        }
        self.after_write();
        Ok(())
    }

    pub(super) fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.sound()?;
        {
            let _epoch = self.epoch.write();
            self.still_open()?;
            let mut log = self.log.lock();
            let ending = self.catalog.read().ending(name)?;
            let dead = ending.end()?;
            self.catalog.write().forget_snapshot(name);
            log.queue([JournalOp::DeleteSnapshot(name.to_owned())]);
            self.ftl.release(dead.into_iter());
        }
        self.after_write();
        Ok(())
    }

    pub(super) fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let page = u64::from(self.geometry().page_bytes);
        let mut found = Vec::new();
        {
            // Spaces are not locked under the catalog's lock.
            let catalog = self.catalog.read();
            for (name, snapshot) in &catalog.kept.by_name {
                let versions: Vec<_> =
                    snapshot.spaces.values().map(|space| (space.clone(), catalog.newer(space).cloned())).collect();
                found.push((snapshot.seq, name.clone(), snapshot.time, versions));
            }
        }
        found.sort_by_key(|(seq, ..)| *seq);
        let mut all = Vec::with_capacity(found.len());
        for (_, name, time, versions) in found {
            let mut pages = 0;
            for (space, newer) in &versions {
                let held = match held_by(space, newer.as_deref()) {
                    Err(Error::Closed(_)) => vec![], // deleted meanwhile
                    held => held?,
                };
                pages += held.iter().map(|run| u64::from(run.count)).sum::<u64>();
            }
            all.push(SnapshotInfo { name, time, spaces: versions.len() as u64, bytes_held: pages * page });
        }
        Ok(all)
    }

    pub(super) fn find_at(&self, snapshot: &str, name: &str) -> Result<Arc<Space>> {
        let catalog = self.catalog.read();
        let found = catalog.kept.find(snapshot)?.spaces.get(name).cloned();
        found.ok_or_else(|| Error::NotFound { name: name.to_owned() })
    }

    pub(super) fn open_at(&self, snapshot: &str, name: &str, key: Option<&[u8]>) -> Result<Arc<Space>> {
        let space = self.find_at(snapshot, name)?;
        space.unlock(key)?;
        Ok(space)
    }

    /// Returns a space by its name as a snapshot keeps it, without unlocking it.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`] if there is no such snapshot, [`Error::NotFound`] if it has no such space.
    pub fn describe_at(&self, snapshot: &str, name: &str) -> Result<Arc<Space>> {
        let _inside = self.enter()?;
        self.find_at(snapshot, name)
    }

    /// Returns the number of the command that took a snapshot, and its time: another snapshot that gets the same name
    /// later has others.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`] if there is no such snapshot.
    pub fn snapshot_taken(&self, name: &str) -> Result<(u64, u64)> {
        let _inside = self.enter()?;
        let catalog = self.catalog.read();
        let snapshot = catalog.kept.find(name)?;
        Ok((snapshot.seq, snapshot.time))
    }

    pub(super) fn list_at(&self, snapshot: &str, prefix: &str) -> Result<Vec<String>> {
        let catalog = self.catalog.read();
        let from = catalog.kept.find(snapshot)?.spaces.range(prefix.to_owned()..);
        Ok(from.take_while(|(name, _)| name.starts_with(prefix)).map(|(name, _)| name.clone()).collect())
    }
}
