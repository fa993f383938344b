/* filter.c: keep the elements x with low <= x <= high, in their order; a NaN is not kept.
 *
 * With -DWANT=1 the results are their numbers in the whole input instead. low = high asks for one value; the nearest
 * value beside a limit (numpy.nextafter) excludes it.
 */
#include "common.h"

#ifndef WANT
#define WANT 0
#endif
#if WANT == 0
#define RESULT T
#define RESULT_BYTES T_BYTES
PROGRAM("name": "filter", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "kept", "dtype": DTYPE_NAME, "exact": false}],
        "scalars": [{"name": "low", "dtype": DTYPE_NAME}, {"name": "high", "dtype": DTYPE_NAME}])
#else
#define RESULT uint64_t
#define RESULT_BYTES 8
PROGRAM("name": "filter_index", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "index", "dtype": "uint64", "exact": false}],
        "scalars": [{"name": "low", "dtype": DTYPE_NAME}, {"name": "high", "dtype": DTYPE_NAME}])
#endif

/* Processors that can bring kept elements together in a register do so; what is stored behind them is overwritten. */
#if NATIVE_VECTORS && defined(__AVX512DQ__) && WANT == 0 && !STREAM
#include <immintrin.h>
typedef T vector __attribute__((vector_size(64)));
enum { AT_ONCE = sizeof(T) == 8 ? 8 : sizeof(T) == 4 ? 16 : 0 };

static inline size_t keep_vector(T *restrict kept, const T *restrict x, T low, T high) {
    vector values;
    __builtin_memcpy(&values, x, sizeof values);
    __m512i inside = (__m512i)((values >= low) & (values <= high)), together;
    unsigned mask;
    if (sizeof(T) == 8) {
        mask = _mm512_movepi64_mask(inside);
        together = _mm512_maskz_compress_epi64((__mmask8)mask, (__m512i)values);
    } else {
        mask = _mm512_movepi32_mask(inside);
        together = _mm512_maskz_compress_epi32((__mmask16)mask, (__m512i)values);
    }
    __builtin_memcpy(kept, &together, sizeof together);
    return (size_t)__builtin_popcount(mask);
}
#else
enum { AT_ONCE = 0 };
#define keep_vector(kept, x, low, high) 0
#endif

/* With RISC-V's V: kept elements are brought together in a group of registers, and stored. */
#if RISCV_VECTORS(T_BYTES) && RISCV_VECTORS(RESULT_BYTES) && !STREAM && \
    (DTYPE_CODE != CODE_float64 || defined(__riscv_v_elen_fp) && __riscv_v_elen_fp >= 64)
#define BY_VECTORS 1
#include "filter_vectors.h"
#else
#define BY_VECTORS 0
#endif

/* Where there are no vectors float32 are compared by their bits, as integers are: those between two limits are one
 * range of unsigned integers, or two if there are numbers of both signs (or zeros) between them, and no NaN is in
 * either. It takes more instructions than comparing floats, but translated code need not look for NaNs; float64 gain
 * nothing by it. */
#if DTYPE_CODE == CODE_float32 && !defined(ND_NATIVE) && !STREAM && !BY_VECTORS
#define BY_BITS 1
typedef uint32_t bits;
#define SIGN ((bits)1 << (8 * sizeof(bits) - 1))

static inline bits bits_of(T value) {
    bits found;
    __builtin_memcpy(&found, &value, sizeof found);
    return found;
}

typedef struct {
    bits first, length; /* to the last one */
} range;

static inline size_t keep_ranges(RESULT *restrict kept, const T *restrict x, size_t n, uint64_t first, range a, range b,
                                 int both) {
    size_t dropped = 0;
    UNROLL(8) for (size_t i = 0; i < n; i++) {
        bits value = bits_of(x[i]);
        if (WANT == 0) {
            __builtin_memcpy(kept + (i - dropped), &value, sizeof value);
        } else {
            kept[i - dropped] = (RESULT)(first + i);
        }
        dropped += ((bits)(value - a.first) > a.length) & (!both || (bits)(value - b.first) > b.length);
    }
    return n - dropped;
}

static inline size_t keep_all(RESULT *restrict kept, const T *restrict x, size_t n, uint64_t first, T low, T high) {
    if (!(low <= high)) return 0;
    range one = {bits_of(low), bits_of(high) - bits_of(low)}, other = {0};
    if (low > 0) return keep_ranges(kept, x, n, first, one, other, 0);
    if (high < 0) {
        one.first = bits_of(high), one.length = bits_of(low) - bits_of(high);
        return keep_ranges(kept, x, n, first, one, other, 0);
    }
    /* From zero up, and from minus zero down. */
    one.first = 0, one.length = bits_of(high) & ~SIGN;
    other.first = SIGN, other.length = bits_of(low) & ~SIGN;
    return keep_ranges(kept, x, n, first, one, other, 1);
}
#else
#define BY_BITS 0
#endif

#if STREAM
int64_t nd_stream(nd_args *args) {
    T low = t_scalar(args, 0), high = t_scalar(args, 1);
#if WANT == 1
    uint64_t at = args->first_record;
#endif
    EACH_OF_STREAM(0, T) {
        T value = T_LOAD(0);
        int keep = (value >= low) & (value <= high);
#if WANT == 0
        if (keep) T_STORE(0, value);
#else
        if (keep) nd_store_u64(0, at);
        at++;
#endif
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    RESULT *restrict kept = ND_OUTPUT(args, 0, RESULT);
    size_t n = ND_INPUT_COUNT(args, 0, T), count = 0;
    if (ND_OUTPUT_COUNT(args, 0, RESULT) < n) return OUTPUT_FULL; /* every element is stored, and perhaps overwritten */
    T low = t_scalar(args, 0), high = t_scalar(args, 1);
    uint64_t first = args->first_record;
#if BY_VECTORS || BY_BITS
    count = keep_all(kept, x, n, first, low, high);
#else
    size_t i = 0;
    for (; AT_ONCE && i + AT_ONCE <= n; i += AT_ONCE) count += keep_vector(kept + count, x + i, low, high);
    UNROLL(4) for (; i < n; i++) {
        T value = x[i];
        kept[count] = WANT == 0 ? (RESULT)value : (RESULT)(first + i);
        count += (value >= low) & (value <= high);
    }
#endif
    ND_SET_USED(args, 0, count, RESULT);
    return 0;
}
#endif
