/* dsp.h: the kernels of CoDEN as libraries of signal processors have them: in the elements' own precision, without a
 * division or a square root in hardware, and without the care of exponential.h and circular.h.
 *
 * A reciprocal begins with a seed and takes Newton's steps. Such processors have an instruction for the seed (RCPSP,
 * RSQRSP, eight bits); here it is one subtraction from the bits, which gives three to four, and so one step more.
 * Relative errors, as a test bounds them: below 2e-6 in single and 2e-14 in double precision, for arguments whose
 * results and reciprocals are normal numbers; sin and cos up to an angle of 10^4 and absolutely; pow to as many times
 * more as its exponent is large. Zeros, infinities, NaN and subnormal numbers are not treated.
 *
 * No form branches: a compiler for such a processor computes both values and predicates the moves, so that a loop over
 * elements is one block, which it software-pipelines. Masks stand in place of predicates here.
 */
#ifndef PROGRAMS_DSP_H
#define PROGRAMS_DSP_H

#include "common.h"

#if T_BYTES == 8
typedef uint64_t dsp_bits;
typedef int64_t dsp_int;
#define DSP_OF nd_f64_of_bits_
#define DSP_TO nd_bits_of_f64_
#define DSP_MANTISSA 52
#define DSP_ONE 0x3ff0000000000000ull
#define DSP_RECIP 0x7fde6238502484baull
#define DSP_RSQRT 0x5fe6eb50c7b537a9ull
#define DSP_STEPS 5
#define DSP_ROOT_STEPS 4
#define DSP_ROUND 0x1.8p52
#define FMA __builtin_fma
#define FABS __builtin_fabs
#define FMIN __builtin_fmin
#define FMAX __builtin_fmax
#define COPYSIGN __builtin_copysign
#else
typedef uint32_t dsp_bits;
typedef int32_t dsp_int;
#define DSP_OF nd_f32_of_bits_
#define DSP_TO nd_bits_of_f32_
#define DSP_MANTISSA 23
#define DSP_ONE 0x3f800000u
#define DSP_RECIP 0x7ef311c7u
#define DSP_RSQRT 0x5f375a86u
#define DSP_STEPS 3
#define DSP_ROOT_STEPS 3
#define DSP_ROUND 0x1.8p23f
#define FMA __builtin_fmaf
#define FABS __builtin_fabsf
#define FMIN __builtin_fminf
#define FMAX __builtin_fmaxf
#define COPYSIGN __builtin_copysignf
#endif
#define BIAS (DSP_ONE >> DSP_MANTISSA)
#define DSP static inline __attribute__((always_inline))

#define DSP_SIGN ((dsp_bits)1 << (8 * T_BYTES - 1))

/* All ones where the condition, 0 or 1, holds. Clang would make branches of masks that it knows to be conditions. */
DSP dsp_bits mask_of(dsp_bits condition) {
    dsp_bits mask = (dsp_bits)0 - condition;
    __asm__("" : "+r"(mask));
    return mask;
}

/* The value where the mask is all ones; 0 elsewhere. */
DSP T masked(dsp_bits mask, T value) { return DSP_OF(DSP_TO(value) & mask); }

/* One value where the mask is all ones, the other one elsewhere. */
DSP T select(dsp_bits mask, T one, T other) {
    dsp_bits bits = DSP_TO(other);
    return DSP_OF(bits ^ ((bits ^ DSP_TO(one)) & mask));
}

/* A polynomial by Horner's rule, from the highest coefficient. */
#define HORNER(x, ...)                                                                                     \
    __extension__({                                                                                        \
        static const T horner_c_[] = {__VA_ARGS__};                                                        \
        T horner_ = horner_c_[0];                                                                          \
        UNROLL_ALL for (unsigned h_ = 1; h_ < sizeof horner_c_ / sizeof horner_c_[0]; h_++) horner_ =      \
            FMA(horner_, (x), horner_c_[h_]);                                                              \
        horner_;                                                                                           \
    })

