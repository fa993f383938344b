//! The identity that a store has as a drive: 16 bytes, from which names and serial numbers of NVMe are made.
//!
//! A copy of a store's file has the store's identifier (`Device::uuid`), and would be the same drive to a host that is
//! connected to both. Therefore the identity is that of the file: by default the identifier encrypted with the number
//! of the file ([`crate::media::FileState::key`]), which differs for any two files and stays when a file is renamed or
//! the machine starts again. When the store is first served, identity and number are recorded in the head of the file:
//!
//! ```text
//! offset 16384 | magic, CRC-32C | number of the file | identity |     64 bytes, zeroes until then
//! ```
//!
//! A record with another file's number came with a copy, with a backup or from another disk. Then the identity is a new
//! one, unless the earlier one is requested. A store in no file has its identifier as its identity.
//! Reasons: `docs/design/011-identity-of-a-served-file.md`.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Device;
use crate::error::{Error, Result};
use crate::flash::crc32c;
use crate::ftl::room::SPARE;
use crate::media::{Media, SECTOR_BYTES};

/// Offset in the file of the record: after superblocks and marks.
const PLACE: u64 = 16_384;
const _: () = assert!(PLACE + SECTOR_BYTES as u64 <= SPARE.start, "the spare is zeroed on a full disk");
const MAGIC: [u8; 8] = *b"NANDIDEN";

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct IdentityWire {
    magic: [u8; 8],
    crc: U32,
    _padding: U32,
    file: [u8; 16],
    identity: [u8; 16],
    _reserved: [u8; 16],
}

const WIRE_BYTES: usize = size_of::<IdentityWire>();
const _: () = assert!(WIRE_BYTES == 64 && WIRE_BYTES <= SECTOR_BYTES);

/// The identity that a store is to be served with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityChoice {
    /// The file's own: the recorded one, or a new one if the record is of another file.
    Own,
    /// The recorded one, also if the record is of another file.
    Kept,
    /// A new one.
    New,
}

/// The record in a store's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IdentityRecord {
    /// Number of the file that the record is of.
    file: [u8; 16],
    identity: [u8; 16],
}

impl IdentityRecord {
    /// Reads the record; `None` if there is none, or a damaged one.
    fn read(media: &dyn Media) -> Option<Self> {
        let mut bytes = [0; WIRE_BYTES];
        if PLACE + WIRE_BYTES as u64 > media.len() || media.read_at(PLACE, &mut bytes).is_err() {
            return None;
        }
        let wire = IdentityWire::read_from_bytes(&bytes).expect("the record has its size");
        let intact = wire.magic == MAGIC && wire.crc.get() == crc32c(&bytes[12..]);
        intact.then_some(Self { file: wire.file, identity: wire.identity })
    }

    /// Writes the record, without a barrier.
    fn write(&self, media: &dyn Media) -> Result<()> {
        let mut wire = IdentityWire {
            magic: MAGIC,
            crc: U32::new(0),
            _padding: U32::new(0),
            file: self.file,
            identity: self.identity,
            _reserved: [0; 16],
        };
        wire.crc = U32::new(crc32c(&wire.as_bytes()[12..]));
        media.write_at(PLACE, wire.as_bytes())
    }
}

/// Returns the identity of a store's file: a permutation of the file's number, so that no two files of a store have the
/// same one.
fn derived(uuid: [u8; 16], file: [u8; 16]) -> [u8; 16] {
    let mut block = aes::Block::from(file);
    aes::Aes128::new(&uuid.into()).encrypt_block(&mut block);
    block.into()
}

/// Returns the identity of a store on a medium, and that of the record if it is of another file.
pub(super) fn identity_of(uuid: [u8; 16], media: &dyn Media) -> ([u8; 16], Option<[u8; 16]>) {
    let record = IdentityRecord::read(media);
    match (media.file_state(), record) {
        (Some(file), Some(record)) if record.file == file.key => (record.identity, None),
        (Some(file), record) => (derived(uuid, file.key), record.map(|record| record.identity)),
        (None, record) => (record.map_or(uuid, |record| record.identity), None),
    }
}

impl Device {
    /// Returns the identity that the store has as a drive.
    pub fn identity(&self) -> [u8; 16] {
        *self.identity.lock()
    }

