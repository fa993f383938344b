//! Errors of cells beside exact sums: failures of code words, numbers of retries, endurance of blocks, and injected
//! faults in any nesting.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{Rig, at, device};
use crate::describe::Description;
use crate::flash::fault::{BitErrors, DeadDie, SlowDie};
use crate::flash::reliability::{codeword_failure, rber};
use crate::flash::{Cells, NandCells, OpOutcome, Verdict};
use nandarray_sim::Ps;

fn close(what: &str, got: f64, want: f64, off: f64) {
    assert!((got - want).abs() <= off * want.abs() + 1e-300, "{what}: {got} instead of {want}");
}

#[test]
fn small_code_words_fail_as_their_combinations_say() {
    let mut chance = Rng::with_seed(1);
    for _ in 0..1_500 {
        let (n, p) = (chance.u32(1..60), [1e-6, 1e-3, 0.1, 0.3, 0.499, 0.5][chance.usize(0..6)]);
        let t = chance.u32(0..n + 2);
        let (mut ways, mut sum) = (1_u128, 0.0);
        for k in 0..=n {
            if k > t {
                sum += ways as f64 * f64::powi(p, k as i32) * f64::powi(1.0 - p, (n - k) as i32);
            }
            ways = ways * u128::from(n - k) / u128::from(k + 1);
        }
        // The lower tail is subtracted from 1 where most of the distribution lies above.
        let off = if f64::from(n) * p > f64::from(t) + 1.0 { 1e-9 + 1e-13 / sum.max(1e-300) } else { 1e-9 };
        close(&format!("{n} bits, {t} corrected, {p}"), codeword_failure(n.into(), t, p), sum, off);
    }
}

#[test]
fn large_code_words_fail_as_their_logarithms_say() {
    let mut chance = Rng::with_seed(2);
    for _ in 0..60 {
        let n = [4_096_u32, 8_192, 16_384][chance.usize(0..3)];
        let (t, p) = (chance.u32(0..200), 10f64.powf(-1.5 - 3.0 * chance.f64()));
        let ln = |k: f64| libm::lgamma(k + 1.0);
        let pmf = |k: u32| {
            let (n, k) = (f64::from(n), f64::from(k));
            (ln(n) - ln(k) - ln(n - k) + k * p.ln() + (n - k) * (-p).ln_1p()).exp()
        };
        // Terms that matter: up to twenty standard deviations above the mean, or above `t`.
        let mean = f64::from(n) * p;
        let last = (mean + 20.0 * mean.sqrt() + 50.0).max(f64::from(t) + 200.0).min(f64::from(n)) as u32;
        let sum: f64 = (t + 1..=last).map(pmf).sum();
        close(&format!("{n} bits, {t} corrected, {p}"), codeword_failure(n.into(), t, p), sum, 1e-6);
    }
    for (bits, correctable, p) in [(8, 8, 0.5), (8, 9, 0.5), (8_192, 40, 0.0), (8_192, 40, -1.0)] {
        assert_eq!(codeword_failure(bits, correctable, p), 0.0, "{bits} bits, {correctable} corrected, {p}");
    }
    assert_eq!(codeword_failure(524_288, 0, 0.5), 1.0);
}

#[test]
fn error_rates_are_the_sum_of_their_terms_up_to_a_half() {
    let mut chance = Rng::with_seed(3);
    for _ in 0..500 {
        let mut of = device(&[]).reliability;
        let mut exponent = || if chance.bool() { 0.0 } else { 3.0 * chance.f64() };
        [of.rber_cycles_exp, of.rber_retention_cycles_exp, of.rber_retention_days_exp] =
            [exponent(), exponent(), exponent()];
        [of.rber_reads_cycles_exp, of.rber_reads_exp] = [exponent(), exponent()];
        let mut factor = || if chance.bool() { 0.0 } else { 10f64.powf(-14.0 * chance.f64()) };
        [of.rber_base, of.rber_cycles, of.rber_retention, of.rber_reads] = [factor(), factor(), factor(), factor()];
        of.retention_days = f64::from(chance.u32(0..400));
        let (cycles, reads) = (f64::from(chance.u32(0..5_000)), f64::from(chance.u32(0..100_000)));
        let all = of.rber_base
            + of.rber_cycles * cycles.powf(of.rber_cycles_exp)
            + of.rber_retention
                * cycles.powf(of.rber_retention_cycles_exp)
                * of.retention_days.powf(of.rber_retention_days_exp)
            + of.rber_reads * cycles.powf(of.rber_reads_cycles_exp) * reads.powf(of.rber_reads_exp);
        close("the rate", rber(&of, cycles, reads), all.min(0.5), 1e-12);
    }
    // A term without a coefficient is 0, whatever its powers are.
    let mut of = device(&[]).reliability;
    (of.rber_reads_exp, of.rber_cycles_exp) = (10.0, 10.0);
    assert_eq!(rber(&of, f64::MAX, f64::MAX), 0.0);
}

