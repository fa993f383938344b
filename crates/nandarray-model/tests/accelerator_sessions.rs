//! Promise: kernels of a store on the modelled accelerator give the bytes of a serial run under every scheduler, also
//! if a core or a die fails in mid-kernel; they take the time that their parts take; and if the power fails at any
//! write of kernels, of the journal or of reclaim, each kernel's outputs are there whole or not at all, and all that
//! was flushed is there.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use nandarray::{
    BufferMut, Device, FaultMedia, Geometry, Media, MemoryMedia, Mode, NewSpace, Options, Source, SpaceId, Target,
    command,
};
use nandarray_model::{AcceleratorOptions, AcceleratorPlatform, AcceleratorSession};
use nandarray_runtime::schedule::{KernelFacts, SCHEDULERS, by_name};
use nandarray_runtime::{
    KernelForm, KernelRequest, LoadedKernel, Runtime, SectionBinding, SectionBox, SectionSource, SectionTarget,
};

const ITEMS: u64 = 1500;
const SPACES: usize = 4;

/// A program that adds one to each element of its window.
const ADD: &[&str] = &[
    "ld t0, 600(a0)",
    "ld t1, 608(a0)",
    "add t1, t0, t1",
    "beq t0, t1, . + 24",
    "ld t2, 0(t0)",
    "addi t2, t2, 1",
    "sd t2, 0(t0)",
    "addi t0, t0, 8",
    "jal zero, . - 20",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

const TABLE: &str = r#"{"abi": 1, "name": "add", "kind": "kernel", "inputs": [],
    "outputs": [{"name": "y", "item_bytes": 8, "update": true}],
    "microblocks": [{"entry": "first", "screens": "y", "reads": {}, "writes": {"y": "rows"}},
                    {"entry": "second", "screens": 1, "reads": {}, "writes": {"y": "all"}}]}"#;

fn kernel() -> Arc<LoadedKernel> {
    let elf = common::elf(&[("nd_kernel_first", ADD), ("nd_kernel_second", ADD)], Some(TABLE));
    Arc::new(LoadedKernel::new(&elf, TABLE.as_bytes()).unwrap())
}

fn open(media: Arc<dyn Media>, mode: Mode) -> Result<Device, nandarray::Error> {
    let options =
        Options { geometry: Geometry::TINY, threads: Some(1), write_buffer_bytes: 4096, ..Options::default() };
    Device::open(media, "test", mode, &options)
}

fn make(device: &Device) -> Vec<SpaceId> {
    let one = |n: usize| {
        let name = format!("a{n}");
        let new = NewSpace {
            name: &name,
            shape: &[ITEMS],
            item_bytes: 8,
            dtype: "<u8",
            block: Some(&[64]),
            compression: None,
            key: None,
            fill: None,
            attrs: "{}",
        };
        let space = device.execute(command::Create(new)).unwrap().id;
        let values = vec![0u64; ITEMS as usize];
        let target = Target::Box { start: &[0], step: &[1], count: &[ITEMS], strides: &[8], view: None };
        // SAFETY: the buffer has the elements of the box.
        let source = unsafe { Source::from_raw(values.as_ptr().cast()) };
        device.execute(command::Write { space, target, source }).unwrap();
        space
    };
    (0..SPACES).map(one).collect()
}

fn content(device: &Device, space: SpaceId) -> Vec<u64> {
    let mut all = vec![0u64; ITEMS as usize];
    let target = Target::Box { start: &[0], step: &[1], count: &[ITEMS], strides: &[8], view: None };
    // SAFETY: the buffer has the elements of the space.
    let out = unsafe { BufferMut::from_raw(all.as_mut_ptr().cast()) };
    device.execute(command::Read { space, target, out }).unwrap();
    all
}

fn request(kernel: &Arc<LoadedKernel>, space: SpaceId) -> KernelRequest {
    let whole = SectionBox { space, start: vec![0], step: vec![1], count: vec![ITEMS], view: None };
    let (source, target) = (SectionSource::Box(whole.clone()), SectionTarget::Box(whole));
    KernelRequest {
        kernel: kernel.clone(),
        form: KernelForm::Interpreted,
        sections: vec![SectionBinding { shape: vec![ITEMS], source, target }],
        scalars: Vec::new(),
        name: String::new(),
        facts: KernelFacts { application: u64::from(space), ..KernelFacts::default() },
        after: Vec::new(),
        after_names: Vec::new(),
        instructions: Some(1 << 20),
    }
}

fn session(runtime: &Arc<Runtime>, scheduler: &str, platform: AcceleratorPlatform) -> AcceleratorSession {
    let policy = by_name(scheduler, platform.workers).unwrap();
    let options = AcceleratorOptions { platform, core: "lwp".into(), memory_bytes: 1 << 30, window_bytes: 1 << 20 };
    AcceleratorSession::new(runtime, &options, policy).unwrap()
}

