//! Log pages: their identifiers, the command that asks for them, and their contents (base 2.0, section 5.16).

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;
use crate::fields::{Bit, DwordBits, Wide, numbers};
use crate::status::Status;

numbers! {
    /// A log page, by its identifier (base 2.0, figure 202; C0h and C1h are the vendor's).
    LogPage {
        /// Supported log pages.
        Supported = 0x00,
        /// Errors.
        Errors = 0x01,
        /// Health.
        Health = 0x02,
        /// Firmware slots.
        Firmware = 0x03,
        /// Changed namespaces.
        Changed = 0x04,
        /// Supported commands and their effects.
        Effects = 0x05,
        /// States of the paths to groups of namespaces ([`PathsHeader`], [`PathsGroup`]).
        Paths = 0x0c,
        /// Supported features and their effects.
        Features = 0x12,
        /// Subsystems that a discovery service knows.
        Discovery = 0x70,
        /// Notification about a reservation ([`crate::ReservationNoticePage`]).
        Reservations = 0x80,
        /// Program slots.
        Programs = 0x82,
        /// Memory range sets.
        RangeSets = 0x84,
        /// Names of arrays ([`NamesPage`]).
        Names = 0xc0,
        /// Account of an execution ([`crate::ExecutionAccount`]).
        Execution = 0xc1,
    }
}

/// Log page identifier (LID; base 2.0, figures 198 to 201).
type Identifier = DwordBits<10, 7, 0>;
/// Groups alone, without their namespaces, of log page 0Ch (RGO, bit 0 of the log specific field).
type GroupsOnly = Bit<10, 8>;
/// Retain asynchronous event (RAE).
type Retain = Bit<10, 15>;
/// Number of dwords minus one (NUMDL, NUMDU).
type DwordsLower = DwordBits<10, 31, 16>;
type DwordsUpper = DwordBits<11, 15, 0>;
/// Log specific identifier (LSI); of accounts, the tag.
type Specific = DwordBits<11, 31, 16>;
/// Offset in bytes (LPOL, LPOU).
type LogOffset = Wide<12>;
/// Command set identifier (CSI).
type CommandSetOf = DwordBits<14, 31, 24>;

/// The fields of Get Log Page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// Identifier of the page ([`LogPage`]).
    pub lid: u8,
    /// Number of dwords minus one.
    pub dwords_z: u32,
    /// First byte of the page that is returned.
    pub offset: u64,
    /// Whether the page stays as unread for events.
    pub retain: bool,
    /// Whether log page 0Ch has groups without their namespaces.
    pub groups_only: bool,
    /// Identifier within the page; of accounts, the execution's tag.
    pub specific: u16,
    /// Command set, of pages that depend on one.
    pub csi: u8,
    /// Namespace, of pages that may be one namespace's.
    pub nsid: u32,
}

impl LogRequest {
    /// Asks for `bytes` bytes of a page from its beginning.
    ///
    /// # Panics
    /// If `bytes` is not a multiple of 4 from 4 to 16 GiB.
    pub fn new(page: LogPage, bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(4) && bytes > 0, "{bytes} bytes of a log page");
        let dwords_z = u32::try_from(bytes / 4 - 1).expect("at most 16 GiB");
        Self { lid: page as u8, dwords_z, ..Self::default() }
    }

    /// Returns the requested number of bytes.
    pub fn bytes(&self) -> u64 {
        (u64::from(self.dwords_z) + 1) * 4
    }

    pub(crate) fn decode(entry: &SubmissionEntry) -> Self {
        Self {
            lid: Identifier::u8(entry),
            dwords_z: DwordsLower::get(entry) | DwordsUpper::get(entry) << 16,
            offset: LogOffset::get(entry),
            retain: Retain::flag(entry),
            groups_only: GroupsOnly::flag(entry),
            specific: Specific::u16(entry),
            csi: CommandSetOf::u8(entry),
            nsid: entry.nsid.get(),
        }
    }

    pub(crate) fn encode(&self, entry: &mut SubmissionEntry) {
        entry.nsid.set(self.nsid);
        Identifier::put(entry, self.lid);
        DwordsLower::put(entry, self.dwords_z & 0xffff);
        DwordsUpper::put(entry, self.dwords_z >> 16);
        LogOffset::put(entry, self.offset);
        Retain::put(entry, self.retain);
        GroupsOnly::put(entry, self.groups_only);
        Specific::put(entry, self.specific);
        CommandSetOf::put(entry, self.csi);
    }
}

