//! Configurations of MQSim element by element: each sets its own keys, in any order and beside any others; files that
//! are cut off, or have a bit flipped, are refused with a line, or read.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::describe::Sheet;
use crate::describe::mqsim::{Imported, import};

const XML: &str = include_str!("../testdata/mqsim.xml");

/// An element with a value, and the keys that it sets with their values as TOML.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const ROWS: &[Row] = &[
    ("IO_Queue_Depth", "512", &[("host.queue_entries", "512")]),
    ("Queue_Fetch_Size", "77", &[("controller.command_slots", "77")]),
    ("Data_Cache_Capacity", "1048576", &[("ftl.write_cache", "\"1048576 B\"")]),
    ("Data_Cache_Capacity", "0", &[("ftl.write_cache", "\"none\""), ("ftl.early_completion", "false")]),
    ("CMT_Capacity", "65536", &[("ftl.map_cache", "\"65536 B\"")]),
    ("Ideal_Mapping_Table", "true", &[("ftl.map_cache", "\"ideal\"")]),
    ("Ideal_Mapping_Table", "anything", &[("ftl.map_cache", "\"ideal\"")]),
    ("Ideal_Mapping_Table", "FALSE", &[]),
    ("Plane_Allocation_Scheme", "WDPC", &[("ftl.striping", "\"static WDPC\"")]),
    ("Plane_Allocation_Scheme", "F", &[("ftl.striping", "\"dynamic CWDP\"")]),
    ("Transaction_Scheduling_Policy", "PRIORITY_OUT_OF_ORDER", &[("controller.scheduling", "\"normal\"")]),
    ("Transaction_Scheduling_Policy", "FLIN", &[]),
    ("Overprovisioning_Ratio", "0.127", &[("ftl.over_provisioning", "0.127")]),
    ("GC_Exec_Threshold", "0.05", &[("ftl.gc_threshold", "0.05")]),
    ("GC_Block_Selection_Policy", "GREEDY", &[("ftl.gc", "\"greedy\"")]),
    ("GC_Block_Selection_Policy", "FIFO", &[("ftl.gc", "\"round-robin\"")]),
    ("GC_Block_Selection_Policy", "RGA", &[("ftl.gc", "\"d-choices\""), ("ftl.gc_choices", "11")]),
    ("GC_Block_Selection_Policy", "RANDOM", &[("ftl.gc", "\"d-choices\""), ("ftl.gc_choices", "1")]),
    ("GC_Block_Selection_Policy", "RANDOM_P", &[("ftl.gc", "\"d-choices\""), ("ftl.gc_choices", "1")]),
    ("GC_Hard_Threshold", "0.005", &[("ftl.gc_urgent_blocks", "10")]),
    ("GC_Hard_Threshold", "0", &[("ftl.gc_urgent_blocks", "1")]),
    ("Preemptible_GC_Enabled", "false", &[("ftl.gc_preemptible", "false")]),
    ("Dynamic_Wearleveling_Enabled", "false", &[("ftl.wear_dynamic", "false")]),
    ("Static_Wearleveling_Threshold", "40", &[("ftl.wear_static_threshold", "40")]),
    ("Static_Wearleveling_Enabled", "false", &[("ftl.wear_static_threshold", "\"none\"")]),
    ("Chip_No_Per_Channel", "3", &[("geometry.ways", "3")]),
    ("Die_No_Per_Chip", "5", &[("geometry.dies", "5")]),
    ("Plane_No_Per_Die", "7", &[("geometry.planes", "7")]),
    ("Block_No_Per_Plane", "900", &[("geometry.blocks", "900")]),
    ("Page_No_Per_Block", "300", &[("geometry.pages", "300")]),
    ("Page_Capacity", "4096", &[("geometry.page_size", "\"4096 B\"")]),
    ("Page_Metadat_Capacity", "12", &[("geometry.spare_size", "\"12 B\"")]),
    ("Block_Erase_Latency", "1500000", &[("nand.t_erase", "\"1500000 ns\"")]),
    ("Block_PE_Cycles_Limit", "99", &[("nand.endurance_cycles", "99")]),
    ("Channel_Transfer_Rate", "200", &[("bus.rate", "\"200 MT/s x8\"")]),
    ("Flash_Channel_Width", "2", &[("bus.rate", "\"333 MT/s x16\"")]),
    ("PCIe_Lane_Count", "8", &[("link.rate", "\"8 GB/s\"")]),
    ("PCIe_Lane_Bandwidth", "0.5", &[("link.rate", "\"2 GB/s\"")]),
    ("Data_Cache_DRAM_tCL", "20", &[("dram.t_access", "\"46 ns\"")]),
    ("Data_Cache_DRAM_Data_Rate", "400", &[("dram.rate", "\"800 MB/s\"")]),
    ("Data_Cache_DRAM_Data_Busrt_Size", "8", &[("dram.rate", "\"1600 MB/s\"")]),
    ("Flash_Technology", "SLC", &[("nand.cell", "\"slc\"")]),
    ("Page_Read_Latency_LSB", "30000", &[("nand.t_read", "[\"30000 ns\", \"75000 ns\"]")]),
    ("Page_Program_Latency_MSB", "900000", &[("nand.t_program", "[\"750000 ns\", \"900000 ns\"]")]),
    ("Suspend_Erase_Time", "500000", &[("nand.t_suspend_erase", "\"500000 ns\"")]),
    (
        "CMD_Suspension_Support",
        "PROGRAM_ERASE",
        &[("nand.t_suspend_program", "\"100000 ns\""), ("nand.t_suspend_erase", "\"700000 ns\"")],
    ),
    (
        "CMD_Suspension_Support",
        "NONE",
        &[("nand.t_suspend_program", "\"none\""), ("nand.t_suspend_erase", "\"none\""), ("nand.suspends_max", "0")],
    ),
];

