// Records what kernels fetch: the header's own queues and cache on warps in lockstep, against a drive in memory.
//
//     record bfs|cc      none|naive|optimised  WARPS LINES OUT GRAPH
//     record vectoradd   overlapped|waited|replaced WARPS LINES OUT ELEMENTS
//     record table       none|naive|optimised  WARPS LINES OUT COLUMNS ROWS TABLE
//     record random      read|write            WARPS 0     OUT REQUESTS SEED
//     record tiles       rows|tiles            WARPS LINES OUT SIDE SEED
//
// OUT.rows has six 32-bit numbers an access (phase, task, group, kind, fetch, atomics), OUT.addresses and OUT.bytes the
// fetches. Counts and a checksum of the kernel's result go to the output as JSON. `none`: each lane reads 512 bytes for
// each element, through the queues alone. `naive`: each lane asks the cache for itself. `optimised`: lanes of a warp are
// coalesced, and hold their line while the next element is in it.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>

#include "drive.hpp"
#include "lanes.hpp"

using namespace nda;
using lanes::Lane;
using lanes::Machine;

enum class mode { none, naive, optimised };

struct Row { u32 phase, task, group, kind, fetch, atomics; };

/// The recording under way.
struct Recorder {
    std::vector<Row> rows;
    std::vector<u64> addresses;
    std::vector<u32> bytes;
    std::vector<u32> fetch_of_line, task_of_warp;
    /// Where a (group, fetch) of a warp's task has its row.
    std::vector<std::unordered_map<u64, u32>> row_of;
    u32 phase = 0, next_task = 0, tasks = 0;
    u64 elements = 0;
    bool overlapped = true;

    explicit Recorder(u32 warps) : task_of_warp(warps), row_of(warps) {}

    u32 add(u64 address, u32 size) {
        addresses.push_back(address);
        bytes.push_back(size);
        return u32(addresses.size() - 1);
    }
    void touch(Lane &lane, u32 kind, u32 fetch, u32 atomics) {
        u64 key = u64(lane.group) << 32 | fetch;
        auto found = row_of[lane.warp].emplace(key, u32(rows.size()));
        if (found.second) rows.push_back({phase, task_of_warp[lane.warp], lane.group, kind, fetch, 0});
        rows[found.first->second].atomics += atomics;
    }
    /// Where a line's bytes came from; a line that was not fetched has none.
    static constexpr u32 unfetched = ~0u;
    /// Uses a line's bytes: what the lane did to find it is this access's.
    void use(Lane &lane, u64 line) {
        if (fetch_of_line[line] == unfetched) return;  // its atomics are the lane's next access's
        touch(lane, 0, fetch_of_line[line], lane.pending);
        lane.pending = 0;
    }
};

