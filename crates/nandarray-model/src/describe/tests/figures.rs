//! Derived figures beside bounds that hold for any device, and beside the simplest devices, of which all is known.

use fastrand::Rng;

use crate::describe::{Description, preset_with};
use nandarray_sim::Ps;

/// Draws a device with odd times and any abilities.
fn drawn(chance: &mut Rng) -> Description {
    let text = |n: u64| n.to_string();
    let us = |n: u64| format!("{n} us");
    let (read, program) = (chance.u64(1..200), chance.u64(50..2_000));
    let changes: Vec<(&str, String)> = vec![
        ("geometry.channels", text(chance.u64(1..9))),
        ("geometry.ways", text(chance.u64(1..5))),
        ("geometry.dies", text(chance.u64(1..5))),
        ("geometry.planes", text(chance.u64(1..5))),
        ("geometry.page_size", format!("{} KiB", 4 << chance.u32(0..3))),
        ("bus.rate", format!("{} MT/s x8", chance.u64(100..4_000))),
        ("bus.transfers_spare", chance.bool().to_string()),
        ("nand.t_read", us(read)),
        ("nand.t_program", us(program)),
        ("nand.multi_plane", chance.bool().to_string()),
        ("nand.t_cache_read_busy", if chance.bool() { us(3) } else { "none".into() }),
        ("nand.t_cache_program_busy", if chance.bool() { us(5) } else { "none".into() }),
        ("nand.t_suspend_program", "none".into()),
        ("link.rate", format!("{} MB/s", chance.u64(100..8_000))),
        ("link.packet_payload", format!("{} B", chance.u64(16..4_096))),
        ("link.packet_overhead", format!("{} B", chance.u64(0..100))),
    ];
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, value)| (*key, value.as_str())).collect();
    preset_with("tiny", &changes).unwrap_or_else(|e| panic!("{changes:?}: {e}"))
}

#[test]
fn no_figure_is_better_than_its_parts_allow() {
    for seed in 0..400 {
        let d = drawn(&mut Rng::with_seed(seed));
        let (s, g) = (d.summarise(), d.geometry);
        let (dies, planes) = (g.channels * g.ways * g.dies, g.channels * g.ways * g.dies * g.planes);
        let pages = u64::from(planes) * u64::from(g.blocks) * u64::from(g.pages);
        assert_eq!((s.dies, s.planes, s.raw_bytes), (dies, planes, pages * u64::from(g.page_bytes)), "seed {seed}");
        assert_eq!(s.bus_bytes_per_s, u64::from(g.channels) * d.bus.bytes_per_s);
        let users = s.raw_bytes as f64 * 0.75;
        assert!((s.user_bytes as f64 - users).abs() <= 1.0, "seed {seed}: {} B of {users}", s.user_bytes);
        let together = if d.nand.multi_plane { planes } else { dies };
        for (what, rate, array) in
            [("read", s.read_bytes_per_s, d.nand.t_read[0]), ("program", s.program_bytes_per_s, d.nand.t_program[0])]
        {
            let cells = f64::from(together) * f64::from(g.page_bytes) / array.seconds();
            assert!(rate <= s.bus_bytes_per_s, "seed {seed}: {what} {rate} B/s over buses of {}", s.bus_bytes_per_s);
            assert!(rate as f64 <= cells, "seed {seed}: {what} {rate} B/s by cells that give {cells}");
            assert!(rate > 0, "seed {seed}: {what}");
        }
        let payload = f64::from(d.link.packet_payload_bytes);
        let share = payload / (payload + f64::from(d.link.packet_overhead_bytes));
        assert!((s.link_bytes_per_s as f64 - d.link.bytes_per_s as f64 * share).abs() <= 1.0, "seed {seed}");
        let read = d.nand.t_read[0] + d.bus.t_read_command + Ps::of_bytes(4_096, d.bus.bytes_per_s);
        assert!(s.read_4k_ps >= read + Ps::of_bytes(4_096, d.link.bytes_per_s), "seed {seed}: {}", s.read_4k_ps);
        assert!(s.write_page_ps >= d.nand.t_program[0] + Ps::of_bytes(g.page_bytes.into(), d.bus.bytes_per_s));
        assert!(s.write_page_seen_ps <= s.write_page_ps);
    }
}

