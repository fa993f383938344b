//! Entry points for fuzzing: pass any bytes to every parser of texts from outside. A panic is a defect.

use nandarray_model::describe::{Sheet, Value, mqsim};

/// Parses any text as a description; an accepted one must be equal after it was written and read again.
pub(crate) fn description(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(sheet) = Sheet::parse(&text) else { return };
    let _ = Value::from_bare(&text);
    let Ok(description) = sheet.description() else { return };
    description.summarise();
    let again = Sheet::parse(&sheet.to_toml()).expect("what is written can be read");
    assert_eq!(again.description().expect("what is written is right"), description);
}

/// Imports any text as a configuration of MQSim.
pub(crate) fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(imported) = mqsim::import(&text, "fuzzed") else { return };
    let _ = imported.sheet.description();
}
