//! The host's side of the TCP transport: queues over connections, commands with their data, and the steps of
//! connecting.
//!
//! The initiator does what the Linux kernel's initiator does, in the same order, for one controller: it connects an
//! admin queue, sets properties until the controller is ready, sets the number of queues, and connects one I/O queue.
//! The caller decides how many commands a queue has in flight; a thread that sends much data has to take completions in
//! between.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use nandarray_nvme_spec::{
    ADMIN_IN_CAPSULE_BYTES, AdminCommand, AuthFields, CNTLID_ANY, CONNECT_AUTHENTICATE, CONNECT_SECURE_CHANNEL,
    CompletionEntry, ConnectData, ConnectFields, ControllerConfiguration, ControllerStatus, DISCOVERY_NQN,
    DataDescriptor, DataLocation, FabricsCommand, FeatureChange, Property, PropertyWidth, QueueCounts, Status,
    SubmissionEntry, from_text,
};
use zerocopy::{FromBytes, IntoBytes};

use super::endpoint::{Endpoint, Peer, SocketStream};
use super::pdu::{
    self, DIGEST_BYTES, Digests, FLAG_LAST, FLAG_SUCCESS, HEADER_BYTES, PduHeader, PduKind, TransferFields,
};
use super::secure::TlsFailure;
use crate::auth::{AuthFailure, HostCredentials, HostExchange};
use crate::limits::{IN_CAPSULE_BYTES, TRANSFER_BYTES_MAX};
use crate::tls::TlsKey;

/// Time after which an initiator gives up on a controller that does not answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Size of the buffer of bytes that were read and not handled.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of that buffer that are used while much data is expected.
const SMALL_INPUT_BYTES: usize = 4 << 10;
/// Number of bytes of data from which they are read to where they belong, and not through the buffer.
const DIRECT_BYTES: usize = 32 << 10;
/// Maximum number of buffers that are kept for later commands: as many as a queue has commands.
const SPARE_MAX: usize = 128;

