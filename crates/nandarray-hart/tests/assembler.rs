//! Promise: assemblers read the disassembler's output.
//!
//! Random instructions of every row except those of streams and VarVE are disassembled, assembled by the `ziglang`
//! wheel's clang, and compared bit by bit. If that is not installed (in the repository's `.venv`, or for `PYTHON`), the
//! test reports that and passes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nandarray_hart::{Extension, Extensions, isa};
use object::{Object, ObjectSection};

/// Control and status registers that the test uses, with and without names.
const CSRS: [i32; 12] = [1, 2, 3, 0x100, 0x140, 0x180, 0x300, 0x305, 0x342, 0x7c0, 0xc01, 0xf14];

const VECTORS: [Extension; 5] =
    [Extension::Zve32x, Extension::Zve32f, Extension::Zve64x, Extension::Zve64d, Extension::V];

/// Finds a Python with the `ziglang` wheel; `None` if there is none.
fn python() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let asked = std::env::var_os("PYTHON").map(PathBuf::from);
    let has = |python: &PathBuf| {
        let found = Command::new(python).args(["-c", "import ziglang"]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let found = asked.into_iter().chain([venv]).find(has);
    if found.is_none() {
        eprintln!("skipped: no Python with the ziglang wheel in .venv or PYTHON");
    }
    found
}

/// Changes the registers of a vector instruction so that groups do not overlap, which assemblers reject.
fn apart(word: u32) -> u32 {
    word & !(31 << 7 | 31 << 15 | 31 << 20) | 8 << 7 | 24 << 15 | 16 << 20
}

#[test]
fn disassembly_assembles_to_the_same_bits() {
    let Some(python) = python() else { return };
    let mut seed = 1u64;
    for bits in [32, 64] {
        let mut words = Vec::new();
        let mut text = String::from(".option norelax\n.option norvc\n");
        let ours = [Extension::Stream, Extension::Varve];
        for row in isa::TABLE.iter().filter(|r| r.width.has(bits) && !ours.contains(&r.extension) && r.mask != 0) {
            let mut left = 40;
            while left > 0 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let mut word = row.bits | (seed >> 32) as u32 & !row.mask;
                if VECTORS.contains(&row.extension) {
                    word = row.bits | apart(word) & !row.mask;
                }
                let Some(mut op) = isa::decode32(word, bits, Extensions::ALL).filter(|op| op.code == row.code) else {
                    continue;
                };
                // Assemblers do not know the names of stream registers, and some other registers exist for one width
                // only.
                let csr = matches!(row.format, isa::Format::Csr | isa::Format::CsrImmediate);
                if csr && !CSRS.contains(&op.imm) {
                    let at = seed as usize >> 40;
                    op.imm = CSRS[at % CSRS.len()];
                }
                left -= 1;
                let line = isa::disassemble(&op);
                // Indices of 64 bits exist on RV64 only; on RV32 the hart traps.
                let indexed = ["vlux", "vlox", "vsux", "vsox"].iter().any(|name| line.starts_with(name));
                if bits == 32 && indexed && line.contains("ei64.v") {
                    continue;
                }
                words.push(isa::encode(&op));
                writeln!(text, "{line}").unwrap();
            }
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, object) = (folder.join(format!("rv{bits}.S")), folder.join(format!("rv{bits}.o")));
        std::fs::write(&source, text).unwrap();
        let machine = format!("-mcpu=generic_rv{bits}+m+a+f+d+zba+zbb+zbs+zicsr+zifencei+v");
        let output = Command::new(&python)
            .args(["-m", "ziglang", "cc", "-c", "-g0", "-target", &format!("riscv{bits}-freestanding-none"), &machine])
            .args([source.as_os_str(), "-o".as_ref(), object.as_os_str()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = std::fs::read(&object).unwrap();
        let file = object::File::parse(&*file).unwrap();
        let section = file.section_by_name(".text").unwrap();
        let theirs: Vec<u32> =
            section.data().unwrap().chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(theirs.len(), words.len());
        for (ours, theirs) in words.iter().zip(theirs) {
            let text = isa::disassemble(&isa::decode(*ours, bits, Extensions::ALL));
            assert_eq!(*ours, theirs, "{text}: {ours:#010x}, {theirs:#010x}");
        }
    }
}
