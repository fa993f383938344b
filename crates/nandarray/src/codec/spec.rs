//! The description of a space's codec, which encodes building blocks as payloads: compression, filter, encryption,
//! sizes.
//!
//! A [`CodecSpec`] determines the payload format of all building blocks of a space and is stored with the space's
//! properties. [`Compression`] is the part that users write, as text: `lz4`, `zstd`, `zstd:7`, each with an optional
//! `+shuffle` or `+bitshuffle`; `bitpack` and `varwidth` for integers. "No compression" is the absence of a
//! [`Compression`] and has no text.
//!
//! It does not choose a codec for the data, and has no key (see [`super::CipherKey`]).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::bitpack;

/// The rule for the size of the frames into which blocks are cut; a store's format version determines it ([design note
/// 6](../../../../docs/design/006-frames-of-compressed-blocks.md) has the reasons).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Format version 1: frames of 32 KiB.
    V1,
    /// Format version 2: frames of 8 KiB with LZ4, of 32 KiB otherwise.
    V2,
    /// Format version 3: sizes as in version 2, but another version number in the heads of payloads.
    V3,
}

impl Framing {
    /// Returns the rule of a store with this format version.
    #[must_use]
    pub fn of_format(version: u32) -> Self {
        match version {
            1 => Self::V1,
            2 => Self::V2,
            _ => Self::V3,
        }
    }

    /// Returns the version number in the heads of payloads.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// Largest size of a building block in bytes: 256 MiB. Ends of frames are 31-bit offsets in a payload that is at most a
/// head longer than the block.
pub const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// Largest size of an element in bytes: 64 KiB, for record types. Frames of larger elements would make partial reads
/// useless.
pub const ELEMENT_BYTES_MAX: u32 = 64 * 1024;

/// Compression levels of zstd that are supported; the negative "fast" levels are left out because LZ4 is a better fast
/// compressor.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=22;

/// Level of `zstd` without a number, which is also the zstd library's default.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;

/// The reason why the description of a codec is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The name before `+` or `:` is not a compression algorithm.
    #[error(
        "unknown compression {text:?}: expected lz4, zstd or zstd:LEVEL, with an optional +shuffle or +bitshuffle; \
             bitpack or varwidth for integers"
    )]
    UnknownCompression {
        /// The whole text of the compression, as given.
        text: String,
    },
    /// The name after `+` is not a filter.
    #[error("unknown compression filter {filter:?} in {text:?}: expected shuffle or bitshuffle")]
    UnknownFilter {
        /// The unknown filter: the part of the text after `+`.
        filter: String,
        /// The whole text of the compression, as given.
        text: String,
    },
    /// Integer packing was combined with a filter: filtered bytes are no integers.
    #[error("{text:?}: bitpack and varwidth take no filter")]
    FilterOfPacked {
        /// The whole text of the compression, as given.
        text: String,
    },
    /// The algorithm packs integers, and the elements have another size than integers.
    #[error("elements that {algorithm} packs must be integers of 1, 2, 4 or 8 bytes, not of {element_bytes}")]
    PackedElement {
        /// Name of the algorithm that packs integers.
        algorithm: &'static str,
        /// Size in bytes of the elements, which are no integers of this algorithm.
        element_bytes: u32,
    },
    /// The part after `:` is not a valid level of the algorithm.
    #[error("bad compression level {level:?} in {text:?}: zstd takes 1 to 22, the others take none")]
    BadLevel {
        /// The level that is not valid: the part of the text after `:`.
        level: String,
        /// The whole text of the compression, as given.
        text: String,
    },
    /// The element size is zero or beyond [`ELEMENT_BYTES_MAX`].
    #[error("element of {element_bytes} bytes: expected 1 to {ELEMENT_BYTES_MAX}")]
    ElementBytes {
        /// The requested element size in bytes.
        element_bytes: u32,
    },
    /// The block size is zero or beyond [`BLOCK_BYTES_MAX`].
    #[error("building block of {block_bytes} bytes: expected 1 to {BLOCK_BYTES_MAX}")]
    BlockBytes {
        /// The requested block size in bytes.
        block_bytes: u64,
    },
    /// The spec demands encryption, but no key was passed.
    #[error("the space is encrypted and no key was given")]
    KeyMissing,
    /// A key was passed for a space that is not encrypted.
    #[error("a key was given and the space is not encrypted")]
    KeyUnexpected,
}

