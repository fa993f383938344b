// A SIMT machine on a CPU: lanes are fibres, one seeded scheduler runs them, and every memory operation may be the end
// of a lane's turn. The headers under test are the same as on a GPU.
//
// Collectives resolve when all lanes of their mask stand at the same one. `active()` resolves when no other lane of its
// warp can run: to all lanes that wait there, or in split mode to a random part of them. The machine stops with a
// message when a lane waits for one that has ended, or when nobody can run. Not here: memory models weaker than the
// host's, which ThreadSanitizer and the mutants look after.
#pragma once

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "nandarray/nandarray.hpp"

namespace simt {

enum class Wait { nothing, active, match, shuffle, sync, ended };

struct Lane {
    ucontext_t context;
    std::vector<char> stack;
    Wait wait = Wait::nothing;
    unsigned warp = 0, lane = 0, mask = 0, from = 0, line_active = 0;
    unsigned long long value = 0, answer = 0;
    std::function<void()> work;
};

struct Machine {
    std::mt19937_64 chance;
    bool split = false;
    /// One in this many memory operations ends a lane's turn.
    unsigned grain = 4;
    unsigned long long clock_ns = 0, steps = 0, steps_max = 200000000ull;
    std::vector<std::unique_ptr<Lane>> lanes;
    Lane *now = nullptr;
    ucontext_t main;
    /// Changes of each word by lanes, and loads and stores of each word across the bus.
    std::unordered_map<const void *, unsigned long long> changes, across;
    /// Turns in which a lane had nothing to do.
    unsigned long long pauses = 0;
    /// What is done between turns: a step of the server.
    std::function<void()> between = [] {};

    explicit Machine(unsigned long long seed) : chance(seed) {}
    ~Machine() {
        if (self() == this) self() = nullptr;
    }
    unsigned draw(unsigned n) { return unsigned(chance() % n); }

    static Machine *&self() {
        static Machine *m = nullptr;
        return m;
    }
    static void enter() {
        Lane *lane = self()->now;
        lane->work();
        lane->wait = Wait::ended;
        self()->leave();
        abort();
    }
    void leave() {
        Lane *lane = now;
        swapcontext(&lane->context, &main);
    }
    void maybe_leave() {
        if (now && draw(grain) == 0) leave();
    }

    void add_warp(unsigned width, std::function<void(unsigned warp, unsigned lane)> kernel) {
        unsigned warp = lanes.empty() ? 0 : lanes.back()->warp + 1;
        for (unsigned i = 0; i < width; ++i) {
            auto lane = std::make_unique<Lane>();
            lane->stack.resize(64 << 10);
            lane->warp = warp;
            lane->lane = i;
            lane->work = [kernel, warp, i] { kernel(warp, i); };
            getcontext(&lane->context);
            lane->context.uc_stack.ss_sp = lane->stack.data();
            lane->context.uc_stack.ss_size = lane->stack.size();
            lane->context.uc_link = nullptr;
            makecontext(&lane->context, enter, 0);
            lanes.push_back(std::move(lane));
        }
    }

    [[noreturn]] void stop(const char *why) {
        std::fprintf(stderr, "simt: %s\n", why);
        for (auto &l : lanes) std::fprintf(stderr, "  warp %u lane %u wait %d mask %08x\n", l->warp, l->lane, int(l->wait), l->mask);
        std::exit(3);
    }

    /// Resolves the collective that this lane stands at, if all of its mask do.
    bool resolve(Lane &lane) {
        std::vector<Lane *> group;
        for (auto &l : lanes) {
            if (l->warp != lane.warp || !(lane.mask >> l->lane & 1)) continue;
            if (l->wait == Wait::ended) stop("a lane of the mask has ended");
            if (l->wait != lane.wait || l->mask != lane.mask) return false;
            group.push_back(l.get());
        }
        for (Lane *a : group) {
            a->answer = 0;
            if (lane.wait == Wait::match) {
                for (Lane *b : group)
                    if (a->value == b->value) a->answer |= 1ull << b->lane;
            } else if (lane.wait == Wait::shuffle) {
                if (!(lane.mask >> a->from & 1)) stop("a shuffle from outside of the mask");
                for (Lane *b : group)
                    if (b->lane == a->from) a->answer = b->value;
            }
        }
        for (Lane *a : group) a->wait = Wait::nothing;
        return true;
    }

    void resolve_active(unsigned warp) {
        unsigned mask = 0;
        std::vector<Lane *> waiting;
        for (auto &l : lanes)
            if (l->warp == warp && l->wait == Wait::active) waiting.push_back(l.get());
        for (Lane *l : waiting)
            if (!split || draw(2)) mask |= 1u << l->lane;
        if (mask == 0) mask = 1u << waiting[draw(unsigned(waiting.size()))]->lane;
        for (Lane *l : waiting) {
            if (!(mask >> l->lane & 1)) continue;
            l->answer = mask;
            l->wait = Wait::nothing;
        }
    }

