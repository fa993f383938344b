//! Promise: the source keeps the shape that it was given.
//!
//! Crates and modules use those below them only; every file opens with what it is; none grows beyond what one reads at
//! a sitting, and no function beyond what one sees at once; nothing but listed files reads a clock, the environment or
//! the machine's chance, and nothing depends on the order of a hash. `table` has the crates with their layers and
//! exceptions, `checks` the search. Rules that the compiler or clippy can check are checked there.

mod checks;
mod table;

use checks::code;
use table::{CRATES, Crate};

fn of(name: &str) -> &'static Crate {
    CRATES.iter().find(|one| one.name == name).expect("a crate of the table")
}

#[test]
fn every_crate_is_in_the_table() {
    let folders = std::fs::read_dir(checks::crates()).unwrap().map(|entry| entry.unwrap());
    let crates = folders.filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut found: Vec<String> = crates.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let mut listed: Vec<&str> = CRATES.iter().map(|one| one.name).collect();
    found.sort_unstable();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn crates_use_those_below_them() {
    CRATES.iter().for_each(checks::crates_use_those_below_them);
}

#[test]
fn arrows_only_point_down() {
    CRATES.iter().filter(|one| !one.layers.is_empty()).for_each(checks::arrows_only_point_down);
}

#[test]
fn every_module_is_in_a_layer() {
    CRATES.iter().filter(|one| !one.layers.is_empty()).for_each(checks::every_module_is_in_a_layer);
}

#[test]
fn every_file_says_what_it_is_and_ends_in_time() {
    CRATES.iter().for_each(checks::every_file_says_what_it_is_and_ends_in_time);
}

#[test]
fn functions_are_seen_at_once() {
    CRATES.iter().for_each(checks::functions_are_seen_at_once);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    CRATES.iter().for_each(checks::time_chance_and_surroundings_come_in_through_the_door);
}

#[test]
fn nothing_depends_on_the_order_of_a_hash() {
    CRATES.iter().for_each(checks::nothing_depends_on_the_order_of_a_hash);
}

#[test]
fn the_architecture_names_the_crates_that_each_uses() {
    let page = std::fs::read_to_string(checks::crates().join("../ARCHITECTURE.md")).unwrap();
    for one in CRATES {
        let uses: Vec<String> = one.uses.iter().map(|name| format!("`{name}`")).collect();
        let uses = if uses.is_empty() { "no other".to_owned() } else { uses.join(", ") };
        let row = format!("| `{}` | {uses} |", one.name);
        assert!(page.lines().any(|line| line == row), "ARCHITECTURE.md lacks the row\n{row}");
    }
}

/// The crate of NVMe's formats alone knows the dwords of entries.
#[test]
fn no_dword_is_packed_elsewhere() {
    for name in ["nandarray", "nandarray-nvme", "nandarray-queues", "nandarray-python"] {
        for (file, text) in of(name).sources() {
            for (number, line) in code(&text) {
                assert!(!line.contains("cdw"), "{name}, {file}:{number} has a dword: {}", line.trim());
            }
        }
    }
}

/// The store has one source of chance, whose seed the caller chooses.
#[test]
fn the_chance_of_the_store_is_its_own() {
    for (file, text) in of("nandarray").sources().into_iter().filter(|(file, _)| file != "sim/mod.rs") {
        for (number, line) in code(&text) {
            for word in ["RandomState", "fastrand"] {
                assert!(!line.contains(word), "{file}:{number}: chance comes from sim::Chance: {}", line.trim());
            }
        }
    }
}

#[test]
fn only_executors_have_threads() {
    let executors = ["executor.rs", "session/crew.rs"];
    let sources = of("nandarray-runtime").sources();
    for (file, text) in sources.into_iter().filter(|(file, _)| !executors.contains(&file.as_str())) {
        for (number, line) in code(&text) {
            for word in ["thread::", "Condvar", ".spawn("] {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
        }
    }
}

/// Without its features, such as ELF, the hart depends on nothing.
#[test]
fn the_hart_itself_depends_on_nothing() {
    let manifest = std::fs::read_to_string(checks::crates().join("nandarray-hart/Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]\n").unwrap();
    let dependencies = rest.lines().take_while(|line| !line.starts_with('['));
    for dependency in dependencies.filter(|line| !line.trim().is_empty()) {
        assert!(dependency.contains("optional = true"), "{dependency}");
    }
}

/// The machine is made of parts: its loop and dispatcher stay short, clients do not know each other, and a client's
/// files do not call the client.
#[test]
fn the_machine_is_made_of_parts() {
    let sources = of("nandarray-model").sources();
    let text_of = |file: &str| &sources.iter().find(|(name, _)| name == file).unwrap_or_else(|| panic!("{file}")).1;
    let lines = text_of("machine/mod.rs").lines().count();
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
