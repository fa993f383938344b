//! Promise: the source keeps the shape that it was given.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a sitting;
//! nothing in the model reads a clock, the environment or the machine's chance, and nothing depends on the order of a hash.
//! Exceptions are listed here, each with its reason. What the compiler or clippy can hold is held there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// From the bottom up; a module may use those before it, and itself. Modules of one entry do not use each other.
const LAYERS: &[&[&str]] = &[
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

/// The most lines of a file.
const LINES_MAX: usize = 800;

/// Iterations over a hash whose order cannot be seen, by file and expression.
const HASHES: &[(&str, &str, &str)] = &[];

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

/// Every file of the model: its path below `src`, and its text.
fn model() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&source(), &mut found);
    assert!(found.len() > 40);
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(source()).unwrap().to_str().unwrap().replace('\\', "/");
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
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
    for (file, text) in model().into_iter().filter(|m| !is_test(&m.0)) {
        let module = file.split(['/', '.']).next().unwrap().to_owned();
        let own = layer(&module);
        for (number, line) in code(&text) {
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + 7..];
                let used: Vec<&str> = if let Some(list) = rest.strip_prefix('{') {
                    list.split(&[',', '}'][..]).map(|u| u.trim().split("::").next().unwrap()).collect()
                } else {
                    vec![rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()]
                };
                for target in used.into_iter().filter(|u| u.starts_with(char::is_lowercase)) {
                    let same_file_root = target == module;
                    let allowed = UP.iter().any(|&(f, up, _)| f == file && up == target);
                    if !same_file_root && !allowed && layer(target) >= own {
                        wrong.push(format!("{file}:{number} uses {target}: {}", line.trim()));
                    }
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
    for folder in ["src", "tests", "benches", "examples"] {
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
    let banned = [
        "Instant::now",
        "SystemTime",
        "thread_rng",
        "fastrand::Rng::new",
        "fastrand::u64",
        "fastrand::usize",
        "RandomState",
        "std::env",
        "env::var",
        "thread::sleep",
        "process::id",
    ];
    for (file, text) in model() {
        for (number, line) in code(&text).filter(|_| !is_test(&file)) {
            for word in banned {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
        }
    }
}

#[test]
fn nothing_depends_on_the_order_of_a_hash() {
    let model = model();
    // Names that are declared as hashes anywhere; a field's name stands for it in every file.
    let mut hashes: BTreeSet<(Option<String>, String)> = BTreeSet::new();
    for (file, text) in model.iter().filter(|m| !is_test(&m.0)) {
        for (_, line) in code(text) {
            let Some(at) = line.find("HashMap<").or(line.find("HashSet<")).or(line.find("HashMap::new")) else {
                continue;
            };
            let before = line[..at]
                .trim_end_matches("Fx")
                .trim_end()
                .trim_end_matches(['&', '=', ':', ' '])
                .trim_end_matches("&mut")
                .trim_end();
            let name: String = before
                .trim_end_matches([':', ' '])
                .chars()
                .rev()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let name: String = name.chars().rev().collect();
            if !name.is_empty() && !line.trim_start().starts_with("use ") {
                let field = line.trim_start().starts_with("pub ") || !line.contains("let ");
                hashes.insert((if field { None } else { Some(file.clone()) }, name));
            }
        }
    }
    assert!(hashes.iter().any(|h| h.1 == "draining") && hashes.iter().any(|h| h.1 == "writing"), "{hashes:?}");
    let walks =
        [".iter()", ".iter_mut()", ".keys()", ".values()", ".values_mut()", ".drain(", ".retain(", ".into_iter()"];
    let mut wrong = Vec::new();
    for (file, text) in model.iter().filter(|m| !is_test(&m.0)) {
        for (number, line) in code(text) {
            for (_, name) in hashes.iter().filter(|h| h.0.as_ref().is_none_or(|f| f == file)) {
                let whole_word = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let walked =
                    walks.iter().any(|w| line.match_indices(&format!("{name}{w}")).any(|(at, _)| whole_word(at)));
                let looped = line.contains(&format!(" in &{name} ")) || line.contains(&format!(" in {name} "));
                let allowed = HASHES.iter().any(|(f, what, _)| f == file && line.contains(what));
                if (walked || looped) && !allowed {
                    wrong.push(format!("{file}:{number} walks the hash {name}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (file, what, why) in HASHES {
        let text = &model.iter().find(|f| f.0 == *file).expect("a file of the list").1;
        assert!(text.contains(what), "{what} ({why}) is no longer in {file}: take it off the list");
    }
}
