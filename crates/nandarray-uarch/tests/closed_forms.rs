//! Promise: pipelines and caches take the ticks that hand-computed sequences and closed forms give.

mod common;

use common::{bare, run, timed};
use nandarray_uarch::{CacheDescription, CoreDescription, MemoryDescription, PrefetchKind, Replacement, TimedCore};

fn repeat(line: &str, times: usize) -> Vec<&str> {
    vec![line; times]
}

#[test]
fn hazards_of_the_five_stage_pipeline() {
    let d = bare("five-stage");
    let cycles = |lines: &[&str]| timed(lines, &d).cycles();
    let jump = cycles(&[]);
    assert_eq!(jump, 2.0, "a return");
    assert_eq!(cycles(&repeat("addi t0, t0, 1", 50)) - jump, 50.0, "dependent additions are forwarded");
    assert_eq!(cycles(&["ld t0, 0(a0)", "addi t1, t0, 1"]) - jump, 3.0, "load-use: one bubble");
    assert_eq!(cycles(&["ld t0, 0(a0)", "addi t2, t3, 1", "addi t1, t0, 1"]) - jump, 3.0, "filled");
    assert_eq!(cycles(&["mul t0, t1, t2", "addi t1, t0, 1"]) - jump, 4.0, "a product after three cycles");
    assert_eq!(cycles(&["mul t0, t1, t2", "mul t3, t1, t2"]) - jump, 2.0, "the multiplier is pipelined");
    assert_eq!(cycles(&repeat("div t0, t1, t2", 5)) - jump, 81.0, "the divider is not: 4 x 20, then one issue");
    let taken = ["addi t0, zero, 10", "addi t0, t0, -1", "bne t0, zero, . - 4"];
    assert_eq!(cycles(&taken) - jump, 1.0 + 10.0 * 2.0 + 9.0 * 2.0, "nine of ten branches are taken");
}

#[test]
fn the_blocking_core_adds_constants() {
    let d = bare("zou-2023");
    let report = timed(&["ld t0, 0(a0)", "addi t1, t0, 1", "mul t1, t1, t1", "sd t1, 0(a0)"], &d);
    assert_eq!(report.ticks, 4 + 2 + 2 + 4 + 2);
    assert_eq!(report.ticks * report.tick_ps, 14 * 500);
    let loops = ["addi t0, zero, 100", "addi t0, t0, -1", "bne t0, zero, . - 4"];
    assert_eq!(timed(&loops, &d).ticks, 2 + 100 * 4 + 2, "branches cost nothing more");
}

#[test]
fn two_instructions_a_cycle_if_nothing_stands_between_them() {
    let d = bare("ex5");
    let cycles = |lines: &[&str]| timed(lines, &d).cycles();
    let base = cycles(&["addi t0, zero, 0", "addi t1, zero, 0"]);
    let pairs: Vec<&str> = ["addi t0, zero, 1", "addi t1, zero, 1"].repeat(21);
    assert_eq!(cycles(&pairs) - base, 20.0);
    let chain = repeat("addi t0, t0, 1", 42);
    assert_eq!(cycles(&chain) - base, 40.0, "a chain goes one by one; the return shares its last cycle");
    let loads: Vec<&str> = ["ld t0, 0(a0)", "ld t1, 8(a0)"].repeat(21);
    assert!(cycles(&loads) - base >= 40.0, "one access of memory a cycle");
}

fn cached(size_bytes: u64, prefetch: PrefetchKind) -> CoreDescription {
    let mut d = bare("five-stage");
    let cache = |size_bytes, ways, t_hit| CacheDescription {
        size_bytes,
        ways,
        line_bytes: 64,
        t_hit,
        replacement: Replacement::Lru,
    };
    (d.l1d, d.l2) = (Some(cache(size_bytes, 8, 0)), Some(cache(8 * size_bytes, 16, 10)));
    d.memory = Some(MemoryDescription { t_access: 60, t_line: 8 });
    d.prefetch_l1d = prefetch;
    d
}

