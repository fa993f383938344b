//! A device's description, resolved: every number in the simulation's integer units, one struct for each part of the
//! model. The files beside this one read and write it as TOML, with units and sources.

pub use nandarray::policy::GcPolicy;
use nandarray_sim::Ps;

/// A device's description.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Description {
    /// The device's name; presets are found by it.
    pub name: String,
    /// A summary in one sentence.
    pub summary: String,
    /// The shape of the flash.
    pub geometry: FlashGeometry,
    /// The channel bus.
    pub bus: Bus,
    /// The cells, and abilities of a die.
    pub nand: Nand,
    /// Cell errors and their correction.
    pub reliability: Reliability,
    /// Firmware: cores, stages, policies.
    pub controller: ControllerSettings,
    /// Cores for programs; `None` if the device runs none.
    pub compute: Option<Compute>,
    /// Flash management of the conventional, page-mapped configuration.
    pub ftl: FtlSettings,
    /// The device's DRAM.
    pub dram: Dram,
    /// The link to the host.
    pub link: LinkSettings,
    /// The host's side.
    pub host: HostSettings,
    /// Energy of every part.
    pub energy: Energy,
    /// Idle states, the lightest first; empty if the device never sleeps.
    pub idle_states: Vec<IdleState>,
    /// Figures of the data sheet, for comparison with the model's.
    pub spec: Option<Spec>,
}

/// The shape of the flash. `ways` are chips (packages) behind a channel; all ways of a channel share its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FlashGeometry {
    /// Channels.
    pub channels: u32,
    /// Chips a channel.
    pub ways: u32,
    /// Dies a chip.
    pub dies: u32,
    /// Planes a die.
    pub planes: u32,
    /// Erase blocks a plane.
    pub blocks: u32,
    /// Pages an erase block.
    pub pages: u32,
    /// Bytes of a page, without its spare bytes.
    pub page_bytes: u32,
    /// Spare bytes of a page; transferred with it if `Bus::transfers_spare`.
    pub spare_bytes: u32,
}

impl FlashGeometry {
    /// Dies of the device: channels x ways x dies.
    pub fn dies_total(&self) -> u32 {
        self.channels * self.ways * self.dies
    }
    /// Planes of the device.
    pub fn planes_total(&self) -> u32 {
        self.dies_total() * self.planes
    }
    /// Pages of the device.
    pub fn pages_total(&self) -> u64 {
        u64::from(self.planes_total()) * u64::from(self.blocks) * u64::from(self.pages)
    }
    /// Bytes of the device's pages, over-provisioning included.
    pub fn bytes(&self) -> u64 {
        self.pages_total() * u64::from(self.page_bytes)
    }
    /// A die's number in the whole device: channel-major, then way, then die.
    pub fn die_index(&self, channel: u32, way: u32, die: u32) -> u32 {
        debug_assert!(channel < self.channels && way < self.ways && die < self.dies);
        (channel * self.ways + way) * self.dies + die
    }
    /// The channel of a die of the whole device.
    pub fn channel_of(&self, die: u32) -> u32 {
        die / (self.ways * self.dies)
    }
    /// The chip (in the whole device) of a die of the whole device.
    pub fn chip_of(&self, die: u32) -> u32 {
        die / self.dies
    }
}

/// The channel bus (ONFI): one transfer or command sequence at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bus {
    /// Bytes a second while data is moved.
    pub bytes_per_s: u64,
    /// Command and address cycles of a page read.
    pub t_read_command: Ps,
    /// ... of a page program, before its data.
    pub t_program_command: Ps,
    /// ... of a block erase.
    pub t_erase_command: Ps,
    /// More for each further plane of a multi-plane read.
    pub t_read_further_plane: Ps,
    /// ... of a multi-plane program.
    pub t_program_further_plane: Ps,
    /// ... of a multi-plane erase.
    pub t_erase_further_plane: Ps,
    /// Cycles before the data of a finished read may leave (change of column, status).
    pub t_data_out_command: Ps,
    /// A suspend or resume command.
    pub t_suspend_command: Ps,
    /// Whether the spare bytes cross the bus with the page.
    pub transfers_spare: bool,
}

/// Kind of cells, by the bits that each holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// One bit.
    Slc,
    /// Two.
    Mlc,
    /// Three.
    Tlc,
    /// Four.
    Qlc,
}

impl Cell {
    /// Bits of a cell, which is also the number of kinds of pages.
    pub fn bits(self) -> usize {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
            Self::Qlc => 4,
        }
    }
}

