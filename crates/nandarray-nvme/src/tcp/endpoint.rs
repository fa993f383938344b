//! Where a server listens and a host connects, and one type of stream over both kinds of socket.
//!
//! A TCP socket and a unix socket carry the same PDUs. A stream of a unix socket knows the process at its other end as
//! the kernel does; who may connect is decided where connections are accepted, in `listener`.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nandarray_nvme_spec::Status;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendmsg, sockopt,
};

use super::secure::{SecureStream, TlsFailure};
use crate::subsystem::Subsystem;
use crate::tls::TlsPsk;

/// Number of bytes that are encrypted at once, where several parts are sent.
const JOINED_BYTES: usize = 16 << 10;
/// Bytes of the longest path that the address of a unix socket holds.
const PATH_BYTES_MAX: usize = 107;

/// A place where a server listens and a host connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Address and port.
    Tcp(SocketAddr),
    /// Path of a unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{}{}", Self::UNIX, path.display()),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(one: &Endpoint) -> Self {
        one.clone()
    }
}

impl Endpoint {
    /// The beginning of the text of a unix socket.
    pub const UNIX: &str = "unix:";

    /// Returns address and port, if it has these.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether hosts of other machines cannot reach it.
    pub(super) fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().is_loopback())
    }

    /// Connects, within `limit`.
    pub(super) fn connect(&self, limit: Duration) -> io::Result<SocketStream> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, limit)?;
                stream.set_nodelay(true)?;
                Ok(SocketStream::Tcp(stream))
            }
            Self::Unix(path) => {
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
                // A server that accepts nothing keeps hosts waiting for no longer than this.
                sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
                at_path(path, |address| retry_on_intr(|| rustix::net::connect(&socket, address)))?;
                sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
                let stream = UnixStream::from(socket);
                let peer = Peer::of(&stream)?;
                Ok(SocketStream::Unix(stream, peer))
            }
        }
    }
}

/// Waits for bytes of a socket and copies some of them, which stay to be read.
pub(super) fn peek(socket: &impl AsFd, to: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::net::recv(socket, &mut *to, RecvFlags::PEEK))?.0)
}

/// Returns the place of an address: of IPv6 the network of 64 bits, of which a host has all addresses (RFC 4291,
/// section 2.5.4), and can come by any of them.
fn place_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        one => one.to_string(),
    }
}

/// Calls the system with the address of a unix socket's path; a path that the address does not hold is named by way of
/// its open directory.
pub(super) fn at_path<T>(path: &Path, call: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(call(&SocketAddrUnix::new(path)?)?);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
    };
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    if short.as_os_str().len() > PATH_BYTES_MAX {
        let most = PATH_BYTES_MAX - (short.as_os_str().len() - name.len());
        let what = format!("the name of its file must have at most {most} bytes, and not {}", name.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(call(&SocketAddrUnix::new(&short)?)?)
}

/// The process at the other end of a unix socket, as the kernel knew it when the connection, or the socket that
/// listens, was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Number of the process; 0 if it has none here, as the process of another container.
    pub pid: i32,
}

impl Peer {
    /// Returns the process at the other end.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of_val(&found) as libc::socklen_t;
        // SAFETY: a descriptor of ours, and memory of the length that `bytes` says.
        let done = unsafe {
            let to = (&raw mut found).cast();
            libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut bytes)
        };
        if done != 0 || bytes as usize != size_of_val(&found) {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { uid: found.uid, gid: found.gid, pid: found.pid })
    }

    /// Returns the further groups of the process at the other end; none if the kernel does not tell.
    pub(super) fn groups(stream: &UnixStream) -> Vec<u32> {
        // The kernel's limit of a process's groups.
        let mut found = vec![u32::MAX; 65536];
        let mut bytes = (found.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: a descriptor of ours, and memory of the length that `bytes` says.
        let done = unsafe {
            let to = found.as_mut_ptr().cast();
            libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut bytes)
        };
        found.truncate(if done == 0 { bytes as usize / size_of::<u32>() } else { 0 });
        found
    }
}

/// A connection over either kind of socket.
#[derive(Debug)]
pub(super) enum SocketStream {
    Tcp(TcpStream),
    /// With the process at the other end.
    Unix(UnixStream, Peer),
    /// A TCP socket with TLS.
    Secure(SecureStream),
}

impl SocketStream {
    /// Returns the process at the other end of a unix socket.
    pub(super) fn peer(&self) -> Option<Peer> {
        match self {
            Self::Tcp(_) | Self::Secure(_) => None,
            Self::Unix(_, peer) => Some(*peer),
        }
    }

    /// Returns where the other end is: its address ([`place_of`]), or its user on a unix socket; `None` if it is gone.
    pub(super) fn place(&self) -> Option<String> {
        let socket = match self {
            Self::Tcp(stream) => stream,
            Self::Secure(stream) => stream.socket(),
            Self::Unix(_, peer) => return Some(format!("user {}", peer.uid)),
        };
        Some(place_of(socket.peer_addr().ok()?.ip()))
    }

