//! Promise: a description table or metadata that is accepted means what it says, and what cannot be meant is refused by
//! the key that is wrong.
//!
//! Tables of random kernels are judged by brute force: a table may be accepted only if no screen of a microblock writes
//! rows that another one maps, whatever the number of rows and screens. Random metadata are compared with the structure
//! they were written from. Seeds are printed with each failure.

use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

use nandarray_cores::kernel::{KernelTable, MappedPart, PartWord, ScreenRule, SectionRole, share};
use nandarray_cores::{LoadError, Metadata, OutputPhase, Records};
use serde_json::{Value, json};

#[test]
fn shares_cut_rows_without_gap_or_overlap_and_evenly() {
    let mut chance = Rng::with_seed(1);
    for case in 0..3_000 {
        let rows = if case % 3 == 0 { u64::MAX - chance.u64(..1000) } else { chance.u64(..200) };
        let screens = 1 + chance.u64(..40);
        let mut end = 0;
        for screen in 0..screens {
            let own = share(rows, screen, screens);
            assert_eq!(own.start, end, "screen {screen} of {screens}, {rows} rows");
            let size = own.end - own.start;
            assert!(size == rows / screens || size == rows.div_ceil(screens), "{size} of {rows} rows");
            end = own.end;
        }
        assert_eq!(end, rows);
    }
    assert_eq!(share(0, 0, 1), 0..0);
}

#[test]
fn a_halo_reaches_as_far_as_it_says_and_not_beyond_the_section() {
    let mut chance = Rng::with_seed(2);
    for _ in 0..3_000 {
        let (rows, screens) = (chance.u64(..60), 1 + chance.u64(..12));
        let far = if chance.u64(..5) == 0 { u64::MAX } else { chance.u64(..9) };
        let halo = [chance.u64(..9), far];
        for screen in 0..screens {
            let own = share(rows, screen, screens);
            let mapped = MappedPart::Halo { rows: halo }.rows(rows, screen, screens);
            for row in 0..rows {
                let near = own.clone().any(|r| (row <= r && r - row <= halo[0]) || (row >= r && row - r <= halo[1]));
                assert_eq!(mapped.contains(&row), near, "row {row} of {rows}, screen {screen} of {screens}, {halo:?}");
            }
            assert_eq!(MappedPart::Word(PartWord::All).rows(rows, screen, screens), 0..rows);
            assert_eq!(MappedPart::Word(PartWord::Rows).rows(rows, screen, screens), own);
        }
    }
}

fn random_part(chance: &mut Rng) -> Value {
    match chance.u64(..4) {
        0 => json!("all"),
        1 | 2 => json!("rows"),
        _ => json!({"rows": [chance.u64(..2), chance.u64(..2)]}),
    }
}

/// Writes a random table of two inputs, two outputs and one microblock.
fn random_table(chance: &mut Rng) -> Value {
    let named = ["a", "b", "c", "d"];
    let parts = |chance: &mut Rng, names: &[&str]| -> Value {
        let some: Vec<&&str> = names.iter().filter(|_| chance.u64(..2) == 0).collect();
        some.into_iter().map(|name| ((*name).to_owned(), random_part(chance))).collect::<serde_json::Map<_, _>>().into()
    };
    let screens = match chance.u64(..3) {
        0 => json!(1),
        1 => json!(2 + chance.u64(..4)),
        _ => json!(named[chance.u64(..4) as usize]),
    };
    let (reads, writes) = (parts(chance, &named), parts(chance, &named[2..]));
    json!({
        "abi": 1, "name": "k", "kind": "kernel",
        "inputs": [{"name": "a", "item_bytes": 4}, {"name": "b", "item_bytes": 1}],
        "outputs": [{"name": "c", "item_bytes": 8}, {"name": "d", "item_bytes": 2, "update": true}],
        "microblocks": [{"entry": "run", "screens": screens, "reads": reads, "writes": writes}],
    })
}

