//! Every key reaches its own field of the resolved description, and no other: two values of a key give descriptions
//! that differ in that field alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::describe::{ComputeParts, Sheet};
use crate::describe::{KEYS, Key};
use crate::describe::{Value, ValueKind};
use nandarray_sim::Ps;

/// Times of a core's memory, which is the device's DRAM.
const T_ACCESS: &str = "compute.core.memory.t_access";
const T_LINE: &str = "compute.core.memory.t_line";

/// Fields whose names do not follow from their keys by a unit: the key, and the fields that depend on it.
const FIELDS: &[(&str, &[&str])] = &[
    ("nand.cell", &["nand.cell", "nand.t_read", "nand.t_program"]),
    ("nand.one_shot", &["nand.one_shot", "nand.t_program"]),
    ("reliability.ecc_codeword_size", &["reliability.ecc_codeword_bytes"]),
    ("compute.clock", &["compute.clock_hz", "compute.core.tick_ps", T_ACCESS, T_LINE]),
    ("dram.rate", &["dram.bytes_per_s", T_ACCESS, T_LINE]),
    ("dram.t_access", &["dram.t_access", T_ACCESS]),
    ("compute.isa", &["compute.checks_isa"]),
    ("compute.crossbar_rate", &["compute.crossbar_bytes_per_s"]),
    ("ftl.striping", &["ftl.striping.static", "ftl.striping.dynamic"]),
    ("ftl.map_cache", &["ftl.map_cache_bytes"]),
    ("ftl.write_cache", &["ftl.write_cache_bytes"]),
    ("ftl.gc", &["ftl.gc", "ftl.gc.d-choices", "ftl.gc.windowed-greedy"]),
    ("ftl.gc_choices", &["ftl.gc.d-choices"]),
    ("dram.size", &["dram.bytes", "energy.dram_idle_uw"]),
    ("link.packet_payload", &["link.packet_payload_bytes"]),
    ("link.packet_overhead", &["link.packet_overhead_bytes"]),
    ("link.entries", &["link.entries_ahead"]),
    (
        "host.arbitration",
        &[
            "host.arbitration.round-robin.burst",
            "host.arbitration.weighted.burst",
            "host.arbitration.weighted.weights",
            "host.arbitration.weighted.classes",
        ],
    ),
    ("host.arbitration_burst", &["host.arbitration.weighted.burst"]),
    ("host.arbitration_weights", &["host.arbitration.weighted.weights"]),
    ("host.queue_classes", &["host.arbitration.weighted.classes"]),
    ("host.composes", &["host.composes_commands"]),
    ("host.transfer_max", &["host.transfer_max_bytes"]),
    ("energy.dram_idle_gib", &["energy.dram_idle_uw"]),
    ("power.idle", &["idle_states.power_uw"]),
    ("power.idle_after", &["idle_states.t_after"]),
    ("power.exit", &["idle_states.t_exit"]),
    ("spec.seq_read", &["spec.seq_read_bytes_per_s"]),
    ("spec.seq_write", &["spec.seq_write_bytes_per_s"]),
];

/// Returns the fields that a key may change, without numbers of entries of lists.
fn fields(key: &Key) -> BTreeSet<String> {
    if let Some((_, fields)) = FIELDS.iter().find(|(path, _)| *path == key.path) {
        return fields.iter().map(|field| (*field).to_owned()).collect();
    }
    let (section, name) = (key.section, key.name);
    if let Some(part) = name.strip_suffix("_power").filter(|part| ComputeParts::NAMES.contains(part)) {
        let nth = ComputeParts::NAMES.iter().position(|other| *other == part).unwrap();
        // Powers of parts take the place of the cores' own.
        return [format!("parts.power_uw.{nth}"), "core_active_uw".into(), "core_idle_uw".into()]
            .map(|field| format!("compute.{field}"))
            .into();
    }
    if let Some(part) = name.strip_suffix("_mm2") {
        let nth = ComputeParts::NAMES.iter().position(|other| *other == part).unwrap();
        return [format!("compute.parts.area_mm2.{nth}")].into();
    }
    let field = match key.kind {
        ValueKind::Size(..) | ValueKind::SizeOr(..) => match name.strip_suffix("_size").unwrap_or(name) {
            "burst" => "burst_bytes".to_owned(),
            stem => format!("{stem}_bytes"),
        },
        ValueKind::Rate(..) | ValueKind::RateOr(..) => name.replace("rate", "bytes_per_s"),
        ValueKind::Energy(..) => format!("{name}_pj"),
        ValueKind::EnergyPerByte(..) => name.replace("byte", "pj_per_byte"),
        ValueKind::Power(..) | ValueKind::PowerOr(..) => format!("{name}_uw"),
        _ => name.to_owned(),
    };
    [format!("{section}.{field}")].into()
}

