/* circular.h: sine, cosine, arc tangent. Errors are below 0.6 units in the last place of a double (arc tangents:
 * 0.51), as a test checks, for arguments of every size; results for infinities, zeros and NaN are those of C's Annex
 * F.
 */
#ifndef PROGRAMS_CIRCULAR_H
#define PROGRAMS_CIRCULAR_H

#include "pair.h"

static const pair half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
static const pair pi = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};

/* ---- reduction by pi / 2 (M. Payne, R. Hanek, 1983) ------------------------------------------------------------ */

/* 64 zeros, then the binary digits of 2 / pi. */
static const uint64_t two_by_pi[20] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

static inline uint64_t upper_product(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    return (uint64_t)((unsigned __int128)a * b >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* 64 digits from place AT. */
static inline uint64_t digits_at(unsigned at) {
    const uint64_t *word = &two_by_pi[at / 64];
    unsigned shift = at % 64;
    return shift ? word[0] << shift | word[1] >> (64 - shift) : word[0];
}

/* x = quarter * pi / 2 + the result, which is at most pi / 4; x is finite. */
static inline pair reduced(double x, unsigned *quarter) {
    *quarter = 0;
    if (absolute(x) <= 0x1.921fb54442d18p-1) return (pair){x, 0};
    uint64_t bits = nd_bits_of_f64_(x), m = (bits & 0xfffffffffffff) | 1ull << 52;
    int exponent = (int)(bits >> 52 & 0x7ff) - 1075; /* |x| = m 2^exponent */
    /* Digits of 2 / pi that make multiples of 4 do not matter; those from here on give x * 2 / pi modulo 4, with 190
     * behind the point. */
    unsigned at = (unsigned)(64 + exponent - 2);
    uint64_t w2 = digits_at(at), w1 = digits_at(at + 64), w0 = digits_at(at + 128);
    uint64_t r0 = m * w0, r1 = m * w1, r2 = m * w2 + upper_product(m, w1), carry = upper_product(m, w0);
    r1 += carry;
    r2 += r1 < carry;
    *quarter = (unsigned)(r2 >> 62);
    r2 = r2 << 2 | r1 >> 62, r1 = r1 << 2 | r0 >> 62, r0 <<= 2;
    int negative = (int)(r2 >> 63);
    if (negative) { /* nearer to the next one */
        *quarter += 1;
        r0 = ~r0, r1 = ~r1, r2 = ~r2; /* 2^-192 is nothing */
    }
    int zeros = 0;
    if (r2 == 0) r2 = r1, r1 = r0, r0 = 0, zeros = 64;
    unsigned shift = (unsigned)__builtin_clzll(r2 | 1);
    if (shift) r2 = r2 << shift | r1 >> (64 - shift), r1 = r1 << shift | r0 >> (64 - shift);
    zeros += (int)shift;
    double front = (double)(int64_t)(r2 >> 11), rest = (double)(int64_t)((r2 & 0x7ff) << 52 | r1 >> 12);
    pair fraction = ordered_sum(front * power_of_two(-53 - zeros), rest * power_of_two(-116 - zeros));
    if (negative) fraction = minus(fraction);
    fraction = times(fraction, half_pi);
    if (sign_of(x)) {
        *quarter = 0 - *quarter;
        return minus(fraction);
    }
    return fraction;
}

/* Of |r| <= pi / 4. */
static inline double sine(pair r) {
    double x = r.high;
    pair square = product_of(x, x), cube = times(square, (pair){x, 0});
    pair sixth = times(cube, (pair){0x1.5555555555555p-3, 0x1.5555555555555p-57});
    double z = square.high;
    double more = cube.high * z *
                  POLYNOMIAL(z, 1 / -121645100408832000., 1 / 355687428096000., 1 / -1307674368000., 1 / 6227020800.,
                             1 / -39916800., 1 / 362880., 1 / -5040., 1 / 120.);
    pair whole = ordered_sum(x, -sixth.high);
    return whole.high + (whole.low + (r.low * (1 - 0.5 * z) - sixth.low + more));
}

static inline double cosine(pair r) {
    double x = r.high;
    pair square = product_of(x, x), whole = ordered_sum(1, -0.5 * square.high);
    double z = square.high;
    double more = z * z *
                  POLYNOMIAL(z, 1 / 2432902008176640000., 1 / -6402373705728000., 1 / 20922789888000.,
                             1 / -87178291200., 1 / 479001600., 1 / -3628800., 1 / 40320., 1 / -720., 1 / 24.);
    return whole.high + (whole.low + (more - 0.5 * square.low - x * r.low));
}

static inline double sin64(double x) {
    unsigned quarter;
    if (is_infinite(x) || is_nan(x)) return x - x;
    if (absolute(x) < 0x1p-27) return x;
    pair r = reduced(x, &quarter);
    double size = quarter & 1 ? cosine(r) : sine(r);
    return quarter & 2 ? -size : size;
}

static inline double cos64(double x) {
    unsigned quarter;
    if (is_infinite(x) || is_nan(x)) return x - x;
    pair r = reduced(x, &quarter);
    double size = quarter & 1 ? sine(r) : cosine(r);
    return (quarter + 1) & 2 ? -size : size;
}

/* ---- arc tangent ----------------------------------------------------------------------------------------------- */

static const pair arc_of_eighth[9] = {{0x0.0p+0, 0x0.0p+0},
                                      {0x1.fd5ba9aac2f6ep-4, -0x1.cd37686760c17p-59},
                                      {0x1.f5b75f92c80ddp-3, 0x1.8ab6e3cf7afbdp-57},
                                      {0x1.6f61941e4def1p-2, -0x1.c63aae6f6e918p-56},
                                      {0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56},
                                      {0x1.1e00babdefeb4p-1, -0x1.928df287a668fp-58},
                                      {0x1.4978fa3269ee1p-1, 0x1.2419a87f2a458p-56},
                                      {0x1.700a7c5784634p-1, -0x1.8c34d25aadef6p-56},
                                      {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55}};

/* atan(y / x), 0 <= y <= x, y no less than 2^-60 x, both far from the ends of doubles: of the nearest eighth, and of
 * what is left, (y - c x) / (x + c y). */
static inline pair arc(double y, double x) {
    int i = (int)(8 * (y / x) + 0.5);
    double c = 0.125 * i;
    pair cx = product_of(c, x), cy = product_of(c, y), above = sum_of(y, -cx.high), below = sum_of(x, cy.high);
    above.low -= cx.low, below.low += cy.low;
    pair t = over(above, below);
    double z = t.high * t.high;
    t.low += t.high * z *
             POLYNOMIAL(z, 1 / -19., 1 / 17., 1 / -15., 1 / 13., 1 / -11., 1 / 9., 1 / -7., 1 / 5., 1 / -3.);
    return i ? add(arc_of_eighth[i], t) : t;
}

static inline double atan2_64(double y, double x) {
    if (is_nan(x) || is_nan(y)) return x + y;
    double a = absolute(y), b = absolute(x);
    int swapped = a > b;
    if (is_infinite(a) && is_infinite(b)) a = b = 1;
    if (is_infinite(a)) a = 1, b = 0;
    if (is_infinite(b)) a = 0, b = 1;
    double large = swapped ? a : b, little = swapped ? b : a;
    if (large == 0) large = 1; /* atan2(0, 0) is 0 or pi */
    pair angle;
    if (little < large * 0x1p-60 || (large < 0x1p-900 && little == 0)) {
        angle = (pair){little / large, 0};
    } else {
        double by = large > 0x1p500 ? 0x1p-600 : large < 0x1p-500 ? 0x1p600 : 1;
        angle = arc(little * by, large * by);
    }
    if (swapped) angle = add(half_pi, minus(angle));
    if (sign_of(x)) angle = add(pi, minus(angle));
    double size = angle.high + angle.low;
    return sign_of(y) ? -size : size;
}

#endif
