//! Typed NVMe commands, and their conversion from and to submission entries.
//!
//! Opcodes and fields of flush, write, read, compare, write zeroes, dataset management and copy are those of the NVM
//! command set specification 1.0, section 3. The N-D commands are vendor specific commands, whose opcodes encode the
//! direction of data transfer as the base specification demands. The NDS paper marks them by a reserved bit of command
//! dword 0, but operating systems refuse to submit a command with such a bit, so here the opcode marks them. Everything
//! else is as in the paper: the second command word points to the page with the coordinates, unless these fit into the
//! entry.
//!
//! Decoding rejects reserved values that would change the meaning (fused commands, a reserved PSDT, another copy
//! descriptor format), and ignores all other fields without a counterpart in the types below, such as hints and
//! protection information.

use crate::entry::SubmissionEntry;
use crate::status::Status;

/// Opcodes of I/O commands.
#[derive(Clone, Copy, Debug)]
pub struct Opcode;

impl Opcode {
    /// Opcode of Flush.
    pub const FLUSH: u8 = 0x00;
    /// Opcode of Write.
    pub const WRITE: u8 = 0x01;
    /// Opcode of Read.
    pub const READ: u8 = 0x02;
    /// Opcode of Compare.
    pub const COMPARE: u8 = 0x05;
    /// Opcode of Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Opcode of Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Opcode of Copy.
    pub const COPY: u8 = 0x19;
    /// Opcode of N-D Write.
    pub const ND_WRITE: u8 = 0x81;
    /// Opcode of N-D Read.
    pub const ND_READ: u8 = 0x82;
    /// Opcode of Open Space.
    pub const OPEN_SPACE: u8 = 0x85;
    /// Opcode of Space Information.
    pub const SPACE_INFORMATION: u8 = 0x86;
    /// Opcode of Close Space.
    pub const CLOSE_SPACE: u8 = 0x88;
    /// Opcode of Delete Space.
    pub const DELETE_SPACE: u8 = 0x8c;
}

/// The range of logical blocks of a read, write, compare or write zeroes command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Namespace identifier.
    pub nsid: u32,
    /// Address of the first logical block.
    pub slba: u64,
    /// Number of logical blocks minus one.
    pub nlb_z: u16,
    /// Force unit access: the data is durable when the command completes.
    pub fua: bool,
    /// Limited retry; ignored.
    pub lr: bool,
}

/// The bytes of a write's blocks that are written, where they are not whole blocks: of queues in shared memory alone,
/// in dwords 13 and 14, which are those of protection information elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPart {
    /// First byte, from the beginning of the first block on.
    pub skip: u32,
    /// Number of bytes; 0 for all bytes of the blocks.
    pub bytes: u32,
}

impl BlockPart {
    /// Reads the part from the entry of a write.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> Self {
        Self { skip: entry.cdw(13), bytes: entry.cdw(14) }
    }

    /// Writes the part into the entry of a write.
    #[inline]
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.set_cdw(13, self.skip);
        entry.set_cdw(14, self.bytes);
    }
}

/// The action of an open space command before the view is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAction {
    /// No action: the space with the identifier in the command is opened.
    Open = 0,
    /// No action: the space with the name in the page is opened.
    OpenByName = 1,
    /// The space described in the page is created.
    Create = 2,
    /// The space with the identifier in the command is resized to the dimensionality in the page.
    Resize = 3,
}

impl OpenAction {
    /// Returns the action in an entry of Open Space; `None` for a reserved one.
    pub fn decode(entry: &SubmissionEntry) -> Option<Self> {
        Some(match entry.cdw(10) & 0xf {
            0 => Self::Open,
            1 => Self::OpenByName,
            2 => Self::Create,
            3 => Self::Resize,
            _ => return None,
        })
    }

    /// Whether the action changes the store.
    pub fn changes(self) -> bool {
        match self {
            Self::Open | Self::OpenByName => false,
            Self::Create | Self::Resize => true,
        }
    }
}

