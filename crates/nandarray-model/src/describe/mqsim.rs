//! Imports configurations of MQSim (`ssdconfig.xml`) as descriptions.
//!
//! Values are used as written, even where MQSim itself would round: MQSim treats 400 MT/s as 500, and a bus above
//! 1,000 MT/s as infinitely fast. Notes list elements without a counterpart here and differences from MQSim's
//! behaviour. Values of missing elements are those of the preset `mqsim-default`.

use std::collections::BTreeMap;

use nandarray_describe::LineNumbers;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::{Invalid, Problem, Sheet, SheetEntry, Value};

/// An element of a configuration that the description lacks or treats differently.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The name of the XML element.
    pub key: String,
    /// The element's value.
    pub value: String,
    /// Treatment of the element, or the reason why it is ignored.
    pub what: String,
}

/// An imported configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The description as written; [`Sheet::description`] checks it.
    pub sheet: Sheet,
    /// Elements that the sheet lacks or treats differently.
    pub notes: Vec<Note>,
}

/// Elements that are ignored without a note: two concern logs, and the third the DRAM rows, which are not modelled.
const SILENT: &[&str] =
    &["Enable_ResponseTime_Logging", "ResponseTime_Logging_Period_Length", "Data_Cache_DRAM_Row_Size"];

/// Maximum nesting of elements.
const DEPTH_MAX: usize = 32;

/// Makes a description from a configuration; `name` is the device's name.
///
/// # Errors
/// If the text is not XML or not a configuration of MQSim, or a value does not suit its element.
pub fn import(xml: &str, name: &str) -> Result<Imported, Invalid> {
    let (elements, mut problems) = elements(xml);
    if problems.is_empty() && !elements.contains_key("Flash_Channel_Count") {
        problems.push(problem(None, "", "", "is no configuration of MQSim: it has no Flash_Channel_Count"));
    }
    let mut import =
        Import { elements, problems, notes: Vec::new(), used: Vec::new(), sheet: Sheet::preset("mqsim-default")? };
    import.sheet.written.name = name.to_owned();
    import.sheet.written.summary = "Imported from a configuration of MQSim".to_owned();
    import.sheet.written.bases = vec!["mqsim-default".to_owned()];
    if import.problems.is_empty() {
        import.host();
        import.memory();
        import.management();
        import.flash();
        import.rest();
    }
    if import.problems.is_empty() {
        Ok(Imported { sheet: import.sheet, notes: import.notes })
    } else {
        Err(Invalid { noun: "device", subject: name.to_owned(), problems: import.problems })
    }
}

fn problem(line: Option<u32>, key: &str, value: &str, what: &str) -> Problem {
    Problem { line, key: key.to_owned(), value: value.to_owned(), what: what.to_owned(), allowed: String::new() }
}

/// The text of an XML element, with its line.
struct XmlElement {
    text: String,
    line: u32,
}

/// Returns all elements that hold a text, at any depth, by name, and the problems of malformed XML.
fn elements(xml: &str) -> (BTreeMap<String, XmlElement>, Vec<Problem>) {
    let lines = LineNumbers::new(xml);
    let line = |at: u64| lines.of(at as usize);
    let (mut found, mut problems): (BTreeMap<String, XmlElement>, _) = (BTreeMap::new(), Vec::new());
    let mut open: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut reader = Reader::from_str(xml);
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                open.push(String::from_utf8_lossy(start.name().as_ref()).into_owned());
                text.clear();
                if open.len() > DEPTH_MAX {
                    problems.push(problem(Some(line(reader.buffer_position())), "", "", "is nested too deeply"));
                    break;
                }
            }
            Ok(Event::Text(part)) => text.push_str(&String::from_utf8_lossy(&part)),
            Ok(Event::End(_)) => {
                let name = open.pop().unwrap_or_default();
                if !text.trim().is_empty() {
                    let element = XmlElement { text: text.trim().to_owned(), line: line(reader.buffer_position()) };
                    found.insert(name, element);
                }
                text.clear();
            }
            Ok(Event::Eof) => {
                if let Some(name) = open.pop() {
                    problems.push(problem(Some(line(xml.len() as u64)), &name, "", "is not closed: the file ends"));
                }
                break;
            }
            Ok(_) => {}
            Err(error) => {
                let what = format!("is no XML: {error}");
                problems.push(problem(Some(line(reader.error_position())), "", "", &what));
                break;
            }
        }
    }
    (found, problems)
}

struct Import {
    elements: BTreeMap<String, XmlElement>,
    problems: Vec<Problem>,
    notes: Vec<Note>,
    used: Vec<&'static str>,
    sheet: Sheet,
}

