//! The recorded accesses of a kernel.
//!
//! A fetch is one movement of bytes between memory and a device. A touch names the fetch whose bytes it uses: the first
//! touch in modelled time starts the fetch, later touches wait for it or find the bytes in memory. The number of
//! fetches is therefore that of the recording, in whatever order the modelled tasks reach them.

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// The task uses the bytes that a fetch reads from a device.
    Touch,
    /// The task starts a write and continues at once; the run does not end before the write has ended.
    WriteBehind,
    /// The task starts a write and waits for it.
    Write,
}

/// One access of a task to the bytes of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord {
    /// Number of the phase (kernel launch) of the access.
    pub phase: u32,
    /// Number of the task within the phase.
    pub task: u32,
    /// Number of the group within the task; the accesses of a group are issued together.
    pub group: u32,
    /// Kind of the access.
    pub kind: TouchKind,
    /// Number of the fetch.
    pub fetch: u32,
    /// Number of atomics that the access executes on the fetch's cache line.
    pub atomics: u32,
}

/// A recording: accesses in order of phase, task and group, and the fetches (byte ranges of the devices) that they name
/// by number.
#[derive(Clone, Debug, Default)]
pub struct FetchRecording {
    /// All accesses, in order.
    pub accesses: Vec<AccessRecord>,
    /// First byte of each fetch.
    pub addresses: Vec<u64>,
    /// Number of bytes of each fetch.
    pub bytes: Vec<u32>,
}

/// The kinds of accesses, each at the number by which rows name it.
const KINDS: [TouchKind; 3] = [TouchKind::Touch, TouchKind::WriteBehind, TouchKind::Write];

impl FetchRecording {
    /// Makes a recording from rows of six numbers: phase, task, group, kind (0 touch, 1 write behind, 2 write), fetch,
    /// atomics.
    ///
    /// # Errors
    /// A message, if the rows do not form a recording.
    pub fn new(rows: &[u32], addresses: Vec<u64>, bytes: Vec<u32>) -> Result<Self, String> {
        if !rows.len().is_multiple_of(6) || addresses.len() != bytes.len() {
            let (a, b) = (addresses.len(), bytes.len());
            return Err(format!("{} numbers are no rows of 6, or {a} addresses have {b} sizes", rows.len()));
        }
        let access = |row: &[u32]| {
            let kind = *KINDS.get(row[3] as usize).ok_or_else(|| format!("kind {} of an access", row[3]))?;
            if row[4] as usize >= addresses.len() {
                return Err(format!("fetch {} of {}", row[4], addresses.len()));
            }
            Ok(AccessRecord { phase: row[0], task: row[1], group: row[2], kind, fetch: row[4], atomics: row[5] })
        };
        let accesses: Vec<AccessRecord> = rows.chunks_exact(6).map(access).collect::<Result<_, _>>()?;
        let key = |a: &AccessRecord| (a.phase, a.task, a.group);
        if let Some(at) = accesses.windows(2).position(|pair| key(&pair[0]) > key(&pair[1])) {
            return Err(format!("access {} is before access {at} in phase, task or group", at + 1));
        }
        // A fetch is made once, by its first access: another kind of access would not be made at all.
        let mut writes: Vec<Option<bool>> = vec![None; addresses.len()];
        for access in &accesses {
            let write = access.kind != TouchKind::Touch;
            if *writes[access.fetch as usize].get_or_insert(write) != write {
                return Err(format!("fetch {} is read and written", access.fetch));
            }
        }
        if let Some(at) = bytes.iter().position(|&b| b == 0) {
            return Err(format!("fetch {at} has no bytes"));
        }
        Ok(Self { accesses, addresses, bytes })
    }

    /// Returns the accesses of each task, as a range of indexes, for each phase.
    pub(super) fn phases(&self) -> Vec<Vec<(u32, u32)>> {
        let mut phases: Vec<Vec<(u32, u32)>> = Vec::new();
        let mut last = None;
        for (at, access) in (0u32..).zip(&self.accesses) {
            match last {
                Some((phase, task)) if (phase, task) == (access.phase, access.task) => {
                    phases.last_mut().and_then(|p| p.last_mut()).expect("a task has begun").1 = at + 1;
                }
                Some((phase, _)) if phase == access.phase => {
                    phases.last_mut().expect("a phase has begun").push((at, at + 1));
                }
                _ => phases.push(vec![(at, at + 1)]),
            }
            last = Some((access.phase, access.task));
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_tasks_of_phases_and_nonsense_is_refused() {
        let rows = [0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 1, 2, 0, 3, 0, 0, 1, 2, 2, 0, 0, 2, 2, 0];
        let recording = FetchRecording::new(&rows, vec![0, 4096, 8192], vec![4096; 3]).unwrap();
        assert_eq!(recording.phases(), vec![vec![(0, 2), (2, 3)], vec![(3, 4)]]);
        let refused = |rows: &[u32]| FetchRecording::new(rows, vec![0], vec![512]).unwrap_err();
        assert!(refused(&[0, 0, 0, 0, 1, 0]).contains("fetch 1 of 1"));
        assert!(refused(&[0, 0, 0, 7, 0, 0]).contains("kind 7"));
        assert!(refused(&[0, 0, 0]).contains("rows of 6"));
        assert!(refused(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).contains("is before"));
        assert!(FetchRecording::new(&[], vec![0], vec![0]).unwrap_err().contains("no bytes"));
    }
}
