// The host's side of `python -m bench gpu`: Python claims queue pairs for a card's kernels by it, and runs loops that
// must be fast. Built as a shared library; every address goes through as a number.
#include <cstring>
#include <exception>
#include <memory>

#include "kernels.hpp"
#include "nandarray/nandarray.hpp"

using namespace nda;

namespace {

struct Door {
    mapping map;
    device_client client;
    Door(const char *path, u32 queues, u32 line_bytes, u32 lines, u64 deadline_ns)
        : map(path), client(map, queues, line_bytes, lines, {}, deadline_ns) {}
};

Door &door(u64 handle) { return *reinterpret_cast<Door *>(handle); }

}  // namespace

extern "C" {

/// Maps a region and claims queue pairs; 0 and a reason if that fails.
u64 door_open(const char *path, u32 queues, u32 line_bytes, u32 lines, u64 deadline_ns, char *why, u64 why_bytes) {
    try {
        return reinterpret_cast<u64>(new Door(path, queues, line_bytes, lines, deadline_ns));
    } catch (const std::exception &error) {
        std::strncpy(why, error.what(), why_bytes - 1);
        return 0;
    }
}
void door_close(u64 handle) { delete &door(handle); }

/// Address and bytes of the mapped region.
u64 door_base(u64 handle) { return reinterpret_cast<u64>(door(handle).map.base()); }
u64 door_bytes(u64 handle) { return door(handle).map.bytes(); }
/// Bytes of the block of device memory.
u64 door_block_bytes(u64 handle) { return door(handle).client.bytes(); }
void door_image(u64 handle, u64 region, u64 block, u8 *to) {
    std::vector<u8> image = door(handle).client.image(region, block);
    std::memcpy(to, image.data(), image.size());
}
/// Writes an array as a kernel's parameter; false if there is none of this name.
int door_array(u64 handle, const char *name, u32 item_bytes, void *to) {
    static_assert(sizeof(array<u64, host_policy>) == 32 && sizeof(array<float, host_policy>) == 32, "a parameter");
    try {
        if (item_bytes == 4) {
            auto a = door(handle).client.open<float, host_policy>(name);
            std::memcpy(to, static_cast<void *>(&a), sizeof a);
        } else {
            auto a = door(handle).client.open<u64, host_policy>(name);
            std::memcpy(to, static_cast<void *>(&a), sizeof a);
        }
        return 1;
    } catch (const std::exception &) {
        return 0;
    }
}
u64 door_word(u64 handle) { return reinterpret_cast<u64>(door(handle).client.word()); }
u64 door_counts_offset(u64 handle) { return door(handle).client.counts_offset(); }
/// Ends the waits of kernels: their reads end with a status.
void door_give_up(u64 handle) { host_policy::sys_store_release(&door(handle).map.header()->abort, 1); }
/// Wakes the server's threads; false if the server is gone, which ends the kernels' waits too.
int door_tend(u64 handle) { return door(handle).client.tend(); }

/// Writes the numbers 1, 2, ... and waits for each to come back; the number of those that did before the deadline.
u32 play(shared_u32 *mine, const shared_u32 *theirs, u32 rounds, u64 deadline_ns) {
    u64 until = host_policy::now_ns() + deadline_ns;
    for (u32 round = 1; round <= rounds; ++round) {
        host_policy::sys_store_release(mine, round);
        for (u32 look = 0; host_policy::sys_load_acquire(theirs) != round; ++look)
            if ((look & 1023) == 1023 && host_policy::now_ns() > until) return round - 1;
    }
    return rounds;
}

/// Fills the words of an array from its place `first` on as kernels expect them.
void fill_words(u64 *to, u64 first, u64 n) {
    for (u64 i = 0; i < n; ++i) to[i] = bench::word_at(first + i);
}
}
