//! Texts, identities and keys against published ones, and texts that are none.

use super::key::LabelForm;
use super::*;

/// Configured keys, names and identities of libnvme's `test/psk.c`; its keys of 32 and 48 bytes begin alike.
const KEY: [u8; 32] = [
    0x55, 0x12, 0xdb, 0xb6, 0x73, 0x7d, 0x01, 0x06, 0xf6, 0x59, 0x75, 0xb7, 0x73, 0xdf, 0xb0, 0x11, 0xff, 0xc3, 0x44,
    0xbc, 0xf4, 0x42, 0xe2, 0xdd, 0x6d, 0x8b, 0xc4, 0x87, 0x0b, 0x5d, 0x5b, 0x03,
];
const TEXT_00: &str = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const TEXT_01: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const TEXT_02: &str = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";
const NAMES: (&str, &str) = ("nqn.psk-test-host", "nqn.psk-test-subsys");

fn long_key() -> Vec<u8> {
    [&KEY[..], &KEY[16..]].concat()
}

#[test]
fn texts_are_those_of_nvme_cli() {
    for (is_transformed, key, text) in
        [(false, KEY.to_vec(), TEXT_00), (true, KEY.to_vec(), TEXT_01), (true, long_key(), TEXT_02)]
    {
        let made = TlsKey::new(is_transformed, &key).unwrap();
        assert_eq!(made.reveal(), text);
        assert_eq!(TlsKey::parse(text).unwrap(), made);
        assert!(!format!("{made:?}").contains("85, 18"), "a key must not be shown");
    }
}

#[test]
fn identities_are_those_of_libnvme() {
    let (host, subsystem) = NAMES;
    for (text, expected) in [
        (TEXT_01, "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="),
        (
            TEXT_02,
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
        ),
        (
            &format!("{TEXT_01} compat"),
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
        ),
        (
            &format!("{TEXT_02} compat"),
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
        ),
    ] {
        let key = TlsKey::parse(text).unwrap();
        assert_eq!(key.reveal(), text);
        let keys = TlsKeys::from([(host.to_owned(), key.clone())]);
        let offers = key.offers(host, subsystem);
        assert_eq!(offers[0].identity, expected);
        assert_eq!(offers[1].identity, format!("NVMe0R{} {host} {subsystem}", &expected[6..8]));
        for offer in offers {
            let named = NamedHost::parse(&offer.identity).unwrap();
            assert_eq!((named.hostnqn.as_str(), named.subnqn.as_str()), NAMES);
            assert_eq!(named.key_of(&offer.identity, &keys).unwrap(), offer);
            assert_eq!(named.key_of(&offer.identity, &TlsKeys::new()), None);
        }
    }
}

/// Numbers of the Linux kernel's `drivers/nvme/common/tests/auth_kunit.c`: a retained key, its digest, the key of TLS.
#[test]
fn keys_are_those_of_linux() {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    };
    for (hash, retained, digest, expected) in [
        (
            TlsHash::Sha256,
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            TlsHash::Sha384,
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ] {
        let names = ("hostnqn", "subsysnqn");
        let form = LabelForm::Standard;
        let made = TlsKey::derive_of(&bytes(retained), hash, form, names, IdentityVersion::One).unwrap();
        assert_eq!(made.identity, format!("NVMe1R0{} hostnqn subsysnqn {digest}", hash.id()));
        assert_eq!(made.secret, bytes(expected));
    }
}

#[test]
fn other_texts_are_refused() {
    let damaged = TEXT_01.replace("VRLb", "VRLc");
    let short = TEXT_01.replace(":01:", ":02:");
    for (text, expected) in [
        ("", TlsKeyError::Form),
        (" compat", TlsKeyError::Form),
        (&format!("{TEXT_01} compat compat"), TlsKeyError::Form),
        (&format!("{TEXT_01} other"), TlsKeyError::Form),
        ("DHHC-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", TlsKeyError::Form),
        (&TEXT_01[..TEXT_01.len() - 1], TlsKeyError::Form),
        ("NVMeTLSkey-1:03:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", TlsKeyError::Form),
        ("NVMeTLSkey-1:01:VRLb*:", TlsKeyError::Form),
        ("NVMeTLSkey-1:01:VRL=:", TlsKeyError::Form),
        ("NVMeTLSkey-1:01:VRLbtg==:", TlsKeyError::Length(0)),
        (&short, TlsKeyError::Length(32)),
        (&damaged, TlsKeyError::Checksum),
    ] {
        assert_eq!(TlsKey::parse(text), Err(expected), "{text:?}");
    }
    for identity in ["", "NVMe0R01", "NVMe0R01 a", "NVMe2R01 a b", "NVMe0G01 a b", "NVM", "\u{e9}", "NVMe"] {
        assert_eq!(NamedHost::parse(identity), None, "{identity:?}");
    }
    // An identity of version 0 is the context of its key, whose length is a byte.
    let long = format!("nqn.{}", "h".repeat(219));
    let key = TlsKey::parse(TEXT_01).unwrap();
    assert_eq!(key.offers(&long, &long).len(), 1);
}
