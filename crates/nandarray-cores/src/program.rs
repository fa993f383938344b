//! A loaded program: its segments, its symbols, its metadata, its entry points.

use nandarray_hart::{Extensions, Loaded, ProgramError};
use object::{Object, ObjectSection};

use crate::abi;
use crate::error::LoadError;
use crate::metadata::Metadata;

/// An entry point of a program: a function that a core calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// `nd_begin`: called once for each state, before the state's first task.
    Begin,
    /// `nd_block` or `nd_stream`: called once for each task.
    Task,
    /// `nd_merge`: folds one state into another.
    Merge,
    /// `nd_end`: called once, after all tasks.
    End,
}

/// A program that cores can run.
#[derive(Clone, Debug)]
pub struct Program {
    metadata: Metadata,
    image: nandarray_hart::ElfProgram,
    begin: Option<u64>,
    task: u64,
    merge: Option<u64>,
    end: Option<u64>,
}

impl Program {
    /// Loads a program from an ELF.
    ///
    /// `metadata` replaces the metadata in the file: Python fills in the record sizes of NumPy's structured dtypes.
    ///
    /// # Errors
    /// [`LoadError`]: the file is no ELF for a hart, its metadata are wrong, a function is missing, or it is too large.
    pub fn from_elf(elf: &[u8], metadata: Option<&[u8]>) -> Result<Self, LoadError> {
        let image = nandarray_hart::ElfProgram::from_elf(elf, Extensions::PROGRAM_VECTOR)?;
        let metadata = match metadata {
            Some(text) => Metadata::parse(text)?,
            None => {
                let file = object::File::parse(elf).map_err(|e| LoadError::Metadata(e.to_string()))?;
                let section = file.section_by_name(abi::SECTION);
                let text = section.and_then(|s| s.data().ok());
                Metadata::parse(
                    text.ok_or_else(|| LoadError::Metadata(format!("there is no section {}", abi::SECTION)))?,
                )?
            }
        };
        metadata.check_entries(|name| image.symbol(name).is_some())?;
        let name = metadata.kind.task_entry();
        let task = image.symbol(name).ok_or(LoadError::Entry(name))?;
        let [begin, merge, end] = ["nd_begin", "nd_merge", "nd_end"].map(|n| image.symbol(n));
        let program = Self { metadata, image, begin, task, merge, end };
        program.load()?;
        Ok(program)
    }

    /// Returns the program's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the register width: 32 or 64.
    pub fn bits(&self) -> u32 {
        self.image.bits
    }

    /// Returns the extensions that a hart must have to run the program: vectors only if the program's architecture
    /// string names them.
    pub fn extensions(&self) -> Extensions {
        self.image.extensions
    }

    /// Returns the program's ELF: its segments and symbols.
    pub fn image(&self) -> &nandarray_hart::ElfProgram {
        &self.image
    }

    /// Returns the address of an entry point; `None` if the program does not define it.
    pub fn entry(&self, entry: EntryPoint) -> Option<u64> {
        match entry {
            EntryPoint::Begin => self.begin,
            EntryPoint::Task => Some(self.task),
            EntryPoint::Merge => self.merge,
            EntryPoint::End => self.end,
        }
    }

    /// Returns the name of an entry point's function.
    pub fn entry_name(&self, entry: EntryPoint) -> &'static str {
        match (entry, self.metadata.kind) {
            (EntryPoint::Begin, _) => "nd_begin",
            (EntryPoint::Task, kind) => kind.task_entry(),
            (EntryPoint::Merge, _) => "nd_merge",
            (EntryPoint::End, _) => "nd_end",
        }
    }

    /// Returns the function at a program counter with the distance from its beginning; the address in hexadecimal if it
    /// is not in code.
    pub fn place(&self, pc: u64) -> String {
        let mut code = self.image.segments.iter().filter(|s| s.executable);
        let inside = code.any(|s| (s.address..s.address + s.length).contains(&pc));
        self.image
            .symbol_at(pc)
            .filter(|_| inside)
            .map_or_else(|| format!("{pc:#x}"), |(name, by)| format!("{name}+{by:#x}"))
    }

    /// Builds the memory with which a worker begins: segments, stack, argument block, scratchpad.
    pub(crate) fn load(&self) -> Result<Loaded, LoadError> {
        lay_out(&self.image, self.metadata.memory_bytes, self.metadata.scratchpad())
    }
}

/// Builds the memory of a core: the image's segments and a stack in `memory_bytes` of program memory, the argument
/// block and the scratchpad.
pub(crate) fn lay_out(
    image: &nandarray_hart::ElfProgram,
    memory_bytes: u64,
    scratchpad_bytes: u64,
) -> Result<Loaded, LoadError> {
    if let Some(low) = image.segments.iter().find(|s| s.address < abi::IMAGE_ADDRESS) {
        return Err(ProgramError::Segment { address: low.address, bytes: low.length }.into());
    }
    let last = image.segments.iter().map(|s| s.address + s.length).max().unwrap_or(0);
    let last = last.checked_next_multiple_of(16).unwrap_or(last);
    let end = abi::IMAGE_ADDRESS + memory_bytes;
    if last >= end {
        return Err(LoadError::TooLarge { needed: last.saturating_sub(abi::IMAGE_ADDRESS), memory: memory_bytes });
    }
    let mut loaded = image.load(end - last, None)?;
    loaded.memory.add(abi::ARGS_ADDRESS, abi::ARGS_BYTES)?;
    loaded.memory.add(abi::SCRATCHPAD_ADDRESS, scratchpad_bytes)?;
    Ok(loaded)
}
