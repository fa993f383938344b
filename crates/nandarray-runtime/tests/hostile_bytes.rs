//! Promise: whatever the bytes of a program or of its metadata, a core does not panic, hang or allocate memory without
//! need.
//!
//! The functions of the fuzz targets run here with seeded inputs on the stable toolchain.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;
mod hostile;

use proptest::prelude::*;

/// Fragments from which random metadata is made.
const PIECES: &[&str] = &[
    "\"abi\": 1",
    "\"kind\": \"block\"",
    "\"kind\": \"stream\"",
    "\"inputs\": [",
    "\"outputs\": [",
    "\"scalars\": [{}]",
    "{\"dtype\": \"u1\"}",
    "{\"dtype\": \"int64\"}",
    "\"dtype\": \"float32\"",
    "\"whole\": true",
    "\"records\": \"lines\"",
    "\"phase\": \"end\"",
    "\"bound\": {\"fixed\": 18446744073709551615}",
    "\"state_bytes\": 18446744073709551615",
    "\"record_bytes\": 67108864",
    "\"memory_bytes\": 1",
    "\"scratchpad_bytes\": 268435456",
    "{",
    "}",
    "]",
    ",",
    "-1",
    "1e308",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_metadata_or_not(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..20)) {
        hostile::metadata(format!("{{{}}}", pieces.join(", ")).as_bytes());
        hostile::metadata(pieces.concat().as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_change_of_a_program_is_refused_or_run(
        header in prop::collection::vec((0..400usize, any::<u8>()), 0..6),
        anywhere in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: Option<prop::sample::Index>,
    ) {
        let mut file = common::by_hand();
        let length = file.len();
        header.into_iter().for_each(|(at, byte)| file[at] = byte);
        anywhere.into_iter().for_each(|(at, byte)| file[at.index(length)] = byte);
        if let Some(cut) = cut {
            file.truncate(cut.index(length));
        }
        hostile::program(&file);
    }

    #[test]
    fn any_change_of_what_a_program_says_is_refused_or_run(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut text = common::METADATA.as_bytes().to_vec();
        let length = text.len();
        changes.into_iter().for_each(|(at, byte)| text[at.index(length)] = byte);
        hostile::described(&common::by_hand(), &text);
    }
}
