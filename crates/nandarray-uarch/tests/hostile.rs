//! Promise: a description with any of its values replaced, removed or misspelt is refused by the value's key, or is
//! that of a core on which a program runs to its end with a reason for every tick. A larger cache with the same sets
//! never misses more, and a slower unit or memory never makes a program of a blocking core faster.

mod common;

use common::timed;
use nandarray_uarch::{CoreDescription, CoreReport, DescribeError, Issue, PRESETS, PrefetchKind};

/// Mixed work: loads, stores, branches, multiplications, divisions, floating point.
const PROGRAM: [&str; 16] = [
    "addi t0, zero, 40",
    "addi t1, a0, 0",
    "lw t2, 0(t1)",
    "mul t3, t2, t0",
    "add t4, t4, t3",
    "sw t4, 4(t1)",
    "addi t5, zero, 7",
    "divu t6, t4, t5",
    "fcvt.s.w fa0, t6",
    "fadd.s fa1, fa0, fa0",
    "fmul.s fa2, fa1, fa0",
    "fsw fa2, 8(t1)",
    "xor t4, t4, t2",
    "addi t1, t1, 132",
    "addi t0, t0, -1",
    "bne t0, zero, . - 52",
];

fn check(report: &CoreReport, context: &str) {
    assert!(report.ticks > 0 && report.instructions() >= 500, "{context}: {report:?}");
}

/// The places of all values of a table, as keys from the root.
fn leaves(table: &toml::Table, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        at.push(key.clone());
        match value {
            toml::Value::Table(inner) => leaves(inner, at, found),
            _ => found.push(at.clone()),
        }
        at.pop();
    }
}

fn value_at<'t>(table: &'t toml::Table, place: &[String]) -> &'t toml::Value {
    let (last, way) = place.split_last().unwrap();
    &way.iter().fold(table, |table, key| table[key].as_table().unwrap())[last]
}

/// Returns the text with one value replaced, or removed.
fn with(table: &toml::Table, place: &[String], value: Option<toml::Value>) -> String {
    let mut changed = table.clone();
    let (last, way) = place.split_last().unwrap();
    let inner = way.iter().fold(&mut changed, |table, key| table.get_mut(key).unwrap().as_table_mut().unwrap());
    match value {
        Some(value) => drop(inner.insert(last.clone(), value)),
        None => drop(inner.remove(last)),
    }
    changed.to_string()
}

#[test]
fn any_value_is_refused_by_its_key_or_makes_a_core_that_works() {
    let (mut refused, mut worked) = (0, 0);
    for (name, text) in PRESETS {
        let table: toml::Table = text.parse().unwrap();
        let mut places = Vec::new();
        leaves(&table, &mut Vec::new(), &mut places);
        for place in places {
            let integers = [-1, 0, 1, 2, 3, 7, 64, 4_096, 4_097, 1 << 20, i64::from(u32::MAX), 1 << 34, i64::MAX];
            let others = [toml::Value::from("x"), toml::Value::from(1.5), toml::Value::from(true)];
            let values = integers.into_iter().map(toml::Value::from).chain(others).map(Some).chain([None]);
            for value in values {
                let context = format!("{name}: {} = {value:?}", place.join("."));
                let changed = with(&table, &place, value);
                match CoreDescription::parse(&changed) {
                    Err(DescribeError::Range { .. }) => refused += 1,
                    Err(DescribeError::Syntax(why)) => {
                        assert!(!why.is_empty(), "{context}");
                        refused += 1;
                    }
                    Err(other) => panic!("{context}: {other}"),
                    // Widths of registers and units of vectors are other tests': these programs need neither.
                    Ok(core) if place[0] != "isa" => {
                        check(&timed(&PROGRAM, &core), &context);
                        worked += 1;
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    assert!(refused > 1_000 && worked > 500, "{refused} were refused, {worked} worked");
}

#[test]
fn misspelt_keys_are_refused() {
    for (name, text) in PRESETS {
        let table: toml::Table = text.parse().unwrap();
        let mut places = Vec::new();
        leaves(&table, &mut Vec::new(), &mut places);
        for mut place in places {
            let last = place.last_mut().unwrap();
            last.push('x');
            let changed = with(&table, &place, Some(toml::Value::from(1)));
            let error = CoreDescription::parse(&changed).expect_err(&format!("{name}: {}", place.join(".")));
            assert!(error.to_string().contains(place.last().unwrap()), "{error}");
        }
    }
}

fn lru(name: &str) -> CoreDescription {
    let mut core = CoreDescription::preset(name).unwrap();
    (core.prefetch_l1d, core.prefetch_l2) = (PrefetchKind::None, PrefetchKind::None);
    core
}

/// Least-recently-used caches have the stack property: with the same sets, more ways hold whatever fewer ways hold.
#[test]
fn more_ways_never_miss_more() {
    for name in ["zou-2023", "five-stage", "c66x"] {
        let core = lru(name);
        let Some(l1d) = core.l1d else { continue };
        let mut last = u64::MAX;
        for ways in [1u32, 2, 4, 8] {
            let mut changed = core.clone();
            let sets = 4;
            let size_bytes = u64::from(l1d.line_bytes) * u64::from(ways) * sets;
            changed.l1d = Some(nandarray_uarch::CacheDescription { size_bytes, ways, ..l1d });
            changed.check().unwrap();
            let report = timed(&walks(), &changed);
            let misses = report.caches[1].expect("a data cache").misses();
            assert!(misses <= last, "{name}: {misses} misses with {ways} ways, {last} with half as many");
            last = misses;
        }
    }
}

/// Walks over lines at several distances, some of which meet in a set.
fn walks() -> Vec<&'static str> {
    let walk = ["lw t0, 0(a0)", "lw t1, 256(a0)", "lw t2, 1024(a0)", "sw t1, 512(a0)", "lw t0, 64(a0)"];
    let mut lines: Vec<&str> = walk.to_vec();
    for _ in 0..6 {
        lines.push("addi a0, a0, 128");
        lines.extend(walk);
        lines.push("addi a0, a0, -64");
        lines.extend(walk.iter().rev());
    }
    lines
}

#[test]
fn a_slower_part_never_makes_a_blocking_core_faster() {
    for (name, text) in PRESETS {
        let core = lru(name);
        if core.issue != Issue::Blocking {
            continue;
        }
        let before = timed(&PROGRAM, &core).ticks;
        let table: toml::Table = text.parse().unwrap();
        let mut places = Vec::new();
        leaves(&table, &mut Vec::new(), &mut places);
        let slow = |place: &[String]| {
            let key = place.last().unwrap();
            key.starts_with("t_") || place[0] == "latency"
        };
        for place in places.iter().filter(|place| slow(place)) {
            let Some(value) = value_at(&table, place).as_integer() else { continue };
            let changed = with(&table, place, Some(toml::Value::from(value + 3)));
            let Ok(mut slower) = CoreDescription::parse(&changed) else { continue };
            (slower.prefetch_l1d, slower.prefetch_l2) = (PrefetchKind::None, PrefetchKind::None);
            let after = timed(&PROGRAM, &slower).ticks;
            assert!(after >= before, "{name}: {} makes {after} ticks of {before}", place.join("."));
        }
    }
}
