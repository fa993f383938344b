//! The model beside what we did not write, and what it costs: `python -m bench model`, or
//! `cargo bench -p nandarray-model --bench model -- [--json] [--short] [--only PRESET] [SECTION...]`.
//!
//! | section | what |
//! | --- | --- |
//! | `rows` | MQSim's measured rows beside ours, with its scheduling and with ours |
//! | `configurations` | its rows in configurations that no preset was made from |
//! | `sheets` | presets beside their data sheets |
//! | `speed` | simulated requests a CPU second, by depth, channels and capacity; time and memory of a large device |
//! | `steady` | ten million writes on a device that reclaims all the time |
//!
//! Times are CPU time of this process: who else is on the machine changes them little. `--short` is a tenth of
//! everything.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

mod cases;
mod configurations;
mod rows;
mod sheets;
mod speed;
mod steady;
mod table;

/// Length of the benchmarks, and form of their output.
#[derive(Clone, Copy)]
pub struct Options {
    json: bool,
    short: bool,
    /// Runs only the data sheets of presets whose names contain this text.
    only: &'static str,
}

impl Options {
    /// Returns the full number of requests, or a tenth of it in a short run.
    fn many(self, full: u64) -> u64 {
        if self.short { full / 10 } else { full }
    }
}

const SECTIONS: [(&str, fn(Options)); 5] = [
    ("rows", rows::run),
    ("configurations", rows::run_configurations),
    ("sheets", sheets::run),
    ("speed", speed::run),
    ("steady", steady::run),
];

fn main() {
    let mut options = Options { json: false, short: false, only: "" };
    let mut wanted = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--short" => options.short = true,
            "--only" => options.only = arguments.next().unwrap_or_default().leak(),
            // Cargo passes this argument to every benchmark.
            "--bench" => {}
            // The benchmark runs this program as a child process, to measure its memory.
            "--set-up" => return speed::set_up(&arguments.collect::<Vec<_>>()),
            name if SECTIONS.iter().any(|(known, _)| *known == name) => wanted.push(name.to_owned()),
            other => {
                let known: Vec<_> = SECTIONS.iter().map(|(name, _)| *name).collect();
                eprintln!("unknown section {other}; known: {}", known.join(", "));
                std::process::exit(2);
            }
        }
    }
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            run(options);
        }
    }
}
