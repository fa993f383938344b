//! Bookings and transfers compared with plain lists of intervals, and hand calculations.

use super::*;
use proptest::prelude::*;

/// A track, known by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track(u32);

#[test]
fn a_booking_takes_the_server_that_is_free_first() {
    let mut cores = Resource::new(2, Track);
    assert_eq!(cores.book(Ps(0), Ps(10)), Booked { start: Ps(0), end: Ps(10), server: 0 });
    assert_eq!(cores.book(Ps(1), Ps(4)), Booked { start: Ps(1), end: Ps(5), server: 1 });
    assert_eq!(cores.book(Ps(2), Ps(4)), Booked { start: Ps(5), end: Ps(9), server: 1 });
    assert_eq!(cores.book_on(0, Ps(3), Ps(1)), Booked { start: Ps(10), end: Ps(11), server: 0 });
    assert_eq!((cores.served(), cores.waited()), (4, Ps(10)));
    assert_eq!(cores.busy(), [Ps(11), Ps(8)]);
    assert_eq!(cores.busy_until(Ps(10)).collect::<Vec<_>>(), [Ps(10), Ps(8)]);
    let span = cores.span(Booked { start: Ps(1), end: Ps(5), server: 1 }, "translate", "host", 7);
    assert_eq!((span.track, span.start, span.end), (Track(1), Ps(1), Ps(5)));
}

#[test]
fn pipelined_hardware_never_waits() {
    let mut stage = Resource::new(1, Track);
    stage.pipelined(0, Ps(0), Ps(10));
    assert_eq!(stage.pipelined(0, Ps(1), Ps(10)), Booked { start: Ps(1), end: Ps(11), server: 0 });
    assert_eq!((stage.busy(), stage.free_at(0), stage.waited()), (&[Ps(20)][..], Ps(11), Ps::ZERO));
}

#[test]
fn a_port_is_busy_for_its_bytes_and_late_by_its_latency() {
    let mut port = TransferPort::new(Track, 1_000_000_000, Ps::from_ns(26), 2.5);
    let first = port.transfer(Ps::ZERO, 100);
    let second = port.transfer(Ps::ZERO, 100);
    assert_eq!((first.start, first.end), (Ps::ZERO, Ps::from_ns(126)));
    assert_eq!((second.start, second.end), (Ps::from_ns(100), Ps::from_ns(226)));
    assert_eq!(port.span(second, "fill", (), 0).end, Ps::from_ns(200));
    assert_eq!((port.bytes(), port.energy_pj()), (200, 500.0));
    let mut ideal = TransferPort::new(Track, 0, Ps::from_ns(26), 2.5);
    let there = ideal.transfer(Ps(5), 1 << 30);
    assert_eq!((there.start, there.end, ideal.resource().busy()[0]), (Ps(5), Ps(5), Ps::ZERO));
    assert_eq!(ideal.span(there, "fill", (), 0).end, Ps(5));
}

#[test]
fn a_line_waits_for_a_burst_and_delays_the_rest() {
    let mut port = TransferPort::new(Track, 1_000_000_000, Ps::from_ns(10), 0.0);
    let page = port.transfer(Ps::ZERO, 4_096);
    assert_eq!(page.end, Ps::from_ns(4_106));
    // 1,000 ns are in the fourth burst of 256 ns, which ends at 1,024 ns.
    let first = port.line(Ps::from_ns(1_000), 64, 256);
    assert_eq!((first.start, first.end), (Ps::from_ns(1_024), Ps::from_ns(1_098)));
    let second = port.line(Ps::from_ns(1_000), 64, 256);
    assert_eq!((second.start, second.end), (Ps::from_ns(1_088), Ps::from_ns(1_162)));
    assert_eq!(port.ahead(), Ps::from_ns(128), "the page is late by two lines");
    assert_eq!(port.transfer(Ps::from_ns(1_000), 1).start, Ps::from_ns(4_224));
    let busy: Ps = port.resource().busy_until(Ps::from_ns(2_000)).sum();
    assert_eq!(busy, Ps::from_ns(2_000));
    let alone = port.line(Ps::from_ns(9_000), 64, 256);
    assert_eq!((alone.start, port.ahead()), (Ps::from_ns(9_000), Ps::from_ns(128)));
}

