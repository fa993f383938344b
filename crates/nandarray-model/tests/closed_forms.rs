//! Promise: what can be worked out by hand comes out of the whole machine, to 1 %.
//!
//! MQSim's "ideal" device: 8 channels of 333 MT/s x8 (3 ns a byte), 4 chips, 2 dies, 2 planes, pages of 8 KiB; tR 75
//! us, tPROG 750 us; a link of 4 B/ns in packets of 128 B and 28 B of overhead. Its ready line adds 20 ns, its commands
//! take 290 ns (read), 361 ns (program), 650 ns and 816 ns for a further plane, 30 ns to ask for data.

use nandarray_model::describe::{self, Description, KEYS, ValueKind};
use nandarray_model::{IoRequest, Machine, Ps, RequestList, RequestOp, RequestStatus};

const US_A_BYTE: f64 = 0.003;
const PAGE: u64 = 8_192;

/// Returns the time of a message on the link, in microseconds.
fn link(bytes: u64) -> f64 {
    (bytes + bytes.div_ceil(128) * 28) as f64 / 4_000.0
}

/// Returns the time of a command and its completion on the link, in microseconds.
fn entries() -> f64 {
    link(64) + link(16)
}

fn device(overrides: &[(&str, &str)]) -> Description {
    describe::preset_with("mqsim-ideal", overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs `n` requests of `bytes` bytes at consecutive addresses from 0 on; returns modelled microseconds in all, and the
/// mean latency.
fn run(d: &Description, op: RequestOp, bytes: u64, depth: u32, n: u64) -> (f64, f64) {
    let mut machine = Machine::new(d, 1, None);
    machine.attach_blocks(1).unwrap();
    if op == RequestOp::Read {
        machine.ftl().fill_sequential().unwrap();
    }
    let requests = (0..n).map(|i| IoRequest { at: None, op, stream: 0, offset_bytes: i * bytes, bytes });
    let mut took = Ps::ZERO;
    let each = &mut |e: &nandarray_model::RequestEnded| {
        assert_eq!(e.status, RequestStatus::Success);
        took += e.done - e.arrived;
    };
    machine.drive(&mut RequestList::new(requests, Some(depth)), each, &mut |_| true).unwrap();
    (machine.now().us(), took.us() / n as f64)
}

fn within(what: &str, got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 0.01, "{what}: {got} instead of {want}");
}

/// Returns the words of all scheduling policies.
fn policies() -> &'static [&'static str] {
    let key = KEYS.iter().find(|key| key.path == "controller.scheduling").expect("a key");
    let ValueKind::Word(words) = key.kind else { panic!("{:?} are no words", key.kind) };
    words
}

#[test]
fn one_read_at_a_time() {
    for &scheduling in policies() {
        let d = device(&[("controller.scheduling", scheduling)]);
        for bytes in [4_096, 8_192] {
            let want = entries() + 0.290 + 75.020 + 0.030 + bytes as f64 * US_A_BYTE + link(bytes);
            let (_, mean) = run(&d, RequestOp::Read, bytes, 1, 200);
            within(&format!("{bytes} B read, {scheduling}"), mean, want);
        }
        // MQSim's latencies are 88.9 and 102.4 us.
        within("4 KiB", run(&d, RequestOp::Read, 4_096, 1, 200).1, 88.9);
        within("8 KiB", run(&d, RequestOp::Read, 8_192, 1, 200).1, 102.4);
    }
}

#[test]
fn one_write_at_a_time() {
    for &scheduling in policies() {
        let d = device(&[("controller.scheduling", scheduling)]);
        // The second of two pages goes to another channel, so only the link takes longer.
        for (pages, mqsim) in [(1, 777.5), (2, 780.0)] {
            let bytes = pages * PAGE;
            let want = entries() + link(bytes) + 0.361 + PAGE as f64 * US_A_BYTE + 750.020;
            let (_, mean) = run(&d, RequestOp::Write, bytes, 1, 100);
            within(&format!("{bytes} B written, {scheduling}"), mean, want);
            within(&format!("{bytes} B written, beside MQSim"), mean, mqsim);
        }
    }
}

/// Reads every page of every plane of one channel in rotation, with 256 reads in flight; returns microseconds per page.
fn channel_page_us(overrides: &[(&str, &str)]) -> f64 {
    let one = [("geometry.channels", "1"), ("ftl.striping", "static PWDC")];
    let all: Vec<_> = one.into_iter().chain(overrides.iter().copied()).collect();
    let n = 4_000;
    run(&device(&all), RequestOp::Read, PAGE, 256, n).0 / n as f64
}

