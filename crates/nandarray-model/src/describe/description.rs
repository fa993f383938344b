//! A device's description, resolved: every number in the simulation's integer units, one struct for each part of the
//! model. The other files of this folder read and write it as TOML, with units and sources.

pub use nandarray::policy::GcPolicy;
use nandarray_sim::Ps;

/// Description of a modelled device.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Description {
    /// Name of the device, by which presets are found.
    pub name: String,
    /// Summary in one sentence.
    pub summary: String,
    /// The shape of the flash.
    pub geometry: FlashGeometry,
    /// The channel bus.
    pub bus: Bus,
    /// Times of the cells, and abilities of a die.
    pub nand: Nand,
    /// Cell errors and their correction.
    pub reliability: Reliability,
    /// Firmware of the controller: cores, stages, policies.
    pub controller: ControllerSettings,
    /// Cores for programs; `None` if the device runs none.
    pub compute: Option<Compute>,
    /// Flash management of the conventional, page-mapped configuration.
    pub ftl: FtlSettings,
    /// The device's DRAM.
    pub dram: Dram,
    /// The link to the host.
    pub link: LinkSettings,
    /// The host's cores and queues.
    pub host: HostSettings,
    /// Energy and power of every part.
    pub energy: Energy,
    /// Idle states, the lightest first; empty if the device never sleeps.
    pub idle_states: Vec<IdleState>,
    /// Figures of the device's data sheet, for comparison with the model; `None` if the description has none.
    pub spec: Option<Spec>,
}

/// Shape of the flash. `ways` are chips (packages) on a channel; all ways of a channel share its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FlashGeometry {
    /// Number of channels.
    pub channels: u32,
    /// Number of chips per channel.
    pub ways: u32,
    /// Number of dies per chip.
    pub dies: u32,
    /// Number of planes per die.
    pub planes: u32,
    /// Number of erase blocks per plane.
    pub blocks: u32,
    /// Number of pages per erase block.
    pub pages: u32,
    /// Bytes of a page, without its spare bytes.
    pub page_bytes: u32,
    /// Spare bytes of a page; transferred with it if `Bus::transfers_spare`.
    pub spare_bytes: u32,
}

impl FlashGeometry {
    /// Returns the number of dies of the device: channels x ways x dies.
    pub fn dies_total(&self) -> u32 {
        self.channels * self.ways * self.dies
    }
    /// Returns the number of planes of the device.
    pub fn planes_total(&self) -> u32 {
        self.dies_total() * self.planes
    }
    /// Returns the number of pages of the device.
    pub fn pages_total(&self) -> u64 {
        u64::from(self.planes_total()) * u64::from(self.blocks) * u64::from(self.pages)
    }
    /// Returns the bytes of all pages, over-provisioning included.
    pub fn bytes(&self) -> u64 {
        self.pages_total() * u64::from(self.page_bytes)
    }
    /// Returns a die's number within the device: channel-major, then way, then die.
    pub fn die_index(&self, channel: u32, way: u32, die: u32) -> u32 {
        debug_assert!(channel < self.channels && way < self.ways && die < self.dies);
        (channel * self.ways + way) * self.dies + die
    }
    /// Returns the channel of a die, which is numbered through the device.
    pub fn channel_of(&self, die: u32) -> u32 {
        die / (self.ways * self.dies)
    }
    /// Returns the chip of a die, both numbered through the device.
    pub fn chip_of(&self, die: u32) -> u32 {
        die / self.dies
    }
}

/// The channel bus (ONFI): one transfer or command sequence at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bus {
    /// Data rate in bytes per second.
    pub bytes_per_s: u64,
    /// Time of the command and address cycles of a page read.
    pub t_read_command: Ps,
    /// Time of the command and address cycles of a page program, before its data.
    pub t_program_command: Ps,
    /// Time of the command and address cycles of a block erase.
    pub t_erase_command: Ps,
    /// Additional command time for each further plane of a multi-plane read.
    pub t_read_further_plane: Ps,
    /// Additional command time for each further plane of a multi-plane program.
    pub t_program_further_plane: Ps,
    /// Additional command time for each further plane of a multi-plane erase.
    pub t_erase_further_plane: Ps,
    /// Time of the cycles before the data of a finished read is transferred (change of column, status).
    pub t_data_out_command: Ps,
    /// Time of a suspend or resume command.
    pub t_suspend_command: Ps,
    /// Whether the spare bytes cross the bus with the page.
    pub transfers_spare: bool,
}

