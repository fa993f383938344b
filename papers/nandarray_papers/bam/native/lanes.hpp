// Warps in lockstep on a CPU, for recordings: every warp in turn runs until each of its lanes waits, spins or has ended.
//
// Lanes are fibres. A collective resolves when all lanes of its mask stand at it, `active()` when no lane of the warp
// can run or spins. Order is fixed, without chance: the same kernel gives the same recording. Not here: hostile
// schedules (`tests/gpu/simt.hpp`).
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "nandarray/nandarray.hpp"

namespace lanes {

using nda::u32;
using nda::u64;
using nda::u8;

enum class Stop { none, spin, active, match, shuffle, sync, ended };

struct Lane {
    ucontext_t begin;
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    bool started = false;
    /// Turns in which lanes of the warp wait for others that spin; of its first lane.
    u32 stalled = 0;
    Stop stop = Stop::ended;
    u32 warp = 0, lane = 0, mask = 0, from = 0;
    u64 value = 0, answer = 0;
    /// For recordings: the group of the access under way, atomics not yet attributed, the last fetch submitted.
    u32 group = 0, pending = 0, fetch = 0;
};

struct Machine {
    static constexpr size_t stack_bytes = 32 << 10;
    std::vector<std::unique_ptr<Lane>> all;
    Lane *now = nullptr;
    u64 clock_ns = 0, idle = 0;
    /// Modelled time of a turn of all warps.
    u64 turn_ns = 1000;
    std::function<void(u32 warp, u32 lane)> kernel;
    std::function<bool()> between = [] { return false; };
    std::function<void()> rung = [] {};
    jmp_buf main;

    static Machine *&self() {
        static Machine *m = nullptr;
        return m;
    }
    static void enter() {
        Machine *m = self();
        m->kernel(m->now->warp, m->now->lane);
        m->leave(Stop::ended);
        std::abort();
    }
    void leave(Stop why) {
        now->stop = why;
        if (_setjmp(now->here) == 0) _longjmp(main, 1);
    }
    void resume(Lane *lane) {
        now = lane;
        lane->stop = Stop::none;
        if (_setjmp(main) == 0) {
            if (now->started) _longjmp(now->here, 1);
            now->started = true;
            setcontext(&now->begin);
        }
        now = nullptr;
    }

    explicit Machine(u32 warps) {
        self() = this;
        for (u32 i = 0; i < warps * 32; ++i) {
            all.emplace_back(new Lane);
            all.back()->stack.reset(new char[stack_bytes]);
            all.back()->warp = i / 32;
            all.back()->lane = i % 32;
        }
    }

    /// Launches the kernel on all warps, and returns when every lane has ended.
    void launch(std::function<void(u32 warp, u32 lane)> work) {
        kernel = std::move(work);
        for (auto &l : all) {
            getcontext(&l->begin);
            l->begin.uc_stack.ss_sp = l->stack.get();
            l->begin.uc_stack.ss_size = stack_bytes;
            l->begin.uc_link = nullptr;
            makecontext(&l->begin, enter, 0);
            l->started = false;
            l->stop = Stop::none;
        }
        for (bool alive = true; alive;) {
            alive = false;
            bool moved = false;
            for (u32 w = 0; w < all.size() / 32; ++w) alive |= turn(&all[w * 32], moved);
            clock_ns += turn_ns;
            moved |= between();
            idle = moved ? 0 : idle + 1;
            if (idle > 100000) {
                std::fprintf(stderr, "lanes: nothing moves\n");
                std::exit(3);
            }
        }
    }

    /// A warp's turn: true if a lane of it has not ended.
    bool turn(std::unique_ptr<Lane> *warp, bool &moved) {
        for (u32 i = 0; i < 32; ++i)
            if (warp[i]->stop == Stop::spin) warp[i]->stop = Stop::none;
        for (;;) {
            bool any = false;
            for (u32 i = 0; i < 32; ++i) {
                if (warp[i]->stop != Stop::none) continue;
                resume(warp[i].get());
                any |= warp[i]->stop != Stop::spin;
            }
            for (u32 i = 0; i < 32; ++i) any |= resolve(warp, *warp[i]);
            moved |= any;
            if (any) continue;
            u32 active = 0, spinning = 0, ended = 0;
            for (u32 i = 0; i < 32; ++i) {
                active |= u32(warp[i]->stop == Stop::active) << i;
                spinning |= u32(warp[i]->stop == Stop::spin) << i;
                ended += warp[i]->stop == Stop::ended;
            }
            if (ended == 32) return false;
            // Lanes that spin join the others, unless they wait for what those hold.
            if (spinning && (!active || ++warp[0]->stalled < 64)) return true;
            warp[0]->stalled = 0;
            if (!active) {
                std::fprintf(stderr, "lanes: a warp waits for lanes that have ended\n");
                std::exit(3);
            }
            for (u32 i = 0; i < 32; ++i)
                if (active >> i & 1) {
                    warp[i]->answer = active;
                    warp[i]->stop = Stop::none;
                }
        }
    }

