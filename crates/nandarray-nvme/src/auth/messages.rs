//! Messages of the exchange, byte for byte, as Authentication Send and Receive carry them.
//!
//! Every length is checked before bytes are taken; bytes after a message are ignored, as hosts send and ask for more.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::secret::DhchapHash;

/// Type of the message Negotiate and of failures.
const COMMON: u8 = 0x00;
/// Type of all messages except Negotiate and failures.
const DHCHAP: u8 = 0x01;
/// Identifier of the protocol DH-HMAC-CHAP.
const DHCHAP_PROTOCOL: u8 = 0x01;
const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;
/// The only reason code of a failure, which its explanation specifies.
const REASON_FAILED: u8 = 0x01;
/// Maximum number of identifiers in either half of a protocol descriptor.
const IDS_MAX: usize = 30;
const HEAD_BYTES: usize = 16;

/// The reason why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthFailure {
    /// A response is wrong: the other side does not know the secret.
    #[error("a wrong response to a challenge")]
    WrongResponse,
    /// No protocol that was offered is supported.
    #[error("no usable authentication protocol")]
    NoProtocol,
    /// The host requested a secure channel, which is not supported.
    #[error("a secure channel cannot be made")]
    SecureChannel,
    /// No hash function that was offered is supported.
    #[error("no usable hash function")]
    NoHash,
    /// Exchange without a Diffie-Hellman group was not offered.
    #[error("no usable Diffie-Hellman group")]
    NoGroup,
    /// A message has wrong contents.
    #[error("a message with wrong contents")]
    Payload,
    /// A message came in the wrong order.
    #[error("a message out of order")]
    Order,
}

impl AuthFailure {
    const CODES: [(Self, u8); 7] = [
        (Self::WrongResponse, 1),
        (Self::NoProtocol, 2),
        (Self::SecureChannel, 3),
        (Self::NoHash, 4),
        (Self::NoGroup, 5),
        (Self::Payload, 6),
        (Self::Order, 7),
    ];

    /// Returns the failure's number in a message (reason code explanation).
    pub fn code(self) -> u8 {
        Self::CODES.into_iter().find(|(failure, _)| *failure == self).expect("every failure has a code").1
    }

    fn from_code(code: u8) -> Self {
        Self::CODES.into_iter().find(|(_, found)| *found == code).map_or(Self::WrongResponse, |(failure, _)| failure)
    }
}

/// First 16 bytes of every message; messages leave other fields zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct MessageHead {
    auth_type: u8,
    auth_id: u8,
    reserved2: U16,
    t_id: U16,
    /// Secure channel, length of a digest, or reason of a failure, by the kind of message.
    byte6: u8,
    /// Number of protocol descriptors, or explanation of a failure.
    byte7: u8,
    /// Hash function, or bit 0 for a challenge or a response that follows, by the kind of message.
    byte8: u8,
    /// Diffie-Hellman group.
    byte9: u8,
    /// Length of the group's value in bytes.
    dhvlen: U16,
    seqnum: U32,
}

/// An authentication protocol with its parameters, as a host offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolDescriptor {
    /// Identifiers of hash functions, in order of preference.
    pub hashes: Vec<u8>,
    /// Identifiers of Diffie-Hellman groups; 0 is none.
    pub groups: Vec<u8>,
}

