//! Inputs with paces of their own: each task sees a window of each input, which begins where the task before it stopped
//! taking. So a window depends on the inputs' bytes and on what the program took, never on the time at which bytes
//! arrive: it is as long as every other, but where its input ends. Not here: which task runs when.

use std::ops::Range;

use nandarray_cores::abi::{self, InputPace};
use nandarray_cores::{Metadata, RunError};

use crate::cut::{Cut, NextCut, Supply};

/// The part of an input that a task sees, in bytes, and whether the input ends with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenBytes {
    pub(crate) range: Range<u64>,
    pub(crate) ended: bool,
}

/// The positions of a program's inputs, each of which has a pace of its own.
#[derive(Debug)]
pub(crate) struct PacedInputs {
    /// Length of a window of each input, in bytes; 0 for an input that every task gets whole.
    windows: Vec<u64>,
    /// The part of each input that the next task sees, or the one in flight.
    seen: Vec<SeenBytes>,
}

impl PacedInputs {
    /// Makes windows of about `bytes` bytes of the first input, and as many records of the others.
    pub(crate) fn new(metadata: &Metadata, bytes: u64) -> Self {
        let records = (bytes / metadata.inputs[0].record_bytes).min(records_max(metadata));
        let window = |port: &nandarray_cores::InputPort| {
            if port.whole {
                return 0;
            }
            let most = abi::WINDOW_BYTES / port.record_bytes;
            records.max(port.ahead).clamp(1, most) * port.record_bytes
        };
        let windows: Vec<u64> = metadata.inputs.iter().map(window).collect();
        Self { seen: vec![SeenBytes::default(); windows.len()], windows }
    }

    /// Returns what the next task sees: a window of each input, or less where the input ends.
    pub(crate) fn next(&mut self, metadata: &Metadata, supplies: &[Supply]) -> NextCut {
        let mut records = 0;
        for (((port, supply), window), seen) in metadata
            .inputs
            .iter()
            .zip(supplies)
            .zip(&self.windows)
            .zip(&mut self.seen)
            .filter(|(((p, _), _), _)| !p.whole)
        {
            let left = supply.bytes - seen.range.start;
            if left < *window && !supply.closed {
                return NextCut::Wait;
            }
            seen.ended = left < *window;
            seen.range.end = seen.range.start + left.min(*window);
            records += (seen.range.end - seen.range.start).div_ceil(port.record_bytes);
        }
        if records == 0 {
            return NextCut::End;
        }
        NextCut::Task(Cut { first: self.seen[0].range.start / metadata.inputs[0].record_bytes, records }, None)
    }

    /// Returns what the task that was cut sees of each input.
    pub(crate) fn seen(&self) -> &[SeenBytes] {
        &self.seen
    }

    /// Returns the length of a window of an input, in bytes.
    pub(crate) fn window(&self, input: usize) -> u64 {
        self.windows[input]
    }

    /// Returns the places of the task in its inputs, as the program learns them.
    pub(crate) fn paces(&self, metadata: &Metadata) -> Vec<InputPace> {
        let pace = |(port, seen): (&nandarray_cores::InputPort, &SeenBytes)| InputPace {
            first: seen.range.start / port.record_bytes,
            ended: seen.ended,
        };
        metadata.inputs.iter().zip(&self.seen).map(pace).collect()
    }

    /// Moves on by what the task took of each input, in bytes; returns the new positions. Of an input that each task
    /// gets whole nothing is taken, whatever the program says.
    pub(crate) fn advance(&mut self, metadata: &Metadata, taken: &[u64]) -> Vec<u64> {
        for ((port, seen), taken) in metadata.inputs.iter().zip(&mut self.seen).zip(taken) {
            if port.whole {
                continue;
            }
            seen.range.start += taken;
            assert!(seen.range.start <= seen.range.end, "{taken} bytes are taken up to {}", seen.range.end);
        }
        self.seen.iter().map(|seen| seen.range.start).collect()
    }
}

/// Returns the most records of each input for which the outputs of a task have room: that of a window.
fn records_max(metadata: &Metadata) -> u64 {
    let cut = || metadata.inputs.iter().filter(|port| !port.whole);
    let (inputs, bytes) = (cut().count() as f64, cut().map(|port| port.record_bytes).sum::<u64>() as f64);
    let fits = |port: &nandarray_cores::OutputPort| {
        let bound = port.bound;
        let each = bound.per_record as f64 * inputs + bound.per_input_byte * bytes;
        if each > 0.0 { (abi::WINDOW_BYTES.saturating_sub(bound.fixed) as f64 / each) as u64 } else { u64::MAX }
    };
    metadata.outputs.iter().filter(|port| port.phase.is_of_tasks()).map(fits).min().unwrap_or(u64::MAX).max(1)
}

