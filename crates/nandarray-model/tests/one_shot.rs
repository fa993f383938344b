//! Promise: where the pages of a word line are programmed together, sequential writes come within 10 % of the rate that
//! follows from the description's dies, channels and link; no request waits for ever for the rest of a word line.

#[path = "../benches/model/cases.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "shared with a benchmark, which uses all of it")]
mod cases;

use cases::{Before, Case};
use nandarray_model::describe::{self, Description};

/// Returns the bytes per second of sequential writes of 128 KiB once the cache is full, and the mean number of pages
/// that a command programmed.
fn sequential_writes(d: &Description) -> (f64, f64) {
    let bytes = 128 << 10;
    let warm_up = 2 * d.ftl.write_cache_bytes / bytes;
    let case = Case::closed("sequential writes", Before::Filled, bytes, true, 0.0, 32, 4_000).warm_up(warm_up);
    let mut machine = case.machine(d);
    let (report, counted) = case.run(&mut machine);
    assert_eq!(counted.failed, 0);
    let counts = machine.flash().counts;
    (report.all.bytes_per_s, counts.programs[0] as f64 / counts.program_commands[0] as f64)
}

fn comes_near(d: &Description) {
    let s = d.summarise();
    let (got, pages) = sequential_writes(d);
    let want = s.program_bytes_per_s.min(s.link_bytes_per_s) as f64;
    assert!((0.9..1.1).contains(&(got / want)), "{}: {got} B/s instead of {want}", d.name);
    let whole = d.nand.cell.bits() as f64 * f64::from(d.geometry.planes);
    assert!(pages > 0.9 * whole, "{}: {pages} pages a command of {whole}", d.name);
}

#[test]
fn sequential_writes_fill_word_lines() {
    for name in ["tlc-enterprise", "qlc-enterprise"] {
        comes_near(&describe::preset(name).unwrap());
    }
    // The QLC drive is bound by its link; with a faster link, a buffer for all of its dies and fast DRAM, it is bound
    // by its dies.
    let wide = [("link.rate", "PCIe 5 x16"), ("ftl.write_cache", "512 MiB"), ("dram.rate", "ideal")];
    comes_near(&describe::preset_with("qlc-enterprise", &wide).unwrap());
    // Striping that chooses planes one by one, and striping with one plane per die.
    for striping in ["dynamic CWDP", "static PCWD"] {
        let d =
            describe::preset_with("tlc-enterprise", &[("ftl.striping", striping), ("geometry.planes", "1")]).unwrap();
        comes_near(&d);
    }
}
