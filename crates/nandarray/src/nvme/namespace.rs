//! Namespaces, and the execution of the NVM command set on them.
//!
//! A namespace is the one-dimensional space named `ns/` and its identifier, whose elements are its logical blocks: the
//! flat case of a space. It is looked up by that name for every command, so it may be created and deleted through any
//! other interface. Blocks that were never written, or were deallocated or zeroed, read as zeroes and take no space, in
//! units of whole building blocks.
//!
//! Read, write, write zeroes and each deallocated range are one command of the engine. Compare reads the range in parts
//! that fit into a cache, while it excludes writers from the range. Copy reads its sources into one buffer and writes
//! it by one command, so sources may overlap the destination.

use std::sync::Arc;

use nandarray_nvme_spec::{Blocks, CopyRange, DsmRange, NSID_ALL, Status};
use zerocopy::FromBytes;

use super::access::check_writes;
use super::controller::{Controller, run};
use super::data_buffer::DataBuffer;
use super::spaces::ResolvedBox;
use crate::device::{Device, NewSpace, OwnedCommand, OwnedTarget, Target, command};
use crate::error::Error;
use crate::stl::read::BufferMut;
use crate::stl::space::{Space, SpaceId};
use crate::stl::write::Source;

/// Largest number of bytes that one copy command moves, since the command holds all of them in memory.
pub const COPY_BYTES_MAX: u64 = 64 << 20;
/// Number of bytes that a compare reads at a time: half of a core's cache.
const COMPARE_BYTES: u64 = 256 << 10;
/// Allowed sizes of a logical block, as powers of two: from the smallest of NVMe to the largest element.
const LBADS: std::ops::RangeInclusive<u32> = 9..=16;

/// The description of a namespace to create.
#[derive(Clone, Debug)]
pub struct NewNamespace<'a> {
    /// Namespace identifier, from 1 to below [`NSID_ALL`].
    pub nsid: u32,
    /// Number of logical blocks, at least 1.
    pub nsze: u64,
    /// Size of a logical block in bytes: a power of two from 512 to 65536.
    pub lba_bytes: u32,
    /// Compression, e.g. `lz4`; `None` stores blocks as they are.
    pub compression: Option<&'a str>,
    /// Key of 32 bytes with which the namespace is encrypted; `None` for none. After the store was opened again, the
    /// key must be passed to the engine's open command.
    pub key: Option<&'a [u8]>,
}

/// A namespace in its state when a command begins.
pub(super) struct Namespace {
    pub(super) device: Arc<Device>,
    pub(super) space: Arc<Space>,
    pub(super) nsze: u64,
    pub(super) lba_bytes: u64,
}

fn name(nsid: u32) -> String {
    format!("ns/{nsid}")
}

/// Returns the identifier in the name of a namespace, the number after `ns/`; `None` for any other name.
fn nsid_of(name: &str) -> Option<u32> {
    let nsid = name.strip_prefix("ns/")?.parse().ok()?;
    (nsid != 0 && nsid != NSID_ALL && name == self::name(nsid)).then_some(nsid)
}

impl Namespace {
    fn of(device: Arc<Device>, nsid: u32) -> Result<Self, Status> {
        if nsid == 0 || nsid == NSID_ALL {
            return Err(Status::INVALID_NAMESPACE);
        }
        let space = match device.describe(&name(nsid)) {
            Ok(space) => space,
            Err(Error::NotFound { .. }) => return Err(Status::INVALID_NAMESPACE),
            Err(e) => return Err(e.into()),
        };
        let (nsze, lba_bytes) = {
            let inner = space.peek();
            let record = &inner.record;
            let blocks = record.item_bytes.is_power_of_two() && LBADS.contains(&record.item_bytes.ilog2());
            if record.scalar || record.shape.len() != 1 || !blocks || record.fill.iter().any(|&b| b != 0) {
                return Err(Status::INVALID_NAMESPACE);
            }
            (record.shape[0], u64::from(record.item_bytes))
        };
        Ok(Self { device, space, nsze, lba_bytes })
    }