/// Kind of cells, by the number of bits that each holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
    /// Four bits.
    Qlc,
}

impl Cell {
    /// Returns the number of bits of a cell, which is also the number of kinds of pages.
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
    /// Time from the end of an array operation to the edge of the ready/busy line.
    pub t_ready: Ps,
    /// Whether the pages of a word line are programmed together.
    pub one_shot: bool,
    /// Whether planes of a die take one command together.
    pub multi_plane: bool,
    /// Whether a multi-plane read may read different pages on its planes; otherwise the page number must be the same
    /// on all.
    pub independent_planes: bool,
    /// Busy time tRCBSY of a cache read, which senses the next page while the last one is transferred; `None` if dies
    /// have no cache reads.
    pub t_cache_read_busy: Option<Ps>,
    /// Busy time tCBSY of a cache program, which receives data for the next page while this one is programmed; `None`
    /// if dies have no cache programs.
    pub t_cache_program_busy: Option<Ps>,
    /// Time from a program's suspension until the die can read; `None` if programs cannot be suspended.
    pub t_suspend_program: Option<Ps>,
    /// Time from an erase's suspension until the die can read; `None` if erases cannot be suspended.
    pub t_suspend_erase: Option<Ps>,
    /// Time to resume a suspended operation.
    pub t_resume: Ps,
    /// Maximum number of suspensions of one operation.
    pub suspends_max: u32,
    /// Program/erase cycles that a block endures.
    pub endurance_cycles: u32,
}

/// Cell errors and their correction. With all rates 0 and no error correction, the device has no faults.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Reliability {
    /// Raw bit-error rate of a fresh block.
    pub rber_base: f64,
    /// Coefficient of the wear term `rber_cycles * C^rber_cycles_exp`; C is the block's number of program/erase cycles.
    pub rber_cycles: f64,
    /// Exponent of `rber_cycles`.
    pub rber_cycles_exp: f64,
    /// Coefficient of the term `rber_retention * C^rber_retention_cycles_exp * days^rber_retention_days_exp`.
    pub rber_retention: f64,
    /// Exponent of C in `rber_retention`.
    pub rber_retention_cycles_exp: f64,
    /// Exponent of days in `rber_retention`.
    pub rber_retention_days_exp: f64,
    /// Coefficient of the read-disturb term `rber_reads * C^rber_reads_cycles_exp * reads^rber_reads_exp`, with the
    /// reads of the block since its erase.
    pub rber_reads: f64,
    /// Exponent of C in `rber_reads`.
    pub rber_reads_cycles_exp: f64,
    /// Exponent of reads in `rber_reads`.
    pub rber_reads_exp: f64,
    /// Age of the data in days, the same for all pages and the whole run.
    pub retention_days: f64,
    /// Program/erase cycles of every block before the run.
    pub cycles_before: u32,
    /// Bytes that one code word protects; 0 without error correction.
    pub ecc_codeword_bytes: u32,
    /// Number of bits that a code word can correct.
    pub ecc_correctable_bits: u32,
    /// Time to decode a code word.
    pub t_ecc_decode: Ps,
    /// Time of a read retry at another reference voltage, in addition to another sensing.
    pub t_read_retry: Ps,
    /// Maximum number of retries before a read fails.
    pub read_retries_max: u32,
    /// Factor by which each retry multiplies the raw bit-error rate.
    pub read_retry_rber_factor: f64,
    /// Number of blocks that are bad from the factory, per million.
    pub factory_bad_ppm: u32,
    /// Number of erases or programs that fail, per million.
    pub grown_bad_ppm: u32,
}

