//! Reliability of cells with error correction: raw bit-error rate, code words, read retries, grown bad blocks.
//!
//! The raw bit-error rate is the sum of a base, of wear, of retention and of read disturb (the form that SimpleSSD 2.1
//! takes from measurements of 2y-nm MLC). A code word fails if more of its bits are wrong than the code corrects: the
//! tail of a binomial distribution, tabulated once for every number of retries over rates in steps of an eighth of an
//! octave. One random number is drawn for each page that is read, none while the rate is 0. The page needs n retries
//! if the number is below the probability that n attempts fail: the attempts at one page are modelled as failing
//! together, not independently.
//!
//! A block fails its first erase beyond its endurance; other programs and erases fail with a small probability.
//!
//! The model does not know which bits are wrong, and neither does `fault`: a page that cannot be corrected returns no
//! bytes.

use crate::describe::{Description, Reliability};

/// Table steps per octave (factor of two) of the raw bit-error rate.
const STEPS: f64 = 8.0;
/// Binary exponent of the lowest rate that is not treated as 0: 2^-44, one wrong bit in 2 TiB.
const LEAST_EXPONENT: f64 = -44.0;
/// Number of table steps from the lowest rate up to one half.
const BUCKETS: usize = 43 * STEPS as usize + 1;
/// Table index that stands for a rate treated as 0.
const NEVER: u16 = u16::MAX;

/// Returns the raw bit-error rate of a block that was erased `cycles` times and read `reads` times since its last
/// erase.
pub fn rber(of: &Reliability, cycles: f64, reads: f64) -> f64 {
    let term = |factor: f64, value: f64| if factor == 0.0 { 0.0 } else { factor * value };
    let rate = of.rber_base
        + term(of.rber_cycles, cycles.powf(of.rber_cycles_exp))
        + term(
            of.rber_retention,
            cycles.powf(of.rber_retention_cycles_exp) * of.retention_days.powf(of.rber_retention_days_exp),
        )
        + term(of.rber_reads, cycles.powf(of.rber_reads_cycles_exp) * reads.powf(of.rber_reads_exp));
    rate.clamp(0.0, 0.5)
}

/// Returns the probability that more than `correctable` of `bits` bits are wrong, if each is wrong with probability
/// `rber`: the upper tail of a binomial distribution.
pub fn codeword_failure(bits: u64, correctable: u32, rber: f64) -> f64 {
    let (n, t) = (bits as f64, f64::from(correctable));
    if rber <= 0.0 || t >= n {
        return 0.0;
    }
    let odds = (rber / (1.0 - rber)).ln();
    // Natural logarithm of the probability of exactly k wrong bits, starting at k = 0.
    let mut ln_pmf = n * (-rber).ln_1p();
    let advance = |ln_pmf: f64, k: f64| ln_pmf + ((n - k) / (k + 1.0)).ln() + odds;
    if n * rber > t + 1.0 {
        // Most of the distribution lies above `correctable`: the lower tail is small, so its sum is the accurate one.
        let mut below = 0.0;
        for k in 0..=correctable {
            below += ln_pmf.exp();
            ln_pmf = advance(ln_pmf, f64::from(k));
        }
        return (1.0 - below).clamp(0.0, 1.0);
    }
    for k in 0..=correctable {
        ln_pmf = advance(ln_pmf, f64::from(k));
    }
    let (mut k, mut term) = (t + 1.0, ln_pmf.exp());
    let mut above = 0.0;
    while term > above * 1e-17 && k <= n {
        above += term;
        term *= (n - k) / (k + 1.0) * odds.exp();
        k += 1.0;
    }
    above.min(1.0)
}

/// Wear of a block, and the table index of its error rate.
#[derive(Clone, Copy, Debug)]
struct BlockHistory {
    cycles: u32,
    reads: u32,
    /// Number of reads of the block at which its error rate's table index is computed again.
    next_at: u32,
    bucket: u16,
}

/// Rule by which reads, programs and erases fail, with the wear of every block.
#[derive(Debug)]
pub(super) struct Failures {
    of: Reliability,
    /// Bytes of a code word; of a whole page without error correction.
    codeword_bytes: u32,
    attempts: usize,
    /// Probability that a code word fails, by table index (bucket) and attempt.
    chances: Vec<f64>,
    /// Wear of all blocks; empty until the first erase, or the first read if the error rate depends on wear.
    blocks: Vec<BlockHistory>,
    blocks_total: usize,
    /// The table index of all blocks if their error rate depends neither on wear nor on reads; `None` otherwise.
    constant: Option<u16>,
    endurance_cycles: u32,
    chance: fastrand::Rng,
}

