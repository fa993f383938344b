//! A device's description, resolved: every number in the simulation's own integer units, in the parts that the model is
//! cut into. How it is written in TOML, with units and sources, is the business of the files beside this one.

pub use nandarray::policy::GcPolicy;
use nandarray_sim::Ps;

/// A device.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Description {
    /// What it is called; presets are asked for by it.
    pub name: String,
    /// One sentence.
    pub summary: String,
    /// The shape of the flash.
    pub geometry: FlashGeometry,
    /// The channel bus.
    pub bus: Bus,
    /// What the cells take.
    pub nand: Nand,
    /// How cells fail and how that is mended.
    pub reliability: Reliability,
    /// Firmware: cores, stages, policies.
    pub controller: Controller,
    /// Cores for programs; `None`: the device runs none.
    pub compute: Option<Compute>,
    /// Flash management of the conventional, page-mapped configuration.
    pub ftl: FtlSettings,
    /// The device's DRAM.
    pub dram: Dram,
    /// The link to the host.
    pub link: Link,
    /// The host's side.
    pub host: Host,
    /// Energy of every part.
    pub energy: Energy,
    /// States of rest, the lightest first; none: it never sleeps.
    pub idle_states: Vec<IdleState>,
    /// What a data sheet promises, to be printed beside what the model gives.
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
    /// Bytes of a page, without what is spare.
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

/// Cells: bits each holds.
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
    /// Bits of a cell, which is how many kinds of pages there are.
    pub fn bits(self) -> usize {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
            Self::Qlc => 4,
        }
    }
}

/// What the cells take, and what a die can do.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Nand {
    /// Cells.
    pub cell: Cell,
    /// Sensing, by kind of page (LSB first); `cell.bits()` entries.
    pub t_read: Vec<Ps>,
    /// Programming, by kind of page; with `one_shot`, one entry: all pages of a word line at once.
    pub t_program: Vec<Ps>,
    /// Erasing a block.
    pub t_erase: Ps,
    /// From the end of an array operation to the ready/busy line telling so.
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
    /// Suspending a program: how long until the die can read. `None` if it cannot.
    pub t_suspend_program: Option<Ps>,
    /// Suspending an erase.
    pub t_suspend_erase: Option<Ps>,
    /// Going on with what was suspended.
    pub t_resume: Ps,
    /// How often one operation may be suspended.
    pub suspends_max: u32,
    /// Program/erase cycles that a block is good for.
    pub endurance_cycles: u32,
}

/// How cells fail and how that is mended. All rates 0 and no ECC: a device without faults.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Reliability {
    /// Raw bit-error rate of a fresh block.
    pub rber_base: f64,
    /// `rber_cycles * C^rber_cycles_exp`: wear, C in program/erase cycles.
    pub rber_cycles: f64,
    /// Its exponent.
    pub rber_cycles_exp: f64,
    /// `rber_retention * C^rber_retention_cycles_exp * days^rber_retention_days_exp`.
    pub rber_retention: f64,
    /// Its exponent of C.
    pub rber_retention_cycles_exp: f64,
    /// Its exponent of days.
    pub rber_retention_days_exp: f64,
    /// `rber_reads * C^rber_reads_cycles_exp * reads^rber_reads_exp`: read disturb, reads of the block since its erase.
    pub rber_reads: f64,
    /// Its exponent of C.
    pub rber_reads_cycles_exp: f64,
    /// Its exponent of reads.
    pub rber_reads_exp: f64,
    /// Days since a page was written, for the whole run.
    pub retention_days: f64,
    /// Cycles that every block had before the run.
    pub cycles_before: u32,
    /// Bytes that one code word protects; 0 is no ECC.
    pub ecc_codeword_bytes: u32,
    /// Bits that a code word can correct.
    pub ecc_correctable_bits: u32,
    /// Decoding a code word.
    pub t_ecc_decode: Ps,
    /// A read again at another reference voltage: what it takes beyond another sensing.
    pub t_read_retry: Ps,
    /// Retries before a page is given up.
    pub read_retries_max: u32,
    /// By what each retry multiplies the raw bit-error rate.
    pub read_retry_rber_factor: f64,
    /// Blocks bad when made, per million.
    pub factory_bad_ppm: u32,
    /// Erases or programs that fail, per million.
    pub grown_bad_ppm: u32,
}

