//! A plain machine: the integer instructions of RV32 and RV64 with M, A, Zba, Zbb and Zbs, as the specification words
//! them.
//!
//! It is written in numbers without a width that are cut to one at the end, chooses operations by their mnemonics, and
//! finds every byte of memory by itself. It decodes each instruction when it executes it, so it has neither blocks nor
//! pairs nor fast ranges.

use crate::isa::{Extension, Extensions, Format, Instruction, decode};
use crate::trap::Cause;

/// The extensions of the plain machine.
pub(super) const EXTENSIONS: Extensions = Extensions::PROGRAM
    .without(Extension::F)
    .without(Extension::D)
    .without(Extension::Zicsr)
    .without(Extension::Zifencei)
    .without(Extension::Stream);

/// A region of the plain machine's memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlainRegion {
    pub(super) base: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) writable: std::ops::Range<u64>,
    pub(super) executable: std::ops::Range<u64>,
}

/// The reason why a plain machine cannot go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlainStop {
    Trap(Cause, u64),
    Returned,
    Called,
}

/// The plain machine: registers hold values of `bits` bits, zero-extended.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) bits: u32,
    pub(super) x: [u64; 32],
    pub(super) pc: u64,
    pub(super) retired: u64,
    pub(super) regions: Vec<PlainRegion>,
    pub(super) reserved: Option<(u64, i128)>,
    /// Address to which the program returns.
    pub(super) home: u64,
}

/// Returns a number modulo `2^bits`, as a register of `bits` bits holds it.
fn cut(value: i128, bits: u32) -> u64 {
    value.rem_euclid(1 << bits) as u64
}

/// Returns the number that the low `bits` bits of a value mean in two's complement.
fn signed(value: i128, bits: u32) -> i128 {
    let low = value.rem_euclid(1 << bits);
    if low >= 1 << (bits - 1) { low - (1 << bits) } else { low }
}

/// Returns the bits of a number, the lowest first.
fn digits(value: i128, bits: u32) -> Vec<bool> {
    (0..bits).map(|n| value.rem_euclid(1 << bits) >> n & 1 == 1).collect()
}

fn number(digits: &[bool]) -> i128 {
    digits.iter().rev().fold(0, |all, bit| 2 * all + i128::from(*bit))
}

/// Computes an operation on two registers (or a register and an immediate) of `bits` bits, by its mnemonic without the
/// letter of its immediate form; `None` if there is no such operation.
fn two(name: &str, a: i128, b: i128, bits: u32) -> Option<i128> {
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    let amount = b.rem_euclid(i128::from(bits));
    let turned = |left: i128| {
        let all = digits(a, bits);
        let turn = |n: usize| all[(n as i128 - left).rem_euclid(i128::from(bits)) as usize];
        number(&(0..bits as usize).map(turn).collect::<Vec<_>>())
    };
    let changed = |change: &dyn Fn(bool) -> bool| {
        let mut all = digits(a, bits);
        all[amount as usize] = change(all[amount as usize]);
        number(&all)
    };
    let bitwise = |f: &dyn Fn(bool, bool) -> bool| {
        number(&digits(a, bits).into_iter().zip(digits(b, bits)).map(|(a, b)| f(a, b)).collect::<Vec<_>>())
    };
    Some(match name {
        "add" => a + b,
        "sub" => a - b,
        "sh1add" | "sh2add" | "sh3add" => a * (1 << (name.as_bytes()[2] - b'0')) + b,
        "sll" => a * (1 << amount),
        "srl" => a.div_euclid(1 << amount),
        "sra" => sa.div_euclid(1 << amount),
        "slt" => i128::from(sa < sb),
        "sltu" => i128::from(a < b),
        "xor" => bitwise(&|a, b| a != b),
        "or" => bitwise(&|a, b| a || b),
        "and" => bitwise(&|a, b| a && b),
        "andn" => bitwise(&|a, b| a && !b),
        "orn" => bitwise(&|a, b| a || !b),
        "xnor" => bitwise(&|a, b| a == b),
        "min" => sa.min(sb),
        "max" => sa.max(sb),
        "minu" => a.min(b),
        "maxu" => a.max(b),
        "rol" => turned(amount),
        "ror" => turned(-amount),
        "bclr" => changed(&|_| false),
        "bset" => changed(&|_| true),
        "binv" => changed(&|bit| !bit),
        "bext" => i128::from(digits(a, bits)[amount as usize]),
        "mul" => product(a, b, bits),
        "mulh" => high(product(sa.abs(), sb.abs(), 2 * bits), (sa < 0) != (sb < 0), bits),
        "mulhsu" => high(product(sa.abs(), b, 2 * bits), sa < 0, bits),
        "mulhu" => high(product(a, b, 2 * bits), false, bits),
        "div" if sb == 0 => -1,
        "div" => sa.abs() / sb.abs() * if (sa < 0) == (sb < 0) { 1 } else { -1 },
        "divu" if b == 0 => -1,
        "divu" => a / b,
        "rem" if sb == 0 => sa,
        "rem" => sa.abs() % sb.abs() * if sa < 0 { -1 } else { 1 },
        "remu" if b == 0 => a,
        "remu" => a % b,
        _ => return None,
    })
}

