//! Runs compared with closed forms: one fetch, rows of fetches, shared fetches, limits of queues, links and slices.

use super::*;
use crate::describe::Sheet;

const DEVICE: &str = include_str!("../../../../papers/nandarray_papers/bam/devices/optane-p5800x.toml");

fn devices(n: usize) -> Vec<Description> {
    let description = Sheet::parse(DEVICE).and_then(|sheet| sheet.description()).expect("a description");
    vec![description; n]
}

fn platform() -> FetchPlatform {
    FetchPlatform {
        resident_tasks: 1024,
        t_group_ns: 100.0,
        atomic_slices: 8,
        t_atomic_ns: 1.0,
        t_phase_ns: 10_000.0,
        queue_pairs: 16,
        queue_depth: 1024,
        t_enqueue_ns: 10.0,
        t_poll_ns: 500.0,
        cpu_threads: 0,
        t_cpu_ns: 0.0,
        t_cpu_kib_ns: 0.0,
        link_rate: 28_000_000_000,
        link_payload: 256,
        link_overhead: 28,
        t_link_ns: 100.0,
        stripe_bytes: 4096,
    }
}

/// Returns a recording of tasks with one group each, whose only access is to a fetch of its own.
fn apart(tasks: u32, bytes: u32) -> FetchRecording {
    let rows: Vec<u32> = (0..tasks).flat_map(|t| [0, t, 0, 0, t, 1]).collect();
    let addresses = (0..u64::from(tasks)).map(|t| t.wrapping_mul(0x9e37_79b9) % (1 << 20) * 4096).collect();
    FetchRecording::new(&rows, addresses, vec![bytes; tasks as usize]).unwrap()
}

fn run(devices_n: usize, platform: &FetchPlatform, recording: &FetchRecording) -> FetchReport {
    run_fetches(&devices(devices_n), platform, recording, 1).unwrap()
}

#[test]
fn a_fetch_takes_the_time_of_its_way() {
    let one = run(1, &platform(), &apart(1, 512));
    assert!((6.0..12.0).contains(&(one.seconds * 1e6)), "{one:?}");
    let later = run(1, &FetchPlatform { t_poll_ns: 2500.0, ..platform() }, &apart(1, 512));
    assert!((later.seconds - one.seconds - 2e-6).abs() < 1e-12, "{later:?}");
    assert_eq!((one.reads, one.bytes_read, one.atomics, one.in_flight_max), (1, 512, 1, 1));
    let nothing = run(1, &platform(), &FetchRecording::default());
    assert_eq!((nothing.reads, nothing.seconds), (0, 0.0));
}

#[test]
fn groups_follow_one_another_and_accesses_of_a_group_do_not() {
    let addresses: Vec<u64> = (0..8).map(|i| i * 4096).collect();
    let of = |row: &dyn Fn(u32) -> [u32; 6]| {
        let rows: Vec<u32> = (0..8).flat_map(row).collect();
        run(1, &platform(), &FetchRecording::new(&rows, addresses.clone(), vec![512; 8]).unwrap()).seconds
    };
    let together = of(&|i| [0, 0, 0, 0, i, 1]);
    let in_turn = of(&|i| [0, 0, i, 0, i, 1]);
    let launched = of(&|i| [i, 0, 0, 0, i, 1]);
    assert!(in_turn > 4.0 * together, "{in_turn} {together}");
    assert!((launched - in_turn - 7.0 * 10e-6).abs() < 1e-9, "{launched} {in_turn}");
}

#[test]
fn a_fetch_is_made_once_whoever_wants_it() {
    let rows: Vec<u32> = (0..100).flat_map(|t| [0, t, 0, 0, 0, 2]).collect();
    let report = run(1, &platform(), &FetchRecording::new(&rows, vec![0], vec![4096]).unwrap());
    assert_eq!((report.reads, report.touches, report.atomics), (1, 100, 200));
    // 200 atomics of 1 ns on one slice.
    assert!(report.atomics_busy_max * report.seconds > 199e-9, "{report:?}");
}

