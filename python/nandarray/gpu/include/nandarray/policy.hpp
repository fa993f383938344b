// Policies: the memory operations, clock and warp collectives that the algorithms stand on. This one is for threads of
// a host, each a warp of one lane; `policy_cuda.hpp` is for GPUs, tests have one that runs warps on fibres.
//
// Device-scope operations take plain words, system-scope operations (`sys_*`) take shared words only. No algorithm
// tests which policy it has.
#pragma once

#include "layout.hpp"

#if !defined(__CUDACC_RTC__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace nda {

/// Threads of this process, with the compiler's atomics.
struct host_policy {
    template <class W> static W load(const W *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
    template <class W> static W load_acquire(const W *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    template <class W> static void store(W *at, W value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
    template <class W> static void store_release(W *at, W value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    template <class W> static W fetch_add(W *at, W value) { return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL); }
    template <class W> static W fetch_or(W *at, W value) { return __atomic_fetch_or(at, value, __ATOMIC_ACQ_REL); }
    template <class W> static W fetch_and(W *at, W value) { return __atomic_fetch_and(at, value, __ATOMIC_ACQ_REL); }
    template <class W> static W exchange(W *at, W value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
    template <class W> static bool compare_exchange(W *at, W &expected, W value) {
        return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }

    static u32 sys_load(const shared_u32 *at) { return __atomic_load_n(&at->raw, __ATOMIC_RELAXED); }
    static u64 sys_load(const shared_u64 *at) { return __atomic_load_n(&at->raw, __ATOMIC_RELAXED); }
    static u32 sys_load_acquire(const shared_u32 *at) { return __atomic_load_n(&at->raw, __ATOMIC_ACQUIRE); }
    static u64 sys_load_acquire(const shared_u64 *at) { return __atomic_load_n(&at->raw, __ATOMIC_ACQUIRE); }
    static void sys_store_release(shared_u32 *at, u32 value) { __atomic_store_n(&at->raw, value, __ATOMIC_RELEASE); }
    /// Rings a doorbell, then wakes its server if it sleeps. The exchange orders the doorbell before the look at
    /// `asleep`; the server sets `asleep` before it looks at the doorbell again, so one of the two sees the other.
    static void ring(shared_u32 *doorbell, u32 value, shared_u32 *asleep) {
        __atomic_exchange_n(&doorbell->raw, value, __ATOMIC_SEQ_CST);
        rouse(asleep);
    }
    /// Wakes a server's thread if it sleeps.
    static void rouse(shared_u32 *asleep) {
        if (__atomic_load_n(&asleep->raw, __ATOMIC_SEQ_CST) != 0) {
            __atomic_store_n(&asleep->raw, 0, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &asleep->raw, FUTEX_WAKE, 1, nullptr, nullptr, 0);
        }
    }

    static u64 now_ns() {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return u64(t.tv_sec) * 1000000000ull + u64(t.tv_nsec);
    }
    /// Waits a little in a spin; `round` counts the rounds of this spin.
    static void pause(u32 round) {
        if (round < 64) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else {
            timespec moment = {0, round < 512 ? 0 : 50000};
            nanosleep(&moment, nullptr);
        }
    }

    static constexpr bool has_warps = false;
    static u32 active() { return 1; }
    static u32 lane() { return 0; }
    static u32 match(u32, u64) { return 1; }
    template <class V> static V shuffle(u32, V value, u32) { return value; }
    static void sync(u32) {}
};

}  // namespace nda
#endif
