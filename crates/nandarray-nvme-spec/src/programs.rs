//! Commands of Computational Programs (command set 4) and their structures, modelled on the Computational Programs
//! command set 1.0, sections 3 and 4.
//!
//! Load, activation and range sets are commands of the admin queue, execution is one of the namespace of programs. A
//! host may give an execution a tag, by which the log page of accounts has its outcome.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;
use crate::fields::{Bit, DwordBits, Wide, numbers};
use crate::sets::NSID_PROGRAMS;
use crate::status::Status;

/// Program type of RISC-V programs, in the range for vendors.
pub const PROGRAM_TYPE_RISCV: u8 = 0xc0;
/// Tag of the account of a program's load that failed, in log page C1h; hosts give executions other tags.
pub const LOAD_TAG: u16 = 0xffff;

numbers! {
    /// Opcodes of Computational Programs.
    ProgramOpcode {
        /// Execute Program.
        Execute = 0x01,
    }
}

/// Program index (PIND) of admin commands.
type ProgramIndex = DwordBits<10, 15, 0>;
/// Program type (PTYPE) of Load Program.
type ProgramType = DwordBits<10, 23, 16>;
/// Load Program: the program is unloaded (SEL).
type Unloads = Bit<10, 24>;
/// Size of the whole program in bytes (PSIZE).
type ProgramSize = DwordBits<11, 31, 0>;
/// Program identifier (PID), which the host chooses.
type ProgramIdentifier = Wide<12>;
/// Number of bytes of this part (NUMB).
type PartBytes = DwordBits<14, 31, 0>;
/// First byte of this part in the program (LOFF).
type PartOffset = DwordBits<15, 31, 0>;
/// Action (SEL) of Program Activation Management.
type ActivationSelect = DwordBits<10, 19, 16>;
/// Action (SEL) of Memory Range Set Management.
type RangeSetSelect = DwordBits<10, 3, 0>;
/// Memory range set identifier (RSID) to delete.
type RangeSetIdentifier = DwordBits<10, 31, 16>;
/// Number of ranges of the set to create (NUMR).
type RangeCount = DwordBits<11, 7, 0>;
/// Program index of Execute Program.
type ExecutedIndex = DwordBits<2, 15, 0>;
/// Memory range set of Execute Program; 0 for the ranges in the command's data.
type ExecutedRangeSet = DwordBits<2, 31, 16>;
/// Number of ranges in the data of Execute Program.
type ExecutedRanges = DwordBits<3, 31, 0>;
/// Parameters of Execute Program (CPARAM1, CPARAM2): scalars, if the command's data has none.
type FirstParameter = Wide<10>;
type SecondParameter = Wide<12>;
/// Tag of the execution's account.
type AccountTag = DwordBits<14, 15, 0>;

/// The admin command Load Program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramLoad {
    /// Unloads the program.
    Unload,
    /// Takes a part of a program.
    Part {
        /// Type of the program.
        ptype: u8,
        /// Size of the whole program in bytes.
        size: u32,
        /// Identifier, which the host chooses.
        id: u64,
        /// Number of bytes of this part.
        bytes: u32,
        /// First byte of this part in the program.
        offset: u32,
    },
}

impl ProgramLoad {
    pub(crate) fn decode(entry: &SubmissionEntry) -> (u16, Self) {
        let load = if Unloads::flag(entry) {
            Self::Unload
        } else {
            Self::Part {
                ptype: ProgramType::u8(entry),
                size: ProgramSize::get(entry),
                id: ProgramIdentifier::get(entry),
                bytes: PartBytes::get(entry),
                offset: PartOffset::get(entry),
            }
        };
        (ProgramIndex::u16(entry), load)
    }

    pub(crate) fn encode(&self, pind: u16, entry: &mut SubmissionEntry) {
        ProgramIndex::put(entry, pind);
        match *self {
            Self::Unload => Unloads::put(entry, true),
            Self::Part { ptype, size, id, bytes, offset } => {
                ProgramType::put(entry, ptype);
                ProgramSize::put(entry, size);
                ProgramIdentifier::put(entry, id);
                PartBytes::put(entry, bytes);
                PartOffset::put(entry, offset);
            }
        }
    }
}

/// The action of Program Activation Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The program is deactivated.
    Deactivate,
    /// The program is activated.
    Activate,
    /// Another number, 2 to 15, which is reserved.
    Reserved(u8),
}

