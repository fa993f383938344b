//! The catalog of spaces: create, open, delete, attributes, listing, statistics.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::names::check_name;
use super::wire::JournalOp;
use super::{Device, NewSpace};
use crate::codec::{CipherKey, Framing, KeyCheck};
use crate::error::{Error, Result};
use crate::flash::Run;
use crate::stl::block_size;
use crate::stl::index::Index;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Encryption, IndexState, Inner, SPILLED, Space, SpaceId, SpaceRecord, check_item_bytes};

impl Device {
    pub(super) fn create(&self, new: &NewSpace<'_>) -> Result<Arc<Space>> {
        self.ready()?;
        check_name(new.name)?;
        let item_bytes = new.item_bytes;
        // Checked before anything of that size is allocated.
        check_item_bytes(item_bytes)?;
        let scalar = new.shape.is_empty();
        let shape: &[u64] = if scalar { &[1] } else { new.shape };
        let block = match new.block.filter(|_| !scalar) {
            Some(block) => {
                block_size::check_override(&self.geometry(), shape, u64::from(item_bytes), block)?;
                block.to_vec()
            }
            None => block_size::building_block(&self.geometry(), shape, u64::from(item_bytes)),
        };
        let encryption = new.key.map(|key| self.encryption(key)).transpose()?;
        let _pages = self.reserve_metadata(new.attrs.len())?;
        let _epoch = self.epoch.read();
        self.still_open()?;
        // The log is locked before the catalog, and both are held until the change is queued: otherwise a change to
        // this space could be logged ahead of its creation.
        let mut log = self.log.lock();
        let mut catalog = self.catalog.write();
        if catalog.by_name.contains_key(new.name) {
            return Err(Error::Exists { name: new.name.to_owned(), group: false });
        }
        catalog.check_place(new.name, &HashMap::new())?;
        if catalog.next >= SPILLED {
            return Err(Error::corrupt("no number is left for another array"));
        }
        assert!(!catalog.by_id.contains_key(&catalog.next), "number {} is given twice", catalog.next);
        let record = SpaceRecord {
            id: catalog.next,
            name: new.name.to_owned(),
            shape: shape.to_vec(),
            scalar,
            item_bytes,
            dtype: new.dtype.to_owned(),
            block,
            compression: new.compression.map(str::to_owned),
            encryption,
            fill: new.fill.map_or_else(|| vec![0; item_bytes as usize], <[u8]>::to_vec),
            attrs: new.attrs.to_owned(),
        };
        let index = IndexState::Loaded(Index::new(record.shape.len().max(1)));
        let framing = Framing::of_format(log.superblock().version);
        let space = Space::new(record.clone(), index, self.geometry().page_bytes, framing)?;
        space.unlock(new.key)?;
        catalog.next += 1;
        catalog.by_name.insert(new.name.to_owned(), record.id);
        catalog.by_id.insert(record.id, space.clone());
        catalog.check();
        log.queue([JournalOp::Create(record)]);
        drop((catalog, log, _epoch));
        self.after_write();
        Ok(space)
    }

