//! Secrets against nvme-cli's, messages against the specification's offsets, and exchanges that go wrong.

mod damage;
mod vectors;

use nandarray_nvme_spec::{FABRICS_OPCODE, FabricsType, PROTOCOL_SPECIFIC, SECURITY_PROTOCOL, Status, SubmissionEntry};

use super::*;
use crate::payload::Payload;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";

fn counted(bytes: u8) -> Vec<u8> {
    (0..bytes).collect()
}

fn secret(id: u8, bytes: u8) -> DhchapSecret {
    DhchapSecret::new(DhchapHash::from_id(id), &counted(bytes)).unwrap()
}

fn credentials(controller: bool) -> HostCredentials {
    HostCredentials { host: secret(1, 32), controller: controller.then(|| secret(3, 64)) }
}

/// Returns a function that fills bytes with values that only look random: they follow from `seed`.
fn random(seed: u8) -> impl FnOnce(&mut [u8]) {
    move |bytes| bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(7) ^ seed)
}

fn entry(fctype: u8, bytes: usize) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(FABRICS_OPCODE, u32::from(fctype), 0);
    entry.set_cdw(10, u32::from(PROTOCOL_SPECIFIC) << 8 | u32::from(SECURITY_PROTOCOL) << 24);
    entry.set_cdw(11, bytes as u32);
    entry
}

fn send(to: &mut ControllerExchange, message: &[u8]) {
    let entry = entry(FabricsType::AuthSend as u8, message.len());
    to.command(&entry, Payload::ToController(message), random(3)).unwrap();
}

fn fetch(from: &mut ControllerExchange) -> Result<Vec<u8>, Status> {
    let mut room = vec![0xff; 4096];
    from.command(&entry(FabricsType::AuthReceive as u8, 4096), Payload::ToHost(&mut room), random(0))?;
    Ok(room)
}

fn failure(exchange: &mut ControllerExchange) -> AuthFailure {
    let found = AuthMessage::decode(&fetch(exchange).unwrap()).unwrap();
    assert!(exchange.has_ended() && !exchange.is_authentic());
    match found {
        AuthMessage::Failed { by_host: false, failure, .. } => failure,
        other => panic!("{other:?} in place of a failure"),
    }
}

fn sides(host: HostCredentials, controller: HostCredentials) -> (HostExchange, ControllerExchange) {
    (HostExchange::new(host, HOST, SUBSYSTEM, 0x1234), ControllerExchange::new(controller, HOST, SUBSYSTEM))
}

/// Runs both sides up to the host's reply, which is returned and not sent.
fn replied(host: &mut HostExchange, controller: &mut ControllerExchange) -> Vec<u8> {
    send(controller, &host.negotiate());
    let challenge = fetch(controller).unwrap();
    host.reply(&challenge, random(9)).unwrap()
}

