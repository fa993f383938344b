//! Conventional requests through the whole machine: each request ends once, the newest write is kept, the machine at
//! rest adds up, and faults reach the requests that they concern.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use proptest::prelude::*;

use nandarray::file_format::Ppa;
use nandarray::policy::GcPolicy;

use super::{Machine, PlatformPart, RequestEnded, RequestStatus, SpaceJobDone, SpaceJobId, SpaceJobKind};
use crate::describe::{self, Description, KEYS, ValueKind};
use crate::flash::fault::{BitErrors, DeadDie, SlowDie};
use crate::flash::{Cells, NandCells, OpCause, OpKind, PageAddress, Verdict};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace, StoreLayout};
use crate::workload::{IoRequest, RequestList, RequestOp};
use nandarray_sim::Ps;

const PAGE: u64 = 4096;

fn tiny(overrides: &[(&str, &str)]) -> Description {
    describe::preset_with("tiny", overrides).unwrap()
}

fn request(op: RequestOp, offset_bytes: u64, bytes: u64) -> IoRequest {
    IoRequest { at: None, op, stream: 0, offset_bytes, bytes }
}

fn with_blocks(mut machine: Machine) -> Machine {
    machine.attach_blocks(3).unwrap();
    machine
}

fn run(machine: &mut Machine, requests: impl IntoIterator<Item = IoRequest>, depth: Option<u32>) -> Vec<RequestEnded> {
    let mut ended = Vec::new();
    machine.drive(&mut RequestList::new(requests, depth), &mut |e| ended.push(*e), &mut |_| true).unwrap();
    machine.ftl().audit();
    ended
}

#[derive(Clone, Debug)]
struct Case {
    overrides: Vec<(&'static str, String)>,
    requests: Vec<IoRequest>,
    depth: Option<u32>,
    filled: bool,
}

impl Case {
    fn description(&self) -> Description {
        let overrides: Vec<(&str, &str)> = self.overrides.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let mut description = tiny(&overrides);
        // A map page would hold the whole map of so small a device: the cache holds only a part of it.
        description.ftl.map_cache_bytes = description.ftl.map_cache_bytes.map(|bytes| bytes / 32);
        description
    }
}

/// Returns the words of all scheduling policies.
fn policies() -> &'static [&'static str] {
    let key = KEYS.iter().find(|key| key.path == "controller.scheduling").expect("a key");
    let ValueKind::Word(words) = key.kind else { panic!("{:?} are no words", key.kind) };
    words
}