/// Returns the instructions of a loop that loads from `bytes` bytes with a stride, `rounds` times.
fn walk(bytes: u64, stride: u64, rounds: u64) -> Vec<String> {
    let mut lines = vec![format!("lui t3, {}", (bytes >> 12).max(1)), format!("addi t4, zero, {rounds}")];
    let body = [
        "addi t0, a0, 0".to_owned(),
        "add t1, a0, t3".to_owned(),
        "ld t2, 0(t0)".to_owned(),
        format!("addi t0, t0, {stride}"),
        "bltu t0, t1, . - 8".to_owned(),
        "addi t4, t4, -1".to_owned(),
        "bne t4, zero, . - 24".to_owned(),
    ];
    lines.extend(body);
    lines
}

fn walked(bytes: u64, stride: u64, rounds: u64, d: &CoreDescription) -> nandarray_uarch::CoreReport {
    let lines = walk(bytes, stride, rounds);
    timed(&lines.iter().map(String::as_str).collect::<Vec<_>>(), d)
}

#[test]
fn walks_stall_for_the_level_that_holds_them() {
    let d = cached(32 << 10, PrefetchKind::None);
    // 16 KiB fit the first level: only compulsory misses, in the first round.
    let report = walked(16 << 10, 64, 4, &d);
    let [_, l1d, l2] = report.caches.map(Option::unwrap_or_default);
    assert_eq!((l1d.reads, l1d.read_misses, l2.read_misses), (1_024, 256, 256));
    assert_eq!(report.frozen.data.memory, 256 * 60);
    assert_eq!(report.frozen.data.l2, 256 * 10);
    // 128 KiB fit the second level: the first level misses in each round, memory is read in the first round only.
    let report = walked(128 << 10, 64, 3, &d);
    let [_, l1d, l2] = report.caches.map(Option::unwrap_or_default);
    assert_eq!((l1d.read_misses, l2.read_misses), (3 * 2_048, 2_048));
    assert_eq!(report.frozen.data.l2, 3 * 2_048 * 10);
    assert_eq!(report.memory.lines_read, 2_048);
    // 512 KiB fit neither level.
    let report = walked(512 << 10, 64, 2, &d);
    assert_eq!(report.memory.lines_read, 2 * 8_192);
}

/// A product of two matrices of 64 x 64 words, which fit the cache with their result: each line is missed once.
#[test]
fn a_matrix_product_that_fits_misses_each_line_once() {
    let lines = [
        "lui t6, 4",
        "addi a1, a0, 0",
        "add a2, a0, t6",
        "add a3, a2, t6",
        "addi t3, zero, 64",
        "addi a4, a2, 0",
        "addi t0, a1, 0",
        "addi t1, a4, 0",
        "addi t5, zero, 0",
        "addi a5, a1, 256",
        "lw t2, 0(t0)",
        "lw t4, 0(t1)",
        "mul t2, t2, t4",
        "add t5, t5, t2",
        "addi t0, t0, 4",
        "addi t1, t1, 256",
        "bltu t0, a5, . - 24",
        "sw t5, 0(a3)",
        "addi a3, a3, 4",
        "addi a4, a4, 4",
        "addi t3, t3, -1",
        "bne t3, zero, . - 60",
        "addi a1, a1, 256",
        "bltu a1, a2, . - 76",
    ];
    let report = timed(&lines, &cached(64 << 10, PrefetchKind::None));
    let [_, l1d, _] = report.caches.map(Option::unwrap_or_default);
    let matrix = 64 * 64 * 4 / 64;
    assert_eq!((l1d.reads, l1d.writes), (2 * 64 * 64 * 64, 64 * 64));
    assert_eq!((l1d.read_misses, l1d.write_misses), (2 * matrix, matrix));
    assert_eq!(report.frozen.data.memory, 3 * matrix * 60);
}

