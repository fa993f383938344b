/* elementwise.c: the twenty kernels of CoDEN (Zhang et al., table 1), one element at a time: -DOP=add ... sqrt.
 *
 * Arithmetic, recip, sqrt and scan are exact or rounded once (IEEE 754). The other ones are in exponential.h and
 * circular.h, with errors that docs/reference/programs.md has and a test bounds; for float32 they are computed in
 * double, and rounded once more. With -DDSP_FORM=1 they are those of dsp.h instead, one element an iteration: a
 * compiler for a signal processor overlaps iterations. With -DDSP_FORM=2 an iteration has two elements, whose
 * single-precision operations such a compiler pairs. atan2 is the angle of the point (b, a). -DARITY=2 for operations
 * on two arrays.
 */
#include "common.h"

#ifndef DSP_FORM
#define DSP_FORM 0
#endif
#ifndef OP
#define OP add
#define ARITY 2
#endif

#if DSP_FORM
#define UNROLLED UNROLL(DSP_FORM)
#else
#define UNROLLED UNROLL(4)
#endif
#define OP_NAME TEXT(OP)
#define SCALARS
#define RESULT T
#define RESULT_NAME DTYPE_NAME

#define ID_scan 1
#define ID_multi 2
#define ID_rsqrt 3
#define ID_exp 4
#define ID_exp2 4
#define ID_exp10 4
#define ID_log 4
#define ID_log2 4
#define ID_log10 4
#define ID_pow 4
#define ID_sin 5
#define ID_cos 5
#define ID_atan 5
#define ID_atan2 5
#define ID_OF_(op) ID_##op
#define ID_OF(op) ID_OF_(op)
#if ID_OF(OP) == ID_scan
#undef RESULT
#undef RESULT_NAME
#define RESULT uint8_t
#define RESULT_NAME "uint8"
#elif ID_OF(OP) == ID_multi
#undef SCALARS
#define SCALARS {"name": "factor", "dtype": DTYPE_NAME}
#endif

#if ARITY == 2
PROGRAM("name": OP_NAME, "kind": "block",
        "inputs": [{"name": "a", "dtype": DTYPE_NAME}, {"name": "b", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "result", "dtype": RESULT_NAME}])
#else
PROGRAM("name": OP_NAME, "kind": "block", "inputs": [{"name": "a", "dtype": DTYPE_NAME}],
        "outputs": [{"name": "result", "dtype": RESULT_NAME}], "scalars": [SCALARS])
#endif

#if DSP_FORM
#include "dsp.h"
#elif ID_OF(OP) == ID_exp
#include "exponential.h"
#elif ID_OF(OP) == ID_sin
#include "circular.h"
#elif ID_OF(OP) == ID_rsqrt
/* 1 / sqrt(x), with the rounding errors of both steps put right to first order: r = x - s * s and e = 1 - s * y are
 * exact. */
static inline double rsqrt64(double x) {
    double by = 1;
    if (x < 0x1p-900 && x > 0) x *= 0x1p200, by = 0x1p100;
    double s = __builtin_sqrt(x), y = 1.0 / s;
    if (!(y > 0 && y < __builtin_inf())) return y; /* of zeros, infinities, NaN */
    double e = __builtin_fma(-s, y, 1.0), r = __builtin_fma(-s, s, x);
    return by * (y + y * (e - 0.5 * r / x));
}
#endif

static inline __attribute__((always_inline)) RESULT apply(T a, T b, T factor) {
    (void)b, (void)factor;
#define OP_add (T)(a + b)
#define OP_sub (T)(a - b)
#define OP_mult (T)(a * b)
#define OP_multi (T)(a * factor)
#define OP_scan (RESULT)(a == b)
#if DSP_FORM
#define OP_div dsp_div(a, b)
#define OP_recip dsp_recip(a)
#define OP_sqrt dsp_sqrt(a)
#define OP_rsqrt dsp_rsqrt(a)
#define OP_atan2 dsp_atan2(a, b)
#define OP_atan dsp_atan(a)
#define OP_sin dsp_sin(a)
#define OP_cos dsp_cos(a)
#define OP_exp dsp_exp(a)
#define OP_exp2 dsp_exp2(a)
#define OP_exp10 dsp_exp10(a)
#define OP_log dsp_log(a)
#define OP_log2 dsp_log2(a)
#define OP_log10 dsp_log10(a)
#define OP_pow dsp_pow(a, b)
#else
#define OP_div (T)(a / b)
#define OP_recip (T)((T)1 / a)
#define OP_sqrt (T)(T_BYTES == 8 ? __builtin_sqrt(a) : __builtin_sqrtf((float)a))
#define OP_rsqrt (T)(T_BYTES == 8 ? rsqrt64((double)a) : 1.0 / __builtin_sqrt((double)a))
#define OP_atan2 (T)atan2_64((double)a, (double)b)
#define OP_atan (T)atan2_64((double)a, 1.0)
#define OP_sin (T)sin64((double)a)
#define OP_cos (T)cos64((double)a)
#define OP_exp (T)exp64((double)a)
#define OP_exp2 (T)exp2_64((double)a)
#define OP_exp10 (T)exp10_64((double)a)
#define OP_log (T)log64((double)a)
#define OP_log2 (T)log2_64((double)a)
#define OP_log10 (T)log10_64((double)a)
#define OP_pow (T)pow64((double)a, (double)b)
#endif
#define RUN_(op) OP_##op
#define RUN(op) RUN_(op)
    return RUN(OP);
}

int64_t nd_block(nd_args *args) {
    const T *restrict a = ND_INPUT(args, 0, T);
    RESULT *restrict result = ND_OUTPUT(args, 0, RESULT);
    size_t n = ND_INPUT_COUNT(args, 0, T);
    if (ND_OUTPUT_COUNT(args, 0, RESULT) < n) return OUTPUT_FULL;
#if ARITY == 2
    const T *restrict b = ND_INPUT(args, 1, T);
    if (args->inputs[1].bytes != args->inputs[0].bytes) return BAD_INPUT;
    UNROLLED for (size_t i = 0; i < n; i++) result[i] = apply(a[i], b[i], 0);
#else
    T factor = args->n_scalars ? t_scalar(args, 0) : 0;
    UNROLLED for (size_t i = 0; i < n; i++) result[i] = apply(a[i], 0, factor);
#endif
    ND_SET_USED(args, 0, n, RESULT);
    return 0;
}