/// Times of the cells, and abilities of a die.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Nand {
    /// Kind of cells.
    pub cell: Cell,
    /// Time to sense a page, by kind of page (LSB first); `cell.bits()` entries.
    pub t_read: Vec<Ps>,
    /// Time to program a page, by kind of page; with `one_shot`, one entry: all pages of a word line at once.
    pub t_program: Vec<Ps>,
    /// Time to erase a block.
    pub t_erase: Ps,
    /// From the end of an array operation to the edge of the ready/busy line.
    pub t_ready: Ps,
    /// Whether the pages of a word line are programmed together.
    pub one_shot: bool,
    /// Whether planes of a die take one command together.
    pub multi_plane: bool,
    /// Whether a multi-plane read may read different pages of its planes; otherwise the page must be the same on all.
    pub independent_planes: bool,
    /// Cache read: sensing the next page while the last one leaves. `None` if there is none; the time is tRCBSY.
    pub t_cache_read_busy: Option<Ps>,
    /// Cache program: data for the next page while this one is programmed. The time is tCBSY.
    pub t_cache_program_busy: Option<Ps>,
    /// Time from a program's suspension until the die can read; `None` if programs cannot be suspended.
    pub t_suspend_program: Option<Ps>,
    /// Time from an erase's suspension until the die can read; `None` if erases cannot be suspended.
    pub t_suspend_erase: Option<Ps>,
    /// Time to resume a suspended operation.
    pub t_resume: Ps,
    /// Most suspensions of one operation.
    pub suspends_max: u32,
    /// Program/erase cycles that a block endures.
    pub endurance_cycles: u32,
}

/// Cell errors and their correction. All rates 0 and no ECC: a device without faults.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Reliability {
    /// Raw bit-error rate of a fresh block.
    pub rber_base: f64,
    /// `rber_cycles * C^rber_cycles_exp`: wear, C in program/erase cycles.
    pub rber_cycles: f64,
    /// Exponent of `rber_cycles`.
    pub rber_cycles_exp: f64,
    /// `rber_retention * C^rber_retention_cycles_exp * days^rber_retention_days_exp`.
    pub rber_retention: f64,
    /// Exponent of C in `rber_retention`.
    pub rber_retention_cycles_exp: f64,
    /// Exponent of days in `rber_retention`.
    pub rber_retention_days_exp: f64,
    /// `rber_reads * C^rber_reads_cycles_exp * reads^rber_reads_exp`: read disturb, reads of the block since its erase.
    pub rber_reads: f64,
    /// Exponent of C in `rber_reads`.
    pub rber_reads_cycles_exp: f64,
    /// Exponent of reads in `rber_reads`.
    pub rber_reads_exp: f64,
    /// Age of the data in days, the same for all pages and the whole run.
    pub retention_days: f64,
    /// Program/erase cycles of every block before the run.
    pub cycles_before: u32,
    /// Bytes that one code word protects; 0 is no ECC.
    pub ecc_codeword_bytes: u32,
    /// Bits that a code word can correct.
    pub ecc_correctable_bits: u32,
    /// Time to decode a code word.
    pub t_ecc_decode: Ps,
    /// Time of a read retry at another reference voltage, beyond another sensing.
    pub t_read_retry: Ps,
    /// Retries before a page is given up.
    pub read_retries_max: u32,
    /// Factor by which each retry multiplies the raw bit-error rate.
    pub read_retry_rber_factor: f64,
    /// Factory bad blocks, per million.
    pub factory_bad_ppm: u32,
    /// Erases or programs that fail, per million.
    pub grown_bad_ppm: u32,
}

/// Policy that chooses the next flash operation of a die and a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Dies independent, sensing overlapped with transfers, reads before programs before erases, aged.
    Normal,
    /// Strictly in order of arrival at each die.
    Fifo,
    /// As MQSim does: a chip works for one command at a time, data leaving goes before new commands.
    MqsimCompat,
}

