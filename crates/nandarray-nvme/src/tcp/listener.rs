//! Sockets that listen: a TCP socket, or a unix socket with its file and the users who may connect by it.
//!
//! The file of a unix socket has no wider mode than it is to have at any time, and each peer's user is asked of the
//! kernel besides. `PATH.lock` beside the file is locked while the server lives: of servers that begin at once one has
//! the path, and the file of a server that was killed is known as such. A server removes nothing but a socket of its
//! own user on which no process listens; anything else at the path is refused, and stays. Both files are removed at the
//! end.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nandarray::Home;
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::endpoint::{Endpoint, Peer, SocketStream, at_path};

/// Connections of a unix socket that wait to be accepted.
const BACKLOG: i32 = 128;

/// Users who may connect by a unix socket, beside the user who serves and root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// User to whom a server of root gives the socket.
    pub owner: Option<u32>,
    /// Group whose members may connect.
    pub group: Option<u32>,
    /// Whether every user of this machine may.
    pub others: bool,
}

impl SocketAccess {
    /// Whether a process may be a host; `groups` are its further groups.
    fn admits(self, peer: Peer, groups: impl FnOnce() -> Vec<u32>) -> bool {
        let of_user = [0, this_user()].contains(&peer.uid) || self.owner == Some(peer.uid);
        of_user || self.others || self.group.is_some_and(|group| group == peer.gid || groups().contains(&group))
    }

    fn mode(self) -> u32 {
        0o600 | if self.group.is_some() { 0o060 } else { 0 } | if self.others { 0o006 } else { 0 }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile, SocketAccess),
}

impl Listener {
    /// Listens; returns the socket and where it listens, with the port that the system chose for port 0.
    pub(super) fn bind(endpoint: &Endpoint, access: SocketAccess) -> io::Result<(Self, Endpoint)> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let address = listener.local_addr()?;
                Ok((Self::Tcp(listener), Endpoint::Tcp(address)))
            }
            Endpoint::Unix(path) => {
                // A server that changes its folder finds its file all the same when it ends.
                let path = std::path::absolute(path)?;
                let (listener, file) = SocketFile::listen(&path, access)?;
                Ok((Self::Unix(listener, file, access), Endpoint::Unix(path)))
            }
        }
    }

    /// Waits for a connection; `None` for one of a user who may not connect, which ends.
    pub(super) fn accept(&self) -> io::Result<Option<SocketStream>> {
        match self {
            Self::Tcp(listener) => Ok(Some(SocketStream::Tcp(listener.accept()?.0))),
            Self::Unix(listener, _, access) => {
                let (stream, _) = listener.accept()?;
                let peer = Peer::of(&stream)?;
                let may = access.admits(peer, || Peer::groups(&stream));
                Ok(may.then(|| SocketStream::Unix(stream, peer)))
            }
        }
    }

    /// Ends a wait for connections.
    pub(super) fn wake(&self) {
        match self {
            Self::Tcp(listener) => {
                let Ok(address) = listener.local_addr() else { return };
                drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
            }
            // A connection would not do: the path may have another file by now.
            Self::Unix(listener, ..) => drop(rustix::net::shutdown(listener, rustix::net::Shutdown::Both)),
        }
    }

    /// Removes the file of a unix socket.
    pub(super) fn remove(&self) {
        if let Self::Unix(_, file, _) = self {
            file.remove();
        }
    }
}

/// The file of a unix socket, and the lock by which one server has its path. Both files are removed with this value.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// The socket's file, opened without use, which tells it from another one at its path.
    own: File,
    lock: LockFile,
}

impl SocketFile {
    fn listen(path: &Path, access: SocketAccess) -> io::Result<(UnixListener, Self)> {
        let lock = LockFile::take(path)?;
        remove_left(path, access)?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The file that bind makes has the socket's mode. No process connects before it listens.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
        at_path(path, |address| rustix::net::bind(&socket, address)).map_err(|e| match e.kind() {
            ErrorKind::AddrInUse => refused(path, "another process has just made it"),
            _ => e,
        })?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let found = own.metadata()?;
        if !found.file_type().is_socket() || found.uid() != this_user() {
            return Err(refused(path, "another process has just made it"));
        }
        let made = Self { path: path.to_owned(), own, lock };
        made.give(access)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((UnixListener::from(socket), made))
    }

