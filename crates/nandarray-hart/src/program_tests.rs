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
