//! `[host]`: the host's cores and queues.

use nandarray_describe::ValueKind::{Count, Counts, Rate, Size, TimeOrNone, Word};
use nandarray_describe::{Checks, Quantities, declare};
use nandarray_sim::Ps;

use super::super::Description;
use super::{KIB, SHORT};

/// Arbitration between submission queues.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The queues in turn, up to `burst` commands each.
    RoundRobin {
        /// Maximum number of commands per turn.
        burst: u32,
    },
    /// Weighted round robin with urgent priority class (NVMe base specification, 3.4.4).
    Weighted {
        /// Maximum number of commands per turn.
        burst: u32,
        /// Weights of the high, medium and low class.
        weights: [u32; 3],
        /// Number of urgent, high, medium and low queues, counted from queue 0; the remaining queues are medium.
        classes: [u32; 4],
    },
}

impl Arbitration {
    fn read(q: &Quantities<'_>) -> Self {
        let burst = q.get("host.arbitration_burst");
        if q.is("host.arbitration", "round-robin") {
            return Self::RoundRobin { burst };
        }
        let whole = |n: Option<u32>| n.expect("a list of counts has no \"none\"");
        let (weights, classes) = (q.get("host.arbitration_weights"), q.get("host.queue_classes"));
        let (weights, classes): ([_; 3], [_; 4]) = (weights, classes);
        Self::Weighted { burst, weights: weights.map(whole), classes: classes.map(whole) }
    }
}

declare! {
    /// The host's cores and queues.
    pub struct HostSettings in "host", from "no cost: nothing is assumed", {
        "queues": Count(1, 65_535), "queue pairs", bound "NVMe has 65,535 I/O queues", default "8" => queues: u32;
        "queue_entries": Count(2, 65_536), "commands that each may hold",
            bound "an NVMe queue has 65,536 entries",
            default "1024" => queue_entries: u32;
        "arbitration": Word(&["round-robin", "weighted"]), "whose command the device takes next", default "round-robin"
            => arbitration: Arbitration = Arbitration::read;
        "arbitration_burst": Count(1, 128), "commands a turn",
            bound "NVMe writes it as a power of 2 up to 7",
            default "1";
        "arbitration_weights": Counts(3, 1, 256), "weighted: commands of high, medium and low queues in a round",
            default "[1, 1, 1]";
        "queue_classes": Counts(4, 0, 65_535),
            "how many queues, from queue 0 on, are urgent, high, medium and low; those beyond are medium",
            bound "there are at most 65,535 queues",
            default "[0, 0, 0, 0]";
        "t_submit": SHORT, "CPU time to build and submit a command", default "0 s" => t_submit: Ps;
        "t_complete": SHORT, "CPU time to take a completion", default "0 s" => t_complete: Ps;
        "t_interrupt": TimeOrNone(Ps::ZERO, Ps::from_ms(10)), "until the CPU notices a completion; none: polled",
            default "none" =>
            /// Interrupt latency, from the completion until the CPU notices it; `None` if the host polls.
            t_interrupt: Option<Ps>;
        "t_copy_run": SHORT, "CPU time of each run copied on the host, beyond its bytes", default "0 s"
            => t_copy_run: Ps;
        "copy_rate": Rate(1_000_000, 1_000_000_000_000), "what one host core copies",
            default "8 GB/s" from "assumed: memcpy of one core of a current server" => copy_bytes_per_s: u64;
        "t_translate": SHORT, "CPU time to translate a building block's address, where the host translates spaces",
            default "0 s" => t_translate: Ps;
        "composes": Word(&["block", "command"]),
            "where the host translates spaces: what it composes before it programs any of it",
            default "block" =>
            /// Whether the host, where it translates spaces, composes all blocks of a written command before it
            /// programs the first, as software without asynchronous writes does.
            composes_commands: bool = |q| q.is("host.composes", "command");
        "transfer_max": Size(4 * KIB, 1 << 31), "the most bytes that one command moves (MDTS)",
            default "1 MiB" from "assumed: an MDTS of 8, common among drives" => transfer_max_bytes: u32;
        "cores": Count(1, 1_024), "host cores that submit, take completions and copy", default "8" => cores: u32;
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    if let Arbitration::Weighted { classes, .. } = d.host.arbitration {
        let (named, queues) = (classes.iter().map(|&n| u64::from(n)).sum::<u64>(), u64::from(d.host.queues));
        checks.hold(
            named <= queues,
            "host.queue_classes",
            || format!("names the classes of {named} queues"),
            || format!("host.queues is {queues}"),
        );
    }
}
