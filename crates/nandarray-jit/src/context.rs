//! The context: memory that translated code and the engine share. The offsets of its fields are compiled into the code.

/// Most memory regions, beside the main one, that translated code can access.
pub(crate) const SLOTS: usize = 32;
/// Number of input streams, and number of output streams.
pub(crate) const STREAMS: usize = 32;

/// A memory region as translated code accesses it during one call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RegionSlot {
    /// The host's pointer to the region minus the region's first address in the program.
    pub(crate) biased: u64,
    /// For reads of 1, 2, 4 and 8 bytes, the least offset in the region at which the read would cross the region's end.
    pub(crate) load: [u64; 4],
    /// For writes of 1, 2, 4 and 8 bytes, the least offset in the region at which the write would cross the writable
    /// part's end.
    pub(crate) store: [u64; 4],
}

/// The contiguous bytes of a stream's ring buffer that translated code can read or write without the interpreter.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Ring {
    /// The host's pointer to the next byte.
    pub(crate) at: u64,
    /// The host's pointer to the end of the contiguous bytes.
    pub(crate) end: u64,
    /// The position of the stream's head (number of bytes moved so far) minus `at`; adding `at` gives the head at any
    /// time.
    pub(crate) head: u64,
    /// Most bytes of an input that an instruction may wait for; 0 for an output.
    pub(crate) ahead: u64,
    /// Value of `at` when translated code was entered; the difference is the number of bytes that it has moved since.
    pub(crate) from: u64,
}

/// The memory that translated code and the engine share.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    /// Number of instructions that may still be executed.
    pub(crate) left: i64,
    /// Program counter when the code returns.
    pub(crate) pc: u64,
    /// The host's pointer to the main memory region minus the region's first address in the program.
    pub(crate) main: u64,
    /// The other memory regions, by slot.
    pub(crate) slots: [RegionSlot; SLOTS],
    pub(crate) inputs: [Ring; STREAMS],
    pub(crate) outputs: [Ring; STREAMS],
}

// Translated code reaches a field by an offset of 32 bits, and slots and rings by their number.
const _: () = assert!(size_of::<Context>() <= i32::MAX as usize);
const _: () = assert!(size_of::<RegionSlot>().is_multiple_of(8) && size_of::<Ring>().is_multiple_of(8));

impl Context {
    pub(crate) fn new() -> Self {
        Self {
            left: 0,
            pc: 0,
            main: 0,
            slots: [RegionSlot::default(); SLOTS],
            inputs: [Ring::default(); STREAMS],
            outputs: [Ring::default(); STREAMS],
        }
    }
}

/// The reason why translated code returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeExit {
    /// Execution continues at another address, which this code does not contain.
    Jump = 0,
    /// The interpreter must execute the next instruction, for which there is no translated code.
    Handover = 1,
    /// The next instruction accesses a memory region other than those that its code expects.
    Memory = 2,
    /// The remaining budget of instructions may be too small for the next part of the code.
    Slice = 3,
    /// The next instruction, or one after it and before the next jump, accesses a memory region other than those that
    /// its code expects.
    Together = 4,
}

impl CodeExit {
    pub(crate) fn from_number(number: u32) -> Self {
        debug_assert!(number <= Self::Together as u32, "translated code returned {number}");
        match number {
            0 => Self::Jump,
            2 => Self::Memory,
            3 => Self::Slice,
            4 => Self::Together,
            _ => Self::Handover,
        }
    }
}

/// The entry of translated code: it takes the context and the integer registers, and returns the number of a
/// [`CodeExit`].
pub(crate) type CodeEntry = unsafe extern "C" fn(*mut Context, *mut u8) -> u32;

/// Addresses and offsets that are compiled into code; for another layout the code must be compiled again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextLayout {
    /// Addresses of the main memory region: it holds the program and its stack.
    pub(crate) main: std::ops::Range<u64>,
    /// The part of `main` that the program may write to.
    pub(crate) writable: std::ops::Range<u64>,
    /// Offset in bytes of the floating-point registers from the integer registers.
    pub(crate) f: i32,
    pub(crate) fflags: i32,
}
