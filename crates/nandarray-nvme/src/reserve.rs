//! Commands of an association on reservations: register, report, acquire, release; their features and log page, and the
//! check of every other command.
//!
//! The state is the subsystem's (`reservations`), its rules are in `registrants`.

use std::time::Duration;

use nandarray::SpaceId;
use nandarray::waits;
use nandarray_nvme_spec::{
    AcquireAction, AcquireKeys, CommandSet, Feature, FeatureCapabilities, FeatureSelect, NSID_ALL, NdCommand, NdPlace,
    NvmeCommand, OpenAction, PersistenceChange, RegisterKeys, RegistrantStatus, ReleaseKey, ReservationCapabilities,
    ReservationCommand, ReservationStatus, Status, SubmissionEntry,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::association::Association;
use crate::commands::IoCommand;
use crate::payload::Payload;
use crate::registrants::{Consequences, HostId, Registrants, SpaceUse};
use crate::subsystem::command_set;

/// Time for which an aborting preemption waits for the commands of one controller.
const ABORT_TIME: Duration = Duration::from_secs(10);

fn keys<T: FromBytes>(payload: &Payload<'_>) -> Result<T, Status> {
    T::read_from_prefix(payload.source()?).map(|(keys, _)| keys).map_err(|_| Status::DATA_LENGTH_INVALID)
}

impl Association {
    /// Returns the capabilities of reservations of a block namespace (RESCAP).
    pub(crate) fn reservation_capabilities(&self) -> u8 {
        let all = ReservationCapabilities::ALL_TYPES | ReservationCapabilities::IGNORED_KEY;
        if self.subsystem().read_only() { all } else { all | ReservationCapabilities::PERSISTENCE }
    }

    /// Returns the identifier of the host, as far as it is the tenant's.
    pub(crate) fn reservation_host(&self) -> HostId {
        self.subsystem().reservations.identity(self.host().hostid, self.tenant_name())
    }

    /// Returns the namespace with its array.
    fn reservable(&self, nsid: u32) -> Result<(u32, SpaceId), Status> {
        if self.subsystem().csi(nsid)? != CommandSet::NVM {
            return Err(Status::INVALID_FIELD);
        }
        Ok((nsid, self.controller().namespace_space(nsid)?))
    }

    /// Executes a reservation command; returns dwords 0 and 1 of its completion.
    pub(crate) fn reserve(&self, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(u32, u32), Status> {
        let command = ReservationCommand::decode(entry)?;
        let place = self.reservable(entry.nsid.get())?;
        let host = &self.reservation_host();
        // An identifier of 0 is that of a host that has none (base 2.0, section 5.27.1.25).
        if *host == [0; 16] {
            return Err(Status::INVALID_FIELD);
        }
        let (device, all) = (self.subsystem().device()?, &self.subsystem().reservations);
        // A host that may only read sees reservations, and has none.
        let is_report = matches!(command, ReservationCommand::Report { .. });
        if !is_report && !self.controller().may_write_namespace(place.0) {
            return Err(Status::WRITE_PROTECTED);
        }
        let done = match command {
            ReservationCommand::Report { dwords_z, extended } => {
                self.report(place, dwords_z, extended, &mut payload)?;
                return Ok((0, 0));
            }
            ReservationCommand::Register { action, ignore_key, persistence } => {
                let keys: RegisterKeys = keys(&payload)?;
                if persistence == PersistenceChange::Persistent && self.subsystem().read_only() {
                    return Err(Status::INVALID_FIELD);
                }
                let done = all.change(&device, place, |registrants| {
                    let done = registrants.register(host, action, ignore_key, keys.current.get(), keys.new.get())?;
                    match persistence {
                        PersistenceChange::Keep => {}
                        PersistenceChange::Volatile => registrants.persists = false,
                        PersistenceChange::Persistent => registrants.persists = true,
                    }
                    Ok(done)
                })?;
                all.claim(*host, self.tenant_name());
                done
            }
            // Of these two, the key is always compared (base 2.0, sections 7.2 and 7.5).
            ReservationCommand::Acquire { ignore_key: true, .. }
            | ReservationCommand::Release { ignore_key: true, .. } => {
                return Err(Status::INVALID_FIELD);
            }
            ReservationCommand::Acquire { action, kind, .. } => {
                let keys: AcquireKeys = keys(&payload)?;
                all.change(&device, place, |registrants| {
                    registrants.acquire(host, action, kind, keys.current.get(), keys.preempted.get())
                })?
            }
            ReservationCommand::Release { action, kind, .. } => {
                let keys: ReleaseKey = keys(&payload)?;
                all.change(&device, place, |registrants| registrants.release(host, action, kind, keys.current.get()))?
            }
        };
        let aborts = matches!(command, ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, .. });
        self.follow(place.0, &done, aborts)?;
        Ok((0, 0))
    }

    /// Notifies hosts of a change; with `aborts`, ends the commands of those that it has unregistered.
    ///
    /// # Errors
    /// Command interrupted: some of these commands go on. The change holds all the same.
    fn follow(&self, nsid: u32, done: &Consequences, aborts: bool) -> Result<(), Status> {
        if *done == Consequences::default() {
            return Ok(());
        }
        let associations = self.subsystem().associations();
        for &(host, kind) in &done.notices {
            for one in associations.iter().filter(|one| one.reservation_host() == host && !one.is_discovery()) {
                one.state.lock().notices.add(nsid, kind);
                one.notice();
            }
        }
        if aborts {
            let preempted = || associations.iter().filter(|one| done.preempted.contains(&one.reservation_host()));
            preempted().for_each(|one| one.running.stop());
            // Their other commands are short, unless they wait for blocks that a program writes.
            let all_ended = waits::aside(|| preempted().filter(|one| !one.executing.wait(ABORT_TIME)).count() == 0);
            return if all_ended { Ok(()) } else { Err(Status::INTERRUPTED) };
        }
        Ok(())
    }

    fn report(
        &self,
        place: (u32, SpaceId),
        dwords_z: u32,
        extended: bool,
        payload: &mut Payload<'_>,
    ) -> Result<(), Status> {
        if !extended {
            return Err(Status::HOST_ID_FORMAT);
        }
        if payload.room()?.len() as u64 != (u64::from(dwords_z) + 1) * 4 {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        let registrants = self.subsystem().reservations.registrants(place);
        let mut head = ReservationStatus::zeroed();
        head.generation.set(registrants.generation);
        head.kind = registrants.held().map_or(0, |(kind, _)| kind as u8);
        head.registrants.set(registrants.keys().len() as u16);
        head.persists = u8::from(registrants.persists);
        let mut page = head.as_bytes().to_vec();
        for (host, key) in registrants.keys() {
            page.extend_from_slice(RegistrantStatus::new(*host, *key, registrants.is_holder(host)).as_bytes());
        }
        assert_eq!(page.len(), 64 * (1 + registrants.keys().len()), "a head, and an entry a registrant");
        payload.give(&page, 0)
    }

    /// Checks that no reservation excludes the host from a command of an I/O queue, but for array requests and
    /// executions, whose arrays are known later.
    ///
    /// # Errors
    /// Reservation conflict. A command that fails for another reason is left to those who execute it.
    pub(crate) fn check_reserved(&self, command: IoCommand, entry: &SubmissionEntry) -> Result<(), Status> {
        if !self.subsystem().reservations.is_any() {
            return Ok(());
        }
        let Some(array) = self.array_of(command, entry) else { return Ok(()) };
        let what = match command {
            IoCommand::Read | IoCommand::Compare | IoCommand::NdRead => SpaceUse::Read,
            _ => SpaceUse::Write,
        };
        let device = self.subsystem().device()?;
        self.subsystem().reservations.seen_by(&device, self.reservation_host()).check(array, what)
    }

    /// Returns the array that a command reads or changes; `None` if it is none, or there is no such array.
    fn array_of(&self, command: IoCommand, entry: &SubmissionEntry) -> Option<SpaceId> {
        let nsid = entry.nsid.get();
        match command {
            // A flush of all namespaces changes none.
            IoCommand::Flush if nsid == NSID_ALL => None,
            IoCommand::Flush | IoCommand::Write | IoCommand::Read | IoCommand::Compare | IoCommand::WriteZeroes => {
                self.controller().namespace_space(nsid).ok()
            }
            IoCommand::DatasetManagement | IoCommand::Copy => self.controller().namespace_space(nsid).ok(),
            IoCommand::NdWrite | IoCommand::NdRead | IoCommand::DeleteSpace | IoCommand::OpenSpace => {
                self.array_of_view(entry)
            }
            IoCommand::SpaceInformation | IoCommand::CloseSpace => None,
            IoCommand::StoreBox | IoCommand::DeleteBox | IoCommand::ArrayRequest | IoCommand::ArrayReply => None,
            IoCommand::RunOutput => None,
            IoCommand::MemoryCopy | IoCommand::MemoryRead | IoCommand::MemoryFill | IoCommand::MemoryWrite => None,
            IoCommand::ExecuteProgram => None,
            IoCommand::ReservationRegister | IoCommand::ReservationReport => None,
            IoCommand::ReservationAcquire | IoCommand::ReservationRelease => None,
        }
    }

    fn array_of_view(&self, entry: &SubmissionEntry) -> Option<SpaceId> {
        let of_view = |command: NvmeCommand| match command {
            NvmeCommand::NdRead(nd) | NvmeCommand::NdWrite(nd) => self.controller().view_space(nd.dsid).ok(),
            NvmeCommand::DeleteSpace { space } => SpaceId::try_from(space).ok(),
            NvmeCommand::OpenSpace { action: OpenAction::Resize, space } => SpaceId::try_from(space).ok(),
            _ => None,
        };
        if command_set(entry.nsid.get()) != CommandSet::ND {
            return of_view(NvmeCommand::decode(entry).ok()?);
        }
        match NdCommand::decode(entry).ok()? {
            NdCommand::Read(place) | NdCommand::Write(place) => {
                let dsid = match place {
                    NdPlace::Entry(nd) | NdPlace::Data(nd) => nd.dsid,
                    NdPlace::Stored { handle, .. } => self.boxes.view(handle)?,
                };
                self.controller().view_space(dsid).ok()
            }
            NdCommand::View(command) => of_view(command),
            _ => None,
        }
    }

    /// Returns the value of a feature of reservations.
    ///
    /// # Errors
    /// Invalid namespace; invalid field: a namespace without blocks.
    pub(crate) fn reservation_feature(
        &self,
        feature: Feature,
        select: FeatureSelect,
        nsid: u32,
    ) -> Result<u32, Status> {
        let place = self.reservable(nsid)?;
        Ok(match (feature, select) {
            (_, FeatureSelect::Capabilities) => FeatureCapabilities::CHANGEABLE | FeatureCapabilities::OF_NAMESPACE,
            (_, FeatureSelect::Default) => 0,
            (Feature::ReservationPersistence, _) => self.subsystem().reservations.registrants(place).persists.into(),
            (_, FeatureSelect::Saved) => 0,
            (_, FeatureSelect::Current) => self.state.lock().notices.mask(nsid),
        })
    }

    /// Returns the block namespaces that a change of a feature is for.
    fn reservables(&self, nsid: u32) -> Result<Vec<u32>, Status> {
        match nsid {
            NSID_ALL => self.subsystem().active(Some(CommandSet::NVM)),
            nsid => Ok(vec![self.reservable(nsid)?.0]),
        }
    }

    /// Sets the notifications that the host does not want of a namespace, or of all.
    ///
    /// # Errors
    /// Invalid namespace; invalid field.
    pub(crate) fn mask_notices(&self, nsid: u32, mask: u32) -> Result<(), Status> {
        let nsids = self.reservables(nsid)?;
        self.state.lock().notices.set_mask(&nsids, mask)
    }

    /// Sets whether the registrants of a namespace, or of all, survive a loss of power.
    ///
    /// # Errors
    /// Invalid namespace; feature not changeable, in a store that is not written; errors of the medium.
    pub(crate) fn set_persistence(&self, nsid: u32, persists: bool) -> Result<(), Status> {
        let nsids = self.reservables(nsid)?;
        if self.subsystem().read_only() {
            return Err(Status::FEATURE_NOT_CHANGEABLE);
        }
        let device = self.subsystem().device()?;
        for nsid in nsids {
            let place = self.reservable(nsid)?;
            let set = |registrants: &mut Registrants| {
                registrants.persists = persists;
                Ok(())
            };
            self.subsystem().reservations.change(&device, place, set)?;
        }
        Ok(())
    }

    /// Gives log page 80h, the oldest notification; unless `retain` is set, it is forgotten, and the next one may
    /// follow.
    pub(crate) fn give_notice(&self, retain: bool, payload: &mut Payload<'_>, offset: u64) -> Result<(), Status> {
        let mut state = self.state.lock();
        payload.give(state.notices.page().as_bytes(), offset)?;
        if !retain {
            state.notices.read();
        }
        drop(state);
        self.notice();
        Ok(())
    }
}
