//! One connection of a server: its states, its transfers, and the batch of commands in progress.
//!
//! The connection's thread reads as many bytes as the socket has and handles one PDU after another. Before it would
//! wait for the socket it ends the batch: one command of the engine settles all completed writes, then their
//! completions are sent together. Every length is checked before memory is allocated for it. Transfers from the host
//! begin while their bytes fit the connection's limit; later ones wait.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandarray_nvme_spec::{
    ADMIN_IN_CAPSULE_BYTES, AdminOpcode, CNTLID_ANY, CONNECT_AUTHENTICATE, CompletionEntry, ConnectData, ConnectFields,
    DataDescriptor, DataLocation, FABRICS_OPCODE, FabricsCommand, FabricsType, Opcode, Status, SubmissionEntry,
};
use parking_lot::Mutex;
use zerocopy::FromBytes;

use super::connection_state::{ConnectionEnd, ConnectionState};
use super::endpoint::SocketStream;
use super::held::{self, CommandMemory, PassedBytes, TRANSFER_BYTES};
use super::long_command::{LongCommand, payload};
use super::outgoing::{Completer, Outgoing};
use super::pdu::{
    self, DIGEST_BYTES, Digests, FLAG_LAST, FatalError, FatalStatus, H2C_BYTES_MAX, HEADER_BYTES, PduHeader, PduKind,
    TransferFields,
};
use super::run_output;
use super::server::ServerState;
use crate::Subsystem;
use crate::admin::AdminAnswer;
use crate::association::{Association, HostIdentity};
use crate::auth::ControllerExchange;
use crate::budget::{Budget, ReservedMemory};
use crate::io::CommandPlace;
use crate::limits::{QUEUE_ENTRIES_MAX, TRANSFER_BYTES_MAX};
use crate::measures::Measured;
use crate::payload::{Payload, TransferDirection};
use crate::queue::QueuePair;

/// Time within which a new connection has to become a queue by a connect command, and again for authentication.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time after which a discovery connection of a host that has proved nothing ends.
const DISCOVERY_TIME: Duration = Duration::from_secs(120);
/// Size of the read buffer before and after the connect command, in bytes.
const BUFFER_BYTES: (usize, usize) = (4 << 10, 64 << 10);
/// Time within which a host has to send something while it owes data that was requested.
const DATA_TIME: Duration = Duration::from_secs(30);
/// Time between two looks while a connection waits for its tenant's pace.
const PAUSE: Duration = Duration::from_millis(20);

/// A command whose data the host sends in H2CData PDUs.
#[derive(Debug)]
struct HostTransfer {
    completer: Completer,
    entry: SubmissionEntry,
    bytes: Vec<u8>,
    reserved: Option<ReservedMemory>,
    /// Number of bytes that have arrived, in order.
    arrived: usize,
    /// Whether a data digest was wrong: the command then ends with an error, once all of its data has arrived.
    damaged: bool,
}

/// A write that the engine has done, and whose completion is sent at the end of its batch.
#[derive(Debug)]
struct UnsettledWrite {
    completer: Completer,
    entry: CompletionEntry,
}

/// One connection of a server.
pub(crate) struct Connection {
    shared: Arc<ServerState>,
    /// Number of the connection among all connections of the server.
    number: u64,
    stream: SocketStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    deadline: Option<Instant>,
    digests: Digests,
    outgoing: Arc<Outgoing>,
    state: ConnectionState,
    /// Authentication of the host on this queue, if it has to authenticate itself.
    exchange: Option<ControllerExchange>,
    transfers: BTreeMap<u16, HostTransfer>,
    transfer_bytes: usize,
    /// Whether reads end within [`DATA_TIME`].
    is_timed: bool,
    passed: Arc<PassedBytes>,
    waiting: VecDeque<(Completer, SubmissionEntry, usize)>,
    next_tag: u16,
    unsettled: Vec<UnsettledWrite>,
    /// Commands that the association holds (event requests), by their identifiers.
    held: Arc<Mutex<BTreeMap<u16, Completer>>>,
}

impl Drop for Connection {
    /// Releases what the connection holds, also if its thread panics.
    fn drop(&mut self) {
        self.over();
    }
}

