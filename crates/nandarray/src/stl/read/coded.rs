//! Reading of compressed and encrypted blocks: only frames with selected bytes are fetched, verified and decoded.
//!
//! A coded block is decoded into a scratch block of the thread, from which the elements are copied. On a memory-mapped
//! medium the payload is decoded in place; otherwise its pages are fetched first. A block in the write buffer is stored
//! decoded.
//!
//! Programs with instructions for packed values get packed integers in their stored form instead
//! ([`Reader::read_packed`]): the elements of a one-dimensional space come frame by frame, each behind a head that
//! describes it (`codec/packed.rs`); nothing is decoded.

use std::ops::Range;

use smallvec::SmallVec;

use super::locate::{BlockContent, Mapped};
use super::{Reader, WorkerState, copy_task, with_payload, with_scratch};
use crate::codec::FrameTable;
use crate::error::{Error, Result, Shape};
use crate::flash::{Owner, Run};
use crate::stl::index::BlockMap;
use crate::stl::plan::Task;
use crate::stl::space::{BufferedBlock, Space};
use crate::stl::units::UnitSet;

/// A function that fetches and verifies units of a payload, and returns the payload: its other bytes are arbitrary.
type Bring<'b, 'p> = &'b mut dyn FnMut(Range<u32>) -> Result<&'p [u8]>;

impl<'a> Reader<'a> {
    /// Reads the part of a task that lies in a coded (compressed or encrypted) block; the block must have been written.
    ///
    /// # Safety
    /// `to` must be writable along the task's loops.
    pub(super) unsafe fn read_coded(
        &self,
        task: &Task<'_>,
        content: &BlockContent<'_>,
        state: &WorkerState<'_>,
        to: *mut u8,
    ) -> Result<()> {
        let shape = &self.space.shape;
        if let Some(BufferedBlock::Block(block)) = content.buffered {
            // SAFETY: the buffered block is whole; the destination by the caller's promise.
            unsafe { copy_task(task, shape.item_bytes, state.large, block[task.in_block..].as_ptr(), to) };
            return Ok(());
        }
        let map = content.map.expect("a coded block is buffered or mapped here");
        with_scratch(shape.bytes, |scratch| {
            let wanted = self.wanted_of_coded(task)?;
            self.decode(&task.at, map, &wanted, scratch)?;
            // SAFETY: the scratch is a whole block; the destination by the caller's promise.
            unsafe { copy_task(task, shape.item_bytes, state.large, scratch[task.in_block..].as_ptr(), to) };
            Ok(())
        })
    }

