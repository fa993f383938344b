/* gf256.h: the field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and the generator 2.
 *
 * The one of RAID6 (H. P. Anvin, "The mathematics of RAID-6"). Eight elements at a time in a word, without tables.
 */
#ifndef PROGRAMS_GF256_H
#define PROGRAMS_GF256_H

#include "common.h"

/* Eight elements times 2. A compiler that knows the factor makes five shifts and additions of the multiplication. */
static inline uint64_t gf_double(uint64_t v) {
    uint64_t polynomial = 0x1d;
    __asm__("" : "+r"(polynomial));
    return ((v & 0x7f7f7f7f7f7f7f7full) << 1) ^ ((v >> 7 & 0x0101010101010101ull) * polynomial);
}

/* Eight elements times one. */
static inline uint64_t gf_times(uint64_t v, uint8_t by) {
    if (by <= 1) return by ? v : 0;
    uint64_t product = 0;
    UNROLL_ALL for (int bit = 7; bit >= 0; bit--) product = gf_double(product) ^ (v & (0 - (uint64_t)(by >> bit & 1)));
    return product;
}

/* 2 to the power of n. */
static inline uint8_t gf_power(unsigned n) {
    uint64_t v = 1;
    while (n--) v = gf_double(v);
    return (uint8_t)v;
}

/* a to the power of 254; the inverse, as 255 powers are all there are. */
static inline uint8_t gf_inverse(uint8_t a) {
    uint8_t found = 1;
    for (int i = 0; i < 254; i++) found = (uint8_t)gf_times(found, a);
    return found;
}

#endif