/// `nvme gen-dhchap-key -s HEX -l BYTES -m HASH -n HOST` prints the transformed key, with its checksum.
#[test]
fn keys_are_those_of_nvme_cli() {
    let known = [
        (0, 32, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"),
        (1, 32, "DHHC-1:01:EAh3auY0VhzA7oo++PpqKcWOhILB+ii395ZXyjHLFzTv3b4E:"),
        (2, 48, "DHHC-1:02:q5lDDWZv8gGX2IQlk//0eionHT9YOS/zEfyyNCLPVYK5wY3aIizIGN2yjyKkvEqNnOhncQ==:"),
        (
            3,
            64,
            "DHHC-1:03:zeAV708A3A10qnktk85M50fjUOdSWKhH+1EEm94kRGQiYfUlIWMORuN5OI3q1TrzMQe9or2bJq8rwx0ozcWrB4MIZCI=:",
        ),
    ];
    for (id, bytes, text) in known {
        let transformed = secret(id, bytes).key(HOST);
        let made = DhchapSecret::new(DhchapHash::from_id(id), &transformed).unwrap();
        assert_eq!(made.reveal(), text);
        assert_eq!(DhchapSecret::parse(text), Ok(made));
    }
}

#[test]
fn damaged_secrets_are_refused() {
    let good = secret(1, 32).reveal();
    for text in
        ["", "DHHC-1:", "DHHC-1:01:", "DHHC-1:01::", "DHHC-1:04:AAAA:", "DHHC-2:01:AAAA:", &good[..good.len() - 1]]
    {
        let error = DhchapSecret::parse(text).unwrap_err();
        assert!(matches!(error, SecretError::Form | SecretError::Length(_)), "{text}: {error}");
    }
    let other = good.replacen("AAEC", "AAED", 1);
    assert!(matches!(DhchapSecret::parse(&other), Err(SecretError::Checksum)), "{other}");
    let shorter = DhchapSecret::new(None, &counted(31)).unwrap_err();
    assert_eq!(shorter, SecretError::Length(31));
    assert!(!format!("{:?}", secret(1, 32)).contains("key"), "no key in a log");
}

#[test]
fn messages_lie_where_the_specification_has_them() {
    let (host, _) = sides(credentials(false), credentials(false));
    let bytes = host.negotiate();
    assert_eq!(bytes.len(), 8 + 64);
    assert_eq!(bytes[..8], [0, 0, 0, 0, 0x34, 0x12, 0, 1]);
    assert_eq!(bytes[8..16], [1, 0, 3, 1, 1, 2, 3, 0]);
    assert_eq!(bytes[8 + 34], 0, "the null group stands first in the second half");
    let challenge = AuthMessage::Challenge { t_id: 7, hash: 2, group: 0, seqnum: 0x0102_0304, challenge: vec![9; 48] };
    let bytes = challenge.encode();
    assert_eq!(bytes[..17], [1, 1, 0, 0, 7, 0, 48, 0, 2, 0, 0, 0, 4, 3, 2, 1, 9]);
    let reply = AuthMessage::Reply { t_id: 7, seqnum: 5, response: vec![1; 32], challenge: Some(vec![2; 32]) };
    let bytes = reply.encode();
    assert_eq!((bytes.len(), &bytes[..9], bytes[12]), (16 + 64, &[1, 2, 0, 0, 7, 0, 32, 0, 1][..], 5));
    let failed = AuthMessage::Failed { t_id: 7, by_host: true, failure: AuthFailure::NoGroup };
    assert_eq!(failed.encode(), [0, 0xf0, 0, 0, 7, 0, 1, 5]);
    for message in [challenge, reply, failed, AuthMessage::Success2 { t_id: 1 }] {
        let bytes = message.encode();
        assert_eq!(AuthMessage::decode(&bytes), Ok(message));
        for short in 0..bytes.len() {
            assert_eq!(AuthMessage::decode(&bytes[..short]), Err(AuthFailure::Payload), "{short} of {}", bytes.len());
        }
    }
}

#[test]
fn both_sides_know_each_other() {
    for mutual in [false, true] {
        let (mut host, mut controller) = sides(credentials(mutual), credentials(true));
        // Twice: the second time is authentication of a connected host.
        for _ in 0..2 {
            let reply = replied(&mut host, &mut controller);
            send(&mut controller, &reply);
            let success = fetch(&mut controller).unwrap();
            let confirmation = host.confirm(&success).unwrap();
            assert_eq!(confirmation.is_some(), mutual);
            if let Some(message) = confirmation {
                send(&mut controller, &message);
            }
            assert!(controller.is_authentic() && !controller.has_ended());
            assert_eq!(fetch(&mut controller), Err(Status::SEQUENCE_ERROR), "there is nothing more to fetch");
        }
    }
}

#[test]
fn a_wrong_secret_of_either_side() {
    let wrong = HostCredentials { host: secret(1, 48), controller: Some(secret(1, 48)) };
    let (mut host, mut controller) = sides(wrong.clone(), credentials(true));
    let reply = replied(&mut host, &mut controller);
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::WrongResponse);
    // The controller does not know the secret that the host has for it.
    let wrong = HostCredentials { host: secret(1, 32), ..wrong };
    let (mut host, mut controller) = sides(wrong, credentials(true));
    let reply = replied(&mut host, &mut controller);
    send(&mut controller, &reply);
    let success = fetch(&mut controller).unwrap();
    assert_eq!(host.confirm(&success), Err(AuthFailure::WrongResponse));
    assert!(!controller.is_authentic(), "before the host has confirmed");
    send(&mut controller, &host.failed(AuthFailure::WrongResponse));
    assert!(controller.has_ended());
    // A controller without a secret of its own, challenged.
    let (mut host, mut controller) = sides(credentials(true), credentials(false));
    let reply = replied(&mut host, &mut controller);
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::WrongResponse);
    // A controller that answers without its response.
    let silent = AuthMessage::Success1 { t_id: 0x1234, digest_bytes: 32, response: None }.encode();
    assert_eq!(host.confirm(&silent), Err(AuthFailure::WrongResponse));
}

