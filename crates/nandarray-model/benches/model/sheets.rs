//! Compares presets with their data sheets.

use nandarray_model::describe::{self, Description};
use nandarray_model::{WorkloadProfile, promises};

use crate::Options;
use crate::cases::sheet;
use crate::table::{Table, ratio, whole};

/// Number of pages to which large devices are cut before they are overwritten at random, so that they reach their
/// steady state within a minute.
const CUT_PAGES: u64 = 16 << 20;

/// Returns a preset with fewer and smaller blocks, but with the same work for its planes in a given time and the same
/// shares for flash management: a quarter of the blocks, and a quarter of those that reclaim keeps free; blocks have
/// fewer pages, and their erase takes proportionally less time.
fn cut(name: &str) -> Description {
    let whole = describe::preset(name).expect("a preset");
    let (g, ftl) = (&whole.geometry, &whole.ftl);
    let blocks = g.blocks / 4;
    let most = (CUT_PAGES / (u64::from(g.planes_total()) * u64::from(blocks))) as u32;
    // A multiple of 12 pages: whole word lines of cells with any number of bits.
    let pages = (most / 12 * 12).clamp(12, g.pages);
    let t_erase = format!("{} ns", whole.nand.t_erase.0 / 1000 * u64::from(pages) / u64::from(g.pages));
    let overrides = [
        ("geometry.blocks", blocks.to_string()),
        ("geometry.pages", pages.to_string()),
        ("nand.t_erase", t_erase),
        ("ftl.gc_urgent_blocks", (ftl.gc_urgent_blocks / 4).max(1).to_string()),
    ];
    let overrides: Vec<_> = overrides.iter().map(|(key, value)| (*key, value.as_str())).collect();
    describe::preset_with(name, &overrides).unwrap_or_else(|e| panic!("{name}, cut: {e}"))
}

fn amount(unit: &str, number: f64) -> String {
    match unit {
        "B/s" => format!("{:.2} GB/s", number / 1e9),
        "IOPS" => format!("{} IOPS", whole(number)),
        _ => format!("{number:.2} {unit}"),
    }
}

pub fn run(options: Options) {
    let header = ["preset", "workload", "what", "data sheet", "ours", "ratio", "claimed", "write amplification"];
    let mut table = Table::new("sheets", "Presets beside their data sheets", &header);
    for &name in describe::presets().iter().filter(|name| name.contains(options.only)) {
        let full = describe::preset(name).expect("a preset");
        let Some(spec) = full.spec.clone() else { continue };
        for case in sheet(&full, &spec, options.many(400_000), 1) {
            let used = matches!(case.before, crate::cases::Before::Used(_));
            let d = if used { cut(name) } else { full.clone() };
            let (report, counted) = case.run(&mut case.machine(&d));
            assert_eq!(counted.failed, 0, "{name}: {}", case.name);
            for promise in promises(&spec, WorkloadProfile::of(&case.load), &report) {
                let management = report.management.as_ref();
                let row = vec![
                    name.to_owned(),
                    format!("{}{}", case.name, if used { " *" } else { "" }),
                    promise.what.to_owned(),
                    amount(promise.unit, promise.promised),
                    amount(promise.unit, promise.measured),
                    ratio(promise.measured, promise.promised),
                    if promise.claimed { "15 %" } else { "no" }.to_owned(),
                    management.and_then(|m| m.write_amplification).map_or(String::new(), |wa| format!("{wa:.2}")),
                ];
                eprintln!("{}", row.join("  "));
                table.row(row);
            }
        }
    }
    table.note(
        "* overwritten at random before, on a device cut to fewer and smaller blocks, erased in as much less time",
    );
    table.print(options.json);
}
