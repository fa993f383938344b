//! Timelines are read again and compared with the spans that went in. The Python tests read one with Perfetto's own
//! messages.

use super::*;
use proptest::prelude::*;

fn geometry() -> FlashGeometry {
    FlashGeometry { channels: 2, ways: 2, dies: 2, planes: 1, blocks: 4, pages: 4, page_bytes: 4096, spare_bytes: 0 }
}

/// A file in memory that can be read while it is written.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(spans: &[DeviceSpan], options: TimelineOptions) -> (Vec<TracePacket>, TimelineEnd) {
    let memory = Memory::default();
    let timeline = Timeline::new(Box::new(memory.clone()), "a device", &geometry(), options).unwrap();
    let mut taker = timeline.spans();
    spans.iter().for_each(|&span| taker.span(span));
    let end = timeline.finish().unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    assert_eq!(bytes.len() as u64, end.bytes);
    let mut rest = &bytes[..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        assert_eq!(rest[0], 0x0a);
        rest = &rest[1..];
        packets.push(TracePacket::decode_length_delimited(&mut rest).unwrap());
    }
    (packets, end)
}

/// Slices as Perfetto would draw them: path of names, start, end, name, category, number.
type Slice = (String, u64, u64, String, String, u64);

fn drawn(packets: &[TracePacket]) -> Vec<Slice> {
    let mut tracks: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
    let (mut names, mut categories) = (BTreeMap::new(), BTreeMap::new());
    let mut open: BTreeMap<u64, Slice> = BTreeMap::new();
    let mut slices = Vec::new();
    for packet in packets {
        if let Some(track) = &packet.track_descriptor {
            assert!(tracks.insert(track.uuid.unwrap(), track.clone()).is_none(), "a track is described once");
        }
        if let Some(data) = &packet.interned_data {
            names.extend(data.event_names.iter().map(|n| (n.iid.unwrap(), n.name.clone().unwrap())));
            categories.extend(data.event_categories.iter().map(|n| (n.iid.unwrap(), n.name.clone().unwrap())));
        }
        let Some(event) = &packet.track_event else { continue };
        let (uuid, at) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
        if event.r#type == Some(SliceType::End as i32) {
            let mut slice = open.remove(&uuid).expect("an end without a beginning");
            slice.2 = at;
            slices.push(slice);
            continue;
        }
        let mut path = Vec::new();
        let mut track = Some(&tracks[&uuid]);
        while let Some(t) = track {
            let process = t.process.as_ref().and_then(|p| p.process_name.clone());
            path.insert(0, process.or_else(|| t.name.clone()).unwrap());
            track = t.parent_uuid.map(|parent| &tracks[&parent]);
        }
        let slice = (
            path.join("/"),
            at,
            0,
            names[&event.name_iid.unwrap()].clone(),
            categories[&event.category_iids[0]].clone(),
            event.debug_annotations[0].uint_value.unwrap(),
        );
        assert!(open.insert(uuid, slice).is_none(), "slices of a lane do not overlap");
    }
    assert!(open.is_empty());
    slices
}

fn span(track: Track, start_ns: u64, end_ns: u64, what: &'static str) -> DeviceSpan {
    DeviceSpan { track, start: Ps::from_ns(start_ns), end: Ps::from_ns(end_ns), what, cause: OpCause::Host, detail: 7 }
}

#[test]
fn tracks_stand_in_their_groups() {
    let spans = [
        span(Track::Request(0), 0, 100, "read"),
        span(Track::LinkDown, 0, 10, "command"),
        span(Track::Stage(1), 10, 20, "translate"),
        span(Track::Channel(1), 20, 30, "command"),
        DeviceSpan { cause: OpCause::Gc, ..span(Track::Die(7), 30, 80, "sense") },
        span(Track::Dram, 80, 90, "data"),
        span(Track::HostCore(3), 90, 100, "complete"),
    ];
    let (packets, end) = written(&spans, TimelineOptions::default());
    assert_eq!((end.written, end.left_out), (7, 0));
    let drawn = drawn(&packets);
    let paths: Vec<&str> = drawn.iter().map(|s| s.0.as_str()).collect();
    assert_eq!(
        paths,
        [
            "a device/requests/queue 0",
            "a device/link/to the device",
            "a device/controller/translator",
            "a device/channel 1/bus",
            "a device/channel 1/way 1 die 1",
            "a device/controller/DRAM",
            "a device/host/host core 3",
        ]
    );
    assert_eq!(drawn[4], ("a device/channel 1/way 1 die 1".into(), 30, 80, "sense".into(), "gc".into(), 7));
}