/// Firmware: number of cores, times of the stages, mapping of stages to cores.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ControllerSettings {
    /// Embedded cores; stages are mapped to them by `stage_cores`.
    pub cores: u32,
    /// Command handler: time to decode a command.
    pub t_command: Ps,
    /// Translator: time for each page of the conventional map.
    pub t_translate: Ps,
    /// Translator: time for each building block, through the levels of its space's tree (hardware NDS).
    pub t_translate_block: Ps,
    /// Allocator: time for each page written.
    pub t_allocate: Ps,
    /// Data assembler: time for each contiguous run copied.
    pub t_assemble: Ps,
    /// Channel handler: time for each flash command.
    pub t_channel: Ps,
    /// Command handler: time to complete a command.
    pub t_complete: Ps,
    /// Bytes of host memory that hold the coordinates of a command that moves elements (NDS paper, 5.3.1: its second
    /// word points to a page of them): the device fetches them before it translates. 0 if they come with the command's
    /// entry.
    pub coordinates_bytes: u32,
    /// Number of channel handlers: cores from the stage's own on, channels dealt to them in turn.
    pub channel_handlers: u32,
    /// The core of each stage: command handler, translator, allocator and collector, assembler, channel handlers.
    /// `None` if the stage is pipelined hardware of its own, which never waits for a core.
    pub stage_cores: [Option<u32>; 5],
    /// Commands that the device works on at once; further ones wait in the host's queues, where arbitration chooses.
    pub command_slots: u32,
    /// Flash scheduling policy.
    pub scheduling: Scheduling,
    /// Whether the device translates and assembles spaces (hardware NDS); otherwise the host does (software NDS).
    pub spaces_in_device: bool,
}

/// Cores that run programs beside the data; firmware has its own ([`ControllerSettings::cores`]).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Compute {
    /// Number of cores.
    pub cores: u32,
    /// Cycles a second.
    pub clock_hz: u64,
    /// Power of a core at work, in microwatts.
    pub core_active_uw: f64,
    /// Power of a core at rest, in microwatts.
    pub core_idle_uw: f64,
    /// The timed core, a preset of `nandarray-uarch`; `None`: it takes one instruction a cycle.
    pub core: Option<&'static str>,
    /// Whether only programs of the core's own instruction set run; else its set and width are not looked at.
    pub checks_isa: bool,
    /// Bytes of the instruction cache, 0 for none; `None`: as the core has it, like the others.
    pub l1i_bytes: Option<u64>,
    /// Ways of the instruction cache.
    pub l1i_ways: Option<u32>,
    /// Bytes of the data cache.
    pub l1d_bytes: Option<u64>,
    /// Ways of the data cache.
    pub l1d_ways: Option<u32>,
    /// Bytes of the second level.
    pub l2_bytes: Option<u64>,
    /// Ways of the second level.
    pub l2_ways: Option<u32>,
    /// Ticks of a hit of the data cache beyond the unit's latency.
    pub l1d_ticks: Option<u32>,
    /// Ticks of a hit of the second level.
    pub l2_ticks: Option<u32>,
    /// Prefetcher beside the data cache, and beside the second level if there is one.
    pub prefetch: Option<&'static str>,
    /// Ticks of a load, if not the core's.
    pub load_ticks: Option<u32>,
    /// Ticks of a store, if not the core's.
    pub store_ticks: Option<u32>,
    /// Ticks of a multiplication, if not the core's.
    pub multiply_ticks: Option<u32>,
    /// Ticks of a division, if not the core's.
    pub divide_ticks: Option<u32>,
    /// Ticks that a taken branch costs, if not the core's.
    pub taken_ticks: Option<u32>,
    /// Bytes of scratchpad; 0 for none.
    pub scratchpad_bytes: u64,
    /// Ticks of a scratchpad access beyond the unit's latency.
    pub scratchpad_ticks: Option<u32>,
    /// Ticks of a stream access beyond the unit's latency.
    pub stream_ticks: Option<u32>,
    /// Input streams, and output streams, that a core has buffers for.
    pub streams: u32,
    /// Pages of the buffer of one stream.
    pub pages: u32,
    /// Pages of one stream that are requested ahead, those in its buffer included.
    pub read_ahead: u32,
    /// Bytes of a half of the ping-pong buffer, shared by a program's inputs.
    pub half_bytes: u64,
    /// The origin of a core's input.
    pub input: InputFrom,
    /// The channels whose pages reach a core.
    pub placement: CorePlacement,
    /// Bytes a second of the crossbar's port of one core; 0 is ideal.
    pub crossbar_bytes_per_s: u64,
    /// Latency of the crossbar.
    pub t_crossbar: Ps,
    /// Firmware: time of a transition of a core's state.
    pub t_manage: Ps,
    /// Firmware: time to request or drain a page of a stream.
    pub t_request: Ps,
    /// Power and area of the components of one core, in the order of [`ComputeParts::NAMES`].
    pub parts: ComputeParts,
}

