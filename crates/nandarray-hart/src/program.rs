//! A program from an ELF file: its segments and symbols, and the check that a hart can run it.
//!
//! Only static executables are supported: nothing is relocated. All segments are loaded into one memory region, with
//! the stack after them, since access to one region is fastest. Only code can be executed, and only segments that the
//! file declares writable can be written. The `object` crate parses ELF; the checks are done here.

use std::fmt;
use std::ops::Range;

use object::elf::{EF_RISCV_RVE, EM_RISCV, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, SHT_RISCV_ATTRIBUTES};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSymbol};

use crate::isa::{Extension, Extensions};
use crate::memory::{Memory, MemoryError};

/// Largest distance in bytes from the lowest to the highest address of a program.
pub const SPAN_MAX: u64 = 1 << 30;
/// The symbol that marks programs with VarVE instructions.
const VARVE: &str = "nd_uses_varve";
/// Tag of the architecture string among the attributes of a `.riscv.attributes` section.
const TAG_ARCH: u64 = 5;

/// The reason why a file is not a program for a hart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// The file is not an ELF file, or damaged; the text explains why.
    NotElf(String),
    /// The file is for another machine than RISC-V.
    NotRiscv {
        /// Number of that machine in ELF.
        machine: u16,
    },
    /// The file is relocatable, a shared library, or needs a loader.
    NotStatic,
    /// The file has no segment with bytes in memory.
    Nothing,
    /// No segment of the file may be read, written or executed.
    NoAccess,
    /// The program needs this extension, which the hart lacks.
    Extension(String),
    /// A segment is invalid, overlaps another one, or is too large.
    Segment {
        /// First address of the segment.
        address: u64,
        /// Length of the segment in memory, in bytes.
        bytes: u64,
    },
    /// The program's memory cannot be laid out.
    Memory(MemoryError),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf(why) => write!(f, "not an ELF file: {why}"),
            Self::NotRiscv { machine } => write!(f, "ELF for machine {machine}, not RISC-V (243)"),
            Self::NotStatic => f.write_str("not a static executable"),
            Self::Nothing => f.write_str("no segment to load"),
            Self::NoAccess => f.write_str("no segment may be read, written or executed"),
            Self::Extension(name) => write!(f, "needs the extension {name}, which the hart lacks"),
            Self::Segment { address, bytes } => write!(f, "a segment of {bytes} bytes at {address:#x} makes no sense"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ProgramError {}

impl From<MemoryError> for ProgramError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

impl From<object::Error> for ProgramError {
    fn from(error: object::Error) -> Self {
        Self::NotElf(error.to_string())
    }
}

/// A segment of a program: bytes that are loaded at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSegment {
    /// First address of the segment.
    pub address: u64,
    /// The segment's bytes in the file.
    pub bytes: Vec<u8>,
    /// Length of the segment in memory, in bytes; the bytes after those of the file are zero.
    pub length: u64,
    /// Whether the program may write to the segment.
    pub writable: bool,
    /// Whether the program may execute the segment.
    pub executable: bool,
}

/// The choice of the segments of a file that are loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Segments with at least one right (read, write, execute), for programs, whose accesses are checked against these
    /// rights.
    Accessible,
    /// All segments, for bare machines, which set up the protection of memory themselves. Linkers give a segment no
    /// rights if `FLAGS` in the linker script names none.
    #[cfg(feature = "bare")]
    All,
}

/// A program that a hart can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfProgram {
    /// Register width: 32 or 64.
    pub bits: u32,
    /// The extensions that a hart for the program needs: those of all programs, and the vector extensions that its
    /// architecture string names.
    pub extensions: Extensions,
    /// Address of the first instruction.
    pub entry: u64,
    /// The extensions in the file's architecture string; `None` if the file has none.
    pub declared: Option<Extensions>,
    /// The loaded segments, in order of addresses.
    pub segments: Vec<ProgramSegment>,
    /// Addresses and names of symbols, in order of addresses.
    symbols: Vec<(u64, String)>,
}

/// A program in memory, ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// A memory with one region that contains all segments and the stack.
    pub memory: Memory<'static>,
    /// The end of the stack: the address after its last byte.
    pub stack: u64,
}

impl ElfProgram {
    /// Parses an ELF file as a program for a hart with `extensions`.
    ///
    /// # Errors
    /// [`ProgramError`], except `Memory`.
    pub fn from_elf(bytes: &[u8], extensions: Extensions) -> Result<Self, ProgramError> {
        Self::from_elf_wanted(bytes, extensions, Wanted::Accessible)
    }

    /// Parses an ELF file for a bare machine. All segments are loaded, whatever their rights; a segment without any may
    /// be read, written and executed.
    ///
    /// # Errors
    /// [`ProgramError`], except `NoAccess` and `Memory`.
    #[cfg(feature = "bare")]
    pub fn from_elf_bare(bytes: &[u8], extensions: Extensions) -> Result<Self, ProgramError> {
        Self::from_elf_wanted(bytes, extensions, Wanted::All)
    }

