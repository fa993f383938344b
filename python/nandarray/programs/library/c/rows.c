/* rows.c: the numbers of the elements of one to eight arrays of one length that pass a test, counted from the first
 * record of the run.
 *
 * The test is written by nandarray.programs.library.rows from a description (rows.h). Elements are tested by chunks,
 * and numbers are put together behind that.
 */
#include "rows.h"

PROGRAM("name": "rows", "kind": KIND, "inputs": [PORTS],
        "outputs": [{"name": "numbers", "dtype": "uint32", "exact": false, "bound": {"per_record": 4, "fixed": 32}}],
        "scalars": [SCALARS])

int64_t nd_block(nd_args *args) {
    BIND
    size_t n = ND_INPUT_COUNT(args, 0, SIZE), count = 0;
    uint32_t *restrict numbers = ND_OUTPUT(args, 0, uint32_t), first = (uint32_t)args->first_record;
    /* Every number is stored, and perhaps overwritten; eight together. */
    if (ND_OUTPUT_COUNT(args, 0, uint32_t) < n + 8) return OUTPUT_FULL;
    for (size_t begin = 0; begin < n; begin += TESTED) {
        unsigned char passes[TESTED] __attribute__((aligned(8)));
        size_t end = n - begin < TESTED ? n : begin + TESTED;
        for (size_t i = begin; i < end; i++) passes[i - begin] = (unsigned char)(PASSES);
        for (size_t i = end - begin; i % 8; i++) passes[i] = 0;
        for (size_t i = 0; i < end - begin; i += 8) {
            if (!*(const word64 *)(passes + i)) continue;
            UNROLL_ALL for (size_t k = i; k < i + 8; k++) {
                numbers[count] = first + (uint32_t)(begin + k);
                count += passes[k];
            }
        }
    }
    ND_SET_USED(args, 0, count, uint32_t);
    return 0;
}
