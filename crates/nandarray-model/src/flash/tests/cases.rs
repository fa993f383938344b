//! Small cases worked out by hand: cache operations, suspension, word lines, planes, aging. Times in nanoseconds of
//! MQSim's configuration: commands 290 and 361, data out 30 + 12,288 (4 KiB) or 24,576 (a page), sensing 75,020,
//! programming 750,020.

use super::{Rig, at, device};
use crate::flash::fault::BitErrors;
use crate::flash::{FlashEvent, NandCells, OpCause, OpKind, OpOutcome, Verdict};
use nandarray_sim::Ps;

const READ: u64 = 290;
const SENSE: u64 = 75_020;
const OUT: u64 = 30 + 24_576;
const OUT_HALF: u64 = 30 + 12_288;
const IN: u64 = 361 + 24_576;
const PROGRAM: u64 = 750_020;

fn ns(times: &[Ps]) -> Vec<u64> {
    times.iter().map(|t| t.0 / 1_000).collect()
}

#[test]
fn a_second_read_of_a_die_waits_for_the_first_ones_data_to_leave() {
    let mut rig = Rig::new(&device(&[]));
    rig.read(at(0, 0, 0, 0), 8_192);
    rig.read(at(0, 0, 0, 1), 8_192);
    let first = READ + SENSE + OUT;
    assert_eq!(ns(&rig.finish()), [first, 2 * first]);
}

#[test]
fn a_cache_read_senses_while_data_leaves() {
    let mut rig = Rig::new(&device(&[("nand.t_cache_read_busy", "3 us")]));
    rig.read(at(0, 0, 0, 0), 8_192);
    rig.read(at(0, 0, 0, 1), 8_192);
    rig.read(at(0, 0, 0, 2), 8_192);
    let sensed = READ + SENSE;
    let first_out = sensed + READ + 3_000 + OUT;
    let second_sensed = sensed + READ + 3_000 + SENSE;
    let second_out = second_sensed + READ + 3_000 + OUT;
    let third_out = second_sensed + READ + 3_000 + SENSE + OUT;
    assert_eq!(ns(&rig.finish()), [first_out, second_out, third_out]);
    assert_eq!(rig.flash.counts().cache_reads, 2);
}

#[test]
fn reads_of_every_class_go_through_the_cache_register() {
    let mut rig = Rig::new(&device(&[("nand.t_cache_read_busy", "3 us")]));
    for (page, cause) in (0..).zip([OpCause::Host, OpCause::Map, OpCause::Host, OpCause::Gc]) {
        rig.submit(OpKind::Read, cause, at(0, 0, 0, page), 8_192);
    }
    rig.finish();
    assert_eq!(rig.flash.counts().cache_reads, 3, "all but the last, which no other follows");
}

#[test]
fn a_cache_read_waits_for_the_cache_register() {
    // Sensing takes less than a transfer: the third sensing waits until the first page has left.
    let mut rig = Rig::new(&device(&[("nand.t_cache_read_busy", "3 us"), ("nand.t_read", "10 us")]));
    for page in 0..3 {
        rig.read(at(0, 0, 0, page), 8_192);
    }
    let first_out = READ + 10_020 + READ + 3_000 + OUT;
    let second_out = first_out + READ + 3_000 + OUT;
    // The third page was sensed meanwhile, and its data is transferred from the page register.
    let third_out = second_out + OUT;
    assert_eq!(ns(&rig.finish()), [first_out, second_out, third_out]);
}

#[test]
fn a_cache_program_brings_data_while_the_last_page_is_programmed() {
    let mut rig = Rig::new(&device(&[("nand.t_cache_program_busy", "5 us")]));
    rig.program(at(0, 0, 0, 0));
    rig.program(at(0, 0, 0, 1));
    let first = IN + PROGRAM;
    assert_eq!(ns(&rig.finish()), [first, first + 5_000 + PROGRAM]);
    assert_eq!(rig.flash.counts().cache_programs, 1);
    let mut rig = Rig::new(&device(&[]));
    rig.program(at(0, 0, 0, 0));
    rig.program(at(0, 0, 0, 1));
    assert_eq!(ns(&rig.finish()), [first, 2 * first]);
}

