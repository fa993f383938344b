//! Numbers with units beside exact decimal arithmetic, rates beside the specifications of their links, and values that
//! read as what was written.

use fastrand::Rng;
use proptest::prelude::*;

use crate::nearest;
use crate::units;
use crate::{Quantity, Value, ValueKind};
use nandarray_sim::Ps;

/// Units of a kind of quantity as powers of ten and two: `unit = 10^tens * 2^twos` of the smallest unit.
type Exact = &'static [(&'static str, i32, u32)];

const TIMES: Exact =
    &[("ps", 0, 0), ("ns", 3, 0), ("us", 6, 0), ("µs", 6, 0), ("μs", 6, 0), ("ms", 9, 0), ("s", 12, 0)];
const SIZES: Exact = &[
    ("B", 0, 0),
    ("kB", 3, 0),
    ("MB", 6, 0),
    ("GB", 9, 0),
    ("TB", 12, 0),
    ("KiB", 0, 10),
    ("MiB", 0, 20),
    ("GiB", 0, 30),
    ("TiB", 0, 40),
];
const RATES: Exact = &[
    ("B/s", 0, 0),
    ("kB/s", 3, 0),
    ("MB/s", 6, 0),
    ("GB/s", 9, 0),
    ("TB/s", 12, 0),
    ("KiB/s", 0, 10),
    ("MiB/s", 0, 20),
    ("GiB/s", 0, 30),
];
const FREQUENCIES: Exact = &[("Hz", 0, 0), ("kHz", 3, 0), ("MHz", 6, 0), ("GHz", 9, 0)];

/// Draws a decimal number as text, with its digits and the number of those behind the point.
fn decimal(chance: &mut Rng) -> (String, u128, u32) {
    let behind = chance.u32(0..7);
    let most = 10u64.pow(chance.u32(1..10));
    let digits = u128::from(chance.u64(1..most));
    let scale = 10u128.pow(behind);
    let text = match behind {
        0 => digits.to_string(),
        _ => format!("{}.{:0width$}", digits / scale, digits % scale, width = behind as usize),
    };
    let space = ["", " ", "  "][chance.usize(0..3)];
    (format!("{text}{space}"), digits, behind)
}

/// Returns `digits / 10^behind` of a unit in the smallest one: the whole number and whether it is exact, or rounded to
/// the nearest.
fn exactly(digits: u128, behind: u32, tens: i32, twos: u32) -> (u128, bool) {
    let (over, under) = ((digits * 10u128.pow(tens as u32)) << twos, 10u128.pow(behind));
    ((over + under / 2) / under, over.is_multiple_of(under))
}

#[test]
fn numbers_with_units_are_exact() {
    let kinds: [(ValueKind, Exact, bool); 4] = [
        (ValueKind::Time(Ps::ZERO, Ps(1 << 53)), TIMES, true),
        (ValueKind::Size(0, 1 << 53), SIZES, false),
        (ValueKind::Rate(0, 1 << 53), RATES, true),
        (ValueKind::Frequency(0, 1 << 53), FREQUENCIES, true),
    ];
    let mut chance = Rng::with_seed(1);
    for (kind, exact, rounds) in kinds {
        for n in 0..3_000 {
            let (unit, tens, twos) = exact[n % exact.len()];
            let (text, digits, behind) = decimal(&mut chance);
            let text = format!("{text}{unit}");
            let (want, is_whole) = exactly(digits, behind, tens, twos);
            // Beyond this, floats have no room for the parts of a unit.
            if want >= 1 << 36 {
                continue;
            }
            let got = match kind.read(&text.as_str().into()) {
                Ok(Quantity::Time(t)) => Ok(Quantity::Whole(t.0)),
                other => other,
            };
            match got {
                Ok(Quantity::Whole(n)) if is_whole => assert_eq!(u128::from(n), want, "{text:?}"),
                // A half may be rounded either way, since its decimals are no float.
                Ok(Quantity::Whole(n)) if rounds => assert!(u128::from(n).abs_diff(want) <= 1, "{text:?} is {n}"),
                Err(wrong) => {
                    assert!(!is_whole && !rounds, "{text:?}: {wrong:?}");
                    assert_eq!(wrong.what, "is no whole number of bytes", "{text:?}");
                }
                other => panic!("{text:?} is {other:?}, not {want}"),
            }
        }
    }
}

