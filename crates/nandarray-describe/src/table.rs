//! The macro that declares a table whose values have no units or sources, such as a core's cache: its keys with their
//! ranges and meanings, the struct, its reading by serde, and the checks of ranges.

use std::fmt::Display;

/// A key of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// Name of the key.
    pub name: &'static str,
    /// Meaning in a few words.
    pub meaning: &'static str,
    /// Range of the value with its unit, as in `1 to 64 ticks`; empty if the type of the value says it all.
    pub range: &'static str,
}

impl TableKey {
    /// Writes the range of a key as the values that are needed or allowed.
    pub fn needed(min: impl Display, max: impl Display, unit: &str) -> String {
        let (min, space) = (min.to_string(), if unit.is_empty() { "" } else { " " });
        match &*min {
            "0" => format!("at most {max}{space}{unit} are allowed"),
            _ => format!("{min} to {max}{space}{unit} are needed"),
        }
    }
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
/// for the default of its type or the result of a function (`default by "FUNCTION"`).
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
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
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
    };
}