/// Submits a program, and at 100 us a read of the same die; returns the end of each.
fn read_behind_a_program(overrides: &[(&str, &str)]) -> (Vec<u64>, Rig) {
    let mut rig = Rig::new(&device(overrides));
    rig.program(at(0, 0, 0, 0));
    assert!(rig.until(Ps::from_us(100)).is_empty());
    rig.read(at(0, 1, 9, 0), 4_096);
    let ended = ns(&rig.finish());
    (ended, rig)
}

#[test]
fn a_read_interrupts_a_program() {
    let (ended, rig) = read_behind_a_program(&[("nand.t_resume", "5 us")]);
    let told = 100_000 + 95;
    let remaining = IN + PROGRAM - told;
    let read = told + 100_000 + READ + SENSE + OUT_HALF;
    let program = read + 95 + 5_000 + remaining;
    assert_eq!(ended, [program, read]);
    let counts = rig.flash.counts();
    assert_eq!((counts.program_suspends, counts.resumes), (1, 1));
    let die = rig.flash.account(rig.events.now()).dies[0];
    assert_eq!(die.program, Ps::from_ns(PROGRAM + 5_000), "what was interrupted goes on where it was");
    assert_eq!(die.suspend, Ps::from_us(100));
}

#[test]
fn a_read_that_cannot_interrupt_waits() {
    for overrides in [
        &[("nand.t_suspend_program", "none")][..],
        &[("nand.suspends_max", "0"), ("nand.t_suspend_program", "none"), ("nand.t_suspend_erase", "none")],
        &[("controller.scheduling", "fifo")],
        &[("controller.scheduling", "mqsim-compat")],
        // Suspending would take longer than the rest of the program.
        &[("nand.t_suspend_program", "700 us")],
    ] {
        let (ended, rig) = read_behind_a_program(overrides);
        assert_eq!(ended, [IN + PROGRAM, IN + PROGRAM + READ + SENSE + OUT_HALF], "{overrides:?}");
        assert_eq!(rig.flash.counts().program_suspends, 0);
    }
}

#[test]
fn an_erase_is_interrupted_no_more_than_it_may_be() {
    let mut rig = Rig::new(&device(&[("nand.suspends_max", "2"), ("nand.t_suspend_erase", "200 us")]));
    rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 0, 0), 0);
    let mut reads = 0;
    let mut erased = false;
    let mut at_us = 10;
    while !erased {
        at_us += 500;
        erased |= rig.until(Ps::from_us(at_us)).iter().any(|(_, e)| e.token == 0);
        rig.read(at(0, 0, 1, reads), 4_096);
        reads += 1;
        assert!(at_us < 20_000, "reads starve the erase");
    }
    rig.finish_rest();
    assert_eq!(rig.flash.counts().erase_suspends, 2);
}

#[test]
fn reads_do_not_starve_a_program() {
    // Two reads always wait for the die: the program begins once it has waited for eight program times.
    let mut rig = Rig::new(&device(&[("nand.t_suspend_program", "none"), ("nand.t_suspend_erase", "none")]));
    rig.read(at(0, 0, 0, 0), 4_096);
    rig.read(at(0, 0, 0, 1), 4_096);
    let program = rig.program(at(0, 0, 5, 0));
    for page in 0..1_000 {
        let ended = rig.step();
        if let Some((now, _)) = ended.iter().find(|(_, e)| e.token == program) {
            let bound = Ps::from_ns(9 * (PROGRAM + IN) + 3 * (READ + SENSE + OUT));
            assert!(*now <= bound, "programmed at {now}, later than {bound}");
            assert!(*now > Ps::from_us(6_000), "programmed at {now}, before reads that it should wait for");
            return;
        }
        rig.read(at(0, 0, 1, page % 256), 4_096);
    }
    panic!("the program never went");
}