/// Checks what a task took of its inputs, by the lengths of what it saw, and that it took or wrote something.
pub(crate) fn check_taken(
    metadata: &Metadata,
    task: u64,
    seen: &[u64],
    taken: &[u64],
    outputs: &[Vec<u8>],
) -> Result<(), RunError> {
    for ((port, &seen), &taken) in metadata.inputs.iter().zip(seen).zip(taken).filter(|((port, _), _)| !port.whole) {
        let name = &port.name;
        if taken > seen {
            let what = format!("the program says that it took {taken} bytes of input {name}, of which it saw {seen}");
            return Err(RunError::Taken { task, what });
        }
        if taken < seen && !taken.is_multiple_of(port.record_bytes) {
            let record = port.record_bytes;
            let what = format!("the program took {taken} bytes of input {name}, not whole records of {record}");
            return Err(RunError::Taken { task, what });
        }
    }
    let cut = metadata.inputs.iter().zip(taken).filter(|(port, _)| !port.whole);
    if cut.map(|(_, taken)| taken).sum::<u64>() == 0 && outputs.iter().all(Vec::is_empty) {
        let what = "the program took nothing of its inputs and wrote nothing: it would be called for ever".to_owned();
        return Err(RunError::Taken { task, what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(records: [u64; 2], ahead: [u64; 2]) -> Metadata {
        let input = |i: usize| {
            format!(r#"{{"name": "i{i}", "dtype": "uint8", "record_bytes": {}, "ahead": {}}}"#, records[i], ahead[i])
        };
        let rest = r#""abi": 1, "kind": "block", "tasks": "ordered", "state_bytes": 8"#;
        Metadata::parse(format!(r#"{{{rest}, "inputs": [{}, {}]}}"#, input(0), input(1)).as_bytes()).unwrap()
    }

    #[test]
    fn windows_follow_what_was_taken_and_not_what_arrives_when() {
        for seed in 0..500 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let records = [chance.u64(1..4), chance.u64(1..4)];
            let metadata = metadata(records, [chance.u64(1..5), chance.u64(1..5)]);
            let lengths = [0, 1].map(|i| records[i] * chance.u64(0..40));
            let bytes = chance.u64(1..30);
            let (mut at_once, mut by_and_by) = (PacedInputs::new(&metadata, bytes), PacedInputs::new(&metadata, bytes));
            let there = lengths.map(|bytes| Supply { bytes, closed: true });
            let mut arrived = [Supply { bytes: 0, closed: false }; 2];
            let mut at = [0; 2];
            loop {
                let cut = at_once.next(&metadata, &there);
                let same = loop {
                    match by_and_by.next(&metadata, &arrived) {
                        NextCut::Wait => {
                            let input = chance.usize(..2);
                            let left = lengths[input] - arrived[input].bytes;
                            arrived[input].bytes += chance.u64(..=left);
                            arrived[input].closed = arrived[input].bytes == lengths[input] && chance.bool();
                        }
                        other => break other,
                    }
                };
                assert_eq!((cut, at_once.seen()), (same, by_and_by.seen()), "seed {seed}");
                if cut == NextCut::End {
                    assert_eq!(at, lengths, "seed {seed}");
                    break;
                }
                let seen: Vec<u64> = at_once.seen().iter().map(|s| s.range.end - s.range.start).collect();
                let least = |i: usize| seen[i].min(metadata.inputs[i].ahead * records[i]);
                assert!(at_once.seen().iter().enumerate().all(|(i, s)| s.ended || seen[i] >= least(i)), "seed {seed}");
                let taken = [0, 1].map(|i| records[i] * chance.u64(..=seen[i] / records[i]));
                at = [at[0] + taken[0], at[1] + taken[1]];
                assert_eq!(at_once.advance(&metadata, &taken), at, "seed {seed}");
                by_and_by.advance(&metadata, &taken);
            }
        }
    }

    #[test]
    fn of_a_whole_input_nothing_is_taken_whatever_the_program_says() {
        let text = r#"{"abi": 1, "kind": "block", "tasks": "ordered", "state_bytes": 8, "inputs": [
            {"name": "a", "dtype": "uint8", "record_bytes": 1, "ahead": 1},
            {"name": "b", "dtype": "uint8", "record_bytes": 1, "whole": true}]}"#;
        let metadata = Metadata::parse(text.as_bytes()).unwrap();
        let mut paced = PacedInputs::new(&metadata, 4);
        paced.next(&metadata, &[Supply { bytes: 4, closed: true }; 2]);
        check_taken(&metadata, 0, &[4, 4], &[2, u64::MAX], &[]).unwrap();
        assert_eq!(paced.advance(&metadata, &[2, u64::MAX])[0], 2);
    }

    #[test]
    fn what_was_not_seen_is_not_taken() {
        let metadata = metadata([4, 1], [1, 1]);
        let check = |taken: [u64; 2], out: &[u8]| {
            check_taken(&metadata, 7, &[8, 3], &taken, &[out.to_vec()]).map_err(|e| e.to_string())
        };
        assert_eq!(check([8, 3], b""), Ok(()));
        assert_eq!(check([0, 0], b"x"), Ok(()));
        assert!(check([0, 0], b"").unwrap_err().starts_with("task 7: the program took nothing"));
        assert!(check([0, 4], b"").unwrap_err().ends_with("took 4 bytes of input i1, of which it saw 3"));
        assert!(check([6, 0], b"").unwrap_err().ends_with("took 6 bytes of input i0, not whole records of 4"));
    }
}
