//! Registrants and reservation of one namespace: the rules of base specification 2.0, section 8.19.
//!
//! A host is known by its identifier: all its controllers are one registrant, and it stays one when it disconnects. A
//! change is made on a copy ([`Registrants`] is a value), which the caller puts in the place of the old one once it is
//! durable; the returned [`Consequences`] name the hosts to notify, and those whose commands are to end.
//!
//! Not here: several namespaces, the medium, controllers, events. `reservations` has these.

use std::collections::BTreeMap;

use nandarray_nvme_spec::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationNoticeKind, ReservationType, Status,
};

/// Maximum number of registrants of a namespace: as many as a subsystem has associations.
pub(crate) const REGISTRANTS_MAX: usize = 256;

/// Identifier of a host.
pub(crate) type HostId = [u8; 16];

/// Use of a namespace that a reservation may exclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceUse {
    /// The command reads elements.
    Read,
    /// The command changes elements, or the array itself; a flush, too (base 2.0, section 8.19.2).
    Write,
}

/// The reservation of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldReservation {
    kind: ReservationType,
    /// The host that acquired it. Of a reservation that all registrants hold, one of them.
    holder: HostId,
}

/// Further effects of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Consequences {
    /// Hosts that are notified.
    pub(crate) notices: Vec<(HostId, ReservationNoticeKind)>,
    /// Hosts that the change has unregistered, but for the host that made it.
    pub(crate) preempted: Vec<HostId>,
}

/// Registrants of a namespace with their keys, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registrants {
    keys: BTreeMap<HostId, u64>,
    held: Option<HeldReservation>,
    /// Number of changes of registrants since the server started (GEN).
    pub(crate) generation: u32,
    /// Whether keys and reservation survive a loss of power (PTPL).
    pub(crate) persists: bool,
}

impl Registrants {
    /// Makes registrants with these keys; `None` if there are too many of them, or the reservation's host is none.
    pub(crate) fn restored(keys: BTreeMap<HostId, u64>, held: Option<(ReservationType, HostId)>) -> Option<Self> {
        let is_sound = keys.len() <= REGISTRANTS_MAX && held.is_none_or(|(_, holder)| keys.contains_key(&holder));
        let held = held.map(|(kind, holder)| HeldReservation { kind, holder });
        is_sound.then_some(Self { keys, held, generation: 0, persists: true })
    }

    /// Returns the registrants with their keys, in order of their identifiers.
    pub(crate) fn keys(&self) -> &BTreeMap<HostId, u64> {
        &self.keys
    }

    /// Returns type and host of the reservation.
    pub(crate) fn held(&self) -> Option<(ReservationType, HostId)> {
        self.held.map(|held| (held.kind, held.holder))
    }

    /// Whether a registrant holds the reservation.
    pub(crate) fn is_holder(&self, host: &HostId) -> bool {
        self.held.is_some_and(|held| match held.kind.is_of_all() {
            true => self.keys.contains_key(host),
            false => held.holder == *host,
        })
    }

    /// Whether the reservation lets a host use the namespace so.
    pub(crate) fn admits(&self, host: &HostId, what: SpaceUse) -> bool {
        let Some(held) = self.held else { return true };
        assert!(!held.kind.is_of_all() || self.is_holder(&held.holder), "{held:?} without its registrant");
        let is_reader = what == SpaceUse::Read && held.kind.admits_readers();
        let is_registrant = held.kind.admits_registrants() && self.keys.contains_key(host);
        is_reader || is_registrant || held.holder == *host
    }

    /// Registers or unregisters a host, or replaces its key.
    ///
    /// # Errors
    /// Invalid field: the new key is 0, which no registrant has. Reservation conflict. Insufficient resources.
    pub(crate) fn register(
        &mut self,
        host: &HostId,
        action: RegisterAction,
        ignore_key: bool,
        current: u64,
        new: u64,
    ) -> Result<Consequences, Status> {
        let mut done = Consequences::default();
        let found = self.keys.get(host).copied();
        let fits = |key: u64| ignore_key || key == current;
        match action {
            RegisterAction::Unregister => {
                found.filter(|key| fits(*key)).ok_or(Status::RESERVATION_CONFLICT)?;
                self.remove(host, &mut done);
            }
            RegisterAction::Register | RegisterAction::Replace if new == 0 => return Err(Status::INVALID_FIELD),
            RegisterAction::Register => match found {
                // The same key again changes nothing.
                Some(key) if key != new => return Err(Status::RESERVATION_CONFLICT),
                _ => self.set_key(host, new)?,
            },
            // A host that ignores the key of before need not have one.
            RegisterAction::Replace if found.map_or(ignore_key, fits) => self.set_key(host, new)?,
            RegisterAction::Replace => return Err(Status::RESERVATION_CONFLICT),
        }
        self.changed();
        Ok(done)
    }

