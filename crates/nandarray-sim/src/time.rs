//! Modelled time: integer picoseconds since the device was switched on.
//!
//! Picoseconds, so that a byte on a 3,600 MT/s bus (278 ps) is not rounded to nothing (MQSim's nanoseconds make any bus
//! above 1,000 MT/s free); 2^64 of them are 213 days, and arithmetic that leaves that range panics in every build.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in modelled time, or a length of it, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Ps(pub u64);

impl Ps {
    /// Time zero, or a duration of zero.
    pub const ZERO: Self = Self(0);
    /// The latest time that can be represented.
    pub const MAX: Self = Self(u64::MAX);

    /// Converts from nanoseconds.
    ///
    /// # Panics
    /// If the time exceeds 213 days.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.checked_mul(1_000).expect("modelled time within 213 days"))
    }

    /// Converts from microseconds.
    ///
    /// # Panics
    /// If the time exceeds 213 days.
    pub const fn from_us(us: u64) -> Self {
        Self(us.checked_mul(1_000_000).expect("modelled time within 213 days"))
    }

    /// Converts from milliseconds.
    ///
    /// # Panics
    /// If the time exceeds 213 days.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.checked_mul(1_000_000_000).expect("modelled time within 213 days"))
    }

    /// Converts from seconds, rounded to the nearest picosecond.
    ///
    /// # Panics
    /// If `s` is negative, not a number, or beyond 213 days.
    pub fn from_seconds(s: f64) -> Self {
        let ps = (s * 1e12).round();
        assert!((0.0..u64::MAX as f64).contains(&ps), "{s} s is no modelled time");
        Self(ps as u64)
    }

    /// Converts to seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Converts to microseconds.
    pub fn us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time that `bytes` take at a rate of `bytes_per_s`, rounded up to a picosecond.
    ///
    /// # Panics
    /// If the rate is 0, or the time exceeds 213 days.
    pub fn of_bytes(bytes: u64, bytes_per_s: u64) -> Self {
        assert!(bytes_per_s > 0, "a rate of 0 B/s");
        // Up to 18 MB one 64-bit division is enough, which covers all hot paths.
        if let Some(scaled) = bytes.checked_mul(1_000_000_000_000) {
            return Self(scaled.div_ceil(bytes_per_s));
        }
        let ps = (u128::from(bytes) * 1_000_000_000_000).div_ceil(u128::from(bytes_per_s));
        Self(u64::try_from(ps).expect("a transfer within 213 days"))
    }

    /// Returns the time from `other` to `self`; zero if `self` is earlier.
    pub fn since(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Ps {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.checked_add(other.0).expect("modelled time within 213 days"))
    }
}

impl AddAssign for Ps {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Ps {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).expect("modelled time does not run backwards"))
    }
}

impl Mul<u64> for Ps {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.checked_mul(n).expect("modelled time within 213 days"))
    }
}

impl Sum for Ps {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Ps {
    /// Writes the time in the largest unit in which its value is at least 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.0 as f64;
        match self.0 {
            0 => write!(f, "0 s"),
            1..1_000 => write!(f, "{ps} ps"),
            1_000..1_000_000 => write!(f, "{} ns", ps / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{} us", ps / 1e6),
            1_000_000_000..1_000_000_000_000 => write!(f, "{} ms", ps / 1e9),
            _ => write!(f, "{} s", ps / 1e12),
        }
    }
}

#[cfg(test)]
mod tests;
