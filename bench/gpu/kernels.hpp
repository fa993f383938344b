// The bodies of the kernels of `python -m bench gpu`, written once for every policy: `kernels.cu` has the kernels for nvcc and
// NVRTC, `tests/gpu/card.cpp` runs the same bodies on threads of a host, `tests/gpu/bodies.cpp` on the warps of the shim.
//
// No body waits without a deadline: those that wait for a host carry a `guard`, those that read an array have the
// deadline of its queue pairs. Results go to words that the host reads when the kernel has ended.
#pragma once

#include "nandarray/array.hpp"

namespace bench {

using nda::array;
using nda::shared_u32;
using nda::shared_u64;
using nda::status;
using nda::u32;
using nda::u64;
using nda::u8;

/// Which thread of the grid this is, and how many there are.
struct place {
    u64 thread, threads;
};

/// The end of a wait for the host: an abort word, or a deadline.
struct guard {
    const shared_u32 *abort;
    u64 deadline_ns;
};

/// The word at a place of the arrays that are read; the host fills them in the same way.
NDA_FN u64 word_at(u64 i) { return (i + 1) * 0x9e3779b97f4a7c15ull; }
NDA_FN u64 next_of(u64 x) { return x * 6364136223846793005ull + 1442695040888963407ull; }

/// Lanes of a warp that take lines together: all 32 of a GPU, one on a host's thread.
template <class P> struct warp {
    static constexpr u32 width = P::has_warps ? 32 : 1;
    static constexpr u32 everybody = P::has_warps ? 0xffffffffu : 1u;
    static NDA_FN u32 lane() { return P::has_warps ? P::lane() : 0; }
};

struct alignas(16) quad {
    u64 low, high;
};
NDA_FN u64 folded(u32 w) { return w; }
NDA_FN u64 folded(u64 w) { return w; }
NDA_FN u64 folded(quad w) { return w.low + w.high; }

template <class P, class W> NDA_FN void read_as(place at, const u8 *from, u64 bytes, u64 *sum) {
    const W *words = reinterpret_cast<const W *>(from);
    u64 mine = 0;
    for (u64 i = at.thread; i < bytes / sizeof(W); i += at.threads) mine += folded(words[i]);
    P::fetch_add(sum, mine);
}

/// Reads memory of the host, 4, 8 or 16 bytes a lane, neighbours by neighbours; their sum.
template <class P> NDA_FN void read_lanes(place at, const u8 *from, u64 bytes, u32 lane_bytes, u64 *sum) {
    if (lane_bytes == 4) read_as<P, u32>(at, from, bytes, sum);
    else if (lane_bytes == 8) read_as<P, u64>(at, from, bytes, sum);
    else read_as<P, quad>(at, from, bytes, sum);
}

/// Follows places from place 0. To `out`: where it ended, and nanoseconds.
template <class P> NDA_FN void chase(place at, const u64 *next, u64 steps, u64 *out) {
    if (at.thread != 0) return;
    u64 began = P::now_ns(), i = 0;
    for (u64 s = 0; s < steps; ++s) i = P::load(&next[i]);
    out[0] = i;
    out[1] = P::now_ns() - began;
}

/// Stores a word of the host and releases it to the system, then the same with words of the device at its own scope.
/// To `out`: nanoseconds of both.
template <class P> NDA_FN void release_cost(place at, u64 *data, shared_u32 *flag, u64 *near, u32 *near_flag, u32 times, u64 *out) {
    if (at.thread != 0) return;
    u64 began = P::now_ns();
    for (u32 i = 0; i < times; ++i) {
        P::store(&data[i & 7], u64(i));
        P::sys_store_release(flag, i + 1);
    }
    u64 between = P::now_ns();
    for (u32 i = 0; i < times; ++i) {
        P::store(&near[i & 7], u64(i));
        P::store_release(near_flag, i + 1);
    }
    out[0] = between - began;
    out[1] = P::now_ns() - between;
}

/// Looks at the half of a completion with the phase tag until it flips, at most `looks` times. To `out`: looks, and
/// nanoseconds.
template <class P> NDA_FN void poll_rate(place at, const shared_u64 *half, u64 looks, u64 *out) {
    if (at.thread != 0) return;
    u64 began = P::now_ns(), n = 0;
    while (n < looks && (P::sys_load(half) >> 48 & 1) == 0) n += 1;
    out[0] = n;
    out[1] = P::now_ns() - began;
}

/// Answers each number that the host writes by the same number. To `out`: numbers answered, and nanoseconds.
template <class P> NDA_FN void ping_pong(place at, const shared_u32 *theirs, shared_u32 *mine, u32 rounds, guard g, u64 *out) {
    if (at.thread != 0) return;
    u64 began = P::now_ns(), until = began + g.deadline_ns;
    u32 done = 0;
    for (bool goes = true; goes && done < rounds;) {
        if (P::sys_load_acquire(theirs) == done + 1) P::sys_store_release(mine, ++done);
        else goes = P::sys_load(g.abort) == 0 && P::now_ns() < until;
    }
    out[0] = done;
    out[1] = P::now_ns() - began;
}

/// Counts a result that is not what it should be, and keeps the first status.
template <class P> NDA_FN void judged(bool right, status why, u64 *out) {
    if (!right) P::fetch_add(&out[0], u64(1));
    u64 none = 0;
    if (why) P::compare_exchange(&out[1], none, u64(why));
}

/// Reads random elements of the first `range`, each checked. To `out`: wrong ones, the first status.
template <class P> NDA_FN void random_reads(place at, array<u64, P> a, u64 range, u64 times, u64 seed, u64 *out) {
    u64 x = next_of(seed ^ word_at(at.thread));
    for (u64 k = 0; k < times; ++k) {
        x = next_of(x);
        u64 i = (x >> 16) % range;
        nda::result<u64> r = a.at(i);
        judged<P>(r.why == nda::ok && r.value == word_at(i), r.why, out);
    }
}

/// A line that the first lane of a warp holds for all of them.
struct held {
    u32 line;
    status why;
};
template <class P, class T> NDA_FN held hold(const array<T, P> &a, u64 i, bool load) {
    nda::line_handle h = {0, nda::ok, 1};
    if (warp<P>::lane() == 0) h = a.lines->acquire_for(a.lines->tag(a.ns, a.page_of(i)), 1, load);
    u32 line = P::shuffle(warp<P>::everybody, h.line, 0);
    return {line, status(P::shuffle(warp<P>::everybody, u32(h.why), 0))};
}
template <class P, class T> NDA_FN void let_go(const array<T, P> &a, held h, bool dirty) {
    P::sync(warp<P>::everybody);
    if (warp<P>::lane() != 0 || h.why) return;
    if (dirty) a.lines->mark_dirty(h.line);
    a.lines->release(h.line);
}

/// Gathers records, a warp each: a record is a line. To `out`: records that were not read, the first status.
template <class P>
NDA_FN void gather_rows(place at, array<u64, P> a, const u64 *numbers, u64 records, u32 row_words, u64 *rows, u64 *out) {
    u32 lane = warp<P>::lane(), width = warp<P>::width;
    for (u64 r = at.thread / width; r < records; r += at.threads / width) {
        u64 first = numbers[r] * row_words;
        held h = hold(a, first, true);
        const u64 *from = reinterpret_cast<const u64 *>(a.lines->data_of(h.line) + a.offset_of(first));
        if (h.why == nda::ok)
            for (u32 w = lane; w < row_words; w += width) rows[r * row_words + w] = from[w];
        else if (lane == 0) judged<P>(false, h.why, out);
        let_go(a, h, false);
    }
}

/// c = a + b, a warp a line; c's lines are replaced, not fetched. To `out`: lines without a result, the first status.
template <class P> NDA_FN void vector_add_lines(place at, array<float, P> a, array<float, P> b, array<float, P> c, u64 *out) {
    u32 lane = warp<P>::lane(), width = warp<P>::width;
    u64 per_line = a.lines->line_bytes() / sizeof(float), lines = (c.length + per_line - 1) / per_line;
    for (u64 n = at.thread / width; n < lines; n += at.threads / width) {
        u64 first = n * per_line, count = c.length - first < per_line ? c.length - first : per_line;
        held ha = hold(a, first, true), hb = hold(b, first, true), hc = hold(c, first, false);
        bool good = !ha.why && !hb.why && !hc.why;
        const float *fa = reinterpret_cast<const float *>(a.lines->data_of(ha.line));
        const float *fb = reinterpret_cast<const float *>(b.lines->data_of(hb.line));
        float *fc = reinterpret_cast<float *>(c.lines->data_of(hc.line));
        if (good)
            for (u64 i = lane; i < count; i += width) array<float, P>::put(&fc[i], fa[i] + fb[i]);
        else if (lane == 0) judged<P>(false, ha.why ? ha.why : hb.why ? hb.why : hc.why, out);
        let_go(c, hc, good);
        let_go(b, hb, false);
        let_go(a, ha, false);
    }
}

/// The same sum on memory of the device, of a tile.
template <class P> NDA_FN void add_plain(place at, const float *a, const float *b, float *c, u64 n) {
    for (u64 i = at.thread; i < n; i += at.threads) c[i] = a[i] + b[i];
}

/// Stores a word at each of the first n places. To `out`: words not stored, the first status.
template <class P> NDA_FN void store_words(place at, array<u64, P> a, u64 n, u64 salt, u64 *out) {
    for (u64 i = at.thread; i < n; i += at.threads) {
        status why = a.store(i, word_at(i) ^ salt);
        judged<P>(why == nda::ok, why, out);
    }
}

/// Flushes, by one thread. To `out`: 1 if it failed, its status.
template <class P> NDA_FN void flush_once(place at, array<u64, P> a, nda::completion_word *word, u64 *out) {
    if (at.thread != 0) return;
    status why = a.flush(word);
    judged<P>(why == nda::ok, why, out);
}

/// Each thread reads one element and gives its status and value.
template <class P> NDA_FN void read_statuses(place at, array<u64, P> a, u64 first, u64 stride, u32 *why, u64 *values) {
    nda::result<u64> r = a.at(first + at.thread * stride);
    why[at.thread] = u32(r.why);
    values[at.thread] = r.value;
}

}  // namespace bench
