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