    /// Acquires the reservation, or preempts registrants with key `preempted`.
    ///
    /// # Errors
    /// Reservation conflict. Invalid field: the holder's registration was to be preempted by no key.
    pub(crate) fn acquire(
        &mut self,
        host: &HostId,
        action: AcquireAction,
        kind: ReservationType,
        current: u64,
        preempted: u64,
    ) -> Result<Consequences, Status> {
        self.check_key(host, current)?;
        match action {
            AcquireAction::Acquire => {
                match self.held {
                    None => self.held = Some(HeldReservation { kind, holder: *host }),
                    Some(held) if self.is_holder(host) && held.kind == kind => {}
                    Some(_) => return Err(Status::RESERVATION_CONFLICT),
                }
                self.check();
                Ok(Consequences::default())
            }
            AcquireAction::Preempt | AcquireAction::PreemptAndAbort => self.preempt(host, kind, preempted),
        }
    }

    fn preempt(&mut self, host: &HostId, kind: ReservationType, preempted: u64) -> Result<Consequences, Status> {
        let mut done = Consequences::default();
        let takes_over = match self.held {
            None => false,
            Some(held) if held.kind.is_of_all() => preempted == 0,
            Some(held) => self.keys[&held.holder] == preempted,
        };
        let all = takes_over && preempted == 0;
        let mut leaving: Vec<HostId> =
            (self.keys.iter()).filter(|(_, key)| all || **key == preempted).map(|(host, _)| *host).collect();
        if takes_over {
            // The host that preempts stays, whatever its key.
            leaving.retain(|one| one != host);
            let before = self.held.replace(HeldReservation { kind, holder: *host });
            self.keys.retain(|one, _| !leaving.contains(one));
            if before.is_some_and(|before| before.kind != kind) {
                self.notify_others(host, ReservationNoticeKind::ReservationReleased, &mut done);
            }
        } else {
            if leaving.is_empty() {
                // A single holder is not preempted by a key that no host can have.
                let field = preempted == 0 && self.held.is_some();
                return Err(if field { Status::INVALID_FIELD } else { Status::RESERVATION_CONFLICT });
            }
            leaving.iter().for_each(|one| self.remove(one, &mut done));
        }
        leaving.retain(|one| one != host);
        assert!(!takes_over || self.is_holder(host), "{host:?} took the reservation over, and does not hold it");
        done.notices.extend(leaving.iter().map(|one| (*one, ReservationNoticeKind::RegistrationPreempted)));
        done.preempted = leaving;
        self.changed();
        Ok(done)
    }

    /// Gives the reservation back, or clears registrants and reservation. `kind` is the number of the reservation's
    /// type.
    ///
    /// # Errors
    /// Reservation conflict. Invalid field: the reservation has another type.
    pub(crate) fn release(
        &mut self,
        host: &HostId,
        action: ReleaseAction,
        kind: u8,
        current: u64,
    ) -> Result<Consequences, Status> {
        self.check_key(host, current)?;
        let mut done = Consequences::default();
        match (action, self.held) {
            (ReleaseAction::Release, Some(held)) if self.is_holder(host) => {
                if held.kind as u8 != kind {
                    return Err(Status::INVALID_FIELD);
                }
                self.held = None;
                if held.kind.admits_registrants() {
                    self.notify_others(host, ReservationNoticeKind::ReservationReleased, &mut done);
                }
            }
            // Without a reservation of its own, a registrant releases nothing, and the command succeeds.
            (ReleaseAction::Release, _) => {}
            (ReleaseAction::Clear, _) => {
                self.notify_others(host, ReservationNoticeKind::ReservationPreempted, &mut done);
                done.preempted = self.keys.keys().filter(|one| *one != host).copied().collect();
                self.held = None;
                self.keys.clear();
                self.changed();
            }
        }
        self.check();
        Ok(done)
    }

    fn check_key(&self, host: &HostId, current: u64) -> Result<(), Status> {
        if self.keys.get(host) == Some(&current) { Ok(()) } else { Err(Status::RESERVATION_CONFLICT) }
    }

    fn set_key(&mut self, host: &HostId, key: u64) -> Result<(), Status> {
        if !self.keys.contains_key(host) && self.keys.len() >= REGISTRANTS_MAX {
            return Err(Status::RESOURCES);
        }
        self.keys.insert(*host, key);
        Ok(())
    }

    /// Removes a registrant, and its reservation with it, unless others hold that too.
    fn remove(&mut self, host: &HostId, done: &mut Consequences) {
        self.keys.remove(host);
        let Some(held) = self.held.filter(|held| held.holder == *host) else { return };
        self.held = match (held.kind.is_of_all(), self.keys.first_key_value()) {
            (true, Some((heir, _))) => Some(HeldReservation { holder: *heir, ..held }),
            _ => None,
        };
        if self.held.is_none() && held.kind.admits_registrants() {
            self.notify_others(host, ReservationNoticeKind::ReservationReleased, done);
        }
    }

    fn notify_others(&self, host: &HostId, kind: ReservationNoticeKind, done: &mut Consequences) {
        done.notices.extend(self.keys.keys().filter(|one| *one != host).map(|one| (*one, kind)));
    }

    fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.check();
    }

    /// Checks that a reservation is a registrant's, and that no key is 0.
    fn check(&self) {
        let is_registrant = self.held.is_none_or(|held| self.keys.contains_key(&held.holder));
        assert!(is_registrant, "a reservation of a host that is no registrant: {self:?}");
        assert!(self.keys.len() <= REGISTRANTS_MAX, "{} registrants", self.keys.len());
        assert!(self.keys.values().all(|key| *key != 0), "a registrant without a key: {self:?}");
    }
}
