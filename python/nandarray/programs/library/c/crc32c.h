/* crc32c.h: the CRC with Castagnoli's polynomial (0x1edc6f41, reflected 0x82f63b78), as in iSCSI (RFC 3720, appendix
 * B.4).
 *
 * Eight bytes a step, with eight tables (M. E. Kounavis, F. L. Berry, 2008) that are made in the scratchpad, task by
 * task.
 */
#ifndef PROGRAMS_CRC32C_H
#define PROGRAMS_CRC32C_H

#include "common.h"

typedef struct {
    uint32_t of[8][256];
} crc_tables;
_Static_assert(sizeof(crc_tables) == 8192, "metadata says so");

static void crc_make_tables(crc_tables *restrict t) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78 & (0 - (crc & 1)));
        t->of[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) t->of[k][i] = t->of[k - 1][i] >> 8 ^ t->of[0][t->of[k - 1][i] & 0xff];
}

/* DATA at a multiple of 8 bytes. */
static inline uint32_t crc32c(const crc_tables *restrict t, const unsigned char *restrict data, size_t bytes) {
    uint32_t crc = 0xffffffff;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word = *(const word64 *)data ^ crc;
        crc = t->of[7][word & 0xff] ^ t->of[6][word >> 8 & 0xff] ^ t->of[5][word >> 16 & 0xff] ^
              t->of[4][word >> 24 & 0xff] ^ t->of[3][word >> 32 & 0xff] ^ t->of[2][word >> 40 & 0xff] ^
              t->of[1][word >> 48 & 0xff] ^ t->of[0][word >> 56];
    }
    for (; bytes; bytes--) crc = crc >> 8 ^ t->of[0][(crc ^ *data++) & 0xff];
    return ~crc;
}

#endif
