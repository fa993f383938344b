//! Conversion of NVMe commands, dataclasses in Python (`python/nandarray/nvme/commands.py`), to entries and pages, and
//! back.
//!
//! Fields are read by name and checked against their width in the entry; layouts are those of `nandarray-nvme-spec`.
//! Nothing is executed here. Commands of programs and stored boxes are in `nvme_entries`.

use nandarray_nvme_spec::{
    Blocks, BoxPage, CompletionEntry, CopyRange, DsmRange, NdBox, NdCommand, NvmeCommand, Opcode, OpenAction,
    ReplyPart, RequestPart, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, Status, Unit, from_text, text,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use zerocopy::{FromBytes, IntoBytes};

use crate::errors::of_kind;

/// A typed command with the bytes that are transferred with its entry.
struct Encoded {
    command: NvmeCommand,
    /// The command's data, if the data describes ranges or a space; `None` for other commands.
    payload: Option<Vec<u8>>,
    /// The page with coordinates that do not fit in the entry; `None` if they fit.
    page: Option<BoxPage>,
}

impl From<NvmeCommand> for Encoded {
    fn from(command: NvmeCommand) -> Self {
        Self { command, payload: None, page: None }
    }
}

/// Fields of Read, Write, Compare and Write Zeroes commands.
#[derive(FromPyObject)]
struct BlockFields {
    nsid: u32,
    slba: u64,
    nlb: u64,
    fua: bool,
}

/// Fields of a command that reads or writes an N-dimensional box.
#[derive(FromPyObject)]
struct NdFields {
    dsid: u32,
    coordinate: Vec<u64>,
    sub: Vec<u64>,
    elements: bool,
    fua: bool,
}

/// Fields of a command that creates a space.
#[derive(FromPyObject)]
struct CreateFields {
    name: String,
    dims: Vec<u64>,
    itemsize: u32,
    dtype: String,
    building_block: Vec<u64>,
    compression: String,
    encryption_key: Option<Vec<u8>>,
}

/// Encodes a command: its submission entry, its data if the command describes ranges or a space, and its page of
/// coordinates if they do not fit in the entry.
#[pyfunction]
#[pyo3(signature = (command, cid=0))]
pub(crate) fn nvme_encode<'py>(
    command: &Bound<'py, PyAny>,
    cid: u64,
) -> PyResult<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>)> {
    let py = command.py();
    let cid = u16::try_from(cid).map_err(|_| invalid(py, &format!("an identifier must have 16 bits, unlike {cid}")))?;
    let encoded = encode(command).map_err(|error| {
        let name = command.get_type().name().map_or_else(|_| "a command".to_owned(), |name| name.to_string());
        if is_ours(py, &error) { error } else { invalid(py, &format!("a field of {name} does not fit: {error}")) }
    })?;
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let entry = bytes(encoded.command.encode(cid).as_bytes());
    Ok((entry, encoded.payload.as_deref().map(bytes), encoded.page.as_ref().map(|page| bytes(page.as_bytes()))))
}

/// Encodes a part of an array request: the host's tag, the size of the request, the part's first byte, whether the
/// request may change the store, whether it runs programs, and whether their outputs are fetched meanwhile.
#[pyfunction]
#[pyo3(signature = (tag, size, offset, changes, programs, fetches=false))]
pub(crate) fn nvme_request_entry(
    py: Python<'_>,
    tag: u32,
    size: u32,
    offset: u32,
    changes: bool,
    programs: bool,
    fetches: bool,
) -> Bound<'_, PyBytes> {
    let command = NdCommand::ArrayRequest(RequestPart { tag, changes, programs, fetches, size, offset });
    PyBytes::new(py, command.encode(0).as_bytes())
}

/// Encodes the command that fetches the next bytes of an output of the run with a request's tag.
#[pyfunction]
pub(crate) fn nvme_output_entry(py: Python<'_>, tag: u32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, NdCommand::RunOutput { tag }.encode(0).as_bytes())
}

/// Encodes a part of an array reply: its handle, and the part's first byte.
#[pyfunction]
pub(crate) fn nvme_reply_entry(py: Python<'_>, handle: u32, offset: u32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, NdCommand::ArrayReply(ReplyPart { handle, offset }).encode(0).as_bytes())
}

