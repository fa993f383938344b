//! Timelines: busy spans written as a trace that Perfetto opens (ui.perfetto.dev, `.pftrace`).
//!
//! A run's device is a process in the trace; under it are tracks for host, link and controller, and for every channel
//! its bus and its dies. A track is created when it is first busy. Spans that overlap on one track (requests,
//! pipelined stages) are put into several lanes, which Perfetto draws as one track. Perfetto counts nanoseconds: times
//! are rounded down, which keeps their order.
//!
//! The file is written during the run, and only the lanes are kept in memory. `proto` defines the messages, with only
//! those fields that are written.

pub mod proto;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;

use crate::describe::FlashGeometry;
use crate::flash::OpCause;
use crate::spans::{DeviceSpan, DeviceSpanSink, Track};
use nandarray_sim::Ps;
use proto::{
    DebugAnnotation, EventCategory, EventName, InternedData, ProcessDescriptor, SliceType, TracePacket,
    TrackDescriptor, TrackEvent,
};

/// Maximum number of lanes of one track, which show spans that overlap in time; further spans are left out and counted.
const LANES_MAX: usize = 4096;
/// The uuid of the process's track; other tracks have the numbers that follow.
const ROOT: u64 = 1;
/// The id of the trace's only sequence of packets.
const SEQUENCE: u32 = 1;

/// Limits of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// Maximum number of spans that are written; each takes about 50 bytes.
    pub spans_max: u64,
    /// Spans that end before this time are left out.
    pub from: Ps,
    /// Spans that begin at or after this time are left out.
    pub until: Ps,
}

impl Default for TimelineOptions {
    /// Allows ten million spans (about half a gigabyte), from the beginning of the run on.
    fn default() -> Self {
        Self { spans_max: 10_000_000, from: Ps::ZERO, until: Ps::MAX }
    }
}

/// Counts of a finished timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineEnd {
    /// Number of spans written.
    pub written: u64,
    /// Number of spans left out: beyond `spans_max`, or too many at once on a track.
    pub left_out: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// A timeline that is being written; clones write to the same file.
pub struct Timeline(Arc<Mutex<TimelineWriter>>);

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").finish_non_exhaustive()
    }
}

impl Timeline {
    /// Creates a timeline file, or replaces it, for a device named `name`.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path, name: &str, geometry: &FlashGeometry, options: TimelineOptions) -> io::Result<Self> {
        let file = std::fs::File::create(path)?;
        Self::new(Box::new(BufWriter::with_capacity(1 << 20, file)), name, geometry, options)
    }

    /// Writes a timeline to any writer, for a device named `name`.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(
        out: Box<dyn Write + Send>,
        name: &str,
        geometry: &FlashGeometry,
        options: TimelineOptions,
    ) -> io::Result<Self> {
        let mut writer = TimelineWriter {
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
            // Names are numbered from this packet on.
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

    /// Returns a sink that writes spans to this timeline; there may be several sinks.
    pub fn spans(&self) -> Box<dyn DeviceSpanSink> {
        Box::new(TimelineSpans(self.0.clone()))
    }

    /// Writes all buffered bytes and closes the timeline: later spans are left out.
    ///
    /// # Errors
    /// The first error that occurred while writing; the file is incomplete then.
    pub fn finish(self) -> io::Result<TimelineEnd> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Also after an error: the file is not continued behind a gap.
        writer.options.until = Ps::ZERO;
        if let Some(error) = writer.error.take() {
            return Err(error);
        }
        writer.out.flush()?;
        Ok(writer.end)
    }
}

struct TimelineSpans(Arc<Mutex<TimelineWriter>>);

impl nandarray_sim::SpanSink<DeviceSpan> for TimelineSpans {
    fn span(&mut self, span: DeviceSpan) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).span(span);
    }
}

/// A group of tracks; groups are drawn in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrackGroup {
    Requests,
    Host,
    Link,
    Controller,
    Compute,
    Channel(u32),
}

