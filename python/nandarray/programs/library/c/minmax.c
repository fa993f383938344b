/* minmax.c: the least and the greatest element.
 *
 * Floats: -0 is less than +0; a NaN anywhere makes both results NaN. Of nothing, the results are the ends of the
 * type: least = its maximum (+infinity), greatest = its minimum (-infinity), so that results of parts can be
 * combined.
 */
#include "common.h"

#define STATE_BYTES 24
typedef struct {
    T least;
    T greatest __attribute__((aligned(8)));
    uint64_t nan;
} state;
_Static_assert(sizeof(state) == STATE_BYTES, "metadata says so");

PROGRAM("name": "minmax", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "least", "dtype": DTYPE_NAME, "phase": "end"},
                    {"name": "greatest", "dtype": DTYPE_NAME, "phase": "end"}], "state_bytes": STATE_BYTES)

/* Floats are compared by their bits. As integers those below zero (-0 among them) have the opposite order, so the
 * greatest float is the greatest signed integer if that is not below zero, the least float the greatest unsigned
 * integer if there is one below zero, and otherwise both are the least unsigned integer. NaNs are beyond infinity of
 * either sign. */
#if T_FLOAT
#if DTYPE_CODE == CODE_float64
typedef int64_t bits;
typedef uint64_t ubits;
#define SHORT int64_t
#define INFINITE INT64_C(0x7ff0000000000000)
#else
#ifdef ND_NATIVE
typedef int32_t bits;
typedef uint32_t ubits;
#else
typedef intptr_t bits; /* a register, sign-extended */
typedef uintptr_t ubits;
#endif
#define SHORT int32_t
#define INFINITE INT32_C(0x7f800000)
#endif
#define BELOW_ZERO ((ubits)1 << (8 * sizeof(bits) - 1))
#define NEGATIVE_INFINITE ((ubits)(bits)(SHORT)(INFINITE | ((SHORT)1 << (8 * sizeof(SHORT) - 1))))

static inline bits bits_of(T value) {
    SHORT found;
    __builtin_memcpy(&found, &value, sizeof found);
    return found;
}

static inline T of_bits(bits found) {
    T value;
    SHORT narrow = (SHORT)found;
    __builtin_memcpy(&value, &narrow, sizeof value);
    return value;
}

/* The extremes of elements so far: the greatest signed and unsigned integer, and the least unsigned one. */
typedef struct {
    bits top;
    ubits most, fewest;
} seen;
#define NOTHING_SEEN {(bits)BELOW_ZERO, 0, ~(ubits)0}

static inline void see(seen *s, T value) {
    bits b = bits_of(value);
    s->top = b > s->top ? b : s->top;
    s->most = (ubits)b > s->most ? (ubits)b : s->most;
    s->fewest = (ubits)b < s->fewest ? (ubits)b : s->fewest;
}

static inline int not_a_number(const seen *s) {
    return s->top > INFINITE || s->most > NEGATIVE_INFINITE;
}

static inline T least_of(const seen *s) { return of_bits((bits)(s->most >= BELOW_ZERO ? s->most : s->fewest)); }
static inline T greatest_of(const seen *s) { return of_bits(s->top >= 0 ? s->top : (bits)s->fewest); }

static inline T less(T a, T b) {
    seen s = NOTHING_SEEN;
    see(&s, a);
    see(&s, b);
    return least_of(&s);
}

static inline T greater(T a, T b) {
    seen s = NOTHING_SEEN;
    see(&s, a);
    see(&s, b);
    return greatest_of(&s);
}
#define LESS(a, b) less(a, b)
#define GREATER(a, b) greater(a, b)
#else
#define LESS(a, b) ((b) < (a) ? (b) : (a))
#define GREATER(a, b) ((b) > (a) ? (b) : (a))
#endif

/* The vector form needs no help. */
#ifdef ND_NATIVE
#define LOOP_UNROLL
#else
#define LOOP_UNROLL UNROLL(8)
#endif

int64_t nd_begin(nd_args *args) {
    state *st = ND_STATE(args, state);
    st->least = T_MAX;
    st->greatest = T_MIN;
    return 0;
}

#if STREAM
int64_t nd_stream(nd_args *args) {
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
#endif
    state *st = ND_STATE(args, state);
#if T_FLOAT
    seen s = NOTHING_SEEN;
#if STREAM
    EACH_OF_STREAM(0, T) see(&s, T_LOAD(0));
#else
    LOOP_UNROLL for (size_t i = 0; i < n; i++) see(&s, x[i]);
#endif
    if (s.most == 0 && s.fewest > 0) return 0; /* there was nothing */
    if (not_a_number(&s)) {
        st->nan = 1;
        return 0;
    }
    st->least = LESS(st->least, least_of(&s));
    st->greatest = GREATER(st->greatest, greatest_of(&s));
#else
    T least = st->least, greatest = st->greatest;
#if STREAM
    EACH_OF_STREAM(0, T) {
        T value = T_LOAD(0);
#else
    LOOP_UNROLL for (size_t i = 0; i < n; i++) {
        T value = x[i];
#endif
        least = LESS(least, value);
        greatest = GREATER(greatest, value);
    }
    st->least = least;
    st->greatest = greatest;
#endif
    return 0;
}

int64_t nd_merge(nd_args *args) {
    state *st = ND_STATE(args, state);
    const state *other = ND_OTHER_STATE(args, state);
    st->least = LESS(st->least, other->least);
    st->greatest = GREATER(st->greatest, other->greatest);
    st->nan |= other->nan;
    return 0;
}

int64_t nd_end(nd_args *args) {
    const state *st = ND_STATE(args, state);
#if T_FLOAT
    *ND_OUTPUT(args, 0, T) = st->nan ? (T)__builtin_nan("") : st->least;
    *ND_OUTPUT(args, 1, T) = st->nan ? (T)__builtin_nan("") : st->greatest;
#else
    *ND_OUTPUT(args, 0, T) = st->least;
    *ND_OUTPUT(args, 1, T) = st->greatest;
#endif
    ND_SET_USED(args, 0, 1, T);
    ND_SET_USED(args, 1, 1, T);
    return 0;
}