#[test]
fn nothing_starves_on_a_channel_that_is_full_of_reads() {
    // Sixteen reads always wait for each of eight dies. Every other operation ends within a few times its patience.
    let mut rig = Rig::new(&device(&[("geometry.channels", "1")]));
    let mut others = Vec::new();
    for die in 0..8 {
        for n in 0..16 {
            rig.read(at(die, n % 2, 0, n), 8_192);
        }
        for (op, cause) in [
            (OpKind::Read, OpCause::Gc),
            (OpKind::Program, OpCause::Host),
            (OpKind::Program, OpCause::Wear),
            (OpKind::Erase, OpCause::Gc),
        ] {
            let block = 5 + u32::from(op == OpKind::Erase) + cause as u32 * 2;
            let bytes = if op == OpKind::Erase { 0 } else { 8_192 };
            others.push(rig.submit(op, cause, at(die, 0, block, 0), bytes));
        }
    }
    let mut page = 0;
    while !others.is_empty() {
        for (now, ended) in rig.step() {
            assert!(now < Ps::from_us(80_000), "at {now} there wait {others:?}");
            match others.iter().position(|&token| token == ended.token) {
                Some(i) => {
                    others.swap_remove(i);
                }
                None => {
                    page = (page + 1) % 256;
                    rig.read(at(u32::from(page) % 8, page / 8 % 2, 0, page), 8_192);
                }
            }
        }
    }
}

#[test]
fn the_background_waits_for_the_host_unless_it_is_urgent() {
    for (urgent, order) in [(false, [0, 2, 1]), (true, [0, 1, 2])] {
        let mut rig = Rig::new(&device(&[]));
        rig.flash.set_urgent(0, urgent);
        rig.read(at(0, 0, 0, 0), 4_096);
        rig.until(Ps::from_us(1));
        rig.submit(OpKind::Read, OpCause::Gc, at(0, 0, 0, 1), 8_192);
        rig.until(Ps::from_us(2));
        rig.read(at(0, 0, 0, 2), 4_096);
        let times = rig.finish();
        let mut by_time = [0, 1, 2];
        by_time.sort_by_key(|&i: &usize| times[i]);
        assert_eq!(by_time, order, "urgent: {urgent}");
    }
}

#[test]
fn planes_join_a_command_for_the_same_page() {
    let two_planes = READ + 650 + SENSE;
    let mut rig = Rig::new(&device(&[]));
    rig.read(at(0, 0, 3, 7), 8_192);
    rig.read(at(0, 1, 4, 7), 8_192);
    assert_eq!(ns(&rig.finish()), [two_planes + OUT, two_planes + 2 * OUT]);
    assert_eq!(rig.flash.counts().multi_plane, 1);
    // A read of another page number joins the command only if planes are independent.
    let mut rig = Rig::new(&device(&[]));
    rig.read(at(0, 0, 3, 7), 8_192);
    rig.read(at(0, 1, 4, 8), 8_192);
    assert_eq!(ns(&rig.finish()), [READ + SENSE + OUT, 2 * (READ + SENSE + OUT)]);
    let mut rig = Rig::new(&device(&[("nand.independent_planes", "true")]));
    rig.read(at(0, 0, 3, 7), 8_192);
    rig.read(at(0, 1, 4, 8), 8_192);
    assert_eq!(ns(&rig.finish()), [two_planes + OUT, two_planes + 2 * OUT]);
    let mut rig = Rig::new(&device(&[("nand.multi_plane", "false")]));
    rig.read(at(0, 0, 3, 7), 8_192);
    rig.read(at(0, 1, 4, 7), 8_192);
    assert_eq!(ns(&rig.finish()), [READ + SENSE + OUT, 2 * (READ + SENSE + OUT)]);
    let mut rig = Rig::new(&device(&[]));
    rig.program(at(0, 0, 3, 7));
    rig.program(at(0, 1, 4, 7));
    assert_eq!(ns(&rig.finish()), [IN + 816 + 24_576 + PROGRAM; 2]);
    let mut rig = Rig::new(&device(&[]));
    rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 3, 0), 0);
    rig.submit(OpKind::Erase, OpCause::Gc, at(0, 1, 4, 0), 0);
    assert_eq!(ns(&rig.finish()), [220 + 700 + 3_800_020; 2]);
}

