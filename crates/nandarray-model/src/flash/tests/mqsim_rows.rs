//! What MQSim gives for its "ideal" configuration, measured from completion times: `mqsim_compat` within 5 % (and 2 %
//! where nothing is saturated), over a host that is only a link (4 B/ns, 128-byte packets with 28 bytes of overhead)
//! and a map that is only an order (CWDP).
//!
//! As MQSim generates them, addresses are multiples of the request's length, and an open loop's requests come in
//! exponential intervals. A program of part of a page reads nothing before: the pages of these rows were never written.

use std::collections::VecDeque;

use super::{at, device};
use crate::describe::FlashGeometry;
use crate::flash::{Backend, FlashEvent, FlashOp, OpCause, OpKind, PageAddress};
use nandarray_sim::Events;
use nandarray_sim::Ps;

/// An event of the host.
#[derive(Clone, Copy)]
enum Event {
    Flash(FlashEvent),
    /// The data of this request has reached the device: its flash operations begin.
    Begin(u32),
    /// This request is complete.
    Complete(u32),
    /// The next request of an open loop arrives.
    Arrive,
}

impl From<FlashEvent> for Event {
    fn from(event: FlashEvent) -> Self {
        Self::Flash(event)
    }
}

/// A workload whose requests all have one size.
#[derive(Clone, Copy)]
struct Load {
    bytes: u64,
    read_percent: u32,
    sequential: bool,
    /// Number of requests in flight; with `every`, the total number of requests.
    depth: u32,
    /// Mean time between the requests of an open loop; `None` for a closed loop.
    every: Option<Ps>,
    requests: u32,
}

struct Request {
    begun: Ps,
    page: u64,
    write: bool,
    /// Number of the request's flash operations that have not ended.
    left: u32,
}

struct Host {
    load: Load,
    geometry: FlashGeometry,
    /// Number of pages written in each plane, which gives the address of the plane's next program.
    written: Vec<u64>,
    requests: Vec<Request>,
    free: VecDeque<u32>,
    next_page: u64,
    begun: u32,
    up_free: Ps,
    down_free: Ps,
    chance: fastrand::Rng,
}

const PAGE: u64 = 8_192;

/// Sends `bytes` over the link, which is free from `free` on; returns the end of the transfer.
fn over_link(free: &mut Ps, now: Ps, bytes: u64) -> Ps {
    let t = Ps::of_bytes(bytes + bytes.div_ceil(128) * 28, 4_000_000_000);
    *free = (*free).max(now) + t;
    *free
}

impl Host {
    fn pages(&self) -> u64 {
        self.load.bytes.div_ceil(PAGE)
    }

