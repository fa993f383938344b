//! The entrance: from a command to who executes it.
//!
//! [`Controller::submit`] answers when the command is over. [`Controller::submit_later`] answers by a callback, so that
//! a transport or a ring in shared memory can have many commands in flight: on a modelled device they end in the order
//! that modelled time has; on the wall clock each is over when the call returns.
//!
//! A controller keeps nothing but the views that are open. It does not keep its store open either: after the store was
//! closed every command ends with "namespace not ready". Any number of threads may submit at once; commands are as
//! atomic as the engine's, which is what identify tells (AWUN of FFFFh: a write is whole or absent, whatever its
//! length).

use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::command::NvmeCommand;
use super::entry::{CompletionEntry, SubmissionEntry};
use super::lent::Lent;
use super::spaces::Views;
use super::status::Status;
use crate::device::{self, Device, OwnedCommand, command};

/// What a command gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How it ended.
    pub status: Status,
    /// Dword 0: a dynamic space identifier, where one was asked for.
    pub dw0: u32,
    /// Dword 1: the identifier of its space.
    pub dw1: u32,
}

impl Completion {
    /// The entry for a command with this identifier. The submission queue's head and number, and the phase tag, are the
    /// transport's to fill in.
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

/// An NVMe controller on a store.
#[derive(Debug)]
pub struct Controller {
    device: Weak<Device>,
    pub(super) views: RwLock<Views>,
}

impl Controller {
    /// A controller on this store, with no views open.
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::downgrade(device), views: RwLock::default() }
    }

    /// The store.
    ///
    /// # Errors
    /// Namespace not ready, if it was closed.
    pub(super) fn device(&self) -> Result<Arc<Device>, Status> {
        self.device.upgrade().filter(|d| !d.closed()).ok_or(Status::NOT_READY)
    }

    /// Whether this controller is one of that store.
    pub fn serves(&self, device: &Arc<Device>) -> bool {
        std::ptr::eq(self.device.as_ptr(), Arc::as_ptr(device))
    }

    /// Decodes and executes an entry.
    pub fn submit(&self, entry: &SubmissionEntry, lent: Lent<'_>) -> CompletionEntry {
        let done = match NvmeCommand::decode(entry) {
            Ok(command) => self.execute(&command, lent),
            Err(status) => Err(status).into(),
        };
        done.encode(entry.cid.get())
    }

    /// Decodes an entry and begins with it; `done` gets the completion entry, in this call or in a later one that lets
    /// modelled time pass ([`Device::drive`]), in any thread. Reads, writes and flushes of namespaces can be in flight;
    /// completions come in any order. Reads and writes of the same blocks keep theirs; a flush, and force unit access,
    /// wait for every command submitted before. All other commands are over when this returns.
    ///
    /// # Safety
    /// The buffers lent must stay, and be used by nobody else, until `done` was called.
    pub unsafe fn submit_later(
        &self,
        entry: &SubmissionEntry,
        lent: Lent<'_>,
        done: impl FnOnce(CompletionEntry) + Send + 'static,
    ) {
        let cid = entry.cid.get();
        let begun = NvmeCommand::decode(entry).and_then(|command| self.in_flight(&command, &lent));
        let (device, command, fua) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => return done(self.submit(entry, lent)),
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

    /// The engine's command for a command that can be in flight, and whether it forces unit access; `None` for others.
    fn in_flight(
        &self,
        command: &NvmeCommand,
        lent: &Lent<'_>,
    ) -> Result<Option<(Arc<Device>, OwnedCommand, bool)>, Status> {
        Ok(match *command {
            NvmeCommand::Flush { nsid } => {
                self.flush_command(nsid, lent)?.map(|device| (device, OwnedCommand::Flush, false))
            }
            NvmeCommand::Read(blocks) => Some(self.read_command(&blocks, lent)?),
            NvmeCommand::Write(blocks) => Some(self.write_command(&blocks, lent)?),
            _ => None,
        })
    }

    /// As [`Self::submit`], for a host that has the entries as bytes.
    pub fn submit_bytes(&self, entry: &[u8; 64], lent: Lent<'_>) -> [u8; 16] {
        zerocopy::transmute!(self.submit(zerocopy::transmute_ref!(entry), lent))
    }

    /// Executes a command with the buffers lent to it.
    pub fn execute(&self, command: &NvmeCommand, lent: Lent<'_>) -> Completion {
        match *command {
            NvmeCommand::Flush { nsid } => self.flush(nsid, &lent),
            NvmeCommand::Write(blocks) => self.write(&blocks, &lent),
            NvmeCommand::Read(blocks) => self.read(&blocks, &lent),
            NvmeCommand::Compare(blocks) => self.compare(&blocks, &lent),
            NvmeCommand::WriteZeroes { blocks, .. } => self.write_zeroes(&blocks, &lent),
            NvmeCommand::DatasetManagement { nsid, nr_z, ad } => self.dataset_management(nsid, nr_z, ad, &lent),
            NvmeCommand::Copy { nsid, sdlba, nr_z, fua } => self.copy(nsid, sdlba, nr_z, fua, &lent),
            NvmeCommand::OpenSpace { action, space } => {
                return match self.open_space(action, space, &lent) {
                    Ok((dsid, space)) => Completion { status: Status::SUCCESS, dw0: dsid, dw1: space },
                    Err(status) => Err(status).into(),
                };
            }
            NvmeCommand::SpaceInformation { dsid } => self.space_information(dsid, &lent),
            NvmeCommand::CloseSpace { dsid } => self.close_space(dsid, &lent),
            NvmeCommand::DeleteSpace { space } => self.delete_space(space, &lent),
            NvmeCommand::NdRead(nd) => self.nd_read(&nd, &lent),
            NvmeCommand::NdWrite(nd) => self.nd_write(&nd, &lent),
        }
        .into()
    }

    /// What force unit access asks for after a write.
    pub(super) fn after_write(device: &Device, fua: bool) -> Result<(), Status> {
        if fua { run(device, command::Flush) } else { Ok(()) }
    }
}

/// Executes a command of the engine.
pub(super) fn run<C: device::Command>(device: &Device, command: C) -> Result<C::Reply, Status> {
    device.execute(command).map_err(Status::from)
}
