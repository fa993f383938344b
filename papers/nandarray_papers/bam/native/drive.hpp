// A drive for tests and models, in the client's own process: a region in memory, and a server that is stepped.
//
// What a namespace holds is a function of the block, or given bytes, until it is written. Commands end in the order of their modelled
// times; faults are a status for some blocks, commands that never end, death. Not here: the real server
// (`crates/nandarray-queues`).
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "nandarray/nandarray.hpp"

namespace drive {

using nda::u32;
using nda::u64;
using nda::u8;

/// The 64-bit word at a place of a namespace that was never written.
inline u64 pattern(u32 nsid, u64 word) { return (word + 1) * 0x9e3779b97f4a7c15ull ^ (u64(nsid) << 56); }

struct Drive {
    std::vector<u8> memory;
    u8 *base;
    u64 bytes;
    nda::region_header *head;
    struct Ring {
        nda::queue_header *doors;
        nda::submission_entry *sq;
        nda::completion_entry *cq;
        u32 fetched = 0, posted = 0, claim = 0;
    };
    std::vector<Ring> rings;
    struct Ended {
        u64 at, order;
        u32 ring, cid, status;
        bool operator<(const Ended &o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    std::priority_queue<Ended> under_way;
    std::deque<Ended> unposted;
    std::unordered_map<u64, std::array<u64, 64>> written;
    u64 order = 0, reads = 0, writes = 0, flushes = 0, in_flight_max = 0;
    /// 0, or the status with which this command ends.
    std::function<u32(const nda::submission_entry &)> fault = [](const nda::submission_entry &) { return 0u; };
    /// Commands for which this is true never end.
    std::function<bool(const nda::submission_entry &)> lose = [](const nda::submission_entry &) { return false; };
    /// When a command that was fetched at this time ends.
    std::function<u64(const nda::submission_entry &, u64)> when = [](const nda::submission_entry &, u64 now) { return now; };
    std::function<void(const nda::submission_entry &)> seen = [](const nda::submission_entry &) {};

    struct Namespace {
        const char *name;
        u64 bytes;
        bool writable;
        /// Its bytes; the pattern if there are none.
        const u8 *image = nullptr;
        /// Type of its elements, whose digits are their size in bytes.
        const char *dtype = "<u8";
    };
    std::vector<Namespace> spaces;

    Drive(u32 queues, u32 depth, u64 data_stride, std::vector<Namespace> spaces_) : spaces(std::move(spaces_)) {
        u64 spaces_at = 4096, queues_at = (spaces_at + spaces.size() * 512 + 4095) / 4096 * 4096;
        u64 stride = (512 + 80ull * depth + 4095) / 4096 * 4096;
        u64 data_at = queues_at + queues * stride;
        bytes = data_at + queues * data_stride;
        memory.resize(bytes + 4096);
        base = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096) % 4096;
        head = reinterpret_cast<nda::region_header *>(base);
        head->magic = nda::region_magic;
        head->version = nda::region_version;
        head->header_bytes = 4096;
        head->region_bytes = bytes;
        head->queues = queues;
        head->threads = 1;
        head->depth = depth;
        head->namespaces = u32(spaces.size());
        head->namespace_bytes = 512;
        head->namespaces_offset = spaces_at;
        head->queues_offset = queues_at;
        head->queue_stride = stride;
        head->data_offset = data_at;
        head->data_stride = data_stride;
        for (u32 i = 0; i < spaces.size(); ++i) {
            auto *e = reinterpret_cast<nda::namespace_entry *>(base + spaces_at + 512 * i);
            e->nsid = i + 1;
            e->item_bytes = u32(std::atoi(spaces[i].dtype + 2));
            e->bytes = spaces[i].bytes;
            std::strncpy(e->dtype, spaces[i].dtype, sizeof e->dtype - 1);
            e->writable = spaces[i].writable;
            std::strncpy(e->name, spaces[i].name, sizeof e->name - 1);
        }
        for (u32 i = 0; i < queues; ++i) {
            u8 *at = base + queues_at + i * stride;
            auto *sq = reinterpret_cast<nda::submission_entry *>(at + 512);
            rings.push_back({reinterpret_cast<nda::queue_header *>(at), sq, reinterpret_cast<nda::completion_entry *>(sq + depth)});
        }
    }

