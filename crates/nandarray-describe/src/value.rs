//! Values as written after an equals sign: they come from TOML, from a command line or from a sweep, and know no units.

use std::fmt;

/// A value as written after the equals sign.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number with a point.
    Real(f64),
    /// A text: a number with its unit, or a word.
    Text(String),
    /// A list of values.
    List(Vec<Value>),
}

impl Value {
    /// Reads a value from a command line: as TOML if the text is valid TOML, otherwise as a bare text. `8`, `0.07`,
    /// `75 us` and `[25 us, 50 us]` are all accepted.
    pub fn from_bare(text: &str) -> Self {
        let text = text.trim();
        let written = |text: &str| Self::from_toml(toml::de::DeValue::parse(text).ok()?.get_ref()).ok();
        let bare = |text: &str| written(text).unwrap_or_else(|| Self::Text(text.to_owned()));
        match (written(text), text.strip_prefix('[').and_then(|t| t.strip_suffix(']'))) {
            (None, Some(inner)) => Self::List(inner.split(',').map(|one| bare(one.trim())).collect()),
            _ => bare(text),
        }
    }

    /// Returns the text; `None` for a value of another kind.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number; `None` for a value that is no number or has a unit.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(n) => Some(*n as f64),
            Self::Real(x) => Some(*x),
            _ => None,
        }
    }

    /// Converts the TOML parser's value; the error describes a value that is not allowed.
    pub(crate) fn from_toml(value: &toml::de::DeValue<'_>) -> Result<Self, &'static str> {
        use toml::de::DeValue;
        Ok(match value {
            DeValue::Boolean(flag) => Self::Flag(*flag),
            DeValue::Integer(n) => {
                Self::Whole(i64::from_str_radix(n.as_str(), n.radix()).map_err(|_| "a whole number beyond 64 bits")?)
            }
            DeValue::Float(x) => Self::Real(x.as_str().parse().map_err(|_| "no number")?),
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Array(all) => {
                Self::List(all.iter().map(|one| Self::from_toml(one.get_ref())).collect::<Result<_, _>>()?)
            }
            DeValue::Table(_) => return Err("a table"),
            DeValue::Datetime(_) => return Err("a date"),
        })
    }
}

impl From<Value> for toml::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Flag(flag) => Self::Boolean(flag),
            Value::Whole(n) => Self::Integer(n),
            Value::Real(x) => Self::Float(x),
            Value::Text(text) => Self::String(text),
            Value::List(all) => Self::Array(all.into_iter().map(Into::into).collect()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(all: Vec<T>) -> Self {
        Self::List(all.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Value {
    /// Writes the value as TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Whole(n) => write!(f, "{n}"),
            Self::Real(x) if x.is_finite() => write!(f, "{x:?}"),
            Self::Real(x) => write!(
                f,
                "{}",
                if x.is_nan() {
                    "nan"
                } else if *x > 0.0 {
                    "inf"
                } else {
                    "-inf"
                }
            ),
            Self::Text(text) => write!(f, "{}", toml::Value::String(text.clone())),
            Self::List(all) => {
                write!(f, "[")?;
                for (i, one) in all.iter().enumerate() {
                    write!(f, "{}{one}", if i > 0 { ", " } else { "" })?;
                }
                write!(f, "]")
            }
        }
    }
}
