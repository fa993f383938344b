//! Tests of packed streams and variable-width vectors against lists of bits and of numbers.

use super::*;
use crate::isa::{Code, Extensions, TABLE};
use crate::memory::Memory;
use crate::vector::VectorUnit;

const BASE: u64 = 0x1000;
const WIDTHS: u64 = 0x3000;
const TABLE_AT: u64 = 0x5000;
const BYTES: u64 = 600;

fn memory(chance: &mut fastrand::Rng) -> Memory<'static> {
    let mut memory = Memory::new();
    for (base, bytes) in [(BASE, BYTES), (WIDTHS, 200), (TABLE_AT, 8 + 16 * 64)] {
        memory.add(base, bytes).unwrap();
        chance.fill(memory.get_mut(base..base + bytes).unwrap());
    }
    memory
}

fn bits<'a>(memory: &'a mut Memory<'_>) -> PackedBits<'a> {
    PackedBits { spans: memory.spans(), mask: u64::MAX }
}

fn all_bits(memory: &Memory<'_>) -> Vec<bool> {
    let bytes = memory.get(BASE..BASE + BYTES).unwrap();
    bytes.iter().flat_map(|byte| (0..8).map(move |n| byte >> n & 1 == 1)).collect()
}

fn number(bits: &[bool]) -> u64 {
    bits.iter().rev().fold(0, |all, bit| all << 1 | u64::from(*bit))
}

/// The bits of a number in two's complement, counted one width after the other.
fn plain_width(value: i64) -> u32 {
    let holds = |bits: u32| i128::from(value) >= -(1i128 << (bits - 1)) && i128::from(value) < 1i128 << (bits - 1);
    if value == 0 { 0 } else { (1..=64).find(|bits| holds(*bits)).unwrap() }
}

fn vectors(vlen: u32) -> Box<VectorUnit> {
    VectorUnit::new(Extensions::PROGRAM_VECTOR.with_vlen(vlen)).unwrap()
}

fn value(chance: &mut fastrand::Rng) -> i64 {
    let most = chance.u32(..64);
    match chance.u8(..4) {
        0 => [0, 1, -1, i64::MIN, i64::MAX][chance.usize(..5)],
        _ => chance.i64(..) >> most,
    }
}

#[test]
fn bits_are_read_and_written_where_they_lie() {
    for seed in 0..4_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut memory = memory(&mut chance);
        let (at, count, new) = (chance.u64(..8 * BYTES + 20), chance.u32(..=64), chance.u64(..));
        let (before, end) = (all_bits(&memory), at + u64::from(count));
        let outside = VarveTrap::Fault(Fault::at(BASE + BYTES.max(at / 8)), AccessKind::Load);
        let inside = end <= 8 * BYTES;
        let read = bits(&mut memory).get(BASE, at, count);
        if inside {
            assert_eq!(read, Ok(number(&before[at as usize..end as usize])), "seed {seed}: {count} bits from {at} on");
        } else if count > 0 {
            assert_eq!(read, Err(outside), "seed {seed}: {count} bits from {at} on");
        }
        let written = bits(&mut memory).put(BASE, at, count, new);
        assert_eq!(written.is_ok(), inside || count == 0, "seed {seed}: {count} bits from {at} on");
        // Bits before stay; those after the last one are zero up to the end of its byte.
        let mut wanted = before;
        if count > 0 {
            for n in at..end.next_multiple_of(8).min(8 * BYTES) {
                wanted[n as usize] = n < end && new >> (n - at) & 1 == 1;
            }
        }
        assert!(all_bits(&memory) == wanted, "seed {seed}: {count} bits from {at} on");
    }
}

/// A stream as the test writes it: its kind, sign, and the bits and the code of each value.
struct PlainStream {
    kind: Describe,
    signed: bool,
    /// Width of all values of a fixed stream.
    width: u32,
    /// Codes of a Huffman stream, highest bit first, with their values.
    codes: Vec<(Vec<bool>, i64)>,
}

impl PlainStream {
    fn random(chance: &mut fastrand::Rng) -> Self {
        let kind = [Describe::Fixed, Describe::Variable, Describe::Huffman][chance.usize(..3)];
        let mut codes: Vec<(Vec<bool>, i64)> = vec![(vec![], 0)];
        for n in 0..chance.usize(1..30) {
            // A code that is split makes two, of which neither begins the other.
            let (code, kept) = codes.swap_remove(chance.usize(..codes.len()));
            let split = |bit: bool| code.iter().copied().chain([bit]).collect::<Vec<bool>>();
            if code.len() < 32 {
                codes.extend([(split(false), kept), (split(true), value(chance).wrapping_add(n as i64))]);
            } else {
                codes.push((code, kept));
            }
        }
        Self { kind, signed: chance.bool(), width: chance.u32(1..=64), codes }
    }

