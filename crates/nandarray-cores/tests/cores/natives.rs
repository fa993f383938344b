//! A program's functions in this process do what its instructions do on a hart: outputs, states, statuses and errors.

use std::sync::atomic::AtomicBool;

use nandarray_cores::{BorrowedTask, Bounds, Core, Native, Program, RunError, TaskPlace};

use crate::common::{at, by_hand, elf};

fn word(block: *mut u8, at: usize) -> u64 {
    // SAFETY: argument blocks have 4096 bytes, aligned to 8.
    unsafe { block.add(at).cast::<u64>().read() }
}

fn put(block: *mut u8, at: usize, value: u64) {
    // SAFETY: as above.
    unsafe { block.add(at).cast::<u64>().write(value) }
}

fn load(address: u64) -> u64 {
    // SAFETY: the address is in the state or in an input of the call.
    unsafe { (address as *const u64).read_unaligned() }
}

fn store(address: u64, value: u64) {
    // SAFETY: the address is in the state or in an output of the call.
    unsafe { (address as *mut u64).write_unaligned(value) }
}

/// As `common::COPY`, without the task that traps and the one that hangs.
unsafe extern "C" fn copy(block: *mut u8) -> i64 {
    if word(block, at::TASK) == word(block, at::SCALAR) {
        return -7;
    }
    let (from, bytes, to, state) =
        (word(block, at::INPUT), word(block, at::INPUT + 8), word(block, at::OUTPUT), word(block, at::STATE));
    let mut hash = load(state);
    for at in (0..bytes).step_by(8) {
        let value = load(from + at);
        store(to + at, value);
        hash = hash.wrapping_mul(31).wrapping_add(value);
    }
    store(state, hash);
    put(block, at::OUTPUT + 16, bytes);
    0
}

unsafe extern "C" fn merge(block: *mut u8) -> i64 {
    let (state, other) = (word(block, at::STATE), word(block, at::OTHER_STATE));
    store(state, load(state).wrapping_mul(31).wrapping_add(load(other)));
    0
}

unsafe extern "C" fn end(block: *mut u8) -> i64 {
    store(word(block, at::OUTPUT + 64), load(word(block, at::STATE)));
    put(block, at::OUTPUT + 64 + 16, 8);
    0
}

/// Reports as many bytes of the first output as the first scalar says, and in the input's field what the second says.
unsafe extern "C" fn reports(block: *mut u8) -> i64 {
    put(block, at::OUTPUT + 16, word(block, at::SCALAR));
    put(block, at::INPUT + 16, word(block, at::SCALAR + 8));
    0
}

type Function = unsafe extern "C" fn(*mut u8) -> i64;

fn native(functions: [Option<Function>; 4]) -> Option<Native> {
    // SAFETY: these are functions of the type, which reach nothing but what their argument block names.
    unsafe { Native::new(functions.map(|function| function.map_or(0, |f| f as *const () as usize))) }
}

/// The results of a run of tasks: outputs or an error of each task, the state after each, the output of the end.
type Played = (Vec<Result<Vec<u8>, String>>, Vec<Vec<u8>>, Vec<u8>);

/// Runs tasks on a core, some of which fail, merges states now and then, and ends.
fn play(core: &mut Core<'_>, seed: u64) -> Played {
    let stop = AtomicBool::new(false);
    let bounds = Bounds { instructions: Some(1 << 20), stop: &stop };
    let mut chance = fastrand::Rng::with_seed(seed);
    let (fails, mut done, mut states) = (chance.u64(..6), Vec::new(), Vec::new());
    let scalars = [fails, 1 << 40, 1 << 40];
    core.begin(&scalars, 0, bounds).unwrap();
    for number in 0..6 {
        let input: Vec<u8> = (0..8 * chance.usize(..20)).map(|_| chance.u8(..)).collect();
        let records = input.len() as u64 / 8;
        let task = BorrowedTask { number, first_record: 0, records, place: &TaskPlace::default(), inputs: &[&input] };
        let mut outputs = vec![vec![9; 3], Vec::new()];
        let used = core.task(&scalars, task, &mut outputs, bounds);
        let result = used.map(|used| {
            assert_eq!((used[0], used[1]), (input.len() as u64, 0), "seed {seed}, task {number}");
            assert_eq!(outputs[0], input, "seed {seed}, task {number}");
            outputs[0].clone()
        });
        done.push(result.map_err(|e| e.to_string()));
        if chance.bool() {
            let other: [u8; 8] = std::array::from_fn(|_| chance.u8(..));
            core.merge(&scalars, &other, number, bounds).unwrap();
        }
        states.push(core.state().unwrap());
    }
    if chance.bool() {
        core.set_state(&[seed as u8; 8]).unwrap();
    }
    let mut outputs = vec![Vec::new(), Vec::new()];
    assert_eq!(core.end(&scalars, 6, &mut outputs, bounds).unwrap(), [0, 8]);
    (done, states, outputs.swap_remove(1))
}

