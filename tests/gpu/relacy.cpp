// Threads of the header under relacy's model of C++'s memory: a load may return any value that the orders of the header
// allow, not only what this machine's caches do, and plain words are checked for races. Schedules come from a number.
//
//     relacy CASE ITERATIONS
//
// Every word that a policy touches is modelled. Plain to the header are entries and a line's bytes: words of the model
// stand beside them, written and read where the header and the drive do so. Not here: warps (`shim.cpp`), the header's
// orders of `host_policy`, which this policy states again, and sleeping in the system (`futex`).
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "nandarray/nandarray.hpp"

// Last: it defines `new`, `delete` and `assert` anew.
#include <relacy/relacy.hpp>

using namespace nda;

/// The modelled words of one execution, by address.
struct Memory {
    std::map<const void *, rl::atomic<u64>> atomics;
    /// Words that the header accesses relaxed because of an order it holds itself: any race of theirs is an error.
    std::map<const void *, rl::var<u64>> plain;
    /// Entries of the submission ring, by the address of their slot's cookie, which is stored right behind them.
    std::map<const void *, rl::var<u64>> entries;

    static Memory *&now() {
        static Memory *memory = nullptr;
        return memory;
    }
    rl::atomic<u64> &of(const void *at) {
        auto found = atomics.find(at);
        if (found == atomics.end()) {
            std::fprintf(stderr, "a word that is not modelled\n");
            std::abort();
        }
        return found->second;
    }
    void model(const void *at, u64 value) { atomics[at].store(value, rl::mo_relaxed, $); }
};

/// The orders of `host_policy`, on modelled words.
struct modelled {
    static Memory &m() { return *Memory::now(); }
    template <class W> static W load(const W *at) {
        auto plain = m().plain.find(at);
        return W(plain != m().plain.end() ? plain->second($).load() : m().of(at).load(rl::mo_relaxed, $));
    }
    template <class W> static W load_acquire(const W *at) { return W(m().of(at).load(rl::mo_acquire, $)); }
    template <class W> static void store(W *at, W value) {
        auto entry = m().entries.find(at);
        if (entry != m().entries.end()) entry->second($) = 1;
        auto plain = m().plain.find(at);
        if (plain != m().plain.end()) plain->second($) = u64(value);
        else m().of(at).store(u64(value), rl::mo_relaxed, $);
    }
    template <class W> static void store_release(W *at, W value) { m().of(at).store(u64(value), rl::mo_release, $); }
    template <class W> static W fetch_add(W *at, W value) { return W(m().of(at).fetch_add(value, rl::mo_acq_rel, $)); }
    template <class W> static W fetch_or(W *at, W value) { return W(m().of(at).fetch_or(value, rl::mo_acq_rel, $)); }
    template <class W> static W fetch_and(W *at, W value) { return W(m().of(at).fetch_and(value, rl::mo_acq_rel, $)); }
    template <class W> static W exchange(W *at, W value) { return W(m().of(at).exchange(value, rl::mo_acq_rel, $)); }
    template <class W> static bool compare_exchange(W *at, W &expected, W value) {
        u64 was = expected;
        bool done = m().of(at).compare_exchange_strong(was, u64(value), rl::mo_acq_rel, $);
        expected = W(was);
        return done;
    }
    static u32 sys_load(const shared_u32 *at) { return load(&at->raw); }
    static u64 sys_load(const shared_u64 *at) { return load(&at->raw); }
    static u32 sys_load_acquire(const shared_u32 *at) { return load_acquire(&at->raw); }
    static u64 sys_load_acquire(const shared_u64 *at) { return load_acquire(&at->raw); }
    static void sys_store_release(shared_u32 *at, u32 value) { store_release(&at->raw, value); }
    static void ring(shared_u32 *doorbell, u32 value, shared_u32 *asleep) {
        m().of(&doorbell->raw).exchange(value, rl::mo_seq_cst, $);
        if (m().of(&asleep->raw).load(rl::mo_seq_cst, $) != 0) m().of(&asleep->raw).store(0, rl::mo_seq_cst, $);
    }
    // Deadlines never pass: a wait without an end is an error that relacy finds.
    static u64 now_ns() { return 0; }
    static void pause(u32) { rl::yield(1, $); }
    static constexpr bool has_warps = false;
    static u32 active() { return 1; }
    static u32 lane() { return 0; }
    static u32 match(u32, u64) { return 1; }
    template <class V> static V shuffle(u32, V value, u32) { return value; }
    static void sync(u32) {}
};
using P = modelled;