/// The origin of the input of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputFrom {
    /// The device's DRAM, line by line through the caches.
    Dram,
    /// Two halves of a buffer: one is filled while the core works on the other.
    PingPong,
    /// Stream buffers, page by page.
    Stream,
}

/// The channels whose pages reach a core directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorePlacement {
    /// All, through a crossbar.
    Crossbar,
    /// Channel n is core n's, modulo the number of cores; pages of others go through DRAM.
    Channel,
}

/// Power and area of the components of one core; the crossbar is there once.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ComputeParts {
    /// Power in microwatts.
    pub power_uw: [f64; 8],
    /// Area in square millimetres.
    pub area_mm2: [f64; 8],
}

impl ComputeParts {
    /// Names of the components.
    pub const NAMES: [&str; 8] =
        ["pipeline", "l1i", "l1d", "l2", "scratchpad", "input_buffers", "output_buffers", "crossbar"];

    /// The number of each in a device with this number of cores.
    pub fn counts(cores: u32) -> [u32; 8] {
        let mut counts = [cores; 8];
        counts[7] = 1;
        counts
    }

    /// The sum over all cores of a number of each component.
    pub fn sum(values: &[f64; 8], cores: u32) -> f64 {
        values.iter().zip(Self::counts(cores)).map(|(value, count)| value * f64::from(count)).sum()
    }
}

/// Order in which a conventional device fills its parallel units.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Striping {
    /// Page n goes to a fixed unit: the order of the letters C (channel), W (way), D (die), P (plane), first fastest.
    Static([StripeLevel; 4]),
    /// Pages go to the next idle plane, searched in that order.
    Dynamic([StripeLevel; 4]),
}

/// A letter of a striping order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeLevel {
    /// C
    Channel,
    /// W
    Way,
    /// D
    Die,
    /// P
    Plane,
}

/// Flash management of the conventional configuration.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FtlSettings {
    /// Share of the flash that users do not see.
    pub over_provisioning: f64,
    /// Order in which parallel units are filled.
    pub striping: Striping,
    /// Bytes of the map kept in DRAM; `None` is the ideal map: all of it, without any access time.
    pub map_cache_bytes: Option<u64>,
    /// Bytes of a map entry.
    pub map_entry_bytes: u32,
    /// Policy by which reclaim chooses its victim.
    pub gc: GcPolicy,
    /// Reclaim begins when a plane has fewer free blocks than this share.
    pub gc_threshold: f64,
    /// Writes wait for reclaim when a plane has fewer free blocks than this many.
    pub gc_urgent_blocks: u32,
    /// Whether host reads and writes go before reclaim until it is urgent.
    pub gc_preemptible: bool,
    /// Whether the least worn free block is taken next.
    pub wear_dynamic: bool,
    /// Cold data moves when erase counts of a plane differ by more than this; `None`: it never does.
    pub wear_static_threshold: Option<u32>,
    /// Whether the host's hot and cold pages have blocks of their own; pages moved by reclaim always do.
    pub hot_cold: bool,
    /// Bytes of write cache; 0 if there is none.
    pub write_cache_bytes: u64,
    /// Whether a write is complete once it is in the cache (power-loss protected or volatile until flush).
    pub early_completion: bool,
}

/// The device's DRAM: one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dram {
    /// Bytes a second; 0 is ideal: accesses take no time.
    pub bytes_per_s: u64,
    /// Latency of an access.
    pub t_access: Ps,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of a burst: a line of a core waits for one, and goes ahead of the others.
    pub burst_bytes: u64,
    /// Number of times that a byte read from flash crosses DRAM on its way to the host: 2 is into it and out of it, 0
    /// is past it.
    pub read_crossings: u32,
}

/// The link to the host: full duplex, one transfer at a time each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LinkSettings {
    /// Raw bytes a second, each way, after line coding.
    pub bytes_per_s: u64,
    /// Payload of a packet.
    pub packet_payload_bytes: u32,
    /// Bytes of each packet beyond its payload.
    pub packet_overhead_bytes: u32,
    /// Propagation time, one way, added to each message; pipelined.
    pub t_propagate: Ps,
    /// Bytes of a command on the link (64 for NVMe).
    pub command_bytes: u32,
    /// Bytes of a completion (16 for NVMe).
    pub completion_bytes: u32,
    /// Whether entries and requests for host memory go ahead of data that waits for the link.
    pub entries_ahead: bool,
}