#[test]
fn powers_and_energies_are_currents_times_voltages() {
    let power = |text: &str| match ValueKind::Power(0.0, 1e9).read(&text.into()) {
        Ok(Quantity::Real(uw)) => uw,
        other => panic!("{text}: {other:?}"),
    };
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
    let mut chance = Rng::with_seed(2);
    for _ in 0..2_000 {
        let (amps, volts) = (chance.u32(1..900), chance.u32(1..5_000));
        let (a, a_in) = [("uA", 1e-6), ("µA", 1e-6), ("mA", 1e-3), ("A", 1.0)][chance.usize(0..4)];
        let (v, v_in) = [("mV", 1e-3), ("V", 1.0)][chance.usize(0..2)];
        let watts = f64::from(amps) * a_in * f64::from(volts) * v_in;
        let text = format!("{amps} {a} at {volts} {v}");
        if watts <= 1e3 {
            assert!(near(power(&text), watts * 1e6), "{text}: {} uW", power(&text));
            let energy = ValueKind::Energy(0.0, 1e12).read(&text.as_str().into());
            assert!(matches!(energy, Ok(Quantity::WattsWhile(w)) if near(w, watts)), "{text}: {energy:?}");
        } else {
            ValueKind::Power(0.0, 1e9).read(&text.as_str().into()).unwrap_err();
        }
    }
    for (text, uw) in [("30 mW", 30_000.0), ("12 nW", 0.012), ("0.5 W", 5e5), ("1000 W", 1e9), ("7 µW", 7.0)] {
        assert!(near(power(text), uw), "{text}");
    }
    for text in ["5 mA", "5 mA at 3.3", "5 mA at V", "at 3.3 V", "5 mA at 3.3 W", "5 mA  at3.3 V", "5 W at 3.3 V"] {
        ValueKind::Power(0.0, 1e9).read(&text.into()).unwrap_err();
    }
}

#[test]
fn links_and_buses_are_as_fast_as_specified() {
    let rate = |text: &str| match ValueKind::Rate(0, 1 << 41).read(&text.into()) {
        Ok(Quantity::Whole(bytes_per_s)) => Ok(bytes_per_s),
        Ok(other) => panic!("{text}: {other:?}"),
        Err(wrong) => Err(wrong.what),
    };
    // Transfers a second and the share of bits that carry data: 8b/10b, 128b/130b, 236 of each 256 bytes of a flit.
    let generations = [
        (2.5, 0.8),
        (5.0, 0.8),
        (8.0, 128.0 / 130.0),
        (16.0, 128.0 / 130.0),
        (32.0, 128.0 / 130.0),
        (64.0, 236.0 / 256.0),
        (128.0, 236.0 / 256.0),
    ];
    for (number, (gt, coding)) in (1..).zip(generations) {
        for lanes in [1, 2, 4, 8, 12, 16, 32] {
            let want = gt * 1e9 * coding / 8.0 * f64::from(lanes);
            for text in [format!("PCIe {number} x{lanes}"), format!(" PCIe{number}.0x{lanes} ")] {
                let got = rate(&text).unwrap() as f64;
                assert!((got - want).abs() <= f64::from(lanes), "{text}: {got} instead of {want}");
            }
        }
        for lanes in [0, 3, 5, 64] {
            assert!(
                rate(&format!("PCIe {number} x{lanes}")).unwrap_err().starts_with("is no PCIe link that is specified")
            );
        }
    }
    for text in
        ["PCIe", "PCIe 4", "PCIe 0 x4", "PCIe 8 x4", "PCIe x4", "PCIe four x4", "PCIe -1 x4", "PCIe 99999999999 x4"]
    {
        assert!(rate(text).unwrap_err().starts_with("is no PCIe link that is specified"), "{text}");
    }
    let mut chance = Rng::with_seed(3);
    for _ in 0..500 {
        let (mts, bits) = (chance.u64(1..5_000), chance.u64(1..2_049));
        let want = (mts * 1_000_000 * bits + 4) / 8;
        assert_eq!(rate(&format!("{mts} MT/s x{bits}")), Ok(want));
        assert_eq!(rate(&format!("{mts} Mb/s")), Ok(mts * 125_000));
        assert_eq!(rate(&format!("{mts} Gb/s")), Ok(mts * 125_000_000));
    }
    assert_eq!(rate("1.6 GT/s x8"), Ok(1_600_000_000));
    for text in ["333 MT/s x0", "333 MT/s x2049", "333 MT/s x", "333 MT/s x-8", "333 MT/s", "x8", "333 x8", "8x"] {
        rate(text).expect_err(text);
    }
}

#[test]
fn numbers_beyond_all_ranges_are_out_of_range_and_not_without_a_unit() {
    let sizes = ValueKind::Size(0, 1 << 40);
    let times = ValueKind::Time(Ps::ZERO, Ps::from_ms(1));
    let powers = ValueKind::Power(0.0, 1e9);
    for (kind, text) in
        [(sizes, "1e999 B"), (times, "1e308 s"), (times, "-1e999 ms"), (powers, "1e400 W"), (sizes, "1e30 TiB")]
    {
        assert_eq!(kind.read(&text.into()).unwrap_err().what, "is out of range", "{text}");
    }
    for (text, what) in [
        ("", "is no time"),
        (".", "is no time"),
        ("us", "is no time"),
        ("1.2.3 us", "is no time"),
        ("--1 us", "is no time"),
        ("1e us", "has the unit \"e us\", which is none of a time"),
        ("1 US", "has the unit \"US\", which is none of a time"),
        ("inf us", "is no time"),
        ("nan us", "is no time"),
        ("0x10 us", "has the unit \"x10 us\", which is none of a time"),
        ("1,5 us", "has the unit \",5 us\", which is none of a time"),
    ] {
        let got = times.read(&text.into()).unwrap_err().what;
        assert!(got.starts_with(what), "{text:?}: {got}");
    }
    for (text, ps) in
        [("1_000 ps", 1_000), ("+5 ns", 5_000), ("1e3ns", 1_000_000), ("2.5E-1 us", 250_000), ("-0.4 ps", 0)]
    {
        assert_eq!(times.read(&text.into()), Ok(Quantity::Time(Ps(ps))), "{text}");
    }
}

