//! Dynamic space identifiers, and the execution of the N-D commands (NDS paper, section 5.3.1).
//!
//! A dynamic space identifier names a view (`views`): a space under a dimensionality of equal volume, from open space
//! to close space. The space of an open view may be resized or deleted at any time; a command uses its present state.

use std::sync::Arc;

use nandarray_nvme_spec::{
    BoxPage, Coordinates, NdBox, OpenAction, SpaceFlags, SpacePage, Status, Unit, from_text, text,
};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use super::access::check_writes;
use super::controller::{Controller, run};
use super::data_buffer::DataBuffer;
use super::elements::check_rows;
use super::views::View;
use crate::device::names::check_chosen_name;
use crate::device::{Device, NewSpace, Target, command};
use crate::stl::block_size::DIMENSIONS_MAX;
use crate::stl::space::{Space, SpaceId};
use crate::stl::translate::check_view;

/// Largest size of an element in bytes, as in the engine.
const ITEM_BYTES_MAX: u32 = 1 << 16;
/// The step of 1 along every dimension of a box.
const ONES: [u64; DIMENSIONS_MAX] = [1; DIMENSIONS_MAX];

type NdSize = SmallVec<[u64; 4]>;

/// The elements that an N-D command names, for other commands that use the same elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedBox {
    /// Number of the space.
    pub space: SpaceId,
    /// First coordinate along each dimension, in elements.
    pub start: Vec<u64>,
    /// Number of elements along each dimension.
    pub count: Vec<u64>,
    /// Shape of the view; `None` is the space's own shape.
    pub view: Option<Vec<u64>>,
    /// Size of the box in bytes.
    pub bytes: u64,
}

/// The sub-block of an N-D command, checked against the view in its state when the command begins.
struct CheckedBox {
    device: Arc<Device>,
    view: Arc<View>,
    space: Arc<Space>,
    start: NdSize,
    count: NdSize,
    strides: SmallVec<[isize; 4]>,
    bytes: u64,
}

impl CheckedBox {
    fn target(&self) -> Target<'_> {
        Target::Box {
            start: &self.start,
            step: &ONES[..self.start.len()],
            count: &self.count,
            strides: &self.strides,
            view: self.view.dims.as_deref(),
        }
    }
}

fn id(space: u64) -> Result<SpaceId, Status> {
    SpaceId::try_from(space).map_err(|_| Status::SPACE_NOT_FOUND)
}

fn by_id(device: &Device, space: u64) -> Result<Arc<Space>, Status> {
    let space = device.by_id(id(space)?).map_err(|_| Status::SPACE_NOT_FOUND)?;
    if space.peek().deleted { Err(Status::SPACE_NOT_FOUND) } else { Ok(space) }
}

impl Controller {
    fn view(&self, dsid: u32) -> Result<(Arc<Device>, Arc<View>, Arc<Space>), Status> {
        let device = self.device()?;
        let view = self.views.read().get(dsid)?;
        let space = self.readable(&device, view.space.into()).map_err(|_| Status::INVALID_DSID)?;
        Ok((device, view, space))
    }

    /// Returns a space that the host may read.
    fn readable(&self, device: &Device, space: u64) -> Result<Arc<Space>, Status> {
        let space = by_id(device, space)?;
        let reads = self.access.reads(&space.peek().record.name);
        if reads { Ok(space) } else { Err(Status::SPACE_NOT_FOUND) }
    }

    /// Refuses a change of a space that the host may only read.
    fn check_writes(&self, space: &Space) -> Result<(), Status> {
        check_writes(&*self.access, &space.peek().record.name)
    }

    /// Returns the number of the space that an open view is of.
    ///
    /// # Errors
    /// Invalid dynamic space identifier; namespace not ready.
    pub fn view_space(&self, dsid: u32) -> Result<SpaceId, Status> {
        Ok(self.view(dsid)?.1.space)
    }

