//! Measures the cost of simulating: requests per CPU second of the whole machine, and time and memory to make a large
//! device.

use std::process::Command;

use cpu_time::ProcessTime;
use nandarray_model::describe::{Description, preset_with};

use crate::Options;
use crate::cases::{Before, Case};
use crate::table::{Table, ratio, whole};

/// Requests that MQSim simulates per CPU second on a similar computer, in its "ideal" configuration.
const MQSIM_PER_CPU_S: f64 = 115_000.0;

/// Runs random 4 KiB reads on a filled device; returns requests per CPU second, and per second of modelled time.
fn reads(d: &Description, depth: u32, requests: u64) -> (f64, f64) {
    let case = Case::closed("", Before::Filled, 4096, false, 1.0, depth, requests);
    let mut machine = case.machine(d);
    let start = ProcessTime::now();
    let (report, counted) = case.run(&mut machine);
    let spent = start.elapsed().as_secs_f64();
    (counted.ended as f64 / spent, report.all.iops)
}

fn with(overrides: &[(&str, &str)]) -> Description {
    // MQSim's fixed threshold of ten blocks per plane would leave no space on small devices.
    let mut all = vec![("controller.command_slots", "65535"), ("ftl.gc_urgent_blocks", "2")];
    all.extend(overrides);
    preset_with("mqsim-ideal", &all).expect("a preset")
}

pub fn run(options: Options) {
    let n = options.many(2_000_000);
    let _ = reads(&with(&[]), 32, n / 10);
    let header = ["device", "depth", "requests a CPU second", "of MQSim's 115,000", "modelled IOPS"];
    let mut table = Table::new("speed", format!("{} random 4 KiB reads of mqsim-ideal", whole(n as f64)), &header);
    let mut line = |what: String, d: &Description, depth| {
        let (speed, iops) = reads(d, depth, n);
        table.row(vec![what, depth.to_string(), whole(speed), ratio(speed, MQSIM_PER_CPU_S), whole(iops)]);
    };
    for depth in [1, 32, 256, 2_048, 16_384] {
        line("8 channels, 512 GiB".into(), &with(&[]), depth);
    }
    for channels in ["2", "32", "128"] {
        let d = with(&[("geometry.channels", channels)]);
        line(format!("{channels} channels, 32 a channel"), &d, d.geometry.channels * 32);
    }
    for (blocks, bytes) in [("64", "16 GiB"), ("32768", "8 TiB")] {
        line(format!("8 channels, {bytes}"), &with(&[("geometry.blocks", blocks)]), 256);
    }
    let compat = with(&[("controller.scheduling", "mqsim-compat")]);
    line("8 channels, 512 GiB, mqsim-compat".into(), &compat, 256);
    table.print(options.json);
    large(options);
}

/// Measures making devices, each in a process of its own, so that the measured memory is of that device alone.
fn large(options: Options) {
    let header = ["device", "made and filled in", "resident after", "after a million random writes"];
    let mut table = Table::new(
        "speed",
        "Making a device and filling it sequentially; promised for 512 GiB: under 1 s, 200 MB",
        &header,
    );
    for (blocks, bytes) in [("64", "16 GiB"), ("2048", "512 GiB"), ("32768", "8 TiB")] {
        let program = std::env::current_exe().expect("a program knows where it is");
        let writes = options.many(1_000_000).to_string();
        let output = Command::new(program).args(["--set-up", blocks, &writes]).output().expect("it runs again");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("numbers");
        let found: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let mb = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
        table.row(vec![bytes.to_owned(), format!("{:.3} CPU s", found[0]), mb(found[1]), mb(found[2])]);
    }
    table.print(options.json);
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Runs as the child process: makes a device with the given number of blocks per plane, fills it, and writes the given
/// number of pages at random; prints seconds and bytes.
pub fn set_up(arguments: &[String]) {
    let [blocks, writes] = arguments else { panic!("blocks and writes") };
    let start = ProcessTime::now();
    let case = Case::closed("", Before::Filled, 8192, false, 0.0, 64, writes.parse().expect("a number of writes"));
    let mut machine = case.machine(&with(&[("geometry.blocks", blocks)]));
    let (spent, made) = (start.elapsed().as_secs_f64(), resident_bytes());
    let _ = case.run(&mut machine);
    println!("{spent} {made} {}", resident_bytes());
}
