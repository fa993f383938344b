//! Kernels: programs whose work is cut in advance into microblocks, which run one after the other, and screens, which
//! run at the same time (FlashAbacus, section 4.2).
//!
//! A kernel is an ELF with a description table: its data sections, and for each microblock a function, the section
//! whose rows divide it into screens, and the parts of sections that a screen reads and writes. A screen's windows hold
//! only these parts, so that any other access traps. The arguments carry each window's offset within its section:
//! functions index a section as if all of it were mapped. On a 64-bit hart a window may be larger than 64 MiB; on a
//! 32-bit hart the section may be larger, but the part that a screen maps may not.
//!
//! This file has the core that executes screens; `kernel_table` has the table, `kernel_metered` has cores with a meter.
//! The order of microblocks and the choice of workers belong to `nandarray-runtime`.

use std::sync::atomic::AtomicBool;

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv32, Rv64, Stop, Streams};

use crate::abi::{self, Arguments, Port};
use crate::error::LoadError;
pub use crate::kernel_table::{
    DataSection, KernelTable, MappedPart, Microblock, PartWord, ScreenRule, SectionRole, share,
};
use crate::processor::Processor;
use crate::program::lay_out;

/// A loaded kernel: its code and its description table.
#[derive(Clone, Debug)]
pub struct KernelProgram {
    /// The kernel's description table.
    pub table: KernelTable,
    image: nandarray_hart::ElfProgram,
    entries: Vec<u64>,
}

impl KernelProgram {
    /// Loads a kernel from an ELF and its description table in JSON.
    ///
    /// # Errors
    /// [`LoadError`]: the ELF or the table is wrong, or the ELF lacks the function of a microblock.
    pub fn from_elf(elf: &[u8], table: &[u8]) -> Result<Self, LoadError> {
        let image = nandarray_hart::ElfProgram::from_elf(elf, Extensions::PROGRAM)?;
        let table = KernelTable::parse(table)?;
        let missing = |name: &str| {
            LoadError::Metadata(format!("microblock {name}: the program has no function nd_kernel_{name}"))
        };
        let entries = table
            .microblocks
            .iter()
            .map(|m| image.symbol(&format!("nd_kernel_{}", m.entry)).ok_or_else(|| missing(&m.entry)));
        let entries = entries.collect::<Result<_, _>>()?;
        let kernel = Self { table, image, entries };
        kernel.load()?;
        Ok(kernel)
    }

    /// Returns the register width: 32 or 64.
    pub fn bits(&self) -> u32 {
        self.image.bits
    }

    fn load(&self) -> Result<nandarray_hart::Loaded, LoadError> {
        lay_out(&self.image, self.table.memory_bytes, self.table.scratchpad_bytes)
    }

    /// Returns the address of a section's window.
    pub fn window(&self, section: usize) -> u64 {
        match self.bits() {
            32 if section < self.table.inputs => abi::input_window(section),
            32 => abi::output_window(section - self.table.inputs),
            _ => abi::SECTION_ADDRESS + section as u64 * abi::SECTION_BYTES,
        }
    }

    /// Returns the function at a program counter with the distance from its beginning; the address in hexadecimal if
    /// there is no function.
    pub fn place(&self, pc: u64) -> String {
        self.image.symbol_at(pc).map_or_else(|| format!("{pc:#x}"), |(name, by)| format!("{name}+{by:#x}"))
    }
}

/// The bytes of a window.
#[derive(Debug)]
pub enum WindowBytes<'w> {
    /// Bytes that the screen only reads.
    Read(&'w [u8]),
    /// Bytes that the screen reads and writes.
    Write(&'w mut [u8]),
}

/// A section as one screen sees it.
#[derive(Debug)]
pub struct SectionWindow<'w> {
    /// Offset of the window within the section, in bytes.
    pub offset: u64,
    /// The shape of the whole section.
    pub shape: &'w [u64],
    /// The window's bytes; `None` if the microblock does not map the section.
    pub bytes: Option<WindowBytes<'w>>,
}

