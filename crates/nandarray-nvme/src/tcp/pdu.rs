//! The bytes of PDUs (protocol data units), and the checks that a header must pass before anything is read or
//! allocated for its PDU.
//!
//! The formats are those of the TCP transport specification 1.0, section 3.6. All numbers are little endian.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::IN_CAPSULE_BYTES;
use nandarray_nvme_spec::ADMIN_IN_CAPSULE_BYTES;

/// Bytes of the header that all PDUs have in common.
pub(crate) const HEADER_BYTES: usize = 8;
/// Bytes of a header digest or data digest.
pub(crate) const DIGEST_BYTES: usize = 4;
/// Maximum bytes of data that a host may send in one H2CData PDU.
pub(crate) const H2C_BYTES_MAX: u32 = 256 << 10;
/// Flag: a header digest follows the header.
pub(crate) const FLAG_HEADER_DIGEST: u8 = 1;
/// Flag: a data digest follows the data.
pub(crate) const FLAG_DATA_DIGEST: u8 = 1 << 1;
/// Flag: this is the last data of the transfer.
pub(crate) const FLAG_LAST: u8 = 1 << 2;
/// Flag: the command succeeded, and no response capsule follows.
pub(crate) const FLAG_SUCCESS: u8 = 1 << 3;

/// Kinds of PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduKind {
    /// The host opens the connection.
    ICReq = 0,
    /// The controller accepts the connection.
    ICResp = 1,
    /// The host ends the connection and states the reason.
    H2CTermReq = 2,
    /// The controller ends the connection and states the reason.
    C2HTermReq = 3,
    /// A capsule with a command.
    CapsuleCmd = 4,
    /// A capsule with a completion.
    CapsuleResp = 5,
    /// Data from the host to the controller.
    H2CData = 6,
    /// Data from the controller to the host.
    C2HData = 7,
    /// Ready to transfer: the controller requests data from the host.
    R2T = 9,
}

impl PduKind {
    fn of(code: u8) -> Option<Self> {
        let all = [
            Self::ICReq,
            Self::ICResp,
            Self::H2CTermReq,
            Self::C2HTermReq,
            Self::CapsuleCmd,
            Self::CapsuleResp,
            Self::H2CData,
            Self::C2HData,
            Self::R2T,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Returns the bytes of the PDU's header (HLEN), without its digest.
    pub fn header_bytes(self) -> usize {
        match self {
            Self::ICReq | Self::ICResp => 128,
            Self::CapsuleCmd => 72,
            _ => 24,
        }
    }
}

/// Reason for the end of a connection (FES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalStatus {
    /// A header field is wrong; the detail is its offset.
    Header = 1,
    /// A PDU was not expected at this time.
    Sequence = 2,
    /// The header digest is wrong; the detail is the digest received.
    HeaderDigest = 3,
    /// Data lies outside its transfer.
    DataRange = 4,
    /// The data exceeds the limit.
    DataLimit = 5,
    /// A parameter is not supported; the detail is its offset.
    Unsupported = 6,
}

/// An error of the other side that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PDU refused: {status:?}, detail {detail}")]
pub struct FatalError {
    /// Reason (FES).
    pub status: FatalStatus,
    /// Detail of the reason (FEI).
    pub detail: u32,
}

impl FatalError {
    pub(crate) fn new(status: FatalStatus, detail: u32) -> Self {
        Self { status, detail }
    }
}

/// The digests that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Whether headers have digests.
    pub header: bool,
    /// Whether data has digests.
    pub data: bool,
}

impl Digests {
    pub(crate) fn of(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    pub(crate) fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }
}

/// A checked common header, with the lengths of the parts that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduHeader {
    /// Kind of the PDU.
    pub kind: PduKind,
    /// Flags of the PDU.
    pub flags: u8,
    /// Bytes of the header and its digest, with the 8 common bytes.
    pub header_bytes: usize,
    /// Whether a header digest follows the header.
    pub has_header_digest: bool,
    /// Bytes of data, without their digest.
    pub data_bytes: usize,
    /// Whether a data digest follows the data.
    pub has_data_digest: bool,
}

