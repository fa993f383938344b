//! `[compute.core]` is a core's own table: what a description of a core says, the table says in the same words; old
//! spellings say the same and name the new ones.

use nandarray_uarch::{CoreDescription, PRESETS};
use serde_json::json;

use crate::describe::{DEVICES, Description, Sheet, Value, preset_with};

fn with(changes: &[(&str, &str)]) -> Description {
    preset_with("tiny", changes).unwrap_or_else(|e| panic!("{changes:?}: {e}"))
}

/// The text of a core, without what a device says itself, is the table of a device; it gives the same core as the
/// core's name.
#[test]
fn the_text_of_every_core_is_a_devices_table() {
    for (name, text) in PRESETS {
        let mut table = CoreDescription::table_with(text, []).unwrap();
        ["source", "tick_ps", "memory", "parts"].iter().for_each(|of_the_device| drop(table.remove(*of_the_device)));
        let own = format!("\n{table}").replace("\n[", "\n[compute.core.");
        let text = format!("name = 'x'\nbase = 'tiny'\n[compute.core]\nsource = 's'\nbase = 'own'{own}");
        let sheet = Sheet::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = sheet.description().unwrap_or_else(|e| panic!("{e}\n{text}")).compute;
        // The source of a device's core is that of its keys; it has the power and area of its parts, too.
        let mut by_name = with(&[("compute.core", name)]).compute.unwrap();
        let core = by_name.core.as_mut().unwrap();
        (core.source, core.parts) = ("the device's".to_owned(), Vec::new());
        assert_eq!(found, Some(by_name), "{name}");
        let again = Sheet::parse(&sheet.to_toml()).unwrap_or_else(|e| panic!("{e}\n{}", sheet.to_toml()));
        assert_eq!(again.description().unwrap(), sheet.description().unwrap(), "{name}");
    }
}

/// Every key of a core is one of a device, with the same meaning.
#[test]
fn every_key_of_a_core_is_one_of_a_device() {
    for key in CoreDescription::KEYS {
        let found = DEVICES.keys.iter().find(|of| of.path == format!("compute.core.{}", key.name));
        let says_itself = ["source", "tick_ps", "memory", "parts"].contains(&key.name);
        assert_eq!(found.map(|of| of.meaning), (!says_itself).then_some(key.meaning), "{}", key.name);
    }
    for inner in ["l1d.ways", "latency.varve_pack", "vector.align_bits", "vliw.simd_pairs"] {
        assert!(DEVICES.index(&format!("compute.core.{inner}")).is_some(), "{inner}");
    }
}

