// Threads of a host against a drive with a thread of its own: built with ThreadSanitizer, or for time.
//
//     threads CASE SEED
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "check.hpp"
#include "drive.hpp"

using namespace nda;
using P = host_policy;

struct Served {
    drive::Drive &d;
    std::atomic<bool> over{false};
    std::thread thread;
    explicit Served(drive::Drive &d_) : d(d_), thread([this] {
        while (!over) if (!d.step(P::now_ns())) std::this_thread::yield();
    }) {}
    ~Served() { over = true; thread.join(); }
};

static void queue(u64 seed) {
    drive::Drive d(1, 4, 1 << 20, {{"a", 1 << 20, true}});
    Served s(d);
    mapping map(d.base, d.bytes);
    claimed_queues<P> q(map, 1, 20000000000ull);
    no_sink sink;
    std::vector<std::thread> all;
    for (u32 t = 0; t < 3; ++t)
        all.emplace_back([&, t] {
            std::mt19937_64 chance(seed + t);
            queue_pair<P> pair = q.pairs[0];
            for (u32 i = 0; i < 300; ++i) {
                completion_word word = {};
                u64 lba = chance() % 2000, to = q.data_offset() + t * 4096;
                CHECK(pair.submit(block_command(op_read, 1, lba, 1, to), u64(&word), sink) == ok);
                CHECK(pair.finish(&word, sink) == ok);
                CHECK(*reinterpret_cast<u64 *>(map.base() + to + 8) == drive::pattern(1, lba * 64 + 1));
            }
        });
    for (auto &t : all) t.join();
}

static void lines(u64 seed) {
    drive::Drive d(2, 8, 1 << 20, {{"a", 1 << 16, true}});
    Served s(d);
    mapping map(d.base, d.bytes);
    client<P> c(map, 2, 512, 16, {}, 20000000000ull);
    auto a = c.open<u64>("a");
    std::vector<std::thread> all;
    for (u32 t = 0; t < 3; ++t)
        all.emplace_back([&, t] {
            std::mt19937_64 chance(seed + t);
            for (u32 i = 0; i < 600; ++i) {
                // Words 0 to 15 of a block belong to a thread each, the others to nobody.
                u64 block = chance() % (a.size() / 64);
                if (i % 3 == 0) {
                    CHECK(a.store(block * 64 + t, block + 5) == ok);
                    CHECK(a.at(block * 64 + t).value == block + 5);
                }
                CHECK(a[block * 64 + 20 + t] == drive::pattern(1, block * 64 + 20 + t));
                if (i % 100 == 99) {
                    completion_word word = {};
                    CHECK(a.flush(&word) == ok);
                }
            }
        });
    for (auto &t : all) t.join();
    CHECK(c.first_error() == 0 && c.pins() == 0);
}

// Time of this thread, without that of others on its core.
static u64 cpu_ns() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return u64(t.tv_sec) * 1000000000ull + u64(t.tv_nsec);
}

