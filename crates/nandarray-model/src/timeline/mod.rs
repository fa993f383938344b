//! Timelines: writes what was busy when as a trace that Perfetto opens (ui.perfetto.dev, `.pftrace`).
//!
//! A run's device is a process; under it are tracks for host, link, controller, and for every channel its bus and its
//! dies. A track is made when it is first busy. Things that overlap on one track (requests, pipelined stages) lie in as
//! many lanes as they need, which Perfetto draws as one. Perfetto counts nanoseconds: times are rounded down to them,
//! so what follows something in picoseconds does so there.
//!
//! The file is written as the run goes; in memory are the lanes alone. `proto` has the messages, of which only those
//! fields exist here that are written.

pub mod proto;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;

use crate::describe::FlashGeometry;
use crate::flash::OpCause;
use crate::spans::{Span, Spans, Track};
use nandarray_sim::Ps;
use proto::{
    DebugAnnotation, EventCategory, EventName, InternedData, ProcessDescriptor, SliceType, TracePacket,
    TrackDescriptor, TrackEvent,
};

/// Lanes of one track; what overlaps more than this is left out and counted.
const LANES_MAX: usize = 4096;
/// Of the process, and above which tracks are numbered.
const ROOT: u64 = 1;
/// The one sequence of packets.
const SEQUENCE: u32 = 1;

/// What to put into a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// At most so many spans; about 50 bytes each.
    pub spans_max: u64,
    /// Nothing that ends before.
    pub from: Ps,
    /// Nothing that begins at or after.
    pub until: Ps,
}

impl Default for TimelineOptions {
    /// Ten million spans, half a gigabyte, from the beginning.
    fn default() -> Self {
        Self { spans_max: 10_000_000, from: Ps::ZERO, until: Ps::MAX }
    }
}

/// What came of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineEnd {
    /// Spans written.
    pub written: u64,
    /// Spans left out: too many, or too many at once.
    pub left_out: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A timeline that is being written.
pub struct Timeline(Arc<Mutex<Writer>>);

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").finish_non_exhaustive()
    }
}

impl Timeline {
    /// Makes a file, over one that is there, for a device called `name`.
    ///
    /// # Errors
    /// If the file cannot be made or written.
    pub fn create(path: &Path, name: &str, geometry: &FlashGeometry, options: TimelineOptions) -> io::Result<Self> {
        let file = std::fs::File::create(path)?;
        Self::new(Box::new(BufWriter::with_capacity(1 << 20, file)), name, geometry, options)
    }

    /// Writes to anything.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn new(
        out: Box<dyn Write + Send>,
        name: &str,
        geometry: &FlashGeometry,
        options: TimelineOptions,
    ) -> io::Result<Self> {
        let mut writer = Writer {
            out,
            error: None,
            packet: Vec::new(),
            end: TimelineEnd::default(),
            options,
            dies_per_channel: geometry.ways * geometry.dies,
            dies_per_chip: geometry.dies,
            groups: BTreeMap::new(),
            tracks: BTreeMap::new(),
            uuids: ROOT,
            names: Vec::new(),
            causes: 0,
        };
        let process = ProcessDescriptor { pid: Some(1), process_name: Some(name.to_owned()) };
        writer.write(&TracePacket {
            // Names are numbered from here on.
            sequence_flags: Some(proto::INCREMENTAL_STATE_CLEARED),
            trusted_packet_sequence_id: Some(SEQUENCE),
            first_packet_on_sequence: Some(true),
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(ROOT),
                process: Some(process),
                child_ordering: Some(proto::CHILDREN_BY_RANK),
                ..TrackDescriptor::default()
            }),
            interned_data: Some(InternedData {
                debug_annotation_names: vec![EventName { iid: Some(1), name: Some("number".into()) }],
                ..InternedData::default()
            }),
            ..TracePacket::default()
        });
        match writer.error.take() {
            Some(error) => Err(error),
            None => Ok(Self(Arc::new(Mutex::new(writer)))),
        }
    }

    /// Takes spans for it; any number of takers may be out.
    pub fn spans(&self) -> Box<dyn Spans> {
        Box::new(Taker(self.0.clone()))
    }

    /// Writes what is buffered. Spans that come later are left out.
    ///
    /// # Errors
    /// The first that occurred while writing; the file then ends there.
    pub fn finish(self) -> io::Result<TimelineEnd> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = writer.error.take() {
            return Err(error);
        }
        writer.out.flush()?;
        writer.options.until = Ps::ZERO;
        Ok(writer.end)
    }
}

