//! Every key's range: the least and the greatest value are accepted, their neighbours are refused by key, value and
//! range; changes of a description put in what they say and nothing else.

use nandarray_uarch::{CoreDescription, CorePart, DescribeError, FunctionalUnit, TimedCore};

fn with(preset: &str, changes: &[(&str, &str)]) -> Result<CoreDescription, DescribeError> {
    CoreDescription::parse_with(CoreDescription::preset_text(preset).unwrap(), changes)
}

fn said(preset: &str, changes: &[(&str, &str)]) -> String {
    with(preset, changes).expect_err(&format!("{preset} with {changes:?}")).to_string()
}

/// Ranges: preset, key, the least and the greatest value accepted, and the sentence about the range.
const RANGES: &[(&str, &str, u64, u64, &str)] = &[
    ("five-stage", "tick_ps", 1, 1_000_000, "1 to 1000000 picoseconds are needed"),
    ("five-stage", "cycle", 1, 64, "1 to 64 ticks are needed"),
    ("ex5", "width", 1, 4, "1 to 4 instructions a cycle are needed"),
    ("five-stage", "t_taken", 0, 4_096, "at most 4096 ticks are allowed"),
    ("five-stage", "t_not_taken", 0, 4_096, "at most 4096 ticks are allowed"),
    ("five-stage", "latency.multiply", 1, 4_096, "1 to 4096 ticks are needed"),
    ("c66x", "latency.double_sqrt", 1, 4_096, "1 to 4096 ticks are needed"),
    ("five-stage-sp", "pingpong_bytes", 8, 1 << 28, "a multiple of 8 up to 256 MiB is needed"),
    ("five-stage", "scratchpad_bytes", 0, 1 << 28, "a multiple of 8 up to 256 MiB is needed"),
    ("five-stage-stream", "streams", 1, 8, "programs have at most 8"),
    ("five-stage-stream", "stream_pages", 1, 4_096, "1 to 4096 are needed if there are streams"),
    ("ex5-varve", "vector.unpack_lines", 0, 64, "at most 64 are allowed"),
    ("ex5-varve", "vector.t_element", 0, 4_096, "at most 4096 ticks are allowed"),
    ("ex5-varve", "vector.t_align", 0, 4_096, "at most 4096 ticks are allowed"),
    ("ex5-varve", "vector.t_unpack", 0, 4_096, "at most 4096 ticks are allowed"),
    ("c66x", "vliw.width", 1, u32::MAX as u64, "at least 1 is needed"),
];

#[test]
fn the_ends_of_every_range_are_accepted_and_their_neighbours_are_not() {
    for &(preset, key, least, most, sentence) in RANGES {
        for value in [least, most] {
            let changed = with(preset, &[(key, &value.to_string())]);
            assert!(changed.is_ok(), "{preset}: {key} = {value}: {}", changed.unwrap_err());
        }
        let beside = [least.checked_sub(1), (most < u64::from(u32::MAX)).then_some(most + 1)];
        for value in beside.into_iter().flatten() {
            let found = said(preset, &[(key, &value.to_string())]);
            // Without streams, or without a buffer, it is the path of the input that lacks something.
            let lacks = value == 0 && found.contains("are needed for it") || found.contains("stream_pages = ");
            assert!(found.contains(&format!("{key} = {value}: {sentence}")) || lacks, "{key} = {value}: {found}");
        }
        let negative = said(preset, &[(key, "-1")]);
        assert!(negative.contains(&format!("{key}=-1")), "{negative}");
    }
}

#[test]
fn caches_have_lines_ways_and_sets_within_their_ranges() {
    let sized = |size: u64, ways: u64, line: u64| {
        let [size, ways, line] = [size, ways, line].map(|n| n.to_string());
        with("five-stage", &[("l1d.size", &size), ("l1d.ways", &ways), ("l1d.line", &line), ("l2", "none")])
    };
    for (size, ways, line) in [(8, 1, 8), (4_096, 1, 4_096), (1_024 * 64, 1_024, 64), (1 << 34, 2, 64)] {
        let d = sized(size, ways, line).unwrap_or_else(|e| panic!("{size}, {ways}, {line}: {e}"));
        assert_eq!(d.l1d.unwrap().sets(), size / ways / line);
    }
    for (size, ways, line, says) in [
        (4_096, 1, 4, "l1d.line_bytes = 4: a power of two from 8 to 4096 is needed"),
        (8_192, 1, 8_192, "l1d.line_bytes = 8192: a power of two from 8 to 4096 is needed"),
        (4_096, 1, 0, "l1d.line_bytes = 0: a power of two"),
        (4_096, 1, 24, "l1d.line_bytes = 24: a power of two"),
        (4_096, 0, 64, "l1d.ways = 0: 1 to 1024 are needed"),
        (1_025 * 64, 1_025, 64, "l1d.ways = 1025: 1 to 1024 are needed"),
        (0, 1, 64, "l1d.size_bytes = 0: a multiple of ways times line_bytes up to 16 GiB is needed"),
        (1 << 35, 1, 64, "l1d.size_bytes = 34359738368: a multiple of ways times line_bytes up to 16 GiB"),
        (4_096 + 32, 1, 64, "l1d.size_bytes = 4128: a multiple"),
        (3 * 64, 1, 64, "l1d.size_bytes = 192: the number of sets has to be a power of two"),
    ] {
        let found = sized(size, ways, line).unwrap_err().to_string();
        assert!(found.contains(says), "{found}\nlacks {says}");
    }
    let wider = said("c66x", &[("l1i.line", "256"), ("l1i.size", "64KiB")]);
    assert!(wider.contains("l1i.line_bytes = 256: at most l2.line_bytes are allowed"), "{wider}");
}

