/* SHA-256 (FIPS 180-4), FNV-1a and CRC-32 over bytes made up; SHA-256 of "abc" is the standard's own test. */
#include "system.h"

typedef unsigned int word;

static const word constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static word right(word value, int by)
{
    return value >> by | value << (32 - by);
}

static void block(word state[8], const unsigned char *bytes)
{
    word w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (word)bytes[4 * i] << 24 | (word)bytes[4 * i + 1] << 16 | (word)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        word a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (right(a, 7) ^ right(a, 18) ^ a >> 3) + w[i - 7] + (right(b, 17) ^ right(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 8; i++)
        s[i] = state[i];
    for (int i = 0; i < 64; i++) {
        word one = s[7] + (right(s[4], 6) ^ right(s[4], 11) ^ right(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                   constants[i] + w[i];
        word two = (right(s[0], 2) ^ right(s[0], 13) ^ right(s[0], 22)) +
                   ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int k = 7; k > 0; k--)
            s[k] = s[k - 1];
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void sha256(const unsigned char *bytes, unsigned int length, word state[8])
{
    static const word start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char last[128] = {0};
    for (int i = 0; i < 8; i++)
        state[i] = start[i];
    unsigned int whole = length / 64, rest = length % 64;
    for (unsigned int i = 0; i < whole; i++)
        block(state, bytes + 64 * i);
    memcpy(last, bytes + 64 * whole, rest);
    last[rest] = 0x80;
    unsigned int end = rest < 56 ? 64 : 128;
    for (int i = 0; i < 4; i++)
        last[end - 1 - i] = (unsigned char)(length * 8 >> 8 * i);
    block(state, last);
    if (end == 128)
        block(state, last + 64);
}

int main(void)
{
    static unsigned char bytes[10000];
    word state[8], seed = 7, crc = ~0u;
    unsigned long long fnv = 14695981039346656037ull;
    sha256((const unsigned char *)"abc", 3, state);
    print_number("abc", (unsigned long long)state[0] << 32 | state[1]);
    for (unsigned int i = 0; i < sizeof bytes; i++) {
        seed = seed * 1103515245 + 12345;
        bytes[i] = (unsigned char)(seed >> 16);
        fnv = (fnv ^ bytes[i]) * 1099511628211ull;
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
    }
    for (unsigned int length = 9900; length < 10000; length += 9) {
        sha256(bytes, length, state);
        fnv ^= (unsigned long long)state[length % 8] << (length % 32);
    }
    print_number("crc", ~crc);
    print_number("mixed", fnv);
    return 0;
}
