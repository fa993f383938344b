//! Cuts beside naive splits, as they come by and by, and of several inputs.

use proptest::prelude::*;

use super::*;
use crate::io::TransferError;

struct Memory(Vec<u8>);

impl InputSource for Memory {
    fn bytes(&self, _input: usize) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, _input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

fn metadata(records: &str) -> Metadata {
    let dtype = r#""dtype": "uint8", "record_bytes": 1"#;
    let text = format!(r#"{{"abi": 1, "kind": "block", "inputs": [{{{dtype}, "records": "{records}"}}]}}"#);
    Metadata::parse(text.as_bytes()).unwrap()
}

/// Returns the cuts of an input whose bytes arrive in these pieces.
fn by_and_by(metadata: &Metadata, pieces: &[Vec<u8>], bytes: u64) -> Result<Vec<Cut>, String> {
    let mut queue = StreamQueue::default();
    let reader = queue.add_reader();
    let mut tasks = TaskCutter::new(metadata, 0, bytes);
    let (mut cuts, mut left) = (Vec::new(), pieces.iter());
    loop {
        let supply = Supply { bytes: queue.end(), closed: queue.is_closed() };
        match tasks.next(metadata, &[supply], Some(&queue)).map_err(|e| e.to_string())? {
            NextCut::End => return Ok(cuts),
            NextCut::Task(cut, _) => {
                tasks.take(cut);
                queue.take(reader, cut.first + cut.records);
                cuts.push(cut);
            }
            NextCut::Wait => match left.next() {
                Some(piece) => queue.push(piece.clone(), 0),
                None => queue.close(0),
            },
        }
    }
}

proptest! {
    #[test]
    fn what_comes_by_and_by_is_cut_as_what_is_there(
        pieces in prop::collection::vec(prop::collection::vec(0u8..12, 0..40), 0..20),
        bytes in 1u64..60,
        kind in 0usize..3,
    ) {
        let metadata = metadata(["fixed", "lines", "prefixed"][kind]);
        // Few lines, and length prefixes that often fit the input.
        let byte = |b: u8| match (kind, b) { (1, 3) => b'\n', (2, 4..) => 0, (_, b) => b };
        let pieces: Vec<Vec<u8>> =
            pieces.into_iter().map(|piece| piece.into_iter().map(byte).collect()).collect();
        let source = Memory(pieces.concat());
        let mut tasks = TaskCutter::new(&metadata, 0, bytes);
        let looked = match tasks.is_to_search() {
            true => TaskCutter::search(&metadata, &source, 0, bytes).map(|edges| tasks.cut_at(edges)),
            false => Ok(()),
        };
        let supply = [Supply { bytes: source.bytes(0), closed: true }];
        let there = looked.map_err(|e| e.to_string()).map(|()| {
            let mut cuts = Vec::new();
            while let NextCut::Task(cut, _) = tasks.next(&metadata, &supply, None).unwrap() {
                tasks.take(cut);
                cuts.push(cut);
            }
            cuts
        });
        if let Ok(cuts) = &there {
            prop_assert_eq!(cuts.iter().map(|cut| cut.records).sum::<u64>(), source.bytes(0));
        }
        prop_assert_eq!(by_and_by(&metadata, &pieces, bytes), there);
    }
}

/// Splits bytes into lines, each with its end, but the last one may have none.
fn lines(bytes: &[u8]) -> Vec<u64> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| line.len() as u64).collect()
}

/// Splits bytes into length-prefixed records; an error in the words of the cutter.
fn prefixed(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let (mut found, mut at, all) = (Vec::new(), 0usize, bytes.len());
    while at < all {
        let Some(prefix) = bytes.get(at..at + 4) else {
            return Err(format!("a record at byte {at} has no room for its length before the end at {all}"));
        };
        let length = u32::from_le_bytes(prefix.try_into().unwrap()) as usize & 0x7fff_ffff;
        if at + 4 + length > all {
            return Err(format!("a record at byte {at} of {length} bytes ends beyond the end at {all}"));
        }
        found.push(4 + length as u64);
        at += 4 + length;
    }
    Ok(found)
}