/// An entry of log page 01h (errors), 64 bytes (base 2.0, figure 206).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ErrorEntry {
    /// Number of the error since the controller was made, from 1 on; 0 of an entry that is not in use.
    pub count: U64,
    /// Submission queue of the command.
    pub sqid: U16,
    /// Identifier of the command.
    pub cid: U16,
    /// Status field, with the phase tag in bit 0.
    status_phase: U16,
    /// Location of the parameter that is wrong: a byte of the entry; FFFFh if none is known.
    pub location: U16,
    /// First logical block that the error is about.
    pub lba: U64,
    /// Namespace of the command.
    pub nsid: U32,
    reserved28: [[u8; 12]; 3],
}

impl ErrorEntry {
    /// Sets the status of the command.
    pub fn set_status(&mut self, status: Status) {
        self.status_phase.set(status.bits() << 1);
    }
}

/// Log page 02h (health), 512 bytes (base 2.0, figure 207). Counters have 128 bits, of which the lower 64 are in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct HealthPage {
    /// Critical warnings.
    pub warning: u8,
    /// Temperature in kelvin.
    pub temperature: U16,
    /// Spare capacity that is left, in percent.
    pub spare: u8,
    /// Spare capacity below which there is a warning, in percent.
    pub spare_threshold: u8,
    reserved5: [u8; 27],
    /// Data units read: thousands of 512 bytes, rounded up.
    pub units_read: [U64; 2],
    /// Data units written.
    pub units_written: [U64; 2],
    /// Read commands.
    pub reads: [U64; 2],
    /// Write commands.
    pub writes: [U64; 2],
    reserved96: [u8; 16],
    /// Number of times that power was switched on.
    pub power_cycles: [U64; 2],
    /// Hours with power.
    pub power_on_hours: [U64; 2],
    /// Number of times that power went without a notice before.
    pub unsafe_shutdowns: [U64; 2],
    reserved160: [u8; 16],
    /// Number of entries that the error log has had.
    pub errors: [U64; 2],
    reserved192: [[u8; 32]; 10],
}

impl HealthPage {
    /// Creates a page of zeroes.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

const _: () = assert!(size_of::<HealthPage>() == 512 && size_of::<ErrorEntry>() == 64);

/// Log page 03h (firmware slots), 512 bytes (base 2.0, figure 209).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct FirmwarePage {
    /// Active slot, in bits 2:0.
    pub active: u8,
    reserved1: [u8; 7],
    /// Revisions in the slots, in ASCII; zeroes for an empty slot.
    pub revisions: [[u8; 8]; 7],
    reserved64: [[u8; 64]; 7],
}

impl FirmwarePage {
    /// Describes one slot with a revision, which is cut to 8 bytes or filled up with spaces.
    pub fn new(revision: &str) -> Self {
        let mut page = Self::new_zeroed();
        page.active = 1;
        page.revisions[0].fill(b' ');
        page.revisions[0].iter_mut().zip(revision.bytes()).for_each(|(to, from)| *to = from);
        page
    }
}

/// Bits of an entry of log pages 00h, 05h and 12h (base 2.0, figures 204, 211 and 256).
#[derive(Clone, Copy, Debug)]
pub struct SupportedBits;

impl SupportedBits {
    /// The page, command or feature is supported.
    pub const SUPPORTED: u32 = 1;
    /// The command may change logical blocks (LBCC).
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
    /// The feature is one of a namespace.
    pub const OF_NAMESPACE: u32 = 1 << 20;
    /// The feature is one of the controller.
    pub const OF_CONTROLLER: u32 = 1 << 21;
}

/// Log pages 00h and 12h: 4 bytes for each of 256 identifiers ([`SupportedBits`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct SupportedPage {
    /// Bits of each identifier.
    pub of: [U32; 256],
}

impl Default for SupportedPage {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Log page 05h (effects of commands), 4096 bytes: 4 bytes for each opcode ([`SupportedBits`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct EffectsPage {
    /// Bits of each admin command.
    pub admin: [U32; 256],
    /// Bits of each I/O command.
    pub io: [U32; 256],
    reserved2048: [U32; 512],
}

impl Default for EffectsPage {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

const _: () = assert!(size_of::<SupportedPage>() == 1024 && size_of::<EffectsPage>() == 4096);

/// Log page 04h (changed namespaces), 4096 bytes: identifiers in order, then zeroes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ChangedPage {
    /// Namespace identifiers.
    pub nsids: [U32; 1024],
}

impl ChangedPage {
    /// Lists namespaces; those for which there is no room are left out.
    pub fn new<'a>(nsids: impl IntoIterator<Item = &'a u32>) -> Self {
        let mut page = Self::new_zeroed();
        page.nsids.iter_mut().zip(nsids).for_each(|(to, &from)| to.set(from));
        page
    }
}

/// Header of log page 0Ch (states of paths: asymmetric namespace access), 16 bytes (base 2.0, figure 228).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct PathsHeader {
    /// Number of changes of any group.
    pub changes: U64,
    /// Number of groups that follow.
    pub groups: U16,
    reserved10: [u8; 6],
}

/// A group of log page 0Ch, 32 bytes; the identifiers of its namespaces follow, 4 bytes each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct PathsGroup {
    /// Identifier of the group.
    pub group: U32,
    /// Number of namespaces that follow.
    pub namespaces: U32,
    /// Number of changes of this group.
    pub changes: U64,
    /// State of this controller's paths to the group ([`PathState`]).
    pub state: u8,
    reserved17: [u8; 15],
}

