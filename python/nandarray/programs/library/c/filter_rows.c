/* filter_rows.c: keep the rows of -DROW_BYTES whose element at byte -DOFFSET is at least low and at most high.
 *
 * Rows stay as they are, in their order. A NaN is not kept.
 */
#include "common.h"

#ifndef ROW_BYTES
#define ROW_BYTES 64
#endif
#ifndef OFFSET
#define OFFSET 0
#endif
_Static_assert(OFFSET + T_BYTES <= ROW_BYTES, "the element lies in the row");

PROGRAM("name": "filter_rows", "kind": KIND, "inputs": [{"name": "rows", "dtype": "uint8", "record_bytes": ROW_BYTES}],
        "outputs": [{"name": "kept", "dtype": "uint8", "record_bytes": ROW_BYTES, "exact": false}],
        "scalars": [{"name": "low", "dtype": DTYPE_NAME}, {"name": "high", "dtype": DTYPE_NAME}],
        "scratchpad_bytes": ROW_BYTES)

static inline int keep(const unsigned char *row, T low, T high) {
    T value;
    copy_fixed(&value, row + OFFSET, sizeof value, ROW_BYTES | OFFSET);
    return (value >= low) & (value <= high);
}

#if STREAM
/* A row comes and goes by the widest unit that it is made of. */
#if ROW_BYTES % 8 == 0
#define UNIT uint64_t
#define UNIT_LOAD nd_load_u64
#define UNIT_STORE nd_store_u64
#elif ROW_BYTES % 4 == 0
#define UNIT uint32_t
#define UNIT_LOAD nd_load_u32
#define UNIT_STORE nd_store_u32
#else
#define UNIT uint8_t
#define UNIT_LOAD nd_load_u8
#define UNIT_STORE nd_store_u8
#endif
typedef UNIT __attribute__((may_alias)) unit;

int64_t nd_stream(nd_args *args) {
    unit *row = ND_SCRATCHPAD(args, unit);
    T low = t_scalar(args, 0), high = t_scalar(args, 1);
    while (!nd_at_end(0)) {
        UNROLL(8) for (size_t i = 0; i < ROW_BYTES / sizeof(unit); i++) row[i] = UNIT_LOAD(0);
        if (!keep((const unsigned char *)row, low, high)) continue;
        UNROLL(8) for (size_t i = 0; i < ROW_BYTES / sizeof(unit); i++) UNIT_STORE(0, row[i]);
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const unsigned char *restrict row = ND_INPUT(args, 0, unsigned char);
    unsigned char *restrict kept = ND_OUTPUT(args, 0, unsigned char);
    size_t n = args->inputs[0].bytes / ROW_BYTES, count = 0;
    if (args->inputs[0].bytes % ROW_BYTES) return BAD_INPUT;
    if (args->outputs[0].bytes < n * ROW_BYTES) return OUTPUT_FULL;
    T low = t_scalar(args, 0), high = t_scalar(args, 1);
    for (size_t i = 0; i < n; i++, row += ROW_BYTES) {
        if (!keep(row, low, high)) continue;
        copy_fixed(kept + count * ROW_BYTES, row, ROW_BYTES, ROW_BYTES);
        count++;
    }
    args->outputs[0].used = count * ROW_BYTES;
    return 0;
}
#endif