    /// Whether the connection has proved these names of a host and a subsystem, or is of a kind that proves none. The
    /// key of TLS is one of a host for one subsystem.
    pub(super) fn has_names(&self, hostnqn: &str, subnqn: &str) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(..) => true,
            Self::Secure(stream) => {
                (stream.named().hostnqn.as_str(), stream.named().subnqn.as_str()) == (hostnqn, subnqn)
            }
        }
    }

    /// Checks the host's key of TLS, which may have been replaced since the handshake. An association that has begun
    /// before it was is ended by who replaces it.
    ///
    /// # Errors
    /// The status of a connect command, and its dword 0.
    pub(super) fn check_key(&self, subsystem: &Subsystem) -> Result<(), (Status, u32)> {
        match self {
            Self::Secure(stream) if !stream.has_key_of(subsystem) => Err((Status::CONNECT_HOST, 0)),
            Self::Tcp(_) | Self::Unix(..) | Self::Secure(_) => Ok(()),
        }
    }

    /// Sends bytes of these parts, one behind the other; returns their number, or none if the thread may not wait and
    /// would have to. The next call must begin with the bytes that were not sent.
    pub(super) fn send(&self, parts: &[IoSlice<'_>], may_wait: bool, limit: Duration) -> io::Result<Option<usize>> {
        let Self::Secure(stream) = self else { return self.send_plain(parts, may_wait) };
        let first = parts.first().map_or(&[][..], |part| &**part);
        let joined: Vec<u8>;
        let from = if parts.len() == 1 || first.len() >= JOINED_BYTES {
            first
        } else {
            joined = parts.iter().flat_map(|part| part.iter().copied()).take(JOINED_BYTES).collect();
            &joined
        };
        loop {
            match stream.write_now(from)? {
                None if may_wait => stream.wait_to_write(limit)?,
                done => return Ok(done),
            }
        }
    }

    fn send_plain(&self, parts: &[IoSlice<'_>], may_wait: bool) -> io::Result<Option<usize>> {
        let flags = if may_wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        loop {
            match sendmsg(self, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !may_wait => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the name of the subsystem that a host means. A host that has found the unix socket of the subsystem
    /// `own` may leave the name out.
    pub(super) fn subsystem_name(&self, given: String, own: &str) -> String {
        if given.is_empty() && self.peer().is_some() { own.to_owned() } else { given }
    }

    /// Makes a TCP connection one with TLS, as the host that has these keys.
    pub(super) fn secured(self, offers: &[TlsPsk], limit: Duration) -> Result<Self, TlsFailure> {
        match self {
            Self::Tcp(stream) => Ok(Self::Secure(SecureStream::connect(stream, offers, limit)?)),
            Self::Unix(..) | Self::Secure(_) => Err(TlsFailure::Protocol("TLS needs a TCP socket".to_owned())),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream, peer) => Self::Unix(stream.try_clone()?, *peer),
            Self::Secure(stream) => Self::Secure(stream.clone()),
        })
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream, _) => stream.shutdown(how),
            Self::Secure(stream) => stream.socket().shutdown(how),
        }
    }

    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Unix(stream, _) => stream.set_read_timeout(limit),
            Self::Secure(stream) => stream.set_read_timeout(limit),
        }
    }

    pub(super) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(limit),
            Self::Unix(stream, _) => stream.set_write_timeout(limit),
            Self::Secure(stream) => stream.socket().set_write_timeout(limit),
        }
    }

    /// Has small packets sent at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(..) => Ok(()),
            Self::Secure(stream) => stream.socket().set_nodelay(true),
        }
    }

    /// Waits for bytes of the socket and copies some of them, which stay to be read.
    pub(super) fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        peek(self, to)
    }

    /// Returns the address and the port that the other side has reached, as texts; a unix socket has none. An IPv4 host
    /// that reached an IPv6 socket knows the address as that of IPv4.
    pub(super) fn local(&self) -> Option<(String, String)> {
        let socket = match self {
            Self::Tcp(stream) => stream,
            Self::Secure(stream) => stream.socket(),
            Self::Unix(..) => return None,
        };
        let at = socket.local_addr().ok()?;
        Some((at.ip().to_canonical().to_string(), at.port().to_string()))
    }
}

impl AsFd for SocketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream, _) => stream.as_fd(),
            Self::Secure(stream) => stream.socket().as_fd(),
        }
    }
}

impl Read for SocketStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(to),
            Self::Unix(stream, _) => stream.read(to),
            Self::Secure(stream) => stream.read(to),
        }
    }
}

impl Write for SocketStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream, _) => stream.write(from),
            Self::Secure(stream) => stream.write(from),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(from),
            Self::Unix(stream, _) => stream.write_vectored(from),
            Self::Secure(stream) => stream.write(from.first().map_or(&[][..], |part| &**part)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_host_are_one_place() {
        for (address, place) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::1", "::1"),
            ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ] {
            assert_eq!(place_of(address.parse().unwrap()), place, "{address}");
        }
    }
}
