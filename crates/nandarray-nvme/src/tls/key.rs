//! A configured key: its text form `NVMeTLSkey-1:hh:base64(key, CRC-32):`, and the derivation of pre-shared keys.
//!
//! libnvme before 1.16, and later ones when asked to, derive other keys than the specification: their labels and
//! contexts have no lengths in front of them, and the length of the result is the other way round. Hosts with these are
//! many; a text with ` compat` behind it is derived as they do.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hkdf::Hkdf;
use sha2::{Sha256, Sha384};

use crate::auth::DhchapHash;

const CRC_BYTES: usize = 4;
/// Text at the end of what the digest of an identity is made of.
const DIGESTED: &[u8] = b"NVMe-over-Fabrics";
/// The end of the text of a key that is derived as earlier versions of libnvme do.
const COMPAT: &str = " compat";
/// Maximum length of the context of a derivation, whose length is one byte.
const CONTEXT_BYTES_MAX: usize = 255;

/// The hash function of a key, which is that of its cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsHash {
    /// SHA-256, identifier 1: `TLS_AES_128_GCM_SHA256`, keys of 32 bytes.
    Sha256,
    /// SHA-384, identifier 2: `TLS_AES_256_GCM_SHA384`, keys of 48 bytes.
    Sha384,
}

impl TlsHash {
    /// Returns the identifier in the text form of keys and in identities.
    pub fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
        }
    }

    /// Returns the length of a digest and of a key in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    /// Returns the hash function of keys of this length; `None` if no key has it.
    pub fn of_length(bytes: usize) -> Option<Self> {
        [Self::Sha256, Self::Sha384].into_iter().find(|hash| hash.bytes() == bytes)
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => DhchapHash::Sha256.hmac(key, parts),
            Self::Sha384 => DhchapHash::Sha384.hmac(key, parts),
        }
    }

    /// Returns HKDF-Expand-Label(HKDF-Extract(0, `key`), `label`, `context`) of RFC 8446, as long as a digest, or what
    /// earlier versions of libnvme take for it; `None` if the context is too long.
    fn expand(self, form: LabelForm, key: &[u8], label: &str, context: &[u8]) -> Option<Vec<u8>> {
        let context_bytes = u8::try_from(context.len()).ok()?;
        let label = [b"tls13 ", label.as_bytes()].concat();
        let bytes = self.bytes() as u16;
        let info = match form {
            LabelForm::Standard => {
                [&bytes.to_be_bytes()[..], &[label.len() as u8], &label, &[context_bytes], context].concat()
            }
            LabelForm::Compat => [&bytes.to_le_bytes()[..], &label, context].concat(),
        };
        let mut made = vec![0; self.bytes()];
        let done = match self {
            Self::Sha256 => Hkdf::<Sha256>::new(None, key).expand(&info, &mut made),
            Self::Sha384 => Hkdf::<Sha384>::new(None, key).expand(&info, &mut made),
        };
        done.expect("a digest is not too long for HKDF");
        Some(made)
    }
}

/// The form of labels in a derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelForm {
    /// That of RFC 8446.
    Standard,
    /// That of libnvme before 1.16.
    Compat,
}

/// The version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityVersion {
    /// `NVMe0R`: the names of host and subsystem.
    Zero,
    /// `NVMe1R`: the names, and a digest of the key.
    One,
}

/// The reason why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsKeyError {
    /// The text has another form, or its middle is no base64.
    #[error("a key of TLS must have the form NVMeTLSkey-1:hh:BASE64: with hh from 00 to 02, perhaps compat behind it")]
    Form,
    /// The key has a length that is not allowed.
    #[error("a key of TLS must have 32 bytes (hh 00 or 01) or 48 (hh 00 or 02), not {0}")]
    Length(usize),
    /// The checksum does not match the key: the text is damaged. The error shows neither of them, since errors go into
    /// logs.
    #[error("the CRC-32 of the key of TLS is not its key's: the text is damaged")]
    Checksum,
}

/// A pre-shared key of TLS, with the identity by which a host names it.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPsk {
    /// The identity, which is no secret.
    pub identity: String,
    /// Hash function of the cipher suite.
    pub hash: TlsHash,
    /// The key.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPsk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A configured key, which a host and a controller have.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    /// Whether the key is transformed for its host; otherwise it is used as it is.
    is_transformed: bool,
    form: LabelForm,
    hash: TlsHash,
    key: Vec<u8>,
}

