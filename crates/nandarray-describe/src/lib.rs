//! Descriptions in TOML: each key is declared once, with its kind, range, meaning, default and source; reading, checks,
//! errors, written TOML and lists of keys follow from the declaration.
//!
//! A [`Vocabulary`] is the set of keys of one kind of description, and is handed in by the crate that declares it. This
//! crate has no key of its own, and knows neither devices nor cores.
//!
//! | module | one idea |
//! | --- | --- |
//! | `unit` | units, and the numbers written in them |
//! | `value` | values as written |
//! | `quantity` | quantities as read from values |
//! | `kind` | kinds of quantities, their ranges |
//! | `problem` | problems of a description, all at once |
//! | `vocabulary` | keys, presets, suggestions for what is misspelt |
//! | `written` | a description as written: values, sources, base |
//! | `read` | written descriptions out of TOML |
//! | `write` | TOML and JSON out of written descriptions |
//! | `sheet` | from what is written to what is described; rules between keys |
//! | `declare` | the macros that declare keys, and words |
//! | `table` | the macro that declares tables without units and sources, which a section of a vocabulary can be |

mod declare;
mod kind;
mod problem;
mod quantity;
mod read;
mod sheet;
mod table;
mod unit;
mod value;
mod vocabulary;
mod write;
mod written;

pub use declare::FromQuantity;
pub use kind::ValueKind;
pub use problem::{Invalid, LineNumbers, Problem};
pub use quantity::{Quantity, Wrong};
pub use sheet::{Checks, Described, Quantities, TypedSheet};
pub use table::{Field, TableKey, number};
pub use unit::{show_size, units};
pub use value::Value;
pub use vocabulary::{Default, Key, Renamed, Vocabulary, concat, count, nearest};
pub use written::{SheetEntry, Written};

#[cfg(test)]
mod tests;
