//! Tests of regions: whatever the code, a region's nodes are its code, its edges lead where the code leads, and every
//! loop passes a node that counts.

use super::*;
use nandarray_hart::isa::{TABLE, assemble, decode, encode};

const BASE: u64 = 0x1000;

/// Random code: mostly plain instructions, with branches and jumps within it, calls, returns, and instructions that are
/// not translated.
fn code(chance: &mut fastrand::Rng, length: usize) -> Vec<u32> {
    let line = |text: &str| encode(&assemble(text, 64).unwrap_or_else(|e| panic!("{text}: {e}")));
    let offset = |chance: &mut fastrand::Rng, at: usize| 4 * (chance.i64(0..length as i64 + 2) - at as i64);
    let way = |by: i64| format!(". {} {}", if by < 0 { '-' } else { '+' }, by.unsigned_abs());
    (0..length)
        .map(|at| match chance.u8(..14) {
            0 | 1 => {
                let name = ["beq", "bne", "blt", "bgeu"][chance.usize(..4)];
                line(&format!("{name} a0, a1, {}", way(offset(chance, at))))
            }
            2 => line(&format!("jal zero, {}", way(offset(chance, at)))),
            3 => line(&format!("jal ra, {}", way(offset(chance, at)))),
            4 => line("jalr zero, 0(ra)"),
            5 => line(["jalr ra, 0(a2)", "jalr zero, 8(a3)", "jalr a4, 0(a0)"][chance.usize(..3)]),
            6 if chance.u8(..3) == 0 => {
                line(["ecall", "amoadd.w a0, a1, (a2)", "csrrs a0, cycle, zero"][chance.usize(..3)])
            }
            7 if chance.u8(..4) == 0 => 0xffff_ffff,
            _ => {
                let name = ["add", "xor", "lw", "sd", "fadd.d"][chance.usize(..5)];
                let row = TABLE.iter().find(|row| row.name == name).unwrap();
                row.bits | chance.u32(..) & !row.mask & !(7 << 12)
            }
        })
        .collect()
}

/// Builds the region at an address of some code.
fn region(
    words: &[u32],
    at: u64,
    ops_max: usize,
    targets: &HashMap<u64, Vec<u64>>,
    cold: &BTreeSet<u64>,
) -> Option<Region> {
    let fetch = |address: u64| {
        let index = address.checked_sub(BASE)? / 4;
        address.is_multiple_of(4).then(|| words.get(index as usize).copied()).flatten()
    };
    RegionSource {
        bits: 64,
        extensions: Extensions::PROGRAM,
        ops_max,
        fetch: &fetch,
        wanted: &|address| !cold.contains(&address),
        translates: &translates,
        targets,
    }
    .region(at)
}

/// Checks that a node is the code at its address, and that its edges lead where its last instruction does.
fn check_node(region: &Region, node: &RegionNode, words: &[u32], place: &str) {
    let at = |n: usize| node.pc + 4 * n as u64;
    for (n, op) in node.ops.iter().enumerate() {
        let word = words[((at(n) - BASE) / 4) as usize];
        assert_eq!(*op, decode(word, 64, Extensions::PROGRAM), "{place}, {:#x}", at(n));
        assert!(translates(op), "{place}, {:#x}: {} is left to the interpreter", at(n), op.row().name);
        let last = n + 1 == node.ops.len();
        assert!(last || !op.ends_block(), "{place}, {:#x}: a jump lies within a node", at(n));
    }
    let leads = |edge: &Edge, to: u64, why: &str| {
        let found = match edge {
            Edge::Node(number) => region.nodes[*number].pc,
            Edge::Outside(pc) => *pc,
        };
        assert_eq!(found, to, "{place}, {:#x}: {why}", node.pc);
    };
    let (next, last) = (at(node.ops.len()), node.ops.last());
    let from = next.wrapping_sub(4);
    let jumps = last.filter(|op| op.ends_block());
    match (&node.end, jumps.map(|op| op.row().format)) {
        (NodeEnd::Branch(taken, not), Some(Format::Branch)) => {
            leads(taken, from.wrapping_add(last.unwrap().imm as u64), "a branch that is taken");
            leads(not, next, "a branch that is not taken");
        }
        (NodeEnd::Next(edge), Some(Format::Jump)) => leads(edge, from.wrapping_add(last.unwrap().imm as u64), "a jump"),
        (NodeEnd::Next(edge), None) => leads(edge, next, "the next instruction"),
        (NodeEnd::Indirect(known), Some(Format::JumpRegister)) => {
            known.iter().for_each(|(target, edge)| leads(edge, *target, "a known target"));
        }
        (NodeEnd::Handover, None) => {
            let word = words.get(((next - BASE) / 4) as usize).copied();
            let left = word.map(|word| decode(word, 64, Extensions::PROGRAM));
            assert!(left.is_some_and(|op| !translates(&op)), "{place}, {next:#x}: {left:?} is handed over");
        }
        (end, format) => panic!("{place}, {:#x}: {end:?} after {format:?}", node.pc),
    }
}

