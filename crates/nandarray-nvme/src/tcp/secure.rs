//! A TCP connection with TLS 1.3 and pre-shared keys: handshakes of both sides, and the stream after them.
//!
//! One lock protects the state of TLS. A thread has it while bytes are encrypted or decrypted, never while it
//! waits: the socket is read and written without waiting, and a thread that has to wait does so without the lock.
//! So a connection's thread can wait for its host while workers send. TLS looks for data, or for the end of a
//! handshake, for as long as it is given bytes; so it is given few at once, and a side that sends records without data
//! has no end of its own. TLS itself is s2n-tls; keys come from [`crate::tls`]. Certificates, earlier versions and
//! resumed sessions are not used.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection as Session;
use s2n_tls::enums::{Mode, PskHmac};
use s2n_tls::error::{Error as SessionError, ErrorType};
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;

use crate::subsystem::Subsystem;
use crate::tls::{NamedHost, TlsHash, TlsPsk};

/// TLS 1.3 alone, with the cipher suites of NVMe/TCP among those of TLS 1.3.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3";
/// First byte of a connection that begins with a handshake of TLS: the type of its record.
pub(super) const HANDSHAKE_RECORD: u8 = 22;
/// The type of a record with an alert.
const ALERT_RECORD: u8 = 21;
/// Number of times that TLS gets bytes of the socket before its lock is free again, each time 17 KiB at most.
const PASS_READS: u32 = 2;
/// Bytes of records without data that come before a connection ends. A record has 17 KiB at most.
const EMPTY_BYTES_MAX: usize = 64 << 10;
/// Time in which the other side has to take bytes that are written.
const WRITE_TIME: Duration = Duration::from_secs(60);

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsFailure {
    /// The connection failed, or the time was over.
    #[error("the TLS handshake failed: {0}")]
    Io(#[from] io::Error),
    /// The server ended the handshake.
    #[error("the server ended the TLS handshake: it has no key, or another one, of host {host} for {subsystem}")]
    Key {
        /// Qualified name of the host.
        host: String,
        /// Qualified name of the subsystem.
        subsystem: String,
    },
    /// The server answered without TLS.
    #[error("the server answered without TLS: its port must be one of a server with keys of TLS (--tls)")]
    NoTls,
    /// The server ended a connection that began without TLS.
    #[error("the server refuses a connection without TLS: its port must be reached with a key of TLS (nvme+tls://)")]
    Required,
    /// The other side broke the protocol, or has no version or cipher suite in common with this one.
    #[error("the TLS handshake failed: {0}")]
    Protocol(String),
}

impl TlsFailure {
    /// Returns the reason for which a server refuses a host whose key it knows.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Protocol(told) if told.contains("PSK binder") => "wrong TLS key",
            Self::Protocol(told) => told,
            Self::Io(_) | Self::Key { .. } | Self::NoTls | Self::Required => "no TLS",
        }
    }
}

/// A connection with TLS. Clones are the same connection.
#[derive(Clone, Debug)]
pub(super) struct SecureStream(Arc<SecureState>);

#[derive(Debug)]
struct SecureState {
    /// The state of TLS, which reads and writes by the descriptor of the socket. It is dropped before.
    session: Mutex<Session>,
    socket: TcpStream,
    /// Longest wait of a read in milliseconds; 0 for none.
    read_limit_ms: AtomicU64,
    /// The host and the subsystem whose key was used.
    named: NamedHost,
    /// The key that was used, at a server.
    key: Option<TlsPsk>,
}

thread_local! {
    /// Number of times that this thread's TLS may get bytes of a socket, and the bytes that it has got.
    static PASS: Cell<(u32, usize)> = const { Cell::new((0, 0)) };
}

/// Has TLS work with few bytes of its socket; returns what it has done, and the number of bytes that it has got.
fn pass<T>(work: impl FnOnce() -> T) -> (T, usize) {
    PASS.set((PASS_READS, 0));
    let done = work();
    (done, PASS.get().1)
}

fn of_tls(error: &SessionError) -> io::Error {
    let kind = match error.kind() {
        ErrorType::ConnectionClosed => ErrorKind::UnexpectedEof,
        _ => ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("TLS: {}", error.message()))
}

/// Reads from the socket of a session without waiting, as often as a [`pass`] may.
unsafe extern "C" fn receive(context: *mut c_void, to: *mut u8, bytes: u32) -> i32 {
    let (left, before) = PASS.get();
    if left == 0 {
        // SAFETY: what TLS passes on.
        return unsafe { receive_later(context, to, bytes) };
    }
    // SAFETY: TLS gives memory for this number of bytes.
    let found = unsafe { libc::recv(context.addr() as i32, to.cast(), bytes as usize, libc::MSG_DONTWAIT) as i32 };
    PASS.set((left - 1, before + usize::try_from(found).unwrap_or(0)));
    found
}

/// Reads nothing yet: what has arrived stays in the socket.
unsafe extern "C" fn receive_later(_context: *mut c_void, _to: *mut u8, _bytes: u32) -> i32 {
    // SAFETY: the number of this thread's last error, which TLS reads.
    unsafe { *libc::__errno_location() = libc::EAGAIN };
    -1
}

