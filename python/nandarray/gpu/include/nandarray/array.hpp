// `nda::array<T>`: an array of the store as a kernel sees it. Copied by value; `a[i]` reads, and cannot be assigned to.
//
// A kernel that only reads is ported by changing its parameter's type. Writes call `store`. An element's status comes
// from `at`; `a[i]` gives `T{}` where there is none and keeps the first status in `first_error`. Elements whose size is
// a power of two never straddle lines; other types do not compile.
#pragma once

#include "cache.hpp"

namespace nda {

/// An element, or why there is none.
template <class T> struct result {
    T value;
    status why;
    NDA_FN explicit operator bool() const { return why == ok; }
};

template <class T, class P> struct array {
    static_assert((sizeof(T) & (sizeof(T) - 1)) == 0, "an element's size is a power of two");
    static_assert(sizeof(T) <= 65536, "an element fits a line");

    cache<P> *lines;
    /// The namespace's place in the cache's table.
    u32 ns;
    u64 length;
    /// The first status of `a[i]` that was not `ok`; shared by the copies.
    u32 *first_error;

    NDA_FN u64 size() const { return length; }
    NDA_FN u64 page_of(u64 i) const { return i * sizeof(T) >> lines->at.line_shift; }
    NDA_FN u32 offset_of(u64 i) const { return u32(i * sizeof(T)) & (lines->line_bytes() - 1); }

    /// Reads an element.
    NDA_FN const T operator[](u64 i) const {
        result<T> r = at(i);
        if (r.why) {
            u32 none = 0;
            P::compare_exchange(first_error, none, u32(r.why));
        }
        return r.value;
    }

    /// Reads an element and its status.
    NDA_FN result<T> at(u64 i) const {
        if (i >= length) return {T{}, out_of_range};
        line_handle h = lines->acquire(ns, page_of(i));
        if (h.why) return {T{}, h.why};
        result<T> r = {*reinterpret_cast<const T *>(lines->data_of(h.line) + offset_of(i)), ok};
        lines->release_together(h);
        return r;
    }

    /// Writes an element: visible at once to all threads of this cache, durable after `flush`.
    NDA_FN status store(u64 i, const T &value) const {
        if (i >= length) return out_of_range;
        if (!lines->at.namespaces[ns].writable) return read_only;
        line_handle h = lines->acquire(ns, page_of(i), access::write);
        if (h.why) return h.why;
        put(reinterpret_cast<T *>(lines->data_of(h.line) + offset_of(i)), value);
        lines->release_together(h, true);
        return ok;
    }

    /// A line that is held while this lives; consecutive elements cost a comparison each.
    struct pinned {
        const array *of;
        u32 line;
        status why;
        access mode;
        u64 begin, end;

        NDA_FN pinned(const array *of_, u64 i, access mode_) : of(of_), line(0), why(out_of_range), mode(mode_), begin(0), end(0) {
            if (i >= of->length) return;
            if (mode != access::read && !of->lines->at.namespaces[of->ns].writable) {
                why = read_only;
                return;
            }
            line_handle h = of->lines->acquire(of->ns, of->page_of(i), mode);
            line = h.line;
            why = h.why;
            if (why) return;
            u64 per_line = of->lines->line_bytes() / sizeof(T);
            begin = i / per_line * per_line;
            end = begin + per_line < of->length ? begin + per_line : of->length;
        }
        pinned(const pinned &) = delete;
        pinned &operator=(const pinned &) = delete;
        NDA_FN ~pinned() {
            if (why) return;
            of->lines->release(line, mode != access::read);
        }
        NDA_FN bool holds(u64 i) const { return i >= begin && i < end; }
        NDA_FN const T &operator[](u64 i) const {
            require(holds(i));
            return reinterpret_cast<const T *>(of->lines->data_of(line))[i - begin];
        }
        /// Writes an element of a line that was pinned for writing.
        NDA_FN void store(u64 i, const T &value) {
            require(holds(i) && mode != access::read);
            put(&reinterpret_cast<T *>(of->lines->data_of(line))[i - begin], value);
        }
    };

    /// Holds the line of an element; `end` is where the next one begins.
    NDA_FN pinned pin(u64 i, access mode = access::read) const { return pinned(this, i, mode); }

    /// Begins to fetch an element's line and goes on.
    NDA_FN status prefetch(u64 i) const {
        if (i >= length) return out_of_range;
        return lines->prefetch(ns, page_of(i));
    }

    /// Writes back all dirty lines of the cache, then makes them durable. `word` stays until this returned `ok`.
    NDA_FN status flush(completion_word *word) const { return lines->flush(lines->at.namespaces[ns].nsid, word); }

    /// Stores by the word where there is one, so that a write-back under way sees old or new words.
    NDA_FN static void put(T *at, const T &value) {
        if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
            using word = typename pick<sizeof(T)>::type;
            word bits;
            NDA_COPY(&bits, &value, sizeof(T));
            P::store(reinterpret_cast<word *>(at), bits);
        } else {
            *at = value;
        }
    }
    template <unsigned N, class X = void> struct pick { using type = u64; };
    template <class X> struct pick<4, X> { using type = u32; };
};

/// Sizes and coordinates of an N-D array in C order.
template <u32 N> struct extents {
    u64 size[N];

    /// The element's place in C order.
    template <class... I> NDA_FN u64 at(I... coordinates) const {
        static_assert(sizeof...(I) == N, "one coordinate for each dimension");
        u64 c[N] = {u64(coordinates)...};
        u64 flat = 0;
        for (u32 d = 0; d < N; ++d) flat = flat * size[d] + c[d];
        return flat;
    }
    NDA_FN u64 count() const {
        u64 n = 1;
        for (u32 d = 0; d < N; ++d) n *= size[d];
        return n;
    }
};

/// An array with its N-D shape: `a(i, j)` reads.
template <class T, u32 N, class P> struct nd_array {
    array<T, P> flat;
    extents<N> shape;

    template <class... I> NDA_FN const T operator()(I... c) const { return inside(c...) ? flat[shape.at(c...)] : flat[~0ull]; }
    template <class... I> NDA_FN result<T> at(I... c) const {
        if (!inside(c...)) return {T{}, out_of_range};
        return flat.at(shape.at(c...));
    }
    template <class... I> NDA_FN bool inside(I... c) const {
        u64 at[N] = {u64(c)...};
        for (u32 d = 0; d < N; ++d)
            if (at[d] >= shape.size[d]) return false;
        return true;
    }
};

}  // namespace nda