/// A message of the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMessage {
    /// Host: begins a transaction, with the protocols that it supports.
    Negotiate {
        /// Number of the transaction.
        t_id: u16,
        /// Secure channel that it asks for; 0 is none.
        secure_channel: u8,
        /// The descriptors of DH-HMAC-CHAP.
        protocols: Vec<ProtocolDescriptor>,
    },
    /// Controller: chooses parameters, and challenges the host.
    Challenge {
        /// Number of the transaction.
        t_id: u16,
        /// Hash function.
        hash: u8,
        /// Diffie-Hellman group.
        group: u8,
        /// Sequence number of the challenge.
        seqnum: u32,
        /// The controller's challenge to the host.
        challenge: Vec<u8>,
    },
    /// Host: responds, and may challenge the controller.
    Reply {
        /// Number of the transaction.
        t_id: u16,
        /// Sequence number of the host's challenge.
        seqnum: u32,
        /// Response to the controller's challenge.
        response: Vec<u8>,
        /// The host's challenge to the controller; `None` if the controller need not prove its identity.
        challenge: Option<Vec<u8>>,
    },
    /// Controller: the host is authentic; responds if it was challenged.
    Success1 {
        /// Number of the transaction.
        t_id: u16,
        /// Length of a digest in bytes.
        digest_bytes: u8,
        /// Response to the host's challenge.
        response: Option<Vec<u8>>,
    },
    /// Host: the controller is authentic.
    Success2 {
        /// Number of the transaction.
        t_id: u16,
    },
    /// The exchange failed.
    Failed {
        /// Number of the transaction.
        t_id: u16,
        /// Whether the host reports the failure; otherwise the controller does.
        by_host: bool,
        /// Reason for the failure.
        failure: AuthFailure,
    },
}

fn ids(bytes: &[u8], count: u8) -> Result<Vec<u8>, AuthFailure> {
    bytes.get(..usize::from(count)).filter(|ids| ids.len() <= IDS_MAX).map(<[u8]>::to_vec).ok_or(AuthFailure::Payload)
}

fn negotiate(t_id: u16, head: &[u8; 8], rest: &[u8]) -> Result<AuthMessage, AuthFailure> {
    let mut protocols = Vec::new();
    let (found, _) = rest.as_chunks::<64>();
    let count = usize::from(head[7]);
    for one in found.get(..count).ok_or(AuthFailure::Payload)? {
        if one[0] == DHCHAP_PROTOCOL {
            let hashes = ids(&one[4..4 + IDS_MAX], one[2])?;
            protocols.push(ProtocolDescriptor { hashes, groups: ids(&one[4 + IDS_MAX..], one[3])? });
        }
    }
    Ok(AuthMessage::Negotiate { t_id, secure_channel: head[6], protocols })
}

/// Returns the two digests of `bytes` bytes that follow a message's head; `None` for the second unless `second` is set.
fn digests(rest: &[u8], bytes: u8, second: bool) -> Result<(Vec<u8>, Option<Vec<u8>>), AuthFailure> {
    let bytes = usize::from(bytes);
    let first = rest.get(..bytes).ok_or(AuthFailure::Payload)?.to_vec();
    let other = rest.get(bytes..2 * bytes).map(<[u8]>::to_vec);
    if second && other.is_none() { Err(AuthFailure::Payload) } else { Ok((first, other.filter(|_| second))) }
}

