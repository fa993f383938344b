//! Loaded kernels, and the requests by which they are submitted.

use std::sync::Arc;

use nandarray::{Device, Share, SharedRange, SpaceId};
use nandarray_cores::kernel::{DataSection, KernelCore, KernelFunctions, KernelProgram, SectionRole, share};
use nandarray_cores::{ElementType, LoadError};
use nandarray_jit::Translations;

use crate::error::{Error, Result};
use crate::request::Input;
use crate::schedule::KernelFacts;
use crate::session::board::BoardKernel;

/// A loaded kernel with its translations, shared by all sessions that run the kernel.
#[derive(Debug)]
pub struct LoadedKernel {
    pub(crate) program: KernelProgram,
    translations: Translations,
}

/// The way in which a kernel is executed.
#[derive(Clone, Debug, Default)]
pub enum KernelForm {
    /// Instruction by instruction, by the interpreter: the reference for the other forms.
    Interpreted,
    /// As host code that is translated from the kernel's instructions.
    #[default]
    Translated,
    /// As functions of this process, in place of the kernel's instructions.
    Native(KernelFunctions),
}

impl LoadedKernel {
    /// Reads the ELF file of a kernel and its description table.
    ///
    /// # Errors
    /// [`Error::Program`]: the ELF file or the table is invalid.
    pub fn new(elf: &[u8], table: &[u8]) -> Result<Self> {
        let program = KernelProgram::from_elf(elf, table).map_err(|e| Error::Program(Box::new(e)))?;
        let translations = Translations::new(program.bits());
        Ok(Self { program, translations })
    }

    /// Returns the kernel's program, with its description table.
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

/// A box of a space from which a section is read, or to which it is written.
#[derive(Clone, Debug, Default)]
pub struct SectionBox {
    /// Handle of the space.
    pub space: SpaceId,
    /// First coordinate along each dimension.
    pub start: Vec<u64>,
    /// Distance between elements along each dimension, at least 1; all 1 for an output.
    pub step: Vec<u64>,
    /// Number of elements along each dimension.
    pub count: Vec<u64>,
    /// Shape of the view of the space that the box lies in; `None` if it lies in the space itself.
    pub view: Option<Vec<u64>>,
}

impl SectionBox {
    pub(crate) fn input(&self) -> Input<'_> {
        let view = self.view.as_deref();
        Input::Box { space: self.space, start: &self.start, step: &self.step, count: &self.count, view, tiles: None }
    }

    /// Returns the range of elements of the space that holds the box, last dimension fastest; the whole space for
    /// views.
    fn range(&self, shape: Option<&[u64]>, share: Share) -> SharedRange {
        let space = u64::from(self.space);
        let lengths = |s: &&[u64]| [self.start.len(), self.step.len(), self.count.len()] == [s.len(); 3];
        let Some(shape) = shape.filter(|s| self.view.is_none() && lengths(s)) else {
            return SharedRange { space, first: 0, last: u64::MAX, share };
        };
        let flat = |at: &dyn Fn(usize) -> u64| {
            (0..shape.len()).fold(0u64, |all, d| all.saturating_mul(shape[d]).saturating_add(at(d)))
        };
        let first = flat(&|d| self.start[d]);
        let last =
            flat(&|d| self.start[d].saturating_add(self.step[d].saturating_mul(self.count[d].saturating_sub(1))));
        SharedRange { space, first, last: last.max(first), share }
    }
}

/// The initial content of a section.
#[derive(Clone, Debug, Default)]
pub enum SectionSource {
    /// All bytes are zero.
    #[default]
    Zeros,
    /// Bytes of the caller.
    Bytes(Arc<Vec<u8>>),
    /// Elements of a space in the store.
    Box(SectionBox),
}

/// The destination of a section when its kernel is done.
#[derive(Clone, Debug, Default)]
pub enum SectionTarget {
    /// The section is dropped.
    #[default]
    Nowhere,
    /// The section is returned to the caller.
    Collect,
    /// The section is written to the store.
    Box(SectionBox),
}

/// The shape, initial content and destination of one section of a submission.
#[derive(Clone, Debug, Default)]
pub struct SectionBinding {
    /// Shape of the section, in elements.
    pub shape: Vec<u64>,
    /// Initial content of the section.
    pub source: SectionSource,
    /// Destination of the section when the kernel is done.
    pub target: SectionTarget,
}

impl SectionBinding {
    /// Returns the boxes of the binding: shared by readers where it begins, exclusive where it goes.
    fn boxes(&self) -> impl Iterator<Item = (&SectionBox, Share)> {
        let from = if let SectionSource::Box(from) = &self.source { Some((from, Share::Shared)) } else { None };
        let to = if let SectionTarget::Box(to) = &self.target { Some((to, Share::Exclusive)) } else { None };
        from.into_iter().chain(to)
    }