    fn encryption(&self, key: &[u8]) -> Result<Encryption> {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&self.ftl.draw().to_le_bytes());
        salt[8..].copy_from_slice(&self.ftl.draw().to_le_bytes());
        let cipher = CipherKey::new(key, salt).map_err(|e| Error::invalid(e.to_string()))?;
        Ok(Encryption { salt, check: KeyCheck::new(&cipher).to_bytes().to_vec() })
    }

    /// Reserves room for new attributes, which are written once to the journal and twice to a checkpoint.
    pub(super) fn reserve_metadata(&self, attrs_bytes: usize) -> Result<crate::ftl::Reservation<'_>> {
        self.hold_journal(attrs_bytes as u64)?;
        self.reserve(3 * attrs_bytes as u64 / u64::from(self.geometry().page_bytes) + 1)
    }

    pub(super) fn find(&self, name: &str) -> Result<Arc<Space>> {
        let catalog = self.catalog.read();
        match catalog.by_name.get(name) {
            Some(id) => Ok(catalog.by_id[id].clone()),
            None => Err(Error::NotFound { name: name.to_owned() }),
        }
    }

    pub(super) fn open_space(&self, name: &str, key: Option<&[u8]>) -> Result<Arc<Space>> {
        let space = self.find(name)?;
        space.unlock(key)?;
        Ok(space)
    }

    /// Returns a space by its name without unlocking it: its shape, type and attributes can be read, not its elements.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn describe(&self, name: &str) -> Result<Arc<Space>> {
        let _inside = self.enter()?;
        self.find(name)
    }

    /// Returns a space by its number without unlocking it.
    ///
    /// # Errors
    /// [`Error::Closed`] if it was deleted.
    pub fn by_id(&self, id: SpaceId) -> Result<Arc<Space>> {
        let _inside = self.enter()?;
        self.space_to_read(id)
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        self.sound()?;
        let space = self.find(name)?;
        let _runs = self.hold_runs(&space)?;
        let _range = self.hold(&space, vec![])?;
        {
            let _epoch = self.epoch.read();
            self.still_open()?;
            let mut inner = space.write()?;
            let mut log = self.log.lock();
            let mut catalog = self.catalog.write();
            if catalog.by_name.get(name) != Some(&space.id) {
                return Err(Error::NotFound { name: name.to_owned() });
            }
            catalog.by_name.remove(name);
            catalog.by_id.remove(&space.id);
            catalog.check();
            log.queue([JournalOp::Delete(space.id)]);
            drop((catalog, log));
            let dead = self.empty_space(&space, &mut inner);
            self.ftl.release(dead.into_iter());
        }
        self.after_write();
        Ok(())
    }

    /// Empties a space that is being deleted and marks it as deleted; returns the pages that were mapped and that no
    /// snapshot has.
    pub(super) fn empty_space(&self, space: &Space, inner: &mut Inner) -> Vec<Run> {
        let dead = inner.all_unshared();
        inner.older = None;
        for at in inner.write_buffer.keys() {
            self.account_buffered(space.buffered(inner, at), (0, 0));
        }
        inner.write_buffer.clear();
        *inner.index_mut() = Index::new(space.shape.block.len());
        assert!(!inner.deleted, "space {} is deleted once", space.id);
        inner.deleted = true;
        dead
    }

    pub(super) fn set_attrs(&self, id: SpaceId, attrs: &str) -> Result<()> {
        self.ready()?;
        let space = self.space(id)?;
        let _pages = self.reserve_metadata(attrs.len())?;
        {
            let _epoch = self.epoch.read();
            self.still_open()?;
            let mut inner = space.peek_mut();
            if inner.deleted {
                return Err(Error::Closed(format!("array {:?} was deleted", inner.record.name)));
            }
            attrs.clone_into(&mut inner.record.attrs);
            self.log.lock().queue([JournalOp::Attrs(id, attrs.to_owned())]);
        }
        self.after_write();
        Ok(())
    }

    pub(super) fn list(&self, prefix: &str) -> Vec<String> {
        let catalog = self.catalog.read();
        let from = catalog.by_name.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix)).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn stat(&self) -> Vec<(&'static str, u64)> {
        self.ftl.learn_wear();
        let usage = self.ftl.usage();
        let geometry = self.geometry();
        let page = u64::from(geometry.page_bytes);
        let (arrays, snapshots) = {
            let catalog = self.catalog.read();
            (catalog.by_name.len() as u64, catalog.kept.len() as u64)
        };
        let mut numbers = vec![
            ("arrays", arrays),
            ("snapshots", snapshots),
            ("file_bytes", self.ftl.media().len()),
            ("capacity_bytes", self.capacity_bytes),
            ("page_bytes", page),
            ("segment_bytes", geometry.segment_bytes()),
            ("segments", usage.segments),
            ("segments_free", usage.free),
            ("segments_waiting", usage.pending_free),
            ("segments_metadata", usage.chain),
            ("segments_bad", usage.bad),
            ("pages_live", usage.live_pages),
            ("pages_garbage", usage.garbage_pages),
            ("bytes_live", usage.live_pages * page),
            ("erases_min", usage.erases.0),
            ("erases_max", usage.erases.1),
            ("erases_total", usage.erases.2),
            ("bytes_gathered", self.buffered_bytes.load(Ordering::Relaxed) as u64),
        ];
        numbers.extend(self.counters.list());
        numbers
    }

    pub(super) fn list_blocks(&self, id: SpaceId) -> Result<Vec<u64>> {
        let space = self.space_to_read(id)?;
        let inner = space.read()?;
        let mut found: BTreeSet<BlockAt> = inner.write_buffer.keys().cloned().collect();
        inner.index().for_each(&mut |at, _| {
            found.insert(BlockAt::from_slice(at));
        });
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) fn stat_space(&self, id: SpaceId) -> Result<Vec<(&'static str, u64)>> {
        let space = self.space_to_read(id)?;
        let inner = space.read()?;
        let mut pages = 0;
        let mut runs = 0;
        inner.index().for_each(&mut |_, map| {
            pages += map.pages();
            runs += map.runs().count() as u64;
        });
        Ok(vec![
            ("blocks_allocated", inner.index().blocks()),
            ("pages_live", pages),
            ("runs", runs),
            ("bytes_stored", pages * space.shape.page as u64),
            ("bytes_gathered", inner.write_buffer.values().map(|g| g.bytes() as u64).sum()),
            ("block_bytes", space.shape.bytes as u64),
        ])
    }
}
