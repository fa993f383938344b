//! Elements that move between a store and packed memory: boxes with steps, lists of boxes, coordinates and points.
//!
//! The elements lie in memory in C order without gaps, so that a safe caller can move them; this file and the store's
//! commands check them. Memory with gaps is for callers that use the commands ([`command::Read`]) themselves.

use crate::device::{Device, Target, command};
use crate::error::{Error, Result};
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::Space;
use crate::stl::write::Source;

/// Maximum size of the elements that are moved at once, in bytes.
pub const MOVE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of rows of elements of a write through a view, and of boxes of a write. All selections of a write are
/// planned before it begins, and take some 400 bytes each.
pub const WRITE_ROWS_MAX: u64 = 1 << 19;

/// The elements of a space, or of a view of it: a [`Target`] that owns its coordinates, without places in memory.
#[derive(Clone, Debug)]
pub enum Elements {
    /// Elements `start + step * i` for all `i < count`.
    Box {
        /// First coordinate along each dimension.
        start: Vec<u64>,
        /// Distance between elements along each dimension, at least 1.
        step: Vec<u64>,
        /// Number of elements along each dimension.
        count: Vec<u64>,
    },
    /// Several boxes of one size.
    Boxes {
        /// First coordinates: those of the first box, then those of the second, and so on.
        starts: Vec<u64>,
        /// Distance between elements along each dimension, at least 1.
        step: Vec<u64>,
        /// Number of elements of a box along each dimension.
        count: Vec<u64>,
    },
    /// Every combination of coordinates from one range or list for each dimension.
    Outer(Vec<Axis>),
    /// Single elements: the coordinates of the first one, then those of the second, and so on.
    Points(Vec<u64>),
}

/// Reads elements of a space, or of the view of it with the shape `view`; returns them packed.
///
/// # Errors
/// The elements do not fit the array, or have more than [`MOVE_BYTES_MAX`] bytes; errors of reading.
pub fn read_elements(device: &Device, space: &Space, elements: &Elements, view: Option<&[u64]>) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    with_target(space, elements, view, |target, bytes| {
        memory = vec![0; bytes as usize];
        // SAFETY: the memory has all bytes of the target, whose elements lie in it without gaps.
        let out = unsafe { BufferMut::from_raw(memory.as_mut_ptr()) };
        device.execute(command::Read { space: space.id, target, out })
    })?;
    Ok(memory)
}

/// Writes packed values to elements of a space, or of the view of it with the shape `view`, all or none.
///
/// # Errors
/// As [`read_elements`]; the values have another size than the elements; the elements have more than
/// [`WRITE_ROWS_MAX`] rows; errors of writing.
pub fn write_elements(
    device: &Device,
    space: &Space,
    elements: &Elements,
    view: Option<&[u64]>,
    values: &[u8],
) -> Result<()> {
    with_target(space, elements, view, |target, bytes| {
        check_rows(&target)?;
        let source = source(values, bytes)?;
        device.execute(command::Write { space: space.id, target, source })
    })
}

/// Grows a space along one dimension and writes packed values of the shape `count` to the new part, in one step;
/// returns the new shape.
///
/// # Errors
/// As [`write_elements`].
pub fn append_elements(device: &Device, space: &Space, axis: usize, count: &[u64], values: &[u8]) -> Result<Vec<u64>> {
    let item = space.shape.item_bytes as u64;
    let strides = packed(count, item)?;
    let source = source(values, bytes_of(count, item))?;
    device.execute(command::Append { space: space.id, axis, count, strides: &strides, source })
}

/// Checks that the plan of a write has a limit: a box of the space itself is one selection, one of a view may be one or
/// a few for each row, that is, for each run of elements along the last dimension.
pub(super) fn check_rows(target: &Target<'_>) -> Result<()> {
    let rows_of = |step: &[u64], count: &[u64]| {
        let whole = step.last() == Some(&1);
        bytes_of(&count[..count.len() - usize::from(whole)], 1)
    };
    let rows = match *target {
        Target::Box { step, count, view: Some(_), .. } => rows_of(step, count),
        Target::Boxes { starts, step, count, view, .. } => {
            let boxes = (starts.len() / count.len().max(1)) as u64;
            boxes.saturating_mul(if view.is_some() { rows_of(step, count) } else { 1 })
        }
        Target::Box { .. } | Target::Outer { .. } | Target::Points { .. } => 0,
    };
    if rows > WRITE_ROWS_MAX {
        return Err(Error::invalid(format!(
            "a write of {rows} rows of elements through a view or as boxes; a host's must have at most {WRITE_ROWS_MAX}"
        )));
    }
    Ok(())
}

