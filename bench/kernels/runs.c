/* runs.c: codes bytes as runs (a length below 256, a byte) and decodes them: one result a record, sum and length. */
#include <nandarray.h>

ND_PROGRAM("name": "runs", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8", "record_bytes": 4096}],
           "outputs": [{"name": "y", "dtype": "uint64"}])

#define COUNT 4096

int64_t nd_block(nd_args *args) {
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    uint64_t *y = ND_OUTPUT(args, 0, uint64_t);
    size_t n = ND_INPUT_COUNT(args, 0, uint8_t) / COUNT;
    uint8_t coded[2 * COUNT], back[COUNT];
    for (size_t record = 0; record < n; record++) {
        const uint8_t *from = x + record * COUNT;
        size_t length = 0, at = 0;
        for (size_t i = 0; i < COUNT;) {
            size_t run = 1;
            while (run < 255 && i + run < COUNT && from[i + run] == from[i]) run++;
            coded[length++] = (uint8_t)run, coded[length++] = from[i];
            i += run;
        }
        for (size_t i = 0; i < length; i += 2)
            for (size_t k = 0; k < coded[i]; k++) back[at++] = coded[i + 1];
        uint64_t sum = 0;
        for (size_t i = 0; i < COUNT; i++) sum = sum * 31 + back[i];
        y[record] = sum ^ length;
    }
    ND_SET_USED(args, 0, n, uint64_t);
    return 0;
}
