//! The part of Perfetto's trace messages that timelines need (perfetto.dev/docs/reference/trace-packet-proto; the
//! field numbers are those of `protos/perfetto/trace/` in its sources). A file is a sequence of packets, each as field
//! 1 of one message.

/// `TracePacket.SequenceFlags`: earlier names and their numbers are invalid from this packet on.
pub const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// `TracePacket.SequenceFlags`: the packet refers to names by earlier numbers.
pub const NEEDS_INCREMENTAL_STATE: u32 = 2;
/// `TrackDescriptor.ChildTracksOrdering`: `EXPLICIT`, by `sibling_order_rank`.
pub const CHILDREN_BY_RANK: i32 = 3;

/// One packet of a trace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TracePacket {
    /// Time in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Number of the sequence that the packet belongs to.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// An event on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Names and their numbers, defined by this packet.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// Bits of `SequenceFlags`.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// Description of a track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
    /// Whether this is the first packet of its sequence.
    #[prost(bool, optional, tag = "87")]
    pub first_packet_on_sequence: Option<bool>,
}

/// Description of a track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    /// Number of the track.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Name of the track.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Process that the track stands for.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// Number of the track under which this one is drawn.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Order of the tracks under this one.
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Rank of this track among its siblings.
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
}

/// Description of a process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessDescriptor {
    /// Process id, an arbitrary number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Name of the process.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// Kind of an event, `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceType {
    /// `TYPE_SLICE_BEGIN`: a span begins.
    Begin = 1,
    /// `TYPE_SLICE_END`: the span that was begun last ends.
    End = 2,
}

/// An event on a track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    /// Numbers of the event's categories.
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    /// Annotations of the event.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Kind of the event, a value of `SliceType`.
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Number of the event's name.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// Number of the event's track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
}

/// Annotation of an event: a name and a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DebugAnnotation {
    /// Number of the annotation's name.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// Value of the annotation.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
}

/// Definitions of names and their numbers, from this packet on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InternedData {
    /// Names of categories.
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<EventCategory>,
    /// Names of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<EventName>,
    /// Names of annotations; Perfetto's message for these has the same fields.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<EventName>,
}

/// A name and its number.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventName {
    /// The number, from 1.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// A category and its number.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EventCategory {
    /// The number, from 1.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}
