//! Generated requests keep their shares, rates and bounds; impossible settings are refused.

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn all(settings: Synthetic, device_bytes: u64) -> Vec<IoRequest> {
    let mut generator = Generator::new(settings, device_bytes).unwrap();
    std::iter::from_fn(|| generator.next(Ps::ZERO).unwrap()).collect()
}

fn refused(settings: Synthetic) -> String {
    Generator::new(Synthetic { requests: settings.requests.or(Some(1)), ..settings }, GIB).unwrap_err().to_string()
}

#[test]
fn defaults_are_random_reads_all_over_the_device() {
    let settings = Synthetic { requests: Some(10_000), ..Synthetic::default() };
    let mut generator = Generator::new(settings.clone(), GIB).unwrap();
    assert_eq!(generator.depth(), Some(32));
    let mut pages = std::collections::HashSet::new();
    let mut upper = 0;
    for n in 0..10_000 {
        assert_eq!(generator.progress(Ps::ZERO), Some(f64::from(n) / 10_000.0));
        let r = generator.next(Ps::ZERO).unwrap().unwrap();
        assert_eq!((r.at, r.op, r.bytes, r.offset_bytes % 4096), (None, RequestOp::Read, 4096, 0));
        upper += u32::from(r.offset_bytes >= GIB / 2);
        pages.insert(r.offset_bytes);
    }
    assert_eq!(generator.next(Ps::ZERO).unwrap(), None);
    assert!((4_800..5_200).contains(&upper), "{upper}");
    assert!(pages.len() > 9_700, "{}", pages.len());
    assert_eq!(all(settings.clone(), GIB), all(settings.clone(), GIB), "one seed, one workload");
    assert_ne!(all(settings.clone(), GIB), all(Synthetic { seed: 2, ..settings }, GIB));
}

#[test]
fn shares_sizes_and_flushes() {
    let made = all(
        Synthetic {
            read_share: 0.6,
            trim_share: 0.1,
            flush_every: 10,
            sizes: vec![Size { bytes: 4096, weight: 3.0 }, Size { bytes: 65_536, weight: 1.0 }],
            requests: Some(50_000),
            ..Synthetic::default()
        },
        GIB,
    );
    let count = |op| made.iter().filter(|r| r.op == op).count() as f64;
    let (writes, flushes) = (count(RequestOp::Write), count(RequestOp::Flush));
    let moved = 50_000.0 - flushes;
    assert!((count(RequestOp::Read) / moved - 0.6).abs() < 0.01);
    assert!((count(RequestOp::Trim) / moved - 0.1).abs() < 0.01);
    assert!((writes / 10.0 - flushes).abs() <= 1.0, "{writes} writes, {flushes} flushes");
    let small = made.iter().filter(|r| r.bytes == 4096).count() as f64;
    assert!((small / moved - 0.75).abs() < 0.01);
    assert!(made.iter().all(|r| r.op != RequestOp::Flush || r.bytes == 0));
}

#[test]
fn sequential_streams_walk_parts_of_their_own() {
    let made = all(
        Synthetic {
            pattern: Pattern::Sequential,
            streams: 2,
            sizes: vec![Size { bytes: 4096, weight: 1.0 }],
            offset_bytes: 8192,
            working_set_bytes: Some(4 * 4096),
            requests: Some(6),
            ..Synthetic::default()
        },
        GIB,
    );
    let walked: Vec<_> = made.iter().map(|r| (r.stream, r.offset_bytes / 4096)).collect();
    assert_eq!(walked, [(0, 2), (1, 4), (0, 3), (1, 5), (0, 2), (1, 4)]);
}

#[test]
fn open_loops_keep_their_rate() {
    let settings = Synthetic { arrival: Arrival::Constant { per_s: 3.0 }, requests: Some(7), ..Synthetic::default() };
    let made = all(settings.clone(), GIB);
    assert_eq!(made[1].at, Some(Ps(333_333_333_333)));
    assert_eq!(made[6].at, Some(Ps(2_000_000_000_000)), "rounding does not add up");
    assert_eq!(Generator::new(settings.clone(), GIB).unwrap().depth(), None);
    let timed = Synthetic { requests: None, seconds: Some(1.0), ..settings };
    assert_eq!(all(timed, GIB).len(), 3, "at 0, 1/3 and 2/3 s");
    let poisson =
        Synthetic { arrival: Arrival::Poisson { per_s: 1e5 }, requests: Some(100_000), ..Synthetic::default() };
    let times: Vec<f64> = all(poisson, GIB).iter().map(|r| r.at.unwrap().us()).collect();
    let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((mean - 10.0).abs() < 0.2, "{mean}");
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "exponential: deviation as large as the mean");
}

