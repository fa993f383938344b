/* groups.c: statistics of values by their keys, for the keys whose hashes lie in a range.
 *
 * A record is a key and INNER values. Each key of the range has an entry, made when it first comes: the key, how many
 * records it has, and a cell for each of the INNER columns. Entries lie one behind the other; places are found by open
 * addressing in a table of their numbers, twice as many as there can be entries. Both lie in the scratchpad of an
 * ordered program, which lasts from the first task to the end, so that a key's values are added in the data's order.
 *
 * When there is no room for another entry, the range loses its upper quarter, with the entries that are there: those
 * that are left have all of their records all the same. At the end come the entries, in the order of their first
 * records, and the last hash of the range; the caller makes another pass for the hashes behind it. A hash of at most 8
 * bytes is that of one key, so a range of one hash has room; longer keys may share one.
 *
 * T, KIND_OF_T: the values (see element.h), of which there are none if INNER is 0. KEY_BYTES, KEY_KIND: the keys, 'f'
 * floats, 'M' dates or durations, else bytes that are equal or not. HAS_*: the members of a cell; names of NumPy's
 * reductions. SKIPNA leaves out values, and DROPNA records, that are NaN or NaT.
 */
#include "element.h"

enum { NOT_THERE = -1, FULL = -2 };

#if KEY_BYTES == 8
typedef uint64_t key;
#elif KEY_BYTES == 4
typedef uint32_t key;
#elif KEY_BYTES == 2
typedef uint16_t key;
#elif KEY_BYTES == 1
typedef uint8_t key;
#else
typedef struct {
    unsigned char bytes[KEY_BYTES];
} key;
#define LONG_KEY 1
#endif

#if KIND_OF_T == 'c'
typedef struct {
    double re, im;
} total;
#elif KIND_OF_T == 'f'
typedef double total;
#else
typedef uint64_t total; /* integers wrap modulo 2^64 */
#endif

typedef struct {
#if HAS_COUNT
    uint64_t count; /* of values that are not NaN */
#endif
#if HAS_SUM
    total sum;
#endif
#if HAS_PROD
    total prod;
#endif
#if HAS_VAR
    double origin, mean, squares; /* the first value; the mean less it; squares of differences from the mean */
#endif
#if HAS_MIN
    element min;
#endif
#if HAS_MAX
    element max;
#endif
#if HAS_FIRST
    element first;
#endif
#if HAS_LAST
    element last;
#endif
#if HAS_ANY
    uint8_t any;
#endif
#if HAS_ALL
    uint8_t all;
#endif
} cell; /* as NumPy aligns its like */

typedef struct {
#if INNER
    cell cells[INNER];
#endif
#if HAS_SIZE
    uint64_t size;
#endif
    key key;
} entry;
_Static_assert(sizeof(entry) == ENTRY_BYTES, "the caller reads entries");

typedef struct {
    uint64_t low, last, n, unused;
} state;

#if INNER
#define VALUES_BYTES (INNER * sizeof(element))
#define VALUES_INPUT {"name": "values", "dtype": "uint8", "record_bytes": RECORD_BYTES}
#define MORE_INPUTS , VALUES_INPUT
_Static_assert(VALUES_BYTES == RECORD_BYTES, "metadata says so");
#else
#define MORE_INPUTS
#endif
PROGRAM("name": "group_by", "kind": "block", "tasks": "ordered", "state_bytes": 32,
        "scratchpad_bytes": SCRATCHPAD_BYTES,
        "inputs": [{"name": "keys", "dtype": "uint8", "record_bytes": KEY_BYTES} MORE_INPUTS],
        "outputs": [{"name": "entries", "dtype": "uint8", "record_bytes": ENTRY_BYTES, "phase": "end",
                     "bound": {"fixed": ENTRIES_BYTES}, "exact": false},
                    {"name": "done", "dtype": "uint64", "record_bytes": 8, "phase": "end"}],
        "scalars": [{"name": "low", "dtype": "uint64"}, {"name": "last", "dtype": "uint64"}],
        "errors": {"-2": "too many keys have one hash: they need more memory"})
