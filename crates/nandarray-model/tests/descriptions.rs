//! Promise: an invalid description is refused with the key, the value and the allowed values of every problem at once;
//! no text makes the reader panic; accepted descriptions keep their invariants.

mod hostile;

use nandarray_model::describe::{self, KEYS, Sheet, Value, ValueKind, preset_text, presets};
use proptest::prelude::*;

/// Returns the TOML text of a valid description: the preset for tests.
fn tiny() -> String {
    preset_text("tiny").unwrap().to_owned()
}

fn refused(text: &str) -> String {
    describe::parse(text).expect_err(text).to_string()
}

/// Checks that the test preset is refused if `from` is replaced by `to`, and that the error contains all of these
/// words.
fn wrong(from: &str, to: &str, words: &[&str]) {
    let text = tiny();
    assert!(text.contains(from), "{from} is not in the preset");
    let said = refused(&text.replacen(from, to, 1));
    for word in words {
        assert!(said.contains(word), "{to:?}: {word:?} is not in\n{said}");
    }
}

#[test]
fn values_out_of_range_name_key_value_and_range() {
    wrong("channels = 4", "channels = 0", &["line 6", "geometry.channels", "0", "from 1 to 256"]);
    wrong("channels = 4", "channels = -4", &["geometry.channels", "-4", "from 1 to 256"]);
    wrong("channels = 4", "channels = 99999999999999999999", &["geometry.channels", "64 bits"]);
    wrong("channels = 4", "channels = 4.5", &["geometry.channels", "4.5", "no whole number"]);
    wrong("channels = 4", "channels = \"4 KiB\"", &["geometry.channels", "4 KiB", "plain count"]);
    wrong("\"20 us\"", "\"20 s\"", &["nand.t_read", "20 s", "from 100 ns to 10 ms"]);
    wrong("\"25 %\"", "\"125 %\"", &["ftl.over_provisioning", "125 %", "from 0 to 0.9"]);
    wrong("\"25 %\"", "nan", &["ftl.over_provisioning", "nan"]);
    wrong("\"25 %\"", "-0.1", &["ftl.over_provisioning", "-0.1"]);
}

#[test]
fn units_are_checked() {
    wrong("\"1 ms\"", "\"1 mW\"", &["nand.t_erase", "1 mW", "none of a time", "ps, ns, us, ms, s"]);
    wrong("\"1 ms\"", "1", &["nand.t_erase", "lacks its unit"]);
    wrong("\"1 ms\"", "\"1\"", &["nand.t_erase", "lacks its unit"]);
    wrong("\"1 ms\"", "\"fast\"", &["nand.t_erase", "is no time"]);
    wrong("\"1 ms\"", "true", &["nand.t_erase", "is no time"]);
    wrong("\"1 ms\"", "\"1e999 ms\"", &["nand.t_erase"]);
    wrong("\"4 KiB\"", "\"4 KB\"", &["geometry.page_size", "4 KB", "KiB"]);
    wrong("\"4 KiB\"", "\"4096.5 B\"", &["geometry.page_size", "no whole number of bytes"]);
    wrong("\"1 GB/s\"", "\"1 GB\"", &["bus.rate", "none of a rate"]);
    wrong("\"1 GB/s\"", "\"333 MT/s\"", &["bus.rate", "MT/s"]);
}

#[test]
fn nothing_is_faster_than_physics() {
    wrong("\"2 GB/s\"", "\"PCIe 8 x16\"", &["link.rate", "PCIe 8 x16"]);
    wrong("\"2 GB/s\"", "\"300 GB/s\"", &["link.rate", "300 GB/s", "PCIe 7.0 x16", "236 GB/s"]);
    wrong("\"1 GB/s\"", "\"6400 MT/s x16\"", &["bus.rate", "6400 MT/s x16", "9.6 GB/s", "JESD230G"]);
    wrong("\"4 GB/s\"", "\"9 TB/s\"", &["dram.rate", "HBM4"]);
}