#[test]
fn a_recorded_reply_is_of_no_use() {
    let (mut host, mut controller) = sides(credentials(false), credentials(false));
    let reply = replied(&mut host, &mut controller);
    send(&mut controller, &reply);
    fetch(&mut controller).unwrap();
    assert!(controller.is_authentic());
    // A second time in the same exchange.
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::Order);
    // On another queue, whose challenge is another one.
    let mut other = ControllerExchange::new(credentials(false), HOST, SUBSYSTEM);
    let negotiate = host.negotiate();
    let entry = entry(FabricsType::AuthSend as u8, negotiate.len());
    other.command(&entry, Payload::ToController(&negotiate), random(4)).unwrap();
    fetch(&mut other).unwrap();
    send(&mut other, &reply);
    assert_eq!(failure(&mut other), AuthFailure::WrongResponse);
}

#[test]
fn a_controller_that_reflects_and_messages_out_of_order() {
    // The host challenges the controller with the controller's own challenge.
    let (mut host, mut controller) = sides(credentials(true), credentials(true));
    send(&mut controller, &host.negotiate());
    let challenge = fetch(&mut controller).unwrap();
    host.reply(&challenge, random(0)).unwrap();
    let AuthMessage::Challenge { challenge: own, .. } = AuthMessage::decode(&challenge).unwrap() else { panic!() };
    let reply = host.reply(&challenge, |bytes| bytes[..32].copy_from_slice(&own)).unwrap();
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::Payload);
    // Its challenge has sequence number 0, which would mean a key of a secure channel.
    let (mut host, mut controller) = sides(credentials(true), credentials(true));
    send(&mut controller, &host.negotiate());
    let answer = host.reply(&fetch(&mut controller).unwrap(), random(0)).unwrap();
    let Ok(AuthMessage::Reply { t_id, response, challenge, .. }) = AuthMessage::decode(&answer) else { panic!() };
    send(&mut controller, &AuthMessage::Reply { t_id, seqnum: 0, response, challenge }.encode());
    assert_eq!(failure(&mut controller), AuthFailure::Payload);
    // A reply before a negotiation, and before the challenge was fetched.
    let (mut host, mut controller) = sides(credentials(false), credentials(false));
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::Order);
    let mut controller = ControllerExchange::new(credentials(false), HOST, SUBSYSTEM);
    send(&mut controller, &host.negotiate());
    send(&mut controller, &reply);
    assert_eq!(failure(&mut controller), AuthFailure::Order);
    // A host meets a controller that fails.
    let failed = AuthMessage::Failed { t_id: 0x1234, by_host: false, failure: AuthFailure::NoHash }.encode();
    assert_eq!(host.reply(&failed, random(0)), Err(AuthFailure::NoHash));
}