/// The factors that programs get are those by which values are read.
#[test]
fn units_for_programs_are_the_units_of_values() {
    for (name, all) in units() {
        let kind = match name {
            "time" => ValueKind::Time(Ps::ZERO, Ps(1 << 53)),
            "size" => ValueKind::Size(0, 1 << 53),
            "rate" => ValueKind::Rate(0, 1 << 53),
            "energy" => ValueKind::Energy(0.0, 1e30),
            "energy_per_byte" => ValueKind::EnergyPerByte(0.0, 1e30),
            "power" => ValueKind::Power(0.0, 1e30),
            other => panic!("{other} is no kind of quantity"),
        };
        for (unit, factor) in all {
            let got = match kind.read(&format!("16 {unit}").as_str().into()) {
                Ok(Quantity::Whole(n)) => n as f64,
                Ok(Quantity::Time(t)) => t.0 as f64,
                Ok(Quantity::Real(x)) => x,
                other => panic!("16 {unit}: {other:?}"),
            };
            assert_eq!(got, 16.0 * factor, "{unit} of {name}");
        }
    }
}

/// Generates values of all kinds, with all characters in texts.
fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![".{0,20}", "[\"'\\\\\r\n\t\u{0}-\u{1f}\u{7f}a]{0,12}", any::<String>()];
    let real = prop_oneof![any::<f64>(), (-1e6..1e6), Just(-0.0), Just(1e16), Just(1e-7)];
    let one = prop_oneof![
        any::<bool>().prop_map(Value::Flag),
        any::<i64>().prop_map(Value::Whole),
        real.prop_map(Value::Real),
        text.prop_map(Value::Text),
    ];
    one.prop_recursive(3, 12, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::List))
}

/// Equality of values with NaN equal to itself.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Real(a), Value::Real(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}

proptest! {
    #[test]
    fn a_value_reads_as_it_was_written(value in values()) {
        let text = format!("key = {value}\n");
        let table = toml::de::DeTable::parse(&text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        let read = Value::from_toml(table.get_ref().get("key").unwrap().get_ref()).unwrap();
        prop_assert!(same(&read, &value), "{text:?} is read as {read:?}");
        prop_assert!(same(&Value::from_bare(&value.to_string()), &value), "{value} on a command line");
    }

    #[test]
    fn a_bare_text_needs_no_quotes(word in "[a-z][a-z0-9 /%-]{0,12}[a-z]", n in 0..1000_i64) {
        prop_assume!(!["true", "false", "inf", "nan"].contains(&word.as_str()));
        prop_assert_eq!(Value::from_bare(&word), Value::Text(word.clone()));
        prop_assert_eq!(Value::from_bare(&format!("{n} {word}")), Value::Text(format!("{n} {word}")));
        let list = Value::from_bare(&format!("[{word}, {n}, {n} {word}]"));
        let texts = vec![Value::Text(word.clone()), Value::Whole(n), Value::Text(format!("{n} {word}"))];
        prop_assert_eq!(list, Value::List(texts));
    }
}

#[test]
fn numbers_in_other_bases_are_numbers() {
    for (text, n) in [
        ("0xff", 255),
        ("0o17", 15),
        ("0b101", 5),
        ("1_000_000", 1_000_000),
        ("+7", 7),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(Value::from_bare(text), Value::Whole(n), "{text}");
    }
    for (text, x) in [("1_0.5e1_0", 10.5e10), ("-inf", f64::NEG_INFINITY), ("+inf", f64::INFINITY), ("1e3", 1e3)] {
        assert_eq!(Value::from_bare(text), Value::Real(x), "{text}");
    }
    assert_eq!(Value::from_bare("9223372036854775808"), Value::Text("9223372036854775808".into()), "beyond 64 bits");
}

#[test]
fn the_nearest_name_is_found_or_none() {
    let names = ["channels", "ways", "dies", "planes", "blocks", "pages"];
    assert_eq!(nearest("chanels", names.into_iter()), Some("channels"));
    assert_eq!(nearest("plane", names.into_iter()), Some("planes"));
    assert_eq!(nearest("", names.into_iter()), None);
    assert_eq!(nearest("zzz", names.into_iter()), None);
    for name in names {
        assert_eq!(nearest(name, names.into_iter()), Some(name));
    }
}
