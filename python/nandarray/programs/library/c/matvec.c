/* matvec.c: each row of -DCOLUMNS elements times a vector.
 *
 * Products of floats have the elements' type and are added in it: column j to lane j mod 8, lanes as a tree
 * (common.h). Products of integers are int64, and wrap.
 */
#include "common.h"

#ifndef COLUMNS
#define COLUMNS 64
#define ROW_BYTES 512
#endif
_Static_assert(ROW_BYTES == COLUMNS * T_BYTES, "a record is a row");

#if T_FLOAT
typedef T sum_type;
#define RESULT_NAME DTYPE_NAME
#else
typedef uint64_t sum_type;
#define RESULT_NAME "int64"
#endif

PROGRAM("name": "matvec", "kind": "block",
        "inputs": [{"name": "matrix", "dtype": DTYPE_NAME, "record_bytes": ROW_BYTES},
                   {"name": "vector", "dtype": DTYPE_NAME, "whole": true}],
        "outputs": [{"name": "product", "dtype": RESULT_NAME}])

static inline sum_type row_times(const T *restrict row, const T *restrict vector) {
    sum_type lane[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= COLUMNS; j += LANES)
        UNROLL_ALL for (int l = 0; l < LANES; l++) lane[l] += (sum_type)row[j + l] * (sum_type)vector[j + l];
    UNROLL_ALL for (int l = 0; l < (int)(COLUMNS % LANES); l++)
        lane[l] += (sum_type)row[j + l] * (sum_type)vector[j + l];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

int64_t nd_block(nd_args *args) {
    const T *matrix = ND_INPUT(args, 0, T), *vector = ND_INPUT(args, 1, T);
    sum_type *restrict product = ND_OUTPUT(args, 0, sum_type);
    size_t n = args->inputs[0].bytes / ROW_BYTES;
    if (args->inputs[0].bytes % ROW_BYTES) return BAD_INPUT;
    if (args->inputs[1].bytes != ROW_BYTES) return BAD_INPUT;
    if (ND_OUTPUT_COUNT(args, 0, sum_type) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) product[i] = row_times(matrix + i * COLUMNS, vector);
    ND_SET_USED(args, 0, n, sum_type);
    return 0;
}
