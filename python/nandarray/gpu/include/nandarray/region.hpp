// The host's part of a client: maps the region of `nandarray serve --shm NAME`, claims queue pairs, owns their words.
//
// Everything that the region says is checked once against its mapped length, here. A claim is a lock of the open file
// on one byte a queue, so that the kernel ends it with the process. Programs on a host include this file; kernels
// include `array.hpp`.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "array.hpp"

namespace nda {

/// Byte of the file whose lock says that its server lives; the byte of queue i's claim is `claim_byte + i`.
constexpr off_t server_byte = 1ll << 60, claim_byte = server_byte + 1;

/// A region, mapped.
class mapping {
  public:
    explicit mapping(const std::string &name) {
        std::string path = name.find('/') == std::string::npos ? "/dev/shm/nandarray-" + name : name;
        fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd_ < 0) throw std::runtime_error("no region " + path);
        struct stat st;
        if (fstat(fd_, &st) != 0 || st.st_size < off_t(sizeof(region_header))) throw std::runtime_error("a short region");
        bytes_ = u64(st.st_size);
        void *at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) throw std::runtime_error("the region cannot be mapped");
        base_ = static_cast<u8 *>(at);
        head_ = *header();
        check();
    }
    /// A region in this process's memory, for tests and models.
    mapping(u8 *base, u64 bytes) : base_(base), bytes_(bytes), fd_(-1) {
        head_ = *header();
        check();
    }
    mapping(const mapping &) = delete;
    mapping &operator=(const mapping &) = delete;
    ~mapping() {
        if (fd_ < 0) return;
        munmap(base_, bytes_);
        close(fd_);
    }

    region_header *header() const { return reinterpret_cast<region_header *>(base_); }
    /// The header as it was when it was checked: the mapped one may change.
    const region_header &head() const { return head_; }
    u8 *base() const { return base_; }
    /// Bytes that are mapped.
    u64 bytes() const { return bytes_; }
    int fd() const { return fd_; }

    const namespace_entry &entry(u32 i) const {
        return *reinterpret_cast<const namespace_entry *>(base_ + head_.namespaces_offset + u64(i) * sizeof(namespace_entry));
    }
    /// The place of an array in the table, by its name.
    u32 place(const std::string &name) const {
        for (u32 i = 0; i < head_.namespaces; ++i) {
            namespace_entry e = entry(i);
            e.name[sizeof e.name - 1] = 0;
            if (name == e.name) return i;
        }
        throw std::runtime_error("no array " + name);
    }
    queue_header *doors(u32 i) const {
        return reinterpret_cast<queue_header *>(base_ + head_.queues_offset + u64(i) * head_.queue_stride);
    }
    /// Whether the server still holds its lock.
    bool server_lives() const {
        if (fd_ < 0) return true;
        struct flock l = {};
        l.l_type = F_WRLCK;
        l.l_start = server_byte;
        l.l_len = 1;
        return fcntl(fd_, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
    }

  private:
    void check() const {
        const region_header &h = head_;
        auto within = [&](u64 offset, u64 count, u64 stride) {
            return offset <= bytes_ && (count == 0 || stride <= (bytes_ - offset) / count);
        };
        bool good = h.magic == region_magic && h.version == region_version && h.region_bytes <= bytes_ && h.queues > 0 &&
                    h.queues <= 4096 && h.threads > 0 && h.threads <= h.queues && h.depth >= 2 && h.depth <= 32768 && (h.depth & (h.depth - 1)) == 0 &&
                    h.namespace_bytes == sizeof(namespace_entry) && h.queue_stride % 64 == 0 && h.queues_offset % 64 == 0 &&
                    h.queue_stride >= sizeof(queue_header) + 80ull * h.depth && h.namespaces_offset % 8 == 0 &&
                    h.data_offset % 4096 == 0 && h.data_stride % 4096 == 0 &&
                    within(h.namespaces_offset, h.namespaces, sizeof(namespace_entry)) &&
                    within(h.queues_offset, h.queues, h.queue_stride) && within(h.data_offset, h.queues, h.data_stride);
        if (!good) throw std::runtime_error("not a region of this version");
    }

    u8 *base_ = nullptr;
    u64 bytes_ = 0;
    int fd_ = -1;
    region_header head_;
};

