//! Stored boxes of N-D commands: a command set in the vendor's range, for hosts whose commands have only one buffer.
//!
//! The opcodes are those of the N-D commands without their highest bit, so that an unmodified kernel lets ordinary
//! users send them. A read with more than three dimensions, or with 64-bit coordinates, takes two steps. *Store Box*
//! (0Dh) takes a page of coordinates and returns a handle; an N-D read with bit 10 of dword 11 set names the handle in
//! dword 12. An N-D write may do the same, or have the page of coordinates before its data (bit 9). A handle is never
//! reused.

use std::collections::BTreeMap;

use nandarray::nvme::{Completion, Controller, ResolvedBox};
use nandarray_nvme_spec::{BoxPage, NdBox, NdCommand, NdPlace, NvmeCommand, Status};
use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::payload::Payload;

/// Maximum number of boxes that one controller stores.
const BOXES_MAX: usize = 4096;
/// Bytes of a page of coordinates.
const PAGE_BYTES: usize = size_of::<BoxPage>();

/// A stored box: the sub-block of a read that would return its elements, and its page of coordinates.
#[derive(Clone, Debug)]
struct StoredBox {
    nd: NdBox,
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

    fn store(&self, controller: &Controller, nd: NdBox, payload: &Payload<'_>) -> Result<u32, Status> {
        let page = BoxPage::read_from_bytes(payload.source()?).map_err(|_| Status::DATA_LENGTH_INVALID)?;
        let stored = StoredBox { nd, page };
        resolve(controller, &stored)?;
        let mut table = self.table.lock();
        if table.stored.len() >= BOXES_MAX {
            return Err(Status::RESOURCES);
        }
        table.last = table.last.checked_add(1).ok_or(Status::RESOURCES)?;
        let handle = table.last;
        let before = table.stored.insert(handle, stored);
        assert!(before.is_none(), "handle {handle} was given twice");
        assert!(table.stored.len() <= BOXES_MAX, "{} boxes", table.stored.len());
        Ok(handle)
    }

    /// Returns the dynamic space identifier of a stored box's view; `None` if there is no such box.
    pub(crate) fn view(&self, handle: u32) -> Option<u32> {
        self.table.lock().stored.get(&handle).map(|stored| stored.nd.dsid)
    }

    /// Returns the elements that a stored box names in the array's current state.
    pub(crate) fn resolve(&self, controller: &Controller, handle: u32) -> Result<ResolvedBox, Status> {
        resolve(controller, &self.get(handle)?)
    }

    /// Executes a command of this command set, except array requests; returns dwords 0 and 1 of its completion.
    pub(crate) fn execute(
        &self,
        controller: &Controller,
        command: NdCommand,
        payload: Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        let done = match command {
            NdCommand::StoreBox(nd) => return self.store(controller, nd, &payload).map(|handle| (handle, 0)),
            NdCommand::DeleteBox { handle } => {
                let found = self.table.lock().stored.remove(&handle);
                return found.map(|_| (0, 0)).ok_or(Status::INVALID_BOX);
            }
            NdCommand::Read(place) => self.transfer(controller, NvmeCommand::NdRead, place, payload)?,
            NdCommand::Write(place) => self.transfer(controller, NvmeCommand::NdWrite, place, payload)?,
            NdCommand::View(command) => controller.execute(&command, payload.into_buffer()),
            NdCommand::ArrayRequest(_) | NdCommand::ArrayReply(_) | NdCommand::RunOutput { .. } => {
                unreachable!("{command:?} among boxes")
            }
        };
        if done.status.ok() { Ok((done.dw0, done.dw1)) } else { Err(done.status) }
    }

    /// Executes an N-D read or write, whichever `command` makes, with its coordinates from their place.
    fn transfer(
        &self,
        controller: &Controller,
        command: fn(NdBox) -> NvmeCommand,
        place: NdPlace,
        payload: Payload<'_>,
    ) -> Result<Completion, Status> {
        Ok(match place {
            NdPlace::Entry(nd) => controller.execute(&command(nd), payload.into_buffer()),
            NdPlace::Stored { handle, fua } => {
                let stored = self.get(handle)?;
                let nd = NdBox { fua: stored.nd.fua || fua, ..stored.nd };
                controller.execute(&command(nd), payload.into_buffer().with_page(stored.page.as_bytes()))
            }
            NdPlace::Data(nd) => {
                // A read has no room for a page of coordinates; it names a stored box instead.
                let Payload::ToController(bytes) = payload else { return Err(Status::INVALID_FIELD) };
                let command = command(nd);
                if !matches!(command, NvmeCommand::NdWrite(_)) || bytes.len() < PAGE_BYTES {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                let (page, data) = bytes.split_at(PAGE_BYTES);
                controller.execute(&command, Payload::ToController(data).into_buffer().with_page(page))
            }
        })
    }
}

fn resolve(controller: &Controller, stored: &StoredBox) -> Result<ResolvedBox, Status> {
    controller.resolve(&stored.nd, stored.page.as_bytes())
}
