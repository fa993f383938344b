//! Tests of page tables, compared with a model that represents pages as ranges of addresses with permissions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// End of physical memory: no memory is at this address or beyond.
const END: u64 = 1 << 32;

#[derive(Default)]
struct Memory {
    entries: BTreeMap<u64, u64>,
    read_only: bool,
}

impl PageTables for Memory {
    fn entry(&mut self, address: u64, _bytes: u64) -> Option<u64> {
        (address < END).then(|| self.entries.get(&address).copied().unwrap_or(0))
    }

    fn set_entry(&mut self, address: u64, _bytes: u64, value: u64) -> Option<()> {
        (!self.read_only).then(|| self.entries.insert(address, value)).map(|_| ())
    }
}

/// A page of the model: its number, its physical address and its flags; `level` gives its size.
#[derive(Clone, Copy, Debug)]
struct Page {
    level: u32,
    number: u64,
    physical: u64,
    flags: u64,
}

/// Enters a page in the tables under `root`; returns whether its entry was free.
fn map(memory: &mut Memory, table: PageTableFormat, root: u64, next: &mut u64, page: Page) -> bool {
    let bytes = table.entry_bytes();
    let mut at = root;
    for level in (page.level..table.levels).rev() {
        let index = (page.number >> ((level - page.level) * table.level_bits)) & ((1 << table.level_bits) - 1);
        let entry = memory.entries.entry(at + index * bytes).or_insert(0);
        if level == page.level {
            let free = *entry == 0;
            if free {
                *entry = page.physical >> 12 << 10 | page.flags;
            }
            return free;
        }
        if *entry == 0 {
            *next += 4096;
            *entry = *next >> 12 << 10 | VALID;
        } else if *entry & (READ | WRITE | EXECUTE) != 0 {
            return false;
        }
        at = *entry >> 10 << 12;
    }
    false
}

fn tables() -> impl Strategy<Value = PageTableFormat> {
    prop_oneof![Just(PageTableFormat::SV32), (8u64..11).prop_map(|mode| PageTableFormat::of_mode(mode).unwrap())]
}

/// Returns the result that the specification defines for an access within a page, or without a page.
fn model(page: Option<&Page>, pages: &PageTranslation, access: AccessKind) -> Result<(), WalkFailure> {
    let flags = page.ok_or(WalkFailure::Page)?.flags;
    let has = |flag: u64| flags & flag != 0;
    let user = if pages.user { has(USER) } else { !has(USER) || pages.sum && access != AccessKind::Fetch };
    let right = match access {
        AccessKind::Load => has(READ) || pages.mxr && has(EXECUTE),
        AccessKind::Store => has(WRITE),
        AccessKind::Fetch => has(EXECUTE),
    };
    (user && right && has(VALID)).then_some(()).ok_or(WalkFailure::Page)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn addresses_are_in_the_pages_that_were_mapped(
        table in tables(),
        wanted in prop::collection::vec((0u32..5, 0u64..6, 0u64..1 << 20, 0u64..256), 1..12),
        (user, sum, mxr) in any::<(bool, bool, bool)>(),
        tries in prop::collection::vec((0usize..12, 0u64..u64::MAX, 0u8..3, any::<bool>()), 1..40),
    ) {
        let mut memory = Memory::default();
        let (root, mut next) = (1 << 20, 1 << 20);
        let mut mapped: Vec<Page> = Vec::new();
        for (level, number, physical, flags) in wanted {
            let level = level % table.levels;
            // Page numbers at the lower and at the upper end of the address space, next to each other.
            let numbers = 1u64 << ((table.levels - level) * table.level_bits);
            let number = if number < 3 { number } else { numbers - 1 - (number - 3) };
            let size_bits = PAGE_BITS + level * table.level_bits;
            // The page is valid and readable: a page without rights, or writable but not readable, is another test's
            // case.
            let flags = flags & !0x20 | VALID | READ;
            let page = Page { level, number, physical: physical << size_bits & ((1 << 34) - 1), flags };
            if map(&mut memory, table, root, &mut next, page) {
                mapped.push(page);
            }
        }
        let bits = table.levels * table.level_bits + PAGE_BITS;
        let pages = PageTranslation { table, root, user, sum, mxr };
        for (which, offset, access, outside) in tries {
            let access = [AccessKind::Load, AccessKind::Store, AccessKind::Fetch][access as usize];
            let page = mapped[which % mapped.len()];
            let size_bits = PAGE_BITS + page.level * table.level_bits;
            let mut address = (page.number << size_bits) + (offset & ((1 << size_bits) - 1));
            if outside {
                address = address.wrapping_add(1 << size_bits) & ((1 << bits) - 1);
            }
            // Entries of pages and of tables exclude each other, so at most one page contains the address.
            let there = mapped.iter().find(|p| {
                address >> (PAGE_BITS + p.level * table.level_bits) == p.number
            });
            let signed = ((address as i64) << (64 - bits) >> (64 - bits)) as u64;
            let given = if table == PageTableFormat::SV32 { address } else { signed };
            let found = pages.translate(given, access, &mut memory);
            let expected = model(there, &pages, access).map(|()| {
                let p = there.unwrap();
                p.physical | address & ((1 << (PAGE_BITS + p.level * table.level_bits)) - 1)
            });
            prop_assert_eq!(found, expected, "{:#x} {:?} in {:?}", given, access, there);
            if table.levels == 3 {
                prop_assert_eq!(pages.translate(given ^ 1 << 63, access, &mut memory), Err(WalkFailure::Page));
            }
        }
    }
}

