//! Parser of fio iologs, versions 2 and 3 (fio's HOWTO, "Trace file format").
//!
//! Lines after `fio version 2 iolog` are `file action` or `file action offset length`; version 3 prepends a time in
//! microseconds. Version 2 has no times, only pauses (`wait`, in microseconds, each counted from the previous one),
//! and is replayed in a closed loop, as by fio. Each file has its own offsets and is a separate stream.

use std::collections::{HashMap, VecDeque};

use super::RequestOp;
use super::record::{AfterLine, Expected, LineParser, RecordTime, TraceRecord, number};
use nandarray_sim::Ps;

/// Maximum number of files of one trace, since each file's name is kept in memory.
const FILES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Fio {
    version: u32,
    files: HashMap<String, u32>,
    /// Sum of the pauses since the last request.
    pause: Ps,
}

impl LineParser for Fio {
    fn line(&mut self, text: &str, out: &mut VecDeque<TraceRecord>) -> Result<AfterLine, Expected> {
        let mut fields = text.split_ascii_whitespace();
        if self.version == 0 {
            self.version = match text {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => return Err("\"fio version 2 iolog\" or \"fio version 3 iolog\"".into()),
            };
            return Ok(AfterLine::More);
        }
        let mut when = RecordTime::After(self.pause);
        if self.version == 3 {
            let us = number(fields.next(), "a time in microseconds")?;
            when = RecordTime::At(Ps(us.saturating_mul(1_000_000)));
        }
        let file = fields.next().ok_or("a file name")?;
        let action = fields.next().ok_or("an action")?;
        let op = match action {
            "add" | "open" | "close" | "unlink" => return no_more(fields.next()).map(|()| AfterLine::More),
            "read" => RequestOp::Read,
            "write" => RequestOp::Write,
            "trim" => RequestOp::Trim,
            "sync" | "datasync" | "sync_file_range" | "syncfs" => RequestOp::Flush,
            "wait" if self.version == 2 => {
                let us = number(fields.next(), "microseconds to wait")?;
                // A length follows, which has no meaning and is ignored.
                self.pause = Ps(self.pause.0.saturating_add(us.saturating_mul(1_000_000)));
                return Ok(AfterLine::More);
            }
            _ => {
                return Err(format!(
                    "an action: read, write, trim, sync, datasync, add, open, close{}",
                    if self.version == 2 { ", wait" } else { " (version 3 has no wait)" }
                ));
            }
        };
        let (mut offset_bytes, mut bytes) = (0, 0);
        if op != RequestOp::Flush {
            offset_bytes = number(fields.next(), "an offset in bytes")?;
            bytes = number(fields.next(), "a length in bytes")?;
            if bytes == 0 {
                return Err("a length above 0".into());
            }
            no_more(fields.next())?;
        }
        let file = self.file(file)?;
        self.pause = Ps::ZERO;
        out.push_back(TraceRecord { when, op, stream: file, file, offset_bytes, bytes });
        Ok(AfterLine::More)
    }
}

impl Fio {
    /// Returns the number of a file, which is assigned at its first use.
    fn file(&mut self, name: &str) -> Result<u32, Expected> {
        if let Some(&file) = self.files.get(name) {
            return Ok(file);
        }
        if self.files.len() == FILES_MAX {
            return Err(format!("at most {FILES_MAX} files"));
        }
        let file = self.files.len() as u32;
        self.files.insert(name.to_owned(), file);
        Ok(file)
    }
}

fn no_more(field: Option<&str>) -> Result<(), Expected> {
    field.map_or(Ok(()), |_| Err("the end of the line".into()))
}
