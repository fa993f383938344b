//! Errors, retries, bad blocks, and faults as wrappers.

use super::{Rig, at, device};
use crate::describe::{Description, Reliability};
use crate::flash::fault::{BitErrors, DeadDie, SlowDie};
use crate::flash::reliability::{codeword_failure, rber};
use crate::flash::{NandCells, OpCause, OpKind, OpOutcome, Verdict};
use nandarray_sim::Ps;

#[test]
fn the_tail_of_a_binomial() {
    // Compared with sums made by hand: 1 - (1-p)^n, and the sum for four bits.
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} instead of {b}");
    close(codeword_failure(8_192, 0, 1e-6), 1.0 - (1.0 - 1e-6f64).powi(8_192));
    close(codeword_failure(4, 1, 0.1), 6.0 * 0.01 * 0.81 + 4.0 * 0.001 * 0.9 + 0.0001);
    close(codeword_failure(4, 2, 0.5), 5.0 / 16.0);
    // 72 bits in 1 KiB: from never to always within a factor of four of the rate (as data sheets draw it).
    assert!(codeword_failure(8_192, 72, 3e-3) < 1e-12);
    assert!(codeword_failure(8_192, 72, 1.2e-2) > 0.99);
    assert_eq!(codeword_failure(8_192, 72, 0.0), 0.0);
    let mut last = 0.0;
    for i in 0..200 {
        let now = codeword_failure(8_192, 40, 1e-4 * 1.03f64.powi(i));
        assert!(now >= last && now <= 1.0);
        last = now;
    }
}

fn mlc_2y() -> Reliability {
    // SimpleSSD 2.1, "2y-nm MLC".
    Reliability {
        rber_base: 8.34e-5,
        rber_cycles: 3.30e-11,
        rber_cycles_exp: 1.71,
        rber_retention: 5.56e-19,
        rber_retention_cycles_exp: 2.49,
        rber_retention_days_exp: 3.33,
        rber_reads: 6.26e-13,
        rber_reads_cycles_exp: 1.76,
        rber_reads_exp: 0.47,
        ..device(&[]).reliability
    }
}

#[test]
fn the_raw_error_rate_of_a_worn_block() {
    let mut of = mlc_2y();
    of.retention_days = 30.0;
    let (c, r): (f64, f64) = (3_000.0, 10_000.0);
    let want = 8.34e-5
        + 3.30e-11 * c.powf(1.71)
        + 5.56e-19 * c.powf(2.49) * 30f64.powf(3.33)
        + 6.26e-13 * c.powf(1.76) * r.powf(0.47);
    assert!((rber(&of, c, r) / want - 1.0).abs() < 1e-12);
    assert_eq!(rber(&of, 0.0, 0.0), 8.34e-5);
}

/// Returns a device whose code words of 1 KiB fail with a probability that follows from this raw bit-error rate.
fn failing(rate: &'static str, retries: &'static str) -> Description {
    device(&[
        ("reliability.rber_base", rate),
        ("reliability.ecc_codeword_size", "1 KiB"),
        ("reliability.ecc_correctable_bits", "40"),
        ("reliability.t_read_retry", "25 us"),
        ("reliability.read_retries_max", retries),
        ("reliability.read_retry_rber_factor", "0.8"),
    ])
}

#[test]
fn pages_fail_as_often_as_their_code_words_say() {
    let d = failing("0.004", "0");
    let mut rig = Rig::new(&d);
    let reads = 40_000;
    let mut lost = 0;
    for n in 0..reads {
        rig.read(at(n % 64, 0, n / 64 % 2_048, 0), 8_192);
    }
    loop {
        let ended = rig.step();
        if ended.is_empty() {
            break;
        }
        lost += ended.iter().filter(|(_, e)| e.outcome == OpOutcome::Uncorrectable).count();
    }
    // The table has eight rates per octave, so the probability lies between those of the neighbouring rates.
    let page = |rate: f64| 1.0 - (1.0 - codeword_failure(8_192, 40, rate)).powi(8);
    let (low, high) = (page(0.004 * (-1.0f64 / 8.0).exp2()), page(0.004 * (1.0f64 / 8.0).exp2()));
    let share = lost as f64 / f64::from(reads);
    assert!((low..high).contains(&share), "{share} of pages lost, not between {low} and {high}");
    assert_eq!(rig.flash.counts().uncorrectable, lost as u64);
}

