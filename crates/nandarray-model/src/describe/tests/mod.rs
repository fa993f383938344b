//! Tests of descriptions as a whole; each file beside this one compares a part with something simpler.

mod core_table;
mod figures;
mod imports;
mod ranges;
mod reach;
mod rules;
mod sheets;
mod writes;

use super::*;
use nandarray_sim::Ps;

#[test]
fn presets_resolve() {
    for name in presets() {
        let description = preset(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(description.name, *name);
        assert!(!description.summary.is_empty());
    }
}

#[test]
fn every_word_of_a_key_means_something_else() {
    for key in KEYS {
        let ValueKind::Word(words) = key.kind else { continue };
        let mut seen: Vec<Description> = Vec::new();
        // A core of its own needs more than a word.
        for word in words.iter().filter(|word| **word != "own") {
            // A single time holds for all kinds of pages, so that every kind of cell fits.
            let times = [("nand.t_read", "25 us"), ("nand.t_program", "200 us"), (key.path, *word)];
            let d = preset_with("tiny", &times).unwrap_or_else(|e| panic!("{} = {word}: {e}", key.path));
            assert!(!seen.contains(&d), "{} = {word} is the same as a word before it", key.path);
            seen.push(d);
        }
    }
}

#[test]
fn overrides_reach_everything() {
    let d = preset_with(
        "mqsim-ideal",
        &[("controller.scheduling", "mqsim-compat"), ("nand.t_read", "[25 us, 50 us]"), ("geometry.channels", "4")],
    )
    .unwrap();
    assert_eq!(d.controller.scheduling, Scheduling::MqsimCompat);
    assert_eq!(d.nand.t_read, [Ps::from_us(25), Ps::from_us(50)]);
    assert_eq!(d.geometry.channels, 4);
    assert_eq!(d.ftl.map_cache_bytes, None);
    assert_eq!(d.dram.bytes_per_s, 25_600_000_000);
}