/// The reason why a screen failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScreenError {
    /// An access to bytes that the screen does not map.
    #[error(
        "screen {screen} of {microblock}: {access} at byte {byte} of {section}, which it does not map, in {symbol}"
    )]
    Unmapped {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// The kind of access: a load or a store.
        access: &'static str,
        /// The section's name.
        section: String,
        /// First byte of the access within the section; negative if the access lies before the section.
        byte: i64,
        /// The function's name and the distance from its beginning, in bytes.
        symbol: String,
    },
    /// Any other trap.
    #[error("screen {screen} of {microblock}: {trap} in {symbol}")]
    Trap {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// The trap, in words.
        trap: String,
        /// The function's name and the distance from its beginning, in bytes.
        symbol: String,
    },
    /// A subscript of a loop nest that is outside of its section.
    #[error(
        "screen {screen} of {microblock}: index {index} of {section}, {}",
        told(*axis, *extent, *row, *turn, *line)
    )]
    Subscript {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// The section's name.
        section: String,
        /// The dimension of the section, from 0.
        axis: u64,
        /// The index along that dimension.
        index: i64,
        /// Number of elements along it.
        extent: u64,
        /// The row of the microblock's screens; `None` of a serial microblock.
        row: Option<i64>,
        /// Value of the innermost loop's variable; `None` outside of inner loops.
        turn: Option<i64>,
        /// Line of the subscript in its source file.
        line: u64,
    },
    /// The function returned an error of its own.
    #[error("screen {screen} of {microblock}: it returned {code}")]
    Status {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// The function's return value.
        code: i64,
    },
    /// The screen executed more instructions than its limit.
    #[error("screen {screen} of {microblock}: more than {limit} instructions, in {symbol}")]
    Limit {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// Most instructions that the screen may execute.
        limit: u64,
        /// The function's name and the distance from its beginning, in bytes.
        symbol: String,
    },
    /// The caller cancelled the kernel.
    #[error("screen {screen} of {microblock}: cancelled")]
    Cancelled {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
    },
    /// The screen's memory could not be laid out.
    #[error("screen {screen} of {microblock}: {what}")]
    Memory {
        /// Name of the microblock.
        microblock: String,
        /// Number of the screen.
        screen: u64,
        /// The reason, in words.
        what: String,
    },
}

/// Describes in words the place of a subscript and what it must be.
fn told(axis: u64, extent: u64, row: Option<i64>, turn: Option<i64>, line: u64) -> String {
    let (row, turn) = (row.map(|at| format!(", row {at}")), turn.map(|at| format!(", inner loop at {at}")));
    let place = format!("line {line}{}{}", row.unwrap_or_default(), turn.unwrap_or_default());
    format!("dimension {axis}: it must be at least 0 and below {extent} ({place})")
}

/// Makes the error of a function that returned a negative number; `block` is the argument block behind the call.
fn returned(kernel: &KernelProgram, microblock: usize, screen: u64, code: i64, block: &[u8]) -> ScreenError {
    let [section, axis, index, extent, row, turn, line] = Arguments::noted(block);
    let name = kernel.table.microblocks[microblock].entry.clone();
    // The first word is 0 unless a subscript was noted: the number of its section from 1.
    let section = usize::try_from(section).ok().and_then(|n| kernel.table.sections.get(n.checked_sub(1)?));
    let place = |at: i64| Some(at).filter(|at| *at != i64::MIN);
    match section {
        Some(section) if code == abi::OUTSIDE => ScreenError::Subscript {
            microblock: name,
            screen,
            section: section.name.clone(),
            axis: axis as u64,
            index,
            extent: extent as u64,
            row: place(row),
            turn: place(turn),
            line: line as u64,
        },
        _ => ScreenError::Status { microblock: name, screen, code },
    }
}

/// The arguments of one screen of a microblock.
#[derive(Debug)]
pub struct ScreenCall<'w> {
    /// Number of the microblock.
    pub microblock: usize,
    /// Number of the screen.
    pub screen: u64,
    /// Number of screens of the microblock.
    pub screens: u64,
    /// Values of the scalars, as bit patterns.
    pub scalars: &'w [u64],
    /// The window on each section, in the order of the table.
    pub sections: Vec<SectionWindow<'w>>,
}

/// A kernel's functions in this process: one for each microblock.
#[derive(Clone, Debug)]
pub struct KernelFunctions(Vec<unsafe extern "C" fn(*mut u8) -> i64>);

impl KernelFunctions {
    /// Wraps functions by their addresses, one for each microblock in order. Returns `None` if an address is 0.
    ///
    /// # Safety
    /// Each address is 0 or that of a function of this type which stays where it is, which several threads may call at
    /// once, and which reaches nothing but what its argument block names.
    pub unsafe fn new(addresses: &[usize]) -> Option<Self> {
        type Found = Option<unsafe extern "C" fn(*mut u8) -> i64>;
        // SAFETY: the caller vouches for addresses other than 0, and `None` is 0.
        let all = addresses.iter().map(|a| unsafe { std::mem::transmute::<usize, Found>(*a) });
        all.collect::<Option<Vec<_>>>().map(Self)
    }
}