/// A compressor, which is applied to each frame separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// LZ4 block format: fast.
    Lz4,
    /// Zstandard frames (RFC 8878): slower, with a better ratio.
    Zstd {
        /// Level from 1 (fast) to 22 (best ratio), used by the encoder only.
        level: i32,
    },
    /// Integers, all of a frame stored with the number of bits that the frame's range needs.
    BitPack,
    /// Integers, each stored with the number of bits that it needs.
    VarWidth,
}

impl Algorithm {
    /// Returns the algorithm's name if it packs integers, otherwise `None`.
    fn packs_integers(self) -> Option<&'static str> {
        match self {
            Self::Lz4 | Self::Zstd { .. } => None,
            Self::BitPack => Some("bitpack"),
            Self::VarWidth => Some("varwidth"),
        }
    }
}

/// A reordering of a frame's bytes before compression, which puts similar bytes next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// No reordering.
    None,
    /// Groups byte `b` of every element, for each `b`.
    Shuffle,
    /// Groups bit `k` of byte `b` of every element, for each `b` and `k` (Masui et al., "A compression scheme for radio
    /// data in high performance computing", 2015).
    BitShuffle,
}

/// A compressor with an optional filter, as in the texts `lz4` and `zstd:7+shuffle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The compressor.
    pub algorithm: Algorithm,
    /// Filter that is applied before the compressor.
    pub filter: Filter,
}

impl FromStr for Compression {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (packer, filter) = match text.split_once('+') {
            None => (text, Filter::None),
            Some((packer, "shuffle")) => (packer, Filter::Shuffle),
            Some((packer, "bitshuffle")) => (packer, Filter::BitShuffle),
            Some((_, filter)) => {
                return Err(SpecError::UnknownFilter { filter: filter.to_owned(), text: text.to_owned() });
            }
        };
        let (name, level) = match packer.split_once(':') {
            None => (packer, None),
            Some((name, level)) => (name, Some(level)),
        };
        let bad_level = |level: &str| SpecError::BadLevel { level: level.to_owned(), text: text.to_owned() };
        let algorithm = match (name, level) {
            ("lz4", None) => Algorithm::Lz4,
            ("bitpack", None) => Algorithm::BitPack,
            ("varwidth", None) => Algorithm::VarWidth,
            ("lz4" | "bitpack" | "varwidth", Some(level)) => return Err(bad_level(level)),
            ("zstd", None) => Algorithm::Zstd { level: ZSTD_LEVEL_DEFAULT },
            ("zstd", Some(level)) => Algorithm::Zstd { level: parse_level(level).ok_or_else(|| bad_level(level))? },
            _ => return Err(SpecError::UnknownCompression { text: text.to_owned() }),
        };
        if algorithm.packs_integers().is_some() && filter != Filter::None {
            return Err(SpecError::FilterOfPacked { text: text.to_owned() });
        }
        Ok(Self { algorithm, filter })
    }
}

/// Parses a level; `None` unless it consists of digits without a leading zero. Since the text is stored, a level must
/// have one spelling only.
fn parse_level(text: &str) -> Option<i32> {
    let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|level| plain && ZSTD_LEVELS.contains(level))
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::Lz4 => f.write_str("lz4")?,
            Algorithm::Zstd { level } => write!(f, "zstd:{level}")?,
            Algorithm::BitPack => f.write_str("bitpack")?,
            Algorithm::VarWidth => f.write_str("varwidth")?,
        }
        f.write_str(match self.filter {
            Filter::None => "",
            Filter::Shuffle => "+shuffle",
            Filter::BitShuffle => "+bitshuffle",
        })
    }
}

