//! The external inputs of a run: boxes of spaces, or bytes of the caller. Each read fetches the part of one task.

use std::ops::Range;

use nandarray::{BufferMut, Compound, Error, Packing, Result, Shape, Target, check_view};
use nandarray_cores::{InputPort, PackedInput, TaskPlace};
use smallvec::SmallVec;

use crate::halo::HaloTiles;
use crate::io::{InputSource, TransferError};
use crate::progress::CollectBudget;
use crate::request::Input;
use crate::tiles::{Tiles, packed, pieces};

/// Bytes of memory of a tile's end: in elements, in bytes and in records, and of a tile with a halo once more.
const EDGE_BYTES: u64 = 4 * 8;

/// An external input, with its element size and length in bytes, its best unit of reads in bytes, and its tiles.
#[derive(Debug)]
pub(crate) struct ExternalInput<'a> {
    input: &'a Input<'a>,
    item: u64,
    bytes: u64,
    grain: u64,
    tiles: Option<Tiles<'a>>,
    /// The tiles with their halos, if the tiles have any.
    halo: Option<HaloTiles<'a>>,
}

/// The reader of a run's external inputs, from the store or from the caller's memory.
#[derive(Debug)]
pub(crate) struct InputReader<'a> {
    compound: &'a Compound<'a>,
    /// Budget of the memory that inputs take for the whole run; `None` without a limit.
    budget: Option<&'a dyn CollectBudget>,
    inputs: Vec<ExternalInput<'a>>,
}

impl<'a> InputReader<'a> {
    pub(crate) fn new(compound: &'a Compound<'a>, budget: Option<&'a dyn CollectBudget>) -> Self {
        Self { compound, budget, inputs: Vec::new() }
    }

    /// Adds an external input of a program's port; returns its number, by which the methods of [`InputSource`] name it.
    pub(crate) fn add(&mut self, input: &'a Input<'a>, port: Option<&InputPort>) -> Result<usize> {
        let external = ExternalInput::of(self.compound, input, self.budget)?;
        if let Some((port, packed)) = port.and_then(|port| Some((port, port.packed?))) {
            self.check_packed(&external, port, packed)?;
        }
        self.inputs.push(external);
        Ok(self.inputs.len() - 1)
    }

    /// Checks that an input can come in the packed form that its port demands.
    fn check_packed(&self, external: &ExternalInput<'_>, port: &InputPort, packed: PackedInput) -> Result<()> {
        let wanted = match packed {
            PackedInput::BitPack => Packing::BitPack,
            PackedInput::VarWidth => Packing::VarWidth,
        };
        let refused = |why: String| Err(Error::invalid(format!("input {} is read packed: {why}", port.name)));
        let Input::Box { space, step, view, tiles, .. } = external.input else {
            return refused("it must be an array of the store, not the caller's data".to_owned());
        };
        let space = self.compound.space(*space)?;
        let shape = space.read()?.record.shape.clone();
        match space.packing() {
            Some(found) if found == wanted => {}
            Some(found) => return refused(format!("the array's compression is {found}, not {wanted}")),
            None => return refused(format!("the array's compression is not {wanted}")),
        }
        let wanted = port.element.bytes();
        if external.item != wanted {
            let found = external.item;
            return refused(format!("the array has elements of {found} bytes, the program takes {wanted}"));
        }
        if shape.len() != 1 || view.is_some() || tiles.is_some() || step[0] != 1 {
            let shape = Shape(&shape);
            return refused(format!("only consecutive elements of one dimension can be, of an array of shape {shape}"));
        }
        Ok(())
    }
}

