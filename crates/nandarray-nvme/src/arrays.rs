//! The requests of [`ArrayRequests`](crate::requests::ArrayRequests) on arrays, and their execution on the store.
//!
//! A request is a JSON object whose `do` names what is done; numbers of arrays are the store's ([`SpaceId`]), and
//! coordinates, values, attributes and keys lie in the data behind the text, as [`DataPiece`]s: a first byte and a
//! length. This file or the store's own commands check everything, as for any caller. Programs are in `offload`.

use std::sync::Arc;

use nandarray::names::{GROUP_MARKER, check_chosen_name};
use nandarray::nvme::{ArrayAccess, Elements, MOVE_BYTES_MAX, append_elements, read_elements, write_elements};
use nandarray::{Axis, Change, Device, NewSpace, Space, SpaceId, command};
use nandarray_runtime::Error;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::offload::{self, OffloadRequest};
use crate::programs::Surroundings;
use crate::registrants::SpaceUse;
use crate::requests::Message;

/// First byte and length of a part of the data behind a request's or reply's text.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct DataPiece(usize, usize);

impl DataPiece {
    /// Returns the bytes of a part; an error if the data has no such part.
    pub(crate) fn of<'a>(&self, data: &'a [u8]) -> Result<&'a [u8], Error> {
        let found = self.0.checked_add(self.1).and_then(|end| data.get(self.0..end));
        found.ok_or_else(|| invalid(format!("{} bytes at {} of {} bytes of data", self.1, self.0, data.len())))
    }

    /// Appends bytes to the data of a reply; returns their place.
    pub(crate) fn put(data: &mut Vec<u8>, bytes: &[u8]) -> Self {
        Self::put_all(data, std::iter::once(bytes))
    }

    /// Appends bytes that follow each other to the data of a reply; returns their place.
    pub(crate) fn put_all<'a>(data: &mut Vec<u8>, parts: impl Iterator<Item = &'a [u8]>) -> Self {
        let first = data.len();
        parts.for_each(|part| data.extend_from_slice(part));
        Self(first, data.len() - first)
    }

    fn numbers(&self, data: &[u8]) -> Result<Vec<u64>, Error> {
        let (numbers, rest) = self.of(data)?.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(invalid(format!("{} bytes of coordinates; each must have 8", self.1)));
        }
        Ok(numbers.iter().map(|&number| u64::from_le_bytes(number)).collect())
    }
}

/// The coordinates along one dimension: a run (first one, distance, number), or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum AxisGiven {
    Run([u64; 3]),
    List { list: DataPiece },
}

/// Memory that the engine takes for each of several boxes or elements, with its coordinates, in bytes.
const PLAN_BYTES: u64 = 96;

/// The elements that a request moves ([`Elements`]).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ElementsGiven {
    Box { start: Vec<u64>, step: Vec<u64>, count: Vec<u64> },
    Boxes { starts: DataPiece, step: Vec<u64>, count: Vec<u64> },
    Outer(Vec<AxisGiven>),
    Points(DataPiece),
}

/// The array that a request makes ([`NewSpace`]).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewArrayGiven {
    name: String,
    shape: Vec<u64>,
    itemsize: u32,
    dtype: String,
    building_block: Option<Vec<u64>>,
    compression: Option<String>,
    key: Option<DataPiece>,
    fill: Option<DataPiece>,
    attrs: DataPiece,
}

impl ElementsGiven {
    /// Returns the memory of a plan of the elements: that of each box or element by itself.
    fn plan_bytes(&self, data: &[u8]) -> u64 {
        match self {
            Self::Box { .. } | Self::Outer(_) => 0,
            Self::Boxes { starts, step, .. } => starts.1 as u64 / 8 / (step.len() as u64).max(1) * PLAN_BYTES,
            Self::Points(_) => self.count(data) * PLAN_BYTES,
        }
    }

    /// Returns the number of the elements.
    fn count(&self, data: &[u8]) -> u64 {
        let product = |counts: &[u64]| counts.iter().fold(1u64, |all, &n| all.saturating_mul(n));
        match self {
            Self::Box { count, .. } => product(count),
            Self::Boxes { starts, step, count } => {
                product(count).saturating_mul(starts.1 as u64 / 8 / (step.len() as u64).max(1))
            }
            Self::Outer(axes) => axes.iter().fold(1, |all: u64, axis| {
                all.saturating_mul(match axis {
                    AxisGiven::Run([_, _, count]) => *count,
                    AxisGiven::List { list } => list.1 as u64 / 8,
                })
            }),
            // At least one coordinate each: of a scalar there is one element.
            Self::Points(coordinates) => (coordinates.1.min(data.len()) as u64 / 8).max(1),
        }
    }
}

