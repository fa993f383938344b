//! Turns a sheet into a description: reads every quantity, checks every range, and reports all problems at once.
//!
//! Rules between several keys are checked in `check`, after each value has been found valid by itself.

use super::check;
use super::description::*;
use super::keys::{
    self, ArbitrationWord, CellWord, ComposesWord, CoreWord, EntriesWord, IsaWord, KEYS, PlacementWord, PrefetchWord,
    SchedulingWord, SourceWord,
};
use super::problem::{Invalid, Problem};
use super::sheet::Sheet;
use super::value::Quantity;
use nandarray_sim::Ps;

impl Sheet {
    /// Resolves the sheet into a description in the simulation's units.
    ///
    /// # Errors
    /// All values that are missing, out of range, in a wrong unit or contradictory.
    pub fn description(&self) -> Result<Description, Invalid> {
        let mut problems = Vec::new();
        let quantities: Vec<Option<Quantity>> = KEYS
            .iter()
            .zip(&self.entries)
            .map(|(key, entry)| {
                let Some(entry) = entry else {
                    problems.push(Problem {
                        line: None,
                        key: key.path.to_owned(),
                        value: String::new(),
                        what: format!("is missing: {}", key.meaning),
                        allowed: format!("allowed is {}", key.kind.allowed()),
                    });
                    return None;
                };
                match key.kind.read(&entry.value) {
                    Ok(quantity) => Some(quantity),
                    Err(wrong) => {
                        let bound = if key.bound.is_empty() { String::new() } else { format!(" ({})", key.bound) };
                        problems.push(Problem {
                            line: self.line_of(entry),
                            key: key.path.to_owned(),
                            value: entry.value.to_string(),
                            what: wrong.what,
                            allowed: format!("allowed is {}{bound}", wrong.allowed),
                        });
                        None
                    }
                }
            })
            .collect();
        if problems.is_empty() {
            let description = Quantities(quantities).description(self);
            problems = check::check(&description, self);
            if problems.is_empty() {
                return Ok(description);
            }
        }
        problems.sort_by_key(|p| p.line.unwrap_or(u32::MAX));
        Err(Invalid { subject: self.name.clone(), problems })
    }

    /// Returns the line of an entry in this description's own text; `None` if the value comes from elsewhere.
    pub(super) fn line_of(&self, entry: &super::sheet::SheetEntry) -> Option<u32> {
        (entry.line > 0 && entry.origin == self.name).then_some(entry.line)
    }
}

/// The quantities of all keys in the order of [`KEYS`], each of its key's kind.
struct Quantities(Vec<Option<Quantity>>);

impl Quantities {
    fn get(&self, path: &str) -> &Quantity {
        let at = keys::index(path).unwrap_or_else(|| panic!("{path} is in the table of keys"));
        self.0[at].as_ref().expect("all keys were read")
    }

    fn whole(&self, path: &str) -> u64 {
        self.maybe(path).unwrap_or_else(|| panic!("{path} is always a number"))
    }