#[test]
fn geometry_that_cannot_be_is_refused() {
    let all = "channels = 256\nways = 64\ndies = 64";
    wrong("channels = 4\nways = 1\ndies = 2", all, &["1048576 dies", "65536 dies"]);
    wrong("page_size = \"4 KiB\"", "page_size = \"1000 B\"", &["geometry.page_size", "multiple of 512"]);
    wrong("spare_size = \"128 B\"", "spare_size = \"8 KiB\"", &["geometry.spare_size", "4 KiB"]);
    let huge = "planes = 16\nblocks = 1048576\npages = 65535";
    wrong("planes = 2\nblocks = 32\npages = 16", huge, &["geometry.pages", "pages in all"]);
    wrong("\"25 %\"", "\"2 %\"", &["ftl.over_provisioning", "0 of 32 blocks", "at least 5"]);
    wrong("pages = 16", "pages = 65536", &["16 bits"]);
}

#[test]
fn counts_have_to_agree() {
    wrong("\"40 us\"]", "\"40 us\", \"50 us\"]", &["nand.t_read", "has 3 times", "2 kinds of pages"]);
    wrong("cell = \"mlc\"", "cell = \"tlc\"", &["nand.t_read", "has 2 times", "nand.t_program", "3 kinds"]);
    wrong("cell = \"mlc\"", "cell = \"mlc\"\none_shot = true", &["nand.t_program", "allowed is one"]);
    wrong("suspends_max = 8", "suspends_max = 0", &["nand.suspends_max", "at least 1"]);
    wrong("\"10 us\"", "\"100 us\"", &["nand.t_suspend_program", "less than 100 us"]);
    wrong("[0, 1, 1, 2, 3]", "[0, 1, 1, 2, 4]", &["controller.stage_cores", "controller.cores is 4"]);
    wrong("[0, 1, 1, 2, 3]", "[0, 1, 1, 2]", &["controller.stage_cores", "list of 5"]);
    wrong("gc_threshold = \"15 %\"", "gc_threshold = \"30 %\"", &["ftl.gc_threshold", "never stop"]);
    wrong("size = \"16 MiB\"", "size = \"1 KiB\"\n[ftl2]\n", &["[ftl]"]);
    let cache = "gc_urgent_blocks = 3\nwrite_cache = \"64 MiB\"";
    wrong("gc_urgent_blocks = 3", cache, &["dram.size", "64 MiB"]);
    wrong(
        "gc_urgent_blocks = 3",
        "gc_urgent_blocks = 3\nearly_completion = true",
        &["early_completion", "write_cache"],
    );
    let ecc = "[reliability]\nsource = \"x\"\necc_codeword_size = \"3 KiB\"\n[bus]";
    wrong("[bus]", ecc, &["ecc_codeword_size", "does not divide"]);
    wrong("[bus]", "[reliability]\nsource = \"x\"\necc_correctable_bits = 8\n[bus]", &["without code words"]);
}

#[test]
fn idle_states_go_from_the_lightest_to_the_deepest() {
    let states = |idle: &str, after: &str, exit: &str| {
        let power = format!("[power]\nsource = \"x\"\nidle = {idle}\nidle_after = {after}\nexit = {exit}\n[bus]");
        power.replace('\'', "\"")
    };
    let two = "['1 s', '2 s']";
    wrong("[bus]", &states("['1 W', '10 mW']", two, "'1 us'"), &["power.exit", "has 1 entries for 2 idle states"]);
    wrong("[bus]", &states("'1 W'", "'none'", "'1 us'"), &["power.idle_after", "has 0 entries for 1"]);
    wrong("[bus]", &states("['1 W', '2 W']", two, "['1 us', '1 us']"), &["power.idle_after", "lightest"]);
    wrong(
        "[bus]",
        &states("['1 W', '10']", two, "['1 us', '1 us']"),
        &["power.idle", "lacks its unit", "a list of up to 32"],
    );
    let good =
        describe::preset_with("tiny", &[("power.idle", "30 mW"), ("power.idle_after", "1 s"), ("power.exit", "1 ms")]);
    assert_eq!(good.unwrap().idle_states[0].power_uw, 30_000.0);
}

