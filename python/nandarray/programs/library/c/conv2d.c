/* conv2d.c: images of -DHEIGHT x -DWIDTH elements under a kernel of -DKERNEL_HEIGHT x -DKERNEL_WIDTH.
 *
 * "Valid" cross-correlation, as neural networks mean convolution: result[y, x] = sum of image[y + i, x + j] *
 * kernel[i, j], as large as the kernel fits. Terms are added row by row of the kernel in the elements' type;
 * integers wrap.
 */
#include "common.h"

#ifndef HEIGHT
#define HEIGHT 64
#define WIDTH 64
#define KERNEL_HEIGHT 3
#define KERNEL_WIDTH 3
#define IMAGE_BYTES 32768
#define KERNEL_BYTES 72
#define RESULT_BYTES 30752
#endif
#define ROWS (HEIGHT - KERNEL_HEIGHT + 1)
#define COLUMNS (WIDTH - KERNEL_WIDTH + 1)
_Static_assert(KERNEL_HEIGHT >= 1 && KERNEL_WIDTH >= 1 && ROWS >= 1 && COLUMNS >= 1, "the kernel fits the image");
_Static_assert(IMAGE_BYTES == HEIGHT * WIDTH * T_BYTES && RESULT_BYTES == ROWS * COLUMNS * T_BYTES, "metadata says so");
_Static_assert(KERNEL_BYTES == KERNEL_HEIGHT * KERNEL_WIDTH * T_BYTES, "metadata says so");

PROGRAM("name": "conv2d", "kind": "block",
        "inputs": [{"name": "images", "dtype": DTYPE_NAME, "record_bytes": IMAGE_BYTES},
                   {"name": "kernel", "dtype": DTYPE_NAME, "record_bytes": KERNEL_BYTES, "whole": true}],
        "outputs": [{"name": "result", "dtype": DTYPE_NAME, "record_bytes": RESULT_BYTES}])

#if T_FLOAT
typedef T sum_type;
#else
typedef uint64_t sum_type; /* wraps */
#endif

static void convolve(const T *restrict image, const T *restrict kernel, T *restrict result) {
    for (size_t y = 0; y < ROWS; y++)
        for (size_t x = 0; x < COLUMNS; x++) {
            sum_type sum = 0;
            UNROLL(8) for (size_t i = 0; i < KERNEL_HEIGHT; i++)
                UNROLL(8) for (size_t j = 0; j < KERNEL_WIDTH; j++)
                    sum += (sum_type)image[(y + i) * WIDTH + x + j] * (sum_type)kernel[i * KERNEL_WIDTH + j];
            result[y * COLUMNS + x] = (T)sum;
        }
}

int64_t nd_block(nd_args *args) {
    const T *images = ND_INPUT(args, 0, T), *kernel = ND_INPUT(args, 1, T);
    T *result = ND_OUTPUT(args, 0, T);
    size_t n = args->inputs[0].bytes / IMAGE_BYTES;
    if (args->inputs[0].bytes % IMAGE_BYTES) return BAD_INPUT;
    if (args->inputs[1].bytes != KERNEL_BYTES) return BAD_INPUT;
    if (args->outputs[0].bytes < n * RESULT_BYTES) return OUTPUT_FULL;
    for (size_t i = 0; i < n; i++) convolve(images + i * HEIGHT * WIDTH, kernel, result + i * ROWS * COLUMNS);
    args->outputs[0].used = n * RESULT_BYTES;
    return 0;
}
