//! Tests of memory: addresses inside and outside of regions, and the rights of a hart in each region.

use super::*;
use crate::access::Fault;

#[test]
fn regions_do_not_overlap() {
    let mut memory = Memory::new();
    memory.add(0x1000, 0x1000).unwrap();
    assert_eq!(memory.add(0x1fff, 1), Err(MemoryError::Overlap { base: 0x1fff, bytes: 1 }));
    assert_eq!(memory.add(u64::MAX, 2), Err(MemoryError::Overlap { base: u64::MAX, bytes: 2 }));
    memory.add(0x2000, 8).unwrap();
}

#[test]
fn the_limit_counts_what_is_owned() {
    let lent = [0; 100];
    let mut memory = Memory::with_limit(64);
    memory.add(0, 60).unwrap();
    memory.lend(0x1000, &lent).unwrap();
    assert_eq!(memory.add(0x2000, 8), Err(MemoryError::Limit { bytes: 68, limit: 64 }));
}

#[test]
fn a_range_must_be_in_one_region() {
    let lent = [7; 4];
    let mut memory = Memory::new();
    memory.add(0x1000, 16).unwrap();
    memory.lend(0x1010, &lent).unwrap();
    assert_eq!(memory.get(0x1010..0x1014).unwrap(), [7; 4]);
    assert!(memory.get(0x100c..0x1014).is_err());
    assert!(memory.get_mut(0x1010..0x1014).is_err());
    memory.get_mut(0x1000..0x1004).unwrap().copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(memory.get(0x1002..0x1004).unwrap(), [3, 4]);
}

#[test]
fn a_hart_reads_and_writes_to_the_last_byte() {
    let (shared, mut exclusive) = ([5u8; 9], [0u8; 9]);
    let mut memory = Memory::new();
    memory.add(0x1000, 64).unwrap();
    memory.lend(0x2000, &shared).unwrap();
    memory.lend_mut(0x3000, &mut exclusive).unwrap();
    let spans = memory.spans();
    for base in [0x1000, 0x2000, 0x3000] {
        let len = if base == 0x1000 { 64 } else { 9 };
        for address in base - 8..base + len + 8 {
            let inside = address >= base && address + 8 <= base + len;
            let loaded = spans.load_fast::<8>(address).ok_or(()).or_else(|_| spans.load::<8>(address));
            assert_eq!(loaded.is_ok(), inside, "{address:#x}");
            let stored = spans.store_fast(address, [1u8; 8]) || spans.store(address, [1u8; 8]).is_ok();
            assert_eq!(stored, inside && base != 0x2000, "{address:#x}");
        }
        assert!(spans.load::<1>(base + len - 1).is_ok());
        assert!(spans.load::<1>(base + len).is_err());
    }
    assert_eq!(shared, [5; 9]);
    assert_eq!(exclusive, [1; 9]);
}

#[test]
fn addresses_do_not_wrap() {
    let mut memory = Memory::new();
    memory.add(0, 64).unwrap();
    let spans = memory.spans();
    for address in [u64::MAX, u64::MAX - 6, u64::MAX - 7] {
        assert!(spans.load_fast::<8>(address).is_none());
        assert_eq!(spans.load::<8>(address), Err(Fault { page: false, address }));
        assert_eq!(spans.store(address, [0; 8]), Err(Fault { page: false, address }));
    }
}

#[test]
fn stores_to_code_and_to_the_watched_address_are_seen() {
    let mut memory = Memory::new();
    memory.add_program(0x1000, 0x1000, 0x1000..0x2000, 0x1000..0x2000).unwrap();
    memory.watch(0x1800);
    let spans = memory.spans();
    spans.decoded(0x1100..0x1110);
    for address in 0x1000..0x1ff9u64 {
        (spans.code_written, spans.watch_hit) = (false, false);
        assert!(spans.store_fast(address, [0; 8]) || spans.store(address, [0; 8]).is_ok());
        assert_eq!(spans.code_written, address + 8 > 0x1100 && address < 0x1110, "{address:#x}");
        assert_eq!(spans.watch_hit, address + 8 > 0x1800 && address < 0x1808, "{address:#x}");
    }
}

