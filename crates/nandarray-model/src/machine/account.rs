//! What came out of a machine, and that it adds up.

use super::{JobDone, JobKind, Machine};
use crate::flash::FlashAccount;
use crate::host::{Direction, HostCpu, HostLink, Port};
use crate::report::{CoreTimes, Latencies, Parts, Report, Slept};
use nandarray_sim::energy_pj;

/// Counts of one machine.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Ios given to the device.
    pub submitted: u64,
    /// Ios whose answer the host has.
    pub completed: u64,
    /// Pages that could not be read.
    pub uncorrectable: u64,
    /// Programs and erases that failed.
    pub failed: u64,
    /// Bytes that the user read.
    pub read_bytes: u64,
    /// Bytes that the user wrote.
    pub written_bytes: u64,
}

impl Totals {
    pub(super) fn job(&mut self, done: &JobDone) {
        match done.kind {
            JobKind::Read => self.read_bytes += done.bytes,
            JobKind::Write => self.written_bytes += done.bytes,
            JobKind::Other | JobKind::Input | JobKind::Output => {}
        }
    }
}

impl Machine {
    /// Controller cores: how long each was busy until now, and the energy of all, working and resting, in picojoules.
    pub fn cores(&self) -> (Vec<crate::Ps>, (f64, f64)) {
        let now = self.now();
        (self.fabric.stages.cores().busy_until(now).collect(), self.fabric.stages.energy_pj(now, self.asleep()))
    }

    /// Cores that run programs: times and energy until now; none if there are no such cores.
    pub fn core_times(&self) -> Option<CoreTimes> {
        let cores = self.clients.cores.as_ref()?;
        Some(cores.times(self.now(), self.asleep()))
    }

    /// What the flash did until now.
    pub fn flash(&self) -> FlashAccount {
        let mut account = self.fabric.flash.account(self.now());
        // Dies take nothing of their own while the device is asleep.
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

    /// How the device slept until now, by idle state.
    pub fn slept(&self) -> Vec<Slept> {
        self.io.slept_until(self.now())
    }

    /// How long the device was in any idle state until now.
    fn asleep(&self) -> crate::Ps {
        self.slept().iter().map(|state| state.lasted).sum()
    }

    /// The link.
    pub fn link(&self) -> &HostLink {
        &self.fabric.link
    }

    /// The host's cores.
    pub fn cpu(&self) -> &HostCpu {
        &self.fabric.cpu
    }

    /// The DRAM port.
    pub fn dram(&self) -> &Port {
        &self.fabric.dram
    }

    /// The seed of all chance in the device.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What came out until now, with the latencies of what was asked for.
    pub fn report(&self, latencies: &Latencies) -> Report {
        let (cores, cores_pj) = self.cores();
        let (flash, ftl) = (self.flash(), self.clients.block.as_ref().map(|b| b.ftl().report()));
        let parts = Parts {
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

    /// What a machine at rest must be able to show: everything given was answered, bytes that left dies crossed
    /// channels and went to those who asked, nothing was busy for longer than it existed, energy by part and by cause
    /// is the same.
    ///
    /// # Panics
    /// If it cannot: the model is wrong.
    pub fn check(&self) {
        assert!(self.fabric.events.is_empty(), "a machine is checked at rest");
        self.io.check_at_rest();
        let Totals { submitted, completed, .. } = self.fabric.totals;
        assert_eq!(submitted, completed, "commands given and commands answered");
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

    /// How long each firmware stage worked, by name.
    pub fn stage_times(&self) -> Vec<(&'static str, crate::Ps)> {
        self.fabric.stages.by_stage().collect()
    }

    /// Counts so far.
    pub fn totals(&self) -> &Totals {
        &self.fabric.totals
    }
}
