//! The core descriptions that come with the product, by name, and descriptions with some of their values replaced.

use nandarray_describe::{Quantity, Value, ValueKind, presets};
use nandarray_hart::Extensions;
use toml::Table;

use crate::describe::CoreDescription;
use crate::error::{DescribeError, range};

presets! {
    /// Names and texts of the core descriptions that come with the product.
    pub PRESETS, PRESET_NAMES from "../presets/":
    "zou-2023", "zou-2023-prefetch", "zou-2023-sp", "zou-2023-stream", "zou-2023-stream-cache", "five-stage",
    "five-stage-prefetch", "five-stage-sp", "five-stage-stream", "five-stage-stream-cache", "ibex",
    "ibex-maxperf", "ex5", "ex5-varve", "zou-2023-varve", "c66x", "lwp",
}

/// Returns a value as tables have it: a size such as `16KiB` is its bytes.
fn plain(value: &Value) -> toml::Value {
    match ValueKind::Size(0, i64::MAX as u64).read(value) {
        Ok(Quantity::Whole(bytes)) => toml::Value::Integer(bytes as i64),
        _ => value.clone().into(),
    }
}

/// Sets a key of a table to a value; the value `none` removes the key. The error names the key and the value.
fn change(table: &mut Table, key: &str, value: &Value) -> Result<(), DescribeError> {
    let (path, last) = key.rsplit_once('.').map_or((None, key), |(path, last)| (Some(path), last));
    let last = match last {
        "size" | "line" | "scratchpad" | "pingpong" => format!("{last}_bytes"),
        other => other.to_owned(),
    };
    let value = plain(value);
    let none = value.as_str().is_some_and(|text| text.trim() == "none");
    let mut at = &mut *table;
    for part in path.iter().flat_map(|path| path.split('.')) {
        if none && !at.contains_key(part) {
            // Of a table that is not there, every key is removed already.
            return Ok(());
        }
        let next = at.entry(part).or_insert_with(|| toml::Value::Table(Table::new()));
        let no_table = || DescribeError::Syntax(format!("{key} = {value}: {part} is no table"));
        at = next.as_table_mut().ok_or_else(no_table)?;
    }
    let added = value.as_str().filter(|_| key == "isa").and_then(|text| text.strip_prefix('+'));
    match (added, at.get(&last).and_then(toml::Value::as_str)) {
        _ if none => drop(at.remove(&last)),
        (Some(added), Some(isa)) => {
            let longer = format!("{isa}_{added}");
            let set = |isa| Extensions::parse(isa).ok();
            if !isa.contains(added) && set(&longer).is_some_and(|longer| set(isa) == Some(longer)) {
                return Err(range("isa", format!("+{added}"), format!("it must add something to {isa}")));
            }
            at.insert(last, longer.into());
            // A datapath that is as wide as the registers grows with them.
            if let Some(vector) = at.get_mut("vector").and_then(toml::Value::as_table_mut) {
                vector.remove("datapath_bits");
            }
        }
        _ => drop(at.insert(last, value)),
    }
    Ok(())
}

/// Returns a parser's message without the lines of the description that it quotes.
fn without_lines(said: &str) -> String {
    let message: Vec<&str> = said.lines().filter(|line| !line.contains('|') && !line.starts_with("TOML")).collect();
    message.join(" ").trim().to_owned()
}

impl CoreDescription {
    /// Reads a description with some of its values replaced: pairs of a key such as `l1d.size_bytes` and a value as
    /// text. Sizes may be written as `16KiB`, with their keys without `_bytes`; `none` removes a key or table; an `isa`
    /// such as `+zvl512b` is added to that of the description, and a vector datapath as wide as its registers stays so.
    ///
    /// # Errors
    /// [`DescribeError`], which names the key, its value, and the values allowed.
    pub fn parse_with(text: &str, changes: &[(&str, &str)]) -> Result<Self, DescribeError> {
        let made: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let changes: Vec<_> = changes.iter().map(|(key, text)| (*key, Value::from_bare(text))).collect();
        let table = Self::table_with(text, changes.iter().map(|(key, value)| (*key, value)));
        table.and_then(|table| Self::of_table(&table)).map_err(|error| match error {
            DescribeError::Syntax(said) if !made.is_empty() => {
                DescribeError::Syntax(format!("{said} (with {})", made.join(", ")))
            }
            other => other,
        })
    }

    /// Reads a description from its table, which has no text and so no lines.
    ///
    /// # Errors
    /// [`DescribeError`], which names the key, its value, and the values allowed.
    pub fn of_table(table: &Table) -> Result<Self, DescribeError> {
        Self::parse(&table.to_string()).map_err(|error| match error {
            DescribeError::Syntax(said) => DescribeError::Syntax(without_lines(&said)),
            other => other,
        })
    }

