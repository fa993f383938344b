//! The parts of the back end beside the simplest models of them: lists of slots, turns, the bus's accounts, kinds of
//! pages, orders of classes.

use std::collections::VecDeque;

use fastrand::Rng;

use super::{at, device};
use crate::describe::{Cell, Scheduling};
use crate::flash::cells::kind_of_page;
use crate::flash::channel::{Channel, Use, next_in_turn};
use crate::flash::policy::{DiePolicy, Features};
use crate::flash::slab::{NONE, OpClass, Slab, SlotList};
use crate::flash::times::Times;
use crate::flash::{FlashOp, OpCause, OpKind};
use nandarray_sim::Ps;

fn operation(op: OpKind, cause: OpCause, token: u64) -> FlashOp {
    FlashOp { op, cause, place: at(0, 0, 0, 0), bytes: 512, token }
}

fn tokens(slab: &Slab, list: SlotList) -> Vec<u64> {
    let (mut at, mut found) = (list.head, Vec::new());
    while at != NONE {
        found.push(slab[at].token);
        at = slab[at].next;
    }
    found
}

#[test]
fn linked_slots_are_queues() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let mut slab = Slab::default();
        let mut lists = [SlotList::EMPTY; 3];
        let mut model: [VecDeque<u64>; 3] = Default::default();
        for token in 0..400 {
            let which = chance.usize(0..3);
            let (list, expected) = (&mut lists[which], &mut model[which]);
            match chance.u32(0..6) {
                0..2 => {
                    let i =
                        slab.take(&operation(OpKind::Read, OpCause::Host, token), OpClass::ReadHost, token, Ps::ZERO);
                    slab.push_back(list, i);
                    expected.push_back(token);
                }
                2 => {
                    let i = slab.take(&operation(OpKind::Read, OpCause::Map, token), OpClass::ReadMap, token, Ps::ZERO);
                    slab.push_front(list, i);
                    expected.push_front(token);
                }
                3 => {
                    let i = slab.pop_front(list);
                    assert_eq!(i.map(|i| slab[i].token), expected.pop_front(), "seed {seed}");
                    i.into_iter().for_each(|i| slab.give_back(i));
                }
                _ if !expected.is_empty() => {
                    let nth = chance.usize(0..expected.len());
                    let (mut before, mut i) = (NONE, list.head);
                    for _ in 0..nth {
                        (before, i) = (i, slab[i].next);
                    }
                    slab.remove(list, before, i);
                    assert_eq!(Some(slab[i].token), expected.remove(nth), "seed {seed}");
                    slab.give_back(i);
                }
                _ => assert!(list.is_empty(), "seed {seed}"),
            }
            for (list, expected) in lists.iter().zip(&model) {
                assert!(tokens(&slab, *list).iter().eq(expected), "seed {seed}, step {token}");
                assert_eq!(slab.length(list.head) as usize, expected.len());
            }
            assert_eq!(slab.in_flight() as usize, model.iter().map(VecDeque::len).sum::<usize>());
        }
    }
}

#[test]
#[should_panic(expected = "given back twice")]
fn a_slot_is_given_back_once() {
    let mut slab = Slab::default();
    let i = slab.take(&operation(OpKind::Erase, OpCause::Gc, 1), OpClass::Erase, 0, Ps::ZERO);
    slab.give_back(i);
    slab.give_back(i);
}

#[test]
fn turns_go_round_all_who_want_one() {
    let mut chance = Rng::with_seed(1);
    for _ in 0..3_000 {
        let mask = chance.u128(..) & chance.u128(..) & chance.u128(..) | 1 << chance.u32(0..128);
        let turn = chance.u32(0..128);
        let naive = (turn..128).chain(0..turn).find(|&bit| mask >> bit & 1 != 0);
        assert_eq!(Some(next_in_turn(mask, &mut turn.clone())), naive, "{mask:#x} from {turn}");
    }
    let (mut turn, mut seen) = (0, Vec::new());
    for _ in 0..6 {
        seen.push(next_in_turn(1 << 127 | 1 << 64 | 1, &mut turn));
    }
    assert_eq!(seen, [0, 64, 127, 0, 64, 127]);
}