    fn check(&self, slba: u64, nlb: u64) -> Result<(), Status> {
        let inside = slba.checked_add(nlb).is_some_and(|end| end <= self.nsze);
        if inside { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE) }
    }

    fn read(&self, slba: u64, nlb: u64, out: BufferMut) -> Result<(), Status> {
        let strides = [self.lba_bytes as isize];
        let target = Target::Box { start: &[slba], step: &[1], count: &[nlb], strides: &strides, view: None };
        run(&self.device, command::Read { space: self.space.id, target, out })
    }

    fn write(&self, slba: u64, nlb: u64, source: Source) -> Result<(), Status> {
        let strides = [self.lba_bytes as isize];
        let target = Target::Box { start: &[slba], step: &[1], count: &[nlb], strides: &strides, view: None };
        run(&self.device, command::Write { space: self.space.id, target, source })
    }

    fn target(&self, blocks: &Blocks) -> OwnedTarget {
        let (start, count) = (vec![blocks.slba], vec![blocks.nlb()]);
        OwnedTarget::Box { start, step: vec![1], count, strides: vec![self.lba_bytes as isize], view: None }
    }

    fn deallocate(&self, slba: u64, nlb: u64) -> Result<(), Status> {
        let command = command::Deallocate { space: self.space.id, start: &[slba], count: &[nlb] };
        run(&self.device, command).map(drop)
    }
}

impl Controller {
    /// Returns the box of logical blocks with bytes `first..first + bytes` of a namespace; both must be multiples of
    /// the block size.
    ///
    /// # Errors
    /// Invalid namespace; LBA out of range.
    pub fn resolve_bytes(&self, nsid: u32, first: u64, bytes: u64) -> Result<ResolvedBox, Status> {
        let ns = self.namespace(nsid)?;
        if bytes == 0 || !first.is_multiple_of(ns.lba_bytes) || !bytes.is_multiple_of(ns.lba_bytes) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        ns.check(first / ns.lba_bytes, bytes / ns.lba_bytes)?;
        let (start, count) = (vec![first / ns.lba_bytes], vec![bytes / ns.lba_bytes]);
        Ok(ResolvedBox { space: ns.space.id, start, count, view: None, bytes })
    }

    pub(super) fn namespace(&self, nsid: u32) -> Result<Namespace, Status> {
        let ns = Namespace::of(self.device()?, nsid)?;
        if self.access.reads(&name(nsid)) { Ok(ns) } else { Err(Status::INVALID_NAMESPACE) }
    }

    /// Returns a namespace that the host may write.
    fn namespace_to_write(&self, nsid: u32) -> Result<Namespace, Status> {
        let ns = self.namespace(nsid)?;
        check_writes(&*self.access, &name(nsid))?;
        Ok(ns)
    }

    /// Whether the host may know of a namespace, whether or not there is one.
    pub fn may_read_namespace(&self, nsid: u32) -> bool {
        self.access.reads(&name(nsid))
    }

    /// Whether the host may write a namespace.
    pub fn may_write_namespace(&self, nsid: u32) -> bool {
        self.access.writes(&name(nsid))
    }

    /// Returns the number of logical blocks of a namespace.
    ///
    /// # Errors
    /// Invalid namespace; namespace not ready.
    pub fn namespace_blocks(&self, nsid: u32) -> Result<u64, Status> {
        Ok(self.namespace(nsid)?.nsze)
    }

    /// Returns the number of the space that is a namespace.
    ///
    /// # Errors
    /// Invalid namespace; namespace not ready.
    pub fn namespace_space(&self, nsid: u32) -> Result<SpaceId, Status> {
        Ok(self.namespace(nsid)?.space.id)
    }

    /// Creates a namespace, all of whose blocks read as zeroes.
    ///
    /// # Errors
    /// Invalid field; space exists; capacity exceeded; other errors of the engine's create command.
    pub fn create_namespace(&self, new: &NewNamespace<'_>) -> Result<(), Status> {
        let lba = new.lba_bytes;
        if new.nsid == 0 || new.nsid == NSID_ALL || new.nsze == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if !lba.is_power_of_two() || !LBADS.contains(&lba.ilog2()) {
            return Err(Status::INVALID_FIELD);
        }
        let space = NewSpace {
            name: &name(new.nsid),
            shape: &[new.nsze],
            item_bytes: lba,
            dtype: &format!("|V{lba}"),
            block: None,
            compression: new.compression,
            key: new.key,
            fill: None,
            attrs: "{}",
        };
        check_writes(&*self.access, &name(new.nsid))?;
        let device = self.device()?;
        run(&device, command::Create(space)).map(drop)
    }

