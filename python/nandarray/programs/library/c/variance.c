/* variance.c: mean square of the differences from the mean, divided by n - ddof.
 *
 * Two passes over a chunk, in common.h's order: the first gives about its mean k, the second a = sum(x - k) and b =
 * sum((x - k)^2). With n elements in the chunk and N in all, the squared differences are the sum over chunks of b +
 * n k^2 + 2 k a, less S^2 / N, where S is the sum of n k + a. All of this is added exactly, with products as two
 * doubles each, and rounded once: the result has the quality of two passes over all data, and does not depend on who
 * did which chunk. Elements beyond about 1e150 make the result infinite or NaN. NaN if N <= ddof.
 */
#include "exact.h"

#define STATE_BYTES 1112
typedef struct {
    exact_sum sum;     /* of n k + a */
    exact_sum squares; /* of b + n k^2 + 2 k a, the sum of squares */
    uint64_t count;
} state;
_Static_assert(sizeof(state) == STATE_BYTES, "metadata says so");

#if STREAM
#define CHUNK_BYTES 32768 /* a chunk has to be somewhere for the second pass */
#else
#define CHUNK_BYTES 0
#endif
PROGRAM("name": "variance", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "result", "dtype": "float64", "phase": "end"}],
        "scalars": [{"name": "ddof", "dtype": "uint64", "default": 0}], "state_bytes": STATE_BYTES,
        "scratchpad_bytes": CHUNK_BYTES)

/* a * b as the sum of two doubles (Dekker, Veltkamp). */
static inline void product(double a, double b, double *high, double *low) {
    double ta = 134217729.0 * a, tb = 134217729.0 * b;
    double ah = ta - (ta - a), bh = tb - (tb - b);
    double al = a - ah, bl = b - bh;
    *high = a * b;
    *low = ((ah * bh - *high) + ah * bl + al * bh) + al * bl;
}

/* (high + low) / n as the sum of two doubles. */
static inline void quotient(double high, double low, double n, double *first, double *second) {
    double back_high, back_low;
    *first = high / n;
    product(*first, n, &back_high, &back_low);
    *second = ((high - back_high) - back_low + low) / n;
}

static void add_chunk(state *restrict st, const T *restrict x, size_t n) {
    double lane[LANES] = {0}, off[LANES] = {0}, square[LANES] = {0}, size = (double)n;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += (double)x[i + j];
    double k = lanes_total(lane) / size;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double difference = (double)x[i + j] - k;
            off[j] += difference;
            square[j] += difference * difference;
        }
    for (int j = 0; i + j < n; j++) {
        double difference = (double)x[i + j] - k;
        off[j] += difference;
        square[j] += difference * difference;
    }
    double a = lanes_total(off), high, low, first, second;
    product(size, k, &high, &low);
    exact_add(&st->sum, high);
    exact_add(&st->sum, low);
    exact_add(&st->sum, a);
    exact_add(&st->squares, lanes_total(square));
    product(2.0 * k, a, &high, &low);
    exact_add(&st->squares, high);
    exact_add(&st->squares, low);
    product(k, k, &high, &low);
    product(high, size, &first, &second);
    exact_add(&st->squares, first);
    exact_add(&st->squares, second);
    exact_add(&st->squares, low * size);
    st->count += n;
}

static void carry(state *st) {
    exact_carry(&st->sum);
    exact_carry(&st->squares);
}

#if STREAM
int64_t nd_stream(nd_args *args) {
    state *st = ND_STATE(args, state);
    T *chunk = ND_SCRATCHPAD(args, T);
    size_t n = 0;
    EACH_OF_STREAM(0, T) {
        chunk[n++] = T_LOAD(0);
        if (n == CHUNK) add_chunk(st, chunk, n), n = 0;
    }
    if (n) add_chunk(st, chunk, n);
    carry(st);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    state *st = ND_STATE(args, state);
    const T *x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
    for (size_t i = 0; i < n; i += CHUNK) add_chunk(st, x + i, n - i < CHUNK ? n - i : CHUNK);
    carry(st);
    return 0;
}
#endif

int64_t nd_merge(nd_args *args) {
    state *st = ND_STATE(args, state);
    const state *other = ND_OTHER_STATE(args, state);
    exact_merge(&st->sum, &other->sum);
    exact_merge(&st->squares, &other->squares);
    st->count += other->count;
    return 0;
}

int64_t nd_end(nd_args *args) {
    state *st = ND_STATE(args, state);
    uint64_t ddof = nd_scalar_u64(args, 0);
    double result = __builtin_nan("");
    if (st->count > ddof) {
        double sum = exact_round(&st->sum), n = (double)st->count, high, low, first, second;
        exact_add(&st->sum, -sum);
        double rest = exact_round(&st->sum);
        product(sum, sum, &high, &low);
        low += 2.0 * sum * rest;
        quotient(high, low, n, &first, &second);
        exact_add(&st->squares, -first);
        exact_add(&st->squares, -second);
        double squares = exact_round(&st->squares);
        result = (squares < 0 ? 0.0 : squares) / (double)(st->count - ddof);
    }
    *ND_OUTPUT(args, 0, double) = result;
    ND_SET_USED(args, 0, 1, double);
    return 0;
}
