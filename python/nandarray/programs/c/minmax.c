/* minmax.c: the least and the greatest element.
 *
 * Floats: -0 is less than +0; a NaN anywhere makes both results NaN. Of nothing, the results are the ends of the type: least =
 * its maximum (+infinity), greatest = its minimum (-infinity), so that results of parts can be combined.
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

/* Instructions fmin and fmax: they give the number if the other is NaN, and order zeros. Those of other processors do not, so
 * there floats are compared as integers that have their order: below -infinity and above infinity are NaNs. */
#if defined(ND_NATIVE) && T_FLOAT
#if DTYPE_CODE == CODE_float64
typedef int64_t key;
#define INFINITE INT64_C(0x7ff0000000000000)
#else
typedef int32_t key;
#define INFINITE INT32_C(0x7f800000)
#endif
#define KEY_MAX (key)((UINT64_C(1) << (8 * sizeof(key) - 1)) - 1)

/* Its own inverse. */
static inline key ordered(key bits) { return bits ^ ((bits >> (8 * sizeof(key) - 1)) & KEY_MAX); }

static inline key key_of(T value) {
    key bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return ordered(bits);
}

static inline T of_key(key order) {
    T value;
    order = ordered(order);
    __builtin_memcpy(&value, &order, sizeof value);
    return value;
}
#define LESS(a, b) (key_of(b) < key_of(a) ? (b) : (a))
#define GREATER(a, b) (key_of(b) > key_of(a) ? (b) : (a))
#define ORDERED(a) ((a) == (a))
#elif DTYPE_CODE == CODE_float64
#define ORDERED(a) ((a) == (a))
#define LESS(a, b) __builtin_fmin(a, b)
#define GREATER(a, b) __builtin_fmax(a, b)
#elif DTYPE_CODE == CODE_float32
#define ORDERED(a) ((a) == (a))
#define LESS(a, b) __builtin_fminf(a, b)
#define GREATER(a, b) __builtin_fmaxf(a, b)
#else
#define ORDERED(a) 1
#define LESS(a, b) ((b) < (a) ? (b) : (a))
#define GREATER(a, b) ((b) > (a) ? (b) : (a))
#endif

int64_t nd_begin(nd_args *args) {
    state *st = ND_STATE(args, state);
    st->least = T_MAX;
    st->greatest = T_MIN;
    return 0;
}

#if defined(ND_NATIVE) && T_FLOAT
#if STREAM
int64_t nd_stream(nd_args *args) {
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
#endif
    state *st = ND_STATE(args, state);
    key least = KEY_MAX, greatest = -KEY_MAX - 1;
#if STREAM
    EACH_OF_STREAM(0, T) {
        key value = key_of(T_LOAD(0));
#else
    for (size_t i = 0; i < n; i++) {
        key value = key_of(x[i]);
#endif
        least = value < least ? value : least;
        greatest = value > greatest ? value : greatest;
    }
    if (least > greatest) return 0; /* there was nothing */
    if (least < ~INFINITE || greatest > INFINITE) {
        st->nan = 1;
        return 0;
    }
    st->least = LESS(st->least, of_key(least));
    st->greatest = GREATER(st->greatest, of_key(greatest));
    return 0;
}
#else
#if STREAM
int64_t nd_stream(nd_args *args) {
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
#endif
    state *st = ND_STATE(args, state);
    T least = st->least, greatest = st->greatest;
    int numbers = 1;
#if STREAM
    EACH_OF_STREAM(0, T) {
        T value = T_LOAD(0);
#else
    UNROLL(4) for (size_t i = 0; i < n; i++) {
        T value = x[i];
#endif
        least = LESS(least, value);
        greatest = GREATER(greatest, value);
        numbers &= ORDERED(value);
    }
    st->least = least;
    st->greatest = greatest;
    st->nan |= !numbers;
    return 0;
}
#endif

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
