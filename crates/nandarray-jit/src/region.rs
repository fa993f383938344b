//! Regions, the units of translation: instructions that are reached from an address by branches, jumps and calls.
//!
//! A region is a graph of nodes, each a [`BasicBlock`] or its part before the next jump target. Calls of known
//! functions are followed too; each call has its own copy of the function, so that returning from it needs only a
//! comparison of `ra`. Code that is too far away, in calls too deep, or not translatable is left out: there the region
//! ends, and the engine continues. Nodes are chosen by depth of calls, then by distance from the entry. Nothing here
//! depends on the host.

use std::collections::{BTreeSet, BinaryHeap, HashMap};

use nandarray_hart::isa::{Code, Extensions, Format, Instruction};
use nandarray_hart::{BasicBlock, OPS_MAX};

/// Most nested calls that a region follows.
const DEPTH_MAX: usize = 6;

/// The target of a jump, or of continuing at the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A node of the region, by its number.
    Node(usize),
    /// An address outside of the region.
    Outside(u64),
}

/// The way in which a node ends.
#[derive(Clone, Debug)]
pub(crate) enum NodeEnd {
    /// The next instruction, or the target of an unconditional jump, follows.
    Next(Edge),
    /// A conditional branch is the last instruction: targets if it is taken, and if not.
    Branch(Edge, Edge),
    /// A jump to an address in a register is the last instruction: the known target addresses with their edges; there
    /// may be others.
    Indirect(Vec<(u64, Edge)>),
    /// The node ends before an instruction that the interpreter must execute.
    Handover,
}

/// A node of a region: instructions that are always executed in order.
#[derive(Debug)]
pub(crate) struct RegionNode {
    pub(crate) pc: u64,
    pub(crate) ops: Vec<Instruction>,
    pub(crate) end: NodeEnd,
    /// Whether the node begins a loop: some path leads from it back to it.
    pub(crate) header: bool,
}

impl RegionNode {
    /// Returns the numbers of the nodes that can follow this one.
    pub(crate) fn successors(&self) -> Vec<usize> {
        let edges = match &self.end {
            NodeEnd::Next(edge) => vec![*edge],
            NodeEnd::Branch(taken, next) => vec![*taken, *next],
            NodeEnd::Indirect(known) => known.iter().map(|k| k.1).collect(),
            NodeEnd::Handover => Vec::new(),
        };
        edges.into_iter().filter_map(|e| if let Edge::Node(n) = e { Some(n) } else { None }).collect()
    }
}

/// A unit of translation: a graph of nodes, entered at the first.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) nodes: Vec<RegionNode>,
    /// Number of instructions in all nodes; no path without a loop is longer.
    pub(crate) ops: usize,
}

/// The code that a region is cut from, and the limits of the cut.
pub(crate) struct RegionSource<'s> {
    pub(crate) bits: u32,
    pub(crate) extensions: Extensions,
    pub(crate) ops_max: usize,
    /// Returns the instruction at an address; `None` if it cannot be read or must not be part of a region.
    pub(crate) fetch: &'s dyn Fn(u64) -> Option<u32>,
    /// Whether the block at an address may be part of the region; the block at which the region is entered always is.
    pub(crate) wanted: &'s dyn Fn(u64) -> bool,
    /// Whether an instruction can be translated.
    pub(crate) translates: &'s dyn Fn(&Instruction) -> bool,
    /// Observed targets of indirect jumps, by the address of the jump.
    pub(crate) targets: &'s HashMap<u64, Vec<u64>>,
}

/// An address, and the number (in [`Chains`]) of the chain of calls that leads to it; 0 without calls.
type CodePlace = (u64, usize);

/// Chains of nested calls. Each is its last call (return address, function) and the number of the chain before that
/// call.
#[derive(Default)]
struct Chains(Vec<(u64, u64, usize)>);

impl Chains {
    /// Returns the number of the chain that extends `chain` by a call of `target` that returns to `back`; `None` if it
    /// is too deep or the function is already in the chain.
    fn call(&mut self, chain: usize, target: u64, back: u64) -> Option<usize> {
        let mut depth = 0;
        let mut at = chain;
        while at != 0 {
            let (_, function, before) = self.0[at - 1];
            if function == target {
                return None;
            }
            (depth, at) = (depth + 1, before);
        }
        if depth >= DEPTH_MAX {
            return None;
        }
        debug_assert!(chain <= self.0.len(), "chain {chain} of {}", self.0.len());
        let new = (back, target, chain);
        let known = self.0.iter().position(|c| *c == new);
        Some(
            1 + known.unwrap_or_else(|| {
                self.0.push(new);
                self.0.len() - 1
            }),
        )
    }

