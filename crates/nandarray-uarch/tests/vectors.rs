//! Promise: vector instructions take the ticks that closed forms give, for V and for VarVE: issue, latency, further
//! cycles of the datapath, alignment, memory, unpacking ahead of use.

mod common;

use common::{CODE, DATA, DATA_BYTES, assemble, memory};
use nandarray_hart::{Hart, HartMode, Limits, Rv64, Stop, Streams};
use nandarray_uarch::{CoreDescription, CoreReport, TimedCore};

/// Runs lines of assembly, with a return at their end, on a core of 64 bits whose data are `data`.
fn timed(lines: &[String], d: &CoreDescription, data: &[u8]) -> CoreReport {
    let lines: Vec<String> = lines.iter().cloned().chain(["jalr zero, 0(ra)".to_owned()]).collect();
    let code = assemble(&lines);
    let mut memory = memory(&code);
    memory.get_mut(DATA..DATA + data.len() as u64).unwrap().copy_from_slice(data);
    let mut hart = Hart::<Rv64, _>::with_meter(HartMode::Program, d.extensions().1, TimedCore::new(d));
    hart.set_varve_alignment(d.vector_unit().alignment());
    hart.call(CODE, DATA + DATA_BYTES, &[DATA]);
    match hart.run(&mut memory, &mut Streams::none(), Limits { instructions: None, stop: None }) {
        Stop::Returned { .. } => hart.meter().report(),
        other => panic!("{other}"),
    }
}

fn described(changes: &[(&str, &str)]) -> CoreDescription {
    let text = CoreDescription::preset_text("ex5-varve").unwrap();
    CoreDescription::parse_with(text, changes).unwrap()
}

/// Returns the core's description, with `changes`, without caches and memory.
fn bare(changes: &[(&str, &str)]) -> CoreDescription {
    let mut d = described(changes);
    (d.l1i, d.l1d, d.l2, d.memory) = (None, None, None, None);
    (d.prefetch_l1d, d.prefetch_l2) = Default::default();
    d
}

fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Returns the cycles that `times` repetitions of `body` take after `before`.
fn cycles(before: &[&str], body: &[&str], times: usize, d: &CoreDescription, data: &[u8]) -> f64 {
    let of = |times: usize| {
        let repeated = (0..times).flat_map(|_| lines(body));
        timed(&lines(before).into_iter().chain(repeated).collect::<Vec<_>>(), d, data).cycles()
    };
    of(2 * times) - of(times)
}

fn about(found: f64, wanted: f64, what: &str) {
    assert!((found / wanted - 1.0).abs() < 0.01, "{what}: {found} cycles, {wanted} by hand");
}

const E32: &[&str] = &["vsetvli t0, zero, e32, m1, ta, ma"];
const FOUR: [&str; 4] = ["vadd.vv v1, v8, v9", "vadd.vv v2, v8, v9", "vadd.vv v3, v8, v9", "vadd.vv v4, v8, v9"];

#[test]
fn one_operation_of_the_datapath_a_cycle() {
    let d = bare(&[]);
    about(cycles(E32, &FOUR, 50, &d, &[]), 200.0, "independent additions");
    about(cycles(E32, &["vadd.vv v1, v1, v9"], 50, &d, &[]), 200.0, "a chain of latency 4");
    about(cycles(E32, &["vmul.vv v1, v1, v9"], 50, &d, &[]), 250.0, "a chain of latency 5");
    about(cycles(E32, &["vadd.vv v1, v8, v9", "addi t1, t1, 1"], 50, &d, &[]), 50.0, "a scalar one beside each");
    about(cycles(E32, &["vdivu.vv v1, v8, v9"], 20, &d, &[]), 400.0, "the divider is not pipelined");
    about(cycles(E32, &["vmseq.vv v0, v8, v9", "vcpop.m t1, v0", "add t2, t2, t1"], 50, &d, &[]), 350.0, "4 + 3");
}

#[test]
fn elements_that_do_not_fit_take_further_cycles() {
    let grouped = ["vsetvli t0, zero, e32, m4, ta, ma"];
    let body = ["vadd.vv v4, v12, v16", "vadd.vv v8, v12, v16"];
    about(cycles(&grouped, &body, 50, &bare(&[]), &[]), 400.0, "four registers in four cycles");
    let half = bare(&[("vector.datapath_bits", "128")]);
    about(cycles(E32, &FOUR, 50, &half, &[]), 400.0, "half a register a cycle");
    about(cycles(E32, &["vle32.v v1, (a0)"], 50, &half, &[]), 100.0, "and as much from memory");
    let few = ["vsetivli t0, 3, e32, m1, ta, ma"];
    about(cycles(&few, &FOUR, 50, &half, &[]), 200.0, "three elements fit");
    let strided = ["vlse32.v v1, (a0), t3"];
    about(cycles(E32, &strided, 50, &bare(&[]), &[]), 400.0, "eight elements of their own addresses");
    let wide = ["vwadd.vv v2, v8, v9"];
    about(cycles(E32, &wide, 50, &bare(&[]), &[]), 100.0, "sums of 64 bits");
}

/// Instructions that describe stream 0 (4096 signed values of 8 bits at `a0`) and unpack its first values.
const STREAM: [&str; 4] = ["lui t1, 1", "addi t2, zero, 136", "frstream 0, a0, t1, t2", "vunpack v1, 0, zero"];

