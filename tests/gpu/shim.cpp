// Warps on fibres against a drive that is stepped: every value checked, every schedule from one seed.
//
//     shim CASE SEED [split]
#include <cstdio>
#include <cstring>
#include <set>

#include "check.hpp"
#include "drive.hpp"
#include "simt.hpp"

using namespace nda;
using P = simt::policy;

struct World {
    simt::Machine m;
    drive::Drive d;
    mapping map;
    std::unique_ptr<client<P>> c;
    World(u64 seed, bool split, u32 queues, u32 depth, std::vector<drive::Drive::Namespace> spaces, u32 line, u32 lines,
          cache_options o = {}, u64 deadline = 2000000000ull)
        : m(seed), d(queues, depth, 1 << 20, spaces), map(d.base, d.bytes) {
        m.split = split;
        simt::Machine::self() = &m;
        m.between = [this] { d.step(m.clock_ns); };
        c = std::make_unique<client<P>>(map, queues, line, lines, o, deadline);
    }
};

// Reads of random elements, many of them shared, through a small cache and short rings.
static void reads(u64 seed, bool split) {
    for (u32 depth : {2u, 8u, 64u}) {
        World w(seed, split, 2, depth, {{"a", 1 << 22, true}, {"b", 1 << 20, true, nullptr, "<u4"}}, 512, 64);
        std::mt19937_64 jitter(seed);
        w.d.when = [&](const submission_entry &, u64 now) { return now + jitter() % 2000; };
        auto a = w.c->open<u64>("a");
        auto b = w.c->open<u32>("b");
        for (u32 k = 0; k < 3; ++k)
            w.m.add_warp(32, [&, seed](unsigned warp, unsigned lane) {
                u64 x = seed * 77 + warp * 3 + lane;
                for (u32 i = 0; i < 12; ++i) {
                    x = x * 6364136223846793005ull + 1442695040888963407ull;
                    u64 at = i % 3 ? (x >> 33) % a.size() : (u64(i) * 512 + lane) % a.size();
                    CHECK(a[at] == drive::pattern(1, at));
                    u64 two = (x >> 40) % b.size();
                    CHECK(b[two] == u32(drive::pattern(2, two / 2) >> (two % 2 * 32)));
                }
            });
        w.m.run();
        CHECK(w.c->first_error() == 0 && w.c->pins() == 0);
    }
}

// Stores and loads of words that each belong to one lane; flushed at the end; the drive has them all.
static void stores(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 64 << 10, true}}, 512, 16);
    std::mt19937_64 jitter(seed);
    w.d.when = [&](const submission_entry &, u64 now) { return now + jitter() % 3000; };
    auto a = w.c->open<u64>("a");
    u32 left = 64;
    for (u32 k = 0; k < 2; ++k)
        w.m.add_warp(32, [&, seed](unsigned warp, unsigned lane) {
            u64 x = seed + warp * 32 + lane;
            for (u32 i = 0; i < 10; ++i) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                u64 at = ((x >> 33) % (a.size() / 64)) * 64 + warp * 32 + lane;
                CHECK(a.store(at, u64(at * 3 + 1)) == ok);
                CHECK(a.at(at).value == at * 3 + 1);
            }
            left -= 1;
            if (left == 0) CHECK(a.flush(w.c->word()) == ok);
        });
    w.m.run();
    CHECK(w.d.flushes == 1 && w.c->pins() == 0);
    for (u64 i = 0; i < a.size(); ++i) {
        auto found = w.d.written.find(1ull << 56 | i / 64);
        if (found == w.d.written.end()) continue;
        u64 v = found->second[i % 64];
        CHECK(v == i * 3 + 1 || v == drive::pattern(1, i));
    }
}

// A page is loaded once, however many want it at the same moment, and its callers in a warp are one.
static void loaded_once(u64 seed, bool split) {
    World w(seed, split, 1, 16, {{"a", 64 << 10, true}}, 4096, 32);
    std::multiset<u64> pages;
    w.d.seen = [&](const submission_entry &e) { pages.insert(e.cdw10[0]); };
    w.d.when = [&](const submission_entry &, u64 now) { return now + 5000; };
    auto a = w.c->open<u64>("a");
    for (u32 k = 0; k < 4; ++k)
        w.m.add_warp(32, [&](unsigned, unsigned lane) {
            for (u32 i = 0; i < 16; ++i) CHECK(a[i * 512 + lane] == drive::pattern(1, i * 512 + lane));
        });
    w.m.run();
    for (u64 slba : pages) CHECK(pages.count(slba) == 1);
    CHECK(pages.size() == 16);
}

