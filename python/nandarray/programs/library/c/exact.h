/* exact.h: sums of doubles without rounding, so that neither the order nor the number of workers matters.
 *
 * A fixed-point number of 68 limbs of 32 bits, each in 64 bits so that carries can wait; bit 0 of limb 0 is 2^-1074.
 * It is used once a chunk, not once an element. The idea is Kulisch's; the form follows R. M. Neal, "Fast exact
 * summation using small and large superaccumulators" (2015).
 */
#ifndef PROGRAMS_EXACT_H
#define PROGRAMS_EXACT_H

#include "common.h"

#define EXACT_LIMBS 68

typedef struct {
    int64_t limb[EXACT_LIMBS]; /* below 2^32 each after exact_carry; at most 2^30 additions in between */
    uint64_t special;          /* what was added besides: 1 +infinity, 2 -infinity, 4 NaN */
} exact_sum;

#define EXACT_BYTES 552
_Static_assert(sizeof(exact_sum) == EXACT_BYTES, "metadata says so");

static inline void exact_add(exact_sum *sum, double value) {
    uint64_t bits = nd_bits_of_f64_(value);
    uint64_t exponent = bits >> 52 & 0x7ff, mantissa = bits & 0xfffffffffffff;
    if (exponent == 0x7ff) {
        sum->special |= mantissa ? 4 : bits >> 63 ? 2 : 1;
        return;
    }
    if (exponent) mantissa |= 1ull << 52, exponent--;
    unsigned shift = exponent & 31;
    int64_t *limb = &sum->limb[exponent >> 5];
    int64_t low = (int64_t)(mantissa << shift & 0xffffffff);
    int64_t middle = (int64_t)((mantissa << shift) >> 32 & 0xffffffff);
    int64_t high = (int64_t)(mantissa >> 32 >> (32 - shift));
    if (bits >> 63) low = -low, middle = -middle, high = -high;
    limb[0] += low, limb[1] += middle, limb[2] += high;
}

static inline void exact_carry(exact_sum *sum) {
    for (int i = 0; i < EXACT_LIMBS - 1; i++) {
        int64_t carry = sum->limb[i] >> 32;
        sum->limb[i] -= carry * (1ll << 32);
        sum->limb[i + 1] += carry;
    }
}

static inline void exact_merge(exact_sum *restrict sum, const exact_sum *restrict other) {
    for (int i = 0; i < EXACT_LIMBS; i++) sum->limb[i] += other->limb[i];
    sum->special |= other->special;
    exact_carry(sum);
}

/* The sum, rounded once to nearest, ties to even. The sum of nothing, and of what cancels, is +0. */
static double exact_round(const exact_sum *sum) {
    if (sum->special & 4 || sum->special == 3) return __builtin_nan("");
    if (sum->special) return sum->special == 1 ? __builtin_inf() : -__builtin_inf();
    exact_sum size = *sum;
    exact_carry(&size);
    uint64_t sign = 0;
    if (size.limb[EXACT_LIMBS - 1] < 0) {
        sign = 1ull << 63;
        for (int i = 0; i < EXACT_LIMBS; i++) size.limb[i] = -size.limb[i];
        exact_carry(&size);
    }
    int top = EXACT_LIMBS - 1;
    while (top > 0 && size.limb[top] == 0) top--;
    uint64_t two = (uint64_t)size.limb[top] << 32 | (top ? (uint64_t)size.limb[top - 1] : 0);
    if (top == 0) two = (uint64_t)size.limb[0]; /* below 2^32: exact */
    if (top == 0 || (top == 1 && two >> 53 == 0)) return nd_f64_of_bits_(sign | two);
    unsigned zeros = (unsigned)__builtin_clzll(two); /* at most 31: limb[top] is not 0 */
    uint64_t third = top >= 2 ? (uint64_t)size.limb[top - 2] : 0;
    uint64_t window = two << zeros | (zeros ? third >> (32 - zeros) : 0);
    uint64_t rest = third << zeros & 0xffffffff;
    for (int i = 0; i < top - 2; i++) rest |= (uint64_t)size.limb[i];
    uint64_t highest = 32ull * (uint64_t)top + 31 - zeros; /* of the sum's bits; 53 at least */
    uint64_t mantissa = window >> 11, tail = window & 0x7ff;
    uint64_t up = tail > 0x400 || (tail == 0x400 && (rest || (mantissa & 1)));
    uint64_t bits = ((highest - 52) << 52) + mantissa + up; /* the leading bit of the mantissa adds 1 to the exponent */
    if (bits >= 0x7ffull << 52) bits = 0x7ffull << 52;
    return nd_f64_of_bits_(sign | bits);
}

#endif