#[test]
fn devices_add_up_until_the_link_is_full() {
    let recording = apart(20_000, 512);
    let rate = |n| 20_000.0 / run(n, &platform(), &recording).seconds;
    let (one, four) = (rate(1), rate(4));
    assert!((3.5..4.1).contains(&(four / one)), "{one} {four}");
    let narrow = FetchPlatform { link_rate: 2_000_000_000, ..platform() };
    let full = run(4, &narrow, &recording);
    assert!(full.link_up > 0.95, "{full:?}");
    // Bytes sent to memory for each read: the request for the entry, three packets of data and completion, 28 bytes of
    // overhead each.
    let bound = 2e9 / f64::from(28 + 512 + 2 * 28 + 16 + 28);
    assert!((20_000.0 / full.seconds / bound - 1.0).abs() < 0.05, "{full:?} {bound}");
}

#[test]
fn queues_bound_what_is_in_flight_and_a_cpu_bounds_the_rate() {
    let recording = apart(2_000, 512);
    let shallow = FetchPlatform { queue_pairs: 2, queue_depth: 4, ..platform() };
    let report = run(1, &shallow, &recording);
    assert_eq!((report.in_flight_max, report.reads), (8, 2_000));
    assert!(report.seconds > 2.0 * run(1, &platform(), &recording).seconds);
    let cpu = FetchPlatform { cpu_threads: 4, t_cpu_ns: 10_000.0, ..platform() };
    let report = run(1, &cpu, &recording);
    assert!((report.seconds - 2_000.0 * 10e-6 / 4.0).abs() < 30e-6, "{report:?}");
    assert!(report.cpu_busy > 0.98);
}

#[test]
fn writes_behind_take_less_time_than_writes_and_all_are_made() {
    let write = |kind: u32| {
        let rows: Vec<u32> = (0..64).flat_map(|i| [0, i % 4 / 4, i, kind, i, 1]).collect();
        let addresses = (0..64).map(|i| i * 4096).collect();
        run(1, &platform(), &FetchRecording::new(&rows, addresses, vec![4096; 64]).unwrap())
    };
    let (behind, waited) = (write(1), write(2));
    assert_eq!((behind.writes, waited.writes), (64, 64));
    assert!(behind.seconds < 0.5 * waited.seconds, "{} {}", behind.seconds, waited.seconds);
}

#[test]
fn drives_that_write_add_up() {
    let write = |n: usize| {
        let rows: Vec<u32> = (0..8_000).flat_map(|t| [0, t, 0, 2, t, 0]).collect();
        let addresses = (0..8_000u64).map(|t| t.wrapping_mul(0x9e37_79b9) % (1 << 18) * 4096).collect();
        run(n, &platform(), &FetchRecording::new(&rows, addresses, vec![4096; 8_000]).unwrap()).seconds
    };
    let (one, four) = (write(1), write(4));
    assert!((3.0..4.2).contains(&(one / four)), "{one} {four}");
}

#[test]
fn runs_are_the_same_again_and_nonsense_is_refused() {
    let recording = apart(500, 4096);
    let (a, b) = (run(2, &platform(), &recording), run(2, &platform(), &recording));
    assert_eq!((a.hash, a.seconds.to_bits()), (b.hash, b.seconds.to_bits()));
    let none = run_fetches(&[], &platform(), &recording, 1);
    assert!(none.unwrap_err().contains("no device"));
    let wrong = FetchPlatform { t_poll_ns: -1.0, ..platform() };
    assert!(run_fetches(&devices(1), &wrong, &recording, 1).unwrap_err().contains("t_poll_ns"));
    let zero = FetchPlatform { queue_pairs: 0, ..platform() };
    assert!(run_fetches(&devices(1), &zero, &recording, 1).unwrap_err().contains("queue_pairs"));
}

/// Devices of 16 MiB, which addresses soon exceed.
fn small(n: usize) -> Vec<Description> {
    let all = [("geometry.blocks", "16"), ("geometry.channels", "2"), ("ftl.over_provisioning", "45 %")];
    vec![crate::describe::preset_with("tiny", &all).unwrap(); n]
}