    /// Gives the new file, which is this user's alone so far, its owner, group and mode.
    fn give(&self, access: SocketAccess) -> io::Result<()> {
        let owner = access.owner.filter(|&uid| this_user() == 0 && uid != 0);
        if owner.is_some() || access.group.is_some() {
            let (owner, group) = (owner.map(Uid::from_raw), access.group.map(Gid::from_raw));
            rustix::fs::chownat(&self.own, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        // By its descriptor: another file may have the path.
        let open = format!("/proc/self/fd/{}", self.own.as_raw_fd());
        std::fs::set_permissions(open, PermissionsExt::from_mode(access.mode()))
    }

    /// Removes the file, unless another one has its path by now, then gives the path back.
    fn remove(&self) {
        if self.lock.home.is_here() && has_name(&self.own, &self.path) {
            // Others who may change the folder may have removed it.
            drop(std::fs::remove_file(&self.path));
        }
        self.lock.remove();
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The locked file beside a socket, which is removed with this value.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
    /// The process that serves: one forked from it leaves the files alone.
    home: Home,
}

impl LockFile {
    /// Takes the lock of a socket's path.
    fn take(socket: &Path) -> io::Result<Self> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        // A server that ends may remove the file between the steps; then there is a new one.
        for _ in 0..100 {
            let file = options.open(&path).map_err(|e| match e.raw_os_error() {
                Some(libc::ELOOP) => refused(&path, "it is a link"),
                Some(libc::EISDIR) => refused(&path, "it is a directory"),
                Some(libc::ENXIO) => refused(&path, "it is a socket or a FIFO"),
                _ => io::Error::new(e.kind(), format!("{}: {e}", path.display())),
            })?;
            let found = file.metadata()?;
            if !found.is_file() || found.len() > 0 || found.uid() != this_user() {
                return Err(refused(&path, "it is not the empty file of this user by which one server has the socket"));
            }
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if has_name(&file, &path) => return Ok(Self { file, path, home: Home::here() }),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Err(taken(socket)),
                Err(e) => return Err(e.into()),
            }
        }
        Err(taken(socket))
    }

    fn remove(&self) {
        if self.home.is_here() && has_name(&self.file, &self.path) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn this_user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn taken(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, format!("another server listens on {}", path.display()))
}

fn refused(path: &Path, why: &str) -> io::Error {
    let what = format!("{} is there, and is not the socket of a server that has ended: {why}", path.display());
    io::Error::new(ErrorKind::AlreadyExists, what)
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether the path names an open file, and no other one.
fn has_name(file: &File, path: &Path) -> bool {
    let named = std::fs::symlink_metadata(path);
    named.is_ok_and(|named| file.metadata().is_ok_and(|own| is_same(&own, &named)))
}

/// Removes the socket of a server that has ended. Does nothing if the path is free.
fn remove_left(path: &Path, access: SocketAccess) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let kind = found.file_type();
    if !kind.is_socket() {
        let what = if kind.is_symlink() {
            "it is a link"
        } else if kind.is_dir() {
            "it is a directory"
        } else {
            "it is another kind of file"
        };
        return Err(refused(path, what));
    }
    // A server of root gives the socket to another user.
    let user = this_user();
    if found.uid() != user && !(user == 0 && access.owner == Some(found.uid())) {
        return Err(refused(path, &format!("it belongs to user {}, and user {user} would serve", found.uid())));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match at_path(path, |address| rustix::net::connect(&probe, address)) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
        // It listens; its queue of connections may be full.
        Ok(()) => return Err(taken(path)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(taken(path)),
        Err(e) => return Err(refused(path, &e.to_string())),
    }
    if !is_same(&found, &std::fs::symlink_metadata(path)?) {
        return Err(taken(path));
    }
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests;
