//! Promise: the specification stands on no other crate of the project, in layers, and every file opens with what it is.
//!
//! Arrows between modules only point down; nothing reads a clock, the environment or the machine's chance.
//! `crates/tidy.rs` has the checks.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["status"],
    &["entry"],
    &["fields", "sets"],
    &["identify", "features", "properties", "logs", "memory", "programs", "pages"],
    &["io", "fabrics", "admin"],
    &["nd"],
    &["lib"],
];

#[test]
fn arrows_only_point_down() {
    tidy::arrows_only_point_down(LAYERS, &[]);
}

#[test]
fn every_module_is_in_a_layer() {
    tidy::every_module_is_in_a_layer(LAYERS);
}

#[test]
fn every_file_says_what_it_is_and_ends_in_time() {
    tidy::every_file_says_what_it_is_and_ends_in_time(&["src", "tests"], 800);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    tidy::time_chance_and_surroundings_come_in_through_the_door(&[]);
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}

#[test]
fn it_uses_no_other_crate_of_the_project() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    assert!(!manifest.contains("path ="), "{manifest}");
}
