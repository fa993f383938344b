//! Kernels: programs whose work is cut in advance into microblocks, which run one after the other, and screens, which
//! run at the same time (FlashAbacus, section 4.2).
//!
//! A kernel is an ELF with a description table: its data sections, and for each microblock a function, the section
//! whose rows divide it into screens, and the parts of sections that a screen reads and writes. A screen's windows hold
//! these parts and nothing else, so that an access to anything else traps. A window carries its offset within its
//! section: functions index a section as if all of it were there. On a hart of 64 bits a window may be larger than 64
//! MiB; on one of 32 bits only the part that a screen maps has to be smaller.
//!
//! This file has the table and the core. Order of microblocks and choice of workers belong to `nandarray-runtime`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Meter, Rv32, Rv64, Stop, Streams};
use serde::Deserialize;

use crate::abi::{self, Arguments, Port};
use crate::error::LoadError;
use crate::processor::Processor;

/// The part of a section that a screen maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MappedPart {
    /// A word: `"all"`, or `"rows"` for the screen's share of rows.
    Word(PartWord),
    /// The screen's share of rows, and rows before and behind it.
    Halo {
        /// Rows before and behind.
        rows: [u64; 2],
    },
}

/// A part by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartWord {
    /// The whole section.
    All,
    /// The screen's share of rows.
    Rows,
}

/// The number of screens of a microblock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ScreenRule {
    /// This number; 1 is a serial microblock.
    Count(u64),
    /// As many as the scheduler wants, up to the rows of this section.
    RowsOf(String),
}

/// A data section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSection {
    /// Its name.
    pub name: String,
    /// Bytes of an element.
    pub item_bytes: u64,
    /// The use that a kernel makes of it.
    pub role: SectionRole,
}

/// The use that a kernel makes of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionRole {
    /// It is read.
    Input,
    /// It begins as zeros, and is a result.
    Output,
    /// It begins as the array that it replaces at the end.
    Update,
    /// It begins as zeros, and is dropped.
    Temporary,
}

/// A microblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microblock {
    /// Its function.
    pub entry: String,
    /// Its screens.
    pub screens: ScreenRule,
    /// Parts that a screen reads, by section.
    pub reads: BTreeMap<usize, MappedPart>,
    /// Parts that a screen writes; it may read them, too.
    pub writes: BTreeMap<usize, MappedPart>,
}

/// A kernel's description table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTable {
    /// Its name.
    pub name: String,
    /// Data sections: inputs, then outputs.
    pub sections: Vec<DataSection>,
    /// Number of inputs among them.
    pub inputs: usize,
    /// Number of scalars.
    pub scalars: usize,
    /// Microblocks in the order in which they run.
    pub microblocks: Vec<Microblock>,
    /// Bytes of scratchpad.
    pub scratchpad_bytes: u64,
    /// Bytes of program memory.
    pub memory_bytes: u64,
}

#[derive(Deserialize)]
struct WrittenTable {
    abi: u64,
    name: String,
    kind: String,
    inputs: Vec<WrittenSection>,
    #[serde(default)]
    outputs: Vec<WrittenSection>,
    #[serde(default)]
    scalars: Vec<serde_json::Value>,
    microblocks: Vec<WrittenMicroblock>,
    #[serde(default)]
    scratchpad_bytes: u64,
    #[serde(default = "mebibyte")]
    memory_bytes: u64,
}

