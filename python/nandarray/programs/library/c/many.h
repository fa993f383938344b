/* many.h: several inputs of one kind, as many as -DDISKS says, and streams by number.
 *
 * Metadata for other numbers than the default comes from outside, as -DPORTS='{"name": "d0", ...}, ...'.
 */
#ifndef PROGRAMS_MANY_H
#define PROGRAMS_MANY_H

#include "common.h"

#ifndef DISKS
#define DISKS 4
#endif
#ifndef PORTS
#define PORTS \
    {"name": "d0", "dtype": "uint8", "record_bytes": 8}, {"name": "d1", "dtype": "uint8", "record_bytes": 8}, \
    {"name": "d2", "dtype": "uint8", "record_bytes": 8}, {"name": "d3", "dtype": "uint8", "record_bytes": 8}
#endif
_Static_assert(DISKS >= 1 && DISKS <= 8, "there are 8 inputs");

/* Do all inputs have as many bytes as the first one? */
static inline int same_bytes(const nd_args *args) {
    int same = args->n_inputs == DISKS;
    for (int i = 1; i < DISKS; i++) same &= args->inputs[i].bytes == args->inputs[0].bytes;
    return same;
}

#if STREAM
/* S is known wherever loops over disks are unrolled. */
static inline __attribute__((always_inline)) uint64_t load_from(int s) {
    switch (s) {
    case 0: return nd_load_u64(0);
    case 1: return nd_load_u64(1);
    case 2: return nd_load_u64(2);
    case 3: return nd_load_u64(3);
    case 4: return nd_load_u64(4);
    case 5: return nd_load_u64(5);
    case 6: return nd_load_u64(6);
    default: return nd_load_u64(7);
    }
}

static inline __attribute__((always_inline)) void store_to(int s, uint64_t value) {
    switch (s) {
    case 0: nd_store_u64(0, value); return;
    case 1: nd_store_u64(1, value); return;
    case 2: nd_store_u64(2, value); return;
    case 3: nd_store_u64(3, value); return;
    case 4: nd_store_u64(4, value); return;
    case 5: nd_store_u64(5, value); return;
    case 6: nd_store_u64(6, value); return;
    default: nd_store_u64(7, value); return;
    }
}
#endif

#endif
