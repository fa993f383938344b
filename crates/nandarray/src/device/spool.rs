//! A spool: bytes in their order, which a long command keeps until it is known what becomes of them.
//!
//! The bytes lie in staged pages that no index maps and no journal record names. Pages of zeroes are not written. Pages
//! are freed, and their disk blocks given back, once they were read, the rest when the spool is dropped. After a crash
//! they are as those of any command that was not applied. At most [`CHUNK_BYTES`] of the bytes are in memory. Bytes for
//! an encrypted space are encrypted by its key, with tags that are in memory alone; which of their pages are zeroes can
//! be seen, as it can of the space.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Device;
use crate::codec::WaitingTag;
use crate::error::{Error, Result};
use crate::flash::{Owner, Run};
use crate::ftl::{FetchError, UnitWrite};
use crate::stl::plan::BlockAt;
use crate::stl::space::{SPILLED, Space};
use crate::stl::write::Staged;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;
/// The owner of the pages: the greatest number that a space can have, so that none of a store has it.
const OWNER: Owner = Owner { space: SPILLED - 1, unit: 0, key: [0; 10] };

/// Bytes that were put to a spool.
#[derive(Debug)]
struct SpoolChunk {
    bytes: u64,
    /// Pages of the bytes that are not zeroes, by their numbers, one behind the other in `runs`; none of zeroes of any
    /// length.
    pages: Vec<u16>,
    runs: Vec<Run>,
    /// The sequence number and the tag of the pages, if they are encrypted.
    seal: Option<(u64, WaitingTag)>,
}

/// A spool of a command. If it is dropped, nothing of it remains.
#[derive(Debug)]
pub struct Spool<'d> {
    device: &'d Device,
    /// The space that the bytes are for.
    space: Arc<Space>,
    chunks: VecDeque<SpoolChunk>,
    /// Bytes after those of the chunks.
    waiting: Vec<u8>,
    /// Bytes of all pages that were written so far.
    written: u64,
}

impl<'d> Spool<'d> {
    /// Bytes of memory that a spool takes at most.
    pub const MEMORY_BYTES: u64 = CHUNK_BYTES as u64;

    /// Makes a spool of bytes for a space.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the space is encrypted and locked.
    pub(super) fn new(device: &'d Device, space: Arc<Space>) -> Result<Self> {
        if space.frozen.is_some() {
            return Err(Error::ReadOnly);
        }
        if space.encrypted() {
            space.codec()?;
        }
        Ok(Self { device, space, chunks: VecDeque::new(), waiting: Vec::new(), written: 0 })
    }

    /// Returns the bytes that the spool has written to the disk so far.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// As [`super::command::Write`]; what was put before stays.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
            if self.waiting.len() == CHUNK_BYTES {
                let device = self.device;
                device.guarded(|| self.write())?;
            }
        }
        Ok(())
    }

    /// Writes the waiting bytes to pages, but for those that are zeroes.
    fn write(&mut self) -> Result<()> {
        let Self { device, space, chunks, waiting, written } = self;
        let (page, seq) = (device.geometry().page_bytes as usize, device.next_seq());
        let bytes = waiting.len() as u64;
        let (mut pages, mut kept) = (Vec::new(), Vec::new());
        for (number, one) in (0u16..).zip(waiting.chunks(page)) {
            if one.iter().any(|&byte| byte != 0) {
                pages.push(number);
                kept.extend_from_slice(one);
                kept.resize(pages.len() * page, 0);
            }
        }
        let empty = chunks.back_mut().filter(|last| pages.is_empty() && last.pages.is_empty());
        if let Some(last) = empty {
            last.bytes += bytes;
            waiting.clear();
            return Ok(());
        }
        let seal = if space.encrypted() { space.codec()?.seal_waiting(seq, &mut kept) } else { None };
        assert!(!space.encrypted() || seal.is_some(), "bytes of an encrypted space are encrypted");
        let units: Vec<UnitWrite> = (0..pages.len() as u32).map(|unit| (unit, None)).collect();
        let staged = device.stage_in(units.len() as u64, &mut || {
            let runs = device.ftl.append(OWNER, seq, &kept, &units, &mut std::iter::empty())?;
            Ok(vec![Staged { runs, ..Staged::releasing(BlockAt::new(), seq) }])
        })?;
        *written += kept.len() as u64;
        let runs = staged.into_iter().flat_map(|one| one.runs).collect();
        chunks.push_back(SpoolChunk { bytes, pages, runs, seal: seal.map(|tag| (seq, tag)) });
        waiting.clear();
        Ok(())
    }

    /// Takes the next bytes; empty at the end. Nothing must be put any more.
    ///
    /// # Errors
    /// Errors of the medium, and [`Error::Checksum`] for damaged pages.
    pub fn take_next(&mut self) -> Result<Vec<u8>> {
        let Some(chunk) = self.chunks.front_mut() else { return Ok(std::mem::take(&mut self.waiting)) };
        if chunk.bytes > CHUNK_BYTES as u64 {
            assert!(chunk.pages.is_empty(), "more bytes than a chunk are zeroes");
            chunk.bytes -= CHUNK_BYTES as u64;
            return Ok(vec![0; CHUNK_BYTES]);
        }
        let chunk = self.chunks.pop_front().expect("it was there just now");
        let read = self.device.guarded(|| self.read(&chunk));
        self.device.ftl.give_back(&chunk.runs);
        read
    }

    fn read(&self, chunk: &SpoolChunk) -> Result<Vec<u8>> {
        let page = self.device.geometry().page_bytes as usize;
        let damaged = |unit, offset, what: &str| Error::Checksum {
            array: "outputs of a program that wait for its end".to_owned(),
            block: vec![],
            unit,
            offset,
            what: what.to_owned(),
        };
        let mut kept = vec![0; chunk.pages.len() * page];
        for &run in &chunk.runs {
            let owner = Owner { unit: run.unit as u16, ..OWNER };
            let part = &mut kept[run.unit as usize * page..run.end() as usize * page];
            self.device.ftl.fetch(run, owner, part).map_err(|error| match error {
                FetchError::Media(e) => e,
                FetchError::Bad(bad) => damaged(bad.unit, bad.offset, bad.what),
            })?;
        }
        if let Some((seq, tag)) = chunk.seal {
            let opened = self.space.codec()?.open_waiting(seq, tag, &kept);
            kept = opened.ok_or_else(|| damaged(0, 0, "the pages were changed"))?;
        }
        let mut bytes = vec![0; (chunk.bytes as usize).next_multiple_of(page)];
        for (&number, one) in chunk.pages.iter().zip(kept.chunks_exact(page)) {
            bytes[usize::from(number) * page..][..page].copy_from_slice(one);
        }
        bytes.truncate(chunk.bytes as usize);
        Ok(bytes)
    }
}

