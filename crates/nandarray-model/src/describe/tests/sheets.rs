//! Sheets beside maps: what a text sets, where each value and source comes from, which of several wins; random valid
//! descriptions that are written and read; texts that are cut off or malformed, with their problems word by word.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::describe::KEYS;
use crate::describe::{Sheet, parse, preset_text, preset_with, presets};
use crate::describe::{Value, ValueKind};

/// Expected value, source, origin and line of a key.
type Expected = (String, String, String, u32);

fn of(sheet: &Sheet) -> BTreeMap<&'static str, Expected> {
    let entry = |e: &crate::describe::SheetEntry| (e.value.to_string(), e.source.clone(), e.origin.clone(), e.line);
    sheet.entries().map(|(key, e)| (key.path, entry(e))).collect()
}

#[test]
fn a_text_sets_what_it_says_and_its_base_the_rest() {
    for seed in 0..150 {
        let mut chance = Rng::with_seed(seed);
        let base = presets()[chance.usize(0..presets().len())];
        let mut expected = of(&Sheet::preset(base).unwrap());
        let mut text = format!("name = \"drawn {seed}\"\nbase = \"{base}\"\n");
        let mut sections: Vec<&str> = KEYS.iter().map(|k| k.section).collect();
        sections.dedup();
        chance.shuffle(&mut sections);
        for section in sections.into_iter().take(4) {
            let has_source = chance.bool();
            let mut own = String::new();
            text += &format!("\n[{section}]\n");
            if has_source {
                text += &format!("source = \"source of {section}\"\n");
            }
            for key in KEYS.iter().filter(|key| key.section == section) {
                if chance.u32(0..3) > 0 {
                    continue;
                }
                // Values are not checked here: any of the same form do.
                let value = expected.get(key.path).map_or_else(|| "\"none\"".to_owned(), |e| e.0.clone());
                let line = text.lines().count() as u32 + 1;
                text += &format!("{} = {value}\n", key.name);
                let named = chance.bool() || !has_source;
                let source = if named { format!("source of {}", key.path) } else { format!("source of {section}") };
                if named {
                    own += &format!("{} = \"{source}\"\n", key.name);
                }
                expected.insert(key.path, (value, source, format!("drawn {seed}"), line));
            }
            if !own.is_empty() {
                text += &format!("[{section}.sources]\n{own}");
            }
        }
        let sheet = Sheet::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(of(&sheet), expected, "seed {seed}:\n{text}");
        assert_eq!(sheet.bases()[0], base);
        // Later changes win over the text, and over earlier changes.
        let changed = sheet.with([("nand.t_erase", "1 s".into()), ("nand.t_erase", "3 ms".into())]).unwrap();
        let caller = ("\"3 ms\"".to_owned(), "set by the caller".to_owned(), "caller".to_owned(), 0);
        expected.insert("nand.t_erase", caller);
        assert_eq!(of(&changed), expected, "seed {seed}");
        // Written out, every value and source is there, without a base.
        let again = Sheet::parse(&changed.to_toml()).unwrap();
        let plain = |all: BTreeMap<&'static str, Expected>| -> Vec<_> {
            all.into_iter().map(|(key, (value, source, ..))| (key, value, source)).collect()
        };
        assert_eq!(plain(of(&again)), plain(expected), "seed {seed}");
        assert!(again.bases().is_empty() && again.to_toml() == changed.to_toml(), "seed {seed}");
    }
}

