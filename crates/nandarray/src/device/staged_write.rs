//! A staged write: parts that a long command writes to one space, invisible until all of them are applied at once.
//!
//! Each part is staged like a write; if several parts touch a block, a later part is merged with the earlier ones. The
//! staged write keeps its blocks locked against other writes, and readers see the space as it was. If it is dropped
//! without being applied, nothing of it remains: this is how a failed command changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Device;
use super::target::plan_box;
use super::write::pages_needed;
use crate::error::{Error, Result};
use crate::sched::{BlockBox, RangeTicket};
use crate::sim::count;
use crate::stl::plan::BlockAt;
use crate::stl::space::Space;
use crate::stl::write::{DIRECT_BYTES, Source, Staged, Writer, overlay};

use super::Target;

/// The staged blocks of one space, with the lock of their range, but without references to device and space.
#[derive(Debug)]
pub(super) struct Staging {
    /// Shape of the space after the blocks are applied.
    shape: Vec<u64>,
    seq: u64,
    staged: BTreeMap<BlockAt, Staged>,
    bytes: u64,
    _range: RangeTicket,
}

impl Staging {
    /// Locks these blocks of a space (all blocks if the box is empty) and begins with nothing staged.
    pub(super) fn begin(device: &Device, space: &Space, blocks: BlockBox) -> Result<Self> {
        device.ready()?;
        if space.frozen.is_some() {
            return Err(Error::ReadOnly);
        }
        if space.coded() {
            space.codec()?;
        }
        let range = device.hold(space, blocks)?;
        // Buffered units of these blocks become pages first, so that the staged pages have the higher sequence number.
        if !space.read()?.write_buffer.is_empty() {
            device.commit(false)?;
        }
        let shape = space.read()?.record.shape.clone();
        let seq = device.next_seq();
        Ok(Self { shape, seq, staged: BTreeMap::new(), bytes: 0, _range: range })
    }

    /// Returns the shape of the space after the blocks are applied.
    pub(super) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Sets the shape that the space gets when the blocks are applied; no dimension may shrink. The caller must have
    /// locked all blocks and staged no part yet.
    pub(super) fn grow(&mut self, shape: &[u64]) {
        assert!(self.staged.is_empty(), "the edge blocks of the new shape are composed by it");
        let grows = shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(|(to, from)| to >= from);
        assert!(grows, "shape {:?} grows to {shape:?}", self.shape);
        self.shape = shape.to_vec();
    }

    /// Stages the elements of a target; returns their number of bytes.
    pub(super) fn put(&mut self, device: &Device, space: &Space, target: &Target<'_>, source: Source) -> Result<u64> {
        let Some((work, bytes)) = plan_box(space, &self.shape, target)? else { return Ok(0) };
        let ftl = &device.ftl;
        // Parts bypass the write buffer: all of them belong to one command, which ends with a commit.
        let large = bytes.max(DIRECT_BYTES);
        let over = Some(&self.staged);
        let writer = Writer { ftl, space, seq: self.seq, extent: &self.shape, bytes: large, over, successive: None };
        // SAFETY: a `Source` buffer is made by the promise that it covers its command's target.
        let mut stage = || unsafe { writer.stage(&device.workers, &work, source) };
        let parts = device.stage_in(pages_needed(space, &work), &mut stage)?;
        for part in parts {
            let before = self.staged.remove(&part.at);
            let (whole, dropped) = overlay(before, part);
            ftl.abandon(&dropped);
            let other = self.staged.insert(whole.at.clone(), whole);
            assert!(other.is_none(), "a block is staged once, its parts are laid over each other");
        }
        self.bytes += bytes;
        Ok(bytes)
    }

    /// Estimates the bytes that the staged blocks take in a journal record.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.staged.values().map(Staged::journal_bytes).sum()
    }

    /// Whether no block is staged.
    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Staged> {
        std::mem::take(&mut self.staged).into_values().collect()
    }

    /// Frees all staged pages without applying them.
    pub(super) fn abandon(&mut self, device: &Device) {
        self.take().iter().for_each(|staged| device.ftl.abandon(&staged.runs));
    }
}