impl Drop for Spool<'_> {
    fn drop(&mut self) {
        self.chunks.iter().for_each(|chunk| self.device.ftl.give_back(&chunk.runs));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastrand::Rng;

    use super::*;
    use crate::device::{Mode, NewSpace, Options, command};
    use crate::flash::Geometry;
    use crate::media::fault::FaultMedia;

    /// Makes a space whose bytes a spool may keep.
    fn space(device: &Device, key: Option<&[u8]>) -> Arc<Space> {
        let (name, shape, dtype, attrs) = ("x", &[1u64][..], "", "{}");
        let (item_bytes, block, compression, fill) = (1, None, None, None);
        let new = NewSpace { name, shape, item_bytes, dtype, block, compression, key, fill, attrs };
        device.execute(command::Create(new)).unwrap()
    }

    /// Puts random bytes, and zeroes, in parts of random sizes; they come back in order, and nothing of them remains,
    /// wherever the medium is looked at meanwhile.
    #[test]
    fn bytes_come_back_in_order_and_nothing_remains() {
        for seed in 0..8 {
            let mut rng = Rng::with_seed(seed);
            let media = Arc::new(FaultMedia::with_bytes(vec![]));
            let options = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
            let device = Device::open(media.clone(), "memory", Mode::Exclusive, &options).unwrap();
            let staged = || device.ftl.with_segments(|s| s.infos().iter().map(|info| info.staged).sum::<u32>());
            let count = rng.usize(..9 * CHUNK_BYTES / 2);
            let mut bytes: Vec<u8> = std::iter::repeat_with(|| 1 + rng.u8(..255)).take(count).collect();
            // Zeroes from somewhere on, for pages or for several chunks.
            let zeroes = rng.usize(..=count);
            let zeroes = zeroes..count.min(zeroes + (rng.usize(..3) + 1) * rng.usize(..CHUNK_BYTES));
            bytes[zeroes.clone()].fill(0);
            let key = [seed as u8; 32];
            let space = space(&device, (seed % 2 > 0).then_some(&key[..]));
            device.execute(command::Flush).unwrap();
            let mut spool = Spool::new(&device, space).unwrap();
            let mut left = &bytes[..];
            while !left.is_empty() {
                let (now, later) = left.split_at(rng.usize(1..=left.len()));
                spool.put(now).unwrap();
                left = later;
            }
            let page = device.geometry().page_bytes as usize;
            let stored = count / CHUNK_BYTES * CHUNK_BYTES;
            let dense = stored - stored.min(zeroes.end) + stored.min(zeroes.start);
            assert_eq!(u64::from(staged()) * page as u64, spool.written_bytes(), "seed {seed}");
            assert!(spool.written_bytes() as usize >= dense && spool.written_bytes() as usize <= dense + 2 * page);
            if seed % 2 > 0 {
                let known = |file: Vec<u8>| file.windows(64).any(|window| window == &bytes[..64]);
                assert!(zeroes.start < 64 || !known(media.after_kill()), "seed {seed}: bytes in the open");
            }
            // A crash now leaves a store without them.
            let survived = Arc::new(FaultMedia::with_bytes(media.after_kill()));
            let other = Device::open(survived, "memory", Mode::Exclusive, &options).unwrap();
            let report = other.execute(command::Check { repair: false, accept_older: false }).unwrap();
            assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
            let mut back = Vec::new();
            loop {
                let next = spool.take_next().unwrap();
                if next.is_empty() {
                    break;
                }
                back.extend(next);
                if rng.u8(..8) == 0 {
                    break;
                }
            }
            assert!(bytes.starts_with(&back) && (back.len() == bytes.len() || back.len() >= CHUNK_BYTES));
            drop(spool);
            assert_eq!(staged(), 0, "seed {seed}: pages of a spool that is gone");
            device.close().unwrap();
        }
    }
}