#[test]
fn a_saturated_channel_is_bound_by_its_bus() {
    // Some dies sense while another transfers: one command per page takes the bus for less time than a further plane
    // in a command would.
    let transfer = PAGE as f64 * US_A_BYTE + 0.030;
    within("a page of 75 us", channel_page_us(&[]), transfer + 0.290);
    // With one page per command the bus would not be busy all the time; commands for two planes, with two transfers
    // each, keep it busy.
    within("a page of 200 us", channel_page_us(&[("nand.t_read", "200 us")]), transfer + (0.290 + 0.650) / 2.0);
}

#[test]
fn dies_that_are_slower_than_the_bus_bound_the_channel() {
    // A round of one die: command, sensing and transfer of its two pages, while the other seven dies work.
    let t_read = 1_000.0;
    let round = 0.940 + t_read + 0.020 + 2.0 * (PAGE as f64 * US_A_BYTE + 0.030);
    within("a page of 1 ms", channel_page_us(&[("nand.t_read", "1 ms")]), round / 16.0);
}

#[test]
fn mqsims_channel_senses_and_transfers_in_turn() {
    let compat = ("controller.scheduling", "mqsim-compat");
    let page = PAGE as f64 * US_A_BYTE + 0.030;
    let round = |pages: f64, t_read: f64| (t_read + 0.020 + 0.940 + pages * page) / pages;
    // A chip executes one command at a time, however many dies it has: 4 chips of 2 planes, then 8 chips of one die.
    within("8 pages a round", channel_page_us(&[compat]), round(8.0, 75.0));
    let eight = [compat, ("geometry.ways", "8"), ("geometry.dies", "1")];
    within("16 pages a round", channel_page_us(&eight), round(16.0, 75.0));
    within("8 pages of 300 us", channel_page_us(&[compat, ("nand.t_read", "300 us")]), round(8.0, 300.0));
}

#[test]
fn sequential_writes_are_bound_by_programming() {
    // All 128 planes program at once, or those of one die on each of 32 chips: MQSim's rate is 655 MB/s.
    let bus = 2.0 * PAGE as f64 * US_A_BYTE + 0.361 + 0.816;
    for (scheduling, dies) in [("normal", 64.0), ("mqsim-compat", 32.0)] {
        let d = device(&[("controller.scheduling", scheduling)]);
        let n = 12_800;
        let (us, _) = run(&d, RequestOp::Write, 128 << 10, 64, n);
        let rate = (n * (128 << 10)) as f64 / us;
        let want = dies * 2.0 * PAGE as f64 / (750.020 + bus);
        within(&format!("MB/s written, {scheduling}"), rate, want);
    }
}

#[test]
fn a_link_slower_than_the_flash_bounds_reads() {
    let d = device(&[("link.rate", "1 GB/s")]);
    let n = 2_000;
    let bytes = 128 << 10;
    let (us, _) = run(&d, RequestOp::Read, bytes, 32, n);
    // Pages cross the link one by one, and each request's completion follows its pages.
    let each = 4.0 * (16.0 * link(PAGE) + link(16));
    within("128 KiB over 1 GB/s", us / n as f64, each);
}

#[test]
fn requests_in_flight_are_rate_times_latency() {
    // By Little's law, rate times mean latency is the number in flight, which a closed loop keeps constant.
    for depth in [4, 32, 256] {
        let n = 40_000;
        let (us, mean) = run(&device(&[]), RequestOp::Read, 4_096, depth, n);
        within(&format!("depth {depth}"), mean * n as f64 / us, f64::from(depth));
    }
}

#[test]
fn reads_cross_dram_as_often_as_described() {
    for (crossings, n) in [("0", 0.0), ("1", 1.0), ("2", 2.0)] {
        let d = device(&[("dram.rate", "1 GB/s"), ("dram.t_access", "50 ns"), ("dram.read_crossings", crossings)]);
        let through = if n > 0.0 { n * PAGE as f64 / 1_000.0 + 0.050 } else { 0.0 };
        let want = entries() + 0.290 + 75.020 + 0.030 + PAGE as f64 * US_A_BYTE + through + link(PAGE);
        within(&format!("alone, {crossings} crossings"), run(&d, RequestOp::Read, PAGE, 1, 200).1, want);
        if n > 0.0 {
            let (us, _) = run(&d, RequestOp::Read, 128 << 10, 32, 1_000);
            within(&format!("MB/s, {crossings} crossings"), (1_000 * (128 << 10)) as f64 / us, 1_000.0 / n);
        }
    }
    // If data bypasses DRAM, the flash bounds the rate, however slow DRAM is.
    let past = |rate: &'static str| device(&[("dram.rate", rate), ("dram.read_crossings", "0")]);
    let us = |rate| run(&past(rate), RequestOp::Read, 128 << 10, 32, 1_000).0;
    assert_eq!(us("100 MB/s"), us("ideal"));
    // Software that translates spaces reads whole pages past it, too: `tests/store.rs`. Data that the device assembles
    // lies in DRAM.
}

