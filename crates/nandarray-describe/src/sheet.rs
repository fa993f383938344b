//! From what is written to what is described: a sheet is a written description of a type that says which vocabulary it
//! is read by, how it is made of the quantities, and which rules hold between them.

use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value as Json;

use crate::declare::FromQuantity;
use crate::problem::{Invalid, Problem};
use crate::quantity::Quantity;
use crate::value::Value;
use crate::vocabulary::{Key, Vocabulary};
use crate::written::{SheetEntry, Written};

/// A type that descriptions describe.
pub trait Described: Serialize + Sized {
    /// Keys and presets of its descriptions.
    fn vocabulary() -> &'static Vocabulary;

    /// Makes the value from the quantities of all keys.
    fn read(quantities: &Quantities<'_>) -> Self;

    /// Records what contradicts itself, by rules between several keys; each value is valid by itself.
    fn check(&self, checks: &mut Checks<'_>);

    /// Returns figures that follow from the value, for programs.
    fn figures(&self) -> Json;
}

/// A description as written, of a `T`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedSheet<T> {
    /// Values with their sources, name and bases.
    pub written: Written,
    described: PhantomData<fn() -> T>,
}

impl<T: Described> TypedSheet<T> {
    /// Returns the sheet of a preset.
    ///
    /// # Errors
    /// If there is no preset of that name.
    pub fn preset(name: &str) -> Result<Self, Invalid> {
        Written::read(T::vocabulary(), T::vocabulary().preset(name)?, name).map(Self::from)
    }

    /// Reads a sheet from a TOML text.
    ///
    /// # Errors
    /// All problems of its form: malformed TOML, unknown keys, missing sources. Values are checked by
    /// [`description`](Self::description).
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Written::read(T::vocabulary(), text, "").map(Self::from)
    }

    /// Returns a copy with some values changed. Keys are written as `section.name`; the source of these values is "set
    /// by the caller".
    ///
    /// # Errors
    /// For unknown keys, and for a name or summary that is no text or an empty one.
    pub fn with<'a>(&self, overrides: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Self, Invalid> {
        let mut written = self.written.clone();
        written.change(overrides)?;
        Ok(written.into())
    }

    /// Returns the name of what is described.
    pub fn name(&self) -> &str {
        &self.written.name
    }

    /// Returns the names of the presets that the description builds on, its direct base first.
    pub fn bases(&self) -> &[String] {
        &self.written.bases
    }

    /// Returns the value of a key; `None` if it has none or is unknown.
    pub fn get(&self, path: &str) -> Option<&SheetEntry> {
        self.written.get(path)
    }

    /// Returns all keys that have a value, in the order of the vocabulary.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, &SheetEntry)> {
        self.written.entries()
    }

    /// Resolves the sheet into a description in the simulation's units.
    ///
    /// # Errors
    /// All values that are missing, out of range, in a wrong unit or contradictory.
    pub fn description(&self) -> Result<T, Invalid> {
        let written = &self.written;
        let resolved = written.quantities().and_then(|all| {
            let quantities = Quantities { written, all: &all };
            let description = T::read(&quantities);
            let mut checks = Checks { quantities, problems: Vec::new() };
            description.check(&mut checks);
            if checks.problems.is_empty() { Ok(description) } else { Err(checks.problems) }
        });
        resolved.map_err(|mut problems| {
            problems.sort_by_key(|p| p.line.unwrap_or(u32::MAX));
            Invalid { noun: T::vocabulary().noun, subject: written.name.clone(), problems }
        })
    }

    /// Writes the whole description as TOML without a base. The most frequent source of a section is its `source`; the
    /// other sources are listed in its `sources`.
    pub fn to_toml(&self) -> String {
        self.written.to_toml()
    }

    /// Returns the description as JSON for programs: values as written with their sources (`values`), numbers in the
    /// simulation's units (`resolved`: times in ps, energies in pJ, powers in uW) and derived figures (`effective`).
    ///
    /// # Errors
    /// If the description is invalid.
    pub fn to_json(&self) -> Result<Json, Invalid> {
        let description = self.description()?;
        let mut json = self.written.to_json();
        json["resolved"] = serde_json::to_value(&description).expect("a description is plain data");
        json["effective"] = description.figures();
        Ok(json)
    }
}

impl<T> From<Written> for TypedSheet<T> {
    fn from(written: Written) -> Self {
        Self { written, described: PhantomData }
    }
}

/// The quantities of all keys of a vocabulary, each of its key's kind.
pub struct Quantities<'a> {
    written: &'a Written,
    all: &'a [Quantity],
}

impl Quantities<'_> {
    /// Returns the name of what is described.
    pub fn name(&self) -> &str {
        &self.written.name
    }

    /// Returns the summary of what is described.
    pub fn summary(&self) -> &str {
        &self.written.summary
    }

    /// Returns the quantity of a key.
    ///
    /// # Panics
    /// If there is no such key.
    pub fn quantity(&self, path: &str) -> &Quantity {
        &self.all[self.written.at(path)]
    }

    /// Returns the quantity of a key as a number, a time, a word or whatever else its kind is.
    ///
    /// # Panics
    /// If there is no such key, or its kind never is a `V`.
    pub fn get<V: FromQuantity>(&self, path: &str) -> V {
        let quantity = self.quantity(path);
        V::from_quantity(quantity).unwrap_or_else(|| panic!("{path} is {quantity:?}"))
    }

    /// Returns the values of a section's keys as written, by name, of those that have one.
    pub fn section(&self, section: &str) -> impl Iterator<Item = (&'static str, &Value)> {
        self.written.section(section)
    }

    /// Whether the word of a key is this one.
    ///
    /// # Panics
    /// If it never is.
    pub fn is(&self, path: &str, word: &str) -> bool {
        let at = self.written.at(path);
        match (self.written.vocabulary.keys[at].kind, &self.all[at]) {
            (crate::ValueKind::Word(words), Quantity::Word(found)) if words.contains(&word) => *found == word,
            (kind, _) => panic!("{path} is never {word:?}, it is {kind:?}"),
        }
    }
}

/// Rules between several keys, and what breaks them.
pub struct Checks<'a> {
    /// The quantities of all keys.
    pub quantities: Quantities<'a>,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    /// Returns the value of a key as written; `None` if it has none.
    pub fn written(&self, path: &str) -> Option<&Value> {
        self.quantities.written.get(path).map(|entry| &entry.value)
    }

    /// Records a problem with a key unless `fine` holds; `what` and `allowed` return the problem and the allowed
    /// values.
    ///
    /// # Panics
    /// If there is no such key.
    pub fn hold(&mut self, fine: bool, path: &str, what: impl FnOnce() -> String, allowed: impl FnOnce() -> String) {
        if fine {
            return;
        }
        let written = self.quantities.written;
        let entry = written.entries[written.at(path)].as_ref();
        self.problems.push(Problem {
            line: entry.and_then(|e| written.line_of(e)),
            key: path.to_owned(),
            value: entry.map(|e| e.value.to_string()).unwrap_or_default(),
            what: what(),
            allowed: allowed(),
        });
    }
}