#[test]
fn what_overlaps_lies_in_lanes_of_one_name() {
    let request = |start, end| span(Track::Request(0), start, end, "read");
    let (packets, _) =
        written(&[request(0, 10), request(5, 15), request(10, 20), request(15, 16)], TimelineOptions::default());
    let lanes: Vec<_> = packets
        .iter()
        .filter_map(|p| p.track_descriptor.as_ref())
        .filter(|t| t.name.as_deref() == Some("queue 0"))
        .collect();
    assert_eq!(lanes.len(), 2);
    assert_eq!(lanes[0].parent_uuid, lanes[1].parent_uuid);
    assert_eq!(drawn(&packets).len(), 4);
}

#[test]
fn windows_and_bounds() {
    let spans: Vec<DeviceSpan> = (0..10).map(|n| span(Track::Dram, n * 10, n * 10 + 5, "data")).collect();
    let window = TimelineOptions { from: Ps::from_ns(36), until: Ps::from_ns(60), ..TimelineOptions::default() };
    let (packets, end) = written(&spans, window);
    assert_eq!(drawn(&packets).iter().map(|s| s.1).collect::<Vec<_>>(), [40, 50]);
    assert_eq!((end.written, end.left_out), (2, 0));
    let (packets, end) = written(&spans, TimelineOptions { spans_max: 3, ..TimelineOptions::default() });
    assert_eq!((drawn(&packets).len(), end.left_out), (3, 7));
}

#[test]
fn a_full_disk_is_told_at_the_end() {
    struct Full(u32);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("no space"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let timeline = Timeline::new(Box::new(Full(2)), "a device", &geometry(), TimelineOptions::default()).unwrap();
    let mut taker = timeline.spans();
    for n in 0..100 {
        taker.span(span(Track::Dram, n, n + 1, "data"));
    }
    assert_eq!(timeline.finish().unwrap_err().to_string(), "no space");
    taker.span(span(Track::Dram, 0, 1, "data"));
    assert!(Timeline::new(Box::new(Full(0)), "a device", &geometry(), TimelineOptions::default()).is_err());
}

proptest! {
    #[test]
    fn every_span_is_drawn_as_it_was(
        given in prop::collection::vec(
            (0u32..9, 0u64..5_000_000, 0u64..3_000_000, 0usize..4, any::<u64>()),
            0..200,
        ),
    ) {
        let spans: Vec<DeviceSpan> = given.iter().map(|&(track, start, lasts, what, detail)| DeviceSpan {
            track: match track {
                0 => Track::HostCore(0),
                1 => Track::Core(1),
                2 => Track::Stage(4),
                3 => Track::Stage(9),
                4 => Track::Channel(0),
                5..7 => Track::Die(track),
                _ => Track::Request(track),
            },
            start: Ps(start),
            end: Ps(start + lasts),
            what: ["sense", "program", "data out", "erase"][what],
            cause: OpCause::ALL[what],
            detail,
        }).collect();
        let (packets, end) = written(&spans, TimelineOptions::default());
        prop_assert_eq!(end.written, spans.len() as u64);
        let drawn = drawn(&packets);
        for (span, slice) in spans.iter().zip(&drawn) {
            prop_assert_eq!((slice.1, slice.2), (span.start.0 / 1000, span.end.0 / 1000));
            prop_assert_eq!((slice.3.as_str(), slice.5), (span.what, span.detail));
            prop_assert_eq!(slice.4.as_str(), cause_name(span.cause));
        }
        prop_assert_eq!(drawn.len(), spans.len());
    }
}

/// Returns random spans in the order of their starts, or in any order.
fn drawn_spans(chance: &mut fastrand::Rng, in_order: bool) -> Vec<DeviceSpan> {
    let mut spans: Vec<DeviceSpan> = (0..chance.usize(1..200))
        .map(|n| {
            // Multiples of 20 ns, so that many spans begin when others end.
            let start = 20_000 * chance.u64(0..200);
            let tracks = [
                Track::Request(chance.u32(0..2)),
                Track::Stage(chance.u32(0..7)),
                Track::Die(chance.u32(0..8)),
                Track::LinkUp,
            ];
            let track = tracks[chance.usize(0..4)];
            let end = Ps(start + [0, 20_000 * chance.u64(0..45)][chance.usize(0..2)]);
            DeviceSpan { track, start: Ps(start), end, what: "work", cause: OpCause::Map, detail: n as u64 }
        })
        .collect();
    if in_order {
        spans.sort_by_key(|span| span.start);
    }
    spans
}

#[test]
fn a_window_draws_the_spans_within_it() {
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let spans = drawn_spans(&mut chance, false);
        let (from, until) = (Ps(chance.u64(0..3_000_000)), Ps(chance.u64(0..5_000_000)));
        let spans_max = chance.u64(0..150);
        let within: Vec<u64> =
            spans.iter().filter(|span| span.end >= from && span.start < until).map(|span| span.detail).collect();
        let (packets, end) = written(&spans, TimelineOptions { spans_max, from, until });
        let shown = within.len().min(spans_max as usize);
        assert!(drawn(&packets).iter().map(|slice| slice.5).eq(within[..shown].iter().copied()), "seed {seed}");
        assert_eq!((end.written, end.left_out), (shown as u64, (within.len() - shown) as u64), "seed {seed}");
    }
}

