/* select.c: of each row of -DROW_BYTES, only some columns: -DCOLUMNS={offset,bytes},{offset,bytes}...
 *
 * The result's rows have the columns one behind the other, in the order given; -DRESULT_BYTES is their sum. A column
 * may come twice. Columns are constants, so that each is a few loads and stores.
 */
#include "common.h"

#ifndef ROW_BYTES
#define ROW_BYTES 64
#define COLUMNS {0, 8}, {40, 4}
#define RESULT_BYTES 12
#endif

PROGRAM("name": "select", "kind": KIND, "inputs": [{"name": "rows", "dtype": "uint8", "record_bytes": ROW_BYTES}],
        "outputs": [{"name": "columns", "dtype": "uint8", "record_bytes": RESULT_BYTES}], "scratchpad_bytes": ROW_BYTES)

typedef struct {
    size_t offset, bytes;
} column;
static const column columns[] = {COLUMNS};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

#if STREAM
/* A row comes and goes by the widest unit that all its parts are made of. */
#ifndef UNIT
#define UNIT 4
#endif
#if UNIT == 8
typedef word64 unit;
#define UNIT_LOAD nd_load_u64
#define UNIT_STORE nd_store_u64
#elif UNIT == 4
typedef uint32_t __attribute__((may_alias)) unit;
#define UNIT_LOAD nd_load_u32
#define UNIT_STORE nd_store_u32
#elif UNIT == 2
typedef uint16_t __attribute__((may_alias)) unit;
#define UNIT_LOAD nd_load_u16
#define UNIT_STORE nd_store_u16
#else
typedef unsigned char unit;
#define UNIT_LOAD nd_load_u8
#define UNIT_STORE nd_store_u8
#endif

int64_t nd_stream(nd_args *args) {
    unit *row = ND_SCRATCHPAD(args, unit);
    while (!nd_at_end(0)) {
        UNROLL(8) for (size_t i = 0; i < ROW_BYTES / sizeof(unit); i++) row[i] = UNIT_LOAD(0);
        UNROLL_ALL for (size_t c = 0; c < N_COLUMNS; c++) {
            const unit *from = row + columns[c].offset / sizeof(unit);
            UNROLL(8) for (size_t i = 0; i < columns[c].bytes / sizeof(unit); i++) UNIT_STORE(0, from[i]);
        }
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const unsigned char *restrict row = ND_INPUT(args, 0, unsigned char);
    unsigned char *restrict to = ND_OUTPUT(args, 0, unsigned char);
    size_t n = args->inputs[0].bytes / ROW_BYTES;
    if (args->inputs[0].bytes % ROW_BYTES) return BAD_INPUT;
    if (args->outputs[0].bytes < n * RESULT_BYTES) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++, row += ROW_BYTES) {
        size_t at = 0;
        UNROLL_ALL for (size_t c = 0; c < N_COLUMNS; c++) {
            copy_fixed(to + at, row + columns[c].offset, columns[c].bytes,
                       ROW_BYTES | RESULT_BYTES | at | columns[c].offset);
            at += columns[c].bytes;
        }
        to += RESULT_BYTES;
    }
    args->outputs[0].used = n * RESULT_BYTES;
    return 0;
}
#endif
