/* join.c: equal keys of two sorted inputs: for each element of the left one that the right one has, a row.
 *
 * A row is int64 left, the element's number; int64 right, the number of the first equal element of the right input;
 * int64 count, how many are equal to it there. So rows name all pairs of equal elements without being as many. A NaN
 * is equal to none. Bad input: an input that is not sorted.
 */
#include "sorted.h"

PROGRAM("name": "join", "kind": "block", "tasks": "ordered", "state_bytes": 64,
        "inputs": [TWO_SORTED("left", "right")],
        "outputs": [{"name": "rows", "dtype": [["left", "int64"], ["right", "int64"], ["count", "int64"]],
                     "bound": {"per_record": 24}, "exact": false}])

typedef struct {
    int64_t left, right, count;
} row;

/* The last elements of both inputs, and the equal ones of the right input that were taken last. */
typedef struct {
    taken left, right;
    uint64_t key; /* as the bits of T lie in memory */
    int64_t first, count, unused;
} joined;

_Static_assert(sizeof(joined) == 64, "state_bytes says so");

int64_t nd_block(nd_args *args) {
    SORTED_INPUT(args, 0, a, n, a_ended);
    SORTED_INPUT(args, 1, b, m, b_ended);
    row *restrict rows = ND_OUTPUT(args, 0, row);
    joined *state = ND_STATE(args, joined);
    int64_t a_first = (int64_t)args->pace[0].first, b_first = (int64_t)args->pace[1].first;
    size_t i = 0, j = 0, used = 0;
    T key;
    __builtin_memcpy(&key, &state->key, sizeof key);
    int64_t first = state->first, count = state->count;
    if (ND_OUTPUT_COUNT(args, 0, row) < n) return OUTPUT_FULL;
    for (;;) {
        /* The right elements that are equal to the last one belong to it. */
        while (count && j < m && b[j] == key) count++, j++;
        if (j == m && !b_ended) break;
        /* Left elements up to those: rows, or none. */
        while (count && i < n && !before(key, a[i])) {
            rows[used] = (row){a_first + (int64_t)i, first, count};
            used += a[i] == key;
            i++;
        }
        if (i == n) break;
        if (j == m) { /* and the right input has ended: what is left has no equal there */
            i = n;
            break;
        }
        while (j < m && before(b[j], a[i])) j++;
        count = 0;
        if (j < m) {
            while (i < n && before(a[i], b[j])) i++;
            key = b[j], first = b_first + (int64_t)j, count = 1, j++;
        }
    }
    if (i == n && a_ended) j = m;
    if (!in_order(&state->left, a, i) || !in_order(&state->right, b, j)) return BAD_INPUT;
    __builtin_memcpy(&state->key, &key, sizeof key);
    state->first = first, state->count = count;
    ND_SET_TAKEN(args, 0, i, T);
    ND_SET_TAKEN(args, 1, j, T);
    ND_SET_USED(args, 0, used, row);
    return 0;
}