    /// Returns the byte ranges of a coded (compressed or encrypted) block that a task touches, ascending and disjoint.
    pub(super) fn wanted_of_coded(&self, task: &Task<'_>) -> Result<SmallVec<[Range<usize>; 8]>> {
        let shape = &self.space.shape;
        let mut wanted: SmallVec<[Range<usize>; 8]> = SmallVec::new();
        let frame_bytes = self.space.codec()?.spec().frame_bytes();
        task.touch(shape.item_bytes, frame_bytes, &mut |bytes| wanted.push(bytes));
        // Lists and points may be in any order.
        wanted.sort_unstable_by_key(|r| r.start);
        wanted.dedup_by(|next, last| {
            let joins = next.start <= last.end + shape.page;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Ok(wanted)
    }

    pub(super) fn without_holes(&self, at: &[u64], map: &BlockMap) -> Result<()> {
        let in_order = map.runs().scan(0, |next, r| (r.unit == *next).then(|| *next = r.end())).count();
        if in_order != map.runs().count() { Err(self.damaged(at, "its payload has holes")) } else { Ok(()) }
    }

    /// Decodes the frames of a coded block that hold these byte ranges (ascending, disjoint) into a block-sized buffer.
    pub fn decode(&self, at: &[u64], map: &BlockMap, wanted: &[Range<usize>], block: &mut [u8]) -> Result<()> {
        assert!(block.len() >= self.space.shape.bytes, "a buffer of {} bytes", block.len());
        self.with_payload_of(at, map, &mut |len, bring| self.decode_payload(at, len, bring, wanted, block))
    }

    /// Calls `work` with the length of a coded block's payload, and a function that fetches and verifies units of it.
    fn with_payload_of(
        &self,
        at: &[u64],
        map: &BlockMap,
        work: &mut dyn FnMut(usize, Bring<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let page = self.space.shape.page;
        let pages = map.pages() as u32;
        self.without_holes(at, map)?;
        if let Some(run) = map.covering(0..pages) {
            if let Some(payload) = self.ftl.view(run.ppa, pages) {
                let payload = Mapped { run: Run { unit: 0, count: pages, ppa: run.page_of(0) }, bytes: payload };
                let mut bring = |units: Range<u32>| self.verify(at, &payload.part(units)).map(|()| payload.bytes);
                return work(payload.bytes.len(), &mut bring);
            }
        }
        with_payload(pages as usize * page, |payload| {
            let mut fetched = UnitSet::default();
            fetched.clear(pages);
            let len = payload.len();
            let mut bring = |units: Range<u32>| {
                for unit in units.clone().filter(|&u| !fetched.has(u)) {
                    self.fetch_unit(at, map, unit, payload)?;
                }
                fetched.add(units);
                // SAFETY: the buffer outlives the decoding below, which reads it between these calls only.
                Ok(unsafe { std::slice::from_raw_parts(payload.as_ptr(), len) })
            };
            work(len, &mut bring)
        })
    }

    /// Returns the payload of a coded block without its padding, verified by its pages' checksums and not decoded.
    pub fn payload(&self, at: &[u64], map: &BlockMap) -> Result<Vec<u8>> {
        let codec = self.space.codec()?;
        let key = Space::context_key(at);
        let mut found = Vec::new();
        self.with_payload_of(at, map, &mut |len, bring| {
            let head = bring(self.payload_units(at, &(0..codec.head_bytes()), len)?)?;
            let table = codec.frame_table(head, self.space.context(&key));
            let bytes = table.map_err(|e| self.damaged(at, &e.to_string()))?.payload_bytes();
            found = bring(self.payload_units(at, &(0..bytes), len)?)?[..bytes].to_vec();
            Ok(())
        })?;
        Ok(found)
    }

    /// Fetches and verifies a page of a coded block, into its place in a payload-sized buffer.
    pub(super) fn fetch_unit(&self, at: &[u64], map: &BlockMap, unit: u32, payload: &mut [u8]) -> Result<()> {
        let page = self.space.shape.page;
        let run = Run { unit, count: 1, ppa: map.page_of(unit).expect("a payload without holes") };
        let owner = Owner { unit: unit as u16, ..self.space.owner(at) };
        let bytes = &mut payload[unit as usize * page..][..page];
        self.ftl.fetch(run, owner, bytes).map_err(|e| self.bad_page(at, e))
    }

    /// Returns the units of a payload of `len` bytes that hold these bytes; an error if they lie beyond its end.
    pub(super) fn payload_units(&self, at: &[u64], bytes: &Range<usize>, len: usize) -> Result<Range<u32>> {
        let page = self.space.shape.page;
        if bytes.end > len {
            return Err(self.damaged(at, "its payload is longer than its pages"));
        }
        Ok((bytes.start / page) as u32..bytes.end.div_ceil(page) as u32)
    }

    /// Decodes the wanted byte ranges from a payload of `len` bytes; `bring` fetches and verifies units of the payload.
    fn decode_payload<'p>(
        &self,
        at: &[u64],
        len: usize,
        bring: Bring<'_, 'p>,
        wanted: &[Range<usize>],
        block: &mut [u8],
    ) -> Result<()> {
        let codec = self.space.codec()?;
        let damaged = |what: String| self.damaged(at, &what);
        let mut bring = |bytes: Range<usize>| bring(self.payload_units(at, &bytes, len)?);
        let key = Space::context_key(at);
        let payload = bring(0..codec.head_bytes())?;
        let table: FrameTable =
            codec.frame_table(payload, self.space.context(&key)).map_err(|e| damaged(e.to_string()))?;
        self.each_frames(at, &table, wanted, &mut |frames, raw| {
            let payload = bring(table.payload_range(frames))?;
            codec.decode_frames(&table, payload, 0, raw, block).map(drop).map_err(|e| damaged(e.to_string()))
        })
    }

    /// Calls `each` with the frames that hold these byte ranges (ascending, disjoint), each frame once, and with the
    /// part of the range for which they are needed.
    pub(super) fn each_frames(
        &self,
        at: &[u64],
        table: &FrameTable,
        wanted: &[Range<usize>],
        each: &mut dyn FnMut(Range<usize>, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        for raw in wanted {
            let raw = raw.start.max(done.min(raw.end - 1))..raw.end;
            let frames = table.frames(raw.clone()).map_err(|e| self.damaged(at, &e.to_string()))?;
            let end = table.raw_range(frames.clone()).end;
            if end > done {
                each(frames, raw)?;
                done = end;
            }
        }
        Ok(())
    }

    pub(super) fn damaged(&self, at: &[u64], what: &str) -> Error {
        let block = Shape(at);
        Error::corrupt(format!("array {:?}, building block {block}: {what}", self.inner.record.name))
    }

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

    fn packed_block(
        &self,
        block: u64,
        values: Range<usize>,
        state: &mut WorkerState<'a>,
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
