//! Reading of packed integers in their stored form, for programs with instructions for packed values.
//!
//! The elements of a one-dimensional space come frame by frame, each behind a head that describes it
//! (`codec/packed.rs`). Pages are fetched and verified as in other reads; nothing is decoded.

use std::ops::Range;

use super::coded::Bring;
use super::{Reader, WorkerState};
use crate::error::Result;
use crate::stl::space::{BufferedBlock, Space};

impl Reader<'_> {
    /// Appends elements of a one-dimensional space of packed integers to `out`, in the packed form in which they are
    /// stored.
    ///
    /// # Errors
    /// Damaged pages or blocks; a missing key.
    ///
    /// # Panics
    /// If the space does not have one dimension, packs no integers, or has no such elements.
    pub fn read_packed(&self, elements: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let shape = &self.space.shape;
        let &[each] = &shape.block[..] else { panic!("a packed read of {} dimensions", shape.block.len()) };
        let mut state = WorkerState::default();
        let mut first = elements.start;
        while first < elements.end {
            let at = first / each;
            let end = elements.end.min((at + 1) * each);
            let before = out.len();
            self.packed_block(at, (first - at * each) as usize..(end - at * each) as usize, &mut state, out)?;
            if let Some(probe) = self.probe() {
                probe.moved(1, (out.len() - before) as u64);
            }
            first = end;
        }
        Ok(())
    }

    fn packed_block<'s>(
        &'s self,
        block: u64,
        values: Range<usize>,
        state: &mut WorkerState<'s>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (shape, codec) = (&self.space.shape, self.space.codec()?);
        let (at, frame_bytes) = ([block], codec.spec().frame_bytes());
        let content = self.content(&at, &mut state.cursor);
        if let Some(BufferedBlock::Block(block)) = content.buffered {
            for (frame, part) in codec.packed_frames(values) {
                let end = block.len().min(shape.bytes).min((frame + 1) * frame_bytes);
                codec.append_unpacked(&block[frame * frame_bytes..end], part, out);
            }
            return Ok(());
        }
        let Some(map) = content.map else {
            let mut fill = vec![0; frame_bytes.min(shape.bytes)];
            self.fill_units(0, &mut fill);
            for (_, part) in codec.packed_frames(values) {
                codec.append_unpacked(&fill[..part.end * shape.item_bytes], part, out);
            }
            return Ok(());
        };
        let start = out.len();
        self.with_payload_of(&at, map, &mut |len, bring| {
            out.truncate(start);
            self.packed_payload(&at, len, bring, values.clone(), out)
        })
    }

    fn packed_payload(
        &self,
        at: &[u64],
        len: usize,
        bring: Bring<'_, '_>,
        values: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let codec = self.space.codec()?;
        let damaged = |e: crate::codec::CodecError| self.damaged(at, &e.to_string());
        let key = Space::context_key(at);
        let head = bring(self.payload_units(at, &(0..codec.head_bytes()), len)?)?;
        let table = codec.frame_table(head, self.space.context(&key)).map_err(damaged)?;
        for (frame, part) in codec.packed_frames(values) {
            let bytes = table.payload_range(frame..frame + 1);
            let payload = bring(self.payload_units(at, &bytes, len)?)?;
            codec.append_packed(&table, payload, 0, (frame, part), out).map_err(damaged)?;
        }
        Ok(())
    }
}
