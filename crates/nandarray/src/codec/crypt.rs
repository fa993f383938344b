//! Encryption: keys, and sealing (authenticated encryption) of frames with AES-256-GCM-SIV (RFC 8452).
//!
//! GCM-SIV is used because the nonce is a sequence number, and a crash may make the store use one twice: a repeated
//! nonce then reveals only whether two sealed texts with the same associated data are equal, whereas with GCM it would
//! reveal the key stream.
//!
//! The associated data of every seal names the place of the sealed text: the store's salt, the space, the building
//! block, the payload's fixed head, and the number of the frame. So frames, blocks and payloads of other stores under
//! the same key cannot be exchanged. The seal of the head covers the tags of all frames, so frames of two versions of
//! one block cannot be mixed.
//!
//! It does not derive keys from passwords or make random numbers (the salt comes from the caller), does not hide sizes
//! or which blocks exist, and does not notice that a whole payload was replaced by an older version of the same block.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use super::aead::{Aead, NONCE_BYTES};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// Length of a salt in bytes.
pub const SALT_BYTES: usize = 16;

/// Length of an authentication tag in bytes.
pub(super) const TAG_BYTES: usize = 16;

/// First bytes of the associated data of a frame. Heads, key checks and waiting bytes begin differently, so that none
/// of them is ever accepted as another.
const FRAME_DOMAIN: &[u8] = b"nandarray frame 1\0";
/// First bytes of the associated data of a head.
const HEAD_DOMAIN: &[u8] = b"nandarray head 1\0";
/// First bytes of the associated data of a key check.
const CHECK_DOMAIN: &[u8] = b"nandarray key check 1\0";

/// First bytes of the associated data of bytes that wait to be written to a space.
const WAITING_DOMAIN: &[u8] = b"nandarray waiting 1\0";

/// Frame number in the nonce of a head; numbers of frames count from zero and never reach it.
const HEAD_NUMBER: u32 = u32::MAX;

/// The reason why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is not [`KEY_BYTES`] long.
    #[error("key of {bytes} bytes: expected {KEY_BYTES}")]
    Length {
        /// Length in bytes of the key that was passed.
        bytes: usize,
    },
    /// The key is not the one with which the space was created.
    #[error("wrong key for this store")]
    Wrong,
}

/// A secret key, and the salt of the space that it encrypts. The secret is wiped when this is dropped; the caller must
/// wipe its own copies.
#[derive(Clone)]
pub struct CipherKey {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    salt: [u8; SALT_BYTES],
}

impl CipherKey {
    /// Creates a key from `KEY_BYTES` uniformly random bytes. `salt` is public, is stored with the space's
    /// properties, and should differ between spaces that share a key.
    ///
    /// # Errors
    /// `KeyError::Length` for a secret of another length.
    pub fn new(secret: &[u8], salt: [u8; SALT_BYTES]) -> Result<Self, KeyError> {
        if secret.len() != KEY_BYTES {
            return Err(KeyError::Length { bytes: secret.len() });
        }
        let mut own = Zeroizing::new([0; KEY_BYTES]);
        own.copy_from_slice(secret);
        Ok(Self { secret: own, salt })
    }

    /// Returns the salt.
    #[must_use]
    pub fn salt(&self) -> [u8; SALT_BYTES] {
        self.salt
    }

    fn aead(&self) -> Aead {
        Aead::new(&self.secret)
    }
}

impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CipherKey").field("salt", &self.salt).finish_non_exhaustive()
    }
}

/// A public value by which a wrong key is recognised: the seal of a constant under the key and the salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCheck([u8; KeyCheck::BYTES]);

impl KeyCheck {
    /// Length of the stored value in bytes.
    pub const BYTES: usize = 16 + TAG_BYTES;

    const CONSTANT: [u8; 16] = [0; 16];

    /// Computes the value to store for a new space.
    #[must_use]
    pub fn new(key: &CipherKey) -> Self {
        let mut bytes = [0; Self::BYTES];
        let (text, tag) = bytes.split_at_mut(Self::CONSTANT.len());
        text.copy_from_slice(&Self::CONSTANT);
        let aad = [CHECK_DOMAIN, &key.salt].concat();
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&key.salt[..NONCE_BYTES]);
        tag.copy_from_slice(&key.aead().seal(nonce, &aad, text));
        Self(bytes)
    }

    /// Takes the value as read from metadata. Any bytes are accepted; wrong ones match no key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the value in its stored form.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Checks that `key`, with its salt, is the one from which this value was computed.
    ///
    /// # Errors
    /// [`KeyError::Wrong`] if it is not.
    pub fn verify(self, key: &CipherKey) -> Result<(), KeyError> {
        // Both values are public to any reader of the store, so a comparison in constant time would protect nothing.
        if Self::new(key) == self { Ok(()) } else { Err(KeyError::Wrong) }
    }
}

/// The place of a payload: its space and building block. Nothing in it is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockContext<'a> {
    /// Number of the space within its store.
    pub space_id: u64,
    /// Bytes that identify the block within its space, in an encoding that never changes, e.g. its coordinates.
    pub block_key: &'a [u8],
}

/// The cipher of one space: its key schedule and salt.
pub(super) struct FrameCipher {
    aead: Aead,
    salt: [u8; SALT_BYTES],
}

impl FrameCipher {
    pub(super) fn new(key: &CipherKey) -> Self {
        Self { aead: key.aead(), salt: key.salt }
    }

