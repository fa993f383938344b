//! Promise: programs on a modelled device's timed cores take the time of closed forms, bound by flash, channel, DRAM or
//! issue; their bytes and busy times are consistent; results are those of any executor.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_cores::Form;
use nandarray_model::describe::{self, Description};
use nandarray_model::store::{self, Backing, Clock, Modelled, WriteLog};
use nandarray_model::{Ps, Report, TimedCoresReport};
use nandarray_runtime::{Error, Execution, Executor, Input, Output, OutputValue, Progress, Runtime, StageRequest};
use parking_lot::Mutex;

/// A program that sums 32-bit elements of a window, eight at a time, into its state: the loop of Zou's Stat.
const STAT: &[&str] = &[
    "ld t1, 88(a0)",
    "ld t2, 96(a0)",
    "add t2, t1, t2",
    "addi t4, zero, 0",
    "lw t3, 0(t1)",
    "add t4, t4, t3",
    "lw t3, 4(t1)",
    "add t4, t4, t3",
    "lw t3, 8(t1)",
    "add t4, t4, t3",
    "lw t3, 12(t1)",
    "add t4, t4, t3",
    "lw t3, 16(t1)",
    "add t4, t4, t3",
    "lw t3, 20(t1)",
    "add t4, t4, t3",
    "lw t3, 24(t1)",
    "add t4, t4, t3",
    "lw t3, 28(t1)",
    "add t4, t4, t3",
    "addi t1, t1, 32",
    "bltu t1, t2, . - 68",
    "ld t0, 48(a0)",
    "ld t1, 0(t0)",
    "add t1, t1, t4",
    "sd t1, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// A program that sums 32-bit elements of a stream, without a test for the stream's end: the state is updated after
/// every eight elements.
const STAT_STREAM: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t4, 0(t0)",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "streamload.w t3, 0",
    "add t4, t4, t3",
    "sd t4, 0(t0)",
    "jal zero, . - 68",
];

/// A function that adds two states.
const ADD: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t1, 64(a0)",
    "ld t2, 0(t0)",
    "ld t1, 0(t1)",
    "add t2, t2, t1",
    "sd t2, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

fn stat(stream: bool) -> Vec<u8> {
    let kind = if stream { "stream" } else { "block" };
    let metadata = format!(
        r#"{{"abi": 1, "name": "stat", "kind": "{kind}", "state_bytes": 8,
            "inputs": [{{"name": "x", "dtype": "int32"}}], "outputs": [], "scalars": []}}"#
    );
    let task = if stream { ("nd_stream", STAT_STREAM) } else { ("nd_block", STAT) };
    common::elf(&[task, ("nd_merge", ADD)], Some(&metadata))
}

struct Store {
    runtime: Runtime,
    device: Arc<Device>,
    clock: Arc<Clock>,
    space: SpaceId,
    elements: u64,
}

