//! Cost of I/O for the host's processor: building commands, noticing and processing completions, copying runs of
//! bytes.
//!
//! Cores are booked (`DeviceResource`); a queue pair belongs to one core. With interrupts, a core works only while it
//! does one of these. With polling it also spins from the first command in flight to the last completion, which costs
//! energy but delays nothing: other work begins at once.

use crate::describe;
use crate::flash::OpCause;
use crate::host::DeviceResource;
use crate::spans::{DeviceSpan, Track};
use nandarray_sim::{Booked, Ps, energy_pj};

/// A core that polls: its number of commands in flight, the beginning of its current spin, and the total time of
/// earlier spins.
#[derive(Clone, Copy, Debug, Default)]
struct Polling {
    outstanding: u32,
    since: Ps,
    spun: Ps,
}

/// The host's cores, with the work that I/O books on them.
#[derive(Clone, Debug)]
pub struct HostCpu {
    cores: DeviceResource,
    polling: Vec<Polling>,
    t_submit: Ps,
    t_complete: Ps,
    t_interrupt: Option<Ps>,
    t_copy_run: Ps,
    copy_bytes_per_s: u64,
    active_uw: f64,
}

impl HostCpu {
    /// Makes cores with nothing booked.
    ///
    /// # Panics
    /// If the host has no core.
    pub fn new(host: &describe::HostSettings, energy: &describe::Energy) -> Self {
        Self {
            cores: DeviceResource::new(host.cores, Track::HostCore),
            polling: vec![Polling::default(); host.cores as usize],
            t_submit: host.t_submit,
            t_complete: host.t_complete,
            t_interrupt: host.t_interrupt,
            t_copy_run: host.t_copy_run,
            copy_bytes_per_s: host.copy_bytes_per_s,
            active_uw: energy.host_core_active_uw,
        }
    }

    /// Returns the core of a queue pair.
    pub fn core_of(&self, queue: u32) -> u32 {
        queue % self.cores.servers()
    }

    /// Books the building of a command on a core; its end is the doorbell.
    pub fn submit(&mut self, now: Ps, core: u32) -> Booked {
        let booked = self.cores.book_on(core, now, self.t_submit);
        let polling = &mut self.polling[core as usize];
        if polling.outstanding == 0 {
            polling.since = booked.start;
        }
        polling.outstanding += 1;
        booked
    }

    /// Returns the time at which a core notices a completion that is in memory now: after an interrupt, or at once if
    /// it polls.
    pub fn notices(&self, now: Ps) -> Ps {
        now + self.t_interrupt.unwrap_or(Ps::ZERO)
    }

    /// Books the processing of a completion that was noticed now; at its end the command is completed for the caller.
    ///
    /// # Panics
    /// If the core has no command in flight.
    pub fn complete(&mut self, now: Ps, core: u32) -> Booked {
        let booked = self.cores.book_on(core, now, self.t_complete);
        let polling = &mut self.polling[core as usize];
        assert!(polling.outstanding > 0, "a completion of what core {core} never submitted");
        polling.outstanding -= 1;
        if polling.outstanding == 0 {
            polling.spun += booked.end.since(polling.since);
        }
        booked
    }

    /// Books the copying of `bytes` in `runs` contiguous runs, on the given core, or on the one that is free first.
    pub fn copy(&mut self, now: Ps, core: Option<u32>, runs: u64, bytes: u64) -> Booked {
        let lasts = self.copy_time(runs, bytes);
        match core {
            Some(core) => self.cores.book_on(core, now, lasts),
            None => self.cores.book(now, lasts),
        }
    }

    /// Books other work on a core, such as translating an address.
    pub fn work(&mut self, now: Ps, core: u32, lasts: Ps) -> Booked {
        self.cores.book_on(core, now, lasts)
    }