#[test]
fn a_part_without_its_counterpart_is_refused() {
    for (preset, changes, says) in [
        (
            "five-stage",
            &[("prefetch_l1d", "stride"), ("l1d", "none")][..],
            "prefetch_l1d = Stride: a prefetcher needs l1d",
        ),
        ("five-stage", &[("prefetch_l2", "dcpt"), ("l2", "none")], "prefetch_l2 = Dcpt: a prefetcher needs l2"),
        ("five-stage", &[("input_source", "ping-pong")], "input_source = ping-pong: pingpong_bytes are needed for it"),
        ("five-stage", &[("issue", "vliw")], "vliw = nothing: a VLIW core needs its units"),
        ("c66x", &[("issue", "in-order")], "vliw = units: only a VLIW core has them"),
        ("c66x", &[("vliw.memory", "0")], "at least one unit of each kind is needed"),
        ("five-stage", &[("vector.t_align", "1")], "vector = a unit: isa has no vectors"),
        ("five-stage", &[("latency.adder", "1")], "latency.adder: no unit has this name; there are alu, multiply"),
        ("five-stage", &[("latency", "none")], "missing field `latency`"),
        ("five-stage", &[("l1d.size", "none")], "missing field `size_bytes`"),
        ("five-stage", &[("isa", "rv64iq")], "isa = \"rv64iq\" (\"q\"): an architecture string such as rv32im"),
    ] {
        let found = said(preset, changes);
        assert!(found.contains(says), "{found}\nlacks {says}");
    }
    let text = CoreDescription::preset_text("five-stage").unwrap();
    let listed = text.replace("unpipelined = [", "unpipelined = [\"adder\", ");
    assert_ne!(listed, text);
    let found = CoreDescription::parse(&listed).unwrap_err().to_string();
    assert!(found.contains("unknown variant `adder`, expected one of `alu`"), "{found}");
}

#[test]
fn changes_are_numbers_sizes_truths_or_texts_and_none_takes_away() {
    let plain = with("five-stage", &[]).unwrap();
    assert_eq!(with("five-stage", &[("memory.t_access", "1_000")]).unwrap().memory.unwrap().t_access, 1_000);
    assert_eq!(with("five-stage", &[("l1d.size", "64 KiB")]).unwrap().l1d.unwrap().size_bytes, 64 << 10);
    assert_eq!(with("ibex", &[("source", "a sheet")]).unwrap().source, "a sheet");
    assert!(with("c66x", &[("vliw.simd_pairs", "true")]).unwrap().vliw.unwrap().simd_pairs);
    // A key that is not there is taken away without a trace.
    for key in ["l2.t_hit", "vector.t_align", "vliw.width", "scratchpad", "a.b.c"] {
        let before = with("ibex", &[]).unwrap();
        assert_eq!(with("ibex", &[(key, "none")]).unwrap(), before, "{key} of ibex");
    }
    assert!(said("five-stage", &[("name.x", "none")]).contains("name is no table"));
    // The last change of a key counts, and a key that was taken away can be put back.
    let twice = with("five-stage", &[("t_taken", "9"), ("t_taken", "3"), ("memory", "none")]).unwrap();
    assert_eq!((twice.t_taken, twice.memory), (3, None));
    let back = [("memory", "none"), ("memory.t_access", "5"), ("memory.t_line", "1")];
    assert_eq!(with("five-stage", &back).unwrap().memory.unwrap().t_access, 5);
    for (key, value) in
        [("l1d.size", "18446744073709551615KiB"), ("tick_ps", "1e3"), ("tick_ps", "99999999999999999999")]
    {
        let found = said("five-stage", &[(key, value)]);
        assert!(found.contains(&format!("(with {key}={value})")) && !found.contains('\n'), "{found}");
    }
    assert_eq!(plain, CoreDescription::preset("five-stage").unwrap());
}

#[test]
fn latencies_left_out_are_a_cycle_and_those_given_are_kept() {
    for unit in FunctionalUnit::ALL {
        let key = format!("latency.{}", unit.word());
        let d = with("zou-2023", &[(&key, "77")]).unwrap();
        assert_eq!((d.latency.of(unit), d.latency_of(unit)), (77, 77), "{key}");
        let without = with("zou-2023", &[(&key, "none")]).unwrap();
        assert_eq!(without.latency.of(unit), without.cycle, "{key}");
        for other in FunctionalUnit::ALL.into_iter().filter(|&other| other != unit) {
            assert_eq!(d.latency.of(other), without.latency.of(other), "{key} changed {}", other.word());
        }
    }
    let aligned = with("ex5-varve", &[("vector.t_align", "3")]).unwrap();
    for unit in FunctionalUnit::ALL {
        assert_eq!(aligned.latency_of(unit) - aligned.latency.of(unit), if unit.aligns() { 3 } else { 0 }, "{unit:?}");
    }
}

#[test]
fn a_time_beyond_the_clock_has_the_energy_of_the_longest_time() {
    let part = CorePart {
        name: "x".into(),
        count: 1,
        area_mm2: 1.0,
        active_mw: 1.0,
        idle_mw: None,
        shared: false,
        source: "test".into(),
    };
    let mut d = super::common::bare("five-stage");
    (d.tick_ps, d.parts) = (1_000_000, vec![part.clone()]);
    d.check().unwrap();
    let mut core = TimedCore::new(&d);
    core.wait_until(u64::MAX / 1_000);
    let energy_j = core.report().energy_j();
    assert!((energy_j / part.energy(0, u64::MAX).energy_j - 1.0).abs() < 1e-9, "{energy_j} J");
}
