//! Detects that the host, not the device, bounded a run, which throughput and latencies do not show.
//!
//! A host core that is always busy submitting and completing commands holds back a device that could do more. Polling
//! does not count as work: a core that spins while it waits is not the bottleneck. The note appears only if no part of
//! the device is always busy. Other bottlenecks (few requests in flight, a chain of latencies) keep no part busy and
//! are not detected.

use super::{MachineParts, Utilisation};
use nandarray_sim::Ps;

/// Busy fraction of the time from which a part counts as always busy; less than 1, since a run has a beginning and an
/// end.
const BUSY: f64 = 0.95;

/// Returns a sentence if a host core was the bottleneck of a run of `elapsed` with `requests` requests; `None`
/// otherwise.
pub(super) fn note(parts: &MachineParts<'_>, busy: &Utilisation, elapsed: Ps, requests: u64) -> Option<String> {
    if elapsed == Ps::ZERO || requests == 0 {
        return None;
    }
    let works: Vec<Ps> = parts.cpu.cores().busy_until(parts.now).collect();
    let (core, most) = (0..).zip(&works).max_by_key(|&(core, work)| (*work, std::cmp::Reverse::<usize>(core)))?;
    // The latencies may cover only a part of the run.
    let elapsed = if *most > elapsed { parts.now } else { elapsed };
    let share = most.0 as f64 / elapsed.0 as f64;
    let (what, device) = busy.device().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if share < BUSY || device >= BUSY {
        return None;
    }
    let each_us = works.iter().copied().sum::<Ps>().us() / requests as f64;
    let bounding = works.iter().filter(|work| work.0 as f64 / elapsed.0 as f64 >= BUSY).count();
    let cores = match bounding {
        1 => format!("host core {core}, which works for one stream's queue, was the bound"),
        many => format!("{many} host cores were the bound"),
    };
    Some(format!(
        "{cores}: {:.1} % busy at {each_us:.2} us a request (host.t_submit, host.t_complete), while no part of the \
         device was busy for more than {:.1} % of the time ({what}); more streams use more host cores",
        share * 100.0,
        device * 100.0,
    ))
}