    /// Returns the table of a description with some of its values replaced, as [`parse_with`](Self::parse_with) does.
    ///
    /// # Errors
    /// [`DescribeError::Syntax`]: the text is not TOML, or a value is no table where keys of one are replaced.
    pub fn table_with<'k, 'v>(
        text: &str,
        changes: impl IntoIterator<Item = (&'k str, &'v Value)>,
    ) -> Result<Table, DescribeError> {
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| DescribeError::Syntax(e.to_string()))?;
        for (key, value) in changes {
            change(&mut table, key, value)?;
        }
        Ok(table)
    }

    /// Returns the text of a preset by its name; [`PRESETS`] lists them.
    ///
    /// # Errors
    /// [`DescribeError::Unknown`]: no preset has this name.
    pub fn preset_text(name: &str) -> Result<&'static str, DescribeError> {
        let found = PRESETS
            .iter()
            .find(|(preset, _)| *preset == name)
            .ok_or_else(|| DescribeError::Unknown { name: name.to_owned(), known: PRESET_NAMES.join(", ") })?;
        Ok(found.1)
    }

    /// Returns a preset by its name; [`PRESETS`] lists them.
    ///
    /// # Errors
    /// [`DescribeError::Unknown`]: no preset has this name.
    pub fn preset(name: &str) -> Result<Self, DescribeError> {
        Ok(Self::parse(Self::preset_text(name)?).unwrap_or_else(|e| panic!("preset {name}: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::CorePart;

    #[test]
    fn every_preset_is_read() {
        for (name, _) in PRESETS {
            let core = CoreDescription::preset(name).unwrap();
            assert_eq!(core.name, name);
            assert!(!core.source.is_empty());
        }
    }

    #[test]
    fn an_unknown_name_lists_those_there_are() {
        assert!(CoreDescription::preset("z80").unwrap_err().to_string().contains("zou-2023, "));
    }

    fn with(changes: &[(&str, &str)]) -> Result<CoreDescription, DescribeError> {
        CoreDescription::parse_with(CoreDescription::preset_text("five-stage").unwrap(), changes)
    }

    #[test]
    fn values_are_replaced_and_checked() {
        let found = with(&[("l1d.size", "16KiB"), ("latency.multiply", "7"), ("l2", "none")]).unwrap();
        assert_eq!((found.l1d.unwrap().size_bytes, found.l2), (16_384, None));
        assert_eq!(found.latency.of(crate::FunctionalUnit::Multiply), 7);
        let said = |changes: &[(&str, &str)]| with(changes).unwrap_err().to_string();
        assert!(said(&[("l1d.size", "24KiB")]).contains("l1d.size_bytes = 24576: the number of sets"));
        assert!(said(&[("l1d.sizes", "1")]).contains("unknown field `sizes`"), "{}", said(&[("l1d.sizes", "1")]));
        assert!(said(&[("width", "many")]).contains("width=many"), "{}", said(&[("width", "many")]));
        assert!(said(&[("issue.x", "1")]).contains("issue is no table"));
        assert!(said(&[("streams", "9")]).contains("streams = 9: programs have at most 8"));
        assert!(said(&[("input_source", "stream")]).contains("streams are needed"));
        assert!(said(&[("latency.alu", "0")]).contains("latency"));
    }

    /// Compares with Table 9.1 of Zou 2023: eight cores with VarVE.
    #[test]
    fn cores_with_varve_add_up_to_the_published_totals() {
        let (area, power) = CorePart::totals(&CoreDescription::preset("zou-2023-varve").unwrap().parts, 8);
        assert!((area - 4.048).abs() < 1e-9 && (power - 1000.888).abs() < 1e-9, "{area} mm2, {power} mW");
    }

    #[test]
    fn vector_units_are_checked() {
        let of = |changes: &[(&str, &str)]| {
            CoreDescription::parse_with(CoreDescription::preset_text("ex5-varve").unwrap(), changes)
        };
        let said = |key, value| of(&[(key, value)]).unwrap_err().to_string();
        assert_eq!(of(&[("vector.align_bits", "1")]).unwrap().vector_unit().alignment(), 1);
        assert!(said("vector.align_bits", "12").contains("vector.align_bits = 12: 0, or a power of two"));
        assert!(said("vector.datapath_bits", "512").contains("vector.datapath_bits = 512: at most the bits of a"));
        assert!(said("vector.memory_bits", "100").contains("vector.memory_bits = 100"));
        assert!(said("vector.unpack_lines", "65").contains("at most 64"));
        assert!(said("vector.t_align", "5000").contains("at most 4096"));
        let wider = of(&[("isa", "+zvl512b")]).unwrap();
        assert_eq!((wider.extensions().1.vlen(), wider.vector_unit().datapath_bits), (512, 0));
        assert!(said("isa", "+zvl128b").contains("isa = +zvl128b: it must add something to rv64gcv"));
        assert!(said("isa", "+zvl100b").contains("an architecture string"));
        assert!(said("isa", "rv64gc").contains("vector = a unit: isa has no vectors"));
        assert!(said("vector.width", "1").contains("unknown field `width`"));
    }

    /// Compares with Table 7.4 of Zou 2023: eight cores; areas and powers of whole designs follow from parts.
    #[test]
    fn parts_compose_to_the_published_totals() {
        for (preset, area_mm2, power_mw) in
            [("zou-2023", 2.923, 14.048), ("zou-2023-stream", 1.625, 12.625), ("five-stage", 2.923, 14.048)]
        {
            let parts = CoreDescription::preset(preset).unwrap().parts;
            let (area, power) = CorePart::totals(&parts, 8);
            assert!((area - area_mm2).abs() < 0.0005, "{preset}: {area} mm2, published {area_mm2}");
            assert!((power - power_mw).abs() < 0.002, "{preset}: {power} mW, published {power_mw}");
        }
    }
}