    /// Returns the bits of a value in memory, the first one first; `None` if the stream cannot hold it.
    fn bits_of(&self, value: i64) -> Option<Vec<bool>> {
        let low = |bits: u32| (0..bits).map(|n| value >> n.min(63) & 1 == 1).collect::<Vec<bool>>();
        let unsigned = (0..=64).find(|bits| *bits == 64 || value as u64 >> bits == 0).unwrap();
        match self.kind {
            Describe::Fixed if self.signed => (plain_width(value) <= self.width).then(|| low(self.width)),
            Describe::Fixed => (unsigned <= self.width).then(|| low(self.width)),
            Describe::Variable => Some(low(if self.signed { plain_width(value) } else { unsigned })),
            Describe::Huffman => {
                let known = self.codes.iter().filter(|(_, of)| *of == value);
                known.map(|(code, _)| code.clone()).min_by_key(|code| (code.len(), code.clone()))
            }
        }
    }

    /// A value that the stream can hold, most of the time.
    fn value(&self, chance: &mut fastrand::Rng) -> i64 {
        let any = value(chance);
        match self.kind {
            _ if chance.u8(..60) == 0 => any,
            Describe::Fixed if self.signed => any >> (64 - self.width),
            Describe::Fixed => (any as u64 >> (64 - self.width)) as i64,
            Describe::Variable => any,
            Describe::Huffman => self.codes[chance.usize(..self.codes.len())].1,
        }
    }

    /// Describes the stream to a unit; writes the table of codes, if there is one.
    fn describe(&self, unit: &mut VarveUnit, output: bool, count: u64, memory: &mut Memory<'_>) -> VarveResult {
        let mut table = (self.codes.len() as u64).to_le_bytes().to_vec();
        for (code, value) in &self.codes {
            table.extend(value.to_le_bytes());
            table.extend((number(&code.iter().rev().copied().collect::<Vec<_>>()) as u32).to_le_bytes());
            table.extend((code.len() as u32).to_le_bytes());
        }
        memory.get_mut(TABLE_AT..TABLE_AT + table.len() as u64).unwrap().copy_from_slice(&table);
        let (count, detail) = match self.kind {
            Describe::Fixed => (count, u64::from(self.width) | if self.signed { 128 } else { 0 }),
            Describe::Variable => (count | u64::from(self.signed) << 63, WIDTHS),
            Describe::Huffman => (count, TABLE_AT),
        };
        describe(unit, 5, self.kind, output, [BASE, count, detail], &mut bits(memory))
    }
}

#[test]
fn values_that_were_packed_are_read_again_in_pieces_of_any_size() {
    for seed in 0..1_500 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let stream = PlainStream::random(&mut chance);
        if stream.codes.iter().any(|(code, _)| code.is_empty()) {
            continue;
        }
        let (mut memory, mut unit) = (memory(&mut chance), VarveUnit::new(256, 8));
        let most = chance.u64(1..60);
        stream.describe(&mut unit, true, most, &mut memory).unwrap();
        let (mut values, mut wanted) = (Vec::new(), Vec::new());
        loop {
            let next: Vec<i64> = (0..chance.usize(..9)).map(|_| stream.value(&mut chance)).collect();
            let work = pack_work(&unit, &next, 5, None, 0, u64::MAX);
            let packed = pack(&mut unit, &next, 5, None, &mut bits(&mut memory));
            let fits =
                next.iter().take((most as usize).saturating_sub(values.len())).all(|v| stream.bits_of(*v).is_some());
            if values.len() + next.len() > most as usize || !fits {
                let cause = if fits { Cause::StreamFull } else { Cause::StreamWidth };
                assert_eq!(packed, Err(VarveTrap::Stream(cause, 5)), "seed {seed}: {next:?}");
                break;
            }
            let before = wanted.len();
            wanted.extend(next.iter().flat_map(|v| stream.bits_of(*v).unwrap()));
            assert_eq!((packed, work.elements), (Ok(next.len() as u64), next.len() as u64), "seed {seed}");
            assert_eq!(work.packed_bits, (wanted.len() - before) as u64, "seed {seed}");
            values.extend(next);
        }
        assert_eq!(unit.end(5, true), Ok(wanted.len() as u64), "seed {seed}");
        // A failed piece may have stored bits behind those that count.
        assert_eq!(all_bits(&memory)[..wanted.len()], wanted, "seed {seed}: {values:?}");
        read_again(&stream, &values, &mut unit, &mut memory, &mut chance, seed);
    }
}