#[test]
fn a_word_line_is_programmed_at_once() {
    let one_shot = &[
        ("nand.cell", "tlc"),
        ("nand.one_shot", "true"),
        ("geometry.pages", "258"),
        ("nand.t_read", "[\"50 us\", \"60 us\", \"70 us\"]"),
    ];
    let mut rig = Rig::new(&device(one_shot));
    for page in 0..3 {
        rig.program(at(0, 0, 3, page));
    }
    assert_eq!(ns(&rig.finish()), [361 + 3 * 24_576 + PROGRAM; 3]);
    // Two planes, three pages on each.
    let mut rig = Rig::new(&device(one_shot));
    for page in 0..3 {
        rig.program(at(0, 0, 3, page));
        rig.program(at(0, 1, 3, page));
    }
    assert_eq!(ns(&rig.finish()), [361 + 816 + 6 * 24_576 + PROGRAM; 6]);
    // An incomplete word line waits for one program time, then is programmed as it is.
    let mut rig = Rig::new(&device(one_shot));
    for page in 0..2 {
        rig.program(at(0, 0, 3, page));
    }
    assert_eq!(ns(&rig.finish()), [750_000 + 361 + 2 * 24_576 + PROGRAM; 2]);
    // The missing page arrives before the wait is over.
    let mut rig = Rig::new(&device(one_shot));
    for page in 0..2 {
        rig.program(at(0, 0, 3, page));
    }
    rig.until(Ps::from_us(300));
    rig.program(at(0, 0, 3, 2));
    assert_eq!(ns(&rig.finish()), [300_000 + 361 + 3 * 24_576 + PROGRAM; 3]);
}

#[test]
fn tlc_pages_take_the_time_of_their_kind() {
    let d = device(&[("nand.cell", "tlc"), ("nand.t_read", "[\"50 us\", \"60 us\", \"70 us\"]")]);
    for (page, us) in [(0, 50), (5, 50), (6, 60), (7, 60), (8, 50), (9, 50), (10, 60), (12, 70), (14, 50)] {
        let mut rig = Rig::new(&d);
        rig.read(at(0, 0, 0, page), 8_192);
        assert_eq!(ns(&rig.finish()), [READ + us * 1_000 + 20 + OUT], "page {page}");
    }
}

#[test]
fn an_erase_waits_for_what_was_asked_of_its_block() {
    let mut rig = Rig::new(&device(&[]));
    rig.flash.set_urgent(0, true);
    rig.program(at(0, 0, 3, 0));
    let erase = rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 3, 0), 0);
    let again = rig.submit(OpKind::Program, OpCause::Gc, at(0, 0, 4, 0), 8_192);
    let times = rig.finish();
    assert!(times[erase as usize] > times[0] && times[again as usize] < times[erase as usize]);
}

#[test]
fn decoding_follows_the_transfer() {
    let ecc = |t: &'static str| {
        [
            ("reliability.ecc_codeword_size", "1 KiB"),
            ("reliability.ecc_correctable_bits", "40"),
            ("reliability.t_ecc_decode", t),
        ]
    };
    // A code word takes 3,072 ns on the bus: a decoder that needs 2 us is done 2 us after the last one has arrived.
    let mut rig = Rig::new(&device(&ecc("2 us")));
    rig.read(at(0, 0, 0, 0), 8_192);
    assert_eq!(ns(&rig.finish()), [READ + SENSE + OUT + 2_000]);
    assert_eq!(rig.flash.counts().codewords[OpCause::Host as usize], 8);
    // A decoder that needs 5 us is the bottleneck: it decodes eight code words after the first one has arrived.
    let mut rig = Rig::new(&device(&ecc("5 us")));
    rig.read(at(0, 0, 0, 0), 8_192);
    assert_eq!(ns(&rig.finish()), [READ + SENSE + 30 + 3_072 + 8 * 5_000]);
}

