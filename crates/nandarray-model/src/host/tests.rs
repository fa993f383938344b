//! The link compared with packets sent one by one, the host's cores with their time picosecond by picosecond, queue
//! pairs with plain lists.

use std::collections::VecDeque;

use nandarray_sim::Ps;

use super::{Direction, HostCpu, HostLink, Queues};
use crate::describe::{Arbitration, Energy, HostSettings, LinkSettings};

/// A link of a byte each picosecond.
fn link(chance: &mut fastrand::Rng, entries_ahead: bool) -> LinkSettings {
    LinkSettings {
        bytes_per_s: 1_000_000_000_000,
        packet_payload_bytes: chance.u32(1..300),
        packet_overhead_bytes: chance.u32(0..40),
        t_propagate: Ps(chance.u64(0..500)),
        command_bytes: 64,
        completion_bytes: 16,
        entries_ahead,
    }
}

/// Sends a message packet by packet on a way that is free at a time; returns the time at which its last byte has left.
fn by_packets(free: u64, settings: &LinkSettings, bytes: u64) -> u64 {
    let (mut left, mut at) = (bytes, free);
    loop {
        let payload = left.min(u64::from(settings.packet_payload_bytes));
        at += payload + u64::from(settings.packet_overhead_bytes);
        left -= payload;
        if left == 0 {
            return at;
        }
    }
}

#[test]
fn messages_leave_packet_by_packet_and_in_order_in_each_direction() {
    for seed in 0..100 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let settings = link(&mut chance, false);
        let mut link = HostLink::new(&settings, &Energy { link_pj_per_byte: 2.0, ..Energy::default() });
        let (mut now, mut free, mut wire) = (0, [0u64; 2], 0);
        for step in 0..80 {
            now += chance.u64(0..600);
            let (way, bytes) = (chance.usize(0..2), chance.u64(0..2) * chance.u64(0..2_000));
            let direction = [Direction::Down, Direction::Up][way];
            let sent = if chance.bool() {
                link.send(Ps(now), direction, bytes)
            } else {
                link.send_entry(Ps(now), direction, bytes)
            };
            let start = now.max(free[way]);
            let left = by_packets(start, &settings, bytes);
            let wanted = (Ps(start), Ps(left), Ps(left) + settings.t_propagate);
            assert_eq!((sent.start, sent.left, sent.end), wanted, "seed {seed}, step {step}: {bytes} B, {settings:?}");
            assert_eq!(link.on_the_wire(bytes), left - start, "seed {seed}, step {step}");
            wire += left - start;
            free[way] = left;
        }
        let end = Ps(*free.iter().max().unwrap());
        let busy = link.busy_until(Direction::Down, end) + link.busy_until(Direction::Up, end);
        assert_eq!((busy, link.energy_pj()), (Ps(wire), wire as f64 * 2.0), "seed {seed}");
    }
}

/// Entries that go ahead leave at once, whatever waits, and what waits is later by just their time.
#[test]
fn entries_ahead_take_their_time_from_what_waits() {
    for seed in 0..100 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let settings = link(&mut chance, true);
        let mut link = HostLink::new(&settings, &Energy::default());
        let (mut now, mut free) = (0, 0u64);
        for step in 0..80 {
            now += chance.u64(0..300);
            let bytes = chance.u64(0..900);
            let lasts = by_packets(0, &settings, bytes);
            let entry = chance.bool();
            let sent = if entry {
                link.send_entry(Ps(now), Direction::Up, bytes)
            } else {
                link.send(Ps(now), Direction::Up, bytes)
            };
            let start = if entry { now } else { now.max(free) };
            assert_eq!((sent.start, sent.left), (Ps(start), Ps(start + lasts)), "seed {seed}, step {step}");
            assert_eq!(sent.end, sent.left + settings.t_propagate, "seed {seed}, step {step}");
            free = now.max(free) + lasts;
        }
        assert_eq!(link.send(Ps(now), Direction::Up, 0).start, Ps(free.max(now)), "seed {seed}");
    }
}

fn host(chance: &mut fastrand::Rng, polled: bool) -> HostSettings {
    HostSettings {
        queues: 4,
        queue_entries: 64,
        arbitration: Arbitration::RoundRobin { burst: 1 },
        transfer_max_bytes: 1 << 20,
        composes_commands: false,
        t_submit: Ps(chance.u64(1..40)),
        t_translate: Ps::ZERO,
        t_complete: Ps(chance.u64(1..40)),
        t_interrupt: (!polled).then_some(Ps(25)),
        t_copy_run: Ps(3),
        copy_bytes_per_s: 1_000_000_000_000,
        cores: 1,
    }
}

