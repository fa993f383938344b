/* lz4.c: decompress blocks of LZ4 (its block format), each by itself.
 *
 * The input is one block behind the other, each with its bytes before it (uint32; with the highest bit set, the
 * block is not compressed), as in the data blocks of an LZ4 frame. Results stand one behind the other. Bad input: a
 * length, an offset or a sequence that leads outside its block. -DEXPANSION bounds the result's room; data can be
 * shorter by 255 times at most.
 */
#include "common.h"

#ifndef EXPANSION
#define EXPANSION 255
#endif

PROGRAM("name": "lz4_decompress", "kind": "block",
        "inputs": [{"name": "blocks", "dtype": "uint8", "records": "prefixed"}],
        "outputs": [{"name": "data", "dtype": "uint8", "bound": {"per_input_byte": EXPANSION}}])

#define RAW 0x80000000u
#define MATCH_LEAST 4


/* Not memcpy: regions overlap upwards on purpose. */
static inline void copy_up(unsigned char *to, const unsigned char *from, size_t n) {
    UNROLL(8) for (size_t i = 0; i < n; i++) to[i] = from[i];
}

/* The bytes of a length of 15 or more; adds to it. 0 if they lead outside. */
static inline int longer(const unsigned char **from, const unsigned char *end, size_t *length) {
    unsigned more;
    do {
        if (*from == end) return 0;
        *length += more = *(*from)++;
    } while (more == 255);
    return 1;
}

/* One block; bytes written, or an error. */
static int64_t block(const unsigned char *from, size_t bytes, unsigned char *to, size_t room) {
    const unsigned char *end = from + bytes;
    size_t done = 0;
    while (from < end) {
        unsigned token = *from++;
        size_t length = token >> 4;
        if (length == 15 && !longer(&from, end, &length)) return BAD_INPUT;
        if (length > (size_t)(end - from)) return BAD_INPUT;
        if (length > room - done) return OUTPUT_FULL;
        copy_up(to + done, from, length);
        from += length, done += length;
        if (from == end) break; /* the last sequence has no match */
        if (end - from < 2) return BAD_INPUT;
        size_t offset = from[0] | (size_t)from[1] << 8;
        from += 2;
        length = token & 15;
        if (length == 15 && !longer(&from, end, &length)) return BAD_INPUT;
        length += MATCH_LEAST;
        if (offset == 0 || offset > done || from == end) return BAD_INPUT;
        if (length > room - done) return OUTPUT_FULL;
        copy_up(to + done, to + done - offset, length);
        done += length;
    }
    return (int64_t)done;
}

int64_t nd_block(nd_args *args) {
    const unsigned char *from = ND_INPUT(args, 0, unsigned char), *end = from + args->inputs[0].bytes;
    unsigned char *to = ND_OUTPUT(args, 0, unsigned char);
    size_t room = (size_t)args->outputs[0].bytes, done = 0;
    while (from < end) {
        if (end - from < 4) return BAD_INPUT;
        uint32_t head = load_u32(from), bytes = head & ~RAW;
        from += 4;
        if (bytes > (size_t)(end - from)) return BAD_INPUT;
        int64_t made = bytes;
        if (head & RAW) {
            if (bytes > room - done) return OUTPUT_FULL;
            copy_up(to + done, from, bytes);
        } else {
            made = block(from, bytes, to + done, room - done);
            if (made < 0) return made;
        }
        from += bytes, done += (size_t)made;
    }
    args->outputs[0].used = done;
    return 0;
}
