//! D-choices: chooses the block with the fewest live pages of d candidates drawn at random (the randomised greedy of
//! Li, Lee, Lui, SIGMETRICS 2013; MQSim's RGA).
//!
//! A draw of a block that is no candidate (open, free, or without a dead page) is repeated, with up to four draws for
//! each of the d; so if there are few candidates this rule may find none.

use super::{Draw, ReclaimView};

/// Largest number of draws for each of the d candidates.
const DRAWS: u32 = 4;

pub(super) fn pick(blocks: &dyn ReclaimView, d: u32, draw: Draw<'_>) -> Option<u32> {
    assert!(d > 0, "d-choices of no blocks");
    let count = blocks.count();
    if count == 0 {
        return None;
    }
    let mut best: Option<(u32, u32)> = None;
    let mut found = 0;
    for _ in 0..d.saturating_mul(DRAWS) {
        let block = draw(count);
        let Some(drawn) = blocks.candidate(block) else { continue };
        if best.is_none_or(|(live, _)| drawn.live < live) {
            best = Some((drawn.live, block));
        }
        found += 1;
        if found == d {
            break;
        }
    }
    best.map(|(_, block)| block)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Listed;
    use super::*;

    #[test]
    fn the_emptiest_of_the_drawn_candidates_is_chosen() {
        let blocks = Listed(&[Some((8, 1)), None, Some((3, 1)), Some((3, 1)), Some((16, 1)), Some((1, 1))], 0);
        let pick = |d: u32, drawn: &[u32]| {
            let mut draws = drawn.iter().copied();
            let picked = pick(&blocks, d, &mut |_| draws.next().expect("another draw"));
            (picked, draws.len())
        };
        assert_eq!(pick(2, &[0, 2, 5]), (Some(2), 1), "two candidates were drawn, the third is not needed");
        assert_eq!(pick(3, &[3, 0, 2]), (Some(3), 0), "of equal ones the first");
        assert_eq!(pick(2, &[1, 4, 0, 1, 2, 5]), (Some(2), 1), "no candidates: not closed, wholly live");
        assert_eq!(pick(2, &[1, 1, 4, 4, 1, 1, 0, 1, 5]), (Some(0), 1), "four draws for each");
        assert_eq!(pick(1, &[4; 4]), (None, 0));
    }
}