#[test]
fn a_closed_loop_ends_when_its_time_is_over() {
    let mut generator = Generator::new(Synthetic { seconds: Some(2.0), ..Synthetic::default() }, GIB).unwrap();
    assert!(generator.next(Ps::from_seconds(1.9)).unwrap().is_some());
    assert_eq!(generator.progress(Ps::from_seconds(1.0)), Some(0.5));
    assert!(generator.next(Ps::from_seconds(2.0)).unwrap().is_none());
}

#[test]
fn bytes_end_it_too() {
    assert_eq!(all(Synthetic { bytes: Some(10_000), ..Synthetic::default() }, GIB).len(), 3);
}

#[test]
fn the_same_bytes_are_hot_for_all_sizes() {
    let made = all(
        Synthetic {
            skew: Skew::Zipf { theta: 1.2 },
            sizes: vec![Size { bytes: 4096, weight: 1.0 }, Size { bytes: 16_384, weight: 1.0 }],
            requests: Some(20_000),
            ..Synthetic::default()
        },
        GIB,
    );
    let hottest = |bytes: u64| {
        let mut counts = std::collections::BTreeMap::new();
        for r in made.iter().filter(|r| r.bytes == bytes) {
            *counts.entry(r.offset_bytes / 16_384).or_insert(0u32) += 1;
        }
        counts.into_iter().max_by_key(|&(_, n)| n).unwrap().0
    };
    assert_eq!(hottest(4096), hottest(16_384));
}

#[test]
fn what_cannot_be_is_refused_with_its_numbers() {
    let d = Synthetic::default;
    for (settings, says) in [
        (Synthetic { read_share: 1.5, ..d() }, "also together, not 1.5 and 0"),
        (Synthetic { read_share: 0.9, trim_share: 0.2, ..d() }, "also together, not 0.9 and 0.2"),
        (Synthetic { seconds: Some(-1.0), ..d() }, "at most 10,000,000, not -1"),
        (Synthetic { streams: 0, ..d() }, "streams must be from 1 to 65,536, not 0"),
        (Synthetic { arrival: Arrival::Closed { depth: 0 }, ..d() }, "65,536, not 0"),
        (Synthetic { arrival: Arrival::Poisson { per_s: f64::NAN }, ..d() }, "10,000,000,000, not NaN"),
        (Synthetic { sizes: vec![], ..d() }, "sizes must be from 1 to 1,024 in number, not 0"),
        (Synthetic { sizes: vec![Size { bytes: 1000, weight: 1.0 }], ..d() }, "from 512 B to 4 GiB, not 1000 B"),
        (
            Synthetic { sizes: vec![Size { bytes: 512, weight: 0.0 }], ..d() },
            "a weight must be above 0 and at most 1e12, not 0",
        ),
        (Synthetic { sizes: vec![Size { bytes: 2 * GIB, weight: 1.0 }], ..d() }, "in a working set of 1073741824 B"),
        (Synthetic { align_bytes: Some(100), ..d() }, "an alignment must be a multiple of 512 B, not 100 B"),
        (Synthetic { working_set_bytes: Some(2 * GIB), ..d() }, "on a device of 1073741824 B"),
        (Synthetic { offset_bytes: GIB, ..d() }, "a working set of 0 B from byte 1073741824"),
        (Synthetic { offset_bytes: 4100, ..d() }, "an offset must be a multiple of 512 B, not 4100 B"),
        (
            Synthetic { skew: Skew::Zipf { theta: 9.0 }, ..d() },
            "theta of a Zipf skew must be above 0 and at most 5, not 9",
        ),
        (
            Synthetic { pattern: Pattern::Sequential, streams: 65_536, working_set_bytes: Some(1 << 20), ..d() },
            "65536 streams in a working set of 1048576 B leave no room for 4096 B each",
        ),
    ] {
        let said = refused(settings);
        assert!(said.contains(says), "{said}");
    }
    let said = Generator::new(Synthetic::default(), GIB).unwrap_err().to_string();
    assert!(said.contains("without an end"), "{said}");
}

