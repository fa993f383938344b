//! The checks: reading a crate's source and looking for what it must not have. Each panics with the places found.
//!
//! The source is read as text, formatted by `rustfmt`; the rules are as exact as that allows. Items under
//! `#[cfg(test)]` and files of tests are no code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::table::{CRATES, Crate};

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

/// The folder of the crates.
pub(crate) fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates lie in a folder")
}

impl Crate {
    fn root(&self) -> PathBuf {
        crates().join(self.name)
    }

    /// Every file of the crate's `folders`: its path from the crate's root, and its text.
    fn files(&self) -> impl Iterator<Item = (String, String)> {
        let root = self.root();
        let mut found = Vec::new();
        self.folders.iter().for_each(|folder| files(&root.join(folder), &mut found));
        found.into_iter().map(move |path| (shown(&path, &root), std::fs::read_to_string(&path).unwrap()))
    }

    /// Every file of the crate that is no test: its path below `src`, and its text.
    pub(crate) fn sources(&self) -> Vec<(String, String)> {
        let src = self.root().join("src");
        let mut found = Vec::new();
        files(&src, &mut found);
        let all = found.iter().map(|path| (shown(path, &src), std::fs::read_to_string(path).unwrap()));
        all.filter(|(file, _)| !file.contains("tests")).collect()
    }
}

fn shown(path: &Path, from: &Path) -> String {
    path.strip_prefix(from).unwrap().to_str().unwrap().replace('\\', "/")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    if !folder.exists() {
        return; // a crate without a folder of tests
    }
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

/// The lines of code with their numbers: no comments, and no items of tests.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim() == "#[cfg(test)]" {
            at = end_of_item(&lines, at);
        } else {
            found.push((at + 1, lines[at]));
            at += 1;
        }
    }
    found.into_iter().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Returns the number of the line behind the item whose first attribute is line `at`. The source is formatted, so an
/// item of several lines ends where a line closes it at its own indentation.
fn end_of_item(lines: &[&str], at: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[at]);
    let first =
        (at..lines.len()).find(|&i| !lines[i].trim_start().starts_with("#[")).expect("an attribute has an item");
    let ends = |&i: &usize| indent(lines[i]) == own && lines[i].ends_with(&[';', '}', ','][..]);
    (first..lines.len()).find(ends).expect("an item ends") + 1
}

#[test]
fn code_goes_on_behind_items_of_tests() {
    let text = [
        "a();",
        "#[cfg(test)]",
        "#[path = \"a.rs\"]",
        "mod tests;",
        "b();",
        "impl A {",
        "    #[cfg(test)]",
        "    fn f(",
        "        x: u32,",
        "    ) -> u32 {",
        "        c();",
        "    }",
        "    // d();",
        "    e();",
        "}",
        "#[cfg(test)]",
        "mod more {",
        "    g();",
        "}",
    ];
    let found: Vec<_> = code(&text.join("\n")).map(|(number, line)| (number, line.trim().to_owned())).collect();
    let want = [(1, "a();"), (5, "b();"), (6, "impl A {"), (14, "e();"), (15, "}")];
    assert_eq!(found, want.map(|(number, line)| (number, line.to_owned())));
}

