// The policy for GPUs: inline PTX, for nvcc and NVRTC, from sm_75 on.
//
// Words of queues and directory lie in GPU memory and are used at device scope. Rings and doorbells lie in pinned host
// memory and are used at system scope by loads and stores alone: no read-modify-write crosses the bus. While it waits,
// a poller loads relaxed, since every acquire empties the first-level cache.
#pragma once

#include "layout.hpp"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
namespace nda {

/// Threads of a kernel.
struct cuda_policy {
#define NDA_PTX_WORD(TYPE, PTX, REG)                                                                                   \
    static __device__ __forceinline__ TYPE load(const TYPE *at) {                                                      \
        TYPE v;                                                                                                        \
        asm volatile("ld.relaxed.gpu." PTX " %0, [%1];" : "=" REG(v) : "l"(at) : "memory");                            \
        return v;                                                                                                      \
    }                                                                                                                  \
    static __device__ __forceinline__ TYPE load_acquire(const TYPE *at) {                                              \
        TYPE v;                                                                                                        \
        asm volatile("ld.acquire.gpu." PTX " %0, [%1];" : "=" REG(v) : "l"(at) : "memory");                            \
        return v;                                                                                                      \
    }                                                                                                                  \
    static __device__ __forceinline__ void store(TYPE *at, TYPE v) {                                                   \
        asm volatile("st.relaxed.gpu." PTX " [%0], %1;" ::"l"(at), REG(v) : "memory");                                 \
    }                                                                                                                  \
    static __device__ __forceinline__ void store_release(TYPE *at, TYPE v) {                                           \
        asm volatile("st.release.gpu." PTX " [%0], %1;" ::"l"(at), REG(v) : "memory");                                 \
    }                                                                                                                  \
    static __device__ __forceinline__ TYPE fetch_add(TYPE *at, TYPE v) {                                               \
        TYPE old;                                                                                                      \
        asm volatile("atom.add.acq_rel.gpu." PTX " %0, [%1], %2;" : "=" REG(old) : "l"(at), REG(v) : "memory");        \
        return old;                                                                                                    \
    }

    NDA_PTX_WORD(u32, "u32", "r")
    NDA_PTX_WORD(u64, "u64", "l")
#undef NDA_PTX_WORD
#define NDA_PTX_BITS(TYPE, PTX, REG)                                                                                   \
    static __device__ __forceinline__ TYPE fetch_or(TYPE *at, TYPE v) {                                                \
        TYPE old;                                                                                                      \
        asm volatile("atom.or.acq_rel.gpu." PTX " %0, [%1], %2;" : "=" REG(old) : "l"(at), REG(v) : "memory");         \
        return old;                                                                                                    \
    }                                                                                                                  \
    static __device__ __forceinline__ TYPE fetch_and(TYPE *at, TYPE v) {                                               \
        TYPE old;                                                                                                      \
        asm volatile("atom.and.acq_rel.gpu." PTX " %0, [%1], %2;" : "=" REG(old) : "l"(at), REG(v) : "memory");        \
        return old;                                                                                                    \
    }                                                                                                                  \
    static __device__ __forceinline__ TYPE exchange(TYPE *at, TYPE v) {                                                \
        TYPE old;                                                                                                      \
        asm volatile("atom.exch.acq_rel.gpu." PTX " %0, [%1], %2;" : "=" REG(old) : "l"(at), REG(v) : "memory");       \
        return old;                                                                                                    \
    }                                                                                                                  \
    static __device__ __forceinline__ bool compare_exchange(TYPE *at, TYPE &expected, TYPE v) {                        \
        TYPE old;                                                                                                      \
        asm volatile("atom.cas.acq_rel.gpu." PTX " %0, [%1], %2, %3;"                                                  \
                     : "=" REG(old)                                                                                    \
                     : "l"(at), REG(expected), REG(v)                                                                  \
                     : "memory");                                                                                      \
        bool same = old == expected;                                                                                   \
        expected = old;                                                                                                \
        return same;                                                                                                   \
    }

    NDA_PTX_BITS(u32, "b32", "r")
    NDA_PTX_BITS(u64, "b64", "l")
#undef NDA_PTX_BITS

    static __device__ __forceinline__ u32 sys_load(const shared_u32 *at) {
        u32 v;
        asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(&at->raw) : "memory");
        return v;
    }
    static __device__ __forceinline__ u64 sys_load(const shared_u64 *at) {
        u64 v;
        asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(&at->raw) : "memory");
        return v;
    }
    static __device__ __forceinline__ u32 sys_load_acquire(const shared_u32 *at) {
        u32 v;
        asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(&at->raw) : "memory");
        return v;
    }
    static __device__ __forceinline__ u64 sys_load_acquire(const shared_u64 *at) {
        u64 v;
        asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(&at->raw) : "memory");
        return v;
    }
    static __device__ __forceinline__ void sys_store_release(shared_u32 *at, u32 v) {
        asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(&at->raw), "r"(v) : "memory");
    }
    /// A GPU wakes nobody: a server with a GPU's claim does not sleep longer than its time-out.
    static __device__ __forceinline__ void ring(shared_u32 *doorbell, u32 v, shared_u32 *) {
        sys_store_release(doorbell, v);
    }

    static __device__ __forceinline__ u64 now_ns() {
        u64 t;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
        return t;
    }
    static __device__ __forceinline__ void pause(u32 round) { __nanosleep(round < 32 ? 20 : 200); }

    static constexpr bool has_warps = true;
    static __device__ __forceinline__ u32 active() { return __activemask(); }
    static __device__ __forceinline__ u32 lane() {
        u32 v;
        asm volatile("mov.u32 %0, %laneid;" : "=r"(v));
        return v;
    }
    static __device__ __forceinline__ u32 match(u32 mask, u64 key) { return __match_any_sync(mask, key); }
    template <class V> static __device__ __forceinline__ V shuffle(u32 mask, V value, u32 from) {
        return __shfl_sync(mask, value, int(from));
    }
    static __device__ __forceinline__ void sync(u32 mask) { __syncwarp(mask); }
};

}  // namespace nda
#endif