/// Who issues what to the flash, when.
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

/// Firmware: how many cores, what the stages take, what runs where.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Controller {
    /// Embedded cores; stages are mapped to them by `stage_cores`.
    pub cores: u32,
    /// Command handler: decoding a command, once a command.
    pub t_command: Ps,
    /// Address translation, once a page of the conventional map.
    pub t_translate: Ps,
    /// Translation of a building block: the levels of its space's tree (hardware NDS).
    pub t_translate_block: Ps,
    /// Allocation, once a page written.
    pub t_allocate: Ps,
    /// Data assembler, once a run copied.
    pub t_assemble: Ps,
    /// Channel handler, once a flash command.
    pub t_channel: Ps,
    /// Completing a command.
    pub t_complete: Ps,
    /// Bytes of host memory that hold the coordinates of a command that moves elements (NDS paper, 5.3.1: its second
    /// word points to a page of them): the device fetches them before it translates. 0: they come with the command's
    /// entry.
    pub coordinates_bytes: u32,
    /// Channel handlers: so many cores from the stage's own on, channels dealt to them in turn.
    pub channel_handlers: u32,
    /// The core of each stage: command handler, translator, allocator and collector, assembler, channel handlers.
    /// `None`: the stage is hardware of its own, pipelined, which never waits for a core.
    pub stage_cores: [Option<u32>; 5],
    /// Commands that the device works on at once; further ones wait in the host's queues, where arbitration chooses.
    pub command_slots: u32,
    /// Flash scheduling.
    pub scheduling: Scheduling,
    /// Where spaces are translated and assembled: in the device (hardware NDS) or by the host (software NDS).
    pub spaces_in_device: bool,
}

/// Cores that run programs beside the data; firmware has its own ([`Controller::cores`]).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Compute {
    /// How many.
    pub cores: u32,
    /// Cycles a second.
    pub clock_hz: u64,
    /// What a core takes while it works, in microwatts.
    pub core_active_uw: f64,
    /// What it takes at rest.
    pub core_idle_uw: f64,
}

/// Which order a conventional device fills its parallel units in.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Striping {
    /// Page n goes where the order of the letters C (channel), W (way), D (die), P (plane) says, first fastest.
    Static([StripeLevel; 4]),
    /// The next idle plane, in that order.
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
    /// Order of parallel units.
    pub striping: Striping,
    /// Bytes of map kept in DRAM; `None` is the ideal map: all of it, at no time.
    pub map_cache_bytes: Option<u64>,
    /// Bytes of a map entry.
    pub map_entry_bytes: u32,
    /// Victim policy.
    pub gc: GcPolicy,
    /// Reclaim begins when a plane has fewer free blocks than this share.
    pub gc_threshold: f64,
    /// Writes wait for reclaim when a plane has fewer free blocks than this many.
    pub gc_urgent_blocks: u32,
    /// Whether host reads and writes go before reclaim until it is urgent.
    pub gc_preemptible: bool,
    /// Take the least worn free block next.
    pub wear_dynamic: bool,
    /// Move cold data when erase counts of a plane differ by more than this; `None` never does.
    pub wear_static_threshold: Option<u32>,
    /// Write the host's hot and cold pages to blocks of their own; what reclaim moves always has its own.
    pub hot_cold: bool,
    /// Bytes of write cache; 0 is none.
    pub write_cache_bytes: u64,
    /// Whether a write is complete once it is in the cache (power-loss protected or volatile until flush).
    pub early_completion: bool,
}