/// Creates a store on a described device, with an array of 32-bit numbers in building blocks of whole pages.
fn store(d: &Description, elements: u64) -> Store {
    let (device, clock) = store::open(&Backing::Memory, Mode::Append, &Options::default(), d, None).unwrap();
    let device = Arc::new(device);
    let new = NewSpace {
        name: "x",
        shape: &[elements],
        item_bytes: 4,
        dtype: "<i4",
        block: Some(&[65_536]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    fill(&device, space, elements);
    device.execute(command::Flush).unwrap();
    clock.settle();
    Store { runtime: Runtime::new(device.clone()), device, clock, space, elements }
}

fn numbers(elements: u64) -> Vec<i32> {
    (0..elements).map(|n| (n * 7919 % 1009) as i32).collect()
}

fn fill(device: &Device, space: SpaceId, elements: u64) {
    let from = numbers(elements);
    let target = Target::Box { start: &[0], step: &[1], count: &[elements], strides: &[4], view: None };
    // SAFETY: the target reaches exactly the elements of `from`.
    let source = unsafe { Source::from_raw(from.as_ptr().cast()) };
    device.execute(command::Write { space, target, source }).unwrap();
}

struct Ran {
    took: Ps,
    report: Report,
    before: Report,
}

impl Ran {
    fn cores(&self) -> &TimedCoresReport {
        self.report.programs.as_ref().unwrap().timed_cores.as_ref().unwrap()
    }

    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 / self.took.seconds() / 1e9
    }
}

impl Store {
    fn expected(&self) -> i64 {
        (0..self.elements).map(|n| (n * 7919 % 1009) as i64).sum()
    }

    fn execute(&self, elf: &[u8], executor: &dyn Executor, task_bytes: u64) -> Result<Vec<u8>, Error> {
        self.execute_limited(elf, executor, task_bytes, None)
    }

    fn execute_limited(
        &self,
        elf: &[u8],
        executor: &dyn Executor,
        task_bytes: u64,
        instructions: Option<u64>,
    ) -> Result<Vec<u8>, Error> {
        let program = self.runtime.load(elf, None)?;
        let count = [self.elements];
        let input = Input::Box { space: self.space, start: &[0], step: &[1], count: &count, view: None, tiles: None };
        let inputs = [input];
        let stage = StageRequest {
            program,
            form: Form::Interpreted,
            inputs: &inputs,
            scalars: &[],
            outputs: &[],
            task_bytes,
            instructions,
            cores: &[],
        };
        let (stages, progress) = ([stage], Progress::default());
        let execution = Execution {
            stages: &stages,
            executor,
            hold_bytes: 1 << 24,
            collect_bytes: u64::MAX,
            locks_at_end: false,
            progress: &progress,
        };
        Ok(self.runtime.execute(&execution)?.stages.remove(0).state)
    }

    fn run(&self, elf: &[u8], task_bytes: u64) -> Ran {
        let modelled = Modelled::new(&self.clock).unwrap();
        let (before, began) = (self.clock.report(&[]), self.clock.now());
        let state = self.execute(elf, &modelled, task_bytes).unwrap();
        assert_eq!(i64::from_le_bytes(state.try_into().unwrap()), self.expected());
        let took = self.clock.now().since(began);
        self.clock.settle();
        Ran { took, report: self.clock.report(&[]), before }
    }
}

/// Returns the small version of ASSASIN's device with one core of the preset `core`, and the changes of `more`.
fn device(core: &str, more: &[(&str, &str)]) -> Description {
    let base = [("geometry.blocks", "24"), ("geometry.pages", "64"), ("ftl.over_provisioning", "60 %")];
    let cores = [
        ("compute.core", core),
        ("compute.cores", "1"),
        ("compute.core.input_source", "dram"),
        ("compute.core.scratchpad_bytes", "0"),
        ("compute.core.pingpong_bytes", "128 KiB"),
        ("compute.core.streams", "8"),
    ];
    let all: Vec<_> = base.iter().chain(&cores).chain(more).copied().collect();
    describe::preset_with("assasin", &all).unwrap_or_else(|e| panic!("{e}"))
}

/// Settings of stream buffers that read far enough ahead to hide the latency of flash.
const STREAM: [(&str, &str); 2] = [("compute.core.input_source", "stream"), ("compute.read_ahead", "64")];

fn near(got: f64, wanted: f64, by: f64) {
    assert!((got / wanted - 1.0).abs() < by, "{got} is not {wanted} within {by}");
}

/// Returns the seconds that the report gives for a reason of the cores' ticks; 0 if the reason does not occur.
fn reason(ran: &Ran, name: &str) -> f64 {
    ran.cores().seconds_by_reason.iter().find(|(reason, _)| *reason == name).map_or(0.0, |(_, seconds)| *seconds)
}

#[test]
fn stat_takes_what_the_sanity_values_say() {
    let elements = 1 << 20;
    let bytes = elements * 4;
    let baseline = store(&device("zou-2023", &[]), elements).run(&stat(false), 1 << 16);
    near(baseline.rate(bytes), 0.52, 0.1);
    let stream = store(&device("zou-2023-stream", &STREAM), elements).run(&stat(true), 1 << 16);
    near(stream.rate(bytes), 1.45, 0.1);
}

#[test]
fn a_stream_is_bound_by_issue() {
    let elements = 1 << 21;
    let ran = store(&device("zou-2023-stream", &STREAM), elements).run(&stat(true), 1 << 22);
    // For eight elements: loads of 3 ticks, additions of 2, a store of 3 into the scratchpad, a jump of 2.
    let ticks = (elements / 8) * (8 * 5 + 3 + 2);
    // The core waits for its first page.
    near(ran.took.seconds(), ticks as f64 * 0.5e-9 + 34.1e-6, 0.01);
    let work = ran.cores().seconds_by_reason.iter().map(|(_, s)| s).sum::<f64>() - reason(&ran, "stream_wait");
    near(work, ticks as f64 * 0.5e-9, 0.001);
}

#[test]
fn a_stream_is_bound_by_the_flash() {
    let elements = 1 << 18;
    let one = [("geometry.channels", "1"), ("geometry.ways", "1"), ("geometry.dies", "1"), ("geometry.planes", "1")];
    let more: Vec<_> =
        STREAM.into_iter().chain(one).chain([("geometry.blocks", "96"), ("compute.read_ahead", "4")]).collect();
    let d = device("five-stage", &more);
    let ran = store(&d, elements).run(&stat(true), 1 << 20);
    let pages = elements * 4 / 4096;
    let page = d.nand.t_read[0] + d.nand.t_ready + Ps::of_bytes(u64::from(spare(&d)) + 4096, d.bus.bytes_per_s);
    let senses = |report: &Report| (report.flash.senses.host, report.flash.senses.map);
    assert_eq!(senses(&ran.before), (0, 0));
    // Beside the pages, the out-of-band records of the segments are read once.
    let (read, records) = senses(&ran.report);
    assert_eq!(read, pages);
    let record = Ps(ran.report.flash.read_bytes.map / records.max(1) * 1_000);
    let all = page * pages + (d.nand.t_read[0] + d.nand.t_ready + record) * records;
    near(ran.took.seconds(), all.seconds(), 0.01);
}

fn spare(d: &Description) -> u32 {
    if d.bus.transfers_spare { d.geometry.spare_bytes } else { 0 }
}

#[test]
fn a_stream_is_bound_by_its_channel() {
    let elements = 1 << 20;
    let more: Vec<_> = STREAM.into_iter().chain([("geometry.channels", "1"), ("compute.clock", "10 GHz")]).collect();
    let d = device("five-stage", &more);
    let ran = store(&d, elements).run(&stat(true), 1 << 22);
    let bytes = elements * 4 / 4096 * (4096 + u64::from(spare(&d)));
    // The channel is idle until the first page is sensed.
    near(ran.took.seconds(), bytes as f64 / d.bus.bytes_per_s as f64 + d.nand.t_read[0].seconds(), 0.01);
}

/// Where filling a half takes longer than computing on it, a run takes the filling of all halves, and the work on the
/// last one. `test_modelled_programs.py` has the other direction.
#[test]
fn ping_pong_halves_are_bound_by_the_flash_or_the_channel() {
    // Sixteen tasks of a program with a state run one after the other; four such runs alternate.
    let elements = 1 << 20;
    let halves = [
        ("compute.core.input_source", "ping-pong"),
        ("compute.core.pingpong_bytes", "128 KiB"),
        ("geometry.channels", "1"),
    ];
    let one_die =
        [("geometry.ways", "1"), ("geometry.dies", "1"), ("geometry.planes", "1"), ("geometry.blocks", "192")];
    for (name, more) in [("flash", &one_die[..]), ("channel", &[("compute.clock", "10 GHz")])] {
        let more: Vec<_> = halves.iter().chain(more).copied().collect();
        let d = device("zou-2023-stream", &more);
        let ran = store(&d, elements).run(&stat(false), 1 << 16);
        let (pages, tasks) = (elements * 4 / 4096, elements * 4 / 65536);
        let transfer = Ps::of_bytes(u64::from(spare(&d)) + 4096, d.bus.bytes_per_s);
        let sense = d.nand.t_read[0] + d.nand.t_ready;
        let filling = if name == "flash" { (sense + transfer) * pages } else { transfer * pages + sense };
        let work = ran.cores().seconds_by_reason.iter().map(|(_, s)| s).sum::<f64>() - reason(&ran, "stream_wait");
        assert!(work < filling.seconds(), "{name}: computing is the shorter one");
        near(ran.took.seconds(), filling.seconds() + work / tasks as f64, 0.01);
    }
}

#[test]
fn cores_with_caches_are_bound_by_dram() {
    let elements = 1 << 20;
    let more = [("compute.cores", "8"), ("dram.rate", "1 GB/s"), ("compute.clock", "4 GHz")];
    let ran = store(&device("zou-2023", &more), elements).run(&stat(false), 1 << 14);
    // Each byte goes into DRAM and out of it.
    near(ran.took.seconds(), 2.0 * (elements * 4) as f64 / 1e9, 0.01);
    assert!(ran.report.utilisation.dram <= 1.0);
}

/// Entry points take as long on whatever core they run, and beside whatever job.
#[test]
fn every_tick_of_an_entry_point_is_spent() {
    let spent = |cores: &str| {
        let d = device("zou-2023-stream", &[STREAM[0], STREAM[1], ("compute.cores", cores)]);
        reason(&store(&d, 1 << 19).run(&stat(true), 1 << 14), "entry_points")
    };
    let alone = spent("1");
    assert!(alone > 0.0);
    for cores in ["2", "3", "8"] {
        near(spent(cores), alone, 1e-9);
    }
}

#[test]
fn what_cores_move_and_do_adds_up() {
    let elements = 1 << 19;
    let bytes = elements * 4;
    for (core, kind, more, dram) in [
        ("zou-2023", false, &[("compute.cores", "3")][..], 2.0),
        ("zou-2023-stream", true, &STREAM, 0.0),
        (
            "zou-2023-stream",
            false,
            &[("compute.core.input_source", "ping-pong"), ("compute.core.pingpong_bytes", "128 KiB")],
            0.0,
        ),
    ] {
        let ran = store(&device(core, more), elements).run(&stat(kind), 1 << 16);
        let cores = ran.cores();
        let moved = cores.lines_read * 64 + cores.pages_past_dram * 4096;
        assert!(moved >= bytes && moved < bytes + bytes / 50, "{core}: {moved} bytes reached cores of {bytes}");
        let past = if dram == 0.0 { bytes / 4096 } else { 0 };
        assert_eq!(cores.pages_past_dram, past, "{core}");
        assert_eq!(cores.crossbar_bytes, past * 4096);
        every_second_has_one_reason(&ran, core);
        assert!(ran.report.utilisation.compute.iter().all(|share| *share <= 1.0));
        ran.report.check().unwrap();
    }
}

/// Checks that the seconds by reason add up to the working and waiting times that the machine recorded for its cores.
fn every_second_has_one_reason(ran: &Ran, what: &str) {
    let programs = ran.report.programs.as_ref().unwrap();
    let reasons: f64 = ran.cores().seconds_by_reason.iter().map(|(_, s)| s).sum();
    let waited = reason(ran, "stream_wait");
    let (work, wait) = (programs.work_s, programs.wait_s);
    assert!(((reasons - waited) / work - 1.0).abs() < 0.001, "{what}: {} s of work in {work} s", reasons - waited);
    assert!(waited <= wait + 1e-9, "{what}: waits of {waited} s in {wait} s");
}

#[test]
fn a_core_that_prefetches_has_one_reason_for_every_second() {
    for core in ["zou-2023-prefetch", "five-stage", "ex5"] {
        for prefetch in ["next-line", "stride", "dcpt"] {
            let more = [("compute.cores", "3"), ("compute.prefetch", prefetch)];
            let ran = store(&device(core, &more), 1 << 18).run(&stat(false), 1 << 15);
            let lines = ran.cores().lines_prefetched;
            assert!(lines > 0, "{core}, {prefetch}: {lines} lines prefetched");
            every_second_has_one_reason(&ran, &format!("{core}, {prefetch}"));
        }
    }
}

#[test]
fn parts_have_energy_and_area() {
    for (name, watts, area) in
        [("assasin-baseline", 14.048e-3, 2.923), ("assasin-sb", 12.62625e-3, 1.625), ("assasin-sp", 5.85675e-3, 1.046)]
    {
        let d = describe::preset(name).unwrap();
        let c = d.compute.unwrap();
        near(describe::ComputeParts::sum(&c.parts.power_uw, c.cores) * 1e-6, watts, 1e-6);
        near(describe::ComputeParts::sum(&c.parts.area_mm2, c.cores), area, 1e-6);
    }
    let small = [
        ("geometry.blocks", "24"),
        ("geometry.pages", "64"),
        ("ftl.over_provisioning", "60 %"),
        ("compute.isa", "any"),
    ];
    let d = describe::preset_with("assasin-sb", &small).unwrap();
    let ran = store(&d, 1 << 18).run(&stat(true), 1 << 17);
    let parts: f64 = ran.cores().components.iter().map(|part| part.energy_j).sum();
    near(parts, ran.report.energy.compute_j + ran.report.energy.compute_idle_j, 1e-9);
    near(ran.cores().area_mm2, 1.625, 1e-6);
}

#[test]
fn results_do_not_depend_on_any_timing_parameter() {
    let seed = 0x5eed;
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut pick = |all: &[&'static str]| all[chance.usize(0..all.len())];
    let mut times = std::collections::BTreeSet::new();
    for round in 0..12 {
        let stream = round % 2 == 0;
        let input = if stream { pick(&["stream", "dram"]) } else { pick(&["ping-pong", "dram"]) };
        let more = [
            ("compute.cores", pick(&["1", "3", "8"])),
            ("compute.clock", pick(&["20 MHz", "1 GHz", "5 GHz"])),
            ("compute.core.input_source", input),
            ("compute.read_ahead", pick(&["none", "3", "40"])),
            ("compute.prefetch", pick(&["core", "next-line", "stride", "dcpt"])),
            ("compute.l1d_size", pick(&["core", "4 KiB", "0 B"])),
            ("compute.placement", pick(&["crossbar", "channel"])),
            ("compute.crossbar_rate", pick(&["ideal", "300 MB/s"])),
            ("compute.t_request", pick(&["0 s", "2 us"])),
            ("compute.t_manage", pick(&["0 s", "7 us"])),
            ("compute.load_ticks", pick(&["none", "9"])),
            ("dram.rate", pick(&["ideal", "500 MB/s", "8 GB/s"])),
            ("dram.burst", pick(&["64 B", "4 KiB"])),
            ("geometry.channels", pick(&["1", "4", "8"])),
        ];
        let core = pick(&["zou-2023", "zou-2023-stream", "five-stage", "ibex", "ex5", "c66x"]);
        let ran = store(&device(core, &more), 40_001 / 8 * 8).run(&stat(stream), 1 << 15);
        times.insert(ran.took);
        ran.report.check().unwrap();
    }
    assert!(times.len() > 8, "seed {seed}: the parameters change times");
}

#[test]
fn one_history_gives_one_trace() {
    let run = || {
        let ran = store(&device("zou-2023", &[("compute.cores", "4")]), 1 << 16).run(&stat(false), 1 << 14);
        (ran.report.hash.clone(), ran.took)
    };
    assert_eq!(run(), run());
}

/// A program that loops for ever.
const HANGS: &[&str] = &["addi t0, zero, 1", "jal zero, . + 0"];
/// A program that waits for 64 KiB of its input at once.
const LOOKS_FAR: &[&str] = &["lui t0, 0x10", "streamwait t1, 0, t0", "jalr zero, 0(ra)"];
/// A program that loads from an address where there is no memory.
const TRAPS: &[&str] = &["addi t0, zero, 1", "ld t0, 66(zero)", "jalr zero, 0(ra)"];

#[test]
fn a_program_that_goes_wrong_is_named_and_the_device_serves_on() {
    let metadata = r#"{"abi": 1, "name": "wrong", "kind": "stream", "state_bytes": 8,
        "inputs": [{"name": "x", "dtype": "int32"}], "outputs": [], "scalars": []}"#;
    for core in ["zou-2023-stream", "five-stage"] {
        let store = store(&device(core, &[STREAM[0], ("compute.cores", "2"), ("compute.t_manage", "1 us")]), 1 << 16);
        for (body, beyond) in [(HANGS, false), (TRAPS, false), (LOOKS_FAR, true)] {
            let modelled = Modelled::new(&store.clock).unwrap();
            let elf = common::elf(&[("nd_stream", body), ("nd_merge", ADD)], Some(metadata));
            let error = store.execute_limited(&elf, &modelled, 1 << 14, Some(3_000_000)).unwrap_err();
            assert_eq!(matches!(error, Error::Execution(_)), !beyond, "{error}");
            let text = format!("{error}: {error:?}");
            assert!(text.contains("nd_stream+0x4"), "{text}");
            let looks = "byte 16384 is needed while the core is in the page of byte 0; its stream buffer holds";
            assert_eq!(text.contains(looks), beyond, "{text}");
            store.clock.settle();
            store.run(&stat(true), 1 << 14);
        }
        let check = store.device.execute(command::Check { repair: false, accept_older: false }).unwrap();
        assert!(check.ok(), "{:?}", check.findings);
    }
}

#[test]
fn what_a_core_cannot_be_or_run_names_key_value_and_range() {
    let refused = |more: &[(&str, &str)]| {
        let all: Vec<_> = [("compute.core", "zou-2023")].iter().chain(more).copied().collect();
        describe::preset_with("assasin", &all).unwrap_err().to_string()
    };
    for (more, says) in [
        (
            ("compute.core.l1d.size_bytes", "48 KiB"),
            ["compute.core.l1d.size_bytes", "number of sets has to be a power of two"],
        ),
        (
            ("compute.core.l1d.ways", "7"),
            ["compute.core.l1d.ways", "l1d.size_bytes = 32768; a multiple of ways times line_bytes"],
        ),
        (("compute.read_ahead", "1"), ["compute.read_ahead", "at least compute.core.stream_pages (2)"]),
        (("compute.core.streams", "9"), ["compute.core.streams", "programs have at most 8"]),
    ] {
        let text = refused(&[more]);
        assert!(says.iter().all(|part| text.contains(part)), "{more:?}: {text}");
    }
    let vectors = |key: &'static str, value: &'static str| {
        let all = [("compute.core", "zou-2023-varve"), ("compute.isa", "own"), (key, value)];
        describe::preset_with("assasin", &all).map_err(|error| error.to_string())
    };
    assert!(vectors("compute.core.vector.align_bits", "1").is_ok() && vectors("compute.core.isa", "+zvl512b").is_ok());
    for (key, value, says) in [
        ("compute.core.vector.align_bits", "12", "compute.core.vector.align_bits"),
        ("compute.core.vector.align_bits", "128", "from 1 to 64"),
        ("compute.vector_length", "128", "isa = +zvl128b; it must add something to rv64gcv"),
        ("compute.core.vector.datapath_bits", "512", "compute.core.vector.datapath_bits"),
        ("compute.core.vector.unpack_lines", "65", "from 0 to 64"),
    ] {
        let text = vectors(key, value).unwrap_err();
        assert!(text.contains(says), "{key} = {value}: {text}");
    }
    let text = refused(&[("compute.core.vector.align_bits", "4")]);
    assert!(text.contains("vector.align_bits") && text.contains("isa has no vectors"), "{text}");
    let text = refused(&[("compute.core.input_source", "stream"), ("compute.core.streams", "0")]);
    assert!(text.contains("input_source = stream; streams are needed for it"), "{text}");
    let wide = r#"{"abi": 1, "name": "wide", "kind": "stream", "state_bytes": 8, "scratchpad_bytes": 200000,
        "inputs": [{"name": "x", "dtype": "int32"}], "outputs": [], "scalars": []}"#;
    let elf = common::elf(&[("nd_stream", STAT_STREAM), ("nd_merge", ADD)], Some(wide));
    for (more, elf, says) in [
        (
            &[STREAM[0], ("compute.core.scratchpad_bytes", "64 KiB")][..],
            &elf,
            "compute.core.scratchpad_bytes = 65536: program \"wide\"",
        ),
        (&[("compute.core.streams", "0")], &elf, "compute.core.streams = 0: program \"wide\" has 1 streams"),
        (
            &[("compute.isa", "own")],
            &stat(true),
            "compute.isa = \"own\": the program is of 64 bits; the core zou-2023-stream has isa = rv32im",
        ),
        (&STREAM, &stat(false), "compute.core.input_source = \"stream\": program \"stat\" has windows"),
    ] {
        let store = store(&device("zou-2023-stream", more), 1 << 12);
        let error = store.execute(elf, &Modelled::new(&store.clock).unwrap(), 1 << 14).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A program that copies a stream.
const COPY_STREAM: &[&str] = &["streamload.d t0, 0", "streamstore.d t0, 0", "jal zero, . - 8"];

/// Copies the store's array into the array `to`; returns the value of the output.
fn copied(store: &Store, to: SpaceId) -> Result<Option<OutputValue>, Error> {
    let metadata = r#"{"abi": 1, "name": "copy", "kind": "stream",
        "inputs": [{"name": "x", "dtype": "int32", "record_bytes": 8}],
        "outputs": [{"name": "y", "dtype": "int32", "record_bytes": 8}], "scalars": []}"#;
    let program = store.runtime.load(&common::elf(&[("nd_stream", COPY_STREAM)], Some(metadata)), None)?;
    let count = [store.elements];
    let inputs = [Input::Box { space: store.space, start: &[0], step: &[1], count: &count, view: None, tiles: None }];
    let outputs = [Some(Output::Box { space: to, start: &[0], count: &count, view: None, tiles: None })];
    let stage = StageRequest {
        program,
        form: Form::Interpreted,
        inputs: &inputs,
        scalars: &[],
        outputs: &outputs,
        task_bytes: 1 << 14,
        instructions: None,
        cores: &[],
    };
    let (stages, progress) = ([stage], Progress::default());
    let modelled = Modelled::new(&store.clock).unwrap();
    let execution = Execution {
        stages: &stages,
        executor: &modelled,
        hold_bytes: 1 << 24,
        collect_bytes: u64::MAX,
        locks_at_end: false,
        progress: &progress,
    };
    Ok(store.runtime.execute(&execution)?.stages.remove(0).outputs.remove(0))
}

fn contents(device: &Device, space: SpaceId, elements: u64) -> Vec<i32> {
    let mut to = vec![0i32; elements as usize];
    let target = Target::Box { start: &[0], step: &[1], count: &[elements], strides: &[4], view: None };
    // SAFETY: the target reaches exactly the elements of `to`.
    let out = unsafe { BufferMut::from_raw(to.as_mut_ptr().cast()) };
    device.execute(command::Read { space, target, out }).unwrap();
    to
}

/// Creates a store with a second array; returns both, and the log of the store's writes to flash.
fn logged(d: &Description, elements: u64) -> (Store, SpaceId, Arc<Mutex<WriteLog>>) {
    let writes = Arc::new(Mutex::new(WriteLog::default()));
    let opened = store::open_logged(&Backing::Memory, Mode::Append, &Options::default(), d, None, Some(writes.clone()));
    let (device, clock) = opened.unwrap();
    let device = Arc::new(device);
    let make = |name| {
        let new = NewSpace {
            name,
            shape: &[elements],
            item_bytes: 4,
            dtype: "<i4",
            block: Some(&[4_096]),
            compression: None,
            key: None,
            fill: None,
            attrs: "{}",
        };
        device.execute(command::Create(new)).unwrap().id
    };
    let (space, to) = (make("x"), make("y"));
    fill(&device, space, elements);
    device.execute(command::Flush).unwrap();
    (Store { runtime: Runtime::new(device.clone()), device, clock, space, elements }, to, writes)
}

#[test]
fn power_lost_while_programs_run_leaves_an_output_whole_or_absent() {
    let elements = 1 << 14;
    let d = device("zou-2023-stream", &[STREAM[0], ("compute.cores", "2"), ("compute.t_request", "20 ns")]);
    let events = |store: &Store| store.clock.machine(|machine| machine.events());
    let total = {
        let (store, to, _) = logged(&d, elements);
        let before = events(&store);
        copied(&store, to).unwrap();
        store.device.execute(command::Flush).unwrap();
        events(&store) - before
    };
    let (mut whole, mut absent) = (0, 0);
    for fail_after in (1..total).step_by((total / 60).max(1) as usize) {
        let (store, to, writes) = logged(&d, elements);
        store.clock.settle();
        store.clock.machine(|machine| machine.fail_power_after(fail_after));
        let before = writes.lock().len();
        copied(&store, to).unwrap();
        let flushed_before = store.clock.machine(|machine| machine.power_failed().is_some());
        let mut issued = writes.lock().len();
        if !flushed_before {
            store.device.execute(command::Flush).unwrap();
            issued = writes.lock().len();
        }
        let Some(programmed) = store.clock.machine(|machine| machine.power_failed().cloned()) else { continue };
        let page = d.geometry.page_bytes as usize;
        let medium = writes.lock().survives(before, issued, &programmed.ended, page).unwrap();
        let options = Options { entropy: 1 + fail_after, ..Options::default() };
        let at = format!("power lost after {fail_after} events of {total}");
        let again = Device::open(Arc::new(medium), "what survives", Mode::ReadWrite, &options)
            .unwrap_or_else(|e| panic!("{at}: {e}"));
        let report = again.execute(command::Check { repair: false, accept_older: false }).unwrap();
        assert!(report.ok(), "{at}: {:?}", report.findings);
        let open = |name| again.execute(command::Open { name, key: None }).unwrap().id;
        let source = contents(&again, open("x"), elements);
        assert_eq!(source, numbers(elements), "{at}: what was flushed is there");
        let found = contents(&again, open("y"), elements);
        let is_absent = found.iter().all(|&value| value == 0);
        assert!(is_absent || found == source, "{at}: an output is half written");
        whole += u32::from(!is_absent);
        absent += u32::from(is_absent);
        again.close().unwrap();
    }
    assert!(absent >= 20, "{whole} outputs survived, {absent} did not");
}
