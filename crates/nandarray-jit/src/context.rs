//! The context: the memory that translated code and the engine share. Offsets in it are compiled into the code.

/// Regions of memory beside the main one that code can know.
pub(crate) const SLOTS: usize = 32;
/// Streams of either kind.
pub(crate) const STREAMS: usize = 32;

/// A region of memory in one call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RegionSlot {
    /// Its pointer less its first address.
    pub(crate) biased: u64,
    /// Offsets at which 1, 2, 4 and 8 bytes can be read: below these.
    pub(crate) load: [u64; 4],
    /// The same for writing.
    pub(crate) store: [u64; 4],
}

/// The bytes of a stream that code can reach by itself.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Ring {
    /// Pointer to the next byte.
    pub(crate) at: u64,
    /// Pointer behind the last.
    pub(crate) end: u64,
    /// The head, less `at`.
    pub(crate) head: u64,
    /// Of an input, the most bytes that may be waited for.
    pub(crate) ahead: u64,
    /// Value of `at` when code was entered.
    pub(crate) from: u64,
}

/// The context.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    /// Instructions that may still be executed.
    pub(crate) left: i64,
    /// Program counter on return.
    pub(crate) pc: u64,
    /// The main region's pointer less its first address.
    pub(crate) main: u64,
    /// The other regions.
    pub(crate) slots: [RegionSlot; SLOTS],
    pub(crate) inputs: [Ring; STREAMS],
    pub(crate) outputs: [Ring; STREAMS],
}

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
    /// It goes on at an address.
    Jump = 0,
    /// The next instruction is the interpreter's.
    Handover = 1,
    /// The next instruction reaches memory where it was not expected to.
    Memory = 2,
    /// Too few instructions are left.
    Slice = 3,
    /// The next instruction, or one that follows it before a jump, reaches memory where it was not expected to.
    Together = 4,
}

impl CodeExit {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Jump,
            2 => Self::Memory,
            3 => Self::Slice,
            4 => Self::Together,
            _ => Self::Handover,
        }
    }
}

/// Translated code: takes the context and the integer registers, returns the number of a [`CodeExit`].
pub(crate) type CodeEntry = unsafe extern "C" fn(*mut Context, *mut u8) -> u32;

/// Addresses that are compiled into code: another layout needs other code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextLayout {
    /// Addresses of the main region.
    pub(crate) main: std::ops::Range<u64>,
    /// The writable part of them.
    pub(crate) writable: std::ops::Range<u64>,
    /// Offsets of floating-point registers and of the flags from the integer registers.
    pub(crate) f: i32,
    pub(crate) fflags: i32,
}
