//! The record of a store's service as a drive: how often it was served, and how often that ended without a close.
//!
//! ```text
//! offset 16896 | magic, CRC-32C | identity | power cycles, unsafe shutdowns, in service, seconds |  64 bytes
//! ```
//!
//! The record lies in a sector of its own: a torn one loses counts, not the identity. It names the drive's identity:
//! a copy of a file is another drive, with counts of its own. While the store is served the record says so; a close
//! takes that back, and a start that finds it counts an unsafe shutdown. A store that cannot be written, or lies on a
//! full disk, counts in memory alone. The store takes no time: who serves it says for how long it did.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Device;
use crate::error::Result;
use crate::flash::crc32c;
use crate::ftl::room::SPARE;
use crate::media::{Media, SECTOR_BYTES};

/// Offset in the file of the record: the sector behind the identity's.
const PLACE: u64 = 16_896;
const _: () = assert!(PLACE.is_multiple_of(SECTOR_BYTES as u64), "a record is not torn by another's write");
const _: () = assert!(PLACE + SECTOR_BYTES as u64 <= SPARE.start, "the spare is zeroed on a full disk");
const MAGIC: [u8; 8] = *b"NANDSERV";

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ServiceWire {
    magic: [u8; 8],
    crc: U32,
    _padding: U32,
    identity: [u8; 16],
    power_cycles: U32,
    unsafe_shutdowns: U32,
    in_service: U32,
    seconds: U64,
    _reserved: [u8; 12],
}

const WIRE_BYTES: usize = size_of::<ServiceWire>();
const _: () = assert!(WIRE_BYTES == 64 && WIRE_BYTES <= SECTOR_BYTES);

/// Counts of a store's service as a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Number of times that the store began to be served.
    pub power_cycles: u32,
    /// Number of these that did not end by a close of the store.
    pub unsafe_shutdowns: u32,
    /// Time for which it was served, in seconds; what a service that was cut off had not recorded is not in it.
    pub seconds: u64,
}

/// The record in a store's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ServiceRecord {
    counts: ServiceCounts,
    /// Whether the store is served, or was when its process ended.
    in_service: bool,
}

impl ServiceRecord {
    /// Reads the record of a drive; without one, all counts are 0.
    fn read(media: &dyn Media, identity: [u8; 16]) -> Self {
        let mut bytes = [0; WIRE_BYTES];
        if PLACE + WIRE_BYTES as u64 > media.len() || media.read_at(PLACE, &mut bytes).is_err() {
            return Self::default();
        }
        let wire = ServiceWire::read_from_bytes(&bytes).expect("the record has its size");
        if wire.magic != MAGIC || wire.crc.get() != crc32c(&bytes[12..]) || wire.identity != identity {
            return Self::default();
        }
        let counts = ServiceCounts {
            power_cycles: wire.power_cycles.get(),
            unsafe_shutdowns: wire.unsafe_shutdowns.get(),
            seconds: wire.seconds.get(),
        };
        Self { counts, in_service: wire.in_service.get() != 0 }
    }

    /// Writes the record, without a barrier.
    fn write(&self, media: &dyn Media, identity: [u8; 16]) -> Result<()> {
        let mut wire = ServiceWire {
            magic: MAGIC,
            crc: U32::new(0),
            _padding: U32::new(0),
            identity,
            power_cycles: self.counts.power_cycles.into(),
            unsafe_shutdowns: self.counts.unsafe_shutdowns.into(),
            in_service: u32::from(self.in_service).into(),
            seconds: self.counts.seconds.into(),
            _reserved: [0; 12],
        };
        wire.crc = U32::new(crc32c(&wire.as_bytes()[12..]));
        media.write_at(PLACE, wire.as_bytes())
    }
}

impl Device {
    /// Counts that the store begins to be served, in its file where that is possible; returns the counts with this one.
    ///
    /// # Errors
    /// The store is closed, or failed.
    pub fn begin_service(&self) -> Result<ServiceCounts> {
        let _inside = self.enter()?;
        let (media, identity) = (self.ftl.media().as_ref(), self.identity());
        let mut served = self.served.lock();
        let before = served.map_or_else(
            || ServiceRecord::read(media, identity),
            // Served again by the process that serves it: nothing was cut off.
            |counts| ServiceRecord { counts, in_service: false },
        );
        let counts = ServiceCounts {
            power_cycles: before.counts.power_cycles.saturating_add(1),
            unsafe_shutdowns: before.counts.unsafe_shutdowns.saturating_add(before.in_service.into()),
            seconds: before.counts.seconds,
        };
        assert!(counts.unsafe_shutdowns < counts.power_cycles || counts.power_cycles == u32::MAX, "{counts:?}");
        if !self.read_only {
            // A full disk, for instance, must not keep a store from being served.
            let written = ServiceRecord { counts, in_service: true }.write(media, identity);
            drop(written.and_then(|()| self.sync()));
        }
        *served = Some(counts);
        Ok(counts)
    }