impl PduHeader {
    /// Checks the 8 bytes of a common header. `from_host` is the direction of the PDU; on an admin queue (`is_admin`)
    /// less data is allowed within a capsule.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub fn decode(bytes: &[u8; 8], digests: Digests, from_host: bool, is_admin: bool) -> Result<Self, FatalError> {
        let header = |at: u32| FatalError::new(FatalStatus::Header, at);
        let kind = PduKind::of(bytes[0]).ok_or(header(0))?;
        let hosts = matches!(kind, PduKind::ICReq | PduKind::H2CTermReq | PduKind::CapsuleCmd | PduKind::H2CData);
        if hosts != from_host {
            return Err(header(0));
        }
        let (flags, hlen, pdo) = (bytes[1], usize::from(bytes[2]), usize::from(bytes[3]));
        let plen = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        if hlen != kind.header_bytes() {
            return Err(header(2));
        }
        let handshake = matches!(kind, PduKind::ICReq | PduKind::ICResp);
        let ending = matches!(kind, PduKind::H2CTermReq | PduKind::C2HTermReq);
        let digests = if handshake || ending { Digests::default() } else { digests };
        if digests.header != (flags & FLAG_HEADER_DIGEST != 0) {
            return Err(header(1));
        }
        let header_bytes = hlen + digests.header_bytes();
        let trailing = if digests.data { DIGEST_BYTES } else { 0 };
        if plen < header_bytes {
            return Err(header(4));
        }
        let (data_bytes, has_data_digest) = match plen - header_bytes {
            0 => (0, false),
            rest if ending => (rest, false),
            rest if rest > trailing => (rest - trailing, digests.data),
            _ => return Err(header(4)),
        };
        if has_data_digest != (flags & FLAG_DATA_DIGEST != 0) && !ending && data_bytes > 0 {
            return Err(header(1));
        }
        let limit = match kind {
            PduKind::CapsuleCmd if is_admin => ADMIN_IN_CAPSULE_BYTES,
            PduKind::CapsuleCmd => IN_CAPSULE_BYTES,
            PduKind::H2CData => H2C_BYTES_MAX as usize,
            PduKind::C2HData => crate::limits::TRANSFER_BYTES_MAX,
            PduKind::H2CTermReq | PduKind::C2HTermReq => 128,
            _ => 0,
        };
        if data_bytes > limit {
            let limits = matches!(kind, PduKind::CapsuleCmd | PduKind::H2CData | PduKind::C2HData);
            return Err(if limits { FatalError::new(FatalStatus::DataLimit, 0) } else { header(4) });
        }
        let moves = matches!(kind, PduKind::CapsuleCmd | PduKind::H2CData | PduKind::C2HData) && data_bytes > 0;
        if moves && pdo != header_bytes {
            return Err(header(3));
        }
        let has_header_digest = digests.header;
        Ok(Self { kind, flags, header_bytes, has_header_digest, data_bytes, has_data_digest })
    }

    /// Returns the bytes of the whole PDU.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.data_bytes + if self.has_data_digest { DIGEST_BYTES } else { 0 }
    }
}

/// Checks the header digest, if there is one. `pdu` begins with the header.
///
/// # Errors
/// If the digest is wrong.
pub(crate) fn check_header(header: &PduHeader, pdu: &[u8]) -> Result<(), FatalError> {
    if !header.has_header_digest {
        return Ok(());
    }
    let (bytes, digest) = pdu[..header.header_bytes].split_at(header.header_bytes - DIGEST_BYTES);
    let found = u32::from_le_bytes(digest.try_into().expect("four bytes"));
    if crc_fast::crc32_iscsi(bytes) == found { Ok(()) } else { Err(FatalError::new(FatalStatus::HeaderDigest, found)) }
}

/// The PDU-specific header of data and R2T PDUs: 16 bytes after the common header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct TransferFields {
    /// Identifier of the command (CCCID).
    pub(crate) cccid: U16,
    /// Tag of the transfer (TTAG).
    pub(crate) ttag: U16,
    /// Offset of the first byte within the command's data.
    pub(crate) offset: U32,
    /// Number of bytes.
    pub(crate) bytes: U32,
    reserved: U32,
}

impl TransferFields {
    pub(crate) fn new(cccid: u16, ttag: u16, offset: u32, bytes: u32) -> Self {
        Self { cccid: cccid.into(), ttag: ttag.into(), offset: offset.into(), bytes: bytes.into(), reserved: 0.into() }
    }
}