#[test]
fn power_times_time_is_energy() {
    assert_eq!(energy_pj(1_000_000.0, Ps::from_us(1)), 1_000_000.0);
}

proptest! {
    /// Compares bookings with a model: servers are plain numbers, and each booking is found by a search through
    /// them.
    #[test]
    fn first_come_first_served(servers in 1u32..5, asked in prop::collection::vec((0u64..20, 0u64..30), 1..100)) {
        let mut resource = Resource::new(servers, Track);
        let mut model = vec![0u64; servers as usize];
        let (mut now, mut total) = (0, 0);
        for (wait, lasts) in asked {
            now += wait;
            total += lasts;
            let start = *model.iter().min().unwrap().max(&now);
            let server = if model.iter().any(|&f| f <= now) {
                // Any free server will do: service begins at once.
                None
            } else {
                model.iter().position(|&f| f == start)
            };
            let booked = resource.book(Ps(now), Ps(lasts));
            prop_assert_eq!(booked.start, Ps(start));
            prop_assert_eq!(booked.end, Ps(start + lasts));
            prop_assert!(model[booked.server as usize] <= start);
            if let Some(server) = server {
                prop_assert_eq!(booked.server as usize, server);
            }
            model[booked.server as usize] = start + lasts;
        }
        prop_assert_eq!(resource.busy().iter().copied().sum::<Ps>(), Ps(total));
    }
}

/// A step of a random run: the way of booking, the time since the step before, the length of the service.
fn steps() -> impl Strategy<Value = Vec<(u8, u64, u64, u32)>> {
    prop::collection::vec((0u8..3, 0u64..12, 0u64..20, any::<u32>()), 1..120)
}

