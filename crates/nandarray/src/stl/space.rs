//! A space: its record, its index of building blocks, and its write buffer.
//!
//! Writes smaller than an access unit are buffered (NDS paper, section 4.4): as whole units of plain spaces, as whole
//! decoded building blocks of compressed or encrypted ones. Buffered content hides the pages that the index maps; it
//! becomes pages when a unit is full or at a flush.
//!
//! One lock guards index and write buffer: readers hold it shared while they copy, a write holds it only while it is
//! applied. Order of locks: range, then space, then log.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::block_size::{BLOCK_BYTES_MAX, DIMENSIONS_MAX, UNITS_MAX};
use super::index::Index;
use super::plan::{BlockAt, block_strides};
use super::prefetch::AccessHistory;
pub use super::write::buffer::BufferedBlock;
use crate::codec::{BlockContext, CipherKey, Codec, CodecSpec, Compression, Framing, KeyCheck, SALT_BYTES};
use crate::error::{Error, Result, Shape};
use crate::flash::{Owner, Run};
use crate::ftl::{BadPage, FetchError};
use crate::sched::RangeLock;

/// Names a space for good; never used twice.
pub type SpaceId = u32;

/// Marks an owner whose block coordinate did not fit the record's key, which then is a hash of it.
const SPILLED: u32 = 1 << 31;

/// The most bytes of an element.
pub const ITEM_BYTES_MAX: u32 = 1 << 16;

/// Checks the size of an element.
///
/// # Errors
/// [`Error::Invalid`].
pub fn check_item_bytes(bytes: u32) -> Result<()> {
    if (1..=ITEM_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(Error::invalid(format!("elements of {bytes} bytes; they have 1 to {ITEM_BYTES_MAX}")))
}

/// The means to recognise the key of an encrypted space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// Salt of the key, drawn when the space was created.
    pub salt: [u8; SALT_BYTES],
    /// [`KeyCheck`] of the key with this salt.
    pub check: Vec<u8>,
}

/// A space without its data: name, shape, element type, coding, attributes. Kept in the checkpoint's directory and in
/// the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRecord {
    /// Its number.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Elements along each dimension, slowest-varying first. A scalar has one dimension of size 1 here.
    pub shape: Vec<u64>,
    /// Whether the space was created without dimensions.
    pub scalar: bool,
    /// Bytes of an element.
    pub item_bytes: u32,
    /// The door's name of the element type; opaque here.
    pub dtype: String,
    /// Shape of a building block.
    pub block: Vec<u64>,
    /// Compression, in the words of [`Compression`].
    pub compression: Option<String>,
    /// Present if blocks are encrypted.
    pub encryption: Option<Encryption>,
    /// The element that was never written; `item_bytes` long.
    pub fill: Vec<u8>,
    /// The door's attributes; opaque here.
    pub attrs: String,
}

impl SpaceRecord {
    /// The shape as it was requested: a scalar's is empty.
    pub fn shape(&self) -> &[u64] {
        if self.scalar { &[] } else { &self.shape }
    }

    /// The building block, as many dimensions as the shape.
    pub fn block(&self) -> &[u64] {
        if self.scalar { &[] } else { &self.block }
    }

    /// Checks a record, whether it was made for a new space or read from a medium.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the numbers.
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
        // A coded block may be a little longer than its bytes: a head, never more than a page's worth a MiB.
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

/// Sizes derived from a record, fixed for the life of a space.
#[derive(Clone, Debug)]
pub struct BlockShape {
    /// Elements along each dimension.
    pub block: SmallVec<[u64; 4]>,
    /// Byte strides within a block.
    pub strides: SmallVec<[u64; 4]>,
    /// Bytes of an element.
    pub item_bytes: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Access units of a plain block.
    pub units: u32,
    /// Bytes of an access unit.
    pub page: usize,
    /// The fill value.
    pub fill: Vec<u8>,
}

/// The stored form of an index, until a command needs it.
pub trait StoredIndex: Send + Sync + std::fmt::Debug {
    /// Reads it.
    fn load(&self) -> Result<Index>;
    /// Its bytes as they are stored, to be copied into the next checkpoint.
    fn bytes(&self) -> Result<Vec<u8>>;
    /// Building blocks in it.
    fn blocks(&self) -> u64;
}

/// A space's index.
#[derive(Debug)]
pub enum IndexState {
    /// Stored: no command has touched the space since the store was opened.
    Stored(Arc<dyn StoredIndex>),
    /// In memory.
    Loaded(Index),
}

/// The state of a space, under its lock.
#[derive(Debug)]
pub struct Inner {
    /// The present record.
    pub record: SpaceRecord,
    /// The index of its blocks.
    pub index: IndexState,
    /// Parts of blocks that wait in memory.
    pub write_buffer: HashMap<BlockAt, BufferedBlock>,
    /// Whether the space was deleted: handles to it are stale.
    pub deleted: bool,
}

impl Inner {
    /// The index, which the caller saw to be loaded.
    pub fn index(&self) -> &Index {
        match &self.index {
            IndexState::Loaded(index) => index,
            IndexState::Stored(_) => unreachable!("the index is loaded before the lock is handed out"),
        }
    }

    /// The index, to be changed.
    pub fn index_mut(&mut self) -> &mut Index {
        match &mut self.index {
            IndexState::Loaded(index) => index,
            IndexState::Stored(_) => unreachable!("the index is loaded before the lock is handed out"),
        }
    }