/// Claimed queue pairs of a region, one after the other, and their words.
template <class P> class claimed_queues {
  public:
    claimed_queues(mapping &m, u32 count, u64 deadline_ns = 2000000000ull) : m_(m) {
        const region_header &h = m.head();
        for (u32 first = 0; first + count <= h.queues; ++first) {
            u32 got = 0;
            while (got < count && lock(first + got, F_WRLCK)) got += 1;
            if (got == count) {
                first_ = first;
                for (u32 i = 0; i < count; ++i) add(first + i, deadline_ns);
                return;
            }
            for (u32 i = 0; i < got; ++i) lock(first + i, F_UNLCK);
        }
        throw std::runtime_error("every queue is claimed");
    }
    ~claimed_queues() {
        for (u32 i = 0; i < pairs.size(); ++i) {
            P::sys_store_release(&pairs[i].doors->claim, claims_[i] + 1);
            lock(first_ + i, F_UNLCK);
        }
    }
    claimed_queues(const claimed_queues &) = delete;
    claimed_queues &operator=(const claimed_queues &) = delete;

    std::vector<queue_pair<P>> pairs;
    /// Offset in the region, and bytes, of the data of all claimed pairs.
    u64 data_offset() const { return m_.head().data_offset + u64(first_) * m_.head().data_stride; }
    u64 data_bytes() const { return u64(pairs.size()) * m_.head().data_stride; }

  private:
    bool lock(u32 queue, short type) const {
        if (m_.fd() < 0) return true;
        struct flock l = {};
        l.l_type = type;
        l.l_start = claim_byte + queue;
        l.l_len = 1;
        return fcntl(m_.fd(), F_OFD_SETLK, &l) == 0;
    }
    void add(u32 queue, u64 deadline_ns) {
        const region_header &h = m_.head();
        queue_header *doors = m_.doors(queue);
        u32 claim = (P::sys_load(&doors->claim) | 1) + 2;
        P::sys_store_release(&doors->sq_tail, 0);
        P::sys_store_release(&doors->cq_head, 0);
        shared_u32 *asleep = &m_.doors(queue % h.threads)->asleep;
        P::ring(&doors->claim, claim, asleep);
        u64 until = P::now_ns() + deadline_ns;
        for (u32 round = 0; P::sys_load_acquire(&doors->ready) != claim; ++round) {
            if (P::now_ns() > until || !m_.server_lives()) throw std::runtime_error("the server does not answer");
            P::pause(round);
        }
        owned_.emplace_back(new words_of(h.depth));
        u32 shift = u32(__builtin_ctz(h.depth));
        auto *sq = reinterpret_cast<submission_entry *>(reinterpret_cast<u8 *>(doors) + sizeof(queue_header));
        auto *cq = reinterpret_cast<completion_entry *>(sq + h.depth);
        words_of &w = *owned_.back();
        pairs.push_back({m_.header(), doors, asleep, sq, cq, &w.queue, w.slots.data(), h.depth, shift, deadline_ns});
        claims_.push_back(claim);
    }

    struct words_of {
        queue_words queue = {};
        std::vector<slot_words> slots;
        explicit words_of(u32 depth) : slots(depth) {}
    };
    mapping &m_;
    u32 first_ = 0;
    std::vector<u32> claims_;
    std::vector<std::unique_ptr<words_of>> owned_;
};

/// Sets of a cache with lines of this size: as many as are asked for, or as the data of the claimed pairs have room for.
inline u64 sets_of(u64 data_bytes, u32 line_bytes, u32 lines) {
    if (line_bytes < lba_bytes || line_bytes > 65536 || (line_bytes & (line_bytes - 1)))
        throw std::invalid_argument("a line must be a power of two from 512 to 65536 bytes, not " + std::to_string(line_bytes));
    u64 room = data_bytes / line_bytes / ways;
    u64 sets = lines == 0 ? room : (u64(lines) + ways - 1) / ways;
    if (sets == 0 || sets > room)
        throw std::invalid_argument("the claimed pairs' data must hold from 16 to " + std::to_string(room * ways) + " lines, not " +
                                    std::to_string(lines == 0 ? 0 : sets * ways));
    return sets;
}

/// The namespaces of a region as a cache uses them.
inline std::vector<cached_namespace> namespaces_of(const mapping &m) {
    std::vector<cached_namespace> all(m.head().namespaces);
    for (u32 i = 0; i < all.size(); ++i) {
        namespace_entry e = m.entry(i);
        all[i] = {e.nsid, e.writable, e.bytes};
    }
    return all;
}

