/* element.h: the type of an element, a setting of the compiler, and its place among others.
 *
 * T is the type, KIND_OF_T the character that NumPy has for it: b, i, u, f, c (T is then the type of one part), M or m.
 * DTYPE and its like are texts of the metadata. Numbers that are none (NaN, NaT) stand apart from the order; complex
 * numbers are ordered by their real parts, then by the others.
 */
#ifndef CALLS_ELEMENT_H
#define CALLS_ELEMENT_H

#include <nandarray.h>

/* Expands its arguments first, so that metadata may use macros. */
#define PROGRAM(...) ND_PROGRAM(__VA_ARGS__)

enum { IS_TIME = KIND_OF_T == 'M' || KIND_OF_T == 'm' };

#if KIND_OF_T == 'c'
typedef struct {
    T re, im;
} element;
static inline int is_nonzero(element x) { return (x.re != 0) | (x.im != 0); }
static inline int is_nan(element x) { return (x.re != x.re) | (x.im != x.im); }
static inline int is_less(element a, element b) { return a.re < b.re || (a.re == b.re && a.im < b.im); }
#else
typedef T element;
static inline int is_nonzero(element x) { return x != 0; }
static inline int is_nan(element x) { return IS_TIME ? (uint64_t)x == (uint64_t)INT64_MIN : x != x; }
static inline int is_less(element a, element b) { return a < b; }
#endif

#endif
