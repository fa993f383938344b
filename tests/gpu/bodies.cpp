// The kernels of `python -m bench gpu` on the warps of the shim, against a drive that is stepped: results checked, every
// schedule from one seed.
//
//     bodies CASE SEED [split]
#include <cstdio>
#include <cstring>
#include <numeric>

#include "check.hpp"
#include "drive.hpp"
#include "kernels.hpp"
#include "simt.hpp"

using namespace nda;
using P = simt::policy;

constexpr u32 warps = 3, line_words = 64;

struct Shim {
    simt::Machine m;
    Shim(u64 seed, bool split) : m(seed) {
        m.split = split;
        simt::Machine::self() = &m;
    }
    /// Runs a grid of `count` warps to its end.
    template <class Body> void grid(u32 count, Body body) {
        m.lanes.clear();
        for (u32 w = 0; w < count; ++w)
            m.add_warp(32, [body, count](unsigned warp, unsigned lane) { body(bench::place{warp * 32 + lane, count * 32}); });
        m.run();
    }
};

/// An array of words that kernels know, two of floats, one for sums; a cache of 256 lines.
struct World : Shim {
    std::vector<u64> words = std::vector<u64>(1 << 14);
    std::vector<float> a = std::vector<float>(4000), b = std::vector<float>(4000);
    drive::Drive d;
    mapping map;
    std::unique_ptr<client<P>> c;
    u64 out[2] = {};

    World(u64 seed, bool split, u64 deadline_ns = 2000000000ull)
        : Shim(seed, split), d(2, 8, 128 << 10, spaces()), map(d.base, d.bytes) {
        std::mt19937_64 jitter(seed);
        d.when = [jitter](const submission_entry &, u64 now) mutable { return now + jitter() % 2000; };
        m.between = [this] { d.step(m.clock_ns); };
        c = std::make_unique<client<P>>(map, 2, 512, 256, cache_options{}, deadline_ns);
    }
    std::vector<drive::Drive::Namespace> spaces() {
        for (u64 i = 0; i < words.size(); ++i) words[i] = bench::word_at(i);
        for (u32 i = 0; i < a.size(); ++i) a[i] = float(i), b[i] = float(i * i % 977);
        u64 bytes = a.size() * 4;
        return {{"words", words.size() * 8, true, reinterpret_cast<u8 *>(words.data())},
                {"a", bytes, true, reinterpret_cast<u8 *>(a.data()), "<f4"},
                {"b", bytes, true, reinterpret_cast<u8 *>(b.data()), "<f4"},
                {"c", bytes, true, nullptr, "<f4"}};
    }
    u64 stored(u32 nsid, u64 word) const {
        auto found = d.written.find(u64(nsid) << 56 | word / 64);
        return found == d.written.end() ? 0 : found->second[word % 64];
    }
};

static void random_reads(u64 seed, bool split) {
    World w(seed, split);
    auto words = w.c->open<u64>("words");
    w.grid(warps, [&](bench::place at) { bench::random_reads<P>(at, words, words.size(), 4, seed, w.out); });
    CHECK(w.out[0] == 0 && w.out[1] == 0 && w.c->pins() == 0 && w.d.reads > 16);
    World other(seed, split);
    auto wrong = other.c->open<u64>("words");
    other.words.assign(other.words.size(), 7);
    other.grid(1, [&](bench::place at) { bench::random_reads<P>(at, wrong, wrong.size(), 2, seed, other.out); });
    CHECK(other.out[0] == 64 && other.out[1] == 0);
}