/// Appends the header of a PDU and its digest to a buffer; the caller appends the `data_bytes` bytes of data. `rest`
/// is the header after the 8 common bytes.
pub(crate) fn begin(to: &mut Vec<u8>, kind: PduKind, flags: u8, rest: &[u8], data_bytes: usize, digests: Digests) {
    assert_eq!(HEADER_BYTES + rest.len(), kind.header_bytes(), "header of {kind:?}");
    let handshake = matches!(kind, PduKind::ICReq | PduKind::ICResp | PduKind::H2CTermReq | PduKind::C2HTermReq);
    let digests = if handshake { Digests::default() } else { digests };
    let header = kind.header_bytes() + digests.header_bytes();
    let mut flags = flags | if digests.header { FLAG_HEADER_DIGEST } else { 0 };
    let mut plen = header + data_bytes;
    if digests.data && data_bytes > 0 {
        flags |= FLAG_DATA_DIGEST;
        plen += DIGEST_BYTES;
    }
    let moves = matches!(kind, PduKind::CapsuleCmd | PduKind::H2CData | PduKind::C2HData) && data_bytes > 0;
    let pdo = if moves { header as u8 } else { 0 };
    let first = to.len();
    to.extend_from_slice(&[kind as u8, flags, kind.header_bytes() as u8, pdo]);
    to.extend_from_slice(&(plen as u32).to_le_bytes());
    to.extend_from_slice(rest);
    if digests.header {
        let digest = crc_fast::crc32_iscsi(&to[first..]);
        to.extend_from_slice(&digest.to_le_bytes());
    }
}

/// Appends data and, if the connection uses them, its digest.
pub(crate) fn data(to: &mut Vec<u8>, data: &[u8], digests: Digests) {
    to.extend_from_slice(data);
    if digests.data && !data.is_empty() {
        to.extend_from_slice(&crc_fast::crc32_iscsi(data).to_le_bytes());
    }
}

/// Returns the 120 bytes of a handshake after the common header: version 0, alignment 0, digests, and a limit on data.
pub(crate) fn handshake(digests: Digests, limit: u32) -> [u8; 120] {
    let mut rest = [0u8; 120];
    rest[3] = digests.bits();
    rest[4..8].copy_from_slice(&limit.to_le_bytes());
    rest
}