/// Policy that chooses the next flash operation of a die, and the next use of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Dies are independent, and sensing overlaps with transfers; reads go before programs and programs before erases,
    /// until an operation has waited too long.
    Normal,
    /// Operations are executed in order of arrival at each die.
    Fifo,
    /// As in MQSim: a chip executes one command at a time, and data that leaves goes before new commands.
    MqsimCompat,
}

/// Firmware: number of cores, times of the stages, mapping of stages to cores.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ControllerSettings {
    /// Number of embedded cores; `stage_cores` maps the stages to them.
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
    /// Bytes of host memory that hold the coordinates of a command that moves elements (NDS paper, 5.3.1: the second
    /// word of the command points to a page with them). The device fetches them before it translates. 0 if the
    /// coordinates are part of the command's entry.
    pub coordinates_bytes: u32,
    /// Number of channel handlers, which run on successive cores from the stage's own core on; channels are assigned
    /// to them in turn.
    pub channel_handlers: u32,
    /// Core of each stage: command handler, translator, allocator and collector, assembler, channel handlers; `None`
    /// if the stage is separate pipelined hardware, which never waits for a core.
    pub stage_cores: [Option<u32>; 5],
    /// Maximum number of commands that the device executes at once; further ones wait in the host's queues, where
    /// arbitration chooses.
    pub command_slots: u32,
    /// Flash scheduling policy.
    pub scheduling: Scheduling,
    /// Whether the device translates and assembles spaces (hardware NDS); otherwise the host does (software NDS).
    pub spaces_in_device: bool,
}

/// Cores that run programs beside the data, separate from the firmware's cores ([`ControllerSettings::cores`]).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Compute {
    /// Number of cores.
    pub cores: u32,
    /// Clock rate in cycles per second.
    pub clock_hz: u64,
    /// Power of a core that works, in microwatts.
    pub core_active_uw: f64,
    /// Power of a core that does not work, in microwatts.
    pub core_idle_uw: f64,
    /// The timed core, a preset of `nandarray-uarch`; `None` for a core that executes one instruction per cycle.
    pub core: Option<&'static str>,
    /// Whether the core only runs programs of its own instruction set; otherwise set and width of programs are not
    /// checked.
    pub checks_isa: bool,
    /// Bytes of the instruction cache, 0 for no cache. Here and in the following fields `None` stands for the core
    /// preset's value.
    pub l1i_bytes: Option<u64>,
    /// Ways of the instruction cache; `None` for the preset's.
    pub l1i_ways: Option<u32>,
    /// Bytes of the data cache, 0 for no cache; `None` for the preset's.
    pub l1d_bytes: Option<u64>,
    /// Ways of the data cache; `None` for the preset's.
    pub l1d_ways: Option<u32>,
    /// Bytes of the second-level cache, 0 for no cache; `None` for the preset's.
    pub l2_bytes: Option<u64>,
    /// Ways of the second-level cache; `None` for the preset's.
    pub l2_ways: Option<u32>,
    /// Ticks of a hit in the data cache, in addition to the latency of the load or store unit; `None` for the preset's.
    pub l1d_ticks: Option<u32>,
    /// Ticks of a hit in the second-level cache; `None` for the preset's.
    pub l2_ticks: Option<u32>,
    /// Prefetcher of the data cache and of the second-level cache; `None` for the preset's.
    pub prefetch: Option<&'static str>,
    /// Latency of a load in ticks; `None` for the preset's.
    pub load_ticks: Option<u32>,
    /// Latency of a store in ticks; `None` for the preset's.
    pub store_ticks: Option<u32>,
    /// Latency of a multiplication in ticks; `None` for the preset's.
    pub multiply_ticks: Option<u32>,
    /// Latency of a division in ticks; `None` for the preset's.
    pub divide_ticks: Option<u32>,
    /// Ticks that a taken branch costs; `None` for the preset's.
    pub taken_ticks: Option<u32>,
    /// Values of the vector unit.
    pub vector: VectorKeys,
    /// Bytes of scratchpad; 0 for none.
    pub scratchpad_bytes: u64,
    /// Ticks of a scratchpad access, in addition to the latency of the load or store unit; `None` for the preset's.
    pub scratchpad_ticks: Option<u32>,
    /// Ticks of a stream access, in addition to the latency of the load or store unit; `None` for the preset's.
    pub stream_ticks: Option<u32>,
    /// Number of input streams, and of output streams, that a core has buffers for.
    pub streams: u32,
    /// Number of pages that the buffer of one stream holds.
    pub pages: u32,
    /// Number of pages of one stream that are requested ahead, those in its buffer included.
    pub read_ahead: u32,
    /// Bytes of one half of the ping-pong buffer, shared by a program's inputs.
    pub half_bytes: u64,
    /// Place from which a core reads its input.
    pub input: InputFrom,
    /// Choice of the channels whose pages reach a core directly, without crossing DRAM.
    pub placement: CorePlacement,
    /// Rate of the crossbar's port of one core, in bytes per second; 0 stands for an ideal port without delay.
    pub crossbar_bytes_per_s: u64,
    /// Latency of the crossbar.
    pub t_crossbar: Ps,
    /// Firmware time of each change of a core's state, such as from idle to running.
    pub t_manage: Ps,
    /// Firmware time to request or drain a page of a stream.
    pub t_request: Ps,
    /// Power and area of the components of one core, in the order of [`ComputeParts::NAMES`].
    pub parts: ComputeParts,
}