    fn from_elf_wanted(bytes: &[u8], extensions: Extensions, wanted: Wanted) -> Result<Self, ProgramError> {
        match bytes.get(4) {
            Some(1) => Self::read::<object::elf::FileHeader32<Endianness>>(bytes, 32, extensions, wanted),
            _ => Self::read::<object::elf::FileHeader64<Endianness>>(bytes, 64, extensions, wanted),
        }
    }

    fn read<E: FileHeader<Endian = Endianness>>(
        bytes: &[u8],
        bits: u32,
        extensions: Extensions,
        wanted: Wanted,
    ) -> Result<Self, ProgramError> {
        let file = ElfFile::<E>::parse(bytes)?;
        let (header, endian) = (file.elf_header(), file.endian());
        let machine = header.e_machine(endian);
        if machine != EM_RISCV {
            return Err(ProgramError::NotRiscv { machine: machine.0 });
        }
        if endian != Endianness::Little {
            return Err(ProgramError::NotElf("big-endian".into()));
        }
        let interpreted = file.elf_program_headers().iter().any(|p| p.p_type(endian) == PT_INTERP);
        if header.e_type(endian) != object::elf::ET_EXEC || interpreted {
            return Err(ProgramError::NotStatic);
        }
        if header.e_flags(endian).0 & EF_RISCV_RVE.0 != 0 {
            return Err(ProgramError::Extension("E".into()));
        }
        let mut declared = None;
        for section in file.elf_section_table().iter() {
            if section.sh_type(endian) == SHT_RISCV_ATTRIBUTES {
                if let Some(arch) = section.data(endian, bytes).ok().and_then(architecture) {
                    declared = Some(require(arch, bits, extensions)?);
                }
            }
        }
        let mut segments = Vec::new();
        let mut inaccessible = false;
        for segment in file.elf_program_headers().iter().filter(|p| p.p_type(endian) == PT_LOAD) {
            let (address, length): (u64, u64) = (segment.p_vaddr(endian).into(), segment.p_memsz(endian).into());
            let wrong = ProgramError::Segment { address, bytes: length };
            let data = segment.data(endian, bytes).map_err(|()| wrong.clone())?;
            let end = address.checked_add(length).filter(|end| bits == 64 || *end <= 1 << 32);
            if data.len() as u64 > length || end.is_none() || length > SPAN_MAX {
                return Err(wrong);
            }
            if length == 0 {
                continue;
            }
            let rights = segment.p_flags(endian).0 & (PF_R.0 | PF_W.0 | PF_X.0);
            if rights == 0 && wanted == Wanted::Accessible {
                inaccessible = true;
                continue;
            }
            let may = |right: u32| rights == 0 || rights & right != 0;
            let (writable, executable) = (may(PF_W.0), may(PF_X.0));
            segments.push(ProgramSegment { address, bytes: data.to_vec(), length, writable, executable });
        }
        segments.sort_by_key(|s| s.address);
        if let Some(pair) = segments.windows(2).find(|pair| pair[0].address + pair[0].length > pair[1].address) {
            return Err(ProgramError::Segment { address: pair[1].address, bytes: pair[1].length });
        }
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Err(if inaccessible { ProgramError::NoAccess } else { ProgramError::Nothing });
        };
        if last.address + last.length - first.address > SPAN_MAX {
            return Err(ProgramError::Segment { address: last.address, bytes: last.length });
        }
        let named = file.symbols().filter(|s| s.is_definition() || s.kind() == object::SymbolKind::Label);
        let mut symbols: Vec<(u64, String)> =
            named.filter_map(|s| Some((s.address(), s.name().ok().filter(|n| !n.is_empty())?.to_owned()))).collect();
        symbols.sort();
        let varve = file.symbols().any(|s| s.name() == Ok(VARVE));
        let asked = with_varve(declared.unwrap_or(Extensions::PROGRAM), varve, extensions)?;
        Ok(Self { bits, extensions: asked, entry: header.e_entry(endian).into(), declared, segments, symbols })
    }

    /// Returns the address of the symbol `name`; `None` if the file does not define it.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|s| s.1 == name).map(|s| s.0)
    }

    /// Returns the last symbol at or before an address, and the distance from it in bytes; `None` if there is none.
    pub fn symbol_at(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.symbols.partition_point(|s| s.0 <= address);
        // Mapping symbols such as `$x` are skipped.
        let named = self.symbols[..behind].iter().rev().find(|s| !s.1.starts_with(['$', '.']))?;
        Some((&named.1, address - named.0))
    }

    /// Returns the names and addresses of all symbols, in order of addresses.
    pub fn symbols(&self) -> impl Iterator<Item = (&str, u64)> {
        self.symbols.iter().map(|(address, name)| (name.as_str(), *address))
    }

    /// Loads the program into a new memory of at most `limit` bytes, with a stack of `stack_bytes` after the last
    /// segment.
    ///
    /// # Errors
    /// [`ProgramError::Memory`], [`ProgramError::Segment`].
    pub fn load(&self, stack_bytes: u64, limit: Option<u64>) -> Result<Loaded, ProgramError> {
        let range = self.hull(|_| true).unwrap_or(0..0);
        let end = range.end.checked_next_multiple_of(16);
        let stack = end.and_then(|end| end.checked_add(stack_bytes.checked_next_multiple_of(16)?));
        let stack = stack.ok_or(MemoryError::Overlap { base: range.end, bytes: stack_bytes })?;
        let range = range.start..stack;
        let bytes = range.end - range.start;
        if self.bits == 32 && range.end > 1 << 32 {
            return Err(MemoryError::Overlap { base: range.start, bytes }.into());
        }
        let mut memory = limit.map_or_else(Memory::new, Memory::with_limit);
        let executable = self.hull(|s| s.executable).unwrap_or(0..0);
        // Writable: from the first writable segment to the end of the stack, gaps included. No read-only segment may
        // lie in it.
        let last = self.segments.last().map_or(range.start, |s| s.address + s.length);
        let writable = self.hull(|s| s.writable).map_or(last, |w| w.start)..range.end;
        if let Some(fixed) = self.segments.iter().find(|s| !s.writable && s.address >= writable.start) {
            return Err(ProgramError::Segment { address: fixed.address, bytes: fixed.length });
        }
        debug_assert!(
            range.start <= executable.start || executable.is_empty(),
            "code at {executable:x?} before {range:x?}"
        );
        debug_assert_eq!(range.end % 16, 0, "the stack pointer is a multiple of 16");
        memory.add_program(range.start, bytes, writable, executable)?;
        for segment in &self.segments {
            let to = segment.address..segment.address + segment.bytes.len() as u64;
            memory.get_mut(to)?.copy_from_slice(&segment.bytes);
        }
        Ok(Loaded { memory, stack: range.end & !15 })
    }

    /// Returns the addresses from the beginning of the first to the end of the last `wanted` segment; `None` without
    /// one.
    fn hull(&self, wanted: impl Fn(&ProgramSegment) -> bool) -> Option<Range<u64>> {
        let mut found = self.segments.iter().filter(|s| wanted(s));
        let first = found.next()?;
        let last = found.last().unwrap_or(first);
        Some(first.address..last.address + last.length)
    }
}

