//! The medium of a modelled store: forwards every access to a real medium, and reports the pages to the [`Recorder`].
//!
//! A page of the store's data is a page of flash, and its out-of-band record is in the page's spare bytes, which are
//! transferred with it. A read of all records of a segment (recovery, reclaim) is charged as a read of as many pages
//! as the records would fill, from the segment's first page on. Superblocks and segment headers are kept by the
//! controller (battery-backed memory or a few separate blocks) and cost nothing. A segment's blocks are erased when
//! all their pages are known to be dead.
//!
//! A medium that keeps no data keeps only the engine's own state (head, log, 32 bytes of record per page); data reads
//! as zeroes.

use std::collections::BTreeMap;
use std::sync::Arc;

use nandarray::file_format::{Area, OOB_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind, read_slots};
use nandarray::{FileState, Geometry, Media, Result};
use parking_lot::{Mutex, RwLock};

use super::power::{LoggedWrite, WriteLog};
use crate::flash::OpKind;
use crate::flash_trace::{Recorder, StoreLayout};

/// A medium on the modelled clock.
#[derive(Debug)]
pub(super) struct ModelMedia {
    below: Arc<dyn Media>,
    recorder: Arc<Recorder>,
    /// The recorder's geometry, with the layout of the store that the medium holds.
    geometry: Geometry,
    /// Whether each segment belongs to the journal or to a checkpoint; looked up in the segment's header on first use.
    log: RwLock<BTreeMap<Segment, bool>>,
    keeps_data: bool,
    /// Log of every write, for power failures, and the layout that gives the pages' flash addresses; `None` if no log
    /// is kept.
    writes: Option<(Arc<Mutex<WriteLog>>, StoreLayout)>,
}

impl ModelMedia {
    /// Wraps a medium of a store; accesses are reported to `recorder`. Unless `keeps_data`, pages of data are not
    /// written.
    pub(super) fn new(below: Arc<dyn Media>, recorder: Arc<Recorder>, keeps_data: bool) -> Self {
        let shape = recorder.geometry();
        let found = read_slots(below.as_ref(), "the store").ok();
        let geometry = found.map_or(shape, |slots| Geometry { layout: slots[0].1.geometry.layout, ..shape });
        Self { below, recorder, geometry, log: RwLock::default(), keeps_data, writes: None }
    }

    /// Returns the medium with every write from now on logged in `writes`.
    pub(super) fn logged(self, writes: Arc<Mutex<WriteLog>>, layout: StoreLayout) -> Self {
        Self { writes: Some((writes, layout)), ..self }
    }

    fn log_write(&self, offset: u64, bytes: &[u8]) {
        let Some((log, layout)) = &self.writes else { return };
        let geometry = self.geometry;
        let page = u64::from(geometry.page_bytes);
        let place = |segment, n: u64| layout.place(geometry.ppa(segment, n as u32));
        let bytes = bytes.to_vec();
        let written = match self.geometry.area_at(offset) {
            Area::None => LoggedWrite::Head(offset, bytes),
            Area::Header(_) => LoggedWrite::Own(offset, bytes),
            Area::Pages(segment, at) => {
                let places = (at / page..(at + bytes.len() as u64).div_ceil(page)).map(|n| place(segment, n)).collect();
                LoggedWrite::Pages { offset, within: (at % page) as usize, bytes, places }
            }
            Area::Records(segment, at) => {
                let first = at / OOB_BYTES;
                let places = (first..first + bytes.len() as u64 / OOB_BYTES).map(|n| place(segment, n)).collect();
                LoggedWrite::Records(offset, bytes, places)
            }
        };
        log.lock().writes.push(written);
    }

    fn is_log(&self, segment: Segment) -> bool {
        if let Some(&log) = self.log.read().get(&segment) {
            return log;
        }
        let mut header = [0; SEGMENT_HEADER_BYTES as usize];
        let read = self.below.read_at(self.geometry.header_offset(segment), &mut header);
        let log = read.is_ok() && SegmentHeader::parse(&header).is_some_and(|h| h.kind() != Some(SegmentKind::Data));
        self.log.write().insert(segment, log);
        log
    }
}

impl Media for ModelMedia {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        if let Some((log, _)) = &self.writes {
            log.lock().writes.push(LoggedWrite::Length(bytes));
        }
        self.below.set_len(bytes)
    }

    fn file_state(&self) -> Option<FileState> {
        self.below.file_state()
    }

    fn refresh(&self) -> Result<()> {
        self.below.refresh()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let geometry = self.geometry;
        match self.geometry.area_at(offset) {
            Area::Pages(segment, at) => {
                self.recorder.pages(OpKind::Read, self.is_log(segment), segment, at, out.len() as u64);
            }
            Area::Records(segment, _) => {
                let all = u64::from(geometry.pages_per_segment()) * OOB_BYTES;
                // A part of the records is read with the records' pages, which are read anyway.
                if out.len() as u64 == all {
                    self.recorder.pages(OpKind::Read, true, segment, 0, all.min(geometry.segment_data_bytes()));
                }
            }
            Area::None | Area::Header(_) => {}
        }
        self.below.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.log_write(offset, bytes);
        match self.geometry.area_at(offset) {
            Area::Pages(segment, at) => {
                let log = self.is_log(segment);
                self.recorder.pages(OpKind::Program, log, segment, at, bytes.len() as u64);
                if !self.keeps_data && !log {
                    return Ok(());
                }
            }
            Area::Header(segment) => {
                let header = bytes.get(..SEGMENT_HEADER_BYTES as usize).and_then(SegmentHeader::parse);
                let log = header.is_some_and(|h| h.kind() != Some(SegmentKind::Data));
                self.log.write().insert(segment, log);
            }
            Area::Records(..) | Area::None => {}
        }
        self.below.write_at(offset, bytes)
    }

    fn will_read(&self, offset: u64, len: u64) {
        let Area::Pages(segment, at) = self.geometry.area_at(offset) else {
            unreachable!("commands in flight read pages of data");
        };
        self.recorder.pages(OpKind::Read, self.is_log(segment), segment, at, len);
    }

    fn sync(&self) -> Result<()> {
        self.recorder.barrier();
        self.below.sync()
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        // Every access must pass through this type to be timed, so it gives out no slices.
        None
    }

    fn discard(&self, offset: u64, len: u64) {
        self.below.discard(offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        self.below.allocate(offset, len)
    }

    fn if_no_readers(&self, reuse: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        self.below.if_no_readers(reuse)
    }
}