    /// Returns a whole number; `None` if the value is the key's special word, such as `"none"`.
    fn maybe(&self, path: &str) -> Option<u64> {
        match self.get(path) {
            Quantity::Whole(n) => Some(*n),
            Quantity::Nothing => None,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn small(&self, path: &str) -> u32 {
        u32::try_from(self.whole(path)).expect("ranges of counts end within 32 bits")
    }

    fn real(&self, path: &str) -> f64 {
        match self.get(path) {
            Quantity::Real(x) => *x,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn time(&self, path: &str) -> Ps {
        self.maybe_time(path).unwrap_or_else(|| panic!("{path} is always a time"))
    }

    fn maybe_time(&self, path: &str) -> Option<Ps> {
        match self.get(path) {
            Quantity::Time(t) => Some(*t),
            Quantity::Nothing => None,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Returns the `n` times of a key; a value with a single time stands for `n` equal ones.
    fn times(&self, path: &str, n: usize) -> Vec<Ps> {
        match self.get(path) {
            Quantity::Times(all) if all.len() == 1 => vec![all[0]; n],
            Quantity::Times(all) => all.clone(),
            other => panic!("{path} is {other:?}"),
        }
    }

    fn flag(&self, path: &str) -> bool {
        match self.get(path) {
            Quantity::Flag(flag) => *flag,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn word<W: From<&'static str>>(&self, path: &str) -> W {
        match self.get(path) {
            Quantity::Word(word) => W::from(word),
            other => panic!("{path} is {other:?}"),
        }
    }

    fn counts(&self, path: &str) -> Vec<Option<u32>> {
        match self.get(path) {
            Quantity::Counts(all) => all.iter().map(|n| n.map(|n| n as u32)).collect(),
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Returns an operation's energy in picojoules, per page and per command; one of the two is 0. A value that is a
    /// current gives an energy per command: the die draws the current for the time `lasts`, however many of its planes
    /// take part.
    fn energy_pj(&self, path: &str, lasts: Ps) -> (f64, f64) {
        match self.get(path) {
            Quantity::Real(pj) => (*pj, 0.0),
            Quantity::WattsWhile(watts) => (0.0, watts * lasts.0 as f64),
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Returns the entries of a list; empty for `"none"`.
    fn list(&self, path: &str) -> &[Quantity] {
        match self.get(path) {
            Quantity::List(all) => all,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn description(&self, sheet: &Sheet) -> Description {
        let nand = self.nand();
        let reliability = self.reliability();
        Description {
            name: sheet.name.clone(),
            summary: sheet.summary.clone(),
            geometry: self.geometry(),
            bus: self.bus(),
            energy: self.energy(&nand, &reliability),
            nand,
            reliability,
            controller: self.controller(),
            compute: self.compute(),
            ftl: self.ftl(),
            dram: Dram {
                bytes_per_s: self.maybe("dram.rate").unwrap_or(0),
                t_access: self.time("dram.t_access"),
                bytes: self.whole("dram.size"),
                burst_bytes: self.whole("dram.burst"),
                read_crossings: self.small("dram.read_crossings"),
            },
            link: LinkSettings {
                bytes_per_s: self.whole("link.rate"),
                packet_payload_bytes: self.small("link.packet_payload"),
                packet_overhead_bytes: self.small("link.packet_overhead"),
                t_propagate: self.time("link.t_propagate"),
                command_bytes: self.small("link.command_size"),
                completion_bytes: self.small("link.completion_size"),
                entries_ahead: match self.word("link.entries") {
                    EntriesWord::InOrder => false,
                    EntriesWord::Ahead => true,
                },
            },
            host: self.host(),
            idle_states: self.idle_states(),
            spec: self.spec(),
        }
    }

    fn geometry(&self) -> FlashGeometry {
        FlashGeometry {
            channels: self.small("geometry.channels"),
            ways: self.small("geometry.ways"),
            dies: self.small("geometry.dies"),
            planes: self.small("geometry.planes"),
            blocks: self.small("geometry.blocks"),
            pages: self.small("geometry.pages"),
            page_bytes: self.small("geometry.page_size"),
            spare_bytes: self.small("geometry.spare_size"),
        }
    }

    fn bus(&self) -> Bus {
        Bus {
            bytes_per_s: self.whole("bus.rate"),
            t_read_command: self.time("bus.t_read_command"),
            t_program_command: self.time("bus.t_program_command"),
            t_erase_command: self.time("bus.t_erase_command"),
            t_read_further_plane: self.time("bus.t_read_further_plane"),
            t_program_further_plane: self.time("bus.t_program_further_plane"),
            t_erase_further_plane: self.time("bus.t_erase_further_plane"),
            t_data_out_command: self.time("bus.t_data_out_command"),
            t_suspend_command: self.time("bus.t_suspend_command"),
            transfers_spare: self.flag("bus.transfers_spare"),
        }
    }

    fn nand(&self) -> Nand {
        let cell = match self.word("nand.cell") {
            CellWord::Slc => Cell::Slc,
            CellWord::Mlc => Cell::Mlc,
            CellWord::Tlc => Cell::Tlc,
            CellWord::Qlc => Cell::Qlc,
        };
        let one_shot = self.flag("nand.one_shot");
        Nand {
            cell,
            t_read: self.times("nand.t_read", cell.bits()),
            t_program: self.times("nand.t_program", if one_shot { 1 } else { cell.bits() }),
            t_erase: self.time("nand.t_erase"),
            t_ready: self.time("nand.t_ready"),
            one_shot,
            multi_plane: self.flag("nand.multi_plane"),
            independent_planes: self.flag("nand.independent_planes"),
            t_cache_read_busy: self.maybe_time("nand.t_cache_read_busy"),
            t_cache_program_busy: self.maybe_time("nand.t_cache_program_busy"),
            t_suspend_program: self.maybe_time("nand.t_suspend_program"),
            t_suspend_erase: self.maybe_time("nand.t_suspend_erase"),
            t_resume: self.time("nand.t_resume"),
            suspends_max: self.small("nand.suspends_max"),
            endurance_cycles: self.small("nand.endurance_cycles"),
        }
    }

    fn reliability(&self) -> Reliability {
        Reliability {
            rber_base: self.real("reliability.rber_base"),
            rber_cycles: self.real("reliability.rber_cycles"),
            rber_cycles_exp: self.real("reliability.rber_cycles_exp"),
            rber_retention: self.real("reliability.rber_retention"),
            rber_retention_cycles_exp: self.real("reliability.rber_retention_cycles_exp"),
            rber_retention_days_exp: self.real("reliability.rber_retention_days_exp"),
            rber_reads: self.real("reliability.rber_reads"),
            rber_reads_cycles_exp: self.real("reliability.rber_reads_cycles_exp"),
            rber_reads_exp: self.real("reliability.rber_reads_exp"),
            retention_days: self.real("reliability.retention_days"),
            cycles_before: self.small("reliability.cycles_before"),
            ecc_codeword_bytes: self.maybe("reliability.ecc_codeword_size").unwrap_or(0) as u32,
            ecc_correctable_bits: self.small("reliability.ecc_correctable_bits"),
            t_ecc_decode: self.time("reliability.t_ecc_decode"),
            t_read_retry: self.time("reliability.t_read_retry"),
            read_retries_max: self.small("reliability.read_retries_max"),
            read_retry_rber_factor: self.real("reliability.read_retry_rber_factor"),
            factory_bad_ppm: self.small("reliability.factory_bad_ppm"),
            grown_bad_ppm: self.small("reliability.grown_bad_ppm"),
        }
    }

    fn compute(&self) -> Option<Compute> {
        let cores = self.maybe("compute.cores")? as u32;
        let ticks = |path| self.maybe(path).map(|n| n as u32);
        let core = match self.word("compute.core") {
            CoreWord::None => None,
            word => Some(CoreWord::WORDS[word as usize]),
        };
        let prefetch = match self.word("compute.prefetch") {
            PrefetchWord::Core => None,
            word => Some(PrefetchWord::WORDS[word as usize]),
        };
        let pages = self.small("compute.pages");
        let parts = self.compute_parts();
        let power_uw = ComputeParts::sum(&parts.power_uw, cores) / f64::from(cores);
        let power = |path| if power_uw > 0.0 { power_uw } else { self.real(path) };
        Some(Compute {
            cores,
            clock_hz: self.whole("compute.clock"),
            core_active_uw: power("compute.core_active"),
            core_idle_uw: power("compute.core_idle"),
            core,
            checks_isa: match self.word("compute.isa") {
                IsaWord::Own => true,
                IsaWord::Any => false,
            },
            l1i_bytes: self.maybe("compute.l1i_size"),
            l1i_ways: ticks("compute.l1i_ways"),
            l1d_bytes: self.maybe("compute.l1d_size"),
            l1d_ways: ticks("compute.l1d_ways"),
            l2_bytes: self.maybe("compute.l2_size"),
            l2_ways: ticks("compute.l2_ways"),
            l1d_ticks: ticks("compute.l1d_ticks"),
            l2_ticks: ticks("compute.l2_ticks"),
            prefetch,
            load_ticks: ticks("compute.load_ticks"),
            store_ticks: ticks("compute.store_ticks"),
            multiply_ticks: ticks("compute.multiply_ticks"),
            divide_ticks: ticks("compute.divide_ticks"),
            taken_ticks: ticks("compute.taken_ticks"),
            vector: self.vector_keys(),
            scratchpad_bytes: self.whole("compute.scratchpad"),
            scratchpad_ticks: ticks("compute.scratchpad_ticks"),
            stream_ticks: ticks("compute.stream_ticks"),
            streams: self.small("compute.streams"),
            pages,
            read_ahead: ticks("compute.read_ahead").unwrap_or(pages),
            half_bytes: self.whole("compute.half_size"),
            input: match self.word("compute.input") {
                SourceWord::Dram => InputFrom::Dram,
                SourceWord::PingPong => InputFrom::PingPong,
                SourceWord::Stream => InputFrom::Stream,
            },
            placement: match self.word("compute.placement") {
                PlacementWord::Crossbar => CorePlacement::Crossbar,
                PlacementWord::Channel => CorePlacement::Channel,
            },
            crossbar_bytes_per_s: self.maybe("compute.crossbar_rate").unwrap_or(0),
            t_crossbar: self.time("compute.t_crossbar"),
            t_manage: self.time("compute.t_manage"),
            t_request: self.time("compute.t_request"),
            parts,
        })
    }

    fn vector_keys(&self) -> VectorKeys {
        let ticks = |path| self.maybe(path).map(|n| n as u32);
        VectorKeys {
            length_bits: ticks("compute.vector_length"),
            datapath_bits: ticks("compute.datapath_bits"),
            memory_bits: ticks("compute.vector_memory_bits"),
            element_ticks: ticks("compute.element_ticks"),
            align_bits: ticks("compute.align_bits"),
            align_ticks: ticks("compute.align_ticks"),
            unpack_lines: ticks("compute.unpack_lines"),
            unpack_bits: ticks("compute.unpack_bits"),
            unpack_ticks: ticks("compute.unpack_ticks"),
        }
    }

    fn compute_parts(&self) -> ComputeParts {
        let each = |what: &str| ComputeParts::NAMES.map(|name| self.real(&format!("compute.{name}_{what}")));
        ComputeParts { power_uw: each("power"), area_mm2: each("mm2") }
    }

    fn controller(&self) -> ControllerSettings {
        ControllerSettings {
            cores: self.small("controller.cores"),
            t_command: self.time("controller.t_command"),
            t_translate: self.time("controller.t_translate"),
            t_translate_block: self.time("controller.t_translate_block"),
            t_allocate: self.time("controller.t_allocate"),
            t_assemble: self.time("controller.t_assemble"),
            t_channel: self.time("controller.t_channel"),
            t_complete: self.time("controller.t_complete"),
            coordinates_bytes: self.small("controller.coordinates_size"),
            channel_handlers: self.small("controller.channel_handlers"),
            stage_cores: self.counts("controller.stage_cores").try_into().expect("five stages"),
            command_slots: self.small("controller.command_slots"),
            scheduling: match self.word("controller.scheduling") {
                SchedulingWord::Normal => Scheduling::Normal,
                SchedulingWord::Fifo => Scheduling::Fifo,
                SchedulingWord::MqsimCompat => Scheduling::MqsimCompat,
            },
            spaces_in_device: self.flag("controller.spaces_in_device"),
        }
    }

    fn ftl(&self) -> FtlSettings {
        let Quantity::Striping(dynamic, letters) = *self.get("ftl.striping") else {
            panic!("ftl.striping is an order");
        };
        let order = letters.map(|letter| match letter {
            b'C' => StripeLevel::Channel,
            b'W' => StripeLevel::Way,
            b'D' => StripeLevel::Die,
            b'P' => StripeLevel::Plane,
            other => panic!("{:?} is no letter of a striping", char::from(other)),
        });
        FtlSettings {
            over_provisioning: self.real("ftl.over_provisioning"),
            striping: if dynamic { Striping::Dynamic(order) } else { Striping::Static(order) },
            map_cache_bytes: self.maybe("ftl.map_cache"),
            map_entry_bytes: self.small("ftl.map_entry_size"),
            gc: GcPolicy::by_name(self.word("ftl.gc"), self.small("ftl.gc_choices")).expect("one of its names"),
            gc_threshold: self.real("ftl.gc_threshold"),
            gc_urgent_blocks: self.small("ftl.gc_urgent_blocks"),
            gc_preemptible: self.flag("ftl.gc_preemptible"),
            wear_dynamic: self.flag("ftl.wear_dynamic"),
            wear_static_threshold: self.maybe("ftl.wear_static_threshold").map(|n| n as u32),
            hot_cold: self.flag("ftl.hot_cold"),
            write_cache_bytes: self.maybe("ftl.write_cache").unwrap_or(0),
            early_completion: self.flag("ftl.early_completion"),
        }
    }

    fn host(&self) -> HostSettings {
        let burst = self.small("host.arbitration_burst");
        let weights = self.counts("host.arbitration_weights");
        let classes = self.counts("host.queue_classes");
        let whole = |n: Option<u32>| n.expect("a list of counts has no \"none\"");
        HostSettings {
            queues: self.small("host.queues"),
            queue_entries: self.small("host.queue_entries"),
            arbitration: match self.word("host.arbitration") {
                ArbitrationWord::RoundRobin => Arbitration::RoundRobin { burst },
                ArbitrationWord::Weighted => {
                    let (weights, classes) = ([0, 1, 2].map(|i| weights[i]), [0, 1, 2, 3].map(|i| classes[i]));
                    Arbitration::Weighted { burst, weights: weights.map(whole), classes: classes.map(whole) }
                }
            },
            t_submit: self.time("host.t_submit"),
            t_complete: self.time("host.t_complete"),
            t_interrupt: self.maybe_time("host.t_interrupt"),
            t_copy_run: self.time("host.t_copy_run"),
            copy_bytes_per_s: self.whole("host.copy_rate"),
            t_translate: self.time("host.t_translate"),
            composes_commands: match self.word("host.composes") {
                ComposesWord::Block => false,
                ComposesWord::Command => true,
            },
            transfer_max_bytes: self.small("host.transfer_max"),
            cores: self.small("host.cores"),
        }
    }

    fn energy(&self, nand: &Nand, reliability: &Reliability) -> Energy {
        // All kinds of pages are equally frequent, so the mean is the time of a page.
        let mean = |all: &[Ps]| Ps(all.iter().map(|t| t.0).sum::<u64>() / all.len() as u64);
        let (read_pj, read_command_pj) = self.energy_pj("energy.read", mean(&nand.t_read));
        let (program_pj, program_command_pj) = self.energy_pj("energy.program", mean(&nand.t_program));
        let (erase_pj, erase_command_pj) = self.energy_pj("energy.erase", nand.t_erase);
        let (ecc_pj, ecc_while_pj) = self.energy_pj("energy.ecc", reliability.t_ecc_decode);
        let gib = self.whole("dram.size") as f64 / f64::from(1 << 30);
        let dram_idle_uw = match self.get("energy.dram_idle") {
            Quantity::Nothing => self.real("energy.dram_idle_gib") * gib,
            _ => self.real("energy.dram_idle"),
        };
        Energy {
            read_pj,
            read_command_pj,
            program_pj,
            program_command_pj,
            erase_pj,
            erase_command_pj,
            bus_pj_per_byte: self.real("energy.bus_byte"),
            dram_pj_per_byte: self.real("energy.dram_byte"),
            link_pj_per_byte: self.real("energy.link_byte"),
            ecc_pj: ecc_pj + ecc_while_pj,
            die_idle_uw: self.real("energy.die_idle"),
            dram_idle_uw,
            link_idle_uw: self.real("energy.link_idle"),
            core_active_uw: self.real("energy.core_active"),
            core_idle_uw: self.real("energy.core_idle"),
            controller_idle_uw: self.real("energy.controller_idle"),
            host_core_active_uw: self.real("energy.host_core_active"),
        }
    }

    fn idle_states(&self) -> Vec<IdleState> {
        let lists = ["power.idle", "power.idle_after", "power.exit"].map(|path| self.list(path));
        let state = |((power, after), exit): ((&Quantity, &Quantity), &Quantity)| match (power, after, exit) {
            (Quantity::Real(power_uw), Quantity::Time(after), Quantity::Time(exit)) => {
                IdleState { power_uw: *power_uw, t_after: *after, t_exit: *exit }
            }
            other => panic!("an idle state of {other:?}"),
        };
        // The lists have the same length; `check` reports a difference.
        lists[0].iter().zip(lists[1]).zip(lists[2]).map(state).collect()
    }

    fn spec(&self) -> Option<Spec> {
        let [power_uw, limit_uw] = ["spec.power", "spec.power_limit"].map(|path| self.real(path).round() as u64);
        let spec = Spec {
            seq_read_bytes_per_s: self.maybe("spec.seq_read"),
            seq_write_bytes_per_s: self.maybe("spec.seq_write"),
            rand_read_iops: self.maybe("spec.rand_read_iops"),
            rand_write_iops: self.maybe("spec.rand_write_iops"),
            queue_depth: self.small("spec.queue_depth"),
            read_latency: self.maybe_time("spec.read_latency"),
            power_uw: (power_uw > 0).then_some(power_uw),
            power_limit_uw: (limit_uw > 0).then_some(limit_uw),
            claims_match: self.flag("spec.claims_match"),
        };
        let promises = spec.seq_read_bytes_per_s.is_some()
            || spec.seq_write_bytes_per_s.is_some()
            || spec.rand_read_iops.is_some()
            || spec.rand_write_iops.is_some()
            || spec.read_latency.is_some()
            || spec.power_uw.is_some()
            || spec.power_limit_uw.is_some();
        promises.then_some(spec)
    }
}