/// Finds the architecture string in a `.riscv.attributes` section; `None` if it has none.
fn architecture(section: &[u8]) -> Option<&str> {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let (first, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    fn text<'b>(bytes: &mut &'b [u8]) -> Option<&'b str> {
        let end = bytes.iter().position(|b| *b == 0)?;
        let text = std::str::from_utf8(&bytes[..end]).ok()?;
        *bytes = &bytes[end + 1..];
        Some(text)
    }
    // Format version, length and vendor, then sub-sections with tag and length; the first must be that of the whole
    // file.
    let mut bytes = section.strip_prefix(b"A")?.get(4..)?;
    if text(&mut bytes)? != "riscv" || number(&mut bytes)? != 1 {
        return None;
    }
    bytes = bytes.get(4..)?;
    while !bytes.is_empty() {
        let tag = number(&mut bytes)?;
        // Attributes with odd tags are strings, those with even tags are numbers.
        if tag % 2 == 0 {
            number(&mut bytes)?;
        } else {
            let value = text(&mut bytes)?;
            if tag == TAG_ARCH {
                return Some(value);
            }
        }
    }
    None
}

/// Returns the extensions that a program with the `declared` ones needs: also VarVE, if the program `defines` the
/// symbol [`VARVE`], since compilers have no name for it in architecture strings. Fails if the hart's `extensions` lack
/// any.
fn with_varve(declared: Extensions, defines: bool, extensions: Extensions) -> Result<Extensions, ProgramError> {
    let asked = Extensions::PROGRAM.with_vectors_of(declared);
    if !defines {
        return Ok(asked);
    }
    let (_, varve) = Extensions::parse("rv64i_xvarve").expect("a known architecture");
    let all = asked.with_vectors_of(varve.with_vlen(asked.vlen()));
    match lacking(varve, extensions).or_else(|| lacking(all, extensions)) {
        Some(missing) => Err(ProgramError::Extension(missing)),
        None => Ok(all),
    }
}

/// Returns the name of the first needed extension that a hart lacks; `None` if it lacks none. If only vector extensions
/// are missing, it is the last of them, which contains the others.
fn lacking(needed: Extensions, extensions: Extensions) -> Option<String> {
    let missing = || needed.beyond(extensions);
    match missing().find(|first| *first < Extension::Zve32x).or_else(|| missing().last())? {
        Extension::Varve => Some("xvarve".to_owned()),
        other => Some(format!("{other:?}").to_lowercase()),
    }
}

/// Parses an architecture string such as `rv64i2p1_m2p0`; fails unless a hart of `bits` bits with `extensions` has all
/// of its extensions.
fn require(arch: &str, bits: u32, extensions: Extensions) -> Result<Extensions, ProgramError> {
    let (width, needed) = Extensions::parse(arch).map_err(ProgramError::Extension)?;
    if width != bits {
        return Err(ProgramError::Extension(arch.to_owned()));
    }
    match lacking(needed, extensions) {
        Some(missing) => Err(ProgramError::Extension(missing)),
        None => Ok(needed),
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