    /// Chooses the identity that the store has as a drive, before it is served, and records it in the file if the store
    /// is open for writing. Returns the identity in an earlier record that was another file's, if that is given up:
    /// those who knew the store by it must know.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a new identity of a store that is open for reading; [`Error::Invalid`] if there is none
    /// to keep; errors of the medium when the choice cannot be recorded. The store's own identity needs no record.
    pub fn choose_identity(&self, choice: IdentityChoice) -> Result<Option<[u8; 16]>> {
        let _inside = self.enter()?;
        let media = self.ftl.media().as_ref();
        let mut now = self.identity.lock();
        let (own, other) = identity_of(self.uuid, media);
        let file = media.file_state().map(|file| file.key);
        let chosen = match choice {
            IdentityChoice::Own => own,
            IdentityChoice::Kept => match IdentityRecord::read(media) {
                Some(record) => record.identity,
                None => return Err(Error::invalid("the store was never served: there is no identity to keep")),
            },
            IdentityChoice::New if self.read_only => return Err(Error::ReadOnly),
            IdentityChoice::New => {
                let mut new = [0; 16];
                new[..8].copy_from_slice(&self.ftl.draw().to_le_bytes());
                new[8..].copy_from_slice(&self.ftl.draw().to_le_bytes());
                new
            }
        };
        let record = IdentityRecord { file: file.unwrap_or_default(), identity: chosen };
        let known = IdentityRecord::read(media) == Some(record);
        if !known && !self.read_only && (file.is_some() || choice == IdentityChoice::New) {
            // A failed barrier is remembered, since earlier writes may be lost by it.
            match record.write(media).and_then(|()| self.sync()) {
                // A full disk, for instance: the next start finds the same identity without a record.
                Err(_) if choice == IdentityChoice::Own => {}
                written => written?,
            }
        }
        *now = chosen;
        Ok(other.filter(|_| choice == IdentityChoice::Own))
    }

    /// Returns what the system says of the store's file now; `None` of a store in no file.
    pub fn file_state(&self) -> Option<crate::media::FileState> {
        self.ftl.media().file_state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Options};

    fn served(path: &std::path::Path, mode: Mode, choice: IdentityChoice) -> Result<([u8; 16], Option<[u8; 16]>)> {
        let device = Device::open_file(path, mode, &Options::default())?;
        let before = device.choose_identity(choice)?;
        let now = device.identity();
        device.close()?;
        Ok((now, before))
    }

    #[test]
    fn a_copy_of_a_file_is_another_drive_and_a_renamed_file_the_same() {
        use IdentityChoice::{Kept, New, Own};
        let dir = tempfile::tempdir().unwrap();
        let [one, two, three, far] = ["one", "two", "three", "far"].map(|name| dir.path().join(name));
        let (never, _) = served(&one, Mode::Append, Own).unwrap();
        let unserved = dir.path().join("unserved");
        Device::open_file(&unserved, Mode::Append, &Options::default()).unwrap().close().unwrap();
        let twin = dir.path().join("twin");
        std::fs::copy(&unserved, &twin).unwrap();
        let twins = [&unserved, &twin].map(|path| served(path, Mode::ReadWrite, Own).unwrap());
        assert!(twins[0].0 != twins[1].0 && twins[0].1.is_none() && twins[1].1.is_none(), "{twins:?}");
        // Served again, for reading and under another name: the same.
        std::fs::rename(&one, &far).unwrap();
        for mode in [Mode::ReadWrite, Mode::Read] {
            assert_eq!(served(&far, mode, Own).unwrap(), (never, None));
        }
        // A copy is reported once; read-only it is reported each time, and is the same drive each time.
        std::fs::copy(&far, &two).unwrap();
        let (copied, before) = served(&two, Mode::Read, Own).unwrap();
        assert!(copied != never && before == Some(never));
        assert_eq!(served(&two, Mode::Read, Own).unwrap(), (copied, Some(never)));
        assert_eq!(served(&two, Mode::ReadWrite, Own).unwrap(), (copied, Some(never)));
        assert_eq!(served(&two, Mode::ReadWrite, Own).unwrap(), (copied, None));
        // A restored backup may keep the identity, and has it from then on; and any file may get a new one.
        std::fs::copy(&far, &three).unwrap();
        assert_eq!(served(&three, Mode::ReadWrite, Kept).unwrap(), (never, None));
        assert_eq!(served(&three, Mode::Read, Own).unwrap(), (never, None));
        assert!(matches!(served(&three, Mode::Read, New), Err(Error::ReadOnly)));
        let (new, _) = served(&three, Mode::ReadWrite, New).unwrap();
        assert!(new != never && new != copied);
        assert_eq!(served(&three, Mode::Read, Own).unwrap(), (new, None));
    }

    #[test]
    fn a_full_disk_leaves_the_identity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let (new, _) = served(&path, Mode::Append, IdentityChoice::New).unwrap();
        let device = Device::open_file(&path, Mode::ReadWrite, &Options::default()).unwrap();
        let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(device.ftl.release_spare(&Error::Media { op: "write", offset: 0, len: 64, source }));
        device.close().unwrap();
        drop(device); // with its lock
        assert_eq!(served(&path, Mode::ReadWrite, IdentityChoice::Own).unwrap(), (new, None));
    }
}
