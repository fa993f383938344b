//! Promise: the source keeps the shape that it was given: arrows between modules only point down, every file opens with what
//! it is, and nothing reads a clock, the environment or the machine's chance.

use std::path::{Path, PathBuf};

/// From the bottom up; a module may use those before it, and itself.
const LAYERS: &[&str] = &[
    "abi", "error", "metadata", "program", "native", "core", "profile", "held", "tasks", "stage", "board", "pipeline",
    "run", "lib",
];

/// `run` has the traits and numbers that a run is told: they stand where users look for them.
const BACK: &[(&str, &str)] = &[("tasks", "run"), ("stage", "run"), ("board", "run"), ("pipeline", "run")];

const LINES_MAX: usize = 520;

fn sources() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn arrows_only_point_down() {
    let layer =
        |module: &str| LAYERS.iter().position(|l| *l == module).unwrap_or_else(|| panic!("{module} is in no layer"));
    for (module, text) in sources() {
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices("crate::") {
                let target = line[at + 7..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let up = target.starts_with(char::is_lowercase) && target != module && layer(target) >= layer(&module);
                assert!(!up || BACK.contains(&(module.as_str(), target)), "{module} uses {target}: {line}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_reads_nothing_of_its_surroundings() {
    for (module, text) in sources() {
        assert!(text.starts_with("//! "), "{module}");
        assert!(text.lines().count() <= LINES_MAX, "{module}");
        for word in ["Instant::now", "SystemTime", "std::env", "env::var", "thread::sleep", "process::id"] {
            assert!(!text.contains(word), "{module} has {word}");
        }
    }
}
