//! Rules between keys at their limits: what is just allowed is taken, what is just not is refused, with the numbers in
//! the message.

use crate::describe::{Sheet, Value, preset_with};

/// Changes of the preset for tests that a rule just allows, one more change that it refuses, and the refusal.
type Rule<'a> = (&'a [(&'a str, &'a str)], (&'a str, &'a str), &'a str);

const SHARED: &[(&str, &str)] =
    &[("ftl.gc_threshold", "0"), ("nand.t_suspend_program", "none"), ("nand.t_suspend_erase", "none")];

const GEOMETRY: &[Rule<'_>] = &[
    (
        &[("geometry.channels", "1"), ("geometry.ways", "16"), ("geometry.dies", "8")],
        ("geometry.dies", "9"),
        "geometry.dies = 9 makes 16 ways x 9 dies = 144 dies on a channel; allowed are 128 dies on a channel",
    ),
    (
        &[("geometry.blocks", "1048576"), ("geometry.pages", "255"), ("geometry.planes", "1"), ("geometry.dies", "4")],
        ("geometry.pages", "256"),
        "geometry.pages = 256 makes 4294967296 pages in all; allowed are 4294967293",
    ),
    (
        &[("geometry.page_size", "512 B"), ("geometry.spare_size", "512 B")],
        ("geometry.spare_size", "513 B"),
        "geometry.spare_size = \"513 B\" is more than the page of 512 B itself; allowed is at most the page",
    ),
    (
        &[("geometry.page_size", "255.5 KiB")],
        ("geometry.page_size", "255.25 KiB"),
        "geometry.page_size = \"255.25 KiB\" is no multiple of 512 B; a sector has 512 B",
    ),
];

const FLASH: &[Rule<'_>] = &[
    (
        &[("nand.cell", "tlc"), ("nand.t_read", "[1 us, 2 us, 3 us]"), ("nand.t_program", "100 us")],
        ("nand.t_read", "[1 us, 2 us]"),
        "nand.t_read = [\"1 us\", \"2 us\"] has 2 times; allowed are one for all, or 3: a cell \
         of 3 bits has 3 kinds of pages",
    ),
    (
        &[("nand.one_shot", "true"), ("nand.t_program", "100 us"), ("geometry.pages", "18")],
        ("nand.t_program", "[100 us, 100 us]"),
        "nand.t_program = [\"100 us\", \"100 us\"] has 2 times; allowed is one: one_shot programs a word line at once",
    ),
    (
        &[("nand.one_shot", "true"), ("nand.t_program", "100 us"), ("geometry.pages", "18")],
        ("geometry.pages", "17"),
        "geometry.pages = 17 is no multiple of 2; one_shot programs whole word lines",
    ),
    (
        &[("nand.t_suspend_program", "1 us"), ("nand.suspends_max", "1")],
        ("nand.suspends_max", "0"),
        "nand.suspends_max = 0 never suspends, though there is a time for it; allowed is at least 1, or \"none\" for \
         t_suspend_program and t_suspend_erase",
    ),
    (
        &[("nand.t_program", "[100 us, 300 us]"), ("nand.t_suspend_program", "99.999999 us")],
        ("nand.t_suspend_program", "100 us"),
        "nand.t_suspend_program = \"100 us\" takes as long as what it suspends; allowed is less than 100 us",
    ),
    (
        &[("nand.t_suspend_erase", "999.999 us")],
        ("nand.t_suspend_erase", "1 ms"),
        "nand.t_suspend_erase = \"1 ms\" takes as long as what it suspends; allowed is less than 1 ms",
    ),
    (
        &[("reliability.ecc_codeword_size", "1 KiB"), ("reliability.ecc_correctable_bits", "4096")],
        ("reliability.ecc_correctable_bits", "4097"),
        "reliability.ecc_correctable_bits = 4097 is more than half of the code word's bits; allowed are at most 4096 \
         for 1024 B",
    ),
    (
        &[("reliability.ecc_codeword_size", "4 KiB")],
        ("reliability.ecc_codeword_size", "8 KiB"),
        "reliability.ecc_codeword_size = \"8 KiB\" does not divide the page; allowed are divisors of 4 KiB",
    ),
    (
        &[("reliability.ecc_codeword_size", "none"), ("reliability.ecc_correctable_bits", "0")],
        ("reliability.ecc_correctable_bits", "1"),
        "reliability.ecc_correctable_bits = 1 corrects bits without code words; allowed is 0 while ecc_codeword_size \
         is \"none\"",
    ),
];