/// Reads the values of a stream by all instructions that read, and checks them and the places of the stream.
fn read_again(
    stream: &PlainStream,
    values: &[i64],
    unit: &mut VarveUnit,
    memory: &mut Memory<'_>,
    chance: &mut fastrand::Rng,
    seed: u64,
) {
    stream.describe(unit, false, values.len() as u64, memory).unwrap();
    let mut vectors = vectors(256);
    let mut at = 0;
    while at < values.len() {
        let place = format!("seed {seed}, value {at} of {values:?}");
        let (left, count) = (&values[at..], chance.u64(1..12));
        match chance.u8(..3) {
            0 => {
                let work = vunpack_work(unit, 5, 0, None, &mut bits(memory));
                vunpack(unit, 3, 5, 0, None, &mut bits(memory)).unwrap();
                let mut room = 256;
                let fits = |v: &&i64| {
                    room -= plain_width(**v) as i64;
                    room >= 0
                };
                let wanted: Vec<i64> = left.iter().take(64).take_while(fits).copied().collect();
                assert_eq!(unit.vector(3).values, wanted, "{place}");
                let packed: usize = wanted.iter().map(|v| stream.bits_of(*v).unwrap().len()).sum();
                assert_eq!((work.elements, work.packed_bits), (wanted.len() as u64, packed as u64), "{place}");
                let consumed = unit.consume(5, wanted.len() as u64, &mut bits(memory));
                assert_eq!(consumed, Ok(()), "{place}");
                at += wanted.len();
            }
            1 => {
                vectors.configure(3 << 3 | 1, Some(count));
                let wanted = &left[..left.len().min(vectors.vl)];
                let work = unpack_work(unit, &vectors, 4, 5, &mut bits(memory));
                unpack(unit, &mut vectors, 4, 5, &mut bits(memory)).unwrap();
                assert_eq!(vectors.elements(4).unwrap(), wanted, "{place}");
                assert_eq!(work.elements, wanted.len() as u64, "{place}");
                at += wanted.len();
            }
            _ => {
                let there = count <= left.len() as u64;
                let wanted = if there { Ok(()) } else { Err(VarveTrap::Stream(Cause::StreamEnd, 5)) };
                assert_eq!(unit.consume(5, count, &mut bits(memory)), wanted, "{place}");
                at += if there { count as usize } else { 0 };
            }
        }
    }
    vunpack(unit, 3, 5, 0, None, &mut bits(memory)).unwrap();
    assert_eq!((unit.vector(3).values.len(), unit.end(5, false)), (0, Ok(0)), "seed {seed}");
    assert_eq!(unit.end(5, false), Err(VarveTrap::Illegal), "seed {seed}: a stream ends once");
}

#[test]
fn a_strip_ends_before_a_value_that_is_wide_masked_values_are_zero() {
    let mut chance = fastrand::Rng::with_seed(3);
    let mut memory = memory(&mut chance);
    let mut unit = VarveUnit::new(128, 8);
    describe(&mut unit, 5, Describe::Fixed, true, [BASE, 9, 128 | 12], &mut bits(&mut memory)).unwrap();
    pack(&mut unit, &[5, -3, 100, 7, -2048], 5, None, &mut bits(&mut memory)).unwrap();
    let strip = |unit: &mut VarveUnit, memory: &mut Memory<'_>, most: u64, mask: Option<&VectorUnit>| {
        describe(unit, 5, Describe::Fixed, false, [BASE, 5, 128 | 12], &mut bits(memory)).unwrap();
        vunpack(unit, 1, 5, most, mask, &mut bits(memory)).map(|()| unit.vector(1).clone())
    };
    for (most, wanted) in [(0, 5), (12, 5), (11, 4), (8, 4), (7, 2), (4, 2)] {
        let found = strip(&mut unit, &mut memory, most, None).unwrap();
        assert_eq!(found.values, [5, -3, 100, 7, -2048][..wanted], "at most {most} bits");
        assert_eq!(found.most_bits, if most == 0 { 64 } else { most as u32 });
    }
    let wrong = Err(VarveTrap::Stream(Cause::StreamWidth, 5));
    for most in [3, 1, 65, u64::MAX] {
        assert_eq!(strip(&mut unit, &mut memory, most, None).map(|v| v.values), wrong.clone(), "at most {most} bits");
    }
    let mut mask = vectors(128);
    mask.put_mask(0, &[false, true, false, true]);
    assert_eq!(strip(&mut unit, &mut memory, 4, Some(&mask)).unwrap().values, [0, -3, 0, 7, 0]);
}

