//! Tenants for a door beside NVMe's: the same rules, budgets of memory and rates, without associations.
//!
//! A door (`python/nandarray/flight`) proves who a host is, and asks here what the host's tenant may see, change and
//! take. Not here: secrets, turns of workers, programs in slots, local memory, all of which are NVMe's.

use std::sync::Arc;
use std::time::Duration;

use nandarray::nvme::ArrayAccess;
use parking_lot::Mutex;

use crate::budget::ReservedMemory;
use crate::tenants::{NodeRules, Tenant, TenantRules, Tenants};

/// The tenants of a node as a door uses them.
#[derive(Debug)]
pub struct DoorTenants(Tenants);

impl DoorTenants {
    /// Makes the tenants of some rules; without rules every host is one.
    pub fn new(rules: NodeRules) -> Self {
        Self(Tenants::new(rules, None))
    }

    /// Returns the tenant of a host; `None` if it is none's. Without rules, hosts whose names nothing proves share
    /// the part of the node of all at the same place, their `peer`.
    pub fn admit(&self, hostnqn: &str, peer: Option<&str>) -> Option<DoorTenant> {
        self.0.admit(hostnqn, peer).map(DoorTenant)
    }

    /// Whether a host still belongs to the tenant that it was admitted as.
    pub fn is_host_of(&self, hostnqn: &str, tenant: &DoorTenant) -> bool {
        self.0.is_host_of(hostnqn, &tenant.0)
    }

    /// Replaces the rules: limits and arrays change at once.
    pub fn replace(&self, rules: NodeRules) {
        self.0.replace(rules);
    }

    /// Returns the memory that is reserved, and the limit of the node, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        (self.0.budget().used(), self.0.budget().limit())
    }

    /// Returns the tenants that have a state, each with the memory that it has reserved, and its limit, in bytes.
    pub fn in_use(&self) -> Vec<(String, u64, u64)> {
        let told = |tenant: &Arc<Tenant>| (tenant.name().to_owned(), tenant.budget.used(), tenant.budget.limit());
        self.0.live().iter().map(told).collect()
    }
}

/// One tenant as a door uses it.
#[derive(Clone, Debug)]
pub struct DoorTenant(Arc<Tenant>);

impl DoorTenant {
    /// Returns the name: that of the rules, or the host's.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether it may read an array.
    pub fn reads(&self, array: &str) -> bool {
        ArrayAccess::reads(&*self.0, array)
    }

    /// Whether it may make, change and delete an array.
    pub fn writes(&self, array: &str) -> bool {
        ArrayAccess::writes(&*self.0, array)
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> TenantRules {
        self.0.rule(Clone::clone)
    }

    /// Counts a step that moves `bytes` bytes, at a time since the door was opened; returns the time for which it has
    /// to wait, so that the tenant keeps its rates.
    pub fn pace(&self, now: Duration, bytes: u64) -> Duration {
        self.0.pace(now, bytes)
    }

    /// Reserves bytes of memory; `None` if the tenant, or the node, has fewer left.
    pub fn reserve(&self, bytes: u64) -> Option<DoorMemory> {
        self.0.budget.reserve(bytes).ok().map(|memory| DoorMemory(Mutex::new(Some(memory))))
    }
}

/// Bytes of a tenant's budget that are reserved until they are given back, or this is dropped.
#[derive(Debug)]
pub struct DoorMemory(Mutex<Option<ReservedMemory>>);

impl DoorMemory {
    /// Gives the bytes back; a second time without effect.
    pub fn give_back(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_has_the_rules_budgets_and_rates_of_nvme() {
        let text = "[node]\nmemory_mib = 128\n[tenants.t]\nhosts = [\"nqn.t\"]\nread = [\"a/*\"]\nmemory_mib = 64\n\
                    bandwidth_mib = 1\n";
        let tenants = DoorTenants::new(NodeRules::parse(text, "rules").unwrap());
        let tenant = tenants.admit("nqn.t", None).unwrap();
        assert!(tenant.reads("a/b") && !tenant.writes("a/b") && tenants.admit("nqn.u", None).is_none());
        let held = tenant.reserve(64 << 20).unwrap();
        assert!(tenant.reserve(1).is_none());
        assert_eq!(
            (tenants.memory(), tenants.in_use()),
            ((64 << 20, 128 << 20), vec![("t".into(), 64 << 20, 64 << 20)])
        );
        held.give_back();
        assert_eq!(tenants.memory().0, 0);
        assert_eq!(tenant.pace(Duration::ZERO, 1 << 20), Duration::ZERO, "the first is paid by those behind it");
        assert!(tenant.pace(Duration::ZERO, 1) > Duration::from_millis(900));
        tenants.replace(NodeRules::parse(&text.replace("nqn.t", "nqn.u"), "rules").unwrap());
        assert!(!tenants.is_host_of("nqn.t", &tenant) && tenants.is_host_of("nqn.u", &tenant));
    }
}