/// Writes to the socket of a session without waiting.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, bytes: u32) -> i32 {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: TLS gives memory with this number of bytes.
    unsafe { libc::send(context.addr() as i32, from.cast(), bytes as usize, flags) as i32 }
}

/// Waits until the socket can be read or written; returns false if the time was over before.
///
/// # Errors
/// A signal has interrupted the wait, or the system refuses it.
fn wait(socket: &TcpStream, what: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
    let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
    let mut of = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
    match poll(&mut of, limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(error) => Err(error.into()),
    }
}

/// Waits as [`wait`] does; a signal ends the wait early, and the caller looks again.
fn wait_or_signal(socket: &TcpStream, what: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
    match wait(socket, what, limit) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        found => found,
    }
}

/// Returns the settings of sessions, made by `change`.
pub(super) fn settings(
    change: impl FnOnce(&mut s2n_tls::config::Builder) -> Result<(), SessionError>,
) -> io::Result<Config> {
    let make = || {
        let mut made = s2n_tls::config::Builder::new();
        made.set_security_policy(&Policy::from_version(POLICY)?)?;
        // The other side is known by its key, and by nothing else.
        made.with_system_certs(false)?;
        // An error ends the connection at once; a delay that hides where decryption failed is for other cipher suites.
        made.set_max_blinding_delay(0)?;
        change(&mut made)?;
        made.build()
    };
    make().map_err(|e| of_tls(&e))
}

/// Returns a pre-shared key as TLS takes it.
pub(super) fn psk(of: &TlsPsk) -> Result<Psk, SessionError> {
    let mut made = Psk::builder()?;
    made.set_identity(of.identity.as_bytes())?;
    made.set_secret(&of.secret)?;
    made.set_hmac(match of.hash {
        TlsHash::Sha256 => PskHmac::SHA256,
        TlsHash::Sha384 => PskHmac::SHA384,
    })?;
    made.build()
}

/// Returns a new session over a socket.
pub(super) fn session(socket: &TcpStream, mode: Mode, settings: &Config) -> Result<Session, SessionError> {
    let mut made = Session::new(mode);
    made.set_config(settings.clone())?;
    // The callback that chooses a key is done when it returns: there is nothing to wake.
    made.set_waker(Some(Waker::noop()))?;
    made.prefer_throughput()?;
    made.set_receive_buffering(true)?;
    made.set_receive_callback(Some(receive))?;
    made.set_send_callback(Some(send))?;
    let context = ptr::without_provenance_mut(socket.as_raw_fd() as usize);
    // SAFETY: the context is a number. Its descriptor is open for as long as the session is used: a
    // `SecureState` has both, and a handshake borrows both.
    unsafe {
        made.set_receive_context(context)?;
        made.set_send_context(context)?;
    }
    Ok(made)
}

/// Does the handshake of a session until a point in time. The other side gets an alert of what fails.
pub(super) fn shake_hands(socket: &TcpStream, session: &mut Session, until: Instant) -> Result<(), TlsFailure> {
    loop {
        match pass(|| session.poll_negotiate().map_ok(drop)).0 {
            Poll::Ready(Ok(())) => return Ok(()),
            Poll::Ready(Err(error)) => {
                // The alert goes out if the socket takes it.
                let _ = session.poll_shutdown_send().map_ok(drop);
                return Err(match error.kind() {
                    ErrorType::IOError | ErrorType::ConnectionClosed => TlsFailure::Io(of_tls(&error)),
                    ErrorType::Alert => TlsFailure::Protocol(match session.alert() {
                        Some(alert) => format!("the other side sent alert {alert}"),
                        None => error.message().to_owned(),
                    }),
                    _ => TlsFailure::Protocol(error.message().to_owned()),
                });
            }
            Poll::Pending => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || !wait_or_signal(socket, PollFlags::IN, Some(left))? {
                    let what = "the other side took too long";
                    return Err(TlsFailure::Io(io::Error::new(ErrorKind::TimedOut, what)));
                }
            }
        }
    }
}

impl SecureStream {
    /// Makes a stream of a session whose handshake is done.
    pub(super) fn new(socket: TcpStream, session: Session, named: NamedHost, key: Option<TlsPsk>) -> Self {
        let session = Mutex::new(session);
        Self(Arc::new(SecureState { session, socket, read_limit_ms: AtomicU64::new(0), named, key }))
    }

