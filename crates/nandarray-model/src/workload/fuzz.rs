//! Entry point of the fuzz target `trace`: any bytes must give requests within the device, in order of time, or an
//! error.

use std::io::Cursor;

use super::blktrace::BlktraceEvent;
use super::trace::{Trace, TraceSettings};
use super::{RequestOp, RequestSource, SECTOR_BYTES, WorkloadError};
use nandarray_sim::Ps;

/// Reads any bytes as a trace of any format, for devices of two sizes.
///
/// # Panics
/// If a request is not one that a device accepts.
pub fn trace(bytes: &[u8]) {
    for (device_bytes, blktrace_event) in [(SECTOR_BYTES, BlktraceEvent::Queued), (1 << 40, BlktraceEvent::Issued)] {
        let settings = TraceSettings { blktrace_event, ..TraceSettings::default() };
        let read =
            |error: &WorkloadError| assert!(matches!(error, WorkloadError::Line { .. } | WorkloadError::Io { .. }));
        let mut trace = match Trace::new(Box::new(Cursor::new(bytes.to_vec())), None, settings, device_bytes) {
            Ok(trace) => trace,
            Err(error) => return read(&error),
        };
        let mut latest = Ps::ZERO;
        loop {
            match trace.next(latest) {
                Ok(None) => break,
                Err(error) => return read(&error),
                Ok(Some(request)) => {
                    let at = request.at.unwrap_or(latest);
                    assert!(at >= latest, "{request:?} before {latest}");
                    latest = at;
                    assert_eq!((request.offset_bytes % SECTOR_BYTES, request.bytes % SECTOR_BYTES), (0, 0));
                    assert!(request.offset_bytes + request.bytes <= device_bytes, "{request:?}");
                    assert_eq!(request.bytes == 0, request.op == RequestOp::Flush, "{request:?}");
                }
            }
        }
    }
}