#[test]
fn prefetched_lines_stall_for_the_rest_of_their_way() {
    let none = walked(512 << 10, 64, 1, &cached(32 << 10, PrefetchKind::None));
    for kind in [PrefetchKind::Stride, PrefetchKind::Dcpt] {
        let report = walked(512 << 10, 64, 1, &cached(32 << 10, kind));
        assert!(report.ticks < none.ticks, "{kind:?}: {} against {}", report.ticks, none.ticks);
        let lines = report.memory.lines_read + report.memory.lines_prefetched;
        assert!((8_192..8_192 + 32).contains(&lines), "{kind:?}: {lines} lines of 8192");
        // Prefetching cannot be faster than the port, which takes eight ticks for each line.
        assert!(report.ticks >= 8_192 * 8, "{kind:?}: {}", report.ticks);
    }
}

#[test]
fn a_port_of_memory_bounds_writing() {
    let d = cached(4 << 10, PrefetchKind::None);
    let lines = [
        "lui t3, 64", // 256 KiB
        "add t1, a0, t3",
        "sd zero, 0(a0)",
        "addi a0, a0, 64",
        "bltu a0, t1, . - 8",
    ];
    let report = timed(&lines, &d);
    let [_, l1d, _] = report.caches.map(Option::unwrap_or_default);
    assert_eq!((l1d.write_misses, report.memory.lines_read), (4_096, 4_096));
    // All lines were written back except the 64 that the first level holds and the other 448 of the second level's 512.
    assert_eq!(report.memory.lines_written + 512, 4_096);
}

#[test]
fn a_loop_of_a_vliw_core_runs_at_its_interval() {
    let d = bare("c66x");
    // Per iteration: two loads, a product and a sum in floating point, three integer operations, one branch. The sum
    // feeds the next iteration's sum: RecMII (the bound of recurrences) is the sum's latency of three cycles.
    let iteration = |n: u32| {
        vec![
            format!("addi t0, zero, {n}"),
            "fld ft0, 0(a0)".to_owned(),
            "fld ft1, 8(a0)".to_owned(),
            "fmul.d ft2, ft0, ft1, rne".to_owned(),
            "fadd.d ft3, ft3, ft2, rne".to_owned(),
            "addi a0, a0, 16".to_owned(),
            "addi t0, t0, -1".to_owned(),
            "bne t0, zero, . - 24".to_owned(),
        ]
    };
    let cycles = |n: u32| {
        let lines = iteration(n);
        timed(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &d).cycles()
    };
    assert_eq!(cycles(200) - cycles(100), 300.0, "RecMII is 3");
    // Independent products (the bound of resources): six products on two multipliers take three cycles.
    let lines: Vec<String> = std::iter::once("addi t0, zero, 100".to_owned())
        .chain((0..6).map(|i| format!("fmul.d ft{i}, fa0, fa1, rne")))
        .chain(["addi t0, t0, -1".to_owned(), "bne t0, zero, . - 28".to_owned()])
        .collect();
    let report = timed(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &d);
    assert!((report.cycles() - 300.0).abs() < 20.0, "ResMII is 3: {}", report.cycles());
}

/// Returns the cycles of an iteration of a loop, of which the instructions are given without counting and branching.
fn cycles_an_iteration(body: &[&str], d: &CoreDescription) -> f64 {
    let cycles = |n: u32| {
        let bytes = 4 * (body.len() + 1);
        let lines: Vec<String> = [format!("addi t0, zero, {n}")]
            .into_iter()
            .chain(body.iter().map(|&line| line.to_owned()))
            .chain(["addi t0, t0, -1".to_owned(), format!("bne t0, zero, . - {bytes}")])
            .collect();
        timed(&lines.iter().map(String::as_str).collect::<Vec<_>>(), d).cycles()
    };
    (cycles(200) - cycles(100)) / 100.0
}

