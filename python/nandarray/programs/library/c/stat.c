/* stat.c: the sum of a column of 32-bit integers in 32 bits, wrapping: what a core of 32 bits computes at once.
 *
 * "Stat" of the ASSASIN dissertation (7.3.2: summing a column). sum.c has the sums that do not wrap so soon.
 */
#include "common.h"

PROGRAM("name": "stat", "kind": KIND, "inputs": [{"name": "x", "dtype": "int32"}],
        "outputs": [{"name": "result", "dtype": "int32", "phase": "end"}], "state_bytes": 4)

#if STREAM
int64_t nd_stream(nd_args *args) {
    uint32_t total = 0;
    while (!nd_at_end(0))
        UNROLL(8) for (size_t ready = READY(0, uint32_t); ready; ready--) total += nd_load_u32(0);
    *ND_STATE(args, uint32_t) += total;
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const uint32_t *restrict x = ND_INPUT(args, 0, uint32_t);
    size_t n = ND_INPUT_COUNT(args, 0, uint32_t);
    uint32_t total = 0;
    UNROLL(8) for (size_t i = 0; i < n; i++) total += x[i];
    *ND_STATE(args, uint32_t) += total;
    return 0;
}
#endif

int64_t nd_merge(nd_args *args) {
    *ND_STATE(args, uint32_t) += *ND_OTHER_STATE(args, uint32_t);
    return 0;
}

int64_t nd_end(nd_args *args) {
    *ND_OUTPUT(args, 0, uint32_t) = *ND_STATE(args, uint32_t);
    ND_SET_USED(args, 0, 1, uint32_t);
    return 0;
}