impl Connection {
    /// Serves a connection until it ends; it has to become a queue until `deadline`.
    pub(crate) fn serve(shared: Arc<ServerState>, number: u64, stream: SocketStream, deadline: Instant) {
        let Ok(outgoing) = stream.try_clone().and_then(|s| Outgoing::new(s, Digests::default())) else { return };
        let mut connection = Self {
            shared,
            number,
            stream,
            buffer: vec![0; BUFFER_BYTES.0],
            start: 0,
            end: 0,
            deadline: Some(deadline),
            digests: Digests::default(),
            outgoing: Arc::new(outgoing),
            state: ConnectionState::Initialising,
            exchange: None,
            transfers: BTreeMap::new(),
            transfer_bytes: 0,
            is_timed: false,
            passed: Arc::default(),
            waiting: VecDeque::new(),
            next_tag: 0,
            unsettled: Vec::new(),
            held: Arc::default(),
        };
        loop {
            match connection.step() {
                Ok(()) => connection.outgoing.bound(),
                Err(ConnectionEnd::Closed) => break,
                Err(ConnectionEnd::Fatal(error, header)) => {
                    connection.end_batch();
                    connection.outgoing.terminate(error, &header);
                    break;
                }
            }
        }
    }

    /// Releases the connection's association or queue. It may be called again, and then does nothing.
    fn over(&mut self) {
        self.outgoing.close();
        if self.exchange.take().is_some_and(|exchange| !exchange.is_authentic() && !exchange.has_failed()) {
            self.shared.logins().abandon();
        }
        match std::mem::replace(&mut self.state, ConnectionState::Initialising) {
            ConnectionState::Admin(association) => self.shared.end_association(&association),
            ConnectionState::Io(association, qid) => self.shared.end_queue(&association, qid),
            ConnectionState::Initialising | ConnectionState::Unconnected | ConnectionState::Proving(..) => {}
        }
    }

    fn subsystem(&self) -> &Arc<Subsystem> {
        self.shared.subsystem()
    }

    /// Receives until the buffer holds at least `bytes` bytes, of which it must have room for more. Before it waits for
    /// the host, it completes the writes that wait to be settled and sends all buffered PDUs ([`Self::end_batch`]).
    fn fill(&mut self, bytes: usize) -> Result<(), ConnectionEnd> {
        while self.end - self.start < bytes {
            self.end_batch();
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            self.wait_limit()?;
            self.limit_transfers()?;
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(ConnectionEnd::Closed),
                Ok(n) => self.end += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Has the socket's reads end in time while the host owes data, for which memory is reserved.
    fn limit_transfers(&mut self) -> Result<(), ConnectionEnd> {
        let owes = !self.transfers.is_empty();
        if self.deadline.is_none() && owes != self.is_timed {
            self.stream.set_read_timeout(owes.then_some(DATA_TIME))?;
            self.is_timed = owes;
        }
        Ok(())
    }

    /// Sets the socket's read timeout to the time that is left for connecting.
    fn wait_limit(&self) -> Result<(), ConnectionEnd> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectionEnd::Closed);
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        Ok(())
    }

    /// Moves the next `to.len()` bytes of the stream to `to`.
    fn take(&mut self, to: &mut [u8]) -> Result<(), ConnectionEnd> {
        let n = to.len().min(self.end - self.start);
        to[..n].copy_from_slice(&self.buffer[self.start..self.start + n]);
        self.start += n;
        let mut rest = &mut to[n..];
        if !rest.is_empty() {
            self.end_batch();
        }
        while !rest.is_empty() {
            self.wait_limit()?;
            match self.stream.read(rest)? {
                0 => return Err(ConnectionEnd::Closed),
                n => rest = &mut rest[n..],
            }
        }
        Ok(())
    }

    /// Reads the data of a PDU and its digest; returns false if the digest is wrong.
    fn take_data(&mut self, header: &PduHeader, to: &mut [u8]) -> Result<bool, ConnectionEnd> {
        self.take(to)?;
        if !header.has_data_digest {
            return Ok(true);
        }
        let mut digest = [0; DIGEST_BYTES];
        self.take(&mut digest)?;
        Ok(u32::from_le_bytes(digest) == crc_fast::crc32_iscsi(to))
    }

