//! Keys of TLS 1.3 for NVMe/TCP: the text form of a configured key, what is derived of it, and the keys of all hosts.
//!
//! TCP transport specification 1.1, section 3.6.1. Host and controller have one configured key. It is made a retained
//! key, which is one host's; of that come, for each subsystem, an identity, which the host names in the open, and the
//! pre-shared key of TLS. `key` has the text form and the derivation, `ring` finds the key of an identity. Nothing here
//! has a socket: the transport does the handshake. Generated keys (identities with `G`), which authentication leaves
//! behind, are not supported.

mod key;
mod ring;

pub use key::{IdentityVersion, TlsHash, TlsKey, TlsKeyError, TlsPsk};
pub use ring::{NamedHost, TlsKeys};

#[cfg(test)]
mod tests;
