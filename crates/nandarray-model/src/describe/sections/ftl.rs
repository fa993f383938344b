//! `[ftl]`: flash management of the conventional, page-mapped configuration.

pub use nandarray::policy::GcPolicy;
use nandarray_describe::ValueKind::{self, Count, CountOrNone, Flag, Share, Size, SizeOr, Word};
use nandarray_describe::{Checks, FromQuantity, Quantity, declare, show_size};

use super::super::Description;
use super::{KIB, TIB};

/// Order in which conventional flash management distributes pages over parallel units.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Striping {
    /// Page n goes to a fixed unit. Units are counted in the order of the letters C (channel), W (way), D (die), P
    /// (plane); the first letter varies fastest.
    Static([StripeLevel; 4]),
    /// Pages go to the next idle plane, searched in this order.
    Dynamic([StripeLevel; 4]),
}

/// Level of parallel units, a letter of a striping order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeLevel {
    /// C: channels.
    Channel,
    /// W: ways, the chips of a channel.
    Way,
    /// D: dies of a chip.
    Die,
    /// P: planes of a die.
    Plane,
}

impl FromQuantity for Striping {
    fn from_quantity(quantity: &Quantity) -> Option<Self> {
        let Quantity::Striping(dynamic, letters) = *quantity else { return None };
        let order = letters.map(|letter| match letter {
            b'C' => StripeLevel::Channel,
            b'W' => StripeLevel::Way,
            b'D' => StripeLevel::Die,
            b'P' => StripeLevel::Plane,
            other => panic!("{:?} is no letter of a striping", char::from(other)),
        });
        Some(if dynamic { Self::Dynamic(order) } else { Self::Static(order) })
    }
}

declare! {
    /// Flash management of the conventional configuration.
    pub struct FtlSettings in "ftl", from "assumed: common choices", {
        "over_provisioning": Share(0.0, 0.9), "share of the flash that users do not see", default "7 %"
            => over_provisioning: f64;
        "striping": ValueKind::Striping, "order of channel, way, die, plane in which pages are placed, first fastest",
            default "static CWDP" => striping: Striping;
        "map_cache": SizeOr("ideal", 4 * KIB, TIB), "map kept in DRAM; ideal: all of it, at no time", default "ideal"
            =>
            /// Bytes of DRAM for the cached part of the map; `None` for an ideal map, all of it in memory without
            /// access time.
            map_cache_bytes: Option<u64>;
        "map_entry_size": Size(1, 64), "a map entry", default "8 B" => map_entry_bytes: u32;
        "gc": Word(GcPolicy::NAMES), "which block reclaim takes", default "greedy" =>
            gc: GcPolicy = |q| GcPolicy::by_name(q.get("ftl.gc"), q.get("ftl.gc_choices")).expect("a name");
        "gc_choices": Count(1, 65_536), "d of d-choices, w of windowed-greedy", default "8";
        "gc_threshold": Share(0.0, 0.5), "reclaim begins when a plane has fewer free blocks than this share",
            default "3 %" => gc_threshold: f64;
        "gc_urgent_blocks": Count(1, 10_000), "writes wait for reclaim when it has fewer than this many", default "2"
            => gc_urgent_blocks: u32;
        "gc_preemptible": Flag, "whether host requests go before reclaim until it is urgent", default "true"
            => gc_preemptible: bool;
        "wear_dynamic": Flag, "whether the least worn free block is taken next", default "true" => wear_dynamic: bool;
        "wear_static_threshold": CountOrNone(1, 1_000_000_000),
            "cold data moves when erase counts of a plane differ by more",
            default "none" =>
            /// Difference of erase counts within a plane beyond which cold data is moved; `None` if it never is.
            wear_static_threshold: Option<u32>;
        "hot_cold": Flag, "whether hot, cold and reclaimed pages have blocks of their own", default "false"
            => hot_cold: bool;
        "write_cache": SizeOr("none", 512, TIB), "write cache", default "none" =>
            /// Bytes of the write cache; 0 if there is none.
            write_cache_bytes: u64;
        "early_completion": Flag, "whether a write is complete once it is in the cache", default "false"
            => early_completion: bool;
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let f = &d.ftl;
    let blocks = d.geometry.blocks;
    let spare = (f64::from(blocks) * f.over_provisioning).floor() as u32;
    let needs = f.gc_urgent_blocks + 2;
    checks.hold(
        spare >= needs,
        "ftl.over_provisioning",
        || format!("leaves {spare} of {blocks} blocks of a plane spare"),
        || format!("allowed is at least {needs} blocks: gc_urgent_blocks, one being filled, one to move into"),
    );
    checks.hold(
        f.gc_threshold < f.over_provisioning || f.over_provisioning == 0.0,
        "ftl.gc_threshold",
        || format!("is no less than over_provisioning ({})", f.over_provisioning),
        || "a full device would never stop reclaiming".to_owned(),
    );
    checks.hold(
        f.gc_urgent_blocks < blocks,
        "ftl.gc_urgent_blocks",
        || format!("is no less than a plane's {blocks} blocks"),
        || format!("allowed is less than {blocks}"),
    );
    let page = u64::from(d.geometry.page_bytes);
    checks.hold(
        f.write_cache_bytes == 0 || f.write_cache_bytes >= page,
        "ftl.write_cache",
        || "does not hold one page".to_owned(),
        || format!("allowed is \"none\", or at least {}", show_size(page)),
    );
    checks.hold(
        f.write_cache_bytes > 0 || !f.early_completion,
        "ftl.early_completion",
        || "completes writes in a cache that is not there".to_owned(),
        || "give ftl.write_cache a size".to_owned(),
    );
    let caches = f.write_cache_bytes.saturating_add(f.map_cache_bytes.unwrap_or(0));
    checks.hold(
        caches <= d.dram.bytes,
        "dram.size",
        || "is less than its caches".to_owned(),
        || format!("write_cache and map_cache take {}", show_size(caches)),
    );
}
