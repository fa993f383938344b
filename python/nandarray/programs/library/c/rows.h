/* rows.h: what the programs over rows share: the test of an element, and the tables that it may ask.
 *
 * -DPORTS and -DSCALARS are the inputs and scalars in JSON, -DBIND=... names them (x0, x1, ... are the arrays, s0, s1,
 * ... the scalars), -DSIZE is the first array's element in C, and -DPASSES is the test of element i in C, 0 or 1,
 * without a branch. An array that is `whole` is a table: sorted values (AMONG) or a byte for each code (LISTED).
 */
#ifndef PROGRAMS_ROWS_H
#define PROGRAMS_ROWS_H

#include "common.h"

/* An integer of 128 bits as it lies in an array, at a multiple of eight bytes. */
typedef __int128 limbs __attribute__((aligned(8)));

#ifndef PORTS
#define PORTS {"name": "x0", "dtype": "int32"}
#define SCALARS {"name": "s0", "dtype": "int32"}
#define BIND                                           \
    const int32_t *restrict x0 = ND_INPUT(args, 0, int32_t); \
    const int32_t s0 = (int32_t)nd_scalar_i64(args, 0);
#define SIZE int32_t
#define PASSES (x0[i] < s0)
#endif

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

/* A float16 by its bits: normal and subnormal numbers by a multiplication, infinities and NaNs by their exponent. */
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

/* Elements that are tested together, so that the loop over the test becomes vectors where there are some. */
enum { TESTED = 1024 };

#endif