#[test]
fn settings_are_json() {
    let text = r#"{"read_share": 0.7, "sizes": [{"bytes": 16384}],
        "skew": {"kind": "hot-cold", "space": 0.2, "requests": 0.8},
        "arrival": {"kind": "poisson", "per_s": 1000}, "pattern": "random", "requests": 5}"#;
    let settings: Synthetic = serde_json::from_str(text).unwrap();
    assert_eq!(settings.skew, Skew::HotCold { space: 0.2, requests: 0.8 });
    assert_eq!(settings.sizes, [Size { bytes: 16_384, weight: 1.0 }]);
    let again: Synthetic = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
    assert_eq!(again, settings);
    let error = serde_json::from_str::<Synthetic>(r#"{"queue_depth": 4}"#).unwrap_err().to_string();
    assert!(error.contains("unknown field `queue_depth`"), "{error}");
}

proptest! {
    #[test]
    fn requests_stay_within_the_working_set(
        sizes in prop::collection::vec(1u64..64, 1..4),
        align in prop::option::of(1u64..16),
        from in 0u64..100, extra in 0u64..5000,
        sequential: bool, skew in 0usize..3, streams in 1u32..4, seed: u64,
    ) {
        let largest = sizes.iter().max().unwrap() * 512;
        let set = largest * u64::from(streams) * 2 + 16 * 512 * u64::from(streams) + extra * 512;
        let settings = Synthetic {
            sizes: sizes.iter().map(|&s| Size { bytes: s * 512, weight: 1.0 }).collect(),
            align_bytes: align.map(|a| a * 512),
            offset_bytes: from * 512,
            working_set_bytes: Some(set),
            pattern: if sequential { Pattern::Sequential } else { Pattern::Random },
            skew: [Skew::Uniform, Skew::Zipf { theta: 0.9 }, Skew::HotCold { space: 0.1, requests: 0.9 }][skew],
            streams, seed,
            requests: Some(200),
            ..Synthetic::default()
        };
        for r in all(settings, GIB) {
            prop_assert!(r.offset_bytes >= from * 512 && r.offset_bytes + r.bytes <= from * 512 + set, "{:?}", r);
            prop_assert_eq!((r.offset_bytes - from * 512) % align.map_or(512, |a| a * 512), 0);
        }
    }
}

/// Rates so low that an arrival would be beyond the clock's range end with an error that names the request.
#[test]
fn arrivals_beyond_the_clock_are_refused_when_they_come() {
    let within = |arrival, requests, seconds| {
        let settings = Synthetic { arrival, requests: Some(requests), seconds, ..Synthetic::default() };
        let mut generator = Generator::new(settings, GIB).unwrap();
        loop {
            match generator.next(Ps::ZERO) {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some((generator.issued, error.to_string())),
            }
        }
    };
    // Request 1 arrives at 0, request 2 after 10,000,000 s, which is the latest.
    assert_eq!(within(Arrival::Constant { per_s: 1e-7 }, 2, None), None);
    let (issued, said) = within(Arrival::Constant { per_s: 8e-8 }, 3, None).unwrap();
    assert_eq!(issued, 1);
    assert!(said.ends_with("requests a second: request 2 arrives at 12500000 s, after 115 days"), "{said}");
    let (_, said) = within(Arrival::Constant { per_s: 1e-300 }, 3, None).unwrap();
    assert!(said.contains("request 2 arrives at"), "{said}");
    for seed in 0..20 {
        let poisson = Arrival::Poisson { per_s: 1e-9 * (seed + 1) as f64 };
        assert!(within(poisson, 1_000, None).is_some(), "seed {seed}");
        // A limit of time comes first.
        assert_eq!(within(poisson, 1_000, Some(1e7)), None, "seed {seed}");
    }
}

