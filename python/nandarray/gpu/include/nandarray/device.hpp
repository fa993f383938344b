// The host's part of a client whose kernels run on a GPU: it claims queue pairs, and makes the image of one block of
// device memory that has the cache, the queue pairs and all their words.
//
// The caller registers the region's memory with the GPU (`cudaHostRegister`, mapped), allocates `bytes()` of device
// memory, and copies `image(...)` there before the first kernel. No call of CUDA is made here, so that this builds
// everywhere, and works with the runtime and the driver's interface alike. A GPU wakes no sleeping thread of a server
// and sees no lock of a file: `tend` does both, and is called again and again while kernels run.
#pragma once

#include "region.hpp"

namespace nda {

/// Claimed queue pairs and a cache for kernels of a GPU. One block of memory: cache, pairs, their words, the directory.
class device_client {
  public:
    /// As those of `client`.
    device_client(mapping &m, u32 queues, u32 line_bytes, u32 lines = 0, cache_options options = {},
                  u64 deadline_ns = 2000000000ull)
        : m_(m), queues_(m, queues, deadline_ns), options_(options), line_bytes_(line_bytes),
          sets_(sets_of(queues_.data_bytes(), line_bytes, lines)), namespaces_(namespaces_of(m)) {
        u64 depth = m.head().depth;
        lines_at_ = take(sizeof(lines_type));
        pairs_at_ = take(queues * sizeof(queue_pair<host_policy>));
        queue_words_at_ = take(queues * sizeof(queue_words));
        slots_at_ = take(queues * depth * sizeof(slot_words));
        words_at_ = take(sets_ * ways * sizeof(u64));
        statuses_at_ = take(sets_ * ways * sizeof(u32));
        sets_at_ = take(sets_ * sizeof(u32));
        counts_at_ = take(sizeof(cache_counts));
        namespaces_at_ = take(namespaces_.size() * sizeof(cached_namespace));
        first_error_at_ = take(sizeof(u32));
        completion_at_ = take(sizeof(completion_word));
    }

    /// Bytes of the block; its address on the device must be a multiple of 256.
    u64 bytes() const { return bytes_; }
    /// The first contents of the block; `region` and `block` are the addresses of the mapped region and of the
    /// block as a kernel sees them.
    std::vector<u8> image(u64 region, u64 block) {
        std::vector<u8> to(bytes_);
        u64 offset = queues_.data_offset();
        block_ = block;
        lines_type lines = {};
        lines.queues = at<queue_pair<host_policy>>(pairs_at_);
        lines.queue_count = u32(queues_.pairs.size());
        lines.options = options_;
        lines.at = {at<u64>(words_at_), at<u32>(statuses_at_), at<u32>(sets_at_), at<cache_counts>(counts_at_),
                    at<cached_namespace>(namespaces_at_), reinterpret_cast<u8 *>(region + offset), offset, u32(sets_),
                    u32(__builtin_ctz(line_bytes_)), page_bits_of(m_.head().namespaces)};
        std::memcpy(to.data() + lines_at_, &lines, sizeof lines);
        for (u32 i = 0; i < queues_.pairs.size(); ++i) {
            queue_pair<host_policy> pair = queues_.pairs[i];
            pair.region = moved(pair.region, region);
            pair.doors = moved(pair.doors, region);
            pair.asleep = moved(pair.asleep, region);
            pair.sq = moved(pair.sq, region);
            pair.cq = moved(pair.cq, region);
            pair.words = at<queue_words>(queue_words_at_ + i * sizeof(queue_words));
            pair.slots = at<slot_words>(slots_at_ + u64(i) * pair.depth * sizeof(slot_words));
            std::memcpy(to.data() + pairs_at_ + i * sizeof pair, &pair, sizeof pair);
        }
        std::memcpy(to.data() + namespaces_at_, namespaces_.data(), namespaces_.size() * sizeof(cached_namespace));
        return to;
    }

    /// An array for a kernel's parameter, once the image was made; `P` is the kernel's policy.
    template <class T, class P> array<T, P> open(const std::string &name) const {
        u32 i = place_of<T>(m_, name, line_bytes_);
        return {at<cache<P>>(lines_at_), i, namespaces_[i].bytes / sizeof(T), at<u32>(first_error_at_)};
    }
    /// The word for a flush, on the device.
    completion_word *word() const { return at<completion_word>(completion_at_); }
    /// Offsets in the block of words that a host may read.
    u64 counts_offset() const { return counts_at_; }
    u64 first_error_offset() const { return first_error_at_; }

    /// Wakes the threads of the server that sleep. False if the server is gone, which ends the kernels' waits too.
    bool tend() const {
        for (u32 t = 0; t < m_.head().threads; ++t) host_policy::rouse(&m_.doors(t)->asleep);
        if (host_policy::sys_load(&m_.header()->abort) == 0 && m_.server_lives()) return true;
        host_policy::sys_store_release(&m_.header()->abort, 1);
        return false;
    }

  private:
    // Every policy's cache, queue pair and array have the same layout: pointers and numbers.
    using lines_type = cache<host_policy>;

    /// The offset of the next part, which takes so many bytes.
    u64 take(u64 bytes) {
        u64 here = bytes_;
        bytes_ += (bytes + 255) / 256 * 256;
        return here;
    }
    template <class T> T *at(u64 offset) const { return reinterpret_cast<T *>(block_ + offset); }
    template <class T> T *moved(T *here, u64 region) const {
        return reinterpret_cast<T *>(region + u64(reinterpret_cast<u8 *>(here) - m_.base()));
    }

    mapping &m_;
    claimed_queues<host_policy> queues_;
    cache_options options_;
    u32 line_bytes_;
    u64 sets_, bytes_ = 0, block_ = 0;
    std::vector<cached_namespace> namespaces_;
    u64 lines_at_, pairs_at_, queue_words_at_, slots_at_, words_at_, statuses_at_, sets_at_, counts_at_, namespaces_at_;
    u64 first_error_at_, completion_at_;
};

}  // namespace nda
