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
        (Synthetic { read_share: 1.5, ..d() }, "shares of 1.5 reads and 0 trims"),
        (Synthetic { read_share: 0.9, trim_share: 0.2, ..d() }, "together at most 1"),
        (Synthetic { seconds: Some(-1.0), ..d() }, "-1 seconds"),
        (Synthetic { streams: 0, ..d() }, "0 streams"),
        (Synthetic { arrival: Arrival::Closed { depth: 0 }, ..d() }, "a queue depth of 0"),
        (Synthetic { arrival: Arrival::Poisson { per_s: f64::NAN }, ..d() }, "NaN requests a second"),
        (Synthetic { sizes: vec![], ..d() }, "0 sizes"),
        (
            Synthetic { sizes: vec![Size { bytes: 1000, weight: 1.0 }], ..d() },
            "a size of 1000 B; it must be a multiple of 512",
        ),
        (Synthetic { sizes: vec![Size { bytes: 512, weight: 0.0 }], ..d() }, "a weight of 0"),
        (Synthetic { sizes: vec![Size { bytes: 2 * GIB, weight: 1.0 }], ..d() }, "in a working set of 1073741824 B"),
        (Synthetic { align_bytes: Some(100), ..d() }, "an alignment of 100 B"),
        (Synthetic { working_set_bytes: Some(2 * GIB), ..d() }, "on a device of 1073741824 B"),
        (Synthetic { offset_bytes: GIB, ..d() }, "a working set of 0 B from byte 1073741824"),
        (Synthetic { skew: Skew::Zipf { theta: 9.0 }, ..d() }, "theta of a Zipf skew is 9"),
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