/// Draws a random device: 2 to 12 channels, 1 to 4 dies and planes, pages of 4 to 16 KiB, 400 to 2,400 MT/s, links of 2
/// to 14 GB/s.
fn drawn(seed: u64) -> Vec<(&'static str, String)> {
    let mut chance = fastrand::Rng::with_seed(seed);
    vec![
        ("geometry.channels", chance.u32(2..=12).to_string()),
        ("geometry.dies", chance.u32(1..=4).to_string()),
        ("geometry.planes", chance.u32(1..=4).to_string()),
        ("geometry.blocks", "256".to_owned()),
        ("geometry.page_size", format!("{} KiB", 4 << chance.u32(0..=2))),
        ("bus.rate", format!("{} MT/s x8", chance.u32(400..=2_400))),
        ("link.rate", format!("{} GB/s", chance.u32(2..=14))),
    ]
}

#[test]
fn geometries_drawn_by_chance_are_as_their_closed_forms() {
    for seed in 1..=5 {
        let drawn = drawn(seed);
        let with = |more: &[(&'static str, &str)]| {
            let all: Vec<_> =
                drawn.iter().map(|(key, value)| (*key, value.as_str())).chain(more.iter().copied()).collect();
            device(&all)
        };
        let d = with(&[]);
        let page = u64::from(d.geometry.page_bytes);
        let bus = |bytes: u64| bytes as f64 / d.bus.bytes_per_s as f64 * 1e6;
        let link = |bytes: u64| (bytes + bytes.div_ceil(128) * 28) as f64 / d.link.bytes_per_s as f64 * 1e6;
        // Data is written to DRAM and read from it.
        let dram = |bytes: u64| 2.0 * (bytes as f64 / d.dram.bytes_per_s as f64 * 1e6 + d.dram.t_access.us());
        let entries = link(64) + link(16);
        let message = |what: &str| format!("seed {seed}, {drawn:?}: {what}");
        for bytes in [4_096, page] {
            let want = entries + 0.290 + 75.020 + 0.030 + bus(bytes) + dram(bytes) + link(bytes);
            within(&message("a read alone"), run(&d, RequestOp::Read, bytes, 1, 100).1, want);
        }
        let want = entries + link(page) + dram(page) + 0.361 + bus(page) + 750.020;
        within(&message("a write alone"), run(&d, RequestOp::Write, page, 1, 50).1, want);
        // Sensing takes no time, so every channel is always busy; commands use all planes, or one plane each.
        let free = [("link.rate", "200 GB/s"), ("dram.rate", "ideal")];
        let fast = with(&[("nand.t_read", "5 us"), ("ftl.striping", "static CPWD"), free[0], free[1]]);
        let n = 4_000 * u64::from(fast.geometry.channels);
        let rate = n as f64 * page as f64 / run(&fast, RequestOp::Read, page, 256 * fast.geometry.channels, n).0;
        let planes = f64::from(fast.geometry.planes);
        let further = fast.bus.t_read_further_plane.us();
        let [joined, single] = [(0.290 + further * (planes - 1.0)) / planes, 0.290]
            .map(|command| f64::from(fast.geometry.channels) * page as f64 / (command + 0.030 + bus(page)));
        let (least, most) = (joined.min(single), joined.max(single));
        eprintln!("{}", message(&format!("{rate:.1} B/us of {joined:.1} joined, {single:.1} not")));
        assert!(rate > 0.99 * least && rate < 1.01 * most, "{}", message(&format!("{rate} of {least} to {most}")));
        // The link is slower than the flash.
        let slow = with(&[("nand.t_read", "5 us"), ("link.rate", "500 MB/s")]);
        let (bytes, n) = (128 << 10, 1_000);
        let each = (bytes / page) as f64 * (page + page.div_ceil(128) * 28) as f64 / 500.0 + (16 + 28) as f64 / 500.0;
        within(&message("reads over a slow link"), run(&slow, RequestOp::Read, bytes, 32, n).0 / n as f64, each);
    }
}
