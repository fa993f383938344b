//! A space: its record, its index of building blocks, and its write buffer.
//!
//! Writes smaller than an access unit are buffered (NDS paper, section 4.4): for plain spaces whole units, for
//! compressed or encrypted ones whole decoded building blocks. Buffered content replaces the pages that the index maps;
//! it becomes pages when a unit is complete, or at a flush.
//!
//! One lock guards index and write buffer: readers hold it shared while they copy, a writer holds it only while it
//! applies its changes. Order of locks: range, then space, then log.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::block_size::{BLOCK_BYTES_MAX, DIMENSIONS_MAX, UNITS_MAX};
use super::index::{BlockMap, Index};
use super::plan::{BlockAt, block_strides};
use super::prefetch::AccessHistory;
pub use super::write::buffer::BufferedBlock;
use crate::codec::{BlockContext, CipherKey, Codec, CodecSpec, Compression, Framing, KeyCheck, Packing, SALT_BYTES};
use crate::error::{Error, Result, Shape};
use crate::flash::{Owner, Run};
use crate::ftl::{BadPage, FetchError};
use crate::sched::RangeLock;

/// Number of a space, which is never used for another one.
pub type SpaceId = u32;

/// Flag in an owner's space number: the block's coordinate was too long for the owner's key, which is a hash of it
/// instead. Numbers of spaces are smaller.
pub const SPILLED: u32 = 1 << 31;

/// Largest size of an element in bytes.
pub const ITEM_BYTES_MAX: u32 = 1 << 16;

/// Checks the size of an element.
///
/// # Errors
/// [`Error::Invalid`] for a size of 0 or more than [`ITEM_BYTES_MAX`].
pub fn check_item_bytes(bytes: u32) -> Result<()> {
    if (1..=ITEM_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(Error::invalid(format!("elements must have from 1 to {ITEM_BYTES_MAX} bytes, not {bytes}")))
}

/// Data by which the key of an encrypted space is recognised when the space is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// Salt of the key, drawn at random when the space was created.
    pub salt: [u8; SALT_BYTES],
    /// Stored form of the [`KeyCheck`] of the key with this salt.
    pub check: Vec<u8>,
}

/// The properties of a space: name, shape, element type, coding, attributes. Stored in the checkpoint's directory and
/// in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRecord {
    /// Number of the space.
    pub id: SpaceId,
    /// Name of the space.
    pub name: String,
    /// Number of elements along each dimension, slowest-varying first; `[1]` for a scalar.
    pub shape: Vec<u64>,
    /// Whether the space is a scalar: it was created without dimensions.
    pub scalar: bool,
    /// Size of an element in bytes.
    pub item_bytes: u32,
    /// Name of the element type, as the caller wrote it; not interpreted by the engine.
    pub dtype: String,
    /// Shape of a building block, in elements.
    pub block: Vec<u64>,
    /// Compression in the syntax of [`Compression`]; `None` if blocks are not compressed.
    pub compression: Option<String>,
    /// Data to check the key; `None` if blocks are not encrypted.
    pub encryption: Option<Encryption>,
    /// Value of elements that were never written, `item_bytes` long.
    pub fill: Vec<u8>,
    /// Attributes as the caller wrote them; not interpreted by the engine.
    pub attrs: String,
}

