/* Functions that programs from Python are linked with: the memory functions of nandarray.h, and helpers that Numba
 * calls by names other than the C library's. Unused ones are not linked.
 */
#include <math.h>
#include <nandarray.h>

double numba_gamma(double x) { return tgamma(x); }
float numba_gammaf(float x) { return tgammaf(x); }
double numba_ldexp(double x, int exponent) { return ldexp(x, exponent); }
float numba_ldexpf(float x, int exponent) { return ldexpf(x, exponent); }
double numba_nextafter(double x, double to) { return nextafter(x, to); }
float numba_nextafterf(float x, float to) { return nextafterf(x, to); }

double numba_frexp(double x, int *exponent) {
    *exponent = 0;
    return isfinite(x) ? frexp(x, exponent) : x;
}

float numba_frexpf(float x, int *exponent) {
    *exponent = 0;
    return isfinite(x) ? frexpf(x, exponent) : x;
}

/* Can an array take another shape where it lies? Only if its elements are in the order of C, without gaps or with
 * equal ones. */
int numba_attempt_nocopy_reshape(intptr_t ndim, const intptr_t *dims, const intptr_t *strides, intptr_t new_ndim,
                                 const intptr_t *new_dims, intptr_t *new_strides, intptr_t itemsize,
                                 int fortran_order) {
    intptr_t step = itemsize, found = 0, elements = 1;
    for (intptr_t i = 0; i < ndim; i++) elements *= dims[i];
    for (intptr_t i = ndim - 1; i >= 0 && elements; i--) { /* the innermost axis with a length says how far apart */
        if (dims[i] == 1) continue;
        if (!found) found = 1, step = strides[i];
        intptr_t inside = 1;
        for (intptr_t k = i + 1; k < ndim; k++) inside *= dims[k];
        if (strides[i] != step * inside) return 0;
    }
    if (fortran_order && new_ndim > 1) return 0;
    for (intptr_t i = new_ndim - 1; i >= 0; i--) {
        new_strides[i] = step;
        step *= new_dims[i];
    }
    return 1;
}

#ifdef ND_NATIVE
/* The stream functions that a program from Python calls, by stream and width as in the instructions. */
#define ND_LOAD(s, width, type, wide) \
    uint64_t nd_stream_load_##s##_##width(void) { return (uint64_t)(wide)ND_NATIVE_LOAD_(s, type); }
#define ND_STORE(s, width, type) \
    void nd_stream_store_##s##_##width(uint64_t value) { ND_NATIVE_PUT_(s, type, value); }
#define ND_FUNCTIONS(s)                                                                                              \
    ND_LOAD(s, 0, int8_t, int64_t) ND_LOAD(s, 1, int16_t, int64_t) ND_LOAD(s, 2, int32_t, int64_t)                   \
    ND_LOAD(s, 3, uint64_t, uint64_t) ND_LOAD(s, 4, uint8_t, uint64_t) ND_LOAD(s, 5, uint16_t, uint64_t)             \
    ND_LOAD(s, 6, uint32_t, uint64_t) ND_STORE(s, 0, uint8_t) ND_STORE(s, 1, uint16_t) ND_STORE(s, 2, uint32_t)      \
    ND_STORE(s, 3, uint64_t) uint64_t nd_stream_at_end_##s(void) { return nd_at_end(s); }
ND_FUNCTIONS(0) ND_FUNCTIONS(1) ND_FUNCTIONS(2) ND_FUNCTIONS(3)
ND_FUNCTIONS(4) ND_FUNCTIONS(5) ND_FUNCTIONS(6) ND_FUNCTIONS(7)
#endif
