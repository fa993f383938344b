//! Invariants of any operations on any device: each ends once, no part does two things at a time, the order that cells
//! need is kept, the account adds up, and the same seed gives the same run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::{at, device};
use crate::describe::{Description, Scheduling};
use crate::flash::policy::{self, DiePolicy};
use crate::flash::{
    Backend, Cells, FlashAccount, FlashEvent, FlashOp, NandCells, OpCause, OpEnded, OpKind, PageAddress, Verdict,
};
use crate::spans::{DeviceSpan, Track};
use nandarray_sim::Events;
use nandarray_sim::Ps;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<DeviceSpan>>>);

impl nandarray_sim::SpanSink<DeviceSpan> for Seen {
    fn span(&mut self, span: DeviceSpan) {
        self.0.lock().expect("nobody panicked").push(span);
    }
}

/// Cells that record the order in which they were used.
struct Watched {
    within: NandCells,
    done: Arc<Mutex<Vec<(OpKind, PageAddress)>>>,
}

impl Cells for Watched {
    fn t_sense(&mut self, now: Ps, place: PageAddress, retry: u16) -> Ps {
        self.within.t_sense(now, place, retry)
    }
    fn t_program(&mut self, now: Ps, place: PageAddress) -> Ps {
        self.within.t_program(now, place)
    }
    fn t_erase(&mut self, now: Ps, place: PageAddress) -> Ps {
        self.within.t_erase(now, place)
    }
    fn read(&mut self, now: Ps, place: PageAddress, bytes: u32) -> Verdict {
        self.done.lock().expect("nobody panicked").push((OpKind::Read, place));
        self.within.read(now, place, bytes)
    }
    fn programmed(&mut self, now: Ps, place: PageAddress) -> bool {
        self.done.lock().expect("nobody panicked").push((OpKind::Program, place));
        self.within.programmed(now, place)
    }
    fn erased(&mut self, now: Ps, place: PageAddress) -> bool {
        self.done.lock().expect("nobody panicked").push((OpKind::Erase, place));
        self.within.erased(now, place)
    }
    fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
        self.within.is_factory_bad(die, plane, block)
    }
    fn codewords(&self, bytes: u32) -> u32 {
        self.within.codewords(bytes)
    }
}

/// An operation to submit, at some time after the previous one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    wait_us: u64,
    kind: u8,
    cause: OpCause,
    die: u32,
    plane: u16,
    block: u32,
    page: u16,
    half: bool,
}

pub(super) fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let wait = prop_oneof![4 => Just(0u64), 2 => 0u64..30, 1 => 0u64..2_000];
    let cause = prop_oneof![3 => Just(OpCause::Host), 3 => prop::sample::select(&OpCause::ALL[1..])];
    let ask = (wait, 0u8..20, cause, 0u32..8, 0u16..2, 0u32..3, 0u16..12, any::<bool>()).prop_map(
        |(wait_us, kind, cause, die, plane, block, page, half)| Ask {
            wait_us,
            kind,
            cause,
            die,
            plane,
            block,
            page,
            half,
        },
    );
    prop::collection::vec(ask, 1..150)
}