/// The reason why a connect, or a command, failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection failed, or was closed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The controller completed the command with an error status.
    #[error("{0}")]
    Refused(Status),
    /// The host, or the controller, could not prove its identity.
    #[error("authentication failed: {0}")]
    Authentication(#[from] AuthFailure),
    /// The controller asks for authentication, and the host has no secret.
    #[error("the controller asks for authentication, and there is no secret for it")]
    NoSecret,
    /// The controller is to prove its identity, and does not ask for authentication.
    #[error("the controller does not ask for authentication, and so cannot prove its identity")]
    NoAuthentication,
    /// There is no TLS between this host and the server, although one of them asks for it.
    #[error("{0}")]
    Tls(#[from] TlsFailure),
    /// The controller asks for a secure channel.
    #[error("the controller asks for a secure channel, which is not supported")]
    SecureChannel,
}

/// Options of an initiator.
#[derive(Clone, Debug)]
pub struct InitiatorOptions {
    /// Qualified name of the host.
    pub hostnqn: String,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Digests that the connection uses.
    pub digests: Digests,
    /// Keep alive timeout in milliseconds; 0 for none.
    pub kato_ms: u32,
    /// Number of entries of the I/O queue.
    pub entries: u16,
    /// Secrets of this host and of the controller.
    pub credentials: Option<HostCredentials>,
    /// Key of TLS of this host; `None` to connect without TLS.
    pub tls_key: Option<TlsKey>,
    /// Called when a signal has interrupted a wait for the controller, in the thread that waits; an error of it ends
    /// the connection.
    pub interrupted: fn() -> io::Result<()>,
}

impl Default for InitiatorOptions {
    fn default() -> Self {
        Self {
            hostnqn: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-6e616e646172".to_owned(),
            hostid: *b"nandarray host\0\0",
            digests: Digests::default(),
            kato_ms: 0,
            entries: 128,
            credentials: None,
            tls_key: None,
            interrupted: || Ok(()),
        }
    }
}

#[derive(Debug)]
struct PendingCommand {
    source: Vec<u8>,
    /// Bytes of the source that were sent, which is in order.
    given: usize,
    room: Vec<u8>,
    received: usize,
}

/// A queue of the host over one connection.
#[derive(Debug)]
pub struct HostQueue {
    stream: SocketStream,
    digests: Digests,
    in_capsule: usize,
    /// Maximum bytes of data in one H2CData PDU.
    h2c_bytes: usize,
    next_cid: u16,
    pending: BTreeMap<u16, PendingCommand>,
    /// Number of pending commands with room for [`DIRECT_BYTES`] or more.
    large: usize,
    /// Memory of earlier commands, for the data of the next ones.
    spare: Vec<Vec<u8>>,
    done: VecDeque<(CompletionEntry, Vec<u8>)>,
    /// Bytes that were read and not handled: `start..end` of the buffer.
    input: Vec<u8>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// Bytes that were sent, and received.
    wire: (u64, u64),
    /// Whether an exchange failed: the place in the stream is lost then, and nothing more is sent or received.
    is_broken: bool,
    interrupted: fn() -> io::Result<()>,
}

pub(super) fn broken(what: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl HostQueue {
    /// Connects a queue as [`Self::connect`] does, without authentication: the queue has to authenticate itself before
    /// other commands if the controller asks for it.
    ///
    /// # Errors
    /// The connection fails, or the controller refuses.
    pub fn connect_only(
        address: impl Into<Endpoint>,
        fields: ConnectFields,
        subnqn: &str,
        cntlid: u16,
        options: &InitiatorOptions,
    ) -> Result<(Self, CompletionEntry), ConnectError> {
        let mut queue = Self::open(address.into(), fields.qid, subnqn, options)?;
        let done = queue.join(fields, subnqn, cntlid, options)?;
        Ok((queue, done))
    }

    /// Connects to a server: does the handshakes, and nothing that makes a queue of the connection.
    pub(super) fn open(
        address: Endpoint,
        qid: u16,
        subnqn: &str,
        options: &InitiatorOptions,
    ) -> Result<Self, ConnectError> {
        let mut stream = address.connect(ANSWER_TIME)?;
        if let Some(key) = &options.tls_key {
            stream = stream.secured(&key.offers(&options.hostnqn, subnqn), ANSWER_TIME)?;
        }
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let mut queue = Self {
            stream,
            digests: Digests::default(),
            in_capsule: if qid == 0 { ADMIN_IN_CAPSULE_BYTES } else { IN_CAPSULE_BYTES },
            h2c_bytes: 4096,
            next_cid: 0,
            pending: BTreeMap::new(),
            large: 0,
            spare: Vec::new(),
            done: VecDeque::new(),
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            output: Vec::new(),
            wire: (0, 0),
            is_broken: false,
            interrupted: options.interrupted,
        };
        let rest = pdu::handshake(options.digests, 0);
        pdu::begin(&mut queue.output, PduKind::ICReq, 0, &rest, 0, Digests::default());
        queue.flush()?;
        let (header, bytes) = queue.header()?;
        if header.kind == PduKind::C2HTermReq && options.tls_key.is_none() {
            return Err(TlsFailure::Required.into());
        }
        if header.kind != PduKind::ICResp {
            return Err(broken(format!("{:?} in place of ICResp", header.kind)).into());
        }
        let (digests, limit) = pdu::read_handshake(&bytes).map_err(broken)?;
        if digests != options.digests || limit < 4096 || !limit.is_multiple_of(4) {
            return Err(broken(format!("{digests:?} and {limit} bytes in ICResp")).into());
        }
        (queue.digests, queue.h2c_bytes) = (digests, limit as usize);
        Ok(queue)
    }

    /// Makes a queue of the connection; returns the connect command's completion.
    pub(super) fn join(
        &mut self,
        fields: ConnectFields,
        subnqn: &str,
        cntlid: u16,
        options: &InitiatorOptions,
    ) -> Result<CompletionEntry, ConnectError> {
        let mut data = ConnectData::default();
        data.hostid = options.hostid;
        data.cntlid.set(cntlid);
        from_text(&mut data.subnqn, subnqn);
        from_text(&mut data.hostnqn, &options.hostnqn);
        let (done, _) = ok(self.call(FabricsCommand::Connect(fields).encode(0), data.as_bytes(), 0)?)?;
        Ok(done)
    }

    /// Connects a queue: performs the handshake, then the connect command, then authentication if the controller asks
    /// for it; returns the queue with the connect command's completion.
    ///
    /// # Errors
    /// The connection fails, the controller refuses, or authentication fails.
    pub fn connect(
        address: impl Into<Endpoint>,
        fields: ConnectFields,
        subnqn: &str,
        cntlid: u16,
        options: &InitiatorOptions,
    ) -> Result<(Self, CompletionEntry), ConnectError> {
        let (mut queue, done) = Self::connect_only(address, fields, subnqn, cntlid, options)?;
        let (asked, own) = (done.dw0.get(), options.credentials.as_ref());
        if asked & CONNECT_SECURE_CHANNEL != 0 {
            return Err(ConnectError::SecureChannel);
        }
        if asked & CONNECT_AUTHENTICATE != 0 {
            let credentials = own.cloned().ok_or(ConnectError::NoSecret)?;
            queue.authenticate(HostExchange::new(credentials, &options.hostnqn, subnqn, fields.qid))?;
        } else if own.is_some_and(|own| own.controller.is_some()) && subnqn != DISCOVERY_NQN {
            return Err(ConnectError::NoAuthentication);
        }
        Ok((queue, done))
    }

    /// Proves the identity of this host and, if asked to, checks that of the controller.
    ///
    /// # Errors
    /// The connection fails, the controller refuses, or one of them does not know its secret.
    pub fn authenticate(&mut self, mut exchange: HostExchange) -> Result<(), ConnectError> {
        const ROOM: usize = 4096;
        let send = |queue: &mut Self, message: &[u8]| {
            let command = FabricsCommand::AuthSend(AuthFields::new(message.len() as u32));
            ok(queue.call(command.encode(0), message, 0)?).map(|_| ())
        };
        let receive = FabricsCommand::AuthReceive(AuthFields::new(ROOM as u32)).encode(0);
        let fetch = |queue: &mut Self| ok(queue.call(receive, &[], ROOM)?);
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).expect("the system has random numbers");
        send(self, &exchange.negotiate())?;
        let (_, challenge) = fetch(self)?;
        let reply = exchange.reply(&challenge, random)?;
        send(self, &reply)?;
        let (_, success) = fetch(self)?;
        match exchange.confirm(&success) {
            Ok(None) => Ok(()),
            Ok(Some(message)) => send(self, &message),
            Err(failure) => {
                // The controller ends the connection in either case.
                drop(send(self, &exchange.failed(failure)));
                Err(failure.into())
            }
        }
    }

    /// Returns the process that serves, if the queue is over a unix socket.
    pub fn peer(&self) -> Option<Peer> {
        self.stream.peer()
    }

    /// Returns the number of commands whose completions the caller has not taken.
    pub fn in_flight(&self) -> usize {
        self.pending.len() + self.done.len()
    }

    /// Queues a command with its data (`source`), or with room for `room` bytes of data from the controller; returns
    /// the command's identifier.
    pub fn submit(&mut self, mut entry: SubmissionEntry, source: &[u8], room: usize) -> u16 {
        while self.pending.contains_key(&self.next_cid) {
            self.next_cid = self.next_cid.wrapping_add(1);
        }
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        entry.cid.set(cid);
        let inside = !source.is_empty() && source.len() <= self.in_capsule;
        let location = if inside { DataLocation::Capsule { offset: 0 } } else { DataLocation::Transport };
        let bytes = if source.is_empty() { room } else { source.len() };
        DataDescriptor { location, bytes: bytes as u32 }.encode(&mut entry);
        let carried = if inside { source } else { &[] };
        pdu::begin(&mut self.output, PduKind::CapsuleCmd, 0, entry.as_bytes(), carried.len(), self.digests);
        pdu::data(&mut self.output, carried, self.digests);
        let source = if inside { Vec::new() } else { source.to_vec() };
        let mut space = if room > 0 { self.spare.pop().unwrap_or_default() } else { Vec::new() };
        // The data of an earlier command is overwritten, or zeroed at the end.
        space.resize(room, 0);
        self.large += usize::from(room >= DIRECT_BYTES);
        self.pending.insert(cid, PendingCommand { source, given: 0, room: space, received: 0 });
        cid
    }

    /// Takes back the data of a completion that the caller has done with: a later command uses its memory.
    pub fn recycle(&mut self, data: Vec<u8>) {
        if data.capacity() > 0 && self.spare.len() < SPARE_MAX {
            self.spare.push(data);
        }
    }

    /// Sends the queued commands.
    ///
    /// # Errors
    /// The connection fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.until_broken(|queue| {
            queue.stream.write_all(&queue.output)?;
            queue.wire.0 += queue.output.len() as u64;
            queue.output.clear();
            Ok(())
        })
    }

    /// Performs a step of the exchange, unless an earlier one failed; after an error all further steps fail.
    fn until_broken(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.is_broken {
            return Err(broken("the connection failed earlier"));
        }
        let done = step(self);
        if done.is_err() {
            self.is_broken = true;
            // The controller ends what it does for this host.
            drop(self.stream.shutdown(Shutdown::Both));
        }
        done
    }

    /// Waits for the next completion; returns it with the data from the controller.
    ///
    /// # Errors
    /// The connection fails or was closed, or the controller violated the protocol.
    pub fn completion(&mut self) -> io::Result<(CompletionEntry, Vec<u8>)> {
        loop {
            if let Some(done) = self.done.pop_front() {
                return Ok(done);
            }
            if !self.output.is_empty() {
                self.flush()?;
            }
            self.until_broken(Self::receive)?;
        }
    }

    /// Whether all data of a command were sent, so that the controller has them before it has later commands.
    pub(super) fn has_given(&self, cid: u16) -> bool {
        self.pending.get(&cid).is_none_or(|pending| pending.given == pending.source.len())
    }

    /// Waits for a completion; returns none if the controller has sent nothing within [`ANSWER_TIME`].
    pub(super) fn completion_in_time(&mut self) -> io::Result<Option<(CompletionEntry, Vec<u8>)>> {
        while self.done.is_empty() {
            if !self.receive_in_time()? {
                return Ok(None);
            }
        }
        Ok(self.done.pop_front())
    }

    /// Receives one PDU; returns false if the controller has sent nothing within [`ANSWER_TIME`].
    pub(super) fn receive_in_time(&mut self) -> io::Result<bool> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        let mut is_there = true;
        self.until_broken(|queue| match queue.fill(1) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                is_there = false;
                Ok(())
            }
            found => found.and_then(|()| queue.receive()),
        })?;
        Ok(is_there)
    }

    /// Executes one command: sends it, and waits for its completion.
    ///
    /// # Errors
    /// As [`Self::completion`].
    pub fn call(
        &mut self,
        entry: SubmissionEntry,
        source: &[u8],
        room: usize,
    ) -> io::Result<(CompletionEntry, Vec<u8>)> {
        let cid = self.submit(entry, source, room);
        let (done, data) = self.completion()?;
        if done.cid.get() == cid { Ok((done, data)) } else { Err(broken("the completion of another command")) }
    }

    /// Reads until at least `bytes` bytes are in the buffer, which is larger. If much data is expected, it reads few
    /// bytes beyond: the data itself goes where it belongs.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        while self.end - self.start < bytes {
            if self.start > 0 {
                self.input.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let limit = if self.large > 0 { bytes.max(SMALL_INPUT_BYTES) } else { INPUT_BYTES };
            let n = match self.stream.read(&mut self.input[self.end..limit]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    (self.interrupted)()?;
                    continue;
                }
                found => found?,
            };
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the controller closed the connection"));
            }
            self.end += n;
            self.wire.1 += n as u64;
        }
        Ok(())
    }

    /// Reads the next bytes of the stream to where they belong: what the buffer has of them, then from the socket.
    fn take(&mut self, to: &mut [u8]) -> io::Result<()> {
        if to.len() < DIRECT_BYTES {
            // With what follows, by one call of the system.
            self.fill(to.len())?;
        }
        let n = to.len().min(self.end - self.start);
        to[..n].copy_from_slice(&self.input[self.start..self.start + n]);
        self.start += n;
        self.stream.read_exact(&mut to[n..])?;
        self.wire.1 += (to.len() - n) as u64;
        Ok(())
    }

    fn header(&mut self) -> io::Result<(PduHeader, Vec<u8>)> {
        self.fill(HEADER_BYTES)?;
        let common: [u8; 8] = self.input[self.start..self.start + 8].try_into().expect("eight bytes");
        let header = PduHeader::decode(&common, self.digests, false, false).map_err(broken)?;
        self.fill(header.header_bytes)?;
        let bytes = self.input[self.start..self.start + header.header_bytes].to_vec();
        pdu::check_header(&header, &bytes).map_err(broken)?;
        self.start += header.header_bytes;
        Ok((header, bytes))
    }

    fn receive(&mut self) -> io::Result<()> {
        let (header, bytes) = self.header()?;
        match header.kind {
            PduKind::CapsuleResp => {
                let entry = CompletionEntry::read_from_bytes(&bytes[8..24]).expect("16 bytes");
                self.finish(entry)
            }
            PduKind::C2HData => self.controller_data(&header, &bytes),
            PduKind::R2T => self.give_data(&bytes),
            PduKind::C2HTermReq => {
                let (status, detail) = (bytes[8], u32::from_le_bytes(bytes[10..14].try_into().expect("four bytes")));
                Err(broken(format!("the controller ended the connection: error {status}, detail {detail}")))
            }
            kind => Err(broken(format!("{kind:?} from a controller"))),
        }
    }

    fn finish(&mut self, entry: CompletionEntry) -> io::Result<()> {
        let found = self.pending.remove(&entry.cid.get());
        let mut pending = found.ok_or_else(|| broken(format!("a completion of command {}", entry.cid.get())))?;
        self.large -= usize::from(pending.room.len() >= DIRECT_BYTES);
        let mut room = Vec::new();
        if entry.status().ok() {
            pending.room[pending.received..].fill(0);
            room = pending.room;
        } else {
            self.recycle(pending.room);
        }
        self.done.push_back((entry, room));
        Ok(())
    }

    fn controller_data(&mut self, header: &PduHeader, bytes: &[u8]) -> io::Result<()> {
        let fields = TransferFields::read_from_bytes(&bytes[8..24]).expect("16 bytes");
        let (cid, count, first) = (fields.cccid.get(), header.data_bytes, fields.offset.get() as usize);
        let pending = self.pending.get_mut(&cid).ok_or_else(|| broken(format!("data of command {cid}")))?;
        let fits = first == pending.received && count <= pending.room.len() - first;
        if !fits || fields.bytes.get() as usize != count {
            return Err(broken(format!("{count} bytes at {first} of command {cid}")));
        }
        let mut room = std::mem::take(&mut pending.room);
        self.take(&mut room[first..first + count])?;
        if header.has_data_digest {
            let mut digest = [0; DIGEST_BYTES];
            self.take(&mut digest)?;
            if crc_fast::crc32_iscsi(&room[first..first + count]).to_le_bytes() != digest {
                return Err(broken("a wrong data digest"));
            }
        }
        let pending = self.pending.get_mut(&cid).expect("the command is pending");
        pending.room = room;
        pending.received += count;
        if header.flags & FLAG_SUCCESS != 0 {
            return self.finish(CompletionEntry { cid: cid.into(), ..CompletionEntry::default() });
        }
        Ok(())
    }

    fn give_data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fields = TransferFields::read_from_bytes(&bytes[8..24]).expect("16 bytes");
        let cid = fields.cccid.get();
        let pending = self.pending.get(&cid).ok_or_else(|| broken(format!("R2T of command {cid}")))?;
        let (first, count) = (fields.offset.get() as usize, fields.bytes.get() as usize);
        let end = first.checked_add(count).filter(|&end| end <= pending.source.len());
        let part = end.map(|end| &pending.source[first..end]).ok_or_else(|| broken("R2T beyond the data"))?;
        let mut at = first;
        for piece in part.chunks(self.h2c_bytes) {
            let flags = if at + piece.len() == first + count { FLAG_LAST } else { 0 };
            let fields = TransferFields::new(cid, fields.ttag.get(), at as u32, piece.len() as u32);
            pdu::begin(&mut self.output, PduKind::H2CData, flags, fields.as_bytes(), piece.len(), self.digests);
            pdu::data(&mut self.output, piece, self.digests);
            at += piece.len();
        }
        self.pending.entry(cid).and_modify(|pending| pending.given = at);
        self.flush()
    }
}