/// Returns the rows that each screen writes, and those that it maps in any way, by section.
fn rows_of(table: &KernelTable, rows: &[u64], screens: u64) -> Vec<BTreeMap<usize, (Range<u64>, Range<u64>)>> {
    let block = &table.microblocks[0];
    let of = |screen: u64| {
        let mut found = BTreeMap::new();
        for section in 0..table.sections.len() {
            let Some(part) = block.mapped(section) else { continue };
            let written = block.writes.get(&section).map_or(0..0, |p| p.rows(rows[section], screen, screens));
            found.insert(section, (written, part.rows(rows[section], screen, screens)));
        }
        found
    };
    (0..screens).map(of).collect()
}

#[test]
fn no_accepted_table_lets_a_screen_write_what_another_one_maps() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let mut chance = Rng::with_seed(seed);
        let text = random_table(&mut chance).to_string();
        let table = match KernelTable::parse(text.as_bytes()) {
            Ok(table) => table,
            Err(LoadError::Metadata(why)) => {
                assert!(why.contains("would meet in"), "seed {seed}: {why}: {text}");
                refused += 1;
                continue;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        };
        accepted += 1;
        let rows: Vec<u64> = (0..4).map(|_| chance.u64(..7)).collect();
        for wanted in [1, 2, 3, 8] {
            let screens = table.microblocks[0].screens(&table, wanted, |section| rows[section]);
            assert!(screens >= 1);
            let all = rows_of(&table, &rows, screens);
            for (i, one) in all.iter().enumerate() {
                for (section, (written, mapped)) in one {
                    // Rows that are written are mapped, and so are those that are read.
                    assert!(written.clone().all(|row| mapped.contains(&row)), "seed {seed}: {text}");
                    let read =
                        table.microblocks[0].reads.get(section).map(|p| p.rows(rows[*section], i as u64, screens));
                    assert!(read.into_iter().flatten().all(|row| mapped.contains(&row)), "seed {seed}: {text}");
                    for (j, other) in all.iter().enumerate().filter(|(j, _)| *j != i) {
                        let meets = other.get(section).is_some_and(|(_, m)| written.clone().any(|r| m.contains(&r)));
                        assert!(!meets, "seed {seed}: screens {i} and {j} meet in section {section}: {text}");
                    }
                }
            }
        }
    }
    assert!(accepted > 300 && refused > 300, "{accepted} were accepted, {refused} refused");
}

fn fine_table() -> Value {
    json!({
        "abi": 1, "name": "k", "kind": "kernel",
        "inputs": [{"name": "a", "item_bytes": 4}],
        "outputs": [
            {"name": "b", "item_bytes": 4}, {"name": "c", "item_bytes": 4, "update": true},
            {"name": "d", "item_bytes": 4, "temporary": true},
        ],
        "scalars": [{"name": "n"}],
        "microblocks": [
            {"entry": "one", "screens": "a", "reads": {"a": {"rows": [1, 1]}}, "writes": {"b": "rows"}},
            {"entry": "two", "screens": 1, "reads": {"b": "all"}, "writes": {"c": "all", "d": "all"}},
        ],
    })
}

#[test]
fn a_table_means_what_it_says() {
    let table = KernelTable::parse(fine_table().to_string().as_bytes()).unwrap();
    assert_eq!((table.name.as_str(), table.inputs, table.scalars), ("k", 1, 1));
    let roles: Vec<SectionRole> = table.sections.iter().map(|s| s.role).collect();
    assert_eq!(roles, [SectionRole::Input, SectionRole::Output, SectionRole::Update, SectionRole::Temporary]);
    assert_eq!(table.microblocks[0].screens, ScreenRule::RowsOf("a".to_owned()));
    assert_eq!(table.microblocks[0].mapped(0), Some(MappedPart::Halo { rows: [1, 1] }));
    assert_eq!(table.microblocks[1].mapped(0), None);
    assert_eq!(table.microblocks[1].screens(&table, 7, |_| 100), 1);
    assert_eq!(table.microblocks[0].screens(&table, 7, |_| 100), 7);
    assert_eq!(table.microblocks[0].screens(&table, 7, |_| 0), 1);
}

/// Replaces the value at a pointer of a JSON text, or adds it; `null` removes the key.
fn with(text: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = text.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = changed.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(members), Value::Null) => drop(members.remove(key)),
        (Value::Object(members), value) => drop(members.insert(key.to_owned(), value)),
        (Value::Array(list), value) => list[key.parse::<usize>().unwrap()] = value,
        _ => panic!("{pointer} is in neither object nor list"),
    }
    changed
}