    /// Whether the host may have memory for long transfers: it is connected and, if need be, authenticated. A discovery
    /// connection of an anonymous host ([`Association::is_anonymous`]) has a deadline, and has no such memory.
    fn is_trusted(&self) -> bool {
        let connected = matches!(self.state, ConnectionState::Admin(_) | ConnectionState::Io(..));
        let authentic = self.exchange.as_ref().is_none_or(ControllerExchange::is_authentic);
        connected && authentic && self.deadline.is_none()
    }

    /// Reads and handles one PDU.
    fn step(&mut self) -> Result<(), ConnectionEnd> {
        if self.exchange.as_ref().is_some_and(ControllerExchange::has_ended) {
            self.end_batch();
            return Err(ConnectionEnd::Closed);
        }
        self.fill(HEADER_BYTES)?;
        let is_admin = !self.is_io();
        let common: [u8; 8] = self.buffer[self.start..self.start + 8].try_into().expect("eight bytes");
        let fatal = |error: FatalError| ConnectionEnd::Fatal(error, common.to_vec());
        let header = PduHeader::decode(&common, self.digests, true, is_admin).map_err(fatal)?;
        self.fill(header.header_bytes)?;
        let pdu = self.buffer[self.start..self.start + header.header_bytes].to_vec();
        self.start += header.header_bytes;
        let fatal = |error: FatalError| ConnectionEnd::Fatal(error, pdu.clone());
        pdu::check_header(&header, &pdu).map_err(fatal)?;
        let out_of_order = FatalError::new(FatalStatus::Sequence, 0);
        match (header.kind, &self.state) {
            (PduKind::H2CTermReq, _) => Err(ConnectionEnd::Closed),
            (PduKind::ICReq, ConnectionState::Initialising) => self.handshake(&pdu).map_err(fatal),
            (PduKind::ICReq, _) | (_, ConnectionState::Initialising) => Err(fatal(out_of_order)),
            (PduKind::CapsuleCmd, _) => self.capsule(&header, &pdu),
            (PduKind::H2CData, _) => self.host_data(&header, &pdu),
            (kind, _) => unreachable!("{kind:?} is no PDU of a host"),
        }
    }

    fn handshake(&mut self, pdu: &[u8]) -> Result<(), FatalError> {
        let (digests, _) = pdu::read_handshake(pdu)?;
        self.digests = digests;
        let outgoing = self.stream.try_clone().and_then(|sending| Outgoing::new(sending, digests));
        self.outgoing = Arc::new(outgoing.map_err(|_| FatalError::new(FatalStatus::Sequence, 0))?);
        self.outgoing.handshake(H2C_BYTES_MAX);
        self.state = ConnectionState::Unconnected;
        Ok(())
    }

    fn capsule(&mut self, header: &PduHeader, pdu: &[u8]) -> Result<(), ConnectionEnd> {
        let entry = SubmissionEntry::read_from_bytes(&pdu[8..72]).expect("64 bytes");
        let mut data = vec![0; header.data_bytes];
        let whole = self.take_data(header, &mut data)?;
        // The queue itself has answered a command that it refused.
        let Ok(completer) = self.outgoing.accept(entry.cid.get()) else { return Ok(()) };
        if !whole {
            self.refuse(completer, Status::TRANSIENT_TRANSPORT);
            return Ok(());
        }
        // Connect makes another queue of this connection, in which earlier commands would have no place.
        let is_busy = !self.transfers.is_empty() || !self.waiting.is_empty();
        if is_busy && matches!(self.state, ConnectionState::Unconnected) {
            self.refuse(completer, Status::SEQUENCE_ERROR);
            return Ok(());
        }
        let direction = TransferDirection::of(&entry, !self.is_io());
        let descriptor = DataDescriptor::decode(&entry);
        // Without data the descriptor is reserved, and may hold anything.
        let bytes = if direction == TransferDirection::None { 0 } else { descriptor.bytes as usize };
        if let Some(status) = self.refusal(&entry, direction, descriptor, data.len()) {
            self.log_refusal(&entry, status);
            self.refuse(completer, status);
            return Ok(());
        }
        match (direction, descriptor.location) {
            (TransferDirection::ToController, DataLocation::Transport) if bytes > 0 => {
                self.waiting.push_back((completer, entry, bytes));
                self.begin_transfers();
            }
            (TransferDirection::ToHost, _) => return self.execute(completer, entry, None, bytes, Vec::new()),
            _ => return self.execute(completer, entry, (bytes > 0).then_some(data), 0, Vec::new()),
        }
        Ok(())
    }

