//! Types of elements: what the text of a NumPy dtype says, as far as a program's inputs and arrays are compared by it.
//!
//! Metadata have a dtype as `numpy.dtype` takes it; arrays have the text that the package writes beside their elements
//! (`python/nandarray/dtypes.py`). Both become one form here, so that the same types are equal however they are
//! written. A type that is not read here is none: `docs/reference/program-abi.md` lists the forms.

use std::fmt;

use serde_json::Value;

/// The type of the elements of an array, or of an input or output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A number, a truth value, a time, a text or plain bytes.
    Plain {
        /// Letter of the kind, as in NumPy's array protocol.
        kind: char,
        /// Size of an element, in bytes.
        bytes: u64,
        /// Whether the most significant byte comes first.
        big_endian: bool,
        /// Unit of a time, with its brackets; empty for other kinds.
        unit: String,
    },
    /// A float of the package `ml_dtypes`, by its name.
    Short(&'static str),
    /// An array of elements of one type.
    Block {
        /// Type of its elements.
        base: Box<ElementType>,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// Named fields, each at its offset.
    Fields {
        /// Name, type and offset in bytes of each field.
        fields: Vec<(String, ElementType, u64)>,
        /// Size of an element, in bytes.
        bytes: u64,
    },
}

/// Names of types without their sizes, and NumPy's letters, each with the kind and the bytes.
const NAMES: [(&str, char, u64); 37] = [
    ("bool", 'b', 1),
    ("bool_", 'b', 1),
    ("?", 'b', 1),
    ("byte", 'i', 1),
    ("b", 'i', 1),
    ("ubyte", 'u', 1),
    ("B", 'u', 1),
    ("short", 'i', 2),
    ("h", 'i', 2),
    ("ushort", 'u', 2),
    ("H", 'u', 2),
    ("intc", 'i', 4),
    ("i", 'i', 4),
    ("uintc", 'u', 4),
    ("I", 'u', 4),
    ("int", 'i', 8),
    ("int_", 'i', 8),
    ("long", 'i', 8),
    ("l", 'i', 8),
    ("longlong", 'i', 8),
    ("q", 'i', 8),
    ("uint", 'u', 8),
    ("ulong", 'u', 8),
    ("L", 'u', 8),
    ("ulonglong", 'u', 8),
    ("Q", 'u', 8),
    ("half", 'f', 2),
    ("e", 'f', 2),
    ("single", 'f', 4),
    ("f", 'f', 4),
    ("float", 'f', 8),
    ("double", 'f', 8),
    ("d", 'f', 8),
    ("complex", 'c', 16),
    ("F", 'c', 8),
    ("D", 'c', 16),
    ("intp", 'i', 8),
];
/// Names of the floats of `ml_dtypes`. The first has two bytes, the others one.
const SHORT: [&str; 9] = [
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
];
/// Prefixes of names that end with a number of bits, with their kinds.
const SIZED: [(&str, char); 4] = [("float", 'f'), ("uint", 'u'), ("int", 'i'), ("complex", 'c')];
/// Sizes that the numbers of a kind have, in bytes; any size is one of the other kinds.
const SIZES: [(char, &[u64]); 7] = [
    ('b', &[1]),
    ('i', &[1, 2, 4, 8]),
    ('u', &[1, 2, 4, 8]),
    ('f', &[2, 4, 8, 12, 16]),
    ('c', &[8, 16, 24, 32]),
    ('m', &[8]),
    ('M', &[8]),
];
/// Maximum depth of fields within fields.
const DEPTH_MAX: usize = 16;

impl ElementType {
    /// Reads a dtype of a program's metadata, or the JSON of an array's; `None` if it is none of the forms.
    pub fn parse(written: &Value) -> Option<Self> {
        Self::read(written, 0)
    }

    /// Reads the text beside an array's elements; `None` if it is none of the forms.
    pub fn parse_text(text: &str) -> Option<Self> {
        if text.starts_with('{') {
            return Self::parse(&serde_json::from_str(text).ok()?);
        }
        plain(text)
    }

    /// Returns the type of an array's elements in words, from the text beside them, which is quoted if it is no type.
    pub fn shown(text: &str) -> String {
        Self::parse_text(text).map_or_else(|| format!("{text:?}"), |element| element.to_string())
    }

    /// Whether elements of the type `found` may stand for elements of this type: they have the same type, or no type.
    /// `None` is a type that is not read here.
    pub fn fits(&self, found: Option<&Self>) -> bool {
        found.is_some_and(|found| found.is_untyped() || found == self)
    }

    /// Whether elements of the type `found` may be read as elements of this type: they fit, or are read as plain bytes.
    pub fn takes(&self, found: Option<&Self>) -> bool {
        self.is_bytes() || self.fits(found)
    }

    fn read(written: &Value, depth: usize) -> Option<Self> {
        let made = match written {
            _ if depth > DEPTH_MAX => None,
            Value::String(text) => plain(text),
            Value::Array(fields) => listed(fields, depth),
            Value::Object(members) if members.contains_key("base") => {
                block(Self::read(&members["base"], depth + 1)?, members.get("shape")?)
            }
            Value::Object(members) => placed(members.get("fields")?, members.get("itemsize")?.as_u64()?, depth),
            _ => None,
        };
        made.filter(|element| element.bytes() > 0)
    }

    /// Returns the size of an element, in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Plain { bytes, .. } | Self::Fields { bytes, .. } => *bytes,
            Self::Short(name) => 1 + u64::from(*name == SHORT[0]),
            Self::Block { base, shape } => shape.iter().fold(base.bytes(), |all, n| all.saturating_mul(*n)),
        }
    }

    /// Whether the type is that of plain bytes, as which a program takes elements of any type.
    pub fn is_bytes(&self) -> bool {
        matches!(self, Self::Plain { kind: 'u', bytes: 1, .. })
    }

    /// Whether elements have no type, only a size: those of a block namespace, and of an array that was made without a
    /// dtype.
    pub fn is_untyped(&self) -> bool {
        matches!(self, Self::Plain { kind: 'V', .. })
    }

    /// Whether the type is an integer's.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Plain { kind: 'i' | 'u', .. })
    }

    /// Returns the bits of a scalar of this type in the argument block; `None` if the type is no number's of at most 64
    /// bits, or does not have the number.
    pub fn scalar_bits(&self, number: &Value) -> Option<u64> {
        let Self::Plain { kind, bytes, big_endian: false, .. } = self else { return None };
        let bits = 8 * bytes;
        let number = match number {
            Value::Bool(flag) => Value::from(u64::from(*flag)),
            other => other.clone(),
        };
        match kind {
            'b' => number.as_f64().map(|n| u64::from(n != 0.0)),
            'u' => number.as_u64().filter(|n| bits >= 64 || *n < 1 << bits),
            'i' => number
                .as_i64()
                .filter(|n| bits >= 64 || (-(1 << (bits - 1))..1 << (bits - 1)).contains(n))
                .map(|n| n as u64),
            'f' => match bits {
                16 => number.as_f64().map(|n| u64::from(half(n as f32))),
                32 => number.as_f64().map(|n| u64::from((n as f32).to_bits())),
                64 => number.as_f64().map(f64::to_bits),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the bits of the half-precision number nearest to a number, to even at ties.
fn half(number: f32) -> u16 {
    let (sign, magnitude) = ((number.to_bits() >> 16 & 0x8000) as u16, f64::from(number.abs()));
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    // The spacing of numbers of this size: 10 bits behind the leading one, at least that of subnormal numbers.
    let exponent = if magnitude == 0.0 { -14 } else { (magnitude.log2().floor() as i32).max(-14) };
    let steps = (magnitude / 2f64.powi(exponent - 10)).round_ties_even();
    if steps * 2f64.powi(exponent - 10) >= 65520.0 || exponent > 15 {
        return sign | 0x7c00;
    }
    // The leading one of a number that is not subnormal counts as one more in the exponent, which stands in front.
    sign | ((exponent + 14) as u16 * 1024 + steps as u16)
}

/// Reads a name, or a text of the array protocol.
fn plain(text: &str) -> Option<ElementType> {
    let made = |kind: char, bytes: u64, big: bool, unit: &str| {
        let fits = SIZES.iter().find(|(of, _)| *of == kind).is_none_or(|(_, sizes)| sizes.contains(&bytes));
        // One byte, texts of bytes and plain bytes have no order.
        let big_endian = big && bytes > 1 && !matches!(kind, 'S' | 'V');
        (fits && bytes > 0).then(|| ElementType::Plain { kind, bytes, big_endian, unit: unit.to_owned() })
    };
    if let Some((_, kind, bytes)) = NAMES.iter().find(|(name, ..)| *name == text) {
        return made(*kind, *bytes, false, "");
    }
    if let Some(name) = SHORT.iter().find(|name| **name == text) {
        return Some(ElementType::Short(name));
    }
    for (name, kind) in [("datetime64", 'M'), ("timedelta64", 'm')] {
        if let Some(unit) = text.strip_prefix(name) {
            return made(kind, 8, false, bracketed(unit)?);
        }
    }
    for (prefix, kind) in SIZED {
        if let Some(bits) = text.strip_prefix(prefix).and_then(digits) {
            return if bits % 8 == 0 { made(kind, bits / 8, false, "") } else { None };
        }
    }
    let short = text.trim_start_matches(['<', '>', '|', '=']);
    if text.len() - short.len() > 1 {
        return None;
    }
    let (kind, rest) = short.split_at_checked(1)?;
    let (size, unit) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
    let (kind, size) = (kind.chars().next()?, digits(size)?);
    match kind {
        'm' | 'M' => made(kind, size, text.starts_with('>'), bracketed(unit)?),
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'V' if unit.is_empty() => made(kind, size, text.starts_with('>'), ""),
        'a' if unit.is_empty() => made('S', size, false, ""),
        'U' if unit.is_empty() => made('U', size.checked_mul(4)?, text.starts_with('>'), ""),
        _ => None,
    }
}

/// Returns a number that is written in digits alone.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// Returns the unit of a time: nothing, or a text in brackets.
fn bracketed(unit: &str) -> Option<&str> {
    (unit.is_empty() || unit.starts_with('[') && unit.ends_with(']')).then_some(unit)
}

/// Reads a list of fields, which lie one behind the other.
fn listed(written: &[Value], depth: usize) -> Option<ElementType> {
    let (mut fields, mut at) = (Vec::new(), 0u64);
    for (number, field) in written.iter().enumerate() {
        let [name, element, shape @ ..] = &field.as_array()?[..] else { return None };
        let name = match name.as_str().or_else(|| name.as_array()?.get(1)?.as_str())? {
            "" => format!("f{number}"),
            name => name.to_owned(),
        };
        let element = ElementType::read(element, depth + 1)?;
        let element = match shape {
            [] => element,
            [shape] => block(element, shape)?,
            _ => return None,
        };
        let bytes = element.bytes();
        fields.push((name, element, at));
        at = at.checked_add(bytes)?;
    }
    Some(ElementType::Fields { fields, bytes: at })
}

/// Reads fields with their offsets, as an array's text has them.
fn placed(written: &Value, bytes: u64, depth: usize) -> Option<ElementType> {
    let mut fields = Vec::new();
    for field in written.as_array()? {
        let [name, element, offset, ..] = &field.as_array()?[..] else { return None };
        let (element, offset) = (ElementType::read(element, depth + 1)?, offset.as_u64()?);
        if offset.checked_add(element.bytes())? > bytes {
            return None;
        }
        fields.push((name.as_str()?.to_owned(), element, offset));
    }
    Some(ElementType::Fields { fields, bytes })
}

/// Makes an array of elements; its shape is a number or a list of numbers.
fn block(base: ElementType, shape: &Value) -> Option<ElementType> {
    let mut shape: Vec<u64> = match shape {
        Value::Array(extents) => extents.iter().map(Value::as_u64).collect::<Option<_>>()?,
        extent => vec![extent.as_u64()?],
    };
    // Arrays of arrays are arrays of more dimensions.
    Some(match base {
        base if shape.is_empty() => base,
        ElementType::Block { base, shape: inner } => {
            shape.extend(inner);
            ElementType::Block { base, shape }
        }
        base => ElementType::Block { base: Box::new(base), shape },
    })
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { kind: 'b', .. } => f.write_str("bool"),
            Self::Short(name) => f.write_str(name),
            Self::Plain { kind: kind @ ('i' | 'u' | 'f' | 'c'), bytes, big_endian, .. } => {
                let name = SIZED.iter().find(|(_, of)| of == kind).expect("the name of a number").0;
                write!(f, "{}{name}{}", if *big_endian { "big-endian " } else { "" }, 8 * bytes)
            }
            Self::Plain { kind, bytes, big_endian, unit } => {
                let order = match (*big_endian, *kind) {
                    (true, _) => '>',
                    (false, 'S' | 'V') => '|',
                    (false, _) => '<',
                };
                write!(f, "{order}{kind}{}{unit}", if *kind == 'U' { bytes / 4 } else { *bytes })
            }
            Self::Block { base, shape } => write!(f, "{base} of shape {shape:?}"),
            Self::Fields { fields, bytes } => {
                let listed: Vec<String> =
                    fields.iter().map(|(name, element, at)| format!("{name}: {element} at {at}")).collect();
                write!(f, "{{{}}} of {bytes} bytes", listed.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_type_is_equal_however_it_is_written() {
        let of = |written: Value| ElementType::parse(&written).unwrap_or_else(|| panic!("{written} is a type"));
        for written in ["float32", "<f4", "=f4", "f4", "f", "single"] {
            assert_eq!(of(json!(written)), of(json!("float32")), "{written}");
            assert_eq!(of(json!(written)).to_string(), "float32");
        }
        assert_ne!(of(json!(">f4")), of(json!("<f4")));
        assert_eq!(of(json!(">u1")), of(json!("|u1")));
        assert_eq!((of(json!("bfloat16")).bytes(), of(json!("float8_e5m2")).bytes()), (2, 1));
        assert_eq!(of(json!("bfloat16")).to_string(), "bfloat16");
        assert_ne!(of(json!("float8_e4m3")), of(json!("float8_e4m3fn")));
        assert_eq!(of(json!("datetime64[ns]")), of(json!("<M8[ns]")));
        assert_ne!(of(json!("<M8[ns]")), of(json!("<M8[s]")));
        assert_eq!((of(json!("U5")).bytes(), of(json!("S5")).bytes(), of(json!("?")).bytes()), (20, 5, 1));
        let listed = of(json!([["a", "int64"], ["b", "S3"], ["c", "float32", [2, 3]]]));
        let text = r#"{"fields":[["a","<i8",0],["b","|S3",8],["c",{"base":"<f4","shape":[2,3]},11]],"itemsize":35}"#;
        assert_eq!(Some(&listed), ElementType::parse_text(text).as_ref());
        assert_ne!(Some(listed), ElementType::parse_text(&text.replace("35", "40")), "bytes behind the fields");
        assert_eq!(
            of(json!({"base": {"base": "f4", "shape": [3]}, "shape": 2})),
            of(json!({"base": "f4", "shape": [2, 3]}))
        );
    }

    #[test]
    fn what_has_the_type_or_none_fits_and_bytes_take_all() {
        let of = |text: &str| ElementType::parse_text(text);
        let (double, bytes) = (of("<f8").unwrap(), of("|u1").unwrap());
        for (found, fits) in
            [("<f8", true), ("|V512", true), ("<f4", false), (">f8", false), ("|u1", false), ("", false)]
        {
            let element = of(found);
            assert_eq!((double.fits(element.as_ref()), double.takes(element.as_ref())), (fits, fits), "{found}");
            assert!(bytes.takes(element.as_ref()), "{found}");
        }
        assert!(bytes.fits(of("|V1").as_ref()) && !bytes.fits(of("<f8").as_ref()), "where bytes go");
        assert_eq!((ElementType::shown("<f8"), ElementType::shown("O")), ("float64".to_owned(), "\"O\"".to_owned()));
    }

    #[test]
    fn other_texts_are_no_types() {
        let mut deep = json!("f4");
        for _ in 0..20 {
            deep = json!([["a", deep]]);
        }
        let none = [
            json!("i4,f4"),
            json!("(2,)f4"),
            json!("float13"),
            json!("i3"),
            json!("S0"),
            json!("O"),
            json!("<<f4"),
            json!(""),
            json!("<M8[ns"),
            json!(4),
            json!([]),
            json!([["a"]]),
            json!([["a", "f4", [0]]]),
            json!({"fields": []}),
            deep,
            json!({"fields": [["a", "f4", 1]], "itemsize": 4}),
            json!({"base": "f4", "shape": [u64::MAX, -1]}),
        ];
        for written in none {
            assert_eq!(ElementType::parse(&written), None, "{written}");
        }
        assert_eq!(ElementType::parse_text(""), None);
    }

    #[test]
    fn a_scalar_has_the_bits_of_its_type() {
        let bits = |dtype: &str, number: Value| ElementType::parse_text(dtype).and_then(|e| e.scalar_bits(&number));
        assert_eq!(bits("i2", json!(-1)), Some(u64::MAX));
        assert_eq!((bits("u1", json!(255)), bits("u1", json!(256)), bits("i1", json!(128))), (Some(255), None, None));
        assert_eq!((bits("f8", json!(0.5)), bits("f4", json!(1))), (Some(0.5f64.to_bits()), Some(0x3f80_0000)));
        assert_eq!((bits("bool", json!(true)), bits("i8", json!(0.5)), bits("S3", json!(1))), (Some(1), None, None));
        // Halves: one, the largest, beyond it, the smallest, a tie to even, one that is carried.
        for (number, half) in [(1.0, 0x3c00), (65504.0, 0x7bff), (65520.0, 0x7c00), (5.960_464_477_539_063e-8, 1)] {
            assert_eq!(bits("f2", json!(number)), Some(half), "{number}");
        }
        assert_eq!((bits("f2", json!(-2.0)), bits("f2", json!(2049.0))), (Some(0xc000), Some(0x6800)));
        assert_eq!(
            (bits("f2", json!(2047.9)), bits("f2", json!(6.1e-5)), bits("f2", json!(0))),
            (Some(0x6800), Some(0x03ff), Some(0))
        );
    }
}
