//! Promise: vector loads and stores move what a loop over single elements moves, up to the element that faults, and a
//! meter learns of exactly the memory that they access.

use super::lanes::PlainVectors;
use super::plain::PlainRegion;
use super::vectors::{bring, found, random};
use super::*;
use crate::isa::{Format, Instruction, Row, TABLE, decode32};
use crate::meter::MeterAnswer;
use crate::work::{VectorWork, VectorWorkKind};

/// Windows beside the program's memory: base, bytes, and whether they may be written. The third begins where the second
/// ends.
const WINDOWS: [(u64, usize, bool); 3] = [(0x2000_0000, 150, false), (0x2400_0000, 301, true), (0x2400_012d, 64, true)];

/// A meter that keeps the work of the last vector instruction.
#[derive(Debug, Default)]
struct LastWork(Option<VectorWork>);

impl Meter for LastWork {
    const VECTORS: bool = true;

    fn vector(&mut self, _index: u32, work: &VectorWork) -> MeterAnswer {
        self.0 = Some(work.clone());
        MeterAnswer::Proceed
    }
}

/// An access as the loop makes it.
struct PlainAccess {
    store: bool,
    /// Bits of each element in memory, and of each index of an indexed access.
    eew: u32,
    index: u32,
    indexed: bool,
    strided: bool,
    fault_first: bool,
    /// Fields of a segment, the registers from one to the next, and the number of elements.
    fields: u8,
    apart: u8,
    count: usize,
}

impl PlainAccess {
    /// Returns the access of an instruction; `None` if it is not legal for these vectors.
    fn of(op: &Instruction, plain: &PlainVectors, bits: u32) -> Option<Self> {
        let name = op.row().name;
        let digits: String =
            name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        let (width, log) = (digits.parse::<u32>().unwrap_or(8), |bits: u32| bits.trailing_zeros() as i32);
        let whole = name.as_bytes()[2].is_ascii_digit();
        let mask = matches!(name, "vlm.v" | "vsm.v");
        let indexed = op.row().format == Format::VectorIndexed;
        let mut access = Self {
            store: name.starts_with("vs"),
            eew: if indexed { plain.sew } else { width },
            index: width,
            indexed,
            strided: op.row().format == Format::VectorStrided,
            fault_first: name.ends_with("ff.v"),
            fields: op.rs3 + 1,
            apart: 1,
            count: plain.vl,
        };
        if whole {
            let registers = usize::from(name.as_bytes()[2] - b'0');
            let each = name
                .rfind('e')
                .filter(|_| !access.store)
                .map_or(8, |at| name[at + 1..].trim_end_matches(".v").parse().expect("a width"));
            (access.eew, access.count) = (each, registers * plain.vlenb * 8 / each as usize);
            return Some(access);
        }
        if mask {
            (access.eew, access.count) = (8, plain.vl.div_ceil(8));
            return Some(access);
        }
        let emul = plain.lmul + log(access.eew) - log(plain.sew);
        let of_index = plain.lmul + log(width) - log(plain.sew);
        let range = -3..=3;
        access.apart = 1 << emul.max(0);
        let legal = range.contains(&emul)
            && access.apart * access.fields <= 8
            && (!indexed || range.contains(&of_index) && (bits == 64 || width < 64));
        legal.then_some(access)
    }

    fn address(&self, op: &Instruction, plain: &PlainVectors, [base, stride]: [u64; 2], i: usize) -> u64 {
        let each = u64::from(self.eew / 8);
        base.wrapping_add(match () {
            () if self.strided => stride.wrapping_mul(i as u64),
            () if self.indexed => plain.get(op.rs2, i, self.index) as u64,
            () => i as u64 * each * u64::from(self.fields),
        })
    }

