//! Device descriptions: typed, range-checked, with a unit and a source for every number.
//!
//! | module | one idea |
//! | --- | --- |
//! | `description` | the resolved description, in the simulation's own units |
//! | `value` | values as written, and the quantities they stand for |
//! | `keys` | every key: allowed values, meaning |
//! | `sheet` | a description as written: values, sources, base |
//! | `cores` | the timed core of a description |
//! | `build`, `check` | from a sheet to a description; rules between keys |
//! | `problem` | problems of a description, all at once |
//! | `presets` | descriptions that come with the product |
//! | `summary` | derived figures that need no simulation |
//! | `write` | a description as TOML and JSON |
//! | `mqsim` | descriptions from configurations of MQSim |

mod build;
mod check;
mod cores;
pub mod description;
pub mod keys;
pub mod mqsim;
mod presets;
pub mod problem;
pub mod sheet;
pub mod summary;
pub mod value;
mod write;

pub use description::*;
pub use keys::{KEYS, Key};
pub use presets::{find as preset_text, names as presets};
pub use problem::{Invalid, Problem};
pub use sheet::{Sheet, SheetEntry};
pub use summary::Summary;
pub use value::{Value, ValueKind, units};
pub use write::keys_json;

/// Returns the resolved description of a preset.
///
/// # Errors
/// If there is no preset of that name.
pub fn preset(name: &str) -> Result<Description, Invalid> {
    Sheet::preset(name)?.description()
}

/// Returns a preset with some values changed: `preset_with("mqsim-ideal", &[("controller.scheduling",
/// "mqsim-compat")])`. Values are written as in TOML, except that the quotes of texts may be omitted.
///
/// # Errors
/// If there is no such preset or key, or a value is not allowed.
pub fn preset_with(name: &str, overrides: &[(&str, &str)]) -> Result<Description, Invalid> {
    Sheet::preset(name)?.with(overrides.iter().map(|(key, value)| (*key, Value::from_bare(value))))?.description()
}

/// Reads a description from its TOML text.
///
/// # Errors
/// All problems of the text.
pub fn parse(toml_text: &str) -> Result<Description, Invalid> {
    Sheet::parse(toml_text)?.description()
}

#[cfg(test)]
mod tests;
