//! Promise: the source keeps the shape that it was given.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a
//! sitting; nothing in the hart reads a clock, the environment or the machine's chance; without ELF it depends on
//! nothing. The checks are those of `crates/tidy.rs`.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["xlen", "trap", "isa"],
    &["access", "work"],
    &["protect"],
    &["memory", "streams", "block", "float"],
    &["vector"],
    &["varve"],
    &["meter"],
    &["exec"],
    &["profile"],
    &["cache", "csr"],
    &["hart"],
    &["program"],
    &["bare"],
    &["lib"],
];

/// Functions that may have more than 70 lines: file, function, and the reason why the function is not divided.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[("src/exec/select.rs", "handler", "a table: one line an instruction")];

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
fn the_hart_itself_depends_on_nothing() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let from = manifest.find("[dependencies]").unwrap();
    let to = manifest[from + 1..].find("\n[").map_or(manifest.len(), |at| from + 1 + at);
    let dependencies = manifest[from..to].lines().skip(1).filter(|l| !l.trim().is_empty());
    for dependency in dependencies {
        assert!(dependency.contains("optional = true"), "{dependency}");
    }
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], LONG_FUNCTIONS);
}