    fn load(&mut self) -> Result<()> {
        if let IndexState::Stored(stored) = &self.index {
            self.index = IndexState::Loaded(stored.load()?);
        }
        Ok(())
    }
}

/// A space.
#[derive(Debug)]
pub struct Space {
    /// Its number.
    pub id: SpaceId,
    /// Sizes of its blocks.
    pub shape: BlockShape,
    /// Orders writes that share blocks.
    pub ranges: RangeLock,
    /// The accesses to it, which predict the next ones.
    pub access: AccessHistory,
    spec: Option<CodecSpec>,
    encryption: Option<Encryption>,
    codec: OnceLock<Codec>,
    inner: RwLock<Inner>,
}

impl Space {
    /// A space from its record.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a record that [`SpaceRecord::check`] refuses or an unknown compression.
    pub fn new(record: SpaceRecord, index: IndexState, page_bytes: u32, framing: Framing) -> Result<Arc<Self>> {
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
            id: record.id,
            shape,
            ranges: RangeLock::default(),
            access: AccessHistory::default(),
            spec: (!spec.is_identity()).then_some(spec),
            encryption: record.encryption.clone(),
            codec: OnceLock::new(),
            inner: RwLock::new(Inner { record, index, write_buffer: HashMap::new(), deleted: false }),
        };
        if let Some(spec) = space.spec.filter(|s| !s.encrypted) {
            let codec = Codec::new(spec, None).map_err(|e| Error::invalid(e.to_string()))?;
            space.codec.set(codec).expect("the cell is new");
        }
        Ok(Arc::new(space))
    }

    /// The codec of the space's blocks; `None` if they are stored as they are.
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

    /// The codec of a coded space.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the space is encrypted and no key was given since the store was opened.
    pub fn codec(&self) -> Result<&Codec> {
        self.codec.get().ok_or_else(|| self.wrong_key("no key was given"))
    }

    fn wrong_key(&self, what: &str) -> Error {
        // Recursive: the caller may hold the space for reading.
        Error::WrongKey { name: self.inner.read_recursive().record.name.clone(), what: what.to_owned() }
    }

    /// Takes a key for an encrypted space.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if it is missing or not the space's, [`Error::Invalid`] for a key that is not needed.
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

    /// The space for reading, with its index loaded.
    ///
    /// # Errors
    /// [`Error::Closed`] if the space was deleted; the errors of loading the index.
    pub fn read(&self) -> Result<RwLockReadGuard<'_, Inner>> {
        let inner = self.inner.read();
        Self::alive(&inner)?;
        if matches!(inner.index, IndexState::Loaded(_)) {
            return Ok(inner);
        }
        drop(inner);
        drop(self.write()?);
        let inner = self.inner.read();
        Self::alive(&inner)?;
        Ok(inner)
    }

    /// The space for changing, with its index loaded.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, Inner>> {
        let mut inner = self.inner.write();
        Self::alive(&inner)?;
        inner.load()?;
        debug_assert!(matches!(inner.index, IndexState::Loaded(_)), "the index is loaded under the lock");
        Ok(inner)
    }

    /// The space as it is, index loaded or not, deleted or not: for metadata.
    pub fn peek(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    /// As [`Self::peek`], to be changed.
    pub fn peek_mut(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }

    /// The tag that pages of this block carry, for unit 0.
    pub fn owner(&self, at: &[u64]) -> Owner {
        match pack(at) {
            Some(key) => Owner { space: self.id, unit: 0, key },
            None => Owner { space: self.id | SPILLED, unit: 0, key: hash(at) },
        }
    }

    /// The number of a payload's block within its space, for the codec.
    pub fn context_key(at: &[u64]) -> SmallVec<[u8; 32]> {
        at.iter().flat_map(|c| c.to_le_bytes()).collect()
    }

    /// The codec's context of a block.
    pub fn context<'a>(&self, key: &'a [u8]) -> BlockContext<'a> {
        BlockContext { space_id: u64::from(self.id), block_key: key }
    }

    /// The buffered part of a block: bytes, and the most pages that they become.
    pub fn buffered(&self, inner: &Inner, at: &BlockAt) -> (usize, u64) {
        match inner.write_buffer.get(at) {
            None => (0, 0),
            Some(some @ BufferedBlock::Units(units)) => (some.bytes(), units.len() as u64),
            Some(some @ BufferedBlock::Block(_)) => (some.bytes(), self.coded_pages_max()),
        }
    }

    /// The most pages that a coded block takes.
    pub fn coded_pages_max(&self) -> u64 {
        u64::from(self.shape.units + self.shape.units / 32 + 2)
    }

    /// Elements of a block that lie within the space, along each dimension.
    pub fn valid(&self, shape: &[u64], at: &[u64]) -> SmallVec<[u64; 4]> {
        let of = |(i, &b): (usize, &u64)| b.min(shape[i].saturating_sub(at[i].saturating_mul(b)));
        self.shape.block.iter().enumerate().map(of).collect()
    }

    /// From a damaged page to the error that names array, block and offset.
    pub fn page_error(&self, name: &str, at: &[u64], error: FetchError) -> Error {
        match error {
            FetchError::Media(e) => e,
            FetchError::Bad(BadPage { unit, offset, what }) => {
                Error::Checksum { array: name.to_owned(), block: at.to_vec(), unit, offset, what: what.to_owned() }
            }
        }
    }
}

/// The number of the space that an owner names, and whether its key is a hash.
pub fn owner_space(owner: &Owner) -> (SpaceId, bool) {
    (owner.space & !SPILLED, owner.space & SPILLED != 0)
}

/// Packs a block's coordinate: LEB128 of each dimension, zeroes behind; `None` if it does not fit.
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

/// The coordinate that a key was packed from; `None` if it is no such key.
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

/// Runs of one block, as the journal and checkpoints write them.
pub type WireRuns = Vec<(u32, u32, u64)>;

/// To the form that is written.
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