/// Spans that come in the order of their starts need as many lanes as overlap at most at one moment.
#[test]
fn a_track_has_as_many_lanes_as_spans_overlap() {
    for seed in 0..60 {
        let spans = drawn_spans(&mut fastrand::Rng::with_seed(seed), true);
        let (packets, _) = written(&spans, TimelineOptions::default());
        let mut lanes: BTreeMap<(Option<u64>, Option<String>), usize> = BTreeMap::new();
        for track in packets.iter().filter_map(|p| p.track_descriptor.as_ref()).filter(|t| t.child_ordering.is_none()) {
            *lanes.entry((track.parent_uuid, track.name.clone())).or_default() += 1;
        }
        let mut deepest: BTreeMap<Track, usize> = BTreeMap::new();
        for (n, span) in spans.iter().enumerate() {
            let before = spans[..n].iter().filter(|other| other.track == span.track && other.end > span.start);
            let depth = deepest.entry(span.track).or_default();
            *depth = (*depth).max(before.count() + 1);
        }
        let (mut got, mut want): (Vec<_>, Vec<_>) = (lanes.into_values().collect(), deepest.into_values().collect());
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want, "seed {seed}: lanes of all tracks");
    }
}

#[test]
fn spans_beyond_the_lanes_of_a_track_are_counted() {
    let at_once: Vec<DeviceSpan> =
        (0..LANES_MAX as u64 + 3).map(|n| span(Track::Request(0), n, 1 << 20, "read")).collect();
    let (packets, end) = written(&at_once, TimelineOptions::default());
    assert_eq!((end.written, end.left_out), (LANES_MAX as u64, 3));
    assert_eq!(drawn(&packets).len(), LANES_MAX);
}

