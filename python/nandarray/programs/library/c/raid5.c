/* raid5.c: data to -DDISKS disks with a rotating parity (left-symmetric, as Linux's md has it by default).
 *
 * A stripe is DISKS - 1 chunks of -DCHUNK_BYTES. In stripe s the parity is on disk DISKS - 1 - s mod DISKS, and the
 * data follow on the next disks, the first one behind the last. Stripes count from the beginning of the whole input.
 */
#include "many.h"

#ifndef CHUNK_BYTES
#define CHUNK_BYTES 4096
#define STRIPE_BYTES 12288
#define RESULTS                                                            \
    {"name": "disk0", "dtype": "uint8", "record_bytes": CHUNK_BYTES},      \
    {"name": "disk1", "dtype": "uint8", "record_bytes": CHUNK_BYTES},      \
    {"name": "disk2", "dtype": "uint8", "record_bytes": CHUNK_BYTES},      \
    {"name": "disk3", "dtype": "uint8", "record_bytes": CHUNK_BYTES}
#endif
_Static_assert(CHUNK_BYTES % 8 == 0 && STRIPE_BYTES == (DISKS - 1) * CHUNK_BYTES, "a stripe is whole chunks");

PROGRAM("name": "raid5_encode", "kind": "block",
        "inputs": [{"name": "data", "dtype": "uint8", "record_bytes": STRIPE_BYTES}], "outputs": [RESULTS])

#define WORDS (CHUNK_BYTES / 8)

static void stripe(const word64 *restrict data, word64 *const disk[DISKS], size_t at, unsigned parity_disk) {
    word64 *restrict parity = disk[parity_disk] + at;
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t sum = data[i];
        UNROLL_ALL for (int j = 1; j < DISKS - 1; j++) sum ^= data[j * WORDS + i];
        parity[i] = sum;
    }
    for (unsigned j = 0; j < DISKS - 1; j++) {
        unsigned to = (parity_disk + 1 + j) % DISKS;
        __builtin_memcpy(disk[to] + at, data + j * WORDS, CHUNK_BYTES);
    }
}

int64_t nd_block(nd_args *args) {
    const word64 *data = ND_INPUT(args, 0, word64);
    size_t stripes = args->inputs[0].bytes / STRIPE_BYTES;
    if (args->inputs[0].bytes % STRIPE_BYTES) return BAD_INPUT;
    word64 *disk[DISKS];
    for (int d = 0; d < DISKS; d++) {
        disk[d] = ND_OUTPUT(args, d, word64);
        if (args->outputs[d].bytes < stripes * CHUNK_BYTES) return OUTPUT_FULL;
        args->outputs[d].used = stripes * CHUNK_BYTES;
    }
    for (size_t s = 0; s < stripes; s++)
        stripe(data + s * (STRIPE_BYTES / 8), disk, s * WORDS,
               DISKS - 1 - (unsigned)((args->first_record + s) % DISKS));
    return 0;
}
