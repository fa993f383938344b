//! Subsystem Local Memory beside a vector of bytes: random commands, right and wrong, with addresses at every edge.

use fastrand::Rng;
use nandarray::nvme::{Status, SubmissionEntry};

use super::*;

const BYTES: u64 = 4096;

/// A command with its data: `room` is the length of the buffer for data to the host, if it has one.
#[derive(Clone, Debug)]
struct Meant {
    opcode: u8,
    first: u64,
    len: u32,
    word: u32,
    source: Option<Vec<u8>>,
    room: Option<usize>,
}

impl Meant {
    fn entry(&self) -> SubmissionEntry {
        let mut entry = SubmissionEntry { opcode: self.opcode, ..SubmissionEntry::default() };
        entry.set_cdw_pair(10, self.first);
        entry.set_cdw(12, self.len);
        entry.set_cdw(13, self.word);
        entry
    }

    /// Returns the source ranges of a copy, as (first, length); `None` if the data is too short for them.
    fn ranges(&self) -> Option<Vec<(u64, u64)>> {
        let list = self.source.as_deref()?.get(..32 * ((self.len & 0xff) as usize + 1))?;
        let number = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap());
        Some(list.chunks(32).map(|range| (number(&range[8..16]), number(&range[16..24]))).collect())
    }
}

fn is_inside(first: u64, len: u64) -> bool {
    u128::from(first) + u128::from(len) <= u128::from(BYTES)
}

/// Returns the faults of a command, of which one is its status; none if it succeeds.
fn faults(meant: &Meant) -> Vec<Status> {
    let len = u64::from(meant.len);
    let mut faults = Vec::new();
    let mut fault = |is: bool, status: Status| faults.extend(is.then_some(status));
    match meant.opcode {
        0x02 | 0x04 | 0x05 => {
            fault(!meant.first.is_multiple_of(4) || !len.is_multiple_of(4), Status::INVALID_FIELD);
            fault(!is_inside(meant.first, len), Status::LBA_OUT_OF_RANGE);
            fault(meant.opcode == 0x02 && meant.room != Some(len as usize), Status::DATA_LENGTH_INVALID);
            let given = meant.source.as_ref().map(Vec::len);
            fault(meant.opcode == 0x05 && given != Some(len as usize), Status::DATA_LENGTH_INVALID);
        }
        0x01 => {
            fault(meant.len >> 8 & 0xf != 4, Status::INVALID_FIELD);
            let Some(ranges) = meant.ranges() else { return [faults, vec![Status::DATA_LENGTH_INVALID]].concat() };
            let outside = ranges.iter().any(|&(first, len)| !is_inside(first, len));
            let total: u128 = ranges.iter().map(|&(_, len)| u128::from(len)).sum();
            let beyond = u128::from(meant.first) + total > u128::from(BYTES);
            fault(outside || beyond, Status::LBA_OUT_OF_RANGE);
        }
        _ => fault(true, Status::INVALID_OPCODE),
    }
    faults
}

fn number(rng: &mut Rng, most: u64) -> u64 {
    match rng.u8(..12) {
        0 => [BYTES, BYTES - 4, BYTES + 4, u64::MAX, u64::MAX - 3, 1 << 32][rng.usize(..6)],
        1 => rng.u64(..most),
        _ => rng.u64(..most / 4) * 4,
    }
}

fn draw(rng: &mut Rng) -> Meant {
    let opcode = if rng.u8(..20) == 0 { rng.u8(..) } else { [0x01, 0x02, 0x04, 0x05][rng.usize(..4)] };
    let mut meant = Meant { opcode, first: number(rng, BYTES), len: 0, word: rng.u32(..), source: None, room: None };
    if opcode == 0x01 {
        let count = 1 + rng.usize(..4);
        let mut list = vec![0u8; 32 * count];
        for range in list.chunks_mut(32) {
            rng.fill(range);
            range[8..16].copy_from_slice(&number(rng, BYTES / 2).to_le_bytes());
            range[16..24].copy_from_slice(&number(rng, 300).to_le_bytes());
        }
        list.resize(list.len() + [0, 0, 0, 7][rng.usize(..4)], 1);
        meant.len = (count as u32 - 1) | if rng.u8(..15) == 0 { rng.u32(..16) } else { 4 } << 8;
        meant.source = (rng.u8(..20) > 0).then_some(list);
        if rng.u8(..20) == 0 {
            meant.len += 1;
        }
        return meant;
    }
    meant.len = number(rng, 400) as u32;
    let moved = if rng.u8(..15) == 0 { rng.usize(..500) } else { (meant.len as usize).min(1 << 16) };
    let wrong = rng.u8(..20) == 0;
    match opcode {
        0x02 if !wrong => meant.room = Some(moved),
        0x05 if !wrong => meant.source = Some(std::iter::repeat_with(|| rng.u8(..)).take(moved).collect()),
        _ => {}
    }
    meant
}