/// The unit of the coordinates of an N-D command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Coordinates count partitions of the size of the sub-dimensionality, as in the NDS paper (equation 5).
    Partition = 0,
    /// Coordinates count elements.
    Element = 1,
}

/// The coordinates of an N-D command, or the place where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// In the submission entry, for up to three dimensions; the values after `ndim` are not used.
    Inline {
        /// Coordinate along each dimension.
        coordinate: [u32; 3],
        /// Sub-dimensionality: the size of the sub-block along each dimension, in elements.
        sub: [u32; 3],
    },
    /// In a [`super::BoxPage`], whose address only the transport interprets.
    Page {
        /// Address in the host's memory of the page with the coordinates.
        pointer: u64,
    },
}

/// The sub-block of a view that an N-D command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdBox {
    /// Dynamic space identifier, which names an open view.
    pub dsid: u32,
    /// Number of dimensions of the view.
    pub ndim: u8,
    /// Unit of the coordinates.
    pub unit: Unit,
    /// Force unit access: written data is durable when the command completes.
    pub fua: bool,
    /// Coordinates of the sub-block, or their place.
    pub coordinates: Coordinates,
}

impl NdBox {
    /// Creates a sub-block whose coordinates are in the submission entry.
    ///
    /// # Errors
    /// Invalid field, for more than three dimensions, numbers of more than 32 bits, or lists of different lengths; such
    /// a sub-block needs a page.
    pub fn inline(dsid: u32, unit: Unit, coordinate: &[u64], sub: &[u64]) -> Result<Self, Status> {
        let pack = |from: &[u64]| -> Result<[u32; 3], Status> {
            let mut to = [0u32; 3];
            let room = to.get_mut(..from.len()).ok_or(Status::INVALID_FIELD)?;
            for (t, &f) in room.iter_mut().zip(from) {
                *t = u32::try_from(f).map_err(|_| Status::INVALID_FIELD)?;
            }
            Ok(to)
        };
        if coordinate.len() != sub.len() {
            return Err(Status::INVALID_FIELD);
        }
        let coordinates = Coordinates::Inline { coordinate: pack(coordinate)?, sub: pack(sub)? };
        Ok(Self { dsid, ndim: sub.len() as u8, unit, fua: false, coordinates })
    }

    /// Creates a sub-block whose coordinates are in a page.
    pub fn paged(dsid: u32, unit: Unit, ndim: u8) -> Self {
        Self { dsid, ndim, unit, fua: false, coordinates: Coordinates::Page { pointer: 0 } }
    }
}

/// An I/O command, with the fields that its submission entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmeCommand {
    /// Makes all earlier writes durable.
    Flush {
        /// Namespace identifier, or [`super::NSID_ALL`]; in either case the whole store is flushed.
        nsid: u32,
    },
    /// Writes logical blocks.
    Write(Blocks),
    /// Reads logical blocks.
    Read(Blocks),
    /// Compares logical blocks with data of the host.
    Compare(Blocks),
    /// Makes logical blocks read as zeroes, and deallocates them.
    WriteZeroes {
        /// Range of logical blocks; limited retry is not used.
        blocks: Blocks,
        /// Deallocate: a hint that makes no difference, as the blocks are always deallocated.
        deac: bool,
    },
    /// Deallocates ranges of logical blocks, or passes hints about them.
    DatasetManagement {
        /// Identifier of the namespace whose blocks are deallocated.
        nsid: u32,
        /// Number of ranges in the command's data, minus one.
        nr_z: u8,
        /// Whether the ranges are deallocated (attribute AD). The other attributes are hints, which are ignored.
        ad: bool,
    },
    /// Copies source ranges, one after the other, to one destination range.
    Copy {
        /// Identifier of the namespace in which blocks are copied.
        nsid: u32,
        /// Address of the first logical block of the destination.
        sdlba: u64,
        /// Number of source ranges in the command's data, minus one.
        nr_z: u8,
        /// Force unit access: the copy is durable when the command completes.
        fua: bool,
    },
    /// Opens a view of a space, which may be created or resized first. Returns the dynamic space identifier in dword 0
    /// and the space's identifier in dword 1.
    OpenSpace {
        /// Action before the view is opened.
        action: OpenAction,
        /// Identifier of the space to open or resize; not used by the actions that open by name or create.
        space: u64,
    },
    /// Returns the description of an open view and its space.
    SpaceInformation {
        /// Dynamic space identifier of the view to describe.
        dsid: u32,
    },
    /// Closes a view.
    CloseSpace {
        /// Dynamic space identifier of the view to close.
        dsid: u32,
    },
    /// Deletes a space, and closes its views.
    DeleteSpace {
        /// Identifier of the space to delete.
        space: u64,
    },
    /// Reads a sub-block of a view.
    NdRead(NdBox),
    /// Writes a sub-block of a view.
    NdWrite(NdBox),
}