    /// Whether the connection is an I/O queue, or about to be.
    fn is_io(&self) -> bool {
        matches!(self.state, ConnectionState::Proving(..) | ConnectionState::Io(..))
    }

    /// Returns the status by which a command is refused for the way in which its data comes or goes; `in_capsule` is
    /// the number of bytes of data in its capsule. A command that transfers no data is not refused, whatever its
    /// descriptor holds.
    fn refusal(
        &self,
        entry: &SubmissionEntry,
        direction: TransferDirection,
        descriptor: DataDescriptor,
        in_capsule: usize,
    ) -> Option<Status> {
        let bytes = descriptor.bytes as usize;
        if direction == TransferDirection::None {
            return None;
        }
        // Flags of fabrics commands are reserved.
        if entry.flags >> 6 != 1 && entry.opcode != FABRICS_OPCODE {
            return Some(Status::INVALID_FIELD);
        }
        match (direction, descriptor.location) {
            _ if bytes == 0 => None,
            (_, DataLocation::Other(_)) | (TransferDirection::ToHost, DataLocation::Capsule { .. }) => {
                Some(Status::SGL_TYPE_INVALID)
            }
            (_, DataLocation::Capsule { offset: 1.. }) => Some(Status::SGL_OFFSET_INVALID),
            _ if bytes > TRANSFER_BYTES_MAX => Some(Status::INVALID_FIELD),
            _ if bytes > ADMIN_IN_CAPSULE_BYTES && !self.is_trusted() => {
                let connected = self.exchange.is_some();
                Some(if connected { Status::AUTHENTICATION_REQUIRED } else { Status::SEQUENCE_ERROR })
            }
            (TransferDirection::ToController, DataLocation::Capsule { .. }) if bytes != in_capsule => {
                Some(Status::DATA_LENGTH_INVALID)
            }
            _ => None,
        }
    }

    /// Adds a command that the transport refuses to the error log, if its host is known.
    fn log_refusal(&self, entry: &SubmissionEntry, status: Status) {
        match &self.state {
            ConnectionState::Admin(association) if self.is_trusted() => association.log_failure(0, entry, status),
            ConnectionState::Io(association, qid) => association.log_failure(*qid, entry, status),
            _ => {}
        }
    }

    /// Allocates memory for the data of waiting commands and requests the data, as far as the limit allows.
    fn begin_transfers(&mut self) {
        while let Some(&(_, _, bytes)) = self.waiting.front() {
            if self.transfer_bytes > 0 && self.transfer_bytes + bytes > TRANSFER_BYTES {
                return;
            }
            let is_first = self.transfers.is_empty();
            let reserved = match held::reserve_transfer(self.budget(), bytes, is_first) {
                Err(_) if !is_first => return,
                reserved => reserved,
            };
            let (completer, entry, bytes) = self.waiting.pop_front().expect("there is a first one");
            let Ok(reserved) = reserved else {
                self.log_refusal(&entry, Status::RESOURCES);
                self.refuse(completer, Status::RESOURCES);
                continue;
            };
            while self.transfers.contains_key(&self.next_tag) {
                self.next_tag = self.next_tag.wrapping_add(1);
            }
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            self.transfer_bytes += bytes;
            self.outgoing.ready_to_transfer(TransferFields::new(completer.cid(), tag, 0, bytes as u32));
            let bytes = vec![0; bytes];
            let transfer = HostTransfer { completer, entry, bytes, reserved, arrived: 0, damaged: false };
            self.transfers.insert(tag, transfer);
        }
    }

    /// Returns the budget of the host's tenant; `None` before the host is connected.
    fn budget(&self) -> Option<&Arc<Budget>> {
        self.state.association().map(|association| &association.tenant().budget)
    }