/// Executes a command in the reference; returns the data for the host.
fn execute(bytes: &mut [u8], meant: &Meant) -> Vec<u8> {
    let at = meant.first as usize..(meant.first as usize).saturating_add(meant.len as usize);
    match meant.opcode {
        0x02 => return bytes[at].to_vec(),
        0x04 => bytes[at].fill(meant.word as u8),
        0x05 => bytes[at].copy_from_slice(meant.source.as_ref().unwrap()),
        _ => {
            let before = bytes.to_vec();
            let from = meant.ranges().unwrap();
            let moved: Vec<u8> =
                from.iter().flat_map(|&(first, len)| before[first as usize..(first + len) as usize].to_vec()).collect();
            bytes[meant.first as usize..][..moved.len()].copy_from_slice(&moved);
        }
    }
    Vec::new()
}

#[test]
fn memory_is_a_vector_of_bytes_and_a_refused_command_changes_none() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let memory = LocalMemory::new(BYTES as usize, Budget::new(1 << 30, None));
        let mut bytes = vec![0u8; BYTES as usize];
        for step in 0..400 {
            let meant = draw(&mut rng);
            let mut room = vec![0xee; meant.room.unwrap_or(0)];
            let payload = match (&meant.source, meant.room) {
                (Some(source), _) => Payload::ToController(source),
                (None, Some(_)) => Payload::ToHost(&mut room),
                (None, None) => Payload::None,
            };
            let done = memory.execute(&meant.entry(), payload);
            let (context, faults) = (format!("seed {seed}, step {step}: {meant:?}"), faults(&meant));
            match done {
                Ok(()) => {
                    assert!(faults.is_empty(), "it succeeds in spite of {faults:?}, {context}");
                    let told = execute(&mut bytes, &meant);
                    assert!(meant.opcode != 0x02 || room == told, "{context}");
                }
                Err(status) => assert!(faults.contains(&status), "{status} is none of {faults:?}, {context}"),
            }
            let whole = memory.read(0, BYTES).unwrap();
            let differs = whole.iter().zip(&bytes).position(|(a, b)| a != b);
            assert_eq!(differs, None, "the first byte that differs, {context}");
        }
    }
}

/// A copy of 256 ranges that are the whole memory each: memory for them would be 256 times that of the subsystem.
#[test]
fn a_copy_that_cannot_fit_is_refused_before_its_sources_are_read() {
    const LARGE: u64 = 64 << 20;
    let memory = LocalMemory::new(LARGE as usize, Budget::new(1 << 30, None));
    let mut list = vec![0u8; 32 * 256];
    list.chunks_mut(32).for_each(|range| range[16..24].copy_from_slice(&LARGE.to_le_bytes()));
    let meant = Meant { opcode: 0x01, first: 0, len: 0x4ff, word: 0, source: Some(list), room: None };
    let source = meant.source.clone().unwrap();
    assert_eq!(memory.execute(&meant.entry(), Payload::ToController(&source)), Err(Status::LBA_OUT_OF_RANGE));
    // Lengths whose sum exceeds 64 bits.
    let mut list = vec![0u8; 64];
    list.chunks_mut(32).for_each(|range| range[16..24].copy_from_slice(&u64::MAX.to_le_bytes()));
    let entry = Meant { len: 0x401, ..meant }.entry();
    assert_eq!(memory.execute(&entry, Payload::ToController(&list)), Err(Status::LBA_OUT_OF_RANGE));
}

/// Copies that turn two halves around run beside copies of a whole: no half is ever seen on both sides.
#[test]
fn a_copy_is_atomic_beside_another() {
    let memory = LocalMemory::new(64, Budget::new(1 << 30, None));
    memory.write_all(&[(0, &[1; 32]), (32, &[2; 32])]).unwrap();
    let mut list = vec![0u8; 64];
    list[8..16].copy_from_slice(&32u64.to_le_bytes());
    list[16..24].copy_from_slice(&32u64.to_le_bytes());
    list[32 + 16..32 + 24].copy_from_slice(&32u64.to_le_bytes());
    let turn = Meant { opcode: 0x01, first: 0, len: 0x401, word: 0, source: Some(list), room: None };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3000 {
                    memory.execute(&turn.entry(), Payload::ToController(turn.source.as_ref().unwrap())).unwrap();
                }
            });
        }
        for _ in 0..3000 {
            let whole = memory.read(0, 64).unwrap();
            assert!(whole[0] + whole[63] == 3 && whole[..32] == [whole[0]; 32], "{whole:?}");
        }
    });
}
