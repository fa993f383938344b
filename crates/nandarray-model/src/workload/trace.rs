//! Traces as sources of requests: lines are read one at a time and parsed in their format, times are scaled, and
//! offsets are wrapped into the device.
//!
//! Only the current line is in memory, so a trace may have any size; gzip is decompressed on the fly. The parsers
//! (`fio`, `blktrace`, `msr`) each know one format and nothing of devices. A fuzz test checks that any bytes give
//! requests or an error that names the line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::blktrace::{Blktrace, BlktraceEvent};
use super::fio::Fio;
use super::msr::Msr;
use super::record::{AfterLine, Expected, LineParser, RecordTime, TraceRecord};
use super::{IoRequest, RequestOp, RequestSource, SECTOR_BYTES, WorkloadError};
use nandarray_sim::Ps;

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Latest time of arrival in picoseconds, 115 days, which leaves the clock room after it.
pub(super) const AT_MAX: u64 = 10_000_000_000_000_000_000;

/// Format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// fio's `write_iolog`, version 2 or 3.
    Fio,
    /// The default text output of blkparse.
    Blktrace,
    /// CSV in the format of the MSR Cambridge traces.
    Msr,
}

impl TraceFormat {
    /// Returns the name of the format for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "an fio iolog",
            Self::Blktrace => "a blkparse text",
            Self::Msr => "an MSR Cambridge CSV",
        }
    }

    /// Detects the format from a trace's first line; `None` if the line is of no known format.
    pub fn of_line(line: &str) -> Option<Self> {
        let first = line.split_whitespace().next().unwrap_or("");
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if line.starts_with("fio version") {
            Some(Self::Fio)
        } else if first.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor)) {
            Some(Self::Blktrace)
        } else if line.split(',').count() >= 6 {
            Some(Self::Msr)
        } else {
            None
        }
    }
}

/// Settings for replaying a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSettings {
    /// Format of the trace; `None` to detect it from the first line.
    pub format: Option<TraceFormat>,
    /// Factor by which all times are multiplied: 0.5 is twice as fast as recorded.
    pub time_scale: f64,
    /// Number of requests in flight at all times, in place of the recorded times; `None` to submit requests at the
    /// recorded times.
    pub depth: Option<u32>,
    /// Maximum number of requests that are replayed; `None` for all.
    pub requests: Option<u64>,
    /// The events of a blktrace that count as requests.
    pub blktrace_event: BlktraceEvent,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { format: None, time_scale: 1.0, depth: None, requests: None, blktrace_event: BlktraceEvent::default() }
    }
}

/// Makes the parser of a format.
fn parser(format: TraceFormat, event: BlktraceEvent) -> Box<dyn LineParser> {
    match format {
        TraceFormat::Fio => Box::new(Fio::default()),
        TraceFormat::Blktrace => Box::new(Blktrace::new(event)),
        TraceFormat::Msr => Box::new(Msr::default()),
    }
}

/// A reader that counts the bytes read through it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A trace that is being read, as a source of requests.
pub struct Trace {
    lines: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
    line_number: u64,
    parser: Option<(TraceFormat, Box<dyn LineParser>)>,
    settings: TraceSettings,
    capacity_bytes: u64,
    waiting: VecDeque<TraceRecord>,
    ended: bool,
    read: Arc<AtomicU64>,
    total_bytes: Option<u64>,
    issued: u64,
    latest: Ps,
    pause_from: Ps,
    closed: bool,
    wrapped: u64,
    cut: u64,
    reordered: u64,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("line", &self.line_number).field("given", &self.issued).finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens a trace file, compressed with gzip or not, for a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// If the file cannot be read, a setting is out of range, or the first line is of no known format.
    pub fn open(path: &Path, settings: TraceSettings, device_bytes: u64) -> Result<Self, WorkloadError> {
        let io = |error| WorkloadError::Io { line: 1, error };
        let file = File::open(path).map_err(io)?;
        let total = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
        Self::new(Box::new(file), total, settings, device_bytes)
    }