/// Makes an access in supervisor mode to a page of Sv39 at address 0 whose entry is `entry`; returns its result, and
/// the entry after it.
fn one(entry: u64, access: AccessKind) -> (Result<u64, WalkFailure>, u64) {
    let mut memory = Memory::default();
    memory.entries.extend([(0x1000, 2 << 10 | VALID), (0x2000, 3 << 10 | VALID), (0x3000, entry)]);
    let pages = PageTranslation {
        table: PageTableFormat::of_mode(8).unwrap(),
        root: 0x1000,
        user: false,
        sum: false,
        mxr: false,
    };
    let found = pages.translate(0x123, access, &mut memory);
    (found, memory.entries[&0x3000])
}

#[test]
fn use_is_noted() {
    let entry = 5 << 10 | VALID | READ | WRITE | EXECUTE;
    assert_eq!(one(entry, AccessKind::Load), (Ok(0x5123), entry | ACCESSED));
    assert_eq!(one(entry, AccessKind::Fetch), (Ok(0x5123), entry | ACCESSED));
    assert_eq!(one(entry, AccessKind::Store), (Ok(0x5123), entry | ACCESSED | DIRTY));
    // An access that is refused does not set the bit.
    assert_eq!(one(entry & !WRITE, AccessKind::Store), (Err(WalkFailure::Page), entry & !WRITE));
}

#[test]
fn entries_that_mean_nothing_are_refused() {
    let page = 5 << 10 | VALID | READ | WRITE | EXECUTE;
    for entry in [page & !VALID, page & !READ, page & !READ & !EXECUTE, page | 1 << 54, page | 1 << 61, page | 1 << 63]
    {
        assert_eq!(one(entry, AccessKind::Fetch).0, Err(WalkFailure::Page), "{entry:#x}");
    }
    // The lowest level has no tables below it, and a table has no permissions.
    assert_eq!(one(5 << 10 | VALID, AccessKind::Load).0, Err(WalkFailure::Page));
    let pages = PageTranslation {
        table: PageTableFormat::of_mode(8).unwrap(),
        root: 0x1000,
        user: false,
        sum: false,
        mxr: false,
    };
    for flag in [USER, ACCESSED, DIRTY] {
        let mut memory = Memory::default();
        memory.entries.extend([(0x1000, 2 << 10 | VALID | flag), (0x2000, 3 << 10 | VALID), (0x3000, page)]);
        assert_eq!(pages.translate(0, AccessKind::Load, &mut memory), Err(WalkFailure::Page), "{flag:#x}");
    }
    // A large page begins at a multiple of its size.
    let mut memory = Memory::default();
    memory.entries.extend([
        (0x1000, 2 << 10 | VALID),
        (0x2000, 1 << 10 | VALID | READ),
        (0x2008, 512 << 10 | VALID | READ),
    ]);
    assert_eq!(pages.translate(0, AccessKind::Load, &mut memory), Err(WalkFailure::Page));
    assert_eq!(pages.translate(0x20_1234, AccessKind::Load, &mut memory), Ok(0x20_1234));
}

#[test]
fn tables_that_cannot_be_reached_are_access_faults() {
    let table = PageTableFormat::of_mode(8).unwrap();
    let pages = PageTranslation { table, root: END, user: false, sum: false, mxr: false };
    assert_eq!(pages.translate(0, AccessKind::Load, &mut Memory::default()), Err(WalkFailure::Access));
    let mut memory = Memory { read_only: true, ..Memory::default() };
    memory.entries.extend([(0x1000, VALID | READ), (0x1008, VALID | READ | ACCESSED)]);
    let pages = PageTranslation { root: 0x1000, ..pages };
    assert_eq!(pages.translate(5, AccessKind::Load, &mut memory), Err(WalkFailure::Access));
    assert_eq!(pages.translate(1 << 30, AccessKind::Load, &mut memory), Ok(0));
}

#[test]
fn four_byte_tables_reach_beyond_four_gibibytes() {
    let mut memory = Memory::default();
    memory.entries.insert(0x1000 + 4 * 1023, 0x3f_fc00 << 10 | VALID | READ);
    let pages = PageTranslation { table: PageTableFormat::SV32, root: 0x1000, user: false, sum: false, mxr: false };
    assert_eq!(pages.translate(0xffff_ffff, AccessKind::Load, &mut memory), Ok(0x3_ffff_ffff));
}