const FUA: u32 = 1 << 30;
const LR: u32 = 1 << 31;
const DEAC: u32 = 1 << 25;
const AD: u32 = 1 << 2;
const COPY_FORMAT: u32 = 0xf00;
const ND_ELEMENTS: u32 = 1 << 8;
const ND_PAGE: u32 = 1 << 9;
const ND_DIMENSIONS: u32 = 0x3f;

fn bit(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

impl Blocks {
    /// Creates a range of `nlb` blocks, at least 1 and at most 65536.
    #[inline]
    pub fn new(nsid: u32, slba: u64, nlb: u32) -> Self {
        let nlb_z = nlb.saturating_sub(1).min(u32::from(u16::MAX)) as u16;
        Self { nsid, slba, nlb_z, fua: false, lr: false }
    }

    /// Returns the number of logical blocks, from 1 to 65536.
    #[inline]
    pub fn nlb(&self) -> u64 {
        u64::from(self.nlb_z) + 1
    }

    /// Reads the range from the entry of a command that has one.
    #[inline]
    pub fn decode(entry: &SubmissionEntry) -> Self {
        let word = entry.cdw(12);
        Self {
            nsid: entry.nsid.get(),
            slba: entry.cdw_pair(10),
            nlb_z: word as u16,
            fua: word & FUA != 0,
            lr: word & LR != 0,
        }
    }

    /// Writes the range into an entry.
    #[inline]
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        entry.nsid.set(self.nsid);
        entry.set_cdw_pair(10, self.slba);
        entry.set_cdw(12, u32::from(self.nlb_z) | bit(self.fua, FUA) | bit(self.lr, LR));
    }
}

impl NdBox {
    fn decode(entry: &SubmissionEntry) -> Self {
        let word = entry.cdw(11);
        let coordinates = if word & ND_PAGE != 0 {
            Coordinates::Page { pointer: entry.cdw_pair(2) }
        } else {
            Coordinates::Inline {
                coordinate: [2, 3, 12].map(|n| entry.cdw(n)),
                sub: [13, 14, 15].map(|n| entry.cdw(n)),
            }
        };
        Self {
            dsid: entry.cdw(10),
            ndim: (word & ND_DIMENSIONS) as u8,
            unit: if word & ND_ELEMENTS != 0 { Unit::Element } else { Unit::Partition },
            fua: word & FUA != 0,
            coordinates,
        }
    }