#[test]
fn what_a_table_cannot_mean_is_refused_by_its_name() {
    let section = |name: &str| json!({"name": name, "item_bytes": 4});
    for (pointer, value, word) in [
        ("/abi", json!(2), "abi 2"),
        ("/kind", json!("block"), "kind"),
        ("/name", Value::Null, "name"),
        ("/inputs/0/item_bytes", json!(0), "item_bytes"),
        ("/inputs/0/item_bytes", json!(-4), "integer"),
        ("/inputs/0/item_bytes", json!(1u64 << 40), "item_bytes"),
        ("/inputs/0/update", json!(true), "a"),
        ("/outputs/0/name", json!("a"), "\"a\" names two"),
        ("/outputs/1/temporary", json!(true), "c"),
        ("/inputs", json!((0..9).map(|i| section(&format!("i{i}"))).collect::<Vec<_>>()), "9 inputs"),
        ("/scalars", json!(vec![json!({}); 17]), "17 scalars"),
        ("/memory_bytes", json!(u64::MAX), "bytes do not fit"),
        ("/scratchpad_bytes", json!(1u64 << 40), "scratchpad_bytes"),
        ("/scratchpad_bytes", json!(u64::MAX), "scratchpad_bytes"),
        ("/microblocks", json!([]), "one microblock"),
        ("/microblocks/0/screens", json!(0), "0 screens"),
        ("/microblocks/0/screens", json!("z"), "\"z\""),
        ("/microblocks/0/screens", json!(1.5), "screens"),
        ("/microblocks/0/reads", json!({"z": "all"}), "\"z\""),
        ("/microblocks/0/writes", json!({"a": "rows"}), "which is an input"),
        ("/microblocks/0/writes", json!({"b": "all"}), "would meet in b"),
        ("/microblocks/0/writes", json!({"b": {"rows": [0, 1]}}), "would meet in b"),
        ("/microblocks/0/writes", json!({"b": "columns"}), "MappedPart"),
        ("/microblocks/0/reads", json!({"a": {"rows": [1, 1], "columns": [0, 1]}}), "MappedPart"),
    ] {
        let text = with(&fine_table(), pointer, value.clone()).to_string();
        let error = KernelTable::parse(text.as_bytes()).expect_err(&format!("{pointer} = {value}")).to_string();
        assert!(error.contains(word) || error.contains("did not match"), "{pointer} = {value}: {error}");
    }
}

#[test]
fn any_damage_of_a_table_is_refused_or_keeps_its_bounds() {
    let text = fine_table().to_string().into_bytes();
    for seed in 0..6_000 {
        let mut chance = Rng::with_seed(seed);
        let mut bytes = text.clone();
        for _ in 0..=chance.u64(..4) {
            let at = chance.u64(..bytes.len() as u64) as usize;
            match chance.u64(..3) {
                0 => bytes[at] = chance.u64(..256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0123456789-.e\"[]{},:"[chance.u64(..20) as usize]),
            }
        }
        let Ok(table) = KernelTable::parse(&bytes) else { continue };
        assert!(!table.microblocks.is_empty() && table.inputs <= table.sections.len());
        assert!(table.sections.iter().all(|s| s.item_bytes > 0));
        for block in &table.microblocks {
            assert!(block.screens(&table, 4, |_| 10) > 0);
            let sections = block.reads.keys().chain(block.writes.keys());
            assert!(sections.into_iter().all(|s| *s < table.sections.len()), "seed {seed}");
            assert!(block.writes.keys().all(|s| table.sections[*s].role != SectionRole::Input));
        }
    }
}

/// Metadata as they are written, with the values that they should have when they are read.
#[derive(Debug)]
struct Written {
    text: Value,
    inputs: Vec<(String, u64, bool, Records)>,
    outputs: Vec<(String, u64, OutputPhase, bool, u64)>,
    scalars: Vec<String>,
    state_bytes: u64,
}

