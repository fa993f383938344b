//! The error of a description of a core: the key, its value, and the values allowed.

use std::borrow::Cow;

/// Reason why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescribeError {
    /// It is not TOML, or has an unknown key or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// A value is out of its range.
    #[error("{key} = {value}: {range}")]
    Range {
        /// The key.
        key: Cow<'static, str>,
        /// The value found.
        value: String,
        /// The values allowed.
        range: Cow<'static, str>,
    },
    /// No preset has this name.
    #[error("no core is called {name:?}; there are {known}")]
    Unknown {
        /// The name requested.
        name: String,
        /// The names of the presets.
        known: String,
    },
}

/// Makes the error of a value that is out of its range.
pub(crate) fn range(
    key: impl Into<Cow<'static, str>>,
    value: impl ToString,
    range: impl Into<Cow<'static, str>>,
) -> DescribeError {
    DescribeError::Range { key: key.into(), value: value.to_string(), range: range.into() }
}

/// Makes an error of a table's key that is out of its range, if there is one.
pub(crate) fn within(table: &str, out: Option<(&'static str, String, String)>) -> Result<(), DescribeError> {
    let dot = if table.is_empty() { "" } else { "." };
    out.map_or(Ok(()), |(key, value, needed)| Err(range(format!("{table}{dot}{key}"), value, needed)))
}