    /// Says in words why a box does not fit the section that it is bound to, which is read from it if `share` is shared
    /// and written to it otherwise; `None` if it fits. `array` is the text of the type of the box's space and the size
    /// of its elements in bytes, if there is such a space.
    fn misfit(
        &self,
        section: &DataSection,
        at: &SectionBox,
        share: Share,
        array: Option<(&str, u32)>,
    ) -> Option<String> {
        let (name, volume) = (&section.name, |n: &[u64]| n.iter().try_fold(1u64, |all, n| all.checked_mul(*n)));
        if volume(&at.count).is_none_or(|n| Some(n) != volume(&self.shape)) {
            return Some(format!("section {name} has another number of elements"));
        }
        let ((dtype, found_bytes), bytes) = (array?, section.item_bytes);
        let found = ElementType::parse_text(dtype);
        if let Some(wanted) = &section.element {
            let fits = match share {
                Share::Shared => wanted.takes(found.as_ref()),
                Share::Exclusive => wanted.fits(found.as_ref()),
            };
            if !fits {
                return Some(format!("section {name} has {wanted}; the array has {}", ElementType::shown(dtype)));
            }
        }
        let same = u64::from(found_bytes) == bytes;
        (!same).then(|| format!("elements of section {name} have {bytes} bytes; those of the array have {found_bytes}"))
    }
}

