//! A description as written: values with their sources, from a text and from the preset that it builds on.
//!
//! Every number has a source: `source` of its section in the same text, or `sources.KEY`. A description that names a
//! `base` starts from that preset's values; one without a base starts from `defaults.toml`, which has the values that
//! nearly all devices share, and none of the flash. This file does not know the meaning of keys.

use super::keys::{self, KEYS, nearest};
use super::presets;
use super::problem::{Invalid, LineNumbers, Problem};
use super::value::Value;

/// A value with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetEntry {
    /// The value as written.
    pub value: Value,
    /// Source of the value: data sheet, paper, measurement or assumption.
    pub source: String,
    /// Name of the description whose text sets the value.
    pub origin: String,
    /// Line of that text, from 1; 0 for a value set from elsewhere.
    pub line: u32,
}

/// A description as written: one optional value for each key.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    pub(super) name: String,
    pub(super) summary: String,
    pub(super) bases: Vec<String>,
    /// Values in the order of [`KEYS`]; `None` for keys without a value.
    pub(super) entries: Vec<Option<SheetEntry>>,
}

/// Maximum depth of a chain of bases; a deeper chain must be circular.
const BASES_MAX: usize = 16;

impl Sheet {
    /// Returns the sheet of a preset.
    ///
    /// # Errors
    /// If there is no preset of that name.
    pub fn preset(name: &str) -> Result<Self, Invalid> {
        Self::read(presets::find(name)?, name, 0)
    }

    /// Reads a sheet from a TOML text.
    ///
    /// # Errors
    /// All problems of its form: malformed TOML, unknown keys, missing sources. Values are checked by
    /// [`description`](Self::description).
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::read(text, "", 0)
    }

    fn read(text: &str, subject: &str, depth: usize) -> Result<Self, Invalid> {
        SheetReader { text, lines: LineNumbers::new(text), problems: Vec::new() }.read(subject, depth)
    }

    /// Returns a copy with some values changed. Keys are written as `section.name`; the source of these values is "set
    /// by the caller".
    ///
    /// # Errors
    /// For unknown keys, and for a name or summary that is no text or an empty one.
    pub fn with<'a>(&self, overrides: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Self, Invalid> {
        let mut sheet = self.clone();
        let mut problems = Vec::new();
        for (path, value) in overrides {
            match (path, keys::index(path), &value) {
                ("name", _, Value::Text(text)) if !text.trim().is_empty() => sheet.name.clone_from(text),
                ("summary", _, Value::Text(text)) if !text.trim().is_empty() => sheet.summary.clone_from(text),
                ("name" | "summary", ..) => {
                    let what = "is no text, or an empty one".to_owned();
                    let (key, value) = (path.to_owned(), value.to_string());
                    problems.push(Problem { line: None, key, value, what, allowed: String::new() });
                }
                (_, Some(at), _) => {
                    let (source, origin) = ("set by the caller".to_owned(), "caller".to_owned());
                    sheet.entries[at] = Some(SheetEntry { value, source, origin, line: 0 });
                }
                (_, None, _) => problems.push(unknown(path, None)),
            }
        }
        if problems.is_empty() { Ok(sheet) } else { Err(Invalid { subject: self.name.clone(), problems }) }
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the presets that the description builds on, its direct base first.
    pub fn bases(&self) -> &[String] {
        &self.bases
    }

    /// Returns the value of a key; `None` if it has none or is unknown.
    pub fn get(&self, path: &str) -> Option<&SheetEntry> {
        self.entries[keys::index(path)?].as_ref()
    }

    /// Returns all keys that have a value, in the order of [`KEYS`].
    pub fn entries(&self) -> impl Iterator<Item = (&'static keys::Key, &SheetEntry)> {
        KEYS.iter().zip(&self.entries).filter_map(|(k, e)| e.as_ref().map(|e| (k, e)))
    }
}

