//! Promise: the source keeps its shape.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a
//! sitting; nothing in the model reads a clock, the environment or the machine's chance, and nothing depends on the
//! order of a hash. Exceptions are listed here, each with its reason. Rules that the compiler or clippy can check are
//! checked there; `crates/tidy.rs` has the checks of this file.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["spans"],
    &["describe"],
    &["flash"],
    &["ftl", "host", "workload", "flash_trace"],
    &["timeline", "report"],
    &["machine"],
    &["store", "replay", "accelerator", "fetch"],
    &["lib"],
];

/// Arrows that point up, each with its reason: file, what it uses.
const UP: &[(&str, &str, &str)] = &[("spans.rs", "flash", "a span says what the flash was busy for: its `OpCause`")];

#[test]
fn arrows_only_point_down() {
    tidy::arrows_only_point_down(LAYERS, UP);
}

#[test]
fn every_module_is_in_a_layer() {
    tidy::every_module_is_in_a_layer(LAYERS);
}

#[test]
fn every_file_says_what_it_is_and_ends_in_time() {
    tidy::every_file_says_what_it_is_and_ends_in_time(&["src", "tests", "benches", "examples"], 800);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    tidy::time_chance_and_surroundings_come_in_through_the_door(&[]);
}

#[test]
fn nothing_depends_on_the_order_of_a_hash() {
    tidy::nothing_depends_on_the_order_of_a_hash(&["draining", "writing"], &[]);
}

/// The machine is made of parts: its loop and dispatcher stay short, clients do not know each other, and a client's
/// files do not call the client.
#[test]
fn the_machine_is_made_of_parts() {
    let sources = tidy::sources();
    let of = |file: &str| &sources.iter().find(|(name, _)| name == file).unwrap_or_else(|| panic!("{file}")).1;
    let lines = of("machine/mod.rs").lines().count();
    assert!(lines < 200, "the event loop and its dispatcher have {lines} lines");
    let imports = |text: &str| text.lines().filter(|line| line.starts_with("use ")).collect::<Vec<_>>().join("\n");
    for (file, text) in &sources {
        let uses = imports(text);
        for (client, other) in [("machine/block/", "space"), ("machine/space/", "block")] {
            let knows = uses.contains(&format!("super::{other}")) || uses.contains(&format!("machine::{other}"));
            assert!(!(file.starts_with(client) && knows), "{file} uses the client {other}:\n{uses}");
        }
        for (parts, client) in [
            (&["machine/block/cached.rs", "machine/block/flush.rs", "machine/block/page.rs"][..], "BlockClient"),
            (&["machine/block/programs.rs", "machine/block/reclaim.rs"], "BlockClient"),
            (&["machine/space/flash.rs", "machine/space/job.rs", "machine/space/part.rs"], "SpaceClient"),
        ] {
            let calls = text.contains(&format!("impl {client} ")) || uses.contains(&format!("super::{client}"));
            assert!(!(parts.contains(&file.as_str()) && calls), "{file} calls the client {client}");
        }
    }
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests", "benches"], &[]);
}