#[test]
fn every_scheduler_gives_the_bytes_of_a_serial_run_even_if_parts_fail() {
    let kernel = kernel();
    for scheduler in SCHEDULERS {
        let mut sound = 0.0;
        for (core, die) in [(false, false), (true, false), (false, true)] {
            let device = open(Arc::new(MemoryMedia::with_bytes(vec![])), Mode::Exclusive).unwrap();
            let spaces = make(&device);
            let runtime = Arc::new(Runtime::new(Arc::new(device)));
            // The failures occur while the first screens compute, or wait for flash.
            let platform = AcceleratorPlatform {
                core_failures: if core { (0..5).map(|w| (w, 90_000 + 1_000 * w as u64)).collect() } else { Vec::new() },
                die_failures: if die { vec![(1, 20_000)] } else { Vec::new() },
                ..AcceleratorPlatform::default()
            };
            let session = session(&runtime, scheduler, platform);
            let jobs: Vec<_> = (0..12).map(|n| session.submit(request(&kernel, spaces[n % SPACES])).unwrap()).collect();
            for job in &jobs {
                assert!(session.wait(job, &mut || false).unwrap());
                job.take().expect("it has ended").unwrap();
            }
            session.close(false).unwrap();
            for space in &spaces {
                assert_eq!(content(runtime.device(), *space), vec![6; ITEMS as usize], "{scheduler} {core} {die}");
            }
            let report = session.report();
            assert_eq!(report.kernels.len(), 12);
            assert_eq!(report.bytes_out, 12 * ITEMS * 8);
            assert!(report.kernels.iter().all(|k| k.compute > 0.0 && k.latency > 0.0), "{:?}", report.kernels);
            assert!(report.flushed_seconds > report.seconds);
            // Two microblocks of six instructions per element, of which at most eight are executed per cycle.
            let least = 12.0 * 2.0 * ITEMS as f64 * 6.0 / 8.0 * 1e-9;
            assert!(report.kernels.iter().map(|k| k.compute).sum::<f64>() > least);
            match core || die {
                false => sound = report.seconds,
                true => {
                    assert!(report.reruns > 0, "{scheduler}");
                    assert!(report.seconds > sound, "{scheduler}: {} after {sound}", report.seconds);
                }
            }
        }
    }
}

#[test]
fn a_power_cut_leaves_each_kernels_outputs_whole_or_absent() {
    let kernel = kernel();
    for (cuts, n) in (1u64..).step_by(7).enumerate() {
        let media = Arc::new(FaultMedia::default());
        let device = open(media.clone(), Mode::Append).unwrap();
        let spaces = make(&device);
        device.execute(command::Flush).unwrap();
        media.crash_at_write(media.writes() + n);
        let runtime = Arc::new(Runtime::new(Arc::new(device)));
        let session = session(&runtime, "intra-out-of-order", AcceleratorPlatform::default());
        let (mut flushed, mut done) = (0u64, 0u64);
        let story = (|| -> Result<(), String> {
            for turn in 0..6u64 {
                let jobs: Vec<_> = spaces.iter().map(|s| session.submit(request(&kernel, *s))).collect();
                done = turn + 1;
                for job in jobs {
                    let job = job.map_err(|e| e.to_string())?;
                    session.wait(&job, &mut || false).unwrap();
                    job.take().expect("it has ended").map_err(|e| e.to_string())?;
                }
                if turn % 2 == 1 {
                    runtime.device().execute(command::Flush).map_err(|e| e.to_string())?;
                    flushed = turn + 1;
                }
            }
            Ok(())
        })();
        session.close(true).unwrap();
        if story.is_ok() && !media.crashed() {
            assert!(cuts > 3, "kernels, journal and reclaim write");
            break;
        }
        for (what, bytes) in [("kill", media.after_kill()), ("cut", media.after_crash(n))] {
            let again = open(Arc::new(FaultMedia::with_bytes(bytes)), Mode::ReadWrite).unwrap();
            for space in &spaces {
                let found = content(&again, *space);
                let turns = found[0] / 2;
                assert!(found.iter().all(|value| *value == found[0]), "{what} at write {n}: a part of a kernel");
                assert!((flushed..=done).contains(&turns), "{what} at write {n}: {turns} of {flushed} to {done} turns");
            }
        }
    }
}

#[test]
fn kernels_whose_outputs_have_no_place_fail_and_waits_for_a_name_are_told() {
    let kernel = kernel();
    let device = open(Arc::new(MemoryMedia::with_bytes(vec![])), Mode::Exclusive).unwrap();
    let spaces = make(&device);
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    // DDR3L has room for one group, and flash for none: its last block is reserved for groups that move.
    let platform = AcceleratorPlatform { blocks: 1, write_buffer_bytes: 64 << 10, ..AcceleratorPlatform::default() };
    let session = session(&runtime, "intra-out-of-order", platform);
    let jobs: Vec<_> = (0..SPACES).map(|n| session.submit(request(&kernel, spaces[n])).unwrap()).collect();
    let mut failed = 0;
    for job in &jobs {
        assert!(!session.wait(job, &mut || true).unwrap(), "no time is left");
    }
    for job in &jobs {
        assert!(session.wait(job, &mut || false).unwrap());
        if let Err(error) = job.take().expect("it has ended") {
            assert!(error.to_string().contains("flash is full"), "{error}");
            failed += 1;
        }
    }
    assert!(failed > 0);
    let waits = KernelRequest { after_names: vec!["never".into()], ..request(&kernel, spaces[0]) };
    let waits = session.submit(waits).unwrap();
    assert!(session.wait(&waits, &mut || false).unwrap_err().to_string().contains("waits for a name"));
    assert!(session.close(false).unwrap_err().to_string().contains("flash is full"));
}