    u64 original(u32 nsid, u64 word) const {
        const Namespace &of = spaces[nsid - 1];
        if (!of.image) return pattern(nsid, word);
        u64 value = 0, left = of.bytes > word * 8 ? of.bytes - word * 8 : 0;
        std::memcpy(&value, of.image + word * 8, size_t(left < 8 ? left : 8));
        return value;
    }

    void move(const nda::submission_entry &e) {
        u64 slba = e.cdw10[0] | u64(e.cdw10[1]) << 32;
        u32 nlb = (e.cdw10[2] & 0xffff) + 1;
        for (u32 b = 0; b < nlb; ++b) {
            u64 *at = reinterpret_cast<u64 *>(base + e.prp1 + 512ull * b);
            u64 key = u64(e.nsid) << 56 | (slba + b);
            if (e.opcode == nda::op_read) {
                auto found = written.find(key);
                for (u32 w = 0; w < 64; ++w) {
                    u64 value = found != written.end() ? found->second[w] : original(e.nsid, (slba + b) * 64 + w);
                    __atomic_store_n(&at[w], value, __ATOMIC_RELAXED);
                }
            } else {
                auto &to = written[key];
                for (u32 w = 0; w < 64; ++w) to[w] = __atomic_load_n(&at[w], __ATOMIC_RELAXED);
            }
        }
    }

    /// One round: fetches what was submitted, ends what is due. True if anything happened.
    bool step(u64 now) {
        bool any = false;
        for (u32 i = 0; i < rings.size(); ++i) any |= fetch(i, now);
        in_flight_max = std::max<u64>(in_flight_max, under_way.size());
        while (!under_way.empty() && under_way.top().at <= now) {
            unposted.push_back(under_way.top());
            under_way.pop();
        }
        for (size_t n = unposted.size(); n > 0; --n) {
            Ended e = unposted.front();
            unposted.pop_front();
            if (post(e)) any = true;
            else unposted.push_back(e);
        }
        return any;
    }
    u64 next_end() const { return under_way.empty() ? ~0ull : under_way.top().at; }

    bool fetch(u32 i, u64 now) {
        Ring &r = rings[i];
        u32 claim = __atomic_load_n(&r.doors->claim.raw, __ATOMIC_ACQUIRE);
        if (claim != r.claim) {
            r.claim = claim;
            r.fetched = r.posted = 0;
            std::memset(static_cast<void *>(r.cq), 0, 16ull * head->depth);
            __atomic_store_n(&r.doors->ready.raw, claim, __ATOMIC_RELEASE);
        }
        if (r.claim % 2 == 0) return false;
        u32 tail = __atomic_load_n(&r.doors->sq_tail.raw, __ATOMIC_ACQUIRE);
        if (tail - r.fetched > head->depth) __builtin_trap();
        bool any = r.fetched != tail;
        for (; r.fetched != tail; ++r.fetched) {
            nda::submission_entry e = r.sq[r.fetched & (head->depth - 1)];
            seen(e);
            if (lose(e)) continue;
            u32 status = fault(e);
            if (status == 0 && e.opcode != nda::op_flush) move(e);
            (e.opcode == nda::op_read ? reads : e.opcode == nda::op_write ? writes : flushes) += 1;
            under_way.push({when(e, now), order++, i, e.cid, status});
        }
        return any;
    }

    bool post(const Ended &e) {
        Ring &r = rings[e.ring];
        if (r.posted - __atomic_load_n(&r.doors->cq_head.raw, __ATOMIC_ACQUIRE) >= head->depth) return false;
        u64 phase = ((r.posted / head->depth) & 1) ^ 1;
        auto *to = &r.cq[r.posted & (head->depth - 1)];
        __atomic_store_n(&to->result.raw, 0, __ATOMIC_RELAXED);
        u64 half = u64(r.fetched & 0xffff) | u64(e.cid) << 32 | phase << 48 | u64(e.status) << 49;
        __atomic_store_n(&to->status.raw, half, __ATOMIC_RELEASE);
        r.posted += 1;
        return true;
    }
};

}  // namespace drive