#[test]
fn addresses_are_striped_and_wrap_within_each_device() {
    for (seed, n) in [(1, 1), (2, 2), (3, 3)] {
        let mut chance = fastrand::Rng::with_seed(seed);
        for stripe_bytes in [512u64, 4096, 10_000, 1 << 20] {
            let platform = FetchPlatform { stripe_bytes, ..platform() };
            let bank = DriveBank::new(&small(n), &platform, 1).unwrap();
            let capacity = bank.capacity(0);
            // Without wrapping, the bytes of a device's stripes follow each other.
            let mut ends = vec![0u64; n];
            for stripe in 0..capacity / stripe_bytes / 2 * n as u64 {
                let (device, offset) = bank.place(stripe * stripe_bytes, 512);
                assert_eq!(u64::from(device), stripe % n as u64, "stripe {stripe} of {stripe_bytes} B");
                assert_eq!(offset, ends[device as usize], "stripe {stripe} of {stripe_bytes} B");
                ends[device as usize] += stripe_bytes;
            }
            for _ in 0..2_000 {
                let (address, bytes) = (chance.u64(..) >> chance.u32(0..40), chance.u32(1..=capacity as u32));
                let (device, offset) = bank.place(address, bytes);
                let end = offset + u64::from(bytes);
                assert!(end <= capacity, "seed {seed}: {bytes} B at {address} end at {end} of device {device}");
            }
        }
    }
}

/// Fetches that begin within a stripe, at addresses far beyond the devices: all of them are made.
#[test]
fn a_fetch_at_the_end_of_a_device_stays_on_it() {
    let devices = small(2);
    let capacity = DriveBank::new(&devices, &platform(), 1).unwrap().capacity(0);
    for seed in 0..12 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let rows: Vec<u32> = (0..60).flat_map(|t| [0, t, 0, 2 * u32::from(t % 3 == 0), t, 1]).collect();
        let bytes: Vec<u32> = (0..60).map(|_| [512, 4096, 6000, 70_000][chance.usize(0..4)]).collect();
        let addresses: Vec<u64> =
            (0..60).map(|_| 2 * capacity * chance.u64(1..1_000) - chance.u64(1..80_000)).collect();
        let recording = FetchRecording::new(&rows, addresses, bytes).unwrap();
        let report = run_fetches(&devices, &platform(), &recording, seed).unwrap();
        assert_eq!((report.reads, report.writes), (40, 20), "seed {seed}");
    }
    let recording = FetchRecording::new(&[0, 0, 0, 0, 1, 0], vec![0, 0], vec![512, u32::MAX]).unwrap();
    let refused = run_fetches(&devices, &platform(), &recording, 1).unwrap_err();
    assert_eq!(refused, format!("fetch 1 has 4294967295 B; a device has {capacity} B"));
}

/// Tasks of a group each on one warp, with no atomics and fetches that all touch the same bytes: times are sums.
#[test]
fn warps_share_groups_as_a_list_of_workers_does() {
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (warps, phases) = (chance.usize(1..6), chance.u32(1..4));
        let groups: Vec<Vec<u32>> =
            (0..phases).map(|_| (0..chance.usize(1..20)).map(|_| chance.u32(1..8)).collect()).collect();
        let mut rows = vec![[0, 0, 0, 0, 0, 0]];
        for (phase, tasks) in groups.iter().enumerate() {
            for (task, &n) in tasks.iter().enumerate() {
                // The fetch is in memory from the first phase on.
                rows.extend((0..n).map(|group| [phase as u32 + 1, task as u32, group, 0, 0, 0]));
            }
        }
        let platform = FetchPlatform { resident_tasks: warps, ..platform() };
        let recording = FetchRecording::new(&rows.concat(), vec![0], vec![512]).unwrap();
        let report = run(1, &platform, &recording);
        let mut now = report.phase_ends_s[0];
        for (phase, tasks) in groups.iter().enumerate() {
            now += platform.t_phase_ns * 1e-9;
            let mut free = vec![now; warps];
            for &n in tasks {
                let first = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
                *first += f64::from(n) * platform.t_group_ns * 1e-9;
            }
            now = free.into_iter().fold(0.0, f64::max);
            let found = report.phase_ends_s[phase + 1];
            assert!((found - now).abs() < 1e-11, "seed {seed}, phase {phase}: {found} s, not {now} s");
        }
        assert_eq!((report.reads, report.touches), (1, rows.len() as u64), "seed {seed}");
    }
}