impl std::fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsKey").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl TlsKey {
    /// Makes a key of 32 or 48 bytes. `is_transformed`: another one is derived of it for each host.
    ///
    /// # Errors
    /// Another length.
    pub fn new(is_transformed: bool, key: &[u8]) -> Result<Self, TlsKeyError> {
        let hash = TlsHash::of_length(key.len()).ok_or(TlsKeyError::Length(key.len()))?;
        Ok(Self { is_transformed, form: LabelForm::Standard, hash, key: key.to_vec() })
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The text has another form, the length does not fit the hash function, or the checksum does not match.
    pub fn parse(text: &str) -> Result<Self, TlsKeyError> {
        if let Some(text) = text.strip_suffix(COMPAT).filter(|text| !text.ends_with(COMPAT)) {
            return Ok(Self { form: LabelForm::Compat, ..Self::parse(text)? });
        }
        let rest = text.strip_prefix("NVMeTLSkey-1:").ok_or(TlsKeyError::Form)?;
        let rest = rest.strip_suffix(':').ok_or(TlsKeyError::Form)?;
        let (id, body) = rest.split_once(':').ok_or(TlsKeyError::Form)?;
        let bytes = BASE64.decode(body).map_err(|_| TlsKeyError::Form)?;
        let (key, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(TlsKeyError::Length(0))?;
        let is_transformed = match id {
            "00" => false,
            "01" | "02" => true,
            _ => return Err(TlsKeyError::Form),
        };
        let made = Self::new(is_transformed, key)?;
        if is_transformed && id != format!("{:02}", made.hash.id()) {
            return Err(TlsKeyError::Length(key.len()));
        }
        let found = u32::from_le_bytes(*crc);
        if found == crc_fast::crc32_iso_hdlc(key) { Ok(made) } else { Err(TlsKeyError::Checksum) }
    }

    /// Returns the text form, which is as secret as the key.
    pub fn reveal(&self) -> String {
        let bytes = [self.key.as_slice(), &crc_fast::crc32_iso_hdlc(&self.key).to_le_bytes()].concat();
        let id = if self.is_transformed { self.hash.id() } else { 0 };
        let end = if self.form == LabelForm::Compat { COMPAT } else { "" };
        format!("NVMeTLSkey-1:{id:02}:{}:{end}", BASE64.encode(bytes))
    }

    /// Returns the pre-shared key between a host and a subsystem; `None` if the names are too long for it.
    pub fn derive(&self, hostnqn: &str, subnqn: &str, version: IdentityVersion) -> Option<TlsPsk> {
        let hash = self.hash;
        let retained = if self.is_transformed {
            hash.expand(self.form, &self.key, "HostNQN", hostnqn.as_bytes())?
        } else {
            self.key.clone()
        };
        Self::derive_of(&retained, hash, self.form, (hostnqn, subnqn), version)
    }

    /// Returns the pre-shared key of a retained one, between a host and a subsystem.
    pub(super) fn derive_of(
        retained: &[u8],
        hash: TlsHash,
        form: LabelForm,
        (hostnqn, subnqn): (&str, &str),
        version: IdentityVersion,
    ) -> Option<TlsPsk> {
        let id = hash.id();
        let (identity, context) = match version {
            IdentityVersion::Zero => {
                let identity = format!("NVMe0R{id:02} {hostnqn} {subnqn}");
                (identity.clone(), identity)
            }
            IdentityVersion::One => {
                let parts: [&[u8]; 5] = [hostnqn.as_bytes(), b" ", subnqn.as_bytes(), b" ", DIGESTED];
                let digest = BASE64.encode(hash.hmac(retained, &parts));
                (format!("NVMe1R{id:02} {hostnqn} {subnqn} {digest}"), format!("{id:02} {digest}"))
            }
        };
        if context.len() > CONTEXT_BYTES_MAX {
            return None;
        }
        let secret = hash.expand(form, retained, "nvme-tls-psk", context.as_bytes())?;
        Some(TlsPsk { identity, hash, secret })
    }

    /// Returns the keys that a host offers to a subsystem, the latest version first.
    pub fn offers(&self, hostnqn: &str, subnqn: &str) -> Vec<TlsPsk> {
        let versions = [IdentityVersion::One, IdentityVersion::Zero];
        versions.into_iter().filter_map(|version| self.derive(hostnqn, subnqn, version)).collect()
    }
}
