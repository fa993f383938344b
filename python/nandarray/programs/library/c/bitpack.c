/* bitpack.c: of each unsigned element only the lowest -DWIDTH bits, one behind the other; what is above them is
 * dropped.
 *
 * Bits fill bytes from the lowest one: element i has the bits from i * WIDTH of the result as one little-endian
 * number. A record is 32 elements, that is 4 * WIDTH bytes; a last record with fewer ends with zeros up to a byte.
 */
#ifndef DTYPE
#define DTYPE uint8
#endif
#include "common.h"

#ifndef WIDTH
#define WIDTH 5
#define IN_BYTES 32
#define OUT_BYTES 20
#endif
_Static_assert(WIDTH >= 1 && WIDTH <= 32 && WIDTH <= 8 * T_BYTES, "no more than there is");
_Static_assert(IN_BYTES == 32 * T_BYTES && OUT_BYTES == 4 * WIDTH, "a record is 32 elements");

PROGRAM("name": "bitpack", "kind": KIND, "inputs": [{"name": "x", "dtype": DTYPE_NAME, "record_bytes": IN_BYTES}],
        "outputs": [{"name": "packed", "dtype": "uint8", "record_bytes": OUT_BYTES}])

#define MASK ((uint32_t)(0xffffffffu >> (32 - WIDTH)))

#if STREAM
int64_t nd_stream(nd_args *args) {
    (void)args;
    uint64_t waiting = 0;
    unsigned bits = 0;
    EACH_OF_STREAM(0, T) {
        waiting |= (uint64_t)((uint32_t)T_LOAD(0) & MASK) << bits;
        bits += WIDTH;
        if (bits >= 32) {
            nd_store_u32(0, waiting);
            waiting >>= 32;
            bits -= 32;
        }
    }
    for (int left = (int)bits; left > 0; left -= 8, waiting >>= 8) nd_store_u8(0, waiting);
    return 0;
}
#else
/* All shifts are constants, once this is unrolled. */
static inline void pack(const T *restrict x, uint32_t *restrict to) {
    uint64_t waiting = 0;
    unsigned bits = 0;
    UNROLL_ALL for (int i = 0; i < 32; i++) {
        waiting |= (uint64_t)((uint32_t)x[i] & MASK) << bits;
        bits += WIDTH;
        if (bits >= 32) {
            *to++ = (uint32_t)waiting;
            waiting >>= 32;
            bits -= 32;
        }
    }
}

int64_t nd_block(nd_args *args) {
    const T *restrict x = ND_INPUT(args, 0, T);
    uint32_t *restrict to = ND_OUTPUT(args, 0, uint32_t);
    size_t n = ND_INPUT_COUNT(args, 0, T), i = 0;
    uint64_t used = ((uint64_t)n * WIDTH + 7) / 8;
    if (args->outputs[0].bytes < used) return OUTPUT_FULL;
    for (; i + 32 <= n; i += 32, to += WIDTH) pack(x + i, to);
    unsigned char *byte = (unsigned char *)to;
    uint64_t waiting = 0;
    int bits = 0;
    for (; i < n; i++) {
        waiting |= (uint64_t)((uint32_t)x[i] & MASK) << bits;
        for (bits += WIDTH; bits >= 8; bits -= 8, waiting >>= 8) *byte++ = (unsigned char)waiting;
    }
    if (bits) *byte = (unsigned char)waiting;
    args->outputs[0].used = used;
    return 0;
}
#endif