#[test]
fn a_loop_longer_than_a_block_runs_at_its_interval_too() {
    let d = bare("c66x");
    for products in [60, 70, 200] {
        // Independent products on two multipliers.
        let body = vec!["fmul.d ft0, fa0, fa1, rne"; products];
        assert_eq!(cycles_an_iteration(&body, &d), products as f64 / 2.0, "{products} products");
    }
    // A recurrence through all blocks: each sum takes three cycles.
    let body = vec!["fadd.d ft0, ft0, fa1, rne"; 100];
    assert_eq!(cycles_an_iteration(&body, &d), 300.0);
    // A jump in the body: two blocks, which are no straight loop, are scheduled one after the other.
    let chain = ["fmul.d ft0, fa0, fa1, rne", "fmul.d ft1, ft0, fa1, rne", "fmul.d ft2, ft1, fa1, rne"];
    assert_eq!(cycles_an_iteration(&[chain, chain].concat(), &d), 3.0);
    assert!(cycles_an_iteration(&[&chain[..], &["jal zero, . + 4"], &chain[..]].concat(), &d) > 15.0);
}

#[test]
fn a_core_without_fused_operations_multiplies_and_adds() {
    let d = bare("c66x");
    // Eight fused operations: eight products on two units, eight sums on four, and sixteen slots of eight a cycle, with
    // the loop's own two instructions eighteen.
    assert_eq!(cycles_an_iteration(&["fmadd.s ft0, fa0, fa1, fa2, rne"; 8], &d), 4.0);
    // With fourteen other operations of general units, 24 in all for four units.
    let body = [vec!["fmadd.s ft0, fa0, fa1, fa2, rne"; 8], vec!["add t1, t2, t3"; 14]].concat();
    assert_eq!(cycles_an_iteration(&body, &d), 6.0);
    let mut one = d.clone();
    one.vliw.as_mut().expect("units").fused = true;
    assert_eq!(cycles_an_iteration(&body, &one), 4.0);
    // The addend of the next iteration waits for the sum alone, a factor for both.
    assert_eq!(cycles_an_iteration(&["fmadd.s ft0, fa0, fa1, ft0, rne"], &d), 3.0);
    assert_eq!(cycles_an_iteration(&["fmadd.s ft0, ft0, fa1, fa2, rne"], &d), 7.0);
    assert_eq!(cycles_an_iteration(&["fmadd.s ft0, fa0, fa1, ft0, rne"], &one), 7.0);
}

#[test]
fn pairs_of_single_precision_share_a_unit() {
    let mut d = bare("c66x");
    d.vliw.as_mut().expect("units").simd_pairs = true;
    for (op, alone, paired) in [
        ("fmul.s ft0, fa0, fa1, rne", 8.0, 4.0),
        ("flw ft0, 0(a0)", 8.0, 4.0),
        ("fmul.d ft0, fa0, fa1, rne", 8.0, 8.0),
        ("fld ft0, 0(a0)", 8.0, 8.0),
    ] {
        let body = vec![op; 16];
        assert_eq!(cycles_an_iteration(&body, &d), paired, "{op}");
        assert_eq!(cycles_an_iteration(&body, &bare("c66x")), alone, "{op}");
    }
}

#[test]
fn a_long_loop_that_limits_cut_has_a_reason_for_every_tick() {
    let d = bare("c66x");
    let lines: Vec<String> = ["addi t0, zero, 40".to_owned()]
        .into_iter()
        .chain(vec!["fmul.d ft0, fa0, fa1, rne".to_owned(); 150])
        .chain(["addi t0, t0, -1".to_owned(), "bne t0, zero, . - 604".to_owned(), "jalr zero, 0(ra)".to_owned()])
        .collect();
    let ticks = |chunk| {
        let hart = run(&lines, TimedCore::new(&d), chunk);
        let meter = hart.meter();
        assert_eq!(meter.addresses().values().map(|found| found.total()).sum::<u64>(), meter.ticks());
        assert_eq!(meter.report().instructions(), 40 * 152 + 2);
        meter.ticks()
    };
    let whole = ticks(None);
    for chunk in [1, 7, 64, 65, 100, 152, 1000] {
        // Instructions timed one by one are no part of a software-pipelined loop.
        assert!(ticks(Some(chunk)) >= whole, "cut after {chunk}");
    }
}
