/* sorted.h: what programs over sorted inputs share: the order, which is NumPy's, and the check that inputs have it.
 *
 * Inputs have paces of their own: a task sees some elements of each and takes as many as it can decide on. A NaN is
 * behind every number, and no NaN is before another. -0 and 0 are equal.
 */
#ifndef PROGRAMS_SORTED_H
#define PROGRAMS_SORTED_H

#ifndef BAD_INPUT_TEXT
#define BAD_INPUT_TEXT "an input is not sorted"
#endif
#include "common.h"

/* Whether x is before y. */
static inline int before(T x, T y) {
#if T_FLOAT
    return (x < y) | ((y != y) & (x == x));
#else
    return x < y;
#endif
}

/* The last element that was taken of an input. */
typedef struct {
    uint64_t some; /* 0 before the first */
    union {
        T value;
        uint64_t word;
    } last;
} taken;
#define TAKEN_BYTES 16

/* Notes that the first n elements x of an input are taken; returns whether they are in order, behind those before. */
static inline int in_order(taken *input, const T *x, size_t n) {
    int wrong = 0;
    if (n == 0) return 1;
    if (input->some && before(x[0], input->last.value)) return 0;
    for (size_t i = 1; i < n; i++) wrong |= before(x[i], x[i - 1]);
    input->some = 1, input->last.value = x[n - 1];
    return !wrong;
}

/* An input of a task: its elements, how many there are, and whether none come behind them. */
#define SORTED_INPUT(args, i, x, n, is_last)            \
    const T *restrict x = ND_INPUT(args, i, T);         \
    const size_t n = ND_INPUT_COUNT(args, i, T);        \
    const int is_last = (args)->pace[i].ended != 0
#define TWO_SORTED(one, other) \
    {"name": one, "dtype": DTYPE_NAME, "ahead": 1}, {"name": other, "dtype": DTYPE_NAME, "ahead": 1}

#endif
