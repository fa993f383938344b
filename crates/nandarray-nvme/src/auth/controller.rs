//! The controller's side of the exchange, on one queue.
//!
//! The host sends a message, then asks for the answer. A message that is wrong, or comes out of order, leads to a
//! failure message as the next answer; after it the exchange is at an end, and so is the connection. Each negotiation
//! makes a fresh challenge, which one reply uses up, so that a recorded reply is of no use.

use nandarray_nvme_spec::{FabricsCommand, Status, SubmissionEntry};

use super::DIGEST_BYTES_MAX;
use super::messages::{AuthFailure, AuthMessage, ProtocolDescriptor, response_numbers, response_parts};
use super::secret::{DhchapHash, HostCredentials};
use crate::payload::Payload;

/// A challenge that the host has not answered.
#[derive(Debug)]
struct OpenChallenge {
    t_id: u16,
    hash: DhchapHash,
    seqnum: u32,
    challenge: Vec<u8>,
}

/// State of the exchange.
#[derive(Debug)]
enum ExchangeState {
    /// The host has to negotiate, for the first time or again.
    Idle,
    /// The host has negotiated, and has to fetch the challenge.
    Negotiated(OpenChallenge),
    /// The host has fetched the challenge, and has to reply.
    Challenged(OpenChallenge),
    /// The reply was right; the host has to fetch the success message, with the response to its own challenge.
    Replied { t_id: u16, digest_bytes: u8, response: Option<Vec<u8>> },
    /// The host has to confirm the controller's response.
    Confirming { t_id: u16 },
    /// The exchange failed, and the host has to fetch the failure message.
    Failing { t_id: u16, failure: AuthFailure },
    /// The exchange failed: the connection has to end.
    Ended,
}

/// Authentication of the host of one queue.
#[derive(Debug)]
pub struct ControllerExchange {
    credentials: HostCredentials,
    hostnqn: String,
    subnqn: String,
    state: ExchangeState,
    authentic: bool,
}

/// Chooses the first hash function of the first protocol that can be used, of a host's list.
fn choose(protocols: &[ProtocolDescriptor]) -> Result<DhchapHash, AuthFailure> {
    let mut failure = AuthFailure::NoProtocol;
    for protocol in protocols {
        let Some(hash) = protocol.hashes.iter().find_map(|&id| DhchapHash::from_id(id)) else {
            // A protocol that lacks only the group tells more.
            failure = if failure == AuthFailure::NoGroup { failure } else { AuthFailure::NoHash };
            continue;
        };
        if protocol.groups.contains(&0) {
            return Ok(hash);
        }
        failure = AuthFailure::NoGroup;
    }
    Err(failure)
}

impl ControllerExchange {
    /// Makes the exchange of a queue whose host has not been authenticated.
    pub fn new(credentials: HostCredentials, hostnqn: &str, subnqn: &str) -> Self {
        let (hostnqn, subnqn) = (hostnqn.to_owned(), subnqn.to_owned());
        Self { credentials, hostnqn, subnqn, state: ExchangeState::Idle, authentic: false }
    }

    /// Whether the host has proved its identity, and every command may be executed.
    pub fn is_authentic(&self) -> bool {
        self.authentic
    }

