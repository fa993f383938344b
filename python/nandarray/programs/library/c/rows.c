/* rows.c: the numbers of the elements of one to eight arrays of one length that pass a test, counted from the first
 * record of the run.
 *
 * The test is written by nandarray.programs.library.rows from a description: -DPORTS and -DSCALARS are the inputs and
 * scalars in JSON, -DBIND=... names them (x0, x1, ... are the arrays, s0, s1, ... the scalars), -DSIZE is the first
 * array's element in C, and -DPASSES is the test of element i in C, 0 or 1, without a branch. Elements are tested by
 * chunks, so that the loop over the test becomes vectors where there are some; numbers are put together behind it.
 * An array that is `whole` is a table: sorted values (AMONG) or a byte for each code (LISTED).
 */
#include "common.h"

#ifndef PORTS
#define PORTS {"name": "x0", "dtype": "int32"}
#define SCALARS {"name": "s0", "dtype": "int32"}
#define BIND const int32_t *restrict x0 = ND_INPUT(args, 0, int32_t); const int32_t s0 = (int32_t)nd_scalar_i64(args, 0);
#define SIZE int32_t
#define PASSES (x0[i] < s0)
#endif

PROGRAM("name": "rows", "kind": KIND, "inputs": [PORTS],
        "outputs": [{"name": "numbers", "dtype": "uint32", "exact": false, "bound": {"per_record": 4, "fixed": 32}}],
        "scalars": [SCALARS])

/* Whether a value is one of n sorted ones. */
#define SEARCHED(name, type)                                             \
    static inline unsigned name(const type *values, size_t n, type x) { \
        const type *at = values;                                         \
        for (; n > 1; n -= n / 2) at += at[n / 2 - 1] < x ? n / 2 : 0;   \
        return n && *at == x;                                            \
    }
SEARCHED(among_i64, int64_t)
SEARCHED(among_u64, uint64_t)
SEARCHED(among_f64, double)
#define AMONG(kind, table, x) among_##kind(table, table##_count, x)
/* The byte of a code; the last byte is that of all codes that the table does not have. */
#define LISTED(table, code) table[(uint64_t)(code) < table##_count - 1 ? (uint64_t)(code) : table##_count - 1]

/* A float16 by its bits: normal numbers and subnormal ones by a multiplication, infinities and NaNs by their exponent. */
static inline float half(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7FFF) << 13, scale = 0x77800000; /* 2^112 */
    float value, factor;
    __builtin_memcpy(&value, &magnitude, 4);
    __builtin_memcpy(&factor, &scale, 4);
    value *= factor;
    if ((bits & 0x7C00) == 0x7C00) {
        magnitude |= 0x7F800000;
        __builtin_memcpy(&value, &magnitude, 4);
    }
    return bits & 0x8000 ? -value : value;
}

enum { TESTED = 1024 };

int64_t nd_block(nd_args *args) {
    BIND
    size_t n = ND_INPUT_COUNT(args, 0, SIZE), count = 0;
    uint32_t *restrict numbers = ND_OUTPUT(args, 0, uint32_t), first = (uint32_t)args->first_record;
    /* Every number is stored, and perhaps overwritten; eight together. */
    if (ND_OUTPUT_COUNT(args, 0, uint32_t) < n + 8) return OUTPUT_FULL;
    for (size_t begin = 0; begin < n; begin += TESTED) {
        unsigned char passes[TESTED] __attribute__((aligned(8)));
        size_t end = n - begin < TESTED ? n : begin + TESTED;
        for (size_t i = begin; i < end; i++) passes[i - begin] = (unsigned char)(PASSES);
        for (size_t i = end - begin; i % 8; i++) passes[i] = 0;
        for (size_t i = 0; i < end - begin; i += 8) {
            if (!*(const word64 *)(passes + i)) continue;
            UNROLL_ALL for (size_t k = i; k < i + 8; k++) {
                numbers[count] = first + (uint32_t)(begin + k);
                count += passes[k];
            }
        }
    }
    ND_SET_USED(args, 0, count, uint32_t);
    return 0;
}
