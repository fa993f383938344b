//! Reading of JSON objects whose keys and values are checked one by one, so that an error names the object, the key and
//! the value. It knows no particular object.

use std::fmt;

use serde_json::{Map, Value};

use crate::error::LoadError;

/// A JSON object that is being read.
pub(crate) struct Object<'a> {
    members: &'a Map<String, Value>,
    /// Name of the object in errors.
    pub(crate) what: String,
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.members).map_err(|_| fmt::Error)?)
    }
}

fn wrong<T>(text: String) -> Result<T, LoadError> {
    Err(LoadError::Metadata(text))
}

impl<'a> Object<'a> {
    /// Begins to read a value, which must be an object.
    pub(crate) fn new(value: &'a Value, what: String) -> Result<Self, LoadError> {
        match value.as_object() {
            Some(members) => Ok(Self { members, what }),
            None => wrong(format!("{what} must be an object, written {{...}}, not {value}")),
        }
    }

    /// Returns the value of a key; `None` if the object lacks the key, or has `null` there.
    pub(crate) fn member(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    fn at(&self, key: &str) -> String {
        if self.what == "the metadata" { key.to_owned() } else { format!("{}: {key}", self.what) }
    }

    /// Checks that the object has no keys but these.
    pub(crate) fn known(&self, keys: &[&str]) -> Result<(), LoadError> {
        match self.members.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => wrong(format!("{}: '{key}' is not known; there is {}", self.what, keys.join(", "))),
            None => Ok(()),
        }
    }

    /// Returns the text of a key, or a default.
    pub(crate) fn text(&self, key: &str, default: &str) -> Result<String, LoadError> {
        match self.member(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => wrong(format!("{} must be text, not {other}", self.at(key))),
        }
    }

    /// Returns the truth value of a key, or a default.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, LoadError> {
        match self.member(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => wrong(format!("{} must be true or false, not {other}", self.at(key))),
        }
    }

    /// Returns the number of a key; 0 if it is left out.
    pub(crate) fn count(&self, key: &str, most: u64) -> Result<u64, LoadError> {
        let Some(value) = self.member(key) else { return Ok(0) };
        match value.as_u64().filter(|count| *count <= most) {
            Some(count) => Ok(count),
            None => wrong(format!("{} must be a number from 0 to {most}, not {value}", self.at(key))),
        }
    }

    /// Returns the number of bytes of a key, or a default.
    pub(crate) fn size(&self, key: &str, default: u64, most: u64) -> Result<u64, LoadError> {
        match self.member(key) {
            None => Ok(default),
            Some(value) => match value.as_u64().filter(|bytes| *bytes <= most) {
                Some(bytes) => Ok(bytes),
                None => wrong(format!("{} must be a number of bytes, at most {most}, not {value}", self.at(key))),
            },
        }
    }

    /// Returns the number of a key, which may be a fraction but not negative; 0 if the object lacks the key.
    pub(crate) fn factor(&self, key: &str) -> Result<f64, LoadError> {
        match self.member(key) {
            None => Ok(0.0),
            Some(value) => match value.as_f64().filter(|number| *number >= 0.0) {
                Some(number) => Ok(number),
                None => wrong(format!("{} must be a number of bytes, not {value}", self.at(key))),
            },
        }
    }

    /// Returns the meaning of a key's word; `None` if the object lacks the key.
    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, LoadError> {
        let Some(value) = self.member(key) else { return Ok(None) };
        match words.iter().find(|(word, _)| value.as_str() == Some(word)) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
                wrong(format!("{} must be one of {}, not {value}", self.at(key), words.join(", ")))
            }
        }
    }

    /// Returns the list of a key; an empty one if the object lacks the key.
    pub(crate) fn list(&self, key: &str, most: usize) -> Result<&'a [Value], LoadError> {
        match self.member(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= most => Ok(list),
            Some(Value::Array(list)) => wrong(format!("{} {key}; at most {most} fit", list.len())),
            Some(other) => wrong(format!("{} must be a list, not {other}", self.at(key))),
        }
    }
}
