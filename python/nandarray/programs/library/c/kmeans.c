/* kmeans.c: for each point of -DDIMS coordinates the number of the nearest centroid.
 *
 * Squared distances are added in float64 from the first coordinate to the last; of equal ones the first centroid
 * wins. A distance that is NaN is never nearer; a point with no other gets 0, and so does every point if there is no
 * centroid.
 */
#include "common.h"

#ifndef DIMS
#define DIMS 2
#define POINT_BYTES 16
#endif
_Static_assert(POINT_BYTES == DIMS * T_BYTES, "a record is a point");

PROGRAM("name": "kmeans_assign", "kind": "block",
        "inputs": [{"name": "points", "dtype": DTYPE_NAME, "record_bytes": POINT_BYTES},
                   {"name": "centroids", "dtype": DTYPE_NAME, "record_bytes": POINT_BYTES, "whole": true}],
        "outputs": [{"name": "label", "dtype": "uint32"}])

int64_t nd_block(nd_args *args) {
    const T *restrict point = ND_INPUT(args, 0, T);
    const T *restrict centroids = ND_INPUT(args, 1, T);
    uint32_t *restrict label = ND_OUTPUT(args, 0, uint32_t);
    size_t n = args->inputs[0].bytes / POINT_BYTES, k = args->inputs[1].bytes / POINT_BYTES;
    if (args->inputs[0].bytes % POINT_BYTES || args->inputs[1].bytes % POINT_BYTES) return BAD_INPUT;
    if (ND_OUTPUT_COUNT(args, 0, uint32_t) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++, point += DIMS) {
        double nearest = __builtin_inf();
        uint32_t found = 0;
        const T *restrict centroid = centroids;
        for (size_t c = 0; c < k; c++, centroid += DIMS) {
            double distance = 0;
            UNROLL(8) for (size_t d = 0; d < DIMS; d++) {
                double off = (double)point[d] - (double)centroid[d];
                distance += off * off;
            }
            if (distance < nearest) nearest = distance, found = (uint32_t)c;
        }
        label[i] = found;
    }
    ND_SET_USED(args, 0, n, uint32_t);
    return 0;
}
