//! Promise: the source keeps the shape that it was given: arrows between modules only point down, every file opens with
//! what it is, and nothing reads a clock, the environment or the machine's chance. The checks are those of
//! `crates/tidy.rs`.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it.
const LAYERS: tidy::Layers = &[
    &["abi"],
    &["error"],
    &["json"],
    &["element"],
    &["metadata"],
    &["program"],
    &["native"],
    &["processor"],
    &["core"],
    &["kernel_table"],
    &["kernel"],
    &["kernel_metered"],
    &["check"],
    &["inflow"],
    &["call"],
    &["profile", "timer"],
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
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}