/// State of the paths from a controller to a group of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// A host uses these paths before others.
    #[default]
    Optimized = 1,
    /// A host uses these paths while it has no optimized one.
    NonOptimized = 2,
}

const _: () = assert!(size_of::<PathsHeader>() == 16 && size_of::<PathsGroup>() == 32);

/// Header of log page 70h (discovery), 1024 bytes (base 2.0, figure 264); [`crate::DiscoveryEntry`]s follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DiscoveryHeader {
    /// Generation counter, which changes with the page.
    pub generation: U64,
    /// Number of entries.
    pub entries: U64,
    reserved16: [[u8; 16]; 63],
}

impl DiscoveryHeader {
    /// Creates the header of a page that never changes.
    pub fn new(entries: u64) -> Self {
        Self { generation: 1.into(), entries: entries.into(), reserved16: [[0; 16]; 63] }
    }
}

const _: () = assert!(
    size_of::<ErrorEntry>() == 64
        && size_of::<HealthPage>() == 512
        && size_of::<FirmwarePage>() == 512
        && size_of::<SupportedPage>() == 1024
        && size_of::<EffectsPage>() == 4096
        && size_of::<ChangedPage>() == 4096
        && size_of::<DiscoveryHeader>() == 1024
);

/// Log page C0h, the vendor's: the number of names in 4 bytes, then the length of each name in 2 bytes, followed by its
/// UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct NamesPage;

impl NamesPage {
    /// Encodes names.
    ///
    /// # Panics
    /// If a name has more than 65535 bytes.
    pub fn encode(names: &[String]) -> Vec<u8> {
        let mut page = (names.len() as u32).to_le_bytes().to_vec();
        for name in names {
            let bytes = u16::try_from(name.len()).unwrap_or_else(|_| panic!("a name of {} bytes", name.len()));
            page.extend_from_slice(&bytes.to_le_bytes());
            page.extend_from_slice(name.as_bytes());
        }
        page
    }

    /// Decodes a whole page.
    ///
    /// # Errors
    /// Invalid field: the page ends within a name, or a name is not UTF-8.
    pub fn decode(page: &[u8]) -> Result<Vec<String>, Status> {
        fn number<'a, const N: usize>(page: &mut &'a [u8]) -> Result<&'a [u8; N], Status> {
            let (number, rest) = page.split_first_chunk().ok_or(Status::INVALID_FIELD)?;
            *page = rest;
            Ok(number)
        }
        let mut rest = page;
        let count = u32::from_le_bytes(*number(&mut rest)?);
        let mut names = Vec::new();
        for _ in 0..count {
            let bytes = u16::from_le_bytes(*number(&mut rest)?);
            let (name, behind) = rest.split_at_checked(bytes.into()).ok_or(Status::INVALID_FIELD)?;
            names.push(std::str::from_utf8(name).map_err(|_| Status::INVALID_FIELD)?.to_owned());
            rest = behind;
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let names = ["a".to_owned(), String::new(), "ns/1".to_owned(), "ä".repeat(1000)];
        let page = NamesPage::encode(&names);
        assert_eq!(page[..11], [4, 0, 0, 0, 1, 0, b'a', 0, 0, 4, 0]);
        assert_eq!(NamesPage::decode(&page).as_deref(), Ok(&names[..]));
        for end in 0..page.len() {
            assert_eq!(NamesPage::decode(&page[..end]), Err(Status::INVALID_FIELD), "{end} bytes");
        }
    }

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let offsets = [
            (offset_of!(ErrorEntry, status_phase), 12),
            (offset_of!(ErrorEntry, location), 14),
            (offset_of!(ErrorEntry, lba), 16),
            (offset_of!(ErrorEntry, nsid), 24),
            (offset_of!(HealthPage, temperature), 1),
            (offset_of!(HealthPage, spare_threshold), 4),
            (offset_of!(HealthPage, units_read), 32),
            (offset_of!(HealthPage, units_written), 48),
            (offset_of!(HealthPage, reads), 64),
            (offset_of!(HealthPage, writes), 80),
            (offset_of!(HealthPage, errors), 176),
            (offset_of!(FirmwarePage, revisions), 8),
            (offset_of!(EffectsPage, io), 1024),
            (offset_of!(DiscoveryHeader, entries), 8),
        ];
        for (i, (found, wanted)) in offsets.into_iter().enumerate() {
            assert_eq!(found, wanted, "field {i}");
        }
    }
}