/// A queue pair of two slots, its server in a thread of its own, and this number of other threads.
template <u32 CLIENTS> struct World : Memory {
    static constexpr u32 depth = 2;
    region_header region = {};
    queue_header doors = {};
    submission_entry sq[depth] = {};
    completion_entry cq[depth] = {};
    queue_words words = {};
    slot_words slots[depth] = {};
    queue_pair<P> pair;
    /// Clients that have ended; the server ends with the last.
    u32 ended = 0;

    void begin() {
        Memory::now() = this;
        pair = {&region, &doors, &doors.asleep, sq, cq, &words, slots, depth, 1, ~0ull};
        const void *all[] = {&region.abort.raw, &doors.sq_tail.raw, &doors.cq_head.raw, &doors.asleep.raw,
                             &doors.ended.raw, &words.tickets, &words.rung, &words.tail_lock,
                             &words.cq_lock, &words.consumed, &words.head, &words.failed, &ended};
        for (const void *at : all) model(at, 0);
        for (u32 i = 0; i < depth; ++i) {
            model(&slots[i].turn, 0);
            model(&slots[i].mark, 0);
            model(&cq[i].status.raw, 0);
            model(&cq[i].result.raw, 0);
            plain[&slots[i].cookie]($) = 0;
            entries[&slots[i].cookie]($) = 0;
        }
    }

    /// Serves until all clients have ended; `work` returns a command's status.
    template <class F> void serve(F work) {
        u32 fetched = 0;
        auto &tail = of(&doors.sq_tail.raw), &asleep = of(&doors.asleep.raw);
        for (;;) {
            if (u32(tail.load(rl::mo_acquire, $)) == fetched) {
                if (of(&ended).load(rl::mo_acquire, $) == CLIENTS) return;
                asleep.store(1, rl::mo_seq_cst, $);
                rl::atomic_thread_fence(rl::mo_seq_cst, $);
                // A client that has ended rings no doorbell: the server looks for it without sleeping.
                while (u32(tail.load(rl::mo_seq_cst, $)) == fetched && asleep.load(rl::mo_seq_cst, $) != 0 &&
                       of(&ended).load(rl::mo_acquire, $) != CLIENTS)
                    rl::yield(1, $);
                asleep.store(0, rl::mo_seq_cst, $);
                continue;
            }
            u32 at = fetched % depth;
            RL_ASSERT(entries.at(&slots[at].cookie)($).load() == 1);
            submission_entry e = sq[at];
            u64 code = work(e), phase = fetched / depth % 2 == 0;
            of(&cq[at].result.raw).store(e.cdw10[0], rl::mo_relaxed, $);
            of(&cq[at].status.raw).store(u64(e.cid) << 32 | phase << 48 | code << 49, rl::mo_release, $);
            fetched += 1;
        }
    }
    void leave() { of(&ended).fetch_add(1, rl::mo_acq_rel, $); }
};

/// Three threads, two slots: every command ends once, with its own result; its entry is whole when the server reads it.
struct queue_case : rl::test_suite<queue_case, 4>, World<3> {
    static constexpr u32 each = 2;
    completion_word done[3][each] = {};
    void before() {
        begin();
        for (auto &some : done)
            for (completion_word &word : some) {
                model(&word.value, 0);
                plain[&word.result]($) = 0;
            }
    }
    void thread(unsigned index) {
        if (index == 3) return serve([](const submission_entry &e) { return u32(e.cdw10[0] == 11 ? 5 : 0); });
        no_sink sink;
        for (u32 i = 0; i < each; ++i) {
            completion_word *word = &done[index][i];
            u32 number = index * 10 + i;
            RL_ASSERT(pair.submit(block_command(op_read, 1, number, 1, 0), u64(word), sink) == ok);
            RL_ASSERT(u32(pair.finish(word, sink)) == (number == 11 ? 5u : 0u));
            RL_ASSERT(plain.at(&word->result)($).load() == number);
        }
        leave();
    }
};