impl SpaceRecord {
    /// Returns the shape as it was requested: empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        if self.scalar { &[] } else { &self.shape }
    }

    /// Returns the shape of a building block, with as many dimensions as [`Self::shape()`].
    pub fn block(&self) -> &[u64] {
        if self.scalar { &[] } else { &self.block }
    }

    /// Checks a record that was made for a new space or read from a medium.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the numbers that are wrong.
    pub fn check(&self, page_bytes: u32) -> Result<()> {
        let fail = |what: String| Err(Error::Invalid(what));
        if self.shape.is_empty() || self.shape.len() > DIMENSIONS_MAX {
            return fail(format!("{} dimensions; an array has at most {DIMENSIONS_MAX}", self.shape.len()));
        }
        if self.scalar && self.shape != [1] {
            return fail(format!("a scalar of shape {}", Shape(&self.shape)));
        }
        check_item_bytes(self.item_bytes)?;
        if self.fill.len() != self.item_bytes as usize {
            return fail(format!("a fill value of {} bytes for elements of {}", self.fill.len(), self.item_bytes));
        }
        if self.block.len() != self.shape.len() || self.block.contains(&0) {
            return fail(format!("building block {} for shape {}", Shape(&self.block), Shape(&self.shape)));
        }
        let bytes = self.block.iter().try_fold(u64::from(self.item_bytes), |v, &b| v.checked_mul(b));
        // A coded block may be a little longer than its bytes: its head takes less than a page for each MiB.
        let max = BLOCK_BYTES_MAX.min((UNITS_MAX - UNITS_MAX / 64) * u64::from(page_bytes));
        if bytes.is_none_or(|b| b > max) {
            return fail(format!(
                "building block {} of {}-byte elements; the most is {max} bytes",
                Shape(&self.block),
                self.item_bytes
            ));
        }
        if self.id >= SPILLED {
            return fail(format!("space number {}", self.id));
        }
        Ok(())
    }
}

/// Sizes of a space's building blocks, which never change.
#[derive(Clone, Debug)]
pub struct BlockShape {
    /// Number of elements of a block along each dimension.
    pub block: SmallVec<[u64; 4]>,
    /// Byte strides within a block, one for each dimension.
    pub strides: SmallVec<[u64; 4]>,
    /// Size of an element in bytes.
    pub item_bytes: usize,
    /// Size of a block in bytes.
    pub bytes: usize,
    /// Number of access units of a plain block.
    pub units: u32,
    /// Size of an access unit in bytes.
    pub page: usize,
    /// Value of elements that were never written, `item_bytes` long.
    pub fill: Vec<u8>,
}

/// An index in its stored form, which is loaded when a command needs it.
pub trait StoredIndex: Send + Sync + std::fmt::Debug {
    /// Reads and decodes the index.
    fn load(&self) -> Result<Index>;
    /// Returns the stored bytes, to be copied into the next checkpoint.
    fn bytes(&self) -> Result<Vec<u8>>;
    /// Returns the number of building blocks in the index.
    fn blocks(&self) -> u64;
    /// Returns the number of stored bytes.
    fn stored_bytes(&self) -> u64;
    /// Whether loading waits for another machine, and the stored index stays as it is, so that no lock is needed.
    fn is_far(&self) -> bool {
        false
    }
}

/// A space's index, loaded or not.
#[derive(Clone, Debug)]
pub enum IndexState {
    /// In the checkpoint only: no command has used the space since the store was opened.
    Stored(Arc<dyn StoredIndex>),
    /// Loaded into memory.
    Loaded(Index),
}

/// Estimated bytes that a building block takes in a stored index.
const STORED_BLOCK_BYTES: u64 = 16;

impl IndexState {
    /// Estimates the bytes that the index takes in a checkpoint.
    pub fn stored_bytes(&self) -> u64 {
        match self {
            Self::Stored(stored) => stored.stored_bytes(),
            Self::Loaded(index) => index.blocks() * STORED_BLOCK_BYTES,
        }
    }
}

/// The changeable state of a space, guarded by its lock.
#[derive(Debug)]
pub struct Inner {
    /// The space's properties.
    pub record: SpaceRecord,
    /// The index of the space's building blocks.
    pub index: IndexState,
    /// Parts of blocks that wait in memory to become pages, by block.
    pub write_buffer: HashMap<BlockAt, BufferedBlock>,
    /// Whether the space was deleted, so that commands on it fail.
    pub deleted: bool,
    /// The next older version of the space, which a snapshot keeps; `None` if no snapshot has one. Versions share
    /// pages: a page that a space loses is dead only if this version has not the same.
    pub older: Option<Arc<Space>>,
}

impl Inner {
    /// Returns the index. Panics if it was not loaded; [`Space::read`] and [`Space::write`] load it.
    pub fn index(&self) -> &Index {
        match &self.index {
            IndexState::Loaded(index) => index,
            IndexState::Stored(_) => unreachable!("the index is loaded before the lock is handed out"),
        }
    }

