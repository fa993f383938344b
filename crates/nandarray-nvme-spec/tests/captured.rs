//! Promise: hosts of this project send the entries that they have always sent, byte for byte.
//!
//! `captured.txt` has what the binding (`nvme_encode`), the Python client of a drive and the initiator gave when it was
//! recorded; each line is a name and bytes. Every entry of the file is encoded here from its command, and decoded to
//! it.

use std::collections::BTreeMap;

use nandarray_nvme_spec::*;
use zerocopy::{FromBytes, IntoBytes};

/// Identifier of the program that was loaded.
const PROGRAM_ID: u64 = 0x1122_3344_5566_7788;
/// First byte in the memory.
const FIRST: u64 = 0x1_0000_0004;

fn captured() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = include_str!("captured.txt").lines().filter(|line| !line.starts_with('#'));
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    };
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, hex)| (name, bytes(hex))).collect()
}

fn inline(dsid: u32, unit: Unit, coordinate: &[u64], sub: &[u64]) -> NdBox {
    NdBox::inline(dsid, unit, coordinate, sub).unwrap()
}

fn of_binding() -> Vec<(&'static str, NvmeCommand)> {
    let fua = |blocks| Blocks { fua: true, ..blocks };
    let paged = NdBox { fua: true, ..NdBox::paged(9, Unit::Element, 4) };
    let open = |action, space| NvmeCommand::OpenSpace { action, space };
    vec![
        ("flush", NvmeCommand::Flush { nsid: 1 }),
        ("write", NvmeCommand::Write(fua(Blocks::new(1, 0x0001_0203_0405_0607, 8)))),
        ("read", NvmeCommand::Read(Blocks::new(2, 5, 65536))),
        ("compare", NvmeCommand::Compare(Blocks::new(1, 3, 1))),
        ("write_zeroes", NvmeCommand::WriteZeroes { blocks: Blocks::new(1, 7, 9), deac: true }),
        ("dataset_management", NvmeCommand::DatasetManagement { nsid: 1, nr_z: 1, ad: true }),
        ("copy", NvmeCommand::Copy { nsid: 1, sdlba: 0x100, nr_z: 1, fua: true }),
        ("open_by_name", open(OpenAction::OpenByName, 0)),
        ("open_by_id", open(OpenAction::Open, 5)),
        ("create", open(OpenAction::Create, 0)),
        ("resize", open(OpenAction::Resize, 9)),
        ("space_information", NvmeCommand::SpaceInformation { dsid: 9 }),
        ("close", NvmeCommand::CloseSpace { dsid: 9 }),
        ("delete", NvmeCommand::DeleteSpace { space: 1 << 33 }),
        ("nd_read", NvmeCommand::NdRead(inline(9, Unit::Partition, &[1, 2, 3], &[64, 65, 66]))),
        ("nd_read_elements", NvmeCommand::NdRead(inline(9, Unit::Element, &[1], &[64]))),
        ("nd_write", NvmeCommand::NdWrite(paged)),
    ]
}

/// A command of any queue, encoded by its own type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Any {
    Io(NvmeCommand),
    Nd(NdCommand),
    Memory(MemoryCommand),
    Program(ProgramCommand),
    Admin(AdminCommand),
    Fabrics(FabricsCommand),
}

impl Any {
    fn encode(&self) -> SubmissionEntry {
        match self {
            Self::Io(command) => command.encode(0),
            Self::Nd(command) => command.encode(0),
            Self::Memory(command) => command.encode(0),
            Self::Program(command) => command.encode(0),
            Self::Admin(command) => command.encode(0),
            Self::Fabrics(command) => command.encode(0),
        }
    }

    /// Decodes an entry as a command of the same type.
    fn decode(&self, entry: &SubmissionEntry) -> Result<Self, Status> {
        match self {
            Self::Io(_) => NvmeCommand::decode(entry).map(Self::Io),
            Self::Nd(_) => NdCommand::decode(entry).map(Self::Nd),
            Self::Memory(_) => MemoryCommand::decode(entry).map(Self::Memory),
            Self::Program(_) => ProgramCommand::decode(entry).map(Self::Program),
            Self::Admin(_) => AdminCommand::decode(entry).map(Self::Admin),
            Self::Fabrics(_) => FabricsCommand::decode(entry).map(Self::Fabrics),
        }
    }
}

/// A part of the program of 70000 bytes in slot 3.
fn part(bytes: u32, offset: u32) -> Any {
    let load = ProgramLoad::Part { ptype: PROGRAM_TYPE_RISCV, size: 70000, id: PROGRAM_ID, bytes, offset };
    Any::Admin(AdminCommand::LoadProgram { pind: 3, load })
}

