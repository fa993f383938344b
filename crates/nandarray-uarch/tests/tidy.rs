//! Promise: the timing of cores depends only on the hart and the form of descriptions, is layered, and knows no time
//! but its own ticks.
//!
//! Modules use only modules of lower layers; every file opens with a sentence about what it is; nothing reads a clock,
//! the environment or a random source. `crates/tidy.rs` has the checks.

#[path = "../../tidy.rs"]
mod tidy;

/// Layers from the bottom up; a module may use modules of the layers before its own, and itself.
const LAYERS: tidy::Layers = &[
    &["unit"],
    &["error"],
    &["parts", "vector"],
    &["describe"],
    &["presets"],
    &["cache", "prefetch", "issue"],
    &["latest"],
    &["hierarchy"],
    &["account", "feed", "report"],
    &["blocks"],
    &["core"],
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
    tidy::every_file_says_what_it_is_and_ends_in_time(&["src", "tests"], 520);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    tidy::time_chance_and_surroundings_come_in_through_the_door(&[]);
}

#[test]
fn it_depends_on_the_hart_and_the_form_of_descriptions() {
    let manifest = include_str!("../Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    let uses: Vec<&str> = dependencies.lines().filter(|line| line.contains("nandarray")).collect();
    let names: Vec<&str> = uses.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["nandarray-describe", "nandarray-hart"]);
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}