/// Returns the kind of error that a status stands for: the reverse of the engine's table, as far as it has one.
#[pyfunction]
pub(crate) fn nvme_status_kind(status: u16) -> &'static str {
    let found = Status::from_bits(status);
    let is = |of: Status| of.sct() == found.sct() && of.sc() == found.sc();
    let kinds = [
        (Status::INVALID_FIELD, "invalid"),
        (Status::DATA_LENGTH_INVALID, "invalid"),
        (Status::SIZE_LIMIT_EXCEEDED, "invalid"),
        (Status::LBA_OUT_OF_RANGE, "out-of-range"),
        (Status::VOLUME_MISMATCH, "volume-mismatch"),
        (Status::SPACE_NOT_FOUND, "not-found"),
        (Status::SPACE_EXISTS, "exists"),
        (Status::WRITE_PROTECTED, "read-only"),
        (Status::CAPACITY_EXCEEDED, "full"),
        (Status::ACCESS_DENIED, "wrong-key"),
        (Status::NOT_READY, "closed"),
        (Status::INVALID_DSID, "closed"),
        (Status::INTERRUPTED, "busy"),
        (Status::RESOURCES, "busy"),
        (Status::TOO_MANY_VIEWS, "busy"),
        (Status::PROGRAM_FAILED, "execution"),
        (Status::PROGRAM_DATA, "program"),
        (Status::INTERNAL_ERROR, "internal"),
    ];
    kinds.iter().find(|(of, _)| is(*of)).map_or("error", |(_, kind)| kind)
}

/// Returns the status bits, dword 0 and dword 1 of a completion entry.
#[pyfunction]
pub(crate) fn nvme_completion(py: Python<'_>, entry: &[u8]) -> PyResult<(u16, u32, u32)> {
    let entry = CompletionEntry::read_from_bytes(entry)
        .map_err(|_| invalid(py, &format!("a completion entry must have 16 bytes, not {}", entry.len())))?;
    Ok((entry.status().bits(), entry.dw0.get(), entry.dw1.get()))
}

/// Converts the page that a Space Information command returned to a dictionary.
#[pyfunction]
pub(crate) fn nvme_space<'py>(py: Python<'py>, page: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let bytes: Vec<u8> = page.extract()?;
    let (page, _) = SpacePage::read_from_prefix(&bytes)
        .map_err(|_| invalid(py, &format!("a page must have {} bytes, not {}", size_of::<SpacePage>(), bytes.len())))?;
    let wrong = |_| invalid(py, "a page that no space information gave");
    let numbers = |all: &[zerocopy::byteorder::little_endian::U64], n: u8| {
        PyTuple::new(py, all.iter().take(n.into()).map(|v| v.get()).collect::<Vec<_>>())
    };
    let name = &page.name[..usize::from(page.name_bytes.get()).min(SPACE_NAME_BYTES_MAX)];
    let dict = PyDict::new(py);
    dict.set_item("name", text(name).map_err(wrong)?)?;
    dict.set_item("space", page.space.get())?;
    dict.set_item("shape", numbers(&page.shape, page.sdim)?)?;
    dict.set_item("view", numbers(&page.dims, page.ndim)?)?;
    dict.set_item("itemsize", page.item_bytes.get())?;
    dict.set_item("dtype", page.dtype().map_err(|_| invalid(py, "an element type that does not fit the page"))?)?;
    dict.set_item("building_block", numbers(&page.block, page.bdim)?)?;
    dict.set_item("compression", text(&page.compression).map_err(wrong)?)?;
    dict.set_item("encrypted", page.flags.get() & SpaceFlags::ENCRYPTED != 0)?;
    Ok(dict)
}

