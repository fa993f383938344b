//! Laws of conservation of any run: busy times of buses and dies are the counts of commands, pages and suspensions
//! times the description's times, exactly; energy is the counts times the energy of each; and an account that breaks a
//! law is refused with its numbers.

use proptest::prelude::*;

use super::invariants::{Outcomes, asks, devices, run};
use super::{Rig, at, device};
use crate::describe::Description;
use crate::flash::account::Imbalance;
use crate::flash::{FlashAccount, OpCause, OpKind};
use nandarray_sim::Ps;

fn total(counts: [u64; 4]) -> u64 {
    counts.iter().sum()
}

/// Returns the time of a transfer of `bytes` bytes of a page, with their share of its spare bytes.
fn transfer(d: &Description, bytes: u64) -> (u64, Ps) {
    let (page, spare) = (u64::from(d.geometry.page_bytes), u64::from(d.geometry.spare_bytes));
    let with_spare = if d.bus.transfers_spare { bytes + (bytes * spare).div_ceil(page) } else { bytes };
    (with_spare, Ps::of_bytes(with_spare, d.bus.bytes_per_s))
}

fn buses_carry_what_was_counted(d: &Description, account: &FlashAccount) -> Result<(), TestCaseError> {
    let c = &account.counts;
    let sum = |of: fn(&crate::flash::BusTime) -> Ps| account.channels.iter().map(of).sum::<Ps>();
    let (senses, sense_commands) = (total(c.senses), total(c.sense_commands));
    let (erases, erase_commands) = (total(c.erases), total(c.erase_commands));
    let commands = d.bus.t_read_command * sense_commands
        + d.bus.t_read_further_plane * (senses - sense_commands)
        + d.bus.t_erase_command * erase_commands
        + d.bus.t_erase_further_plane * (erases - erase_commands)
        + d.bus.t_suspend_command * (c.program_suspends + c.erase_suspends + c.resumes);
    prop_assert_eq!(sum(|t| t.command), commands, "command cycles");
    // Reads are of half a page or of a whole one: the two numbers follow from pages and bytes.
    let ((half, t_half), (whole, t_whole)) = (transfer(d, 4_096), transfer(d, 8_192));
    let halves = (senses * whole - total(c.out_bus_bytes)) / (whole - half);
    let out = d.bus.t_data_out_command * senses + t_half * halves + t_whole * (senses - halves);
    prop_assert_eq!(sum(|t| t.data_out), out, "data of reads");
    let programs = total(c.programs);
    prop_assert_eq!(total(c.in_bus_bytes), programs * whole);
    if !d.nand.one_shot {
        let commands = total(c.program_commands);
        let further = d.bus.t_program_further_plane * (programs - commands);
        let data_in = d.bus.t_program_command * commands + further + t_whole * programs;
        prop_assert_eq!(sum(|t| t.data_in), data_in, "data of programs");
    }
    Ok(())
}

fn dies_work_as_long_as_was_counted(d: &Description, account: &FlashAccount) -> Result<(), TestCaseError> {
    let (c, nand) = (&account.counts, &d.nand);
    let sum = |of: fn(&crate::flash::DieTime) -> Ps| account.dies.iter().map(of).sum::<Ps>();
    let busy = nand.t_cache_read_busy.unwrap_or_default() * c.cache_reads;
    let once = (nand.t_read[0] + nand.t_ready) * total(c.sense_commands) + busy;
    let sense = sum(|t| t.sense);
    // Pages that are sensed again with others on their die's planes share one command's longer time.
    prop_assert!(sense >= once && sense <= once + d.reliability.t_read_retry * c.retries, "{sense} of {once}");
    if !nand.multi_plane {
        prop_assert_eq!(sense, once + d.reliability.t_read_retry * c.retries);
    }
    prop_assert_eq!(c.resumes, c.program_suspends + c.erase_suspends, "each suspended operation went on");
    let works = (nand.t_program[0] + nand.t_ready) * total(c.program_commands)
        + (nand.t_erase + nand.t_ready) * total(c.erase_commands)
        + nand.t_resume * c.resumes;
    prop_assert_eq!(sum(|t| t.program) + sum(|t| t.erase), works, "programs and erases");
    let suspends = nand.t_suspend_program.unwrap_or_default() * c.program_suspends
        + nand.t_suspend_erase.unwrap_or_default() * c.erase_suspends;
    prop_assert_eq!(sum(|t| t.suspend), suspends, "suspensions");
    Ok(())
}

fn energy_is_what_was_counted(d: &Description, account: &FlashAccount) -> Result<(), TestCaseError> {
    let (c, of, energy) = (&account.counts, &d.energy, &account.energy);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    for cause in OpCause::ALL {
        let i = cause as usize;
        let counted = [
            (c.senses, of.read_pj),
            (c.sense_commands, of.read_command_pj),
            (c.programs, of.program_pj),
            (c.program_commands, of.program_command_pj),
            (c.erases, of.erase_pj),
            (c.erase_commands, of.erase_command_pj),
            (c.out_bus_bytes, of.bus_pj_per_byte),
            (c.in_bus_bytes, of.bus_pj_per_byte),
            (c.codewords, of.ecc_pj),
        ];
        let want: f64 = counted.iter().map(|(n, pj)| n[i] as f64 * pj).sum();
        prop_assert!(near(energy.by_cause_pj[i], want), "{cause:?}: {} pJ instead of {want}", energy.by_cause_pj[i]);
    }
    let busy: Ps = account.dies.iter().map(crate::flash::DieTime::total).sum();
    let idle_us = account.elapsed.us() * account.dies.len() as f64 - busy.us();
    prop_assert!((energy.idle_pj - of.die_idle_uw * idle_us).abs() <= 1e-6 * energy.idle_pj + 1e-3);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn time_bytes_and_energy_are_conserved(description in devices(), asks in asks()) {
        let kinds = [&description.nand.t_read, &description.nand.t_program];
        prop_assert!(kinds.iter().all(|times| times.iter().all(|t| *t == times[0])), "one time for all kinds of pages");
        let Outcomes { account, .. } = run(&description, &asks);
        buses_carry_what_was_counted(&description, &account)?;
        dies_work_as_long_as_was_counted(&description, &account)?;
        energy_is_what_was_counted(&description, &account)?;
    }
}

