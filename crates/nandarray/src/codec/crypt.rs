//! Keys, and sealing of frames with AES-256-GCM-SIV (RFC 8452).
//!
//! GCM-SIV because a nonce here is a sequence number, and a crash may make the store use one twice: a repeated nonce
//! then shows only whether two sealed texts with the same associated data are equal, where GCM would give the key
//! stream away.
//!
//! Every seal binds *where* it belongs through its associated data: the store's salt, the space, the building block,
//! the payload's fixed head, and which frame. So neither frames nor blocks nor payloads of another store under the same
//! key can be exchanged. The head seal binds the tags of all frames, so frames of two versions of one block cannot be
//! mixed.
//!
//! Does not: derive keys from passwords, make random numbers (the salt comes from the caller), hide sizes or which
//! blocks exist, or notice that a whole payload was put back to an older version of the same block.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use super::aead::{Aead, NONCE_BYTES};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a store's salt.
pub const SALT_BYTES: usize = 16;

/// Bytes of an authentication tag.
pub(super) const TAG_BYTES: usize = 16;

/// First bytes of the associated data of each kind of message, so that none can pass for another.
const FRAME_DOMAIN: &[u8] = b"nandarray frame 1\0";
const HEAD_DOMAIN: &[u8] = b"nandarray head 1\0";
const CHECK_DOMAIN: &[u8] = b"nandarray key check 1\0";

/// The frame number of the head's nonce; frames count from zero and never get here.
const HEAD_NUMBER: u32 = u32::MAX;

/// An unusable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is not [`KEY_BYTES`] long.
    #[error("key of {bytes} bytes: expected {KEY_BYTES}")]
    Length {
        /// The length given.
        bytes: usize,
    },
    /// The key is not the one that the store was made with.
    #[error("wrong key for this store")]
    Wrong,
}

/// A secret key and the salt of the store it is used in. The secret is wiped when this is dropped; copies that the
/// caller holds are the caller's.
#[derive(Clone)]
pub struct CipherKey {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    salt: [u8; SALT_BYTES],
}

impl CipherKey {
    /// A key of [`KEY_BYTES`] uniformly random bytes. `salt` is public, kept in the store's metadata, and should differ
    /// between stores that share a key.
    ///
    /// # Errors
    /// [`KeyError::Length`].
    pub fn new(secret: &[u8], salt: [u8; SALT_BYTES]) -> Result<Self, KeyError> {
        if secret.len() != KEY_BYTES {
            return Err(KeyError::Length { bytes: secret.len() });
        }
        let mut own = Zeroizing::new([0; KEY_BYTES]);
        own.copy_from_slice(secret);
        Ok(Self { secret: own, salt })
    }

    /// The store's salt, as given.
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

/// A public value that tells a wrong key at open time: the seal of a constant under the key and the store's salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCheck([u8; KeyCheck::BYTES]);

impl KeyCheck {
    /// Length of the stored value.
    pub const BYTES: usize = 16 + TAG_BYTES;

    const CONSTANT: [u8; 16] = [0; 16];

    /// The value to keep in the metadata of a new store.
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

    /// The value as read from metadata; any bytes are accepted and, unless they are the right ones, verify no key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The value as stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Whether `key`, with the store's salt, is the one this was made with.
    ///
    /// # Errors
    /// [`KeyError::Wrong`].
    pub fn verify(self, key: &CipherKey) -> Result<(), KeyError> {
        // Both sides are public to any reader of the store, so comparing in constant time would protect nothing.
        if Self::new(key) == self { Ok(()) } else { Err(KeyError::Wrong) }
    }
}

/// The building block of a payload. Nothing here is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockContext<'a> {
    /// The space's identifier within its store.
    pub space_id: u64,
    /// The block's key within its space, in any encoding that never changes (its coordinates in blocks, say).
    pub block_key: &'a [u8],
}

/// The cipher of one store.
pub(super) struct FrameCipher {
    aead: Aead,
    salt: [u8; SALT_BYTES],
}

impl FrameCipher {
    pub(super) fn new(key: &CipherKey) -> Self {
        Self { aead: key.aead(), salt: key.salt }
    }

    /// The part of every associated data of one payload that names the payload.
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

    /// Encrypts one frame in place.
    pub(super) fn seal_frame(&self, frame: FrameId<'_>, text: &mut [u8]) -> [u8; TAG_BYTES] {
        self.aead.seal(nonce(frame.sequence, frame.number), &frame.aad(), text)
    }

    /// Decrypts one frame. False, with `text` zeroed, when the frame was not sealed by this key as this frame.
    pub(super) fn open_frame(&self, frame: FrameId<'_>, tag: [u8; TAG_BYTES], sealed: &[u8], text: &mut [u8]) -> bool {
        self.aead.open(nonce(frame.sequence, frame.number), &frame.aad(), sealed, tag, text)
    }

    /// The tag over the whole frame table.
    pub(super) fn seal_head(&self, payload_aad: &[u8], sequence: u64, table: &[u8]) -> [u8; TAG_BYTES] {
        self.aead.seal(nonce(sequence, HEAD_NUMBER), &[HEAD_DOMAIN, payload_aad, table].concat(), &mut [])
    }

    /// Whether `tag` is [`Self::seal_head`]'s.
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

/// One frame of one payload, for its nonce and its associated data.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameId<'a> {
    /// [`FrameCipher::payload_aad`].
    pub(super) payload_aad: &'a [u8],
    /// The payload's sequence number.
    pub(super) sequence: u64,
    /// The frame's number, from zero.
    pub(super) number: u32,
    /// The frame's decoded length in bytes.
    pub(super) raw_bytes: u32,
    /// Whether the frame is kept raw: neither filtered nor compressed.
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