// The status of a failed load reaches every waiter, stale bytes nobody; the line is empty and the next load tries again.
static void errors(u64 seed, bool split) {
    World w(seed, split, 1, 16, {{"a", 64 << 10, true}}, 512, 16);
    bool bad = true;
    w.d.fault = [&](const submission_entry &e) { return bad && e.cdw10[0] == 3 ? 0x281u : 0u; };
    w.d.when = [&](const submission_entry &, u64 now) { return now + 3000; };
    auto a = w.c->open<u64>("a");
    u32 failed = 0, left = 64;
    for (u32 k = 0; k < 2; ++k)
        w.m.add_warp(32, [&](unsigned, unsigned lane) {
            auto r = a.at(3 * 64 + lane);
            CHECK(r.why == 0x281 && r.value == 0);
            failed += 1;
            if (--left == 0) {
                bad = false;
                CHECK(a.at(3 * 64).value == drive::pattern(1, 3 * 64));
            }
        });
    w.m.run();
    CHECK(failed == 64 && w.c->pins() == 0);
}

// A completion that never comes ends in a status at the deadline; so does a server that dies.
static void lost(u64 seed, bool split) {
    {
        World w(seed, split, 1, 16, {{"a", 64 << 10, true}}, 512, 16, {}, 200000);
        w.d.lose = [](const submission_entry &e) { return e.cdw10[0] == 5; };
        auto a = w.c->open<u64>("a");
        w.m.add_warp(32, [&](unsigned, unsigned lane) {
            CHECK(a.at(5 * 64 + lane).why == timed_out);
            CHECK(a.at(6 * 64 + lane).why == ok);
        });
        w.m.run();
        CHECK(w.c->pins() == 0);
    }
    World w(seed, split, 1, 4, {{"a", 64 << 10, true}}, 512, 16);
    w.m.between = [&] {
        if (w.d.reads < 3) w.d.step(w.m.clock_ns);
        else w.d.head->abort.raw = 1;
    };
    auto a = w.c->open<u64>("a");
    u32 good = 0, dead = 0;
    w.m.add_warp(32, [&](unsigned, unsigned lane) {
        auto r = a.at(lane * 64);
        CHECK(r.why == aborted || (r.why == ok && r.value == drive::pattern(1, lane * 64)));
        (r.why == ok ? good : dead) += 1;
    });
    w.m.run();
    CHECK(good + dead == 32 && dead > 0 && w.c->pins() == 0);
}

// With every line of a set pinned, one more page is refused; with one pin gone, it is there.
static void pinned(u64 seed, bool split) {
    World w(seed, split, 1, 16, {{"a", 64 << 10, true}}, 512, 16, {}, 1ull << 62);
    auto a = w.c->open<u64>("a");
    w.m.add_warp(1, [&](unsigned, unsigned) {
        {
            std::vector<std::unique_ptr<array<u64, P>::pinned>> held;
            for (u32 i = 0; i < 16; ++i) {
                held.emplace_back(new array<u64, P>::pinned(&a, i * 64, access::read));
                CHECK(held.back()->why == ok && (*held.back())[i * 64 + 7] == drive::pattern(1, i * 64 + 7));
            }
            CHECK(a.at(20 * 64).why == no_slot);
            for (u32 i = 0; i < 16; ++i) CHECK((*held[i])[i * 64] == drive::pattern(1, i * 64));
            held.pop_back();
            CHECK(a.at(20 * 64).why == ok);
        }
        CHECK(w.c->pins() == 0);
    });
    w.m.run();
}