    /// Whether the exchange failed, and the host knows: the connection has to end.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ExchangeState::Ended)
    }

    /// Whether the exchange failed, and the host may not know yet.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, ExchangeState::Failing { .. } | ExchangeState::Ended)
    }

    /// Executes Authentication Send or Receive. `random` fills bytes with random ones.
    ///
    /// # Errors
    /// Authentication required for any other command. Invalid field for another security protocol, or if there is no
    /// room for the answer; data length invalid if the data has another length than the command says; command sequence
    /// error if there is no answer to receive.
    pub fn command(
        &mut self,
        entry: &SubmissionEntry,
        mut payload: Payload<'_>,
        random: impl FnOnce(&mut [u8]),
    ) -> Result<(), Status> {
        let (fields, sends) = match FabricsCommand::decode(entry) {
            Ok(FabricsCommand::AuthSend(fields)) => (fields, true),
            Ok(FabricsCommand::AuthReceive(fields)) => (fields, false),
            _ => return Err(Status::AUTHENTICATION_REQUIRED),
        };
        if !fields.is_known() {
            return Err(Status::INVALID_FIELD);
        }
        if sends {
            let message = payload.source()?;
            if message.len() != fields.bytes as usize {
                return Err(Status::DATA_LENGTH_INVALID);
            }
            self.send(message, random);
            return Ok(());
        }
        let room = payload.room()?.len();
        if room != fields.bytes as usize {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        let answer = self.answer().ok_or(Status::SEQUENCE_ERROR)?;
        if room < answer.len() {
            return Err(Status::INVALID_FIELD);
        }
        self.answered();
        payload.give(&answer, 0)
    }

    /// Handles a message of the host.
    fn send(&mut self, bytes: &[u8], random: impl FnOnce(&mut [u8])) {
        let t_id = bytes.get(4..6).map_or(0, |id| u16::from_le_bytes([id[0], id[1]]));
        let state = std::mem::replace(&mut self.state, ExchangeState::Idle);
        let next = AuthMessage::decode(bytes).and_then(|message| self.next(state, message, random));
        self.state = next.unwrap_or_else(|failure| {
            self.authentic = false;
            ExchangeState::Failing { t_id, failure }
        });
    }

    fn next(
        &mut self,
        state: ExchangeState,
        message: AuthMessage,
        random: impl FnOnce(&mut [u8]),
    ) -> Result<ExchangeState, AuthFailure> {
        match (state, message) {
            (_, AuthMessage::Failed { by_host: true, .. }) => {
                self.authentic = false;
                Ok(ExchangeState::Ended)
            }
            (ExchangeState::Idle, AuthMessage::Negotiate { t_id, secure_channel, protocols }) => {
                if secure_channel != 0 {
                    return Err(AuthFailure::SecureChannel);
                }
                let hash = choose(&protocols)?;
                let mut bytes = [0u8; DIGEST_BYTES_MAX + 4];
                random(&mut bytes);
                let (challenge, number) = bytes.split_last_chunk::<4>().expect("four bytes");
                // Zero is no sequence number.
                let seqnum = u32::from_le_bytes(*number).max(1);
                let challenge = challenge[..hash.bytes()].to_vec();
                Ok(ExchangeState::Negotiated(OpenChallenge { t_id, hash, seqnum, challenge }))
            }
            (ExchangeState::Challenged(open), AuthMessage::Reply { t_id, seqnum, response, challenge }) => {
                if t_id != open.t_id || response.len() != open.hash.bytes() {
                    return Err(AuthFailure::Payload);
                }
                self.reply(&open, seqnum, &response, challenge.as_deref())
            }
            (ExchangeState::Confirming { t_id }, AuthMessage::Success2 { t_id: found }) if t_id == found => {
                self.authentic = true;
                Ok(ExchangeState::Idle)
            }
            _ => Err(AuthFailure::Order),
        }
    }

    fn reply(
        &self,
        open: &OpenChallenge,
        seqnum: u32,
        response: &[u8],
        challenge: Option<&[u8]>,
    ) -> Result<ExchangeState, AuthFailure> {
        let numbers = response_numbers(open.seqnum, open.t_id);
        let parts = response_parts(false, &open.challenge, &numbers, (&self.hostnqn, &self.subnqn));
        if !open.hash.verify(&self.credentials.host.key(&self.hostnqn), &parts, response) {
            return Err(AuthFailure::WrongResponse);
        }
        let response = match (challenge, &self.credentials.controller) {
            (None, _) => None,
            // A host that has a secret of the controller meets a controller without one.
            (Some(_), None) => return Err(AuthFailure::WrongResponse),
            // The host's own challenge sent back would be no proof of anything.
            (Some(challenge), Some(_)) if challenge == open.challenge => return Err(AuthFailure::Payload),
            // Sequence number 0 asks for the key of a secure channel, which was not negotiated.
            (Some(_), Some(_)) if seqnum == 0 => return Err(AuthFailure::Payload),
            (Some(challenge), Some(secret)) => {
                let numbers = response_numbers(seqnum, open.t_id);
                let parts = response_parts(true, challenge, &numbers, (&self.subnqn, &self.hostnqn));
                Some(open.hash.hmac(&secret.key(&self.subnqn), &parts))
            }
        };
        assert!(response.as_ref().is_none_or(|own| own.len() == open.hash.bytes()), "a response is a digest");
        Ok(ExchangeState::Replied { t_id: open.t_id, digest_bytes: open.hash.bytes() as u8, response })
    }

    /// Returns the message that the host has to fetch.
    fn answer(&self) -> Option<Vec<u8>> {
        let message = match &self.state {
            ExchangeState::Negotiated(open) => AuthMessage::Challenge {
                t_id: open.t_id,
                hash: open.hash.id(),
                group: 0,
                seqnum: open.seqnum,
                challenge: open.challenge.clone(),
            },
            ExchangeState::Replied { t_id, digest_bytes, response } => {
                AuthMessage::Success1 { t_id: *t_id, digest_bytes: *digest_bytes, response: response.clone() }
            }
            ExchangeState::Failing { t_id, failure } => {
                AuthMessage::Failed { t_id: *t_id, by_host: false, failure: *failure }
            }
            ExchangeState::Idle
            | ExchangeState::Challenged(_)
            | ExchangeState::Confirming { .. }
            | ExchangeState::Ended => return None,
        };
        Some(message.encode())
    }

    /// Moves on after the host has fetched a message.
    fn answered(&mut self) {
        self.state = match std::mem::replace(&mut self.state, ExchangeState::Idle) {
            ExchangeState::Negotiated(open) => ExchangeState::Challenged(open),
            ExchangeState::Replied { t_id, response: Some(_), .. } => ExchangeState::Confirming { t_id },
            ExchangeState::Replied { response: None, .. } => {
                self.authentic = true;
                ExchangeState::Idle
            }
            ExchangeState::Failing { .. } => {
                assert!(!self.authentic, "a host whose exchange failed counts as authentic");
                ExchangeState::Ended
            }
            state => unreachable!("{state:?} has no answer"),
        };
    }
}