/// Generates devices of 8 planes with 12 blocks of 8 pages and random settings of flash management, with requests to
/// them.
fn case() -> impl Strategy<Value = Case> {
    let words = |of: &'static [&'static str]| prop::sample::select(of).prop_map(str::to_owned);
    let settings = (
        words(GcPolicy::NAMES),
        words(&["ideal", "4 KiB", "32 KiB"]),
        words(&["none", "4 KiB", "32 KiB", "512 KiB"]),
        words(&["static CWDP", "static PDWC", "dynamic CWDP"]),
        words(policies()),
        words(&["true", "false"]),
        words(&["true", "false"]),
        words(&["none", "2"]),
        words(&["45 %", "60 %"]),
        words(&["0", "0", "2000", "30000"]),
    );
    let op = prop_oneof![
        5 => Just(RequestOp::Write), 3 => Just(RequestOp::Read), 1 => Just(RequestOp::Trim), 1 => Just(RequestOp::Flush)
    ];
    let one =
        (op, 0u64..1_000_000, prop_oneof![Just(0u64), 1u64..600, Just(PAGE), 1u64..5 * PAGE], any::<bool>(), 0u32..6);
    let requests = prop::collection::vec(one, 1..700);
    let depth = prop_oneof![Just(None), (1u32..70).prop_map(Some)];
    (settings, requests, depth, any::<bool>(), any::<bool>()).prop_map(|(s, requests_made, depth, filled, beyond)| {
        let early = if s.2 == "none" { "false".to_owned() } else { s.6 };
        let overrides = vec![
            ("ftl.gc", s.0),
            ("ftl.map_cache", s.1),
            ("ftl.write_cache", s.2),
            ("ftl.striping", s.3),
            ("controller.scheduling", s.4),
            ("ftl.gc_preemptible", s.5),
            ("ftl.early_completion", early),
            ("ftl.wear_static_threshold", s.7),
            ("ftl.over_provisioning", s.8),
            ("reliability.grown_bad_ppm", s.9),
            ("ftl.gc_urgent_blocks", "2".to_owned()),
            ("ftl.hot_cold", "true".to_owned()),
            ("geometry.channels", "2".to_owned()),
            ("geometry.blocks", "12".to_owned()),
            ("geometry.pages", "8".to_owned()),
        ];
        let mut case = Case { overrides, requests: Vec::new(), depth, filled };
        let mut machine = with_blocks(Machine::new(&case.description(), 1, None));
        let capacity = machine.capacity_bytes();
        let mut at = Ps::ZERO;
        for (op, place, bytes, aligned, stream) in requests_made {
            at += Ps::from_us(place % 90);
            let bytes = if op == RequestOp::Flush { 0 } else { bytes };
            let last = if beyond { capacity + 1 } else { capacity - bytes + 1 };
            let offset = (place * 7919) % last;
            let offset_bytes = if aligned { offset / PAGE * PAGE } else { offset };
            case.requests.push(IoRequest { at: depth.is_none().then_some(at), op, stream, offset_bytes, bytes });
        }
        case
    })
}

/// Runs a case; returns status, arrival and completion of each request by number, and the run's hash.
fn outcome(case: &Case) -> (Vec<(RequestStatus, Ps, Ps)>, u64) {
    let mut machine = with_blocks(Machine::new(&case.description(), 1, None));
    if case.filled {
        machine.ftl().fill_sequential().unwrap();
    }
    let (open, most) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(0u32)));
    // Equal requests are distinguished by their order.
    let mut numbers: HashMap<(u8, u64, u64, u32), VecDeque<usize>> = HashMap::new();
    let key = |r: &IoRequest| (r.op as u8, r.offset_bytes, r.bytes, r.stream);
    for (i, r) in case.requests.iter().enumerate() {
        numbers.entry(key(r)).or_default().push_back(i);
    }
    let mut all = vec![None; case.requests.len()];
    let (given, seen) = (open.clone(), most.clone());
    machine
        .drive(
            &mut RequestList::new(case.requests.iter().copied(), case.depth),
            &mut |e| {
                let i = numbers
                    .get_mut(&key(&e.request))
                    .and_then(VecDeque::pop_front)
                    .expect("ended more often than submitted");
                assert!(all[i].replace((e.status, e.arrived, e.done)).is_none());
                given.set(given.get() + 1);
                seen.set(seen.get().max(given.get()));
            },
            &mut |_| true,
        )
        .unwrap();
    machine.check();
    machine.ftl().audit();
    (all.into_iter().map(|one| one.expect("every request ends")).collect(), machine.hash())
}