/// A cache of one set; all lines but `FREE` are held by others for ever.
template <u32 CLIENTS, u32 FREE> struct Cached : World<CLIENTS> {
    u64 line_words[ways] = {};
    u32 statuses[ways] = {};
    u32 set = 0;
    cache_counts counts = {};
    cached_namespace space = {1, 1, 1 << 20};
    alignas(64) u8 data[ways * lba_bytes] = {};
    cache<P> lines;
    void start() {
        this->begin();
        for (u32 i = 0; i < ways; ++i) {
            u64 held = word_of(1000 + i, line_valid, 1);
            this->model(&line_words[i], i < FREE ? 0 : held);
            this->model(&statuses[i], 0);
        }
        for (const void *at : {&counts.loads, &counts.write_backs, &counts.refused, &counts.lost}) this->model(at, 0);
        this->model(&set, 0);
        lines = {&this->pair, 1, {line_words, statuses, &set, &counts, &space, data, 0, 1, 9, page_bits_of(1)}, {}};
    }
};

/// Two threads want two pages in one line: a held line has its page's bytes only, loaded before a thread reads them.
struct cache_case : rl::test_suite<cache_case, 3>, Cached<2, 1> {
    rl::var<u64> bytes[ways];
    void before() { start(); }
    void thread(unsigned index) {
        if (index == 2)
            return serve([this](const submission_entry &e) {
                bytes[e.prp1 / lba_bytes]($) = e.cdw10[0] + 100;
                return 0u;
            });
        for (u64 page : {u64(index), u64(1), u64(0)}) {
            line_handle h = lines.acquire(0, page);
            RL_ASSERT(h.why == ok);
            RL_ASSERT(bytes[h.line]($).load() == page + 100);
            lines.release(h.line);
        }
        leave();
    }
};

/// A thread stores and flushes while another one takes its lines away: what was stored before a flush is on the drive
/// after it.
struct flush_case : rl::test_suite<flush_case, 3>, Cached<2, 1> {
    rl::var<u64> drive[4];
    completion_word word = {};
    u32 first_error = 0;
    array<u64, P> values;
    u64 *of_line(u32 line) { return reinterpret_cast<u64 *>(data + line * lba_bytes); }
    void before() {
        start();
        values = {&lines, 0, 4 * 64, &first_error};
        for (auto &page : drive) page($) = 0;
        for (u32 line = 0; line < ways; ++line) model(of_line(line), 0);
        model(&word.value, 0);
        model(&word.result, 0);
    }
    u32 work(const submission_entry &e) {
        if (e.opcode == op_flush) return 0;
        auto &at = of(of_line(u32(e.prp1 / lba_bytes)));
        if (e.opcode == op_read) at.store(drive[e.cdw10[0]]($).load(), rl::mo_relaxed, $);
        else drive[e.cdw10[0]]($) = at.load(rl::mo_relaxed, $);
        return 0;
    }
    void thread(unsigned index) {
        if (index == 2) return serve([this](const submission_entry &e) { return work(e); });
        if (index == 0) {
            for (u64 round = 1; round < 3; ++round) {
                RL_ASSERT(values.store(0, round) == ok);
                RL_ASSERT(values.flush(&word) == ok);
                RL_ASSERT(drive[0]($).load() == round);
            }
        } else {
            for (u64 page : {1, 2}) {
                line_handle h = lines.acquire(0, page);
                RL_ASSERT(h.why == ok);
                lines.release(h.line);
            }
        }
        leave();
    }
};

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "";
    rl::test_params with;
    with.iteration_count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
    with.execution_depth_limit = 50000;
    with.output_stream = with.progress_stream = &std::cerr;
    if (what == "queue") return rl::simulate<queue_case>(with) ? 0 : 1;
    if (what == "cache") return rl::simulate<cache_case>(with) ? 0 : 1;
    if (what == "flush") return rl::simulate<flush_case>(with) ? 0 : 1;
    return 2;
}