/// A request to run a kernel in a session.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// The kernel to be run.
    pub kernel: Arc<LoadedKernel>,
    /// The way in which the kernel is executed.
    pub form: KernelForm,
    /// Sections of the kernel, in the order of its description table.
    pub sections: Vec<SectionBinding>,
    /// Bit patterns of the kernel's scalar arguments.
    pub scalars: Vec<u64>,
    /// A name by which other kernels of the session may depend on this kernel; empty if it has none.
    pub name: String,
    /// Application, priority, deadline and work of the kernel; the session sets the number.
    pub facts: KernelFacts,
    /// Numbers of the kernels that must end before this kernel begins.
    pub after: Vec<u64>,
    /// Names of the kernels that must end before this kernel begins.
    pub after_names: Vec<String>,
    /// Limit of the instructions of one screen; `None` is no limit.
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

    /// Whether a section stays in the store, so that each screen reads only the window of it that the screen maps.
    pub(crate) fn is_windowed(&self, section: usize) -> bool {
        let table = &self.kernel.program.table;
        let whole = nandarray_cores::kernel::MappedPart::Word(nandarray_cores::kernel::PartWord::All);
        table.sections[section].role == SectionRole::Input
            && matches!(self.sections[section].source, SectionSource::Box(_))
            && !table.microblocks.iter().any(|m| m.mapped(section) == Some(whole))
    }

    /// Returns the bytes of sections that come from the caller, and the bytes that come from the store.
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

    /// Returns the bytes of sections that go to the caller, and the bytes that go to the store.
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

    /// Returns the number of bytes that a screen needs from the store: its windows of sections that stay there, and its
    /// share of whole sections in the first microblock that maps them.
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
                let share = share(bytes, screen, screens);
                all += share.end - share.start;
            }
        }
        all
    }

    /// Checks the bindings against the description table, and describes the kernel for a board, on the device of
    /// its boxes.
    ///
    /// # Errors
    /// [`Error::Engine`]: the bindings do not fit the kernel.
    pub fn board(&self, window_bytes: u64, device: &Device) -> Result<BoardKernel> {
        let table = &self.kernel.program.table;
        let invalid = |what: String| Err(Error::invalid(format!("kernel {}: {what}", table.name)));
        if self.sections.len() != table.sections.len() || self.scalars.len() != table.scalars {
            let (got, scalars) = (self.sections.len(), self.scalars.len());
            let (want, of) = (table.sections.len(), table.scalars);
            return invalid(format!("there must be {want} sections and {of} scalars, not {got} and {scalars}"));
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
            for (at, share) in binding.boxes() {
                // A space that is not there any more is an error of the first step that reads or writes it.
                let space = device.by_id(at.space).ok();
                let record = space.as_ref().map(|space| space.peek().record.clone());
                let array = record.as_ref().map(|record| (record.dtype.as_str(), record.item_bytes));
                if let Some(what) = binding.misfit(&table.sections[number], at, share, array) {
                    return invalid(what);
                }
                ranges.push(at.range(record.as_ref().map(|record| &record.shape[..]), share));
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

    /// Returns the fewest and the most screens of a microblock. With the fewest, a screen's window of a section in the
    /// store is about `window_bytes` bytes at most.
    fn screens(&self, microblock: usize, window_bytes: u64) -> (u64, u64) {
        let table = &self.kernel.program.table;
        let block = &table.microblocks[microblock];
        let most = block.screens(table, u64::MAX, |section| self.rows(section));
        let mapped = (0..table.sections.len()).filter(|s| block.mapped(*s).is_some() && self.is_windowed(*s));
        let largest = mapped.map(|s| self.section_bytes(s)).max().unwrap_or(0);
        (largest.div_ceil(window_bytes.max(1)).clamp(1, most.max(1)), most.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(shape: &[u64], start: &[u64], step: &[u64], count: &[u64]) -> (u64, u64) {
        let (start, step, count) = (start.to_vec(), step.to_vec(), count.to_vec());
        let found = SectionBox { space: 5, start, step, count, view: None }.range(Some(shape), Share::Shared);
        assert_eq!((found.space, found.share), (5, Share::Shared));
        (found.first, found.last)
    }

    #[test]
    fn a_box_has_the_sections_type_or_none_and_the_size_of_its_elements() {
        let binding = SectionBinding { shape: vec![4], ..SectionBinding::default() };
        let at = SectionBox { count: vec![4], ..SectionBox::default() };
        let misfit = |wanted: &str, item_bytes, share, array| {
            let (name, element) = ("x".to_owned(), ElementType::parse_text(wanted));
            let section = DataSection { name, item_bytes, element, role: SectionRole::Update };
            binding.misfit(&section, &at, share, Some(array))
        };
        for share in [Share::Shared, Share::Exclusive] {
            assert_eq!(misfit("<f8", 8, share, ("<f8", 8)), None);
            assert_eq!(misfit("<f8", 8, share, ("|V8", 8)), None, "elements without a type");
            let says = Some("section x has float64; the array has int64".to_owned());
            assert_eq!(misfit("<f8", 8, share, ("<i8", 8)), says);
            let says = Some("elements of section x have 8 bytes; those of the array have 512".to_owned());
            assert_eq!(misfit("<f8", 8, share, ("|V512", 512)), says);
            assert_eq!(misfit("", 8, share, ("|V512", 512)), says, "a section without a type");
        }
        // Plain bytes are read from elements of any type, and written to none.
        assert_eq!(misfit("|u1", 1, Share::Shared, ("|i1", 1)), None);
        let says = "section x has uint8; the array has int8".to_owned();
        assert_eq!(misfit("|u1", 1, Share::Exclusive, ("|i1", 1)), Some(says));
    }

    #[test]
    fn a_range_goes_from_the_first_to_the_last_element_of_its_box() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let shape: Vec<u64> = (0..rng.usize(1..4)).map(|_| rng.u64(1..6)).collect();
            let step: Vec<u64> = shape.iter().map(|_| rng.u64(1..4)).collect();
            let count: Vec<u64> = shape.iter().zip(&step).map(|(n, step)| rng.u64(1..=n.div_ceil(*step))).collect();
            let reach = |d: usize| step[d] * (count[d] - 1);
            let start: Vec<u64> = (0..shape.len()).map(|d| rng.u64(..shape[d] - reach(d))).collect();
            // Every element of the array that is one of the box, by its coordinates.
            let within = |element: &u64| {
                let mut rest = *element;
                (0..shape.len()).rev().all(|d| {
                    let at = rest % shape[d];
                    rest /= shape[d];
                    at >= start[d] && at - start[d] <= reach(d) && (at - start[d]).is_multiple_of(step[d])
                })
            };
            let all: Vec<u64> = (0..shape.iter().product()).filter(within).collect();
            let ends = (all[0], all[all.len() - 1]);
            assert_eq!(range(&shape, &start, &step, &count), ends, "seed {seed}: {start:?} {step:?} {count:?}");
        }
    }

    #[test]
    fn boxes_that_fit_no_space_lock_all_of_it_or_as_far_as_numbers_reach() {
        let all = (0, u64::MAX);
        assert_eq!(range(&[4, 4], &[1], &[1, 1], &[2, 2]), all, "a start of another length");
        assert_eq!(range(&[4, 4], &[1, 1], &[1], &[2, 2]), all, "a step of another length");
        assert_eq!(range(&[4, 4], &[1, 1], &[1, 1], &[2]), all, "a count of another length");
        assert_eq!(range(&[4], &[u64::MAX], &[u64::MAX], &[3]), (u64::MAX, u64::MAX));
        assert_eq!(range(&[4], &[3], &[1], &[0]), (3, 3), "an empty box");
        let whole = SectionBox { view: Some(vec![16]), ..SectionBox::default() };
        let found = whole.range(Some(&[4, 4]), Share::Exclusive);
        assert_eq!((found.first, found.last, found.share), (0, u64::MAX, Share::Exclusive), "a view");
    }
}
