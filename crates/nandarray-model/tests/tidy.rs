//! Promise: the source keeps the shape that it was given.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a sitting;
//! nothing in the model reads a clock, the environment or the machine's chance, and nothing depends on the order of a hash.
//! Exceptions are listed here, each with its reason. What the compiler or clippy can hold is held there; how it is looked
//! for is `crates/tidy.rs`'.

#[path = "../../tidy.rs"]
mod tidy;

/// From the bottom up; a module may use those before it, and itself. Modules of one entry do not use each other.
const LAYERS: tidy::Layers = &[
    &["time"],
    &["events", "spans"],
    &["describe"],
    &["flash"],
    &["ftl", "host", "workload", "footprint"],
    &["timeline", "report"],
    &["machine"],
    &["store", "replay"],
    &["lib"],
];

/// Arrows that point up, each with its reason: file, what it uses.
const UP: &[(&str, &str, &str)] = &[("spans.rs", "flash", "a span says what the flash was busy for: its `Cause`")];

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
