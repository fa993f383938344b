//! Data structures that accompany a command: ranges, coordinates, descriptions of spaces.
//!
//! All numbers are little-endian, and any bytes are a valid structure; the commands that use them check the values.
//! Ranges are those of the NVM command set specification. The pages of N-D commands are the memory pages of the NDS
//! paper (section 5.3.1), which does not define their layout. Dimensions are in elements, slowest-varying first.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

/// Largest number of dimensions of a space or a view.
pub const DIMENSIONS_MAX: usize = 32;
/// Largest length of a space's name in a [`SpacePage`], in bytes.
pub const SPACE_NAME_BYTES_MAX: usize = 3072;

/// A range of a dataset management command (NVM command set 1.0, figure 43), in its wire form of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DsmRange {
    /// Context attributes: hints, which are ignored.
    pub cattr: U32,
    /// Number of logical blocks, not minus one; may be zero.
    pub nlb: U32,
    /// Address of the first logical block.
    pub slba: U64,
}

/// A source range of a copy command, descriptor format 0 (NVM command set 1.0, figure 38), in its wire form of 32
/// bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CopyRange {
    reserved0: U64,
    /// Address of the first logical block.
    pub slba: U64,
    /// Number of logical blocks minus one.
    pub nlb_z: U16,
    reserved18: [u8; 6],
    /// Expected logical block reference tag; not used, as there is no protection information.
    pub eilbrt: U32,
    /// Expected logical block application tag; not used.
    pub elbat: U16,
    /// Mask of the expected application tag; not used.
    pub elbatm: U16,
}

impl CopyRange {
    /// Creates a range of `nlb_z + 1` blocks.
    pub fn new(slba: u64, nlb_z: u16) -> Self {
        Self { slba: slba.into(), nlb_z: nlb_z.into(), ..Self::default() }
    }
}

/// The coordinates of an N-D command's sub-block, in their wire form of 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct BoxPage {
    /// Coordinate along each dimension, in the unit of the command ([`super::Unit`]).
    pub coordinate: [U64; DIMENSIONS_MAX],
    /// Sub-dimensionality: the size of the sub-block along each dimension, in elements.
    pub sub: [U64; DIMENSIONS_MAX],
}

impl BoxPage {
    /// Creates a page with these coordinates and this sub-dimensionality; dimensions after the 32nd are left out.
    pub fn new(coordinate: &[u64], sub: &[u64]) -> Self {
        let mut page = Self::default();
        page.coordinate.iter_mut().zip(coordinate).for_each(|(to, &from)| to.set(from));
        page.sub.iter_mut().zip(sub).for_each(|(to, &from)| to.set(from));
        page
    }
}

/// The bits of [`SpacePage::flags`].
#[derive(Clone, Copy, Debug)]
pub struct SpaceFlags;

impl SpaceFlags {
    /// Flag: the field `key` of the page is set.
    pub const KEY: u32 = 1;
    /// Flag: the space is encrypted; set by space information only.
    pub const ENCRYPTED: u32 = 2;
}