_Static_assert((uint64_t)ENTRY_BYTES * ENTRIES == ENTRIES_BYTES, "metadata says so");
_Static_assert(ENTRIES_BYTES + 4 * (uint64_t)SLOTS <= SCRATCHPAD_BYTES, "metadata says so");

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* Each bit depends on all, and each hash is that of one number. */
static inline uint64_t mixed(uint64_t h) {
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

#ifdef LONG_KEY
static inline uint64_t hash_of(const key *k) {
    uint64_t h = KEY_BYTES;
    for (size_t at = 0; at < KEY_BYTES; at += 8) {
        uint64_t word = 0;
        __builtin_memcpy(&word, k->bytes + at, KEY_BYTES - at < 8 ? KEY_BYTES - at : 8);
        h = mixed(h ^ word) + 0x9e3779b97f4a7c15u;
    }
    return h;
}
static inline int is_same(const key *a, const key *b) {
    unsigned char other = 0;
    for (size_t i = 0; i < KEY_BYTES; i++) other |= a->bytes[i] ^ b->bytes[i];
    return !other;
}
static inline int is_dropped(const key *k) {
    (void)k;
    return 0;
}
static inline key plain(key k) { return k; }
#else
static inline uint64_t hash_of(const key *k) { return mixed((uint64_t)*k + 0x9e3779b97f4a7c15u); }
static inline int is_same(const key *a, const key *b) { return *a == *b; }

/* Of floats: bits without the sign, those of infinity. A NaN is above them. */
#define INFINITE (KEY_BYTES == 8 ? (uint64_t)0x7ff << 52 : (uint64_t)0xff << 23)
#define BELOW_SIGN (~(uint64_t)0 >> (65 - 8 * KEY_BYTES))
static inline int is_nan_key(key k) {
    if (KEY_KIND == 'f') return ((uint64_t)k & BELOW_SIGN) > INFINITE;
    return KEY_KIND == 'M' && (uint64_t)k == (uint64_t)INT64_MIN;
}
static inline int is_dropped(const key *k) { return DROPNA && is_nan_key(*k); }

/* Keys that are equal become the same bits: zeros of either sign, and all NaNs. */
static inline key plain(key k) {
    if (KEY_KIND != 'f') return k;
    if (!((uint64_t)k & BELOW_SIGN)) return 0;
    return is_nan_key(k) ? (key)(INFINITE | (INFINITE >> 1)) : k;
}
#endif

/* ---- values ---------------------------------------------------------------------------------------------------- */

#if KIND_OF_T == 'c'
static inline total wide(element x) { return (total){x.re, x.im}; }
static inline total added(total a, total b) { return (total){a.re + b.re, a.im + b.im}; }
static inline total times(total a, total b) {
    return (total){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline total unit(int one) { return (total){one, 0}; }
#else
static inline total wide(element x) { return (total)x; }
static inline total added(total a, total b) {
    if (IS_TIME && ((uint64_t)a == (uint64_t)INT64_MIN || (uint64_t)b == (uint64_t)INT64_MIN)) return (total)INT64_MIN;
    return a + b;
}
static inline total times(total a, total b) { return a * b; }
static inline total unit(int one) { return (total)one; }
#endif

/* The cell before its first value. */
static inline void begin(cell *c, element x) {
    __builtin_memset(c, 0, sizeof *c);
#if HAS_ALL
    c->all = 1;
#endif
#if HAS_SUM
    c->sum = unit(0);
#endif
#if HAS_PROD
    c->prod = unit(1);
#endif
#if HAS_MIN
    c->min = x;
#endif
#if HAS_MAX
    c->max = x;
#endif
#if HAS_FIRST
    c->first = x;
#endif
#if HAS_LAST
    c->last = x;
#endif
    (void)x;
}

static inline void see(cell *c, element x) {
    if (SKIPNA && is_nan(x)) return;
#if HAS_COUNT
    c->count += !is_nan(x);
#endif
#if HAS_SUM
    c->sum = added(c->sum, wide(x));
#endif
#if HAS_PROD
    c->prod = times(c->prod, wide(x));
#endif
#if HAS_VAR
    if (c->count == 1 && !is_nan(x)) c->origin = (double)x;
    double one = (double)x - c->origin, apart = one - c->mean;
    c->mean += apart / (double)(c->count ? c->count : 1);
    c->squares += apart * (one - c->mean);
#endif
    /* The first value is there already: a NaN of it stays, unless such are left out. */
#if HAS_MIN
    if (is_nan(c->min) ? SKIPNA : is_nan(x) || is_less(x, c->min)) c->min = x;
#endif
#if HAS_MAX
    if (is_nan(c->max) ? SKIPNA : is_nan(x) || is_less(c->max, x)) c->max = x;
#endif
#if HAS_FIRST
    if (SKIPNA && is_nan(c->first)) c->first = x;
#endif
#if HAS_LAST
    c->last = x;
#endif
#if HAS_ANY
    c->any |= (uint8_t)is_nonzero(x);
#endif
#if HAS_ALL
    c->all &= (uint8_t)is_nonzero(x);
#endif
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

typedef struct {
    state *st;
    entry *entries;
    uint32_t *slots; /* the number of an entry + 1; 0 is free */
} table;

static inline table table_of(nd_args *args) {
    entry *entries = ND_SCRATCHPAD(args, entry);
    return (table){ND_STATE(args, state), entries, (uint32_t *)(entries + ENTRIES)};
}

/* The slot where a search begins; by the bits that a small range has left. */
static inline size_t slot_of(uint64_t hash) { return (size_t)(((hash & 0xffffffffu) * SLOTS) >> 32); }

static inline void put(table t, uint64_t hash, uint32_t number) {
    size_t at = slot_of(hash);
    while (t.slots[at]) at = at + 1 < SLOTS ? at + 1 : 0;
    t.slots[at] = number;
}

/* Give up hashes until there is room for an entry, and the entries that have them. */
static __attribute__((noinline)) int shrink(table t) {
    state *st = t.st;
    while (st->n == ENTRIES) {
        uint64_t width = st->last - st->low;
        if (!width) return FULL;
        st->last = st->low + (width - width / 4 - 1);
        uint64_t kept = 0;
        for (uint64_t i = 0; i < st->n; i++) {
            if (hash_of(&t.entries[i].key) > st->last) continue;
            if (kept != i) t.entries[kept] = t.entries[i];
            kept++;
        }
        st->n = kept;
    }
    for (size_t at = 0; at < SLOTS; at++) t.slots[at] = 0;
    for (uint64_t i = 0; i < st->n; i++) put(t, hash_of(&t.entries[i].key), (uint32_t)(i + 1));
    return 0;
}

/* Add the values of a record to an entry. */
static inline void record(entry *e, const element *values, size_t place, int is_new) {
#if HAS_SIZE
    e->size = (is_new ? 0 : e->size) + 1;
#endif
#if INNER
    const element *x = values + place * INNER;
    for (size_t j = 0; is_new && j < INNER; j++) begin(e->cells + j, x[j]);
    for (size_t j = 0; j < INNER; j++) see(e->cells + j, x[j]);
#else
    (void)e, (void)values, (void)place, (void)is_new;
#endif
}

int64_t nd_begin(nd_args *args) {
    state *st = ND_STATE(args, state);
    *st = (state){nd_scalar_u64(args, 0), nd_scalar_u64(args, 1), 0, 0};
    table t = table_of(args);
    for (size_t at = 0; at < SLOTS; at++) t.slots[at] = 0;
    return 0;
}

/* Records are taken a few at a time, so that slots and entries arrive while the others' are computed. */
enum { AHEAD = 32 };

int64_t nd_block(nd_args *args) {
    const key *keys = ND_INPUT(args, 0, key);
    const element *x = INNER ? ND_INPUT(args, 1, element) : 0;
    size_t n = args->inputs[0].bytes / KEY_BYTES;
    table t = table_of(args);
    uint64_t hashes[AHEAD];
    size_t places[AHEAD];
    for (size_t from = 0; from < n; from += AHEAD) {
        size_t few = n - from < AHEAD ? n - from : AHEAD, taken = 0;
        for (size_t i = from; i < from + few; i++) {
            key k = plain(keys[i]);
            uint64_t hash = hash_of(&k);
            hashes[taken] = hash;
            places[taken] = i;
            __builtin_prefetch(t.slots + slot_of(hash));
            taken += hash - t.st->low <= t.st->last - t.st->low && !is_dropped(keys + i);
        }
        for (size_t i = 0; i < taken; i++) {
            uint32_t number = t.slots[slot_of(hashes[i])];
            if (number) __builtin_prefetch(t.entries + (number - 1), 1);
        }
        for (size_t i = 0; i < taken; i++) {
            if (hashes[i] > t.st->last) continue; /* given up meanwhile */
            key k = plain(keys[places[i]]);
            size_t at = slot_of(hashes[i]);
            while (t.slots[at] && !is_same(&t.entries[t.slots[at] - 1].key, &k)) at = at + 1 < SLOTS ? at + 1 : 0;
            if (t.slots[at]) {
                record(t.entries + (t.slots[at] - 1), x, places[i], 0);
                continue;
            }
            if (t.st->n == ENTRIES) {
                if (shrink(t)) return FULL;
                if (hashes[i] > t.st->last) continue;
                at = slot_of(hashes[i]);
                while (t.slots[at]) at = at + 1 < SLOTS ? at + 1 : 0;
            }
            entry *e = t.entries + t.st->n++;
            t.slots[at] = (uint32_t)t.st->n;
            e->key = k;
            record(e, x, places[i], 1);
        }
    }
    return 0;
}

int64_t nd_end(nd_args *args) {
    table t = table_of(args);
    __builtin_memcpy(ND_OUTPUT(args, 0, entry), t.entries, t.st->n * sizeof(entry));
    *ND_OUTPUT(args, 1, uint64_t) = t.st->last;
    ND_SET_USED(args, 0, t.st->n, entry);
    ND_SET_USED(args, 1, 1, uint64_t);
    return 0;
}