/// Description of the encoding of a space's building blocks: everything that a codec needs except the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodecSpec {
    /// Compressor and filter; `None` leaves blocks uncompressed.
    pub compression: Option<Compression>,
    /// Whether frames are sealed with AES-256-GCM-SIV.
    pub encrypted: bool,
    /// Size of one element in bytes, 1 to `ELEMENT_BYTES_MAX`.
    pub element_bytes: u32,
    /// Size of one building block in bytes, 1 to `BLOCK_BYTES_MAX`; it need not be a multiple of the element size.
    pub block_bytes: u64,
    /// Rule for the size of frames.
    pub framing: Framing,
}

impl CodecSpec {
    /// Whether encoding would only add a head, so that blocks should be stored without coding.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.compression.is_none() && !self.encrypted
    }

    /// Checks the sizes and the compression level against their limits.
    ///
    /// # Errors
    /// `SpecError` with the value that is not allowed.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !(1..=ELEMENT_BYTES_MAX).contains(&self.element_bytes) {
            return Err(SpecError::ElementBytes { element_bytes: self.element_bytes });
        }
        if !(1..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return Err(SpecError::BlockBytes { block_bytes: self.block_bytes });
        }
        if let Some(Compression { algorithm: Algorithm::Zstd { level }, .. }) = self.compression
            && !ZSTD_LEVELS.contains(&level)
        {
            return Err(SpecError::BadLevel { level: level.to_string(), text: format!("zstd:{level}") });
        }
        if let Some(Compression { algorithm, filter }) = self.compression
            && let Some(name) = algorithm.packs_integers()
        {
            assert_eq!(filter, Filter::None, "{name} takes no filter");
            if !bitpack::can_pack(self.element_bytes) {
                return Err(SpecError::PackedElement { algorithm: name, element_bytes: self.element_bytes });
            }
        }
        Ok(())
    }

    /// Returns the decoded size of a frame in bytes before it is rounded to whole elements.
    fn frame_bytes_target(&self) -> usize {
        match (self.framing, self.compression) {
            (Framing::V2 | Framing::V3, Some(Compression { algorithm: Algorithm::Lz4, .. })) => 8 << 10,
            (_, Some(Compression { algorithm: Algorithm::BitPack | Algorithm::VarWidth, .. })) => 8 << 10,
            _ => 32 << 10,
        }
    }

    /// Returns the decoded size in bytes of every frame but the last: the target size, rounded down to groups of eight
    /// elements, so that bit shuffle leaves no element unshuffled. If a group exceeds the target, it is rounded down to
    /// whole elements; a frame has at least one.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        let (element, target) = (self.element_bytes as usize, self.frame_bytes_target());
        let unit = if 8 * element <= target { 8 * element } else { element };
        (target / unit * unit).max(unit)
    }

    /// Returns the approximate ratio of the time to decode bytes to the time to copy them, for distributing work.
    #[must_use]
    pub fn weight(&self) -> u64 {
        let compression = match self.compression.map(|c| c.algorithm) {
            None | Some(Algorithm::BitPack) => 1,
            Some(Algorithm::Lz4 | Algorithm::VarWidth) => 2,
            Some(Algorithm::Zstd { .. }) => 5,
        };
        compression + if self.encrypted { 3 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "lz4",
            "lz4+shuffle",
            "lz4+bitshuffle",
            "zstd:1",
            "zstd:22+shuffle",
            "zstd:3+bitshuffle",
            "bitpack",
            "varwidth",
        ] {
            assert_eq!(text.parse::<Compression>().expect(text).to_string(), text);
        }
        let plain = Compression { algorithm: Algorithm::Zstd { level: 3 }, filter: Filter::None };
        assert_eq!("zstd".parse(), Ok(plain));
    }

    #[test]
    fn errors_carry_the_offending_text() {
        let error = |text: &str| text.parse::<Compression>().expect_err(text).to_string();
        for text in ["", "gzip", "none", "LZ4", " lz4", "lz4 ", "lz", "zstd7"] {
            assert!(error(text).contains(&format!("unknown compression {text:?}")), "{text}");
        }
        for (text, level) in [
            ("lz4:1", "1"),
            ("zstd:", ""),
            ("zstd:0", "0"),
            ("zstd:23+shuffle", "23"),
            ("zstd:-1", "-1"),
            ("bitpack:4", "4"),
        ] {
            assert!(error(text).contains(&format!("{level:?} in {text:?}")), "{text}");
        }
        assert_eq!(error("bitpack+shuffle"), "\"bitpack+shuffle\": bitpack and varwidth take no filter");
        for text in ["zstd:+3", "zstd:03", "zstd:3 "] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        for (text, filter) in [("lz4+", ""), ("zstd+shufle", "shufle"), ("lz4+shuffle+shuffle", "shuffle+shuffle")] {
            assert!(error(text).contains(&format!("filter {filter:?} in {text:?}")), "{text}");
        }
    }

    #[test]
    fn frames_are_whole_elements_and_near_the_target() {
        let spec = |element_bytes| CodecSpec {
            compression: None,
            encrypted: false,
            element_bytes,
            block_bytes: 1,
            framing: Framing::V1,
        };
        for (element, frame) in
            [(1, 32768), (2, 32768), (3, 32760), (4, 32768), (8, 32768), (12, 32736), (5000, 30000), (65536, 65536)]
        {
            assert_eq!(spec(element).frame_bytes(), frame, "element of {element}");
        }
        for element in 1..=ELEMENT_BYTES_MAX {
            let frame = spec(element).frame_bytes();
            assert_eq!(frame % element as usize, 0);
            assert!(frame > 16_384 && frame <= 32_768.max(element as usize));
        }
        let lz4 = "lz4+shuffle".parse().ok();
        let zstd = "zstd".parse().ok();
        for (compression, framing, element, frame) in [
            (lz4, Framing::V1, 4, 32_768),
            (lz4, Framing::V2, 4, 8_192),
            (lz4, Framing::V3, 4, 8_192),
            (lz4, Framing::V2, 3, 8_184),
            (lz4, Framing::V2, 5_000, 5_000),
            (lz4, Framing::V2, 65_536, 65_536),
            (zstd, Framing::V2, 4, 32_768),
            (zstd, Framing::V3, 4, 32_768),
            (None, Framing::V2, 4, 32_768),
        ] {
            assert_eq!(
                CodecSpec { compression, framing, ..spec(element) }.frame_bytes(),
                frame,
                "{framing:?} {element}"
            );
        }
    }

    #[test]
    fn limits_are_checked() {
        let good = CodecSpec {
            compression: None,
            encrypted: false,
            element_bytes: 4,
            block_bytes: 4096,
            framing: Framing::V2,
        };
        assert_eq!(good.validate(), Ok(()));
        for element_bytes in [0, ELEMENT_BYTES_MAX + 1] {
            assert_eq!(CodecSpec { element_bytes, ..good }.validate(), Err(SpecError::ElementBytes { element_bytes }));
        }
        for block_bytes in [0, BLOCK_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(CodecSpec { block_bytes, ..good }.validate(), Err(SpecError::BlockBytes { block_bytes }));
        }
        let level = |level| Some(Compression { algorithm: Algorithm::Zstd { level }, filter: Filter::None });
        assert!(CodecSpec { compression: level(23), ..good }.validate().is_err());
        assert!(CodecSpec { compression: level(22), ..good }.validate().is_ok());
        for (text, element_bytes, good_size) in
            [("bitpack", 8, true), ("varwidth", 1, true), ("bitpack", 3, false), ("varwidth", 16, false)]
        {
            let spec = CodecSpec { compression: text.parse().ok(), element_bytes, ..good };
            assert_eq!(spec.validate().is_ok(), good_size, "{text} {element_bytes}");
        }
    }
}
