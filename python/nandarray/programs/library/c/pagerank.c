/* pagerank.c: what edges bring to vertices in one step of PageRank.
 *
 * An edge is two uint32, from and to; share is a float64 a vertex, its rank divided by its outgoing edges. For each
 * run of edges to the same vertex the result has one row: uint32 vertex, uint32 how many edges, float64 the sum of
 * their shares, added in the edges' order. Edges that are sorted by their target so become one row a vertex, but for
 * runs that tasks cut: the reader of the result adds the rows of a vertex in their order, as
 * nandarray.programs.library.twins.graph.pagerank_ranks does. Bad input: an edge of a vertex that is not there.
 */
#include "common.h"

PROGRAM("name": "pagerank_step", "kind": "block",
        "inputs": [{"name": "edges", "dtype": "uint32", "record_bytes": 8},
                   {"name": "share", "dtype": "float64", "whole": true}],
        "outputs": [{"name": "sums", "dtype": [["vertex", "uint32"], ["edges", "uint32"], ["sum", "float64"]],
                     "bound": {"per_record": 16}}])

typedef struct {
    uint32_t vertex, edges;
    double sum;
} row;

int64_t nd_block(nd_args *args) {
    const uint32_t *restrict edge = ND_INPUT(args, 0, uint32_t);
    const double *restrict share = ND_INPUT(args, 1, double);
    row *restrict sums = ND_OUTPUT(args, 0, row);
    size_t n = args->inputs[0].bytes / 8, vertices = ND_INPUT_COUNT(args, 1, double), count = 0;
    if (args->inputs[0].bytes % 8) return BAD_INPUT;
    if (ND_OUTPUT_COUNT(args, 0, row) < n) return OUTPUT_FULL;
    for (size_t i = 0; i < n;) {
        uint32_t vertex = edge[2 * i + 1];
        if (vertex >= vertices) return BAD_INPUT;
        size_t first = i;
        double sum = 0;
        do {
            uint32_t from = edge[2 * i];
            if (from >= vertices) return BAD_INPUT;
            sum += share[from];
        } while (++i < n && edge[2 * i + 1] == vertex);
        sums[count++] = (row){vertex, (uint32_t)(i - first), sum};
    }
    ND_SET_USED(args, 0, count, row);
    return 0;
}
