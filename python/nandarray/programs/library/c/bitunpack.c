/* bitunpack.c: what bitpack.c packed: unsigned elements from -DWIDTH bits each.
 *
 * A record is 4 * WIDTH bytes, that is 32 elements. A last record that is shorter gives the elements that are whole
 * in it; as the zeros at its end may look like some, the scalar count says how many there are in the whole input.
 */
#ifndef DTYPE
#define DTYPE uint8
#endif
#include "common.h"

#ifndef WIDTH
#define WIDTH 5
#define IN_BYTES 20
#define OUT_BYTES 32
#endif
_Static_assert(WIDTH >= 1 && WIDTH <= 32 && WIDTH <= 8 * T_BYTES, "no more than there is room for");
_Static_assert(OUT_BYTES == 32 * T_BYTES && IN_BYTES == 4 * WIDTH, "a record is 32 elements");

PROGRAM("name": "bitunpack", "kind": KIND, "inputs": [{"name": "packed", "dtype": "uint8", "record_bytes": IN_BYTES}],
        "outputs": [{"name": "x", "dtype": DTYPE_NAME, "record_bytes": OUT_BYTES}],
        "scalars": [{"name": "count", "dtype": "uint64", "default": 18446744073709551615}])

#define MASK (0xffffffffu >> (32 - WIDTH))

/* The most elements that this task may give. */
static inline uint64_t allowed(const nd_args *args) {
    uint64_t count = nd_scalar_u64(args, 0), before = 32 * args->first_record;
    return count > before ? count - before : 0;
}

#if STREAM
int64_t nd_stream(nd_args *args) {
    uint64_t waiting = 0, left = allowed(args);
    unsigned bits = 0;
    while (!nd_at_end(0)) {
        if (nd_wait(0, 4) == 4) {
            waiting |= (uint64_t)nd_load_u32(0) << bits;
            bits += 32;
        } else {
            waiting |= (uint64_t)nd_load_u8(0) << bits;
            bits += 8;
        }
        for (; bits >= WIDTH; bits -= WIDTH, waiting >>= WIDTH)
            if (left) T_STORE(0, (T)(waiting & MASK)), left--;
    }
    return 0;
}
#else
/* All shifts are constants, once this is unrolled. */
static inline void unpack(const uint32_t *restrict from, T *restrict x) {
    uint64_t waiting = 0;
    unsigned bits = 0;
    UNROLL_ALL for (int i = 0; i < 32; i++) {
        if (bits < WIDTH) {
            waiting |= (uint64_t)*from++ << bits;
            bits += 32;
        }
        x[i] = (T)(waiting & MASK);
        waiting >>= WIDTH;
        bits -= WIDTH;
    }
}

int64_t nd_block(nd_args *args) {
    const uint32_t *restrict from = ND_INPUT(args, 0, uint32_t);
    T *restrict x = ND_OUTPUT(args, 0, T);
    uint64_t n = args->inputs[0].bytes * 8 / WIDTH, most = allowed(args), i = 0;
    n = n < most ? n : most;
    if (args->outputs[0].bytes / sizeof(T) < n) return OUTPUT_FULL;
    for (; i + 32 <= n; i += 32, from += WIDTH) unpack(from, x + i);
    const unsigned char *byte = (const unsigned char *)from;
    uint64_t waiting = 0;
    unsigned bits = 0;
    for (; i < n; i++) {
        for (; bits < WIDTH; bits += 8) waiting |= (uint64_t)*byte++ << bits;
        x[i] = (T)(waiting & MASK);
        waiting >>= WIDTH;
        bits -= WIDTH;
    }
    ND_SET_USED(args, 0, n, T);
    return 0;
}
#endif