/// Returns a description in which every key matters: timed cores with vectors, weighted queues, idle states, a data
/// sheet.
fn rich() -> Sheet {
    let changes = [
        ("nand.t_read", "40 us"),
        ("nand.t_program", "300 us"),
        ("nand.t_cache_read_busy", "3 us"),
        ("nand.t_cache_program_busy", "3 us"),
        ("reliability.ecc_codeword_size", "1 KiB"),
        ("compute.core", "zou-2023-varve"),
        ("compute.core.stream_pages", "4"),
        ("compute.core.streams", "4"),
        ("compute.read_ahead", "8"),
        ("ftl.gc", "d-choices"),
        ("ftl.write_cache", "1 MiB"),
        ("host.arbitration", "weighted"),
        ("host.queue_classes", "[1, 0, 0, 0]"),
        ("energy.read", "1 nJ"),
        ("energy.program", "2 nJ"),
        ("energy.erase", "3 nJ"),
        ("energy.ecc", "4 pJ"),
        ("energy.dram_idle", "by size"),
        ("energy.dram_idle_gib", "100 mW"),
        ("power.idle", "[1 W, 10 mW]"),
        ("power.idle_after", "[1 ms, 5 ms]"),
        ("power.exit", "[10 us, 20 us]"),
        ("spec.power", "5 W"),
    ];
    Sheet::preset("tiny").unwrap().with(changes.map(|(key, value)| (key, Value::from_bare(value)))).unwrap()
}

/// Returns values of a key to try, in and about the middle of its range.
fn candidates(kind: ValueKind) -> Vec<Value> {
    let whole = |min: u64, max: u64| -> Vec<u64> {
        let mut all: Vec<u64> = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 32, 64, 128, 256, 512, 513].to_vec();
        all.extend((10..42).map(|bits| 1 << bits));
        all.retain(|n| (min..=max).contains(n));
        all
    };
    let text = |all: Vec<u64>, unit: &str| all.into_iter().map(|n| Value::Text(format!("{n} {unit}"))).collect();
    let times = |min: Ps, max: Ps| text(whole(min.0, max.0), "ps");
    match kind {
        ValueKind::Count(min, max) | ValueKind::CountOrNone(min, max) => {
            whole(min, max).into_iter().map(|n| Value::Whole(n as i64)).collect()
        }
        ValueKind::Real(min, max) | ValueKind::Share(min, max) => {
            [0.1, 0.2, 0.3, 0.5].map(|share| Value::Real(min + share * (max - min))).to_vec()
        }
        ValueKind::Time(min, max) | ValueKind::TimeOrNone(min, max) | ValueKind::Times(min, max) => times(min, max),
        ValueKind::Size(min, max) | ValueKind::SizeOr(_, min, max) => text(whole(min, max), "B"),
        ValueKind::Frequency(min, max) => text(whole(min, max), "Hz"),
        ValueKind::Rate(min, max) | ValueKind::RateOr(_, min, max) => text(whole(min, max), "B/s"),
        ValueKind::Energy(..) => text(vec![5, 70], "pJ"),
        ValueKind::EnergyPerByte(..) => text(vec![5, 70], "pJ/B"),
        ValueKind::Power(..) | ValueKind::PowerOr(..) => text(vec![5, 70], "uW"),
        ValueKind::List(ValueKind::Power(..), _) => {
            ["[900 mW, 10 mW]", "[900 mW, 20 mW]"].map(Value::from_bare).to_vec()
        }
        ValueKind::List(..) => ["[1 ms, 6 ms]", "[1 ms, 7 ms]", "[2 ms, 7 ms]"].map(Value::from_bare).to_vec(),
        ValueKind::Flag => [true, false].map(Value::Flag).to_vec(),
        ValueKind::Word(words) => words.iter().map(|word| Value::from(*word)).collect(),
        ValueKind::Striping => ["static CWDP", "static PWDC", "dynamic CWDP"].map(Value::from).to_vec(),
        ValueKind::Counts(3, ..) => ["[1, 2, 3]", "[3, 2, 1]"].map(Value::from_bare).to_vec(),
        ValueKind::Counts(..) => ["[1, 0, 0, 0]", "[1, 1, 0, 1]"].map(Value::from_bare).to_vec(),
        ValueKind::Text | ValueKind::Table | ValueKind::Of(_) => panic!("{kind:?} is a core's"),
        ValueKind::Cores(_) => ["[0, 1, 2, 3, 0]", "[0, 1, 2, \"none\", 0]"].map(Value::from_bare).to_vec(),
    }
}

/// Flattens a resolved description to its leaves; the entries of a list of parts keep their numbers.
fn leaves(json: &Json, path: &str, found: &mut BTreeMap<String, Vec<Json>>) {
    match json {
        Json::Object(map) => map.iter().for_each(|(key, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            leaves(value, &format!("{path}{dot}{key}"), found);
        }),
        Json::Array(all) if path.starts_with("compute.parts.") => {
            (0..).zip(all).for_each(|(n, value)| leaves(value, &format!("{path}.{n}"), found));
        }
        Json::Array(all) if all.first().is_some_and(Json::is_object) => {
            all.iter().for_each(|value| leaves(value, path, found));
        }
        _ => found.entry(path.to_owned()).or_default().push(json.clone()),
    }
}

