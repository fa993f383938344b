//! The data buffer of a command, with its length and direction.
//!
//! A command has at most one data buffer, in one direction. N-D reads and writes may have a second one, the page that
//! the second command word points to in the NDS paper (section 5.3.1); a transport fetches it. Lengths are compared
//! with the command's: a buffer that is too short or too long fails the command before anything moves.

use std::marker::PhantomData;

use super::status::Status;
use crate::stl::read::BufferMut;
use crate::stl::write::Source;

/// Address and length of the data, by its direction.
#[derive(Clone, Copy, Debug)]
enum DataPointer {
    None,
    ToController(*const u8, u64),
    ToHost(*mut u8, u64),
}

/// The buffers that a host lends to one command.
#[derive(Debug)]
pub struct DataBuffer<'a> {
    data: DataPointer,
    page: &'a [u8],
    buffer: PhantomData<&'a mut [u8]>,
}

// SAFETY: the addresses are borrows of memory that any thread may use; only one command does, while they last.
unsafe impl Send for DataBuffer<'_> {}

impl<'a> DataBuffer<'a> {
    /// No data.
    pub const NONE: DataBuffer<'static> = DataBuffer { data: DataPointer::None, page: &[], buffer: PhantomData };

    fn new(data: DataPointer) -> Self {
        Self { data, page: &[], buffer: PhantomData }
    }

    /// Data of the host for the controller.
    pub fn to_controller(bytes: &'a [u8]) -> Self {
        Self::new(DataPointer::ToController(bytes.as_ptr(), bytes.len() as u64))
    }

    /// Room of the host for the controller's data.
    pub fn to_host(bytes: &'a mut [u8]) -> Self {
        Self::new(DataPointer::ToHost(bytes.as_mut_ptr(), bytes.len() as u64))
    }

    /// As [`Self::to_controller`], by address.
    ///
    /// # Safety
    /// `bytes` bytes from `first` must be readable for as long as `'a`.
    pub unsafe fn to_controller_raw(first: *const u8, bytes: u64) -> Self {
        Self::new(DataPointer::ToController(first, bytes))
    }

    /// As [`Self::to_host`], by address.
    ///
    /// # Safety
    /// `bytes` bytes from `first` must be writable for as long as `'a`.
    pub unsafe fn to_host_raw(first: *mut u8, bytes: u64) -> Self {
        Self::new(DataPointer::ToHost(first, bytes))
    }

    /// Lends the page of coordinates as well.
    pub fn with_page(self, page: &'a [u8]) -> Self {
        Self { page, ..self }
    }

    /// The page of coordinates; empty if none is lent.
    pub(super) fn page(&self) -> &'a [u8] {
        self.page
    }

    /// Checks that there is no data.
    pub(super) fn none(&self) -> Result<(), Status> {
        match self.data {
            DataPointer::None | DataPointer::ToController(_, 0) | DataPointer::ToHost(_, 0) => Ok(()),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// The data for the controller, of exactly this many bytes.
    pub(super) fn source(&self, bytes: u64) -> Result<Source, Status> {
        match self.data {
            // SAFETY: the constructor's caller promised that these bytes are readable.
            DataPointer::ToController(first, n) if n == bytes => Ok(unsafe { Source::from_raw(first) }),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Exactly this many bytes for the controller, as memory.
    pub(super) fn bytes(&self, bytes: u64) -> Result<&'a [u8], Status> {
        match self.data {
            DataPointer::ToController(first, n) if n == bytes => {
                // SAFETY: the constructor's caller promised that these bytes are readable for as long.
                Ok(unsafe { std::slice::from_raw_parts(first, n as usize) })
            }
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// The first bytes of the data for the controller, which may be longer: hosts send whole pages of ranges.
    pub(super) fn bytes_at_least(&self, bytes: u64) -> Result<&'a [u8], Status> {
        match self.data {
            DataPointer::ToController(first, n) if n >= bytes => {
                // SAFETY: the constructor's caller promised that these bytes are readable for as long.
                Ok(unsafe { std::slice::from_raw_parts(first, bytes as usize) })
            }
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Exactly this many bytes for the host.
    pub(super) fn out(&self, bytes: u64) -> Result<BufferMut, Status> {
        match self.data {
            // SAFETY: the constructor's caller promised that these bytes are writable.
            DataPointer::ToHost(first, n) if n == bytes => Ok(unsafe { BufferMut::from_raw(first) }),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Copies exactly these bytes to the host.
    pub(super) fn give(&self, bytes: &[u8]) -> Result<(), Status> {
        match self.data {
            DataPointer::ToHost(first, n) if n == bytes.len() as u64 => {
                // SAFETY: the constructor's caller promised that these bytes are writable and not shared.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len()) };
                Ok(())
            }
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_direction_are_compared() {
        let mut bytes = [1u8; 8];
        assert!(DataBuffer::NONE.none().is_ok());
        assert_eq!(DataBuffer::to_controller(&bytes).none(), Err(Status::DATA_LENGTH_INVALID));
        assert!(DataBuffer::to_controller(&bytes).source(8).is_ok());
        assert!(DataBuffer::to_controller(&bytes).source(7).is_err());
        assert!(DataBuffer::to_controller(&bytes).out(8).is_err());
        assert_eq!(DataBuffer::to_controller(&bytes).bytes(8).unwrap(), [1; 8]);
        DataBuffer::to_host(&mut bytes).give(&[2; 8]).unwrap();
        assert_eq!(bytes, [2; 8]);
        assert!(DataBuffer::to_host(&mut bytes).give(&[2; 9]).is_err());
        assert!(DataBuffer::NONE.source(0).is_err());
    }
}