    fn back(&self, chain: usize) -> Option<CodePlace> {
        let (back, _, before) = *self.0.get(chain.checked_sub(1)?)?;
        Some((back, before))
    }

    fn depth(&self, mut chain: usize) -> usize {
        let mut depth = 0;
        while chain != 0 {
            (depth, chain) = (depth + 1, self.0[chain - 1].2);
        }
        depth
    }
}

/// The places to which the last instruction of a block can lead; a place is an address with its chain of calls.
struct Ways {
    taken: Option<CodePlace>,
    next: Option<CodePlace>,
    indirect: Vec<(u64, Option<CodePlace>)>,
}

impl RegionSource<'_> {
    fn wrap(&self, address: u64) -> u64 {
        if self.bits == 32 { address & 0xffff_ffff } else { address }
    }

    fn ways(&self, block: &BasicBlock, chain: usize, chains: &mut Chains) -> Ways {
        let mut ways = Ways { taken: None, next: None, indirect: Vec::new() };
        let Some(last) = block.ops.last() else { return ways };
        let next = block.next(self.bits);
        let taken = block.taken(self.bits);
        match last.row().format {
            Format::Branch => {
                ways.taken = taken.map(|t| (t, chain));
                ways.next = Some((next, chain));
            }
            Format::Jump => {
                let calls = last.rd == 1;
                ways.taken = taken
                    .and_then(|t| if calls { chains.call(chain, t, next).map(|c| (t, c)) } else { Some((t, chain)) });
            }
            Format::JumpRegister => {
                if last.rd == 0 && last.rs1 == 1 && last.imm == 0 {
                    if let Some(back) = chains.back(chain) {
                        ways.indirect.push((back.0, Some(back)));
                    }
                }
                if ways.indirect.is_empty() {
                    let pc = block.address(block.ops.len() - 1);
                    for target in self.targets.get(&pc).into_iter().flatten() {
                        let place = match last.rd {
                            1 => chains.call(chain, *target, next).map(|c| (*target, c)),
                            // Other jumps keep the depth of calls. So does a return from the function in which the
                            // region was entered.
                            0 if last.rs1 != 1 || chain == 0 => Some((*target, chain)),
                            _ => None,
                        };
                        ways.indirect.push((*target, place));
                    }
                    ways.indirect.retain(|w| w.1.is_some());
                }
            }
            _ if last.ends_block() => {}
            _ => ways.next = Some((next, chain)),
        }
        ways
    }

    fn decode(&self, pc: u64, most: usize) -> Option<BasicBlock> {
        BasicBlock::decode(pc, self.bits, self.extensions, most, |at| (self.fetch)(at))
    }

    /// Builds the region that is entered at `pc`; `None` if not even its first instruction can be translated.
    pub(crate) fn region(&self, pc: u64) -> Option<Region> {
        let mut chains = Chains::default();
        // The nearest block comes first: by depth of calls, then by the order in which blocks were found.
        let mut waiting = BinaryHeap::new();
        let mut found: HashMap<CodePlace, usize> = HashMap::new();
        let mut order: Vec<CodePlace> = Vec::new();
        let mut leaders: HashMap<usize, BTreeSet<u64>> = HashMap::new();
        let (mut count, mut ops) = (0u64, 0);
        waiting.push(std::cmp::Reverse((0, 0, pc, 0)));
        while let Some(std::cmp::Reverse((_, _, at, chain))) = waiting.pop() {
            if found.contains_key(&(at, chain)) || !(order.is_empty() || (self.wanted)(at)) {
                continue;
            }
            let Some(block) = self.decode(at, OPS_MAX) else { continue };
            if ops + block.ops.len() > self.ops_max && !order.is_empty() {
                continue;
            }
            // Instructions from the next known block on are counted with that block.
            let end = at.saturating_add(block.bytes());
            let own = leaders.entry(chain).or_default();
            let cut = own.range(at + 1..end).next().map_or(block.ops.len(), |leader| {
                (0..block.ops.len()).take_while(|i| block.address(*i) < *leader).count()
            });
            own.insert(at);
            ops += cut;
            found.insert((at, chain), order.len());
            order.push((at, chain));
            let translated = block.ops.iter().take_while(|op| (self.translates)(op)).count();
            if translated < block.ops.len() {
                continue;
            }
            let ways = self.ways(&block, chain, &mut chains);
            let all = [ways.next, ways.taken].into_iter().flatten();
            for (to, chain) in all.chain(ways.indirect.into_iter().filter_map(|w| w.1)) {
                count += 1;
                waiting.push(std::cmp::Reverse((chains.depth(chain), count, to, chain)));
            }
        }
        let mut nodes = Vec::with_capacity(order.len());
        for (at, chain) in order {
            nodes.push(self.node(at, chain, &leaders, &found, &mut chains)?);
        }
        debug_assert!(nodes.first().is_none_or(|first| first.pc == pc), "a region begins where it is entered");
        debug_assert_eq!(nodes.len(), found.len(), "each place is a node");
        mark_headers(&mut nodes);
        let ops = nodes.iter().map(|n| n.ops.len()).sum();
        (ops > 0 && !nodes[0].ops.is_empty()).then_some(Region { nodes, ops })
    }

    fn node(
        &self,
        pc: u64,
        chain: usize,
        leaders: &HashMap<usize, BTreeSet<u64>>,
        found: &HashMap<CodePlace, usize>,
        chains: &mut Chains,
    ) -> Option<RegionNode> {
        let mut block = self.decode(pc, OPS_MAX)?;
        let node = |ops, end| Some(RegionNode { pc, ops, end, header: false });
        let edge = |place: Option<CodePlace>, pc: u64| match place.and_then(|p| found.get(&p)) {
            Some(node) => Edge::Node(*node),
            None => Edge::Outside(pc),
        };
        let known = &leaders[&chain];
        let cut = (1..block.ops.len()).find(|i| known.contains(&block.address(*i)));
        let translated = block.ops.iter().take_while(|op| (self.translates)(op)).count();
        let whole = block.ops.len();
        if translated < cut.unwrap_or(whole) {
            block.ops.truncate(translated);
            return node(block.ops, NodeEnd::Handover);
        }
        if let Some(cut) = cut {
            let next = block.address(cut);
            block.ops.truncate(cut);
            return node(block.ops, NodeEnd::Next(edge(Some((next, chain)), next)));
        }
        let ways = self.ways(&block, chain, chains);
        let last = *block.ops.last()?;
        let next = block.next(self.bits);
        let taken = block.taken(self.bits).unwrap_or(next);
        let end = match last.row().format {
            Format::Branch => NodeEnd::Branch(edge(ways.taken, taken), edge(ways.next, next)),
            Format::Jump => NodeEnd::Next(edge(ways.taken, taken)),
            Format::JumpRegister => {
                let known = ways.indirect.iter().map(|(pc, place)| (*pc, edge(*place, *pc)));
                NodeEnd::Indirect(known.filter(|k| matches!(k.1, Edge::Node(_))).collect())
            }
            _ => NodeEnd::Next(edge(ways.next, self.wrap(next))),
        };
        node(block.ops, end)
    }
}