/// Returns a device whose code words of 1 KiB correct 40 bits.
fn worn(base: &str, retries: &str, factor: &str) -> Description {
    device(&[
        ("reliability.rber_base", base),
        ("reliability.ecc_codeword_size", "1 KiB"),
        ("reliability.ecc_correctable_bits", "40"),
        ("reliability.read_retries_max", retries),
        ("reliability.read_retry_rber_factor", factor),
    ])
}

#[test]
fn pages_need_as_many_retries_as_their_attempts_fail() {
    let d = worn("0.0048", "3", "0.9");
    let mut cells = NandCells::new(&d, 9);
    let reads = 30_000;
    let mut needed = [0_u32; 5];
    for _ in 0..reads {
        let verdict = cells.read(Ps::ZERO, at(0, 0, 0, 0), 4_096);
        needed[if verdict.lost { 4 } else { usize::from(verdict.retries) }] += 1;
        assert!(!verdict.lost || verdict.retries == 3, "a page is given up after the last retry: {verdict:?}");
    }
    assert!(needed.iter().all(|&n| n > 0), "{needed:?}");
    let mut at_least = reads;
    for attempt in 0..4 {
        at_least -= needed[attempt];
        // The table has eight rates an octave.
        let fails = |octaves: f64| {
            let rate = 0.0048 * 0.9f64.powi(attempt as i32) * octaves.exp2();
            1.0 - (1.0 - codeword_failure(8_192, 40, rate)).powi(4)
        };
        let share = f64::from(at_least) / f64::from(reads);
        let (low, high) = (fails(-0.125) - 0.01, fails(0.125) + 0.01);
        assert!((low..high).contains(&share), "{share} fail {} attempts, not {low} to {high}", attempt + 1);
    }
}

/// A page that needs more than 255 retries is read again as often as it needs; the number does not wrap.
#[test]
fn a_page_may_need_hundreds_of_retries() {
    let d = worn("0.4", "400", "0.985");
    let mut rig = Rig::new(&d);
    rig.read(at(0, 0, 0, 0), 4_096);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Done);
    let rate = |attempt: i32| 0.4 * 0.985f64.powi(attempt);
    let last_that_fails = (0..400).rev().find(|&n| codeword_failure(8_192, 40, rate(n)) > 0.999).unwrap();
    let first_that_reads = (0..400).find(|&n| codeword_failure(8_192, 40, rate(n)) < 0.001).unwrap();
    let retries = rig.flash.counts().retries;
    // A table step of an eighth of an octave is six attempts.
    let range = last_that_fails as u64 - 6..=first_that_reads as u64 + 6;
    assert!(retries > 255 && range.contains(&retries), "{retries} retries, expected {range:?}");
    assert_eq!(rig.flash.counts().senses[0], retries + 1);
    // With fewer allowed, the page is lost after all of them.
    let mut rig = Rig::new(&worn("0.4", "260", "0.999"));
    rig.read(at(0, 0, 0, 0), 4_096);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Uncorrectable);
    assert_eq!((rig.flash.counts().retries, rig.flash.counts().uncorrectable), (260, 1));
}

#[test]
fn every_block_has_an_endurance_of_its_own() {
    let d = device(&[("nand.endurance_cycles", "6"), ("reliability.cycles_before", "2")]);
    let mut cells = NandCells::new(&d, 1);
    let mut erases: BTreeMap<_, u32> = BTreeMap::new();
    let mut chance = Rng::with_seed(4);
    for _ in 0..600 {
        let place = at(chance.u32(0..3), chance.u16(0..2), [0, 1, 2_047][chance.usize(0..3)], chance.u16(0..256));
        let block = erases.entry((place.die, place.plane, place.block)).or_insert(2);
        *block += 1;
        assert_eq!(cells.erased(Ps::ZERO, place), *block <= 6, "erase {block} of {place:?}");
    }
    assert_eq!(erases.len(), 18);
}