pub(super) fn devices() -> impl Strategy<Value = Description> {
    let scheduling = prop_oneof![2 => Just(Scheduling::Normal), 3 => prop::sample::select(policy::ALL)];
    (scheduling, any::<[bool; 9]>()).prop_map(|(scheduling, on)| {
        let [cache_read, cache_program, suspends, one_shot, independent, planes, errors, fast, spare] = on;
        let mut with = vec![
            ("geometry.channels", "2"),
            ("geometry.ways", "2"),
            ("geometry.dies", "2"),
            ("geometry.pages", "48"),
            ("bus.transfers_spare", if spare { "true" } else { "false" }),
            ("nand.independent_planes", if independent { "true" } else { "false" }),
            ("nand.multi_plane", if planes { "true" } else { "false" }),
            ("nand.t_read", if fast { "6 us" } else { "75 us" }),
            ("nand.t_resume", "4 us"),
        ];
        if cache_read {
            with.push(("nand.t_cache_read_busy", "3 us"));
        }
        if cache_program {
            with.push(("nand.t_cache_program_busy", "5 us"));
        }
        if !suspends {
            with.push(("nand.t_suspend_program", "none"));
            with.push(("nand.t_suspend_erase", "none"));
        }
        if one_shot {
            with.extend([("nand.cell", "tlc"), ("nand.one_shot", "true")]);
        }
        if errors {
            with.extend([
                ("reliability.rber_base", "0.0045"),
                ("reliability.ecc_codeword_size", "1 KiB"),
                ("reliability.ecc_correctable_bits", "40"),
                ("reliability.t_ecc_decode", "1 us"),
                ("reliability.t_read_retry", "20 us"),
                ("reliability.read_retries_max", "3"),
                ("reliability.read_retry_rber_factor", "0.9"),
                ("reliability.grown_bad_ppm", "50000"),
            ]);
        }
        let mut description = device(&with);
        description.controller.scheduling = scheduling;
        description.energy.read_pj = 3e6;
        description.energy.program_pj = 5e7;
        description.energy.erase_pj = 2e8;
        description.energy.bus_pj_per_byte = 11.0;
        description.energy.die_idle_uw = 33.0;
        description
    })
}

/// Results of a run: the ended operations, the busy spans, the order in which cells were used, the submitted
/// operations, and the account at the end.
pub(super) struct Outcomes {
    ended: Vec<(Ps, OpEnded)>,
    spans: Vec<DeviceSpan>,
    done: Vec<(OpKind, PageAddress)>,
    asked: Vec<FlashOp>,
    pub(super) account: FlashAccount,
}

pub(super) fn run(description: &Description, asks: &[Ask]) -> Outcomes {
    run_by(description.controller.scheduling, description, asks)
}

