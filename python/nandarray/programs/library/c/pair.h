/* pair.h: numbers as the sum of two doubles, high and low, where low is below half a unit in high's last place.
 *
 * Elementary functions are computed in pairs, so that one rounding at the end makes the error (T. J. Dekker, 1971;
 * D. E. Knuth). A result of 24 bits needs no low parts: for float32 they are left out, and the same code is
 * arithmetic in double.
 */
#ifndef PROGRAMS_PAIR_H
#define PROGRAMS_PAIR_H

#include "common.h"

#define LOW_PARTS (T_BYTES == 8)

typedef struct {
    double high, low;
} pair;

static inline double absolute(double a) { return __builtin_fabs(a); }
static inline int is_nan(double a) { return a != a; }
static inline int is_infinite(double a) { return absolute(a) == __builtin_inf(); }
static inline int sign_of(double a) { return (int)(nd_bits_of_f64_(a) >> 63); }

/* 2^k, -1022 <= k <= 1023. */
static inline double power_of_two(int k) { return nd_f64_of_bits_((uint64_t)(1023 + k) << 52); }

/* a + b, exactly; the second one wants |a| >= |b|. */
static inline pair sum_of(double a, double b) {
    double s = a + b, t = s - a;
    return (pair){s, LOW_PARTS ? (a - (s - t)) + (b - t) : 0};
}
static inline pair ordered_sum(double a, double b) {
    double s = a + b;
    return (pair){s, LOW_PARTS ? b - (s - a) : 0};
}
/* a * b, exactly. */
static inline pair product_of(double a, double b) {
    double p = a * b;
    return (pair){p, LOW_PARTS ? __builtin_fma(a, b, -p) : 0};
}

/* Of pairs, with an error of a few units in the 104th bit. */
static inline pair add(pair a, pair b) {
    pair s = sum_of(a.high, b.high);
    return ordered_sum(s.high, s.low + (a.low + b.low));
}
static inline pair times(pair a, pair b) {
    pair p = product_of(a.high, b.high);
    return ordered_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}
static inline pair over(pair a, pair b) {
    double q = a.high / b.high;
    return LOW_PARTS ? ordered_sum(q, (__builtin_fma(-q, b.high, a.high) + a.low - q * b.low) / b.high) : (pair){q, 0};
}
static inline pair minus(pair a) { return (pair){-a.high, -a.low}; }

/* The polynomial with n coefficients, the first one for the highest power. */
static inline __attribute__((always_inline)) double polynomial(double x, const double *coefficient, int n) {
    double value = coefficient[0];
    UNROLL_ALL for (int i = 1; i < n; i++) value = value * x + coefficient[i];
    return value;
}
#define POLYNOMIAL(x, ...) \
    polynomial(x, (const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

#endif
