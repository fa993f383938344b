//! Compressed building blocks as they are stored: read without decoding, and written to a space of the same codec.
//!
//! A copy between two spaces (of one store, or of two) with the same elements, building block, compression and fill
//! value moves payloads in place of elements ([design note
//! 13](../../../../docs/design/013-stored-blocks-between-stores.md)). Payloads that are written are bad until proven:
//! their heads must be those of this space's codec, and each frame is decoded once, to nowhere. Spaces without
//! compression have no payloads; those of encrypted spaces are sealed for their place, and stay there.

use parking_lot::Mutex;

use super::Device;
use crate::error::{Error, Result, Shape};
use crate::sim::count;
use crate::stl::plan::BlockAt;
use crate::stl::read::{BlockContent, Reader, with_scratch};
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::run;
use crate::stl::write::{Staged, Writer};

/// Returns the coordinates of several blocks of a space of this shape.
fn blocks_of(space: &Space, shape: &[u64], blocks: &[u64]) -> Result<Vec<BlockAt>> {
    let found: Vec<BlockAt> = blocks.chunks_exact(shape.len()).map(BlockAt::from_slice).collect();
    let lies_within = |at: &BlockAt| {
        (0..shape.len()).all(|i| at[i].checked_mul(space.shape.block[i]).is_some_and(|first| first < shape[i]))
    };
    if !blocks.len().is_multiple_of(shape.len()) || !found.iter().all(lies_within) {
        return Err(Error::invalid(format!(
            "blocks {blocks:?} must be coordinates in an array of shape {}",
            Shape(shape)
        )));
    }
    Ok(found)
}

fn check_plain(space: &Space) -> Result<()> {
    if space.encrypted() || !space.coded() {
        return Err(Error::invalid("stored blocks must be those of an array with compression and without encryption"));
    }
    Ok(())
}

impl Device {
    /// Returns the payloads of blocks; `None` for a block without content, or with a part in the write buffer.
    pub(super) fn read_stored(&self, id: SpaceId, blocks: &[u64]) -> Result<Vec<Option<Vec<u8>>>> {
        let space = self.space(id)?;
        check_plain(&space)?;
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true };
        let blocks = blocks_of(&space, &inner.record.shape, blocks)?;
        let found = Mutex::new(vec![None; blocks.len()]);
        let bytes = (blocks.len() * space.shape.bytes) as u64;
        run(&self.workers, blocks.len() as u64, bytes, 1, 1, &|range, _: &mut ()| {
            for i in range {
                let at = &blocks[i as usize];
                let (map, buffered) = (inner.index().get(at), inner.write_buffer.get(at));
                if let BlockContent { map: Some(map), buffered: None } = (BlockContent { map, buffered }) {
                    let payload = reader.payload(at, map)?;
                    found.lock()[i as usize] = Some(payload);
                }
            }
            Ok(())
        })?;
        let found = found.into_inner();
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, found.iter().flatten().map(|payload| payload.len() as u64).sum());
        Ok(found)
    }

    /// Replaces whole blocks by payloads of the same codec; all of them, or none.
    pub(super) fn write_stored(&self, id: SpaceId, blocks: &[u64], payloads: &[&[u8]]) -> Result<()> {
        self.ready()?;
        let space = self.space(id)?;
        check_plain(&space)?;
        let shape = space.read()?.record.shape.clone();
        let blocks = blocks_of(&space, &shape, blocks)?;
        if blocks.len() != payloads.len() || blocks.is_empty() {
            return Err(Error::invalid(format!("{} payloads must come with as many blocks", payloads.len())));
        }
        let around = (0..shape.len()).map(|i| {
            let along = blocks.iter().map(|at| at[i]);
            (along.clone().min().expect("a block"), along.max().expect("a block"))
        });
        let range = self.hold(&space, around.collect())?;
        let now = space.read()?.record.shape.clone();
        blocks_of(&space, &now, &blocks.concat())?;
        let (seq, bytes) = (self.next_seq(), (blocks.len() * space.shape.bytes) as u64);
        let page = space.shape.page;
        let pages: u64 = payloads.iter().map(|payload| payload.len().div_ceil(page) as u64).sum();
        let writer = Writer { ftl: &self.ftl, space: &space, seq, extent: &now, bytes, over: None, successive: None };
        let stage = || {
            let staged = Mutex::new(Vec::with_capacity(blocks.len()));
            let done = run(&self.workers, blocks.len() as u64, bytes, 1, 1, &|range, _: &mut ()| {
                for i in range {
                    let (at, payload) = (&blocks[i as usize], payloads[i as usize]);
                    let payload = proven(&space, at, payload)?;
                    let runs = writer.append_payload(at, payload.to_vec())?;
                    staged.lock().push(Staged { runs, ..Staged::releasing(at.clone(), seq) });
                }
                Ok(())
            });
            let staged = staged.into_inner();
            done.inspect_err(|_| staged.iter().for_each(|s| self.ftl.abandon(&s.runs))).map(|()| staged)
        };
        let staged = self.stage_in(pages, &mut { stage })?;
        self.apply(&space, staged, None)?;
        drop(range);
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, payloads.iter().map(|payload| payload.len() as u64).sum());
        self.after_write();
        Ok(())
    }
}

/// Returns the bytes of a payload that count, once every frame of it was decoded by the codec of a space.
fn proven<'a>(space: &Space, at: &BlockAt, payload: &'a [u8]) -> Result<&'a [u8]> {
    let codec = space.codec()?;
    let key = Space::context_key(at);
    let wrong = |what: &dyn std::fmt::Display| {
        Error::invalid(format!("the payload of block {} must be one of this array's codec: {what}", Shape(at)))
    };
    let table = codec.frame_table(payload, space.context(&key)).map_err(|e| wrong(&e))?;
    let Some(payload) = payload.get(..table.payload_bytes()) else {
        return Err(wrong(&format_args!("{} of {} bytes", payload.len(), table.payload_bytes())));
    };
    with_scratch(space.shape.bytes, |block| {
        codec.decode_frames(&table, payload, 0, 0..space.shape.bytes, block).map_err(|e| wrong(&e))
    })?;
    Ok(payload)
}
