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
mod tests {
    use super::*;
    use nandarray_sim::Ps;

    #[test]
    fn presets_resolve() {
        for name in presets() {
            let description = preset(name).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(description.name, *name);
            assert!(!description.summary.is_empty());
        }
    }

    #[test]
    fn every_word_of_a_key_means_something_else() {
        for key in keys::KEYS {
            let value::ValueKind::Word(words) = key.kind else { continue };
            let mut seen: Vec<Description> = Vec::new();
            for word in words {
                // A single time holds for all kinds of pages, so that every kind of cell fits.
                let times = [("nand.t_read", "25 us"), ("nand.t_program", "200 us"), (key.path, *word)];
                let d = preset_with("tiny", &times).unwrap_or_else(|e| panic!("{} = {word}: {e}", key.path));
                assert!(!seen.contains(&d), "{} = {word} is the same as a word before it", key.path);
                seen.push(d);
            }
        }
    }

    #[test]
    fn overrides_reach_everything() {
        let d = preset_with(
            "mqsim-ideal",
            &[("controller.scheduling", "mqsim-compat"), ("nand.t_read", "[25 us, 50 us]"), ("geometry.channels", "4")],
        )
        .unwrap();
        assert_eq!(d.controller.scheduling, Scheduling::MqsimCompat);
        assert_eq!(d.nand.t_read, [Ps::from_us(25), Ps::from_us(50)]);
        assert_eq!(d.geometry.channels, 4);
        assert_eq!(d.ftl.map_cache_bytes, None);
        assert_eq!(d.dram.bytes_per_s, 25_600_000_000);
    }
}
