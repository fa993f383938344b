//! A spool: bytes in their order, which a long command keeps until it is known what becomes of them.
//!
//! The bytes lie in staged pages that no index maps and no journal record names. Pages are freed once they were read,
//! the rest when the spool is dropped. After a crash they are as those of any command that was not applied. At most
//! [`CHUNK_BYTES`] of the bytes are in memory. Pages are not encrypted: a spool is for bytes of arrays that are not.

use std::collections::VecDeque;

use super::Device;
use crate::error::{Error, Result};
use crate::flash::{Owner, Run};
use crate::ftl::{FetchError, UnitWrite};
use crate::stl::plan::BlockAt;
use crate::stl::space::SPILLED;
use crate::stl::write::Staged;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;
/// The owner of the pages: the greatest number that a space can have, so that none of a store has it.
const OWNER: Owner = Owner { space: SPILLED - 1, unit: 0, key: [0; 10] };

/// Bytes that were put to a spool, in pages.
#[derive(Debug)]
struct SpoolChunk {
    runs: Vec<Run>,
    bytes: usize,
}

/// A spool of a command. If it is dropped, nothing of it remains.
#[derive(Debug)]
pub struct Spool<'d> {
    device: &'d Device,
    chunks: VecDeque<SpoolChunk>,
    /// Bytes after those of the chunks.
    waiting: Vec<u8>,
}

impl<'d> Spool<'d> {
    /// Bytes of memory that a spool takes at most.
    pub const MEMORY_BYTES: u64 = CHUNK_BYTES as u64;

    pub(super) fn new(device: &'d Device) -> Self {
        Self { device, chunks: VecDeque::new(), waiting: Vec::new() }
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

    /// Writes the waiting bytes to pages.
    fn write(&mut self) -> Result<()> {
        let Self { device, chunks, waiting } = self;
        let (bytes, seq) = (waiting.len(), device.next_seq());
        let page = device.geometry().page_bytes as usize;
        waiting.resize(bytes.next_multiple_of(page), 0);
        let units: Vec<UnitWrite> = (0..(waiting.len() / page) as u32).map(|unit| (unit, None)).collect();
        let staged = device.stage_in(units.len() as u64, &mut || {
            let runs = device.ftl.append(OWNER, seq, waiting, &units, &mut std::iter::empty())?;
            Ok(vec![Staged { runs, ..Staged::releasing(BlockAt::new(), seq) }])
        });
        waiting.truncate(bytes);
        let runs = staged?.into_iter().flat_map(|one| one.runs).collect();
        chunks.push_back(SpoolChunk { runs, bytes });
        waiting.clear();
        Ok(())
    }

    /// Takes the next bytes; empty at the end. Nothing must be put any more.
    ///
    /// # Errors
    /// Errors of the medium, and [`Error::Checksum`] for damaged pages.
    pub fn take_next(&mut self) -> Result<Vec<u8>> {
        let Some(chunk) = self.chunks.pop_front() else { return Ok(std::mem::take(&mut self.waiting)) };
        let device = self.device;
        let page = device.geometry().page_bytes as usize;
        let mut bytes = vec![0; chunk.bytes.next_multiple_of(page)];
        let read = device.guarded(|| {
            chunk.runs.iter().try_for_each(|&run| {
                let owner = Owner { unit: run.unit as u16, ..OWNER };
                let part = &mut bytes[run.unit as usize * page..run.end() as usize * page];
                device.ftl.fetch(run, owner, part).map_err(|error| match error {
                    FetchError::Media(e) => e,
                    FetchError::Bad(bad) => Error::Checksum {
                        array: "outputs of a program that wait for its end".to_owned(),
                        block: vec![],
                        unit: bad.unit,
                        offset: bad.offset,
                        what: bad.what.to_owned(),
                    },
                })
            })
        });
        device.ftl.abandon(&chunk.runs);
        bytes.truncate(chunk.bytes);
        read.map(|()| bytes)
    }
}

impl Drop for Spool<'_> {
    fn drop(&mut self) {
        self.chunks.iter().for_each(|chunk| self.device.ftl.abandon(&chunk.runs));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastrand::Rng;

    use super::*;
    use crate::device::{Mode, Options, command};
    use crate::flash::Geometry;
    use crate::media::fault::FaultMedia;

    /// Puts random bytes in parts of random sizes; they come back in order, and nothing of them remains, wherever the
    /// medium is looked at meanwhile.
    #[test]
    fn bytes_come_back_in_order_and_nothing_remains() {
        for seed in 0..4 {
            let mut rng = Rng::with_seed(seed);
            let media = Arc::new(FaultMedia::with_bytes(vec![]));
            let options = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
            let device = Device::open(media.clone(), "memory", Mode::Exclusive, &options).unwrap();
            let staged = || device.ftl.with_segments(|s| s.infos().iter().map(|info| info.staged).sum::<u32>());
            let count = rng.usize(..5 * CHUNK_BYTES / 2);
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(count).collect();
            let mut spool = Spool::new(&device);
            let mut left = &bytes[..];
            while !left.is_empty() {
                let (now, later) = left.split_at(rng.usize(1..=left.len()));
                spool.put(now).unwrap();
                left = later;
            }
            assert_eq!(staged() > 0, bytes.len() >= CHUNK_BYTES, "seed {seed}");
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
