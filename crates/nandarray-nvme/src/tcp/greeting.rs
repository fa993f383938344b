//! The beginning of a TCP connection at a server with keys of TLS: the host's hello, its key, the handshake.
//!
//! The connection's own thread does this, within the time that a connection has to become a queue, and counted among
//! those that are none yet: a slow handshake holds nothing that others need. A host that begins without TLS gets the
//! PDU that ends a connection.

use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection as Session;
use s2n_tls::enums::Mode;
use s2n_tls::error::Error as SessionError;

use super::endpoint::{SocketStream, peek};
use super::outgoing::Outgoing;
use super::pdu::{Digests, FatalError, FatalStatus};
use super::secure::{self, HANDSHAKE_RECORD, SecureStream, TlsFailure};
use super::server::ServerState;
use crate::subsystem::Subsystem;
use crate::tls::{NamedHost, TlsPsk};

/// The extension of a hello that names pre-shared keys (RFC 8446, section 4.2).
const PRE_SHARED_KEY: u16 = 41;
/// Maximum number of identities of a hello that are looked up: a host has one for each version of them.
const IDENTITIES_MAX: usize = 8;

/// The means of a server to do handshakes.
#[derive(Debug)]
pub(super) struct TlsDoor(Config);

/// Chooses the keys that a host's hello names.
struct KeyChoice(Weak<Subsystem>);

/// The host that a hello names first, with or without a key that is known.
struct ClaimedHost {
    named: NamedHost,
    is_known: bool,
    /// The keys that were found.
    keys: Vec<TlsPsk>,
}

/// Begins a connection: with a handshake where hosts have keys, and come by TCP. Returns none if that failed.
pub(super) fn greet(shared: &ServerState, stream: SocketStream, until: Instant) -> Option<SocketStream> {
    match (&shared.tls, stream) {
        (Some(door), SocketStream::Tcp(stream)) => door.greet(shared, stream, until),
        // Unix sockets are of this machine, whose kernel knows their users.
        (_, stream) => Some(stream),
    }
}

impl TlsDoor {
    /// Makes the door of a subsystem; `None` if its hosts have no keys.
    pub(super) fn of(subsystem: &Arc<Subsystem>) -> std::io::Result<Option<Self>> {
        if !subsystem.requires_tls() {
            return Ok(None);
        }
        let choice = KeyChoice(Arc::downgrade(subsystem));
        let made = secure::settings(|settings| settings.set_client_hello_callback(choice).map(drop))?;
        Ok(Some(Self(made)))
    }

    /// Does the handshake of a new connection until a point in time; returns none if it failed, which is counted.
    pub(super) fn greet(&self, shared: &ServerState, stream: TcpStream, until: Instant) -> Option<SocketStream> {
        let mut first = [0];
        let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        stream.set_read_timeout(left()).ok()?;
        if peek(&stream, &mut first).ok()? == 0 {
            return None;
        }
        if first[0] != HANDSHAKE_RECORD {
            // Before the host knows of it: it may look at the counts then.
            shared.tell_refusal("", "no TLS");
            shared.logins().refuse(Instant::now());
            refuse_plain(stream);
            return None;
        }
        let mut session = secure::session(&stream, Mode::Server, &self.0).ok()?;
        match secure::shake_hands(&stream, &mut session, until) {
            Ok(()) => {
                let (named, key) = negotiated(&session)?;
                stream.set_read_timeout(None).ok()?;
                Some(SocketStream::Secure(SecureStream::new(stream, session, named, Some(key))))
            }
            Err(TlsFailure::Io(_)) => {
                shared.logins().abandon();
                None
            }
            Err(failure) => {
                let claimed = session.application_context::<ClaimedHost>();
                let (host, why) = match claimed {
                    Some(claimed) if !claimed.is_known => (claimed.named.hostnqn.as_str(), "unknown TLS identity"),
                    Some(claimed) => (claimed.named.hostnqn.as_str(), failure.reason()),
                    None => ("", "no TLS identity"),
                };
                shared.tell_refusal(host, why);
                if let Some(delay) = shared.logins().refuse(Instant::now()) {
                    // The socket of a server that stops ends the wait.
                    drop(stream.set_read_timeout(Some(delay)));
                    drop(peek(&stream, &mut first));
                }
                None
            }
        }
    }
}

