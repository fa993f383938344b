//! A description as written: values with their sources, from a text and from the preset that it builds on.
//!
//! Every number has a source: `source` of its section in the same text, or `sources.KEY`. A description that names a
//! `base` starts from that preset's values; one without a base starts from the defaults of the keys. This file does not
//! know the meaning of keys.

use crate::kind::ValueKind;
use crate::problem::{Invalid, Problem};
use crate::quantity::Quantity;
use crate::value::Value;
use crate::vocabulary::{Key, Vocabulary};

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

/// A description as written: one optional value for each key of its vocabulary.
#[derive(Clone, Debug)]
pub struct Written {
    /// Keys and presets.
    pub vocabulary: &'static Vocabulary,
    /// Name of what is described.
    pub name: String,
    /// Summary in one sentence.
    pub summary: String,
    /// Names of the presets that the description builds on, its direct base first.
    pub bases: Vec<String>,
    /// Values in the order of the vocabulary's keys; `None` for keys without a value.
    pub(crate) entries: Vec<Option<SheetEntry>>,
    /// Spellings that go away, as they were read, each with the key that takes its place.
    pub(crate) renamed: Vec<(&'static str, &'static str)>,
}

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.vocabulary, other.vocabulary)
            && (&self.name, &self.summary, &self.bases) == (&other.name, &other.summary, &other.bases)
            && self.entries == other.entries
    }
}

impl Written {
    /// Returns the index of a key that the vocabulary must have.
    pub(crate) fn at(&self, path: &str) -> usize {
        self.vocabulary.index(path).unwrap_or_else(|| panic!("{path} is in the table of keys"))
    }

    /// Sets the value of a key that the vocabulary must have.
    ///
    /// # Panics
    /// If it has not.
    pub fn set(&mut self, path: &str, entry: SheetEntry) {
        let at = self.at(path);
        self.put(at, Some(entry));
    }

    /// Sets the value of a key or, for `None`, leaves it out. The last value counts: one of a table's keys takes the
    /// place of the table's own, and the table's own that of its keys' values.
    fn put(&mut self, at: usize, entry: Option<SheetEntry>) {
        let keys = self.vocabulary.keys;
        let within = |inner: &Key, outer: &Key| {
            outer.kind.is_table() && inner.path.strip_prefix(outer.path).is_some_and(|rest| rest.starts_with('.'))
        };
        for (other, key) in keys.iter().enumerate().filter(|_| entry.is_some()) {
            if within(key, &keys[at]) || within(&keys[at], key) {
                self.entries[other] = None;
            }
        }
        self.entries[at] = entry;
    }

    /// Sets the keys that a path stands for to a value; `false` if there is no such key.
    pub(crate) fn set_by(&mut self, path: &str, entry: SheetEntry) -> bool {
        if let Some(at) = self.vocabulary.index(path) {
            self.put(at, Some(entry));
            return true;
        }
        let Some(renamed) = self.vocabulary.renamed(path) else { return false };
        let all = (renamed.sets)(&entry.value);
        if renamed.told {
            self.renamed.push((renamed.old, all[0].0));
        }
        for (path, value) in all {
            let at = self.at(path);
            let default = default_of(&self.vocabulary.keys[at]);
            self.put(at, value.map(|value| SheetEntry { value, ..entry.clone() }).or(default));
        }
        true
    }

    /// Changes some values. Keys are written as `section.name`; the source of these values is "set by the caller".
    pub(crate) fn change<'a>(&mut self, changes: impl IntoIterator<Item = (&'a str, Value)>) -> Result<(), Invalid> {
        let (subject, mut problems) = (self.name.clone(), Vec::new());
        for (path, value) in changes {
            match (path, &value) {
                ("name", Value::Text(text)) if !text.trim().is_empty() => self.name.clone_from(text),
                ("summary", Value::Text(text)) if !text.trim().is_empty() => self.summary.clone_from(text),
                ("name" | "summary", ..) => {
                    let what = "is no text, or an empty one".to_owned();
                    let (key, value) = (path.to_owned(), value.to_string());
                    problems.push(Problem { line: None, key, value, what, allowed: String::new() });
                }
                _ => {
                    let (source, origin) = ("set by the caller".to_owned(), "caller".to_owned());
                    if !self.set_by(path, SheetEntry { value, source, origin, line: 0 }) {
                        problems.push(self.vocabulary.unknown(path, None));
                    }
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Invalid { noun: self.vocabulary.noun, subject, problems }) }
    }

    /// Returns the value of a key; `None` if it has none or is unknown.
    pub fn get(&self, path: &str) -> Option<&SheetEntry> {
        self.entries[self.vocabulary.index(path)?].as_ref()
    }

    /// Returns all keys that have a value, in the order of the vocabulary.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, &SheetEntry)> {
        self.vocabulary.keys.iter().zip(&self.entries).filter_map(|(k, e)| e.as_ref().map(|e| (k, e)))
    }

    /// Returns the values of a section's keys that have one, by name.
    pub(crate) fn section(&self, section: &str) -> impl Iterator<Item = (&'static str, &Value)> {
        self.entries().filter(move |(key, _)| key.section == section).map(|(key, entry)| (key.name, &entry.value))
    }

    /// Returns the line of an entry in this description's own text; `None` if the value comes from elsewhere.
    pub(crate) fn line_of(&self, entry: &SheetEntry) -> Option<u32> {
        (entry.line > 0 && entry.origin == self.name).then_some(entry.line)
    }

    /// Reads the quantities of all keys, each by its kind.
    pub(crate) fn quantities(&self) -> Result<Vec<Quantity>, Vec<Problem>> {
        let mut problems = Vec::new();
        let all = self.vocabulary.keys.iter().zip(&self.entries).filter_map(|(key, entry)| {
            let Some(entry) = entry else {
                if matches!(key.kind, ValueKind::Of(_)) {
                    return Some(Quantity::Nothing);
                }
                problems.push(Problem {
                    line: None,
                    key: key.path.to_owned(),
                    value: String::new(),
                    what: format!("is missing: {}", key.meaning),
                    allowed: format!("allowed is {}", key.kind.allowed()),
                });
                return None;
            };
            let wrong = match key.kind.read(&entry.value) {
                Ok(quantity) => return Some(quantity),
                Err(wrong) => wrong,
            };
            let bound = if key.bound.is_empty() { String::new() } else { format!(" ({})", key.bound) };
            problems.push(Problem {
                line: self.line_of(entry),
                key: key.path.to_owned(),
                value: entry.value.to_string(),
                what: wrong.what,
                allowed: format!("allowed is {}{bound}", wrong.allowed),
            });
            None
        });
        let all = all.collect();
        if problems.is_empty() { Ok(all) } else { Err(problems) }
    }
}

/// Returns the value of a key that is left out, if it has a default.
pub(crate) fn default_of(key: &Key) -> Option<SheetEntry> {
    key.default.map(|default| SheetEntry {
        value: Value::from_bare(default.value),
        source: default.source.to_owned(),
        origin: "defaults".to_owned(),
        line: 0,
    })
}
