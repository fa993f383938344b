//! Commands of all queues by their opcodes, and what each of them may change.
//!
//! A command exists if it is known here: an opcode is looked up by [`IoCommand::of`] or [`admin_opcode`], and answered
//! with "invalid opcode" otherwise; fields are decoded by `nandarray-nvme-spec`. Both say by a match without a default
//! what a command may change, by which a read-only export refuses it, a completed write is settled, and the log of
//! command effects describes it.

use nandarray_nvme_spec::{
    AdminOpcode, CommandSet, MemoryOpcode, NdCommand, NdOpcode, Opcode, OpenAction, ProgramOpcode, ReservationOpcode,
    SubmissionEntry,
};

/// The part of the drive that a command may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEffect {
    /// Nothing that another host sees: the command reads, or changes views and boxes of its own controller.
    Nothing,
    /// The subsystem's own state: programs, range sets, Subsystem Local Memory.
    Subsystem,
    /// Registrants and reservation of a namespace, and no content of it.
    Registrants,
    /// The store.
    Store,
    /// The store if the command's action creates or resizes a space, or if it says so, and nothing otherwise.
    StoreByAction,
    /// The places of its outputs: Subsystem Local Memory, or arrays of the store. The execution checks each output.
    Outputs,
}

/// A command of an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoCommand {
    Flush,
    Write,
    Read,
    Compare,
    WriteZeroes,
    DatasetManagement,
    Copy,
    ReservationRegister,
    ReservationReport,
    ReservationAcquire,
    ReservationRelease,
    NdWrite,
    NdRead,
    OpenSpace,
    SpaceInformation,
    CloseSpace,
    DeleteSpace,
    StoreBox,
    DeleteBox,
    ArrayRequest,
    ArrayReply,
    RunOutput,
    MemoryCopy,
    MemoryRead,
    MemoryFill,
    MemoryWrite,
    ExecuteProgram,
}

impl IoCommand {
    /// Returns the command that an opcode means in a command set; `None` if it means none. `nd` is whether there are
    /// N-D commands, which have opcodes in two command sets.
    pub(crate) fn of(csi: u8, opcode: u8, nd: bool) -> Option<Self> {
        let found = match csi {
            CommandSet::NVM => {
                Self::of_blocks(opcode).or_else(|| Self::of_registrants(opcode)).or_else(|| Self::of_views(opcode))
            }
            CommandSet::MEMORY => Self::of_memory(opcode),
            CommandSet::PROGRAMS => ProgramOpcode::of(opcode).map(|ProgramOpcode::Execute| Self::ExecuteProgram),
            CommandSet::ND => match opcode {
                NdOpcode::STORE_BOX => Some(Self::StoreBox),
                NdOpcode::DELETE_BOX => Some(Self::DeleteBox),
                NdOpcode::ARRAY_REQUEST => Some(Self::ArrayRequest),
                NdOpcode::ARRAY_REPLY => Some(Self::ArrayReply),
                NdOpcode::RUN_OUTPUT => Some(Self::RunOutput),
                opcode if opcode & NdOpcode::VENDOR != 0 => None,
                opcode => Self::of_views(opcode | NdOpcode::VENDOR),
            },
            _ => None,
        };
        found.filter(|command| nd || !command.is_nd())
    }

    fn of_blocks(opcode: u8) -> Option<Self> {
        Some(match opcode {
            Opcode::FLUSH => Self::Flush,
            Opcode::WRITE => Self::Write,
            Opcode::READ => Self::Read,
            Opcode::COMPARE => Self::Compare,
            Opcode::WRITE_ZEROES => Self::WriteZeroes,
            Opcode::DATASET_MANAGEMENT => Self::DatasetManagement,
            Opcode::COPY => Self::Copy,
            _ => return None,
        })
    }

    fn of_registrants(opcode: u8) -> Option<Self> {
        Some(match ReservationOpcode::of(opcode)? {
            ReservationOpcode::Register => Self::ReservationRegister,
            ReservationOpcode::Report => Self::ReservationReport,
            ReservationOpcode::Acquire => Self::ReservationAcquire,
            ReservationOpcode::Release => Self::ReservationRelease,
        })
    }

    fn of_views(opcode: u8) -> Option<Self> {
        Some(match opcode {
            Opcode::ND_WRITE => Self::NdWrite,
            Opcode::ND_READ => Self::NdRead,
            Opcode::OPEN_SPACE => Self::OpenSpace,
            Opcode::SPACE_INFORMATION => Self::SpaceInformation,
            Opcode::CLOSE_SPACE => Self::CloseSpace,
            Opcode::DELETE_SPACE => Self::DeleteSpace,
            _ => return None,
        })
    }

    fn of_memory(opcode: u8) -> Option<Self> {
        Some(match MemoryOpcode::of(opcode)? {
            MemoryOpcode::Copy => Self::MemoryCopy,
            MemoryOpcode::Read => Self::MemoryRead,
            MemoryOpcode::Fill => Self::MemoryFill,
            MemoryOpcode::Write => Self::MemoryWrite,
        })
    }