/// A kernel's surroundings: drive, region, cache, recorder.
template <class P> struct World {
    drive::Drive d;
    Machine m;
    mapping map;
    std::unique_ptr<client<P>> c;
    std::unique_ptr<claimed_queues<P>> bare;
    Recorder r;
    u64 base = 0;

    World(u32 warps, u32 lines, u32 line_bytes, std::vector<drive::Drive::Namespace> spaces)
        : d(4, 1024, (std::max<u64>(lines * u64(line_bytes), warps * 32ull * 512) / 4 + 65535) / 4096 * 4096, std::move(spaces)),
          m(warps), map(d.base, d.bytes), r(warps) {
        d.when = [](const submission_entry &, u64 now) { return now + 10000; };
        m.between = [this] { return d.step(m.clock_ns); };
        m.rung = [this] { d.step(m.clock_ns); };
        if (lines) {
            c = std::make_unique<client<P>>(map, 4, line_bytes, lines, cache_options{true, r.overlapped}, 1ull << 60);
            auto &at = c->lines().at;
            base = at.data_offset;
            r.fetch_of_line.assign(c->lines().lines(), Recorder::unfetched);
            lanes::directory() = {at.words, c->lines().lines(), [this](u64 line) { r.use(*m.now, line); }};
        } else {
            bare = std::make_unique<claimed_queues<P>>(map, 4, 1ull << 60);
            base = bare->data_offset();
        }
        d.seen = [this, line_bytes](const submission_entry &e) { seen(e, line_bytes); };
    }

    void seen(const submission_entry &e, u32 line_bytes) {
        if (e.opcode == op_flush) return;
        u32 size = 512 * ((e.cdw10[2] & 0xffff) + 1);
        u64 lba = e.cdw10[0] | u64(e.cdw10[1]) << 32, at = lba * 512;
        for (u32 i = 0; i + 1 < e.nsid; ++i) at += (d.spaces[i].bytes + 65535) / 65536 * 65536;
        u32 fetch = r.add(at, size);
        if (c && e.opcode == op_read) r.fetch_of_line[(e.prp1 - base) / line_bytes] = fetch;
        if (m.now) m.now->fetch = fetch;
        if (e.opcode != op_write) return;
        if (c) r.fetch_of_line[(e.prp1 - base) / line_bytes] = Recorder::unfetched;
        // A flush's write-backs are a phase of their own, a task each.
        if (m.now) r.touch(*m.now, c && r.overlapped ? 1 : 2, fetch, 0);
        else r.rows.push_back({r.phase, fetch, 0, 1, fetch, 0});
    }

    /// Launches a phase of tasks: `work(task, lane)` by all lanes of the warp that takes it.
    template <class F> void launch(u32 tasks, F work) {
        r.next_task = 0;
        r.tasks = tasks;
        m.launch([&, this](u32 warp, u32 lane) {
            for (;;) {
                if (lane == 0) r.task_of_warp[warp] = r.next_task++;
                P::sync(~0u);
                u32 task = r.task_of_warp[warp];
                if (task >= tasks) return;
                if (lane == 0) r.row_of[warp].clear();
                m.now->group = 0;
                work(task, lane);
                P::sync(~0u);
            }
        });
        r.phase += 1;
    }

    void next_group() { m.now->group += 1; }

    /// One element by the queues alone: a block of 512 bytes.
    template <class T> T block(u32 nsid, u64 i, u8 op = op_read) {
        Lane &lane = *m.now;
        u32 number = lane.warp * 32 + lane.lane;
        u64 offset = base + 512ull * number;
        completion_word word = {};
        no_sink sink;
        queue_pair<P> &q = bare->pairs[number % bare->pairs.size()];
        if (q.submit(block_command(op, nsid, i * sizeof(T) / 512, 1, offset), u64(&word), sink)) std::abort();
        // The one that rang last may have been another lane's: the doorbell is rung at once here.
        u32 fetch = lane.fetch;
        if (op == op_read) r.touch(lane, 0, fetch, 0);
        if (q.finish(&word, sink)) std::abort();
        T value;
        std::memcpy(&value, map.base() + offset + i * sizeof(T) % 512, sizeof value);
        return value;
    }
};

/// Reads elements of a namespace in one of the three ways; lives as long as a task.
template <class T, class P> struct Reader {
    World<P> &w;
    mode how;
    u32 nsid;
    array<T, P> a;
    std::optional<typename array<T, P>::pinned> held;

    Reader(World<P> &w_, mode how_, u32 nsid_) : w(w_), how(how_), nsid(nsid_), a() {
        if (how != mode::none) a = w.c->template open<T>(w.d.spaces[nsid - 1].name);
    }
    T operator()(u64 i) {
        w.r.elements += 1;
        if (how == mode::none) return w.template block<T>(nsid, i);
        if (how == mode::naive) return a[i];
        if (!held || !held->holds(i)) {
            held.reset();
            held.emplace(&a, i, access::read);
            if (held->why) std::abort();
            w.r.use(*w.m.now, held->line);
        }
        return (*held)[i];
    }
};

static std::vector<u8> file(const char *path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) { std::fprintf(stderr, "cannot read %s\n", path); std::exit(2); }
    return std::vector<u8>(std::istreambuf_iterator<char>(in), {});
}

template <class T> static void column(const std::string &path, const std::vector<T> &values) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char *>(values.data()), std::streamsize(values.size() * sizeof(T)));
}