impl<'a> ExternalInput<'a> {
    fn of(
        compound: &Compound<'_>,
        input: &'a Input<'a>,
        budget: Option<&dyn CollectBudget>,
    ) -> Result<ExternalInput<'a>> {
        let (space, start, step, count, view, tiles) = match input {
            Input::Box { space, start, step, count, view, tiles } => (space, start, step, count, view, *tiles),
            Input::Bytes(bytes) => {
                return Ok(ExternalInput {
                    input,
                    item: 1,
                    bytes: bytes.len() as u64,
                    grain: 0,
                    tiles: None,
                    halo: None,
                });
            }
            Input::Output { .. } => unreachable!("what a program gives does not come from outside"),
        };
        let space = compound.space(*space)?;
        let item = space.shape.item_bytes as u64;
        let shape = space.read()?.record.shape.clone();
        let within = view.unwrap_or(&shape);
        check_view(&shape, within)?;
        let n = within.len();
        if [start.len(), step.len(), count.len()] != [n; 3] {
            let got = count.len();
            return Err(Error::invalid(format!("an input of {got} dimensions of an array of shape {}", Shape(within))));
        }
        for axis in 0..n {
            let last = u128::from(start[axis]) + u128::from(step[axis]) * u128::from(count[axis].saturating_sub(1));
            if count[axis] > 0 && last >= u128::from(within[axis]) {
                return Err(Error::OutOfRange { axis, index: last, size: within[axis] });
            }
        }
        let mut halo = None;
        if let Some(tiles) = tiles {
            tiles.check(count)?;
            reserve_edges(budget, tiles.number(count))?;
            halo = tiles.halo.map(|around| HaloTiles::new(tiles, around, count, item)).transpose()?;
        }
        let volume = |counts: &[u64]| counts.iter().try_fold(item, |all, &c| all.checked_mul(c));
        let bytes =
            volume(count).ok_or_else(|| Error::invalid(format!("an input of shape {} is too large", Shape(count))))?;
        let bytes = halo.as_ref().map_or(bytes, |halo| halo.elements() * item);
        let row = count.get(1..).and_then(volume).unwrap_or(0);
        // Blocks of a compressed array are decoded whole: reads of whole rows of blocks decode each one once. Without
        // compression, a row of elements is as good a unit.
        let blocks = if space.coded() && view.is_none() && n > 1 && step[0] == 1 { space.shape.block[0] } else { 1 };
        Ok(ExternalInput { input, item, bytes, grain: row.saturating_mul(blocks), tiles, halo })
    }
}

impl InputSource for InputReader<'_> {
    fn bytes(&self, input: usize) -> u64 {
        self.inputs[input].bytes
    }

    fn is_stored(&self, input: usize) -> bool {
        matches!(self.inputs[input].input, Input::Box { .. })
    }

    fn grain(&self, input: usize) -> u64 {
        self.inputs[input].grain
    }

    fn edges(&self, input: usize) -> Option<Vec<u64>> {
        let this = &self.inputs[input];
        let in_bytes = |elements: &[u64]| elements.iter().map(|elements| elements * this.item).collect();
        if let Some(halo) = &this.halo {
            return Some(in_bytes(halo.edges()));
        }
        let (Some(tiles), Input::Box { count, .. }) = (&this.tiles, this.input) else { return None };
        Some(in_bytes(&tiles.edges(count)))
    }

    fn place(&self, input: usize, offset: u64) -> TaskPlace {
        let this = &self.inputs[input];
        match (&this.halo, &this.tiles, this.input) {
            (Some(halo), ..) => halo.place(offset / this.item),
            (None, Some(tiles), Input::Box { count, .. }) => tiles.place(count, offset / this.item),
            _ => TaskPlace::default(),
        }
    }

    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> std::result::Result<(), TransferError> {
        let this = &self.inputs[input];
        let end = offset + into.len() as u64;
        assert!(end <= this.bytes, "an input of {} bytes is read up to {end}", this.bytes);
        match this.input {
            Input::Bytes(bytes) => into.copy_from_slice(&bytes[offset as usize..end as usize]),
            Input::Box { .. } if offset.is_multiple_of(this.item) && end.is_multiple_of(this.item) => {
                self.read_box(this, offset / this.item..end / this.item, into)?;
            }
            Input::Output { .. } => unreachable!("what a program gives does not come from outside"),
            Input::Box { .. } => {
                // The range begins or ends within an element: fetch the whole elements around it.
                let elements = offset / this.item..end.div_ceil(this.item);
                let mut whole = vec![0; ((elements.end - elements.start) * this.item) as usize];
                self.read_box(this, elements.clone(), &mut whole)?;
                let skip = (offset - elements.start * this.item) as usize;
                into.copy_from_slice(&whole[skip..skip + into.len()]);
            }
        }
        Ok(())
    }

    fn read_packed(
        &self,
        input: usize,
        offset: u64,
        bytes: u64,
        into: &mut Vec<u8>,
    ) -> std::result::Result<(), TransferError> {
        let this = &self.inputs[input];
        let Input::Box { space, start, .. } = this.input else { unreachable!("it was checked when it was added") };
        let first = start[0] + offset / this.item;
        into.clear();
        self.compound.read_packed(*space, first..first + bytes / this.item, into)?;
        Ok(())
    }

    fn lend(
        &self,
        input: usize,
        offset: u64,
        bytes: u64,
        f: &mut dyn FnMut(&[u8]),
    ) -> std::result::Result<(), TransferError> {
        let this = &self.inputs[input];
        let end = offset + bytes;
        assert!(end <= this.bytes, "an input of {} bytes is lent up to {end}", this.bytes);
        match this.input {
            Input::Bytes(all) => {
                let some = &all[offset as usize..end as usize];
                if aligned(some) {
                    f(some);
                }
            }
            Input::Box { .. } if offset.is_multiple_of(this.item) && end.is_multiple_of(this.item) => {
                self.lend_box(this, offset / this.item..end / this.item, f)?;
            }
            Input::Box { .. } | Input::Output { .. } => {}
        }
        Ok(())
    }
}

