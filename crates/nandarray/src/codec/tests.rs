//! The codec as a whole: round trips, partial reads, hostile payloads, forged ones.

use proptest::prelude::*;

use super::*;

const CONTEXT: BlockContext<'static> = BlockContext { space_id: 7, block_key: &[1, 2, 3] };

fn key(byte: u8) -> CipherKey {
    CipherKey::new(&[byte; KEY_BYTES], [9; SALT_BYTES]).expect("a key of the right length")
}

/// Creates the codec of a space as in stores of format version 1.
fn codec(compression: &str, encrypted: bool, element_bytes: u32, block_bytes: u64) -> Codec {
    framed(Framing::V1, compression, encrypted, element_bytes, block_bytes)
}

fn framed(framing: Framing, compression: &str, encrypted: bool, element_bytes: u32, block_bytes: u64) -> Codec {
    let compression = (compression != "none").then(|| compression.parse().expect(compression));
    let spec = CodecSpec { compression, encrypted, element_bytes, block_bytes, framing };
    Codec::new(spec, encrypted.then(|| key(1)).as_ref()).expect("a good spec")
}

/// Returns a rising sequence with a little noise: compressible, and different in each frame.
fn smooth(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let words = (0..bytes.div_ceil(4)).flat_map(|i| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (i as u32 / 3 + (state >> 29)).to_le_bytes()
    });
    words.take(bytes).collect()
}

fn encoded(codec: &Codec, block: &[u8], sequence: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    codec.encode(block, CONTEXT, sequence, &mut payload).expect("a block of the right length");
    payload
}

fn decoded(codec: &Codec, payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![0; codec.layout.block_bytes];
    codec.decode(payload, 0..out.len(), CONTEXT, &mut out)?;
    Ok(out)
}

const COMPRESSIONS: [&str; 7] =
    ["none", "lz4", "lz4+shuffle", "lz4+bitshuffle", "zstd:1", "zstd:3+shuffle", "zstd:5+bitshuffle"];

#[test]
fn each_compression_shrinks_a_smooth_block_and_restores_it() {
    let block = smooth(100_000);
    for compression in COMPRESSIONS {
        for encrypted in [false, true] {
            let codec = codec(compression, encrypted, 4, 100_000);
            let payload = encoded(&codec, &block, 5);
            assert!(payload.len() <= codec.payload_bytes_max());
            assert_eq!(compression == "none", payload.len() > 70_000, "{compression}: {} bytes", payload.len());
            assert_eq!(decoded(&codec, &payload).as_ref(), Ok(&block), "{compression} {encrypted}");
            assert_eq!(encoded(&codec, &block, 5), payload, "encoding is deterministic");
        }
    }
}

#[test]
fn padding_after_the_payload_is_ignored() {
    for encrypted in [false, true] {
        let codec = codec("lz4", encrypted, 2, 70_000);
        let block = smooth(70_000);
        let mut payload = encoded(&codec, &block, 5);
        let table = codec.frame_table(&payload, CONTEXT).expect("a good head");
        assert_eq!(table.payload_bytes(), payload.len());
        payload.resize(payload.len() + 4096, 0xA5);
        assert_eq!(decoded(&codec, &payload), Ok(block));
    }
}

#[test]
fn a_partial_read_touches_only_its_frames() {
    let block = smooth(200_000);
    for encrypted in [false, true] {
        let codec = codec("zstd+shuffle", encrypted, 8, 200_000);
        let payload = encoded(&codec, &block, 5);
        let table = codec.frame_table(&payload[..codec.head_bytes()], CONTEXT).expect("the head is enough");
        let frames = table.frames(40_000..70_000).expect("within the block");
        assert_eq!(frames, 1..3);
        let needed = table.payload_range(frames);
        let piece = payload[needed.clone()].to_vec();
        let mut out = vec![0xEE; block.len()];
        let written = codec.decode_frames(&table, &piece, needed.start, 40_000..70_000, &mut out).expect("covers it");
        assert_eq!(written, 32_768..98_304);
        assert_eq!(out[written.clone()], block[written.clone()]);
        assert!(out[..written.start].iter().chain(&out[written.end..]).all(|byte| *byte == 0xEE));

        for (piece, start) in [(&piece[1..], needed.start + 1), (&piece[..piece.len() - 1], needed.start), (&piece, 0)]
        {
            let error = codec.decode_frames(&table, piece, start, 40_000..70_000, &mut out).expect_err("not covered");
            assert!(matches!(
                error,
                CodecError::Truncated { .. } | CodecError::FrameForged { .. } | CodecError::Decompress { .. }
            ));
        }
    }
}