/// Values of a core's vector unit; `None` stands for the core preset's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VectorKeys {
    /// Bits of a vector register.
    pub length_bits: Option<u32>,
    /// Bits of elements that the datapath takes in a cycle.
    pub datapath_bits: Option<u32>,
    /// Bits that a load or store of consecutive elements moves in a cycle.
    pub memory_bits: Option<u32>,
    /// Ticks per element of loads and stores of elements that are not consecutive.
    pub element_ticks: Option<u32>,
    /// Bits to which VarVE rounds up the width of each element in the datapath.
    pub align_bits: Option<u32>,
    /// Ticks of the VarVE datapath's step that aligns elements to `align_bits`.
    pub align_ticks: Option<u32>,
    /// Lines of each packed stream that are fetched and unpacked ahead of use.
    pub unpack_lines: Option<u32>,
    /// Packed bits that are unpacked in a cycle.
    pub unpack_bits: Option<u32>,
    /// Ticks to unpack a line of a packed stream that was not unpacked ahead.
    pub unpack_ticks: Option<u32>,
}

/// Place from which a core reads its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputFrom {
    /// The device's DRAM, line by line through the caches.
    Dram,
    /// A buffer of two halves: one is filled while the core works on the other.
    PingPong,
    /// Stream buffers, page by page.
    Stream,
}

/// Choice of the channels whose pages reach a core directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorePlacement {
    /// All channels, through a crossbar.
    Crossbar,
    /// Channel n belongs to core n, modulo the number of cores; pages of other channels go through DRAM.
    Channel,
}

/// Power and area of the components of one core; the crossbar exists once per device.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ComputeParts {
    /// Power of each component in microwatts, in the order of [`Self::NAMES`].
    pub power_uw: [f64; 9],
    /// Area of each component in square millimetres, in the order of [`Self::NAMES`].
    pub area_mm2: [f64; 9],
}

impl ComputeParts {
    /// Names of the components.
    pub const NAMES: [&str; 9] =
        ["pipeline", "l1i", "l1d", "l2", "scratchpad", "input_buffers", "output_buffers", "crossbar", "vector"];

    /// Returns how often each component exists in a device with `cores` cores.
    pub fn counts(cores: u32) -> [u32; 9] {
        let mut counts = [cores; 9];
        counts[7] = 1;
        counts
    }

    /// Returns the sum of a value of the components over a whole device with `cores` cores.
    pub fn sum(values: &[f64; 9], cores: u32) -> f64 {
        values.iter().zip(Self::counts(cores)).map(|(value, count)| value * f64::from(count)).sum()
    }
}

