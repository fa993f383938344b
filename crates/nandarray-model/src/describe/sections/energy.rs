//! `[energy]` and `[power]`: energy and power of every part; states of rest.

use nandarray_describe::ValueKind::{self, EnergyPerByte, List, PowerOr, Time};
use nandarray_describe::{Checks, Quantities, Quantity, Value, declare};
use nandarray_sim::Ps;

use super::super::Description;
use super::POWER;
use super::nand::Nand;

const OPERATION: ValueKind = ValueKind::Energy(0.0, 1e12);
const PER_BYTE: ValueKind = EnergyPerByte(0.0, 1e6);
/// Idle time of a device, or time that it takes to wake: up to an hour.
const LONG: ValueKind = Time(Ps::ZERO, Ps::from_ms(3_600_000));
const IDLE_STATES_MAX: usize = 32;
const A_CURRENT: &str = "a current is the die's for as long as a command lasts, shared by its planes";

/// Returns the source of a value that SimpleSSD has.
macro_rules! simplessd {
    ($what:literal) => {
        concat!($what, " (SimpleSSD 2.0, pal/config.cc: https://github.com/SimpleSSD/SimpleSSD)")
    };
}

declare! {
    /// Energy of operations and bytes in picojoules, and power of parts in microwatts.
    #[derive(Copy, Default)]
    pub struct Energy in "energy", from "assumed: order of magnitude", {
        "read": OPERATION, "sensing a page",
            bound A_CURRENT,
            default "25 mA at 3.3 V" from simplessd!("Micron MT29F64*: ICC1 25 mA at 3.3 V")
            => read_pj: f64 = |q| sensing(q).0 =>
            /// Energy of each sensing command of a die, however many of its planes take part: data sheets state a
            /// current, which the whole die draws for the duration of a command.
            read_command_pj: f64 = |q| sensing(q).1;
        "program": OPERATION, "programming a page; with one_shot a word line's share of it",
            bound A_CURRENT,
            default "25 mA at 3.3 V" from simplessd!("Micron MT29F64*: ICC2 25 mA at 3.3 V")
            => program_pj: f64 = |q| programming(q).0
            => program_command_pj: f64 = |q| programming(q).1;
        "erase": OPERATION, "erasing a block",
            bound A_CURRENT,
            default "25 mA at 3.3 V" from simplessd!("Micron MT29F64*: ICC3 25 mA at 3.3 V")
            => erase_pj: f64 = |q| erasing(q).0
            => erase_command_pj: f64 = |q| erasing(q).1;
        "bus_byte": PER_BYTE, "a byte over a channel",
            default "20 pJ/B" from "assumed: channel I/O of 20 pJ/B, the default of a third party's reproduction of \
            an ICCAD 2025 paper; not verified"
            => bus_pj_per_byte: f64;
        "dram_byte": PER_BYTE, "a byte into or out of DRAM",
            default "60 pJ/B" from "assumed: LPDDR5 at 60 pJ/B, as in that reproduction" => dram_pj_per_byte: f64;
        "link_byte": PER_BYTE, "a byte over the link", default "40 pJ/B" => link_pj_per_byte: f64;
        "ecc": OPERATION, "a code word decoded; a current lasts for t_ecc_decode", default "2 nJ"
            => ecc_pj: f64 = |q| decoding(q);
        "die_idle": POWER, "a die that rests",
            default "10 uA at 3.3 V" from simplessd!("Micron MT29F64*: standby 10 uA at 3.3 V") => die_idle_uw: f64;
        "dram_idle": PowerOr("by size", 0.0, 1e9), "refresh and standby of DRAM", default "by size"
            => dram_idle_uw: f64 = dram_idle;
        "dram_idle_gib": POWER, "... of a GiB of it, where dram_idle goes by dram.size",
            default "80 mW" from "assumed: DDR3L of 1.35 V, IDD2N 21 mA to IDD3N 34 mA (SimpleSSD 2.0, \
            config/sample.cfg), in parts of 4 Gb";
        "link_idle": POWER, "the link, up", default "30 mW" => link_idle_uw: f64;
        "core_active": POWER, "an embedded core that works", default "100 mW" => core_active_uw: f64;
        "core_idle": POWER, "an embedded core that rests", default "10 mW" => core_idle_uw: f64;
        "controller_idle": POWER, "everything else of the controller", default "300 mW" => controller_idle_uw: f64;
        "host_core_active": POWER, "a host core that works on I/O", default "6 W" => host_core_active_uw: f64;
    }
}