template <class P> static void write_out(World<P> &w, const std::string &out, u64 checksum) {
    auto key = [](const Row &a) { return std::make_tuple(a.phase, a.task, a.group); };
    std::stable_sort(w.r.rows.begin(), w.r.rows.end(), [&](const Row &a, const Row &b) { return key(a) < key(b); });
    u64 atomics = 0;
    for (const Row &row : w.r.rows) atomics += row.atomics;
    column(out + ".rows", w.r.rows);
    column(out + ".addresses", w.r.addresses);
    column(out + ".bytes", w.r.bytes);
    u32 error = w.c ? w.c->first_error() : 0;
    std::printf("{\"phases\": %u, \"elements\": %llu, \"touches\": %zu, \"atomics\": %llu, \"reads\": %llu"
                ", \"writes\": %llu, \"error\": %u, \"checksum\": %llu}\n",
                w.r.phase, u64(w.r.elements), w.r.rows.size(), atomics, u64(w.d.reads), u64(w.d.writes), error, checksum);
    if (error) std::exit(4);
}

/// Breadth first from vertex 0's component's largest, or components by labels that spread; edges come from the drive.
template <class P> static void graph(mode how, bool cc, u32 warps, u32 lines, const std::string &out, const char *path) {
    std::vector<u8> bytes = file(path);
    const u64 *head = reinterpret_cast<const u64 *>(bytes.data());
    u64 n = head[0], m = head[1];
    const u64 *first = head + 2, *edges = first + n + 1;
    World<P> w(warps, how == mode::none ? 0 : lines, 4096, {{"edges", m * 8, false, reinterpret_cast<const u8 *>(edges)}});
    std::vector<u64> label(n, ~0ull), frontier, next;
    u64 source = 0;
    for (u64 v = 0; v < n; ++v)
        if (first[v + 1] - first[v] > first[source + 1] - first[source]) source = v;
    for (u64 v = 0; v < n; ++v) {
        if (cc) label[v] = v;
        if (cc ? first[v + 1] > first[v] : v == source) frontier.push_back(v);
    }
    if (!cc) label[source] = 0;
    bool changed = true;
    for (u64 level = 0; !frontier.empty() && changed; ++level) {
        next.clear();
        changed = false;
        w.launch(u32(frontier.size()), [&](u32 task, u32 lane) {
            u64 v = frontier[task];
            Reader<u64, P> read(w, how, 1);
            for (u64 i = first[v] + lane; i < first[v + 1]; i += 32) {
                w.next_group();
                u64 u = read(i);
                if (cc) {
                    u64 low = std::min(label[u], label[v]);
                    changed |= label[u] != low || label[v] != low;
                    label[u] = label[v] = low;
                } else if (label[u] == ~0ull) {
                    label[u] = level + 1;
                    next.push_back(u);
                    changed = true;
                }
            }
        });
        // As kernels that look at every vertex's label do: in order of vertices.
        std::sort(next.begin(), next.end());
        if (!cc) frontier = next;
    }
    u64 sum = 0;
    for (u64 v = 0; v < n; ++v) sum += (label[v] + 1) * (v + 1);
    write_out(w, out, sum);
}

/// c = a + b; a task is a line of each.
template <class P> static void vectoradd(bool overlapped, bool replaced, u32 warps, u32 lines, const std::string &out, u64 n) {
    World<P> w(warps, lines, 4096, {{"a", n * 8, false}, {"b", n * 8, false}, {"c", n * 8, true}});
    w.r.overlapped = overlapped;
    w.c->lines().options.overlapped = overlapped;
    auto c = w.c->template open<u64>("c");
    const u64 per = 512;
    w.launch(u32((n + per - 1) / per), [&](u32 task, u32 lane) {
        Reader<u64, P> a(w, mode::optimised, 1), b(w, mode::optimised, 2);
        typename array<u64, P>::pinned to(&c, task * per, replaced ? access::replace : access::write);
        if (to.why) std::abort();
        if (!replaced) w.r.use(*w.m.now, to.line);
        for (u64 i = task * per + lane; i < std::min(n, (task + 1) * per); i += 32) {
            w.next_group();
            to.store(i, a(i) + b(i));
        }
    });
    if (c.flush(w.c->word())) std::abort();
    u64 wrong = 0;
    for (u64 i = 0; i < n; ++i) {
        u64 expected = drive::pattern(1, i) + drive::pattern(2, i);
        wrong += w.d.written[u64(3) << 56 | i / 64][i % 64] != expected;
    }
    if (wrong) { std::fprintf(stderr, "%llu sums are wrong\n", wrong); std::exit(5); }
    write_out(w, out, n);
}

