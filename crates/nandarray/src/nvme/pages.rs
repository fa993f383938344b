//! Data that is part of a command: ranges, coordinates, descriptions of spaces.
//!
//! All are little-endian, and any bytes are valid; the commands that use them check their values. Ranges are those of
//! the NVM command set specification; the pages of N-D commands are the memory pages of the NDS paper (section 5.3.1),
//! whose layout it leaves open. Dimensions are in elements, slowest-varying first.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;
use crate::stl::block_size::DIMENSIONS_MAX;

/// The most bytes of a space's name in a [`SpacePage`].
pub const SPACE_NAME_BYTES_MAX: usize = 3072;

/// A range of a dataset management command (NVM command set 1.0, figure 43): 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DsmRange {
    /// Context attributes: hints, not used.
    pub cattr: U32,
    /// Length in logical blocks; counts from one, and may be zero.
    pub nlb: U32,
    /// First logical block.
    pub slba: U64,
}

/// A source range of a copy command, descriptor format 0 (NVM command set 1.0, figure 38): 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CopyRange {
    reserved0: U64,
    /// First logical block.
    pub slba: U64,
    /// Logical blocks, counted from zero.
    pub nlb_z: U16,
    reserved18: [u8; 6],
    /// Expected reference tag; not used without protection information.
    pub eilbrt: U32,
    /// Expected application tag; not used.
    pub elbat: U16,
    /// Its mask; not used.
    pub elbatm: U16,
}

impl CopyRange {
    /// A range of `nlb_z + 1` blocks.
    pub fn new(slba: u64, nlb_z: u16) -> Self {
        Self { slba: slba.into(), nlb_z: nlb_z.into(), ..Self::default() }
    }
}

/// The box of an N-D command: 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct BoxPage {
    /// The coordinate along each dimension.
    pub coordinate: [U64; DIMENSIONS_MAX],
    /// The sub-dimensionality along each dimension.
    pub sub: [U64; DIMENSIONS_MAX],
}

impl BoxPage {
    /// A page of these coordinates and this sub-dimensionality; more than 32 are left out.
    pub fn new(coordinate: &[u64], sub: &[u64]) -> Self {
        let mut page = Self::default();
        page.coordinate.iter_mut().zip(coordinate).for_each(|(to, &from)| to.set(from));
        page.sub.iter_mut().zip(sub).for_each(|(to, &from)| to.set(from));
        page
    }
}

/// Bits of [`SpacePage::flags`].
#[derive(Clone, Copy, Debug)]
pub struct SpaceFlags;

impl SpaceFlags {
    /// The page carries a key.
    pub const KEY: u32 = 1;
    /// The space is encrypted (reported by space information).
    pub const ENCRYPTED: u32 = 2;
}

/// A space and a view of it: what open space takes and space information gives. 4096 bytes.
///
/// | bytes | field | open | create | resize | information |
/// | --- | --- | --- | --- | --- | --- |
/// | 3:0 | `item_bytes` | | x | | x |
/// | 4 | `ndim` | view | space | space | view |
/// | 5 | `bdim` | | x | | x |
/// | 7:6 | `name_bytes` | by name | x | | x |
/// | 11:8 | `flags` | key | key | key | encrypted |
/// | 271:16 | `dims` | view | space | space | view |
/// | 527:272 | `block` | | x | | x |
/// | 591:528 | `dtype` | | x | | x |
/// | 655:592 | `compression` | | x | | x |
/// | 687:656 | `key` | x | x | x | |
/// | 695:688 | `space` | | | | x |
/// | 696 | `sdim` | | | | x |
/// | 959:704 | `shape` | | | | x |
/// | 4095:1024 | `name` | by name | x | | x |
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct SpacePage {
    /// Bytes of an element.
    pub item_bytes: U32,
    /// Dimensions in `dims`. To open with 0 is to open the space in its own dimensionality.
    pub ndim: u8,
    /// Dimensions in `block`; 0 takes the default (`stl::block_size`).
    pub bdim: u8,
    /// Bytes of the name.
    pub name_bytes: U16,
    /// [`SpaceFlags`].
    pub flags: U32,
    reserved12: U32,
    /// Dimensionality: of the space to create or resize, or of the view.
    pub dims: [U64; DIMENSIONS_MAX],
    /// Shape of a building block.
    pub block: [U64; DIMENSIONS_MAX],
    /// The door's name of the element type, ended by zeroes; nothing is `|V` and the item's bytes.
    pub dtype: [u8; 64],
    /// Compression, e.g. `zstd:3+shuffle`, ended by zeroes.
    pub compression: [u8; 64],
    /// Key of an encrypted space.
    pub key: [u8; 32],
    /// The space's identifier.
    pub space: U64,
    /// Dimensions of the space itself.
    pub sdim: u8,
    reserved697: [u8; 7],
    /// The space's own dimensionality.
    pub shape: [U64; DIMENSIONS_MAX],
    reserved960: [u8; 64],
    /// The space's name, UTF-8.
    pub name: [u8; SPACE_NAME_BYTES_MAX],
}

