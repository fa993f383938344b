//! Runs a source of requests to its end, at a constant queue depth (closed loop) or at the requests' arrival times
//! (open loop).

use super::fabric::Event;
use super::{Machine, RequestEnded};
use crate::workload::{IoRequest, RequestSource, WorkloadError};
use nandarray_sim::Ps;

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct DriveProgress {
    /// Number of requests that have ended.
    pub requests: u64,
    /// Bytes that the ended requests read, wrote or trimmed.
    pub bytes: u64,
    /// Modelled time since the run began.
    pub now: Ps,
    /// Fraction of the source's requests that was submitted; `None` if the source does not know its length.
    pub share: Option<f64>,
}

/// Number of ended requests between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 14;

impl Machine {
    /// Submits all requests of a source and waits until they have ended. Calls `on_end` for every request that ends,
    /// and `on_progress` every 16384 requests; if this returns `false`, no more requests are submitted, and those in
    /// flight end.
    ///
    /// # Errors
    /// The error of the source; requests in flight end first.
    ///
    /// # Panics
    /// If the machine has no page-mapped flash management.
    pub fn drive(
        &mut self,
        source: &mut dyn RequestSource,
        on_end: &mut dyn FnMut(&RequestEnded),
        on_progress: &mut dyn FnMut(DriveProgress) -> bool,
    ) -> Result<(), WorkloadError> {
        let began = self.now();
        let depth = source.depth();
        let (mut open, mut over, mut failed) = (0u32, false, None);
        let (mut requests, mut bytes) = (0u64, 0u64);
        let (mut next, mut alarm): (Option<IoRequest>, Option<Ps>) = (None, None);
        loop {
            // Closed loop: fill up to the depth. Open loop: submit all requests that have arrived; the next arrival is
            // an event.
            while !over && depth.is_none_or(|depth| open < depth) {
                let request = match next.take() {
                    Some(request) => request,
                    None => match source.next(self.now().since(began)) {
                        Ok(Some(request)) => request,
                        Ok(None) => {
                            over = true;
                            break;
                        }
                        Err(e) => {
                            (over, failed) = (true, Some(e));
                            break;
                        }
                    },
                };
                // A request of a closed loop has a time if it follows a pause.
                let at = request.at.map_or(Ps::ZERO, |at| began + at);
                if at > self.now() {
                    next = Some(request);
                    if alarm != Some(at) {
                        alarm = Some(at);
                        self.fabric.push(at, Event::Alarm);
                    }
                    break;
                }
                open += 1;
                self.submit_request(self.now(), request);
            }
            let more = self.step();
            while let Some(ended) = self.take_ended() {
                assert!(open > 0, "a request ended that was not submitted: {ended:?}");
                open -= 1;
                requests += 1;
                bytes += ended.request.bytes;
                on_end(&ended);
                if requests % PROGRESS_EVERY == 0 {
                    let now = self.now().since(began);
                    over |= !on_progress(DriveProgress { requests, bytes, now, share: source.progress(now) });
                }
            }
            assert!(more || open == 0, "{open} requests never end: {}", self.block().waiting());
            if !more && over {
                break;
            }
        }
        assert_eq!(open, 0, "every submitted request has ended");
        self.check();
        failed.map_or(Ok(()), Err)
    }
}