impl Import {
    fn text(&mut self, element: &'static str) -> Option<String> {
        self.used.push(element);
        self.elements.get(element).map(|e| e.text.clone())
    }

    fn number(&mut self, element: &'static str) -> Option<f64> {
        let text = self.text(element)?;
        match text.parse::<f64>() {
            Ok(x) if x.is_finite() && x >= 0.0 => Some(x),
            _ => {
                let line = self.elements[element].line;
                self.problems.push(problem(Some(line), element, &text, "is no number from 0"));
                None
            }
        }
    }

    fn whole(&mut self, element: &'static str) -> Option<i64> {
        let x = self.number(element)?;
        if x.fract() == 0.0 && x < 9e15 {
            return Some(x as i64);
        }
        let (line, text) = (self.elements[element].line, self.elements[element].text.clone());
        self.problems.push(problem(Some(line), element, &text, "is no whole number"));
        None
    }

    fn flag(&mut self, element: &'static str) -> Option<bool> {
        // As in MQSim, every text but "false" is true.
        Some(!self.text(element)?.eq_ignore_ascii_case("false"))
    }

    fn set(&mut self, path: &str, value: impl Into<Value>, element: &str) {
        let source = format!("MQSim configuration: {element}");
        let origin = self.sheet.name().to_owned();
        self.sheet.written.set(path, SheetEntry { value: value.into(), source, origin, line: 0 });
    }

    fn note(&mut self, element: &str, what: impl Into<String>) {
        let value = self.elements.get(element).map(|e| e.text.clone()).unwrap_or_default();
        self.notes.push(Note { key: element.to_owned(), value, what: what.into() });
    }

    /// Sets a key to the whole number of an element, if the configuration has that element.
    fn count(&mut self, path: &str, element: &'static str) {
        if let Some(n) = self.whole(element) {
            self.set(path, n, element);
        }
    }

    /// Sets a key to the number of an element with this unit, if the configuration has that element.
    fn with_unit(&mut self, path: &str, element: &'static str, unit: &str) {
        if let Some(x) = self.number(element) {
            self.set(path, format!("{x} {unit}").as_str(), element);
        }
    }

    fn host(&mut self) {
        let lanes = self.whole("PCIe_Lane_Count");
        let lane = self.number("PCIe_Lane_Bandwidth");
        if lanes.is_some() || lane.is_some() {
            let gb = lanes.unwrap_or(4) as f64 * lane.unwrap_or(1.0);
            self.set("link.rate", format!("{gb} GB/s").as_str(), "PCIe_Lane_Count x PCIe_Lane_Bandwidth");
        }
        if self.text("HostInterface_Type").is_some_and(|t| !t.eq_ignore_ascii_case("NVME")) {
            self.note("HostInterface_Type", "the device speaks NVMe here");
        }
        if self.text("SATA_Processing_Delay").is_some() {
            self.note("SATA_Processing_Delay", "the device speaks NVMe here");
        }
        if let Some(entries) = self.whole("IO_Queue_Depth") {
            self.set("host.queue_entries", entries, "IO_Queue_Depth");
        }
        if let Some(slots) = self.whole("Queue_Fetch_Size") {
            self.set("controller.command_slots", slots, "Queue_Fetch_Size");
            self.note("Queue_Fetch_Size", "bounds all queues together here, each of them in MQSim");
        }
    }

