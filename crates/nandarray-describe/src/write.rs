//! Writes descriptions: complete TOML with every source, and values as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::value::Value;
use crate::written::{SheetEntry, Written};

impl Written {
    /// Writes the whole description as TOML without a base. The most frequent source of a section is its `source`; the
    /// other sources are listed in its `sources`.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        let quoted = |t: &str| Value::Text(t.to_owned()).to_string();
        let _ = writeln!(text, "name = {}", quoted(&self.name));
        if !self.summary.is_empty() {
            let _ = writeln!(text, "summary = {}", quoted(&self.summary));
        }
        for (section, entries) in self.sections() {
            let usual = usual_source(&entries);
            let _ = writeln!(text, "\n[{section}]\nsource = {}", quoted(usual));
            for (name, entry) in &entries {
                let _ = writeln!(text, "{name} = {}", entry.value);
            }
            let others: Vec<_> = entries.iter().filter(|(_, e)| e.source != usual).collect();
            if !others.is_empty() {
                let _ = writeln!(text, "\n[{section}.sources]");
                for (name, entry) in others {
                    let _ = writeln!(text, "{name} = {}", quoted(&entry.source));
                }
            }
        }
        text
    }

    /// Returns the values as written, with their sources, as JSON.
    pub(crate) fn to_json(&self) -> Json {
        let mut values = Map::new();
        for (section, entries) in self.sections() {
            let inner: Map<String, Json> = entries
                .iter()
                .map(|(name, e)| ((*name).to_owned(), json!({"value": e.value, "source": e.source, "from": e.origin})))
                .collect();
            values.insert(section.to_owned(), Json::Object(inner));
        }
        let mut json = json!({"name": self.name, "summary": self.summary, "bases": self.bases, "values": values});
        if !self.renamed.is_empty() {
            json["renamed"] = json!(self.renamed);
        }
        json
    }

    /// Returns the sections in order, each with its keys that have a value.
    fn sections(&self) -> Vec<(&'static str, Vec<(&'static str, &SheetEntry)>)> {
        let mut sections: Vec<(&'static str, Vec<_>)> = Vec::new();
        for (key, entry) in self.entries() {
            match sections.last_mut() {
                Some((section, entries)) if *section == key.section => entries.push((key.name, entry)),
                _ => sections.push((key.section, vec![(key.name, entry)])),
            }
        }
        sections
    }
}

/// Returns the most frequent source; among equals, the first in alphabetical order.
fn usual_source<'a>(entries: &[(&str, &'a SheetEntry)]) -> &'a str {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, entry) in entries {
        *counts.entry(&entry.source).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    counts.into_iter().find(|(_, n)| *n == most).map_or("", |(source, _)| source)
}
