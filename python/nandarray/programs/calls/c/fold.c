/* fold.c: any, all, prod, count, argmin, argmax, min or max of the elements along an axis.
 *
 * The box is rows of INNER elements, which lie behind the axis. With WHOLE the axis is of the whole box: a state has a
 * row of what is found so far, and rows come in any tasks. Without, a record has the LENGTH rows of an axis, and each
 * record gives a row. The result of an operation over no rows is the value that changes nothing; the last four
 * have none, and the caller does not ask for it.
 *
 * Operations (OP): 0 any, 1 all, 2 prod, 3 count, 4 argmin, 5 argmax, 6 min, 7 max. A NaN counts as true and not as
 * zero; it is the least and the greatest element, and the first one is found, as NumPy does.
 */
#include "element.h"

enum { ANY, ALL, PROD, COUNT, ARGMIN, ARGMAX, MIN, MAX };

#if OP == 2 && KIND_OF_T == 'c'
typedef struct {
    double re, im;
} value;
#elif OP == 2 && KIND_OF_T == 'f'
typedef double value;
#elif OP < 2
typedef uint8_t value;
#elif OP >= 6
typedef element value;
#else
typedef uint64_t value; /* integers wrap modulo 2^64 */
#endif

/* The result of one column so far. */
#if OP >= 4
typedef struct {
    int64_t place; /* -1: nothing yet */
    element best;
} found;
#else
typedef value found;
#endif

#if WHOLE
PROGRAM("name": NAME, "kind": "block", "state_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE, "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "result", "dtype": RESULT, "record_bytes": RESULT_BYTES, "phase": "end"}])
_Static_assert(sizeof(found) * INNER == STATE_BYTES, "metadata says so");
#else
PROGRAM("name": NAME, "kind": "block",
        "inputs": [{"name": "x", "dtype": DTYPE, "record_bytes": RECORD_BYTES}],
        "outputs": [{"name": "result", "dtype": RESULT, "record_bytes": RESULT_BYTES}],
        "errors": {"-2": "the last record is not whole"})
#endif
_Static_assert(sizeof(value) * INNER == RESULT_BYTES, "metadata says so");

#if OP >= 4
/* Whether one at a later place takes the place of one that is there. */
static inline int replaces(element later, element there) {
    if (is_nan(there)) return 0;
    return is_nan(later) || (OP == ARGMIN || OP == MIN ? is_less(later, there) : is_less(there, later));
}

static inline found nothing(void) { return (found){.place = -1}; }

static inline void see(found *f, element x, int64_t place) {
    if (f->place < 0 || replaces(x, f->best)) *f = (found){.place = place, .best = x};
}

static inline void join(found *f, const found *later) {
    if (later->place >= 0) see(f, later->best, later->place);
}

#if OP >= 6
static inline value result_of(const found *f) { return f->best; }
#else
static inline value result_of(const found *f) { return (value)f->place; }
#endif
#else
static inline value product(value a, value b) {
#if OP == 2 && KIND_OF_T == 'c'
    return (value){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
#else
    return a * b;
#endif
}

static inline found nothing(void) {
#if OP == 2 && KIND_OF_T == 'c'
    return (value){1, 0};
#else
    return OP == ALL || OP == PROD;
#endif
}

static inline void see(found *f, element x, int64_t place) {
    (void)place;
#if OP == 0
    *f |= (value)is_nonzero(x);
#elif OP == 1
    *f &= (value)is_nonzero(x);
#elif OP == 3
    *f += (value)is_nonzero(x);
#elif KIND_OF_T == 'c'
    *f = product(*f, (value){x.re, x.im});
#else
    *f = product(*f, (value)x);
#endif
}

static inline void join(found *f, const found *later) {
#if OP == 0
    *f |= *later;
#elif OP == 1
    *f &= *later;
#elif OP == 3
    *f += *later;
#else
    *f = product(*f, *later);
#endif
}

static inline value result_of(const found *f) { return *f; }
#endif

/* Fold rows into a row; the first one is at a place along the axis. */
static inline void fold(found *restrict row, const element *restrict x, size_t rows, int64_t place) {
    if (INNER == 1) {
        found f = *row;
        for (size_t i = 0; i < rows; i++) see(&f, x[i], place + (int64_t)i);
        *row = f;
        return;
    }
    for (size_t i = 0; i < rows; i++, x += INNER) {
        for (size_t j = 0; j < INNER; j++) see(row + j, x[j], place + (int64_t)i);
    }
}

#if WHOLE
int64_t nd_begin(nd_args *args) {
    found *row = ND_STATE(args, found);
    for (size_t j = 0; j < INNER; j++) row[j] = nothing();
    return 0;
}

int64_t nd_block(nd_args *args) {
    size_t rows = args->inputs[0].bytes / RECORD_BYTES;
    fold(ND_STATE(args, found), ND_INPUT(args, 0, element), rows, (int64_t)args->first_record);
    return 0;
}

int64_t nd_merge(nd_args *args) {
    found *row = ND_STATE(args, found);
    const found *later = ND_OTHER_STATE(args, found);
    for (size_t j = 0; j < INNER; j++) join(row + j, later + j);
    return 0;
}

int64_t nd_end(nd_args *args) {
    const found *row = ND_STATE(args, found);
    value *to = ND_OUTPUT(args, 0, value);
    for (size_t j = 0; j < INNER; j++) to[j] = result_of(row + j);
    ND_SET_USED(args, 0, INNER, value);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const element *x = ND_INPUT(args, 0, element);
    value *to = ND_OUTPUT(args, 0, value);
    size_t records = args->inputs[0].bytes / RECORD_BYTES;
    if (args->inputs[0].bytes % RECORD_BYTES) return -2;
    for (size_t r = 0; r < records; r++, x += (size_t)LENGTH * INNER, to += INNER) {
#if OP >= 4 /* column by column, as there is no room for a row of places and elements */
        for (size_t j = 0; j < INNER; j++) {
            found f = nothing();
            for (size_t i = 0; i < LENGTH; i++) see(&f, x[i * INNER + j], (int64_t)i);
            to[j] = result_of(&f);
        }
#else
        for (size_t j = 0; j < INNER; j++) to[j] = nothing();
        fold(to, x, LENGTH, 0);
#endif
    }
    ND_SET_USED(args, 0, records * INNER, value);
    return 0;
}
#endif