    fn memory(&mut self) {
        let cache = self.whole("Data_Cache_Capacity");
        match cache {
            Some(0) => {
                self.set("ftl.write_cache", "none", "Data_Cache_Capacity");
                self.set("ftl.early_completion", false, "Data_Cache_Capacity");
            }
            Some(bytes) => self.set("ftl.write_cache", format!("{bytes} B").as_str(), "Data_Cache_Capacity"),
            None => {}
        }
        if self.text("Data_Cache_Sharing_Mode").is_some_and(|m| m != "SHARED") {
            self.note("Data_Cache_Sharing_Mode", "the cache is shared here");
        }
        if self.text("Caching_Mechanism").is_some() {
            self.note(
                "Caching_Mechanism",
                "there is one: writes complete in the cache, pages leave it in order of use",
            );
        }
        let rate = self.number("Data_Cache_DRAM_Data_Rate");
        let burst = self.number("Data_Cache_DRAM_Data_Busrt_Size");
        if rate.is_some() || burst.is_some() {
            // MQSim moves two bursts in a cycle of its "data rate".
            let mb = 2.0 * rate.unwrap_or(100.0) * burst.unwrap_or(1.0);
            let of = "2 x Data_Cache_DRAM_Data_Rate x Data_Cache_DRAM_Data_Busrt_Size";
            self.set("dram.rate", format!("{mb} MB/s").as_str(), of);
        }
        let parts = ["Data_Cache_DRAM_tRCD", "Data_Cache_DRAM_tCL", "Data_Cache_DRAM_tRP"].map(|p| self.number(p));
        if parts.iter().any(Option::is_some) {
            let ns: f64 = parts.iter().map(|p| p.unwrap_or(13.0)).sum();
            self.set("dram.t_access", format!("{ns} ns").as_str(), "Data_Cache_DRAM_tRCD + tCL + tRP");
        }
        let ideal = self.flag("Ideal_Mapping_Table") == Some(true);
        let map = self.whole("CMT_Capacity");
        if ideal {
            self.set("ftl.map_cache", "ideal", "Ideal_Mapping_Table");
        } else if let Some(bytes) = map {
            self.set("ftl.map_cache", format!("{bytes} B").as_str(), "CMT_Capacity");
        }
        if self.text("CMT_Sharing_Mode").is_some_and(|m| m != "SHARED") {
            self.note("CMT_Sharing_Mode", "the map's cache is shared here");
        }
        let bytes = cache.unwrap_or(256 << 20) + if ideal { 0 } else { map.unwrap_or(2 << 20) };
        if bytes > 512 << 20 {
            self.set("dram.size", format!("{bytes} B").as_str(), "Data_Cache_Capacity + CMT_Capacity");
        }
    }

    fn management(&mut self) {
        if self.text("Address_Mapping").is_some_and(|m| m != "PAGE_LEVEL") {
            self.note("Address_Mapping", "the map is by page here; MQSim's HYBRID is empty");
        }
        if let Some(order) = self.text("Plane_Allocation_Scheme") {
            let mut letters: Vec<u8> = order.bytes().collect();
            letters.sort_unstable();
            if letters == b"CDPW" {
                self.set("ftl.striping", format!("static {order}").as_str(), "Plane_Allocation_Scheme");
            } else {
                self.set("ftl.striping", "dynamic CWDP", "Plane_Allocation_Scheme");
                self.note("Plane_Allocation_Scheme", "a dynamic order here, channels first");
            }
        }
        match self.text("Transaction_Scheduling_Policy").as_deref() {
            None => {}
            Some("OUT_OF_ORDER" | "PRIORITY_OUT_OF_ORDER") => {
                self.set("controller.scheduling", "normal", "Transaction_Scheduling_Policy");
                let what = "dies work independently here; controller.scheduling = \"mqsim-compat\" does as MQSim does";
                self.note("Transaction_Scheduling_Policy", what);
            }
            Some(_) => self.note("Transaction_Scheduling_Policy", "is none of ours: it is normal here"),
        }
        if let Some(share) = self.number("Overprovisioning_Ratio") {
            self.set("ftl.over_provisioning", share, "Overprovisioning_Ratio");
        }
        if let Some(share) = self.number("GC_Exec_Threshold") {
            self.set("ftl.gc_threshold", share, "GC_Exec_Threshold");
        }
        let blocks = self.whole("Block_No_Per_Plane").unwrap_or(2048);
        match self.text("GC_Block_Selection_Policy").as_deref() {
            Some("GREEDY") => self.set("ftl.gc", "greedy", "GC_Block_Selection_Policy"),
            Some("FIFO") => self.set("ftl.gc", "round-robin", "GC_Block_Selection_Policy"),
            Some("RGA") => {
                self.set("ftl.gc", "d-choices", "GC_Block_Selection_Policy");
                let d = i64::from(u64::try_from(blocks).unwrap_or(1).max(2).ilog2());
                self.set("ftl.gc_choices", d, "log2(Block_No_Per_Plane), as its RGA");
            }
            Some(other) => {
                self.set("ftl.gc", "d-choices", "GC_Block_Selection_Policy");
                self.set("ftl.gc_choices", 1, "GC_Block_Selection_Policy");
                if other != "RANDOM" {
                    self.note("GC_Block_Selection_Policy", "one block drawn by chance here, whatever it holds");
                }
            }
            None => {}
        }
        if let Some(share) = self.number("GC_Hard_Threshold") {
            let urgent = (share * blocks as f64).floor().max(1.0) as i64;
            self.set("ftl.gc_urgent_blocks", urgent, "GC_Hard_Threshold x Block_No_Per_Plane");
        }
        if let Some(flag) = self.flag("Preemptible_GC_Enabled") {
            self.set("ftl.gc_preemptible", flag, "Preemptible_GC_Enabled");
        }
        if self.flag("Use_Copyback_for_GC") == Some(true) {
            self.note("Use_Copyback_for_GC", "pages that reclaim moves cross the channel here");
        }
        if let Some(flag) = self.flag("Dynamic_Wearleveling_Enabled") {
            self.set("ftl.wear_dynamic", flag, "Dynamic_Wearleveling_Enabled");
        }
        let threshold = self.whole("Static_Wearleveling_Threshold");
        match self.flag("Static_Wearleveling_Enabled") {
            Some(false) => self.set("ftl.wear_static_threshold", "none", "Static_Wearleveling_Enabled"),
            _ => {
                if let Some(threshold) = threshold {
                    self.set("ftl.wear_static_threshold", threshold, "Static_Wearleveling_Threshold");
                }
            }
        }
    }