#[test]
fn keys_are_known_or_the_nearest_is_told() {
    wrong("channels = 4", "chanels = 4", &["line 6", "geometry.chanels", "did you mean geometry.channels?"]);
    wrong("[geometry]", "[geometri]", &["geometri", "did you mean [geometry]?"]);
    wrong("t_erase", "t_erasure", &["nand.t_erasure", "did you mean nand.t_erase?"]);
    wrong("name =", "nam =", &["nam", "no section"]);
    let said = describe::preset("mqsim-defualt").unwrap_err().to_string();
    assert!(said.contains("did you mean \"mqsim-default\"?"), "{said}");
    let said = refused("name = \"x\"\nbase = \"mqsim-ideel\"\n");
    assert!(said.contains("did you mean \"mqsim-ideal\"?"), "{said}");
    let said = describe::preset_with("tiny", &[("nand.t_raed", "5 us")]).unwrap_err().to_string();
    assert!(said.contains("did you mean nand.t_read?"), "{said}");
}

#[test]
fn every_number_has_a_source() {
    let text = tiny().replacen("[nand]\nsource = \"choice\"\n", "[nand]\n", 1);
    let said = refused(&text);
    for key in ["nand.t_read", "nand.t_program", "nand.t_erase", "nand.suspends_max", "nand.endurance_cycles"] {
        assert!(said.contains(key), "{key}: {said}");
    }
    // A word is a choice and needs no source; only numbers do.
    assert!(said.contains("has no source") && !said.contains("nand.cell"), "{said}");
    let own = text.replacen("[nand]\n", "[nand.sources]\nt_erase = \"measured\"\n[nand]\n", 1);
    assert!(!refused(&own).contains("nand.t_erase"));
    wrong("[bus]", "[bus.sources]\nt_suspend_command = \"x\"\n[bus]", &["bus.sources.t_suspend_command", "of nothing"]);
    wrong("[bus]\nsource = \"choice\"", "[bus]\nsource = \"\"", &["bus.source", "empty"]);
    // A base has its own sources; a changed value needs a new one.
    let said = refused("name = \"x\"\nbase = \"tiny\"\n[nand]\nt_erase = \"2 ms\"\n");
    assert!(said.contains("nand.t_erase") && said.contains("has no source"), "{said}");
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_text() {
    let text = tiny().replacen("channels = 4", "channels = 0", 1).replacen("\"1 ms\"", "\"1 mW\"", 1);
    let invalid = describe::parse(&text).unwrap_err();
    let keys: Vec<&str> = invalid.problems.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["geometry.channels", "nand.t_erase"]);
    assert!(invalid.problems.is_sorted_by_key(|p| p.line));
    assert!(invalid.to_string().starts_with("device \"tiny\" has 2 problems:"));
}

#[test]
fn what_is_missing_is_listed() {
    let said = refused("name = \"empty\"\n");
    for key in ["geometry.channels", "bus.rate", "nand.t_read", "link.rate"] {
        assert!(said.contains(&format!("{key}: is missing")), "{key}: {said}");
    }
    assert!(refused("").contains("name: is missing"));
    let said = refused("name = \"x\nchannels = ]");
    assert!(said.contains("line 1") || said.contains("line 2"), "{said}");
}