#[test]
fn reads_that_need_no_decoder_end_with_their_transfer() {
    for overrides in [
        &[][..],
        &[("reliability.ecc_codeword_size", "1 KiB"), ("reliability.ecc_correctable_bits", "40")],
        &[("reliability.t_ecc_decode", "2 us")],
    ] {
        let mut rig = Rig::new(&device(overrides));
        rig.read(at(0, 0, 0, 0), 8_192);
        while let Some((now, event)) = rig.events.pop() {
            assert!(!matches!(event, FlashEvent::Decoded(_)), "decoded at {now:?}, {overrides:?}");
            rig.flash.handle(now, event, &mut rig.events, &mut rig.ended);
        }
        assert_eq!(rig.ended.len(), 1, "{overrides:?}");
        assert_eq!(ns(&[rig.events.now()]), [READ + SENSE + OUT], "{overrides:?}");
    }
}

#[test]
fn spare_bytes_cross_the_bus_with_their_page() {
    let mut rig = Rig::new(&device(&[("bus.transfers_spare", "true")]));
    rig.read(at(0, 0, 0, 0), 8_192);
    assert_eq!(ns(&rig.finish()), [READ + SENSE + 30 + (8_192 + 448) * 3]);
    let counts = rig.flash.counts();
    assert_eq!(counts.read_bytes[0], 8_192);
    assert_eq!(counts.out_bus_bytes[0], 8_640);
}

#[test]
fn dies_rest_when_nothing_is_asked_of_them() {
    let mut rig = Rig::new(&device(&[]));
    assert!(rig.flash.is_idle(0));
    rig.read(at(0, 0, 0, 0), 4_096);
    rig.read(at(0, 0, 1, 1), 4_096);
    assert!(!rig.flash.is_idle(0) && rig.flash.is_idle(1));
    assert_eq!(rig.flash.queued(0), 2);
    rig.until(Ps::from_us(1));
    assert_eq!((rig.flash.queued(0), rig.flash.in_flight()), (1, 2));
    rig.finish();
    assert!(rig.flash.is_idle(0));
}

#[test]
fn energy_is_what_was_done_times_what_it_takes() {
    let mut d = device(&[("energy.read", "1 uJ"), ("energy.program", "20 uJ")]);
    d.energy.bus_pj_per_byte = 10.0;
    d.energy.die_idle_uw = 100.0;
    let mut rig = Rig::new(&d);
    rig.read(at(0, 0, 0, 0), 4_096);
    rig.submit(OpKind::Program, OpCause::Gc, at(1, 0, 0, 0), 8_192);
    rig.finish();
    let now = rig.events.now();
    let energy = rig.flash.account(now).energy;
    assert_eq!((energy.sense_pj, energy.program_pj, energy.bus_pj), (1e6, 2e7, 122_880.0));
    let idle_us = 64.0 * now.us() - 75.02 - 750.02;
    assert!((energy.idle_pj - 100.0 * idle_us).abs() < 1.0, "{} pJ", energy.idle_pj);
    assert_eq!(energy.by_cause_pj, [1e6 + 40_960.0, 0.0, 2e7 + 81_920.0, 0.0]);
}

