//! The sections of a running kernel: read from the store, mapped for a screen, written at the end.
//!
//! A screen that writes a section works on a copy of its own rows, which is copied back when the screen ends; the only
//! screen of a microblock works on the section itself. Sections that a microblock only reads are shared by its screens.
//! An input of which every screen maps some rows only stays in the store: each screen reads its window.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nandarray::Device;
use nandarray_cores::kernel::{KernelCore, ScreenCall, ScreenError, SectionRole, SectionWindow, WindowBytes};
use parking_lot::RwLock;

use crate::error::{Error, Result};
use crate::inputs::InputReader;
use crate::io::{InputSource, OutputSink, TransferError};
use crate::outputs::{OutputWriter, spaces_of};
use crate::request::Output;
use crate::session::board::ScreenJob;
use crate::session::kernels::{KernelRequest, SectionSource, SectionTarget};

/// The sections of a mapped kernel, in the order of its description table.
#[derive(Debug)]
pub(crate) struct MappedSections {
    bytes: Vec<RwLock<SectionBytes>>,
}

#[derive(Debug)]
enum SectionBytes {
    /// The section stays in the store; each screen reads its window.
    Away,
    /// Bytes of the caller, which the kernel only reads.
    Shared(Arc<Vec<u8>>),
    /// Bytes that belong to the kernel, which may change them.
    Own(Vec<u8>),
}

