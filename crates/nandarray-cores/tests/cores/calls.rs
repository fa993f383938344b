//! Calls: the argument block that a program sees, calls that wait, that are cut off at every instruction, and that
//! cannot begin.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nandarray_cores::{Advance, BorrowedTask, Bounds, Call, Core, Inflow, OwnedTask, Program, RunError, TaskPlace};
use serde_json::{Value, json};

use crate::common::{by_hand, elf};

/// Copies the program's argument block to its first output.
const DUMP: &[&str] = &[
    "ld t0, 600(a0)",
    "addi t1, a0, 0",
    "addi t2, a0, 1376",
    "ld t3, 0(t1)",
    "sd t3, 0(t0)",
    "addi t1, t1, 8",
    "addi t0, t0, 8",
    "bltu t1, t2, . - 16",
    "addi t4, zero, 1376",
    "sd t4, 616(a0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];
const WORDS: usize = 1376 / 8;

/// A port as the test describes it: bytes of a record, whether every task gets the whole input, and the bytes of an
/// output: for each record, for each byte of input, and fixed.
struct PlainPort {
    record: u64,
    whole: bool,
    bound: (u64, f64, u64),
}

/// A program with random ports, and a task for it.
struct PlainTask {
    metadata: Value,
    inputs: Vec<PlainPort>,
    outputs: Vec<PlainPort>,
    scalars: Vec<u64>,
    bytes: Vec<Vec<u8>>,
    place: TaskPlace,
    number: u64,
    first_record: u64,
    records: u64,
    state_bytes: u64,
    scratchpad_bytes: u64,
}

impl PlainTask {
    fn random(chance: &mut fastrand::Rng) -> Self {
        let (mut inputs, mut outputs, mut bytes) = (Vec::new(), Vec::new(), Vec::<Vec<u8>>::new());
        let extents: Vec<u64> = (0..chance.usize(..5)).map(|_| chance.u64(1..4)).collect();
        let boxed = extents.iter().product::<u64>();
        for number in 0..chance.usize(1..9) {
            let record = chance.u64(1..20);
            let count = if chance.bool() { boxed } else { chance.u64(..12) };
            let torn = if chance.u8(..4) == 0 { chance.u64(..record) } else { 0 };
            bytes.push((0..(count * record).saturating_sub(torn)).map(|_| chance.u8(..)).collect());
            inputs.push(PlainPort { record, whole: number > 0 && chance.bool(), bound: (0, 0.0, 0) });
        }
        for number in 0..chance.usize(1..9) {
            let fixed = if number == 0 { 1376 } else { chance.u64(..2) * chance.u64(..100) };
            let bound = (chance.u64(..4), f64::from(chance.u8(..4)) / 2.0, fixed);
            outputs.push(PlainPort { record: chance.u64(1..9), whole: false, bound });
        }
        let scalars: Vec<u64> = (0..chance.usize(..17)).map(|_| chance.u64(..)).collect();
        let (state_bytes, scratchpad_bytes) =
            (chance.u64(..3) * chance.u64(..70_000), chance.u64(..3) * chance.u64(..100_000));
        let input = |p: &PlainPort| json!({"dtype": "S1", "record_bytes": p.record, "whole": p.whole});
        let output = |p: &PlainPort| {
            let (per_record, per_input_byte, fixed) = p.bound;
            json!({"dtype": "S1", "record_bytes": p.record,
                "bound": {"per_record": per_record, "per_input_byte": per_input_byte, "fixed": fixed}})
        };
        let metadata = json!({
            "abi": 1, "kind": "block", "state_bytes": state_bytes, "scratchpad_bytes": scratchpad_bytes,
            "inputs": inputs.iter().map(input).collect::<Vec<_>>(),
            "outputs": outputs.iter().map(output).collect::<Vec<_>>(),
            "scalars": scalars.iter().map(|_| json!({"dtype": "int64"})).collect::<Vec<_>>(),
        });
        let records = bytes[0].len().div_ceil(inputs[0].record as usize) as u64;
        let (number, first_record) = (chance.u64(..), chance.u64(..));
        let [first, total] = [(); 2].map(|()| extents.iter().map(|_| chance.u64(..)).collect());
        let place = TaskPlace { extents, inner: Vec::new(), first, total, paces: Vec::new() };
        Self {
            metadata,
            inputs,
            outputs,
            scalars,
            bytes,
            place,
            number,
            first_record,
            records,
            state_bytes,
            scratchpad_bytes,
        }
    }

    /// Returns the words of the argument block, as docs/reference/program-abi.md lays them out.
    fn block(&self) -> Vec<u64> {
        let mut words = vec![0; WORDS];
        let half = self.state_bytes.next_multiple_of(16);
        let all = (2 * half + self.scratchpad_bytes).max(64 << 10);
        let counts = [self.inputs.len(), self.outputs.len(), self.scalars.len()].map(|n| n as u64);
        words[..6].copy_from_slice(&[1, counts[0], counts[1], counts[2], self.number, self.first_record]);
        words[6..11].copy_from_slice(&[0x1000_0000, self.state_bytes, 0, 0x1000_0000 + 2 * half, all - 2 * half]);
        let extents = &self.place.extents;
        let boxed: u64 = extents.iter().product();
        let port = |words: &mut [u64], address: u64, bytes: u64, records: u64, whole: bool| {
            words[..3].copy_from_slice(&[address, bytes, 0]);
            let is_box = !whole && !extents.is_empty() && boxed == records;
            let shape = if is_box { extents.clone() } else { vec![records] };
            words[3] = shape.len() as u64;
            words[4..8].fill(1);
            words[4..4 + shape.len()].copy_from_slice(&shape);
        };
        let mut cut = 0;
        for (n, (input, bytes)) in self.inputs.iter().zip(&self.bytes).enumerate() {
            let length = bytes.len() as u64;
            cut += if input.whole { 0 } else { length };
            let at = 11 + 8 * n;
            let address = 0x2000_0000 + 0x400_0000 * n as u64;
            port(&mut words[at..at + 8], address, length, length.div_ceil(input.record), input.whole);
        }
        for (n, output) in self.outputs.iter().enumerate() {
            let (per_record, per_byte, fixed) = output.bound;
            let room = per_record * self.records + (per_byte * cut as f64).ceil() as u64 + fixed;
            let address = if room > 0 { 0x6000_0000 + 0x400_0000 * n as u64 } else { 0 };
            port(&mut words[75 + 8 * n..83 + 8 * n], address, room, room / output.record, false);
        }
        words[139..139 + self.scalars.len()].copy_from_slice(&self.scalars);
        let TaskPlace { first, total, .. } = &self.place;
        let (first, total) =
            if extents.is_empty() { (&vec![self.first_record], &vec![u64::MAX]) } else { (first, total) };
        words[168..].fill(1);
        words[164..164 + first.len()].copy_from_slice(first);
        words[168..168 + total.len()].copy_from_slice(total);
        words
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_program_sees_its_task_in_its_argument_block() {
    let bounds = AtomicBool::new(false);
    for seed in 0..250 {
        let task = PlainTask::random(&mut fastrand::Rng::with_seed(seed));
        let image = elf(&[("nd_block", DUMP)], Some(&task.metadata.to_string()));
        let program = Program::from_elf(&image, None).unwrap_or_else(|e| panic!("seed {seed}: {e}: {}", task.metadata));
        let wanted = task.block();
        let mut core = Core::interpreter(&program).unwrap();
        let inputs: Vec<&[u8]> = task.bytes.iter().map(Vec::as_slice).collect();
        let (number, first_record, records) = (task.number, task.first_record, task.records);
        let borrowed = BorrowedTask { number, first_record, records, place: &task.place, inputs: &inputs };
        let mut outputs = vec![vec![7; 9]; task.outputs.len()];
        let limits = Bounds { instructions: None, stop: &bounds };
        let used = core.task(&task.scalars, borrowed, &mut outputs, limits).unwrap();
        assert_eq!(used[0], 1376, "seed {seed}");
        assert_eq!(numbers(&outputs[0][..1376]), wanted, "seed {seed}: {}", task.metadata);
        let rooms: Vec<u64> = (0..task.outputs.len()).map(|n| wanted[75 + 8 * n + 1]).collect();
        assert_eq!(outputs.iter().map(|o| o.len() as u64).collect::<Vec<_>>(), rooms, "seed {seed}");
        // A call that owns its inputs shows the same block; records without a number are counted.
        let counted = seed % 2 == 0;
        let flows = task.bytes.iter().map(|bytes| match seed % 3 {
            0 => Inflow::shared(Arc::new([vec![9; 5], bytes.clone()].concat()), 5..5 + bytes.len()),
            _ => Inflow::whole(bytes.clone()),
        });
        let owned = OwnedTask {
            number,
            first_record,
            records: (!counted).then_some(records),
            place: task.place.clone(),
            inputs: flows.collect(),
            buffer_bytes: None,
        };
        let mut call = Call::task(core, &task.scalars, owned, None).unwrap();
        let done = call.run(None, &bounds);
        assert!(matches!(&done, Advance::Done(Ok(used)) if used[0] == 1376), "seed {seed}: {done:?}");
        let (_, outputs) = call.finish();
        assert_eq!(numbers(&outputs[0]), wanted, "seed {seed}: {}", task.metadata);
    }
}

fn owned(inputs: Vec<Inflow>, buffer_bytes: Option<usize>) -> OwnedTask {
    OwnedTask { number: 4, first_record: 0, records: None, place: TaskPlace::default(), inputs, buffer_bytes }
}

#[test]
fn a_call_that_is_cut_off_after_every_number_of_instructions_is_the_whole_call() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    let stop = AtomicBool::new(false);
    let input: Vec<u8> = (0..64).collect();
    let scalars = [99, 99, 99];
    let start = |limit: Option<u64>| {
        let core = Core::interpreter(&program).unwrap();
        Call::task(core, &scalars, owned(vec![Inflow::whole(input.clone())], None), limit).unwrap()
    };
    let mut whole = start(None);
    assert!(matches!(whole.run(None, &stop), Advance::Done(Ok(_))));
    let total = whole.instructions();
    let (mut core, outputs) = whole.finish();
    let state = core.state().unwrap();
    assert_eq!(outputs[0], input);
    for budget in 1..=total + 1 {
        let mut call = start(Some(total));
        let mut runs = 0;
        let used = loop {
            let before = call.instructions();
            match call.run(Some(budget), &stop) {
                Advance::OutOfBudget => assert_eq!(call.instructions(), before + budget),
                Advance::Done(done) => break done.unwrap(),
                other => panic!("{other:?}"),
            }
            runs += 1;
        };
        assert_eq!((used, runs), (vec![64, 0], (total - 1) / budget), "{budget} at a time");
        assert_eq!(call.instructions(), total);
        let (mut core, outputs) = call.finish();
        assert_eq!((core.state().unwrap(), &outputs[0]), (state.clone(), &input), "{budget} at a time");
    }
    // A limit is exact, whatever the budgets are.
    for limit in 0..total {
        let mut call = start(Some(limit));
        let done = loop {
            match call.run(Some(1 + limit % 7), &stop) {
                Advance::OutOfBudget => {}
                Advance::Done(done) => break done,
                other => panic!("{other:?}"),
            }
        };
        let said = done.unwrap_err().to_string();
        assert!(said.starts_with(&format!("task 4: more than {limit} instructions, at pc 0x1")), "{said}");
        assert_eq!(call.instructions(), limit);
    }
    let mut call = start(None);
    let cancelled = call.run(Some(3), &AtomicBool::new(true));
    assert!(matches!(cancelled, Advance::Done(Err(RunError::Cancelled(Some((4, _)))))), "{cancelled:?}");
    assert!(call.is_over());
}

#[test]
fn a_call_on_windows_begins_when_all_of_its_inputs_are_there() {
    let metadata = json!({"abi": 1, "kind": "block", "inputs": [{"dtype": "u1"}, {"dtype": "u1"}],
        "outputs": [{"dtype": "u1", "bound": {"fixed": 1376}}]});
    let program = Program::from_elf(&elf(&[("nd_block", DUMP)], Some(&metadata.to_string())), None).unwrap();
    let stop = AtomicBool::new(false);
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let lengths = [chance.u64(..50), chance.u64(..50)];
        let inputs = lengths.map(|length| Inflow::window((seed % 2 == 0).then_some(length)));
        let core = Core::interpreter(&program).unwrap();
        let mut call = Call::task(core, &[], owned(inputs.into(), None), None).unwrap();
        let mut sent = [0, 0];
        let outcome = loop {
            match call.run(None, &stop) {
                Advance::WaitInput { input } => {
                    let first = (0..2).find(|n| !call.input(*n).is_complete());
                    assert_eq!((Some(input), call.instructions()), (first, 0), "seed {seed}");
                    assert_eq!(
                        call.starved(input).to_string(),
                        format!("task 4: waits for bytes of input {input} that never come")
                    );
                    let left = lengths[input] - sent[input];
                    let flow = call.input_mut(input);
                    let piece = vec![input as u8; chance.u64(..=left) as usize];
                    // No more is taken than the input's length, if that is known.
                    let known = seed % 2 == 0;
                    let taken = flow.push(
                        &[piece.clone(), vec![8; if known && piece.len() as u64 == left { 3 } else { 0 }]].concat(),
                    );
                    assert_eq!(taken, piece.len(), "seed {seed}");
                    sent[input] += taken as u64;
                    assert_eq!((flow.arrived(), flow.taken()), (sent[input], 0), "seed {seed}");
                    if sent[input] == lengths[input] {
                        flow.close();
                        assert!(flow.is_complete() && flow.room() == 0, "seed {seed}");
                    }
                }
                Advance::Done(done) => break done,
                other => panic!("seed {seed}: {other:?}"),
            }
        };
        assert_eq!((sent, outcome.unwrap()), (lengths, vec![1376]), "seed {seed}");
        let (_, outputs) = call.finish();
        let words = numbers(&outputs[0]);
        assert_eq!([words[12], words[20]], lengths, "seed {seed}");
    }
}

#[test]
fn a_call_that_cannot_begin_is_refused_by_the_number_that_is_wrong() {
    let stream = r#"{"abi": 1, "kind": "stream", "inputs": [{"dtype": "u1"}], "outputs": [{"dtype": "u1"}]}"#;
    let code = ["streamload.bu t0, 0", "streamstore.b t0, 0", "jal zero, . - 8"];
    let streamed = Program::from_elf(&elf(&[("nd_stream", &code)], Some(stream)), None).unwrap();
    let block = Program::from_elf(&by_hand(), None).unwrap();
    let of = |program: &Program, inputs: Vec<Inflow>, buffer: Option<usize>| {
        let core = Core::interpreter(program).unwrap();
        Call::task(core, &[0, 0, 0], owned(inputs, buffer), None).err().map(|e| e.to_string())
    };
    let ring = || Inflow::ring(Inflow::RING_BYTES_MIN, None);
    assert_eq!(of(&block, vec![], None).as_deref(), Some("0 inputs for a program that takes 1"));
    assert_eq!(of(&streamed, vec![ring(), ring()], None).as_deref(), Some("2 inputs for a program that takes 1"));
    assert_eq!(of(&block, vec![ring()], None).as_deref(), Some("a program of windows cannot have a ring for an input"));
    let unknown = "an input whose end is not known needs outputs that are drained";
    assert_eq!(of(&streamed, vec![ring()], None).as_deref(), Some(unknown));
    assert_eq!(of(&streamed, vec![Inflow::window(Some(5))], None), None);
    let small = "a buffer of 65535 bytes for an output; programs look back 65536";
    assert_eq!(of(&streamed, vec![ring()], Some(65535)).as_deref(), Some(small));
    assert_eq!(of(&streamed, vec![ring()], Some(65536)), None);
}

#[test]
fn a_stream_of_any_length_passes_a_ring_and_a_buffer_that_are_shorter() {
    let stream = r#"{"abi": 1, "kind": "stream", "inputs": [{"dtype": "u1"}], "outputs": [{"dtype": "u1"}]}"#;
    let code = ["streamload.bu t0, 0", "xori t0, t0, 255", "streamstore.b t0, 0", "jal zero, . - 12"];
    let program = Program::from_elf(&elf(&[("nd_stream", &code)], Some(stream)), None).unwrap();
    let stop = AtomicBool::new(false);
    for seed in 0..4 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let ring_bytes = Inflow::RING_BYTES_MIN + chance.usize(..1000);
        let all: Vec<u8> = (0..2 * ring_bytes + chance.usize(..5000)).map(|_| chance.u8(..)).collect();
        let end = (seed % 2 == 0).then_some(all.len() as u64);
        let core = Core::interpreter(&program).unwrap();
        let task = owned(vec![Inflow::ring(ring_bytes, end)], Some(65536 + chance.usize(..100)));
        let mut call = Call::task(core, &[], task, None).unwrap();
        let (mut sent, mut got) = (0, Vec::new());
        let used = loop {
            let flow = call.input_mut(0);
            let piece = &all[sent..(sent + chance.usize(..60_000)).min(all.len())];
            // The ring keeps what the program may look back at, so it takes no more than its room.
            let (room, arrived, taken) = (flow.room(), flow.arrived(), flow.taken());
            let kept = taken.min(65536);
            let free = ring_bytes as u64 - (arrived - taken) - kept;
            let known = if flow.is_complete() { Some(all.len() as u64) } else { end };
            assert_eq!(room, free.min(known.map_or(u64::MAX, |end| end - arrived)), "seed {seed}");
            sent += flow.push(piece);
            if sent == all.len() && !flow.is_complete() {
                flow.close();
            }
            match call.run(Some(chance.u64(1..200_000)), &stop) {
                Advance::WaitInput { input: 0 } | Advance::OutOfBudget => {}
                Advance::WaitOutput { output: 0 } => {
                    let waiting: Vec<u8> = call.waiting(0).concat();
                    let count = chance.usize(1..=waiting.len());
                    got.extend_from_slice(&waiting[..count]);
                    call.drained(0, count as u64);
                }
                Advance::Done(done) => break done.unwrap(),
                other => panic!("seed {seed}: {other:?}"),
            }
        };
        got.extend(call.waiting(0).concat());
        assert_eq!((used[0], got.len()), (all.len() as u64, all.len()), "seed {seed}");
        assert!(got.iter().zip(&all).all(|(a, b)| *a == !b), "seed {seed}");
        assert_eq!(call.finish().1, [Vec::<u8>::new()], "what was drained is not given again");
    }
}
