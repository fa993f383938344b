/* exponential.h: powers and logarithms. Errors are below 0.53 units in the last place of a double, as a test checks;
 * results for infinities, zeros and NaN are those of C's Annex F.
 *
 * Powers: the argument less a multiple of ln 2, then Taylor's polynomial. Logarithms: a number within a factor of
 * sqrt 2 of 1, then the series of atanh((m - 1) / (m + 1)).
 */
#ifndef PROGRAMS_EXPONENTIAL_H
#define PROGRAMS_EXPONENTIAL_H

#include "pair.h"

#define LN2_FRONT 0x1.62e42fefa2000p-1 /* 40 bits: its multiples by exponents are exact */
#define LN2_REST 0x1.9ef35793c7673p-41
static const pair ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const pair ln10 = {0x1.26bb1bbb55516p+1, -0x1.f48ad494ea3e9p-53};
static const pair one_by_ln2 = {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
static const pair one_by_ln10 = {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57};
#define LOG2_OF_10 0x1.a934f0979a371p+1

/* (value.high + value.low) * 2^k, 0.7 < value < 1.5, rounded once where it is subnormal, too. */
static inline double scaled(pair value, int k) {
    if (k > 1024) return __builtin_inf();
    if (k < -1080) return 0;
    if (k > 1000) return (value.high + value.low) * 0x1p1000 * power_of_two(k - 1000);
    if (k > -1022 || (k == -1022 && value.high >= 1)) return (value.high + value.low) * power_of_two(k);
    /* A number as large as 2^-1022 will be: in its sum with it, the last place is that of subnormals. */
    double place = power_of_two(-1022 - k);
    pair s = sum_of(place, value.high);
    double rounded = s.high + (s.low + value.low);
    return (rounded - place) * power_of_two(k + 100) * 0x1p-100;
}

/* 2^k e^r, |r| < 0.36. */
static inline double exponential(pair r, int k) {
    double x = r.high;
    pair square = product_of(x, x);
    double more = x * square.high *
                  POLYNOMIAL(x, 1 / 1307674368000., 1 / 87178291200., 1 / 6227020800., 1 / 479001600., 1 / 39916800.,
                             1 / 3628800., 1 / 362880., 1 / 40320., 1 / 5040., 1 / 720., 1 / 120., 1 / 24., 1 / 6.);
    pair first = ordered_sum(x, 0.5 * square.high), whole = ordered_sum(1, first.high);
    whole.low += first.low + (0.5 * square.low + (r.low + x * r.low) + more);
    return scaled(whole, k);
}

/* r less the multiple k of ln 2; |k| < 2048. */
static inline pair less_ln2(pair r, int k) {
    double front = r.high - (double)k * LN2_FRONT;
    return add((pair){front, r.low}, minus(product_of((double)k, LN2_REST)));
}

static inline double exp64(double x) {
    if (!(x < 710)) return x > 0 ? __builtin_inf() : x; /* or NaN */
    if (x < -746) return 0;
    int k = (int)__builtin_lrint(x * one_by_ln2.high);
    return exponential(less_ln2((pair){x, 0}, k), k);
}

static inline double exp2_64(double x) {
    if (!(x < 1025)) return x > 0 ? __builtin_inf() : x;
    if (x < -1076) return 0;
    int k = (int)__builtin_lrint(x);
    return exponential(times((pair){x - (double)k, 0}, ln2), k);
}

static inline double exp10_64(double x) {
    if (!(x < 309)) return x > 0 ? __builtin_inf() : x;
    if (x < -324) return 0;
    int k = (int)__builtin_lrint(x * LOG2_OF_10);
    return exponential(less_ln2(times((pair){x, 0}, ln10), k), k);
}

/* ---- logarithms ------------------------------------------------------------------------------------------------ */

typedef struct {
    pair mantissa; /* ln m, m from sqrt(1/2) to sqrt(2) */
    int exponent;  /* x = m 2^exponent */
} logarithm;

/* Of x > 0, finite. */
static inline logarithm logarithm_of(double x) {
    int k = 0;
    if (x < 0x1p-1022) x *= 0x1p54, k = -54;
    uint64_t bits = nd_bits_of_f64_(x), above = bits - 0x3fe6a09e667f3bcdull; /* sqrt(1/2) */
    k += (int)((int64_t)above >> 52);
    double m = nd_f64_of_bits_(bits - ((above >> 52) << 52));
    pair s = over((pair){m - 1, 0}, sum_of(m, 1)), z = times(s, s);
    /* ln m = 2 s (1 + z/3 + z^2/5 + z^3/7 ...), z < 0.03: two terms as pairs */
    double tail = z.high * POLYNOMIAL(z.high, 1 / 29., 1 / 27., 1 / 25., 1 / 23., 1 / 21., 1 / 19., 1 / 17., 1 / 15.,
                                      1 / 13., 1 / 11., 1 / 9., 1 / 7.);
    pair q = ordered_sum(0x1.999999999999ap-3, tail);
    q.low += -0x1.999999999999ap-57;
    q = add((pair){0x1.5555555555555p-2, 0x1.5555555555555p-56}, times(z, q));
    pair value = add(s, times(s, times(z, q)));
    return (logarithm){{2 * value.high, 2 * value.low}, k};
}

/* ln x of its parts. */
static inline pair joined(logarithm log) {
    double k = (double)log.exponent;
    return add(sum_of(k * LN2_FRONT, log.mantissa.high),
               add(product_of(k, LN2_REST), (pair){log.mantissa.low, 0}));
}

/* Is there no logarithm, and if so, what instead? */
static inline int no_logarithm(double x, double *instead) {
    if (x > 0 && x < __builtin_inf()) return 0;
    *instead = x == 0 ? -__builtin_inf() : x > 0 || is_nan(x) ? x : __builtin_nan("");
    return 1;
}

static inline double log64(double x) {
    double found;
    if (no_logarithm(x, &found)) return found;
    pair value = joined(logarithm_of(x));
    return value.high + value.low;
}

static inline double log2_64(double x) {
    double found;
    if (no_logarithm(x, &found)) return found;
    logarithm log = logarithm_of(x);
    pair value = add((pair){(double)log.exponent, 0}, times(log.mantissa, one_by_ln2));
    return value.high + value.low;
}

static inline double log10_64(double x) {
    double found;
    if (no_logarithm(x, &found)) return found;
    pair value = times(joined(logarithm_of(x)), one_by_ln10);
    return value.high + value.low;
}

/* ---- x to the power of y --------------------------------------------------------------------------------------- */

/* 0: y is no integer, 1: an odd one, 2: an even one. Infinities are even. */
static inline int parity(double y) {
    double size = absolute(y);
    if (size >= 0x1p53) return 2;
    uint64_t whole = (uint64_t)size;
    return (double)whole != size ? 0 : whole & 1 ? 1 : 2;
}

static inline double pow64(double x, double y) {
    if (y == 0 || x == 1) return 1;
    if (is_nan(x) || is_nan(y)) return x + y;
    double size = absolute(x), sign = sign_of(x) && parity(y) == 1 ? -1 : 1;
    if (is_infinite(y)) return size == 1 ? 1 : (size > 1) == (y > 0) ? __builtin_inf() : 0;
    if (size == 0 || is_infinite(size)) return sign * ((size == 0) == (y > 0) ? 0 : __builtin_inf());
    if (x < 0 && parity(y) == 0) return __builtin_nan("");
    pair log = joined(logarithm_of(size));
    double high = y * log.high;
    if (high > 710) return sign * __builtin_inf();
    if (high < -746) return sign * 0.0;
    pair exponent = times((pair){y, 0}, log);
    int k = (int)__builtin_lrint(exponent.high * one_by_ln2.high);
    return sign * exponential(less_ln2(exponent, k), k);
}

#endif
