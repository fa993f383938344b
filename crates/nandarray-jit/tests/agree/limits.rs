//! Promise: a program that is stopped after any number of instructions is, stopped and continued, where the interpreter
//! is, whether or not its code was translated before.

use super::*;

/// Compares the translator with the interpreter at every limit from 1 to `most`; the code of earlier limits is kept.
fn at_every_limit<X: Xlen>(seed: u64, kind: InstructionMix, most: u64) {
    let mut start = start(&mut Chance(seed), X::BITS, kind);
    let extensions = kind.extensions();
    let when = [TranslationTrigger::Visited(0), TranslationTrigger::Pays(Costs::NONE)][seed as usize % 2];
    let settings = Settings { when, region_instructions: [7, 60, 1500][seed as usize % 3], ..Settings::default() };
    let mut translated = Translated::<X>::with_settings(extensions, settings);
    let mut interpreter = Hart::<X>::new(HartMode::Program, extensions);
    for limit in 1..=most {
        // A first run of `limit` instructions, then runs of other lengths.
        start.limits = vec![limit, 1 + limit % 5, 40];
        let (ours, our_memory) = play(&start, &mut translated);
        let (theirs, their_memory) = play(&start, &mut interpreter);
        let place = format!("seed {seed} {kind:?} RV{} {settings:?}, limit {limit}", X::BITS);
        for (run, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert!(a == b, "{place}, run {run}:\n{}", differences(a, b, &start));
        }
        assert!(ours.len() == theirs.len() && our_memory == their_memory, "{place}: memory differs");
    }
}

#[test]
fn every_limit_stops_where_the_interpreter_stops() {
    let deep = std::env::var_os("NANDARRAY_DEEP").is_some();
    let (seeds, most) = if deep { (200, 400) } else { (3, 60) };
    for seed in 0..seeds {
        for kind in [InstructionMix::Integer, InstructionMix::Ordinary, InstructionMix::Stream, InstructionMix::Any] {
            at_every_limit::<Rv64>(seed, kind, most);
            at_every_limit::<Rv32>(seed + 1000, kind, most);
        }
    }
}
