//! Files of unix sockets: what is replaced, what is refused and stays, and which of several servers has the path.

use super::*;

fn listen(path: &Path) -> io::Result<Listener> {
    Listener::bind(&Endpoint::Unix(path.to_owned()), SocketAccess::default()).map(|(made, _)| made)
}

#[test]
fn of_servers_that_begin_at_once_one_has_the_path_and_keeps_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    for round in 0..200 {
        // As a killed server leaves it.
        drop(UnixListener::bind(&path).unwrap());
        let barrier = std::sync::Barrier::new(4);
        let begin = || {
            barrier.wait();
            listen(&path)
        };
        let made: Vec<io::Result<Listener>> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(begin));
            threads.into_iter().map(|thread| nandarray::internals::joined(thread)).collect()
        });
        let (ours, others): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert_eq!(ours.len(), 1, "round {round}");
        for other in others {
            assert_eq!(other.unwrap_err().kind(), ErrorKind::AddrInUse, "round {round}");
        }
        let ours = ours.into_iter().next().unwrap().unwrap();
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok(), "round {round}");
        assert!(ours.accept().unwrap().is_some());
        drop(ours);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "round {round}");
    }
}

#[test]
fn a_file_that_is_no_socket_of_an_ended_server_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let [path, lock, target] = ["x.sock", "x.sock.lock", "target"].map(|name| dir.path().join(name));
    let refused = |what: &str| {
        let before = std::fs::read_dir(dir.path()).unwrap().count();
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), before);
    };
    for (at, name) in [(&path, "x.sock is there"), (&lock, "x.sock.lock is there")] {
        std::fs::write(at, "mine").unwrap();
        refused(name);
        assert_eq!(std::fs::read(at).unwrap(), b"mine");
        std::fs::remove_file(at).unwrap();
        // To a file, then to none, which is not made.
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, at).unwrap();
        refused("it is a link");
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        std::fs::remove_file(&target).unwrap();
        refused("it is a link");
        assert!(!target.exists());
        std::fs::remove_file(at).unwrap();
        std::fs::create_dir(at).unwrap();
        refused("it is a directory");
        std::fs::remove_dir(at).unwrap();
    }
    // A link to the socket of a server that has ended is no socket either.
    drop(UnixListener::bind(&target).unwrap());
    std::os::unix::fs::symlink(&target, &path).unwrap();
    refused("it is a link");
    assert!(target.exists());
    std::fs::remove_file(&path).unwrap();
    let foreign = UnixListener::bind(&path).unwrap();
    refused("another server listens on");
    drop(foreign);
    let made = listen(&path).unwrap();
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
    // Another file has the path by now, and stays at the end.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    drop(made);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert!(!lock.exists());
}

#[test]
fn modes_are_those_of_the_access_and_long_paths_have_their_socket() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("f".repeat(150));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("x.sock");
    // SAFETY: the call takes nothing and cannot fail.
    let group = Some(unsafe { libc::getegid() });
    for (access, mode) in [
        (SocketAccess::default(), 0o600),
        (SocketAccess { group, ..SocketAccess::default() }, 0o660),
        (SocketAccess { group, others: true, owner: None }, 0o666),
    ] {
        let (listener, endpoint) = Listener::bind(&Endpoint::Unix(path.clone()), access).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, mode);
        let mut host = endpoint.connect(Duration::from_secs(10)).unwrap();
        let mut served = listener.accept().unwrap().unwrap();
        let peer = served.peer().unwrap();
        assert_eq!((peer.uid, peer.pid), (this_user(), std::process::id() as i32));
        std::io::Write::write_all(&mut host, b"abc").unwrap();
        let mut found = [0; 3];
        assert!(served.peek(&mut found).unwrap() > 0);
        std::io::Read::read_exact(&mut served, &mut found).unwrap();
        assert_eq!(&found, b"abc");
    }
    let long = dir.path().join("n".repeat(120));
    assert!(listen(&long).unwrap_err().to_string().contains("must have at most"), "a name that no address holds");
}

#[test]
fn users_are_admitted_by_user_group_or_to_all() {
    let peer = |uid, gid| Peer { uid, gid, pid: 7 };
    let access = SocketAccess { owner: Some(20), group: Some(30), others: false };
    let none = Vec::new;
    let own = this_user();
    for (uid, gid, groups, may) in [
        (own, 1, vec![], true),
        (0, 1, vec![], true),
        (20, 1, vec![], true),
        (21, 30, vec![], true),
        (21, 1, vec![4, 30], true),
        (21, 1, vec![4], false),
    ] {
        assert_eq!(access.admits(peer(uid, gid), || groups), may, "user {uid}, group {gid}");
    }
    assert!(!SocketAccess::default().admits(peer(21, 0), none));
    assert!(SocketAccess { others: true, ..SocketAccess::default() }.admits(peer(21, 1), none));
}

/// Another user's process connects: the kernel refuses it by the file's mode, the server by its credentials.
#[test]
fn another_user_is_refused_by_its_credentials_too() {
    if this_user() != 0 {
        return; // only root can become another user
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = dir.path().join("x.sock");
    let listener = listen(&path).unwrap();
    let connects = |groups: &'static [u32]| {
        let path = path.clone();
        // Identities are a thread's own by these calls of the kernel.
        std::thread::spawn(move || {
            // SAFETY: plain calls of the kernel, the first with memory of the length in its argument.
            let done = unsafe {
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                    && libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534) == 0
                    && libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) == 0
            };
            assert!(done);
            std::os::unix::net::UnixStream::connect(path)
        })
        .join()
        .unwrap()
    };
    assert_eq!(connects(&[]).unwrap_err().kind(), ErrorKind::PermissionDenied);
    // A wider mode lets no other user in.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = connects(&[]).unwrap();
    assert!(listener.accept().unwrap().is_none());
    drop((refused, listener));
    let access = SocketAccess { group: Some(54321), ..SocketAccess::default() };
    let (listener, _) = Listener::bind(&Endpoint::Unix(path.clone()), access).unwrap();
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().gid(), 54321);
    assert_eq!(connects(&[]).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let member = connects(&[4, 54321]).unwrap();
    assert_eq!(listener.accept().unwrap().unwrap().peer().unwrap().uid, 65534);
    drop(member);
}
