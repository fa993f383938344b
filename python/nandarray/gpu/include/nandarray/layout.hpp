// The region of shared memory between a server of queues and its clients, byte for byte.
//
// The one description for C++; `crates/nandarray-queues/src/layout.rs` is the same for Rust, a test compares the two,
// and `docs/reference/queues.md` says it in words. No header of the standard library: kernels include this file.
// Words that both sides use have a type of their own (`shared_u32`), which only `sys_*` operations of a policy accept.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define NDA_FN __host__ __device__ __forceinline__
#define NDA_COLD __host__ __device__ __noinline__
// A loop that stays one: its body is large, and unrolled it would take a GPU's registers.
#define NDA_ROLLED _Pragma("unroll 1")
#else
#define NDA_FN inline
#define NDA_COLD inline
#define NDA_ROLLED
#endif

#if defined(__CUDACC_RTC__)
#define NDA_COPY memcpy
#else
#define NDA_COPY __builtin_memcpy
#endif

namespace nda {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of the region's words");

/// "NDAQUEUE" in memory order.
constexpr u64 region_magic = 0x455545555141444eull;
constexpr u32 region_version = 2;
/// Bytes of a logical block of every namespace of an array.
constexpr u32 lba_bytes = 512;

/// A 32-bit word that both sides use, at system scope.
struct shared_u32 {
    u32 raw;
};
/// A 64-bit word that both sides use, at system scope.
struct shared_u64 {
    u64 raw;
};

/// The first page of the region. The server writes it once, but for the words of its own lines.
struct alignas(4096) region_header {
    u64 magic;
    u32 version;
    u32 header_bytes;
    u64 region_bytes;
    u32 queues;
    u32 depth;
    u32 namespaces;
    u32 namespace_bytes;
    u64 namespaces_offset;
    u64 queues_offset;
    u64 queue_stride;
    u64 data_offset;
    /// Data of queue i begins at `data_offset + i * data_stride`.
    u64 data_stride;
    /// Threads of the server: thread t serves the queues whose number has remainder t, and sleeps on queue t's word.
    u32 threads;
    u32 reserved0;
    /// Text that describes the arrays, for clients that want more than the table has.
    u64 catalog_offset;
    u64 catalog_bytes;
    u8 reserved1[24];
    /// 0 while the server serves; it is set before the server leaves.
    alignas(64) shared_u32 abort;
    /// Counts rounds of the server; for people who look, nothing waits for it.
    alignas(64) shared_u64 heartbeat;
};
static_assert(sizeof(region_header) == 4096, "the header is a page");
static_assert(__builtin_offsetof(region_header, data_stride) == 72 && __builtin_offsetof(region_header, threads) == 80 &&
                  __builtin_offsetof(region_header, abort) == 128 && __builtin_offsetof(region_header, heartbeat) == 192,
              "the words of the header");

/// A namespace: an array of the store as bytes in C order, in blocks of `lba_bytes`; the last one may be partial.
struct namespace_entry {
    u32 nsid;
    u32 item_bytes;
    u64 bytes;
    u32 ndim;
    u32 writable;
    u64 shape[16];
    char dtype[64];
    char name[296];
};
static_assert(sizeof(namespace_entry) == 512 && __builtin_offsetof(namespace_entry, name) == 216, "a namespace's entry");

/// A submission entry of NVMe. `prp1` is the offset of the data in the region.
struct submission_entry {
    u8 opcode;
    u8 flags;
    u16 cid;
    u32 nsid;
    u32 cdw2[2];
    u64 mptr;
    u64 prp1;
    u64 prp2;
    u32 cdw10[6];
};
static_assert(sizeof(submission_entry) == 64, "an entry of NVMe");

/// A completion entry of NVMe, as two halves of 8 bytes: the one with the phase tag is written last.
struct completion_entry {
    shared_u64 result;
    shared_u64 status;
};
static_assert(sizeof(completion_entry) == 16, "an entry of NVMe");

/// What precedes the rings of a queue pair. Each word has a line of its own.
struct queue_header {
    /// Entries submitted since the claim, counted modulo 2^32; the ring's place is the remainder by the depth.
    alignas(64) shared_u32 sq_tail;
    /// Completions consumed since the claim, counted in the same way.
    alignas(64) shared_u32 cq_head;
    /// In the first queues, one for each thread of the server: 1 while it sleeps on this word (a futex); whoever rings
    /// one of its queues then wakes it.
    alignas(64) shared_u32 asleep;
    /// A client sets it to another odd number to begin, to an even one to end.
    alignas(64) shared_u32 claim;
    /// The server sets it to `claim` when it has reset the pair.
    alignas(64) shared_u32 ready;
    /// Status with which the server ended this pair; 0 while it serves it.
    alignas(64) shared_u32 ended;
    u8 reserved[128];
};
static_assert(sizeof(queue_header) == 512 && __builtin_offsetof(queue_header, cq_head) == 64 &&
                  __builtin_offsetof(queue_header, asleep) == 128 && __builtin_offsetof(queue_header, claim) == 192 &&
                  __builtin_offsetof(queue_header, ready) == 256 && __builtin_offsetof(queue_header, ended) == 320,
              "a queue's header");

enum opcode : u8 { op_flush = 0, op_write = 1, op_read = 2 };

/// How a command ended: the 15 bits of NVMe (SC in 7:0, SCT in 10:8, DNR in bit 14), or one of the client's own, which
/// are vendor specific (SCT 7h, SC C0h and up).
enum status : u32 {
    ok = 0,
    /// The deadline passed. The command may still be executed.
    timed_out = 0x7c0,
    /// The server is gone or ended the queue.
    aborted = 0x7c1,
    /// Every line of the set is pinned.
    no_slot = 0x7c2,
    /// No such element.
    out_of_range = 0x7c3,
    /// The other side broke the protocol.
    broken = 0x7c4,
    /// The namespace is read-only for this client.
    read_only = 0x7c5,
};

}  // namespace nda