#[test]
fn what_is_lent_for_a_call_is_gone_afterwards() {
    let mut memory = Memory::new();
    memory.add(0x1000, 16).unwrap();
    {
        let lent = [1; 4];
        let mut call = memory.for_call();
        call.lend(0x4000, &lent).unwrap();
        call.get_mut(0x1000..0x1001).unwrap()[0] = 9;
        assert!(call.get(0x4000..0x4004).is_ok());
    }
    assert!(memory.get(0x4000..0x4004).is_err());
    assert_eq!(memory.get(0x1000..0x1001).unwrap(), [9]);
}

#[test]
fn regions_in_turn_are_found_whether_or_not_they_share_a_part_of_the_addresses() {
    // 64 parts of 64 MiB each repeat after 4 GiB: the second, third and last of these are in one.
    let bases = [0x1_0000, 0x2000_0000, 0x2000_1000, 0x2400_0000, 0x1_2000_0000u64];
    let mut lent = [[0u8; 16]; 5];
    let mut memory = Memory::new();
    for (base, bytes) in bases.iter().zip(&mut lent) {
        memory.lend_mut(*base, bytes).unwrap();
    }
    let spans = memory.spans();
    let mut load = |address| match spans.load_near::<8>(address) {
        Some(bytes) => Ok(bytes),
        None => spans.load::<8>(address),
    };
    assert_eq!(load(0x2000_0800), Err(Fault::at(0x2000_0800)));
    for turn in 0..3u8 {
        for (i, base) in bases.iter().enumerate() {
            let (address, value) = (base + u64::from(turn) * 4, [turn + 1 + i as u8 * 16; 8]);
            assert!(spans.store_near(address, value) || spans.store(address, value).is_ok());
            assert_eq!(spans.load_near::<8>(address).ok_or(()).or_else(|_| spans.load::<8>(address)), Ok(value));
            assert!(spans.load_near::<8>(base + 9).is_none() && spans.load::<8>(base + 9).is_err());
            assert!(!spans.store_near(base + 9, value) && spans.store(base + 9, value).is_err());
        }
    }
    for (i, bytes) in lent.iter().enumerate() {
        let of = |turn: u8| turn + 1 + i as u8 * 16;
        let wanted: Vec<u8> = (0..16).map(|at| of((at / 4).min(2))).collect();
        assert_eq!(bytes.as_slice(), wanted);
    }
}

#[test]
fn tables_are_kept_until_regions_change() {
    let mut memory = Memory::new();
    memory.add(0x1000, 16).unwrap();
    let kept = |memory: &Memory<'_>| memory.spans.is_some();
    let at = |memory: &mut Memory<'_>, address| memory.spans().load::<1>(address).ok().map(|[byte]| byte);
    assert_eq!((kept(&memory), at(&mut memory, 0x1000), kept(&memory)), (false, Some(0), true));
    // Bytes that the caller writes are seen without building the tables again.
    memory.get_mut(0x1000..0x1001).unwrap()[0] = 7;
    assert_eq!((kept(&memory), at(&mut memory, 0x1000)), (true, Some(7)));
    memory.put(0x2000, vec![1, 2], true).unwrap();
    memory.share(0x3000, Arc::new(vec![3, 4, 5]), 1..2).unwrap();
    assert!(!kept(&memory));
    assert_eq!([0x2001, 0x3000, 0x3001].map(|a| at(&mut memory, a)), [Some(2), Some(4), None]);
    let written = [0x2000, 0x3000].map(|a| memory.spans().store(a, [9u8]).is_ok());
    assert_eq!((written, memory.put(0x2001, vec![0], false).is_err()), ([true, false], true));
    assert_eq!((memory.take(0x2000), memory.take(0x3000), memory.take(0x2000)), (Some(vec![9, 2]), None, None));
    assert_eq!([0x1000, 0x2000, 0x3000].map(|a| at(&mut memory, a)), [Some(7), None, None]);
    memory.watch(0x1008);
    assert!(!kept(&memory));
}