/// Dtypes with the size of an element in bytes.
const DTYPES: [(&str, u64); 10] = [
    ("uint8", 1),
    ("int16", 2),
    ("float32", 4),
    ("<f8", 8),
    ("u4", 4),
    ("|b1", 1),
    ("complex128", 16),
    ("bool", 1),
    ("S7", 7),
    ("V12", 12),
];

fn random_metadata(chance: &mut Rng) -> Written {
    let put = |members: &mut serde_json::Map<String, Value>, key: &str, value: Value| {
        members.insert(key.to_owned(), value);
    };
    let (mut inputs, mut written_inputs) = (Vec::new(), Vec::new());
    for number in 0..=chance.u64(..3) {
        let (dtype, item) = DTYPES[chance.u64(..10) as usize];
        let mut port = serde_json::Map::new();
        put(&mut port, "dtype", json!(dtype));
        let named = chance.u64(..2) == 0;
        let name = if named { format!("in{number}x") } else { format!("input{number}") };
        if named {
            put(&mut port, "name", json!(name));
        }
        let record = item * (1 + chance.u64(..5));
        let bytes = if chance.u64(..2) == 0 { record } else { item };
        if bytes != item || chance.u64(..3) == 0 {
            put(&mut port, "record_bytes", json!(bytes));
        }
        let whole = number > 0 && chance.u64(..3) == 0;
        if whole {
            put(&mut port, "whole", json!(true));
        }
        let lines = number == 0 && bytes == 1 && chance.u64(..2) == 0;
        if lines {
            put(&mut port, "records", json!("lines"));
        }
        inputs.push((name, bytes, whole, if lines { Records::Lines } else { Records::Fixed }));
        written_inputs.push(Value::Object(port));
    }
    let (mut outputs, mut written_outputs) = (Vec::new(), Vec::new());
    for number in 0..chance.u64(..4) {
        let (dtype, item) = DTYPES[chance.u64(..10) as usize];
        let end = chance.u64(..3) == 0;
        let mut port = serde_json::Map::new();
        put(&mut port, "dtype", json!(dtype));
        let fixed = chance.u64(..1 << 20);
        let bound = chance.u64(..2) == 0;
        if bound {
            put(&mut port, "bound", json!({"fixed": fixed}));
        }
        if end {
            put(&mut port, "phase", json!("end"));
        }
        let exact = chance.u64(..3) != 0;
        if !exact {
            put(&mut port, "exact", json!(false));
        }
        // Without a bound: a record for each record, or one record at the end.
        let room = match (bound, end) {
            (true, _) => fixed,
            (false, true) => item,
            (false, false) => 10 * item,
        };
        let phase = if end { OutputPhase::End } else { OutputPhase::Task };
        outputs.push((format!("output{number}"), item, phase, exact, room));
        written_outputs.push(Value::Object(port));
    }
    let scalars: Vec<String> = (0..chance.u64(..4)).map(|n| format!("s{n}")).collect();
    let written: Vec<Value> = scalars.iter().map(|n| json!({"name": n, "dtype": "int64", "default": 3})).collect();
    let state_bytes = chance.u64(..2) * chance.u64(..1 << 16);
    let text = json!({
        "abi": 1, "kind": "block", "inputs": written_inputs, "outputs": written_outputs, "scalars": written,
        "state_bytes": state_bytes, "summary": "text", "errors": {"-1": "no"},
    });
    Written { text, inputs, outputs, scalars, state_bytes }
}

#[test]
fn metadata_are_read_as_they_were_written() {
    for seed in 0..2_000 {
        let written = random_metadata(&mut Rng::with_seed(seed));
        let mut text = written.text.to_string().into_bytes();
        // A section of an ELF may end with zeros.
        text.resize(text.len() + seed as usize % 5, 0);
        let read = Metadata::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}: {}", written.text));
        let inputs: Vec<_> = read.inputs.iter().map(|i| (i.name.clone(), i.record_bytes, i.whole, i.records)).collect();
        assert_eq!(inputs, written.inputs, "seed {seed}");
        let outputs: Vec<_> = read
            .outputs
            .iter()
            .map(|o| (o.name.clone(), o.record_bytes, o.phase, o.exact, o.bound.room(10, 0)))
            .collect();
        assert_eq!(outputs, written.outputs, "seed {seed}");
        assert_eq!(read.scalars.iter().map(|s| s.name.clone()).collect::<Vec<_>>(), written.scalars);
        assert_eq!((read.state_bytes, read.name.as_str()), (written.state_bytes, "program"));
        assert!(read.scratchpad() >= 2 * read.state_bytes);
        check_filled(&read, &written.text);
    }
}

