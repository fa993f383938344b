/* network.c: inference of a small convolutional network, quantised to int32: one layer of convolution, one dense
 * layer.
 *
 * An image of SIDE x SIDE pixels -> convolution with FILTERS kernels of 3 x 3 and a bias ("valid") -> negative
 * values to 0 -> maximum of 2 x 2 -> shift right -> dense to CLASSES. With the defaults, 28 x 28, 32 filters, 10
 * classes, that is the network of the dissertation's figure on neural networks (5408 x 10 in the dense layer).
 *
 * Weights, whole in each task, are int32: kernels [FILTERS][3][3], their biases [FILTERS], dense [FILTERS * HALF *
 * HALF][CLASSES] with rows in the order filter, y, x, its biases [CLASSES]. Everything wraps modulo 2^32. Results:
 * the dense layer's values, and the number of the greatest one, the first of equal ones.
 */
#ifndef DTYPE
#define DTYPE int32
#endif
#include "common.h"

#ifndef SIDE
#define SIDE 28
#define FILTERS 32
#define CLASSES 10
#define IMAGE_BYTES 3136
#define VALUES_BYTES 40
#define SCRATCHPAD_BYTES 21632
#endif
#define WIDE (SIDE - 2)
#define HALF (WIDE / 2)
#define FEATURES (FILTERS * HALF * HALF)
_Static_assert(SIDE >= 4 && FILTERS >= 1 && CLASSES >= 1, "something is left of the image");
_Static_assert(IMAGE_BYTES == SIDE * SIDE * T_BYTES && VALUES_BYTES == 4 * CLASSES, "metadata says so");
_Static_assert(SCRATCHPAD_BYTES == 4 * FEATURES, "metadata says so");

PROGRAM("name": "network", "kind": "block",
        "inputs": [{"name": "images", "dtype": DTYPE_NAME, "record_bytes": IMAGE_BYTES},
                   {"name": "weights", "dtype": "int32", "whole": true}],
        "outputs": [{"name": "values", "dtype": "int32", "record_bytes": VALUES_BYTES},
                    {"name": "label", "dtype": "uint32"}],
        "scalars": [{"name": "shift", "dtype": "uint64", "default": 8}], "scratchpad_bytes": SCRATCHPAD_BYTES)

typedef struct {
    uint32_t kernel[FILTERS][9];
    uint32_t kernel_bias[FILTERS];
    uint32_t dense[FEATURES][CLASSES];
    uint32_t dense_bias[CLASSES];
} weights;

/* The convolution at y, x; unsigned, so that it wraps. */
static inline __attribute__((always_inline)) int32_t at(const T *restrict image, const uint32_t *restrict k, size_t y,
                                                        size_t x) {
    uint32_t sum = 0;
    UNROLL_ALL for (size_t i = 0; i < 3; i++)
        UNROLL_ALL for (size_t j = 0; j < 3; j++) sum += (uint32_t)image[(y + i) * SIDE + x + j] * k[3 * i + j];
    return (int32_t)sum;
}

static void features(const T *restrict image, const weights *restrict w, unsigned shift, int32_t *restrict to) {
    for (size_t f = 0; f < FILTERS; f++) {
        uint32_t k[9], bias = w->kernel_bias[f];
        for (int i = 0; i < 9; i++) k[i] = w->kernel[f][i];
        for (size_t y = 0; y < HALF; y++)
            for (size_t x = 0; x < HALF; x++) {
                int32_t most = 0;
                UNROLL_ALL for (size_t part = 0; part < 4; part++) {
                    int32_t value = (int32_t)((uint32_t)at(image, k, 2 * y + part / 2, 2 * x + part % 2) + bias);
                    most = value > most ? value : most;
                }
                *to++ = most >> shift;
            }
    }
}

static uint32_t classify(const int32_t *restrict from, const weights *restrict w, int32_t *restrict values) {
    uint32_t sum[CLASSES], best = 0;
    for (size_t c = 0; c < CLASSES; c++) sum[c] = w->dense_bias[c];
    for (size_t i = 0; i < FEATURES; i++) {
        uint32_t value = (uint32_t)from[i];
        UNROLL_ALL for (size_t c = 0; c < CLASSES; c++) sum[c] += value * w->dense[i][c];
    }
    for (size_t c = 0; c < CLASSES; c++) {
        values[c] = (int32_t)sum[c];
        if (values[c] > values[best]) best = (uint32_t)c;
    }
    return best;
}

int64_t nd_block(nd_args *args) {
    const T *images = ND_INPUT(args, 0, T);
    const weights *w = ND_INPUT(args, 1, weights);
    int32_t *values = ND_OUTPUT(args, 0, int32_t), *scratch = ND_SCRATCHPAD(args, int32_t);
    uint32_t *label = ND_OUTPUT(args, 1, uint32_t);
    uint64_t shift = nd_scalar_u64(args, 0);
    size_t n = args->inputs[0].bytes / IMAGE_BYTES;
    if (args->inputs[0].bytes % IMAGE_BYTES) return BAD_INPUT;
    if (shift > 31) return BAD_SCALAR;
    if (args->inputs[1].bytes != sizeof(weights)) return BAD_INPUT;
    if (args->outputs[0].bytes < n * VALUES_BYTES || args->outputs[1].bytes < n * 4) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) {
        features(images + i * SIDE * SIDE, w, (unsigned)shift, scratch);
        label[i] = classify(scratch, w, values + i * CLASSES);
    }
    args->outputs[0].used = n * VALUES_BYTES;
    args->outputs[1].used = n * 4;
    return 0;
}