#[test]
fn functions_do_what_instructions_do() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    let entries = native([None, Some(copy), Some(merge), Some(end)]).unwrap();
    let mut host = Core::native(&program, entries).unwrap();
    let mut hart = Core::interpreter(&program).unwrap();
    for seed in 0..80 {
        let (ours, theirs) = (play(&mut host, seed), play(&mut hart, seed));
        assert_eq!(ours, theirs, "seed {seed}");
        let failed = ours.0.iter().position(Result::is_err);
        let said = failed.map(|task| ours.0[task].clone().unwrap_err());
        assert_eq!(said, failed.map(|task| format!("task {task}: the program's nd_block returned -7")), "seed {seed}");
    }
    assert!(host.lends() && !hart.lends());
    assert!(host.instructions() == 0 && hart.instructions() > 0);
    assert!(host.meter::<nandarray_hart::Counter>().is_none() && hart.meter::<nandarray_hart::Counter>().is_none());
}

#[test]
fn what_a_function_reports_is_checked() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    let mut core = Core::native(&program, native([None, Some(reports), Some(merge), Some(end)]).unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let bounds = Bounds { instructions: None, stop: &stop };
    let input = [0; 32];
    let mut of = |used: u64, left: u64| {
        let task =
            BorrowedTask { number: 3, first_record: 0, records: 4, place: &TaskPlace::default(), inputs: &[&input] };
        core.task(&[used, left, 0], task, &mut [Vec::new(), Vec::new()], bounds).map_err(|e| e.to_string())
    };
    for used in [0, 8, 32] {
        assert_eq!(of(used, 0), Ok(vec![used, 0]));
        assert_eq!(of(used, 1), Ok(vec![used, 0]), "a stream that ended whole");
    }
    for used in [33, 40, u64::MAX] {
        let said = format!("task 3: output 0 of {used} bytes; its bound leaves room for 32");
        assert_eq!(of(used, 0), Err(said));
    }
    for used in [1, 7, 31] {
        assert_eq!(of(used, 0), Err(format!("task 3: output 0 of {used} bytes is not whole elements of 8")));
    }
    for left in [1, 7] {
        let said = format!("task 3: input stream 0 ended with {left} bytes left, fewer than the program reads at once");
        assert_eq!(of(8, 1 + left), Err(said));
    }
}

#[test]
fn functions_must_be_those_that_the_program_defines() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    let all = [None, Some(copy as Function), Some(merge as Function), Some(end as Function)];
    assert!(native([None, None, Some(merge), Some(end)]).is_none(), "no task");
    for (at, name) in [(0, "nd_begin"), (2, "nd_merge"), (3, "nd_end")] {
        let mut other = all;
        other[at] = if other[at].is_some() { None } else { Some(merge as Function) };
        let error = Core::native(&program, native(other).unwrap()).err().map(|e| e.to_string());
        assert_eq!(error, Some(format!("the program does not define {name}")));
    }
    assert!(Core::native(&program, native(all).unwrap()).is_ok());
}

#[test]
fn an_entry_point_that_a_program_lacks_does_nothing() {
    let metadata = r#"{"abi": 1, "kind": "block", "inputs": [{"dtype": "u1"}], "outputs": [{"dtype": "u1"}]}"#;
    let program =
        Program::from_elf(&elf(&[("nd_block", &["addi a0, zero, 0", "jalr zero, 0(ra)"])], Some(metadata)), None)
            .unwrap();
    let stop = AtomicBool::new(false);
    let bounds = Bounds { instructions: Some(100), stop: &stop };
    let host = Core::native(&program, native([None, Some(reports), None, None]).unwrap()).unwrap();
    for mut core in [Core::interpreter(&program).unwrap(), host] {
        core.begin(&[], 0, bounds).unwrap();
        core.merge(&[], &[], 0, bounds).unwrap();
        let mut outputs = vec![vec![1, 2, 3]];
        assert_eq!(core.end(&[], 0, &mut outputs, bounds).unwrap(), [0]);
        assert_eq!((outputs, core.instructions()), (vec![Vec::new()], 0));
    }
    let mut core = Core::interpreter(&program).unwrap();
    let too_much = vec![0; (64 << 20) + 1];
    let task = BorrowedTask {
        number: 1,
        first_record: 0,
        records: 1 << 27,
        place: &TaskPlace::default(),
        inputs: &[&too_much],
    };
    let error = core.task(&[], task, &mut [Vec::new()], bounds).unwrap_err();
    assert!(matches!(error, RunError::Overflow { task: 1, output: 0, used: 0x800_0000, room: 0x400_0000 }), "{error}");
}
