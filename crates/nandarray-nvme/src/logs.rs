//! Log pages, and the counters that they report.
//!
//! Supported log pages (00h), errors (01h), health (02h), firmware (03h), changed namespaces (04h), effects of commands
//! (05h), features (12h, in `features`), discovery (70h, in `admin`); programs (82h) and range sets (84h) of command
//! set 4; two vendor pages: names of arrays (C0h), and the accounts of the host's executions (C1h, in `accounts`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray::ServiceCounts;
use nandarray_nvme_spec::{
    EffectsPage, ErrorEntry, FirmwarePage, HealthPage, LogPage, Status, SupportedBits, SupportedPage,
};
use parking_lot::Mutex;

use crate::commands::{CommandEffect, IoCommand, admin_effect, admin_opcode};

/// Number of entries of the error log.
pub(crate) const ERRORS: usize = 16;
/// Temperature of the drive in kelvin, which nothing measures.
const KELVIN: u16 = 300;
/// Spare capacity in percent that is left, and below which there would be a warning.
const SPARE_PERCENT: (u8, u8) = (100, 10);
/// Bytes of a data unit of the log page of health: a thousand blocks of 512 (base 2.0, figure 207).
const DATA_UNIT_BYTES: u64 = 512_000;

/// A command that failed, for the error log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCommand {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    pub(crate) status: Status,
    /// First logical block that the failure is about; 0 if it is about none.
    pub(crate) lba: u64,
    /// Location of the parameter that the failure is about, a byte of the entry; [`NO_PARAMETER`] if none is known.
    pub(crate) location: u16,
}

/// The location of a parameter where none is known.
const NO_PARAMETER: u16 = 0xffff;

/// Returns the byte of the entry that a status is about, for the error log; `command` is `None` on the admin queue.
pub(crate) fn parameter(qid: u16, command: Option<IoCommand>, status: Status) -> u16 {
    // Dwords 2, 10 and 12 begin at bytes 8, 40 and 48; the length of the data descriptor is at 32.
    let executes = command == Some(IoCommand::ExecuteProgram);
    match status {
        Status::INVALID_OPCODE => 0,
        Status::INVALID_NAMESPACE => 4,
        Status::SGL_OFFSET_INVALID => 24,
        Status::DATA_LENGTH_INVALID => 32,
        Status::SGL_TYPE_INVALID => 39,
        Status::LBA_OUT_OF_RANGE if command.is_some_and(IoCommand::names_blocks) => 40,
        Status::INVALID_LOG_PAGE | Status::FEATURE_NOT_CHANGEABLE if qid == 0 => 40,
        Status::PROGRAM_INDEX | Status::NO_PROGRAM => {
            if executes {
                8
            } else {
                40
            }
        }
        Status::RANGE_SET_ID => {
            if executes {
                10
            } else {
                42
            }
        }
        Status::PROGRAM_TYPE => 42,
        Status::INVALID_DSID => 40,
        Status::INVALID_BOX if !executes => 48,
        _ => NO_PARAMETER,
    }
}

/// Counters of a subsystem's commands.
#[derive(Debug, Default)]
pub(crate) struct Health {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    failures: AtomicU64,
    /// Seconds of service since the start.
    seconds: AtomicU64,
    /// Starts of the service, and those whose end was cut off.
    service: ServiceCounts,
}