    /// Adds to the time for which the store was served, in its file where that is possible.
    ///
    /// # Errors
    /// The store is closed, or failed.
    pub fn add_service_time(&self, seconds: u64) -> Result<()> {
        let _inside = self.enter()?;
        let mut served = self.served.lock();
        let Some(counts) = served.as_mut() else { return Ok(()) };
        counts.seconds = counts.seconds.saturating_add(seconds);
        if !self.read_only {
            let record = ServiceRecord { counts: *counts, in_service: true };
            // A full disk must not keep a store from being served. No barrier: the next one takes it along.
            drop(record.write(self.ftl.media().as_ref(), self.identity()));
        }
        Ok(())
    }

    /// Records that the store, whose content is durable, is not served any more.
    pub(super) fn end_service(&self) {
        let Some(counts) = self.served.lock().take().filter(|_| !self.read_only) else { return };
        let (media, identity) = (self.ftl.media().as_ref(), self.identity());
        let written = ServiceRecord { counts, in_service: false }.write(media, identity);
        // Without it the next start counts an unsafe shutdown; no data is at stake.
        drop(written.and_then(|()| media.sync()));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::device::IdentityChoice;
    use crate::{Mode, Options};

    /// Opens a store, serves it, and closes it, or loses it as a killed process does.
    fn served(path: &Path, mode: Mode, is_closed: bool) -> (u32, u32) {
        let device = Device::open_file(path, mode, &Options::default()).unwrap();
        device.choose_identity(IdentityChoice::Own).unwrap();
        let counts = device.begin_service().unwrap();
        let bytes = std::fs::read(path).unwrap();
        device.close().unwrap();
        drop(device); // with its lock
        if !is_closed {
            std::fs::write(path, bytes).unwrap();
        }
        (counts.power_cycles, counts.unsafe_shutdowns)
    }

    #[test]
    fn cycles_and_cut_off_services_are_counted_for_each_drive() {
        let dir = tempfile::tempdir().unwrap();
        let [path, copy] = ["one", "two"].map(|name| dir.path().join(name));
        let services = [true, true, false, false, true, true].map(|is_closed| served(&path, Mode::Append, is_closed));
        assert_eq!(services, [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 2)]);
        assert_eq!([served(&path, Mode::Read, true), served(&path, Mode::Read, true)], [(7, 2); 2], "for reading only");
        assert_eq!(served(&path, Mode::ReadWrite, true), (7, 2));
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(served(&copy, Mode::ReadWrite, true), (1, 0), "a copy is another drive");
        // A store that is opened and not served is not counted; a damaged record is none.
        Device::open_file(&path, Mode::ReadWrite, &Options::default()).unwrap().close().unwrap();
        assert_eq!(served(&path, Mode::ReadWrite, true), (8, 2));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[PLACE as usize + 33] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(served(&path, Mode::ReadWrite, true), (1, 0));
        // One process that serves a store twice has cut nothing off.
        let device = Device::open_file(&path, Mode::ReadWrite, &Options::default()).unwrap();
        let both = [device.begin_service().unwrap(), device.begin_service().unwrap()];
        assert_eq!(both.map(|counts| (counts.power_cycles, counts.unsafe_shutdowns)), [(2, 0), (3, 0)]);
        device.close().unwrap();
        assert!(device.begin_service().is_err());
        assert!(device.add_service_time(1).is_err());
    }

    #[test]
    fn time_of_service_adds_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        for (mode, expected) in [(Mode::Append, 0), (Mode::ReadWrite, 12), (Mode::Read, 24), (Mode::ReadWrite, 24)] {
            let device = Device::open_file(&path, mode, &Options::default()).unwrap();
            device.add_service_time(100).unwrap();
            assert_eq!(device.begin_service().unwrap().seconds, expected, "nothing counts before the service");
            device.add_service_time(5).unwrap();
            device.add_service_time(7).unwrap();
            assert_eq!(device.begin_service().unwrap().seconds, expected + 12);
            device.close().unwrap();
        }
    }
}