/// Bits of a page's number in the tags of a cache over that many namespaces.
inline u32 page_bits_of(u32 namespaces) {
    u32 bits = tag_bits;
    for (u64 n = 1; n < namespaces; n *= 2) bits -= 1;
    return bits;
}

/// The text by which a store names an arithmetic type of a host's byte order; empty for other types.
template <class T> std::string dtype_of() {
    if (!std::is_arithmetic<T>::value) return "";
    char kind = std::is_same<T, bool>::value ? 'b' : std::is_floating_point<T>::value ? 'f' : std::is_signed<T>::value ? 'i' : 'u';
    return std::string(sizeof(T) == 1 ? "|" : "<") + kind + std::to_string(sizeof(T));
}

/// Finds an array whose elements are of type `T`: its place in the table. Types that are no numbers go by their size.
template <class T> u32 place_of(const mapping &m, const std::string &name, u32 line_bytes) {
    u32 place = m.place(name);
    namespace_entry e = m.entry(place);
    std::string theirs(e.dtype, strnlen(e.dtype, sizeof e.dtype)), ours = dtype_of<T>();
    auto typed = [](const std::string &dtype, u64 bytes) { return dtype + " (" + std::to_string(bytes) + " bytes)"; };
    if (e.item_bytes != sizeof(T) || (!ours.empty() && ours != theirs))
        throw std::invalid_argument("elements of array " + name + " must be opened as " + typed(theirs, e.item_bytes) +
                                    ", not as " + typed(ours.empty() ? "a type" : ours, sizeof(T)));
    if (sizeof(T) > line_bytes)
        throw std::invalid_argument("a line must hold an element of " + std::to_string(sizeof(T)) + " bytes, not " +
                                    std::to_string(line_bytes) + " bytes");
    u64 pages = (e.bytes + line_bytes - 1) / line_bytes, most = 1ull << page_bits_of(m.head().namespaces);
    if (pages > most)
        throw std::invalid_argument("array " + name + " must have at most " + std::to_string(most) + " lines of " +
                                    std::to_string(line_bytes) + " bytes, not " + std::to_string(pages));
    return place;
}

/// A cache on claimed queue pairs, and the arrays on it.
template <class P> class client {
  public:
    /// `lines` are rounded to whole sets; 0 takes all data of the claimed pairs.
    client(mapping &m, u32 queues, u32 line_bytes, u32 lines = 0, cache_options options = {}, u64 deadline_ns = 2000000000ull)
        : m_(m), queues_(m, queues, deadline_ns) {
        u64 sets = sets_of(queues_.data_bytes(), line_bytes, lines);
        words_.resize(sets * ways);
        statuses_.resize(sets * ways);
        sets_.resize(sets);
        namespaces_ = namespaces_of(m);
        cache_.queues = queues_.pairs.data();
        cache_.queue_count = u32(queues_.pairs.size());
        cache_.options = options;
        cache_.at = {words_.data(), statuses_.data(), sets_.data(), &counts_, namespaces_.data(), m.base() + queues_.data_offset(),
                     queues_.data_offset(), u32(sets), u32(__builtin_ctz(line_bytes)), page_bits_of(m.head().namespaces)};
    }

    /// An array, by name, whose elements are of type `T`.
    template <class T> array<T, P> open(const std::string &name) {
        u32 i = place_of<T>(m_, name, cache_.line_bytes());
        return {&cache_, i, namespaces_[i].bytes / sizeof(T), &first_error_};
    }

    nda::cache<P> &lines() { return cache_; }
    claimed_queues<P> &queues() { return queues_; }
    const cache_counts &counts() const { return counts_; }
    u32 first_error() const { return first_error_; }
    completion_word *word() { return &word_; }
    /// Counts of all lines together: 0 when nobody holds one.
    u64 pins() const {
        u64 sum = 0;
        for (u64 word : words_) sum += count_of(word);
        return sum;
    }
    /// Bytes of directory a line.
    double metadata_bytes() const { return double(words_.size() * 12 + sets_.size() * 4) / double(words_.size()); }

  private:
    mapping &m_;
    claimed_queues<P> queues_;
    std::vector<u64> words_;
    std::vector<u32> statuses_, sets_;
    std::vector<cached_namespace> namespaces_;
    cache_counts counts_ = {};
    u32 first_error_ = 0;
    completion_word word_ = {};
    nda::cache<P> cache_;
};

}  // namespace nda