DSP T dsp_recip(T x) {
    dsp_bits bits = DSP_TO(x), sign = bits & DSP_SIGN;
    T y = DSP_OF((dsp_bits)(DSP_RECIP - (bits ^ sign)) | sign);
    UNROLL_ALL for (int i = 0; i < DSP_STEPS; i++) y = FMA(y, FMA(-x, y, (T)1), y);
    return y;
}

DSP T dsp_rsqrt(T x) {
    T y = DSP_OF((dsp_bits)(DSP_RSQRT - (DSP_TO(x) >> 1))), half = (T)0.5 * x;
    UNROLL_ALL for (int i = 0; i < DSP_ROOT_STEPS; i++) y = y * FMA(-half * y, y, (T)1.5);
    return y;
}

DSP T dsp_div(T a, T b) { return a * dsp_recip(b); }
DSP T dsp_sqrt(T x) { return x * dsp_rsqrt(x); }

/* The nearest integer, as a float and as bits. */
DSP T nearest(T x, dsp_int *whole) {
    T up = x + (T)DSP_ROUND;
    *whole = (dsp_int)(DSP_TO(up) - DSP_TO((T)DSP_ROUND));
    return up - (T)DSP_ROUND;
}

/* 2^k e^r, |r| < 0.35. */
DSP T raised(T r, dsp_int k) {
#if T_BYTES == 8
    T value = HORNER(r, 1 / 479001600., 1 / 39916800., 1 / 3628800., 1 / 362880., 1 / 40320., 1 / 5040., 1 / 720.,
                     1 / 120., 1 / 24., 1 / 6., 0.5, 1, 1);
#else
    T value = HORNER(r, 1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 0.5f, 1, 1);
#endif
    return DSP_OF(DSP_TO(value) + ((dsp_bits)k << DSP_MANTISSA));
}

#define LN2_TOP ((T)0x1.62e4p-1)
#define LN2_END ((T)0x1.7f7d1cf79abcap-20)

DSP T dsp_exp(T x) {
    dsp_int k;
    T by = nearest(x * (T)1.4426950408889634, &k);
    return raised(FMA(-by, LN2_END, FMA(-by, LN2_TOP, x)), k);
}

DSP T dsp_exp2(T x) {
    dsp_int k;
    T by = nearest(x, &k);
    return raised((x - by) * (T)0.6931471805599453, k);
}

DSP T dsp_exp10(T x) {
    dsp_int k;
    T by = nearest(x * (T)3.321928094887362, &k);
    /* log10 of 2 in two parts, so that the difference keeps its digits. */
    T rest = FMA(-by, (T)0x1.3509f79fef312p-18, FMA(-by, (T)0x1.344p-2, x));
    return raised(rest * (T)2.302585092994046, k);
}

/* ln of the mantissa, from sqrt(1/2) to sqrt(2), and the exponent. */
DSP T of_mantissa(T x, T *exponent) {
    dsp_bits bits = DSP_TO(x), above = bits - DSP_TO((T)0.7071067811865476);
    dsp_int k = (dsp_int)above >> DSP_MANTISSA;
    *exponent = (T)k;
    T m = DSP_OF(bits - ((dsp_bits)k << DSP_MANTISSA)), s = (m - 1) * dsp_recip(m + 1), z = s * s;
#if T_BYTES == 8
    T tail = HORNER(z, 1 / 21., 1 / 19., 1 / 17., 1 / 15., 1 / 13., 1 / 11., 1 / 9., 1 / 7., 1 / 5., 1 / 3.);
#else
    T tail = HORNER(z, 1 / 9.f, 1 / 7.f, 1 / 5.f, 1 / 3.f);
#endif
    return 2 * FMA(s * z, tail, s);
}

DSP T dsp_log(T x) {
    T k, m = of_mantissa(x, &k);
    return FMA(k, LN2_TOP, FMA(k, LN2_END, m));
}

DSP T dsp_log2(T x) {
    T k, m = of_mantissa(x, &k);
    return FMA(m, (T)1.4426950408889634, k);
}