impl SectionBytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Away => &[],
            Self::Shared(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

fn transfer(error: TransferError) -> Error {
    match error.downcast::<nandarray::Error>() {
        Ok(own) => Error::Engine(*own),
        Err(other) => Error::invalid(other.to_string()),
    }
}

/// Reads a range of the bytes of a section's box from the store.
fn read(device: &Device, source: &SectionSource, bytes: Range<u64>) -> Result<Vec<u8>> {
    let SectionSource::Box(from) = source else { unreachable!("only boxes are read") };
    let mut into = vec![0; (bytes.end - bytes.start) as usize];
    let into_ref = &mut into;
    device.compound(false, |compound| -> Result<()> {
        let input = from.input();
        let mut reader = InputReader::new(compound, None);
        let number = reader.add(&input, None)?;
        let has = reader.bytes(number);
        if bytes.end > has {
            return Err(Error::invalid(format!("a section is read up to byte {}; its box has {has}", bytes.end)));
        }
        reader.read(number, bytes.start, into_ref).map_err(transfer)
    })??;
    Ok(into)
}

impl MappedSections {
    /// Prepares the sections of a kernel: reads those that the kernel needs whole, and allocates or copies the others.
    pub(crate) fn map(device: &Device, request: &KernelRequest) -> Result<Self> {
        let table = &request.kernel.program().table;
        let mut all = Vec::new();
        for (number, binding) in request.sections.iter().enumerate() {
            let (size, role) = (request.section_bytes(number), table.sections[number].role);
            all.push(RwLock::new(match (&binding.source, role) {
                _ if request.is_windowed(number) => SectionBytes::Away,
                (SectionSource::Zeros, _) => SectionBytes::Own(zeros(size)?),
                (SectionSource::Bytes(bytes), SectionRole::Input) => SectionBytes::Shared(bytes.clone()),
                (SectionSource::Bytes(bytes), _) => SectionBytes::Own(bytes.to_vec()),
                (source @ SectionSource::Box(_), _) => SectionBytes::Own(read(device, source, 0..size)?),
            }));
        }
        Ok(Self { bytes: all })
    }

    /// Returns the range of a section's bytes that a screen maps; `None` if its microblock does not map the section.
    fn mapped_bytes(request: &KernelRequest, section: usize, job: ScreenJob) -> Option<Range<u64>> {
        let rows = request.rows(section);
        let row = request.section_bytes(section).checked_div(rows).unwrap_or(0);
        request.kernel.program().table.microblocks[job.microblock].mapped(section).map(|part| {
            let rows = part.rows(rows, job.screen, job.screens);
            rows.start * row..rows.end * row
        })
    }

    /// Copies the bytes that a screen may change; returns section number, range and bytes of each copy.
    pub(crate) fn save(&self, request: &KernelRequest, job: ScreenJob) -> Vec<(usize, Range<u64>, Vec<u8>)> {
        let block = &request.kernel.program().table.microblocks[job.microblock];
        let written = block.writes.keys().filter_map(|n| Some((*n, Self::mapped_bytes(request, *n, job)?)));
        let copied = |(n, range): (usize, Range<u64>)| {
            let bytes = self.bytes[n].read().get()[range.start as usize..range.end as usize].to_vec();
            (n, range, bytes)
        };
        written.map(copied).collect()
    }

    /// Puts back the bytes that [`MappedSections::save`] copied.
    pub(crate) fn restore(&self, saved: Vec<(usize, Range<u64>, Vec<u8>)>) {
        for (number, range, bytes) in saved {
            let mut section = self.bytes[number].write();
            let SectionBytes::Own(own) = &mut *section else { unreachable!("a section that is written") };
            own[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        }
    }

    /// Runs a screen on a core, and copies the rows that the screen wrote back to their sections.
    pub(crate) fn run(
        &self,
        device: &Device,
        request: &KernelRequest,
        core: &mut KernelCore,
        job: ScreenJob,
        stop: &AtomicBool,
    ) -> Result<()> {
        let program = request.kernel.program();
        let block = &program.table.microblocks[job.microblock];
        let ranges: Vec<Option<Range<u64>>> =
            (0..request.sections.len()).map(|number| Self::mapped_bytes(request, number, job)).collect();
        // Copies of rows to be written, and windows of sections that lie in the store.
        let mut copies: Vec<Option<Vec<u8>>> = Vec::new();
        for (number, range) in ranges.iter().enumerate() {
            copies.push(match range {
                Some(range) if block.writes.contains_key(&number) => {
                    let mut section = self.bytes[number].write();
                    let SectionBytes::Own(own) = &mut *section else { unreachable!("a section that is written") };
                    let whole = job.screens == 1 && own.len() as u64 == range.end - range.start;
                    let part = range.start as usize..range.end as usize;
                    Some(if whole { std::mem::take(own) } else { own[part].to_vec() })
                }
                Some(range) if request.is_windowed(number) => {
                    Some(read(device, &request.sections[number].source, range.clone())?)
                }
                _ => None,
            });
        }
        let done = self.call(request, core, job, (&ranges, &mut copies), stop);
        for (number, (range, copy)) in ranges.iter().zip(copies).enumerate() {
            let (Some(range), Some(copy)) = (range, copy) else { continue };
            if block.writes.contains_key(&number) {
                let mut section = self.bytes[number].write();
                let SectionBytes::Own(own) = &mut *section else { unreachable!("a section that is written") };
                if own.is_empty() {
                    *own = copy;
                } else {
                    own[range.start as usize..range.end as usize].copy_from_slice(&copy);
                }
            }
        }
        done.map_err(|error| Error::Kernel { kernel: program.table.name.clone(), error: Box::new(error) })
    }

    fn call(
        &self,
        request: &KernelRequest,
        core: &mut KernelCore,
        job: ScreenJob,
        (ranges, copies): (&[Option<Range<u64>>], &mut [Option<Vec<u8>>]),
        stop: &AtomicBool,
    ) -> std::result::Result<(), ScreenError> {
        let program = request.kernel.program();
        let block = &program.table.microblocks[job.microblock];
        let guards: Vec<_> = (ranges.iter().zip(copies.iter()).enumerate())
            .map(|(n, (range, copy))| (range.is_some() && copy.is_none()).then(|| self.bytes[n].read()))
            .collect();
        let mut sections = Vec::new();
        for (number, (range, copy)) in ranges.iter().zip(copies.iter_mut()).enumerate() {
            let bytes = match (range, copy, &guards[number]) {
                (None, ..) => None,
                (Some(_), Some(copy), _) => Some(match block.writes.contains_key(&number) {
                    true => WindowBytes::Write(copy),
                    false => WindowBytes::Read(copy),
                }),
                (Some(range), None, guard) => {
                    let all = guard.as_ref().expect("a section that is shared").get();
                    Some(WindowBytes::Read(&all[range.start as usize..range.end as usize]))
                }
            };
            let offset = range.as_ref().map_or(0, |range| range.start);
            sections.push(SectionWindow { offset, shape: &request.sections[number].shape, bytes });
        }
        let ScreenJob { microblock, screen, screens, .. } = job;
        let call = ScreenCall { microblock, screen, screens, scalars: &request.scalars, sections };
        core.run(program, call, request.instructions, stop)
    }

    /// Writes the outputs of the kernel to the store, all or none; returns the sections that are to be collected.
    pub(crate) fn drain(self, device: &Device, request: &KernelRequest) -> Result<Vec<Option<Vec<u8>>>> {
        let mut given: Vec<Option<Vec<u8>>> = vec![None; request.sections.len()];
        let mut stored = Vec::new();
        for (number, section) in self.bytes.into_iter().enumerate() {
            match (&request.sections[number].target, section.into_inner()) {
                (SectionTarget::Nowhere, _) => {}
                (SectionTarget::Collect, SectionBytes::Own(bytes)) => given[number] = Some(bytes),
                (SectionTarget::Box(to), SectionBytes::Own(bytes)) => stored.push((to, bytes)),
                (_, SectionBytes::Away | SectionBytes::Shared(_)) => unreachable!("an input is no output"),
            }
        }
        if stored.is_empty() {
            return Ok(given);
        }
        let outputs: Vec<Output<'_>> = stored
            .iter()
            .map(|(to, _)| {
                let view = to.view.as_deref();
                Output::Box { space: to.space, start: &to.start, count: &to.count, view, tiles: None }
            })
            .collect();
        let wanted: Vec<&Output<'_>> = outputs.iter().collect();
        let bytes: Vec<Vec<u8>> = stored.iter_mut().map(|(_, bytes)| std::mem::take(bytes)).collect();
        device.compound(true, |compound| -> Result<()> {
            let spaces = spaces_of(compound, &wanted)?;
            let mut writer = OutputWriter::begin(compound, &spaces, &wanted, (u64::MAX, false), None)?;
            for (number, bytes) in bytes.into_iter().enumerate() {
                writer.take(number, 0, bytes).map_err(transfer)?;
            }
            writer.finish(compound, &spaces, &wanted)?;
            Ok(())
        })??;
        Ok(given)
    }
}

fn zeros(bytes: u64) -> Result<Vec<u8>> {
    let mut made = Vec::new();
    let length = usize::try_from(bytes).map_err(|_| Error::invalid(format!("a section of {bytes} bytes")))?;
    made.try_reserve_exact(length).map_err(|_| Error::invalid(format!("no memory for a section of {bytes} bytes")))?;
    made.resize(length, 0);
    Ok(made)
}
