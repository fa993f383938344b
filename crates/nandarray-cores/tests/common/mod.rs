//! Programs by hand: functions in assembly, and an ELF around them.
#![allow(dead_code, unreachable_pub, reason = "each test is a crate of its own, and takes what it needs")]

use nandarray_hart::isa;

const IMAGE: u64 = 0x1_0000;
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;

/// Offsets of fields in the argument block, as docs/reference/program-abi.md gives them.
pub mod at {
    pub(crate) const TASK: usize = 32;
    pub(crate) const STATE: usize = 48;
    pub(crate) const OTHER_STATE: usize = 64;
    pub(crate) const INPUT: usize = 88;
    pub(crate) const OUTPUT: usize = 600;
    pub(crate) const SCALAR: usize = 1112;
}

/// Builds an ELF file for RV64 from these functions, in order, and this metadata if there is any.
pub fn elf(functions: &[(&str, &[&str])], metadata: Option<&str>) -> Vec<u8> {
    let (mut code, mut names, mut symbols) = (Vec::new(), vec![0u8], vec![0u8; 24]);
    for (name, lines) in functions {
        symbols.extend((names.len() as u32).to_le_bytes());
        // A global function of the first section.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((IMAGE + code.len() as u64).to_le_bytes());
        symbols.extend((4 * lines.len() as u64).to_le_bytes());
        names.extend(name.bytes().chain([0]));
        for line in *lines {
            let op = isa::assemble(line, 64).unwrap_or_else(|e| panic!("{name}: {line}: {e}"));
            code.extend(isa::encode(&op).to_le_bytes());
        }
    }
    let titles = b"\0.text\0.symtab\0.strtab\0.shstrtab\0.nandarray.program\0";
    let title = |name: &str| {
        let at = titles.windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
        at as u32
    };
    let text = metadata.unwrap_or_default().as_bytes();
    // Name, kind, address, link, bytes of an entry, contents.
    let sections: [(u32, u32, u64, u32, u64, &[u8]); 5] = [
        (title(".text"), 1, IMAGE, 0, 0, &code),
        (title(".symtab"), 2, 0, 3, 24, &symbols),
        (title(".strtab"), 3, 0, 0, 0, &names),
        (title(".shstrtab"), 3, 0, 0, 0, titles),
        (title(".nandarray.program"), 1, 0, 0, 0, text),
    ];
    let sections = &sections[..if metadata.is_some() { 5 } else { 4 }];
    let mut body = Vec::new();
    let mut table = vec![0u8; SECTION];
    for (name, kind, address, link, each, bytes) in sections {
        let offset = (HEADER + SEGMENT + body.len()) as u64;
        table.extend(name.to_le_bytes().into_iter().chain(kind.to_le_bytes()));
        for field in [if *address > 0 { 6 } else { 0 }, *address, offset, bytes.len() as u64] {
            table.extend(field.to_le_bytes());
        }
        table.extend(link.to_le_bytes().into_iter().chain(1u32.to_le_bytes()));
        table.extend(8u64.to_le_bytes().into_iter().chain(each.to_le_bytes()));
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(2u16.to_le_bytes().into_iter().chain(243u16.to_le_bytes()).chain(1u32.to_le_bytes()));
    for field in [IMAGE, HEADER as u64, (HEADER + SEGMENT + body.len()) as u64] {
        file.extend(field.to_le_bytes());
    }
    file.extend(4u32.to_le_bytes());
    for field in [HEADER, SEGMENT, 1, SECTION, sections.len() + 1, 4] {
        file.extend((field as u16).to_le_bytes());
    }
    file.extend(1u32.to_le_bytes().into_iter().chain(5u32.to_le_bytes()));
    for field in [(HEADER + SEGMENT) as u64, IMAGE, IMAGE, code.len() as u64, code.len() as u64, 8] {
        file.extend(field.to_le_bytes());
    }
    file.extend(body);
    file.extend(table);
    file
}

/// Metadata of the program of [`by_hand`]: one input and one output of int64, a state of eight bytes, three scalars.
pub const METADATA: &str = r#"{"abi": 1, "name": "by hand", "kind": "block", "state_bytes": 8,
    "inputs": [{"name": "x", "dtype": "int64"}],
    "outputs": [{"name": "y", "dtype": "int64"}, {"name": "all", "dtype": "int64", "phase": "end"}],
    "scalars": [{"name": "fails", "dtype": "int64"}, {"name": "traps", "dtype": "int64"},
        {"name": "hangs", "dtype": "int64"}]}"#;

/// Instructions that copy the input, fold it into a hash that depends on the order, and go wrong in the tasks that the
/// scalars name.
pub const COPY: &[&str] = &[
    "ld t0, 32(a0)",
    "ld t1, 1112(a0)",
    "ld t2, 1120(a0)",
    "ld t3, 1128(a0)",
    "bne t0, t1, . + 12",
    "addi a0, zero, -7",
    "jalr zero, 0(ra)",
    "bne t0, t2, . + 8",
    "ld t0, 66(zero)",
    "bne t0, t3, . + 8",
    "jal zero, . + 0",
    "ld t0, 48(a0)",
    "ld t1, 88(a0)",
    "ld t2, 96(a0)",
    "ld t3, 600(a0)",
    "sd t2, 616(a0)",
    "add t2, t1, t2",
    "ld t4, 0(t0)",
    "beq t1, t2, . + 40",
    "ld t5, 0(t1)",
    "sd t5, 0(t3)",
    "addi t6, zero, 31",
    "mul t4, t4, t6",
    "add t4, t4, t5",
    "addi t1, t1, 8",
    "addi t3, t3, 8",
    "jal zero, . - 32",
    "addi zero, zero, 0",
    "sd t4, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Instructions that merge another state's hash into the state's.
pub const MERGE: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t1, 64(a0)",
    "ld t2, 0(t0)",
    "ld t1, 0(t1)",
    "addi t6, zero, 31",
    "mul t2, t2, t6",
    "add t2, t2, t1",
    "sd t2, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Instructions that write the state to the second output.
pub const END: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t0, 0(t0)",
    "ld t1, 664(a0)",
    "sd t0, 0(t1)",
    "addi t0, zero, 8",
    "sd t0, 680(a0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Builds the ELF file of the program with these functions and this metadata.
pub fn by_hand() -> Vec<u8> {
    elf(&[("nd_block", COPY), ("nd_merge", MERGE), ("nd_end", END)], Some(METADATA))
}