struct Taker(Arc<Mutex<Writer>>);

impl nandarray_sim::Spans<Span> for Taker {
    fn span(&mut self, span: Span) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).span(span);
    }
}

/// Tracks are drawn in groups, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Requests,
    Host,
    Link,
    Controller,
    Channel(u32),
}

/// A track's lanes: until when each is taken.
struct Lanes {
    name: String,
    parent: u64,
    rank: i32,
    lanes: Vec<(u64, Ps)>,
}

struct Writer {
    out: Box<dyn Write + Send>,
    error: Option<io::Error>,
    packet: Vec<u8>,
    end: TimelineEnd,
    options: TimelineOptions,
    dies_per_channel: u32,
    dies_per_chip: u32,
    groups: BTreeMap<Group, u64>,
    tracks: BTreeMap<Track, Lanes>,
    uuids: u64,
    names: Vec<&'static str>,
    /// Which causes were named, a bit each.
    causes: u8,
}

impl Writer {
    /// Appends a packet: field 1 of the file's message, with its length.
    fn write(&mut self, packet: &TracePacket) {
        if self.error.is_some() {
            return;
        }
        self.packet.clear();
        self.packet.push(0x0a);
        packet.encode_length_delimited(&mut self.packet).expect("a vector takes any length");
        match self.out.write_all(&self.packet) {
            Ok(()) => self.end.bytes += self.packet.len() as u64,
            Err(error) => self.error = Some(error),
        }
    }

    fn span(&mut self, span: Span) {
        if span.end < self.options.from || span.start >= self.options.until {
            return;
        }
        if self.end.written >= self.options.spans_max {
            self.end.left_out += 1;
            return;
        }
        let Some(track_uuid) = self.lane(&span) else {
            self.end.left_out += 1;
            return;
        };
        self.end.written += 1;
        let (name_iid, category_iid, interned_data) = self.names(&span);
        let packet = |at: Ps, event| TracePacket {
            timestamp: Some(at.0 / 1_000),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(proto::NEEDS_INCREMENTAL_STATE),
            track_event: Some(event),
            ..TracePacket::default()
        };
        let mut begin = packet(
            span.start,
            TrackEvent {
                r#type: Some(SliceType::Begin as i32),
                track_uuid: Some(track_uuid),
                name_iid: Some(name_iid),
                category_iids: vec![category_iid],
                debug_annotations: vec![DebugAnnotation { name_iid: Some(1), uint_value: Some(span.detail) }],
            },
        );
        begin.interned_data = interned_data;
        self.write(&begin);
        let end =
            TrackEvent { r#type: Some(SliceType::End as i32), track_uuid: Some(track_uuid), ..TrackEvent::default() };
        self.write(&packet(span.end, end));
    }

    /// Numbers of the span's name and cause, and what must be said about them the first time.
    fn names(&mut self, span: &Span) -> (u64, u64, Option<InternedData>) {
        let mut interned = InternedData::default();
        let known = self.names.iter().position(|&name| name == span.what);
        let name = known.unwrap_or_else(|| {
            self.names.push(span.what);
            let iid = Some(self.names.len() as u64);
            interned.event_names.push(EventName { iid, name: Some(span.what.into()) });
            self.names.len() - 1
        });
        let cause = span.cause as u8;
        if self.causes >> cause & 1 == 0 {
            self.causes |= 1 << cause;
            let category = EventCategory { iid: Some(u64::from(cause) + 1), name: Some(cause_name(span.cause).into()) };
            interned.event_categories.push(category);
        }
        let new = !interned.event_names.is_empty() || !interned.event_categories.is_empty();
        (name as u64 + 1, u64::from(cause) + 1, new.then_some(interned))
    }

    fn uuid(&mut self) -> u64 {
        self.uuids += 1;
        self.uuids
    }

    /// The lane that a span goes to, made if there is none free.
    fn lane(&mut self, span: &Span) -> Option<u64> {
        if !self.tracks.contains_key(&span.track) {
            let (group, rank, name) = self.place(span.track);
            let parent = self.group(group);
            self.tracks.insert(span.track, Lanes { name, parent, rank, lanes: Vec::new() });
        }
        let lanes = self.tracks.get_mut(&span.track).expect("it was made");
        if let Some(lane) = lanes.lanes.iter_mut().find(|lane| lane.1 <= span.start) {
            lane.1 = span.end;
            return Some(lane.0);
        }
        if lanes.lanes.len() == LANES_MAX {
            return None;
        }
        let uuid = self.uuids + 1;
        lanes.lanes.push((uuid, span.end));
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(lanes.name.clone()),
            parent_uuid: Some(lanes.parent),
            sibling_order_rank: Some(lanes.rank),
            ..TrackDescriptor::default()
        };
        self.uuids = uuid;
        self.describe(descriptor);
        Some(uuid)
    }

