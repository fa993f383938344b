//! A run of programs as a host waits for it: outputs arrive while it goes on, by Run Output.
//!
//! Some of these commands are in flight beside the run's request. The controller completes them in their order; each
//! that has brought something is sent again, until the run has ended.

use std::io;
use std::thread;
use std::time::Duration;

use nandarray_nvme_spec::{CompletionEntry, Status, SubmissionEntry};

use super::initiator::{Initiator, broken};
use crate::limits::TRANSFER_BYTES_MAX;

/// Number of Run Output commands in flight: while one's data is taken, others are on their way.
const FETCHES: usize = 4;
/// Time after which a command is sent again for which the controller had no resources.
const PAUSE: Duration = Duration::from_millis(20);

impl Initiator {
    /// Executes the last part of a request that runs programs, and fetches its outputs by copies of `fetch`; `take` is
    /// called with the number of an output and its next bytes. Outputs, or the rest of them, may be in the reply.
    ///
    /// # Errors
    /// As [`Self::call`]; or the error of `take`.
    pub fn call_fetching(
        &mut self,
        entry: SubmissionEntry,
        source: &[u8],
        fetch: SubmissionEntry,
        mut take: impl FnMut(u32, &[u8]) -> io::Result<()>,
    ) -> io::Result<CompletionEntry> {
        if source.len() > TRANSFER_BYTES_MAX {
            return Err(broken(format!("data of {} bytes; a transfer has {TRANSFER_BYTES_MAX}", source.len())));
        }
        let queue = self.io()?;
        let run = queue.submit(entry, source, 0);
        // The controller knows of the run when it has the whole request.
        while !self.io()?.has_given(run) {
            if !self.io()?.receive_in_time()? {
                self.look()?;
            }
        }
        let queue = self.io()?;
        for _ in 0..FETCHES {
            queue.submit(fetch, &[], TRANSFER_BYTES_MAX);
        }
        let mut ended = None;
        while ended.is_none() || self.io()?.in_flight() > 0 {
            let (done, data) = self.long_completion()?;
            let (status, bytes) = (done.status(), done.dw0.get() as usize);
            if done.cid.get() == run {
                ended = Some(done);
                continue;
            }
            let is_refused = status == Status::RESOURCES;
            if status.ok() && bytes > 0 {
                let piece = data.get(..bytes).ok_or_else(|| broken(format!("{bytes} bytes of an output")))?;
                take(done.dw1.get(), piece)?;
            } else if !is_refused {
                // The run is over, or has no outputs to fetch, or the controller knows no such command.
                continue;
            }
            let queue = self.io()?;
            queue.recycle(data);
            if ended.is_none() {
                if is_refused {
                    thread::sleep(PAUSE);
                }
                queue.submit(fetch, &[], TRANSFER_BYTES_MAX);
            }
        }
        Ok(ended.expect("the run has ended"))
    }
}