#[test]
fn a_run_finds_the_code_that_its_own_hart_decoded() {
    let mut memory = Memory::new();
    memory.add_program(0x1000, 0x1000, 0x1000..0x2000, 0x1000..0x2000).unwrap();
    let flagged = |memory: &mut Memory<'_>, code: Range<u64>, address: u64| {
        let spans = memory.spans();
        spans.begin(&code);
        assert!(spans.store_fast(address, [0u8]) || spans.store(address, [0u8]).is_ok());
        spans.code_written
    };
    assert!(flagged(&mut memory, 0x1000..0x1100, 0x1010));
    // Another hart decoded something else, and the first one has forgotten what it had.
    assert!(!flagged(&mut memory, 0x1800..0x1900, 0x1010));
    assert!(flagged(&mut memory, 0x1800..0x1900, 0x1810));
    assert!(!flagged(&mut memory, 0..0, 0x1810));
}

/// One region of the plain model: its first address, its bytes, who may write where, what may be executed.
struct Plain {
    base: u64,
    bytes: Vec<u8>,
    writable: Range<u64>,
    executable: Range<u64>,
    /// Whether the caller may change the bytes: borrowed and shared ones may only be read.
    own: bool,
}

impl Plain {
    fn holds(&self, addresses: &Range<u64>) -> bool {
        let end = self.base + self.bytes.len() as u64;
        addresses.start <= addresses.end && self.base <= addresses.start && addresses.end <= end
    }
}

/// Random regions, some of which overlap or end beyond the last address, beside a list of plain ones.
fn random_regions(chance: &mut fastrand::Rng, shared: &Arc<Vec<u8>>) -> (Memory<'static>, Vec<Plain>) {
    let mut memory = Memory::with_limit(2_000);
    let (mut all, mut owned): (Vec<Plain>, u64) = (Vec::new(), 0);
    for _ in 0..chance.usize(1..14) {
        let base = [chance.u64(..400), u64::MAX - chance.u64(..60), 0x1000 + 8 * chance.u64(..40)][chance.usize(..3)];
        let length = [0, 1, 3, 8, 40, 900][chance.usize(..6)];
        let end = base.checked_add(length);
        let meets = |p: &Plain| {
            let last = p.base + p.bytes.len() as u64;
            end.is_some_and(|end| p.base < end && base < last)
        };
        let fits = end.is_some() && !all.iter().any(meets);
        let mut bytes = vec![0; length as usize];
        let (writable, executable, own) = match chance.u8(..4) {
            0 => {
                let whole = base..base.saturating_add(length);
                let room = owned + length <= 2_000;
                assert_eq!(memory.add(base, length).is_ok(), fits && room, "{base:#x}, {length} bytes");
                (whole, 0..0, room)
            }
            1 => {
                bytes = shared[..length as usize].to_vec();
                let added = memory.share(base, shared.clone(), 0..length as usize);
                assert_eq!(added.is_ok(), fits, "{base:#x}, {length} bytes");
                (0..0, 0..0, false)
            }
            2 => {
                chance.fill(&mut bytes);
                let write = chance.bool();
                assert_eq!(memory.put(base, bytes.clone(), write).is_ok(), fits, "{base:#x}, {length} bytes");
                (if write { base..base.saturating_add(length) } else { 0..0 }, 0..0, true)
            }
            _ => {
                let half = base..base.saturating_add(length / 2);
                let rest = half.end..base.saturating_add(length);
                let room = owned + length <= 2_000;
                let added = memory.add_program(base, length, rest.clone(), half.clone());
                assert_eq!(added.is_ok(), fits && room, "{base:#x}, {length} bytes");
                (rest, half, room)
            }
        };
        let owns = own || bytes.is_empty();
        let there = fits && memory.get(base..base.saturating_add(length)).is_ok();
        if there && !all.iter().any(|p| p.base == base && p.bytes.len() as u64 == length && length == 0) {
            owned += if own { length } else { 0 };
            all.push(Plain { base, bytes, writable, executable, own: owns });
        }
    }
    assert_eq!(memory.owned_bytes(), owned);
    (memory, all)
}

