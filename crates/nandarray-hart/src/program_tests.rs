//! Tests of loading programs: refusals, each with an error of its own, and hostile bytes.

use super::*;
use proptest::prelude::*;

/// Builds a static RV64 file with one executable segment of `code`, byte by byte; `change` may alter its bytes.
fn elf(code: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = vec![0; 120];
    file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    for (at, value) in [(16, 2u16), (18, 243), (52, 64), (54, 56), (56, 1), (58, 64)] {
        file[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    file[20] = 1;
    let length = code.len() as u64;
    for (at, value) in [(24, 0x1_0000u64), (32, 64), (72, 120), (80, 0x1_0000), (96, length), (104, length + 8)] {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    (file[64], file[68]) = (1, 5);
    file.extend_from_slice(code);
    change(&mut file);
    file
}

fn read(change: impl Fn(&mut Vec<u8>)) -> Result<ElfProgram, ProgramError> {
    ElfProgram::from_elf(&elf(&[0x13, 0, 0, 0], change), Extensions::PROGRAM)
}

#[test]
fn a_program_is_laid_out() {
    let program = read(|_| {}).unwrap();
    assert_eq!((program.bits, program.entry, program.segments.len()), (64, 0x1_0000, 1));
    let loaded = program.load(100, None).unwrap();
    assert_eq!(loaded.stack, 0x1_0000 + 16 + 112);
    assert_eq!(loaded.memory.get(0x1_0000..0x1_0008).unwrap(), [0x13, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(loaded.memory.fetch(0x1_0000), Some(0x13));
    assert_eq!(loaded.memory.fetch(loaded.stack - 4), None);
    assert!(matches!(program.load(1 << 20, Some(1000)), Err(ProgramError::Memory(MemoryError::Limit { .. }))));
}

#[test]
fn what_is_no_program_is_refused() {
    assert!(matches!(ElfProgram::from_elf(b"", Extensions::PROGRAM), Err(ProgramError::NotElf(_))));
    assert!(matches!(ElfProgram::from_elf(b"#!/bin/sh", Extensions::PROGRAM), Err(ProgramError::NotElf(_))));
    assert_eq!(read(|f| f[18] = 62), Err(ProgramError::NotRiscv { machine: 62 }));
    assert_eq!(read(|f| f[16] = 3), Err(ProgramError::NotStatic));
    assert_eq!(read(|f| f[48] = 8), Err(ProgramError::Extension("E".into())));
    assert_eq!(read(|f| f[64] = 4), Err(ProgramError::Nothing));
    assert!(matches!(read(|f| f[103] = 1), Err(ProgramError::Segment { .. })));
    assert!(matches!(read(|f| f[110] = 1), Err(ProgramError::Segment { .. })));
    assert!(read(|f| f[87] = 0xff).is_ok());
    assert!(matches!(read(|f| f[80..88].fill(0xff)), Err(ProgramError::Segment { .. })));
}

#[test]
fn segments_without_rights_are_a_bare_machines_only() {
    let without = |f: &mut Vec<u8>| f[68] = 0;
    let error = read(without).unwrap_err();
    assert_eq!(error, ProgramError::NoAccess);
    assert_eq!(error.to_string(), "no segment may be read, written or executed");
    #[cfg(feature = "bare")]
    all_segments_are_a_bare_machines(without);
}

#[cfg(feature = "bare")]
fn all_segments_are_a_bare_machines(without: impl Fn(&mut Vec<u8>)) {
    let file = elf(&[0x13, 0, 0, 0], without);
    let bare = ElfProgram::from_elf_bare(&file, Extensions::PROGRAM).unwrap();
    assert!(bare.segments[0].writable && bare.segments[0].executable);
    assert_eq!(bare.segments[0].bytes, [0x13, 0, 0, 0]);
    let empty = elf(&[0x13, 0, 0, 0], |f| f[64] = 4);
    assert_eq!(ElfProgram::from_elf_bare(&empty, Extensions::PROGRAM), Err(ProgramError::Nothing));
}

#[test]
fn architecture_strings_are_understood() {
    for arch in
        ["rv64i2p1", "rv64i2p1_m2p0_a2p1_f2p2_d2p2_c2p0_zicsr2p0_zmmul1p0", "rv64i2p1_zba1p0_zbb1p0_zbs1p0_b1p0"]
    {
        assert!(require(arch, 64, Extensions::PROGRAM).is_ok(), "{arch}");
    }
    let missing = |name: &str| Err(ProgramError::Extension(name.into()));
    assert_eq!(require("rv64i2p1_v1p0", 64, Extensions::PROGRAM), missing("v"));
    assert_eq!(require("rv64i2p1_zve32x1p0", 64, Extensions::PROGRAM), missing("zve32x"));
    assert_eq!(require("rv64gcv", 64, Extensions::PROGRAM.without(Extension::A).without(Extension::D)), missing("a"));
    assert_eq!(require("rv64i_xvarve", 64, Extensions::PROGRAM), missing("xvarve"));
    assert_eq!(require("rv32i2p1", 64, Extensions::PROGRAM), missing("rv32i2p1"));
    assert_eq!(require("rv64i2p1_m2p0", 64, Extensions::PROGRAM.without(Extension::M)), missing("m"));
}

proptest! {
    #[test]
    fn any_change_is_an_error_or_a_program(changes in prop::collection::vec((0..124usize, any::<u8>()), 1..6)) {
        let changed = read(|f| changes.iter().for_each(|(at, byte)| f[*at] = *byte));
        if let Ok(program) = changed {
            let _ = program.load(4096, Some(1 << 20));
        }
    }
}

/// Writes a number of seven bits a byte, as attributes have them.
fn leb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        bytes.push(value as u8 & 0x7f | if value > 0x7f { 0x80 } else { 0 });
        value >>= 7;
        if value == 0 {
            return bytes;
        }
    }
}

/// Builds a section of attributes: pairs of a tag and either a number or a text.
fn attributes(all: &[(u64, Result<u64, &str>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (tag, value) in all {
        list.extend(leb(*tag));
        match value {
            Ok(number) => list.extend(leb(*number)),
            Err(text) => list.extend(text.bytes().chain([0])),
        }
    }
    let mut section = b"A".to_vec();
    section.extend((list.len() as u32 + 16).to_le_bytes());
    section.extend(b"riscv\0\x01");
    section.extend((list.len() as u32 + 5).to_le_bytes());
    section.extend(list);
    section
}

#[test]
fn an_architecture_is_found_among_other_attributes_and_none_in_a_part_of_them() {
    let arch = "rv64i2p1_m2p0";
    for others in
        [vec![], vec![(4, Ok(16))], vec![(4, Ok(1 << 40)), (7, Err("")), (9, Err("x")), (300, Ok(0)), (301, Err("x"))]]
    {
        let mut all = others.clone();
        all.push((5, Err(arch)));
        let before = attributes(&all);
        assert_eq!(architecture(&before), Some(arch), "{others:?}");
        let end = before.len();
        all.push((5, Err("rv32i")));
        assert_eq!(architecture(&attributes(&all)), Some(arch), "the first one counts: {others:?}");
        // A section that is cut at any byte has none, until all of the text is there.
        for cut in 0..end {
            assert_eq!(architecture(&before[..cut]), None, "{cut} of {end} bytes: {others:?}");
        }
        for at in 0..end {
            for bit in 0..8 {
                let mut flipped = before.clone();
                flipped[at] ^= 1 << bit;
                if let Some(found) = architecture(&flipped) {
                    let _ = require(found, 64, Extensions::PROGRAM);
                }
            }
        }
    }
    assert_eq!(architecture(&attributes(&[(4, Ok(16))])), None);
    for wrong in [
        b"B\0\0\0\0riscv\0\x01".as_slice(),
        b"A\0\0\0\0other\0\x01\0\0\0\0\x05rv64i\0",
        b"A\0\0\0\0riscv\0\x02\0\0\0\0\x05rv64i\0",
    ] {
        assert_eq!(architecture(wrong), None);
    }
    // A number without an end, and a text that is no text.
    assert_eq!(architecture(&[b"A\0\0\0\0riscv\0\x01\0\0\0\0".as_slice(), &[0x80; 20]].concat()), None);
    assert_eq!(architecture(b"A\0\0\0\0riscv\0\x01\0\0\0\0\x05\xff\xfe\0"), None);
}

fn program(segments: Vec<ProgramSegment>, symbols: &[(u64, &str)]) -> ElfProgram {
    let symbols = symbols.iter().map(|(at, name)| (*at, (*name).to_owned())).collect();
    ElfProgram { bits: 64, extensions: Extensions::PROGRAM, entry: 0, declared: None, segments, symbols }
}

#[test]
fn segments_are_loaded_with_their_rights_and_zeros_behind_their_bytes() {
    for seed in 0..1_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut at, mut segments) = (chance.u64(..0x1000), Vec::new());
        for _ in 0..chance.usize(1..6) {
            at += chance.u64(..40);
            let length = chance.u64(1..60);
            let bytes = (0..chance.u64(..=length)).map(|_| chance.u8(..)).collect();
            let (writable, executable) = (chance.u8(..3) == 0, chance.bool());
            segments.push(ProgramSegment { address: at, bytes, length, writable, executable });
            at += length;
        }
        let stack = chance.u64(..200);
        let loaded = program(segments.clone(), &[]).load(stack, None);
        // No segment that is only read may follow one that is written.
        let first = segments.iter().position(|s| s.writable);
        let fixed = first.and_then(|first| segments[first..].iter().find(|s| !s.writable));
        if let Some(fixed) = fixed {
            let wrong = ProgramError::Segment { address: fixed.address, bytes: fixed.length };
            assert_eq!(loaded.map(|l| l.stack), Err(wrong), "seed {seed}");
            continue;
        }
        let mut loaded = loaded.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let end = (at.next_multiple_of(16) + stack.next_multiple_of(16)) & !15;
        assert_eq!(loaded.stack, end, "seed {seed}");
        let begins = segments[0].address;
        let code: Vec<u64> =
            segments.iter().filter(|s| s.executable).flat_map(|s| [s.address, s.address + s.length]).collect();
        for address in begins..end {
            let own = segments.iter().find(|s| (s.address..s.address + s.length).contains(&address));
            let byte = own.and_then(|s| s.bytes.get((address - s.address) as usize)).copied().unwrap_or(0);
            assert_eq!(loaded.memory.get(address..address + 1).unwrap(), [byte], "seed {seed}: {address:#x}");
            let written = loaded.memory.spans().store(address, [byte]).is_ok();
            let writes = address >= first.map_or(at, |first| segments[first].address);
            assert_eq!(written, writes, "seed {seed}: {address:#x}");
            let inside =
                code.first().is_some_and(|from| *from <= address) && code.last().is_some_and(|to| address < *to);
            let fetched = loaded.memory.fetch(address).is_some();
            assert!(inside || !fetched, "seed {seed}: {address:#x}");
        }
        assert!(
            loaded.memory.get(end..end + 1).is_err() && loaded.memory.get(begins - 1..begins).is_err() || begins == 0
        );
    }
}

#[test]
fn an_address_belongs_to_the_last_symbol_before_it() {
    let named =
        program(Vec::new(), &[(8, "$x"), (16, "one"), (16, "uno"), (24, ".L1"), (32, "two"), (u64::MAX, "last")]);
    for (address, place) in [
        (0, None),
        (8, None),
        (15, None),
        (16, Some(("uno", 0))),
        (31, Some(("uno", 15))),
        (32, Some(("two", 0))),
        (u64::MAX - 1, Some(("two", u64::MAX - 33))),
        (u64::MAX, Some(("last", 0))),
    ] {
        assert_eq!(named.symbol_at(address), place, "{address:#x}");
    }
    assert_eq!((named.symbol("two"), named.symbol("three"), named.symbols().count()), (Some(32), None, 6));
}

#[test]
fn stacks_and_segments_at_the_last_addresses_are_errors() {
    let at_the_end = |f: &mut Vec<u8>| f[80..88].copy_from_slice(&(u64::MAX - 0x100).to_le_bytes());
    let program = read(at_the_end).unwrap();
    for stack in [0, 16, 1 << 40, u64::MAX - 7, u64::MAX] {
        let found = program.load(stack, None).map(|l| l.stack);
        let fits = stack <= 16;
        assert_eq!(found.is_ok(), fits, "a stack of {stack} bytes: {found:?}");
    }
    let mut narrow = program;
    (narrow.bits, narrow.segments[0].address) = (32, 0xffff_fff0);
    let wrong = MemoryError::Overlap { base: 0xffff_fff0, bytes: 32 };
    assert_eq!(narrow.load(16, None).map(|l| l.stack), Err(ProgramError::Memory(wrong)));
}

#[cfg(feature = "bare")]
#[test]
fn a_bare_machine_at_the_last_addresses_runs_and_ends() {
    use crate::bare::{BareOptions, BareStatus, run};
    use crate::hart::{Limits, Stop};
    use crate::trap::Cause;
    for address in [u64::MAX - 0x1007, u64::MAX - 0x107, u64::MAX - 15] {
        let file = elf(&[0x73, 0, 0x10, 0], |f| {
            f[24..32].copy_from_slice(&address.to_le_bytes());
            f[80..88].copy_from_slice(&address.to_le_bytes());
        });
        let limits = Limits { instructions: Some(100), stop: None };
        let done = run(&file, BareOptions { limits, ..BareOptions::default() }).unwrap();
        // The breakpoint leads to the handler at address 0, where no memory is.
        let BareStatus::Stopped(Stop::Trap(trap)) = done.status else { panic!("{address:#x}: {:?}", done.status) };
        assert_eq!((trap.cause, trap.pc), (Cause::FetchAccess, 0), "{address:#x}");
    }
}
