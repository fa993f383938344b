//! Shared by the crates' `tests/tidy.rs`: reading a crate's source and looking for what it must not have.
//!
//! Included by path, so that no crate depends on anything for it: `#[path = "../../tidy.rs"] mod tidy;`. Paths count
//! from the including crate's folder. Each function panics with the places found. Each crate lists its exceptions, with
//! their reasons.

#![allow(dead_code, reason = "every crate takes what it needs")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Modules from the bottom up; a module may use those of entries before its own, and itself.
pub(crate) type Layers = &'static [&'static [&'static str]];

/// The clock, the environment, the machine's chance.
const SURROUNDINGS: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "thread_rng",
    "fastrand::Rng::new",
    "fastrand::u64",
    "fastrand::usize",
    "RandomState::new",
    "std::env",
    "env::var",
    "thread::sleep",
    "process::id",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// Every file of the crate that is no test: its path below `src`, and its text.
pub(crate) fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let src = root().join("src");
    files(&src, &mut found);
    let name = |path: &Path| path.strip_prefix(&src).unwrap().to_str().unwrap().replace('\\', "/");
    let all = found.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap()));
    all.filter(|(file, _)| !file.contains("tests")).collect()
}

/// The lines of code with their numbers: no comments, and nothing behind the file's own tests.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn layer(layers: Layers, module: &str) -> usize {
    layers.iter().position(|l| l.contains(&module)).unwrap_or_else(|| panic!("module {module} is in no layer: add it"))
}

/// Modules that a line names behind `crate::`, one or a list in braces.
fn used(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + 7..];
        match rest.strip_prefix('{') {
            Some(list) => found.extend(list.split(&[',', '}'][..]).map(|u| u.trim().split("::").next().unwrap())),
            None => found.push(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()),
        }
    }
    found.retain(|u| u.starts_with(char::is_lowercase));
    found
}