    fn flash(&mut self) {
        self.count("geometry.channels", "Flash_Channel_Count");
        self.count("geometry.ways", "Chip_No_Per_Channel");
        self.count("geometry.dies", "Die_No_Per_Chip");
        self.count("geometry.planes", "Plane_No_Per_Die");
        self.count("geometry.blocks", "Block_No_Per_Plane");
        self.count("geometry.pages", "Page_No_Per_Block");
        self.with_unit("geometry.page_size", "Page_Capacity", "B");
        self.with_unit("geometry.spare_size", "Page_Metadat_Capacity", "B");
        self.with_unit("nand.t_erase", "Block_Erase_Latency", "ns");
        self.count("nand.endurance_cycles", "Block_PE_Cycles_Limit");
        self.bus();
        let cell = self.text("Flash_Technology").unwrap_or_else(|| "MLC".to_owned()).to_ascii_lowercase();
        self.set("nand.cell", cell.as_str(), "Flash_Technology");
        let kinds: &[usize] = match cell.as_str() {
            "slc" => &[0],
            "mlc" => &[0, 2],
            _ => &[0, 1, 2],
        };
        let reads = ["Page_Read_Latency_LSB", "Page_Read_Latency_CSB", "Page_Read_Latency_MSB"];
        let programs = ["Page_Program_Latency_LSB", "Page_Program_Latency_CSB", "Page_Program_Latency_MSB"];
        for (path, names, default_us) in [("nand.t_read", reads, 75), ("nand.t_program", programs, 750)] {
            let times = names.map(|n| self.number(n));
            if times.iter().any(Option::is_some) {
                let ns = |kind: &usize| times[*kind].unwrap_or(f64::from(default_us * 1000));
                let all: Vec<Value> = kinds.iter().map(|k| Value::Text(format!("{} ns", ns(k)))).collect();
                self.set(path, Value::List(all), names[0].trim_end_matches("_LSB"));
            }
        }
        self.suspension();
    }

    fn bus(&mut self) {
        if self.text("Flash_Comm_Protocol").is_some_and(|p| p != "NVDDR2") {
            self.note("Flash_Comm_Protocol", "command cycles are those of NV-DDR2 here");
        }
        let rate = self.number("Channel_Transfer_Rate");
        let width = self.number("Flash_Channel_Width");
        if rate.is_none() && width.is_none() {
            return;
        }
        let (rate, width) = (rate.unwrap_or(333.0), width.unwrap_or(1.0));
        let of = "Channel_Transfer_Rate, Flash_Channel_Width";
        self.set("bus.rate", format!("{rate} MT/s x{}", width * 8.0).as_str(), of);
        let cycle_ns = if rate > 0.0 { (1000.0 / rate).floor() } else { 0.0 };
        if cycle_ns == 0.0 {
            self.note(
                "Channel_Transfer_Rate",
                "MQSim rounds a transfer down to 0 ns, so that its bus is free; not here",
            );
        } else if (1000.0 / cycle_ns / rate - 1.0).abs() > 0.005 {
            let what =
                format!("MQSim rounds a transfer down to {cycle_ns} ns, {:.0} MT/s; not here", 1000.0 / cycle_ns);
            self.note("Channel_Transfer_Rate", what);
        }
    }