/// Returns the key that a handshake has used, with its host and subsystem.
fn negotiated(session: &Session) -> Option<(NamedHost, TlsPsk)> {
    let mut identity = vec![0; session.negotiated_psk_identity_length().ok()?];
    session.negotiated_psk_identity(&mut identity).ok()?;
    let claimed = session.application_context::<ClaimedHost>()?;
    let key = claimed.keys.iter().find(|key| key.identity.as_bytes() == identity)?;
    Some((NamedHost::parse(&key.identity)?, key.clone()))
}

/// Tells a host without TLS that its first PDU was out of order here, and ends the connection.
fn refuse_plain(mut stream: TcpStream) {
    // A socket that is closed with bytes that were not read discards what it has sent.
    let mut header = [0; 128];
    let bytes = stream.read(&mut header).unwrap_or(0);
    if let Ok(outgoing) = Outgoing::new(SocketStream::Tcp(stream), Digests::default()) {
        outgoing.terminate(FatalError::new(FatalStatus::Sequence, 0), &header[..bytes]);
        outgoing.close();
    }
}

impl ClientHelloCallback for KeyChoice {
    fn on_client_hello(
        &self,
        session: &mut Session,
    ) -> Result<Option<std::pin::Pin<Box<dyn ConnectionFuture>>>, SessionError> {
        let hello = session.client_hello()?.raw_message()?;
        let Some(subsystem) = self.0.upgrade() else { return Ok(None) };
        let (mut claimed, mut keys) = (None, Vec::new());
        for identity in identities(&hello).into_iter().flatten().take(IDENTITIES_MAX) {
            let Some(named) = str::from_utf8(identity).ok().and_then(NamedHost::parse) else { continue };
            let found = subsystem.tls_key(&named, str::from_utf8(identity).unwrap_or_default());
            let is_known = found.is_some();
            if let Some(found) = found {
                session.append_psk(&secure::psk(&found)?)?;
                keys.push(found);
            }
            if is_known || claimed.is_none() {
                claimed = Some((named, is_known));
            }
        }
        if let Some((named, is_known)) = claimed {
            session.set_application_context(ClaimedHost { named, is_known, keys });
        }
        Ok(None)
    }
}

