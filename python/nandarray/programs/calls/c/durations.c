/* durations.c: the sum of durations along an axis, one after the other, as NumPy adds them.
 *
 * The box is rows of INNER elements, as in fold.c with WHOLE. A sum that is NaT stays so, also where numbers became it
 * on their way: what the elements before add up to decides, so tasks come in order.
 */
#include "element.h"

PROGRAM("name": "durations", "kind": "block", "tasks": "ordered", "state_bytes": RESULT_BYTES,
        "inputs": [{"name": "x", "dtype": "int64", "record_bytes": RESULT_BYTES}],
        "outputs": [{"name": "result", "dtype": "int64", "record_bytes": RESULT_BYTES, "phase": "end"}])
_Static_assert(sizeof(element) * INNER == RESULT_BYTES, "metadata says so");

int64_t nd_block(nd_args *args) {
    const element *x = ND_INPUT(args, 0, element);
    element *sum = ND_STATE(args, element);
    size_t rows = args->inputs[0].bytes / RESULT_BYTES;
    for (size_t i = 0; i < rows; i++, x += INNER) {
        for (size_t j = 0; j < INNER; j++) {
            uint64_t added = (uint64_t)sum[j] + (uint64_t)x[j];
            sum[j] = is_nan(sum[j]) || is_nan(x[j]) ? INT64_MIN : (element)added;
        }
    }
    return 0;
}

int64_t nd_end(nd_args *args) {
    __builtin_memcpy(ND_OUTPUT(args, 0, element), ND_STATE(args, element), RESULT_BYTES);
    ND_SET_USED(args, 0, INNER, element);
    return 0;
}
