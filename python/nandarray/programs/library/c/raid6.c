/* raid6.c: P and Q of -DDISKS data disks: P the exclusive or, Q the sum of 2^i times disk i in gf256.h's field. */
#include "gf256.h"
#include "many.h"

PROGRAM("name": "raid6_encode", "kind": KIND, "inputs": [PORTS],
        "outputs": [{"name": "p", "dtype": "uint8", "record_bytes": 8, "bound": {"per_record": 8}},
                    {"name": "q", "dtype": "uint8", "record_bytes": 8, "bound": {"per_record": 8}}])

#if STREAM
int64_t nd_stream(nd_args *args) {
    (void)args;
    EACH_OF_STREAM(0, uint64_t) {
        uint64_t word[DISKS];
        UNROLL_ALL for (int d = 0; d < DISKS; d++) word[d] = load_from(d);
        uint64_t p = word[DISKS - 1], q = p;
        UNROLL_ALL for (int d = DISKS - 2; d >= 0; d--) {
            p ^= word[d];
            q = gf_double(q) ^ word[d];
        }
        nd_store_u64(0, p);
        nd_store_u64(1, q);
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const word64 *disk[DISKS];
    for (int d = 0; d < DISKS; d++) disk[d] = ND_INPUT(args, d, word64);
    word64 *restrict p_out = ND_OUTPUT(args, 0, word64), *restrict q_out = ND_OUTPUT(args, 1, word64);
    size_t n = args->inputs[0].bytes / 8;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    if (!same_bytes(args)) return BAD_INPUT;
    if (args->outputs[0].bytes < n * 8 || args->outputs[1].bytes < n * 8) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) {
        uint64_t p = disk[DISKS - 1][i], q = p;
        UNROLL_ALL for (int d = DISKS - 2; d >= 0; d--) {
            uint64_t word = disk[d][i];
            p ^= word;
            q = gf_double(q) ^ word;
        }
        p_out[i] = p;
        q_out[i] = q;
    }
    args->outputs[0].used = args->outputs[1].used = n * 8;
    return 0;
}
#endif