#[derive(Deserialize)]
struct WrittenSection {
    name: String,
    item_bytes: u64,
    #[serde(default)]
    update: bool,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct WrittenMicroblock {
    entry: String,
    screens: ScreenRule,
    #[serde(default)]
    reads: BTreeMap<String, MappedPart>,
    #[serde(default)]
    writes: BTreeMap<String, MappedPart>,
}

fn mebibyte() -> u64 {
    1 << 20
}

/// First and last row of a screen's share of `rows`, the last exclusive.
pub fn share(rows: u64, screen: u64, screens: u64) -> Range<u64> {
    let at = |screen: u64| (u128::from(rows) * u128::from(screen) / u128::from(screens.max(1))) as u64;
    at(screen)..at(screen + 1)
}

impl MappedPart {
    /// The rows of a section that a screen maps.
    pub fn rows(self, rows: u64, screen: u64, screens: u64) -> Range<u64> {
        let own = share(rows, screen, screens);
        match self {
            Self::Word(PartWord::All) => 0..rows,
            Self::Word(PartWord::Rows) => own,
            Self::Halo { .. } if own.is_empty() => own,
            Self::Halo { rows: [before, behind] } => {
                own.start.saturating_sub(before)..own.end.saturating_add(behind).min(rows)
            }
        }
    }

    fn hull(self, other: Option<Self>) -> Self {
        let width = |part: Self| match part {
            Self::Word(PartWord::All) => None,
            Self::Word(PartWord::Rows) => Some([0, 0]),
            Self::Halo { rows } => Some(rows),
        };
        match (width(self), other.map_or(Some([0, 0]), width)) {
            (Some(a), Some(b)) => Self::Halo { rows: [a[0].max(b[0]), a[1].max(b[1])] },
            _ => Self::Word(PartWord::All),
        }
    }
}

impl Microblock {
    /// The part of a section that is mapped: both for reading and for writing.
    pub fn mapped(&self, section: usize) -> Option<MappedPart> {
        match (self.reads.get(&section), self.writes.get(&section)) {
            (None, None) => None,
            (Some(one), other) => Some(one.hull(other.copied())),
            (None, Some(one)) => Some(*one),
        }
    }

    /// Number of screens, if a scheduler wants `wanted`; `rows` tells the rows of a section.
    pub fn screens(&self, table: &KernelTable, wanted: u64, rows: impl Fn(usize) -> u64) -> u64 {
        match &self.screens {
            ScreenRule::Count(count) => *count,
            ScreenRule::RowsOf(name) => {
                let section = table.sections.iter().position(|s| s.name == *name).expect("checked on loading");
                wanted.clamp(1, rows(section).max(1))
            }
        }
    }
}

impl KernelTable {
    /// Reads and checks a description table in JSON.
    ///
    /// # Errors
    /// [`LoadError::Metadata`]: the key, and the reason.
    pub fn parse(text: &[u8]) -> Result<Self, LoadError> {
        let wrong = |text: String| LoadError::Metadata(text);
        let written: WrittenTable = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
        if written.abi != abi::ABI || written.kind != "kernel" {
            return Err(wrong(format!("abi {} and kind {:?}; a kernel has 1 and kernel", written.abi, written.kind)));
        }
        let inputs = written.inputs.len();
        if inputs > abi::PORTS_MAX || written.outputs.len() > abi::PORTS_MAX {
            return Err(wrong(format!("{inputs} inputs and {} outputs do not fit", written.outputs.len())));
        }
        let role = |number: usize, s: &WrittenSection| match (number < inputs, s.update, s.temporary) {
            (true, false, false) => Ok(SectionRole::Input),
            (false, true, false) => Ok(SectionRole::Update),
            (false, false, true) => Ok(SectionRole::Temporary),
            (false, false, false) => Ok(SectionRole::Output),
            _ => Err(wrong(format!("section {}: an input is neither updated nor temporary", s.name))),
        };
        let mut sections = Vec::new();
        for (number, s) in written.inputs.iter().chain(&written.outputs).enumerate() {
            if s.item_bytes == 0 {
                return Err(wrong(format!("section {}: item_bytes is 0", s.name)));
            }
            sections.push(DataSection { name: s.name.clone(), item_bytes: s.item_bytes, role: role(number, s)? });
        }
        let mut table = Self {
            name: written.name,
            sections,
            inputs,
            scalars: written.scalars.len(),
            microblocks: Vec::new(),
            scratchpad_bytes: written.scratchpad_bytes.max(abi::SCRATCHPAD_BYTES),
            memory_bytes: written.memory_bytes,
        };
        if table.scalars > abi::SCALARS_MAX || table.memory_bytes > abi::MEMORY_BYTES_MAX {
            return Err(wrong(format!("{} scalars and {} bytes do not fit", table.scalars, table.memory_bytes)));
        }
        for microblock in written.microblocks {
            let made = table.microblock(microblock)?;
            table.microblocks.push(made);
        }
        if table.microblocks.is_empty() {
            return Err(wrong("a kernel needs one microblock at least".to_owned()));
        }
        Ok(table)
    }

