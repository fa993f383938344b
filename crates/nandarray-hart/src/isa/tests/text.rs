//! Instructions as text: lines that are no instructions, names of registers, vector types and extensions, and random
//! text.

use super::*;

#[test]
fn a_line_that_is_no_instruction_is_refused_by_what_is_wrong_in_it() {
    let operand = |text: &str| Err(AssembleError::Operand(text.into()));
    let mnemonic = |text: &str| Err(AssembleError::Mnemonic(text.into()));
    let count = |n: usize| Err(AssembleError::Count(n));
    for (line, wrong) in [
        ("", mnemonic("")),
        ("ADD a0, a1, a2", mnemonic("ADD")),
        ("add.aq a0, a1, a2", mnemonic("add.aq")),
        ("amoadd.w.rlaq a0, a1, (a2)", mnemonic("amoadd.w.rlaq")),
        ("illegal", mnemonic("illegal")),
        (".8byte 1", mnemonic(".8byte")),
        ("vlseg1e8.v v1, (a0)", mnemonic("vlseg1e8.v")),
        ("vlseg9e8.v v1, (a0)", mnemonic("vlseg9e8.v")),
        ("vsegment", mnemonic("vsegment")),
        ("add", count(0)),
        ("add a0, a1, a2, a3", count(4)),
        ("ecall a0", count(1)),
        ("vsetvli a0, a1", operand("")),
        ("vadd.vv v1, v2", count(2)),
        ("vadc.vvm v1, v2, v3", count(3)),
        ("frstream 1, a0, a1", count(3)),
        ("addi a0,, a1, 1", count(4)),
        ("addi a0, , 1", operand("")),
        ("addi a0, a1, ", operand("")),
        ("add x32, a0, a1", operand("x32")),
        ("add x+1, a0, a1", operand("x+1")),
        ("add x01, a0, a1", operand("x01")),
        ("add x, a0, a1", operand("x")),
        ("add f1, a0, a1", operand("f1")),
        ("fadd.s fp, fa0, fa1", operand("fp")),
        ("fadd.s fa0, fa1, fa2, rnd", count(4)),
        ("addi a0, a1, -2049", operand("-2049")),
        ("addi a0, a1, --5", operand("--5")),
        ("addi a0, a1, +5", operand("+5")),
        ("addi a0, a1, -0x-5", operand("-0x-5")),
        ("addi a0, a1, --9223372036854775808", operand("--9223372036854775808")),
        ("addi a0, a1, 99999999999999999999", operand("99999999999999999999")),
        ("addi a0, a1, 0x", operand("0x")),
        ("lw a0, 8(a1", operand("8(a1")),
        ("lw a0, 8a1)", operand("8a1)")),
        ("lw a0, 2048(a1)", operand("2048")),
        ("lui a0, 0x100000", operand("0x100000")),
        ("lui a0, -1", operand("-1")),
        ("beq a0, a1, . + 4096", operand(". + 4096")),
        ("beq a0, a1, 8", operand("8")),
        ("jal ra, . - 1048578", operand(". - 1048578")),
        ("fence iorwx, rw", operand("iorwx")),
        ("csrrw a0, 4096, a1", operand("4096")),
        ("csrrw a0, ihead32, a1", operand("32")),
        ("csrrwi a0, 1, 32", operand("32")),
        ("streamload.b a0, 32", operand("32")),
        (".4byte 0x100000000", operand("0x100000000")),
        (".4byte -1", operand("-1")),
        (".2byte 0x10000", operand("0x10000")),
        ("vsetvli a0, a1, e128, m1, ta, ma", operand("e128")),
        ("vsetvli a0, a1, e8, m16, ta, ma", operand("m16")),
        ("vsetvli a0, a1, 2048", operand("2048")),
        ("vsetivli a0, 32, e8, m1, ta, ma", operand("32")),
        ("vadd.vi v1, v2, 16", operand("16")),
        ("vsll.vi v1, v2, -1", operand("-1")),
        ("vle8.v v1, 4(a0)", operand("4(a0)")),
    ] {
        assert_eq!(assemble(line, 64), wrong, "{line:?}");
    }
    let said = [("frob", "no instruction \"frob\""), ("add a0, b, a1", "\"b\" is not an operand that fits here")];
    for (line, says) in said.into_iter().chain([("add a0", "1 operands are not what this instruction takes")]) {
        assert_eq!(assemble(line, 64).unwrap_err().to_string(), says);
    }
}