/// Draws a value of a key from within its range, in a unit drawn by chance.
fn drawn(kind: ValueKind, chance: &mut Rng) -> Value {
    let whole = |min: u64, max: u64, chance: &mut Rng| {
        // Small numbers are as frequent as large ones.
        let bits = chance.u32(1..65 - max.max(1).leading_zeros());
        (min + chance.u64(0..1 << bits)).min(max)
    };
    let unit = |n: u64, all: &[(&str, u64)], chance: &mut Rng| {
        let (unit, of) = all[chance.usize(0..all.len())];
        Value::Text(format!("{} {unit}", n as f64 / of as f64))
    };
    match kind {
        ValueKind::Count(min, max) | ValueKind::CountOrNone(min, max) => Value::Whole(whole(min, max, chance) as i64),
        ValueKind::Real(min, max) => Value::Real(min + chance.f64() * (max - min)),
        ValueKind::Share(min, max) => {
            let share = min + chance.f64() * (max - min);
            if chance.bool() { Value::Real(share) } else { Value::Text(format!("{} %", share * 100.0)) }
        }
        ValueKind::Time(min, max) | ValueKind::TimeOrNone(min, max) | ValueKind::Times(min, max) => {
            let ps = whole(min.0, max.0, chance);
            unit(ps, &[("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000)], chance)
        }
        ValueKind::Size(min, max) | ValueKind::SizeOr(_, min, max) => {
            unit(whole(min, max, chance), &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)], chance)
        }
        ValueKind::Frequency(min, max) => unit(whole(min, max, chance), &[("Hz", 1), ("MHz", 1_000_000)], chance),
        ValueKind::Rate(min, max) | ValueKind::RateOr(_, min, max) => {
            unit(whole(min, max, chance), &[("B/s", 1), ("MB/s", 1_000_000), ("KiB/s", 1 << 10)], chance)
        }
        ValueKind::Energy(..) => Value::Text(format!("{} nJ", chance.u32(0..1_000_000))),
        ValueKind::EnergyPerByte(..) => Value::Text(format!("{} pJ/bit", chance.f64() * 100.0)),
        ValueKind::Power(..) | ValueKind::PowerOr(..) => Value::Text(format!("{} mA at 3.3 V", chance.u32(0..9_000))),
        ValueKind::List(..) => "none".into(),
        ValueKind::Text | ValueKind::Table | ValueKind::Of(_) => panic!("{kind:?} is a core's"),
        ValueKind::Flag => Value::Flag(chance.bool()),
        ValueKind::Word(words) => words[chance.usize(0..words.len())].into(),
        ValueKind::Striping => {
            let mut order = *b"CWDP";
            chance.shuffle(&mut order);
            let when = ["static", "dynamic"][chance.usize(0..2)];
            format!("{when} {}", String::from_utf8_lossy(&order)).as_str().into()
        }
        ValueKind::Counts(n, min, _) => Value::List(vec![Value::Whole(min as i64); n]),
        ValueKind::Cores(n) => {
            let core = |_| if chance.bool() { Value::Whole(chance.i64(0..3)) } else { "none".into() };
            Value::List((0..n).map(core).collect())
        }
    }
}

/// Values from within their ranges are refused by rules between keys alone, never by a range; a description that is
/// accepted is the same after it was written and read, and its JSON has its numbers.
#[test]
fn valid_values_in_any_units_survive_writing_and_reading() {
    let mut accepted = 0;
    for seed in 0..700 {
        let mut chance = Rng::with_seed(seed);
        let preset = presets()[chance.usize(0..presets().len())];
        let changes: Vec<(&str, Value)> = (0..chance.usize(1..10))
            .map(|_| {
                let key = &KEYS[chance.usize(0..KEYS.len())];
                (key.path, drawn(key.kind, &mut chance))
            })
            .collect();
        let sheet = Sheet::preset(preset).unwrap().with(changes.iter().cloned()).unwrap();
        for (path, value) in &changes {
            let key = KEYS.iter().find(|key| key.path == *path).unwrap();
            key.kind.read(value).unwrap_or_else(|wrong| panic!("seed {seed}, {path} = {value}: {wrong:?}"));
        }
        let Ok(description) = sheet.description() else { continue };
        accepted += 1;
        let text = sheet.to_toml();
        let again = Sheet::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(again.description().unwrap(), description, "seed {seed}, {preset}: {changes:?}");
        let json = sheet.to_json().unwrap();
        assert_eq!(json["resolved"], serde_json::to_value(&description).unwrap(), "seed {seed}");
        for (path, _) in &changes {
            let (section, name) = path.rsplit_once('.').unwrap();
            let entry = &json["values"][section][name];
            let value = serde_json::to_value(&sheet.get(path).unwrap().value).unwrap();
            assert_eq!(
                (&entry["value"], &entry["source"]),
                (&value, &"set by the caller".into()),
                "seed {seed}, {path}"
            );
        }
    }
    assert!(accepted > 150, "{accepted} of 700 descriptions were accepted");
}

/// A text that is cut off anywhere is refused, or means what its complete lines mean.
#[test]
fn a_text_cut_off_anywhere_is_refused_or_means_its_lines() {
    let text = preset_text("tiny").unwrap();
    let whole = Sheet::parse(text).unwrap();
    for end in (0..text.len()).step_by(7).filter(|&end| text.is_char_boundary(end)) {
        match Sheet::parse(&text[..end]) {
            Err(invalid) => {
                assert!(!invalid.problems.is_empty(), "cut at {end}");
                let lines = text[..end].lines().count() as u32 + 1;
                let within = |line: Option<u32>| line.is_none_or(|line| (1..=lines).contains(&line));
                assert!(invalid.problems.iter().all(|p| within(p.line)), "cut at {end}: {invalid}");
            }
            Ok(sheet) => {
                let last = text[..end].lines().count() as u32;
                for (key, entry) in sheet.entries().filter(|(_, e)| e.origin == "tiny" && e.line < last) {
                    assert_eq!(Some(entry), whole.get(key.path), "cut at {end}: {}", key.path);
                }
                assert!(sheet.description().is_err() || sheet.entries().count() == KEYS.len(), "cut at {end}");
            }
        }
    }
}

#[test]
fn malformed_texts_are_refused_word_by_word() {
    let head = "name = \"x\"\nbase = \"tiny\"\n";
    let rows = [
        ("geometry = 5\n", "line 3: geometry: is no table; write its keys below [geometry]"),
        (
            "[nand]\nt_erase = \"1 ms\"\n",
            "line 4: nand.t_erase = \"1 ms\" has no source; add source = \"...\" to [nand], or t_erase = \
             \"...\" to [nand.sources]",
        ),
        ("[nand]\nsource = 5\n", "line 4: nand.source: is no text, or an empty one"),
        ("[nand]\nsource = \" \"\n", "line 4: nand.source: is no text, or an empty one"),
        ("[nand]\nsources = \"x\"\n", "line 4: nand.sources: is no table"),
        (
            "[nand]\nsource = \"x\"\nt_erase = {}\n",
            "line 5: nand.t_erase: is a table; a time from 100 ns to 1 s, in one of ps, ns, us, ms, s",
        ),
        (
            "[nand]\nsource = \"x\"\nt_erase = 2026-01-01\n",
            "line 5: nand.t_erase: is a date; a time from 100 ns to 1 s, in one of ps, ns, us, ms, s",
        ),
        (
            "[geometry]\nsource = \"x\"\npages = 99999999999999999999\n",
            "line 5: geometry.pages: is a whole number beyond 64 bits; a whole number from 1 to 65535",
        ),
        (
            "[nand]\nsource = \"x\"\n[nand.sources]\nt_erase = \"y\"\n",
            "line 6: nand.sources.t_erase: it is the source of nothing: [nand] has no t_erase in this text",
        ),
        (
            "[nand]\nt_erase = \"1 ms\"\n[nand.sources]\nt_erase = \"\"\n",
            "line 6: nand.sources.t_erase: is no text, or an empty one",
        ),
        (
            "[spec]\nsource = \"x\"\nqueue_dept = 5\n",
            "line 5: spec.queue_dept: is no key of a description; did you mean spec.queue_depth?",
        ),
        ("summary = \"\"\n", "line 3: summary: is no text, or an empty one"),
        ("summary = [\"s\"]\n", "line 3: summary: is no text, or an empty one"),
    ];
    for (text, said) in rows {
        let invalid = Sheet::parse(&format!("{head}{text}")).unwrap_err();
        let found: Vec<String> = invalid.problems.iter().map(ToString::to_string).collect();
        assert!(found.contains(&said.to_owned()), "{text:?}: {found:#?}");
        assert_eq!(invalid.subject, "x");
    }
    // A section or key that is like none gets the list of those that are there.
    let said = |path: &str| preset_with("tiny", &[(path, "1")]).unwrap_err().problems[0].allowed.clone();
    let sections = "sections are geometry, bus, nand, reliability, controller, compute, compute.core, ftl, dram, link, \
                    host, energy, power, spec";
    assert_eq!((said("qqq").as_str(), said("qqq.zzz").as_str()), (sections, sections));
    let like_none = format!("dram.{}", "q".repeat(40));
    assert_eq!(said(&like_none), "keys of dram are rate, t_access, size, burst, read_crossings");
    assert_eq!(said("drum.size"), "did you mean dram.size?");
    let invalid = Sheet::parse(&format!("{head}[qqq]\na = 1\n")).unwrap_err();
    assert_eq!(invalid.to_string(), format!("device \"x\": line 3: qqq: is no section of a description; {sections}"));
    assert!(
        Sheet::parse("base = \"tiny\"\n")
            .unwrap_err()
            .to_string()
            .contains("line 1: name: is missing; give the device a name")
    );
    assert_eq!(Sheet::preset("zzz").unwrap_err().problems[0].what, "there is no preset of that name");
}

/// A key with a letter lost, doubled or exchanged is suggested, or another that is at least as alike.
#[test]
fn misspelt_keys_are_suggested() {
    let sheet = Sheet::preset("tiny").unwrap();
    let (mut found, mut all) = (0, 0);
    for key in KEYS.iter().filter(|key| key.name.len() > 3) {
        let name = key.name;
        for at in (1..name.len() - 1).step_by(2) {
            let lost = format!("{}{}", &name[..at], &name[at + 1..]);
            let doubled = format!("{}{}", &name[..=at], &name[at..]);
            for misspelt in [lost, doubled] {
                let path = format!("{}.{misspelt}", key.section);
                if KEYS.iter().any(|other| other.path == path) {
                    continue;
                }
                let problem = sheet.with([(path.as_str(), 1.into())]).unwrap_err().problems[0].clone();
                let suggested = problem.allowed.strip_prefix("did you mean ").and_then(|rest| rest.strip_suffix('?'));
                let suggested = suggested.unwrap_or_else(|| panic!("{path}: {problem}"));
                assert!(suggested.starts_with(&format!("{}.", key.section)), "{path}: {problem}");
                all += 1;
                found += u32::from(suggested == key.path);
            }
        }
    }
    assert!(found * 100 > all * 95, "{found} of {all} misspelt keys were recognised");
}

#[test]
fn a_device_without_a_summary_has_none() {
    let text = preset_text("tiny").unwrap();
    let plain: String =
        text.lines().filter(|line| !line.starts_with("summary")).map(|line| format!("{line}\n")).collect();
    let sheet = Sheet::parse(&plain).unwrap();
    let description = sheet.description().unwrap();
    assert_eq!(description.summary, "", "the defaults' summary is not the device's");
    assert_eq!(parse(&sheet.to_toml()).unwrap(), description);
    let built = parse("name = \"x\"\nbase = \"tiny\"\n").unwrap();
    assert_eq!(built.summary, Sheet::preset("tiny").unwrap().description().unwrap().summary, "a base's summary is");
}
