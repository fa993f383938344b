//! Array requests: what hosts ask of a store beside blocks and boxes, as text with data behind it.
//!
//! Names and attributes, creating, renaming, resizing, appending, elements by steps, lists and points, and pipelines of
//! programs take or give more than a submission entry holds, and fail with reasons that a status does not tell. A host
//! sends a [`Message`] in parts with *Array Request* (opcode 11h of command set 30h), which is executed when it is
//! whole, and fetches the reply, another message, with *Array Reply* (12h). The reply of a request that failed has the
//! kind of the error and its text.
//!
//! This file keeps messages that have not arrived and replies that were not fetched; the requests themselves are in
//! `arrays` (what they say and do) and `offload` (programs).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nandarray_nvme_spec::{ReplyPart, RequestPart, Status};
use nandarray_runtime::Error;
use parking_lot::Mutex;
use serde::Serialize;

use crate::arrays::{self, ArrayRequest};
use crate::budget::{Budget, ReservedMemory};
use crate::payload::Payload;
use crate::programs::Surroundings;

/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: u32 = 80 << 20;
/// Maximum size of the parts of requests that are kept for one host, in bytes, and of the replies with which a further
/// request is refused.
pub(crate) const HELD_BYTES_MAX: usize = 256 << 20;
/// Maximum size of a request's text, in bytes: it takes many times that in memory once it is parsed.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Bytes that are reserved for a reply's text before its request is executed.
const REPLY_TEXT_BYTES: u64 = 64 << 10;
/// Bytes of memory that a byte of a request's text may take once it is parsed.
const PARSED_FACTOR: u64 = 16;
/// Time after which a request of which no further part arrives, or a reply that is not fetched, is forgotten.
const STALE_TIME: Duration = Duration::from_secs(60);
/// Maximum number of requests that have begun to arrive, and of replies, each.
const HELD_MAX: usize = 256;
/// Bytes in front of the text: its length in 4 bytes, and 4 reserved ones.
const HEADER_BYTES: usize = 8;

/// Text (JSON) with data behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) data: &'a [u8],
}

impl<'a> Message<'a> {
    fn split(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [a, b, c, d, ..] = *header;
        let (text, data) = rest.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize)?;
        Some(Self { text, data })
    }

    /// Returns the bytes of a message.
    pub(crate) fn join(text: &impl Serialize, data: &[u8]) -> Vec<u8> {
        let text = serde_json::to_vec(text).expect("a reply is text");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + text.len() + data.len());
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&text);
        bytes.extend_from_slice(data);
        assert_eq!(bytes.len(), HEADER_BYTES + text.len() + data.len(), "a message is header, text and data");
        bytes
    }
}

/// The reason why a request failed, as a reply tells it.
#[derive(Debug, Serialize)]
struct RequestRefusal {
    /// Kind of the error ([`nandarray::KINDS`], [`nandarray_runtime::KINDS`]).
    kind: &'static str,
    text: String,
    /// Place of a failed program's error; `None` for other errors.
    failed: Option<FailedAt>,
}

#[derive(Debug, Serialize)]
struct FailedAt {
    stage: usize,
    pc: Option<u64>,
    caller: Option<u64>,
    task: Option<u64>,
    noted: Option<[i64; 2]>,
}

impl RequestRefusal {
    fn new(error: &Error) -> Self {
        let failed = match error {
            Error::Execution(failed) => Some(FailedAt {
                stage: failed.stage,
                pc: failed.error.pc(),
                caller: failed.error.caller(),
                task: failed.error.task(),
                noted: failed.error.noted().filter(|noted| *noted != [0; 2]),
            }),
            _ => None,
        };
        Self { kind: error.kind(), text: error.to_string(), failed }
    }
}

#[derive(Debug, Default)]
struct HeldRequests {
    /// Requests of which some parts have arrived, by the host's tag.
    arriving: BTreeMap<u32, Arriving>,
    /// Replies that were not fetched to their end, by handle.
    /// Each with the time at which the transport saw it first.
    replies: BTreeMap<u32, (Arc<KeptReply>, Option<Duration>)>,
    /// Handle of the last reply.
    last: u32,
    arriving_bytes: usize,
    reply_bytes: usize,
}

