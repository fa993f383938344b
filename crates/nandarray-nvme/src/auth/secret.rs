//! Secrets of hosts and controllers: the text form `DHHC-1:hh:base64(key, CRC-32):`, and the key that it stands for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384, Sha512};

/// Lengths that a key may have, in bytes.
const KEY_BYTES: [usize; 3] = [32, 48, 64];
const CRC_BYTES: usize = 4;
/// Text that is hashed after a qualified name to transform a key.
const TRANSFORM: &[u8] = b"NVMe-over-Fabrics";

/// A hash function of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhchapHash {
    /// SHA-256, identifier 01h.
    Sha256,
    /// SHA-384, identifier 02h.
    Sha384,
    /// SHA-512, identifier 03h.
    Sha512,
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

impl DhchapHash {
    /// All hash functions, in the order in which our initiator offers them.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// Returns the hash function with an identifier; `None` if there is none.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Returns the hash function's identifier in messages and in the text form of secrets.
    pub fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// Returns the length in bytes of a digest, a challenge and a response.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the HMAC of the concatenation of `parts`.
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha384 => keyed::<Hmac<Sha384>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, parts).finalize().into_bytes().to_vec(),
        }
    }

    /// Compares an HMAC with the expected one, in time that does not depend on where they differ.
    pub fn verify(self, key: &[u8], parts: &[&[u8]], found: &[u8]) -> bool {
        match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, parts).verify_slice(found).is_ok(),
            Self::Sha384 => keyed::<Hmac<Sha384>>(key, parts).verify_slice(found).is_ok(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, parts).verify_slice(found).is_ok(),
        }
    }
}

/// The reason why a text is no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text has another form, or its middle is no base64.
    #[error("a secret has the form DHHC-1:hh:BASE64: with hh from 00 to 03")]
    Form,
    /// The key has a length that is not allowed.
    #[error("a key must have 32, 48 or 64 bytes, not {0}")]
    Length(usize),
    /// The checksum does not match the key: the text is damaged. The error shows neither of them, since errors go into
    /// logs.
    #[error("the secret's CRC-32 is not its key's: the text is damaged")]
    Checksum,
}

/// A secret: a key, and how it is transformed before use.
#[derive(Clone, PartialEq, Eq)]
pub struct DhchapSecret {
    /// Hash function of the transformation; `None` if the key is used as it is.
    transform: Option<DhchapHash>,
    key: Vec<u8>,
}

impl std::fmt::Debug for DhchapSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DhchapSecret").field("transform", &self.transform).finish_non_exhaustive()
    }
}

impl DhchapSecret {
    /// Makes a secret of a key.
    ///
    /// # Errors
    /// The key has a length that is not allowed.
    pub fn new(transform: Option<DhchapHash>, key: &[u8]) -> Result<Self, SecretError> {
        if KEY_BYTES.contains(&key.len()) {
            Ok(Self { transform, key: key.to_vec() })
        } else {
            Err(SecretError::Length(key.len()))
        }
    }

    /// Reads the text form. As in the Linux kernel, a key may have any of the three lengths with any transformation.
    ///
    /// # Errors
    /// The text has another form, or its checksum does not match.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let rest = text.strip_prefix("DHHC-1:").ok_or(SecretError::Form)?;
        let rest = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let (id, body) = rest.split_once(':').ok_or(SecretError::Form)?;
        let transform = match id {
            "00" => None,
            "01" => Some(DhchapHash::Sha256),
            "02" => Some(DhchapHash::Sha384),
            "03" => Some(DhchapHash::Sha512),
            _ => return Err(SecretError::Form),
        };
        let bytes = BASE64.decode(body).map_err(|_| SecretError::Form)?;
        let (key, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(SecretError::Length(0))?;
        let made = Self::new(transform, key)?;
        let found = u32::from_le_bytes(*crc);
        if found == crc_fast::crc32_iso_hdlc(key) { Ok(made) } else { Err(SecretError::Checksum) }
    }

    /// Returns the text form, which is as secret as the key.
    pub fn reveal(&self) -> String {
        let bytes = [self.key.as_slice(), &crc_fast::crc32_iso_hdlc(&self.key).to_le_bytes()].concat();
        let id = self.transform.map_or(0, DhchapHash::id);
        format!("DHHC-1:{id:02x}:{}:", BASE64.encode(bytes))
    }

    /// Returns the key of an exchange: transformed by the qualified name of the host (for the host's secret) or of the
    /// subsystem (for the controller's), or as it is.
    pub fn key(&self, nqn: &str) -> Vec<u8> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), TRANSFORM]),
        }
    }
}

/// The secrets between one host and a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCredentials {
    /// Secret by which the host proves its identity.
    pub host: DhchapSecret,
    /// Secret by which the controller proves its identity to the host; `None` if it cannot.
    pub controller: Option<DhchapSecret>,
}