    /// Moves the elements one by one; the error is the address of the access that faults.
    fn execute(
        &self,
        op: &Instruction,
        plain: &mut PlainVectors,
        memory: &mut [PlainRegion],
        at: [u64; 2],
        mask: u64,
    ) -> Result<(), u64> {
        let each = u64::from(self.eew / 8);
        for i in plain.vstart..self.count {
            if op.rm == 0 && op.row().mask >> 25 & 1 == 0 && !plain.bit(0, i) {
                continue;
            }
            for field in 0..self.fields {
                let address = self.address(op, plain, at, i).wrapping_add(u64::from(field) * each) & mask;
                let register = op.rd + field * self.apart;
                let holds = |r: &&mut PlainRegion| {
                    let own = if self.store { r.writable.clone() } else { r.base..r.base + r.bytes.len() as u64 };
                    own.start <= address && address.checked_add(each).is_some_and(|end| end <= own.end)
                };
                let Some(region) = memory.iter_mut().find(holds) else {
                    if self.fault_first && i > 0 {
                        (plain.vl, plain.vstart) = (i, 0);
                        return Ok(());
                    }
                    plain.vstart = i;
                    return Err(address);
                };
                let from = (address - region.base) as usize;
                let bytes = &mut region.bytes[from..from + each as usize];
                if self.store {
                    let value = plain.get(register, i, self.eew);
                    bytes.iter_mut().enumerate().for_each(|(n, byte)| *byte = (value >> (8 * n)) as u8);
                } else {
                    let value = bytes.iter().rev().fold(0, |all, byte| all << 8 | i128::from(*byte));
                    plain.set(register, i, self.eew, value);
                }
            }
        }
        plain.vstart = 0;
        Ok(())
    }

    /// Checks the work that a meter was told of.
    fn check(&self, work: &VectorWork, op: &Instruction, plain: &PlainVectors, at: [u64; 2], mask: u64, place: &str) {
        let left: Vec<usize> = (plain.vstart..self.count).collect();
        let (fields, each) = (u64::from(self.fields), u64::from(self.eew / 8));
        assert_eq!(work.elements, left.len() as u64 * fields, "{place}");
        assert_eq!(
            (work.datapath_bits, work.value_bits),
            (work.elements * 8 * each, work.elements * 8 * each),
            "{place}"
        );
        let scattered = self.strided || self.indexed;
        let kind = if scattered { VectorWorkKind::Scattered } else { VectorWorkKind::Consecutive };
        assert_eq!(work.kind, kind, "{place}");
        let active = |i: &&usize| op.rm == 1 || plain.bit(0, **i);
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        if scattered {
            pieces.extend(left.iter().filter(active).map(|i| (self.address(op, plain, at, *i) & mask, each * fields)));
        } else if let Some(first) = left.first() {
            pieces.push((self.address(op, plain, at, *first) & mask, each * fields * left.len() as u64));
        }
        let told: Vec<(u64, u64)> = work.memory.iter().map(|m| (m.address, m.bytes)).collect();
        assert_eq!(told, pieces, "{place}");
        assert!(work.memory.iter().all(|m| m.store == self.store && m.stream.is_none()), "{place}");
    }
}

fn memories(chance: &mut fastrand::Rng) -> Vec<PlainRegion> {
    let mut own = vec![0; (END - CODE) as usize];
    chance.fill(&mut own[(DATA - CODE) as usize..]);
    let mut all = vec![PlainRegion { base: CODE, bytes: own, writable: DATA..END, executable: CODE..DATA }];
    for (base, length, writes) in WINDOWS {
        let mut bytes = vec![0; length];
        chance.fill(&mut bytes);
        let writable = if writes { base..base + length as u64 } else { 0..0 };
        all.push(PlainRegion { base, bytes, writable, executable: 0..0 });
    }
    all
}