#[test]
fn descriptions_and_tables_that_mean_nothing_are_refused() {
    let mut chance = fastrand::Rng::with_seed(4);
    let mut memory = memory(&mut chance);
    let mut unit = VarveUnit::new(128, 8);
    for (detail, fine) in
        [(0, false), (1, true), (64, true), (65, false), (127, false), (128, false), (192, true), (256 | 8, false)]
    {
        let done = describe(&mut unit, 7, Describe::Fixed, false, [BASE, 1, detail], &mut bits(&mut memory));
        let wanted = if fine { Ok(()) } else { Err(VarveTrap::Stream(Cause::StreamWidth, 7)) };
        assert_eq!(done, wanted, "width {detail}");
    }
    let mut table = |codes: &[(u32, u32)], count: u64| {
        let mut bytes = count.to_le_bytes().to_vec();
        for (n, (code, length)) in codes.iter().enumerate() {
            bytes.extend((n as u64).to_le_bytes().into_iter().chain(code.to_le_bytes()).chain(length.to_le_bytes()));
        }
        memory.get_mut(TABLE_AT..TABLE_AT + bytes.len() as u64).unwrap().copy_from_slice(&bytes);
        describe(&mut unit, 7, Describe::Huffman, false, [BASE, 1, TABLE_AT], &mut bits(&mut memory))
    };
    let wrong = Err(VarveTrap::Stream(Cause::HuffmanTable, 7));
    assert_eq!(table(&[(0, 1), (2, 2), (6, 3), (7, 3)], 4), Ok(()));
    assert_eq!(table(&[(0xffff_ffff, 32), (0, 1)], 2), Ok(()));
    for (codes, why) in [
        (vec![(0, 1), (1, 2)], "0 begins 01"),
        (vec![(3, 2), (6, 3)], "11 begins 110"),
        (vec![(1, 1), (1, 1)], "one code twice"),
        (vec![(0, 0)], "no bits"),
        (vec![(0, 33)], "33 bits"),
        (vec![(2, 1)], "more bits than the length"),
    ] {
        let count = codes.len() as u64;
        assert_eq!(table(&codes, count), wrong, "{why}");
    }
    assert_eq!(table(&[], 0), wrong);
    assert_eq!(table(&[], 4097), wrong);
    let outside = VarveTrap::Fault(Fault::at(TABLE_AT + 8 + 16 * 64), AccessKind::Load);
    let all: Vec<(u32, u32)> = (0..64).map(|code| (code, 7)).collect();
    assert_eq!(table(&all, 65), Err(outside), "a table that ends where memory ends");
    for output in [false, true] {
        assert_eq!(unit.end(9, output), Err(VarveTrap::Illegal), "a stream that was not described");
    }
    assert_eq!(pack(&mut unit, &[1], 7, None, &mut bits(&mut memory)), Err(VarveTrap::Illegal), "an input is written");
}

/// The datapath bits of an element, by the table of docs/reference/varve.md.
fn datapath(name: &str, a: i64, b: i64) -> u32 {
    let (left, right) = (plain_width(a), plain_width(b));
    match name {
        "add" | "sub" | "div" if left.max(right) > 0 => left.max(right) + 1,
        "mul" => left + right,
        "asr" => left,
        "asl" if a == 0 => 0,
        "asl" => left + (b & 63) as u32,
        _ => left.max(right),
    }
}

fn operation(name: &str, a: i64, b: i64) -> i128 {
    let (x, y) = (i128::from(a), i128::from(b));
    match name {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" if y == 0 => -1,
        "div" => x / y,
        "max" => x.max(y),
        "min" => x.min(y),
        "and" => x & y,
        "bic" => x & !y,
        "eor" => x ^ y,
        "orr" => x | y,
        "cmpeq" => i128::from(x == y),
        "cmpne" => i128::from(x != y),
        "cmplt" => i128::from(x < y),
        "cmple" => i128::from(x <= y),
        "asr" => x >> (b & 63),
        _ => x << (b & 63),
    }
}