    fn host_data(&mut self, header: &PduHeader, pdu: &[u8]) -> Result<(), ConnectionEnd> {
        let fatal = |status, detail| ConnectionEnd::Fatal(FatalError::new(status, detail), pdu.to_vec());
        let fields = TransferFields::read_from_bytes(&pdu[8..24]).expect("16 bytes");
        let tag = fields.ttag.get();
        let bytes = fields.bytes.get() as usize;
        if bytes != header.data_bytes {
            return Err(fatal(FatalStatus::Header, 16));
        }
        let Some(mut transfer) = self.transfers.remove(&tag) else { return Err(fatal(FatalStatus::Header, 10)) };
        if transfer.completer.cid() != fields.cccid.get() {
            return Err(fatal(FatalStatus::Header, 8));
        }
        let first = fields.offset.get() as usize;
        if first != transfer.arrived || bytes == 0 || bytes > transfer.bytes.len() - first {
            return Err(fatal(FatalStatus::DataRange, 0));
        }
        let last = first + bytes == transfer.bytes.len();
        if last != (header.flags & FLAG_LAST != 0) {
            return Err(fatal(FatalStatus::Header, 1));
        }
        let whole = self.take_data(header, &mut transfer.bytes[first..first + bytes])?;
        transfer.damaged |= !whole;
        transfer.arrived += bytes;
        if !last {
            self.transfers.insert(tag, transfer);
            return Ok(());
        }
        self.transfer_bytes -= transfer.bytes.len();
        if transfer.damaged {
            self.refuse(transfer.completer, Status::TRANSIENT_TRANSPORT);
        } else {
            let memory = transfer.reserved.into_iter().collect();
            self.execute(transfer.completer, transfer.entry, Some(transfer.bytes), 0, memory)?;
        }
        self.begin_transfers();
        Ok(())
    }

    fn refuse(&self, completer: Completer, status: Status) {
        let entry = CompletionEntry::new(completer.cid(), Err(status));
        completer.complete(entry);
    }

    fn execute(
        &mut self,
        completer: Completer,
        entry: SubmissionEntry,
        data: Option<Vec<u8>>,
        room: usize,
        reserved: Vec<ReservedMemory>,
    ) -> Result<(), ConnectionEnd> {
        let fctype = FabricsCommand::type_of(&entry);
        let of_exchange = fctype.is_some_and(FabricsType::is_authentication);
        if self.exchange.as_ref().is_some_and(|exchange| of_exchange || !exchange.is_authentic()) {
            return self.authenticate(completer, &entry, data.as_deref(), room);
        }
        match &self.state {
            ConnectionState::Initialising => unreachable!("a capsule before the handshake"),
            ConnectionState::Proving(..) => unreachable!("a command of a host that has proved nothing"),
            ConnectionState::Unconnected => return self.connect(completer, &entry, &data.unwrap_or_default()),
            ConnectionState::Admin(association) => {
                let association = association.clone();
                self.admin(&association, completer, &entry, data, room);
            }
            ConnectionState::Io(association, qid) => {
                let (association, qid) = (association.clone(), *qid);
                self.io(association, qid, completer, entry, data, room, reserved);
            }
        }
        Ok(())
    }