enum KernelPlace {
    Hart { processor: Box<dyn Processor>, memory: Memory<'static>, stack: u64 },
    Host { functions: KernelFunctions, block: Vec<u64>, scratchpad: Vec<u64> },
}

/// A core that executes screens of one kernel.
pub struct KernelCore {
    place: KernelPlace,
}

impl KernelCore {
    /// Creates a core on which the caller's processor executes screens.
    ///
    /// # Errors
    /// [`LoadError`]: the kernel cannot be loaded.
    pub fn new(kernel: &KernelProgram, processor: Box<dyn Processor>) -> Result<Self, LoadError> {
        let loaded = kernel.load()?;
        Ok(Self { place: KernelPlace::Hart { processor, memory: loaded.memory, stack: loaded.stack } })
    }

    /// Creates a core on which the interpreter executes screens.
    ///
    /// # Errors
    /// [`LoadError`]: the kernel cannot be loaded.
    pub fn interpreter(kernel: &KernelProgram) -> Result<Self, LoadError> {
        let processor: Box<dyn Processor> = match kernel.bits() {
            32 => Box::new(Hart::<Rv32>::new(HartMode::Program, Extensions::PROGRAM)),
            _ => Box::new(Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM)),
        };
        Self::new(kernel, processor)
    }

    /// Creates a core that calls functions of this process in place of the kernel's instructions.
    ///
    /// # Panics
    /// If there is not one function for each microblock.
    pub fn native(kernel: &KernelProgram, functions: KernelFunctions) -> Self {
        assert_eq!(functions.0.len(), kernel.table.microblocks.len(), "a function for each microblock");
        let words = |bytes: u64| vec![0u64; bytes.div_ceil(8) as usize];
        let (block, scratchpad) = (words(abi::ARGS_BYTES), words(kernel.table.scratchpad_bytes));
        Self { place: KernelPlace::Host { functions, block, scratchpad } }
    }

    /// Returns the number of instructions executed so far; 0 for functions of this process.
    pub fn instructions(&self) -> u64 {
        match &self.place {
            KernelPlace::Hart { processor, .. } => processor.instructions(),
            KernelPlace::Host { .. } => 0,
        }
    }

    /// Runs a screen to its end, for at most `limit` instructions, or until `stop` is set.
    ///
    /// # Errors
    /// [`ScreenError`]: the screen failed, exceeded the limit or was cancelled.
    pub fn run(
        &mut self,
        kernel: &KernelProgram,
        mut call: ScreenCall<'_>,
        limit: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<(), ScreenError> {
        match &mut self.place {
            KernelPlace::Host { functions, block, scratchpad } => {
                let address = |_, window: &SectionWindow<'_>| match &window.bytes {
                    Some(WindowBytes::Read(bytes)) => bytes.as_ptr() as u64,
                    Some(WindowBytes::Write(bytes)) => bytes.as_ptr() as u64,
                    None => 0,
                };
                let mut arguments = arguments(kernel, &call, address);
                arguments.scratchpad = scratchpad.as_mut_ptr() as u64;
                let mut bytes = [0; abi::ARGS_BYTES as usize];
                arguments.write(&mut bytes);
                for (word, eight) in block.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
                }
                // SAFETY: the maker of the functions vouched for them; windows outlive the call.
                match unsafe { functions.0[call.microblock](block.as_mut_ptr().cast()) } {
                    code if code < 0 => {
                        let bytes: Vec<u8> = block.iter().flat_map(|word| word.to_le_bytes()).collect();
                        Err(returned(kernel, call.microblock, call.screen, code, &bytes))
                    }
                    _ => Ok(()),
                }
            }
            KernelPlace::Hart { processor, memory: own, stack } => {
                let (microblock, screen) = (call.microblock, call.screen);
                let lay = |what: &dyn ToString| {
                    let microblock = kernel.table.microblocks[microblock].entry.clone();
                    ScreenError::Memory { microblock, screen, what: what.to_string() }
                };
                let arguments = arguments(kernel, &call, |section, _| kernel.window(section));
                let ranges: Vec<(i64, u64)> = arguments
                    .inputs
                    .iter()
                    .chain(&arguments.outputs)
                    .map(|port| (port.address as i64 - port.offset as i64, port.address))
                    .collect();
                let block = abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES;
                arguments.write(own.get_mut(block.clone()).map_err(|e| lay(&e))?);
                let mut memory = own.for_call();
                for (section, window) in call.sections.iter_mut().enumerate() {
                    let at = kernel.window(section);
                    let done = match window.bytes.take() {
                        Some(WindowBytes::Read(bytes)) if !bytes.is_empty() => memory.lend(at, bytes),
                        Some(WindowBytes::Write(bytes)) if !bytes.is_empty() => memory.lend_mut(at, bytes),
                        _ => Ok(()),
                    };
                    done.map_err(|e| lay(&e))?;
                }
                let limits = Limits { instructions: limit, stop: Some(stop) };
                let entry = kernel.entries[microblock];
                let stopped =
                    processor.call(entry, *stack, abi::ARGS_ADDRESS, &mut memory, &mut Streams::none(), limits);
                let (pc, result) = (processor.pc(), processor.result());
                drop(memory);
                if matches!(stopped, Stop::Returned { .. }) && result < 0 {
                    let block = own.get(block).map_err(|e| lay(&e))?;
                    return Err(returned(kernel, microblock, screen, result, block));
                }
                ended(kernel, stopped, pc, (microblock, screen), limit, &ranges)
            }
        }
    }
}