// Times of a hit, with one page and with 10,000, and the bytes of directory a line; on one thread.
static void hits(u64) {
    drive::Drive d(1, 64, 64 << 20, {{"a", 1ull << 30, true}});
    Served *s = new Served(d);
    mapping map(d.base, d.bytes);
    client<P> c(map, 1, 4096);
    auto a = c.open<u64>("a");
    const u32 pages = 10000, n = 2000000;
    for (u32 p = 0; p < pages; ++p) (void)a[p * 512ull];
    delete s;
    u64 sum = 0;
    auto time = [&](u32 over) {
        u64 best = ~0ull;
        for (u32 round = 0; round < 5; ++round) {
            u64 t = cpu_ns(), x = 1;
            for (u32 i = 0; i < n; ++i) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                sum += a[((x >> 33) * over >> 31) * 512];
            }
            best = std::min<u64>(best, cpu_ns() - t);
        }
        return double(best) / n;
    };
    // The floor: two atomics on the page's own word of the directory, without a search, and the element's load.
    std::vector<u32> line_of(pages);
    for (u32 p = 0; p < pages; ++p) {
        u64 seen = 0;
        line_of[p] = c.lines().find(p, 1, seen);
        CHECK(line_of[p] != c.lines().lines());
        c.lines().release(line_of[p]);
    }
    auto floor = [&](u32 over) {
        u64 best = ~0ull;
        cache_parts &at = c.lines().at;
        for (u32 round = 0; round < 5; ++round) {
            u64 t = cpu_ns(), x = 1;
            for (u32 i = 0; i < n; ++i) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                u32 line = line_of[(x >> 33) * over >> 31];
                P::fetch_add(&at.words[line], u64(1));
                sum += *reinterpret_cast<u64 *>(at.data + (u64(line) << at.line_shift));
                P::fetch_add(&at.words[line], u64(0) - 1);
            }
            best = std::min<u64>(best, cpu_ns() - t);
        }
        return double(best) / n;
    };
    double one = time(1), many = time(pages), floor_one = floor(1), floor_many = floor(pages);
    CHECK(c.first_error() == 0);
    std::printf("{\"hit_one_page_ns\": %.2f, \"hit_10000_pages_ns\": %.2f, \"atomics_one_ns\": %.2f, "
                "\"atomics_10000_ns\": %.2f, \"metadata_bytes\": %.2f, \"sum\": %llu}\n",
                one, many, floor_one, floor_many, c.metadata_bytes(), sum);
}

/// The host's policy, which notes what it accesses.
struct noting : host_policy {
    static inline std::vector<const void *> loads, changes;
    template <class W> static W load(const W *at) { loads.push_back(at); return host_policy::load(at); }
    template <class W> static W fetch_add(W *at, W value) { changes.push_back(at); return host_policy::fetch_add(at, value); }
    template <class W> static W fetch_or(W *at, W value) { changes.push_back(at); return host_policy::fetch_or(at, value); }
    template <class W> static bool compare_exchange(W *at, W &expected, W value) {
        changes.push_back(at);
        return host_policy::compare_exchange(at, expected, value);
    }
};

// A hit changes its line's own word twice and no other: no counts that all threads share. It looks at words of its set,
// however many arrays there are and however large they are; so do the words of the cache and of a queue pair.
static void touches(u64) {
    std::vector<std::string> names;
    for (u32 i = 0; i < 200; ++i) names.push_back("a" + std::to_string(i));
    double bytes_of_a_line = 0;
    for (u32 arrays : {1u, 200u}) {
        std::vector<drive::Drive::Namespace> spaces;
        for (u32 i = 0; i < arrays; ++i) spaces.push_back({names[i].c_str(), arrays == 1 ? 1ull << 20 : 1ull << 38, true});
        drive::Drive d(1, 64, 1 << 20, spaces);
        Served s(d);
        mapping map(d.base, d.bytes);
        client<noting> c(map, 1, 512, 64);
        std::vector<array<u64, noting>> open;
        for (u32 i = 0; i < arrays; ++i) open.push_back(c.open<u64>(names[i].c_str()));
        auto &a = open.back();
        for (u32 i = 0; i < 4; ++i) (void)a[i * 64];
        cache_parts &at = c.lines().at;
        u64 loads_before = at.counts->loads;
        noting::loads.clear(), noting::changes.clear();
        for (u32 i = 0; i < 1000; ++i) (void)a[i % 256];
        CHECK(noting::changes.size() == 2000 && noting::loads.size() <= 1000 * ways);
        for (const std::vector<const void *> *all : {&noting::loads, &noting::changes})
            for (const void *word : *all) CHECK(word >= at.words && word < at.words + c.lines().lines());
        CHECK(at.counts->loads == loads_before && c.first_error() == 0);
        CHECK(arrays == 1 || c.metadata_bytes() == bytes_of_a_line);
        bytes_of_a_line = c.metadata_bytes();
    }
    CHECK(sizeof(queue_words) + 1024 * sizeof(slot_words) <= 17 << 10);
}

int main(int argc, char **argv) {
    u64 seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    std::string what = argc > 1 ? argv[1] : "";
    if (what == "queue") queue(seed);
    else if (what == "lines") lines(seed);
    else if (what == "hits") hits(seed);
    else if (what == "touches") touches(seed);
    else return 2;
    return 0;
}