const MANAGEMENT: &[Rule<'_>] = &[
    (
        &[("geometry.blocks", "40"), ("ftl.gc_urgent_blocks", "8"), ("ftl.over_provisioning", "0.25")],
        ("ftl.over_provisioning", "0.249"),
        "ftl.over_provisioning = 0.249 leaves 9 of 40 blocks of a plane spare; allowed is at least 10 blocks: \
         gc_urgent_blocks, one being filled, one to move into",
    ),
    (
        &[("ftl.gc_threshold", "0.2499")],
        ("ftl.gc_threshold", "25 %"),
        "ftl.gc_threshold = \"25 %\" is no less than over_provisioning (0.25); a full device would never stop \
         reclaiming",
    ),
    (
        &[("ftl.write_cache", "4 KiB"), ("ftl.early_completion", "true")],
        ("ftl.write_cache", "4095 B"),
        "ftl.write_cache = \"4095 B\" does not hold one page; allowed is \"none\", or at least 4 KiB",
    ),
    (
        &[("ftl.write_cache", "4 KiB"), ("ftl.early_completion", "true")],
        ("ftl.write_cache", "none"),
        "ftl.early_completion = true completes writes in a cache that is not there; give ftl.write_cache a size",
    ),
    (
        &[("ftl.write_cache", "1 MiB"), ("ftl.map_cache", "2 MiB"), ("dram.size", "3 MiB")],
        ("dram.size", "3145727 B"),
        "dram.size = \"3145727 B\" is less than its caches; write_cache and map_cache take 3 MiB",
    ),
    (
        &[("compute.core", "zou-2023-stream"), ("compute.core.stream_pages", "8"), ("compute.read_ahead", "8")],
        ("compute.read_ahead", "7"),
        "compute.read_ahead = 7 is less than the 8 pages of a stream buffer; allowed is at least \
         compute.core.stream_pages (8), or \
         \"none\"",
    ),
    (
        &[("controller.cores", "3"), ("controller.stage_cores", "[0, 1, 2, \"none\", 0]")],
        ("controller.stage_cores", "[0, 1, 3, \"none\", 0]"),
        "controller.stage_cores = [0, 1, 3, \"none\", 0] names a core that is not there; controller.cores is 3: \
         allowed are 0 to 2, or \"none\"",
    ),
    (
        &[("host.arbitration", "weighted"), ("host.queue_classes", "[1, 1, 1, 1]"), ("host.queues", "4")],
        ("host.queue_classes", "[1, 2, 1, 1]"),
        "host.queue_classes = [1, 2, 1, 1] names the classes of 5 queues; host.queues is 4",
    ),
    (
        &[("host.queues", "2"), ("host.queue_entries", "8"), ("spec.power", "1 W"), ("spec.queue_depth", "16")],
        ("spec.queue_depth", "17"),
        "spec.queue_depth = 17 is deeper than all queues together; allowed are 16: host.queues x host.queue_entries",
    ),
    (
        &[("power.idle", "[1 W, 1 W]"), ("power.idle_after", "[1 ms, 2 ms]"), ("power.exit", "[0 s, 1 us]")],
        ("power.idle", "[1 W, 1.1 W]"),
        "power.idle_after = [\"1 ms\", \"2 ms\"] does not go from the lightest state to the deepest; each state is \
         entered later than the one before it, and takes no more",
    ),
    (
        &[("power.idle", "[1 W, 1 W]"), ("power.idle_after", "[1 ms, 2 ms]"), ("power.exit", "[0 s, 1 us]")],
        ("power.idle_after", "[1 ms, 1 ms]"),
        "power.idle_after = [\"1 ms\", \"1 ms\"] does not go from the lightest state to the deepest; each state is \
         entered later than the one before it, and takes no more",
    ),
    (
        &[("power.idle", "1 W"), ("power.idle_after", "1 ms"), ("power.exit", "0 s")],
        ("power.exit", "[0 s, 1 s]"),
        "power.exit = [\"0 s\", \"1 s\"] has 2 entries for 1 idle states; allowed is one for each entry of power.idle",
    ),
];

