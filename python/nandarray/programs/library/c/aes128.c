/* aes128.c: AES with a key of 128 bits (FIPS 197): -DMODE=0 encrypts, 1 decrypts, each block of 16 bytes by itself;
 * 2 is counter mode (SP 800-38A, 6.5), which encrypts and decrypts.
 *
 * By itself the block cipher shows which blocks are equal: for data use counter mode, and a start value only once
 * with a key. The counter of a block is the start value, a number of 128 bits with its highest byte first, plus the
 * block's number in the whole input. Tables and the key schedule are made in the scratchpad, task by task. Tables
 * make the time depend on key and data: this is no protection from an attacker who can measure the core.
 */
#include "common.h"

#ifndef MODE
#define MODE 0
#endif
#if MODE == 0
#define NAME "aes128_encrypt"
#elif MODE == 1
#define NAME "aes128_decrypt"
#else
#define NAME "aes128_ctr"
#endif
#if MODE == 2
#define SCALARS                                                                                                \
    {"name": "key_low", "dtype": "uint64"}, {"name": "key_high", "dtype": "uint64"},                           \
    {"name": "start_low", "dtype": "uint64"}, {"name": "start_high", "dtype": "uint64"}
#else
#define SCALARS {"name": "key_low", "dtype": "uint64"}, {"name": "key_high", "dtype": "uint64"}
#endif

PROGRAM("name": NAME, "kind": KIND, "inputs": [{"name": "data", "dtype": "uint8", "record_bytes": 16}],
        "outputs": [{"name": "result", "dtype": "uint8", "record_bytes": 16}], "scalars": [SCALARS],
        "scratchpad_bytes": 4784)

#define ROUNDS 10

typedef struct {
    uint32_t table[4][256]; /* a round's substitution and mixing of a byte in row 0, 1, 2, 3 of a column */
    uint32_t key[4 * (ROUNDS + 1)];
    uint8_t box[256];  /* S-box */
    uint8_t last[256]; /* what the last round substitutes by: the S-box, or its inverse */
} cipher;
_Static_assert(sizeof(cipher) == 4784, "metadata says so");

/* A column is a word, row 0 in its lowest byte. */
#define BYTE(word, row) ((word) >> (8 * (row)) & 0xff)

static inline uint32_t left(uint32_t word, unsigned by) { return word << by | word >> (32 - by); }
static inline uint8_t twice(uint8_t a) { return (uint8_t)(a << 1 ^ (a >> 7) * 0x1b); }

static uint8_t times(uint8_t a, uint8_t b) {
    uint8_t product = 0;
    for (; b; b >>= 1, a = twice(a)) product ^= b & 1 ? a : 0;
    return product;
}

/* p runs through all powers of 3, q through their inverses. */
static void make_box(uint8_t box[256]) {
    uint8_t p = 1, q = 1;
    do {
        p ^= twice(p);
        q ^= (uint8_t)(q << 1);
        q ^= (uint8_t)(q << 2);
        q ^= (uint8_t)(q << 4);
        q ^= (uint8_t)((q >> 7) * 0x09);
        unsigned doubled = q | (unsigned)q << 8;
        box[p] = (uint8_t)(doubled ^ doubled >> 7 ^ doubled >> 6 ^ doubled >> 5 ^ doubled >> 4 ^ 0x63);
    } while (p != 1);
    box[0] = 0x63;
}

static uint32_t mixed_back(uint8_t a) {
    return times(a, 14) | (uint32_t)times(a, 9) << 8 | (uint32_t)times(a, 13) << 16 | (uint32_t)times(a, 11) << 24;
}

static void make_tables(cipher *c) {
    make_box(c->box);
    for (unsigned i = 0; i < 256; i++) {
        uint8_t s = c->box[i];
        uint32_t column = twice(s) | (uint32_t)s << 8 | (uint32_t)s << 16 | (uint32_t)(twice(s) ^ s) << 24;
        unsigned at = i;
        c->last[i] = s;
        if (MODE == 1) column = mixed_back((uint8_t)i), at = s;
        c->table[0][at] = column;
        for (unsigned row = 1; row < 4; row++) c->table[row][at] = left(column, 8 * row);
    }
    if (MODE == 1)
        for (unsigned i = 0; i < 256; i++) c->last[c->box[i]] = (uint8_t)i;
}