    pub(super) fn open_space(
        &self,
        action: OpenAction,
        space: u64,
        buffer: &DataBuffer<'_>,
    ) -> Result<(u32, u32), Status> {
        let bytes = buffer.bytes(size_of::<SpacePage>() as u64)?;
        let page = SpacePage::ref_from_bytes(bytes).expect("a page of this size has no alignment");
        let device = self.device()?;
        let dims = page.dims()?;
        self.views.read().check_room()?;
        let space = match action {
            OpenAction::Create => {
                check_writes(&*self.access, page.name()?)?;
                create(&device, page, &dims)?
            }
            OpenAction::OpenByName if !self.access.reads(page.name()?) => return Err(Status::SPACE_NOT_FOUND),
            OpenAction::OpenByName => device.describe(page.name()?).map_err(Status::from)?,
            OpenAction::Open => self.readable(&device, space)?,
            OpenAction::Resize => {
                let space = self.readable(&device, space)?;
                self.check_writes(&space)?;
                // Before anything changes: a host without the key must not.
                unlock(&device, &space, page.key())?;
                run(&device, command::Resize { space: space.id, shape: &dims })?;
                space
            }
        };
        let own = match action {
            OpenAction::Create | OpenAction::Resize => true,
            OpenAction::Open | OpenAction::OpenByName => dims.is_empty(),
        };
        if matches!(action, OpenAction::Open | OpenAction::OpenByName) {
            unlock(&device, &space, page.key())?;
        }
        let dims = if own { None } else { Some(dims) };
        if let Some(dims) = &dims {
            let shape = space.peek().record.shape.clone();
            check_view(&shape, dims).map_err(Status::from)?;
        }
        let dsid = self.views.write().add(View { space: space.id, dims })?;
        Ok((dsid, space.id))
    }

    pub(super) fn close_space(&self, dsid: u32, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        buffer.none()?;
        self.device()?;
        self.views.write().remove(dsid)
    }

    pub(super) fn delete_space(&self, space: u64, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        buffer.none()?;
        let device = self.device()?;
        let space = self.readable(&device, space)?;
        self.check_writes(&space)?;
        let name = space.peek().record.name.clone();
        run(&device, command::Delete { name: &name })?;
        self.views.write().remove_all_of(space.id);
        Ok(())
    }

    pub(super) fn space_information(&self, dsid: u32, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let (_, view, space) = self.view(dsid)?;
        let record = space.peek().record.clone();
        let mut page = SpacePage::new(&record.name, view.dims.as_deref().unwrap_or(record.shape()));
        page.item_bytes.set(record.item_bytes);
        page.bdim = record.block().len() as u8;
        page.block.iter_mut().zip(record.block()).for_each(|(to, &from)| to.set(from));
        page.flags.set(if space.encrypted() { SpaceFlags::ENCRYPTED } else { 0 });
        page.set_dtype(&record.dtype);
        from_text(&mut page.compression, record.compression.as_deref().unwrap_or(""));
        page.space.set(record.id.into());
        page.sdim = record.shape().len() as u8;
        page.shape.iter_mut().zip(record.shape()).for_each(|(to, &from)| to.set(from));
        buffer.give(page.as_bytes())
    }

    pub(super) fn nd_read(&self, nd: &NdBox, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let found = self.find(nd, buffer)?;
        let out = buffer.out(found.bytes)?;
        let command = command::Read { space: found.view.space, target: found.target(), out };
        run(&found.device, command)
    }

    pub(super) fn nd_write(&self, nd: &NdBox, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let found = self.find(nd, buffer)?;
        self.check_writes(&found.space)?;
        check_rows(&found.target()).map_err(Status::from)?;
        let source = buffer.source(found.bytes)?;
        let command = command::Write { space: found.view.space, target: found.target(), source };
        run(&found.device, command)?;
        Self::after_write(&found.device, nd.fua)
    }

    /// Returns the elements that an N-D command names, in the view's present state; `page` has its coordinates if they
    /// are not in the entry.
    ///
    /// # Errors
    /// The statuses of an N-D read of this sub-block.
    pub fn resolve(&self, nd: &NdBox, page: &[u8]) -> Result<ResolvedBox, Status> {
        let found = self.find(nd, &DataBuffer::NONE.with_page(page))?;
        Ok(ResolvedBox {
            space: found.view.space,
            start: found.start.to_vec(),
            count: found.count.to_vec(),
            view: found.view.dims.clone(),
            bytes: found.bytes,
        })
    }

    fn find(&self, nd: &NdBox, buffer: &DataBuffer<'_>) -> Result<CheckedBox, Status> {
        let (device, view, space) = self.view(nd.dsid)?;
        let n = usize::from(nd.ndim);
        let (coordinate, count): (NdSize, NdSize) = match nd.coordinates {
            Coordinates::Inline { coordinate, sub } => {
                let part = |of: &[u32; 3]| of.get(..n).map(|s| s.iter().map(|&v| v.into()).collect());
                part(&coordinate).zip(part(&sub)).ok_or(Status::INVALID_FIELD)?
            }
            Coordinates::Page { .. } => {
                let page = BoxPage::ref_from_bytes(buffer.page()).map_err(|_| Status::DATA_LENGTH_INVALID)?;
                let part =
                    |of: &[zerocopy::little_endian::U64; 32]| of.get(..n).map(|s| s.iter().map(|v| v.get()).collect());
                part(&page.coordinate).zip(part(&page.sub)).ok_or(Status::INVALID_FIELD)?
            }
        };
        let item = space.shape.item_bytes as u64;
        let (start, bytes) = {
            let inner = space.peek();
            let dims = view.dims.as_deref().unwrap_or(inner.record.shape());
            inside(dims, nd.unit, &coordinate, &count, item)?
        };
        let mut strides = SmallVec::from_elem(0, n);
        let mut stride = item as isize;
        for i in (0..n).rev() {
            strides[i] = stride;
            stride *= count[i] as isize; // at most `bytes`, which are an isize
        }
        Ok(CheckedBox { device, view, space, start, count, strides, bytes })
    }
}

