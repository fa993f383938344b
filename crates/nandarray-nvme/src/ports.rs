//! Ports: the addresses by which hosts reach a subsystem, and the state of the paths by each (asymmetric namespace
//! access).
//!
//! A host that is connected by several ports has a controller by each, and all namespaces by each controller. All
//! namespaces are one group; what a controller tells of the group is the state of its own port, which does not change
//! while the port is there. With one port there is nothing to tell.

use std::net::{IpAddr, SocketAddr};

use nandarray_nvme_spec::{PathState, PathsGroup, PathsHeader};
use zerocopy::IntoBytes;

/// Identifier of the group of all namespaces.
pub(crate) const GROUP: u32 = 1;

/// An address where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubsystemPort {
    pub(crate) address: SocketAddr,
    pub(crate) state: PathState,
}

impl SubsystemPort {
    /// Whether a host that has reached an address and a port, as texts, has come by this one.
    fn is_way_of(&self, (address, port): &(String, String)) -> bool {
        let own = self.address.ip();
        let is_here = || address.parse::<IpAddr>().is_ok_and(|found| found == own.to_canonical());
        *port == self.address.port().to_string() && (own.is_unspecified() || is_here())
    }

    /// Returns the address and the port by which a host that has reached `local` reaches this one; `None` if it cannot:
    /// a loopback address is one of this machine.
    fn reached(&self, local: &(String, String)) -> Option<(String, String)> {
        let own = self.address.ip();
        let host = local.0.parse::<IpAddr>().ok()?;
        let address = if own.is_unspecified() { local.0.clone() } else { own.to_canonical().to_string() };
        let is_far = own.is_loopback() && !host.is_loopback();
        // A socket of IPv6 takes hosts of IPv4, and no other way round.
        let is_other = own.is_unspecified() && own.is_ipv4() && host.is_ipv6();
        (!is_far && !is_other).then(|| (address, self.address.port().to_string()))
    }
}

/// Returns the port by which a host has come that has reached `local`; the narrowest of those that fit.
fn way_of<'a>(ports: &'a [SubsystemPort], local: &(String, String)) -> Option<&'a SubsystemPort> {
    let mut fitting = ports.iter().filter(|port| port.is_way_of(local));
    fitting.clone().find(|port| !port.address.ip().is_unspecified()).or_else(|| fitting.next())
}

/// Returns the state of the paths of a host; one that has come by a unix socket has the best.
pub(crate) fn state_of(ports: &[SubsystemPort], local: Option<&(String, String)>) -> PathState {
    local.and_then(|local| way_of(ports, local)).map_or(PathState::default(), |port| port.state)
}

/// Returns the addresses and ports that the discovery log tells a host: those that it can reach, each once, first that
/// by which it has come.
pub(crate) fn reached(ports: &[SubsystemPort], local: &(String, String)) -> Vec<(String, String)> {
    let mut found = vec![local.clone()];
    for one in ports.iter().filter_map(|port| port.reached(local)) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Returns log page 0Ch: the group of all namespaces, with the identifiers of these unless `groups_only` is set.
pub(crate) fn page(state: PathState, nsids: &[u32], groups_only: bool) -> Vec<u8> {
    let listed = if groups_only { &[] } else { nsids };
    let mut header = PathsHeader::default();
    header.groups.set(1);
    let mut group = PathsGroup::default();
    group.state = state as u8;
    group.group.set(GROUP);
    group.namespaces.set(listed.len() as u32);
    let mut page = [header.as_bytes(), group.as_bytes()].concat();
    listed.iter().for_each(|nsid| page.extend_from_slice(&nsid.to_le_bytes()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, port: &str) -> (String, String) {
        (address.to_owned(), port.to_owned())
    }

    #[test]
    fn a_host_is_told_the_ports_that_it_can_reach() {
        let port = |text: &str, state| SubsystemPort { address: text.parse().unwrap(), state };
        let (first, second) = (PathState::Optimized, PathState::NonOptimized);
        let ports = [
            port("192.0.2.7:4420", first),
            port("[2001:db8::7]:4420", second),
            port("127.0.0.1:4421", second),
            port("0.0.0.0:4422", second),
            port("127.0.0.1:4422", first),
        ];
        let far = at("192.0.2.7", "4420");
        assert_eq!(reached(&ports, &far), [far.clone(), at("2001:db8::7", "4420"), at("192.0.2.7", "4422")]);
        let six = at("2001:db8::7", "4420");
        assert_eq!(reached(&ports, &six), [six.clone(), far.clone()]);
        let near = at("127.0.0.1", "4421");
        let all = [&near, &far, &at("2001:db8::7", "4420"), &at("127.0.0.1", "4422")].map(Clone::clone);
        assert_eq!(reached(&ports, &near), all);
        assert_eq!(reached(&[], &far), std::slice::from_ref(&far));
        for (local, expected) in [
            (&far, first),
            (&near, second),
            (&at("127.0.0.1", "4422"), first),
            (&at("192.0.2.9", "4422"), second),
            (&at("2001:db8::7", "4420"), second),
            (&at("192.0.2.9", "1"), first),
        ] {
            assert_eq!(state_of(&ports, Some(local)), expected, "{local:?}");
        }
        assert_eq!(state_of(&ports, None), first);
    }

    #[test]
    fn the_page_has_one_group() {
        let page = page(PathState::NonOptimized, &[1, 1022], false);
        assert_eq!((page.len(), page[8], page[16], page[20], page[32]), (56, 1, 1, 2, 2));
        assert_eq!(page[48..], [1, 0, 0, 0, 254, 3, 0, 0]);
        assert_eq!(super::page(PathState::Optimized, &[1], true).len(), 48);
    }
}
