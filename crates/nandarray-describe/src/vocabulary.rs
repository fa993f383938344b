//! Vocabularies: the keys of one kind of description, its presets, and suggestions for what is misspelt.

use serde_json::{Value as Json, json};

use crate::kind::ValueKind;
use crate::problem::{Invalid, Problem};
use crate::table::TableKey;
use crate::value::Value;

/// A key of a description.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Section of the key, such as `nand`.
    pub section: &'static str,
    /// Name of the key within its section, such as `t_read`.
    pub name: &'static str,
    /// Section and name, such as `nand.t_read`.
    pub path: &'static str,
    /// Kind and range of the value.
    pub kind: ValueKind,
    /// Meaning in a few words.
    pub meaning: &'static str,
    /// Reason for the upper end of the range; empty where it is obvious.
    pub bound: &'static str,
    /// Value of descriptions that do not set the key; `None` if they must.
    pub default: Option<Default>,
}

/// Value that a key has unless a description sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Default {
    /// The value, as it is written on a command line.
    pub value: &'static str,
    /// Source of the value.
    pub source: &'static str,
}

impl Key {
    /// A key of a list that is still to be filled.
    const NONE: Self =
        Self { section: "", name: "", path: "", kind: ValueKind::Flag, meaning: "", bound: "", default: None };

    /// Returns the keys of a table as those of a section, by their dotted names. Values are optional: what is left out
    /// is up to who reads the table. The names live as long as the process.
    pub fn of_table(section: &'static str, keys: &'static [TableKey]) -> impl Iterator<Item = Self> {
        TableKey::dotted(keys).into_iter().map(move |(name, key)| {
            let path: &'static str = String::leak(format!("{section}.{name}"));
            let (name, kind) = (&path[section.len() + 1..], ValueKind::Of(key));
            Self { section, name, path, kind, meaning: key.meaning, bound: "", default: None }
        })
    }
}

/// Another spelling of keys, which descriptions may still have.
#[derive(Debug)]
pub struct Renamed {
    /// The other spelling.
    pub old: &'static str,
    /// Returns the keys that a value sets, each with its value; `None` for the value of a key that is left out.
    pub sets: fn(&Value) -> Vec<(&'static str, Option<Value>)>,
    /// Whether the spelling goes away; its reader is then given the key that takes its place.
    pub told: bool,
}

/// Returns the number of keys of sections.
pub const fn count(sections: &[&[Key]]) -> usize {
    let (mut keys, mut section) = (0, 0);
    while section < sections.len() {
        keys += sections[section].len();
        section += 1;
    }
    keys
}

/// Joins the keys of sections, whose number must be `N`.
///
/// # Panics
/// If the number of keys is another.
pub const fn concat<const N: usize>(sections: &[&[Key]]) -> [Key; N] {
    let mut all = [Key::NONE; N];
    let (mut filled, mut section) = (0, 0);
    while section < sections.len() {
        let mut key = 0;
        while key < sections[section].len() {
            all[filled] = sections[section][key];
            (filled, key) = (filled + 1, key + 1);
        }
        section += 1;
    }
    assert!(filled == N, "the number of keys");
    all
}

/// Keys and presets of one kind of description.
#[derive(Debug)]
pub struct Vocabulary {
    /// Noun for what is described, such as `device`.
    pub noun: &'static str,
    /// All keys, in the order in which they are printed.
    pub keys: &'static [Key],
    /// Other spellings of keys.
    pub renamed: &'static [Renamed],
    /// Names and TOML texts of the descriptions that come with the product.
    pub presets: &'static [(&'static str, &'static str)],
}

impl Vocabulary {
    /// Returns the index of a key in `keys`; `None` if there is no such key.
    pub fn index(&self, path: &str) -> Option<usize> {
        self.keys.iter().position(|k| k.path == path)
    }

    /// Whether a value of a key, or of another spelling of keys, is a number, which needs a source.
    pub(crate) fn is_number(&self, path: &str, value: &Value) -> bool {
        let number = |path: &str| self.index(path).is_some_and(|index| self.keys[index].kind.is_number());
        let renamed = |other: &Renamed| (other.sets)(value).iter().any(|(path, value)| value.is_some() && number(path));
        number(path) || self.renamed(path).is_some_and(renamed)
    }