impl std::fmt::Debug for KernelCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self.place, KernelPlace::Host { .. }) { "native" } else { "hart" };
        f.debug_struct("KernelCore").field("place", &kind).finish_non_exhaustive()
    }
}

fn arguments(
    kernel: &KernelProgram,
    call: &ScreenCall<'_>,
    address: impl Fn(usize, &SectionWindow<'_>) -> u64,
) -> Arguments {
    let mut ports: Vec<Port> = Vec::new();
    for (section, window) in call.sections.iter().enumerate() {
        let bytes = match &window.bytes {
            Some(WindowBytes::Read(bytes)) => bytes.len() as u64,
            Some(WindowBytes::Write(bytes)) => bytes.len() as u64,
            None => 0,
        };
        let shape = window.shape.to_vec();
        ports.push(Port { address: address(section, window), bytes, offset: window.offset, shape });
    }
    let outputs = ports.split_off(kernel.table.inputs);
    Arguments {
        inputs: ports,
        outputs,
        scalars: call.scalars.to_vec(),
        scratchpad: abi::SCRATCHPAD_ADDRESS,
        scratchpad_bytes: kernel.table.scratchpad_bytes,
        screen: call.screen,
        screens: call.screens,
        ..Arguments::default()
    }
}

fn ended(
    kernel: &KernelProgram,
    stop: Stop,
    pc: u64,
    (number, screen): (usize, u64),
    limit: Option<u64>,
    bases: &[(i64, u64)],
) -> Result<(), ScreenError> {
    let (microblock, symbol) = (kernel.table.microblocks[number].entry.clone(), kernel.place(pc));
    match stop {
        Stop::Returned { .. } => Ok(()),
        Stop::InstructionLimit => {
            Err(ScreenError::Limit { microblock, screen, limit: limit.unwrap_or(u64::MAX), symbol })
        }
        Stop::Interrupted => Err(ScreenError::Cancelled { microblock, screen }),
        Stop::Trap(trap) => {
            let symbol = kernel.place(trap.pc);
            let access = match trap.cause {
                nandarray_hart::Cause::LoadAccess => Some("a load"),
                nandarray_hart::Cause::StoreAccess => Some("a store"),
                _ => None,
            };
            // Half of the distance to the next window behind a section, and a little before it.
            let reach = if kernel.bits() == 32 { abi::WINDOW_BYTES } else { abi::SECTION_BYTES } as i64 / 2;
            let near = bases.iter().enumerate().filter(|(_, (base, window))| {
                let from = base.saturating_sub(abi::WINDOW_BYTES as i64 / 2);
                (from..base.saturating_add(reach)).contains(&(trap.value as i64)) || *window == trap.value
            });
            let found = near.min_by_key(|(_, (base, _))| (trap.value as i64 - base).abs());
            match (access, found) {
                (Some(access), Some((section, (base, _)))) => {
                    let section = kernel.table.sections[section].name.clone();
                    let byte = trap.value as i64 - base;
                    Err(ScreenError::Unmapped { microblock, screen, access, section, byte, symbol })
                }
                _ => Err(ScreenError::Trap { microblock, screen, trap: trap.to_string(), symbol }),
            }
        }
        other => Err(ScreenError::Trap { microblock, screen, trap: format!("{other:?}"), symbol }),
    }
}