    /// Resolves the collective that this lane is the lowest of, if all of its mask stand at it.
    bool resolve(std::unique_ptr<Lane> *warp, Lane &lane) {
        bool collective = lane.stop == Stop::match || lane.stop == Stop::shuffle || lane.stop == Stop::sync;
        if (!collective || u32(__builtin_ctz(lane.mask)) != lane.lane) return false;
        Stop what = lane.stop;
        u32 mask = lane.mask;
        for (u32 i = 0; i < 32; ++i)
            if (mask >> i & 1 && (warp[i]->stop != what || warp[i]->mask != mask)) return false;
        for (u32 i = 0; i < 32; ++i) {
            if (!(mask >> i & 1)) continue;
            Lane &a = *warp[i];
            a.answer = what == Stop::shuffle ? warp[a.from]->value : 0;
            for (u32 k = 0; what == Stop::match && k < 32; ++k)
                if (mask >> k & 1 && warp[k]->value == a.value) a.answer |= 1ull << k;
        }
        for (u32 i = 0; i < 32; ++i)
            if (mask >> i & 1) warp[i]->stop = Stop::none;
        return true;
    }

    u64 collect(Stop what, u32 mask, u64 value, u32 from) {
        Lane *lane = now;
        lane->mask = mask;
        lane->value = value;
        lane->from = from;
        leave(what);
        return lane->answer;
    }
};

/// The words of a cache's directory, whose atomics are counted.
struct Directory {
    const u64 *words = nullptr;
    u64 lines = 0;
    /// A count on a line was given back by the lane that runs.
    std::function<void(u64 line)> released = [](u64) {};
};
inline Directory &directory() {
    static Directory d;
    return d;
}

/// The compiler's atomics, counted on the directory, with the warp's collectives. `Warps`: lanes are coalesced.
template <bool Warps> struct policy : nda::host_policy {
    using base = nda::host_policy;
    static Machine &m() { return *Machine::self(); }
    template <class W> static bool counted(const W *at) {
        if constexpr (sizeof(W) != 8) return false;
        const u64 *word = reinterpret_cast<const u64 *>(at);
        bool mine = word >= directory().words && word < directory().words + directory().lines;
        if (mine && m().now) m().now->pending += 1;
        return mine && m().now;
    }
    template <class W> static W fetch_add(W *at, W v) {
        bool mine = counted(at);
        W was = base::fetch_add(at, v);
        // Counts of one line are far below a state's step.
        if (mine && u64(0) - u64(v) <= nda::count_mask) directory().released(u64(reinterpret_cast<u64 *>(at) - directory().words));
        return was;
    }
    template <class W> static W fetch_or(W *at, W v) { counted(at); return base::fetch_or(at, v); }
    template <class W> static W fetch_and(W *at, W v) { counted(at); return base::fetch_and(at, v); }
    template <class W> static W exchange(W *at, W v) { counted(at); return base::exchange(at, v); }
    template <class W> static bool compare_exchange(W *at, W &e, W v) { counted(at); return base::compare_exchange(at, e, v); }
    static void ring(nda::shared_u32 *d, u32 v, nda::shared_u32 *a) {
        base::ring(d, v, a);
        m().rung();
    }
    static u64 now_ns() { return m().clock_ns; }
    static void pause(u32) {
        if (m().now) return m().leave(Stop::spin);
        m().clock_ns += m().turn_ns;
        m().between();
    }
    static constexpr bool has_warps = Warps;
    static u32 active() { return u32(m().collect(Stop::active, 0, 0, 0)); }
    static u32 lane() { return m().now->lane; }
    static u32 match(u32 mask, u64 key) { return u32(m().collect(Stop::match, mask, key, 0)); }
    template <class V> static V shuffle(u32 mask, V v, u32 from) { return V(m().collect(Stop::shuffle, mask, u64(v), from)); }
    static void sync(u32 mask) { m().collect(Stop::sync, mask, 0, 0); }
};

}  // namespace lanes
