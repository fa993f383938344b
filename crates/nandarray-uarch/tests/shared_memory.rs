//! Promise: cores that share a memory port wait for each other exactly, served in the order of their requests' times.

mod common;

use common::{CODE, DATA, DATA_BYTES, assemble, memory};
use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv64, Stop, Streams};
use nandarray_uarch::{CoreDescription, PrefetchKind, TimedCore};

const T_ACCESS: u64 = 60;
const T_LINE: u64 = 8;
const LINES: u64 = 4_096;

struct One {
    hart: Hart<Rv64, TimedCore>,
    memory: Memory<'static>,
    /// Tick of the core's request, while the core waits for it; otherwise `None`.
    at: Option<u64>,
    over: bool,
}

impl One {
    fn new(d: &CoreDescription) -> Self {
        let lines = [
            "lui t3, 64",
            "add t1, a0, t3",
            "ld t2, 0(a0)",
            "addi a0, a0, 64",
            "bltu a0, t1, . - 8",
            "jalr zero, 0(ra)",
        ];
        let code = assemble(&lines.map(str::to_owned));
        let mut hart = Hart::<Rv64, _>::with_meter(HartMode::Program, Extensions::PROGRAM, TimedCore::shared(d));
        hart.call(CODE, DATA + DATA_BYTES, &[DATA]);
        Self { hart, memory: memory(&code), at: None, over: false }
    }

    /// Runs the core until it requests a line of memory, or until its program ends.
    fn go_on(&mut self) {
        match self.hart.run(&mut self.memory, &mut Streams::none(), Limits::default()) {
            Stop::Paused => {
                let request = self.hart.meter_mut().request();
                assert_eq!(request.wanted.len(), 1, "a core pauses for a line");
                self.at = Some(request.at);
            }
            Stop::Returned { .. } => (self.at, self.over) = (None, true),
            other => panic!("{other}"),
        }
    }
}

/// Runs `count` cores on one port; returns the tick at which the last core has read its lines, and the ticks of each
/// core.
fn together(count: usize, d: &CoreDescription) -> (u64, Vec<u64>) {
    let mut cores: Vec<One> = (0..count).map(|_| One::new(d)).collect();
    cores.iter_mut().for_each(One::go_on);
    let mut free = 0u64;
    // Requests are served in order of time, then of the core's number.
    while let Some(next) = (0..count).filter(|&i| cores[i].at.is_some()).min_by_key(|&i| (cores[i].at, i)) {
        let at = cores[next].at.take().expect("it waits");
        let start = at.max(free);
        free = start + T_LINE;
        cores[next].hart.meter_mut().grant(start + T_ACCESS);
        cores[next].go_on();
    }
    assert!(cores.iter().all(|core| core.over));
    let ticks: Vec<u64> = cores.iter().map(|core| core.hart.meter().ticks()).collect();
    (*ticks.iter().max().unwrap(), ticks)
}

fn core() -> CoreDescription {
    let mut d = CoreDescription::preset("five-stage").unwrap();
    (d.l1i, d.l2, d.prefetch_l1d) = (None, None, PrefetchKind::None);
    d
}

#[test]
fn a_core_alone_takes_what_its_own_memory_takes() {
    let d = core();
    let (alone, _) = together(1, &d);
    let lines = ["lui t3, 64", "add t1, a0, t3", "ld t2, 0(a0)", "addi a0, a0, 64", "bltu a0, t1, . - 8"];
    let own = common::timed(&lines, &d);
    assert_eq!(own.memory.lines_read, LINES);
    assert_eq!(alone, own.ticks, "a shared port without others is a port of its own");
}

#[test]
fn the_port_bounds_many_cores_and_two_hardly_meet() {
    let d = core();
    let (alone, _) = together(1, &d);
    let (two, _) = together(2, &d);
    assert!((two as f64 / alone as f64 - 1.0).abs() < 0.01, "two cores of {alone} ticks took {two}");
    // A core needs the port for 8 of about 66 ticks: with sixteen cores the port is the limit.
    let (many, ticks) = together(16, &d);
    let bound = 16 * LINES * T_LINE;
    assert!((many as f64 / bound as f64 - 1.0).abs() < 0.01, "sixteen cores took {many}, the port {bound}");
    let (least, most) = (ticks.iter().min().unwrap(), ticks.iter().max().unwrap());
    assert!(most - least < 16 * (T_ACCESS + T_LINE), "served in turn: {least} to {most}");
    assert_eq!(together(16, &d), together(16, &d), "the same run gives the same times");
}

#[test]
fn prefetches_delay_neither_the_core_nor_its_requests() {
    let mut d = CoreDescription::preset("zou-2023-prefetch").unwrap();
    d.l1i = None;
    let mut core = One::new(&d);
    // Lines arrive much later than the loop needs them, although a prefetcher requests them ahead.
    let t_there = 10 * T_ACCESS;
    let (mut pauses, mut prefetched, mut waited) = (0u64, 0u64, 0u64);
    loop {
        match core.hart.run(&mut core.memory, &mut Streams::none(), Limits::default()) {
            Stop::Returned { .. } => break,
            Stop::Paused => {}
            other => panic!("{other}"),
        }
        let meter = core.hart.meter_mut();
        let request = meter.request();
        // A blocking core has no hazards: only its own ticks pass before its request.
        assert_eq!(request.at, meter.ticks(), "request {pauses} is made when the core pauses");
        let wait = if request.wanted.is_empty() { 0 } else { t_there };
        request.prefetches.iter().for_each(|&line| meter.prefetched(line, request.at + t_there));
        meter.grant(request.at + wait);
        (pauses, prefetched, waited) = (pauses + 1, prefetched + request.prefetches.len() as u64, waited + wait);
    }
    let report = core.hart.meter().report();
    assert!(prefetched > LINES / 2, "{prefetched} lines prefetched");
    assert_eq!(report.memory.lines_prefetched, prefetched);
    // Besides the waits for demanded lines, the core waits for prefetched lines that have not arrived: less than a
    // line's time for each.
    let on_the_way = report.frozen.data.memory - waited;
    assert!(on_the_way > 0 && on_the_way < LINES * t_there, "{on_the_way} ticks for lines on their way");
}
