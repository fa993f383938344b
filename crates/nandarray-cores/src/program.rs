//! A loaded program: its segments, its symbols, its metadata, its entry points.

use nandarray_hart::{Extensions, Loaded};
use object::{Object, ObjectSection};

use crate::abi;
use crate::error::LoadError;
use crate::metadata::{Metadata, ProgramKind};

/// An entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// Once a state, before its first task.
    Begin,
    /// Once a task.
    Task,
    /// Folds one state into another.
    Merge,
    /// Once, at the end.
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
    /// Read an ELF.
    ///
    /// `metadata` replaces that in the file: Python resolves the record sizes of NumPy's structured dtypes in it.
    ///
    /// # Errors
    /// [`LoadError`].
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
        let name = match metadata.kind {
            ProgramKind::Block => "nd_block",
            ProgramKind::Stream => "nd_stream",
        };
        let task = image.symbol(name).ok_or(LoadError::Entry(name))?;
        let [begin, merge, end] = ["nd_begin", "nd_merge", "nd_end"].map(|n| image.symbol(n));
        if metadata.outputs.iter().any(|o| o.phase == crate::metadata::OutputPhase::End) && end.is_none() {
            return Err(LoadError::Entry("nd_end"));
        }
        let program = Self { metadata, image, begin, task, merge, end };
        program.load()?;
        Ok(program)
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Register width: 32 or 64.
    pub fn bits(&self) -> u32 {
        self.image.bits
    }

    /// The extensions that a hart for it has: vectors only if its architecture string names them.
    pub fn extensions(&self) -> Extensions {
        self.image.extensions
    }

    /// The segments and symbols.
    pub fn image(&self) -> &nandarray_hart::ElfProgram {
        &self.image
    }

    /// The address of an entry point, if it has it.
    pub fn entry(&self, entry: EntryPoint) -> Option<u64> {
        match entry {
            EntryPoint::Begin => self.begin,
            EntryPoint::Task => Some(self.task),
            EntryPoint::Merge => self.merge,
            EntryPoint::End => self.end,
        }
    }

    /// The name of an entry point.
    pub fn entry_name(&self, entry: EntryPoint) -> &'static str {
        match (entry, self.metadata.kind) {
            (EntryPoint::Begin, _) => "nd_begin",
            (EntryPoint::Task, ProgramKind::Block) => "nd_block",
            (EntryPoint::Task, ProgramKind::Stream) => "nd_stream",
            (EntryPoint::Merge, _) => "nd_merge",
            (EntryPoint::End, _) => "nd_end",
        }
    }

    /// The function at a program counter and the distance from its beginning; the number itself outside of code.
    pub fn place(&self, pc: u64) -> String {
        let mut code = self.image.segments.iter().filter(|s| s.executable);
        let inside = code.any(|s| (s.address..s.address + s.length).contains(&pc));
        self.image
            .symbol_at(pc)
            .filter(|_| inside)
            .map_or_else(|| format!("{pc:#x}"), |(name, by)| format!("{name}+{by:#x}"))
    }

    /// Memory as a worker begins: segments, stack, argument block, scratchpad.
    pub(crate) fn load(&self) -> Result<Loaded, LoadError> {
        let last = self.image.segments.iter().map(|s| s.address + s.length).max().unwrap_or(0).next_multiple_of(16);
        let first = self.image.segments.iter().map(|s| s.address).min().unwrap_or(0);
        let end = abi::IMAGE_ADDRESS + self.metadata.memory_bytes;
        if first < abi::IMAGE_ADDRESS || last >= end {
            let needed = last.saturating_sub(abi::IMAGE_ADDRESS);
            return Err(LoadError::TooLarge { needed, memory: self.metadata.memory_bytes });
        }
        let mut loaded = self.image.load(end - last, None)?;
        loaded.memory.add(abi::ARGS_ADDRESS, abi::ARGS_BYTES)?;
        loaded.memory.add(abi::SCRATCHPAD_ADDRESS, self.metadata.scratchpad())?;
        Ok(loaded)
    }
}