/// Groups records into tasks. Lines are added until a task has its size; other records as long as it does not exceed
/// its size, and at least one.
fn grouped(records: &[u64], bytes: u64, by_lines: bool) -> Vec<u64> {
    let mut tasks: Vec<u64> = Vec::new();
    for &record in records {
        let open = match tasks.last() {
            Some(last) if by_lines => *last < bytes,
            Some(last) => last + record <= bytes,
            None => false,
        };
        match tasks.last_mut().filter(|_| open) {
            Some(last) => *last += record,
            None => tasks.push(record),
        }
    }
    tasks
}

/// Draws bytes that have line ends, or length prefixes most of which fit.
fn draw(rng: &mut fastrand::Rng, kind: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..30) {
        let most = [3, 20, 90][rng.usize(..3)];
        let length = rng.usize(..most);
        match kind {
            "lines" => {
                bytes.resize(bytes.len() + length, b'x');
                bytes.push(b'\n');
            }
            _ => {
                // The highest bit of a length is a mark of the program's.
                let marked = length as u32 | u32::from(rng.bool()) << 31;
                bytes.extend(marked.to_le_bytes());
                bytes.resize(bytes.len() + length, 0xff);
            }
        }
    }
    if rng.u8(..3) == 0 {
        bytes.truncate(rng.usize(..=bytes.len()));
    }
    bytes
}

#[test]
fn tasks_are_the_records_of_a_naive_split_one_after_the_other() {
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = ["lines", "prefixed"][rng.usize(..2)];
        let (bytes, target) = (draw(&mut rng, kind), rng.u64(1..120));
        let metadata = metadata(kind);
        let split = if kind == "lines" { Ok(lines(&bytes)) } else { prefixed(&bytes) };
        let wanted = split.map(|records| grouped(&records, target, kind == "lines"));
        let all = bytes.len() as u64;
        let source = Memory(bytes);
        let mut cutter = TaskCutter::new(&metadata, 0, target);
        let context = format!("seed {seed}: {kind}, {all} bytes in tasks of {target}");
        let edges = match TaskCutter::search(&metadata, &source, 0, target) {
            Ok(edges) => edges,
            Err(error) => {
                assert_eq!(Err(error.to_string()), wanted, "{context}");
                continue;
            }
        };
        cutter.cut_at(edges);
        let supply = [Supply { bytes: all, closed: true }];
        assert_eq!(cutter.expected(&metadata, &supply), wanted.as_ref().ok().map(|all| all.len() as u64), "{context}");
        let mut found = Vec::new();
        while let NextCut::Task(cut, _) = cutter.next(&metadata, &supply, None).unwrap() {
            assert_eq!(cut.first, found.iter().sum::<u64>(), "{context}");
            cutter.take(cut);
            found.push(cut.records);
        }
        assert_eq!((Ok(&found), cutter.count()), (wanted.as_ref(), found.len() as u64), "{context}");
    }
}

