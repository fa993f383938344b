//! The NVMe controller: executes commands on a store.
//!
//! [`Controller::submit`] returns when the command has completed. [`Controller::submit_later`] reports completion by a
//! callback, so that a transport or a queue in shared memory can have many commands in flight. On a modelled device
//! these complete in the order of modelled time; without a modelled clock each command has completed when the call
//! returns.
//!
//! A controller has no state except the open views. It does not keep its store open: after the store was closed every
//! command completes with "namespace not ready". Any number of threads may submit at the same time. Commands are as
//! atomic as the engine's, which identify reports (AWUN of FFFFh: a write is whole or absent, whatever its length).

use std::sync::{Arc, Weak};

use nandarray_nvme_spec::{CompletionEntry, NvmeCommand, Status, SubmissionEntry};
use parking_lot::RwLock;

use super::access::{AllArrays, ArrayAccess};
use super::data_buffer::DataBuffer;
use super::views::Views;
use crate::device::{self, Device, OwnedCommand, command};

/// The result of an NVMe command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Status of the command.
    pub status: Status,
    /// Dword 0 of the completion entry: for the command Open Space the dynamic space identifier, otherwise 0.
    pub dw0: u32,
    /// Dword 1 of the completion entry: for the command Open Space the identifier of the space, otherwise 0.
    pub dw1: u32,
}

impl Completion {
    /// Encodes the result as the completion entry of the command with identifier `cid`. The transport must fill in the
    /// submission queue's head and identifier, and the phase tag.
    pub fn encode(&self, cid: u16) -> CompletionEntry {
        let mut entry = CompletionEntry {
            dw0: self.dw0.into(),
            dw1: self.dw1.into(),
            cid: cid.into(),
            ..CompletionEntry::default()
        };
        entry.set_status(self.status);
        entry
    }
}

impl From<Result<(), Status>> for Completion {
    fn from(done: Result<(), Status>) -> Self {
        Self { status: done.err().unwrap_or(Status::SUCCESS), dw0: 0, dw1: 0 }
    }
}

/// An NVMe controller, which executes commands on one store.
#[derive(Debug)]
pub struct Controller {
    device: Weak<Device>,
    pub(super) views: RwLock<Views>,
    pub(super) access: Arc<dyn ArrayAccess>,
}

impl Controller {
    /// Creates a controller for this store, without open views.
    pub fn new(device: &Arc<Device>) -> Self {
        Self::with_access(device, Arc::new(AllArrays))
    }

    /// Creates a controller for this store, without open views, whose host may use some arrays: others are none to it.
    pub fn with_access(device: &Arc<Device>, access: Arc<dyn ArrayAccess>) -> Self {
        Self { device: Arc::downgrade(device), views: RwLock::default(), access }
    }

    /// Returns the store.
    ///
    /// # Errors
    /// Namespace not ready, if the store was closed.
    pub(super) fn device(&self) -> Result<Arc<Device>, Status> {
        self.device.upgrade().filter(|d| !d.closed()).ok_or(Status::NOT_READY)
    }

    /// Whether `device` is the store on which this controller executes commands.
    pub fn serves(&self, device: &Arc<Device>) -> bool {
        std::ptr::eq(self.device.as_ptr(), Arc::as_ptr(device))
    }

    /// Closes all views, as a controller reset does.
    pub fn close_all(&self) {
        self.views.write().clear();
    }

    /// Decodes and executes a submission entry; returns the completion entry.
    pub fn submit(&self, entry: &SubmissionEntry, buffer: DataBuffer<'_>) -> CompletionEntry {
        let done = match NvmeCommand::decode(entry) {
            Ok(command) => self.execute(&command, buffer),
            Err(status) => Err(status).into(),
        };
        done.encode(entry.cid.get())
    }

