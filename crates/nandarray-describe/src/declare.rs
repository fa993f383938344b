//! The macros that declare keys and words: each once, with all that follows from it.

use nandarray_sim::Ps;

use crate::quantity::Quantity;

/// A type of a field that the quantity of a key is converted to.
pub trait FromQuantity: Sized {
    /// Converts a quantity; `None` if it is of another kind. A word that stands for no number, such as `"none"`, is 0
    /// for a plain number, and `None` for an `Option`.
    fn from_quantity(quantity: &Quantity) -> Option<Self>;
}

impl FromQuantity for u64 {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        match quantity {
            Quantity::Whole(n) => Some(*n),
            Quantity::Nothing => Some(0),
            _ => None,
        }
    }
}

impl FromQuantity for u32 {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        u64::from_quantity(quantity).map(|n| Self::try_from(n).expect("ranges of counts end within 32 bits"))
    }
}

impl<T: FromQuantity> FromQuantity for Option<T> {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        if *quantity == Quantity::Nothing { Some(None) } else { T::from_quantity(quantity).map(Some) }
    }
}

impl<const N: usize> FromQuantity for [Option<u32>; N] {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        let Quantity::Counts(all) = quantity else { return None };
        let all: Vec<_> = all.iter().map(|n| n.map(|n| n as u32)).collect();
        all.try_into().ok()
    }
}

impl<T: FromQuantity> FromQuantity for Vec<T> {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        match quantity {
            Quantity::List(all) => all.iter().map(T::from_quantity).collect(),
            Quantity::Times(all) => all.iter().map(|time| T::from_quantity(&Quantity::Time(*time))).collect(),
            _ => None,
        }
    }
}

/// Types that a quantity holds as they are.
macro_rules! held {
    ($($variant:ident: $type:ty),+) => {
        $(impl FromQuantity for $type {
            fn from_quantity(quantity: &Quantity) -> Option<Self> {
                match quantity {
                    Quantity::$variant(x) => Some(*x),
                    _ => None,
                }
            }
        })+
    };
}

held!(Real: f64, Time: Ps, Flag: bool, Word: &'static str);

/// Declares a section of a vocabulary: its keys, the struct that they are read into, and how.
///
/// ```
/// use nandarray_describe::{Key, ValueKind, declare};
///
/// declare! {
///     /// A cache.
///     #[derive(Copy)]
///     pub struct Cache in "cache", from "convention", {
///         "ways": ValueKind::Count(1, 64), "lines of a set", default "8" => ways: u32;
///         "size": ValueKind::SizeOr("none", 64, 1 << 30), "capacity; none: no cache", bound "of what is sold" =>
///             /// 0 if there is none.
///             bytes: u64;
///     }
/// }
/// assert_eq!(Cache::KEYS[1].path, "cache.size");
/// ```
///
/// A key has a name, a kind with its range, a meaning; the reason for its range's end (`bound`); a default, whose
/// source is the section's or its own (`from`); and the fields that it sets, which the meaning documents. A field is
/// converted from the quantity of its key, or by a function of all quantities (`= |q| ...`); a key sets no field if the
/// field of another key has it.
#[macro_export]
macro_rules! declare {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident in $section:literal, from $all:expr, {
            $(
                $key:literal: $kind:expr, $meaning:literal
                $(, bound $bound:expr)?
                $(, default $value:literal $(from $source:expr)?)?
                $(=> $(#[$doc:meta])* $field:ident: $type:ty $(= $read:expr)?)*
                ;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $vis struct $name {
            $($(
                #[doc = concat!("`", $section, ".", $key, "`: ", $meaning, ".")]
                #[doc = ""]
                $(#[$doc])*
                $vis $field: $type,
            )*)*
        }

        impl $name {
            /// The keys of the section.
            pub(crate) const KEYS: &'static [$crate::Key] = &[$($crate::Key {
                section: $section,
                name: $key,
                path: concat!($section, ".", $key),
                kind: $kind,
                meaning: $meaning,
                bound: $crate::declare!(@or "" $(, $bound)?),
                default: $crate::declare!(@default $all $(, $value $(, $source)?)?),
            }),*];

            /// Reads the section from the quantities of all keys.
            #[allow(clippy::redundant_closure_call, reason = "of a field that has a function of its own")]
            pub(crate) fn read(quantities: &$crate::Quantities<'_>) -> Self {
                Self {
                    $($($field: $crate::declare!(
                        @read quantities, concat!($section, ".", $key), $type $(, $read)?
                    ),)*)*
                }
            }
        }
    };
    (@or $default:expr) => { $default };
    (@or $default:expr, $given:expr) => { $given };
    (@default $all:expr) => { None };
    (@default $all:expr, $value:expr) => { Some($crate::Default { value: $value, source: $all }) };
    (@default $all:expr, $value:expr, $source:expr) => { Some($crate::Default { value: $value, source: $source }) };
    (@read $quantities:ident, $path:expr, $type:ty) => { $quantities.get::<$type>($path) };
    (@read $quantities:ident, $path:expr, $type:ty, $read:expr) => {{
        let read: fn(&$crate::Quantities<'_>) -> $type = $read;
        read($quantities)
    }};
}

/// Declares the descriptions that come with a crate, TOML files in a folder beside the source: an array of names and
/// texts, and one of the names.
#[macro_export]
macro_rules! presets {
    ($(#[$meta:meta])* $vis:vis $presets:ident, $names:ident from $folder:literal: $($name:literal),* $(,)?) => {
        $(#[$meta])*
        $vis const $presets: [(&str, &str); $names.len()] =
            [$(($name, include_str!(concat!($folder, $name, ".toml")))),*];
        /// Names of the presets.
        $vis const $names: [&str; [$($name),*].len()] = [$($name),*];
    };
}

/// Declares an enum of the words that a key allows, so that the code that reads the key must handle all of them; serde
/// reads and writes the words.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            /// The words as they are written in descriptions.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// All of them, in the order of their declaration.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),+];

            /// Returns the word as it is written in descriptions.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl $crate::Field for $name {
            const KIND: $crate::ValueKind = $crate::ValueKind::Word(Self::WORDS);
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <String as serde::Deserialize>::deserialize(deserializer)?;
                let unknown = || serde::de::Error::unknown_variant(&word, Self::WORDS);
                Self::ALL.into_iter().find(|one| one.word() == word).ok_or_else(unknown)
            }
        }

        impl $crate::FromQuantity for $name {
            fn from_quantity(quantity: &$crate::Quantity) -> Option<Self> {
                match quantity {
                    $($crate::Quantity::Word($word) => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