/// A track with its lanes, which show spans that overlap in time: the uuid of each lane, and the time until which it is
/// busy.
struct TrackLanes {
    name: String,
    parent: u64,
    rank: i32,
    lanes: Vec<(u64, Ps)>,
}

struct TimelineWriter {
    out: Box<dyn Write + Send>,
    error: Option<io::Error>,
    packet: Vec<u8>,
    end: TimelineEnd,
    options: TimelineOptions,
    dies_per_channel: u32,
    dies_per_chip: u32,
    groups: BTreeMap<TrackGroup, u64>,
    tracks: BTreeMap<Track, TrackLanes>,
    uuids: u64,
    names: Vec<&'static str>,
    /// Bit mask of the causes whose names were written.
    causes: u8,
}

impl TimelineWriter {
    /// Appends a packet to the file: field 1 of the file's message, with its length.
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

    fn span(&mut self, span: DeviceSpan) {
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

    /// Returns the numbers of a span's name and cause, and the message that defines those used for the first time.
    fn names(&mut self, span: &DeviceSpan) -> (u64, u64, Option<InternedData>) {
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

    /// Returns the uuid of the lane that shows a span: one of its track that is free at that time, or a new one; `None`
    /// if the track has too many.
    fn lane(&mut self, span: &DeviceSpan) -> Option<u64> {
        if !self.tracks.contains_key(&span.track) {
            let (group, rank, name) = self.place(span.track);
            let parent = self.group(group);
            self.tracks.insert(span.track, TrackLanes { name, parent, rank, lanes: Vec::new() });
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

    fn group(&mut self, group: TrackGroup) -> u64 {
        if let Some(&uuid) = self.groups.get(&group) {
            return uuid;
        }
        let uuid = self.uuid();
        let (rank, name) = match group {
            TrackGroup::Requests => (0, "requests".to_owned()),
            TrackGroup::Host => (1, "host".to_owned()),
            TrackGroup::Link => (2, "link".to_owned()),
            TrackGroup::Controller => (3, "controller".to_owned()),
            TrackGroup::Compute => (4, "compute cores".to_owned()),
            TrackGroup::Channel(n) => (5 + n as i32, format!("channel {n}")),
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

    /// Returns a track's group, its rank within the group, and its name.
    fn place(&self, track: Track) -> (TrackGroup, i32, String) {
        match track {
            Track::Request(n) => (TrackGroup::Requests, n as i32, format!("queue {n}")),
            Track::HostCore(n) => (TrackGroup::Host, n as i32, format!("host core {n}")),
            Track::LinkDown => (TrackGroup::Link, 0, "to the device".into()),
            Track::LinkUp => (TrackGroup::Link, 1, "to the host".into()),
            Track::Core(n) => (TrackGroup::Controller, n as i32, format!("core {n}")),
            Track::Stage(n) => {
                let stage = ["command handler", "translator", "allocator", "assembler", "channel handlers"];
                let name = stage.get(n as usize).map_or_else(|| format!("stage {n}"), |&name| name.to_owned());
                (TrackGroup::Controller, 1_000 + n as i32, name)
            }
            Track::Dram => (TrackGroup::Controller, 2_000, "DRAM".into()),
            Track::Compute(n) => (TrackGroup::Compute, 2 * n as i32, format!("core {n}")),
            Track::Crossbar(n) => (TrackGroup::Compute, 2 * n as i32 + 1, format!("crossbar to core {n}")),
            Track::Channel(n) => (TrackGroup::Channel(n), 0, "bus".into()),
            Track::Die(n) => {
                let within = n % self.dies_per_channel;
                let (way, die) = (within / self.dies_per_chip, within % self.dies_per_chip);
                (TrackGroup::Channel(n / self.dies_per_channel), 1 + within as i32, format!("way {way} die {die}"))
            }
        }
    }
}

/// Returns the name of a cause.
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
