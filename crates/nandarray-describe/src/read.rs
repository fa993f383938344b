//! Reads descriptions from TOML: their form, names of keys, sources. Values are checked against the ranges of their
//! keys where quantities are read.

use crate::problem::{Invalid, LineNumbers, Problem};
use crate::value::Value;
use crate::vocabulary::{Default, Vocabulary};
use crate::written::{SheetEntry, Written};

type TomlTable<'i> = toml::de::DeTable<'i>;
type Spanned<T> = toml::Spanned<T>;

/// Maximum depth of a chain of bases; a deeper chain must be circular.
const BASES_MAX: usize = 16;

impl Written {
    /// Reads a description from a TOML text; `subject` names it in errors until its own name is read.
    pub(crate) fn read(vocabulary: &'static Vocabulary, text: &str, subject: &str) -> Result<Self, Invalid> {
        Self::read_base(vocabulary, text, subject, 0)
    }

    fn read_base(vocabulary: &'static Vocabulary, text: &str, subject: &str, depth: usize) -> Result<Self, Invalid> {
        let lines = LineNumbers::new(text);
        TomlReader { vocabulary, text, lines, problems: Vec::new() }.read(subject, depth)
    }
}

struct TomlReader<'t> {
    vocabulary: &'static Vocabulary,
    text: &'t str,
    lines: LineNumbers,
    problems: Vec<Problem>,
}

impl TomlReader<'_> {
    fn line(&self, at: usize) -> u32 {
        self.lines.of(at)
    }

    fn problem(&mut self, at: usize, key: &str, value: &str, what: &str, allowed: &str) {
        let line = Some(self.line(at));
        let [key, value, what, allowed] = [key, value, what, allowed].map(str::to_owned);
        self.problems.push(Problem { line, key, value, what, allowed });
    }

    fn read(mut self, subject: &str, depth: usize) -> Result<Written, Invalid> {
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
            return Err(Invalid { noun: self.vocabulary.noun, subject, problems: self.problems });
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
                Some(inner) if self.vocabulary.has_section(section) => {
                    self.section(section, inner, &subject, &mut sheet);
                }
                None if self.vocabulary.has_section(section) => {
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
                    self.problems.push(self.vocabulary.unknown_section(section, line));
                }
            }
        }
        if self.problems.is_empty() {
            Ok(sheet)
        } else {
            self.problems.sort_by_key(|p| p.line);
            Err(Invalid { noun: self.vocabulary.noun, subject, problems: self.problems })
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
    fn base(&mut self, table: &TomlTable<'_>, depth: usize) -> Written {
        let (name, summary, bases) = (String::new(), String::new(), Vec::new());
        let default = Written { vocabulary: self.vocabulary, name, summary, bases, entries: defaults(self.vocabulary) };
        let at = table.get("base").map_or(0, |b| b.span().start);
        let Some(base) = self.top(table, "base") else { return default };
        if depth + 1 >= BASES_MAX {
            self.problem(at, "base", &base, "builds on itself", "");
            return default;
        }
        let Some(text) = self.vocabulary.preset_text(&base) else {
            let names = self.vocabulary.presets_near(&base);
            self.problem(at, "base", &Value::Text(base).to_string(), "is no preset", &names);
            return default;
        };
        let mut sheet = Written::read_base(self.vocabulary, text, &base, depth + 1).expect("presets are well-formed");
        sheet.bases.insert(0, base);
        sheet
    }

    fn section(&mut self, section: &str, table: &TomlTable<'_>, subject: &str, sheet: &mut Written) {
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
            let Some(index) = self.vocabulary.index(&path) else {
                let line = self.line(at);
                self.problems.push(self.vocabulary.unknown(&path, Some(line)));
                continue;
            };
            let kind = self.vocabulary.keys[index].kind;
            let read = match Value::from_toml(value.get_ref()) {
                Ok(read) => read,
                Err(what) => {
                    self.problem(at, &path, "", &format!("is {what}"), &kind.allowed());
                    continue;
                }
            };
            let source = own.and_then(|s| s.get(name)).and_then(|s| s.get_ref().as_str()).or(all.as_deref());
            if source.is_none() && kind.is_number() {
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

/// Returns the values of keys that have a default, in the order of the keys.
fn defaults(vocabulary: &Vocabulary) -> Vec<Option<SheetEntry>> {
    let entry = |default: Default| SheetEntry {
        value: Value::from_bare(default.value),
        source: default.source.to_owned(),
        origin: "defaults".to_owned(),
        line: 0,
    };
    vocabulary.keys.iter().map(|key| key.default.map(entry)).collect()
}
