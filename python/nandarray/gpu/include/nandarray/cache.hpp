// A cache of lines over the namespaces of a region: found by the threads themselves, filled by the queue pairs.
//
// The directory is sized by the cache: sets of 16 ways, a word of 8 bytes and a status of 4 for each line, 4 bytes a set.
// A hit is one fetch-add of the count, whose returned word is checked against the tag. Misses of a set take its lock to
// choose a victim by a clock with a second chance, in at most two sweeps. Lines are loaded straight into their place in
// the region. Callers of one warp that want the same line are one caller with a count.
//
// Invariants, each asserted or tested under its number:
//   I1  A line whose count is above 0 is never given to another page.
//   I2  One loader a page: a page has at most one line (the set's lock covers search and claim).
//   I3  Data before VALID: a line becomes VALID by the completion that it was loaded by, after its acquire.
//   I4  DIRTY is cleared before the write-back is submitted, and set again by each later store.
//   I5  A load that failed reaches every waiter, and leaves the line EMPTY.
//   I6  Two pages never share a line: the word is replaced as a whole, by compare-exchange from count 0.
//   I7  A flush writes back every dirty line, waits for all of them, then sends NVMe's flush.
// Not here: elements (`array.hpp`).
#pragma once

#include "queue.hpp"

namespace nda {

/// What a line's place is doing.
enum line_state : u32 {
    /// No page.
    line_empty = 0,
    /// Its page is on its way from the server.
    line_loading = 1,
    /// Its bytes are the page's.
    line_valid = 2,
    /// As valid; its bytes are on their way to the server.
    line_writing = 3,
    /// Its load failed; the last waiter empties it.
    line_failed = 4,
};

/// The fields of a line's word: count 0..19, state 20..22, referenced 23, dirty 24, error of a write-back 25, tag 26..63.
constexpr u64 count_mask = 0xfffff;
constexpr u32 state_shift = 20;
constexpr u64 state_mask = 7ull << state_shift;
constexpr u64 referenced_bit = 1ull << 23;
constexpr u64 dirty_bit = 1ull << 24;
constexpr u64 unwritten_bit = 1ull << 25;
constexpr u32 tag_shift = 26;
constexpr u32 tag_bits = 64 - tag_shift;
constexpr u32 ways = 16;
/// Counts from which on a line takes no more of them: later callers wait. The count's other half is for lanes that saw a
/// lower count and add theirs at the same moment, each once: more than any card runs.
constexpr u32 crowd = 1u << 19;

NDA_FN u64 tag_of(u64 word) { return word >> tag_shift; }
NDA_FN u32 state_of(u64 word) { return u32((word & state_mask) >> state_shift); }
NDA_FN u32 count_of(u64 word) { return u32(word & count_mask); }
NDA_FN u64 word_of(u64 tag, line_state state, u32 count) {
    return tag << tag_shift | u64(state) << state_shift | count;
}
NDA_FN bool readable(u64 word) { return state_of(word) == line_valid || state_of(word) == line_writing; }

/// A broken invariant of our own: loud, and never a hang.
NDA_COLD void require(bool holds) {
    if (!holds) {
#if defined(__CUDA_ARCH__)
        asm volatile("trap;");
#else
        __builtin_trap();
#endif
    }
}

/// What steers a cache; the defaults are the cache, the rest is for measuring its parts.
struct cache_options {
    bool second_chance = true;
    /// A dirty victim is written back while another one is taken, not waited for.
    bool overlapped = true;
};

/// What a line is held for. `replace` writes, and does not fetch the line: its holder stores every element of it.
enum class access { read, write, replace };

/// One namespace as the cache uses it.
struct cached_namespace {
    u32 nsid;
    u32 writable;
    u64 bytes;
};

/// A line in use: holds the count that its release gives back.
struct line_handle {
    u32 line;
    status why;
    /// The lanes that took it together.
    u32 same;
};

/// Counts, kept by the miss path only: a hit counts nothing.
struct cache_counts {
    u64 loads;
    u64 write_backs;
    u64 refused;
    /// First status of a write-back that failed, 0 if none.
    u64 lost;
};

/// Which parts of the region a cache takes, and its own words.
struct cache_parts {
    u64 *words;
    /// A status a line: why its load failed.
    u32 *statuses;
    /// A lock (bit 31) and a clock's hand a set.
    u32 *sets;
    cache_counts *counts;
    cached_namespace *namespaces;
    u8 *data;
    u64 data_offset;
    u32 sets_count;
    u32 line_shift;
    /// Bits of a page's number within its namespace; the rest of the tag is the namespace's place in the table.
    u32 page_bits;
};

template <class P> struct cache {
    queue_pair<P> *queues;
    u32 queue_count;
    cache_parts at;
    cache_options options;

    NDA_FN u32 line_bytes() const { return 1u << at.line_shift; }
    NDA_FN u32 lines() const { return at.sets_count * ways; }
    NDA_FN u8 *data_of(u32 line) const { return at.data + (u64(line) << at.line_shift); }
    NDA_FN queue_pair<P> &queue_of(u64 tag) const { return queues[u32((tag * 0x9e3779b97f4a7c15ull) >> 40) % queue_count]; }
    NDA_FN u32 set_of(u64 tag) const {
        return u32(((tag * 0x9e3779b97f4a7c15ull) >> 32) * u64(at.sets_count) >> 32);
    }
    NDA_FN u32 home_of(u64 tag) const { return u32((tag * 0x9e3779b97f4a7c15ull) >> 60); }
    NDA_FN u64 tag(u32 ns, u64 page) const { return u64(ns) << at.page_bits | page; }

    /// A hit: the line with `n` counts taken, and the word that was there; `lines()` if there is none, one more if the
    /// page's line has all the counts it takes.
    NDA_FN u32 find(u64 wanted, u32 n, u64 &seen) {
        u32 base = set_of(wanted) * ways, home = home_of(wanted);
        for (u32 i = 0; i < ways; ++i) {
            u32 line = base + ((home + i) & (ways - 1));
            u64 word = P::load(&at.words[line]);
            if (tag_of(word) != wanted || state_of(word) == line_empty) continue;
            if (count_of(word) >= crowd) return lines() + 1;
            seen = P::fetch_add(&at.words[line], u64(n));
            require(count_of(seen) + n <= count_mask);
            if (tag_of(seen) == wanted && state_of(seen) != line_empty) return line;
            drop(line, n);
        }
        return lines();
    }

    /// Gives counts back; the last one of a failed load empties the line (I5).
    NDA_FN void drop(u32 line, u32 n) {
        u64 before = P::fetch_add(&at.words[line], u64(0) - n);
        require(count_of(before) >= n);
        u64 now = before - n;
        if (state_of(now) == line_failed && count_of(now) == 0)
            P::compare_exchange(&at.words[line], now, word_of(0, line_empty, 0));
    }

    /// Takes a line for all callers of the warp that are here for the same, one count each. A page that is not here is not
    /// fetched for `replace`: its line has any bytes until the callers have stored all of them.
    NDA_FN line_handle acquire(u32 ns, u64 page, access mode = access::read) {
        u64 wanted = tag(ns, page);
        bool load = mode != access::replace;
        if (!P::has_warps) return acquire_for(wanted, 1, load);
        u32 mask = P::active();
        u32 same = P::match(mask, wanted << 2 | u64(mode));
        u32 leader = lowest(same);
        line_handle h = {0, ok, 1};
        if (P::lane() == leader) h = acquire_for(wanted, population(same), load);
        u32 line = P::shuffle(same, h.line, leader);
        u32 why = P::shuffle(same, u32(h.why), leader);
        return {line, status(why), same};
    }

    /// Gives a line back for the lanes of the warp that are here to give the same one back, whoever took it together.
    NDA_FN void release(u32 line, bool changed = false) {
        if (!P::has_warps) return give_back(line, 1, changed);
        // No tag has the highest bit of a key: lanes that acquire at the same moment are others.
        u32 same = P::match(P::active(), 1ull << 63 | u64(line) << 1 | u64(changed));
        release_together({line, ok, same}, changed);
    }

    /// Gives a line back at once for the lanes that took it together. They wait for no other lane between the two: a
    /// lane that holds a line must not wait for one that looks for a place.
    NDA_FN void release_together(const line_handle &h, bool changed = false) {
        if (!P::has_warps) return give_back(h.line, 1, changed);
        // The lanes' loads and stores come before the count, and before the mark, of the one that drops it for all.
        P::sync(h.same);
        if (P::lane() == lowest(h.same)) give_back(h.line, population(h.same), changed);
    }

    NDA_FN void give_back(u32 line, u32 n, bool changed) {
        if (changed) mark_dirty(line);
        drop(line, n);
    }

    NDA_FN line_handle acquire_for(u64 wanted, u32 n, bool load) {
        u64 seen = 0;
        u32 line = find(wanted, n, seen);
        if (line < lines() && readable(seen)) {
            if (!(seen & referenced_bit)) P::fetch_or(&at.words[line], referenced_bit);
            return {line, ok, 1};
        }
        return acquire_slow(wanted, n, line, load);
    }

    /// A miss, or a line on its way.
    NDA_COLD line_handle acquire_slow(u64 wanted, u32 n, u32 line, bool load) {
        queue_pair<P> &q = queue_of(wanted);
        typename queue_pair<P>::limit l = q.begin();
        for (;;) {
            if (line >= lines()) {
                claimed c = claim(wanted, n, q, l);
                if (c.why) return {0, c.why, 1};
                line = c.line;
                if (c.fresh && !load)
                    P::fetch_add(&at.words[line], (u64(line_valid) - line_loading) << state_shift);
                else if (c.fresh)
                    if (status s = load_line(line, wanted, q)) fail_load(line, s);
            }
            status s = settle(line, q, l);
            if (s == ok) {
                P::fetch_or(&at.words[line], referenced_bit);
                return {line, ok, 1};
            }
            drop(line, n);
            return {0, s, 1};
        }
    }

    /// Waits until a line whose count we hold is readable or failed.
    NDA_FN status settle(u32 line, queue_pair<P> &q, typename queue_pair<P>::limit &l) {
        for (;;) {
            u64 word = P::load_acquire(&at.words[line]);
            if (readable(word)) return ok;
            if (state_of(word) == line_failed) return status(P::load_acquire(&at.statuses[line]));
            require(state_of(word) == line_loading);
            if (status s = q.wait(l, q.poll(*this))) return s;
        }
    }

    NDA_FN u32 poll_all() {
        u32 found = 0;
        for (u32 i = 0; i < queue_count; ++i) found += queues[i].poll(*this);
        return found;
    }

    struct claimed {
        u32 line;
        bool fresh;
        status why;
    };

    /// Under the set's lock: finds the page, or replaces a victim's word with it (I1, I2, I6).
    NDA_FN claimed claim(u64 wanted, u32 n, queue_pair<P> &q, typename queue_pair<P>::limit &l) {
        u32 set = set_of(wanted), patience = patience_rounds;
        for (;;) {
            while (P::fetch_or(&at.sets[set], lock_bit) & lock_bit)
                if (status s = q.wait(l, q.poll(*this))) return {0, false, s};
            u64 seen = 0;
            u32 line = find(wanted, n, seen);
            // A load that failed is not this caller's, and a crowd has no place for it: it tries again when they left.
            bool gone = line < lines() && state_of(seen) == line_failed, later = gone || line > lines();
            victim v = {lines(), 0, false};
            if (line == lines()) v = choose(set, wanted, n);
            P::fetch_and(&at.sets[set], ~lock_bit);
            if (gone) drop(line, n);
            if (line < lines() && !gone) return {line, false, ok};
            if (v.write_back) {
                write_line(v.line, v.tag);
                if (!options.overlapped)
                    if (status s = written(v.line, queue_of(v.tag), l)) return {0, false, s};
                continue;
            }
            if (v.line != lines()) return {v.line, true, ok};
            if (!later && (patience == 0 || !moving(set))) {
                P::fetch_add(&at.counts->refused, u64(1));
                return {0, false, no_slot};
            }
            patience -= later ? 0 : 1;
            // The set's other lines are on their way by any of the queues.
            if (status s = q.wait(l, poll_all())) return {0, false, s};
        }
    }

    struct victim {
        u32 line;
        u64 tag;
        bool write_back;
    };
    static constexpr u32 lock_bit = 0x80000000u;
    /// Rounds for which a full set is searched again: others hold lines for the length of a load, but pins may be for
    /// ever.
    static constexpr u32 patience_rounds = 4096;

    /// A clock over the set: at most two sweeps. Takes a clean line, or begins to write a dirty one back.
    NDA_FN victim choose(u32 set, u64 wanted, u32 n) {
        u32 base = set * ways, hand = P::load(&at.sets[set]) & (ways - 1), home = home_of(wanted);
        u64 fresh = word_of(wanted, line_loading, n);
        u64 home_word = P::load(&at.words[base + home]);
        if (state_of(home_word) == line_empty && count_of(home_word) == 0 &&
            P::compare_exchange(&at.words[base + home], home_word, fresh))
            return {base + home, 0, false};
        victim found = {lines(), 0, false};
        for (u32 step = 0; step < 2 * ways && found.line == lines(); ++step) {
            u32 line = base + ((hand + step) & (ways - 1));
            u64 word = P::load(&at.words[line]);
            if (count_of(word) != 0) continue;
            if (state_of(word) == line_empty) {
                if (P::compare_exchange(&at.words[line], word, fresh)) found = {line, 0, false};
            } else if (state_of(word) == line_valid) {
                if ((word & referenced_bit) && options.second_chance && step < ways) {
                    P::fetch_and(&at.words[line], ~referenced_bit);
                } else if (word & unwritten_bit) {
                    // Its bytes are nowhere else: a flush tries again and reports.
                    continue;
                } else if (word & dirty_bit) {
                    // I4: DIRTY goes before the write-back is submitted.
                    u64 writing = word + ((u64(line_writing) - line_valid) << state_shift) - dirty_bit;
                    if (P::compare_exchange(&at.words[line], word, writing)) found = {line, tag_of(word), true};
                } else if (P::compare_exchange(&at.words[line], word, fresh)) {
                    found = {line, 0, false};
                }
            }
            if (found.line != lines()) hand = (hand + step + 1) & (ways - 1);
        }
        P::store(&at.sets[set], lock_bit | hand);
        return found;
    }

    /// Whether a place of the set may come free: not if every line is one that could not be written back.
    NDA_FN bool moving(u32 set) {
        for (u32 i = 0; i < ways; ++i)
            if (!(P::load(&at.words[set * ways + i]) & unwritten_bit)) return true;
        return false;
    }

    NDA_FN submission_entry move_line(u8 op, u32 line, u64 tag) {
        u32 ns = u32(tag >> at.page_bits);
        u64 first = (tag & ((1ull << at.page_bits) - 1)) << at.line_shift;
        const cached_namespace &of = at.namespaces[ns];
        u64 bytes = of.bytes - first < line_bytes() ? of.bytes - first : line_bytes();
        u32 nlb = u32((bytes + lba_bytes - 1) / lba_bytes);
        return block_command(op, of.nsid, first / lba_bytes, nlb, at.data_offset + (u64(line) << at.line_shift));
    }

    /// Cookies of the cache: bit 0 set, bit 1 for a write-back, the line above.
    NDA_FN static u64 cookie_of(u32 line, bool write) { return u64(line) << 2 | (write ? 2 : 0) | 1; }

    NDA_FN status load_line(u32 line, u64 tag, queue_pair<P> &q) {
        P::fetch_add(&at.counts->loads, u64(1));
        return q.submit(move_line(op_read, line, tag), cookie_of(line, false), *this);
    }

    /// Submits the write-back of a line in state WRITING.
    NDA_FN status write_line(u32 line, u64 tag) {
        P::fetch_add(&at.counts->write_backs, u64(1));
        status s = queue_of(tag).submit(move_line(op_write, line, tag), cookie_of(line, true), *this);
        if (s) end_write(line, s);
        return s;
    }

    /// The end of a write-back; bytes that were not written stay, dirty.
    NDA_FN void end_write(u32 line, u32 code) {
        u64 *word = &at.words[line];
        require(state_of(P::load(word)) == line_writing);
        if (code != 0) {
            u64 none = 0;
            P::compare_exchange(&at.counts->lost, none, u64(code));
            P::fetch_or(word, dirty_bit | unwritten_bit);
        }
        P::fetch_add(word, u64(0) - ((u64(line_writing) - line_valid) << state_shift));
    }

    /// Waits for a write-back.
    NDA_FN status written(u32 line, queue_pair<P> &q, typename queue_pair<P>::limit &l) {
        while (state_of(P::load_acquire(&at.words[line])) == line_writing)
            if (status s = q.wait(l, q.poll(*this))) return s;
        return ok;
    }

    /// A completion: called by the poller, whoever it is.
    NDA_FN void complete(queue_pair<P> &, u64 cookie, u32 code) {
        u32 line = u32(cookie >> 2);
        require(line < lines());
        u64 *word = &at.words[line];
        if (cookie & 2) {
            end_write(line, code);
        } else if (code != 0) {
            fail_load(line, status(code));
        } else {
            require(state_of(P::load(word)) == line_loading);
            P::fetch_add(word, (u64(line_valid) - line_loading) << state_shift);
        }
    }

    /// I5: the status first, then the state; nobody there empties the line at once.
    NDA_FN void fail_load(u32 line, status why) {
        P::store_release(&at.statuses[line], u32(why));
        u64 *word = &at.words[line];
        require(state_of(P::load(word)) == line_loading);
        u64 now = P::fetch_add(word, (u64(line_failed) - line_loading) << state_shift) +
                  ((u64(line_failed) - line_loading) << state_shift);
        if (count_of(now) == 0) P::compare_exchange(word, now, word_of(0, line_empty, 0));
    }

    /// Marks a held line as changed, after its bytes were stored.
    NDA_FN void mark_dirty(u32 line) {
        u64 before = P::fetch_or(&at.words[line], dirty_bit);
        require(count_of(before) > 0 && readable(before));
    }

    /// Begins to load a page and waits for nothing but a place in the queue; does nothing where no place is free.
    NDA_FN status prefetch(u32 ns, u64 page) {
        u64 wanted = tag(ns, page), seen = 0;
        u32 line = find(wanted, 1, seen);
        if (line != lines()) {
            if (line < lines()) drop(line, 1);
            return ok;
        }
        u32 set = set_of(wanted);
        if (P::fetch_or(&at.sets[set], lock_bit) & lock_bit) return ok;
        line = find(wanted, 1, seen);
        victim v = {lines(), 0, false};
        if (line == lines()) v = choose(set, wanted, 1);
        P::fetch_and(&at.sets[set], ~lock_bit);
        if (line < lines()) drop(line, 1);
        if (v.line == lines()) return ok;
        if (v.write_back) return write_line(v.line, v.tag);
        status s = load_line(v.line, wanted, queue_of(wanted));
        if (s) fail_load(v.line, s);
        drop(v.line, 1);
        return s;
    }

    /// I7. Stores of other threads that end before this begins are durable when it returns `ok`. The deadline is that of
    /// each line, and of the flush behind them: a large cache takes as long as its lines do.
    NDA_COLD status flush(u32 nsid, completion_word *word) {
        queue_pair<P> &q = queues[0];
        for (u32 line = 0; line < lines(); ++line) {
            for (;;) {
                u64 seen = P::load_acquire(&at.words[line]);
                if (state_of(seen) != line_valid || !(seen & dirty_bit)) break;
                u64 writing = seen + ((u64(line_writing) - line_valid) << state_shift) - dirty_bit;
                writing &= ~unwritten_bit;
                if (!P::compare_exchange(&at.words[line], seen, writing)) continue;
                if (status s = write_line(line, tag_of(seen))) return s;
                break;
            }
        }
        for (u32 line = 0; line < lines(); ++line) {
            // Each queue is polled by whoever waits for a line of it.
            u64 seen = P::load_acquire(&at.words[line]);
            if (state_of(seen) != line_writing) continue;
            queue_pair<P> &of = queue_of(tag_of(seen));
            typename queue_pair<P>::limit l = of.begin();
            if (status s = written(line, of, l)) return s;
        }
        u64 lost = P::exchange(&at.counts->lost, u64(0));
        if (lost) return status(lost);
        P::store(&word->value, 0u);
        if (status s = q.submit(flush_command(nsid), u64(word), *this)) return s;
        return q.finish(word, *this);
    }

    NDA_FN static u32 lowest(u32 mask) {
#if defined(__CUDA_ARCH__)
        return u32(__ffs(int(mask)) - 1);
#else
        return u32(__builtin_ctz(mask));
#endif
    }
    NDA_FN static u32 population(u32 mask) {
#if defined(__CUDA_ARCH__)
        return u32(__popc(mask));
#else
        return u32(__builtin_popcount(mask));
#endif
    }
};

}  // namespace nda