#[test]
fn each_framing_is_told_from_the_others_and_from_the_second_on_frames_are_small() {
    let block = smooth(65_536);
    for (compression, frames) in [("lz4+shuffle", 8), ("zstd:3+shuffle", 2)] {
        let [one, two] = [Framing::V1, Framing::V2].map(|framing| framed(framing, compression, false, 4, 65_536));
        let [first, second] = [&one, &two].map(|codec| encoded(codec, &block, 0));
        assert_eq!(decoded(&one, &first).as_ref(), Ok(&block));
        assert_eq!(decoded(&two, &second).as_ref(), Ok(&block));
        assert_eq!(two.frame_table(&second, CONTEXT).expect("a good head").frame_count(), frames);
        let three = framed(Framing::V3, compression, false, 4, 65_536);
        let third = encoded(&three, &block, 0);
        assert_eq!((third[4], &third[5..]), (3, &second[5..]), "the third is the second with another number");
        assert_eq!(decoded(&three, &third).as_ref(), Ok(&block));
        let pairs = [(&one, &second, 2, 1), (&two, &first, 1, 2), (&two, &third, 3, 2), (&three, &second, 2, 3)];
        for (codec, payload, found, expected) in pairs {
            assert_eq!(decoded(codec, payload), Err(CodecError::Head { field: "version", found, expected }));
        }
    }
    let codec = framed(Framing::V2, "lz4", false, 4, 65_536);
    let payload = encoded(&codec, &block, 0);
    let mut out = vec![0xEE; block.len()];
    assert_eq!(codec.decode(&payload, 8_192..8_193, CONTEXT, &mut out), Ok(8_192..16_384));
}

#[test]
fn wrong_ranges_and_buffers_are_errors() {
    let codec = codec("lz4", false, 4, 65_536);
    let payload = encoded(&codec, &smooth(65_536), 0);
    let mut out = vec![0; 65_536];
    #[expect(clippy::reversed_empty_ranges, reason = "that is the case under test")]
    for raw in [0..65_537, 70_000..70_000, 5..4, 0..usize::MAX] {
        let error = codec.decode(&payload, raw, CONTEXT, &mut out).expect_err("out of range");
        assert!(matches!(error, CodecError::Range { .. }), "{error}");
    }
    assert_eq!(codec.decode(&payload, 65_536..65_536, CONTEXT, &mut out), Ok(65_536..65_536));
    let short = CodecError::BufferLength { found: 65_535, expected: 65_536 };
    assert_eq!(codec.decode(&payload, 0..1, CONTEXT, &mut out[1..]), Err(short.clone()));
    assert_eq!(codec.encode(&out[1..], CONTEXT, 0, &mut Vec::new()), Err(short));
}

#[test]
fn a_key_is_given_exactly_when_it_is_needed() {
    let framing = Framing::V3;
    let spec = CodecSpec { compression: None, encrypted: true, element_bytes: 1, block_bytes: 4096, framing };
    assert_eq!(Codec::new(spec, None).err(), Some(SpecError::KeyMissing));
    let plain = CodecSpec { encrypted: false, ..spec };
    assert_eq!(Codec::new(plain, Some(&key(1))).err(), Some(SpecError::KeyUnexpected));
    assert!(plain.is_identity() && !spec.is_identity());
}

#[test]
fn another_key_salt_space_block_or_sequence_does_not_open() {
    let block = smooth(40_000);
    let framing = Framing::V3;
    let spec = CodecSpec { compression: None, encrypted: true, element_bytes: 4, block_bytes: 40_000, framing };
    let mine = Codec::new(spec, Some(&key(1))).expect("a good spec");
    let payload = encoded(&mine, &block, 5);
    let mut out = vec![0; block.len()];
    let other_key = Codec::new(spec, Some(&key(2))).expect("a good spec");
    let other_salt = CipherKey::new(&[1; KEY_BYTES], [8; SALT_BYTES]).expect("32 bytes");
    let other_salt = Codec::new(spec, Some(&other_salt)).expect("a good spec");
    for codec in [other_key, other_salt] {
        assert_eq!(codec.decode(&payload, 0..1, CONTEXT, &mut out), Err(CodecError::HeadForged));
    }
    for context in [BlockContext { space_id: 8, ..CONTEXT }, BlockContext { block_key: &[1, 2], ..CONTEXT }] {
        assert_eq!(mine.decode(&payload, 0..1, context, &mut out), Err(CodecError::HeadForged));
    }
    assert_eq!(mine.frame_table(&payload, CONTEXT).expect("its own").sequence(), 5);
    let other = encoded(&mine, &block, 6);
    assert!(other[mine.head_bytes()..] != payload[mine.head_bytes()..], "the sequence enters the nonce");
}