/// Marks the nodes to which some path leads back.
fn mark_headers(nodes: &mut [RegionNode]) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::No; nodes.len()];
    let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
    if nodes.is_empty() {
        return;
    }
    seen[0] = Seen::OnPath;
    path.push((0, nodes[0].successors()));
    while let Some((node, left)) = path.last_mut() {
        match left.pop() {
            None => {
                seen[*node] = Seen::Done;
                path.pop();
            }
            Some(next) => match seen[next] {
                Seen::No => {
                    seen[next] = Seen::OnPath;
                    let successors = nodes[next].successors();
                    path.push((next, successors));
                }
                Seen::OnPath => nodes[next].header = true,
                Seen::Done => {}
            },
        }
    }
}

/// Whether the code generator can translate an instruction, for a hart of either width.
pub(crate) fn translates(op: &Instruction) -> bool {
    use Code::*;
    match op.row().format {
        Format::LoadReserved | Format::Atomic | Format::FenceVma | Format::Illegal => false,
        Format::StreamRead => op.code == StreamWait,
        Format::Bare => false,
        format if format.vector() => false,
        // Ends and limits of streams are read seldom, so the interpreter executes these instructions.
        Format::Csr | Format::CsrImmediate => op.reads_stream_register() && !matches!((op.imm - 0x800) >> 5, 1 | 3),
        _ => !matches!(op.code, Ecall | Ebreak | Vsetvl),
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
