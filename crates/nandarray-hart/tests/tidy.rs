//! Promise: the source keeps the shape that it was given.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a sitting;
//! nothing in the hart reads a clock, the environment or the machine's chance; without ELF it depends on nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// From the bottom up; a module may use those before it, and itself. Modules of one entry do not use each other.
const LAYERS: &[&[&str]] = &[
    &["xlen", "trap", "isa"],
    &["memory", "streams", "block", "float"],
    &["exec"],
    &["profile"],
    &["cache", "csr"],
    &["hart"],
    &["program"],
    &["bare"],
    &["lib"],
];

/// The most lines of a file.
const LINES_MAX: usize = 520;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
}

/// Every file of the hart: its path below `src`, and its text.
fn hart() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&source(), &mut found);
    assert!(found.len() > 20);
    let name = |path: &Path| path.strip_prefix(source()).unwrap().to_str().unwrap().replace('\\', "/");
    found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The lines of code with their numbers: no comments, and nothing behind the file's own tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn is_test(file: &str) -> bool {
    file.contains("tests")
}

fn layer(module: &str) -> usize {
    LAYERS.iter().position(|l| l.contains(&module)).unwrap_or_else(|| panic!("module {module} is in no layer: add it"))
}

#[test]
fn arrows_only_point_down() {
    let mut wrong = Vec::new();
    for (file, text) in hart().into_iter().filter(|f| !is_test(&f.0)) {
        let module = file.split(['/', '.']).next().unwrap().to_owned();
        let own = layer(&module);
        for (number, line) in code(&text) {
            for (at, _) in line.match_indices("crate::") {
                let target = line[at + 7..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let is_module = target.starts_with(char::is_lowercase);
                if is_module && target != module && layer(target) >= own {
                    wrong.push(format!("{file}:{number} uses {target}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_module_is_in_a_layer() {
    let lib = std::fs::read_to_string(source().join("lib.rs")).unwrap();
    let declared: BTreeSet<&str> =
        lib.lines().filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')).collect();
    let listed: BTreeSet<&str> = LAYERS.iter().flat_map(|l| l.iter().copied()).filter(|&l| l != "lib").collect();
    assert_eq!(declared, listed);
}

#[test]
fn every_file_says_what_it_is_and_ends_in_time() {
    let mut all = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "tests"] {
        files(&root.join(folder), &mut all);
    }
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with what it is", path.display());
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines, more than {LINES_MAX}", path.display());
        for (i, line) in text.lines().enumerate() {
            for left in [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")] {
                assert!(!line.contains(left), "{}:{} has a leftover {left}", path.display(), i + 1);
            }
        }
    }
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    let banned =
        ["Instant::now", "SystemTime", "RandomState::new", "std::env", "env::var", "thread::sleep", "process::id"];
    for (file, text) in hart().iter().filter(|f| !is_test(&f.0)) {
        for (number, line) in code(text) {
            for word in banned {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
        }
    }
}

#[test]
fn the_hart_itself_depends_on_nothing() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let from = manifest.find("[dependencies]").unwrap();
    let to = manifest[from + 1..].find("\n[").map_or(manifest.len(), |at| from + 1 + at);
    let dependencies = manifest[from..to].lines().skip(1).filter(|l| !l.trim().is_empty());
    for dependency in dependencies {
        assert!(dependency.contains("optional = true"), "{dependency}");
    }
}