/// The device's DRAM: one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dram {
    /// Bytes a second; 0 is ideal: takes no time.
    pub bytes_per_s: u64,
    /// Latency of an access.
    pub t_access: Ps,
    /// Bytes.
    pub bytes: u64,
    /// How often a byte read from flash crosses it on its way to the host: 2 is into it and out of it, 0 streams past.
    pub read_crossings: u32,
}

/// The link to the host: full duplex, one transfer at a time each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// Raw bytes a second, each way, after line coding.
    pub bytes_per_s: u64,
    /// Payload of a packet.
    pub packet_payload_bytes: u32,
    /// What each packet takes beyond its payload.
    pub packet_overhead_bytes: u32,
    /// One way, added to each message, pipelined.
    pub t_propagate: Ps,
    /// Bytes of a command on the link (64 for NVMe).
    pub command_bytes: u32,
    /// Bytes of a completion (16 for NVMe).
    pub completion_bytes: u32,
    /// Whether entries and requests for host memory go ahead of data that waits for the link.
    pub entries_ahead: bool,
}

/// Which queue's command the device takes next.
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
        /// How many queues, from queue 0 on, are urgent, high, medium and low; those beyond are medium.
        classes: [u32; 4],
    },
}

/// The host's side.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Host {
    /// Queue pairs.
    pub queues: u32,
    /// Commands that each may hold.
    pub queue_entries: u32,
    /// Who is next.
    pub arbitration: Arbitration,
    /// CPU time to build and submit a command.
    pub t_submit: Ps,
    /// CPU time to take a completion.
    pub t_complete: Ps,
    /// From the completion to the CPU's noticing it: an interrupt; `None`: polled.
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

/// Energy. Per operation and per byte what is dynamic, watts what is idle; all in picojoules and microwatts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Energy {
    /// Sensing: of each page.
    pub read_pj: f64,
    /// Sensing: of each command of a die, however many of its planes take part. Where an energy is described by a
    /// current, as data sheets state it, it is the die's, for as long as a command lasts.
    pub read_command_pj: f64,
    /// Programming: of each page (a word line's share of it, with one-shot).
    pub program_pj: f64,
    /// ... of each command.
    pub program_command_pj: f64,
    /// Erasing: of each block.
    pub erase_pj: f64,
    /// ... of each command.
    pub erase_command_pj: f64,
    /// A byte over a channel.
    pub bus_pj_per_byte: f64,
    /// A byte into or out of DRAM.
    pub dram_pj_per_byte: f64,
    /// A byte over the link.
    pub link_pj_per_byte: f64,
    /// A code word decoded.
    pub ecc_pj: f64,
    /// A die that rests.
    pub die_idle_uw: f64,
    /// DRAM's refresh and standby.
    pub dram_idle_uw: f64,
    /// The link, up.
    pub link_idle_uw: f64,
    /// A core that works.
    pub core_active_uw: f64,
    /// A core that rests.
    pub core_idle_uw: f64,
    /// Everything else of the controller.
    pub controller_idle_uw: f64,
    /// A host core that works on I/O.
    pub host_core_active_uw: f64,
}

/// A state that a device enters when it has rested for a time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct IdleState {
    /// What the whole device takes in it, in microwatts.
    pub power_uw: f64,
    /// How long the device has rested when it enters.
    pub t_after: Ps,
    /// From the doorbell that wakes it to the first command fetched.
    pub t_exit: Ps,
}

/// What a data sheet promises.
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
    /// At which queue depth (all queues together) the random figures hold.
    pub queue_depth: u32,
    /// Read latency of one 4 KiB read, where it is published.
    pub read_latency: Option<Ps>,
    /// Average power while busy, in microwatts, where it is published.
    pub power_uw: Option<u64>,
    /// The most that its form factor lets it take, in microwatts.
    pub power_limit_uw: Option<u64>,
    /// Whether the preset claims to match, to 15 %.
    pub claims_match: bool,
}
