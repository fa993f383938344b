//! Every key of a description: kind of its value, meaning, and the reason for its range where that is not obvious.
//!
//! This one table is used for reading, checking and printing, for the reference page and for sweeps. `build` makes a
//! [`Description`](super::Description) from the quantities.

use super::value::ValueKind;
use nandarray::policy::GcPolicy;
use nandarray_sim::Ps;

/// A key of a description.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Section and name of the key, such as `nand.t_read`.
    pub path: &'static str,
    /// Kind and range of the value.
    pub kind: ValueKind,
    /// Meaning in a few words.
    pub meaning: &'static str,
    /// Reason for the upper end of the range; empty where it is obvious.
    pub bound: &'static str,
}

impl Key {
    /// Returns the section of the key.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |p| p.0)
    }

    /// Returns the name of the key within its section.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |p| p.1)
    }
}

/// Declares an enum of the words that a key allows, so that the code that reads the key must handle all of them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $(#[doc = $word] $variant),+
        }

        impl $name {
            /// The words as they are written in descriptions.
            pub(super) const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl From<&'static str> for $name {
            /// Converts one of `WORDS`; a key of these words has no other values.
            fn from(word: &'static str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => panic!("{other:?} is none of {:?}", Self::WORDS),
                }
            }
        }
    };
}

words!(
    /// Timed cores, named by their presets.
    CoreWord {
        None = "none",
        Zou2023 = "zou-2023",
        Zou2023Prefetch = "zou-2023-prefetch",
        Zou2023Sp = "zou-2023-sp",
        Zou2023Stream = "zou-2023-stream",
        Zou2023StreamCache = "zou-2023-stream-cache",
        Zou2023Varve = "zou-2023-varve",
        FiveStage = "five-stage",
        FiveStagePrefetch = "five-stage-prefetch",
        FiveStageSp = "five-stage-sp",
        FiveStageStream = "five-stage-stream",
        FiveStageStreamCache = "five-stage-stream-cache",
        Ibex = "ibex",
        IbexMaxperf = "ibex-maxperf",
        Ex5 = "ex5",
        C66x = "c66x",
        Lwp = "lwp",
    }
);
words!(
    /// Programs that a core runs: those of its own instruction set, or any.
    IsaWord { Own = "own", Any = "any" }
);
words!(
    /// Prefetchers of a core.
    PrefetchWord { Core = "core", None = "none", NextLine = "next-line", Stride = "stride", Dcpt = "dcpt" }
);
words!(
    /// Origins of a core's input.
    SourceWord { Dram = "dram", PingPong = "pingpong", Stream = "stream" }
);
words!(
    /// Channels whose pages reach a core directly.
    PlacementWord { Crossbar = "crossbar", Channel = "channel" }
);
words!(
    /// Scheduling policies of the flash.
    SchedulingWord { Normal = "normal", Fifo = "fifo", MqsimCompat = "mqsim-compat" }
);
words!(
    /// Kinds of cells.
    CellWord { Slc = "slc", Mlc = "mlc", Tlc = "tlc", Qlc = "qlc" }
);
words!(
    /// Arbitrations between submission queues.
    ArbitrationWord { RoundRobin = "round-robin", Weighted = "weighted" }
);
words!(
    /// Order of queue entries and data on the link.
    EntriesWord { InOrder = "in order", Ahead = "ahead" }
);
words!(
    /// Unit that host software composes before it programs any of it.
    ComposesWord { Block = "block", Command = "command" }
);

const fn key(path: &'static str, kind: ValueKind, meaning: &'static str) -> Key {
    Key { path, kind, meaning, bound: "" }
}

