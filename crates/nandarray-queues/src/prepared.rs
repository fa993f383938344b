//! An array served as a namespace: it is looked up once, then blocks are located by arithmetic.
//!
//! The bytes of a namespace are the array's elements in C order, in logical blocks of 512 bytes; the last block may be
//! partial, and the rest of it reads as zeroes. A namespace keeps the array's identifier and its shape when service
//! began: commands to an array that was deleted or resized since then are completed with an error status. Reads of
//! whole elements go directly to the client's memory; if blocks cut elements, the read goes through a buffer. The NVMe
//! controller executes all other commands, and those to its own namespaces ([`crate::ring`]).

use std::sync::Arc;

use nandarray::{BufferMut, Device, Source, SpaceId, SpaceRecord, Target, command};
use smallvec::SmallVec;

use crate::entries::Status;
use crate::layout::{LBA_BYTES, NAMESPACE_NAME_BYTES_MAX, NamespaceEntry};

#[cfg(test)]
mod tests;

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
    runs: RunShape,
    /// Whether whole blocks can be written, and elements.
    writable: bool,
    writable_elements: bool,
    entry: NamespaceEntry,
}

/// Consecutive elements of an array in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementRun {
    /// Number of the first element.
    pub(crate) first: u64,
    /// Number of elements, at least one.
    pub(crate) elements: u64,
}

/// The shape of an array, with which runs of elements are recognised as boxes of the array itself.
#[derive(Debug)]
struct RunShape {
    shape: Vec<u64>,
    /// Distance between successive elements along each dimension, in elements and in bytes.
    elements: Vec<u64>,
    strides: Vec<isize>,
    step: Vec<u64>,
}

impl RunShape {
    fn new(record: &SpaceRecord) -> Self {
        let shape = record.shape.to_vec();
        let mut elements = vec![1; shape.len()];
        for i in (0..shape.len().saturating_sub(1)).rev() {
            elements[i] = elements[i + 1] * shape[i + 1];
        }
        let strides = elements.iter().map(|n| (n * u64::from(record.item_bytes)) as isize).collect();
        Self { step: vec![1; shape.len()], shape, elements, strides }
    }

    /// Returns the numbers of elements along each dimension of a box that `elements` consecutive ones are, and the
    /// number that divides the first element of every such box; `None` if they are no box.
    fn boxed(&self, elements: u64) -> Option<(SmallVec<[u64; 4]>, u64)> {
        let mut count: SmallVec<[u64; 4]> = SmallVec::from_elem(1, self.shape.len());
        for axis in (0..self.shape.len()).rev() {
            let (inner, size) = (self.elements[axis], self.shape[axis]);
            let along = elements / inner;
            if !elements.is_multiple_of(inner) || along == 0 {
                return None;
            }
            // The first dimension has room for a box wherever it begins; in others a box must not reach the end.
            if axis == 0 || along < size {
                count[axis] = along;
                let aligned = axis == 0 || size.is_multiple_of(along);
                return aligned.then_some((count, if axis == 0 { inner } else { elements }));
            }
            count[axis] = size;
        }
        None
    }