fn encode(command: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let py = command.py();
    let opcode: u8 = command.getattr("opcode")?.extract()?;
    Ok(match opcode {
        Opcode::FLUSH => NvmeCommand::Flush { nsid: field(command, "nsid")? }.into(),
        Opcode::WRITE => NvmeCommand::Write(blocks(command)?).into(),
        Opcode::READ => NvmeCommand::Read(blocks(command)?).into(),
        Opcode::COMPARE => NvmeCommand::Compare(blocks(command)?).into(),
        Opcode::WRITE_ZEROES => {
            NvmeCommand::WriteZeroes { blocks: blocks(command)?, deac: field(command, "deac")? }.into()
        }
        Opcode::DATASET_MANAGEMENT => {
            let ranges = ranges(command)?;
            let nr_z = zero_based(py, ranges.len() as u64, 1 << 8, "ranges")? as u8;
            let packed = |&(slba, nlb): &(u64, u64)| {
                let nlb = u32::try_from(nlb).map_err(|_| invalid(py, &format!("{nlb} logical blocks of a range")))?;
                Ok(DsmRange { nlb: nlb.into(), slba: slba.into(), ..DsmRange::default() })
            };
            let ranges: Vec<DsmRange> = ranges.iter().map(packed).collect::<PyResult<_>>()?;
            let (nsid, ad) = (field(command, "nsid")?, field(command, "deallocate")?);
            let command = NvmeCommand::DatasetManagement { nsid, nr_z, ad };
            Encoded { command, payload: Some(ranges.as_bytes().to_vec()), page: None }
        }
        Opcode::COPY => {
            let ranges = ranges(command)?;
            let nr_z = zero_based(py, ranges.len() as u64, 1 << 8, "ranges")? as u8;
            let packed = |&(slba, nlb): &(u64, u64)| Ok(CopyRange::new(slba, logical_blocks(py, nlb)?));
            let ranges: Vec<CopyRange> = ranges.iter().map(packed).collect::<PyResult<_>>()?;
            let (nsid, sdlba, fua) = (field(command, "nsid")?, field(command, "sdlba")?, field(command, "fua")?);
            let command = NvmeCommand::Copy { nsid, sdlba, nr_z, fua };
            Encoded { command, payload: Some(ranges.as_bytes().to_vec()), page: None }
        }
        Opcode::OPEN_SPACE => open_space(command)?,
        Opcode::SPACE_INFORMATION => NvmeCommand::SpaceInformation { dsid: field(command, "dsid")? }.into(),
        Opcode::CLOSE_SPACE => NvmeCommand::CloseSpace { dsid: field(command, "dsid")? }.into(),
        Opcode::DELETE_SPACE => NvmeCommand::DeleteSpace { space: field(command, "space")? }.into(),
        Opcode::ND_READ | Opcode::ND_WRITE => {
            let (nd, page) = nd_box(py, &command.extract()?)?;
            let command = if opcode == Opcode::ND_READ { NvmeCommand::NdRead(nd) } else { NvmeCommand::NdWrite(nd) };
            Encoded { command, payload: None, page }
        }
        _ => return Err(invalid(py, &format!("there is no command with opcode {opcode:#04x}"))),
    })
}

fn field<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(command: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    command.getattr(name)?.extract()
}

/// Returns (first logical block, number of blocks) of each range of a command.
fn ranges(command: &Bound<'_, PyAny>) -> PyResult<Vec<(u64, u64)>> {
    let ranges: Vec<Vec<u64>> = field(command, "ranges")?;
    let pair = |range: &Vec<u64>| match range[..] {
        [slba, nlb] => Ok((slba, nlb)),
        _ => Err(invalid(command.py(), "a range is a first block and a number of blocks")),
    };
    ranges.iter().map(pair).collect()
}

fn blocks(command: &Bound<'_, PyAny>) -> PyResult<Blocks> {
    let BlockFields { nsid, slba, nlb, fua } = command.extract()?;
    Ok(Blocks { nsid, slba, nlb_z: logical_blocks(command.py(), nlb)?, fua, lr: false })
}

fn nd_box(py: Python<'_>, fields: &NdFields) -> PyResult<(NdBox, Option<BoxPage>)> {
    let NdFields { dsid, coordinate, sub, elements, fua } = fields;
    if coordinate.len() != sub.len() {
        return Err(invalid(py, &format!("{} coordinates for {} dimensions", coordinate.len(), sub.len())));
    }
    few_dimensions(py, sub)?;
    let unit = if *elements { Unit::Element } else { Unit::Partition };
    let (nd, page) = match NdBox::inline(*dsid, unit, coordinate, sub) {
        Ok(nd) => (nd, None),
        Err(_) => (NdBox::paged(*dsid, unit, sub.len() as u8), Some(BoxPage::new(coordinate, sub))),
    };
    Ok((NdBox { fua: *fua, ..nd }, page))
}

