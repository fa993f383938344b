/* raid6_rebuild.c: two lost disks from the -DDISKS that are left.
 *
 * Disks are numbered: data from 0 to DISKS - 1, P is DISKS, Q is DISKS + 1. Inputs are those that are left, in this
 * order; scalars a < b are the numbers of those that are lost, and results are their contents in the same order. If
 * only one is lost, any other is named beside it.
 */
#include "gf256.h"
#include "many.h"

PROGRAM("name": "raid6_rebuild", "kind": "block", "inputs": [PORTS],
        "outputs": [{"name": "disk_a", "dtype": "uint8", "record_bytes": 8, "bound": {"per_record": 8}},
                    {"name": "disk_b", "dtype": "uint8", "record_bytes": 8, "bound": {"per_record": 8}}],
        "scalars": [{"name": "a", "dtype": "uint64"}, {"name": "b", "dtype": "uint64"}])

#define STEP 64 /* words at a time, so that the state of a disk is tested once for all of them */

/* With x the sum of all data and P that are left, y that of all data times their powers and Q that are left:
 * first = x_times * x + y_times * y; second = (x_adds ? x : 0) + (y_adds ? y : 0) + first_times * first. */
typedef struct {
    uint8_t x_times, y_times, x_adds, y_adds, first_times, first_is_b;
} solution;

static solution solve(unsigned a, unsigned b) {
    if (b < DISKS) { /* two data disks: x = a + b, y = 2^a a + 2^b b */
        uint8_t by = gf_inverse(gf_power(a) ^ gf_power(b));
        return (solution){(uint8_t)gf_times(gf_power(a), by), by, 1, 0, 1, 1};
    }
    if (a == DISKS) return (solution){1, 0, 0, 1, 0, 0};                           /* P and Q: x, y */
    if (b == DISKS) return (solution){0, gf_inverse(gf_power(a)), 1, 0, 1, 0};     /* P: y = 2^a a; P = x + a */
    return (solution){1, 0, 0, 1, gf_power(a), 0};                                 /* Q: x = a; Q = y + 2^a a */
}

/* to += by * from. */
static void add_product(word64 *restrict to, const word64 *restrict from, uint8_t by, size_t n) {
    uint64_t mask[8];
    UNROLL_ALL for (int bit = 0; bit < 8; bit++) mask[bit] = 0 - (uint64_t)(by >> bit & 1);
    if (by == 0) return;
    for (size_t i = 0; i < n; i++) {
        uint64_t word = from[i], product = by == 1 ? word : 0;
        if (by > 1) {
            product = word & mask[7];
            UNROLL_ALL for (int bit = 6; bit >= 0; bit--) product = gf_double(product) ^ (word & mask[bit]);
        }
        to[i] ^= product;
    }
}

static void rebuild(const word64 *const left[DISKS + 2], const solution *s, word64 *restrict a, word64 *restrict b,
                    size_t n) {
    uint64_t x[STEP] = {0}, y[STEP] = {0};
    for (int d = DISKS - 1; d >= 0; d--) {
        const word64 *disk = left[d];
        if (!disk) {
            for (size_t i = 0; i < n; i++) y[i] = gf_double(y[i]);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            uint64_t word = disk[i];
            x[i] ^= word;
            y[i] = gf_double(y[i]) ^ word;
        }
    }
    if (left[DISKS])
        for (size_t i = 0; i < n; i++) x[i] ^= left[DISKS][i];
    if (left[DISKS + 1])
        for (size_t i = 0; i < n; i++) y[i] ^= left[DISKS + 1][i];
    word64 *restrict first = s->first_is_b ? b : a, *restrict second = s->first_is_b ? a : b;
    for (size_t i = 0; i < n; i++) first[i] = 0;
    add_product(first, x, s->x_times, n);
    add_product(first, y, s->y_times, n);
    for (size_t i = 0; i < n; i++) second[i] = (s->x_adds ? x[i] : 0) ^ (s->y_adds ? y[i] : 0);
    add_product(second, first, s->first_times, n);
}

int64_t nd_block(nd_args *args) {
    uint64_t a = nd_scalar_u64(args, 0), b = nd_scalar_u64(args, 1);
    if (a >= b || b >= DISKS + 2) return BAD_SCALAR;
    if (!same_bytes(args)) return BAD_INPUT;
    size_t n = args->inputs[0].bytes / 8;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    if (args->outputs[0].bytes < n * 8 || args->outputs[1].bytes < n * 8) return OUTPUT_FULL;
    const word64 *left[DISKS + 2];
    for (unsigned d = 0, given = 0; d < DISKS + 2; d++)
        left[d] = d == a || d == b ? NULL : ND_INPUT(args, given++, word64);
    solution s = solve((unsigned)a, (unsigned)b);
    word64 *to_a = ND_OUTPUT(args, 0, word64), *to_b = ND_OUTPUT(args, 1, word64);
    for (size_t i = 0; i < n; i += STEP) {
        rebuild(left, &s, to_a + i, to_b + i, n - i < STEP ? n - i : STEP);
        for (int d = 0; d < DISKS + 2; d++) left[d] = left[d] ? left[d] + STEP : NULL;
    }
    args->outputs[0].used = args->outputs[1].used = n * 8;
    return 0;
}