impl AuthMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// Wrong contents: it is too short, or of an unknown kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, AuthFailure> {
        let short: &[u8; 8] = bytes.first_chunk().ok_or(AuthFailure::Payload)?;
        let t_id = u16::from_le_bytes([short[4], short[5]]);
        match (short[0], short[1]) {
            (COMMON, NEGOTIATE) => return negotiate(t_id, short, &bytes[8..]),
            (COMMON, FAILURE1 | FAILURE2) => {
                let failure = AuthFailure::from_code(short[7]);
                return Ok(Self::Failed { t_id, by_host: short[1] == FAILURE2, failure });
            }
            (DHCHAP, CHALLENGE..=SUCCESS2) => {}
            _ => return Err(AuthFailure::Payload),
        }
        let (head, rest) = MessageHead::read_from_prefix(bytes).map_err(|_| AuthFailure::Payload)?;
        let (bytes, seqnum) = (head.byte6, head.seqnum.get());
        match head.auth_id {
            CHALLENGE => {
                let (challenge, _) = digests(rest, bytes, false)?;
                Ok(Self::Challenge { t_id, hash: head.byte8, group: head.byte9, seqnum, challenge })
            }
            // A value of a group would follow, and was not asked for.
            REPLY if head.dhvlen.get() != 0 => Err(AuthFailure::Payload),
            REPLY => {
                let (response, challenge) = digests(rest, bytes, head.byte8 & 1 != 0)?;
                Ok(Self::Reply { t_id, seqnum, response, challenge })
            }
            SUCCESS1 => {
                let response = if head.byte8 & 1 != 0 { Some(digests(rest, bytes, false)?.0) } else { None };
                Ok(Self::Success1 { t_id, digest_bytes: bytes, response })
            }
            _ => Ok(Self::Success2 { t_id }),
        }
    }

    /// Makes the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let head = |auth_id: u8, t_id: u16| MessageHead {
            auth_type: if matches!(auth_id, NEGOTIATE | FAILURE1 | FAILURE2) { COMMON } else { DHCHAP },
            auth_id,
            t_id: t_id.into(),
            ..MessageHead::default()
        };
        match self {
            Self::Negotiate { t_id, secure_channel, protocols } => {
                let made =
                    MessageHead { byte6: *secure_channel, byte7: protocols.len() as u8, ..head(NEGOTIATE, *t_id) };
                let mut bytes = made.as_bytes()[..8].to_vec();
                for protocol in protocols {
                    let mut one = [0u8; 64];
                    (one[0], one[2]) = (DHCHAP_PROTOCOL, protocol.hashes.len() as u8);
                    one[3] = protocol.groups.len() as u8;
                    one[4..4 + protocol.hashes.len()].copy_from_slice(&protocol.hashes);
                    one[4 + IDS_MAX..4 + IDS_MAX + protocol.groups.len()].copy_from_slice(&protocol.groups);
                    bytes.extend_from_slice(&one);
                }
                bytes
            }
            Self::Challenge { t_id, hash, group, seqnum, challenge } => {
                let made = MessageHead {
                    byte6: challenge.len() as u8,
                    byte8: *hash,
                    byte9: *group,
                    seqnum: (*seqnum).into(),
                    ..head(CHALLENGE, *t_id)
                };
                [made.as_bytes(), challenge].concat()
            }
            Self::Reply { t_id, seqnum, response, challenge } => {
                let made = MessageHead {
                    byte6: response.len() as u8,
                    byte8: challenge.is_some().into(),
                    seqnum: (*seqnum).into(),
                    ..head(REPLY, *t_id)
                };
                // The room of the challenge is there in any case.
                let none = vec![0; response.len()];
                [made.as_bytes(), response, challenge.as_ref().unwrap_or(&none)].concat()
            }
            Self::Success1 { t_id, digest_bytes, response } => {
                let made =
                    MessageHead { byte6: *digest_bytes, byte8: response.is_some().into(), ..head(SUCCESS1, *t_id) };
                [made.as_bytes(), response.as_deref().unwrap_or_default()].concat()
            }
            Self::Success2 { t_id } => head(SUCCESS2, *t_id).as_bytes().to_vec(),
            Self::Failed { t_id, by_host, failure } => {
                let id = if *by_host { FAILURE2 } else { FAILURE1 };
                let made = MessageHead { byte6: REASON_FAILED, byte7: failure.code(), ..head(id, *t_id) };
                made.as_bytes()[..8].to_vec()
            }
        }
    }
}

/// Returns the parts whose concatenation is hashed to respond to a challenge: by the controller if `controller` is set,
/// otherwise by the host.
pub(super) fn response_parts<'a>(
    controller: bool,
    challenge: &'a [u8],
    numbers: &'a [u8; 7],
    nqns: (&'a str, &'a str),
) -> [&'a [u8]; 6] {
    let who: &[u8] = if controller { b"Controller" } else { b"HostHost" };
    [challenge, numbers, who, nqns.0.as_bytes(), &[0], nqns.1.as_bytes()]
}

/// Returns the numbers among these parts: sequence number, transaction, secure channel (none).
pub(super) fn response_numbers(seqnum: u32, t_id: u16) -> [u8; 7] {
    let mut numbers = [0; 7];
    numbers[..4].copy_from_slice(&seqnum.to_le_bytes());
    numbers[4..6].copy_from_slice(&t_id.to_le_bytes());
    numbers
}

const _: () = assert!(size_of::<MessageHead>() == HEAD_BYTES);
const _: () = assert!(DhchapHash::ALL.len() <= IDS_MAX);