fn source(values: &[u8], bytes: u64) -> Result<Source> {
    if values.len() as u64 != bytes {
        return Err(Error::invalid(format!("values of {} bytes for elements of {bytes}", values.len())));
    }
    // SAFETY: the memory has all bytes of the elements, which lie in it without gaps.
    Ok(unsafe { Source::from_raw(values.as_ptr()) })
}

fn bytes_of(count: &[u64], item: u64) -> u64 {
    // An empty dimension makes it 0, however long the others are.
    if count.contains(&0) { 0 } else { count.iter().fold(item, |bytes, &n| bytes.saturating_mul(n)) }
}

/// Returns the strides of packed elements.
fn packed(count: &[u64], item: u64) -> Result<Vec<isize>> {
    let bytes = bytes_of(count, item);
    if bytes > MOVE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "elements of {bytes} bytes; at most {MOVE_BYTES_MAX} can be moved at once"
        )));
    }
    let mut strides = vec![0; count.len()];
    if bytes > 0 {
        let mut stride = item as isize;
        for (to, &n) in strides.iter_mut().zip(count).rev() {
            *to = stride;
            stride *= n as isize;
        }
    }
    Ok(strides)
}

/// Calls `then` with the target that the elements make, and their size in bytes.
fn with_target(
    space: &Space,
    elements: &Elements,
    view: Option<&[u64]>,
    then: impl FnOnce(Target<'_>, u64) -> Result<()>,
) -> Result<()> {
    let item = space.shape.item_bytes as u64;
    match elements {
        Elements::Box { start, step, count } => {
            alike(start.len(), step, count)?;
            let strides = packed(count, item)?;
            then(Target::Box { start, step, count, strides: &strides, view }, bytes_of(count, item))
        }
        Elements::Boxes { starts, step, count } => {
            alike(count.len(), step, count)?;
            let boxes = if count.is_empty() { 0 } else { (starts.len() / count.len()) as u64 };
            if boxes * count.len() as u64 != starts.len() as u64 {
                let (numbers, dimensions) = (starts.len(), count.len());
                return Err(Error::invalid(format!("{numbers} coordinates of boxes of {dimensions} dimensions")));
            }
            let all: Vec<u64> = [boxes].iter().chain(count).copied().collect();
            let strides = packed(&all, item)?;
            let (stride, strides) = (strides[0], &strides[1..]);
            then(Target::Boxes { starts, step, count, strides, stride, view }, bytes_of(&all, item))
        }
        Elements::Outer(axes) => {
            no_view(view)?;
            let count: Vec<u64> = axes.iter().map(Axis::count).collect();
            let strides = packed(&count, item)?;
            then(Target::Outer { axes, strides: &strides }, bytes_of(&count, item))
        }
        Elements::Points(coordinates) => {
            no_view(view)?;
            let dimensions = space.peek().record.shape().len();
            if dimensions == 0 || !coordinates.len().is_multiple_of(dimensions) {
                let numbers = coordinates.len();
                return Err(Error::invalid(format!("{numbers} coordinates of points of {dimensions} dimensions")));
            }
            let count = [(coordinates.len() / dimensions) as u64];
            let stride = packed(&count, item)?[0];
            then(Target::Points { coordinates, stride }, bytes_of(&count, item))
        }
    }
}

fn alike(coordinates: usize, step: &[u64], count: &[u64]) -> Result<()> {
    if coordinates == count.len() && step.len() == count.len() && !step.contains(&0) {
        return Ok(());
    }
    let (steps, counts) = (step.len(), count.len());
    Err(Error::invalid(format!(
        "{coordinates} coordinates, {steps} steps and {counts} counts: must be as many, and no step 0"
    )))
}

fn no_view(view: Option<&[u64]>) -> Result<()> {
    match view {
        None => Ok(()),
        Some(_) => Err(Error::invalid("lists and points must be coordinates of the array, not of a view")),
    }
}