    fn section(&self, microblock: &str, name: &str) -> Result<usize, LoadError> {
        let found = self.sections.iter().position(|s| s.name == name);
        found.ok_or_else(|| LoadError::Metadata(format!("microblock {microblock}: there is no section {name:?}")))
    }

    fn microblock(&self, written: WrittenMicroblock) -> Result<Microblock, LoadError> {
        let WrittenMicroblock { entry, screens, reads, writes } = written;
        let wrong = |what: String| LoadError::Metadata(format!("microblock {entry}: {what}"));
        match &screens {
            ScreenRule::Count(0) => return Err(wrong("0 screens".to_owned())),
            ScreenRule::Count(_) => {}
            ScreenRule::RowsOf(name) => drop(self.section(&entry, name)?),
        }
        let parts = |named: BTreeMap<String, MappedPart>| -> Result<BTreeMap<usize, MappedPart>, LoadError> {
            named.into_iter().map(|(name, part)| Ok((self.section(&entry, &name)?, part))).collect()
        };
        let (reads, writes) = (parts(reads)?, parts(writes)?);
        for (section, part) in &writes {
            let DataSection { name, role, .. } = &self.sections[*section];
            if *role == SectionRole::Input {
                return Err(wrong(format!("it writes {name}, which is an input")));
            }
            let mapped = reads.get(section).map_or(*part, |read| part.hull(Some(*read)));
            let alone = matches!(mapped, MappedPart::Word(PartWord::Rows) | MappedPart::Halo { rows: [0, 0] });
            if screens != ScreenRule::Count(1) && !alone {
                return Err(wrong(format!("its screens would meet in {name}: one writes rows that another maps")));
            }
        }
        Ok(Microblock { entry, screens, reads, writes })
    }
}

/// A loaded kernel.
#[derive(Clone, Debug)]
pub struct KernelProgram {
    /// Its description table.
    pub table: KernelTable,
    image: nandarray_hart::ElfProgram,
    entries: Vec<u64>,
}

impl KernelProgram {
    /// Reads an ELF and its description table.
    ///
    /// # Errors
    /// [`LoadError`].
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

    /// Register width: 32 or 64.
    pub fn bits(&self) -> u32 {
        self.image.bits
    }

    fn load(&self) -> Result<nandarray_hart::Loaded, LoadError> {
        let last = self.image.segments.iter().map(|s| s.address + s.length).max().unwrap_or(0).next_multiple_of(16);
        let end = abi::IMAGE_ADDRESS + self.table.memory_bytes;
        if last >= end {
            let needed = last.saturating_sub(abi::IMAGE_ADDRESS);
            return Err(LoadError::TooLarge { needed, memory: self.table.memory_bytes });
        }
        let mut loaded = self.image.load(end - last, None)?;
        loaded.memory.add(abi::ARGS_ADDRESS, abi::ARGS_BYTES)?;
        loaded.memory.add(abi::SCRATCHPAD_ADDRESS, self.table.scratchpad_bytes)?;
        Ok(loaded)
    }

    /// Address of a section's window.
    pub fn window(&self, section: usize) -> u64 {
        match self.bits() {
            32 if section < self.table.inputs => abi::input_window(section),
            32 => abi::output_window(section - self.table.inputs),
            _ => abi::SECTION_ADDRESS + section as u64 * abi::SECTION_BYTES,
        }
    }

