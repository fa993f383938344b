/* top.c: the K greatest or least elements, and their places in the box.
 *
 * A state is a heap whose root is the worst that is kept; it is sorted at the end, the best first. Of equal elements
 * the one at the lower place is better. A NaN or NaT is better than any other element, as argmax and argmin have it.
 */
#include "element.h"

typedef struct {
    element x;
    int64_t place __attribute__((aligned(8)));
} kept;

typedef struct {
    uint64_t n;
    kept heap[K];
} state;
_Static_assert(sizeof(state) == STATE_BYTES, "metadata says so");

PROGRAM("name": "top", "kind": "block", "state_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE}],
        "outputs": [{"name": "values", "dtype": DTYPE, "phase": "end", "bound": {"fixed": VALUES_BYTES},
                     "exact": false},
                    {"name": "places", "dtype": "int64", "phase": "end", "bound": {"fixed": PLACES_BYTES},
                     "exact": false}])

static inline int is_nan(element x) { return IS_TIME ? (uint64_t)x == (uint64_t)INT64_MIN : x != x; }

static inline int is_better(const kept *a, const kept *b) {
    if (is_nan(a->x) | is_nan(b->x)) {
        if (is_nan(a->x) != is_nan(b->x)) return is_nan(a->x);
    } else if (a->x != b->x) {
        return LARGEST ? a->x > b->x : a->x < b->x;
    }
    return a->place < b->place;
}

/* Let an entry sink from the root to where no entry below it is worse. */
static inline void sink(kept *heap, size_t n, kept one) {
    size_t at = 0;
    for (size_t below = 1; below < n; below = 2 * at + 1) {
        if (below + 1 < n && is_better(heap + below, heap + below + 1)) below++;
        if (!is_better(&one, heap + below)) break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = one;
}

static inline void see(state *st, kept one) {
    if (st->n == K) {
        if (is_better(&one, st->heap)) sink(st->heap, K, one);
        return;
    }
    size_t at = st->n++;
    for (; at && is_better(st->heap + (at - 1) / 2, &one); at = (at - 1) / 2) st->heap[at] = st->heap[(at - 1) / 2];
    st->heap[at] = one;
}

int64_t nd_block(nd_args *args) {
    const element *x = ND_INPUT(args, 0, element);
    size_t n = ND_INPUT_COUNT(args, 0, element);
    state *st = ND_STATE(args, state);
    for (size_t i = 0; i < n; i++) see(st, (kept){.x = x[i], .place = (int64_t)(args->first_record + i)});
    return 0;
}

int64_t nd_merge(nd_args *args) {
    const state *other = ND_OTHER_STATE(args, state);
    for (size_t i = 0; i < other->n; i++) see(ND_STATE(args, state), other->heap[i]);
    return 0;
}

int64_t nd_end(nd_args *args) {
    state *st = ND_STATE(args, state);
    element *values = ND_OUTPUT(args, 0, element);
    int64_t *places = ND_OUTPUT(args, 1, int64_t);
    size_t n = st->n;
    for (size_t left = n; left; left--) { /* the worst of those left goes last */
        values[left - 1] = st->heap[0].x;
        places[left - 1] = st->heap[0].place;
        sink(st->heap, left - 1, st->heap[left - 1]);
    }
    ND_SET_USED(args, 0, n, element);
    ND_SET_USED(args, 1, n, int64_t);
    return 0;
}