    /// Executes a command of I/O queue `qid`, or passes it to a worker.
    #[expect(clippy::too_many_arguments, reason = "a command with its data and its memory")]
    fn io(
        &mut self,
        association: Arc<Association>,
        qid: u16,
        completer: Completer,
        entry: SubmissionEntry,
        data: Option<Vec<u8>>,
        room: usize,
        mut reserved: Vec<ReservedMemory>,
    ) {
        let safe = association.subsystem().options().kill_safe && association.has_written(&entry);
        let place = association.place(&entry, data.as_deref());
        let bytes = data.as_ref().map_or(0, Vec::len) + room;
        let arrived = Instant::now();
        if run_output::is_run_output(&entry) {
            // Its bytes are known later, and count with the next one.
            self.keep_pace(&association, association.fetched.unpaid_bytes());
            return run_output::fetch(&association, qid, completer, entry, room);
        }
        self.keep_pace(&association, bytes);
        if room > ADMIN_IN_CAPSULE_BYTES {
            match association.tenant().budget.reserve(room as u64) {
                Ok(held) => reserved.push(held),
                Err(status) => {
                    association.log_failure(qid, &entry, status);
                    return self.refuse(completer, status);
                }
            }
        }
        if place != CommandPlace::Here || self.shared.waits() {
            // Earlier commands of the batch are answered before this thread waits for workers.
            let passed = self.passed.clone();
            let passed = Some(passed.hold(bytes, || self.end_batch()));
            let memory = CommandMemory::new(passed, reserved);
            let of = association.clone();
            let fetched = association.begin_fetched(&entry, data.as_ref().map_or(0, Vec::len));
            let command = LongCommand { association, qid, completer, entry, data, room, safe, memory, arrived };
            return self.shared.work(place, &of, move || {
                command.run();
                drop(fetched);
            });
        }
        // Old contents of the room never leave: a read that succeeds has filled all of it.
        let mut out = self.outgoing.room(room);
        if entry.opcode != Opcode::READ {
            out[..room].fill(0);
        }
        let done = association.io(qid, &entry, payload(data.as_deref(), &mut out[..room]));
        association.measure(qid, &entry, done.status(), Measured::of(arrived, data.as_deref(), room));
        if safe && done.status().ok() {
            self.unsettled.push(UnsettledWrite { completer, entry: done });
        } else {
            completer.complete_holding(done, out, room, Some(CommandMemory::new(None, reserved)));
        }
    }

    /// Waits until the host's tenant may execute another command that moves `bytes` bytes.
    fn keep_pace(&mut self, association: &Association, bytes: usize) {
        let mut left = association.tenant().pace(self.shared.elapsed(), bytes as u64);
        if !left.is_zero() {
            self.end_batch();
        }
        while !left.is_zero() && association.is_ready() {
            let pause = left.min(PAUSE);
            std::thread::sleep(pause);
            left -= pause;
        }
    }

