//! Writes descriptions: complete TOML with every source, and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::keys::KEYS;
use super::problem::Invalid;
use super::sheet::{Sheet, SheetEntry};
use super::value::Value;

impl Sheet {
    /// Writes the whole description as TOML without a base. The most frequent source of a section is its `source`; the
    /// other sources are listed in its `sources`.
    pub fn to_toml(&self) -> String {
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

    /// Returns the description as JSON for programs: values as written with their sources (`values`), numbers in the
    /// simulation's units (`resolved`: times in ps, energies in pJ, powers in uW) and derived figures (`effective`).
    ///
    /// # Errors
    /// If the description is invalid.
    pub fn to_json(&self) -> Result<Json, Invalid> {
        let description = self.description()?;
        let mut values = Map::new();
        for (section, entries) in self.sections() {
            let inner: Map<String, Json> = entries
                .iter()
                .map(|(name, e)| ((*name).to_owned(), json!({"value": e.value, "source": e.source, "from": e.origin})))
                .collect();
            values.insert(section.to_owned(), Json::Object(inner));
        }
        Ok(json!({
            "name": self.name,
            "summary": self.summary,
            "bases": self.bases,
            "values": values,
            "resolved": description,
            "effective": description.summarise(),
        }))
    }

    /// Returns the sections in order, each with its keys that have a value.
    fn sections(&self) -> Vec<(&'static str, Vec<(&'static str, &SheetEntry)>)> {
        let mut sections: Vec<(&'static str, Vec<_>)> = Vec::new();
        for (key, entry) in self.entries() {
            match sections.last_mut() {
                Some((section, entries)) if *section == key.section() => entries.push((key.name(), entry)),
                _ => sections.push((key.section(), vec![(key.name(), entry)])),
            }
        }
        sections
    }
}

/// Returns all keys as JSON for programs: allowed values and meaning of each.
pub fn keys_json() -> Json {
    let all = KEYS.iter().map(|k| {
        json!({"key": k.path, "meaning": k.meaning, "allowed": k.kind.allowed(), "bound": k.bound,
               "number": k.kind.is_number()})
    });
    Json::Array(all.collect())
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

#[cfg(test)]
mod tests {
    use crate::describe::{Sheet, presets};

    #[test]
    fn what_is_written_reads_as_the_same() {
        for name in presets() {
            let sheet = Sheet::preset(name).unwrap();
            let text = sheet.to_toml();
            let again = Sheet::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(again.description().unwrap(), sheet.description().unwrap(), "{name}");
            for ((key, a), (_, b)) in again.entries().zip(sheet.entries()) {
                assert_eq!((&a.value, &a.source), (&b.value, &b.source), "{name} {}", key.path);
            }
            assert_eq!(again.to_toml(), text);
        }
    }

    #[test]
    fn json_has_all() {
        let json = Sheet::preset("mqsim-ideal").unwrap().to_json().unwrap();
        assert_eq!(json["values"]["ftl"]["map_cache"]["from"], "mqsim-ideal");
        assert_eq!(json["values"]["geometry"]["channels"]["from"], "mqsim-default");
        assert_eq!(json["resolved"]["nand"]["t_read"][0], 75_000_000);
        assert_eq!(json["effective"]["raw_bytes"], 512u64 << 30);
    }
}
