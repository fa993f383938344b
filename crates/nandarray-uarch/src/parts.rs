//! Named parts of a core with their area and power, from which a report computes energy.
//!
//! Totals are always computed from the parts; those that a publication states are only compared with them. A part draws
//! its active power while its core works or waits for its caches, and its idle power while the core waits for data of a
//! stream.

use nandarray_describe::{number, table};

table! {
    /// A part that each core has, or that all cores of a device share.
    pub struct CorePart {
        name: String, "name of the part";
        count: u32, "number of such parts, per core or (if shared) per device", default by "number::<1>";
        area_mm2: f64, "area of one part, in square millimetres";
        active_mw: f64, "power of one part while its core works, in milliwatts";
        idle_mw: Option<f64>, "power of one part while its core waits for a stream, in milliwatts; the active power \
            if left out";
        shared: bool, "whether all cores of a device share the part, which then exists `count` times per device",
            default;
        source: String, "publication or data sheet that the numbers come from";
    }
}

/// Area and energy of one kind of part in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PartEnergy {
    /// Name of the part.
    pub name: String,
    /// Area of all parts of this kind, in square millimetres.
    pub area_mm2: f64,
    /// Energy of all parts of this kind, in joules.
    pub energy_j: f64,
}

impl CorePart {
    /// Returns the energy of all parts of this kind over an active and an idle time, both in picoseconds.
    pub fn energy(&self, active_ps: u64, idle_ps: u64) -> PartEnergy {
        let count = f64::from(self.count);
        let idle_mw = self.idle_mw.unwrap_or(self.active_mw);
        let energy_j = count * (self.active_mw * active_ps as f64 + idle_mw * idle_ps as f64) * 1e-15;
        PartEnergy { name: self.name.clone(), area_mm2: count * self.area_mm2, energy_j }
    }

    /// Returns the area in square millimetres and the active power in milliwatts of `cores` cores with the parts they
    /// share.
    pub fn totals(parts: &[Self], cores: u32) -> (f64, f64) {
        let each = |part: &Self| f64::from(part.count) * if part.shared { 1.0 } else { f64::from(cores) };
        parts.iter().fold((0.0, 0.0), |(area, power), part| {
            (area + each(part) * part.area_mm2, power + each(part) * part.active_mw)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_power_times_time() {
        let part = CorePart {
            name: "x".into(),
            count: 2,
            area_mm2: 0.5,
            active_mw: 3.0,
            idle_mw: Some(1.0),
            shared: false,
            source: "test".into(),
        };
        let energy = part.energy(1_000_000_000_000, 2_000_000_000_000);
        assert!(energy.area_mm2 == 1.0 && (energy.energy_j - 0.010).abs() < 1e-12, "{energy:?}");
    }
}
