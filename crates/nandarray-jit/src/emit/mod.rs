//! Code for a region: one host function, with the program's registers as its variables.
//!
//! `int`, `mem`, `float` and `stream` hold the instructions by group; here is what joins them. Registers are read when
//! the function is entered, and written back on every way out, in blocks that the host keeps out of the way. An
//! instruction that meets what the code does not know (a fault, memory of another region, a stream that has run dry)
//! has no effect here: the function ends before it, and the interpreter executes it.

mod float;
mod int;
mod mem;
mod speculate;
mod stream;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlagsData, SigRef, Signature, Type, Value, types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use nandarray_hart::isa::{Code, Format, Instruction};

pub(crate) use self::speculate::weight;
use crate::context::{CodeExit, Context, ContextLayout};
use crate::region::{Edge, NodeEnd, Region, RegionNode};
use crate::registers::{self, Knowledge, Set};
use crate::sites::Sites;

/// The host and the layout that code is made for.
pub(crate) struct CodeTarget<'t> {
    pub(crate) bits: u32,
    pub(crate) layout: &'t ContextLayout,
    pub(crate) sites: &'t Sites,
    /// First addresses of the regions of memory beside the main one, by slot.
    pub(crate) bases: &'t [u64],
    pub(crate) isa: &'t dyn TargetIsa,
    /// The host has fused multiply-add.
    pub(crate) fma: bool,
}

/// The program counter of a way out.
#[derive(Clone, Copy)]
enum Pc {
    Known(u64),
    Value(Value),
}

/// The function that is being made.
pub(crate) struct Emit<'e, 'f> {
    b: FunctionBuilder<'f>,
    target: &'e CodeTarget<'e>,
    /// Type of integer registers.
    ty: Type,
    x: Vec<Variable>,
    /// Floating-point registers as they are, and those that hold single precision.
    d: Vec<Variable>,
    s: Vec<Variable>,
    left: Variable,
    context: Value,
    registers: Value,
    /// The main region's pointer less its first address.
    main: Value,
    float_signature: SigRef,
    /// Of the node: its instructions, and which one is at hand, at which address.
    count: usize,
    index: usize,
    pc: u64,
    /// Registers written since the function was entered.
    dirty: Set,
    /// Floating-point registers that are kept as single precision.
    single: u32,
    /// The instruction at hand and those behind it that surely follow.
    ahead: &'e [Instruction],
    /// Memory that is known to be there.
    ranges: Vec<mem::Range>,
    /// In the first of two copies: the conditions collected, and the block to jump to instead of returning.
    conditions: Option<Vec<speculate::FloatCondition>>,
    escape: Option<Block>,
    /// Whether this is the second of two copies of the block, without conditions.
    cold: bool,
}

/// The context's and the registers' memory.
fn own() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_aligned()
}

/// The program's memory: any alignment.
fn guest() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Fill `function` with the code of `region`.
pub(crate) fn emit<'e>(
    region: &'e Region,
    target: &'e CodeTarget<'e>,
    function: &mut Function,
    builder: &mut FunctionBuilderContext,
) {
    let convention = target.isa.default_call_conv();
    function.signature.call_conv = convention;
    function.signature.params.extend([AbiParam::new(types::I64); 2]);
    function.signature.returns.push(AbiParam::new(types::I32));
    let mut b = FunctionBuilder::new(function, builder);
    let mut float = Signature::new(convention);
    float.params.extend([AbiParam::new(types::I64); 5]);
    float.returns.push(AbiParam::new(types::I64));
    let float_signature = b.import_signature(float);
    let ty = if target.bits == 32 { types::I32 } else { types::I64 };
    let x = (0..32).map(|_| b.declare_var(ty)).collect();
    let d = (0..32).map(|_| b.declare_var(types::F64)).collect();
    let s = (0..32).map(|_| b.declare_var(types::F32)).collect();
    let left = b.declare_var(types::I64);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let (context, registers) = (b.block_params(entry)[0], b.block_params(entry)[1]);
    let main = b.ins().load(types::I64, own(), context, std::mem::offset_of!(Context, main) as i32);
    let mut emit = Emit {
        b,
        target,
        ty,
        x,
        d,
        s,
        left,
        context,
        registers,
        main,
        float_signature,
        count: 0,
        index: 0,
        pc: region.nodes[0].pc,
        dirty: 0,
        single: 0,
        ahead: &[],
        ranges: Vec::new(),
        conditions: None,
        escape: None,
        cold: false,
    };
    let knowledge = Knowledge::of(region);
    let blocks: Vec<Block> = region.nodes.iter().map(|_| emit.b.create_block()).collect();
    emit.enter(&knowledge);
    emit.b.ins().jump(blocks[0], &[]);
    for (n, node) in region.nodes.iter().enumerate() {
        emit.node(n, node, region, &knowledge, &blocks);
    }
    emit.b.seal_all_blocks();
    emit.b.finalize(target.isa.frontend_config());
}