    /// Returns the other spelling of keys that a path is, if it is one.
    pub(crate) fn renamed(&self, path: &str) -> Option<&'static Renamed> {
        self.renamed.iter().find(|other| other.old == path)
    }

    /// Returns the TOML text of a preset.
    ///
    /// # Errors
    /// If there is no preset of that name.
    pub fn preset(&self, name: &str) -> Result<&'static str, Invalid> {
        self.preset_text(name).ok_or_else(|| {
            let mut invalid = Invalid::one(self.noun, name, "", "", "there is no preset of that name");
            invalid.problems[0].allowed = self.presets_near(name);
            invalid
        })
    }

    pub(crate) fn preset_text(&self, name: &str) -> Option<&'static str> {
        self.presets.iter().find(|p| p.0 == name).map(|p| p.1)
    }

    /// Returns all keys as JSON for programs: allowed values and meaning of each.
    pub fn keys_json(&self) -> Json {
        let all = self.keys.iter().map(|k| {
            json!({"key": k.path, "meaning": k.meaning, "allowed": k.kind.allowed(), "bound": k.bound,
                   "number": k.kind.is_number()})
        });
        Json::Array(all.collect())
    }

    /// Returns the list of all presets, after the one most similar to a name.
    pub(crate) fn presets_near(&self, name: &str) -> String {
        let names: Vec<&str> = self.presets.iter().map(|p| p.0).collect();
        let near = nearest(name, names.iter().copied()).map(|n| format!("did you mean {n:?}? "));
        format!("{}presets are {}", near.unwrap_or_default(), names.join(", "))
    }

    /// Whether there is a section of this name.
    pub(crate) fn has_section(&self, section: &str) -> bool {
        self.keys.iter().any(|k| k.section == section)
    }

    /// Makes the problem of an unknown key, with a suggestion.
    pub(crate) fn unknown(&self, path: &str, line: Option<u32>) -> Problem {
        let sections = self.keys.iter().map(|key| key.section);
        let within = sections.filter(|section| path.strip_prefix(section).is_some_and(|name| name.starts_with('.')));
        let of = within.max_by_key(|section| section.len());
        let known = of.is_some();
        let (section, name) = match of {
            Some(section) => (section, &path[section.len() + 1..]),
            None => path.split_once('.').unwrap_or(("", path)),
        };
        // For a known section the names of its keys are compared first; for a misspelt section the whole path is.
        let near = known
            .then(|| nearest(name, self.keys.iter().filter(|k| k.section == section).map(|k| k.name)))
            .flatten()
            .map(|n| format!("{section}.{n}"))
            .or_else(|| nearest(path, self.keys.iter().map(|k| k.path)).map(str::to_owned));
        Problem {
            line,
            key: path.to_owned(),
            value: String::new(),
            what: "is no key of a description".to_owned(),
            allowed: match near {
                Some(near) => format!("did you mean {near}?"),
                None if known => format!("keys of {section} are {}", self.names_of(section)),
                None => format!("sections are {}", self.names_of(section)),
            },
        }
    }

    /// Makes the problem of an unknown section, with a suggestion.
    pub(crate) fn unknown_section(&self, section: &str, line: u32) -> Problem {
        let mut sections: Vec<&str> = self.keys.iter().map(|k| k.section).collect();
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

    /// Returns the names of a section's keys, separated by commas; the names of all sections if the section is unknown.
    fn names_of(&self, section: &str) -> String {
        let mut names: Vec<&str> = match self.has_section(section) {
            true => self.keys.iter().filter(|k| k.section == section).map(|k| k.name).collect(),
            false => self.keys.iter().map(|k| k.section).collect(),
        };
        names.dedup();
        names.join(", ")
    }
}

/// Returns the most similar of `names`; `None` if none is similar enough to suggest.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|n| (strsim::jaro_winkler(name, n), n))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, n)| n)
}