#[test]
fn space_and_other_names_change_nothing() {
    for (line, same) in [
        ("  add\ta0 ,a1,  a2  ", "add x10, x11, x12"),
        ("addi fp, s0, -0x10", "addi x8, x8, -16"),
        ("lw a0, ( a1 )", "lw a0, 0(a1)"),
        ("lw a0, -4 (a1)", "lw a0, -4(a1)"),
        ("beq a0, a1, .-8", "beq a0, a1, . - 8"),
        ("fadd.d f10, f11, f12, dyn", "fadd.d fa0, fa1, fa2"),
        ("csrrs a0, 0xc00, zero", "csrrs a0, cycle, zero"),
        ("vadd.vv v1,v2,v3,v0.t", "vadd.vv v1, v2, v3, v0.t"),
        ("vsetvli a0, a1, 0", "vsetvli a0, a1, e8, m1, tu, mu"),
    ] {
        assert_eq!(assemble(line, 64).unwrap(), assemble(same, 64).unwrap(), "{line:?}");
    }
}

#[test]
fn every_control_register_and_every_vector_type_comes_back_from_its_text() {
    let mut names = std::collections::BTreeSet::new();
    for number in 0..0x1000 {
        let op = Instruction { imm: number, rd: 10, ..assemble("csrrs a0, 0, zero", 64).unwrap() };
        let text = disassemble(&op);
        assert_eq!(assemble(&text, 64), Ok(op), "{text}");
        assert!(names.insert(text.clone()), "{text} is the text of two registers");
        let stream = (0x800..0x8a0).contains(&number);
        assert_eq!(op.reads_stream_register(), stream, "{text}");
        assert_eq!(
            (op.class(), op.ends_block()),
            (if stream { Class::Stream } else { Class::System }, !stream),
            "{text}"
        );
    }
    for vtype in 0..0x800 {
        let op = Instruction { imm: vtype, ..assemble("vsetvli a0, a1, 0", 64).unwrap() };
        assert_eq!(assemble(&disassemble(&op), 64), Ok(op), "{vtype:#x}");
    }
}

/// Extensions that a name in an architecture string stands for, and names of the form of `arch.rs` for random strings.
const ARCHES: &[(&str, &[Extension])] = &[
    ("m", &[Extension::M]),
    ("a", &[Extension::A]),
    ("f", &[Extension::F]),
    ("d", &[Extension::F, Extension::D]),
    ("c", &[Extension::C]),
    ("b", &[Extension::Zba, Extension::Zbb, Extension::Zbs]),
    ("_zicsr", &[Extension::Zicsr]),
    ("_zifencei", &[Extension::Zifencei]),
    ("_zba", &[Extension::Zba]),
    ("_zbs", &[Extension::Zbs]),
    ("_zicntr", &[]),
    ("_zcd", &[Extension::C, Extension::F, Extension::D]),
    ("_zve32f", &[Extension::Zve32x, Extension::Zve32f]),
    ("_zve64x", &[Extension::Zve32x, Extension::Zve64x]),
    ("_zvl256b", &[]),
    ("_zvl1024b", &[]),
    ("_xvarve", &[Extension::Zve32x, Extension::Zve64x, Extension::Varve]),
];