/// A host that is connected to one controller: an admin queue and an I/O queue.
#[derive(Debug)]
pub struct Initiator {
    /// The admin queue.
    pub admin: HostQueue,
    /// The I/O queue; `None` at a discovery service.
    pub io: Option<HostQueue>,
    cntlid: u16,
}

impl Initiator {
    /// Connects to a subsystem, or to the discovery service.
    ///
    /// # Errors
    /// The connection fails, or the controller refuses.
    pub fn connect(
        address: impl Into<Endpoint>,
        subnqn: &str,
        options: &InitiatorOptions,
    ) -> Result<Self, ConnectError> {
        let fields = ConnectFields { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato_ms: options.kato_ms };
        let address = address.into();
        let (mut admin, done) = HostQueue::connect(&address, fields, subnqn, CNTLID_ANY, options)?;
        let cntlid = done.dw0.get() as u16;
        let (width, value) = (PropertyWidth::Four, ControllerConfiguration::ENABLED.bits().into());
        let set = FabricsCommand::PropertySet { offset: Property::CC, width, value };
        ok(admin.call(set.encode(0), &[], 0)?)?;
        let get = FabricsCommand::PropertyGet { offset: Property::CSTS, width };
        let (status, _) = ok(admin.call(get.encode(0), &[], 0)?)?;
        if !ControllerStatus::decode(status.dw0.get()).ready {
            return Err(ConnectError::Refused(Status::NOT_READY));
        }
        if subnqn == DISCOVERY_NQN {
            return Ok(Self { admin, io: None, cntlid });
        }
        let one = FeatureChange::Queues(QueueCounts { submission_z: 0, completion_z: 0 });
        ok(admin.call(AdminCommand::SetFeatures(one).encode(0), &[], 0)?)?;
        let mut made = Self { admin, io: None, cntlid };
        made.io = Some(made.queue(&address, 1, subnqn, options)?);
        Ok(made)
    }