/// Order in which conventional flash management distributes pages over parallel units.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Striping {
    /// Page n goes to a fixed unit. Units are counted in the order of the letters C (channel), W (way), D (die), P
    /// (plane); the first letter varies fastest.
    Static([StripeLevel; 4]),
    /// Pages go to the next idle plane, searched in this order.
    Dynamic([StripeLevel; 4]),
}

/// Level of parallel units, a letter of a striping order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeLevel {
    /// C: channels.
    Channel,
    /// W: ways, the chips of a channel.
    Way,
    /// D: dies of a chip.
    Die,
    /// P: planes of a die.
    Plane,
}

/// Flash management of the conventional configuration.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FtlSettings {
    /// Fraction of the flash that users cannot address.
    pub over_provisioning: f64,
    /// Order in which parallel units are filled.
    pub striping: Striping,
    /// Bytes of DRAM for the cached part of the map; `None` for an ideal map, all of it in memory without access time.
    pub map_cache_bytes: Option<u64>,
    /// Bytes of a map entry.
    pub map_entry_bytes: u32,
    /// Policy by which reclaim chooses its victim.
    pub gc: GcPolicy,
    /// Fraction of a plane's blocks: reclaim begins when fewer are free.
    pub gc_threshold: f64,
    /// Number of free blocks of a plane below which writes wait for reclaim.
    pub gc_urgent_blocks: u32,
    /// Whether host reads and writes go before reclaim until it is urgent.
    pub gc_preemptible: bool,
    /// Whether the least worn free block is used next; otherwise the one that was freed first.
    pub wear_dynamic: bool,
    /// Difference of erase counts within a plane beyond which cold data is moved; `None` if it never is.
    pub wear_static_threshold: Option<u32>,
    /// Whether the host's hot and cold pages are written to separate blocks; pages moved by reclaim always are.
    pub hot_cold: bool,
    /// Bytes of the write cache; 0 if there is none.
    pub write_cache_bytes: u64,
    /// Whether a write is complete once it is in the cache (power-loss protected or volatile until flush).
    pub early_completion: bool,
}

/// The device's DRAM, with one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dram {
    /// Rate in bytes per second; 0 stands for ideal DRAM, whose accesses take no time.
    pub bytes_per_s: u64,
    /// Latency of an access.
    pub t_access: Ps,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of a burst: a core's cache line waits for at most one burst and goes ahead of bulk transfers.
    pub burst_bytes: u64,
    /// Number of times that a byte read from flash crosses DRAM's port on its way to the host: 2 if it is written and
    /// read, 0 if it bypasses DRAM.
    pub read_crossings: u32,
}

/// The link to the host: full duplex, one transfer at a time in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LinkSettings {
    /// Raw rate in each direction, after line coding, in bytes per second.
    pub bytes_per_s: u64,
    /// Maximum payload of a packet in bytes.
    pub packet_payload_bytes: u32,
    /// Bytes of each packet in addition to its payload.
    pub packet_overhead_bytes: u32,
    /// One-way propagation time, added to each message; messages are pipelined.
    pub t_propagate: Ps,
    /// Bytes of a command on the link (64 for NVMe).
    pub command_bytes: u32,
    /// Bytes of a completion (16 for NVMe).
    pub completion_bytes: u32,
    /// Whether queue entries and requests for host memory go ahead of data that waits for the link.
    pub entries_ahead: bool,
}

/// Arbitration between submission queues.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The queues in turn, up to `burst` commands each.
    RoundRobin {
        /// Maximum number of commands per turn.
        burst: u32,
    },
    /// Weighted round robin with urgent priority class (NVMe base specification, 3.4.4).
    Weighted {
        /// Maximum number of commands per turn.
        burst: u32,
        /// Weights of the high, medium and low class.
        weights: [u32; 3],
        /// Number of urgent, high, medium and low queues, counted from queue 0; the remaining queues are medium.
        classes: [u32; 4],
    },
}

