//! Code generation for a region: one host function, with the program's registers as its variables.
//!
//! `int`, `mem`, `float` and `stream` emit the instructions by group; this file joins them. Registers are read when the
//! function is entered, and written back on every exit, in cold blocks, which the host places after the others. An
//! instruction that meets a case for which there is no code (a fault, another memory region, a stream without bytes at
//! hand) has no effect here: the function returns before it, and the interpreter executes it.

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

/// The host and the memory layout for which code is generated.
pub(crate) struct CodeTarget<'t> {
    pub(crate) bits: u32,
    pub(crate) layout: &'t ContextLayout,
    pub(crate) sites: &'t Sites,
    /// First addresses of the memory regions beside the main one, by slot.
    pub(crate) bases: &'t [u64],
    pub(crate) isa: &'t dyn TargetIsa,
    /// Whether the host has a fused multiply-add.
    pub(crate) fma: bool,
}

/// The program counter with which the function returns: a constant or a computed value.
#[derive(Clone, Copy)]
enum Pc {
    Known(u64),
    Value(Value),
}

/// State of the generation of one function; its methods append code to the function.
pub(crate) struct Emit<'e, 'f> {
    b: FunctionBuilder<'f>,
    target: &'e CodeTarget<'e>,
    /// Cranelift's type of the integer registers.
    ty: Type,
    x: Vec<Variable>,
    /// Floating-point registers as variables of 64 bits; `s` has them as variables of single precision.
    d: Vec<Variable>,
    s: Vec<Variable>,
    left: Variable,
    context: Value,
    registers: Value,
    /// The host's pointer to the main memory region minus the region's first address.
    main: Value,
    float_signature: SigRef,
    /// Number of instructions of the current node; `index` and `pc` are those of the current instruction.
    count: usize,
    index: usize,
    pc: u64,
    /// Registers that were written since the function was entered.
    dirty: Set,
    /// Floating-point registers that are kept as single precision at this point, one bit each.
    single: u32,
    /// The current instruction, and those that certainly follow it.
    ahead: &'e [Instruction],
    /// Ranges of addresses that have been checked at this point.
    ranges: Vec<mem::Range>,
    /// While the first of two copies of some instructions is emitted, the conditions collected so far, otherwise
    /// `None`; `escape` is the block of the second copy, to which the first jumps instead of returning.
    conditions: Option<Vec<speculate::FloatCondition>>,
    escape: Option<Block>,
    /// Whether this is the second of two copies of some instructions, whose blocks are cold.
    cold: bool,
}

/// Returns the flags for accesses to the memory of the context and the registers.
fn own() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_aligned()
}

/// Returns the flags for accesses to the program's memory, which may be unaligned.
fn guest() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Generates the code of `region` in `function`.
pub(crate) fn emit<'e>(
    region: &'e Region,
    target: &'e CodeTarget<'e>,
    function: &mut Function,
    builder: &mut FunctionBuilderContext,
) {
    assert!(!region.nodes.is_empty(), "a region begins with a block");
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
    debug_assert!(emit.conditions.is_none() && emit.escape.is_none(), "a second copy that has no end");
    emit.b.seal_all_blocks();
    emit.b.finalize(target.isa.frontend_config());
}

impl<'e> Emit<'e, '_> {
    /// Emits the reading of the registers that the region uses, with a check of those that must hold single precision.
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
            // The budget must suffice for any path to the next such check.
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
        debug_assert_eq!(self.index, plain.len(), "every instruction was translated once");
        self.unbox(node, knowledge);
        self.end(node, blocks);
    }

    /// Emits instructions one after the other.
    fn once(&mut self, ops: &'e [Instruction]) {
        for (i, op) in ops.iter().enumerate() {
            self.ahead = &ops[i..];
            self.op(op);
            self.dirty |= registers::writes(op);
            self.index += 1;
            self.pc = self.wrap(self.pc.wrapping_add(u64::from(op.len)));
        }
    }

    /// Emits the 64-bit form of registers that are kept as single precision here, where a following node keeps all
    /// their bits.
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

    /// Returns the block that an edge leads to; an edge to an address outside of the region gets a new block.
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

    /// Emits a return from the function with reason `why` unless a condition holds. `back` is the number of the node's
    /// instructions that are then not executed.
    fn unless(&mut self, holds: Value, pc: Pc, back: usize, why: CodeExit) {
        let (on, out) = (self.block(), self.cold_block());
        self.b.ins().brif(holds, on, &[], out, &[]);
        self.b.seal_block(on);
        self.b.seal_block(out);
        self.b.switch_to_block(out);
        self.leave(pc, back, why);
        self.b.switch_to_block(on);
    }

    /// Emits a return from the function before the current instruction unless a condition holds.
    fn unless_here(&mut self, holds: Value, why: CodeExit) {
        if let Some(slow) = self.escape {
            return self.or_else(holds, slow);
        }
        debug_assert!(self.index <= self.count, "instruction {} of {}", self.index, self.count);
        self.unless(holds, Pc::Known(self.pc), self.count - self.index, why);
    }

    /// Emits the write-back of changed registers, and the return with reason `why`. `back` is the number of the node's
    /// instructions that are then not executed.
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
        debug_assert!(back <= self.count, "{back} instructions are given back of {}", self.count);
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

    /// Emits a constant of an integer register's type.
    fn constant(&mut self, value: u64) -> Value {
        let value = self.wrap(value);
        self.b.ins().iconst(self.ty, value as i64)
    }

    /// Emits the value of integer register `r`.
    fn get(&mut self, r: u8) -> Value {
        if r == 0 { self.constant(0) } else { self.b.use_var(self.x[r as usize]) }
    }

    /// Sets integer register `r` to a value.
    fn set(&mut self, r: u8, value: Value) {
        if r != 0 {
            self.b.def_var(self.x[r as usize], value);
        }
    }

    /// Emits an integer register's value, zero-extended to 64 bits.
    fn wide(&mut self, value: Value) -> Value {
        if self.ty == types::I64 { value } else { self.b.ins().uextend(types::I64, value) }
    }

    /// Emits the low 32 bits of an integer register's value.
    fn low(&mut self, value: Value) -> Value {
        if self.ty == types::I32 { value } else { self.b.ins().ireduce(types::I32, value) }
    }

    /// Emits 32 bits as an integer register's value, sign-extended.
    fn word(&mut self, value: Value) -> Value {
        if self.ty == types::I32 { value } else { self.b.ins().sextend(self.ty, value) }
    }

    /// Emits a truth value as an integer register's value, 0 or 1.
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

    /// Creates a block; it is cold if the current copy of instructions is.
    fn block(&mut self) -> Block {
        let block = self.b.create_block();
        if self.cold {
            self.b.set_cold_block(block);
        }
        block
    }

    /// Creates a cold block: one that is rarely executed.
    fn cold_block(&mut self) -> Block {
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        block
    }

    /// Creates a block and the value that its predecessors pass to it.
    fn join(&mut self, ty: Type) -> (Block, Value) {
        let block = self.block();
        let value = self.b.append_block_param(block, ty);
        (block, value)
    }
}

fn argument(value: Value) -> [BlockArg; 1] {
    [BlockArg::Value(value)]
}