#[test]
fn random_regions_are_read_and_changed_as_plain_ones() {
    let mut noise = fastrand::Rng::with_seed(1);
    let shared: Arc<Vec<u8>> = Arc::new((0..1_000).map(|_| noise.u8(..)).collect());
    for seed in 0..400 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut memory, mut all) = random_regions(&mut chance, &shared);
        for step in 0..120 {
            let context = format!("seed {seed}, step {step}");
            let near = all.get(chance.usize(..all.len().max(1))).map_or(0, |p| p.base);
            let start = near.wrapping_add(chance.u64(..50)).wrapping_sub(10);
            // Ranges that end before they begin, or beyond the last address, are in no region.
            let end = if chance.u8(..5) == 0 { chance.u64(..) } else { start.saturating_add(chance.u64(..30)) };
            let region = all.iter().position(|p| !p.bytes.is_empty() && p.holds(&(start..end)));
            let empty = start == end;
            match (memory.get(start..end), region) {
                (Ok(bytes), Some(at)) => {
                    let from = (start - all[at].base) as usize;
                    assert_eq!(bytes, &all[at].bytes[from..from + bytes.len()], "{context}");
                }
                (found, region) => {
                    assert!(empty || found.is_err() && region.is_none(), "{context}: {start:#x}..{end:#x}")
                }
            }
            if let (Some(at), false) = (region, empty) {
                let changed = memory.get_mut(start..end);
                assert_eq!(changed.is_ok(), all[at].own, "{context}: {start:#x}..{end:#x}");
                if let Ok(bytes) = changed {
                    chance.fill(bytes);
                    let (from, new) = ((start - all[at].base) as usize, bytes.to_vec());
                    all[at].bytes[from..from + new.len()].copy_from_slice(&new);
                }
            }
            check_rights(&mut memory, &mut all, start, &context);
        }
    }
}

/// Checks a store of a hart of one byte, and the fetch of an instruction, at an address.
fn check_rights(memory: &mut Memory<'_>, all: &mut [Plain], address: u64, context: &str) {
    let next = address.saturating_add(1);
    let Some(plain) = all.iter_mut().find(|p| !p.bytes.is_empty() && next > address && p.holds(&(address..next)))
    else {
        assert!(memory.spans().store(address, [7u8; 1]).is_err(), "{context}: {address:#x}");
        return assert_eq!(memory.fetch(address), None, "{context}: {address:#x}");
    };
    let low = (address - plain.base) as usize;
    let length = if plain.bytes[low] & 3 == 3 { 4 } else { 2 };
    let end =
        address.checked_add(length).filter(|end| plain.executable.start <= address && *end <= plain.executable.end);
    let code = end.map(|_| {
        let mut word = [0; 4];
        word[..length as usize].copy_from_slice(&plain.bytes[low..low + length as usize]);
        u32::from_le_bytes(word)
    });
    assert_eq!(memory.fetch(address), code, "{context}: {address:#x}");
    let stored = memory.spans().store(address, [7u8; 1]);
    assert_eq!(stored.is_ok(), plain.writable.contains(&address), "{context}: {address:#x}");
    if stored.is_ok() {
        plain.bytes[low] = 7;
    }
}

#[test]
fn instructions_end_where_execution_does_even_at_the_last_address() {
    for (base, length) in [(0x1000, 16), (u64::MAX - 16, 16)] {
        for first in 0..=16 {
            for end in first..=16 {
                let mut memory = Memory::new();
                memory.add_program(base, length, 0..0, base + first..base + end).unwrap();
                // Words of 32 bits at multiples of four, halves of 16 bits between them.
                memory.get_mut(base..base + length).unwrap().copy_from_slice(&[0x13, 0, 1, 0].repeat(4));
                for at in 0..length {
                    let left = if (first..end).contains(&at) { end - at } else { 0 };
                    let address = base + at;
                    // Bytes 3 of a word and 0 of the next make a half; the low bits of byte 3 are zero.
                    let needs = if at % 4 == 0 { 4 } else { 2 };
                    let there = left >= needs;
                    assert_eq!(memory.fetch(address).is_some(), there, "{address:#x} of {first}..{end}");
                    assert_eq!(
                        memory.spans().executable(address),
                        memory.fetch(address),
                        "{address:#x} of {first}..{end}"
                    );
                }
            }
        }
    }
}