#[test]
fn frames_cannot_be_exchanged() {
    // Two frames of equal content, then two versions of one block under a repeated sequence number.
    let codec = codec("none", true, 4, 65_536);
    let block = vec![3; 65_536];
    let payload = encoded(&codec, &block, 5);
    let (head, frame) = (codec.head_bytes(), 32_768);
    assert!(payload[head..head + frame] != payload[head + frame..], "equal frames look different");
    let mut swapped = payload.clone();
    swapped[head..].rotate_left(frame);
    assert_eq!(decoded(&codec, &swapped), Err(CodecError::FrameForged { frame: 0 }));

    let mut newer = block;
    newer[0] = 4;
    newer[40_000] = 4;
    let newer = encoded(&codec, &newer, 5);
    let mut mixed = payload.clone();
    mixed[head + frame..].copy_from_slice(&newer[head + frame..]);
    assert_eq!(decoded(&codec, &mixed), Err(CodecError::FrameForged { frame: 1 }));
    // Even with the frame's tag taken along.
    let tag = head - 2 * crypt::TAG_BYTES..head - crypt::TAG_BYTES;
    mixed[tag.clone()].copy_from_slice(&newer[tag]);
    assert_eq!(decoded(&codec, &mixed), Err(CodecError::HeadForged));
}