#[test]
fn bad_blocks_do_not_depend_on_who_asks_first() {
    let d = device(&[("reliability.factory_bad_ppm", "30000"), ("reliability.grown_bad_ppm", "200000")]);
    let blocks: Vec<(u32, u32, u32)> = (0..4_000).map(|n| (n % 64, n / 64 % 2, n * 7 % 2_048)).collect();
    let (a, mut b) = (NandCells::new(&d, 8), NandCells::new(&d, 8));
    let bad = |cells: &NandCells| -> Vec<bool> {
        blocks.iter().map(|&(die, plane, block)| cells.is_factory_bad(die, plane, block)).collect()
    };
    let first = bad(&a);
    let failed = (0..1_000).filter(|_| !b.programmed(Ps::ZERO, at(0, 0, 0, 0))).count();
    assert!((150..250).contains(&failed), "{failed} of 1,000 programs failed, asked for 20 %");
    assert_eq!(bad(&b), first, "operations do not move bad blocks");
    let none = NandCells::new(&device(&[]), 8);
    assert!(bad(&none).iter().all(|bad| !bad));
    let most = NandCells::new(&device(&[("reliability.factory_bad_ppm", "500000")]), 8);
    let half = bad(&most).iter().filter(|bad| **bad).count();
    assert!((1_850..2_150).contains(&half), "{half} of 4,000 blocks are bad, asked for half");
}

#[test]
fn faults_are_the_same_in_any_nesting() {
    let d = device(&[("reliability.read_retries_max", "4"), ("reliability.t_read_retry", "11 us")]);
    let (from, bad, late) = (Ps::from_ms(3), at(2, 1, 7, 0), Ps::from_ms(9));
    let slow = |c: Box<dyn Cells>| -> Box<dyn Cells> { Box::new(SlowDie::new(c, 2, from, 250)) };
    let dead = |c: Box<dyn Cells>| -> Box<dyn Cells> { Box::new(DeadDie::new(c, 2, late)) };
    let errors =
        |c: Box<dyn Cells>| -> Box<dyn Cells> { Box::new(BitErrors::new(c, bad, Verdict { retries: 3, lost: false })) };
    let more = |c: Box<dyn Cells>| -> Box<dyn Cells> {
        Box::new(BitErrors::new(c, at(2, 1, 7, 99), Verdict { retries: 1, lost: true }))
    };
    type Wrap<'a> = &'a dyn Fn(Box<dyn Cells>) -> Box<dyn Cells>;
    let orders: [[Wrap<'_>; 3]; 4] =
        [[&slow, &dead, &errors], [&errors, &slow, &dead], [&dead, &slow, &errors], [&slow, &errors, &dead]];
    for (number, order) in orders.iter().enumerate() {
        let plain: Box<dyn Cells> = Box::new(NandCells::new(&d, 1));
        let mut cells = order.iter().fold(plain, |cells, wrap| wrap(cells));
        for (now_ms, die, block) in [(2, 2, 7), (3, 2, 7), (8, 2, 6), (9, 2, 6), (9, 1, 7), (2, 2, 8), (4, 3, 7)] {
            let (now, place) = (Ps::from_ms(now_ms), at(die, 1, block, 5));
            let slower = |us: u64| if die == 2 && now >= from { Ps(us * 2_500_000) } else { Ps::from_us(us) };
            let what = format!("order {number}, {place:?} at {now}");
            assert_eq!(cells.t_sense(now, place, 0), slower(75), "{what}");
            assert_eq!(cells.t_program(now, place), slower(750), "{what}");
            assert_eq!(cells.t_erase(now, place), slower(3_800), "{what}");
            assert_eq!(cells.t_sense(now, place, 3), slower(86), "{what}");
            let is_dead = die == 2 && now >= late;
            assert_eq!(cells.programmed(now, place), !is_dead, "{what}");
            assert_eq!(cells.erased(now, place), !is_dead, "{what}");
            assert_eq!(cells.read(now, place, 512).lost, is_dead, "{what}");
            if !is_dead {
                let retries = if (die, block) == (2, 7) { 3 } else { 0 };
                assert_eq!(cells.read(now, place, 512), Verdict { retries, lost: false }, "{what}");
            }
        }
    }
    // Of two faults of one block, the page needs the retries of both's most, and is lost if either loses it.
    let mut cells = more(errors(Box::new(NandCells::new(&d, 1))));
    assert_eq!(cells.read(Ps::ZERO, bad, 512), Verdict { retries: 3, lost: true });
    assert_eq!(cells.read(Ps::ZERO, at(2, 0, 7, 0), 512), Verdict::GOOD, "another plane's block");
}
