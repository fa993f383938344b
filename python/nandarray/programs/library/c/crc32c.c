/* crc32c.c: the CRC-32C of each block of -DBLOCK_BYTES. */
#include "crc32c.h"

#ifndef BLOCK_BYTES
#define BLOCK_BYTES 4096
#endif
_Static_assert(BLOCK_BYTES % 8 == 0, "whole words");

PROGRAM("name": "crc32c", "kind": "block",
        "inputs": [{"name": "blocks", "dtype": "uint8", "record_bytes": BLOCK_BYTES}],
        "outputs": [{"name": "crc", "dtype": "uint32"}], "scratchpad_bytes": 8192)

int64_t nd_block(nd_args *args) {
    const unsigned char *blocks = ND_INPUT(args, 0, unsigned char);
    uint32_t *restrict crc = ND_OUTPUT(args, 0, uint32_t);
    crc_tables *tables = ND_SCRATCHPAD(args, crc_tables);
    size_t n = args->inputs[0].bytes / BLOCK_BYTES;
    if (args->inputs[0].bytes % BLOCK_BYTES) return BAD_INPUT;
    if (ND_OUTPUT_COUNT(args, 0, uint32_t) < n) return OUTPUT_FULL;
    crc_make_tables(tables);
    for (size_t i = 0; i < n; i++) crc[i] = crc32c(tables, blocks + i * BLOCK_BYTES, BLOCK_BYTES);
    ND_SET_USED(args, 0, n, uint32_t);
    return 0;
}