    /// Adds the coordinates of an element to `starts`.
    fn add_start(&self, mut element: u64, starts: &mut Vec<u64>) {
        for &inner in &self.elements {
            starts.push(element / inner);
            element %= inner;
        }
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
        let fits = record.shape.len() <= 16 && record.name.len() <= NAMESPACE_NAME_BYTES_MAX;
        if bytes == 0 || !fits || record.name.as_bytes().contains(&0) {
            return None;
        }
        // Blocks that cut elements could not be written without reading the elements first.
        let whole = LBA_BYTES.is_multiple_of(item_bytes) || item_bytes.is_multiple_of(LBA_BYTES);
        let writable_elements = writable && !device.read_only();
        let writable = writable_elements && whole;
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
        // A longer text is in the catalog; the table says how many bytes an element has.
        let plain = format!("|V{item_bytes}");
        let dtype = if record.dtype.len() < entry.dtype.len() { &record.dtype } else { &plain };
        entry.dtype[..dtype.len()].copy_from_slice(dtype.as_bytes());
        entry.name[..record.name.len()].copy_from_slice(record.name.as_bytes());
        let flat = (record.shape.len() != 1).then_some([elements]);
        let (device, space, runs) = (device.clone(), record.id, RunShape::new(record));
        Some(Self { nsid, device, space, item_bytes, elements, flat, runs, writable, writable_elements, entry })
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
        let count = last - first;
        if skip == 0 && count * self.item_bytes == bytes {
            // SAFETY: the caller's promise; the run is `bytes` bytes, at most `nlb` blocks.
            unsafe { self.read_run(ElementRun { first, elements: count }, to) }?;
        } else {
            let (start, count, strides) = ([first], [count], [self.item_bytes as isize]);
            let (target, space) = (self.target(&start, &count, &strides), self.space);
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

    /// Reads one run of elements, as a box of the array if it is one: the engine recognises boxes that follow one
    /// another.
    ///
    /// # Safety
    /// `to` points to memory for the elements, which may be written.
    unsafe fn read_run(&self, run: ElementRun, to: *mut u8) -> Result<(), Status> {
        let ElementRun { first, elements } = run;
        let runs = &self.runs;
        // SAFETY: the caller's promise.
        let out = unsafe { BufferMut::from_raw(to) };
        let read = |target| self.device.execute(command::Read { space: self.space, target, out }).map_err(Status::from);
        let Some((count, _)) = runs.boxed(elements).filter(|(_, unit)| first.is_multiple_of(*unit)) else {
            return read(self.target(&[first], &[elements], &[self.item_bytes as isize]));
        };
        let mut start = Vec::with_capacity(count.len());
        runs.add_start(first, &mut start);
        let (step, strides, view) = (&runs.step, &runs.strides, Some(runs.shape.as_slice()));
        read(Target::Box { start: &start, step, count: &count, strides, view })
    }

    /// Returns the elements that `nlb` blocks from block `slba` on are; `None` if the blocks cut an element, or end
    /// behind the array.
    pub(crate) fn run(&self, slba: u64, nlb: u64) -> Option<ElementRun> {
        let (first_byte, bytes) = (slba.checked_mul(LBA_BYTES)?, nlb * LBA_BYTES);
        let inside = first_byte.checked_add(bytes)? <= self.entry.bytes;
        let whole = first_byte.is_multiple_of(self.item_bytes) && bytes.is_multiple_of(self.item_bytes);
        (inside && whole).then(|| ElementRun { first: first_byte / self.item_bytes, elements: bytes / self.item_bytes })
    }

    /// Reads runs of `elements` elements each, which begin at the elements `firsts`, to places from an address on that
    /// are `apart` bytes from one another: one command of the engine.
    ///
    /// # Safety
    /// All places are memory that may be written, and do not overlap.
    pub(crate) unsafe fn read_runs(
        &self,
        firsts: &[u64],
        elements: u64,
        to: *mut u8,
        apart: u64,
    ) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        let (out, stride) = (unsafe { BufferMut::from_raw(to) }, apart as isize);
        let runs = &self.runs;
        let boxed = runs.boxed(elements).filter(|(_, unit)| firsts.iter().all(|first| first.is_multiple_of(*unit)));
        let read = |target| self.device.execute(command::Read { space: self.space, target, out }).map_err(Status::from);
        let Some((count, _)) = boxed else {
            let (view, strides) =
                (Some(self.flat.as_ref().map_or(runs.shape.as_slice(), |f| f.as_slice())), [self.item_bytes as isize]);
            return read(Target::Boxes {
                starts: firsts,
                step: &[1],
                count: &[elements],
                strides: &strides,
                stride,
                view,
            });
        };
        let mut starts = Vec::with_capacity(firsts.len() * runs.shape.len());
        firsts.iter().for_each(|&first| runs.add_start(first, &mut starts));
        // A view of the shape that the array had: an error if it has another one now.
        let view = Some(runs.shape.as_slice());
        read(Target::Boxes { starts: &starts, step: &runs.step, count: &count, strides: &runs.strides, stride, view })
    }

    /// Writes `nlb` blocks, beginning with block `slba`, from the address `from`.
    ///
    /// # Safety
    /// `from` points to `nlb` blocks of 512 bytes.
    pub(crate) unsafe fn write(&self, slba: u64, nlb: u64, from: *const u8) -> Result<(), Status> {
        if !self.writable {
            return Err(Status::WRITE_PROTECTED);
        }
        let piece = self.piece(slba, nlb)?;
        // SAFETY: the caller's promise; the piece is at most `nlb` blocks.
        unsafe { self.write_piece(piece, from) }
    }

    /// Writes the `bytes` bytes that begin `skip` bytes behind the beginning of block `slba`: whole elements, within
    /// `nlb` blocks, from the same place behind the address `from`.
    ///
    /// # Safety
    /// `from` points to `nlb` blocks of 512 bytes.
    pub(crate) unsafe fn write_elements(
        &self,
        (slba, nlb): (u64, u64),
        (skip, bytes): (u64, u64),
        from: *const u8,
    ) -> Result<(), Status> {
        if !self.writable_elements {
            return Err(Status::WRITE_PROTECTED);
        }
        let BlockPiece { first_byte, bytes: room } = self.piece(slba, nlb)?;
        if skip.checked_add(bytes).is_none_or(|end| end > room) {
            return Err(Status::INVALID_FIELD);
        }
        let piece = BlockPiece { first_byte: first_byte + skip, bytes };
        // SAFETY: the caller's promise; the piece lies within the blocks.
        unsafe { self.write_piece(piece, from.add(skip as usize)) }
    }

    /// Writes whole elements from the address `from`.
    ///
    /// # Safety
    /// `from` points to the bytes of the piece.
    unsafe fn write_piece(&self, BlockPiece { first_byte, bytes }: BlockPiece, from: *const u8) -> Result<(), Status> {
        if !first_byte.is_multiple_of(self.item_bytes) || !bytes.is_multiple_of(self.item_bytes) {
            return Err(Status::INVALID_FIELD);
        }
        let (start, count) = ([first_byte / self.item_bytes], [bytes / self.item_bytes]);
        let strides = [self.item_bytes as isize];
        let target = self.target(&start, &count, &strides);
        // SAFETY: the caller's promise.
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