impl<'e> Emit<'e, '_> {
    /// Read the registers.
    fn enter(&mut self, knowledge: &Knowledge) {
        let left = self.b.ins().load(types::I64, own(), self.context, std::mem::offset_of!(Context, left) as i32);
        self.b.def_var(self.left, left);
        for r in (1..32).filter(|r| knowledge.used >> r & 1 != 0) {
            let value = self.b.ins().load(self.ty, own(), self.registers, r * self.ty.bytes() as i32);
            self.b.def_var(self.x[r as usize], value);
        }
        let mut upper: Option<Value> = None;
        for r in (0..32).filter(|r| knowledge.used >> (32 + r) & 1 != 0) {
            let at = self.target.layout.f + 8 * r;
            let value = self.b.ins().load(types::F64, own(), self.registers, at);
            self.b.def_var(self.d[r as usize], value);
            let value = self.b.ins().load(types::F32, own(), self.registers, at);
            self.b.def_var(self.s[r as usize], value);
            if knowledge.wanted >> r & 1 != 0 {
                let half = self.b.ins().load(types::I32, own(), self.registers, at + 4);
                upper = Some(upper.map_or(half, |all| self.b.ins().band(all, half)));
            }
        }
        if let Some(upper) = upper {
            let boxed = self.b.ins().icmp_imm_s(IntCC::Equal, upper, -1);
            self.unless(boxed, Pc::Known(self.pc), 0, CodeExit::Handover);
        }
    }

    fn node(&mut self, n: usize, node: &'e RegionNode, region: &Region, knowledge: &Knowledge, blocks: &[Block]) {
        self.b.switch_to_block(blocks[n]);
        (self.count, self.index, self.pc) = (node.ops.len(), 0, node.pc);
        (self.dirty, self.single) = (knowledge.dirty[n], knowledge.single[n] & (knowledge.used >> 32) as u32);
        let left = self.b.use_var(self.left);
        if node.header || n == 0 {
            // Enough for any way to the next such look.
            let enough = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, left, region.ops as i64);
            self.unless(enough, Pc::Known(node.pc), 0, CodeExit::Slice);
        }
        let left = self.b.ins().iadd_imm_s(left, -(node.ops.len() as i64));
        self.b.def_var(self.left, left);
        let ends = matches!(node.end, NodeEnd::Branch(..) | NodeEnd::Indirect(_));
        let plain = if ends { &node.ops[..node.ops.len() - 1] } else { &node.ops[..] };
        self.ranges.clear();
        let mut ops = plain;
        for (count, speculative) in speculate::runs(plain, self.target.fma) {
            let (run, rest) = ops.split_at(count);
            if speculative {
                self.twice(run)
            } else {
                self.once(run)
            }
            ops = rest;
        }
        self.unbox(node, knowledge);
        self.end(node, blocks);
    }

    /// Emit instructions, one after the other.
    fn once(&mut self, ops: &'e [Instruction]) {
        for (i, op) in ops.iter().enumerate() {
            self.ahead = &ops[i..];
            self.op(op);
            self.dirty |= registers::writes(op);
            self.index += 1;
            self.pc = self.wrap(self.pc.wrapping_add(u64::from(op.len)));
        }
    }

    /// Where what follows keeps registers as they are that are kept as single precision here, have both.
    fn unbox(&mut self, node: &RegionNode, knowledge: &Knowledge) {
        let needed = node.successors().iter().fold(0, |set, s| set | self.single & !knowledge.single[*s]);
        for r in (0..32).filter(|r| needed >> r & 1 != 0) {
            let value = self.double(r);
            self.b.def_var(self.d[r as usize], value);
        }
    }

    fn end(&mut self, node: &RegionNode, blocks: &[Block]) {
        match &node.end {
            NodeEnd::Next(edge) => {
                let to = self.edge(*edge, blocks);
                self.b.ins().jump(to, &[]);
                self.fill(to, *edge);
            }
            NodeEnd::Handover => self.leave(Pc::Known(self.pc), 0, CodeExit::Handover),
            NodeEnd::Branch(taken, next) => {
                let op = node.ops[node.ops.len() - 1];
                let holds = self.branch(&op);
                let (to, on) = (self.edge(*taken, blocks), self.edge(*next, blocks));
                self.b.ins().brif(holds, to, &[], on, &[]);
                self.fill(to, *taken);
                self.fill(on, *next);
            }
            NodeEnd::Indirect(known) => {
                let op = node.ops[node.ops.len() - 1];
                let target = self.jump_register(&op);
                self.dirty |= registers::writes(&op);
                for (pc, edge) in known {
                    let Edge::Node(n) = edge else { continue };
                    let other = self.b.create_block();
                    let here = self.constant(*pc);
                    let same = self.b.ins().icmp(IntCC::Equal, target, here);
                    self.b.ins().brif(same, blocks[*n], &[], other, &[]);
                    self.b.seal_block(other);
                    self.b.switch_to_block(other);
                }
                let target = self.wide(target);
                self.leave(Pc::Value(target), 0, CodeExit::Jump);
            }
        }
    }

    /// The block of an edge: a new one where it leads outside.
    fn edge(&mut self, edge: Edge, blocks: &[Block]) -> Block {
        match edge {
            Edge::Node(n) => blocks[n],
            Edge::Outside(_) => {
                let block = self.b.create_block();
                self.b.set_cold_block(block);
                block
            }
        }
    }

    fn fill(&mut self, block: Block, edge: Edge) {
        if let Edge::Outside(pc) = edge {
            self.b.seal_block(block);
            self.b.switch_to_block(block);
            self.leave(Pc::Known(pc), 0, CodeExit::Jump);
        }
    }

    /// Leave the function unless a condition holds. `back` instructions of the node are not executed.
    fn unless(&mut self, holds: Value, pc: Pc, back: usize, why: CodeExit) {
        let (on, out) = (self.block(), self.cold_block());
        self.b.ins().brif(holds, on, &[], out, &[]);
        self.b.seal_block(on);
        self.b.seal_block(out);
        self.b.switch_to_block(out);
        self.leave(pc, back, why);
        self.b.switch_to_block(on);
    }

    /// Leave the function before the instruction at hand unless a condition holds.
    fn unless_here(&mut self, holds: Value, why: CodeExit) {
        if let Some(slow) = self.escape {
            return self.or_else(holds, slow);
        }
        self.unless(holds, Pc::Known(self.pc), self.count - self.index, why);
    }

    /// Emits the write-back of changed registers, and the return.
    fn leave(&mut self, pc: Pc, back: usize, why: CodeExit) {
        for r in (1..32).filter(|r| self.dirty >> r & 1 != 0) {
            let value = self.b.use_var(self.x[r as usize]);
            self.b.ins().store(own(), value, self.registers, r * self.ty.bytes() as i32);
        }
        for r in (0..32).filter(|r| self.dirty >> (32 + r) & 1 != 0) {
            let at = self.target.layout.f + 8 * r;
            if self.single >> r & 1 != 0 {
                let value = self.b.use_var(self.s[r as usize]);
                self.b.ins().store(own(), value, self.registers, at);
                let ones = self.b.ins().iconst(types::I32, 0xffff_ffff);
                self.b.ins().store(own(), ones, self.registers, at + 4);
            } else {
                let value = self.b.use_var(self.d[r as usize]);
                self.b.ins().store(own(), value, self.registers, at);
            }
        }
        let left = self.b.use_var(self.left);
        let left = self.b.ins().iadd_imm_s(left, back as i64);
        self.b.ins().store(own(), left, self.context, std::mem::offset_of!(Context, left) as i32);
        let pc = match pc {
            Pc::Known(pc) => self.b.ins().iconst(types::I64, pc as i64),
            Pc::Value(value) => value,
        };
        self.b.ins().store(own(), pc, self.context, std::mem::offset_of!(Context, pc) as i32);
        let why = self.b.ins().iconst(types::I32, why as i64);
        self.b.ins().return_(&[why]);
    }

    fn wrap(&self, address: u64) -> u64 {
        if self.target.bits == 32 { address & 0xffff_ffff } else { address }
    }

    /// A constant of an integer register's type.
    fn constant(&mut self, value: u64) -> Value {
        let value = self.wrap(value);
        self.b.ins().iconst(self.ty, value as i64)
    }

    /// Integer register `r`.
    fn get(&mut self, r: u8) -> Value {
        if r == 0 { self.constant(0) } else { self.b.use_var(self.x[r as usize]) }
    }

    /// Set integer register `r`.
    fn set(&mut self, r: u8, value: Value) {
        if r != 0 {
            self.b.def_var(self.x[r as usize], value);
        }
    }

    /// An integer register's value, zero-extended to 64 bits.
    fn wide(&mut self, value: Value) -> Value {
        if self.ty == types::I64 { value } else { self.b.ins().uextend(types::I64, value) }
    }

    /// The low 32 bits of an integer register's value.
    fn low(&mut self, value: Value) -> Value {
        if self.ty == types::I32 { value } else { self.b.ins().ireduce(types::I32, value) }
    }

    /// 32 bits as an integer register's value, sign-extended.
    fn word(&mut self, value: Value) -> Value {
        if self.ty == types::I32 { value } else { self.b.ins().sextend(self.ty, value) }
    }

    /// 0 or 1 as an integer register's value.
    fn flag(&mut self, holds: Value) -> Value {
        self.b.ins().uextend(self.ty, holds)
    }

    fn op(&mut self, op: &Instruction) {
        match op.row().format {
            Format::Load => self.load(op),
            Format::Store => self.store(op),
            Format::FloatLoad => self.float_load(op),
            Format::FloatStore => self.float_store(op),
            Format::StreamLoad => self.stream_load(op),
            Format::StreamStore => self.stream_store(op),
            Format::StreamRead => self.stream_wait(op),
            Format::Csr | Format::CsrImmediate => self.stream_register(op),
            Format::Fence => {}
            Format::Jump => {
                let link = self.constant(self.pc.wrapping_add(u64::from(op.len)));
                self.set(op.rd, link);
            }
            Format::Upper => {
                let base = if op.code == Code::Auipc { self.pc } else { 0 };
                let value = self.constant(base.wrapping_add(op.imm as i64 as u64));
                self.set(op.rd, value);
            }
            format if format.float() => self.float(op),
            _ => self.integer(op),
        }
    }

    /// A new block, out of the way where everything is.
    fn block(&mut self) -> Block {
        let block = self.b.create_block();
        if self.cold {
            self.b.set_cold_block(block);
        }
        block
    }

    /// A new block out of the way.
    fn cold_block(&mut self) -> Block {
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        block
    }

    /// A block, and a value that comes into it by several ways.
    fn join(&mut self, ty: Type) -> (Block, Value) {
        let block = self.block();
        let value = self.b.append_block_param(block, ty);
        (block, value)
    }
}

fn argument(value: Value) -> [BlockArg; 1] {
    [BlockArg::Value(value)]
}
