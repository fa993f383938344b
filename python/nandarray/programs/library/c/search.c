/* search.c: places of values in a sorted array: how many of its elements are before each value.
 *
 * With right = 1 elements that are equal to the value count, too. Two forms: values are sorted as the array is, and
 * both are read once, whatever their lengths; or, with -DWHOLE=1, values are in any order, and the array is in memory.
 * Bad input: an array that is not sorted (with -DWHOLE=1 it is not looked at), or values that are not.
 */
#define BAD_INPUT_TEXT "an input is not sorted (lookup takes values in any order)"
#include "sorted.h"

#ifndef WHOLE
#define WHOLE 0
#endif

#if WHOLE
PROGRAM("name": "lookup", "kind": "block",
        "inputs": [{"name": "values", "dtype": DTYPE_NAME}, {"name": "sorted", "dtype": DTYPE_NAME, "whole": true}],
        "outputs": [{"name": "places", "dtype": "int64"}],
        "scalars": [{"name": "right", "dtype": "bool", "default": false}])
#else
PROGRAM("name": "search", "kind": "block", "tasks": "ordered", "state_bytes": 32,
        "inputs": [TWO_SORTED("sorted", "values")],
        "outputs": [{"name": "places", "dtype": "int64", "exact": false}],
        "scalars": [{"name": "right", "dtype": "bool", "default": false}])
#endif

/* Whether the place of a value is behind an element. */
static inline int behind(T element, T value, int right) {
    return right ? !before(value, element) : before(element, value);
}

#if WHOLE
int64_t nd_block(nd_args *args) {
    const T *restrict values = ND_INPUT(args, 0, T), *restrict sorted = ND_INPUT(args, 1, T);
    size_t n = ND_INPUT_COUNT(args, 0, T), m = ND_INPUT_COUNT(args, 1, T);
    int64_t *restrict places = ND_OUTPUT(args, 0, int64_t);
    int right = nd_scalar_u64(args, 0) != 0;
    if (ND_OUTPUT_COUNT(args, 0, int64_t) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) {
        const T *from = sorted;
        T value = values[i];
        size_t left = m;
        while (left > 1) { /* the place is from `from` to `from + left`; no turn branches on the data */
            size_t half = left / 2;
            from += behind(from[half - 1], value, right) ? half : 0;
            left -= half;
        }
        places[i] = (int64_t)(from - sorted) + (left && behind(*from, value, right));
    }
    ND_SET_USED(args, 0, n, int64_t);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    SORTED_INPUT(args, 0, sorted, n, sorted_ended);
    SORTED_INPUT(args, 1, values, m, values_ended);
    int64_t *restrict places = ND_OUTPUT(args, 0, int64_t);
    int64_t first = (int64_t)args->pace[0].first;
    int right = nd_scalar_u64(args, 0) != 0;
    size_t i = 0, j = 0;
    if (ND_OUTPUT_COUNT(args, 0, int64_t) < m) return OUTPUT_FULL;
    while (i < n && j < m) {
        size_t turns = n - i < m - j ? n - i : m - j;
        UNROLL(4) for (; turns; turns--) {
            int on = behind(sorted[i], values[j], right);
            places[j] = first + (int64_t)i; /* written again as long as its value is the next one */
            i += (size_t)on, j += (size_t)!on;
        }
    }
    if (i == n && sorted_ended)
        for (; j < m; j++) places[j] = first + (int64_t)n;
    else if (j == m && values_ended)
        i = n;
    taken *state = ND_STATE(args, taken);
    if (!in_order(state, sorted, i) || !in_order(state + 1, values, j)) return BAD_INPUT;
    ND_SET_TAKEN(args, 0, i, T);
    ND_SET_TAKEN(args, 1, j, T);
    ND_SET_USED(args, 0, j, int64_t);
    return 0;
}
#endif