    /// Decodes a submission entry and begins its execution; `done` receives the completion entry, in this call or in a
    /// later one that lets modelled time pass ([`Device::drive`]), on any thread. Reads, writes and flushes of
    /// namespaces can be in flight, and complete in any order, except that reads and writes of the same blocks keep
    /// their order; a flush, or a write with force unit access, waits for all commands submitted before. All other
    /// commands have completed when this returns.
    ///
    /// # Safety
    /// The buffers must stay valid, and must not be used otherwise, until `done` was called.
    pub unsafe fn submit_later(
        &self,
        entry: &SubmissionEntry,
        buffer: DataBuffer<'_>,
        done: impl FnOnce(CompletionEntry) + Send + 'static,
    ) {
        let cid = entry.cid.get();
        let begun = NvmeCommand::decode(entry).and_then(|command| self.in_flight(&command, &buffer));
        let (device, command, fua) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => return done(self.submit(entry, buffer)),
            Err(status) => return done(Completion::from(Err(status)).encode(cid)),
        };
        let answer = move |result: Result<(), Status>| done(Completion::from(result).encode(cid));
        let again = Arc::downgrade(&device);
        let ended = Box::new(move |result: crate::error::Result<()>| match (result, again.upgrade()) {
            (Ok(_), Some(device)) if fua => {
                let flushed = Box::new(move |result: crate::error::Result<()>| answer(result.map_err(Status::from)));
                device.submit(OwnedCommand::Flush, flushed);
            }
            (result, _) => answer(result.map_err(Status::from)),
        });
        device.submit(command, ended);
    }

    /// Converts a command that can be in flight to the engine's command; also returns whether it forces unit access.
    /// `None` for other commands.
    fn in_flight(
        &self,
        command: &NvmeCommand,
        buffer: &DataBuffer<'_>,
    ) -> Result<Option<(Arc<Device>, OwnedCommand, bool)>, Status> {
        Ok(match *command {
            NvmeCommand::Flush { nsid } => {
                self.flush_command(nsid, buffer)?.map(|device| (device, OwnedCommand::Flush, false))
            }
            NvmeCommand::Read(blocks) => Some(self.read_command(&blocks, buffer)?),
            NvmeCommand::Write(blocks) => Some(self.write_command(&blocks, buffer)?),
            _ => None,
        })
    }

    /// Does the same as [`Self::submit`], for a host that has the entries as bytes.
    pub fn submit_bytes(&self, entry: &[u8; 64], buffer: DataBuffer<'_>) -> [u8; 16] {
        zerocopy::transmute!(self.submit(zerocopy::transmute_ref!(entry), buffer))
    }

    /// Executes a command with its buffers, and returns its result.
    pub fn execute(&self, command: &NvmeCommand, buffer: DataBuffer<'_>) -> Completion {
        match *command {
            NvmeCommand::Flush { nsid } => self.flush(nsid, &buffer),
            NvmeCommand::Write(blocks) => self.write(&blocks, &buffer),
            NvmeCommand::Read(blocks) => self.read(&blocks, &buffer),
            NvmeCommand::Compare(blocks) => self.compare(&blocks, &buffer),
            NvmeCommand::WriteZeroes { blocks, .. } => self.write_zeroes(&blocks, &buffer),
            NvmeCommand::DatasetManagement { nsid, nr_z, ad } => self.dataset_management(nsid, nr_z, ad, &buffer),
            NvmeCommand::Copy { nsid, sdlba, nr_z, fua } => self.copy(nsid, sdlba, nr_z, fua, &buffer),
            NvmeCommand::OpenSpace { action, space } => {
                return match self.open_space(action, space, &buffer) {
                    Ok((dsid, space)) => Completion { status: Status::SUCCESS, dw0: dsid, dw1: space },
                    Err(status) => Err(status).into(),
                };
            }
            NvmeCommand::SpaceInformation { dsid } => self.space_information(dsid, &buffer),
            NvmeCommand::CloseSpace { dsid } => self.close_space(dsid, &buffer),
            NvmeCommand::DeleteSpace { space } => self.delete_space(space, &buffer),
            NvmeCommand::NdRead(nd) => self.nd_read(&nd, &buffer),
            NvmeCommand::NdWrite(nd) => self.nd_write(&nd, &buffer),
        }
        .into()
    }

    /// Flushes the store if `fua` (force unit access) is set.
    pub(super) fn after_write(device: &Device, fua: bool) -> Result<(), Status> {
        if fua { run(device, command::Flush) } else { Ok(()) }
    }
}

/// Executes a command of the engine; converts its error to a status.
pub(super) fn run<C: device::Command>(device: &Device, command: C) -> Result<C::Reply, Status> {
    device.execute(command).map_err(Status::from)
}