/// The sum of some columns over the rows whose first column is at least 30.
template <class P>
static void table(mode how, u32 warps, u32 lines, const std::string &out, u32 columns, u64 rows, const char *path) {
    std::vector<u8> bytes = file(path);
    static const char *names[] = {"distance", "total", "surcharge", "hail", "tolls", "taxes"};
    std::vector<drive::Drive::Namespace> spaces;
    for (u32 k = 0; k < columns; ++k) spaces.push_back({names[k], rows * 8, false, bytes.data() + k * rows * 8, "<f8"});
    World<P> w(warps, how == mode::none ? 0 : lines, 4096, spaces);
    double sum = 0;
    const u64 per = 1024;
    w.launch(u32((rows + per - 1) / per), [&](u32 task, u32 lane) {
        Reader<double, P> filter(w, how, 1);
        for (u64 i = task * per + lane; i < std::min(rows, (task + 1) * per); i += 32) {
            w.next_group();
            if (filter(i) < 30) continue;
            for (u32 k = 1; k < columns; ++k) {
                w.next_group();
                sum += Reader<double, P>(w, how == mode::optimised ? mode::naive : how, k + 1)(i);
            }
        }
    });
    write_out(w, out, u64(sum));
}

/// Requests of 512 bytes at random places, one a lane.
template <class P> static void random_blocks(bool write, u32 warps, const std::string &out, u64 requests, u64 seed) {
    World<P> w(warps, 0, 512, {{"a", 1ull << 34, true}});
    w.launch(u32(requests / 32), [&](u32 task, u32 lane) {
        u64 x = (seed + task * 32ull + lane + 1) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29;
        u64 block = x * 0xbf58476d1ce4e5b9ull % (1ull << 25);
        w.r.elements += 1;
        w.template block<u64>(1, block * 64, write ? op_write : op_read);
    });
    write_out(w, out, w.d.reads + w.d.writes);
}

/// Squares of 64 x 64 elements of a matrix of 8-byte elements, at random places: a cache line is a piece of a row, or a
/// tile of 32 x 16 elements. Each task sums a square.
template <class P> static void tiles(bool tiled, u32 warps, u32 lines, const std::string &out, u64 side, u64 seed) {
    World<P> w(warps, lines, 4096, {{"a", side * side * 8, false}});
    u64 sum = 0;
    const u64 down = 16, across = 32;
    auto place = [&](u64 i, u64 k) {
        if (!tiled) return i * side + k;
        u64 tile = i / down * (side / across) + k / across;
        return tile * down * across + i % down * across + k % across;
    };
    w.launch(u32(side * side / 4096), [&](u32 task, u32 lane) {
        u64 x = (seed + task + 1) * 0x9e3779b97f4a7c15ull;
        u64 top = (x >> 20) % (side - 64), left = (x >> 42) % (side - 64);
        Reader<u64, P> read(w, mode::optimised, 1);
        for (u64 i = 0; i < 64; ++i)
            for (u64 k = lane; k < 64; k += 32) {
                w.next_group();
                sum += read(place(top + i, left + k));
            }
    });
    write_out(w, out, sum);
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    std::string what = argv[1], how_text = argv[2], out = argv[5];
    u32 warps = u32(std::atoi(argv[3])), lines = u32(std::atoi(argv[4]));
    mode how = how_text == "none" ? mode::none : how_text == "naive" ? mode::naive : mode::optimised;
    using coalesced = lanes::policy<true>;
    using alone = lanes::policy<false>;
    u64 number = std::strtoull(argv[6], nullptr, 10), more = argc > 7 ? std::strtoull(argv[7], nullptr, 10) : 0;
    if (what == "bfs" || what == "cc") {
        if (how == mode::optimised) graph<coalesced>(how, what == "cc", warps, lines, out, argv[6]);
        else graph<alone>(how, what == "cc", warps, lines, out, argv[6]);
    } else if (what == "vectoradd") {
        vectoradd<coalesced>(how_text != "waited", how_text == "replaced", warps, lines, out, number);
    } else if (what == "table" && argc > 8 && number <= 6) {
        if (how == mode::optimised) table<coalesced>(how, warps, lines, out, u32(number), more, argv[8]);
        else table<alone>(how, warps, lines, out, u32(number), more, argv[8]);
    } else if (what == "random") {
        random_blocks<alone>(how_text == "write", warps, out, number, more);
    } else if (what == "tiles") {
        tiles<coalesced>(how_text == "tiles", warps, lines, out, number, more);
    } else {
        return 2;
    }
    return 0;
}