    /// The function at a program counter.
    pub fn place(&self, pc: u64) -> String {
        self.image.symbol_at(pc).map_or_else(|| format!("{pc:#x}"), |(name, by)| format!("{name}+{by:#x}"))
    }
}

/// The bytes of a window.
#[derive(Debug)]
pub enum WindowBytes<'w> {
    /// To be read.
    Read(&'w [u8]),
    /// To be read and written.
    Write(&'w mut [u8]),
}

/// A section as one screen sees it.
#[derive(Debug)]
pub struct SectionWindow<'w> {
    /// First byte of the window within the section.
    pub offset: u64,
    /// The section's shape.
    pub shape: &'w [u64],
    /// The window; none if the microblock does not map the section.
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
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
        /// Load or store.
        access: &'static str,
        /// The section's name.
        section: String,
        /// First byte within the section; negative before it.
        byte: i64,
        /// The function and the distance from its beginning.
        symbol: String,
    },
    /// Any other trap.
    #[error("screen {screen} of {microblock}: {trap} in {symbol}")]
    Trap {
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
        /// The trap, in words.
        trap: String,
        /// The function and the distance from its beginning.
        symbol: String,
    },
    /// The function returned an error of its own.
    #[error("screen {screen} of {microblock}: it returned {code}")]
    Status {
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
        /// The return value.
        code: i64,
    },
    /// The screen executed more instructions than its limit.
    #[error("screen {screen} of {microblock}: more than {limit} instructions, in {symbol}")]
    Limit {
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
        /// The limit.
        limit: u64,
        /// The function and the distance from its beginning.
        symbol: String,
    },
    /// The caller cancelled the kernel.
    #[error("screen {screen} of {microblock}: cancelled")]
    Cancelled {
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
    },
    /// Its memory could not be laid out.
    #[error("screen {screen} of {microblock}: {what}")]
    Memory {
        /// The microblock.
        microblock: String,
        /// The screen.
        screen: u64,
        /// The reason.
        what: String,
    },
}

/// One screen of a microblock.
#[derive(Debug)]
pub struct ScreenCall<'w> {
    /// Number of the microblock.
    pub microblock: usize,
    /// The screen.
    pub screen: u64,
    /// Number of screens.
    pub screens: u64,
    /// Bit patterns.
    pub scalars: &'w [u64],
    /// Each section.
    pub sections: Vec<SectionWindow<'w>>,
}

/// Functions of a kernel in this process: one a microblock.
#[derive(Clone, Debug)]
pub struct KernelFunctions(Vec<unsafe extern "C" fn(*mut u8) -> i64>);

