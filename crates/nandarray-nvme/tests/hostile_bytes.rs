//! Promise: no bytes of a host make the door panic, hang, or ask for memory that they do not justify.
//!
//! The functions of the fuzz targets, with seeded inputs on the stable toolchain.

#![allow(clippy::disallowed_methods, reason = "timeouts of a transport are measured by the clock")]

mod hostile;

use proptest::prelude::*;

/// Generates PDUs that are valid but for a few changed bytes, one after the other.
fn pdus() -> impl Strategy<Value = Vec<u8>> {
    let pdu = (0u8..12, 0u8..4, prop::sample::select(vec![8u8, 24, 72, 128]), 0u32..9000, any::<[u8; 64]>());
    let bytes = |(kind, flags, hlen, plen, rest): (u8, u8, u8, u32, [u8; 64])| {
        let mut pdu = vec![kind, flags, hlen, if plen > 72 { 72 } else { 0 }];
        pdu.extend_from_slice(&plen.to_le_bytes());
        pdu.extend_from_slice(&rest);
        pdu.resize((plen as usize).max(8), 7);
        pdu
    };
    prop::collection::vec(pdu.prop_map(bytes), 1..6).prop_map(|all| all.concat())
}

/// Generates commands of an association; small numbers are likely, since these name existing objects.
fn commands() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => Just(0u8), 3 => 0u8..4, 1 => any::<u8>(), 1 => Just(0xc0)];
    let command = (any::<u8>(), prop::collection::vec(byte.clone(), 48), 0u16..200, prop::collection::vec(byte, 200));
    let bytes = |(which, words, len, data): (u8, Vec<u8>, u16, Vec<u8>)| {
        let mut all = vec![which];
        all.extend(words);
        all.extend(len.to_le_bytes());
        all.extend(&data[..usize::from(len)]);
        all
    };
    prop::collection::vec(command.prop_map(bytes), 1..40).prop_map(|all| all.concat())
}

/// Generates steps of authentication, mostly in the right order, with few changes.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![6 => 0u8..8, 1 => any::<u8>()];
    let step = (kind, prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..80)]);
    let bytes = |(kind, changes): (u8, Vec<u8>)| [&[kind, changes.len() as u8][..], &changes].concat();
    prop::collection::vec(step.prop_map(bytes), 1..12).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn streams(bytes in pdus()) {
        hostile::stream(&bytes);
    }

    #[test]
    fn connects(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        hostile::connect(&bytes);
    }

    #[test]
    fn messages_of_authentication(bytes in messages()) {
        hostile::authentication(&bytes);
    }

    #[test]
    fn commands_of_an_association(bytes in commands()) {
        hostile::commands(&bytes);
    }
}
