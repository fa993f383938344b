//! The host's side of the exchange, on one queue: makes the messages that a host sends from those that it fetches.

use super::messages::{AuthFailure, AuthMessage, ProtocolDescriptor, response_numbers, response_parts};
use super::secret::{DhchapHash, HostCredentials};

/// A challenge that the host has sent to the controller.
#[derive(Debug)]
struct SentChallenge {
    hash: DhchapHash,
    seqnum: u32,
    challenge: Vec<u8>,
}

/// Authentication of this host on one queue.
#[derive(Debug)]
pub struct HostExchange {
    credentials: HostCredentials,
    hostnqn: String,
    subnqn: String,
    t_id: u16,
    sent: Option<SentChallenge>,
}

impl HostExchange {
    /// Makes an exchange. With a controller's secret in `credentials`, the controller has to prove its identity, too.
    pub fn new(credentials: HostCredentials, hostnqn: &str, subnqn: &str, t_id: u16) -> Self {
        Self { credentials, hostnqn: hostnqn.to_owned(), subnqn: subnqn.to_owned(), t_id, sent: None }
    }

    /// Returns the first message: all hash functions, no group.
    pub fn negotiate(&self) -> Vec<u8> {
        let protocol = ProtocolDescriptor { hashes: DhchapHash::ALL.map(DhchapHash::id).to_vec(), groups: vec![0] };
        AuthMessage::Negotiate { t_id: self.t_id, secure_channel: 0, protocols: vec![protocol] }.encode()
    }

    /// Returns the reply to the controller's challenge. `random` fills bytes with random ones.
    ///
    /// # Errors
    /// The controller failed, or its message is wrong.
    pub fn reply(&mut self, bytes: &[u8], random: impl FnOnce(&mut [u8])) -> Result<Vec<u8>, AuthFailure> {
        let (hash, seqnum, challenge) = match AuthMessage::decode(bytes)? {
            AuthMessage::Challenge { t_id, hash, group: 0, seqnum, challenge } if t_id == self.t_id => {
                (DhchapHash::from_id(hash).ok_or(AuthFailure::NoHash)?, seqnum, challenge)
            }
            AuthMessage::Failed { failure, .. } => return Err(failure),
            AuthMessage::Challenge { .. } => return Err(AuthFailure::Payload),
            _ => return Err(AuthFailure::Order),
        };
        if challenge.len() != hash.bytes() {
            return Err(AuthFailure::Payload);
        }
        let numbers = response_numbers(seqnum, self.t_id);
        let parts = response_parts(false, &challenge, &numbers, (&self.hostnqn, &self.subnqn));
        let response = hash.hmac(&self.credentials.host.key(&self.hostnqn), &parts);
        assert_eq!(response.len(), hash.bytes(), "a response is a digest");
        if self.credentials.controller.is_some() {
            let mut own = vec![0; hash.bytes() + 4];
            random(&mut own);
            let number = own.split_off(hash.bytes());
            assert_eq!(own.len(), hash.bytes(), "a challenge is as long as a digest");
            let seqnum = u32::from_le_bytes(number.try_into().expect("four bytes")).max(1);
            self.sent = Some(SentChallenge { hash, seqnum, challenge: own });
        }
        let (seqnum, challenge) = self.sent.as_ref().map_or((0, None), |own| (own.seqnum, Some(own.challenge.clone())));
        Ok(AuthMessage::Reply { t_id: self.t_id, seqnum, response, challenge }.encode())
    }

    /// Checks the controller's success message; returns the message that confirms its response, if there is one.
    ///
    /// # Errors
    /// The controller failed, its message is wrong, or it does not know its secret.
    pub fn confirm(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, AuthFailure> {
        let response = match AuthMessage::decode(bytes)? {
            AuthMessage::Success1 { t_id, response, .. } if t_id == self.t_id => response,
            AuthMessage::Failed { failure, .. } => return Err(failure),
            AuthMessage::Success1 { .. } => return Err(AuthFailure::Payload),
            _ => return Err(AuthFailure::Order),
        };
        let (Some(sent), Some(secret)) = (&self.sent, &self.credentials.controller) else { return Ok(None) };
        let numbers = response_numbers(sent.seqnum, self.t_id);
        let parts = response_parts(true, &sent.challenge, &numbers, (&self.subnqn, &self.hostnqn));
        let key = secret.key(&self.subnqn);
        if !response.is_some_and(|response| sent.hash.verify(&key, &parts, &response)) {
            return Err(AuthFailure::WrongResponse);
        }
        Ok(Some(AuthMessage::Success2 { t_id: self.t_id }.encode()))
    }

    /// Returns the message by which the host gives up.
    pub fn failed(&self, failure: AuthFailure) -> Vec<u8> {
        AuthMessage::Failed { t_id: self.t_id, by_host: true, failure }.encode()
    }
}
