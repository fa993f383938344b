/* dct.c: the discrete cosine transform of blocks of 8 x 8, by its definition: a cosine for each product. */
#include <math.h>
#include <nandarray.h>

ND_PROGRAM("name": "dct", "kind": "block", "inputs": [{"name": "x", "dtype": "float32", "record_bytes": 256}],
           "outputs": [{"name": "y", "dtype": "float32", "record_bytes": 256}])

#define SIDE 8

static void along(const double *from, double *to, int apart, int step) {
    for (int line = 0; line < SIDE; line++)
        for (int k = 0; k < SIDE; k++) {
            double sum = 0;
            for (int i = 0; i < SIDE; i++)
                sum += from[line * apart + i * step] * cos(3.14159265358979323846 / SIDE * (i + 0.5) * k);
            to[line * apart + k * step] = sum * (k ? 0.5 : 0.35355339059327376220);
        }
}

int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float);
    float *y = ND_OUTPUT(args, 0, float);
    size_t n = ND_INPUT_COUNT(args, 0, float);
    for (size_t at = 0; at < n; at += SIDE * SIDE) {
        double from[SIDE * SIDE], between[SIDE * SIDE], to[SIDE * SIDE];
        for (int i = 0; i < SIDE * SIDE; i++) from[i] = x[at + i];
        along(from, between, SIDE, 1);
        along(between, to, 1, SIDE);
        for (int i = 0; i < SIDE * SIDE; i++) y[at + i] = (float)to[i];
    }
    ND_SET_USED(args, 0, n, float);
    return 0;
}