#[test]
fn a_retry_senses_and_transfers_again() {
    let d = failing("0", "3");
    let cells = BitErrors::new(NandCells::new(&d, 1), at(0, 0, 7, 0), Verdict { retries: 2, lost: false });
    let mut rig = Rig::with_cells(&d, Box::new(cells));
    rig.read(at(0, 0, 7, 5), 8_192);
    let once_ns = 290 + 75_020 + 30 + 24_576;
    assert_eq!(rig.finish()[0].0 / 1_000, once_ns * 3 + 2 * 25_000);
    let counts = rig.flash.counts();
    assert_eq!((counts.retries, counts.senses[0], counts.codewords[0]), (2, 3, 24));
    assert_eq!((counts.read_bytes[0], counts.out_bus_bytes[0]), (8_192, 3 * 8_192));
    // Other blocks are as they were.
    let cells = BitErrors::new(NandCells::new(&d, 1), at(0, 0, 7, 0), Verdict { retries: 0, lost: true });
    let mut rig = Rig::with_cells(&d, Box::new(cells));
    rig.read(at(0, 0, 7, 5), 8_192);
    rig.read(at(0, 0, 8, 5), 8_192);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Uncorrectable);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Done);
}

#[test]
fn reads_wear_a_block_until_it_is_erased() {
    let mut d = failing("0", "0");
    d.reliability = Reliability {
        rber_base: 0.0,
        cycles_before: 3_000,
        rber_reads: 8.0e-11,
        ecc_codeword_bytes: 1_024,
        ecc_correctable_bits: 40,
        ..mlc_2y()
    };
    d.reliability.rber_cycles = 0.0;
    d.reliability.rber_retention = 0.0;
    let mut rig = Rig::new(&d);
    let lost_of = |rig: &mut Rig, reads: u32| {
        let mut lost = 0;
        for _ in 0..reads {
            rig.read(at(0, 0, 0, 0), 4_096);
            lost += u32::from(rig.step()[0].1.outcome != OpOutcome::Done);
        }
        lost
    };
    assert_eq!(lost_of(&mut rig, 100), 0);
    assert!(lost_of(&mut rig, 20_000) > 5_000);
    rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 0, 0), 0);
    rig.step();
    assert_eq!(lost_of(&mut rig, 100), 0);
}

#[test]
fn factory_bad_blocks_are_where_the_seed_says() {
    let d = device(&[("reliability.factory_bad_ppm", "10000")]);
    let bad = |seed| {
        let flash = crate::flash::Backend::new(&d, seed, None);
        let mut bad = Vec::new();
        for die in 0..64 {
            bad.extend((0..2_048).filter(|&b| flash.is_factory_bad(die, die & 1, b)).map(|b| (die, b)));
        }
        bad
    };
    let one = bad(1);
    assert!((1_100..1_550).contains(&one.len()), "{} of 131,072 blocks are bad, asked for 1 %", one.len());
    assert_eq!(one, bad(1));
    assert_ne!(one, bad(2));
}

#[test]
fn blocks_go_bad_as_often_as_described() {
    let mut rig = Rig::new(&device(&[("reliability.grown_bad_ppm", "100000")]));
    let mut failed = 0;
    for n in 0..5_000 {
        rig.program(at(n % 64, 0, n / 64, 0));
    }
    loop {
        let ended = rig.step();
        if ended.is_empty() {
            break;
        }
        failed += ended.iter().filter(|(_, e)| e.outcome == OpOutcome::Failed).count();
    }
    assert!((420..580).contains(&failed), "{failed} of 5,000 failed, asked for 10 %");
}

#[test]
fn a_block_lasts_as_long_as_described() {
    let mut rig = Rig::new(&device(&[("nand.endurance_cycles", "5"), ("reliability.cycles_before", "2")]));
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 9, 0), 0);
        outcomes.push(rig.step()[0].1.outcome);
    }
    assert_eq!(outcomes, [OpOutcome::Done, OpOutcome::Done, OpOutcome::Done, OpOutcome::Failed]);
}

#[test]
fn a_slow_die_is_slow_and_a_dead_one_fails() {
    let d = device(&[]);
    let cells = SlowDie::new(NandCells::new(&d, 1), 3, Ps::from_us(500), 300);
    let cells = DeadDie::new(cells, 4, Ps::ZERO);
    let mut rig = Rig::with_cells(&d, Box::new(cells));
    rig.read(at(3, 0, 0, 0), 4_096);
    let fast = rig.step()[0].0;
    assert_eq!(fast.0 / 1_000, 290 + 75_020 + 30 + 12_288);
    rig.until(Ps::from_us(600));
    rig.read(at(3, 0, 0, 0), 4_096);
    assert_eq!(rig.step()[0].0, Ps::from_us(600) + fast + Ps::from_us(150));
    rig.read(at(4, 0, 0, 0), 4_096);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Uncorrectable);
    rig.program(at(4, 0, 0, 0));
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Failed);
    rig.submit(OpKind::Erase, OpCause::Gc, at(4, 0, 0, 0), 0);
    assert_eq!(rig.step()[0].1.outcome, OpOutcome::Failed);
}