#[test]
fn random_architectures_have_the_extensions_that_they_name() {
    for seed in 0..3_000u64 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let bits = if chance.bool() { 32 } else { 64 };
        let version = |chance: &mut fastrand::Rng| match chance.u8(..3) {
            0 => String::new(),
            1 => format!("{}p{}", chance.u8(..12), chance.u8(..12)),
            _ => format!("{}", chance.u8(..12)),
        };
        let (mut letters, mut longer) = (format!("rv{bits}i{}", version(&mut chance)), String::new());
        let (mut wanted, mut vlen) = (vec![Extension::I], 0);
        for (name, extensions) in ARCHES {
            if chance.bool() {
                continue;
            }
            // A name that ends in a digit takes no bare major version.
            let number = if name.len() > 1 { String::new() } else { version(&mut chance) };
            if name.starts_with('_') { &mut longer } else { &mut letters }.push_str(&format!("{name}{number}"));
            wanted.extend(*extensions);
            vlen = vlen.max(name.strip_prefix("_zvl").map_or(0, |n| n.trim_end_matches('b').parse().unwrap()));
        }
        let arch = letters + &longer;
        let (found, set) = Extensions::parse(&arch).unwrap_or_else(|wrong| panic!("seed {seed}: {arch}: {wrong}"));
        let all = Extension::ALL.into_iter().filter(|e| set.has(*e)).collect::<Vec<_>>();
        wanted.sort();
        wanted.dedup();
        assert_eq!((found, all), (bits, wanted.clone()), "seed {seed}: {arch}");
        let least = if wanted.contains(&Extension::Zve64x) { 64 } else { 32 };
        if wanted.contains(&Extension::Zve32x) {
            assert_eq!(set.vlen(), least.max(vlen), "seed {seed}: {arch}");
        }
    }
}

#[test]
fn sets_of_extensions_are_sets() {
    let sets = [Extensions::PROGRAM, Extensions::PROGRAM_VECTOR, Extensions::VECTOR, Extensions::ALL];
    for set in sets {
        for extension in Extension::ALL {
            let (with, without) = (set.with(extension), set.without(extension));
            for other in Extension::ALL {
                assert_eq!(with.has(other), set.has(other) || other == extension, "{extension:?}, {other:?}");
                let stays = other != extension || extension == Extension::I;
                assert_eq!(without.has(other), set.has(other) && stays, "{extension:?}, {other:?}");
            }
        }
        for other in sets {
            let beyond: Vec<Extension> = set.beyond(other).collect();
            assert!(Extension::ALL.into_iter().all(|e| beyond.contains(&e) == (set.has(e) && !other.has(e))));
            let both = set.with_vectors_of(other.with_vlen(512));
            let taken = |e: Extension| e >= Extension::Zve32x && other.has(e);
            assert!(Extension::ALL.into_iter().all(|e| both.has(e) == (set.has(e) || taken(e))));
            assert_eq!((both.vlen(), set.vlen()), (512, 128));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_an_instruction_or_an_error(
        name in prop::sample::select(TABLE.iter().map(|row| row.name).collect::<Vec<_>>()),
        operands in prop::collection::vec(
            prop_oneof![
                "[avxf][0-9]{1,2}",
                "-?[0-9]{1,20}",
                "-?0x[0-9a-f]{0,17}",
                "\\. [+-] [0-9]{1,8}",
                "[0-9-]{0,5}\\([a-z0-9]{0,3}\\)",
                "(v0|v0\\.t|rtz|dyn|iorw|e8|m1|ta|ma)",
                "[ -~\u{e4}]{0,6}",
            ],
            0..6,
        ),
        wide: bool,
    ) {
        let bits = if wide { 64 } else { 32 };
        let line = format!("{name} {}", operands.join(", "));
        if let Ok(op) = assemble(&line, bits) {
            // Whatever is accepted has bits that mean the same.
            let again = decode(encode(&op), bits, Extensions::ALL);
            prop_assert_eq!(again.code, op.code, "{}", line);
            prop_assert_eq!(again, Instruction { rm: again.rm, ..op }, "{}", line);
        }
    }

    #[test]
    fn any_text_is_an_architecture_or_an_error(text in "rv(32|64)[a-z0-9_p\u{e4}]{0,24}") {
        if let Err(wrong) = Extensions::parse(&text) {
            prop_assert!(text.contains(&wrong), "{:?} is not in {:?}", wrong, text);
        }
    }
}
