/* bfs.c: one level of a breadth-first search: where the edges from vertices of a level lead that has none yet.
 *
 * An edge is two uint32, from and to. Levels are a uint32 a vertex, 0xffffffff for none. The result has the vertex
 * once for each such edge, in the order of edges. Bad input: an edge of a vertex that is not there.
 */
#include "common.h"

PROGRAM("name": "bfs_scan", "kind": "block", "inputs": [{"name": "edges", "dtype": "uint32", "record_bytes": 8},
                                                        {"name": "levels", "dtype": "uint32", "whole": true}],
        "outputs": [{"name": "found", "dtype": "uint32", "bound": {"per_record": 4}}],
        "scalars": [{"name": "level", "dtype": "uint32"}])

#define NONE 0xffffffffu

int64_t nd_block(nd_args *args) {
    const uint32_t *restrict edge = ND_INPUT(args, 0, uint32_t);
    const uint32_t *restrict level = ND_INPUT(args, 1, uint32_t);
    uint32_t *restrict found = ND_OUTPUT(args, 0, uint32_t);
    size_t n = args->inputs[0].bytes / 8, vertices = ND_INPUT_COUNT(args, 1, uint32_t), count = 0;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    uint32_t current = (uint32_t)nd_scalar_u64(args, 0);
    if (ND_OUTPUT_COUNT(args, 0, uint32_t) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) {
        uint32_t from = edge[2 * i], to = edge[2 * i + 1];
        if ((from >= vertices) | (to >= vertices)) return BAD_INPUT;
        found[count] = to;
        count += (level[from] == current) & (level[to] == NONE);
    }
    ND_SET_USED(args, 0, count, uint32_t);
    return 0;
}