/// Takes a part of the bytes whose length is in front of it, in `width` bytes.
fn part<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length.iter().fold(0, |all, &byte| all << 8 | usize::from(byte));
    let (part, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

/// Returns the identities of pre-shared keys that a hello names; `None` if it names none, or is none.
fn identities(hello: &[u8]) -> Option<Vec<&[u8]>> {
    // Version and random number.
    let mut rest = hello.get(34..)?;
    part(&mut rest, 1)?;
    part(&mut rest, 2)?;
    part(&mut rest, 1)?;
    let mut extensions = part(&mut rest, 2)?;
    while let Some((kind, mut body)) = extensions.split_at_checked(2) {
        let found = part(&mut body, 2)?;
        extensions = body;
        if u16::from_be_bytes([kind[0], kind[1]]) == PRE_SHARED_KEY {
            let mut found = found;
            let mut list = part(&mut found, 2)?;
            let mut identities = Vec::new();
            while !list.is_empty() {
                identities.push(part(&mut list, 2)?);
                // The age of a ticket.
                list = list.get(4..)?;
            }
            return Some(identities);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::{c_int, c_void};
    use std::io::Write;
    use std::net::SocketAddr;

    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use nandarray_nvme_spec::{CNTLID_ANY, ConnectFields, Status};

    use super::*;
    use crate::tcp::{ConnectError, Endpoint, HostQueue, InitiatorOptions, Server, ServerOptions};
    use crate::tests::subsystem;
    use crate::tls::{TlsKey, TlsKeys};
    use crate::{KnownHosts, NodeRules, SubsystemOptions};

    const HOST: &str = "nqn.2026-01.org.example:host";

    fn key(seed: u8) -> TlsKey {
        TlsKey::new(true, &[seed; 32]).unwrap()
    }

    fn keys(seed: u8) -> TlsKeys {
        TlsKeys::from([(HOST.to_owned(), key(seed))])
    }

    fn serve() -> (Arc<nandarray_runtime::Runtime>, Server, SocketAddr) {
        let (runtime, subsystem) = subsystem(SubsystemOptions { tls_keys: keys(1), ..SubsystemOptions::default() });
        let server = Server::start(subsystem, "127.0.0.1:0".parse().unwrap(), &ServerOptions::default()).unwrap();
        let address = server.address().tcp().unwrap();
        (runtime, server, address)
    }

    #[test]
    fn a_handshake_by_a_key_that_is_replaced_is_worth_nothing() {
        let (_runtime, server, address) = serve();
        let nqn = server.subsystem().nqn().to_owned();
        let options =
            |seed| InitiatorOptions { hostnqn: HOST.to_owned(), tls_key: Some(key(seed)), ..Default::default() };
        let open = |seed| HostQueue::open(Endpoint::Tcp(address), 0, &nqn, &options(seed)).unwrap();
        let admin = ConnectFields { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato_ms: 5000 };
        let mut early = [open(1), open(1)];
        let joined = early[0].join(admin, &nqn, CNTLID_ANY, &options(1));
        assert!(joined.is_ok(), "{joined:?}");
        server.replace_hosts(KnownHosts { tls_keys: keys(2), ..KnownHosts::default() }, NodeRules::default());
        let refused = early[1].join(admin, &nqn, CNTLID_ANY, &options(1)).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused(Status::CONNECT_HOST)), "{refused}");
        open(2).join(admin, &nqn, CNTLID_ANY, &options(2)).unwrap();
    }

    thread_local! {
        /// The secret of what the client sends after its handshake.
        static SECRET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Keeps a line of a log of secrets: label, random number, secret.
    unsafe extern "C" fn keep<T>(_: *mut c_void, _: *mut T, line: *mut u8, bytes: usize) -> c_int {
        // SAFETY: TLS gives a line of this length.
        let line = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(line, bytes) });
        if let ["CLIENT_TRAFFIC_SECRET_0", _, secret] = line.split(' ').collect::<Vec<_>>()[..] {
            let byte = |at: usize| u8::from_str_radix(&secret[at..at + 2], 16).unwrap();
            SECRET.set((0..secret.len()).step_by(2).map(byte).collect());
        }
        0
    }

    /// Expands a secret (RFC 8446, section 7.1).
    fn expanded<const N: usize>(secret: &[u8], label: &str) -> [u8; N] {
        let label = format!("tls13 {label}");
        let info = [&[0, N as u8, label.len() as u8], label.as_bytes(), &[0]].concat();
        let mut out = [0; N];
        hkdf::Hkdf::<sha2::Sha256>::from_prk(secret).unwrap().expand(&info, &mut out).unwrap();
        out
    }

    /// A client with a right key sends records without data, one behind the other, and is sent away.
    #[test]
    fn records_without_data_end_a_connection() {
        let (_runtime, server, address) = serve();
        let mut socket = TcpStream::connect(address).unwrap();
        // SAFETY: the callback takes what TLS gives, and no context.
        let log = |made: &mut s2n_tls::config::Builder| unsafe {
            made.set_key_log_callback(Some(keep), std::ptr::null_mut()).map(drop)
        };
        let mut session = secure::session(&socket, Mode::Client, &secure::settings(log).unwrap()).unwrap();
        for offer in &key(1).offers(HOST, server.subsystem().nqn()) {
            session.append_psk(&secure::psk(offer).unwrap()).unwrap();
        }
        secure::shake_hands(&socket, &mut session, Instant::now() + Duration::from_secs(60)).unwrap();
        assert_eq!(session.cipher_suite().unwrap(), "TLS_AES_128_GCM_SHA256");
        let secret = SECRET.take();
        let sealing = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &expanded::<16>(&secret, "key")).unwrap());
        let iv = u128::from_be_bytes([&[0; 4][..], &expanded::<12>(&secret, "iv")].concat().try_into().unwrap());
        socket.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = [23, 3, 3, 0, 17];
        let sent = (0u128..).find(|number| {
            let nonce: [u8; 12] = (iv ^ number).to_be_bytes()[4..].try_into().unwrap();
            // The type of a record of data, and nothing in front of it.
            let mut record = vec![23];
            let nonce = Nonce::assume_unique_for_key(nonce);
            sealing.seal_in_place_append_tag(nonce, Aad::from(head), &mut record).unwrap();
            socket.write_all(&[&head[..], &record].concat()).is_err()
        });
        assert!((1000..400_000).contains(&sent.unwrap()), "{sent:?} records without data");
        assert_eq!(server.status().unfinished_logins, 0);
    }
}
