//! A core that shares a memory with no other takes the ticks of a core with a memory of its own: every pause,
//! however it divides a block, leaves the pipeline where it was.

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Rv64, Stop, Streams};
use nandarray_uarch::{CacheDescription, CoreDescription, CoreReport, MemoryDescription, Replacement, TimedCore};
use proptest::prelude::*;

use super::common::{CODE, DATA, DATA_BYTES, assemble, bare, memory};

/// Runs lines to their end; the port of a core with shared memory is served as the description's own would be.
fn finished(lines: &[String], d: &CoreDescription, core: TimedCore, chunk: Option<u64>) -> CoreReport {
    let code = assemble(lines);
    let mut memory = memory(&code);
    let extensions = Extensions::PROGRAM.with_vectors_of(d.extensions().1);
    let mut hart = Hart::<Rv64, _>::with_meter(HartMode::Program, extensions, core);
    hart.call(CODE, DATA + DATA_BYTES, &[DATA]);
    let port = d.memory.expect("a memory");
    let mut free = 0;
    loop {
        match hart.run(&mut memory, &mut Streams::none(), Limits { instructions: chunk, stop: None }) {
            Stop::InstructionLimit => {}
            Stop::Returned { .. } => return hart.meter().report(),
            Stop::Paused => {
                let meter = hart.meter_mut();
                let request = meter.request();
                let mut there = request.at;
                for _ in &request.write_backs {
                    free = request.at.max(free) + u64::from(port.t_line);
                }
                for _ in &request.wanted {
                    let start = request.at.max(free);
                    free = start + u64::from(port.t_line);
                    there = start + u64::from(port.t_access);
                }
                meter.grant(there);
            }
            other => panic!("{other}"),
        }
    }
}

/// Compares the reports of a core with a memory of its own and of one whose memory is served.
fn same(lines: &[String], d: &CoreDescription, chunk: Option<u64>) -> Result<(), TestCaseError> {
    let own = finished(lines, d, TimedCore::new(d), chunk);
    let shared = finished(lines, d, TimedCore::shared(d), chunk);
    prop_assert_eq!(own.ticks, shared.ticks, "{} by itself, and served\n{:?}\n{:?}", own.core, own, shared);
    prop_assert_eq!((own.pipeline, own.frozen), (shared.pipeline, shared.frozen));
    prop_assert_eq!((own.caches, own.memory), (shared.caches, shared.memory));
    prop_assert_eq!((own.instructions_by_unit, own.vector), (shared.instructions_by_unit, shared.vector));
    Ok(())
}

fn instruction() -> impl Strategy<Value = String> {
    let register = || prop::sample::select(vec!["t1", "t2", "t3", "t4"]);
    prop_oneof![
        3 => (register(), register(), register()).prop_map(|(d, a, b)| format!("add {d}, {a}, {b}")),
        1 => (register(), register(), register()).prop_map(|(d, a, b)| format!("mul {d}, {a}, {b}")),
        1 => (register(), register(), register()).prop_map(|(d, a, b)| format!("divu {d}, {a}, {b}")),
        3 => (register(), 0..200u32).prop_map(|(d, i)| format!("ld {d}, {}(s2)", 8 * i)),
        3 => (register(), 0..200u32).prop_map(|(s, i)| format!("sd {s}, {}(s2)", 8 * i)),
        1 => (register(), 0..60u32).prop_map(|(d, i)| format!("amoadd.d {d}, {d}, (s{})", 2 + i % 2)),
    ]
}

fn vector() -> impl Strategy<Value = String> {
    let register = || prop::sample::select(vec!["v1", "v2", "v3", "v4"]);
    let base = || prop::sample::select(vec!["s2", "s3"]);
    prop_oneof![
        2 => (register(), register(), register()).prop_map(|(d, a, b)| format!("vadd.vv {d}, {a}, {b}")),
        1 => (register(), register(), register()).prop_map(|(d, a, b)| format!("vmul.vv {d}, {a}, {b}")),
        2 => (register(), base()).prop_map(|(d, a)| format!("vle32.v {d}, ({a})")),
        2 => (register(), base()).prop_map(|(s, a)| format!("vse32.v {s}, ({a})")),
        1 => (register(), base()).prop_map(|(d, a)| format!("vlse32.v {d}, ({a}), t5")),
        1 => base().prop_map(|a| format!("ld t1, 8({a})")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn a_memory_that_no_other_core_shares_is_ones_own(
        body in prop::collection::vec(instruction(), 1..50),
        rounds in 1..6u32,
        chunk in prop::option::of(1..60u64),
        preset in prop::sample::select(vec!["zou-2023", "ibex", "five-stage", "ex5"]),
        (ways, sets, t_hit) in (1u32..4, 0u32..4, 0u32..3),
        (t_access, t_line) in (1u32..80, 0u32..10),
    ) {
        let mut d = bare(preset);
        let size_bytes = u64::from(ways * 64) << sets;
        let replacement = if ways == 3 { Replacement::Lfsr } else { Replacement::Lru };
        d.l1d = Some(CacheDescription { size_bytes, ways, line_bytes: 64, t_hit, replacement });
        d.memory = Some(MemoryDescription { t_access, t_line });
        (d.prefetch_l1d, d.prefetch_l2) = Default::default();
        d.check().unwrap();
        let mut lines = vec![format!("addi t0, zero, {rounds}"), "addi s2, a0, 0".into(), "addi s3, a0, 512".into()];
        lines.extend(body.iter().cloned());
        let back = 4 * (body.len() + 2);
        let end = ["addi s2, s2, 192".into(), "addi t0, t0, -1".into(), format!("bne t0, zero, . - {back}")];
        lines.extend(end.into_iter().chain(["jalr zero, 0(ra)".to_owned()]));
        same(&lines, &d, chunk)?;
    }

    /// Vector loads and stores pause line by line, and go on behind the lines that they have.
    #[test]
    fn vectors_pause_line_by_line_and_lose_no_tick(
        body in prop::collection::vec(vector(), 1..24),
        rounds in 1..5u32,
        chunk in prop::option::of(1..40u64),
        (ways, sets, t_hit) in (1u32..4, 0u32..4, 0u32..3),
        (t_access, t_line) in (1u32..80, 0u32..10),
    ) {
        let mut d = bare("ex5-varve");
        let size_bytes = u64::from(ways * 64) << sets;
        let replacement = Replacement::Lru;
        d.l1d = Some(CacheDescription { size_bytes, ways, line_bytes: 64, t_hit, replacement });
        d.memory = Some(MemoryDescription { t_access, t_line });
        (d.prefetch_l1d, d.prefetch_l2) = Default::default();
        d.check().unwrap();
        let mut lines: Vec<String> = [
            "vsetvli t6, zero, e32, m1, ta, ma",
            "addi t5, zero, 72",
            "addi s2, a0, 40",
            "addi s3, a0, 512",
        ]
        .map(str::to_owned)
        .to_vec();
        lines.insert(0, format!("addi t0, zero, {rounds}"));
        lines.extend(body.iter().cloned());
        let back = 4 * (body.len() + 2);
        let end = ["addi s2, s2, 200".into(), "addi t0, t0, -1".into(), format!("bne t0, zero, . - {back}")];
        lines.extend(end.into_iter().chain(["jalr zero, 0(ra)".to_owned()]));
        same(&lines, &d, chunk)?;
    }
}