    /// Returns the index for changing. Panics as [`Self::index()`] does.
    pub fn index_mut(&mut self) -> &mut Index {
        match &mut self.index {
            IndexState::Loaded(index) => index,
            IndexState::Stored(_) => unreachable!("the index is loaded before the lock is handed out"),
        }
    }

    /// Whether the next older version has pages in common with this block of this space. True also if that version's
    /// index cannot be read.
    pub fn is_shared(&self, at: &[u64], map: &BlockMap) -> bool {
        self.older.as_ref().is_some_and(|older| {
            older.read().map_or(true, |inner| {
                let theirs = inner.index().get(at);
                let pages = |runs: &[Run]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
                theirs.is_some_and(|theirs| pages(&unshared(map.runs(), Some(theirs))) < map.pages())
            })
        })
    }

    /// Returns all pages that the next older version does not have. Panics if its index was not loaded, as
    /// [`Space::write`] does.
    pub fn all_unshared(&self) -> Vec<Run> {
        let mut own = Vec::new();
        let older = self.older.as_ref().map(|older| older.peek());
        self.index().for_each(&mut |at, map| {
            own.extend(unshared(map.runs(), older.as_ref().and_then(|older| older.index().get(at))));
        });
        own
    }

    fn load(&mut self) -> Result<()> {
        if let IndexState::Stored(stored) = &self.index {
            self.index = IndexState::Loaded(stored.load()?);
        }
        Ok(())
    }
}

/// Returns the runs of a block without the units that another version of the block maps to the same page.
pub fn unshared(runs: impl Iterator<Item = Run>, theirs: Option<&BlockMap>) -> Vec<Run> {
    let Some(theirs) = theirs else { return runs.collect() };
    let mut own: Vec<Run> = Vec::new();
    for run in runs {
        for unit in run.unit..run.end() {
            let ppa = run.page_of(unit);
            if theirs.page_of(unit) == Some(ppa) {
                continue;
            }
            match own.last_mut() {
                Some(last) if last.end() == unit && last.ppa.0 + u64::from(last.count) == ppa.0 => last.count += 1,
                _ => own.push(Run { unit, count: 1, ppa }),
            }
        }
    }
    own
}

/// A space: a named N-dimensional array of a store, or the version of one that a snapshot keeps.
#[derive(Debug)]
pub struct Space {
    /// Number of the space, by which commands name it. That of a version in a snapshot is in no file: it is drawn when
    /// the store is opened or the snapshot is taken, and has the bit [`SPILLED`].
    pub id: SpaceId,
    /// Number of the space in out-of-band records, journal and payloads: versions of one space have the same.
    pub origin: SpaceId,
    /// Number of the command that took the snapshot; `None` for a space that can be written.
    pub frozen: Option<u64>,
    /// Sizes of the space's building blocks.
    pub shape: BlockShape,
    /// Range lock, by which commands on the same blocks wait for each other.
    pub ranges: RangeLock,
    /// Range lock of runs of programs that write here, taken before [`Self::ranges`]: runs wait for each other, and
    /// commands that delete or shrink the space wait for them.
    pub runs: RangeLock,
    /// The lock of the space's size: a run of programs that writes to the space by a view holds it against commands
    /// that make the space grow, which share it.
    pub growth: RangeLock,
    /// History of accesses, from which the next ones are predicted.
    pub access: AccessHistory,
    spec: Option<CodecSpec>,
    encryption: Option<Encryption>,
    codec: OnceLock<Codec>,
    inner: RwLock<Inner>,
}

impl Space {
    /// Creates a space from its record.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a record that [`SpaceRecord::check`] rejects, or an unknown compression.
    pub fn new(record: SpaceRecord, index: IndexState, page_bytes: u32, framing: Framing) -> Result<Arc<Self>> {
        let id = record.id;
        Self::version(record, index, page_bytes, framing, (id, None))
    }