static void gather_rows(u64 seed, bool split) {
    World w(seed, split);
    auto words = w.c->open<u64>("words");
    std::vector<u64> numbers(50), rows(numbers.size() * line_words);
    for (u64 i = 0; i < numbers.size(); ++i) numbers[i] = bench::next_of(seed + i) >> 20 & 255;
    w.grid(warps, [&](bench::place at) {
        bench::gather_rows<P>(at, words, numbers.data(), numbers.size(), line_words, rows.data(), w.out);
    });
    CHECK(w.out[0] == 0 && w.out[1] == 0 && w.c->pins() == 0);
    for (u64 i = 0; i < rows.size(); ++i) CHECK(rows[i] == bench::word_at(numbers[i / line_words] * line_words + i % line_words));
    World bad(seed, split);
    bad.d.fault = [](const submission_entry &e) { return e.cdw10[0] == 3 ? 0x281u : 0u; };
    auto some = bad.c->open<u64>("words");
    u64 two[2] = {3, 4};
    bad.grid(1, [&](bench::place at) { bench::gather_rows<P>(at, some, two, 2, line_words, rows.data(), bad.out); });
    CHECK(bad.out[0] == 1 && bad.out[1] == 0x281 && bad.c->pins() == 0);
}

static void vector_add_lines(u64 seed, bool split) {
    World w(seed, split);
    auto a = w.c->open<float>("a"), b = w.c->open<float>("b"), c = w.c->open<float>("c");
    auto any = w.c->open<u64>("words");
    w.grid(warps, [&](bench::place at) { bench::vector_add_lines<P>(at, a, b, c, w.out); });
    w.grid(1, [&](bench::place at) { bench::flush_once<P>(at, any, w.c->word(), w.out); });
    CHECK(w.out[0] == 0 && w.out[1] == 0 && w.c->pins() == 0 && w.d.flushes == 1);
    for (u32 i = 0; i < w.a.size(); ++i) {
        u32 bits = u32(w.stored(4, i / 2) >> (i % 2 * 32));
        float sum;
        std::memcpy(&sum, &bits, 4);
        CHECK(sum == w.a[i] + w.b[i]);
    }
    // Three lines are moved for each line of sums, not four.
    CHECK(w.d.reads == 2 * ((w.a.size() * 4 + 511) / 512));
    std::vector<float> plain(w.a.size());
    w.grid(warps, [&](bench::place at) { bench::add_plain<P>(at, w.a.data(), w.b.data(), plain.data(), plain.size()); });
    for (u32 i = 0; i < plain.size(); ++i) CHECK(plain[i] == w.a[i] + w.b[i]);
}

static void store_words(u64 seed, bool split) {
    World w(seed, split);
    auto words = w.c->open<u64>("words");
    w.grid(warps, [&](bench::place at) { bench::store_words<P>(at, words, 1000, 0x5a5a, w.out); });
    w.grid(1, [&](bench::place at) { bench::flush_once<P>(at, words, w.c->word(), w.out); });
    CHECK(w.out[0] == 0 && w.out[1] == 0 && w.c->pins() == 0 && w.d.flushes == 1);
    for (u64 i = 0; i < 1000; ++i) CHECK(w.stored(1, i) == (bench::word_at(i) ^ 0x5a5a));
    w.d.fault = [](const submission_entry &e) { return e.opcode == op_flush ? 0x280u : 0u; };
    w.grid(1, [&](bench::place at) { bench::flush_once<P>(at, words, w.c->word(), w.out); });
    CHECK(w.out[0] == 1 && w.out[1] == 0x280);
}

// An error reaches all threads that wait for it, a right value those that wait for another line; lost ones end.
static void read_statuses(u64 seed, bool split) {
    World w(seed, split, 300000);
    w.d.fault = [](const submission_entry &e) { return e.cdw10[0] == 3 ? 0x281u : 0u; };
    w.d.lose = [](const submission_entry &e) { return e.cdw10[0] == 5; };
    auto words = w.c->open<u64>("words");
    u32 why[64];
    u64 values[64];
    auto read = [&](u64 first, u64 stride) {
        w.grid(2, [&](bench::place at) { bench::read_statuses<P>(at, words, first, stride, why, values); });
    };
    read(3 * line_words + 7, 0);
    for (u32 i = 0; i < 64; ++i) CHECK(why[i] == 0x281 && values[i] == 0);
    read(10 * line_words, line_words);
    for (u32 i = 0; i < 64; ++i) CHECK(why[i] == ok && values[i] == bench::word_at((10 + i) * line_words));
    read(5 * line_words, 1);
    for (u32 i = 0; i < 64; ++i) CHECK(why[i] == timed_out && values[i] == 0);
    CHECK(w.c->pins() == 0);
}