#[test]
fn a_current_is_the_dies_and_shared_by_its_planes() {
    let d = device(&[
        ("energy.read", "20 mA at 3 V"),
        ("energy.program", "40 mA at 3 V"),
        ("energy.erase", "10 mA at 3 V"),
    ]);
    let energy = |op: OpKind, planes: u16| {
        let mut rig = Rig::new(&d);
        for plane in 0..planes {
            rig.submit(op, OpCause::Host, at(0, plane, 0, 0), if op == OpKind::Erase { 0 } else { 8_192 });
        }
        rig.finish();
        let energy = rig.flash.account(rig.events.now()).energy;
        energy.sense_pj + energy.program_pj + energy.erase_pj
    };
    for planes in [1, 2] {
        // Energies: 60 mW for 75 us, 120 mW for 750 us, 30 mW for 3.8 ms.
        for (op, pj) in [(OpKind::Read, 4.5e6), (OpKind::Program, 9e7), (OpKind::Erase, 1.14e8)] {
            let got = energy(op, planes);
            assert!((got / pj - 1.0).abs() < 1e-9, "{op:?} of {planes} planes: {got} pJ instead of {pj}");
        }
    }
    // An energy in the description is per page.
    let d = device(&[("energy.read", "1 uJ")]);
    let mut rig = Rig::new(&d);
    rig.read(at(0, 0, 0, 0), 8_192);
    rig.read(at(0, 1, 0, 0), 8_192);
    rig.finish();
    assert_eq!(rig.flash.account(rig.events.now()).energy.sense_pj, 2e6);
    // The current of a word line is charged once, whether the word line is complete or not.
    let one_shot = &[
        ("nand.cell", "tlc"),
        ("nand.one_shot", "true"),
        ("geometry.pages", "258"),
        ("energy.program", "40 mA at 3 V"),
    ];
    for pages in [2, 3] {
        let mut rig = Rig::new(&device(one_shot));
        for page in 0..pages {
            rig.program(at(0, 0, 0, page));
        }
        rig.finish();
        let got = rig.flash.account(rig.events.now()).energy.program_pj;
        assert!((got / 9e7 - 1.0).abs() < 1e-9, "{got} pJ for {pages} pages");
    }
}

impl Rig {
    /// Handles all events that are left, and checks that the operations which end by them succeed.
    fn finish_rest(&mut self) {
        loop {
            let ended = self.step();
            if ended.is_empty() {
                break;
            }
            assert!(ended.iter().all(|(_, e)| e.outcome == OpOutcome::Done));
        }
        assert_eq!(self.flash.in_flight(), 0);
        self.flash.check(self.events.now()).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A page of 8 KiB is one code word, decoded in 50 us, and needs a second sensing: only then its block may be erased.
/// Another block's erase would not wait.
#[test]
fn an_erase_waits_for_a_page_of_its_block_that_is_being_decoded() {
    for (scheduling, erased) in [("normal", 1), ("mqsim-compat", 1), ("normal", 2)] {
        let d = device(&[
            ("controller.scheduling", scheduling),
            ("reliability.ecc_codeword_size", "8 KiB"),
            ("reliability.ecc_correctable_bits", "40"),
            ("reliability.t_ecc_decode", "50 us"),
            ("reliability.t_read_retry", "0 ns"),
            ("reliability.read_retries_max", "1"),
            ("nand.t_suspend_erase", "none"),
            ("nand.t_erase", "3800 us"),
        ]);
        let verdict = Verdict { retries: 1, lost: false };
        let mut rig = Rig::with_cells(&d, Box::new(BitErrors::new(NandCells::new(&d, 1), at(0, 0, 1, 0), verdict)));
        rig.read(at(0, 0, 1, 0), 8_192);
        rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, erased, 0), 0);
        let sensed = READ + SENSE + OUT;
        let erase = d.bus.t_erase_command.0 / 1_000 + 3_800_020;
        let (read, end) = match erased {
            1 => (2 * (sensed + 50_000), 2 * (sensed + 50_000) + erase),
            _ => (sensed + erase + sensed + 50_000, sensed + erase),
        };
        assert_eq!(ns(&rig.finish()), [read, end], "{scheduling}, block {erased}");
    }
}