proptest! {
    /// Servers booked in any of the ways that wait have one service at a time, and are busy up to any moment for as
    /// long as their services cover it, picosecond by picosecond.
    #[test]
    fn busy_times_are_those_of_the_services_one_by_one(servers in 1u32..4, steps in steps()) {
        let mut resource = Resource::new(servers, Track);
        let mut services: Vec<Vec<(u64, u64)>> = vec![Vec::new(); servers as usize];
        let (mut now, mut waited) = (0, 0);
        for &(way, since, lasts, number) in &steps {
            now += since;
            let booked = if way == 0 {
                resource.book_on(number % servers, Ps(now), Ps(lasts))
            } else {
                resource.book(Ps(now), Ps(lasts))
            };
            let mine = &mut services[booked.server as usize];
            let (start, end) = (booked.start.0, booked.end.0);
            prop_assert_eq!(end - start, lasts);
            prop_assert_eq!(start, now.max(mine.last().map_or(0, |&(_, end)| end)), "at once, or behind the last one");
            mine.push((start, end));
            waited += start - now;
            let until: Vec<u64> = resource.busy_until(Ps(now)).map(|busy| busy.0).collect();
            for (server, found) in until.into_iter().enumerate() {
                let covers = |&(start, end): &(u64, u64)| end.min(now).saturating_sub(start.min(now));
                prop_assert_eq!(found, services[server].iter().map(covers).sum::<u64>(), "server {}, {}", server, now);
            }
        }
        prop_assert_eq!((resource.served(), resource.waited()), (steps.len() as u64, Ps(waited)));
        for (server, mine) in services.iter().enumerate() {
            let last = mine.last().map_or(0, |&(_, end)| end);
            prop_assert_eq!(resource.free_at(server as u32), Ps(last));
            prop_assert_eq!(resource.busy()[server], Ps(mine.iter().map(|(start, end)| end - start).sum()));
        }
    }

    /// Pipelined hardware begins everything at once; work that has to wait for it waits for its longest service.
    #[test]
    fn what_waits_for_a_pipeline_waits_for_its_longest_service(steps in steps()) {
        let mut resource = Resource::new(2, Track);
        let (mut now, mut free, mut total) = (0, [0u64; 2], [0u64; 2]);
        for (way, since, lasts, number) in steps {
            now += since;
            let server = (number % 2) as usize;
            let (booked, start) = if way == 0 {
                (resource.book_on(server as u32, Ps(now), Ps(lasts)), now.max(free[server]))
            } else {
                (resource.pipelined(server as u32, Ps(now), Ps(lasts)), now)
            };
            prop_assert_eq!(booked, Booked { start: Ps(start), end: Ps(start + lasts), server: server as u32 });
            free[server] = free[server].max(start + lasts);
            total[server] += lasts;
        }
        prop_assert_eq!(resource.busy(), &total.map(Ps)[..]);
        prop_assert_eq!([0, 1].map(|server| resource.free_at(server)), free.map(Ps));
    }

    /// A port of a byte a picosecond: lines follow each other and wait for no more than a burst, nothing is lost, and
    /// the last transfer, delayed by the lines that went ahead of it, ends when the port is free.
    #[test]
    fn lines_go_ahead_by_at_most_a_burst_and_the_port_moves_every_byte(
        steps in steps(), burst in 1u64..40, latency in 0u64..9,
    ) {
        let mut port = TransferPort::new(Track, 1_000_000_000_000, Ps(latency), 0.5);
        let (mut now, mut bytes, mut free, mut last_line) = (0, 0, 0u64, 0u64);
        // The last transfer's end, and the time that lines had gone ahead when it was booked.
        let mut last: Option<(u64, u64)> = None;
        for (way, since, length, _) in steps {
            now += since;
            let (busy, ahead) = (free > now, port.ahead().0);
            let booked = if way == 0 {
                let booked = port.transfer(Ps(now), length);
                prop_assert_eq!(booked.start.0, free.max(now));
                prop_assert_eq!(booked.end.0, free.max(now) + length + latency);
                last = Some((booked.end.0 - latency, ahead));
                booked
            } else {
                let booked = port.line(Ps(now), length, burst);
                let start = booked.start.0;
                prop_assert!(start >= now.max(last_line), "line at {} before {} or the line before it", start, now);
                prop_assert!(start <= free.max(now) && start < now.max(last_line) + burst, "line at {}", start);
                prop_assert_eq!(booked.end.0, start + length + latency);
                prop_assert_eq!(port.ahead().0 - ahead, if busy { length } else { 0 });
                last_line = start + length;
                if !busy {
                    // The transfers before it are over.
                    last = None;
                }
                booked
            };
            let span = port.span(booked, "moved", (), 0);
            prop_assert_eq!((span.start, span.end), (booked.start, booked.end - Ps(latency)));
            free = free.max(now) + length;
            bytes += length;
            prop_assert_eq!(port.resource().free_at(0).0, free);
            if let Some((end, then)) = last {
                prop_assert_eq!(end + port.ahead().0 - then, free, "the last transfer ends with the port's work");
            }
        }
        prop_assert_eq!((port.bytes(), port.resource().busy()[0]), (bytes, Ps(bytes)));
        prop_assert_eq!(port.energy_pj(), bytes as f64 * 0.5);
    }
}

#[test]
fn a_resource_without_servers_and_a_burst_without_bytes_are_refused() {
    for (work, says) in [
        ((|| drop(Resource::new(0, Track))) as fn(), "a resource of 0 servers"),
        (|| _ = TransferPort::new(Track, 1, Ps::ZERO, 0.0).line(Ps::ZERO, 1, 0), "bursts of 0 bytes"),
    ] {
        let found = std::panic::catch_unwind(work).unwrap_err();
        let text = found.downcast_ref::<&str>().expect("a text without numbers");
        assert!(text.contains(says), "{text}");
    }
}
