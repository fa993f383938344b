//! Units, rates and texts of times, compared with 128-bit arithmetic; arithmetic beyond the range panics.

use proptest::prelude::*;

use super::*;

#[test]
fn units_and_rates() {
    assert_eq!(Ps::from_us(75) + Ps::from_ns(20), Ps(75_020_000));
    assert_eq!(Ps::of_bytes(8_192, 666_666_667), Ps(12_288_000));
    assert_eq!(Ps::of_bytes(1, 3_600_000_000), Ps(278));
    assert_eq!(Ps::from_seconds(1e-6), Ps::from_us(1));
    assert_eq!(Ps::from_us(1_500).to_string(), "1.5 ms");
}

#[test]
#[should_panic(expected = "backwards")]
fn time_does_not_run_backwards() {
    let _ = Ps(1) - Ps(2);
}

/// The picoseconds of a transfer by 128-bit arithmetic, rounded up; `None` beyond the range of times.
fn slowly(bytes: u64, bytes_per_s: u64) -> Option<u64> {
    let exact = u128::from(bytes) * 1_000_000_000_000;
    let whole = exact / u128::from(bytes_per_s);
    u64::try_from(whole + u128::from(whole * u128::from(bytes_per_s) < exact)).ok()
}

proptest! {
    #[test]
    fn transfers_round_up_on_both_sides_of_64_bits(
        bytes in prop_oneof![0u64..4_096, 18_446_743u64..18_446_747, any::<u64>()],
        rate in prop_oneof![1u64..100, 999_999_999u64..1_000_000_002, any::<u64>().prop_map(|rate| rate.max(1))],
    ) {
        let found = std::panic::catch_unwind(|| Ps::of_bytes(bytes, rate)).ok().map(|time| time.0);
        prop_assert_eq!(found, slowly(bytes, rate), "{} B at {} B/s", bytes, rate);
    }

    #[test]
    fn sums_and_differences_are_those_of_wide_integers(a: u64, b: u64, n in 0u64..9) {
        let checked = |wide: i128| u64::try_from(wide).ok().map(Ps);
        let [wide_a, wide_b] = [a, b].map(i128::from);
        let of = |work: fn(Ps, Ps, u64) -> Ps| std::panic::catch_unwind(|| work(Ps(a), Ps(b), n)).ok();
        prop_assert_eq!(of(|a, b, _| a + b), checked(wide_a + wide_b));
        prop_assert_eq!(of(|a, b, _| a - b), checked(wide_a - wide_b));
        prop_assert_eq!(of(|a, _, n| a * n), checked(wide_a * i128::from(n)));
        prop_assert_eq!(of(|a, b, _| [a, b, a].into_iter().sum()), checked(2 * wide_a + wide_b));
        prop_assert_eq!(Ps(a).since(Ps(b)), checked((wide_a - wide_b).max(0)).unwrap());
    }

    /// A text has the largest unit of which there is at least one, and reads back as the same time, as far as a double
    /// tells picoseconds apart.
    #[test]
    fn a_text_reads_back(shift in 12u32..64, low: u64) {
        let time = Ps(low >> shift);
        let text = time.to_string();
        let (number, unit) = text.split_once(' ').unwrap();
        let ps = match unit { "ps" => 1.0, "ns" => 1e3, "us" => 1e6, "ms" => 1e9, "s" => 1e12, _ => panic!("{text}") };
        let number: f64 = number.parse().unwrap();
        let read = (number * ps).round() as u64;
        prop_assert!(read.abs_diff(time.0) <= time.0 >> 51, "{}: {} for {}", text, read, time.0);
        prop_assert!(time.0 == 0 || number >= 1.0 && (unit == "s" || number < 1_000.0), "{}", text);
    }
}

#[test]
fn times_beyond_213_days_panic_with_their_range() {
    let said = |work: fn() -> Ps| *std::panic::catch_unwind(work).unwrap_err().downcast::<String>().unwrap();
    for work in [
        || Ps::from_ns(u64::MAX / 1_000 + 1),
        || Ps::from_us(u64::MAX / 1_000_000 + 1),
        || Ps::from_ms(u64::MAX / 1_000_000_000 + 1),
        || Ps::MAX + Ps(1),
    ] {
        let found = std::panic::catch_unwind(work).unwrap_err();
        let text = found.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| found.downcast_ref::<String>().cloned()).unwrap();
        assert!(text.contains("modelled time within 213 days"), "{text}");
    }
    assert_eq!(Ps::from_ns(u64::MAX / 1_000).0, u64::MAX / 1_000 * 1_000, "the last one fits");
    assert!(said(|| Ps::from_seconds(-1.0)).contains("-1 s is no modelled time"));
    assert!(said(|| Ps::from_seconds(f64::NAN)).contains("NaN s is no modelled time"));
    assert!(said(|| Ps::from_seconds(1.9e7)).contains("19000000 s is no modelled time"));
    assert_eq!(Ps::from_seconds(-0.4e-12), Ps::ZERO, "rounded first");
}