// Reads of a writable array leave lines clean; a write-back that fails keeps the bytes and is reported by the flush.
static void dirty(u64 seed, bool split) {
    World w(seed, split, 1, 16, {{"a", 64 << 10, true}, {"r", 64 << 10, false}}, 512, 16);
    auto a = w.c->open<u64>("a");
    auto r = w.c->open<u64>("r");
    bool bad = false;
    w.d.fault = [&](const submission_entry &e) { return bad && e.opcode == op_write ? 0x280u : 0u; };
    w.m.add_warp(1, [&](unsigned, unsigned) {
        // A miss and a hit of each page, whose lines are then taken for others.
        for (u64 i = 0; i < a.size(); i += 64) (void)a[i], (void)a[i + 1];
        CHECK(w.d.writes == 0);
        CHECK(r.store(0, 1) == read_only && a.store(a.size(), 1) == out_of_range && a.at(a.size()).why == out_of_range);
        bad = true;
        CHECK(a.store(9, 99) == ok);
        for (u64 i = 64; i < a.size(); i += 64) CHECK(a.at(i).why == ok);
        CHECK(a.at(9).value == 99);
        CHECK(a.flush(w.c->word()) == 0x280 && w.d.flushes == 0);
        bad = false;
        CHECK(a.flush(w.c->word()) == ok && w.d.flushes == 1);
        CHECK(w.d.written[1ull << 56][9] == 99 && w.d.written.size() == 1);
    });
    w.m.run();
}

// A page beyond 2^32 lines is not one 2^32 below it; the last, partial line ends where its array ends.
static void far(u64 seed, bool split) {
    World w(seed, split, 1, 16, {{"a", (1ull << 42) + 1000, true}}, 512, 16);
    w.d.seen = [&](const submission_entry &e) {
        u64 slba = e.cdw10[0] | u64(e.cdw10[1]) << 32;
        CHECK((slba + e.cdw10[2] + 1) * 512 <= (1ull << 42) + 1024);
    };
    auto a = w.c->open<u64>("a");
    w.m.add_warp(32, [&](unsigned, unsigned lane) {
        u64 high = (1ull << 39) + lane, low = high - (1ull << 38);
        CHECK(a[low] == drive::pattern(1, low));
        CHECK(a[high] == drive::pattern(1, high));
        CHECK(a[a.size() - 1 - lane] == drive::pattern(1, a.size() - 1 - lane));
    });
    w.m.run();
}

// Prefetches are bounded by free places and need nobody to wait for them.
static void prefetches(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 1 << 20, true}}, 512, 64);
    w.d.when = [&](const submission_entry &, u64 now) { return now + 1000; };
    auto a = w.c->open<u64>("a");
    w.m.add_warp(32, [&](unsigned, unsigned lane) {
        for (u32 i = 0; i < 8; ++i) CHECK(a.prefetch((i * 32 + lane) * 64) == ok);
        for (u32 i = 0; i < 8; ++i) CHECK(a[(i * 32 + lane) * 64] == drive::pattern(1, (i * 32 + lane) * 64));
    });
    w.m.run();
    CHECK(w.c->pins() == 0);
}

// NVMe's flush reaches the drive when the write-backs of all queue pairs have ended, not only those of its own.
static void flushed(u64 seed, bool split) {
    World w(seed, split, 4, 8, {{"a", 64 << 10, true}}, 512, 64);
    u64 last_end = 0;
    w.d.when = [&](const submission_entry &e, u64 now) {
        if (e.opcode == op_flush) CHECK(now >= last_end);
        u64 end = now + (e.opcode == op_write ? 40000 : 500);
        if (e.opcode == op_write) last_end = std::max(last_end, end);
        return end;
    };
    auto a = w.c->open<u64>("a");
    w.m.add_warp(1, [&](unsigned, unsigned) {
        for (u64 i = 0; i < 20; ++i) CHECK(a.store(i * 64, i) == ok);
        CHECK(a.flush(w.c->word()) == ok);
        CHECK(w.d.writes == 20 && w.d.flushes == 1);
    });
    w.m.run();
}

