//! One-shot programming beside a naive die: pages of one block arrive in order, and the die programs a word line as
//! soon as it is complete, or what is there of it once its first page has waited for a program time.

use super::{Rig, at, device};
use crate::flash::{OpCause, OpKind};
use nandarray_sim::Ps;

/// Returns the end of each page's program on a die that is searched page by page.
fn naive(arrivals: &[u64], word_line: usize, pages: usize, (command, transfer, program, hold): Times) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut free = 0;
    while ends.len() < arrivals.len() {
        let first = ends.len();
        let line_end = ((first % pages / word_line + 1) * word_line).min(pages) + first / pages * pages;
        // The moment at which the rest of the word line is there, or the wait for it is over.
        let complete = arrivals.get(line_end - 1).copied().unwrap_or(u64::MAX);
        let begins = free.max(complete.min(arrivals[first] + hold));
        let there = (first..line_end).take_while(|&n| n < arrivals.len() && arrivals[n] <= begins).count();
        free = begins + command + there as u64 * transfer + program;
        ends.extend(std::iter::repeat_n(free, there));
    }
    ends
}

type Times = (u64, u64, u64, u64);

#[test]
fn word_lines_are_programmed_when_a_naive_die_would() {
    for seed in 0..120 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (cell, word_line, pages) = [("mlc", 2, "8"), ("tlc", 3, "9"), ("qlc", 4, "12")][chance.usize(0..3)];
        let mut d = device(&[
            ("nand.cell", cell),
            ("nand.one_shot", "true"),
            ("nand.t_read", "75 us"),
            ("nand.t_program", "750 us"),
            ("geometry.pages", pages),
        ]);
        d.bus.t_program_command = Ps(361_007);
        let pages: usize = pages.parse().unwrap();
        let transfer = Ps::of_bytes(8_192, d.bus.bytes_per_s).0;
        let times = (361_007, transfer, d.nand.t_program[0].0 + d.nand.t_ready.0, d.nand.t_program[0].0);
        let mut now = 0;
        let arrivals: Vec<u64> = (0..chance.usize(1..2 * pages))
            .map(|_| {
                now += [0, chance.u64(1..30_000_000), chance.u64(1..2_000_000_000)][chance.usize(0..3)];
                now
            })
            .collect();
        let mut rig = Rig::new(&d);
        let mut got = vec![0; arrivals.len()];
        for (n, &at_ps) in arrivals.iter().enumerate() {
            for (now, ended) in rig.until(Ps(at_ps)) {
                got[ended.token as usize] = now.0;
            }
            rig.submit(OpKind::Program, OpCause::Host, at(0, 0, (n / pages) as u32, (n % pages) as u16), 8_192);
        }
        loop {
            let ended = rig.step();
            if ended.is_empty() {
                break;
            }
            ended.into_iter().for_each(|(now, e)| got[e.token as usize] = now.0);
        }
        let want = naive(&arrivals, word_line, pages, times);
        assert_eq!(got, want, "seed {seed}, {cell}, arrivals {arrivals:?}");
        let commands: u64 = rig.flash.counts().program_commands.iter().sum();
        let mut distinct = want.clone();
        distinct.dedup();
        assert_eq!(commands, distinct.len() as u64, "seed {seed}: one command for each word line or part of one");
    }
}
