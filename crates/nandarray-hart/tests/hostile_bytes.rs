//! Promise: no input bytes make the hart panic, hang, or request far more memory than they need.
//!
//! Calls the functions of the fuzz targets with seeded inputs, on the stable toolchain.

mod hostile;

use std::path::Path;

use proptest::prelude::*;

/// Generates code that consists mostly of instructions: random words, some of them with the low bits of a major opcode.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let opcodes =
        [0x03, 0x07, 0x0b, 0x13, 0x17, 0x23, 0x2b, 0x2f, 0x33, 0x3b, 0x53, 0x5b, 0x63, 0x67, 0x6f, 0x73, 0x7b];
    let word =
        (any::<u32>(), prop::sample::select(opcodes.to_vec()), 0..4u8).prop_map(|(word, opcode, kind)| match kind {
            0 => word,
            // The source register is one that contains an address.
            1 => word & !0xf_ff80 & !0x7f | opcode | 10 << 15 | 5 << 7,
            _ => word & !0x7f | opcode,
        });
    prop::collection::vec(word, 1..64).prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// Generates code of mostly legal vector and VarVE instructions: sets a vector type, describes streams in both
/// directions, then uses random instructions on registers with addresses or small numbers.
fn vector_code() -> impl Strategy<Value = Vec<u8>> {
    // Registers x10 to x12 contain addresses, x13 and x14 small numbers.
    let vtype = prop::sample::select(vec![0u32, 8, 16, 24, 1, 9, 17, 25, 2, 10, 7, 15]);
    let set = (vtype, 0..32u32).prop_map(|(vtype, count)| 0xc000_7057 | vtype << 20 | count << 15);
    let arithmetic = any::<u32>().prop_map(|word| word & !0x7f | 0x57);
    let width = prop::sample::select(vec![0u32, 5, 6, 7]);
    let access = (any::<u32>(), width, 10..13u32, any::<bool>()).prop_map(|(word, width, base, store)| {
        // Half of the accesses are to contiguous elements.
        let kept = if word & 1 == 0 { 0x0200_0f80 } else { 0xeff0_0f80 };
        word & kept | width << 12 | base << 15 | if store { 0x27 } else { 0x07 }
    });
    let open = (0..3u32, any::<bool>(), 0..4u32, 10..13u32, 13..15u32, 0..6u32).prop_map(
        |(kind, output, stream, base, count, detail)| {
            let opcode = if output { 0x702b } else { 0x700b };
            let detail = if kind == 0 { 13 + detail % 2 } else { 10 + detail % 3 };
            opcode | kind << 25 | stream << 7 | base << 15 | count << 20 | detail << 27
        },
    );
    let funct7 = prop::sample::select(vec![3u32, 7, 11, 15, 19, 23, 27]);
    let number = prop::sample::select(vec![0u32, 0, 13, 14]);
    let moved = (funct7, any::<bool>(), any::<u32>(), 0..4u32, number).prop_map(|(funct7, one, word, stream, x)| {
        let opcode = if one { 0x702b } else { 0x700b };
        opcode | funct7 << 25 | word & 0xf80 | stream << 20 | x << 15
    });
    let operation = (0..20u32, any::<u32>(), any::<bool>()).prop_map(|(operation, word, immediate)| {
        let opcode = if immediate { 0x707b } else { 0x705b };
        opcode | (32 + operation) << 26 | word & 0x03ff_8f80
    });
    let word = prop_oneof![
        2 => set.clone(),
        4 => arithmetic,
        2 => access,
        2 => open.clone(),
        3 => moved,
        4 => operation,
        1 => any::<u32>(),
    ];
    (set, prop::collection::vec(open, 0..4), prop::collection::vec(word, 1..64)).prop_map(|(set, open, words)| {
        let all = std::iter::once(set).chain(open).chain(words);
        all.flat_map(u32::to_le_bytes).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bits_are_instructions_or_not(data in prop::collection::vec(any::<u8>(), 4..64)) {
        hostile::decoder(&data);
    }

    #[test]
    fn in_one_go_is_as_step_by_step(data in code(), arguments: [u16; 6]) {
        hostile::stepwise(&data, &arguments);
    }

    #[test]
    fn vector_code_in_one_go_is_as_step_by_step(data in vector_code(), arguments: [u16; 6]) {
        hostile::stepwise(&data, &arguments);
    }

    #[test]
    fn any_code_ends_within_its_limit(data in code()) {
        hostile::execute(&data);
    }

    #[test]
    fn any_vector_code_ends_within_its_limit(data in vector_code()) {
        hostile::execute(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_change_of_a_file_is_refused_or_loaded(
        which in 0..4usize,
        header in prop::collection::vec((0..400usize, any::<u8>()), 0..6),
        anywhere in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: Option<prop::sample::Index>,
    ) {
        let name = [
            "programs/built/sort-64gc.elf",
            "programs/built/matrix-32gc.elf",
            "bare/built/state-64.elf",
            "bare/built/modes-32.elf",
        ][which];
        let mut file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)).unwrap();
        let length = file.len();
        header.into_iter().for_each(|(at, byte)| file[at] = byte);
        anywhere.into_iter().for_each(|(at, byte)| file[at.index(length)] = byte);
        if let Some(cut) = cut {
            file.truncate(cut.index(length));
        }
        hostile::elf(&file);
    }
}