// A line takes 65,536 lanes and more; with all that it takes, one more waits, and ends by its deadline or finds a place.
static void crowded(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 64 << 10, true}}, 512, 16, {}, 200000);
    auto a = w.c->open<u64>("a");
    w.m.add_warp(1, [&](unsigned, unsigned) {
        auto &lines = w.c->lines();
        u32 held = 0;
        for (; held < crowd; held += 32) CHECK(lines.acquire_for(0, 32, true).why == ok);
        CHECK(crowd > 65536 && w.c->pins() == held);
        CHECK(a.at(3).why == timed_out && a.prefetch(3) == ok && w.c->pins() == held);
        lines.drop(0, 32);
        u32 line = lines.acquire_for(0, 1, true).line;
        lines.drop(line, held - 31);
        CHECK(a.at(3).value == drive::pattern(1, 3) && w.c->pins() == 0 && w.d.reads == 1);
    });
    w.m.run();
}

// Behind 2^32 commands a pair goes on: tickets and laps wrap.
static void wraps(u64 seed, bool split) {
    for (u32 depth : {2u, 8u, 256u}) {
        World w(seed, split, 1, depth, {{"a", 1 << 20, true}}, 512, 16);
        auto a = w.c->open<u64>("a");
        auto &q = w.c->queues().pairs[0];
        auto &ring = w.d.rings[0];
        u32 begun = 0u - 2 * depth, lap = begun >> q.shift;
        ring.fetched = ring.posted = ring.doors->sq_tail.raw = ring.doors->cq_head.raw = begun;
        q.words->tickets = q.words->rung = q.words->consumed = q.words->head = begun;
        for (u32 i = 0; i < depth; ++i) q.slots[i] = {lap, lap, 0};
        for (u32 k = 0; k < 2; ++k)
            w.m.add_warp(32, [&, depth](unsigned warp, unsigned lane) {
                for (u64 line = warp * 32 + lane; line < 2 * depth + 64; line += 64)
                    CHECK(a[line * 64] == drive::pattern(1, line * 64));
            });
        w.m.run();
        CHECK(w.c->first_error() == 0 && w.c->pins() == 0 && q.words->tickets < 1 << 20);
    }
}

// A flush may take longer than the deadline, which is that of each line; a line that is never written ends it.
static void flushed_slowly(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 64 << 10, true}}, 512, 64, {}, 100000);
    u64 free_at = 0;
    w.d.when = [&](const submission_entry &e, u64 now) {
        if (e.opcode == op_write) free_at = std::max(free_at, now) + 20000;
        return e.opcode == op_write ? free_at : now;
    };
    bool lose = false;
    w.d.lose = [&](const submission_entry &e) { return lose && e.opcode == op_write; };
    auto a = w.c->open<u64>("a");
    w.m.add_warp(1, [&](unsigned, unsigned) {
        for (u64 i = 0; i < 40; ++i) CHECK(a.store(i * 64, i) == ok);
        u64 began = w.m.clock_ns;
        CHECK(a.flush(w.c->word()) == ok && w.d.writes == 40 && w.d.flushes == 1);
        CHECK(w.m.clock_ns - began > 4 * 100000);
        lose = true;
        CHECK(a.store(0, 9) == ok && a.flush(w.c->word()) == timed_out);
    });
    w.m.run();
}

// Lanes that pinned one line give it back by one change of its word, and lanes that store to one mark it by one.
static void given_back_together(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 64 << 10, true}}, 512, 16);
    auto a = w.c->open<u64>("a");
    for (u32 round = 0; round < 3; ++round) {
        w.m.add_warp(32, [&, round](unsigned, unsigned lane) {
            if (round == 0) CHECK(a.at(0).value == drive::pattern(1, 0));
            if (round == 1) CHECK(a.pin(lane)[lane] == drive::pattern(1, lane));
            if (round == 2) CHECK(a.store(lane, lane) == ok);
        });
        w.m.changes.clear();
        w.m.run();
        u64 changes = 0, words = 0;
        for (u32 i = 0; i < ways; ++i) changes += w.m.changes[&w.c->lines().at.words[i]], words |= w.c->lines().at.words[i];
        CHECK(round == 0 || split || changes == round + 1);
        CHECK(bool(words & dirty_bit) == (round == 2));
    }
    CHECK(w.c->pins() == 0);
}

