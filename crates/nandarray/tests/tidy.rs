//! Promise: the source keeps the shape that it was given.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a
//! sitting; nothing in the engine reads a clock, the environment or the machine's chance, and nothing depends on the
//! order of a hash. Exceptions are listed here, each with its reason. Rules that the compiler or clippy can check are
//! checked there; the search itself is in `crates/tidy.rs`.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["error"],
    &["sim"],
    &["media"],
    &["flash"],
    &["codec", "ftl", "sched"],
    &["stl"],
    &["device"],
    &["nvme"],
    &["lib"],
];

/// Allowed iterations over a hash map, because their order has no effect: file, expression, reason.
const HASHES: &[(&str, &str, &str)] = &[
    ("device/io.rs", "inner.write_buffer.keys()", "sorted right after"),
    ("device/log/commit.rs", "inner.write_buffer.keys()", "sorted right after"),
    ("device/catalog.rs", "inner.write_buffer.keys()", "a sum"),
    ("device/catalog.rs", "inner.write_buffer.values()", "a sum"),
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
    let folders = ["src", "tests", "../nandarray-python/src", "../../fuzz/fuzz_targets"];
    tidy::every_file_says_what_it_is_and_ends_in_time(&folders, 800);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    // `measure.rs` prints throughputs on demand; it is compiled into tests only. `process.rs` tells
    // whether threads that were started are in this process, which decides no content.
    tidy::time_chance_and_surroundings_come_in_through_the_door(&["codec/measure.rs", "sim/process.rs"]);
    for (file, text) in tidy::sources().into_iter().filter(|(file, _)| file != "sim/mod.rs") {
        for (number, line) in tidy::code(&text) {
            assert!(!line.contains("RandomState"), "{file}:{number}: {}", line.trim());
            assert!(!line.contains("fastrand"), "{file}:{number}: chance comes from sim::Chance: {}", line.trim());
        }
    }
}

#[test]
fn nothing_depends_on_the_order_of_a_hash() {
    tidy::nothing_depends_on_the_order_of_a_hash(&["write_buffer", "by_id"], HASHES);
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests", "../nandarray-python/src", "../../fuzz/fuzz_targets"], &[]);
}

#[test]
fn no_dword_is_packed_here() {
    tidy::no_dword_is_packed(&["src/nvme", "../nandarray-python/src"]);
}