/// Executes one random access of a row on a hart and by the loop; returns whether it was legal, and whether it
/// faulted.
fn case<X: Xlen>(row: &'static Row, hart: &mut Hart<X, LastWork>, seed: u64) -> Option<bool> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let (mut plain, vtype) = random(hart.vlen(), &mut chance);
    let mut regions = memories(&mut chance);
    let mut word = row.bits | chance.u32(..) & !row.mask;
    if row.mask >> 29 == 0 && chance.bool() {
        word &= !(7 << 29);
    }
    let mut op = decode32(word, X::BITS, Extensions::ALL).filter(|op| op.code == row.code).expect(row.name);
    (op.rd, op.rs1) = (8, 10);
    op.rs2 = match row.format {
        Format::VectorStrided => 11,
        Format::VectorIndexed => 16,
        _ => op.rs2,
    };
    let access = PlainAccess::of(&op, &plain, X::BITS)?;
    if chance.u8(..4) == 0 {
        plain.vstart = chance.usize(..=access.count);
    }
    if access.indexed {
        // Small indexes, most of them, so that elements are where memory is.
        let indexes = (8 * 8 * plain.vlenb / access.index as usize).min(plain.vl);
        (0..indexes).for_each(|i| plain.set(16, i, access.index, i128::from(chance.u8(..)) & 0x3f));
    }
    let region = &regions[chance.usize(..regions.len())];
    let from = if region.base == CODE { DATA - CODE } else { 0 };
    let edge = region.base + if chance.bool() { from } else { region.bytes.len() as u64 };
    let base = (edge + chance.u64(..8)).wrapping_sub(chance.u64(..200));
    let stride = [0, 1, -1, 8, -3, 17, chance.i64(-64..64), i64::MIN][chance.usize(..8)] as u64;
    let at = [base, X::signed(X::word(stride)) as u64];
    let before = (plain.clone(), regions.clone());
    let mut lent: Vec<Vec<u8>> = regions[1..].iter().map(|r| r.bytes.clone()).collect();
    let (_, mut memory) = program::<X>(&[]);
    memory.get_mut(DATA..END).unwrap().copy_from_slice(&regions[0].bytes[(DATA - CODE) as usize..]);
    let code = encode(&op).to_le_bytes();
    memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&code);
    regions[0].bytes[..4].copy_from_slice(&code);
    for ((base, _, writes), bytes) in WINDOWS.iter().zip(&mut lent) {
        if *writes { memory.lend_mut(*base, bytes).unwrap() } else { memory.lend(*base, bytes).unwrap() }
    }
    bring(hart.state.vector.as_mut().unwrap(), &plain, vtype);
    hart.set_x(10, at[0]);
    hart.set_x(11, at[1]);
    hart.set_pc(CODE);
    let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
    let mask = if X::BITS == 32 { u64::from(u32::MAX) } else { u64::MAX };
    let place = format!("seed {seed}, RV{}: {} at {at:x?}, {:?}", X::BITS, crate::isa::disassemble(&op), before.0);
    let work = hart.meter_mut().0.take().expect("work");
    access.check(&work, &op, &plain, at, mask, &place);
    let done = access.execute(&op, &mut plain, &mut regions, at, mask);
    let cause = if access.store { Cause::StoreAccess } else { Cause::LoadAccess };
    let wanted = match done {
        Ok(()) => Stop::InstructionLimit,
        Err(value) => Stop::Trap(Trap { cause, pc: CODE, value }),
    };
    assert_eq!(stop, wanted, "{place}");
    assert_eq!(found(hart, &plain), plain, "{place}");
    for region in &regions {
        let all = region.base..region.base + region.bytes.len() as u64;
        assert_eq!(memory.get(all).unwrap(), region.bytes, "{place}: memory from {:#x} on", region.base);
    }
    Some(done.is_err())
}

#[test]
fn vector_accesses_move_what_a_loop_over_elements_moves() {
    let rounds = if std::env::var_os("NANDARRAY_DEEP").is_some() { 2_000 } else { 40 };
    let rows: Vec<&Row> = TABLE.iter().filter(|row| row.format.vector_memory()).collect();
    for vlen in [128, 256] {
        let has = Extensions::PROGRAM_VECTOR.with_vlen(vlen);
        let mut wide = Hart::<Rv64, _>::with_meter(HartMode::Program, has, LastWork::default());
        let mut narrow = Hart::<Rv32, _>::with_meter(HartMode::Program, has, LastWork::default());
        for (n, row) in rows.iter().enumerate() {
            let (mut whole, mut faulted) = (0, 0);
            for round in 0..rounds {
                let seed = (n as u64) << 32 | u64::from(vlen) << 16 | round;
                let done = if round % 2 == 0 { case(row, &mut wide, seed) } else { case(row, &mut narrow, seed) };
                whole += usize::from(done == Some(false));
                faulted += usize::from(done == Some(true));
            }
            assert!(whole > 0, "{}: {whole} accesses succeeded, {faulted} faulted", row.name);
        }
    }
}
