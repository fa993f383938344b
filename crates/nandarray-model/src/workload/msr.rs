//! Parser of CSV in the format of the MSR Cambridge traces (Narayanan et al., "Write Off-Loading", FAST 2008;
//! described in their README): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Times are Windows file times, in units of 100 ns; the first one is the beginning of the trace. Offset and size are
//! in bytes; the recorded response time is not used and may be missing. The disk number is the stream. A heading line
//! is ignored.

use std::collections::VecDeque;

use super::RequestOp;
use super::record::{AfterLine, Expected, LineParser, RecordTime, TraceRecord, number};
use nandarray_sim::Ps;

#[derive(Debug, Default)]
pub(super) struct Msr {
    first: Option<u64>,
    lines: u64,
}

impl LineParser for Msr {
    fn line(&mut self, text: &str, out: &mut VecDeque<TraceRecord>) -> Result<AfterLine, Expected> {
        self.lines += 1;
        let mut fields = text.split(',').map(str::trim);
        let time = fields.next();
        if self.lines == 1 && time.is_some_and(|t| t.eq_ignore_ascii_case("timestamp")) {
            return Ok(AfterLine::More);
        }
        let time = number(time, "a Windows file time")?;
        fields.next().ok_or("a host name")?;
        let disk = number(fields.next(), "a disk number")?;
        let op = match fields.next() {
            Some(t) if t.eq_ignore_ascii_case("read") => RequestOp::Read,
            Some(t) if t.eq_ignore_ascii_case("write") => RequestOp::Write,
            _ => return Err("Read or Write".into()),
        };
        let offset_bytes = number(fields.next(), "an offset in bytes")?;
        let bytes = number(fields.next(), "a size in bytes")?;
        if bytes == 0 {
            return Err("a size above 0".into());
        }
        if let Some(response) = fields.next() {
            number(Some(response), "a response time in units of 100 ns")?;
        }
        if fields.next().is_some() {
            return Err("at most 7 fields".into());
        }
        let ticks = time.saturating_sub(*self.first.get_or_insert(time));
        let when = RecordTime::At(Ps(ticks.saturating_mul(100_000)));
        let stream = u32::try_from(disk).map_err(|_| "a disk number below 4,294,967,296")?;
        out.push_back(TraceRecord { when, op, stream, file: 0, offset_bytes, bytes });
        Ok(AfterLine::More)
    }
}