#[test]
fn a_description_builds_on_another() {
    let head = "name = \"faster\"\nsummary = \"s\"\nbase = \"mqsim-ideal\"\n";
    let text = format!("{head}[nand]\nsource = \"a guess\"\nt_read = \"25 us\"\n");
    let sheet = Sheet::parse(&text).unwrap();
    assert_eq!(sheet.bases(), ["mqsim-ideal", "mqsim-default"]);
    assert_eq!(sheet.get("nand.t_read").unwrap().source, "a guess");
    assert!(sheet.get("nand.t_erase").unwrap().source.starts_with("MQSim"));
    let description = sheet.description().unwrap();
    assert_eq!(description.geometry, describe::preset("mqsim-default").unwrap().geometry);
    // Problems have a line only if their value is in the text itself.
    let said = refused(&text.replace("25 us", "25 s"));
    assert!(said.contains("line 6"), "{said}");
}

#[test]
fn presets_have_a_source_for_everything_and_say_what_is_assumed() {
    for name in presets() {
        let sheet = Sheet::preset(name).unwrap();
        assert_eq!(sheet.entries().count(), KEYS.len(), "{name}");
        for (key, entry) in sheet.entries() {
            assert!(!entry.source.trim().is_empty(), "{name} {}", key.path);
            assert!(!key.kind.is_number() || entry.source != "choice" || *name == "tiny", "{name} {}", key.path);
        }
    }
    assert_eq!(presets().len(), 18);
}

/// Generates values of all kinds, valid and invalid.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![Just("0"), Just("1"), Just("75"), Just("-3"), Just("1e30"), Just("0.5"), Just("")];
    let unit = prop_oneof![
        Just("us"),
        Just("ms"),
        Just("KiB"),
        Just("GB/s"),
        Just("MT/s x8"),
        Just("%"),
        Just("pJ"),
        Just("mA at 3.3 V"),
        Just("x"),
        Just("PCIe"),
        Just("")
    ];
    let text = (number, unit).prop_map(|(n, u)| Value::Text(format!("{n} {u}")));
    let word =
        prop_oneof![Just("none"), Just("ideal"), Just("slc"), Just("qlc"), Just("dynamic PWCD"), Just("weighted")];
    let one = prop_oneof![
        4 => any::<i64>().prop_map(Value::Whole),
        4 => (0..5000_i64).prop_map(Value::Whole),
        2 => any::<f64>().prop_map(Value::Real),
        2 => (0.0..1.0).prop_map(Value::Real),
        1 => any::<bool>().prop_map(Value::Flag),
        6 => text,
        3 => word.prop_map(Value::from),
        1 => ".{0,12}".prop_map(Value::Text),
    ];
    one.clone().prop_recursive(2, 8, 5, move |inner| prop::collection::vec(inner, 0..6).prop_map(Value::List))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Any changed values are either refused, or give a description whose figures can be derived and which is equal
    /// after it was written and read.
    #[test]
    fn any_values_are_refused_or_right(
        preset in 0..presets().len(),
        changes in prop::collection::vec((0..KEYS.len(), value()), 0..4),
    ) {
        let base = Sheet::preset(presets()[preset]).unwrap();
        let sheet = base.with(changes.iter().map(|(k, v)| (KEYS[*k].path, v.clone()))).unwrap();
        match sheet.description() {
            Err(invalid) => {
                prop_assert!(!invalid.problems.is_empty());
                for problem in &invalid.problems {
                    prop_assert!(KEYS.iter().any(|k| k.path == problem.key), "{problem}");
                    prop_assert!(!problem.allowed.is_empty(), "{problem}");
                }
            }
            Ok(description) => {
                description.summarise();
                let again = Sheet::parse(&sheet.to_toml()).unwrap();
                prop_assert_eq!(again.description().unwrap(), description);
            }
        }
    }

    /// Texts with lost, duplicated and changed lines never make the reader panic.
    #[test]
    fn mangled_texts_never_panic(
        preset in 0..presets().len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, ".{0,6}"), 1..6),
    ) {
        let mut text: Vec<char> = preset_text(presets()[preset]).unwrap().chars().collect();
        for (at, what, with) in edits {
            let at = at.index(text.len());
            match what {
                0 => drop(text.drain(at..(at + 20).min(text.len()))),
                1 => drop(text.splice(at..at, with.chars())),
                2 => text.truncate(at.max(1)),
                _ => text[at] = with.chars().next().unwrap_or('"'),
            }
            if text.is_empty() { break; }
        }
        hostile::description(text.into_iter().collect::<String>().as_bytes());
    }

    #[test]
    fn noise_never_panics(
        data in prop::collection::vec(any::<u8>(), 0..200),
        text in "[<>/a-zA-Z_=\"\\[\\]. 0-9\n]{0,200}",
    ) {
        for data in [&data[..], text.as_bytes()] {
            hostile::description(data);
            hostile::configuration(data);
        }
    }
}