fn resolved(sheet: &Sheet) -> Option<BTreeMap<String, Vec<Json>>> {
    let mut found = BTreeMap::new();
    leaves(&serde_json::to_value(sheet.description().ok()?).unwrap(), "", &mut found);
    Some(found)
}

#[test]
fn every_key_changes_its_own_field_and_no_other() {
    let rich = rich();
    rich.description().unwrap_or_else(|e| panic!("{e}"));
    let mut wrong = Vec::new();
    // A core's base changes the core.
    for key in KEYS.iter().filter(|key| key.section != "compute.core") {
        let fields = fields(key);
        let variants: Vec<_> = candidates(key.kind)
            .into_iter()
            .filter_map(|value| {
                let sheet = rich.with([(key.path, value.clone())]).unwrap();
                Some((value, resolved(&sheet)?))
            })
            .take(4)
            .collect();
        if variants.len() < 2 {
            wrong.push(format!("{}: {} of its values are allowed", key.path, variants.len()));
        }
        for pair in variants.windows(2) {
            let ((a, one), (b, other)) = (&pair[0], &pair[1]);
            let all: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let changed: BTreeSet<String> =
                all.into_iter().filter(|path| one.get(*path) != other.get(*path)).cloned().collect();
            let what = format!("{} = {a} and {b}", key.path);
            if changed.is_empty() || !changed.is_subset(&fields) {
                wrong.push(format!("{what} change {changed:?}, not {fields:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The numbers of a description in the simulation's units, from values that need conversion.
#[test]
fn keys_with_rules_of_their_own_are_resolved_by_them() {
    let with = |changes: &[(&str, &str)]| {
        let sheet = rich().with(changes.iter().map(|(key, value)| (*key, Value::from_bare(value)))).unwrap();
        sheet.description().unwrap_or_else(|e| panic!("{e}"))
    };
    // One time stands for all kinds of pages.
    assert_eq!(with(&[("nand.cell", "qlc")]).nand.t_read, [Ps::from_us(40); 4]);
    assert_eq!(with(&[("nand.one_shot", "true")]).nand.t_program, [Ps::from_us(300)]);
    // A current lasts as long as its operation, by the mean over the kinds of pages.
    let d = with(&[("nand.t_read", "[20 us, 40 us]"), ("energy.read", "10 mA at 3 V"), ("energy.erase", "1 A at 2 V")]);
    assert_eq!((d.energy.read_pj, d.energy.read_command_pj), (0.0, 0.03 * 30e6));
    assert_eq!((d.energy.erase_pj, d.energy.erase_command_pj), (0.0, 2.0 * 1e9));
    let d = with(&[("energy.ecc", "50 mA at 1 V"), ("reliability.t_ecc_decode", "2 us")]);
    assert!((d.energy.ecc_pj - 0.05 * 2e6).abs() < 1e-6, "{}", d.energy.ecc_pj);
    // DRAM's power by its size: 16 MiB are a 64th of a GiB.
    assert_eq!(with(&[]).energy.dram_idle_uw, 100_000.0 / 64.0);
    assert_eq!(with(&[("energy.dram_idle", "7 mW")]).energy.dram_idle_uw, 7_000.0);
    // The crossbar is there once, other parts once a core.
    let d = with(&[("compute.pipeline_power", "3 mW"), ("compute.crossbar_power", "8 mW")]).compute.unwrap();
    assert_eq!((d.core_active_uw, d.core_idle_uw), (3_000.0 + 8_000.0 / 4.0, 3_000.0 + 8_000.0 / 4.0));
    assert_eq!(ComputeParts::sum(&[1.0; 9], 4), 8.0 * 4.0 + 1.0);
    // Words that stand for no number.
    let d = with(&[
        ("ftl.map_cache", "ideal"),
        ("ftl.write_cache", "none"),
        ("dram.rate", "ideal"),
        ("nand.t_cache_read_busy", "none"),
        ("compute.read_ahead", "none"),
        ("power.idle", "none"),
        ("power.idle_after", "none"),
        ("power.exit", "none"),
        ("spec.power", "0 W"),
    ]);
    assert_eq!((d.ftl.map_cache_bytes, d.ftl.write_cache_bytes, d.dram.bytes_per_s), (None, 0, 0));
    assert_eq!((d.nand.t_cache_read_busy, d.compute.unwrap().read_ahead), (None, 4));
    assert!(d.idle_states.is_empty() && d.spec.is_none(), "a data sheet without a figure is none");
    assert!(with(&[("compute.cores", "none")]).compute.is_none());
}
