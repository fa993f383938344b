//! Formats a report as text for terminals, with its most important numbers.

use std::fmt;

use super::{OpReport, Report};

/// Formats a number with three significant digits and a prefix: 1.23 G, 45.6 k, 789.
fn scaled(n: f64) -> String {
    const PREFIXES: [&str; 5] = [" ", " k", " M", " G", " T"];
    let (mut n, mut prefix) = (n, 0);
    // A number that would be rounded up to 1000 takes the next prefix.
    while n >= 999.5 && prefix + 1 < PREFIXES.len() {
        n /= 1e3;
        prefix += 1;
    }
    let digits = if n >= 99.95 || n == 0.0 {
        0
    } else if n >= 9.995 {
        1
    } else {
        2
    };
    format!("{n:.digits$}{}", PREFIXES[prefix])
}

/// Formats mean, minimum and maximum of some fractions as percentages.
fn spread(shares: &[f64]) -> String {
    let percent = |s: f64| format!("{:.1} %", s * 100.0);
    match shares {
        [] => "-".into(),
        [one] => percent(*one),
        _ => {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            format!("{} ({} to {})", percent(mean), percent(least), percent(most))
        }
    }
}

fn op(f: &mut fmt::Formatter<'_>, name: &str, of: &OpReport) -> fmt::Result {
    let (rate, iops) = (scaled(of.bytes_per_s), scaled(of.iops));
    write!(f, "{name:<8}{:>12}{:>12}{:>12}", of.requests, iops.trim_end(), format!("{rate}B/s"))?;
    let Some(l) = &of.latency else { return writeln!(f) };
    for us in [l.mean_us, l.p50_us, l.p99_us, l.p99_9_us, l.p99_99_us, l.max_us] {
        write!(f, "{us:>12.1}")?;
    }
    writeln!(f)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.elapsed_s;
        writeln!(f, "{}: {} requests in {took:.6} s, {} failed", self.device, self.all.requests, self.all.failed)?;
        write!(f, "{:<8}{:>12}{:>12}{:>12}", "", "requests", "IOPS", "throughput")?;
        for heading in ["mean us", "p50", "p99", "p99.9", "p99.99", "max"] {
            write!(f, "{heading:>12}")?;
        }
        writeln!(f)?;
        for (name, of) in [("read", &self.read), ("write", &self.write), ("trim", &self.trim), ("flush", &self.flush)] {
            if of.requests > 0 {
                op(f, name, of)?;
            }
        }
        if let Some(beside) = self.programs.as_ref().and_then(|programs| programs.host_beside.as_ref()) {
            op(f, "beside", beside)?;
        }
        if let Some(management) = &self.management {
            if let Some(wa) = management.write_amplification {
                let wear = &management.wear;
                writeln!(
                    f,
                    "write amplification {wa:.3}; erases a block {} to {}, on average {:.2}",
                    wear.min, wear.max, wear.mean
                )?;
            }
        }
        let busy = &self.utilisation;
        writeln!(f, "busy    channels {}; dies {}", spread(&busy.channels), spread(&busy.dies))?;
        writeln!(
            f,
            "        cores {}; link down {:.1} %, up {:.1} %; DRAM {:.1} %; host cores {}",
            spread(&busy.cores),
            busy.link_down * 100.0,
            busy.link_up * 100.0,
            busy.dram * 100.0,
            spread(&busy.host_cores)
        )?;
        let energy = &self.energy;
        write!(f, "energy  {}J, {:.2} W", scaled_small(energy.device_j), energy.device_w)?;
        let mut parts = energy.parts();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, j) in parts.into_iter().filter(|p| p.1 > 0.005 * energy.device_j) {
            write!(f, "; {name} {:.0} %", j / energy.device_j * 100.0)?;
        }
        writeln!(f)?;
        for p in &self.promises {
            let (promised, measured) = (scaled(p.promised), scaled(p.measured));
            let (what, unit) = (p.what, p.unit);
            writeln!(f, "{what}: {measured}{unit}, data sheet {promised}{unit} ({:+.1} %)", (p.ratio - 1.0) * 100.0)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Formats a number as `scaled` does, with prefixes also for numbers below 1.
fn scaled_small(n: f64) -> String {
    match n {
        n if n >= 1.0 || n == 0.0 => scaled(n),
        n if n >= 1e-3 => format!("{:.3} m", n * 1e3),
        n if n >= 1e-6 => format!("{:.3} u", n * 1e6),
        n => format!("{:.3} n", n * 1e9),
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