/// A part that is made faster makes no figure worse.
#[test]
fn no_faster_part_makes_a_figure_worse() {
    let faster: [(&str, &dyn Fn(&mut Description)); 8] = [
        ("t_read", &|d| d.nand.t_read.iter_mut().for_each(|t| *t = Ps(t.0 / 2))),
        ("t_program", &|d| d.nand.t_program.iter_mut().for_each(|t| *t = Ps(t.0 / 2))),
        ("bus", &|d| d.bus.bytes_per_s *= 2),
        ("commands", &|d| (d.bus.t_read_command, d.bus.t_program_command) = (Ps::ZERO, Ps::ZERO)),
        ("link", &|d| d.link.bytes_per_s *= 2),
        ("overhead", &|d| d.link.packet_overhead_bytes = 0),
        ("ways", &|d| d.geometry.ways *= 2),
        ("host", &|d| (d.host.t_submit, d.host.t_complete) = (Ps::ZERO, Ps::ZERO)),
    ];
    for seed in 0..150 {
        let d = drawn(&mut Rng::with_seed(1_000 + seed));
        let before = d.summarise();
        for (what, change) in &faster {
            let mut d = d.clone();
            change(&mut d);
            let after = d.summarise();
            let rates = [
                (before.read_bytes_per_s, after.read_bytes_per_s),
                (before.program_bytes_per_s, after.program_bytes_per_s),
                (before.link_bytes_per_s, after.link_bytes_per_s),
            ];
            assert!(rates.iter().all(|(before, after)| after >= before), "seed {seed}, {what}: {rates:?}");
            let times = [(before.read_4k_ps, after.read_4k_ps), (before.write_page_ps, after.write_page_ps)];
            assert!(times.iter().all(|(before, after)| after <= before), "seed {seed}, {what}: {times:?}");
        }
    }
}

/// One die on one channel, whose commands take no time: all figures can be said in one line.
#[test]
fn figures_of_the_simplest_device_are_exact() {
    let mut d = preset_with(
        "tiny",
        &[
            ("geometry.channels", "1"),
            ("geometry.dies", "1"),
            ("geometry.planes", "1"),
            ("bus.rate", "1 GB/s"),
            ("nand.t_read", "40.96 us"),
            ("nand.t_program", "95.904 us"),
            ("nand.t_suspend_program", "none"),
            ("nand.t_ready", "0 s"),
            ("link.rate", "1 GB/s"),
            ("link.packet_payload", "4 KiB"),
            ("link.packet_overhead", "0 B"),
        ],
    )
    .unwrap();
    (d.bus.t_read_command, d.bus.t_data_out_command, d.bus.t_program_command) = (Ps::ZERO, Ps::ZERO, Ps::ZERO);
    let s = d.summarise();
    // A page of 4 KiB takes 4.096 us on the bus: sensed in ten times as long, or programmed so that all takes 100 us.
    assert_eq!((s.read_bytes_per_s, s.program_bytes_per_s), (4_096_000_000_000 / 45_056, 40_960_000));
    d.nand.t_cache_read_busy = Some(Ps::ZERO);
    assert_eq!(d.summarise().read_bytes_per_s, 100_000_000, "transfers are hidden behind sensing");
    d.nand.t_read = vec![Ps::ZERO; 2];
    assert_eq!(d.summarise().read_bytes_per_s, 1_000_000_000, "the bus is the bound");
    d.bus.bytes_per_s = 2_000_000_000;
    d.geometry.channels = 3;
    assert_eq!(d.summarise().read_bytes_per_s, 6_000_000_000);
}
