//! The timed core of a device: its table `[compute.core]` read as a description of a core, with the device's clock and
//! memory.

use nandarray_describe::Quantities;
use nandarray_sim::Ps;
use nandarray_uarch::{CoreDescription, DescribeError, MemoryDescription};

use super::description::{DEVICES, Dram};

/// A value of a description that is not allowed for its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoreProblem {
    /// The key of the device's description.
    pub(super) key: String,
    /// Description of the problem.
    pub(super) what: String,
    /// The allowed values.
    pub(super) allowed: String,
}

/// Returns the timed core of a description; `None` if its cores are not timed.
pub(super) fn core(q: &Quantities<'_>) -> Result<Option<CoreDescription>, CoreProblem> {
    let base: &str = q.get("compute.core.base");
    let text = match base {
        "none" => return Ok(None),
        // The clock's tick takes the place of this one.
        "own" => "source = \"the device's\"\ntick_ps = 1",
        preset => CoreDescription::preset_text(preset).expect("one of the words of compute.core.base"),
    };
    let values = q.section("compute.core").filter(|(key, _)| *key != "base");
    let read = CoreDescription::table_with(text, values).and_then(|mut table| {
        // A prefetcher is left out together with its cache.
        for (cache, prefetcher) in [("l1d", "prefetch_l1d"), ("l2", "prefetch_l2")] {
            if !table.contains_key(cache) {
                table.remove(prefetcher);
            }
        }
        CoreDescription::of_table(&table)
    });
    let mut core = read.map_err(|problem| named(q, &problem))?;
    core.tick_ps = (1_000_000_000_000 / q.get::<u64>("compute.clock") / u64::from(core.cycle)).max(1);
    let dram = Dram::read(q);
    let line_bytes = core.l2.or(core.l1d).or(core.l1i).map_or(64, |cache| cache.line_bytes);
    let t_line = if dram.bytes_per_s == 0 { Ps::ZERO } else { Ps::of_bytes(line_bytes.into(), dram.bytes_per_s) };
    let ticks = |time: Ps| time.0.div_ceil(core.tick_ps) as u32;
    core.memory = Some(MemoryDescription { t_access: ticks(dram.t_access + t_line), t_line: ticks(t_line) });
    Ok(Some(core))
}

/// Translates a problem of a core into one of the device description's key: the key itself if it is written there, or
/// else one of its table.
fn named(q: &Quantities<'_>, problem: &DescribeError) -> CoreProblem {
    let DescribeError::Range { key, value, range } = problem else {
        let (key, what) = ("compute.core.base".to_owned(), format!("gives no core: {problem}"));
        return CoreProblem { key, what, allowed: "allowed is what a core's description has".to_owned() };
    };
    let table = key.split('.').next().unwrap_or_default();
    let written = |like: &dyn Fn(&str) -> bool| q.section("compute.core").map(|(key, _)| key).find(|key| like(key));
    let found = written(&|name| name == key).or_else(|| written(&|name| name.split('.').next() == Some(table)));
    let key_of_device = format!("compute.core.{}", found.unwrap_or("base"));
    debug_assert!(DEVICES.index(&key_of_device).is_some(), "{key_of_device}");
    let what = format!("gives the core {key} = {value}");
    CoreProblem { key: key_of_device, what, allowed: range.clone().into_owned() }
}
