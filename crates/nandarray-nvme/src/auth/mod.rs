//! In-band authentication of hosts: DH-HMAC-CHAP with SHA-256, SHA-384 or SHA-512, without a Diffie-Hellman group.
//!
//! Base specification 2.0, section 8.13. A host proves on each queue that it knows its secret, by a keyed hash of the
//! controller's challenge; if it sends a challenge of its own, the controller proves that it knows the controller's
//! secret for this host. `secret` has the text form of secrets and their keys, `messages` the bytes of the exchange,
//! `controller` and `host` its two sides as state machines. None of them has a socket or makes random numbers: the
//! transport passes them. Without a Diffie-Hellman group, an eavesdropper can test guesses of a secret; secrets are
//! therefore random keys, not passwords. There is no encryption of what follows.

mod controller;
mod host;
mod messages;
mod secret;

pub use controller::ControllerExchange;
pub use host::HostExchange;
pub use messages::{AuthFailure, AuthMessage, ProtocolDescriptor};
pub use secret::{DhchapHash, DhchapSecret, HostCredentials, SecretError};

/// Maximum length of a challenge or response in bytes, the digest of SHA-512.
pub const DIGEST_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests;
