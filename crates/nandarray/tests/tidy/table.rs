//! The table of crates, from the bottom up: the layers of each, and its exceptions with their reasons. A new crate is a
//! row here.

/// A crate, and the rules of its source.
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    /// Crates of the project that it depends on.
    pub(crate) uses: &'static [&'static str],
    /// Layers of its modules from the bottom up: a module may use those of layers before its own, and itself. Empty for
    /// a crate whose modules are not layered.
    pub(crate) layers: &'static str,
    /// Arrows that point up: file, the module that it uses, and the reason.
    pub(crate) up: &'static [(&'static str, &'static str, &'static str)],
    /// Files that read the clock, the environment or the machine's chance, each with the reason.
    pub(crate) doors: &'static [(&'static str, &'static str)],
    /// Names that are found to be hashes, so that the search itself is seen to work.
    pub(crate) hashes: &'static [&'static str],
    /// Iterations over a hash whose order has no effect: file, expression, and the reason.
    pub(crate) walks: &'static [(&'static str, &'static str, &'static str)],
    /// Folders of its files, from its root.
    pub(crate) folders: &'static [&'static str],
    /// Number of lines that a file may have.
    pub(crate) lines_max: usize,
    /// Functions that may be longer than others: file, function, and the reason why it is not divided.
    pub(crate) long: &'static [(&'static str, &'static str, &'static str)],
}

/// A crate without exceptions.
const PLAIN: Crate = Crate {
    name: "",
    uses: &[],
    layers: "",
    up: &[],
    doors: &[],
    hashes: &[],
    walks: &[],
    folders: &["src", "tests"],
    lines_max: 520,
    long: &[],
};

/// Why a transport has the machine's clock.
const SILENCE: &str = "a transport ends silent connections and associations";