impl Failures {
    pub(super) fn new(description: &Description, seed: u64) -> Self {
        let Description { geometry, nand, reliability: of, .. } = description;
        let page_bytes = geometry.page_bytes;
        let blocks_total = geometry.planes_total() as usize * geometry.blocks as usize;
        let codeword_bytes = if of.ecc_codeword_bytes == 0 { page_bytes } else { of.ecc_codeword_bytes };
        let correctable = if of.ecc_codeword_bytes == 0 { 0 } else { of.ecc_correctable_bits };
        let attempts = of.read_retries_max as usize + 1;
        let varies = of.rber_cycles != 0.0 || of.rber_retention != 0.0 || of.rber_reads != 0.0;
        let constant = (!varies).then(|| bucket_of(of.rber_base));
        let chances = if constant == Some(NEVER) {
            Vec::new()
        } else {
            let mut chances = Vec::with_capacity(BUCKETS * attempts);
            for bucket in 0..BUCKETS {
                let rate = (LEAST_EXPONENT + (bucket as f64 + 0.5) / STEPS).exp2();
                for attempt in 0..attempts {
                    let rate = (rate * of.read_retry_rber_factor.powi(attempt as i32)).clamp(0.0, 0.5);
                    chances.push(codeword_failure(u64::from(codeword_bytes) * 8, correctable, rate));
                }
            }
            chances
        };
        Self {
            of: of.clone(),
            codeword_bytes,
            attempts,
            chances,
            blocks: Vec::new(),
            blocks_total,
            constant,
            endurance_cycles: nand.endurance_cycles,
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the number of code words that hold `bytes` bytes; 0 without error correction.
    pub(super) fn codewords(&self, bytes: u32) -> u32 {
        if self.of.ecc_codeword_bytes == 0 { 0 } else { bytes.div_ceil(self.of.ecc_codeword_bytes) }
    }

    /// Draws the number of sensings of a page that fail before one succeeds; `None` if all allowed attempts fail.
    pub(super) fn read(&mut self, block: usize, bytes: u32) -> Option<u16> {
        let bucket = match self.constant {
            Some(bucket) => bucket,
            None => self.disturb(block),
        };
        if bucket == NEVER {
            return Some(0);
        }
        let chances = &self.chances[usize::from(bucket) * self.attempts..][..self.attempts];
        let codewords = f64::from(bytes.div_ceil(self.codeword_bytes));
        let draw = self.chance.f64();
        // 1 - (1-p)^n <= n p: this bound settles nearly every page without the logarithm below.
        if draw >= codewords * chances[0] {
            return Some(0);
        }
        let fails = |&p: &f64| draw < -(codewords * (-p).ln_1p()).exp_m1();
        let failing = chances.iter().take_while(|p| fails(p)).count();
        (failing < self.attempts).then_some(failing as u16)
    }

    /// Records an erase of a block; returns whether the block is still within its endurance.
    pub(super) fn erased(&mut self, block: usize) -> bool {
        self.make_blocks();
        let block = &mut self.blocks[block];
        block.cycles = block.cycles.saturating_add(1);
        block.reads = 0;
        block.next_at = 0;
        block.cycles <= self.endurance_cycles
    }

    /// Draws whether a program or erase fails, which makes its block bad.
    pub(super) fn grows_bad(&mut self) -> bool {
        self.of.grown_bad_ppm > 0 && self.chance.u32(0..1_000_000) < self.of.grown_bad_ppm
    }

    /// Counts a read of a block and returns the table index of its error rate, which is computed again whenever the
    /// number of reads has grown by an eighth.
    fn disturb(&mut self, block: usize) -> u16 {
        self.make_blocks();
        let block = &mut self.blocks[block];
        if block.reads >= block.next_at {
            block.bucket = bucket_of(rber(&self.of, f64::from(block.cycles), f64::from(block.reads)));
            block.next_at = block.reads + block.reads / 8 + 1;
        }
        block.reads = block.reads.saturating_add(1);
        block.bucket
    }

    fn make_blocks(&mut self) {
        if self.blocks.is_empty() {
            let fresh = BlockHistory { cycles: self.of.cycles_before, reads: 0, next_at: 0, bucket: NEVER };
            self.blocks = vec![fresh; self.blocks_total];
        }
    }
}

fn bucket_of(rate: f64) -> u16 {
    if rate <= LEAST_EXPONENT.exp2() {
        return NEVER;
    }
    (((rate.log2() - LEAST_EXPONENT) * STEPS) as usize).min(BUCKETS - 1) as u16
}

/// Whether a block is bad from the factory: decided by a hash of the block's number, so that the answer needs no
/// memory and does not depend on the order of queries.
pub(super) fn is_factory_bad(seed: u64, ppm: u32, block: u64) -> bool {
    ppm > 0 && fastrand::Rng::with_seed(seed ^ block.wrapping_mul(0x9E37_79B9_7F4A_7C15)).u32(0..1_000_000) < ppm
}