    /// Creates a version of a space that a snapshot keeps, from its record, with the number `id` and that of the
    /// snapshot's command.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_snapshot(
        record: SpaceRecord,
        index: IndexState,
        page_bytes: u32,
        framing: Framing,
        (id, frozen): (SpaceId, u64),
    ) -> Result<Arc<Self>> {
        assert!(id >= SPILLED, "number {id} of a version in a snapshot");
        Self::version(record, index, page_bytes, framing, (id, Some(frozen)))
    }

    fn version(
        record: SpaceRecord,
        index: IndexState,
        page_bytes: u32,
        framing: Framing,
        (id, frozen): (SpaceId, Option<u64>),
    ) -> Result<Arc<Self>> {
        record.check(page_bytes)?;
        let item = u64::from(record.item_bytes);
        let bytes = record.block.iter().product::<u64>() * item;
        let shape = BlockShape {
            strides: block_strides(&record.block, item),
            block: SmallVec::from_slice(&record.block),
            item_bytes: item as usize,
            bytes: bytes as usize,
            units: bytes.div_ceil(u64::from(page_bytes)) as u32,
            page: page_bytes as usize,
            fill: record.fill.clone(),
        };
        assert!(shape.units > 0 && shape.bytes <= shape.units as usize * shape.page, "units of a block: {shape:?}");
        let compression = match &record.compression {
            Some(text) => Some(text.parse::<Compression>().map_err(|e| Error::invalid(e.to_string()))?),
            None => None,
        };
        let spec = CodecSpec {
            compression,
            encrypted: record.encryption.is_some(),
            element_bytes: record.item_bytes,
            block_bytes: bytes,
            framing,
        };
        spec.validate().map_err(|e| Error::invalid(e.to_string()))?;
        let space = Self {
            id,
            origin: record.id,
            frozen,
            shape,
            ranges: RangeLock::default(),
            runs: RangeLock::default(),
            growth: RangeLock::default(),
            access: AccessHistory::default(),
            spec: (!spec.is_identity()).then_some(spec),
            encryption: record.encryption.clone(),
            codec: OnceLock::new(),
            inner: RwLock::new(Inner { record, index, write_buffer: HashMap::new(), deleted: false, older: None }),
        };
        if let Some(spec) = space.spec.filter(|s| !s.encrypted) {
            let codec = Codec::new(spec, None).map_err(|e| Error::invalid(e.to_string()))?;
            space.codec.set(codec).expect("the cell is new");
        }
        Ok(Arc::new(space))
    }

    /// Returns the description of the blocks' codec; `None` if blocks are stored without coding.
    pub fn spec(&self) -> Option<&CodecSpec> {
        self.spec.as_ref()
    }

    /// Whether blocks are compressed or encrypted.
    pub fn coded(&self) -> bool {
        self.spec.is_some()
    }

    /// Whether blocks are encrypted.
    pub fn encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// Returns the way in which the space packs integers; `None` if it does not.
    pub fn packing(&self) -> Option<Packing> {
        self.spec().and_then(CodecSpec::packing)
    }

    /// Returns the codec of a coded space.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the space is encrypted and was not unlocked since the store was opened.
    pub fn codec(&self) -> Result<&Codec> {
        self.codec.get().ok_or_else(|| self.wrong_key("no key was given"))
    }

    fn wrong_key(&self, what: &str) -> Error {
        // A recursive lock, as the caller may hold the space for reading.
        Error::WrongKey { name: self.inner.read_recursive().record.name.clone(), what: what.to_owned() }
    }

    /// Unlocks an encrypted space with its key; a plain space must get `None`.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the key is missing or wrong, [`Error::Invalid`] for the key of a space that is not
    /// encrypted.
    pub fn unlock(&self, key: Option<&[u8]>) -> Result<()> {
        let (Some(encryption), Some(spec)) = (&self.encryption, self.spec) else {
            return match key {
                None => Ok(()),
                Some(_) => Err(Error::invalid(format!(
                    "array {:?} is not encrypted; no key is needed",
                    self.inner.read().record.name
                ))),
            };
        };
        let key = key.ok_or_else(|| self.wrong_key("no key was given"))?;
        let key = CipherKey::new(key, encryption.salt).map_err(|e| Error::invalid(e.to_string()))?;
        let check = <[u8; KeyCheck::BYTES]>::try_from(&encryption.check[..])
            .map_err(|_| Error::corrupt("a key check has a wrong length"))?;
        KeyCheck::from_bytes(check)
            .verify(&key)
            .map_err(|_| self.wrong_key("the key is not the one that it was made with"))?;
        if self.codec.get().is_none() {
            let codec = Codec::new(spec, Some(&key)).map_err(|e| Error::invalid(e.to_string()))?;
            // Two threads may unlock at once; both codecs are the same.
            let _ = self.codec.set(codec);
        }
        Ok(())
    }

    fn alive(inner: &Inner) -> Result<()> {
        if inner.deleted {
            return Err(Error::Closed(format!("array {:?} was deleted", inner.record.name)));
        }
        Ok(())
    }

    /// Returns the number of the newest command whose content the space may have.
    pub fn newest_seq(&self) -> u64 {
        self.frozen.unwrap_or(u64::MAX)
    }

    /// Locks the space for reading, and loads its index if necessary.
    ///
    /// # Errors
    /// [`Error::Closed`] if the space was deleted; the errors of loading the index.
    pub fn read(&self) -> Result<RwLockReadGuard<'_, Inner>> {
        let inner = self.inner.read();
        Self::alive(&inner)?;
        if matches!(inner.index, IndexState::Loaded(_)) {
            return Ok(inner);
        }
        let far = match &inner.index {
            IndexState::Stored(stored) if stored.is_far() => Some(stored.clone()),
            _ => None,
        };
        drop(inner);
        match far.map(|stored| stored.load()) {
            Some(loaded) => {
                let index = loaded?;
                let mut inner = self.inner.write();
                if matches!(inner.index, IndexState::Stored(_)) {
                    inner.index = IndexState::Loaded(index);
                }
            }
            None => {
                let mut inner = self.inner.write();
                Self::alive(&inner)?;
                inner.load()?;
            }
        }
        let inner = self.inner.read();
        Self::alive(&inner)?;
        Ok(inner)
    }

    /// Locks the space for changing, and loads its index, and that of the next older version, if necessary.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, Inner>> {
        let mut inner = self.inner.write();
        Self::alive(&inner)?;
        inner.load()?;
        if let Some(older) = &inner.older {
            drop(older.read()?);
        }
        debug_assert!(matches!(inner.index, IndexState::Loaded(_)), "the index is loaded under the lock");
        Ok(inner)
    }

    /// Locks the space for reading its metadata, without loading its index, and even if it was deleted. Does not wait
    /// behind a writer who waits: a reader may hold the lock until bytes come from far away.
    pub fn peek(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read_recursive()
    }

    /// Locks the space for changing its metadata, without loading its index, and even if it was deleted.
    pub fn peek_mut(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }

    /// Returns the owner tag of this block's first access unit, as out-of-band records carry it.
    pub fn owner(&self, at: &[u64]) -> Owner {
        match pack(at) {
            Some(key) => Owner { space: self.origin, unit: 0, key },
            None => Owner { space: self.origin | SPILLED, unit: 0, key: hash(at) },
        }
    }

    /// Returns the bytes that identify a block within its space, for the codec.
    pub fn context_key(at: &[u64]) -> SmallVec<[u8; 32]> {
        at.iter().flat_map(|c| c.to_le_bytes()).collect()
    }

    /// Returns the context with which the codec binds a payload to its space and block.
    pub fn context<'a>(&self, key: &'a [u8]) -> BlockContext<'a> {
        BlockContext { space_id: u64::from(self.origin), block_key: key }
    }

    /// Returns the size of the buffered part of a block in bytes, and the largest number of pages that it becomes.
    pub fn buffered(&self, inner: &Inner, at: &BlockAt) -> (usize, u64) {
        match inner.write_buffer.get(at) {
            None => (0, 0),
            Some(some @ BufferedBlock::Units(units)) => (some.bytes(), units.len() as u64),
            Some(some @ BufferedBlock::Block(_)) => (some.bytes(), self.coded_pages_max()),
        }
    }

    /// Returns the largest number of pages that a coded block takes.
    pub fn coded_pages_max(&self) -> u64 {
        u64::from(self.shape.units + self.shape.units / 32 + 2)
    }

    /// Returns the number of elements of a block that lie within a space of this shape, along each dimension.
    pub fn valid(&self, shape: &[u64], at: &[u64]) -> SmallVec<[u64; 4]> {
        let of = |(i, &b): (usize, &u64)| b.min(shape[i].saturating_sub(at[i].saturating_mul(b)));
        self.shape.block.iter().enumerate().map(of).collect()
    }

    /// Converts the error of a damaged page to one that names array, block and offset.
    pub fn page_error(&self, name: &str, at: &[u64], error: FetchError) -> Error {
        match error {
            FetchError::Media(e) => e,
            FetchError::Bad(BadPage { unit, offset, what }) => {
                Error::Checksum { array: name.to_owned(), block: at.to_vec(), unit, offset, what: what.to_owned() }
            }
        }
    }
}