impl Activation {
    pub(crate) fn decode(entry: &SubmissionEntry) -> (u16, Self) {
        let action = match ActivationSelect::u8(entry) {
            0 => Self::Deactivate,
            1 => Self::Activate,
            other => Self::Reserved(other),
        };
        (ProgramIndex::u16(entry), action)
    }

    pub(crate) fn encode(&self, pind: u16, entry: &mut SubmissionEntry) {
        ProgramIndex::put(entry, pind);
        let select = match *self {
            Self::Deactivate => 0,
            Self::Activate => 1,
            Self::Reserved(other) => other,
        };
        ActivationSelect::put(entry, select);
    }
}

/// The action of Memory Range Set Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSetAction {
    /// A set of the ranges in the command's data is created.
    Create {
        /// Number of ranges ([`MemoryRange`]).
        ranges: u8,
    },
    /// A set is deleted.
    Delete {
        /// Identifier of the set.
        rsid: u16,
    },
    /// Another number, 2 to 15, which is reserved.
    Reserved(u8),
}

impl RangeSetAction {
    pub(crate) fn decode(entry: &SubmissionEntry) -> Self {
        match RangeSetSelect::u8(entry) {
            0 => Self::Create { ranges: RangeCount::u8(entry) },
            1 => Self::Delete { rsid: RangeSetIdentifier::u16(entry) },
            other => Self::Reserved(other),
        }
    }

    pub(crate) fn encode(&self, entry: &mut SubmissionEntry) {
        match *self {
            Self::Create { ranges } => RangeCount::put(entry, ranges),
            Self::Delete { rsid } => {
                RangeSetSelect::put(entry, 1u8);
                RangeSetIdentifier::put(entry, rsid);
            }
            Self::Reserved(other) => RangeSetSelect::put(entry, other),
        }
    }
}

/// A command of Computational Programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCommand {
    /// Executes a program.
    Execute(ExecuteProgram),
}

/// The fields of Execute Program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecuteProgram {
    /// Index of the program.
    pub pind: u16,
    /// Memory range set; 0 for the ranges in the command's data.
    pub rsid: u16,
    /// Number of ranges ([`MemoryRange`]) at the beginning of the command's data; the program's scalars, 8 bytes each,
    /// are the rest of it.
    pub ranges: u32,
    /// Length of the command's data in bytes, in the lower half of the metadata pointer. A transport knows it, too.
    pub data_bytes: u32,
    /// Scalars of the program, if the command's data has none; none if both are zero.
    pub parameters: [u64; 2],
    /// Tag of the execution's account in log page C1h; 0 for none.
    pub tag: u16,
}

impl ProgramCommand {
    /// Decodes an entry.
    ///
    /// # Errors
    /// Invalid opcode.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        match ProgramOpcode::of(entry.opcode).ok_or(Status::INVALID_OPCODE)? {
            ProgramOpcode::Execute => Ok(Self::Execute(ExecuteProgram {
                pind: ExecutedIndex::u16(entry),
                rsid: ExecutedRangeSet::u16(entry),
                ranges: ExecutedRanges::get(entry),
                data_bytes: entry.mptr.get() as u32,
                parameters: [FirstParameter::get(entry), SecondParameter::get(entry)],
                tag: AccountTag::u16(entry),
            })),
        }
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let Self::Execute(fields) = *self;
        let mut entry = SubmissionEntry::new(ProgramOpcode::Execute as u8, NSID_PROGRAMS, cid);
        ExecutedIndex::put(&mut entry, fields.pind);
        ExecutedRangeSet::put(&mut entry, fields.rsid);
        ExecutedRanges::put(&mut entry, fields.ranges);
        entry.mptr.set(fields.data_bytes.into());
        FirstParameter::put(&mut entry, fields.parameters[0]);
        SecondParameter::put(&mut entry, fields.parameters[1]);
        AccountTag::put(&mut entry, fields.tag);
        entry
    }
}

/// A range of a memory range set or of an execution, 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct MemoryRange {
    /// Namespace: Subsystem Local Memory, a block namespace, or the N-D namespace.
    pub nsid: U32,
    /// Length in bytes; 0 for a whole box.
    pub len: U32,
    /// First byte; in the N-D namespace, the handle of a stored box.
    pub sb: U64,
    reserved16: [u8; 16],
}

