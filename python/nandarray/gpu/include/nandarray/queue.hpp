// A client's side of a queue pair: any number of threads submit, any of them polls, none depends on another one to run.
//
// A submitter takes a ticket; its slot is the ticket modulo the depth, its turn comes when the slot's completion of the
// lap before was consumed, so the depth bounds what is in flight and a command's identifier is its slot. It writes the
// entry, marks it, and stays until the doorbell was rung beyond it: whoever holds the tail's lock sweeps the unbroken
// run of marks and rings once for all. Completions are consumed by whoever holds the other lock, for everybody: each is
// delivered by the cookie that was submitted with it. Every spin polls, has a deadline, and looks at the abort word.
// Words that lie across the bus are used rarely: a waiter looks at them every 64 rounds, a run of completions is acquired
// once, and the head of completions is written every quarter of the ring.
//
// Held here: a mark is published (release) after its entry is written; a doorbell is rung (system release) after the
// marks it covers were acquired; a slot's turn is released after its cookie was read; the phase tags of a run of
// completions are read before the rest of them. Tickets are counted modulo 2^32, laps modulo those of so many tickets.
// Not here: what commands mean (`cache.hpp`), and how the memory was mapped (`region.hpp`).
#pragma once

#include "policy.hpp"
#include "policy_cuda.hpp"