/// Arbitration between submission queues.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// One after the other, `burst` commands each.
    RoundRobin {
        /// Commands a turn.
        burst: u32,
    },
    /// Weighted round robin with urgent class (NVMe base specification, 3.4.4): weights of high, medium, low.
    Weighted {
        /// Commands a turn.
        burst: u32,
        /// High, medium, low.
        weights: [u32; 3],
        /// Number of urgent, high, medium and low queues, from queue 0 on; those beyond are medium.
        classes: [u32; 4],
    },
}

/// The host's side.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HostSettings {
    /// Queue pairs.
    pub queues: u32,
    /// Commands that each queue pair may hold.
    pub queue_entries: u32,
    /// Arbitration between the queues.
    pub arbitration: Arbitration,
    /// CPU time to build and submit a command.
    pub t_submit: Ps,
    /// CPU time to take a completion.
    pub t_complete: Ps,
    /// Interrupt latency, from the completion until the CPU notices it; `None` if the host polls.
    pub t_interrupt: Option<Ps>,
    /// CPU time of each run copied on the host (marshalling), beyond its bytes.
    pub t_copy_run: Ps,
    /// Bytes a second that one host core copies.
    pub copy_bytes_per_s: u64,
    /// CPU time to translate the address of a building block, where spaces are translated on the host (software NDS).
    pub t_translate: Ps,
    /// Whether the host, where it translates spaces, composes all blocks of a written command before it programs the
    /// first: software without asynchronous writes.
    pub composes_commands: bool,
    /// The most bytes that one command moves (the controller's MDTS).
    pub transfer_max_bytes: u32,
    /// Host cores that submit, take completions and copy.
    pub cores: u32,
}

/// Energy: dynamic energy by operation and by byte in picojoules, idle power in microwatts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Energy {
    /// Sensing: energy of each page.
    pub read_pj: f64,
    /// Sensing: energy of each command of a die, whatever number of its planes takes part. A current, as data sheets
    /// state it, is the die's for as long as a command lasts.
    pub read_command_pj: f64,
    /// Programming: energy of each page (of its share of a word line, with one-shot).
    pub program_pj: f64,
    /// ... of each command.
    pub program_command_pj: f64,
    /// Erasing: energy of each block.
    pub erase_pj: f64,
    /// ... of each command.
    pub erase_command_pj: f64,
    /// Energy of a byte over a channel.
    pub bus_pj_per_byte: f64,
    /// Energy of a byte into or out of DRAM.
    pub dram_pj_per_byte: f64,
    /// Energy of a byte over the link.
    pub link_pj_per_byte: f64,
    /// Energy to decode a code word.
    pub ecc_pj: f64,
    /// Power of a die at rest.
    pub die_idle_uw: f64,
    /// Power of DRAM's refresh and standby.
    pub dram_idle_uw: f64,
    /// Power of the link while it is up.
    pub link_idle_uw: f64,
    /// Power of a controller core at work.
    pub core_active_uw: f64,
    /// Power of a controller core at rest.
    pub core_idle_uw: f64,
    /// Power of everything else of the controller.
    pub controller_idle_uw: f64,
    /// Power of a host core at work on I/O.
    pub host_core_active_uw: f64,
}

/// A state that a device enters when it has rested for a time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct IdleState {
    /// Power of the whole device in this state, in microwatts.
    pub power_uw: f64,
    /// Rest after which the device enters this state.
    pub t_after: Ps,
    /// From the doorbell that wakes it to the first command fetched.
    pub t_exit: Ps,
}

/// Figures of a data sheet.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spec {
    /// Sequential read, bytes a second.
    pub seq_read_bytes_per_s: Option<u64>,
    /// Sequential write.
    pub seq_write_bytes_per_s: Option<u64>,
    /// Random 4 KiB reads a second.
    pub rand_read_iops: Option<u64>,
    /// Random 4 KiB writes a second.
    pub rand_write_iops: Option<u64>,
    /// Queue depth (of all queues together) of the random figures.
    pub queue_depth: u32,
    /// Read latency of one 4 KiB read, where it is published.
    pub read_latency: Option<Ps>,
    /// Average power while busy, in microwatts, where it is published.
    pub power_uw: Option<u64>,
    /// Power limit of the form factor, in microwatts.
    pub power_limit_uw: Option<u64>,
    /// Whether the preset claims to match, to 15 %.
    pub claims_match: bool,
}
