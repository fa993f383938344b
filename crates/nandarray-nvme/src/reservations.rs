//! Reservations of the namespaces of a subsystem: who may use an array; changes, durable where they persist.
//!
//! Registrants are kept by the array of their namespace (its [`SpaceId`]), so that every path to its elements obeys
//! them: blocks, views and stored boxes, array requests, inputs and outputs of programs. A namespace that is deleted or
//! renamed has none any more. With the persistence of a namespace switched on, they are an attribute of its array
//! (`saved_registrants`), which is durable before the command completes; otherwise they end with the server.
//!
//! The rules of one namespace are in `registrants`, the commands in `reserve`. Not here: paths that are no host's, as
//! the store's own process and shared memory, which no reservation excludes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::nvme::Controller;
use nandarray::{Device, SpaceId, command};
use nandarray_nvme_spec::{NSID_MEMORY, Status};
use parking_lot::{Mutex, RwLock};

use crate::registrants::{HostId, Registrants, SpaceUse};
use crate::saved_registrants::{self, RegistrantsOwner};

/// Number of identifiers that belong to tenants from which those that are registered nowhere are forgotten.
const CLAIMS_MAX: usize = 4096;

/// The array of a namespace, with its registrants.
#[derive(Clone, Debug)]
struct ReservableArray {
    nsid: u32,
    registrants: Registrants,
}

/// Registrants and reservations of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Identity of the drive.
    drive: [u8; 16],
    /// Whether any namespace has a reservation: without one, commands look no further.
    is_any: AtomicBool,
    arrays: RwLock<BTreeMap<SpaceId, ReservableArray>>,
    /// Tenants by the identifiers of their hosts that have registered: another tenant's host cannot pass for one.
    claims: RwLock<BTreeMap<HostId, String>>,
    /// Lock of a change, held also while the registrants are made durable.
    changing: Mutex<()>,
}

/// Reservations as one host meets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostReservations<'a> {
    all: &'a Reservations,
    device: &'a Device,
    host: HostId,
}

impl HostReservations<'_> {
    /// Checks that no reservation excludes the host from a use of an array.
    ///
    /// # Errors
    /// Reservation conflict.
    pub(crate) fn check(&self, array: SpaceId, what: SpaceUse) -> Result<(), Status> {
        self.all.check(self.device, &self.host, array, what)
    }
}

/// Whether an array is that of a namespace still.
fn is_namespace(device: &Device, array: SpaceId, nsid: u32) -> bool {
    device.by_id(array).is_ok_and(|space| {
        let inner = space.peek();
        !inner.deleted && inner.record.name == format!("ns/{nsid}")
    })
}

impl Reservations {
    /// Returns the reservations that the namespaces of a store have as attributes.
    pub(crate) fn of(device: &Device, inventory: &Controller, drive: [u8; 16]) -> Self {
        let restored = |nsid: u32| {
            let array = inventory.namespace_space(nsid).ok()?;
            let attrs = device.by_id(array).ok()?.peek().record.attrs.clone();
            let registrants = saved_registrants::restored(&attrs, RegistrantsOwner { drive, nsid })?;
            Some((array, ReservableArray { nsid, registrants }))
        };
        // By their names: a list is a command, which a modelled device would count.
        let found: BTreeMap<_, _> = (1..NSID_MEMORY).filter_map(restored).collect();
        let made = Self { drive, ..Self::default() };
        made.look(&found);
        Self { arrays: RwLock::new(found), ..made }
    }

    /// Notes whether any of the arrays has a reservation.
    fn look(&self, arrays: &BTreeMap<SpaceId, ReservableArray>) {
        let is_any = arrays.values().any(|one| one.registrants.held().is_some());
        self.is_any.store(is_any, Ordering::SeqCst);
        assert!(arrays.values().all(|one| (1..NSID_MEMORY).contains(&one.nsid)), "registrants of no block namespace");
    }

    /// Returns the identifier by which a tenant's host is known here: its own, or 0 (none) if it is another tenant's.
    pub(crate) fn identity(&self, host: HostId, tenant: &str) -> HostId {
        let is_mine = self.claims.read().get(&host).is_none_or(|owner| owner == tenant);
        if is_mine { host } else { [0; 16] }
    }

    /// Notes that a tenant's host has registered with an identifier; those that are registered nowhere any more are
    /// free again when many are known.
    pub(crate) fn claim(&self, host: HostId, tenant: &str) {
        let mut claims = self.claims.write();
        if claims.len() >= CLAIMS_MAX {
            let arrays = self.arrays.read();
            claims.retain(|known, _| arrays.values().any(|one| one.registrants.keys().contains_key(known)));
        }
        claims.entry(host).or_insert_with(|| tenant.to_owned());
    }

    /// Whether any namespace has a reservation.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }

    /// Returns what a host meets.
    pub(crate) fn seen_by<'a>(&'a self, device: &'a Device, host: HostId) -> HostReservations<'a> {
        HostReservations { all: self, device, host }
    }

    fn check(&self, device: &Device, host: &HostId, array: SpaceId, what: SpaceUse) -> Result<(), Status> {
        if !self.is_any() {
            return Ok(());
        }
        let excluded = match self.arrays.read().get(&array) {
            Some(one) if !one.registrants.admits(host, what) => one.nsid,
            _ => return Ok(()),
        };
        if is_namespace(device, array, excluded) { Err(Status::RESERVATION_CONFLICT) } else { Ok(()) }
    }

    /// Returns the registrants of a namespace; those of an array that was another namespace before are none.
    pub(crate) fn registrants(&self, (nsid, array): (u32, SpaceId)) -> Registrants {
        let arrays = self.arrays.read();
        arrays.get(&array).filter(|one| one.nsid == nsid).map(|one| one.registrants.clone()).unwrap_or_default()
    }

    /// Changes the registrants of a namespace, durably if they persist or did so; nothing is changed by an error.
    pub(crate) fn change<T>(
        &self,
        device: &Device,
        place: (u32, SpaceId),
        change: impl FnOnce(&mut Registrants) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let _one = self.changing.lock();
        let ((nsid, array), before) = (place, self.registrants(place));
        let mut registrants = before.clone();
        let done = change(&mut registrants)?;
        if before.persists || registrants.persists {
            self.save(device, place, &registrants)?;
        }
        let known: Vec<(SpaceId, u32)> = self.arrays.read().iter().map(|(array, one)| (*array, one.nsid)).collect();
        let gone = known.into_iter().filter(|(array, nsid)| !is_namespace(device, *array, *nsid));
        let gone: Vec<SpaceId> = gone.map(|(array, _)| array).collect();
        let mut arrays = self.arrays.write();
        gone.iter().for_each(|array| drop(arrays.remove(array)));
        arrays.insert(array, ReservableArray { nsid, registrants });
        self.look(&arrays);
        Ok(done)
    }

    /// Makes registrants durable as an attribute of their array, or removes the attribute.
    fn save(&self, device: &Device, (nsid, array): (u32, SpaceId), registrants: &Registrants) -> Result<(), Status> {
        let attrs = device.by_id(array)?.peek().record.attrs.clone();
        let changed = saved_registrants::with(&attrs, registrants, RegistrantsOwner { drive: self.drive, nsid })
            .ok_or(Status::INVALID_FIELD)?;
        if changed == attrs {
            return Ok(());
        }
        device.execute(command::SetAttrs { space: array, attrs: &changed })?;
        Ok(device.execute(command::Flush)?)
    }
}