/// Modules use those below them only; `up` are arrows that point up, each with its reason: file, what it uses, why.
pub(crate) fn arrows_only_point_down(layers: Layers, up: &[(&str, &str, &str)]) {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let module = file.split(['/', '.']).next().unwrap();
        let own = layer(layers, module);
        for (number, line) in code(&text) {
            for target in used(line) {
                let allowed = target == module || up.iter().any(|&(f, t, _)| (f, t) == (file.as_str(), target));
                if !allowed && layer(layers, target) >= own {
                    wrong.push(format!("{file}:{number} uses {target}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The layers name what `lib.rs` declares, nothing more and nothing less.
pub(crate) fn every_module_is_in_a_layer(layers: Layers) {
    let lib = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let declared: BTreeSet<&str> =
        lib.lines().filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')).collect();
    let listed: BTreeSet<&str> = layers.iter().flat_map(|l| l.iter().copied()).filter(|&l| l != "lib").collect();
    assert_eq!(declared, listed);
}

/// Every file of these folders opens with what it is, has no more lines than this, and no leftovers.
pub(crate) fn every_file_says_what_it_is_and_ends_in_time(folders: &[&str], lines_max: usize) {
    let mut all = Vec::new();
    for folder in folders {
        files(&root().join(folder), &mut all);
    }
    assert!(!all.is_empty());
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not open with what it is", path.display());
        let lines = text.lines().count();
        assert!(lines <= lines_max, "{} has {lines} lines, more than {lines_max}", path.display());
        for (i, line) in text.lines().enumerate() {
            for left in [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")] {
                assert!(!line.contains(left), "{}:{} has a leftover {left}", path.display(), i + 1);
            }
        }
    }
}

/// The most lines of a function, from its head to its closing brace: what one sees at once.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions of a file with their lines: name, first line, number of lines. The source is formatted, so a function
/// ends at the first brace that closes at its own indentation.
fn functions(text: &str) -> Vec<(&str, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(at) = code.find("fn ").filter(|&at| at == 0 || code[..at].ends_with(' ')) else { continue };
        let words = ["pub", "const", "async", "unsafe", "extern", "default"];
        let modifier = |w: &str| words.iter().any(|m| w.starts_with(m)) || w.starts_with('"') || w.ends_with(')');
        if !code[..at].split_whitespace().all(modifier) || line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        let closes = |l: &&str| l.len() - l.trim_start().len() == indent && (l.trim() == "}" || l.ends_with(';'));
        let end = lines[i..].iter().position(closes);
        let name = code[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        found.push((name, i + 1, end.map_or(lines.len() - i, |end| end + 1)));
    }
    found
}

/// Functions have at most 70 lines but for those that `allowed` lists: file, function, why it cannot be cut.
pub(crate) fn functions_are_seen_at_once(folders: &[&str], allowed: &[(&str, &str, &str)]) {
    let mut all = Vec::new();
    folders.iter().for_each(|folder| files(&root().join(folder), &mut all));
    let (mut wrong, mut seen, mut long) = (Vec::new(), 0, BTreeSet::new());
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        for (name, line, lines) in functions(&text) {
            seen += 1;
            if lines <= FUNCTION_LINES_MAX {
                continue;
            }
            long.insert((file.clone(), name.to_owned()));
            if !allowed.iter().any(|&(f, n, _)| (f, n) == (file.as_str(), name)) {
                wrong.push(format!("{file}:{line} {name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed"));
            }
        }
    }
    for &(file, name, why) in allowed {
        let listed = (file.to_owned(), name.to_owned());
        assert!(long.contains(&listed), "{name} of {file} ({why}) is no longer long: take it off the list");
    }
    assert!(seen > 10, "only {seen} functions were found in {folders:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_length_of_functions_is_counted() {
    let text = [
        "fn short() {}\npub(crate) unsafe fn long(\n    a: u32,\n) -> u32 {\n",
        &"    x();\n".repeat(80),
        "}\ntrait T {\n    fn declared(\n        &self,\n    );\n    fn two(&self) {\n    }\n}\n",
    ]
    .concat();
    assert_eq!(functions(&text), [("long", 2, 84), ("declared", 87, 3), ("two", 90, 2)]);
}

/// No code but that of the files `allowed` reads the clock, the environment or the machine's chance.
pub(crate) fn time_chance_and_surroundings_come_in_through_the_door(allowed: &[&str]) {
    for (file, text) in sources().into_iter().filter(|(file, _)| !allowed.contains(&file.as_str())) {
        for (number, line) in code(&text) {
            for word in SURROUNDINGS {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
        }
    }
}

/// No code of these folders reads or writes a dword of a submission entry: `nandarray-nvme-spec` alone knows them.
pub(crate) fn no_dword_is_packed(folders: &[&str]) {
    let mut all = Vec::new();
    folders.iter().for_each(|folder| files(&root().join(folder), &mut all));
    assert!(!all.is_empty(), "no files in {folders:?}");
    for path in all.into_iter().filter(|path| !path.to_str().unwrap().contains("tests")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in code(&text) {
            assert!(!line.contains("cdw"), "{}:{number} has a dword: {}", path.display(), line.trim());
        }
    }
}

/// Names that are declared as hashes, by the file that a local one is in; a field's name stands for it in every file.
fn hashes(sources: &[(String, String)]) -> BTreeSet<(Option<String>, String)> {
    let mut found = BTreeSet::new();
    for (file, text) in sources {
        for (_, line) in code(text) {
            let Some(at) = line.find("HashMap<").or(line.find("HashSet<")).or(line.find("HashMap::new")) else {
                continue;
            };
            let before = line[..at].trim_end_matches("Fx").trim_end();
            let before = before.trim_end_matches(['&', '=', ':', ' ']).trim_end_matches("&mut").trim_end();
            let before = before.trim_end_matches([':', ' ']);
            let begin = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |i| i + 1);
            let name = &before[begin..];
            if !name.is_empty() && !line.trim_start().starts_with("use ") {
                let field = line.trim_start().starts_with("pub ") || !line.contains("let ");
                found.insert((if field { None } else { Some(file.clone()) }, name.to_owned()));
            }
        }
    }
    found
}

/// Nothing walks a hash but what `allowed` lists: file, expression, why its order cannot be seen. `known` are names
/// that must be found to be hashes, so that the search itself is seen to work.
pub(crate) fn nothing_depends_on_the_order_of_a_hash(known: &[&str], allowed: &[(&str, &str, &str)]) {
    let sources = sources();
    let hashes = hashes(&sources);
    assert!(known.iter().all(|k| hashes.iter().any(|h| h.1 == *k)), "{hashes:?}");
    let walks =
        [".iter()", ".iter_mut()", ".keys()", ".values()", ".values_mut()", ".drain(", ".retain(", ".into_iter()"];
    let mut wrong = Vec::new();
    for (file, text) in &sources {
        for (number, line) in code(text) {
            for (_, name) in hashes.iter().filter(|h| h.0.as_ref().is_none_or(|f| f == file)) {
                let whole_word = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let walked =
                    walks.iter().any(|w| line.match_indices(&format!("{name}{w}")).any(|(at, _)| whole_word(at)));
                let looped = line.contains(&format!(" in &{name} ")) || line.contains(&format!(" in {name} "));
                let fine = allowed.iter().any(|(f, what, _)| f == file && line.contains(what));
                if (walked || looped) && !fine {
                    wrong.push(format!("{file}:{number} walks the hash {name}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (file, what, why) in allowed {
        let text = &sources.iter().find(|f| f.0 == *file).expect("a file of the list").1;
        assert!(text.contains(what), "{what} ({why}) is no longer in {file}: take it off the list");
    }
}