#[test]
fn aligning_is_a_step_of_the_pipeline() {
    let data = vec![3u8; 8192];
    let before = |more: &'static str| [&STREAM[..], &[more]].concat();
    let cleared = before("varve.sub.vv v2, v1, v1");
    about(cycles(&cleared, &["varve.and.vv v2, v1, v2"], 50, &bare(&[]), &data), 250.0, "4 cycles and 1 to align");
    let slow = bare(&[("vector.t_align", "3")]);
    about(cycles(&cleared, &["varve.and.vv v2, v1, v2"], 50, &slow, &data), 350.0, "4 cycles and 3 to align");
    let independent = ["varve.add.vv v2, v1, v1", "varve.add.vv v3, v1, v1"];
    about(cycles(&cleared, &independent, 50, &bare(&[]), &data), 100.0, "it is pipelined");
}

#[test]
fn the_share_of_bits_that_carry_values() {
    let efficiency = |changes: &[(&str, &str)], before: &[&str], body: &str, data: &[u8]| {
        let all: Vec<&str> = before.iter().copied().chain([body]).collect();
        let report = timed(&lines(&all), &bare(changes), data);
        (report.vector.elements, report.vector.efficiency())
    };
    // 3 has 3 bits in two's complement, and a sum of two has 4.
    let data = vec![3u8; 8192];
    let add = "varve.add.vv v2, v1, v1";
    assert_eq!(efficiency(&[], &STREAM, add, &data), (32, 0.5), "32 elements of 4 bits, aligned to 8");
    assert_eq!(efficiency(&[("vector.align_bits", "4")], &STREAM, add, &data), (64, 1.0));
    assert_eq!(efficiency(&[("vector.align_bits", "16")], &STREAM, add, &data), (16, 0.25));
    let fixed = ["vsetvli t0, zero, e32, m1, ta, ma", "vmv.v.i v1, 3"];
    let (elements, found) = efficiency(&[], &fixed, "vadd.vv v2, v1, v1", &data);
    // The move has 8 elements of 3 bits, the sum 8 of 4 bits, both in 256 bits.
    assert_eq!((elements, found), (16, (8.0 * 3.0 + 8.0 * 4.0) / 512.0));
}

/// Returns instructions that read a stream of `pages` times 4096 values of 8 bits, 32 at a time.
fn reading(pages: u64) -> Vec<String> {
    let mut text = vec![format!("lui t1, {pages}"), format!("lui t4, {pages}")];
    text.extend(lines(&[
        "addi t2, zero, 136",
        "addi t3, zero, 32",
        "frstream 0, a0, t1, t2",
        "vunpack v1, 0, zero",
        "crstream 0, t3",
        "addi t4, t4, -32",
        "bne t4, zero, . - 12",
    ]));
    text
}

#[test]
fn lines_of_a_stream_are_fetched_ahead() {
    let data: Vec<u8> = vec![127; 256 << 10];
    let changed = |lines: &str, t_line: &str| {
        let changes = [
            ("vector.unpack_lines", lines),
            ("memory.t_line", t_line),
            ("prefetch_l2", "none"),
            ("l2", "none"),
            ("l1i", "none"),
            ("vector.unpack_bits", "0"),
            ("vector.t_unpack", "0"),
        ];
        let d = described(&changes);
        timed(&reading(64), &d, &data).cycles()
    };
    let lines = f64::from(256 << 10) / 64.0;
    // Each line of 64 values takes two rounds; the memory's latency is 120 cycles.
    let rounds = changed("0", "4") - lines * 120.0;
    let unhidden = rounds / (2.0 * lines);
    assert!((4.0..=8.0).contains(&unhidden), "{unhidden} cycles a round of four instructions");
    about(changed("64", "4"), rounds, "latency is hidden: the instructions bound");
    about(changed("64", "40"), lines * 40.0, "the memory's rate bounds");
    // The next line is requested before the core waits for this one: two lines arrive in the time of one.
    about(changed("1", "4"), (lines * 120.0 + rounds) / 2.0, "one line ahead");
}

#[test]
fn unpacking_has_a_rate_and_a_latency() {
    let data: Vec<u8> = vec![127; 64 << 10];
    let of = |changes: &[(&str, &str)]| timed(&reading(16), &bare(changes), &data).cycles();
    let values = f64::from(64 << 10);
    let free = of(&[("vector.unpack_bits", "0")]);
    about(of(&[("vector.unpack_bits", "8")]), values, "a value a cycle");
    about(of(&[("vector.unpack_bits", "32")]), values / 4.0, "four values a cycle");
    about(of(&[("vector.unpack_bits", "256")]), free, "as fast as they are used");
    let late = of(&[("vector.unpack_bits", "0"), ("vector.unpack_lines", "0"), ("vector.t_unpack", "7")]);
    about(late - free, values / 32.0 * 7.0, "each instruction unpacks for itself");
}

#[test]
fn vector_loads_go_through_the_caches() {
    let mut text = lines(&["lui t1, 16", "vsetvli t0, zero, e8, m1, ta, ma", "vle8.v v1, (a0)"]);
    text.extend(lines(&["addi a0, a0, 32", "addi t1, t1, -32", "bne t1, zero, . - 12"]));
    let changes = [("prefetch_l2", "none"), ("l2", "none"), ("l1i", "none")];
    let report = timed(&text, &described(&changes), &[]);
    let lines = (64 << 10) / 64;
    assert_eq!(report.memory.lines_read, lines);
    assert_eq!(report.frozen.data.memory, lines * 120);
    let l1d = report.caches[1].unwrap();
    assert_eq!((l1d.reads, l1d.read_misses), (2 * lines, lines));
}