/// A request of a host.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ArrayRequest {
    /// Names of arrays that begin with `prefix`.
    Names {
        prefix: String,
    },
    /// The description of an array, by its name or its number.
    Describe {
        name: Option<String>,
        array: Option<SpaceId>,
    },
    /// Unlocks an encrypted array with its key.
    Unlock {
        array: SpaceId,
        key: DataPiece,
    },
    Create(NewArrayGiven),
    /// Deletes arrays, then renames arrays (from, to), then replaces attributes (name, text), all as one.
    Change {
        delete: Vec<String>,
        rename: Vec<(String, String)>,
        attrs: Vec<(String, DataPiece)>,
    },
    SetAttrs {
        array: SpaceId,
        attrs: DataPiece,
    },
    Resize {
        array: SpaceId,
        shape: Vec<u64>,
    },
    /// Grows one dimension and writes the new part, whose shape is `count`.
    Append {
        array: SpaceId,
        axis: usize,
        count: Vec<u64>,
        values: DataPiece,
    },
    Deallocate {
        array: SpaceId,
        start: Vec<u64>,
        count: Vec<u64>,
    },
    /// Use of space of an array.
    Stat {
        array: SpaceId,
    },
    Read {
        array: SpaceId,
        elements: ElementsGiven,
        view: Option<Vec<u64>>,
    },
    Write {
        array: SpaceId,
        elements: ElementsGiven,
        view: Option<Vec<u64>>,
        values: DataPiece,
    },
    Offload(OffloadRequest),
}

pub(crate) fn invalid(text: String) -> Error {
    nandarray::Error::Invalid(text).into()
}

impl ArrayRequest {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(text).map_err(|error| invalid(format!("a request that a drive does not know: {error}")))
    }

    /// Whether the request changes the store.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Names { .. } | Self::Describe { .. } | Self::Unlock { .. } | Self::Stat { .. } => false,
            Self::Read { .. } => false,
            Self::Create(_) | Self::Change { .. } | Self::SetAttrs { .. } | Self::Resize { .. } => true,
            Self::Append { .. } | Self::Deallocate { .. } | Self::Write { .. } => true,
            Self::Offload(request) => request.writes(),
        }
    }

    /// Returns the arrays that the request reads or changes; none for what it only tells of them, and for one that it
    /// makes.
    pub(crate) fn uses(&self, device: &Device) -> Vec<(SpaceId, SpaceUse)> {
        match self {
            Self::Names { .. } | Self::Describe { .. } | Self::Unlock { .. } | Self::Stat { .. } => Vec::new(),
            Self::Create(_) => Vec::new(),
            Self::Change { delete, rename, attrs } => {
                let renamed = rename.iter().map(|(from, _)| from);
                let names = delete.iter().chain(renamed).chain(attrs.iter().map(|(name, _)| name));
                names.filter_map(|name| Some((device.describe(name).ok()?.id, SpaceUse::Write))).collect()
            }
            Self::Read { array, .. } => vec![(*array, SpaceUse::Read)],
            Self::SetAttrs { array, .. } | Self::Resize { array, .. } => vec![(*array, SpaceUse::Write)],
            Self::Append { array, .. } | Self::Deallocate { array, .. } => vec![(*array, SpaceUse::Write)],
            Self::Write { array, .. } => vec![(*array, SpaceUse::Write)],
            Self::Offload(request) => request.uses().collect(),
        }
    }

    /// Returns the bytes of data in the reply, as far as the request tells; outputs of programs count as they come.
    pub(crate) fn reply_bytes(&self, device: &Device, data: &[u8]) -> u64 {
        let Self::Read { array, elements, .. } = self else { return 0 };
        let item = device.by_id(*array).map_or(0, |space| space.shape.item_bytes as u64);
        elements.count(data).saturating_mul(item).min(MOVE_BYTES_MAX)
    }

    /// Returns the memory that a read or write of the elements takes beside them, in bytes.
    pub(crate) fn plan_bytes(&self, data: &[u8]) -> u64 {
        match self {
            Self::Read { elements, .. } | Self::Write { elements, .. } => elements.plan_bytes(data),
            _ => 0,
        }
    }

    pub(crate) fn runs_programs(&self) -> bool {
        matches!(self, Self::Offload(_))
    }
}

