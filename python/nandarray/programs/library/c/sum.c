/* sum.c: the sum of all elements, or with -DMEAN=1 their mean.
 *
 * Sums of integers wrap: int64 of signed elements, uint64 of unsigned ones. Sums of floats, and all means, are
 * float64: the exact sum, rounded once, of the chunks' sums, which follow common.h's order. The sum of nothing is 0,
 * its mean NaN.
 */
#include "common.h"

#ifndef MEAN
#define MEAN 0
#endif
#if MEAN
#define NAME "mean"
#else
#define NAME "sum"
#endif

#if MEAN || T_FLOAT
#include "exact.h"
#define RESULT double
#define RESULT_NAME "float64"
#define STATE_BYTES 560
typedef struct {
    exact_sum total;
    uint64_t count;
} state;
#else
#define RESULT uint64_t
#define STATE_BYTES 8
typedef struct {
    uint64_t total;
} state;
#if T_SIGNED
#define RESULT_NAME "int64"
#else
#define RESULT_NAME "uint64"
#endif
#endif
_Static_assert(sizeof(state) == STATE_BYTES, "metadata says so");

PROGRAM("name": NAME, "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "result", "dtype": RESULT_NAME, "phase": "end"}], "state_bytes": STATE_BYTES)

#if MEAN || T_FLOAT

/* Sets the flag "inexact". Sums of widened floats are exact for a long time, and until the flag stands, translated
 * code asks of each addition whether it was. */
static inline void set_inexact(void) {
#ifdef __riscv
    __asm__ volatile("csrsi fflags, 1");
#endif
}

#if STREAM
/* The next chunk, until it is full or the stream ends. */
static size_t stream_chunk(double *sum) {
    double lane[LANES] = {0};
    size_t i = 0;
    while (i < CHUNK && !nd_at_end(0)) {
        size_t ready = nd_wait(0, AT_A_TIME) / sizeof(T);
        if (i % LANES || ready < LANES) {
            lane[i++ % LANES] += (double)T_LOAD(0);
            continue;
        }
        size_t stop = i + (ready < CHUNK - i ? ready : CHUNK - i) / LANES * LANES;
        for (; i < stop; i += LANES)
            for (int j = 0; j < LANES; j++) lane[j] += (double)T_LOAD(0);
    }
    *sum = lanes_total(lane);
    return i;
}
#else
/* The vector form needs no help. */
#ifdef ND_NATIVE
#define LOOP_UNROLL
#else
#define LOOP_UNROLL UNROLL(4)
#endif

static inline double chunk_sum(const T *restrict x, size_t n) {
    double lane[LANES] = {0};
    size_t i = 0;
#if NATIVE_VECTORS
    lanes sum = {0};
    for (; i + LANES <= n; i += LANES) sum += lanes_of(x + i);
    __builtin_memcpy(lane, &sum, sizeof lane);
#else
    LOOP_UNROLL for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
#endif
    for (int j = 0; i + j < n; j++) lane[j] += (double)x[i + j];
    return lanes_total(lane);
}

#if NATIVE_VECTORS
/* Chunks that are added up side by side: memory is waited for in several pages at once. */
#define AT_ONCE 4

static inline void chunk_sums(const T *restrict x, double sum[AT_ONCE]) {
    lanes of[AT_ONCE] = {0};
    for (size_t i = 0; i < CHUNK; i += LANES)
        UNROLL_ALL for (int k = 0; k < AT_ONCE; k++) of[k] += lanes_of(x + k * CHUNK + i);
    UNROLL_ALL for (int k = 0; k < AT_ONCE; k++) {
        double lane[LANES];
        __builtin_memcpy(lane, &of[k], sizeof lane);
        sum[k] = lanes_total(lane);
    }
}
#endif
#endif

#if STREAM
int64_t nd_stream(nd_args *args) {
    state *st = ND_STATE(args, state);
    size_t n;
    set_inexact();
    do {
        double sum;
        n = stream_chunk(&sum);
        if (n) exact_add(&st->total, sum);
        st->count += n;
    } while (n == CHUNK);
#else
int64_t nd_block(nd_args *args) {
    state *st = ND_STATE(args, state);
    const T *x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
    size_t i = 0;
    set_inexact();
#if NATIVE_VECTORS
    for (; i + AT_ONCE * CHUNK <= n; i += AT_ONCE * CHUNK) {
        double sum[AT_ONCE];
        chunk_sums(x + i, sum);
        for (int k = 0; k < AT_ONCE; k++) exact_add(&st->total, sum[k]);
    }
#endif
    for (; i < n; i += CHUNK) exact_add(&st->total, chunk_sum(x + i, n - i < CHUNK ? n - i : CHUNK));
    st->count += n;
#endif
    exact_carry(&st->total);
    return 0;
}

int64_t nd_merge(nd_args *args) {
    exact_merge(&ND_STATE(args, state)->total, &ND_OTHER_STATE(args, state)->total);
    ND_STATE(args, state)->count += ND_OTHER_STATE(args, state)->count;
    return 0;
}

static double result(const state *st) {
    double total = exact_round(&st->total);
    return MEAN ? (st->count ? total / (double)st->count : __builtin_nan("")) : total;
}

#else /* sums of integers */

#if STREAM
int64_t nd_stream(nd_args *args) {
    uint64_t total = 0;
    EACH_OF_STREAM(0, T) total += (uint64_t)T_LOAD(0);
    ND_STATE(args, state)->total += total;
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
    uint64_t total = 0;
    UNROLL(8) for (size_t i = 0; i < n; i++) total += (uint64_t)x[i];
    ND_STATE(args, state)->total += total;
    return 0;
}
#endif

int64_t nd_merge(nd_args *args) {
    ND_STATE(args, state)->total += ND_OTHER_STATE(args, state)->total;
    return 0;
}

static uint64_t result(const state *st) { return st->total; }

#endif

int64_t nd_end(nd_args *args) {
    *ND_OUTPUT(args, 0, RESULT) = result(ND_STATE(args, state));
    ND_SET_USED(args, 0, 1, RESULT);
    return 0;
}
