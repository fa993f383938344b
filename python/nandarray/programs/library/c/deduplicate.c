/* deduplicate.c: a hash of 64 bits of each block of -DBLOCK_BYTES, so that equal blocks can be found without moving
 * them.
 *
 * The hash is XXH64 with seed 0 (Y. Collet's specification of xxHash). It is not made to withstand those who want a
 * collision: compare blocks before one of them goes, or use sha256.
 */
#include "common.h"

#ifndef BLOCK_BYTES
#define BLOCK_BYTES 4096
#endif
_Static_assert(BLOCK_BYTES % 8 == 0, "whole words");

PROGRAM("name": "deduplicate", "kind": "block",
        "inputs": [{"name": "blocks", "dtype": "uint8", "record_bytes": BLOCK_BYTES}],
        "outputs": [{"name": "hash", "dtype": "uint64"}])

#define PRIME1 0x9e3779b185ebca87ull
#define PRIME2 0xc2b2ae3d27d4eb4full
#define PRIME3 0x165667b19e3779f9ull
#define PRIME4 0x85ebca77c2b2ae63ull
#define PRIME5 0x27d4eb2f165667c5ull

static inline uint64_t left(uint64_t v, unsigned by) { return v << by | v >> (64 - by); }
static inline uint64_t round_of(uint64_t lane, uint64_t word) { return left(lane + word * PRIME2, 31) * PRIME1; }
static inline uint64_t merged(uint64_t hash, uint64_t lane) { return (hash ^ round_of(0, lane)) * PRIME1 + PRIME4; }

static uint64_t hash_of(const word64 *restrict word) {
    size_t n = BLOCK_BYTES / 8, i = 0;
    uint64_t hash = PRIME5;
    if (BLOCK_BYTES >= 32) {
        uint64_t a = PRIME1 + PRIME2, b = PRIME2, c = 0, d = 0 - PRIME1;
        for (; i + 4 <= n; i += 4) {
            a = round_of(a, word[i]);
            b = round_of(b, word[i + 1]);
            c = round_of(c, word[i + 2]);
            d = round_of(d, word[i + 3]);
        }
        hash = left(a, 1) + left(b, 7) + left(c, 12) + left(d, 18);
        hash = merged(merged(merged(merged(hash, a), b), c), d);
    }
    hash += BLOCK_BYTES;
    for (; i < n; i++) hash = left(hash ^ round_of(0, word[i]), 27) * PRIME1 + PRIME4;
    hash = (hash ^ hash >> 33) * PRIME2;
    hash = (hash ^ hash >> 29) * PRIME3;
    return hash ^ hash >> 32;
}

int64_t nd_block(nd_args *args) {
    const word64 *blocks = ND_INPUT(args, 0, word64);
    uint64_t *restrict hash = ND_OUTPUT(args, 0, uint64_t);
    size_t n = args->inputs[0].bytes / BLOCK_BYTES;
    if (args->inputs[0].bytes % BLOCK_BYTES) return BAD_INPUT;
    if (ND_OUTPUT_COUNT(args, 0, uint64_t) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) hash[i] = hash_of(blocks + i * (BLOCK_BYTES / 8));
    ND_SET_USED(args, 0, n, uint64_t);
    return 0;
}