proptest! {

    /// Every request ends exactly once, with a possible status; the machine's account is consistent; the same run has
    /// the same hash; never more requests are in flight than the closed loop's depth.
    #[test]
    fn every_request_ends_once(case in case()) {
        let (all, hash) = outcome(&case);
        let faults = case.overrides.iter().any(|(k, v)| *k == "reliability.grown_bad_ppm" && v != "0");
        let capacity = with_blocks(Machine::new(&case.description(), 1, None)).capacity_bytes();
        for (r, &(status, arrived, done)) in case.requests.iter().zip(&all) {
            prop_assert!(done >= arrived);
            let beyond = r.offset_bytes + r.bytes > capacity;
            prop_assert_eq!(status == RequestStatus::OutOfRange, beyond, "{:?}", r);
            prop_assert!(faults || beyond || status == RequestStatus::Success, "{:?}: {:?}", r, status);
            prop_assert!(status != RequestStatus::Unreadable);
            prop_assert!(status != RequestStatus::NoSpace || r.op != RequestOp::Read);
        }
        if let Some(depth) = case.depth {
            let mut moments: Vec<(Ps, i32)> = all.iter().flat_map(|&(_, a, d)| [(a, 1), (d, -1)]).collect();
            moments.sort_unstable();
            let mut open = 0;
            for (_, change) in moments {
                open += change;
                prop_assert!(open <= depth as i32, "{} in flight of {}", open, depth);
            }
        }
        prop_assert_eq!(outcome(&case).1, hash);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Every request ends exactly once, in a consistent and repeatable run, also where the pages of a word line are
    /// programmed together, so that pages often wait for each other.
    #[test]
    fn every_request_ends_once_with_word_lines(case in case(), qlc in any::<bool>(), whole_dies in any::<bool>()) {
        let mut case = case;
        let cell = if qlc {
            [("nand.cell", "qlc"), ("nand.t_read", "[20 us, 25 us, 30 us, 40 us]"), ("geometry.pages", "8")]
        } else {
            [("nand.cell", "tlc"), ("nand.t_read", "[20 us, 30 us, 40 us]"), ("geometry.pages", "9")]
        };
        let more = [("nand.one_shot", "true"), ("nand.t_program", "300 us"), ("nand.t_cache_program_busy", "5 us")];
        case.overrides.extend(cell.into_iter().chain(more).map(|(key, value)| (key, value.to_owned())));
        if whole_dies {
            case.overrides.push(("ftl.striping", "dynamic PCWD".to_owned()));
        }
        let (all, hash) = outcome(&case);
        let faults = case.overrides.iter().any(|(k, v)| *k == "reliability.grown_bad_ppm" && v != "0");
        for (r, &(status, arrived, done)) in case.requests.iter().zip(&all) {
            prop_assert!(done >= arrived);
            let fine = matches!(status, RequestStatus::Success | RequestStatus::OutOfRange);
            prop_assert!(faults || fine, "{:?}: {:?}", r, status);
        }
        prop_assert_eq!(outcome(&case).1, hash);
    }
}

#[test]
fn a_write_is_told_when_the_cache_has_it_and_read_from_there() {
    let base = [("ftl.write_cache", "1 MiB"), ("ftl.early_completion", "true")];
    let mut machine = with_blocks(Machine::new(&tiny(&base), 1, None));
    let writes = (0..16).map(|i| request(RequestOp::Write, i * 512, 512));
    let reads = [request(RequestOp::Read, 0, 2 * PAGE)];
    let ended = run(&mut machine, writes.chain(reads), Some(1));
    assert!(ended.iter().all(|e| e.done - e.arrived < Ps::from_us(20)), "{ended:?}");
    assert_eq!(machine.flash().counts.programs.iter().sum::<u64>(), 0, "nothing had to drain");
    let ended = run(&mut machine, [request(RequestOp::Flush, 0, 0)], Some(1));
    assert!(ended[0].done - ended[0].arrived > Ps::from_us(100));
    let report = machine.ftl().report();
    assert_eq!((report.programs[0], report.reads[0]), (2, 0), "two buffered pages, read from nowhere");
    // Without early completion the host waits for the program.
    let base = [("ftl.write_cache", "1 MiB"), ("ftl.early_completion", "false")];
    let mut machine = with_blocks(Machine::new(&tiny(&base), 1, None));
    let ended = run(&mut machine, [request(RequestOp::Write, 0, PAGE)], Some(1));
    assert!(ended[0].done - ended[0].arrived > Ps::from_us(100));
}

#[test]
fn rewrites_gather_in_the_cache_and_a_full_one_writes_at_the_pace_of_flash() {
    let d = tiny(&[("ftl.write_cache", "64 KiB"), ("ftl.early_completion", "true")]);
    let mut machine = with_blocks(Machine::new(&d, 1, None));
    run(&mut machine, (0..2_000).map(|i| request(RequestOp::Write, i % 4 * PAGE, PAGE)), Some(8));
    assert_eq!(machine.ftl().report().programs[0], 0);
    run(&mut machine, (0..2_000).map(|i| request(RequestOp::Write, i * PAGE, PAGE)), Some(8));
    let report = machine.ftl().report();
    assert!(report.programs[0] >= 2_000 - 16, "{report:?}");
}

fn dying(d: &Description, die: u32, from: Ps) -> Machine {
    let cells: Box<dyn Cells> = Box::new(NandCells::new(d, 1));
    with_blocks(Machine::with_cells(d, 1, None, Box::new(DeadDie::new(cells, die, from))))
}

#[test]
fn a_dead_die_fails_its_reads_and_holds_up_nobody() {
    for cache in ["none", "256 KiB"] {
        let d = tiny(&[("ftl.write_cache", cache), ("ftl.over_provisioning", "40 %")]);
        let mut machine = dying(&d, 2, Ps::ZERO);
        machine.ftl().fill_sequential().unwrap();
        let pages = machine.capacity_bytes() / PAGE;
        let ended = run(&mut machine, (0..pages).map(|i| request(RequestOp::Read, i * PAGE, PAGE)), Some(32));
        let lost = ended.iter().filter(|e| e.status == RequestStatus::Unreadable).count() as u64;
        assert!(lost.abs_diff(pages / 8) <= 2, "{lost} of {pages}: one die of eight");
        // Writes go to other planes as long as these have room; then they fail.
        let writes = (0..3 * pages).map(|i| request(RequestOp::Write, i * 7 % pages * PAGE, PAGE));
        let ended = run(&mut machine, writes, Some(32));
        let refused = ended.iter().filter(|e| e.status != RequestStatus::Success).count() as u64;
        assert!(refused < 3 * pages / 4, "{refused} of {}", 3 * pages);
        let reads = (0..pages).map(|i| request(RequestOp::Read, i * PAGE, PAGE));
        let ended = run(&mut machine, reads, Some(32));
        let lost_now = ended.iter().filter(|e| e.status == RequestStatus::Unreadable).count() as u64;
        assert!(lost_now <= refused, "{lost_now} unreadable after all was written anew, {refused} writes refused");
    }
}

#[test]
fn retries_and_a_slow_die_take_what_they_should() {
    let d = tiny(&[
        ("reliability.ecc_codeword_size", "1 KiB"),
        ("reliability.ecc_correctable_bits", "40"),
        ("reliability.t_ecc_decode", "2 us"),
        ("reliability.t_read_retry", "5 us"),
        ("reliability.read_retries_max", "5"),
    ]);
    let read = |wrap: &dyn Fn(Box<dyn Cells>, PageAddress) -> Box<dyn Cells>| {
        let place = {
            let mut machine = with_blocks(Machine::new(&d, 1, None));
            machine.ftl().fill_sequential().unwrap();
            machine.ftl().place_of(0).unwrap().unwrap()
        };
        let cells = wrap(Box::new(NandCells::new(&d, 1)), place);
        let mut machine = with_blocks(Machine::with_cells(&d, 1, None, cells));
        machine.ftl().fill_sequential().unwrap();
        let ended = run(&mut machine, [request(RequestOp::Read, 0, PAGE)], Some(1));
        (ended[0].done - ended[0].arrived, ended[0].status)
    };
    let (plain, _) = read(&|cells, _| cells);
    let verdict = |retries, lost| Verdict { retries, lost };
    let (retried, status) = read(&|cells, place| Box::new(BitErrors::new(cells, place, verdict(3, false))));
    // One round: read command 290 ns, sensing 20 us (an LSB page) + 5 us, ready 20 ns, data-out command 30 ns, 4 KiB
    // at 1 GB/s 4.096 us, and the decoding that remains after the transfer: code words arrive every 1.024 us and take
    // 2 us each, and one more code word.
    let round = Ps::from_ns(290 + 25_000 + 20 + 30) + Ps(4_096_000);
    let (least, most) = (round * 3, (round + Ps::from_us(9)) * 3);
    assert!(status == RequestStatus::Success && retried - plain > least && retried - plain < most, "{plain} {retried}");
    let (_, status) = read(&|cells, place| Box::new(BitErrors::new(cells, place, verdict(5, true))));
    assert_eq!(status, RequestStatus::Unreadable);
    let (slow, _) = read(&|cells, place| Box::new(SlowDie::new(cells, place.die, Ps::ZERO, 400)));
    assert_eq!(slow - plain, Ps::from_us(60), "sensing of 20 us takes 80");
}

#[test]
fn flushes_end_while_writes_go_on() {
    for (cache, early) in [("none", "false"), ("128 KiB", "true")] {
        let d = tiny(&[("ftl.write_cache", cache), ("ftl.early_completion", early), ("ftl.map_cache", "4 KiB")]);
        let mut machine = with_blocks(Machine::new(&d, 1, None));
        machine.ftl().fill_sequential().unwrap();
        let pages = machine.capacity_bytes() / PAGE;
        let requests_made = (0..20_000u64).map(|i| {
            if i % 100 == 99 {
                request(RequestOp::Flush, 0, 0)
            } else {
                request(RequestOp::Write, i * 7919 % pages * PAGE, 512)
            }
        });
        let ended = run(&mut machine, requests_made, Some(16));
        let worst =
            ended.iter().filter(|e| e.request.op == RequestOp::Flush).map(|e| e.done - e.arrived).max().unwrap();
        assert!(worst < Ps::from_ms(200), "a flush took {worst}");
        assert!(ended.iter().all(|e| e.status == RequestStatus::Success));
    }
}

#[test]
fn urgent_reclaim_goes_before_reads_and_ends() {
    let d = tiny(&[("ftl.gc_urgent_blocks", "6"), ("ftl.over_provisioning", "40 %")]);
    let mut machine = with_blocks(Machine::new(&d, 1, None));
    machine.ftl().fill_sequential().unwrap();
    let pages = machine.capacity_bytes() / PAGE;
    let requests_made = (0..30_000u64).map(|i| {
        let op = if i % 3 == 0 { RequestOp::Read } else { RequestOp::Write };
        request(op, i * 7919 % pages * PAGE, PAGE)
    });
    run(&mut machine, requests_made, Some(32));
    let urgent = machine.block().urgent_planes().to_vec();
    let now: Vec<bool> =
        (0..machine.ftl().planes()).map(|p| machine.ftl().urgency(p) == crate::ftl::Urgency::Urgent).collect();
    assert_eq!(urgent, now, "the flash has the newest urgency");
}

/// Runs ten million requests on a small device that reclaims all the time; ignored by default, since it takes long.
#[test]
#[ignore = "minutes"]
fn steady_reclaim_for_ten_million_requests() {
    // The blocks are erased more often than the preset's endurance allows.
    let endless = ("nand.endurance_cycles", "1000000");
    let d = tiny(&[("ftl.write_cache", "256 KiB"), ("ftl.early_completion", "true"), endless]);
    let mut machine = with_blocks(Machine::new(&d, 1, None));
    machine.ftl().fill_sequential().unwrap();
    let pages = machine.capacity_bytes() / PAGE;
    let mut chance = fastrand::Rng::with_seed(5);
    for _ in 0..100 {
        let requests_made: Vec<IoRequest> = (0..100_000)
            .map(|_| {
                let op = if chance.u8(..) < 128 { RequestOp::Read } else { RequestOp::Write };
                request(op, chance.u64(0..pages) * PAGE, PAGE)
            })
            .collect();
        let ended = run(&mut machine, requests_made, Some(64));
        assert!(ended.len() == 100_000 && ended.iter().all(|e| e.status == RequestStatus::Success));
    }
}

#[test]
fn a_device_that_slept_is_later_and_took_less() {
    let states =
        [("power.idle", "[50 mW, 5 mW]"), ("power.idle_after", "[10 ms, 100 ms]"), ("power.exit", "[10 us, 1 ms]")];
    let requests =
        [0u64, 50, 1_000].map(|ms| IoRequest { at: Some(Ps::from_ms(ms)), ..request(RequestOp::Read, 0, PAGE) });
    let [asleep, awake] = [&states[..], &[]].map(|with| {
        let mut machine = with_blocks(Machine::new(&tiny(with), 1, None));
        machine.ftl().fill_sequential().unwrap();
        let ended = run(&mut machine, requests, None);
        machine.check();
        let report = machine.report(&Default::default());
        report.check().unwrap();
        (ended.iter().map(|e| (e.done - e.arrived).us()).collect::<Vec<_>>(), report)
    });
    let later: Vec<f64> = asleep.0.iter().zip(&awake.0).map(|(a, b)| a - b).collect();
    for (later, want) in later.iter().zip([0.0, 10.0, 1_000.0]) {
        assert!((later - want).abs() < 1e-6, "{later} us instead of {want}");
    }
    let slept: Vec<_> = asleep.1.idle_states.iter().map(|s| (s.entered, (s.asleep_s * 1e3).round())).collect();
    assert_eq!(slept, [(2, 130.0), (1, 850.0)]);
    let joules: f64 = asleep.1.idle_states.iter().map(|s| s.power_w * s.asleep_s).sum();
    assert!((asleep.1.energy.asleep_j - joules).abs() < 1e-12);
    assert!(asleep.1.energy.device_j < awake.1.energy.device_j / 5.0, "{} J", asleep.1.energy.device_j);
    assert!(awake.1.idle_states.is_empty() && awake.1.energy.asleep_j == 0.0);
}

/// Makes a machine with a store, and a function that returns the trace of a command that reads one page of the n-th
/// plane.
fn store_machine() -> (Machine, impl Fn(u64) -> FlashTrace) {
    let d = tiny(&[("controller.spaces_in_device", "true")]);
    let layout = StoreLayout::new(d.geometry).unwrap();
    let mut machine = Machine::new(&d, 1, None);
    machine.add([PlatformPart::Spaces(layout)]).unwrap();
    let page = layout.store().page_bytes;
    let read = move |n: u64| FlashTrace {
        ops: vec![ExtentOp { op: OpKind::Read, cause: OpCause::Host, first: Ppa(n), pages: 1, last_bytes: page }],
        blocks: vec![BlockOps { ops_end: 1, runs: 1, bytes: u64::from(page) }],
        ..FlashTrace::default()
    };
    (machine, read)
}

#[test]
fn commands_are_submitted_while_others_are_in_flight() {
    let alone = {
        let (mut machine, read) = store_machine();
        let id = machine.submit_job(Ps::ZERO, SpaceJobKind::Read, 0, read(0));
        machine.run_job(id).done
    };
    let half = Ps(alone.0 / 2);
    let (mut machine, read) = store_machine();
    let first = machine.submit_job(Ps::ZERO, SpaceJobKind::Read, 0, read(0));
    assert_eq!(machine.next_job_until(half), None, "nothing is done by half its time");
    assert!(machine.now() <= half);
    let second = machine.submit_job(half, SpaceJobKind::Read, 0, read(1));
    let (one, two) = (machine.next_job().unwrap(), machine.next_job().unwrap());
    assert_eq!((one.id, one.done), (first, alone));
    assert_eq!((two.id, two.submitted, two.done), (second, half, half + alone), "another plane, at its own time");
    assert_eq!(machine.next_job(), None);
    machine.settle();
}

#[test]
fn completions_are_kept_until_they_are_asked_for() {
    let (mut machine, read) = store_machine();
    let ids: Vec<SpaceJobId> =
        (0..6).map(|n| machine.submit_job(Ps::ZERO, SpaceJobKind::Read, n, read(u64::from(n % 2)))).collect();
    // The last command waits for two others of its plane.
    let last = machine.run_job(ids[5]);
    let mut others: Vec<SpaceJobDone> = std::iter::from_fn(|| machine.next_job()).collect();
    assert_eq!(others.len(), 5);
    assert!(others.is_sorted_by_key(|done| done.done) && others.iter().all(|done| done.id != last.id));
    others.push(last);
    others.sort_by_key(|done| done.id);
    assert_eq!(others.iter().map(|done| done.id).collect::<Vec<_>>(), ids);
}

#[test]
fn shares_of_queues_follow_the_weights_of_their_classes() {
    let shares = |arbitration: &str| {
        let d = tiny(&[
            ("host.queues", "4"),
            ("host.arbitration", arbitration),
            ("host.arbitration_weights", "[4, 2, 1]"),
            // Queue 0 is urgent, queue 1 high, queue 2 medium, queue 3 low.
            ("host.queue_classes", "[1, 1, 1, 1]"),
            ("controller.command_slots", "1"),
        ]);
        let mut machine = with_blocks(Machine::new(&d, 1, None));
        machine.ftl().fill_sequential().unwrap();
        // All requests are submitted at the beginning, and the device executes one at a time.
        let all = (0..4 * 200u64).map(|i| IoRequest {
            at: Some(Ps::ZERO),
            stream: (i % 4) as u32,
            ..request(RequestOp::Read, i * PAGE, PAGE)
        });
        let first: Vec<u32> = run(&mut machine, all, None).iter().map(|e| e.request.stream).take(200 + 140).collect();
        [0, 1, 2, 3].map(|queue| first.iter().filter(|&&stream| stream == queue).count())
    };
    let [urgent, high, medium, low] = shares("weighted");
    // The urgent queue is served first; the others share 140 commands by 4, 2 and 1. The tolerance is for commands
    // that were fetched before all had been submitted.
    for (got, expected) in [(urgent, 200), (high, 80), (medium, 40), (low, 20)] {
        assert!(got.abs_diff(expected) <= 2, "{urgent}, {high}, {medium}, {low}");
    }
    assert_eq!(shares("round-robin"), [85; 4]);
}

/// A power failure is a look at the flash: it changes no event, and what was programmed by then only grows from one
/// event to the next.
#[test]
fn a_power_failure_sees_what_was_programmed_and_changes_nothing() {
    let small = [("geometry.blocks", "16"), ("ftl.over_provisioning", "45 %")];
    let d = tiny(&[("ftl.write_cache", "64 KiB"), ("ftl.early_completion", "true"), small[0], small[1]]);
    let run_until = |fails_after: Option<u64>| {
        let mut machine = with_blocks(Machine::new(&d, 1, None));
        fails_after.into_iter().for_each(|events| machine.fail_power_after(events));
        let pages = machine.capacity_bytes() / PAGE;
        let mut chance = fastrand::Rng::with_seed(4);
        let writes: Vec<IoRequest> =
            (0..600).map(|n| request(RequestOp::Write, chance.u64(0..pages) * PAGE, [PAGE, 512][n % 2])).collect();
        run(&mut machine, writes, Some(16));
        machine
    };
    let sound = run_until(None);
    assert!(sound.power_failed().is_none());
    let (mut before, mut at) = (0, Ps::ZERO);
    let events = sound.events();
    for fails_after in (0..events).step_by((events / 40) as usize) {
        let machine = run_until(Some(fails_after));
        assert_eq!((machine.hash(), machine.now()), (sound.hash(), sound.now()), "after {fails_after} events");
        let found = machine.power_failed().expect("the power failed in the run");
        let ended: u32 = found.ended.values().sum();
        assert!(ended >= before && found.at >= at, "{ended} programs at {} after {fails_after} events", found.at);
        (before, at) = (ended, found.at);
    }
    let all: u64 = sound.flash().counts.programs.iter().sum();
    assert!(u64::from(before) <= all && u64::from(before) > all / 2, "{before} of {all} programs");
    assert!(run_until(Some(events)).power_failed().is_none(), "the power fails after the last event");
}
