//! A description as written: values with their sources, from a text and from the preset that it builds on.
//!
//! Every number has a source: `source` of its section in the same text, or `sources.KEY`. A description that names a
//! `base` starts from that preset's values; one without a base starts from the defaults of the keys. This file does not
//! know the meaning of keys.

use crate::kind::Quantity;
use crate::problem::{Invalid, Problem};
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
        self.entries[at] = Some(entry);
    }

    /// Changes some values. Keys are written as `section.name`; the source of these values is "set by the caller".
    pub(crate) fn change<'a>(&mut self, changes: impl IntoIterator<Item = (&'a str, Value)>) -> Result<(), Invalid> {
        let (subject, mut problems) = (self.name.clone(), Vec::new());
        for (path, value) in changes {
            match (path, self.vocabulary.index(path), &value) {
                ("name", _, Value::Text(text)) if !text.trim().is_empty() => self.name.clone_from(text),
                ("summary", _, Value::Text(text)) if !text.trim().is_empty() => self.summary.clone_from(text),
                ("name" | "summary", ..) => {
                    let what = "is no text, or an empty one".to_owned();
                    let (key, value) = (path.to_owned(), value.to_string());
                    problems.push(Problem { line: None, key, value, what, allowed: String::new() });
                }
                (_, Some(at), _) => {
                    let (source, origin) = ("set by the caller".to_owned(), "caller".to_owned());
                    self.entries[at] = Some(SheetEntry { value, source, origin, line: 0 });
                }
                (_, None, _) => problems.push(self.vocabulary.unknown(path, None)),
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

    /// Returns the line of an entry in this description's own text; `None` if the value comes from elsewhere.
    pub(crate) fn line_of(&self, entry: &SheetEntry) -> Option<u32> {
        (entry.line > 0 && entry.origin == self.name).then_some(entry.line)
    }

    /// Reads the quantities of all keys, each by its kind.
    pub(crate) fn quantities(&self) -> Result<Vec<Quantity>, Vec<Problem>> {
        let mut problems = Vec::new();
        let all = self.vocabulary.keys.iter().zip(&self.entries).filter_map(|(key, entry)| {
            let Some(entry) = entry else {
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