pub(crate) const CRATES: &[Crate] = &[
    Crate {
        name: "nandarray-nvme-spec",
        uses: &[],
        layers: "status < entry < fields sets < identify features properties logs memory programs pages < io fabrics \
                 admin < nd reservations < lib",
        lines_max: 800,
        folders: &["src"],
        ..PLAIN
    },
    Crate {
        name: "nandarray",
        uses: &["nandarray-nvme-spec"],
        layers: "error < sim < media < flash < codec ftl sched < stl < device < nvme < lib",
        lines_max: 800,
        folders: &["src", "tests", "../../fuzz/fuzz_targets"],
        doors: &[
            ("codec/measure.rs", "prints throughputs on demand; it is compiled into tests only"),
            ("sim/patience.rs", "waits of tests for threads, with a limit"),
            ("sim/process.rs", "tells whether threads that were started are in this process, which decides no content"),
        ],
        hashes: &["write_buffer", "by_id"],
        walks: &[
            ("device/io.rs", "inner.write_buffer.keys()", "sorted right after"),
            ("device/log/commit.rs", "inner.write_buffer.keys()", "sorted right after"),
            ("device/catalog.rs", "inner.write_buffer.keys()", "a sum"),
            ("device/catalog.rs", "inner.write_buffer.values()", "a sum"),
        ],
        ..PLAIN
    },
    Crate { name: "nandarray-sim", uses: &[], layers: "time < events spans < resource < lib", lines_max: 400, ..PLAIN },
    Crate {
        name: "nandarray-describe",
        uses: &["nandarray-sim"],
        layers: "problem quantity unit value < kind < table < declare < vocabulary < written < read write < sheet < \
                 lib tests",
        lines_max: 400,
        up: &[("kind.rs", "table", "a kind can be that of a table's key, and such a key has a kind")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-hart",
        uses: &[],
        layers: "xlen trap isa < access work < protect < memory streams block float < vector < varve < meter < exec \
                 < profile < cache csr < hart < program < bare < lib",
        long: &[("src/exec/select.rs", "handler", "a table: one line an instruction")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-uarch",
        uses: &["nandarray-hart", "nandarray-describe"],
        layers: "unit < error < parts vector < describe < presets < cache prefetch issue < latest < hierarchy < \
                 account feed report < blocks < core < lib",
        walks: &[("describe.rs", "in numbers {", "an array")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-cores",
        uses: &["nandarray-uarch", "nandarray-hart"],
        layers: "abi < task < error < json < element < metadata < program < native < processor < core < kernel_table < \
                 kernel < kernel_metered < check < inflow < call < profile timer < lib",
        ..PLAIN
    },
    Crate {
        name: "nandarray-jit",
        uses: &["nandarray-cores", "nandarray-hart"],
        layers: "context < purse < sites < region < registers < emit < code < shared < engine < processor < lib",
        walks: &[("emit/mod.rs", "in known {", "a list"), ("region.rs", "known.iter().map(|k| k.1)", "a list")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-queues",
        uses: &["nandarray", "nandarray-nvme-spec"],
        layers: "error entries atomic guard wait < sleep < futex layout < region prepared < ring < server client < lib",
        doors: &[("wait.rs", "the client's deadline")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-runtime",
        uses: &["nandarray-jit", "nandarray-cores", "nandarray"],
        layers: "error io queue < progress < cut < share < stage < context < fold < shares work < job < scheduler < \
                 agenda < executor < pipeline < programs tiles < halo < request < typed < inputs outputs < execute < \
                 schedule < session < lib",
        up: &[("tiles.rs", "halo", "a tile may have a halo, which is read with it")],
        ..PLAIN
    },
    Crate {
        name: "nandarray-model",
        uses: &[
            "nandarray-runtime",
            "nandarray-cores",
            "nandarray-uarch",
            "nandarray-hart",
            "nandarray-describe",
            "nandarray-sim",
            "nandarray",
        ],
        layers: "spans < describe < flash < ftl host workload flash_trace < timeline report < machine < store \
                 replay accelerator fetch < lib",
        folders: &["src", "tests", "benches", "examples"],
        lines_max: 800,
        up: &[("spans.rs", "flash", "a span says what the flash was busy for: its `OpCause`")],
        hashes: &["draining", "writing"],
        ..PLAIN
    },
    Crate {
        name: "nandarray-nvme",
        uses: &["nandarray-runtime", "nandarray-cores", "nandarray", "nandarray-nvme-spec", "nandarray-describe"],
        layers: "limits cpu_time events budget host_entries ports < commands features properties executing running \
                 unlocked registrants notices < payload queue saved_registrants metrics < auth reservations < accounts \
                 slm boxes logs tls < programs < tenants < door_tenants requests arrays offload < subsystem \
                 association identify < run_outputs < reserve < admin io < measures < tcp < lib < tests",
        lines_max: 800,
        up: &[
            ("budget.rs", "run_outputs", "collected outputs go to the host that fetches them"),
            ("association.rs", "run_outputs", "an association keeps the runs whose outputs its host fetches"),
            ("programs.rs", "tenants", "an execution has the arrays and the budget of its tenant"),
            ("requests.rs", "arrays", "a request is one on arrays, which is executed when it is whole"),
            ("arrays.rs", "offload", "a request on arrays may run programs"),
            ("arrays.rs", "requests", "requests and replies are messages"),
            ("offload.rs", "arrays", "parts of the data behind a request's text"),
            ("offload.rs", "requests", "replies are messages"),
            ("subsystem.rs", "association", "a subsystem makes associations and keeps them weakly"),
            ("association.rs", "subsystem", "an association belongs to its subsystem"),
            ("identify.rs", "subsystem", "the numbers of namespaces"),
            ("identify.rs", "association", "the part of an association that answers identify"),
        ],
        doors: &[
            ("running.rs", "an operator is told since when an execution runs"),
            ("events.rs", "an event has a time, and limits of events are limits in time"),
            ("metrics.rs", "its test measures the cost of counting"),
            ("tcp/connection.rs", SILENCE),
            ("tcp/outgoing.rs", SILENCE),
            ("tcp/held.rs", "a transfer waits a moment for memory of its tenant"),
            ("tcp/workers.rs", "tenants share workers by the time that their commands take"),
            ("tcp/server.rs", SILENCE),
            ("tcp/secure.rs", SILENCE),
            ("tcp/greeting.rs", SILENCE),
            ("tcp/logins.rs", SILENCE),
            ("tcp/initiator.rs", SILENCE),
            ("tcp/run_output.rs", "commands are measured from their arrival on"),
            ("tcp/run_fetch.rs", "a host waits a moment for memory of its tenant"),
        ],
        ..PLAIN
    },
    Crate {
        name: "nandarray-python",
        uses: &[
            "nandarray-nvme",
            "nandarray-nvme-spec",
            "nandarray-model",
            "nandarray-queues",
            "nandarray-runtime",
            "nandarray-cores",
            "nandarray-uarch",
            "nandarray-hart",
            "nandarray",
        ],
        lines_max: 800,
        folders: &["src"],
        doors: &[
            ("nvme_tcp.rs", "a paced store follows the machine's clock"),
            ("nvme_watch.rs", "operators are told times in seconds since 1970"),
            ("options.rs", "entropy of new stores"),
            ("session.rs", "measures how long a scheduler takes to decide"),
        ],
        ..PLAIN
    },
];