#[derive(Debug)]
struct Arriving {
    size: u32,
    bytes: Vec<u8>,
    held: ReservedMemory,
    /// When the transport saw it first with the parts that it has.
    seen: Option<Duration>,
}

/// A request that has arrived, with its memory in the budget.
struct WholeRequest {
    bytes: Vec<u8>,
    _held: ReservedMemory,
}

#[derive(Debug)]
struct KeptReply {
    bytes: Vec<u8>,
    _held: ReservedMemory,
}

/// The requests and replies of one host.
#[derive(Debug)]
pub(crate) struct ArrayRequests {
    held: Mutex<HeldRequests>,
    /// The budget of the host's tenant.
    budget: Arc<Budget>,
}

impl HeldRequests {
    /// Checks that the bytes that count for limits are those that are kept.
    fn check(&self) {
        let arriving: usize = self.arriving.values().map(|one| one.size as usize).sum();
        let replies: usize = self.replies.values().map(|(reply, _)| reply.bytes.len()).sum();
        assert_eq!((self.arriving_bytes, self.reply_bytes), (arriving, replies), "bytes of requests and of replies");
        assert!(arriving <= HELD_BYTES_MAX, "{arriving} bytes of requests");
        assert!(self.arriving.len() <= HELD_MAX, "{} requests", self.arriving.len());
        assert!(self.arriving.values().all(|one| one.bytes.len() < one.size as usize), "a whole request waits");
    }
}