/// The host's cores and queues.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HostSettings {
    /// Number of queue pairs.
    pub queues: u32,
    /// Number of commands that each queue pair may hold.
    pub queue_entries: u32,
    /// Arbitration between the queues.
    pub arbitration: Arbitration,
    /// CPU time to build and submit a command.
    pub t_submit: Ps,
    /// CPU time to process a completion.
    pub t_complete: Ps,
    /// Interrupt latency, from the completion until the CPU notices it; `None` if the host polls.
    pub t_interrupt: Option<Ps>,
    /// CPU time for each run that is copied on the host (marshalling), in addition to the time for its bytes.
    pub t_copy_run: Ps,
    /// Bytes per second that one host core copies.
    pub copy_bytes_per_s: u64,
    /// CPU time to translate the address of a building block, where the host translates spaces (software NDS).
    pub t_translate: Ps,
    /// Whether the host, where it translates spaces, composes all blocks of a written command before it programs the
    /// first, as software without asynchronous writes does.
    pub composes_commands: bool,
    /// Maximum number of bytes that one command moves (the controller's MDTS).
    pub transfer_max_bytes: u32,
    /// Number of host cores that submit commands, process completions and copy.
    pub cores: u32,
}

/// Energy of operations and bytes in picojoules, and power of parts in microwatts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Energy {
    /// Energy to sense a page.
    pub read_pj: f64,
    /// Energy of each sensing command of a die, however many of its planes take part: data sheets state a current,
    /// which the whole die draws for the duration of a command.
    pub read_command_pj: f64,
    /// Energy to program a page (its share of a word line, with one-shot programming).
    pub program_pj: f64,
    /// Energy of each program command, as `read_command_pj`.
    pub program_command_pj: f64,
    /// Energy to erase a block.
    pub erase_pj: f64,
    /// Energy of each erase command, as `read_command_pj`.
    pub erase_command_pj: f64,
    /// Energy to transfer a byte over a channel.
    pub bus_pj_per_byte: f64,
    /// Energy to transfer a byte into or out of DRAM.
    pub dram_pj_per_byte: f64,
    /// Energy to transfer a byte over the link.
    pub link_pj_per_byte: f64,
    /// Energy to decode a code word.
    pub ecc_pj: f64,
    /// Power of an idle die.
    pub die_idle_uw: f64,
    /// Power of DRAM's refresh and standby.
    pub dram_idle_uw: f64,
    /// Power of the link while it is up.
    pub link_idle_uw: f64,
    /// Power of a controller core that works.
    pub core_active_uw: f64,
    /// Power of an idle controller core.
    pub core_idle_uw: f64,
    /// Power of the remaining parts of the controller.
    pub controller_idle_uw: f64,
    /// Power of a host core that works on I/O.
    pub host_core_active_uw: f64,
}

/// A low-power state that a device enters after it has been idle for some time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct IdleState {
    /// Power of the whole device in this state, in microwatts.
    pub power_uw: f64,
    /// Idle time after which the device enters this state.
    pub t_after: Ps,
    /// Time from the doorbell that wakes the device to the first command fetched.
    pub t_exit: Ps,
}

/// Figures of a data sheet.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spec {
    /// Sequential read rate in bytes per second.
    pub seq_read_bytes_per_s: Option<u64>,
    /// Sequential write rate in bytes per second.
    pub seq_write_bytes_per_s: Option<u64>,
    /// Random 4 KiB reads per second.
    pub rand_read_iops: Option<u64>,
    /// Random 4 KiB writes per second.
    pub rand_write_iops: Option<u64>,
    /// Queue depth of the random figures, over all queues together.
    pub queue_depth: u32,
    /// Latency of a single 4 KiB read, if published.
    pub read_latency: Option<Ps>,
    /// Average power while busy, in microwatts, if published.
    pub power_uw: Option<u64>,
    /// Power limit of the form factor, in microwatts, if stated.
    pub power_limit_uw: Option<u64>,
    /// Whether the preset claims to match the data sheet's figures within 15 %.
    pub claims_match: bool,
}