    fn encode(&self, entry: &mut SubmissionEntry) {
        entry.set_cdw(10, self.dsid);
        // More dimensions than the field can hold stay too many.
        let mut word = u32::from(self.ndim).min(ND_DIMENSIONS);
        word |= bit(self.unit == Unit::Element, ND_ELEMENTS) | bit(self.fua, FUA);
        match self.coordinates {
            Coordinates::Page { pointer } => {
                word |= ND_PAGE;
                entry.set_cdw_pair(2, pointer);
            }
            Coordinates::Inline { coordinate, sub } => {
                [2, 3, 12].iter().zip(coordinate).for_each(|(&n, v)| entry.set_cdw(n, v));
                [13, 14, 15].iter().zip(sub).for_each(|(&n, v)| entry.set_cdw(n, v));
            }
        }
        entry.set_cdw(11, word);
    }
}

impl NvmeCommand {
    /// Returns the command's opcode.
    pub fn opcode(&self) -> u8 {
        match self {
            Self::Flush { .. } => Opcode::FLUSH,
            Self::Write(_) => Opcode::WRITE,
            Self::Read(_) => Opcode::READ,
            Self::Compare(_) => Opcode::COMPARE,
            Self::WriteZeroes { .. } => Opcode::WRITE_ZEROES,
            Self::DatasetManagement { .. } => Opcode::DATASET_MANAGEMENT,
            Self::Copy { .. } => Opcode::COPY,
            Self::OpenSpace { .. } => Opcode::OPEN_SPACE,
            Self::SpaceInformation { .. } => Opcode::SPACE_INFORMATION,
            Self::CloseSpace { .. } => Opcode::CLOSE_SPACE,
            Self::DeleteSpace { .. } => Opcode::DELETE_SPACE,
            Self::NdRead(_) => Opcode::ND_READ,
            Self::NdWrite(_) => Opcode::ND_WRITE,
        }
    }

    /// Returns the first logical block that an entry names (SLBA, or SDLBA of a copy); of a command that names none,
    /// any number.
    pub fn first_block(entry: &SubmissionEntry) -> u64 {
        entry.cdw_pair(10)
    }

