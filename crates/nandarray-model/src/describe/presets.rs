//! The descriptions that come with the crate: TOML files in `presets/`, compiled in.

nandarray_describe::presets! {
    /// Names and texts of all presets.
    pub(super) PRESETS, NAMES from "presets/":
    "nds-prototype", "flashabacus", "assasin", "assasin-baseline", "assasin-prefetch", "assasin-sp",
    "assasin-varve", "assasin-sb", "assasin-sb-cache", "coden", "mqsim-default", "mqsim-ideal",
    "samsung-970-pro", "samsung-z-nand", "tlc-enterprise", "qlc-enterprise", "optane-like", "tiny",
}

/// Returns the names of all presets.
pub fn names() -> &'static [&'static str] {
    &NAMES
}