const _: () = assert!(
    size_of::<DsmRange>() == 16
        && size_of::<CopyRange>() == 32
        && size_of::<BoxPage>() == 512
        && size_of::<SpacePage>() == 4096
);

impl Default for SpacePage {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

impl SpacePage {
    /// A page with this name, cut where it is too long, and these dimensions.
    pub fn new(name: &str, dims: &[u64]) -> Self {
        let mut page = Self { name_bytes: (name.len() as u16).into(), ndim: dims.len() as u8, ..Self::default() };
        from_text(&mut page.name, name);
        page.dims.iter_mut().zip(dims).for_each(|(to, &from)| to.set(from));
        page
    }

    /// The dimensions.
    ///
    /// # Errors
    /// Invalid field, if there are more than 32.
    pub(super) fn dims(&self) -> Result<Vec<u64>, Status> {
        numbers(&self.dims, self.ndim)
    }

    /// The building block, if one is requested.
    ///
    /// # Errors
    /// As [`Self::dims`].
    pub(super) fn block(&self) -> Result<Option<Vec<u64>>, Status> {
        if self.bdim == 0 { Ok(None) } else { numbers(&self.block, self.bdim).map(Some) }
    }

    /// The name.
    ///
    /// # Errors
    /// Invalid field, if it is too long or no UTF-8.
    pub(super) fn name(&self) -> Result<&str, Status> {
        let bytes = self.name.get(..usize::from(self.name_bytes.get())).ok_or(Status::INVALID_FIELD)?;
        std::str::from_utf8(bytes).map_err(|_| Status::INVALID_FIELD)
    }

    /// The key, if one is given.
    pub(super) fn key(&self) -> Option<&[u8]> {
        (self.flags.get() & SpaceFlags::KEY != 0).then_some(&self.key[..])
    }
}

fn numbers(all: &[U64; DIMENSIONS_MAX], n: u8) -> Result<Vec<u64>, Status> {
    let some = all.get(..usize::from(n)).ok_or(Status::INVALID_FIELD)?;
    Ok(some.iter().map(|v| v.get()).collect())
}

/// A text field, ended by zeroes.
///
/// # Errors
/// Invalid field, if it is no UTF-8.
pub fn text(field: &[u8]) -> Result<&str, Status> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).map_err(|_| Status::INVALID_FIELD)
}

/// Fills a text field, which the text is cut to.
pub fn from_text(field: &mut [u8], text: &str) {
    field.fill(0);
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_lie_where_the_table_says() {
        let offsets = [
            (offset_of!(SpacePage, ndim), 4),
            (offset_of!(SpacePage, name_bytes), 6),
            (offset_of!(SpacePage, flags), 8),
            (offset_of!(SpacePage, dims), 16),
            (offset_of!(SpacePage, block), 272),
            (offset_of!(SpacePage, dtype), 528),
            (offset_of!(SpacePage, compression), 592),
            (offset_of!(SpacePage, key), 656),
            (offset_of!(SpacePage, space), 688),
            (offset_of!(SpacePage, sdim), 696),
            (offset_of!(SpacePage, shape), 704),
            (offset_of!(SpacePage, name), 1024),
            (offset_of!(CopyRange, slba), 8),
            (offset_of!(CopyRange, nlb_z), 16),
            (offset_of!(CopyRange, eilbrt), 24),
        ];
        for (found, wanted) in offsets {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_invalid_field() {
        let mut page = SpacePage::new("a/b", &[3, 4]);
        assert_eq!((page.name(), page.dims()), (Ok("a/b"), Ok(vec![3, 4])));
        page.ndim = 33;
        page.name_bytes = 3073.into();
        assert_eq!((page.name(), page.dims()), (Err(Status::INVALID_FIELD), Err(Status::INVALID_FIELD)));
        page.name_bytes = 1.into();
        page.name[0] = 0xff;
        assert_eq!(page.name(), Err(Status::INVALID_FIELD));
        let mut field = [9; 4];
        from_text(&mut field, "abcdef");
        assert_eq!(text(&field), Ok("abcd"));
        from_text(&mut field, "ab");
        assert_eq!(text(&field), Ok("ab"));
    }
}
