/* columns.c: elements of some ranks among those along axes, exactly: the passes of ranks.c where they fit a task.
 *
 * A record is a box that begins with the first of the axes, LENGTH elements along the axes for each of INNER places.
 * FOLDED and KEPT have the sizes of its dimensions and the distances of elements along them, the last one first. Each
 * place's elements are gathered, and those of the wanted ranks are put where a sort would have them (quickselect). A
 * record gives RANKS rows of INNER elements; where one is NaN or NaT, all of that place are.
 */
#include "element.h"

PROGRAM("name": "columns", "kind": "block", "scratchpad_bytes": SCRATCHPAD_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE, "record_bytes": RECORD_BYTES},
                   {"name": "ranks", "dtype": "uint64", "whole": true}],
        "outputs": [{"name": "kept", "dtype": DTYPE, "record_bytes": RESULT_BYTES}],
        "errors": {"-1": "there are other ranks than the program is for"})
_Static_assert(sizeof(T) * LENGTH * INNER == RECORD_BYTES, "metadata says so");
_Static_assert(sizeof(T) * RANKS * INNER == RESULT_BYTES, "metadata says so");

typedef struct {
    size_t size, apart;
} dimension;
static const dimension folded[] = {FOLDED}, kept[] = {KEPT};
#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static inline size_t place_of(const dimension *list, size_t n, size_t number) {
    size_t place = 0;
    for (size_t i = 0; i < n; i++) {
        place += (i + 1 < n ? number % list[i].size : number) * list[i].apart;
        number /= list[i].size;
    }
    return place;
}

/* Put the elements of ranks first to last - 1, which lie in x[low] to x[high - 1], in their places.
 * Both sides of a split are looked at by the loop, the one with fewer ranks by a call: so calls are few. */
static void select(T *x, size_t low, size_t high, const uint64_t *ranks, size_t first, size_t last) {
    uint64_t chance = 88172645463325252u;
    while (first < last && high - low > 1) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        T pivot = x[low + chance % (high - low)];
        size_t less = low, more = high, at = low; /* below the pivot before less, above it from more on */
        while (at < more) {
            T one = x[at];
            if (one < pivot) {
                x[at++] = x[less];
                x[less++] = one;
            } else if (pivot < one) {
                x[at] = x[--more];
                x[more] = one;
            } else {
                at++;
            }
        }
        size_t from = first, to = last;
        while (from < to && ranks[from] < less) from++;
        while (to > from && ranks[to - 1] >= more) to--;
        if (from - first < last - to) {
            select(x, low, less, ranks, first, from);
            low = more;
            first = to;
        } else {
            select(x, more, high, ranks, to, last);
            high = less;
            last = from;
        }
    }
}

int64_t nd_block(nd_args *args) {
    const T *x = ND_INPUT(args, 0, T);
    const uint64_t *ranks = ND_INPUT(args, 1, uint64_t);
    T *to = ND_OUTPUT(args, 0, T), *column = ND_SCRATCHPAD(args, T);
    size_t records = args->inputs[0].bytes / RECORD_BYTES;
    if (ND_INPUT_COUNT(args, 1, uint64_t) != RANKS) return -1;
    for (size_t r = 0; r < records; r++, x += LENGTH * INNER, to += RANKS * INNER) {
        for (size_t j = 0; j < INNER; j++) {
            const T *from = x + place_of(kept, COUNT_OF(kept), j);
            size_t nan = LENGTH;
            for (size_t i = 0; i < LENGTH; i++) {
                column[i] = from[place_of(folded, COUNT_OF(folded), i)];
                if (is_nan(column[i])) nan = i;
            }
            if (nan == LENGTH) select(column, 0, LENGTH, ranks, 0, RANKS);
            for (size_t k = 0; k < RANKS; k++) to[k * INNER + j] = column[nan < LENGTH ? nan : ranks[k]];
        }
    }
    ND_SET_USED(args, 0, records * RANKS * INNER, T);
    return 0;
}