namespace nda {

/// The words of one slot, in the client's own memory.
struct slot_words {
    /// Completions of this slot that were consumed: the lap whose ticket may use it.
    u32 turn;
    /// The lap behind the one whose entry was written.
    u32 mark;
    u64 cookie;
};

/// The words of a queue pair in the client's own memory, each hot one on its own line. All zero at the start.
struct queue_words {
    alignas(64) u32 tickets;
    /// Entries behind which the doorbell was rung. Written by the holder of `tail_lock`.
    alignas(64) u32 rung;
    u32 tail_lock;
    alignas(64) u32 cq_lock;
    /// Completions consumed. Written by the holder of `cq_lock`, as is the next word.
    u32 consumed;
    /// Completions that the server knows to be consumed: its word across the bus.
    u32 head;
    /// First status that ended this pair for its client.
    u32 failed;
};

/// Where a completion goes. An even cookie is the address of a `completion_word`, an odd one the cache's business.
struct completion_word {
    /// 0, then the status with `done_bit`.
    u32 value;
    u32 pad;
    u64 result;
};
constexpr u32 done_bit = 0x80000000u;

/// Receives the completions of odd cookies where there is no cache.
struct no_sink {
    template <class Q> NDA_FN void complete(Q &, u64, u32) {}
};

/// A queue pair. Copied by value; the words it points to are shared by its copies.
template <class P> struct queue_pair {
    region_header *region;
    queue_header *doors;
    /// The word that this queue's server sleeps on.
    shared_u32 *asleep;
    submission_entry *sq;
    completion_entry *cq;
    queue_words *words;
    slot_words *slots;
    u32 depth;
    /// log2 of the depth.
    u32 shift;
    u64 deadline_ns;

    /// How long a wait has taken, and when it last looked at the clock.
    struct limit {
        u64 waited, looked;
        u32 round;
    };

    NDA_FN limit begin() const { return {0, P::now_ns(), 0}; }

    /// One round of a spin, which has just polled this number of completions: `ok`, or why the spin must end.
    NDA_FN status wait(limit &l, u32 polled) const {
        if (u32 failed = P::load(&words->failed)) return status(failed);
        l.round += 1;
        if ((l.round & 63) == 0) {
            if (P::sys_load(&region->abort) != 0 || P::sys_load(&doors->ended) != 0) return fail(aborted);
            // A thread that was stopped itself (pre-empted, debugged) has not waited: of one gap an eighth of the
            // deadline counts at most.
            u64 now = P::now_ns(), gap = now - l.looked, most = deadline_ns / 8 + 1;
            l.waited += gap < most ? gap : most;
            l.looked = now;
            if (l.waited >= deadline_ns) return timed_out;
        }
        if (polled == 0) P::pause(l.round);
        return ok;
    }

    /// The lap of a ticket, and the lap behind a lap.
    NDA_FN u32 lap_of(u32 ticket) const { return ticket >> shift; }
    NDA_FN u32 lap_after(u32 lap) const { return (lap + 1) & (~0u >> shift); }

    /// Ends this pair for all of its client's threads.
    NDA_FN status fail(status why) const {
        u32 none = 0;
        P::compare_exchange(&words->failed, none, u32(why));
        return status(P::load(&words->failed));
    }

    /// Submits one command; its completion goes to `cookie`. Returns when the doorbell was rung for it. A status means
    /// that the server will never see it; a pair that ends later is found by the wait for the completion.
    template <class S> NDA_FN status submit(submission_entry entry, u64 cookie, S &sink) {
        u32 ticket = P::fetch_add(&words->tickets, 1u);
        if (status s = place(ticket, entry, cookie, sink)) return s;
        publish(ticket, sink);
        return ok;
    }

    /// Submits commands that lie one after the other with one ticket for all; at most `depth`.
    template <class S> NDA_FN status submit_many(submission_entry *entries, const u64 *cookies, u32 n, S &sink) {
        if (n == 0) return ok;
        u32 first = P::fetch_add(&words->tickets, n);
        for (u32 i = 0; i < n; ++i)
            if (status s = place(first + i, entries[i], cookies[i], sink)) return s;
        publish(first + n - 1, sink);
        return ok;
    }

    /// Waits for the slot's turn, writes the entry, marks it.
    template <class S> NDA_FN status place(u32 ticket, submission_entry &entry, u64 cookie, S &sink) {
        u32 at = ticket & (depth - 1), lap = lap_of(ticket);
        slot_words *slot = &slots[at];
        if (P::load_acquire(&slot->turn) != lap) {
            limit l = begin();
            while (P::load_acquire(&slot->turn) != lap) {
                sweep();
                // A ticket that is given up would stop all behind it: the pair ends.
                if (status s = wait(l, poll(sink))) return fail(s);
            }
        }
        entry.cid = u16(at);
        sq[at] = entry;
        P::store(&slot->cookie, cookie);
        P::store_release(&slot->mark, lap_after(lap));
        return ok;
    }

    /// Stays until the doorbell was rung beyond a ticket.
    template <class S> NDA_FN void publish(u32 ticket, S &sink) {
        sweep();
        if (int(P::load_acquire(&words->rung) - ticket) > 0) return;
        limit l = begin();
        for (;;) {
            sweep();
            if (int(P::load_acquire(&words->rung) - ticket) > 0) return;
            if (status s = wait(l, poll(sink))) {
                fail(s);
                return;
            }
        }
    }

    /// Rings the doorbell for the unbroken run of marks, unless another thread is doing so.
    NDA_FN void sweep() {
        if (P::load(&words->tail_lock) != 0 || P::exchange(&words->tail_lock, 1u) != 0) return;
        u32 from = P::load(&words->rung), to = from;
        // A run longer than the ring is none: turns keep tickets within a lap of what was consumed.
        while (to - from < depth && P::load_acquire(&slots[to & (depth - 1)].mark) == lap_after(lap_of(to))) to += 1;
        if (to != from) {
            P::ring(&doors->sq_tail, to, asleep);
            P::store_release(&words->rung, to);
        }
        P::store_release(&words->tail_lock, 0u);
    }

    /// Consumes completions, unless another thread is doing so; their number.
    template <class S> NDA_FN u32 poll(S &sink) {
        if (P::load(&words->cq_lock) != 0 || P::exchange(&words->cq_lock, 1u) != 0) return 0;
        u32 from = P::load(&words->consumed), at = from;
        for (bool more = true; more && at - from < depth;) {
            u64 halves[run_max];
            u32 run = 0;
            NDA_ROLLED
            while (run < run_max && arrived(at + run, halves[run])) run += 1;
            if (run == 0) break;
            // The server writes completions in order: the last one's acquire is that of all.
            P::sys_load_acquire(&cq[(at + run - 1) & (depth - 1)].status);
            more = run == run_max;
            NDA_ROLLED
            for (u32 i = 0; i < run; ++i, ++at)
                if (!deliver(halves[i], &cq[at & (depth - 1)], sink)) {
                    more = false;
                    break;
                }
        }
        if (at != from) P::store(&words->consumed, at);
        if (at - P::load(&words->head) >= (depth + 3) / 4) {
            P::sys_store_release(&doors->cq_head, at);
            P::store(&words->head, at);
        }
        P::store_release(&words->cq_lock, 0u);
        return at - from;
    }

    /// Completions that are acquired together: a line of 128 bytes, as a GPU reads across the bus.
    static constexpr u32 run_max = 8;
    /// Whether a completion is there; its half with identifier, phase and status, not acquired.
    NDA_FN bool arrived(u32 at, u64 &half) const {
        half = P::sys_load(&cq[at & (depth - 1)].status);
        u32 phase = (lap_of(at) & 1) ^ 1;
        return ((half >> 48) & 1) == phase;
    }

    /// Delivers one completion and frees its slot; false if the server named no command in flight.
    template <class S> NDA_FN bool deliver(u64 half, const completion_entry *entry, S &sink) {
        u32 cid = u32(half >> 32) & 0xffff, code = u32(half >> 49);
        slot_words *slot = &slots[cid & (depth - 1)];
        u32 turn = P::load(&slot->turn);
        if (cid >= depth || P::load_acquire(&slot->mark) != lap_after(turn)) {
            fail(broken);
            return false;
        }
        u64 cookie = P::load(&slot->cookie);
        P::store_release(&slot->turn, lap_after(turn));
        if (cookie & 1) {
            sink.complete(*this, cookie, code);
        } else if (cookie != 0) {
            completion_word *word = reinterpret_cast<completion_word *>(cookie);
            P::store(&word->result, P::sys_load(&entry->result));
            P::store_release(&word->value, done_bit | code);
        }
        return true;
    }

    /// Waits for a command whose cookie is this word.
    template <class S> NDA_FN status finish(completion_word *word, S &sink) {
        limit l = begin();
        for (;;) {
            u32 value = P::load_acquire(&word->value);
            if (value & done_bit) return status(value & ~done_bit);
            if (status s = wait(l, poll(sink))) return s;
        }
    }
};

/// An entry that moves `nlb` logical blocks from or to an offset of the region.
NDA_FN submission_entry block_command(u8 op, u32 nsid, u64 slba, u32 nlb, u64 offset) {
    submission_entry e = {};
    e.opcode = op;
    e.nsid = nsid;
    e.prp1 = offset;
    e.cdw10[0] = u32(slba);
    e.cdw10[1] = u32(slba >> 32);
    e.cdw10[2] = nlb - 1;
    return e;
}

/// An entry that makes everything durable that was written before.
NDA_FN submission_entry flush_command(u32 nsid) {
    submission_entry e = {};
    e.opcode = op_flush;
    e.nsid = nsid;
    return e;
}

}  // namespace nda
