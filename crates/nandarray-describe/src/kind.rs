//! Kinds of quantities with their ranges: a [`ValueKind`] says what a key allows, and converts a value as written to a
//! quantity in the simulation's units.

use nandarray_sim::Ps;

use crate::quantity::{Quantity, Wrong};
use crate::table::TableKey;
use crate::unit::{
    ENERGIES, ENERGIES_PER_BYTE, FREQUENCIES, POWERS, RATES, SIZES, TIMES, WATTS_MAX, in_units, list, rate,
    show_decimal, show_rate, show_size, split, watts,
};
use crate::value::Value;

/// Kind of a key's quantity, with its range; both ends are included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// A plain count, with its range.
    Count(u64, u64),
    /// A plain count, or `"none"`, with the count's range.
    CountOrNone(u64, u64),
    /// A number without a unit, with its range.
    Real(f64, f64),
    /// A fraction of a whole, written as `0.07` or `"7 %"`, with its range.
    Share(f64, f64),
    /// A time, such as `"75 us"`, with its range.
    Time(Ps, Ps),
    /// A time, such as `"75 us"`, or `"none"`, with the time's range.
    TimeOrNone(Ps, Ps),
    /// A time, such as `"75 us"`, or a list with one time for each kind of page; the range holds for each time.
    Times(Ps, Ps),
    /// A size, such as `"8 KiB"`; the range is in bytes.
    Size(u64, u64),
    /// A size, or the given word; the range is in bytes.
    SizeOr(&'static str, u64, u64),
    /// A frequency, such as `"1 GHz"`; the range is in hertz.
    Frequency(u64, u64),
    /// A data rate: `"3.4 GB/s"`, `"333 MT/s x8"`, `"40 Gb/s"` or `"PCIe 4 x4"`; the range is in bytes per second.
    Rate(u64, u64),
    /// A data rate, or the given word; the range is in bytes per second.
    RateOr(&'static str, u64, u64),
    /// Energy of one operation, such as `"4.1 uJ"`, or the current during the operation, such as `"25 mA at 3.3 V"`;
    /// the range is in picojoules.
    Energy(f64, f64),
    /// Energy per byte, such as `"60 pJ/B"` or `"7.5 pJ/bit"`; the range is in picojoules per byte.
    EnergyPerByte(f64, f64),
    /// A power, such as `"30 mW"` or `"5 mA at 3.3 V"`; the range is in microwatts.
    Power(f64, f64),
    /// A power, or the given word; the range is in microwatts.
    PowerOr(&'static str, f64, f64),
    /// A list of values of one kind, up to the given length; a single value needs no brackets. Or `"none"`.
    List(&'static ValueKind, usize),
    /// `true` or `false`.
    Flag,
    /// One of the given words.
    Word(&'static [&'static str]),
    /// A striping order, such as `"static CWDP"` or `"dynamic CWDP"`.
    Striping,
    /// A list of counts of the given length, with the range of each.
    Counts(usize, u64, u64),
    /// A list of this many cores, each a number or `"none"`.
    Cores(usize),
    /// Any text.
    Text,
    /// A table, whose keys are keys themselves; only `"none"` is a value.
    Table,
    /// A value of a key of a table, or `"none"`.
    Of(&'static TableKey),
}

impl ValueKind {
    /// Whether the kind is a number, which needs a source.
    pub fn is_number(&self) -> bool {
        match self {
            Self::Flag | Self::Word(_) | Self::Striping | Self::Cores(_) | Self::Text | Self::Table => false,
            Self::List(kind, _) => kind.is_number(),
            Self::Of(key) => key.kind.is_number(),
            _ => true,
        }
    }

    /// Whether the kind is that of a table within a table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Of(TableKey { kind: Self::Table, .. }))
    }

    /// Returns a description of the allowed values: the range, and the form in which they are written.
    pub fn allowed(&self) -> String {
        const PJ: &[&str] = &["pJ", "nJ", "uJ", "mJ", "J"];
        const HZ: &[&str] = &["Hz", "kHz", "MHz", "GHz"];
        const UW: &[&str] = &["uW", "mW", "W"];
        match *self {
            Self::Count(min, max) => format!("a whole number from {min} to {max}"),
            Self::CountOrNone(min, max) => format!("a whole number from {min} to {max}, or \"none\""),
            Self::Real(min, max) => format!("a number from {min} to {max}"),
            Self::Share(min, max) => format!("a share from {min} to {max}, or in %"),
            Self::Time(min, max) => format!("a time from {min} to {max}, in one of {}", list(TIMES)),
            Self::TimeOrNone(min, max) => format!("a time from {min} to {max}, in one of {}, or \"none\"", list(TIMES)),
            Self::Times(min, max) => {
                format!(
                    "a time from {min} to {max}, in one of {}, or a list with one for each kind of page",
                    list(TIMES)
                )
            }
            Self::Size(min, max) => {
                format!("a size from {} to {}, in one of {}", show_size(min), show_size(max), list(SIZES))
            }
            Self::SizeOr(word, ..) => format!("{}, or \"{word}\"", self.or_less().allowed()),
            Self::Frequency(min, max) => format!(
                "a frequency from {} to {}, in one of {}",
                show_decimal(min as f64, HZ),
                show_decimal(max as f64, HZ),
                list(FREQUENCIES)
            ),
            Self::Rate(min, max) => format!(
                "a rate from {} to {}, in one of {}, as \"333 MT/s x8\" or as \"PCIe 4 x4\"",
                show_rate(min),
                show_rate(max),
                list(RATES)
            ),
            Self::RateOr(word, ..) => format!("{}, or \"{word}\"", self.or_less().allowed()),
            Self::Energy(min, max) => format!(
                "an energy from {} to {}, in one of {}, or as \"25 mA at 3.3 V\"",
                show_decimal(min, PJ),
                show_decimal(max, PJ),
                list(ENERGIES)
            ),
            Self::EnergyPerByte(min, max) => {
                format!("an energy a byte from {min} pJ/B to {max} pJ/B, in one of {}", list(ENERGIES_PER_BYTE))
            }
            Self::Power(min, max) => format!(
                "a power from {} to {}, in one of {}, or as \"5 mA at 3.3 V\"",
                show_decimal(min, UW),
                show_decimal(max, UW),
                list(POWERS)
            ),
            Self::PowerOr(word, ..) => format!("{}, or \"{word}\"", self.or_less().allowed()),
            Self::List(kind, n) => format!("a list of up to {n}, each {}, or \"none\"", kind.allowed()),
            Self::Flag => "true or false".to_owned(),
            Self::Word(words) => {
                format!("one of {}", words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", "))
            }
            Self::Striping => {
                "\"static\" or \"dynamic\", then the letters C, W, D, P, each once: \"static CWDP\"".to_owned()
            }
            Self::Counts(n, min, max) => format!("a list of {n} whole numbers from {min} to {max}"),
            Self::Cores(n) => format!("a list of {n} entries, each the number of a core or \"none\""),
            Self::Text => "a text".to_owned(),
            Self::Table => "a table of its keys".to_owned(),
            Self::Of(key) => key.allowed(),
        }
    }

    /// Returns the same kind without its special word.
    fn or_less(&self) -> Self {
        match *self {
            Self::CountOrNone(min, max) => Self::Count(min, max),
            Self::TimeOrNone(min, max) => Self::Time(min, max),
            Self::SizeOr(_, min, max) => Self::Size(min, max),
            Self::RateOr(_, min, max) => Self::Rate(min, max),
            Self::PowerOr(_, min, max) => Self::Power(min, max),
            other => other,
        }
    }

    /// Reads a quantity of this kind from a value.
    pub fn read(&self, value: &Value) -> Result<Quantity, Wrong> {
        let is_word = |word: &str| value.text().map(str::trim) == Some(word);
        match *self {
            Self::CountOrNone(..) | Self::TimeOrNone(..) if is_word("none") => Ok(Quantity::Nothing),
            Self::SizeOr(word, ..) | Self::RateOr(word, ..) | Self::PowerOr(word, ..) if is_word(word) => {
                Ok(Quantity::Nothing)
            }
            Self::CountOrNone(..) | Self::TimeOrNone(..) | Self::SizeOr(..) | Self::RateOr(..) | Self::PowerOr(..) => {
                self.or_less().read(value).map_err(|w| Wrong { allowed: self.allowed(), ..w })
            }
            Self::List(..) | Self::Times(..) | Self::Counts(..) | Self::Cores(_) => self.read_list(value),
            Self::Time(..)
            | Self::Size(..)
            | Self::Frequency(..)
            | Self::Rate(..)
            | Self::Energy(..)
            | Self::EnergyPerByte(..)
            | Self::Power(..) => self.read_with_unit(value),
            Self::Of(key) => key.read(value),
            Self::Count(..)
            | Self::Real(..)
            | Self::Share(..)
            | Self::Flag
            | Self::Word(_)
            | Self::Striping
            | Self::Text
            | Self::Table => self.read_plain(value),
        }
    }

    /// Reads a flag, a word, or a number without a unit.
    fn read_plain(&self, value: &Value) -> Result<Quantity, Wrong> {
        let wrong = |what: &str| self.wrong(what);
        match *self {
            Self::Count(min, max) => match value {
                Value::Whole(n) => match u64::try_from(*n) {
                    Ok(n) if (min..=max).contains(&n) => Ok(Quantity::Whole(n)),
                    _ => Err(wrong("is out of range")),
                },
                Value::Text(_) => Err(wrong("has a unit or is a text, where a plain count is meant")),
                _ => Err(wrong("is no whole number")),
            },
            Self::Real(min, max) => {
                let x = value.number().ok_or_else(|| wrong("is no plain number"))?;
                self.in_range(x, min, max)
            }
            Self::Share(min, max) => {
                let percent = || Some(in_units(value.text()?, &[("%", 1.0)])? / 100.0);
                let share = value.number().or_else(percent).ok_or_else(|| wrong("is no share"))?;
                self.in_range(share, min, max)
            }
            Self::Flag => match value {
                Value::Flag(flag) => Ok(Quantity::Flag(*flag)),
                _ => Err(wrong("is neither true nor false")),
            },
            Self::Word(words) => {
                let found = words.iter().find(|word| value.text().map(str::trim) == Some(**word));
                found.map(|word| Quantity::Word(word)).ok_or_else(|| wrong("is none of the words"))
            }
            Self::Striping => striping(value.text().unwrap_or("")).ok_or_else(|| wrong("is no striping order")),
            Self::Text if value.text().is_some() => Ok(Quantity::Nothing),
            Self::Text => Err(wrong("is no text")),
            Self::Table => Err(wrong("is a value, where keys of a table are meant")),
            _ => unreachable!("{self:?} is read elsewhere"),
        }
    }

    /// Reads a number with a unit.
    fn read_with_unit(&self, value: &Value) -> Result<Quantity, Wrong> {
        match *self {
            Self::Time(min, max) => self.time(value, min, max).map(Quantity::Time),
            Self::Size(min, max) => {
                let bytes = self.number(value, "size", SIZES, |t| in_units(t, SIZES))?;
                self.whole(bytes, min, max)
            }
            Self::Frequency(min, max) => {
                let hz = self.number(value, "frequency", FREQUENCIES, |t| in_units(t, FREQUENCIES))?;
                self.whole(hz.round(), min, max)
            }
            Self::Rate(min, max) => {
                let bytes_per_s = self.number(value, "rate", RATES, rate)?;
                self.whole(bytes_per_s.round(), min, max)
            }
            Self::Energy(min, max) => {
                if let Some(watts) = value.text().and_then(watts) {
                    return match (0.0..=WATTS_MAX).contains(&watts) {
                        true => Ok(Quantity::WattsWhile(watts)),
                        false => Err(self.wrong(&format!("draws {watts} W, at most {WATTS_MAX} W are allowed"))),
                    };
                }
                let pj = self.number(value, "energy", ENERGIES, |t| in_units(t, ENERGIES))?;
                self.in_range(pj, min, max)
            }
            Self::EnergyPerByte(min, max) => {
                let pj = self.number(value, "energy a byte", ENERGIES_PER_BYTE, |t| in_units(t, ENERGIES_PER_BYTE))?;
                self.in_range(pj, min, max)
            }
            Self::Power(min, max) => {
                let uw = match value.text().and_then(watts) {
                    Some(watts) => watts * 1e6,
                    None => self.number(value, "power", POWERS, |t| in_units(t, POWERS))?,
                };
                self.in_range(uw, min, max)
            }
            _ => unreachable!("{self:?} is read elsewhere"),
        }
    }

    /// Reads a list of quantities.
    fn read_list(&self, value: &Value) -> Result<Quantity, Wrong> {
        let wrong = |what: &str| self.wrong(what);
        match *self {
            Self::List(..) if value.text().map(str::trim) == Some("none") => Ok(Quantity::List(Vec::new())),
            Self::List(kind, n) => {
                let all = match value {
                    Value::List(all) if all.len() > n => return Err(wrong("has too many entries")),
                    Value::List(all) => all.as_slice(),
                    one => std::slice::from_ref(one),
                };
                let all: Result<Vec<_>, _> = all.iter().map(|one| kind.read(one)).collect();
                all.map(Quantity::List).map_err(|w| Wrong { allowed: self.allowed(), ..w })
            }
            Self::Times(min, max) => {
                let all = match value {
                    Value::List(all) if all.is_empty() => return Err(wrong("is empty")),
                    Value::List(all) => all.as_slice(),
                    one => std::slice::from_ref(one),
                };
                all.iter().map(|one| self.time(one, min, max)).collect::<Result<_, _>>().map(Quantity::Times)
            }
            Self::Counts(n, min, max) => {
                let all = entries(value, n).ok_or_else(|| wrong("is not a list of that length"))?;
                let counts = all.iter().map(|one| match Self::Count(min, max).read(one) {
                    Ok(Quantity::Whole(n)) => Ok(Some(n)),
                    _ => Err(wrong("has an entry out of range")),
                });
                counts.collect::<Result<_, _>>().map(Quantity::Counts)
            }
            Self::Cores(n) => {
                let all = entries(value, n).ok_or_else(|| wrong("is not a list of that length"))?;
                let cores = all.iter().map(|one| match Self::CountOrNone(0, 255).read(one) {
                    Ok(Quantity::Whole(n)) => Ok(Some(n)),
                    Ok(Quantity::Nothing) => Ok(None),
                    _ => Err(wrong("has an entry that is no core")),
                });
                cores.collect::<Result<_, _>>().map(Quantity::Counts)
            }
            _ => unreachable!("{self:?} is read elsewhere"),
        }
    }

    fn wrong(&self, what: &str) -> Wrong {
        Wrong { what: what.to_owned(), allowed: self.allowed() }
    }

    fn in_range(&self, x: f64, min: f64, max: f64) -> Result<Quantity, Wrong> {
        if (min..=max).contains(&x) { Ok(Quantity::Real(x)) } else { Err(self.wrong("is out of range")) }
    }

    fn time(&self, value: &Value, min: Ps, max: Ps) -> Result<Ps, Wrong> {
        let ps = self.number(value, "time", TIMES, |t| in_units(t, TIMES))?;
        if (min.0 as f64..=max.0 as f64).contains(&ps.round()) {
            Ok(Ps(ps.round() as u64))
        } else {
            Err(self.wrong("is out of range"))
        }
    }

    /// Reads a number with a unit by `read`; the error says whether the value lacks a unit, has a unit of another
    /// quantity, or is no number.
    fn number(
        &self,
        value: &Value,
        name: &str,
        units: &[(&str, f64)],
        read: impl Fn(&str) -> Option<f64>,
    ) -> Result<f64, Wrong> {
        let what = match value {
            Value::Text(text) => match (read(text), split(text)) {
                (Some(x), _) if x.is_finite() => return Ok(x),
                (Some(_), _) => "is out of range".to_owned(),
                _ if name == "rate" && text.trim_start().starts_with("PCIe") => {
                    "is no PCIe link that is specified: generations are 1 to 7, lanes 1 to 32".to_owned()
                }
                (_, Some((_, ""))) => format!("lacks its unit ({})", list(units)),
                (_, Some((_, unit))) => format!("has the unit {unit:?}, which is none of a {name}"),
                _ => format!("is no {name}"),
            },
            Value::Whole(_) | Value::Real(_) => format!("lacks its unit ({})", list(units)),
            _ => format!("is no {name}"),
        };
        Err(Wrong { what, allowed: self.allowed() })
    }

    fn whole(&self, x: f64, min: u64, max: u64) -> Result<Quantity, Wrong> {
        if !(min as f64..=max as f64).contains(&x) {
            return Err(self.wrong("is out of range"));
        }
        // A product of floats such as 4.1 * 1e9 may be a whole number but for its last bits.
        let whole = x.round();
        if (x - whole).abs() > 2.0 * f64::EPSILON * x {
            return Err(self.wrong("is no whole number of bytes"));
        }
        Ok(Quantity::Whole(whole as u64))
    }
}

fn entries(value: &Value, n: usize) -> Option<&[Value]> {
    match value {
        Value::List(all) if all.len() == n => Some(all),
        _ => None,
    }
}

fn striping(text: &str) -> Option<Quantity> {
    let (when, order) = text.trim().split_once(' ')?;
    let dynamic = match when {
        "static" => false,
        "dynamic" => true,
        _ => return None,
    };
    let letters: [u8; 4] = order.trim().as_bytes().try_into().ok()?;
    b"CWDP".iter().all(|c| letters.contains(c)).then_some(Quantity::Striping(dynamic, letters))
}