/// Executes stores and loads of `N` bytes at every address near the regions, by the ways that instructions take, and
/// compares them with plain ones.
fn every_address<const N: usize>(
    memory: &mut Memory<'_>,
    all: &mut [Plain],
    code: &Range<u64>,
    watched: u64,
    chance: &mut fastrand::Rng,
) {
    let mut addresses: Vec<u64> = all.iter().flat_map(|p| p.base - 9..p.base + p.bytes.len() as u64 + 9).collect();
    chance.shuffle(&mut addresses);
    for address in addresses {
        let (end, bytes) = (address + N as u64, std::array::from_fn::<u8, N, _>(|_| chance.u8(..)));
        let spans = memory.spans();
        (spans.code_written, spans.watch_hit) = (false, false);
        let stored =
            spans.store_fast(address, bytes) || spans.store_near(address, bytes) || spans.store(address, bytes).is_ok();
        let seen = [spans.code_written, spans.watch_hit];
        let into = all
            .iter_mut()
            .find(|p| p.writable.start <= address && end <= p.writable.end && p.writable.start < p.writable.end);
        assert_eq!(stored, into.is_some(), "{N} bytes at {address:#x}");
        let meets = |from: u64, to: u64| stored && from < end && address < to && from < to;
        assert_eq!(seen, [meets(code.start, code.end), meets(watched, watched + 8)], "{N} bytes at {address:#x}");
        if let Some(plain) = into {
            let at = (address - plain.base) as usize;
            plain.bytes[at..at + N].copy_from_slice(&bytes);
        }
        let from = all.iter().find(|p| p.holds(&(address..end)));
        let wanted = from.map(|p| p.bytes[(address - p.base) as usize..][..N].to_vec());
        let spans = memory.spans();
        let fast = spans.load_fast::<N>(address).or_else(|| spans.load_near::<N>(address));
        assert!(fast.is_none() || fast.map(|b| b.to_vec()) == wanted, "{N} bytes at {address:#x}");
        assert_eq!(spans.load::<N>(address).ok().map(|b| b.to_vec()), wanted, "{N} bytes at {address:#x}");
        let (mut run, length) = (vec![0; chance.usize(1..40)], address);
        if spans.load_bytes(length, &mut run) {
            let whole =
                all.iter().find(|p| p.holds(&(address..address + run.len() as u64))).expect("bytes of one region");
            assert_eq!(
                run,
                whole.bytes[(address - whole.base) as usize..][..run.len()],
                "{} bytes at {address:#x}",
                run.len()
            );
        }
    }
}

#[test]
fn accesses_by_every_way_are_plain_ones_at_every_address() {
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut memory = Memory::new();
        let mut all: Vec<Plain> = Vec::new();
        // Regions side by side, in the same part of the address space and 4 GiB farther; some shorter than an access.
        for base in [0x1_0000u64, 0x2000_0000, 0x2000_0040, 0x1_2000_0000] {
            let length = [64, 7, 40, 8][chance.usize(..4)].min(64);
            let from = base + chance.u64(..length);
            let writable = [0..0, base..base + length, from..base + length, base..from][chance.usize(..4)].clone();
            let executable = if base == 0x1_0000 { base..base + length } else { 0..0 };
            memory.add_program(base, length, writable.clone(), executable.clone()).unwrap();
            all.push(Plain { base, bytes: vec![0; length as usize], writable, executable, own: true });
        }
        let watched = all[chance.usize(..4)].base + chance.u64(..16);
        memory.watch(watched);
        let code = all[0].base + chance.u64(..8);
        let code = code..code + chance.u64(1..24);
        memory.spans().decoded(code.clone());
        every_address::<1>(&mut memory, &mut all, &code, watched, &mut chance);
        every_address::<2>(&mut memory, &mut all, &code, watched, &mut chance);
        every_address::<4>(&mut memory, &mut all, &code, watched, &mut chance);
        every_address::<8>(&mut memory, &mut all, &code, watched, &mut chance);
        // Decoded code that is forgotten may be written without notice.
        memory.spans().forget_decoded();
        every_address::<4>(&mut memory, &mut all, &(0..0), watched, &mut chance);
    }
}
