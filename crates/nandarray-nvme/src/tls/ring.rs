//! The keys of all hosts of a subsystem, and the one that an identity names.

use std::collections::BTreeMap;

use super::key::{IdentityVersion, TlsKey, TlsPsk};

/// Keys of TLS by the qualified names of hosts.
pub type TlsKeys = BTreeMap<String, TlsKey>;

/// The host and the subsystem that an identity names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedHost {
    /// Qualified name of the host.
    pub hostnqn: String,
    /// Qualified name of the subsystem, or of the discovery service.
    pub subnqn: String,
    version: IdentityVersion,
}

impl NamedHost {
    /// Reads an identity. Names have no spaces.
    pub fn parse(identity: &str) -> Option<Self> {
        let mut words = identity.split(' ');
        let (kind, hostnqn, subnqn) = (words.next()?, words.next()?, words.next()?);
        let (version, rest) = match kind.strip_prefix("NVMe")?.split_at_checked(1)? {
            ("0", rest) => (IdentityVersion::Zero, rest),
            ("1", rest) => (IdentityVersion::One, rest),
            _ => return None,
        };
        rest.strip_prefix('R')?;
        Some(Self { hostnqn: hostnqn.to_owned(), subnqn: subnqn.to_owned(), version })
    }

    /// Returns the key that an identity names, if it is the one of this host.
    pub fn key_of(&self, identity: &str, keys: &TlsKeys) -> Option<TlsPsk> {
        let found = keys.get(&self.hostnqn)?.derive(&self.hostnqn, &self.subnqn, self.version)?;
        (found.identity == identity).then_some(found)
    }
}
