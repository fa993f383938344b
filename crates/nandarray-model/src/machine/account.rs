//! Results of a machine, and checks of their consistency.

use super::{Machine, SpaceJobDone, SpaceJobKind};
use crate::flash::FlashAccount;
use crate::host::Direction;
use crate::report::{CoreTimes, Latencies, MachineParts, Report, Slept};
use nandarray_sim::energy_pj;

/// Counts of commands, errors and bytes of a machine.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of commands submitted on the link.
    pub submitted: u64,
    /// Number of commands whose completion the host has reaped.
    pub completed: u64,
    /// Number of page reads that failed after all retries.
    pub uncorrectable: u64,
    /// Number of programs and erases that failed.
    pub failed: u64,
    /// Bytes of array elements that the host read.
    pub read_bytes: u64,
    /// Bytes of array elements that the host wrote.
    pub written_bytes: u64,
}

impl Totals {
    pub(super) fn job(&mut self, done: &SpaceJobDone) {
        assert!(done.done >= done.submitted, "{:?} is done at {}, submitted at {}", done.id, done.done, done.submitted);
        match done.kind {
            SpaceJobKind::Read => self.read_bytes += done.bytes,
            SpaceJobKind::Write => self.written_bytes += done.bytes,
            SpaceJobKind::Other
            | SpaceJobKind::Input
            | SpaceJobKind::Output
            | SpaceJobKind::Stream { .. }
            | SpaceJobKind::Feed { .. }
            | SpaceJobKind::Pass { .. } => {}
        }
    }
}

impl Machine {
    /// Returns the busy time of each controller core until now, and their energy in picojoules: while busy, and while
    /// idle.
    pub fn cores(&self) -> (Vec<crate::Ps>, (f64, f64)) {
        let now = self.now();
        (self.fabric.stages.cores().busy_until(now).collect(), self.fabric.stages.energy_pj(now, self.asleep()))
    }

    /// Returns times and energy until now of the cores that run programs; `None` without such cores.
    pub fn core_times(&self) -> Option<CoreTimes> {
        let cores = self.clients.cores.as_ref()?;
        Some(cores.times(self.now(), self.asleep()))
    }

    /// Returns counts, times and energy of the flash until now.
    pub fn flash(&self) -> FlashAccount {
        let mut account = self.fabric.flash.account(self.now());
        // Dies draw no idle power of their own while the device is asleep.
        let asleep = self.asleep() * u64::from(self.fabric.description.geometry.dies_total());
        let asleep_pj = energy_pj(self.fabric.description.energy.die_idle_uw, asleep);
        let awake_pj = account.energy.idle_pj - asleep_pj;
        assert!(
            awake_pj > -1e-6 * asleep_pj.max(1.0),
            "dies were asleep for {asleep_pj} pJ of {} pJ",
            account.energy.idle_pj
        );
        account.energy.idle_pj = awake_pj.max(0.0);
        account
    }

    /// Returns the time until now in each idle state.
    pub fn slept(&self) -> Vec<Slept> {
        self.io.slept_until(self.now())
    }

    /// Returns the time until now in all idle states together.
    fn asleep(&self) -> crate::Ps {
        self.slept().iter().map(|state| state.lasted).sum()
    }

    /// Returns the report until now, with the given latencies of requests.
    pub fn report(&self, latencies: &Latencies) -> Report {
        let (cores, cores_pj) = self.cores();
        let (flash, ftl) = (self.flash(), self.clients.block.as_ref().map(|b| b.ftl().report()));
        let parts = MachineParts {
            device: &self.fabric.description.name,
            energy: &self.fabric.description.energy,
            seed: self.seed,
            hash: self.hash,
            now: self.now(),
            flash: &flash,
            ftl: ftl.as_ref(),
            link: &self.fabric.link,
            cpu: &self.fabric.cpu,
            dram: &self.fabric.dram,
            cores,
            cores_pj,
            compute: self.core_times(),
            slept: self.slept(),
        };
        Report::new(&parts, latencies)
    }

    /// Checks a machine with nothing in flight: every command was answered, the bytes that left dies crossed channels,
    /// nothing was busy for longer than the elapsed time, and energy by part and by cause agree.
    ///
    /// # Panics
    /// If a check fails: the model is wrong.
    pub fn check(&self) {
        assert!(self.fabric.events.is_empty(), "a machine is checked at rest");
        self.io.check_at_rest();
        let Totals { submitted, completed, .. } = self.fabric.totals;
        assert_eq!(submitted, completed, "commands submitted and commands reaped");
        self.clients.check_at_rest();
        if let Err(imbalance) = self.fabric.flash.check(self.now()) {
            panic!("the flash does not add up: {imbalance}");
        }
        for (i, busy) in self.fabric.stages.cores().busy_until(self.now()).enumerate() {
            assert!(busy <= self.now(), "core {i} was busy for {busy} of {}", self.now());
        }
        for direction in [Direction::Down, Direction::Up] {
            let busy = self.fabric.link.busy_until(direction, self.now());
            assert!(busy <= self.now(), "the link was busy for {busy} of {}", self.now());
        }
    }
}