    /// Does the handshake of a host, which offers these keys of its own.
    pub(super) fn connect(socket: TcpStream, offers: &[TlsPsk], limit: Duration) -> Result<Self, TlsFailure> {
        let until = Instant::now() + limit;
        let named = offers.first().and_then(|offer| NamedHost::parse(&offer.identity));
        let named = named.ok_or_else(|| TlsFailure::Protocol("the names are too long for an identity".to_owned()))?;
        let make = || -> Result<Session, SessionError> {
            let settings = settings(|_| Ok(())).map_err(SessionError::io_error)?;
            let mut made = session(&socket, Mode::Client, &settings)?;
            for offer in offers {
                made.append_psk(&psk(offer)?)?;
            }
            Ok(made)
        };
        let mut session = make().map_err(|e| TlsFailure::Io(of_tls(&e)))?;
        // The hello goes out, and the first byte of the answer says whether it is one of TLS.
        let begin = |session: &mut Session| -> Result<(), SessionError> {
            session.set_receive_callback(Some(receive_later))?;
            let _ = session.poll_negotiate().map_ok(drop);
            session.set_receive_callback(Some(receive)).map(drop)
        };
        begin(&mut session).map_err(|e| TlsFailure::Io(of_tls(&e)))?;
        while let Err(error) = wait(&socket, PollFlags::IN, Some(until.saturating_duration_since(Instant::now()))) {
            if error.kind() != ErrorKind::Interrupted {
                return Err(TlsFailure::Io(error));
            }
        }
        let mut first = [0];
        let there = matches!(rustix::net::recv(&socket, &mut first, peek_now()), Ok((_, 1)));
        let host = named.hostnqn.clone();
        let refused = |subsystem: &str| TlsFailure::Key { host, subsystem: subsystem.to_owned() };
        match shake_hands(&socket, &mut session, until) {
            Ok(()) => Ok(Self::new(socket, session, named, None)),
            Err(_) if there && ![HANDSHAKE_RECORD, ALERT_RECORD].contains(&first[0]) => Err(TlsFailure::NoTls),
            // A server tells strangers as little as it can; it may end the connection without an alert.
            Err(TlsFailure::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(TlsFailure::Io(error)),
            Err(_) => Err(refused(&named.subnqn)),
        }
    }

    /// Returns the host and the subsystem whose key was used.
    pub(super) fn named(&self) -> &NamedHost {
        &self.0.named
    }

    /// Whether the key that was used is the one that its identity has at a server now.
    pub(super) fn has_key_of(&self, subsystem: &Subsystem) -> bool {
        let now = |key: &TlsPsk| subsystem.tls_key(&self.0.named, &key.identity);
        self.0.key.as_ref().is_none_or(|key| now(key).as_ref() == Some(key))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        let ms = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        self.0.read_limit_ms.store(ms, Ordering::Relaxed);
        // For those who look at the socket itself.
        self.0.socket.set_read_timeout(limit)
    }

    /// Reads what has come. The limit is one for all pieces of a record, and for records without data.
    ///
    /// # Errors
    /// Timed out, or interrupted by a signal; those of TLS, and of more than [`EMPTY_BYTES_MAX`] bytes of records
    /// without data.
    pub(super) fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        let until = match self.0.read_limit_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Instant::now() + Duration::from_millis(ms)),
        };
        let mut empty = 0;
        loop {
            let (found, bytes) = pass(|| self.0.session.lock().poll_recv(to));
            match found {
                Poll::Ready(Ok(n)) => return Ok(n),
                // A side that has gone without a farewell has gone all the same: PDUs say themselves how long they are.
                Poll::Ready(Err(error)) if error.kind() == ErrorType::ConnectionClosed => return Ok(0),
                Poll::Ready(Err(error)) => return Err(of_tls(&error)),
                Poll::Pending => empty += bytes,
            }
            if empty > EMPTY_BYTES_MAX {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("TLS: {empty} bytes of records without data"),
                ));
            }
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !wait(&self.0.socket, PollFlags::IN, limit)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Writes as much as the socket takes now; `None` if it takes nothing. The next call must begin with the bytes that
    /// were not written.
    pub(super) fn write_now(&self, from: &[u8]) -> io::Result<Option<usize>> {
        match self.0.session.lock().poll_send(from) {
            Poll::Ready(Ok(n)) => Ok(Some(n)),
            Poll::Ready(Err(error)) => Err(of_tls(&error)),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits until the socket takes bytes.
    ///
    /// # Errors
    /// Timed out.
    pub(super) fn wait_to_write(&self, limit: Duration) -> io::Result<()> {
        if wait_or_signal(&self.0.socket, PollFlags::OUT, Some(limit))? {
            Ok(())
        } else {
            Err(ErrorKind::TimedOut.into())
        }
    }

    pub(super) fn write(&self, from: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(n) = self.write_now(from)? {
                return Ok(n);
            }
            self.wait_to_write(WRITE_TIME)?;
        }
    }
}

fn peek_now() -> rustix::net::RecvFlags {
    rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// However many bytes a socket has, TLS gets few of them before its lock is free again.
    #[test]
    fn a_pass_ends_although_bytes_are_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        sends.write_all(&[7; 1000]).unwrap();
        assert!(wait(&socket, PollFlags::IN, Some(Duration::from_secs(60))).unwrap());
        let context = ptr::without_provenance_mut(socket.as_raw_fd() as usize);
        // SAFETY: memory of one byte, and an open socket.
        let one = || unsafe { receive(context, [0u8].as_mut_ptr(), 1) };
        for _ in 0..3 {
            let (found, bytes) = pass(|| [one(), one(), one()]);
            assert_eq!((found, bytes), ([1, 1, -1], 2));
            assert_eq!(io::Error::last_os_error().kind(), ErrorKind::WouldBlock);
        }
    }
}