/// Each die stands under its channel, by way and die, and no two tracks of a group have one rank.
#[test]
fn dies_stand_under_their_channels_in_order() {
    for (channels, ways, dies) in [(1, 1, 1), (2, 3, 2), (3, 1, 4), (4, 4, 1)] {
        let geometry = FlashGeometry { channels, ways, dies, ..geometry() };
        let memory = Memory::default();
        let timeline = Timeline::new(Box::new(memory.clone()), "d", &geometry, TimelineOptions::default()).unwrap();
        let (mut taker, mut paths, mut die) = (timeline.spans(), Vec::new(), 0);
        for channel in 0..channels {
            taker.span(span(Track::Channel(channel), 0, 1, "bus"));
            paths.push(format!("d/channel {channel}/bus"));
            for (way, within) in (0..ways).flat_map(|way| (0..dies).map(move |within| (way, within))) {
                taker.span(span(Track::Die(die), 0, 1, "sense"));
                paths.push(format!("d/channel {channel}/way {way} die {within}"));
                die += 1;
            }
        }
        timeline.finish().unwrap();
        let (packets, rest) = complete_packets(&memory.0.lock().unwrap());
        assert!(rest.is_empty());
        assert_eq!(drawn(&packets).into_iter().map(|slice| slice.0).collect::<Vec<_>>(), paths);
        let mut ranks: Vec<_> = packets
            .iter()
            .filter_map(|p| p.track_descriptor.as_ref())
            .map(|t| (t.parent_uuid, t.sibling_order_rank))
            .collect();
        let all = ranks.len();
        assert!(ranks[1..].iter().all(|(_, rank)| rank.is_some()), "every track below the process has a rank");
        ranks.sort_unstable();
        ranks.dedup();
        assert_eq!(ranks.len(), all, "{channels} channels of {ways} ways of {dies} dies");
    }
}

/// Returns the packets of a file that are complete, and the bytes behind them.
fn complete_packets(bytes: &[u8]) -> (Vec<TracePacket>, Vec<u8>) {
    let (mut packets, mut rest) = (Vec::new(), bytes);
    while let Some(mut after) = rest.strip_prefix(&[0x0a]) {
        match TracePacket::decode_length_delimited(&mut after) {
            Ok(packet) => packets.push(packet),
            Err(_) => break,
        }
        rest = after;
    }
    (packets, rest.to_vec())
}

/// A writer that fails once it has taken a number of bytes, and works again after that failure.
#[derive(Clone)]
struct FailsOnce {
    taken: Memory,
    left: Arc<Mutex<Option<usize>>>,
}

impl Write for FailsOnce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut left = self.left.lock().unwrap();
        let n = bytes.len().min(left.unwrap_or(usize::MAX));
        if n == 0 && !bytes.is_empty() {
            *left = None;
            return Err(io::Error::other("no space"));
        }
        *left = left.map(|left| left - n);
        self.taken.write(&bytes[..n])
    }
    fn flush(&mut self) -> io::Result<()> {
        match self.left.lock().unwrap().take() {
            Some(0) => Err(io::Error::other("no space to flush")),
            _ => Ok(()),
        }
    }
}

/// A disk that is full at any byte ends the timeline with an error; the file holds what was written before, nothing is
/// written behind the gap, and nothing after the end.
#[test]
fn a_disk_that_is_full_at_any_byte_is_told_and_leaves_a_readable_beginning() {
    let spans: Vec<DeviceSpan> = (0..6).map(|n| span(Track::Die(n as u32 % 3), n * 10, n * 10 + 7, "sense")).collect();
    let (whole, end) = written(&spans, TimelineOptions::default());
    for full_at in 0..=end.bytes as usize {
        let out = FailsOnce { taken: Memory::default(), left: Arc::new(Mutex::new(Some(full_at))) };
        let bytes = || out.taken.0.lock().unwrap().clone();
        let made = Timeline::new(Box::new(out.clone()), "a device", &geometry(), TimelineOptions::default());
        let Ok(timeline) = made else {
            assert!(bytes().len() == full_at && complete_packets(&bytes()).0.is_empty(), "full at {full_at}");
            continue;
        };
        let mut taker = timeline.spans();
        spans.iter().for_each(|&span| taker.span(span));
        let said = timeline.finish().unwrap_err().to_string();
        assert_eq!(said, if full_at == end.bytes as usize { "no space to flush" } else { "no space" });
        assert_eq!(bytes().len(), full_at, "nothing follows the gap");
        let (packets, rest) = complete_packets(&bytes());
        assert_eq!(packets, whole[..packets.len()], "full at {full_at}");
        assert!(packets.len() < whole.len() || rest.is_empty());
        taker.span(spans[0]);
        assert_eq!(bytes().len(), full_at, "a timeline that ended takes no spans");
    }
}