#[test]
fn every_key_has_a_meaning_and_a_range_in_words() {
    for key in KEYS {
        assert!(!key.meaning.is_empty() && !key.kind.allowed().is_empty(), "{}", key.path);
        assert!(key.path.rsplit_once('.') == Some((key.section, key.name)));
    }
    assert!(matches!(KEYS[0].kind, ValueKind::Count(1, _)));
}

/// Every preset can be made into a device with its flash management.
#[test]
fn every_preset_becomes_a_device() {
    for name in presets() {
        let description = describe::preset(name).unwrap();
        let mut machine = nandarray_model::Machine::new(&description, 1, None);
        machine.attach_blocks(1).unwrap_or_else(|e| panic!("{name}: {e}"));
        let said = description.summarise().user_bytes as f64;
        let given = machine.capacity_bytes() as f64;
        assert!((given / said - 1.0).abs() < 0.01, "{name}: {given} B of {said}");
    }
}

#[test]
fn cores_for_programs_are_their_own_and_may_be_absent() {
    let plain = describe::preset("samsung-970-pro").unwrap();
    assert!(plain.compute.is_none() && plain.controller.cores > 0);
    let assasin = describe::preset("assasin").unwrap();
    let compute = assasin.compute.unwrap();
    assert_eq!((compute.cores, compute.clock_hz), (8, 1_000_000_000));
    // Eight cores take 12.625 mW together.
    assert!((compute.core_active_uw * 8.0 - 12_625.0).abs() < 2.0, "{}", compute.core_active_uw);
    assert_eq!((assasin.geometry.page_bytes, assasin.geometry.ways), (4096, 16));
    let overrides = [("compute.cores", "2"), ("compute.clock", "1.25 GHz"), ("compute.core_active", "3 mW")];
    let own = describe::preset_with("mqsim-ideal", &overrides).unwrap().compute.unwrap();
    assert_eq!((own.cores, own.clock_hz, own.core_active_uw, own.core_idle_uw), (2, 1_250_000_000, 3_000.0, 0.0));
    let error = describe::preset_with("tiny", &[("compute.clock", "1 GB/s")]).unwrap_err().to_string();
    assert!(error.contains("compute.clock") && error.contains("a frequency from 1 MHz to 10 GHz"), "{error}");
}

#[test]
fn an_emulated_flash_is_bound_by_its_dram() {
    let coden = describe::preset("coden").unwrap();
    let channels = u64::from(coden.geometry.channels) * coden.bus.bytes_per_s;
    assert_eq!(channels, coden.dram.bytes_per_s, "its channels are as fast as its DRAM, and no faster");
    assert_eq!((coden.compute.unwrap().cores, coden.controller.cores), (7, 1));
}

#[test]
fn classes_of_queues_that_are_not_there_are_refused() {
    let overrides = [("host.queues", "3"), ("host.arbitration", "weighted"), ("host.queue_classes", "[1, 1, 1, 1]")];
    let error = describe::preset_with("tiny", &overrides).unwrap_err().to_string();
    assert!(error.contains("names the classes of 4 queues") && error.contains("host.queues is 3"), "{error}");
}
