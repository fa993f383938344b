//! A workload on a device, from making the device to the report; the benchmark and the tests of data sheets share this
//! file.
//!
//! A device is first brought into its state (empty, filled, long in use), which takes no modelled time. Then requests
//! run; no figure counts those of the warm-up, so that an empty write buffer or idle dies do not improve the figures.

use nandarray_model::describe::{Description, Spec};
use nandarray_model::{
    Arrival, Generator, Latencies, Machine, Pattern, Ps, Report, RequestEnded, RequestStatus, Size, Synthetic,
};

/// State of a device before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The device was never written.
    Empty,
    /// Every page was written once, in order.
    Filled,
    /// The device was filled, then overwritten at random with this many times its capacity.
    Used(u32),
}

/// A workload, and the state of the device before it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The case's name in tables.
    pub name: String,
    /// State of the device before the run.
    pub before: Before,
    /// The requests that are measured; those of the warm-up are run in addition.
    pub load: Synthetic,
    /// Number of requests before the measured ones, which no figure counts.
    pub warm_up: u64,
}

/// Numbers of requests that ended and failed in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Number of requests that ended.
    pub ended: u64,
    /// Number of requests that failed.
    pub failed: u64,
}

impl Case {
    /// Makes a closed-loop case: `n` requests of `bytes` bytes, `depth` of them in flight.
    pub fn closed(
        name: &str,
        before: Before,
        bytes: u64,
        sequential: bool,
        read_share: f64,
        depth: u32,
        n: u64,
    ) -> Self {
        let load = Synthetic {
            read_share,
            sizes: vec![Size { bytes, weight: 1.0 }],
            pattern: if sequential { Pattern::Sequential } else { Pattern::Random },
            arrival: Arrival::Closed { depth },
            requests: Some(n),
            ..Synthetic::default()
        };
        Self { name: name.to_owned(), before, load, warm_up: 0 }
    }

    /// Sets the number of streams, and so of queues in use.
    pub fn streams(mut self, streams: u32) -> Self {
        self.load.streams = streams;
        self
    }

    /// Sets the number of requests before measuring begins.
    pub fn warm_up(mut self, requests: u64) -> Self {
        self.warm_up = requests;
        self.load.requests = self.load.requests.map(|n| n + requests);
        self
    }

    /// Makes a machine for this device, and brings it into the state before the first request.
    pub fn machine(&self, description: &Description) -> Machine {
        let mut machine = Machine::new(description, 1, None);
        machine.attach_blocks(1).unwrap_or_else(|e| panic!("{}: {e}", description.name));
        let ftl = machine.ftl();
        if self.before != Before::Empty {
            ftl.fill_sequential().unwrap_or_else(|e| panic!("{}: {e}", description.name));
        }
        if let Before::Used(times) = self.before {
            let pages = ftl.capacity_pages();
            ftl.steady_state(2, pages, pages * u64::from(times))
                .unwrap_or_else(|e| panic!("{}: {e}", description.name));
        }
        machine
    }

    /// Runs the case on a machine that [`Case::machine`] made; returns the report without the warm-up, and the numbers
    /// of requests.
    pub fn run(&self, machine: &mut Machine) -> (Report, Counted) {
        let mut source =
            Generator::new(self.load.clone(), machine.capacity_bytes()).expect("a load that fits the device");
        let (mut latencies, mut counted) = (Latencies::default(), Counted::default());
        let mut begin = Ps::ZERO;
        let warm_up = self.warm_up;
        let mut each = |e: &RequestEnded| {
            counted.ended += 1;
            counted.failed += u64::from(e.status != RequestStatus::Success);
            if counted.ended == warm_up {
                begin = e.done;
            }
            if counted.ended > warm_up && e.arrived >= begin {
                latencies.record(e.request.op, e.request.bytes, e.arrived, e.done, e.status == RequestStatus::Success);
            }
        };
        machine.drive(&mut source, &mut each, &mut |_| true).expect("a source that cannot fail");
        let report = machine.report(&latencies);
        report.check().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        (report, counted)
    }
}

/// Returns the workloads of a data sheet: sequential 128 KiB at depth 32, random 4 KiB at the sheet's depth, single
/// reads. `long` is the number of requests of random workloads; sequential ones have a tenth of it.
///
/// Reads run on a filled device. Writes to a client drive (over-provisioning below a tenth) run on an empty device,
/// since such sheets are measured "fresh out of the box"; writes to other drives run on one that was overwritten at
/// random with `used` times its capacity, as enterprise sheets require.
pub fn sheet(description: &Description, spec: &Spec, long: u64, used: u32) -> Vec<Case> {
    let sustained = description.ftl.over_provisioning >= 0.1;
    // A medium that needs no erase has no steady state to reach.
    let wears_in = sustained && description.nand.t_erase > Ps::from_us(100);
    let streams = |depth: u32| depth.min(description.host.queues).min(description.host.cores);
    let depth = spec.queue_depth;
    let wide = 128 << 10;
    // A buffer that is empty at first accepts this many 4 KiB writes at the speed of the link.
    let buffered = |bytes: u64| 2 * description.ftl.write_cache_bytes / bytes;
    let random_writes = match (wears_in, sustained) {
        (true, _) => Before::Used(used),
        (false, true) => Before::Filled,
        (false, false) => Before::Empty,
    };
    let mut cases = Vec::new();
    if spec.seq_read_bytes_per_s.is_some() {
        let case = Case::closed("seq read 128K QD32", Before::Filled, wide, true, 1.0, 32, long / 10);
        cases.push(case.warm_up(64));
    }
    if spec.seq_write_bytes_per_s.is_some() {
        let before = if sustained { Before::Filled } else { Before::Empty };
        let case = Case::closed("seq write 128K QD32", before, wide, true, 0.0, 32, long / 10);
        cases.push(case.warm_up(buffered(wide) + 64));
    }
    if spec.rand_read_iops.is_some() {
        let name = format!("rand read 4K QD{depth}");
        let case = Case::closed(&name, Before::Filled, 4096, false, 1.0, depth, long);
        cases.push(case.streams(streams(depth)).warm_up(2 * u64::from(depth)));
    }
    if spec.rand_write_iops.is_some() {
        let name = format!("rand write 4K QD{depth}");
        let case = Case::closed(&name, random_writes, 4096, false, 0.0, depth, long);
        cases.push(case.streams(streams(depth)).warm_up(buffered(4096) + 2 * u64::from(depth)));
    }
    if spec.read_latency.is_some() {
        cases.push(Case::closed("rand read 4K QD1", Before::Filled, 4096, false, 1.0, 1, long / 20));
    }
    cases
}
