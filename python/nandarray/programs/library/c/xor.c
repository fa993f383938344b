/* xor.c: the exclusive or of all inputs, word by word: a parity, or of a parity and what is left the lost disk.
 *
 * RAID4's parity disk, and what is rebuilt of RAID4 and RAID5, whatever disk it was. Inputs have the same length, a
 * multiple of 8 bytes.
 */
#include "many.h"

#ifndef NAME
#define NAME "raid4_encode"
#endif

PROGRAM("name": NAME, "kind": KIND, "inputs": [PORTS],
        "outputs": [{"name": "parity", "dtype": "uint8", "record_bytes": 8, "bound": {"per_record": 8}}])

#if STREAM
int64_t nd_stream(nd_args *args) {
    (void)args;
    EACH_OF_STREAM(0, uint64_t) {
        uint64_t parity = load_from(0);
        UNROLL_ALL for (int d = 1; d < DISKS; d++) parity ^= load_from(d);
        nd_store_u64(0, parity);
    }
    return 0;
}
#else
/* Vectors need no steps: of these a compiler makes loads that gather. */
#if RISCV_VECTORS(8)
#define STEP 1
#else
#define STEP 4
#endif

int64_t nd_block(nd_args *args) {
    const word64 *disk[DISKS];
    for (int d = 0; d < DISKS; d++) disk[d] = ND_INPUT(args, d, word64);
    word64 *restrict parity = ND_OUTPUT(args, 0, word64);
    size_t n = args->inputs[0].bytes / 8, i = 0;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    if (!same_bytes(args)) return BAD_INPUT;
    if (args->outputs[0].bytes < n * 8) return OUTPUT_FULL;
    for (; i + STEP <= n; i += STEP) {
        uint64_t sum[STEP];
        UNROLL_ALL for (int j = 0; j < STEP; j++) sum[j] = disk[0][i + j];
        UNROLL_ALL for (int d = 1; d < DISKS; d++)
            UNROLL_ALL for (int j = 0; j < STEP; j++) sum[j] ^= disk[d][i + j];
        UNROLL_ALL for (int j = 0; j < STEP; j++) parity[i + j] = sum[j];
    }
    for (; i < n; i++) {
        uint64_t sum = disk[0][i];
        for (int d = 1; d < DISKS; d++) sum ^= disk[d][i];
        parity[i] = sum;
    }
    args->outputs[0].used = n * 8;
    return 0;
}
#endif