/// Executes the operations under a policy; checks that all end, and that spans and account agree.
fn run_by(policy: impl DiePolicy, description: &Description, asks: &[Ask]) -> Outcomes {
    let seen = Seen::default();
    let done = Arc::new(Mutex::new(Vec::new()));
    let cells = Watched { within: NandCells::new(description, 5), done: Arc::clone(&done) };
    let mut flash = Backend::scheduled(description, policy, Box::new(cells), Some(Box::new(seen.clone())));
    let mut events: Events<FlashEvent> = Events::default();
    let (mut all, mut ended, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    // Number of pages submitted to each block so far, so that its programs come in order.
    let mut pages: HashMap<(u32, u16, u32), u16> = HashMap::new();
    let mut now = Ps::ZERO;
    for (token, ask) in asks.iter().enumerate() {
        now += Ps::from_us(ask.wait_us);
        while events.next_at().is_some_and(|t| t < now) {
            let (t, event) = events.pop().expect("there is a next");
            flash.handle(t, event, &mut events, &mut ended);
            all.extend(ended.drain(..).map(|e| (t, e)));
        }
        if ask.wait_us > 0 {
            flash.check(now).unwrap_or_else(|e| panic!("at {now}: {e}"));
        }
        let (op, place, bytes) = match ask.kind {
            0..=9 => (OpKind::Read, at(ask.die, ask.plane, ask.block, ask.page), if ask.half { 4_096 } else { 8_192 }),
            10..=18 => {
                let next = pages.entry((ask.die, ask.plane, ask.block)).or_insert(0);
                let page = *next % 48;
                *next += 1;
                (OpKind::Program, at(ask.die, ask.plane, ask.block, page), 8_192)
            }
            _ => (OpKind::Erase, at(ask.die, ask.plane, ask.block + 3, 0), 0),
        };
        let operation = FlashOp { op, cause: ask.cause, place, bytes, token: token as u64 };
        asked.push(operation);
        flash.submit(now, operation, &mut events);
        flash.set_urgent(ask.die, ask.half && ask.kind == 3);
    }
    while let Some((t, event)) = events.pop() {
        flash.handle(t, event, &mut events, &mut ended);
        all.extend(ended.drain(..).map(|e| (t, e)));
        now = t.max(now);
    }
    assert_eq!(flash.in_flight(), 0, "operations that never end");
    flash.check(now).unwrap_or_else(|e| panic!("at the end: {e}"));
    (0..8).for_each(|d| assert!(flash.is_idle(d)));
    let account = flash.account(now);
    let spans = seen.0.lock().expect("nobody panicked").clone();
    for (c, busy) in account.channels.iter().enumerate() {
        let spent: Ps = spans.iter().filter(|s| s.track == Track::Channel(c as u32)).map(|s| s.end - s.start).sum();
        assert_eq!(spent, busy.total(), "channel {c}: spans and account");
    }
    for (d, busy) in account.dies.iter().enumerate() {
        let spent: Ps = spans.iter().filter(|s| s.track == Track::Die(d as u32)).map(|s| s.end - s.start).sum();
        assert_eq!(spent, busy.total(), "die {d}: spans and account");
    }
    let done = done.lock().expect("nobody panicked").clone();
    Outcomes { ended: all, spans, done, asked, account }
}

/// Panics unless a run under `policy` keeps every rule that holds for any policy.
pub(super) fn holds_under(policy: impl DiePolicy + Copy, description: &Description, asks: &[Ask]) {
    let first = run_by(policy, description, asks);
    // Each operation ends exactly once.
    let mut tokens: Vec<u64> = first.ended.iter().map(|(_, e)| e.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..asks.len() as u64).collect::<Vec<_>>());
    // No part does two things at a time.
    let mut by_track: HashMap<Track, Vec<DeviceSpan>> = HashMap::new();
    for span in &first.spans {
        assert!(span.start <= span.end);
        by_track.entry(span.track).or_default().push(*span);
    }
    for (track, mut spans) in by_track {
        spans.sort_by_key(|s| (s.start, s.end));
        for pair in spans.windows(2) {
            let [one, next] = [&pair[0], &pair[1]];
            assert!(one.end <= next.start, "{track:?} is busy twice: {one:?} and {next:?}");
        }
    }
    // Pages of a block are programmed in the order in which they were submitted.
    let of = |op, place: &PageAddress| (op, place.die, place.plane, place.block);
    let mut order: HashMap<_, Vec<u16>> = HashMap::new();
    for (op, place) in first.done.iter().filter(|(op, _)| *op == OpKind::Program) {
        order.entry(of(*op, place)).or_default().push(place.page);
    }
    for (key, pages) in order {
        let asked: Vec<u16> = first.asked.iter().filter(|o| of(o.op, &o.place) == key).map(|o| o.place.page).collect();
        assert_eq!(pages, asked, "order of programs in {:?}", key);
    }
    // No read is faster than its sensing and transfer.
    let g = description;
    let submitted = {
        let mut now = Ps::ZERO;
        asks.iter()
            .map(|a| {
                now += Ps::from_us(a.wait_us);
                now
            })
            .collect::<Vec<_>>()
    };
    for (t, e) in &first.ended {
        let o = &first.asked[e.token as usize];
        let least = match o.op {
            OpKind::Read => {
                let transfer = Ps::of_bytes(u64::from(o.bytes), g.bus.bytes_per_s);
                g.bus.t_read_command + g.nand.t_read[0] + transfer
            }
            OpKind::Program => g.bus.t_program_command + g.nand.t_program[0],
            OpKind::Erase => g.bus.t_erase_command + g.nand.t_erase,
        };
        assert!(*t - submitted[e.token as usize] >= least);
    }
    // A second run with the same seed gives the same results.
    let second = run_by(policy, description, asks);
    assert_eq!(first.ended, second.ended);
    assert_eq!(first.spans, second.spans);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn holds(description in devices(), asks in asks()) {
        holds_under(description.controller.scheduling, &description, &asks);
    }
}

#[test]
fn what_is_no_page_is_a_bug_of_the_caller() {
    let description = device(&[]);
    let place = at(64, 0, 0, 0);
    let asked = std::panic::catch_unwind(|| {
        let mut flash = Backend::new(&description, 1, None);
        let operation = FlashOp { op: OpKind::Read, cause: OpCause::Host, place, bytes: 0, token: 0 };
        flash.submit(Ps::ZERO, operation, &mut Events::<FlashEvent>::default());
    });
    assert!(asked.is_err());
}
