//! Log pages, and the counters that they report.
//!
//! Health (02h), errors (01h), firmware (03h), changed namespaces (04h), effects of commands (05h), discovery (70h);
//! programs (82h) and range sets (84h) of command set 4; two vendor pages: names of arrays (C0h), and the account of
//! the host's last execution (C1h).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray::nvme::{Opcode, Status};
use parking_lot::Mutex;

use crate::boxes;
use crate::wire::CommandSet;

/// Number of entries of the error log.
pub(crate) const ERRORS: usize = 16;
/// Bits of the log of command effects: the command is supported, and changes logical blocks.
const SUPPORTED: u32 = 1;
const CHANGES: u32 = 1 << 1;

/// Numbers of log pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPage;

impl LogPage {
    pub(crate) const ERRORS: u8 = 0x01;
    pub(crate) const HEALTH: u8 = 0x02;
    pub(crate) const FIRMWARE: u8 = 0x03;
    pub(crate) const CHANGED: u8 = 0x04;
    pub(crate) const EFFECTS: u8 = 0x05;
    pub(crate) const DISCOVERY: u8 = 0x70;
    pub(crate) const PROGRAMS: u8 = 0x82;
    pub(crate) const RANGE_SETS: u8 = 0x84;
    pub(crate) const NAMES: u8 = 0xc0;
    pub(crate) const EXECUTION: u8 = 0xc1;
}

/// A command that failed, for the error log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCommand {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    pub(crate) status: Status,
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
            to[14..16].copy_from_slice(&[0xff, 0xff]);
            to[24..28].copy_from_slice(&command.nsid.to_le_bytes());
        }
        page
    }
}

/// Returns log page 05h (effects of commands) of a command set, 4096 bytes. `programs` is whether there are admin
/// commands of programs.
pub(crate) fn effects(csi: u8, read_only: bool, programs: bool) -> Vec<u8> {
    let mut page = vec![0u8; 4096];
    let mut put = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    for opcode in [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18] {
        put(4 * opcode, SUPPORTED);
    }
    for opcode in [0x85, 0x88, 0x89].into_iter().filter(|_| programs) {
        put(4 * opcode, SUPPORTED);
    }
    let io: Vec<(u8, bool)> = match csi {
        CommandSet::NVM => vec![
            (0x00, false),
            (0x01, true),
            (0x02, false),
            (0x05, false),
            (0x08, true),
            (0x09, true),
            (0x19, true),
            (0x81, true),
            (0x82, false),
            (0x85, true),
            (0x86, false),
            (0x88, false),
            (0x8c, true),
        ],
        CommandSet::MEMORY => vec![(0x01, true), (0x02, false), (0x04, true), (0x05, true)],
        CommandSet::PROGRAMS => vec![(0x01, true)],
        CommandSet::ND => boxes::OPCODES.to_vec(),
        _ => Vec::new(),
    };
    for (opcode, changes) in io {
        let refused = changes && read_only && matches!(csi, CommandSet::NVM | CommandSet::ND);
        // Spaces that are there can be opened in any case.
        let opens = opcode | boxes::VENDOR == Opcode::OPEN_SPACE;
        if !refused || opens {
            put(1024 + 4 * usize::from(opcode), SUPPORTED | if changes && !refused { CHANGES } else { 0 });
        }
    }
    page
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
