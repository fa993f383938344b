//! Reads descriptions from TOML: their form, names of keys, sources. Values are checked against the ranges of their
//! keys where quantities are read.

use crate::problem::{Invalid, LineNumbers, Problem};
use crate::value::Value;
use crate::vocabulary::Vocabulary;
use crate::written::{SheetEntry, Written, default_of};

type TomlTable<'i> = toml::de::DeTable<'i>;
type Spanned<T> = toml::Spanned<T>;
/// A dotted name within a section, its last part where it is written, and the value.
type Leaf<'t, 'i> = (String, &'t Spanned<toml::de::DeString<'i>>, &'t Spanned<toml::de::DeValue<'i>>);

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
        let default = Written {
            vocabulary: self.vocabulary,
            name,
            summary,
            bases,
            entries: defaults(self.vocabulary),
            renamed: Vec::new(),
        };
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
        for (name, key, value) in self.leaves(section, "", table) {
            if matches!(&*name, "source" | "sources") {
                continue;
            }
            let path = format!("{section}.{name}");
            let at = key.span().start;
            if let (Some(inner), true) = (value.get_ref().as_table(), self.vocabulary.has_section(&path)) {
                self.section(&path, inner, subject, sheet);
                continue;
            }
            let kind = self.vocabulary.index(&path).map(|index| self.vocabulary.keys[index].kind);
            if kind.is_none() && self.vocabulary.renamed(&path).is_none() {
                let line = self.line(at);
                self.problems.push(self.vocabulary.unknown(&path, Some(line)));
                continue;
            }
            let read = match Value::from_toml(value.get_ref()) {
                Ok(read) => read,
                Err(what) => {
                    self.problem(at, &path, "", &format!("is {what}"), &kind.map_or_else(String::new, |k| k.allowed()));
                    continue;
                }
            };
            let source = own.and_then(|sources| leaf(sources, &name)).and_then(|s| s.as_str()).or(all.as_deref());
            if source.is_none() && self.vocabulary.is_number(&path, &read) {
                let how = format!("add source = \"...\" to [{section}], or {name} = \"...\" to [{section}.sources]");
                self.problem(at, &path, &read.to_string(), "has no source", &how);
                continue;
            }
            let source = source.unwrap_or("choice").to_owned();
            let line = self.line(at);
            sheet.set_by(&path, SheetEntry { value: read, source, origin: subject.to_owned(), line });
        }
    }

    /// Returns the values of a section and of the tables within it that have keys, by dotted names.
    fn leaves<'t, 'i>(&self, section: &str, prefix: &str, table: &'t TomlTable<'i>) -> Vec<Leaf<'t, 'i>> {
        let mut found = Vec::new();
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let is_table = |at: usize| self.vocabulary.keys[at].kind.is_table();
            match value.get_ref().as_table() {
                Some(inner) if self.vocabulary.index(&format!("{section}.{name}")).is_some_and(is_table) => {
                    found.extend(self.leaves(section, &format!("{name}."), inner));
                }
                _ => found.push((name, key, value)),
            }
        }
        found
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
        for (name, key, value) in self.leaves(section, "", inner) {
            let path = format!("{section}.sources.{name}");
            if value.get_ref().as_str().is_none_or(|t| t.trim().is_empty()) {
                self.problem(value.span().start, &path, "", "is no text, or an empty one", "");
            } else if leaf(table, &name).is_none() {
                let how = format!("it is the source of nothing: [{section}] has no {name} in this text");
                self.problem(key.span().start, &path, "", &how, "");
            }
        }
    }
}

/// Returns the value of a dotted name in a table and the tables within it.
fn leaf<'t, 'i>(table: &'t TomlTable<'i>, name: &str) -> Option<&'t toml::de::DeValue<'i>> {
    if let Some(value) = table.get(name) {
        return Some(value.get_ref());
    }
    let (first, rest) = name.split_once('.')?;
    leaf(table.get(first)?.get_ref().as_table()?, rest)
}

/// Returns the values of keys that have a default, in the order of the keys.
fn defaults(vocabulary: &Vocabulary) -> Vec<Option<SheetEntry>> {
    vocabulary.keys.iter().map(default_of).collect()
}