    /// Decodes a submission entry.
    ///
    /// # Errors
    /// Invalid opcode, or invalid field.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        let (fuse, psdt) = (entry.flags & 3, entry.flags >> 6);
        let nsid = entry.nsid.get();
        let command = match entry.opcode {
            Opcode::FLUSH => Self::Flush { nsid },
            Opcode::WRITE => Self::Write(Blocks::decode(entry)),
            Opcode::READ => Self::Read(Blocks::decode(entry)),
            Opcode::COMPARE => Self::Compare(Blocks::decode(entry)),
            Opcode::WRITE_ZEROES => {
                Self::WriteZeroes { blocks: Blocks::decode(entry), deac: entry.cdw(12) & DEAC != 0 }
            }
            Opcode::DATASET_MANAGEMENT => {
                Self::DatasetManagement { nsid, nr_z: entry.cdw(10) as u8, ad: entry.cdw(11) & AD != 0 }
            }
            Opcode::COPY if entry.cdw(12) & COPY_FORMAT != 0 => return Err(Status::INVALID_FIELD),
            Opcode::COPY => {
                let word = entry.cdw(12);
                Self::Copy { nsid, sdlba: entry.cdw_pair(10), nr_z: word as u8, fua: word & FUA != 0 }
            }
            Opcode::OPEN_SPACE => {
                let action = OpenAction::decode(entry).ok_or(Status::INVALID_FIELD)?;
                Self::OpenSpace { action, space: entry.cdw_pair(12) }
            }
            Opcode::SPACE_INFORMATION => Self::SpaceInformation { dsid: entry.cdw(10) },
            Opcode::CLOSE_SPACE => Self::CloseSpace { dsid: entry.cdw(10) },
            Opcode::DELETE_SPACE => Self::DeleteSpace { space: entry.cdw_pair(12) },
            Opcode::ND_READ => Self::NdRead(NdBox::decode(entry)),
            Opcode::ND_WRITE => Self::NdWrite(NdBox::decode(entry)),
            _ => return Err(Status::INVALID_OPCODE),
        };
        if fuse != 0 || psdt == 3 { Err(Status::INVALID_FIELD) } else { Ok(command) }
    }

    /// Encodes the command as the submission entry of a host, without pointers to data. `cid` is the command
    /// identifier.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let mut entry = SubmissionEntry { opcode: self.opcode(), cid: cid.into(), ..SubmissionEntry::default() };
        match *self {
            Self::Flush { nsid } => entry.nsid.set(nsid),
            Self::Write(blocks) | Self::Read(blocks) | Self::Compare(blocks) => blocks.encode(&mut entry),
            Self::WriteZeroes { blocks, deac } => {
                blocks.encode(&mut entry);
                entry.set_cdw(12, entry.cdw(12) | bit(deac, DEAC));
            }
            Self::DatasetManagement { nsid, nr_z, ad } => {
                entry.nsid.set(nsid);
                entry.set_cdw(10, nr_z.into());
                entry.set_cdw(11, bit(ad, AD));
            }
            Self::Copy { nsid, sdlba, nr_z, fua } => {
                entry.nsid.set(nsid);
                entry.set_cdw_pair(10, sdlba);
                entry.set_cdw(12, u32::from(nr_z) | bit(fua, FUA));
            }
            Self::OpenSpace { action, space } => {
                entry.set_cdw(10, action as u32);
                entry.set_cdw_pair(12, space);
            }
            Self::SpaceInformation { dsid } | Self::CloseSpace { dsid } => entry.set_cdw(10, dsid),
            Self::DeleteSpace { space } => entry.set_cdw_pair(12, space),
            Self::NdRead(nd) | Self::NdWrite(nd) => nd.encode(&mut entry),
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    fn entry(words: &[(usize, u32)]) -> [u8; 64] {
        let mut bytes = [0; 64];
        for &(n, word) in words {
            bytes[4 * n..4 * n + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns commands, each with its submission entry, written dword by dword from the figures of the specification
    /// and not by our encoder.
    fn by_hand() -> Vec<(NvmeCommand, [u8; 64])> {
        let blocks = Blocks { nsid: 1, slba: 0x0001_0203_0405_0607, nlb_z: 7, fua: true, lr: false };
        let lba = [(1, 1), (10, 0x0405_0607), (11, 0x0001_0203)];
        let io = |cdw0: u32, cdw12: u32| entry(&[&[(0, cdw0), (12, cdw12)], &lba[..]].concat());
        let nd = NdBox {
            dsid: 9,
            ndim: 3,
            unit: Unit::Partition,
            fua: false,
            coordinates: Coordinates::Inline { coordinate: [1, 2, 3], sub: [64, 65, 66] },
        };
        let paged = NdBox { fua: true, coordinates: Coordinates::Page { pointer: 0xaabb_ccdd_1122_3344 }, ..nd };
        vec![
            (NvmeCommand::Flush { nsid: u32::MAX }, entry(&[(0, 0xbeef_0000), (1, u32::MAX)])),
            (NvmeCommand::Write(blocks), io(0xbeef_0001, 0x4000_0007)),
            (NvmeCommand::Read(Blocks { fua: false, lr: true, ..blocks }), io(0xbeef_0002, 0x8000_0007)),
            (NvmeCommand::Compare(blocks), io(0xbeef_0005, 0x4000_0007)),
            (NvmeCommand::WriteZeroes { blocks, deac: true }, io(0xbeef_0008, 0x4200_0007)),
            (
                NvmeCommand::DatasetManagement { nsid: 1, nr_z: 255, ad: true },
                entry(&[(0, 0xbeef_0009), (1, 1), (10, 0xff), (11, 4)]),
            ),
            (NvmeCommand::Copy { nsid: 1, sdlba: blocks.slba, nr_z: 3, fua: true }, io(0xbeef_0019, 0x4000_0003)),
            (
                NvmeCommand::OpenSpace { action: OpenAction::Resize, space: 5 },
                entry(&[(0, 0xbeef_0085), (10, 3), (12, 5)]),
            ),
            (NvmeCommand::SpaceInformation { dsid: 9 }, entry(&[(0, 0xbeef_0086), (10, 9)])),
            (NvmeCommand::CloseSpace { dsid: 9 }, entry(&[(0, 0xbeef_0088), (10, 9)])),
            (NvmeCommand::DeleteSpace { space: 1 << 33 }, entry(&[(0, 0xbeef_008c), (13, 2)])),
            (
                NvmeCommand::NdRead(nd),
                entry(&[(0, 0xbeef_0082), (2, 1), (3, 2), (10, 9), (11, 3), (12, 3), (13, 64), (14, 65), (15, 66)]),
            ),
            (
                NvmeCommand::NdWrite(NdBox { unit: Unit::Element, ..paged }),
                entry(&[(0, 0xbeef_0081), (2, 0x1122_3344), (3, 0xaabb_ccdd), (10, 9), (11, 0x4000_0303)]),
            ),
        ]
    }

    #[test]
    fn entries_are_those_of_the_specification() {
        for (command, bytes) in by_hand() {
            assert_eq!(command.encode(0xbeef).as_bytes(), bytes, "{command:?}");
            let entry = SubmissionEntry::read_from_bytes(&bytes).unwrap();
            assert_eq!(NvmeCommand::decode(&entry), Ok(command));
            assert_eq!(entry.cid.get(), 0xbeef);
        }
    }

    #[test]
    fn a_read_as_bytes() {
        // Eight blocks from 0x1000 of namespace 1, command 0x002a.
        let mut bytes = [0u8; 64];
        bytes[..8].copy_from_slice(&[0x02, 0x00, 0x2a, 0x00, 0x01, 0x00, 0x00, 0x00]);
        bytes[40..48].copy_from_slice(&[0x00, 0x10, 0, 0, 0, 0, 0, 0]);
        bytes[48] = 7;
        let command = NvmeCommand::Read(Blocks::new(1, 0x1000, 8));
        assert_eq!(command.encode(42).as_bytes(), bytes);
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let decode = |words: &[(usize, u32)]| {
            NvmeCommand::decode(&SubmissionEntry::read_from_bytes(&entry(words)).unwrap()).unwrap_err()
        };
        assert_eq!(decode(&[(0, 0x0000_0102)]), Status::INVALID_FIELD, "first of a fused pair");
        assert_eq!(decode(&[(0, 0x0000_c002)]), Status::INVALID_FIELD, "PSDT 11b");
        assert_eq!(decode(&[(0, 0x19), (12, 0x100)]), Status::INVALID_FIELD, "copy descriptor format 1");
        assert_eq!(decode(&[(0, 0x85), (10, 4)]), Status::INVALID_FIELD);
        assert_eq!(decode(&[(0, 0x04)]), Status::INVALID_OPCODE, "write uncorrectable");
        assert!(NdBox::inline(1, Unit::Element, &[0; 4], &[1; 4]).is_err());
        assert!(NdBox::inline(1, Unit::Element, &[1 << 32], &[1]).is_err());
        assert!(NdBox::inline(1, Unit::Element, &[1], &[1, 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_entry_is_a_command_or_a_status(bytes in any::<[[u8; 32]; 2]>(), opcode in prop::sample::select(
            vec![0u8, 1, 2, 5, 8, 9, 0x19, 0x81, 0x82, 0x85, 0x86, 0x88, 0x8c, 0x33]
        )) {
            let mut entry = SubmissionEntry::read_from_bytes(bytes.as_flattened()).unwrap();
            entry.opcode = opcode;
            entry.flags &= 0x40;
            if let Ok(command) = NvmeCommand::decode(&entry) {
                // Decoding lost nothing: the entry of the decoded command decodes to the same command.
                prop_assert_eq!(NvmeCommand::decode(&command.encode(1)), Ok(command));
            }
        }
    }
}
