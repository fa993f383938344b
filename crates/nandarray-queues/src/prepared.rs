//! An array served as a namespace: it is looked up once, then blocks are located by arithmetic.
//!
//! The bytes of a namespace are the array's elements in C order, in logical blocks of 512 bytes; the last block may be
//! partial, and the rest of it reads as zeroes. A namespace keeps the array's identifier and its shape when service
//! began: commands to an array that was deleted or resized since then are completed with an error status. Reads of
//! whole elements go directly to the client's memory; if blocks cut elements, the read goes through a buffer. The NVMe
//! controller executes all other commands, and those to its own namespaces ([`crate::ring`]).

use std::sync::Arc;

use nandarray::{BufferMut, Device, Source, SpaceId, SpaceRecord, Target, command};

use crate::entries::Status;
use crate::layout::{LBA_BYTES, NAMESPACE_NAME_BYTES_MAX, NamespaceEntry};

/// First namespace identifier of arrays; lower ones are the NVMe controller's namespaces.
pub(crate) const ARRAY_NSID: u32 = 0x8000_0000;

/// An array that is served, with all that its commands need.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) nsid: u32,
    device: Arc<Device>,
    space: SpaceId,
    item_bytes: u64,
    elements: u64,
    /// Shape of the one-dimensional view by which clients use the array; `None` if the array itself has one dimension.
    flat: Option<[u64; 1]>,
    /// The array's shape, and the byte strides of a row, if a row is a whole number of blocks.
    rows: Option<RowShape>,
    writable: bool,
    entry: NamespaceEntry,
}

/// The rows of an array, each a whole number of blocks: such rows are read by one command of the engine for many.
#[derive(Debug)]
struct RowShape {
    bytes: u64,
    shape: Vec<u64>,
    /// The shape of one row: 1, then the other dimensions.
    count: Vec<u64>,
    step: Vec<u64>,
    strides: Vec<isize>,
}

impl RowShape {
    fn new(record: &SpaceRecord) -> Option<Self> {
        let shape = record.shape.to_vec();
        let mut strides = vec![0; shape.len()];
        let mut bytes = i64::from(record.item_bytes);
        for (stride, &size) in strides.iter_mut().zip(&shape).rev() {
            *stride = bytes as isize;
            bytes = bytes.checked_mul(i64::try_from(size).ok()?)?;
        }
        let bytes = *strides.first()? as u64;
        let count = std::iter::once(1).chain(shape.iter().skip(1).copied()).collect();
        let step = vec![1; shape.len()];
        bytes.is_multiple_of(LBA_BYTES).then_some(Self { bytes, shape, count, step, strides })
    }
}

/// A range of a namespace's bytes.
#[derive(Clone, Copy, Debug)]
struct BlockPiece {
    first_byte: u64,
    bytes: u64,
}

impl Prepared {
    /// Prepares an array for service; `writable` is whether clients may write to it. Returns `None` if the array cannot
    /// be served: it has no elements, more than 16 dimensions, or a name that is too long.
    pub(crate) fn new(device: &Arc<Device>, record: &SpaceRecord, nsid: u32, writable: bool) -> Option<Self> {
        let item_bytes = u64::from(record.item_bytes);
        let elements: u64 = record.shape.iter().product();
        let bytes = elements.checked_mul(item_bytes)?;
        let fits = record.shape.len() <= 16 && record.name.len() <= NAMESPACE_NAME_BYTES_MAX && record.dtype.len() < 64;
        if bytes == 0 || !fits || record.name.as_bytes().contains(&0) {
            return None;
        }
        // Blocks that cut elements could not be written without reading the elements first.
        let whole = LBA_BYTES.is_multiple_of(item_bytes) || item_bytes.is_multiple_of(LBA_BYTES);
        let writable = writable && whole && !device.read_only();
        let mut entry = NamespaceEntry {
            nsid,
            item_bytes: record.item_bytes,
            bytes,
            ndim: record.shape().len() as u32,
            writable: writable.into(),
            shape: [0; 16],
            dtype: [0; 64],
            name: [0; NAMESPACE_NAME_BYTES_MAX + 1],
        };
        entry.shape[..record.shape.len()].copy_from_slice(&record.shape);
        entry.dtype[..record.dtype.len()].copy_from_slice(record.dtype.as_bytes());
        entry.name[..record.name.len()].copy_from_slice(record.name.as_bytes());
        let flat = (record.shape.len() != 1).then_some([elements]);
        let (device, space, rows) = (device.clone(), record.id, RowShape::new(record));
        Some(Self { nsid, device, space, item_bytes, elements, flat, rows, writable, entry })
    }

    /// Returns the array's entry of the region's table of namespaces.
    pub(crate) fn entry(&self) -> &NamespaceEntry {
        &self.entry
    }

    fn piece(&self, slba: u64, nlb: u64) -> Result<BlockPiece, Status> {
        let blocks = self.entry.bytes.div_ceil(LBA_BYTES);
        if slba.checked_add(nlb).is_none_or(|end| end > blocks) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let first_byte = slba * LBA_BYTES;
        Ok(BlockPiece { first_byte, bytes: (nlb * LBA_BYTES).min(self.entry.bytes - first_byte) })
    }

