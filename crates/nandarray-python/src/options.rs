//! Options of opening a store, converted from Python's arguments to the engine's. The engine documents their meaning.

use nandarray::{Error, Geometry, Options, Result, Verify};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn verify(text: &str) -> Result<Verify> {
    match text {
        "once" => Ok(Verify::Once),
        "always" => Ok(Verify::Always),
        "never" => Ok(Verify::Never),
        _ => Err(Error::Invalid(format!("unknown verify {text:?}; there are \"once\", \"always\" and \"never\""))),
    }
}

pub(crate) fn geometry(preset: Option<&str>, overrides: Option<&Bound<'_, PyDict>>) -> PyResult<Result<Geometry>> {
    let mut g = match Geometry::preset(preset.unwrap_or("file")) {
        Ok(g) => g,
        Err(e) => return Ok(Err(e)),
    };
    for (key, value) in overrides.into_iter().flatten() {
        let (key, value): (String, u32) = (key.extract()?, value.extract()?);
        match key.as_str() {
            "page_bytes" => g.page_bytes = value,
            "channels" => g.channels = value,
            "banks" => g.banks = value,
            "pages_per_block" => g.pages_per_block = value,
            _ => {
                return Ok(Err(Error::Invalid(format!(
                    "geometry has no {key:?}; it has page_bytes, channels, banks and pages_per_block"
                ))));
            }
        }
    }
    Ok(Ok(g))
}

pub(crate) fn options_of(
    geometry: Geometry,
    capacity: Option<u64>,
    (placement, victim): (Option<String>, Option<String>),
    (how_verify, io): (&str, &str),
    threads: Option<usize>,
    write_buffer: Option<usize>,
    (seed, salvage): (u64, bool),
) -> Result<Options> {
    let map = match io {
        "map" => true,
        "read" => false,
        _ => return Err(Error::Invalid(format!("unknown io {io:?}; there are \"map\" and \"read\""))),
    };
    if threads == Some(0) {
        return Err(Error::Invalid("threads is 0; at least 1 is needed".to_owned()));
    }
    // The engine reads no clock, so entropy is drawn here and passed in.
    #[expect(clippy::disallowed_methods, reason = "the binding is the door that draws it")]
    let entropy = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(40));
    let defaults = Options::default();
    Ok(Options {
        geometry,
        capacity_bytes: capacity,
        placement,
        victim,
        verify: verify(how_verify)?,
        map,
        threads,
        write_buffer_bytes: write_buffer.unwrap_or(defaults.write_buffer_bytes),
        seed,
        entropy,
        salvage,
        ..defaults
    })
}
