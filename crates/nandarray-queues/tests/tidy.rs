//! Promise: queues stand on the store alone, in layers; the server knows no time, the client only its deadline.
//!
//! Arrows between modules only point down; every file opens with what it is. `crates/tidy.rs` has the checks.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["error", "entries", "atomic", "guard", "wait"],
    &["sleep"],
    &["futex", "layout"],
    &["region", "prepared"],
    &["ring"],
    &["server", "client"],
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
    tidy::time_chance_and_surroundings_come_in_through_the_door(&["wait.rs"]);
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}

#[test]
fn no_dword_is_packed_here() {
    tidy::no_dword_is_packed(&["src"]);
}