    fn begin(&mut self, now: Ps, events: &mut Events<Event>) {
        if self.begun == self.load.requests {
            return;
        }
        self.begun += 1;
        let space = self.geometry.pages_total() * 9 / 10;
        let page = if self.load.sequential {
            self.next_page += self.pages();
            (self.next_page - self.pages()) % (space - self.pages())
        } else {
            self.chance.u64(0..space / self.pages()) * self.pages()
        };
        let write = self.chance.u32(0..100) >= self.load.read_percent;
        let request = Request { begun: now, page, write, left: 0 };
        let i = match self.free.pop_front() {
            Some(i) => {
                self.requests[i as usize] = request;
                i
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        // The command is fetched; a write's data comes with it.
        let at = over_link(&mut self.down_free, now, if write { 64 + self.load.bytes } else { 64 });
        events.push(at, Event::Begin(i));
    }

    fn place(&self, page: u64) -> (u64, PageAddress) {
        let g = &self.geometry;
        let (c, w, d, p) = (u64::from(g.channels), u64::from(g.ways), u64::from(g.dies), u64::from(g.planes));
        let (channel, way, die, plane) = (page % c, page / c % w, page / c / w % d, page / c / w / d % p);
        let within = page / (c * w * d * p);
        let index = g.die_index(channel as u32, way as u32, die as u32);
        let unit = u64::from(index) * p + plane;
        (unit, at(index, plane as u16, (within / u64::from(g.pages)) as u32, (within % u64::from(g.pages)) as u16))
    }

    /// Returns the flash operations of a request that begins: one for each page.
    fn operations(&mut self, i: u32) -> Vec<FlashOp> {
        let pages = self.pages();
        let request = &mut self.requests[i as usize];
        request.left = pages as u32;
        let (first, write, bytes) = (request.page, request.write, self.load.bytes.min(PAGE) as u32);
        let op = if write { OpKind::Program } else { OpKind::Read };
        let each = (0..pages).map(|n| {
            let (unit, mut place) = self.place(first + n);
            if write {
                let to = &mut self.written[unit as usize];
                place.block = (*to / 256 % 2_048) as u32;
                place.page = (*to % 256) as u16;
                *to += 1;
            }
            FlashOp { op, cause: OpCause::Host, place, bytes, token: u64::from(i) }
        });
        each.collect()
    }
}

/// Runs a workload; returns its IOPS and mean latency.
fn run(scheduling: &str, load: Load) -> (f64, Ps) {
    let description = device(&[("controller.scheduling", scheduling)]);
    let geometry = description.geometry;
    let mut flash = Backend::new(&description, 1, None);
    let mut events: Events<Event> = Events::default();
    let mut host = Host {
        load,
        geometry,
        written: (0..geometry.planes_total()).map(|i| if load.sequential { 0 } else { u64::from(i) * 7 }).collect(),
        requests: Vec::new(),
        free: VecDeque::new(),
        next_page: 0,
        begun: 0,
        up_free: Ps::ZERO,
        down_free: Ps::ZERO,
        chance: fastrand::Rng::with_seed(7),
    };
    if load.every.is_some() {
        events.push(Ps::ZERO, Event::Arrive);
    } else {
        (0..load.depth).for_each(|_| host.begin(Ps::ZERO, &mut events));
    }
    let (mut ended, mut total, mut done) = (Vec::new(), 0u128, 0u32);
    while let Some((now, event)) = events.pop() {
        match event {
            Event::Arrive => {
                host.begin(now, &mut events);
                if host.begun < load.requests {
                    let mean = load.every.expect("an open loop");
                    let wait = -(1.0 - host.chance.f64()).ln() * mean.0 as f64;
                    events.push(now + Ps(wait as u64), Event::Arrive);
                }
            }
            Event::Begin(i) => {
                for operation in host.operations(i) {
                    flash.submit(now, operation, &mut events);
                }
            }
            Event::Flash(event) => {
                flash.handle(now, event, &mut events, &mut ended);
                for e in ended.drain(..) {
                    let i = e.token as u32;
                    let request = &mut host.requests[i as usize];
                    request.left -= 1;
                    if request.left == 0 {
                        let bytes = if request.write { 16 } else { load.bytes };
                        events.push(over_link(&mut host.up_free, now, bytes), Event::Complete(i));
                    }
                }
            }
            Event::Complete(i) => {
                total += u128::from((now - host.requests[i as usize].begun).0);
                done += 1;
                host.free.push_back(i);
                if load.every.is_none() {
                    host.begin(now, &mut events);
                }
            }
        }
    }
    assert_eq!(done, load.requests);
    flash.check(events.now()).unwrap_or_else(|e| panic!("{e}"));
    (f64::from(done) / events.now().seconds(), Ps((total / u128::from(done)) as u64))
}

fn row(what: &str, load: Load, iops: f64, mean_us: f64, percent: f64) {
    let (got, mean) = run("mqsim-compat", load);
    let off = |a: f64, b: f64| (a / b - 1.0) * 100.0;
    let far = off(got, iops).abs().max(off(mean.us(), mean_us).abs());
    assert!(
        far <= percent,
        "{what}: {got:.0} IOPS and {:.1} us, MQSim {iops:.0} and {mean_us}: {far:.1} % apart",
        mean.us()
    );
}

/// Returns a closed-loop workload with `depth` requests in flight.
fn load(bytes: u64, read_percent: u32, sequential: bool, depth: u32) -> Load {
    let requests = if bytes > 100_000 { 10_000 } else { 60_000 };
    Load { bytes, read_percent, sequential, depth, every: None, requests }
}

#[test]
fn unsaturated_rows() {
    let open = Load { every: Some(Ps::of_bytes(4_096, 400_000_000)), ..load(4_096, 100, false, 0) };
    row("rand read 4K QD1", Load { requests: 2_000, ..load(4_096, 100, false, 1) }, 11_248.0, 88.9, 2.0);
    row("open loop 4K read 400 MB/s", open, 97_924.0, 108.3, 2.0);
}

#[test]
fn saturated_rows() {
    row("rand read 4K QD32", load(4_096, 100, false, 32), 191_797.0, 166.8, 5.0);
    row("rand read 4K QD256", load(4_096, 100, false, 256), 250_254.0, 1_021.0, 5.0);
    row("rand read 16K QD32", load(16_384, 100, false, 32), 81_532.0, 392.0, 5.0);
    row("rand read 16K QD512", load(16_384, 100, false, 512), 93_698.0, 5_438.0, 5.0);
    row("seq read 128K QD32", load(131_072, 100, true, 32), 14_674.0, 2_180.0, 5.0);
    row("rand write 4K QD32", load(4_096, 0, false, 32), 24_870.0, 1_287.0, 5.0);
    row("rand write 16K QD32", load(16_384, 0, false, 32), 16_118.0, 1_985.0, 5.0);
    row("seq write 128K QD32", load(131_072, 0, true, 32), 4_997.0, 6_400.0, 5.0);
    row("70/30 16K QD32", load(16_384, 70, false, 32), 39_143.0, 817.0, 5.0);
}

#[test]
fn dies_of_their_own_are_never_slower() {
    for (what, load) in [
        ("rand read 4K QD32", load(4_096, 100, false, 32)),
        ("rand read 4K QD256", load(4_096, 100, false, 256)),
        ("rand read 16K QD512", load(16_384, 100, false, 512)),
        ("seq read 128K QD32", load(131_072, 100, true, 32)),
        ("rand write 4K QD32", load(4_096, 0, false, 32)),
        ("rand write 16K QD32", load(16_384, 0, false, 32)),
        ("seq write 128K QD32", load(131_072, 0, true, 32)),
        ("70/30 16K QD32", load(16_384, 70, false, 32)),
    ] {
        let (compat, _) = run("mqsim-compat", load);
        for scheduling in ["normal", "fifo"] {
            let (ours, _) = run(scheduling, load);
            assert!(ours > compat, "{what}: {ours:.0} IOPS of {scheduling}, {compat:.0} of mqsim-compat");
        }
    }
}