#[test]
fn old_spellings_say_what_the_new_ones_say_and_name_them() {
    const SAME: &[(&str, &str, &str, &[(&str, &str)])] = &[
        ("five-stage", "l1i_size", "16 KiB", &[("l1i.size_bytes", "16384")]),
        ("five-stage", "l1i_ways", "2", &[("l1i.ways", "2")]),
        ("five-stage", "l1d_size", "0 B", &[("l1d", "none")]),
        ("five-stage", "l1d_size", "core", &[]),
        ("five-stage", "l1d_ways", "none", &[]),
        ("five-stage", "l1d_ticks", "3", &[("l1d.t_hit", "3")]),
        ("ibex", "l2_size", "64 KiB", &[("l2.size_bytes", "64 KiB"), ("l2.ways", "8"), ("l2.line_bytes", "64")]),
        ("five-stage", "l2_ways", "4", &[("l2.ways", "4")]),
        ("five-stage", "l2_ticks", "20", &[("l2.t_hit", "20")]),
        ("five-stage", "prefetch", "dcpt", &[("prefetch_l1d", "dcpt"), ("prefetch_l2", "dcpt")]),
        ("zou-2023-stream-cache", "prefetch", "stride", &[("prefetch_l1d", "stride")]),
        ("five-stage-prefetch", "prefetch", "none", &[("prefetch_l1d", "none"), ("prefetch_l2", "none")]),
        ("five-stage", "load_ticks", "9", &[("latency.load", "9")]),
        ("five-stage", "store_ticks", "9", &[("latency.store", "9")]),
        ("five-stage", "multiply_ticks", "9", &[("latency.multiply", "9")]),
        ("five-stage", "divide_ticks", "9", &[("latency.divide", "9")]),
        ("five-stage", "taken_ticks", "9", &[("t_taken", "9")]),
        (
            "ex5-varve",
            "vector_length",
            "512",
            &[("isa", "rv64gcv_zba_zbb_zbs_zvl256b_xvarve_zvl512b"), ("vector.datapath_bits", "0")],
        ),
        ("ex5-varve", "datapath_bits", "128", &[("vector.datapath_bits", "128")]),
        ("ex5-varve", "vector_memory_bits", "128", &[("vector.memory_bits", "128")]),
        ("ex5-varve", "element_ticks", "7", &[("vector.t_element", "7")]),
        ("ex5-varve", "align_bits", "2", &[("vector.align_bits", "2")]),
        ("ex5-varve", "align_ticks", "7", &[("vector.t_align", "7")]),
        ("ex5-varve", "unpack_lines", "7", &[("vector.unpack_lines", "7")]),
        ("ex5-varve", "unpack_bits", "64", &[("vector.unpack_bits", "64")]),
        ("ex5-varve", "unpack_ticks", "7", &[("vector.t_unpack", "7")]),
        ("ex5", "scratchpad", "64 KiB", &[("scratchpad_bytes", "65536")]),
        ("ex5", "scratchpad_ticks", "7", &[("t_scratchpad", "7")]),
        ("ex5", "streams", "4", &[("streams", "4"), ("stream_pages", "2")]),
        ("zou-2023-stream", "pages", "4", &[("stream_pages", "4")]),
        ("ex5", "stream_ticks", "7", &[("t_stream", "7")]),
        ("ex5", "half_size", "64 KiB", &[("pingpong_bytes", "128 KiB")]),
        ("zou-2023-sp", "input", "pingpong", &[("input_source", "ping-pong")]),
        ("zou-2023-sp", "input", "dram", &[("input_source", "dram")]),
    ];
    let spellings: std::collections::BTreeSet<_> = SAME.iter().map(|row| row.1).collect();
    assert_eq!(spellings.len(), 30);
    for &(core, old, value, new) in SAME {
        let (path, core) = (format!("compute.{old}"), ("compute.core", core));
        let sheet = Sheet::preset("tiny").unwrap();
        let sheet = sheet.with([core, (&*path, value)].map(|(key, value)| (key, Value::from_bare(value)))).unwrap();
        let new: Vec<_> = new.iter().map(|(key, value)| (format!("compute.core.{key}"), *value)).collect();
        let said: Vec<_> = std::iter::once(core).chain(new.iter().map(|(key, value)| (&**key, *value))).collect();
        assert_eq!(sheet.description().unwrap_or_else(|e| panic!("{e}")), with(&said), "{old} = {value}");
        let told = sheet.to_json().unwrap()["renamed"].clone();
        assert_eq!((told[0][0].as_str(), told.as_array().map(Vec::len)), (Some(&*path), Some(1)));
        // A text has its sources under the old spellings, too.
        let text = format!(
            "name = 'x'\nbase = 'tiny'\n[compute]\ncore = '{}'\n{old} = {}\nsources.core = 's'\n\
             sources.{old} = 'a sheet'\n",
            core.1,
            Value::from_bare(value),
        );
        let read = Sheet::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read.description().unwrap().compute, with(&said).compute, "{old} = {value}");
    }
    let none = Sheet::preset("tiny").unwrap().with([("compute.core", "ibex".into())]).unwrap().to_json().unwrap();
    assert_eq!((&none["renamed"], &none["values"]["compute.core"]["base"]["value"]), (&json!(null), &json!("ibex")));
}

/// Of a cache and its keys the last one said counts, and what is written reads as the same.
#[test]
fn a_cache_goes_and_comes_back() {
    let sheet = Sheet::preset("tiny").unwrap();
    let changes = [("compute.core", "five-stage"), ("compute.core.l2", "none"), ("compute.core.l2.ways", "4")];
    let both = sheet.with(changes.map(|(key, value)| (key, Value::from_bare(value)))).unwrap();
    assert_eq!(both.description().unwrap(), with(&[changes[0], changes[2]]));
    let gone = both.with([("compute.core.l2", "none".into())]).unwrap();
    assert_eq!(gone.description().unwrap(), with(&changes[..2]));
    for sheet in [both, gone] {
        let again = Sheet::parse(&sheet.to_toml()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.description().unwrap(), sheet.description().unwrap());
    }
    let text = "name = 'x'\nbase = 'tiny'\n[compute.core]\nbase = 'ex5'\nsource = 's'\n[compute.core.l2]\n\
                ways = 0\nhits = 1\n";
    let wrong = Sheet::parse(text).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "device \"x\": line 8: compute.core.l2.hits: is no key of a description; did you mean compute.core.l2.t_hit?"
    );
    let wrong = Sheet::parse(&text.replace("hits = 1\n", "")).unwrap().description().unwrap_err().to_string();
    assert_eq!(
        wrong,
        "device \"x\": line 7: compute.core.l2.ways = 0 is out of range; allowed is a whole number from 1 to 1024, or \
         \"none\" to leave it out"
    );
}