// Words across the bus are used rarely: the server's end every 64 rounds of a wait, the head every quarter of the ring.
static void across_the_bus(u64 seed, bool split) {
    World w(seed, split, 1, 64, {{"a", 1 << 20, true}}, 512, 1024);
    w.d.when = [&](const submission_entry &, u64 now) { return now + 20000; };
    auto a = w.c->open<u64>("a");
    for (u32 k = 0; k < 4; ++k)
        w.m.add_warp(32, [&](unsigned warp, unsigned lane) {
            for (u32 i = 0; i < 4; ++i) CHECK(a[((i * 4 + warp) * 32 + lane) * 64] == drive::pattern(1, ((i * 4 + warp) * 32 + lane) * 64));
        });
    w.m.run();
    auto &q = w.c->queues().pairs[0];
    u64 looks = w.m.across[&q.region->abort], results = 0, acquired = 0;
    for (u32 i = 0; i < q.depth; ++i) results += w.m.across[&q.cq[i].result], acquired += w.m.across[&q.cq[i].status];
    CHECK(w.d.reads == 512 && looks > 0 && looks * 60 < w.m.pauses && results == 0);
    CHECK(w.m.across[&q.doors->cq_head] <= 1 + 512 / 16);
    CHECK(q.words->consumed == 512 && q.words->consumed - q.doors->cq_head.raw < 16);
}

// Time in which the threads did not run is no part of a deadline: a kernel that was pre-empted goes on.
static void stopped(u64 seed, bool split) {
    World w(seed, split, 1, 8, {{"a", 64 << 10, true}}, 512, 16, {}, 500000);
    w.d.when = [&](const submission_entry &, u64 now) { return now + 100000; };
    bool once = false;
    w.m.between = [&] {
        if (w.d.step(w.m.clock_ns) && !once) once = true, w.m.clock_ns += 2000000, w.d.when = [&](const submission_entry &, u64 now) { return now + 50000; };
    };
    auto a = w.c->open<u64>("a");
    w.m.add_warp(32, [&](unsigned, unsigned lane) { CHECK(a.at(lane * 64).value == drive::pattern(1, lane * 64)); });
    w.m.run();
    CHECK(once && w.c->pins() == 0);
}

// An array is opened as the type that it has; types that are no numbers go by their size.
static void typed(u64 seed, bool split) {
    struct pair_of { u32 a, b; };
    World w(seed, split, 1, 8, {{"f", 4096, true, nullptr, "<f4"}, {"d", 4096, true, nullptr, "<f8"}, {"l", 1ull << 62, true}}, 512, 16);
    auto refused = [&](auto open, const char *why) {
        try {
            open();
        } catch (const std::invalid_argument &e) {
            CHECK(std::string(e.what()) == why);
            return;
        }
        CHECK(!"refused");
    };
    refused([&] { w.c->open<double>("f"); }, "elements of array f must be opened as <f4 (4 bytes), not as <f8 (8 bytes)");
    refused([&] { w.c->open<u64>("d"); }, "elements of array d must be opened as <f8 (8 bytes), not as <u8 (8 bytes)");
    refused([&] { w.c->open<pair_of>("f"); }, "elements of array f must be opened as <f4 (4 bytes), not as a type (8 bytes)");
    refused([&] { w.c->open<u64>("l"); }, "array l must have at most 68719476736 lines of 512 bytes, not 9007199254740992");
    CHECK(w.c->open<float>("f").size() == 1024 && w.c->open<pair_of>("d").size() == 512);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    std::string what = argv[1];
    u64 seed = std::strtoull(argv[2], nullptr, 10);
    bool split = argc > 3;
    struct { const char *name; void (*run)(u64, bool); } cases[] = {
        {"reads", reads}, {"stores", stores}, {"loaded_once", loaded_once}, {"errors", errors}, {"lost", lost},
        {"pinned", pinned}, {"dirty", dirty}, {"far", far}, {"prefetches", prefetches}, {"flushed", flushed}, {"crowded", crowded}, {"wraps", wraps},
        {"flushed_slowly", flushed_slowly}, {"given_back_together", given_back_together},
        {"across_the_bus", across_the_bus}, {"stopped", stopped}, {"typed", typed}};
    for (auto &c : cases)
        if (what == c.name || what == "all") c.run(seed, split);
    return 0;
}
