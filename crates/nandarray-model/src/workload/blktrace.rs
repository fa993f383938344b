//! Parser of blkparse's default output for a blktrace (blkparse(1), "DEFAULT OUTPUT"): `major,minor cpu sequence
//! seconds.nanoseconds pid action RWBS sector + sectors [process]`.
//!
//! Only one action counts as the request (`BlktraceEvent`), and the others are ignored; otherwise a merged, split or
//! remapped request would count twice. Sectors have 512 bytes. A request that demands a flush first (RWBS begins with
//! F) becomes a flush and the request. The CPU is the stream, since Linux has a queue for each CPU. The summary after
//! the events ends the trace.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::record::{AfterLine, Expected, LineParser, RecordTime, TraceRecord, number};
use super::{RequestOp, SECTOR_BYTES};
use nandarray_sim::Ps;

/// The events of a blktrace that count as requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlktraceEvent {
    /// Q: requests as submitted by the file system or the program, before merging; fio replays these, too.
    #[default]
    Queued,
    /// D: requests as issued to the driver, after merging, at the pace of the traced device.
    Issued,
}

#[derive(Debug)]
pub(super) struct Blktrace {
    action: &'static str,
    first: Option<Ps>,
}

impl Blktrace {
    pub(super) fn new(event: BlktraceEvent) -> Self {
        let action = match event {
            BlktraceEvent::Queued => "Q",
            BlktraceEvent::Issued => "D",
        };
        Self { action, first: None }
    }
}

impl LineParser for Blktrace {
    fn line(&mut self, text: &str, out: &mut VecDeque<TraceRecord>) -> Result<AfterLine, Expected> {
        let mut fields = text.split_ascii_whitespace();
        let device = fields.next().unwrap_or("");
        if device.starts_with("CPU") || device == "Total" {
            return Ok(AfterLine::End);
        }
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !device.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor)) {
            return Err("a device as major,minor".into());
        }
        let cpu = number(fields.next(), "a CPU")?;
        number(fields.next(), "a sequence number")?;
        let time = seconds(fields.next())?;
        number(fields.next(), "a process id")?;
        let action = fields.next().ok_or("an action")?;
        if action != self.action {
            return Ok(AfterLine::More);
        }
        let rwbs = fields.next().ok_or("an RWBS field")?;
        let mut flags = rwbs.bytes().peekable();
        // A leading F stands for a flush before the request; alone, or before another F or N, it is only the flush.
        let flushes = flags.next_if_eq(&b'F').is_some();
        let op = match flags.next() {
            Some(b'R') => Some(RequestOp::Read),
            Some(b'W') => Some(RequestOp::Write),
            Some(b'D') => Some(RequestOp::Trim),
            // Secure erases, resets and other commands move no data.
            Some(b'F' | b'N' | b'E' | b'Z' | b'S' | b'M' | b'A') | None => None,
            Some(_) => return Err("an RWBS field like R, WS, D or FWS".into()),
        };
        // Commands of another kind (N) have other fields here, and requests without data have only the process.
        let (mut sector, mut sectors) = (0, 0);
        if op.is_some() {
            let field = fields.next();
            if !field.is_some_and(|f| f.starts_with('[')) {
                sector = number(field, "a sector")?;
                if fields.next() != Some("+") {
                    return Err("a plus sign between sector and number of sectors".into());
                }
                sectors = number(fields.next(), "a number of sectors")?;
            }
        }
        let stream = u32::try_from(cpu).map_err(|_| "a CPU below 4,294,967,296")?;
        let when = RecordTime::At(time.since(*self.first.get_or_insert(time)));
        let record = |op, offset_bytes, bytes| TraceRecord { when, op, stream, file: 0, offset_bytes, bytes };
        if flushes {
            out.push_back(record(RequestOp::Flush, 0, 0));
        }
        if let Some(op) = op.filter(|_| sectors > 0) {
            let bytes = |n: u64| n.checked_mul(SECTOR_BYTES).ok_or("a sector below 2^55");
            out.push_back(record(op, bytes(sector)?, bytes(sectors)?));
        }
        Ok(AfterLine::More)
    }
}

/// Parses `12.003456789`, with at most nine digits after the point.
fn seconds(field: Option<&str>) -> Result<Ps, Expected> {
    let expected = "a time as seconds.nanoseconds, within 115 days";
    let parse = || {
        let (whole, part) = field?.split_once('.')?;
        if part.is_empty() || part.len() > 9 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let nanoseconds = part.parse::<u64>().ok()? * 10u64.pow(9 - part.len() as u32);
        let whole: u64 = whole.parse().ok().filter(|&s| s < 10_000_000)?;
        Some(Ps(whole * 1_000_000_000_000 + nanoseconds * 1_000))
    };
    parse().ok_or_else(|| expected.into())
}
