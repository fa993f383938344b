//! Published vectors of HMAC, and secrets and messages of random content that come back as they were.

use fastrand::Rng;

use super::super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 4231, test cases 1, 2 and 6: the key, the data, the digests by SHA-256, SHA-384 and SHA-512.
#[test]
fn hmacs_are_those_of_rfc_4231_however_the_data_is_parted() {
    let cases: [(&[u8], &[u8], [&str; 3]); 3] = [
        (
            &[0x0b; 20],
            b"Hi There",
            [
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
                 daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ],
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            [
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
        (
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            [
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
                 6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
            ],
        ),
    ];
    for (key, data, digests) in cases {
        for (hash, wanted) in DhchapHash::ALL.into_iter().zip(digests) {
            for cut in 0..=data.len() {
                let parts = [&data[..cut], &[], &data[cut..]];
                let found = hash.hmac(key, &parts);
                assert_eq!(hex(&found), wanted, "{hash:?}, parted at {cut}");
                assert!(hash.verify(key, &parts, &found));
                let short = &found[..found.len() - 1];
                assert!(!hash.verify(key, &parts, short) && !hash.verify(key, &parts, &[]), "a part of a digest");
            }
        }
    }
}

#[test]
fn a_secret_is_its_text_and_one_other_character_is_no_secret() {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=:";
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let (id, bytes) = (rng.u8(..4), [32, 48, 64][rng.usize(..3)]);
        let key: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect();
        let made = DhchapSecret::new(DhchapHash::from_id(id), &key).unwrap();
        let text = made.reveal();
        assert_eq!(DhchapSecret::parse(&text), Ok(made), "seed {seed}");
        for at in (0..text.len()).filter(|at| !(7..9).contains(at)) {
            let mut other = text.clone().into_bytes();
            other[at] = LETTERS[rng.usize(..LETTERS.len())];
            let other = String::from_utf8(other).unwrap();
            assert!(other == text || DhchapSecret::parse(&other).is_err(), "seed {seed}: {other} for {text}");
        }
        for cut in 0..text.len() {
            assert!(DhchapSecret::parse(&text[..cut]).is_err(), "seed {seed}: {cut} characters");
        }
    }
}

fn random_bytes(rng: &mut Rng, most: usize) -> Vec<u8> {
    let bytes = rng.usize(..=most);
    std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect()
}

fn message(rng: &mut Rng) -> AuthMessage {
    let (t_id, seqnum) = (rng.u16(..), rng.u32(..));
    match rng.u8(..6) {
        0 => {
            let secure_channel = rng.u8(..);
            let mut ids = || random_bytes(rng, 30);
            let protocols = (0..3).map(|_| ProtocolDescriptor { hashes: ids(), groups: ids() }).collect();
            AuthMessage::Negotiate { t_id, secure_channel, protocols }
        }
        1 => {
            let (hash, group, challenge) = (rng.u8(..), rng.u8(..), random_bytes(rng, 255));
            AuthMessage::Challenge { t_id, hash, group, seqnum, challenge }
        }
        2 => {
            let response = random_bytes(rng, 255);
            let challenge = rng.bool().then(|| response.iter().map(|byte| !byte).collect());
            AuthMessage::Reply { t_id, seqnum, response, challenge }
        }
        3 => {
            let response = rng.bool().then(|| random_bytes(rng, 255));
            let digest_bytes = response.as_ref().map_or(rng.u8(..), |bytes| bytes.len() as u8);
            AuthMessage::Success1 { t_id, digest_bytes, response }
        }
        4 => AuthMessage::Success2 { t_id },
        _ => {
            let all = [AuthFailure::WrongResponse, AuthFailure::NoProtocol, AuthFailure::Payload, AuthFailure::Order];
            AuthMessage::Failed { t_id, by_host: rng.bool(), failure: all[rng.usize(..4)] }
        }
    }
}

#[test]
fn messages_come_back_as_they_were_and_parts_of_them_are_refused() {
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let made = message(&mut rng);
        let bytes = made.encode();
        assert_eq!(AuthMessage::decode(&bytes), Ok(made.clone()), "seed {seed}");
        // Hosts ask for more room than a message has.
        let longer = [&bytes[..], &[0; 9]].concat();
        assert_eq!(AuthMessage::decode(&longer), Ok(made.clone()), "seed {seed}, with bytes behind it");
        // A reply has room for a challenge behind its response, whether it has one or not.
        let least = match &made {
            AuthMessage::Reply { response, challenge: None, .. } => bytes.len() - response.len(),
            _ => bytes.len(),
        };
        for cut in 0..least {
            assert_eq!(AuthMessage::decode(&bytes[..cut]), Err(AuthFailure::Payload), "seed {seed}: {cut} of {made:?}");
        }
        let noise = random_bytes(&mut rng, 200);
        if let Ok(found) = AuthMessage::decode(&noise) {
            assert!(noise.len() >= 8, "seed {seed}: {found:?}");
        }
    }
}
