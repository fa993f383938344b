//! Commands of the admin queue, beside fabrics commands (base 2.0, section 5).

use crate::entry::SubmissionEntry;
use crate::features::{Feature, FeatureChange, FeatureSelect};
use crate::fields::{DwordBits, numbers};
use crate::identify::Cns;
use crate::logs::LogRequest;
use crate::programs::{Activation, ProgramLoad, RangeSetAction};
use crate::status::Status;

numbers! {
    /// Opcodes of admin commands (base 2.0, figure 138).
    AdminOpcode {
        /// Get Log Page.
        GetLogPage = 0x02,
        /// Identify.
        Identify = 0x06,
        /// Abort.
        Abort = 0x08,
        /// Set Features.
        SetFeatures = 0x09,
        /// Get Features.
        GetFeatures = 0x0a,
        /// Asynchronous Event Request.
        AsyncEvent = 0x0c,
        /// Keep Alive.
        KeepAlive = 0x18,
        /// Load Program.
        LoadProgram = 0x85,
        /// Program Activation Management.
        ActivateProgram = 0x88,
        /// Memory Range Set Management.
        MemoryRangeSet = 0x89,
    }
}

/// Data structure that Identify returns (CNS; base 2.0, figure 273).
type IdentifyCns = DwordBits<10, 7, 0>;
/// Command set of Identify (CSI).
type IdentifyCsi = DwordBits<11, 31, 24>;
/// Submission queue of the command to abort (SQID; base 2.0, figure 143).
type AbortedQueue = DwordBits<10, 15, 0>;
/// Identifier of the command to abort (CID).
type AbortedCommand = DwordBits<10, 31, 16>;

/// A command of the admin queue, with the fields that its submission entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Returns a part of a log page.
    GetLogPage(LogRequest),
    /// Returns a description of the controller or of namespaces.
    Identify {
        /// Requested data structure.
        cns: Cns,
        /// Command set, of data structures that depend on one.
        csi: u8,
        /// Namespace, or the one after which a list begins.
        nsid: u32,
    },
    /// Aborts a command.
    Abort {
        /// Submission queue of the command.
        sqid: u16,
        /// Identifier of the command.
        cid: u16,
    },
    /// Sets a feature.
    SetFeatures(FeatureChange),
    /// Returns the value of a feature.
    GetFeatures {
        /// The feature.
        feature: Feature,
        /// Requested value.
        select: FeatureSelect,
        /// Namespace, of features that each namespace has.
        nsid: u32,
    },
    /// Asks for an event: completes when there is one.
    AsyncEvent,
    /// Keeps the association alive.
    KeepAlive,
    /// Loads a part of a program, or unloads it.
    LoadProgram {
        /// Index of the program.
        pind: u16,
        /// Part of the program.
        load: ProgramLoad,
    },
    /// Activates or deactivates a program.
    ActivateProgram {
        /// Index of the program.
        pind: u16,
        /// Whether it is activated.
        action: Activation,
    },
    /// Creates or deletes a memory range set.
    MemoryRangeSet(RangeSetAction),
}

impl AdminCommand {
    /// Returns the command's opcode.
    pub fn opcode(&self) -> AdminOpcode {
        match self {
            Self::GetLogPage(_) => AdminOpcode::GetLogPage,
            Self::Identify { .. } => AdminOpcode::Identify,
            Self::Abort { .. } => AdminOpcode::Abort,
            Self::SetFeatures(_) => AdminOpcode::SetFeatures,
            Self::GetFeatures { .. } => AdminOpcode::GetFeatures,
            Self::AsyncEvent => AdminOpcode::AsyncEvent,
            Self::KeepAlive => AdminOpcode::KeepAlive,
            Self::LoadProgram { .. } => AdminOpcode::LoadProgram,
            Self::ActivateProgram { .. } => AdminOpcode::ActivateProgram,
            Self::MemoryRangeSet(_) => AdminOpcode::MemoryRangeSet,
        }
    }

