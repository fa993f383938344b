//! The descriptions that come with the crate: TOML files in `presets/`, compiled in.

use super::keys::nearest;
use super::problem::Invalid;

/// Values that nearly all devices share: the base of every description without a `base`.
pub(super) const DEFAULTS: &str = include_str!("presets/defaults.toml");

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        const PRESETS: &[(&str, &str)] = &[$(($name, include_str!(concat!("presets/", $name, ".toml")))),*];
        const NAMES: &[&str] = &[$($name),*];
    };
}

presets![
    "nds-prototype",
    "flashabacus",
    "assasin",
    "assasin-baseline",
    "assasin-prefetch",
    "assasin-sp",
    "assasin-varve",
    "assasin-sb",
    "assasin-sb-cache",
    "coden",
    "mqsim-default",
    "mqsim-ideal",
    "samsung-970-pro",
    "samsung-z-nand",
    "tlc-enterprise",
    "qlc-enterprise",
    "optane-like",
    "tiny",
];

/// Returns the names of all presets.
pub fn names() -> &'static [&'static str] {
    NAMES
}

/// Returns the TOML text of a preset.
///
/// # Errors
/// If there is no preset of that name.
pub fn find(name: &str) -> Result<&'static str, Invalid> {
    text(name).ok_or_else(|| {
        let near = nearest(name, NAMES.iter().copied()).map(|n| format!("did you mean {n:?}? "));
        let mut invalid = Invalid::one(name, "", "", "there is no preset of that name");
        invalid.problems[0].allowed = format!("{}presets are {}", near.unwrap_or_default(), NAMES.join(", "));
        invalid
    })
}

/// Returns the TOML text of a preset; `None` if there is no preset of that name.
pub(super) fn text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|p| p.0 == name).map(|p| p.1)
}