/// Returns the account of a read, a program and an erase, one after the other.
fn small_account() -> FlashAccount {
    let mut d = device(&[("energy.read", "1 uJ"), ("energy.die_idle", "1 mW")]);
    d.energy.bus_pj_per_byte = 2.0;
    let mut rig = Rig::new(&d);
    rig.read(at(3, 1, 7, 0), 4_096);
    rig.step();
    rig.program(at(3, 0, 7, 0));
    rig.step();
    rig.submit(OpKind::Erase, OpCause::Gc, at(3, 0, 8, 0), 0);
    rig.step();
    rig.flash.account(rig.events.now())
}

#[test]
fn an_account_that_breaks_a_law_is_refused_with_its_numbers() {
    let whole = small_account();
    assert_eq!(whole.check(), Ok(()));
    let broken = |change: &dyn Fn(&mut FlashAccount)| {
        let mut account = whole.clone();
        change(&mut account);
        account.check().expect_err("a broken law").to_string()
    };
    let busy = whole.dies[3].total();
    let parts = whole.energy.total_pj();
    let rows: [(&dyn Fn(&mut FlashAccount), String); 9] = [
        (&|a| a.counts.submitted += 1, "4 operations taken, but 3 ended and 0 in flight".into()),
        (&|a| a.in_flight = 2, "3 operations taken, but 3 ended and 2 in flight".into()),
        (&|a| a.counts.ended[2][3] += 1, "3 operations taken, but 4 ended and 0 in flight".into()),
        (
            &|a| a.counts.out_bus_bytes[1] += 1,
            "4096 bytes were sensed, 4097 crossed a channel, with 0 operations in flight".into(),
        ),
        (
            &|a| a.counts.sensed_bus_bytes[1] += 1,
            "4097 bytes were sensed, 4096 crossed a channel, with 0 operations in flight".into(),
        ),
        (&|a| a.channels[5].data_in = Ps::from_ms(60), format!("channel 5 was busy for 60 ms of {}", whole.elapsed)),
        (&|a| a.elapsed = Ps(a.dies[3].total().0 - 1), format!("die 3 was busy for {busy} of {}", Ps(busy.0 - 1))),
        (&|a| a.energy.sense_pj += 1e6, format!("energy by part is {} pJ, by cause {parts} pJ", parts + 1e6)),
        (&|a| a.energy.idle_pj = f64::NAN, "energy by part is NaN pJ, by cause NaN pJ".into()),
    ];
    for (change, said) in rows {
        assert_eq!(broken(change), said);
    }
    // Sensed bytes that have not crossed yet are no loss while operations are in flight.
    let mut on_its_way = whole.clone();
    on_its_way.counts.submitted += 1;
    on_its_way.in_flight = 1;
    on_its_way.counts.sensed_bus_bytes[0] += 4_096;
    assert_eq!(on_its_way.check(), Ok(()));
    on_its_way.counts.out_bus_bytes[0] += 4_097;
    assert_eq!(on_its_way.check(), Err(Imbalance::Bytes { sensed: 8_192, crossed: 8_193, in_flight: 1 }));
}

/// An account may be taken at any moment: busy times grow steadily, and never beyond the time that has passed.
#[test]
fn an_account_of_every_moment_adds_up() {
    let d = device(&[("nand.t_cache_program_busy", "5 us"), ("nand.t_cache_read_busy", "3 us")]);
    let mut chance = fastrand::Rng::with_seed(3);
    for seed in 0..8 {
        let mut rig = Rig::new(&d);
        for n in 0..24 {
            let (die, plane) = (chance.u32(0..2), chance.u16(0..2));
            match chance.u32(0..3) {
                0 => rig.program(at(die, plane, 3, n)),
                1 => rig.submit(OpKind::Erase, OpCause::Gc, at(die, plane, 4 + u32::from(n), 0), 0),
                _ => rig.read(at(die, plane, 0, n), 8_192),
            };
        }
        let mut last = vec![[Ps::ZERO; 2]; 2];
        for step in 0..400 {
            let now = Ps::from_us(40 * step + seed);
            rig.until(now);
            let account = rig.flash.account(now);
            account.check().unwrap_or_else(|e| panic!("seed {seed}, at {now}: {e}"));
            for (die, last) in last.iter_mut().enumerate() {
                let busy = [account.dies[die].total(), account.channels[die / 8].total()];
                assert!(busy[0] >= last[0] && busy[1] >= last[1], "seed {seed}, at {now}: {busy:?} after {last:?}");
                *last = busy;
            }
        }
    }
}
