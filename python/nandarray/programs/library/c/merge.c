/* merge.c: two sorted inputs as one: all elements of both in order, of equal ones those of the first input first.
 *
 * Bad input: an input that is not sorted.
 */
#include "sorted.h"

PROGRAM("name": "merge", "kind": "block", "tasks": "ordered", "state_bytes": 16,
        "inputs": [TWO_SORTED("a", "b")],
        "outputs": [{"name": "merged", "dtype": DTYPE_NAME, "exact": false}])

int64_t nd_block(nd_args *args) {
    SORTED_INPUT(args, 0, a, n, a_ended);
    SORTED_INPUT(args, 1, b, m, b_ended);
    T *restrict merged = ND_OUTPUT(args, 0, T);
    size_t i = 0, j = 0, used = 0;
    if (ND_OUTPUT_COUNT(args, 0, T) < n + m) return OUTPUT_FULL;
    while (i < n && j < m) {
        /* Neither input can end in these turns: none asks for an end, and none branches on the data. */
        size_t turns = n - i < m - j ? n - i : m - j;
        UNROLL(4) for (; turns; turns--) {
            T x = a[i], y = b[j];
            int second = before(y, x);
            merged[used++] = second ? y : x;
            j += (size_t)second, i += (size_t)!second;
        }
    }
    if (j == m && b_ended && i < n) {
        __builtin_memcpy(merged + used, a + i, (n - i) * sizeof(T));
        used += n - i, i = n;
    } else if (i == n && a_ended && j < m) {
        __builtin_memcpy(merged + used, b + j, (m - j) * sizeof(T));
        used += m - j, j = m;
    }
    /* The merged elements are in order if both inputs are, and only then. */
    if (!in_order(ND_STATE(args, taken), merged, used)) return BAD_INPUT;
    ND_SET_TAKEN(args, 0, i, T);
    ND_SET_TAKEN(args, 1, j, T);
    ND_SET_USED(args, 0, used, T);
    return 0;
}
