//! `[nand]`: times of the cells, and abilities of a die.

use nandarray_describe::ValueKind::{Count, Flag, Time, TimeOrNone, Times, Word};
use nandarray_describe::{Checks, Quantities, declare, words};
use nandarray_sim::Ps;

use super::super::Description;
use super::SHORT;

words! {
    /// Kind of cells, by the number of bits that each holds.
    #[derive(Hash)]
    pub enum Cell {
        /// One bit.
        Slc = "slc",
        /// Two bits.
        Mlc = "mlc",
        /// Three bits.
        Tlc = "tlc",
        /// Four bits.
        Qlc = "qlc",
    }
}

impl Cell {
    /// Returns the number of bits of a cell, which is also the number of kinds of pages.
    pub fn bits(self) -> usize {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
            Self::Qlc => 4,
        }
    }
}

declare! {
    /// Times of the cells, and abilities of a die.
    pub struct Nand in "nand", from "assumed: not published", {
        "cell": Word(Cell::WORDS), "bits of a cell" => cell: Cell;
        "t_read": Times(Ps::from_ns(100), Ps::from_ms(10)), "sensing a page, by kind of page, LSB first" =>
            /// Time to sense a page, by kind of page (LSB first); `cell.bits()` entries.
            t_read: Vec<Ps> = |q| times(q, "nand.t_read", q.get::<Cell>("nand.cell").bits());
        "t_program": Times(Ps::from_ns(100), Ps::from_ms(100)),
            "programming, by kind of page; with one_shot once for all pages of a word line" =>
            /// Time to program a page, by kind of page; with `one_shot`, one entry: all pages of a word line at once.
            t_program: Vec<Ps> = |q| times(q, "nand.t_program", programs(q));
        "t_erase": Time(Ps::from_ns(100), Ps::from_ms(1_000)), "erasing a block" => t_erase: Ps;
        "t_ready": SHORT, "from the end of an array operation to the ready/busy line telling so",
            default "20 ns" from "MQSim 7ec40e3 (https://github.com/CMU-SAFARI/MQSim): the delay of the ready/busy \
            line"
            => t_ready: Ps;
        "one_shot": Flag, "whether the pages of a word line are programmed together", default "false"
            => one_shot: bool;
        "multi_plane": Flag, "whether the planes of a die take one command together", default "true"
            => multi_plane: bool;
        "independent_planes": Flag, "whether a multi-plane read may read different pages of its planes",
            default "false" =>
            /// Whether a multi-plane read may read different pages on its planes; otherwise the page number must be
            /// the same on all.
            independent_planes: bool;
        "t_cache_read_busy": TimeOrNone(Ps::ZERO, Ps::from_ms(1)), "cache read: tRCBSY; none: it has none",
            default "none" =>
            /// Busy time tRCBSY of a cache read, which senses the next page while the last one is transferred; `None`
            /// if dies have no cache reads.
            t_cache_read_busy: Option<Ps>;
        "t_cache_program_busy": TimeOrNone(Ps::ZERO, Ps::from_ms(1)), "cache program: tCBSY", default "none" =>
            /// Busy time tCBSY of a cache program, which receives data for the next page while this one is
            /// programmed; `None` if dies have no cache programs.
            t_cache_program_busy: Option<Ps>;
        "t_suspend_program": TimeOrNone(Ps::ZERO, Ps::from_ms(10)),
            "until a suspended program lets the die read; none: it cannot",
            default "none" =>
            /// Time from a program's suspension until the die can read; `None` if programs cannot be suspended.
            t_suspend_program: Option<Ps>;
        "t_suspend_erase": TimeOrNone(Ps::ZERO, Ps::from_ms(10)), "... a suspended erase", default "none" =>
            /// Time from an erase's suspension until the die can read; `None` if erases cannot be suspended.
            t_suspend_erase: Option<Ps>;
        "t_resume": SHORT, "going on with what was suspended", default "0 s" => t_resume: Ps;
        "suspends_max": Count(0, 10_000), "how often one operation may be suspended", default "0"
            => suspends_max: u32;
        "endurance_cycles": Count(1, 1_000_000_000), "program/erase cycles that a block is good for"
            => endurance_cycles: u32;
    }
}

/// Returns the `n` times of a key; a value with a single time stands for `n` equal ones.
fn times(q: &Quantities<'_>, path: &str, n: usize) -> Vec<Ps> {
    let all: Vec<Ps> = q.get(path);
    if all.len() == 1 { vec![all[0]; n] } else { all }
}

/// Returns the number of programs that fill a word line.
fn programs(q: &Quantities<'_>) -> usize {
    if q.get("nand.one_shot") { 1 } else { q.get::<Cell>("nand.cell").bits() }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let n = &d.nand;
    let bits = n.cell.bits();
    let cell = || format!("allowed are one for all, or {bits}: a cell of {bits} bits has {bits} kinds of pages");
    checks.hold(n.t_read.len() == bits, "nand.t_read", || format!("has {} times", n.t_read.len()), cell);
    let programs = if n.one_shot { 1 } else { bits };
    checks.hold(
        n.t_program.len() == programs,
        "nand.t_program",
        || format!("has {} times", n.t_program.len()),
        || {
            if n.one_shot { "allowed is one: one_shot programs a word line at once".to_owned() } else { cell() }
        },
    );
    checks.hold(
        !n.one_shot || d.geometry.pages.is_multiple_of(bits as u32),
        "geometry.pages",
        || format!("is no multiple of {bits}"),
        || "one_shot programs whole word lines".to_owned(),
    );
    let suspends = n.t_suspend_program.is_some() || n.t_suspend_erase.is_some();
    checks.hold(
        !suspends || n.suspends_max > 0,
        "nand.suspends_max",
        || "never suspends, though there is a time for it".to_owned(),
        || "allowed is at least 1, or \"none\" for t_suspend_program and t_suspend_erase".to_owned(),
    );
    let shortest = n.t_program.iter().min().copied().unwrap_or_default();
    for (path, suspend, lasts) in [
        ("nand.t_suspend_program", n.t_suspend_program, shortest),
        ("nand.t_suspend_erase", n.t_suspend_erase, n.t_erase),
    ] {
        checks.hold(
            suspend.is_none_or(|t| t < lasts),
            path,
            || "takes as long as what it suspends".to_owned(),
            || format!("allowed is less than {lasts}"),
        );
    }
}