/// A core that polls is active from the first command in flight to the last completion, one that is interrupted only
/// while it works: both are looked at picosecond by picosecond.
#[test]
fn cores_are_active_as_long_as_they_work_or_spin() {
    for seed in 0..200 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let polled = chance.bool();
        let host = host(&mut chance, polled);
        let mut cpu = HostCpu::new(&host, &Energy { host_core_active_uw: 1e6, ..Energy::default() });
        let mut active = vec![false; 40_000];
        let (mut now, mut flying, mut spins_from, mut free) = (0usize, 0, 0, 0);
        for step in 0..60 {
            now += chance.usize(0..120);
            let start = now.max(free);
            let booked = match chance.u8(0..3) {
                0 | 1 if flying > 0 && chance.bool() => {
                    flying -= 1;
                    cpu.complete(Ps(now as u64), 0)
                }
                _ => {
                    if flying == 0 {
                        spins_from = start;
                    }
                    flying += 1;
                    cpu.submit(Ps(now as u64), 0)
                }
            };
            assert_eq!(booked.start, Ps(start as u64), "seed {seed}, step {step}");
            free = booked.end.0 as usize;
            active[start..free].fill(true);
            if polled && flying == 0 {
                active[spins_from..free].fill(true);
            }
            now = now.max(free);
            let mut wanted = active.clone();
            if polled && flying > 0 {
                wanted[spins_from..now].fill(true);
            }
            let wanted = wanted[..now].iter().filter(|&&active| active).count() as u64;
            let found: Ps = cpu.active_until(Ps(now as u64)).sum();
            assert_eq!(found, Ps(wanted), "seed {seed}, step {step}, polled: {polled}");
            assert_eq!(cpu.energy_pj(Ps(now as u64)), wanted as f64, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn copies_take_their_runs_and_bytes_on_the_core_that_is_free() {
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let host = HostSettings { cores: chance.u32(1..5), ..host(&mut chance, false) };
        let mut cpu = HostCpu::new(&host, &Energy::default());
        let mut free = vec![0u64; host.cores as usize];
        let mut now = 0;
        for step in 0..100 {
            now += chance.u64(0..400);
            let (runs, bytes) = (chance.u64(0..40), chance.u64(0..900));
            let core = chance.bool().then(|| chance.u32(0..host.cores));
            let booked = cpu.copy(Ps(now), core, runs, bytes);
            let lasts = 3 * runs + bytes;
            let earliest = core.map_or_else(|| *free.iter().min().unwrap(), |core| free[core as usize]);
            let start = now.max(earliest);
            assert_eq!((booked.start, booked.end), (Ps(start), Ps(start + lasts)), "seed {seed}, step {step}");
            assert!(core.is_none_or(|core| core == booked.server) && free[booked.server as usize] <= start);
            free[booked.server as usize] = start + lasts;
        }
        assert!((0..20).all(|queue| cpu.core_of(queue) == queue % host.cores));
    }
}

/// Queue pairs with commands in every state, against lists: submitted, visible, fetched, completed.
#[test]
fn commands_pass_through_a_pair_in_order_and_hold_their_entry() {
    for seed in 0..120 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (queues, entries) = (chance.u32(1..70), chance.u32(1..6));
        let mut all: Queues<u32> = Queues::new(queues, entries, &Arbitration::RoundRobin { burst: chance.u32(0..4) });
        let mut lists = vec![[VecDeque::new(), VecDeque::new(), VecDeque::new(), VecDeque::new()]; queues as usize];
        let mut number = 0;
        for step in 0..600 {
            let queue = chance.u32(0..queues.min(4)) * 17 % queues;
            let context = format!("seed {seed}, step {step}, queue {queue} of {queues}");
            let list = &mut lists[queue as usize];
            match chance.u8(0..5) {
                0 => {
                    let room = entries - list.iter().map(VecDeque::len).sum::<usize>() as u32;
                    assert_eq!(all.room(queue), room, "{context}");
                    match all.submit(queue, number) {
                        Ok(()) => list[0].push_back(number),
                        Err(full) => assert_eq!((full.queue, full.entries, room), (queue, entries, 0), "{context}"),
                    }
                    number += 1;
                }
                1 => {
                    let most = chance.u32(0..4);
                    let shown = all.show(queue, most);
                    assert_eq!(shown, most.min(list[0].len() as u32), "{context}");
                    (0..shown).for_each(|_| {
                        let next = list[0].pop_front().unwrap();
                        list[1].push_back(next);
                    });
                }
                2 => match all.fetch() {
                    Some(fetched) => {
                        let list = &mut lists[fetched.queue as usize];
                        assert_eq!(list[1].pop_front(), Some(fetched.command), "{context}");
                        list[2].push_back(fetched.command);
                    }
                    None => assert!(lists.iter().all(|list| list[1].is_empty()), "{context}"),
                },
                3 => {
                    if !list[2].is_empty() {
                        // Commands complete in any order.
                        let at = chance.usize(0..list[2].len());
                        let command = list[2].remove(at).unwrap();
                        all.post(queue, command);
                        list[3].push_back(command);
                    }
                }
                _ => assert_eq!(all.reap(queue), list[3].pop_front(), "{context}"),
            }
            let visible = lists.iter().map(|list| list[1].len()).sum::<usize>() as u32;
            assert_eq!(all.visible(), visible, "{context}");
        }
    }
}
