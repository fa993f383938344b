//! Accesses of a kernel as columns.
//!
//! A fetch is one movement of bytes between memory and a device. A touch names the fetch whose bytes it uses: the
//! first touch in modelled time starts it, later ones wait for it or hit. So the number of fetches is the recording's,
//! whatever the order in which modelled tasks come to them.

/// The kinds of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// Uses bytes that a fetch reads.
    Touch,
    /// Starts a write and goes on; the run ends when it has ended.
    WriteBehind,
    /// Starts a write and waits for it.
    Write,
}

/// One access.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord {
    /// The launch that it belongs to.
    pub phase: u32,
    /// The task within the phase.
    pub task: u32,
    /// The group within the task: accesses of a group are issued together.
    pub group: u32,
    /// Its kind.
    pub kind: TouchKind,
    /// The fetch.
    pub fetch: u32,
    /// Atomics on the fetch's line.
    pub atomics: u32,
}

/// A recording: accesses in order of phase, task and group, and the fetches that they name.
#[derive(Clone, Debug, Default)]
pub struct FetchRecording {
    /// The accesses.
    pub accesses: Vec<AccessRecord>,
    /// First byte of each fetch.
    pub addresses: Vec<u64>,
    /// Bytes of each fetch.
    pub bytes: Vec<u32>,
}

/// Kinds by their numbers.
const KINDS: [TouchKind; 3] = [TouchKind::Touch, TouchKind::WriteBehind, TouchKind::Write];

impl FetchRecording {
    /// From rows of six numbers: phase, task, group, kind (0 touch, 1 write behind, 2 write), fetch, atomics.
    ///
    /// # Errors
    /// A sentence, for rows that are no recording.
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
        if let Some(at) = bytes.iter().position(|&b| b == 0) {
            return Err(format!("fetch {at} has no bytes"));
        }
        Ok(Self { accesses, addresses, bytes })
    }

    /// Ranges of accesses of the tasks of each phase.
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
        let rows = [0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 1, 2, 0, 3, 0, 0, 1, 2, 2, 0, 0, 2, 0, 0];
        let recording = FetchRecording::new(&rows, vec![0, 4096], vec![4096, 4096]).unwrap();
        assert_eq!(recording.phases(), vec![vec![(0, 2), (2, 3)], vec![(3, 4)]]);
        let refused = |rows: &[u32]| FetchRecording::new(rows, vec![0], vec![512]).unwrap_err();
        assert!(refused(&[0, 0, 0, 0, 1, 0]).contains("fetch 1 of 1"));
        assert!(refused(&[0, 0, 0, 7, 0, 0]).contains("kind 7"));
        assert!(refused(&[0, 0, 0]).contains("rows of 6"));
        assert!(refused(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).contains("is before"));
        assert!(FetchRecording::new(&[], vec![0], vec![0]).unwrap_err().contains("no bytes"));
    }
}