    fn target<'a>(&'a self, start: &'a [u64; 1], count: &'a [u64; 1], strides: &'a [isize; 1]) -> Target<'a> {
        Target::Box { start, step: &[1], count, strides, view: self.flat.as_ref().map(|f| f.as_slice()) }
    }

    /// Reads `nlb` blocks, beginning with block `slba`, to the address `to`.
    ///
    /// # Safety
    /// `to` points to `nlb` blocks of 512 bytes that may be written.
    pub(crate) unsafe fn read(&self, slba: u64, nlb: u64, to: *mut u8) -> Result<(), Status> {
        let BlockPiece { first_byte, bytes } = self.piece(slba, nlb)?;
        let (first, skip) = (first_byte / self.item_bytes, first_byte % self.item_bytes);
        let last = (first_byte + bytes).div_ceil(self.item_bytes).min(self.elements);
        let (start, count, strides) = ([first], [last - first], [self.item_bytes as isize]);
        let target = self.target(&start, &count, &strides);
        let space = self.space;
        if skip == 0 && count[0] * self.item_bytes == bytes {
            // SAFETY: the caller's promise; the target is `bytes` bytes, at most `nlb` blocks.
            let out = unsafe { BufferMut::from_raw(to) };
            self.device.execute(command::Read { space, target, out }).map_err(Status::from)?;
        } else {
            let mut whole = vec![0u8; (count[0] * self.item_bytes) as usize];
            // SAFETY: `whole` has room for the target.
            let out = unsafe { BufferMut::from_raw(whole.as_mut_ptr()) };
            self.device.execute(command::Read { space, target, out }).map_err(Status::from)?;
            // SAFETY: the caller's promise, and `whole` covers the piece.
            unsafe { std::ptr::copy_nonoverlapping(whole.as_ptr().add(skip as usize), to, bytes as usize) };
        }
        // SAFETY: the caller's promise: the rest of the last block.
        unsafe { std::ptr::write_bytes(to.add(bytes as usize), 0, (nlb * LBA_BYTES - bytes) as usize) };
        Ok(())
    }

    /// Returns the row that `nlb` blocks from block `slba` on are; `None` if they are no single whole row.
    pub(crate) fn row(&self, slba: u64, nlb: u64) -> Option<u64> {
        let rows = self.rows.as_ref()?;
        let first_byte = slba.checked_mul(LBA_BYTES)?;
        let is_row = nlb * LBA_BYTES == rows.bytes && first_byte.is_multiple_of(rows.bytes);
        Some(first_byte / rows.bytes).filter(|&row| is_row && row < rows.shape[0])
    }

    /// Reads whole rows to places from an address on, which are `apart` bytes from one another.
    ///
    /// # Safety
    /// All places are memory that may be written, and do not overlap.
    ///
    /// # Panics
    /// If the array's rows are no whole blocks.
    pub(crate) unsafe fn read_rows(&self, rows: &[u64], to: *mut u8, apart: u64) -> Result<(), Status> {
        let RowShape { shape, count, step, strides, .. } = self.rows.as_ref().expect("rows of whole blocks");
        let mut starts = vec![0; rows.len() * shape.len()];
        for (start, &row) in starts.iter_mut().step_by(shape.len()).zip(rows) {
            *start = row;
        }
        // A view of the shape that the array had: an error if it has another one now.
        let view = Some(shape.as_slice());
        let target = Target::Boxes { starts: &starts, step, count, strides, stride: apart as isize, view };
        // SAFETY: the caller's promise.
        let out = unsafe { BufferMut::from_raw(to) };
        self.device.execute(command::Read { space: self.space, target, out }).map_err(Status::from)
    }

    /// Writes `nlb` blocks, beginning with block `slba`, from the address `from`.
    ///
    /// # Safety
    /// `from` points to `nlb` blocks of 512 bytes.
    pub(crate) unsafe fn write(&self, slba: u64, nlb: u64, from: *const u8) -> Result<(), Status> {
        if !self.writable {
            return Err(Status::WRITE_PROTECTED);
        }
        let BlockPiece { first_byte, bytes } = self.piece(slba, nlb)?;
        if !first_byte.is_multiple_of(self.item_bytes) || !bytes.is_multiple_of(self.item_bytes) {
            return Err(Status::INVALID_FIELD);
        }
        let (start, count) = ([first_byte / self.item_bytes], [bytes / self.item_bytes]);
        let strides = [self.item_bytes as isize];
        let target = self.target(&start, &count, &strides);
        // SAFETY: the caller's promise; the target is at most `nlb` blocks.
        let source = unsafe { Source::from_raw(from) };
        self.device.execute(command::Write { space: self.space, target, source }).map_err(Status::from)
    }
}

impl Prepared {
    /// Returns the array's name.
    pub(crate) fn name(&self) -> &str {
        let bytes = &self.entry.name;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).expect("a record's name is text")
    }
}