    fn describe(&mut self, descriptor: TrackDescriptor) {
        self.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }

    fn group(&mut self, group: Group) -> u64 {
        if let Some(&uuid) = self.groups.get(&group) {
            return uuid;
        }
        let uuid = self.uuid();
        let (rank, name) = match group {
            Group::Requests => (0, "requests".to_owned()),
            Group::Host => (1, "host".to_owned()),
            Group::Link => (2, "link".to_owned()),
            Group::Controller => (3, "controller".to_owned()),
            Group::Channel(n) => (4 + n as i32, format!("channel {n}")),
        };
        self.groups.insert(group, uuid);
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid: Some(ROOT),
            sibling_order_rank: Some(rank),
            child_ordering: Some(proto::CHILDREN_BY_RANK),
            ..TrackDescriptor::default()
        });
        uuid
    }

    /// Where a track belongs, its place there, and what it is called.
    fn place(&self, track: Track) -> (Group, i32, String) {
        match track {
            Track::Request(n) => (Group::Requests, n as i32, format!("queue {n}")),
            Track::HostCore(n) => (Group::Host, n as i32, format!("host core {n}")),
            Track::LinkDown => (Group::Link, 0, "to the device".into()),
            Track::LinkUp => (Group::Link, 1, "to the host".into()),
            Track::Core(n) => (Group::Controller, n as i32, format!("core {n}")),
            Track::Stage(n) => {
                let stage = ["command handler", "translator", "allocator", "assembler", "channel handlers"];
                let name = stage.get(n as usize).map_or_else(|| format!("stage {n}"), |&name| name.to_owned());
                (Group::Controller, 1_000 + n as i32, name)
            }
            Track::Dram => (Group::Controller, 2_000, "DRAM".into()),
            Track::Channel(n) => (Group::Channel(n), 0, "bus".into()),
            Track::Die(n) => {
                let within = n % self.dies_per_channel;
                let (way, die) = (within / self.dies_per_chip, within % self.dies_per_chip);
                (Group::Channel(n / self.dies_per_channel), 1 + within as i32, format!("way {way} die {die}"))
            }
        }
    }
}

/// A cause, in a word.
fn cause_name(cause: OpCause) -> &'static str {
    match cause {
        OpCause::Host => "host",
        OpCause::Map => "map",
        OpCause::Gc => "gc",
        OpCause::Wear => "wear",
    }
}

#[cfg(test)]
mod tests;
