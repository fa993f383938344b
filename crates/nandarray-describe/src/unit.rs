//! Units of each kind of quantity, read and written.
//!
//! Texts may not contain arithmetic; the few compound forms are those that data sheets print: `333 MT/s x8`,
//! `PCIe 4 x4`, `25 mA at 3.3 V`.

pub(crate) const TIMES: &[(&str, f64)] =
    &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("µs", 1e6), ("μs", 1e6), ("ms", 1e9), ("s", 1e12)];
pub(crate) const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
pub(crate) const RATES: &[(&str, f64)] = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("KiB/s", 1024.0),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", 1_073_741_824.0),
    ("Mb/s", 1e6 / 8.0),
    ("Gb/s", 1e9 / 8.0),
    ("Tb/s", 1e12 / 8.0),
];
pub(crate) const FREQUENCIES: &[(&str, f64)] = &[("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
pub(crate) const ENERGIES: &[(&str, f64)] =
    &[("fJ", 1e-3), ("pJ", 1.0), ("nJ", 1e3), ("uJ", 1e6), ("µJ", 1e6), ("μJ", 1e6), ("mJ", 1e9), ("J", 1e12)];
pub(crate) const ENERGIES_PER_BYTE: &[(&str, f64)] =
    &[("fJ/B", 1e-3), ("pJ/B", 1.0), ("nJ/B", 1e3), ("pJ/bit", 8.0), ("nJ/bit", 8e3)];
pub(crate) const POWERS: &[(&str, f64)] =
    &[("nW", 1e-3), ("uW", 1.0), ("µW", 1.0), ("μW", 1.0), ("mW", 1e3), ("W", 1e6)];
const CURRENTS: &[(&str, f64)] = &[("uA", 1e-6), ("µA", 1e-6), ("μA", 1e-6), ("mA", 1e-3), ("A", 1.0)];
const TRANSFERS: &[(&str, f64)] = &[("MT/s", 1e6), ("GT/s", 1e9)];

/// Returns the units of each kind of quantity with their factors: times in ps, sizes in bytes, rates in bytes per
/// second, energies in pJ, energies per byte in pJ/B, powers in uW.
pub fn units() -> [(&'static str, &'static [(&'static str, f64)]); 6] {
    [
        ("time", TIMES),
        ("size", SIZES),
        ("rate", RATES),
        ("energy", ENERGIES),
        ("energy_per_byte", ENERGIES_PER_BYTE),
        ("power", POWERS),
    ]
}

/// Rate of one PCIe lane in bytes per second, by generation, after line coding: 8b/10b up to 2, 128b/130b up to 5, and
/// 236 bytes of each 256-byte flit from 6 on (PCI Express base specifications 1.0 to 7.0).
const PCIE_LANE_BYTES_PER_S: [u64; 7] =
    [250_000_000, 500_000_000, 984_615_385, 1_969_230_769, 3_938_461_538, 7_375_000_000, 14_750_000_000];

/// Highest power of an operation whose energy is given as a current, in watts.
pub(crate) const WATTS_MAX: f64 = 1e3;

/// Splits `12.5 us` into 12.5 and `us`; the space may be missing. `None` if the text does not begin with a number.
pub(crate) fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let mut end = 0;
    let bytes = text.as_bytes();
    while end < bytes.len() {
        let exponent = matches!(bytes[end], b'e' | b'E')
            && bytes.get(end + 1).is_some_and(|c| c.is_ascii_digit() || matches!(c, b'-' | b'+'));
        let sign = matches!(bytes[end], b'-' | b'+') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        if !(bytes[end].is_ascii_digit() || matches!(bytes[end], b'.' | b'_') || exponent || sign) {
            break;
        }
        end += 1;
    }
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

/// Reads a number in one of these units and converts it to the unit whose factor is 1; `None` if the unit is not
/// listed.
pub(crate) fn in_units(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = split(text)?;
    units.iter().find(|u| u.0 == unit).map(|u| number * u.1)
}

pub(crate) fn watts(text: &str) -> Option<f64> {
    let (current, volts) = text.split_once(" at ")?;
    Some(in_units(current, CURRENTS)? * in_units(volts, &[("mV", 1e-3), ("V", 1.0)])?)
}

pub(crate) fn rate(text: &str) -> Option<f64> {
    if let Some(rest) = text.trim().strip_prefix("PCIe") {
        let (generation, lanes) = rest.split_once('x')?;
        let generation: usize = generation.trim().trim_end_matches(".0").parse().ok()?;
        let lanes: u64 = lanes.trim().parse().ok().filter(|l| [1, 2, 4, 8, 12, 16, 32].contains(l))?;
        return Some((PCIE_LANE_BYTES_PER_S.get(generation.checked_sub(1)?)? * lanes) as f64);
    }
    if let Some((transfers, width)) = text.rsplit_once('x') {
        let bits: u32 = width.trim().parse().ok().filter(|w| (1..=2048).contains(w))?;
        return Some(in_units(transfers, TRANSFERS)? * f64::from(bits) / 8.0);
    }
    in_units(text, RATES)
}

pub(crate) fn list(units: &[(&str, f64)]) -> String {
    units.iter().map(|u| u.0).filter(|u| u.is_ascii()).collect::<Vec<_>>().join(", ")
}

/// Formats a size in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{} {unit}", bytes / factor);
        }
    }
    format!("{bytes} B")
}

/// Formats a number in the largest of these units, a factor of 1000 apart, that leaves a digit before the point.
pub(crate) fn show_decimal(x: f64, units: &[&str]) -> String {
    let mut x = x;
    let mut unit = 0;
    while x >= 1000.0 && unit + 1 < units.len() {
        x /= 1000.0;
        unit += 1;
    }
    format!("{} {}", (x * 1e6).round() / 1e6, units[unit])
}

/// Formats a data rate with a unit from B/s to TB/s.
pub(crate) fn show_rate(bytes_per_s: u64) -> String {
    show_decimal(bytes_per_s as f64, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}