fn of_client() -> Vec<(&'static str, Any)> {
    let elements = |start: &[u64], count: &[u64]| NdPlace::Entry(inline(77, Unit::Element, start, count));
    let box_of = |dsid, ndim| Any::Nd(NdCommand::StoreBox(NdBox::paged(dsid, Unit::Element, ndim)));
    let stored = NdPlace::Stored { handle: 0, fua: false };
    let delete = Any::Nd(NdCommand::DeleteBox { handle: 0 });
    let execute = ExecuteProgram { pind: 3, ranges: 3, data_bytes: 112, tag: 7, ..ExecuteProgram::default() };
    let activate = |action| Any::Admin(AdminCommand::ActivateProgram { pind: 3, action });
    let unload = AdminCommand::LoadProgram { pind: 3, load: ProgramLoad::Unload };
    let account = LogRequest { specific: 9, ..LogRequest::new(LogPage::Execution, 4096) };
    vec![
        ("names.0", Any::Admin(AdminCommand::GetLogPage(LogRequest::new(LogPage::Names, 1 << 16)))),
        ("flush.0", Any::Io(NvmeCommand::Flush { nsid: NSID_ALL })),
        ("load.0", part(1 << 16, 0)),
        ("load.1", part(70000 - (1 << 16), 1 << 16)),
        ("load.2", activate(Activation::Activate)),
        ("memory_write.0", Any::Memory(MemoryCommand::Write { first: FIRST, bytes: 8 })),
        ("memory_read.0", Any::Memory(MemoryCommand::Read { first: FIRST, bytes: 8 })),
        ("read.0", Any::Nd(NdCommand::Read(elements(&[1, 2], &[2, 1])))),
        ("write.0", Any::Nd(NdCommand::Write(elements(&[1, 2], &[2, 1])))),
        ("box.0", box_of(77, 2)),
        ("read4.0", box_of(78, 4)),
        ("read4.1", Any::Nd(NdCommand::Read(stored))),
        ("read4.2", delete),
        ("write4.0", Any::Nd(NdCommand::Write(NdPlace::Data(NdBox::paged(78, Unit::Element, 4))))),
        ("execute.0", box_of(77, 2)),
        ("execute.1", Any::Memory(MemoryCommand::Write { first: 64, bytes: 4 })),
        ("execute.2", Any::Program(ProgramCommand::Execute(execute))),
        ("execute.3", delete),
        ("account.0", Any::Admin(AdminCommand::GetLogPage(account))),
        ("unload.0", activate(Activation::Deactivate)),
        ("unload.1", Any::Admin(unload)),
    ]
}

fn of_initiator() -> Vec<(&'static str, Any, DataDescriptor)> {
    let connect =
        |qid, sqsize_z| FabricsCommand::Connect(ConnectFields { recfmt: 0, qid, sqsize_z, cattr: 0, kato_ms: 0 });
    let value = ControllerConfiguration::ENABLED.bits().into();
    let (four, one) = (PropertyWidth::Four, QueueCounts { submission_z: 0, completion_z: 0 });
    let inside = |bytes| DataDescriptor { location: DataLocation::Capsule { offset: 0 }, bytes };
    let outside = |bytes| DataDescriptor { location: DataLocation::Transport, bytes };
    let set = FabricsCommand::PropertySet { offset: Property::CC, width: four, value };
    let get = FabricsCommand::PropertyGet { offset: Property::CSTS, width: four };
    vec![
        ("plain.0.0", Any::Fabrics(connect(0, 31)), inside(1024)),
        ("plain.0.1", Any::Fabrics(set), outside(0)),
        ("plain.0.2", Any::Fabrics(get), outside(0)),
        ("plain.0.3", Any::Admin(AdminCommand::SetFeatures(FeatureChange::Queues(one))), outside(0)),
        ("plain.1.0", Any::Fabrics(connect(1, 127)), inside(1024)),
        ("auth.0.1", Any::Fabrics(FabricsCommand::AuthSend(AuthFields::new(72))), inside(72)),
        ("auth.0.2", Any::Fabrics(FabricsCommand::AuthReceive(AuthFields::new(4096))), outside(4096)),
    ]
}

#[test]
fn entries_are_those_that_were_captured() {
    let captured = captured();
    let binding = of_binding().into_iter().map(|(name, command)| (format!("binding.{name}"), Any::Io(command), None));
    let client = of_client().into_iter().map(|(name, command)| (format!("remote.{name}"), command, None));
    let initiator =
        of_initiator().into_iter().map(|(name, command, data)| (format!("initiator.{name}"), command, Some(data)));
    let mut seen = Vec::new();
    for (name, command, data) in binding.chain(client).chain(initiator) {
        let bytes = captured.get(name.as_str()).unwrap_or_else(|| panic!("{name}"));
        let mut entry = command.encode();
        assert_eq!(command.decode(&SubmissionEntry::read_from_bytes(bytes).unwrap()), Ok(command), "{name}");
        if let Some(data) = data {
            data.encode(&mut entry);
            assert_eq!(DataDescriptor::decode(&entry), data);
        }
        assert_eq!(entry.as_bytes(), bytes, "{name}");
        seen.push(name);
    }
    let missing: Vec<_> = captured.keys().filter(|name| !seen.iter().any(|one| one == *name)).collect();
    let data =
        ["binding.copy.data", "binding.dataset_management.data", "binding.nd_write.page", "remote.execute.2.data"];
    assert_eq!(missing, data.iter().collect::<Vec<_>>());
}

#[test]
fn ranges_and_coordinates_are_those_that_were_captured() {
    let captured = captured();
    let same = |name: &str, bytes: &[u8]| {
        let wanted = &captured[name];
        let (begin, end) = bytes.split_at(wanted.len());
        assert_eq!(begin, wanted, "{name}");
        assert!(end.iter().all(|&byte| byte == 0), "{name}");
    };
    let dsm = |slba: u64, nlb: u32| DsmRange { slba: slba.into(), nlb: nlb.into(), ..DsmRange::default() };
    same("binding.dataset_management.data", [dsm(5, 6), dsm(7, 8)].as_bytes());
    same("binding.copy.data", [CopyRange::new(5, 5), CopyRange::new(9, 1)].as_bytes());
    same("binding.nd_write.page", BoxPage::new(&[1, 2, 3, 1 << 40], &[64, 65, 66, 67]).as_bytes());
    let ranges = [
        MemoryRange::new(NSID_ND, 0, 0),
        MemoryRange::new(NSID_MEMORY, 64, 3),
        MemoryRange::new(NSID_MEMORY, 68, 4096),
    ];
    same("remote.execute.2.data", &[ranges.as_bytes(), [5u64, u64::MAX].as_bytes()].concat());
}
