//! The data buffer of a command: its address, length and direction.
//!
//! A command has at most one data buffer, in one direction. N-D reads and writes may have a second buffer, the page to
//! which the second command word points in the NDS paper (section 5.3.1); the transport fetches it. A buffer whose
//! length does not fit the command fails the command before any data moves.

use std::marker::PhantomData;

use crate::stl::read::BufferMut;
use crate::stl::write::Source;
use nandarray_nvme_spec::Status;

/// Address and length in bytes of the data, by the direction of transfer.
#[derive(Clone, Copy, Debug)]
enum DataPointer {
    None,
    ToController(*const u8, u64),
    ToHost(*mut u8, u64),
}

/// The buffers that a host lends to one command: data, and a page with coordinates.
#[derive(Debug)]
pub struct DataBuffer<'a> {
    data: DataPointer,
    page: &'a [u8],
    buffer: PhantomData<&'a mut [u8]>,
}

// SAFETY: the addresses are of borrowed memory that any thread may use, and only one command uses them at a time.
unsafe impl Send for DataBuffer<'_> {}

impl<'a> DataBuffer<'a> {
    /// A buffer without data and without a page.
    pub const NONE: DataBuffer<'static> = DataBuffer { data: DataPointer::None, page: &[], buffer: PhantomData };

    fn new(data: DataPointer) -> Self {
        Self { data, page: &[], buffer: PhantomData }
    }

    /// Lends data of the host, which the controller reads.
    pub fn to_controller(bytes: &'a [u8]) -> Self {
        Self::new(DataPointer::ToController(bytes.as_ptr(), bytes.len() as u64))
    }

    /// Lends a buffer of the host, which the controller fills.
    pub fn to_host(bytes: &'a mut [u8]) -> Self {
        Self::new(DataPointer::ToHost(bytes.as_mut_ptr(), bytes.len() as u64))
    }

    /// Lends data of the host by its address, which the controller reads.
    ///
    /// # Safety
    /// `bytes` bytes from `first` on must be readable during `'a`.
    pub unsafe fn to_controller_raw(first: *const u8, bytes: u64) -> Self {
        Self::new(DataPointer::ToController(first, bytes))
    }

    /// Lends a buffer of the host by its address, which the controller fills.
    ///
    /// # Safety
    /// `bytes` bytes from `first` on must be writable during `'a`.
    pub unsafe fn to_host_raw(first: *mut u8, bytes: u64) -> Self {
        Self::new(DataPointer::ToHost(first, bytes))
    }

    /// Adds the page with the coordinates of an N-D command.
    pub fn with_page(self, page: &'a [u8]) -> Self {
        Self { page, ..self }
    }

    /// Returns the page with coordinates; empty if there is none.
    pub(super) fn page(&self) -> &'a [u8] {
        self.page
    }

    /// Checks that the host lent no data.
    pub(super) fn none(&self) -> Result<(), Status> {
        match self.data {
            DataPointer::None | DataPointer::ToController(_, 0) | DataPointer::ToHost(_, 0) => Ok(()),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Returns the host's data as the source of a write; an error unless it has exactly this number of bytes.
    pub(super) fn source(&self, bytes: u64) -> Result<Source, Status> {
        match self.data {
            // SAFETY: the constructor's caller promised that these bytes are readable.
            DataPointer::ToController(first, n) if n == bytes => Ok(unsafe { Source::from_raw(first) }),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Returns the host's data as a slice; an error unless it has exactly this number of bytes.
    pub(super) fn bytes(&self, bytes: u64) -> Result<&'a [u8], Status> {
        match self.data {
            DataPointer::ToController(first, n) if n == bytes => {
                // SAFETY: the constructor's caller promised that these bytes are readable for as long.
                Ok(unsafe { std::slice::from_raw_parts(first, n as usize) })
            }
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Returns the first bytes of the host's data, which may be longer because hosts send whole pages of ranges; an
    /// error if it is shorter.
    pub(super) fn bytes_at_least(&self, bytes: u64) -> Result<&'a [u8], Status> {
        match self.data {
            DataPointer::ToController(first, n) if n >= bytes => {
                // SAFETY: the constructor's caller promised that these bytes are readable for as long.
                Ok(unsafe { std::slice::from_raw_parts(first, bytes as usize) })
            }
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Returns the host's buffer as the destination of a read; an error unless it has exactly this number of bytes.
    pub(super) fn out(&self, bytes: u64) -> Result<BufferMut, Status> {
        match self.data {
            // SAFETY: the constructor's caller promised that these bytes are writable.
            DataPointer::ToHost(first, n) if n == bytes => Ok(unsafe { BufferMut::from_raw(first) }),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Copies these bytes to the host's buffer; an error unless the buffer has exactly their length.
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