/// Makes the problem of an unknown key, with a suggestion.
fn unknown(path: &str, line: Option<u32>) -> Problem {
    let (section, name) = path.split_once('.').unwrap_or(("", path));
    let known = KEYS.iter().any(|k| k.section() == section);
    // For a known section the names of its keys are compared first; for a misspelt section the whole path is.
    let near = known
        .then(|| nearest(name, KEYS.iter().filter(|k| k.section() == section).map(keys::Key::name)))
        .flatten()
        .map(|n| format!("{section}.{n}"))
        .or_else(|| nearest(path, KEYS.iter().map(|k| k.path)).map(str::to_owned));
    Problem {
        line,
        key: path.to_owned(),
        value: String::new(),
        what: "is no key of a description".to_owned(),
        allowed: match near {
            Some(near) => format!("did you mean {near}?"),
            None if known => format!("keys of {section} are {}", names_of(section)),
            None => format!("sections are {}", names_of(section)),
        },
    }
}

/// Returns the names of a section's keys, separated by commas; the names of all sections if the section is unknown.
fn names_of(section: &str) -> String {
    let mut names: Vec<&str> = match KEYS.iter().any(|k| k.section() == section) {
        true => KEYS.iter().filter(|k| k.section() == section).map(keys::Key::name).collect(),
        false => KEYS.iter().map(keys::Key::section).collect(),
    };
    names.dedup();
    names.join(", ")
}

type TomlTable<'i> = toml::de::DeTable<'i>;
type Spanned<T> = toml::Spanned<T>;

struct SheetReader<'t> {
    text: &'t str,
    lines: LineNumbers,
    problems: Vec<Problem>,
}