/// Reads the digests and the limit on data from a handshake's header.
///
/// # Errors
/// If the handshake demands another version, or an alignment.
pub(crate) fn read_handshake(pdu: &[u8]) -> Result<(Digests, u32), FatalError> {
    if pdu[8] != 0 || pdu[9] != 0 {
        return Err(FatalError::new(FatalStatus::Unsupported, 8));
    }
    if pdu[10] != 0 {
        return Err(FatalError::new(FatalStatus::Unsupported, 10));
    }
    let limit = u32::from_le_bytes(pdu[12..16].try_into().expect("four bytes"));
    Ok((Digests::of(pdu[11]), limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Digests = Digests { header: false, data: false };
    const BOTH: Digests = Digests { header: true, data: true };

    fn common(kind: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> [u8; 8] {
        let mut bytes = [kind, flags, hlen, pdo, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&plen.to_le_bytes());
        bytes
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        let refused = |bytes: [u8; 8]| PduHeader::decode(&bytes, NONE, true, false).unwrap_err();
        let header = |detail| FatalError::new(FatalStatus::Header, detail);
        assert_eq!(refused(common(8, 0, 24, 0, 24)), header(0), "a reserved kind");
        assert_eq!(refused(common(5, 0, 24, 0, 24)), header(0), "the controller's kind");
        assert_eq!(refused(common(4, 0, 24, 0, 72)), header(2), "the length of another kind's header");
        assert_eq!(refused(common(4, 0, 72, 0, 0)), header(4));
        assert_eq!(refused(common(4, 0, 72, 0, 71)), header(4));
        assert_eq!(refused(common(4, 1, 72, 0, 72)), header(1), "a digest that was not negotiated");
        assert_eq!(refused(common(4, 0, 72, 72, u32::MAX)), FatalError::new(FatalStatus::DataLimit, 0));
        assert_eq!(refused(common(4, 0, 72, 72, 72 + 16385)), FatalError::new(FatalStatus::DataLimit, 0));
        assert_eq!(refused(common(4, 0, 72, 70, 72 + 512)), header(3));
        assert_eq!(refused(common(0, 0, 128, 0, 129)), header(4));
        let most = PduHeader::decode(&common(4, 0, 72, 72, 72 + 16384), NONE, true, false).unwrap();
        assert_eq!((most.data_bytes, most.bytes()), (16384, 72 + 16384));
        assert!(PduHeader::decode(&common(4, 0, 72, 72, 72 + 8193), NONE, true, true).is_err(), "an admin queue");
    }

    /// The rules of a common header, one after the other as the specification lists the fields: the bytes of data, or
    /// reason and detail of the end.
    fn judged(bytes: &[u8; 8], digests: Digests, from_host: bool, is_admin: bool) -> Result<u64, (u16, u32)> {
        let [kind, flags, hlen, pdo, ..] = *bytes;
        let plen = u64::from(u32::from_le_bytes(bytes[4..].try_into().unwrap()));
        let (hosts, controllers) = ([0u8, 2, 4, 6], [1u8, 3, 5, 7, 9]);
        if !(if from_host { &hosts[..] } else { &controllers[..] }).contains(&kind) {
            return Err((1, 0));
        }
        let own: u64 = [128, 128, 24, 24, 72, 24, 24, 24, 0, 24][usize::from(kind)];
        if u64::from(hlen) != own {
            return Err((1, 2));
        }
        // Handshakes and ends of connections have no digests.
        let (header, data) = (kind > 3 && digests.header, kind > 3 && digests.data);
        if header != (flags & 1 == 1) {
            return Err((1, 1));
        }
        let begins = own + if header { 4 } else { 0 };
        let carries = match kind {
            2 | 3 => 128,
            4 => {
                if is_admin {
                    8192
                } else {
                    16384
                }
            }
            6 => 256 << 10,
            7 => 2 << 20,
            _ => 0,
        };
        let digest = if data && plen > begins { 4 } else { 0 };
        if plen < begins || (digest > 0 && plen <= begins + digest) {
            return Err((1, 4));
        }
        let carried = plen - begins - digest;
        let has_flag = flags & 2 == 2;
        if carried > 0 && kind != 2 && kind != 3 && has_flag != (digest > 0) {
            return Err((1, 1));
        }
        if carried > carries {
            return Err(if matches!(kind, 4 | 6 | 7) { (5, 0) } else { (1, 4) });
        }
        if carried > 0 && matches!(kind, 4 | 6 | 7) && u64::from(pdo) != begins {
            return Err((1, 3));
        }
        Ok(carried)
    }

    #[test]
    fn headers_are_judged_as_the_rules_say_one_after_the_other() {
        let lengths =
            [0, 7, 8, 23, 24, 27, 28, 29, 71, 72, 73, 76, 80, 81, 127, 128, 129, 132, 152, 153, 156, 512, 4096];
        let limits =
            [8264, 8265, 8268, 16456, 16457, 16460, (256 << 10) + 24, (256 << 10) + 25, (2 << 20) + 25, u32::MAX];
        let lengths = [&lengths[..], &limits].concat();
        let mut rng = fastrand::Rng::with_seed(9);
        let (mut right, mut reasons) = (0, std::collections::BTreeSet::new());
        for number in 0..60_000 {
            let digests = Digests { header: rng.bool(), data: rng.bool() };
            let (from_host, is_admin, kind) = (rng.bool(), rng.bool(), rng.u8(..11));
            let own = PduKind::of(kind).map_or(24, PduKind::header_bytes) as u8;
            let hlen = if rng.u8(..12) == 0 { rng.u8(..) } else { own };
            let flags = if rng.u8(..4) == 0 { rng.u8(..) } else { digests.bits() & if kind > 3 { 3 } else { 0 } };
            let pdo = if rng.u8(..6) == 0 { rng.u8(..) } else { own + if digests.header && kind > 3 { 4 } else { 0 } };
            let bytes = common(kind, flags, hlen, pdo, lengths[rng.usize(..lengths.len())]);
            let found = PduHeader::decode(&bytes, digests, from_host, is_admin);
            let wanted = judged(&bytes, digests, from_host, is_admin);
            let told = found.map(|header| header.data_bytes as u64).map_err(|e| (e.status as u16, e.detail));
            assert_eq!(told, wanted, "number {number}: {bytes:?} with {digests:?}, {from_host}, {is_admin}");
            if let Ok(header) = found {
                let plen = u32::from_le_bytes(bytes[4..].try_into().unwrap()) as usize;
                assert_eq!((header.kind as u8, header.bytes()), (kind, plen), "number {number}: {bytes:?}");
            }
            right += u32::from(wanted.is_ok());
            reasons.extend(wanted.err());
        }
        assert!(right > 3000 && reasons.len() == 6, "{right} right ones, {reasons:?}");
    }

    #[test]
    fn digests_cover_header_and_data() {
        let mut pdu = Vec::new();
        begin(&mut pdu, PduKind::H2CData, FLAG_LAST, TransferFields::new(1, 2, 0, 5).as_bytes(), 5, BOTH);
        data(&mut pdu, b"hello", BOTH);
        let header = PduHeader::decode(pdu[..8].try_into().unwrap(), BOTH, true, false).unwrap();
        assert_eq!((header.data_bytes, header.header_bytes, header.bytes()), (5, 28, pdu.len()));
        check_header(&header, &pdu).unwrap();
        pdu[9] ^= 1;
        assert_eq!(check_header(&header, &pdu).unwrap_err().status, FatalStatus::HeaderDigest);
        // The check value of CRC-32C.
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
    }
}