    /// Builds the part of the associated data that names the payload; all seals of the payload share it.
    pub(super) fn payload_aad(&self, context: BlockContext<'_>, fixed_head: &[u8]) -> Vec<u8> {
        let mut aad =
            Vec::with_capacity(FRAME_DOMAIN.len() + SALT_BYTES + 24 + context.block_key.len() + fixed_head.len());
        aad.extend_from_slice(&self.salt);
        aad.extend_from_slice(&context.space_id.to_le_bytes());
        aad.extend_from_slice(&(context.block_key.len() as u64).to_le_bytes());
        aad.extend_from_slice(context.block_key);
        aad.extend_from_slice(fixed_head);
        aad
    }

    /// Encrypts one frame in place; returns its authentication tag.
    pub(super) fn seal_frame(&self, frame: FrameId<'_>, text: &mut [u8]) -> [u8; TAG_BYTES] {
        self.aead.seal(nonce(frame.sequence, frame.number), &frame.aad(), text)
    }

    /// Decrypts one frame into `text`. Returns `false`, with `text` zeroed, if it was not sealed by this key as this
    /// frame.
    pub(super) fn open_frame(&self, frame: FrameId<'_>, tag: [u8; TAG_BYTES], sealed: &[u8], text: &mut [u8]) -> bool {
        self.aead.open(nonce(frame.sequence, frame.number), &frame.aad(), sealed, tag, text)
    }

    /// Encrypts bytes that wait to be written to the space; returns their authentication tag.
    pub(super) fn seal_waiting(&self, sequence: u64, text: &mut [u8]) -> [u8; TAG_BYTES] {
        self.aead.seal(nonce(sequence, 0), &[WAITING_DOMAIN, &self.salt].concat(), text)
    }

    /// Decrypts waiting bytes into `text`. Returns `false`, with `text` zeroed, if they were not sealed so.
    pub(super) fn open_waiting(&self, sequence: u64, tag: [u8; TAG_BYTES], sealed: &[u8], text: &mut [u8]) -> bool {
        self.aead.open(nonce(sequence, 0), &[WAITING_DOMAIN, &self.salt].concat(), sealed, tag, text)
    }

    /// Returns the authentication tag of the whole frame table.
    pub(super) fn seal_head(&self, payload_aad: &[u8], sequence: u64, table: &[u8]) -> [u8; TAG_BYTES] {
        self.aead.seal(nonce(sequence, HEAD_NUMBER), &[HEAD_DOMAIN, payload_aad, table].concat(), &mut [])
    }

    /// Whether `tag` is the tag that [`Self::seal_head`] returns for this frame table.
    pub(super) fn verify_head(&self, payload_aad: &[u8], sequence: u64, table: &[u8], tag: [u8; TAG_BYTES]) -> bool {
        let aad = [HEAD_DOMAIN, payload_aad, table].concat();
        self.aead.open(nonce(sequence, HEAD_NUMBER), &aad, &[], tag, &mut [])
    }
}

impl fmt::Debug for FrameCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCipher").finish_non_exhaustive()
    }
}

/// One frame of a payload, with all that its nonce and associated data contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameId<'a> {
    /// Associated data that names the payload, from [`FrameCipher::payload_aad`].
    pub(super) payload_aad: &'a [u8],
    /// Sequence number of the payload.
    pub(super) sequence: u64,
    /// Number of the frame, from zero.
    pub(super) number: u32,
    /// Decoded length of the frame in bytes.
    pub(super) raw_bytes: u32,
    /// Whether the frame is stored raw: neither filtered nor compressed.
    pub(super) stored: bool,
}

impl FrameId<'_> {
    fn aad(&self) -> Vec<u8> {
        let mut aad = Vec::with_capacity(FRAME_DOMAIN.len() + self.payload_aad.len() + 9);
        aad.extend_from_slice(FRAME_DOMAIN);
        aad.extend_from_slice(self.payload_aad);
        aad.extend_from_slice(&self.number.to_le_bytes());
        aad.extend_from_slice(&self.raw_bytes.to_le_bytes());
        aad.push(u8::from(self.stored));
        aad
    }
}

fn nonce(sequence: u64, number: u32) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&sequence.to_le_bytes());
    nonce[8..].copy_from_slice(&number.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_check_knows_its_key_and_salt() {
        let key = |byte, salt| CipherKey::new(&[byte; 32], [salt; 16]).expect("32 bytes");
        let check = KeyCheck::from_bytes(KeyCheck::new(&key(1, 2)).to_bytes());
        assert_eq!(check.verify(&key(1, 2)), Ok(()));
        assert_eq!(check.verify(&key(3, 2)), Err(KeyError::Wrong));
        assert_eq!(check.verify(&key(1, 3)), Err(KeyError::Wrong));
        for bit in 0..KeyCheck::BYTES * 8 {
            let mut bytes = check.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(KeyCheck::from_bytes(bytes).verify(&key(1, 2)), Err(KeyError::Wrong));
        }
    }

    #[test]
    fn keys_are_checked_and_not_printed() {
        assert_eq!(CipherKey::new(&[0; 31], [0; 16]).err(), Some(KeyError::Length { bytes: 31 }));
        let key = CipherKey::new(&[0xAB; 32], [0; 16]).expect("32 bytes");
        assert_eq!(format!("{key:?}"), format!("CipherKey {{ salt: {:?}, .. }}", [0; 16]));
    }
}
