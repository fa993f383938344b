/* replicate.c: the input, -DCOPIES times. */
#include "common.h"

#ifndef COPIES
#define COPIES 3
#define RESULTS \
    {"name": "copy0", "dtype": "uint8", "record_bytes": 8}, {"name": "copy1", "dtype": "uint8", "record_bytes": 8}, \
    {"name": "copy2", "dtype": "uint8", "record_bytes": 8}
#endif

PROGRAM("name": "replicate", "kind": KIND, "inputs": [{"name": "data", "dtype": "uint8", "record_bytes": 8}],
        "outputs": [RESULTS])

#if STREAM
#define DISKS COPIES
#include "many.h"

int64_t nd_stream(nd_args *args) {
    (void)args;
    EACH_OF_STREAM(0, uint64_t) {
        uint64_t word = nd_load_u64(0);
        UNROLL_ALL for (int c = 0; c < COPIES; c++) store_to(c, word);
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const word64 *restrict data = ND_INPUT(args, 0, word64);
    size_t n = args->inputs[0].bytes / 8;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    word64 *to[COPIES];
    for (int c = 0; c < COPIES; c++) {
        to[c] = ND_OUTPUT(args, c, word64);
        if (args->outputs[c].bytes < n * 8) return OUTPUT_FULL;
        args->outputs[c].used = n * 8;
    }
    UNROLL(4) for (size_t i = 0; i < n; i++) {
        uint64_t word = data[i];
        UNROLL_ALL for (int c = 0; c < COPIES; c++) to[c][i] = word;
    }
    return 0;
}
#endif