    fn suspension(&mut self) {
        let support = self.text("CMD_Suspension_Support").unwrap_or_else(|| "ERASE".to_owned());
        let program = self.number("Suspend_Program_Time").unwrap_or(100_000.0);
        let erase = self.number("Suspend_Erase_Time").unwrap_or(700_000.0);
        for (path, takes, ns) in [
            ("nand.t_suspend_program", matches!(support.as_str(), "PROGRAM" | "PROGRAM_ERASE"), program),
            ("nand.t_suspend_erase", matches!(support.as_str(), "ERASE" | "PROGRAM_ERASE"), erase),
        ] {
            let value = if takes { format!("{ns} ns") } else { "none".to_owned() };
            self.set(path, value.as_str(), "CMD_Suspension_Support");
        }
        if support == "NONE" {
            self.set("nand.suspends_max", 0, "CMD_Suspension_Support");
        } else {
            self.note("CMD_Suspension_Support", "operations are suspended here; MQSim never does");
        }
        for element in [
            "Preferred_suspend_erase_time_for_read",
            "Preferred_suspend_erase_time_for_write",
            "Preferred_suspend_write_time_for_read",
            "Prefered_suspend_erase_time_for_read",
            "Prefered_suspend_erase_time_for_write",
            "Prefered_suspend_write_time_for_read",
        ] {
            if self.text(element).is_some() {
                self.note(element, "when to suspend is the scheduler's own choice here");
            }
        }
    }

    /// Adds notes about elements that describe a workload, and about unknown elements.
    fn rest(&mut self) {
        if self.text("Memory_Type").is_some_and(|m| !m.eq_ignore_ascii_case("FLASH")) {
            self.note("Memory_Type", "the memory is flash here");
        }
        if self.text("Seed").is_some() {
            self.note("Seed", "belongs to a run, not to a device");
        }
        if self.text("Enabled_Preconditioning").is_some() {
            self.note("Enabled_Preconditioning", "belongs to a run, not to a device");
        }
        let unknown: Vec<String> = self
            .elements
            .keys()
            .filter(|k| !self.used.contains(&k.as_str()) && !SILENT.contains(&k.as_str()))
            .cloned()
            .collect();
        for element in unknown {
            self.note(&element, "is not known");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::{GcPolicy, Scheduling};
    use nandarray_sim::Ps;

    const XML: &str = include_str!("testdata/mqsim.xml");

    #[test]
    fn a_configuration_says_what_it_says() {
        let imported = import(XML, "mine").unwrap();
        let d = imported.sheet.description().unwrap();
        assert_eq!((d.geometry.channels, d.geometry.ways, d.geometry.dies, d.geometry.planes), (4, 2, 1, 4));
        assert_eq!(d.geometry.page_bytes, 16_384);
        // 2.5 ns a transfer; MQSim itself rounds them down to 2.
        assert_eq!(d.bus.bytes_per_s, 400_000_000);
        assert_eq!(d.nand.t_read, [Ps::from_us(50), Ps::from_us(60), Ps::from_us(70)]);
        assert_eq!(d.ftl.gc, GcPolicy::DChoices(10));
        assert_eq!(d.ftl.gc_urgent_blocks, 5);
        assert_eq!(d.ftl.map_cache_bytes, None);
        assert_eq!(d.controller.scheduling, Scheduling::Normal);
        assert_eq!(d.link.bytes_per_s, 4_000_000_000);
        assert_eq!(d.nand.t_suspend_program, None);
        let noted: Vec<&str> = imported.notes.iter().map(|n| n.key.as_str()).collect();
        for key in ["Channel_Transfer_Rate", "Use_Copyback_for_GC", "Seed", "Made_Up", "CMD_Suspension_Support"] {
            assert!(noted.contains(&key), "{key} in {noted:?}");
        }
        assert!(imported.notes.iter().any(|n| n.what.contains("500 MT/s")));
    }

    #[test]
    fn what_is_none_is_an_error_that_names_it() {
        let broken = |from: &str, to: &str| import(&XML.replace(from, to), "mine").unwrap_err().to_string();
        assert!(broken("</Flash_Parameter_Set>", "").contains("is no XML"));
        let text = broken("<Flash_Channel_Count>4<", "<Flash_Channel_Count>four<");
        assert!(text.contains("line 29") && text.contains("Flash_Channel_Count"), "{text}");
        assert!(import("", "mine").unwrap_err().to_string().contains("no configuration of MQSim"));
        assert!(import("<a><b>1</b>", "mine").unwrap_err().to_string().contains("not closed"));
        let deep = "<a>".repeat(100);
        assert!(import(&deep, "mine").unwrap_err().to_string().contains("too deeply"));
        // A value of the right type but out of a device's range is an error of the description.
        let imported = import(&XML.replace(">16384<", ">100<"), "mine").unwrap();
        assert!(imported.sheet.description().unwrap_err().to_string().contains("geometry.page_size"));
    }
}