fn configuration(elements: &[(&str, &str)]) -> String {
    let body: String = elements.iter().map(|(name, value)| format!("  <{name}> {value}\n</{name}>\n")).collect();
    format!("<Execution_Parameter_Set>\n{body}</Execution_Parameter_Set>\n")
}

fn values(sheet: &Sheet) -> BTreeMap<&'static str, String> {
    sheet.entries().map(|(key, entry)| (key.path, entry.value.to_string())).collect()
}

fn imported(elements: &[(&str, &str)]) -> Imported {
    import(&configuration(elements), "mine").unwrap_or_else(|e| panic!("{elements:?}: {e}"))
}

#[test]
fn each_element_sets_its_own_keys() {
    let plain = values(&imported(&[("Flash_Channel_Count", "8")]).sheet);
    for &(element, value, keys) in ROWS {
        let mut expected = plain.clone();
        expected.extend(keys.iter().map(|(key, value)| (*key, (*value).to_owned())));
        let imported = imported(&[("Flash_Channel_Count", "8"), (element, value)]);
        assert_eq!(values(&imported.sheet), expected, "{element} = {value}");
        for (key, _) in keys {
            let entry = imported.sheet.get(key).unwrap();
            assert!(entry.source.starts_with("MQSim configuration: "), "{key}: {}", entry.source);
            assert_eq!((entry.origin.as_str(), entry.line), ("mine", 0), "{key}");
        }
    }
}

#[test]
fn elements_do_not_depend_on_their_order_or_nesting() {
    for seed in 0..100 {
        let mut chance = Rng::with_seed(seed);
        let mut chosen: BTreeMap<&str, &str> = BTreeMap::from([("Flash_Channel_Count", "4")]);
        for (element, value, _) in ROWS.iter().filter(|_| chance.u32(0..3) == 0) {
            chosen.insert(element, value);
        }
        let mut elements: Vec<_> = chosen.into_iter().collect();
        let first = imported(&elements);
        chance.shuffle(&mut elements);
        let (left, right) = elements.split_at(chance.usize(0..elements.len()));
        let nested = format!("<!-- {seed} -->\n<a>{}<b><c>{}</c></b></a>", configuration(left), configuration(right));
        assert_eq!(import(&nested, "mine").unwrap_or_else(|e| panic!("seed {seed}: {e}")), first, "seed {seed}");
    }
}

#[test]
fn a_cache_larger_than_the_preset_brings_its_own_memory() {
    let size = |elements: &[(&str, &str)]| {
        let all: Vec<_> = [("Flash_Channel_Count", "8")].iter().chain(elements).copied().collect();
        values(&imported(&all).sheet)["dram.size"].clone()
    };
    let usual = size(&[]);
    assert_eq!(size(&[("Data_Cache_Capacity", "534773760")]), usual, "510 MiB and a map's 2 MiB fit");
    assert_eq!(size(&[("Data_Cache_Capacity", "534773761")]), "\"536870913 B\"");
    assert_eq!(size(&[("CMT_Capacity", "1073741824"), ("Data_Cache_Capacity", "0")]), "\"1073741824 B\"");
    assert_eq!(
        size(&[("CMT_Capacity", "1073741824"), ("Ideal_Mapping_Table", "true")]),
        usual,
        "an ideal map takes none"
    );
}