/// Multiplies as on paper, in two parts of 64 bits: the product of numbers below `2^64` modulo `2^bits`, as bits.
fn product(a: i128, b: i128, bits: u32) -> i128 {
    let (mut low, mut high) = (0u64, 0u64);
    for (n, _) in digits(b, 64).into_iter().enumerate().filter(|(_, bit)| *bit) {
        let a = a as u64;
        let (sum, carry) = low.overflowing_add(a << n);
        low = sum;
        high = high.wrapping_add(if n == 0 { 0 } else { a >> (64 - n) }).wrapping_add(u64::from(carry));
    }
    let all = (u128::from(high) << 64 | u128::from(low)) as i128;
    if bits < 128 { all.rem_euclid(1 << bits) } else { all }
}

/// Returns the upper half of a product of `2 * bits` bits, which is to be negated if `negative`.
fn high(product: i128, negative: bool, bits: u32) -> i128 {
    let whole = product as u128;
    let upper = (whole >> bits) as i128;
    let has_rest = whole & ((1 << bits) - 1) != 0;
    if negative { -upper - i128::from(has_rest) } else { upper }
}

/// Computes an operation on one register of `bits` bits.
fn one(name: &str, a: i128, bits: u32) -> Option<i128> {
    let all = digits(a, bits);
    let bytes: Vec<&[bool]> = all.chunks(8).collect();
    Some(match name {
        "clz" => all.iter().rev().take_while(|bit| !**bit).count() as i128,
        "ctz" => all.iter().take_while(|bit| !**bit).count() as i128,
        "cpop" => all.iter().filter(|bit| **bit).count() as i128,
        "sext.b" => signed(a, 8),
        "sext.h" => signed(a, 16),
        "zext.h" => a.rem_euclid(1 << 16),
        "rev8" => number(&bytes.into_iter().rev().flatten().copied().collect::<Vec<_>>()),
        "orc.b" => number(&bytes.iter().flat_map(|byte| [byte.contains(&true); 8]).collect::<Vec<_>>()),
        _ => return None,
    })
}

impl Plain {
    /// Returns the byte of memory at an address, if the region there may be used in this way.
    fn byte(&mut self, address: u64, write: bool, region: &mut Option<usize>) -> Option<&mut u8> {
        let found = self
            .regions
            .iter()
            .position(|r| address.checked_sub(r.base).is_some_and(|at| at < r.bytes.len() as u64))?;
        // An access lies in one region.
        if *region.get_or_insert(found) != found || write && !self.regions[found].writable.contains(&address) {
            return None;
        }
        let base = self.regions[found].base;
        self.regions[found].bytes.get_mut((address - base) as usize)
    }

