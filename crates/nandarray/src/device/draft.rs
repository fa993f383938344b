//! A draft: what a long command writes to a space bit by bit, seen by nobody until all of it is applied at once.
//!
//! Parts are staged as writes are; a block that several parts touch is composed on what earlier parts staged of it. The
//! draft holds its blocks against other writes, and readers see the space as it was. Dropped without being applied, it
//! leaves nothing: that is how a failed command changes nothing.

use std::collections::BTreeMap;

use super::Device;
use super::io::plan_box;
use crate::error::{Error, Result};
use crate::sched::{BlockBox, RangeGuard};
use crate::stl::plan::BlockAt;
use crate::stl::space::Space;
use crate::stl::write::{DIRECT_BYTES, Source, Staged, Writer, overlay};

use super::Target;

/// Writes to one space that are made as one.
pub(super) struct Draft<'d> {
    device: &'d Device,
    space: &'d Space,
    shape: Vec<u64>,
    seq: u64,
    staged: BTreeMap<BlockAt, Staged>,
    bytes: u64,
    _range: RangeGuard<'d>,
}

impl<'d> Draft<'d> {
    /// Hold these blocks of a space, none for all.
    pub(super) fn begin(device: &'d Device, space: &'d Space, blocks: BlockBox) -> Result<Self> {
        device.sound()?;
        if space.coded() {
            space.codec()?;
        }
        let range = space.ranges.lock(blocks);
        // What gathers of these blocks becomes pages first: those that come later are newer by their number, too.
        if !space.read()?.gathered.is_empty() {
            device.commit(false)?;
        }
        let shape = space.read()?.record.shape.clone();
        let seq = device.next_seq();
        Ok(Self { device, space, shape, seq, staged: BTreeMap::new(), bytes: 0, _range: range })
    }

    /// The space.
    pub(super) fn space(&self) -> &'d Space {
        self.space
    }

    /// The space's shape, which stays while the draft is there.
    pub(super) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Write a part.
    pub(super) fn put(&mut self, target: &Target<'_>, source: Source) -> Result<()> {
        let Some((work, bytes)) = plan_box(self.space, &self.shape, target)? else { return Ok(()) };
        let ftl = &self.device.ftl;
        // Nothing gathers: the command is one, and ends with a commit.
        let large = bytes.max(DIRECT_BYTES);
        let over = Some(&self.staged);
        let writer = Writer { ftl, space: self.space, seq: self.seq, extent: &self.shape, bytes: large, over };
        let _pages = self.device.reserve(writer.pages_needed(&work))?;
        // SAFETY: a `Source` buffer is made by the promise that it covers its command's target.
        let parts = unsafe { writer.stage(&self.device.workers, &work, source)? };
        for part in parts {
            let before = self.staged.remove(&part.at);
            let (whole, dropped) = overlay(before, part);
            ftl.abandon(&dropped);
            self.staged.insert(whole.at.clone(), whole);
        }
        self.bytes += bytes;
        Ok(())
    }

    fn take(&mut self) -> Vec<Staged> {
        std::mem::take(&mut self.staged).into_values().collect()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.staged.values().for_each(|staged| self.device.ftl.abandon(&staged.runs));
    }
}

impl Device {
    /// Applies drafts together, all or none; gives the bytes written.
    pub(super) fn apply_drafts(&self, mut drafts: Vec<Draft<'_>>) -> Result<u64> {
        let bytes = drafts.iter().map(|draft| draft.bytes).sum();
        {
            // Against commits and deletions: what is there now stays until all is applied.
            let _epoch = self.epoch.write();
            if self.closed() {
                return Err(Error::Closed("the store was closed while a program ran".to_owned()));
            }
            for draft in &drafts {
                drop(draft.space.read()?);
            }
            for draft in &mut drafts {
                let staged = draft.take();
                let mut inner = draft.space.write().expect("the space was there just now");
                self.apply_to(draft.space, &mut inner, staged, &mut |_| vec![]);
            }
        }
        // Their blocks are free again before anything else is done.
        drop(drafts);
        self.after_write()?;
        Ok(bytes)
    }
}
