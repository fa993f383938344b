//! Loaded kernels, and what a submission asks for.

use std::sync::Arc;

use nandarray::{Share, SharedRange, SpaceId};
use nandarray_cores::LoadError;
use nandarray_cores::kernel::{KernelCore, KernelFunctions, KernelProgram, SectionRole};
use nandarray_jit::Translations;

use crate::error::{Error, Result};
use crate::request::Input;
use crate::schedule::KernelFacts;
use crate::session::board::BoardKernel;

/// A kernel with its translations, shared by all sessions that run it.
#[derive(Debug)]
pub struct LoadedKernel {
    pub(crate) program: KernelProgram,
    translations: Translations,
}

/// The way in which a kernel is executed.
#[derive(Clone, Debug, Default)]
pub enum KernelForm {
    /// Instruction by instruction: the reference.
    Interpreted,
    /// As host code made from its instructions.
    #[default]
    Translated,
    /// As functions of this process.
    Native(KernelFunctions),
}

impl LoadedKernel {
    /// Reads an ELF and its description table.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn new(elf: &[u8], table: &[u8]) -> Result<Self> {
        let program = KernelProgram::from_elf(elf, table).map_err(|e| Error::Program(Box::new(e)))?;
        let translations = Translations::new(program.bits());
        Ok(Self { program, translations })
    }

    /// Its program and description table.
    pub fn program(&self) -> &KernelProgram {
        &self.program
    }

    pub(crate) fn core(&self, form: &KernelForm) -> std::result::Result<KernelCore, LoadError> {
        match form {
            KernelForm::Interpreted => KernelCore::interpreter(&self.program),
            KernelForm::Translated => KernelCore::new(&self.program, self.translations.run().processor()),
            KernelForm::Native(functions) => Ok(KernelCore::native(&self.program, functions.clone())),
        }
    }
}

/// A box of a space that a section begins as, or replaces.
#[derive(Clone, Debug)]
pub struct SectionBox {
    /// The space.
    pub space: SpaceId,
    /// First coordinate.
    pub start: Vec<u64>,
    /// Distances, at least 1; all 1 for an output.
    pub step: Vec<u64>,
    /// Elements.
    pub count: Vec<u64>,
    /// Shape of the view; `None` is the space itself.
    pub view: Option<Vec<u64>>,
}

impl SectionBox {
    pub(crate) fn input(&self) -> Input<'_> {
        let view = self.view.as_deref();
        Input::Box { space: self.space, start: &self.start, step: &self.step, count: &self.count, view, tiles: None }
    }

    /// Its elements as a range, the last dimension fastest; all of the space for views.
    fn range(&self, shape: Option<&[u64]>, share: Share) -> SharedRange {
        let space = u64::from(self.space);
        let Some(shape) = shape.filter(|s| self.view.is_none() && s.len() == self.count.len()) else {
            return SharedRange { space, first: 0, last: u64::MAX, share };
        };
        let flat = |at: &dyn Fn(usize) -> u64| {
            (0..shape.len()).fold(0u64, |all, d| all.saturating_mul(shape[d]).saturating_add(at(d)))
        };
        let first = flat(&|d| self.start[d]);
        let last = flat(&|d| self.start[d] + self.step[d] * self.count[d].saturating_sub(1));
        SharedRange { space, first, last: last.max(first), share }
    }
}

/// The bytes that a section begins as.
#[derive(Clone, Debug, Default)]
pub enum SectionSource {
    /// Zeros.
    #[default]
    Zeros,
    /// The caller's.
    Bytes(Arc<Vec<u8>>),
    /// The store's.
    Box(SectionBox),
}

/// The destination of a section at the end.
#[derive(Clone, Debug, Default)]
pub enum SectionTarget {
    /// It is dropped.
    #[default]
    Nowhere,
    /// It is returned.
    Collect,
    /// It is written to the store.
    Box(SectionBox),
}

/// A section of one submission.
#[derive(Clone, Debug, Default)]
pub struct SectionBinding {
    /// Its shape in elements.
    pub shape: Vec<u64>,
    /// The bytes that it begins as.
    pub source: SectionSource,
    /// Its destination.
    pub target: SectionTarget,
}

/// A submission of a kernel.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// The kernel.
    pub kernel: Arc<LoadedKernel>,
    /// The way in which it is executed.
    pub form: KernelForm,
    /// Its sections, in the order of its table.
    pub sections: Vec<SectionBinding>,
    /// Bit patterns.
    pub scalars: Vec<u64>,
    /// A name by which other kernels of the session may depend on it; empty is none.
    pub name: String,
    /// Application, priority, deadline and work; the number is the session's.
    pub facts: KernelFacts,
    /// Numbers of kernels that end before it begins.
    pub after: Vec<u64>,
    /// The same by name.
    pub after_names: Vec<String>,
    /// The most instructions of a screen; `None` is no limit.
    pub instructions: Option<u64>,
}

impl KernelRequest {
    pub(crate) fn section_bytes(&self, section: usize) -> u64 {
        let item = self.kernel.program.table.sections[section].item_bytes;
        self.sections[section].shape.iter().fold(item, |all, n| all.saturating_mul(*n))
    }

    pub(crate) fn rows(&self, section: usize) -> u64 {
        self.sections[section].shape.first().copied().unwrap_or(1)
    }