/// Executes a request; returns its reply, a message.
pub(crate) fn execute(at: &Surroundings<'_>, request: ArrayRequest, data: &[u8]) -> Result<Vec<u8>, Error> {
    let device = at.runtime.device();
    assert!(at.writable || !request.changes(), "a request that changes a read-only store was let through");
    let done = json!({});
    Ok(match request {
        ArrayRequest::Names { prefix } => {
            let mut names = device.execute(command::List { prefix: &prefix })?;
            names.retain(|name| at.tenant.reads(name));
            Message::join(&json!({ "names": names }), &[])
        }
        ArrayRequest::Describe { name, array } => described(&*found(at, name.as_deref(), array)?),
        ArrayRequest::Unlock { array, key } => {
            let space = found(at, None, Some(array))?;
            space.unlock(Some(key.of(data)?))?;
            at.unlocked.add(array);
            described(&space)
        }
        ArrayRequest::Create(new) => created(at, &new, data)?,
        ArrayRequest::Change { delete, rename, attrs } => {
            change(at, &delete, &rename, &attrs, data)?;
            Message::join(&done, &[])
        }
        ArrayRequest::SetAttrs { array, attrs } => {
            let (space, attrs) = (writable(at, array)?, attributes(&attrs, data)?);
            device.execute(command::SetAttrs { space: space.id, attrs })?;
            Message::join(&done, &[])
        }
        ArrayRequest::Resize { array, shape } => {
            let space = writable(at, array)?;
            device.execute(command::Resize { space: array, shape: &shape })?;
            described(&space)
        }
        ArrayRequest::Append { array, axis, count, values } => {
            let space = writable(at, array)?;
            append_elements(device, &space, axis, &count, values.of(data)?)?;
            described(&space)
        }
        ArrayRequest::Deallocate { array, start, count } => {
            let space = writable(at, array)?;
            device.execute(command::Deallocate { space: space.id, start: &start, count: &count })?;
            Message::join(&done, &[])
        }
        ArrayRequest::Stat { array } => {
            let array = found(at, None, Some(array))?.id;
            let stat: serde_json::Map<_, _> = (device.execute(command::StatSpace { space: array })?.into_iter())
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            Message::join(&stat, &[])
        }
        ArrayRequest::Read { array, elements, view } => {
            let elements = named(elements, data)?;
            let found = read_elements(device, &*unlocked(at, array)?, &elements, view.as_deref())?;
            Message::join(&done, &found)
        }
        ArrayRequest::Write { array, elements, view, values } => {
            let elements = named(elements, data)?;
            write_elements(device, &*writable(at, array)?, &elements, view.as_deref(), values.of(data)?)?;
            Message::join(&done, &[])
        }
        ArrayRequest::Offload(_) if !at.programs => {
            return Err(invalid("this drive runs no programs of this host".to_owned()));
        }
        ArrayRequest::Offload(request) => offload::execute(at, &request, data)?,
    })
}

/// Makes the array of a request; returns its description.
fn created(at: &Surroundings<'_>, new: &NewArrayGiven, data: &[u8]) -> Result<Vec<u8>, Error> {
    check_new(&new.name, &new.shape)?;
    check_made(at, &new.name)?;
    let space = at.runtime.device().execute(command::Create(NewSpace {
        name: &new.name,
        shape: &new.shape,
        item_bytes: new.itemsize,
        dtype: &new.dtype,
        block: new.building_block.as_deref(),
        compression: new.compression.as_deref(),
        key: new.key.as_ref().map(|key| key.of(data)).transpose()?,
        fill: new.fill.as_ref().map(|fill| fill.of(data)).transpose()?,
        attrs: attributes(&new.attrs, data)?,
    }))?;
    at.unlocked.add(space.id);
    Ok(described(&space))
}

/// Returns an array that the host may know of; to others it is none.
fn found(at: &Surroundings<'_>, name: Option<&str>, array: Option<SpaceId>) -> Result<Arc<Space>, Error> {
    let device = at.runtime.device();
    let space = match (name, array) {
        (Some(name), None) if !at.tenant.reads(name) => return Err(missing(name)),
        (Some(name), None) => device.describe(name)?,
        (None, Some(array)) => device.by_id(array)?,
        _ => return Err(invalid("an array must have a name or a number".to_owned())),
    };
    let name = space.peek().record.name.clone();
    match array {
        _ if at.tenant.reads(&name) => Ok(space),
        None => Err(missing(&name)),
        // As the engine answers to the number of an array that was deleted.
        Some(_) => Err(nandarray::Error::Closed("the array was deleted".to_owned()).into()),
    }
}

fn missing(name: &str) -> Error {
    nandarray::Error::NotFound { name: name.to_owned() }.into()
}

/// Refuses a name that the host may not give to an array.
fn check_made(at: &Surroundings<'_>, name: &str) -> Result<(), Error> {
    let refused = || nandarray::Error::Protected { name: name.to_owned() }.into();
    if at.tenant.writes(name) { Ok(()) } else { Err(refused()) }
}

/// Refuses a change of arrays that the host may only read, or not know of.
fn check_writes(at: &Surroundings<'_>, name: &str) -> Result<(), Error> {
    if at.tenant.reads(name) { check_made(at, name) } else { Err(missing(name)) }
}

/// Whether there is an array of this number that the host may know of.
pub(crate) fn is_known(at: &Surroundings<'_>, array: SpaceId) -> bool {
    found(at, None, Some(array)).is_ok()
}

