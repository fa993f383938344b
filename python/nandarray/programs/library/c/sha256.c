/* sha256.c: SHA-256 (FIPS 180-4) of each block of -DBLOCK_BYTES: deduplication that withstands collisions made on
 * purpose. */
#include "common.h"

#ifndef BLOCK_BYTES
#define BLOCK_BYTES 4096
#endif

PROGRAM("name": "sha256", "kind": "block",
        "inputs": [{"name": "blocks", "dtype": "uint8", "record_bytes": BLOCK_BYTES}],
        "outputs": [{"name": "digest", "dtype": "uint8", "record_bytes": 32}])

#define LINE 64

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t right(uint32_t v, unsigned by) { return v >> by | v << (32 - by); }
static inline uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void take(uint32_t hash[8], const unsigned char *line) {
    uint32_t w[64];
    uint32_t a = hash[0], b = hash[1], c = hash[2], d = hash[3], e = hash[4], f = hash[5], g = hash[6], h = hash[7];
    for (int i = 0; i < 16; i++) w[i] = big_endian(line + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (right(x, 7) ^ right(x, 18) ^ x >> 3) + w[i - 7] + (right(y, 17) ^ right(y, 19) ^ y >> 10);
    }
    UNROLL(8) for (int i = 0; i < 64; i++) {
        uint32_t t1 = h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + (g ^ (e & (f ^ g))) + constants[i] + w[i];
        uint32_t t2 = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & b) | (c & (a | b)));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    hash[0] += a, hash[1] += b, hash[2] += c, hash[3] += d, hash[4] += e, hash[5] += f, hash[6] += g, hash[7] += h;
}

static void digest(const unsigned char *data, unsigned char *to) {
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t at = 0;
    for (; at + LINE <= BLOCK_BYTES; at += LINE) take(hash, data + at);
    unsigned char tail[2 * LINE] = {0};
    size_t rest = BLOCK_BYTES - at, lines = rest + 9 <= LINE ? 1 : 2;
    for (size_t i = 0; i < rest; i++) tail[i] = data[at + i];
    tail[rest] = 0x80;
    uint64_t bits = 8ull * BLOCK_BYTES;
    for (int i = 0; i < 8; i++) tail[lines * LINE - 1 - i] = (unsigned char)(bits >> 8 * i);
    for (size_t i = 0; i < lines; i++) take(hash, tail + i * LINE);
    for (int i = 0; i < 32; i++) to[i] = (unsigned char)(hash[i / 4] >> (24 - 8 * (i % 4)));
}

int64_t nd_block(nd_args *args) {
    const unsigned char *blocks = ND_INPUT(args, 0, unsigned char);
    unsigned char *to = ND_OUTPUT(args, 0, unsigned char);
    size_t n = args->inputs[0].bytes / BLOCK_BYTES;
    if (args->inputs[0].bytes % BLOCK_BYTES) return BAD_INPUT;
    if (args->outputs[0].bytes < n * 32) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) digest(blocks + i * BLOCK_BYTES, to + i * 32);
    args->outputs[0].used = n * 32;
    return 0;
}
