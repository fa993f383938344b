/* moments.c: the mean of the elements along an axis, and the sum of the squares of their differences from it.
 *
 * The box is rows of INNER elements, which lie behind the axis, as in fold.c: with WHOLE the axis is of the whole box,
 * and a state has a row; without, a record has the LENGTH rows of an axis. Rows are added by Welford's recurrence,
 * states are joined by Chan's, so that no difference of large squares is taken; and elements less the first one of
 * their column, so that the mean of large numbers that hardly differ is not rounded. A result is a row of first
 * elements, one of means less these, and one of sums; of no rows all are 0. Parts of complex numbers are columns.
 */
#include "element.h"

#define RECORD (sizeof(T) * (LENGTH) * (INNER))
typedef struct {
    uint64_t rows;
    double first[INNER], mean[INNER], squares[INNER];
} moments;

#if WHOLE
PROGRAM("name": "moments", "kind": "block", "state_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": "uint8", "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "result", "dtype": "float64", "record_bytes": RESULT_BYTES, "phase": "end"}])
_Static_assert(sizeof(moments) == STATE_BYTES, "metadata says so");
#else
PROGRAM("name": "moments", "kind": "block", "scratchpad_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": "uint8", "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "result", "dtype": "float64", "record_bytes": RESULT_BYTES}])
_Static_assert(sizeof(moments) == STATE_BYTES, "metadata says so");
#endif
_Static_assert(RECORD == RECORD_BYTES && RESULT_BYTES == 24 * INNER, "metadata says so");

static inline void add(moments *restrict m, const T *restrict x, size_t rows) {
    for (size_t i = 0; i < rows; i++, x += INNER) {
        for (size_t j = 0; !m->rows && j < INNER; j++) m->first[j] = (double)x[j];
        double count = (double)++m->rows;
        for (size_t j = 0; j < INNER; j++) {
            double one = (double)x[j] - m->first[j], apart = one - m->mean[j];
            m->mean[j] += apart / count;
            m->squares[j] += apart * (one - m->mean[j]);
        }
    }
}

static inline void give(const moments *restrict m, double *restrict to) {
    __builtin_memcpy(to, m->first, sizeof m->first);
    __builtin_memcpy(to + INNER, m->mean, sizeof m->mean);
    __builtin_memcpy(to + 2 * INNER, m->squares, sizeof m->squares);
}

#if WHOLE
int64_t nd_block(nd_args *args) {
    add(ND_STATE(args, moments), ND_INPUT(args, 0, T), args->inputs[0].bytes / RECORD_BYTES);
    return 0;
}

int64_t nd_merge(nd_args *args) {
    moments *m = ND_STATE(args, moments);
    const moments *other = ND_OTHER_STATE(args, moments);
    double mine = (double)m->rows, theirs = (double)other->rows, all = mine + theirs;
    if (!other->rows) return 0;
    for (size_t j = 0; !m->rows && j < INNER; j++) m->first[j] = other->first[j];
    for (size_t j = 0; j < INNER; j++) {
        double apart = other->first[j] - m->first[j] + other->mean[j] - m->mean[j];
        m->mean[j] += apart * (theirs / all);
        m->squares[j] += other->squares[j] + apart * apart * (mine * theirs / all);
    }
    m->rows += other->rows;
    return 0;
}

int64_t nd_end(nd_args *args) {
    give(ND_STATE(args, moments), ND_OUTPUT(args, 0, double));
    ND_SET_USED(args, 0, 3 * INNER, double);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const T *x = ND_INPUT(args, 0, T);
    double *to = ND_OUTPUT(args, 0, double);
    moments *m = ND_SCRATCHPAD(args, moments);
    size_t records = args->inputs[0].bytes / RECORD_BYTES;
    for (size_t r = 0; r < records; r++, x += LENGTH * INNER, to += 3 * INNER) {
        __builtin_memset(m, 0, sizeof *m);
        add(m, x, LENGTH);
        give(m, to);
    }
    ND_SET_USED(args, 0, records * 3 * INNER, double);
    return 0;
}
#endif
