//! `[reliability]`: errors of the cells, and their correction.

use nandarray_describe::ValueKind::{self, Count, Real, SizeOr};
use nandarray_describe::{Checks, declare, show_size};
use nandarray_sim::Ps;

use super::super::Description;
use super::{KIB, SHORT};

const COEFFICIENT: ValueKind = Real(0.0, 1.0);
const EXPONENT: ValueKind = Real(0.0, 10.0);
const PPM: ValueKind = Count(0, 500_000);

declare! {
    /// Cell errors and their correction. With all rates 0 and no error correction, the device has no faults.
    pub struct Reliability in "reliability", from "no faults: nothing is assumed", {
        "rber_base": COEFFICIENT, "raw bit-error rate of a fresh block", default "0" => rber_base: f64;
        "rber_cycles": COEFFICIENT, "wear: this * C^exp, C in program/erase cycles", default "0" => rber_cycles: f64;
        "rber_cycles_exp": EXPONENT, "its exponent", default "0" => rber_cycles_exp: f64;
        "rber_retention": COEFFICIENT, "retention: this * C^exp * days^exp", default "0" => rber_retention: f64;
        "rber_retention_cycles_exp": EXPONENT, "its exponent of C", default "0" => rber_retention_cycles_exp: f64;
        "rber_retention_days_exp": EXPONENT, "its exponent of days", default "0" => rber_retention_days_exp: f64;
        "rber_reads": COEFFICIENT, "read disturb: this * C^exp * reads^exp, reads since the block's erase",
            default "0" =>
            /// Coefficient of the read-disturb term `rber_reads * C^rber_reads_cycles_exp * reads^rber_reads_exp`,
            /// with the reads of the block since its erase.
            rber_reads: f64;
        "rber_reads_cycles_exp": EXPONENT, "its exponent of C", default "0" => rber_reads_cycles_exp: f64;
        "rber_reads_exp": EXPONENT, "its exponent of reads", default "0" => rber_reads_exp: f64;
        "retention_days": Real(0.0, 36_500.0), "days since a page was written, for the whole run", default "0"
            => retention_days: f64;
        "cycles_before": Count(0, 100_000_000), "cycles that every block had before the run", default "0"
            => cycles_before: u32;
        "ecc_codeword_size": SizeOr("none", 64, 64 * KIB), "what one code word protects; none: no ECC",
            default "none" =>
            /// Bytes that one code word protects; 0 without error correction.
            ecc_codeword_bytes: u32;
        "ecc_correctable_bits": Count(0, 65_536), "bits that a code word can correct", default "0"
            => ecc_correctable_bits: u32;
        "t_ecc_decode": SHORT, "decoding a code word", default "0 s" => t_ecc_decode: Ps;
        "t_read_retry": SHORT, "reading again at another reference voltage, beyond another sensing", default "0 s"
            => t_read_retry: Ps;
        "read_retries_max": Count(0, 1_000), "retries before a page is given up", default "0"
            => read_retries_max: u32;
        "read_retry_rber_factor": COEFFICIENT, "by what each retry multiplies the raw bit-error rate", default "1"
            => read_retry_rber_factor: f64;
        "factory_bad_ppm": PPM, "blocks bad when made, per million", default "0" => factory_bad_ppm: u32;
        "grown_bad_ppm": PPM, "erases or programs that fail, per million", default "0" => grown_bad_ppm: u32;
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let r = &d.reliability;
    let page = d.geometry.page_bytes;
    checks.hold(
        r.ecc_codeword_bytes == 0 || page.is_multiple_of(r.ecc_codeword_bytes),
        "reliability.ecc_codeword_size",
        || "does not divide the page".to_owned(),
        || format!("allowed are divisors of {}", show_size(page.into())),
    );
    checks.hold(
        r.ecc_codeword_bytes > 0 || r.ecc_correctable_bits == 0,
        "reliability.ecc_correctable_bits",
        || "corrects bits without code words".to_owned(),
        || "allowed is 0 while ecc_codeword_size is \"none\"".to_owned(),
    );
    checks.hold(
        r.ecc_codeword_bytes == 0 || u64::from(r.ecc_correctable_bits) <= u64::from(r.ecc_codeword_bytes) * 4,
        "reliability.ecc_correctable_bits",
        || "is more than half of the code word's bits".to_owned(),
        || format!("allowed are at most {} for {} B", u64::from(r.ecc_codeword_bytes) * 4, r.ecc_codeword_bytes),
    );
}
