/* histogram.c: how many elements fall into each of -DBINS equal bins between low and high.
 *
 * Bin of x: trunc((x - low) * (BINS / (high - low))) in float64, at most BINS - 1, so high itself is in the last bin.
 * Elements outside, and NaN, are counted in no bin. Bad scalar: low >= high, or high - low or the scale not finite.
 */
#include "common.h"

#ifndef BINS
#define BINS 256
#endif
_Static_assert(BINS >= 1 && BINS <= 4096, "counts have to fit the scratchpad");
/* Metadata takes numbers, not expressions: these are what BINS is worth for sizes that are offered. */
#ifndef STATE_BYTES
#define STATE_BYTES 2056
#endif
#ifndef RESULT_BYTES
#define RESULT_BYTES 2048
#endif
typedef struct {
    uint64_t count[BINS + 1]; /* the last one: outside */
} state;
_Static_assert(sizeof(state) == STATE_BYTES && RESULT_BYTES == 8 * BINS, "metadata says so");

PROGRAM("name": "histogram", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "counts", "dtype": "uint64", "phase": "end", "bound": {"fixed": RESULT_BYTES}}],
        "scalars": [{"name": "low", "dtype": "float64"}, {"name": "high", "dtype": "float64"}],
        "state_bytes": STATE_BYTES)

#if !defined(ND_NATIVE) && !STREAM
/* Some elements at a time, counted in two tables in turn so that equal neighbours do not wait for each other. Where
 * all of them come to bins that are neither the first nor the last, they are inside; otherwise each is compared,
 * without a branch. Rounding cannot lead further than to a neighbouring bin, and from high to BINS at most. */
enum { AT_ONCE = 16, HIGH = BINS, OUTSIDE, PLACES };

/* Towards zero; what does not fit, and NaN, comes to an end of the range: C leaves that open. */
static inline uintptr_t truncated(double value) {
    uintptr_t found;
#if __riscv_xlen == 64
    __asm__("fcvt.l.d %0, %1, rtz" : "=r"(found) : "f"(value));
#else
    __asm__("fcvt.w.d %0, %1, rtz" : "=r"(found) : "f"(value));
#endif
    return found;
}

static inline uintptr_t place(double value, double low, double high, double scale) {
    uintptr_t inside = (uintptr_t)((value >= low) & (value <= high));
    __asm__("" : "+r"(inside)); /* any number: less one is one instruction */
    uintptr_t found = truncated((value - low) * scale) | (inside - 1);
    return found < OUTSIDE ? found : OUTSIDE;
}

/* Count most elements. Gives how many. */
static size_t tabled(const T *restrict x, size_t n, double low, double high, double scale, uint64_t *restrict count) {
    uint64_t table[2][PLACES] = {{0}};
    size_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        uintptr_t at[AT_ONCE], most = 0; /* less one, so that 0 is out of bounds, too */
        UNROLL_ALL for (size_t j = 0; j < AT_ONCE; j++) {
            at[j] = truncated(((double)x[i + j] - low) * scale) - 1;
            most = at[j] > most ? at[j] : most;
        }
        if (__builtin_expect(BINS > 2 && most < BINS - 2, 1)) {
            UNROLL_ALL for (size_t j = 0; j < AT_ONCE; j++) table[j % 2][at[j] + 1]++;
        } else {
            UNROLL_ALL for (size_t j = 0; j < AT_ONCE; j++) {
                uintptr_t b = at[j] + 1;
                if (__builtin_expect(BINS <= 2 || at[j] >= BINS - 2, 0)) b = place((double)x[i + j], low, high, scale);
                table[j % 2][b]++;
            }
        }
    }
    for (size_t b = 0; b < BINS; b++) count[b] += table[0][b] + table[1][b];
    count[BINS - 1] += table[0][HIGH] + table[1][HIGH];
    count[BINS] += table[0][OUTSIDE] + table[1][OUTSIDE];
    return i;
}
#endif

#if STREAM
int64_t nd_stream(nd_args *args) {
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    size_t n = ND_INPUT_COUNT(args, 0, T);
#endif
    uint64_t *restrict count = ND_STATE(args, state)->count;
    double low = nd_scalar_f64(args, 0), high = nd_scalar_f64(args, 1);
    double scale = (double)BINS / (high - low);
    if (!(low < high) || high - low == __builtin_inf() || scale == __builtin_inf()) return BAD_SCALAR;
#if defined(ND_NATIVE) && !STREAM
    /* Bins first, by vectors, then counts: the second loop has nothing but a load and a store for each. It leaves
     * memory idle, so it asks for what comes next. */
    enum { TOGETHER = 1024 };
    uint16_t bin[TOGETHER];
    for (size_t i = 0; i < n; i += TOGETHER) {
        size_t m = n - i < TOGETHER ? n - i : TOGETHER;
        for (size_t j = 0; j < m; j++) {
            double value = (double)x[i + j];
            int inside = (value >= low) & (value <= high);
            int32_t b = (int32_t)(((inside ? value : low) - low) * scale);
            b = b < BINS ? b : BINS - 1;
            bin[j] = (uint16_t)(inside ? b : BINS);
        }
        for (size_t j = 0; j < m; j++) {
            if (j % (64 / sizeof(T)) == 0) __builtin_prefetch(x + i + TOGETHER + j);
            count[bin[j]]++;
        }
    }
    return 0;
#else
#if STREAM
    EACH_OF_STREAM(0, T) {
        double value = (double)T_LOAD(0);
#else
    for (size_t i = tabled(x, n, low, high, scale, count); i < n; i++) {
        double value = (double)x[i];
#endif
        uint64_t bin = BINS;
        if ((value >= low) & (value <= high)) {
            bin = (uint64_t)(int64_t)((value - low) * scale);
            bin = bin < BINS ? bin : BINS - 1;
        }
        count[bin]++;
    }
    return 0;
#endif
}

int64_t nd_merge(nd_args *args) {
    for (size_t i = 0; i <= BINS; i++) ND_STATE(args, state)->count[i] += ND_OTHER_STATE(args, state)->count[i];
    return 0;
}

int64_t nd_end(nd_args *args) {
    uint64_t *restrict counts = ND_OUTPUT(args, 0, uint64_t);
    const uint64_t *restrict count = ND_STATE(args, state)->count;
    for (size_t i = 0; i < BINS; i++) counts[i] = count[i];
    ND_SET_USED(args, 0, BINS, uint64_t);
    return 0;
}