    /// Returns the time that one core needs to copy `bytes` in `runs` contiguous runs.
    pub fn copy_time(&self, runs: u64, bytes: u64) -> Ps {
        self.t_copy_run * runs + Ps::of_bytes(bytes, self.copy_bytes_per_s)
    }

    /// Returns the cores with their bookings.
    pub fn cores(&self) -> &DeviceResource {
        &self.cores
    }

    /// Returns the time until `now` in which each core drew active power: working, or spinning if it polls.
    pub fn active_until(&self, now: Ps) -> impl Iterator<Item = Ps> + '_ {
        let polled = self.t_interrupt.is_none();
        self.cores.busy_until(now).zip(&self.polling).map(move |(busy, polling)| {
            if !polled {
                return busy;
            }
            let spins = if polling.outstanding > 0 { now.since(polling.since) } else { Ps::ZERO };
            // Submissions and completions fall within spins; copies may fall outside.
            (polling.spun + spins).max(busy)
        })
    }

    /// Returns the energy of the cores' active time until `now`, in picojoules.
    pub fn energy_pj(&self, now: Ps) -> f64 {
        energy_pj(self.active_uw, self.active_until(now).sum())
    }

    /// Returns the span of a booking, for a timeline.
    pub fn span(&self, booked: Booked, what: &'static str, detail: u64) -> DeviceSpan {
        self.cores.span(booked, what, OpCause::Host, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(t_interrupt: Option<Ps>) -> describe::HostSettings {
        describe::HostSettings {
            queues: 2,
            queue_entries: 64,
            arbitration: describe::Arbitration::RoundRobin { burst: 1 },
            transfer_max_bytes: 1 << 20,
            composes_commands: false,
            t_submit: Ps(100),
            t_translate: Ps(0),
            t_complete: Ps(50),
            t_interrupt,
            t_copy_run: Ps(10),
            copy_bytes_per_s: 1_000_000_000_000,
            cores: 2,
        }
    }

    fn energy() -> describe::Energy {
        describe::Energy { host_core_active_uw: 2e6, ..Default::default() }
    }

    #[test]
    fn interrupts_come_late_and_cores_rest_meanwhile() {
        let mut cpu = HostCpu::new(&host(Some(Ps(1_000))), &energy());
        assert_eq!(cpu.core_of(3), 1);
        assert_eq!(cpu.submit(Ps(0), 1).end, Ps(100));
        assert_eq!(cpu.submit(Ps(0), 1).end, Ps(200), "one core builds one after the other");
        assert_eq!(cpu.notices(Ps(500)), Ps(1_500));
        assert_eq!(cpu.complete(Ps(1_500), 1).end, Ps(1_550));
        assert_eq!(cpu.active_until(Ps(2_000)).collect::<Vec<_>>(), [Ps(0), Ps(250)]);
        assert_eq!(cpu.energy_pj(Ps(2_000)), 500.0);
    }

    #[test]
    fn polling_spins_from_the_first_command_to_the_last_completion() {
        let mut cpu = HostCpu::new(&host(None), &energy());
        cpu.submit(Ps(0), 0);
        cpu.submit(Ps(0), 0);
        assert_eq!(cpu.notices(Ps(500)), Ps(500));
        cpu.complete(Ps(500), 0);
        assert_eq!(cpu.active_until(Ps(900)).next(), Some(Ps(900)), "one is still in flight");
        cpu.complete(Ps(1_000), 0);
        assert_eq!(cpu.active_until(Ps(9_000)).next(), Some(Ps(1_050)));
    }

    #[test]
    fn copies_cost_their_bytes_and_their_runs() {
        let mut cpu = HostCpu::new(&host(Some(Ps(0))), &energy());
        assert_eq!(cpu.copy(Ps(0), None, 8, 4096).end, Ps(8 * 10 + 4096));
        assert_eq!(cpu.copy(Ps(0), None, 1, 4096).server, 1, "the other core is free");
        assert_eq!(cpu.copy(Ps(0), Some(1), 1, 0).start, Ps(4106));
    }
}