/// Returns the number of the space that an owner names, and whether the owner's key is only a hash of the coordinate.
pub fn owner_space(owner: &Owner) -> (SpaceId, bool) {
    (owner.space & !SPILLED, owner.space & SPILLED != 0)
}

/// Packs a block's coordinate: LEB128 of each dimension, then zeroes; `None` if it needs more than 10 bytes.
fn pack(at: &[u64]) -> Option<[u8; 10]> {
    let mut key = [0; 10];
    let mut used = 0;
    for &coordinate in at {
        let mut rest = coordinate;
        loop {
            let byte = (rest & 0x7f) as u8;
            rest >>= 7;
            *key.get_mut(used)? = if rest == 0 { byte } else { byte | 0x80 };
            used += 1;
            if rest == 0 {
                break;
            }
        }
    }
    Some(key)
}

/// Returns the coordinate from which a key was packed; `None` if the key is not valid.
pub fn unpack(key: &[u8; 10], dimensions: usize) -> Option<BlockAt> {
    let mut at = BlockAt::new();
    let mut used = 0;
    for _ in 0..dimensions {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = *key.get(used)?;
            used += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at.push(value);
    }
    debug_assert_eq!(at.len(), dimensions, "coordinates of a key");
    key[used..].iter().all(|&b| b == 0).then_some(at)
}