    /// Decodes a submission entry.
    ///
    /// # Errors
    /// Invalid opcode. Invalid field: Identify of an unknown data structure, an unknown feature, or a reserved
    /// selection of its values.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        Ok(match AdminOpcode::of(entry.opcode).ok_or(Status::INVALID_OPCODE)? {
            AdminOpcode::GetLogPage => Self::GetLogPage(LogRequest::decode(entry)),
            AdminOpcode::Identify => {
                let cns = Cns::of(IdentifyCns::u8(entry)).ok_or(Status::INVALID_FIELD)?;
                Self::Identify { cns, csi: IdentifyCsi::u8(entry), nsid: entry.nsid.get() }
            }
            AdminOpcode::Abort => Self::Abort { sqid: AbortedQueue::u16(entry), cid: AbortedCommand::u16(entry) },
            AdminOpcode::SetFeatures => Self::SetFeatures(FeatureChange::decode(entry)?),
            AdminOpcode::GetFeatures => {
                let (feature, select) = (Feature::decode(entry)?, FeatureSelect::decode(entry)?);
                Self::GetFeatures { feature, select, nsid: entry.nsid.get() }
            }
            AdminOpcode::AsyncEvent => Self::AsyncEvent,
            AdminOpcode::KeepAlive => Self::KeepAlive,
            AdminOpcode::LoadProgram => {
                let (pind, load) = ProgramLoad::decode(entry);
                Self::LoadProgram { pind, load }
            }
            AdminOpcode::ActivateProgram => {
                let (pind, action) = Activation::decode(entry);
                Self::ActivateProgram { pind, action }
            }
            AdminOpcode::MemoryRangeSet => Self::MemoryRangeSet(RangeSetAction::decode(entry)),
        })
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(self.opcode() as u8, 0, cid);
        match *self {
            Self::GetLogPage(request) => request.encode(&mut entry),
            Self::Identify { cns, csi, nsid } => {
                entry.nsid.set(nsid);
                IdentifyCns::put(&mut entry, cns as u8);
                IdentifyCsi::put(&mut entry, csi);
            }
            Self::Abort { sqid, cid } => {
                AbortedQueue::put(&mut entry, sqid);
                AbortedCommand::put(&mut entry, cid);
            }
            Self::SetFeatures(change) => change.encode(&mut entry),
            Self::GetFeatures { feature, select, nsid } => {
                entry.nsid.set(nsid);
                feature.encode(&mut entry);
                select.encode(&mut entry);
            }
            Self::AsyncEvent | Self::KeepAlive => {}
            Self::LoadProgram { pind, load } => load.encode(pind, &mut entry),
            Self::ActivateProgram { pind, action } => action.encode(pind, &mut entry),
            Self::MemoryRangeSet(action) => action.encode(&mut entry),
        }
        entry
    }

    /// Whether Get Features with this feature and this selection returns data.
    pub fn returns_data(&self) -> bool {
        matches!(self, Self::GetFeatures { feature, select, .. }
            if feature.has_data() && *select != FeatureSelect::Capabilities)
    }

    /// Whether an entry of the admin queue transfers no data, though its opcode says a direction: this depends on
    /// fields of Set and Get Features, Load Program and Memory Range Set Management.
    pub fn transfers_nothing(entry: &SubmissionEntry) -> bool {
        let command = Self::decode(entry);
        match AdminOpcode::of(entry.opcode) {
            // The one feature that a host gives by data cannot be changed.
            Some(AdminOpcode::SetFeatures) => true,
            Some(AdminOpcode::GetFeatures) => !command.is_ok_and(|command| command.returns_data()),
            _ => matches!(
                command,
                Ok(Self::LoadProgram { load: ProgramLoad::Unload, .. }
                    | Self::MemoryRangeSet(RangeSetAction::Delete { .. }))
            ),
        }
    }
}
