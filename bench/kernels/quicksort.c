/* quicksort.c: sorts records of 8,192 numbers in the scratchpad, with a stack of its own; short pieces by insertion. */
#include <nandarray.h>

ND_PROGRAM("name": "quicksort", "kind": "block", "inputs": [{"name": "x", "dtype": "int32", "record_bytes": 32768}],
           "outputs": [{"name": "y", "dtype": "int32", "record_bytes": 32768}], "scratchpad_bytes": 33792)

#define COUNT 8192
#define SHORT 12

static void sort(int32_t *x, int32_t *stack) {
    int32_t low = 0, high = COUNT - 1;
    int depth = 0;
    for (;;) {
        while (high - low > SHORT) {
            int32_t middle = low + (high - low) / 2, a = x[low], b = x[middle], c = x[high];
            int32_t pivot = a < b ? (b < c ? b : a < c ? c : a) : a < c ? a : b < c ? c : b;
            int32_t i = low, j = high;
            while (i <= j) {
                while (x[i] < pivot) i++;
                while (x[j] > pivot) j--;
                if (i <= j) { int32_t t = x[i]; x[i++] = x[j], x[j--] = t; }
            }
            /* The longer part waits, so that few do. */
            if (j - low > high - i) {
                stack[depth++] = low, stack[depth++] = j;
                low = i;
            } else {
                stack[depth++] = i, stack[depth++] = high;
                high = j;
            }
        }
        for (int32_t i = low + 1; i <= high; i++) {
            int32_t one = x[i], j = i;
            for (; j > low && x[j - 1] > one; j--) x[j] = x[j - 1];
            x[j] = one;
        }
        if (!depth) return;
        high = stack[--depth], low = stack[--depth];
    }
}

int64_t nd_block(nd_args *args) {
    const int32_t *x = ND_INPUT(args, 0, int32_t);
    int32_t *y = ND_OUTPUT(args, 0, int32_t), *own = ND_SCRATCHPAD(args, int32_t);
    size_t n = ND_INPUT_COUNT(args, 0, int32_t);
    for (size_t at = 0; at < n; at += COUNT) {
        for (size_t i = 0; i < COUNT; i++) own[i] = x[at + i];
        sort(own, own + COUNT);
        for (size_t i = 0; i < COUNT; i++) y[at + i] = own[i];
    }
    ND_SET_USED(args, 0, n, int32_t);
    return 0;
}
