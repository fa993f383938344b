//! Promise: what a program says of itself is checked before it runs, and what is wrong is said; the argument block is
//! what docs/reference/program-abi.md says.

mod common;

use common::{COPY, METADATA, at, by_hand, elf};
use nandarray_cores::abi::{self, Arguments, InputPace, Port};
use nandarray_cores::{Bound, EntryPoint, LoadError, Metadata, OutputPhase, Program, ProgramKind, Records};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Metadata, String> {
    Metadata::parse(text.as_bytes()).map_err(|e| match e {
        LoadError::Metadata(what) => what,
        other => panic!("an error of its own kind, not {other}"),
    })
}

/// Parses the metadata of a block program with these inputs and further members; the error is its text.
fn with(inputs: &str, more: &str) -> Result<Metadata, String> {
    parse(&format!(r#"{{"abi": 1, "kind": "block", "inputs": [{inputs}]{more}}}"#))
}

#[test]
fn what_is_left_out_has_defaults() {
    let found =
        with(r#"{"dtype": "float32"}"#, r#", "outputs": [{"dtype": "int64"}, {"dtype": "u2", "phase": "end"}]"#)
            .unwrap();
    assert_eq!((found.name.as_str(), found.kind, found.memory_bytes), ("program", ProgramKind::Block, 1 << 20));
    let input = &found.inputs[0];
    assert_eq!((input.name.as_str(), input.record_bytes, input.element.bytes()), ("input0", 4, 4));
    assert_eq!((input.whole, input.records), (false, Records::Fixed));
    assert_eq!(found.outputs[0].bound, Bound { per_record: 8, ..Bound::default() });
    assert_eq!((found.outputs[1].phase, found.outputs[1].bound.room(1000, 1000)), (OutputPhase::End, 2));
    assert_eq!(found.scratchpad(), abi::SCRATCHPAD_BYTES);
}

#[test]
fn bytes_of_a_record_follow_from_the_names_of_numbers() {
    for (dtype, bytes) in
        [("int8", 1), ("uint16", 2), ("<f4", 4), ("=i8", 8), ("bool", 1), ("complex128", 16), ("S5", 5)]
    {
        assert_eq!(with(&format!(r#"{{"dtype": "{dtype}"}}"#), "").unwrap().inputs[0].record_bytes, bytes, "{dtype}");
    }
    // The fields of a record say its size, too: a drive, which has the ELF alone, needs no NumPy.
    let rows = with(r#"{"dtype": [["a", "f4"], ["b", "S3", [2]]], "record_bytes": 20}"#, "").unwrap();
    assert_eq!((rows.inputs[0].element.bytes(), rows.inputs[0].record_bytes), (10, 20));
    for dtype in ["\"float8x\"", "\"int0\"", "\"int7\"", "\"x\"", "[[\"a\", \"O\"]]", "\"S0\"", "\"\""] {
        let refused = with(&format!(r#"{{"dtype": {dtype}, "record_bytes": 12}}"#), "").unwrap_err();
        assert!(refused.contains("dtype must be the name of a type"), "{dtype}: {refused}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let x = r#"{"dtype": "u1"}"#;
    let cases = [
        (with("", ""), "must have at least one input"),
        (with(&[x; 9].join(","), ""), "9 inputs"),
        (with(x, &format!(r#", "outputs": [{}]"#, [x; 9].join(","))), "9 outputs"),
        (with(x, &format!(r#", "scalars": [{}]"#, ["{}"; 17].join(","))), "17 scalars"),
        (with(x, r#", "memory_bytes": 200000000"#), "memory_bytes must be a number of bytes, at most"),
        (
            with(x, r#", "scratchpad_bytes": 268435456, "state_bytes": 1"#),
            "a scratchpad of 268435488 bytes, with two states; at most 268435456",
        ),
        (
            with(x, r#", "scratchpad_bytes": 18446744073709551615, "state_bytes": 1"#),
            "scratchpad_bytes must be a number of bytes, at most 268435456, not 1844",
        ),
        (
            with(x, r#", "state_bytes": 18446744073709551615"#),
            "state_bytes must be a number of bytes, at most 268435456, not 1844",
        ),
        (with(r#"{"dtype": "u1", "whole": true}"#, ""), "input 0: whole must be false"),
        (with(r#"{"dtype": "u2", "records": "lines"}"#, ""), "records without a common size"),
        (with(r#"{"dtype": "u1", "record_bytes": 0}"#, ""), "say record_bytes"),
        (with(r#"{"dtype": "S134217728"}"#, ""), "say record_bytes, from 1 to 67108864"),
        (with(r#"{"dtype": "u1", "record_bytes": 67108865}"#, ""), "record_bytes must be"),
        (
            with(x, r#", "outputs": [{"dtype": "u1", "bound": {"per_input_byte": -0.5}}]"#),
            "output 0, bound: per_input_byte must be a number of bytes, not -0.5",
        ),
        (with(x, r#", "outputs": [{"dtype": "u1", "bound": {"bytes": 5}}]"#), "'bytes' is not known"),
        (parse(r#"{"abi": 2, "kind": "block", "inputs": [{"dtype": "u1"}]}"#), "made for version 2"),
        (
            parse(r#"{"abi": 1, "kind": "vector", "inputs": [{"dtype": "u1"}]}"#),
            "kind must be one of block, stream, not 'vector'",
        ),
        (parse(r#"{"kind": "block", "inputs": []}"#), "made for version null"),
        (parse(""), "EOF"),
        (parse("\0\0"), "EOF"),
    ];
    for (found, says) in cases {
        let said = found.unwrap_err();
        assert!(said.contains(says), "{said:?} does not say {says:?}");
    }
    // Padding behind the text is none of it.
    assert!(Metadata::parse(b"{\"abi\": 1, \"kind\": \"stream\", \"inputs\": [{\"dtype\": \"u1\"}]}\0\0").is_ok());
}

proptest! {
    #[test]
    fn room_never_wraps(records: u64, bytes: u64, per_record: u64, per_byte in 0.0..1e300f64, fixed: u64) {
        let bound = Bound { per_record, per_input_byte: per_byte, fixed };
        prop_assert!(bound.room(records, bytes) >= fixed);
        prop_assert!(bound.room(records, bytes) >= bound.room(0, 0));
    }

    #[test]
    fn any_text_is_metadata_or_not(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Metadata::parse(&text);
    }

    #[test]
    fn any_change_of_a_program_is_refused_or_loaded(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = by_hand();
        changes.iter().for_each(|(at, byte)| { let at = at.index(file.len()); file[at] = *byte; });
        let _ = Program::from_elf(&file, None);
    }
}

#[test]
fn a_program_is_what_its_file_says() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    assert_eq!((program.bits(), program.metadata().name.as_str()), (64, "by hand"));
    assert_eq!(program.entry(EntryPoint::Task), Some(0x1_0000));
    assert_eq!(program.entry(EntryPoint::Begin), None);
    assert_eq!((program.entry_name(EntryPoint::Task), program.entry_name(EntryPoint::End)), ("nd_block", "nd_end"));
    assert_eq!(program.place(0x1_0008), "nd_block+0x8");
    assert_eq!(program.place(8), "0x8");
    // Names of what is behind the code, and of what is nowhere, are no functions.
    assert_eq!(program.place(0x2_0000), "0x20000");
    // Metadata beside the file replaces that in it.
    let other = METADATA.replace("by hand", "renamed");
    assert_eq!(Program::from_elf(&by_hand(), Some(other.as_bytes())).unwrap().metadata().name, "renamed");
}

#[test]
fn what_cannot_run_is_refused_by_what_it_lacks() {
    let of = |elf: &[u8], metadata: Option<&str>| Program::from_elf(elf, metadata.map(str::as_bytes)).unwrap_err();
    assert!(matches!(of(b"no ELF", None), LoadError::Elf(_)));
    let bare = elf(&[("nd_block", COPY)], None);
    assert!(matches!(of(&bare, None), LoadError::Metadata(what) if what.contains("no section .nandarray.program")));
    assert!(matches!(of(&elf(&[("main", COPY)], Some(METADATA)), None), LoadError::Entry("nd_block")));
    let streamed = METADATA.replace("\"block\"", "\"stream\"");
    assert!(matches!(of(&by_hand(), Some(&streamed)), LoadError::Entry("nd_stream")));
    assert!(matches!(of(&bare, Some(METADATA)), LoadError::Entry("nd_end")));
    let small = METADATA.replace("\"abi\": 1,", "\"abi\": 1, \"memory_bytes\": 100,");
    assert!(matches!(of(&by_hand(), Some(&small)), LoadError::TooLarge { memory: 100, .. }));
    let mut x86 = by_hand();
    x86[18] = 62;
    assert_eq!(of(&x86, None).to_string(), "ELF for machine 62, not RISC-V (243)");
}

#[test]
fn the_argument_block_is_laid_out_as_it_is_written_down() {
    let arguments = Arguments {
        inputs: vec![Port { address: 0x2000_0000, bytes: 80, offset: 0, shape: vec![10] }, Port::default()],
        outputs: vec![Port { address: 0x6000_0000, bytes: 24, offset: 0, shape: vec![2, 3, 4, 5] }],
        scalars: vec![7, u64::MAX],
        task: 3,
        first_record: 30,
        state: 0x1000_0000,
        state_bytes: 8,
        other_state: 0x1000_0010,
        scratchpad: 0x1000_0020,
        scratchpad_bytes: 100,
        screen: 4,
        screens: 9,
        first: vec![30],
        total: vec![40, 5],
        paces: vec![InputPace { first: 6, ended: false }, InputPace { first: 8, ended: true }],
    };
    let mut block = vec![0xff; abi::ARGS_BYTES as usize];
    arguments.write(&mut block);
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let head: Vec<u64> = (0..11).map(|i| word(8 * i)).collect();
    assert_eq!(head, [1, 2, 1, 2, 3, 30, 0x1000_0000, 8, 0x1000_0010, 0x1000_0020, 100]);
    assert_eq!((word(at::TASK), word(at::STATE), word(at::OTHER_STATE)), (3, 0x1000_0000, 0x1000_0010));
    let port = |at: usize| (0..8).map(|i| word(at + 8 * i)).collect::<Vec<_>>();
    assert_eq!(port(at::INPUT), [0x2000_0000, 80, 0, 1, 10, 1, 1, 1]);
    assert_eq!(port(at::INPUT + 64), [0, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(port(at::OUTPUT), [0x6000_0000, 24, 0, 4, 2, 3, 4, 5]);
    assert_eq!((word(at::SCALAR), word(at::SCALAR + 8), word(at::SCALAR + 16)), (7, u64::MAX, 0));
    assert_eq!((0..8).map(|i| word(1312 + 8 * i)).collect::<Vec<_>>(), [30, 0, 0, 0, 40, 5, 1, 1]);
    assert_eq!((0..6).map(|i| word(1376 + 8 * i)).collect::<Vec<_>>(), [6, 0, 8, 1, 0, 0]);
    block[at::OUTPUT + 64 + 16..][..8].copy_from_slice(&99u64.to_le_bytes());
    assert_eq!((Arguments::used(&block, 0), Arguments::used(&block, 1)), (0, 99));
    assert_eq!((abi::input_window(1), abi::output_window(7)), (0x2400_0000, 0x7c00_0000));
}