    /// Deletes a namespace and its data.
    ///
    /// # Errors
    /// Invalid namespace.
    pub fn delete_namespace(&self, nsid: u32) -> Result<(), Status> {
        let ns = self.namespace_to_write(nsid)?;
        run(&ns.device, command::Delete { name: &name(nsid) })
    }

    /// Returns the identifiers of all namespaces, in ascending order.
    ///
    /// # Errors
    /// Namespace not ready.
    pub fn namespaces(&self) -> Result<Vec<u32>, Status> {
        let device = self.device()?;
        let names = run(&device, command::List { prefix: "ns/" })?;
        let is = |nsid: &u32| self.access.reads(&name(*nsid)) && Namespace::of(device.clone(), *nsid).is_ok();
        let mut found: Vec<u32> = names.iter().filter_map(|n| nsid_of(n)).filter(is).collect();
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn flush(&self, nsid: u32, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        // In a store that is open for reading only nothing can wait to be flushed.
        let Some(device) = self.flush_command(nsid, buffer)? else { return Ok(()) };
        run(&device, command::Flush)
    }

    /// Returns the device to which a flush in flight is submitted; `None` if there is nothing to flush.
    pub(super) fn flush_command(&self, nsid: u32, buffer: &DataBuffer<'_>) -> Result<Option<Arc<Device>>, Status> {
        buffer.none()?;
        let device = if nsid == NSID_ALL { self.device()? } else { self.namespace(nsid)?.device };
        Ok((!device.read_only()).then_some(device))
    }

    /// Checks a read that can be in flight, and converts it to the engine's command. The last value is always `false`:
    /// the read's force unit access flag is ignored, since the data that it reads is on the medium or newer.
    pub(super) fn read_command(
        &self,
        blocks: &Blocks,
        buffer: &DataBuffer<'_>,
    ) -> Result<(Arc<Device>, OwnedCommand, bool), Status> {
        let ns = self.namespace(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        let out = buffer.out(blocks.nlb() * ns.lba_bytes)?;
        let command = OwnedCommand::Read { space: ns.space.id, target: ns.target(blocks), out };
        Ok((ns.device, command, false))
    }

    /// Checks a write that can be in flight, and converts it to the engine's command; also returns whether it forces
    /// unit access.
    pub(super) fn write_command(
        &self,
        blocks: &Blocks,
        buffer: &DataBuffer<'_>,
    ) -> Result<(Arc<Device>, OwnedCommand, bool), Status> {
        let ns = self.namespace_to_write(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        let source = buffer.source(blocks.nlb() * ns.lba_bytes)?;
        let command = OwnedCommand::Write { space: ns.space.id, target: ns.target(blocks), source };
        Ok((ns.device, command, blocks.fua))
    }

    pub(super) fn read(&self, blocks: &Blocks, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let ns = self.namespace(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        ns.read(blocks.slba, blocks.nlb(), buffer.out(blocks.nlb() * ns.lba_bytes)?)
    }

    pub(super) fn write(&self, blocks: &Blocks, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let ns = self.namespace_to_write(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        ns.write(blocks.slba, blocks.nlb(), buffer.source(blocks.nlb() * ns.lba_bytes)?)?;
        Self::after_write(&ns.device, blocks.fua)
    }

    pub(super) fn compare(&self, blocks: &Blocks, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        let ns = self.namespace(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        let wanted = buffer.bytes(blocks.nlb() * ns.lba_bytes)?;
        // Writers are excluded from these building blocks, so that all parts show the same state. On a modelled clock,
        // where a writer may run between two reads, all blocks are read by one command.
        let side = ns.space.shape.block[0];
        let last = blocks.slba + u64::from(blocks.nlb_z);
        let in_one = ns.device.has_clock();
        let _range = (!in_one).then(|| ns.space.ranges.lock(vec![(blocks.slba / side, last / side)]));
        let at_once = if in_one { blocks.nlb() } else { (COMPARE_BYTES / ns.lba_bytes).max(1) };
        let mut found = vec![0u8; (at_once.min(blocks.nlb()) * ns.lba_bytes) as usize];
        let mut slba = blocks.slba;
        for part in wanted.chunks(found.len()) {
            let nlb = part.len() as u64 / ns.lba_bytes;
            // SAFETY: the buffer has room for all blocks of a part, and no other reference to it exists.
            ns.read(slba, nlb, unsafe { BufferMut::from_raw(found.as_mut_ptr()) })?;
            if found[..part.len()] != *part {
                return Err(Status::COMPARE_FAILURE);
            }
            slba += nlb;
        }
        Ok(())
    }

    pub(super) fn write_zeroes(&self, blocks: &Blocks, buffer: &DataBuffer<'_>) -> Result<(), Status> {
        buffer.none()?;
        let ns = self.namespace_to_write(blocks.nsid)?;
        ns.check(blocks.slba, blocks.nlb())?;
        ns.deallocate(blocks.slba, blocks.nlb())?;
        Self::after_write(&ns.device, blocks.fua)
    }

    pub(super) fn dataset_management(
        &self,
        nsid: u32,
        nr_z: u8,
        ad: bool,
        buffer: &DataBuffer<'_>,
    ) -> Result<(), Status> {
        let ns = self.namespace_to_write(nsid)?;
        let bytes = buffer.bytes_at_least((u64::from(nr_z) + 1) * size_of::<DsmRange>() as u64)?;
        let ranges = <[DsmRange]>::ref_from_bytes(bytes).expect("ranges have no alignment");
        for range in ranges {
            ns.check(range.slba.get(), u64::from(range.nlb.get()))?;
        }
        if ad {
            for range in ranges.iter().filter(|r| r.nlb.get() > 0) {
                ns.deallocate(range.slba.get(), u64::from(range.nlb.get()))?;
            }
        }
        Ok(())
    }

    pub(super) fn copy(
        &self,
        nsid: u32,
        sdlba: u64,
        nr_z: u8,
        fua: bool,
        buffer: &DataBuffer<'_>,
    ) -> Result<(), Status> {
        let ns = self.namespace_to_write(nsid)?;
        let bytes = buffer.bytes((u64::from(nr_z) + 1) * size_of::<CopyRange>() as u64)?;
        let ranges = <[CopyRange]>::ref_from_bytes(bytes).expect("ranges have no alignment");
        let mut total = 0;
        for range in ranges {
            let nlb = u64::from(range.nlb_z.get()) + 1;
            total += nlb;
            if nlb > u64::from(ns.mssrl()) || total > u64::from(ns.mcl()) {
                return Err(Status::SIZE_LIMIT_EXCEEDED);
            }
            ns.check(range.slba.get(), nlb)?;
        }
        ns.check(sdlba, total)?;
        let mut moved = vec![0u8; (total * ns.lba_bytes) as usize];
        let mut at = 0;
        for range in ranges {
            let nlb = u64::from(range.nlb_z.get()) + 1;
            // SAFETY: `moved` has room for all ranges, and no other reference to it exists.
            ns.read(range.slba.get(), nlb, unsafe { BufferMut::from_raw(moved[at..].as_mut_ptr()) })?;
            at += (nlb * ns.lba_bytes) as usize;
        }
        // SAFETY: `moved` holds as many blocks as are written.
        ns.write(sdlba, total, unsafe { Source::from_raw(moved.as_ptr()) })?;
        Self::after_write(&ns.device, fua)
    }
}

impl Namespace {
    /// Returns the maximum copy length: the number of logical blocks of all source ranges together.
    pub(super) fn mcl(&self) -> u32 {
        (COPY_BYTES_MAX / self.lba_bytes) as u32
    }

    /// Returns the maximum length of a single source range, in logical blocks.
    pub(super) fn mssrl(&self) -> u16 {
        self.mcl().min(u32::from(u16::MAX)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_name() {
        assert_eq!(nsid_of("ns/1"), Some(1));
        assert_eq!(nsid_of("ns/4294967294"), Some(u32::MAX - 1));
        for other in ["ns/0", "ns/4294967295", "ns/01", "ns/+1", "ns/1/x", "ns/", "nt/1"] {
            assert_eq!(nsid_of(other), None, "{other}");
        }
    }
}