/// The metadata with all defaults filled in, and with the dtypes and the defaults of scalars, mean the same again.
fn check_filled(read: &Metadata, text: &Value) {
    let mut filled: Value = serde_json::from_str(&read.filled()).unwrap();
    filled["abi"] = json!(1);
    for ports in ["inputs", "outputs", "scalars"] {
        for (port, original) in filled[ports].as_array_mut().unwrap().iter_mut().zip(text[ports].as_array().unwrap()) {
            port["dtype"] = original["dtype"].clone();
            if let Some(default) = original.get("default") {
                port["default"] = default.clone();
            }
        }
    }
    assert_eq!(&Metadata::parse(filled.to_string().as_bytes()).unwrap(), read, "{filled}");
}

#[test]
fn what_metadata_cannot_mean_is_refused_by_its_key() {
    let fine = json!({
        "abi": 1, "kind": "block", "inputs": [{"name": "a", "dtype": "uint8"}, {"name": "b", "dtype": "<f4"}],
        "outputs": [{"name": "c", "dtype": "int32", "bound": {"fixed": 8}}], "scalars": [{"name": "n", "dtype": "u8"}],
    });
    Metadata::parse(fine.to_string().as_bytes()).unwrap();
    for (pointer, value, word) in [
        ("/abi", json!("1"), "version"),
        ("/kind", Value::Null, "kind"),
        ("/kind", json!("Block"), "'Block'"),
        ("/extra", json!(1), "'extra'"),
        ("/inputs", json!([]), "at least one input"),
        ("/inputs", json!(vec![json!({"dtype": "u1"}); 9]), "9 inputs"),
        ("/inputs/0/whole", json!(true), "input 0"),
        ("/inputs/0/dtype", Value::Null, "dtype"),
        ("/inputs/0/dtype", json!("int7"), "not \"int7\""),
        ("/inputs/0/dtype", json!("S0"), "not \"S0\""),
        ("/inputs/0/dtype", json!("f99999999999999999999"), "the name of a type"),
        ("/scalars/0/dtype", json!("complex64"), "a number of at most 64 bits, not complex64"),
        ("/scalars/0/default", json!(-1), "default must be a number that uint64 has, not -1"),
        ("/inputs/1/record_bytes", json!(6), "whole elements"),
        ("/inputs/1/record_bytes", json!(0), "record_bytes"),
        ("/inputs/1/record_bytes", json!(u64::MAX), "record_bytes"),
        ("/inputs/1/records", json!("lines"), "input 1"),
        ("/inputs/1/packed", json!("bitpack"), "packed"),
        ("/inputs/1/name", json!("a"), "\"a\" names two"),
        ("/outputs/0/name", json!("n"), "\"n\" names two"),
        ("/outputs/0/bound", json!({"most": 1}), "'most'"),
        ("/outputs/0/bound", json!({"per_input_byte": -0.5}), "per_input_byte"),
        ("/outputs/0/exact", json!(1), "exact"),
        ("/scalars/0/default", json!("1"), "default"),
        ("/state_bytes", json!(u64::MAX), "state_bytes"),
        ("/scratchpad_bytes", json!(1u64 << 40), "scratchpad_bytes"),
        ("/memory_bytes", json!(-1), "memory_bytes"),
        ("/errors", json!({"1": "no"}), "errors"),
        ("/errors", json!({"-01": "no"}), "errors"),
        ("/summary", json!(["text"]), "summary"),
    ] {
        let text = with(&fine, pointer, value.clone()).to_string();
        let error = Metadata::parse(text.as_bytes()).expect_err(&format!("{pointer} = {value}")).to_string();
        assert!(error.contains(word), "{pointer} = {value}: {error}");
    }
}