impl Health {
    /// Creates the counters of a drive with these counts of its service.
    pub(crate) fn new(service: ServiceCounts) -> Self {
        Self { service, ..Self::default() }
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn served(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Counts a failure; returns its number.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the counters with their names: reads, writes, bytes of each, failed commands.
    pub(crate) fn numbers(&self) -> [(&'static str, u64); 5] {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        [
            ("reads", of(&self.reads)),
            ("writes", of(&self.writes)),
            ("bytes_read", of(&self.bytes_read)),
            ("bytes_written", of(&self.bytes_written)),
            ("failed", of(&self.failures)),
        ]
    }

    /// Returns log page 02h (health).
    pub(crate) fn page(&self) -> HealthPage {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let wide = |n: u64| [n.into(), 0.into()];
        let mut page = HealthPage::zeroed();
        page.temperature.set(KELVIN);
        (page.spare, page.spare_threshold) = SPARE_PERCENT;
        page.units_read = wide(of(&self.bytes_read).div_ceil(DATA_UNIT_BYTES));
        page.units_written = wide(of(&self.bytes_written).div_ceil(DATA_UNIT_BYTES));
        page.reads = wide(of(&self.reads));
        page.writes = wide(of(&self.writes));
        page.errors = wide(of(&self.failures));
        page.power_cycles = wide(self.service.power_cycles.into());
        page.power_on_hours = wide(self.service.seconds.saturating_add(of(&self.seconds)) / 3600);
        page.unsafe_shutdowns = wide(self.service.unsafe_shutdowns.into());
        page
    }
}

/// The latest failures of a tenant's commands: other tenants do not see them.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    last: Mutex<VecDeque<(u64, FailedCommand)>>,
}

impl ErrorLog {
    /// Adds a failure with its number.
    pub(crate) fn add(&self, number: u64, command: FailedCommand) {
        let mut last = self.last.lock();
        last.push_front((number, command));
        last.truncate(ERRORS);
        assert!(number >= last.len() as u64, "{number} failures, of which {} are kept", last.len());
    }

    /// Returns log page 01h (errors), the newest first.
    pub(crate) fn page(&self) -> [ErrorEntry; ERRORS] {
        let mut page = [ErrorEntry::default(); ERRORS];
        let last = self.last.lock();
        assert!(last.len() <= ERRORS, "{} errors in the log", last.len());
        for (&(number, command), to) in last.iter().zip(&mut page) {
            to.count.set(number);
            to.sqid.set(command.qid);
            to.cid.set(command.cid);
            to.set_status(command.status);
            to.location.set(command.location);
            to.lba.set(command.lba);
            to.nsid.set(command.nsid);
        }
        page
    }
}

/// Returns log page 00h (supported log pages).
pub(crate) fn supported(has: impl Fn(LogPage) -> bool) -> SupportedPage {
    let mut page = SupportedPage::default();
    let there = LogPage::ALL.iter().filter(|one| has(**one));
    there.for_each(|&one| page.of[one as usize].set(SupportedBits::SUPPORTED));
    assert_eq!(page.of[LogPage::Supported as usize].get(), SupportedBits::SUPPORTED, "the list has itself");
    page
}

/// Returns log page 05h (effects of commands) of a command set. `programs` is whether there are admin commands of
/// programs, `nd` whether there are N-D commands.
pub(crate) fn effects(csi: u8, read_only: bool, programs: bool, nd: bool) -> EffectsPage {
    let mut page = EffectsPage::default();
    for opcode in 0..=u8::MAX {
        if let Some(command) = admin_opcode(opcode, programs) {
            let bits = match admin_effect(command) {
                // Programs and range sets are no content of a namespace.
                CommandEffect::Subsystem => SupportedBits::SUPPORTED,
                effect => effect_bits(effect, read_only),
            };
            page.admin[usize::from(opcode)].set(bits);
        }
        if let Some(command) = IoCommand::of(csi, opcode, nd) {
            page.io[usize::from(opcode)].set(effect_bits(command.effect(), read_only));
        }
    }
    page
}

/// Returns the bits of the log of command effects for a command that may change this.
fn effect_bits(effect: CommandEffect, read_only: bool) -> u32 {
    match effect {
        CommandEffect::Nothing | CommandEffect::Registrants => SupportedBits::SUPPORTED,
        CommandEffect::Store if read_only => 0,
        // Spaces that are there can be opened in any case.
        CommandEffect::StoreByAction if read_only => SupportedBits::SUPPORTED,
        CommandEffect::Store | CommandEffect::StoreByAction => SupportedBits::SUPPORTED | SupportedBits::CHANGES_BLOCKS,
        CommandEffect::Subsystem | CommandEffect::Outputs => SupportedBits::SUPPORTED | SupportedBits::CHANGES_BLOCKS,
    }
}

/// Returns log page 03h (firmware), in which slot 1 is active.
pub(crate) fn firmware() -> FirmwarePage {
    FirmwarePage::new(nandarray::VERSION)
}