#[test]
fn every_bit_flip_of_a_sealed_payload_is_an_error_and_leaks_no_forged_bytes() {
    for compression in ["none", "lz4+shuffle"] {
        let codec = codec(compression, true, 4, 1500);
        let payload = encoded(&codec, &smooth(1500), 5);
        let mut out = vec![0; 1500];
        for bit in 0..payload.len() * 8 {
            let mut flipped = payload.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            out.fill(0);
            assert!(codec.decode(&flipped, 0..1500, CONTEXT, &mut out).is_err(), "{compression}: bit {bit}");
            assert!(out.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (compression, encrypted) in [("none", false), ("lz4", false), ("zstd+bitshuffle", false), ("lz4", true)] {
        let codec = codec(compression, encrypted, 4, 3000);
        let payload = encoded(&codec, &smooth(3000), 5);
        let mut out = vec![0; 3000];
        for length in 0..payload.len() {
            let error = codec.decode(&payload[..length], 0..3000, CONTEXT, &mut out).expect_err("truncated");
            assert!(matches!(error, CodecError::Truncated { .. }), "{length}: {error}");
        }
    }
}

#[test]
fn damage_without_encryption_is_an_error_or_bytes_but_no_panic() {
    for compression in COMPRESSIONS {
        let codec = codec(compression, false, 4, 1200);
        let payload = encoded(&codec, &smooth(1200), 5);
        let mut out = vec![0; 1200];
        for at in 0..payload.len() {
            for mask in [1, 0x80, 0xFF] {
                let mut damaged = payload.clone();
                damaged[at] ^= mask;
                let result = codec.decode(&damaged, 0..1200, CONTEXT, &mut out);
                // The head knows all of its own fields; only a frame's content may change unnoticed.
                assert!(at >= codec.head_bytes() || result.is_err(), "{compression}: byte {at}");
            }
        }
    }
}

#[test]
fn a_head_of_another_spec_names_the_field() {
    let block = smooth(65_536);
    let payload = encoded(&codec("lz4+shuffle", false, 4, 65_536), &block, 0);
    for (other, name) in [
        (codec("zstd+shuffle", false, 4, 65_536), "compression"),
        (codec("lz4", false, 4, 65_536), "filter"),
        (codec("lz4+shuffle", false, 8, 65_536), "element bytes"),
        (codec("lz4+shuffle", false, 4, 65_535), "block bytes"),
    ] {
        match decoded(&other, &payload) {
            Err(CodecError::Head { field, .. }) => assert_eq!(field, name),
            result => panic!("{name}: {:?}", result.map(|out| out.len())),
        }
    }
    assert!(
        decoded(&codec("zstd:9", false, 4, 65_536), &encoded(&codec("zstd:1", false, 4, 65_536), &block, 0)).is_ok()
    );
}

/// Pins the bytes of the payload format: they may only change together with the head's version.
#[test]
fn the_payload_format_is_pinned() {
    let plain = encoded(&codec("lz4+shuffle", false, 2, 40), &[5, 0].repeat(20), 1);
    #[rustfmt::skip]
    assert_eq!(plain, [
        b'n', b'a', b'f', b'r', 1, 1, 1, 0,
        2, 0, 0, 0,  40, 0, 0, 0,  1, 0, 0, 0,  40, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        51, 0, 0, 0,
        // LZ4: one 5 repeated 19 times, then 0 repeated, its last bytes literal.
        0x1F, 5, 1, 0, 0, 0x1A, 0, 1, 0, 0x50, 0, 0, 0, 0, 0,
    ]);
    let packed = encoded(&codec("bitpack", false, 2, 40), &[5, 0, 12, 0].repeat(10), 1);
    assert_eq!((packed[5], packed[32]), (3, 47));
    // Three bits of 5 - 5 and 12 - 5.
    assert_eq!(packed[36..], [3, 5, 0, 0x38, 0x8e, 0xe3, 0x38, 0x8e, 0xe3, 0x38, 0x0e]);
    let varied = encoded(
        &codec("varwidth", false, 8, 32),
        &[[1, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0]].concat().repeat(2),
        1,
    );
    assert_eq!((varied[5], varied[32]), (4, 42));
    assert_eq!(varied[36..], [1, 4, 1, 4, 0x73, 0x2]);
    let sealed = encoded(&codec("none", true, 1, 8), &[0; 8], 0x0102);
    assert_eq!(sealed.len(), 32 + 4 + 16 + 16 + 8);
    assert_eq!(sealed[68..], [149, 110, 124, 216, 58, 29, 122, 8]);
    assert_eq!(sealed[24..36], [2, 1, 0, 0, 0, 0, 0, 0, 76, 0, 0, 0x80]);
}

/// The compressions that pack integers.
const PACKED: [&str; 2] = ["bitpack", "varwidth"];

#[test]
fn integers_are_packed_and_read_in_parts() {
    let values: Vec<u8> = (0..50_000u32).flat_map(|i| (i * i % 1000).to_le_bytes()).collect();
    for (name, most) in PACKED.into_iter().zip([200_000 * 10 / 32 + 1000, 200_000 * 18 / 32 + 1000]) {
        for encrypted in [false, true] {
            let codec = framed(Framing::V3, name, encrypted, 4, 200_000);
            let payload = encoded(&codec, &values, 1);
            assert!(payload.len() < most, "{name}: {}", payload.len());
            assert_eq!(decoded(&codec, &payload).unwrap(), values);
            let mut out = vec![0; values.len()];
            let done = codec.decode(&payload, 20_001..20_002, CONTEXT, &mut out).unwrap();
            assert_eq!(done, 16_384..24_576, "one frame");
            assert_eq!(out[done.clone()], values[done]);
        }
    }
}

fn any_codec() -> impl Strategy<Value = (Codec, bool)> {
    let element = prop_oneof![1..=20_u32, Just(64), Just(5000), Just(ELEMENT_BYTES_MAX)];
    let framing = prop::sample::select(&[Framing::V1, Framing::V2, Framing::V3][..]);
    let compression = prop::sample::select([&COMPRESSIONS[..], &PACKED[..]].concat());
    (compression, any::<bool>(), element, 1..150_000_u64, framing).prop_map(
        |(compression, encrypted, element, block, framing)| {
            let element = if PACKED.contains(&compression) { 1 << (element % 4) } else { element };
            (framed(framing, compression, encrypted, element, block), encrypted)
        },
    )
}

/// Returns runs of zeroes, of noise and of counting, so that some frames shrink and some are stored raw.
fn any_block(bytes: usize, mut seed: u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(bytes);
    while block.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let run = (seed >> 40) as usize % 40_000;
        let kind = seed >> 62;
        block.extend((0..run.min(bytes - block.len())).map(|i| match kind {
            0 => 0,
            1 => (i / 4) as u8,
            _ => {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8 >> kind
            }
        }));
    }
    block
}

/// Returns the values of packed parts, read bit by bit as a program reads them.
fn values_of(packing: Packing, item: usize, mut parts: &[u8]) -> Vec<u8> {
    let mut values = Vec::new();
    while !parts.is_empty() {
        let word = |at: usize| u32::from_le_bytes(parts[at..][..4].try_into().unwrap()) as usize;
        let (length, count, skip, width) = (word(0), word(4), word(8), word(12));
        let reference = u64::from_le_bytes(parts[16..24].try_into().unwrap());
        let (data, widths) = (&parts[word(24)..length], &parts[word(28)..]);
        let mut at = 0;
        for number in 0..skip + count {
            let width = if packing == Packing::BitPack { width } else { widths[number].into() };
            let bit = |k: usize| u64::from(data[(at + k) / 8] >> ((at + k) % 8) & 1);
            let value = (0..width).fold(0, |value, k| value | bit(k) << k);
            if number >= skip {
                values.extend_from_slice(&value.wrapping_add(reference).to_le_bytes()[..item]);
            }
            at += width;
        }
        assert!(length.is_multiple_of(8) && (packing == Packing::VarWidth || (1..=64).contains(&width)));
        parts = &parts[length..];
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_block_round_trips((codec, _) in any_codec(), seed in any::<u64>(), cut in any::<(u64, u64)>()) {
        let bytes = codec.layout.block_bytes;
        let block = any_block(bytes, seed);
        let payload = encoded(&codec, &block, seed);
        prop_assert!(payload.len() <= codec.payload_bytes_max());
        prop_assert_eq!(decoded(&codec, &payload), Ok(block.clone()));

        let (a, b) = (cut.0 as usize % (bytes + 1), cut.1 as usize % (bytes + 1));
        let raw = a.min(b)..a.max(b);
        let mut out = vec![0xEE; bytes];
        let written = codec.decode(&payload, raw.clone(), CONTEXT, &mut out).expect("a good payload");
        prop_assert!(raw.is_empty() || written.start <= raw.start && raw.end <= written.end);
        prop_assert_eq!(&out[written.clone()], &block[written.clone()]);
        prop_assert!(out[..written.start].iter().chain(&out[written.end..]).all(|byte| *byte == 0xEE));
    }

    #[test]
    fn random_bytes_never_panic(
        (codec, _) in any_codec(),
        mut bytes in prop::collection::vec(any::<u8>(), 0..9000),
        sizes in any::<bool>(),
    ) {
        // Half of the cases get past the fixed head, and get one end per frame that looks right.
        let mut out = vec![0; codec.layout.block_bytes];
        let fixed = head::fixed_head(&codec.spec, &codec.layout, 0);
        if sizes && bytes.len() > codec.head_bytes() + codec.layout.frame_count {
            bytes[..fixed.len()].copy_from_slice(&fixed);
            let (head, frames) = bytes.split_at_mut(codec.head_bytes());
            let mut writer = HeadWriter::new(&codec.layout, head);
            for frame in 0..codec.layout.frame_count {
                let end = codec.head_bytes() + frames.len() * (frame + 1) / codec.layout.frame_count;
                writer.set_end(frame, end, false);
            }
        }
        let _ = codec.decode(&bytes, 0..out.len(), CONTEXT, &mut out);
        if let (Some(_), Ok(table)) = (codec.spec().packing(), codec.frame_table(&bytes, CONTEXT)) {
            let mut packed = Vec::new();
            for part in codec.packed_frames(0..out.len() / codec.spec().element_bytes as usize) {
                let _ = codec.append_packed(&table, &bytes, 0, part, &mut packed);
            }
            prop_assert!(packed.len() <= 4 * out.len() + 4096 * codec.layout.frame_count, "{}", packed.len());
        }
    }

    #[test]
    fn packed_parts_hold_the_values(
        (codec, _) in any_codec(), seed in any::<u64>(), cut in any::<(u64, u64)>(), unpacked in any::<bool>(),
    ) {
        let Some(packing) = codec.spec().packing() else { return Ok(()) };
        let (bytes, item) = (codec.layout.block_bytes, codec.spec().element_bytes as usize);
        let block = any_block(bytes, seed);
        let payload = encoded(&codec, &block, seed);
        let table = codec.frame_table(&payload, CONTEXT).expect("a good head");
        let (a, b) = (cut.0 as usize % (bytes / item + 1), cut.1 as usize % (bytes / item + 1));
        let wanted = a.min(b)..a.max(b);
        let mut packed = Vec::new();
        for (frame, part) in codec.packed_frames(wanted.clone()) {
            if unpacked {
                codec.append_unpacked(&block[codec.layout.raw_range(frame)], part, &mut packed);
            } else {
                codec.append_packed(&table, &payload, 0, (frame, part), &mut packed).expect("a good frame");
            }
        }
        prop_assert_eq!(values_of(packing, item, &packed), block[wanted.start * item..wanted.end * item].to_vec());
    }

    #[test]
    fn damaged_sealed_payloads_are_errors(
        (codec, encrypted) in any_codec(),
        seed in any::<u64>(),
        at in any::<u64>(),
        mask in 1..=255_u8,
    ) {
        let mut payload = encoded(&codec, &any_block(codec.layout.block_bytes, seed), seed);
        let at = at as usize % payload.len();
        payload[at] ^= mask;
        let result = decoded(&codec, &payload);
        prop_assert!(!encrypted || result.is_err());
    }
}
