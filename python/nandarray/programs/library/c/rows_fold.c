/* rows_fold.c: counts, sums, least and greatest values of what is computed of the elements that pass a test.
 *
 * The test and its inputs are those of rows.c, written by nandarray.programs.library.rows; -DFOLDS has a FOLD_... for
 * each result, whose guard says of which elements its value is there, -DMERGES the same in other words for two states.
 * Sums of integers are exact, in 128 bits. Floats are summed in float64, by eight lanes over each 1024 elements of a
 * task, and these sums exactly, rounded once at the end, so that results do not depend on the number of cores. The
 * least and the greatest float are those of the numbers; NaN if there are only NaNs.
 */
#include "exact.h"
#include "rows.h"

#ifndef FOLDS
#define FOLDS FOLD_COUNT(0, 1) FOLD_SUM(1, int64_t, x0[i] > 0, x0[i])
#define MERGES MERGE_COUNT(0) MERGE_SUM(1)
#define FOLDS_COUNT 2
#define STATE_BYTES 1216
#define RESULT_BYTES 64
#define SUMMED 0 /* a bit for each sum of floats */
#endif

PROGRAM("name": "rows_fold", "kind": KIND, "inputs": [PORTS],
        "outputs": [{"name": "results", "phase": "end", "bound": {"fixed": RESULT_BYTES},
                     "dtype": [["count", "uint64"], ["low", "uint64"], ["high", "int64"], ["real", "float64"]]}],
        "scalars": [SCALARS], "state_bytes": STATE_BYTES)

typedef struct {
    uint64_t count;   /* of elements that pass and have a value */
    uint64_t numbers; /* of those that are no NaN */
    uint64_t low;     /* an integer of 128 bits: a sum, the least or the greatest value */
    int64_t high;
    double real; /* the least or the greatest float */
    uint64_t unused;
    exact_sum sum;
    uint64_t filling;
} cell;
_Static_assert(sizeof(cell) == 608, "STATE_BYTES counts them");

typedef struct {
    uint64_t count, low;
    int64_t high;
    double real;
} result;

static inline __int128 whole_of(const cell *one) { return (__int128)one->high << 64 | one->low; }
static inline void set_whole(cell *one, __int128 value) {
    one->low = (uint64_t)value, one->high = (int64_t)(value >> 64);
}

/* The elements of a chunk, `keep` for those of the fold. */
#define EACH(guard, ...)                                         \
    for (size_t i = begin; i < end; i++) {                       \
        unsigned keep = passes[i - begin] & (unsigned)(guard); \
        kept += keep;                                            \
        __VA_ARGS__                                              \
    }
#define FOLD_COUNT(k, guard)          \
    {                                 \
        uint64_t kept = 0;            \
        EACH(guard, )                 \
        cells[k].count += kept;       \
    }
#define FOLD_SUM(k, type, guard, value)                             \
    {                                                               \
        uint64_t kept = 0;                                          \
        type sum = 0;                                               \
        EACH(guard, sum += keep ? (type)(value) : 0;)               \
        cells[k].count += kept;                                     \
        set_whole(&cells[k], whole_of(&cells[k]) + (__int128)sum);  \
    }
#define FOLD_FLOAT_SUM(k, guard, value)                                       \
    {                                                                         \
        uint64_t kept = 0;                                                    \
        double lane[LANES] = {0};                                             \
        EACH(guard, lane[(i - begin) % LANES] += keep ? (double)(value) : 0;) \
        cells[k].count += kept;                                               \
        exact_add(&cells[k].sum, lanes_total(lane));                          \
        exact_carry(&cells[k].sum);                                           \
    }
#define FOLD_END(k, type, guard, value, op, begins)                                                                \
    {                                                                                                              \
        uint64_t kept = 0;                                                                                         \
        type best = begins;                                                                                        \
        EACH(guard, type here = (type)(value); best = keep && here op best ? here : best;)                         \
        if (kept && (!cells[k].count || (__int128)best op whole_of(&cells[k]))) set_whole(&cells[k], (__int128)best); \
        cells[k].count += kept;                                                                                    \
    }
#define FOLD_FLOAT_END(k, guard, value, op, begins)                                                  \
    {                                                                                                \
        uint64_t kept = 0, numbers = 0;                                                              \
        double best = begins;                                                                        \
        EACH(guard, double here = (double)(value); numbers += keep & (here == here);                 \
             best = keep && here op best ? here : best;)                                             \
        if (numbers && (!cells[k].numbers || best op cells[k].real)) cells[k].real = best;           \
        cells[k].numbers += numbers;                                                                 \
        cells[k].count += kept;                                                                      \
    }

#define MERGE_COUNT(k) cells[k].count += others[k].count;
#define MERGE_SUM(k) \
    set_whole(&cells[k], whole_of(&cells[k]) + whole_of(&others[k])), cells[k].count += others[k].count;
#define MERGE_FLOAT_SUM(k) exact_merge(&cells[k].sum, &others[k].sum), cells[k].count += others[k].count;
#define MERGE_END(k, op)                                                                              \
    if (others[k].count && (!cells[k].count || whole_of(&others[k]) op whole_of(&cells[k])))          \
        set_whole(&cells[k], whole_of(&others[k]));                                                   \
    cells[k].count += others[k].count;
#define MERGE_FLOAT_END(k, op)                                                                        \
    if (others[k].numbers && (!cells[k].numbers || others[k].real op cells[k].real)) cells[k].real = others[k].real; \
    cells[k].numbers += others[k].numbers, cells[k].count += others[k].count;

int64_t nd_block(nd_args *args) {
    BIND
    cell *cells = ND_STATE(args, cell);
    size_t n = ND_INPUT_COUNT(args, 0, SIZE);
    for (size_t begin = 0; begin < n; begin += TESTED) {
        unsigned char passes[TESTED];
        size_t end = n - begin < TESTED ? n : begin + TESTED;
        uint64_t any = 0;
        for (size_t i = begin; i < end; i++) any |= passes[i - begin] = (unsigned char)(PASSES);
        if (!any) continue;
        FOLDS
    }
    return 0;
}

int64_t nd_merge(nd_args *args) {
    cell *cells = ND_STATE(args, cell);
    const cell *others = ND_OTHER_STATE(args, cell);
    MERGES
    return 0;
}

int64_t nd_end(nd_args *args) {
    const cell *cells = ND_STATE(args, cell);
    result *results = ND_OUTPUT(args, 0, result);
    for (size_t k = 0; k < FOLDS_COUNT; k++) {
        results[k].count = cells[k].count, results[k].low = cells[k].low, results[k].high = cells[k].high;
        uint64_t bits = 1ull << (k & 63);
        results[k].real = SUMMED & bits ? exact_round(&cells[k].sum)
                          : cells[k].numbers ? cells[k].real : __builtin_nan("");
    }
    ND_SET_USED(args, 0, FOLDS_COUNT, result);
    return 0;
}
