//! Promise: descriptions are layered, and depend on nothing of the project but its kernel of time.
//!
//! Arrows between modules only point down; every file opens with what it is; nothing reads a clock, the environment or
//! the machine's chance. `crates/tidy.rs` has the checks.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it.
const LAYERS: tidy::Layers = &[
    &["problem", "table", "unit", "value"],
    &["kind"],
    &["declare"],
    &["vocabulary"],
    &["written"],
    &["read", "write"],
    &["sheet"],
    &["lib", "tests"],
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
    tidy::every_file_says_what_it_is_and_ends_in_time(&["src", "tests"], 400);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    tidy::time_chance_and_surroundings_come_in_through_the_door(&[]);
}

#[test]
fn it_depends_on_the_kernel_of_time_alone() {
    let manifest = include_str!("../Cargo.toml");
    let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
    let uses: Vec<&str> = dependencies.lines().filter(|line| line.contains("nandarray")).collect();
    assert!(matches!(uses[..], [one] if one.starts_with("nandarray-sim =")), "{uses:?}");
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}