impl MemoryRange {
    /// Makes a range of `len` bytes from byte `sb` of a namespace.
    pub fn new(nsid: u32, sb: u64, len: u32) -> Self {
        Self { nsid: nsid.into(), len: len.into(), sb: sb.into(), reserved16: [0; 16] }
    }
}

/// Occupancy of a program slot, in an entry of log page 82h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOccupancy {
    /// No program is loaded.
    Empty = 0,
    /// A program is loaded.
    Loaded = 1,
    /// Some parts of a program have arrived.
    Loading = 2,
}

/// An entry of log page 82h (programs), 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ProgramSlotEntry {
    /// [`SlotOccupancy`] in bits 1:0; bit 2 is set if the program is active.
    state: u8,
    /// Type of the program; 0 of an empty slot.
    pub ptype: u8,
    reserved2: [u8; 6],
    /// Identifier, which the host chose.
    pub id: U64,
    reserved16: [[u8; 16]; 3],
}

impl ProgramSlotEntry {
    /// Describes a slot; an empty one has neither type nor identifier.
    pub fn new(occupancy: SlotOccupancy, is_active: bool, id: u64) -> Self {
        assert!(!is_active || occupancy == SlotOccupancy::Loaded, "{occupancy:?}, and active");
        let ptype = if occupancy == SlotOccupancy::Empty { 0 } else { PROGRAM_TYPE_RISCV };
        Self { state: occupancy as u8 | u8::from(is_active) << 2, ptype, id: id.into(), ..Self::default() }
    }
}

/// An entry of log page 84h (memory range sets), 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct RangeSetEntry {
    /// Identifier of the set.
    pub rsid: U16,
    /// Number of its ranges.
    pub ranges: u8,
    /// 1 if an execution uses the set.
    pub in_use: u8,
    reserved4: [u8; 4],
}

impl RangeSetEntry {
    /// Describes a set.
    pub fn new(rsid: u16, ranges: u8, in_use: bool) -> Self {
        Self { rsid: rsid.into(), ranges, in_use: in_use.into(), ..Self::default() }
    }
}

const _: () =
    assert!(size_of::<MemoryRange>() == 32 && size_of::<ProgramSlotEntry>() == 64 && size_of::<RangeSetEntry>() == 8);

/// Log page C1h, the vendor's: the account of an execution, or of a load that failed.
///
/// On the wire it is text: `outputs A B ... instructions N` for one that ended well, the reason for one that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionAccount {
    /// The execution ended well.
    Done {
        /// Lengths of the outputs: in bytes, of those that are arrays in elements.
        outputs: Vec<u64>,
        /// Number of instructions.
        instructions: u64,
    },
    /// The execution, or the load, failed.
    Failed {
        /// The reason.
        why: String,
    },
}

impl ExecutionAccount {
    /// Returns the text of the page.
    pub fn encode(&self) -> String {
        match self {
            Self::Done { outputs, instructions } => {
                let outputs: Vec<String> = outputs.iter().map(u64::to_string).collect();
                format!("outputs {} instructions {instructions}", outputs.join(" "))
            }
            Self::Failed { why } => why.clone(),
        }
    }

    /// Reads the text of the page, which may be cut where the page ends.
    pub fn decode(text: &str) -> Self {
        Self::done(text).unwrap_or_else(|| Self::Failed { why: text.to_owned() })
    }

    fn done(text: &str) -> Option<Self> {
        let (outputs, instructions) = text.strip_prefix("outputs ")?.split_once(" instructions ")?;
        let outputs = outputs.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self::Done { outputs, instructions: instructions.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_as_it_was_written() {
        for outputs in [vec![], vec![7], vec![0, u64::MAX]] {
            let account = ExecutionAccount::Done { outputs, instructions: 5 };
            assert_eq!(ExecutionAccount::decode(&account.encode()), account);
        }
        for why in ["", "Program Failed", "outputs 7", "outputs x instructions 5", "outputs 7 instructions 5 and more"]
        {
            let account = ExecutionAccount::Failed { why: why.to_owned() };
            assert_eq!(ExecutionAccount::decode(&account.encode()), account);
        }
        let two = ExecutionAccount::Done { outputs: vec![3, 4], instructions: 99 };
        assert_eq!(two.encode(), "outputs 3 4 instructions 99");
    }
}
