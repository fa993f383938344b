//! Promise: the source keeps the shape that it was given: arrows between modules only point down, every file opens with
//! what it is, nothing reads a clock, the environment or the machine's chance, and nothing below the executor owns a
//! thread. The checks are those of `crates/tidy.rs`.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it.
const LAYERS: tidy::Layers = &[
    &["error", "io", "progress", "queue"],
    &["cut"],
    &["stage"],
    &["context"],
    &["shares", "work"],
    &["job"],
    &["scheduler"],
    &["agenda"],
    &["executor"],
    &["pipeline"],
    &["programs", "tiles"],
    &["request"],
    &["typed"],
    &["inputs", "outputs"],
    &["execute"],
    &["schedule"],
    &["session"],
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
fn only_executors_have_threads() {
    for (file, text) in
        tidy::sources().into_iter().filter(|(file, _)| file != "executor.rs" && file != "session/crew.rs")
    {
        for (number, line) in tidy::code(&text) {
            for word in ["thread::", "Condvar", ".spawn("] {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
        }
    }
}

#[test]
fn the_storage_engine_knows_no_programs() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../nandarray/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    for name in ["nandarray-cores", "nandarray-jit", "nandarray-hart", "nandarray-runtime", "cranelift"] {
        assert!(!manifest.contains(name), "the engine depends on {name}");
    }
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}