#[test]
fn protocols_that_are_not_supported() {
    let offer = |hashes: &[u8], groups: &[u8], secure_channel| {
        let protocols = vec![ProtocolDescriptor { hashes: hashes.to_vec(), groups: groups.to_vec() }];
        AuthMessage::Negotiate { t_id: 1, secure_channel, protocols }
    };
    let none = AuthMessage::Negotiate { t_id: 1, secure_channel: 0, protocols: Vec::new() };
    for (message, expected) in [
        (offer(&[4, 0, 9], &[0], 0), AuthFailure::NoHash),
        (offer(&[1], &[1, 2], 0), AuthFailure::NoGroup),
        (offer(&[1], &[0], 2), AuthFailure::SecureChannel),
        (none, AuthFailure::NoProtocol),
    ] {
        let (_, mut controller) = sides(credentials(false), credentials(false));
        send(&mut controller, &message.encode());
        assert_eq!(failure(&mut controller), expected, "{message:?}");
    }
    // Every descriptor is looked at, and if none fits, the failure is that of the nearest one.
    let several = |offers: &[(&[u8], &[u8])]| {
        let one = |&(hashes, groups): &(&[u8], &[u8])| ProtocolDescriptor {
            hashes: hashes.to_vec(),
            groups: groups.to_vec(),
        };
        let protocols = offers.iter().map(one).collect();
        AuthMessage::Negotiate { t_id: 1, secure_channel: 0, protocols }.encode()
    };
    let (_, mut controller) = sides(credentials(false), credentials(false));
    send(&mut controller, &several(&[(&[1], &[3]), (&[9], &[0])]));
    assert_eq!(failure(&mut controller), AuthFailure::NoGroup);
    let (_, mut controller) = sides(credentials(false), credentials(false));
    send(&mut controller, &several(&[(&[1], &[3]), (&[9], &[0]), (&[2], &[0]), (&[1], &[0])]));
    let found = AuthMessage::decode(&fetch(&mut controller).unwrap()).unwrap();
    assert!(matches!(found, AuthMessage::Challenge { hash: 2, .. }), "{found:?}");
    let (_, mut controller) = sides(credentials(false), credentials(false));
    send(&mut controller, &offer(&[9, 3, 1], &[4, 0], 0).encode());
    let AuthMessage::Challenge { hash, challenge, .. } = AuthMessage::decode(&fetch(&mut controller).unwrap()).unwrap()
    else {
        panic!()
    };
    assert_eq!((hash, challenge.len()), (3, 64), "the first of the host's list that is known");
}

#[test]
fn commands_before_and_around_authentication() {
    let (host, mut controller) = sides(credentials(false), credentials(false));
    let read = SubmissionEntry { opcode: 2, nsid: 5.into(), ..SubmissionEntry::default() };
    let get = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertyGet as u32, 0);
    for other in [read, get] {
        assert_eq!(controller.command(&other, Payload::None, random(0)), Err(Status::AUTHENTICATION_REQUIRED));
    }
    let negotiate = host.negotiate();
    let wrong_length = entry(FabricsType::AuthSend as u8, negotiate.len() + 1);
    let found = controller.command(&wrong_length, Payload::ToController(&negotiate), random(0));
    assert_eq!(found, Err(Status::DATA_LENGTH_INVALID));
    let mut other_protocol = entry(FabricsType::AuthSend as u8, negotiate.len());
    other_protocol.set_cdw(10, 0x0001_0100);
    let found = controller.command(&other_protocol, Payload::ToController(&negotiate), random(0));
    assert_eq!(found, Err(Status::INVALID_FIELD));
    assert_eq!(fetch(&mut controller), Err(Status::SEQUENCE_ERROR));
    send(&mut controller, &negotiate);
    // Room that is too short; the challenge is there for a second attempt.
    let mut short = [0u8; 47];
    let found = controller.command(&entry(FabricsType::AuthReceive as u8, 47), Payload::ToHost(&mut short), random(0));
    assert_eq!(found, Err(Status::INVALID_FIELD));
    assert!(fetch(&mut controller).is_ok());
}