/// Each stream's walk, as a list: the next multiple of the alignment, or the beginning where the request would leave
/// the stream's part.
#[test]
fn walks_of_several_sizes_are_those_of_a_plain_loop() {
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let streams = chance.u32(1..5);
        let sizes: Vec<Size> =
            (0..chance.usize(1..4)).map(|_| Size { bytes: 512 * chance.u64(1..40), weight: 1.0 }).collect();
        let align = chance.bool().then(|| 512 * chance.u64(1..20));
        let largest = sizes.iter().map(|size| size.bytes).max().unwrap();
        let grid = align.unwrap_or(largest);
        let set = u64::from(streams) * (largest.max(grid) * chance.u64(2..9) + 512 * chance.u64(0..50));
        let settings = Synthetic {
            sizes,
            align_bytes: align,
            offset_bytes: 512 * chance.u64(0..9),
            working_set_bytes: Some(set),
            pattern: Pattern::Sequential,
            streams,
            seed,
            requests: Some(400),
            ..Synthetic::default()
        };
        let offset = settings.offset_bytes;
        let part = set / u64::from(streams) / grid * grid;
        let mut next = vec![0u64; streams as usize];
        for (n, r) in all(settings, GIB).iter().enumerate() {
            assert_eq!(u64::from(r.stream), n as u64 % u64::from(streams), "seed {seed}");
            let at = &mut next[r.stream as usize];
            let each = align.unwrap_or(r.bytes);
            while !at.is_multiple_of(each) {
                *at += 512;
            }
            if *at + r.bytes > part {
                *at = 0;
            }
            let wanted = offset + u64::from(r.stream) * part + *at;
            assert_eq!(r.offset_bytes, wanted, "seed {seed}, request {n} of {} B, stream {}", r.bytes, r.stream);
            *at += r.bytes;
        }
    }
}

/// Counts of a long run lie within five deviations of the exact expectation: operations, sizes, places by rank.
#[test]
fn what_is_drawn_is_drawn_as_often_as_its_share() {
    let n = 60_000u64;
    for seed in 0..6 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (read, trim) = (chance.f64() * 0.6, chance.f64() * 0.4);
        let weights: Vec<f64> = (0..chance.usize(2..6)).map(|_| 0.05 + chance.f64()).collect();
        let sizes: Vec<Size> =
            weights.iter().zip(1u64..).map(|(&weight, n)| Size { bytes: 4096 * n, weight }).collect();
        let settings = Synthetic {
            read_share: read,
            trim_share: trim,
            sizes: sizes.clone(),
            align_bytes: Some(4096),
            skew: Skew::HotCold { space: 0.25, requests: 0.7 },
            requests: Some(n),
            seed,
            ..Synthetic::default()
        };
        let made = all(settings, GIB);
        let near = |what: &str, found: usize, share: f64| {
            let (mean, found) = (n as f64 * share, found as f64);
            let five = 5.0 * (mean * (1.0 - share)).sqrt() + 1.0;
            assert!((found - mean).abs() < five, "seed {seed}, {what}: {found}, {mean} are expected");
        };
        for (op, share) in [(RequestOp::Read, read), (RequestOp::Trim, trim), (RequestOp::Write, 1.0 - read - trim)] {
            near(&format!("{op:?}"), made.iter().filter(|r| r.op == op).count(), share);
        }
        let whole: f64 = weights.iter().sum();
        for (size, weight) in sizes.iter().zip(&weights) {
            near("size", made.iter().filter(|r| r.bytes == size.bytes).count(), weight / whole);
        }
        // A quarter of the places is hot: the places, sorted by the requests that they got, show it.
        let mut by_place = std::collections::HashMap::new();
        made.iter().for_each(|r| *by_place.entry(r.offset_bytes / 4096).or_insert(0usize) += 1);
        let places = GIB / 4096;
        assert!(by_place.keys().all(|&place| place < places), "seed {seed}");
        // With so few requests a place, cold places got one request or two, and hot ones up to five times as many.
        let twice = by_place.values().filter(|&&times| times >= 2).map(|times| times - 1).sum::<usize>();
        let pairs = |requests: f64, places: f64| requests - places * (1.0 - (-requests / places).exp());
        let (hot, cold) = (0.25 * places as f64, 0.75 * places as f64);
        let wanted = pairs(0.7 * n as f64, hot) + pairs(0.3 * n as f64, cold);
        assert!((twice as f64 / wanted - 1.0).abs() < 0.05, "seed {seed}: {twice} repeats, {wanted} are expected");
    }
}

/// A flush follows each n-th write at once, in the stream whose turn it is, and counts as a request.
#[test]
fn flushes_come_behind_every_nth_write() {
    for every in [1, 2, 7] {
        let settings = Synthetic {
            read_share: 0.5,
            flush_every: every,
            streams: 3,
            requests: Some(3_000),
            ..Synthetic::default()
        };
        let (mut writes, mut due) = (0, false);
        for (n, r) in all(settings, GIB).iter().enumerate() {
            assert_eq!(r.op == RequestOp::Flush, due, "request {n}, a flush every {every} writes");
            assert_eq!(r.stream as usize, n % 3);
            writes += u64::from(r.op == RequestOp::Write);
            due = r.op == RequestOp::Write && writes % every == 0;
        }
    }
}