    /// Executes a command of a host that has to authenticate itself, or does so again.
    fn authenticate(
        &mut self,
        completer: Completer,
        entry: &SubmissionEntry,
        data: Option<&[u8]>,
        room: usize,
    ) -> Result<(), ConnectionEnd> {
        let exchange = self.exchange.as_mut().expect("a queue with authentication");
        let mut out = vec![0; room];
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).expect("the system has random numbers");
        let had_failed = exchange.has_failed();
        let done = exchange.command(entry, payload(data, &mut out), random);
        let authentic = exchange.is_authentic();
        if exchange.has_failed() && !had_failed {
            if let Some(association) = self.state.association() {
                self.shared.tell_refusal(&association.host().hostnqn, "wrong secret");
            }
            self.hold_back_refusal()?;
        }
        if authentic && self.deadline.is_some() {
            self.begin_proven()?;
        } else if !authentic && self.deadline.is_none() {
            self.deadline = Some(Instant::now() + CONNECT_TIME);
        }
        match done {
            Ok(()) => {
                let done = CompletionEntry { cid: completer.cid().into(), ..CompletionEntry::default() };
                completer.complete_with(done, out, room);
            }
            Err(status) => self.refuse(completer, status),
        }
        Ok(())
    }

    /// Begins the service of a host that has proved its identity. Only now the number of its queue is taken.
    fn begin_proven(&mut self) -> Result<(), ConnectionEnd> {
        match std::mem::replace(&mut self.state, ConnectionState::Unconnected) {
            ConnectionState::Proving(association, qid) => {
                let socket = self.stream.try_clone()?;
                // Another connection has become this queue meanwhile, or the association has ended.
                if !self.shared.begin_queue(&association, qid, socket) {
                    return Err(ConnectionEnd::Closed);
                }
                self.state = ConnectionState::Io(association, qid);
            }
            state => {
                if let ConnectionState::Admin(association) = &state {
                    self.shared.prove(association);
                }
                self.state = state;
            }
        }
        self.begin_service();
        Ok(())
    }

    /// Counts a refused login, and waits if there are too many of them. A host that sends something meanwhile, although
    /// it has no answer yet, ends its connection.
    fn hold_back_refusal(&mut self) -> Result<(), ConnectionEnd> {
        let Some(delay) = self.shared.logins().refuse(Instant::now()) else { return Ok(()) };
        self.stream.set_read_timeout(Some(delay))?;
        match self.stream.peek(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            _ => Err(ConnectionEnd::Closed),
        }
    }

    /// Ends the limits on time and memory of a new connection: its host is known. From now on, the association's keep
    /// alive timeout ends a silent connection.
    fn begin_service(&mut self) {
        self.deadline = None;
        self.shared.no_longer_half_open(self.number);
        drop(self.stream.set_read_timeout(None));
        let rest = self.buffer[self.start..self.end].to_vec();
        self.buffer = vec![0; BUFFER_BYTES.1];
        (self.start, self.end) = (0, rest.len());
        self.buffer[..rest.len()].copy_from_slice(&rest);
    }

    fn admin(
        &self,
        association: &Arc<Association>,
        completer: Completer,
        entry: &SubmissionEntry,
        data: Option<Vec<u8>>,
        room: usize,
    ) {
        let mut out = vec![0; room];
        let cid = completer.cid();
        // The completion of an event request may be sent before the association has returned from the request.
        let is_event = entry.opcode == AdminOpcode::AsyncEvent as u8;
        if is_event {
            let outgoing = completer.outgoing();
            self.held.lock().insert(cid, completer);
            match association.admin(entry, Payload::None) {
                AdminAnswer::Held => {}
                AdminAnswer::Done(done) => {
                    if let Some(completer) = self.held.lock().remove(&cid) {
                        completer.complete(done);
                    }
                }
            }
            drop(outgoing);
            return;
        }
        let begun = Instant::now();
        match association.admin(entry, payload(data.as_deref(), &mut out)) {
            AdminAnswer::Done(done) => {
                association.measure(0, entry, done.status(), Measured::of(begun, data.as_deref(), room));
                completer.complete_with(done, out, room);
            }
            AdminAnswer::Held => unreachable!("only events are held"),
        }
    }

    /// Settles the writes of the batch (see [`Subsystem::settle`]), and sends their completions and all other buffered
    /// PDUs.
    fn end_batch(&mut self) {
        if !self.unsettled.is_empty() {
            let settled = self.subsystem().settle();
            for UnsettledWrite { completer, mut entry } in self.unsettled.drain(..) {
                if let Err(status) = settled {
                    entry.set_status(status);
                }
                completer.complete(entry);
            }
        }
        self.outgoing.flush();
    }

    /// Executes a connect command, which makes the connection a queue of an association.
    fn connect(&mut self, completer: Completer, entry: &SubmissionEntry, data: &[u8]) -> Result<(), ConnectionEnd> {
        let mut done = CompletionEntry { cid: completer.cid().into(), ..CompletionEntry::default() };
        let made = match FabricsCommand::decode(entry) {
            Ok(FabricsCommand::Connect(fields)) => self.connect_to(&fields, data),
            _ => Err((Status::SEQUENCE_ERROR, 0)),
        };
        match made {
            Ok((state, queue, cntlid)) => {
                if let ConnectionState::Admin(association) | ConnectionState::Proving(association, _) = &state {
                    self.exchange = self.subsystem().exchange(association.host());
                }
                let required = if self.exchange.is_some() { CONNECT_AUTHENTICATE } else { 0 };
                done.dw0.set(u32::from(cntlid) | required);
                self.outgoing.set_queue(queue, completer.cid());
                self.shared.watch_queue(self.number, &state, &self.outgoing);
                completer.complete(done);
                let is_anonymous = matches!(&state, ConnectionState::Admin(found) if found.is_anonymous());
                if self.exchange.is_some() {
                    self.deadline = Some(Instant::now() + CONNECT_TIME);
                } else if is_anonymous {
                    self.deadline = Some(Instant::now() + DISCOVERY_TIME);
                } else {
                    self.begin_service();
                }
                if let ConnectionState::Admin(association) = &state {
                    let held = self.held.clone();
                    association.set_notifier(move |event| {
                        let found = held.lock().remove(&event.cid.get());
                        if let Some(completer) = found {
                            let outgoing = completer.outgoing();
                            completer.complete(event);
                            outgoing.flush_soon();
                        }
                    });
                }
                self.state = state;
            }
            Err((status, dw0)) => {
                if status == Status::CONNECT_HOST {
                    self.shared.tell_refusal(&claimed_host(data), "unknown host");
                    self.hold_back_refusal()?;
                }
                done.dw0.set(dw0);
                done.set_status(status);
                completer.complete(done);
            }
        }
        Ok(())
    }

    fn connect_to(
        &self,
        fields: &ConnectFields,
        data: &[u8],
    ) -> Result<(ConnectionState, QueuePair, u16), (Status, u32)> {
        /// Offsets of connect parameters, as a refused connect reports them: in the entry or, with bit 16, in the data.
        const QID: u32 = 42;
        const SQSIZE: u32 = 44;
        const CNTLID: u32 = 1 << 16 | 16;
        let data = ConnectData::read_from_bytes(data).map_err(|_| (Status::DATA_LENGTH_INVALID, 0))?;
        if fields.recfmt != 0 {
            return Err((Status::CONNECT_FORMAT, 0));
        }
        if fields.sqsize_z == 0 || fields.sqsize_z >= QUEUE_ENTRIES_MAX {
            return Err((Status::CONNECT_PARAMETER, SQSIZE));
        }
        let text = |field: &[u8; 256], at: u32| {
            nandarray_nvme_spec::text(field).map(str::to_owned).map_err(|_| (Status::CONNECT_PARAMETER, 1 << 16 | at))
        };
        let (subnqn, hostnqn) = (text(&data.subnqn, 256)?, text(&data.hostnqn, 512)?);
        let queue = QueuePair::new(fields.qid, u32::from(fields.sqsize_z) + 1, fields.has_flow_control());
        if !self.stream.has_names(&hostnqn, &subnqn) {
            return Err((Status::CONNECT_HOST, 0));
        }
        let socket = self.stream.try_clone().map_err(|_| (Status::CONNECT_BUSY, 0))?;
        if fields.qid == 0 {
            if data.cntlid.get() != CNTLID_ANY {
                return Err((Status::CONNECT_PARAMETER, CNTLID));
            }
            let subnqn = self.stream.subsystem_name(subnqn, self.subsystem().nqn());
            let host = HostIdentity {
                hostid: data.hostid,
                hostnqn,
                subnqn,
                local: self.stream.local(),
                peer: self.stream.place(),
            };
            let association = self.subsystem().associate(host, fields.kato_ms)?;
            self.stream.check_key(self.subsystem())?;
            if !self.shared.leaves_room(&association) {
                return Err((Status::CONNECT_BUSY, 0));
            }
            let is_proven = self.subsystem().exchange(association.host()).is_none();
            self.shared.begin_association(&association, socket, is_proven);
            let cntlid = association.cntlid();
            return Ok((ConnectionState::Admin(association), queue, cntlid));
        }
        let association = self.subsystem().association(data.cntlid.get()).ok_or((Status::CONNECT_PARAMETER, CNTLID))?;
        association.check_queue(fields.qid, &hostnqn).map_err(|status| (status, QID))?;
        self.stream.check_key(self.subsystem())?;
        if !self.shared.leaves_room(&association) {
            return Err((Status::CONNECT_BUSY, 0));
        }
        let cntlid = association.cntlid();
        let has_to_prove = self.subsystem().exchange(association.host()).is_some();
        let has_place = if has_to_prove {
            self.shared.has_place(&association, fields.qid)
        } else {
            self.shared.begin_queue(&association, fields.qid, socket)
        };
        if !has_place {
            return Err((Status::SEQUENCE_ERROR, 0));
        }
        let made = if has_to_prove { ConnectionState::Proving } else { ConnectionState::Io };
        Ok((made(association, fields.qid), queue, cntlid))
    }
}

/// Returns the name of the host that a connect command has, which need not be true.
fn claimed_host(data: &[u8]) -> String {
    let data = ConnectData::read_from_bytes(data).ok();
    let name = data.as_ref().and_then(|data| nandarray_nvme_spec::text(&data.hostnqn).ok());
    name.unwrap_or_default().to_owned()
}