fn hash(at: &[u64]) -> [u8; 10] {
    let bytes = Space::context_key(at);
    let mut key = [0; 10];
    key[..8].copy_from_slice(&crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes).to_le_bytes());
    key[8..].copy_from_slice(&crate::flash::crc32c(&bytes).to_le_bytes()[..2]);
    key
}

/// Runs of one block as stored in journal and checkpoints: (first unit, number of units, first page).
pub type WireRuns = Vec<(u32, u32, u64)>;

/// Converts runs to their stored form.
pub fn to_wire(runs: &[Run]) -> WireRuns {
    runs.iter().map(|r| (r.unit, r.count, r.ppa.0)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn coordinates_pack_and_unpack(at in prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 1..12)) {
            match pack(&at) {
                Some(key) => {
                    let back = unpack(&key, at.len()).unwrap();
                    prop_assert_eq!(back.as_slice(), &at[..]);
                }
                None => prop_assert!(at.len() > 1 || at[0] > 1 << 60 || at.len() > 5),
            }
        }

        #[test]
        fn any_key_unpacks_or_is_refused(key in any::<[u8; 10]>(), dimensions in 1usize..33) {
            if let Some(at) = unpack(&key, dimensions) {
                prop_assert_eq!(at.len(), dimensions);
            }
        }
    }

    #[test]
    fn ten_dimensions_of_small_blocks_fit() {
        assert!(pack(&[127; 10]).is_some());
        assert!(pack(&[127; 11]).is_none());
        assert!(pack(&[u64::MAX]).is_some());
    }
}