/// Inputs of a program: for each its element size, the elements of a record, and whether it is whole.
fn several(ports: &[(u64, u64, bool)]) -> Metadata {
    let port = |(number, (item, each, whole)): (usize, &(u64, u64, bool))| {
        let (dtype, bytes) = (if *item == 4 { "int32" } else { "int64" }, item * each);
        format!(r#"{{"name": "x{number}", "dtype": "{dtype}", "record_bytes": {bytes}, "whole": {whole}}}"#)
    };
    let inputs: Vec<String> = ports.iter().enumerate().map(port).collect();
    let text = format!(r#"{{"abi": 1, "kind": "block", "inputs": [{}]}}"#, inputs.join(", "));
    Metadata::parse(text.as_bytes()).unwrap()
}

#[test]
fn inputs_of_one_program_are_cut_at_the_same_records_or_refused_by_name() {
    let metadata = several(&[(8, 1, false), (4, 3, false), (4, 1, true)]);
    let supply = |bytes, closed| Supply { bytes, closed };
    let ended = |a, b| [supply(a, true), supply(b, true), supply(40, true)];
    let text = |supplies: &[Supply]| check(&metadata, supplies).map_err(|error| error.to_string());
    assert_eq!(text(&ended(80, 120)), Ok(Some(10)));
    // The last record may be short, by whole elements.
    assert_eq!(text(&ended(80, 112)), Ok(Some(10)));
    assert_eq!(text(&ended(80, 113)), Err("input x1 of 113 bytes is not whole elements of 4".to_owned()));
    assert_eq!(text(&ended(80, 124)), Err("input x0 has 10 records, input x1 11; they must have the same".to_owned()));
    assert_eq!(text(&ended(0, 0)), Ok(Some(0)));
    // One has ended, and the other has too many already; or may still get what it lacks.
    let more = [supply(80, true), supply(124, false), supply(0, false)];
    let says = "input x0 has 10 records, input x1 11 or more; they must have the same";
    assert_eq!(text(&more), Err(says.to_owned()));
    assert_eq!(text(&[supply(80, true), supply(119, false), supply(0, false)]), Ok(None));
    let large = [supply(80, false), supply(0, false), supply(abi::WINDOW_BYTES + 4, false)];
    let most = abi::WINDOW_BYTES;
    let says = format!("input x2, which every task gets whole, must have at most {most} bytes, not {}", most + 4);
    assert_eq!(text(&large), Err(says));
    for (target, grain, each) in [(1, 0, 1), (24, 0, 3), (25, 0, 3), (24, 16, 4), (24, 80, 10), (8, 24, 3)] {
        let mut cutter = TaskCutter::new(&metadata, grain, target);
        let (supplies, mut left) = (ended(80, 120), 10);
        assert_eq!(
            cutter.expected(&metadata, &supplies),
            Some(10u64.div_ceil(each)),
            "{target} bytes, units of {grain}"
        );
        while let NextCut::Task(cut, _) = cutter.next(&metadata, &supplies, None).unwrap() {
            assert_eq!(cut, Cut { first: 10 - left, records: left.min(each) }, "{target} bytes, units of {grain}");
            cutter.take(cut);
            left -= cut.records;
        }
        assert_eq!(left, 0);
    }
    // No task of an input is larger than a window, whatever its target and the unit of its reads.
    for (target, grain) in [(u64::MAX - 1, 0), (u64::MAX - 1, 8), (1, u64::MAX), (abi::WINDOW_BYTES + 1, 4096)] {
        let cutter = TaskCutter::new(&metadata, grain, target);
        let need = (0..2).map(|input| cutter.need(&metadata, input)).max().unwrap();
        assert!((8..=abi::WINDOW_BYTES).contains(&need), "{target} bytes, units of {grain}: {need}");
    }
}

#[test]
fn a_program_of_one_task_gets_all_or_is_refused() {
    for (kind, most) in [("block", abi::WINDOW_BYTES), ("stream", abi::STREAM_BYTES_MAX)] {
        let text = format!(
            r#"{{"abi": 1, "kind": "{kind}", "tasks": "one", "name": "p", "inputs": [{{"name": "x", "dtype": "int32"}}],
                "outputs": [{{"name": "y", "dtype": "int64"}}]}}"#
        );
        let metadata = Metadata::parse(text.as_bytes()).unwrap();
        let mut cutter = TaskCutter::new(&metadata, 4096, metadata.task_bytes());
        assert_eq!((cutter.need(&metadata, 0), metadata.most_bytes()), (most, most));
        let any = Metadata::parse(text.replace("\"one\"", "\"any\"").as_bytes()).unwrap();
        assert_eq!(any.most_bytes(), abi::WINDOW_BYTES, "a task of a stream that is cut");
        let mut next = |bytes, closed| {
            cutter.next(&metadata, &[Supply { bytes, closed }], None).map_err(|error| error.to_string())
        };
        let refused = |what: &str, bytes: u64| {
            Err(format!(
                "{what} has {bytes} bytes; p takes its inputs whole: they must fit one task of at most {most} bytes, \
                 unless the caller gives the size of a task. It is then called for each task, and sees no other"
            ))
        };
        assert_eq!(next(most, false), Ok(NextCut::Wait));
        assert_eq!(next(most + 4, false), refused("input x", most + 4));
        assert_eq!(next(most, true), refused("the room of output y", 2 * most));
        assert_eq!(next(0, true), Ok(NextCut::End));
        assert_eq!(next(most / 2, true), Ok(NextCut::Task(Cut { first: 0, records: most / 8 }, None)));
    }
    let text = r#"{"abi": 1, "kind": "block", "tasks": "one", "inputs": [{"dtype": "uint8", "records": "lines"}]}"#;
    assert!(Metadata::parse(text.as_bytes()).unwrap_err().to_string().contains("must be \"fixed\""));
}