/// Returns an operation's energy in picojoules, per page and per command; one of the two is 0. A value that is a
/// current gives an energy per command: the die draws the current for the time `lasts`, however many of its planes
/// take part.
fn energy_pj(q: &Quantities<'_>, path: &str, lasts: Ps) -> (f64, f64) {
    match q.quantity(path) {
        Quantity::Real(pj) => (*pj, 0.0),
        Quantity::WattsWhile(watts) => (0.0, watts * lasts.0 as f64),
        other => panic!("{path} is {other:?}"),
    }
}

/// Returns the mean of the times of a list: all kinds of pages are equally frequent.
fn mean(all: &[Ps]) -> Ps {
    Ps(all.iter().map(|t| t.0).sum::<u64>() / all.len() as u64)
}

fn sensing(q: &Quantities<'_>) -> (f64, f64) {
    energy_pj(q, "energy.read", mean(&Nand::read(q).t_read))
}

fn programming(q: &Quantities<'_>) -> (f64, f64) {
    energy_pj(q, "energy.program", mean(&Nand::read(q).t_program))
}

fn erasing(q: &Quantities<'_>) -> (f64, f64) {
    energy_pj(q, "energy.erase", q.get("nand.t_erase"))
}

fn decoding(q: &Quantities<'_>) -> f64 {
    let (each, lasting) = energy_pj(q, "energy.ecc", q.get("reliability.t_ecc_decode"));
    each + lasting
}

fn dram_idle(q: &Quantities<'_>) -> f64 {
    let gib = q.get::<u64>("dram.size") as f64 / f64::from(1 << 30);
    q.get::<Option<f64>>("energy.dram_idle").unwrap_or_else(|| q.get::<f64>("energy.dram_idle_gib") * gib)
}

/// A low-power state that a device enters after it has been idle for some time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct IdleState {
    /// Power of the whole device in this state, in microwatts.
    pub power_uw: f64,
    /// Idle time after which the device enters this state.
    pub t_after: Ps,
    /// Time from the doorbell that wakes the device to the first command fetched.
    pub t_exit: Ps,
}

declare! {
    /// The states of rest.
    pub(in super::super) struct Resting in "power", from "no idle states: nothing is assumed", {
        "idle": List(&POWER, IDLE_STATES_MAX),
            "what the whole device takes in each of its idle states, the lightest first",
            default "none" => idle_states: Vec<IdleState> = idle_states;
        "idle_after": List(&LONG, IDLE_STATES_MAX), "how long it has rested when it enters each", default "none";
        "exit": List(&LONG, IDLE_STATES_MAX), "what waking from each adds to the command that wakes it",
            default "none";
    }
}

fn idle_states(q: &Quantities<'_>) -> Vec<IdleState> {
    let powers: Vec<f64> = q.get("power.idle");
    let [after, exits]: [Vec<Ps>; 2] = ["power.idle_after", "power.exit"].map(|path| q.get(path));
    // The lists have the same length; `check` reports a difference.
    let times = after.into_iter().zip(exits);
    powers.into_iter().zip(times).map(|(power_uw, (t_after, t_exit))| IdleState { power_uw, t_after, t_exit }).collect()
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let length = |path: &str| match checks.written(path) {
        Some(Value::List(all)) => all.len(),
        Some(Value::Text(text)) if text.trim() == "none" => 0,
        _ => 1,
    };
    let [idle, after, exit] = ["power.idle", "power.idle_after", "power.exit"].map(length);
    for (path, n) in [("power.idle_after", after), ("power.exit", exit)] {
        checks.hold(
            n == idle,
            path,
            || format!("has {n} entries for {idle} idle states"),
            || "allowed is one for each entry of power.idle".to_owned(),
        );
    }
    let deeper = |a: &IdleState, b: &IdleState| a.t_after < b.t_after && a.power_uw >= b.power_uw;
    checks.hold(
        d.idle_states.windows(2).all(|pair| deeper(&pair[0], &pair[1])),
        "power.idle_after",
        || "does not go from the lightest state to the deepest".to_owned(),
        || "each state is entered later than the one before it, and takes no more".to_owned(),
    );
}
