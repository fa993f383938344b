/* ranks.c: how many elements have which digits, and the elements of a few digits: passes of an exact selection.
 *
 * Elements become keys of KEY_BITS bits in whose order they stand; -0 and 0 are one key, NaN and NaT none. A digit is
 * BITS bits of a key from SHIFT on; the bits above are its prefix. Prefixes that matter are a whole input, in order.
 * With COUNT, the state has a count of each digit for each of at most PREFIXES prefixes, and last one of elements that
 * have no key; without, those elements are kept whose prefix is listed, and SHIFT and BITS say where it begins.
 */
#include "element.h"

#define KEY_BITS (8 * sizeof(T))
enum { DIGITS = 1 << BITS };

#if COUNT
#define STATE_BYTES_IS (8 * ((size_t)PREFIXES * DIGITS + 1))
_Static_assert(STATE_BYTES_IS == STATE_BYTES, "metadata says so");
PROGRAM("name": "ranks", "kind": "block", "state_bytes": STATE_BYTES,
        "inputs": [{"name": "x", "dtype": DTYPE}, {"name": "prefixes", "dtype": "uint64", "whole": true}],
        "outputs": [{"name": "counts", "dtype": "uint64", "record_bytes": STATE_BYTES, "phase": "end"}],
        "scalars": [{"name": "shift", "dtype": "uint64"}], "errors": {"-1": "there are too many prefixes"})
#else
PROGRAM("name": "among", "kind": "block",
        "inputs": [{"name": "x", "dtype": DTYPE}, {"name": "prefixes", "dtype": "uint64", "whole": true}],
        "outputs": [{"name": "kept", "dtype": DTYPE, "exact": false}],
        "scalars": [{"name": "shift", "dtype": "uint64"}])
#endif

/* The key of an element in 64 bits; floats of either sign become integers of one order. */
#if KIND_OF_T == 'f'
static inline uint64_t key_of(T x) {
    if (x == 0) x = 0; /* without a sign */
#if T_BYTES == 8
    uint64_t bits;
#else
    uint32_t bits;
#endif
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits >> (KEY_BITS - 1) ? (KEY_BITS == 64 ? ~(uint64_t)bits : (uint64_t)(uint32_t)~bits)
                                  : (uint64_t)bits | (uint64_t)1 << (KEY_BITS - 1);
}
static inline int has_key(T x) { return x == x; }
#else
static inline uint64_t key_of(T x) {
    uint64_t below_zero = KIND_OF_T == 'i' || IS_TIME ? (uint64_t)1 << (KEY_BITS - 1) : 0;
    uint64_t mask = ~(uint64_t)0 >> (64 - KEY_BITS);
    return ((uint64_t)x ^ below_zero) & mask;
}
static inline int has_key(T x) { return !IS_TIME || (uint64_t)x != (uint64_t)INT64_MIN; }
#endif

/* The number of a prefix among those listed, or how many there are. */
static inline size_t find(const uint64_t *prefixes, size_t n, uint64_t prefix) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (prefixes[middle] < prefix) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && prefixes[low] == prefix ? low : n;
}

#if COUNT
int64_t nd_block(nd_args *args) {
    const T *x = ND_INPUT(args, 0, T);
    const uint64_t *prefixes = ND_INPUT(args, 1, uint64_t);
    size_t n = ND_INPUT_COUNT(args, 0, T), listed = ND_INPUT_COUNT(args, 1, uint64_t);
    uint64_t *counts = ND_STATE(args, uint64_t), shift = nd_scalar_u64(args, 0);
    if (listed > PREFIXES) return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = key_of(x[i]) >> shift;
        if (!has_key(x[i])) {
            counts[(size_t)PREFIXES * DIGITS]++;
        } else if (PREFIXES == 1) {
            counts[digit & (DIGITS - 1)] += digit >> BITS == prefixes[0];
        } else {
            size_t found = find(prefixes, listed, digit >> BITS);
            if (found < listed) counts[found * DIGITS + (digit & (DIGITS - 1))]++;
        }
    }
    return 0;
}

int64_t nd_merge(nd_args *args) {
    uint64_t *counts = ND_STATE(args, uint64_t);
    const uint64_t *other = ND_OTHER_STATE(args, uint64_t);
    for (size_t i = 0; i <= (size_t)PREFIXES * DIGITS; i++) counts[i] += other[i];
    return 0;
}

int64_t nd_end(nd_args *args) {
    __builtin_memcpy(ND_OUTPUT(args, 0, uint64_t), ND_STATE(args, uint64_t), STATE_BYTES);
    ND_SET_USED(args, 0, STATE_BYTES / 8, uint64_t);
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const T *x = ND_INPUT(args, 0, T);
    const uint64_t *prefixes = ND_INPUT(args, 1, uint64_t);
    size_t n = ND_INPUT_COUNT(args, 0, T), listed = ND_INPUT_COUNT(args, 1, uint64_t), count = 0;
    uint64_t shift = nd_scalar_u64(args, 0);
    T *kept = ND_OUTPUT(args, 0, T);
    for (size_t i = 0; i < n; i++) {
        if (has_key(x[i]) && find(prefixes, listed, key_of(x[i]) >> shift) < listed) kept[count++] = x[i];
    }
    ND_SET_USED(args, 0, count, T);
    return 0;
}
#endif