    /// Reads a trace from any reader; its progress is measured against `total_bytes`, if known.
    ///
    /// # Errors
    /// If the reader fails, a setting is out of range, or the first line is of no known format.
    pub fn new(
        source: Box<dyn Read + Send>,
        total_bytes: Option<u64>,
        settings: TraceSettings,
        device_bytes: u64,
    ) -> Result<Self, WorkloadError> {
        let wrong = |text: String| Err(WorkloadError::Parameter(text));
        if !(settings.time_scale > 0.0 && settings.time_scale <= 1e6) {
            return wrong(format!("a time scale must be above 0 and at most 1,000,000, not {}", settings.time_scale));
        }
        if let Some(depth) = settings.depth.filter(|d| !(1..=65_536).contains(d)) {
            return wrong(format!("a queue depth must be from 1 to 65,536, not {depth}"));
        }
        if device_bytes < SECTOR_BYTES {
            return wrong(format!("a trace for a device of {device_bytes} B"));
        }
        let read = Arc::new(AtomicU64::new(0));
        let mut counted = Counted { inner: source, count: read.clone() };
        // A pipe may return a single byte at first, and a signal may interrupt it.
        let mut first = Vec::new();
        let peeked = counted.by_ref().take(2).read_to_end(&mut first);
        peeked.map_err(|error| WorkloadError::Io { line: 1, error })?;
        let is_gzip = first == [0x1f, 0x8b];
        let whole = BufReader::with_capacity(1 << 18, Cursor::new(first).chain(counted));
        let plain: Box<dyn Read + Send> =
            if is_gzip { Box::new(flate2::bufread::MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        let mut trace = Self {
            lines: BufReader::with_capacity(1 << 16, plain),
            line: Vec::new(),
            line_number: 0,
            parser: settings.format.map(|format| (format, parser(format, settings.blktrace_event))),
            settings,
            capacity_bytes: device_bytes / SECTOR_BYTES * SECTOR_BYTES,
            waiting: VecDeque::new(),
            ended: false,
            read,
            total_bytes,
            issued: 0,
            latest: Ps::ZERO,
            pause_from: Ps::ZERO,
            closed: settings.depth.is_some(),
            wrapped: 0,
            cut: 0,
            reordered: 0,
        };
        // The first request is read at once, to learn whether the trace has times.
        trace.fill()?;
        trace.closed |= matches!(trace.waiting.front(), Some(TraceRecord { when: RecordTime::After(_), .. }));
        Ok(trace)
    }

    /// Returns the trace's format; `None` only for a trace without a line.
    pub fn format(&self) -> Option<TraceFormat> {
        self.parser.as_ref().map(|(format, _)| *format)
    }

    fn wrong_line(&self, format: &'static str, expected: Expected) -> WorkloadError {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end().chars().take(80).collect();
        WorkloadError::Line { line: self.line_number, format, expected, text }
    }

    /// Reads lines until a record waits, or the trace ends.
    fn fill(&mut self) -> Result<(), WorkloadError> {
        while self.waiting.is_empty() && !self.ended {
            self.line.clear();
            let mut limited = self.lines.by_ref().take(LINE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut self.line);
            self.line_number += 1;
            let n = read.map_err(|error| WorkloadError::Io { line: self.line_number, error })?;
            if n == 0 {
                self.ended = true;
                break;
            }
            let name = self.format().map_or("a trace", TraceFormat::name);
            if n == LINE_BYTES_MAX && !self.line.ends_with(b"\n") {
                return Err(self.wrong_line(name, format!("a line of less than {LINE_BYTES_MAX} bytes")));
            }
            let text = String::from_utf8_lossy(&self.line);
            let text = text.trim_end();
            if text.trim_start().is_empty() {
                continue;
            }
            if self.parser.is_none() {
                let Some(format) = TraceFormat::of_line(text) else {
                    let expected = "the first line of an fio iolog (\"fio version 3 iolog\"), of blkparse \
                                    (\"8,0 1 1 0.000000000 697 Q R 223490 + 8\") or of an MSR Cambridge CSV \
                                    (\"128166372003061629,usr,0,Read,7014609920,24576,41286\")";
                    return Err(self.wrong_line("a trace", expected.into()));
                };
                self.parser = Some((format, parser(format, self.settings.blktrace_event)));
            }
            let (format, parser) = self.parser.as_mut().expect("there is one now");
            match parser.line(text, &mut self.waiting) {
                Ok(AfterLine::More) => {}
                Ok(AfterLine::End) => self.ended = true,
                Err(expected) => {
                    let name = format.name();
                    return Err(self.wrong_line(name, expected));
                }
            }
        }
        Ok(())
    }

    fn scaled(&self, time: Ps) -> Result<Ps, WorkloadError> {
        let scale = self.settings.time_scale;
        let ps = if scale == 1.0 { time.0 } else { (time.0 as f64 * scale) as u64 };
        if ps > AT_MAX {
            let name = self.format().map_or("a trace", TraceFormat::name);
            return Err(self.wrong_line(name, "a time within 115 days of the first".into()));
        }
        Ok(Ps(ps))
    }

    /// Returns offset and bytes of a record on the device: whole sectors, from the base of the record's file, modulo
    /// the device's size, and no request across its end.
    fn place(&mut self, record: &TraceRecord) -> (u64, u64) {
        let capacity = self.capacity_bytes;
        if record.op == RequestOp::Flush {
            return (0, 0);
        }
        let begin = record.offset_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let end = record.offset_bytes.saturating_add(record.bytes);
        let mut bytes = (end - begin).div_ceil(SECTOR_BYTES).saturating_mul(SECTOR_BYTES);
        if bytes > capacity {
            bytes = capacity;
            self.cut += 1;
        }
        // The bases of files are multiples of the golden ratio, which spreads any number of files evenly.
        let base = (f64::from(record.file) * 0.618_033_988_749_894_8).fract() * capacity as f64;
        let base = base as u64 / (1 << 20) * (1 << 20);
        let offset = (u128::from(base) + u128::from(begin)) % u128::from(capacity);
        let offset = (offset as u64).min(capacity - bytes);
        if record.file == 0 && offset != begin {
            self.wrapped += 1;
        }
        (offset, bytes)
    }
}

impl RequestSource for Trace {
    fn next(&mut self, now: Ps) -> Result<Option<IoRequest>, WorkloadError> {
        if self.settings.requests.is_some_and(|most| self.issued >= most) {
            return Ok(None);
        }
        self.fill()?;
        let Some(record) = self.waiting.pop_front() else {
            return Ok(None);
        };
        let at = match record.when {
            RecordTime::At(_) if self.closed => None,
            RecordTime::At(at) => {
                let at = self.scaled(at)?;
                self.reordered += u64::from(at < self.latest);
                self.latest = at.max(self.latest);
                Some(self.latest)
            }
            RecordTime::After(Ps::ZERO) => None,
            RecordTime::After(pause) => {
                self.pause_from =
                    self.scaled(Ps(self.pause_from.0.saturating_add(self.scaled(pause)?.0).min(AT_MAX)))?;
                Some(self.pause_from).filter(|&until| until > now)
            }
        };
        self.issued += 1;
        let (offset_bytes, bytes) = self.place(&record);
        Ok(Some(IoRequest { at, op: record.op, stream: record.stream, offset_bytes, bytes }))
    }

    fn depth(&self) -> Option<u32> {
        self.closed.then(|| self.settings.depth.unwrap_or(1))
    }

    fn progress(&self, _now: Ps) -> Option<f64> {
        let read = self.total_bytes.map(|total| self.read.load(Ordering::Relaxed) as f64 / total.max(1) as f64);
        let issued = self.settings.requests.map(|most| self.issued as f64 / most.max(1) as f64);
        match (read, issued) {
            (Some(a), Some(b)) => Some(a.max(b).min(1.0)),
            (a, b) => a.or(b).map(|share| share.min(1.0)),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |n: u64, what: &str| {
            if n > 0 {
                notes.push(format!("{n} requests {what}"));
            }
        };
        note(self.wrapped, "lay beyond the device and were wrapped into it");
        note(self.cut, "were larger than the device and were cut to its size");
        note(self.reordered, "were recorded with earlier times than requests before them and arrive with those");
        if self.closed && self.settings.depth.is_none() {
            notes.push("the trace has no times: replayed one request at a time".into());
        }
        notes
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
