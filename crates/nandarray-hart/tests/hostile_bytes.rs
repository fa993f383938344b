//! Promise: no bytes make the hart panic, hang or ask for memory that they do not justify.
//!
//! The functions of the fuzz targets, with seeded inputs on the stable toolchain.

mod hostile;

use std::path::Path;

use proptest::prelude::*;

/// Code that is mostly instructions: random words, of which some get the low bits of a major opcode.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let opcodes =
        [0x03, 0x07, 0x0b, 0x13, 0x17, 0x23, 0x2b, 0x2f, 0x33, 0x3b, 0x53, 0x5b, 0x63, 0x67, 0x6f, 0x73, 0x7b];
    let word =
        (any::<u32>(), prop::sample::select(opcodes.to_vec()), 0..4u8).prop_map(|(word, opcode, kind)| match kind {
            0 => word,
            // Register fields that name registers with addresses in them.
            1 => word & !0xf_ff80 & !0x7f | opcode | 10 << 15 | 5 << 7,
            _ => word & !0x7f | opcode,
        });
    prop::collection::vec(word, 1..64).prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
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
    fn any_code_ends_within_its_limit(data in code()) {
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
