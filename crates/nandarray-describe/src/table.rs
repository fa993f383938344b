//! The macro that declares a table whose values have no units or sources, such as a core's cache: its keys with their
//! ranges and meanings, the struct, its reading and writing by serde, and the checks of ranges. The keys of a table can
//! be those of a section of a vocabulary, too ([`Key::of_table`](crate::Key::of_table)).

use std::fmt::Display;

use crate::kind::ValueKind;
use crate::quantity::{Quantity, Wrong};
use crate::value::Value;

/// A type of a table's field.
pub trait Field {
    /// Kind of the values; a field's own range takes the place of its range.
    const KIND: ValueKind;
    /// The keys of the field, if it is a table itself.
    const KEYS: &'static [TableKey] = &[];
}

/// Types with a kind of their own.
macro_rules! fields {
    ($($type:ty: $kind:expr),+) => {
        $(impl Field for $type {
            const KIND: ValueKind = $kind;
        })+
    };
}

fields!(
    u32: ValueKind::Count(0, u32::MAX as u64),
    u64: ValueKind::Count(0, i64::MAX as u64),
    f64: ValueKind::Real(0.0, f64::MAX),
    bool: ValueKind::Flag,
    String: ValueKind::Text
);

impl<T: Field> Field for Option<T> {
    const KIND: ValueKind = T::KIND;
    const KEYS: &'static [TableKey] = T::KEYS;
}

impl<T: Field> Field for Vec<T> {
    const KIND: ValueKind = ValueKind::List(&T::KIND, 64);
}

/// A key of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableKey {
    /// Name of the key.
    pub name: &'static str,
    /// Meaning in a few words.
    pub meaning: &'static str,
    /// Range of the value with its unit, as in `1 to 64 ticks`; empty if the type of the value says it all.
    pub range: &'static str,
    /// Kind of the value.
    pub kind: ValueKind,
    /// The keys of the value, if it is a table itself.
    pub keys: &'static [TableKey],
}

impl TableKey {
    /// Returns all keys of a table and of the tables within it, by their dotted names.
    pub fn dotted(keys: &'static [Self]) -> Vec<(String, &'static Self)> {
        let below = |key: &'static Self| {
            let inner = Self::dotted(key.keys).into_iter().map(|(name, inner)| (format!("{}.{name}", key.name), inner));
            std::iter::once((key.name.to_owned(), key)).chain(inner).collect::<Vec<_>>()
        };
        keys.iter().flat_map(below).collect()
    }

    /// Returns a description of the allowed values.
    pub(crate) fn allowed(&self) -> String {
        let kind = match self.kind {
            ValueKind::Count(0, max) if max >= u32::MAX.into() => "a whole number".to_owned(),
            kind => kind.allowed(),
        };
        format!("{kind}, or \"none\" to leave it out")
    }

    /// Reads a quantity from a value, which may be `"none"` for no value.
    pub(crate) fn read(&self, value: &Value) -> Result<Quantity, Wrong> {
        let text = value.text().map(str::trim);
        let kind = match self.kind {
            ValueKind::Count(min, max) if self.name.ends_with("_bytes") && text.is_some() => ValueKind::Size(min, max),
            kind => kind,
        };
        match text {
            Some("none") => Ok(Quantity::Nothing),
            _ => kind.read(value).map_err(|wrong| Wrong { allowed: self.allowed(), ..wrong }),
        }
    }

    /// Writes the range of a key as the values that are needed or allowed.
    pub fn needed(min: impl Display, max: impl Display, unit: &str) -> String {
        let (min, space) = (min.to_string(), if unit.is_empty() { "" } else { " " });
        match &*min {
            "0" => format!("at most {max}{space}{unit} are allowed"),
            _ => format!("{min} to {max}{space}{unit} are needed"),
        }
    }
}

/// Returns the number, as the default of a key.
pub const fn number<const N: u32>() -> u32 {
    N
}

/// Declares a table: its keys, the struct that serde reads, and the checks of its ranges.
///
/// ```
/// nandarray_describe::table! {
///     /// A cache.
///     #[derive(Copy, Eq)]
///     pub struct Cache {
///         ways in 1..=64: u32, "lines of a set";
///         t_hit in 0..=4_096 "ticks": u32, "time of a hit", default;
///     }
/// }
/// let cache: Cache = toml::from_str("ways = 65").unwrap();
/// assert_eq!(cache.t_hit, 0);
/// let (key, value, needed) = cache.out_of_range().unwrap();
/// assert_eq!(format!("{key} = {value}: {needed}"), "ways = 65: 1 to 64 are needed");
/// ```
///
/// A key has a name, a range with its unit where it is a number, a type and a meaning; `default` if it may be left out,
/// for the default of its type or the result of a function (`default by "FUNCTION"`; [`number`] is one).
#[macro_export]
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$doc:meta])*
                $field:ident $(in $min:literal..=$max:literal $($unit:literal)?)? : $type:ty, $meaning:literal
                $(, default $(by $default:literal)?)?
                ;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            $(
                #[doc = concat!("`", stringify!($field), "`: ", $meaning, ".")]
                #[doc = ""]
                $(#[$doc])*
                $(#[serde(default $(= $default)?)])?
                $vis $field: $type,
            )*
        }

        impl $name {
            /// The keys of the table, in order.
            pub const KEYS: &'static [$crate::TableKey] = &[$($crate::TableKey {
                name: stringify!($field),
                meaning: $meaning,
                range: concat!("" $(, stringify!($min), " to ", stringify!($max) $(, " ", $unit)?)?),
                kind: $crate::table!(@kind $type $(, $min, $max)?),
                keys: <$type as $crate::Field>::KEYS,
            }),*];

            /// Returns the first key whose value is out of its range: name, value, and the values needed.
            pub fn out_of_range(&self) -> Option<(&'static str, String, String)> {
                $($(
                    let range = $min..=$max;
                    if !range.contains(&self.$field) {
                        let needed = $crate::TableKey::needed(range.start(), range.end(), concat!("" $(, $unit)?));
                        return Some((stringify!($field), self.$field.to_string(), needed));
                    }
                )?)*
                None
            }
        }

        impl $crate::Field for $name {
            const KIND: $crate::ValueKind = $crate::ValueKind::Table;
            const KEYS: &'static [$crate::TableKey] = Self::KEYS;
        }
    };
    (@kind $type:ty) => { <$type as $crate::Field>::KIND };
    (@kind $type:ty, $min:expr, $max:expr) => { $crate::ValueKind::Count($min, $max) };
}