    fn load(&mut self, address: u64, bytes: u64) -> Option<i128> {
        let mut region = None;
        let mut value = 0;
        for n in 0..bytes {
            value += i128::from(*self.byte(address.checked_add(n)?, false, &mut region)?) << (8 * n);
        }
        Some(value)
    }

    fn store(&mut self, address: u64, bytes: u64, value: i128) -> Option<()> {
        let mut region = None;
        for n in 0..bytes {
            self.byte(address.checked_add(n)?, true, &mut region)?;
        }
        for n in 0..bytes {
            *self.byte(address + n, true, &mut region)? = (value >> (8 * n)) as u8;
        }
        Some(())
    }

    fn half(&self, address: u64) -> Option<u16> {
        let region = self.regions.iter().find(|r| r.executable.contains(&address))?;
        let at = (address - region.base) as usize;
        let inside = region.executable.contains(&(address + 1));
        inside.then(|| u16::from(region.bytes[at]) | u16::from(region.bytes[at + 1]) << 8)
    }

    /// Executes one instruction; the error is the reason why it could not be executed.
    pub(super) fn step(&mut self) -> Result<Instruction, PlainStop> {
        if self.pc == self.home {
            return Err(PlainStop::Returned);
        }
        let pc = self.pc;
        let no_code = PlainStop::Trap(Cause::FetchAccess, pc);
        let low = self.half(pc).ok_or(no_code)?;
        let mut word = u32::from(low);
        if low & 3 == 3 {
            word |= u32::from(self.half(pc + 2).ok_or(no_code)?) << 16;
        }
        let op = decode(word, self.bits, EXTENSIONS);
        let next = cut(i128::from(pc) + i128::from(op.len), self.bits);
        match op.row().format {
            Format::Illegal => return Err(PlainStop::Trap(Cause::IllegalInstruction, u64::from(word))),
            Format::Load | Format::Store => self.access(&op)?,
            Format::LoadReserved | Format::Atomic => self.atomic(&op)?,
            Format::Bare if op.row().name == "ecall" => {
                (self.pc, self.retired) = (next, self.retired + 1);
                return Err(PlainStop::Called);
            }
            Format::Bare => return Err(PlainStop::Trap(Cause::Breakpoint, pc)),
            Format::Fence => {}
            _ => self.compute(&op, next),
        }
        let jumps = matches!(op.row().format, Format::Branch | Format::Jump | Format::JumpRegister);
        if !jumps {
            self.pc = next;
        }
        self.retired += 1;
        Ok(op)
    }

    fn put(&mut self, register: u8, value: i128) {
        if register != 0 {
            self.x[register as usize] = cut(value, self.bits);
        }
    }

