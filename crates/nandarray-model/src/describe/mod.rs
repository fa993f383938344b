//! Device descriptions: typed, range-checked, with a unit and a source for every number.
//!
//! | module | one idea |
//! | --- | --- |
//! | `description` | the resolved description, in the simulation's own units |
//! | `sections` | each section's keys, their struct, rules between them |
//! | `cores` | the timed core of a description |
//! | `presets` | descriptions that come with the product |
//! | `summary` | derived figures that need no simulation |
//! | `mqsim` | descriptions from configurations of MQSim |
//!
//! Values, units, reading and writing of TOML are those of `nandarray-describe`.

mod cores;
mod description;
pub mod mqsim;
mod presets;
mod sections;
mod summary;

pub use description::*;
pub use nandarray_describe::{Invalid, Key, Problem, SheetEntry, Value, ValueKind, units};
pub use presets::names as presets;
pub use sections::KEYS;
pub use summary::Summary;

/// A device's description as written.
pub type Sheet = nandarray_describe::TypedSheet<Description>;

/// Returns the TOML text of a preset.
///
/// # Errors
/// If there is no preset of that name.
pub fn preset_text(name: &str) -> Result<&'static str, Invalid> {
    DEVICES.preset(name)
}

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
