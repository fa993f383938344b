//! Numbers in the text of a report are read again: three significant digits, the right prefix, no number lost.

use fastrand::Rng;

use super::*;
use crate::report::{Latency, ManagementReport, Promise, SCHEMA, WearReport};

/// Reads a number with a prefix.
fn read(text: &str) -> f64 {
    let (number, prefix) = text.trim_end().rsplit_once(' ').unwrap_or((text.trim_end(), ""));
    let of = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9)];
    let factor = of.iter().find(|(name, _)| *name == prefix).unwrap_or_else(|| panic!("{text:?}")).1;
    number.parse::<f64>().unwrap_or_else(|e| panic!("{text:?}: {e}")) * factor
}

#[test]
fn numbers_have_three_digits_and_a_prefix() {
    for (n, text) in [
        (0.0, "0 "),
        (1.0, "1.00 "),
        (9.994, "9.99 "),
        (9.996, "10.0 "),
        (99.94, "99.9 "),
        (99.96, "100 "),
        (999.4, "999 "),
        (999.6, "1.00 k"),
        (1_000.0, "1.00 k"),
        (999_499.0, "999 k"),
        (999_500.0, "1.00 M"),
        (45_600_000.0, "45.6 M"),
        (7.05e9, "7.05 G"),
        (1.5e15, "1500 T"),
    ] {
        assert_eq!(scaled(n), text, "{n}");
    }
    let mut chance = Rng::with_seed(1);
    for _ in 0..5_000 {
        let n = 10f64.powf(15.0 * chance.f64() - 2.0);
        let text = scaled(n);
        // Numbers below 1 have two digits behind the point.
        assert!((read(&text) - n).abs() <= (0.005 * n).max(0.005), "{n} is written as {text}");
        let digits = text.chars().filter(char::is_ascii_digit).count();
        assert!(digits == 3 || n >= 999.5e12, "{n} is written as {text}");
        let small = 10f64.powf(12.0 * chance.f64() - 9.0);
        assert!((read(&scaled_small(small)) / small - 1.0).abs() <= 0.006, "{small}: {}", scaled_small(small));
    }
}

#[test]
fn spreads_are_the_mean_the_least_and_the_most() {
    assert_eq!((spread(&[]), spread(&[0.125])), ("-".into(), "12.5 %".into()));
    let mut chance = Rng::with_seed(2);
    for _ in 0..200 {
        let mut shares: Vec<f64> = (0..chance.usize(2..9)).map(|_| chance.f64()).collect();
        let text = spread(&shares);
        let numbers: Vec<f64> =
            text.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|n| n.parse().ok()).collect();
        shares.sort_by(f64::total_cmp);
        let want = [shares.iter().sum::<f64>() / shares.len() as f64, shares[0], shares[shares.len() - 1]];
        let off = numbers.iter().zip(want).map(|(got, want)| (got - want * 100.0).abs()).fold(0.0, f64::max);
        assert!(numbers.len() == 3 && off <= 0.051, "{text} of {shares:?}");
    }
}

/// A report with one operation whose figures are all different.
fn report(op: OpReport) -> Report {
    Report {
        schema: SCHEMA,
        device: "a device".into(),
        seed: 1,
        hash: String::new(),
        elapsed_s: 0.25,
        until_rest_s: 0.5,
        all: op.clone(),
        read: op,
        write: OpReport::default(),
        trim: OpReport::default(),
        flush: OpReport::default(),
        flash: Default::default(),
        management: None,
        utilisation: Default::default(),
        energy: Default::default(),
        idle_states: Vec::new(),
        promises: Vec::new(),
        programs: None,
        pace: None,
        notes: Vec::new(),
    }
}

#[test]
fn every_figure_of_an_operation_is_in_its_row() {
    let mut chance = Rng::with_seed(3);
    for _ in 0..300 {
        let mut us = || 0.1 + 1e5 * chance.f64();
        let latency = Latency {
            mean_us: us(),
            p50_us: us(),
            p99_us: us(),
            p99_9_us: us(),
            p99_99_us: us(),
            max_us: us(),
            ..Latency::default()
        };
        let (requests, failed) = (chance.u64(1..1 << 40), chance.u64(0..99));
        let (iops, bytes_per_s) = (10f64.powf(8.0 * chance.f64()), 10f64.powf(11.0 * chance.f64()));
        let op = OpReport { requests, failed, bytes: 1, iops, bytes_per_s, latency: Some(latency.clone()) };
        let text = report(op).to_string();
        assert!(text.starts_with(&format!("a device: {requests} requests in 0.250000 s, {failed} failed\n")), "{text}");
        let row = text.lines().find(|line| line.starts_with("read ")).unwrap_or_else(|| panic!("{text}"));
        let cells: Vec<&str> = row.split_whitespace().skip(1).collect();
        assert_eq!(cells[0], requests.to_string());
        // A number and its prefix are two cells.
        let joined =
            cells[1..].join(" ").replace(" k", "e3").replace(" M", "e6").replace(" G", "e9").replace("B/s", "");
        let numbers: Vec<f64> =
            joined.split_whitespace().map(|n| n.parse().unwrap_or_else(|e| panic!("{row}: {e}"))).collect();
        let l = latency;
        let want = [iops, bytes_per_s, l.mean_us, l.p50_us, l.p99_us, l.p99_9_us, l.p99_99_us, l.max_us];
        assert_eq!(numbers.len(), want.len(), "{row}");
        for (got, want) in numbers.into_iter().zip(want) {
            assert!((got - want).abs() <= (0.0051 * want).max(0.051), "{got} instead of {want} in {row}");
        }
        assert!(!text.contains("write ") && !text.contains("trim "), "operations without requests have no row: {text}");
    }
}

#[test]
fn parts_promises_and_wear_are_told_where_there_are_any() {
    let mut r = report(OpReport::default());
    assert!(!r.to_string().contains("write amplification"), "a device that was not written amplifies nothing");
    let wear = WearReport { min: 3, mean: 4.5, max: 9, beyond_endurance: 0 };
    r.management = Some(ManagementReport { write_amplification: Some(2.0), wear, ..ManagementReport::default() });
    r.energy.sense_j = 0.75;
    r.energy.link_j = 0.246;
    r.energy.ecc_j = 0.004;
    r.energy.device_j = 1.0;
    r.energy.device_w = 2.0;
    let (what, unit) = ("random 4 KiB read", "IOPS");
    let promise = Promise { what, unit, promised: 500_000.0, measured: 450_000.0, ratio: 0.9, claimed: true };
    r.promises = vec![promise];
    r.notes = vec!["a remark".into()];
    let text = r.to_string();
    for part in [
        "write amplification 2.000; erases a block 3 to 9, on average 4.50\n",
        "energy  1.00 J, 2.00 W; sensing 75 %; link 25 %\n",
        "random 4 KiB read: 450 kIOPS, data sheet 500 kIOPS (-10.0 %)\n",
        "note: a remark\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