#[test]
fn rules_hold_at_their_limits() {
    let mut wrong = Vec::new();
    for (allowed, (key, value), said) in [GEOMETRY, FLASH, MANAGEMENT].concat() {
        let all: Vec<_> = SHARED.iter().chain(allowed).copied().collect();
        preset_with("tiny", &all).unwrap_or_else(|e| panic!("{all:?}: {e}"));
        let mut broken = all.clone();
        broken.push((key, value));
        let found: Vec<String> = match preset_with("tiny", &broken) {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.problems.iter().map(ToString::to_string).collect(),
        };
        if found != [said] {
            wrong.push(format!("{broken:?}: {found:?} instead of {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Several broken rules are all reported, in the order of the text that breaks them.
#[test]
fn all_broken_rules_are_reported_at_once() {
    let text = "name = \"broken\"\nbase = \"tiny\"\n[nand]\nsource = \"x\"\nsuspends_max = 0\n\
                t_suspend_erase = \"2 ms\"\n\
                [geometry]\nsource = \"x\"\nspare_size = \"5 KiB\"\n[ftl]\nsource = \"x\"\nover_provisioning = 0.1\n";
    let invalid = Sheet::parse(text).unwrap().description().unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "device \"broken\" has 5 problems:\n  \
         line 5: nand.suspends_max = 0 never suspends, though there is a time for it; allowed is at least 1, or \
         \"none\" for t_suspend_program and t_suspend_erase\n  \
         line 6: nand.t_suspend_erase = \"2 ms\" takes as long as what it suspends; allowed is less than 1 ms\n  \
         line 9: geometry.spare_size = \"5 KiB\" is more than the page of 4 KiB itself; allowed is at most the page\n  \
         line 12: ftl.over_provisioning = 0.1 leaves 3 of 32 blocks of a plane spare; allowed is at least 5 blocks: \
         gc_urgent_blocks, one being filled, one to move into\n  \
         ftl.gc_threshold = \"15 %\" is no less than over_provisioning (0.1); a full device would never stop reclaiming"
    );
}

/// Values of timed cores are checked by the core; the problem names the device's key.
#[test]
fn a_core_that_cannot_be_names_the_devices_key() {
    let refused = |core: &str, key: &str, value: &str| {
        let all = [("compute.core", core), (key, value)];
        let invalid = preset_with("tiny", &all).expect_err(&format!("{core}, {key} = {value}"));
        assert_eq!(invalid.problems.len(), 1, "{invalid}");
        (invalid.problems[0].key.clone(), invalid.problems[0].what.clone())
    };
    for (core, key, value) in [
        ("five-stage", "compute.core.l1d.size_bytes", "1000 B"),
        ("five-stage", "compute.core.l1i.ways", "3"),
        ("five-stage", "compute.core.l2.size_bytes", "100 B"),
        ("zou-2023-varve", "compute.core.vector.align_bits", "3"),
        ("zou-2023-varve", "compute.core.isa", "+zvl100b"),
    ] {
        let (found, what) = refused(core, key, value);
        assert_eq!(found, key, "{core}, {value}: {what}");
    }
    let (key, what) = refused("five-stage", "compute.core.vector.t_element", "2");
    assert_eq!((&*key, &*what), ("compute.core.vector.t_element", "gives the core vector = a unit"));
    // The same values beside cores that are not timed are no problem: nothing reads them.
    let all = [("compute.core", "none"), ("compute.l1d_size", "1000 B"), ("compute.element_ticks", "2")];
    preset_with("tiny", &all).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn changes_of_name_and_summary_are_checked_like_texts() {
    let sheet = Sheet::preset("tiny").unwrap();
    let named = sheet.with([("name", "a \"new\" name".into()), ("summary", "Another\nsummary".into())]).unwrap();
    let again = Sheet::parse(&named.to_toml()).unwrap();
    assert_eq!((again.name(), again.description().unwrap()), ("a \"new\" name", named.description().unwrap()));
    for (key, value) in [("name", Value::from("")), ("name", " \t".into()), ("summary", "".into()), ("name", 7.into())]
    {
        let error = sheet.with([(key, value.clone())]).unwrap_err().to_string();
        assert_eq!(error, format!("device \"tiny\": {key} = {value} is no text, or an empty one"));
    }
}