    fn compute(&mut self, op: &Instruction, next: u64) {
        let (bits, name) = (self.bits, op.row().name);
        let (a, mut b) = (i128::from(self.x[op.rs1 as usize]), i128::from(self.x[op.rs2 as usize]));
        let (pc, imm) = (i128::from(self.pc), i128::from(op.imm));
        let to = |offset: i128| cut(pc + offset, bits);
        match op.row().format {
            Format::Upper => return self.put(op.rd, if name == "lui" { imm } else { pc + imm }),
            Format::Jump => {
                self.put(op.rd, i128::from(next));
                return self.pc = to(imm);
            }
            Format::JumpRegister => {
                self.put(op.rd, i128::from(next));
                return self.pc = cut(a + imm, bits) & !1;
            }
            Format::Branch => {
                let (sa, sb) = (signed(a, bits), signed(b, bits));
                let less = if name.ends_with('u') { a < b } else { sa < sb };
                let taken = match &name[..3] {
                    "beq" => a == b,
                    "bne" => a != b,
                    "blt" => less,
                    _ => !less,
                };
                return self.pc = if taken { to(imm) } else { next };
            }
            _ => {}
        }
        let immediate = matches!(op.row().format, Format::Immediate | Format::Shift | Format::ShiftWord);
        let mut base = name;
        if immediate {
            b = i128::from(cut(imm, bits));
            base = match name {
                "sltiu" => "sltu",
                "slli.uw" => "sll.uw",
                _ if name.ends_with("iw") => ["addw", "sllw", "srlw", "sraw", "rorw"]
                    .into_iter()
                    .find(|w| w[..3] == name[..3])
                    .expect("a word's immediate form"),
                _ => name.strip_suffix('i').expect("an immediate form"),
            };
        }
        let value = if let Some(base) = base.strip_suffix(".uw") {
            two(base, a.rem_euclid(1 << 32), b, bits)
        } else if let Some(value) = one(base, a, bits).or_else(|| two(base, a, b, bits)) {
            Some(value)
        } else {
            // Operations on the low 32 bits, whose result is sign-extended.
            let (a, b) = (a.rem_euclid(1 << 32), b.rem_euclid(1 << 32));
            let base = base.trim_end_matches('w');
            one(base, a, 32).or_else(|| two(base, a, b, 32)).map(|value| signed(value, 32))
        };
        self.put(op.rd, value.unwrap_or_else(|| panic!("{name} is not one of the plain machine's instructions")));
    }

    fn access(&mut self, op: &Instruction) -> Result<(), PlainStop> {
        let name = op.row().name;
        let address = cut(i128::from(self.x[op.rs1 as usize]) + i128::from(op.imm), self.bits);
        let bytes = 1u64 << "bhwd".find(&name[1..2]).expect("a width");
        if name.starts_with('s') {
            let value = i128::from(self.x[op.rs2 as usize]);
            return self.store(address, bytes, value).ok_or(PlainStop::Trap(Cause::StoreAccess, address));
        }
        let value = self.load(address, bytes).ok_or(PlainStop::Trap(Cause::LoadAccess, address))?;
        self.put(op.rd, if name.ends_with('u') { value } else { signed(value, 8 * bytes as u32) });
        Ok(())
    }

    fn atomic(&mut self, op: &Instruction) -> Result<(), PlainStop> {
        let (operation, width) = op.row().name.split_once('.').expect("a name with a width");
        let (bytes, bits) = if width == "w" { (4, 32) } else { (8, 64) };
        let address = self.x[op.rs1 as usize];
        let reserves = operation == "lr";
        let causes = [(Cause::StoreMisaligned, Cause::StoreAccess), (Cause::LoadMisaligned, Cause::LoadAccess)];
        let (misaligned, fault) = causes[usize::from(reserves)];
        let reserved = if reserves { None } else { self.reserved };
        if operation == "sc" {
            self.reserved = None;
        }
        if !address.is_multiple_of(bytes) {
            return Err(PlainStop::Trap(misaligned, address));
        }
        let stop = PlainStop::Trap(fault, address);
        let old = signed(self.load(address, bytes).ok_or(stop)?, bits);
        let by = i128::from(self.x[op.rs2 as usize]);
        let (unsigned, word) = (|value: i128| value.rem_euclid(1 << bits), signed(by, bits));
        let new = match operation {
            "lr" => {
                self.reserved = Some((address, old));
                self.put(op.rd, old);
                return Ok(());
            }
            "sc" if reserved != Some((address, old)) => {
                self.put(op.rd, 1);
                return Ok(());
            }
            "sc" | "amoswap" => by,
            "amomin" => old.min(word),
            "amomax" => old.max(word),
            "amominu" => unsigned(old).min(unsigned(by)),
            "amomaxu" => unsigned(old).max(unsigned(by)),
            other => two(&other[3..], unsigned(old), unsigned(by), bits).expect("an operation"),
        };
        self.store(address, bytes, new).ok_or(stop)?;
        self.put(op.rd, if operation == "sc" { 0 } else { old });
        Ok(())
    }
}