    /// Whether a section stays in the store, and screens read their windows.
    pub(crate) fn is_windowed(&self, section: usize) -> bool {
        let table = &self.kernel.program.table;
        let whole = nandarray_cores::kernel::MappedPart::Word(nandarray_cores::kernel::PartWord::All);
        table.sections[section].role == SectionRole::Input
            && matches!(self.sections[section].source, SectionSource::Box(_))
            && !table.microblocks.iter().any(|m| m.mapped(section) == Some(whole))
    }

    /// Bytes that come from the caller, and those that come from the store.
    pub fn bytes_in(&self) -> (u64, u64) {
        let (mut given, mut stored) = (0, 0);
        for (number, binding) in self.sections.iter().enumerate() {
            match &binding.source {
                SectionSource::Zeros => {}
                SectionSource::Bytes(bytes) => given += bytes.len() as u64,
                SectionSource::Box(_) => stored += self.section_bytes(number),
            }
        }
        (given, stored)
    }

    /// Bytes that go to the caller, and those that go to the store.
    pub fn bytes_out(&self) -> (u64, u64) {
        let (mut collected, mut stored) = (0, 0);
        for (number, binding) in self.sections.iter().enumerate() {
            match &binding.target {
                SectionTarget::Nowhere => {}
                SectionTarget::Collect => collected += self.section_bytes(number),
                SectionTarget::Box(_) => stored += self.section_bytes(number),
            }
        }
        (collected, stored)
    }

    /// Bytes of the store that a screen brings: windows of inputs that stay there, and its share of sections that
    /// are mapped whole, in the first microblock that maps them.
    pub fn screen_bytes(&self, microblock: usize, screen: u64, screens: u64) -> u64 {
        let table = &self.kernel.program.table;
        let mut all = 0;
        for number in 0..self.sections.len() {
            let Some(part) = table.microblocks[microblock].mapped(number) else { continue };
            if !matches!(self.sections[number].source, SectionSource::Box(_)) {
                continue;
            }
            let (rows, bytes) = (self.rows(number), self.section_bytes(number));
            if self.is_windowed(number) {
                let mapped = part.rows(rows, screen, screens);
                all += (mapped.end - mapped.start) * bytes.checked_div(rows).unwrap_or(0);
            } else if !table.microblocks[..microblock].iter().any(|earlier| earlier.mapped(number).is_some()) {
                all += bytes / screens;
            }
        }
        all
    }

    /// Checks bindings against the table, and describes the kernel for a board. `shape` tells the shape of a space.
    ///
    /// # Errors
    /// [`Error::Engine`]: bindings do not fit.
    pub fn board(&self, window_bytes: u64, shape: impl Fn(SpaceId) -> Option<Vec<u64>>) -> Result<BoardKernel> {
        let table = &self.kernel.program.table;
        let invalid = |what: String| Err(Error::invalid(format!("kernel {}: {what}", table.name)));
        if self.sections.len() != table.sections.len() || self.scalars.len() != table.scalars {
            let (got, scalars) = (self.sections.len(), self.scalars.len());
            let (want, of) = (table.sections.len(), table.scalars);
            return invalid(format!("{got} sections and {scalars} scalars; it has {want} and {of}"));
        }
        let (mut ranges, mut bytes) = (Vec::new(), 0u64);
        for (number, binding) in self.sections.iter().enumerate() {
            let size = self.section_bytes(number);
            if let SectionSource::Bytes(given) = &binding.source {
                if given.len() as u64 != size {
                    let name = &table.sections[number].name;
                    return invalid(format!("{} bytes for section {name} of {size}", given.len()));
                }
            }
            let elements = |b: &SectionBox| b.count.iter().product::<u64>() == binding.shape.iter().product::<u64>();
            if let SectionSource::Box(from) = &binding.source {
                if !elements(from) {
                    return invalid(format!("section {} has another number of elements", table.sections[number].name));
                }
                ranges.push(from.range(shape(from.space).as_deref(), Share::Shared));
            }
            if let SectionTarget::Box(to) = &binding.target {
                if !elements(to) {
                    return invalid(format!("section {} has another number of elements", table.sections[number].name));
                }
                ranges.push(to.range(shape(to.space).as_deref(), Share::Exclusive));
            }
            let own =
                !matches!(binding.source, SectionSource::Bytes(_)) || table.sections[number].role != SectionRole::Input;
            bytes = bytes.saturating_add(if self.is_windowed(number) {
                size.min(window_bytes)
            } else {
                u64::from(own) * size
            });
        }
        let microblocks = (0..table.microblocks.len()).map(|m| self.screens(m, window_bytes)).collect();
        let (name, facts) = (self.name.clone(), self.facts.clone());
        let (after, after_names) = (self.after.clone(), self.after_names.clone());
        Ok(BoardKernel { name, facts, after, after_names, microblocks, ranges, bytes })
    }

    /// The fewest and the most screens of a microblock: windows of sections in the store stay below `window_bytes`.
    fn screens(&self, microblock: usize, window_bytes: u64) -> (u64, u64) {
        let table = &self.kernel.program.table;
        let block = &table.microblocks[microblock];
        let most = block.screens(table, u64::MAX, |section| self.rows(section));
        let mapped = (0..table.sections.len()).filter(|s| block.mapped(*s).is_some() && self.is_windowed(*s));
        let largest = mapped.map(|s| self.section_bytes(s)).max().unwrap_or(0);
        (largest.div_ceil(window_bytes.max(1)).clamp(1, most.max(1)), most.max(1))
    }
}