/// The back end books a use of the bus when it is granted: commands one after the other, then one transfer. An account
/// of a moment within them holds what has passed.
#[test]
fn a_bus_that_is_booked_ahead_is_busy_for_what_has_passed() {
    for seed in 0..300 {
        let mut chance = Rng::with_seed(seed);
        let mut bus = Channel::new();
        let mut uses: Vec<(usize, u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..chance.u32(1..6) {
            now = bus.free_at.0 + chance.u64(0..50);
            let mut at_ps = now;
            let kinds = std::iter::repeat_n(Use::Command, chance.usize(0..4)).chain([[
                Use::DataIn,
                Use::DataOut,
                Use::Command,
            ][chance.usize(0..3)]]);
            for kind in kinds {
                let end = at_ps + chance.u64(0..40);
                bus.occupy(kind, Ps(at_ps), Ps(end));
                uses.push((kind as usize, at_ps, end));
                at_ps = end;
            }
        }
        for moment in now..=bus.free_at.0 + 3 {
            let mut want = [Ps::ZERO; 3];
            for &(kind, start, end) in &uses {
                want[kind] += Ps(end.min(moment)).since(Ps(start));
            }
            assert_eq!(bus.busy_until(Ps(moment)), want, "seed {seed}, at {moment} ps of {uses:?}");
        }
    }
}

#[test]
#[should_panic(expected = "the bus is taken until 40 ps")]
fn a_bus_serves_one_use_at_a_time() {
    let mut bus = Channel::new();
    bus.occupy(Use::Command, Ps(10), Ps(40));
    bus.occupy(Use::DataIn, Ps(39), Ps(50));
}

#[test]
fn pages_of_a_word_line_alternate_as_published() {
    let kinds = |cell, one_shot, pages: std::ops::Range<u16>| -> String {
        pages.map(|page| char::from(b"LCMT"[kind_of_page(cell, one_shot, page)])).collect()
    };
    assert_eq!(kinds(Cell::Slc, false, 0..6), "LLLLLL");
    assert_eq!(kinds(Cell::Mlc, false, 0..6), "LCLCLC");
    // Yaakobi et al., ICNC 2012: six pages LSB, two CSB, then pairs.
    assert_eq!(kinds(Cell::Tlc, false, 0..26), "LLLLLLCCLLCCMMLLCCMMLLCCMM");
    assert_eq!(kinds(Cell::Qlc, false, 0..24), "LLLLLLCCLLCCMMTTLLCCMMTT");
    assert_eq!(kinds(Cell::Tlc, true, 0..8), "LCMLCMLC");
    assert_eq!(kinds(Cell::Qlc, true, 65_528..65_535), "LCMTLCM");
    for cell in [Cell::Slc, Cell::Mlc, Cell::Tlc, Cell::Qlc] {
        for page in 0..2_000 {
            assert!(kind_of_page(cell, false, page) < cell.bits() && kind_of_page(cell, true, page) < cell.bits());
        }
    }
}

/// Classes in the order in which each policy serves operations that were submitted together.
#[test]
fn operations_of_one_moment_go_in_the_order_of_their_policy() {
    use OpClass::{Erase, ProgramBack, ProgramFront, ReadBack, ReadHost, ReadMap};
    let times = Times::new(&device(&[]), Features::ALL);
    let served = |by: Scheduling, urgent: bool, waited_us: u64| {
        let mut slab = Slab::default();
        let mut slots = Vec::new();
        for (seq, class) in (0..).zip([Erase, ProgramBack, ProgramFront, ReadBack, ReadHost, ReadMap]) {
            let (op, cause) = match class {
                ReadMap => (OpKind::Read, OpCause::Map),
                ReadHost => (OpKind::Read, OpCause::Host),
                ReadBack => (OpKind::Read, OpCause::Wear),
                ProgramFront => (OpKind::Program, OpCause::Host),
                ProgramBack => (OpKind::Program, OpCause::Map),
                Erase => (OpKind::Erase, OpCause::Host),
            };
            assert_eq!(OpClass::of(op, cause), class);
            // The map's read comes so much later than all others.
            let now = if class == ReadMap { Ps::from_us(waited_us) } else { Ps::ZERO };
            let i = slab.take(&operation(op, cause, 0), class, seq, now);
            slots.push(slab[i]);
        }
        slots.sort_by_key(|slot| (by.key(&times, urgent, slot), slot.seq));
        slots.iter().map(|slot| slot.class).collect::<Vec<_>>()
    };
    let normal = [ReadHost, ReadMap, ProgramFront, ReadBack, ProgramBack, Erase];
    assert_eq!(served(Scheduling::Normal, false, 0), normal, "of equal patience, the one that arrived first");
    // Eight program times of 750 us are the patience of the host's programs, sixteen of the background's.
    assert_eq!(served(Scheduling::Normal, false, 5_999)[1], ReadMap);
    assert_eq!(served(Scheduling::Normal, false, 6_001)[3], ReadMap);
    assert_eq!(served(Scheduling::Normal, false, 12_001)[4], ReadMap);
    assert_eq!(served(Scheduling::Normal, false, 8 * (750 + 3_800) + 1)[5], ReadMap, "nothing waits for ever");
    let urgent = served(Scheduling::Normal, true, 0);
    assert_eq!(urgent, [ReadBack, ReadHost, ReadMap, ProgramBack, ProgramFront, Erase]);
    for urgent in [false, true] {
        let arrival = [Erase, ProgramBack, ProgramFront, ReadBack, ReadHost, ReadMap];
        assert_eq!(served(Scheduling::Fifo, urgent, 0), arrival);
    }
    let mqsim = [ReadMap, ReadHost, ProgramFront, ReadBack, ProgramBack, Erase];
    assert_eq!(served(Scheduling::MqsimCompat, false, 50_000), mqsim, "patience is endless");
    let mqsim = [ReadMap, ReadBack, ProgramBack, Erase, ReadHost, ProgramFront];
    assert_eq!(served(Scheduling::MqsimCompat, true, 0), mqsim);
}

/// The number of planes of a command is the one with the least time per page, found by comparing all of them.
#[test]
fn planes_join_a_command_where_a_page_takes_least() {
    for seed in 0..400 {
        let mut chance = Rng::with_seed(seed);
        let mut d = device(&[("geometry.planes", "4")]);
        d.bus.bytes_per_s = chance.u64(100_000_000..4_000_000_000);
        d.bus.t_read_command = Ps(chance.u64(0..1_000_000));
        d.bus.t_read_further_plane = Ps(chance.u64(0..3_000_000));
        d.nand.t_read = vec![Ps(chance.u64(1_000_000..300_000_000)); 2];
        d.nand.t_cache_read_busy = chance.bool().then_some(Ps(3_000_000));
        let (planes, dies) = (chance.u32(1..5), chance.u64(1..9));
        let data = d.bus.t_data_out_command + Ps::of_bytes(8_192, d.bus.bytes_per_s);
        let round = |n: u32| {
            let commands = d.bus.t_read_command + d.bus.t_read_further_plane * u64::from(n - 1);
            let (bus, array) = (commands + data * u64::from(n), d.nand.t_read[0] + d.nand.t_ready);
            let cycle = match d.nand.t_cache_read_busy {
                Some(busy) => commands + (array + busy).max(data * u64::from(n)),
                None => bus + array,
            };
            (bus * dies).max(Ps(cycle.0 + cycle.0 / 4)).0
        };
        let per_page = |n: u32| u128::from(round(n)) * 12 / u128::from(n);
        let least = (1..=planes).map(per_page).min().unwrap();
        let want = (1..=planes).rev().find(|&n| per_page(n) == least);
        let got = Times::new(&d, Features::ALL).best_planes(OpKind::Read, 8_192, planes, dies);
        assert_eq!(Some(got), want, "seed {seed}: {planes} planes, {dies} dies");
    }
}