const fn bounded(path: &'static str, kind: ValueKind, meaning: &'static str, bound: &'static str) -> Key {
    Key { path, kind, meaning, bound }
}

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;
/// Time of a firmware stage or of a command on a bus: up to a millisecond.
const SHORT: ValueKind = ValueKind::Time(Ps::ZERO, Ps::from_ms(1));
const COEFFICIENT: ValueKind = ValueKind::Real(0.0, 1.0);
const EXPONENT: ValueKind = ValueKind::Real(0.0, 10.0);
const PPM: ValueKind = ValueKind::Count(0, 500_000);
const OPERATION: ValueKind = ValueKind::Energy(0.0, 1e12);
const PER_BYTE: ValueKind = ValueKind::EnergyPerByte(0.0, 1e6);
const POWER: ValueKind = ValueKind::Power(0.0, 1e9);
/// Area of a component in square millimetres.
const AREA: ValueKind = ValueKind::Real(0.0, 10_000.0);
const CACHE: ValueKind = ValueKind::SizeOr("core", 0, 1 << 34);
const WAYS: ValueKind = ValueKind::CountOrNone(1, 1_024);
const TICKS: ValueKind = ValueKind::CountOrNone(0, 4_096);
const VECTOR_BITS: ValueKind = ValueKind::CountOrNone(8, 8_192);
/// Idle time of a device, or time that it takes to wake: up to an hour.
const LONG: ValueKind = ValueKind::Time(Ps::ZERO, Ps::from_ms(3_600_000));
const IDLE_STATES_MAX: usize = 32;
const A_CURRENT: &str = "a current is the die's for as long as a command lasts, shared by its planes";
const SPEC_RATE: ValueKind = ValueKind::RateOr("none", 1_000_000, 256_000_000_000);
const SPEC_COUNT: ValueKind = ValueKind::CountOrNone(1, 1_000_000_000);

