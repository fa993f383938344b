//! Rules between several keys: impossible geometry, contradictory counts, caches larger than memory.

use super::description::*;
use super::keys::{self, KEYS};
use super::problem::Problem;
use super::sheet::Sheet;
use super::value::show_size;

/// Maximum number of bytes of a device, so that sums of such sizes stay far below 64 bits.
const BYTES_MAX: u64 = 1 << 56;
/// Maximum number of pages: flash management numbers them in 32 bits and reserves a few numbers.
const PAGES_MAX: u64 = (1 << 32) - 3;
/// Maximum number of dies: each has its own queues.
const DIES_MAX: u64 = 1 << 16;
/// Maximum number of dies on a channel: the back end has one bit for each of them in a mask of 128 bits.
const DIES_ON_CHANNEL_MAX: u32 = 128;

struct Checks<'a> {
    sheet: &'a Sheet,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    /// Records a problem with a key unless `fine` holds; `what` and `allowed` return the problem and the allowed
    /// values.
    fn hold(&mut self, fine: bool, path: &str, what: impl FnOnce() -> String, allowed: impl FnOnce() -> String) {
        if fine {
            return;
        }
        let at = keys::index(path).unwrap_or_else(|| panic!("{path} is in the table of keys"));
        let entry = self.sheet.entries[at].as_ref();
        self.problems.push(Problem {
            line: entry.and_then(|e| self.sheet.line_of(e)),
            key: KEYS[at].path.to_owned(),
            value: entry.map(|e| e.value.to_string()).unwrap_or_default(),
            what: what(),
            allowed: allowed(),
        });
    }
}

/// Returns all contradictions of a description.
pub(super) fn check(d: &Description, sheet: &Sheet) -> Vec<Problem> {
    let mut checks = Checks { sheet, problems: Vec::new() };
    geometry(d, &mut checks);
    nand(d, &mut checks);
    reliability(d, &mut checks);
    ftl(d, &mut checks);
    compute(d, &mut checks);
    rest(d, &mut checks);
    checks.problems
}

fn geometry(d: &Description, checks: &mut Checks<'_>) {
    let g = &d.geometry;
    let dies = u64::from(g.channels) * u64::from(g.ways) * u64::from(g.dies);
    let product = || format!("makes {} channels x {} ways x {} dies = {dies} dies", g.channels, g.ways, g.dies);
    checks.hold(dies <= DIES_MAX, "geometry.dies", product, || format!("allowed are {DIES_MAX} dies in all"));
    let on_channel = g.ways * g.dies;
    checks.hold(
        on_channel <= DIES_ON_CHANNEL_MAX,
        "geometry.dies",
        || format!("makes {} ways x {} dies = {on_channel} dies on a channel", g.ways, g.dies),
        || format!("allowed are {DIES_ON_CHANNEL_MAX} dies on a channel"),
    );
    let pages = u128::from(dies) * u128::from(g.planes) * u128::from(g.blocks) * u128::from(g.pages);
    let bytes = pages * u128::from(g.page_bytes);
    checks.hold(
        pages <= u128::from(PAGES_MAX),
        "geometry.pages",
        || format!("makes {pages} pages in all"),
        || format!("allowed are {PAGES_MAX}"),
    );
    checks.hold(
        bytes <= u128::from(BYTES_MAX),
        "geometry.page_size",
        || format!("makes {bytes} bytes in all"),
        || format!("allowed are {}", show_size(BYTES_MAX)),
    );
    checks.hold(
        g.page_bytes.is_multiple_of(512),
        "geometry.page_size",
        || "is no multiple of 512 B".to_owned(),
        || "a sector has 512 B".to_owned(),
    );
    checks.hold(
        g.spare_bytes <= g.page_bytes,
        "geometry.spare_size",
        || format!("is more than the page of {} itself", show_size(g.page_bytes.into())),
        || "allowed is at most the page".to_owned(),
    );
}

fn nand(d: &Description, checks: &mut Checks<'_>) {
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

fn reliability(d: &Description, checks: &mut Checks<'_>) {
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

fn ftl(d: &Description, checks: &mut Checks<'_>) {
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

fn compute(d: &Description, checks: &mut Checks<'_>) {
    let Some(c) = &d.compute else { return };
    if let Err(problem) = c.core_checked(&d.dram) {
        checks.hold(false, problem.key, || problem.what, || problem.allowed);
    }
    checks.hold(
        c.read_ahead >= c.pages,
        "compute.read_ahead",
        || format!("is less than the {} pages of a stream buffer", c.pages),
        || format!("allowed is at least compute.pages ({}), or \"none\"", c.pages),
    );
    checks.hold(
        c.core.is_none() || c.input != InputFrom::Stream || c.streams > 0,
        "compute.streams",
        || "leaves a core without stream buffers".to_owned(),
        || "compute.input is \"stream\": allowed are 1 to 8".to_owned(),
    );
}

fn rest(d: &Description, checks: &mut Checks<'_>) {
    let cores = d.controller.cores;
    checks.hold(
        d.controller.stage_cores.iter().flatten().all(|&core| core < cores),
        "controller.stage_cores",
        || "names a core that is not there".to_owned(),
        || format!("controller.cores is {cores}: allowed are 0 to {}, or \"none\"", cores - 1),
    );
    if let Arbitration::Weighted { classes, .. } = d.host.arbitration {
        let (named, queues) = (classes.iter().map(|&n| u64::from(n)).sum::<u64>(), u64::from(d.host.queues));
        checks.hold(
            named <= queues,
            "host.queue_classes",
            || format!("names the classes of {named} queues"),
            || format!("host.queues is {queues}"),
        );
    }
    idle_states(d, checks);
    let depth = u64::from(d.host.queues) * u64::from(d.host.queue_entries);
    checks.hold(
        d.spec.as_ref().is_none_or(|s| u64::from(s.queue_depth) <= depth),
        "spec.queue_depth",
        || "is deeper than all queues together".to_owned(),
        || format!("allowed are {depth}: host.queues x host.queue_entries"),
    );
}

fn idle_states(d: &Description, checks: &mut Checks<'_>) {
    let length = |path: &str| match checks.sheet.get(path).map(|e| &e.value) {
        Some(super::value::Value::List(all)) => all.len(),
        Some(super::value::Value::Text(text)) if text.trim() == "none" => 0,
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