DSP T dsp_log10(T x) { return dsp_log(x) * (T)0.4342944819032518; }
DSP T dsp_pow(T x, T y) { return dsp_exp2(y * dsp_log2(x)); }

/* Sine and cosine of |r| <= pi/4. */
DSP T sine(T r, T z) {
#if T_BYTES == 8
    return FMA(r * z, HORNER(z, -1 / 1307674368000., 1 / 6227020800., -1 / 39916800., 1 / 362880., -1 / 5040., 1 / 120.,
                             -1 / 6.), r);
#else
    return FMA(r * z, HORNER(z, 1 / 362880.f, -1 / 5040.f, 1 / 120.f, -1 / 6.f), r);
#endif
}

DSP T cosine(T z) {
#if T_BYTES == 8
    return HORNER(z, 1 / 20922789888000., -1 / 87178291200., 1 / 479001600., -1 / 3628800., 1 / 40320., -1 / 720.,
                  1 / 24., -0.5, 1);
#else
    return HORNER(z, 1 / 40320.f, -1 / 720.f, 1 / 24.f, -0.5f, 1);
#endif
}

/* Sine of x plus `quarters` right angles. */
DSP T turned(T x, dsp_int quarters) {
    dsp_int k;
    T by = nearest(x * (T)0.6366197723675814, &k);
#if T_BYTES == 8
    T r = FMA(-by, 0x1.0b4611a626331p-34, FMA(-by, 0x1.921fb544p+0, x));
#else
    T r = FMA(-by, -0x1.777a5cp-25f, FMA(-by, 0x1.921fb6p+0f, x));
#endif
    T z = r * r;
    k += quarters;
    T value = select(mask_of((dsp_bits)k & 1), cosine(z), sine(r, z));
    return DSP_OF(DSP_TO(value) ^ ((dsp_bits)(k & 2) << (8 * T_BYTES - 2)));
}

DSP T dsp_sin(T x) { return turned(x, 0); }
DSP T dsp_cos(T x) { return turned(x, 1); }

#define QUARTER ((T)0.7853981633974483)

/* Arc tangent of x from 0 to 1: below tan(pi/8) by its series, above it that of (x - 1) / (x + 1) and a quarter of pi
 * more. */
DSP T of_small(T x) {
    dsp_bits above = mask_of(x > (T)0.4142135623730950);
    T one = masked(above, 1), y = (x - one) * dsp_recip(FMA(one, x, (T)1)), z = y * y;
#if T_BYTES == 8
    T tail = HORNER(z, -1 / 39., 1 / 37., -1 / 35., 1 / 33., -1 / 31., 1 / 29., -1 / 27., 1 / 25., -1 / 23., 1 / 21.,
                    -1 / 19., 1 / 17., -1 / 15., 1 / 13., -1 / 11., 1 / 9., -1 / 7., 1 / 5., -1 / 3.);
#else
    T tail = HORNER(z, 1 / 17.f, -1 / 15.f, 1 / 13.f, -1 / 11.f, 1 / 9.f, -1 / 7.f, 1 / 5.f, -1 / 3.f);
#endif
    return FMA(y * z, tail, y) + masked(above, QUARTER);
}

/* The base, less the value where the mask is all ones, plus it elsewhere; the base is 0 there. */
DSP T less(dsp_bits mask, T base, T value) {
    return masked(mask, base) + DSP_OF(DSP_TO(value) ^ (mask & DSP_SIGN));
}

/* The angle of the point (b, a). */
DSP T dsp_atan2(T a, T b) {
    T y = FABS(a), x = FABS(b);
    dsp_bits steep = mask_of(y > x), behind = mask_of(DSP_TO(b) >> (8 * T_BYTES - 1));
    T value = of_small(FMIN(x, y) * dsp_recip(FMAX(x, y)));
    return COPYSIGN(less(behind, 4 * QUARTER, less(steep, 2 * QUARTER, value)), a);
}

DSP T dsp_atan(T x) { return dsp_atan2(x, 1); }

#endif