/// Checks that a sub-block lies within `dims`; returns its first coordinate in elements, and its size in bytes.
fn inside(dims: &[u64], unit: Unit, coordinate: &[u64], count: &[u64], item: u64) -> Result<(NdSize, u64), Status> {
    if dims.len() != count.len() || count.contains(&0) {
        return Err(Status::INVALID_FIELD);
    }
    let mut start = NdSize::new();
    for i in 0..dims.len() {
        let first = match unit {
            Unit::Element => Some(coordinate[i]),
            Unit::Partition => coordinate[i].checked_mul(count[i]),
        };
        let end = first.and_then(|f| f.checked_add(count[i]));
        let (Some(first), Some(_)) = (first, end.filter(|&e| e <= dims[i])) else {
            return Err(Status::LBA_OUT_OF_RANGE);
        };
        start.push(first);
    }
    let bytes = count.iter().try_fold(item, |v, &c| v.checked_mul(c)).filter(|&b| isize::try_from(b).is_ok());
    // A longer size exceeds any buffer.
    Ok((start, bytes.ok_or(Status::DATA_LENGTH_INVALID)?))
}

/// Returns the name that a host has chosen for a new array.
fn chosen_name(page: &SpacePage) -> Result<&str, Status> {
    let name = page.name()?;
    check_chosen_name(name)?;
    Ok(name)
}

fn create(device: &Device, page: &SpacePage, dims: &[u64]) -> Result<Arc<Space>, Status> {
    let item_bytes = page.item_bytes.get();
    if item_bytes == 0 || item_bytes > ITEM_BYTES_MAX {
        return Err(Status::INVALID_FIELD);
    }
    let block = page.block()?;
    let (dtype, compression) = (page.dtype()?, text(&page.compression)?);
    let plain = format!("|V{item_bytes}");
    let new = NewSpace {
        name: chosen_name(page)?,
        shape: dims,
        item_bytes,
        dtype: if dtype.is_empty() { &plain } else { dtype },
        block: block.as_deref(),
        compression: Some(compression).filter(|c| !c.is_empty()),
        key: page.key(),
        fill: None,
        attrs: "{}",
    };
    run(device, command::Create(new))
}

/// Unlocks an encrypted space with its key, which every host has to give itself.
fn unlock(device: &Device, space: &Space, key: Option<&[u8]>) -> Result<(), Status> {
    if key.is_none() && !space.encrypted() {
        return Ok(());
    }
    let name = space.peek().record.name.clone();
    run(device, command::Open { name: &name, key }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_elements() {
        // The example of section 3: the [1, 0] sub-block of a 16384 x 16384 view.
        let (start, bytes) = inside(&[16384, 16384], Unit::Partition, &[1, 0], &[8192, 8192], 4).unwrap();
        assert_eq!((start.as_slice(), bytes), (&[8192, 0][..], 8192 * 8192 * 4));
        let (start, _) = inside(&[10], Unit::Element, &[7], &[3], 4).unwrap();
        assert_eq!(start.as_slice(), [7]);
        assert_eq!(inside(&[10], Unit::Element, &[8], &[3], 4), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(inside(&[10], Unit::Element, &[u64::MAX], &[3], 4), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(inside(&[10], Unit::Partition, &[u64::MAX], &[3], 4), Err(Status::LBA_OUT_OF_RANGE));
        assert_eq!(inside(&[10], Unit::Element, &[8], &[0], 4), Err(Status::INVALID_FIELD));
        assert_eq!(inside(&[10, 10], Unit::Element, &[8], &[1], 4), Err(Status::INVALID_FIELD));
        let huge = [u64::MAX; 3];
        assert_eq!(inside(&huge, Unit::Element, &[0; 3], &huge, 4), Err(Status::DATA_LENGTH_INVALID));
        assert_eq!(inside(&[], Unit::Element, &[], &[], 8).unwrap().1, 8, "a scalar");
    }
}