    /// Connects a further I/O queue.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn queue(
        &self,
        address: impl Into<Endpoint>,
        qid: u16,
        subnqn: &str,
        options: &InitiatorOptions,
    ) -> Result<HostQueue, ConnectError> {
        let fields = ConnectFields { recfmt: 0, qid, sqsize_z: options.entries - 1, cattr: 0, kato_ms: 0 };
        HostQueue::connect(address, fields, subnqn, self.cntlid, options).map(|(queue, _)| queue)
    }

    /// Returns the identifier of the controller.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the I/O queue.
    ///
    /// # Errors
    /// There is no I/O queue at a discovery service.
    pub fn io(&mut self) -> io::Result<&mut HostQueue> {
        self.io.as_mut().ok_or_else(|| broken("a discovery service has no I/O queue"))
    }

    /// Executes one command on the admin or the I/O queue.
    ///
    /// # Errors
    /// The connection fails, or the data is larger than a transfer.
    pub fn call(
        &mut self,
        is_admin: bool,
        entry: SubmissionEntry,
        source: &[u8],
        room: usize,
    ) -> io::Result<(CompletionEntry, Vec<u8>)> {
        if source.len().max(room) > TRANSFER_BYTES_MAX {
            return Err(broken(format!(
                "data of {} bytes; a transfer has {TRANSFER_BYTES_MAX}",
                source.len().max(room)
            )));
        }
        if is_admin {
            return self.admin.call(entry, source, room);
        }
        let cid = self.io()?.submit(entry, source, room);
        let (done, data) = self.long_completion()?;
        if done.cid.get() == cid { Ok((done, data)) } else { Err(broken("the completion of another command")) }
    }

    /// Waits for the next completion of the I/O queue, of a command that may take long: the controller is there while
    /// it answers on its other queue.
    pub(super) fn long_completion(&mut self) -> io::Result<(CompletionEntry, Vec<u8>)> {
        loop {
            if let Some(done) = self.io()?.completion_in_time()? {
                return Ok(done);
            }
            self.look()?;
        }
    }

    /// Checks that the controller answers.
    pub(super) fn look(&mut self) -> io::Result<()> {
        ok(self.admin.call(AdminCommand::KeepAlive.encode(0), &[], 0)?).map(drop).map_err(broken)
    }

    /// Returns the bytes that were sent and received on both queues.
    pub fn wire_bytes(&self) -> (u64, u64) {
        let queues = std::iter::once(&self.admin).chain(&self.io);
        queues.fold((0, 0), |all, queue| (all.0 + queue.wire.0, all.1 + queue.wire.1))
    }

    /// Returns what ends the connection from another thread.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn ender(&self) -> io::Result<ConnectionEnder> {
        let queues = std::iter::once(&self.admin).chain(&self.io);
        Ok(ConnectionEnder(queues.map(|queue| queue.stream.try_clone()).collect::<io::Result<_>>()?))
    }
}

/// The end of a host's connection, for threads that do not wait on it.
#[derive(Debug)]
pub struct ConnectionEnder(Vec<SocketStream>);

impl ConnectionEnder {
    /// Ends the connection: calls in progress and later ones fail.
    pub fn end(&self) {
        for stream in &self.0 {
            // The controller may have closed it before.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn ok(done: (CompletionEntry, Vec<u8>)) -> Result<(CompletionEntry, Vec<u8>), ConnectError> {
    if done.0.status().ok() { Ok(done) } else { Err(ConnectError::Refused(done.0.status())) }
}