/// Returns the number of a module's layer.
fn layer(layers: &str, module: &str) -> usize {
    let mut all = layers.split('<');
    let found = all.position(|layer| layer.split_whitespace().any(|one| one == module));
    found.unwrap_or_else(|| panic!("module {module} is in no layer: add it"))
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

/// Modules use those below them only, but for the arrows of `Crate::up`.
pub(crate) fn arrows_only_point_down(of: &Crate) {
    let Crate { layers, up, .. } = *of;
    let mut wrong = Vec::new();
    for (file, text) in of.sources() {
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
pub(crate) fn every_module_is_in_a_layer(of: &Crate) {
    let lib = std::fs::read_to_string(of.root().join("src/lib.rs")).unwrap();
    let declared: BTreeSet<&str> =
        lib.lines().filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')).collect();
    let listed: BTreeSet<&str> = of.layers.split(['<', ' ']).filter(|&l| !["", "lib"].contains(&l)).collect();
    assert_eq!(declared, listed, "{}", of.name);
}

/// Every file opens with what it is, has no more lines than `Crate::lines_max`, and no leftovers.
pub(crate) fn every_file_says_what_it_is_and_ends_in_time(of: &Crate) {
    let mut seen = 0;
    for (file, text) in of.files() {
        seen += 1;
        let file = format!("{}/{file}", of.name);
        assert!(text.starts_with("//! "), "{file} does not open with what it is");
        let lines = text.lines().count();
        assert!(lines <= of.lines_max, "{file} has {lines} lines, more than {}", of.lines_max);
        for (i, line) in text.lines().enumerate() {
            for left in [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")] {
                assert!(!line.contains(left), "{file}:{} has a leftover {left}", i + 1);
            }
        }
    }
    assert!(seen > 0, "{} has no files", of.name);
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

/// Functions have at most 70 lines but for those of `Crate::long`.
pub(crate) fn functions_are_seen_at_once(of: &Crate) {
    let (mut wrong, mut seen, mut long) = (Vec::new(), 0, BTreeSet::new());
    for (file, text) in of.files() {
        for (name, line, lines) in functions(&text) {
            seen += 1;
            if lines <= FUNCTION_LINES_MAX {
                continue;
            }
            long.insert((file.clone(), name.to_owned()));
            if !of.long.iter().any(|&(f, n, _)| (f, n) == (file.as_str(), name)) {
                wrong.push(format!("{file}:{line} {name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed"));
            }
        }
    }
    for &(file, name, why) in of.long {
        let listed = (file.to_owned(), name.to_owned());
        assert!(long.contains(&listed), "{name} of {file} ({why}) is no longer long: take it off the list");
    }
    assert!(seen > 10, "only {seen} functions were found in {}", of.name);
    assert!(wrong.is_empty(), "{}: {wrong:#?}", of.name);
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

/// No code but that of the files in `Crate::doors` reads the clock, the environment or the machine's chance.
pub(crate) fn time_chance_and_surroundings_come_in_through_the_door(of: &Crate) {
    let inside = |file: &str| !of.doors.iter().any(|(door, _)| *door == file);
    for (file, text) in of.sources().into_iter().filter(|(file, _)| inside(file)) {
        for (number, line) in code(&text) {
            for word in SURROUNDINGS {
                assert!(!line.contains(word), "{file}:{number} has {word}: {}", line.trim());
            }
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

/// Nothing walks a hash but what `Crate::walks` lists.
pub(crate) fn nothing_depends_on_the_order_of_a_hash(of: &Crate) {
    let sources = of.sources();
    let hashes = hashes(&sources);
    assert!(of.hashes.iter().all(|k| hashes.iter().any(|h| h.1 == *k)), "{hashes:?}");
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
                let fine = of.walks.iter().any(|(f, what, _)| f == file && line.contains(what));
                if (walked || looped) && !fine {
                    wrong.push(format!("{file}:{number} walks the hash {name}: {}", line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (file, what, why) in of.walks {
        let text = &sources.iter().find(|f| f.0 == *file).expect("a file of the list").1;
        assert!(text.contains(what), "{what} ({why}) is no longer in {file}: take it off the list");
    }
}

/// Names of the project's crates that a crate's manifest lists as dependencies, other than of its tests.
fn dependencies(of: &Crate) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(of.root().join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['=', '.', ' ']).next());
    names.filter(|name| name.starts_with("nandarray")).map(str::to_owned).collect()
}

/// A crate depends on those of the project that `Crate::uses` lists, which stand before it in the table.
pub(crate) fn crates_use_those_below_them(of: &Crate) {
    let below = CRATES.iter().map(|one| one.name).take_while(|name| *name != of.name).collect::<Vec<_>>();
    let listed: BTreeSet<String> = of.uses.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(dependencies(of), listed, "{} of the project uses", of.name);
    assert!(listed.iter().all(|name| below.contains(&name.as_str())), "{}: {listed:?} of {below:?}", of.name);
}
