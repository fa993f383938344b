//! Log pages, and the counters that they report.
//!
//! Supported log pages (00h), errors (01h), health (02h), firmware (03h), changed namespaces (04h), effects of commands
//! (05h), features (12h, in `features`), discovery (70h); programs (82h) and range sets (84h) of command set 4; two
//! vendor pages: names of arrays (C0h), and the accounts of the host's executions (C1h, in `accounts`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray::nvme::Status;
use parking_lot::Mutex;

use crate::commands::{AdminCommand, CommandEffect, IoCommand};

/// Number of entries of the error log.
pub(crate) const ERRORS: usize = 16;
/// Bits of the log of command effects: the command is supported, and changes logical blocks.
const SUPPORTED: u32 = 1;
const CHANGES: u32 = 1 << 1;

/// A log page, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPage {
    Supported = 0x00,
    Errors = 0x01,
    Health = 0x02,
    Firmware = 0x03,
    Changed = 0x04,
    Effects = 0x05,
    Features = 0x12,
    Discovery = 0x70,
    Programs = 0x82,
    RangeSets = 0x84,
    Names = 0xc0,
    Execution = 0xc1,
}

impl LogPage {
    const ALL: [Self; 12] = [
        Self::Supported,
        Self::Errors,
        Self::Health,
        Self::Firmware,
        Self::Changed,
        Self::Effects,
        Self::Features,
        Self::Discovery,
        Self::Programs,
        Self::RangeSets,
        Self::Names,
        Self::Execution,
    ];

    /// Returns the page with an identifier; `None` if there is none.
    pub(crate) fn of(identifier: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|page| *page as u8 == identifier)
    }
}

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

/// Counters of a subsystem's commands, and its latest failures.
#[derive(Debug, Default)]
pub(crate) struct Health {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    failures: AtomicU64,
    last: Mutex<VecDeque<(u64, FailedCommand)>>,
}

impl Health {
    pub(crate) fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, command: FailedCommand) {
        let number = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let mut last = self.last.lock();
        last.push_front((number, command));
        last.truncate(ERRORS);
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

    /// Returns log page 02h (health), 512 bytes.
    pub(crate) fn page(&self) -> Vec<u8> {
        let mut page = vec![0u8; 512];
        let mut put = |at: usize, value: u64| page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        // 300 kelvin; all spare capacity is left, with a warning below a tenth. Data units are thousands of 512 bytes.
        put(1, 300 | 100 << 16 | 10 << 24);
        put(32, of(&self.bytes_read).div_ceil(512_000));
        put(48, of(&self.bytes_written).div_ceil(512_000));
        put(64, of(&self.reads));
        put(80, of(&self.writes));
        put(176, of(&self.failures));
        page
    }

    /// Returns log page 01h (errors): 64 bytes for each entry, the newest first.
    pub(crate) fn errors(&self) -> Vec<u8> {
        let mut page = vec![0u8; ERRORS * 64];
        for ((number, command), to) in self.last.lock().iter().zip(page.chunks_exact_mut(64)) {
            to[..8].copy_from_slice(&number.to_le_bytes());
            to[8..10].copy_from_slice(&command.qid.to_le_bytes());
            to[10..12].copy_from_slice(&command.cid.to_le_bytes());
            to[12..14].copy_from_slice(&(command.status.bits() << 1).to_le_bytes());
            to[14..16].copy_from_slice(&command.location.to_le_bytes());
            to[16..24].copy_from_slice(&command.lba.to_le_bytes());
            to[24..28].copy_from_slice(&command.nsid.to_le_bytes());
        }
        page
    }
}

/// Returns log page 00h (supported log pages): 4 bytes for each of 256 identifiers.
pub(crate) fn supported(has: impl Fn(LogPage) -> bool) -> Vec<u8> {
    let mut page = vec![0u8; 1024];
    LogPage::ALL.into_iter().filter(|one| has(*one)).for_each(|one| page[4 * one as usize] = SUPPORTED as u8);
    page
}

/// Returns log page 05h (effects of commands) of a command set, 4096 bytes. `programs` is whether there are admin
/// commands of programs, `nd` whether there are N-D commands.
pub(crate) fn effects(csi: u8, read_only: bool, programs: bool, nd: bool) -> Vec<u8> {
    let mut page = vec![0u8; 4096];
    let mut put = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    for opcode in 0..=u8::MAX {
        if let Some(command) = AdminCommand::of(opcode, programs) {
            let bits = match command.effect() {
                // Programs and range sets are no content of a namespace.
                CommandEffect::Subsystem => SUPPORTED,
                effect => effect_bits(effect, read_only),
            };
            put(4 * usize::from(opcode), bits);
        }
        if let Some(command) = IoCommand::of(csi, opcode, nd) {
            put(1024 + 4 * usize::from(opcode), effect_bits(command.effect(), read_only));
        }
    }
    page
}

/// Returns the bits of the log of command effects for a command that may change this.
fn effect_bits(effect: CommandEffect, read_only: bool) -> u32 {
    match effect {
        CommandEffect::Nothing => SUPPORTED,
        CommandEffect::Store if read_only => 0,
        // Spaces that are there can be opened in any case.
        CommandEffect::StoreByAction if read_only => SUPPORTED,
        CommandEffect::Store | CommandEffect::StoreByAction => SUPPORTED | CHANGES,
        CommandEffect::Subsystem | CommandEffect::Outputs => SUPPORTED | CHANGES,
    }
}

/// Returns log page 03h (firmware), in which slot 1 is active.
pub(crate) fn firmware() -> Vec<u8> {
    let mut page = vec![0u8; 512];
    page[0] = 1;
    let revision = nandarray::VERSION.as_bytes();
    let n = revision.len().min(8);
    page[8..16].fill(b' ');
    page[8..8 + n].copy_from_slice(&revision[..n]);
    page
}

/// Returns log page C0h: the number of names in 4 bytes, then the length of each name in 2 bytes, followed by its
/// UTF-8.
pub(crate) fn names(names: &[String]) -> Vec<u8> {
    let mut page = (names.len() as u32).to_le_bytes().to_vec();
    for name in names {
        page.extend_from_slice(&(name.len() as u16).to_le_bytes());
        page.extend_from_slice(name.as_bytes());
    }
    page
}