#[test]
fn values_that_do_not_suit_their_elements_name_the_line() {
    for (element, value, what) in [
        ("Flash_Channel_Count", "-1", "is no number from 0"),
        ("Flash_Channel_Count", "four", "is no number from 0"),
        ("Flash_Channel_Count", "inf", "is no number from 0"),
        ("Flash_Channel_Count", "nan", "is no number from 0"),
        ("Flash_Channel_Count", "4.5", "is no whole number"),
        ("Flash_Channel_Count", "1e16", "is no whole number"),
        ("IO_Queue_Depth", "1e400", "is no number from 0"),
        ("Block_Erase_Latency", "1 ms", "is no number from 0"),
        ("GC_Exec_Threshold", "5 %", "is no number from 0"),
    ] {
        let mut elements = vec![("Flash_Channel_Count", "8"), ("Seed", "1")];
        elements.retain(|(name, _)| *name != element);
        elements.push((element, value));
        let invalid = import(&configuration(&elements), "mine").expect_err(value);
        let found: Vec<String> = invalid.problems.iter().map(ToString::to_string).collect();
        let line = configuration(&elements).lines().count() - 1;
        assert_eq!(found, [format!("line {line}: {element} = {value} {what}")]);
    }
    // Several wrong values are reported at once.
    let wrong = configuration(&[("Flash_Channel_Count", "x"), ("Page_Capacity", "y"), ("IO_Queue_Depth", "z")]);
    assert_eq!(import(&wrong, "mine").unwrap_err().problems.len(), 3);
}

#[test]
fn notes_name_what_is_treated_otherwise() {
    let notes = |element: &str, value: &str| -> Vec<(String, String)> {
        let imported = imported(&[("Flash_Channel_Count", "8"), (element, value)]);
        imported.notes.into_iter().filter(|n| n.key == element).map(|n| (n.value, n.what)).collect()
    };
    for (element, value, noted) in [
        ("HostInterface_Type", "SATA", true),
        ("HostInterface_Type", "nvme", false),
        ("Memory_Type", "DRAM", true),
        ("Memory_Type", "flash", false),
        ("Address_Mapping", "HYBRID", true),
        ("Address_Mapping", "PAGE_LEVEL", false),
        ("Data_Cache_Sharing_Mode", "EQUAL_PARTITIONING", true),
        ("CMT_Sharing_Mode", "SHARED", false),
        ("Use_Copyback_for_GC", "false", false),
        ("Enable_ResponseTime_Logging", "true", false),
        ("Enabled_Preconditioning", "true", true),
        ("Preferred_suspend_erase_time_for_read", "1", true),
        ("Flash_Comm_Protocol", "ONFI", true),
        ("Flash_Comm_Protocol", "NVDDR2", false),
        ("Something_Else", "5", true),
    ] {
        let found = notes(element, value);
        assert_eq!(found.len(), usize::from(noted), "{element} = {value}: {found:?}");
        assert!(found.iter().all(|(said, what)| said == value && !what.is_empty()), "{found:?}");
    }
    // MQSim counts whole nanoseconds a transfer: what that makes of a rate is noted where it matters.
    for (rate, said) in
        [("333", None), ("400", Some("2 ns, 500 MT/s")), ("667", Some("1 ns, 1000 MT/s")), ("1200", Some("0 ns"))]
    {
        let found = notes("Channel_Transfer_Rate", rate);
        assert_eq!(
            found.first().map(|(_, what)| what.contains(said.unwrap_or("?"))),
            said.map(|_| true),
            "{rate}: {found:?}"
        );
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused_with_a_line() {
    let whole = import(XML, "mine").unwrap();
    let lines = XML.lines().count() as u32 + 1;
    for end in (0..XML.len()).step_by(7) {
        let invalid = match import(&XML[..end], "mine") {
            Err(invalid) => invalid,
            // Only white space was lost.
            Ok(imported) => {
                assert_eq!((imported, XML[end..].trim()), (whole.clone(), ""), "cut at {end}");
                continue;
            }
        };
        for problem in &invalid.problems {
            let known = problem.line.is_none_or(|line| line <= lines);
            assert!(known && !problem.what.is_empty(), "cut at {end}: {invalid}");
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_read() {
    let mut chance = Rng::with_seed(6);
    for _ in 0..250 {
        let mut bytes = XML.as_bytes().to_vec();
        let at = chance.usize(0..bytes.len());
        bytes[at] ^= 1 << chance.u32(0..7);
        let text = String::from_utf8_lossy(&bytes);
        match import(&text, "mine") {
            Err(invalid) => assert!(!invalid.problems.is_empty(), "bit flipped in byte {at}"),
            Ok(imported) => {
                if let Ok(description) = imported.sheet.description() {
                    let again = Sheet::parse(&imported.sheet.to_toml()).unwrap();
                    assert_eq!(again.description().unwrap(), description, "bit flipped in byte {at}");
                }
            }
        }
    }
}