#[test]
fn operations_take_as_many_elements_as_the_datapath_and_wrap_their_results() {
    let rows = TABLE
        .iter()
        .filter(|row| row.name.starts_with("varve.") && (row.name.ends_with(".vv") || row.name.ends_with(".vi")));
    for (n, row) in rows.enumerate() {
        let name = row.name.split('.').nth(1).unwrap();
        for round in 0..150 {
            let seed = (n as u64) << 32 | round;
            let mut chance = fastrand::Rng::with_seed(seed);
            let (vlen, align) = (64 << chance.u32(..3), 1 << chance.u32(..7));
            let (mut unit, mut masks) = (VarveUnit::new(vlen, align), vectors(vlen));
            let narrow = chance.u32(..60);
            let mut list = |count: usize| (0..count).map(|_| value(&mut chance) >> narrow).collect::<Vec<i64>>();
            let (left, right) = (list(20), list(17));
            let most = [64, 64, chance.u32(1..=64)][chance.usize(..3)];
            unit.vectors[2] = VariableVector { values: left.clone(), most_bits: most };
            unit.vectors[1] = VariableVector { values: right.clone(), most_bits: 64 };
            let mask: Vec<bool> = (0..vlen).map(|_| chance.bool()).collect();
            masks.put_mask(0, &mask);
            let masked = chance.bool();
            let scalar = row.name.ends_with("i").then(|| chance.i64(-16..16));
            let op = VarveOp { code: row.code, vd: 6, vs1: 1, vs2: 2, scalar, second: 0, masked };
            let place = format!(
                "seed {seed}: {} of {left:?}, {right:?} or {scalar:?}, VLEN {vlen}, w {align}, mb {most}",
                row.name
            );
            let work = operation_work(&unit, &masks, &op);
            operate(&mut unit, &mut masks, &op).unwrap();
            let (mut bits, mut used, mut wanted, mut taken) = (0, 0, Vec::new(), 0);
            let shared = if scalar.is_some() { left.len() } else { left.len().min(right.len()) };
            let mut cut = false;
            for i in 0..shared.min(vlen as usize / 4) {
                let (a, b) = (left[i], scalar.unwrap_or_else(|| right[i]));
                let active = !masked || mask[i];
                bits += if active { datapath(name, a, b).next_multiple_of(align) } else { 0 };
                if bits > vlen {
                    break;
                }
                taken += 1;
                let result = if active { wrap(operation(name, a, b) as i64, most) } else { 0 };
                used += plain_width(result);
                cut |= used > vlen;
                if !cut || name.starts_with("cmp") {
                    wanted.push(result);
                }
            }
            assert_eq!(work.elements, taken, "{place}");
            if name.starts_with("cmp") {
                let on: Vec<bool> = (0..vlen as usize).map(|i| masks.register(6)[i / 8] >> (i % 8) & 1 == 1).collect();
                let holds = |i: usize| {
                    wanted.get(i).is_some_and(|_| {
                        (!masked || mask[i]) && operation(name, left[i], scalar.unwrap_or_else(|| right[i])) == 1
                    })
                };
                assert!((0..vlen as usize).all(|i| on[i] == holds(i)), "{place}: {on:?}");
            } else {
                assert_eq!(unit.vector(6).values, wanted, "{place}");
            }
            assert_eq!(unit.take_num_e(), wanted.len() as u64, "{place}");
            assert_eq!(unit.take_num_e(), u64::MAX, "{place}: it is reset by reading");
        }
    }
}

#[test]
fn lists_of_numbers_end_where_the_datapath_does() {
    let lists = [(Code::VvIndex, 7, -3), (Code::VvIndex, i64::MAX, 1), (Code::VvCpy, 100, 9), (Code::VvDup, 0, 0)];
    for (code, first, second) in lists {
        let (mut unit, mut masks) = (VarveUnit::new(128, 4), vectors(128));
        operate(
            &mut unit,
            &mut masks,
            &VarveOp { code, vd: 6, vs1: 0, vs2: 0, scalar: Some(first), second, masked: false },
        )
        .unwrap();
        let step = if code == Code::VvIndex { second } else { 0 };
        let mut room = 128i64;
        let all = (0..32).map(|n| first.wrapping_add(step.wrapping_mul(n)));
        let fits = |v: &i64| {
            room -= i64::from(plain_width(*v).next_multiple_of(4));
            room >= 0
        };
        assert_eq!(unit.vector(6).values, all.take_while(fits).collect::<Vec<_>>(), "{code:?} {first} {second}");
    }
}