    /// Whether the command is one of the N-D commands, which a subsystem may leave out.
    fn is_nd(self) -> bool {
        match self {
            Self::NdWrite | Self::NdRead | Self::OpenSpace | Self::SpaceInformation | Self::CloseSpace => true,
            Self::DeleteSpace | Self::StoreBox | Self::DeleteBox => true,
            Self::ArrayRequest | Self::ArrayReply | Self::RunOutput => true,
            Self::Flush | Self::Write | Self::Read | Self::Compare | Self::WriteZeroes => false,
            Self::DatasetManagement | Self::Copy | Self::ExecuteProgram => false,
            Self::MemoryCopy | Self::MemoryRead | Self::MemoryFill | Self::MemoryWrite => false,
            Self::ReservationRegister | Self::ReservationReport => false,
            Self::ReservationAcquire | Self::ReservationRelease => false,
        }
    }

    /// Returns what the command may change, whatever its fields.
    pub(crate) fn effect(self) -> CommandEffect {
        match self {
            Self::Flush | Self::Read | Self::Compare => CommandEffect::Nothing,
            Self::NdRead | Self::SpaceInformation | Self::CloseSpace => CommandEffect::Nothing,
            Self::StoreBox | Self::DeleteBox | Self::MemoryRead => CommandEffect::Nothing,
            Self::ArrayReply | Self::RunOutput | Self::ReservationReport => CommandEffect::Nothing,
            Self::ReservationRegister | Self::ReservationAcquire => CommandEffect::Registrants,
            Self::ReservationRelease => CommandEffect::Registrants,
            Self::MemoryCopy | Self::MemoryFill | Self::MemoryWrite => CommandEffect::Subsystem,
            Self::Write | Self::WriteZeroes | Self::DatasetManagement | Self::Copy => CommandEffect::Store,
            Self::NdWrite | Self::DeleteSpace => CommandEffect::Store,
            Self::OpenSpace | Self::ArrayRequest => CommandEffect::StoreByAction,
            Self::ExecuteProgram => CommandEffect::Outputs,
        }
    }

    /// Returns what the command may change with the fields of this entry, never [`CommandEffect::StoreByAction`].
    pub(crate) fn effect_of(self, entry: &SubmissionEntry) -> CommandEffect {
        let changes = || match self {
            Self::ArrayRequest => matches!(NdCommand::decode(entry), Ok(NdCommand::ArrayRequest(part)) if part.changes),
            // A reserved action is refused when the command is decoded, in a store that may be written.
            _ => OpenAction::decode(entry).is_none_or(OpenAction::changes),
        };
        let effect = match self.effect() {
            CommandEffect::StoreByAction if changes() => CommandEffect::Store,
            CommandEffect::StoreByAction => CommandEffect::Nothing,
            effect => effect,
        };
        assert_ne!(effect, CommandEffect::StoreByAction, "{self:?} depends on its fields, which are known");
        effect
    }

    /// Whether the command is on the reservation of a namespace.
    pub(crate) fn is_of_registrants(self) -> bool {
        matches!(self, Self::ReservationRegister | Self::ReservationReport)
            || matches!(self, Self::ReservationAcquire | Self::ReservationRelease)
    }

    /// Whether the command names logical blocks, the first of them in dwords 10 and 11.
    pub(crate) fn names_blocks(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Compare | Self::WriteZeroes | Self::Copy)
    }
}

/// Returns the command of the admin queue that an opcode means; `None` if it means none. `programs` is whether there
/// are commands of programs, which a subsystem may leave out.
pub(crate) fn admin_opcode(opcode: u8, programs: bool) -> Option<AdminOpcode> {
    let found = AdminOpcode::of(opcode)?;
    let is_of_programs = match found {
        AdminOpcode::LoadProgram | AdminOpcode::ActivateProgram | AdminOpcode::MemoryRangeSet => true,
        AdminOpcode::GetLogPage | AdminOpcode::Identify | AdminOpcode::Abort | AdminOpcode::SetFeatures => false,
        AdminOpcode::GetFeatures | AdminOpcode::AsyncEvent | AdminOpcode::KeepAlive => false,
    };
    (programs || !is_of_programs).then_some(found)
}

/// Returns what a command of the admin queue may change.
pub(crate) fn admin_effect(opcode: AdminOpcode) -> CommandEffect {
    match opcode {
        AdminOpcode::GetLogPage | AdminOpcode::Identify | AdminOpcode::Abort => CommandEffect::Nothing,
        AdminOpcode::GetFeatures | AdminOpcode::SetFeatures => CommandEffect::Nothing,
        AdminOpcode::AsyncEvent | AdminOpcode::KeepAlive => CommandEffect::Nothing,
        AdminOpcode::LoadProgram | AdminOpcode::ActivateProgram => CommandEffect::Subsystem,
        AdminOpcode::MemoryRangeSet => CommandEffect::Subsystem,
    }
}