static void constants(u64 seed, bool split) {
    Shim s(seed, split);
    std::vector<u64> words(1 << 10);
    std::iota(words.begin(), words.end(), 0);
    u64 expected = std::accumulate(words.begin(), words.end(), u64(0));
    for (u32 lane_bytes : {4u, 8u, 16u}) {
        u64 sum = 0;
        auto *bytes = reinterpret_cast<const u8 *>(words.data());
        s.grid(warps, [&](bench::place at) { bench::read_lanes<P>(at, bytes, words.size() * 8, lane_bytes, &sum); });
        CHECK(sum == expected);
    }
    u64 ring[5] = {3, 4, 0, 1, 2}, out[2] = {}, data[8] = {}, near[8] = {};
    s.grid(1, [&](bench::place at) { bench::chase<P>(at, ring, 7, out); });
    CHECK(out[0] == 1);
    shared_u32 flag = {0};
    u32 near_flag = 0;
    s.grid(1, [&](bench::place at) { bench::release_cost<P>(at, data, &flag, near, &near_flag, 9, out); });
    CHECK(flag.raw == 9 && near_flag == 9 && data[0] == 8 && near[0] == 8 && data[7] == 7);
    shared_u64 half = {0};
    s.grid(1, [&](bench::place at) { bench::poll_rate<P>(at, &half, 50, out); });
    CHECK(out[0] == 50);
    s.m.between = [&] { half.raw = 1ull << 48; };
    s.grid(1, [&](bench::place at) { bench::poll_rate<P>(at, &half, 1 << 30, out); });
    CHECK(out[0] < 1 << 20);
}

static void ping_pong(u64 seed, bool split) {
    Shim s(seed, split);
    shared_u32 theirs = {0}, mine = {0}, abort_word = {0};
    bench::guard g = {&abort_word, 1000000};
    u64 out[2] = {};
    s.m.between = [&] { if (mine.raw == theirs.raw && theirs.raw < 20) theirs.raw += 1; };
    s.grid(1, [&](bench::place at) { bench::ping_pong<P>(at, &theirs, &mine, 20, g, out); });
    CHECK(out[0] == 20 && mine.raw == 20 && out[1] < g.deadline_ns);
    // Without a partner it ends at its deadline, and at once by the abort word.
    s.m.between = [] {};
    theirs.raw = mine.raw = 0;
    s.grid(1, [&](bench::place at) { bench::ping_pong<P>(at, &theirs, &mine, 20, g, out); });
    CHECK(out[0] == 0 && out[1] >= g.deadline_ns);
    s.m.between = [&] { abort_word.raw = 1; };
    s.grid(1, [&](bench::place at) { bench::ping_pong<P>(at, &theirs, &mine, 20, g, out); });
    CHECK(out[0] == 0 && out[1] < g.deadline_ns);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    std::string what = argv[1];
    u64 seed = std::strtoull(argv[2], nullptr, 10);
    struct { const char *name; void (*run)(u64, bool); } cases[] = {
        {"random_reads", random_reads}, {"gather_rows", gather_rows}, {"vector_add_lines", vector_add_lines},
        {"store_words", store_words}, {"read_statuses", read_statuses}, {"constants", constants}, {"ping_pong", ping_pong}};
    int found = 2;
    for (auto &c : cases)
        if (what == c.name) c.run(seed, argc > 3), found = 0;
    return found;
}