impl SheetReader<'_> {
    fn line(&self, at: usize) -> u32 {
        self.lines.of(at)
    }

    fn problem(&mut self, at: usize, key: &str, value: &str, what: &str, allowed: &str) {
        let line = Some(self.line(at));
        let [key, value, what, allowed] = [key, value, what, allowed].map(str::to_owned);
        self.problems.push(Problem { line, key, value, what, allowed });
    }

    fn read(mut self, subject: &str, depth: usize) -> Result<Sheet, Invalid> {
        let (table, errors) = TomlTable::parse_recoverable(self.text);
        for error in errors {
            let at = error.span().map_or(0, |s| s.start);
            self.problem(at, "", "", error.message(), "");
        }
        let table = table.into_inner();
        let name = self.top(&table, "name").unwrap_or_default();
        let subject = if name.is_empty() { subject.to_owned() } else { name.clone() };
        if !self.problems.is_empty() {
            // Malformed TOML cannot be distinguished from missing values.
            return Err(Invalid { subject, problems: self.problems });
        }
        if name.is_empty() {
            self.problem(0, "name", "", "is missing", "give the device a name");
        }
        let summary = self.top(&table, "summary").unwrap_or_default();
        let mut sheet = self.base(&table, depth);
        sheet.name = name;
        if !summary.is_empty() {
            sheet.summary = summary;
        }
        for (key, value) in &table {
            let section = key.get_ref().as_ref();
            if matches!(section, "name" | "summary" | "base") {
                continue;
            }
            match value.get_ref().as_table() {
                Some(inner) if KEYS.iter().any(|k| k.section() == section) => {
                    self.section(section, inner, &subject, &mut sheet);
                }
                None if KEYS.iter().any(|k| k.section() == section) => {
                    self.problem(
                        key.span().start,
                        section,
                        "",
                        "is no table",
                        &format!("write its keys below [{section}]"),
                    );
                }
                _ => {
                    let line = self.line(key.span().start);
                    self.problems.push(unknown_section(section, line));
                }
            }
        }
        if self.problems.is_empty() {
            Ok(sheet)
        } else {
            self.problems.sort_by_key(|p| p.line);
            Err(Invalid { subject, problems: self.problems })
        }
    }

    /// Reads a text at the top level of the table; `None` if it is missing. An empty one is recorded as a problem.
    fn top(&mut self, table: &TomlTable<'_>, name: &str) -> Option<String> {
        let value = table.get(name)?;
        let text = value.get_ref().as_str();
        if text.is_none_or(|t| t.trim().is_empty()) {
            self.problem(value.span().start, name, "", "is no text, or an empty one", "");
        }
        text.map(str::to_owned)
    }

    /// Reads the sheet of the base that the description names, or of the defaults.
    fn base(&mut self, table: &TomlTable<'_>, depth: usize) -> Sheet {
        let empty =
            Sheet { name: String::new(), summary: String::new(), bases: Vec::new(), entries: vec![None; KEYS.len()] };
        let at = table.get("base").map_or(0, |b| b.span().start);
        let base = match self.top(table, "base") {
            Some(base) => base,
            None if depth == BASES_MAX => return empty,
            // The defaults have no base.
            None if self.text == presets::DEFAULTS => return empty,
            None => {
                let defaults =
                    Sheet::read(presets::DEFAULTS, "defaults", BASES_MAX).expect("the defaults are well-formed");
                return Sheet { summary: String::new(), ..defaults };
            }
        };
        if depth + 1 >= BASES_MAX {
            self.problem(at, "base", &base, "builds on itself", "");
            return empty;
        }
        let Some(text) = presets::text(&base) else {
            let near = nearest(&base, presets::names().iter().copied()).map(|n| format!("did you mean {n:?}? "));
            let names = format!("{}presets are {}", near.unwrap_or_default(), presets::names().join(", "));
            self.problem(at, "base", &Value::Text(base).to_string(), "is no preset", &names);
            return empty;
        };
        let mut sheet = Sheet::read(text, &base, depth + 1).expect("presets are well-formed");
        sheet.bases.insert(0, base);
        sheet
    }

    fn section(&mut self, section: &str, table: &TomlTable<'_>, subject: &str, sheet: &mut Sheet) {
        let all = self.source_of(section, table);
        let own = table.get("sources").and_then(|s| s.get_ref().as_table());
        if let Some(sources) = table.get("sources") {
            self.sources(section, sources, table);
        }
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if matches!(name, "source" | "sources") {
                continue;
            }
            let path = format!("{section}.{name}");
            let at = key.span().start;
            let Some(index) = keys::index(&path) else {
                let line = self.line(at);
                self.problems.push(unknown(&path, Some(line)));
                continue;
            };
            let read = match Value::from_toml(value.get_ref()) {
                Ok(read) => read,
                Err(what) => {
                    self.problem(at, &path, "", &format!("is {what}"), &KEYS[index].kind.allowed());
                    continue;
                }
            };
            let source = own.and_then(|s| s.get(name)).and_then(|s| s.get_ref().as_str()).or(all.as_deref());
            if source.is_none() && KEYS[index].kind.is_number() {
                let how = format!("add source = \"...\" to [{section}], or {name} = \"...\" to [{section}.sources]");
                self.problem(at, &path, &read.to_string(), "has no source", &how);
                continue;
            }
            let source = source.unwrap_or("choice").to_owned();
            let line = self.line(at);
            sheet.entries[index] = Some(SheetEntry { value: read, source, origin: subject.to_owned(), line });
        }
    }

    /// Reads the source that holds for a whole section; `None` if the section has none.
    fn source_of(&mut self, section: &str, table: &TomlTable<'_>) -> Option<String> {
        let source = table.get("source")?;
        match source.get_ref().as_str().map(str::trim) {
            Some(text) if !text.is_empty() => Some(text.to_owned()),
            _ => {
                self.problem(source.span().start, &format!("{section}.source"), "", "is no text, or an empty one", "");
                None
            }
        }
    }

    /// Checks that every entry of `sources` is a text, and belongs to a key that this section sets.
    fn sources(&mut self, section: &str, sources: &Spanned<toml::de::DeValue<'_>>, table: &TomlTable<'_>) {
        let Some(inner) = sources.get_ref().as_table() else {
            self.problem(sources.span().start, &format!("{section}.sources"), "", "is no table", "");
            return;
        };
        for (key, value) in inner {
            let name = key.get_ref().as_ref();
            let path = format!("{section}.sources.{name}");
            if value.get_ref().as_str().is_none_or(|t| t.trim().is_empty()) {
                self.problem(value.span().start, &path, "", "is no text, or an empty one", "");
            } else if !table.contains_key(name) {
                let how = format!("it is the source of nothing: [{section}] has no {name} in this text");
                self.problem(key.span().start, &path, "", &how, "");
            }
        }
    }
}

fn unknown_section(section: &str, line: u32) -> Problem {
    let mut sections: Vec<&str> = KEYS.iter().map(keys::Key::section).collect();
    sections.dedup();
    let near = nearest(section, sections.iter().copied()).map(|n| format!("did you mean [{n}]? "));
    Problem {
        line: Some(line),
        key: section.to_owned(),
        value: String::new(),
        what: "is no section of a description".to_owned(),
        allowed: format!("{}sections are {}", near.unwrap_or_default(), sections.join(", ")),
    }
}