static void make_key(cipher *c, uint64_t low, uint64_t high) {
    uint32_t *key = c->key;
    uint8_t round = 1;
    key[0] = (uint32_t)low, key[1] = (uint32_t)(low >> 32), key[2] = (uint32_t)high, key[3] = (uint32_t)(high >> 32);
    for (int i = 4; i < 4 * (ROUNDS + 1); i++) {
        uint32_t word = key[i - 1];
        if (i % 4 == 0) {
            word = left(word, 24);
            word = c->box[BYTE(word, 0)] | (uint32_t)c->box[BYTE(word, 1)] << 8 |
                   (uint32_t)c->box[BYTE(word, 2)] << 16 | (uint32_t)c->box[BYTE(word, 3)] << 24;
            word ^= round;
            round = twice(round);
        }
        key[i] = key[i - 4] ^ word;
    }
    if (MODE == 1) /* the equivalent inverse cipher (FIPS 197, 5.3.5) mixes keys back, too */
        for (int i = 4; i < 4 * ROUNDS; i++) {
            uint32_t word = 0;
            for (unsigned row = 0; row < 4; row++) word ^= left(mixed_back((uint8_t)BYTE(key[i], row)), 8 * row);
            key[i] = word;
        }
}

/* The column that row R of column C comes from. */
#define FROM(c, r) (((c) + (MODE == 1 ? 4 - (r) : (r))) % 4)
/* The number of round R's key, from the first that is used. */
#define KEY(r) (4 * (MODE == 1 ? ROUNDS - (r) : (r)))

static inline __attribute__((always_inline)) void crypt(const cipher *restrict c, uint32_t block[4]) {
    uint32_t state[4], next[4];
    for (int i = 0; i < 4; i++) state[i] = block[i] ^ c->key[KEY(0) + i];
    for (int round = 1; round < ROUNDS; round++) {
        UNROLL_ALL for (int i = 0; i < 4; i++)
            next[i] = c->table[0][BYTE(state[i], 0)] ^ c->table[1][BYTE(state[FROM(i, 1)], 1)] ^
                      c->table[2][BYTE(state[FROM(i, 2)], 2)] ^ c->table[3][BYTE(state[FROM(i, 3)], 3)] ^
                      c->key[KEY(round) + i];
        for (int i = 0; i < 4; i++) state[i] = next[i];
    }
    UNROLL_ALL for (int i = 0; i < 4; i++)
        block[i] = (c->last[BYTE(state[i], 0)] | (uint32_t)c->last[BYTE(state[FROM(i, 1)], 1)] << 8 |
                    (uint32_t)c->last[BYTE(state[FROM(i, 2)], 2)] << 16 |
                    (uint32_t)c->last[BYTE(state[FROM(i, 3)], 3)] << 24) ^
                   c->key[KEY(ROUNDS) + i];
}

#if MODE == 2
/* The counter that is added to the start value; both as numbers, highest byte first in memory. */
typedef struct {
    uint64_t low, high;
} counter;

static counter counter_at(const nd_args *args, uint64_t block) {
    counter at = {__builtin_bswap64(nd_scalar_u64(args, 3)), __builtin_bswap64(nd_scalar_u64(args, 2))};
    at.low += block;
    at.high += at.low < block;
    return at;
}

static inline void count(counter *at) {
    at->low++;
    at->high += at->low == 0;
}

static inline void key_stream(const cipher *restrict c, const counter *at, uint32_t block[4]) {
    uint64_t first = __builtin_bswap64(at->high), second = __builtin_bswap64(at->low);
    block[0] = (uint32_t)first, block[1] = (uint32_t)(first >> 32);
    block[2] = (uint32_t)second, block[3] = (uint32_t)(second >> 32);
    crypt(c, block);
}
#endif

#if STREAM
int64_t nd_stream(nd_args *args) {
    size_t n = SIZE_MAX;
#else
int64_t nd_block(nd_args *args) {
    const uint32_t *restrict data = ND_INPUT(args, 0, uint32_t);
    uint32_t *restrict result = ND_OUTPUT(args, 0, uint32_t);
    size_t n = args->inputs[0].bytes / 16;
    if (args->inputs[0].bytes % 16) return BAD_INPUT;
    if (args->outputs[0].bytes < n * 16) return OUTPUT_FULL;
    args->outputs[0].used = n * 16;
#endif
    cipher *c = ND_SCRATCHPAD(args, cipher);
    make_tables(c);
    make_key(c, nd_scalar_u64(args, 0), nd_scalar_u64(args, 1));
#if MODE == 2
    counter at = counter_at(args, args->first_record);
#endif
    for (size_t i = 0; i < n; i++) {
        uint32_t block[4];
#if STREAM
        if (nd_at_end(0)) break;
        uint32_t given[4];
        UNROLL_ALL for (int j = 0; j < 4; j++) given[j] = nd_load_u32(0);
#else
        const uint32_t *given = data + 4 * i;
#endif
#if MODE == 2
        key_stream(c, &at, block);
        count(&at);
        for (int j = 0; j < 4; j++) block[j] ^= given[j];
#else
        for (int j = 0; j < 4; j++) block[j] = given[j];
        crypt(c, block);
#endif
#if STREAM
        UNROLL_ALL for (int j = 0; j < 4; j++) nd_store_u32(0, block[j]);
#else
        for (int j = 0; j < 4; j++) result[4 * i + j] = block[j];
#endif
    }
    return 0;
}
