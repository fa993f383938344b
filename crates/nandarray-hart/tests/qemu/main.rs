//! Promise: the hart has the same results as QEMU's user mode, to the bit.
//!
//! Random sequences of instructions and small programs run in both; integer and floating-point registers,
//! floating-point flags and memory are compared. If QEMU is not installed (Debian's `qemu-user`), the tests report that
//! and pass. `NANDARRAY_DEEP=1` runs more cases; a batch that fails prints its seed.
#![allow(unreachable_pub, reason = "modules of a test")]

#[path = "../common/mod.rs"]
mod common;
mod generate;
mod image;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nandarray_hart::{Rv32, Rv64, Xlen, isa};
use proptest::prelude::*;

/// The command that runs QEMU for harts of `bits` bits; `None` if it is not installed.
fn qemu(bits: u32) -> Option<Command> {
    let name = format!("qemu-riscv{bits}");
    if Command::new(&name).arg("--version").output().is_err() {
        eprintln!("skipped: {name} is not installed (Debian: qemu-user)");
        return None;
    }
    let mut command = Command::new(name);
    command.arg("-cpu").arg(format!("rv{bits},zba=true,zbb=true,zbs=true"));
    Some(command)
}

/// Runs an ELF file in QEMU and returns its output; panics unless its exit status is 0.
fn in_qemu(mut command: Command, elf: &[u8]) -> Vec<u8> {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("main").replace(':', "-");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hart-{}-{name}.elf", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(elf).unwrap();
    drop(file);
    let made_executable = Command::new("chmod").arg("+x").arg(&path).status().unwrap();
    assert!(made_executable.success());
    let output = command.arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "QEMU: {} {}", output.status, String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs a batch of random sequences on the hart and in QEMU; the error describes the first difference.
fn batch<X: Xlen>(seed: u64, kind: generate::Kind) -> Result<(), String> {
    let Some(qemu) = qemu(X::BITS) else { return Ok(()) };
    let sequences = generate::sequences(seed, X::BITS, kind);
    let elf = image::elf(&sequences, X::BITS);
    let theirs = in_qemu(qemu, &elf);
    let ours = common::run::<X>(&elf, Some(10_000_000));
    if ours.status != Ok(0) {
        return Err(format!("the hart stopped: {:?}", ours.status));
    }
    assert_eq!(theirs.len(), sequences.len() * image::AREA);
    for (i, sequence) in sequences.iter().enumerate() {
        let area = i * image::AREA..(i + 1) * image::AREA;
        if ours.output[area.clone()] != theirs[area.clone()] {
            let text: Vec<String> = sequence.ops.iter().map(|op| format!("  {}", isa::disassemble(op))).collect();
            let what = image::differences(&ours.output[area.clone()], &theirs[area]);
            return Err(format!("sequence {i} of seed {seed}:\n{}\nhart, QEMU:\n{what}", text.join("\n")));
        }
    }
    Ok(())
}

fn cases(deep: u32) -> ProptestConfig {
    let asked = std::env::var_os("NANDARRAY_DEEP").is_some();
    ProptestConfig { cases: if asked { deep } else { 3 }, max_shrink_iters: 0, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn integers_64(seed: u64) {
        batch::<Rv64>(seed, generate::Kind::Integer).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn integers_32(seed: u64) {
        batch::<Rv32>(seed, generate::Kind::Integer).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn floats_64(seed: u64) {
        batch::<Rv64>(seed, generate::Kind::Float).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn floats_32(seed: u64) {
        batch::<Rv32>(seed, generate::Kind::Float).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn everything_64(seed: u64) {
        batch::<Rv64>(seed, generate::Kind::Any).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn everything_32(seed: u64) {
        batch::<Rv32>(seed, generate::Kind::Any).map_err(TestCaseError::fail)?;
    }
}

/// Returns the paths of the ELF files that the script in `tests/programs` has compiled.
fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "elf"));
    found.sort();
    assert!(found.len() >= 10);
    found
}

#[test]
fn real_programs_write_the_same() {
    for path in programs() {
        let elf = std::fs::read(&path).unwrap();
        let (bits, ours) =
            if elf[4] == 1 { (32, common::run::<Rv32>(&elf, None)) } else { (64, common::run::<Rv64>(&elf, None)) };
        assert_eq!(ours.status, Ok(0), "{}", path.display());
        let ours = String::from_utf8(ours.output).unwrap();
        // The recorded text is QEMU's output at the time when the program was compiled.
        let recorded = std::fs::read_to_string(path.with_extension("txt")).unwrap();
        assert_eq!(ours, recorded, "{}", path.display());
        if let Some(qemu) = qemu(bits) {
            assert_eq!(ours, String::from_utf8(in_qemu(qemu, &elf)).unwrap(), "{}", path.display());
        }
    }
}