    void run() {
        self() = this;
        std::vector<Lane *> ready;
        for (;;) {
            ready.clear();
            bool alive = false;
            std::vector<unsigned> settled;
            for (auto &l : lanes) {
                if (l->wait == Wait::ended) continue;
                alive = true;
                if (l->wait == Wait::nothing) ready.push_back(l.get());
            }
            if (!alive) return;
            if (++steps > steps_max) stop("too many steps");
            clock_ns += 10;
            between();
            if (ready.empty()) {
                bool progress = false;
                for (auto &l : lanes)
                    if (!progress && l->wait != Wait::ended && l->wait != Wait::active && l->wait != Wait::nothing) progress = resolve(*l);
                for (auto &l : lanes)
                    if (!progress && l->wait == Wait::active) {
                        resolve_active(l->warp);
                        progress = true;
                    }
                if (!progress) stop("nobody can run");
                continue;
            }
            now = ready[draw(unsigned(ready.size()))];
            swapcontext(&main, &now->context);
            Lane *was = now;
            now = nullptr;
            if (was->wait != Wait::nothing && was->wait != Wait::ended && was->wait != Wait::active) resolve(*was);
            if (was->wait == Wait::active) {
                bool others = false;
                for (auto &l : lanes) others |= l->warp == was->warp && l->wait == Wait::nothing;
                if (!others || (split && draw(3) == 0)) resolve_active(was->warp);
            }
        }
    }

    unsigned long long collect(Wait what, unsigned mask, unsigned long long value, unsigned from) {
        Lane *lane = now;
        lane->wait = what;
        lane->mask = mask;
        lane->value = value;
        lane->from = from;
        leave();
        return lane->answer;
    }
};

/// Host atomics whose every operation may end a lane's turn, and the warp's collectives.
struct policy : nda::host_policy {
    using base = nda::host_policy;
    using u32 = nda::u32;
    using u64 = nda::u64;
    static Machine &m() { return *Machine::self(); }
    template <class W> static W load(const W *at) { m().maybe_leave(); return base::load(at); }
    template <class W> static W load_acquire(const W *at) { m().maybe_leave(); return base::load_acquire(at); }
    template <class W> static void store(W *at, W v) { m().maybe_leave(); base::store(at, v); }
    template <class W> static void store_release(W *at, W v) { m().maybe_leave(); base::store_release(at, v); }
    template <class W> static W fetch_add(W *at, W v) { change(at); return base::fetch_add(at, v); }
    template <class W> static W fetch_or(W *at, W v) { change(at); return base::fetch_or(at, v); }
    template <class W> static W fetch_and(W *at, W v) { change(at); return base::fetch_and(at, v); }
    template <class W> static W exchange(W *at, W v) { change(at); return base::exchange(at, v); }
    template <class W> static bool compare_exchange(W *at, W &e, W v) { change(at); return base::compare_exchange(at, e, v); }
    template <class W> static auto sys_load(const W *at) { cross(at); return base::sys_load(at); }
    template <class W> static auto sys_load_acquire(const W *at) { cross(at); return base::sys_load_acquire(at); }
    static void sys_store_release(nda::shared_u32 *at, u32 v) { cross(at); base::sys_store_release(at, v); }
    static void change(const void *at) { m().changes[at] += 1; m().maybe_leave(); }
    // A client gives its queues back when its machine may be gone.
    static void cross(const void *at) {
        if (!Machine::self()) return;
        m().across[at] += 1;
        m().maybe_leave();
    }
    static void ring(nda::shared_u32 *d, u32 v, nda::shared_u32 *a) {
        if (m().now) m().leave();
        base::ring(d, v, a);
    }
    static u64 now_ns() { return m().clock_ns; }
    static void pause(u32) {
        m().pauses += 1;
        if (m().now) m().leave();
        else m().between();
    }
    static constexpr bool has_warps = true;
    static u32 active() { return u32(m().collect(Wait::active, 0, 0, 0)); }
    static u32 lane() { return m().now->lane; }
    static u32 match(u32 mask, u64 key) { return u32(m().collect(Wait::match, mask, key, 0)); }
    template <class V> static V shuffle(u32 mask, V v, u32 from) { return V(m().collect(Wait::shuffle, mask, u64(v), from)); }
    static void sync(u32 mask) { m().collect(Wait::sync, mask, 0, 0); }
};

}  // namespace simt