impl KernelFunctions {
    /// Functions by their addresses, in the order of microblocks. `None` if one of them is 0.
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
    /// A core with a processor.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(kernel: &KernelProgram, processor: Box<dyn Processor>) -> Result<Self, LoadError> {
        let loaded = kernel.load()?;
        Ok(Self { place: KernelPlace::Hart { processor, memory: loaded.memory, stack: loaded.stack } })
    }

    /// A core on which the interpreter runs, with a meter.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn interpreter(kernel: &KernelProgram) -> Result<Self, LoadError> {
        let processor: Box<dyn Processor> = match kernel.bits() {
            32 => Box::new(Hart::<Rv32>::new(HartMode::Program, Extensions::PROGRAM)),
            _ => Box::new(Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM)),
        };
        Self::new(kernel, processor)
    }

    /// A core that calls functions of this process.
    pub fn native(kernel: &KernelProgram, functions: KernelFunctions) -> Self {
        assert_eq!(functions.0.len(), kernel.table.microblocks.len(), "a function for each microblock");
        let words = |bytes: u64| vec![0u64; bytes.div_ceil(8) as usize];
        let (block, scratchpad) = (words(abi::ARGS_BYTES), words(kernel.table.scratchpad_bytes));
        Self { place: KernelPlace::Host { functions, block, scratchpad } }
    }

    /// Instructions so far; 0 for functions of this process.
    pub fn instructions(&self) -> u64 {
        match &self.place {
            KernelPlace::Hart { processor, .. } => processor.instructions(),
            KernelPlace::Host { .. } => 0,
        }
    }

    /// Runs a screen to its end.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub fn run(
        &mut self,
        kernel: &KernelProgram,
        mut call: ScreenCall<'_>,
        limit: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<(), ScreenError> {
        let name = || kernel.table.microblocks[call.microblock].entry.clone();
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
                    code if code < 0 => Err(ScreenError::Status { microblock: name(), screen: call.screen, code }),
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
                arguments.write(own.get_mut(block).map_err(|e| lay(&e))?);
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
                let at = (processor.pc(), processor.result());
                ended(kernel, stopped, at, (microblock, screen), limit, &ranges)
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

/// A core of 64 bits whose instructions a meter observes; the meter is reached between calls.
pub struct MeteredCore<M: Meter> {
    hart: Hart<Rv64, M>,
}

impl<M: Meter + 'static> MeteredCore<M> {
    /// A core with a meter.
    pub fn new(meter: M) -> Self {
        Self { hart: Hart::with_meter(HartMode::Program, Extensions::PROGRAM, meter) }
    }

    /// The meter.
    pub fn meter(&self) -> &M {
        self.hart.meter()
    }

    /// The meter, to be changed.
    pub fn meter_mut(&mut self) -> &mut M {
        self.hart.meter_mut()
    }

    /// Runs a screen, and returns the core.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub fn run(
        self,
        kernel: &KernelProgram,
        call: ScreenCall<'_>,
        limit: Option<u64>,
    ) -> (Result<(), ScreenError>, Self) {
        let slot = Arc::new(Mutex::new(None));
        let processor = Box::new(Returning { hart: Some(self.hart), slot: slot.clone() });
        let (microblock, screen) = (kernel.table.microblocks[call.microblock].entry.clone(), call.screen);
        let done = match KernelCore::new(kernel, processor) {
            Ok(mut core) => core.run(kernel, call, limit, &AtomicBool::new(false)),
            Err(e) => Err(ScreenError::Memory { microblock, screen, what: e.to_string() }),
        };
        let hart = slot.lock().expect("no thread panics with it").take().expect("the processor was dropped");
        (done, Self { hart })
    }
}

impl<M: Meter> std::fmt::Debug for MeteredCore<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredCore").finish_non_exhaustive()
    }
}

/// A hart that goes back to its owner when it is dropped.
struct Returning<M: Meter> {
    hart: Option<Hart<Rv64, M>>,
    slot: Arc<Mutex<Option<Hart<Rv64, M>>>>,
}

impl<M: Meter> Returning<M> {
    fn hart(&self) -> &Hart<Rv64, M> {
        self.hart.as_ref().expect("it is there until it is dropped")
    }

    fn hart_mut(&mut self) -> &mut Hart<Rv64, M> {
        self.hart.as_mut().expect("it is there until it is dropped")
    }
}

impl<M: Meter> Drop for Returning<M> {
    fn drop(&mut self) {
        *self.slot.lock().expect("no thread panics with it") = self.hart.take();
    }
}

impl<M: Meter> Processor for Returning<M> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        self.hart_mut().start(entry, stack, argument);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.hart_mut().run(memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        self.hart().pc()
    }

    fn result(&self) -> i64 {
        self.hart().result()
    }

    fn instructions(&self) -> u64 {
        self.hart().instructions()
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
    (pc, result): (u64, i64),
    (number, screen): (usize, u64),
    limit: Option<u64>,
    bases: &[(i64, u64)],
) -> Result<(), ScreenError> {
    let (microblock, symbol) = (kernel.table.microblocks[number].entry.clone(), kernel.place(pc));
    match stop {
        Stop::Returned { .. } if result < 0 => Err(ScreenError::Status { microblock, screen, code: result }),
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
            let near = bases.iter().enumerate().filter(|(_, (base, window))| {
                let reach = if kernel.bits() == 32 { abi::WINDOW_BYTES } else { abi::SECTION_BYTES } / 2;
                (*base..base.saturating_add(reach as i64)).contains(&(trap.value as i64)) || *window == trap.value
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