/// The description of a space and a view of it, for open space and from space information, in its wire form of 4096
/// bytes.
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
    /// Size of an element in bytes.
    pub item_bytes: U32,
    /// Number of dimensions in `dims`; 0 opens the space in its own dimensionality.
    pub ndim: u8,
    /// Number of dimensions in `block`; 0 chooses the default size (`stl::block_size`).
    pub bdim: u8,
    /// Length of `name` in bytes.
    pub name_bytes: U16,
    /// Bits of [`SpaceFlags`].
    pub flags: U32,
    /// Length of a name of the element type that lies behind `name`, in bytes; 0 if `dtype` has it.
    pub dtype_bytes: U16,
    reserved14: U16,
    /// Dimensionality of the space to create or resize, or of the view, in elements.
    pub dims: [U64; DIMENSIONS_MAX],
    /// Shape of a building block, in elements.
    pub block: [U64; DIMENSIONS_MAX],
    /// Name of the element type, padded with zeroes, if it has at most 64 bytes; if empty it is `|V` and the size of an
    /// element. Use [`Self::dtype`] and [`Self::set_dtype`], which know longer ones.
    dtype: [u8; 64],
    /// Compression, e.g. `zstd:3+shuffle`, padded with zeroes; empty for none.
    pub compression: [u8; 64],
    /// Key of an encrypted space, if `flags` has [`SpaceFlags::KEY`].
    pub key: [u8; 32],
    /// Identifier of the space.
    pub space: U64,
    /// Number of dimensions of the space itself.
    pub sdim: u8,
    reserved697: [u8; 7],
    /// Dimensionality of the space itself, in elements.
    pub shape: [U64; DIMENSIONS_MAX],
    reserved960: [u8; 64],
    /// Name of the space in UTF-8.
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
    /// Creates a page with this name and these dimensions. A name or dimensions for which it has no room leave a page
    /// that commands refuse.
    pub fn new(name: &str, dims: &[u64]) -> Self {
        let name_bytes = u16::try_from(name.len()).unwrap_or(u16::MAX).into();
        let ndim = u8::try_from(dims.len()).unwrap_or(u8::MAX);
        let mut page = Self { name_bytes, ndim, ..Self::default() };
        from_text(&mut page.name, name);
        page.dims.iter_mut().zip(dims).for_each(|(to, &from)| to.set(from));
        page
    }

    /// Sets the name of the element type: in its field, or behind the name of the space, if it is longer. Returns
    /// false, and leaves a page whose [`Self::dtype`] is an error, if there is no room for it.
    pub fn set_dtype(&mut self, dtype: &str) -> bool {
        if dtype.len() <= self.dtype.len() {
            self.dtype_bytes.set(0);
            from_text(&mut self.dtype, dtype);
            return true;
        }
        self.dtype.fill(0);
        self.dtype_bytes.set(u16::try_from(dtype.len()).unwrap_or(u16::MAX));
        let at = usize::from(self.name_bytes.get());
        let room = self.name.get_mut(at..).and_then(|rest| rest.get_mut(..dtype.len()));
        room.is_some_and(|room| {
            room.copy_from_slice(dtype.as_bytes());
            true
        })
    }

    /// Returns the name of the element type; empty if it is plain bytes.
    ///
    /// # Errors
    /// Invalid field, if it does not lie within the page, or is not UTF-8.
    pub fn dtype(&self) -> Result<&str, Status> {
        let (at, bytes) = (usize::from(self.name_bytes.get()), usize::from(self.dtype_bytes.get()));
        if bytes == 0 {
            return text(&self.dtype);
        }
        let found = self.name.get(at..at + bytes).ok_or(Status::INVALID_FIELD)?;
        std::str::from_utf8(found).map_err(|_| Status::INVALID_FIELD)
    }

    /// Returns the dimensions in `dims`.
    ///
    /// # Errors
    /// Invalid field, if `ndim` is more than 32.
    pub fn dims(&self) -> Result<Vec<u64>, Status> {
        numbers(&self.dims, self.ndim)
    }

    /// Returns the shape of the building block; `None` for the default size.
    ///
    /// # Errors
    /// Invalid field, if `bdim` is more than 32.
    pub fn block(&self) -> Result<Option<Vec<u64>>, Status> {
        if self.bdim == 0 { Ok(None) } else { numbers(&self.block, self.bdim).map(Some) }
    }

    /// Returns the name.
    ///
    /// # Errors
    /// Invalid field, if it is too long or not UTF-8.
    pub fn name(&self) -> Result<&str, Status> {
        let bytes = self.name.get(..usize::from(self.name_bytes.get())).ok_or(Status::INVALID_FIELD)?;
        std::str::from_utf8(bytes).map_err(|_| Status::INVALID_FIELD)
    }

    /// Returns the key; `None` if the page has none.
    pub fn key(&self) -> Option<&[u8]> {
        (self.flags.get() & SpaceFlags::KEY != 0).then_some(&self.key[..])
    }
}

fn numbers(all: &[U64; DIMENSIONS_MAX], n: u8) -> Result<Vec<u64>, Status> {
    let some = all.get(..usize::from(n)).ok_or(Status::INVALID_FIELD)?;
    Ok(some.iter().map(|v| v.get()).collect())
}

/// Returns the text of a field that is padded with zeroes.
///
/// # Errors
/// Invalid field, if it is not UTF-8.
pub fn text(field: &[u8]) -> Result<&str, Status> {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).map_err(|_| Status::INVALID_FIELD)
}

/// Fills a field with a text, which is truncated or padded with zeroes.
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
    fn element_types_lie_in_their_field_or_behind_the_name() {
        for (name, bytes, fits) in
            [("", 0, true), ("a", 64, true), ("a", 65, true), ("ab", 3070, true), ("ab", 3071, false)]
        {
            let (mut page, dtype) = (SpacePage::new(name, &[1]), "x".repeat(bytes));
            assert_eq!(page.set_dtype(&dtype), fits, "{bytes} bytes behind {name:?}");
            let found = page.dtype();
            assert_eq!(found, if fits { Ok(dtype.as_str()) } else { Err(Status::INVALID_FIELD) });
            assert_eq!(page.name(), Ok(name));
        }
        let (mut beyond, end) = (SpacePage::default(), U16::new(u16::MAX));
        (beyond.name_bytes, beyond.dtype_bytes) = (end, end);
        assert_eq!(beyond.dtype(), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let offsets = [
            (offset_of!(SpacePage, ndim), 4),
            (offset_of!(SpacePage, name_bytes), 6),
            (offset_of!(SpacePage, flags), 8),
            (offset_of!(SpacePage, dtype_bytes), 12),
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