/// Returns an array whose elements the host may use.
fn unlocked(at: &Surroundings<'_>, array: SpaceId) -> Result<Arc<Space>, Error> {
    let space = found(at, None, Some(array))?;
    at.unlocked.check(&space)?;
    Ok(space)
}

/// Returns an array that the host may change.
fn writable(at: &Surroundings<'_>, array: SpaceId) -> Result<Arc<Space>, Error> {
    let space = unlocked(at, array)?;
    let name = space.peek().record.name.clone();
    check_writes(at, &name)?;
    Ok(space)
}

/// Checks that the host may use the arrays that a run of programs reads, and change those that it writes.
pub(crate) fn check_run(
    at: &Surroundings<'_>,
    mut uses: impl Iterator<Item = (SpaceId, SpaceUse)>,
) -> Result<(), Error> {
    uses.try_for_each(|(array, what)| match what {
        SpaceUse::Read => unlocked(at, array).map(drop),
        SpaceUse::Write => writable(at, array).map(drop),
    })
}

/// Returns attributes that a host gives. Their readers parse them: Python's JSON has NaN, which this side's has not.
fn attributes<'a>(piece: &DataPiece, data: &'a [u8]) -> Result<&'a str, Error> {
    let text = std::str::from_utf8(piece.of(data)?).map_err(|error| invalid(format!("attributes: {error}")))?;
    if text.starts_with('{') && text.ends_with('}') {
        return Ok(text);
    }
    Err(invalid("attributes must be a JSON object".to_owned()))
}

fn described(space: &Space) -> Vec<u8> {
    let record = space.peek().record.clone();
    let text = json!({
        "array": record.id,
        "name": record.name,
        "shape": record.shape(),
        "itemsize": record.item_bytes,
        "dtype": record.dtype,
        "building_block": record.block(),
        "compression": record.compression,
        "encrypted": space.encrypted(),
        "attrs": record.attrs,
    });
    Message::join(&text, &record.fill)
}

/// Checks a name that a host gives: one of a user, or that of the hidden array without elements that keeps a group.
fn check_new(name: &str, shape: &[u64]) -> Result<(), Error> {
    match name.rsplit_once('/').unwrap_or(("", name)) {
        ("", GROUP_MARKER) if shape == [0] => Ok(()),
        (group, GROUP_MARKER) if shape == [0] => Ok(check_chosen_name(group)?),
        _ => Ok(check_chosen_name(name)?),
    }
}

fn change(
    at: &Surroundings<'_>,
    delete: &[String],
    rename: &[(String, String)],
    attrs: &[(String, DataPiece)],
    data: &[u8],
) -> Result<(), Error> {
    let device = at.runtime.device();
    for name in delete {
        check_writes(at, name)?;
    }
    for (from, to) in rename {
        check_writes(at, from)?;
        check_made(at, to)?;
        // An array that keeps a group goes with it, under the name that keeps the new one.
        let is_marker = |name: &str| name.rsplit('/').next() == Some(GROUP_MARKER);
        check_new(to, if is_marker(from) && is_marker(to) { &[0] } else { &[] })?;
    }
    let mut changes: Vec<Change<'_>> = delete.iter().map(|name| Change::Delete { name }).collect();
    changes.extend(rename.iter().map(|(from, to)| Change::Rename { from, to }));
    for (name, attrs) in attrs {
        // An array that is renamed is still known by its name before.
        let before = rename.iter().find(|(_, to)| to == name).map_or(name, |(from, _)| from);
        check_writes(at, before)?;
        at.unlocked.check(&*device.describe(before)?)?;
        changes.push(Change::SetAttrs { name, attrs: attributes(attrs, data)? });
    }
    assert_eq!(changes.len(), delete.len() + rename.len() + attrs.len(), "each change is one of the batch");
    Ok(device.execute(command::Batch { changes: &changes })?)
}

/// Returns the elements that a request names, with their coordinates from the data behind it.
fn named(given: ElementsGiven, data: &[u8]) -> Result<Elements, Error> {
    Ok(match given {
        ElementsGiven::Box { start, step, count } => Elements::Box { start, step, count },
        ElementsGiven::Boxes { starts, step, count } => Elements::Boxes { starts: starts.numbers(data)?, step, count },
        ElementsGiven::Outer(axes) => {
            Elements::Outer(axes.iter().map(|axis| axis_of(axis, data)).collect::<Result<_, _>>()?)
        }
        ElementsGiven::Points(coordinates) => Elements::Points(coordinates.numbers(data)?),
    })
}

fn axis_of(axis: &AxisGiven, data: &[u8]) -> Result<Axis, Error> {
    Ok(match axis {
        &AxisGiven::Run([start, step, count]) => Axis::Range { start, step, count },
        AxisGiven::List { list } => Axis::List(list.numbers(data)?),
    })
}