/// Whether some path leads from a node back to it without passing a header.
fn loops_unseen(region: &Region) -> bool {
    let mut left: Vec<BTreeSet<usize>> = region.nodes.iter().map(|n| n.successors().into_iter().collect()).collect();
    // A header ends every path that arrives at it.
    for all in &mut left {
        all.retain(|to| !region.nodes[*to].header);
    }
    let mut open: BTreeSet<usize> = (0..left.len()).collect();
    loop {
        let ends: Vec<usize> = open.iter().copied().filter(|n| left[*n].is_disjoint(&open)).collect();
        if ends.is_empty() {
            return !open.is_empty();
        }
        open.retain(|n| !ends.contains(n));
    }
}

#[test]
fn regions_of_random_code_are_that_code() {
    let (mut built, mut several, mut loops) = (0, 0, 0);
    for seed in 0..3_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let length = chance.usize(1..50);
        let words = code(&mut chance, length);
        let ops_max = [1, 5, 20, 1500][chance.usize(..4)];
        let mut targets: HashMap<u64, Vec<u64>> = HashMap::new();
        for at in 0..length as u64 {
            if chance.bool() {
                targets.insert(
                    BASE + 4 * at,
                    (0..chance.usize(..4)).map(|_| BASE + 4 * chance.u64(..length as u64)).collect(),
                );
            }
        }
        let cold: BTreeSet<u64> = (0..length as u64).filter(|_| chance.u8(..9) == 0).map(|at| BASE + 4 * at).collect();
        let at = BASE + 4 * chance.u64(..length as u64);
        let place = format!("seed {seed}, {length} words from {at:#x} on, at most {ops_max}");
        let Some(region) = region(&words, at, ops_max, &targets, &cold) else {
            let first = decode(words[((at - BASE) / 4) as usize], 64, Extensions::PROGRAM);
            assert!(!translates(&first), "{place}: {} could be translated", first.row().name);
            continue;
        };
        assert_eq!(region.nodes[0].pc, at, "{place}");
        assert_eq!(region.ops, region.nodes.iter().map(|node| node.ops.len()).sum::<usize>(), "{place}");
        assert!(region.ops <= ops_max || region.nodes.len() == 1, "{place}: {} instructions", region.ops);
        for (number, node) in region.nodes.iter().enumerate() {
            check_node(&region, node, &words, &place);
            assert!(number == 0 || !cold.contains(&node.pc), "{place}: {:#x} is not wanted", node.pc);
        }
        assert!(!loops_unseen(&region), "{place}: a loop has no header");
        let reached: BTreeSet<usize> = region.nodes.iter().flat_map(RegionNode::successors).collect();
        assert!((1..region.nodes.len()).all(|n| reached.contains(&n)), "{place}: a node that nothing leads to");
        (built, several) = (built + 1, several + usize::from(region.nodes.len() > 3));
        loops += usize::from(region.nodes.iter().any(|node| node.header));
    }
    assert!(
        built > 2_000 && several > 400 && loops > 150,
        "{built} regions, {several} of several nodes, {loops} loops"
    );
}

/// Assembles lines at [`BASE`], and builds the region that is entered there.
fn of_lines(lines: &[&str], ops_max: usize) -> Region {
    let words: Vec<u32> = lines.iter().map(|line| encode(&assemble(line, 64).unwrap())).collect();
    region(&words, BASE, ops_max, &HashMap::new(), &BTreeSet::new()).expect("a region")
}

#[test]
fn a_function_is_copied_for_each_call_and_returns_to_it() {
    // Two calls of the function at word 4, then the end.
    let lines = [
        "jal ra, . + 16",
        "jal ra, . + 12",
        "addi a0, a0, 1",
        "jal zero, . + 16",
        "add a1, a1, a1",
        "jalr zero, 0(ra)",
    ];
    let region = of_lines(&lines, 1500);
    let copies: Vec<&RegionNode> = region.nodes.iter().filter(|node| node.pc == BASE + 16).collect();
    let backs = copies.iter().map(|copy| match copy.end {
        NodeEnd::Indirect(ref known) => known.iter().map(|(to, _)| *to).collect::<Vec<u64>>(),
        ref end => panic!("{end:?}"),
    });
    assert_eq!(backs.collect::<Vec<_>>(), [vec![BASE + 4], vec![BASE + 8]]);
    assert!(region.nodes.iter().all(|node| !node.header), "nothing loops");
}

#[test]
fn calls_are_followed_to_a_depth_and_never_into_themselves() {
    // Each function calls the next; the last one calls the first.
    let mut lines: Vec<String> =
        (0..12).flat_map(|_| ["jal ra, . + 8".to_owned(), "jalr zero, 0(ra)".to_owned()]).collect();
    let last = lines.len() - 2;
    lines[last] = format!("jal ra, . - {}", 4 * last);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let region = of_lines(&lines, 1500);
    let deepest = region.nodes.iter().map(|node| node.pc).max().unwrap();
    assert!(deepest < BASE + 8 * (DEPTH_MAX as u64 + 2), "{deepest:#x} is deeper than {DEPTH_MAX} calls");
    let recursive = of_lines(&["addi a0, a0, -1", "beq a0, zero, . + 8", "jal ra, . - 8", "jalr zero, 0(ra)"], 1500);
    assert!(recursive.nodes.len() < 12, "{} nodes", recursive.nodes.len());
    assert!(of_lines(&["addi a0, a0, 1", "jal zero, . - 4"], 1500).nodes[0].header, "a loop");
}