/// Encodes an Open Space command, with the page that describes the space or the view.
fn open_space(command: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let py = command.py();
    let (action, space, fields) = match command.getattr("action")?.extract::<&str>()? {
        "create" => (OpenAction::Create, 0, command.extract::<CreateFields>()?),
        "resize" => (OpenAction::Resize, field(command, "space")?, described("", field(command, "dims")?, None)),
        _ => {
            let (dims, key) = (field(command, "dims")?, field(command, "encryption_key")?);
            let space = command.getattr("space")?;
            match space.extract::<&str>() {
                Ok(name) => (OpenAction::OpenByName, 0, described(name, dims, key)),
                Err(_) => (OpenAction::Open, space.extract()?, described("", dims, key)),
            }
        }
    };
    let page = space_page(py, &fields)?;
    let command = NvmeCommand::OpenSpace { action, space };
    Ok(Encoded { command, payload: Some(page.as_bytes().to_vec()), page: None })
}

/// Builds a space's description with only a name, a shape and a key; other fields are empty.
fn described(name: &str, dims: Vec<u64>, encryption_key: Option<Vec<u8>>) -> CreateFields {
    let (dtype, compression) = (String::new(), String::new());
    CreateFields {
        name: name.to_owned(),
        dims,
        itemsize: 0,
        dtype,
        building_block: vec![],
        compression,
        encryption_key,
    }
}

fn space_page(py: Python<'_>, fields: &CreateFields) -> PyResult<SpacePage> {
    if fields.name.len() > SPACE_NAME_BYTES_MAX {
        let what = format!("a name of {} bytes; the page has room for {SPACE_NAME_BYTES_MAX}", fields.name.len());
        return Err(invalid(py, &what));
    }
    few_dimensions(py, &fields.dims)?;
    few_dimensions(py, &fields.building_block)?;
    let mut page = SpacePage::new(&fields.name, &fields.dims);
    page.item_bytes = fields.itemsize.into();
    page.bdim = fields.building_block.len() as u8;
    page.block.iter_mut().zip(&fields.building_block).for_each(|(to, &from)| to.set(from));
    if !page.set_dtype(&fields.dtype) {
        let (bytes, room) = (fields.dtype.len(), SPACE_NAME_BYTES_MAX - fields.name.len());
        return Err(invalid(py, &format!("an element type of {bytes} bytes; the page has room for {room}")));
    }
    from_text(&mut page.compression, &fields.compression);
    if let Some(key) = &fields.encryption_key {
        let key: &[u8; 32] =
            key[..].try_into().map_err(|_| invalid(py, &format!("a key must have 32 bytes, not {}", key.len())))?;
        page.key = *key;
        page.flags = SpaceFlags::KEY.into();
    }
    Ok(page)
}

fn few_dimensions(py: Python<'_>, numbers: &[u64]) -> PyResult<()> {
    let most = BoxPage::default().sub.len();
    if numbers.len() > most {
        return Err(invalid(py, &format!("{} dimensions; a space has at most {most}", numbers.len())));
    }
    Ok(())
}

fn logical_blocks(py: Python<'_>, nlb: u64) -> PyResult<u16> {
    zero_based(py, nlb, 1 << 16, "logical blocks").map(|nlb_z| nlb_z as u16)
}

/// Converts a count from 1 to `most` to the zero-based value of the entry.
fn zero_based(py: Python<'_>, count: u64, most: u64, what: &str) -> PyResult<u64> {
    if !(1..=most).contains(&count) {
        return Err(invalid(py, &format!("{count} {what}; a command has 1 to {most}")));
    }
    Ok(count - 1)
}

fn invalid(py: Python<'_>, text: &str) -> PyErr {
    of_kind(py, "invalid", text)
}

fn is_ours(py: Python<'_>, error: &PyErr) -> bool {
    error.value(py).hasattr("kind").unwrap_or(false)
}
