//! Changes of a description by its user: a key and a value, both as text, are put into the description's table before
//! the table is checked.

use toml::{Table, Value};

/// Reads a value from a text: a number, a size such as `16KiB`, a truth value, or a text.
fn value(text: &str) -> Value {
    for (unit, bytes) in [("KiB", 1u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)] {
        let number = text.strip_suffix(unit).and_then(|number| number.trim().parse::<u64>().ok());
        let size = number.and_then(|number| number.checked_mul(bytes)).and_then(|size| i64::try_from(size).ok());
        if let Some(size) = size {
            return Value::Integer(size);
        }
    }
    if let Ok(number) = text.replace('_', "").parse::<i64>() {
        return Value::Integer(number);
    }
    match (text, text.parse::<f64>()) {
        ("true", _) => Value::Boolean(true),
        ("false", _) => Value::Boolean(false),
        (_, Ok(number)) => Value::Float(number),
        _ => Value::String(text.to_owned()),
    }
}

/// Sets a key of a table to a value; the value `none` removes the key. The error is a message that names the key and
/// the value.
pub(crate) fn change(table: &mut Table, key: &str, text: &str) -> Result<(), String> {
    let (path, last) = key.rsplit_once('.').map_or((None, key), |(path, last)| (Some(path), last));
    let last = match last {
        "size" | "line" | "scratchpad" | "pingpong" => format!("{last}_bytes"),
        other => other.to_owned(),
    };
    let mut at = table;
    for part in path.iter().flat_map(|path| path.split('.')) {
        if text == "none" && !at.contains_key(part) {
            // Of a table that is not there, every key is removed already.
            return Ok(());
        }
        let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        at = next.as_table_mut().ok_or_else(|| format!("{key} = {text}: {part} is no table"))?;
    }
    if text == "none" {
        at.remove(&last);
    } else {
        at.insert(last, value(text));
    }
    Ok(())
}

/// Returns a parser's message without the lines of the description that it quotes, followed by a list of the changes.
pub(crate) fn without_lines(said: &str, changes: &[(&str, &str)]) -> String {
    let made: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let message: Vec<&str> = said.lines().filter(|line| !line.contains('|') && !line.starts_with("TOML")).collect();
    let after = if made.is_empty() { String::new() } else { format!(" (with {})", made.join(", ")) };
    format!("{}{after}", message.join(" ").trim())
}