impl ArrayRequests {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { held: Mutex::default(), budget }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        let mut held = self.held.lock();
        *held = HeldRequests { last: held.last, ..HeldRequests::default() };
    }

    /// Forgets requests and replies that the host has left alone for [`STALE_TIME`]; `now` is a time since the
    /// transport began.
    pub(crate) fn end_stale(&self, now: Duration) {
        let is_stale = |seen: &mut Option<Duration>| now.saturating_sub(*seen.get_or_insert(now)) > STALE_TIME;
        let mut held = self.held.lock();
        held.arriving.retain(|_, one| !is_stale(&mut one.seen));
        held.replies.retain(|_, (_, seen)| !is_stale(seen));
        held.arriving_bytes = held.arriving.values().map(|one| one.size as usize).sum();
        held.reply_bytes = held.replies.values().map(|(reply, _)| reply.bytes.len()).sum();
        held.check();
    }

    /// Executes Array Request: takes a part, and executes the request once it is whole. Returns the handle of the reply
    /// and its size in bytes; zeroes if parts are missing.
    pub(crate) fn request(
        &self,
        at: &Surroundings<'_>,
        part: RequestPart,
        payload: &Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        let Some(whole) = self.take(part, payload.source()?)? else { return Ok((0, 0)) };
        let message = Message::split(&whole.bytes).ok_or(Status::INVALID_FIELD)?;
        let _parsed = self.budget.reserve(PARSED_FACTOR * message.text.len() as u64)?;
        // Before it is executed: a request that has changed the store must have its reply.
        self.check_room()?;
        let request = checked(at, part, message);
        if let Ok(request) = &request {
            // Arrays that the host may not know of are none to it, reserved or not.
            for (array, what) in request.uses(at.runtime.device()) {
                if arrays::is_known(at, array) {
                    at.reserved.check(array, what)?;
                }
            }
        }
        let data_bytes = request.as_ref().map_or(0, |request| request.reply_bytes(at.runtime.device(), message.data));
        let plan_bytes = request.as_ref().map_or(0, |request| request.plan_bytes(message.data));
        let _plan = self.budget.reserve(plan_bytes)?;
        let held = self.budget.reserve(REPLY_TEXT_BYTES + data_bytes)?;
        let reply = request.and_then(|request| arrays::execute(at, request, message.data)).unwrap_or_else(|error| {
            let mut refusal = RequestRefusal::new(&error);
            refusal.text = at.running.fail(refusal.text);
            if at.running.stopped().is_some() {
                (refusal.kind, refusal.failed) = ("cancelled", None);
            }
            Message::join(&serde_json::json!({ "error": refusal }), &[])
        });
        drop(whole);
        Ok(self.keep(reply, held))
    }

    /// Executes Array Reply: gives a part of a reply, which is forgotten with its last byte.
    pub(crate) fn reply(&self, part: ReplyPart, payload: &mut Payload<'_>) -> Result<(u32, u32), Status> {
        let (handle, offset) = (part.handle, u64::from(part.offset));
        let found = self.held.lock().replies.get(&handle).map(|(reply, _)| reply.clone()).ok_or(Status::INVALID_BOX)?;
        let room = payload.room()?.len() as u64;
        payload.give(&found.bytes, offset)?;
        if offset + room >= found.bytes.len() as u64 {
            let mut held = self.held.lock();
            if let Some((reply, _)) = held.replies.remove(&handle) {
                held.reply_bytes -= reply.bytes.len();
            }
            held.check();
        }
        Ok((0, 0))
    }

    /// Takes a part of a request; returns the request if it is whole.
    fn take(&self, place: RequestPart, part: &[u8]) -> Result<Option<WholeRequest>, Status> {
        let RequestPart { tag, size, offset, .. } = place;
        if size > REQUEST_BYTES_MAX || offset as usize + part.len() > size as usize {
            return Err(Status::INVALID_FIELD);
        }
        if offset == 0 && part.len() == size as usize {
            let held = self.budget.reserve(size.into())?;
            return Ok(Some(WholeRequest { bytes: part.to_vec(), _held: held }));
        }
        let mut held = self.held.lock();
        if offset == 0 {
            let before = held.arriving.remove(&tag).map_or(0, |one| one.size as usize);
            held.arriving_bytes -= before;
            if held.arriving.len() >= HELD_MAX || held.arriving_bytes + size as usize > HELD_BYTES_MAX {
                return Err(Status::RESOURCES);
            }
            let reserved = self.budget.reserve(size.into())?;
            held.arriving_bytes += size as usize;
            held.arriving.insert(tag, Arriving { size, bytes: Vec::new(), held: reserved, seen: None });
        }
        let arriving = held.arriving.get_mut(&tag).ok_or(Status::SEQUENCE_ERROR)?;
        if arriving.size != size || arriving.bytes.len() != offset as usize {
            return Err(Status::SEQUENCE_ERROR);
        }
        arriving.bytes.extend_from_slice(part);
        arriving.seen = None;
        if arriving.bytes.len() < size as usize {
            return Ok(None);
        }
        held.arriving_bytes -= size as usize;
        Ok(held.arriving.remove(&tag).map(|one| WholeRequest { bytes: one.bytes, _held: one.held }))
    }

    /// Refuses a request while its host does not fetch the replies of those before.
    fn check_room(&self) -> Result<(), Status> {
        let held = self.held.lock();
        let is_full = held.replies.len() >= HELD_MAX || held.reply_bytes > HELD_BYTES_MAX;
        if is_full { Err(Status::RESOURCES) } else { Ok(()) }
    }

    /// Keeps a reply; returns its handle and its size in bytes.
    fn keep(&self, reply: Vec<u8>, mut reserved: ReservedMemory) -> (u32, u32) {
        reserved.set(reply.len() as u64);
        let size = u32::try_from(reply.len()).expect("a reply of less than 4 GiB");
        let mut held = self.held.lock();
        held.reply_bytes += reply.len();
        let next = |handle: u32| handle.wrapping_add(1);
        let mut handle = next(held.last);
        while held.replies.contains_key(&handle) {
            handle = next(handle);
        }
        held.last = handle;
        let before = held.replies.insert(handle, (Arc::new(KeptReply { bytes: reply, _held: reserved }), None));
        assert!(before.is_none(), "reply {handle} waits twice");
        held.check();
        (handle, size)
    }
}

/// Returns a request that is whole, and that its command and the subsystem let change the store or run programs.
fn checked(at: &Surroundings<'_>, part: RequestPart, message: Message<'_>) -> Result<ArrayRequest, Error> {
    if message.text.len() > TEXT_BYTES_MAX {
        let bytes = message.text.len();
        return Err(arrays::invalid(format!(
            "a text of {bytes} bytes; a request's must have at most {TEXT_BYTES_MAX}"
        )));
    }
    let request = ArrayRequest::parse(message.text)?;
    if request.changes() && !(part.changes && at.writable) {
        return Err(nandarray::Error::ReadOnly.into());
    }
    if request.runs_programs() && !part.programs {
        return Err(arrays::invalid("a request that runs programs must say so (dword 11, bit 1)".to_owned()));
    }
    Ok(request)
}