/// All keys, in the order in which they are printed.
pub const KEYS: &[Key] = &[
    key("geometry.channels", ValueKind::Count(1, 256), "channels"),
    key("geometry.ways", ValueKind::Count(1, 64), "chips (packages) behind a channel"),
    key("geometry.dies", ValueKind::Count(1, 64), "dies of a chip"),
    key("geometry.planes", ValueKind::Count(1, 16), "planes of a die"),
    key("geometry.blocks", ValueKind::Count(4, 1 << 20), "erase blocks of a plane"),
    bounded("geometry.pages", ValueKind::Count(1, 65_535), "pages of an erase block", "page numbers have 16 bits"),
    key("geometry.page_size", ValueKind::Size(512, 256 * KIB), "bytes of a page, without what is spare"),
    key("geometry.spare_size", ValueKind::Size(0, 64 * KIB), "spare bytes of a page, for parity and its owner"),
    bounded(
        "bus.rate",
        ValueKind::Rate(1_000_000, 9_600_000_000),
        "what a channel moves while it moves data",
        "the fastest bus specified is JESD230G's 4,800 MT/s; 16 lines of it make 9.6 GB/s",
    ),
    key("bus.t_read_command", SHORT, "command and address cycles of a page read"),
    key("bus.t_program_command", SHORT, "... of a page program, before its data"),
    key("bus.t_erase_command", SHORT, "... of a block erase"),
    key("bus.t_read_further_plane", SHORT, "more for each further plane of a multi-plane read"),
    key("bus.t_program_further_plane", SHORT, "... of a multi-plane program"),
    key("bus.t_erase_further_plane", SHORT, "... of a multi-plane erase"),
    key("bus.t_data_out_command", SHORT, "cycles before the data of a finished read may leave"),
    key("bus.t_suspend_command", SHORT, "a suspend or a resume command"),
    key("bus.transfers_spare", ValueKind::Flag, "whether the spare bytes cross the bus with their page"),
    key("nand.cell", ValueKind::Word(CellWord::WORDS), "bits of a cell"),
    key(
        "nand.t_read",
        ValueKind::Times(Ps::from_ns(100), Ps::from_ms(10)),
        "sensing a page, by kind of page, LSB first",
    ),
    key(
        "nand.t_program",
        ValueKind::Times(Ps::from_ns(100), Ps::from_ms(100)),
        "programming, by kind of page; with one_shot once for all pages of a word line",
    ),
    key("nand.t_erase", ValueKind::Time(Ps::from_ns(100), Ps::from_ms(1_000)), "erasing a block"),
    key("nand.t_ready", SHORT, "from the end of an array operation to the ready/busy line telling so"),
    key("nand.one_shot", ValueKind::Flag, "whether the pages of a word line are programmed together"),
    key("nand.multi_plane", ValueKind::Flag, "whether the planes of a die take one command together"),
    key(
        "nand.independent_planes",
        ValueKind::Flag,
        "whether a multi-plane read may read different pages of its planes",
    ),
    key(
        "nand.t_cache_read_busy",
        ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(1)),
        "cache read: tRCBSY; none: it has none",
    ),
    key("nand.t_cache_program_busy", ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(1)), "cache program: tCBSY"),
    key(
        "nand.t_suspend_program",
        ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(10)),
        "until a suspended program lets the die read; none: it cannot",
    ),
    key("nand.t_suspend_erase", ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(10)), "... a suspended erase"),
    key("nand.t_resume", SHORT, "going on with what was suspended"),
    key("nand.suspends_max", ValueKind::Count(0, 10_000), "how often one operation may be suspended"),
    key("nand.endurance_cycles", ValueKind::Count(1, 1_000_000_000), "program/erase cycles that a block is good for"),
    key("reliability.rber_base", COEFFICIENT, "raw bit-error rate of a fresh block"),
    key("reliability.rber_cycles", COEFFICIENT, "wear: this * C^exp, C in program/erase cycles"),
    key("reliability.rber_cycles_exp", EXPONENT, "its exponent"),
    key("reliability.rber_retention", COEFFICIENT, "retention: this * C^exp * days^exp"),
    key("reliability.rber_retention_cycles_exp", EXPONENT, "its exponent of C"),
    key("reliability.rber_retention_days_exp", EXPONENT, "its exponent of days"),
    key("reliability.rber_reads", COEFFICIENT, "read disturb: this * C^exp * reads^exp, reads since the block's erase"),
    key("reliability.rber_reads_cycles_exp", EXPONENT, "its exponent of C"),
    key("reliability.rber_reads_exp", EXPONENT, "its exponent of reads"),
    key(
        "reliability.retention_days",
        ValueKind::Real(0.0, 36_500.0),
        "days since a page was written, for the whole run",
    ),
    key("reliability.cycles_before", ValueKind::Count(0, 100_000_000), "cycles that every block had before the run"),
    key(
        "reliability.ecc_codeword_size",
        ValueKind::SizeOr("none", 64, 64 * KIB),
        "what one code word protects; none: no ECC",
    ),
    key("reliability.ecc_correctable_bits", ValueKind::Count(0, 65_536), "bits that a code word can correct"),
    key("reliability.t_ecc_decode", SHORT, "decoding a code word"),
    key("reliability.t_read_retry", SHORT, "reading again at another reference voltage, beyond another sensing"),
    key("reliability.read_retries_max", ValueKind::Count(0, 1_000), "retries before a page is given up"),
    key("reliability.read_retry_rber_factor", COEFFICIENT, "by what each retry multiplies the raw bit-error rate"),
    key("reliability.factory_bad_ppm", PPM, "blocks bad when made, per million"),
    key("reliability.grown_bad_ppm", PPM, "erases or programs that fail, per million"),
    key("controller.cores", ValueKind::Count(1, 256), "embedded cores"),
    key("controller.t_command", SHORT, "decoding a command"),
    key("controller.t_translate", SHORT, "translating a page of the conventional map"),
    key("controller.t_translate_block", SHORT, "translating a building block, where the device translates spaces"),
    key("controller.t_allocate", SHORT, "allocation of a page written"),
    key("controller.t_assemble", SHORT, "the data assembler, once a run copied"),
    key("controller.t_channel", SHORT, "the channel handler, once a flash command"),
    key("controller.t_complete", SHORT, "completing a command"),
    key(
        "controller.coordinates_size",
        ValueKind::Size(0, 64 * KIB),
        "host memory that holds a command's coordinates, fetched where the device translates spaces",
    ),
    key(
        "controller.channel_handlers",
        ValueKind::Count(1, 256),
        "cores from the channel handlers' on, channels dealt to them",
    ),
    key(
        "controller.stage_cores",
        ValueKind::Cores(5),
        "core of command handler, translator, allocator and collector, assembler, channel handlers; none: hardware of \
         its own",
    ),
    key(
        "controller.command_slots",
        ValueKind::Count(1, 1 << 20),
        "commands that the device works on at once; further ones wait in the host's queues",
    ),
    key("controller.scheduling", ValueKind::Word(SchedulingWord::WORDS), "who issues what to the flash, when"),
    key(
        "controller.spaces_in_device",
        ValueKind::Flag,
        "whether the device (or else the host) translates and assembles spaces",
    ),
    key("compute.cores", ValueKind::CountOrNone(1, 4_096), "cores that run programs; none: the device runs none"),
    bounded(
        "compute.clock",
        ValueKind::Frequency(1_000_000, 10_000_000_000),
        "cycles a second of each",
        "no processor sold runs at 10 GHz",
    ),
    key("compute.core_active", POWER, "a core that runs a program; parts with a power take its place"),
    key("compute.core_idle", POWER, "a core that waits for one, or for its data; parts with a power take its place"),
    key(
        "compute.core",
        ValueKind::Word(CoreWord::WORDS),
        "the timed core of each, a preset; none: it takes one instruction a cycle",
    ),
    key("compute.isa", ValueKind::Word(IsaWord::WORDS), "programs that it runs: its own instruction set's, or any"),
    key("compute.l1i_size", CACHE, "instruction cache; 0 B: none"),
    key("compute.l1i_ways", WAYS, "its ways; none: as the core has them"),
    key("compute.l1d_size", CACHE, "data cache; 0 B: none"),
    key("compute.l1d_ways", WAYS, "its ways; none: as the core has them"),
    key("compute.l1d_ticks", TICKS, "ticks of its hit beyond the unit's; none: as the core has it"),
    key("compute.l2_size", CACHE, "second-level cache; 0 B: none"),
    key("compute.l2_ways", WAYS, "its ways; none: as the core has them"),
    key("compute.l2_ticks", TICKS, "ticks of its hit; none: as the core has it"),
    key(
        "compute.prefetch",
        ValueKind::Word(PrefetchWord::WORDS),
        "prefetcher beside the data cache and the second level",
    ),
    key("compute.load_ticks", TICKS, "ticks of a load; none: as the core has it"),
    key("compute.store_ticks", TICKS, "ticks of a store; none: as the core has it"),
    key("compute.multiply_ticks", TICKS, "ticks of a multiplication; none: as the core has it"),
    key("compute.divide_ticks", TICKS, "ticks of a division; none: as the core has it"),
    key("compute.taken_ticks", TICKS, "ticks that a taken branch costs; none: as the core has it"),
    key(
        "compute.vector_length",
        ValueKind::CountOrNone(64, 1_024),
        "bits of a vector register, a power of two; none: as the core has them",
    ),
    key(
        "compute.datapath_bits",
        VECTOR_BITS,
        "bits of elements that the vector datapath takes in a cycle; none: as the core has it",
    ),
    key(
        "compute.vector_memory_bits",
        VECTOR_BITS,
        "bits that a vector load or store of consecutive elements moves in a cycle; none: as the core has it",
    ),
    key("compute.element_ticks", TICKS, "ticks of each element of other loads and stores; none: as the core has it"),
    key(
        "compute.align_bits",
        ValueKind::CountOrNone(1, 64),
        "w: bits to which VarVE rounds up each element in the datapath, a power of two; none: as the core has it",
    ),
    key("compute.align_ticks", TICKS, "ticks of the step that aligns elements; none: as the core has it"),
    key(
        "compute.unpack_lines",
        ValueKind::CountOrNone(0, 64),
        "lines of each packed stream that are fetched and unpacked ahead of use; none: as the core has it",
    ),
    key("compute.unpack_bits", VECTOR_BITS, "packed bits that are unpacked in a cycle; none: as the core has it"),
    key("compute.unpack_ticks", TICKS, "ticks of unpacking what was not unpacked ahead; none: as the core has it"),
    key("compute.scratchpad", ValueKind::Size(0, 256 << 20), "scratchpad of a core; 0 B: none"),
    key("compute.scratchpad_ticks", TICKS, "ticks of its access beyond the unit's; none: as the core has it"),
    bounded(
        "compute.streams",
        ValueKind::Count(0, 8),
        "S: input streams, and output streams, that a core has buffers for",
        "a program has at most 8 of each",
    ),
    key("compute.pages", ValueKind::Count(1, 4_096), "P: pages of the buffer of one stream"),
    key(
        "compute.read_ahead",
        ValueKind::CountOrNone(1, 65_536),
        "pages of one stream that are requested ahead, those in its buffer included; none: P",
    ),
    key("compute.stream_ticks", TICKS, "ticks of a stream access beyond the unit's; none: as the core has it"),
    key(
        "compute.half_size",
        ValueKind::Size(4 * KIB, 64 << 20),
        "a half of the ping-pong buffer of a core, shared by the inputs of a program",
    ),
    key("compute.input", ValueKind::Word(SourceWord::WORDS), "where the input of a core comes from"),
    key(
        "compute.placement",
        ValueKind::Word(PlacementWord::WORDS),
        "whose pages reach a core: those of all channels, or of its own (others cross DRAM)",
    ),
    key(
        "compute.crossbar_rate",
        ValueKind::RateOr("ideal", 1_000_000, 2_000_000_000_000),
        "bandwidth of the crossbar's port of one core; ideal: takes no time",
    ),
    key("compute.t_crossbar", SHORT, "latency of the crossbar"),
    key("compute.t_manage", SHORT, "firmware: a transition of a core's state"),
    key("compute.t_request", SHORT, "firmware: a page of a stream requested or drained"),
    key("compute.pipeline_power", POWER, "power of a core's pipeline"),
    key("compute.pipeline_mm2", AREA, "its area in square millimetres"),
    key("compute.l1i_power", POWER, "power of an instruction cache"),
    key("compute.l1i_mm2", AREA, "its area in square millimetres"),
    key("compute.l1d_power", POWER, "power of a data cache"),
    key("compute.l1d_mm2", AREA, "its area in square millimetres"),
    key("compute.l2_power", POWER, "power of a second-level cache"),
    key("compute.l2_mm2", AREA, "its area in square millimetres"),
    key("compute.scratchpad_power", POWER, "power of a scratchpad"),
    key("compute.scratchpad_mm2", AREA, "its area in square millimetres"),
    key("compute.input_buffers_power", POWER, "power of a core's input stream buffers, or ping-pong buffer"),
    key("compute.input_buffers_mm2", AREA, "their area in square millimetres"),
    key("compute.output_buffers_power", POWER, "power of a core's output stream buffers, or ping-pong buffer"),
    key("compute.output_buffers_mm2", AREA, "their area in square millimetres"),
    key("compute.vector_power", POWER, "power of a core's vector unit"),
    key("compute.vector_mm2", AREA, "its area in square millimetres"),
    key("compute.crossbar_power", POWER, "power of the crossbar"),
    key("compute.crossbar_mm2", AREA, "its area in square millimetres"),
    key("ftl.over_provisioning", ValueKind::Share(0.0, 0.9), "share of the flash that users do not see"),
    key(
        "ftl.striping",
        ValueKind::Striping,
        "order of channel, way, die, plane in which pages are placed, first fastest",
    ),
    key("ftl.map_cache", ValueKind::SizeOr("ideal", 4 * KIB, TIB), "map kept in DRAM; ideal: all of it, at no time"),
    key("ftl.map_entry_size", ValueKind::Size(1, 64), "a map entry"),
    key("ftl.gc", ValueKind::Word(GcPolicy::NAMES), "which block reclaim takes"),
    key("ftl.gc_choices", ValueKind::Count(1, 65_536), "d of d-choices, w of windowed-greedy"),
    key(
        "ftl.gc_threshold",
        ValueKind::Share(0.0, 0.5),
        "reclaim begins when a plane has fewer free blocks than this share",
    ),
    key(
        "ftl.gc_urgent_blocks",
        ValueKind::Count(1, 10_000),
        "writes wait for reclaim when it has fewer than this many",
    ),
    key("ftl.gc_preemptible", ValueKind::Flag, "whether host requests go before reclaim until it is urgent"),
    key("ftl.wear_dynamic", ValueKind::Flag, "whether the least worn free block is taken next"),
    key(
        "ftl.wear_static_threshold",
        ValueKind::CountOrNone(1, 1_000_000_000),
        "cold data moves when erase counts of a plane differ by more",
    ),
    key("ftl.hot_cold", ValueKind::Flag, "whether hot, cold and reclaimed pages have blocks of their own"),
    key("ftl.write_cache", ValueKind::SizeOr("none", 512, TIB), "write cache"),
    key("ftl.early_completion", ValueKind::Flag, "whether a write is complete once it is in the cache"),
    bounded(
        "dram.rate",
        ValueKind::RateOr("ideal", 1_000_000, 2_000_000_000_000),
        "bandwidth of the device's DRAM; ideal: takes no time",
        "an HBM4 stack moves 2 TB/s",
    ),
    key("dram.t_access", SHORT, "latency of an access"),
    key("dram.size", ValueKind::Size(0, 4 * TIB), "its size"),
    key(
        "dram.burst",
        ValueKind::Size(32, 64 * KIB),
        "a burst: a line of a core waits for one, and goes ahead of the others",
    ),
    key(
        "dram.read_crossings",
        ValueKind::Count(0, 2),
        "how often a byte read from flash crosses it on its way to the host: 2 is into it and out of it, 0 streams \
         past",
    ),
    bounded(
        "link.rate",
        ValueKind::Rate(1_000_000, 236_000_000_000),
        "raw rate each way, after line coding",
        "the fastest link specified is PCIe 7.0 x16: 128 GT/s a lane leave 236 GB/s each way",
    ),
    key("link.packet_payload", ValueKind::Size(16, 64 * KIB), "payload of a packet"),
    key("link.packet_overhead", ValueKind::Size(0, 4 * KIB), "what a packet takes beyond its payload"),
    key("link.t_propagate", ValueKind::Time(Ps::ZERO, Ps::from_ms(1_000)), "one way, added to each message, pipelined"),
    key("link.command_size", ValueKind::Size(0, 64 * KIB), "a command on the link"),
    key("link.completion_size", ValueKind::Size(0, 64 * KIB), "a completion"),
    key(
        "link.entries",
        ValueKind::Word(EntriesWord::WORDS),
        "where entries of queues go beside data that waits for the link",
    ),
    bounded("host.queues", ValueKind::Count(1, 65_535), "queue pairs", "NVMe has 65,535 I/O queues"),
    bounded(
        "host.queue_entries",
        ValueKind::Count(2, 65_536),
        "commands that each may hold",
        "an NVMe queue has 65,536 entries",
    ),
    key("host.arbitration", ValueKind::Word(ArbitrationWord::WORDS), "whose command the device takes next"),
    bounded(
        "host.arbitration_burst",
        ValueKind::Count(1, 128),
        "commands a turn",
        "NVMe writes it as a power of 2 up to 7",
    ),
    key(
        "host.arbitration_weights",
        ValueKind::Counts(3, 1, 256),
        "weighted: commands of high, medium and low queues in a round",
    ),
    bounded(
        "host.queue_classes",
        ValueKind::Counts(4, 0, 65_535),
        "how many queues, from queue 0 on, are urgent, high, medium and low; those beyond are medium",
        "there are at most 65,535 queues",
    ),
    key("host.t_submit", SHORT, "CPU time to build and submit a command"),
    key("host.t_complete", SHORT, "CPU time to take a completion"),
    key(
        "host.t_interrupt",
        ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(10)),
        "until the CPU notices a completion; none: polled",
    ),
    key("host.t_copy_run", SHORT, "CPU time of each run copied on the host, beyond its bytes"),
    key("host.copy_rate", ValueKind::Rate(1_000_000, 1_000_000_000_000), "what one host core copies"),
    key(
        "host.t_translate",
        SHORT,
        "CPU time to translate a building block's address, where the host translates spaces",
    ),
    key(
        "host.composes",
        ValueKind::Word(ComposesWord::WORDS),
        "where the host translates spaces: what it composes before it programs any of it",
    ),
    key("host.transfer_max", ValueKind::Size(4 * KIB, 1 << 31), "the most bytes that one command moves (MDTS)"),
    key("host.cores", ValueKind::Count(1, 1_024), "host cores that submit, take completions and copy"),
    bounded("energy.read", OPERATION, "sensing a page", A_CURRENT),
    bounded("energy.program", OPERATION, "programming a page; with one_shot a word line's share of it", A_CURRENT),
    bounded("energy.erase", OPERATION, "erasing a block", A_CURRENT),
    key("energy.bus_byte", PER_BYTE, "a byte over a channel"),
    key("energy.dram_byte", PER_BYTE, "a byte into or out of DRAM"),
    key("energy.link_byte", PER_BYTE, "a byte over the link"),
    key("energy.ecc", OPERATION, "a code word decoded; a current lasts for t_ecc_decode"),
    key("energy.die_idle", POWER, "a die that rests"),
    key("energy.dram_idle", ValueKind::PowerOr("by size", 0.0, 1e9), "refresh and standby of DRAM"),
    key("energy.dram_idle_gib", POWER, "... of a GiB of it, where dram_idle goes by dram.size"),
    key("energy.link_idle", POWER, "the link, up"),
    key("energy.core_active", POWER, "an embedded core that works"),
    key("energy.core_idle", POWER, "an embedded core that rests"),
    key("energy.controller_idle", POWER, "everything else of the controller"),
    key("energy.host_core_active", POWER, "a host core that works on I/O"),
    key(
        "power.idle",
        ValueKind::List(&POWER, IDLE_STATES_MAX),
        "what the whole device takes in each of its idle states, the lightest first",
    ),
    key("power.idle_after", ValueKind::List(&LONG, IDLE_STATES_MAX), "how long it has rested when it enters each"),
    key(
        "power.exit",
        ValueKind::List(&LONG, IDLE_STATES_MAX),
        "what waking from each adds to the command that wakes it",
    ),
    key("spec.seq_read", SPEC_RATE, "data sheet: sequential read"),
    key("spec.seq_write", SPEC_RATE, "data sheet: sequential write"),
    key("spec.rand_read_iops", SPEC_COUNT, "data sheet: random 4 KiB reads a second"),
    key("spec.rand_write_iops", SPEC_COUNT, "data sheet: random 4 KiB writes a second"),
    key("spec.queue_depth", ValueKind::Count(1, 1 << 20), "queue depth, of all queues, of the random figures"),
    key(
        "spec.read_latency",
        ValueKind::TimeOrNone(Ps::ZERO, Ps::from_ms(100)),
        "data sheet: latency of one 4 KiB read",
    ),
    key("spec.power", ValueKind::Power(0.0, 1e9), "data sheet: average power while busy"),
    key("spec.power_limit", ValueKind::Power(0.0, 1e9), "the most that its form factor lets it take; 0: not stated"),
    key("spec.claims_match", ValueKind::Flag, "whether the preset claims to match, to 15 %"),
];

/// Returns the index of a key in [`KEYS`]; `None` if there is no such key.
pub(super) fn index(path: &str) -> Option<usize> {
    KEYS.iter().position(|k| k.path == path)
}

/// Returns the most similar of `names`; `None` if none is similar enough to suggest.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|n| (strsim::jaro_winkler(name, n), n))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, n)| n)
}
