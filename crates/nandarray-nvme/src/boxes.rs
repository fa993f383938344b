//! Stored boxes of N-D commands: a command set in the vendor's range, for hosts whose commands have only one buffer.
//!
//! The opcodes are those of the N-D commands without their highest bit, so that an unmodified kernel lets ordinary
//! users send them. A read with more than three dimensions, or with 64-bit coordinates, takes two steps. *Store Box*
//! (0Dh) takes a page of coordinates and returns a handle; an N-D read with bit 10 of dword 11 set names the handle in
//! dword 12. An N-D write may do the same, or have the page of coordinates before its data (bit 9). A handle is never
//! reused.

use std::collections::BTreeMap;

use nandarray::nvme::{BoxPage, Controller, NdBox, NvmeCommand, ResolvedBox, Status, SubmissionEntry};
use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::payload::Payload;
use nandarray_nvme_spec::NdOpcode;

/// Bit of dword 11: the coordinates are in a page before the data.
const IN_PAGE: u32 = 1 << 9;
/// Bit of dword 11: the coordinates are those of a stored box.
const BY_HANDLE: u32 = 1 << 10;
/// Maximum number of boxes that one controller stores.
const BOXES_MAX: usize = 4096;
/// Bytes of a page of coordinates.
const PAGE_BYTES: usize = size_of::<BoxPage>();

/// A stored box: the entry, and the page of coordinates, of a read that would return its elements.
#[derive(Clone, Debug)]
struct StoredBox {
    entry: SubmissionEntry,
    page: BoxPage,
}

#[derive(Debug, Default)]
struct BoxTable {
    last: u32,
    stored: BTreeMap<u32, StoredBox>,
}

/// The stored boxes of a controller.
#[derive(Debug, Default)]
pub(crate) struct StoredBoxes {
    table: Mutex<BoxTable>,
}

impl StoredBoxes {
    /// Deletes all boxes.
    pub(crate) fn clear(&self) {
        self.table.lock().stored.clear();
    }

    fn get(&self, handle: u32) -> Result<StoredBox, Status> {
        self.table.lock().stored.get(&handle).cloned().ok_or(Status::INVALID_BOX)
    }

    fn store(&self, controller: &Controller, entry: &SubmissionEntry, payload: &Payload<'_>) -> Result<u32, Status> {
        let page = BoxPage::read_from_bytes(payload.source()?).map_err(|_| Status::DATA_LENGTH_INVALID)?;
        let stored = StoredBox { entry: paged(entry), page };
        resolve(controller, &stored)?;
        let mut table = self.table.lock();
        if table.stored.len() >= BOXES_MAX {
            return Err(Status::RESOURCES);
        }
        table.last = table.last.checked_add(1).ok_or(Status::RESOURCES)?;
        let handle = table.last;
        table.stored.insert(handle, stored);
        Ok(handle)
    }

    /// Returns the elements that a stored box names in the array's current state.
    pub(crate) fn resolve(&self, controller: &Controller, handle: u32) -> Result<ResolvedBox, Status> {
        resolve(controller, &self.get(handle)?)
    }

    /// Executes a command that this command set has; returns dwords 0 and 1 of its completion.
    pub(crate) fn execute(
        &self,
        controller: &Controller,
        entry: &SubmissionEntry,
        payload: Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        match entry.opcode {
            NdOpcode::STORE_BOX => return self.store(controller, entry, &payload).map(|handle| (handle, 0)),
            NdOpcode::DELETE_BOX => {
                let found = self.table.lock().stored.remove(&entry.cdw(12));
                return found.map(|_| (0, 0)).ok_or(Status::INVALID_BOX);
            }
            _ => {}
        }
        let word = entry.cdw(11);
        let moves = matches!(entry.opcode, NdOpcode::WRITE | NdOpcode::READ);
        let mut engine = SubmissionEntry { opcode: entry.opcode | NdOpcode::VENDOR, ..*entry };
        let done = match () {
            () if moves && word & BY_HANDLE != 0 => {
                let stored = self.get(entry.cdw(12))?;
                engine.cdw2 = stored.entry.cdw2;
                engine.cdw10 = stored.entry.cdw10;
                engine.set_cdw(11, stored.entry.cdw(11) | word & 1 << 30);
                controller.submit(&engine, payload.into_buffer().with_page(stored.page.as_bytes()))
            }
            () if moves && word & IN_PAGE != 0 => {
                // A read has no room for a page of coordinates; it names a stored box instead.
                let Payload::ToController(bytes) = payload else { return Err(Status::INVALID_FIELD) };
                if entry.opcode != NdOpcode::WRITE || bytes.len() < PAGE_BYTES {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                let (page, data) = bytes.split_at(PAGE_BYTES);
                controller.submit(&engine, Payload::ToController(data).into_buffer().with_page(page))
            }
            () => controller.submit(&engine, payload.into_buffer()),
        };
        let status = done.status();
        if status.ok() { Ok((done.dw0.get(), done.dw1.get())) } else { Err(status) }
    }
}

/// Returns the entry of an N-D read whose coordinates are in a page.
fn paged(entry: &SubmissionEntry) -> SubmissionEntry {
    let mut read = SubmissionEntry { opcode: 0x82, cdw2: Default::default(), ..*entry };
    read.set_cdw(11, entry.cdw(11) & !BY_HANDLE | IN_PAGE);
    read
}

fn resolve(controller: &Controller, stored: &StoredBox) -> Result<ResolvedBox, Status> {
    match NvmeCommand::decode(&stored.entry)? {
        NvmeCommand::NdRead(nd) => {
            let nd: NdBox = nd;
            controller.resolve(&nd, stored.page.as_bytes())
        }
        _ => Err(Status::INVALID_FIELD),
    }
}
