/* top.c: the K greatest or least elements along an axis, and their places along it.
 *
 * The box is rows of INNER elements, which lie behind the axis, as in fold.c: with WHOLE the axis is of the whole box
 * (of a flat one with rows of one element), and a state has a heap for each column; without, a record has the LENGTH
 * rows of an axis. A heap's root is the worst that is kept; it is sorted at the end, the best first. Of equal elements
 * the one at the lower place is better. A NaN or NaT is better than any other element, as argmax and argmin have it.
 * Results are rows of INNER elements, the best first.
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
_Static_assert(sizeof(state) * (WHOLE ? INNER : 1) == STATE_BYTES, "metadata says so");

#if WHOLE
PROGRAM("name": "top", "kind": "block", "state_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE, "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "values", "dtype": DTYPE, "phase": "end", "bound": {"fixed": VALUES_BYTES},
                     "exact": false},
                    {"name": "places", "dtype": "int64", "phase": "end", "bound": {"fixed": PLACES_BYTES},
                     "exact": false}])
#else
PROGRAM("name": "top", "kind": "block", "scratchpad_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE, "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "values", "dtype": DTYPE, "record_bytes": VALUES_BYTES},
                    {"name": "places", "dtype": "int64", "record_bytes": PLACES_BYTES}])
#endif

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

/* Sort a heap into a column of the results, the best first; the heap is empty then. */
static inline void drain(state *st, element *values, int64_t *places) {
    for (size_t left = st->n; left; left--) { /* the worst of those left goes last */
        values[(left - 1) * INNER] = st->heap[0].x;
        places[(left - 1) * INNER] = st->heap[0].place;
        sink(st->heap, left - 1, st->heap[left - 1]);
    }
    st->n = 0;
}

#if WHOLE
int64_t nd_block(nd_args *args) {
    const element *x = ND_INPUT(args, 0, element);
    size_t rows = args->inputs[0].bytes / RECORD_BYTES;
    state *st = ND_STATE(args, state);
    for (size_t i = 0; i < rows; i++, x += INNER) {
        for (size_t j = 0; j < INNER; j++) see(st + j, (kept){.x = x[j], .place = (int64_t)(args->first_record + i)});
    }
    return 0;
}

int64_t nd_merge(nd_args *args) {
    state *st = ND_STATE(args, state);
    const state *other = ND_OTHER_STATE(args, state);
    for (size_t j = 0; j < INNER; j++) {
        for (size_t i = 0; i < other[j].n; i++) see(st + j, other[j].heap[i]);
    }
    return 0;
}

int64_t nd_end(nd_args *args) {
    state *st = ND_STATE(args, state);
    element *values = ND_OUTPUT(args, 0, element);
    int64_t *places = ND_OUTPUT(args, 1, int64_t);
    size_t n = st->n * INNER;
    for (size_t j = 0; j < INNER; j++) drain(st + j, values + j, places + j);
    ND_SET_USED(args, 0, n, element);
    ND_SET_USED(args, 1, n, int64_t);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const element *x = ND_INPUT(args, 0, element);
    element *values = ND_OUTPUT(args, 0, element);
    int64_t *places = ND_OUTPUT(args, 1, int64_t);
    state *st = ND_SCRATCHPAD(args, state);
    size_t records = args->inputs[0].bytes / RECORD_BYTES;
    for (size_t r = 0; r < records; r++, x += (size_t)LENGTH * INNER, values += K * INNER, places += K * INNER) {
        for (size_t j = 0; j < INNER; j++) {
            st->n = 0;
            for (size_t i = 0; i < LENGTH; i++) see(st, (kept){.x = x[i * INNER + j], .place = (int64_t)i});
            drain(st, values + j, places + j);
        }
    }
    ND_SET_USED(args, 0, records * K * INNER, element);
    ND_SET_USED(args, 1, records * K * INNER, int64_t);
    return 0;
}
#endif