impl InputReader<'_> {
    /// Calls `f` with elements of a box in place, if they are contiguous and aligned in memory; else does nothing.
    fn lend_box(&self, this: &ExternalInput<'_>, elements: Range<u64>, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        let Input::Box { space, start, step, count, view, .. } = this.input else { return Ok(()) };
        if this.halo.is_some() {
            return Ok(());
        }
        let mut boxes = SmallVec::<[(Vec<u64>, Vec<u64>); 1]>::new();
        pieces(count, this.tiles.as_ref(), elements, &mut |first, size| {
            let from = (0..first.len()).map(|d| start[d] + step[d] * first[d]).collect();
            boxes.push((from, size.to_vec()));
            Ok(())
        })?;
        let [(from, size)] = boxes.as_slice() else { return Ok(()) };
        let strides = packed(size, this.item);
        let target = Target::Box { start: from, step, count: size, strides: &strides, view: *view };
        self.compound.lend(*space, target, &mut |bytes| {
            if aligned(bytes) {
                f(bytes);
            }
        })
    }

    /// Reads a range of a box's elements. They are numbered tile by tile if there are tiles, else with the last
    /// dimension fastest.
    fn read_box(&self, this: &ExternalInput<'_>, elements: Range<u64>, into: &mut [u8]) -> Result<()> {
        let Input::Box { space, start, step, count, view, .. } = this.input else { return Ok(()) };
        let (mut at, item) = (0usize, this.item);
        if let Some(halo) = &this.halo {
            return halo.read(elements, item, into, &mut |first, size, strides, part| {
                let from: Vec<u64> = (0..first.len()).map(|d| start[d] + step[d] * first[d]).collect();
                let target = Target::Box { start: &from, step, count: size, strides, view: *view };
                let last: usize =
                    size.iter().zip(strides).map(|(n, stride)| (*n as usize - 1) * *stride as usize).sum();
                assert!(last + item as usize <= part.len(), "a box with these strides ends beyond its memory");
                // SAFETY: the elements of an array of this size with these strides lie within `part`, as was asserted.
                self.compound.read(*space, target, unsafe { BufferMut::from_raw(part.as_mut_ptr()) })
            });
        }
        pieces(count, this.tiles.as_ref(), elements, &mut |first, size| {
            let from: Vec<u64> = (0..first.len()).map(|d| start[d] + step[d] * first[d]).collect();
            let strides = packed(size, item);
            let bytes = (size.iter().product::<u64>() * item) as usize;
            let target = Target::Box { start: &from, step, count: size, strides: &strides, view: *view };
            let part = &mut into[at..at + bytes];
            at += bytes;
            // SAFETY: the strides are those of an array of this size, whose bytes are `part`.
            self.compound.read(*space, target, unsafe { BufferMut::from_raw(part.as_mut_ptr()) })
        })?;
        assert_eq!(at, into.len(), "the pieces of a range are the range");
        Ok(())
    }
}

/// Reserves the memory of the ends of a run's tasks, one for each tile, before any of it is used.
fn reserve_edges(budget: Option<&dyn CollectBudget>, tiles: u64) -> Result<()> {
    let bytes = tiles * EDGE_BYTES;
    if budget.is_none_or(|budget| budget.reserve(bytes)) {
        return Ok(());
    }
    Err(Error::Busy(format!("no memory is left for {bytes} bytes of the places of {tiles} tiles")))
}

/// Whether bytes begin at an address that the program ABI allows for a window: a multiple of 8.
fn aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(8)
}