/// Writes to one space that are applied together. If it is dropped without being applied, nothing of it remains.
#[derive(Debug)]
pub struct StagedWrite<'d> {
    device: &'d Device,
    space: Arc<Space>,
    staging: Staging,
}

impl<'d> StagedWrite<'d> {
    /// Locks these blocks of a space (all blocks if the box is empty) and begins with nothing staged.
    pub(super) fn begin(device: &'d Device, space: Arc<Space>, blocks: BlockBox) -> Result<Self> {
        let staging = Staging::begin(device, &space, blocks)?;
        Ok(Self { device, space, staging })
    }

    /// Returns the space that is written.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the shape of the space, which cannot change while the staged write exists.
    pub fn shape(&self) -> &[u64] {
        self.staging.shape()
    }

    /// Stages elements of the space; they stay invisible until the staged write is applied.
    ///
    /// # Errors
    /// As [`super::command::Write`]; parts that were staged before stay staged.
    pub fn put(&mut self, target: &Target<'_>, source: Source) -> Result<()> {
        let Self { device, space, staging } = self;
        device.guarded(|| staging.put(device, space, target, source).map(drop))
    }
}

impl Drop for StagedWrite<'_> {
    fn drop(&mut self) {
        self.staging.abandon(self.device);
    }
}

impl Device {
    /// Applies staged writes together, all of them or none.
    pub(super) fn apply_staged(&self, mut writes: Vec<StagedWrite<'_>>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let bytes = writes.iter().map(|write| write.staging.bytes).sum();
        self.hold_journal(writes.iter().map(|write| write.staging.journal_bytes()).sum())?;
        {
            // Excludes commits and deletions: a space that exists now cannot be deleted before all writes are applied.
            let _epoch = self.epoch.write();
            if self.closed() {
                return Err(Error::Closed("the store was closed while a program ran".to_owned()));
            }
            for write in &writes {
                drop(write.space.write()?);
            }
            for write in &mut writes {
                let staged = write.staging.take();
                let mut inner = write.space.write().expect("the space was there just now");
                self.apply_to(&write.space, &mut inner, staged, None);
            }
        }
        // The range locks of the writes are released before anything else is done.
        drop(writes);
        self.after_write();
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::{Mode, NewSpace, Options, command};
    use crate::flash::Geometry;
    use crate::media::fault::FaultMedia;
    use crate::stl::read::BufferMut;

    const SHAPE: [u64; 2] = [37, 50];

    fn options(entropy: u64) -> Options {
        Options { geometry: Geometry::TINY, threads: Some(1), entropy, ..Options::default() }
    }

    fn open(media: &Arc<FaultMedia>, mode: Mode, entropy: u64) -> Result<Device> {
        Device::open(media.clone(), "memory", mode, &options(entropy))
    }

    /// Creates an array of ones, and writes a few elements of it that stay in the write buffer.
    fn made(device: &Device, compression: Option<&str>) -> Result<()> {
        let space = device.execute(command::Create(NewSpace {
            name: "x",
            shape: &SHAPE,
            item_bytes: 4,
            dtype: "",
            block: Some(&[8, 16]),
            compression,
            key: None,
            fill: None,
            attrs: "{}",
        }))?;
        let ones = vec![1u32; 37 * 50];
        write(device, space.id, &[0, 0], &SHAPE, &ones)?;
        device.execute(command::Flush)?;
        write(device, space.id, &[3, 3], &[2, 2], &[7; 4])
    }

    fn write(device: &Device, space: u32, start: &[u64], count: &[u64], from: &[u32]) -> Result<()> {
        let strides = [count[1] as isize * 4, 4];
        let target = Target::Box { start, step: &[1, 1], count, strides: &strides, view: None };
        // SAFETY: the buffer has the elements of the box.
        let source = unsafe { Source::from_raw(from.as_ptr().cast()) };
        device.execute(command::Write { space, target, source })
    }

    fn read(device: &Device) -> Result<Vec<u32>> {
        let space = device.execute(command::Open { name: "x", key: None })?.id;
        let mut all = vec![0u32; 37 * 50];
        let strides = [200, 4];
        let target = Target::Box { start: &[0, 0], step: &[1, 1], count: &SHAPE, strides: &strides, view: None };
        // SAFETY: the buffer has the elements of the space.
        let out = unsafe { BufferMut::from_raw(all.as_mut_ptr().cast()) };
        device.execute(command::Read { space, target, out })?;
        Ok(all)
    }

    /// A part to write: first coordinates, sizes, and whether it is a part of a view with both dimensions exchanged.
    type Part = (u64, u64, u64, u64, bool);

    /// Writes parts to a staged write, and the same elements to the model.
    fn draw(device: &Device, draft: &mut StagedWrite<'_>, parts: &[Part], model: &mut [u32]) -> Result<()> {
        let before = read(device)?;
        for (i, &(a, b, rows, columns, turned)) in parts.iter().enumerate() {
            let shape = if turned { [50, 37] } else { SHAPE };
            let start = [a % shape[0], b % shape[1]];
            let count = [rows.min(shape[0] - start[0]), columns.min(shape[1] - start[1])];
            // Sometimes fill.
            let value = if i % 4 == 3 { 0 } else { 100 + i as u32 };
            let bytes = vec![value; (count[0] * count[1]) as usize];
            let strides = [count[1] as isize * 4, 4];
            let view = turned.then_some(&shape[..]);
            let target = Target::Box { start: &start, step: &[1, 1], count: &count, strides: &strides, view };
            // SAFETY: the buffer has the elements of the box.
            draft.put(&target, unsafe { Source::from_raw(bytes.as_ptr().cast()) })?;
            for row in start[0]..start[0] + count[0] {
                for column in start[1]..start[1] + count[1] {
                    model[(row * shape[1] + column) as usize] = value;
                }
            }
            assert_eq!(read(device)?, before, "nothing is seen before it is applied");
        }
        Ok(())
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        prop::collection::vec((0u64..50, 0u64..50, 1u64..40, 1u64..50, any::<bool>()), 1..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn parts_are_one_write(parts in parts(), coded: bool, applied: bool) {
            let media = Arc::new(FaultMedia::with_bytes(vec![]));
            let device = open(&media, Mode::Exclusive, 0).unwrap();
            made(&device, coded.then_some("lz4")).unwrap();
            let before = read(&device).unwrap();
            let mut model = before.clone();
            let space = device.execute(command::Open { name: "x", key: None }).unwrap();
            let mut draft = StagedWrite::begin(&device, space, vec![]).unwrap();
            draw(&device, &mut draft, &parts, &mut model).unwrap();
            if applied {
                device.apply_staged(vec![draft]).unwrap();
            } else {
                drop(draft);
            }
            let wanted = if applied { model } else { before };
            prop_assert_eq!(&read(&device).unwrap(), &wanted);
            device.close().unwrap();
            let again = open(&media, Mode::ReadWrite, 1).unwrap();
            prop_assert_eq!(&read(&again).unwrap(), &wanted);
            let report = again.execute(command::Check { repair: false, accept_older: false }).unwrap();
            prop_assert!(report.findings.is_empty(), "{:?}", report.findings);
        }

        #[test]
        fn lost_power_leaves_all_or_nothing(parts in parts(), coded: bool, at in 0u64..200, seed: u64) {
            let compression = coded.then_some("lz4");
            let media = Arc::new(FaultMedia::with_bytes(vec![]));
            let device = open(&media, Mode::Exclusive, 0).unwrap();
            made(&device, compression).unwrap();
            device.execute(command::Flush).unwrap();
            let before = read(&device).unwrap();
            let mut model = before.clone();
            media.crash_at_write(media.writes() + 1 + at);
            let space = device.execute(command::Open { name: "x", key: None }).unwrap();
            let done = StagedWrite::begin(&device, space, vec![]).and_then(|mut draft| {
                draw(&device, &mut draft, &parts, &mut model)?;
                device.apply_staged(vec![draft])
            });
            let flushed = done.is_ok() && device.execute(command::Flush).is_ok();
            prop_assert!(flushed || media.crashed());
            let bytes = if media.crashed() { media.after_crash(seed) } else { media.after_kill() };
            let survived = Arc::new(FaultMedia::with_bytes(bytes));
            let found = read(&open(&survived, Mode::ReadWrite, 1).unwrap()).unwrap();
            prop_assert!(found == model || (found == before && !flushed), "neither before nor after");
        }
    }
}
